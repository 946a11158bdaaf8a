# final.awk - the events of one turn -> the text of its last response on stdout; its exit code and error in files.
#
# -v code_file=FILE, error_file=FILE
{
    type = json_string(json_member($0, "type"))
    if (type == "text") {
        if (complete) text = ""
        complete = 0
        text = text json_string(json_member($0, "content"))
    } else if (type == "usage") complete = 1
    else if (type == "retry") text = ""
    else if (type == "error") error = json_string(json_member($0, "message"))
    else if (type == "stop") {
        reason = json_string(json_member($0, "reason"))
        exit_code = json_member($0, "exit")
    }
}
END {
    # The reasons speak for logs that are older than that word.
    code = 0
    if (exit_code ~ /^[0-9]+$/) code = exit_code + 0
    else if (reason == "interrupted") code = 130
    else if (reason == "refusal" || reason == "content_filter") code = 10
    else if (reason ~ /^max_(turns|cost|tokens_total|time)$/) code = 9
    else if (reason ~ /^(error|max_tokens|length)$/) code = 1
    print code > code_file
    printf "%s", error > error_file
    if (text != "") printf "%s%s", text, text ~ /\n$/ ? "" : "\n"
}
