# transcript.awk - display messages -> a readable transcript, for `export`. -v format=md|json, name=SESSION
BEGIN { if (format == "json") printf "["; else print "# Session " json_clean(name) }
{
    resp_push($0)
    while (took = resp_take()) if (took > 0) part(RESP_F[1])
}
END { if (format == "json") print "\n]" }

function part(name) {
    if (name == "USER_MESSAGE") write("user", "User", RESP_F[2], 0)
    else if (name == "TEXT") write("text", "Assistant", RESP_F[2], 0)
    else if (name == "THINKING") write("thinking", "Thinking", RESP_F[2], 1)
    else if (name == "TOOL_CALL") write("tool_call", "Call: " RESP_F[2], RESP_F[4], 1)
    else if (name == "TOOL_RESULT") write("tool_result", "Result: " RESP_F[3], RESP_F[4], 1)
    else if (name == "ERROR") write("error", "Error", RESP_F[2], 0)
    else if (name == "USER_NOTIFY") write("user_notify", "User, to the running turn", RESP_F[2], 0)
    else if (name == "AGENT_RESULT") write("sub_agent_result", "Sub-agent " RESP_F[2] " " RESP_F[3], RESP_F[7], 0)
    else if (name == "ASYNC_TASK_RESULT") write("async_task_result", "Background task " RESP_F[2] ", exit code " RESP_F[3], RESP_F[4], 1)
}

function write(kind, title, text, verbatim,   fence, n) {
    if (format == "json") {
        printf "%s\n{\"type\":%s,\"title\":%s,\"content\":%s}", count++ ? "," : "", json_quote(kind), json_quote(title), json_quote(text)
        return
    }
    for (n = length(text); n && substr(text, n, 1) == "\n"; n--) continue
    text = substr(text, 1, n)
    if (!verbatim) { printf "\n## %s\n\n%s\n", title, text; return }
    fence = "```"
    while (index(text, fence)) fence = fence "`"
    printf "\n**%s**\n\n%s\n%s\n%s\n", title, fence, text, fence
}
