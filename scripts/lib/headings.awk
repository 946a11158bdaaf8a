# headings.awk - `path SOH number:text` lines of grep -H --null -> the form of rg --heading, sorted as they come.
#
# -v p=PREFIX   stands in front of each path
BEGIN { FS = "\001" }
$0 == "--" { gap = 1; next }
{
    at = index($0, "\001")
    path = substr($0, 1, at - 1)
    text = substr($0, at + 1)
    if (path != last) {
        if (last != "") print ""
        print p "/" path
        last = path
    } else if (gap) print "--"
    gap = 0
    print text
}
