# event_replay.awk - event lines -> display messages (CONTRACT section 8); the twin of `core replay`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f event_replay.awk    (these three files and no other)
# Input    lines of events.jsonl. A line that is no JSON object is skipped.
# Output   USER_MESSAGE, TEXT, THINKING, TOOL_CALL, TOOL_RESULT (200 characters + "..."), AGENT_RESULT (display order),
#          ASYNC_TASK_RESULT, USER_NOTIFY, ERROR. What is not shown: every other type.
# -v       out: see protocol.awk; whole=1: results whole;
#          live=1: as for who looks on: nothing is held back, results are whole, and RETRY, STOP, CONTEXT_UPDATE come too
# NUL      as json.awk says: a line with NUL bytes is no JSON anyway.
#
# Text and thinking of one response are held back, and what comes between them with them, until it is sure that no
# `retry` will take them back.

BEGIN { held = pieces = 0; run = "" }

# The two that come in thousands, in the form that both runtimes write them.
/^\{"type":"text","content":"[^"\\\001-\037]*"\}$/ {
    if ($0 !~ /[\200-\377]/ || json_utf8_valid($0)) add("TEXT", substr($0, 27, length($0) - 28))
    next
}
/^\{"type":"thinking","content":"[^"\\\001-\037]*"\}$/ {
    if ($0 !~ /[\200-\377]/ || json_utf8_valid($0)) add("THINKING", substr($0, 31, length($0) - 32))
    next
}
{ event($0) }
END { release() }

function event(line,   keys, raws, n, i, type) {
    n = json_valid(line) ? json_members(line, keys, raws) : -1
    if (n < 0) return
    split("", m)
    for (i = 1; i <= n; i++) m[keys[i]] = raws[i]
    type = str("type")
    if (type == "text") add("TEXT", str("content"))
    else if (type == "thinking") add("THINKING", str("content"))
    else if (type == "usage") end_run()
    else if (type == "retry") {
        if (live) emit1("RETRY")
        else forget()
    }
    else if (type == "user_input" || type == "user_message") {
        release()
        emit2("USER_MESSAGE", str("content"))
    } else if (type == "tool_call") {
        release()
        emit_tool_call(str("name"), str("id"), m["input"])
    } else if (type == "tool_result") {
        release()
        emit4("TOOL_RESULT", str("tool_use_id"), str("name"), whole || live ? str("content") : cut(str("content")))
    } else if (type == "stop") {
        if (live) emit2("STOP", str("reason"))
        else release()
    } else if (live && type == "context_update") emit3("CONTEXT_UPDATE", str("kind"), str("trigger"))
    else if (type == "assistant_message") assistant_message()
    else if (type == "sub_agent_result")
        show("AGENT_RESULT", str("session_id"), m["status"] == "\"ok\"" ? "ok" : "failed", num("input_tokens"), num("output_tokens"), str("thinking"), str("text"))
    else if (type == "async_task_result") show("ASYNC_TASK_RESULT", str("task_id"), exit_code(), str("output"))
    else if (type == "user_notify") show("USER_NOTIFY", str("content"))
    else if (type == "error") show("ERROR", str("message"))
}

function str(key) { return json_string(m[key]) }
# Counts are 64-bit; a number that is none, or out of range, counts as 0.
function num(key,   n) {
    n = json_number(m[key])
    return n == "" || length(n) > 20 || (length(n) == 20 && "x" n > "x18446744073709551615") ? "0" : n
}
function exit_code() { return m["exit_code"] != "-0" && m["exit_code"] ~ /^-?[0-9]+$/ && m["exit_code"] + 0 <= 2147483647 && m["exit_code"] + 0 >= -2147483648 ? m["exit_code"] : "0" }

# ---- What is held: texts, and whole messages of up to seven fields.

function add(name, text) {
    if (live) {
        emit2(name, text)
        return
    }
    if (name != run) end_run()
    run = name
    if (text != "") piece[++pieces] = text
}

function end_run() {
    if (pieces) {
        held_name[++held] = run
        held_text[held] = join_pieces(piece, 1, pieces)
    }
    pieces = 0
    run = ""
}

function show(name, a, b, c, d, e, f) {
    end_run()
    held_name[++held] = name
    held_text[held] = a
    held_more[held, 2] = b; held_more[held, 3] = c; held_more[held, 4] = d
    held_more[held, 5] = e; held_more[held, 6] = f
    if (live) release()
}

function forget(   i, j, kept) {
    end_run()
    kept = 0
    for (i = 1; i <= held; i++) {
        if (held_name[i] == "TEXT" || held_name[i] == "THINKING") continue
        kept++
        held_name[kept] = held_name[i]
        held_text[kept] = held_text[i]
        for (j = 2; j <= 6; j++) held_more[kept, j] = held_more[i, j]
    }
    held = kept
}

function release(   i, j, n, f) {
    end_run()
    for (i = 1; i <= held; i++) {
        f[1] = held_name[i]
        f[2] = held_text[i]
        n = f[1] == "AGENT_RESULT" ? 7 : f[1] == "ASYNC_TASK_RESULT" ? 4 : 2
        for (j = 3; j <= n; j++) f[j] = held_more[i, j - 1]
        emit(f, n)
    }
    held = 0
}

# Older logs: {"type":"assistant_message","text":...,"tool_calls":[{"name","id","input"}]}.
function assistant_message(   calls, n, i, input) {
    release()
    if (str("text") != "") emit2("TEXT", str("text"))
    n = json_elements(m["tool_calls"], calls)
    for (i = 1; i <= n; i++) {
        input = json_member(calls[i], "input")
        emit_tool_call(text_of(calls[i], "name"), text_of(calls[i], "id"), input)
    }
}

# The first 200 code points.
function cut(text,   i, n) {
    if (length(text) <= 200) return text
    n = 0
    for (i = 1; i <= length(text); i++)
        if (substr(text, i, 1) !~ /[\200-\277]/ && ++n > 200) return substr(text, 1, i - 1) "..."
    return text
}
