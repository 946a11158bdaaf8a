//! input.ids and input.d: inputs that were run, and inputs too long for one write (CONTRACT §3).

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::conversation::user_line;
use super::error::{SessionError, StorageError};
use super::files::{Durability, ensure_dir, into_storage, open_append_again, open_private, remove, replace};
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

/// An input with an id is about to be written as a user line at `offset` of conversation.jsonl.
pub fn begin(dir: &SessionDir, id: &str, offset: u64) -> Result<(), StorageError> {
    let path = dir.input_journal();
    let note = format!("{{\"conversation\":{offset},\"id\":\"{}\"}}\n", stored(id));
    let mut options = OpenOptions::new();
    let opened = open_private(&path, options.write(true)).map_err(into_storage)?;
    let written = opened.set_len(0).and_then(|()| (&opened).write_all(note.as_bytes()));
    written.map_err(StorageError::at("write", &path))
}

/// User line and id are both written.
pub fn done(dir: &SessionDir) -> Result<(), StorageError> {
    remove(&dir.input_journal()).map(drop)
}

/// At opening, when the conversation's tail is mended: an input whose user line a dead owner wrote, but not its id any
/// more, gets its id remembered, so that a second delivery is not run again.
pub(super) fn recover(dir: &SessionDir) -> Result<(), StorageError> {
    let Some(note) = super::files::read_small(&dir.input_journal())? else { return Ok(()) };
    let offset = json::member(&note, "conversation")
        .and_then(|raw| std::str::from_utf8(raw).ok())
        .and_then(|raw| raw.parse::<u64>().ok());
    let path = dir.conversation();
    let length = std::fs::metadata(&path).map_err(StorageError::at("look at", &path))?.len();
    // A note that is only half there was followed by nothing.
    if let (Some(offset), Some(id)) = (offset, json::member(&note, "id").and_then(json::string))
        && length > offset
    {
        let mut ids = InputIds::load(dir)?;
        if !ids.contains(&id) {
            ids.insert(&id)?;
        }
    }
    done(dir)
}

/// What the name of an input gets that its agent never read.
const UNREAD: &str = ".unread";

/// At opening: inputs that a dead owner never read are not run behind the user's back, but kept beside, under a name
/// that says so; `last_user_line` is the one that was written already. Returns what to tell the user.
pub(super) fn set_aside(
    dir: &SessionDir,
    last_user_line: Option<&[u8]>,
) -> Result<Vec<String>, StorageError> {
    let mut notes = Vec::new();
    let parent = dir.input_dir();
    let entries = match std::fs::read_dir(&parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(notes),
        Err(error) => return Err(StorageError::at("read", &parent)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(StorageError::at("read", &parent))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(UNREAD) || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let is_written = |line: &[u8]| read(dir, &name).is_ok_and(|text| line == user_line(&text));
        // A sender's unfinished file, or one whose user line is there.
        if name.ends_with(".tmp") || name.ends_with(".new") || last_user_line.is_some_and(is_written) {
            remove(&entry.path())?;
            continue;
        }
        let kept = parent.join(format!("{name}{UNREAD}"));
        std::fs::rename(entry.path(), &kept).map_err(StorageError::at("rename", &entry.path()))?;
        let shown = super::error::shown(&kept);
        notes.push(format!("an input that the last agent never read was not run; it is kept in {shown}"));
    }
    Ok(notes)
}

/// Where the input lies; its sender may have stored it for an owner that is dead by now.
fn place(dir: &SessionDir, id: &str) -> PathBuf {
    let path = dir.input_dir().join(id);
    let unread = dir.input_dir().join(format!("{id}{UNREAD}"));
    if !path.exists() && unread.exists() { unread } else { path }
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
    valid_name(id)?;
    let path = place(dir, id);
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(&path);
    let mut content = Vec::new();
    file.and_then(|file| file.take(INPUT_MAX).read_to_end(&mut content))
        .map_err(StorageError::at("read", &path))?;
    Ok(json::clean(&content).into_owned())
}

/// Removes the input `input.d/<id>`.
pub fn forget(dir: &SessionDir, id: &str) -> Result<(), SessionError> {
    valid_name(id)?;
    remove(&place(dir, id)).map(drop).map_err(SessionError::from)
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
    use crate::session::testing::session;

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
    fn an_id_is_remembered_exactly_when_its_user_line_was_written() {
        let (_temp, dir) = session();
        std::fs::write(dir.conversation(), "before\n").unwrap();
        begin(&dir, "a \"1\"", 7).unwrap();
        recover(&dir).unwrap();
        assert!(!InputIds::load(&dir).unwrap().contains("a \"1\"") && !dir.input_journal().exists());
        begin(&dir, "a \"1\"", 7).unwrap();
        std::fs::write(dir.conversation(), "before\nuser line\n").unwrap();
        for _ in 0..2 {
            recover(&dir).unwrap();
            assert_eq!(std::fs::read_to_string(dir.input_ids()).unwrap(), "a \\\"1\\\"\n");
            begin(&dir, "a \"1\"", 7).unwrap();
        }
        // A note that was only half written came before the line.
        std::fs::write(dir.input_journal(), "{\"conversation\":0,\"id\":\"b").unwrap();
        recover(&dir).unwrap();
        assert!(!InputIds::load(&dir).unwrap().contains("b") && !dir.input_journal().exists());
    }

    #[test]
    fn what_was_never_read_is_kept_beside_and_still_found() {
        let (_temp, dir) = session();
        let (written, unread) = (store_new(&dir, b"written").unwrap(), store_new(&dir, b"unread").unwrap());
        std::fs::write(dir.input_dir().join("half.tmp"), "h").unwrap();
        let notes = set_aside(&dir, Some(&user_line("written"))).unwrap();
        assert!(notes.len() == 1 && notes[0].contains(&format!("{unread}.unread")), "{notes:?}");
        assert!(set_aside(&dir, None).unwrap().is_empty() && read(&dir, &written).is_err());
        // Its sender was between storing it and saying so.
        assert_eq!(read(&dir, &unread).unwrap(), "unread");
        forget(&dir, &unread).unwrap();
        assert_eq!(std::fs::read_dir(dir.input_dir()).unwrap().count(), 0);
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
