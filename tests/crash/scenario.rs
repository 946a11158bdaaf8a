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
use crate::power::{self, Disk};

pub(crate) const NAME: &str = "crash";
pub(crate) const PLAN: &str = "1. look\n2. mend\n";
pub(crate) const SUMMARIES: [&str; 2] = ["Summary one: all went well.", "Summary two: still well."];
pub(crate) const REMARK: &str = "steer left, please";
pub(crate) const CHILD: &str = "sub_from_elsewhere";
pub(crate) const LAST_WORDS: [&str; 2] = ["bye", "recovered"];

/// Who is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Binary,
    Bash,
}

/// How a call is disturbed (tracer.c), and for a power cut what the disk keeps (power.rs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    KillBefore,
    KillHalf,
    KillAfter,
    /// Only the Bash agent itself: its helpers go on.
    KillMain,
    NoSpaceOnce,
    NoSpaceFromHere,
    IoErrorOnce,
    ReadOnlyFromHere,
    Power(Disk),
}

impl Mode {
    pub(crate) const ALL: [Self; 10] = [
        Self::KillBefore,
        Self::NoSpaceOnce,
        Self::Power(Disk::Strict),
        Self::KillHalf,
        Self::NoSpaceFromHere,
        Self::Power(Disk::Short),
        Self::KillAfter,
        Self::IoErrorOnce,
        Self::Power(Disk::Zeros),
        Self::ReadOnlyFromHere,
    ];

    pub(crate) const IN_BASH: [Self; 7] = [
        Self::KillBefore,
        Self::Power(Disk::Strict),
        Self::KillHalf,
        Self::KillMain,
        Self::Power(Disk::Short),
        Self::KillAfter,
        Self::Power(Disk::Zeros),
    ];

    pub(crate) const EVERY: [Self; 11] = [
        Self::KillBefore,
        Self::KillHalf,
        Self::KillAfter,
        Self::KillMain,
        Self::NoSpaceOnce,
        Self::NoSpaceFromHere,
        Self::IoErrorOnce,
        Self::ReadOnlyFromHere,
        Self::Power(Disk::Strict),
        Self::Power(Disk::Short),
        Self::Power(Disk::Zeros),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillBefore => "kill-before",
            Self::KillHalf => "kill-half",
            Self::KillAfter => "kill-after",
            Self::KillMain => "main-before",
            Self::NoSpaceOnce => "enospc-once",
            Self::NoSpaceFromHere => "enospc-on",
            Self::IoErrorOnce => "eio-once",
            Self::ReadOnlyFromHere => "erofs-on",
            Self::Power(Disk::Strict) => "power-strict",
            Self::Power(Disk::Short) => "power-short",
            Self::Power(Disk::Zeros) => "power-zeros",
        }
    }

    /// As the tracer knows it. The Bash agent is many processes, which die together.
    fn of_tracer(self, victim: Victim) -> &'static str {
        match (self, victim) {
            (Self::Power(_), _) | (Self::KillBefore, Victim::Bash) => "all-before",
            (Self::KillHalf, Victim::Bash) => "all-half",
            (Self::KillAfter, Victim::Bash) => "all-after",
            _ => self.name(),
        }
    }

    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::KillBefore | Self::KillHalf | Self::KillAfter | Self::KillMain | Self::Power(_))
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
    pub(crate) victim: Victim,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CRASH_POINT={}:{}", self.mode.name(), self.number)?;
        let last = match self.victim {
            Victim::Bash => ":victim",
            Victim::Binary if self.in_bash => ":bash",
            Victim::Binary => "",
        };
        write!(f, ":{}{last}", self.again.unwrap_or(0))
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
pub(crate) fn play(tracer: &Path, victim: Victim, point: Option<Point>) -> (Vec<String>, Vec<String>) {
    let world = World::new();
    let dir = world.session(NAME);
    let trace = Trace { tracer, below: world.base().path().to_owned(), root: world.root().to_owned() };
    fs::create_dir(trace.shadow()).unwrap();
    let mode = point.map_or("count", |point| point.mode.of_tracer(victim));
    let command =
        trace.of(&agent(&world, &dir, victim), mode, point.map_or(0, |point| point.number), "calls");
    let mut agent = Running::start(command);
    let acknowledged = drive(&world, &dir, &agent);
    let (status, stderr) = agent.wait();
    let log = fs::read_to_string(world.root().join("calls")).unwrap();
    let calls: Vec<String> = log.lines().map(str::to_owned).collect();
    let mut problems = Vec::new();
    match point {
        Some(point) if calls.len() < point.number => return (calls, problems),
        Some(point) if !point.mode.kills() => {
            problems.extend(check::failed_well(point, &calls, status, &stderr, &dir));
        }
        Some(_) if status.signal() != Some(9) => problems.push(format!("it was not killed: {status}")),
        None if !status.success() => problems.push(format!("{status}: {stderr}")),
        _ => {}
    }
    let mut cut = false;
    if let Some(Mode::Power(disk)) = point.map(|point| point.mode) {
        cut = true;
        power::cut(&trace.below, &trace.shadow(), disk);
    }
    let before = Before::read(&dir, cut.then_some(acknowledged));
    if let Some(number) = point.and_then(|point| point.again) {
        let cassette = world.cassette("killed.ndjson", &tape::says(LAST_WORDS[1]));
        let mut command = world.command(["--session", NAME, "-p", "script", "--print", "killed again", "-m"]);
        command.arg(cassette);
        Ran::of(trace.of(&command, "kill-half", number, ""));
    }
    let in_bash = victim == Victim::Bash || point.is_some_and(|point| point.in_bash);
    let goes_on_in_bash = point.is_some_and(|point| point.in_bash || (in_bash && point.number % 2 == 0));
    let ran = if goes_on_in_bash { Ran::of(next_run(&world, bash_agent())) } else { go_on(&world) };
    problems.extend(check::reopened(&world, &dir, &before, &ran, (point.is_none(), in_bash)));
    if !problems.is_empty() {
        problems.push(format!("stderr of the disturbed run: {stderr:?}"));
        keep(&world, &dir);
    }
    (calls, problems)
}

/// How a command is run under the tracer.
struct Trace<'a> {
    tracer: &'a Path,
    below: PathBuf,
    root: PathBuf,
}

impl Trace<'_> {
    /// Where the tracer keeps what is sure to be on the disk.
    fn shadow(&self) -> PathBuf {
        self.root.join("shadow")
    }

    /// `log`: a file of the world for the calls, or none.
    fn of(&self, command: &Command, mode: &str, number: usize, log: &str) -> Command {
        let mut traced = Command::new(self.tracer);
        let log = if log.is_empty() { PathBuf::new() } else { self.root.join(log) };
        traced.arg(&self.below).args([mode, &number.to_string()]).arg(log).arg(self.shadow());
        traced.arg(command.get_program()).args(command.get_args()).env_clear();
        traced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        traced.current_dir(command.get_current_dir().unwrap()).stdin(std::process::Stdio::null());
        traced
    }
}

/// The agent at the beginning of the scenario.
fn agent(world: &World, dir: &SessionDir, victim: Victim) -> Command {
    let draft = dir.plan_draft().display().to_string();
    let lines: Vec<String> = cassette().iter().map(|line| line.replace("@DRAFT@", &draft)).collect();
    let cassette = world.cassette("cassette.ndjson", &lines);
    let program = match victim {
        Victim::Binary => program(),
        Victim::Bash => bash_agent(),
    };
    let arguments = ["--stay", "--session", NAME, "-p", "script", "--print", "-m"];
    let mut command = world.command_of(&program, arguments);
    // The Bash agent by itself, without the binary's filters.
    command.arg(&cassette).arg("the first task").env("BASH_AGENT_CORE", "");
    command
}

/// A session that was played to its end, for damages.
pub(crate) fn whole() -> World {
    let world = World::new();
    let dir = world.session(NAME);
    let mut agent = Running::start(agent(&world, &dir, Victim::Binary));
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

/// Gives the agent its next input whenever a turn has ended, until it is gone. Returns the inputs whose turns were seen
/// to end: they are acknowledged.
fn drive(world: &World, dir: &SessionDir, agent: &Running) -> Vec<String> {
    let mut turns = 0;
    let (mut acknowledged, mut input) = (Vec::new(), None);
    loop {
        // A fault can take away what a step waits for; then the next one is due.
        let line = match agent.line_within(Duration::from_secs(5)) {
            Ok(Some(line)) => line,
            Ok(None) => return acknowledged,
            Err(()) => r#"{"type":"stop""#.to_owned(),
        };
        if line.starts_with(r#"{"type":"tool_call","name":"Bash","id":"wait""#) {
            steer(world, dir);
        }
        if line.starts_with(r#"{"type":"user_input""#) {
            let event: serde_json::Value = serde_json::from_str(&line).unwrap();
            input = event["content"].as_str().map(str::to_owned);
        }
        if line.starts_with(r#"{"type":"stop""#) {
            acknowledged.extend(input.take());
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
fn steer(world: &World, dir: &SessionDir) {
    send(&dir.notify_fifo(), Channel::Notify, &Message::UserNotify { text: REMARK.to_owned() });
    let mut looks = 0;
    wait_for("the remark", || {
        looks += 1;
        let arrived = fs::metadata(dir.notify_buf()).is_ok_and(|file| file.len() > 0);
        arrived || looks > 2000 || bash_agent::session::lock::probe(dir).is_none()
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
