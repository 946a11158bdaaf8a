//! What the agent decides: the loop, the turn, the prompt. It knows neither disk formats nor the screen.

pub mod approval;
mod ask;
mod calls;
mod child_tools;
pub mod children;
pub mod compact;
pub mod compact_choice;
pub mod console;
pub mod limits;
pub mod main_loop;
pub mod prompt;
pub mod record;
pub mod response;
pub mod sub_result;
mod turn;

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use crate::exit::Exit;
use crate::model::{Model, Provider};
use crate::runtime::cancel::Cancel;
use crate::runtime::inbox::{Inbox, InputReader};
use crate::runtime::sync::Syncer;
use crate::session::Session;
use crate::session::input::InputIds;
use crate::session::stats::Stats;
use crate::tools;
use crate::wire::message::{Message, Usage};
use approval::{Answerer, Approval};
use children::Children;
use record::Recorder;

/// Who sees what happens (the ui). Every event line goes to `event`, with the message that shows it, if any shows.
pub trait Display {
    /// An event was written: its line (with LF), and what a person sees of it.
    fn event(&mut self, line: &[u8], message: Option<&Message>, cancel: Option<&Cancel>);
    /// A refused call may run if somebody says so. `at_terminal`: the next line that a person types answers it.
    fn approval(&mut self, approval: &Approval, at_terminal: bool);
    /// Something for the person only: retries, warnings.
    fn notice(&mut self, text: &str);
    /// Text that a person asked for, as it is.
    fn print(&mut self, text: &str);
    /// A person sits at the terminal: says hello, and shows the last turns of the event log, if there are any.
    fn greet(&mut self, log: Option<&std::path::Path>) -> std::io::Result<()>;
    /// Puts text into the line being typed, where there is one.
    fn insert(&mut self, text: &str);
    /// Another model answers from now on.
    fn model_changed(&mut self, name: &str);
    /// A turn begins, with this input if a person's.
    fn turn_begins(&mut self, content: Option<&str>);
    /// A person typed a line.
    fn typed(&mut self);
    /// Nothing is to be done: the next line is waited for.
    fn ready(&mut self);
    /// A sub-agent that was queued has begun to run.
    fn child_started(&mut self, id: &str, description: &str);
    /// New figures for the title.
    fn figures(&mut self, busy: bool, stats: &Stats);
    /// A turn ended with this final text.
    fn turn_ended(&mut self, end: &TurnEnd);
    /// The reader of stdout has gone away.
    fn is_closed(&self) -> bool;
    /// All is done.
    fn finish(&mut self, run: &RunEnd<'_>);
}

/// How a turn ended.
#[derive(Clone, Debug)]
pub struct TurnEnd {
    /// The `stop` event's reason.
    pub reason: String,
    /// What a one-shot run of it exits with.
    pub exit: Exit,
    /// The text of the last response.
    pub text: String,
    /// What went wrong, if something did.
    pub error: Option<String>,
}

impl TurnEnd {
    fn without_answer(reason: &str, exit: Exit, error: Option<String>) -> Self {
        Self { reason: reason.to_owned(), exit, text: String::new(), error }
    }
}

/// How a run ended, for `--output-format json`.
pub struct RunEnd<'a> {
    /// The last turn, if there was one.
    pub last: Option<&'a TurnEnd>,
    /// The exit code.
    pub exit: u8,
    /// The terminal goes on with another session.
    pub moves_on: bool,
    /// The session's name.
    pub session_id: &'a str,
    /// Tokens of this run.
    pub usage: Usage,
    /// Dollars of this run.
    pub cost: f64,
    /// Turns of this run.
    pub turns: u64,
    /// How long it took.
    pub duration: std::time::Duration,
}

/// Something to do when no turn runs.
#[derive(Debug)]
pub(crate) enum Work {
    /// A user turn.
    User {
        /// The text.
        content: String,
        /// The sender's name for it.
        id: Option<String>,
        /// The file in input.d that holds it, to be removed once its user line is written.
        file: Option<String>,
    },
    /// notify.buf holds something.
    Notify,
    /// A `/command`.
    Command(String),
    /// Write a `sync` event.
    Sync(String),
    /// End the session.
    End(Option<u8>),
}

/// What stays the same for the whole run.
pub struct Settings {
    /// `…/.bash-agent`.
    pub base: PathBuf,
    /// The physical working directory.
    pub cwd: PathBuf,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// For the prompt.
    pub lang: String,
    /// For the prompt.
    pub shell: String,
    /// Names of the selected skills.
    pub selected_skills: Vec<String>,
    /// A refusal becomes a question, which waits this long for its answer.
    pub ask: Option<std::time::Duration>,
    /// Most model calls of a turn.
    pub max_turns: u64,
    /// The window, in tokens.
    pub max_context: u64,
    /// What the whole run may use.
    pub budget: limits::Budget,
    /// Most tokens of one answer.
    pub max_tokens: u64,
    /// Which API is spoken.
    pub provider: Provider,
    /// The model's name, for stats and events.
    pub model_name: String,
    /// Dollars of one call.
    pub price: Box<dyn Fn(&Usage) -> f64 + Send>,
    /// The cost model of compaction.
    pub costs: compact_choice::Costs,
    /// This agent is a sub-agent itself: it starts none.
    pub is_child: bool,
}

/// What this run has used so far, its children included.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    usage: Usage,
    cost: f64,
    turns: u64,
}

impl Totals {
    fn add(&mut self, usage: &Usage, cost: f64) {
        self.usage.input += usage.input;
        self.usage.output += usage.output;
        self.usage.cache_read += usage.cache_read;
        self.usage.cache_creation += usage.cache_creation;
        self.cost += cost;
    }
}

/// The agent: one session, one model, one inbox.
pub struct Agent {
    settings: Settings,
    session: Session,
    model: Arc<dyn Model>,
    tools: Arc<tools::Context>,
    recorder: Recorder,
    inbox: Inbox,
    input: Option<InputReader>,
    queue: VecDeque<Work>,
    /// Numbers model calls and tool batches, so that what an abandoned one still sends is told apart.
    call: u64,
    cancel: Option<Cancel>,
    /// A signal or a closed stdout ends the run with this.
    leaving: Option<Exit>,
    totals: Totals,
    /// Warnings about the window or the prompt that were said already.
    said: HashSet<String>,
    /// Results that could not be written to notify.buf: delivered from memory.
    held: Vec<Message>,
    children: Children,
    /// When the run's time is over (`--max-time`).
    deadline: Option<std::time::Instant>,
    /// A person types lines.
    attended: bool,
    /// Without that: who asks for the answer to a question.
    answerer: Option<Box<dyn Answerer>>,
    /// It reads a line.
    answer_open: bool,
    /// At a terminal: who carries out commands.
    console: Option<Box<dyn console::Console>>,
    /// What the terminal goes on with after this run.
    next: Option<console::Next>,
    compaction: compact::Memory,
    syncer: Syncer,
    input_ids: InputIds,
    /// Children and tasks of this run whose result was not taken in yet.
    open_children: HashSet<String>,
}
