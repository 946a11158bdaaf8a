//! `bash-agent core …`: every part of DESIGN's "Swapping" table as a filter of its own, each the twin of a script.
//! They only connect stdin, files and stdout to the library.

mod filters;
mod input;
pub(super) mod policy;
mod session;
mod text;

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::args::{self, AgentArgs};
use crate::config::ConfigError;
use crate::exit::Exit;
use crate::model::Provider;
use crate::runtime::fifo::FifoError;
use crate::session::StorageError;
use crate::ui::out;

/// Input that must be held whole is refused beyond this.
const MAX_INPUT: u64 = 256 << 20;

/// The filters.
#[derive(Debug, Subcommand)]
pub enum Core {
    /// RESP frames to and from lines
    ///
    /// A line is one message: fields separated by TAB; in a field \\ \t \n \r stand for backslash, TAB, LF and CR.
    #[command(subcommand)]
    Resp(Resp),
    /// The stream of a model API (stdin) to messages
    Sse(SseArgs),
    /// Lines of events.jsonl to display messages
    Replay {
        /// As for who looks on: nothing is held back, results are whole, stop and compaction are told
        #[arg(long)]
        live: bool,
        /// Results whole, not their first 200 characters
        #[arg(long)]
        whole: bool,
        /// Only the last N turns
        #[arg(long, value_name = "N", value_parser = args::count)]
        last: Option<u64>,
        /// The log; without it stdin
        file: Option<PathBuf>,
    },
    /// Display messages (stdin) to text
    Display {
        /// Colours on stdout
        #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
        color: When,
        /// Colours on stderr, where errors go
        #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
        error_color: When,
    },
    /// Counters of a session
    #[command(subcommand)]
    Stats(StatsCommand),
    /// How many lines of a conversation a compaction keeps; 0 = do not compact (reads DP_*)
    CompactChoice(CompactChoiceArgs),
    /// What a sub-agent did, as one AGENT_RESULT frame for notify.fifo
    SubResult {
        /// The child's session directory
        session_dir: PathBuf,
        /// What the child exited with
        #[arg(long, value_name = "N", default_value_t = 0)]
        exit_code: u32,
    },
    /// Read a session's notify.fifo until its owner is gone
    ///
    /// Each result goes into events.jsonl, stats.json and notify.buf and off the count; NOTIFY_PENDING follows when
    /// no turn runs. stdout carries what there is to show.
    NotifyReader {
        /// The session directory
        session_dir: PathBuf,
        /// What stdout carries: display messages, event lines or nothing
        #[arg(long, value_name = "WHAT", value_enum, default_value = "messages")]
        show: Show,
    },
    /// The JSON body of a session's next request (takes the agent's options for the model)
    Body(Box<BodyArgs>),
    /// JSON strings and members
    #[command(subcommand)]
    Json(JsonCommand),
    /// Replace one exact place of a file; the new content goes to stdout
    ///
    /// stdin: one RESP frame of two fields, the old text and the new text. The file is not written.
    Edit {
        /// The file
        path: PathBuf,
        /// How messages call it, instead of PATH
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Write here what the tool says: on success its line and a diff, else the reason
        #[arg(long, value_name = "FILE")]
        reply: Option<PathBuf>,
    },
    /// The mode that a command needs, and why
    ///
    /// First line: the mode. Then a line for each part that needs something: its mode, a TAB, what it does.
    Classify(policy::ClassifyArgs),
    /// Run a command confined to a mode, by Landlock and seccomp or by bubblewrap
    Sandbox(policy::SandboxArgs),
}

/// What `core replay` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// A replay.
    Short,
    /// A transcript: results are whole.
    Whole,
    /// What who looks on sees.
    Live,
}

impl Told {
    fn of(live: bool, whole: bool) -> Self {
        match (live, whole) {
            (true, _) => Self::Live,
            (false, true) => Self::Whole,
            (false, false) => Self::Short,
        }
    }
}

/// `core resp`.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Resp {
    /// Lines (stdin) to frames
    Encode,
    /// Frames (stdin) to lines
    Decode,
}

/// `core sse`.
#[derive(Args, Debug)]
pub struct SseArgs {
    /// claude, openai or responses
    #[arg(long, value_name = "NAME", value_parser = provider)]
    provider: Provider,
    /// The limit that was asked for: an answer of that length with a call that is no JSON was cut by it
    #[arg(long, value_name = "N", value_parser = args::size)]
    max_tokens: Option<u64>,
    /// Begins the ids of calls that came without one
    #[arg(long, value_name = "TEXT", default_value = "call_")]
    id_prefix: String,
    /// Neighbouring pieces as one message, given when all has come
    #[arg(long)]
    join: bool,
    /// Mark figures that were guessed by a fifth field
    #[arg(long)]
    estimated: bool,
    /// How many bytes were sent, to guess the input from
    #[arg(long, value_name = "BYTES")]
    sent: Option<u64>,
    /// Who answered, for messages
    #[arg(long, value_name = "URL", default_value = "the server")]
    server: String,
    /// What comes when there was no event for this long (comments are none) ends it, with an error
    #[arg(long, value_name = "SECONDS")]
    stall_timeout: Option<u64>,
}

/// `core stats`.
#[derive(Debug, Subcommand)]
pub enum StatsCommand {
    /// Apply `key=value` and `key=+n` lines (stdin), all or none
    Update {
        /// stats.json; the state.lock beside it is taken
        file: PathBuf,
    },
    /// Print values, one a line; an empty line for a key that is not there
    Get {
        /// stats.json
        file: PathBuf,
        /// The keys
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
}

/// `core compact-choice`.
#[derive(Args, Debug)]
pub struct CompactChoiceArgs {
    /// conversation.jsonl
    file: PathBuf,
    /// current_turn_count, this turn counted
    #[arg(long, value_name = "N", default_value_t = 0)]
    turns: u64,
    /// compact_request_count
    #[arg(long, value_name = "N", default_value_t = 0)]
    compactions: u64,
    /// agent_request_count
    #[arg(long, value_name = "N", default_value_t = 0)]
    requests: u64,
    /// total_input_tokens
    #[arg(long, value_name = "N", default_value_t = 0)]
    total_input: u64,
    /// current_context_tokens
    #[arg(long, value_name = "N", default_value_t = 0)]
    context: u64,
    /// The size of the window in tokens
    #[arg(long, value_name = "N", value_parser = args::size, default_value = "200000")]
    max_context: u64,
    /// What asks for it
    #[arg(long, value_enum, default_value = "auto")]
    trigger: Trigger,
}

/// What asks for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Trigger {
    /// Before a model call, when it pays or the window is nearly full.
    Auto,
    /// PlanConfirm.
    PlanConfirm,
    /// PlanClear.
    PlanClear,
    /// The user.
    Manual,
}

/// `core body`.
#[derive(Args, Debug)]
pub struct BodyArgs {
    /// The session directory
    session_dir: PathBuf,
    /// The system prompt, instead of the one made here
    #[arg(long, value_name = "FILE")]
    system: Option<PathBuf>,
    /// One more user message behind the conversation
    #[arg(long, value_name = "FILE")]
    instruction: Option<PathBuf>,
    /// Only the conversation's first N bytes, whole lines
    #[arg(long, value_name = "N")]
    until: Option<u64>,
    /// Leave out what the server does not take: one of thinking, effort, cache_control, stream_options, include, summary, images, other_limit, other_reasoning
    #[arg(long, value_name = "FIELD")]
    omit: Vec<String>,
    /// Write here how many bytes of the body are images
    #[arg(long, value_name = "FILE")]
    image_bytes: Option<PathBuf>,
    /// Leave signed thinking out
    #[arg(long)]
    drop_signed: bool,
    /// The agent's options.
    #[command(flatten)]
    agent: AgentArgs,
}

/// `core json`.
#[derive(Debug, Subcommand)]
pub enum JsonCommand {
    /// Text (stdin) to the body of a JSON string, without quotes or line feed
    Escape,
    /// A member's value of the object on stdin; a string is decoded; exit 1 when there is none
    Get {
        /// Its key
        key: String,
        /// As it stands in the JSON
        #[arg(long)]
        raw: bool,
    },
}

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal that understands them, without NO_COLOR.
    Auto,
    /// Yes.
    Always,
    /// No.
    Never,
}

/// What `notify-reader` writes to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Show {
    /// Display messages.
    Messages,
    /// The event lines it wrote.
    Events,
    /// Nothing.
    None,
}

fn provider(word: &str) -> Result<Provider, String> {
    match word.parse() {
        Ok(Provider::Script) | Err(_) => {
            Err(format!("'{word}' has no stream: give claude, openai or responses"))
        }
        Ok(provider) => Ok(provider),
    }
}

/// Why a filter ends early.
#[derive(Debug, thiserror::Error)]
enum CoreError {
    #[error("cannot read {0}: {1}")]
    Read(String, io::Error),
    #[error("cannot write {0}: {1}")]
    Write(String, io::Error),
    #[error("{0} is over 256 MiB")]
    TooLong(&'static str),
    #[error("{0}")]
    Usage(String),
    /// Said as it is: a tool's or a file's own words.
    #[error("{0}")]
    Failed(String),
    #[error("nobody reads stdout any more")]
    Closed,
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Fifo(#[from] FifoError),
}

impl CoreError {
    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Config(error) => error.exit(),
            Self::Storage(_) | Self::Fifo(_) => Exit::Storage,
            Self::Closed => Exit::BrokenPipe,
            Self::Interrupted => Exit::Interrupted,
            Self::Read(..) | Self::Write(..) | Self::TooLong(_) | Self::Failed(_) => Exit::Failed,
        }
    }
}

/// Runs one filter; returns the exit code.
pub fn run(core: Core) -> u8 {
    let done = match core {
        Core::Resp(Resp::Encode) => filters::encode(),
        Core::Resp(Resp::Decode) => filters::decode(),
        Core::Sse(args) => filters::sse(&args),
        Core::Replay { live, whole, last, file } => {
            filters::replay(Told::of(live, whole), last, file.as_deref())
        }
        Core::Display { color, error_color } => filters::display(color, error_color),
        Core::Stats(StatsCommand::Update { file }) => session::stats_update(&file),
        Core::Stats(StatsCommand::Get { file, keys }) => session::stats_get(&file, &keys),
        Core::CompactChoice(args) => session::compact_choice(&args),
        Core::SubResult { session_dir, exit_code } => session::sub_result(session_dir, exit_code),
        Core::NotifyReader { session_dir, show } => session::notify_reader(session_dir, show),
        Core::Body(args) => session::body(*args),
        Core::Json(JsonCommand::Escape) => text::escape(),
        Core::Json(JsonCommand::Get { key, raw }) => text::get(&key, raw),
        Core::Classify(args) => policy::classify(&args),
        Core::Sandbox(args) => policy::sandbox(&args),
        Core::Edit { path, name, reply } => text::edit(&path, name, reply.as_deref()),
    };
    match done {
        Ok(exit) => exit.code(),
        Err(error @ (CoreError::Closed | CoreError::Interrupted)) => error.exit().code(),
        Err(error) => {
            out::complain(&error.to_string());
            error.exit().code()
        }
    }
}

/// Reads `input` to its end in large pieces: each piece, then `None`, goes to `take`, and what that appends to its
/// second argument is written at once. Ends quietly when nobody reads it any more; Ctrl+C ends the input.
fn pump(
    name: &str,
    mut input: impl Read,
    mut take: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> Result<(), CoreError>,
) -> Result<Exit, CoreError> {
    let mut stdout = out::Stdout::new();
    let mut buffer = vec![0; 64 << 10];
    let mut output = Vec::new();
    loop {
        let read = match input.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CoreError::Read(name.to_owned(), error)),
        };
        take((read > 0).then(|| &buffer[..read]), &mut output)?;
        stdout.write(&output, None);
        output.clear();
        if stdout.is_closed() {
            return Ok(Exit::BrokenPipe);
        }
        if read == 0 {
            return Ok(if input::is_interrupted() { Exit::Interrupted } else { Exit::Ok });
        }
    }
}

/// Copies `input` to stdout as it is.
fn pour(name: &str, mut input: impl Read) -> Result<Exit, CoreError> {
    let mut stdout = out::Stdout::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(Exit::Ok),
            Ok(read) => stdout.write(&buffer[..read], None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CoreError::Read(name.to_owned(), error)),
        }
        if stdout.is_closed() {
            return Ok(Exit::BrokenPipe);
        }
    }
}

/// All of stdin. An interrupt comes before its end: then nothing is done.
fn whole_stdin() -> Result<Vec<u8>, CoreError> {
    let mut bytes = Vec::new();
    let read = input::Stdin::new().take(MAX_INPUT + 1).read_to_end(&mut bytes);
    read.map_err(|error| CoreError::Read("stdin".to_owned(), error))?;
    if input::is_interrupted() {
        return Err(CoreError::Interrupted);
    }
    if bytes.len() as u64 > MAX_INPUT {
        return Err(CoreError::TooLong("stdin"));
    }
    Ok(bytes)
}

fn open(path: &std::path::Path) -> Result<File, CoreError> {
    File::open(path).map_err(|error| CoreError::Read(path.display().to_string(), error))
}

/// Writes to stdout and says how that went.
fn print(bytes: &[u8]) -> Exit {
    let mut stdout = out::Stdout::new();
    stdout.write(bytes, None);
    if stdout.is_closed() { Exit::BrokenPipe } else { Exit::Ok }
}

/// A line on stderr as it is, for whoever turns such lines into events.
fn note(text: &str) {
    out::stderr(format!("{text}\n").as_bytes());
}
