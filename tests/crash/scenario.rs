//! The session that is disturbed: several turns with every way to write, driven from outside over the FIFOs.

use std::fmt;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bash_agent::runtime::fifo;
use bash_agent::session::paths::SessionDir;
use bash_agent::wire::message::{AgentResult, Channel, Message, Usage};
use serde_json::json;

use crate::check::{self, Before};
use crate::common::{Ran, Running, World, bash_agent, program, tape, wait_for};

pub(crate) const NAME: &str = "crash";
pub(crate) const PLAN: &str = "1. look\n2. mend\n";
pub(crate) const SUMMARIES: [&str; 2] = ["Summary one: all went well.", "Summary two: still well."];
pub(crate) const REMARK: &str = "steer left, please";
pub(crate) const CHILD: &str = "sub_from_elsewhere";
pub(crate) const LAST_WORDS: [&str; 2] = ["bye", "recovered"];

/// How a call is disturbed (shim.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    KillBefore,
    KillHalf,
    KillAfter,
    NoSpaceOnce,
    NoSpaceFromHere,
    IoErrorOnce,
    ReadOnlyFromHere,
}

impl Mode {
    pub(crate) const ALL: [Self; 7] = [
        Self::KillBefore,
        Self::NoSpaceOnce,
        Self::KillHalf,
        Self::NoSpaceFromHere,
        Self::KillAfter,
        Self::IoErrorOnce,
        Self::ReadOnlyFromHere,
    ];

    /// As the shim knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillBefore => "kill-before",
            Self::KillHalf => "kill-half",
            Self::KillAfter => "kill-after",
            Self::NoSpaceOnce => "enospc-once",
            Self::NoSpaceFromHere => "enospc-on",
            Self::IoErrorOnce => "eio-once",
            Self::ReadOnlyFromHere => "erofs-on",
        }
    }

    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::KillBefore | Self::KillHalf | Self::KillAfter)
    }
}

/// Which call is disturbed, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) mode: Mode,
    pub(crate) number: usize,
    /// The next start is killed at this call, while it puts things right.
    pub(crate) again: Option<usize>,
    /// The Bash agent goes on with the session.
    pub(crate) in_bash: bool,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CRASH_POINT={}:{}", self.mode.name(), self.number)?;
        write!(f, ":{}{}", self.again.unwrap_or(0), if self.in_bash { ":bash" } else { "" })
    }
}

/// What the model says, response by response.
fn cassette() -> Vec<String> {
    let bash = |id: &str, command: &str| tape::call(id, "Bash", json!({"command": command}));
    let signed = json!({"type": "thinking", "content": "hm", "signature": "c2lnbmVk"}).to_string();
    let background =
        json!({"command": "while [ ! -e go ]; do sleep 0.01; done; printf 'a\\nb'", "background": true});
    [
        tape::calls([
            signed,
            tape::text("I write."),
            tape::call("write", "Write", json!({"path": "notes.txt", "content": "one\n"})),
            bash("say", "printf 'x\\ty\\001'"),
        ]),
        tape::says("written"),
        tape::calls([
            tape::call(
                "edit",
                "Edit",
                json!({"path": "notes.txt", "old_string": "one", "new_string": "two"}),
            ),
            tape::call("task", "Bash", background),
        ]),
        tape::says("it runs"),
        tape::says("the task is done"),
        tape::says("the child is done"),
        tape::calls([tape::call("draft", "Write", json!({"path": "@DRAFT@", "content": PLAN}))]),
        tape::calls([tape::call("confirm", "PlanConfirm", json!({}))]),
        tape::says(SUMMARIES[0]),
        tape::says("the plan stands"),
        tape::calls([bash("wait", "while [ ! -e go2 ]; do sleep 0.01; done")]),
        tape::says("I steer left"),
        tape::calls([tape::call("clear", "PlanClear", json!({}))]),
        tape::says(SUMMARIES[1]),
        tape::says(LAST_WORDS[0]),
    ]
    .concat()
}

/// Plays the session, disturbed at `point`, then opens it again as a user would. Returns the calls that were counted
/// and what is wrong.
pub(crate) fn play(shim: &Path, point: Option<Point>) -> (Vec<String>, Vec<String>) {
    let world = World::new();
    let dir = world.session(NAME);
    let log = world.root().join("calls");
    let mut command = agent(&world, &dir);
    command
        .env("LD_PRELOAD", shim)
        .env("CRASH_BELOW", world.base().path())
        .env("CRASH_LOG", &log)
        .env("CRASH_MODE", "count");
    if let Some(point) = point {
        disturb(&mut command, &world, shim, point.mode, point.number);
    }
    let mut agent = Running::start(command);
    drive(&world, &dir, &agent);
    let (status, stderr) = agent.wait();
    let calls: Vec<String> =
        fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect();
    let mut problems = Vec::new();
    let reached = point.is_some_and(|point| calls.len() >= point.number);
    match point {
        Some(point) if point.mode.kills() && reached && status.signal() == Some(9) => {}
        Some(point) if point.mode.kills() && reached => problems.push(format!("it was not killed: {status}")),
        Some(point) if reached => problems.extend(check::failed_well(point, &calls, status, &stderr, &dir)),
        _ if !status.success() => problems.push(format!("{status}: {stderr}")),
        _ => {}
    }
    let before = Before::read(&dir);
    if let Some(number) = point.and_then(|point| point.again) {
        let cassette = world.cassette("killed.ndjson", &tape::says(LAST_WORDS[1]));
        let mut command = world.command(["--session", NAME, "-p", "script", "--print", "killed again", "-m"]);
        disturb(command.arg(cassette), &world, shim, Mode::KillHalf, number);
        Ran::of(command);
    }
    let in_bash = point.is_some_and(|point| point.in_bash);
    let ran = if in_bash { Ran::of(next_run(&world, bash_agent())) } else { go_on(&world) };
    problems.extend(check::reopened(&world, &dir, &before, &ran, (point.is_none(), in_bash)));
    if !problems.is_empty() {
        problems.push(format!("stderr of the disturbed run: {stderr:?}"));
        keep(&world, &dir);
    }
    (calls, problems)
}

fn disturb(command: &mut Command, world: &World, shim: &Path, mode: Mode, number: usize) {
    command
        .env("LD_PRELOAD", shim)
        .env("CRASH_BELOW", world.base().path())
        .env("CRASH_MODE", mode.name())
        .env("CRASH_AT", number.to_string());
}

/// The agent at the beginning of the scenario.
fn agent(world: &World, dir: &SessionDir) -> Command {
    let draft = dir.plan_draft().display().to_string();
    let lines: Vec<String> = cassette().iter().map(|line| line.replace("@DRAFT@", &draft)).collect();
    let cassette = world.cassette("cassette.ndjson", &lines);
    let mut command = world.command(["--stay", "--session", NAME, "-p", "script", "--print", "-m"]);
    command.arg(&cassette).arg("the first task");
    command
}

/// A session that was played to its end, for damages.
pub(crate) fn whole() -> World {
    let world = World::new();
    let dir = world.session(NAME);
    let mut agent = Running::start(agent(&world, &dir));
    drive(&world, &dir, &agent);
    let (status, stderr) = agent.wait();
    assert!(status.success(), "{stderr}");
    world
}

/// Opens the session again and does one turn.
pub(crate) fn go_on(world: &World) -> Ran {
    Ran::of(next_run(world, program()))
}

/// The next turn of the session, by either agent.
fn next_run(world: &World, program: PathBuf) -> Command {
    let again = world.cassette("again.ndjson", &tape::says(LAST_WORDS[1]));
    let again = again.to_str().unwrap();
    let arguments = ["--session", NAME, "-p", "script", "-m", again, "--print", "after the crash"];
    // The Bash agent by itself, without the binary's filters.
    let mut command = world.command_of(&program, arguments);
    command.env("BASH_AGENT_CORE", "");
    command
}

/// With CRASH_KEEP=DIR a session that failed is copied there.
fn keep(world: &World, dir: &SessionDir) {
    let Some(target) = std::env::var_os("CRASH_KEEP") else { return };
    let name = world.root().file_name().unwrap();
    let _ = Command::new("cp").arg("-a").arg(dir.path()).arg(Path::new(&target).join(name)).status();
}

/// Gives the agent its next input whenever a turn has ended, until it is gone.
fn drive(world: &World, dir: &SessionDir, agent: &Running) {
    let mut turns = 0;
    loop {
        // A fault can take away what a step waits for; then the next one is due.
        let line = match agent.line_within(Duration::from_secs(5)) {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(()) => r#"{"type":"stop""#.to_owned(),
        };
        if line.starts_with(r#"{"type":"tool_call","name":"Bash","id":"wait""#) {
            steer(world, dir, agent);
        }
        if line.starts_with(r#"{"type":"stop""#) {
            turns += 1;
            assert!(turns < 20, "the agent does not end");
            next_step(world, dir, turns);
        }
    }
}

fn next_step(world: &World, dir: &SessionDir, turns: usize) {
    let input = |bytes: &[u8]| drop(fifo::send(&dir.input_fifo(), bytes, Duration::from_secs(5)));
    match turns {
        1 => input(b"{\"type\":\"user_input\",\"content\":\"the second task\",\"id\":\"in-1\"}\n"),
        2 => fs::write(world.work().join("go"), "").unwrap(),
        3 => send(&dir.notify_fifo(), Channel::Notify, &child_result()),
        4 => {
            let long = format!("the third task {}", "é\n".repeat(3000));
            world.run_with_input(["send", "--session", NAME, "--id", "in-2", "-"], long.as_bytes());
        }
        5 => input(b"{\"type\":\"user_input\",\"content\":\"the fourth task\",\"id\":\"in-3\"}\n"),
        6 => input(b"the fifth task\n"),
        _ => send(&dir.input_fifo(), Channel::Input, &Message::SessionEnd { code: None }),
    }
}

/// A remark for the turn that runs; its tool waits until the remark has arrived.
fn steer(world: &World, dir: &SessionDir, agent: &Running) {
    send(&dir.notify_fifo(), Channel::Notify, &Message::UserNotify { text: REMARK.to_owned() });
    let mut looks = 0;
    wait_for("the remark", || {
        looks += 1;
        let arrived = fs::metadata(dir.notify_buf()).is_ok_and(|file| file.len() > 0);
        arrived || looks > 200 || bash_agent::session::lock::probe(dir) != Some(agent.pid())
    });
    fs::write(world.work().join("go2"), "").unwrap();
}

fn send(path: &Path, channel: Channel, message: &Message) {
    let mut frame = Vec::new();
    message.encode(channel, &mut frame);
    // An agent that is gone takes nothing.
    let _ = fifo::send(path, &frame, Duration::from_secs(5));
}

fn child_result() -> Message {
    Message::AgentResult(AgentResult {
        session_id: CHILD.to_owned(),
        ok: true,
        thinking: "deep".to_owned(),
        text: "from elsewhere".to_owned(),
        usage: Usage { input: 100, output: 50, ..Usage::default() },
        requests: 3,
    })
}
