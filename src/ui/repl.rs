//! The line editor: one more writer to the inbox. It reads a line when the agent asks for one, and keeps the history.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender, SyncSender};

use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

use crate::agent::Prompter;
use crate::runtime::inbox::{Event, Typed};

/// Of a long history the end is enough.
const HISTORY_BYTES: u64 = 256 * 1024;

/// A thread that owns the terminal's input.
pub struct LineEditor {
    ask: Sender<()>,
}

impl LineEditor {
    /// Starts the thread; nothing is read before it is asked.
    pub fn start(history: PathBuf, color: bool, sender: SyncSender<Event>) -> io::Result<Self> {
        let (ask, asked) = mpsc::channel::<()>();
        let config = Config::builder().auto_add_history(false).build();
        let mut editor =
            Editor::<(), MemHistory>::with_history(config, MemHistory::new()).map_err(io::Error::other)?;
        for line in last_lines(&history).lines().filter(|line| !line.is_empty()) {
            // A line that the history refuses (a repeated one) is in it already.
            let _ = editor.add_history_entry(line);
        }
        std::thread::Builder::new().name("line editor".to_owned()).spawn(move || {
            while asked.recv().is_ok() {
                let prompt = if color { "\x1b[32m>\x1b[0m " } else { "> " };
                let typed = match editor.readline(prompt) {
                    Ok(line) => {
                        if !line.trim().is_empty() {
                            let _ = editor.add_history_entry(line.as_str());
                            remember(&history, &line);
                        }
                        Typed::Line(line)
                    }
                    Err(ReadlineError::Interrupted) => Typed::Interrupted,
                    Err(_) => Typed::End,
                };
                if sender.send(Event::Typed(typed)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { ask })
    }
}

impl Prompter for LineEditor {
    fn ask(&mut self) {
        // The thread ends only with the process.
        let _ = self.ask.send(());
    }
}

/// The last whole lines of the history file; empty when there is none.
fn last_lines(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(HISTORY_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(HISTORY_BYTES).read_to_end(&mut bytes)?;
        if length > HISTORY_BYTES {
            let start = memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1);
            bytes.drain(..start);
        }
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// One raw line an input (CONTRACT §1); an input of several lines is none for a history of lines.
fn remember(path: &Path, line: &str) {
    if line.contains('\n') {
        return;
    }
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    // A history that cannot be written is not worth ending a session for.
    let _ = written;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_plain_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        assert_eq!(last_lines(&path), "");
        remember(&path, "one");
        remember(&path, "two\nlines");
        remember(&path, "three");
        assert_eq!(last_lines(&path), "one\nthree\n");
        let long = "x".repeat(HISTORY_BYTES as usize);
        std::fs::write(&path, format!("{long}\nlast\n")).unwrap();
        assert_eq!(last_lines(&path), "last\n");
    }
}
