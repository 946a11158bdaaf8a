//! The scanners behind input.fifo and notify.fifo (CONTRACT §3): bytes of many writers in, items out.
//!
//! They do no I/O, and time comes in as an `Instant`, so that everything about silence can be tested without waiting.
//! No input ends or wedges them, and what they keep is bounded by `resp::MAX_FRAME` and `MAX_TEXT`.

use std::time::{Duration, Instant};

use memchr::memchr;

use super::json;
use super::message::{Channel, Message};
use super::resp::{self, Begins, Measure, Measuring};

/// Most bytes of one plain text or JSON line.
pub const MAX_TEXT: usize = 64 << 20;

/// Silence after a line feed that ends plain text; the silence that ends the skipping of a broken frame.
const PAUSE: Duration = Duration::from_millis(100);
/// Silence that ends a line without a line feed.
const LINE_PAUSE: Duration = Duration::from_secs(1);
/// Silence after which an incomplete frame is given up.
const FRAME_PAUSE: Duration = Duration::from_secs(5);

/// What came through a FIFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A RESP message of this channel, or one of the JSON lines that mean the same (`interrupt`, `session_end`).
    Message(Message),
    /// Plain text: one user input.
    Text(String),
    /// A JSON `user_input` or `user` line.
    Input {
        /// The text.
        content: String,
        /// The sender's id for it.
        id: Option<String>,
    },
    /// A JSON `user_input` line whose text lies in input.d.
    File {
        /// A bare file name: checked, no path.
        name: String,
        /// The sender's id for it.
        id: Option<String>,
    },
    /// A JSON `sync` line.
    Sync {
        /// What the `sync` event repeats.
        id: String,
    },
    /// A JSON `approval` line.
    Approval {
        /// What is approved.
        id: String,
        /// The answer: a string as it came, or `true`/`false`.
        allow: String,
    },
    /// Something that is no message, in words for an `error` event.
    Problem(String),
}

/// Where a scanner stands in what it has not taken yet.
#[derive(Clone, Copy, Debug)]
enum State {
    /// At the first byte of a message, or in plain text that began there: `line` is where its current line begins,
    /// of which the first `searched` bytes hold no line feed.
    Message { line: usize, searched: usize },
    /// In a RESP frame.
    Frame(Measuring),
    /// Looking for the next line that begins a message. `at_line`: at the first byte of a line. `json`: one that
    /// begins with `{` will do.
    Skip { at_line: bool, json: bool },
}

const START: State = State::Message { line: 0, searched: 0 };

/// Scans the bytes of one FIFO.
///
/// `feed` does not judge silence, `tick` does: call it when `deadline` has passed and the FIFO holds nothing. (A
/// process that was stopped finds bytes in the pipe that were there all the time.)
#[derive(Debug)]
pub struct Scanner {
    channel: Channel,
    buffer: Vec<u8>,
    /// Taken part of `buffer`.
    start: usize,
    state: State,
    /// When the last byte came.
    last: Option<Instant>,
    /// The present run of noise was reported.
    reported: bool,
    /// `MAX_TEXT`, or less in tests.
    max_text: usize,
}

impl Scanner {
    /// A scanner for input.fifo (`Channel::Input`), or for a FIFO that takes frames only (`Channel::Notify`).
    pub fn new(channel: Channel) -> Self {
        Self {
            channel,
            buffer: Vec::new(),
            start: 0,
            state: START,
            last: None,
            reported: false,
            max_text: MAX_TEXT,
        }
    }

    /// Takes bytes that were read at `now` and appends what they complete to `out`.
    pub fn feed(&mut self, bytes: &[u8], now: Instant, out: &mut Vec<Item>) {
        if bytes.is_empty() {
            return;
        }
        self.last = Some(now);
        self.buffer.extend_from_slice(bytes);
        while self.step(out) {}
        self.compact();
    }

    /// Ends what silence until `now` ends.
    pub fn tick(&mut self, now: Instant, out: &mut Vec<Item>) {
        // One silence can end several things: a frame, the frame that its bytes seemed to hold, the skipping.
        while self.deadline().is_some_and(|deadline| deadline <= now) {
            self.end_by_silence(out);
            while self.step(out) {}
        }
        self.compact();
    }

    /// When `tick` is due, should no byte come before; `None` while nothing waits for silence.
    pub fn deadline(&self) -> Option<Instant> {
        let pause = match self.state {
            State::Message { .. } if self.rest().is_empty() => return None,
            State::Message { line, .. } if line == self.rest().len() => PAUSE,
            State::Message { .. } => LINE_PAUSE,
            State::Frame(_) => FRAME_PAUSE,
            State::Skip { .. } => PAUSE,
        };
        self.last.map(|last| last + pause)
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn takes_text(&self) -> bool {
        self.channel == Channel::Input
    }

    fn consume(&mut self, length: usize) {
        self.start += length;
    }

    /// Frees what was taken, without moving the rest for every frame.
    fn compact(&mut self) {
        const KEPT: usize = 1 << 20;
        if self.start * 2 >= self.buffer.len() {
            self.buffer.drain(..self.start);
            self.start = 0;
            if self.buffer.capacity() > KEPT && self.buffer.len() < KEPT {
                self.buffer.shrink_to(KEPT);
            }
        }
    }

    /// Takes one message, line or piece of noise; whether there is more to do before the next byte.
    fn step(&mut self, out: &mut Vec<Item>) -> bool {
        match self.state {
            State::Message { line, searched } => self.step_message(line, searched, out),
            State::Frame(measuring) => self.step_frame(measuring, out),
            State::Skip { at_line, json } => self.step_skip(at_line, json),
        }
    }

    fn step_message(&mut self, line: usize, searched: usize, out: &mut Vec<Item>) -> bool {
        let rest = self.rest();
        let unread = &rest[line..];
        match resp::begins(unread) {
            Begins::Unclear => return false,
            Begins::Frame => {
                self.take_text(line, out);
                self.state = State::Frame(Measuring::default());
                return true;
            }
            Begins::Other if !self.takes_text() => {
                self.give_up("bytes that are no RESP frame", 0, out);
                return true;
            }
            Begins::Other => {}
        }
        let end = memchr(b'\n', &unread[searched..]).map(|found| line + searched + found);
        if end.unwrap_or(rest.len()) > self.max_text {
            self.give_up("a text of more than 64 MiB", line, out);
            // Lines of the same text may begin with `{`.
            self.state = State::Skip { at_line: false, json: false };
            return true;
        }
        match end {
            Some(end) => self.take_line(line, end, end + 1, out),
            None => self.state = State::Message { line, searched: unread.len() },
        }
        end.is_some()
    }

    /// Takes the line `start..end` of a message that may be a JSON line or a line of plain text; the next one begins
    /// at `next`.
    fn take_line(&mut self, start: usize, end: usize, next: usize, out: &mut Vec<Item>) {
        let line = &self.rest()[start..end];
        match json_line(line) {
            JsonLine::Items(items) => {
                self.take_text(start, out);
                out.extend(items);
            }
            JsonLine::Unknown(kind) if start == 0 => {
                out.push(self.problem(&format!("a JSON line of unknown type `{kind}`")));
            }
            _ => {
                self.state = State::Message { line: next, searched: 0 };
                return;
            }
        }
        self.consume(next - start);
        self.state = START;
        self.reported = false;
    }

    /// Takes plain text of `length` bytes: one input, unless it is blank.
    fn take_text(&mut self, length: usize, out: &mut Vec<Item>) {
        let mut text = &self.rest()[..length];
        while let Some(shorter) = text.strip_suffix(b"\n") {
            text = shorter.strip_suffix(b"\r").unwrap_or(shorter);
        }
        let text = json::clean(text);
        if !text.trim().is_empty() {
            out.push(Item::Text(text.into_owned()));
            self.reported = false;
        }
        self.consume(length);
        self.state = START;
    }

    fn step_frame(&mut self, mut measuring: Measuring, out: &mut Vec<Item>) -> bool {
        let rest = self.rest();
        let length = match measuring.go_on(rest) {
            Measure::Complete(length) => length,
            Measure::Incomplete => {
                self.state = State::Frame(measuring);
                return false;
            }
            Measure::Malformed => 0,
        };
        let Some(fields) = resp::fields(&rest[..length]) else {
            self.give_up("a malformed RESP frame", 1, out);
            return true;
        };
        match Message::from_fields(self.channel, &fields) {
            Ok(Message::UserInput { content, .. }) if content.trim().is_empty() => {}
            Ok(message) => out.push(Item::Message(message)),
            Err(error) => out.push(self.problem(&error.to_string())),
        }
        self.consume(length);
        self.state = START;
        self.reported = false;
        true
    }

    /// Reports noise, once a run, drops `length` bytes of it, and goes on at the next line that begins a message.
    fn give_up(&mut self, what: &str, length: usize, out: &mut Vec<Item>) {
        if !self.reported {
            self.reported = true;
            out.push(self.problem(&format!("{what}, skipped")));
        }
        self.consume(length);
        self.state = State::Skip { at_line: false, json: self.takes_text() };
    }

    fn step_skip(&mut self, at_line: bool, json: bool) -> bool {
        let rest = self.rest();
        if at_line {
            match resp::begins(rest) {
                Begins::Unclear => return false,
                Begins::Other if !(json && rest[0] == b'{') => {}
                Begins::Frame | Begins::Other => {
                    self.state = START;
                    return true;
                }
            }
        }
        let line_feed = memchr(b'\n', rest);
        self.consume(line_feed.map_or(rest.len(), |found| found + 1));
        self.state = State::Skip { at_line: line_feed.is_some(), json };
        line_feed.is_some()
    }

    fn end_by_silence(&mut self, out: &mut Vec<Item>) {
        let length = self.rest().len();
        match self.state {
            State::Message { .. } if !self.takes_text() => {
                self.give_up("bytes that are no RESP frame", length, out);
            }
            State::Message { line, .. } => {
                if line < length {
                    self.take_line(line, length, length, out);
                }
                self.take_text(self.rest().len(), out);
                self.reported = false;
            }
            State::Frame(_) => self.give_up("an incomplete RESP frame", 1, out),
            State::Skip { .. } => {
                // What is left can still become a frame's header.
                self.state = START;
                self.reported = length > 0;
            }
        }
    }

    fn problem(&self, what: &str) -> Item {
        let fifo = if self.takes_text() { "input.fifo" } else { "notify.fifo" };
        Item::Problem(format!("{fifo}: {what}"))
    }
}

/// What a line that may be JSON is.
enum JsonLine {
    /// Plain text: no JSON object, or one without a `type`.
    Text,
    /// An object with a type that is none of ours.
    Unknown(String),
    /// One of ours: what it asks for, or what is wrong with it.
    Items(Vec<Item>),
}

/// The members of a JSON line.
struct Object<'a>(Vec<(std::borrow::Cow<'a, str>, &'a [u8])>);

impl Object<'_> {
    /// The raw value of a member; the last one of a repeated name; `null` counts as none.
    fn get(&self, key: &str) -> Option<&[u8]> {
        let (_, raw) = self.0.iter().rev().find(|(name, _)| name == key)?;
        (*raw != b"null").then_some(raw)
    }

    fn string(&self, key: &str) -> Option<String> {
        self.get(key).and_then(json::string).map(std::borrow::Cow::into_owned)
    }

    /// The member `id`: a string or a number. It is stored on a line of its own, so it must be short and in one piece.
    fn id(&self) -> Result<Option<String>, &'static str> {
        let Some(raw) = self.get("id") else { return Ok(None) };
        let number = raw.first().is_some_and(|byte| *byte == b'-' || byte.is_ascii_digit());
        let id = if number { Some(json::clean(raw).into_owned()) } else { self.string("id") };
        match id {
            Some(id) if !id.is_empty() && id.len() <= 200 && !id.contains(char::is_control) => Ok(Some(id)),
            _ => Err("an id that is no string of 1 to 200 bytes without control characters"),
        }
    }

    fn needed_id(&self) -> Result<String, &'static str> {
        self.id()?.ok_or("no id")
    }
}

/// Reads a line as one of the JSON lines of CONTRACT §3.
fn json_line(line: &[u8]) -> JsonLine {
    if line.first() != Some(&b'{') {
        return JsonLine::Text;
    }
    let line = json::clean(line);
    let Some(object) = json::members(line.as_bytes()).map(Object) else { return JsonLine::Text };
    let Some(kind) = object.get("type") else { return JsonLine::Text };
    let kind = json::string(kind).unwrap_or_else(|| json::clean(kind));
    let items = match kind.as_ref() {
        "user_input" => user_input(&object),
        "user" => user(&object),
        "interrupt" => Ok(vec![Item::Message(Message::Interrupt)]),
        "session_end" => Ok(vec![Item::Message(Message::SessionEnd { code: None })]),
        "sync" => object.needed_id().map(|id| vec![Item::Sync { id }]),
        "approval" => approval(&object),
        _ => return JsonLine::Unknown(kind.chars().take(80).collect()),
    };
    JsonLine::Items(
        items.unwrap_or_else(|what| vec![Item::Problem(format!("input.fifo: {kind} with {what}"))]),
    )
}

fn user_input(object: &Object<'_>) -> Result<Vec<Item>, &'static str> {
    let id = object.id()?;
    if let Some(content) = object.string("content") {
        return Ok(input(content, id));
    }
    if object.get("content").is_some() {
        return Err("a content that is no string");
    }
    let name = object.string("file").ok_or("neither content nor file")?;
    let bare = !name.is_empty() && name.len() <= 255 && !name.starts_with('.');
    if !bare || name.contains('/') || name.contains(char::is_control) {
        return Err("a file that is no bare name");
    }
    Ok(vec![Item::File { name, id }])
}

/// Blank input asks for nothing.
fn input(content: String, id: Option<String>) -> Vec<Item> {
    if content.trim().is_empty() { Vec::new() } else { vec![Item::Input { content, id }] }
}

/// A line as other agents' stream-json input has it: a message with text, or with blocks of which the text counts.
fn user(object: &Object<'_>) -> Result<Vec<Item>, &'static str> {
    const NO_CONTENT: &str = "no message content";
    let content =
        object.get("message").and_then(|message| json::member(message, "content")).ok_or(NO_CONTENT)?;
    if let Some(text) = json::string(content) {
        return Ok(input(text.into_owned(), object.id()?));
    }
    let blocks = json::elements(content).ok_or(NO_CONTENT)?;
    let texts: Vec<_> = blocks.iter().filter_map(|block| text_block(block)).collect();
    let mut items = input(texts.join("\n"), object.id()?);
    if texts.len() < blocks.len() {
        let problem = "input.fifo: a user message with blocks other than text, which were left out";
        items.insert(0, Item::Problem(problem.to_owned()));
    }
    Ok(items)
}

fn text_block(block: &[u8]) -> Option<String> {
    let kind = json::member(block, "type").and_then(json::string)?;
    let text = json::member(block, "text").and_then(json::string)?;
    (kind == "text").then(|| text.into_owned())
}

fn approval(object: &Object<'_>) -> Result<Vec<Item>, &'static str> {
    let id = object.needed_id()?;
    let allow = match object.get("allow") {
        Some(b"true") => "true".to_owned(),
        Some(b"false") => "false".to_owned(),
        _ => object.string("allow").ok_or("an allow that is neither a string nor true or false")?,
    };
    Ok(vec![Item::Approval { id, allow }])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One scanner and a clock that only moves when told to.
    struct Fifo {
        scanner: Scanner,
        now: Instant,
        out: Vec<Item>,
    }

    impl Fifo {
        fn new(channel: Channel) -> Self {
            Self { scanner: Scanner::new(channel), now: Instant::now(), out: Vec::new() }
        }

        /// Writes bytes and returns what came out since the last call.
        fn write(&mut self, bytes: impl AsRef<[u8]>) -> Vec<Item> {
            self.scanner.feed(bytes.as_ref(), self.now, &mut self.out);
            std::mem::take(&mut self.out)
        }

        fn wait(&mut self, millis: u64) -> Vec<Item> {
            self.now += Duration::from_millis(millis);
            self.scanner.tick(self.now, &mut self.out);
            std::mem::take(&mut self.out)
        }
    }

    fn frame(fields: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        resp::encode(fields, &mut out);
        out
    }

    fn text(text: &str) -> Item {
        Item::Text(text.to_owned())
    }

    fn user_input(text: &str) -> Item {
        Item::Message(Message::UserInput { seq: "0".to_owned(), content: text.to_owned() })
    }

    fn notify(text: &str) -> Item {
        Item::Message(Message::UserNotify { text: text.to_owned() })
    }

    fn json_input(content: &str, id: Option<&str>) -> Item {
        Item::Input { content: content.to_owned(), id: id.map(str::to_owned) }
    }

    fn problem(text: &str) -> Item {
        Item::Problem(text.to_owned())
    }

    #[test]
    fn frames_come_at_once() {
        let mut fifo = Fifo::new(Channel::Input);
        let stream =
            [frame(&["USER_INPUT", "0", "a\n{b"]), frame(&["USER_INPUT", "c"]), frame(&["INTERRUPT"])]
                .concat();
        assert_eq!(
            fifo.write(stream),
            [user_input("a\n{b"), user_input("c"), Item::Message(Message::Interrupt)]
        );
        assert_eq!(fifo.scanner.deadline(), None);
        assert_eq!(fifo.write(frame(&["USER_INPUT", "0", " \n "])), []);
        let expected = "input.fifo: unknown message `HELLO`";
        assert_eq!(fifo.write(frame(&["HELLO", "x"])), [problem(expected)]);
        assert_eq!(
            fifo.write(frame(&["SESSION_END", "0"])),
            [Item::Message(Message::SessionEnd { code: Some(0) })]
        );
    }

    #[test]
    fn plain_text_ends_with_silence() {
        let mut fifo = Fifo::new(Channel::Input);
        assert_eq!(fifo.write("fix\r\nit\r\n\n"), []);
        assert_eq!(fifo.wait(99), []);
        assert_eq!(fifo.wait(1), [text("fix\r\nit")]);
        assert_eq!(fifo.write("no line feed"), []);
        assert_eq!(fifo.wait(999), []);
        assert_eq!(fifo.wait(1), [text("no line feed")]);
        assert_eq!(fifo.write("two\npie"), []);
        assert_eq!(fifo.wait(500), []);
        assert_eq!(fifo.write("ces\n"), []);
        assert_eq!(fifo.wait(100), [text("two\npieces")]);
        for blank in ["\n", " \t\r\n\n", "\u{3000}\n", " "] {
            assert_eq!(fifo.write(blank), []);
            assert_eq!(fifo.wait(1000), []);
        }
        assert_eq!(fifo.write(b"a\0\xf0b\n"), []);
        assert_eq!(fifo.write(b"\xf0\n"), []);
        assert_eq!(fifo.wait(100), [text("a\u{FFFD}\u{FFFD}b\n\u{FFFD}")]);
    }

    #[test]
    fn silence_is_only_what_tick_is_told() {
        // A stopped process finds bytes that were in the pipe all the time (J6).
        let mut fifo = Fifo::new(Channel::Input);
        let frame = frame(&["USER_INPUT", "0", "long ago"]);
        assert_eq!(fifo.write(&frame[..20]), []);
        fifo.now += Duration::from_secs(60);
        assert_eq!(fifo.write(&frame[20..]), [user_input("long ago")]);
    }

    #[test]
    fn text_ends_before_a_frame_and_before_a_known_json_line() {
        let mut fifo = Fifo::new(Channel::Input);
        let stream = [b"some text\n".as_slice(), &frame(&["USER_INPUT", "0", "x"])].concat();
        assert_eq!(fifo.write(stream), [text("some text"), user_input("x")]);
        let stream =
            "a\n{\"type\":\"interrupt\"}\nb\n{\"type\":\"other\"}\n{\"x\":1}\n{ no json\n* item\n*12 items\n";
        assert_eq!(fifo.write(stream), [text("a"), Item::Message(Message::Interrupt)]);
        assert_eq!(
            fifo.wait(100),
            [text("b\n{\"type\":\"other\"}\n{\"x\":1}\n{ no json\n* item\n*12 items")]
        );
        // Without a line feed at its end, silence ends the JSON line.
        assert_eq!(fifo.write("a\n{\"type\":\"interrupt\"}"), []);
        assert_eq!(fifo.wait(1000), [text("a"), Item::Message(Message::Interrupt)]);
        // Not at a line start: no frame.
        assert_eq!(fifo.write(b"a*1\r\n$9\r\nINTERRUPT\r\n"), []);
        assert_eq!(fifo.wait(100), [text("a*1\r\n$9\r\nINTERRUPT")]);
    }

    #[test]
    fn json_lines_are_taken_by_type() {
        let mut fifo = Fifo::new(Channel::Input);
        let message = Item::Message;
        let cases = [
            (r#"{"type":"user_input","content":"a\nb"}"#, json_input("a\nb", None)),
            (r#"{ "content" : "x", "id":"i-1", "type" : "user_input" } "#, json_input("x", Some("i-1"))),
            (r#"{"type":"user_input","content":"x","id":17}"#, json_input("x", Some("17"))),
            (r#"{"type":"user_input","content":"x","id":null}"#, json_input("x", None)),
            (
                r#"{"type":"user_input","file":"in-1","id":"q"}"#,
                Item::File { name: "in-1".to_owned(), id: Some("q".to_owned()) },
            ),
            (r#"{"type":"user","message":{"role":"user","content":"hi"}}"#, json_input("hi", None)),
            (
                r#"{"type":"user","message":{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}"#,
                json_input("a\nb", None),
            ),
            (r#"{"type":"interrupt"}"#, message(Message::Interrupt)),
            (r#"{"type":"session_end"}"#, message(Message::SessionEnd { code: None })),
            (r#"{"type":"sync","id":"s1"}"#, Item::Sync { id: "s1".to_owned() }),
            (
                r#"{"type":"approval","id":"a1","allow":"always"}"#,
                Item::Approval { id: "a1".to_owned(), allow: "always".to_owned() },
            ),
            (
                r#"{"type":"approval","id":"a1","allow":false}"#,
                Item::Approval { id: "a1".to_owned(), allow: "false".to_owned() },
            ),
            (r#"{"type":"hello"}"#, problem("input.fifo: a JSON line of unknown type `hello`")),
            (r#"{"type":5}"#, problem("input.fifo: a JSON line of unknown type `5`")),
            (r#"{"type":"user_input"}"#, problem("input.fifo: user_input with neither content nor file")),
            (
                r#"{"type":"user_input","content":["x"]}"#,
                problem("input.fifo: user_input with a content that is no string"),
            ),
            (r#"{"type":"user","message":"x"}"#, problem("input.fifo: user with no message content")),
            (r#"{"type":"sync"}"#, problem("input.fifo: sync with no id")),
        ];
        for (line, item) in cases {
            assert_eq!(fifo.write(line.to_owned() + "\r\n"), [item], "{line}");
            assert_eq!(fifo.scanner.deadline(), None);
        }
        assert_eq!(fifo.write("{\"type\":\"user_input\",\"content\":\" \\n\"}\n"), []);
        let image = r#"{"type":"user","message":{"content":[{"type":"image"},{"type":"text","text":"b"}]}}"#;
        let items = fifo.write(image.to_owned() + "\n");
        assert!(matches!(&items[..], [Item::Problem(_), Item::Input { content, .. }] if content == "b"));
    }

    #[test]
    fn ids_and_file_names_cannot_lead_elsewhere() {
        let mut fifo = Fifo::new(Channel::Input);
        for file in ["", ".", "..", "../x", "a/b", "/etc/passwd", ".x", "a\\nb", "\\u0000"] {
            let items = fifo.write(format!("{{\"type\":\"user_input\",\"file\":\"{file}\"}}\n"));
            let expected = problem("input.fifo: user_input with a file that is no bare name");
            // U+FFFD is what a NUL becomes: odd, but a bare name.
            if file == "\\u0000" {
                assert_eq!(items, [Item::File { name: "\u{FFFD}".to_owned(), id: None }]);
            } else {
                assert_eq!(items, [expected], "{file}");
            }
        }
        for id in ["\"\"", "\"a\\nb\"", "[]", "true"] {
            let items = fifo.write(format!("{{\"type\":\"sync\",\"id\":{id}}}\n"));
            assert!(
                matches!(&items[..], [Item::Problem(text)] if text.starts_with("input.fifo: sync with an id")),
                "{items:?}"
            );
        }
    }

    #[test]
    fn json_without_type_and_broken_json_are_text() {
        let mut fifo = Fifo::new(Channel::Input);
        for line in [
            r#"{"a":1}"#,
            r#"{"type":"user_input","content":"#,
            "{",
            r#"{"type":null}"#,
            r#"[{"type":"interrupt"}]"#,
        ] {
            assert_eq!(fifo.write(line.to_owned() + "\n"), []);
            assert_eq!(fifo.wait(100), [text(line)]);
        }
    }

    #[test]
    fn a_malformed_frame_is_skipped_up_to_the_next_message() {
        let malformed = problem("input.fifo: a malformed RESP frame, skipped");
        for next in
            [frame(&["USER_INPUT", "0", "x"]), b"{\"type\":\"user_input\",\"content\":\"x\"}\n".to_vec()]
        {
            for broken in [
                "*0\r\n$1\r\na\r\n",
                "*65\r\n$",
                "*2\r\n$11\r\nUSER_NOTIFY\r\n$4\r\nhalf",
                "*1\r\n$-1\r\n",
                "*1\r\n$abc\r\nplain text",
            ] {
                let mut fifo = Fifo::new(Channel::Input);
                let items = fifo.write([broken.as_bytes(), b"\nmore\n* noise\n", &next].concat());
                assert_eq!(items.len(), 2, "{broken:?}: {items:?}");
                assert_eq!(items[0], malformed);
            }
        }
        // Plain text counts again after 100 ms of silence.
        let mut fifo = Fifo::new(Channel::Input);
        assert_eq!(fifo.write("*0\r\n$\nnoise\n"), std::slice::from_ref(&malformed));
        assert_eq!(fifo.wait(99), []);
        assert_eq!(fifo.write("still noise\n"), []);
        assert_eq!(fifo.wait(100), []);
        assert_eq!(fifo.write("text\n"), []);
        assert_eq!(fifo.wait(100), [text("text")]);
    }

    #[test]
    fn what_only_looks_like_a_header_is_text() {
        let mut fifo = Fifo::new(Channel::Input);
        for line in [
            "*",
            "*abc\r",
            "*BASH_VERSINFO[$(cmd)0]\r",
            "*100\r\n$1\r",
            "*1\n$1",
            "**bold**",
            "* one\n* two",
            "*0\r",
            "*64\r",
        ] {
            assert_eq!(fifo.write(line.to_owned() + "\n"), [], "{line:?}");
            assert_eq!(fifo.wait(1000), [text(line.trim_end_matches('\r'))], "{line:?}");
        }
    }

    #[test]
    fn an_incomplete_frame_is_given_up_after_five_seconds() {
        // J6: a writer cut in mid-frame; what others wrote behind it is not lost.
        let inner = frame(&["USER_INPUT", "0", "inner"]);
        let cut = [b"*3\r\n$10\r\nUSER_INPUT\r\n$1\r\n0\r\n$90000\r\nbegun\n".as_slice(), &inner].concat();
        let mut fifo = Fifo::new(Channel::Input);
        assert_eq!(fifo.write(&cut), []);
        assert_eq!(fifo.wait(4999), []);
        assert_eq!(fifo.write(&inner), []);
        assert_eq!(fifo.wait(4999), []);
        assert_eq!(
            fifo.wait(1),
            [
                problem("input.fifo: an incomplete RESP frame, skipped"),
                user_input("inner"),
                user_input("inner")
            ]
        );
        assert_eq!(fifo.scanner.deadline(), None);
        assert_eq!(fifo.write("next\n"), []);
        assert_eq!(fifo.wait(100), [text("next")]);
    }

    #[test]
    fn nested_broken_frames_are_one_problem() {
        let mut fifo = Fifo::new(Channel::Notify);
        fifo.write("*1\r\n$50000\r\nx\n".repeat(1000));
        assert_eq!(fifo.wait(5000), [problem("notify.fifo: an incomplete RESP frame, skipped")]);
        assert_eq!(fifo.scanner.deadline(), None);
        fifo.write("*1\r\n$50000\r\nx\n");
        assert_eq!(fifo.wait(5000).len(), 1);
    }

    #[test]
    fn noise_on_notify_is_one_problem_a_run() {
        let noise = problem("notify.fifo: bytes that are no RESP frame, skipped");
        let mut fifo = Fifo::new(Channel::Notify);
        let good = frame(&["USER_NOTIFY", "x"]);
        let stream =
            [b"garbage\n{\"type\":\"interrupt\"}\nmore\n".as_slice(), &good, b"again", &good, b"\n", &good]
                .concat();
        assert_eq!(fifo.write(stream), [noise.clone(), notify("x"), noise.clone(), notify("x")]);
        assert_eq!(fifo.write("no line feed"), std::slice::from_ref(&noise));
        assert_eq!(fifo.wait(100), []);
        assert_eq!(fifo.write(&good), [notify("x")]);
        assert_eq!(fifo.write("*1"), []);
        assert_eq!(fifo.wait(1000), [noise]);
        assert_eq!(fifo.write(&good), [notify("x")]);
        assert_eq!(fifo.write(frame(&["TEXT", "x"])), [problem("notify.fifo: unknown message `TEXT`")]);
    }

    #[test]
    fn memory_stays_bounded() {
        const LIMIT: usize = 100_000;
        let mut fifo = Fifo::new(Channel::Input);
        fifo.scanner.max_text = LIMIT;
        let line = "{ this line is text \n".repeat(1 << 8);
        let mut items = Vec::new();
        for _ in 0..=3 * LIMIT / line.len() {
            items.extend(fifo.write(&line));
            assert!(fifo.scanner.buffer.len() <= LIMIT + line.len());
        }
        assert_eq!(items, [problem("input.fifo: a text of more than 64 MiB, skipped")]);
        assert_eq!(fifo.wait(100), []);
        assert_eq!(fifo.write("text\n"), []);
        assert_eq!(fifo.wait(100), [text("text")]);
        // A frame that claims more than a frame may hold is not waited for.
        assert_eq!(fifo.write("*1\r\n$67108864\r\n").len(), 1);
        // What a long message took is given back.
        fifo.wait(100);
        fifo.write(frame(&["USER_INPUT", &"x".repeat(3 << 20)]));
        assert!(fifo.scanner.buffer.capacity() <= 1 << 20);
    }

    /// Pieces that meet in the scanners' rules.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let token = prop::sample::select(vec![
            "*",
            "*1",
            "*1\r\n$",
            "*1\r\n$9\r\nINTERRUPT\r\n",
            "*0\r\n$",
            "$3\r\n",
            "abc",
            "\r\n",
            "\n",
            "\n\n",
            " ",
            "{",
            "}",
            "{}\n",
            "{\"type\":\"interrupt\"}",
            "{\"type\":\"x\"}\n",
            "{\"type\":\"user_input\",\"content\":\"c\"}\n",
            "é",
            "*2\r\n$11\r\nUSER_NOTIFY\r\n$2\r\n",
        ]);
        prop_oneof![
            8 => token.prop_map(|token| token.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..6),
        ]
    }

    fn channel() -> impl Strategy<Value = Channel> {
        prop::sample::select(vec![Channel::Input, Channel::Notify])
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_items(channel in channel(), pieces in prop::collection::vec(piece(), 0..12), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
            let stream = pieces.concat();
            let run = |places: &[usize]| {
                let mut fifo = Fifo::new(channel);
                let mut items = Vec::new();
                for pair in places.windows(2) {
                    items.extend(fifo.write(&stream[pair[0]..pair[1]]));
                }
                items.extend(fifo.wait(5000));
                items
            };
            let whole = run(&[0, stream.len()]);
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            places.extend([0, stream.len()]);
            places.sort_unstable();
            prop_assert_eq!(&run(&places), &whole);
            prop_assert_eq!(&run(&(0..=stream.len()).collect::<Vec<_>>()), &whole);
        }

        #[test]
        fn after_silence_a_frame_always_arrives(channel in channel(), pieces in prop::collection::vec(piece(), 0..12), waits in prop::collection::vec(0..2000u64, 12)) {
            let mut fifo = Fifo::new(channel);
            for (piece, wait) in pieces.iter().zip(waits) {
                fifo.write(piece);
                fifo.wait(wait);
            }
            fifo.wait(5000);
            prop_assert_eq!(fifo.scanner.deadline(), None);
            prop_assert!(fifo.scanner.rest().is_empty());
            let (fields, item) = match channel {
                Channel::Input => (["USER_INPUT", "x"], user_input("x")),
                _ => (["USER_NOTIFY", "x"], notify("x")),
            };
            prop_assert_eq!(fifo.write(frame(&fields)), [item]);
        }

        #[test]
        fn text_and_frames_of_many_writers_are_all_taken(messages in prop::collection::vec((any::<bool>(), "[a-z *{\n]{1,20}"), 0..8)) {
            let mut fifo = Fifo::new(Channel::Input);
            let (mut items, mut expected) = (Vec::new(), Vec::new());
            for (as_frame, content) in &messages {
                if *as_frame {
                    items.extend(fifo.write(frame(&["USER_INPUT", "0", content])));
                } else {
                    items.extend(fifo.write(content.clone() + "\n"));
                    items.extend(fifo.wait(100));
                }
                if !content.trim().is_empty() {
                    expected.push(if *as_frame { user_input(content) } else { text(content.trim_end_matches('\n')) });
                }
            }
            prop_assert_eq!(items, expected);
        }
    }
}
