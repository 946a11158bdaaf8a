# body_openai.awk - the body of a request to an OpenAI Chat Completions API; the twin of `core body` with provider openai.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f window.awk -v model=... -v system_file=FILE -v tools_file=FILE
#          -f body_openai.awk conversation.jsonl
# Input    conversation.jsonl (mended by window.awk; the file stays as it is).
# Output   the body: one line without LF. Keys: model, max_completion_tokens (max_tokens elsewhere than at OpenAI), stream,
#          stream_options, reasoning_effort, tools, the members of extra_file, messages.
# -v model=ID, max_tokens=16384, effort=high, thinking=adaptive|enabled|disabled, base_url=URL
# -v thinking_kind=KIND   what models.json says of the model: models.awk prints it
# -v reasoning=0   reasoning does not go back with the calls it led to (default 1)
# -v omit='stream_options effort other_limit other_reasoning'   what the server does not take: the first two are left
#          out, other_limit turns the name of the limit over, other_reasoning turns `reasoning` over
# -v system_file, tools_file, instruction_file, extra_file, notes_file: see body_anthropic.awk
# -v thinking_from, drop_unsigned, drop_signed, images_dir, vision, images_file: see window.awk

BEGIN {
    if (max_tokens == "") max_tokens = 16384
    if (reasoning == "") reasoning = 1
    if (omits("other_reasoning")) reasoning = !reasoning
    body_begin(extra_file)
    body_text("model", model)
    body_raw(convert_is_openai(base_url) != omits("other_limit") ? "max_completion_tokens" : "max_tokens", max_tokens)
    body_raw("stream", "true")
    if (!omits("stream_options")) body_raw("stream_options", "{\"include_usage\":true}")
    text = omits("effort") ? "" : convert_effort()
    if (text != "") body_text("reasoning_effort", text)
    text = convert_tools(file_text(tools_file), "{\"type\":\"function\",\"function\":{\"name\":", "}}")
    if (text != "") body_raw("tools", text)
    body_extra()
    printf "\"messages\":["
    text = file_text(system_file)
    if (text != "") convert_item("{\"role\":\"system\",\"content\":" json_quote(text) "}")
}
{
    window_line($0)
    for (i = 1; i <= WINDOW_N; i++) message(WINDOW_OUT[i])
}
END {
    window_end()
    for (i = 1; i <= WINDOW_N; i++) message(WINDOW_OUT[i])
    text = file_text(instruction_file)
    if (text != "") convert_item("{\"role\":\"user\",\"content\":" json_quote(text) "}")
    printf "]}"
    image_report()
    if (notes_file != "") printf "%s", window_notes() > notes_file
}

function message(line) {
    if (image_item(line, "text", "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:", ";base64,", "\"}}")) return
    convert(line)
    if (CONVERT_KIND == "verbatim") convert_item(line)
    else if (CONVERT_KIND == "user") convert_user("{\"role\":\"tool\",\"tool_call_id\":", ",\"content\":")
    else if (CONVERT_KIND == "assistant") assistant()
}

# An assistant message: its text, and its calls with the reasoning that led to them. Reasoning alone is nothing that
# could be sent.
function assistant(   i, text, thoughts, calls) {
    for (i = 1; i <= CONVERT_BLOCKS; i++) {
        if (CONVERT_TYPE[i] == "text") text = convert_join(text, CONVERT_BODY[i])
        else if (CONVERT_TYPE[i] == "thinking") thoughts = convert_join(thoughts, CONVERT_BODY[i])
        else calls = calls (calls == "" ? "" : ",") "{\"id\":" CONVERT_ID[i] ",\"type\":\"function\",\"function\":{\"name\":" \
            CONVERT_NAME[i] ",\"arguments\":" json_quote(json_clean(CONVERT_BODY[i])) "}}"
    }
    if (text == "" && calls == "") return
    convert_item("{\"role\":\"assistant\",\"content\":" (text == "" ? "null" : "\"" text "\"") \
        (calls != "" && reasoning && thoughts != "" ? ",\"reasoning_content\":\"" thoughts "\"" : "") \
        (calls == "" ? "" : ",\"tool_calls\":[" calls "]") "}")
}
