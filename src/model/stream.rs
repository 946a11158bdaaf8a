//! One model call over HTTP: tries, decodes, asks again where that may help (DESIGN, "The model behind it").

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::error::hint;
use super::http::{Answer, Client, NoAnswer};
use super::retry::{random_word, retry_after};
use super::sse::{self, Decoder, DecoderOptions, End, tokens_of};
use super::{
    BodyParts, ErrorKind, Model, ModelError, ModelEvent, Provider, Request, Settings, anthropic, openai_chat,
    openai_responses,
};
use crate::runtime::cancel::{Cancel, HookGuard};
use crate::wire::json;
use crate::wire::message::Usage;

/// Bytes of an error answer that are looked at.
const MAX_ERROR_BODY: u64 = 64 * 1024;
/// Bytes taken from the connection at once.
const READ_SIZE: usize = 64 * 1024;
/// What may follow the last event of a stream before its connection is not worth keeping.
const MAX_REST: u64 = 16 * 1024;

/// The fields of a request that a server refused and that we can do without, for the life of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omit {
    pub(super) thinking: bool,
    /// Claude: `thinking.display`.
    pub(super) display: bool,
    pub(super) effort: bool,
    pub(super) cache_control: bool,
    pub(super) stream_options: bool,
    /// Chat: the limit goes by its other name, `max_tokens` or `max_completion_tokens`.
    pub(super) other_limit: bool,
    /// Chat: `reasoning_content` is sent although the settings say no, or the other way round.
    pub(super) other_reasoning: bool,
    /// Responses: `include`.
    pub(super) include: bool,
    /// Responses: `reasoning.summary`.
    pub(super) summary: bool,
    /// Images: their paths are told instead.
    pub(super) images: bool,
}

impl Omit {
    /// These fields, named as `-v omit` of awk/body_*.awk names them. Fails with the first word that names none.
    pub fn of(words: &[String]) -> Result<Self, &str> {
        let mut omit = Self::default();
        for word in words {
            *match word.as_str() {
                "thinking" => &mut omit.thinking,
                "display" => &mut omit.display,
                "effort" => &mut omit.effort,
                "cache_control" => &mut omit.cache_control,
                "stream_options" => &mut omit.stream_options,
                "other_limit" => &mut omit.other_limit,
                "other_reasoning" => &mut omit.other_reasoning,
                "include" => &mut omit.include,
                "summary" => &mut omit.summary,
                "images" => &mut omit.images,
                _ => return Err(word),
            } = true;
        }
        Ok(omit)
    }
}

/// The head of a JSON body: members in order, each one replaced by `extra_body`'s of the same name.
pub(super) struct Members<'a> {
    out: Vec<u8>,
    extra: Option<&'a Map<String, Value>>,
    written: Vec<&'static str>,
}

impl<'a> Members<'a> {
    pub(super) fn new(extra: Option<&'a Map<String, Value>>) -> Self {
        Self { out: b"{".to_vec(), extra, written: Vec::new() }
    }

    /// A member whose value is JSON already.
    pub(super) fn raw(&mut self, key: &'static str, value: &str) {
        self.written.push(key);
        let replaced = self.extra.and_then(|extra| extra.get(key)).map(Value::to_string);
        self.push(key, replaced.as_deref().unwrap_or(value));
    }

    /// A member whose value is text.
    pub(super) fn string(&mut self, key: &'static str, value: &str) {
        let mut quoted = Vec::with_capacity(value.len() + 16);
        json::string_into(&mut quoted, value);
        self.raw(key, &String::from_utf8_lossy(&quoted));
    }

    /// The head so far, with what `extra_body` adds, ending in a comma. What carries the conversation is never taken
    /// from `extra_body`.
    pub(super) fn finish(mut self) -> Vec<u8> {
        for (key, value) in self.extra.into_iter().flatten() {
            if !self.written.contains(&key.as_str()) && !matches!(key.as_str(), "messages" | "input") {
                self.push(key, &value.to_string());
            }
        }
        self.out
    }

    fn push(&mut self, key: &str, value: &str) {
        json::string_into(&mut self.out, key);
        self.out.push(b':');
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(b',');
    }
}

/// The body of a request for the provider of `settings`.
pub(super) fn body<'a>(settings: &Settings, request: &Request<'a>, omit: &Omit) -> io::Result<BodyParts<'a>> {
    match settings.provider {
        Provider::Claude => anthropic::body(settings, request, omit),
        Provider::OpenAi => openai_chat::body(settings, request, omit),
        Provider::Responses => openai_responses::body(settings, request, omit),
        Provider::Script => Ok(BodyParts::new()),
    }
}

/// A model behind HTTP.
pub(super) struct HttpModel {
    settings: Settings,
    client: Client,
    omit: Mutex<Omit>,
    /// The warning that a server seems to have cut the prompt was given.
    warned_of_cut: AtomicBool,
}

impl HttpModel {
    pub(super) fn new(settings: Settings) -> Result<Self, ModelError> {
        let client = Client::new(settings.clone())?;
        Ok(Self { settings, client, omit: Mutex::default(), warned_of_cut: AtomicBool::new(false) })
    }

    fn omit(&self) -> MutexGuard<'_, Omit> {
        self.omit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the field that a 400 names out of all further requests; returns its name. `None` when it names none, or
    /// one that was left out already: then the error stands.
    fn give_way(&self, error: &ModelError, has_images: bool) -> Option<&'static str> {
        if has_images && refuses_images(error) {
            let was_taken = std::mem::replace(&mut self.omit().images, true);
            return (!was_taken).then_some("images");
        }
        if !matches!(error.status, Some(400 | 422)) || error.kind != ErrorKind::Rejected {
            return None;
        }
        let text = error.message.to_ascii_lowercase();
        let fields = Dispensable::of(self.settings.provider);
        let field = fields.iter().find(|field| field.words.iter().any(|word| text.contains(word)))?;
        let was_taken = std::mem::replace((field.flag)(&mut self.omit()), true);
        // A limit that is only too high is not helped by another name.
        let useless = field.name.starts_with("max_") && text.contains("too large");
        (!was_taken && !useless).then_some(field.name)
    }
}

/// Whether a server says that its model takes no images. Some answer 404 or 500 then.
fn refuses_images(error: &ModelError) -> bool {
    let text = error.message.to_ascii_lowercase();
    matches!(error.status, Some(400 | 404 | 415 | 422 | 500))
        && ["image", "vision", "multimodal", "modalit"].iter().any(|word| text.contains(word))
}

/// A field that a server may refuse and that we can do without.
struct Dispensable {
    /// For the warning.
    name: &'static str,
    /// What a refusal of it says, in small letters.
    words: &'static [&'static str],
    flag: fn(&mut Omit) -> &mut bool,
}

impl Dispensable {
    const fn new(
        name: &'static str,
        words: &'static [&'static str],
        flag: fn(&mut Omit) -> &mut bool,
    ) -> Self {
        Self { name, words, flag }
    }

    /// Those of a provider; of two that a refusal may name at once, the one that is meant comes first.
    fn of(provider: Provider) -> &'static [Self] {
        const CLAUDE: &[Dispensable] = &[
            Dispensable::new("cache_control", &["cache_control"], |omit| &mut omit.cache_control),
            Dispensable::new("effort", &["effort", "output_config"], |omit| &mut omit.effort),
            Dispensable::new("thinking.display", &["display"], |omit| &mut omit.display),
            Dispensable::new("thinking", &["thinking"], |omit| &mut omit.thinking),
        ];
        const CHAT: &[Dispensable] = &[
            Dispensable::new("stream_options", &["stream_options"], |omit| &mut omit.stream_options),
            Dispensable::new("reasoning_content", &["reasoning_content"], |omit| &mut omit.other_reasoning),
            Dispensable::new("reasoning_effort", &["effort"], |omit| &mut omit.effort),
            Dispensable::new("max_completion_tokens", &["max_completion_tokens"], |omit| {
                &mut omit.other_limit
            }),
            Dispensable::new("max_tokens", &["max_tokens"], |omit| &mut omit.other_limit),
        ];
        const RESPONSES: &[Dispensable] = &[
            Dispensable::new("include", &["include", "encrypted_content"], |omit| &mut omit.include),
            Dispensable::new("reasoning.summary", &["summary"], |omit| &mut omit.summary),
            Dispensable::new("reasoning", &["effort", "reasoning"], |omit| &mut omit.effort),
        ];
        match provider {
            Provider::Claude | Provider::Script => CLAUDE,
            Provider::OpenAi => CHAT,
            Provider::Responses => RESPONSES,
        }
    }
}

impl Model for HttpModel {
    fn stream<'a>(
        &'a self,
        request: &'a Request<'a>,
        cancel: &'a Cancel,
    ) -> Box<dyn Iterator<Item = ModelEvent> + 'a> {
        Box::new(Call {
            model: self,
            request,
            cancel,
            queue: VecDeque::new(),
            state: State::Ask,
            failed: 0,
            reconnected: false,
            spent: Duration::ZERO,
            sent: 0,
            image_bytes: 0,
        })
    }

    fn name(&self) -> &str {
        &self.settings.model
    }
}

/// One call in progress.
struct Call<'a> {
    model: &'a HttpModel,
    request: &'a Request<'a>,
    cancel: &'a Cancel,
    queue: VecDeque<ModelEvent>,
    state: State,
    /// Tries that failed.
    failed: u32,
    /// A closed connection was replaced once already.
    reconnected: bool,
    /// Time spent on failing and waiting.
    spent: Duration,
    /// Bytes of the body.
    sent: u64,
    /// How many of them are images.
    image_bytes: u64,
}

enum State {
    Ask,
    Wait(Duration),
    Read(Box<Reading>),
    End,
}

/// An answer that is coming in.
struct Reading {
    body: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    decoder: Decoder,
    events: Vec<ModelEvent>,
    last_event: Instant,
    /// The body ends by itself (it is chunked or has a length), so its connection can serve again.
    keeps: bool,
    /// Wakes a blocked read when the call is cancelled.
    _wake: HookGuard,
}

impl Iterator for Call<'_> {
    type Item = ModelEvent;

    fn next(&mut self) -> Option<ModelEvent> {
        loop {
            if self.cancel.is_cancelled() {
                self.state = State::End;
                return None;
            }
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            match std::mem::replace(&mut self.state, State::End) {
                State::End => return None,
                State::Wait(wait) => {
                    self.cancel.sleep(wait);
                    self.state = State::Ask;
                }
                State::Ask => self.ask(),
                State::Read(reading) => self.read(reading),
            }
        }
    }
}

impl Call<'_> {
    /// Sends the request and takes the head of the answer.
    fn ask(&mut self) {
        let start = Instant::now();
        let settings = &self.model.settings;
        let omit = *self.model.omit();
        let mut body = match body(settings, self.request, &omit) {
            Ok(body) => body,
            Err(error) => return self.fail(unreadable(&error)),
        };
        (self.sent, self.image_bytes) = (body.len(), body.image_bytes());
        let connections = match self.model.client.connections() {
            Ok(connections) => connections,
            Err(error) => return self.fail(error),
        };
        let woken = connections.clone();
        let wake = self.cancel.on_cancel(move || woken.shutdown());
        let answer = self.model.client.post(&connections, &mut body);
        let body_failed = body.failed();
        drop(body);
        self.spent += start.elapsed();
        // A cancel makes the connection fail in any way: the flag is looked at first.
        if self.cancel.is_cancelled() {
            return;
        }
        match answer {
            Ok(answer) if (200..300).contains(&answer.status) => {
                self.state = State::Read(Box::new(self.reading(answer, wake)))
            }
            Ok(answer) => self.refused(answer),
            Err(NoAnswer::Failed(error)) if body_failed => self.fail(unreadable(&error)),
            Err(NoAnswer::Stalled) => self.fail(self.stalled()),
            Err(NoAnswer::Stale) if !self.reconnected => {
                self.reconnected = true;
                connections.shutdown();
                self.state = State::Ask;
            }
            Err(NoAnswer::Stale) => {
                let message =
                    format!("{}: the connection was closed before an answer came", self.model.client.place());
                self.retry_or_fail(ModelError::new(ErrorKind::Network, message), None, None);
            }
            Err(NoAnswer::Failed(error)) => self.retry_or_fail(error, None, None),
        }
    }

    fn reading(&self, answer: Answer, wake: HookGuard) -> Reading {
        let settings = &self.model.settings;
        let options =
            DecoderOptions { id_prefix: format!("call_{}_", random_word()), max_tokens: settings.max_tokens };
        let keeps =
            answer.headers.contains_key("content-length") || answer.headers.contains_key("transfer-encoding");
        Reading {
            body: answer.body,
            buffer: vec![0; READ_SIZE],
            decoder: sse::decoder(settings.provider, &options),
            events: Vec::new(),
            last_event: Instant::now(),
            keeps,
            _wake: wake,
        }
    }

    /// An answer whose status is no success.
    fn refused(&mut self, answer: Answer) {
        let header = |name| answer.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (millis, seconds) = (header("retry-after-ms"), header("retry-after"));
        let wait = retry_after(millis.as_deref(), seconds.as_deref(), jiff::Timestamp::now());
        let mut said = Vec::new();
        // What could not be read is not needed: the status says enough.
        let _ = answer.body.take(MAX_ERROR_BODY).read_to_end(&mut said);
        if self.cancel.is_cancelled() {
            return;
        }
        let mut error = ModelError::from_status(answer.status, &said);
        error.message.push_str(&hint(self.model.settings.provider, answer.status));
        if (300..400).contains(&answer.status) {
            let target = header("location").unwrap_or_default();
            error.message =
                format!("{} redirects to {target}: use that as the base URL", self.model.client.place());
        }
        match self.model.give_way(&error, self.image_bytes > 0) {
            Some(field) => {
                let message =
                    format!("the server does not take `{field}` ({}); asking without it", error.message);
                self.warn(message);
                self.state = State::Ask;
            }
            None => self.retry_or_fail(error, wait, None),
        }
    }

    /// One read of the stream, and all events that it completes.
    fn read(&mut self, mut reading: Box<Reading>) {
        let read = reading.body.read(&mut reading.buffer);
        if self.cancel.is_cancelled() {
            return;
        }
        let before = reading.decoder.events();
        match read {
            Ok(0) => return self.body_ended(reading, &End::Clean),
            Ok(count) => {
                let Reading { buffer, decoder, events, .. } = &mut *reading;
                decoder.feed(&buffer[..count], events);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.state = State::Read(reading);
                return;
            }
            Err(error) => {
                let error = ureq::Error::from(error);
                return match error {
                    ureq::Error::Timeout(_) => self.stall(reading),
                    error => self.body_ended(reading, &End::Broken(error.to_string())),
                };
            }
        }
        if reading.decoder.events() > before {
            reading.last_event = Instant::now();
        } else if reading.last_event.elapsed() > self.model.settings.stall_timeout {
            return self.stall(reading);
        }
        if self.take_events(&mut reading) {
            if reading.keeps {
                read_rest(reading.body);
            }
        } else {
            self.state = State::Read(reading);
        }
    }

    /// Passes on what the decoder gave; true when that ended the response.
    fn take_events(&mut self, reading: &mut Reading) -> bool {
        let done = reading.decoder.is_done();
        for event in std::mem::take(&mut reading.events) {
            match event {
                ModelEvent::Failed(error) => self.retry_or_fail(error, None, reading.decoder.usage()),
                ModelEvent::Usage { usage, estimated } => self.usage(usage, estimated),
                event => self.queue.push_back(event),
            }
        }
        done
    }

    fn usage(&mut self, mut usage: Usage, estimated: bool) {
        let sent = tokens_of(self.sent - self.image_bytes);
        let read = usage.input + usage.cache_read + usage.cache_creation;
        if estimated {
            usage.input = sent;
        } else if read > 0
            && sent > 4096
            && read < sent / 4
            && !self.model.warned_of_cut.swap(true, Ordering::SeqCst)
        {
            // Even dense text has fewer than 16 bytes a token.
            self.warn(format!(
                "the server says it read {read} tokens of a request of about {sent}: its context window is probably \
                 too small (num_ctx, --ctx-size) and the start of the conversation was cut off"
            ));
        }
        self.queue.push_back(ModelEvent::Usage { usage, estimated });
    }

    /// The body has ended: what it holds is all there will be.
    fn body_ended(&mut self, mut reading: Box<Reading>, end: &End) {
        let place = self.model.client.place();
        reading.decoder.finish(end, &place, &mut reading.events);
        self.take_events(&mut reading);
    }

    /// Nothing came for too long. What has come may be a whole response all the same: one without its last mark.
    fn stall(&mut self, mut reading: Box<Reading>) {
        let Reading { decoder, events, .. } = &mut *reading;
        decoder.finish(&End::Broken(String::new()), "", events);
        if decoder.is_done() {
            self.take_events(&mut reading);
        } else {
            self.fail_after(self.stalled(), reading.decoder.usage());
        }
    }

    fn stalled(&self) -> ModelError {
        ModelError::stalled(&self.model.client.place(), self.model.settings.stall_timeout)
    }

    fn warn(&mut self, message: String) {
        let error = ModelError::new(ErrorKind::Rejected, message);
        self.queue.push_back(ModelEvent::Warning(error.redacted(&self.model.settings.secrets()).message));
    }

    /// The end of a response that had reported figures: they are told first, for it was paid for.
    fn fail_after(&mut self, error: ModelError, usage: Option<Usage>) {
        if let Some(usage) = usage {
            self.queue.push_back(ModelEvent::Usage { usage, estimated: false });
        }
        self.fail(error);
    }

    fn fail(&mut self, error: ModelError) {
        self.state = State::End;
        self.queue.push_back(ModelEvent::Failed(error.redacted(&self.model.settings.secrets())));
    }

    /// Asks again when the error and what is left of tries and time allow it; `wait` is what the server asks for.
    fn retry_or_fail(&mut self, mut error: ModelError, wait: Option<Duration>, usage: Option<Usage>) {
        if !error.is_retryable() {
            return self.fail_after(error, usage);
        }
        let policy = self.model.settings.retry;
        self.failed += 1;
        let left = policy.budget.saturating_sub(self.spent);
        if self.failed >= policy.tries {
            self.hint(&mut error);
            error.message.push_str(&format!(" (given up after {} tries)", self.failed));
            return self.fail_after(error, usage);
        }
        let pause = wait.unwrap_or_else(|| policy.backoff(self.failed));
        if pause > left {
            if let Some(wait) = wait {
                error.message.push_str(&format!(" (the server asks to wait {} s)", wait.as_secs()));
            }
            return self.fail_after(error, usage);
        }
        self.spent += pause;
        let error = error.redacted(&self.model.settings.secrets());
        self.queue.push_back(ModelEvent::Retry { usage, message: error.message, wait: pause });
        self.state = State::Wait(pause);
    }

    /// A local server whose window is too small for the request answers 500 with a misleading text.
    fn hint(&self, error: &mut ModelError) {
        if error.status == Some(500) && self.sent > 16 * 1024 && self.model.client.is_local() {
            error.message.push_str(
                "; a local server whose context window is too small for the request answers like this: raise it \
                 (num_ctx, --ctx-size) or lower --max-context",
            );
        }
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> ModelError {
    ModelError::new(ErrorKind::Storage, format!("the conversation cannot be read: {error}"))
}

/// Reads what follows the last event, so that the connection can serve the next call. On a thread of its own: a server
/// may take its time, and nobody needs to wait for that.
fn read_rest(body: Box<dyn Read + Send>) {
    let rest = std::thread::Builder::new().name("model-rest".to_owned()).stack_size(128 * 1024);
    // Without a thread the connection is closed, and the next call makes a new one.
    let _ = rest.spawn(move || io::copy(&mut body.take(MAX_REST), &mut io::sink()));
}

#[cfg(test)]
mod tests;
