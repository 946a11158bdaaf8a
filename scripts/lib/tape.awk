# tape.awk - passes the frames of a model call on, and writes them down as a cassette (--record).
#
# -v file=FILE   the cassette: lines are appended
{
    printf "%s\n", $0
    fflush()
    resp_push($0)
    while (took = resp_take()) if (took > 0) tape(RESP_F[1])
}
END { thinking_end("") }

function tape(name,   line) {
    if (name == "THINKING") { thinking = thinking RESP_F[2]; has_thinking = 1; return }
    if (name == "SIGNATURE") {
        thinking_end(",\"signature\":" json_quote(RESP_F[2]) (RESP_N > 2 ? ",\"id\":" json_quote(RESP_F[3]) : ""))
        return
    }
    thinking_end("")
    if (name == "TEXT") write("{\"type\":\"text\",\"content\":" json_quote(RESP_F[2]) "}")
    else if (name == "REDACTED_THINKING") write("{\"type\":\"redacted_thinking\",\"data\":" json_quote(RESP_F[2]) "}")
    else if (name == "TOOL_CALL") {
        line = json_tool_input(RESP_F[4])
        if (JSON_BAD != "") line = json_quote(RESP_F[4])
        write("{\"type\":\"tool_call\",\"name\":" json_quote(RESP_F[2]) ",\"id\":" json_quote(RESP_F[3]) ",\"input\":" line "}")
    } else if (name == "USAGE")
        write("{\"type\":\"usage\",\"input_tokens\":" RESP_F[2] ",\"output_tokens\":" RESP_F[3] ",\"cache_read_input_tokens\":" RESP_F[4] \
            ",\"cache_creation_input_tokens\":" RESP_F[5] (RESP_N > 5 ? ",\"estimated\":true" : "") "}")
    else if (name == "STOP") write("{\"type\":\"stop\",\"reason\":" json_quote(RESP_F[2]) "}")
    else if (name == "ERROR") write("{\"type\":\"error\",\"message\":" json_quote(RESP_F[2]) "}")
    else if (name == "RETRY") write("{\"type\":\"retry\"}")
}

function thinking_end(more) {
    if (has_thinking || more != "") write("{\"type\":\"thinking\",\"content\":" json_quote(thinking) more "}")
    thinking = ""
    has_thinking = 0
}

function write(line) {
    printf "%s\n", line >> file
    fflush(file)
}
