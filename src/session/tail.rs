//! The ends of the NDJSON files, where a crash leaves its marks (CONTRACT §4, DESIGN "Durability"). Only the ends are
//! read, so a file of any size costs the same.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::conversation::USER_TURN;
use super::error::{SessionError, StorageError, shown};
use super::files::{open_append, open_append_again};
use super::mend;
use super::paths::{SessionDir, beside};
use crate::wire::ndjson::LinesBack;

/// Makes a file end in a whole line: a last line that parses gets its line feed, any other goes to FILE.torn. Blank
/// lines behind it change nothing. Returns what to tell the user.
pub(super) fn repair(path: &Path) -> Result<Option<String>, SessionError> {
    let mut file = open_append(path)?;
    match look(&file).map_err(StorageError::at("read", path))? {
        End::Whole => Ok(None),
        End::Unended => {
            file.write_all(b"\n").map_err(StorageError::at("write", path))?;
            Ok(None)
        }
        End::Torn { offset } => {
            let torn = beside(path, ".torn");
            let cut = move_end(&mut file, offset, &torn)?;
            file.set_len(offset).map_err(StorageError::at("cut", path))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Ok(Some(format!("{name}: a torn last line ({cut} bytes) was moved to {}", shown(&torn))))
        }
    }
}

enum End {
    Whole,
    Unended,
    Torn { offset: u64 },
}

fn look(file: &File) -> io::Result<End> {
    let mut lines = LinesBack::new(file.try_clone()?)?;
    while let Some(line) = lines.next()? {
        if line.is_blank() {
            continue;
        }
        let whole = line.length == line.bytes.len() as u64 && mend::is_readable(line.bytes);
        return Ok(match (whole, line.terminated) {
            (true, true) => End::Whole,
            (true, false) => End::Unended,
            (false, _) => End::Torn { offset: line.offset },
        });
    }
    Ok(End::Whole)
}

/// Appends what stands behind `offset` to the file `torn`, synced, for it is cut off next. Returns how many bytes.
fn move_end(file: &mut File, offset: u64, torn: &Path) -> Result<u64, StorageError> {
    let mut target = open_append_again(torn)?;
    let moved = file.seek(SeekFrom::Start(offset)).and_then(|_| {
        let moved = io::copy(file, &mut target)?;
        target.write_all(b"\n")?;
        target.sync_data()?;
        Ok(moved)
    });
    moved.map_err(StorageError::at("write", torn))
}

/// The calls of a last assistant line, which have no results: where the line begins, and their ids. `None`: the
/// conversation does not end in one. Lines that cannot be read are passed over.
pub(super) fn open_calls(path: &Path) -> Result<Option<(u64, Vec<String>)>, StorageError> {
    let find = || -> io::Result<Option<(u64, Vec<String>)>> {
        let mut lines = LinesBack::new(File::open(path)?)?;
        while let Some(line) = lines.next()? {
            if line.is_blank() || !mend::is_readable(line.bytes) {
                continue;
            }
            let calls = mend::calls(line.bytes);
            return Ok((!calls.is_empty()).then_some((line.offset, calls)));
        }
        Ok(None)
    };
    find().map_err(StorageError::at("read", path))
}

/// The last true user turn, a line without its line feed. Reads back as far as it must.
pub(super) fn last_user_line(dir: &SessionDir) -> Result<Option<Vec<u8>>, StorageError> {
    let path = dir.conversation();
    let find = || -> io::Result<Option<Vec<u8>>> {
        let mut lines = LinesBack::new(File::open(&path)?)?;
        while let Some(line) = lines.next()? {
            if line.bytes.starts_with(USER_TURN) {
                return Ok(Some(line.bytes.to_vec()));
            }
        }
        Ok(None)
    };
    match fs::exists(&path) {
        Ok(false) => Ok(None),
        _ => find().map_err(StorageError::at("read", &path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "{\"role\":\"user\",\"content\":\"hi\"}";

    fn repaired(content: &[u8]) -> (String, Option<String>, Option<Vec<u8>>) {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("conversation.jsonl");
        fs::write(&path, content).unwrap();
        let note = repair(&path).unwrap();
        assert_eq!(repair(&path).unwrap(), None, "a second repair has nothing to do");
        (fs::read_to_string(&path).unwrap(), note, fs::read(beside(&path, ".torn")).ok())
    }

    #[test]
    fn tails_are_ended_or_cut_off() {
        let whole = format!("{GOOD}\n");
        let torn = "{\"role\":\"assistant\",\"con";
        for (content, left, cut) in [
            (String::new(), "", None),
            (whole.clone(), whole.as_str(), None),
            (GOOD.to_owned(), &whole, None),
            (format!("{whole}\n \n"), &format!("{whole}\n \n"), None),
            (format!("{whole}{torn}"), &whole, Some(torn)),
            (format!("{whole}{torn}\n\n\n"), &whole, Some(torn)),
            (format!("{whole}\0\0\0"), &whole, Some("\0\0\0")),
            (torn.to_owned(), "", Some(torn)),
            (format!("{whole}17"), &whole, Some("17")),
            ("{\"a\":{\"input\":}}\n".into(), "{\"a\":{\"input\":}}\n", None),
        ] {
            let (after, note, file) = repaired(content.as_bytes());
            assert_eq!(after, left, "{content:?}");
            assert_eq!(note.is_some(), cut.is_some(), "{content:?}");
            assert_eq!(file.is_some(), cut.is_some(), "{content:?}");
            if let (Some(cut), Some(file)) = (cut, file) {
                assert!(file.starts_with(cut.as_bytes()));
            }
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_are_cut_off_unchanged() {
        let (after, _, file) = repaired(b"{\"a\":1}\n{\"b\":\"\xff\xfe");
        assert_eq!(after, "{\"a\":1}\n");
        assert_eq!(file.unwrap(), b"{\"b\":\"\xff\xfe\n");
    }
}
