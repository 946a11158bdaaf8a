# drain.awk - the frames of notify.buf -> the one user text that they make (CONTRACT §7), as the body of a JSON string.
#
# -v notes=FILE    the texts of USER_NOTIFY, one a line, as bodies of JSON strings, for their events
# -v problems=FILE what was wrong with the frames
{
    resp_push($0)
    while (took = resp_take()) {
        if (took > 0) message()
        else if (problems != "") print "notify.buf: " RESP_WHY > problems
    }
}
END {
    if (resp_open() && problems != "") print "notify.buf: it ends inside a frame" > problems
    printf "%s", join_pieces(part, 1, n)
}

function message(   kind, text) {
    kind = RESP_F[1]
    if (kind == "AGENT_RESULT" && RESP_N == 7) {
        add("[sub-agent " json_clean(RESP_F[2]) "] " json_clean(RESP_F[3]) " (in=" RESP_F[4] ", out=" RESP_F[5] ")")
        if (RESP_F[6] != "") add("Thinking: " json_clean(RESP_F[6]))
        if (RESP_F[7] != "") add("Text: " json_clean(RESP_F[7]))
    } else if (kind == "ASYNC_TASK_RESULT" && RESP_N == 4) {
        add("[bg-bash " json_clean(RESP_F[2]) "] exit_code=" RESP_F[3])
        if (RESP_F[4] != "") add("Output: " json_clean(RESP_F[4]))
    } else if (kind == "USER_NOTIFY" && RESP_N == 2) {
        text = json_clean(RESP_F[2])
        add(text)
        if (notes != "") print json_escape(text) > notes
    } else if (problems != "") print "notify.buf: a frame that does not belong there: " json_clean(kind) > problems
}

function add(text) {
    n++
    part[n] = (n > 1 ? "\\n" : "") json_escape(text)
}
