//! One run of the program: its streams, what happens while it runs, how it ends.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::libc::O_NONBLOCK;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::case::{Case, Run};
use crate::scene;
use crate::world::{Agent, MARK, World};

/// What a run left behind on its streams.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// All of stdout.
    pub(crate) stdout: String,
    /// All of stderr.
    pub(crate) stderr: String,
    /// Its code, or 128 + signal.
    pub(crate) exit: i32,
    /// A step that could not be done, or that the run did not end.
    pub(crate) problem: Option<String>,
}

/// A stream that is read by its own thread.
#[derive(Clone, Default)]
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Our end is closed.
    closed: Arc<AtomicBool>,
}

impl Stream {
    fn read(&self, mut from: impl Read + Send + 'static, close_after: Option<String>) -> JoinHandle<()> {
        let stream = self.clone();
        thread::spawn(move || {
            // A stream that we close early is read in small pieces, so that its writer cannot have ended before.
            let mut bytes = vec![0; if close_after.is_some() { 512 } else { 65_536 }];
            while let Ok(count) = from.read(&mut bytes) {
                if count == 0 {
                    break;
                }
                stream.lock().extend_from_slice(&bytes[..count]);
                if close_after.as_ref().is_some_and(|text| stream.text().contains(text.as_str())) {
                    break;
                }
            }
            drop(from);
            stream.closed.store(true, Ordering::SeqCst);
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock()).into_owned()
    }
}

struct Running<'a> {
    world: &'a World,
    agent: &'a Agent,
    case: &'a Case,
    child: Child,
    stdin: Option<std::process::ChildStdin>,
    /// Our end of the terminal.
    terminal: Option<File>,
    stdout: Stream,
    stderr: Stream,
    env: BTreeMap<String, String>,
    work: PathBuf,
    status: Option<ExitStatus>,
}

/// The words that start a run, for the report of a failure.
pub(crate) fn command_line(agent: &Agent, run: &Run, world: &World) -> String {
    let words = agent.command.iter().cloned().chain(run.args.iter().map(|arg| world.fill(arg)));
    let env = agent.env.iter().cloned().chain(run.env.iter().map(|(k, v)| (k.clone(), world.fill(v))));
    let env: Vec<String> = env.map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{} {}", env.join(" "), words.map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" "))
}

/// Runs the program once, with all its steps, to its end.
pub(crate) fn run(world: &World, agent: &Agent, case: &Case, run: &Run) -> Ended {
    let mut running = match Running::start(world, agent, case, run) {
        Ok(running) => running,
        Err(problem) => return Ended { problem: Some(problem), ..Ended::default() },
    };
    let readers = running.readers(run);
    let mut problem = running.steps(&run.steps).and_then(|()| running.wait_exit()).err();
    if let Some(text) = &mut problem {
        // Killed, it takes its private files away, and what it waited for is gone.
        text.push_str(&scene::describe(world));
        // It is our own child, still unreaped: its pid cannot be another's.
        let _ = running.child.kill();
        running.status = running.child.wait().ok();
    }
    drop(running.stdin.take());
    let stuck = join_all(readers, world);
    let status = running.status;
    Ended {
        stdout: running.text(&running.stdout),
        stderr: running.text(&running.stderr),
        exit: status
            .and_then(|status| status.code().or(status.signal().map(|signal| 128 + signal)))
            .unwrap_or(-1),
        problem: problem.or(stuck),
    }
}

/// A stream that stays open after the program's end is held by something that it left behind.
fn join_all(readers: Vec<JoinHandle<()>>, world: &World) -> Option<String> {
    for reader in readers {
        while !reader.is_finished() {
            if world.left().is_zero() {
                return Some("a stream is still held open after the program's end".to_owned());
            }
            thread::sleep(LOOK);
        }
        let _ = reader.join();
    }
    None
}

/// Between two looks at something that rings no bell (a file, a process).
const LOOK: Duration = Duration::from_millis(3);

impl<'a> Running<'a> {
    fn start(world: &'a World, agent: &'a Agent, case: &'a Case, run: &Run) -> Result<Self, String> {
        let mut env = world.environment(agent);
        for (name, value) in &run.env {
            env.insert(name.clone(), world.fill(value));
        }
        for name in &run.unset {
            env.remove(name);
        }
        let work = world.work.join(&run.cwd);
        let (program, first) = agent.command.split_first().ok_or("no program")?;
        let mut command = Command::new(program);
        command
            .args(first)
            .args(run.args.iter().map(|arg| world.fill(arg)))
            .env_clear()
            .envs(&env)
            .current_dir(&work)
            .stdin(if run.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let terminal = if run.tty.is_empty() {
            command.process_group(0);
            None
        } else {
            Some(terminal::attach(&mut command, &run.tty).map_err(|error| format!("terminal: {error}"))?)
        };
        let mut child = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
        // Its copies of the terminal's other end would keep us from seeing the end.
        drop(command);
        let stdin = child.stdin.take();
        let mut running = Self {
            world,
            agent,
            case,
            child,
            stdin,
            terminal,
            stdout: Stream::default(),
            stderr: Stream::default(),
            env,
            work,
            status: None,
        };
        if let Some(text) = &run.stdin {
            running.give_stdin(&world.fill(text), !run.steps.contains("stdin"));
        }
        Ok(running)
    }

    fn readers(&mut self, run: &Run) -> Vec<JoinHandle<()>> {
        let mut readers = Vec::new();
        if let Some(stdout) = self.child.stdout.take() {
            readers.push(self.stdout.read(stdout, run.close_stdout_after.clone()));
        }
        if let Some(stderr) = self.child.stderr.take() {
            readers.push(self.stderr.read(stderr, None));
        }
        if let Some(copy) = self.terminal.as_ref().and_then(|terminal| terminal.try_clone().ok()) {
            let screen = run.tty.iter().any(|name| name == "stdout");
            let stream = if screen { &self.stdout } else { &self.stderr };
            readers.push(stream.read(copy, None));
        }
        readers
    }

    /// What came on a stream. A terminal makes CR LF of each LF.
    fn text(&self, stream: &Stream) -> String {
        let text = stream.text();
        if self.terminal.is_some() { text.replace("\r\n", "\n") } else { text }
    }

    /// From a thread of its own where it could block; a program that does not read it is no fault here.
    fn give_stdin(&mut self, text: &str, close: bool) {
        if let Some(mut stdin) = self.stdin.take() {
            let text = text.to_owned();
            if close {
                thread::spawn(move || stdin.write_all(text.as_bytes()));
            } else {
                let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush());
                self.stdin = Some(stdin);
            }
        }
    }

    fn steps(&mut self, steps: &str) -> Result<(), String> {
        for line in steps.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let line = self.world.fill(line);
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "wait" => self.wait(rest),
                // Or the program's end, whichever comes first.
                "wait-or-end" => self.wait(rest).or_else(|problem| self.ended_well(problem)),
                "release" => {
                    self.world.model.release(rest);
                    Ok(())
                }
                "frame" => self.frame(rest),
                "write" => self.write_step(rest),
                "signal" => self.signal(rest),
                "sh" => self.shell(rest),
                "side" => self.side(rest),
                "stdin" => self.stdin_step(rest),
                "type" => self.type_step(rest),
                "hang-up" => self.hang_up(),
                _ => Err("unknown step".to_owned()),
            }
            .map_err(|problem| format!("step `{line}`: {problem}"))?;
        }
        Ok(())
    }

    /// Looks until it is so, or the case's time is over.
    fn until(&mut self, mut so: impl FnMut(&Self) -> bool) -> Result<(), String> {
        let mut ended = false;
        loop {
            if so(self) {
                return Ok(());
            }
            if ended {
                return Err("the program had ended".to_owned());
            }
            if self.world.left().is_zero() {
                return Err("did not happen in time".to_owned());
            }
            // One more look after its end: it may have done it last.
            ended = self.look_exit()?;
            thread::sleep(LOOK);
        }
    }

    fn ended_well(&mut self, problem: String) -> Result<(), String> {
        if self.look_exit()? { Ok(()) } else { Err(problem) }
    }

    fn look_exit(&mut self) -> Result<bool, String> {
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(|error| error.to_string())?;
        }
        Ok(self.status.is_some())
    }

    fn wait(&mut self, what: &str) -> Result<(), String> {
        let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
        let world = self.world;
        let number = || rest.parse::<usize>().map_err(|_| "no number".to_owned());
        match word {
            "request" => {
                let n = number()?;
                self.until(|_| world.model.requests().len() >= n)
            }
            // The model notices it a moment later, perhaps after the program's end.
            "gone" => match world.model.wait_gone(number()?, world.left()) {
                true => Ok(()),
                false => Err("did not happen in time".to_owned()),
            },
            "file" => self.until(|_| world.path(rest).is_ok_and(|path| path.exists())),
            "no-file" => self.until(|_| world.path(rest).is_ok_and(|path| !path.exists())),
            "listening" => {
                self.until(|_| session_file(world, "input.fifo").is_ok_and(|path| listening(&path)))
            }
            "idle" => {
                let n = number()?;
                self.until(|_| {
                    count_events(world, "\"type\":\"stop\"") >= n
                        && session_file(world, "agent_running.flag").is_ok_and(|flag| !flag.exists())
                })
            }
            "event" => {
                let (n, text) = rest.split_once(' ').ok_or("wait event N TEXT")?;
                let n = n.parse::<usize>().map_err(|_| "no number")?;
                self.until(|_| count_events(world, text) >= n)
            }
            "out" | "err" => {
                let text = serde_json::from_str(rest).unwrap_or_else(|_| rest.to_owned());
                self.until(|run| if word == "out" { &run.stdout } else { &run.stderr }.text().contains(&text))
            }
            "closed" => self.until(|run| run.stdout.closed.load(Ordering::SeqCst)),
            "exit" => self.wait_exit(),
            _ => Err("unknown thing to wait for".to_owned()),
        }
    }

    fn wait_exit(&mut self) -> Result<(), String> {
        while !self.look_exit()? {
            if self.world.left().is_zero() {
                return Err("the program did not end".to_owned());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// `frame input USER_INPUT 0 "a text"`: one RESP frame in one write.
    fn frame(&mut self, rest: &str) -> Result<(), String> {
        let (fifo, fields) = rest.split_once(' ').ok_or("frame FIFO FIELD…")?;
        let fields = words(fields)?;
        let mut bytes = format!("*{}\r\n", fields.len());
        for field in fields {
            bytes.push_str(&format!("${}\r\n{field}\r\n", field.len()));
        }
        self.write_fifo(fifo, bytes.as_bytes())
    }

    /// `write input "bytes"` or `write work:FILE "bytes"` (which waits for a reader where it is a FIFO).
    fn write_step(&mut self, rest: &str) -> Result<(), String> {
        let (target, text) = rest.split_once(' ').ok_or("write TARGET \"TEXT\"")?;
        let text: String = serde_json::from_str(text).map_err(|error| error.to_string())?;
        self.write_fifo(target, text.as_bytes())
    }

    fn write_fifo(&mut self, target: &str, bytes: &[u8]) -> Result<(), String> {
        let world = self.world;
        let path = || match target {
            "input" | "notify" => session_file(world, &format!("{target}.fifo")),
            other => world.path(other),
        };
        let mut file = None;
        self.until(|_| {
            let open = |path: PathBuf| OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path);
            file = path().ok().and_then(|path| open(path).ok());
            file.is_some()
        })?;
        let mut file = file.ok_or("not open")?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if world.left().is_zero() {
                        return Err("the FIFO stays full".to_owned());
                    }
                    thread::sleep(LOOK);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// `signal INT` to the program alone, `signal INT group` to its process group as a terminal does.
    fn signal(&mut self, rest: &str) -> Result<(), String> {
        let (name, group) = rest.split_once(' ').unwrap_or((rest, ""));
        let signal: Signal = format!("SIG{name}").parse().map_err(|_| "unknown signal".to_owned())?;
        let pid = i32::try_from(self.child.id()).map_err(|_| "a strange pid")?;
        if self.look_exit()? {
            return Err("the program had ended".to_owned());
        }
        kill(Pid::from_raw(if group == "group" { -pid } else { pid }), signal)
            .map_err(|error| error.to_string())
    }

    /// A shell command in the working directory; `$S` is the session's directory. It must end well.
    fn shell(&mut self, script: &str) -> Result<(), String> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).current_dir(&self.work).env_clear().envs(&self.env);
        command.env("S", self.world.session().unwrap_or_default()).env("PROJECT", self.world.project());
        command.env("AGENT_PID", self.child.id().to_string());
        let output = output(&mut command, self.world)?;
        if output.0.success() { Ok(()) } else { Err(format!("{}: {}", output.0, output.1)) }
    }

    fn side(&mut self, rest: &str) -> Result<(), String> {
        let number: usize = rest.parse().map_err(|_| "side N")?;
        let run_ =
            number.checked_sub(1).and_then(|at| self.case.about.side.get(at)).ok_or("no such side run")?;
        let ended = run(self.world, self.agent, self.case, run_);
        crate::check::run("side run", run_, &ended, self.world)
    }

    /// `type "keys"` at the terminal.
    fn type_step(&mut self, rest: &str) -> Result<(), String> {
        let text: String = serde_json::from_str(rest).map_err(|error| error.to_string())?;
        let terminal = self.terminal.as_mut().ok_or("there is no terminal")?;
        terminal.write_all(text.as_bytes()).map_err(|error| error.to_string())
    }

    /// What the kernel does when a terminal's window is closed: HUP to the foreground's group.
    fn hang_up(&mut self) -> Result<(), String> {
        self.terminal = None;
        self.signal("HUP group")
    }

    /// `stdin "text"` or `stdin close`.
    fn stdin_step(&mut self, rest: &str) -> Result<(), String> {
        if rest == "close" {
            self.stdin = None;
            return Ok(());
        }
        let text: String = serde_json::from_str(rest).map_err(|error| error.to_string())?;
        self.give_stdin(&text, false);
        Ok(())
    }
}

/// A terminal of our own for the program.
mod terminal {
    use std::fs::File;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use nix::libc;
    use nix::pty::{Winsize, openpty};

    /// Makes a terminal the program's controlling one and the named streams; returns our end of it.
    pub(super) fn attach(command: &mut Command, names: &[String]) -> io::Result<File> {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None)?;
        let master = File::from(pair.master);
        let slave = File::from(pair.slave);
        for name in names {
            let stream = Stdio::from(slave.try_clone()?);
            match name.as_str() {
                "stdin" => command.stdin(stream),
                "stdout" => command.stdout(stream),
                "stderr" => command.stderr(stream),
                _ => return Err(io::Error::other("tty: stdin, stdout, stderr")),
            };
        }
        let open = slave;
        // SAFETY: setsid and ioctl are async-signal-safe; `open` lives in the closure until the exec.
        unsafe {
            command.pre_exec(move || {
                use std::os::fd::AsRawFd;
                if libc::setsid() < 0 || libc::ioctl(open.as_raw_fd(), libc::TIOCSCTTY, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        Ok(master)
    }
}

/// Runs a helper command to its end within the case's time; its status and both streams.
pub(crate) fn output(command: &mut Command, world: &World) -> Result<(ExitStatus, String), String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let stream = Stream::default();
    let mut readers = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        readers.push(stream.read(stdout, None));
    }
    if let Some(stderr) = child.stderr.take() {
        readers.push(stream.read(stderr, None));
    }
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return match join_all(readers, world) {
                None => Ok((status, stream.text())),
                Some(problem) => Err(problem),
            };
        }
        if world.left().is_zero() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("did not end in time: {}", stream.text()));
        }
        thread::sleep(LOOK);
    }
}

fn session_file(world: &World, name: &str) -> Result<PathBuf, String> {
    Ok(world.session()?.join(name))
}

/// Whether somebody reads a FIFO. Nothing is written to it.
fn listening(path: &Path) -> bool {
    OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(path).is_ok()
}

/// Lines of the session's events.jsonl that hold `text`.
fn count_events(world: &World, text: &str) -> usize {
    let events =
        session_file(world, "events.jsonl").and_then(|path| std::fs::read(path).map_err(|e| e.to_string()));
    String::from_utf8_lossy(&events.unwrap_or_default()).lines().filter(|line| line.contains(text)).count()
}

/// Words of a step: JSON strings, or bare.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut list = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if rest.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            list.push(values.next().ok_or("a string")?.map_err(|error| error.to_string())?);
            rest = &rest[values.byte_offset()..];
        } else {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            list.push(word.to_owned());
            rest = after;
        }
        rest = rest.trim_start();
    }
    Ok(list)
}

/// Processes of a case that are still there, as `pid command`.
pub(crate) fn leftovers(world: &World) -> Vec<(Pid, String)> {
    let mark = format!("{MARK}={}", world.mark);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ.split(|byte| *byte == 0).any(|line| line == mark.as_bytes()) {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            found.push((Pid::from_raw(pid), command));
        }
    }
    found
}

/// Waits a moment for a case's processes to be gone; names those that stay, and ends them.
pub(crate) fn no_leftovers(world: &World) -> Result<(), String> {
    let end = std::time::Instant::now() + Duration::from_secs(3);
    loop {
        let found = leftovers(world);
        if found.is_empty() {
            return Ok(());
        }
        if std::time::Instant::now() > end {
            for (pid, _) in &found {
                let _ = kill(*pid, Signal::SIGKILL);
            }
            let names: Vec<String> = found.iter().map(|(pid, command)| format!("{pid} {command}")).collect();
            return Err(format!("processes left behind:\n{}", names.join("\n")));
        }
        thread::sleep(LOOK);
    }
}
