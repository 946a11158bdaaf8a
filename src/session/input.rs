//! input.ids and input.d: inputs that were run, and inputs too long for one write (CONTRACT §3).

use std::collections::VecDeque;
use std::io::Write;

use super::error::{SessionError, StorageError};
use super::files::{Durability, ensure_dir, into_storage, open_append_again, remove, replace};
use super::paths::{SessionDir, valid_name};
use crate::wire::json;

/// How many ids a session remembers.
const REMEMBERED: usize = 1000;
/// The longest input that is read from a file.
const INPUT_MAX: u64 = 64 << 20;

/// The ids of the inputs that the session took last.
#[derive(Debug)]
pub struct InputIds {
    dir: SessionDir,
    /// As they are stored: without what would break a line.
    ids: VecDeque<String>,
    /// Lines in the file; more than `ids` when it holds more than are remembered.
    lines: usize,
}

impl InputIds {
    /// Reads the session's ids; a missing file holds none.
    pub fn load(dir: &SessionDir) -> Result<Self, StorageError> {
        let content = super::files::read_small(&dir.input_ids())?.unwrap_or_default();
        let text = String::from_utf8_lossy(&content);
        let mut ids: VecDeque<String> = text.lines().map(str::to_owned).collect();
        // A last line that a power cut left without its end must not swallow the next: then all is written anew.
        let lines = if content.last().is_none_or(|last| *last == b'\n') { ids.len() } else { REMEMBERED };
        ids.drain(..ids.len().saturating_sub(REMEMBERED));
        Ok(Self { dir: dir.clone(), ids, lines })
    }

    /// Whether an input with this id was taken already.
    pub fn contains(&self, id: &str) -> bool {
        let id = stored(id);
        self.ids.contains(&id)
    }

    /// Remembers an id, on the disk too.
    pub fn insert(&mut self, id: &str) -> Result<(), StorageError> {
        let id = stored(id);
        let line = format!("{id}\n");
        self.ids.push_back(id);
        if self.ids.len() > REMEMBERED {
            self.ids.pop_front();
        }
        let path = self.dir.input_ids();
        if self.lines >= REMEMBERED {
            let all: String = self.ids.iter().flat_map(|id| [id, "\n"]).collect();
            replace(&path, all.as_bytes(), Durability::Atomic)?;
            self.lines = self.ids.len();
            return Ok(());
        }
        open_append_again(&path)?.write_all(line.as_bytes()).map_err(StorageError::at("write", &path))?;
        self.lines += 1;
        Ok(())
    }
}

/// One line for any id: escaped as in a JSON string, which changes no ordinary one; a very long one is cut.
fn stored(id: &str) -> String {
    let mut out = Vec::new();
    let end = id.char_indices().nth(200).map_or(id.len(), |(end, _)| end);
    json::escape_into(&mut out, &id[..end]);
    String::from_utf8(out).unwrap_or_default()
}

/// Stores an input that is too long for one write as `input.d/<id>`, whole or not at all.
pub fn store(dir: &SessionDir, id: &str, text: &[u8]) -> Result<(), SessionError> {
    valid_name(id)?;
    ensure_dir(&dir.input_dir())?;
    replace(&dir.input_dir().join(id), text, Durability::Synced)?;
    Ok(())
}

/// Reads the input `input.d/<id>`, at most 64 MiB of it. `forget` it when its user line is written.
pub fn read(dir: &SessionDir, id: &str) -> Result<String, SessionError> {
    use std::fs::OpenOptions;
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    valid_name(id)?;
    let path = dir.input_dir().join(id);
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(&path);
    let mut content = Vec::new();
    file.and_then(|file| file.take(INPUT_MAX).read_to_end(&mut content))
        .map_err(StorageError::at("read", &path))?;
    Ok(json::clean(&content).into_owned())
}

/// Removes the input `input.d/<id>`.
pub fn forget(dir: &SessionDir, id: &str) -> Result<(), SessionError> {
    valid_name(id)?;
    remove(&dir.input_dir().join(id)).map(drop).map_err(SessionError::from)
}

/// `store` for callers that know the id to be a good name.
pub fn store_new(dir: &SessionDir, text: &[u8]) -> Result<String, StorageError> {
    let id = super::time::new_id();
    store(dir, &id, text).map_err(into_storage)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> (tempfile::TempDir, SessionDir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        (temp, dir)
    }

    #[test]
    fn the_last_thousand_ids_are_remembered() {
        let (_temp, dir) = session();
        let mut ids = InputIds::load(&dir).unwrap();
        for id in 0..1100 {
            ids.insert(&id.to_string()).unwrap();
        }
        for ids in [&ids, &InputIds::load(&dir).unwrap()] {
            assert!(!ids.contains("99") && ids.contains("100") && ids.contains("1099"));
        }
        assert_eq!(std::fs::read_to_string(dir.input_ids()).unwrap().lines().count(), 1000);
    }

    #[test]
    fn an_id_of_any_bytes_is_one_line() {
        let (_temp, dir) = session();
        let mut ids = InputIds::load(&dir).unwrap();
        ids.insert("a\nb").unwrap();
        std::fs::write(dir.input_ids(), "a\\nb\nc").unwrap();
        let mut ids = InputIds::load(&dir).unwrap();
        ids.insert("d").unwrap();
        assert_eq!(std::fs::read_to_string(dir.input_ids()).unwrap(), "a\\nb\nc\nd\n");
        let ids = InputIds::load(&dir).unwrap();
        assert!(ids.contains("a\nb") && !ids.contains("a") && !ids.contains("b"));
    }

    #[test]
    fn a_long_input_is_stored_read_and_forgotten() {
        let (_temp, dir) = session();
        let id = store_new(&dir, b"text\xff").unwrap();
        assert_eq!(read(&dir, &id).unwrap(), "text\u{fffd}");
        forget(&dir, &id).unwrap();
        assert!(read(&dir, &id).is_err());
        for bad in ["../stats.json", "..", "a/b", ""] {
            assert!(matches!(read(&dir, bad), Err(SessionError::BadName { .. })), "{bad}");
            assert!(store(&dir, bad, b"").is_err());
        }
    }
}
