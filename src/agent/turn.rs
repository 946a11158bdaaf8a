//! A turn, step by step as CONTRACT §7 has it.

use super::ask::Asked;
use super::compact::{Outcome, Trigger};
use super::limits::Reached;
use super::response::{Call, Response};
use super::{Agent, TurnEnd, Work};
use crate::exit::Exit;
use crate::model::ModelError;
use crate::runtime::cancel::Cancel;
use crate::runtime::inbox::Event as Happening;
use crate::runtime::notify::Noticed;
use crate::session::events::Event;
use crate::session::leave_out::Goal;
use crate::session::stats::{Stats, Update};
use crate::session::{StorageError, input, notify};
use crate::wire::message::Message;

/// What the model is told when its calls were cut off.
const CUT_OFF: &str = include_str!("../assets/prompt/cut-off.md");
/// What the model is told when the window was full in mid-answer.
const CONTEXT_FULL: &str = include_str!("../assets/prompt/context-full.md");

/// How often a turn asks again after calls that were cut off.
const MAX_CUT_OFFS: u32 = 2;

/// What starts a turn.
pub(super) enum Start {
    /// A user's input.
    User { content: String, id: Option<String>, file: Option<String> },
    /// notify.buf holds something.
    Notify,
}

impl Agent {
    /// Works on one turn until it has ended. Fails only when the session's own files cannot be written.
    pub(super) fn turn(&mut self, start: Start) -> Result<TurnEnd, StorageError> {
        let id = match &start {
            Start::User { id, .. } => id.clone(),
            Start::Notify => None,
        };
        self.begin(start)?;
        let worked = self.work();
        self.finish(worked, id.as_deref())
    }

    /// Step 1: the user line, the event, the count; the flag.
    fn begin(&mut self, start: Start) -> Result<(), StorageError> {
        // The first cancellation exists before anything of the turn is written: an interrupt is never lost.
        self.arm()?;
        if let Start::User { content, id, file } = &start {
            match id {
                Some(id) => self.take_once(content, id)?,
                None => self.session.conversation.append_user(content)?,
            }
            if let Some(Err(error)) = file.as_deref().map(|file| input::forget(&self.session.dir, file)) {
                self.recorder.display().notice(&error.to_string());
            }
            self.recorder.event(&Event::UserInput { content, id: id.as_deref() })?;
        }
        self.recorder.display().turn_begins(match &start {
            Start::User { content, .. } => Some(content),
            Start::Notify => None,
        });
        let stats = self.update_stats(&[Update::add("current_turn_count", 1)])?;
        self.session.raise_flag()?;
        self.totals.turns += 1;
        self.recorder.display().figures(true, &stats);
        Ok(())
    }

    /// The user line and its id belong together: what a crash leaves half done is finished at the next start.
    fn take_once(&mut self, content: &str, id: &str) -> Result<(), StorageError> {
        let dir = &self.session.dir;
        input::begin(dir, id, self.session.conversation.len())?;
        self.session.conversation.append_user(content)?;
        self.input_ids.insert(id)?;
        input::done(dir)
    }

    /// From now on an interrupt ends what runs.
    fn arm(&mut self) -> Result<(), StorageError> {
        let cancel = Cancel::new().map_err(StorageError::at("start a turn in", self.session.dir.path()))?;
        self.inbox.running().set(Some(cancel.clone()));
        self.recorder.set_cancel(Some(cancel.clone()));
        self.cancel = Some(cancel);
        Ok(())
    }

    fn disarm(&mut self) {
        self.inbox.running().set(None);
        self.recorder.set_cancel(None);
        self.cancel = None;
    }

    /// Does something that an interrupt can end, outside a turn.
    pub(super) fn turnless<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.arm()?;
        let done = work(self);
        self.disarm();
        done
    }

    /// Step 2: model calls and tools, until the model has nothing more to do.
    fn work(&mut self) -> Result<TurnEnd, StorageError> {
        let mut cut_offs = 0;
        for _ in 0..self.settings.max_turns {
            self.drain()?;
            if let Some(limit) = self.limit_reached() {
                return self.limited(limit);
            }
            if self.compact_if_due()? {
                return self.cancelled();
            }
            // A summary counts too.
            if let Some(limit) = self.limit_reached() {
                return self.limited(limit);
            }
            let response = match self.ask_mending()? {
                Asked::Complete(response) => response,
                Asked::Interrupted => return self.cancelled(),
                Asked::Failed(error) => return self.failed(&error),
            };
            let reason = response.stop.clone().unwrap_or_default();
            let text = response.text();
            if reason == "model_context_window_exceeded" {
                match self.make_room(response, &mut cut_offs)? {
                    Outcome::Done => continue,
                    Outcome::Interrupted => return self.cancelled(),
                    Outcome::Nothing | Outcome::Failed(_) => {}
                }
                let error = format!("Response truncated ({reason})");
                self.recorder.error(&error)?;
                return Ok(TurnEnd { reason, exit: Exit::ContextTooLong, text, error: Some(error) });
            }
            if self.was_cut_off(&response) {
                if self.keep_cut_off(response, &mut cut_offs)? {
                    continue;
                }
                let error = format!("Response truncated ({reason} reached)");
                self.recorder.error(&error)?;
                return Ok(TurnEnd { reason, exit: Exit::Failed, text, error: Some(error) });
            }
            if let Some(line) = response.line() {
                self.session.conversation.append_line(&line)?;
            }
            let calls: Vec<Call> = response.calls().cloned().collect();
            if !calls.is_empty() {
                self.run_tools(&calls)?;
                if self.is_cancelled() {
                    return self.cancelled();
                }
                continue;
            }
            if reason == "pause_turn" || self.drain()? {
                continue;
            }
            return self.ended(reason, text);
        }
        let message = format!("Max turns ({}) reached", self.settings.max_turns);
        self.limited(Reached { reason: "max_turns", message })
    }

    /// Step 3: the `stop` event, the flag; what arrived meanwhile starts a turn of its own (main loop).
    fn finish(
        &mut self,
        worked: Result<TurnEnd, StorageError>,
        id: Option<&str>,
    ) -> Result<TurnEnd, StorageError> {
        // Who hears that the turn has ended may rely on its input being on the disk.
        self.syncer.wait();
        let reason = worked.as_ref().map_or("error", |end| end.reason.as_str()).to_owned();
        let exit = worked.as_ref().map_or(Exit::Storage, |end| end.exit).code();
        let stop = Message::Stop { reason: reason.clone() };
        let written = self.recorder.show(&Event::Stop { reason: &reason, id, exit }, &stop);
        let lowered = self.session.lower_flag();
        self.disarm();
        self.sync();
        let end = worked?;
        written.and(lowered)?;
        let (stats, _) = Stats::load(&self.session.dir.stats())?;
        self.recorder.display().figures(false, &stats);
        self.recorder.display().turn_ended(&end);
        Ok(end)
    }

    fn ended(&mut self, reason: String, text: String) -> Result<TurnEnd, StorageError> {
        if !matches!(reason.as_str(), "refusal" | "content_filter") {
            return Ok(TurnEnd { reason, exit: Exit::Ok, text, error: None });
        }
        let error = format!("the model did not answer ({reason})");
        self.recorder.error(&error)?;
        Ok(TurnEnd { reason, exit: Exit::Refused, text, error: Some(error) })
    }

    /// The turn was cancelled: by the user, or because its time is over.
    fn cancelled(&mut self) -> Result<TurnEnd, StorageError> {
        match self.time_over() {
            Some(limit) if self.inbox.running().signal().is_none() => {
                self.children.end_turn(self.totals.turns);
                self.limited(limit)
            }
            _ => Ok(self.interrupted()),
        }
    }

    /// A limit of the user's ends the turn; the session can go on.
    fn limited(&mut self, limit: Reached) -> Result<TurnEnd, StorageError> {
        self.recorder.error(&limit.message)?;
        Ok(TurnEnd::without_answer(limit.reason, Exit::Limit, Some(limit.message)))
    }

    /// Also ends the children that this turn started.
    fn interrupted(&mut self) -> TurnEnd {
        self.children.end_turn(self.totals.turns);
        TurnEnd::without_answer(
            "interrupted",
            self.inbox.running().signal().unwrap_or(Exit::Interrupted),
            None,
        )
    }

    fn failed(&mut self, error: &ModelError) -> Result<TurnEnd, StorageError> {
        let text = error.to_string();
        self.recorder.error(&text)?;
        Ok(TurnEnd::without_answer("error", error.exit(), Some(text)))
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
    }

    /// Cut off by a limit: by the provider's word, or by its looks (a broken call that used every token allowed).
    fn was_cut_off(&self, response: &Response) -> bool {
        match response.stop.as_deref() {
            Some("max_tokens" | "length" | "max_output_tokens") => true,
            _ => {
                let at_limit =
                    response.usage.is_some_and(|(usage, _)| usage.output >= self.settings.max_tokens);
                at_limit && response.calls().any(|call| call.broken_input.is_some())
            }
        }
    }

    /// The window was full in mid-answer (PROVIDERS): keeps what was finished, makes room, and tells the model to go on.
    fn make_room(&mut self, response: Response, cut_offs: &mut u32) -> Result<Outcome, StorageError> {
        self.keep_finished(response)?;
        if *cut_offs == MAX_CUT_OFFS {
            return Ok(Outcome::Nothing);
        }
        *cut_offs += 1;
        let mut outcome = self.compact(Trigger::TooLong)?;
        if matches!(outcome, Outcome::Nothing | Outcome::Failed(_)) && self.leave_out_results(Goal::Half)? {
            outcome = Outcome::Done;
        }
        if outcome == Outcome::Done {
            self.session.conversation.append_user(CONTEXT_FULL.trim_end())?;
        }
        Ok(outcome)
    }

    /// Stores the finished text and thinking of a response that was cut off; returns how many calls were dropped.
    fn keep_finished(&mut self, mut response: Response) -> Result<usize, StorageError> {
        let dropped = response.drop_calls();
        response.drop_unfinished_thinking();
        if let Some(line) = response.line() {
            self.session.conversation.append_line(&line)?;
        }
        Ok(dropped)
    }

    /// Keeps what was finished. When calls were cut off the model is told so: returns whether to ask again.
    fn keep_cut_off(&mut self, response: Response, cut_offs: &mut u32) -> Result<bool, StorageError> {
        let dropped = self.keep_finished(response)?;
        if dropped == 0 || *cut_offs == MAX_CUT_OFFS {
            return Ok(false);
        }
        *cut_offs += 1;
        self.session.conversation.append_user(CUT_OFF.trim_end())?;
        Ok(true)
    }

    /// Puts what waits in notify.buf into the conversation, as one user line. Returns whether there was something.
    pub(super) fn drain(&mut self) -> Result<bool, StorageError> {
        let frames = notify::take(&self.session.dir)?;
        let (mut messages, problem) = frames.as_deref().map(notify::messages).unwrap_or_default();
        messages.extend_from_slice(&self.held);
        if let Some(problem) = problem {
            self.recorder.error(&problem)?;
        }
        let text = notify::user_text(&messages);
        if !text.is_empty() {
            self.session.conversation.append_user(&text)?;
        }
        notify::delivered(&self.session.dir, &std::mem::take(&mut self.held))?;
        if frames.is_some() {
            notify::drained(&self.session.dir)?;
        }
        for message in &messages {
            if let Message::UserNotify { text } = message {
                self.recorder.show(&Event::UserNotify { content: text }, message)?;
            }
        }
        Ok(!text.is_empty())
    }

    /// Something happened that the running turn does not wait for.
    pub(super) fn aside(&mut self, happening: Happening) -> Result<(), StorageError> {
        match happening {
            Happening::Input(item) => self.take_input(item),
            Happening::Noticed(noticed) => {
                self.noticed(noticed);
                Ok(())
            }
            Happening::ChildEnded { id } => self.child_ended(&id),
            Happening::Typed(typed) => self.typed(typed),
            Happening::Warning(text) => {
                self.recorder.display().notice(&text);
                Ok(())
            }
            Happening::Signal(exit) => {
                self.leaving = Some(exit);
                Ok(())
            }
            // What an abandoned call or tool still sends; an interrupt acted before it got here.
            Happening::Interrupt | Happening::Model { .. } | Happening::Tool { .. } => Ok(()),
            // Too late: its question is closed.
            Happening::Answered(_) => {
                self.answer_open = false;
                Ok(())
            }
        }
    }

    /// The notify reader took something in: shows it, and keeps what could not be written.
    fn noticed(&mut self, noticed: Noticed) {
        self.recorder.foreign(&noticed.lines, &noticed.messages);
        if let Some(id) = &noticed.answered {
            self.open_children.remove(id);
        }
        for message in &noticed.messages {
            if let Message::AgentResult(result) = message {
                self.totals.add(&result.usage, (self.settings.price)(&result.usage));
            }
        }
        if let Some(warning) = noticed.warning {
            self.recorder.display().notice(&warning);
        }
        self.held.extend(noticed.held);
    }

    /// Queues something to do when no turn runs.
    pub(super) fn queue_work(&mut self, work: Work) {
        self.queue.push_back(work);
    }
}
