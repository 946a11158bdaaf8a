//! stdout, written so that a slow or closed reader never wedges the agent.
//!
//! A write to a full pipe would block the main loop, and with it an interrupt. So pipes, sockets and terminals are
//! polled together with the turn's cancellation before each write that is guaranteed not to block.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};

use crate::runtime::cancel::Cancel;

/// A pipe that polls writable takes this much without blocking (PIPE_BUF).
const SAFE_WRITE: usize = 4096;

/// Bytes to stdout. What an interrupt left unwritten is kept, in order, and goes out with the next write or `finish`.
pub struct Stdout {
    out: io::Stdout,
    can_block: bool,
    closed: bool,
    pending: Vec<u8>,
}

impl Stdout {
    /// The process's stdout.
    pub fn new() -> Self {
        let out = io::stdout();
        let kind = fstat(out.as_fd())
            .map_or(SFlag::S_IFIFO, |stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        let is_null = fstat(out.as_fd())
            .ok()
            .zip(nix::sys::stat::stat("/dev/null").ok())
            .is_some_and(|(stdout, null)| stdout.st_rdev == null.st_rdev && kind == SFlag::S_IFCHR);
        Self { out, can_block: kind != SFlag::S_IFREG && !is_null, closed: false, pending: Vec::new() }
    }

    /// Whether the reader has gone away: what is written now is dropped.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes all of `bytes`, or keeps the rest when `cancel` comes first. A closed reader is remembered, not an error.
    pub fn write(&mut self, bytes: &[u8], cancel: Option<&Cancel>) {
        if self.closed || (bytes.is_empty() && self.pending.is_empty()) {
            return;
        }
        if self.pending.is_empty() {
            let written = self.write_some(bytes, cancel);
            self.pending.extend_from_slice(&bytes[written..]);
        } else {
            self.pending.extend_from_slice(bytes);
            let pending = std::mem::take(&mut self.pending);
            let written = self.write_some(&pending, cancel);
            self.pending = pending[written..].to_vec();
        }
    }

    /// Writes what is kept, waiting as long as the reader takes.
    pub fn finish(&mut self) {
        self.write(&[], None);
    }

    /// Returns how much was written or, when the reader is gone, all of it.
    fn write_some(&mut self, bytes: &[u8], cancel: Option<&Cancel>) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            let rest = &bytes[written..];
            let piece = if self.can_block && cancel.is_some() {
                if !wait_writable(self.out.as_fd(), cancel) {
                    return written;
                }
                &rest[..rest.len().min(SAFE_WRITE)]
            } else {
                rest
            };
            match nix::unistd::write(&self.out, piece) {
                Ok(n) => written += n,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    wait_writable(self.out.as_fd(), None);
                }
                Err(_) => {
                    self.closed = true;
                    return bytes.len();
                }
            }
        }
        written
    }
}

impl Default for Stdout {
    fn default() -> Self {
        Self::new()
    }
}

/// Waits until `out` takes bytes (true; also when it is in error, which the write then tells) or `cancel` is set (false).
fn wait_writable(out: BorrowedFd<'_>, cancel: Option<&Cancel>) -> bool {
    loop {
        let mut fds = vec![PollFd::new(out, PollFlags::POLLOUT)];
        fds.extend(cancel.map(|cancel| PollFd::new(cancel.fd(), PollFlags::POLLIN)));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) if fds[0].any() != Some(false) => return true,
            Ok(_) if cancel.is_some_and(Cancel::is_cancelled) => return false,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return true,
        }
    }
}

/// Writes to stderr; nobody is told when even that fails.
pub fn stderr(bytes: &[u8]) {
    let _ = io::stderr().write_all(bytes);
}

/// One line on stderr: `bash-agent: …`.
pub fn complain(text: &str) {
    stderr(format!("bash-agent: {text}\n").as_bytes());
}
