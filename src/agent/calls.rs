//! The calls of one response: run, shown, and stored as one line of results (CONTRACT §7, step 2).

use std::sync::Arc;
use std::time::Duration;

use super::compact::{Outcome, Trigger};
use super::response::Call;
use super::{Agent, prompt};
use crate::policy::Confinement;
use crate::runtime::inbox::Event as Happening;
use crate::session::conversation::{self, ToolResult};
use crate::session::{StorageError, plan};
use crate::tools;

/// How long an interrupted tool may take to end before it is left behind. It ends itself within 100 ms (CONTRACT §7);
/// this is for a busy machine, so that what it printed is not lost.
const TOOL_LET_GO: Duration = Duration::from_secs(2);

/// Said once a run, where nothing confines commands.
const UNCONFINED: &str = "commands are not confined: this system has neither Landlock nor bubblewrap; they are only judged beforehand (--require-sandbox runs none)";

impl Agent {
    /// Runs the calls of one response: neighbours that only read side by side, the others one by one.
    pub(super) fn run_tools(&mut self, calls: &[Call]) -> Result<(), StorageError> {
        for call in calls {
            self.recorder.tool_call(&call.name, &call.id, &call.input)?;
        }
        let mut outputs: Vec<tools::Output> = Vec::with_capacity(calls.len());
        while outputs.len() < calls.len() {
            let rest = &calls[outputs.len()..];
            let beside = rest.iter().take_while(|call| tools::runs_beside_others(&call.name)).count();
            let batch = &rest[..beside.max(1)];
            for (call, output) in batch.iter().zip(self.run_batch(batch)?) {
                self.recorder.tool_result(&call.id, &call.name, &output.shown, output.todo.clone())?;
                outputs.push(output);
            }
        }
        let results: Vec<ToolResult> = calls
            .iter()
            .zip(outputs)
            .map(|(call, output)| ToolResult {
                id: call.id.clone(),
                content: output.content,
                is_error: output.is_error,
            })
            .collect();
        self.session.conversation.append_line(&conversation::tool_results_line(&results))
    }

    fn run_batch(&mut self, batch: &[Call]) -> Result<Vec<tools::Output>, StorageError> {
        let mut outputs = self.run_beside(batch, &Arc::clone(&self.tools))?;
        for (call, output) in batch.iter().zip(&mut outputs) {
            let Some(required) = output.refused else { continue };
            if let Some(mode) = self.approved(call, required)? {
                let wider = Arc::new(tools::Context { mode, ..(*self.tools).clone() });
                if let Some(done) = self.run_beside(std::slice::from_ref(call), &wider)?.pop() {
                    *output = done;
                }
            }
        }
        Ok(outputs)
    }

    /// Runs calls side by side to the end of the last one.
    fn run_beside(
        &mut self,
        batch: &[Call],
        context: &Arc<tools::Context>,
    ) -> Result<Vec<tools::Output>, StorageError> {
        self.call += 1;
        let number = self.call;
        let mut outputs: Vec<Option<tools::Output>> = vec![None; batch.len()];
        for (index, call) in batch.iter().enumerate() {
            outputs[index] = self.start_tool(number, index, call, context)?;
        }
        while outputs.iter().any(Option::is_none) {
            match self.next_in_turn(TOOL_LET_GO) {
                Some(Happening::Tool { call, index, output }) if call == number => {
                    outputs[index] = Some(output)
                }
                Some(other) => self.aside(other)?,
                None => break,
            }
        }
        Ok(outputs.into_iter().map(|output| output.unwrap_or_else(tools::Output::interrupted)).collect())
    }

    /// Starts one call on a thread of its own; a call that is the agent's own matter is answered at once.
    fn start_tool(
        &mut self,
        number: u64,
        index: usize,
        call: &Call,
        context: &Arc<tools::Context>,
    ) -> Result<Option<tools::Output>, StorageError> {
        if self.is_cancelled() {
            return Ok(Some(tools::Output::interrupted()));
        }
        if let Some(output) = self.own_tool(call, context)? {
            return Ok(Some(output));
        }
        let Some(cancel) = self.cancel.clone() else { return Ok(Some(tools::Output::interrupted())) };
        self.warn_unconfined(call);
        let (context, sender, call) = (Arc::clone(context), self.inbox.sender(), call.clone());
        let run = move || {
            let call = tools::Call { id: &call.id, name: &call.name, input: &call.input };
            let output = tools::run(&context, &call, &cancel);
            // Nobody listens any more when this fails.
            let _ = sender.send(Happening::Tool { call: number, index, output });
        };
        self.spawn("tool", run)?;
        Ok(None)
    }

    /// Says once when commands run free though they should not.
    pub(super) fn warn_unconfined(&mut self, call: &Call) {
        if call.name == "Bash"
            && self.tools.confinement == Confinement::WherePossible
            && !self.tools.confinement.holds()
        {
            self.say_once(UNCONFINED);
        }
    }

    /// Calls that are about the session itself, and those that cannot run at all.
    fn own_tool(
        &mut self,
        call: &Call,
        context: &Arc<tools::Context>,
    ) -> Result<Option<tools::Output>, StorageError> {
        if let Some(raw) = &call.broken_input {
            return Ok(Some(tools::Output::error(&broken_input(&call.name, raw))));
        }
        Ok(match call.name.as_str() {
            "PlanConfirm" => Some(self.confirm_plan()?),
            "PlanClear" => {
                if self.compact(Trigger::PlanClear)? == Outcome::Interrupted {
                    return Ok(Some(tools::Output::interrupted()));
                }
                plan::clear(&self.session.dir)?;
                Some(tools::Output::plain("Plan cleared."))
            }
            "SubAgent" => Some(self.sub_agent(&call.input)?),
            "Bash" => self.background_command(call, context)?,
            _ => None,
        })
    }

    /// Compacts first, then moves the draft (CONTRACT §2, §11).
    fn confirm_plan(&mut self) -> Result<tools::Output, StorageError> {
        if !plan::has_draft(&self.session.dir)? {
            return Ok(tools::Output::error("no plan draft found to confirm."));
        }
        if self.compact(Trigger::PlanConfirm)? == Outcome::Interrupted {
            return Ok(tools::Output::interrupted());
        }
        Ok(if plan::confirm(&self.session.dir)? {
            tools::Output::plain("Plan confirmed and locked in.")
        } else {
            tools::Output::error("no plan draft found to confirm.")
        })
    }
}

/// Tells the model what was wrong with the call it made, and what is right.
fn broken_input(name: &str, raw: &str) -> String {
    let schema = tool_schema(name).map(|schema| format!(" It must match: {schema}")).unwrap_or_default();
    format!(
        "the input of {name} was not a valid JSON object, so nothing ran.{schema}\nWhat was received: {raw}"
    )
}

/// The schema of a tool, as in tools.json.
fn tool_schema(name: &str) -> Option<String> {
    let all: Vec<serde_json::Value> = serde_json::from_str(prompt::TOOLS).ok()?;
    let tool = all.into_iter().find(|tool| tool["name"] == name)?;
    Some(tool["input_schema"].to_string())
}
