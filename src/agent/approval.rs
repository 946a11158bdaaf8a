//! A refusal turned into a question (CONTRACT §12, `--ask`): an `approval_request` event, and whoever answers first,
//! at the terminal or on input.fifo, decides. No answer in time is no.

use std::time::{Duration, Instant};

use super::Agent;
use super::response::Call;
use crate::policy::Mode;
use crate::runtime::inbox::{Event as Happening, Typed};
use crate::session::StorageError;
use crate::session::events::Event;
use crate::session::time;
use crate::tools;
use crate::wire::inbox::Item;

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The name that an answer on input.fifo must carry.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The call's input, a raw JSON object.
    pub input: String,
    /// The bits that the call needs.
    pub required: Mode,
    /// The mode that there is.
    pub allowed: Mode,
    /// Which part of the call needs what.
    pub why: String,
    /// No answer after this long is no.
    pub timeout: Duration,
}

/// What is said when an answer is none.
const ANSWERS: &str = "answer y (once), s (session) or n (no)";

/// Asks the person at a terminal for one line, which arrives in the inbox as `Answered`.
pub trait Answerer {
    /// Called once for each line.
    fn ask(&mut self);
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The refusal stands.
    No,
    /// This call may run.
    Once,
    /// The mode is this much wider from now on, until the run ends.
    Session,
}

impl Approval {
    /// The question in lines. A command is shown whole: what is approved must be seen.
    #[must_use]
    pub fn question(&self, at_terminal: bool) -> String {
        let command = serde_json::from_str::<serde_json::Value>(&self.input)
            .ok()
            .and_then(|input| input["command"].as_str().map(str::to_owned));
        let mut text = format!(
            "[approval] {} needs {}, and the mode is {}: {}\n",
            self.name, self.required, self.allowed, self.why
        );
        for line in command.iter().flat_map(|command| command.lines()) {
            text.push_str(&format!("  | {line}\n"));
        }
        let seconds = self.timeout.as_secs();
        text.push_str(&match at_terminal {
            true => format!(
                "y = this once, s = from now on (mode {}), n = no; without an answer in {seconds} s: no\n",
                self.allowed.union(self.required)
            ),
            false => format!(
                "answer within {seconds} s on input.fifo: {{\"type\":\"approval\",\"id\":\"{}\",\"allow\":true|false|\"session\"}}\n",
                self.id
            ),
        });
        text
    }
}

impl Answer {
    /// What was typed (y, n, s and their words), or what `allow` held; `None` when it is none of these.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "n" | "no" | "false" => Some(Self::No),
            "y" | "yes" | "true" => Some(Self::Once),
            "s" | "session" => Some(Self::Session),
            _ => None,
        }
    }

    /// The value of `allow` in JSON.
    const fn json(self) -> &'static str {
        match self {
            Self::No => "false",
            Self::Once => "true",
            Self::Session => "\"session\"",
        }
    }
}

/// Whether a typed line answers a question.
pub fn is_answer(line: &str) -> bool {
    Answer::parse(line).is_some()
}

impl Agent {
    /// The mode that a refused call may run with, when somebody says so.
    pub(super) fn approved(&mut self, call: &Call, required: Mode) -> Result<Option<Mode>, StorageError> {
        let Some(timeout) = self.settings.ask else { return Ok(None) };
        let allowed = self.tools.mode;
        // The answer to a call before this one may have been for it too.
        if allowed.allows(required) {
            return Ok(Some(allowed));
        }
        let approval = Approval {
            id: format!("approval_{}", time::new_id()),
            name: call.name.clone(),
            input: call.input.clone(),
            required,
            allowed,
            why: tools::reasons(&self.tools, &call.name, &call.input),
            timeout,
        };
        let answer = self.ask_approval(&approval, &call.id)?;
        let wider = allowed.union(required);
        if answer == Answer::Session {
            std::sync::Arc::make_mut(&mut self.tools).mode = wider;
        }
        Ok((answer != Answer::No).then_some(wider))
    }

    fn ask_approval(&mut self, approval: &Approval, tool_use_id: &str) -> Result<Answer, StorageError> {
        let deadline = Instant::now() + approval.timeout;
        let (required, allowed) = (approval.required.to_string(), approval.allowed.to_string());
        self.recorder.event(&Event::ApprovalRequest {
            id: &approval.id,
            tool_use_id,
            name: &approval.name,
            input: &approval.input,
            required: &required,
            allowed: &allowed,
            why: &approval.why,
        })?;
        let at_terminal = self.attended || self.answerer.is_some();
        self.recorder.display().approval(approval, at_terminal);
        let (answer, by) = loop {
            if self.is_cancelled() {
                break (Answer::No, "interrupt");
            }
            self.open_answer();
            let until = self.deadline.map_or(deadline, |end| end.min(deadline));
            let Some(happening) = self.inbox.next_until(until) else {
                if self.deadline.is_some_and(|end| Instant::now() >= end) {
                    self.inbox.running().interrupt();
                }
                break (Answer::No, "timeout");
            };
            match happening {
                Happening::Input(Item::Approval { id, allow }) if id == approval.id => {
                    match Answer::parse(&allow) {
                        Some(answer) => break (answer, "input.fifo"),
                        None => self.recorder.error(&format!(
                            "approval '{id}' has \"allow\" {allow}: give true, false or \"session\""
                        ))?,
                    }
                }
                Happening::Answered(line) => {
                    self.answer_open = false;
                    match Answer::parse(&line) {
                        Some(answer) => break (answer, "terminal"),
                        None => self.recorder.display().notice(ANSWERS),
                    }
                }
                Happening::Typed(Typed::Line(line)) => match Answer::parse(&line) {
                    Some(answer) => {
                        self.recorder.display().typed();
                        break (answer, "terminal");
                    }
                    // Typed ahead, perhaps: it is not lost.
                    None => {
                        self.recorder.display().notice(&format!("{ANSWERS}; this line is your next input"));
                        self.typed(Typed::Line(line))?;
                    }
                },
                Happening::Typed(end @ (Typed::End | Typed::Leave)) => {
                    self.typed(end)?;
                    break (Answer::No, "terminal");
                }
                other => self.aside(other)?,
            }
        };
        self.recorder.event(&Event::Approval { id: &approval.id, allow: answer.json(), by })?;
        Ok(answer)
    }

    /// Asks for an answer, unless that is under way or a person types lines anyway.
    fn open_answer(&mut self) {
        if let Some(answerer) = self.answerer.as_mut().filter(|_| !self.attended && !self.answer_open) {
            answerer.ask();
            self.answer_open = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_few_words_and_nothing_else_counts() {
        for (text, answer) in [
            ("y", Some(Answer::Once)),
            (" YES ", Some(Answer::Once)),
            ("true", Some(Answer::Once)),
            ("n", Some(Answer::No)),
            ("false", Some(Answer::No)),
            ("session", Some(Answer::Session)),
            ("", None),
            ("always", None),
            ("yes please", None),
        ] {
            assert_eq!(Answer::parse(text), answer, "{text}");
        }
    }
}
