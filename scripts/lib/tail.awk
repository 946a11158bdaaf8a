# tail.awk - the last lines of an NDJSON file -> what is wrong with its end.
#
# Output   `STATE BYTES CALLS`: ok, no_lf (the last line is whole but has no LF) or torn; the bytes from the last line that
#          holds something to the end of the file; how many calls of it have no result. Then the line that answers these
#          calls (or an empty one), then the content of the line when it is a user's text (body of a JSON string).
# -v ends_lf=1   the file ends in a line feed
{
    if ($0 ~ /[^ \t\r]/) { last = $0; from = bytes }
    bytes += length($0) + 1
}
END {
    if (!ends_lf) bytes--
    state = "ok"
    text = last
    while (i = index(text, "\"input\":}")) text = substr(text, 1, i + 7) "{}" substr(text, i + 8)
    if (last != "" && !(json_valid(text) && text ~ /^[ \t]*\{/)) state = "torn"
    else if (last != "" && !ends_lf) state = "no_lf"
    calls = 0
    line = ""
    user = ""
    if (state != "torn" && last != "") {
        role = json_string(json_member(text, "role"))
        content = json_member(text, "content")
        if (role == "assistant" && json_elements(content, block) > 0) results(content)
        else if (role == "user" && json_is_string(content)) user = substr(content, 2, length(content) - 2)
    }
    printf "%s %.0f %.0f\n%s\n%s\n", state, bytes - from, calls, line, user
}

function results(content,   n, i, p, block, id) {
    n = json_elements(content, block)
    for (i = 1; i <= n; i++) {
        if (json_string(json_member(block[i], "type")) != "tool_use") continue
        id = json_member(block[i], "id")
        calls++
        p[calls] = (calls > 1 ? "," : "") "{\"type\":\"tool_result\",\"tool_use_id\":" id \
            ",\"content\":\"Error: interrupted: no result was recorded; the outcome is unknown and side effects are possible\",\"is_error\":true}"
    }
    if (calls) line = "{\"role\":\"user\",\"content\":[" join_pieces(p, 1, calls) "]}"
}
