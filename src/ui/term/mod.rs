//! The interactive terminal (CONTRACT §8, §14): output above, the line being typed below, both alive at once.
//!
//! # How it is made
//! One thread owns the terminal. Others hand it what there is to show (`Terminal`, the agent's `Display`), and it hands
//! typed lines to the agent's inbox: it is one more writer there, like input.fifo. So nothing else ever moves the cursor,
//! a slow terminal does not hold up the agent, and the agent does not hold up the keys.
//! ```text
//! agent ── Item ──▶ app ─▶ scribe ─▶ lines ─┐
//!                    ▲                      ├─▶ view ─▶ terminal
//! terminal ─▶ keys ─▶ editor ─▶ area ───────┘
//!                    │
//!                    └─ Event::Typed, Interrupt ─▶ inbox
//! ```
//! - `keys`: bytes → keys. `editor` (with `history`, `complete`): keys → text. `prompt`: text, status, menu → rows.
//! - `scribe`: messages → lines, the last of which may still change (`markdown`, `code`: how they look). `style`: lines → rows of a width.
//! - `view`: the rows on the screen; each frame redraws from the first row that changed, with relative moves only.
//! - `tty`: raw mode, size. `app`: the loop over keys, items, signals and the clock; the only part that does I/O.
//!
//! An own editor instead of a library: rustyline's external printer takes whole lines, and an answer streams in pieces;
//! the area also holds a status, a queue and a menu. Widths are those of unicode-width, text is taken apart by
//! unicode-segmentation; where terminals differ on a width, the larger one is assumed and the row is broken by us.
//! Without a capable terminal on stdin and stdout, or with `--plain` (screen readers), `ui::plain` reads lines instead.

mod app;
mod clipboard;
mod code;
mod complete;
mod editor;
mod history;
mod keys;
mod markdown;
mod prompt;
mod scribe;
mod style;
mod tty;
mod view;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::part::Program;
use super::replay;
use crate::agent::approval::Approval;
use crate::agent::{Display, RunEnd, TurnEnd};
use crate::runtime::cancel::Cancel;
use crate::runtime::fifo;
use crate::runtime::inbox::{Event, Running};
use crate::runtime::signals::{Attendant, Heard};
use crate::session::stats::Stats;
use crate::ui::render::safe;
use crate::wire::message::Message;
pub use complete::Sources;
pub(in crate::ui) use history::remember;

/// What waits to be shown may grow to this; then whoever shows more waits.
const MOST_WAITING: usize = 4 << 20;

/// How a person is told that a long turn has ended, or that a question waits (`bell =`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bell {
    /// Not at all.
    Off,
    /// BEL.
    #[default]
    Bell,
    /// A desktop notification: OSC 9 (iTerm2, kitty, WezTerm, Windows Terminal).
    Osc9,
    /// The same: OSC 777 (urxvt, foot, VTE).
    Osc777,
}

/// How the terminal is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Colours are wanted.
    pub color: bool,
    /// stderr is a terminal that takes a title.
    pub title: bool,
    /// The model's name, for the title.
    pub model: String,
    /// The file of typed lines.
    pub history: PathBuf,
    /// What can be completed.
    pub sources: Sources,
    /// How a person is called.
    pub bell: Bell,
    /// Answers are shown as Markdown.
    pub markdown: bool,
    /// `$VISUAL` or `$EDITOR`, for Ctrl+G.
    pub editor: Option<String>,
}

/// Something to show.
#[derive(Debug)]
enum Item {
    Message(Message),
    /// A warning.
    Notice(String),
    /// Text of ours, as it is.
    Print(String),
    /// A remark of ours.
    Remark(String),
    Blank,
    /// A question that the next line may answer.
    Asked(String),
    /// Text for the line being typed.
    Insert(String),
    /// Another model's name.
    Model(String),
    /// What the clipboard held.
    Clipboard(Result<Vec<u8>, &'static str>),
    /// A turn begins, with this input if a person's.
    Turn(Option<String>),
    ChildStarted(String),
    Figures(bool, Box<Stats>),
    TurnEnded,
    Close,
}

impl Item {
    /// About how much memory it holds.
    fn size(&self) -> usize {
        64 + match self {
            Self::Message(Message::Text { content } | Message::Thinking { content }) => content.len(),
            Self::Message(Message::ToolResult { content, .. }) => content.len(),
            Self::Message(Message::ToolCall { input, .. }) => 2 * input.len(),
            Self::Notice(text) | Self::Asked(text) | Self::Print(text) | Self::Remark(text) => text.len(),
            Self::Turn(Some(text)) => text.len(),
            _ => 0,
        }
    }
}

#[derive(Default)]
struct Waiting {
    items: VecDeque<Item>,
    size: usize,
}

/// What the terminal's thread shares with others.
struct Shared {
    waiting: Mutex<Waiting>,
    /// There is room again.
    room: Condvar,
    /// Wakes the thread; never blocks.
    wake: OwnedFd,
    interrupted: AtomicBool,
    resized: AtomicBool,
    continued: AtomicBool,
    closed: AtomicBool,
}

impl Shared {
    fn wake(&self) {
        // A full pipe wakes as well.
        let _ = nix::unistd::write(&self.wake, b"w");
    }

    fn push(&self, item: Item, cancel: Option<&Cancel>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.size > MOST_WAITING
            && !self.closed.load(Ordering::SeqCst)
            && !cancel.is_some_and(Cancel::is_cancelled)
        {
            let (next, _) = self
                .room
                .wait_timeout(waiting, Duration::from_millis(50))
                .unwrap_or_else(PoisonError::into_inner);
            waiting = next;
        }
        waiting.size += item.size();
        waiting.items.push_back(item);
        let first = waiting.items.len() == 1;
        drop(waiting);
        if first {
            self.wake();
        }
    }

    fn take(&self) -> VecDeque<Item> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.size = 0;
        self.room.notify_all();
        std::mem::take(&mut waiting.items)
    }
}

/// The terminal, as the agent sees it. It is put back as it was when this is dropped.
pub struct Terminal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    replay: Option<Program>,
}

impl Terminal {
    /// Takes the terminal over. Typed lines go to `inbox`; Ctrl+C acts on `running` at once.
    pub fn start(
        options: Options,
        replay: Option<Program>,
        inbox: SyncSender<Event>,
        running: Running,
    ) -> io::Result<Self> {
        let (reader, wake) = fifo::pipe()?;
        for end in [&reader, &wake] {
            fcntl(end.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            room: Condvar::new(),
            wake,
            interrupted: AtomicBool::new(false),
            resized: AtomicBool::new(false),
            continued: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        tty::guard_panics();
        let mut app = app::App::new(options, Arc::clone(&shared), reader, inbox, running)?;
        let thread = std::thread::Builder::new().name("terminal".to_owned()).spawn(move || app.run())?;
        Ok(Self { shared, thread: Some(thread), replay })
    }

    /// Who hears of signals.
    pub fn attendant(&self) -> Attendant {
        let shared = Arc::clone(&self.shared);
        Box::new(move |heard| {
            let flag = match heard {
                Heard::Interrupt => &shared.interrupted,
                Heard::Resized => &shared.resized,
                Heard::Continued => &shared.continued,
            };
            flag.store(true, Ordering::SeqCst);
            shared.wake();
        })
    }

    fn push(&self, item: Item) {
        self.shared.push(item, None);
    }

    fn close(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.push(Item::Close);
            // It ends at once, and a panic there was told already.
            let _ = thread.join();
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.close();
    }
}

impl Display for Terminal {
    fn event(&mut self, _line: &[u8], message: Option<&Message>, cancel: Option<&Cancel>) {
        if let Some(message) = message {
            self.shared.push(Item::Message(message.clone()), cancel);
        }
    }

    fn approval(&mut self, approval: &Approval, at_terminal: bool) {
        self.push(Item::Asked(safe(&approval.question(at_terminal))));
    }

    fn notice(&mut self, text: &str) {
        self.push(Item::Notice(text.to_owned()));
    }

    fn print(&mut self, text: &str) {
        self.push(Item::Print(text.to_owned()));
    }

    fn greet(&mut self, log: Option<&Path>) -> io::Result<()> {
        self.push(Item::Remark(
            "bash-agent interactive mode (/help shows what there is, Ctrl+D leaves)".into(),
        ));
        let Some(log) = log else { return Ok(()) };
        let part = self.replay.take();
        let mut shown = false;
        replay::show(part, log, &mut |message| {
            self.push(Item::Message(message.clone()));
            shown = true;
        })?;
        if shown {
            self.push(Item::Blank);
        }
        Ok(())
    }

    fn insert(&mut self, text: &str) {
        self.push(Item::Insert(text.to_owned()));
    }

    fn model_changed(&mut self, name: &str) {
        self.push(Item::Model(name.to_owned()));
    }

    fn turn_begins(&mut self, content: Option<&str>) {
        self.push(Item::Turn(content.map(str::to_owned)));
    }

    fn child_started(&mut self, id: &str, description: &str) {
        self.push(Item::ChildStarted(format!("[sub-agent {id}] {description}")));
    }

    fn figures(&mut self, busy: bool, stats: &Stats) {
        self.push(Item::Figures(busy, Box::new(stats.clone())));
    }

    fn turn_ended(&mut self, _end: &TurnEnd) {
        self.push(Item::TurnEnded);
    }

    fn typed(&mut self) {}

    fn ready(&mut self) {}

    fn is_closed(&self) -> bool {
        false
    }

    fn finish(&mut self, run: &RunEnd<'_>) {
        if !run.moves_on {
            self.push(Item::Remark("Goodbye!".to_owned()));
            self.push(Item::Remark(format!("Resume with: --session {}  or  --continue", run.session_id)));
        }
        self.close();
    }
}
