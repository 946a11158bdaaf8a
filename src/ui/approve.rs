//! A question to the person at the terminal of a run that has no line editor: one line from the controlling terminal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, Sender, SyncSender};

use crate::agent::approval::Answerer;
use crate::runtime::inbox::Event;

/// A thread that reads a line each time it is asked.
pub struct TerminalAnswers {
    ask: Sender<()>,
}

impl TerminalAnswers {
    /// Starts the thread; `None` when nobody can answer: no controlling terminal, a job in its background, or a stderr
    /// that nobody sees.
    pub fn start(sender: SyncSender<Event>) -> io::Result<Option<Self>> {
        let Ok(terminal) = File::open("/dev/tty") else { return Ok(None) };
        // SAFETY: both calls take and give numbers; the descriptor is open.
        let in_front = unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) == libc::getpgrp() };
        if !in_front || !io::stderr().is_terminal() {
            return Ok(None);
        }
        let (ask, asked) = mpsc::channel::<()>();
        let mut lines = BufReader::new(terminal);
        std::thread::Builder::new().name("answers".to_owned()).spawn(move || {
            while asked.recv().is_ok() {
                let mut line = Vec::new();
                match lines.read_until(b'\n', &mut line) {
                    Ok(read) if read > 0 => {
                        let line = String::from_utf8_lossy(&line).into_owned();
                        if sender.send(Event::Answered(line)).is_err() {
                            return;
                        }
                    }
                    // The terminal is gone: the question's own time runs out.
                    _ => return,
                }
            }
        })?;
        Ok(Some(Self { ask }))
    }
}

impl Answerer for TerminalAnswers {
    fn ask(&mut self) {
        // The thread is gone only with the terminal.
        let _ = self.ask.send(());
    }
}
