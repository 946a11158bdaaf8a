use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

const USER: &str = r#"{"role":"user","content":"hi"}"#;

fn text(text: &str) -> String {
    format!(r#"{{"role":"assistant","content":[{{"type":"text","text":"{text}"}}]}}"#)
}

fn call(id: &str) -> String {
    format!(
        r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"Read","input":{{"path":"a"}}}}]}}"#
    )
}

fn result(id: &str) -> String {
    format!(r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"x"}}]}}"#)
}

fn lost(id: &str) -> String {
    format!(
        r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"{LOST_RESULT}","is_error":true}}]}}"#
    )
}

/// A file of its own that is gone when dropped.
fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

fn spliced(window: &Window) -> Vec<u8> {
    let mut out = Vec::new();
    window.spliced().read_to_end(&mut out).unwrap();
    assert_eq!(out.len() as u64, window.len());
    out
}

/// The window by way of blocks, as a large file is read.
fn scanned(content: &[u8], options: WindowOptions) -> Window {
    let file = file(content);
    let mut builder = Builder::new(options);
    builder.scan(&file, content.len() as u64, options.strict).unwrap();
    builder.finish(Source::File(file))
}

fn window_of(lines: &[impl AsRef<[u8]>], options: WindowOptions) -> (Vec<String>, Vec<String>) {
    let content: Vec<u8> = lines.iter().flat_map(|line| [line.as_ref(), b"\n"].concat()).collect();
    let window = Window::of(file(&content), options).unwrap();
    let mut messages = Vec::new();
    window
        .lines(|line| {
            messages.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        })
        .unwrap();
    assert_eq!(String::from_utf8(spliced(&window)).unwrap(), messages.join(","));
    assert_eq!(messages.len() as u64, window.messages());
    assert_eq!(String::from_utf8(spliced(&scanned(&content, options))).unwrap(), messages.join(","));
    assert_eq!(scanned(&content, options).notes(), window.notes());
    (messages, window.notes().to_vec())
}

fn check(lines: &[impl AsRef<[u8]>], sent: &[impl AsRef<str>]) -> Vec<String> {
    let (messages, notes) =
        window_of(lines, WindowOptions { drop_unsigned: true, ..WindowOptions::default() });
    assert_eq!(messages, sent.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    notes
}

#[test]
fn what_is_well_is_sent_byte_for_byte() {
    let lines = [
        USER.to_owned(),
        concat!(
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"a \u0001\n ","signature":"s=="},"#,
            r#"{"type":"redacted_thinking","data":"d"},{"type":"text","text":"on\tit"},"#,
            r#"{"type":"tool_use","id":"t1","name":"Read","input":{"type": "x", "file":{"name":"e"}}}]}"#
        )
        .to_owned(),
        result("t1"),
        text("中文 done"),
        USER.to_owned(),
        USER.to_owned(),
    ];
    assert_eq!(check(&lines, &lines), [""; 0]);
}

#[test]
fn a_session_is_opened_as_it_is_now_or_was() {
    let temp = tempfile::tempdir().unwrap();
    let dir = SessionDir::new(temp.path().to_path_buf());
    std::fs::write(dir.conversation(), format!("{USER}\njunk\n{}\n", call("t1"))).unwrap();
    let window = Window::open(&dir, WindowOptions::default()).unwrap();
    assert_eq!(String::from_utf8(spliced(&window)).unwrap(), [USER, &call("t1"), &lost("t1")].join(","));
    assert_eq!((window.messages(), window.notes().len()), (3, 2));

    let options = WindowOptions { until: Some(USER.len() as u64 + 1), ..WindowOptions::default() };
    assert_eq!(spliced(&Window::open(&dir, options).unwrap()), USER.as_bytes());
}

#[test]
fn an_empty_conversation_has_no_messages() {
    for content in ["", "\n", " \n\r\n\n"] {
        let window = Window::of(file(content.as_bytes()), WindowOptions::default()).unwrap();
        assert!(window.is_empty() && spliced(&window).is_empty());
        assert_eq!(window.notes(), [""; 0]);
    }
}

#[test]
fn blocks_that_hold_nothing_are_left_out() {
    let upstream = concat!(
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":""},{"type":"text","text":""},"#,
        r#"{"type":"tool_use","id":"t1","name":"PlanClear","input":}]}"#
    );
    let mended =
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"PlanClear","input":{}}]}"#;
    let unsigned =
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"}]}"#;
    let only = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"}]}"#;
    let blank = r#"{"role":"assistant","content":[{"type":"text","text":" \n\u00a0"}]}"#;
    let quiet = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":""}]}"#;
    let said =
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"(no output)"}]}"#;
    let no_text = r#"{"role":"user","content":" "}"#;
    let lines = [USER, upstream, quiet, unsigned, only, blank, no_text, USER];
    assert_eq!(check(&lines, &[USER, mended, said, &text("a"), USER]), [""; 0]);
}

#[test]
fn thinking_that_no_longer_fits_is_left_out() {
    let signed = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"text","text":"a"}]}"#;
    let unsigned =
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"a"}]}"#;
    let lines = [USER, signed, USER, signed, unsigned];
    let second = (USER.len() + 1 + signed.len() + 1) as u64;
    let plain = text("a");
    let rows: [(WindowOptions, [&str; 5]); 4] = [
        (WindowOptions::default(), [USER, signed, USER, signed, unsigned]),
        (
            WindowOptions { drop_unsigned: true, ..WindowOptions::default() },
            [USER, signed, USER, signed, &plain],
        ),
        (
            WindowOptions { drop_signed: true, ..WindowOptions::default() },
            [USER, &plain, USER, &plain, unsigned],
        ),
        (
            WindowOptions { thinking_from: second, ..WindowOptions::default() },
            [USER, &plain, USER, signed, unsigned],
        ),
    ];
    for (options, sent) in rows {
        assert_eq!(window_of(&lines, options).0, sent, "{options:?}");
    }
}

#[test]
fn lines_that_cannot_be_read_are_left_out_and_counted() {
    let torn = &text("a")[..30];
    let glued = format!("{torn}{USER}");
    let lines: [&[u8]; 9] = [
        USER.as_bytes(),
        torn.as_bytes(),
        &[0; 300],
        b"{\"role\":\"user\",\"content\":\"\xff\"}",
        glued.as_bytes(),
        b"{\"role\":\"system\",\"content\":\"x\"}",
        b"[]",
        b"",
        USER.as_bytes(),
    ];
    assert_eq!(
        check(&lines, &[USER, USER]),
        ["conversation.jsonl: 6 lines that cannot be read left out of the request (line 2, 3, 4, 5, 6, …)"]
    );
}

#[test]
fn results_and_calls_are_paired() {
    let notes = check(
        &[USER, &call("t1"), USER, &call("t2"), &call("t3"), &result("t3"), &result("t9"), &call("t4")],
        &[
            USER,
            &call("t1"),
            &lost("t1"),
            USER,
            &call("t2"),
            &lost("t2"),
            &call("t3"),
            &result("t3"),
            &call("t4"),
            &lost("t4"),
        ],
    );
    assert_eq!(
        notes,
        [
            "conversation.jsonl: 1 tool result without a call left out of the request",
            "conversation.jsonl: 3 tool calls without a result sent as interrupted"
        ]
    );
}

#[test]
fn results_follow_the_order_of_their_calls_and_missing_ones_are_filled_in() {
    let block = |id: &str| format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{id}"}}"#);
    let tool = |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"Read","input":{{}}}}"#);
    let calls = format!(r#"{{"role":"assistant","content":[{},{},{}]}}"#, tool("a"), tool("b"), tool("c"));
    let results = format!(
        r#"{{"role":"user","content":[{},{{"type":"text","text":"and"}},{},{}]}}"#,
        block("c"),
        block("a"),
        block("z")
    );
    let made_up =
        format!(r#"{{"type":"tool_result","tool_use_id":"b","content":"{LOST_RESULT}","is_error":true}}"#);
    let sent = format!(
        r#"{{"role":"user","content":[{},{made_up},{},{{"type":"text","text":"and"}}]}}"#,
        block("a"),
        block("c")
    );
    check(&[USER, &calls, &results], &[USER, &calls, &sent]);
}

#[test]
fn an_answer_before_any_question_is_left_out_with_its_calls() {
    let notes = check(&[&text("a"), &call("t1"), &result("t1"), USER, &text("b")], &[USER, &text("b")]);
    assert_eq!(notes.len(), 2);
}

#[test]
fn ids_that_were_used_or_that_no_api_takes_are_changed_in_both_places() {
    check(
        &[
            USER,
            &call("call_0"),
            &result("call_0"),
            &call("call_0"),
            &result("call_0"),
            &call("a.b"),
            &result("a.b"),
        ],
        &[
            USER,
            &call("call_0"),
            &result("call_0"),
            &call("call_0_2"),
            &result("call_0_2"),
            &call("a_b"),
            &result("a_b"),
        ],
    );
    let tool = |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"Read","input":{{}}}}"#);
    let block =
        |id: &str, text: &str| format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{text}"}}"#);
    check(
        &[
            USER.to_owned(),
            format!(r#"{{"role":"assistant","content":[{},{}]}}"#, tool("x"), tool("x")),
            format!(r#"{{"role":"user","content":[{},{}]}}"#, block("x", "1"), block("x", "2")),
        ],
        &[
            USER.to_owned(),
            format!(r#"{{"role":"assistant","content":[{},{}]}}"#, tool("x"), tool("x_2")),
            format!(r#"{{"role":"user","content":[{},{}]}}"#, block("x", "1"), block("x_2", "2")),
        ],
    );
}

#[test]
fn other_forms_of_json_are_brought_into_ours() {
    check(
        &[
            r#" { "content" : "hi" , "role" : "user", "ts":1 } "#,
            r#"{"role":"assistant","content":[{"no":"type"},7,{"type":"text","text":"plain"},{"type":"text"}]}"#,
            "{\"role\":\"user\",\"content\":\"hi\"}\r",
            r#"{"role":"user","content":"\ud83d\ude00 \ud83d \\ud83d"}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"N","input":[1]},{"type":"tool_use","id":"u","name":"N"}]}"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"},{"type":"tool_result","tool_use_id":"u","content":null,"is_error":true}]}"#,
        ],
        &[
            r#"{"role":"user","content":"hi"}"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"plain"}]}"#,
            USER,
            r#"{"role":"user","content":"\ud83d\ude00 \ufffd \\ud83d"}"#,
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"N","input":{}},{"type":"tool_use","id":"u","name":"N","input":{}}]}"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"(no output)"},{"type":"tool_result","tool_use_id":"u","content":"(no output)","is_error":true}]}"#,
        ],
    );
}

#[test]
fn an_input_that_looks_like_blocks_is_left_alone() {
    let input = r#"{"a":[{"type":"text","text":""},{"b":{}},{"type":"tool_use","id":"no","name":"n","input":{}}],"e":"f"}"#;
    let nested = format!(
        r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"N","input":{input}}}]}}"#
    );
    check(&[USER, &nested, &result("t1")], &[USER, &nested, &result("t1")]);
}

#[test]
fn a_last_line_without_line_feed_is_sent_when_it_parses() {
    for (tail, sent) in [(USER, format!("{USER},{USER}")), ("{\"role\":\"us", USER.to_owned())] {
        let content = format!("{USER}\n{tail}");
        let window = Window::of(file(content.as_bytes()), WindowOptions::default()).unwrap();
        assert_eq!(spliced(&window), sent.as_bytes());
        assert_eq!(spliced(&scanned(content.as_bytes(), WindowOptions::default())), sent.as_bytes());
    }
}

#[test]
fn lines_longer_than_a_block_and_reads_of_any_size_give_the_same_bytes() {
    let long = format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(3 * BLOCK));
    let empty =
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":""},{"type":"text","text":"a"}]}"#;
    let content = [USER, empty, &long, empty, "junk", USER, &long].join("\n") + "\n";
    let window = Window::of(file(content.as_bytes()), WindowOptions::default()).unwrap();
    assert!(matches!(window.source, Source::File(_)));
    let plain = text("a");
    let sent = [USER, &plain, &long, &plain, USER, &long].join(",");
    assert!(spliced(&window) == sent.as_bytes());
    let mut out = Vec::new();
    window.write_to(&mut out).unwrap();
    assert!(out == sent.as_bytes());
    let mut reader = window.spliced();
    let mut small = Vec::new();
    let mut block = [0; 7919];
    while let Ok(count @ 1..) = reader.read(&mut block) {
        small.extend_from_slice(&block[..count]);
    }
    assert!(small == sent.as_bytes());
}

/// What an API asks of messages, checked without any of the code above.
fn assert_valid(messages: &[Value], options: WindowOptions) {
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap();
        assert_eq!(message.as_object().unwrap().len(), 2, "{message}");
        assert!(index > 0 || role == "user", "the first message is {message}");
        let blocks = match &message["content"] {
            Value::String(text) => {
                assert!(!text.trim().is_empty());
                &Vec::new()
            }
            Value::Array(blocks) => {
                assert!(!blocks.is_empty());
                blocks
            }
            other => panic!("{other}"),
        };
        let kind = |block: &Value| block["type"].as_str().unwrap().to_owned();
        let results: Vec<_> = blocks.iter().take_while(|block| kind(block) == "tool_result").collect();
        let answered: Vec<_> =
            results.iter().map(|block| block["tool_use_id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(answered, open, "{message}");
        assert!(role == "user" || results.is_empty());
        open.clear();
        for block in &blocks[results.len()..] {
            match (kind(block).as_str(), role) {
                ("text", _) => assert!(!block["text"].as_str().unwrap().trim().is_empty()),
                ("thinking", "assistant") => {
                    let signed = block["signature"].as_str().is_some_and(|signature| !signature.is_empty());
                    assert!(if signed { !options.drop_signed } else { !options.drop_unsigned });
                    assert!(signed || block["thinking"] != "");
                }
                ("tool_use", "assistant") => {
                    let id = block["id"].as_str().unwrap().to_owned();
                    assert!(
                        !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
                    );
                    assert!(ids.insert(id.clone()), "{id} twice");
                    assert!(block["input"].is_object() && !block["name"].as_str().unwrap().is_empty());
                    open.push(id);
                }
                other => panic!("{other:?} in {message}"),
            }
        }
        for result in results {
            assert!(!matches!(&result["content"], Value::String(text) if text.is_empty()));
        }
        if role == "assistant" && !blocks.is_empty() {
            assert_ne!(kind(blocks.last().unwrap()), "thinking");
        }
    }
    assert!(open.is_empty(), "calls at the end without results");
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]", "call_[0-3]", "a.b", Just(String::new())]
}

/// The body of a JSON string.
fn body() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{1,8}",
        1 => Just(String::new()),
        1 => Just(" \\n".to_owned()),
        1 => Just("\\\"e\\\":\\\"".to_owned()),
        1 => Just("中文 \\u0001 e\u{301}".to_owned()),
        1 => Just("\u{a0}".to_owned()),
        1 => Just("\\ud83d".to_owned()),
        1 => Just("x\\\\".to_owned()),
    ]
}

fn assistant_block() -> impl Strategy<Value = String> {
    let input = prop_oneof![
        Just("{}".to_owned()),
        Just(r#"{"file":"e","type":"text"}"#.to_owned()),
        Just(r#"{"a":{"type":"tool_use","id":"q","name":"n"}}"#.to_owned()),
        Just(String::new()),
        Just("[1]".to_owned()),
    ];
    prop_oneof![
        body().prop_map(|text| format!(r#"{{"type":"text","text":"{text}"}}"#)),
        body().prop_map(|text| format!(r#"{{"type":"thinking","thinking":"{text}"}}"#)),
        (body(), body()).prop_map(|(text, sig)| format!(
            r#"{{"type":"thinking","thinking":"{text}","signature":"{sig}"}}"#
        )),
        (id(), input).prop_map(|(id, input)| format!(
            r#"{{"type":"tool_use","id":"{id}","name":"Read","input":{input}}}"#
        )),
        Just(r#"{"type":"tool_result","tool_use_id":"a","content":"x"}"#.to_owned()),
    ]
}

fn user_block() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => (id(), body()).prop_map(|(id, text)| format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{text}"}}"#)),
        1 => id().prop_map(|id| format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"x","is_error":true}}"#)),
        1 => id().prop_map(|id| format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"{}","is_error":true}}"#, "large ".repeat(200))),
        1 => body().prop_map(|text| format!(r#"{{"type":"text","text":"{text}"}}"#)),
    ]
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let blocks = |block: BoxedStrategy<String>| proptest::collection::vec(block, 0..4);
    let whole = prop_oneof![
        3 => body().prop_map(|text| format!(r#"{{"role":"user","content":"{text}"}}"#)),
        4 => blocks(assistant_block().boxed())
            .prop_map(|blocks| format!(r#"{{"role":"assistant","content":[{}]}}"#, blocks.join(","))),
        4 => blocks(user_block().boxed())
            .prop_map(|blocks| format!(r#"{{"role":"user","content":[{}]}}"#, blocks.join(","))),
        1 => body().prop_map(|text| format!(r#"{{"role":"assistant","content":"{text}"}}"#)),
    ];
    prop_oneof![
        8 => whole.clone().prop_map(String::into_bytes),
        1 => (whole.clone(), any::<prop::sample::Index>()).prop_map(|(line, at)| line.as_bytes()[..at.index(line.len())].to_vec()),
        1 => (whole.clone(), any::<prop::sample::Index>(), whole)
            .prop_map(|(line, at, next)| [&line.as_bytes()[..at.index(line.len())], next.as_bytes()].concat()),
        1 => proptest::collection::vec(any::<u8>().prop_filter("one line", |byte| *byte != b'\n'), 0..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_conversation_gives_valid_messages(
        lines in proptest::collection::vec(line(), 0..12),
        drop_unsigned in any::<bool>(),
        drop_signed in any::<bool>(),
        thinking_from in 0u64..400,
        results_from in 0u64..4000,
    ) {
        let options = WindowOptions { thinking_from, results_from, drop_unsigned, drop_signed, ..Default::default() };
        let content = lines.join(&b'\n');
        let window = Window::of(file(&content), options).unwrap();
        let bytes = spliced(&window);
        let json = [b"[".as_slice(), &bytes, b"]"].concat();
        let messages: Vec<Value> = serde_json::from_slice(&json).unwrap();
        prop_assert_eq!(messages.len() as u64, window.messages());
        assert_valid(&messages, options);
        let strict = scanned(&content, WindowOptions { strict: true, ..options });
        prop_assert_eq!(spliced(&strict), bytes.clone());
        // The quick way cannot see a line that was cut just where its message could end.
        let quick = scanned(&content, options);
        prop_assert_eq!(
            String::from_utf8(spliced(&quick)).unwrap(),
            String::from_utf8(bytes).unwrap(),
            "{}",
            String::from_utf8_lossy(&content)
        );
        prop_assert_eq!(quick.notes(), window.notes());
    }
}
