# stats.awk, compact_dp.awk, sub_result.awk, title.awk, models.awk, error.awk, skills.awk.
stats() {
    echo '{ "mine":{"a":1},"total_input_tokens": 3000000000, "agent_request_count":-1,"n":7,"current_turn_count":18446744073709551614,"last_updated":"2026-12-02T01:02:53Z","total_cost_usd":1.25
}' >st.json
    printf 'total_input_tokens=+5000000000\ncurrent_turn_count=+5\ntotal_cost_usd=+0.0000015\nn=+1\nfoo=+2\nfoo=+1.5\nbar=hi "x"\nlast_call_speed_tok_per_sec=12.349\ntotal_output_tokens=+999999999999999999\ntotal_output_tokens=+2\n' |
        prog stats.awk -v file=st.json -v now=20260506-123456
    prog stats.awk -v file=st.json -v get='mine last_updated nothing total_cost_usd total_input_tokens'
    printf 'agent_request_count=3\n' | prog stats.awk -v file=missing.json -v now=20260506-123456
    for content in '{"total_input_tokens":"many"}' '{"total_input_tokens":1.5}' '{"total_input_tokens":99999999999999999999}' \
        '{"total_cost_usd":null}' '{"current_turn_count":4' '[]'; do
        echo "$content" >st.json
        prog stats.awk -v file=st.json -v get='total_input_tokens current_turn_count'
    done
    : >st.json
    for update in a =1 current_turn_count=x current_turn_count=-1 current_turn_count=1.5 current_turn_count=+ a=+b total_cost_usd=x last_updated=+1; do
        printf '%s\n' "$update" | prog stats.awk -v file=st.json
        echo "exit $?"
    done
    prog stats.awk -v file="$here/data/upstream/subagent/stats.json" -v now=20260506-123456 </dev/null
}
check stats stats

compact() {
    # N turns of four lines of B bytes; then the options.
    while read -r turns bytes options; do
        with_lib 'BEGIN { for (i = 0; i < bytes; i++) s = s "x"
            for (i = 0; i < turns; i++) { printf "{\"role\":\"user\",\"content\":\"%s\"}\n", substr(s, 28); for (k = 0; k < 3; k++) print s } }' \
            -v turns=$turns -v bytes=$bytes >c.jsonl
        prog compact_dp.awk $options c.jsonl
    done <<'END'
5 400 -v t=5 -v requests=25 -v total_input=100000
30 6000 -v t=30 -v requests=150 -v total_input=600000
30 6000 -v t=30 -v requests=150 -v total_input=600000 -v c=5
30 6000 -v t=1 -v requests=150 -v total_input=600000
30 6000 -v t=30 -v requests=150 -v total_input=600000 -v M=1000000
30 6000 -v t=30 -v requests=150 -v total_input=600000 -v DP_MIN_KEEP_RATIO=0.6
30 6000 -v t=30 -v requests=150 -v total_input=600000 -v DP_S=5000
8 40 -v trigger=manual
10 40 -v trigger=plan_confirm
1 40 -v trigger=plan_clear
0 40 -v trigger=manual
8 40 -v context=180001
8 40 -v context=180000
END
    DP_P_INPUT=nonsense DP_MIN_KEEP_RATIO=0.6 prog compact_dp.awk -v t=30 -v requests=150 -v total_input=600000 c.jsonl
}
check compact compact

sub_result() {
    prog sub_result.awk -v out=lines -v dir="$here/data/upstream/subagent/"
    prog sub_result.awk -v out=lines -v dir="$here/data/upstream/errors" -v id=sub_1 -v code=7
    mkdir -p empty
    prog sub_result.awk -v out=lines -v dir=empty -v code=143
    prog sub_result.awk -v out=lines -v dir=empty
    prog sub_result.awk -v dir=empty -v id=s
}
check sub_result sub_result

title() {
    prog title.awk -v file="$here/data/upstream/subagent/stats.json" -v model=m -v busy=1
    prog title.awk -v file=missing -v model=m -v plain=1
    echo '{"total_input_tokens":850,"total_cache_read_tokens":320,"total_output_tokens":1234567,"current_turn_count":1}' >st.json
    prog title.awk -v file=st.json -v model=m -v plain=1
}
check title title

models() {
    cat >models.json <<'END'
{
  "claude-sonnet-5-5": {"context": 1000000, "max_output": 128000, "price": {"input": 2, "cache_read": 0.10, "cache_write": 2.50, "output": 10}, "thinking": "adaptive", "disable": "between_tools"},
  "claude-haiku-5-5": {"context": 1000000, "max_output": 128000, "price": {"input": 0.10, "output": 0.50}, "thinking": "adaptive"},
  "claude-opus-5": {"price": {"input": 5, "cache_read": 0.50, "cache_write": 6.25, "output": 25}, "thinking": "adaptive"}
}
END
    echo '{"mine":{"thinking":"none"},"claude-opus-5":{"price":{"output":30}}}' >more.json
    for model in claude-sonnet-5-5 claude-opus-5-20260101 anthropic/claude-haiku-5-5:free claude-opus-5-latest claude-opus-5-9 mine other; do
        prog models.awk -v model=$model models.json more.json missing.json
        prog models.awk -v model=$model -v usage='1000 50 300 20' models.json more.json
    done
    echo '[]' >bad.json
    prog models.awk -v model=m bad.json
}
check models models

errors() {
    while IFS='|' read -r options body; do printf '%s' "$body" | prog error.awk $options; done <<'END'
-v code=404|{"type":"error","error":{"type":"not_found_error","message":"no model"},"request_id":"r"}
-v code=400|{"error":{"code":400,"message":"Expected 'content'","type":"invalid_request_error"}}
-v code=500|{"error":"model 'x' not found"}
-v code=418|{"object":"error","message":"vllm says no","code":400}
-v code=404|{"detail":"Not Found"}
-v code=503|upstream connect error
-v code=502|<html><head><TITLE>502 Bad  Gateway</TITLE></head><body>x</body></html>
-v code=500|<p>only <b>tags</b></p>
-v code=500|2 < 3 is true
-v code=401|
-v code=413|
-v code=400|{"error":{"message":"prompt is too long: 5 > 4"}}
-v code=400|{"error":{"message":"messages.3.content.0: Invalid signature in thinking block"}}
-v code=429|{"error":{"code":"insufficient_quota","message":"no money"}}
-v code=400 -v provider=claude|{"error":{"message":"thinking.type: not supported"}}
-v code=400 -v provider=claude -v tried=thinking|{"error":{"message":"thinking.type: not supported"}}
-v code=400 -v provider=claude|{"error":{"message":"cache_control: extra inputs, thinking"}}
-v code=400 -v provider=openai|{"error":{"message":"Unsupported parameter: max_tokens; use max_completion_tokens"}}
-v code=400 -v provider=openai|{"error":{"message":"max_tokens is too large"}}
-v code=400 -v provider=responses|{"error":{"message":"summary not allowed"}}
-v code=500 -v provider=claude|{"error":{"message":"thinking"}}
-v type=overloaded_error|Overloaded
-v type=rate_limit_error|slow
-v type=502|upstream
-v type=|down
-v type=stream_broken|the stream broke before its end
-v type=invalid_cassette|x: it holds no response
-v type=context_length_exceeded|too much
END
}
check errors errors

skills() {
    mkdir -p sk/zz sk/aa sk/bb sk/cc
    printf -- '---\nname: zz\ndescription: >\n  folded\n  text "q"\n---\n\nBody ${BASH_AGENT_SKILL_DIR}/x ${HOME}\n\n' >sk/zz/SKILL.md
    printf '# Title here\nmore' >sk/aa/SKILL.md
    printf -- '---\ndescription: "a \\"b\\" \\\\ c"\n...\n' >sk/bb/SKILL.md
    printf -- "---\r\ndescription: 'it''s'\r\n---\r\nx" >sk/cc/SKILL.md
    prog skills.awk sk/zz/SKILL.md sk/aa/SKILL.md sk/bb/SKILL.md sk/cc/SKILL.md other/aa/SKILL.md
    prog skills.awk -v list=1 sk/zz/SKILL.md sk/aa/SKILL.md
    prog skills.awk -v body=1 -v as=/d sk/zz/SKILL.md
    echo '|'
    prog skills.awk
}
check skills skills
