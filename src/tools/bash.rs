//! Bash: a command in a session of its own, watched by one poll loop (CONTRACT §11).

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use nix::unistd::pipe2;

use super::input::Input;
use super::place::{Ground, real_path, reason};
use super::process::{self, Tree};
use super::truncate::{Bounded, without_controls};
use super::{Context, Failure, Output, masked};
use crate::policy::classify::{Verdict, View, classify};
use crate::policy::{Access, Cage, Confinement, Mode, Places, Refusal, Scope};
use crate::runtime::cancel::Cancel;

/// How long a child that holds the output may still print once the shell is gone.
const HOLD_GRACE: Duration = Duration::from_millis(200);
/// Between TERM and KILL after a timeout.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// Between TERM and KILL after an interrupt, which must be over within 100 ms.
const INTERRUPT_GRACE: Duration = Duration::from_millis(40);
/// How long the pipe is read after everything was killed: a process that cannot die may still hold it.
const LAST_WORDS: Duration = Duration::from_millis(20);
/// Linux takes no longer single argument (MAX_ARG_STRLEN, the final NUL counted).
const MAX_COMMAND: usize = 128 * 1024 - 1;

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResult {
    /// Its exit code; 128 + n for a signal, 124 after a timeout, 130 after an interrupt, 127 when it could not start.
    pub exit_code: i32,
    /// stdout and stderr as they came, cut (§11) and masked; escape sequences are still in it.
    pub output: String,
    /// It ran into its timeout and was ended.
    pub timed_out: bool,
    /// The turn was interrupted and it was ended.
    pub interrupted: bool,
    /// Processes that it started and that still run.
    pub survivors: Vec<u32>,
}

/// The Bash tool. `background` is the agent's business and not looked at.
pub(crate) fn bash(ctx: &Context, input: &Input, cancel: &Cancel) -> Result<Output, Failure> {
    let command = input.required("command", "command")?;
    let timeout = match input.number("timeout")? {
        Some(seconds) if seconds > 0.0 => {
            Duration::try_from_secs_f64(seconds).map_or(ctx.timeout, |time| time.min(ctx.timeout))
        }
        _ => ctx.timeout,
    };
    judge_command(ctx, command)?;
    let result = execute(ctx, command, timeout, cancel, |_| ())?;
    Ok(reply(&result, timeout))
}

/// The model's text and the shown one: the latter keeps the escape sequences, which the display makes harmless.
fn reply(result: &CommandResult, timeout: Duration) -> Output {
    let (head, notes) = frame(result, timeout);
    let text = |output: &str| {
        let mut text = head.clone();
        if !output.is_empty() {
            text.push_str(if result.timed_out || head.is_empty() { "" } else { "\n" });
            text.push_str(output);
        }
        if !notes.is_empty() {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            text.push_str(&notes);
        }
        text
    };
    Output {
        content: text(&without_controls(&result.output)),
        shown: text(&result.output),
        is_error: result.timed_out || result.interrupted || result.exit_code != 0,
        todo: None,
        refused: None,
    }
}

impl CommandResult {
    /// The output of a background task as it is delivered: what it printed, then the lines about a timeout and about
    /// processes that it left.
    #[must_use]
    pub fn task_output(&self, timeout: Duration) -> String {
        let (_, notes) = frame(self, timeout);
        let line_feed = if self.output.is_empty() || notes.is_empty() { "" } else { "\n" };
        format!("{}{line_feed}{notes}", without_controls(&self.output))
    }
}

/// What stands before and after the output.
fn frame(result: &CommandResult, timeout: Duration) -> (String, String) {
    let head = match result {
        CommandResult { interrupted: true, .. } => "Error: interrupted".to_owned(),
        CommandResult { timed_out: true, .. } => "Error: ".to_owned(),
        CommandResult { exit_code: 0, .. } => String::new(),
        CommandResult { exit_code, .. } => format!("Error: exit code {exit_code}"),
    };
    let mut notes = Vec::new();
    if result.timed_out {
        notes.push(format!("[... command timed out after {} seconds ...]", seconds(timeout)));
    }
    if !result.survivors.is_empty() {
        let pids: Vec<String> = result.survivors.iter().map(u32::to_string).collect();
        notes.push(format!("[... still running in the background: pid {} ...]", pids.join(", ")));
    }
    (head, notes.join("\n"))
}

/// The reply to a command that nobody judged: what the sandbox alone does.
#[cfg(test)]
pub(super) fn unjudged(ctx: &Context, command: &str) -> Output {
    let cancel = Cancel::new().unwrap();
    match execute(ctx, command, ctx.timeout, &cancel, |_| ()) {
        Ok(result) => reply(&result, ctx.timeout),
        Err(failure) => Output::error(&failure.to_string()),
    }
}

/// Whole seconds as such, others with their decimals.
fn seconds(time: Duration) -> String {
    if time.subsec_nanos() == 0 { time.as_secs().to_string() } else { time.as_secs_f64().to_string() }
}

/// Whether the mode lets this command run: every bit that it needs, as far as that can be told beforehand. Code that
/// the kernel does not confine can do anything in the workspace, so it needs all of the workspace's bits.
pub fn judge_command(ctx: &Context, command: &str) -> Result<(), Refusal> {
    let mut required = classify_command(ctx, command).required();
    let is_confined = ctx.confinement.holds();
    let needs = |access| Mode::of(Scope::Workspace, access);
    if !is_confined && required.allows(needs(Access::Execute)) {
        required = required.union(needs(Access::Read)).union(needs(Access::Write));
    }
    if ctx.mode.allows(required) { Ok(()) } else { Err(Refusal::Mode { required, allowed: ctx.mode }) }
}

/// What a command needs, part by part.
fn classify_command(ctx: &Context, command: &str) -> Verdict {
    classify_in(&Ground::new(ctx).places, command)
}

/// Which parts of a command need what the mode does not give.
pub(super) fn reasons(ctx: &Context, command: &str) -> String {
    let needs = classify_command(ctx, command).needs;
    let missing: Vec<String> =
        needs.into_iter().filter(|need| !ctx.mode.allows(need.required)).map(|need| need.why).collect();
    match missing.is_empty() {
        true => "nothing confines it here, so it needs all of the workspace".to_owned(),
        false => missing.join("; "),
    }
}

/// What a command needs, part by part, when it runs at these places.
#[must_use]
pub fn classify_in(places: &Places, command: &str) -> Verdict {
    classify(command, &View { places, resolve: &real_path })
}

/// Runs a command to its end, for background tasks; `started` hears its pid. What cannot even start, or is refused, has
/// exit code 127 and says why. Never blocks longer than the timeout and a little more than a second.
#[must_use]
pub fn run_command(
    ctx: &Context,
    command: &str,
    timeout: Duration,
    cancel: &Cancel,
    started: impl FnOnce(u32),
) -> CommandResult {
    judge_command(ctx, command)
        .map_err(Failure::from)
        .and_then(|()| execute(ctx, command, timeout, cancel, started))
        .unwrap_or_else(|failure| CommandResult {
            exit_code: 127,
            output: format!("Error: {failure}"),
            timed_out: false,
            interrupted: false,
            survivors: Vec::new(),
        })
}

/// Runs what was judged.
pub(super) fn execute(
    ctx: &Context,
    command: &str,
    timeout: Duration,
    cancel: &Cancel,
    started: impl FnOnce(u32),
) -> Result<CommandResult, Failure> {
    if cancel.is_cancelled() {
        return Err(Failure::interrupted());
    }
    if command.len() > MAX_COMMAND {
        return Err(Failure::new(format!(
            "the command is too long ({} bytes, at most {MAX_COMMAND}); write it to a file and run that",
            command.len()
        )));
    }
    let mut running = Running::start(ctx, command).map_err(|error| {
        let place = ctx.cwd.display();
        Failure::new(format!("could not start bash in {place}: {}", reason(&error)))
    })?;
    started(running.child.id());
    let ended = running
        .watch(timeout, cancel)
        .map_err(|error| Failure::new(format!("could not watch the command: {}", reason(&error))))?;
    Ok(running.finish(ctx, ended, timeout))
}

/// Why the watch is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The shell has exited.
    ByItself,
    Timeout,
    Interrupt,
}

/// A shell, its output so far, and its processes.
struct Running {
    child: Child,
    /// Readable once the shell has exited.
    exited: OwnedFd,
    /// `None` once everybody has closed it.
    pipe: Option<File>,
    output: Bounded,
    tree: Tree,
    survivors: Vec<u32>,
}

impl Running {
    fn start(ctx: &Context, command: &str) -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut tree = Tree::new();
        let mut shell = shell(ctx, command, tree.mark(), cage(ctx)?);
        shell.stdout(writer.try_clone()?).stderr(writer);
        let child = shell.spawn()?;
        // The command still holds the write ends: with them open here the output would never end.
        drop(shell);
        tree.set_shell(child.id());
        let exited = exit_descriptor(&child)?;
        let pipe = Some(File::from(reader));
        let output = Bounded::new(ctx.max_result);
        Ok(Self { child, exited, pipe, output, tree, survivors: Vec::new() })
    }

    /// Reads until the shell is gone (and, for a moment, until the output is closed), the time is up, or an interrupt.
    fn watch(&mut self, timeout: Duration, cancel: &Cancel) -> io::Result<Ended> {
        let deadline = Instant::now().checked_add(timeout);
        let mut held_until = None;
        loop {
            let now = Instant::now();
            if cancel.is_cancelled() {
                self.end(INTERRUPT_GRACE)?;
                return Ok(Ended::Interrupt);
            }
            if held_until.is_none() && is_readable(self.exited.as_fd()) {
                held_until = Some(now + HOLD_GRACE);
            }
            match held_until {
                Some(until) if self.pipe.is_none() || now >= until => {
                    self.leave();
                    return Ok(Ended::ByItself);
                }
                None if deadline.is_some_and(|deadline| now >= deadline) => {
                    self.end(TERM_GRACE)?;
                    return Ok(Ended::Timeout);
                }
                _ => {}
            }
            let until = held_until.or(deadline);
            let mut others = vec![cancel.fd()];
            if held_until.is_none() {
                others.push(self.exited.as_fd());
            }
            let wait = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now));
            pump(&mut self.pipe, &mut self.output, &others, wait)?;
        }
    }

    /// The shell is gone; what it left behind runs on, and its output is taken so that no write of it blocks or fails.
    fn leave(&mut self) {
        let Some(mut pipe) = self.pipe.take() else { return };
        self.survivors = self.tree.alive().into_iter().map(i32::cast_unsigned).collect();
        let _ = fcntl(&pipe, FcntlArg::F_SETFL(OFlag::empty()));
        let survivors = self.survivors.clone();
        let drain = move || {
            let mut piece = [0; 4096];
            while pipe.read(&mut piece).is_ok_and(|count| count > 0) {}
            process::collect(&survivors);
        };
        // Without a thread the child gets SIGPIPE when it prints: nothing worse.
        let _ = std::thread::Builder::new().name("drain".to_owned()).stack_size(64 << 10).spawn(drain);
    }

    /// TERM, `grace`, KILL, to everything that the command started; meanwhile what it prints is read.
    fn end(&mut self, grace: Duration) -> io::Result<()> {
        let mut endings = self.tree.signal(Signal::SIGTERM);
        let until = Instant::now() + grace;
        while process::any_left(&mut endings) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let others: Vec<_> = process::descriptors(&endings).collect();
            pump(&mut self.pipe, &mut self.output, &others, left.min(process::slice(&endings)))?;
        }
        self.survivors = self.tree.kill();
        let until = Instant::now() + LAST_WORDS;
        while self.pipe.is_some() && Instant::now() < until {
            pump(&mut self.pipe, &mut self.output, &[], until.saturating_duration_since(Instant::now()))?;
        }
        Ok(())
    }

    fn finish(mut self, ctx: &Context, ended: Ended, timeout: Duration) -> CommandResult {
        let exit_code = match ended {
            Ended::Timeout => 124,
            Ended::Interrupt => 130,
            Ended::ByItself => self.child.wait().map_or(127, exit_code),
        };
        // Collected where it can be; one that would not die is collected by whoever outlives it.
        let _ = self.child.try_wait();
        let mut result = CommandResult {
            exit_code,
            output: String::new(),
            timed_out: ended == Ended::Timeout,
            interrupted: ended == Ended::Interrupt,
            survivors: self.survivors,
        };
        // The limit holds for the whole reply.
        let (head, notes) = frame(&result, timeout);
        let around =
            head.len() + notes.len() + usize::from(!head.is_empty()) + usize::from(!notes.is_empty());
        let max = ctx.max_result.saturating_sub(around);
        result.output = self.output.finish(max, &|text| masked(ctx, text));
        result
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(127)
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, nix::poll::PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Sleeps until the pipe, one of `others` or the time wakes it, and takes what the pipe holds.
fn pump(
    pipe: &mut Option<File>,
    output: &mut Bounded,
    others: &[BorrowedFd<'_>],
    wait: Duration,
) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = others.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    if let Some(pipe) = pipe.as_ref() {
        fds.push(PollFd::new(pipe.as_fd(), PollFlags::POLLIN));
    }
    match poll(&mut fds, process::timeout(wait)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    drop(fds);
    let Some(reader) = pipe.as_mut() else { return Ok(()) };
    let mut piece = [0; 64 << 10];
    // A pipe's worth, then the clock is looked at again: an endless writer must not hold this loop.
    for _ in 0..16 {
        match reader.read(&mut piece) {
            Ok(0) => {
                *pipe = None;
                break;
            }
            Ok(count) => output.push(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How a command is confined.
fn cage(ctx: &Context) -> io::Result<Cage> {
    if ctx.confinement != Confinement::Off {
        // The directory must be there to be granted.
        let _ = ctx.tmp_dir.as_deref().is_some_and(private_dir);
    }
    Cage::new(ctx.confinement, ctx.mode, &Ground::new(ctx).places)
}

/// `bash -c`, in a session of its own, without terminal, editor or pager.
fn shell(ctx: &Context, command: &str, mark: &str, cage: Cage) -> Command {
    let parent = std::process::id();
    let mut shell = cage.command("bash", move || become_leader(parent));
    shell.arg("-c").arg(command).current_dir(&ctx.cwd).stdin(Stdio::null());
    for name in &ctx.hidden_env {
        shell.env_remove(name);
    }
    for name in ["EDITOR", "VISUAL", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR"] {
        shell.env(name, "false");
    }
    shell.env("PAGER", "cat").env("GIT_PAGER", "cat").env("GIT_TERMINAL_PROMPT", "0");
    shell.env("PWD", &ctx.cwd).env(process::MARK_VARIABLE, mark);
    if let Some(dir) = ctx.tmp_dir.as_deref().filter(|dir| private_dir(dir)) {
        shell.env("TMPDIR", dir);
    }
    shell
}

/// Makes the directory if it is not there; false when that cannot be done (a full disk must not stop a command) or
/// when it is somebody else's.
fn private_dir(dir: &Path) -> bool {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    let _ = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(dir);
    std::fs::symlink_metadata(dir).is_ok_and(|found| {
        found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o077 == 0
    })
}

/// In the child: a new session (no controlling terminal), and an end that comes with the agent's, however that dies.
fn become_leader(parent: u32) -> io::Result<()> {
    nix::unistd::setsid()?;
    #[cfg(target_os = "linux")]
    {
        // SAFETY: sets an attribute of the calling process; no memory is touched.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if nix::unistd::getppid().as_raw() != parent.cast_signed() {
            return Err(nix::errno::Errno::ESRCH.into());
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
    Ok(())
}

/// A descriptor that polls readable once the child has exited; the child stays to be waited for.
fn exit_descriptor(child: &Child) -> io::Result<OwnedFd> {
    if let Some(fd) = process::open_pid(child.id().cast_signed()) {
        return Ok(fd);
    }
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    let pid = child.id();
    let wait = move || {
        // SAFETY: waitid writes only into `info`; WNOWAIT leaves the child to be collected by its owner.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            while libc::waitid(libc::P_PID, pid, &raw mut info, libc::WEXITED | libc::WNOWAIT) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
        drop(writer);
    };
    std::thread::Builder::new().name("exit".to_owned()).stack_size(64 << 10).spawn(wait)?;
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::tools::testing::World;

    fn is_alive(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    /// The pid that a command wrote into a file of its directory.
    fn pid_in(world: &World, name: &str) -> i32 {
        String::from_utf8(world.get(name)).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_command_gives_what_it_printed_in_order() {
        let world = World::new();
        assert_eq!(world.ok("Bash", json!({"command":"echo hi; echo err >&2; echo ho"})), "hi\nerr\nho");
        assert_eq!(world.ok("Bash", json!({"command":"true"})), "");
        assert_eq!(world.ok("Bash", json!({"command":"printf '\\n a\\n\\n'"})), "\n a");
        assert_eq!(world.err("Bash", json!({"command":"echo two >&2; exit 2"})), "Error: exit code 2\ntwo");
        assert_eq!(world.err("Bash", json!({"command":"false"})), "Error: exit code 1");
        assert_eq!(world.err("Bash", json!({"command":"kill -KILL $$"})), "Error: exit code 137");
        assert_eq!(world.err("Bash", json!({})), "Error: no command provided");
        assert_eq!(world.err("Bash", json!({"command":["ls"]})), "Error: command must be a string");
        assert!(world.err("Bash", json!({"command":"ech'o"})).contains("unexpected EOF"));
    }

    #[test]
    fn a_command_too_long_or_without_a_directory_says_so() {
        let mut world = World::new();
        assert!(world.err("Bash", json!({"command":"#".repeat(200_000)})).contains("too long (200000 bytes"));
        assert_eq!(
            world.ok("Bash", json!({"command":format!("echo {}", "x".repeat(131_000))})).len(),
            100_000
        );
        assert!(world.err("Bash", json!({"command":"echo a\0b"})).starts_with("Error: could not start bash"));
        world.ctx.cwd = world.root().join("gone");
        assert!(world.err("Bash", json!({"command":"true"})).contains("No such file or directory"));
    }

    #[test]
    fn the_mode_is_obeyed() {
        let mut world = World::new();
        world.ctx.mode = Mode::READ_ONLY;
        world.put("f", "read");
        let refused = world.err("Bash", json!({"command":"cat f; touch x"}));
        assert!(refused.contains("(required=0006 allowed=0444;"), "{refused}");
        let cancel = Cancel::new().unwrap();
        let result = run_command(&world.ctx, "touch x", Duration::from_secs(9), &cancel, |_| ());
        assert_eq!((result.exit_code, world.path("x").exists()), (127, false));
        assert_eq!(world.ok("Bash", json!({"command":"cat f"})), "read");
        symlink(world.root(), world.path("out")).unwrap();
        world.ctx.mode = Mode::DEFAULT;
        assert!(world.err("Bash", json!({"command":"touch out/x"})).contains("(required=0200 allowed=0467;"));
    }

    #[test]
    fn free_code_needs_all_of_the_workspace() {
        let mut world = World::new();
        world.ctx.confinement = Confinement::Off;
        world.ctx.mode = Mode::parse("0001");
        assert!(world.err("Bash", json!({"command":"./x"})).contains("(required=0007 allowed=0001;"));
        assert_eq!(world.ok("Bash", json!({"command":"echo a"})), "a");
    }

    /// CASES F1, F2.
    #[test]
    fn endless_output_and_endless_lines_are_bounded() {
        let world = World::new();
        let endless = world.run("Bash", json!({"command":"yes","timeout":3}));
        assert!(endless.is_error && endless.content.len() <= 100_000);
        assert!(endless.content.starts_with("Error: y\ny\n"));
        assert!(endless.content.contains("[... truncated: showing first/last portions of "));
        assert!(endless.content.ends_with("y\n[... command timed out after 3 seconds ...]"));
        let line = world.ok("Bash", json!({"command":"head -c 50000000 /dev/zero | tr '\\0' a"}));
        assert_eq!(line.len(), 100_000);
        assert!(line.contains(" of 50000000 bytes "));
    }

    /// CASES F3, F6.
    #[test]
    fn bytes_that_are_no_text_and_escape_codes_do_no_harm() {
        let world = World::new();
        assert_eq!(world.ok("Bash", json!({"command":"printf 'a\\xf0b\\0c'"})), "a\u{fffd}b\u{fffd}c");
        assert_eq!(
            world.err("Bash", json!({"command":"printf 'a\\xf0b'; exit 3"})),
            "Error: exit code 3\na\u{fffd}b"
        );
        let output = world.run("Bash", json!({"command":"printf '\\033]0;x\\007\\033[2K\\rALL PASSED'"}));
        assert_eq!(output.content, "\rALL PASSED");
        assert_eq!(output.shown, "\u{1b}]0;x\u{7}\u{1b}[2K\rALL PASSED");
    }

    /// CASES H1.
    #[test]
    fn a_child_that_holds_the_output_does_not_hold_the_call() {
        let world = World::new();
        let output = world.ok("Bash", json!({"command":"sleep 300 & echo $! > pid; echo hi"}));
        let pid = pid_in(&world, "pid");
        assert_eq!(output, format!("hi\n[... still running in the background: pid {pid} ...]"));
        assert!(is_alive(pid));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        let silent =
            world.ok("Bash", json!({"command":"(sleep 300 >/dev/null 2>&1) & echo $! > pid; echo hi"}));
        assert_eq!(silent, "hi");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid_in(&world, "pid")), Signal::SIGKILL).unwrap();
    }

    #[test]
    fn what_a_left_child_prints_does_not_end_it() {
        let world = World::new();
        world.ok(
            "Bash",
            json!({"command":"(while [ ! -e go ]; do sleep 0.01; done; echo late; echo late; touch done; rm busy) & touch busy"}),
        );
        world.put("go", "");
        world.ok("Bash", json!({"command":"while [ -e busy ]; do sleep 0.01; done; ls done","timeout":20}));
    }

    /// CASES H2, H3, H4: whatever it started is gone.
    #[test]
    fn a_timeout_ends_everything() {
        let commands = [
            "setsid sleep 300 & echo $! > pid; wait",
            "nohup sleep 300 >/dev/null & echo $! > pid; wait",
            "(setsid sh -c 'echo $$ > pid; sleep 300; true' >/dev/null 2>&1 &); while :; do sleep 1; done",
            "sh -c 'echo $$ > pid; while :; do :; done'",
            "echo $$ > pid; trap '' TERM; while :; do sleep 0.1; done",
            "echo $$ > pid; kill -STOP $$",
        ];
        let check = |command: &str| {
            let world = World::new();
            let input = json!({"command":format!("echo out; {command}"),"timeout":4});
            let output = world.err("Bash", input);
            assert_eq!(output, "Error: out\n[... command timed out after 4 seconds ...]", "{command}");
            assert!(!is_alive(pid_in(&world, "pid")), "{command}");
        };
        std::thread::scope(|scope| {
            for command in commands {
                scope.spawn(move || check(command));
            }
        });
    }

    #[test]
    fn a_timeout_of_whole_seconds_without_output_reads_as_ever() {
        let world = World::new();
        let output = world.err("Bash", json!({"command":"sleep 300","timeout":"1"}));
        assert_eq!(output, "Error: \n[... command timed out after 1 seconds ...]");
        let mut world = world;
        world.ctx.timeout = Duration::from_millis(300);
        let output = world.err("Bash", json!({"command":"sleep 300","timeout":1e300}));
        assert_eq!(output, "Error: \n[... command timed out after 0.3 seconds ...]");
    }

    #[test]
    fn an_interrupt_ends_everything_and_keeps_the_output() {
        let world = World::new();
        let cancel = Cancel::new().unwrap();
        let command =
            "trap '' TERM; echo out; (setsid sleep 300 & echo $! > pid.new; mv pid.new pid); sleep 300";
        let output = std::thread::scope(|scope| {
            let call = scope.spawn(|| world.run_with("Bash", json!({ "command": command }), &cancel));
            while !world.path("pid").exists() {
                std::thread::yield_now();
            }
            cancel.cancel();
            call.join().unwrap()
        });
        assert_eq!((output.is_error, output.content.as_str()), (true, "Error: interrupted\nout"));
        assert!(!is_alive(pid_in(&world, "pid")));
        let before = world.run_with("Bash", json!({"command":"touch started"}), &cancel);
        assert_eq!((before.content.as_str(), world.path("started").exists()), ("Error: interrupted", false));
    }

    /// CASES H6, H7, H8.
    #[test]
    fn nothing_waits_for_a_person() {
        let world = World::new();
        let setup = "export HOME=$PWD; git init -q . && git config user.email a@b && git config user.name n && \
                     for i in 1 2 3; do echo $i > f; git add f; git commit -qm $i; done";
        world.ok("Bash", json!({ "command": setup }));
        assert!(
            world
                .err("Bash", json!({"command":"HOME=$PWD; echo x > f; git commit -a"}))
                .starts_with("Error: exit code 1")
        );
        let rebase = "HOME=$PWD; git checkout -q f; before=$(git rev-parse HEAD); git rebase -i HEAD~2; \
                      [ $(git rev-parse HEAD) = $before ] && echo same";
        assert!(world.ok("Bash", json!({ "command": rebase })).ends_with("same"));
        assert!(world.ok("Bash", json!({"command":"HOME=$PWD git log"})).contains("commit "));
        assert!(world.err("Bash", json!({"command":"read x </dev/tty"})).contains("/dev/tty"));
        assert_eq!(world.ok("Bash", json!({"command":"cat; read x || echo end"})), "end");
        assert_eq!(world.ok("Bash", json!({"command":"ps -o sid= -p $$ | tr -d ' ' | grep -x $$ >/dev/null && ps -o tty= -p $$ | tr -d ' '"})), "?");
    }

    #[test]
    fn the_environment_is_the_agents_but_for_what_is_hidden() {
        let mut world = World::new();
        world.ctx.hidden_env = vec!["PATH".into()];
        let seen = world.ok("Bash", json!({"command":"echo \"$EDITOR $GIT_SEQUENCE_EDITOR $PAGER $GIT_TERMINAL_PROMPT $PWD $TMPDIR\"; export -p"}));
        let (cwd, tmp) = (world.ctx.cwd.display().to_string(), world.ctx.tmp_dir.clone().unwrap());
        assert!(seen.starts_with(&format!("false false cat 0 {cwd} {}\n", tmp.display())), "{seen}");
        assert!(!seen.contains("declare -x PATH="));
        assert!(!seen.contains(world.ctx.session_dir.to_str().unwrap()));
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(tmp.metadata().unwrap().mode() & 0o777, 0o700);
    }

    /// CASES Q2, Q3.
    #[test]
    fn it_needs_no_disk_and_passes_errors_on() {
        let mut world = World::new();
        world.ctx.tmp_dir = Some(Path::new("/proc/no/such").to_path_buf());
        assert_eq!(world.ok("Bash", json!({"command":"echo fine"})), "fine");
        assert_eq!(
            world.err("Bash", json!({"command":"echo 'No space left on device'; exit 1"})),
            "Error: exit code 1\nNo space left on device"
        );
    }

    #[test]
    fn a_result_for_the_agent_has_all_the_figures() {
        let world = World::new();
        let result = run_command(
            &world.ctx,
            "echo x; exit 4",
            Duration::from_secs(9),
            &Cancel::new().unwrap(),
            |_| (),
        );
        let expected = CommandResult {
            exit_code: 4,
            output: "x".to_owned(),
            timed_out: false,
            interrupted: false,
            survivors: Vec::new(),
        };
        assert_eq!(result, expected);
        let late =
            run_command(&world.ctx, "sleep 300", Duration::from_millis(50), &Cancel::new().unwrap(), |_| ());
        assert_eq!((late.exit_code, late.timed_out), (124, true));
    }

    #[test]
    fn a_long_error_stays_within_the_limit() {
        let mut world = World::new();
        world.ctx.max_result = 1000;
        let output = world.err("Bash", json!({"command":"yes | head -c 5000; exit 7"}));
        assert!(output.len() <= 1000 && output.starts_with("Error: exit code 7\ny"), "{}", output.len());
        assert_eq!(output.matches("truncated").count(), 1);
    }
}
