//! A terminal of a given size with the program in it, and what its screen shows.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a test waits for anything. Only one that fails comes near it.
const LIMIT: Duration = Duration::from_secs(20);

/// A program in a terminal; killed when this is dropped.
pub(crate) struct Term {
    child: Child,
    input: File,
    keys: Sender<Vec<u8>>,
    bytes: Receiver<Vec<u8>>,
    screen: vt100::Parser<Heard>,
    /// All that the program has written.
    pub(crate) written: Vec<u8>,
}

/// What a program asks of a terminal beyond its screen.
#[derive(Default)]
pub(crate) struct Heard {
    /// The title.
    pub(crate) title: String,
    /// Bells.
    pub(crate) bells: usize,
    /// Whether it wrote to the clipboard.
    pub(crate) clipboard: bool,
    /// Numbers of other OSC sequences.
    pub(crate) osc: Vec<String>,
}

impl vt100::Callbacks for Heard {
    fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
        self.title = String::from_utf8_lossy(title).into_owned();
    }
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.bells += 1;
    }
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], _: &[u8]) {
        self.clipboard = true;
    }
    fn unhandled_osc(&mut self, _: &mut vt100::Screen, params: &[&[u8]]) {
        let params: Vec<_> = params.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect();
        self.osc.push(params.join(";"));
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

impl Term {
    /// Starts `command` in a terminal of this many columns and rows, as the leader of its session.
    pub(crate) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let slave = || Stdio::from(pty.slave.try_clone().unwrap());
        command.stdin(slave()).stdout(slave()).stderr(slave());
        // SAFETY: setsid and ioctl are async-signal-safe and touch no memory of ours.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                if libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(command);
        drop(pty.slave);
        let (sender, bytes) = mpsc::channel();
        let mut output = File::from(pty.master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            // EIO: nobody has the terminal open any more.
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        // Typed from a thread of its own, as both sides may wait for the other when there is much of it.
        let (keys, typed) = mpsc::channel::<Vec<u8>>();
        let mut input = File::from(pty.master.try_clone().unwrap());
        std::thread::spawn(move || {
            while let Ok(bytes) = typed.recv() {
                if input.write_all(&bytes).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new_with_callbacks(cells(rows), cells(columns), 1000, Heard::default());
        Self { child, input: File::from(pty.master), keys, bytes, screen, written: Vec::new() }
    }

    /// Types this.
    pub(crate) fn send(&mut self, text: &str) {
        self.keys.send(text.as_bytes().to_vec()).unwrap();
    }

    /// Sends a signal to the program.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCSWINSZ reads one winsize from the address given.
        let done = unsafe { libc::ioctl(self.input.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(done, 0);
        self.screen.screen_mut().set_size(cells(rows), cells(columns));
    }

    /// The lines of the screen, without blanks at their ends, and without empty lines at its end.
    pub(crate) fn lines(&self) -> Vec<String> {
        let screen = self.screen.screen();
        let mut lines: Vec<String> =
            screen.rows(0, screen.size().1.into()).map(|line| line.trim_end().to_owned()).collect();
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines
    }

    /// What the terminal was asked for.
    pub(crate) fn heard(&self) -> &Heard {
        self.screen.callbacks()
    }

    /// The cell at this row and column.
    pub(crate) fn cell(&self, row: u16, column: u16) -> vt100::Cell {
        self.screen.screen().cell(row, column).unwrap().clone()
    }

    /// Row and column of the cursor.
    pub(crate) fn cursor(&self) -> (u16, u16) {
        self.screen.screen().cursor_position()
    }

    /// Reads on until the screen is as `holds` wants it.
    #[track_caller]
    pub(crate) fn wait(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !holds(self) {
            let left = end.saturating_duration_since(Instant::now());
            match self.bytes.recv_timeout(left) {
                Ok(bytes) => {
                    self.written.extend_from_slice(&bytes);
                    self.screen.process(&bytes);
                }
                Err(RecvTimeoutError::Timeout) => self.give_up(&format!("waited in vain for {what}")),
                Err(RecvTimeoutError::Disconnected) => {
                    assert!(holds(self), "{}", self.complaint(&format!("it ended before {what}")));
                    return;
                }
            }
        }
    }

    #[track_caller]
    fn give_up(&self, why: &str) -> ! {
        panic!("{}", self.complaint(why))
    }

    fn complaint(&self, why: &str) -> String {
        format!("{why}\n--- screen, cursor {:?}\n{}\n---", self.cursor(), self.lines().join("\n"))
    }

    /// Waits until the program takes keys itself.
    #[track_caller]
    pub(crate) fn wait_for_keys(&mut self) {
        self.wait("raw mode", |term| memchr::memmem::find(&term.written, b"\x1b[?2004h").is_some());
    }

    /// Waits until some line holds `part`.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, part: &str) {
        self.wait(part, |term| term.lines().iter().any(|line| line.contains(part)));
    }

    /// Waits until the last lines are these.
    #[track_caller]
    pub(crate) fn wait_for_last(&mut self, expected: &[&str]) {
        let matches = |term: &Self| {
            let lines = term.lines();
            lines.len() >= expected.len() && lines[lines.len() - expected.len()..] == *expected
        };
        self.wait(&format!("{expected:#?}"), matches);
    }

    /// Waits until the whole screen is this.
    #[track_caller]
    pub(crate) fn wait_for_screen(&mut self, expected: &[&str]) {
        self.wait(&format!("{expected:#?}"), |term| term.lines() == expected);
    }

    /// Waits for the program's end; its code, or 128 + the signal that ended it.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> i32 {
        // The terminal is closed by the last process that has it: reading to its end waits for the program.
        let end = Instant::now() + LIMIT;
        while let Ok(bytes) = self.bytes.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.written.extend_from_slice(&bytes);
            self.screen.process(&bytes);
        }
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() >= end {
                self.give_up("it does not end");
            }
            std::thread::yield_now();
        };
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }

    /// The terminal itself, to look at its modes.
    pub(crate) fn master(&self) -> OwnedFd {
        self.input.as_fd().try_clone_to_owned().unwrap()
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
