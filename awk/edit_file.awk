# edit_file.awk - replaces one exact place of a file, or says why there is none; the twin of `core edit PATH`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -v path=NAME -v file=FILE -f edit_file.awk > NEW < frame
# Input    one RESP frame of two fields: the old text and the new text.
# Output   the whole new content. The caller puts it in the place of the file, keeping mode, owner and links.
# -v file=FILE    the file that is read;  -v path=NAME   how it is called in messages (default: FILE)
# -v reply=FILE   what the tool says: on success `Success: Edit(NAME) [+A -D lines]`, LF, a unified diff; else the reason,
#                 without `Error: `. Default: only a reason, on stderr.
# Exit     0 done; 1 nothing was done (and nothing written to standard output).
# The old text must occur once. A file with CR LF takes LF in the old text for CR LF, and the new text gets CR LF too.
# NUL      mawk and gawk keep NUL bytes; another awk refuses a file that holds any.

BEGIN { if (path == "") path = file }
{
    resp_push($0)
    if (resp_take() > 0) {
        have = 1
        exit
    }
}
END {
    if (!have) fail("no old_string and new_string were given")
    old = RESP_F[1]
    new = RESP_F[2]
    if (RESP_N < 2) fail("no new_string provided")
    if (old == "") fail("old_string is empty; to create or replace a whole file use Write")
    if (old == new) fail("old_string and new_string are the same")
    read_file()
    find()
    printf "%s", substr(content, 1, at - 1)
    printf "%s", new
    printf "%s", substr(content, at + length(old))
    if (reply != "") {
        text = diff()
        printf "Success: Edit(%s) [+%.0f -%.0f lines]\n%s", path, added, removed, text > reply
    }
}

function fail(why) {
    if (reply != "") printf "%s", why > reply
    else complain(why)
    exit 1
}

# The content as one string, and its lines: line_at[i] is where line i begins.
function read_file(   line, p, got, sum, quoted, count) {
    lines = sum = 0
    while ((got = (getline line < file)) > 0) {
        p[++lines] = line "\n"
        line_at[lines] = sum + 1
        sum += length(line) + 1
    }
    if (got < 0) fail("file not found: " path)
    close(file)
    # awk does not tell whether the last line has an end, nor whether it took a NUL for the end of a line.
    quoted = file
    gsub(/'/, "'\\''", quoted)
    quoted = "wc -lc < '" quoted "'"
    quoted | getline line
    close(quoted)
    split(line, count, " ")
    if (sum == count[2] + 1 && lines == count[1] + 1) p[lines] = substr(p[lines], 1, length(p[lines]) - 1)
    else if (sum != count[2] + 0 || lines != count[1] + 0) fail(path " holds NUL bytes, which this awk cannot keep: use mawk, gawk or the bash-agent binary")
    content = join_pieces(p, 1, lines)
}

# ---- Finding: sets at, and old and new as they are in the file.

function find(   n, crlf_old) {
    n = occurrences(old)
    if (n == 1) {
        # A text without line ends takes the file's; one that has them has just been matched with them.
        if (!index(old, "\n") && line_is_crlf(at + length(old))) new = with_crlf(new)
        return
    }
    if (n == 0 && index(old, "\n") && index(content, "\r\n")) {
        crlf_old = with_crlf(old)
        n = occurrences(crlf_old)
        if (n == 1) {
            old = crlf_old
            new = with_crlf(new)
            return
        }
    }
    if (n == 0) fail("old_string not found in " path near_miss())
    several(n)
}

# How often the text occurs, overlapping places included: `aa` in `aaa` is no certain place. The first ones are in
# place[], the first of all in at. In windows, because what follows a place is copied at every step.
function occurrences(needle,   n, from, window, w, size, found, limit) {
    n = 0
    window = 65536
    size = length(content)
    if (!index(content, needle)) return 0
    for (from = 1; from <= size; from += window) {
        w = substr(content, from, window + length(needle) - 1)
        limit = from
        while (found = index(w, needle)) {
            n++
            if (n <= 20) place[n] = limit + found - 1
            limit += found
            w = substr(w, found + 1)
        }
    }
    at = place[1]
    return n
}

function several(n,   i, text) {
    for (i = 1; i <= n && i <= 20; i++) text = text (i > 1 ? ", " : "") line_number(place[i])
    if (n > 20) text = text ", \342\200\246"
    fail("old_string occurs " n " times in " path ", at lines " text "; give more of the lines around the one that is meant")
}

# The number of the line that holds the byte at `offset`.
function line_number(offset,   low, high, middle) {
    if (!lines) return 1
    low = 1
    high = lines
    while (low < high) {
        middle = int((low + high + 1) / 2)
        if (line_at[middle] <= offset) low = middle
        else high = middle - 1
    }
    # Behind the last line feed there is one more line, an empty one.
    if (low == lines && offset > length(content) && substr(content, length(content), 1) == "\n") low++
    return low
}

# Whether the line that holds the byte at `offset` ends in CR LF; a last line without end goes by the one before.
function line_is_crlf(offset,   n) {
    n = line_number(offset)
    if (n >= lines && (n > lines || substr(content, length(content), 1) != "\n")) n--
    if (n < 1) return 0
    return substr(content, (n < lines ? line_at[n + 1] : length(content) + 1) - 2, 2) == "\r\n"
}

function with_crlf(text) {
    gsub(/\r\n/, "\n", text)
    gsub(/\n/, "\r\n", text)
    return text
}

# ---- Why the old text is not there although it nearly is.

function near_miss(   start, common, from, where, ours, theirs, file_line, old_line, head) {
    start = folded_place()
    if (!start) start = longest_beginning()
    if (!start) return "; nothing like it is there: read the file again"
    common = common_bytes(start)
    while (common > 0 && substr(old, common + 1, 1) ~ /[\200-\277]/) common--
    where = start + common
    theirs = first_char(substr(content, where, 4))
    ours = first_char(substr(old, common + 1, 4))
    file_line = line_text(where)
    head = substr(old, 1, common)
    old_line = substr(old, last_lf(head) + 1)
    if (index(old_line, "\n")) {
        old_line = substr(old_line, 1, index(old_line, "\n") - 1)
        sub(/\r$/, "", old_line)
    }
    from = line_begin(where)
    return ". The nearest place is line " line_number(start) "; the first difference is at line " line_number(where) \
        ", column " (characters(json_clean(substr(content, from, where - from))) + 1) ": the file has " name(theirs) \
        ", old_string has " name(ours) "\nfile:       " visible(json_clean(file_line)) "\nold_string: " visible(old_line)
}

function line_begin(offset,   n) {
    n = line_number(offset)
    return n > lines ? length(content) + 1 : lines ? line_at[n] : 1
}

function line_text(offset,   n, from) {
    n = line_number(offset)
    if (n > lines) return ""
    from = line_at[n]
    return substr(content, from, (n < lines ? line_at[n + 1] - 1 : length(content) + (substr(content, length(content), 1) != "\n")) - from)
}

function last_lf(text,   n, p) {
    n = split(text, p, /\n/)
    return n > 1 ? length(text) - length(p[n]) : 0
}

function characters(text) {
    gsub(/[\200-\277]+/, "", text)
    return length(text)
}

# White space and invisible characters do not count, quotes and dashes are plain.
function folded(text) {
    gsub(/[\t-\r ]+|\302[\205\240\255]|\341\232\200|\342\200[\200-\217\250-\257]|\342\201[\237-\244\246-\251]|\343\200\200|\357\273\277/, "", text)
    if (text ~ /\342[\200\210]/) {
        gsub(/\342\200[\230\231\232\262]/, "'", text)
        gsub(/\342\200[\234\235\236\263]/, "\"", text)
        gsub(/\342\200[\220-\224]|\342\210\222/, "-", text)
    }
    return text
}

# Where the old text would be found if those did not count: the lines are folded one by one until the place is reached.
function folded_place(   needle, p, i, found, sum, line, from, n, c, start, lead) {
    if (length(content) > 4194304) return 0
    needle = folded(old)
    if (needle == "") return 0
    for (i = 1; i <= lines; i++) p[i] = folded(line_of(i))
    found = index(join_pieces(p, 1, lines), needle)
    if (!found) return 0
    sum = 0
    for (i = 1; sum + length(p[i]) < found; i++) sum += length(p[i])
    # In that line, character by character.
    line = line_of(i)
    from = line_at[i]
    for (start = 1; start <= length(line); start += n) {
        n = character_size(substr(line, start, 4))
        c = folded(substr(line, start, n))
        if (sum + length(c) >= found && c != "") break
        sum += length(c)
    }
    start += from - 1
    lead = substr(old, 1, 4)
    if (lead ~ /^([\t-\r ]|\302[\205\240]|\341\232\200|\342\200[\200-\212\250\251\257]|\342\201\237|\343\200\200)/ \
        && folded_blank(substr(content, from, start - from))) start = from
    return start
}

function folded_blank(text) {
    gsub(/[\t-\r ]|\302[\205\240]|\341\232\200|\342\200[\200-\212\250\251\257]|\342\201\237|\343\200\200/, "", text)
    return text == ""
}

function line_of(i) { return substr(content, line_at[i], (i < lines ? line_at[i + 1] : length(content) + 1) - line_at[i]) }

function character_size(text) {
    if (text ~ /^[\302-\337][\200-\277]/) return 2
    if (text ~ /^[\340-\357][\200-\277][\200-\277]/) return 3
    if (text ~ /^[\360-\364][\200-\277][\200-\277][\200-\277]/) return 4
    return 1
}

# Where the longest beginning of the old text occurs, when it is long enough to tell something. A beginning that is not
# found has no longer one that is.
function longest_beginning(   bare, skipped, there, gone, middle, found, spot) {
    bare = old
    while (match(bare, /^([\t-\r ]|\302[\205\240]|\341\232\200|\342\200[\200-\212\250\251\257]|\342\201\237|\343\200\200)+/))
        bare = substr(bare, RLENGTH + 1)
    skipped = length(old) - length(bare)
    # Eight bytes say something in any text; in a short one a quarter of it will do.
    there = int(length(bare) / 4)
    there = there > 8 ? 8 : there < 3 ? 3 : there
    if (length(bare) < there) return 0
    if (!(spot = index(content, substr(bare, 1, there)))) return 0
    gone = length(bare) + 1
    while (gone - there > 1) {
        middle = there + int((gone - there) / 2)
        if (found = index(content, substr(bare, 1, middle))) {
            there = middle
            spot = found
        } else gone = middle
    }
    found = line_begin(spot)
    spot = spot > skipped ? spot - skipped : 1
    return spot > found ? spot : found
}

# How many bytes of the old text agree with the content from start on.
function common_bytes(start,   low, high, middle) {
    low = 0
    high = length(old)
    while (low < high) {
        middle = int((low + high + 1) / 2)
        if (substr(content, start, middle) == substr(old, 1, middle)) low = middle
        else high = middle - 1
    }
    return low
}

# The first character; U+FFFD for bytes that are none; "" at the end.
function first_char(text) {
    if (text == "") return ""
    text = substr(text, 1, character_size(text))
    return json_clean(text) == text ? text : JSON_FFFD
}

function code_point(c,   i, code, byte) {
    for (i = 1; i <= length(c); i++) {
        byte = index(all_bytes(), substr(c, i, 1))
        if (i > 1) code = code * 64 + byte - 128
        else code = byte < 128 ? byte : byte < 224 ? byte - 192 : byte < 240 ? byte - 224 : byte - 240
    }
    return code
}

function all_bytes(   i) {
    if (ALL_BYTES == "") for (i = 1; i < 256; i++) ALL_BYTES = ALL_BYTES JSON_CHAR[i]
    return ALL_BYTES
}

function is_hidden(c) {
    return c ~ /^([\001-\040\177]|\302[\200-\240\255]|\341\232\200|\342\200[\200-\217\250-\257]|\342\201[\237-\244\246-\251]|\343\200\200|\357\273\277)$/
}

function name(c,   code, what) {
    if (c == "") return "its end"
    code = sprintf("U+%04X", code_point(c))
    if (c == "\t") what = "tab"
    else if (c == "\n") what = "line feed"
    else if (c == "\r") what = "carriage return"
    else if (c == " ") what = "space"
    else if (c == "\302\240") what = "no-break space"
    else if (c == "\342\200\257") what = "narrow no-break space"
    else if (c == "\343\200\200") what = "ideographic space"
    else if (c == "\342\200\213") what = "zero-width space"
    else if (c == "\357\273\277") what = "byte order mark"
    else if (c == JSON_FFFD) what = "not UTF-8"
    else if (c ~ /^(\314[\200-\277]|\315[\200-\257])$/) what = "combining mark"
    else if (is_hidden(c)) what = "invisible"
    else what = c
    return code " (" what ")"
}

# At most 120 bytes on one line, with what cannot be seen made visible.
function visible(text,   out, i, n, c) {
    if (length(text) > 120) {
        n = 120
        while (substr(text, n + 1, 1) ~ /[\200-\277]/) n--
        text = substr(text, 1, n)
    }
    for (i = 1; i <= length(text); i += n) {
        n = character_size(substr(text, i, 4))
        c = substr(text, i, n)
        if (c == "\t") c = "\\t"
        else if (c == "\r") c = "\\r"
        else if (c == "\n") c = "\\n"
        else if (c != " " && is_hidden(c)) c = sprintf("\\u{%x}", code_point(c))
        out = out c
    }
    return out
}

# ---- The unified diff of the lines around the change; sets added and removed.

function diff(   first, last, start, end, a, b, na, nb, x, prefix, suffix, ops, n, i) {
    first = line_number(at) - 3
    if (first < 1) first = 1
    # The end of the old text: when it ends in a line feed, the line that follows counts from there.
    last = line_number(at + length(old)) + 3
    if (last > lines) last = lines
    start = line_at[first]
    end = last < lines ? line_at[last + 1] : length(content) + 1
    na = diff_lines(json_clean(substr(content, start, end - start)), a)
    nb = diff_lines(json_clean(substr(content, start, at - start) new substr(content, at + length(old), end - at - length(old))), b)
    for (prefix = 0; prefix < na && prefix < nb && a[prefix + 1] == b[prefix + 1]; prefix++) continue
    for (suffix = 0; suffix < na - prefix && suffix < nb - prefix && a[na - suffix] == b[nb - suffix]; suffix++) continue
    n = 0
    for (i = 1; i <= prefix; i++) { op[++n] = " "; op_text[n] = a[i] }
    n = shortest_edit(a, b, prefix, na - suffix, nb - suffix, n)
    for (i = na - suffix + 1; i <= na; i++) { op[++n] = " "; op_text[n] = a[i] }
    return "--- a/" path "\n+++ b/" path "\n" hunks(n, first)
}

# Lines with their ends: LF, CR LF, or a CR alone.
function diff_lines(text, l,   n, i, p, k, part, end) {
    if (text == "") return 0
    n = split(text, p, /\n/)
    k = 0
    for (i = 1; i <= n; i++) {
        end = i < n ? "\n" : ""
        part = p[i]
        if (part == "" && end == "") break
        while (match(part, /\r./)) {
            l[++k] = substr(part, 1, RSTART)
            part = substr(part, RSTART + 1)
        }
        l[++k] = part end
    }
    return k
}

# The greedy algorithm of Myers on a[skip+1..na] and b[skip+1..nb]; appends to op, op_text. Beyond 400 differences
# everything counts as replaced.
function shortest_edit(a, b, skip, na, nb, n,   d, k, x, y, most, px, py, steps, i, kind, text) {
    most = na + nb - 2 * skip
    if (most > 400) most = 400
    trail[0, 1] = skip
    if (na == skip && nb == skip) return n
    for (d = 0; d <= most; d++) {
        for (k = -d; k <= d; k += 2) {
            if (d == 0) x = skip
            else if (k == -d || (k != d && trail[d - 1, k - 1] < trail[d - 1, k + 1])) x = trail[d - 1, k + 1]
            else x = trail[d - 1, k - 1] + 1
            y = x - k
            while (x < na && y < nb && a[x + 1] == b[y + 1]) { x++; y++ }
            trail[d, k] = x
            if (x >= na && y >= nb) break
        }
        if (k <= d) break
    }
    if (d > most) {
        for (i = skip + 1; i <= na; i++) { op[++n] = "-"; op_text[n] = a[i] }
        for (i = skip + 1; i <= nb; i++) { op[++n] = "+"; op_text[n] = b[i] }
        return n
    }
    # Back from the end.
    steps = 0
    x = na
    y = nb
    for (; d >= 0; d--) {
        k = x - y
        if (d == 0) px = py = skip
        else {
            if (k == -d || (k != d && trail[d - 1, k - 1] < trail[d - 1, k + 1])) px = trail[d - 1, k + 1]
            else px = trail[d - 1, k - 1]
            py = px - (k == -d || (k != d && trail[d - 1, k - 1] < trail[d - 1, k + 1]) ? k + 1 : k - 1)
        }
        while (x > px && y > py) {
            kind[++steps] = " "
            text[steps] = a[x]
            x--
            y--
        }
        if (d > 0) {
            if (x > px) { kind[++steps] = "-"; text[steps] = a[x--] }
            else { kind[++steps] = "+"; text[steps] = b[y--] }
        }
    }
    for (i = steps; i > 0; i--) { op[++n] = kind[i]; op_text[n] = text[i] }
    return n
}

# Within a run of changes the removed lines come first; three unchanged lines around each hunk.
function hunks(n, first,   i, j, from, to, out, old_line, new_line, old_from, new_from, old_count, new_count, body) {
    added = removed = 0
    old_line = new_line = first
    out = ""
    i = 1
    while (i <= n) {
        if (op[i] == " ") { i++; old_line++; new_line++; continue }
        from = i - 3 < 1 ? 1 : i - 3
        # To the last change that has no more than six unchanged lines before it.
        to = i
        for (j = i; j <= n && j - to <= 7; j++) if (op[j] != " ") to = j
        old_from = old_line - (i - from)
        new_from = new_line - (i - from)
        for (j = i; j <= to; j++) {
            if (op[j] != "+") old_line++
            if (op[j] != "-") new_line++
        }
        i = to + 1
        to = to + 3 > n ? n : to + 3
        for (; i <= to; i++) { old_line++; new_line++ }
        old_count = new_count = 0
        body = ""
        for (j = from; j <= to; j++) {
            if (op[j] != "+") old_count++
            if (op[j] != "-") new_count++
            added += op[j] == "+"
            removed += op[j] == "-"
            body = body op[j] op_text[j] (op_text[j] ~ /[\r\n]$/ ? "" : "\n\\ No newline at end of file\n")
        }
        out = out "@@ -" range(old_from, old_count) " +" range(new_from, new_count) " @@\n" body
    }
    sub(/\n+$/, "", out)
    return out
}

function range(from, count) { return count == 1 ? from : (count == 0 ? from - 1 : from) "," count }
