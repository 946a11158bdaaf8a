# response.awk - the messages of one model call -> events, display, assistant line, calls (CONTRACT sections 4, 5, 7).
#
# Run      ... | LC_ALL=C awk -f json.awk -f protocol.awk -v events=FILE -v dir=DIR -f response.awk
#          (mawk: -W interactive, or nothing streams)
# Input    RESP frames, as sse_*.awk or `core sse` write them: TEXT, THINKING, SIGNATURE, REDACTED_THINKING, TOOL_CALL,
#          USAGE, STOP, ERROR; between two tries RETRY, which forgets what the first one gave, its ERROR included.
# Output   -v show=messages (default): TEXT, THINKING and RETRY frames as they come (-v out: see protocol.awk)
#          -v show=events: the event lines that are written.    -v show=none: nothing.
# -v events=FILE   text, thinking, retry and usage events are appended here, each with one write when it is short. The
#                  usage event of a try that was given up comes before `retry`.
# -v kind=agent    of the usage event, -v model=NAME its model
# -v max_tokens=N  the limit asked for: a call that is no JSON in an answer of that length was cut off
# -v dir=DIR       an existing directory, for what the caller needs at the end:
#   DIR/result     lines of words: `usage IN OUT CACHE_READ CACHE_CREATION ESTIMATED(0|1)`, once for each try that
#                  reported figures; `stop REASON`; `calls N`; `dropped N` when the answer was cut off by a limit: its N
#                  calls are not to run; `error TYPE` (`-` for none)
#   DIR/error      the error's message, without a line feed
#   DIR/line       the assistant line with its LF; empty when no block holds anything. Calls that are not to run are
#                  not in it, nor is a last thinking block that was cut before its signature.
#   DIR/text       the text blocks, joined by LF
#   DIR/thinking   the thinking blocks, joined by LF
#   DIR/calls      one line a call: id, name, and 1 when its input was no JSON object; separated by TAB, line-escaped
#   DIR/input.N    the input of call N, from 1: a JSON object on one line ({} when it was none)
#   DIR/broken.N   what the model wrote in place of an object
#   DIR/tool_calls the tool_call event lines

BEGIN {
    if (show == "") show = "messages"
    if (kind == "") kind = "agent"
    blocks = calls_n = tries = 0
    error_message = stop_reason = ""
    has_error = has_stop = has_usage = 0
}
{
    resp_push($0)
    while (took = resp_take()) if (took > 0) message(RESP_F[1])
}
END { finish() }

function message(name) {
    if (name == "TEXT") piece("text", RESP_F[2])
    else if (name == "THINKING") piece("thinking", RESP_F[2])
    else if (name == "SIGNATURE") sign(RESP_F[2], RESP_N > 2 ? RESP_F[3] : "", RESP_N > 2)
    else if (name == "REDACTED_THINKING") { new_block("redacted"); block_text[blocks] = RESP_F[2] }
    else if (name == "TOOL_CALL") call(RESP_F[2], RESP_F[3], RESP_F[4])
    else if (name == "USAGE") {
        has_usage = 1
        usage_words = RESP_F[2] " " RESP_F[3] " " RESP_F[4] " " RESP_F[5] " " (RESP_N > 5 ? 1 : 0)
    } else if (name == "STOP") { has_stop = 1; stop_reason = RESP_F[2] }
    else if (name == "ERROR") {
        has_error = 1
        error_message = RESP_F[2]
        error_type = RESP_N > 2 ? RESP_F[3] : ""
    } else if (name == "RETRY") retry()
}

# ---- Events

function event(line) {
    if (events != "") {
        printf "%s\n", line >> events
        fflush(events)
    }
    if (show == "events") {
        printf "%s\n", line
        fflush()
    }
}

function usage_event(   u) {
    if (!has_usage) return
    split(usage_words, u, " ")
    event("{\"type\":\"usage\",\"input_tokens\":" u[1] ",\"output_tokens\":" u[2] ",\"cache_read_input_tokens\":" u[3] \
        ",\"cache_creation_input_tokens\":" u[4] ",\"kind\":" json_quote(kind) \
        (model == "" ? "" : ",\"model\":" json_quote(model)) (u[5] ? ",\"estimated\":true" : "") \
        ",\"ts\":\"" timestamp() "\"}")
    figures[++tries] = usage_words
    has_usage = 0
}

function retry() {
    usage_event()
    event("{\"type\":\"retry\",\"ts\":\"" timestamp() "\"}")
    if (show == "messages") {
        emit1("RETRY")
        fflush()
    }
    blocks = calls_n = has_error = has_stop = 0
    usage_words = ""
}

# ---- Blocks

function piece(type, text) {
    if (text == "") return
    event("{\"type\":\"" type "\",\"content\":" json_quote(text) "}")
    if (show == "messages") {
        emit2(type == "text" ? "TEXT" : "THINKING", text)
        fflush()
    }
    if (!blocks || block_type[blocks] != type || block_signed[blocks]) new_block(type)
    part[blocks, ++parts[blocks]] = text
}

function new_block(type) {
    block_type[++blocks] = type
    block_signed[blocks] = parts[blocks] = 0
    block_text[blocks] = block_id[blocks] = ""
}

# A signature ends the thinking block it signs; one without any text signs an empty block.
function sign(text, id, has_id) {
    if (!blocks || block_type[blocks] != "thinking" || block_signed[blocks]) new_block("thinking")
    block_signed[blocks] = 1 + has_id
    block_text[blocks] = text
    block_id[blocks] = id
}

function call(name, id, input,   clean, number, c) {
    clean = id
    gsub(/[\200-\277]/, "", clean)
    gsub(/[^A-Za-z0-9_-]/, "_", clean)
    if (clean == "") clean = "call_" (calls_n + 1)
    id = clean
    number = 2
    for (c = 1; c <= calls_n; c++) if (call_id[c] == id) { id = clean "_" number++; c = 0 }
    new_block("call")
    calls_n++
    block_id[blocks] = calls_n
    call_id[calls_n] = id
    call_name[calls_n] = name
    call_input[calls_n] = json_tool_input(input)
    call_broken[calls_n] = JSON_BAD != ""
    if (JSON_BAD != "") {
        call_input[calls_n] = "{}"
        call_raw[calls_n] = input
    }
}

function text_of_block(b,   p, i) {
    for (i = 1; i <= parts[b]; i++) p[i] = part[b, i]
    return join_pieces(p, 1, parts[b])
}

# No API takes a text of blanks back.
function is_blank(s) {
    if (s ~ /[!-~]/) return 0
    gsub(/[\t-\r ]|\302[\205\240]|\341\232\200|\342\200[\200-\212\250\251\257]|\342\201\237|\343\200\200/, "", s)
    return s == ""
}

# ---- The end

function was_cut(   c, u) {
    if (stop_reason ~ /^(max_tokens|length|max_output_tokens|model_context_window_exceeded)$/) return 1
    split(usage_words, u, " ")
    if (!max_tokens || u[2] + 0 < max_tokens + 0) return 0
    for (c = 1; c <= calls_n; c++) if (call_broken[c]) return 1
    return 0
}

function finish(   cut, b, i, c, p, k, text, texts, thoughts, signed, result, file) {
    usage_event()
    if (dir == "") return
    cut = has_stop && was_cut()
    for (b = 1; b <= blocks; b++) if (block_signed[b]) signed = 1
    k = 0
    if (cut) {
        # Calls go first, so that the last block is what the model was writing.
        for (b = blocks; b > 0 && block_type[b] == "call"; b--) block_type[b] = "dropped"
        if (b > 0 && signed && block_type[b] == "thinking" && !block_signed[b]) block_type[b] = "dropped"
    }
    for (b = 1; b <= blocks; b++) {
        text = block_type[b] == "text" || block_type[b] == "thinking" ? text_of_block(b) : ""
        if (block_type[b] == "text") {
            if (text != "") texts = texts (texts == "" ? "" : "\n") text
            if (!is_blank(text)) p[++k] = "{\"type\":\"text\",\"text\":" json_quote(text) "}"
        } else if (block_type[b] == "thinking") {
            if (text != "") thoughts = thoughts (thoughts == "" ? "" : "\n") text
            if (text != "" || block_signed[b])
                p[++k] = "{\"type\":\"thinking\",\"thinking\":" json_quote(text) \
                    (block_signed[b] ? ",\"signature\":" json_quote(block_text[b]) : "") \
                    (block_signed[b] > 1 ? ",\"id\":" json_quote(block_id[b]) : "") "}"
        } else if (block_type[b] == "redacted")
            p[++k] = "{\"type\":\"redacted_thinking\",\"data\":" json_quote(block_text[b]) "}"
        else if (block_type[b] == "call" && !cut) {
            c = block_id[b]
            p[++k] = "{\"type\":\"tool_use\",\"id\":" json_quote(call_id[c]) ",\"name\":" json_quote(call_name[c]) \
                ",\"input\":" call_input[c] "}"
        }
    }
    for (i = 2; i <= k; i++) p[i] = "," p[i]
    printf "%s", k && has_stop ? "{\"role\":\"assistant\",\"content\":[" join_pieces(p, 1, k) "]}\n" : "" > (dir "/line")
    printf "%s", texts > (dir "/text")
    printf "%s", thoughts > (dir "/thinking")
    printf "" > (dir "/calls")
    printf "" > (dir "/tool_calls")
    for (c = 1; c <= calls_n && !cut; c++) {
        printf "%s\t%s\t%s\n", line_escape(call_id[c]), line_escape(call_name[c]), call_broken[c] > (dir "/calls")
        file = dir "/input." c
        printf "%s", call_input[c] > file
        close(file)
        if (call_broken[c]) {
            file = dir "/broken." c
            printf "%s", call_raw[c] > file
            close(file)
        }
        printf "{\"type\":\"tool_call\",\"name\":%s,\"id\":%s,\"input\":%s,\"ts\":\"%s\"}\n", json_quote(call_name[c]), \
            json_quote(call_id[c]), call_input[c], timestamp() > (dir "/tool_calls")
    }
    for (i = 1; i <= tries; i++) result = result "usage " figures[i] "\n"
    if (has_stop) result = result "stop " stop_reason "\ncalls " (cut ? 0 : calls_n) "\n"
    if (cut) result = result "dropped " calls_n "\n"
    if (!has_stop) {
        if (!has_error) {
            error_message = "the stream ended before the answer was complete"
            error_type = "stream_broken"
        }
        result = result "error " (error_type == "" ? "-" : error_type) "\n"
        printf "%s", error_message > (dir "/error")
    }
    printf "%s", result > (dir "/result")
}
