# The three stream decoders: PROVIDERS.md and CASES.md, group D.
full() { prog sse_anthropic.awk -v out=json <"$here/data/anthropic-full.sse"; }
check anthropic_full full
full_cr() { tr '\n' '\r' <"$here/data/anthropic-full.sse" | prog sse_anthropic.awk -v out=json; }
same_whatever_the_line_ends() {
    full >lf
    full_cr >cr
    sed 's/$/\r/' "$here/data/anthropic-full.sse" | prog sse_anthropic.awk -v out=json >crlf
    cmp lf cr && cmp lf crlf
}
hold anthropic_line_ends same_whatever_the_line_ends

later_figures() {
    events anthropic <<'END'
{"type":"message_start","message":{"usage":{"input_tokens":27,"cache_read_input_tokens":100,"output_tokens":1}}}
{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":27,"cache_read_input_tokens":100,"cache_creation_input_tokens":null,"output_tokens":5}}
{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9.0}}
{"type":"message_stop"}
{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"after the end"}}
END
}
check anthropic_later_figures later_figures

interleaved() {
    events anthropic <<'END'
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}
{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"T"}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}
{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"ext"}}
{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"Bash","input":{}}}
{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"b"}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}
{"type":"content_block_stop","index":1}
{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"ls\"}"}}
{"type":"content_block_stop","index":2}
{"type":"content_block_stop","index":0}
{"type":"message_stop"}
END
}
check anthropic_interleaved interleaved

never_closed() {
    events anthropic <<'END'
{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a b:1","name":"Write","input":{}}}
{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"x"}}
{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":7}}
{"type":"message_stop"}
END
}
check anthropic_never_closed never_closed

habits() {
    events anthropic <<'END'
{ "type" : "content_block_delta", "index" : 0, "delta" : { "type": "text_delta", "text": "a\u0000b\ud83d" } }
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","name":"Read","input":{"path":"x"}}}
{"type":"content_block_stop","index":1}
{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"opaque"}}
{"type":"content_block_stop","index":2}
{"type":"future_event","index":1}
no json at all
{"type":"message_stop"}
END
}
check anthropic_habits habits

broken_and_errors() {
    text='{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}'
    printf '%s\n' "$text" '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}' | events anthropic
    printf '%s\n' "$text" '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}' "$text" | events anthropic
    printf '%s\n' '{"type":"error","error":{}}' | events anthropic
    prog sse_anthropic.awk -v out=lines </dev/null
    printf '{"type":"error","error":{"type":"api_error","message":"plain"}}' | prog sse_anthropic.awk -v out=lines
    printf '<html><head><TITLE>502 Bad\n Gateway</TITLE>' | prog sse_anthropic.awk -v out=lines -v server=http://x
    printf 'data: %s\n\ndata: {"type":"message_sto\nMARK 18 transfer closed\n' "$text" | prog sse_anthropic.awk -v out=lines -v end_mark=MARK -v status=state
    cat state
    printf 'data: %s\n\ndata: {"type":"message_stop"}\nMARK 0\n' "$text" | prog sse_anthropic.awk -v out=lines -v end_mark=MARK -v status=state
    cat state
}
check anthropic_broken_and_errors broken_and_errors

cut_by_limit() {
    for output in 6 7; do
        printf '%s\n' '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"W"}}' \
            '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a"}}' \
            "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":$output}}" \
            '{"type":"message_stop"}' | events anthropic -v max_tokens=7
    done
}
check anthropic_cut cut_by_limit

llama() {
    for name in messages-text messages-again-cached messages-length messages-adaptive-thinking; do
        sed '1,/^\r*$/d' "$here/data/$name.http" | prog sse_anthropic.awk -v out=json -v join=1
    done
    for name in chat-text chat-length chat-tools-offered chat-bad-request not-found; do
        sed '1,/^\r*$/d' "$here/data/$name.http" | prog sse_openai.awk -v out=json -v join=1
    done
    for name in responses-text responses-length; do
        sed '1,/^\r*$/d' "$here/data/$name.http" | prog sse_responses.awk -v out=json -v join=1
    done
}
check llama_server llama

# ---- Chat Completions
FINISH='{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE='{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":800}}}'
A='{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}'

chat_figures() {
    printf '%s\n' '{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1000,"completion_tokens":1}}' \
        '{"choices":[{"index":0,"delta":{"content":"b"}}],"usage":null}' "$FINISH" "$USAGE" '[DONE]' | events openai
    printf '%s\n' "$FINISH" '{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":4}}' '[DONE]' | events openai
    printf '%s\n' "$A" "$FINISH" | events openai -v sent=4001
}
check openai_figures chat_figures

chat_ends() {
    printf '%s\n' "$A" "$FINISH" | events openai
    printf '%s\n' "$A" | events openai
    printf '%s\n' "$A" '{"choices":[{"finish_reason":""}]}' | events openai
    printf '%s\n' "$A" '[DONE]' | events openai
    for reason in length content_filter tool_calls; do
        printf '%s\n' "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"$reason\"}]}" | events openai
    done
    printf '%s\n' '{"choices":[{"index":0,"delta":{"refusal":"I cannot"}}]}' "$FINISH" | events openai
}
check openai_ends chat_ends

chat_chunks() {
    printf '%s\n' '{"choices":[],"prompt_filter_results":[{}]}' '{"choices":null}' '{"id":"x"}' \
        '{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}' '{"choices":[{"index":0,"delta":null}]}' \
        'not json' "$A" '{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"b"}}]}' \
        '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m\"","choices":[{"index":0,"delta":{"content":"\"c\\\"\n"},"logprobs":null,"finish_reason":null}],"usage":null}' \
        "$FINISH" "$USAGE" '[DONE]' "$A" | events openai
    printf '%s\n' '{"choices":[{"index":0,"delta":{"reasoning_content":"a","reasoning":"a"}}]}' \
        '{"choices":[{"index":0,"delta":{"reasoning":"b","reasoning_content":null}}]}' \
        '{"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]}}]}' "$FINISH" | events openai
    printf '%s\n' '{"choices":[{"index":0,"message":{"content":"whole"},"finish_reason":"stop"}]}' | events openai
}
check openai_chunks chat_chunks

not_streamed() {
    printf '{\n "choices": [\n{"index":0,"message":{"content":"whole"},"finish_reason":"stop"}],\r\n"usage":{"prompt_tokens":3,"completion_tokens":1}}' |
        prog sse_openai.awk -v out=json
    printf '{"choices":[{"index":0,"message":{"content":"wh' | prog sse_openai.awk -v out=json
}
check openai_not_streamed not_streamed

chat_errors() {
    printf '%s\n' "$A" '{"choices":[],"error":{"code":502,"message":"upstream"}}' "$FINISH" | events openai
    printf '%s\n' '{"object":"error","message":"no","code":400}' | events openai
    printf '%s\n' '{"error":"down"}' | events openai
    printf '%s\n' '{"error":null,"choices":[]}' | events openai
}
check openai_errors chat_errors

calls() { # pieces on stdin
    {
        while IFS= read -r piece; do printf '{"choices":[{"index":0,"delta":{"tool_calls":[%s]}}]}\n' "$piece"; done
        echo '{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}'
    } | events openai | grep TOOL_CALL
    echo --
}
chat_calls() {
    calls <<'END'
{"index":0,"id":"a","function":{"name":"Read","arguments":""}}
{"index":1,"id":"b","function":{"name":"Glob","arguments":"{\"x"}}
{"index":0,"function":{"arguments":"{\"y\":"}}
{"index":1,"id":"","function":{"name":"","arguments":"\":1}"}}
{"index":0,"id":null,"function":{"name":null,"arguments":"2}"}}
END
    calls <<'END'
{"index":0,"id":"a","function":{"name":"Read","arguments":"{\"x\":1}"}}
{"index":0,"id":"b","function":{"name":"Glob","arguments":"{\"y\":2}"}}
END
    calls <<'END'
{"index":0,"function":{"name":"Read","arguments":"{\"x\":1}"}}
{"index":0,"function":{"name":"Read","arguments":"{\"x\":2}"}}
END
    calls <<'END'
{"id":"a","function":{"name":"Read","arguments":"{\"x\""}}
{"function":{"arguments":":1}"}}
{"id":"b","function":{"name":"Read","arguments":"{\"y\""}}
{"id":"b","function":{"arguments":":2"}}
{"function":{"arguments":"}"}}
{"index":7,"id":"c","function":{"name":"Glob","arguments":"{"}}
{"function":{"arguments":"}"}}
{"function":{"name":"Grep","arguments":"{}"}}
END
    calls <<'END'
{"index":0,"id":"a","function":{"name":"Todo"}}
{"index":0,"function":{"name":"Write","arguments":"{}"}}
END
    calls <<'END'
{"index":0,"id":"a","function":{"name":"Read","arguments":"{"}}
{"index":0,"id":"a","function":{"name":"Read","arguments":"}"}}
END
    calls <<'END'
{"index":0,"id":"a","function":{"name":"Read","arguments":{"x": 1}}}
{"index":1,"id":"b","function":{"name":"PlanClear","arguments":null}}
{"index":2,"id":"b","function":{"name":"PlanClear","arguments":""}}
END
}
check openai_calls chat_calls

# ---- Responses
responses_items() {
    events responses <<'END'
{"type":"response.created","response":{}}
{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}
{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0}
{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"**A**"}
{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1}
{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"b"}
{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"text":"**A**"},{"text":"b"}],"encrypted_content":"enc"}}
{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"m","content":[]}}
{"type":"response.output_text.delta","output_index":1,"delta":"Let me "}
{"type":"response.output_text.delta","output_index":1,"delta":"look"}
{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"m","content":[{"type":"output_text","text":"Let me look"}]}}
{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"call_a","name":"Read","arguments":""}}
{"type":"response.output_item.added","output_index":3,"item":{"type":"function_call","id":"fc_2","call_id":"call_b","name":"Glob","arguments":""}}
{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"{\"path\":"}
{"type":"response.function_call_arguments.delta","item_id":"fc_2","output_index":3,"delta":"{\"pattern\":\"*\"}"}
{"type":"response.function_call_arguments.delta","output_index":2,"delta":"\"x\"}"}
{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"call_a","name":"Read","arguments":"{\"path\":\"x\"}"}}
{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":1000,"output_tokens":9,"input_tokens_details":{"cached_tokens":800}}}}
END
    completed='{"type":"response.completed","response":{"output":[{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"t"},{"type":"summary_text","text":"u"}]},{"type":"message","id":"m","content":[{"type":"output_text","text":"x"}]},{"type":"function_call","id":"f","call_id":"c","name":"Read","arguments":"{}"}]}}'
    printf '%s\n' "$completed" | events responses
    printf '%s\n' '{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[{"type":"output_text","text":"x"}]}}' "$completed" | events responses
}
check responses_items responses_items

responses_outcomes() {
    for reason in max_output_tokens content_filter; do
        printf '{"type":"response.incomplete","response":{"incomplete_details":{"reason":"%s"},"usage":{"input_tokens":1,"output_tokens":2}}}\n' $reason | events responses
    done
    printf '%s\n' '{"type":"response.refusal.delta","delta":"no"}' '{"type":"response.completed","response":{}}' | events responses
    printf '%s\n' '{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"slow"}}}' | events responses
    printf '%s\n' '{"type":"error","code":"server_error","message":"oops"}' | events responses
    printf '%s\n' '{"type":"response.output_text.delta","delta":"x"}' | events responses
}
check responses_outcomes responses_outcomes

# ---- Someone waits: the first piece is there before the second is sent.
streaming() {
    rm -f in out
    mkfifo in out
    AWK_NOW=$AWK
    AWK=$stream
    prog sse_anthropic.awk -v out=lines <in >out &
    AWK=$AWK_NOW
    exec 5>in 6<out
    printf 'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"one"}}\n\n' >&5
    IFS= read -r first_line <&6
    printf 'data: {"type":"message_stop"}\n\n' >&5
    exec 5>&-
    printf '%s\n' "$first_line"
    cat <&6
    exec 6<&-
    wait
}
check streaming streaming
