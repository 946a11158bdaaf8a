//! Who owns a session, and who may change what several processes write (CONTRACT §2, "Locks"). All locks are
//! `flock`s on open files, so they end with the process that holds them; what a lock file holds means nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::error::{SessionError, StorageError};
use super::files::{into_storage, open_private};
use super::paths::SessionDir;

/// How long a lock that is taken is tried again: a probe or a sender may hold it for a moment.
const PATIENCE: Duration = Duration::from_millis(200);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// The exclusive lock on session.lock: whoever holds it owns the session until this is dropped or the process ends.
#[derive(Debug)]
pub struct OwnerLock {
    // Held, never read: dropping it gives the lock back.
    _lock: Flock<File>,
}

impl OwnerLock {
    /// Takes the session's lock, trying for 200 ms, and writes our pid into it.
    pub fn take(dir: &SessionDir) -> Result<Self, SessionError> {
        let path = dir.lock();
        let mut file = open_private(&path, OpenOptions::new().read(true).write(true))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    write_pid(&lock);
                    return Ok(Self { _lock: lock });
                }
                Err((returned, Errno::EWOULDBLOCK)) if Instant::now() < deadline => {
                    file = returned;
                    std::thread::sleep(PAUSE);
                }
                Err((returned, Errno::EWOULDBLOCK)) => {
                    let pid = read_pid(&returned);
                    return Err(SessionError::Locked {
                        name: dir.name(),
                        pid,
                        path: dir.path().to_path_buf(),
                    });
                }
                Err((returned, Errno::EINTR)) => file = returned,
                Err((_, errno)) => return Err(StorageError::at("lock", &path)(errno.into()).into()),
            }
        }
    }
}

/// The pid is for people only, so a full disk must not keep the session shut.
fn write_pid(file: &File) {
    let text = format!("{}\n", std::process::id());
    let written = file.write_all_at(text.as_bytes(), 0).and_then(|()| file.set_len(text.len() as u64));
    if written.is_err() {
        let _ = file.set_len(0);
    }
}

fn read_pid(mut file: &File) -> Option<u32> {
    let mut text = String::new();
    file.by_ref().take(16).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
}

/// Who owns the session now: `None` when nobody does, else the pid (0 when the lock file does not say). Takes and
/// gives back a shared lock, and makes nothing.
pub fn probe(dir: &SessionDir) -> Option<u32> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(dir.lock()).ok()?;
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Err((file, Errno::EWOULDBLOCK)) => Some(read_pid(&file).unwrap_or(0)),
        _ => None,
    }
}

/// The exclusive lock on state.lock: held around every update of stats, count and list, appends to notify.buf, its
/// draining, and appends to events.jsonl by who does not own the session. Never hold it while waiting for anything.
#[derive(Debug)]
pub struct StateLock {
    _lock: Flock<File>,
}

impl StateLock {
    /// Waits for the lock and takes it. Open the files it guards afterwards.
    pub fn take(dir: &SessionDir) -> Result<Self, StorageError> {
        Self::at(&dir.state_lock())
    }

    /// Waits for the lock on the file at `path`, making it when it is missing.
    pub fn at(path: &Path) -> Result<Self, StorageError> {
        let mut file = open_private(path, OpenOptions::new().read(true).write(true)).map_err(into_storage)?;
        loop {
            match Flock::lock(file, FlockArg::LockExclusive) {
                Ok(lock) => return Ok(Self { _lock: lock }),
                Err((returned, Errno::EINTR)) => file = returned,
                Err((_, errno)) => return Err(StorageError::at("lock", path)(io::Error::from(errno))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::testing::session;

    #[test]
    fn the_second_owner_is_refused_with_the_first_ones_pid() {
        let (_temp, dir) = session();
        assert_eq!(probe(&dir), None);
        let lock = OwnerLock::take(&dir).unwrap();
        assert_eq!(probe(&dir), Some(std::process::id()));
        match OwnerLock::take(&dir) {
            Err(SessionError::Locked { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(lock);
        assert_eq!(probe(&dir), None);
        OwnerLock::take(&dir).unwrap();
    }

    #[test]
    fn a_stale_pid_means_nothing() {
        let (_temp, dir) = session();
        std::fs::write(dir.lock(), "1\nand much that an earlier program wrote").unwrap();
        let _lock = OwnerLock::take(&dir).unwrap();
        assert_eq!(std::fs::read_to_string(dir.lock()).unwrap(), format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_probe_does_not_keep_an_owner_out() {
        let (_temp, dir) = session();
        drop(OwnerLock::take(&dir).unwrap());
        let shared = Flock::lock(File::open(dir.lock()).unwrap(), FlockArg::LockSharedNonblock).unwrap();
        let taker = std::thread::spawn({
            let dir = dir.clone();
            move || OwnerLock::take(&dir).is_ok()
        });
        drop(shared);
        assert!(taker.join().unwrap());
    }
}
