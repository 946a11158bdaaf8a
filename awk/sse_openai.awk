# sse_openai.awk - the stream of an OpenAI Chat Completions API -> messages; the twin of `core sse --provider openai`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f sse_openai.awk         (mawk: -W interactive, or nothing streams)
# Input    the body of the response, as it comes.
# Output   TEXT and THINKING as they come, at the end TOOL_CALLs, USAGE and STOP; or USAGE (when the server has reported
#          any) and ERROR. A finish_reason is the end, [DONE] may be missing; without either: ERROR, type stream_broken.
# -v       out, id_prefix, calls, max_tokens, join, estimated, end_mark, server, sent, stall_timeout, status: see protocol.awk

{
    if (answer_mark($0)) next
    lines = sse_lines($0, line)
    for (l = 1; l <= lines; l++)
        if (sse_line(line[l])) {
            on_event(SSE_EVENT, SSE_DATA)
            fflush()
        }
}
END {
    if (!BODY_BROKEN && (sse_pending() || answer_whole())) on_event(SSE_EVENT, SSE_DATA)
    if (!ANSWER_DONE) stop()
    answer_end()
}

function on_event(name, data,   keys, raws, n, i, choices, usage, error, list) {
    if (ANSWER_DONE) return
    if (data ~ /^ *\[DONE\] *$/) {
        stop()
        if (!ANSWER_DONE) answer_error("the stream ended without a finish_reason", "stream_broken")
        return
    }
    # The form in which text comes from nearly every server: no parsing.
    if (data ~ /^\{("[a-z_]+":("[^"\\\001-\037]*"|[1-9][0-9]*|null),)*"choices":\[\{(("index":0|"finish_reason":null|"logprobs":null),)*"delta":\{("role":"assistant",)?"content":"([^"\\\001-\037]|\\["\\\/bfnrt]|\\u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F])*"\}(,("index":0|"finish_reason":null|"logprobs":null))*\}\](,"[a-z_]+":("[^"\\\001-\037]*"|[1-9][0-9]*|null))*\}$/ \
        && name != "error" && !index(data, "\"error\"")) {
        match(data, /"delta":\{("role":"assistant",)?"content":"/)
        data = substr(data, RSTART + RLENGTH)
        match(data, /^([^"\\]|\\.)*/)
        answer_text(json_unescape(substr(data, 1, RLENGTH)))
        return
    }
    n = json_members(data, keys, raws)
    error = name == "error"
    for (i = 1; i <= n; i++) {
        if (keys[i] == "choices") choices = raws[i]
        else if (keys[i] == "usage") usage = raws[i]
        else if (keys[i] == "error" && raws[i] != "null") error = 1
        else if (keys[i] == "object" && raws[i] == "\"error\"") error = 1
    }
    if (error) {
        answer_fail(data)
        return
    }
    if (n < 0) return
    n = json_elements(choices, list)
    for (i = 1; i <= n; i++)
        if (n == 1 || json_count(json_member(list[i], "index")) + 0 == 0) {
            choice(list[i])
            break
        }
    if (usage != "") figures(usage)
}

function choice(raw,   keys, raws, n, i, part, reason, usage) {
    n = json_members(raw, keys, raws)
    for (i = 1; i <= n; i++) {
        # A server that does not stream sends one whole `message`.
        if (keys[i] == "delta" || keys[i] == "message") part = raws[i]
        else if (keys[i] == "finish_reason") reason = raws[i]
        else if (keys[i] == "usage") usage = raws[i]
    }
    if (part != "") delta(part)
    if (usage != "") figures(usage)
    if (json_string(reason) != "") finish_reason = json_string(reason)
}

function delta(raw,   keys, raws, n, i, m, text) {
    n = json_members(raw, keys, raws)
    for (i = 1; i <= n; i++) m[keys[i]] = raws[i]
    # Thinking goes by two names; some send both, with the same text.
    text = json_string(m["reasoning_content"])
    answer_thinking(text == "" ? json_string(m["reasoning"]) : text)
    if (substr(m["content"], 1, 1) == "[") {
        n = json_elements(m["content"], raws)
        for (i = 1; i <= n; i++) answer_text(text_of(raws[i], "text"))
    } else answer_text(json_string(m["content"]))
    text = json_string(m["refusal"])
    if (text != "") {
        refused = 1
        answer_text(text)
    }
    n = json_elements(m["tool_calls"], raws)
    for (i = 1; i <= n; i++) piece(raws[i])
}

# ---- Calls that are being put together, in the order in which they came: call_index ("" = none), call_id, call_name,
# and call_parts pieces of arguments.

function piece(raw,   keys, raws, n, i, m, holder, at) {
    n = json_members(raw, keys, raws)
    for (i = 1; i <= n; i++) m[keys[i]] = raws[i]
    holder = m["function"] == "" ? raw : m["function"]
    piece_index = json_count(m["index"])
    piece_id = json_string(m["id"])
    piece_name = text_of(holder, "name")
    piece_arguments = json_member(holder, "arguments")
    if (piece_arguments == "null") piece_arguments = ""
    # Some send the object itself.
    piece_arguments = json_is_string(piece_arguments) ? json_string(piece_arguments) : json_clean(piece_arguments)
    at = call_of()
    if (!at) {
        at = ++calls_open
        call_index[at] = piece_index
        call_id[at] = call_name[at] = ""
        call_parts[at] = 0
    }
    last_call = at
    if (call_id[at] == "") call_id[at] = piece_id
    # The first time, or repeated, or grown; else a name in pieces.
    if (substr(piece_name, 1, length(call_name[at])) == call_name[at]) call_name[at] = piece_name
    else if (!call_parts[at]) call_name[at] = call_name[at] piece_name
    if (piece_arguments != "") call_part[at, ++call_parts[at]] = piece_arguments
}

# The call that a piece continues; 0 when it opens a new one.
function call_of(   at) {
    at = 0
    if (piece_index != "") {
        at = known_id()
        if (!at || call_index[at] == "" || call_index[at] + 0 != piece_index + 0) at = same_index()
    } else if (piece_id == "") at = last_call
    else at = known_id()
    if (!at) return 0
    if (piece_id != "" && call_id[at] != "" && call_id[at] != piece_id) return 0
    return begins_another(at) ? 0 : at
}

function known_id(   c) {
    if (piece_id == "") return 0
    for (c = calls_open; c > 0; c--) if (call_id[c] == piece_id) return c
    return 0
}

function same_index(   c) {
    for (c = calls_open; c > 0; c--) if (call_index[c] != "" && call_index[c] + 0 == piece_index + 0) return c
    return 0
}

# A name after arguments starts another call, unless it only repeats the call's own.
function begins_another(at) {
    if (piece_name == "" || !call_parts[at]) return 0
    if (piece_name != call_name[at]) return 1
    return piece_arguments ~ /^[ \t\r\n]*\{/ && (piece_id == "" || piece_id != call_id[at]) && json_valid(arguments_of(at))
}

function arguments_of(at,   p, i) {
    for (i = 1; i <= call_parts[at]; i++) p[i] = call_part[at, i]
    return join_pieces(p, 1, call_parts[at])
}

# ---- The end

function figures(raw,   prompt, output, cached) {
    prompt = json_count(json_member(raw, "prompt_tokens"))
    output = json_count(json_member(raw, "completion_tokens"))
    if (prompt == "" || output == "") return
    cached = json_count(json_member(json_member(raw, "prompt_tokens_details"), "cached_tokens"))
    if (cached == "") cached = json_count(json_member(raw, "prompt_cache_hit_tokens"))
    if (cached + 0 > prompt + 0) cached = prompt
    # The prompt includes what came from the cache.
    FIGURE["input"] = sprintf("%.0f", prompt - cached)
    FIGURE["output"] = output
    FIGURE["cache_read"] = cached == "" ? "0" : cached
}

function stop(   c) {
    if (finish_reason == "") return
    for (c = 1; c <= calls_open; c++) answer_call(call_id[c], call_name[c], arguments_of(c))
    answer_stop(refused ? "refusal" : finish_reason, "length")
}
