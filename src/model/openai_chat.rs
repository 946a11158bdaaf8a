//! OpenAI Chat Completions and the many servers that speak it: the request body and the decoder of the stream, with
//! the habits of those servers (PROVIDERS, CASES D).

use std::borrow::Cow;
use std::io;

use super::ahead::{Ahead, Found, Piece as Added};
use super::convert::{self, Block, Turn, join, quoted};
use super::images::{Form, Images};
use super::sse::{EventDecoder, Figures, Response, broken, elements, number_of, text_of};
use super::stream::{Members, Omit};
use super::{BodyParts, ModelEvent, Request, Settings};
use crate::wire::json;

/// How this API takes images.
const IMAGES: Form = Form {
    text: "text",
    image: ["{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:", ";base64,", "\"}}"],
};

/// The body, keys in this order: model, max_completion_tokens (max_tokens elsewhere than at OpenAI), stream,
/// stream_options, reasoning_effort, tools, the members of `extra_body`, messages. The system prompt is the first
/// message.
pub(super) fn body<'a>(settings: &Settings, request: &Request<'a>, omit: &Omit) -> io::Result<BodyParts<'a>> {
    let mut head = Members::new(settings.extra_body.as_ref());
    let info = settings.catalog.info(&settings.model);
    head.string("model", &settings.model);
    let new_name = convert::is_openai(&settings.base_url) != omit.other_limit;
    let limit = if new_name { "max_completion_tokens" } else { "max_tokens" };
    head.raw(limit, &settings.max_tokens.to_string());
    head.raw("stream", "true");
    if !omit.stream_options {
        head.raw("stream_options", r#"{"include_usage":true}"#);
    }
    if let Some(effort) = convert::effort(settings, &info).filter(|_| !omit.effort) {
        head.string("reasoning_effort", effort);
    }
    if let Some(tools) = convert::tools(request.tools, tool) {
        head.raw("tools", &tools);
    }
    let mut start = head.finish();
    start.extend_from_slice(b"\"messages\":[");
    if !request.system.is_empty() {
        start.extend_from_slice(b"{\"role\":\"system\",\"content\":");
        json::string_into(&mut start, request.system);
        start.push(b'}');
    }
    let mut body = BodyParts::new();
    body.push_bytes(start);
    let reasoning = settings.send_reasoning != omit.other_reasoning;
    let images = Images::new(request.images, info.sees() && !omit.images, &IMAGES);
    convert::push_converted(&mut body, request, request.system.is_empty(), images.as_ref(), |line, out| {
        message(line, reasoning, out);
    })?;
    body.push_bytes(b"]}".to_vec());
    Ok(body)
}

fn tool(name: &[u8], description: &[u8], schema: &[u8], out: &mut Vec<u8>) {
    for piece in [
        b"{\"type\":\"function\",\"function\":{\"name\":",
        name,
        b",\"description\":",
        description,
        b",\"parameters\":",
        schema,
        b"}}",
    ] {
        out.extend_from_slice(piece);
    }
}

/// The messages of one line, each with a comma before it.
fn message(line: &[u8], reasoning: bool, out: &mut Vec<u8>) {
    match convert::turn(line) {
        None => {}
        Some(Turn::Verbatim(line)) => {
            out.push(b',');
            out.extend_from_slice(line);
        }
        Some(Turn::User { results, text }) => {
            for result in results {
                for piece in [
                    b",{\"role\":\"tool\",\"tool_call_id\":",
                    result.id,
                    b",\"content\":\"",
                    &result.content,
                    b"\"}",
                ] {
                    out.extend_from_slice(piece);
                }
            }
            convert::user_text(&text, out);
        }
        Some(Turn::Assistant(blocks)) => assistant(&blocks, reasoning, out),
    }
}

/// An assistant message: its text, and its calls with the reasoning that led to them. Reasoning alone is nothing that
/// could be sent.
fn assistant(blocks: &[Block<'_>], reasoning: bool, out: &mut Vec<u8>) {
    let (mut text, mut thinking, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks {
        match block {
            Block::Text(body) => join(&mut text, body),
            Block::Thinking(block) => join(&mut thinking, block.text),
            Block::Call(call) => calls.push(call),
        }
    }
    if text.is_empty() && calls.is_empty() {
        return;
    }
    out.extend_from_slice(b",{\"role\":\"assistant\",\"content\":");
    if text.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        for piece in [b"\"".as_slice(), &text, b"\""] {
            out.extend_from_slice(piece);
        }
    }
    if !calls.is_empty() {
        if reasoning && !thinking.is_empty() {
            for piece in [b",\"reasoning_content\":\"".as_slice(), &thinking, b"\""] {
                out.extend_from_slice(piece);
            }
        }
        out.extend_from_slice(b",\"tool_calls\":[");
        for (at, call) in calls.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            for piece in [
                b"{\"id\":",
                call.id,
                b",\"type\":\"function\",\"function\":{\"name\":",
                call.name,
                b",\"arguments\":",
            ] {
                out.extend_from_slice(piece);
            }
            quoted(out, call.input);
            out.extend_from_slice(b"}}");
        }
        out.push(b']');
    }
    out.push(b'}');
}

/// Decodes the chunks of a Chat Completions stream.
pub(super) struct Decoder {
    response: Response,
    calls: Vec<Call>,
    /// The call that the last piece belonged to.
    last: usize,
    finish_reason: Option<String>,
    refused: bool,
    ahead: Ahead,
}

/// A tool call that is being put together.
#[derive(Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// One element of `tool_calls`; what is absent is empty.
struct Piece<'a> {
    index: Option<u64>,
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

impl Decoder {
    pub(super) fn new(response: Response) -> Self {
        Self {
            response,
            calls: Vec::new(),
            last: 0,
            finish_reason: None,
            refused: false,
            ahead: Ahead::default(),
        }
    }

    /// `None`, and nothing done, when this is not one complete object.
    fn choice(&mut self, choice: &[u8], out: &mut Vec<ModelEvent>) -> Option<()> {
        let (mut delta, mut reason, mut usage) = (None, None, None);
        json::each_member(choice, |key, value| match key {
            // A server that does not stream sends one whole `message`.
            b"delta" | b"message" => delta = Some(value),
            b"finish_reason" => reason = Some(value),
            b"usage" => usage = Some(value),
            _ => {}
        })?;
        if let Some(delta) = delta {
            self.delta(delta, out);
        }
        if let Some(usage) = usage {
            self.usage(usage);
        }
        if let Some(reason) = reason.and_then(json::string).filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.into_owned());
        }
        Some(())
    }

    fn delta<'a>(&mut self, delta: &'a [u8], out: &mut Vec<ModelEvent>) {
        let (mut content, mut calls, mut refusal) = (None, None, None);
        // Thinking goes by two names; some send both, with the same text.
        let (mut reasoning_content, mut reasoning) = (None, None);
        json::each_member(delta, |key, value| match key {
            b"content" => content = Some(value),
            b"reasoning_content" => reasoning_content = Some(value),
            b"reasoning" => reasoning = Some(value),
            b"tool_calls" => calls = Some(value),
            b"refusal" => refusal = Some(value),
            _ => {}
        });
        let text = |raw: Option<&'a [u8]>| raw.and_then(json::string).filter(|text| !text.is_empty());
        if let Some(thinking) = text(reasoning_content).or_else(|| text(reasoning)) {
            self.response.thinking(&thinking, out);
        }
        match content {
            Some(parts) if parts.first() == Some(&b'[') => {
                for part in elements(parts) {
                    if let Some(text) = text_of(part, "text") {
                        self.response.text(&text, out);
                    }
                }
            }
            raw => self.response.text(&text(raw).unwrap_or_default(), out),
        }
        if let Some(text) = text(refusal) {
            self.refused = true;
            self.response.text(&text, out);
        }
        for piece in calls.map(elements).unwrap_or_default() {
            self.piece(piece);
        }
    }

    fn piece(&mut self, raw: &[u8]) {
        let function = json::member(raw, "function").unwrap_or(raw);
        let arguments = match json::member(function, "arguments") {
            None | Some(b"null") => Cow::default(),
            // Some send the object itself.
            Some(value) => json::string(value).unwrap_or_else(|| json::clean(value)),
        };
        let piece = Piece {
            index: number_of(raw, "index"),
            id: text_of(raw, "id").unwrap_or_default(),
            name: text_of(function, "name").unwrap_or_default(),
            arguments,
        };
        let at = self.call_of(&piece).unwrap_or_else(|| {
            self.calls.push(Call { index: piece.index, ..Call::default() });
            self.calls.len() - 1
        });
        self.last = at;
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = piece.id.into_owned();
        }
        if piece.name.starts_with(&call.name) {
            // The first time, or repeated, or grown.
            call.name = piece.name.into_owned();
        } else if call.arguments.is_empty() {
            call.name.push_str(&piece.name);
        }
        call.arguments.push_str(&piece.arguments);
    }

    /// The call that a piece continues; `None` when it opens a new one.
    fn call_of(&self, piece: &Piece<'_>) -> Option<usize> {
        let known_id = || self.calls.iter().rposition(|call| !piece.id.is_empty() && call.id == piece.id);
        let same_index =
            || self.calls.iter().rposition(|call| piece.index.is_some() && call.index == piece.index);
        let at = match (piece.index, piece.id.as_ref()) {
            (Some(_), _) => {
                known_id().filter(|at| self.calls[*at].index == piece.index).or_else(same_index)?
            }
            (None, "") => Some(self.last).filter(|last| *last < self.calls.len())?,
            (None, _) => known_id()?,
        };
        let call = &self.calls[at];
        let other_id = !piece.id.is_empty() && !call.id.is_empty() && call.id != piece.id;
        (!other_id && !begins_another(call, piece)).then_some(at)
    }

    fn usage(&mut self, raw: &[u8]) {
        let (Some(prompt), Some(output)) =
            (number_of(raw, "prompt_tokens"), number_of(raw, "completion_tokens"))
        else {
            return;
        };
        let details = json::member(raw, "prompt_tokens_details");
        let cached = details
            .and_then(|details| number_of(details, "cached_tokens"))
            .or_else(|| number_of(raw, "prompt_cache_hit_tokens"))
            .unwrap_or(0);
        self.response.figures = Figures {
            // The prompt includes what came from the cache.
            input: Some(prompt.saturating_sub(cached)),
            output: Some(output),
            cache_read: Some(cached.min(prompt)),
            cache_creation: None,
        };
    }

    fn stop(&mut self, out: &mut Vec<ModelEvent>) {
        let Some(reason) = self.finish_reason.take() else { return };
        for call in std::mem::take(&mut self.calls) {
            self.response.call(&call.id, call.name, call.arguments, out);
        }
        let reason = if self.refused { "refusal" } else { &reason };
        self.response.stop(reason, "length", out);
    }
}

/// Whether a piece with the place of `call` is nevertheless the start of another one: a name after arguments, unless it
/// only repeats the call's own.
fn begins_another(call: &Call, piece: &Piece<'_>) -> bool {
    if piece.name.is_empty() || call.arguments.is_empty() {
        return false;
    }
    let opens = piece.arguments.trim_start().starts_with('{') && json::is_valid(call.arguments.as_bytes());
    piece.name != call.name || (opens && (piece.id.is_empty() || piece.id != call.id))
}

/// What a chunk adds that does nothing but add a piece of text or of thinking. What it does not know must be absent, or
/// null, wherever `Decoder` looks.
fn plain_delta(data: &[u8]) -> Option<Found<'_>> {
    let (mut choices, mut filler, mut plain) = (None, None, true);
    json::each_member(data, |key, value| match key {
        b"choices" => plain &= choices.replace(value).is_none(),
        b"obfuscation" => plain &= filler.replace(value).is_none(),
        b"usage" | b"error" => plain &= value == b"null",
        b"object" => plain &= value != b"\"error\"",
        _ => {}
    })?;
    let choice = choices?.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut delta = None;
    json::each_member(choice, |key, value| match key {
        b"delta" => plain &= delta.replace(value).is_none(),
        b"message" | b"finish_reason" | b"usage" => plain &= value == b"null",
        _ => {}
    })?;
    let mut found = None;
    json::each_member(delta?, |key, value| {
        let piece = match key {
            b"content" => Added::Text,
            b"reasoning_content" | b"reasoning" => Added::Thinking,
            b"role" => return,
            _ => return plain &= value == b"null",
        };
        if value != b"null" {
            plain &= found.replace((piece, value)).is_none();
        }
    })?;
    let (piece, text) = found?;
    let strings = [Some(text), filler].into_iter().flatten().all(|raw| raw.starts_with(b"\""));
    (plain && strings).then_some(Found { piece, text, count: None, filler })
}

impl EventDecoder for Decoder {
    fn event(&mut self, name: &str, data: &[u8], out: &mut Vec<ModelEvent>) {
        if data.trim_ascii() == b"[DONE]" {
            self.stop(out);
            if !self.response.done {
                self.response.done = true;
                out.push(ModelEvent::Failed(broken("the stream ended without a finish_reason".to_owned())));
            }
            return;
        }
        let data = json::clean(data);
        let data = data.as_bytes();
        let (mut choices, mut usage, mut error) = (None, None, false);
        let whole = json::each_member(data, |key, value| match key {
            b"choices" => choices = Some(value),
            b"usage" => usage = Some(value),
            b"error" => error |= value != b"null",
            b"object" => error |= value == b"\"error\"",
            _ => {}
        });
        if name == "error" || (error && whole.is_some()) {
            return self.response.fail(data, out);
        }
        if whole.is_none() {
            return;
        }
        let choices = choices.unwrap_or_default();
        // Nearly always there is exactly one: then it needs no list.
        let inner = choices.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")).unwrap_or_default();
        if self.choice(inner, out).is_none()
            && let Some(first) =
                elements(choices).into_iter().find(|choice| number_of(choice, "index").unwrap_or(0) == 0)
        {
            self.choice(first, out);
        }
        if let Some(usage) = usage {
            self.usage(usage);
        }
    }

    fn take_ahead(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> (usize, u64) {
        // A name could make an event an error.
        if !bytes.starts_with(b"data:") {
            return (0, 0);
        }
        self.ahead.take(bytes, plain_delta).map_or((0, 0), |taken| self.response.added(&taken, out))
    }

    /// `[DONE]` may be missing: a finish_reason is enough.
    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        self.stop(out);
    }

    fn response(&self) -> &Response {
        &self.response
    }
}

#[cfg(test)]
mod tests;
