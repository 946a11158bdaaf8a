//! The loop around the turns: what waits is done in order, then the agent waits or ends (DESIGN "One inbox, one loop").

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use super::approval::Answerer;
use super::children::{Children, Launch};
use super::compact::{Outcome, Trigger};
use super::console::{self, Console, Onward};
use super::record::Recorder;
use super::turn::Start;
use super::{Agent, Display, RunEnd, Settings, Totals, TurnEnd, Work};
use crate::exit::Exit;
use crate::model::Model;
use crate::runtime::fifo::{Fifo, FifoError};
use crate::runtime::inbox::{Event as Happening, Inbox, InputReader, SETTLE, Typed};
use crate::runtime::notify as notify_reader;
use crate::runtime::sync::Syncer;
use crate::session::events::Event;
use crate::session::input::{self, InputIds};
use crate::session::{Session, SessionError, StorageError, images, lock, notify};
use crate::tools;
use crate::wire::inbox::Item;
use crate::wire::message::{Message, Usage};

/// How long processes that commands left behind get between TERM and KILL at exit.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// When the run ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When its turn is over and nothing is open or queued: a prompt, or stdin.
    Done,
    /// At SESSION_END or a signal: `--stay`, and a terminal.
    Ended,
}

/// What an agent is made of.
pub struct Parts {
    /// What stays the same for the whole run.
    pub settings: Settings,
    /// Opened, and owned by this process.
    pub session: Session,
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// What the tools work with.
    pub tools: Arc<tools::Context>,
    /// It may hold things already.
    pub inbox: Inbox,
    /// How sub-agents are started.
    pub launch: Launch,
    /// Who watches.
    pub display: Box<dyn Display>,
}

/// Why the FIFOs cannot be listened to.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The event log.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A FIFO.
    #[error(transparent)]
    Fifo(#[from] FifoError),
    /// No thread, no descriptor.
    #[error("cannot listen: {0}")]
    System(#[from] std::io::Error),
}

/// Gives the session up. Results that are still held in memory go into notify.buf; where that fails again the session
/// is left as after a crash, so that its next owner finds them by the list of what was open.
fn close(session: Session, held: &[Message]) -> Result<(), StorageError> {
    if !held.is_empty() {
        notify::keep(&session.dir, held)?;
    }
    // The notify reader must not be cut off between a result's event and its place in notify.buf. The process ends now,
    // and with it this lock.
    std::mem::forget(lock::StateLock::take(&session.dir));
    session.close()
}

impl Agent {
    /// An agent on an opened session. Nothing runs yet.
    pub fn new(parts: Parts) -> Result<Self, SessionError> {
        let Parts { settings, session, model, tools, inbox, launch, display } = parts;
        let log = session.event_log()?;
        let deadline = settings.budget.time.map(|time| Instant::now() + time);
        let syncer = Syncer::start().map_err(StorageError::at("start a thread for", session.dir.path()))?;
        let input_ids = InputIds::load(&session.dir)?;
        let children = Children::new(launch, &session.dir, inbox.sender());
        Ok(Self {
            settings,
            session,
            model,
            tools,
            recorder: Recorder::new(log, display),
            inbox,
            input: None,
            queue: VecDeque::new(),
            call: 0,
            cancel: None,
            leaving: None,
            totals: Totals::default(),
            said: HashSet::new(),
            held: Vec::new(),
            children,
            deadline,
            attended: false,
            answerer: None,
            answer_open: false,
            console: None,
            next: None,
            compaction: super::compact::Memory::default(),
            syncer,
            input_ids,
            open_children: HashSet::new(),
        })
    }

    /// Opens the FIFOs and listens to them from now on. `session_start` is written first: nothing stands before it.
    pub fn listen(&mut self, price: impl Fn(&Usage) -> f64 + Send + 'static) -> Result<(), ListenError> {
        self.start_log()?;
        let dir = &self.session.dir;
        let (input, notices) = (Fifo::open(&dir.input_fifo())?, Fifo::open(&dir.notify_fifo())?);
        self.input = Some(InputReader::start(input, &self.inbox)?);
        notify_reader::start(notices, dir.clone(), price, &self.inbox)?;
        Ok(())
    }

    /// For those who put something into the inbox.
    pub fn sender(&self) -> SyncSender<Happening> {
        self.inbox.sender()
    }

    /// A person is there: greets, and shows the last turns of `log`; `console` carries out their commands.
    pub fn attend(&mut self, console: Box<dyn Console>, log: Option<&Path>) -> std::io::Result<()> {
        self.attended = true;
        self.console = Some(console);
        self.recorder.display().greet(log)
    }

    /// A person is there to answer questions, and nothing else.
    pub fn answered_by(&mut self, answerer: Box<dyn Answerer>) {
        self.answerer = Some(answerer);
    }

    /// Compacts the window now, outside a turn; returns the exit code.
    pub fn compact_now(mut self) -> u8 {
        let exit = match self.turnless(|agent| agent.compact(Trigger::Manual)) {
            Ok(Outcome::Done) => Exit::Ok,
            Ok(Outcome::Nothing) => {
                self.recorder.display().notice("there is nothing to compact");
                Exit::Ok
            }
            Ok(Outcome::Interrupted) => self.inbox.running().signal().unwrap_or(Exit::Interrupted),
            Ok(Outcome::Failed(_)) => Exit::Failed,
            Err(error) => {
                self.recorder.display().notice(&error.to_string());
                Exit::Storage
            }
        };
        drop(self.syncer);
        if let Err(error) = self.session.close() {
            self.recorder.display().notice(&error.to_string());
        }
        exit.code()
    }

    /// Says what was found at opening: to the person, and as `error` events.
    pub fn report(&mut self, notes: &[String]) -> Result<(), StorageError> {
        for note in notes {
            if self.said.insert(note.clone()) {
                self.recorder.error(note)?;
            }
        }
        Ok(())
    }

    /// Writes `session_start` when the event file is empty.
    fn start_log(&mut self) -> Result<(), StorageError> {
        if self.session.fresh {
            let id = self.session.dir.name().to_owned();
            self.recorder.event(&Event::SessionStart { session_id: &id })?;
        }
        Ok(())
    }

    /// Works until the run ends; `first` is its first input. Returns the exit code, and what a terminal goes on with.
    pub fn run(mut self, first: Option<String>, until: Until) -> (u8, Option<Onward>) {
        let started = Instant::now();
        if let Some(content) = first {
            self.queue_work(Work::User { content, id: None, file: None });
        }
        let mut last = None;
        let ended = self.work_through(until, &mut last);
        let children = self.end_children();
        let ended = ended.and_then(|exit| children.map(|()| exit));
        let exit = match ended {
            Ok(exit) => exit,
            Err(error) => {
                self.recorder.display().notice(&error.to_string());
                Exit::Storage.code()
            }
        };
        self.end_leftovers();
        let onward = self.onward().filter(|_| exit == Exit::Ok.code());
        let id = self.session.dir.name().to_owned();
        self.recorder.display().finish(&RunEnd {
            last: last.as_ref(),
            exit,
            moves_on: onward.is_some(),
            session_id: &id,
            usage: self.totals.usage,
            cost: self.totals.cost,
            turns: self.totals.turns,
            duration: started.elapsed(),
        });
        drop(self.syncer);
        if let Some(tmp) = &self.tools.tmp_dir {
            // It is there only when a command ran; what cannot be removed was made so by one.
            let _ = std::fs::remove_dir_all(tmp);
        }
        if let Err(error) = close(self.session, &self.held) {
            self.recorder.display().notice(&error.to_string());
        }
        if self.recorder.display().is_closed() && exit == Exit::Ok.code() {
            return (Exit::BrokenPipe.code(), None);
        }
        (exit, onward)
    }

    fn work_through(&mut self, until: Until, last: &mut Option<TurnEnd>) -> Result<u8, StorageError> {
        loop {
            if let Some(exit) = self.must_leave() {
                return Ok(exit.code());
            }
            let Some(work) = self.next_work(until)? else {
                return Ok(last.as_ref().map_or(0, |end| end.exit.code()));
            };
            let start = match work {
                Work::User { content, id, file } => Start::User { content, id, file },
                Work::Notify if self.has_results() && (until == Until::Done || self.keeps_held()) => {
                    Start::Notify
                }
                Work::Notify => continue,
                Work::Command(line) => {
                    self.run_command(&line)?;
                    continue;
                }
                Work::Sync(id) => {
                    // Done is also: on the disk.
                    self.syncer.wait();
                    self.recorder.event(&Event::Sync { id: &id })?;
                    continue;
                }
                Work::End(code) => {
                    return Ok(code.unwrap_or_else(|| match until {
                        Until::Done => last.as_ref().map_or(0, |end| end.exit.code()),
                        Until::Ended => 0,
                    }));
                }
            };
            let end = self.turn(start)?;
            let interrupted = end.exit == Exit::Interrupted;
            *last = Some(end);
            if interrupted && until == Until::Done {
                return Ok(Exit::Interrupted.code());
            }
            // What arrived while the flag went down starts a turn of its own (CONTRACT §7, step 3).
            if self.has_results() {
                self.queue.push_front(Work::Notify);
            }
        }
    }

    /// Ends what commands left running, and names it (CONTRACT §11, DESIGN "Interrupt").
    fn end_leftovers(&mut self) {
        let pids = tools::end_leftovers(LEFTOVER_GRACE);
        if !pids.is_empty() {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            let text = format!("ended what commands had left running: pid {}", pids.join(", "));
            self.recorder.display().notice(&text);
        }
    }

    /// Puts what was held in memory into notify.buf. While the disk is full an idle agent holds it and waits: a turn of
    /// its own could not be written either.
    fn keeps_held(&mut self) -> bool {
        if self.held.is_empty() {
            return true;
        }
        if notify::keep(&self.session.dir, &self.held).is_err() {
            return false;
        }
        // A list that still names them is put right at the next start.
        let _ = notify::delivered(&self.session.dir, &std::mem::take(&mut self.held));
        true
    }

    /// Whether results or remarks wait for a turn.
    fn has_results(&self) -> bool {
        !self.held.is_empty() || notify::is_waiting(&self.session.dir)
    }

    /// A signal ends the run; so does a reader of stdout that has gone away.
    fn must_leave(&mut self) -> Option<Exit> {
        if self.recorder.display().is_closed() {
            return Some(Exit::BrokenPipe);
        }
        self.leaving
    }

    /// What to do next; waits for it. `None` when there is nothing and the run ends by itself.
    fn next_work(&mut self, until: Until) -> Result<Option<Work>, StorageError> {
        loop {
            while let Some(happening) = self.inbox.try_next() {
                self.idle(happening)?;
            }
            if self.leaving.is_some() {
                return Ok(Some(Work::End(self.leaving.map(Exit::code))));
            }
            if let Some(work) = self.queue.pop_front() {
                return Ok(Some(work));
            }
            if until == Until::Ended || !self.open_children.is_empty() {
                if until == Until::Ended {
                    self.recorder.display().ready();
                }
                let happening = self.inbox.next();
                self.idle(happening)?;
                continue;
            }
            if self.has_results() {
                return Ok(Some(Work::Notify));
            }
            if !self.settle()? {
                return Ok(None);
            }
        }
    }

    /// Before a one-shot run ends: is something on its way still? Waits for it and returns whether to look again.
    fn settle(&mut self) -> Result<bool, StorageError> {
        if !self.input.as_ref().is_some_and(InputReader::is_busy) {
            return match self.inbox.try_next() {
                Some(happening) => self.idle(happening).map(|()| true),
                None => Ok(false),
            };
        }
        if let Some(happening) = self.inbox.next_until(Instant::now() + SETTLE) {
            self.idle(happening)?;
        }
        Ok(true)
    }

    /// A person typed something.
    pub(super) fn typed(&mut self, typed: Typed) -> Result<(), StorageError> {
        if typed == Typed::Cleared {
            self.recorder.display().notice("Ctrl+C again leaves");
        } else {
            self.recorder.display().typed();
        }
        match typed {
            Typed::Line(line) if matches!(line.trim(), "exit" | "quit") => self.queue_work(Work::End(None)),
            Typed::Line(line) if line.trim().is_empty() => {}
            Typed::Line(line) if self.attended && console::is_command(&line) => return self.command(line),
            Typed::Image(bytes) => match images::add_bytes(&self.session.dir, &bytes, "the clipboard") {
                Ok(number) => self.recorder.display().insert(&images::mention(number)),
                Err(error) => self.recorder.display().notice(&error.to_string()),
            },
            Typed::Line(content) => self.queue_work(Work::User { content, id: None, file: None }),
            Typed::Steer(text) => return self.steer(text),
            Typed::Cleared => {}
            Typed::Leave => self.queue_work(Work::End(Some(Exit::Interrupted.code()))),
            Typed::End => self.queue_work(Work::End(None)),
        }
        Ok(())
    }

    /// A remark for the turn that runs, as one on notify.fifo; the turn takes it before its next model call.
    fn steer(&mut self, text: String) -> Result<(), StorageError> {
        if self.cancel.is_none() {
            self.queue_work(Work::Notify);
        }
        notify::keep(&self.session.dir, &[Message::UserNotify { text }])
    }

    /// Something happened while no turn runs.
    fn idle(&mut self, happening: Happening) -> Result<(), StorageError> {
        match happening {
            Happening::Interrupt => Ok(()),
            Happening::Signal(exit) => {
                self.leaving = Some(exit);
                Ok(())
            }
            other => self.aside(other),
        }
    }

    /// Turns what arrived on input.fifo into work, or into an `error` event.
    pub(super) fn take_input(&mut self, item: Item) -> Result<(), StorageError> {
        match item {
            Item::Message(Message::UserInput { content, .. }) | Item::Text(content) => {
                self.queue_input(content, None, None)
            }
            Item::Input { content, id } => self.queue_input(content, id, None),
            Item::File { name, id } => match input::read(&self.session.dir, &name) {
                Ok(content) => self.queue_input(content, id, Some(name)),
                Err(error) => self.recorder.error(&error.to_string()),
            },
            Item::Message(Message::NotifyPending) => {
                self.queue_work(Work::Notify);
                Ok(())
            }
            Item::Message(Message::SessionEnd { code }) => {
                self.queue_work(Work::End(code));
                Ok(())
            }
            Item::Sync { id } => {
                self.queue_work(Work::Sync(id));
                Ok(())
            }
            Item::Problem(text) => self.recorder.error(&text),
            Item::Approval { id, .. } => self.recorder.error(&format!("nothing asked for approval '{id}'")),
            Item::Message(_) => Ok(()),
        }
    }

    /// Queues an input; one with an id that the session took before, or that waits already, is not run again.
    fn queue_input(
        &mut self,
        content: String,
        id: Option<String>,
        file: Option<String>,
    ) -> Result<(), StorageError> {
        let waits = |id: &str| {
            self.queue.iter().any(|work| matches!(work, Work::User { id: Some(other), .. } if other == id))
        };
        let known = id.as_deref().is_some_and(|id| self.input_ids.contains(id) || waits(id));
        if !known && !content.trim().is_empty() {
            self.queue_work(Work::User { content, id, file });
        } else if let Some(Err(error)) = file.map(|file| input::forget(&self.session.dir, &file)) {
            return self.recorder.error(&error.to_string());
        }
        Ok(())
    }

    /// Asks for what was written so far to reach the disk, beside the work that goes on.
    pub(super) fn sync(&mut self) {
        // Without a descriptor to spare the next turn's sync covers these lines too.
        if let Ok(files) = self.session.sync_handles(self.recorder.log()) {
            self.syncer.sync(files);
        }
    }
}
