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
    else if (type == "stop") reason = json_string(json_member($0, "reason"))
}
END {
    code = 0
    if (reason == "interrupted") code = 130
    else if (reason == "refusal" || reason == "content_filter") code = 10
    else if (reason ~ /^max_(turns|cost|tokens_total|time)$/) code = 9
    else if (reason == "error") code = of_error()
    else if (error ~ /^Response truncated/) code = 1
    print code > code_file
    printf "%s", error > error_file
    if (text != "") printf "%s%s", text, text ~ /\n$/ ? "" : "\n"
}
function of_error(   status) {
    if (error !~ /^HTTP [0-9][0-9][0-9]/) return 1
    status = substr(error, 6, 3) + 0
    if (status == 401 || status == 403) return 5
    if (status == 429 || status == 503 || status == 529) return 6
    if (status == 413) return 8
    return status == 408 || status == 409 || status >= 500 ? 7 : 1
}
