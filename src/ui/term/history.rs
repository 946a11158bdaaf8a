//! The lines typed before: the history file (CONTRACT §1), going through it and searching it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Of a long history the end is enough.
const HISTORY_BYTES: u64 = 256 * 1024;

/// What was typed, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    path: PathBuf,
    lines: Vec<String>,
    /// Which of them is looked at, and what was being typed before.
    browsed: Option<(usize, String)>,
}

impl History {
    /// The end of the history file at `path`, which need not exist.
    pub(super) fn load(path: PathBuf) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for line in last_lines(&path).lines().filter(|line| !line.is_empty()) {
            if lines.last().is_none_or(|last| last != line) {
                lines.push(line.to_owned());
            }
        }
        Self { path, lines, browsed: None }
    }

    /// Remembers an input; one of several lines only for this run, as the file holds one input a line.
    pub(super) fn add(&mut self, text: &str) {
        self.browsed = None;
        if text.trim().is_empty() || self.lines.last().is_some_and(|last| last == text) {
            return;
        }
        self.lines.push(text.to_owned());
        remember(&self.path, text);
    }

    /// The line before the one looked at; `typed` is kept for the way back.
    pub(super) fn older(&mut self, typed: &str) -> Option<&str> {
        let at = self.browsed.as_ref().map_or(self.lines.len(), |(at, _)| *at).checked_sub(1)?;
        let typed = self.browsed.take().map_or_else(|| typed.to_owned(), |(_, typed)| typed);
        self.browsed = Some((at, typed));
        Some(&self.lines[at])
    }

    /// The line after the one looked at; after the last one, what was being typed.
    pub(super) fn newer(&mut self) -> Option<String> {
        let (at, typed) = self.browsed.take()?;
        let Some(line) = self.lines.get(at + 1) else { return Some(typed) };
        let line = line.clone();
        self.browsed = Some((at + 1, typed));
        Some(line)
    }

    /// The text was changed: going back starts from the end again.
    pub(super) fn edited(&mut self) {
        self.browsed = None;
    }

    /// The newest line before number `before` that holds `part`, in whatever case; its number and itself.
    pub(super) fn find(&self, part: &str, before: usize) -> Option<(usize, &str)> {
        let part = part.to_lowercase();
        let lines = &self.lines[..before.min(self.lines.len())];
        let at = lines.iter().rposition(|line| line.to_lowercase().contains(&part))?;
        Some((at, &lines[at]))
    }

    /// The oldest line after number `after` that holds `part`.
    pub(super) fn find_newer(&self, part: &str, after: usize) -> Option<(usize, &str)> {
        let part = part.to_lowercase();
        let from = after.saturating_add(1).min(self.lines.len());
        let at = self.lines[from..].iter().position(|line| line.to_lowercase().contains(&part))? + from;
        Some((at, &self.lines[at]))
    }
}

/// Appends an input to the history file; one of several lines is none for a file of lines.
pub(in crate::ui) fn remember(path: &Path, text: &str) {
    if text.contains('\n') || text.trim().is_empty() {
        return;
    }
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
    // A history that cannot be written is not worth ending a session for.
    let _ = written;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_plain_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let mut history = History::load(path.clone());
        for text in ["one", "two\nlines", "three", "three", " "] {
            history.add(text);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\nthree\n");
        let long = "x".repeat(HISTORY_BYTES as usize);
        std::fs::write(&path, format!("{long}\nlast\n")).unwrap();
        assert_eq!(last_lines(&path), "last\n");
    }

    #[test]
    fn going_back_and_forth_ends_at_what_was_typed() {
        let mut history =
            History { lines: vec!["cargo test".into(), "git log".into()], ..History::default() };
        assert_eq!(history.older("dra"), Some("git log"));
        assert_eq!(history.older("git log"), Some("cargo test"));
        assert_eq!(history.older("cargo test"), None);
        assert_eq!(history.newer().as_deref(), Some("git log"));
        assert_eq!(history.newer().as_deref(), Some("dra"));
        assert_eq!(history.newer(), None);
        assert_eq!(history.find("TEST", 9).map(|(at, _)| at), Some(0));
        assert_eq!(history.find_newer("g", 0).map(|(at, _)| at), Some(1));
    }
}
