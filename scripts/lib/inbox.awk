# inbox.awk - a line of input.fifo that begins with `{` -> what it asks for (CONTRACT §3), one record a line for inbox.sh.
#
# Output   nothing when it is plain text: no JSON, no object, or one without a type
{ record(json_clean($0)) }

function record(line,   n, i, kind, raw) {
    sub(/\r$/, "", line)
    n = json_members(line, keys, raws)
    if (n < 0) return
    for (i = 1; i <= n; i++) if (raws[i] != "null") m[keys[i]] = raws[i]
    if (!("type" in m)) return
    kind = json_string(m["type"])
    if (("id" in m) || kind == "sync") { if (!take_id(kind)) return }
    if (kind == "user_input") input()
    else if (kind == "user") user()
    else if (kind == "interrupt") print "interrupt"
    else if (kind == "session_end") print "end"
    else if (kind == "sync") print "sync\t" id
    else if (kind == "approval") approval()
    else problem("a JSON line of unknown type `" kind "`", "")
}

function problem(what, kind) { print "problem\t" line_escape("input.fifo: " (kind == "" ? what : kind " with " what)) }

function take_id(kind,   raw) {
    if (!("id" in m)) { problem("no id", kind); return 0 }
    raw = m["id"]
    id = json_is_string(raw) ? json_string(raw) : raw ~ /^-?[0-9]/ ? raw : ""
    if (id == "" || length(id) > 800 || id ~ /[\001-\037\177]/) problem("an id that is no string of 1 to 200 bytes without control characters", kind)
    else return 1
    return 0
}

function approval(   raw) {
    raw = m["allow"]
    if (json_is_string(raw)) raw = json_string(raw)
    else if (raw != "true" && raw != "false") { problem("an allow that is neither a string nor true or false", "approval"); return }
    print "approval\t" line_escape(id) "\t" line_escape(raw)
}

function input(   name) {
    if (("content" in m) && json_is_string(m["content"])) { print "input\t" line_escape(id) "\t" line_escape(json_string(m["content"])); return }
    if ("content" in m) { problem("a content that is no string", "user_input"); return }
    if (!json_is_string(m["file"])) { problem("neither content nor file", "user_input"); return }
    name = json_string(m["file"])
    if (name == "" || name ~ /\// || name ~ /^\./ || name ~ /[\001-\037]/ || name ~ /^-/) problem("a file that is no bare name", "user_input")
    else print "file\t" line_escape(id) "\t" line_escape(name)
}

function user(   content, n, i, block, text, texts, others) {
    content = json_member(m["message"], "content")
    if (json_is_string(content)) { print "input\t" line_escape(id) "\t" line_escape(json_string(content)); return }
    n = json_elements(content, block)
    if (n < 0) { problem("no message content", "user"); return }
    for (i = 1; i <= n; i++) {
        text = json_member(block[i], "text")
        if (json_string(json_member(block[i], "type")) == "text" && json_is_string(text)) {
            texts = texts (text_blocks++ ? "\n" : "") json_string(text)
        } else others = 1
    }
    if (others) problem("a user message with blocks other than text, which were left out", "")
    print "input\t" line_escape(id) "\t" line_escape(texts)
}
