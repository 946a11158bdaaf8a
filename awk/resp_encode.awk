# resp_encode.awk - lines -> frames; the twin of `core resp encode`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f resp_encode.awk
# Input    one message a line: fields separated by TAB; in a field \\ \t \n \r stand for backslash, TAB, LF, CR.
# Output   one RESP frame a line; each is one write when it is short. A line of more than 64 fields ends it: exit 1.

{
    n = split($0, field, "\t")
    if (n == 0) { n = 1; field[1] = "" }
    if (n > 64) {
        complain("resp_encode: line " NR " has " n " fields, 64 is the limit")
        failed = 1
        next
    }
    for (i = 1; i <= n; i++) field[i] = line_unescape(field[i])
    emit(field, n)
    fflush()
}
END { exit failed }
