//! What the user typed: the flags of CONTRACT §13 and the command words of DESIGN "Commands". Validation only, no I/O.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

/// How the answer reaches stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputFormat {
    /// For people: text as it comes, tools, results.
    Human,
    /// The event lines, as they happen.
    StreamJson,
    /// The final answer only, for pipes.
    Text,
    /// One object when all is done.
    Json,
}

/// A coding agent for people who live in a shell: plain files, FIFOs and filters.
///
/// Without PROMPT it reads stdin, or starts the interactive mode when stdin is a terminal.
/// COMMANDS (as the first word): send, notify, interrupt, stop, wait, watch, status, sessions, path,
/// compact, cost, export, completions, man, core. See `bash-agent COMMAND --help`. A prompt of that one word goes after `--`.
#[derive(Clone, Debug, Parser)]
#[command(name = "bash-agent", version, disable_help_subcommand = true, max_term_width = 100)]
pub struct AgentArgs {
    /// What to do; `-` appends stdin to it
    #[arg(value_name = "PROMPT")]
    pub prompt: Vec<String>,

    /// Model API: claude, openai (Chat Completions), responses, script (a cassette, offline), or a name of the config
    #[arg(short, long, value_name = "NAME")]
    pub provider: Option<String>,

    /// Model name; for `-p script` the cassette file
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,

    /// Most tokens of one answer
    #[arg(long, value_name = "N", value_parser = size)]
    pub max_tokens: Option<u64>,

    /// Seconds a tool may run
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub tool_timeout: Option<u64>,

    /// Put this skill into the prompt (repeatable)
    #[arg(long, value_name = "NAME")]
    pub skill: Vec<String>,

    /// Send this image with PROMPT (PNG, JPEG, GIF or WebP; repeatable)
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,

    /// Most model calls of one turn
    #[arg(long, value_name = "N", value_parser = count)]
    pub max_turns: Option<u64>,

    /// Size of the window in tokens
    #[arg(long, value_name = "N", value_parser = size)]
    pub max_context: Option<u64>,

    /// Most sub-agents running at once; more wait their turn
    #[arg(long, value_name = "N", value_parser = count)]
    pub max_sub_agents: Option<u64>,

    /// Most dollars this run may cost, its sub-agents and summaries included
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub max_cost: Option<f64>,

    /// Most tokens this run may use, of all kinds together, its sub-agents and summaries included
    #[arg(long, value_name = "N", value_parser = size)]
    pub max_total_tokens: Option<u64>,

    /// Most seconds this run may take
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub max_time: Option<u64>,

    /// The API key; @FILE or `-` (stdin) keep it out of the process list
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,

    /// Where the API is, for instance http://127.0.0.1:11434
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,

    /// How hard the model thinks: low, medium, high, xhigh, max
    #[arg(long, value_name = "LEVEL")]
    pub effort: Option<String>,

    /// Thinking: adaptive, enabled, disabled
    #[arg(long, value_name = "KIND")]
    pub thinking: Option<String>,

    /// What stdout carries
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub output_format: Option<OutputFormat>,

    /// Short for --output-format stream-json
    #[arg(long, conflicts_with = "output_format")]
    pub print: bool,

    /// Create or continue the session NAME; without NAME a new one
    #[arg(long, value_name = "NAME", num_args = 0..=1, conflicts_with = "continue_")]
    pub session: Option<Option<String>>,

    /// Continue the newest session of this directory
    #[arg(long = "continue")]
    pub continue_: bool,

    /// Work on a copy of the session (--session NAME, --continue, or the newest)
    #[arg(long)]
    pub fork: bool,

    /// Stay and wait for input on input.fifo, turn after turn, without a terminal
    #[arg(long)]
    pub stay: bool,

    /// Write what the model answers to FILE, as a cassette for `-p script`
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// List the sessions of this directory
    #[arg(long)]
    pub list_sessions: bool,

    /// What tools may do: four octal digits (system, external, network, workspace), read-only, workspace, trusted, ask (workspace, and --ask)
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,

    /// Ask before a call that the mode does not allow, instead of refusing it
    #[arg(long)]
    pub ask: bool,

    /// Run commands confined or not at all
    #[arg(long)]
    pub require_sandbox: bool,

    /// Do not mask keys and tokens in what tools print
    #[arg(long)]
    pub no_mask: bool,

    /// Interactive without an own line editor and cursor moves: for screen readers and simple terminals
    #[arg(long)]
    pub plain: bool,

    /// Say more on stderr
    #[arg(short, long)]
    pub verbose: bool,

    /// Interactive mode, even with a prompt
    #[arg(short, long)]
    pub interactive: bool,
}

/// Which session a command means.
#[derive(Args, Clone, Debug)]
pub struct SessionArg {
    /// The session; else the newest running one of this directory, else (to look) the newest
    #[arg(long, value_name = "NAME")]
    pub session: Option<String>,
}

/// Commands to a running agent, and about sessions.
#[derive(Debug, Parser)]
#[command(name = "bash-agent", disable_help_subcommand = true, max_term_width = 100)]
pub struct CommandArgs {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The command words.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give one user input to a running agent
    Send(SendArgs),
    /// Steer the running turn with a remark
    Notify {
        /// Which session.
        #[command(flatten)]
        session: SessionArg,
        /// The remark; `-` reads it from stdin
        #[arg(required = true, value_name = "TEXT")]
        text: Vec<String>,
    },
    /// End the running turn, as Ctrl+C does
    Interrupt(SessionArg),
    /// End the session after the turn that runs
    Stop(SessionArg),
    /// Wait until all that was sent before is done
    Wait {
        /// Which session.
        #[command(flatten)]
        session: SessionArg,
        /// Give up after this many seconds (exit 124)
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        timeout: Option<u64>,
    },
    /// Follow a session's events
    Watch {
        /// Which session.
        #[command(flatten)]
        session: SessionArg,
        /// Show what is there already, too
        #[arg(long)]
        from_start: bool,
        /// human or stream-json
        #[arg(long, value_name = "FORMAT", value_enum, default_value = "human")]
        output_format: WatchFormat,
    },
    /// Show what a session is doing
    Status {
        /// Which session.
        #[command(flatten)]
        session: SessionArg,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show tokens and dollars by kind and model
    Cost(CostArgs),
    /// Compact a session that nobody runs (takes the agent's options for the model)
    Compact(Box<CompactArgs>),
    /// List the sessions of this directory
    Sessions {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Print the path of a session's file
    Path {
        /// Which session.
        #[command(flatten)]
        session: SessionArg,
        /// Which file
        #[arg(value_enum, default_value = "dir")]
        what: PathOf,
    },
    /// Print a readable transcript
    Export {
        /// Which session.
        #[command(flatten)]
        session: SessionArg,
        /// md, html or json
        #[arg(long, value_enum, default_value = "md")]
        format: ExportFormat,
    },
    /// Print completions for a shell
    Completions {
        /// bash, zsh, fish, elvish, powershell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
    /// The agent's parts as filters
    #[command(subcommand, version, arg_required_else_help = false)]
    Core(super::core::Core),
}

/// `cost`.
#[derive(Args, Debug)]
pub struct CostArgs {
    /// Which session.
    #[command(flatten)]
    pub session: SessionArg,
    /// All sessions of this directory
    #[arg(long, conflicts_with = "session")]
    pub project: bool,
    /// All sessions of all directories
    #[arg(long, conflicts_with_all = ["session", "project"])]
    pub all: bool,
    /// As one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `compact`. What it refuses is not shown.
#[derive(Args, Debug)]
#[command(mut_args(|arg| match arg.get_id().as_str() {
    "prompt" | "image" | "fork" | "stay" | "interactive" | "list_sessions" | "record" => arg.hide(true),
    _ => arg,
}))]
pub struct CompactArgs {
    /// The agent's options.
    #[command(flatten)]
    pub agent: AgentArgs,
}

/// `send`.
#[derive(Args, Debug)]
pub struct SendArgs {
    /// Which session.
    #[command(flatten)]
    pub session: SessionArg,
    /// Wait for the turn that it starts and print its final text
    #[arg(long)]
    pub wait: bool,
    /// With --wait: give up after this many seconds (exit 124)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<u64>,
    /// A name for this input: sent twice, it runs once
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// The input; `-` reads it from stdin
    #[arg(required = true, value_name = "TEXT")]
    pub text: Vec<String>,
}

/// What `watch` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WatchFormat {
    /// As a person sees a session.
    Human,
    /// The event lines.
    StreamJson,
}

/// What `path` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathOf {
    /// The session directory.
    Dir,
    /// input.fifo.
    Input,
    /// notify.fifo.
    Notify,
    /// events.jsonl.
    Events,
    /// conversation.jsonl.
    Conversation,
    /// stats.json.
    Stats,
}

/// How `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Markdown.
    Md,
    /// One self-contained page.
    Html,
    /// One JSON array.
    Json,
}

impl CommandArgs {
    /// Whether `word` is a command when it is the first argument.
    pub fn is_command(word: &str) -> bool {
        Command::has_subcommand(word)
    }
}

/// The whole command line, for completions and the manual page: the agent's flags and the command words.
pub fn whole() -> clap::Command {
    AgentArgs::command().subcommands(CommandArgs::command().get_subcommands().cloned())
}

/// A size: digits, then optionally k, m or g for thousands, millions, thousand millions.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: give a number above 0, such as 16384, 200k or 1m");
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 1_000),
        Some(b'm') => (&lower[..lower.len() - 1], 1_000_000),
        Some(b'g') => (&lower[..lower.len() - 1], 1_000_000_000),
        _ => (lower.as_str(), 1),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|n| *n > 0).ok_or_else(wrong)
}

/// A number of seconds, at least 1.
pub fn seconds(text: &str) -> Result<u64, String> {
    positive(text).ok_or_else(|| format!("'{text}' is no number of seconds: give a whole number above 0"))
}

/// An amount of dollars above 0.
pub fn dollars(text: &str) -> Result<f64, String> {
    let value = text.strip_prefix('$').unwrap_or(text).parse::<f64>().ok();
    value
        .filter(|value| value.is_finite() && *value > 0.0)
        .ok_or_else(|| format!("'{text}' is no amount: give dollars above 0, such as 0.50"))
}

/// A count, at least 1.
pub fn count(text: &str) -> Result<u64, String> {
    positive(text).ok_or_else(|| format!("'{text}' is no count: give a whole number above 0"))
}

fn positive(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        whole().debug_assert();
        CommandArgs::command().debug_assert();
    }

    #[test]
    fn sizes_take_thousands() {
        for (text, value) in [("16384", 16384), ("200k", 200_000), ("1M", 1_000_000), ("2g", 2_000_000_000)] {
            assert_eq!(size(text), Ok(value), "{text}");
        }
        for text in ["", "k", "-1", "0", "1.5k", "12q", "99999999999999999999", "99999999999999999g"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn session_takes_a_name_only_when_the_next_word_is_none_of_the_flags() {
        let args = AgentArgs::parse_from(["bash-agent", "--session", "--print", "hi"]);
        assert_eq!(args.session, Some(None));
        let args = AgentArgs::parse_from(["bash-agent", "--session", "work", "hi"]);
        assert_eq!((args.session, args.prompt), (Some(Some("work".into())), vec!["hi".to_owned()]));
    }
}
