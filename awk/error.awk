# error.awk - what to do about a failed model call: its kind, exit code and words (CONTRACT section 13; src/model/error.rs).
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -v code=HTTP_STATUS -f error.awk < body-of-the-answer
#          LC_ALL=C awk -f json.awk -f protocol.awk -v type=TYPE -f error.awk < message
# Input    -v code=N: the body that came with HTTP status N.
#          -v type=TYPE (may be empty): the message of an ERROR (or of sse_*.awk's status file) of that type.
# Output   one line, fields separated by TAB: KIND EXIT RETRY STATUS TYPE MESSAGE
#          KIND     Settings Auth Overloaded Network ContextTooLong ThinkingRejected Rejected
#          EXIT     the exit code of a run that ends with it;  RETRY  1 when asking again may help, else 0
#          STATUS   the HTTP status, or the one that the error in the stream stands for, `-` for none
#          TYPE     the provider's error type, `-` for none;  MESSAGE  for people, line-escaped
# -v provider=claude|openai|responses   then a seventh field: the word for -v omit of body_*.awk when the refusal names a
#          field that we can do without, and an eighth: the field's name for a warning; `-` for none
# -v tried='WORD ...'   what is left out already: it is not named again
# -v images=N   more than 0: the request held images, which a server may refuse (some with 404 or 500)

{ part[NR] = NR > 1 ? "\n" $0 : $0 }
END {
    text = join_pieces(part, 1, NR)
    if (code != "") {
        said_find(text)
        kind = kind_of(code, SAID_TYPE, SAID_MESSAGE)
        message = SAID_MESSAGE == "" ? "HTTP " code phrase(code) : "HTTP " code ": " SAID_MESSAGE
        message = message hint(code)
        type = SAID_TYPE
        state = code
    } else {
        message = text
        if (type == "stream_broken" || type == "stalled" || type == "no_connection") { kind = "Network"; state = "" }
        else if (type == "invalid_cassette") { kind = "Settings"; state = "" }
        else if (type == "no_event_stream") { kind = "Rejected"; state = "" }
        else {
            state = type ~ /^[45][0-9][0-9]$/ ? type : status_of(type)
            if (state == "") state = 500
            kind = kind_of(state, type, message)
        }
    }
    retry = (kind == "Network" && type != "stalled") || (kind == "Overloaded" && type != "insufficient_quota")
    exits = kind == "Settings" ? 2 : kind == "Auth" ? 5 : kind == "Overloaded" ? 6 : kind == "Network" ? 7 : kind == "ContextTooLong" ? 8 : 1
    line = kind "\t" exits "\t" retry "\t" (state == "" ? "-" : state) "\t" (type == "" ? "-" : line_escape(type)) "\t" line_escape(message)
    if (provider != "") line = line "\t" gives_way()
    print line
}

function kind_of(code, type, message) {
    message = tolower(message)
    if (code == 413 || type == "context_length_exceeded" || ((code == 400 || code == 422 || code == 500) && message ~ \
        /prompt is too long|maximum context length|exceeds the context window|exceed context limit|exceeds the available context size|context length exceeded|input is too long/))
        return "ContextTooLong"
    if (code == 401 || code == 403) return "Auth"
    if (code == 429 || code == 503 || code == 529) return "Overloaded"
    if (code == 408 || code == 409 || (code >= 500 && code <= 599)) return "Network"
    if (code == 400 && message ~ /thinking/ && message ~ /messages\.|signature|block/) return "ThinkingRejected"
    return "Rejected"
}

# The HTTP status that an error type of a stream stands for.
function status_of(type) {
    if (type ~ /^(overloaded_error|overloaded|server_overloaded)$/) return 529
    if (type ~ /^(rate_limit_error|rate_limit_exceeded|insufficient_quota)$/) return 429
    if (type ~ /^(authentication_error|invalid_api_key)$/) return 401
    if (type == "permission_error") return 403
    if (type ~ /^(not_found_error|model_not_found)$/) return 404
    if (type ~ /^(request_too_large|context_length_exceeded)$/) return 413
    if (type ~ /^(invalid_request_error|billing_error|invalid_prompt)$/) return 400
    return type == "timeout_error" ? 408 : ""
}

function phrase(code) {
    if (code == 400) return " (bad request)"
    if (code == 401) return " (the key was refused)"
    if (code == 403) return " (not permitted)"
    if (code == 404) return " (not found)"
    if (code == 408) return " (request timeout)"
    if (code == 413) return " (request too large)"
    if (code == 429) return " (rate limited)"
    if (code == 500) return " (internal server error)"
    if (code == 502) return " (bad gateway)"
    if (code == 503) return " (service unavailable)"
    if (code == 504) return " (gateway timeout)"
    return code == 529 ? " (overloaded)" : ""
}

# What a user can do about it.
function hint(code) {
    if (provider == "") return ""
    if (code == 401) return "; look at the key (" (provider == "claude" ? "ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN" : "OPENAI_API_KEY") \
        ", --api-key or the provider's key_env)"
    if (code == 403) return "; look at the rights of the key and at the model's name (--model)"
    return code == 404 ? "; look at the model's name (--model) and at the base URL (--base-url)" : ""
}

# Of two fields that a refusal may name at once, the one that is meant comes first.
function gives_way(   list, n, i, f, text) {
    if (images > 0 && code ~ /^(400|404|415|422|500)$/ && tolower(message) ~ /image|vision|multimodal|modalit/ && !index(" " tried " ", " images "))
        return "images\timages"
    if (kind != "Rejected" || (code != 400 && code != 422)) return "-\t-"
    text = tolower(message)
    if (provider == "claude") n = split("cache_control cache_control cache_control,effort effort effort|output_config,display thinking.display display,thinking thinking thinking", list, ",")
    else if (provider == "openai") n = split("stream_options stream_options stream_options,other_reasoning reasoning_content reasoning_content," \
        "effort reasoning_effort effort,other_limit max_completion_tokens max_completion_tokens,other_limit max_tokens max_tokens", list, ",")
    else n = split("include include include|encrypted_content,summary reasoning.summary summary,effort reasoning effort|reasoning", list, ",")
    for (i = 1; i <= n; i++) {
        split(list[i], f, " ")
        if (text ~ f[3]) break
    }
    if (i > n || index(" " tried " ", " " f[1] " ") || (f[2] ~ /^max_/ && index(text, "too large"))) return "-\t-"
    return f[1] "\t" f[2]
}
