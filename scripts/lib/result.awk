# result.awk - what a tool gave -> its event, its block in the conversation, its TOOL_RESULT message (CONTRACT §4, §5, §11).
#
# Input    a number, then so many lines with a secret each; then what the tool printed or read, raw, then `.` and LF.
# Output   a TOOL_RESULT frame.
# -v dir=DIR   writes DIR/event (the event line without ts and brace) and DIR/block (the tool_result block)
# -v max=N     bytes of one result;  -v total=N  bytes of the whole output when the file holds only head and tail of it
# -v at=N      then: where in the file the tail begins
# -v controls=1  the model gets it without terminal codes (Bash)
# -v shapes=1  what looks like a token or a private key is masked, as the secrets are
# -v joint=1   head and text belong on one line (a command that timed out)
# -v room=N    the most bytes of the text alone, where that is not what head and notes leave
# -v task=1, code=N   gives an ASYNC_TASK_RESULT frame instead, and writes nothing
# -v one_lf=1, utf8_note=1   the text of a file (Read)
# -v error=1   the call failed;  -v first_line=1  the conversation keeps the first line only (Edit)
# Environment  R_ID, R_NAME; R_HEAD before and R_NOTES behind the text, R_SUMMARY in front of what is shown; R_TODO its
#              summary
BEGIN {
    total_given = total != ""
    getline n_mask
    for (i = 1; i <= n_mask; i++) getline mask[i]
    shape_list()
    while ((getline line) > 0) part[++parts] = line "\n"
    raw = join_pieces(part, 1, parts)
    # A mark stands at the end, so that a last LF can be told from none.
    raw = substr(raw, 1, length(raw) - 2)
    head = json_clean(ENVIRON["R_HEAD"])
    notes = json_clean(ENVIRON["R_NOTES"])
    if (room == "") room = max - length(head) - length(notes) - (head != "") - (notes != "")
    if (room < 0) room = 0
    text = body()
    if (task) {
        emit4("ASYNC_TASK_RESULT", ENVIRON["R_ID"], code, limited(masked(around(without_controls(text)))))
        exit
    }
    summary = ENVIRON["R_SUMMARY"]
    shown = limited(masked(around(text)))
    if (summary != "") shown = limited(masked(json_clean(summary)) "\n" masked(around(text)))
    content = controls ? limited(masked(around(without_controls(text)))) : first_line ? upto_lf(shown) : limited(masked(around(text)))
    id = ENVIRON["R_ID"]
    name = json_clean(ENVIRON["R_NAME"])
    printf "{\"type\":\"tool_result\",\"tool_use_id\":%s,\"name\":%s,\"content\":%s\n", json_quote(id), json_quote(name), \
        json_quote(shown) > (dir "/event")
    printf "{\"type\":\"tool_result\",\"tool_use_id\":%s,\"content\":%s%s}\n", json_quote(id), \
        json_quote(content == "" ? "(no output)" : content), error ? ",\"is_error\":true" : "" > (dir "/block")
    f[1] = "TOOL_RESULT"; f[2] = id; f[3] = name; f[4] = shown
    n = 4
    if (name == "TodoWrite" && !error) { f[5] = "checklist"; f[6] = shown; f[7] = "summary"; f[8] = ENVIRON["R_TODO"]; n = 8 }
    emit(f, n)
    exit
}

function around(text,   out) {
    out = head
    if (text != "") out = out (joint || head == "" ? "" : "\n") text
    if (notes != "") out = out (out == "" ? "" : "\n") notes
    return out
}

# Without the last line feeds; head and tail when it is too long.
function body(   n, text, front, back) {
    if (total_given) {
        front = masked(json_clean(substr(raw, 1, at)))
        back = substr(raw, at + 1)
        for (n = length(back); n && substr(back, n, 1) == "\n"; n--) continue
        back = masked(json_clean(substr(back, 1, n)))
        # Half a secret at the edge of the gap is not recognised: the edge itself is never shown.
        return joined(substr(front, 1, length(front) - 1024), substr(back, 1025), total)
    }
    n = length(raw)
    # A file's text loses one LF only, a command's output all of them.
    if (one_lf) { if (n > 1 && substr(raw, n, 1) == "\n") n-- } else while (n && substr(raw, n, 1) == "\n") n--
    text = masked(json_clean(substr(raw, 1, n)))
    if (utf8_note && text ~ /\357\277\275/ && !json_utf8_valid(raw)) text = text "\n[bytes that are not UTF-8 are shown as \357\277\275]"
    return length(text) <= room ? text : joined(text, text, length(raw))
}

function joined(front, back, bytes,   marker, left, start) {
    marker = "\n\n[... truncated: showing first/last portions of " sprintf("%.0f", bytes) " bytes ...]\n\n"
    left = room - length(marker)
    if (left < 0) left = 0
    start = length(back) - (left - int(left / 2)) + 1
    return prefix(front, int(left / 2)) marker suffix(back, start < 1 ? 1 : start)
}

function limited(text) { return length(text) <= max ? text : joined_all(text) }
function joined_all(text) { room = max; return joined(text, text, length(text)) }

function prefix(text, n) {
    if (n >= length(text)) return text
    while (n > 0 && substr(text, n + 1, 1) ~ /[\200-\277]/) n--
    return substr(text, 1, n)
}
function suffix(text, from) {
    while (from <= length(text) && substr(text, from, 1) ~ /[\200-\277]/) from++
    return substr(text, from)
}

function masked(text,   i, at, out) {
    for (i = 1; i <= n_mask; i++) {
        if (length(mask[i]) < 8 || !index(text, mask[i])) continue
        out = ""
        while (at = index(text, mask[i])) {
            out = out substr(text, 1, at - 1) "***"
            text = substr(text, at + length(mask[i]))
        }
        text = out text
    }
    return shapes ? without_keys(without_tokens(text)) : text
}

# As src/tools/mask.rs has them: how a token begins, and how many characters follow at least.
function shape_list(   i, n, w) {
    n = split("sk- 20 sk_live_ 16 rk_live_ 16 ghp_ 30 gho_ 30 ghu_ 30 ghs_ 30 ghr_ 30 github_pat_ 22 glpat- 20 xoxb- 20 xoxp- 20 xoxa- 20 xapp- 20 AKIA 16 ASIA 16 AIza 35 npm_ 36 pypi- 40 hf_ 30 dckr_pat_ 20 jina_ 30 gsk_ 40 xai- 40 eyJ 40", w, " ")
    for (i = 1; i < n; i += 2) { shape[++n_shapes] = w[i]; least[n_shapes] = w[i + 1] }
}
function without_tokens(text,   i, at, from, rest, out, token, dots, before) {
    for (i = 1; i <= n_shapes; i++) {
        if (!index(text, shape[i])) continue
        dots = shape[i] == "eyJ"
        out = ""
        while (at = index(text, shape[i])) {
            before = at > 1 ? substr(text, at - 1, 1) : substr(out, length(out), 1)
            from = at + length(shape[i])
            rest = substr(text, from)
            token = match(rest, dots ? "^[A-Za-z0-9_.-]+" : "^[A-Za-z0-9_-]+") ? substr(rest, 1, RLENGTH) : ""
            # A long name with hyphens is no key: keys hold figures.
            if (before !~ /[A-Za-z0-9_-]/ && length(token) >= least[i] && token ~ /[0-9]/ && token ~ /[A-Za-z]/ && (!dots || token ~ /^[^.]*\.[^.]*\.[^.]*$/)) {
                out = out substr(text, 1, at - 1) "***"
                text = substr(rest, length(token) + 1)
            } else {
                out = out substr(text, 1, from - 1)
                text = rest
            }
        }
        text = out text
    }
    return text
}
# The lines between BEGIN and END of a private key; half of one, where a result was cut, too.
function without_keys(text,   n, i, line, out, held, inside, begun) {
    if (text !~ /PRIVATE KEY-----/) return text
    n = split(text, line, "\n")
    for (i = 1; i <= n; i++) {
        if (line[i] ~ /-----BEGIN .*PRIVATE KEY-----/) { out = out held line[i] (i < n ? "\n" : ""); held = ""; inside = 1; begun = i }
        else if (line[i] ~ /-----END .*PRIVATE KEY-----/) {
            if (inside ? i > begun + 1 : held != "") out = out "***"
            out = out line[i] (i < n ? "\n" : "")
            held = ""; inside = 0
        } else if (inside) { if (i == n && (i > begun + 1 || line[i] != "")) out = out "***" }
        else if (line[i] ~ /^[ \t\r]*[A-Za-z0-9+\/=]+[ \t\r]*$/) held = held line[i] (i < n ? "\n" : "")
        else { out = out held line[i] (i < n ? "\n" : ""); held = "" }
    }
    return out held
}

function upto_lf(text) { return index(text, "\n") ? substr(text, 1, index(text, "\n") - 1) : text }

# Terminal codes and control characters say nothing to the model; TAB, LF and CR stay.
function without_controls(text) {
    if (text !~ /[\001-\010\013\014\016-\037\177]|\302[\200-\237]/) return text
    gsub(/(\033\[|\302\233)[ -?]*[@-~]?/, "", text)
    gsub(/(\033[\]PX^_]|\302[\220\230\235\236\237])[^\007\033\n]*(\007|\033\\)/, "", text)
    gsub(/\033[ -\/]*[0-~]?/, "", text)
    gsub(/[\001-\010\013\014\016-\037\177]|\302[\200-\237]/, "", text)
    return text
}
