//! The commands that drive a running agent, as a user types them (DESIGN "Commands", CASES I and J).
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate")]

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use bash_agent::runtime::fifo;
use bash_agent::session::{lock, paths::SessionDir};
use common::{Ran, Running, World, tape, wait_for};
use serde_json::{Value, json};

/// An agent that answers "ok" to everything.
fn agreeable(world: &World, name: &str) -> Running {
    let cassette = world.cassette("agreeable.ndjson", &tape::says("ok"));
    world.stay(name, &cassette)
}

/// The user's inputs in the archive and the conversation.
fn user_texts(dir: &SessionDir) -> Vec<String> {
    let content = [dir.archive(), dir.conversation()].map(|path| fs::read_to_string(path).unwrap()).concat();
    let values = content.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    values
        .filter(|line| line["role"] == "user")
        .filter_map(|line| Some(line["content"].as_str()?.to_owned()))
        .collect()
}

fn events(dir: &SessionDir) -> Vec<Value> {
    let content = fs::read_to_string(dir.events()).unwrap();
    content.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn ends_with(mut agent: Running, code: i32) {
    let (status, stderr) = agent.wait();
    assert_eq!(status.code(), Some(code), "{stderr}");
}

#[test]
fn send_takes_any_size_and_any_bytes() {
    let world = World::new();
    let agent = agreeable(&world, "s");
    let texts = [
        "hello".to_owned(),
        "two\nlines\twith \u{1} and \"quotes\"".to_owned(),
        "*3\r\n$3\r\nfoo\r\n".trim_end().to_owned(),
        "{\"type\":\"session_end\"}".to_owned(),
        "ü".repeat(2000),
        "x".repeat(4000),
        "y".repeat(4096),
        format!("long {}", "\u{1F600}\n-".repeat(600_000)),
        "-".to_owned() + " is no option",
    ];
    for text in &texts {
        world.run_with_input(["send", "--session", "s", "-"], text.as_bytes()).exits(0);
    }
    world.run_with_input(["send", "-"], b"bytes \xff\xfe and \0 end\n\n").exits(0);
    world.run(["send", "--session", "s", "several", "words"]).exits(0);
    world.run(["wait"]).exits(0);
    let mut expected = texts.to_vec();
    expected.push("bytes \u{fffd}\u{fffd} and \u{fffd} end".to_owned());
    expected.push("several words".to_owned());
    let got = user_texts(&world.session("s"));
    assert_eq!(got.len(), expected.len(), "{}", fs::read_to_string(world.session("s").events()).unwrap());
    for (got, expected) in got.iter().zip(&expected) {
        assert!(got == expected, "{:.60} … is not {:.60} …", got, expected);
    }
    let left: Vec<_> = fs::read_dir(world.session("s").input_dir()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    world.run_with_input(["send", "-"], b" \n").exits(2);
    world.run(["stop"]).exits(0);
    ends_with(agent, 0);
}

#[test]
fn many_senders_at_once_lose_and_mix_nothing() {
    let world = World::new();
    let agent = agreeable(&world, "s");
    let (senders, inputs) = (8, 6);
    std::thread::scope(|scope| {
        for sender in 0..senders {
            let world = &world;
            scope.spawn(move || {
                for number in 0..inputs {
                    // Around what fits into one write, and beyond.
                    let size = [10, 3900, 4096, 20_000, 70_000, 4070][number % 6];
                    let text = format!("{sender}:{number}:{}", "z".repeat(size));
                    world.run_with_input(["send", "--session", "s", "-"], text.as_bytes()).exits(0);
                }
            });
        }
    });
    world.run(["wait", "--timeout", "60"]).exits(0);
    let texts = user_texts(&world.session("s"));
    assert_eq!(texts.len(), senders * inputs);
    for sender in 0..senders {
        let mine: Vec<_> = texts.iter().filter(|text| text.starts_with(&format!("{sender}:"))).collect();
        assert_eq!(mine.len(), inputs);
        for (number, text) in mine.iter().enumerate() {
            assert!(text.starts_with(&format!("{sender}:{number}:z")) && text.ends_with('z'), "out of order");
            assert!(text.trim_end_matches('z').len() == format!("{sender}:{number}:").len(), "mixed");
        }
    }
    drop(agent);
}

#[test]
fn the_same_id_runs_once_and_its_answer_can_be_had_again() {
    let world = World::new();
    let cassette = world.cassette(
        "c",
        &[tape::says("first answer"), tape::says("second answer"), tape::says("third")].concat(),
    );
    let agent = world.stay("s", &cassette);
    let ran = world.run(["send", "--wait", "--id", "job 1", "do", "it"]).exits(0);
    assert_eq!(ran.stdout, "first answer\n");
    let ran = world.run(["send", "--wait", "--id", "job 2", "and this"]).exits(0);
    assert_eq!(ran.stdout, "second answer\n");
    let ran = world.run(["send", "--wait", "--id", "job 1", "do", "it"]).exits(0);
    assert_eq!(ran.stdout, "first answer\n");
    assert_eq!(user_texts(&world.session("s")), ["do it", "and this"]);
    // Over a restart, too.
    world.run(["stop"]).exits(0);
    ends_with(agent, 0);
    let agent = world.stay("s", &cassette);
    world.run(["send", "--id", "job 2", "and this"]).exits(0);
    world.run(["wait"]).exits(0);
    assert_eq!(user_texts(&world.session("s")).len(), 2);
    drop(agent);
}

#[test]
fn an_id_whose_turn_runs_or_was_broken_off_is_never_waited_for_in_vain() {
    let world = World::new();
    let wait = "touch began; while [ ! -e go ]; do sleep 0.01; done";
    let bash = tape::calls([tape::call("t", "Bash", json!({"command": wait}))]);
    let cassette = world.cassette("c", &[bash, tape::says("there")].concat());
    let mut agent = world.stay("s", &cassette);
    let mut first = world.start(["send", "--wait", "--id", "job", "work"]);
    wait_for("the command", || world.work().join("began").exists());
    // A second one joins the turn that runs.
    let mut second = world.start(["send", "--wait", "--id", "job", "work"]);
    assert!(second.line_within(Duration::from_millis(300)).is_err());
    fs::write(world.work().join("go"), "").unwrap();
    for sender in [&mut first, &mut second] {
        assert_eq!(sender.until("there"), "there");
        assert_eq!(sender.wait().0.code(), Some(0));
    }
    // This one is killed in its turn.
    let slow = json!({"type": "text", "content": "late", "delay_ms": 600_000}).to_string();
    let slow = world.cassette("slow", &[slow, tape::stop("end_turn")]);
    agent.kill();
    agent.wait();
    let mut agent = world.stay("s", &slow);
    world.run(["send", "--id", "job 2", "more"]).exits(0);
    agent.until("\"more\"");
    agent.kill();
    agent.wait();
    let agent = world.stay("s", &cassette);
    let ran = world.run(["send", "--wait", "--id", "job 2", "more"]).exits(3);
    assert!(ran.stderr.contains("broken off"), "{ran:?}");
    fs::write(world.work().join("go"), "").unwrap();
    world.run(["send", "--wait", "other"]).exits(0);
    world.run(["send", "--wait", "--id", "job 2", "more"]).exits(3);
    let ran = world.run(["send", "--wait", "--id", "job", "work"]).exits(0);
    assert_eq!(ran.stdout, "there\n");
    drop(agent);
}

#[test]
fn send_wait_exits_as_a_one_shot_run_would() {
    let world = World::new();
    let error = |message: &str, status: u16| {
        json!({"type": "error", "message": message, "status": status}).to_string()
    };
    let cassette = world.cassette(
        "c",
        &[
            vec![error("HTTP 401: bad key", 401)],
            tape::calls([]),
            vec![tape::text("no."), tape::stop("refusal")],
            tape::says("fine"),
        ]
        .concat(),
    );
    let _agent = world.stay("s", &cassette);
    let ran = world.run(["send", "--wait", "a"]).exits(5);
    assert!(ran.stderr.contains("bad key"), "{ran:?}");
    world.run(["send", "--wait", "b"]).exits(0);
    world.run(["send", "--wait", "c"]).exits(10);
    let ran = world.run(["send", "--wait", "d"]).exits(0);
    assert_eq!(ran.stdout, "fine\n");
}

#[test]
fn a_turn_that_takes_long_is_given_up_by_who_waits_and_ended_by_interrupt() {
    let world = World::new();
    let slow = json!({"type": "text", "content": "late", "delay_ms": 600_000}).to_string();
    let cassette = world.cassette(
        "c",
        &[
            tape::calls([tape::call("t", "Bash", json!({"command": "touch began; sleep 600"}))]),
            vec![slow, tape::stop("end_turn")],
        ]
        .concat(),
    );
    let agent = world.stay("s", &cassette);
    let ran = world.run(["send", "--wait", "--timeout", "1", "go"]).exits(124);
    assert!(ran.stderr.contains("1 s"), "{ran:?}");
    wait_for("the command", || world.work().join("began").exists());
    world.run(["wait", "--timeout", "1"]).exits(124);
    let status = world.run(["status", "--json"]).exits(0);
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!((&status["busy"], &status["pid"]), (&json!(true), &json!(agent.pid())));
    world.run(["interrupt"]).exits(0);
    world.run(["wait", "--timeout", "60"]).exits(0);
    let dir = world.session("s");
    let stop = events(&dir).into_iter().rfind(|event| event["type"] == "stop").unwrap();
    assert_eq!(stop["reason"], "interrupted");
    let conversation = fs::read_to_string(dir.conversation()).unwrap();
    assert!(conversation.contains("Error: interrupted") && conversation.contains("\"is_error\":true"));
    // Idle: nothing happens. And in a model call.
    world.run(["interrupt"]).exits(0);
    world.run(["send", "again"]).exits(0);
    agent.until("\"content\":\"again\"");
    wait_for("the turn", || dir.running_flag().exists());
    world.run(["interrupt"]).exits(0);
    world.run(["wait", "--timeout", "60"]).exits(0);
    assert!(!dir.running_flag().exists());
    world.run(["stop"]).exits(0);
    ends_with(agent, 0);
}

#[test]
fn notify_steers_the_turn_that_runs() {
    let world = World::new();
    let wait = "touch began; while [ ! -e go ]; do sleep 0.01; done";
    let cassette = world.cassette(
        "c",
        &[tape::calls([tape::call("t", "Bash", json!({"command": wait}))]), tape::says("I see")].concat(),
    );
    let agent = world.stay("s", &cassette);
    world.run(["send", "work"]).exits(0);
    wait_for("the command", || world.work().join("began").exists());
    world.run_with_input(["notify", "-"], "mind the\n\"gap\" \u{2028}\n".as_bytes()).exits(0);
    world.run(["notify", "and", "hurry"]).exits(0);
    let dir = world.session("s");
    wait_for("both remarks", || {
        fs::read(dir.notify_buf()).is_ok_and(|frames| frames.ends_with(b"and hurry\r\n"))
    });
    fs::write(world.work().join("go"), "").unwrap();
    world.run(["wait"]).exits(0);
    assert_eq!(user_texts(&dir), ["work", "mind the\n\"gap\" \u{2028}\nand hurry"]);
    let kinds: Vec<_> = events(&dir).iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "user_notify").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| *kind == "user_input").count(), 1);
    assert_eq!(kinds.iter().filter(|kind| *kind == "stop").count(), 1);
    // Idle: it starts a turn of its own.
    world.run(["notify", "anybody here?"]).exits(0);
    agent.until("\"user_notify\"");
    world.run(["wait"]).exits(0);
    assert_eq!(user_texts(&dir).last().unwrap(), "anybody here?");
    world.run(["stop"]).exits(0);
    ends_with(agent, 0);
}

#[test]
fn watchers_see_everything_once_over_a_compaction_until_the_session_ends() {
    let world = World::new();
    let dir = world.session("s");
    let draft = dir.plan_draft().display().to_string();
    let cassette = world.cassette(
        "c",
        &[
            tape::says("one"),
            tape::says("two"),
            tape::calls([tape::call("w", "Write", json!({"path": draft, "content": "the plan\n"}))]),
            tape::calls([tape::call("p", "PlanConfirm", json!({}))]),
            tape::says("a summary"),
            tape::says("three"),
        ]
        .concat(),
    );
    let agent = world.stay("s", &cassette);
    world.run(["send", "--wait", "first"]).exits(0);
    let json = ["watch", "--session", "s", "--output-format", "stream-json"];
    let mut from_now = world.start(json);
    let mut all: Vec<Running> =
        (0..2).map(|_| world.start([json.as_slice(), &["--from-start"]].concat())).collect();
    let mut human = world.start(["watch", "--from-start"]);
    human.until("one");
    // It follows once it shows something.
    let mut pings = 0;
    while from_now.line_within(Duration::from_millis(100)).is_err() {
        assert!(pings < 100, "watch shows nothing");
        pings += 1;
        fs::OpenOptions::new().append(true).open(dir.events()).unwrap();
        bash_agent::session::events::append_shared(&dir, b"{\"type\":\"error\",\"message\":\"ping\"}\n")
            .unwrap();
    }
    world.run(["send", "--wait", "second"]).exits(0);
    world.run(["send", "--wait", "third"]).exits(0);
    world.run(["stop"]).exits(0);
    ends_with(agent, 0);
    let log = fs::read_to_string(dir.events()).unwrap();
    assert!(log.contains("context_update"), "no compaction took place");
    for watcher in &mut all {
        assert_eq!(watcher.rest().join("\n") + "\n", log);
        assert_eq!(watcher.wait().0.code(), Some(0));
    }
    let rest = from_now.rest().join("\n") + "\n";
    assert!(log.ends_with(&rest) && rest.contains("\"second\"") && !rest.contains("\"first\""), "{rest}");
    assert_eq!(from_now.wait().0.code(), Some(0));
    let shown = human.rest().join("\n");
    for part in ["two", "[tool] PlanConfirm()", "Context compacted (plan_confirm).", "three"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(!shown.contains('\u{1b}'));
    assert_eq!(human.wait().0.code(), Some(0));
    // On a session that nobody runs it shows what there is and ends.
    let ran = world.run([json.as_slice(), &["--from-start"]].concat()).exits(0);
    assert_eq!(ran.stdout, log);
}

#[test]
fn a_watcher_ends_when_the_agent_is_killed() {
    let world = World::new();
    let mut agent = agreeable(&world, "s");
    world.run(["send", "--wait", "hi"]).exits(0);
    let mut watcher = world.start(["watch", "--from-start", "--output-format", "stream-json"]);
    watcher.until("\"stop\"");
    agent.kill();
    assert_eq!(watcher.rest(), Vec::<String>::new());
    assert_eq!(watcher.wait().0.code(), Some(0));
}

#[test]
fn status_sessions_path_and_export_show_a_session() {
    let world = World::new();
    let cassette = world.cassette(
        "c",
        &[
            tape::calls([
                json!({"type": "thinking", "content": "hm <i>", "signature": "c2ln"}).to_string(),
                tape::call("t", "Bash", json!({"command": "printf '<script>alert(1)</script>'"})),
            ]),
            tape::says("# Done <b>bold</b> & more"),
        ]
        .concat(),
    );
    let agent = world.stay("s", &cassette);
    world.run(["send", "--wait", "show </script> me"]).exits(0);
    world.run(["wait"]).exits(0);
    let status: Value = serde_json::from_str(&world.run(["status", "--json"]).exits(0).stdout).unwrap();
    assert_eq!((&status["running"], &status["busy"]), (&json!(true), &json!(false)));
    assert_eq!(status["stats"]["total_input_tokens"], 20);
    assert_eq!(status["stats"]["agent_request_count"], 2);
    assert!(world.run(["status"]).exits(0).stdout.contains("waiting for input"));
    let dir = world.session("s");
    for (what, path) in [
        ("dir", dir.path().to_owned()),
        ("input", dir.input_fifo()),
        ("notify", dir.notify_fifo()),
        ("events", dir.events()),
        ("conversation", dir.conversation()),
        ("stats", dir.stats()),
    ] {
        let ran = world.run(["path", what]).exits(0);
        assert_eq!(Path::new(ran.stdout.trim_end()), path);
    }
    world.run(["stop"]).exits(0);
    ends_with(agent, 0);
    let status: Value = serde_json::from_str(&world.run(["status", "--json"]).exits(0).stdout).unwrap();
    assert_eq!((&status["running"], &status["pid"]), (&json!(false), &Value::Null));
    let sessions = world.run(["sessions", "--json"]).exits(0).stdout;
    let session: Value = serde_json::from_str(sessions.trim_end()).unwrap();
    assert_eq!(session["session_id"], "s");
    assert_eq!(Path::new(session["path"].as_str().unwrap()), dir.path());
    let table = world.run(["sessions"]).exits(0).stdout;
    assert_eq!(world.run(["--list-sessions"]).exits(0).stdout, table);
    assert!(table.lines().nth(1).unwrap().starts_with("s  "), "{table}");

    let markdown = world.run(["export"]).exits(0).stdout;
    for part in ["show </script> me", "# Done <b>bold</b> & more", "<script>alert(1)</script>"] {
        assert!(markdown.contains(part), "{part} is not in {markdown}");
    }
    let html = world.run(["export", "--format", "html"]).exits(0).stdout;
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && html.contains("<details"), "{html}");
    assert!(!html.contains("<script>alert") && !html.contains("<b>bold") && !html.contains("src=\"http"));
    let array: Vec<Value> =
        serde_json::from_str(&world.run(["export", "--format", "json"]).exits(0).stdout).unwrap();
    let kinds: Vec<_> = array.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["user", "thinking", "tool_call", "tool_result", "text"]);
}

#[test]
fn a_dead_session_is_exit_3_with_a_sentence() {
    let world = World::new();
    let commands: [&[&str]; 6] =
        [&["send", "x"], &["send", "--wait", "x"], &["notify", "x"], &["interrupt"], &["stop"], &["wait"]];
    for command in commands {
        let ran = world.run(command).exits(3);
        assert!(ran.stderr.contains("no agent runs in this directory"), "{command:?}: {ran:?}");
    }
    for command in [&["watch"] as &[&str], &["status"], &["path"], &["export"]] {
        let ran = world.run(command).exits(3);
        assert!(ran.stderr.contains("no session"), "{command:?}: {ran:?}");
    }
    world.run(["sessions"]).exits(0);
    let mut agent = agreeable(&world, "dead");
    agent.kill();
    agent.wait();
    for command in commands {
        let ran = world.run([&command[..1], &["--session", "dead"], &command[1..]].concat()).exits(3);
        assert!(ran.stderr.contains("no agent runs session dead"), "{command:?}: {ran:?}");
        let ran = world.run([&command[..1], &["--session", "never"], &command[1..]].concat()).exits(3);
        assert!(ran.stderr.contains("no session never"), "{command:?}: {ran:?}");
        assert_eq!(ran.stdout, "");
    }
    world.run(["status", "--session", "dead"]).exits(0);
    // Nothing of all this has made anything.
    assert!(!world.session("never").path().exists());
    assert!(!world.session("dead").input_dir().exists());
}

#[test]
fn who_waits_for_an_agent_that_is_killed_hears_of_it() {
    let world = World::new();
    let slow = json!({"type": "text", "content": "late", "delay_ms": 600_000}).to_string();
    let cassette = world.cassette("c", &[slow, tape::stop("end_turn")]);
    let mut agent = world.stay("s", &cassette);
    let mut sender = world.start(["send", "--wait", "hi"]);
    agent.until("\"user_input\"");
    let mut waiter = world.start(["wait"]);
    agent.kill();
    let (status, stderr) = sender.wait();
    assert_eq!(status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("ended before it was done"), "{stderr}");
    // It works on nothing any more; or it was gone before the question arrived.
    assert!(matches!(waiter.wait().0.code(), Some(0 | 3)));
}

#[test]
fn a_second_agent_is_refused_and_a_fork_is_not() {
    let world = World::new();
    let agent = agreeable(&world, "s");
    world.run(["send", "--wait", "remember the milk"]).exits(0);
    let cassette = world.cassette("again", &tape::says("again"));
    let again = |more: &[&str]| {
        let cassette = cassette.to_str().unwrap();
        world.run([&["-p", "script", "-m", cassette, "--print"], more, &["hello"]].concat())
    };
    let ran = again(&["--session", "s"]).exits(4);
    assert!(ran.stderr.contains(&format!("{}", agent.pid())) && ran.stderr.contains("--fork"), "{ran:?}");
    again(&["--continue"]).exits(4);
    let ran = again(&["--session", "s", "--fork"]).exits(0);
    let start: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    let copy = world.session(start["session_id"].as_str().unwrap());
    assert_eq!(user_texts(&copy), ["remember the milk", "hello"]);
    assert_eq!(user_texts(&world.session("s")), ["remember the milk"]);
    // Many at once on a free session: one gets it.
    world.run(["stop", "--session", "s"]).exits(0);
    ends_with(agent, 0);
    let slow = json!({"type": "text", "content": "x", "delay_ms": 1500}).to_string();
    let slow = world.cassette("slow", &[slow, tape::stop("end_turn")]);
    let mut racers: Vec<Running> = (0..4)
        .map(|_| {
            world.start(["--session", "race", "-p", "script", "-m", slow.to_str().unwrap(), "--print", "hi"])
        })
        .collect();
    let mut codes: Vec<_> = racers.iter_mut().map(|racer| racer.wait().0.code().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 4, 4, 4]);
    assert_eq!(user_texts(&world.session("race")), ["hi"]);
}

/// A process of a test that outlives the agent; ended with this.
struct Orphan<'a>(&'a World);

impl Drop for Orphan<'_> {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.0.work().join("pid")).ok().and_then(|pid| pid.trim().parse().ok());
        if let Some(pid) = pid {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

#[test]
fn the_lock_dies_with_its_owner_and_no_tool_holds_it() {
    let world = World::new();
    let _orphan = Orphan(&world);
    let cassette = world.cassette(
        "c",
        &tape::calls([tape::call(
            "t",
            "Bash",
            json!({"command": "echo $$ > pid.new; mv pid.new pid; exec sleep 600"}),
        )]),
    );
    let mut agent = world.stay("s", &cassette);
    let dir = world.session("s");
    world.run(["send", "go"]).exits(0);
    wait_for("the command", || world.work().join("pid").exists());
    let tool: u32 = fs::read_to_string(world.work().join("pid")).unwrap().trim().parse().unwrap();
    #[cfg(target_os = "linux")]
    holds_nothing_of(tool, dir.path());
    agent.kill();
    agent.wait();
    assert_eq!(lock::probe(&dir), None, "somebody holds the lock of a dead agent (tool {tool})");
    let cassette = world.cassette("again", &tape::says("on"));
    let ran = world
        .run(["--session", "s", "-p", "script", "-m", cassette.to_str().unwrap(), "--print", "go on"])
        .exits(0);
    assert!(ran.stdout.contains("its outcome is unknown"), "{ran:?}");
}

#[test]
fn a_background_task_holds_neither_lock_nor_fifo() {
    let world = World::new();
    let _orphan = Orphan(&world);
    let task = json!({"command": "echo $$ > pid.new; mv pid.new pid; exec sleep 600", "background": true});
    let cassette =
        world.cassette("c", &[tape::calls([tape::call("t", "Bash", task)]), tape::says("started")].concat());
    let mut agent = world.stay("s", &cassette);
    let dir = world.session("s");
    world.run(["send", "--wait", "go"]).exits(0);
    wait_for("the task", || world.work().join("pid").exists());
    assert_eq!(fs::read_to_string(dir.active_count()).unwrap(), "1\n");
    #[cfg(target_os = "linux")]
    holds_nothing_of(
        fs::read_to_string(world.work().join("pid")).unwrap().trim().parse().unwrap(),
        dir.path(),
    );
    agent.kill();
    agent.wait();
    assert_eq!(lock::probe(&dir), None);
    world.run(["send", "--session", "s", "anyone?"]).exits(3);
    // The next agent begins with nothing open.
    let agent = world.stay("s", &world.cassette("again", &tape::says("on")));
    assert_eq!(fs::read_to_string(dir.active_count()).unwrap(), "0\n");
    world.run(["stop"]).exits(0);
    ends_with(agent, 0);
}

/// No descriptor of the process leads below `dir`.
#[cfg(target_os = "linux")]
#[track_caller]
fn holds_nothing_of(pid: u32, dir: &Path) {
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let target = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert!(!target.starts_with(dir), "a tool holds {}", target.display());
    }
}

#[test]
fn bad_names_are_usage_errors_everywhere() {
    let world = World::new();
    for name in ["a\nb", "a/b", "..", ".", "", "tab\there", "\u{2028}"] {
        let ran = world.run(["--session", name, "-p", "script", "hi"]).exits(2);
        assert!(ran.stderr.contains("bad session name"), "{name:?}: {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        for command in ["status", "watch", "stop", "export"] {
            world.run([command, "--session", name]).exits(2);
        }
        world.run(["send", "--session", name, "x"]).exits(2);
    }
    assert!(
        !world.base().path().join("projects").exists()
            || world.run(["sessions"]).stdout.starts_with("No sessions")
    );
    for name in ["with blanks and ü", "-ish but quoted"[1..].trim(), "#1; rm -rf *"] {
        let ran = world
            .run(["--session", name, "-p", "script", "-m", &said_once(&world), "--print", "hi"])
            .exits(0);
        assert!(ran.stdout.contains("end_turn"));
        assert!(world.run(["status", "--session", name]).exits(0).stdout.contains(name));
    }
}

fn said_once(world: &World) -> String {
    world.cassette("once", &tape::says("once")).display().to_string()
}

#[test]
fn what_lies_in_a_fifos_place_is_left_alone_and_named() {
    let world = World::new();
    let cassette = said_once(&world);
    let run = |name: &str| world.run(["--session", name, "-p", "script", "-m", &cassette, "--print", "hi"]);
    run("s").exits(0);
    let dir = world.session("s");
    for path in [dir.input_fifo(), dir.notify_fifo()] {
        fs::write(&path, "precious").unwrap();
        let ran = run("s").exits(11);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(ran.stderr.contains(name) && ran.stderr.contains("FIFO"), "{ran:?}");
        world.run(["send", "--session", "s", "x"]).exits(3);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }
    // A FIFO in a file's place: an error, and no waiting.
    for path in [dir.events(), dir.conversation(), dir.lock()] {
        let saved = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let ran = run("s");
        assert_ne!(ran.code, Some(0), "{}: {ran:?}", path.display());
        assert!(ran.stderr.contains(path.file_name().unwrap().to_str().unwrap()), "{ran:?}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, saved).unwrap();
    }
    run("s").exits(0);
}

#[test]
fn a_home_that_is_missing_or_vanishes_is_said() {
    let world = World::new();
    let cassette = said_once(&world);
    let run = |home: &Path, args: &[&str]| {
        let mut command = world.command(args);
        command.env("BASH_AGENT_HOME", home);
        Ran::of(command)
    };
    let gone = world.root().join("not/there/at/all");
    let agent = ["-p", "script", "-m", &cassette, "--print", "hi"];
    let ran = run(&gone, &agent).exits(11);
    assert!(ran.stderr.contains("not/there/at/all") && ran.stderr.contains("BASH_AGENT_HOME"), "{ran:?}");
    let file = world.root().join("file");
    fs::write(&file, "").unwrap();
    let ran = run(&file, &agent).exits(11);
    assert!(ran.stderr.contains("file"), "{ran:?}");
    run(&gone, &["send", "x"]).exits(3);
    run(&gone, &["sessions"]).exits(0);
    let mut command = world.command(agent);
    command.env_remove("HOME");
    let ran = Ran::of(command).exits(11);
    assert!(ran.stderr.contains("BASH_AGENT_HOME"), "{ran:?}");

    // It vanishes while an agent runs, and the agent is then told to work.
    let mut agent = world.stay("s", Path::new(&cassette));
    let dir = world.session("s");
    let input = fs::OpenOptions::new().write(true).open(dir.input_fifo()).unwrap();
    fs::remove_dir_all(world.base().path()).unwrap();
    world.run(["send", "--session", "s", "x"]).exits(3);
    nix::unistd::write(&input, b"{\"type\":\"user_input\",\"content\":\"work\"}\n").unwrap();
    let (status, stderr) = agent.wait();
    assert_eq!(status.code(), Some(11), "{stderr}");
    assert!(stderr.contains(dir.path().to_str().unwrap()), "{stderr}");
}

#[test]
fn a_session_of_somebody_else_is_not_opened() {
    if !nix::unistd::geteuid().is_root() {
        // Only root can give a directory away.
        return;
    }
    let world = World::new();
    let cassette = said_once(&world);
    let run = || world.run(["--session", "s", "-p", "script", "-m", &cassette, "--print", "hi"]);
    run().exits(0);
    let dir = world.session("s");
    std::os::unix::fs::chown(dir.path(), Some(4711), None).unwrap();
    let ran = run().exits(11);
    assert!(
        ran.stderr.contains("belongs to user 4711") && ran.stderr.contains(dir.path().to_str().unwrap()),
        "{ran:?}"
    );
}

#[test]
fn commands_never_hang_on_an_agent_that_is_stopped() {
    let world = World::new();
    let agent = agreeable(&world, "s");
    let pid = nix::unistd::Pid::from_raw(agent.pid() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let dir = world.session("s");
    // The pipe is filled up, so that nothing can be written any more.
    let full = fifo::send(&dir.input_fifo(), &vec![b'\n'; 1 << 20], Duration::from_millis(200));
    assert!(full.is_err());
    world.run(["status"]).exits(0);
    for command in [["wait", "--timeout", "1"].as_slice(), &["send", "--wait", "--timeout", "1", "hello"]] {
        let (status, stderr) = world.start(command).wait();
        assert_eq!(status.code(), Some(124), "{stderr}");
    }
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    world.run(["wait", "--timeout", "60"]).exits(0);
    drop(agent);
}

#[test]
fn a_long_list_of_sessions_is_complete_and_in_order() {
    let world = World::new();
    let cassette = said_once(&world);
    world.run(["--session", "real", "-p", "script", "-m", &cassette, "--print", "hi"]).exits(0);
    let project = world.base().project(&world.work());
    let count = 10_000;
    for number in 0..count {
        let dir = project.join(format!("20260101-000000-{number:04x}"));
        fs::create_dir(&dir).unwrap();
        let events = fs::File::create(dir.join("events.jsonl")).unwrap();
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + number);
        events.set_modified(time).unwrap();
        if number % 1000 == 0 {
            fs::write(dir.join("summary.txt"), format!("summary {number}\nmore\n")).unwrap();
        }
    }
    fs::create_dir(project.join("sub_1")).unwrap();
    fs::write(project.join("sub_1/events.jsonl"), "").unwrap();
    let table = world.run(["--list-sessions"]).exits(0).stdout;
    let names: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names.len() as u64, count + 1);
    assert_eq!(names[0], "real");
    for (index, name) in names[1..].iter().enumerate() {
        assert_eq!(*name, format!("20260101-000000-{:04x}", count - 1 - index as u64));
    }
    assert!(table.contains("summary 9000") && !table.contains("more") && !table.contains("sub_1"));
    let ndjson = world.run(["sessions", "--json"]).exits(0).stdout;
    assert_eq!(ndjson.lines().count() as u64, count + 1);
    assert!(ndjson.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}
