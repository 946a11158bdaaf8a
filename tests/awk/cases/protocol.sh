# protocol.awk: frames and the framing of SSE.
frames() {
    printf 'TEXT\ta\\nb\\\\n\\r\\tx\nSTOP\t\nX\n\n\tb\t\t\n' | prog resp_encode.awk >frames
    cat frames
    prog resp_decode.awk -v out=lines frames
    prog resp_decode.awk -v out=json frames
    prog resp_decode.awk frames | cmp - frames
}
check frames frames

broken() {
    printf 'X\ta\n' | prog resp_encode.awk >good
    { printf 'noise\n*99\r\n*0\r\n'; cat good; printf '*2\r\n$4\r\nTEXT\r\n$9\r\nabc\n'; cat good; cat good; printf '*1\r\n$x\r\n'; cat good; printf '*1\r\n$3\r\nab'; } |
        prog resp_decode.awk -v out=lines
}
check broken broken

too_many_fields() { with_lib 'BEGIN { for (i = 0; i < 65; i++) printf "\t"; print "" }' | prog resp_encode.awk; }
check too_many_fields too_many_fields

sse() {
    with_lib '{ n = sse_lines($0, L); for (i = 1; i <= n; i++) if (sse_line(L[i])) print "<" SSE_EVENT "|" SSE_DATA ">" }
    END { if (sse_pending()) print "end <" SSE_EVENT "|" SSE_DATA ">"; print SSE_EVENTS + 0 }'
}
framing() {
    printf '\357\273\277data: bom\n\n' | sse
    printf 'data: lf\n\ndata: next\n\n' | sse
    printf 'data: crlf\r\n\r\nevent: e\r\ndata:no blank\r\ndata:  two\r\n\r\n' | sse
    printf 'data: cr\r\rdata: next\r\r' | sse
    printf ': comment\n\nid: 7\n\nevent: none\n\ndata: after\n\n' | sse
    printf 'data\n\n' | sse
    printf 'data: no blank line\n' | sse
    printf 'data: mixed\r\n\ndata: x\r\rdata: y\n\n' | sse
    printf 'data: nothing after' | sse
    printf '' | sse
}
check framing framing
