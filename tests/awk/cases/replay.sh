# event_replay.awk: CONTRACT section 8, and the inputs of src/wire/replay.rs. Run as the contract says: three files.
replay() { $AWK -v out=json -f "$awk_dir/json.awk" -f "$awk_dir/protocol.awk" -f "$awk_dir/event_replay.awk" "$@"; echo --; }
TEXT_A='{"type":"text","content":"a"}'
TEXT_B='{"type":"text","content":"b\n\ud83c\udf78"}'
THINK='{"type":"thinking","content":"t"}'
EMPTY='{"type":"text","content":""}'
USED='{"type":"usage","input_tokens":1}'
RETRY='{"type":"retry","ts":"x"}'
STOP='{"type":"stop","reason":"end_turn"}'
ERROR='{"type":"error","message":"e"}'
NOTIFY='{"type":"user_notify","content":"n"}'
USER='{"type":"user_input","content":"u","ts":"x"}'

runs() {
    printf '%s\n' "$THINK" "$THINK" "$TEXT_A" "$TEXT_B" "$STOP" | replay
    printf '%s\n' "$TEXT_A" '{"type":"sub_agent_end","session_id":"s"}' 'broken {' '' "$TEXT_A" | replay
    printf '%s\n' "$TEXT_A" "$USED" "$TEXT_A" | replay
    printf '%s\n' "$TEXT_A" "$NOTIFY" "$TEXT_A" | replay
    printf '%s\n' "$THINK" "$EMPTY" "$THINK" "$EMPTY" | replay
    printf '{"type":"text","content":"bad \377"}\n%s' "$TEXT_A" | replay
}
check runs runs

retries() {
    printf '%s\n' "$USER" "$THINK" "$TEXT_A" "$ERROR" "$USED" "$RETRY" "$TEXT_B" "$STOP" | replay
    printf '%s\n' "$TEXT_A" "$STOP" "$RETRY" "$THINK" | replay
    printf '%s\n' "$TEXT_A" "$RETRY" | replay
    printf '%s\n' "$TEXT_A" '{"type":"sub_agent_result","session_id":"s","status":"ok","input_tokens":1,"output_tokens":2,"thinking":"","text":"x"}' \
        "$THINK" '{"type":"async_task_result","task_id":"t","exit_code":-1,"output":"o"}' "$RETRY" "$TEXT_A" "$USER" | replay
}
check retries retries

types() {
    replay <<'END'
{"type":"session_start","session_id":"s"}
{"type":"user_message","content":"old"}
{"type":"tool_call","name":"Bash","id":"c","input":{"command":"a\tb","n":1}}
{"type":"tool_result","tool_use_id":"c","name":"Bash","content":"out"}
{"type":"sub_agent_result","session_id":"sub_1","status":"failed","input_tokens":3000000000,"output_tokens":2,"thinking":"t","text":"x"}
{"type":"async_task_result","task_id":"task_1","exit_code":143,"output":"o"}
{"type":"assistant_message","text":"hi","tool_calls":[{"name":"Read","id":"r","input":{"path":"p"}},{"name":"X"}]}
{"type":"context_update","kind":"compact","trigger":"auto"}
{"type":"sync","id":"s"}
{"type":"from_the_future"}
{"type":7}
["type","text"]
{"type":"tool_call","name":"PlanClear","id":"toolu_raw","input":}
END
}
check types types

cuts() {
    with_lib 'BEGIN {
        for (i = 0; i < 200; i++) { e = e "\303\251"; g = g "\360\237\215\270" }
        print "{\"type\":\"tool_result\",\"content\":\"" e "\"}"
        print "{\"type\":\"tool_result\",\"content\":\"" e "x\"}"
        print "{\"type\":\"tool_result\",\"content\":\"" g g "\"}"
    }' | replay
}
check cuts cuts

upstream() { for name in tools subagent errors escapes emptyinput compacted; do replay "$here/data/upstream/$name/events.jsonl"; done; }
check upstream upstream
