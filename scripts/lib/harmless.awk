# harmless.awk - text of a file -> text that cannot open or close a section of the prompt, clean, without its last line feeds.
#
# Output   the text; `<rules>` becomes `<\rules>`, `</rules>` becomes `<\/rules>`
# -v max=N   only the first N bytes of a text that is longer, cut between characters; how many it was is said on stderr
{ part[NR] = $0 "\n" }
END {
    text = join_pieces(part, 1, NR)
    if (max) {
        for (end = max; end > max - 3 && substr(text, end + 1, 1) ~ /[\200-\277]/; end--) continue
        text = substr(text, 1, end)
        printf "%.0f", end | "cat 1>&2"
    }
    text = json_clean(text)
    for (n = length(text); n && substr(text, n, 1) ~ /[\r\n]/; n--) continue
    text = substr(text, 1, n)
    gsub(/<\/?(agent-identity|environment|rules|using-your-tools|sub-agent-guidance|todo-guidance|plan-lifecycle-guidance|instruction-file|skill-index|selected-skills|skill|current-plan|context-snapshot|output-language)/, "<\\\\&", text)
    gsub(/<\\</, "<\\", text)
    printf "%s", text
}
