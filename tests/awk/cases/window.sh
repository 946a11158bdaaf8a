# window.awk and body_*.awk: what is sent of a conversation (src/session/mend.rs), and the bodies of the three APIs.
USER='{"role":"user","content":"hi"}'
LOST='Error: interrupted: no result was recorded; the outcome is unknown and side effects are possible'
text() { printf '{"role":"assistant","content":[{"type":"text","text":"%s"}]}\n' "$1"; }
call() { printf '{"role":"assistant","content":[{"type":"tool_use","id":"%s","name":"Read","input":{"path":"a"}}]}\n' "$1"; }
result() { printf '{"role":"user","content":[{"type":"tool_result","tool_use_id":"%s","content":"x"}]}\n' "$1"; }
lost() { printf '{"role":"user","content":[{"type":"tool_result","tool_use_id":"%s","content":"%s","is_error":true}]}\n' "$1" "$LOST"; }

# The messages, one a line, then the notes.
window() {
    with_lib '{ window_line($0); show() } END { window_end(); show(); printf "%s", window_notes() }
        function show(   i) { for (i = 1; i <= WINDOW_N; i++) print WINDOW_OUT[i] }' "$@"
}
same() { # FILE with what must be sent; stdin: the conversation
    window -v drop_unsigned=1 >sent
    cmp sent "$1"
}

well() {
    {
        echo "$USER"
        echo '{"role":"assistant","content":[{"type":"thinking","thinking":"a \u0001\n ","signature":"s=="},{"type":"redacted_thinking","data":"d"},{"type":"text","text":"on\tit"},{"type":"tool_use","id":"t1","name":"Read","input":{"type": "x", "file":{"name":"e"}}}]}'
        result t1
        text '中文 done'
        printf '%s\n%s\n' "$USER" "$USER"
        echo '{"role":"assistant","content":[{"type":"tool_use","id":"t2","name":"N","input":{"a":[{"type":"text","text":""},{"b":{}},{"type":"tool_use","id":"no","name":"n","input":{}}],"e":"f"}}]}'
        result t2
    } >well
    same well <well
}
hold what_is_well_is_sent_byte_for_byte well

pairs() {
    { echo "$USER"; call t1; echo "$USER"; call t2; call t3; result t3; result t9; call t4; } >c
    { echo "$USER"; call t1; lost t1; echo "$USER"; call t2; lost t2; call t3; result t3; call t4; lost t4; } >want
    window <c | sed '/^conversation/d' | cmp - want && window <c | grep '^conv'
}
check pairs pairs

nothing_inside() {
    window -v drop_unsigned=1 <<END
$USER
{"role":"assistant","content":[{"type":"thinking","thinking":""},{"type":"text","text":""},{"type":"tool_use","id":"t1","name":"PlanClear","input":}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":""}]}
{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"}]}
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"}]}
{"role":"assistant","content":[{"type":"text","text":" \n\u00a0"}]}
{"role":"user","content":" "}

$USER
END
}
check nothing_inside nothing_inside

thinking() {
    signed='{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"text","text":"a"}]}'
    unsigned='{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"}]}'
    printf '%s\n' "$USER" "$signed" "$USER" "$signed" "$unsigned" >c
    window <c
    window -v drop_unsigned=1 <c
    window -v drop_signed=1 <c
    window -v thinking_from=$((${#USER} + 1 + ${#signed} + 1)) <c
}
check thinking thinking

unreadable() {
    {
        echo "$USER"
        text a | cut -c1-30
        printf '{"role":"user","content":"\377"}\n'
        text a | cut -c1-30 | tr -d '\n'
        printf '%s\n{"role":"system","content":"x"}\n[]\n\n{"role":"user","role":"user","content":"twice"}\n7\n%s\n' "$USER" "$USER"
    } | window
}
check unreadable unreadable

order_of_results() {
    window <<END
$USER
{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"Read","input":{}},{"type":"tool_use","id":"b","name":"Read","input":{}},{"type":"tool_use","id":"c","name":"Read","input":{}}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"c"},{"type":"text","text":"and"},{"type":"tool_result","tool_use_id":"a","content":"a"},{"type":"tool_result","tool_use_id":"z","content":"z"}]}
END
    { text a; call t1; result t1; echo "$USER"; text b; } | window
}
check order_of_results order_of_results

ids() {
    { echo "$USER"; call call_0; result call_0; call call_0; result call_0; call a.b; result a.b; call 'é€'; result 'é€'; call ''; result ''; } | window
    window <<END
$USER
{"role":"assistant","content":[{"type":"tool_use","id":"x","name":"Read","input":{}},{"type":"tool_use","id":"x","name":"Read","input":{}}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"1"},{"type":"tool_result","tool_use_id":"x","content":"2"}]}
END
}
check ids ids

other_forms() {
    window <<'END'
 { "content" : "hi" , "role" : "user", "ts":1 } 
{"role":"assistant","content":[{"no":"type"},7,{"type":"text","text":"plain"},{"type":"text"},[{"type":"text","text":"x"}],{"type":"text","text":"a","text":"b"}]}
{"role":"user","content":"\ud83d\ude00 \ud83d \\ud83d"}
{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"N","input":[1]},{"type":"tool_use","id":"u","name":"N"}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"},{"type":"tool_result","tool_use_id":"u","content":null,"is_error":true}]}
{"role":"assistant","content":"as a string"}
{"role":"assistant","content":[ {"type":"text","text":"blanks"} , {"type":"image","source":{"x":[1]}} ]}
{"role":"user","content":[]}
{"role":"assistant","content":[{"type":"tool_result","tool_use_id":"t","content":"wrong side"},{"type":"tool_use","id":"v","name":"","input":{}}]}
END
    printf '%s\r\n%s' "$USER" "$USER" | window
}
check other_forms other_forms

long_line() {
    with_lib 'BEGIN { s = "\\\"x\\n \303\251"; while (length(s) < 300000) s = s s; print "{\"role\":\"user\",\"content\":\"" s "\"}" }' >long
    same long <long
}
hold a_long_line long_line

# ---- Bodies
cat >chat.jsonl <<'END'
{"role":"user","content":"hi \"you\"\n"}
{"role":"assistant","content":[{"type":"thinking","thinking":"hm\n1"},{"type":"thinking","thinking":"2","signature":"s"},{"type":"text","text":"a"},{"type":"text","text":"b\u0007"},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"echo \"x\""}},{"type":"tool_use","id":"t2","name":"PlanClear","input":{}}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"x\n"},{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"p"},{"type":"text","text":"q"}],"is_error":true},{"type":"text","text":"also"}]}
{"role":"assistant","content":[{"type":"redacted_thinking","data":"d"},{"type":"text","text":"done"}]}
{"role":"user","content":"next"}
{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"enc","id":"rs_1"},{"type":"text","text":"a"},{"type":"thinking","thinking":"","signature":"enc2","id":"rs_2"},{"type":"tool_use","id":"c1","name":"Bash","input":{"command":"ls"}}]}
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x\n"}]}
{"role":"assistant","content":[{"type":"text","text":"b"},{"type":"thinking","thinking":"t","signature":"enc","id":"rs_3"}]}
END
printf 'line\n"two"\001\n' >system
printf '[{"name":"Read","description":"Reads \\"x\\"","input_schema":{"type":"object"}}]\n' >tools
printf 'sum up\n' >instruction
printf '{"temperature": 0.5, "max_tokens":9,"messages":[], "x":{ "a b": [ 1, 2 ] }}' >extra
FILES='-v system_file=system -v tools_file=tools -v instruction_file=instruction -v notes_file=notes'

bodies() {
    prog body_anthropic.awk $FILES -v model=claude-sonnet-5-5 -v thinking_kind=adaptive -v disable=between_tools -v drop_unsigned=1 chat.jsonl
    echo
    prog body_openai.awk $FILES -v model=gpt-6-sol -v thinking_kind=effort -v base_url=https://api.openai.com/v1 chat.jsonl
    echo
    prog body_openai.awk -v model=llama -v base_url=http://localhost:11434/v1 -v reasoning=0 -v effort=max chat.jsonl
    echo
    prog body_openai.awk -v model=llama -v base_url=http://localhost:11434/v1 -v reasoning=0 -v omit='stream_options other_limit other_reasoning' chat.jsonl
    echo
    prog body_responses.awk $FILES -v model=gpt-6-sol -v thinking_kind=effort -v effort=max chat.jsonl
    echo
    prog body_responses.awk -v model=gpt-5-x -v base_url=https://api.openai.com -v omit='include summary' chat.jsonl
    echo
    prog body_responses.awk -v model=gpt-6-sol -v thinking_kind=effort -v thinking=disabled /dev/null
    echo
    prog body_anthropic.awk -v extra_file=extra -v model=claude-sonnet-5-5 -v thinking_kind=adaptive -v instruction_file=instruction /dev/null
    echo
    prog body_anthropic.awk -v model=m -v omit='thinking effort cache_control' -v system_file=missing /dev/null
    echo
}
check bodies bodies

thinking_fields() {
    while read -r kind disable thinking max; do
        prog body_anthropic.awk -v model=m -v thinking_kind=$kind -v disable=${disable#-} -v thinking=$thinking -v max_tokens=$max /dev/null
        echo
    done <<'END'
adaptive between_tools adaptive 16384
adaptive between_tools enabled 16384
adaptive between_tools disabled 16384
adaptive - disabled 16384
adaptive_or_budget - enabled 16384
budget - adaptive 16384
budget - disabled 16384
budget - adaptive 1024
budget - adaptive 1500
none - adaptive 16384
- - adaptive 16384
- - disabled 16384
END
}
check thinking_fields thinking_fields

upstream_sessions() {
    for session in text tools subagent errors escapes emptyinput compacted; do
        for api in anthropic openai responses; do
            prog body_$api.awk -v model=m -v drop_unsigned=1 -v notes_file=notes "$here/data/upstream/$session/conversation.jsonl"
            echo
            cat notes
        done
    done
}
check upstream_sessions upstream_sessions
