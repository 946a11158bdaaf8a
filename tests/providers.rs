//! The agent against model servers that fail: what is asked again, what is not, and what is left behind. The server is
//! `mock-model` on 127.0.0.1; the waits between tries are cut to a millisecond by the user's config.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate")]

mod common;

use std::fs;

use common::{Ran, World};
use mock_model::server::{After, Rule, When};
use mock_model::{Answer, Server};

fn world() -> World {
    let world = World::new();
    let dir = world.home().join(".bash-agent");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("config.toml"), "retry_base_ms = 1\n").unwrap();
    world
}

fn server(answers: &[&str]) -> Server {
    Server::with(answers.iter().map(|text| text.parse().unwrap()).collect()).unwrap()
}

fn ask(world: &World, server: &Server, provider: &str, session: &str, prompt: &str) -> Ran {
    world.run([
        "-p",
        provider,
        "--base-url",
        &server.url(),
        "--output-format",
        "text",
        "--session",
        session,
        prompt,
    ])
}

fn conversation(world: &World, session: &str) -> String {
    fs::read_to_string(world.session(session).conversation()).unwrap()
}

const APIS: [&str; 3] = ["claude", "openai", "responses"];

#[test]
fn a_retryable_status_is_asked_again_and_leaves_nothing_behind() {
    for api in APIS {
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            let world = world();
            let failed = format!("status {status}\nheader Retry-After-Ms: 1\nerror api_error Busy");
            let server = server(&[&failed, "text fine"]);
            let ran = ask(&world, &server, api, "s", "hello").exits(0);
            assert_eq!(ran.stdout.trim_end(), "fine", "{api} {status}");
            assert_eq!(server.requests().len(), 2, "{api} {status}");
            assert_eq!(conversation(&world, "s").lines().count(), 2, "{api} {status}");
        }
    }
}

#[test]
fn other_statuses_fail_at_once_with_the_servers_words_and_their_exit_code() {
    for api in APIS {
        for (status, code) in [(400, 1), (401, 5), (403, 5), (404, 1)] {
            let world = world();
            let server = server(&[&format!("status {status}\nerror some_error No such luck")]);
            let ran = ask(&world, &server, api, "s", "hello").exits(code);
            assert_eq!(ran.stdout, "", "{api} {status}");
            assert!(ran.stderr.contains("No such luck"), "{api} {status}: {}", ran.stderr);
            assert_eq!(server.requests().len(), 1, "{api} {status}");
        }
    }
}

#[test]
fn tries_are_used_up_with_the_exit_code_of_the_kind() {
    for (status, code) in [(429, 6), (503, 6), (529, 6), (500, 7), (408, 7)] {
        let world = world();
        let busy = format!("status {status}\nerror api_error Busy");
        let server = server(&[busy.as_str(); 4]);
        let ran = ask(&world, &server, "claude", "s", "hello").exits(code);
        assert_eq!(ran.stdout, "", "{status}");
        assert_eq!(server.requests().len(), 4, "{status}");
    }
}

#[test]
fn a_call_in_a_stream_that_breaks_is_run_once() {
    for api in APIS {
        for end in ["cut", "end", "error overloaded_error Busy"] {
            let world = world();
            let call = r#"tool Bash toolu_1 {"command":"echo x >> ran"}"#;
            let server = server(&[&format!("text half\n{call}\n{end}"), call, "text done"]);
            let ran = ask(&world, &server, api, "s", "go").exits(0);
            assert!(ran.stdout.trim_end().ends_with("done"), "{api} {end}: {}", ran.stdout);
            assert_eq!(fs::read_to_string(world.work().join("ran")).unwrap(), "x\n", "{api} {end}");
            assert!(!conversation(&world, "s").contains("half"), "{api} {end}");
        }
    }
}

#[test]
fn another_provider_does_not_get_the_thinking_that_the_file_keeps() {
    let world = world();
    let first = server(&["thinking deep thoughts\nsignature c2ln\ntext one"]);
    ask(&world, &first, "claude", "s", "hello").exits(0);
    let before = conversation(&world, "s");
    assert!(before.contains("deep thoughts") && before.contains("c2ln"));
    let second = server(&["text two"]);
    ask(&world, &second, "openai", "s", "more").exits(0);
    let third = server(&["text three"]);
    ask(&world, &third, "claude", "s", "and back").exits(0);
    for server in [&second, &third] {
        let body = String::from_utf8(server.requests()[0].body.clone()).unwrap();
        assert!(!body.contains("deep thoughts") && !body.contains("c2ln"), "{body}");
        assert!(body.contains("one"));
    }
    assert!(conversation(&world, "s").starts_with(&before));
}

#[test]
fn a_field_that_a_400_names_is_left_out_with_a_warning() {
    for (api, field) in [("claude", "cache_control"), ("openai", "stream_options"), ("responses", "include")]
    {
        let world = world();
        let refused = format!("status 400\nerror invalid_request_error {field}: unknown field");
        let server = server(&[&refused, "text fine"]);
        let ran = ask(&world, &server, api, "s", "hello").exits(0);
        assert_eq!(ran.stdout.trim_end(), "fine", "{api}");
        assert!(ran.stderr.contains(field), "{api}: {}", ran.stderr);
        let bodies: Vec<_> =
            server.requests().iter().map(|r| String::from_utf8(r.body.clone()).unwrap()).collect();
        let key = format!("\"{field}\":");
        assert_eq!(bodies.iter().map(|body| body.contains(&key)).collect::<Vec<_>>(), [true, false], "{api}");
    }
}

#[test]
fn a_stream_in_odd_clothes_is_one_request() {
    for api in APIS {
        for clothes in
            ["type none", "type text/plain", "split 1", "eol crlf\nsplit 7", "eol cr", "no-space", "no-done"]
        {
            let world = world();
            let server = server(&[&format!("comment warming up\ntext 好, naïve 🙂\n{clothes}")]);
            let ran = ask(&world, &server, api, "s", "hello").exits(0);
            assert_eq!(ran.stdout.trim_end(), "好, naïve 🙂", "{api} {clothes}");
            assert_eq!(server.requests().len(), 1, "{api} {clothes}");
        }
    }
}

/// Numbers that look random and are the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn two_hundred_turns_against_a_server_that_fails_one_call_in_three() {
    const FAILURES: [&str; 9] = [
        "status 429\nheader Retry-After: 0\nerror rate_limit_error Slow down",
        "status 500\nbody <html><title>Oops</title></html>\ntype text/html",
        "status 529\nerror overloaded_error Busy",
        "status 502\nbody ",
        "cut",
        "text half an ans\ncut",
        "text half\nend",
        "text half\nerror overloaded_error Busy",
        "tool Bash toolu_0 \"{\\\"command\\\":\\\"echo half \" !\ncut",
    ];
    let mut random = Random(0x5eed);
    let world = world();
    for (round, api) in APIS.iter().cycle().take(10).enumerate() {
        // Few turns a session: no compaction asks for answers of its own.
        let mut answers = Vec::new();
        for turn in 0..20 {
            let call = format!(r#"tool Bash toolu_{turn} {{"command":"echo {turn} >> ran{round}"}}"#);
            for good in [call, format!("text turn {turn} is done")] {
                // At most three in a row: the fourth try is the last.
                let failures = (0..3).take_while(|_| random.below(3) == 0).count();
                for _ in 0..failures {
                    answers.push(FAILURES[random.below(9) as usize].to_owned());
                }
                answers.push(good);
            }
        }
        let rules = answers
            .iter()
            .map(|text| Rule { when: When::Next, answer: text.parse::<Answer>().unwrap() })
            .collect();
        let server = Server::start(rules, After::Nothing).unwrap();
        let session = format!("s{round}");
        for turn in 0..20 {
            let ran = ask(&world, &server, api, &session, &format!("do {turn}")).exits(0);
            let done = format!("turn {turn} is done");
            assert!(ran.stdout.trim_end().ends_with(&done), "{api} {turn}: {}", ran.stdout);
        }
        assert_eq!(server.requests().len(), answers.len(), "{api}");
        let ran = fs::read_to_string(world.work().join(format!("ran{round}"))).unwrap();
        assert_eq!(ran, (0..20).map(|turn| format!("{turn}\n")).collect::<String>(), "{api}");
        let kept = conversation(&world, &session);
        assert_eq!(kept.lines().count(), 80, "{api}");
        assert!(!kept.contains("half"), "{api}");
    }
}
