# body_responses.awk - the body of a request to the OpenAI Responses API; the twin of `core body` with provider responses.
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -f window.awk -v model=... -v system_file=FILE -v tools_file=FILE
#          -f body_responses.awk conversation.jsonl
# Input    conversation.jsonl (mended by window.awk; the file stays as it is).
# Output   the body: one line without LF. Keys: model, max_output_tokens, stream, store, include, instructions, tools,
#          reasoning, the members of extra_file, input.
# -v model=ID, max_tokens=16384, effort=high, thinking=adaptive|enabled|disabled, base_url=URL
# -v thinking_kind=KIND   what models.json says of the model: models.awk prints it
# -v omit='include summary effort'   what the server does not take
# -v system_file, tools_file, instruction_file, extra_file, notes_file: see body_anthropic.awk
# -v thinking_from, drop_unsigned, drop_signed, images_dir, vision, images_file: see window.awk

BEGIN {
    if (max_tokens == "") max_tokens = 16384
    body_begin(extra_file)
    body_text("model", model)
    body_raw("max_output_tokens", max_tokens)
    body_raw("stream", "true")
    # Nothing stays on the server: what reasoning needs to go on is sent back by us.
    body_raw("store", "false")
    if (!omits("include")) body_raw("include", "[\"reasoning.encrypted_content\"]")
    text = file_text(system_file)
    if (text != "") body_text("instructions", text)
    text = convert_tools(file_text(tools_file), "{\"type\":\"function\",\"name\":", ",\"strict\":false}")
    if (text != "") body_raw("tools", text)
    text = omits("effort") ? "" : convert_effort()
    if (text != "") body_raw("reasoning", "{\"effort\":\"" text "\"" (omits("summary") ? "" : ",\"summary\":\"auto\"") "}")
    body_extra()
    printf "\"input\":["
}
{
    window_line($0)
    for (i = 1; i <= WINDOW_N; i++) items(WINDOW_OUT[i])
}
END {
    window_end()
    for (i = 1; i <= WINDOW_N; i++) items(WINDOW_OUT[i])
    text = file_text(instruction_file)
    if (text != "") convert_item("{\"role\":\"user\",\"content\":" json_quote(text) "}")
    printf "]}"
    image_report()
    if (notes_file != "") printf "%s", window_notes() > notes_file
}

function items(line,   i, last) {
    if (image_item(line, "input_text", "{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":\"data:", ";base64,", "\"}")) return
    convert(line)
    if (CONVERT_KIND == "verbatim") {
        # llama.cpp does not know an assistant's message without its type.
        if (index(line, "{\"role\":\"assistant\",") == 1) line = "{\"type\":\"message\"," substr(line, 2)
        convert_item(line)
    }
    else if (CONVERT_KIND == "user") convert_user("{\"type\":\"function_call_output\",\"call_id\":", ",\"output\":")
    else if (CONVERT_KIND == "assistant") {
        last = 0
        for (i = 1; i <= CONVERT_BLOCKS; i++) if (CONVERT_TYPE[i] != "thinking") last = i
        # Reasoning is refused without the item that it led to.
        for (i = 1; i <= last; i++) {
            if (CONVERT_TYPE[i] == "thinking") reasoning_item(i)
            else if (CONVERT_TYPE[i] == "text") convert_item("{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"" CONVERT_BODY[i] "\"}")
            else convert_item("{\"type\":\"function_call\",\"call_id\":" CONVERT_ID[i] ",\"name\":" CONVERT_NAME[i] \
                ",\"arguments\":" json_quote(json_clean(CONVERT_BODY[i])) "}")
        }
    }
}

# Its id is only of use with the encrypted content, as the server stores nothing.
function reasoning_item(i) {
    if (CONVERT_SIGNATURE[i] == "" || CONVERT_ID[i] == "") return
    convert_item("{\"type\":\"reasoning\",\"id\":\"" CONVERT_ID[i] "\",\"summary\":[" \
        (CONVERT_BODY[i] == "" ? "" : "{\"type\":\"summary_text\",\"text\":\"" CONVERT_BODY[i] "\"}") \
        "],\"encrypted_content\":\"" CONVERT_SIGNATURE[i] "\"}")
}
