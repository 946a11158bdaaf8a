//! The HTTP driver against a server of raw sockets.

use std::sync::Arc;
use std::time::Duration;

use super::super::testing::{Lines, Mock, Step, begun, plain, run, settings, show, stream};
use super::super::{Secret, new};
use super::*;

const START: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n";
const HALF: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"half\"}}\n\n";

/// A whole good answer.
fn good(text: &str) -> String {
    format!(
        "{START}data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n\
         data: {{\"type\":\"content_block_stop\",\"index\":0}}\n\n\
         data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},\"usage\":{{\"output_tokens\":3}}}}\n\n\
         data: {{\"type\":\"message_stop\"}}\n\n"
    )
}

const GOOD: [&str; 3] = ["text: hi", "usage: 9 3 0 0", "stop: end_turn"];

fn ask(mock: &Mock) -> Vec<String> {
    let model = new(settings(Provider::Claude, &mock.url)).unwrap();
    show(&run(model.as_ref(), &Lines::hello()))
}

#[test]
fn a_good_answer_is_one_request_with_its_length_known() {
    let mock = Mock::new(vec![stream(&good("hi"))]);
    let mut settings = settings(Provider::Claude, &mock.url);
    settings.key = Some(Secret::new("sk-1"));
    let model = new(settings).unwrap();
    assert_eq!(show(&run(model.as_ref(), &Lines::hello())), GOOD);
    let [request] = mock.requests().try_into().unwrap();
    let head = request.head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/messages http/1.1\r\n"), "{head}");
    for line in ["x-api-key: sk-1", "anthropic-version: 2023-06-01", "content-type: application/json"] {
        assert!(head.lines().any(|have| have == line), "{line} is missing in {head}");
    }
    assert!(!head.contains("transfer-encoding") && !head.contains("accept-encoding"), "{head}");
    assert_eq!(
        request.body,
        r#"{"model":"claude-sonnet-5-5","max_tokens":16384,"stream":true,"system":"be brief","thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"high"},"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":"hello"}]}"#
    );
}

#[test]
fn the_next_call_uses_the_same_connection() {
    let mock = Mock::new(vec![stream(&good("hi")), stream(&good("hi")), stream(&good("hi"))]);
    let model = new(settings(Provider::Claude, &mock.url)).unwrap();
    assert_eq!(show(&run(model.as_ref(), &Lines::hello())), GOOD);
    // What follows the last event is read on another thread: until it has, a new connection is made.
    for _ in 0..2 {
        assert_eq!(show(&run(model.as_ref(), &Lines::hello())), GOOD);
    }
    assert!(mock.connection_count() <= 3);
    assert_eq!(mock.requests().len(), 3);
}

#[test]
fn a_kept_connection_that_the_server_closed_is_replaced_at_once() {
    let mut first = stream(&good("hi"));
    first.push(Step::Close);
    let mock = Mock::new(vec![first, stream(&good("hi"))]);
    let model = new(settings(Provider::Claude, &mock.url)).unwrap();
    assert_eq!(show(&run(model.as_ref(), &Lines::hello())), GOOD);
    assert_eq!(show(&run(model.as_ref(), &Lines::hello())), GOOD);
}

#[test]
fn retryable_statuses_are_tried_again_and_said() {
    for status in
        ["408 Timeout", "409 Conflict", "429 Slow", "500 Oops", "502 Bad", "503 Busy", "529 Overloaded"]
    {
        let error = plain(status, "", r#"{"type":"error","error":{"type":"x","message":"not now"}}"#);
        let mock = Mock::new(vec![error, stream(&good("hi"))]);
        let said = format!("retry: HTTP {}: not now None", &status[..3]);
        assert_eq!(ask(&mock), [&[said.as_str()], &GOOD[..]].concat(), "{status}");
        assert_eq!(mock.requests().len(), 2);
    }
}

#[test]
fn other_statuses_fail_at_once_with_the_servers_words() {
    for (status, kind) in [
        ("400 Bad", "Rejected"),
        ("401 No", "Auth"),
        ("403 No", "Auth"),
        ("404 No", "Rejected"),
        ("413 Big", "ContextTooLong"),
    ] {
        let mock = Mock::new(vec![plain(status, "", r#"{"error":{"message":"no sk-secret"}}"#)]);
        let mut settings = settings(Provider::Claude, &mock.url);
        settings.key = Some(Secret::new("sk-secret"));
        let model = new(settings).unwrap();
        let code = &status[..3];
        let said = format!("failed: {kind} Some({code}) HTTP {code}: no ***");
        let shown = show(&run(model.as_ref(), &Lines::hello()));
        let [line] = shown.as_slice() else { panic!("{shown:?}") };
        let hint = line.strip_prefix(&said).expect("a key is never shown");
        assert_eq!(hint.starts_with("; look at "), matches!(code, "401" | "403" | "404"), "{line}");
        assert_eq!(mock.requests().len(), 1);
    }
}

#[test]
fn four_tries_and_no_more() {
    let mock = Mock::new(vec![plain("503 Busy", "", "busy"); 9]);
    let events = ask(&mock);
    assert_eq!(mock.requests().len(), 4);
    assert_eq!(events.len(), 4);
    assert_eq!(events[3], "failed: Overloaded Some(503) HTTP 503: busy (given up after 4 tries)");
}

#[test]
fn retry_after_is_obeyed_and_one_that_is_too_long_fails_at_once() {
    let mock = Mock::new(vec![
        plain("429 Slow", "retry-after-ms: 1\r\nRetry-After: 86400\r\n", "slow"),
        stream(&good("hi")),
    ]);
    assert_eq!(ask(&mock), [&["retry: HTTP 429: slow None"], &GOOD[..]].concat());
    let mock = Mock::new(vec![plain("429 Slow", "Retry-After: 86400\r\n", "slow down")]);
    let said = "failed: Overloaded Some(429) HTTP 429: slow down (the server asks to wait 86400 s)";
    assert_eq!(ask(&mock), [said]);
    let mock = Mock::new(vec![
        plain("429 Slow", "Retry-After: Wed, 02 Dec 2020 03:00:00 GMT\r\n", "x"),
        stream(&good("hi")),
    ]);
    assert_eq!(ask(&mock), [&["retry: HTTP 429: x None"], &GOOD[..]].concat());
}

#[test]
fn an_unreadable_retry_after_means_backoff() {
    for value in ["soon", "-5", "", "1e9", "3.5"] {
        let mock = Mock::new(vec![
            plain("429 Slow", &format!("Retry-After: {value}\r\n"), "x"),
            stream(&good("hi")),
        ]);
        let model = new(settings(Provider::Claude, &mock.url)).unwrap();
        let events = run(model.as_ref(), &Lines::hello());
        let Some(ModelEvent::Retry { wait, .. }) = events.first() else { panic!("{events:?}") };
        assert!((500..=1500).contains(&wait.as_micros()), "{value}: {wait:?}");
    }
}

#[test]
fn no_connection_says_where_it_tried() {
    // A port that was free a moment ago.
    let place = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let model = new(settings(Provider::Claude, &format!("http://{place}/v1"))).unwrap();
    let events = show(&run(model.as_ref(), &Lines::hello()));
    assert_eq!(events.len(), 4, "{events:?}");
    assert!(
        events[3]
            .starts_with(&format!("failed: Network None http://{place}/v1/messages: Connection refused")),
        "{events:?}"
    );
}

#[test]
fn a_stream_that_breaks_is_asked_for_again_with_its_figures() {
    let cut = begun(&format!("{START}{HALF}"), Step::Close);
    let clean = stream(&format!("{START}{HALF}"));
    for broken in [cut, clean] {
        let mock = Mock::new(vec![broken, stream(&good("hi"))]);
        let events = ask(&mock);
        assert_eq!(events[0], "text: half");
        assert!(
            events[1].starts_with("retry: the stream broke before its end (")
                && events[1].ends_with("Some((9, 1))"),
            "{events:?}"
        );
        assert_eq!(events[2..], GOOD);
    }
}

#[test]
fn an_overload_in_mid_stream_is_retried_and_a_refusal_is_not() {
    let overload = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let mock = Mock::new(vec![stream(&format!("{START}{HALF}{overload}")), stream(&good("hi"))]);
    assert_eq!(ask(&mock), [&["text: half", "retry: Overloaded Some((9, 1))"], &GOOD[..]].concat());
    let mock = Mock::new(vec![stream(overload); 4]);
    assert_eq!(ask(&mock)[3], "failed: Overloaded Some(529) Overloaded (given up after 4 tries)");
    let mock = Mock::new(vec![stream(&overload.replace("overloaded_error", "authentication_error"))]);
    assert_eq!(ask(&mock), ["failed: Auth Some(401) Overloaded"]);
}

#[test]
fn every_line_end_and_every_split_gives_the_same_events() {
    let lf = good("ß猫👍");
    for (name, text) in
        [("lf", lf.clone()), ("crlf", lf.replace('\n', "\r\n")), ("cr", lf.replace('\n', "\r"))]
    {
        for size in [1, 2, 3, 5, 17, 200] {
            let mut steps = vec![Step::Send(super::super::testing::STREAM_HEAD.as_bytes().to_vec())];
            for piece in text.as_bytes().chunks(size) {
                steps
                    .push(Step::Send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()));
            }
            steps.push(Step::Send(b"0\r\n\r\n".to_vec()));
            let mock = Mock::new(vec![steps]);
            assert_eq!(ask(&mock), ["text: ß猫👍", "usage: 9 3 0 0", "stop: end_turn"], "{name} {size}");
        }
    }
}

#[test]
fn a_silent_stream_stalls_and_comments_do_not_help() {
    let silent = begun(&format!("{START}{HALF}"), Step::UntilClosed);
    let mut commented = begun(&format!("{START}{HALF}"), Step::Send(Vec::new()));
    for _ in 0..1000 {
        commented.push(Step::Send(b"3\r\n: \n\r\n".to_vec()));
    }
    commented.push(Step::UntilClosed);
    for steps in [silent, commented] {
        let mock = Mock::new(vec![steps]);
        let mut settings = settings(Provider::Claude, &mock.url);
        settings.stall_timeout = Duration::from_millis(600);
        let model = new(settings).unwrap();
        let events = show(&run(model.as_ref(), &Lines::hello()));
        assert_eq!(events[0], "text: half");
        assert_eq!(events[1], "usage: 9 1 0 0", "what was reported counts");
        assert!(
            events[2].starts_with("failed: Network None") && events[2].ends_with("the stream is stalled"),
            "{events:?}"
        );
        assert_eq!(events.len(), 3, "a stalled stream is not asked for again");
    }
}

#[test]
fn a_cancel_wakes_a_silent_stream_a_silent_server_and_a_wait() {
    let silent_stream = begun(HALF, Step::UntilClosed);
    let silent_server = vec![Step::UntilClosed];
    let long_wait = plain("503 Busy", "Retry-After: 60\r\n", "busy");
    for (steps, seen_first) in [(silent_stream, 1), (silent_server, 0), (long_wait, 1)] {
        let mock = Mock::new(vec![steps, stream(&good("never"))]);
        let model: Arc<dyn Model> = Arc::from(new(settings(Provider::Claude, &mock.url)).unwrap());
        let cancel = Cancel::new().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let (theirs, their_cancel) = (Arc::clone(&model), cancel.clone());
        let caller = std::thread::spawn(move || {
            let window = Lines::hello();
            let request = Request { system: "", tools: "", window: &window, instruction: None, images: None };
            theirs.stream(&request, &their_cancel).map(|event| tell.send(event).unwrap()).count()
        });
        for _ in 0..seen_first {
            told.recv().unwrap();
        }
        while mock.requests().is_empty() {
            std::thread::yield_now();
        }
        cancel.cancel();
        // The test would hang here for 60 s or 300 s if the cancel did not reach it.
        assert_eq!(caller.join().unwrap(), seen_first);
        assert_eq!(mock.requests().len(), 1);
        // The model is of use afterwards.
        let again = run(model.as_ref(), &Lines::hello());
        assert_eq!(show(&again)[0], "text: never");
    }
}

#[test]
fn a_field_that_the_server_refuses_is_left_out_from_then_on() {
    let refuse =
        |word: &str| plain("400 Bad", "", &format!(r#"{{"error":{{"message":"Unknown field: {word}"}}}}"#));
    let mock = Mock::new(vec![
        refuse("cache_control"),
        refuse("output_config"),
        stream(&good("hi")),
        stream(&good("hi")),
        refuse("cache_control"),
    ]);
    let model = new(settings(Provider::Claude, &mock.url)).unwrap();
    let events = show(&run(model.as_ref(), &Lines::hello()));
    assert!(
        events[0].starts_with("warning: the server does not take `cache_control` (HTTP 400: Unknown field"),
        "{events:?}"
    );
    assert!(events[1].starts_with("warning: the server does not take `effort`"), "{events:?}");
    assert_eq!(events[2..], GOOD);
    assert_eq!(show(&run(model.as_ref(), &Lines::hello())), GOOD);
    let bodies: Vec<_> = mock
        .requests()
        .iter()
        .map(|seen| {
            (
                seen.body.contains("cache_control"),
                seen.body.contains("output_config"),
                seen.body.contains("\"thinking\""),
            )
        })
        .collect();
    assert_eq!(bodies, [(true, true, true), (false, true, true), (false, false, true), (false, false, true)]);
    // Named again although it was not sent: the error stands.
    assert!(show(&run(model.as_ref(), &Lines::hello()))[0].starts_with("failed: Rejected Some(400)"));
}

#[test]
fn what_is_no_event_stream_is_said_with_its_words() {
    let page = "<html><title>Log in to the hotel</title></html>";
    let mock = Mock::new(vec![plain("200 OK", "Content-Type: text/html\r\n", page)]);
    let events = ask(&mock);
    assert!(
        events[0].starts_with("failed: Rejected")
            && events[0].ends_with("no event stream: Log in to the hotel"),
        "{events:?}"
    );
    let mock = Mock::new(vec![
        plain("200 OK", "", r#"{"error":{"message":"down","code":503}}"#),
        stream(&good("hi")),
    ]);
    assert_eq!(ask(&mock), [&["retry: down None"], &GOOD[..]].concat());
    // No content type, or a wrong one, is no reason to ask again.
    let mock = Mock::new(vec![plain("200 OK", "Content-Type: text/plain\r\n", &good("hi"))]);
    assert_eq!(ask(&mock), GOOD);
    assert_eq!(mock.requests().len(), 1);
}

#[test]
fn figures_that_are_missing_are_guessed_and_few_read_tokens_are_suspicious() {
    let bare = good("hi").replace("\"usage\":", "\"nothing\":");
    let mock = Mock::new(vec![stream(&bare)]);
    let sent = "usage: 64 1 0 0 estimated";
    assert_eq!(ask(&mock), ["text: hi", sent, "stop: end_turn"]);

    let mock = Mock::new(vec![stream(&good("hi")), stream(&good("hi"))]);
    let model = new(settings(Provider::Claude, &mock.url)).unwrap();
    let window = Lines(vec![format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(100_000))]);
    let events = show(&run(model.as_ref(), &window));
    assert!(events[1].starts_with("warning: the server says it read 9 tokens"), "{events:?}");
    assert_eq!(show(&run(model.as_ref(), &window)), GOOD, "once is enough");
}

#[test]
fn a_gzipped_stream_is_decoded() {
    // gzip -n of a whole answer, stored (not deflated), made here so that nothing binary lies in the repository.
    let text = good("hi");
    let bytes = text.as_bytes();
    let mut zipped = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
    let len = u16::try_from(bytes.len()).unwrap();
    zipped.extend_from_slice(&len.to_le_bytes());
    zipped.extend_from_slice(&(!len).to_le_bytes());
    zipped.extend_from_slice(bytes);
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    zipped.extend_from_slice(&(!crc).to_le_bytes());
    zipped.extend_from_slice(&u32::from(len).to_le_bytes());
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", zipped.len());
    let mock = Mock::new(vec![vec![Step::Send([head.as_bytes(), &zipped].concat())]]);
    assert_eq!(ask(&mock), GOOD);
}

const CHAT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n\
                    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
const CHAT_GOOD: [&str; 3] = ["text: hi", "usage: 9 3 0 0", "stop: stop"];

#[test]
fn chat_and_responses_go_to_their_own_place_with_a_bearer_token() {
    let completed = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{}}\n\n";
    for (provider, path, events, last) in [
        (Provider::OpenAi, "/v1/chat/completions", CHAT, "stop: stop"),
        (Provider::Responses, "/v1/responses", completed, "stop: completed"),
    ] {
        let mock = Mock::new(vec![stream(events)]);
        let mut settings = settings(provider, &mock.url);
        settings.key = Some(Secret::new("sk-2"));
        let model = new(settings).unwrap();
        let seen = show(&run(model.as_ref(), &Lines::hello()));
        assert_eq!((seen[0].as_str(), seen.last().unwrap().as_str()), ("text: hi", last));
        let head = mock.requests()[0].head.to_ascii_lowercase();
        assert!(
            head.starts_with(&format!("post {path} ")) && head.contains("authorization: bearer sk-2\r\n"),
            "{head}"
        );
        assert!(!head.contains("x-api-key") && !head.contains("transfer-encoding"), "{head}");
    }
}

#[test]
fn chat_servers_are_asked_again_without_what_they_refuse() {
    let refuse = |message: &str| plain("400 Bad", "", &format!(r#"{{"detail":"{message}"}}"#));
    let table = [
        ("Unsupported parameter: stream_options", "\"stream_options\""),
        ("'max_tokens' is not supported, use 'max_completion_tokens' instead", "\"max_tokens\""),
        ("Unknown parameter: reasoning_content", "\"reasoning_content\""),
    ];
    let window = Lines::new(&[
        r#"{"role":"user","content":"a"}"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"x","name":"Read","input":{}}]}"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"y"}]}"#,
    ]);
    for (message, field) in table {
        let mock = Mock::new(vec![refuse(message), stream(CHAT), refuse(message)]);
        let model = new(settings(Provider::OpenAi, &mock.url)).unwrap();
        let events = show(&run(model.as_ref(), &window));
        assert!(events[0].starts_with("warning: the server does not take"), "{events:?}");
        assert_eq!(events[1..], CHAT_GOOD);
        let has: Vec<_> = mock.requests().iter().map(|seen| seen.body.contains(field)).collect();
        assert_eq!(has, [true, false], "{field}");
        assert!(
            show(&run(model.as_ref(), &window))[0].starts_with("failed: Rejected Some(400)"),
            "not in a loop"
        );
    }
    let mock = Mock::new(vec![refuse("max_tokens is too large: 16384")]);
    let model = new(settings(Provider::OpenAi, &mock.url)).unwrap();
    assert_eq!(
        show(&run(model.as_ref(), &window)),
        ["failed: Rejected Some(400) HTTP 400: max_tokens is too large: 16384"]
    );
}

#[test]
fn a_server_that_does_not_stream_is_understood() {
    let whole = r#"{
  "choices": [{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"hi",
    "tool_calls":[{"id":"a","type":"function","function":{"name":"Read","arguments":"{}"}}]}}],
  "usage": {"prompt_tokens":9,"completion_tokens":3}
}"#;
    let mock = Mock::new(vec![plain("200 OK", "Content-Type: application/json\r\n", whole)]);
    let model = new(settings(Provider::OpenAi, &mock.url)).unwrap();
    let expected = ["text: hi", "call: a Read {}", "usage: 9 3 0 0", "stop: tool_calls"];
    assert_eq!(show(&run(model.as_ref(), &Lines::hello())), expected);
}

#[test]
fn invented_ids_differ_from_call_to_call() {
    let events = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"Read\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n";
    let mock = Mock::new(vec![stream(events), stream(events)]);
    let model = new(settings(Provider::OpenAi, &mock.url)).unwrap();
    let ids: Vec<String> = (0..2)
        .flat_map(|_| run(model.as_ref(), &Lines::hello()))
        .filter_map(|event| if let ModelEvent::ToolCall { id, .. } = event { Some(id) } else { None })
        .collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
    assert!(
        ids.iter().all(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')),
        "{ids:?}"
    );
}

#[test]
fn a_redirect_names_its_target() {
    let mock = Mock::new(vec![plain("308 Moved", "Location: https://other/v1/messages\r\n", "")]);
    let events = ask(&mock);
    assert!(
        events[0].ends_with("/v1/messages redirects to https://other/v1/messages: use that as the base URL"),
        "{events:?}"
    );
}

#[test]
fn a_conversation_that_cannot_be_read_is_a_storage_error() {
    struct Broken;
    impl super::super::Conversation for Broken {
        fn spliced(&self) -> io::Result<(Box<dyn Read + '_>, u64)> {
            Ok((Box::new(&b"short"[..]), 100))
        }
        fn lines(&self, _: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
            Err(io::Error::other("unreadable"))
        }
    }
    let mock = Mock::new(vec![]);
    for provider in [Provider::Claude, Provider::OpenAi] {
        let model = new(settings(provider, &mock.url)).unwrap();
        let events = show(&run(model.as_ref(), &Broken));
        assert_eq!(events.len(), 1, "no retry");
        assert!(events[0].starts_with("failed: Storage None the conversation cannot be read"), "{events:?}");
    }
}

#[test]
fn a_sessions_window_is_sent_as_it_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("conversation.jsonl");
    let line = format!(r#"{{"role":"user","content":"{}"}}"#, "ü".repeat(600));
    std::fs::write(&path, format!("{line}\n").repeat(2000)).unwrap();
    let options = crate::session::window::WindowOptions { drop_unsigned: true, ..Default::default() };
    let window = crate::session::window::Window::of(std::fs::File::open(&path).unwrap(), options).unwrap();
    for provider in [Provider::Claude, Provider::OpenAi] {
        let mock = Mock::new(vec![plain("401 No", "", "no")]);
        let model = new(settings(provider, &mock.url)).unwrap();
        run(model.as_ref(), &window);
        let body = &mock.requests()[0].body;
        assert!(body.ends_with(&format!("{}]}}", vec![line.as_str(); 2000].join(","))), "{provider}");
    }
}

#[test]
fn https_to_a_server_without_tls_fails_and_says_where() {
    let mock = Mock::new(vec![]);
    let url = mock.url.replace("http://", "https://");
    let model = new(settings(Provider::Claude, &url)).unwrap();
    let events = show(&run(model.as_ref(), &Lines::hello()));
    let last = events.last().unwrap();
    assert!(last.starts_with("failed: ") && last.contains(&url), "{events:?}");
}
