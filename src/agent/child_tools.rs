//! SubAgent and Bash with `background`: the calls that start something and return at once (CONTRACT §7, §11).

use std::sync::Arc;
use std::time::Duration;

use super::Agent;
use super::children::SubAgent;
use super::response::Call;
use crate::session::events::Event;
use crate::session::time::{self, Timestamp};
use crate::session::{self, StorageError};
use crate::tools::{self, Output};

impl Agent {
    /// The SubAgent tool.
    pub(super) fn sub_agent(&mut self, input: &str) -> Result<Output, StorageError> {
        if self.settings.is_child {
            return Ok(Output::error(
                "sub-agent recursion limit reached; child agents cannot launch SubAgent",
            ));
        }
        let input: serde_json::Value = serde_json::from_str(input).unwrap_or_default();
        let Some(prompt) = input["prompt"].as_str().filter(|prompt| !prompt.trim().is_empty()) else {
            return Ok(Output::error("no prompt provided"));
        };
        let dir = match session::new_child(&self.session.dir) {
            Ok(dir) => dir,
            Err(error) => return Ok(Output::error(&error.to_string())),
        };
        let id = dir.name();
        let child = SubAgent {
            dir,
            prompt: prompt.to_owned(),
            description: input["description"].as_str().unwrap_or_default().to_owned(),
            fork: input["fork"].as_bool().unwrap_or(false),
            budget: self.budget_flags(),
        };
        if child.fork
            && let Err(error) = session::copy_to(&self.session.dir, &child.dir)
        {
            return Ok(Output::error(&format!("the conversation could not be copied: {error}")));
        }
        self.open_children.insert(id.clone());
        if !self.children.admit(self.totals.turns, &child)? {
            return Ok(Output::plain(format!("Sub-agent queued: session_id={id}")));
        }
        // Its event comes first: it may answer at once.
        self.child_started(&child)?;
        match self.children.start(self.totals.turns, child)? {
            0 => Ok(Output::error(&format!("sub-agent {id} could not be started"))),
            pid => Ok(Output::plain(format!("Sub-agent started: session_id={id}, pid={pid}"))),
        }
    }

    /// Bash with `background: true`; `None` when the call is an ordinary one.
    pub(super) fn background_command(
        &mut self,
        call: &Call,
        tools: &Arc<tools::Context>,
    ) -> Result<Option<Output>, StorageError> {
        let input: serde_json::Value = serde_json::from_str(&call.input).unwrap_or_default();
        if input["background"].as_bool() != Some(true) {
            return Ok(None);
        }
        let Some(command) = input["command"].as_str().filter(|command| !command.trim().is_empty()) else {
            return Ok(Some(Output::error("no command provided")));
        };
        if let Err(refusal) = tools::judge_command(tools, command) {
            return Ok(Some(Output::refusal(&refusal)));
        }
        self.warn_unconfined(call);
        let timeout = input["timeout"]
            .as_f64()
            .filter(|seconds| *seconds > 0.0)
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map_or(self.tools.timeout, |timeout| timeout.min(self.tools.timeout));
        let id = loop {
            let id = format!("task_{}", time::new_id());
            if self.open_children.insert(id.clone()) {
                break id;
            }
        };
        let tools = Arc::clone(tools);
        let pid = self.children.start_task(self.totals.turns, &id, command.to_owned(), timeout, tools)?;
        Ok(Some(Output::plain(format!("Async task started: task_id={id}, pid={pid}"))))
    }

    /// A waiter is done: the next child that waits can start.
    pub(super) fn child_ended(&mut self, id: &str) -> Result<(), StorageError> {
        self.children.ended(id);
        while let Some((turn, child)) = self.children.next_waiting() {
            self.child_started(&child)?;
            self.recorder.display().child_started(&child.dir.name(), &child.description);
            self.children.start(turn, child)?;
        }
        Ok(())
    }

    fn child_started(&mut self, child: &SubAgent) -> Result<(), StorageError> {
        let id = child.dir.name();
        let event = Event::SubAgentStart {
            session_id: &id,
            timestamp: Timestamp::now(),
            prompt: &child.prompt,
            description: &child.description,
            fork: child.fork,
        };
        self.recorder.event(&event)
    }

    /// Ends all children and tasks and waits, a little longer than their grace, until their results are taken in.
    pub(super) fn end_children(&mut self) -> Result<(), StorageError> {
        if !self.children.any() {
            return Ok(());
        }
        self.children.end_all();
        let deadline = std::time::Instant::now() + super::children::GRACE + Duration::from_secs(1);
        let mut done = Ok(());
        while done.is_ok() && !self.open_children.is_empty() {
            let Some(happening) = self.inbox.next_until(deadline) else { break };
            done = self.aside(happening);
        }
        self.children.kill_all();
        done
    }
}
