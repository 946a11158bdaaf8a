//! What an API would reject in a conversation, and how a request leaves it out or completes it (CONTRACT §4). The file
//! stays as it is; these are the rules, line after line:
//!
//! 1. A line that is no JSON, no UTF-8 or no message is left out. `"input":}` becomes `"input":{}`.
//! 2. Blank text, thinking that may not be sent, thinking at a message's end, and blocks of the wrong role are left
//!    out; a message that is left with nothing is left out, and so is an assistant message before any user's.
//! 3. After a message with calls comes one with their results, in the order of the calls: a result that is missing is
//!    made up, as an error; a result without a call is left out; an empty one is `(no output)`.
//! 4. A call's id that no API takes, or that was used before, is changed, in its result too.
//! 5. Where the window is full, a result of more than `LARGE` bytes in an old line is replaced by a line that says so.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::conversation::{NO_OUTPUT, ToolResult, tool_result_into, tool_results_line};
use crate::wire::json;

/// What stands in for a result that a crash has taken.
pub const LOST_RESULT: &str =
    "Error: interrupted: no result was recorded; the outcome is unknown and side effects are possible";

/// A result whose JSON string is longer than this, in bytes, can be left out.
const LARGE: usize = 1000;

const BROKEN_INPUT: &[u8] = br#""input":}"#;

/// What may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowOptions {
    /// Thinking in lines that begin before this byte offset is left out (`Meta::thinking_from`).
    pub thinking_from: u64,
    /// Large tool results in lines that begin before this byte offset are left out (`Meta::results_from`).
    pub results_from: u64,
    /// Only the lines before this byte offset (where a line begins); `None` = all of them.
    pub until: Option<u64>,
    /// Leave out thinking without a signature. Empty thinking without one is always left out.
    pub drop_unsigned: bool,
    /// Leave out thinking with a signature, and redacted thinking.
    pub drop_signed: bool,
    /// Parse every line however long the conversation is: for the second try after an API has called a request
    /// invalid. Without it lines of a conversation over 1 MiB are parsed only where their bytes look suspicious.
    pub strict: bool,
}

/// What was left out or made up, for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// The numbers of the first lines that could not be read.
    bad_lines: Vec<u64>,
    bad_count: u64,
    orphans: u64,
    missing: u64,
    leading: u64,
}

impl Report {
    fn bad(&mut self, number: u64) {
        self.bad_count += 1;
        if self.bad_lines.len() < 5 {
            self.bad_lines.push(number);
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.bad_count > 0 {
            let numbers: Vec<_> = self.bad_lines.iter().map(u64::to_string).collect();
            let more = if self.bad_count > self.bad_lines.len() as u64 { ", …" } else { "" };
            notes.push(format!(
                "conversation.jsonl: {} that cannot be read left out of the request (line {}{more})",
                counted(self.bad_count, "line"),
                numbers.join(", ")
            ));
        }
        for (count, thing, what) in [
            (self.orphans, "tool result", "without a call left out of the request"),
            (self.missing, "tool call", "without a result sent as interrupted"),
            (self.leading, "answer", "before the first question left out of the request"),
        ] {
            if count > 0 {
                notes.push(format!("conversation.jsonl: {} {what}", counted(count, thing)));
            }
        }
        notes
    }
}

fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A part of a mended line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Bytes of the line as it stands in the file.
    Keep(Range<usize>),
    /// Bytes that are not there.
    Text(Vec<u8>),
}

/// What becomes of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is sent as it is.
    Keep,
    /// It is left out.
    Drop,
    /// These are sent.
    Pieces(Vec<Piece>),
}

/// What becomes of a line, and the message to be sent before it, if any.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) before: Option<Vec<u8>>,
    pub(super) verdict: Verdict,
}

/// What a look at a line's bytes says when they are as we write them. The ids are ranges of the line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quick<'a> {
    /// A true user turn that is not blank.
    UserText,
    /// An assistant message whose blocks all hold something; its thinking is signed and not at the end.
    Assistant { calls: &'a [Range<usize>], thinks: bool },
    /// A message of nothing but results that hold something.
    Results { ids: &'a [Range<usize>] },
}

/// A call that waits for its result.
#[derive(Clone, Debug)]
struct Call {
    id: String,
    /// Its id in the request, where that differs.
    sent: Option<String>,
}

/// Goes through a conversation, line by line, and keeps what the rules must remember.
pub(super) struct Mender {
    options: WindowOptions,
    /// A user's message is sent.
    started: bool,
    pending: Vec<Call>,
    /// Hashes of all ids of calls sent.
    seen: HashSet<u64>,
    hasher: RandomState,
    report: Report,
}

impl Mender {
    pub(super) fn new(options: WindowOptions) -> Self {
        Self {
            options,
            started: false,
            pending: Vec::new(),
            seen: HashSet::new(),
            hasher: RandomState::new(),
            report: Report::default(),
        }
    }

    /// Whether a line that looked well can be sent as it is; if not, `line` must decide.
    pub(super) fn quick(&mut self, quick: Quick<'_>, line: &[u8], offset: u64) -> bool {
        match quick {
            Quick::UserText => {
                self.started |= self.pending.is_empty();
                self.pending.is_empty()
            }
            Quick::Results { ids } => {
                let fits = !self.leaves_out(line.len(), offset)
                    && !ids.is_empty()
                    && ids.len() == self.pending.len()
                    && ids
                        .iter()
                        .zip(&self.pending)
                        .all(|(id, call)| call.sent.is_none() && &line[id.clone()] == call.id.as_bytes());
                if fits {
                    self.pending.clear();
                }
                fits
            }
            Quick::Assistant { calls, thinks } => {
                let thinks_in_vain =
                    thinks && (self.options.drop_signed || offset < self.options.thinking_from);
                if !self.started || !self.pending.is_empty() || thinks_in_vain {
                    return false;
                }
                let ids: Option<Vec<&str>> =
                    calls.iter().map(|id| std::str::from_utf8(&line[id.clone()]).ok()).collect();
                let Some(ids) = ids else { return false };
                let new = |id: &&str| !self.seen.contains(&self.hasher.hash_one(*id));
                let twice = ids.iter().enumerate().any(|(index, id)| ids[..index].contains(id));
                if twice || !ids.iter().all(new) {
                    return false;
                }
                for id in ids {
                    self.seen.insert(self.hasher.hash_one(id));
                    self.pending.push(Call { id: id.to_owned(), sent: None });
                }
                true
            }
        }
    }

    /// What becomes of the line `number` (from 1) at byte `offset`, given without its line feed. Blank lines are no
    /// lines and must not be given.
    pub(super) fn line(&mut self, line: &[u8], offset: u64, number: u64) -> Step {
        let mended = mended(line);
        let Some(message) = Message::parse(&mended) else {
            self.report.bad(number);
            return Step { before: None, verdict: Verdict::Drop };
        };
        let before = self.before(&message);
        let pieces = match message.role {
            Role::User => self.user(&mended, &message, self.leaves_out(line.len(), offset)),
            Role::Assistant => self.assistant(&mended, &message, offset),
        };
        let verdict = match (pieces, &mended) {
            (None, _) => Verdict::Drop,
            (Some(pieces), Cow::Borrowed(_)) if pieces == [Piece::Keep(0..line.len())] => Verdict::Keep,
            (Some(pieces), Cow::Borrowed(_)) => Verdict::Pieces(pieces),
            // What was kept of a text that is not in the file is text.
            (Some(pieces), Cow::Owned(text)) => Verdict::Pieces(vec![Piece::Text(joined(&pieces, text))]),
        };
        Step { before, verdict }
    }

    /// The message to be sent at the end, if any.
    pub(super) fn finish(&mut self) -> Option<Vec<u8>> {
        self.lost_results()
    }

    pub(super) fn into_report(self) -> Report {
        self.report
    }

    /// The results that are missing before `message`: it is the next after a message with calls, and has none.
    fn before(&mut self, message: &Message<'_>) -> Option<Vec<u8>> {
        let answers = match &message.body {
            Body::Blocks(blocks) => {
                message.role == Role::User
                    && blocks.iter().any(|block| matches!(block.kind, Kind::Result { .. }))
            }
            Body::Text { .. } => false,
        };
        if answers { None } else { self.lost_results() }
    }

    fn lost_results(&mut self) -> Option<Vec<u8>> {
        if self.pending.is_empty() {
            return None;
        }
        self.report.missing += self.pending.len() as u64;
        let lost = |call: Call| ToolResult {
            id: call.sent.unwrap_or(call.id),
            content: LOST_RESULT.to_owned(),
            is_error: true,
        };
        let results: Vec<_> = self.pending.drain(..).map(lost).collect();
        Some(tool_results_line(&results))
    }

    /// Whether large results of a line of this length, at this offset, are left out.
    fn leaves_out(&self, length: usize, offset: u64) -> bool {
        offset < self.options.results_from && length > LARGE
    }

    fn user(&mut self, line: &[u8], message: &Message<'_>, leaves_out: bool) -> Option<Vec<Piece>> {
        let blocks = match &message.body {
            Body::Text { blank } => {
                self.started |= !blank;
                return (!blank).then(|| message.wrapped(line, &[]));
            }
            Body::Blocks(blocks) => blocks,
        };
        let mut results: Vec<Option<&Block>> =
            blocks.iter().filter(|block| matches!(block.kind, Kind::Result { .. })).map(Some).collect();
        let mut parts = Vec::new();
        for call in std::mem::take(&mut self.pending) {
            let own = |slot: &&mut Option<&Block>| {
                slot.is_some_and(|block| block.kind.result_id() == Some(&call.id))
            };
            match results.iter_mut().find(own).and_then(Option::take) {
                Some(block) => parts.push(block.result_parts(line, call.sent.as_deref(), leaves_out)),
                None => {
                    self.report.missing += 1;
                    let mut text = Vec::new();
                    tool_result_into(&mut text, call.sent.as_deref().unwrap_or(&call.id), LOST_RESULT, true);
                    parts.push(vec![Piece::Text(text)]);
                }
            }
        }
        self.report.orphans += results.iter().flatten().count() as u64;
        let others =
            blocks.iter().filter(|block| matches!(block.kind, Kind::Text { blank: false } | Kind::Other));
        parts.extend(others.map(|block| vec![Piece::Keep(block.range.clone())]));
        self.started |= !parts.is_empty();
        (!parts.is_empty()).then(|| message.wrapped(line, &parts))
    }

    fn assistant(&mut self, line: &[u8], message: &Message<'_>, offset: u64) -> Option<Vec<Piece>> {
        if !self.started {
            self.report.leading += 1;
            return None;
        }
        let blocks = match &message.body {
            Body::Text { blank } => return (!blank).then(|| message.wrapped(line, &[])),
            Body::Blocks(blocks) => blocks,
        };
        let mut kept: Vec<&Block> = blocks.iter().filter(|block| self.keeps(&block.kind, offset)).collect();
        while kept.last().is_some_and(|block| matches!(block.kind, Kind::Thinking { .. } | Kind::Redacted)) {
            kept.pop();
        }
        let mut parts = Vec::new();
        for block in kept {
            let Kind::Call { id, .. } = &block.kind else {
                parts.push(vec![Piece::Keep(block.range.clone())]);
                continue;
            };
            let sent = self.new_id(id);
            parts.push(block.call_parts(line, sent.as_deref()));
            self.pending.push(Call { id: id.clone(), sent });
        }
        (!parts.is_empty()).then(|| message.wrapped(line, &parts))
    }

    /// Whether an assistant's block is sent.
    fn keeps(&self, kind: &Kind, offset: u64) -> bool {
        let thinking_fits = offset >= self.options.thinking_from;
        match kind {
            Kind::Text { blank } => !blank,
            Kind::Thinking { signed: true, .. } | Kind::Redacted => {
                thinking_fits && !self.options.drop_signed
            }
            Kind::Thinking { signed: false, empty } => thinking_fits && !empty && !self.options.drop_unsigned,
            Kind::Call { .. } | Kind::Other => true,
            Kind::Result { .. } | Kind::Broken => false,
        }
    }

    /// Marks an id as used; gives another one when it cannot be sent.
    fn new_id(&mut self, id: &str) -> Option<String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let base: String = id.chars().map(|c| if fits(c) { c } else { '_' }).collect();
        let base = if base.is_empty() { "call".to_owned() } else { base };
        let mut sent = base.clone();
        let mut number = 1u64;
        while !self.seen.insert(self.hasher.hash_one(sent.as_str())) {
            number += 1;
            sent = format!("{base}_{number}");
        }
        (sent != id).then_some(sent)
    }
}

fn joined(pieces: &[Piece], text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for piece in pieces {
        match piece {
            Piece::Keep(range) => out.extend_from_slice(&text[range.clone()]),
            Piece::Text(text) => out.extend_from_slice(text),
        }
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
}

/// A parsed line. Ranges are of the line.
struct Message<'a> {
    role: Role,
    content: Range<usize>,
    body: Body,
    /// Nothing stands around role and content that the API does not know.
    canonical: bool,
    role_text: &'a str,
}

enum Body {
    Text { blank: bool },
    Blocks(Vec<Block>),
}

struct Block {
    range: Range<usize>,
    kind: Kind,
}

enum Kind {
    Text {
        blank: bool,
    },
    Thinking {
        empty: bool,
        signed: bool,
    },
    Redacted,
    Call {
        id: String,
        id_range: Range<usize>,
        name: Range<usize>,
        input: Option<Range<usize>>,
    },
    Result {
        id: String,
        id_range: Range<usize>,
        content: Option<Range<usize>>,
        empty: bool,
    },
    Other,
    /// What no API would take.
    Broken,
}

impl Kind {
    fn result_id(&self) -> Option<&String> {
        match self {
            Self::Result { id, .. } => Some(id),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow)]
    role: &'a RawValue,
    #[serde(borrow)]
    content: &'a RawValue,
}

impl<'a> Message<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let raw: RawMessage<'a> = serde_json::from_str(text).ok()?;
        let role = match json::string(raw.role.get().as_bytes())?.as_ref() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => return None,
        };
        let content = range_in(line, raw.content);
        let body = match raw.content.get().as_bytes().first()? {
            b'"' => Body::Text { blank: is_blank(raw.content.get().as_bytes()) },
            b'[' => {
                let values: Vec<&RawValue> = serde_json::from_str(raw.content.get()).ok()?;
                Body::Blocks(values.into_iter().map(|value| Block::parse(line, value, role)).collect())
            }
            _ => return None,
        };
        let canonical = line[..content.start] == *prefix(role).as_bytes() && line[content.end..] == *b"}";
        Some(Self { role, content, body, canonical, role_text: prefix(role) })
    }

    /// The message around `parts` (its blocks), or around its text when there are none.
    fn wrapped(&self, line: &[u8], parts: &[Vec<Piece>]) -> Vec<Piece> {
        let mut out = Pieces { line, list: Vec::new() };
        if self.canonical {
            out.keep(0..self.content.start);
        } else {
            out.text(self.role_text.as_bytes());
        }
        if matches!(self.body, Body::Text { .. }) {
            out.keep(self.content.clone());
        } else {
            out.text(b"[");
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    out.text(b",");
                }
                out.all(part);
            }
            out.text(b"]");
        }
        out.text(b"}");
        out.list
    }
}

/// What stands before the content, as we write it.
fn prefix(role: Role) -> &'static str {
    match role {
        Role::User => r#"{"role":"user","content":"#,
        Role::Assistant => r#"{"role":"assistant","content":"#,
    }
}

#[derive(Deserialize)]
struct RawBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: &'a RawValue,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use_id: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

impl Block {
    fn parse(line: &[u8], value: &RawValue, role: Role) -> Self {
        let range = range_in(line, value);
        let raw: Option<RawBlock<'_>> = serde_json::from_str(value.get()).ok();
        let kind = raw.and_then(|raw| Self::kind(line, &raw, role)).unwrap_or(Kind::Broken);
        Self { range, kind }
    }

    fn kind(line: &[u8], raw: &RawBlock<'_>, role: Role) -> Option<Kind> {
        let string = |value: Option<&RawValue>| json::string(value?.get().as_bytes()).map(Cow::into_owned);
        Some(match (json::string(raw.kind.get().as_bytes())?.as_ref(), role) {
            ("text", _) => Kind::Text { blank: is_blank(raw.text?.get().as_bytes()) },
            ("thinking", Role::Assistant) => Kind::Thinking {
                empty: string(raw.thinking)?.is_empty(),
                signed: string(raw.signature).is_some_and(|signature| !signature.is_empty()),
            },
            ("redacted_thinking", Role::Assistant) => Kind::Redacted,
            ("tool_use", Role::Assistant) => Kind::Call {
                id: string(raw.id)?,
                id_range: range_in(line, raw.id?),
                name: string(raw.name)
                    .filter(|name| !name.is_empty())
                    .and(Some(range_in(line, raw.name?)))?,
                input: raw
                    .input
                    .filter(|input| input.get().starts_with('{'))
                    .map(|input| range_in(line, input)),
            },
            ("tool_result", Role::User) => Kind::Result {
                id: string(raw.tool_use_id)?,
                id_range: range_in(line, raw.tool_use_id?),
                content: raw.content.map(|content| range_in(line, content)),
                empty: raw.content.is_none_or(|content| matches!(content.get(), "\"\"" | "null" | "[]")),
            },
            ("thinking" | "redacted_thinking" | "tool_use" | "tool_result", _) => Kind::Broken,
            _ => Kind::Other,
        })
    }

    /// A call, under another id when one is given; input that is no object is `{}`.
    fn call_parts(&self, line: &[u8], sent: Option<&str>) -> Vec<Piece> {
        let Kind::Call { id_range, name, input, .. } = &self.kind else { return Vec::new() };
        if let Some(input) = input {
            let Some(sent) = sent else { return vec![Piece::Keep(self.range.clone())] };
            // The id may stand anywhere in the block, but never within the input.
            debug_assert!(id_range.end <= input.start || id_range.start >= input.end);
            return self.with(id_range, quoted(sent));
        }
        let id = sent.map_or_else(|| line[id_range.clone()].to_vec(), quoted);
        let text = [
            br#"{"type":"tool_use","id":"#,
            id.as_slice(),
            br#","name":"#,
            &line[name.clone()],
            br#","input":{}}"#,
        ];
        vec![Piece::Text(text.concat())]
    }

    /// A result, under another id when one is given; empty content is `(no output)`.
    fn result_parts(&self, line: &[u8], sent: Option<&str>, leaves_out: bool) -> Vec<Piece> {
        let Kind::Result { id, id_range, content, empty } = &self.kind else { return Vec::new() };
        if let Some(size) = self.large(line).filter(|_| leaves_out) {
            let is_error = json::member(&line[self.range.clone()], "is_error") == Some(b"true");
            let mut text = Vec::new();
            tool_result_into(&mut text, sent.unwrap_or(id), &left_out(size), is_error);
            return vec![Piece::Text(text)];
        }
        match (empty, content, sent) {
            (false, _, None) => vec![Piece::Keep(self.range.clone())],
            (false, _, Some(sent)) => self.with(id_range, quoted(sent)),
            (true, Some(content), None) => self.with(content, quoted(NO_OUTPUT)),
            (true, _, _) => {
                let is_error = json::member(&line[self.range.clone()], "is_error") == Some(b"true");
                let mut text = Vec::new();
                tool_result_into(&mut text, sent.unwrap_or(id), "", is_error);
                vec![Piece::Text(text)]
            }
        }
    }

    /// The bytes of a large result's text, as they stand between its quotes; `None` for any other block.
    fn large(&self, line: &[u8]) -> Option<usize> {
        let Kind::Result { content: Some(content), .. } = &self.kind else { return None };
        (content.len() > LARGE + 2 && line[content.start] == b'"').then(|| content.len() - 2)
    }

    /// The block with `text` in the place of `range`.
    fn with(&self, range: &Range<usize>, text: Vec<u8>) -> Vec<Piece> {
        vec![
            Piece::Keep(self.range.start..range.start),
            Piece::Text(text),
            Piece::Keep(range.end..self.range.end),
        ]
    }
}

/// What stands in the place of a result of so many bytes.
fn left_out(size: usize) -> String {
    format!("[... {size} bytes left out: the context is full. Run the call again if you need its result ...]")
}

/// How many bytes a line has less when its large results are left out.
pub(super) fn saving(line: &[u8]) -> u64 {
    if line.len() <= LARGE || memmem::find(line, br#""tool_result""#).is_none() {
        return 0;
    }
    let line = without_lone_surrogates(line).map_or(Cow::Borrowed(line), Cow::Owned);
    let Some(Message { role: Role::User, body: Body::Blocks(blocks), .. }) = Message::parse(&line) else {
        return 0;
    };
    let sizes = blocks.iter().filter_map(|block| block.large(&line));
    sizes.map(|size| (size - left_out(size).len()) as u64).sum()
}

fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    json::string_into(&mut out, text);
    out
}

/// Where a value borrowed from `line` stands in it.
fn range_in(line: &[u8], value: &RawValue) -> Range<usize> {
    let start = (value.get().as_ptr() as usize).saturating_sub(line.as_ptr() as usize);
    start..start + value.get().len()
}

/// Whether the body of a JSON string is nothing but white space.
pub(crate) fn is_blank_body(body: &[u8]) -> bool {
    json::unescape(body).trim().is_empty()
}

/// Whether a raw value is no string, or one of nothing but white space.
fn is_blank(raw: &[u8]) -> bool {
    json::string(raw).is_none_or(|text| text.trim().is_empty())
}

/// Pieces of one line, as few as possible.
struct Pieces<'a> {
    line: &'a [u8],
    list: Vec<Piece>,
}

impl Pieces<'_> {
    fn keep(&mut self, range: Range<usize>) {
        match self.list.last_mut() {
            Some(Piece::Keep(last)) if last.end == range.start => last.end = range.end,
            _ => self.list.push(Piece::Keep(range)),
        }
    }

    fn text(&mut self, text: &[u8]) {
        match self.list.last_mut() {
            Some(Piece::Keep(last)) if self.line[last.end..].starts_with(text) => last.end += text.len(),
            Some(Piece::Text(last)) => last.extend_from_slice(text),
            _ => self.list.push(Piece::Text(text.to_vec())),
        }
    }

    fn all(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            match piece {
                Piece::Keep(range) => self.keep(range.clone()),
                Piece::Text(text) => self.text(text),
            }
        }
    }
}

/// The line with the faults that can be told from the bytes alone mended: `"input":}`, and halves of surrogate pairs,
/// which are valid JSON that no API takes.
fn mended(line: &[u8]) -> Cow<'_, [u8]> {
    let line = match memmem::find(line, BROKEN_INPUT) {
        None => Cow::Borrowed(line),
        Some(_) => Cow::Owned(with_inputs(line)),
    };
    match without_lone_surrogates(&line) {
        None => line,
        Some(text) => Cow::Owned(text),
    }
}

/// A quote in a string is escaped, so these bytes are a key and what follows it.
fn with_inputs(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len() + 16);
    let mut rest = line;
    while let Some(at) = memmem::find(rest, BROKEN_INPUT) {
        let colon = at + BROKEN_INPUT.len() - 1;
        out.extend_from_slice(&rest[..colon]);
        out.extend_from_slice(b"{}");
        rest = &rest[colon..];
    }
    out.extend_from_slice(rest);
    out
}

/// The line with each `\ud8xx` … `\udfxx` that is no half of a pair as `\ufffd`; `None` when there is none.
fn without_lone_surrogates(line: &[u8]) -> Option<Vec<u8>> {
    memmem::find(line, b"\\ud").or_else(|| memmem::find(line, b"\\uD"))?;
    let mut out = line.to_vec();
    let mut changed = false;
    let mut at = 0;
    while let Some(step) = memchr::memchr(b'\\', &line[at..]) {
        at += step;
        match (surrogate(line, at), surrogate(line, at + 6)) {
            (Some(Half::High), Some(Half::Low)) => at += 12,
            (Some(_), _) => {
                out[at..at + 6].copy_from_slice(b"\\ufffd");
                changed = true;
                at += 6;
            }
            (None, _) => at += 2,
        }
        if at >= line.len() {
            break;
        }
    }
    changed.then_some(out)
}

enum Half {
    High,
    Low,
}

/// The half of a pair that the escape at `at` is.
fn surrogate(line: &[u8], at: usize) -> Option<Half> {
    let digits = line.get(at..at + 6)?.strip_prefix(b"\\u")?;
    match u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()? {
        0xd800..=0xdbff => Some(Half::High),
        0xdc00..=0xdfff => Some(Half::Low),
        _ => None,
    }
}

/// Whether a line is a JSON object, once what we can mend in it is mended.
pub(super) fn is_readable(line: &[u8]) -> bool {
    if line.trim_ascii_start().first() != Some(&b'{') {
        return false;
    }
    json::is_valid(line) || (memmem::find(line, BROKEN_INPUT).is_some() && json::is_valid(&with_inputs(line)))
}

/// The ids of the calls in an assistant line; none for any other line.
pub(super) fn calls(line: &[u8]) -> Vec<String> {
    let line = mended(line);
    match Message::parse(&line) {
        Some(Message { role: Role::Assistant, body: Body::Blocks(blocks), .. }) => {
            let id = |block: Block| match block.kind {
                Kind::Call { id, .. } => Some(id),
                _ => None,
            };
            blocks.into_iter().filter_map(id).collect()
        }
        _ => Vec::new(),
    }
}
