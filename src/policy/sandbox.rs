//! The kernel sandbox of a command: Landlock for files, seccomp for sockets (Linux). It is prepared in the agent and
//! entered in the child between fork and exec, so that the agent itself stays free.
//!
//! What it cannot do: Landlock knows neither names (`*.pem`) nor changes of mode, owner or time; it cannot deny below
//! a path that it allows, so a directory that holds a closed one is granted by its entries, and new entries cannot be
//! made right in it. `/proc` can be read by every command, for its own `/proc/self`; what belongs to processes outside
//! the sandbox (environment, memory, descriptors) stays closed there.

use std::ffi::OsString;
use std::io;

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
    /// Commands are confined where the kernel can do it.
    #[default]
    WherePossible,
    /// Commands run confined or not at all.
    Required,
}

/// A sandbox made ready for one command.
pub struct Sandbox(system::Prepared);

impl Sandbox {
    /// Makes a sandbox that holds a process to `mode`. `None` when the kernel has no Landlock. Fails when the system
    /// refuses something else (no descriptors left): then a command must not run free.
    pub fn prepare(mode: Mode, places: &Places) -> io::Result<Option<Self>> {
        Ok(system::prepare(mode, places)?.map(Self))
    }

    /// Confines the calling process, its children and theirs, for good. Makes system calls only, so it may be called
    /// between fork and exec.
    pub fn enter(&self) -> io::Result<()> {
        self.0.enter()
    }
}

/// The words that go before a command to confine it where the kernel has no Landlock: bubblewrap with its options.
/// `None` where that is not installed or may not do its work.
pub fn wrapper(mode: Mode, places: &Places) -> io::Result<Option<Vec<OsString>>> {
    if system::bwrap::is_possible() { system::bwrap::words(mode, places).map(Some) } else { Ok(None) }
}

/// Whether a command can be confined here, by the kernel alone or by bubblewrap.
#[must_use]
pub fn is_supported() -> bool {
    system::version() > 0 || system::bwrap::is_possible()
}

/// The sandbox in words, for `status`.
#[must_use]
pub fn describe() -> String {
    match system::version() {
        0 if system::bwrap::is_possible() => {
            "bubblewrap: this kernel has no Landlock; the network is closed or open as a whole".to_owned()
        }
        0 => "none: neither Landlock nor bubblewrap; commands are only judged beforehand".to_owned(),
        version @ 1..6 => format!("Landlock (ABI {version}: commands can signal the agent) and seccomp"),
        version => format!("Landlock (ABI {version}) and seccomp"),
    }
}
