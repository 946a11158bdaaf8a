# glob.awk - paths on stdin -> those that fit a glob, by the rules of .gitignore patterns (as rg -g has them).
#
# -v glob=PATTERN ("" = all);  -v hidden=1   parts that begin with a dot count too (.git never)
BEGIN {
    count = 0
    if (glob != "") expand(glob)
    for (i = 1; i <= count; i++) regex[i] = translate(one[i])
}
/(^|\/)\.git\// { next }
!hidden && /(^|\/)\./ { next }
{
    fits = count == 0
    for (i = 1; i <= count && !fits; i++) if ($0 ~ regex[i]) fits = 1
    if (fits) print
}

# {a,b} becomes a pattern each.
function expand(text,   open, close_at, depth, i, c, list, from, n, part, head, rest) {
    open = index(text, "{")
    if (!open) { one[++count] = text; return }
    depth = 0
    n = 0
    from = open + 1
    for (i = open; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "{") depth++
        else if (c == "}" && --depth == 0) { close_at = i; break }
        else if (c == "," && depth == 1) { list = list substr(text, from, i - from) "\n"; n++; from = i + 1 }
    }
    if (!close_at) { one[++count] = text; return }
    list = list substr(text, from, close_at - from)
    head = substr(text, 1, open - 1)
    rest = substr(text, close_at + 1)
    n = split(list, part, "\n")
    expand_all(head, list, rest)
}
function expand_all(head, list, rest,   part, n, i) {
    n = split(list, part, "\n")
    for (i = 1; i <= n; i++) expand(head part[i] rest)
}

function translate(text,   out, i, c, anchored, end) {
    anchored = index(substr(text, 1, length(text) - 1), "/") > 0
    sub(/^\//, "", text)
    out = ""
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (substr(text, i, 3) == "**/") { out = out "(.*/)?"; i += 2 }
        else if (substr(text, i, 2) == "**") { out = out ".*"; i++ }
        else if (c == "*") out = out "[^/]*"
        else if (c == "?") out = out "[^/]"
        else if (c == "[") {
            end = index(substr(text, i + 2), "]")
            if (!end) { out = out "\\["; continue }
            c = substr(text, i + 1, end)
            if (substr(c, 1, 1) == "!") c = "^" substr(c, 2)
            out = out "[" c "]"
            i += end + 1
        } else if (c == "\\" && i < length(text)) { i++; out = out plain(substr(text, i, 1)) }
        else out = out plain(c)
    }
    return (anchored ? "^" : "(^|/)") out "$"
}
function plain(c) { return c ~ /[].*+?(){}|^$\\[]/ ? "\\" c : c }
