# notice.awk - a result of notify.fifo -> its event lines (stdout) and its frame for notify.buf (DIR/notice.frame).
#
# -v dir=DIR, fields=N   field N is in DIR/notice.N, followed by `.` and LF;  -v ts=TIME   now, RFC 3339, UTC, ms
BEGIN {
    for (i = 0; i < fields; i++) {
        file = dir "/notice." i
        n = 0
        while ((getline line < file) > 0) part[++n] = line "\n"
        close(file)
        text = join_pieces(part, 1, n)
        f[i] = json_clean(substr(text, 1, length(text) - 2))
    }
    end = ",\"ts\":\"" ts "\"}\n"
    frame[1] = f[0]
    if (f[0] == "AGENT_RESULT") {
        # id status thinking text in out cache_read cache_creation requests
        at = substr(ts, 1, 19) "Z"
        printf "{\"type\":\"usage\",\"input_tokens\":%s,\"output_tokens\":%s,\"cache_read_input_tokens\":%s,\"cache_creation_input_tokens\":%s,\"kind\":\"sub_agent\",\"sub_session_id\":%s%s", \
            f[5], f[6], f[7], f[8], json_quote(f[1]), end
        printf "{\"type\":\"sub_agent_result\",\"session_id\":%s,\"status\":%s,\"input_tokens\":%s,\"output_tokens\":%s,\"thinking\":%s,\"text\":%s%s", \
            json_quote(f[1]), json_quote(f[2]), f[5], f[6], json_quote(f[3]), json_quote(f[4]), end
        printf "{\"type\":\"sub_agent_end\",\"session_id\":%s,\"timestamp\":\"%s\",\"status\":%s%s", json_quote(f[1]), at, json_quote(f[2]), end
        frame[2] = f[1]; frame[3] = f[2]; frame[4] = f[5]; frame[5] = f[6]; frame[6] = f[3]; frame[7] = f[4]
        n = 7
    } else if (f[0] == "ASYNC_TASK_RESULT") {
        printf "{\"type\":\"async_task_result\",\"task_id\":%s,\"exit_code\":%.0f,\"output\":%s%s", json_quote(f[1]), f[2], json_quote(f[3]), end
        frame[2] = f[1]; frame[3] = f[2]; frame[4] = f[3]
        n = 4
    } else {
        frame[2] = f[1]
        n = 2
    }
    printf "%s", resp_frame(frame, n) > (dir "/notice.frame")
}
