//! Children, background tasks and results from anywhere, many at once: each is counted and delivered once and only
//! once (CASES L, issue 4). `STRESS_ROUNDS=50 cargo test --test stress` (`make soak`) repeats the largest of them.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate")]

mod common;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use bash_agent::runtime::fifo;
use bash_agent::session::{active, paths::SessionDir, stats::Stats};
use bash_agent::wire::json;
use bash_agent::wire::resp;
use common::{LIMIT, Running, World, tape, wait_for};
use mock_model::{After, Rule, Server, When};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A stand-in for a child: does what the directory `answers/<prompt>` says and leaves the files that are there.
const CHILD: &str = r#"#!/bin/sh
# PROGRAM --session sub_ID …, the prompt on stdin
dir=$STRESS_PROJECT/$2
mkdir -p "$dir" && cp "$STRESS_ANSWERS/$(cat)"/* "$dir"
if [ -n "$STRESS_RUNNING" ]; then
  mkdir "$STRESS_RUNNING/$$"
  ls "$STRESS_RUNNING" | wc -l >>"$STRESS_RUNNING.seen"
  sleep 0.05
  rmdir "$STRESS_RUNNING/$$"
fi
. "$dir/end"
"#;

/// A world whose agents start stand-ins for children.
struct Stage {
    world: World,
    dir: SessionDir,
}

impl Stage {
    fn new() -> Self {
        let world = World::new();
        let dir = world.session("parent");
        let child = world.root().join("child.sh");
        fs::write(&child, CHILD).unwrap();
        fs::set_permissions(&child, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(world.root().join("answers")).unwrap();
        Self { world, dir }
    }

    /// What the child with the prompt `name` leaves, and how it ends (shell).
    fn answer(&self, name: &str, text: &str, input: u64, requests: u64, end: &str) {
        let dir = self.world.root().join("answers").join(name);
        fs::create_dir(&dir).unwrap();
        let line = json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": text}]});
        // Key order matters: lines are known by their beginnings.
        let line = format!("{{\"role\":\"assistant\",\"content\":{}}}\n", line["content"]);
        fs::write(dir.join("conversation.jsonl"), line).unwrap();
        let stats =
            json!({"agent_request_count": requests, "total_input_tokens": input, "total_output_tokens": 1});
        fs::write(dir.join("stats.json"), format!("{stats}\n")).unwrap();
        fs::write(dir.join("end"), end).unwrap();
    }

    fn agent(&self, cassette: &[String], more: &[&str]) -> Running {
        let cassette = self.world.cassette("cassette", cassette);
        let first = ["--session", "parent", "-p", "script", "-m", cassette.to_str().unwrap(), "--print"];
        let mut command = self.world.command([&first, more].concat());
        command
            .env("BASH_AGENT_SUBAGENT", self.world.root().join("child.sh"))
            .env("STRESS_PROJECT", self.world.base().project(&self.world.work()))
            .env("STRESS_ANSWERS", self.world.root().join("answers"));
        if self.running().exists() {
            command.env("STRESS_RUNNING", self.running());
        }
        Running::start(command)
    }

    /// Where children say that they run.
    fn running(&self) -> PathBuf {
        self.world.root().join("running")
    }

    /// Waits until so many results are in the conversation and the agent has nothing more to do.
    fn settled(&self, results: usize) {
        wait_for("all results", || delivered(&self.dir).len() >= results);
        self.world.run(["wait", "--session", "parent", "--timeout", "60"]).exits(0);
    }
}

fn sub_agent(id: &str, prompt: &str) -> String {
    tape::call(id, "SubAgent", json!({"prompt": prompt, "description": "a child"}))
}

fn events(dir: &SessionDir) -> Vec<Value> {
    let content = fs::read_to_string(dir.events()).unwrap_or_default();
    // A line that is just being written has no end yet.
    content
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// How often each result is in the conversation, by its first line's id.
fn delivered(dir: &SessionDir) -> HashMap<String, usize> {
    let mut count = HashMap::new();
    for path in [dir.archive(), dir.conversation()] {
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            for line in value["content"].as_str().unwrap_or_default().lines() {
                let rest = line.strip_prefix("[sub-agent ").or_else(|| line.strip_prefix("[bg-bash "));
                if let Some((id, _)) = rest.and_then(|rest| rest.split_once(']')) {
                    *count.entry(id.to_owned()).or_default() += 1;
                }
            }
        }
    }
    count
}

/// Every result has one event and is delivered once; the stats are the sums of the `usage` events. Returns the ids.
#[track_caller]
fn counted_once(dir: &SessionDir, requests_of_children: u64) -> HashSet<String> {
    let events = events(dir);
    let results = of_type(&events, "sub_agent_result");
    let tasks = of_type(&events, "async_task_result");
    let all: Vec<String> = results
        .iter()
        .map(|event| &event["session_id"])
        .chain(tasks.iter().map(|event| &event["task_id"]))
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    let ids: HashSet<String> = all.iter().cloned().collect();
    assert_eq!(ids.len(), all.len(), "an id has two results");
    assert_eq!(of_type(&events, "sub_agent_end").len(), results.len());
    for start in of_type(&events, "sub_agent_start") {
        let of_child = events.iter().find(|event| event["session_id"] == start["session_id"]).unwrap();
        assert_eq!(of_child, start, "a child's start comes before anything else of it");
    }
    let delivered = delivered(dir);
    assert_eq!(delivered.keys().cloned().collect::<HashSet<_>>(), ids);
    assert!(delivered.values().all(|times| *times == 1), "{delivered:?}");
    let (stats, note) = Stats::load(&dir.stats()).unwrap();
    assert_eq!(note, None);
    let usage = of_type(&events, "usage");
    let sum = |key: &str| usage.iter().map(|event| event[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(stats.total_input_tokens, sum("input_tokens"));
    assert_eq!(stats.total_output_tokens, sum("output_tokens"));
    assert_eq!(stats.total_cache_read_tokens, sum("cache_read_input_tokens"));
    let of_kind = |kind: &str| usage.iter().filter(|event| event["kind"] == kind).count() as u64;
    assert_eq!(of_kind("sub_agent"), results.len() as u64);
    assert_eq!(stats.sub_agent_request_count, results.len() as u64);
    assert_eq!(stats.agent_request_count, of_kind("agent") + requests_of_children);
    assert_eq!(stats.compact_request_count, of_kind("compact"));
    ids
}

#[track_caller]
fn ends_with(mut agent: Running, code: i32) {
    let (status, stderr) = agent.wait();
    assert_eq!(status.code(), Some(code), "{stderr}");
}

/// Texts with every kind of byte that a frame, a line or a terminal could stumble over.
fn texts(count: usize) -> Vec<Vec<u8>> {
    let every: Vec<u8> = (0..=255).collect();
    let kinds: Vec<Vec<u8>> = vec![
        b"plain".to_vec(),
        every.clone(),
        b"*2\r\n$3\r\nfoo\r\n$3\r\nbar\r\n".to_vec(),
        "\u{1F600}\u{2028}\u{85}\r\n\"\\\u{feff}".as_bytes().to_vec(),
        every.repeat(4096),
        Vec::new(),
        b"{\"type\":\"user_input\",\"content\":\"no\"}\n".repeat(200),
        b"\n\n\r\r".to_vec(),
    ];
    kinds.into_iter().cycle().take(count).collect()
}

#[test]
fn twenty_children_at_once_round_after_round() {
    let rounds = std::env::var("STRESS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    for round in 0..rounds {
        let stage = Stage::new();
        let texts = texts(20);
        let mut calls = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            // The files are a child's, so they hold clean text; one in five ends badly.
            let end = ["exit 0", "exit 0", "exit 7", "kill -KILL $$", "exit 0"][number % 5];
            stage.answer(&number.to_string(), &json::clean(text), 100 + number as u64, 2, end);
            calls.push(sub_agent(&format!("c{number}"), &number.to_string()));
        }
        let cassette = [tape::calls(calls), tape::says("all are started")].concat();
        ends_with(stage.agent(&cassette, &["--max-sub-agents", "20", "start"]), 0);
        let ids = counted_once(&stage.dir, 40);
        let events = events(&stage.dir);
        let started: HashSet<String> = of_type(&events, "sub_agent_start")
            .iter()
            .map(|event| event["session_id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!((started.len(), &started), (20, &ids), "round {round}");
        let mut got: HashMap<u64, &Value> = HashMap::new();
        for event in of_type(&events, "sub_agent_result") {
            got.insert(event["input_tokens"].as_u64().unwrap() - 100, event);
        }
        for (number, text) in texts.iter().enumerate() {
            let event = got[&(number as u64)];
            let (status, text) = match number % 5 {
                2 => ("failed", "ended with code 7".into()),
                3 => ("failed", "ended with code 137".into()),
                _ => ("ok", json::clean(text)),
            };
            assert_eq!(event["status"], status, "child {number}");
            assert!(event["text"] == text.as_ref(), "child {number}");
        }
        assert!(!stage.dir.active_count().exists() && !stage.dir.notify_buf().exists());
    }
}

#[test]
fn real_children_answer_and_are_counted() {
    real_children(common::program(), common::program());
}

#[test]
fn bash_children_of_a_binary_answer_and_are_counted() {
    real_children(common::program(), common::bash_agent());
}

#[test]
fn binary_children_of_the_bash_agent_answer_and_are_counted() {
    real_children(common::bash_agent(), common::program());
}

#[test]
fn bash_children_of_the_bash_agent_answer_and_are_counted() {
    real_children(common::bash_agent(), common::bash_agent());
}

/// Tokens that the mock says it read for child `number`; the parent's calls cost the mock's usual 5010.
fn input_of(number: usize) -> u64 {
    100 + number as u64
}

/// What the mock answers: all children at the same moment, when `go` is released, with every kind of byte, one of them
/// with 1 MB; every fifth gets an error.
fn answers(count: usize) -> Vec<Rule> {
    let rule = |when: String, answer: &str| Rule { when: When::Body(when), answer: answer.parse().unwrap() };
    let mut rules = Vec::new();
    for (number, text) in texts(count).iter().enumerate() {
        let text = match number {
            4 => json::clean(text).into_owned(),
            _ => json::clean(&text[..text.len().min(4096)]).into_owned(),
        };
        let answer = match number % 5 {
            3 => "wait go\nstatus 400\nerror invalid_request_error no such thing".to_owned(),
            _ => format!(
                "wait go\ntext {}\nusage {} 2 3 1",
                json!(format!("{number}:{text}")),
                input_of(number)
            ),
        };
        rules.push(rule(format!("\"content\":\"CHILD {number}.\""), &answer));
    }
    rules.push(rule("Sub-agent started".to_owned(), "text go on"));
    let calls: Vec<String> = (0..count)
        .map(|number| {
            let input = json!({"prompt": format!("CHILD {number}."), "description": "a child"});
            format!("tool SubAgent c{number} {input}")
        })
        .collect();
    rules.push(rule("\"content\":\"PARENT\"".to_owned(), &calls.join("\n")));
    rules
}

/// Children against the mock: each result is counted and delivered once, and the totals are those of the mock's records.
fn real_children(parent: PathBuf, child: PathBuf) {
    let rounds = std::env::var("STRESS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let count = if rounds.is_some() { 20 } else { 6 };
    for round in 0..rounds.unwrap_or(1) {
        let server = Server::start(answers(count), After::Nothing).unwrap();
        let world = World::with(parent.clone());
        let mut command =
            world.command(["--session", "parent", "--max-sub-agents", "20", "--print", "PARENT"]);
        command.env("ANTHROPIC_BASE_URL", server.url()).env("BASH_AGENT_SUBAGENT", &child);
        // The Bash agent by itself, without the binary's filters.
        command.env("BASH_AGENT_CORE", "");
        let mut agent = Running::start(command);
        // The parent has asked twice, and each child once.
        assert!(server.wait_requests(count + 2, LIMIT), "round {round}");
        server.release("go");
        let (status, stderr) = agent.wait_within(LIMIT * 4);
        assert_eq!(status.code(), Some(0), "round {round}: {stderr}");

        let mut answered = 0;
        let (mut input, mut output) = (0, 0);
        let mut seen = HashSet::new();
        for request in server.requests() {
            let body = String::from_utf8(request.body).unwrap();
            let child = (0..count).find(|number| body.contains(&format!("\"content\":\"CHILD {number}.\"")));
            assert!(!request.unscripted && child.is_none_or(|number| seen.insert(number)), "round {round}");
            if child.is_none_or(|number| number % 5 != 3) {
                answered += child.map_or(0, |_| 1);
                input += child.map_or(5010, input_of);
                output += child.map_or(5, |_| 2);
            }
        }
        assert_eq!(seen.len(), count);
        let dir = world.session("parent");
        let ids = counted_once(&dir, answered);
        assert_eq!(ids.len(), count, "round {round}");
        let (stats, _) = Stats::load(&dir.stats()).unwrap();
        assert_eq!((stats.total_input_tokens, stats.total_output_tokens), (input, output), "round {round}");
        assert_eq!(
            (stats.total_cache_read_tokens, stats.total_cache_creation_tokens),
            (3 * answered, answered)
        );
        let events = events(&dir);
        let mut failed = 0;
        for event in of_type(&events, "sub_agent_result") {
            if event["status"] == "failed" {
                assert!(event["text"].as_str().unwrap().contains("no such thing"), "{event}");
                failed += 1;
                continue;
            }
            let number: usize = event["text"].as_str().unwrap().split(':').next().unwrap().parse().unwrap();
            assert_eq!(event["input_tokens"], input_of(number));
            let text = last_text(&world.session(event["session_id"].as_str().unwrap()));
            assert!(event["text"] == text.as_str(), "the text of {number}");
            assert!(number != 4 || text.len() > 1_000_000);
        }
        assert_eq!(failed, count as u64 - answered);
        for id in &ids {
            let child = world.session(id);
            assert!(!child.input_fifo().exists() && !child.notify_fifo().exists());
        }
    }
}

/// What the model said last.
fn last_text(dir: &SessionDir) -> String {
    let conversation = fs::read_to_string(dir.conversation()).unwrap();
    let line: Value = serde_json::from_str(conversation.lines().last().unwrap()).unwrap();
    line["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_limit_makes_children_wait_their_turn() {
    let stage = Stage::new();
    fs::create_dir(stage.running()).unwrap();
    stage.answer("work", "done", 1, 1, "exit 0");
    let calls = (0..7).map(|number| sub_agent(&format!("c{number}"), "work"));
    let cassette = [tape::calls(calls), tape::says("started")].concat();
    ends_with(stage.agent(&cassette, &["--max-sub-agents", "2", "start"]), 0);
    assert_eq!(counted_once(&stage.dir, 7).len(), 7);
    let seen = fs::read_to_string(stage.running().with_extension("seen")).unwrap();
    let most = seen.lines().map(|line| line.trim().parse::<u32>().unwrap()).max();
    assert!(most.is_some_and(|most| most <= 2), "{seen}");
    let events = events(&stage.dir);
    let answers: Vec<&str> =
        of_type(&events, "tool_result").iter().map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!(
        answers.iter().filter(|text| text.starts_with("Sub-agent started: ")).count(),
        2,
        "{answers:?}"
    );
    assert_eq!(
        answers.iter().filter(|text| text.starts_with("Sub-agent queued: ")).count(),
        5,
        "{answers:?}"
    );
}

#[test]
fn two_hundred_children_queue_with_few_threads_and_files() {
    let stage = Stage::new();
    fs::create_dir(stage.running()).unwrap();
    stage.answer("work", "done", 1, 1, "exit 0");
    let calls = (0..200).map(|number| sub_agent(&format!("c{number}"), "work"));
    let cassette = [tape::calls(calls), tape::says("started")].concat();
    let agent = stage.agent(&cassette, &["start"]);
    // The queue is longest when the first of its children end.
    wait_for("the first result", || of_type(&events(&stage.dir), "sub_agent_result").len() > 5);
    let (threads, files) = (entries(agent.pid(), "task"), entries(agent.pid(), "fd"));
    assert!(threads.is_none_or(|count| count < 32), "{threads:?} threads");
    assert!(files.is_none_or(|count| count < 64), "{files:?} files");
    ends_with(agent, 0);
    assert_eq!(counted_once(&stage.dir, 200).len(), 200);
}

/// How many entries a directory of /proc/PID has, where there is one.
fn entries(pid: u32, name: &str) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/{name}")).ok()?.count())
}

#[test]
fn results_from_anywhere_never_mix_and_count_once() {
    let stage = Stage::new();
    let agent = stage.agent(&tape::says("ok"), &["--stay"]);
    wait_for("the agent", || stage.dir.notify_fifo().exists());
    let (writers, each) = (5, 8);
    let sent: Vec<Vec<u8>> = texts(writers * each);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (stage, sent) = (&stage, &sent);
            scope.spawn(move || {
                for (number, text) in sent.iter().enumerate().skip(writer * each).take(each) {
                    let id = format!("sub_{number}");
                    let frame = agent_result(&id, text, "7");
                    // Every result twice, as a sender would that is not sure.
                    for _ in 0..2 {
                        fifo::send(&stage.dir.notify_fifo(), &frame, Duration::from_secs(60)).unwrap();
                    }
                    if number % each == 3 {
                        let nonsense = agent_result(&format!("sub_bad_{number}"), b"x", "-1");
                        fifo::send(&stage.dir.notify_fifo(), &nonsense, Duration::from_secs(60)).unwrap();
                        fifo::send(&stage.dir.notify_fifo(), b"*3\r\n$3\r\nnoise\n", Duration::from_secs(60))
                            .unwrap();
                    }
                }
            });
        }
    });
    stage.settled(writers * each);
    assert_eq!(fs::read_to_string(stage.dir.active_count()).unwrap(), "0\n");
    let ids = counted_once(&stage.dir, 3 * (writers * each) as u64);
    assert_eq!(ids.len(), writers * each);
    let events = events(&stage.dir);
    for event in of_type(&events, "sub_agent_result") {
        let number: usize =
            event["session_id"].as_str().unwrap().strip_prefix("sub_").unwrap().parse().unwrap();
        assert!(event["text"] == json::clean(&sent[number]).as_ref(), "the text of {number}");
    }
    let errors = of_type(&events, "error");
    let with =
        |part: &str| errors.iter().filter(|event| event["message"].as_str().unwrap().contains(part)).count();
    assert_eq!(with("a second result"), writers * each);
    assert_eq!(with("-1"), writers);
    assert_eq!(Stats::load(&stage.dir.stats()).unwrap().0.sub_agent_request_count, (writers * each) as u64);
    stage.world.run(["stop", "--session", "parent"]).exits(0);
    ends_with(agent, 0);
}

/// AGENT_RESULT as on notify.fifo, with `input` as its input tokens.
fn agent_result(id: &str, text: &[u8], input: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    let fields: [&[u8]; 10] =
        [b"AGENT_RESULT", id.as_bytes(), b"ok", b"", text, input.as_bytes(), b"2", b"0", b"0", b"3"];
    resp::encode(&fields, &mut frame);
    frame
}

#[test]
fn a_child_that_is_killed_from_outside_is_failed() {
    let stage = Stage::new();
    stage.answer("sleep", "never said", 5, 1, "touch \"$dir/ready\"; exec sleep 600");
    let calls = (0..3).map(|number| sub_agent(&format!("c{number}"), "sleep"));
    let agent = stage.agent(&[tape::calls(calls), tape::says("started")].concat(), &["--stay", "start"]);
    agent.until("\"stop\"");
    wait_for("the children", || {
        let children = active::entries(&stage.dir).unwrap();
        children.len() == 3
            && children.iter().all(|child| stage.world.session(&child.id).path().join("ready").exists())
    });
    let children = active::entries(&stage.dir).unwrap();
    assert_eq!(fs::read_to_string(stage.dir.active_count()).unwrap(), "3\n");
    for child in &children {
        kill(Pid::from_raw(child.pid as i32), Signal::SIGKILL).unwrap();
    }
    stage.settled(3);
    assert_eq!(counted_once(&stage.dir, 3).len(), 3);
    let events = events(&stage.dir);
    for event in of_type(&events, "sub_agent_result") {
        assert_eq!((&event["status"], &event["text"]), (&json!("failed"), &json!("ended with code 137")));
    }
    assert_eq!(fs::read_to_string(stage.dir.active_count()).unwrap(), "0\n");
    stage.world.run(["stop", "--session", "parent"]).exits(0);
    ends_with(agent, 0);
}

#[test]
fn children_end_when_their_parent_is_killed() {
    let stage = Stage::new();
    stage.answer("sleep", "never said", 5, 1, "exec sleep 600");
    let calls = (0..3).map(|number| sub_agent(&format!("c{number}"), "sleep"));
    let mut agent = stage.agent(&[tape::calls(calls), tape::says("started")].concat(), &["--stay", "start"]);
    agent.until("\"stop\"");
    let children = active::entries(&stage.dir).unwrap();
    assert_eq!(children.len(), 3);
    agent.kill();
    agent.wait();
    for child in &children {
        assert!(is_gone(child.pid), "{} outlives its parent", child.id);
    }
    // The next owner begins with none, and is not told anything that did not happen.
    let again = stage.world.cassette("again", &tape::says("again"));
    let again = again.to_str().unwrap();
    stage.world.run(["--session", "parent", "-p", "script", "-m", again, "--print", "go on"]).exits(0);
    assert!(delivered(&stage.dir).is_empty());
}

#[test]
fn background_tasks_end_in_time_and_say_what_they_printed() {
    let stage = Stage::new();
    let task = |number: usize, command: &str, timeout: u64| {
        let input = json!({"command": command, "background": true, "timeout": timeout});
        tape::call(&format!("t{number}"), "Bash", input)
    };
    let mut calls: Vec<String> = (0..8)
        .map(|number| task(number, &format!("printf 'n{number} \\377\\000\\r\\n'; exit {number}"), 60))
        .collect();
    calls.extend((8..11).map(|number| task(number, "printf begun; sleep 600 & sleep 600", 1)));
    ends_with(stage.agent(&[tape::calls(calls), tape::says("started")].concat(), &["start"]), 0);
    assert_eq!(counted_once(&stage.dir, 0).len(), 11);
    let events = events(&stage.dir);
    let results = of_type(&events, "async_task_result");
    for number in 0..8 {
        let part = format!("n{number} \u{fffd}\u{fffd}\r");
        let event = results.iter().find(|event| event["output"].as_str().unwrap().starts_with(&part));
        assert_eq!(event.unwrap()["exit_code"], number);
    }
    let over = results.iter().filter(|event| {
        let output = event["output"].as_str().unwrap();
        output.contains("begun") && output.contains("timed out after 1 seconds")
    });
    assert_eq!(over.count(), 3, "{results:?}");
}

#[test]
fn an_interrupt_ends_the_children_of_its_turn_and_the_end_of_the_session_all() {
    let stage = Stage::new();
    stage.answer("sleep", "never said", 5, 1, "exec sleep 600");
    let bash = tape::call("b", "Bash", json!({"command": "touch began; sleep 600"}));
    let task = tape::call("task", "Bash", json!({"command": "sleep 600", "background": true}));
    let cassette = [
        tape::calls([sub_agent("old", "sleep")]),
        tape::says("one is started"),
        tape::calls([sub_agent("new", "sleep"), sub_agent("queued", "sleep"), task, bash]),
        tape::says("on"),
    ]
    .concat();
    let agent = stage.agent(&cassette, &["--stay", "--max-sub-agents", "2", "start"]);
    agent.until("\"stop\"");
    let old = active::entries(&stage.dir).unwrap().remove(0);
    stage.world.run(["send", "--session", "parent", "more"]).exits(0);
    wait_for("the command", || stage.world.work().join("began").exists());
    let all = active::entries(&stage.dir).unwrap();
    assert_eq!(all.len(), 4);
    assert!(stage.world.run(["status"]).exits(0).stdout.contains("(queued)"));
    stage.world.run(["interrupt", "--session", "parent"]).exits(0);
    stage.settled(3);
    let left = active::entries(&stage.dir).unwrap();
    assert_eq!(left, std::slice::from_ref(&old));
    for ended in all.iter().filter(|child| child.pid > 0 && child.id != old.id) {
        assert!(is_gone(ended.pid), "{} still runs", ended.id);
    }
    stage.world.run(["stop", "--session", "parent"]).exits(0);
    ends_with(agent, 0);
    assert!(is_gone(old.pid));
    // The result of the one that the session's end ended waits for the next start, or was delivered.
    let again = stage.world.cassette("again", &tape::says("again"));
    let again = again.to_str().unwrap();
    stage.world.run(["--session", "parent", "-p", "script", "-m", again, "--print", "go on"]).exits(0);
    let ids = delivered(&stage.dir);
    assert_eq!((ids.len(), ids.values().sum::<usize>()), (4, 4), "{ids:?}");
}

/// The process has ended, or waits only for its parent to hear of it. A moment is given.
fn is_gone(pid: u32) -> bool {
    let is_zombie =
        || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(2));
        kill(Pid::from_raw(pid as i32), None).is_err() || is_zombie()
    })
}
