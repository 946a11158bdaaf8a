//! Signals as events: SIGINT, SIGTERM and SIGHUP end what runs at once and then tell the main loop (CONTRACT §7).

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::inbox::{Event, Inbox};
use crate::exit::Exit;

/// Starts the thread that listens. The handlers stay for the life of the process.
pub fn listen(inbox: &Inbox) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let sender = inbox.sender();
    let running = inbox.running();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in &mut signals {
            let exit = match signal {
                SIGTERM => Exit::Terminated,
                SIGHUP => Exit::HungUp,
                _ => Exit::Interrupted,
            };
            running.signalled(exit);
            if sender.send(Event::Signal(exit)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
