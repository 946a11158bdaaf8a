# sub_result.awk - what a sub-agent did, as one AGENT_RESULT frame for notify.fifo; the twin of `core sub-result DIR`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -v dir=SESSION_DIR -v code=0 -f sub_result.awk
# Input    none (the child's session files).
# Output   AGENT_RESULT session_id status thinking text input output cache_read cache_creation requests
# -v dir=DIR    the child's session directory;  -v id=ID   its session id (default: the directory's name)
# -v code=N     the child's exit code (default 0). 0: `ok`, thinking and text of its last assistant line, blocks joined by
#               LF. Else `failed`: the last `error` message, else `ended with code N`. Figures from stats.json, 0 if missing.
# -v out        see protocol.awk

BEGIN {
    code += 0
    if (id == "") {
        id = dir
        while (id ~ /.\/$/) id = substr(id, 1, length(id) - 1)
        sub(/.*\//, "", id)
    }
    f[1] = "AGENT_RESULT"
    f[2] = id
    f[3] = code ? "failed" : "ok"
    f[4] = f[5] = ""
    if (code) f[5] = last_error()
    else last_answer()
    text = ""
    while ((getline line < (dir "/stats.json")) > 0) text = text line "\n"
    f[6] = figure("total_input_tokens")
    f[7] = figure("total_output_tokens")
    f[8] = figure("total_cache_read_tokens")
    f[9] = figure("total_cache_creation_tokens")
    f[10] = figure("agent_request_count")
    emit(f, 10)
}

function figure(key,   value) {
    value = json_number(json_member(text, key))
    return value == "" ? "0" : value
}

# Lines of a file that begin like this; the last eight of them, the last one first: LINE[1..LINES].
function last_lines(file, begin,   line, n, i, ring) {
    n = 0
    while ((getline line < file) > 0) if (index(line, begin) == 1) ring[++n % 8] = line
    close(file)
    LINES = n < 8 ? n : 8
    for (i = 1; i <= LINES; i++) LINE[i] = ring[(n - i + 1) % 8]
}

function last_error(   i, message) {
    last_lines(dir "/events.jsonl", "{\"type\":\"error\"")
    for (i = 1; i <= LINES; i++) {
        message = json_member(LINE[i], "message")
        if (json_is_string(message)) return json_string(message)
    }
    return "ended with code " code
}

function last_answer(   l, blocks, n, i, type, text) {
    last_lines(dir "/conversation.jsonl", "{\"role\":\"assistant\"")
    # A line that is not valid is passed over.
    for (l = 1; l <= LINES && !json_valid(LINE[l]); l++) continue
    if (l > LINES) return
    n = json_elements(json_member(LINE[l], "content"), blocks)
    for (i = 1; i <= n; i++) {
        type = text_of(blocks[i], "type")
        text = type == "thinking" ? text_of(blocks[i], "thinking") : type == "text" ? text_of(blocks[i], "text") : ""
        if (text == "") continue
        if (type == "thinking") f[4] = f[4] (f[4] == "" ? "" : "\n") text
        else f[5] = f[5] (f[5] == "" ? "" : "\n") text
    }
}
