# window.awk - what is sent of a conversation: its lines, mended (CONTRACT section 4), and what the three body_*.awk share.
# A library, loaded after json.awk and protocol.awk; the twin of src/session/mend.rs, rule by rule:
#
# 1. A line that is no JSON, no UTF-8 or no message is left out. `"input":}` becomes `"input":{}`; escapes of lone
#    surrogates become \ufffd.
# 2. Blank text, thinking that may not be sent, thinking at a message's end, and blocks of the wrong role are left out; a
#    message that is left with nothing is left out, and so is an assistant message before any user's.
# 3. After a message with calls comes one with their results, in the order of the calls: a result that is missing is made
#    up, as an error; a result without a call is left out; an empty one is `(no output)`.
# 4. A call's id that no API takes, or that was used before, is changed, in its result too.
# 5. Where the window is full, a result of more than WINDOW_LARGE bytes in an old line is replaced by a line that says so.
#
# window_line(line)   takes the next line of conversation.jsonl, without its LF: the messages that are now sent are
#                     WINDOW_OUT[1..WINDOW_N] (none, one or two)
# window_end()        the same at the end of the conversation
# window_notes()      what was left out or made up, for the user: one sentence a line, "" when there is nothing to say
# -v thinking_from=N  thinking in lines that begin before this byte offset is left out (session.json)
# -v results_from=N   large results in lines that begin before this byte offset are left out (session.json)
# -v drop_unsigned=1  leave out thinking without a signature (empty thinking without one always is)
# -v drop_signed=1    leave out thinking with a signature, and redacted thinking
# -v images_dir=DIR   the session's images, which a user's text may name as [Image #N]; vision=0: the model does not see them
# -v images_file=FILE   how many bytes of the body are image data is written there; none: the file is empty

BEGIN {
    WINDOW_LOST = "Error: interrupted: no result was recorded; the outcome is unknown and side effects are possible"
    WINDOW_LARGE = 1000
    WINDOW_OFFSET = WINDOW_NUMBER = WINDOW_PENDING = 0
    split("type text thinking signature id name input tool_use_id content", window_list, " ")
    for (window_i in window_list) WINDOW_KEY[window_list[window_i]] = 1
}

function window_line(line,   offset) {
    WINDOW_N = 0
    WINDOW_NUMBER++
    offset = WINDOW_OFFSET
    WINDOW_OFFSET += length(line) + 1
    WINDOW_LEAVES_OUT = offset < results_from + 0
    if (line ~ /^[ \t\r\f]*$/) return
    if (index(line, "\"input\":}")) gsub(/"input":\}/, "\"input\":{}}", line)
    if (line ~ /\\u[dD][89a-fA-F]/) line = window_surrogates(line)
    if (!window_parse(line)) {
        if (++WINDOW_BAD <= 5) WINDOW_BAD_LINES = WINDOW_BAD_LINES (WINDOW_BAD > 1 ? ", " : "") WINDOW_NUMBER
        return
    }
    if (WINDOW_PENDING && !(WINDOW_ROLE == "user" && window_has_results())) window_lost()
    if (WINDOW_ROLE == "user") window_user(line)
    else window_assistant(line, offset)
}

function window_end() {
    WINDOW_N = 0
    if (WINDOW_PENDING) window_lost()
}

function window_send(message) { WINDOW_OUT[++WINDOW_N] = message }

# ---- The rules

# Results for calls that will have none.
function window_lost(   i, text) {
    for (i = 1; i <= WINDOW_PENDING; i++)
        text = text (i > 1 ? "," : "") window_result(json_quote(window_sent_id(i)), WINDOW_LOST, 1)
    WINDOW_MISSING += WINDOW_PENDING
    WINDOW_PENDING = 0
    window_send("{\"role\":\"user\",\"content\":[" text "]}")
}

function window_sent_id(i) { return WINDOW_CALL_SENT[i] == "" ? WINDOW_CALL_ID[i] : WINDOW_CALL_SENT[i] }

function window_result(quoted_id, text, is_error) {
    return "{\"type\":\"tool_result\",\"tool_use_id\":" quoted_id ",\"content\":" json_quote(text) (is_error ? ",\"is_error\":true" : "") "}"
}

function window_has_results(   b) {
    for (b = 1; b <= WINDOW_BLOCKS; b++) if (WINDOW_KIND[b] == "result") return 1
    return 0
}

function window_user(line,   b, i, k, p, taken, found) {
    if (WINDOW_IS_TEXT) {
        if (WINDOW_BLANK) return
        WINDOW_STARTED = 1
        window_send("{\"role\":\"user\",\"content\":" substr(line, WINDOW_AT, WINDOW_LEN) "}")
        return
    }
    k = 0
    for (i = 1; i <= WINDOW_PENDING; i++) {
        found = 0
        for (b = 1; b <= WINDOW_BLOCKS && !found; b++)
            if (WINDOW_KIND[b] == "result" && !taken[b] && WINDOW_ID[b] == WINDOW_CALL_ID[i]) found = b
        if (found) {
            taken[found] = 1
            p[++k] = window_result_block(line, found, WINDOW_CALL_SENT[i])
        } else {
            WINDOW_MISSING++
            p[++k] = window_result(json_quote(window_sent_id(i)), WINDOW_LOST, 1)
        }
    }
    WINDOW_PENDING = 0
    for (b = 1; b <= WINDOW_BLOCKS; b++) {
        if (WINDOW_KIND[b] == "result" && !taken[b]) WINDOW_ORPHANS++
        if (WINDOW_KIND[b] == "text" || WINDOW_KIND[b] == "other") p[++k] = substr(line, WINDOW_BLOCK_AT[b], WINDOW_BLOCK_LEN[b])
    }
    if (k) WINDOW_STARTED = 1
    window_send_blocks("user", p, k)
}

function window_assistant(line, offset,   b, k, p, kept, last, kind, fits) {
    if (!WINDOW_STARTED) {
        WINDOW_LEADING++
        return
    }
    if (WINDOW_IS_TEXT) {
        if (!WINDOW_BLANK) window_send("{\"role\":\"assistant\",\"content\":" substr(line, WINDOW_AT, WINDOW_LEN) "}")
        return
    }
    fits = offset >= thinking_from + 0
    last = 0
    for (b = 1; b <= WINDOW_BLOCKS; b++) {
        kind = WINDOW_KIND[b]
        kept[b] = kind == "text" || kind == "call" || kind == "other" \
            || ((kind == "signed" || kind == "redacted") && fits && !drop_signed) || (kind == "unsigned" && fits && !drop_unsigned)
        if (kept[b] && kind != "signed" && kind != "unsigned" && kind != "redacted") last = b
    }
    k = 0
    for (b = 1; b <= last; b++) {
        if (!kept[b]) continue
        if (WINDOW_KIND[b] != "call") p[++k] = substr(line, WINDOW_BLOCK_AT[b], WINDOW_BLOCK_LEN[b])
        else {
            WINDOW_CALL_ID[++WINDOW_PENDING] = WINDOW_ID[b]
            WINDOW_CALL_SENT[WINDOW_PENDING] = window_new_id(WINDOW_ID[b])
            p[++k] = window_call_block(line, b, WINDOW_CALL_SENT[WINDOW_PENDING])
        }
    }
    window_send_blocks("assistant", p, k)
}

function window_send_blocks(role, p, k,   i) {
    if (!k) return
    for (i = 2; i <= k; i++) p[i] = "," p[i]
    window_send("{\"role\":\"" role "\",\"content\":[" join_pieces(p, 1, k) "]}")
}

# Marks an id as used; gives another one when it cannot be sent, else "".
function window_new_id(id,   base, sent, number) {
    base = id
    if (base ~ /[^A-Za-z0-9_-]/) {
        gsub(/[\200-\277]/, "", base)
        gsub(/[^A-Za-z0-9_-]/, "_", base)
    }
    if (base == "") base = "call"
    sent = base
    for (number = 2; sent in WINDOW_SEEN; number++) sent = base "_" number
    WINDOW_SEEN[sent] = 1
    return sent == id ? "" : sent
}

# A call, under another id when one is given; input that is no object is `{}`.
function window_call_block(line, b, sent) {
    if (substr(window_raw(line, b, "input"), 1, 1) == "{")
        return sent == "" ? substr(line, WINDOW_BLOCK_AT[b], WINDOW_BLOCK_LEN[b]) : window_with(line, b, "id", json_quote(sent))
    return "{\"type\":\"tool_use\",\"id\":" (sent == "" ? window_raw(line, b, "id") : json_quote(sent)) ",\"name\":" \
        window_raw(line, b, "name") ",\"input\":{}}"
}

# A result, under another id when one is given; empty content is `(no output)`.
function window_result_block(line, b, sent,   content, block) {
    content = window_raw(line, b, "content")
    if (WINDOW_LEAVES_OUT && window_is_large(content)) {
        block = substr(line, WINDOW_BLOCK_AT[b], WINDOW_BLOCK_LEN[b])
        return window_result(json_quote(sent == "" ? WINDOW_ID[b] : sent), window_left_out(length(content) - 2), \
            json_member(block, "is_error") == "true")
    }
    if (content != "" && content != "null" && content != "\"\"" && content != "[]")
        return sent == "" ? substr(line, WINDOW_BLOCK_AT[b], WINDOW_BLOCK_LEN[b]) : window_with(line, b, "tool_use_id", json_quote(sent))
    if (content != "" && content != "null" && sent == "") return window_with(line, b, "content", "\"(no output)\"")
    block = substr(line, WINDOW_BLOCK_AT[b], WINDOW_BLOCK_LEN[b])
    return window_result(json_quote(sent == "" ? WINDOW_ID[b] : sent), "(no output)", json_member(block, "is_error") == "true")
}

function window_is_large(content) { return length(content) > WINDOW_LARGE + 2 && json_is_string(content) }

# What stands in the place of a result of so many bytes.
function window_left_out(size) {
    return "[... " size " bytes left out: the context is full. Run the call again if you need its result ...]"
}

# The block with `text` in the place of the value of `key`.
function window_with(line, b, key, text,   end) {
    end = WINDOW_VALUE_AT[b, key] + WINDOW_VALUE_LEN[b, key]
    return substr(line, WINDOW_BLOCK_AT[b], WINDOW_VALUE_AT[b, key] - WINDOW_BLOCK_AT[b]) text \
        substr(line, end, WINDOW_BLOCK_AT[b] + WINDOW_BLOCK_LEN[b] - end)
}

# ---- Parsing

# Finds the message in a line: WINDOW_ROLE; WINDOW_AT and WINDOW_LEN of its content; WINDOW_IS_TEXT and WINDOW_BLANK; else
# WINDOW_BLOCKS, and of each block WINDOW_BLOCK_AT, WINDOW_BLOCK_LEN, WINDOW_KIND, WINDOW_ID. 0 when it is none.
function window_parse(line,   b) {
    WINDOW_BLOCKS = 0
    if (line !~ /^[ \t\r]*\{/ || !json_valid(line) || !window_walk(line)) return 0
    if (WINDOW_ROLE != "user" && WINDOW_ROLE != "assistant") return 0
    WINDOW_IS_TEXT = substr(line, WINDOW_AT, 1) == "\""
    if (WINDOW_IS_TEXT) {
        WINDOW_BLANK = window_blank(substr(line, WINDOW_AT, WINDOW_LEN))
        return 1
    }
    if (substr(line, WINDOW_AT, 1) != "[") return 0
    for (b = 1; b <= WINDOW_BLOCKS; b++) WINDOW_KIND[b] = WINDOW_KIND[b] == "broken" ? "broken" : window_kind(line, b)
    return 1
}

function window_kind(line, b,   type, raw) {
    type = window_raw(line, b, "type")
    if (!json_is_string(type)) return "broken"
    type = json_string(type)
    if (type == "text") {
        raw = window_raw(line, b, "text")
        if (raw == "" || raw == "null") return "broken"
        return window_blank(raw) ? "blank" : "text"
    }
    if (type == "tool_result") {
        raw = window_raw(line, b, "tool_use_id")
        if (WINDOW_ROLE != "user" || !json_is_string(raw)) return "broken"
        WINDOW_ID[b] = json_string(raw)
        return "result"
    }
    if (type != "thinking" && type != "redacted_thinking" && type != "tool_use") return "other"
    if (WINDOW_ROLE != "assistant") return "broken"
    if (type == "redacted_thinking") return "redacted"
    if (type == "thinking") {
        if (!json_is_string(raw = window_raw(line, b, "thinking"))) return "broken"
        type = window_raw(line, b, "signature")
        if (json_is_string(type) && type != "\"\"") return "signed"
        return raw == "\"\"" ? "empty" : "unsigned"
    }
    raw = window_raw(line, b, "name")
    if (!json_is_string(raw) || raw == "\"\"" || !json_is_string(window_raw(line, b, "id"))) return "broken"
    WINDOW_ID[b] = json_string(window_raw(line, b, "id"))
    return "call"
}

# The raw value of a member of block b, "" when there is none.
function window_raw(line, b, key) {
    return (b, key) in WINDOW_VALUE_AT ? substr(line, WINDOW_VALUE_AT[b, key], WINDOW_VALUE_LEN[b, key]) : ""
}

# Whether a raw value is no string, or one of nothing but white space.
function window_blank(raw,   text) {
    if (raw ~ /^"[!#-[\]-~]/) return 0
    if (!json_is_string(raw)) return 1
    text = json_string(raw)
    if (text ~ /[!-~]/) return 0
    gsub(/[\t-\r ]|\302[\205\240]|\341\232\200|\342\200[\200-\212\250\251\257]|\342\201\237|\343\200\200/, "", text)
    return text == ""
}

# One pass over what json_scan found: the members of the message, the blocks of its content, their members.
function window_walk(s,   k, j, t, c, at, base, size, depth, name, from, in_array, in_block, element, key, value, roles, contents) {
    split("", WINDOW_VALUE_AT)
    WINDOW_ROLE = ""
    depth = in_array = in_block = roles = contents = 0
    base = 1
    for (k = 0; k <= JS_N; k++) {
        size = length(JS_OUT[k])
        for (j = 1; j <= size; j += 256) {
            t = size <= 256 ? JS_OUT[k] : substr(JS_OUT[k], j, 256)
            at = base + j - 2
            while (depth == 1 || (depth == 2 && in_array) || (depth == 3 && in_block) ? match(t, /[][{}:,]/) : match(t, /[][{}]/)) {
                c = substr(t, RSTART, 1)
                at += RSTART
                t = substr(t, RSTART + 1)
                if (c == "{" || c == "[") {
                    depth++
                    if (depth == 2 && c == "[" && name == "content") {
                        in_array = 1
                        element = at + 1
                        WINDOW_BLOCKS = 0
                        WINDOW_KIND[1] = ""
                    } else if (depth == 3 && in_array) {
                        in_block = c == "{"
                        value = 0
                        if (!in_block) WINDOW_KIND[WINDOW_BLOCKS + 1] = "broken"
                    }
                } else if (c == ":") {
                    if (depth == 1) {
                        name = window_name(s, k)
                        from = at + 1
                    } else {
                        key = window_name(s, k)
                        value = at + 1
                    }
                } else {
                    if (depth == 3 && in_block && value) {
                        if (key in WINDOW_KEY) window_member(s, key, value, at)
                        value = 0
                    } else if (depth == 2 && in_array) window_element(s, element, at)
                    else if (depth == 1 && from) {
                        if (name == "role") {
                            roles++
                            window_range(s, from, at)
                            WINDOW_ROLE = json_string(substr(s, RANGE_AT, RANGE_LEN))
                        } else if (name == "content") {
                            contents++
                            window_range(s, from, at)
                            WINDOW_AT = RANGE_AT
                            WINDOW_LEN = RANGE_LEN
                        }
                        from = 0
                    }
                    if (c == ",") {
                        if (depth == 2) {
                            element = at + 1
                            WINDOW_KIND[WINDOW_BLOCKS + 1] = ""
                        }
                    } else {
                        if (depth == 3) in_block = 0
                        if (depth == 2) in_array = 0
                        depth--
                    }
                }
            }
        }
        if (k < JS_N) base = JS_AT[k + 1] + JS_LEN[k + 1] + 1
    }
    return roles == 1 && contents == 1
}

function window_name(s, k,   name) {
    name = substr(s, JS_AT[k], JS_LEN[k])
    return index(name, "\\") ? json_unescape(name) : name
}

# A member of the block that comes next; a name that comes twice makes a block that no API takes.
function window_member(s, key, from, end,   b) {
    b = WINDOW_BLOCKS + 1
    if ((b, key) in WINDOW_VALUE_AT) WINDOW_KIND[b] = "broken"
    window_range(s, from, end)
    WINDOW_VALUE_AT[b, key] = RANGE_AT
    WINDOW_VALUE_LEN[b, key] = RANGE_LEN
}

function window_element(s, from, end) {
    window_range(s, from, end)
    if (!RANGE_LEN) return
    WINDOW_BLOCKS++
    WINDOW_BLOCK_AT[WINDOW_BLOCKS] = RANGE_AT
    WINDOW_BLOCK_LEN[WINDOW_BLOCKS] = RANGE_LEN
    if (substr(s, RANGE_AT, 1) != "{") WINDOW_KIND[WINDOW_BLOCKS] = "broken"
}

# Where s[from..end-1] is without blanks around it.
function window_range(s, from, end) {
    while (from < end && substr(s, from, 1) ~ /[ \t\r\n]/) from++
    while (end > from && substr(s, end - 1, 1) ~ /[ \t\r\n]/) end--
    RANGE_AT = from
    RANGE_LEN = end - from
}

# Each \ud8xx ... \udfxx that is no half of a pair becomes \ufffd.
function window_surrogates(s,   q, p, n, i, k, code, low) {
    n = split_slashes(s, q)
    p[k = 1] = q[1]
    for (i = 2; i <= n; i++) {
        if (q[i] == "" && i < n) {
            p[++k] = "\\\\" q[++i]
            continue
        }
        code = json_hex4(q[i])
        if (code >= 55296 && code < 56320 && length(q[i]) == 5 && i < n && (low = json_hex4(q[i + 1])) >= 56320 && low < 57344) {
            p[++k] = "\\" q[i] "\\" q[i + 1]
            i++
        } else if (code >= 55296 && code < 57344) p[++k] = "\\ufffd" substr(q[i], 6)
        else p[++k] = "\\" q[i]
    }
    return join_pieces(p, 1, k)
}

# ---- The head of a body

# Members are written as they come, each replaced by the one of the same name in the file `extra`.
function body_begin(extra,   text, keys, raws, n, i) {
    BODY_EXTRAS = 0
    text = file_text(extra)
    n = json_members(text, keys, raws)
    for (i = 1; i <= n; i++) {
        if (!(keys[i] in BODY_EXTRA)) BODY_EXTRA_KEY[++BODY_EXTRAS] = keys[i]
        BODY_EXTRA[keys[i]] = body_minified(raws[i])
    }
    printf "{"
}

function body_raw(key, raw) {
    BODY_WRITTEN[key] = 1
    printf "%s:%s,", json_quote(key), (key in BODY_EXTRA) ? BODY_EXTRA[key] : raw
}

function body_text(key, text) { body_raw(key, json_quote(text)) }

# The members that only `extra` has. What carries the conversation is never taken from there.
function body_extra(   i, key) {
    for (i = 1; i <= BODY_EXTRAS; i++) {
        key = BODY_EXTRA_KEY[i]
        if (!(key in BODY_WRITTEN) && key != "messages" && key != "input") body_raw(key, BODY_EXTRA[key])
    }
}

# Without the blanks between tokens.
function body_minified(raw,   p, k, i, t) {
    if (raw !~ /[ \t\r\n]/ || !json_whole(raw)) return raw
    for (i = 0; i <= JS_N; i++) {
        t = JS_OUT[i]
        gsub(/[ \t\r\n]+/, "", t)
        p[++k] = t
        if (i < JS_N) p[++k] = "\"" substr(raw, JS_AT[i + 1], JS_LEN[i + 1]) "\""
    }
    return join_pieces(p, 1, k)
}

function omits(field) { return index(" " omit " ", " " field " ") > 0 }

# A file as text: without a last LF, cleaned; "" when it is not there.
function file_text(file,   line, p, n) {
    if (file == "") return ""
    n = 0
    while ((getline line < file) > 0) {
        if (n) p[n] = p[n] "\n"
        p[++n] = line
    }
    close(file)
    return json_clean(join_pieces(p, 1, n))
}

# ---- Lines for the two OpenAI APIs: the twin of src/model/convert.rs

# Takes a message that is sent apart: CONVERT_KIND is "verbatim", "user", "assistant" or "" (nothing in it that could be
# sent). Of a user's message CONVERT_RESULTS results, CONVERT_ID (raw) and CONVERT_BODY, and CONVERT_TEXT; of an
# assistant's CONVERT_BLOCKS blocks, CONVERT_TYPE and what they hold. Bodies of strings keep their escapes.
function convert(line,   content, blocks, n, i, k, type) {
    CONVERT_KIND = CONVERT_TEXT = ""
    CONVERT_RESULTS = CONVERT_BLOCKS = 0
    if (index(line, "{\"role\":\"user\",\"content\":\"") == 1) {
        CONVERT_KIND = "verbatim"
        return
    }
    content = json_member(line, "content")
    if (content == "") return
    if (json_is_string(content)) {
        CONVERT_KIND = "verbatim"
        return
    }
    CONVERT_KIND = text_of(line, "role")
    n = json_elements(content, blocks)
    if (CONVERT_KIND == "user") {
        for (i = 1; i <= n; i++) {
            convert_members(blocks[i])
            type = json_string(CONVERT_MEMBER["type"])
            if (type == "tool_result") {
                CONVERT_RESULTS++
                CONVERT_ID[CONVERT_RESULTS] = CONVERT_MEMBER["tool_use_id"] == "" ? "\"\"" : CONVERT_MEMBER["tool_use_id"]
                CONVERT_BODY[CONVERT_RESULTS] = convert_result(CONVERT_MEMBER["content"])
            } else if (type == "text") CONVERT_TEXT = convert_join(CONVERT_TEXT, convert_body(CONVERT_MEMBER["text"]))
        }
        return
    }
    if (CONVERT_KIND != "assistant") {
        CONVERT_KIND = ""
        return
    }
    k = 0
    for (i = 1; i <= n; i++) {
        convert_members(blocks[i])
        type = json_string(CONVERT_MEMBER["type"])
        if (type == "text" && convert_body(CONVERT_MEMBER["text"]) != "") {
            CONVERT_TYPE[++k] = "text"
            CONVERT_BODY[k] = convert_body(CONVERT_MEMBER["text"])
        } else if (type == "thinking") {
            CONVERT_TYPE[++k] = "thinking"
            CONVERT_BODY[k] = convert_body(CONVERT_MEMBER["thinking"])
            CONVERT_SIGNATURE[k] = convert_body(CONVERT_MEMBER["signature"])
            CONVERT_ID[k] = convert_body(CONVERT_MEMBER["id"])
        } else if (type == "tool_use" && CONVERT_MEMBER["id"] != "" && CONVERT_MEMBER["name"] != "") {
            CONVERT_TYPE[++k] = "call"
            CONVERT_ID[k] = CONVERT_MEMBER["id"]
            CONVERT_NAME[k] = CONVERT_MEMBER["name"]
            CONVERT_BODY[k] = CONVERT_MEMBER["input"] == "" ? "{}" : CONVERT_MEMBER["input"]
        }
    }
    CONVERT_BLOCKS = k
}

function convert_members(block,   keys, raws, n, i) {
    split("", CONVERT_MEMBER)
    n = json_members(block, keys, raws)
    for (i = 1; i <= n; i++) CONVERT_MEMBER[keys[i]] = raws[i]
}

# The body of a raw string, its escapes as they are; "" when it is none.
function convert_body(raw) { return json_is_string(raw) ? substr(raw, 2, length(raw) - 2) : "" }

function convert_join(all, body) { return all != "" && body != "" ? all "\\n" body : all body }

# The content of a result: a string, or text blocks that are joined.
function convert_result(raw,   parts, n, i, text) {
    if (json_is_string(raw)) return convert_body(raw)
    n = json_elements(raw, parts)
    for (i = 1; i <= n; i++) text = convert_join(text, convert_body(json_member(parts[i], "text")))
    return text == "" ? "(no output)" : text
}

# Messages of a user, the same for both but for how a result is called.
function convert_user(before, between,   i) {
    for (i = 1; i <= CONVERT_RESULTS; i++)
        convert_item(before CONVERT_ID[i] between "\"" CONVERT_BODY[i] "\"}")
    if (CONVERT_TEXT != "") convert_item("{\"role\":\"user\",\"content\":\"" CONVERT_TEXT "\"}")
}

# Writes one item of messages or input.
function convert_item(text) {
    printf "%s%s", CONVERT_ITEMS++ ? "," : "", text
}

# tools.json for these APIs: `before` name `,"description":` description `,"parameters":` schema `after`.
function convert_tools(text, before, after,   tools, n, i, p, name, description, schema) {
    n = json_elements(text, tools)
    for (i = 1; i <= n; i++) {
        name = json_member(tools[i], "name")
        if (name == "") return ""
        description = json_member(tools[i], "description")
        schema = json_member(tools[i], "input_schema")
        p[i] = (i > 1 ? "," : "") before name ",\"description\":" (description == "" ? "\"\"" : description) ",\"parameters\":" \
            (schema == "" ? "{\"type\":\"object\",\"properties\":{}}" : schema) after
    }
    return n > 0 ? "[" json_clean(join_pieces(p, 1, n)) "]" : ""
}

# Whether this is OpenAI's own service, which knows fields that others refuse.
function convert_is_openai(url,   host) {
    if (!index(url, "://")) return 0
    host = substr(url, index(url, "://") + 3)
    sub(/[\/:].*/, "", host)
    return host == "api.openai.com" || host ~ /\.openai\.azure\.com$/
}

# The effort in OpenAI's words; "" for models that are not known to take one, and when thinking is disabled.
function convert_effort(   known) {
    known = thinking_kind == "effort" || ((thinking_kind == "" || thinking_kind == "unknown") && convert_is_openai(base_url) \
        && (model ~ /^gpt-[5-9]/ || model ~ /^o[0-9]/))
    if (!known || thinking == "disabled") return ""
    return effort == "" ? "high" : effort == "max" ? "xhigh" : effort
}

# ---- Images: the twin of src/model/images.rs

# Writes the message of a user's line that names images of the session (`[Image #N]`), as blocks or, for a model that does
# not see, with a note of their paths; 0: it names none and nothing was written. A text block is `{"type":` text_type ..., an
# image `before` its media type `between` its data `after`.
function image_item(line, text_type, before, between, after,   body, n, i, block) {
    if (images_dir == "" || index(line, "{\"role\":\"user\",\"content\":\"") != 1 || !index(line, "[Image #")) return 0
    body = substr(line, 27, length(line) - 28)
    n = image_parts(body)
    if (!n) return 0
    if (vision == "0") {
        convert_item("{\"role\":\"user\",\"content\":\"" body "\\n\\n<attached-images>\\n")
        for (i = 1; i <= n; i++) printf "%s\\n", json_escape("[Image #" IMAGE_NUMBER[i] "]: " IMAGE_FILE[i])
        printf "</attached-images>\"}"
        return n
    }
    block = "{\"type\":\"" text_type "\",\"text\":\""
    convert_item("{\"role\":\"user\",\"content\":[")
    for (i = 1; i <= n; i++) {
        printf "%s%s%s\"},%s%s%s", (i > 1 ? "," : ""), block, IMAGE_TEXT[i], before, IMAGE_TYPE[i], between
        image_data(IMAGE_FILE[i])
        printf "%s", after
    }
    if (!window_blank("\"" IMAGE_REST "\"")) printf ",%s%s\"}", block, IMAGE_REST
    printf "]}"
    return n
}

# The text up to each image, where it is first named, and what is left: IMAGE_TEXT, IMAGE_NUMBER, IMAGE_FILE, IMAGE_TYPE, IMAGE_REST.
function image_parts(body,   n, piece, number, seen) {
    n = 0
    while (match(body, /\[Image #[1-9][0-9]*\]/)) {
        number = substr(body, RSTART + 8, RLENGTH - 9)
        piece = piece substr(body, 1, RSTART + RLENGTH - 1)
        body = substr(body, RSTART + RLENGTH)
        if (length(number) > 9 || (number in seen) || !image_find(number, n + 1)) continue
        seen[number] = 1
        IMAGE_TEXT[++n] = piece
        IMAGE_NUMBER[n] = number
        piece = ""
    }
    IMAGE_REST = piece body
    return n
}

function image_find(number, slot,   i, file, byte, found) {
    split("png image/png jpg image/jpeg gif image/gif webp image/webp", IMAGE_KINDS, " ")
    for (i = 1; i < 8; i += 2) {
        file = images_dir "/" number "." IMAGE_KINDS[i]
        found = (getline byte < file) > 0
        close(file)
        if (found) {
            IMAGE_FILE[slot] = file
            IMAGE_TYPE[slot] = IMAGE_KINDS[i + 1]
            return 1
        }
    }
    return 0
}

# The file in base64, line by line.
function image_data(file,   command, line) {
    gsub(/'/, "'\\''", file)
    command = "base64 <'" file "' 2>/dev/null || openssl base64 <'" file "'"
    while ((command | getline line) > 0) {
        IMAGE_BYTES += length(line)
        printf "%s", line
    }
    close(command)
}

# Says how much of the body was images, to the file `images_file`; nothing was: it is empty.
function image_report() {
    if (images_file == "") return
    printf("%s", IMAGE_BYTES ? sprintf("%.0f\n", IMAGE_BYTES) : "") > images_file
    close(images_file)
}

# ---- For the user

function window_notes(   text) {
    if (WINDOW_BAD)
        text = "conversation.jsonl: " window_counted(WINDOW_BAD, "line") " that cannot be read left out of the request (line " \
            WINDOW_BAD_LINES (WINDOW_BAD > 5 ? ", \342\200\246" : "") ")\n"
    if (WINDOW_ORPHANS) text = text "conversation.jsonl: " window_counted(WINDOW_ORPHANS, "tool result") " without a call left out of the request\n"
    if (WINDOW_MISSING) text = text "conversation.jsonl: " window_counted(WINDOW_MISSING, "tool call") " without a result sent as interrupted\n"
    if (WINDOW_LEADING) text = text "conversation.jsonl: " window_counted(WINDOW_LEADING, "answer") " before the first question left out of the request\n"
    return text
}

function window_counted(count, thing) { return count " " thing (count == 1 ? "" : "s") }
