//! Signals as events: SIGINT, SIGTERM and SIGHUP end what runs at once and then tell the main loop (CONTRACT §7).

use std::io;

use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;

use super::inbox::{Event, Inbox};
use crate::exit::Exit;

/// What a person's terminal hears of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// SIGINT: as Ctrl+C.
    Interrupt,
    /// SIGWINCH.
    Resized,
    /// SIGCONT.
    Continued,
}

/// Who hears of the signals that are no reason to leave while a person sits there.
pub type Attendant = Box<dyn Fn(Heard) + Send>;

/// Starts the thread that listens. The handlers stay for the life of the process.
pub fn listen(inbox: &Inbox, attendant: Option<Attendant>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    if attendant.is_some() {
        signals.add_signal(SIGWINCH)?;
        signals.add_signal(SIGCONT)?;
    }
    let sender = inbox.sender();
    let running = inbox.running();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in &mut signals {
            let exit = match (signal, &attendant) {
                (SIGTERM, _) => Exit::Terminated,
                (SIGHUP, _) => Exit::HungUp,
                (SIGWINCH, Some(attendant)) => {
                    attendant(Heard::Resized);
                    continue;
                }
                (SIGCONT, Some(attendant)) => {
                    attendant(Heard::Continued);
                    continue;
                }
                (_, Some(attendant)) => {
                    attendant(Heard::Interrupt);
                    continue;
                }
                (_, None) => Exit::Interrupted,
            };
            running.signalled(exit);
            if sender.send(Event::Signal(exit)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
