//! FIFOs as CONTRACT §3 "Opening a FIFO" wants them: a reader that never blocks and never sees EOF,
//! writers that never hang and never mix.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// Why a FIFO cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FifoError {
    /// Something else lies in its place.
    #[error("{0} is no FIFO: move it away and start again")]
    NotAFifo(PathBuf),
    /// The system's word.
    #[error("{path}: {error}")]
    Io {
        /// The FIFO.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Why a message could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nobody reads: no agent is there.
    #[error("no agent is running on {0}")]
    NobodyThere(PathBuf),
    /// The reader did not take it in time.
    #[error("{0}: the agent does not read (stopped?); gave up after {1} s")]
    Full(PathBuf, u64),
    /// The system's word.
    #[error("{path}: {error}")]
    Io {
        /// The FIFO.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The reader's two ends: the write end of its own keeps EOF away. Both are close-on-exec.
#[derive(Debug)]
pub struct Fifo {
    reader: File,
    _writer: File,
    path: PathBuf,
}

impl Fifo {
    /// Makes the FIFO (0600) when it is missing, checks that it is one, opens both ends.
    /// The caller owns the session's lock already.
    pub fn open(path: &Path) -> Result<Self, FifoError> {
        let wrap = |error: io::Error| FifoError::Io { path: path.to_owned(), error };
        match mkfifo(path, Mode::from_bits_truncate(0o600)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(wrap(errno.into())),
        }
        // Mode first: mkfifo obeys the umask, and a FIFO found here may be somebody's wider one.
        let found = std::fs::symlink_metadata(path).map_err(wrap)?;
        if !found.file_type().is_fifo() {
            return Err(FifoError::NotAFifo(path.to_owned()));
        }
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).map_err(wrap)?;
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits();
        let reader = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(wrap)?;
        let writer = OpenOptions::new().write(true).custom_flags(flags).open(path).map_err(wrap)?;
        Ok(Self { reader, _writer: writer, path: path.to_owned() })
    }

    /// Waits until bytes are there (true) or `deadline` comes (false; `None` = for ever).
    pub fn wait(&self, deadline: Option<Instant>) -> io::Result<bool> {
        self.wait_with(deadline, None)
    }

    /// The same, and ends too when `wake` is readable.
    pub fn wait_with(&self, deadline: Option<Instant>, wake: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        loop {
            let mut fds = vec![PollFd::new(self.reader.as_fd(), PollFlags::POLLIN)];
            fds.extend(wake.map(|wake| PollFd::new(wake, PollFlags::POLLIN)));
            match poll(&mut fds, timeout_until(deadline)) {
                Ok(n) if n > 0 => return Ok(fds[0].any() != Some(false)),
                Ok(_) | Err(Errno::EINTR) if deadline.is_some_and(|end| Instant::now() >= end) => {
                    return Ok(false);
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Reads what is there, without waiting; 0 = nothing.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match nix::unistd::read(&self.reader, buffer) {
            Ok(n) => Ok(n),
            Err(Errno::EINTR | Errno::EAGAIN) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether bytes wait to be read.
    pub fn has_bytes(&self) -> bool {
        let mut fds = [PollFd::new(self.reader.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A second handle on the same open ends.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            reader: self.reader.try_clone()?,
            _writer: self._writer.try_clone()?,
            path: self.path.clone(),
        })
    }
}

/// Rounded up to a whole millisecond, so that a wait never ends just before its deadline.
fn timeout_until(deadline: Option<Instant>) -> PollTimeout {
    let Some(end) = deadline else { return PollTimeout::NONE };
    let left = end.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
    PollTimeout::from(u16::try_from(left.as_millis()).unwrap_or(u16::MAX))
}

/// Sends `bytes` into the FIFO at `path` under its `flock`, so that nothing lands inside. Gives up when nothing moves
/// for `patience`.
pub fn send(path: &Path, bytes: &[u8], patience: Duration) -> Result<(), SendError> {
    send_patiently(path, bytes, patience, || false)
}

/// `send`, but whenever nothing has moved for `patience` it asks `goes_on` whether to wait on: a message that has gone
/// in by half must not be begun again.
pub fn send_patiently(
    path: &Path,
    bytes: &[u8],
    patience: Duration,
    mut goes_on: impl FnMut() -> bool,
) -> Result<(), SendError> {
    let wrap = |error: io::Error| SendError::Io { path: path.to_owned(), error };
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits();
    let file = match OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENOENT)) => {
            return Err(SendError::NobodyThere(path.to_owned()));
        }
        Err(error) => return Err(wrap(error)),
    };
    if !file.metadata().map_err(wrap)?.file_type().is_fifo() {
        return Err(wrap(io::Error::other("it is no FIFO")));
    }
    let mut end = Instant::now() + patience;
    let mut is_over = |end: &mut Instant| {
        if Instant::now() < *end {
            return false;
        }
        *end = Instant::now() + patience;
        !goes_on()
    };
    let full = || SendError::Full(path.to_owned(), patience.as_secs());
    let lock = lock_unless(file, || is_over(&mut end)).map_err(|error| error.map_or_else(full, wrap))?;
    end = Instant::now() + patience;
    let mut rest = bytes;
    while !rest.is_empty() {
        match nix::unistd::write(&*lock, rest) {
            Ok(n) => {
                rest = &rest[n..];
                end = Instant::now() + patience;
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) if is_over(&mut end) => return Err(full()),
            Err(Errno::EAGAIN) => {
                let mut fds = [PollFd::new(lock.as_fd(), PollFlags::POLLOUT)];
                let _ = poll(&mut fds, timeout_until(Some(end)));
            }
            Err(Errno::EPIPE) => return Err(SendError::NobodyThere(path.to_owned())),
            Err(errno) => return Err(wrap(errno.into())),
        }
    }
    Ok(())
}

/// `None` in the error: `is_over` said so.
fn lock_unless(mut file: File, mut is_over: impl FnMut() -> bool) -> Result<Flock<File>, Option<io::Error>> {
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => file = back,
            Err((_, errno)) => return Err(Some(errno.into())),
        }
        if is_over() {
            return Err(None);
        }
        // flock has no form with a time limit; another writer holds it for one message only.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The read end of a fresh pipe and its write end, both close-on-exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(OFlag::O_CLOEXEC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_and_the_reader_sees_no_end_of_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in");
        assert!(matches!(send(&path, b"x", Duration::from_secs(1)), Err(SendError::NobodyThere(_))));
        let fifo = Fifo::open(&path).unwrap();
        let mut buffer = [0; 16];
        for text in [b"one", b"two"] {
            send(&path, text, Duration::from_secs(5)).unwrap();
            assert!(fifo.wait(None).unwrap());
            assert_eq!(fifo.read(&mut buffer).unwrap(), 3);
            assert_eq!(&buffer[..3], text);
        }
        assert!(!fifo.wait(Some(Instant::now())).unwrap());
        assert_eq!(fifo.read(&mut buffer).unwrap(), 0);
        drop(fifo);
        assert!(matches!(send(&path, b"x", Duration::from_secs(1)), Err(SendError::NobodyThere(_))));
    }

    #[test]
    fn long_messages_of_several_writers_never_mix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in");
        let fifo = Fifo::open(&path).unwrap();
        let size = 200_000;
        std::thread::scope(|scope| {
            for letter in b'a'..b'e' {
                let path = &path;
                scope.spawn(move || send(path, &vec![letter; size], Duration::from_secs(60)).unwrap());
            }
            let mut all = Vec::new();
            let mut buffer = vec![0; 65536];
            while all.len() < 4 * size {
                fifo.wait(None).unwrap();
                let n = fifo.read(&mut buffer).unwrap();
                all.extend_from_slice(&buffer[..n]);
            }
            for chunk in all.chunks(size) {
                assert!(chunk.iter().all(|b| *b == chunk[0]));
            }
        });
    }

    #[test]
    fn a_regular_file_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in");
        std::fs::write(&path, "data").unwrap();
        assert!(matches!(Fifo::open(&path), Err(FifoError::NotAFifo(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn a_reader_that_does_not_read_is_not_waited_for_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in");
        let _fifo = Fifo::open(&path).unwrap();
        let result = send(&path, &vec![b'x'; 1 << 20], Duration::from_millis(50));
        assert!(matches!(result, Err(SendError::Full(..))));
    }

    #[test]
    fn a_writer_that_goes_on_says_that_it_waits_and_its_message_arrives_whole_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in");
        let fifo = Fifo::open(&path).unwrap();
        let held = File::open(&path).map(|file| Flock::lock(file, FlockArg::LockExclusive));
        let mut held = Some(held.unwrap().unwrap());
        let message: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        let got = std::thread::scope(|scope| {
            let (waited, waits) = std::sync::mpsc::channel();
            let (path, message) = (&path, &message);
            scope.spawn(move || {
                send_patiently(path, message, Duration::from_millis(30), || waited.send(()).is_ok()).unwrap();
            });
            // First it waits for the lock, then for a reader of a full pipe.
            for _ in 0..2 {
                waits.recv().unwrap();
                drop(held.take());
            }
            let (mut got, mut buffer) = (Vec::new(), vec![0; 65536]);
            while got.len() < message.len() {
                fifo.wait(None).unwrap();
                let n = fifo.read(&mut buffer).unwrap();
                got.extend_from_slice(&buffer[..n]);
            }
            got
        });
        assert!(got == message && !fifo.has_bytes());
    }
}
