# sse_responses.awk - the stream of the OpenAI Responses API -> messages; the twin of `core sse --provider responses`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f sse_responses.awk      (mawk: -W interactive, or nothing streams)
# Input    the body of the response, as it comes.
# Output   TEXT, THINKING, SIGNATURE (encrypted reasoning and the item's id) and TOOL_CALL as the items come, then USAGE
#          and STOP (`completed`, or why it is incomplete); or ERROR. A body without response.completed, .incomplete or
#          .failed: ERROR, type stream_broken.
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
    answer_end()
}

function on_event(name, data,   keys, raws, n, i, m, word) {
    if (ANSWER_DONE) return
    n = json_members(data, keys, raws)
    for (i = 1; i <= n; i++) m[keys[i]] = raws[i]
    word = json_string(m["type"])
    if (word == "") word = name
    if (word == "response.output_text.delta") {
        streamed = 1
        answer_text(json_string(m["delta"]))
    } else if (word == "response.refusal.delta") {
        streamed = refused = 1
        answer_text(json_string(m["delta"]))
    } else if (word == "response.reasoning_summary_text.delta" || word == "response.reasoning_text.delta") {
        streamed = 1
        answer_thinking(json_string(m["delta"]))
    } else if (word == "response.reasoning_summary_part.added") { if (streamed) answer_thinking("\n\n") }
    else if (word == "response.function_call_arguments.delta") arguments(m["item_id"], m["output_index"], json_string(m["delta"]), 0)
    else if (word == "response.function_call_arguments.done") arguments(m["item_id"], m["output_index"], json_string(m["arguments"]), 1)
    else if (word == "response.output_item.added") added(m["item"], m["output_index"])
    else if (word == "response.output_item.done") { if (m["item"] != "") item(m["item"], json_count(m["output_index"])) }
    else if (word == "response.completed") ended(m["response"] == "" ? data : m["response"], "completed")
    else if (word == "response.incomplete") ended(m["response"] == "" ? data : m["response"], "incomplete")
    else if (word == "response.failed" || word == "error") answer_fail(data)
    else if (word == "" && m["error"] != "" && m["error"] != "null") answer_fail(data)
}

# ---- Function calls whose end has not come: open_calls of them, in order; a call that is taken out has open[c] = 0.

# The open call that an event belongs to: by its item, by its place, else the last one; 0 when none is open.
function open_call(item_id, place,   c) {
    if (item_id != "") for (c = open_calls; c > 0; c--) if (open[c] && call_item[c] == item_id) return c
    if (place != "") for (c = open_calls; c > 0; c--) if (open[c] && call_place[c] != "" && call_place[c] + 0 == place + 0) return c
    for (c = open_calls; c > 0; c--) if (open[c]) return c
    return 0
}

function added(raw, place,   c) {
    streamed = 0
    if (text_of(raw, "type") != "function_call") return
    c = ++open_calls
    open[c] = 1
    call_item[c] = text_of(raw, "id")
    call_place[c] = json_count(place)
    call_id[c] = text_of(raw, "call_id")
    call_name[c] = text_of(raw, "name")
    set_arguments(c, text_of(raw, "arguments"))
}

function set_arguments(c, text) {
    call_parts[c] = 1
    call_part[c, 1] = text
}

function arguments(item_id, place, text, whole,   c) {
    c = open_call(json_string(item_id), json_count(place))
    if (!c || text == "") return
    if (whole) set_arguments(c, text)
    else call_part[c, ++call_parts[c]] = text
}

function arguments_of(c,   p, i) {
    for (i = 1; i <= call_parts[c]; i++) p[i] = call_part[c, i]
    return join_pieces(p, 1, call_parts[c])
}

# ---- Items

function item(raw, place,   keys, raws, n, i, m, id, type) {
    n = json_members(raw, keys, raws)
    for (i = 1; i <= n; i++) m[keys[i]] = raws[i]
    id = json_string(m["id"])
    type = json_string(m["type"])
    if (type == "function_call") call(m, id, place)
    else if (type == "reasoning") {
        if (!streamed) answer_thinking(reasoning_text(m["summary"], m["content"]))
        if (json_string(m["encrypted_content"]) != "") answer_signature(json_string(m["encrypted_content"]), id)
    } else if (type == "message" && !streamed) {
        n = json_elements(m["content"], raws)
        for (i = 1; i <= n; i++) {
            if (text_of(raws[i], "refusal") != "") refused = 1
            answer_text(text_of(raws[i], "text") == "" ? text_of(raws[i], "refusal") : text_of(raws[i], "text"))
        }
    }
    streamed = 0
    if (id == "") done_nameless = 1
    else done_item[id] = 1
}

function reasoning_text(summary, content,   parts, n, i, part, text, found) {
    n = json_elements(summary, parts)
    if (n < 1) n = json_elements(content, parts)
    for (i = 1; i <= n; i++) {
        part = text_of(parts[i], "text")
        if (part == "") continue
        text = text (found ? "\n\n" : "") part
        found = 1
    }
    return text
}

# A call is whole: what the item says, or what was streamed of it.
function call(m, id, place,   c, its_id, name, input) {
    c = open_call(id, place)
    its_id = json_string(m["call_id"])
    name = json_string(m["name"])
    input = json_string(m["arguments"])
    if (c) {
        open[c] = 0
        if (its_id == "") its_id = call_id[c]
        if (name == "") name = call_name[c]
        if (input == "") input = arguments_of(c)
    }
    answer_call(its_id == "" ? id : its_id, name, input)
}

# ---- The end

# The response is over: items that were not given yet, the figures, the outcome.
function ended(response, word,   items, n, i, c, id, reason) {
    n = json_elements(json_member(response, "output"), items)
    for (i = 1; i <= n; i++) {
        id = text_of(items[i], "id")
        if (!(id == "" ? done_nameless : id in done_item) && !streamed) item(items[i], "")
    }
    for (c = 1; c <= open_calls; c++)
        if (open[c]) {
            open[c] = 0
            answer_call(call_id[c] == "" ? call_item[c] : call_id[c], call_name[c], arguments_of(c))
        }
    figures(json_member(response, "usage"))
    reason = text_of(json_member(response, "incomplete_details"), "reason")
    answer_stop(reason != "" ? reason : refused ? "refusal" : word, "max_output_tokens")
}

function figures(raw,   input, cached) {
    input = json_count(json_member(raw, "input_tokens"))
    if (input == "") return
    cached = json_count(json_member(json_member(raw, "input_tokens_details"), "cached_tokens"))
    if (cached + 0 > input + 0) cached = input
    FIGURE["input"] = sprintf("%.0f", input - cached)
    FIGURE["output"] = json_count(json_member(raw, "output_tokens"))
    FIGURE["cache_read"] = cached == "" ? "0" : cached
}
