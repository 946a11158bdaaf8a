//! What a person asks of the agent itself at a terminal: `/commands`. The agent queues them like input; what they do is
//! known above (`Console`), with the handles given here.

use std::sync::Arc;

use super::children::Launch;
use super::compact::{Outcome, Trigger};
use super::{Agent, Display, TurnEnd, Work};
use crate::exit::Exit;
use crate::model::{Model, Provider};
use crate::policy::Mode;
use crate::session::StorageError;
use crate::session::paths::SessionDir;

/// Carries out commands.
pub trait Console {
    /// Whether the command may be done while a turn runs, because it changes nothing.
    fn is_harmless(&self, line: &str) -> bool;
    /// Does it. What the person did wrong is told them; only the session's own files are a reason to fail.
    fn run(&mut self, line: &str, agent: &mut Agent) -> Result<(), StorageError>;
}

/// The session that a terminal goes on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A new one.
    New,
    /// A copy of this one.
    Fork,
    /// This one.
    Session(String),
}

/// How a terminal goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Onward {
    /// With which session.
    pub next: Next,
    /// The session that ended.
    pub from: String,
    /// What is left of the budget, as flags.
    pub budget: Vec<String>,
}

/// Another model for the turns to come.
pub struct Engine {
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// Which API it speaks.
    pub provider: Provider,
    /// Its name, for stats and events.
    pub name: String,
}

/// Whether a typed line is a command: a slash and a word. `/etc/hosts is odd` is none.
pub fn is_command(line: &str) -> bool {
    let word = line.trim().split(char::is_whitespace).next().unwrap_or_default();
    word.strip_prefix('/').is_some_and(|name| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'?')
    })
}

impl Agent {
    /// A command was typed.
    pub(super) fn command(&mut self, line: String) -> Result<(), StorageError> {
        match &self.console {
            Some(console) if console.is_harmless(&line) => self.run_command(&line),
            _ => {
                self.queue_work(Work::Command(line));
                Ok(())
            }
        }
    }

    pub(super) fn run_command(&mut self, line: &str) -> Result<(), StorageError> {
        let Some(mut console) = self.console.take() else { return Ok(()) };
        let done = console.run(line, self);
        self.console = Some(console);
        done
    }

    /// Who watches.
    pub fn display(&mut self) -> &mut dyn Display {
        self.recorder.display()
    }

    /// The session's files.
    pub fn session_dir(&self) -> &SessionDir {
        &self.session.dir
    }

    /// Compacts as far as there is something to drop; Ctrl+C ends it.
    pub fn compact_by_hand(&mut self) -> Result<(), StorageError> {
        self.display().turn_begins(None);
        let outcome = self.turnless(|agent| agent.compact(Trigger::Manual))?;
        self.display().turn_ended(&TurnEnd::without_answer("", Exit::Ok, None));
        match outcome {
            Outcome::Nothing => self.display().notice("there is nothing to compact"),
            Outcome::Interrupted => self.display().notice("interrupted: the session is as it was"),
            Outcome::Done | Outcome::Failed(_) => {}
        }
        Ok(())
    }

    /// The turns to come are answered by this, and sub-agents started so.
    pub fn set_engine(&mut self, engine: Engine, launch: Launch) {
        self.display().model_changed(&engine.name);
        self.model = engine.model;
        self.settings.provider = engine.provider;
        self.settings.model_name = engine.name;
        self.children.set_launch(launch);
    }

    /// What tools may do from now on.
    pub fn set_mode(&mut self, mode: Mode, launch: Launch) {
        let mut tools = (*self.tools).clone();
        tools.mode = mode;
        self.tools = Arc::new(tools);
        self.children.set_launch(launch);
    }

    /// Puts a skill's text into the prompt; whether it was not there yet.
    pub fn select_skill(&mut self, name: &str) -> bool {
        let is_new = !self.settings.selected_skills.iter().any(|selected| selected == name);
        if is_new {
            self.settings.selected_skills.push(name.to_owned());
        }
        is_new
    }

    /// How the terminal goes on, when a command asked for that.
    pub(super) fn onward(&mut self) -> Option<Onward> {
        let next = self.next.take()?;
        Some(Onward { next, from: self.session.dir.name(), budget: self.budget_flags() })
    }

    /// Ends this run; the terminal goes on with another session.
    pub fn move_on(&mut self, next: Next) {
        self.next = Some(next);
        self.queue.push_front(Work::End(None));
    }

    /// Ends the session.
    pub fn end(&mut self) {
        self.queue_work(Work::End(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_no_command() {
        for line in ["/help", " /cost ", "/model x", "/?"] {
            assert!(is_command(line), "{line}");
        }
        for line in ["/etc/hosts is odd", "/", "//", "a /help", "/ x"] {
            assert!(!is_command(line), "{line}");
        }
    }
}
