# cut_summary.awk - the model's summary -> at most so many tokens of it, without empty lines around; a line of b bytes counts
# int((b+3)/4)+1 (CONTRACT section 9). Twin of `cut_to` in src/agent/compact.rs.
#
# -v most=N   a longer text is cut at a line's end; a first line that is too long alone, at a character
{ line[NR] = $0 }
END {
    first = 1
    while (first <= NR && line[first] == "") first++
    last = first - 1
    used = 0
    for (i = first; i <= NR; i++) {
        used += int((length(line[i]) + 3) / 4) + 1
        if (used > most) break
        last = i
    }
    if (last < first && first <= NR) {
        end = (most - 1) * 4
        while (end > 0 && substr(line[first], end + 1, 1) ~ /[\200-\277]/) end--
        line[first] = substr(line[first], 1, end)
        last = first
    }
    while (last > first && line[last] == "") last--
    for (i = first; i <= last; i++) print line[i]
}
