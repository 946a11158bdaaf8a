//! Lines from a terminal that is left as it is: `--plain` (screen readers), TERM=dumb, a display of the user's own, or
//! stdout that is no terminal. The terminal's own line editing is all there is; a `\\` at a line's end goes on below.

use std::io::{self, BufRead};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use super::term::remember;
use crate::runtime::inbox::{Event, Running, Typed};
use crate::runtime::signals::{Attendant, Heard};

/// Starts the thread that reads lines, and gives who hears of Ctrl+C: it ends the turn that runs; with none, a second
/// one in a row leaves.
pub fn start(inbox: SyncSender<Event>, running: Running, history: PathBuf) -> io::Result<Attendant> {
    let leaving = Arc::new(AtomicBool::new(false));
    let typed = Arc::clone(&leaving);
    let lines = inbox.clone();
    std::thread::Builder::new().name("lines".to_owned()).spawn(move || {
        let mut text = String::new();
        loop {
            let event = match next_line(&mut text) {
                Ok(true) => {
                    remember(&history, &text);
                    Event::Typed(Typed::Line(std::mem::take(&mut text)))
                }
                Ok(false) | Err(_) => Event::Typed(Typed::End),
            };
            typed.store(false, Ordering::SeqCst);
            let ended = matches!(event, Event::Typed(Typed::End));
            if lines.send(event).is_err() || ended {
                return;
            }
        }
    })?;
    Ok(Box::new(move |heard| {
        if heard != Heard::Interrupt {
            return;
        }
        let event = if running.is_set() {
            running.interrupt();
            Event::Interrupt
        } else if leaving.swap(true, Ordering::SeqCst) {
            Event::Typed(Typed::Leave)
        } else {
            Event::Typed(Typed::Cleared)
        };
        // Nobody listens any more when this fails.
        let _ = inbox.send(event);
    }))
}

/// Reads one input; false at the end.
fn next_line(text: &mut String) -> io::Result<bool> {
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if io::stdin().lock().read_until(b'\n', &mut bytes)? == 0 {
            return Ok(!text.is_empty());
        }
        let line = String::from_utf8_lossy(&bytes);
        let line = line.trim_end_matches(['\n', '\r']);
        match line.strip_suffix('\\') {
            Some(line) => {
                text.push_str(line);
                text.push('\n');
            }
            None => {
                text.push_str(line);
                return Ok(true);
            }
        }
    }
}
