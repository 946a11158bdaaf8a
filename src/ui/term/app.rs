//! The loop of the terminal's thread: keys, things to show, signals and the clock in; frames and typed lines out.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::clipboard;
use super::editor::{Asked, Editor};
use super::history::History;
use super::keys::Decoder;
use super::prompt::{self, Status};
use super::scribe::Scribe;
use super::style::Style;
use super::tty::{self, Tty};
use super::view::{Area, View};
use super::{Bell, Item, Options, Shared};
use crate::agent::approval::is_answer;
use crate::agent::console::is_command;
use crate::exit::Exit;
use crate::runtime::inbox::{Event, Running, Typed};
use crate::session::stats::Stats;
use crate::ui::{out, title};
use crate::wire::message::Message;

/// Frames are at least this far apart while output streams.
const FRAME: Duration = Duration::from_millis(16);
/// An Escape that nothing follows for so long is one.
const ESCAPE: Duration = Duration::from_millis(30);
/// How often the status is drawn anew.
const TICK: Duration = Duration::from_secs(1);
/// How long a stop may take to happen; where nobody could continue us it never does.
const STOP: Duration = Duration::from_millis(300);
/// When the inbox is full, it is tried again after this.
const AGAIN: Duration = Duration::from_millis(10);

/// After a turn this long a person may be looking elsewhere.
const LONG_TURN: Duration = Duration::from_secs(10);

const LEAVE_HINT: &str = "Ctrl+C again leaves";

/// A turn that runs.
struct Turn {
    since: Instant,
    /// Tokens of the session when it began.
    before: (u64, u64),
    /// Bytes streamed since the last figures.
    streamed: usize,
    /// What the model does.
    doing: &'static str,
}

pub(super) struct App {
    options: Options,
    shared: Arc<Shared>,
    reader: OwnedFd,
    inbox: SyncSender<Event>,
    running: Running,
    tty: Tty,
    view: View,
    editor: Editor,
    scribe: Scribe,
    decoder: Decoder,
    /// What the inbox had no room for.
    unsent: VecDeque<Event>,
    turn: Option<Turn>,
    /// Inputs typed while a turn ran.
    queue: Vec<String>,
    tokens: (u64, u64),
    children: usize,
    hint: Option<&'static str>,
    /// A question waits for an answer.
    asked: bool,
    /// Ctrl+C was the last key, and there was nothing to interrupt.
    leaving: bool,
    last_frame: Option<Instant>,
    dirty: bool,
    /// Stopped, or in the background: the terminal is not ours now.
    away: bool,
    /// Bytes that were typed before raw mode: their line feeds were Returns.
    ahead: usize,
    /// The terminal is gone, or nothing more is to be read.
    deaf: bool,
}

impl App {
    pub(super) fn new(
        options: Options,
        shared: Arc<Shared>,
        reader: OwnedFd,
        inbox: SyncSender<Event>,
        running: Running,
    ) -> io::Result<Self> {
        let mut tty = Tty::open()?;
        let away = !Tty::is_ours();
        let ahead = Tty::typed_ahead();
        if !away {
            tty.enter()?;
        }
        let size = Tty::size();
        Ok(Self {
            view: View::new(size, options.color),
            scribe: Scribe::new(size.0, options.markdown),
            editor: Editor::new(History::load(options.history.clone()), options.sources.clone()),
            options,
            shared,
            reader,
            inbox,
            running,
            tty,
            decoder: Decoder::default(),
            unsent: VecDeque::new(),
            turn: None,
            queue: Vec::new(),
            tokens: (0, 0),
            children: 0,
            hint: None,
            asked: false,
            leaving: false,
            last_frame: None,
            dirty: true,
            away,
            ahead,
            deaf: false,
        })
    }

    pub(super) fn run(&mut self) {
        loop {
            self.hear_signals();
            for item in self.shared.take() {
                if matches!(item, Item::Close) {
                    return self.end();
                }
                self.show(item);
                self.dirty = true;
            }
            self.send_waiting();
            if self.dirty && !self.away && self.time_to_frame().is_zero() {
                self.draw();
            }
            let (keys, woken) = self.wait();
            if woken {
                self.empty_wake();
            }
            if keys {
                self.read_keys();
            }
            self.take_keys(!keys);
        }
    }

    /// The last frame, and the terminal as it was.
    fn end(&mut self) {
        self.turn = None;
        self.queue.clear();
        self.hint = None;
        self.scribe.close();
        if !self.away {
            self.draw();
            self.hide_area();
        }
        self.tty.leave();
        self.shared.closed.store(true, Ordering::SeqCst);
    }

    // Waiting.

    fn time_to_frame(&self) -> Duration {
        self.last_frame.map_or(Duration::ZERO, |last| FRAME.saturating_sub(last.elapsed()))
    }

    /// Waits for something to do; whether there are keys, and whether somebody woke us.
    fn wait(&self) -> (bool, bool) {
        let mut most: Option<Duration> = None;
        let mut at_most = |time: Duration| most = Some(most.map_or(time, |most| most.min(time)));
        if self.dirty && !self.away {
            at_most(self.time_to_frame());
        }
        if self.decoder.waits() {
            at_most(ESCAPE);
        }
        if !self.unsent.is_empty() {
            at_most(AGAIN);
        }
        if self.turn.is_some() && !self.away {
            at_most(TICK);
        }
        // Rounded up: a wait that is too short would come round again at once.
        let timeout = most.map_or(PollTimeout::NONE, |time| {
            PollTimeout::from(u16::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u16::MAX))
        });
        let stdin = io::stdin();
        let mut fds = vec![PollFd::new(self.reader.as_fd(), PollFlags::POLLIN)];
        if !self.away && !self.deaf {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, timeout) {
            Ok(_) => {
                let woken = fds[0].any() == Some(true);
                (fds.get(1).is_some_and(|fd| fd.any() == Some(true)), woken)
            }
            Err(_) => (false, false),
        }
    }

    fn empty_wake(&self) {
        let mut buffer = [0; 64];
        while nix::unistd::read(&self.reader, &mut buffer).is_ok_and(|count| count == buffer.len()) {}
    }

    // Drawing.

    fn draw(&mut self) {
        self.dirty = false;
        self.last_frame = Some(Instant::now());
        let area = self.area();
        let (done, open) = self.scribe.take(self.view.width());
        let mut frame = String::new();
        self.view.frame(done, open, area, &mut frame);
        tty::write(frame.as_bytes());
    }

    fn area(&self) -> Area {
        let parts = prompt::Parts {
            editor: &self.editor,
            status: self.turn.as_ref().map(|turn| self.status(turn)),
            queue: &self.queue,
            hint: self.hint,
        };
        prompt::area(&parts, self.view.width(), self.view.area_limit())
    }

    fn status(&self, turn: &Turn) -> Status {
        let doing = self.scribe.running().unwrap_or(turn.doing).to_owned();
        let guessed = u64::try_from(turn.streamed / 4).unwrap_or(0);
        Status {
            doing,
            elapsed: turn.since.elapsed(),
            tokens: (
                self.tokens.0.saturating_sub(turn.before.0),
                self.tokens.1.saturating_sub(turn.before.1) + guessed,
            ),
            children: self.children,
        }
    }

    fn hide_area(&mut self) {
        let mut bytes = String::new();
        self.view.hide(&mut bytes);
        tty::write(bytes.as_bytes());
    }

    // Things to show.

    fn show(&mut self, item: Item) {
        match item {
            Item::Message(message) => self.message(&message),
            Item::Notice(text) => self.scribe.line(Style::YELLOW, &format!("bash-agent: {text}")),
            Item::Print(text) => self.scribe.print(&text),
            Item::Remark(text) => self.scribe.line(Style::CYAN, &text),
            Item::Blank => self.scribe.blank(),
            Item::Asked(question) => {
                self.scribe.line(Style::YELLOW, &question);
                self.asked = true;
                self.ring();
            }
            Item::Insert(text) => self.editor.insert(&text),
            Item::Model(name) => self.options.model = name,
            Item::Clipboard(Ok(bytes)) => self.send(Event::Typed(Typed::Image(bytes))),
            Item::Clipboard(Err(why)) => self.hint = Some(why),
            Item::Turn(content) => self.turn_begins(content),
            Item::ChildStarted(text) => self.scribe.line(Style::PLAIN, &text),
            Item::Figures(busy, stats) => self.figures(busy, &stats),
            Item::TurnEnded => {
                self.scribe.close();
                self.asked = false;
                if self.turn.take().is_some_and(|turn| turn.since.elapsed() >= LONG_TURN) {
                    self.ring();
                }
            }
            Item::Close => {}
        }
    }

    /// Tells a person who looks elsewhere.
    fn ring(&self) {
        let bytes: &[u8] = match self.options.bell {
            Bell::Off => return,
            Bell::Bell => b"\x07",
            Bell::Osc9 => b"\x1b]9;bash-agent is waiting for you\x07",
            Bell::Osc777 => b"\x1b]777;notify;bash-agent;it is waiting for you\x07",
        };
        if !self.away {
            tty::write(bytes);
        }
    }

    fn message(&mut self, message: &Message) {
        if let Some(turn) = &mut self.turn {
            match message {
                Message::Text { content } => {
                    turn.doing = "Writing";
                    turn.streamed += content.len();
                }
                Message::Thinking { content } => {
                    turn.doing = "Thinking";
                    turn.streamed += content.len();
                }
                Message::Usage(_) | Message::ToolResult { .. } => turn.doing = "Waiting for the model",
                Message::Retry => turn.doing = "Trying again",
                _ => {}
            }
        }
        self.scribe.message(message);
    }

    fn turn_begins(&mut self, content: Option<String>) {
        if let Some(content) = content {
            if self.queue.first().is_some_and(|first| *first == content) {
                self.queue.remove(0);
            }
            self.scribe.echo(&content);
        }
        self.turn = Some(Turn {
            since: Instant::now(),
            before: self.tokens,
            streamed: 0,
            doing: "Waiting for the model",
        });
    }

    fn figures(&mut self, busy: bool, stats: &Stats) {
        let input =
            stats.total_input_tokens + stats.total_cache_read_tokens + stats.total_cache_creation_tokens;
        self.tokens = (input, stats.total_output_tokens);
        if let Some(turn) = &mut self.turn {
            turn.streamed = 0;
        }
        if self.options.title && !self.away {
            out::stderr(title::sequence(&self.options.model, busy, &title::Figures::of(stats)).as_bytes());
        }
    }

    // Signals.

    fn hear_signals(&mut self) {
        if self.shared.continued.swap(false, Ordering::SeqCst) {
            self.come_back();
        }
        if self.shared.resized.swap(false, Ordering::SeqCst) && !self.away {
            let mut bytes = String::new();
            self.view.resize(Tty::size(), &mut bytes);
            tty::write(bytes.as_bytes());
            self.dirty = true;
            self.last_frame = None;
        }
        if self.shared.interrupted.swap(false, Ordering::SeqCst) {
            self.interrupt(true);
        }
    }

    /// Ctrl+Z: as it was, then the whole job stops, and goes on when its shell says so.
    fn suspend(&mut self) {
        self.hide_area();
        self.tty.leave();
        self.away = true;
        // Nothing else of ours is in the job: tools have sessions of their own.
        if kill(Pid::from_raw(0), Signal::SIGTSTP).is_err() {
            return self.come_back();
        }
        let deadline = Instant::now() + STOP;
        while !self.shared.continued.load(Ordering::SeqCst) && Instant::now() < deadline {
            let mut fds = [PollFd::new(self.reader.as_fd(), PollFlags::POLLIN)];
            let left = deadline.saturating_duration_since(Instant::now()).as_millis();
            let _ = poll(&mut fds, PollTimeout::from(u16::try_from(left).unwrap_or(0)));
            self.empty_wake();
        }
        self.come_back();
    }

    /// We were stopped, or moved between foreground and background.
    fn come_back(&mut self) {
        if !Tty::is_ours() {
            self.away = true;
            return;
        }
        self.tty.leave();
        if self.tty.enter().is_err() {
            return;
        }
        self.away = false;
        let mut bytes = "\r".to_owned();
        self.view.hide(&mut bytes);
        self.view.resize(Tty::size(), &mut bytes);
        tty::write(bytes.as_bytes());
        self.dirty = true;
        self.last_frame = None;
    }

    // Keys.

    fn read_keys(&mut self) {
        let mut buffer = [0; 16 << 10];
        match nix::unistd::read(io::stdin().as_fd(), &mut buffer) {
            Ok(0) => self.hung_up(),
            Ok(count) => {
                let ahead = count.min(std::mem::take(&mut self.ahead));
                buffer[..ahead].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b'\r');
                self.decoder.feed(&buffer[..count]);
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            // In the background nothing is to be read; the terminal may come back.
            Err(Errno::EIO) if !Tty::is_ours() => self.away = true,
            Err(_) => self.hung_up(),
        }
    }

    fn hung_up(&mut self) {
        self.deaf = true;
        self.running.signalled(Exit::HungUp);
        self.send(Event::Signal(Exit::HungUp));
    }

    fn take_keys(&mut self, at_rest: bool) {
        while let Some(key) = self.decoder.next(at_rest) {
            self.dirty = true;
            self.last_frame = None;
            self.hint = None;
            let asked = self.editor.key(key);
            let again = std::mem::take(&mut self.leaving);
            match asked {
                Asked::Nothing => {}
                Asked::Submit(text) => self.submit(text),
                Asked::Steer(text) => self.steer(text),
                Asked::Interrupt { leaves } => {
                    self.leaving = again;
                    self.interrupt(leaves);
                }
                Asked::End => self.send(Event::Typed(Typed::End)),
                Asked::Suspend => return self.suspend(),
                Asked::Clear => {
                    let mut bytes = String::new();
                    self.view.clear(&mut bytes);
                    tty::write(bytes.as_bytes());
                }
                Asked::Image => {
                    let shared = Arc::clone(&self.shared);
                    clipboard::image(move |image| shared.push(Item::Clipboard(image), None));
                }
                Asked::OpenEditor => self.open_editor(),
            }
        }
    }

    /// Ctrl+C: ends the turn that runs; else clears the line; the second time in a row leaves.
    fn interrupt(&mut self, leaves: bool) {
        self.dirty = true;
        self.last_frame = None;
        if self.running.is_set() {
            self.running.interrupt();
            self.leaving = false;
            return self.send(Event::Interrupt);
        }
        if !leaves {
            self.leaving = false;
            return;
        }
        if std::mem::take(&mut self.leaving) {
            return self.send(Event::Typed(Typed::Leave));
        }
        self.editor.clear();
        self.leaving = true;
        self.hint = Some(LEAVE_HINT);
    }

    fn submit(&mut self, text: String) {
        let word = text.trim();
        if word.is_empty() {
            return;
        }
        if let Some(back) = word.strip_prefix("/last").filter(|rest| rest.is_empty() || rest.starts_with(' '))
        {
            self.scribe.echo(word);
            match back.trim() {
                "" => self.scribe.show_last(1),
                number => match number.parse() {
                    Ok(back) if back > 0 => self.scribe.show_last(back),
                    _ => self.scribe.line(
                        Style::YELLOW,
                        &format!(
                            "/last: '{number}' is no number: give 1 for the last result, 2 for the one before"
                        ),
                    ),
                },
            }
            return;
        }
        let answers = std::mem::take(&mut self.asked) && is_answer(word);
        if is_command(word) || answers {
            self.scribe.echo(word);
        } else if self.turn.is_some() && !matches!(word, "exit" | "quit") {
            self.queue.push(text.clone());
        }
        self.send(Event::Typed(Typed::Line(text)));
    }

    /// Ctrl+O: to the turn that runs; with none running it is an input like others.
    fn steer(&mut self, text: String) {
        if self.turn.is_some() {
            self.send(Event::Typed(Typed::Steer(text)));
        } else {
            self.submit(text);
        }
    }

    /// Ctrl+G: the user's own editor has the terminal until it ends.
    fn open_editor(&mut self) {
        let Some(command) = self.options.editor.clone() else {
            self.hint = Some("set VISUAL or EDITOR to edit here with Ctrl+G");
            return;
        };
        self.hide_area();
        self.tty.leave();
        let edited = edit(&command, &self.editor.whole());
        match self.tty.enter() {
            Ok(()) => self.dirty = true,
            Err(_) => self.away = true,
        }
        match edited {
            Ok(text) => self.editor.replace(text.trim_end_matches('\n')),
            Err(error) => self.scribe.line(Style::RED, &format!("{command}: {error}; the line is as it was")),
        }
    }

    // To the agent.

    fn send(&mut self, event: Event) {
        self.unsent.push_back(event);
        self.send_waiting();
    }

    /// Never blocks: the agent may be waiting for us to show something.
    fn send_waiting(&mut self) {
        while let Some(event) = self.unsent.pop_front() {
            match self.inbox.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => return self.unsent.push_front(event),
                // The process is ending.
                Err(TrySendError::Disconnected(_)) => return,
            }
        }
    }
}

/// Lets the user's editor change a text.
fn edit(command: &str, text: &str) -> io::Result<String> {
    use std::io::Write;
    let mut file = tempfile::Builder::new().prefix("bash-agent-").suffix(".md").tempfile()?;
    file.write_all(text.as_bytes())?;
    let status = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!("{command} \"$1\""))
        .arg("sh")
        .arg(file.path())
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!("it ended with {status}")));
    }
    Ok(String::from_utf8_lossy(&std::fs::read(file.path())?).into_owned())
}
