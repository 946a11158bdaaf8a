//! What a filter reads: stdin up to its end, or up to Ctrl+C. An interrupt counts as the end of the input, so that what
//! a filter holds is still given, and the exit code is 130.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::Exit;
use crate::runtime::fifo::pipe;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Readable from the interrupt on. `None`: it could not be listened to, or is ignored (nohup, `&` in a script).
static WAKE: OnceLock<Option<OwnedFd>> = OnceLock::new();

/// Listens to Ctrl+C from now on; what becomes readable with it. A second one ends the process at once.
pub(super) fn wake() -> Option<BorrowedFd<'static>> {
    let listen = || {
        let (reader, writer) = pipe().ok()?;
        let on_interrupt = move || {
            if INTERRUPTED.swap(true, Ordering::SeqCst) || nix::unistd::write(&writer, b"!").is_err() {
                std::process::exit(Exit::Interrupted.code().into());
            }
        };
        ctrlc::try_set_handler(on_interrupt).is_ok().then_some(reader)
    };
    WAKE.get_or_init(listen).as_ref().map(AsFd::as_fd)
}

/// Whether Ctrl+C came.
pub(super) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// stdin, which ends at Ctrl+C.
pub(super) struct Stdin {
    stdin: io::Stdin,
    wake: Option<BorrowedFd<'static>>,
}

impl Stdin {
    pub(super) fn new() -> Self {
        Self { stdin: io::stdin(), wake: wake() }
    }
}

impl Read for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut fds = vec![PollFd::new(self.stdin.as_fd(), PollFlags::POLLIN)];
            fds.extend(self.wake.map(|wake| PollFd::new(wake, PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) if is_interrupted() => return Ok(0),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            match nix::unistd::read(&self.stdin, buffer) {
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                done => return Ok(done?),
            }
        }
    }
}
