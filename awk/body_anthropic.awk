# body_anthropic.awk - the body of a request to the Anthropic Messages API; the twin of `core body` with provider claude.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f window.awk -v model=... -v system_file=FILE -v tools_file=FILE
#          -f body_anthropic.awk conversation.jsonl
# Input    conversation.jsonl (mended by window.awk; the file stays as it is).
# Output   the body: one line without LF. Keys in the order of CONTRACT section 10.
# -v model=ID, max_tokens=16384, effort=high, thinking=adaptive|enabled|disabled
# -v thinking_kind=KIND, disable=WORD   what models.json says of the model: models.awk prints them
# -v omit='thinking display effort cache_control'   fields that the server does not take
# -v system_file=FILE, tools_file=FILE, instruction_file=FILE  the system prompt and tools.json; one more user message behind the
#          conversation. A last LF in them does not count; an empty or missing file is nothing.
# -v extra_file=FILE   a JSON object: members that replace ours or are added before messages
# -v notes_file=FILE   what was left out or made up is written there, one sentence a line; nothing: the file is empty
# -v thinking_from, drop_unsigned (1 for this API), drop_signed, images_dir, vision, images_file: see window.awk

BEGIN {
    if (max_tokens == "") max_tokens = 16384
    if (effort == "") effort = "high"
    if (thinking == "") thinking = "adaptive"
    body_begin(extra_file)
    body_text("model", model)
    body_raw("max_tokens", max_tokens)
    body_raw("stream", "true")
    text = file_text(system_file)
    if (text != "") body_text("system", text)
    text = trim_blanks(file_text(tools_file))
    if (text != "" && text != "[]") body_raw("tools", text)
    text = thinking_field()
    if (text != "" && !omits("thinking")) body_raw("thinking", text)
    if (thinking != "disabled" && thinking_kind != "budget" && thinking_kind != "none" && !omits("effort"))
        body_raw("output_config", "{\"effort\":" json_quote(effort) "}")
    if (!omits("cache_control")) body_raw("cache_control", "{\"type\":\"ephemeral\"}")
    body_extra()
    printf "\"messages\":["
}
{
    window_line($0)
    send()
}
END {
    window_end()
    send()
    text = file_text(instruction_file)
    if (text != "") convert_item("{\"role\":\"user\",\"content\":" json_quote(text) "}")
    printf "]}"
    image_report()
    if (notes_file != "") printf "%s", window_notes() > notes_file
}

function send(   i) {
    for (i = 1; i <= WINDOW_N; i++)
        if (!image_item(WINDOW_OUT[i], "text", "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"", "\",\"data\":\"", "\"}}"))
            convert_item(WINDOW_OUT[i])
}

# The `thinking` field for this model, "" where it is left out (PROVIDERS.md).
function thinking_field() {
    if (thinking == "disabled") return disable == "" ? "" : "{\"type\":" json_quote(disable) "}"
    if (thinking == "adaptive") return thinking_kind == "budget" ? budget() : adaptive()
    return thinking_kind == "adaptive" ? adaptive() : budget()
}

# The newest models show no thinking text unless asked to; others may not know the word.
function adaptive() {
    return "{\"type\":\"adaptive\"" (thinking_kind == "adaptive" && !omits("display") ? ",\"display\":\"summarized\"" : "") "}"
}

# A budget by effort: at least 1024 and below max_tokens; without room no thinking.
function budget(   eighths, amount) {
    eighths = effort == "low" ? 1 : effort == "medium" ? 2 : effort == "xhigh" ? 6 : effort == "max" ? 7 : 4
    amount = int(max_tokens / 8) * eighths
    if (amount < 1024) amount = 1024
    return amount < max_tokens + 0 ? "{\"type\":\"enabled\",\"budget_tokens\":" sprintf("%.0f", amount) "}" : ""
}
