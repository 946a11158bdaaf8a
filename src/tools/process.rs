//! The processes that a command started: found wherever they went, ended, and waited for.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Marks everything that a command starts, in its environment.
pub(crate) const MARK_VARIABLE: &str = "BASH_AGENT_CALL";
/// How often the hunt is repeated for what forks faster than it is killed.
const MAX_ROUNDS: u32 = 50;

static COMMANDS: AtomicU64 = AtomicU64::new(0);
static STARTED: AtomicBool = AtomicBool::new(false);

/// Makes this process the parent of every orphan below it, so that none escapes (Linux; elsewhere it does nothing).
/// To be called once, early.
pub fn become_subreaper() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: prctl with these arguments only sets a flag of this process.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    }
}

/// Ends whatever commands of this process left running (TERM, `grace`, KILL), for the agent's exit. Returns the pids
/// that could not be ended. Costs nothing when no command ran.
pub fn end_leftovers(grace: Duration) -> Vec<u32> {
    if !STARTED.load(Ordering::Relaxed) {
        return Vec::new();
    }
    Tree::marked(own_prefix()).end(grace)
}

/// Waits for orphans that became this process's children; those that did not are somebody else's to collect.
pub(crate) fn collect(pids: &[u32]) {
    for pid in pids {
        let _ = waitpid(Pid::from_raw(pid.cast_signed()), None);
    }
}

/// The part of the mark that all commands of this process share.
fn own_prefix() -> String {
    format!("{MARK_VARIABLE}={}.", std::process::id())
}

/// One process, as the system shows it.
#[derive(Clone, Copy, Debug)]
struct Process {
    pid: i32,
    parent: i32,
    session: i32,
    /// Tells a process from a later one with its number.
    started: u64,
    dead: bool,
}

/// The processes of one command: below the shell, in its session, or carrying its mark.
pub(crate) struct Tree {
    shell: Option<i32>,
    mark: String,
    /// What was once seen to belong here stays: a parent that died must not set its children free.
    seen: HashMap<i32, u64>,
}

impl Tree {
    /// For a command about to be started. `mark` is the variable's value.
    pub(crate) fn new() -> Self {
        STARTED.store(true, Ordering::Relaxed);
        let number = COMMANDS.fetch_add(1, Ordering::Relaxed);
        Self::marked(format!("{}{number}", own_prefix()))
    }

    fn marked(mark: String) -> Self {
        Self { shell: None, mark, seen: HashMap::new() }
    }

    /// The value of `MARK_VARIABLE` for the command.
    pub(crate) fn mark(&self) -> &str {
        self.mark.split_once('=').map_or("", |(_, value)| value)
    }

    /// Names the shell, once it runs.
    pub(crate) fn set_shell(&mut self, pid: u32) {
        self.shell = i32::try_from(pid).ok();
    }

    /// Those alive now, the shell among them.
    pub(crate) fn alive(&mut self) -> Vec<i32> {
        let all = snapshot();
        let by_pid: HashMap<i32, Process> = all.iter().map(|process| (process.pid, *process)).collect();
        let mut alive = Vec::new();
        for process in &all {
            if !self.owns(process, &by_pid) {
                continue;
            }
            self.seen.insert(process.pid, process.started);
            if !process.dead {
                alive.push(process.pid);
            } else if self.shell != Some(process.pid) {
                // An orphan that became ours: nobody else will collect it.
                let _ = waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG));
            }
        }
        alive
    }

    fn owns(&self, process: &Process, all: &HashMap<i32, Process>) -> bool {
        let me = std::process::id().cast_signed();
        let mut at = *process;
        // The chain of parents is finite, but it was not read in one moment.
        for _ in 0..all.len() {
            if at.pid == me {
                return false;
            }
            let known = self.seen.get(&at.pid) == Some(&at.started);
            if known || self.shell.is_some_and(|shell| shell == at.pid || shell == at.session) {
                return true;
            }
            if at.parent == me || at.parent <= 1 {
                return self.is_marked(at.pid);
            }
            match all.get(&at.parent) {
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    }

    fn is_marked(&self, pid: i32) -> bool {
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        let mark = self.mark.as_bytes();
        let whole = !mark.ends_with(b".");
        environment
            .split(|&byte| byte == 0)
            .any(|entry| if whole { entry == mark } else { entry.starts_with(mark) })
    }

    /// Sends a signal to all alive; returns descriptors that poll readable as each ends.
    pub(crate) fn signal(&mut self, signal: Signal) -> Vec<Ending> {
        let alive = self.alive();
        let endings = alive.iter().map(|&pid| Ending::of(pid)).collect();
        for pid in alive {
            // It may have ended since: that is what is wanted.
            let _ = kill(Pid::from_raw(pid), signal);
        }
        endings
    }

    /// KILL to all, again and again until none is left; returns those that would not go.
    pub(crate) fn kill(&mut self) -> Vec<u32> {
        for _ in 0..MAX_ROUNDS {
            let endings = self.signal(Signal::SIGKILL);
            if endings.is_empty() {
                return Vec::new();
            }
            wait_for(endings, Instant::now() + Duration::from_millis(10));
        }
        self.alive().into_iter().map(i32::cast_unsigned).collect()
    }

    /// TERM, up to `grace` for all to end, then KILL. Returns those that would not go.
    pub(crate) fn end(&mut self, grace: Duration) -> Vec<u32> {
        let endings = self.signal(Signal::SIGTERM);
        if endings.is_empty() {
            return Vec::new();
        }
        wait_for(endings, Instant::now() + grace);
        self.kill()
    }
}

/// Something to wait on until a process has ended.
pub(crate) enum Ending {
    /// Polls readable then.
    Descriptor(OwnedFd),
    /// No such descriptor here: the process is looked at now and then.
    Pid(i32),
}

impl Ending {
    fn of(pid: i32) -> Self {
        open_pid(pid).map_or(Self::Pid(pid), Self::Descriptor)
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Descriptor(fd) => {
                let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
            }
            Self::Pid(pid) => kill(Pid::from_raw(*pid), None).is_err(),
        }
    }
}

/// A descriptor that polls readable once the process has ended; `None` where there is no such thing.
pub(crate) fn open_pid(pid: i32) -> Option<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::FromRawFd;
        // SAFETY: pidfd_open takes two integers and touches no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: a fresh descriptor (close-on-exec by definition) that nobody else owns.
        Some(unsafe { OwnedFd::from_raw_fd(fd) })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pid;
        None
    }
}

/// Takes those out that are over; returns whether any is left.
pub(crate) fn any_left(endings: &mut Vec<Ending>) -> bool {
    endings.retain(|ending| !ending.is_over());
    !endings.is_empty()
}

/// The descriptors among them, to poll on.
pub(crate) fn descriptors(endings: &[Ending]) -> impl Iterator<Item = BorrowedFd<'_>> {
    endings.iter().filter_map(|ending| match ending {
        Ending::Descriptor(fd) => Some(fd.as_fd()),
        Ending::Pid(_) => None,
    })
}

/// The longest that one may sleep before looking at these again.
pub(crate) fn slice(endings: &[Ending]) -> Duration {
    let blind = endings.iter().any(|ending| matches!(ending, Ending::Pid(_)));
    if blind { Duration::from_millis(10) } else { Duration::MAX }
}

fn wait_for(mut endings: Vec<Ending>, until: Instant) {
    while any_left(&mut endings) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let mut fds: Vec<PollFd<'_>> =
            descriptors(&endings).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // An error (EINTR) only means: look again.
        let _ = poll(&mut fds, timeout(left.min(slice(&endings))));
    }
}

/// A poll timeout of at least a millisecond and at most a minute.
pub(crate) fn timeout(time: Duration) -> PollTimeout {
    let millis = u16::try_from(time.as_millis().clamp(1, 60_000)).unwrap_or(60_000);
    PollTimeout::from(millis)
}

/// All processes of the machine.
#[cfg(target_os = "linux")]
fn snapshot() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: i32| parse_stat(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// `pid (name) state ppid pgrp session … starttime …`; the name may hold anything, so the last `)` ends it.
#[cfg(target_os = "linux")]
fn parse_stat(pid: i32, stat: &[u8]) -> Option<Process> {
    let rest = &stat[memchr::memrchr(b')', stat)? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, session, started, dead: matches!(state, "Z" | "X") })
}

/// All processes of the machine, by ps: without /proc only parents and groups tell where one belongs.
#[cfg(not(target_os = "linux"))]
fn snapshot() -> Vec<Process> {
    let Ok(output) = std::process::Command::new("ps").args(["-A", "-o", "pid=,ppid=,pgid=,state="]).output()
    else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            Some(Process {
                pid: fields.next()?.parse().ok()?,
                parent: fields.next()?.parse().ok()?,
                session: fields.next()?.parse().ok()?,
                started: 0,
                dead: fields.next()?.starts_with('Z'),
            })
        })
        .collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name_holds() {
        let line = b"7 (a) R 1 (x) S 5 6 6 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 424242 1 1";
        let process = parse_stat(7, line).unwrap();
        assert_eq!((process.parent, process.session, process.started, process.dead), (5, 6, 424_242, false));
    }

    #[test]
    fn this_process_is_in_the_snapshot_and_never_in_a_tree() {
        let me = std::process::id().cast_signed();
        assert!(snapshot().iter().any(|process| process.pid == me && !process.dead));
        assert!(!Tree::new().alive().contains(&me));
    }
}
