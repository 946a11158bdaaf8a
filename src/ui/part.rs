//! Parts that a program of the user's takes over (DESIGN "Swapping", `BASH_AGENT_PARTS`): an own display, an own replay.
//! Whatever becomes of the program, nothing is lost: what it did not take is given back, for the built-in part.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::runtime::cancel::Cancel;
use crate::runtime::fifo::pipe;
use crate::wire::message::{Channel, Message};
use crate::wire::resp::Decoder;

/// How long a replay may take.
const REPLAY_LIMIT: Duration = Duration::from_secs(30);
/// More than this is no replay of a few turns.
const REPLAY_BYTES: usize = 256 << 20;
/// How long a display may take to show the rest, once there is no more.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long other output waits for a display to have read what came before it.
const SETTLE: Duration = Duration::from_millis(500);
/// How often a part that lets us wait is looked after.
const LOOK: Duration = Duration::from_millis(50);

/// A program that takes a part over, and how it is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// `replay` or `display`.
    part: &'static str,
    /// As the user named it.
    path: String,
    words: Vec<OsString>,
    hidden_env: Vec<String>,
}

/// What the programs are made from.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The awk that runs files ending in `.awk`.
    pub awk: &'a [String],
    /// `AWK_DIR`: where json.awk and protocol.awk are when they are not beside the part.
    pub awk_dir: Option<&'a Path>,
    /// Variables that no part sees: keys.
    pub hidden_env: &'a [String],
}

impl Program {
    /// The program at `path`; a file ending in `.awk` is run by awk with the two libraries. Fails with the reason when
    /// these are nowhere.
    pub fn new(part: &'static str, path: &str, setting: &Setting<'_>) -> Result<Self, String> {
        let mut words = Vec::new();
        if path.ends_with(".awk") {
            let beside = Path::new(path).parent();
            let dirs = [beside, setting.awk_dir];
            let dir = dirs.into_iter().flatten().find(|dir| dir.join("json.awk").is_file());
            let Some(dir) = dir else {
                return Err(format!("needs json.awk and protocol.awk beside {path} or in AWK_DIR"));
            };
            words.extend(setting.awk.iter().map(OsString::from));
            if is_mawk(setting.awk) {
                words.extend(["-W", "interactive"].map(OsString::from));
            }
            for file in [dir.join("json.awk"), dir.join("protocol.awk"), path.into()] {
                words.extend([OsString::from("-f"), file.into_os_string()]);
            }
        } else {
            words.push(path.into());
        }
        Ok(Self { part, path: path.to_owned(), words, hidden_env: setting.hidden_env.to_vec() })
    }

    /// The same with colours, where the program is an awk display.
    pub fn colored(mut self, color: bool, error_color: bool) -> Self {
        for (name, on) in [("color", color), ("error_color", error_color)] {
            if on && self.path.ends_with(".awk") {
                self.words.extend([OsString::from("-v"), format!("{name}=1").into()]);
            }
        }
        self
    }

    /// What to tell the user: the built-in part does the work from now on.
    pub fn complaint(&self, why: &str) -> String {
        format!("the {} part {} {why}: the built-in one takes over", self.part, self.path)
    }

    fn spawn(&self, stdin: Stdio, stdout: Stdio) -> Result<Child, String> {
        let (program, arguments) = self.words.split_first().ok_or("is empty")?;
        let mut command = Command::new(program);
        // A group of its own: Ctrl+C ends a turn, not the display of what came before.
        command.args(arguments).stdin(stdin).stdout(stdout).process_group(0);
        if self.path.ends_with(".awk") {
            command.env("LC_ALL", "C");
        }
        for name in &self.hidden_env {
            command.env_remove(name);
        }
        command.spawn().map_err(|error| format!("could not be started ({error})"))
    }
}

/// mawk reads a whole block before it works, unless it is told not to.
fn is_mawk(awk: &[String]) -> bool {
    let Some((program, arguments)) = awk.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).args(["-W", "version"]).stdin(Stdio::null());
    command.output().is_ok_and(|output| output.stdout.starts_with(b"mawk"))
}

fn end_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Ends a child for good.
fn kill(child: &mut Child) {
    // It may have ended by itself meanwhile.
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits for a child; `None` when it has not ended at `deadline`.
fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(pause),
            Ok(None) | Err(_) => return None,
        }
        pause = (pause * 2).min(LOOK);
    }
}

/// Runs a replay part over event lines, from where `events` stands. All its messages, or why there are none: then it
/// has shown nothing.
pub fn replay(program: &Program, events: File) -> Result<Vec<Message>, String> {
    let mut child = program.spawn(events.into(), Stdio::piped())?;
    let deadline = Instant::now() + REPLAY_LIMIT;
    let messages = match child.stdout.take() {
        Some(output) => messages_of(output, deadline),
        None => Err("has no output".to_owned()),
    };
    match (messages, wait_until(&mut child, deadline)) {
        (Ok(messages), Some(status)) if status.success() => Ok(messages),
        (Ok(_), Some(status)) => Err(end_of(status)),
        (Ok(_), None) => {
            kill(&mut child);
            Err("did not end in time".to_owned())
        }
        (Err(why), _) => {
            kill(&mut child);
            Err(why)
        }
    }
}

fn messages_of(mut output: impl Read + AsFd, deadline: Instant) -> Result<Vec<Message>, String> {
    let mut decoder = Decoder::new();
    let mut messages = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    let mut size = 0;
    loop {
        if !is_ready(&output, PollFlags::POLLIN, deadline) {
            return Err("did not end in time".to_owned());
        }
        let read = match output.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("could not be read ({error})")),
        };
        size += read;
        if size > REPLAY_BYTES {
            return Err("printed more than 256 MiB".to_owned());
        }
        decoder.feed(&buffer[..read]);
        while let Some(frame) = decoder.next_with(|fields| Message::from_fields(Channel::Display, fields)) {
            let message = frame.map_err(|_| "printed what is no RESP message".to_owned())?;
            messages.push(message.map_err(|error| format!("printed what is no display message ({error})"))?);
        }
        if read == 0 {
            return match decoder.finish() {
                Some(_) => Err("printed what is no RESP message".to_owned()),
                None => Ok(messages),
            };
        }
    }
}

fn is_ready(file: &impl AsFd, flags: PollFlags, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::from(u16::try_from(left.as_millis()).unwrap_or(u16::MAX));
        match poll(&mut [PollFd::new(file.as_fd(), flags)], timeout) {
            Ok(0) => return false,
            Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
}

/// Why a display part is no more, and what is left to show.
#[derive(Debug)]
pub struct Ended {
    /// For the user; `None`: the reader of stdout has gone away, which is no fault.
    pub why: Option<String>,
    /// Messages it has not read, oldest first.
    pub left: Vec<Message>,
}

/// A running display part: messages go to its stdin, it writes to our stdout itself.
#[derive(Debug)]
pub struct Display {
    child: Child,
    /// Never blocks.
    writer: Option<OwnedFd>,
    /// The other end of `writer`: what is still in it, the part has not read.
    reader: OwnedFd,
    /// Frames that the part may not have read whole.
    frames: VecDeque<Vec<u8>>,
    /// Stream offset of the first of `frames`.
    offset: usize,
    /// Stream offset up to which was written.
    written: usize,
}

impl Display {
    /// Starts the part. Fails with the reason.
    pub fn start(program: &Program) -> Result<Self, String> {
        let failed = |error: io::Error| format!("could not be started ({error})");
        let (reader, writer) = pipe().map_err(failed)?;
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|errno| failed(errno.into()))?;
        let stdin = reader.try_clone().map_err(failed)?;
        let child = program.spawn(stdin.into(), Stdio::inherit())?;
        let (frames, writer) = (VecDeque::new(), Some(writer));
        Ok(Self { child, writer, reader, frames, offset: 0, written: 0 })
    }

    /// Gives it one message. What an interrupt keeps from being written goes out with the next one.
    pub fn show(&mut self, message: &Message, cancel: Option<&Cancel>) -> Result<(), Ended> {
        let mut frame = Vec::new();
        message.encode(Channel::Display, &mut frame);
        self.frames.push_back(frame);
        self.write(cancel, None)?;
        match self.child.try_wait() {
            Ok(None) => {
                self.forget_read();
                Ok(())
            }
            Ok(Some(status)) => Err(self.ended(status)),
            Err(error) => Err(self.lost(format!("could not be waited for ({error})"))),
        }
    }

    /// Waits a little until it has read everything, so that what is written past it comes behind.
    pub fn settle(&mut self) {
        let deadline = Instant::now() + SETTLE;
        while self.unread() > 0 && Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// There is no more: lets it end.
    pub fn finish(mut self) -> Result<(), Ended> {
        let deadline = Instant::now() + LAST_WORDS;
        self.write(None, Some(deadline))?;
        self.writer = None;
        match wait_until(&mut self.child, deadline) {
            Some(status) if status.success() && self.unread() == 0 => Ok(()),
            Some(status) => Err(self.ended(status)),
            None => Err(self.lost("did not end in time".to_owned())),
        }
    }

    /// Writes what is not written yet, as long as the part lives and nobody cancels.
    fn write(&mut self, cancel: Option<&Cancel>, deadline: Option<Instant>) -> Result<(), Ended> {
        let Some(writer) = self.writer.as_ref() else { return Ok(()) };
        loop {
            let mut begin = self.written - self.offset;
            let unwritten = self.frames.iter().find_map(|frame| match frame.get(begin..) {
                Some(rest) if !rest.is_empty() => Some(rest),
                _ => {
                    begin -= frame.len();
                    None
                }
            });
            let Some(rest) = unwritten else { return Ok(()) };
            match nix::unistd::write(writer, rest) {
                Ok(count) => self.written += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    if cancel.is_some_and(Cancel::is_cancelled) {
                        return Ok(());
                    }
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(self.lost("does not read".to_owned()));
                    }
                    if let Ok(Some(status)) = self.child.try_wait() {
                        return Err(self.ended(status));
                    }
                    // Our own read end keeps EPIPE away: so the part is looked after now and then.
                    is_ready(writer, PollFlags::POLLOUT, Instant::now() + LOOK);
                }
                Err(errno) => return Err(self.lost(format!("does not take messages ({errno})"))),
            }
        }
    }

    /// Bytes that were written and not read.
    fn unread(&self) -> usize {
        let mut count: libc::c_int = 0;
        // SAFETY: FIONREAD writes one int to the address given, which is that of one.
        let done = unsafe { libc::ioctl(self.reader.as_raw_fd(), libc::FIONREAD, &raw mut count) };
        if done == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
    }

    fn forget_read(&mut self) {
        let read = self.written.saturating_sub(self.unread());
        while let Some(frame) = self.frames.front()
            && self.offset + frame.len() <= read
        {
            self.offset += frame.len();
            self.frames.pop_front();
        }
    }

    fn ended(&mut self, status: ExitStatus) -> Ended {
        let stdout_closed = status.signal() == Some(libc::SIGPIPE) || status.code() == Some(141);
        Ended { why: (!stdout_closed).then(|| end_of(status)), left: self.left() }
    }

    fn lost(&mut self, why: String) -> Ended {
        kill(&mut self.child);
        Ended { why: Some(why), left: self.left() }
    }

    fn left(&mut self) -> Vec<Message> {
        self.forget_read();
        let mut decoder = Decoder::new();
        self.frames.drain(..).for_each(|frame| decoder.feed(&frame));
        let mut left = Vec::new();
        while let Some(frame) = decoder.next_with(|fields| Message::from_fields(Channel::Display, fields)) {
            left.extend(frame.ok().and_then(Result::ok));
        }
        left
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.writer = None;
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            kill(&mut self.child);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SETTING: Setting<'static> = Setting { awk: &[], awk_dir: None, hidden_env: &[] };

    /// A part that is a shell script.
    fn script(dir: &Path, part: &'static str, text: &str) -> Program {
        let path = dir.join("part.sh");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Program::new(part, path.to_str().unwrap(), &SETTING).unwrap()
    }

    fn text(content: impl Into<String>) -> Message {
        Message::Text { content: content.into() }
    }

    #[test]
    fn what_a_display_did_not_read_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        // The first frame is 24 bytes; of the second only a part is read.
        let program = script(dir.path(), "display", "dd bs=1 count=30 of=/dev/null 2>/dev/null; exit 3");
        let mut display = Display::start(&program).unwrap();
        let mut ended = None;
        for number in 0..2000 {
            if let Err(end) = display.show(&text(format!("{number:04}")), None) {
                ended = Some((number, end));
                break;
            }
        }
        let (last, ended) = match ended {
            Some((last, ended)) => (last, ended),
            None => (1999, display.finish().unwrap_err()),
        };
        assert_eq!(ended.why.as_deref(), Some("ended with code 3"));
        let numbers: Vec<Message> = (1..=last).map(|number| text(format!("{number:04}"))).collect();
        assert_eq!(ended.left, numbers);
    }

    #[test]
    fn a_display_that_never_reads_gives_all_back_and_an_interrupt_is_not_held_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut display = Display::start(&script(dir.path(), "display", "exec sleep 600")).unwrap();
        let cancel = Cancel::new().unwrap();
        cancel.cancel();
        let messages = [text("x".repeat(100_000)), text("y"), text("z".repeat(100_000))];
        messages.iter().for_each(|message| display.show(message, Some(&cancel)).unwrap());
        let ended = display.lost("was given up".to_owned());
        assert_eq!(ended.left, messages);
    }

    #[test]
    fn a_closed_stdout_is_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        let display = Display::start(&script(dir.path(), "display", "kill -PIPE $$")).unwrap();
        assert_eq!(display.finish().unwrap_err().why, None);
    }

    #[test]
    fn a_replay_gives_messages_or_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let mut frame = Vec::new();
        text("hi").encode(Channel::Display, &mut frame);
        std::fs::write(dir.path().join("events"), frame).unwrap();
        let run = |code: &str| {
            replay(&script(dir.path(), "replay", code), File::open(dir.path().join("events")).unwrap())
        };
        assert_eq!(run("cat"), Ok(vec![text("hi")]));
        assert_eq!(run("exit 0"), Ok(Vec::new()));
        assert_eq!(run("cat; exit 4"), Err("ended with code 4".to_owned()));
        assert_eq!(run("cat; echo x"), Err("printed what is no RESP message".to_owned()));
        assert!(run("printf '*1\\r\\n$3\\r\\nFOO\\r\\n'").unwrap_err().contains("unknown message `FOO`"));
        let missing = Program::new("replay", "/nonexistent/part", &SETTING).unwrap();
        let error = replay(&missing, File::open("/dev/null").unwrap()).unwrap_err();
        assert!(missing.complaint(&error).contains("could not be started"), "{error}");
        assert!(Program::new("replay", "/nonexistent/part.awk", &SETTING).unwrap_err().contains("AWK_DIR"));
    }
}
