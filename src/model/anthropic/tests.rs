//! The decoder and the body of Anthropic Messages.

use super::super::testing::{Lines, decode, decode_events, fixture};
use super::super::{Conversation, DecoderOptions, Provider, decoder};
use super::*;
use proptest::prelude::*;
use std::io::Read;

fn events(list: &[&str]) -> Vec<String> {
    decode_events(Provider::Claude, list)
}

const STOP: &str = r#"{"type":"message_stop"}"#;

/// Everything that a stream can hold, in one.
const FULL: &str = include_str!("full.sse");

const FULL_EVENTS: [&str; 9] = [
    "thinking: Let me \"see\" – 猫\n",
    "signature: c2ln None",
    "redacted: b3BhcXVl",
    "text: I read\tit. ",
    "call: toolu_1 Read {\"path\":\"a\\\"b\"}",
    "call: toolu_2 PlanClear ",
    "text: Done 👍",
    "usage: 27 41 100 5",
    "stop: tool_use",
];

#[test]
fn a_full_stream_gives_its_blocks_in_order() {
    assert_eq!(decode(Provider::Claude, FULL.as_bytes(), usize::MAX), FULL_EVENTS);
}

#[test]
fn every_split_in_two_and_every_piece_size_gives_the_same() {
    for size in 1..=64 {
        assert_eq!(decode(Provider::Claude, FULL.as_bytes(), size), FULL_EVENTS, "pieces of {size}");
    }
    for at in 0..FULL.len() {
        let mut decoder = decoder(Provider::Claude, &Default::default());
        let mut list = Vec::new();
        decoder.feed(&FULL.as_bytes()[..at], &mut list);
        decoder.feed(&FULL.as_bytes()[at..], &mut list);
        assert_eq!(crate::model::testing::show(&list), FULL_EVENTS, "split at {at}");
    }
}

#[test]
fn the_pieces_of_one_read_are_one_event() {
    let delta = |text: &str| {
        format!(
            "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
        )
    };
    let mut decoder = decoder(Provider::Claude, &Default::default());
    let mut list = Vec::new();
    decoder.feed([delta("a"), delta("b"), delta("c")].concat().as_bytes(), &mut list);
    assert_eq!(list, [ModelEvent::Text("abc".to_owned())]);
    assert_eq!(decoder.events(), 3);
}

#[test]
fn later_figures_replace_earlier_ones() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":27,"cache_read_input_tokens":100,"output_tokens":1}}}"#;
    let delta = |output| {
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{{"input_tokens":27,"cache_read_input_tokens":100,"cache_creation_input_tokens":null,"output_tokens":{output}}}}}"#
        )
    };
    assert_eq!(events(&[start, &delta(5), &delta(9), STOP]), ["usage: 27 9 100 0", "stop: end_turn"]);
}

#[test]
fn interleaved_blocks_stay_whole() {
    let list = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"T"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"ext"}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"Bash","input":{}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"b"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"ls\"}"}}"#,
        r#"{"type":"content_block_stop","index":2}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        STOP,
    ];
    let expected = ["thinking: ab", "signature: s None", "text: Text", "call: t Bash {\"command\":\"ls\"}"];
    assert_eq!(events(&list)[..4], expected);
}

#[test]
fn blocks_that_were_never_closed_are_given_at_the_end() {
    let list = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a b:1","name":"Write","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"x"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":7}}"#,
        STOP,
    ];
    assert_eq!(events(&list), ["call: a_b_1 Write {\"path\":\"x", "usage: 0 7 0 0", "stop: max_tokens"]);
}

#[test]
fn pieces_that_were_held_back_are_joined_like_others() {
    for (kind, key, word) in [("text_delta", "text", "text"), ("thinking_delta", "thinking", "thinking")] {
        let delta = |index, text| {
            format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{key}":"{text}"}}}}"#
            )
        };
        let (first, second) = (delta(0, "a"), delta(1, "b"));
        assert_eq!(events(&[&first, &second, STOP])[0], format!("{word}: ab"));
    }
}

#[test]
fn servers_with_other_habits_are_understood() {
    // No start, blanks in the JSON, the input whole in the start, no id, no stop reason.
    let list = [
        r#"{ "type" : "content_block_delta", "index" : 0, "delta" : { "type": "text_delta", "text": "a\u0000b\ud83d" } }"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","name":"Read","input":{"path":"x"}}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
        r#"{"type":"future_event","index":1}"#,
        "no json at all",
        STOP,
    ];
    assert_eq!(
        events(&list),
        [
            "text: a\u{fffd}b\u{fffd}",
            "call: call_1 Read {\"path\":\"x\"}",
            "usage: 0 6 0 0 estimated",
            "stop: tool_use"
        ]
    );
}

#[test]
fn without_message_stop_the_response_is_broken() {
    let text = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#;
    let reason = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    assert_eq!(events(&[text, reason]), ["text: x", "broken"]);
    assert_eq!(events(&[]), ["broken"]);
}

#[test]
fn a_call_cut_by_the_limit_counts_as_cut_whatever_the_stop_reason() {
    let options = DecoderOptions { id_prefix: "c".to_owned(), max_tokens: 7 };
    let stream = |output| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"W\"}}}}\n\n\
             data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":\"{{\\\"a\"}}}}\n\n\
             data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"tool_use\"}},\"usage\":{{\"output_tokens\":{output}}}}}\n\ndata: {STOP}\n\n"
        )
    };
    for (output, reason) in [(6, "tool_use"), (7, "max_tokens")] {
        let mut decoder = crate::model::sse::decoder(Provider::Claude, &options);
        let mut list = Vec::new();
        decoder.feed(stream(output).as_bytes(), &mut list);
        assert_eq!(list.last(), Some(&ModelEvent::Stop(reason.to_owned())));
    }
}

#[test]
fn answers_of_a_llama_server_are_understood() {
    let table = [
        (
            "messages-text",
            "text: Paris is the capital of France and is also the largest city in the French nation.",
            "usage: 1 18 26 0",
            "stop: end_turn",
        ),
        ("messages-again-cached", "text: Italy.", "usage: 16 3 28 0", "stop: end_turn"),
        ("messages-length", "text: 1. 2\n", "usage: 14 5 24 0", "stop: max_tokens"),
    ];
    for (name, text, usage, stop) in table {
        assert_eq!(decode(Provider::Claude, &fixture(name), 7), [text, usage, stop], "{name}");
    }
}

/// The body as one string.
fn text(settings: &Settings, request: &Request<'_>) -> String {
    let mut out = String::new();
    body(settings, request, &Omit::default()).unwrap().read_to_string(&mut out).unwrap();
    out
}

#[test]
fn the_body_is_byte_exact() {
    let lines = [
        r#"{"role":"user","content":"a"}"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"b"}]}"#,
    ];
    let window = Lines::new(&lines);
    let mut settings = Settings::new(Provider::Claude);
    let request = Request {
        system: "line\n\"two\"\u{1}",
        tools: "[{\"name\":\"Read\"}]\n",
        window: &window as &dyn Conversation,
        instruction: Some("sum up"),
        images: None,
    };
    assert_eq!(
        text(&settings, &request),
        "{\"model\":\"claude-sonnet-5-5\",\"max_tokens\":16384,\"stream\":true,\"system\":\"line\\n\\\"two\\\"\\u0001\",\"tools\":[{\"name\":\"Read\"}],\
         \"thinking\":{\"type\":\"adaptive\",\"display\":\"summarized\"},\"output_config\":{\"effort\":\"high\"},\"cache_control\":{\"type\":\"ephemeral\"},\
         \"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":\"sum up\"}]}"
    );
    settings.extra_body =
        serde_json::from_str(r#"{"temperature":0.5,"max_tokens":9,"messages":[]}"#).unwrap();
    let empty = Lines::new(&[]);
    let request = Request { system: "", tools: "[]", window: &empty, instruction: Some("x"), images: None };
    assert_eq!(
        text(&settings, &request),
        r#"{"model":"claude-sonnet-5-5","max_tokens":9,"stream":true,"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"high"},"cache_control":{"type":"ephemeral"},"temperature":0.5,"messages":[{"role":"user","content":"x"}]}"#
    );
}

#[test]
fn thinking_is_asked_for_as_the_model_knows_it() {
    let adaptive =
        r#","thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"high"}"#;
    let plain = r#","thinking":{"type":"adaptive"},"output_config":{"effort":"high"}"#;
    let table = [
        ("claude-sonnet-5-5", Thinking::Adaptive, adaptive),
        ("claude-sonnet-5-5", Thinking::Enabled, adaptive),
        ("claude-sonnet-5-5", Thinking::Disabled, r#","thinking":{"type":"between_tools"}"#),
        ("claude-opus-5-5", Thinking::Disabled, ""),
        (
            "claude-opus-4-6",
            Thinking::Enabled,
            r#","thinking":{"type":"enabled","budget_tokens":8192},"output_config":{"effort":"high"}"#,
        ),
        (
            "claude-haiku-4-5-20251001",
            Thinking::Adaptive,
            r#","thinking":{"type":"enabled","budget_tokens":8192}"#,
        ),
        ("claude-haiku-4-5", Thinking::Disabled, ""),
        ("local", Thinking::Adaptive, plain),
        ("claude-sonnet-4-6", Thinking::Adaptive, plain),
        ("local", Thinking::Disabled, ""),
    ];
    for (model, thinking, fields) in table {
        let mut settings = Settings::new(Provider::Claude);
        settings.model = model.to_owned();
        settings.thinking = thinking;
        let window = Lines::new(&[]);
        let request = Request { system: "", tools: "", window: &window, instruction: None, images: None };
        let expected = format!(
            r#"{{"model":"{model}","max_tokens":16384,"stream":true{fields},"cache_control":{{"type":"ephemeral"}},"messages":[]}}"#
        );
        assert_eq!(text(&settings, &request), expected);
    }
}

#[test]
fn a_budget_fits_between_1024_and_the_limit() {
    let mut settings = Settings::new(Provider::Claude);
    settings.max_tokens = 1024;
    assert_eq!(budget(&settings), None);
    settings.max_tokens = 1500;
    assert_eq!(budget(&settings).as_deref(), Some(r#"{"type":"enabled","budget_tokens":1024}"#));
}

proptest! {
    #[test]
    fn any_text_comes_through_both_ways(text in "\\PC*|[\\x00-\\x7f]*|.*", thinking in any::<bool>()) {
        let (kind, key) = if thinking { ("thinking_delta", "thinking") } else { ("text_delta", "text") };
        let mut body = Vec::new();
        json::escape_into(&mut body, &text);
        let body = String::from_utf8(body).unwrap();
        let fast = format!(r#"{{"type":"content_block_delta","index":3,"delta":{{"type":"{kind}","{key}":"{body}"}}}}"#);
        let slow = format!(r#"{{"index":3,"type":"content_block_delta","delta":{{"{key}":"{body}","type":"{kind}"}}}}"#);
        prop_assert!(fast_delta(fast.as_bytes()).is_some());
        prop_assert!(fast_delta(slow.as_bytes()).is_none());
        let clean = text.replace('\0', "\u{fffd}");
        let (fast, slow) = (events(&[&fast]), events(&[&slow]));
        prop_assert_eq!(&fast, &slow);
        if !clean.is_empty() {
            prop_assert_eq!(&fast[0], &format!("{key}: {clean}"));
        }
    }

    #[test]
    fn any_bytes_do_no_harm_and_mean_the_same_in_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..2000) {
        let mut stream = FULL.as_bytes().to_vec();
        let at = at.min(stream.len());
        stream.splice(at..at, bytes);
        let whole = decode(Provider::Claude, &stream, usize::MAX);
        prop_assert_eq!(decode(Provider::Claude, &stream, 13), whole);
    }
}

#[test]
fn runs_of_deltas_mean_the_same_however_they_are_written() {
    let start = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    let delta = |text: &str, pad: &str, end: &str| {
        format!(
            "event: content_block_delta{end}data: {{\"type\":\"content_block_delta\",\"index\":3,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}{pad}}}{end}{end}"
        )
    };
    let pieces = ["Hel", "lo, ", "\\u4e16\\n", "界 \\\"q\\\"", " end"];
    let mut written = Vec::new();
    for (pad, end) in [("", "\n"), ("   ", "\n"), ("", "\r\n"), (" ", "\r")] {
        let body: String = pieces.iter().map(|piece| delta(piece, pad, end)).collect();
        for size in [1, 7, 64, 100_000] {
            let mut decoder = decoder(Provider::Claude, &DecoderOptions::default());
            let mut out = Vec::new();
            for chunk in format!("{start}{body}").as_bytes().chunks(size) {
                decoder.feed(chunk, &mut out);
            }
            let text: String = out
                .iter()
                .map(|event| match event {
                    ModelEvent::Text(text) => text.as_str(),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(decoder.events(), 1 + pieces.len() as u64);
            written.push(text);
        }
    }
    assert!(written.iter().all(|text| text == "Hello, 世\n界 \"q\" end"), "{written:?}");
}
