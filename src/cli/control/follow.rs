//! Following events.jsonl while an agent writes it: woken by the kernel, ended by the owner's lock.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
#[cfg(target_os = "linux")]
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::runtime::fifo;
use crate::session::paths::SessionDir;

/// What came next.
pub(super) enum Next {
    /// Whole lines, with their line feeds.
    Lines(Vec<u8>),
    /// Nobody runs the session any more, and all lines were given.
    Ended,
    /// The deadline came.
    Timeout,
}

/// A reader at some place of a session's events.
pub(super) struct Follower {
    file: File,
    /// The beginning of a line whose end is not written yet.
    partial: Vec<u8>,
    #[cfg(target_os = "linux")]
    changes: Inotify,
    /// Readable (end of file) once the owner's lock is free.
    owner_gone: OwnedFd,
    ended: bool,
}

impl Follower {
    /// Follows from the present end of the log, or from its start.
    pub(super) fn new(dir: &SessionDir, from_start: bool) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let changes = {
            let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            changes.add_watch(&dir.events(), AddWatchFlags::IN_MODIFY)?;
            changes
        };
        let owner_gone = watch_owner(dir)?;
        let mut file = File::open(dir.events())?;
        if !from_start {
            file.seek(SeekFrom::End(0))?;
        }
        Ok(Self {
            file,
            partial: Vec::new(),
            #[cfg(target_os = "linux")]
            changes,
            owner_gone,
            ended: false,
        })
    }

    /// The next lines, as soon as there are any.
    pub(super) fn next(&mut self, deadline: Option<Instant>) -> io::Result<Next> {
        loop {
            // The owner is looked at first: what it wrote before it ended is read after that.
            let lines = self.read_lines()?;
            if !lines.is_empty() {
                return Ok(Next::Lines(lines));
            }
            if self.ended {
                return Ok(Next::Ended);
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                return Ok(Next::Timeout);
            }
            self.wait(deadline)?;
        }
    }

    fn read_lines(&mut self) -> io::Result<Vec<u8>> {
        let mut block = vec![0; 64 * 1024];
        loop {
            let n = self.file.read(&mut block)?;
            if n == 0 {
                return Ok(Vec::new());
            }
            self.partial.extend_from_slice(&block[..n]);
            if let Some(end) = memchr::memrchr(b'\n', &self.partial) {
                let rest = self.partial.split_off(end + 1);
                return Ok(std::mem::replace(&mut self.partial, rest));
            }
        }
    }

    fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        let left = deadline.map(|end| end.saturating_duration_since(Instant::now()).as_millis() + 1);
        let millis = left.map_or(u16::MAX, |left| u16::try_from(left).unwrap_or(u16::MAX));
        #[cfg(target_os = "linux")]
        let (changes, most) = (Some(PollFd::new(self.changes.as_fd(), PollFlags::POLLIN)), millis);
        // Without inotify the file is looked at ten times a second.
        #[cfg(not(target_os = "linux"))]
        let (changes, most) = (None, millis.min(100));
        let mut fds = vec![PollFd::new(self.owner_gone.as_fd(), PollFlags::POLLIN)];
        fds.extend(changes);
        match poll(&mut fds, PollTimeout::from(most)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        self.ended = fds[0].any() == Some(true);
        #[cfg(target_os = "linux")]
        let _ = self.changes.read_events();
        Ok(())
    }
}

/// A descriptor that ends when the session's lock is free: a thread waits for a shared hold of it and lets it go at
/// once. (An agent that starts just then tries again for 200 ms.)
fn watch_owner(dir: &SessionDir) -> io::Result<OwnedFd> {
    let (reader, writer) = fifo::pipe()?;
    let lock = match File::open(dir.lock()) {
        // Sessions of the Bash agent 4 have no lock: nobody of ours runs them.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(reader),
        opened => opened?,
    };
    std::thread::Builder::new().name("owner".to_owned()).spawn(move || {
        let mut lock = Some(lock);
        while let Some(file) = lock.take() {
            match Flock::lock(file, FlockArg::LockShared) {
                Ok(held) => drop(held),
                Err((file, Errno::EINTR)) => lock = Some(file),
                // No locks here: nothing is known, and the watcher goes on.
                Err(_) => std::thread::park(),
            }
        }
        drop(writer);
    })?;
    Ok(reader)
}
