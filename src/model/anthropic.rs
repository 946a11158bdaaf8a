//! Anthropic Messages: the request body, spliced without parsing a line, and the decoder of its stream.

use std::collections::VecDeque;
use std::io;

use super::catalog::{ModelInfo, ThinkingKind};
use super::convert;
use super::images::{Form, Images};
use super::sse::{EventDecoder, Response, number_of, text_of};
use super::stream::Omit;
use super::{BodyParts, Effort, ModelEvent, Request, Settings, Thinking};
use crate::wire::json;

/// How this API takes images.
const IMAGES: Form = Form {
    text: "text",
    image: [
        "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"",
        "\",\"data\":\"",
        "\"}}",
    ],
};

/// The body, keys in the order of CONTRACT §10: model, max_tokens, stream, system, tools, thinking, output_config,
/// cache_control, the members of `extra_body`, messages. One line; the conversation's lines as they are on disk.
pub(super) fn body<'a>(settings: &Settings, request: &Request<'a>, omit: &Omit) -> io::Result<BodyParts<'a>> {
    let mut head = super::stream::Members::new(settings.extra_body.as_ref());
    let info = settings.catalog.info(&settings.model);
    head.string("model", &settings.model);
    head.raw("max_tokens", &settings.max_tokens.to_string());
    head.raw("stream", "true");
    if !request.system.is_empty() {
        head.string("system", request.system);
    }
    if !matches!(request.tools.trim(), "" | "[]") {
        head.raw("tools", request.tools.trim());
    }
    if let Some(thinking) = thinking(settings, &info, omit)
        && !omit.thinking
    {
        head.raw("thinking", &thinking);
    }
    if settings.thinking != Thinking::Disabled && info.takes_effort() && !omit.effort {
        head.raw("output_config", &format!(r#"{{"effort":"{}"}}"#, settings.effort));
    }
    if !omit.cache_control {
        head.raw("cache_control", r#"{"type":"ephemeral"}"#);
    }
    let mut start = head.finish();
    start.extend_from_slice(b"\"messages\":[");
    let mut body = BodyParts::new();
    body.push_bytes(start);
    if let Some(images) = Images::new(request.images, info.sees() && !omit.images, &IMAGES) {
        convert::push_converted(&mut body, request, true, Some(&images), |line, out| {
            out.push(b',');
            out.extend_from_slice(line);
        })?;
        body.push_bytes(b"]}".to_vec());
        return Ok(body);
    }
    let (lines, len) = request.window.spliced()?;
    body.push_stream(lines, len);
    let mut end = Vec::new();
    if let Some(instruction) = request.instruction {
        if len > 0 {
            end.push(b',');
        }
        end.extend_from_slice(b"{\"role\":\"user\",\"content\":");
        json::string_into(&mut end, instruction);
        end.push(b'}');
    }
    end.extend_from_slice(b"]}");
    body.push_bytes(end);
    Ok(body)
}

/// The `thinking` field for this model, `None` where it is left out (PROVIDERS).
fn thinking(settings: &Settings, info: &ModelInfo, omit: &Omit) -> Option<String> {
    // The newest models show no thinking text unless asked to; others may not know the word.
    let shown = if info.thinking == ThinkingKind::Adaptive && !omit.display {
        r#","display":"summarized""#
    } else {
        ""
    };
    let adaptive = || Some(format!(r#"{{"type":"adaptive"{shown}}}"#));
    match (settings.thinking, info.thinking) {
        (Thinking::Disabled, _) => info.disable.as_ref().map(|word| format!(r#"{{"type":"{word}"}}"#)),
        (Thinking::Adaptive, ThinkingKind::Budget) => budget(settings),
        (Thinking::Adaptive, _) | (Thinking::Enabled, ThinkingKind::Adaptive) => adaptive(),
        (Thinking::Enabled, _) => budget(settings),
    }
}

/// A budget of thinking tokens by effort. It must be at least 1024 and below max_tokens; without room: no thinking.
fn budget(settings: &Settings) -> Option<String> {
    let eighths = match settings.effort {
        Effort::Low => 1,
        Effort::Medium => 2,
        Effort::High => 4,
        Effort::XHigh => 6,
        Effort::Max => 7,
    };
    let tokens = (settings.max_tokens / 8 * eighths).max(1024);
    (tokens < settings.max_tokens).then(|| format!(r#"{{"type":"enabled","budget_tokens":{tokens}}}"#))
}

/// Decodes the events of a Messages stream.
///
/// Blocks are kept by index. The earliest open block streams at once; what comes for later ones meanwhile is held back
/// until it is closed, so that interleaved blocks stay whole and in order.
pub(super) struct Decoder {
    response: Response,
    blocks: VecDeque<Block>,
    stop_reason: Option<String>,
}

struct Block {
    index: u64,
    kind: Kind,
    closed: bool,
    /// What this block gave while an earlier one was open.
    held: Vec<ModelEvent>,
}

enum Kind {
    Text,
    Thinking {
        signature: String,
    },
    /// `whole`: an input that came in the block's start, used when no pieces follow.
    Tool {
        id: String,
        name: String,
        input: String,
        whole: String,
    },
    /// A block that is given in one go at its start, or one that we do not know.
    Other,
}

/// The pieces that deltas bring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Text,
    Thinking,
    Input,
    Signature,
}

impl Decoder {
    pub(super) fn new(response: Response) -> Self {
        Self { response, blocks: VecDeque::new(), stop_reason: None }
    }

    fn delta(&mut self, index: u64, piece: Piece, text: &str, out: &mut Vec<ModelEvent>) {
        let at = match self.blocks.iter().position(|block| block.index == index && !block.closed) {
            Some(at) => at,
            // Some servers send deltas without a start.
            None => {
                let kind = match piece {
                    Piece::Text => Kind::Text,
                    Piece::Thinking | Piece::Signature => Kind::Thinking { signature: String::new() },
                    Piece::Input => return,
                };
                self.blocks.push_back(Block { index, kind, closed: false, held: Vec::new() });
                self.blocks.len() - 1
            }
        };
        let block = &mut self.blocks[at];
        let sink = if at == 0 { out } else { &mut block.held };
        match (piece, &mut block.kind) {
            (Piece::Text, _) => self.response.text(text, sink),
            (Piece::Thinking, _) => self.response.thinking(text, sink),
            (Piece::Input, Kind::Tool { input, .. }) => input.push_str(text),
            (Piece::Signature, Kind::Thinking { signature }) => signature.push_str(text),
            (Piece::Input | Piece::Signature, _) => {}
        }
    }

    fn start(&mut self, index: u64, content: &[u8], out: &mut Vec<ModelEvent>) {
        let text = |key| text_of(content, key).unwrap_or_default().into_owned();
        let mut pieces = Vec::new();
        let kind = match text("type").as_str() {
            "text" => {
                pieces.push((Piece::Text, text("text")));
                Kind::Text
            }
            "thinking" => {
                pieces.push((Piece::Thinking, text("thinking")));
                pieces.push((Piece::Signature, text("signature")));
                Kind::Thinking { signature: String::new() }
            }
            "tool_use" => {
                let raw = json::member(content, "input").filter(|raw| *raw != b"null").unwrap_or_default();
                // A normal start carries `{}` and the pieces follow.
                let whole = if raw == b"{}" { String::new() } else { json::clean(raw).into_owned() };
                Kind::Tool { id: text("id"), name: text("name"), input: String::new(), whole }
            }
            _ => Kind::Other,
        };
        let held = match text("data") {
            data if data.is_empty() => Vec::new(),
            data => vec![ModelEvent::RedactedThinking(data)],
        };
        let first = self.blocks.is_empty();
        self.blocks.push_back(Block { index, kind, closed: false, held });
        if first {
            self.release(out);
        }
        for (piece, text) in pieces.iter().filter(|(_, text)| !text.is_empty()) {
            self.delta(index, *piece, text, out);
        }
    }

    fn close(&mut self, index: u64, out: &mut Vec<ModelEvent>) {
        let Some(at) = self.blocks.iter().position(|block| block.index == index && !block.closed) else {
            return;
        };
        self.close_at(at, out);
        while self.blocks.front().is_some_and(|block| block.closed) {
            self.blocks.pop_front();
            self.release(out);
        }
    }

    /// Gives what the block at the front has held back.
    fn release(&mut self, out: &mut Vec<ModelEvent>) {
        let Some(front) = self.blocks.front_mut() else { return };
        for event in std::mem::take(&mut front.held) {
            match (event, out.last_mut()) {
                (ModelEvent::Text(text), Some(ModelEvent::Text(last)))
                | (ModelEvent::Thinking(text), Some(ModelEvent::Thinking(last))) => last.push_str(&text),
                (event, _) => out.push(event),
            }
        }
    }

    /// Ends a block, whether the stream ended it or the response did.
    fn close_at(&mut self, at: usize, out: &mut Vec<ModelEvent>) {
        let block = &mut self.blocks[at];
        block.closed = true;
        let sink = if at == 0 { out } else { &mut block.held };
        match std::mem::replace(&mut block.kind, Kind::Other) {
            Kind::Thinking { signature } if !signature.is_empty() => {
                sink.push(ModelEvent::Signature { signature, id: None });
            }
            Kind::Tool { id, name, input, whole } => {
                let input = if input.trim().is_empty() && !whole.is_empty() { whole } else { input };
                self.response.call(&id, name, input, sink);
            }
            Kind::Text | Kind::Thinking { .. } | Kind::Other => {}
        }
    }

    fn usage(&mut self, holder: &[u8]) {
        let Some(usage) = json::member(holder, "usage") else { return };
        let figures = &mut self.response.figures;
        let replace = |figure: &mut Option<u64>, key| *figure = number_of(usage, key).or(*figure);
        replace(&mut figures.input, "input_tokens");
        replace(&mut figures.output, "output_tokens");
        replace(&mut figures.cache_read, "cache_read_input_tokens");
        replace(&mut figures.cache_creation, "cache_creation_input_tokens");
    }

    fn message_stop(&mut self, out: &mut Vec<ModelEvent>) {
        while !self.blocks.is_empty() {
            if !self.blocks[0].closed {
                self.close_at(0, out);
            }
            self.blocks.pop_front();
            self.release(out);
        }
        let reason = self.stop_reason.take();
        let default = if self.response.calls() > 0 { "tool_use" } else { "end_turn" };
        self.response.stop(reason.as_deref().unwrap_or(default), "max_tokens", out);
    }

    /// Any event, by full parsing. `json::member` gives nothing for a broken event: then it is ignored.
    fn slow(&mut self, name: &str, data: &[u8], out: &mut Vec<ModelEvent>) {
        let word = text_of(data, "type");
        let index = || number_of(data, "index").unwrap_or(0);
        match word.as_deref().unwrap_or(name) {
            "message_start" => {
                if let Some(message) = json::member(data, "message") {
                    self.usage(message);
                }
            }
            "content_block_start" => {
                if let Some(content) = json::member(data, "content_block") {
                    self.start(index(), content, out);
                }
            }
            "content_block_delta" => {
                if let Some(delta) = json::member(data, "delta") {
                    self.slow_delta(index(), delta, out);
                }
            }
            "content_block_stop" => self.close(index(), out),
            "message_delta" => {
                if let Some(reason) =
                    json::member(data, "delta").and_then(|delta| text_of(delta, "stop_reason"))
                {
                    self.stop_reason = Some(reason.into_owned());
                }
                self.usage(data);
            }
            "message_stop" => self.message_stop(out),
            "error" => self.response.fail(data, out),
            // `ping`, and what future versions may send.
            _ => {}
        }
    }

    fn slow_delta(&mut self, index: u64, delta: &[u8], out: &mut Vec<ModelEvent>) {
        let (piece, key) = match text_of(delta, "type").as_deref() {
            Some("text_delta") => (Piece::Text, "text"),
            Some("thinking_delta") => (Piece::Thinking, "thinking"),
            Some("input_json_delta") => (Piece::Input, "partial_json"),
            Some("signature_delta") => (Piece::Signature, "signature"),
            _ => return,
        };
        if let Some(text) = text_of(delta, key) {
            self.delta(index, piece, &text, out);
        }
    }
}

impl EventDecoder for Decoder {
    fn event(&mut self, name: &str, data: &[u8], out: &mut Vec<ModelEvent>) {
        match fast_delta(data) {
            Some((index, piece, body)) => self.delta(index, piece, &json::unescape(body), out),
            None => self.slow(name, json::clean(data).as_bytes(), out),
        }
    }

    /// A run of text deltas for the open text block, in exactly the form that the API sends.
    fn take_ahead(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> (usize, u64) {
        let Some(Block { index, kind: Kind::Text, closed: false, .. }) = self.blocks.front() else {
            return (0, 0);
        };
        let start = format!("{DELTA_START}{index}{TEXT_START}");
        let (mut taken, mut events) = (0, 0);
        let mut text = Vec::new();
        while let Some((piece, length)) = text_delta(&bytes[taken..], start.as_bytes()) {
            text.extend_from_slice(piece);
            taken += length;
            events += 1;
        }
        if taken == 0 {
            return (0, 0);
        }
        // A piece that is no UTF-8 is mended alone, on the slow way.
        match str::from_utf8(&text) {
            Ok(text) if memchr::memchr(0, text.as_bytes()).is_none() => self.response.text(text, out),
            _ => return (0, 0),
        }
        (taken, events)
    }

    /// Without `message_stop` the response is broken, however cleanly the body ended.
    fn end(&mut self, _out: &mut Vec<ModelEvent>) {}

    fn response(&self) -> &Response {
        &self.response
    }
}

/// What stands in front of a delta's block index, and between it and its text.
const DELTA_START: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
const TEXT_START: &str = ",\"delta\":{\"type\":\"text_delta\",\"text\":\"";

/// The text of the text delta that `bytes` begin with, and the event's length; `None` when that is not plain to see:
/// escapes in the text, another form, or an end that is not there yet. (The API pads events with blanks.)
fn text_delta<'a>(bytes: &'a [u8], start: &[u8]) -> Option<(&'a [u8], usize)> {
    let rest = bytes.strip_prefix(start)?;
    let end = memchr::memchr2(b'"', b'\\', rest).filter(|end| rest[*end] == b'"')?;
    let (text, mut tail) = (&rest[..end], rest[end + 1..].strip_prefix(b"}")?);
    while let Some(shorter) = tail.strip_prefix(b" ") {
        tail = shorter;
    }
    let tail = tail.strip_prefix(b"}\n\n")?;
    // A line end within the string is no JSON: the slow way knows what to do with it.
    if memchr::memchr2(b'\n', b'\r', text).is_some() {
        return None;
    }
    Some((text, bytes.len() - tail.len()))
}

/// A delta in exactly the form that the API sends: index, piece, and the body of its JSON string. Everything else
/// (other key orders, blanks, broken JSON) is `None` and takes the slow way.
fn fast_delta(data: &[u8]) -> Option<(u64, Piece, &[u8])> {
    let rest = data.strip_prefix(b"{\"type\":\"content_block_delta\",\"index\":")?;
    let digits = rest.iter().take(9).take_while(|byte| byte.is_ascii_digit()).count();
    let index = rest[..digits].iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    let rest = rest[digits..].strip_prefix(b",\"delta\":{\"type\":\"")?.strip_suffix(b"\"}}")?;
    let (piece, body) = if let Some(body) = rest.strip_prefix(b"text_delta\",\"text\":\"") {
        (Piece::Text, body)
    } else if let Some(body) = rest.strip_prefix(b"thinking_delta\",\"thinking\":\"") {
        (Piece::Thinking, body)
    } else {
        (Piece::Input, rest.strip_prefix(b"input_json_delta\",\"partial_json\":\"")?)
    };
    (digits > 0 && is_string_body(body)).then_some((index, piece, body))
}

/// Whether these bytes can stand between the quotes of a JSON string: no quote that is not escaped, no lone backslash
/// at the end.
fn is_string_body(body: &[u8]) -> bool {
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &body[at..]) {
        at += found;
        if body[at] == b'"' || at + 1 == body.len() {
            return false;
        }
        at += 2;
    }
    true
}

#[cfg(test)]
mod tests;
