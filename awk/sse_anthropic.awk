# sse_anthropic.awk - the stream of the Anthropic Messages API -> messages; the twin of `core sse --provider claude`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f sse_anthropic.awk      (mawk: -W interactive, or nothing streams)
# Input    the body of the response, as it comes.
# Output   TEXT, THINKING, SIGNATURE, REDACTED_THINKING and TOOL_CALL as the blocks come, then USAGE and STOP; or USAGE
#          (when the server has reported any) and ERROR. A body that ends without message_stop: ERROR, type stream_broken.
# -v       out, id_prefix, calls, max_tokens, join, estimated, end_mark, server, sent, stall_timeout, status: see protocol.awk
#
# Blocks are kept by index. The earliest open one streams at once; what comes for later ones meanwhile is held back until
# it is closed, so that interleaved blocks stay whole and in order.

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

function on_event(name, data,   index_of, from, kind) {
    if (ANSWER_DONE) return
    if (data ~ /^\{"type":"content_block_delta","index":[0-9]+,"delta":\{"type":"(text_delta","text|thinking_delta","thinking|input_json_delta","partial_json)":"([^"\\]|\\.)*"\}\}$/) {
        # Exactly the form that the API sends: no parsing.
        match(data, /"index":[0-9]+/)
        index_of = substr(data, RSTART + 8, RLENGTH - 8) + 0
        match(data, /"delta":\{"type":"[a-z_]+","[a-z_]+":"/)
        from = RSTART + RLENGTH
        kind = substr(data, RSTART + 18, 1)
        delta(index_of, kind, json_unescape(substr(data, from, length(data) - from - 2)))
        return
    }
    slow(name, data)
}

function slow(name, data,   keys, raws, n, i, m) {
    n = json_members(data, keys, raws)
    for (i = 1; i <= n; i++) m[keys[i]] = raws[i]
    if (json_is_string(m["type"]) && m["type"] != "\"\"") name = json_string(m["type"])
    if (n < 0) {
        # A broken event is ignored, unless its name alone says all.
        if (name == "message_stop") message_stop()
        else if (name == "content_block_stop") close_block(0)
        else if (name == "error") answer_fail(data)
        return
    }
    if (name == "message_start") usage(json_member(m["message"], "usage"))
    else if (name == "content_block_start") { if (m["content_block"] != "") start(json_count(m["index"]) + 0, m["content_block"]) }
    else if (name == "content_block_delta") slow_delta(json_count(m["index"]) + 0, m["delta"])
    else if (name == "content_block_stop") close_block(json_count(m["index"]) + 0)
    else if (name == "message_delta") {
        i = text_of(m["delta"], "stop_reason")
        if (i != "") stop_reason = i
        usage(m["usage"])
    } else if (name == "message_stop") message_stop()
    else if (name == "error") answer_fail(data)
    # `ping`, and what future versions may send: nothing.
}

function slow_delta(number, raw,   keys, raws, n, i, m, type, kind, key) {
    n = json_members(raw, keys, raws)
    for (i = 1; i <= n; i++) m[keys[i]] = raws[i]
    type = json_string(m["type"])
    if (type == "text_delta") key = "text"
    else if (type == "thinking_delta") key = "thinking"
    else if (type == "input_json_delta") key = "partial_json"
    else if (type == "signature_delta") key = "signature"
    else return
    i = json_string(m[key])
    i = json_string(m[key])
    if (i != "") delta(number, substr(type, 2, 1), i)
}

function usage(raw,   keys, raws, n, i) {
    n = json_members(raw, keys, raws)
    for (i = 1; i <= n; i++) {
        if (keys[i] == "input_tokens") answer_figure("input", json_count(raws[i]))
        else if (keys[i] == "output_tokens") answer_figure("output", json_count(raws[i]))
        else if (keys[i] == "cache_read_input_tokens") answer_figure("cache_read", json_count(raws[i]))
        else if (keys[i] == "cache_creation_input_tokens") answer_figure("cache_creation", json_count(raws[i]))
    }
}

# ---- Blocks, numbered by us: first..last are those that are not all given yet.

BEGIN { first = 1; last = 0 }

# The open block of that index; 0 when there is none.
function block_of(number,   b) {
    for (b = first; b <= last; b++) if (block_index[b] == number && !block_closed[b]) return b
    return 0
}

function new_block(number, kind) {
    block_index[++last] = number
    block_kind[last] = kind
    block_closed[last] = pieces[last] = holds[last] = 0
    signature[last] = ""
    return last
}

# kind is the second letter of its name: t-e-xt, t-h-inking, i-n-put, s-i-gnature.
function delta(number, kind, text,   b) {
    b = block_of(number)
    if (!b) {
        # Some servers send deltas without a start.
        if (kind == "n") return
        b = new_block(number, kind == "e" ? "text" : "thinking")
    }
    if (kind == "e") give(b, "TEXT", text)
    else if (kind == "h") give(b, "THINKING", text)
    else if (kind == "n" && block_kind[b] == "tool_use") piece[b, ++pieces[b]] = text
    else if (kind == "i" && block_kind[b] == "thinking") signature[b] = signature[b] text
}

function start(number, raw,   keys, raws, n, i, m, b, kind) {
    n = json_members(raw, keys, raws)
    for (i = 1; i <= n; i++) m[keys[i]] = raws[i]
    kind = json_string(m["type"])
    b = new_block(number, kind)
    if (json_string(m["data"]) != "") give(b, "REDACTED_THINKING", json_string(m["data"]))
    if (kind == "text") delta_if(number, "e", json_string(m["text"]))
    else if (kind == "thinking") {
        delta_if(number, "h", json_string(m["thinking"]))
        delta_if(number, "i", json_string(m["signature"]))
    } else if (kind == "tool_use") {
        tool_id[b] = json_string(m["id"])
        tool_name[b] = json_string(m["name"])
        # A normal start carries `{}` and the pieces follow; some servers send all of it here and no pieces.
        tool_whole[b] = m["input"] == "{}" || m["input"] == "null" ? "" : json_clean(m["input"])
    }
}

function delta_if(number, kind, text) { if (text != "") delta(number, kind, text) }

# Gives an event of block b now, or when the blocks before it are closed.
function give(b, type, x, y, z) {
    if (b == first) give_now(type, x, y, z)
    else {
        held_type[b, ++holds[b]] = type
        held_x[b, holds[b]] = x
        held_y[b, holds[b]] = y
        held_z[b, holds[b]] = z
    }
}

function give_now(type, x, y, z) {
    if (type == "TEXT") answer_text(x)
    else if (type == "THINKING") answer_thinking(x)
    else if (type == "SIGNATURE") answer_signature(x, "")
    else if (type == "REDACTED_THINKING") answer_redacted(x)
    else {
        answer_joined()
        emit_tool_call(y, x, z)
    }
}

function close_block(number,   b) {
    if (!(b = block_of(number))) return
    end_block(b)
    while (first <= last && block_closed[first]) next_block()
}

function end_block(b,   p, i, input) {
    block_closed[b] = 1
    if (block_kind[b] == "thinking") {
        if (signature[b] != "") give(b, "SIGNATURE", signature[b])
    } else if (block_kind[b] == "tool_use") {
        for (i = 1; i <= pieces[b]; i++) p[i] = piece[b, i]
        input = join_pieces(p, 1, pieces[b])
        if (trim_blanks(input) == "" && tool_whole[b] != "") input = tool_whole[b]
        give(b, "TOOL_CALL", answer_call_id(tool_id[b], tool_name[b], input), tool_name[b], input)
    }
}

# The block at the front is done: the next one gives what it has held back.
function next_block(   i) {
    first++
    if (first > last) return
    for (i = 1; i <= holds[first]; i++)
        give_now(held_type[first, i], held_x[first, i], held_y[first, i], held_z[first, i])
}

function message_stop() {
    while (first <= last) {
        if (!block_closed[first]) end_block(first)
        next_block()
    }
    answer_stop(stop_reason != "" ? stop_reason : ANSWER_CALLS ? "tool_use" : "end_turn", "max_tokens")
}
