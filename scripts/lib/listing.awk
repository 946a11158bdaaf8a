# listing.awk - `name TAB time TAB preview` lines (preview line-escaped) -> the table of --list-sessions (CONTRACT §13).
# -v json=1, project=DIR   one object a line instead; the time is then in seconds since 1970
BEGIN { FS = "\t"; BLANKS = sprintf("%40s", ""); if (!json) row("NAME", "MODIFIED", "PREVIEW") }
json { object(json_clean($1), $2, preview(json_clean(line_unescape($3)))); next }
{ row(json_clean($1), $2, preview(json_clean(line_unescape($3)))) }

function row(name, time, text) {
    printf "%s%s %-16s %s\n", name, substr(BLANKS, 1, padding(name)), time, text
}
function object(name, seconds, text) {
    printf "{\"session_id\":%s,\"modified\":\"%s\",\"preview\":%s,\"path\":%s}\n", json_quote(name), utc(seconds), json_quote(text), \
        json_quote(json_clean(project) "/" name)
}
function padding(name,   n) {
    n = 40 - characters(name)
    return n > 0 ? n : 0
}
function characters(s) {
    gsub(/[\200-\277]/, "", s)
    return length(s)
}
function preview(text,   end, i, n) {
    gsub(/[\001-\037\177]|\302[\200-\237]/, " ", text)
    sub(/[ \t]+$/, "", text)
    if (characters(text) <= 60) return text
    n = 0
    for (i = 1; i <= length(text); i++)
        if (substr(text, i, 1) !~ /[\200-\277]/ && ++n == 58) break
    return substr(text, 1, i - 1) "..."
}
