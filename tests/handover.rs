//! A session goes from one runtime to the other and back (DESIGN "Swapping": the agent itself). Every step is done by
//! both, from the same files: they send the same requests and leave the same files, and one of the two is kept for the
//! next step. The model is `mock-model` on 127.0.0.1.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::shape::{self, Start};
use common::{Ran, World, bash_agent, program};
use mock_model::server::{After, Rule, When};
use mock_model::{Answer, Server};
use serde_json::Value;

/// One input, what the model says to it, and whether ids of children make every run's texts its own.
struct Step {
    prompt: &'static str,
    answers: &'static [&'static str],
    has_ids: bool,
}

const fn step(prompt: &'static str, answers: &'static [&'static str]) -> Step {
    Step { prompt, answers, has_ids: false }
}

const STEPS: [Step; 12] = [
    step(
        "Hello \"there\"\\ é\u{2028}",
        &["thinking Hm.\nsignature c2ln\ntext Hello, naïve 🙂\nusage 1000 20 400 7"],
    ),
    step(
        "Look.",
        &[
            "text I look.\ntool Bash b1 {\"command\":\"printf 'a\\\\tb\\\\n'\"}\ntool Read r1 {\"path\":\"f.txt\"}",
            "text Two.",
        ],
    ),
    step(
        "Change it.",
        &[
            "tool Edit e1 {\"path\":\"f.txt\",\"old_string\":\"two\",\"new_string\":\"2\"}\ntool Edit e2 {\"path\":\"f.txt\",\"old_string\":\"none\",\"new_string\":\"\"}",
            "text Done.",
        ],
    ),
    step(
        "A list.",
        &[
            "tool TodoWrite t1 {\"todos\":[{\"content\":\"a\",\"status\":\"completed\"},{\"content\":\"b\",\"status\":\"pending\"}]}",
            "thinking Good.\nsignature c2lnMg==\ntext Listed.",
        ],
    ),
    step("Plan.", &["tool PlanConfirm p1 {}", "text Confirmed."]),
    Step {
        prompt: "Ask somebody.",
        answers: &["tool SubAgent s1 {\"prompt\":\"SUBTASK\",\"description\":\"d\"}", "text Thanks."],
        has_ids: true,
    },
    step(
        "Find.",
        &["tool Glob g1 {\"pattern\":\"*.txt\"}\ntool Grep g2 {\"pattern\":\"one\"}", "text Found."],
    ),
    step("More.", &["text One.\nusage 3000 4 5000 6"]),
    step(
        "And more.",
        &["redacted b3BhcXVl\ntool Write w1 {\"path\":\"new.txt\",\"content\":\"x\\n\"}", "text Written."],
    ),
    step("Plan again.", &["tool PlanClear p2 {}", "text Cleared."]),
    step("Fail.", &["tool Bash b2 {\"command\":\"echo no; exit 3\"}\ntool Nothing n1 {}", "text It failed."]),
    step("Bye.", &["text Bye."]),
];

/// The two runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runtime {
    Rust,
    Bash,
}

impl Runtime {
    fn other(self) -> Self {
        if self == Self::Rust { Self::Bash } else { Self::Rust }
    }

    fn command(self, world: &World, args: &[&str]) -> Command {
        let path = if self == Self::Rust { program() } else { bash_agent() };
        let mut command = world.command_of(&path, args);
        command.env("BASH_AGENT_CORE", "");
        command
    }
}

/// What a step left behind and what it asked.
struct Done {
    bodies: Vec<String>,
    /// Files that must be the same, by name.
    files: Vec<(&'static str, String)>,
    /// The home directory as it is now.
    home: PathBuf,
}

fn copy(from: &Path, to: &Path) {
    let ran = Ran::of({
        let mut command = Command::new("cp");
        command.arg("-a").arg(from).arg(to);
        command
    });
    ran.exits(0);
}

fn server(answers: &[&str]) -> Server {
    let rule = |when, text: &str| Rule { when, answer: text.parse::<Answer>().unwrap() };
    let child = r#""messages":[{"role":"user","content":"SUBTASK"#;
    let mut rules = vec![
        rule(When::Body(child.to_owned()), "text The child's answer."),
        rule(
            When::Body("It will replace the messages above".to_owned()),
            "text Task focus: what was done so far.",
        ),
    ];
    rules.extend(answers.iter().map(|text| rule(When::Next, text)));
    Server::start(rules, After::Last).unwrap()
}

/// The figures without what belongs to the moment.
fn figures(text: &str) -> String {
    let mut stats: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
    ["last_updated", "last_call_speed_tok_per_sec"].iter().for_each(|key| drop(stats.remove(*key)));
    serde_json::to_string(&stats).unwrap()
}

/// Shows where two texts part, not both of them.
#[track_caller]
fn same(what: &str, a: &str, b: &str) {
    let at = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        text.as_bytes()[at.saturating_sub(100)..text.len().min(at + 200)].escape_ascii().to_string()
    };
    assert!(a == b, "{what} part at byte {at}:\n{}\n{}", around(a), around(b));
}

struct Relay {
    world: World,
    session: String,
    start: Start,
}

impl Relay {
    fn dir(&self) -> PathBuf {
        self.world.session(&self.session).path().to_owned()
    }

    /// Does the step with one runtime, in a copy of home and work that takes their place, and puts it aside.
    fn try_by(&self, runtime: Runtime, step: &Step) -> Done {
        let (root, aside) = (self.world.root(), self.world.root().join(format!("{runtime:?}")));
        fs::create_dir(&aside).unwrap();
        for name in ["home", "work"] {
            fs::rename(root.join(name), root.join(format!("{name}.before"))).unwrap();
            copy(&root.join(format!("{name}.before")), &root.join(name));
        }
        let server = server(step.answers);
        let mut command = runtime.command(&self.world, &["--session", &self.session, step.prompt]);
        let ran = Ran::of({
            command.env("ANTHROPIC_BASE_URL", server.url());
            command
        })
        .exits(0);
        assert_eq!(ran.stderr, "", "{runtime:?}");
        let dir = self.dir();
        shape::check(&dir, &self.start)
            .unwrap_or_else(|error| panic!("{runtime:?}, {}: {error}", step.prompt));
        let text = |request: mock_model::server::Recorded| String::from_utf8(request.body).unwrap();
        let bodies = server.requests().into_iter().map(text).collect();
        let read = |name| fs::read_to_string(dir.join(name)).unwrap();
        let names =
            ["conversation.jsonl", "conversation-archive.jsonl", "summary.txt", "plan.md", "plan.draft"];
        let mut files: Vec<_> = names.into_iter().map(|name| (name, read(name))).collect();
        files.push(("stats.json", figures(&read("stats.json"))));
        for name in ["home", "work"] {
            fs::rename(root.join(name), aside.join(name)).unwrap();
            fs::rename(root.join(format!("{name}.before")), root.join(name)).unwrap();
        }
        Done { bodies, files, home: aside }
    }

    /// Both do the step; what `keeps` made of it is the session's state from then on.
    fn step(&self, step: &Step, keeps: Runtime) {
        let kept = self.try_by(keeps, step);
        let other = self.try_by(keeps.other(), step);
        let what = format!("{} ({keeps:?} / {:?})", step.prompt, keeps.other());
        let count = if step.has_ids { 1 } else { kept.bodies.len().max(other.bodies.len()) };
        assert!(
            !kept.bodies.is_empty() && (step.has_ids || kept.bodies.len() == other.bodies.len()),
            "{what}"
        );
        for (number, (a, b)) in kept.bodies.iter().zip(&other.bodies).take(count).enumerate() {
            same(&format!("request {number} of {what}"), a, b);
        }
        for body in kept.bodies.iter().chain(&other.bodies) {
            valid_request(body).unwrap_or_else(|error| panic!("{what}: {error}\n{body}"));
        }
        if !step.has_ids {
            for ((name, a), (_, b)) in kept.files.iter().zip(&other.files) {
                same(&format!("{name} after {what}"), a, b);
            }
        }
        for name in ["home", "work"] {
            fs::remove_dir_all(self.world.root().join(name)).unwrap();
            fs::rename(kept.home.join(name), self.world.root().join(name)).unwrap();
        }
        fs::remove_dir_all(kept.home).unwrap();
        fs::remove_dir_all(other.home).unwrap();
    }

    /// Both tell the same of the session.
    fn looks_the_same(&self) {
        for args in [
            &["--list-sessions"][..],
            &["watch", "--from-start", "--session", &self.session],
            &["export", "--session", &self.session],
            &["path", "events", "--session", &self.session],
        ] {
            let [rust, bash] = [Runtime::Rust, Runtime::Bash]
                .map(|runtime| Ran::of(runtime.command(&self.world, args)).exits(0).stdout);
            same(&format!("{args:?}"), &rust, &bash);
        }
    }
}

/// What the Anthropic API asks of the messages of a request.
fn valid_request(body: &str) -> Result<(), String> {
    let body: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let messages = body["messages"].as_array().ok_or("no messages")?;
    if messages.first().is_none_or(|first| first["role"] != "user") {
        return Err("the first message is not the user's".to_owned());
    }
    let mut open: Vec<&Value> = Vec::new();
    let mut seen: Vec<&Value> = Vec::new();
    for message in messages {
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let blank = |text: &Value| text.as_str().is_some_and(|text| text.trim().is_empty());
        if blank(&message["content"]) || (message["content"].is_array() && blocks.is_empty()) {
            return Err(format!("an empty message: {message}"));
        }
        let results: Vec<&Value> = blocks
            .iter()
            .take_while(|block| block["type"] == "tool_result")
            .map(|block| &block["tool_use_id"])
            .collect();
        if results != open {
            return Err(format!("calls {open:?} are answered by {results:?}"));
        }
        open = blocks.iter().filter(|block| block["type"] == "tool_use").map(|block| &block["id"]).collect();
        if message["role"] != "assistant" && !open.is_empty() {
            return Err(format!("a call of the user: {message}"));
        }
        if open.iter().any(|id| seen.contains(id)) {
            return Err(format!("an id that was used before: {message}"));
        }
        seen.extend(&open);
        for block in blocks {
            if block["type"] == "text" && blank(&block["text"]) {
                return Err(format!("an empty text: {message}"));
            }
            if block["type"] == "thinking" && block["signature"].as_str().is_none_or(str::is_empty) {
                return Err(format!("thinking without a signature: {message}"));
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err("the last calls have no answer".to_owned()) }
}

fn world() -> World {
    let world = World::new();
    fs::write(world.work().join("f.txt"), "one\ntwo\n").unwrap();
    world
}

/// The session's whole life, the runtimes taking turns; `first` begins.
fn relay(first: Runtime) {
    let relay = Relay { world: world(), session: "relay".to_owned(), start: Start::default() };
    let mut keeps = first;
    for step in &STEPS {
        if step.prompt == "Plan." {
            fs::write(relay.dir().join("plan.draft"), "Do \"this\".\n").unwrap();
        }
        relay.step(step, keeps);
        keeps = keeps.other();
    }
    relay.looks_the_same();
    let dir = relay.dir();
    let archive = fs::read_to_string(dir.join("conversation-archive.jsonl")).unwrap();
    assert!(archive.contains("Hello"), "no compaction dropped the first turn: {archive}");
    let events = fs::read_to_string(dir.join("events.jsonl")).unwrap();
    assert!(events.matches("\"type\":\"context_update\"").count() >= 2, "both runtimes compacted");
}

#[test]
fn ten_times_from_one_to_the_other_begun_by_the_binary() {
    relay(Runtime::Rust);
}

#[test]
fn ten_times_from_one_to_the_other_begun_by_the_bash_agent() {
    relay(Runtime::Bash);
}

/// Sessions that the Bash agent in use today wrote go on here, handed over after each turn.
fn upstream(part: usize) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/upstream-sessions");
    let mut sessions: Vec<_> = fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()).collect();
    sessions.retain(|path| path.is_dir());
    sessions.sort();
    assert!(sessions.len() >= 7, "{sessions:?}");
    for (number, fixture) in sessions.iter().enumerate().filter(|(number, _)| number % 2 == part) {
        let world = world();
        let name = fixture.file_name().unwrap().to_str().unwrap().to_owned();
        let dir = world.session(&name).path().to_owned();
        fs::create_dir_all(dir.parent().unwrap()).unwrap();
        copy(fixture, &dir);
        let relay = Relay { world, session: name, start: Start::of(&dir) };
        relay.looks_the_same();
        let first = if number % 4 < 2 { Runtime::Rust } else { Runtime::Bash };
        relay.step(&STEPS[1], first);
        relay.step(&STEPS[9], first.other());
        relay.looks_the_same();
    }
}

#[test]
fn sessions_of_the_agent_in_use_today_go_on_in_both() {
    upstream(0);
}

#[test]
fn sessions_of_the_agent_in_use_today_go_on_in_both_too() {
    upstream(1);
}
