# protocol.awk - the wire: RESP frames out and in, and the framing of SSE. A library, loaded after json.awk.
#
# Purpose  The same framing for all programs of this directory (CONTRACT section 3, PROVIDERS "SSE itself").
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f PROGRAM.awk   (mawk: -W interactive where output is waited for)
# Input    none of its own.    Output   through emit().
# -v out=resp     messages are RESP frames (the default)
#    out=lines    one line a message, fields separated by TAB; in a field backslash, TAB, LF and CR are \\ \t \n \r
#    out=json     the same, but each field is the body of a JSON string (CONTRACT section 4), ready to go between quotes
#
# emit(f, n), emit1(a) ... emit5(a..e)    one message to standard output; short ones are one write once flushed
# emit_tool_call(name, id, input)         with the members of the input behind it
# resp_frame(f, n)                        a frame as a string
# resp_push(line)     takes a line of a stream of frames, without its LF; then call resp_take() until it gives 0:
# resp_take()         1 = a message is in RESP_F[1..RESP_N]; 0 = push more; -1 = a broken frame (RESP_WHY says how), the
#                     search for the next one goes on behind its header
# resp_open()         1 when the stream breaks off here inside a frame
# line_escape(s), line_unescape(s)        a field of out=lines
# timestamp()            now in UTC, as RFC 3339 with .000, for "ts"
# sse_lines(record, l)   the lines (ended by LF, CR or CRLF) in an awk record: their number, the lines in l[1..n]
# sse_line(line)         1 when this line completed an event: SSE_EVENT is its name, SSE_DATA its data
# SSE_EVENTS             how many events came so far
# sse_pending()          1 when an event was complete but for its blank line: take it at a clean end of the body only
#
# The answer of a model, the same for every provider (the twin of src/model/sse.rs and error.rs):
# answer_text(s), answer_thinking(s), answer_signature(s, id), answer_redacted(data), answer_call(id, name, input)
# answer_call_id(id, name, input)   the first half of answer_call, for a call that is given later
# answer_stop(reason, cut), answer_fail(json)    USAGE, then STOP or ERROR: nothing comes after these; ANSWER_DONE is 1
# answer_error(message, type)    the same with words of ours
# answer_mark(record)   1 when this record ends the body (see end_mark)
# answer_whole()        1 when the body was no stream but one JSON object with `choices`: it is in SSE_DATA
# answer_end()          the body has ended: without a stop before that, an ERROR of the type stream_broken, stalled or
#                       no_event_stream
# FIGURE["input"|"output"|"cache_read"|"cache_creation"]   what the server has reported so far, "" = nothing
# -v id_prefix=call_    begins the ids of calls that came without one; a number follows, counted from -v calls=0 on
# -v max_tokens=N       the limit asked for: an answer of that length whose call is no JSON was cut by it
# -v join=1             neighbouring pieces of text and of thinking are one message (tests; not while someone waits)
# -v end_mark=TEXT      a line that begins with TEXT ends the body; a number follows (0 = a clean end), and words that say
#                       how the connection broke. Without it the end of the input is a clean end.
# -v server=URL, sent=N who answered, for a message; how many bytes were sent, to guess the input from
# -v stall_timeout=N    no event for N s ends the body, with an error of the type stalled: that is looked at when another
#                       line comes (a comment is no event), and for silence curl has to see to it, which ends with 28
# -v estimated=1        a USAGE that we guessed has a fifth field after its figures, `estimated`
# -v status=FILE        how the answer ended: `stop REASON`, or `error TYPE MESSAGE`, separated by TAB and line-escaped

BEGIN {
    PROTO_OUT = out == "" ? "resp" : out
    # curl's code for a time that is over.
    BODY_STALLED = 28
}

# ---- Out

function emit(f, n,   p, i) {
    if (PROTO_OUT == "resp") {
        printf "%s", resp_frame(f, n)
        return
    }
    for (i = 1; i <= n; i++) p[i] = (i > 1 ? "\t" : "") (PROTO_OUT == "json" ? json_escape(f[i]) : line_escape(f[i]))
    p[n + 1] = "\n"
    printf "%s", join_pieces(p, 1, n + 1)
}

function emit1(a,   f) { f[1] = a; emit(f, 1) }
function emit2(a, b,   f) { f[1] = a; f[2] = b; emit(f, 2) }
function emit3(a, b, c,   f) { f[1] = a; f[2] = b; f[3] = c; emit(f, 3) }
function emit4(a, b, c, d,   f) { f[1] = a; f[2] = b; f[3] = c; f[4] = d; emit(f, 4) }
function emit5(a, b, c, d, e,   f) { f[1] = a; f[2] = b; f[3] = c; f[4] = d; f[5] = e; emit(f, 5) }

# Members of the input follow it: strings decoded, other values as JSON. Input that is no object has none.
function emit_tool_call(name, id, input,   f, keys, raws, n, i, k) {
    f[1] = "TOOL_CALL"; f[2] = name; f[3] = id; f[4] = input
    k = 4
    n = json_members(input, keys, raws)
    # A frame holds at most 64 fields.
    for (i = 1; i <= n && k + 2 <= 64; i++) {
        f[++k] = keys[i]
        f[++k] = json_is_string(raws[i]) ? json_string(raws[i]) : raws[i]
    }
    emit(f, k)
}

function resp_frame(f, n,   p, i) {
    p[1] = "*" n "\r\n"
    for (i = 1; i <= n; i++) p[i + 1] = "$" length(f[i]) "\r\n" f[i] "\r\n"
    return join_pieces(p, 1, n + 1)
}

function line_escape(s,   p, k, i) {
    if (s !~ /[\\\t\n\r]/) return s
    if (length(s) <= 4096) return line_escape_chunk(s)
    for (i = 1; i <= length(s); i += 4096) p[++k] = line_escape_chunk(substr(s, i, 4096))
    return join_pieces(p, 1, k)
}

function line_escape_chunk(c) {
    gsub(/\\/, "&&", c)
    gsub(/\t/, "\\t", c)
    gsub(/\n/, "\\n", c)
    gsub(/\r/, "\\r", c)
    return c
}

function line_unescape(s,   q, p, n, i, k, c) {
    if (!index(s, "\\")) return s
    n = split_slashes(s, q)
    p[k = 1] = q[1]
    for (i = 2; i <= n; i++) {
        c = substr(q[i], 1, 1)
        if (c == "") p[++k] = "\\" (i < n ? q[++i] : "")
        else if (c == "t") p[++k] = "\t" substr(q[i], 2)
        else if (c == "n") p[++k] = "\n" substr(q[i], 2)
        else if (c == "r") p[++k] = "\r" substr(q[i], 2)
        else p[++k] = "\\" q[i]
    }
    return join_pieces(p, 1, k)
}

# ---- RESP in

# The queue RESP_Q[RESP_HEAD..RESP_TAIL] holds the lines of the frame that is being read, so that a search for the next
# frame can begin right behind the header of a broken one.
function resp_push(line) { RESP_Q[++RESP_TAIL] = line }

function resp_take(   i, line) {
    if (!RESP_HEAD) RESP_HEAD = RESP_AT = 1
    while (RESP_AT <= RESP_TAIL) {
        line = RESP_Q[RESP_AT]
        if (RESP_SKIP) {
            if (line !~ /^\*[0-9][0-9]?\r$/) {
                delete RESP_Q[RESP_AT]
                RESP_HEAD = ++RESP_AT
                continue
            }
            if (RESP_AT == RESP_TAIL) return 0
            if (substr(RESP_Q[RESP_AT + 1], 1, 1) != "$") {
                delete RESP_Q[RESP_AT]
                RESP_HEAD = ++RESP_AT
                continue
            }
            RESP_SKIP = 0
        }
        RESP_AT++
        if (!RESP_LEFT) {
            RESP_LEFT = substr(line, 2, length(line) - 2) + 0
            if (line !~ /^\*[0-9][0-9]?\r$/ || RESP_LEFT < 1 || RESP_LEFT > 64) return resp_broken("no header of a frame")
            RESP_N = RESP_TOTAL = 0
            RESP_SIZE = -1
        } else if (RESP_SIZE < 0) {
            if (line !~ /^\$[0-9]+\r$/ || length(line) > 10) return resp_broken("no length of a field")
            RESP_SIZE = substr(line, 2, length(line) - 2) + 0
            if ((RESP_TOTAL += RESP_SIZE + 2) > 67108864) return resp_broken("a frame over 64 MiB")
            RESP_FROM = RESP_AT
            RESP_HAVE = 0
        } else {
            RESP_HAVE += length(line) + 1
            if (RESP_HAVE < RESP_SIZE + 2) continue
            if (RESP_HAVE > RESP_SIZE + 2 || line !~ /\r$/) return resp_broken("a field is not closed by CR LF")
            RESP_F[++RESP_N] = resp_field()
            RESP_SIZE = -1
            if (--RESP_LEFT == 0) {
                for (i = RESP_HEAD; i < RESP_AT; i++) delete RESP_Q[i]
                RESP_HEAD = RESP_AT
                return 1
            }
        }
    }
    return 0
}

# The lines RESP_FROM..RESP_AT-1 of the queue, without the CR at their end.
function resp_field(   p, i, last) {
    last = RESP_AT - 1
    if (last == RESP_FROM) return substr(RESP_Q[last], 1, RESP_SIZE)
    for (i = RESP_FROM; i < last; i++) p[i] = RESP_Q[i] "\n"
    p[last] = substr(RESP_Q[last], 1, length(RESP_Q[last]) - 1)
    return join_pieces(p, RESP_FROM, last)
}

function resp_broken(why) {
    RESP_WHY = why
    RESP_LEFT = 0
    RESP_SKIP = 1
    delete RESP_Q[RESP_HEAD]
    RESP_AT = ++RESP_HEAD
    return -1
}

# Whether the stream broke off inside a frame.
function resp_open() { return RESP_LEFT > 0 }

# ---- SSE

# An awk record is what stands between two LFs; a CR at its end belongs to the CRLF.
function sse_lines(record, l,   n) {
    if (!index(record, "\r")) {
        l[1] = record
        return 1
    }
    n = split(record, l, "\r")
    return l[n] == "" && n > 1 ? n - 1 : n
}

function sse_line(line,   i, name, value) {
    if (!SSE_BEGUN) {
        SSE_BEGUN = 1
        SSE_PARTS = 0
        if (substr(line, 1, 3) == "\357\273\277") line = substr(line, 4)
    }
    if (line == "") {
        if (sse_pending()) return 1
        sse_idle()
        return 0
    }
    i = index(line, ":")
    if (i == 1) {
        sse_idle()
        return 0
    }
    name = i ? substr(line, 1, i - 1) : line
    value = i ? substr(line, i + 1) : ""
    if (substr(value, 1, 1) == " ") value = substr(value, 2)
    if (name == "data") {
        SSE_PARTS++
        SSE_PART[SSE_PARTS] = SSE_PARTS > 1 ? "\n" value : value
    }
    else if (name == "event") SSE_NAME = value
    return 0
}

function sse_pending(   n) {
    SSE_EVENT = SSE_NAME
    SSE_NAME = ""
    n = SSE_PARTS
    SSE_PARTS = 0
    if (!n) return 0
    SSE_EVENTS++
    SSE_DATA = n == 1 ? SSE_PART[1] : join_pieces(SSE_PART, 1, n)
    return 1
}

# A line came that is no event, and keeps nothing alive: after too long of these the body ends.
function sse_idle(   now) {
    if (stall_timeout == "") return
    srand()
    now = srand()
    if (!SSE_SINCE || SSE_EVENTS != SSE_SEEN) {
        SSE_SINCE = now
        SSE_SEEN = SSE_EVENTS
    } else if (now - SSE_SINCE > stall_timeout) {
        BODY_BROKEN = BODY_STALLED
        exit
    }
}

# ---- The answer of a model

function answer_text(s) { answer_piece("TEXT", s) }
function answer_thinking(s) { answer_piece("THINKING", s) }

function answer_piece(name, s) {
    if (s == "") return
    ANSWER_BYTES += length(s)
    if (!join) {
        emit2(name, s)
        return
    }
    if (name != ANSWER_JOIN) answer_joined()
    ANSWER_JOIN = name
    ANSWER_PIECE[++ANSWER_PIECES] = s
}

# Gives the pieces that -v join=1 holds back.
function answer_joined() {
    if (ANSWER_PIECES) emit2(ANSWER_JOIN, join_pieces(ANSWER_PIECE, 1, ANSWER_PIECES))
    ANSWER_PIECES = 0
}

function answer_signature(s, id) {
    answer_joined()
    if (id == "") emit2("SIGNATURE", s)
    else emit3("SIGNATURE", s, id)
}

function answer_redacted(data) {
    answer_joined()
    emit2("REDACTED_THINKING", data)
}

# A call as complete as it will be: registers it and returns its id. A missing id is invented, one that the APIs would
# refuse is made harmless (a character of several bytes is one `_`), one that came before gets a number.
function answer_call_id(id, name, input,   number, given) {
    ANSWER_BYTES += length(name) + length(input)
    json_tool_input(input)
    if (JSON_BAD != "") ANSWER_BROKEN_CALL = 1
    ANSWER_CALLS++
    if (id == "") id = (id_prefix == "" ? "call_" : id_prefix) (calls + ANSWER_CALLS)
    else if (id ~ /[^A-Za-z0-9-]/) {
        gsub(/[\200-\277]/, "", id)
        gsub(/[^A-Za-z0-9-]/, "_", id)
    }
    given = id
    for (number = 2; id in ANSWER_ID; number++) id = given "_" number
    ANSWER_ID[id] = 1
    return id
}

function answer_call(id, name, input) {
    id = answer_call_id(id, name, input)
    answer_joined()
    emit_tool_call(name, id, input)
}

function answer_figure(name, value) {
    if (value != "") FIGURE[name] = value
}

function answer_has_figures() {
    return FIGURE["input"] != "" || FIGURE["output"] != "" || FIGURE["cache_read"] != "" || FIGURE["cache_creation"] != ""
}

function answer_usage() {
    answer_joined()
    if (answer_has_figures())
        emit5("USAGE", answer_count("input"), answer_count("output"), answer_count("cache_read"), answer_count("cache_creation"))
}

function answer_count(name) { return FIGURE[name] == "" ? "0" : FIGURE[name] }

# `cut` is the provider's word for an answer that was too long.
function answer_stop(reason, cut) {
    ANSWER_DONE = 1
    if (answer_has_figures()) {
        # Some servers call it a normal end although the limit cut a call's arguments.
        if (ANSWER_BROKEN_CALL && max_tokens && answer_count("output") + 0 >= max_tokens + 0) reason = cut
        answer_usage()
    } else answer_guess(sent == "" ? 0 : int((sent + 3) / 4), int((ANSWER_BYTES + 3) / 4))
    emit2("STOP", reason)
    answer_status("stop\t" line_escape(reason))
}

# The server gave no figures: we count four bytes as one token.
function answer_guess(input, output,   f) {
    answer_joined()
    f[1] = "USAGE"; f[2] = sprintf("%.0f", input); f[3] = sprintf("%.0f", output); f[4] = f[5] = "0"
    f[6] = "estimated"
    emit(f, estimated ? 6 : 5)
}

function answer_error(message, type) {
    ANSWER_DONE = 1
    answer_usage()
    if (type == "") emit2("ERROR", message)
    else emit3("ERROR", message, type)
    answer_status("error\t" line_escape(type) "\t" line_escape(message))
}

function answer_status(line) {
    if (status == "") return
    print line > status
    close(status)
}

# The error that an event reports; its type, or else its code, is the second field.
function answer_fail(data) {
    said_find(data)
    answer_error(SAID_MESSAGE == "" ? "the server reported an error without a message" : SAID_MESSAGE, \
        SAID_TYPE == "" ? SAID_CODE : SAID_TYPE)
}

# Takes an awk record of the body before it is read as SSE: 1 when it is the mark that ends the body. Keeps the first
# bytes, for the case that this is no event stream at all.
function answer_mark(record) {
    if (end_mark != "" && index(record, end_mark) == 1) {
        record = substr(record, length(end_mark) + 1)
        BODY_BROKEN = record + 0
        sub(/^ *[0-9]+ */, "", record)
        BODY_WHY = record
        return 1
    }
    if (!SSE_EVENTS && ANSWER_HEAD_SIZE < 1048576) {
        ANSWER_HEAD[++ANSWER_HEAD_LINES] = record "\n"
        ANSWER_HEAD_SIZE += length(record) + 1
    }
    return 0
}

# A server that does not stream sends one JSON object: 1 when the body was one, then it is the only event, in SSE_DATA.
function answer_whole() {
    if (SSE_EVENTS) return 0
    SSE_DATA = trim_blanks(join_pieces(ANSWER_HEAD, 1, ANSWER_HEAD_LINES))
    if (substr(SSE_DATA, 1, 1) != "{" || json_member(SSE_DATA, "choices") == "") return 0
    gsub(/[\r\n]/, " ", SSE_DATA)
    SSE_EVENT = ""
    return SSE_EVENTS = 1
}

function answer_end(   head) {
    if (ANSWER_DONE) return
    head = SSE_EVENTS ? "" : trim_blanks(join_pieces(ANSWER_HEAD, 1, ANSWER_HEAD_LINES))
    if (!SSE_EVENTS && !BODY_BROKEN && head != "") {
        if (json_member(head, "error") != "") answer_fail(head)
        else {
            said_find(head)
            answer_error((server == "" ? "the server" : server) " answered with something that is no event stream: " SAID_MESSAGE, \
                "no_event_stream")
        }
        return
    }
    if (stall_timeout != "" && BODY_BROKEN == BODY_STALLED)
        answer_error((server == "" ? "the server" : server) ": no event for " stall_timeout " s, the stream is stalled", "stalled")
    else answer_error("the stream broke before its end (" (BODY_WHY == "" ? "the server closed it" : BODY_WHY) ")", "stream_broken")
}

# A count: digits; other numbers that are not negative lose their fraction; all else is "".
function json_count(raw) {
    if (raw ~ /^[0-9]+$/) return raw
    return raw ~ /^[0-9]/ || raw ~ /^-0*(\.0*)?$/ ? sprintf("%.0f", int(raw + 0)) : ""
}

# A member that is a string and holds something: for many servers an empty one means none.
function text_of(object, key) { return json_string(json_member(object, key)) }

# ---- What a server says in an error

# The server's own words in `body`, whatever form it chose: SAID_MESSAGE, SAID_TYPE (the provider's error type) and
# SAID_CODE (an HTTP status), "" where there is none.
function said_find(body,   at) {
    SAID_MESSAGE = SAID_TYPE = SAID_CODE = ""
    body = trim_blanks(body)
    if (substr(body, 1, 1) == "{") said_in_json(body)
    if (SAID_MESSAGE == "" && SAID_TYPE == "") SAID_MESSAGE = said_plain(json_clean(body))
    if (length(SAID_MESSAGE) > 2000) {
        at = 2000
        while (substr(SAID_MESSAGE, at + 1, 1) ~ /[\200-\277]/) at--
        SAID_MESSAGE = substr(SAID_MESSAGE, 1, at) "\342\200\246"
    }
}

function said_in_json(body,   response, error, code, word) {
    response = json_member(body, "response")
    if (response == "") response = body
    error = json_member(response, "error")
    if (error == "" || error == "null") error = response
    if (json_is_string(error)) {
        SAID_MESSAGE = json_string(error)
        return
    }
    SAID_MESSAGE = text_of(error, "message")
    if (SAID_MESSAGE == "") SAID_MESSAGE = text_of(error, "detail")
    code = json_member(error, "code")
    word = json_string(code)
    if (word != "" && !said_u16(word)) SAID_TYPE = word
    else SAID_TYPE = text_of(error, "type") == "error" ? "" : text_of(error, "type")
    SAID_CODE = said_status(code)
    if (SAID_CODE == "") SAID_CODE = said_status(word)
    if (SAID_CODE == "") SAID_CODE = said_status(json_member(error, "status"))
}

function said_u16(text) { return text ~ /^\+?[0-9]+$/ && text + 0 <= 65535 }
function said_status(text) { return said_u16(text) && text + 0 >= 400 ? text + 0 "" : "" }

# Readable words of a body that is no JSON: an HTML page's title, else the text without tags.
function said_plain(body,   lower, from, end, text, c, at, html, rest) {
    lower = tolower(substr(body, 1, 65536))
    from = index(lower, "<title>")
    end = index(lower, "</title>")
    if (from && end && from + 7 <= end) {
        text = said_words(substr(body, from + 7, end - from - 7))
        if (text != "") return text
    }
    rest = substr(body, 1, 8000)
    while (rest ~ /[\300-\377][\200-\277]*$/ && length(body) > 8000 && substr(body, length(rest) + 1, 1) ~ /[\200-\277]/)
        rest = substr(rest, 1, length(rest) - 1)
    if (substr(lower, 1, 1) == "<") {
        gsub(/<[^>]*>/, " ", rest)
        sub(/<.*/, "", rest)
    }
    return said_words(rest)
}

function said_words(text) {
    gsub(/\302[\200-\237]/, " ", text)
    gsub(/[\001-\040\177]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ $/, "", text)
    return text
}

# ---- The clock

# Now, in UTC, as RFC 3339: srand() without a number gives the seconds of the clock.
function timestamp() {
    srand()
    return utc(srand())
}

# Whole seconds of the clock, in UTC, as RFC 3339.
function utc(seconds,   days, z, era, doe, yoe, doy, mp, d, m, y) {
    seconds = int(seconds)
    days = int(seconds / 86400)
    seconds -= days * 86400
    z = days + 719468
    era = int(z / 146097)
    doe = z - era * 146097
    yoe = int((doe - int(doe / 1460) + int(doe / 36524) - int(doe / 146096)) / 365)
    doy = doe - (365 * yoe + int(yoe / 4) - int(yoe / 100))
    mp = int((5 * doy + 2) / 153)
    d = doy - int((153 * mp + 2) / 5) + 1
    m = mp < 10 ? mp + 3 : mp - 9
    y = yoe + era * 400 + (m <= 2)
    return sprintf("%04d-%02d-%02dT%02d:%02d:%02d.000Z", y, m, d, int(seconds / 3600), int(seconds / 60) % 60, seconds % 60)
}
