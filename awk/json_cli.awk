# json_cli.awk - JSON at the command line; the twin of `core json escape` and `core json get KEY`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -v op=OP -f json_cli.awk       (NUL: `tr '\000' '\377'` in front)
# Input    the text, or the JSON value: all of standard input, or of the files named.
# Output   op=escape   the text as the body of a JSON string, without quotes or LF
#          op=quote    the same with quotes
#          op=clean    the text, clean
#          op=unescape the input is the body of a string: its text
#          op=get      -v key=KEY: the member's value; a string is decoded, -v raw=1: not. Exit 1: no such member
#          op=keys     the top-level keys, one a line, line-escaped
#          op=members  lines `KEY TAB VALUE`, line-escaped; strings decoded
#          op=elements the elements of an array, raw, one a line (line breaks between tokens become blanks)
#          op=valid    nothing. Exit 1: not one whole valid JSON value
#          op=tool_input   arguments of a call as they are stored; exit 1: they are no JSON object (stderr says why)
# -v lf=1     a value is followed by LF
# -v mark=1   the last byte of the input is a mark that the caller has added (awk cannot see whether a last line has its LF);
#             without it a last LF does not count

{ piece[NR] = NR > 1 ? "\n" $0 : $0 }
END {
    text = join_pieces(piece, 1, NR)
    if (mark) text = substr(text, 1, length(text) - 1)
    end = lf ? "\n" : ""
    if (op == "escape") printf "%s%s", json_escape(json_clean(text)), end
    else if (op == "quote") printf "%s%s", json_quote(json_clean(text)), end
    else if (op == "clean") printf "%s%s", json_clean(text), end
    else if (op == "unescape") printf "%s%s", json_unescape(text), end
    else if (op == "get") {
        value = json_member(text, key)
        if (value == "") exit 1
        printf "%s%s", json_is_string(value) && !raw ? json_string(value) : value, end
    } else if (op == "keys" || op == "members") {
        n = json_members(text, keys, raws)
        if (n < 0) exit 1
        for (i = 1; i <= n; i++)
            print line_escape(keys[i]) (op == "keys" ? "" : "\t" line_escape(json_is_string(raws[i]) ? json_string(raws[i]) : raws[i]))
    } else if (op == "elements") {
        n = json_elements(text, raws)
        if (n < 0) exit 1
        for (i = 1; i <= n; i++) {
            gsub(/[\r\n]+/, " ", raws[i])
            print raws[i]
        }
    } else if (op == "valid") exit !json_valid(text)
    else if (op == "tool_input") {
        value = json_tool_input(text)
        if (JSON_BAD != "") {
            complain(JSON_BAD)
            exit 1
        }
        printf "%s%s", value, end
    } else {
        complain("json_cli: unknown op `" op "`")
        exit 2
    }
}
