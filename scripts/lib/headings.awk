# headings.awk - what `rg -H --null` and `grep -H --null` print -> the form of `rg --heading`, in the order it comes.
#
# Input    lines `path SOH number:text` (`-` in place of `:` for context), `--` between pieces.
# -v p=PREFIX   stands in front of each path
# -v bare=1     one file that was named: no headings
# -v max=N      no more bytes than this and one of each file
{ at = index($0, "\001") }
!at {
    if ($0 == "--") gap = 1
    else if ($0 ~ /: binary file matches \(found "\\0" byte around offset [0-9]+\)$/) notice($0)
    next
}
{
    path = substr($0, 1, at - 1)
    line = substr($0, at + 1)
    if (path != last) {
        close_file()
        if (last != "") put("\n")
        last = path
        full = cut = size = 0
        if (!bare) put(p "/" path "\n")
    } else if (gap) put("--\n")
    gap = 0
    match(line, /^[0-9]+[-:]/)
    put(substr(line, 1, RLENGTH))
    put(substr(line, RLENGTH + 1) "\n")
}
END { close_file() }

# Takes a piece of a file's output; with the first one that comes when it is full, the rest is told.
function put(text) {
    if (cut) return
    if (size > max) { cut = 1; return }
    if (size + length(text) > max + 1) text = substr(text, 1, max + 1 - size)
    size += length(text)
    printf "%s", text
}
function close_file() {
    if (cut) printf "\n[... more matches in this file ...]\n"
    cut = size = 0
}

# A NUL: a file that was named is looked through to its end, one that was found counts up to there.
function notice(text,   where) {
    where = text
    sub(/^.*: binary file matches/, "", where)
    if (bare) put("binary file matches" where "\n")
    else if (last != "" && index(text, last ": ") == 1) put(p "/" last ": WARNING: stopped searching binary file after match" where "\n")
}
