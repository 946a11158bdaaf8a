# status.awk - what a session is doing, for `status`: text, or with -v json=1 one object.
#
# -v name, dir, pid ("" = nobody runs it), busy, waiting;  environment STATUS_OPEN: the lines of active_sub.list; STATUS_SANDBOX
BEGIN {
    line = whole(dir "/stats.json")
    meta = whole(dir "/session.json")
    n = json_members(line, keys, raws)
    for (i = 1; i <= n; i++) stat[keys[i]] = raws[i]
    all = stat["total_input_tokens"] + stat["total_cache_read_tokens"] + stat["total_cache_creation_tokens"]
    rate = all ? 100 * stat["total_cache_read_tokens"] / all : 0
    opens = split(ENVIRON["STATUS_OPEN"], open, "\n")
    if (json) object(); else text()
}
function whole(file,   l, s) {
    while ((getline l < file) > 0) s = s l
    close(file)
    return s
}
function figure(key) { return stat[key] == "" ? "0" : stat[key] }
function of_meta(key) { return json_string(json_member(meta, key)) }
function text(   state, owner, i, w) {
    owner = pid == "" ? "" : " (pid " pid ")"
    state = pid == "" ? "not running" : busy ? "working" : "waiting for input"
    printf "session  %s\nstate    %s%s\npath     %s\nmodel    %s %s\nturns    %s\n", name, state, owner, dir, \
        of_meta("provider"), of_meta("model"), figure("current_turn_count")
    printf "requests %s (and %s summaries, %s sub-agents)\n", figure("agent_request_count"), figure("compact_request_count"), \
        figure("sub_agent_request_count")
    printf "tokens   in %s, out %s, cache read %s (%.0f %%), cache written %s\ncontext  %s\ncost     $%.6f\nsandbox  %s\n", figure("total_input_tokens"), \
        figure("total_output_tokens"), figure("total_cache_read_tokens"), rate, figure("total_cache_creation_tokens"), \
        figure("current_context_tokens"), figure("total_cost_usd"), ENVIRON["STATUS_SANDBOX"]
    for (i = 1; i <= opens; i++) if (open[i] != "") {
        split(open[i], w, " ")
        printf "open     %s (%s)\n", w[1], (w[2] == 0 ? "queued" : "pid " w[2])
    }
    if (waiting) print "results wait for the next turn"
}
function object(   i, w, list, running) {
    for (i = 1; i <= opens; i++) if (open[i] != "") {
        split(open[i], w, " ")
        list = list (list == "" ? "" : ",") "{\"id\":" json_quote(w[1]) ",\"pid\":" w[2] + 0 "}"
    }
    running = pid == "" ? "false" : "true"
    printf "{\"session_id\":%s,\"path\":%s,\"running\":%s,\"pid\":%s,\"busy\":%s,\"results_waiting\":%s,\"open\":[%s],\"provider\":%s,\"model\":%s,\"sandbox\":%s,\"cache_rate_percent\":%.1f,\"stats\":%s}\n", \
        json_quote(json_clean(name)), json_quote(json_clean(dir)), running, (pid == "" ? "null" : pid), \
        (busy ? "true" : "false"), (waiting ? "true" : "false"), list, json_quote(of_meta("provider")), json_quote(of_meta("model")), json_quote(json_clean(ENVIRON["STATUS_SANDBOX"])), rate, \
        (n > 0 ? line : "{}")
}
