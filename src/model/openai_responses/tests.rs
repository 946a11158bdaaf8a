//! The decoder and the body of Responses.

use super::super::testing::{Lines, decode, decode_events, fixture};
use super::super::{Conversation, Provider};
use super::*;
use proptest::prelude::*;
use std::io::Read;

fn events(list: &[&str]) -> Vec<String> {
    decode_events(Provider::Responses, list)
}

const COMPLETED: &str = r#"{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":1000,"output_tokens":9,"input_tokens_details":{"cached_tokens":800}}}}"#;

#[test]
fn answers_of_a_llama_server_are_understood_in_any_split() {
    let table = [
        ("responses-text", ["text: The capital of France is Paris.", "usage: 1 8 26 0", "stop: completed"]),
        ("responses-length", ["text: 1. 1\n", "usage: 14 5 24 0", "stop: completed"]),
    ];
    for (name, expected) in table {
        let body = fixture(name);
        for size in (1..=40).chain([usize::MAX]) {
            assert_eq!(decode(Provider::Responses, &body, size), expected, "{name} in pieces of {size}");
        }
    }
}

#[test]
fn reasoning_text_and_calls_come_in_order() {
    let list = [
        r#"{"type":"response.created","response":{}}"#,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}"#,
        r#"{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"**A**"}"#,
        r#"{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"b"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[{"text":"**A**"},{"text":"b"}],"encrypted_content":"enc"}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"m","content":[]}}"#,
        r#"{"type":"response.output_text.delta","output_index":1,"delta":"Let me "}"#,
        r#"{"type":"response.output_text.delta","output_index":1,"delta":"look"}"#,
        r#"{"type":"response.output_text.done","output_index":1,"text":"Let me look"}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"m","content":[{"type":"output_text","text":"Let me look"}]}}"#,
        r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"call_a","name":"Read","arguments":""}}"#,
        r#"{"type":"response.output_item.added","output_index":3,"item":{"type":"function_call","id":"fc_2","call_id":"call_b","name":"Glob","arguments":""}}"#,
        r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":2,"delta":"{\"path\":"}"#,
        r#"{"type":"response.function_call_arguments.delta","item_id":"fc_2","output_index":3,"delta":"{\"pattern\":\"*\"}"}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"\"x\"}"}"#,
        r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"call_a","name":"Read","arguments":"{\"path\":\"x\"}"}}"#,
        r#"{"type":"response.future.event"}"#,
        COMPLETED,
    ];
    let expected = [
        "thinking: **A**\n\nb",
        "signature: enc Some(\"rs_1\")",
        "text: Let me look",
        "call: call_a Read {\"path\":\"x\"}",
        "call: call_b Glob {\"pattern\":\"*\"}",
        "usage: 200 9 800 0",
        "stop: completed",
    ];
    assert_eq!(events(&list), expected);
}

#[test]
fn items_that_come_only_at_the_end_are_not_lost_nor_doubled() {
    let completed = r#"{"type":"response.completed","response":{"output":[{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"t"},{"type":"summary_text","text":"u"}]},{"type":"message","id":"m","content":[{"type":"output_text","text":"x"}]},{"type":"function_call","id":"f","call_id":"c","name":"Read","arguments":"{}"}]}}"#;
    let expected =
        ["thinking: t\n\nu", "text: x", "call: c Read {}", "usage: 0 3 0 0 estimated", "stop: completed"];
    assert_eq!(events(&[completed]), expected);
    let item = r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[{"type":"output_text","text":"x"}]}}"#;
    assert_eq!(events(&[item, completed])[..2], ["text: x", "thinking: t\n\nu"]);
}

#[test]
fn outcomes_keep_the_providers_word() {
    let incomplete = |reason: &str| {
        format!(
            r#"{{"type":"response.incomplete","response":{{"incomplete_details":{{"reason":"{reason}"}},"usage":{{"input_tokens":1,"output_tokens":2}}}}}}"#
        )
    };
    for reason in ["max_output_tokens", "content_filter"] {
        assert_eq!(events(&[&incomplete(reason)]), ["usage: 1 2 0 0", &format!("stop: {reason}")]);
        assert!(crate::model::is_cut_off(reason) || crate::model::is_refusal(reason));
    }
    let refusal = r#"{"type":"response.refusal.delta","delta":"no"}"#;
    assert_eq!(events(&[refusal, COMPLETED])[2], "stop: refusal");
    let failed =
        r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"slow"}}}"#;
    assert_eq!(events(&[failed]), ["failed: Overloaded Some(429) slow"]);
    let error = r#"{"type":"error","code":"server_error","message":"oops"}"#;
    assert_eq!(events(&[error]), ["failed: Network Some(500) oops"]);
    assert_eq!(events(&[r#"{"type":"response.output_text.delta","delta":"x"}"#]), ["text: x", "broken"]);
}

#[test]
fn the_body_is_byte_exact() {
    let window = Lines::new(&[
        r#"{"role":"user","content":"hi"}"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"enc","id":"rs_1"},{"type":"text","text":"a"},{"type":"thinking","thinking":"","signature":"enc2","id":"rs_2"},{"type":"tool_use","id":"c1","name":"Bash","input":{"command":"ls"}}]}"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x\n"}]}"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"b"},{"type":"thinking","thinking":"t","signature":"enc","id":"rs_3"}]}"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"no id"},{"type":"thinking","thinking":"no signature","id":"rs_4"},{"type":"text","text":"c"}]}"#,
    ]);
    let settings = Settings::new(Provider::Responses);
    let tools = r#"[{"name":"Read","description":"d","input_schema":{"type":"object"}}]"#;
    let request = Request {
        system: "be brief",
        tools,
        window: &window as &dyn Conversation,
        instruction: Some("sum"),
        images: None,
    };
    let input = r#"{"role":"user","content":"hi"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"t"}],"encrypted_content":"enc"},{"type":"message","role":"assistant","content":"a"},{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"enc2"},{"type":"function_call","call_id":"c1","name":"Bash","arguments":"{\"command\":\"ls\"}"},{"type":"function_call_output","call_id":"c1","output":"x\n"},{"type":"message","role":"assistant","content":"b"},{"type":"message","role":"assistant","content":"c"},{"role":"user","content":"sum"}"#;
    let expected = format!(
        r#"{{"model":"gpt-6-sol","max_output_tokens":16384,"stream":true,"store":false,"include":["reasoning.encrypted_content"],"instructions":"be brief","tools":[{{"type":"function","name":"Read","description":"d","parameters":{{"type":"object"}},"strict":false}}],"reasoning":{{"effort":"high","summary":"auto"}},"input":[{input}]}}"#
    );
    let text = |omit: &Omit| {
        let mut out = String::new();
        body(&settings, &request, omit).unwrap().read_to_string(&mut out).unwrap();
        out
    };
    assert_eq!(text(&Omit::default()), expected);
    let less = expected
        .replace(r#""include":["reasoning.encrypted_content"],"#, "")
        .replace(r#","summary":"auto""#, "");
    assert_eq!(text(&Omit { include: true, summary: true, ..Omit::default() }), less);
    assert!(!text(&Omit { effort: true, ..Omit::default() }).contains("\"reasoning\":{"));
}

proptest! {
    #[test]
    fn any_bytes_do_no_harm_and_mean_the_same_in_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..5000) {
        let mut stream = fixture("responses-text");
        let at = at.min(stream.len());
        stream.splice(at..at, bytes);
        let whole = decode(Provider::Responses, &stream, usize::MAX);
        prop_assert_eq!(decode(Provider::Responses, &stream, 13), whole);
    }

    /// Deltas told by sight against the same ones parsed: in pieces of one byte no event is ever whole.
    #[test]
    fn deltas_of_any_look_mean_the_same_in_pieces(
        parts in proptest::collection::vec((0usize..8, "[a\\\\nu00e9\"é]{0,4}", 0u8..3), 1..30)
    ) {
        let stream: String = parts.iter().enumerate().map(|(number, (shape, text, filler))| {
            let word = match shape {
                0..4 => "response.output_text.delta",
                4 => "response.reasoning_summary_text.delta",
                5 => "response.refusal.delta",
                6 => "response.function_call_arguments.delta",
                _ => "response.reasoning_summary_part.added",
            };
            let after = match filler {
                0 => String::new(),
                1 => format!(r#","obfuscation":"{text}{text}""#),
                _ => r#","logprobs":[]"#.to_owned(),
            };
            format!("event: {word}\ndata: {{\"type\":\"{word}\",\"sequence_number\":{number},\"delta\":\"{text}\"{after}}}\n\n")
        }).chain(["data: {\"type\":\"response.completed\",\"response\":{}}\n\n".to_owned()]).collect();
        let whole = decode(Provider::Responses, stream.as_bytes(), usize::MAX);
        prop_assert_eq!(decode(Provider::Responses, stream.as_bytes(), 1), whole);
    }
}
