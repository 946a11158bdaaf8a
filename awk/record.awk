# record.awk - lines of events.jsonl and conversation.jsonl from their parts (CONTRACT sections 4 and 5).
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f record.awk < parts
# Input    the members of one object after another, one a line, in their order; an empty line (or the end) ends an object:
#            KEY TAB s TAB TEXT     a string; the text is line-escaped (\\ \t \n \r)
#            KEY TAB r TAB JSON     a value as it is (a number, true, an object)
#            KEY TAB f TAB FILE     a string: all bytes of the file, cleaned; missing = empty
#            ts                     "ts": now, RFC 3339 in UTC
#            results TAB FILE       "content": an array of tool_result blocks; lines of the file: ID TAB FILE TAB 1|0,
#                                   the last one for is_error; empty output becomes (no output)
# Output   one object a line, short ones in one write.
# -v append=FILE   where the lines are appended; with -v also=1 they go to standard output too
# NUL      in files: mawk and gawk take it, elsewhere put `tr '\000' '\377'` in front. File names are line-escaped.

$0 == "" { finish(); next }
{
    n = split($0, f, "\t")
    if (f[1] == "ts") add("ts", json_quote(timestamp()))
    else if (f[1] == "results") add("content", results(line_unescape(f[2])))
    else if (f[2] == "s") add(f[1], json_quote(json_clean(line_unescape(f[3]))))
    else if (f[2] == "f") add(f[1], json_quote(json_clean(whole_file(line_unescape(f[3])))))
    else add(f[1], line_unescape(f[3]))
}
END { finish() }

function add(key, raw) {
    parts++
    part[parts] = (parts > 1 ? "," : "{") json_quote(key) ":" raw
}

function finish(   line) {
    if (!parts) return
    line = join_pieces(part, 1, parts) "}\n"
    parts = 0
    if (append != "") {
        printf "%s", line >> append
        fflush(append)
    }
    if (append == "" || also) {
        printf "%s", line
        fflush()
    }
}

function results(file,   line, p, k, f, text) {
    k = 0
    while ((getline line < file) > 0) {
        split(line, f, "\t")
        text = json_clean(whole_file(line_unescape(f[2])))
        k++
        p[k] = (k > 1 ? "," : "") "{\"type\":\"tool_result\",\"tool_use_id\":" json_quote(line_unescape(f[1])) ",\"content\":" \
            json_quote(text == "" ? "(no output)" : text) (f[3] == "1" ? ",\"is_error\":true" : "") "}"
    }
    close(file)
    return "[" join_pieces(p, 1, k) "]"
}

# All of a file. awk does not tell whether the last line has its LF: wc does.
function whole_file(file,   line, p, n, sum, size, quoted) {
    n = sum = 0
    while ((getline line < file) > 0) {
        p[++n] = line "\n"
        sum += length(line) + 1
    }
    close(file)
    if (!n) return ""
    quoted = file
    gsub(/'/, "'\\''", quoted)
    quoted = "wc -c < '" quoted "'"
    quoted | getline size
    close(quoted)
    if (sum > size + 0) p[n] = substr(p[n], 1, length(p[n]) - 1)
    return join_pieces(p, 1, n)
}
