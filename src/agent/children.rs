//! Sub-agents and background tasks (CONTRACT §7, "Children"): each has a thread that waits for it and, however it
//! ended, writes one result frame to notify.fifo. The notify reader does the rest.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::sub_result;
use crate::runtime::cancel::Cancel;
use crate::runtime::fifo;
use crate::runtime::inbox::Event as Happening;
use crate::session::events::{self, Event};
use crate::session::paths::SessionDir;
use crate::session::time::Timestamp;
use crate::session::{StorageError, active};
use crate::tools;
use crate::wire::message::{Channel, Message};

/// How long a child gets between TERM and KILL.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// How long a result waits for the FIFO, or its lock, before its writer says so and tries on.
const PATIENCE: Duration = Duration::from_secs(5);

/// How children are started: the same for all of them.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The agent to run.
    pub program: PathBuf,
    /// Provider, model and limits, as flags.
    pub arguments: Vec<OsString>,
    /// Added to the environment: keys given by flag or file, the permission mode.
    pub environment: Vec<(String, OsString)>,
    /// The working directory.
    pub cwd: PathBuf,
    /// Most sub-agents running at once.
    pub limit: usize,
}

/// A sub-agent to be started.
#[derive(Clone, Debug)]
pub struct SubAgent {
    /// `sub_<id>`.
    pub dir: SessionDir,
    /// Its input.
    pub prompt: String,
    /// For people.
    pub description: String,
    /// It starts from a copy of the conversation.
    pub fork: bool,
    /// What is left of the run's budget, as flags.
    pub budget: Vec<String>,
}

enum Ends {
    /// A process: TERM, then KILL.
    Process(Pid),
    /// A command that ends itself when cancelled.
    Task(Cancel),
}

struct Open {
    id: String,
    /// Number of the turn that started it.
    turn: u64,
    ends: Ends,
}

/// The children and tasks of this agent that run or wait for their turn.
pub struct Children {
    launch: Launch,
    notify_fifo: PathBuf,
    events: SessionDir,
    sender: SyncSender<Happening>,
    running: Vec<Open>,
    waiting: VecDeque<(u64, SubAgent)>,
}

impl Children {
    /// None yet; results go to `session`'s notify.fifo.
    pub fn new(launch: Launch, session: &SessionDir, sender: SyncSender<Happening>) -> Self {
        Self {
            launch,
            notify_fifo: session.notify_fifo(),
            events: session.clone(),
            sender,
            running: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Children to come are started so.
    pub fn set_launch(&mut self, launch: Launch) {
        self.launch = launch;
    }

    /// Whether any runs, or waits for its turn.
    pub fn any(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty()
    }

    fn sub_agents(&self) -> usize {
        self.running.iter().filter(|open| matches!(open.ends, Ends::Process(_))).count()
    }

    /// Counts the child. Returns whether there is a place for it, so that it is to be started; else it waits its turn.
    pub fn admit(&mut self, turn: u64, child: &SubAgent) -> Result<bool, StorageError> {
        active::add(&self.events, &child.dir.name(), 0)?;
        let has_place = self.has_place();
        if !has_place {
            self.waiting.push_back((turn, child.clone()));
        }
        Ok(has_place)
    }

    /// The next that waits, with its turn, when there is a place for it: it is to be started.
    pub fn next_waiting(&mut self) -> Option<(u64, SubAgent)> {
        if self.has_place() { self.waiting.pop_front() } else { None }
    }

    fn has_place(&self) -> bool {
        self.sub_agents() < self.launch.limit
    }

    /// Starts a child that has a place; returns its pid, 0 when it could not be started (its result says why).
    pub fn start(&mut self, turn: u64, child: SubAgent) -> Result<u32, StorageError> {
        let id = child.dir.name();
        let (spawned, is_spawned) = std::sync::mpsc::sync_channel(1);
        let (launch, fifo, sender) = (self.launch.clone(), self.notify_fifo.clone(), self.sender.clone());
        // The thread that starts a child must live as long as the child: a parent-death signal is bound to it.
        let run = move || {
            let status = match spawn(&launch, &child) {
                Ok(mut process) => {
                    let _ = spawned.send(process.id());
                    feed(process.stdin.take(), &child.prompt);
                    process.wait()
                }
                Err(error) => {
                    let _ = spawned.send(0);
                    Err(error)
                }
            };
            let ok = status.as_ref().is_ok_and(ExitStatus::success);
            let code = status.map_or_else(|error| error.to_string(), |status| exit_code(status).to_string());
            let result = sub_result::of(&child.dir, ok, &code);
            deliver(&fifo, &child.dir, &Message::AgentResult(result), &sender);
            let _ = sender.send(Happening::ChildEnded { id: child.dir.name() });
        };
        std::thread::Builder::new()
            .name(id.clone())
            .spawn(run)
            .map_err(StorageError::at("start", &self.launch.program))?;
        let pid = is_spawned.recv().unwrap_or(0);
        active::set_pid(&self.events, &id, pid)?;
        self.running.push(Open { id, turn, ends: Ends::Process(pid_of(pid)) });
        Ok(pid)
    }

    /// Counts and starts a background command; returns its pid.
    pub fn start_task(
        &mut self,
        turn: u64,
        id: &str,
        command: String,
        timeout: Duration,
        tools: Arc<tools::Context>,
    ) -> Result<u32, StorageError> {
        active::add(&self.events, id, 0)?;
        let cancel = Cancel::new().map_err(StorageError::at("start", self.events.path()))?;
        let (spawned, is_spawned) = std::sync::mpsc::sync_channel(1);
        let (fifo, events, sender) = (self.notify_fifo.clone(), self.events.clone(), self.sender.clone());
        let (task_id, task_cancel) = (id.to_owned(), cancel.clone());
        let run = move || {
            let started = |pid: u32| {
                let _ = spawned.send(pid);
            };
            let result = tools::run_command(&tools, &command, timeout, &task_cancel, started);
            let message = Message::AsyncTaskResult {
                task_id: task_id.clone(),
                exit_code: result.exit_code,
                output: tools::truncate::without_controls(&result.task_output(timeout)).into_owned(),
            };
            deliver(&fifo, &events, &message, &sender);
            let _ = sender.send(Happening::ChildEnded { id: task_id });
        };
        std::thread::Builder::new()
            .name(id.to_owned())
            .spawn(run)
            .map_err(StorageError::at("start", self.events.path()))?;
        let pid = is_spawned.recv().unwrap_or(0);
        active::set_pid(&self.events, id, pid)?;
        self.running.push(Open { id: id.to_owned(), turn, ends: Ends::Task(cancel) });
        Ok(pid)
    }

    /// Its waiter is done: its place is free.
    pub fn ended(&mut self, id: &str) {
        self.running.retain(|open| open.id != id);
    }

    /// Ends what the turn started (an interrupt); those that still waited answer as failed.
    pub fn end_turn(&mut self, turn: u64) {
        self.end_where(|open_turn| open_turn == turn);
    }

    /// Ends all of them: TERM now; the caller waits and calls `kill_all` after the grace.
    pub fn end_all(&mut self) {
        self.end_where(|_| true);
    }

    /// KILL for those that took their time.
    pub fn kill_all(&self) {
        for open in &self.running {
            if let Ends::Process(pid) = open.ends {
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
    }

    fn end_where(&mut self, ends: impl Fn(u64) -> bool) {
        for open in self.running.iter().filter(|open| ends(open.turn)) {
            match &open.ends {
                Ends::Process(pid) => term_then_kill(*pid),
                Ends::Task(cancel) => cancel.cancel(),
            }
        }
        let (over, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(turn, _)| ends(*turn));
        self.waiting = waiting;
        let over: VecDeque<(u64, SubAgent)> = over;
        for (_, child) in over {
            let result = sub_result::failed(&child.dir.name(), "interrupted before it started");
            let (fifo, sender) = (self.notify_fifo.clone(), self.sender.clone());
            std::thread::spawn(move || deliver(&fifo, &child.dir, &Message::AgentResult(result), &sender));
        }
    }
}

/// Pid 0 (it did not start) must never be signalled: that would be our own group.
fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).ok().filter(|pid| *pid > 0).unwrap_or(i32::MAX))
}

fn term_then_kill(pid: Pid) {
    if kill(pid, Signal::SIGTERM).is_err() {
        return;
    }
    std::thread::spawn(move || {
        std::thread::sleep(GRACE);
        // The waiter has taken the process by now, or it is still ours: a fresh one cannot carry this pid before that.
        if std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_child_of_ours(&stat)) {
            let _ = kill(pid, Signal::SIGKILL);
        }
    });
}

fn is_child_of_ours(stat: &str) -> bool {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().nth(1).is_some_and(|parent| parent == std::process::id().to_string())
}

fn spawn(launch: &Launch, child: &SubAgent) -> io::Result<std::process::Child> {
    let mut command = Command::new(&launch.program);
    command
        .arg("--session")
        .arg(child.dir.name())
        .args(["--output-format", "stream-json"])
        .args(&launch.arguments)
        .args(&child.budget)
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .env("BASH_AGENT_CHILD", "1")
        .current_dir(&launch.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: setsid and prctl are async-signal-safe and touch no memory of ours.
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            #[cfg(target_os = "linux")]
            nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
            Ok(())
        });
    }
    command.spawn()
}

/// A child that does not read its prompt ends by itself and says why.
fn feed(stdin: Option<std::process::ChildStdin>, prompt: &str) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(prompt.as_bytes());
    }
}

/// As a shell counts: 128 + the signal that ended it.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// Writes a result to notify.fifo, however long that takes; a wait is said once, in `log`: the child's own events, or
/// for a task its parent's. A reader that is not there any more means that the agent is leaving.
fn deliver(fifo: &Path, log: &SessionDir, message: &Message, sender: &SyncSender<Happening>) {
    let mut frame = Vec::new();
    message.encode(Channel::Notify, &mut frame);
    let mut said = false;
    let waits_on = || {
        if !std::mem::replace(&mut said, true) {
            let message = format!("{} is busy: the result waits until it can be written", fifo.display());
            let line = Event::Error { message: &message }.line(Timestamp::now());
            // A log that cannot be written must not keep the result back.
            let _ = events::append_shared(log, &line);
        }
        true
    };
    match fifo::send_patiently(fifo, &frame, PATIENCE, waits_on) {
        Ok(()) | Err(fifo::SendError::NobodyThere(_)) => {}
        Err(error) => {
            let _ = sender.send(Happening::Warning(format!("a result could not be delivered: {error}")));
        }
    }
}
