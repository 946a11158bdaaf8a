# json.awk - JSON for the other programs of this directory: a library, loaded first.
#
# Purpose  Escape, decode, check and look into JSON text exactly as src/wire/json.rs does (CONTRACT section 4), in time
#          linear to the text, so that a string of megabytes is no problem even for mawk and busybox.
# Run      LC_ALL=C awk -f json.awk -f OTHER.awk ...   (bytes, never characters: without LC_ALL=C lengths are wrong)
# Input    none of its own.    Output   none.    -v   none.
# NUL      busybox awk and original-awk end a string at a NUL byte. Where NUL may come, put `tr '\000' '\377'` in front:
#          0xFF is never UTF-8, so json_clean turns it into U+FFFD, which is what a NUL becomes too.
#
# complain(text)                one line on stderr
# join_pieces(p, from, to)      the strings p[from..to] as one
# trim_blanks(s)                without JSON blanks at both ends
# json_clean(s)                 what is no UTF-8 (each maximal part), and NUL -> U+FFFD
# json_escape(s)                text -> body of a JSON string (the text must be clean)
# json_quote(s)                 the same in quotes
# json_unescape(body)           body of a JSON string -> clean text
# json_is_string(raw), json_string(raw)   a raw value: is it a string; its text ("" when it is none)
# json_valid(s)                 1 when s is one whole JSON value in valid UTF-8, nested at most 127 deep
# json_members(s, keys, raws)   top-level members: their number, keys decoded, values raw; -1 when s is no valid object
# json_member(s, key)           raw value of the member of that name, the last one of several; "" when there is none
# json_elements(s, raws)        elements of an array, raw: their number; -1 when s is no valid array
# json_number(raw)              a raw value as a count: digits only, else ""
# json_tool_input(s)            arguments of a tool call as they are stored; JSON_BAD says why not ("" = good)

BEGIN {
    JSON_FFFD = "\357\277\275"
    JSON_CHUNK = 4096
    JSON_LF_SPLITS = split("a\nb", json_pieces, "\"") > 1
    JSON_MAX_DEPTH = 127
    JSON_NUL = sprintf("%c", 0)
    if (length(JSON_NUL) != 1) JSON_NUL = ""
    for (json_i = 1; json_i < 256; json_i++) JSON_CHAR[json_i] = sprintf("%c", json_i)
    for (json_i = 1; json_i < 32; json_i++) JSON_CTRL[json_i] = sprintf("\\u%04x", json_i)
    JSON_CTRL[8] = "\\b"; JSON_CTRL[9] = "\\t"; JSON_CTRL[10] = "\\n"; JSON_CTRL[12] = "\\f"; JSON_CTRL[13] = "\\r"
    for (json_i = 0; json_i < 16; json_i++) {
        JSON_HEX[substr("0123456789abcdef", json_i + 1, 1)] = json_i
        JSON_HEX[substr("0123456789ABCDEF", json_i + 1, 1)] = json_i
    }
    JSON_SHORT["\""] = "\""; JSON_SHORT["/"] = "/"; JSON_SHORT["b"] = "\b"; JSON_SHORT["f"] = "\f"
    JSON_SHORT["n"] = "\n"; JSON_SHORT["r"] = "\r"; JSON_SHORT["t"] = "\t"
}

# One line on stderr, in order with what was written to standard output. (busybox would truncate a file that stderr is, if
# it were opened by the name /dev/stderr.)
function complain(text) {
    fflush()
    print text | "cat 1>&2"
    close("cat 1>&2")
}

# Pieces between quotes, and between backslashes. To split by a single character is fast everywhere, but original-awk then
# splits at line feeds too; to split by a pattern takes busybox time that grows with the square of the length.
function split_quotes(s, q) { return JSON_LF_SPLITS && index(s, "\n") ? split(s, q, /"/) : split(s, q, "\"") }
function split_slashes(s, q) { return JSON_LF_SPLITS && index(s, "\n") ? split(s, q, /\\/) : split(s, q, "\\") }

# Halves are joined first: n pieces cost n log n, not n squared.
function join_pieces(p, from, to,   middle) {
    if (from > to) return ""
    if (from == to) return p[from]
    if (from + 1 == to) return p[from] p[to]
    middle = int((from + to) / 2)
    return join_pieces(p, from, middle) join_pieces(p, middle + 1, to)
}

function trim_blanks(s) {
    if (s ~ /^[ \t\r\n]/) sub(/^[ \t\r\n]+/, "", s)
    # From the end by single bytes: a `+$` would be tried at every blank of a long text.
    while (s ~ /[ \t\r\n]$/) s = substr(s, 1, length(s) - 1)
    return s
}

# ---- UTF-8
# The well-formed characters and their beginnings are those of the Unicode standard, table 3-7. Patterns are written out
# where they are used: busybox compiles a pattern in a variable anew at every use.

function json_clean(s,   p, n, k, i, c, size) {
    if (JSON_NUL != "" && index(s, JSON_NUL)) s = json_no_nul(s)
    if (s !~ /[\200-\377]/) return s
    size = length(s)
    k = 0
    for (i = 1; i <= size; i += n) {
        c = json_whole_chars(substr(s, i, JSON_CHUNK), i + JSON_CHUNK > size)
        n = length(c)
        p[++k] = json_utf8_ok(c) ? c : json_mend_chunk(c)
    }
    return join_pieces(p, 1, k)
}

# A chunk without the beginning of a character that goes on in the next one.
function json_whole_chars(c, is_last) {
    return !is_last && match(c, /[\300-\377][\200-\277]?[\200-\277]?$/) ? substr(c, 1, RSTART - 1) : c
}

# Valid when nothing but ASCII is left once all well-formed characters are taken out.
function json_utf8_ok(c) {
    if (c !~ /[\200-\377]/) return 1
    gsub(/[\302-\337][\200-\277]|\340[\240-\277][\200-\277]|[\341-\354\356\357][\200-\277][\200-\277]|\355[\200-\237][\200-\277]|\360[\220-\277][\200-\277][\200-\277]|[\361-\363][\200-\277][\200-\277][\200-\277]|\364[\200-\217][\200-\277][\200-\277]/, "", c)
    return c !~ /[\200-\377]/
}

function json_mend_chunk(c,   p, k, i, w) {
    k = 0
    for (i = 1; i <= length(c); i += RLENGTH) {
        w = substr(c, i, 64)
        if (match(w, /^([\001-\177]|[\302-\337][\200-\277]|\340[\240-\277][\200-\277]|[\341-\354\356\357][\200-\277][\200-\277]|\355[\200-\237][\200-\277]|\360[\220-\277][\200-\277][\200-\277]|[\361-\363][\200-\277][\200-\277][\200-\277]|\364[\200-\217][\200-\277][\200-\277])+/)) p[++k] = substr(w, 1, RLENGTH)
        else {
            p[++k] = JSON_FFFD
            if (!match(w, /^(\340[\240-\277]|[\341-\354\356\357][\200-\277]|\355[\200-\237]|\360[\220-\277][\200-\277]?|[\361-\363][\200-\277][\200-\277]?|\364[\200-\217][\200-\277]?)/)) RLENGTH = 1
        }
    }
    return join_pieces(p, 1, k)
}

function json_no_nul(s,   p, k, i, c, at) {
    k = 0
    for (i = 1; i <= length(s); i += JSON_CHUNK) {
        c = substr(s, i, JSON_CHUNK)
        while (at = index(c, JSON_NUL)) {
            p[++k] = substr(c, 1, at - 1) "\377"
            c = substr(c, at + 1)
        }
        p[++k] = c
    }
    return join_pieces(p, 1, k)
}

# ---- Strings

function json_quote(s) { return "\"" json_escape(s) "\"" }

function json_escape(s,   p, k, i, size) {
    if (s !~ /["\\\001-\037]/) return s
    size = length(s)
    if (size <= JSON_CHUNK) return json_escape_chunk(s)
    k = 0
    for (i = 1; i <= size; i += JSON_CHUNK) p[++k] = json_escape_chunk(substr(s, i, JSON_CHUNK))
    return join_pieces(p, 1, k)
}

function json_escape_chunk(c,   i) {
    gsub(/["\\]/, "\\\\&", c)
    if (c !~ /[\001-\037]/) return c
    gsub(/\n/, "\\n", c)
    gsub(/\t/, "\\t", c)
    gsub(/\r/, "\\r", c)
    if (c ~ /[\001-\037]/)
        for (i = 1; i < 32; i++) if (index(c, JSON_CHAR[i])) gsub(JSON_CHAR[i], JSON_CTRL[i], c)
    return c
}

function json_is_string(raw) { return substr(raw, 1, 1) == "\"" }

function json_string(raw) {
    return substr(raw, 1, 1) == "\"" ? json_unescape(substr(raw, 2, length(raw) - 2)) : ""
}

# The pieces between backslashes: all but the first begin with what the backslash escapes; an empty one means that it
# escapes the next backslash, so that the piece after it is plain text.
function json_unescape(body,   q, p, n, i, k, c, code, low) {
    if (!index(body, "\\")) return json_clean(body)
    n = split_slashes(body, q)
    p[k = 1] = q[1]
    for (i = 2; i <= n; i++) {
        c = substr(q[i], 1, 1)
        if (c == "") {
            if (i == n) p[++k] = JSON_FFFD
            else p[++k] = "\\" q[++i]
        } else if (c == "u" && (code = json_hex4(q[i])) >= 0) {
            if (code >= 55296 && code < 56320 && length(q[i]) == 5 && i < n && substr(q[i + 1], 1, 1) == "u" \
                && (low = json_hex4(q[i + 1])) >= 56320 && low < 57344) {
                i++
                p[++k] = json_utf8(65536 + (code - 55296) * 1024 + low - 56320) substr(q[i], 6)
            } else p[++k] = json_utf8(code) substr(q[i], 6)
        } else if (c in JSON_SHORT) p[++k] = JSON_SHORT[c] substr(q[i], 2)
        else p[++k] = JSON_FFFD q[i]
    }
    return json_clean(join_pieces(p, 1, k))
}

# The code in `uXXXX...`, -1 when there are not four hex digits.
function json_hex4(s) {
    if (s !~ /^u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F]/) return -1
    return ((JSON_HEX[substr(s, 2, 1)] * 16 + JSON_HEX[substr(s, 3, 1)]) * 16 + JSON_HEX[substr(s, 4, 1)]) * 16 \
        + JSON_HEX[substr(s, 5, 1)]
}

# A code point as UTF-8; U+FFFD for NUL and lone surrogates.
function json_utf8(code) {
    if (code == 0 || (code >= 55296 && code < 57344)) return JSON_FFFD
    if (code < 128) return JSON_CHAR[code]
    if (code < 2048) return JSON_CHAR[192 + int(code / 64)] JSON_CHAR[128 + code % 64]
    if (code < 65536) return JSON_CHAR[224 + int(code / 4096)] JSON_CHAR[128 + int(code / 64) % 64] JSON_CHAR[128 + code % 64]
    return JSON_CHAR[240 + int(code / 262144)] JSON_CHAR[128 + int(code / 4096) % 64] \
        JSON_CHAR[128 + int(code / 64) % 64] JSON_CHAR[128 + code % 64]
}

# ---- Values

# Finds the strings of s: JS_N of them; JS_AT[k] is where the body of string k begins, JS_LEN[k] its length, JS_OUT[k]
# the text that follows its closing quote, JS_OUT[0] what stands before the first. 0 when a string is not closed or
# holds what a string may not.
function json_scan(s,   q, n, i, k, at, start, inside, slash, control, t) {
    slash = index(s, "\\")
    control = s ~ /[\001-\037]/
    JS_N = k = 0
    JS_OUT[0] = ""
    if (!slash && !control) {
        n = split_quotes(s, q)
        if (n % 2 == 0) return n == 0   # split finds no piece in an empty text
        JS_OUT[0] = q[1]
        at = length(q[1]) + 2
        for (i = 2; i < n; i += 2) {
            JS_AT[++k] = at
            JS_LEN[k] = length(q[i])
            JS_OUT[k] = q[i + 1]
            at += JS_LEN[k] + length(q[i + 1]) + 2
        }
        JS_N = k
        return 1
    }
    n = split_quotes(s, q)
    inside = 0
    at = 1
    for (i = 1; i <= n; i++) {
        if (!inside) {
            JS_OUT[k] = q[i]
            at += length(q[i]) + 1
            start = at
            inside = 1
            if (i == n) { JS_N = k; return 1 }
            continue
        }
        t = q[i]
        at += length(t) + 1
        if (control && t ~ /[\001-\037]/) return 0
        if (slash && index(t, "\\")) {
            if (t ~ /\\$/ && match(t, /\\+$/) && RLENGTH % 2) {
                # This quote belongs to the string.
                if (!json_escapes_ok(substr(t, 1, length(t) - 1))) return 0
                continue
            }
            if (!json_escapes_ok(t)) return 0
        }
        inside = 0
        JS_AT[++k] = start
        JS_LEN[k] = at - 1 - start
        # The text after the string is the next piece; there is none when the quote was the last byte.
        JS_OUT[k] = ""
    }
    return 0
}

function json_escapes_ok(t,   i, size, c, n) {
    size = length(t)
    for (i = 1; i <= size; i += n) {
        c = substr(t, i, JSON_CHUNK)
        n = length(c)
        if (i + n <= size && match(c, /\\[^\\]?[^\\]?[^\\]?[^\\]?[^\\]?$/)) {
            # An escape is not cut by a chunk's end; of a row of backslashes an even number stays.
            n = RSTART - 1
            if (match(substr(c, 1, n), /\\+$/) && RLENGTH % 2) n--
            if (n == 0) n = length(c)
            c = substr(c, 1, n)
        }
        gsub(/\\(["\\\/bfnrt]|u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F])/, "", c)
        if (index(c, "\\")) return 0
    }
    return 1
}

# Whether the strings that json_scan found, and what is between them, make one value. Strings become S, numbers and
# words N; then the innermost containers become V until one token is left.
function json_shape_ok(   p, n, i, t, k, before, passes) {
    n = 0
    t = JS_OUT[0]
    k = 0
    for (i = 0; i <= JS_N; i++) {
        if (JS_OUT[i] ~ /[^][{}:, ]/) {
            if (JS_OUT[i] ~ /[^][{}:, \t\r\n0-9eEtrufalsn.+-]/) return 0
            # Between two strings there are no two tokens that could run together.
            t = JS_OUT[i]
            gsub(/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?/, "N", t)
            gsub(/true|false|null/, "N", t)
            gsub(/[ \t\r\n]+/, "", t)
        } else {
            t = JS_OUT[i]
            if (index(t, " ")) gsub(/ /, "", t)
        }
        p[++k] = i < JS_N ? t "S" : t
    }
    t = join_pieces(p, 1, k)
    passes = 0
    while (t !~ /^[SNV]$/) {
        before = length(t)
        gsub(/\{(S:[SNV](,S:[SNV])*)?\}/, "V", t)
        gsub(/\[([SNV](,[SNV])*)?\]/, "V", t)
        if (length(t) == before) return 0
        if (++passes == 64 && json_depth() > JSON_MAX_DEPTH) return 0
    }
    return 1
}

# How deep the value of the last json_scan is nested.
function json_depth(   i, j, t, c, depth, deepest) {
    depth = deepest = 0
    for (i = 0; i <= JS_N; i++)
        for (j = 1; j <= length(JS_OUT[i]); j += 256) {
            t = substr(JS_OUT[i], j, 256)
            while (match(t, /[][{}]/)) {
                c = substr(t, RSTART, 1)
                t = substr(t, RSTART + 1)
                if (c == "{" || c == "[") { if (++depth > deepest) deepest = depth } else depth--
            }
        }
    return deepest
}

# One whole value; what is not checked here is UTF-8.
function json_whole(s) { return json_scan(s) && json_shape_ok() }

function json_valid(s) {
    if (JSON_NUL != "" && index(s, JSON_NUL)) return 0
    if (s ~ /[\200-\377]/ && !json_utf8_valid(s)) return 0
    return json_whole(s)
}

function json_utf8_valid(s,   i, n, c, size) {
    size = length(s)
    for (i = 1; i <= size; i += n) {
        c = json_whole_chars(substr(s, i, JSON_CHUNK), i + JSON_CHUNK > size)
        n = length(c)
        if (!json_utf8_ok(c)) return 0
    }
    return 1
}

function json_members(s, keys, raws,   n, i, j, k, t, c, at, base, size, depth, from, name) {
    if (s !~ /^[ \t\r\n]*\{/ || !json_whole(s)) return -1
    n = depth = 0
    base = 1
    for (k = 0; k <= JS_N; k++) {
        size = length(JS_OUT[k])
        for (j = 1; j <= size; j += 256) {
            t = size <= 256 ? JS_OUT[k] : substr(JS_OUT[k], j, 256)
            at = base + j - 2
            while (depth > 1 ? match(t, /[][{}]/) : match(t, /[][{}:,]/)) {
                c = substr(t, RSTART, 1)
                at += RSTART
                t = substr(t, RSTART + 1)
                if (c == "{" || c == "[") depth++
                else if (c == ":") {
                    from = at + 1
                    name = substr(s, JS_AT[k], JS_LEN[k])
                } else {
                    if (c != ",") depth--
                    if (from && depth == (c == ",")) {
                        keys[++n] = name ~ /[\\\200-\377]/ ? json_unescape(name) : name
                        raws[n] = trim_blanks(substr(s, from, at - from))
                        from = 0
                    }
                }
            }
        }
        if (k < JS_N) base = JS_AT[k + 1] + JS_LEN[k + 1] + 1
    }
    return n
}

function json_member(s, key,   keys, raws, n) {
    for (n = json_members(s, keys, raws); n > 0; n--) if (keys[n] == key) return raws[n]
    return ""
}

function json_elements(s, raws,   n, j, k, t, c, at, base, size, depth, from) {
    if (s !~ /^[ \t\r\n]*\[/ || !json_whole(s)) return -1
    n = depth = 0
    base = 1
    for (k = 0; k <= JS_N; k++) {
        size = length(JS_OUT[k])
        for (j = 1; j <= size; j += 256) {
            t = size <= 256 ? JS_OUT[k] : substr(JS_OUT[k], j, 256)
            at = base + j - 2
            while (depth > 1 ? match(t, /[][{}]/) : match(t, /[][{},]/)) {
                c = substr(t, RSTART, 1)
                at += RSTART
                t = substr(t, RSTART + 1)
                if (c == "{" || c == "[") {
                    if (++depth == 1) from = at + 1
                } else {
                    if (c != ",") depth--
                    if (depth == (c == ",")) {
                        raws[++n] = trim_blanks(substr(s, from, at - from))
                        from = at + 1
                    }
                }
            }
        }
        if (k < JS_N) base = JS_AT[k + 1] + JS_LEN[k + 1] + 1
    }
    return n == 1 && raws[1] == "" ? 0 : n
}

function json_number(raw) { return raw ~ /^[0-9]+$/ ? raw : "" }

# ---- Arguments of a tool call

function json_tool_input(s,   bare, p, k, i, n, c) {
    JSON_BAD = ""
    if (s ~ /[\200-\377]/ || (JSON_NUL != "" && index(s, JSON_NUL))) s = json_clean(s)
    bare = trim_blanks(s)
    if (bare == "" || bare == "null") return "{}"
    if (!json_whole(s)) {
        JSON_BAD = "the arguments are not valid JSON"
        return ""
    }
    if (substr(bare, 1, 1) != "{") {
        JSON_BAD = "the arguments are not a JSON object"
        return ""
    }
    if (s ~ /[\r\n]/) {
        # Only between tokens: a raw line break in a string is not valid.
        k = 0
        n = length(s)
        for (i = 1; i <= n; i += JSON_CHUNK) {
            c = substr(s, i, JSON_CHUNK)
            if (c ~ /\r$/ && substr(s, i + JSON_CHUNK, 1) == "\n") c = substr(c, 1, length(c) - 1)
            gsub(/\r\n|\r|\n/, " ", c)
            p[++k] = c
        }
        s = join_pieces(p, 1, k)
    }
    return s ~ /\\u([dD][89a-fA-F]|0000)/ ? json_mend_escapes(s) : s
}

# Escapes of NUL and of lone surrogates -> U+FFFD; all others stay as they are written.
function json_mend_escapes(s,   q, p, n, i, k, code, low) {
    n = split_slashes(s, q)
    p[k = 1] = q[1]
    for (i = 2; i <= n; i++) {
        if (q[i] == "") {
            p[++k] = "\\\\" q[++i]
            continue
        }
        code = json_hex4(q[i])
        if (code >= 55296 && code < 56320 && length(q[i]) == 5 && i < n \
            && (low = json_hex4(q[i + 1])) >= 56320 && low < 57344) {
            p[++k] = "\\" q[i] "\\" q[i + 1]
            i++
        } else if (code == 0 || (code >= 55296 && code < 57344)) p[++k] = JSON_FFFD substr(q[i], 6)
        else p[++k] = "\\" q[i]
    }
    return join_pieces(p, 1, k)
}
