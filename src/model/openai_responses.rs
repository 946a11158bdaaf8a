//! OpenAI Responses: the request body and the decoder of its stream.

use std::io;

use super::ahead::{Ahead, Found, Piece};
use super::convert::{self, Block, ThinkingBlock, Turn, quoted};
use super::images::{Form, Images};
use super::sse::{EventDecoder, Figures, Response, elements, number_of, text_of};
use super::stream::{Members, Omit};
use super::{BodyParts, ModelEvent, Request, Settings};
use crate::wire::json;

/// How this API takes images.
const IMAGES: Form = Form {
    text: "input_text",
    image: ["{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":\"data:", ";base64,", "\"}"],
};

/// The body, keys in this order: model, max_output_tokens, stream, store, include, instructions, tools, reasoning, the
/// members of `extra_body`, input.
pub(super) fn body<'a>(settings: &Settings, request: &Request<'a>, omit: &Omit) -> io::Result<BodyParts<'a>> {
    let mut head = Members::new(settings.extra_body.as_ref());
    let info = settings.catalog.info(&settings.model);
    head.string("model", &settings.model);
    head.raw("max_output_tokens", &settings.max_tokens.to_string());
    head.raw("stream", "true");
    // Nothing stays on the server: what reasoning needs to go on is sent back by us.
    head.raw("store", "false");
    if !omit.include {
        head.raw("include", r#"["reasoning.encrypted_content"]"#);
    }
    if !request.system.is_empty() {
        head.string("instructions", request.system);
    }
    if let Some(tools) = convert::tools(request.tools, tool) {
        head.raw("tools", &tools);
    }
    if let Some(effort) = convert::effort(settings, &info).filter(|_| !omit.effort) {
        let summary = if omit.summary { "" } else { r#","summary":"auto""# };
        head.raw("reasoning", &format!(r#"{{"effort":"{effort}"{summary}}}"#));
    }
    let mut start = head.finish();
    start.extend_from_slice(b"\"input\":[");
    let mut body = BodyParts::new();
    body.push_bytes(start);
    let images = Images::new(request.images, info.sees() && !omit.images, &IMAGES);
    convert::push_converted(&mut body, request, true, images.as_ref(), items)?;
    body.push_bytes(b"]}".to_vec());
    Ok(body)
}

fn tool(name: &[u8], description: &[u8], schema: &[u8], out: &mut Vec<u8>) {
    for piece in [
        b"{\"type\":\"function\",\"name\":",
        name,
        b",\"description\":",
        description,
        b",\"parameters\":",
        schema,
        b",\"strict\":false}",
    ] {
        out.extend_from_slice(piece);
    }
}

/// How an assistant's message begins. llama.cpp does not know one without its type.
const ASSISTANT: &[u8] = b",{\"type\":\"message\",\"role\":\"assistant\",";

/// The items of one line, each with a comma before it.
fn items(line: &[u8], out: &mut Vec<u8>) {
    match convert::turn(line) {
        None => {}
        Some(Turn::Verbatim(line)) => match line.strip_prefix(b"{\"role\":\"assistant\",") {
            Some(rest) => [ASSISTANT, rest].into_iter().for_each(|piece| out.extend_from_slice(piece)),
            None => {
                out.push(b',');
                out.extend_from_slice(line);
            }
        },
        Some(Turn::User { results, text }) => {
            for result in results {
                for piece in [
                    b",{\"type\":\"function_call_output\",\"call_id\":",
                    result.id,
                    b",\"output\":\"",
                    &result.content,
                    b"\"}",
                ] {
                    out.extend_from_slice(piece);
                }
            }
            convert::user_text(&text, out);
        }
        Some(Turn::Assistant(blocks)) => {
            let last_said = blocks.iter().rposition(|block| !matches!(block, Block::Thinking(_)));
            for (at, block) in blocks.iter().enumerate() {
                match block {
                    // Reasoning is refused without the item that it led to.
                    Block::Thinking(thinking) if last_said.is_some_and(|last| at < last) => {
                        reasoning(thinking, out)
                    }
                    Block::Thinking(_) => {}
                    Block::Text(text) => {
                        for piece in [ASSISTANT, b"\"content\":\"", *text, b"\"}"] {
                            out.extend_from_slice(piece);
                        }
                    }
                    Block::Call(call) => {
                        for piece in [
                            b",{\"type\":\"function_call\",\"call_id\":",
                            call.id,
                            b",\"name\":",
                            call.name,
                            b",\"arguments\":",
                        ] {
                            out.extend_from_slice(piece);
                        }
                        quoted(out, call.input);
                        out.push(b'}');
                    }
                }
            }
        }
    }
}

/// A reasoning item. Its id is only of use with the encrypted content, as the server stores nothing.
fn reasoning(thinking: &ThinkingBlock<'_>, out: &mut Vec<u8>) {
    let (Some(encrypted), Some(id)) = (thinking.signature, thinking.id) else { return };
    for piece in [b",{\"type\":\"reasoning\",\"id\":\"", id, b"\",\"summary\":["] {
        out.extend_from_slice(piece);
    }
    if !thinking.text.is_empty() {
        for piece in [b"{\"type\":\"summary_text\",\"text\":\"", thinking.text, b"\"}"] {
            out.extend_from_slice(piece);
        }
    }
    for piece in [b"],\"encrypted_content\":\"", encrypted, b"\"}"] {
        out.extend_from_slice(piece);
    }
}

/// Decodes the events of a Responses stream. Items come one after the other; the figures and the outcome are in the
/// last event.
pub(super) struct Decoder {
    response: Response,
    calls: Vec<Call>,
    /// The ids of the items that were given whole.
    done_items: Vec<String>,
    /// Items that were given whole without an id.
    done_nameless: bool,
    /// Text, or thinking, of the current item has been streamed.
    streamed: bool,
    refused: bool,
    ahead: Ahead,
}

/// A function call whose end has not come.
#[derive(Default)]
struct Call {
    item_id: String,
    index: Option<u64>,
    call_id: String,
    name: String,
    arguments: String,
}

impl Decoder {
    pub(super) fn new(response: Response) -> Self {
        Self {
            response,
            calls: Vec::new(),
            done_items: Vec::new(),
            done_nameless: false,
            streamed: false,
            refused: false,
            ahead: Ahead::default(),
        }
    }

    /// The open call that an event belongs to: by its item, by its place, else the last one.
    fn open_call(&self, item_id: &str, index: Option<u64>) -> Option<usize> {
        let by_id = self.calls.iter().rposition(|call| !item_id.is_empty() && call.item_id == item_id);
        let by_index = || self.calls.iter().rposition(|call| index.is_some() && call.index == index);
        by_id.or_else(by_index).or_else(|| self.calls.len().checked_sub(1))
    }

    fn added(&mut self, data: &[u8]) {
        self.streamed = false;
        let Some(item) = json::member(data, "item") else { return };
        if text_of(item, "type").as_deref() == Some("function_call") {
            let text = |key| text_of(item, key).unwrap_or_default().into_owned();
            self.calls.push(Call {
                item_id: text("id"),
                index: number_of(data, "output_index"),
                call_id: text("call_id"),
                name: text("name"),
                arguments: text("arguments"),
            });
        }
    }

    fn arguments(&mut self, data: &[u8], whole: bool) {
        let id = text_of(data, "item_id").unwrap_or_default();
        let Some(at) = self.open_call(&id, number_of(data, "output_index")) else { return };
        let call = &mut self.calls[at];
        if whole {
            if let Some(text) = text_of(data, "arguments") {
                call.arguments = text.into_owned();
            }
        } else if let Some(text) = text_of(data, "delta") {
            call.arguments.push_str(&text);
        }
    }

    /// An item is whole. `index` is its place, where the server says it.
    fn item(&mut self, item: &[u8], index: Option<u64>, out: &mut Vec<ModelEvent>) {
        let id = text_of(item, "id").unwrap_or_default();
        match text_of(item, "type").as_deref() {
            Some("function_call") => self.call(item, &id, index, out),
            Some("reasoning") => {
                if !self.streamed {
                    let parts = json::member(item, "summary").map(elements).unwrap_or_default();
                    let other = json::member(item, "content").map(elements).unwrap_or_default();
                    let parts = if parts.is_empty() { other } else { parts };
                    let texts: Vec<_> = parts.into_iter().filter_map(|part| text_of(part, "text")).collect();
                    self.response.thinking(&texts.join("\n\n"), out);
                }
                if let Some(signature) = text_of(item, "encrypted_content") {
                    let id = (!id.is_empty()).then(|| id.clone().into_owned());
                    out.push(ModelEvent::Signature { signature: signature.into_owned(), id });
                }
            }
            Some("message") if !self.streamed => {
                for part in json::member(item, "content").map(elements).unwrap_or_default() {
                    self.refused |= text_of(part, "refusal").is_some();
                    let text = text_of(part, "text").or_else(|| text_of(part, "refusal"));
                    self.response.text(&text.unwrap_or_default(), out);
                }
            }
            _ => {}
        }
        self.streamed = false;
        match id.into_owned() {
            id if id.is_empty() => self.done_nameless = true,
            id => self.done_items.push(id),
        }
    }

    /// A call is whole: what the item says, or what was streamed of it.
    fn call(&mut self, item: &[u8], id: &str, index: Option<u64>, out: &mut Vec<ModelEvent>) {
        let open = self.open_call(id, index).map(|at| self.calls.remove(at)).unwrap_or_default();
        let text = |key, streamed: String| text_of(item, key).map_or(streamed, |text| text.into_owned());
        let call_id = text("call_id", open.call_id);
        let call_id = if call_id.is_empty() { id.to_owned() } else { call_id };
        self.response.call(&call_id, text("name", open.name), text("arguments", open.arguments), out);
    }

    /// The response is over: items that were not given yet, the figures, the outcome.
    fn ended(&mut self, data: &[u8], word: &str, out: &mut Vec<ModelEvent>) {
        let response = json::member(data, "response").unwrap_or(data);
        for item in json::member(response, "output").map(elements).unwrap_or_default() {
            let known = match text_of(item, "id") {
                Some(id) => self.done_items.iter().any(|done| *done == id),
                None => self.done_nameless,
            };
            if !known && !self.streamed {
                self.item(item, None, out);
            }
        }
        for call in std::mem::take(&mut self.calls) {
            let id = if call.call_id.is_empty() { &call.item_id } else { &call.call_id };
            self.response.call(id, call.name, call.arguments, out);
        }
        if let Some(usage) = json::member(response, "usage") {
            self.usage(usage);
        }
        let details = json::member(response, "incomplete_details");
        let reason = details.and_then(|details| text_of(details, "reason"));
        let reason = match reason {
            Some(reason) => reason.into_owned(),
            None if self.refused => "refusal".to_owned(),
            None => word.to_owned(),
        };
        self.response.stop(&reason, "max_output_tokens", out);
    }

    fn usage(&mut self, raw: &[u8]) {
        let Some(input) = number_of(raw, "input_tokens") else { return };
        let details = json::member(raw, "input_tokens_details");
        let cached = details.and_then(|details| number_of(details, "cached_tokens")).unwrap_or(0);
        self.response.figures = Figures {
            input: Some(input.saturating_sub(cached)),
            output: number_of(raw, "output_tokens"),
            cache_read: Some(cached.min(input)),
            cache_creation: None,
        };
    }
}

/// What an event adds that does nothing but add a piece of text or of thinking.
fn plain_delta(data: &[u8]) -> Option<Found<'_>> {
    let (mut word, mut text, mut count, mut filler, mut plain) = (None, None, None, None, true);
    json::each_member(data, |key, value| match key {
        b"type" => plain &= word.replace(value).is_none(),
        b"delta" => plain &= text.replace(value).is_none(),
        b"sequence_number" => plain &= count.replace(value).is_none(),
        b"obfuscation" => plain &= filler.replace(value).is_none(),
        _ => {}
    })?;
    let piece = match word? {
        b"\"response.output_text.delta\"" => Piece::Text,
        b"\"response.reasoning_summary_text.delta\"" | b"\"response.reasoning_text.delta\"" => {
            Piece::Thinking
        }
        _ => return None,
    };
    let strings = [text, filler].into_iter().flatten().all(|raw| raw.starts_with(b"\""));
    (plain && strings).then_some(Found { piece, text: text?, count, filler })
}

impl EventDecoder for Decoder {
    fn event(&mut self, name: &str, data: &[u8], out: &mut Vec<ModelEvent>) {
        let data = json::clean(data);
        let data = data.as_bytes();
        let (mut word, mut delta, mut error) = (None, None, false);
        let whole = json::each_member(data, |key, value| match key {
            b"type" => word = Some(value),
            b"delta" => delta = Some(value),
            b"error" => error = value != b"null",
            _ => {}
        });
        if whole.is_none() {
            // Of a broken event nothing counts, unless its name alone says all.
            (word, delta, error) = (None, None, false);
        }
        let word = word.and_then(json::string).filter(|word| !word.is_empty());
        let word = word.as_deref().unwrap_or(name);
        let delta = || delta.and_then(json::string).unwrap_or_default();
        match word {
            "response.output_text.delta" => {
                self.streamed = true;
                self.response.text(&delta(), out);
            }
            "response.refusal.delta" => {
                (self.streamed, self.refused) = (true, true);
                self.response.text(&delta(), out);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.streamed = true;
                self.response.thinking(&delta(), out);
            }
            "response.reasoning_summary_part.added" if self.streamed => self.response.thinking("\n\n", out),
            "response.function_call_arguments.delta" => self.arguments(data, false),
            "response.function_call_arguments.done" => self.arguments(data, true),
            "response.output_item.added" => self.added(data),
            "response.output_item.done" => {
                if let Some(item) = json::member(data, "item") {
                    self.item(item, number_of(data, "output_index"), out);
                }
            }
            "response.completed" => self.ended(data, "completed", out),
            "response.incomplete" => self.ended(data, "incomplete", out),
            "response.failed" | "error" => self.response.fail(data, out),
            "" if error => self.response.fail(data, out),
            _ => {}
        }
    }

    fn take_ahead(&mut self, bytes: &[u8], out: &mut Vec<ModelEvent>) -> (usize, u64) {
        let Some(taken) = self.ahead.take(bytes, plain_delta) else { return (0, 0) };
        self.streamed = true;
        self.response.added(&taken, out)
    }

    /// Without `response.completed` the response is broken, however cleanly the body ended.
    fn end(&mut self, _out: &mut Vec<ModelEvent>) {}

    fn response(&self) -> &Response {
        &self.response
    }
}

#[cfg(test)]
mod tests;
