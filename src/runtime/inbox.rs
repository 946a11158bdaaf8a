//! The one inbox: everything that can happen while something else happens, on one channel (DESIGN "One inbox").

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::cancel::Cancel;
use super::fifo::Fifo;
use super::notify::Noticed;
use crate::exit::Exit;
use crate::model::ModelEvent;
use crate::tools;
use crate::wire::inbox::{Item, Scanner};
use crate::wire::message::{Channel, Message};

/// What a person at the prompt did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// A line.
    Line(String),
    /// A remark for the turn that runs (Ctrl+O).
    Steer(String),
    /// An image from the clipboard (Ctrl+V).
    Image(Vec<u8>),
    /// Ctrl+C with nothing to interrupt, in a terminal that has no line of ours to clear.
    Cleared,
    /// Ctrl+D: end the session.
    End,
    /// Ctrl+C twice with nothing to interrupt.
    Leave,
}

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// Something arrived on input.fifo (never an interrupt: that acts before it gets here, and arrives as `Interrupt`).
    Input(Item),
    /// INTERRUPT on input.fifo. The running turn was cancelled already.
    Interrupt,
    /// A piece of the model's answer to call number `call`; `None` = the stream ended.
    Model {
        /// Which call: pieces of one that was given up are dropped.
        call: u64,
        /// The piece.
        event: Option<ModelEvent>,
    },
    /// Tool number `index` of batch `call` is done.
    Tool {
        /// Which batch.
        call: u64,
        /// Which of its calls.
        index: usize,
        /// What it gave.
        output: tools::Output,
    },
    /// The notify reader took something in.
    Noticed(Noticed),
    /// The waiter of a child or task is done; its result is on its way through notify.fifo.
    ChildEnded {
        /// Which.
        id: String,
    },
    /// The prompt was answered.
    Typed(Typed),
    /// A question was answered by this line; where a person types lines anyway it comes as `Typed`.
    Answered(String),
    /// A thing for the user that the notify reader or a child's waiter has to say.
    Warning(String),
    /// SIGINT, SIGTERM or SIGHUP. The running turn was cancelled already.
    Signal(Exit),
}

/// What the running turn can be ended by, shared with the threads that hear an interrupt.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<RunningState>>);

#[derive(Default)]
struct RunningState {
    cancel: Option<Cancel>,
    signal: Option<Exit>,
}

impl Running {
    /// Names the cancellation of the turn that starts (or that none runs).
    pub fn set(&self, cancel: Option<Cancel>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cancel = cancel;
    }

    /// A signal came: notes how the run ends, then cancels the running turn.
    pub fn signalled(&self, exit: Exit) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).signal = Some(exit);
        self.interrupt();
    }

    /// The exit code of the signal that came, if one did.
    pub fn signal(&self) -> Option<Exit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).signal
    }

    /// Whether something runs that an interrupt ends.
    pub fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cancel.is_some()
    }

    /// Cancels the running turn, if any, at once.
    pub fn interrupt(&self) {
        let cancel = self.0.lock().unwrap_or_else(PoisonError::into_inner).cancel.clone();
        if let Some(cancel) = cancel {
            cancel.cancel();
        }
    }
}

/// Events that wait; a full channel holds back whoever reads from the network or a FIFO.
const CAPACITY: usize = 256;

/// The receiving side, and what makes senders.
pub struct Inbox {
    sender: SyncSender<Event>,
    receiver: Receiver<Event>,
    running: Running,
}

impl Inbox {
    /// An empty inbox.
    pub fn new() -> Self {
        let (sender, receiver) = mpsc::sync_channel(CAPACITY);
        Self { sender, receiver, running: Running::default() }
    }

    /// A sender for another thread.
    pub fn sender(&self) -> SyncSender<Event> {
        self.sender.clone()
    }

    /// The handle on the running turn.
    pub fn running(&self) -> Running {
        self.running.clone()
    }

    /// The next event, whenever it comes.
    pub fn next(&self) -> Event {
        loop {
            // A sender lives in `self`, so the channel never closes.
            if let Ok(event) = self.receiver.recv() {
                return event;
            }
        }
    }

    /// The next event, or `None` at `deadline`.
    pub fn next_until(&self, deadline: Instant) -> Option<Event> {
        self.receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }

    /// An event that waits already.
    pub fn try_next(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

/// The thread that reads input.fifo all the time.
pub struct InputReader {
    fifo: Fifo,
    mid_message: Arc<AtomicBool>,
}

impl InputReader {
    /// Starts reading. Interrupts act at once; the rest is queued in order.
    pub fn start(fifo: Fifo, inbox: &Inbox) -> io::Result<Self> {
        let mid_message = Arc::new(AtomicBool::new(false));
        let reader = Self { fifo: fifo.try_clone()?, mid_message: Arc::clone(&mid_message) };
        let (sender, running) = (inbox.sender(), inbox.running());
        std::thread::Builder::new().name("input.fifo".to_owned()).spawn(move || {
            let forward = |item: Item| {
                let event = if matches!(item, Item::Message(Message::Interrupt)) {
                    running.interrupt();
                    Event::Interrupt
                } else {
                    Event::Input(item)
                };
                sender.send(event).is_ok()
            };
            scan(&fifo, Channel::Input, &mid_message, forward);
        })?;
        Ok(reader)
    }

    /// Whether something that was written is not yet in the inbox: bytes in the pipe, or a message not yet ended.
    pub fn is_busy(&self) -> bool {
        // The flag is raised before bytes leave the pipe, so looking at the pipe first misses nothing.
        self.fifo.has_bytes() || self.mid_message.load(Ordering::SeqCst)
    }
}

/// Reads a FIFO for ever, giving each message to `forward` until that says no or the FIFO fails.
pub fn scan(fifo: &Fifo, channel: Channel, busy: &AtomicBool, mut forward: impl FnMut(Item) -> bool) {
    let mut scanner = Scanner::new(channel);
    let mut buffer = vec![0; 64 * 1024];
    let mut items = Vec::new();
    loop {
        let read = fifo.wait(scanner.deadline()).and_then(|ready| {
            busy.store(true, Ordering::SeqCst);
            if ready { fifo.read(&mut buffer) } else { Ok(0) }
        });
        let n = match read {
            Ok(n) => n,
            Err(error) => {
                forward(Item::Problem(format!("{}: {error}", fifo.path().display())));
                return;
            }
        };
        let now = Instant::now();
        if n > 0 {
            scanner.feed(&buffer[..n], now, &mut items);
        }
        scanner.tick(now, &mut items);
        for item in items.drain(..) {
            if !forward(item) {
                return;
            }
        }
        busy.store(scanner.deadline().is_some(), Ordering::SeqCst);
    }
}

/// How long a one-shot run waits for a message that began to arrive: plain text ends after 1 s of silence at most.
pub const SETTLE: Duration = Duration::from_millis(1500);
