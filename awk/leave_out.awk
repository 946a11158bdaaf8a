# leave_out.awk - which large tool results are left out of requests when what compaction keeps does not fit (CONTRACT
# section 9); the twin of src/session/leave_out.rs. The oldest go first; the file stays as it is.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f window.awk -v results_from=N -f leave_out.awk conversation.jsonl
# Input    conversation.jsonl.
# Output   one number, the new results_from: large results in lines that begin before this byte are left out. It is the old one
#          when there is nothing more to leave out.
# -v results_from=N   the old one
# -v context=N, M=N   the tokens that the window has now, and --max-context: half of M is to be filled. Without them: half of
#                     the size that it has now.

BEGIN { results_from += 0; lines = size = 0 }
{
    start = WINDOW_OFFSET
    lines++
    saved[lines] = saving($0)
    bytes[lines] = length($0)
    end[lines] = start + length($0) + 1
    if (start < results_from) {
        bytes[lines] -= saved[lines]
        saved[lines] = 0
    }
    size += tokens(bytes[lines])
    WINDOW_OFFSET = end[lines]
}
END {
    goal = int(context > 0 ? size * M / (2 * context) : size / 2)
    from = results_from
    for (i = 1; i <= lines && size > goal; i++) {
        if (!saved[i]) continue
        size += tokens(bytes[i] - saved[i]) - tokens(bytes[i])
        from = end[i]
    }
    printf "%.0f\n", from
}

# The bytes that a line has less when its large results are left out.
function saving(line,   b, content, sum) {
    sum = 0
    if (length(line) <= WINDOW_LARGE || !index(line, "\"tool_result\"")) return 0
    if (line ~ /\\u[dD][89a-fA-F]/) line = window_surrogates(line)
    if (!window_parse(line) || WINDOW_ROLE != "user" || WINDOW_IS_TEXT) return 0
    for (b = 1; b <= WINDOW_BLOCKS; b++) {
        if (WINDOW_KIND[b] != "result") continue
        content = window_raw(line, b, "content")
        if (window_is_large(content)) sum += length(content) - 2 - length(window_left_out(length(content) - 2))
    }
    return sum
}

function tokens(size) { return int((size + 3) / 4) + 1 }
