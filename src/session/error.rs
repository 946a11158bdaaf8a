//! What can go wrong with what is kept: each error names the path and says what to do.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::exit::Exit;

/// Our own storage failed: disk full, read-only, no permission, a vanished directory (exit 11). What stood in the
/// file before is left as it was.
#[derive(Debug)]
pub struct StorageError {
    /// What was tried, an infinitive: `write`, `create`, `lock`.
    pub doing: &'static str,
    /// The file or directory it was tried on.
    pub path: PathBuf,
    /// The system's answer.
    pub cause: io::Error,
}

impl StorageError {
    /// For `map_err`: `.map_err(StorageError::at("write", path))`.
    pub fn at(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |cause| Self { doing, path, cause }
    }

    /// The exit code: always 11.
    pub fn exit(&self) -> Exit {
        Exit::Storage
    }

    /// What the user can do about it, where the cause says so.
    fn advice(&self) -> Option<&'static str> {
        match Errno::from_raw(self.cause.raw_os_error()?) {
            Errno::ENOSPC | Errno::EDQUOT => Some("free some space there and run it again"),
            Errno::EROFS => Some("set BASH_AGENT_HOME to a directory that can be written"),
            Errno::EACCES | Errno::EPERM => {
                Some("look at its owner and mode (ls -ld), or set BASH_AGENT_HOME to another directory")
            }
            Errno::ENOENT | Errno::ENOTDIR => {
                Some("a directory on the way is missing: make it again, or set BASH_AGENT_HOME")
            }
            Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::ENOSYS if self.doing == "lock" => {
                Some("this file system has no locks: set BASH_AGENT_HOME to a directory on a local one")
            }
            Errno::EIO => Some("the disk reports an error: see the system's log"),
            _ => None,
        }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.doing, shown(&self.path), cause_text(&self.cause))?;
        match self.advice() {
            Some(advice) => write!(f, " ({advice})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for StorageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Why a session does not open.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A session's name breaks the rules of CONTRACT §1.
    #[error(
        "bad session name {name:?}: {why} (a name is printable characters without '/', \
         at most 255 bytes, not '.' or '..', and does not begin with '-')"
    )]
    BadName {
        /// The name as given.
        name: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// Neither BASH_AGENT_HOME nor HOME is set.
    #[error(
        "no place for sessions: neither BASH_AGENT_HOME nor HOME is set (set BASH_AGENT_HOME to a directory)"
    )]
    NoHome,
    /// The home directory, and the directory it should lie in, are missing.
    #[error("the home directory {} does not exist (create it, or set BASH_AGENT_HOME to another directory)", shown(.0))]
    HomeMissing(
        /// The directory that should exist.
        PathBuf,
    ),
    /// There is no such session.
    #[error("{what} in {} (see --list-sessions)", shown(.project))]
    NoSession {
        /// `no session NAME`, or `no session yet`.
        what: String,
        /// The project's directory that was searched.
        project: PathBuf,
    },
    /// Another process owns the session.
    #[error("session {name} is in use by {} ({}): stop it with `bash-agent stop --session {name}`, or take a copy with --fork",
        owner_text(*.pid), shown(.path))]
    Locked {
        /// The session.
        name: String,
        /// Its owner, as far as the lock file says.
        pid: Option<u32>,
        /// The session's directory.
        path: PathBuf,
    },
    /// The session's directory belongs to another user.
    #[error("{} belongs to user {uid}, not to you (user {own}): run as that user, or set BASH_AGENT_HOME", shown(.path))]
    NotOwned {
        /// The directory.
        path: PathBuf,
        /// Its owner's user id.
        uid: u32,
        /// Our effective user id.
        own: u32,
    },
    /// A file of the session is something else than it must be.
    #[error("{} is not a {expected}: move it away and run it again", shown(.path))]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// `FIFO`, `regular file`, `directory`.
        expected: &'static str,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl SessionError {
    /// The exit code of CONTRACT §13.
    pub fn exit(&self) -> Exit {
        match self {
            Self::BadName { .. } | Self::NoHome => Exit::Usage,
            Self::NoSession { .. } => Exit::NoSession,
            Self::Locked { .. } => Exit::Locked,
            Self::HomeMissing(_) | Self::NotOwned { .. } | Self::WrongKind { .. } | Self::Storage(_) => {
                Exit::Storage
            }
        }
    }
}

/// A path for a message: always one line, control characters escaped.
pub(crate) fn shown(path: &Path) -> String {
    let mut text = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_control() {
            let _ = write!(text, "{}", c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

fn owner_text(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// The system's words without Rust's `(os error n)`.
fn cause_text(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_owned(),
        None => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_error_names_path_cause_and_what_to_do() {
        let error =
            StorageError::at("write", Path::new("/x/a\nb"))(io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(
            error.to_string(),
            "cannot write /x/a\\nb: No space left on device (free some space there and run it again)"
        );
        assert_eq!(SessionError::from(error).exit(), Exit::Storage);
    }

    #[test]
    fn a_locked_session_names_its_owner_and_what_to_do() {
        let error = SessionError::Locked { name: "a".into(), pid: Some(7), path: "/p/a".into() };
        assert_eq!(
            error.to_string(),
            "session a is in use by process 7 (/p/a): stop it with `bash-agent stop --session a`, \
             or take a copy with --fork"
        );
        assert_eq!(error.exit().code(), 4);
    }
}
