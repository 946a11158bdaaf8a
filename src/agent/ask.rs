//! One model call: the request, the stream as it comes, the figures once it has ended (CONTRACT §7, step 2).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::compact::{HALVINGS, Outcome, Trigger};
use super::response::Response;
use super::{Agent, prompt};
use crate::model::{ErrorKind, ModelError, ModelEvent, Provider, Request};
use crate::runtime::cancel::Cancel;
use crate::runtime::inbox::Event as Happening;
use crate::session::StorageError;
use crate::session::events::{Event, UsageKind};
use crate::session::leave_out::Goal;
use crate::session::stats::{Stats, Update};
use crate::session::window::{Window, WindowOptions};
use crate::wire::message::{Message, Usage};

/// How long an interrupted stream may take to end before it is left behind.
const LET_GO: Duration = Duration::from_millis(100);

/// How one model call went.
pub(super) enum Asked {
    /// The response, whole.
    Complete(Response),
    /// The turn was cancelled.
    Interrupted,
    /// For good.
    Failed(ModelError),
}

/// A call whose answer nobody watches: a summary.
pub(super) struct Quiet {
    /// Only the conversation up to this byte.
    pub until: u64,
    /// The last user message.
    pub instruction: String,
}

impl Agent {
    /// A model call; what the API would not take is left out or shortened, and it is asked once more.
    pub(super) fn ask_mending(&mut self) -> Result<Asked, StorageError> {
        let asked = self.ask()?;
        let Asked::Failed(error) = &asked else { return Ok(asked) };
        match error.kind {
            ErrorKind::ContextTooLong => self.ask_shorter(asked),
            ErrorKind::ThinkingRejected => {
                self.session.meta.thinking_from = self.session.conversation.len();
                self.session.meta.store(&self.session.dir)?;
                self.say_once(
                    "the API does not take the thinking of earlier answers: it is left out from now on",
                );
                self.ask()
            }
            _ => Ok(asked),
        }
    }

    /// The request was too long: compacts, then leaves out results, as long as that makes it shorter.
    fn ask_shorter(&mut self, mut asked: Asked) -> Result<Asked, StorageError> {
        match self.compact(Trigger::TooLong)? {
            Outcome::Done => asked = self.ask()?,
            Outcome::Interrupted => return Ok(Asked::Interrupted),
            Outcome::Nothing | Outcome::Failed(_) => {}
        }
        for _ in 0..HALVINGS {
            let is_too_long =
                matches!(&asked, Asked::Failed(error) if error.kind == ErrorKind::ContextTooLong);
            if !is_too_long || !self.leave_out_results(Goal::Half)? {
                break;
            }
            asked = self.ask()?;
        }
        Ok(asked)
    }

    /// One model call, streamed out as it comes.
    fn ask(&mut self) -> Result<Asked, StorageError> {
        self.call += 1;
        let call = self.call;
        let Some(cancel) = self.cancel.clone() else { return Ok(Asked::Interrupted) };
        if cancel.is_cancelled() {
            return Ok(Asked::Interrupted);
        }
        let system = self.system_prompt();
        let window = self.window(None)?;
        let started = Instant::now();
        self.start_stream(call, system, window, None, cancel)?;
        self.sync();
        self.compaction.called();
        let mut response = Response::default();
        loop {
            let Some(happening) = self.next_in_turn(LET_GO) else { return self.given_up(response) };
            match happening {
                Happening::Model { call: number, event } if number == call => match event {
                    Some(ModelEvent::Failed(error)) => {
                        self.count(&response, UsageKind::Agent, started)?;
                        return Ok(if self.is_cancelled() {
                            Asked::Interrupted
                        } else {
                            Asked::Failed(error)
                        });
                    }
                    Some(event) => self.stream_event(event, &mut response)?,
                    None if response.stop.is_some() && !self.is_cancelled() => {
                        self.count(&response, UsageKind::Agent, started)?;
                        return Ok(Asked::Complete(response));
                    }
                    None => return self.given_up(response),
                },
                other => self.aside(other)?,
            }
        }
    }

    /// The stream ended without its end: by an interrupt, as everything else arrives as `Failed`.
    fn given_up(&mut self, response: Response) -> Result<Asked, StorageError> {
        self.count(&response, UsageKind::Agent, Instant::now())?;
        Ok(Asked::Interrupted)
    }

    /// A model call that is neither shown nor logged, but for its retries and its figures.
    pub(super) fn ask_quietly(&mut self, quiet: Quiet) -> Result<Asked, StorageError> {
        self.call += 1;
        let call = self.call;
        let Some(cancel) = self.cancel.clone() else { return Ok(Asked::Interrupted) };
        let system = self.system_prompt();
        let window = self.window(Some(quiet.until))?;
        let started = Instant::now();
        self.start_stream(call, system, window, Some(quiet.instruction), cancel)?;
        let mut response = Response::default();
        loop {
            let Some(happening) = self.next_in_turn(LET_GO) else {
                self.count(&response, UsageKind::Compact, started)?;
                return Ok(Asked::Interrupted);
            };
            match happening {
                Happening::Model { call: number, event } if number == call => match event {
                    Some(ModelEvent::Failed(_)) | None if self.is_cancelled() => {
                        self.count(&response, UsageKind::Compact, started)?;
                        return Ok(Asked::Interrupted);
                    }
                    Some(ModelEvent::Failed(error)) => {
                        self.count(&response, UsageKind::Compact, started)?;
                        return Ok(Asked::Failed(error));
                    }
                    Some(ModelEvent::Retry { usage, message, wait }) => {
                        self.given_up_try(usage, UsageKind::Compact, &message, wait)?;
                        response = Response::default();
                    }
                    Some(event) => response.take(&event),
                    None if response.stop.is_some() => {
                        self.count(&response, UsageKind::Compact, started)?;
                        return Ok(Asked::Complete(response));
                    }
                    None => return Ok(Asked::Interrupted),
                },
                other => self.aside(other)?,
            }
        }
    }

    /// The next thing that happens; `None` when the turn was cancelled and what runs does not end in time.
    pub(super) fn next_in_turn(&mut self, let_go: Duration) -> Option<Happening> {
        if !self.is_cancelled() {
            let Some(deadline) = self.deadline else { return Some(self.inbox.next()) };
            if let Some(happening) = self.inbox.next_until(deadline) {
                return Some(happening);
            }
            self.inbox.running().interrupt();
        }
        self.inbox.next_until(Instant::now() + let_go)
    }

    /// Runs the model on a thread of its own, which owns all it needs and can be left behind.
    fn start_stream(
        &mut self,
        call: u64,
        system: String,
        window: Window,
        instruction: Option<String>,
        cancel: Cancel,
    ) -> Result<(), StorageError> {
        let (model, sender) = (Arc::clone(&self.model), self.inbox.sender());
        let images = self.session.dir.images();
        let run = move || {
            let instruction = instruction.as_deref();
            let request = Request {
                system: &system,
                tools: prompt::TOOLS,
                window: &window,
                instruction,
                images: Some(&images),
            };
            for event in model.stream(&request, &cancel) {
                if sender.send(Happening::Model { call, event: Some(event) }).is_err() {
                    return;
                }
            }
            // Nobody listens any more when this fails.
            let _ = sender.send(Happening::Model { call, event: None });
        };
        self.spawn("model", run)
    }

    pub(super) fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StorageError> {
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        spawned.map(drop).map_err(StorageError::at("start a thread for", self.session.dir.path()))
    }

    fn stream_event(&mut self, event: ModelEvent, response: &mut Response) -> Result<(), StorageError> {
        response.take(&event);
        match event {
            ModelEvent::Text(text) => self.recorder.text(text),
            ModelEvent::Thinking(text) => self.recorder.thinking(text),
            ModelEvent::Retry { usage, message, wait } => {
                *response = Response::default();
                self.given_up_try(usage, UsageKind::Agent, &message, wait)
            }
            ModelEvent::Warning(text) => {
                self.say_once(&text);
                Ok(())
            }
            ModelEvent::Signature { .. }
            | ModelEvent::RedactedThinking(_)
            | ModelEvent::ToolCall { .. }
            | ModelEvent::Usage { .. }
            | ModelEvent::Stop(_)
            | ModelEvent::Failed(_) => Ok(()),
        }
    }

    /// A try is over and the next one comes after `wait`: what it had reported counts, once (CONTRACT §5, `usage`).
    fn given_up_try(
        &mut self,
        usage: Option<Usage>,
        kind: UsageKind<'_>,
        message: &str,
        wait: Duration,
    ) -> Result<(), StorageError> {
        if let Some(usage) = usage {
            self.add_usage(&usage, &[])?;
            self.record_usage(&usage, kind, false)?;
        }
        self.recorder.show(&Event::Retry, &Message::Retry)?;
        let text = format!("{message}; trying again in {:.1} s", wait.as_secs_f64());
        self.recorder.display().notice(&text);
        Ok(())
    }

    /// Counts one call that has ended, once, from the last figures the stream gave.
    pub(super) fn count(
        &mut self,
        response: &Response,
        kind: UsageKind<'_>,
        started: Instant,
    ) -> Result<(), StorageError> {
        let Some((usage, estimated)) = response.usage else { return Ok(()) };
        let context = usage.input + usage.output + usage.cache_read + usage.cache_creation;
        let seconds = started.elapsed().as_secs_f64().max(1e-3);
        let mut updates = Vec::new();
        if kind == UsageKind::Compact {
            updates.push(Update::add("compact_request_count", u64::from(response.stop.is_some())));
        } else if response.stop.is_some() {
            updates.push(Update::add("agent_request_count", 1));
            updates.push(Update::set("current_context_tokens", context));
            updates.push(Update::set("last_call_speed_tok_per_sec", usage.output as f64 / seconds));
        }
        self.add_usage(&usage, &updates)?;
        self.record_usage(&usage, kind, estimated)
    }

    fn add_usage(&mut self, usage: &Usage, more: &[Update<'static>]) -> Result<(), StorageError> {
        let cost = (self.settings.price)(usage);
        let mut updates = vec![
            Update::add("total_input_tokens", usage.input),
            Update::add("total_output_tokens", usage.output),
            Update::add("total_cache_read_tokens", usage.cache_read),
            Update::add("total_cache_creation_tokens", usage.cache_creation),
            Update::add("total_cost_usd", cost),
        ];
        updates.extend_from_slice(more);
        let stats = self.update_stats(&updates)?;
        self.totals.add(usage, cost);
        self.recorder.display().figures(true, &stats);
        Ok(())
    }

    fn record_usage(
        &mut self,
        usage: &Usage,
        kind: UsageKind<'_>,
        estimated: bool,
    ) -> Result<(), StorageError> {
        let model = Some(self.settings.model_name.as_str());
        let event = Event::Usage { usage: *usage, kind, model, estimated };
        self.recorder.show(&event, &Message::Usage(*usage))
    }

    /// Applies updates; a file that was broken is reported (CONTRACT §6).
    pub(super) fn update_stats(&mut self, updates: &[Update<'_>]) -> Result<Stats, StorageError> {
        let (stats, note) = Stats::update(&self.session.dir, updates)?;
        if let Some(note) = note.filter(|note| self.said.insert(note.clone())) {
            self.recorder.error(&note)?;
        }
        Ok(stats)
    }

    fn system_prompt(&mut self) -> String {
        let tools = Arc::clone(&self.tools);
        let (text, warnings) = prompt::system(&prompt::Sources {
            base: &self.settings.base,
            session: &self.session.dir,
            cwd: &self.settings.cwd,
            home: self.settings.home.as_deref(),
            lang: &self.settings.lang,
            shell: &self.settings.shell,
            skills: &tools.skills,
            selected: &self.settings.selected_skills,
        });
        for warning in warnings {
            self.say_once(&warning);
        }
        text
    }

    fn window(&mut self, until: Option<u64>) -> Result<Window, StorageError> {
        let length = self.session.conversation.len();
        let provider = self.settings.provider;
        if self.session.meta.before_call(provider.as_str(), &self.settings.model_name, length) {
            self.session.meta.store(&self.session.dir)?;
        }
        let options = WindowOptions {
            thinking_from: self.session.meta.thinking_from,
            results_from: self.session.meta.results_from,
            until,
            drop_unsigned: provider == Provider::Claude,
            ..WindowOptions::default()
        };
        let window = Window::open(&self.session.dir, options)
            .map_err(StorageError::at("read", self.session.conversation.path()))?;
        for note in window.notes() {
            self.say_once(note);
        }
        Ok(window)
    }

    /// Tells the person something once a run.
    pub(super) fn say_once(&mut self, text: &str) {
        if self.said.insert(text.to_owned()) {
            self.recorder.display().notice(text);
        }
    }
}
