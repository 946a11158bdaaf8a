//! One interrupt of one turn: set once, seen by everybody who waits (CONTRACT §7, SIGINT).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe2;

type Hook = Box<dyn Fn() + Send>;

/// A cancellation that threads can test, poll on (`fd`), sleep on, or be called back by.
#[derive(Clone)]
pub struct Cancel(Arc<Inner>);

struct Inner {
    flag: AtomicBool,
    /// Readable once cancelled: the write end is dropped then.
    reader: OwnedFd,
    writer: Mutex<Option<OwnedFd>>,
    hooks: Mutex<Vec<(u64, Hook)>>,
    next_hook: AtomicU64,
}

impl Cancel {
    /// A cancellation not yet set. Fails when no descriptor is to be had.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
        Ok(Self(Arc::new(Inner {
            flag: AtomicBool::new(false),
            reader,
            writer: Mutex::new(Some(writer)),
            hooks: Mutex::new(Vec::new()),
            next_hook: AtomicU64::new(0),
        })))
    }

    /// Sets it: `fd` becomes readable (end of file), hooks run on the caller's thread. Later calls do nothing.
    pub fn cancel(&self) {
        if self.0.flag.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(lock(&self.0.writer).take());
        for (_, hook) in lock(&self.0.hooks).iter() {
            hook();
        }
    }

    /// Whether `cancel` was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.flag.load(Ordering::SeqCst)
    }

    /// A descriptor that polls readable (`POLLIN | POLLHUP`) once cancelled. Never read from it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.reader.as_fd()
    }

    /// Sleeps for `time` or until cancelled; returns whether it was cancelled.
    pub fn sleep(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.is_cancelled() || left.is_zero() {
                return self.is_cancelled();
            }
            let millis = u16::try_from(left.as_millis()).unwrap_or(u16::MAX).max(1);
            let mut fds = [PollFd::new(self.fd(), PollFlags::POLLIN)];
            // An error here (EINTR) only means: look again.
            let _ = poll(&mut fds, PollTimeout::from(millis));
        }
    }

    /// Runs `hook` when cancelled (at once, when it already is) until the guard is dropped.
    pub fn on_cancel(&self, hook: impl Fn() + Send + 'static) -> HookGuard {
        let id = self.0.next_hook.fetch_add(1, Ordering::Relaxed);
        lock(&self.0.hooks).push((id, Box::new(hook)));
        if self.is_cancelled() {
            for (_, hook) in lock(&self.0.hooks).iter().filter(|(hook_id, _)| *hook_id == id) {
                hook();
            }
        }
        HookGuard { cancel: self.clone(), id }
    }
}

/// Takes the hook of `Cancel::on_cancel` away again when dropped.
pub struct HookGuard {
    cancel: Cancel,
    id: u64,
}

impl Drop for HookGuard {
    fn drop(&mut self) {
        lock(&self.cancel.0.hooks).retain(|(id, _)| *id != self.id);
    }
}

/// A poisoned lock only means that another thread panicked; the data here stays whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_wakes_when_cancelled_and_hooks_run_once() {
        let cancel = Cancel::new().unwrap();
        let count = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&count);
        let guard = cancel.on_cancel(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        });
        let sleeper = {
            let cancel = cancel.clone();
            std::thread::spawn(move || cancel.sleep(Duration::from_secs(600)))
        };
        cancel.cancel();
        cancel.cancel();
        assert!(sleeper.join().unwrap());
        assert_eq!(count.load(Ordering::SeqCst), 1);
        drop(guard);
        assert!(cancel.is_cancelled());
    }
}
