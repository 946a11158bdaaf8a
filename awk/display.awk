# display.awk - display messages -> text for a person (CONTRACT section 14); the twin of `core display` (src/ui/render.rs).
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f display.awk      (mawk: -W interactive, or nothing shows in time)
# Input    RESP frames: TEXT, THINKING, TOOL_CALL, TOOL_RESULT, AGENT_RESULT, ASYNC_TASK_RESULT, USER_NOTIFY, USER_MESSAGE,
#          IMAGE_DESCRIBE, CONTEXT_UPDATE, STOP, ERROR. Other messages show nothing; broken frames are passed over.
# Output   text; ERROR goes to stderr. A line that stands open is ended by the next thing that begins a line, and at the end.
# -v color=1, error_color=1   colours on stdout, on stderr. Without: no escape byte at all.
# Text from outside cannot steer the terminal: control characters, C1 and bidirectional marks are shown, not sent.

BEGIN {
    last = ""
    line_open = 0
    for (i = 1; i < 32; i++) caret[i] = "^" sprintf("%c", i + 64)
}
{
    resp_push($0)
    while (took = resp_take()) if (took > 0) show(RESP_F[1])
    fflush()
}
END { close_line() }

function show(name) {
    if (name == "TEXT") show_text(RESP_F[2])
    else if (name == "THINKING") show_thinking(RESP_F[2])
    else if (name == "TOOL_CALL") { close_line(); show_line(33, "[tool] " RESP_F[2] "(" argument(RESP_F[2]) ")") }
    else if (name == "TOOL_RESULT") {
        close_line()
        printf "%s\n", safe(RESP_F[3] == "Read" || RESP_F[3] == "Write" ? first_line(RESP_F[4]) : trim_lf(RESP_F[4]))
    } else if (name == "ERROR") { close_line(); complain(paint(error_color, 31, "Error: " safe(RESP_F[2]))) }
    else if (name == "STOP") {
        close_line()
        if (RESP_F[2] == "interrupted") show_line(36, "Interrupted.")
    } else if (name == "CONTEXT_UPDATE") { close_line(); show_line(36, "Context compacted (" RESP_F[3] ").") }
    else if (name == "USER_MESSAGE") { close_line(); show_line(32, "> " shorten(first_line(RESP_F[2]), 80, 77)) }
    else if (name == "USER_NOTIFY") { close_line(); show_line(33, "[user inject] " RESP_F[2]) }
    else if (name == "AGENT_RESULT") agent_result()
    else if (name == "ASYNC_TASK_RESULT") {
        close_line()
        show_line(RESP_F[3] == "0" ? 36 : 31, "[bg-bash " RESP_F[2] "] exit_code=" RESP_F[3])
        brief(RESP_F[4])
    } else if (name == "USAGE" || name == "RETRY") close_line()   # the next response begins on a line of its own
    else if (name == "IMAGE_DESCRIBE") { close_line(); show_line(90, "[images] " RESP_F[2] " " RESP_F[3]) }
}

function close_line() {
    if (line_open) printf "\n"
    line_open = 0
    last = ""
}

function show_text(text) {
    if (text == "") return
    if (last == "thinking") close_line()
    last = "text"
    printf "%s", safe(text)
    line_open = text !~ /\n$/
}

function show_thinking(text) {
    if (text == "") return
    if (last == "text") close_line()
    last = "thinking"
    printf "%s", paint(color, 90, safe(text))
    line_open = text !~ /\n$/
}

function agent_result() {
    close_line()
    if (RESP_F[3] == "ok") show_line(35, "[sub-agent " RESP_F[2] "] completed (in=" RESP_F[4] ", out=" RESP_F[5] ")")
    else show_line(31, "[sub-agent " RESP_F[2] "] failed")
    if (RESP_F[6] != "") printf "%s\n", paint(color, 90, safe(shorten(RESP_F[6], 120, 120)))
    brief(RESP_F[7])
}

function brief(text) { if (text != "") printf "%s\n", safe(trim_lf(shorten(text, 120, 120))) }
function show_line(code, text) { printf "%s\n", paint(color, code, safe(text)) }
function paint(with_color, code, text) { return with_color ? "\033[" code "m" text "\033[0m" : text }

# The key argument of a call: what tells a person most, on one line.
function argument(name) {
    if (name ~ /^(Read|Write|Edit)$/) return one_line(member("path"))
    if (name == "Bash") return shorten(one_line(member("command")), 80, 77)
    if (name == "Glob" || name == "Grep") return one_line(member("pattern"))
    if (name == "TodoWrite") return todo_summary(member("todos"))
    if (name == "Skill") return one_line(member("name"))
    if (name == "SubAgent") return shorten(one_line(member("description")), 80, 77)
    if (name == "WebSearch") return one_line(member("query"))
    return name == "WebFetch" ? one_line(member("url")) : ""
}

function member(key,   i, value) {
    for (i = 5; i < RESP_N; i += 2) if (RESP_F[i] == key) value = RESP_F[i + 1]
    return value
}

function one_line(text) {
    gsub(/[\r\n]/, " ", text)
    return text
}

function todo_summary(todos,   list, n, i, done) {
    n = json_elements(todos, list)
    if (n < 0) return ""
    for (i = 1; i <= n; i++) if (text_of(list[i], "status") == "completed") done++
    return done + 0 "/" n
}

function first_line(text) {
    if (index(text, "\n")) text = substr(text, 1, index(text, "\n") - 1)
    while (text ~ /\r$/) text = substr(text, 1, length(text) - 1)
    return text
}

function trim_lf(text,   n) {
    for (n = length(text); n && substr(text, n, 1) == "\n"; n--) continue
    return substr(text, 1, n)
}

# Text of more than `limit` characters becomes its first `keep` and `...`.
function shorten(text, limit, keep,   i, n, cut) {
    if (length(text) <= limit) return text
    n = 0
    for (i = 1; i <= length(text) && n <= limit; i++)
        if (substr(text, i, 1) !~ /[\200-\277]/ && ++n == keep + 1) cut = i - 1
    return n > limit ? substr(text, 1, cut) "..." : text
}

function safe(text,   p, k, i, size) {
    if (text !~ /[\001-\010\013-\037\177\302\330\342]/) return text
    size = length(text)
    k = 0
    # In pieces that end between characters; a CR at a piece's end waits for what follows.
    for (i = 1; i <= size; i += length(p[k])) {
        p[++k] = substr(text, i, 4096)
        if (i + 4096 <= size && match(p[k], /(\r|[\300-\377][\200-\277]?[\200-\277]?)$/)) p[k] = substr(p[k], 1, RSTART - 1)
        if (p[k] == "") p[k] = substr(text, i, 4096)
    }
    for (i = 1; i <= k; i++) p[i] = safe_piece(p[i])
    return join_pieces(p, 1, k)
}

function safe_piece(text,   i) {
    gsub(/\r\n/, "\n", text)
    if (text ~ /[\001-\010\013-\037]/)
        for (i = 1; i < 32; i++) if (i != 9 && i != 10 && index(text, JSON_CHAR[i])) gsub(JSON_CHAR[i], caret[i], text)
    gsub(/\177/, "^?", text)
    if (text ~ /\302[\200-\237]|\330\234|\342\200[\216\217\250-\256]|\342\201[\246-\251]/) text = marks(text)
    return text
}

function marks(text,   out, c) {
    while (match(text, /\302[\200-\237]|\330\234|\342\200[\216\217\250-\256]|\342\201[\246-\251]/)) {
        c = substr(text, RSTART, RLENGTH)
        out = out substr(text, 1, RSTART - 1) "<U+" sprintf("%04X", mark_code(c)) ">"
        text = substr(text, RSTART + RLENGTH)
    }
    return out text
}

function mark_code(c,   i, code) {
    for (i = 128; i < 192; i++) if (substr(c, length(c), 1) == JSON_CHAR[i]) break
    if (c ~ /^\302/) return i
    if (c ~ /^\330/) return 1564
    return (c ~ /^\342\200/ ? 8192 : 8256) + i - 128
}
