//! What the three stream decoders share: the event framing, the joined pieces, the end of a response.

use super::ahead::{Piece, Taken};
use super::{ErrorKind, ModelError, ModelEvent, Provider, anthropic, openai_chat, openai_responses};
use crate::wire::message::Usage;
use crate::wire::{json, sse};

/// Bytes kept of an answer in which no event has been found.
const MAX_HEAD: usize = 1 << 20;

/// Turns the bytes of a response's body into events, whatever pieces they come in.
///
/// A response that is complete ends with `Usage` and `Stop`, one that is not with `Failed`; nothing comes after those.
pub struct Decoder {
    framed: Box<dyn Framing>,
    /// The first bytes, as long as they hold no event: the answer may be no event stream at all.
    head: Vec<u8>,
}

/// How a body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As HTTP says it should.
    Clean,
    /// The connection broke: why.
    Broken(String),
}

impl Decoder {
    /// Decodes more bytes. The pieces of text, or of thinking, that lie in them side by side become one event.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) {
        if self.framed.events() == 0 && self.head.len() < MAX_HEAD {
            self.head.extend_from_slice(bytes);
        }
        self.framed.feed(bytes, out);
    }

    /// The body has ended. A response that is not complete by now ends with `Failed`, which names `place`: where the
    /// answer came from.
    pub fn finish(&mut self, end: &End, place: &str, out: &mut Vec<ModelEvent>) {
        let clean = *end == End::Clean;
        // Even after a cut the response may have been complete.
        self.framed.finish(clean, out);
        if clean && self.framed.events() == 0 {
            self.feed_whole(out);
        }
        if self.is_done() {
            return;
        }
        let why = match end {
            End::Clean if self.framed.events() == 0 && !self.head.trim_ascii().is_empty() => {
                out.push(ModelEvent::Failed(no_stream(self.head.trim_ascii(), place)));
                return;
            }
            End::Clean => "the server closed it",
            End::Broken(why) => why,
        };
        out.push(ModelEvent::Failed(broken(format!("the stream broke before its end ({why})"))));
    }

    /// Whether `Stop` or an error event came.
    pub fn is_done(&self) -> bool {
        self.framed.response().done
    }

    /// How many events came so far; comments do not count.
    pub fn events(&self) -> u64 {
        self.framed.events()
    }

    /// What the server has reported so far: the figures of a response that failed.
    pub fn usage(&self) -> Option<Usage> {
        self.framed.response().figures.usage()
    }

    /// A server that does not stream sends one JSON object: it is taken as the only event. Its line feeds can only
    /// stand between tokens.
    fn feed_whole(&mut self, out: &mut Vec<ModelEvent>) {
        let object = self.head.trim_ascii();
        if !object.starts_with(b"{") || json::member(object, "choices").is_none() {
            return;
        }
        let line = object.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte });
        let event: Vec<u8> = b"data: ".iter().copied().chain(line).chain(*b"\n\n").collect();
        self.framed.feed(&event, out);
        self.framed.finish(true, out);
    }
}

/// A stream that ended too early: worth asking again.
pub(super) fn broken(message: String) -> ModelError {
    ModelError {
        error_type: Some("stream_broken".to_owned()),
        ..ModelError::new(ErrorKind::Network, message)
    }
}

/// A 200 whose body is no event stream: an error object, or some page of a proxy.
fn no_stream(head: &[u8], place: &str) -> ModelError {
    if head.starts_with(b"{") && json::member(head, "error").is_some() {
        return ModelError::from_event(head);
    }
    let said = ModelError::from_status(200, head);
    let words = said.message.strip_prefix("HTTP 200: ").unwrap_or_default();
    let message = format!("{place} answered with something that is no event stream: {words}");
    ModelError {
        error_type: Some("no_event_stream".to_owned()),
        ..ModelError::new(ErrorKind::Rejected, message)
    }
}

/// What a decoder must know of the request.
#[derive(Clone, Debug)]
pub struct DecoderOptions {
    /// Begins the ids of calls that come without one; a number follows.
    pub id_prefix: String,
    /// The limit that was asked for: a response of that length with a call that is no JSON was cut, whatever its stop
    /// reason says.
    pub max_tokens: u64,
}

impl Default for DecoderOptions {
    fn default() -> Self {
        Self { id_prefix: "call_".to_owned(), max_tokens: u64::MAX }
    }
}

/// The decoder of a provider's stream. `script` has no stream of its own and counts as claude.
pub fn decoder(provider: Provider, options: &DecoderOptions) -> Decoder {
    let response = Response::new(options.clone());
    let framed: Box<dyn Framing> = match provider {
        Provider::Claude | Provider::Script => Box::new(Framed::new(anthropic::Decoder::new(response))),
        Provider::OpenAi => Box::new(Framed::new(openai_chat::Decoder::new(response))),
        Provider::Responses => Box::new(Framed::new(openai_responses::Decoder::new(response))),
    };
    Decoder { framed, head: Vec::new() }
}

/// A decoder of single events: what differs between the providers.
pub(super) trait EventDecoder: Send {
    /// One event. `data` is JSON, or not.
    fn event(&mut self, name: &str, data: &[u8], out: &mut Vec<ModelEvent>);
    /// The body has ended although no event said so.
    fn end(&mut self, out: &mut Vec<ModelEvent>);
    /// The state that all share.
    fn response(&self) -> &Response;

    /// Takes whole events at the start of `bytes` that can be told by sight (`sse::Sink::take_ahead`): returns how many
    /// bytes and events.
    fn take_ahead(&mut self, _bytes: &[u8], _out: &mut Vec<ModelEvent>) -> (usize, u64) {
        (0, 0)
    }
}

/// An `EventDecoder` behind the SSE framing, whichever it is.
trait Framing: Send {
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>);
    fn finish(&mut self, clean: bool, out: &mut Vec<ModelEvent>);
    fn events(&self) -> u64;
    fn response(&self) -> &Response;
}

struct Framed<D> {
    framing: sse::Decoder,
    inner: D,
    events: u64,
}

impl<D: EventDecoder> Framed<D> {
    fn new(inner: D) -> Self {
        Self { framing: sse::Decoder::new(), inner, events: 0 }
    }
}

impl<D: EventDecoder> Framing for Framed<D> {
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) {
        let Self { framing, inner, events } = self;
        framing.feed(bytes, &mut Events { inner, events, out });
    }

    fn finish(&mut self, clean: bool, out: &mut Vec<ModelEvent>) {
        let Self { framing, inner, events } = self;
        // Of a body that broke off, the last event may be half of one.
        if clean {
            framing.finish(&mut Events { inner, events, out });
        }
        if !self.inner.response().done {
            self.inner.end(out);
        }
    }

    fn events(&self) -> u64 {
        self.events
    }

    fn response(&self) -> &Response {
        self.inner.response()
    }
}

/// Hands the events of one chunk on, and counts them.
struct Events<'a, D> {
    inner: &'a mut D,
    events: &'a mut u64,
    out: &'a mut Vec<ModelEvent>,
}

impl<D: EventDecoder> sse::Sink for Events<'_, D> {
    fn event(&mut self, name: &str, data: &[u8]) {
        *self.events += 1;
        if !self.inner.response().done {
            self.inner.event(name, data, self.out);
        }
    }

    fn take_ahead(&mut self, bytes: &[u8]) -> usize {
        if self.inner.response().done {
            return 0;
        }
        let (taken, events) = self.inner.take_ahead(bytes, self.out);
        *self.events += events;
        taken
    }
}

/// The figures of a call as the server names them one by one; a later value replaces an earlier one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
    pub(super) cache_read: Option<u64>,
    pub(super) cache_creation: Option<u64>,
}

impl Figures {
    /// The sum, when there is any figure at all.
    fn usage(&self) -> Option<Usage> {
        let any = self.input.or(self.output).or(self.cache_read).or(self.cache_creation);
        any.map(|_| Usage {
            input: self.input.unwrap_or(0),
            output: self.output.unwrap_or(0),
            cache_read: self.cache_read.unwrap_or(0),
            cache_creation: self.cache_creation.unwrap_or(0),
        })
    }
}

/// The state of one response that all decoders share.
#[derive(Debug)]
pub(super) struct Response {
    options: DecoderOptions,
    pub(super) figures: Figures,
    pub(super) done: bool,
    /// Bytes of text, thinking and calls: what the output is guessed from when the server gives no figures.
    streamed: u64,
    /// The ids of the calls given so far.
    ids: Vec<String>,
    /// A call's input was no JSON object.
    broken_call: bool,
}

impl Response {
    fn new(options: DecoderOptions) -> Self {
        Self {
            options,
            figures: Figures::default(),
            done: false,
            streamed: 0,
            ids: Vec::new(),
            broken_call: false,
        }
    }

    /// How many calls were given so far.
    pub(super) fn calls(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn text(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        self.streamed += text.len() as u64;
        match out.last_mut() {
            Some(ModelEvent::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => out.push(ModelEvent::Text(text.to_owned())),
        }
    }

    pub(super) fn thinking(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        self.streamed += text.len() as u64;
        match out.last_mut() {
            Some(ModelEvent::Thinking(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => out.push(ModelEvent::Thinking(text.to_owned())),
        }
    }

    /// Pieces that were taken at once: their length in bytes and their number.
    pub(super) fn added(&mut self, taken: &Taken, out: &mut Vec<ModelEvent>) -> (usize, u64) {
        match taken.piece {
            Piece::Text => self.text(&taken.text, out),
            Piece::Thinking => self.thinking(&taken.text, out),
        }
        (taken.length, taken.events)
    }

    /// A call that is as complete as it will be. An id that is missing is invented, one that the APIs would refuse
    /// is made harmless, one that came before gets a number.
    pub(super) fn call(&mut self, id: &str, name: String, input: String, out: &mut Vec<ModelEvent>) {
        self.streamed += (name.len() + input.len()) as u64;
        self.broken_call |= json::tool_input(&input).is_err();
        let id = match id {
            "" => format!("{}{}", self.options.id_prefix, self.ids.len() + 1),
            id => id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect(),
        };
        // The same id twice would be refused with the next request.
        let taken = |id: &String| self.ids.contains(id);
        let id = if taken(&id) {
            (2..).map(|n| format!("{id}_{n}")).find(|id| !taken(id)).unwrap_or(id)
        } else {
            id
        };
        self.ids.push(id.clone());
        out.push(ModelEvent::ToolCall { id, name, input });
    }

    /// Ends the response well: the figures, then the stop reason. `cut` is the provider's word for "too long".
    pub(super) fn stop(&mut self, reason: &str, cut: &str, out: &mut Vec<ModelEvent>) {
        self.done = true;
        let usage = self.figures.usage();
        // Some servers call it a normal end although the limit cut a call's arguments.
        let cut_off = self.broken_call && usage.is_some_and(|usage| usage.output >= self.options.max_tokens);
        out.push(match usage {
            Some(usage) => ModelEvent::Usage { usage, estimated: false },
            None => {
                let usage = Usage { output: tokens_of(self.streamed), ..Usage::default() };
                ModelEvent::Usage { usage, estimated: true }
            }
        });
        out.push(ModelEvent::Stop(if cut_off { cut } else { reason }.to_owned()));
    }

    /// Ends the response with the error that this event reports.
    pub(super) fn fail(&mut self, data: &[u8], out: &mut Vec<ModelEvent>) {
        self.done = true;
        out.push(ModelEvent::Failed(ModelError::from_event(data)));
    }
}

/// A guess at the tokens of so many bytes (the size rule of CONTRACT §9).
pub(super) fn tokens_of(bytes: u64) -> u64 {
    bytes.div_ceil(4)
}

/// The text of a member that is a string and holds something: for many servers an empty one means none.
pub(super) fn text_of<'a>(object: &'a [u8], key: &str) -> Option<std::borrow::Cow<'a, str>> {
    json::member(object, key).and_then(json::string).filter(|text| !text.is_empty())
}

/// A member that is a number, whole or not; fractions are dropped.
pub(super) fn number_of(object: &[u8], key: &str) -> Option<u64> {
    let text = str::from_utf8(json::member(object, key)?).ok()?;
    // Some servers send counts as `12.0`.
    text.parse()
        .ok()
        .or_else(|| text.parse::<f64>().ok().filter(|value| *value >= 0.0).map(|value| value as u64))
}

/// The elements of a JSON array, raw; none when it is no array.
pub(super) fn elements(array: &[u8]) -> Vec<&[u8]> {
    json::elements(array).unwrap_or_default()
}
