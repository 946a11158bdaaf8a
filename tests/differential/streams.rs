//! The filters of streams: frames and lines, SSE, replay, display.

use proptest::prelude::*;
use serde_json::json;

use crate::data::{self, frame};
use crate::twins::{all_awks, awk, awks, compare, core, generated, root, run, same};

#[test]
fn resp_encode() {
    let input = b"TEXT\ta\\nb\\\\n\\t\\x\\\nSTOP\n\n\t\nlast without a line feed\\";
    compare(&all_awks(), "resp_encode.awk", &[], &["resp", "encode"], input).unwrap();
    let wide = [vec![b'\t'; 64], b"\nX\n".to_vec()].concat();
    compare(&all_awks(), "resp_encode.awk", &[], &["resp", "encode"], &wide).unwrap();
    let field = prop_oneof![
        data::bytes(),
        prop::sample::select(vec![&b"\\"[..], b"\\\\", b"\\t", b"\0"]).prop_map(<[u8]>::to_vec)
    ];
    generated(24, prop::collection::vec(field, 0..20), |pieces| {
        compare(awks(), "resp_encode.awk", &[], &["resp", "encode"], &pieces.concat())
    });
}

#[test]
fn resp_decode() {
    let good = [frame(&[b"TEXT".to_vec(), b"a\r\n*1\r\n$1\r\nx\0".to_vec()]), frame(&[Vec::new()])].concat();
    compare(awks(), "resp_decode.awk", &["-vout=lines"], &["resp", "decode"], &good).unwrap();
    let frames = prop::collection::vec(prop::collection::vec(data::bytes(), 1..5), 0..8);
    generated(24, frames, |frames| {
        let input: Vec<u8> = frames.iter().flat_map(|fields| frame(fields)).collect();
        compare(awks(), "resp_decode.awk", &["-vout=lines"], &["resp", "decode"], &input)
    });
}

#[test]
fn resp_decode_of_broken_frames() {
    let broken = prop::sample::select(vec![
        &b"*0\r\n$"[..],
        b"*65\r\n$1\r\na\r\n",
        b"*2\r\n$1\r\nab\r\n",
        b"*1\r\n$9999999999\r\n",
        b"noise\n",
        b"*1\n$1\na\n",
        b"*1\r\n:1\r\n",
        b"*3\r\n$1\r\na\r\n",
        b"\r\n",
        b"*\r\n",
        b"*1\r\n$-1\r\n",
        b"* text\n",
        b"*1\r\n$1\r\na\n\n",
    ]);
    let piece = prop_oneof![
        3 => prop::collection::vec(data::bytes(), 1..4).prop_map(|fields| frame(&fields)),
        2 => broken.prop_map(<[u8]>::to_vec),
    ];
    generated(32, prop::collection::vec(piece, 1..6), |pieces| {
        compare(awks(), "resp_decode.awk", &["-vout=lines"], &["resp", "decode"], &pieces.concat())
    });
}

const PROVIDERS: [(&str, &str); 3] =
    [("claude", "sse_anthropic.awk"), ("openai", "sse_openai.awk"), ("responses", "sse_responses.awk")];

#[test]
fn sse_as_recorded() {
    let data = root().join("tests/awk/data");
    let mut files: Vec<_> = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "sse" || end == "http"));
    assert!(files.len() > 5);
    for file in files {
        let all = std::fs::read(&file).unwrap();
        // A recording begins with the head of the answer.
        let body = match memchr::memmem::find(&all, b"\r\n\r\n") {
            Some(head) if all.starts_with(b"HTTP") => &all[head + 4..],
            _ => &all[..],
        };
        for (provider, program) in PROVIDERS {
            let awks = if all.len() < 100_000 { all_awks() } else { awks().to_vec() };
            let arguments = ["sse", "--provider", provider, "--join", "--estimated"];
            compare(&awks, program, &["-vjoin=1", "-vestimated=1"], &arguments, body)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }
}

/// Events as one body, with line ends of one kind.
fn body(events: impl Iterator<Item = String>, line_end: &str) -> Vec<u8> {
    events.map(|data| format!("data: {data}{line_end}{line_end}")).collect::<String>().into_bytes()
}

fn sse_same(provider: usize, input: &[u8]) -> Result<(), String> {
    let (provider, program) = PROVIDERS[provider];
    let arguments =
        ["sse", "--provider", provider, "--join", "--estimated", "--max-tokens", "100", "--sent", "4001"];
    let options = ["-vjoin=1", "-vestimated=1", "-vmax_tokens=100", "-vsent=4001"];
    compare(awks(), program, &options, &arguments, input)
}

/// Streams of some events, one of the ends behind them, in each of the line ends.
fn sse_generated(
    provider: usize,
    event: impl Strategy<Value = serde_json::Value>,
    end: impl Strategy<Value = &'static str>,
) {
    let all = (prop::collection::vec(event, 0..12), end, line_end());
    generated(24, all, |(events, end, line_end)| {
        let data = events.iter().map(serde_json::Value::to_string).chain([end.to_owned()]);
        sse_same(provider, &body(data, line_end))
    });
}

fn line_end() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["\n", "\r\n", "\r"])
}

#[test]
fn sse_anthropic_as_generated() {
    let delta = prop_oneof![
        data::text().prop_map(|text| json!({"type":"text_delta","text":text})),
        data::text().prop_map(|text| json!({"type":"thinking_delta","thinking":text})),
        data::text().prop_map(|text| json!({"type":"signature_delta","signature":text})),
        data::text().prop_map(|text| json!({"type":"input_json_delta","partial_json":text})),
        Just(json!({"type":"input_json_delta","partial_json":"{\"a\":1}"})),
    ];
    let block = prop_oneof![
        Just(json!({"type":"text","text":""})),
        Just(json!({"type":"thinking","thinking":"","signature":""})),
        Just(json!({"type":"redacted_thinking","data":"abc"})),
        (data::tool(), data::text())
            .prop_map(|(name, id)| json!({"type":"tool_use","id":id,"name":name,"input":{}})),
        Just(json!({"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}})),
    ];
    let event = prop_oneof![
        4 => (0..3, delta).prop_map(|(index, delta)| json!({"type":"content_block_delta","index":index,"delta":delta})),
        3 => (0..3, block).prop_map(|(index, block)| json!({"type":"content_block_start","index":index,"content_block":block})),
        2 => (0..3).prop_map(|index| json!({"type":"content_block_stop","index":index})),
        1 => (0..200).prop_map(|n| json!({"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":n}})),
        1 => Just(json!({"type":"ping"})),
        1 => (0..50).prop_map(|n| json!({"type":"message_start","message":{"usage":{"input_tokens":n,"cache_read_input_tokens":3}}})),
    ];
    let end = prop::sample::select(vec![
        r#"{"type":"message_stop"}"#,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        r#"{"type":"message_stop","#,
        r#"{"type":"ping"}"#,
    ]);
    sse_generated(0, event, end);
}

#[test]
fn sse_openai_as_generated() {
    let call =
        (0..3, prop::option::of(data::text()), prop::option::of(data::tool()), data::text(), any::<bool>())
            .prop_map(|(index, id, name, arguments, numbered)| {
                let mut call = json!({"function":{"name":name,"arguments":arguments}});
                call["id"] = json!(id);
                if numbered {
                    call["index"] = json!(index);
                }
                json!({"tool_calls":[call]})
            });
    let delta = prop_oneof![
        3 => data::text().prop_map(|text| json!({"content":text})),
        1 => data::text().prop_map(|text| json!({"reasoning_content":text,"content":null})),
        3 => call,
    ];
    let reason = prop::sample::select(vec![
        json!(null),
        json!(null),
        json!(null),
        json!(""),
        json!("stop"),
        json!("tool_calls"),
        json!("length"),
    ]);
    let chunk = prop_oneof![
        6 => (delta, reason).prop_map(|(delta, reason)| json!({"choices":[{"index":0,"delta":delta,"finish_reason":reason}]})),
        1 => (0..200, 0..50).prop_map(|(n, cached)| json!({"choices":[],"usage":{"prompt_tokens":n,"completion_tokens":n,"prompt_tokens_details":{"cached_tokens":cached}}})),
        1 => Just(json!({"choices":null})),
    ];
    let end = prop::sample::select(vec![
        "[DONE]",
        r#"{"choices":[],"error":{"code":502,"message":"bad gateway"}}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        "{}",
        "{broken",
    ]);
    sse_generated(1, chunk, end);
}

#[test]
fn sse_responses_as_generated() {
    let item = prop_oneof![
        Just(json!({"type":"message","id":"m"})),
        (data::text(), prop::option::of(data::text()))
            .prop_map(|(id, data)| json!({"type":"reasoning","id":id,"encrypted_content":data,"summary":[]})),
        (data::tool(), data::text(), data::text()).prop_map(
            |(name, id, input)| json!({"type":"function_call","call_id":id,"name":name,"arguments":input})
        ),
    ];
    let event = prop_oneof![
        3 => data::text().prop_map(|text| json!({"type":"response.output_text.delta","output_index":0,"delta":text})),
        2 => data::text().prop_map(|text| json!({"type":"response.reasoning_summary_text.delta","output_index":0,"delta":text})),
        2 => (0..3, data::text()).prop_map(|(index, text)| json!({"type":"response.function_call_arguments.delta","output_index":index,"delta":text})),
        2 => (0..3, item.clone()).prop_map(|(index, item)| json!({"type":"response.output_item.added","output_index":index,"item":item})),
        3 => (0..3, item).prop_map(|(index, item)| json!({"type":"response.output_item.done","output_index":index,"item":item})),
        1 => Just(json!({"type":"response.created","response":{}})),
    ];
    let end = prop::sample::select(vec![
        r#"{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":10,"output_tokens":20,"input_tokens_details":{"cached_tokens":4}}}}"#,
        r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
        r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"no"}}}"#,
        r#"{"type":"error","code":"rate_limit_exceeded","message":"slow down"}"#,
        r#"{"type":"response.in_progress"}"#,
    ]);
    sse_generated(2, event, end);
}

/// One event line: valid or not, of every type that there is.
fn event_line() -> impl Strategy<Value = Vec<u8>> {
    let text = data::json_string;
    let ts = prop::sample::select(vec!["", ",\"ts\":\"2026-01-01T00:00:00.000Z\""]);
    let status = prop::sample::select(vec!["\"ok\"", "\"failed\"", "\"lost\"", "7", "\"\\u006fk\""]);
    let number = data::json_number;
    let body = prop_oneof![
        4 => text().prop_map(|s| format!(r#""type":"text","content":{s}"#)).boxed(),
        2 => text().prop_map(|s| format!(r#""type":"thinking","content":{s}"#)).boxed(),
        1 => text().prop_map(|s| format!(r#""type":"user_input","content":{s}"#)).boxed(),
        1 => text().prop_map(|s| format!(r#""content":{s},"type":"user_message""#)).boxed(),
        2 => (data::tool(), data::tool_input()).prop_map(|(name, input)| format!(r#""type":"tool_call","name":"{name}","id":"t1","input":{input}"#)).boxed(),
        2 => (data::tool(), text()).prop_map(|(name, s)| format!(r#""type":"tool_result","tool_use_id":"t","name":"{name}","content":{s}"#)).boxed(),
        1 => (number(), number()).prop_map(|(a, b)| format!(r#""type":"usage","input_tokens":{a},"output_tokens":{b}"#)).boxed(),
        1 => prop::sample::select(vec![r#""type":"retry""#, r#""type":"stop","reason":"end_turn""#, r#""type":"future""#, r#""type":7"#, ""]).prop_map(str::to_owned).boxed(),
        1 => (status, number(), number(), text()).prop_map(|(status, a, b, s)| format!(
            r#""type":"sub_agent_result","session_id":"sub_1","status":{status},"input_tokens":{a},"output_tokens":{b},"thinking":{s},"text":{s}"#
        )).boxed(),
        1 => (number(), text()).prop_map(|(n, s)| format!(r#""type":"async_task_result","task_id":"task_1","exit_code":{n},"output":{s}"#)).boxed(),
        1 => text().prop_map(|s| format!(r#""type":"user_notify","content":{s}"#)).boxed(),
        1 => text().prop_map(|s| format!(r#""type":"error","message":{s}"#)).boxed(),
        1 => (text(), data::tool_input(), data::json_value()).prop_map(|(s, input, other)| format!(
            r#""type":"assistant_message","text":{s},"tool_calls":[{{"name":"Read","id":"r","input":{input}}},{{"input":{other}}}]"#
        )).boxed(),
        1 => data::json_value().prop_map(|value| format!(r#""type":"text","content":{value}"#)).boxed(),
    ];
    let whole = (body, ts).prop_map(|(body, ts)| format!("{{{body}{ts}}}").into_bytes());
    let broken = (data::bytes(), 0_usize..40).prop_map(|(bytes, at)| {
        let mut line = br#"{"type":"text","content":"short text"}"#.to_vec();
        line.splice(at.min(line.len())..at.min(line.len()), bytes);
        line
    });
    prop_oneof![9 => whole, 1 => broken]
}

/// What a replay, a transcript and who looks on see.
const TOLD: [(&[&str], &[&str]); 3] =
    [(&[], &["replay"]), (&["-vwhole=1"], &["replay", "--whole"]), (&["-vlive=1"], &["replay", "--live"])];

fn replay_same(awks: &[crate::twins::Awk], events: &[u8]) -> Result<(), String> {
    TOLD.iter()
        .try_for_each(|(options, arguments)| compare(awks, "event_replay.awk", options, arguments, events))
}

#[test]
fn replay_as_recorded() {
    for session in data::sessions() {
        let events = std::fs::read(session.join("events.jsonl")).unwrap();
        replay_same(&all_awks(), &events).unwrap_or_else(|error| panic!("{}: {error}", session.display()));
    }
}

#[test]
fn replay_as_generated() {
    generated(40, prop::collection::vec(event_line(), 0..25), |lines| {
        replay_same(awks(), &lines.join(&b'\n'))
    });
}

#[test]
fn replay_of_the_last_turns_is_that_of_their_lines() {
    for session in data::sessions() {
        let path = session.join("events.jsonl");
        let events = std::fs::read_to_string(&path).unwrap();
        let turns: Vec<usize> = events
            .match_indices("{\"type\":\"user_")
            .map(|(at, _)| at)
            .filter(|at| *at == 0 || events.as_bytes()[at - 1] == b'\n')
            .collect();
        for last in [1, 2, 100] {
            let from = turns.len().checked_sub(last).map_or(0, |at| turns[at]);
            let expected = awk(awks()[0], "event_replay.awk", &[], &events.as_bytes()[from..]).stdout;
            let count = last.to_string();
            let of_file = core(&["replay", "--last", &count, path.to_str().unwrap()], b"");
            same("of the file", &expected, &of_file.stdout).unwrap();
            let of_stdin = core(&["replay", "--last", &count], events.as_bytes());
            same("of stdin", &expected, &of_stdin.stdout).unwrap();
        }
    }
}

/// The fields of a display message.
fn display_message() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let fields = |list: Vec<String>| list.into_iter().map(String::into_bytes).collect::<Vec<_>>();
    let count = || (0_u64..100_000).prop_map(|n| n.to_string());
    let one = |name: &'static str| data::bytes().prop_map(move |text| vec![name.as_bytes().to_vec(), text]);
    prop_oneof![
        4 => one("TEXT"),
        3 => one("THINKING"),
        1 => one("USER_MESSAGE"),
        1 => one("USER_NOTIFY"),
        1 => one("STOP"),
        1 => Just(vec![b"STOP".to_vec(), b"interrupted".to_vec()]),
        1 => Just(vec![b"CONTEXT_UPDATE".to_vec(), b"compact".to_vec(), b"auto".to_vec()]),
        1 => one("UNKNOWN"),
        1 => one("ERROR"),
        1 => Just(vec![b"RETRY".to_vec()]),
        3 => (data::tool(), prop::collection::vec((prop::sample::select(vec!["path", "command", "pattern", "todos", "name", "description", "query", "url"]), data::text()), 0..4))
            .prop_map(move |(name, members)| {
                let head = ["TOOL_CALL".to_owned(), name, "t1".to_owned(), "{}".to_owned()];
                fields(head.into_iter().chain(members.into_iter().flat_map(|(key, value)| [key.to_owned(), value])).collect())
            }),
        3 => (data::tool(), data::text()).prop_map(move |(name, content)| fields(vec!["TOOL_RESULT".into(), "t1".into(), name, content])),
        1 => (prop::sample::select(vec!["ok", "failed"]), count(), count(), data::text(), data::text())
            .prop_map(move |(status, a, b, thinking, text)| fields(vec!["AGENT_RESULT".into(), "sub_1".into(), status.into(), a, b, thinking, text])),
        1 => (0_i32..200, data::text()).prop_map(move |(code, output)| fields(vec!["ASYNC_TASK_RESULT".into(), "task_1".into(), code.to_string(), output])),
        1 => (data::text(), data::text()).prop_map(move |(images, text)| fields(vec!["IMAGE_DESCRIBE".into(), images, text])),
    ]
}

fn display_same(awks: &[crate::twins::Awk], frames: &[u8], color: bool) -> Result<(), String> {
    let when = if color { "always" } else { "never" };
    let ours = core(&["display", "--color", when, "--error-color", when], frames);
    for name in awks {
        let on = if color { ["-vcolor=1", "-verror_color=1"] } else { ["-vcolor=0", "-verror_color=0"] };
        let theirs = awk(name, "display.awk", &on, frames);
        same(&format!("display under {}", name.join(" ")), &theirs.stdout, &ours.stdout)?;
        same(&format!("errors under {}", name.join(" ")), &theirs.stderr, &ours.stderr)?;
    }
    Ok(())
}

#[test]
fn display_as_recorded() {
    for session in data::sessions() {
        let path = session.join("events.jsonl");
        let frames = core(&["replay", path.to_str().unwrap()], b"").stdout;
        for color in [false, true] {
            display_same(&all_awks(), &frames, color)
                .unwrap_or_else(|error| panic!("{}: {error}", session.display()));
        }
    }
}

#[test]
fn display_as_generated() {
    let all = (prop::collection::vec(display_message(), 0..25), any::<bool>());
    generated(40, all, |(messages, color)| {
        // The texts of a message are clean by contract; a display need not be the one that cleans.
        let clean = |field: &Vec<u8>| String::from_utf8_lossy(field).into_owned().into_bytes();
        let frames: Vec<u8> =
            messages.iter().flat_map(|fields| frame(&fields.iter().map(clean).collect::<Vec<_>>())).collect();
        display_same(awks(), &frames, color)
    });
}

#[test]
fn the_filters_of_scripts_lib_are_callable_by_themselves() {
    let script = |name: &str, arguments: &[&str], input: &[u8]| {
        let mut command = std::process::Command::new(root().join("scripts/lib").join(name));
        command.args(arguments).env("BASH_AGENT_CORE", "/nonexistent").env_remove("TERM");
        run(command, input)
    };
    let lines = b"TEXT\ta\\nb \xc3\xa9\\\\\nUSER_MESSAGE\thi\nSTOP\tinterrupted\n";
    let frames = core(&["resp", "encode"], lines).stdout;
    let encoded = script("wire.sh", &["encode"], lines);
    same("wire.sh encode", &encoded.stdout, &frames).unwrap();
    same("wire.sh decode", &script("wire.sh", &["decode"], &frames).stdout, lines).unwrap();
    let shown = script("display.sh", &[], &frames);
    same("display.sh", &shown.stdout, &core(&["display"], &frames).stdout).unwrap();
    assert!(encoded.stderr.is_empty() && shown.stderr.is_empty(), "{encoded:?} {shown:?}");
    assert_eq!(
        script("wire.sh", &["decode"], b"noise\n").status.code(),
        core(&["resp", "decode"], b"noise\n").status.code()
    );
    assert_eq!(script("wire.sh", &[], b"").status.code(), Some(2));
}
