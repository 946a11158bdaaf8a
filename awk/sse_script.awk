# sse_script.awk - a cassette -> messages: the provider `script` (DESIGN, "The model behind it").
#
# Run      LC_ALL=C awk -f json.awk -f protocol.awk -v play=N -v status=FILE -f sse_script.awk CASSETTE
# Input    NDJSON lines: text, thinking [signature, id], redacted_thinking, tool_call [id], usage, retry; `stop` ends a
#          response, so does `error` [status]. "delay_ms" in any line waits before it. Empty lines do not count.
# Output   the messages of one call, as the other sse_*.awk: ..., USAGE, STOP or ERROR. `retry` gives RETRY, and so does an
#          error whose status HTTP would retry: then the next response follows, at once, at most -v tries=4 of them.
# -v play=N   which response, from 1 (default 1); beyond the end of the cassette the last one again
# -v calls=N  how many calls have been given an id so far: the next one is call_<N+1>
# -v          out, join, estimated: see protocol.awk
# -v status=FILE   how it ended (protocol.awk); then `played N` and `calls N`: the numbers for the next call

BEGIN {
    if (!play) play = 1
    if (!tries) tries = 4
    now = 1
}
{
    bare = trim_blanks($0)
    if (bare == "") next
    if (begun && now >= play) {
        take(bare, NR)
        if (ANSWER_DONE) exit
        next
    }
    # The first line of a response, or a line of one that is only passed over: the last one may be needed again.
    if (!begun) { kept = 0; begun = 1 }
    kept_line[++kept] = bare
    kept_number[kept] = NR
    if (now >= play) take(bare, NR)
    else if (last_of(bare)) { begun = 0; now++ }
    if (ANSWER_DONE) exit
}
END {
    if (!ANSWER_DONE && !begun && kept) {
        # The cassette is used up.
        if (now > play) play = now
        do {
            begun = 1
            for (k = 1; k <= kept && begun && !ANSWER_DONE; k++) take(kept_line[k], kept_number[k])
        } while (!ANSWER_DONE && !begun)
    }
    if (!ANSWER_DONE && begun) wrong("it ends in the middle of a response: the last line must be a `stop`")
    if (!ANSWER_DONE) wrong("it holds no response")
    if (status != "") {
        printf "played %.0f\ncalls %.0f\n", played, calls + 0 >> status
        close(status)
    }
}

function wrong(why) { answer_error(FILENAME ": " why, "invalid_cassette") }

function last_of(raw,   type) {
    type = text_of(raw, "type")
    return type == "stop" || type == "error"
}

# Plays one line. Lines of a response that began now are kept, in case it is the last one.
function take(raw, number,   keys, raws, n, i, m, type, input, id) {
    if (kept_number[kept] + 0 < number) { kept_line[++kept] = raw; kept_number[kept] = number }
    n = json_members(raw, keys, raws)
    for (i = 1; i <= n; i++) m[keys[i]] = raws[i]
    type = json_string(m["type"])
    if (m["delay_ms"] + 0 > 0) {
        fflush()
        system("sleep " sprintf("%.3f", m["delay_ms"] / 1000))
    }
    if (type == "text") answer_text(json_string(m["content"]))
    else if (type == "thinking") {
        answer_thinking(json_string(m["content"]))
        if (json_string(m["signature"]) != "") answer_signature(json_string(m["signature"]), json_string(m["id"]))
    } else if (type == "redacted_thinking") answer_redacted(json_string(m["data"]))
    else if (type == "tool_call") {
        # A string is exactly what a model sent, an object the usual way to write it.
        input = json_is_string(m["input"]) ? json_string(m["input"]) : json_clean(m["input"])
        id = json_string(m["id"])
        answer_joined()
        emit_tool_call(json_string(m["name"]), id == "" ? "call_" (++calls) : id, input)
    } else if (type == "usage") {
        FIGURE["input"] = count_of(m["input_tokens"])
        FIGURE["output"] = count_of(m["output_tokens"])
        FIGURE["cache_read"] = count_of(m["cache_read_input_tokens"])
        FIGURE["cache_creation"] = count_of(m["cache_creation_input_tokens"])
    } else if (type == "retry") retry()
    else if (type == "stop") {
        played = now
        if (!answer_has_figures()) answer_guess(0, 0)
        else answer_usage()
        ANSWER_DONE = 1
        emit2("STOP", json_string(m["reason"]))
        answer_status("stop\t" line_escape(json_string(m["reason"])))
    } else if (type == "error") error(json_string(m["message"]), json_count(m["status"]))
    else wrong("line " number " " (type == "" ? "is no JSON object with a `type`" : "has the unknown type `" type "`"))
    fflush()
}

function count_of(raw) { return json_count(raw) == "" ? "0" : json_count(raw) }

function retry() {
    answer_usage()
    FIGURE["input"] = FIGURE["output"] = FIGURE["cache_read"] = FIGURE["cache_creation"] = ""
    emit1("RETRY")
}

function error(message, code,   retryable) {
    played = now
    if (code != "") {
        retryable = code ~ /^(408|409|429|5[0-9][0-9])$/
        if (retryable && ++failed < tries) {
            retry()
            now++
            begun = 0
            return
        }
        if (retryable) message = message " (given up after " failed " tries)"
    }
    answer_error(message, code)
}
