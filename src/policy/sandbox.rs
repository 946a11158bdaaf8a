//! The kernel sandbox of a command: Landlock for files, seccomp for sockets (Linux). It is prepared in the agent and
//! entered in the child between fork and exec, so that the agent itself stays free.
//!
//! What it cannot do: Landlock knows neither names (`*.pem`) nor changes of mode, owner or time; it cannot deny below
//! a path that it allows, so a directory that holds a closed one is granted by its entries, and new entries cannot be
//! made right in it. `/proc` can be read by every command, for its own `/proc/self`; what belongs to processes outside
//! the sandbox (environment, memory, descriptors) stays closed there.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use super::mode::{Mode, Places};

#[cfg(target_os = "linux")]
#[path = "sandbox_linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "sandbox_none.rs"]
mod system;

/// How much a session relies on the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confinement {
    /// Commands run free; only their judgement beforehand holds.
    Off,
    /// Commands are confined where that can be done.
    #[default]
    WherePossible,
    /// Commands run confined or not at all.
    Required,
    /// Commands run confined by bubblewrap or not at all, even where the kernel has Landlock.
    Bubblewrap,
}

impl Confinement {
    /// Whether commands are really confined here.
    #[must_use]
    pub fn holds(self) -> bool {
        match self {
            Self::Off => false,
            Self::WherePossible | Self::Required => system::version() > 0 || system::bwrap::is_possible(),
            Self::Bubblewrap => system::bwrap::is_possible(),
        }
    }

    /// Whether a command may run when nothing confines it.
    #[must_use]
    pub const fn is_required(self) -> bool {
        matches!(self, Self::Required | Self::Bubblewrap)
    }

    /// In words, for `status`: what confines commands here.
    #[must_use]
    pub fn describe(self) -> String {
        let version = if self == Self::Bubblewrap { 0 } else { system::version() };
        match (self, version) {
            (Self::Off, _) => "off: commands are only judged beforehand".to_owned(),
            (_, 0) if system::bwrap::is_possible() => "bubblewrap and seccomp".to_owned(),
            (Self::Bubblewrap, _) => {
                "none: bubblewrap is asked for and does not work here; no command runs".to_owned()
            }
            (Self::Required, 0) => {
                "none: neither Landlock nor bubblewrap; a sandbox is required, so no command runs".to_owned()
            }
            (_, 0) => "none: neither Landlock nor bubblewrap; commands are only judged beforehand".to_owned(),
            (_, version @ 1..3) => format!(
                "Landlock (ABI {version}: a command can empty files outside and signal the agent) and seccomp"
            ),
            (_, version @ 3..6) => {
                format!("Landlock (ABI {version}: a command can signal the agent) and seccomp")
            }
            (_, version) => format!("Landlock (ABI {version}) and seccomp"),
        }
    }

    /// The same, with what is special about these places.
    #[must_use]
    pub fn describe_at(self, mode: Mode, places: &Places) -> String {
        let mut text = self.describe();
        if self.holds() && system::needs_detour(mode, places) {
            text.push_str(
                "; no mounts can be made here, so nothing new can be made right beside the closed files",
            );
        }
        text
    }
}

/// What holds one command.
pub enum Cage {
    /// Nothing.
    None,
    /// The kernel, entered between fork and exec.
    Kernel(Sandbox),
    /// A program that runs it.
    Wrapper(Wrapper),
}

impl Cage {
    /// What holds a process to `mode` here. Fails where a sandbox is required and there is none, and when the system
    /// refuses something else (no descriptors left): then a command must not run free.
    pub fn new(confinement: Confinement, mode: Mode, places: &Places) -> io::Result<Self> {
        if confinement == Confinement::Off {
            return Ok(Self::None);
        }
        if confinement != Confinement::Bubblewrap
            && let Some(prepared) = system::prepare(mode, places)?
        {
            return Ok(Self::Kernel(Sandbox(prepared)));
        }
        if system::bwrap::is_possible() {
            let (words, files) = system::bwrap::words(mode, places)?;
            return Ok(Self::Wrapper(Wrapper { words, files }));
        }
        if confinement.is_required() {
            let text = format!("a sandbox is required here, and there is {}", confinement.describe());
            return Err(io::Error::other(text));
        }
        Ok(Self::None)
    }

    /// `program`, to be run inside; its arguments, directory and streams are the caller's to add. `first` is called
    /// in the child before anything is closed to it; it may make system calls only.
    pub fn command(
        self,
        program: impl AsRef<OsStr>,
        first: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) -> Command {
        let (mut command, sandbox, files) = match self {
            Self::None => (Command::new(program), None, Vec::new()),
            Self::Kernel(sandbox) => (Command::new(program), Some(sandbox), Vec::new()),
            Self::Wrapper(Wrapper { words, files }) => {
                let mut words = words.into_iter();
                let mut command = Command::new(words.next().unwrap_or_else(|| OsString::from("bwrap")));
                command.args(words).arg(program);
                (command, None, files)
            }
        };
        // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is allocated.
        unsafe {
            command.pre_exec(move || {
                first()?;
                files.iter().try_for_each(keep_open)?;
                sandbox.as_ref().map_or(Ok(()), Sandbox::enter)
            });
        }
        command
    }
}

/// A descriptor that the program about to be executed is to have.
fn keep_open(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: changes a flag of a descriptor that is open.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Landlock and seccomp, made ready for one command.
pub struct Sandbox(Arc<system::Prepared>);

impl Sandbox {
    /// Confines the calling process, its children and theirs, for good. Makes system calls only, so it may be called
    /// between fork and exec.
    fn enter(&self) -> io::Result<()> {
        self.0.enter()
    }
}

/// Bubblewrap and what it is told.
pub struct Wrapper {
    words: Vec<OsString>,
    /// Files that it reads; their numbers are among the words.
    files: Vec<OwnedFd>,
}
