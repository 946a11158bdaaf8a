//! How files are made, appended to and replaced: private, close-on-exec, and never half (CONTRACT §1, DESIGN
//! "Durability"). Everything opened here is close-on-exec, as std opens it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::error::{SessionError, StorageError};
use super::paths::beside;

const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// The most that is read of a file which is small by its nature (stats, summary, plan, session.json).
pub(crate) const SMALL_FILE: usize = 1 << 20;

/// Makes a directory 0700 whatever the umask; returns whether it was made (`false`: something was there already).
pub(crate) fn make_dir(path: &Path) -> Result<bool, StorageError> {
    let made = DirBuilder::new().mode(DIR_MODE).create(path);
    match made {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(StorageError::at("create", path)(error)),
    }
    fs::set_permissions(path, Permissions::from_mode(DIR_MODE))
        .map_err(StorageError::at("set the mode of", path))?;
    Ok(true)
}

/// Makes `path` a directory 0700 unless it is one.
pub(crate) fn ensure_dir(path: &Path) -> Result<(), SessionError> {
    if !make_dir(path)? && !path.is_dir() {
        return Err(SessionError::WrongKind { path: path.to_path_buf(), expected: "directory" });
    }
    Ok(())
}

/// Opens a regular file with `options`, making it 0600 whatever the umask when it is missing. Never waits: a FIFO in
/// its place is an error.
pub(crate) fn open_private(path: &Path, options: &mut OpenOptions) -> Result<File, SessionError> {
    options.mode(FILE_MODE).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    loop {
        match options.clone().create(false).open(path) {
            Ok(file) => {
                let metadata = file.metadata().map_err(StorageError::at("open", path))?;
                return if metadata.is_file() {
                    Ok(file)
                } else {
                    Err(SessionError::WrongKind { path: path.to_path_buf(), expected: "regular file" })
                };
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // What a FIFO without a reader, or a directory, answers to a writer.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::EISDIR)) => {
                return Err(SessionError::WrongKind { path: path.to_path_buf(), expected: "regular file" });
            }
            Err(error) => return Err(StorageError::at("open", path)(error).into()),
        }
        match options.clone().create_new(true).open(path) {
            Ok(file) => {
                make_private(&file).map_err(StorageError::at("set the mode of", path))?;
                return Ok(file);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(StorageError::at("create", path)(error).into()),
        }
    }
}

/// Opens a file for appending (and reading), making it when it is missing.
pub(crate) fn open_append(path: &Path) -> Result<File, SessionError> {
    open_private(path, OpenOptions::new().read(true).append(true))
}

/// `open_append` where the file's kind was checked when the session was opened.
pub(crate) fn open_append_again(path: &Path) -> Result<File, StorageError> {
    open_append(path).map_err(into_storage)
}

/// A `SessionError` that can only be about storage, as one.
pub(crate) fn into_storage(error: SessionError) -> StorageError {
    match error {
        SessionError::Storage(error) => error,
        SessionError::WrongKind { path, expected } => {
            let cause = io::Error::other(format!("it is not a {expected}"));
            StorageError { doing: "open", path, cause }
        }
        other => StorageError {
            doing: "open",
            path: "the session".into(),
            cause: io::Error::other(other.to_string()),
        },
    }
}

/// A umask may have taken bits away.
fn make_private(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & 0o7777 == FILE_MODE {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(FILE_MODE))
}

/// Whether a replacement must be on the disk before the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Atomic for every reader and every crash of a process.
    Atomic,
    /// Also over a power cut: file and directory are synced.
    Synced,
}

/// Replaces a file atomically by way of `FILE.tmp`. On an error the old content stays. Callers make sure that only
/// one of them does it at a time (the owner, or whoever holds state.lock).
pub(crate) fn replace(path: &Path, content: &[u8], durability: Durability) -> Result<(), StorageError> {
    replace_with(path, durability, |file| file.write_all(content))
}

/// `replace` with what `write` puts into the new file.
pub(crate) fn replace_with(
    path: &Path,
    durability: Durability,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), StorageError> {
    let temporary = beside(path, ".tmp");
    let result = fill(&temporary, durability, write).and_then(|()| {
        fs::rename(&temporary, path)?;
        if durability == Durability::Synced { sync_parent(path) } else { Ok(()) }
    });
    result.map_err(|error| {
        // What cannot be written must at least not take up the space that is missing.
        let _ = fs::remove_file(&temporary);
        StorageError::at("write", path)(error)
    })
}

/// Replaces two files that belong together: both are written before the first takes its place.
pub(crate) fn replace_both(files: [(&Path, &[u8]); 2]) -> Result<(), StorageError> {
    let temporaries = files.map(|(path, _)| beside(path, ".tmp"));
    let written = std::iter::zip(&files, &temporaries).try_for_each(|((path, content), temporary)| {
        fill(temporary, Durability::Atomic, |file| file.write_all(content))
            .map_err(StorageError::at("write", path))
    });
    let replaced = written.and_then(|()| {
        std::iter::zip(&files, &temporaries).try_for_each(|((path, _), temporary)| {
            fs::rename(temporary, path).map_err(StorageError::at("write", path))
        })
    });
    if replaced.is_err() {
        for temporary in &temporaries {
            let _ = fs::remove_file(temporary);
        }
    }
    replaced
}

fn fill(
    path: &Path,
    durability: Durability,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    // One left behind by a crash may be anything; a new one has our mode.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    make_private(&file)?;
    write(&mut file)?;
    if durability == Durability::Synced {
        file.sync_all()?;
    }
    Ok(())
}

/// Makes renames and removals in the directory of `path` survive a power cut.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Removes a file; one that is missing is fine. Returns whether it was there.
pub(crate) fn remove(path: &Path) -> Result<bool, StorageError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(StorageError::at("remove", path)(error)),
    }
}

/// Reads a file that is small by its nature, at most `SMALL_FILE` bytes of it. `None`: there is none.
pub(crate) fn read_small(path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::at("read", path)(error)),
    };
    read_up_to(&file, SMALL_FILE).map(Some).map_err(StorageError::at("read", path))
}

/// Reads at most `limit` bytes of a regular file, with one read for what is really small.
pub(crate) fn read_up_to(mut file: &File, limit: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; limit.min(4096)];
    let mut filled = 0;
    loop {
        match file.read(&mut content[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        // A read that a regular file cannot fill has come to its end.
        if filled < content.len() || filled == limit {
            break;
        }
        content.resize(limit.min(filled * 4), 0);
    }
    content.truncate(filled);
    Ok(content)
}

/// Whether the byte before `end` is a line feed; an empty file counts as ended.
pub(crate) fn ends_in_line_feed(file: &File, end: u64) -> io::Result<bool> {
    if end == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.read_exact_at(&mut last, end - 1)?;
    Ok(last[0] == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_that_fails_leaves_the_old_content_and_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        replace(&path, b"old", Durability::Synced).unwrap();
        let error = replace_with(&path, Durability::Atomic, |file| {
            file.write_all(b"ne")?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        })
        .unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_fifo_in_a_files_place_is_an_error_and_never_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = open_append(&path).unwrap_err();
        assert!(matches!(error, SessionError::WrongKind { .. }), "{error}");
        let error = open_append(dir.path()).unwrap_err();
        assert!(matches!(error, SessionError::WrongKind { .. }), "{error}");
    }
}
