//! The terminal's modes: raw while we edit, as we found it whenever we are away, however we go.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use nix::sys::termios::{
    InputFlags, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};

/// How the terminal was before; a panic puts it back too.
static BEFORE: Mutex<Option<libc::termios>> = Mutex::new(None);

/// Bracketed paste on.
const ENTER: &[u8] = b"\x1b[?2004h";
/// Bracketed paste off, the cursor visible, no style.
const LEAVE: &[u8] = b"\x1b[?2004l\x1b[?25h\x1b[0m";

/// The terminal on stdin and stdout.
pub(super) struct Tty {
    before: Termios,
    raw: Termios,
    entered: bool,
}

impl Tty {
    /// Notes how the terminal is; changes nothing.
    pub(super) fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin().as_fd())?;
        let mut raw = before.clone();
        // Output keeps its translation of line feeds: what others print stays readable.
        raw.local_flags &= !(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG | LocalFlags::IEXTEN);
        raw.input_flags &= !(InputFlags::IXON
            | InputFlags::ICRNL
            | InputFlags::INLCR
            | InputFlags::IGNCR
            | InputFlags::BRKINT
            | InputFlags::ISTRIP
            | InputFlags::PARMRK);
        raw.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        raw.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        Ok(Self { before, raw, entered: false })
    }

    /// Raw mode. What was typed already stays.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, &self.raw)?;
        write(ENTER);
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.before.clone().into());
        self.entered = true;
        Ok(())
    }

    /// As it was.
    pub(super) fn leave(&mut self) {
        if std::mem::take(&mut self.entered) {
            write(LEAVE);
            // A terminal that is gone cannot be put right.
            let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, &self.before);
            *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Bytes that were typed and not read yet.
    pub(super) fn typed_ahead() -> usize {
        let mut count: libc::c_int = 0;
        // SAFETY: FIONREAD writes one int to the address given, which is that of one.
        let done = unsafe { libc::ioctl(libc::STDIN_FILENO, libc::FIONREAD, &raw mut count) };
        if done == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
    }

    /// Whether we may write and set modes: a background job may not.
    pub(super) fn is_ours() -> bool {
        // Without job control (no controlling terminal) nobody else is in front.
        nix::unistd::tcgetpgrp(io::stdin().as_fd()).map_or(true, |group| group == nix::unistd::getpgrp())
    }

    /// Columns and rows; 80 and 24 where the terminal does not say.
    pub(super) fn size() -> (usize, usize) {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCGWINSZ writes one winsize to the address given, which is that of one.
        let done = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
        let or = |value: u16, default: usize| match value {
            0 => default,
            value => usize::from(value),
        };
        if done == 0 { (or(size.ws_col, 80), or(size.ws_row, 24)) } else { (80, 24) }
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Puts the terminal right before a panic's message is printed.
pub(super) fn guard_panics() {
    let next = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let before = BEFORE.try_lock().ok().and_then(|mut before| before.take());
        if let Some(before) = before {
            write(LEAVE);
            let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &Termios::from(before));
        }
        next(info);
    }));
}

/// Writes to the terminal, all of it. Nobody can be told when that fails.
pub(super) fn write(mut bytes: &[u8]) {
    use nix::errno::Errno;
    let stdout = io::stdout();
    while !bytes.is_empty() {
        match nix::unistd::write(stdout.as_fd(), bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let mut out = [nix::poll::PollFd::new(stdout.as_fd(), nix::poll::PollFlags::POLLOUT)];
                let _ = nix::poll::poll(&mut out, nix::poll::PollTimeout::NONE);
            }
            Err(_) => return,
        }
    }
}
