//! The decoder and the body of Chat Completions.

use super::super::testing::{Lines, decode, decode_events, fixture};
use super::super::{Conversation, Provider};
use super::*;
use proptest::prelude::*;
use std::io::Read;

fn events(list: &[&str]) -> Vec<String> {
    decode_events(Provider::OpenAi, list)
}

/// The lines of the calls among the events.
fn calls(deltas: &[&str]) -> Vec<String> {
    let chunks: Vec<String> = deltas
        .iter()
        .map(|delta| format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{delta}]}}}}]}}"#))
        .chain([FINISH_CALLS.to_owned()])
        .collect();
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    events(&chunks).iter().filter_map(|line| line.strip_prefix("call: ").map(str::to_owned)).collect()
}

const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const FINISH_CALLS: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":800}}}"#;
const DONE: &str = "[DONE]";

fn text(content: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":null}}]}}"#)
}

#[test]
fn answers_of_a_llama_server_are_understood_in_any_split() {
    let table: [(&str, &str, &[&str]); 3] = [
        ("chat-text", "text: Bien sûr, the capital of France is Paris.", &["usage: 27 14 0 0", "stop: stop"]),
        ("chat-length", "text: Yes.", &["usage: 38 3 0 0", "stop: stop"]),
        ("chat-tools-offered", "text: There is no official list of files in Git. However,", &[]),
    ];
    for (name, begin, end) in table {
        let body = fixture(name);
        let whole = decode(Provider::OpenAi, &body, usize::MAX);
        assert!(whole[0].starts_with(begin), "{name}: {whole:?}");
        assert!(end.is_empty() || whole[1..] == *end, "{name}: {whole:?}");
        for size in 1..=40 {
            assert_eq!(decode(Provider::OpenAi, &body, size), whole, "{name} in pieces of {size}");
        }
    }
}

#[test]
fn cached_tokens_are_not_counted_twice_and_the_last_figures_count() {
    let early = r#"{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1000,"completion_tokens":1}}"#;
    let none = r#"{"choices":[{"index":0,"delta":{"content":"b"}}],"usage":null}"#;
    assert_eq!(events(&[early, none, FINISH, USAGE, DONE]), ["text: ab", "usage: 200 7 800 0", "stop: stop"]);
    let deepseek =
        r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":4}}"#;
    assert_eq!(events(&[FINISH, deepseek, DONE]), ["usage: 6 2 4 0", "stop: stop"]);
}

#[test]
fn a_finish_reason_is_enough_and_without_one_the_response_is_broken() {
    let a = text("a");
    assert_eq!(events(&[&a, FINISH]), ["text: a", "usage: 0 1 0 0 estimated", "stop: stop"]);
    assert_eq!(events(&[&a]), ["text: a", "broken"]);
    assert_eq!(events(&[&a, r#"{"choices":[{"finish_reason":""}]}"#]), ["text: a", "broken"]);
    assert_eq!(
        events(&[&a, DONE]),
        ["text: a", "failed: Network None the stream ended without a finish_reason"]
    );
}

#[test]
fn chunks_that_hold_nothing_are_skipped() {
    let list = [
        r#"{"choices":[],"prompt_filter_results":[{}]}"#,
        r#"{"choices":null}"#,
        r#"{"id":"x"}"#,
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#,
        r#"{"choices":[{"index":0,"delta":null}]}"#,
        "not json",
        &text("a"),
        r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"b"}}]}"#,
        FINISH,
        USAGE,
        DONE,
        &text("after the end"),
    ];
    assert_eq!(events(&list), ["text: ab", "usage: 200 7 800 0", "stop: stop"]);
}

#[test]
fn reasoning_goes_by_two_names_and_content_may_come_in_parts() {
    let delta = |delta: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{{delta}}}}}]}}"#);
    let list = [
        delta(r#""reasoning_content":"a","reasoning":"a""#),
        delta(r#""reasoning":"b","reasoning_content":null"#),
        delta(r#""content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]"#),
        FINISH.to_owned(),
    ];
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    assert_eq!(events(&list)[..2], ["thinking: ab", "text: cd"]);
}

#[test]
fn an_error_in_a_chunk_is_handled_by_its_code() {
    let error = r#"{"choices":[],"error":{"code":502,"message":"upstream"}}"#;
    assert_eq!(events(&[&text("a"), error, FINISH]), ["text: a", "failed: Network Some(502) upstream"]);
    let error = r#"{"object":"error","message":"no","code":400}"#;
    assert_eq!(events(&[error]), ["failed: Rejected Some(400) no"]);
    let error = r#"{"error":"down"}"#;
    assert_eq!(events(&[error]), ["failed: Network Some(500) down"]);
    assert_eq!(events(&[r#"{"error":null,"choices":[]}"#]), ["broken"]);
}

#[test]
fn pieces_go_to_the_call_of_their_index() {
    let list = [
        r#"{"index":0,"id":"a","function":{"name":"Read","arguments":""}}"#,
        r#"{"index":1,"id":"b","function":{"name":"Glob","arguments":"{\"x"}}"#,
        r#"{"index":0,"function":{"arguments":"{\"y\":"}}"#,
        r#"{"index":1,"id":"","function":{"name":"","arguments":"\":1}"}}"#,
        r#"{"index":0,"id":null,"function":{"name":null,"arguments":"2}"}}"#,
    ];
    assert_eq!(calls(&list), [r#"a Read {"y":2}"#, r#"b Glob {"x":1}"#]);
}

#[test]
fn a_new_id_or_name_opens_a_new_call_whatever_the_index() {
    let list = [
        r#"{"index":0,"id":"a","function":{"name":"Read","arguments":"{\"x\":1}"}}"#,
        r#"{"index":0,"id":"b","function":{"name":"Glob","arguments":"{\"y\":2}"}}"#,
    ];
    assert_eq!(calls(&list), [r#"a Read {"x":1}"#, r#"b Glob {"y":2}"#]);
    let same_tool = [
        r#"{"index":0,"function":{"name":"Read","arguments":"{\"x\":1}"}}"#,
        r#"{"index":0,"function":{"name":"Read","arguments":"{\"x\":2}"}}"#,
    ];
    assert_eq!(calls(&same_tool), [r#"call_1 Read {"x":1}"#, r#"call_2 Read {"x":2}"#]);
    let same_id = same_tool.map(|piece| piece.replace(r#""index":0"#, r#""index":0,"id":"same""#));
    assert_eq!(calls(&[&same_id[0]]), [r#"same Read {"x":1}"#]);
}

#[test]
fn calls_without_an_index_stay_apart() {
    let list = [
        r#"{"id":"a","function":{"name":"Read","arguments":"{\"x\""}}"#,
        r#"{"function":{"arguments":":1}"}}"#,
        r#"{"id":"b","function":{"name":"Read","arguments":"{\"y\""}}"#,
        r#"{"id":"b","function":{"arguments":":2"}}"#,
        r#"{"function":{"arguments":"}"}}"#,
        r#"{"index":7,"id":"c","function":{"name":"Glob","arguments":"{"}}"#,
        r#"{"function":{"arguments":"}"}}"#,
        r#"{"function":{"name":"Grep","arguments":"{}"}}"#,
    ];
    assert_eq!(calls(&list), [r#"a Read {"x":1}"#, r#"b Read {"y":2}"#, "c Glob {}", "call_4 Grep {}"]);
}

#[test]
fn names_come_in_pieces_repeated_or_grown_and_arguments_in_any_form() {
    let list = [
        r#"{"index":0,"id":"a","function":{"name":"Todo"}}"#,
        r#"{"index":0,"function":{"name":"Write","arguments":"{}"}}"#,
    ];
    assert_eq!(calls(&list), ["a TodoWrite {}"]);
    let list = [
        r#"{"index":0,"id":"a","function":{"name":"Read","arguments":"{"}}"#,
        r#"{"index":0,"id":"a","function":{"name":"Read","arguments":"}"}}"#,
    ];
    assert_eq!(calls(&list), ["a Read {}"]);
    let list = [
        r#"{"index":0,"id":"a","function":{"name":"Read","arguments":{"x": 1}}}"#,
        r#"{"index":1,"id":"b","function":{"name":"PlanClear","arguments":null}}"#,
        r#"{"index":2,"id":"b","function":{"name":"PlanClear","arguments":""}}"#,
    ];
    assert_eq!(calls(&list), [r#"a Read {"x": 1}"#, "b PlanClear ", "b_2 PlanClear "]);
}

#[test]
fn stop_reasons_are_passed_on_and_a_refusal_is_one() {
    for reason in ["stop", "length", "content_filter", "tool_calls", "function_call"] {
        let finish = FINISH.replace("\"stop\"", &format!("{reason:?}"));
        assert_eq!(events(&[&finish]).last().unwrap(), &format!("stop: {reason}"));
    }
    let refusal = r#"{"choices":[{"index":0,"delta":{"refusal":"I cannot"}}]}"#;
    assert_eq!(events(&[refusal, FINISH]), ["text: I cannot", "usage: 0 2 0 0 estimated", "stop: refusal"]);
}

#[test]
fn a_call_cut_by_the_limit_counts_as_cut_whatever_the_finish_reason() {
    let options = crate::model::sse::DecoderOptions { id_prefix: "c".to_owned(), max_tokens: 7 };
    let call = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"W","arguments":"{\"a"}}]}}]}"#;
    let mut decoder = crate::model::sse::decoder(Provider::OpenAi, &options);
    let mut list = Vec::new();
    decoder.feed(
        format!("data: {call}\n\ndata: {FINISH_CALLS}\n\ndata: {USAGE}\n\ndata: [DONE]\n\n").as_bytes(),
        &mut list,
    );
    assert_eq!(list.last(), Some(&ModelEvent::Stop("length".to_owned())));
}

fn body_of(settings: &Settings, request: &Request<'_>, omit: &Omit) -> String {
    let mut body = body(settings, request, omit).unwrap();
    let len = body.len();
    let mut out = String::new();
    body.read_to_string(&mut out).unwrap();
    assert_eq!(out.len() as u64, len);
    out
}

const CONVERSATION: [&str; 6] = [
    r#"{"role":"user","content":"hi \"you\"\n"}"#,
    r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm\n1"},{"type":"thinking","thinking":"2","signature":"s"},{"type":"text","text":"a"},{"type":"text","text":"b\u0007"},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"echo \"x\""}},{"type":"tool_use","id":"t2","name":"PlanClear","input":{}}]}"#,
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"x\n"},{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"p"},{"type":"text","text":"q"}],"is_error":true},{"type":"text","text":"also"}]}"#,
    r#"{"role":"assistant","content":[{"type":"thinking","thinking":"only"}]}"#,
    r#"{"role":"assistant","content":[{"type":"redacted_thinking","data":"d"},{"type":"text","text":"done"}]}"#,
    r#"{"role":"user","content":"next"}"#,
];

#[test]
fn the_body_is_byte_exact() {
    let window = Lines::new(&CONVERSATION);
    let mut settings = Settings::new(Provider::OpenAi);
    let tools = r#"[{"name":"Read","description":"Reads \"x\"","input_schema":{"type":"object"}}]"#;
    let request = Request {
        system: "be\nbrief",
        tools,
        window: &window as &dyn Conversation,
        instruction: Some("sum"),
        images: None,
    };
    let messages = r#"{"role":"user","content":"hi \"you\"\n"},{"role":"assistant","content":"a\nb\u0007","reasoning_content":"hm\n1\n2","tool_calls":[{"id":"t1","type":"function","function":{"name":"Bash","arguments":"{\"command\":\"echo \\\"x\\\"\"}"}},{"id":"t2","type":"function","function":{"name":"PlanClear","arguments":"{}"}}]},{"role":"tool","tool_call_id":"t1","content":"x\n"},{"role":"tool","tool_call_id":"t2","content":"p\nq"},{"role":"user","content":"also"},{"role":"assistant","content":"done"},{"role":"user","content":"next"}"#;
    let expected = format!(
        r#"{{"model":"gpt-6-sol","max_completion_tokens":16384,"stream":true,"stream_options":{{"include_usage":true}},"reasoning_effort":"high","tools":[{{"type":"function","function":{{"name":"Read","description":"Reads \"x\"","parameters":{{"type":"object"}}}}}}],"messages":[{{"role":"system","content":"be\nbrief"}},{messages},{{"role":"user","content":"sum"}}]}}"#
    );
    assert_eq!(body_of(&settings, &request, &Omit::default()), expected);
    assert!(serde_json::from_str::<serde_json::Value>(&expected).is_ok());

    settings.base_url = "http://localhost:11434/v1".to_owned();
    settings.model = "llama".to_owned();
    settings.send_reasoning = false;
    let request = Request { system: "", tools: "[]", window: &window, instruction: None, images: None };
    let bare = messages.replace(r#","reasoning_content":"hm\n1\n2""#, "");
    let expected = format!(
        r#"{{"model":"llama","max_tokens":16384,"stream":true,"stream_options":{{"include_usage":true}},"messages":[{bare}]}}"#
    );
    assert_eq!(body_of(&settings, &request, &Omit::default()), expected);
    let omit = Omit { stream_options: true, other_limit: true, other_reasoning: true, ..Omit::default() };
    let expected =
        format!(r#"{{"model":"llama","max_completion_tokens":16384,"stream":true,"messages":[{messages}]}}"#);
    assert_eq!(body_of(&settings, &request, &omit), expected);
}

#[test]
fn a_long_conversation_is_not_held_in_memory_but_comes_whole() {
    let line = format!(r#"{{"role":"user","content":"{}"}}"#, "y".repeat(1 << 20));
    let window = Lines(vec![line.clone(); 9]);
    let settings = Settings::new(Provider::OpenAi);
    let request = Request { system: "", tools: "", window: &window, instruction: None, images: None };
    let body = body_of(&settings, &request, &Omit::default());
    assert!(body.ends_with(&format!("{}]}}", [line.as_str(); 9].join(","))));
}

proptest! {
    #[test]
    fn any_bytes_do_no_harm_and_mean_the_same_in_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..5000) {
        let mut stream = fixture("chat-text");
        let at = at.min(stream.len());
        stream.splice(at..at, bytes);
        let whole = decode(Provider::OpenAi, &stream, usize::MAX);
        prop_assert_eq!(decode(Provider::OpenAi, &stream, 13), whole);
    }

    #[test]
    fn any_order_of_tool_pieces_keeps_every_argument(
        pieces in proptest::collection::vec((proptest::option::of(0u64..3), "[ab]?", "[XY]?", "[{}x]{0,3}"), 1..12)
    ) {
        let list: Vec<String> = pieces.iter().map(|(index, id, name, arguments)| {
            let index = index.map(|index| format!("\"index\":{index},")).unwrap_or_default();
            format!(r#"{{{index}"id":"{id}","function":{{"name":"{name}","arguments":"{arguments}"}}}}"#)
        }).collect();
        let list: Vec<&str> = list.iter().map(String::as_str).collect();
        let sent: usize = pieces.iter().map(|piece| piece.3.len()).sum();
        let got: usize = calls(&list).iter().map(|call| call.splitn(3, ' ').nth(2).unwrap().len()).sum();
        prop_assert_eq!(sent, got);
    }

    /// Deltas told by sight against the same ones parsed: in pieces of one byte no event is ever whole.
    #[test]
    fn deltas_of_any_look_mean_the_same_in_pieces(
        parts in proptest::collection::vec((0usize..10, "[a\\\\nu00e9\"é]{0,4}", 0u8..3), 1..30)
    ) {
        let stream: String = parts.iter().map(|(shape, text, filler)| {
            let delta = match shape {
                0..4 => format!(r#""content":"{text}""#),
                4 => format!(r#""role":"assistant","content":"{text}","refusal":null"#),
                5 => format!(r#""content":null,"reasoning_content":"{text}""#),
                6 => format!(r#""reasoning":"{text}","reasoning_content":"{text}""#),
                7 => format!(r#""content":"{text}","refusal":"{text}""#),
                8 => format!(r#""content":[{{"type":"text","text":"{text}"}}]"#),
                _ => format!(r#""tool_calls":[{{"index":0,"function":{{"name":"x","arguments":"{text}"}}}}]"#),
            };
            let after = match filler {
                0 => String::new(),
                1 => format!(r#","obfuscation":"{text}{text}""#),
                _ => r#","usage":{"prompt_tokens":1,"completion_tokens":2}"#.to_owned(),
            };
            format!("data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":null}}]{after}}}\n\n")
        }).chain([format!("data: {FINISH}\n\n")]).collect();
        let whole = decode(Provider::OpenAi, stream.as_bytes(), usize::MAX);
        prop_assert_eq!(decode(Provider::OpenAi, stream.as_bytes(), 1), whole);
    }
}
