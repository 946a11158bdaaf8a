//! One test's own home and working directory, and the program in it. Used by several test crates, each of which needs
//! a part of it.
#![allow(dead_code)]

pub(crate) mod shape;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use bash_agent::session::paths::{Base, SessionDir};

/// How long a test waits for anything. Only one that fails comes near it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The program under test: `AGENT`, else the one that cargo built.
pub(crate) fn program() -> PathBuf {
    match std::env::var_os("AGENT") {
        Some(path) => fs::canonicalize(path).unwrap(),
        None => PathBuf::from(env!("CARGO_BIN_EXE_bash-agent")),
    }
}

/// The Bash agent.
pub(crate) fn bash_agent() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/agent.sh")
}

/// An own home, working directory and temporary directory; removed with this.
pub(crate) struct World {
    _temp: tempfile::TempDir,
    root: PathBuf,
    program: PathBuf,
}

/// A shell's background job ignores Ctrl+C, one under nohup SIGHUP, and so would every program that is started here.
fn heed_signals() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    for number in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        // SAFETY: the default action runs no code of ours.
        unsafe { signal(number, SigHandler::SigDfl) }.unwrap();
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(program())
    }

    /// A world whose agent is this program.
    pub(crate) fn with(program: PathBuf) -> Self {
        heed_signals();
        let temp = tempfile::Builder::new().prefix("bash-agent-test-").tempdir().unwrap();
        let root = fs::canonicalize(temp.path()).unwrap();
        for dir in ["home", "work", "tmp"] {
            fs::create_dir(root.join(dir)).unwrap();
        }
        Self { _temp: temp, root, program }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub(crate) fn base(&self) -> Base {
        Base::new(self.home().join(".bash-agent"))
    }

    pub(crate) fn session(&self, name: &str) -> SessionDir {
        self.base().session(&self.work(), name)
    }

    /// Writes a cassette, one line each, and returns its path.
    pub(crate) fn cassette(&self, name: &str, lines: &[String]) -> PathBuf {
        let path = self.root.join(name);
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        path
    }

    /// The program in this world, with nothing of the caller's environment but PATH.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        self.command_of(&self.program, args)
    }

    /// `command`, for another program.
    pub(crate) fn command_of<S: AsRef<OsStr>>(
        &self,
        program: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("TMPDIR", self.root.join("tmp"))
            .env("LC_ALL", "C.UTF-8")
            .current_dir(self.work())
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        Ran::of(self.command(args))
    }

    /// Runs it to its end with this on stdin.
    pub(crate) fn run_with_input<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
        input: &[u8],
    ) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        Ran::from(output)
    }

    /// Starts it and follows its stdout line by line.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::start(self.command(args))
    }

    /// Starts an agent that stays on session `name`, with this cassette, and waits until it takes input.
    pub(crate) fn stay(&self, name: &str, cassette: &Path) -> Running {
        let cassette = cassette.to_str().unwrap();
        let running = self.start(["--stay", "--session", name, "-p", "script", "-m", cassette, "--print"]);
        let dir = self.session(name);
        // One that was killed has left its FIFOs; what counts is that this one reads them.
        wait_for("the agent to open its FIFOs", || {
            bash_agent::session::lock::probe(&dir) == Some(running.pid()) && has_reader(&dir.notify_fifo())
        });
        running
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    pub(crate) fn of(mut command: Command) -> Self {
        Self::from(command.output().unwrap())
    }

    /// The same, once it is sure that it ended with `code`.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// A program that runs; killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    stderr: Option<std::thread::JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let mut pipe = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Self { child, lines, stderr: Some(stderr) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line; `None` when stdout has ended.
    #[track_caller]
    pub(crate) fn line(&self) -> Option<String> {
        match self.line_within(LIMIT) {
            Ok(line) => line,
            Err(()) => panic!("no line within {LIMIT:?}"),
        }
    }

    /// `line`, or an error when there is none in time.
    pub(crate) fn line_within(&self, time: Duration) -> Result<Option<String>, ()> {
        match self.lines.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(()),
        }
    }

    /// Reads on to a line that holds `part`; returns it.
    #[track_caller]
    pub(crate) fn until(&self, part: &str) -> String {
        while let Some(line) = self.line() {
            if line.contains(part) {
                return line;
            }
        }
        panic!("stdout ended before a line with {part:?}");
    }

    /// All lines up to the end of stdout.
    #[track_caller]
    pub(crate) fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.line()).collect()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits for its end; the status and all of stderr.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> (ExitStatus, String) {
        self.wait_within(LIMIT)
    }

    /// `wait`, for what may take longer.
    #[track_caller]
    pub(crate) fn wait_within(&mut self, limit: Duration) -> (ExitStatus, String) {
        let end = Instant::now() + limit;
        // std has no wait with a time limit.
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        };
        (status, self.stderr.take().map(|reader| reader.join().unwrap()).unwrap_or_default())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has_reader(fifo: &Path) -> bool {
    let mut options = fs::OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK).open(fifo).is_ok()
}

/// Looks again and again until `holds`; for what gives no sign of its own.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Lines of a cassette.
pub(crate) mod tape {
    use serde_json::{Value, json};

    pub(crate) fn text(content: &str) -> String {
        json!({"type": "text", "content": content}).to_string()
    }

    pub(crate) fn call(id: &str, name: &str, input: Value) -> String {
        json!({"type": "tool_call", "name": name, "id": id, "input": input}).to_string()
    }

    pub(crate) fn usage(input: u64, output: u64) -> String {
        json!({"type": "usage", "input_tokens": input, "output_tokens": output}).to_string()
    }

    pub(crate) fn stop(reason: &str) -> String {
        json!({"type": "stop", "reason": reason}).to_string()
    }

    /// A whole response that says something and ends the turn.
    pub(crate) fn says(content: &str) -> Vec<String> {
        vec![text(content), usage(10, 5), stop("end_turn")]
    }

    /// A whole response with calls.
    pub(crate) fn calls(calls: impl IntoIterator<Item = String>) -> Vec<String> {
        calls.into_iter().chain([usage(10, 5), stop("tool_use")]).collect()
    }
}
