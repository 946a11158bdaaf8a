//! The commands that drive or look at a session from outside (DESIGN "Commands"). They need no key and never block
//! for ever; a session that nobody runs is exit 3 with a sentence.

mod cost;
mod export;
mod follow;
mod send;
mod status;
mod watch;

pub(super) use export::export_to;
use std::path::PathBuf;
use std::time::Duration;

use super::args::{Command, PathOf, SessionArg};
use crate::config::{ConfigError, base_of};
use crate::exit::Exit;
use crate::runtime::fifo::{self, SendError};
use crate::session::paths::{Base, SessionDir};
use crate::session::{self, SessionError, StorageError, listing, lock};
use crate::ui::out;
use crate::wire::message::{Channel, Message};

/// How long a running agent may take to take a message in.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a command fails.
#[derive(Debug, thiserror::Error)]
enum ControlError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("no agent runs session {0}: start one with `bash-agent --stay --session {0}`")]
    NotRunning(String),
    #[error(
        "no agent runs in this directory: start one with `bash-agent --stay`, or name a session with --session"
    )]
    NoneRunning,
    #[error("the agent of session {0} ended before it was done")]
    Ended(String),
    #[error("the turn of input {0:?} was broken off when its agent ended: send it with another --id")]
    BrokenOff(String),
    #[error("gave up after {0} s")]
    Timeout(u64),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Send(SendError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl ControlError {
    fn exit(&self) -> Exit {
        match self {
            Self::Config(error) => error.exit(),
            Self::Session(error) => error.exit(),
            Self::Storage(_) => Exit::Storage,
            Self::NotRunning(_) | Self::NoneRunning | Self::Ended(_) | Self::BrokenOff(_) => Exit::NoSession,
            Self::Timeout(_) => Exit::Timeout,
            Self::Usage(_) => Exit::Usage,
            Self::Send(_) | Self::Io(_) => Exit::Failed,
        }
    }
}

/// Does one command; returns the exit code.
pub fn run(command: Command) -> u8 {
    match dispatch(command) {
        Ok(code) => code,
        Err(error) => {
            out::complain(&error.to_string());
            error.exit().code()
        }
    }
}

/// `status` of a session, for its own terminal.
pub(super) fn status_text(base: &Base, dir: &SessionDir) -> Result<String, String> {
    status::text(base, dir).map_err(|error| error.to_string())
}

/// `cost` of a session, for its own terminal.
pub(super) fn cost_text(base: &Base, dir: &SessionDir) -> Result<String, String> {
    cost::text(base, dir).map_err(|error| error.to_string())
}

fn dispatch(command: Command) -> Result<u8, ControlError> {
    let place = Place::here()?;
    match command {
        Command::Send(args) => send::send(&place, &args),
        Command::Notify { session, text } => {
            let dir = place.running(&session)?;
            let text = text_of(&text)?;
            send_message(&dir, &dir.notify_fifo(), Channel::Notify, &Message::UserNotify { text })
        }
        Command::Interrupt(session) => {
            let dir = place.running(&session)?;
            send_message(&dir, &dir.input_fifo(), Channel::Input, &Message::Interrupt)
        }
        Command::Stop(session) => {
            let dir = place.running(&session)?;
            send_message(&dir, &dir.input_fifo(), Channel::Input, &Message::SessionEnd { code: None })
        }
        Command::Wait { session, timeout } => send::wait(&place.running(&session)?, timeout),
        Command::Watch { session, from_start, output_format } => {
            watch::watch(&place.any(&session)?, from_start, output_format)
        }
        Command::Status { session, json } => status::status(&place.base, &place.any(&session)?, json),
        Command::Cost(args) => cost::cost(&place, &args),
        Command::Sessions { json } => place.sessions(json),
        Command::Path { session, what } => {
            let path = path_of(&place.any(&session)?, what);
            Ok(super::print(format!("{}\n", path.display()).as_bytes()))
        }
        Command::Export { session, format } => export::export(&place.any(&session)?, format),
        // Those of no session are done before this (cli/mod.rs).
        Command::Completions { .. } | Command::Man | Command::Core(_) | Command::Compact(_) => {
            Ok(Exit::Ok.code())
        }
    }
}

/// Where sessions are looked for.
struct Place {
    base: Base,
    cwd: PathBuf,
}

impl Place {
    fn here() -> Result<Self, ControlError> {
        let base = base_of(&|name: &str| std::env::var_os(name))?;
        let cwd = std::env::current_dir().map_err(ConfigError::Cwd)?;
        Ok(Self { base, cwd })
    }

    /// The session named, else the newest running one of this directory. It need not run any more when named.
    fn running(&self, session: &SessionArg) -> Result<SessionDir, ControlError> {
        match &session.session {
            Some(name) => Ok(session::find(&self.base, &self.cwd, Some(name))?),
            None => listing::newest_running(&self.base, &self.cwd)?.ok_or(ControlError::NoneRunning),
        }
    }

    /// The session named, else the newest running one, else the newest.
    fn any(&self, session: &SessionArg) -> Result<SessionDir, ControlError> {
        if let Some(name) = &session.session {
            return Ok(session::find(&self.base, &self.cwd, Some(name))?);
        }
        match listing::newest_running(&self.base, &self.cwd)? {
            Some(dir) => Ok(dir),
            None => Ok(session::find(&self.base, &self.cwd, None)?),
        }
    }

    fn sessions(&self, json: bool) -> Result<u8, ControlError> {
        let entries = listing::list(&self.base, &self.cwd)?;
        let text = if json {
            listing::ndjson(&entries, &self.base.project(&self.cwd))
        } else {
            listing::table(&entries)
        };
        Ok(super::print(text.as_bytes()))
    }
}

fn path_of(dir: &SessionDir, what: PathOf) -> PathBuf {
    match what {
        PathOf::Dir => dir.path().to_owned(),
        PathOf::Input => dir.input_fifo(),
        PathOf::Notify => dir.notify_fifo(),
        PathOf::Events => dir.events(),
        PathOf::Conversation => dir.conversation(),
        PathOf::Stats => dir.stats(),
    }
}

/// The words joined by blanks; `-` alone is stdin, without its last line feeds.
fn text_of(words: &[String]) -> Result<String, ControlError> {
    let text = if words == ["-"] {
        super::stdin_text()?.ok_or_else(|| {
            ControlError::Usage("stdin is over 64 MiB: name the file in the text instead".to_owned())
        })?
    } else {
        words.join(" ")
    };
    if text.trim().is_empty() {
        return Err(ControlError::Usage("the text is empty: give some, or `-` and pipe it in".to_owned()));
    }
    Ok(text)
}

fn send_message(
    dir: &SessionDir,
    fifo: &std::path::Path,
    channel: Channel,
    message: &Message,
) -> Result<u8, ControlError> {
    let mut frame = Vec::new();
    message.encode(channel, &mut frame);
    send_bytes(dir, fifo, &frame, PATIENCE)?;
    Ok(Exit::Ok.code())
}

/// Writes into a FIFO of the session, within `patience`. An owner that has no FIFO (yet) counts as none.
fn send_bytes(
    dir: &SessionDir,
    fifo: &std::path::Path,
    bytes: &[u8],
    patience: Duration,
) -> Result<(), ControlError> {
    match fifo::send(fifo, bytes, patience) {
        Ok(()) => Ok(()),
        Err(SendError::NobodyThere(_)) => Err(ControlError::NotRunning(dir.name())),
        Err(error) => Err(ControlError::Send(error)),
    }
}

/// The pid of the session's owner, if it has one.
fn owner(dir: &SessionDir) -> Option<u32> {
    lock::probe(dir)
}
