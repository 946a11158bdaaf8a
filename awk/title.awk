# title.awk - the terminal's title from the figures of a session (CONTRACT section 14).
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -v file=stats.json -v model=ID -v busy=1 -f title.awk 2>/dev/null
# Input    none (the file).
# Output   OSC 0 with the title and OSC 9;4 with the progress mark, without a line feed; for stderr.
# -v file=FILE   stats.json; missing or broken: zeros
# -v model=ID, busy=1 (something is under way), plain=1 (the title alone, with a line feed)

BEGIN {
    while ((getline line < file) > 0) text = text line "\n"
    n = json_members(text, keys, raws)
    for (i = 1; i <= n; i++) m[keys[i]] = json_number(raws[i])
    read = m["total_cache_read_tokens"] + 0
    input = m["total_input_tokens"] + read
    rate = input ? int((read * 200 + input) / (input * 2)) "%" : "\342\200\224"
    title = (busy ? "\342\217\263 " : "") model " T:" count("current_turn_count") " R:" count("agent_request_count") " I:" \
        grouped(sprintf("%.0f", input)) "(" rate ") O:" grouped(count("total_output_tokens")) " C:" grouped(count("current_context_tokens"))
    if (plain) print title
    else printf "\033]0;%s\007\033]9;4;%d;0\007", title, busy ? 3 : 0
}

function count(key) { return m[key] == "" ? "0" : m[key] }

# Thousands parted by commas.
function grouped(digits,   out) {
    while (length(digits) > 3) {
        out = "," substr(digits, length(digits) - 2) out
        digits = substr(digits, 1, length(digits) - 3)
    }
    return digits out
}
