//! What the two OpenAI APIs share: reading the lines of the conversation, and writing them anew as they are read.

use std::io::{self, Seek, SeekFrom, Write};

use super::catalog::{ModelInfo, ThinkingKind};
use super::images::Images;
use super::sse::elements;
use super::{BodyParts, Effort, Request, Settings, Thinking};
use crate::wire::json;

/// Converted bytes kept in memory; what goes beyond lies in a nameless temporary file.
const IN_MEMORY: usize = 4 << 20;

/// How a true user turn begins on disk: both OpenAI APIs take such a line as it is.
pub(super) const USER_TEXT: &[u8] = b"{\"role\":\"user\",\"content\":\"";

/// What a user said beside results (the body of a JSON string), as a message with a comma before it; nothing when empty.
pub(super) fn user_text(text: &[u8], out: &mut Vec<u8>) {
    if text.is_empty() {
        return;
    }
    for piece in [b",", USER_TEXT, text, b"\"}"] {
        out.extend_from_slice(piece);
    }
}

/// One message of the conversation, taken apart. All values are raw JSON.
pub(super) enum Turn<'a> {
    /// A line that goes into the request as it is.
    Verbatim(&'a [u8]),
    /// A user line of blocks: first the tool results, then what else was said.
    User { results: Vec<ToolResult<'a>>, text: Vec<u8> },
    /// An assistant line of blocks.
    Assistant(Vec<Block<'a>>),
}

/// A block of an assistant line.
pub(super) enum Block<'a> {
    /// The body of a JSON string.
    Text(&'a [u8]),
    /// A thinking block.
    Thinking(ThinkingBlock<'a>),
    /// A call.
    Call(Call<'a>),
}

/// A thinking block; strings as raw JSON bodies.
pub(super) struct ThinkingBlock<'a> {
    pub(super) text: &'a [u8],
    pub(super) signature: Option<&'a [u8]>,
    pub(super) id: Option<&'a [u8]>,
}

/// A tool call.
pub(super) struct Call<'a> {
    /// Raw JSON strings.
    pub(super) id: &'a [u8],
    pub(super) name: &'a [u8],
    /// A raw JSON object.
    pub(super) input: &'a [u8],
}

/// A tool's result.
pub(super) struct ToolResult<'a> {
    /// A raw JSON string.
    pub(super) id: &'a [u8],
    /// The body of a JSON string.
    pub(super) content: Vec<u8>,
}

/// Takes a line apart; `None` when there is nothing in it that could be sent.
pub(super) fn turn(line: &[u8]) -> Option<Turn<'_>> {
    if line.starts_with(USER_TEXT) {
        return Some(Turn::Verbatim(line));
    }
    let [role, content] = json::pick(line, ["role", "content"])?;
    let (role, content) = (json::string(role?)?, content?);
    if content.first() == Some(&b'"') {
        return Some(Turn::Verbatim(line));
    }
    let blocks = elements(content);
    match role.as_ref() {
        "assistant" => Some(Turn::Assistant(blocks.into_iter().filter_map(block).collect())),
        "user" => {
            let mut results = Vec::new();
            let mut text = Vec::new();
            for block in blocks {
                let keys = ["type", "tool_use_id", "content", "text"];
                let [kind, id, content, said] = json::pick(block, keys).unwrap_or_default();
                match kind.and_then(json::string).as_deref() {
                    Some("tool_result") => {
                        results.push(ToolResult { id: id.unwrap_or(b"\"\""), content: result_text(content) })
                    }
                    Some("text") => join(&mut text, said.and_then(body_of).unwrap_or_default()),
                    _ => {}
                }
            }
            Some(Turn::User { results, text })
        }
        _ => None,
    }
}

fn block(raw: &[u8]) -> Option<Block<'_>> {
    let keys = ["type", "text", "thinking", "signature", "id", "name", "input"];
    let [kind, text, thinking, signature, id, name, input] = json::pick(raw, keys)?;
    let filled = |raw: Option<_>| raw.and_then(body_of).filter(|body| !body.is_empty());
    match json::string(kind?)?.as_ref() {
        "text" => filled(text).map(Block::Text),
        "thinking" => Some(Block::Thinking(ThinkingBlock {
            text: thinking.and_then(body_of).unwrap_or_default(),
            signature: filled(signature),
            id: filled(id),
        })),
        "tool_use" => Some(Block::Call(Call { id: id?, name: name?, input: input.unwrap_or(b"{}") })),
        _ => None,
    }
}

/// The content of a result: a string, or text blocks that are joined.
fn result_text(content: Option<&[u8]>) -> Vec<u8> {
    if let Some(body) = content.and_then(body_of) {
        return body.to_vec();
    }
    let mut text = Vec::new();
    for part in elements(content.unwrap_or_default()) {
        join(&mut text, json::member(part, "text").and_then(body_of).unwrap_or_default());
    }
    if text.is_empty() { b"(no output)".to_vec() } else { text }
}

/// The body of a raw JSON string, its escapes as they are; `None` of any other value.
fn body_of(raw: &[u8]) -> Option<&[u8]> {
    raw.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Joins bodies of JSON strings by a line feed.
pub(super) fn join(all: &mut Vec<u8>, body: &[u8]) {
    if !all.is_empty() && !body.is_empty() {
        all.extend_from_slice(b"\\n");
    }
    all.extend_from_slice(body);
}

/// Writes raw JSON as the text of a JSON string: the arguments of a call.
pub(super) fn quoted(out: &mut Vec<u8>, raw: &[u8]) {
    json::string_into(out, &json::clean(raw));
}

/// Converted messages on their way into a body.
pub(super) struct Items {
    /// What is not flushed yet. Each item begins with a comma.
    pub(super) out: Vec<u8>,
    /// Bytes of image data among what was written.
    pub(super) image_bytes: u64,
    spool: tempfile::SpooledTempFile,
    len: u64,
    /// The very first comma stands before nothing.
    first: bool,
}

impl Items {
    /// Passes on what is in `out`.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let from = usize::from(self.first && self.len == 0 && !self.out.is_empty());
        self.len += (self.out.len() - from) as u64;
        let written = self.spool.write_all(&self.out[from..]);
        self.out.clear();
        written
    }
}

/// Adds `messages` to a body: what `convert` makes of each line, one pass over the conversation, then the instruction.
/// `convert` writes items that each begin with a comma; the first comma of all is dropped when `first` says so. Lines
/// that name images are written by `images`.
pub(super) fn push_converted<'a>(
    body: &mut BodyParts<'a>,
    request: &Request<'a>,
    first: bool,
    images: Option<&Images<'_>>,
    mut convert: impl FnMut(&[u8], &mut Vec<u8>),
) -> io::Result<()> {
    let spool = tempfile::SpooledTempFile::new(IN_MEMORY);
    let mut items = Items { out: Vec::new(), image_bytes: 0, spool, len: 0, first };
    request.window.lines(&mut |line| {
        let written = match images {
            Some(images) => images.write(line, &mut items)?,
            None => false,
        };
        if !written {
            convert(line, &mut items.out);
        }
        items.flush()
    })?;
    if let Some(instruction) = request.instruction {
        items.out.extend_from_slice(b",{\"role\":\"user\",\"content\":");
        json::string_into(&mut items.out, instruction);
        items.out.push(b'}');
        items.flush()?;
    }
    items.spool.seek(SeekFrom::Start(0))?;
    body.count_image_bytes(items.image_bytes);
    body.push_stream(items.spool, items.len);
    Ok(())
}

/// The tools, each one made by `one` from name, description and schema (raw JSON); `None` when there are none.
pub(super) fn tools(tools: &str, one: impl Fn(&[u8], &[u8], &[u8], &mut Vec<u8>)) -> Option<String> {
    let mut out = b"[".to_vec();
    for tool in elements(tools.as_bytes()) {
        let name = json::member(tool, "name")?;
        let description = json::member(tool, "description").unwrap_or(b"\"\"");
        let schema = json::member(tool, "input_schema").unwrap_or(b"{\"type\":\"object\",\"properties\":{}}");
        if out.len() > 1 {
            out.push(b',');
        }
        one(name, description, schema, &mut out);
    }
    out.push(b']');
    (out.len() > 2).then(|| json::clean(&out).into_owned())
}

/// Whether this is OpenAI's own service, which knows fields that others refuse.
pub(super) fn is_openai(base_url: &str) -> bool {
    let host = base_url.split("://").nth(1).unwrap_or_default().split(['/', ':']).next().unwrap_or_default();
    host == "api.openai.com" || host.ends_with(".openai.azure.com")
}

/// The effort to ask for, in OpenAI's words; none for models that are not known to take one, and when thinking is
/// disabled.
pub(super) fn effort(settings: &Settings, info: &ModelInfo) -> Option<&'static str> {
    let known = info.thinking == ThinkingKind::Effort
        || (info.thinking == ThinkingKind::Unknown
            && is_openai(&settings.base_url)
            && reasons(&settings.model));
    (known && settings.thinking != Thinking::Disabled).then(|| match settings.effort {
        // OpenAI has no word above this.
        Effort::Max => Effort::XHigh.as_str(),
        effort => effort.as_str(),
    })
}

/// Whether a model of OpenAI's that is not in the catalogue reasons, by its name.
fn reasons(model: &str) -> bool {
    let generation =
        model.strip_prefix("gpt-").and_then(|rest| rest.chars().next()).and_then(|c| c.to_digit(10));
    generation.is_some_and(|digit| digit >= 5)
        || (model.starts_with('o') && model[1..].starts_with(|c: char| c.is_ascii_digit()))
}
