# resp_decode.awk - frames -> lines; the twin of `core resp decode`.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -v out=lines -f resp_decode.awk   (mawk: -W interactive on a FIFO)
# Input    RESP frames.
# Output   one line a frame (-v out=lines: fields separated by TAB and escaped; out=json: see protocol.awk; without -v
#          out the frames themselves, checked). Broken frames: a message on stderr, exit 1 at the end.
# NUL      as json.awk says.

{
    resp_push($0)
    while (took = resp_take()) {
        if (took > 0) emit(RESP_F, RESP_N)
        else broken(RESP_WHY)
    }
    fflush()
}
END {
    if (resp_open()) broken("the input ends inside a frame")
    exit failed
}

function broken(why) {
    failed = 1
    complain("resp_decode: malformed frame: " why)
}
