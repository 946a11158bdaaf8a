//! events.jsonl: what each type of event looks like, and how events are appended (CONTRACT §5).

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{SessionError, StorageError};
use super::files::{ends_in_line_feed, open_append, open_append_again};
use super::lock::StateLock;
use super::paths::SessionDir;
use super::time::Timestamp;
use crate::wire::json;
use crate::wire::message::Usage;

/// How long a file whose last line is not ended is given to grow, at each of three looks.
const SETTLE: Duration = Duration::from_millis(1);

/// What a model call was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageKind<'a> {
    /// A call of the turn.
    Agent,
    /// A summary.
    Compact,
    /// All calls of a sub-agent.
    SubAgent {
        /// The child's session.
        session_id: &'a str,
    },
}

/// One event. The order of the fields in a line is that of the variants' fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of CONTRACT §5, by their names there")]
pub enum Event<'a> {
    /// The event file was empty at opening.
    SessionStart { session_id: &'a str },
    /// A user turn begins.
    UserInput { content: &'a str, id: Option<&'a str> },
    /// A piece of the answer.
    Text { content: &'a str },
    /// A piece of thinking.
    Thinking { content: &'a str },
    /// The model calls a tool; `input` is a raw JSON object.
    ToolCall { name: &'a str, id: &'a str, input: &'a str },
    /// What the tool gave, as displayed.
    ToolResult { tool_use_id: &'a str, name: &'a str, content: &'a str },
    /// The figures of a model call. `estimated`: the provider gave none.
    Usage { usage: Usage, kind: UsageKind<'a>, model: Option<&'a str>, estimated: bool },
    /// A response was given up and asked for again.
    Retry,
    /// The turn ended. `exit`: what a one-shot run of it exits with, for who waits for the input of this `id`.
    Stop { reason: &'a str, id: Option<&'a str>, exit: u8 },
    /// Something failed.
    Error { message: &'a str },
    /// The window changed; `kind` is `compact`.
    ContextUpdate { kind: &'a str, trigger: &'a str },
    /// A child runs.
    SubAgentStart {
        session_id: &'a str,
        timestamp: Timestamp,
        prompt: &'a str,
        description: &'a str,
        fork: bool,
    },
    /// What a child did.
    SubAgentResult {
        session_id: &'a str,
        status: &'a str,
        input_tokens: u64,
        output_tokens: u64,
        thinking: &'a str,
        text: &'a str,
    },
    /// A child has ended.
    SubAgentEnd { session_id: &'a str, timestamp: Timestamp, status: &'a str },
    /// A background task has ended.
    AsyncTaskResult { task_id: &'a str, exit_code: i32, output: &'a str },
    /// A USER_NOTIFY was put into the conversation.
    UserNotify { content: &'a str },
    /// Everything sent before this sync is done.
    Sync { id: &'a str },
    /// A refused call may run if somebody says so (ours); `input` is a raw JSON object.
    ApprovalRequest {
        id: &'a str,
        tool_use_id: &'a str,
        name: &'a str,
        input: &'a str,
        required: &'a str,
        allowed: &'a str,
        why: &'a str,
    },
    /// The answer (ours): `allow` is raw JSON, `by` says who gave it.
    Approval { id: &'a str, allow: &'a str, by: &'a str },
}

impl Event<'_> {
    /// Appends the event as one line, line feed included. `ts` is left out of text and thinking.
    pub fn encode(&self, ts: Timestamp, out: &mut Vec<u8>) {
        let mut line = Line { out };
        match *self {
            Self::SessionStart { session_id } => line.kind("session_start").text("session_id", session_id),
            Self::UserInput { content, id } => {
                line.kind("user_input").text("content", content).maybe("id", id)
            }
            Self::Text { content } => return line.kind("text").text("content", content).close(),
            Self::Thinking { content } => return line.kind("thinking").text("content", content).close(),
            Self::ToolCall { name, id, input } => {
                line.kind("tool_call").text("name", name).text("id", id).raw("input", input)
            }
            Self::ToolResult { tool_use_id, name, content } => line
                .kind("tool_result")
                .text("tool_use_id", tool_use_id)
                .text("name", name)
                .text("content", content),
            Self::Usage { usage, kind, model, estimated } => line.usage(usage, kind).model(model, estimated),
            Self::Retry => line.kind("retry"),
            Self::Stop { reason, id, exit } => {
                let line = line.kind("stop").text("reason", reason).maybe("id", id);
                if id.is_some() && exit != 0 { line.number("exit", exit) } else { line }
            }
            Self::Error { message } => line.kind("error").text("message", message),
            Self::ContextUpdate { kind, trigger } => {
                line.kind("context_update").text("kind", kind).text("trigger", trigger)
            }
            Self::SubAgentStart { session_id, timestamp, prompt, description, fork } => line
                .kind("sub_agent_start")
                .text("session_id", session_id)
                .text("timestamp", &timestamp.timestamp())
                .text("prompt", prompt)
                .text("description", description)
                .raw("fork", if fork { "true" } else { "false" }),
            Self::SubAgentResult { session_id, status, input_tokens, output_tokens, thinking, text } => line
                .kind("sub_agent_result")
                .text("session_id", session_id)
                .text("status", status)
                .number("input_tokens", input_tokens)
                .number("output_tokens", output_tokens)
                .text("thinking", thinking)
                .text("text", text),
            Self::SubAgentEnd { session_id, timestamp, status } => line
                .kind("sub_agent_end")
                .text("session_id", session_id)
                .text("timestamp", &timestamp.timestamp())
                .text("status", status),
            Self::AsyncTaskResult { task_id, exit_code, output } => line
                .kind("async_task_result")
                .text("task_id", task_id)
                .number("exit_code", exit_code)
                .text("output", output),
            Self::UserNotify { content } => line.kind("user_notify").text("content", content),
            Self::Sync { id } => line.kind("sync").text("id", id),
            Self::ApprovalRequest { id, tool_use_id, name, input, required, allowed, why } => line
                .kind("approval_request")
                .text("id", id)
                .text("tool_use_id", tool_use_id)
                .text("name", name)
                .raw("input", input)
                .text("required", required)
                .text("allowed", allowed)
                .text("why", why),
            Self::Approval { id, allow, by } => {
                line.kind("approval").text("id", id).raw("allow", allow).text("by", by)
            }
        };
        line.ts(ts);
        line.close();
    }

    /// The event as one line, line feed included.
    pub fn line(&self, ts: Timestamp) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(ts, &mut out);
        out
    }
}

/// Writes the members of one line.
struct Line<'o> {
    out: &'o mut Vec<u8>,
}

impl Line<'_> {
    fn kind(&mut self, kind: &str) -> &mut Self {
        self.out.extend_from_slice(b"{\"type\":\"");
        self.out.extend_from_slice(kind.as_bytes());
        self.out.push(b'"');
        self
    }

    fn key(&mut self, key: &str) -> &mut Self {
        self.out.extend_from_slice(b",\"");
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self
    }

    fn text(&mut self, key: &str, text: &str) -> &mut Self {
        self.key(key);
        json::string_into(self.out, text);
        self
    }

    fn maybe(&mut self, key: &str, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.text(key, text),
            None => self,
        }
    }

    fn number(&mut self, key: &str, number: impl Into<i128>) -> &mut Self {
        self.raw(key, &number.into().to_string())
    }

    fn raw(&mut self, key: &str, json: &str) -> &mut Self {
        self.key(key);
        self.out.extend_from_slice(json.as_bytes());
        self
    }

    fn usage(&mut self, usage: Usage, kind: UsageKind<'_>) -> &mut Self {
        self.kind("usage")
            .number("input_tokens", usage.input)
            .number("output_tokens", usage.output)
            .number("cache_read_input_tokens", usage.cache_read)
            .number("cache_creation_input_tokens", usage.cache_creation);
        match kind {
            UsageKind::Agent => self.text("kind", "agent"),
            UsageKind::Compact => self.text("kind", "compact"),
            UsageKind::SubAgent { session_id } => {
                self.text("kind", "sub_agent").text("sub_session_id", session_id)
            }
        }
    }

    fn model(&mut self, model: Option<&str>, estimated: bool) -> &mut Self {
        self.maybe("model", model);
        if estimated { self.raw("estimated", "true") } else { self }
    }

    fn ts(&mut self, ts: Timestamp) {
        self.out.extend_from_slice(b",\"ts\":\"");
        ts.write_ts(self.out);
        self.out.push(b'"');
    }

    fn close(&mut self) {
        self.out.extend_from_slice(b"}\n");
    }
}

/// events.jsonl, open for appending by the session's owner.
#[derive(Debug)]
pub struct EventLog {
    file: File,
    path: PathBuf,
    dir: SessionDir,
    /// An append failed half way and could not be taken back: the next one begins on a fresh line.
    dirty: bool,
}

impl EventLog {
    /// Opens the session's events, making the file when it is missing. Its tail must be whole (`Session::open`).
    pub(super) fn open(dir: &SessionDir) -> Result<Self, SessionError> {
        let path = dir.events();
        let file = open_append(&path)?;
        Ok(Self { file, path, dir: dir.clone(), dirty: false })
    }

    /// Appends whole lines, line feeds included, with one write for all of them.
    pub fn append(&mut self, lines: &[u8]) -> Result<(), StorageError> {
        let result = self.try_append(lines);
        if result.is_err() {
            self.dirty = true;
        }
        result.map_err(StorageError::at("write", &self.path))
    }

    /// A handle for `File::sync_data` on another thread.
    pub fn sync_handle(&self) -> Result<File, StorageError> {
        self.file.try_clone().map_err(StorageError::at("sync", &self.path))
    }

    fn try_append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.dirty {
            let end = self.file.metadata()?.len();
            if !ends_in_line_feed(&self.file, end)? {
                self.file.write_all(b"\n")?;
            }
            self.dirty = false;
        }
        append_or_take_back(&mut self.file, lines, || StateLock::take(&self.dir).ok())
    }
}

/// Appends whole lines to a session's events for a process that does not own it, under state.lock.
pub fn append_shared(dir: &SessionDir, lines: &[u8]) -> Result<(), StorageError> {
    let lock = StateLock::take(dir)?;
    append_locked(&lock, dir, lines)
}

/// `append_shared` for who holds the lock already.
pub(super) fn append_locked(_lock: &StateLock, dir: &SessionDir, lines: &[u8]) -> Result<(), StorageError> {
    let path = dir.events();
    let mut file = open_append_again(&path)?;
    append_whole(&mut file, lines).map_err(StorageError::at("write", &path))
}

/// Appends to a file that others append to as well, under state.lock: on a fresh line, and whole or not at all.
fn append_whole(file: &mut File, lines: &[u8]) -> io::Result<()> {
    if is_torn(file)? {
        file.write_all(b"\n")?;
    }
    append_or_take_back(file, lines, || Some(()))
}

/// Whether the file ends within a line. The owner appends without the lock, and a write that is under way can be
/// seen half done; but then the file soon grows.
fn is_torn(file: &File) -> io::Result<bool> {
    let mut end = file.metadata()?.len();
    let mut looks = 0;
    while !ends_in_line_feed(file, end)? {
        std::thread::sleep(SETTLE);
        let now = file.metadata()?.len();
        looks = if now == end { looks + 1 } else { 0 };
        if looks == 3 {
            return Ok(true);
        }
        end = now;
    }
    Ok(false)
}

/// Appends; when that fails half way, what was written is cut off again, unless somebody has appended since. `guard`
/// gives what must be held while looking.
fn append_or_take_back<G>(
    file: &mut File,
    lines: &[u8],
    guard: impl FnOnce() -> Option<G>,
) -> io::Result<()> {
    let mut done = 0;
    while done < lines.len() {
        match file.write(&lines[done..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                if done > 0
                    && let Some(_guard) = guard()
                {
                    // O_APPEND leaves the position behind what was written last.
                    let end = file.stream_position()?;
                    if file.metadata()?.len() == end {
                        file.set_len(end - done as u64)?;
                    }
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Whether a session has no events yet.
pub(super) fn is_empty(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TS: &str = "1970-01-01T00:00:00.000Z";

    fn encoded(event: Event<'_>) -> String {
        String::from_utf8(event.line(Timestamp::from_millis(0))).unwrap()
    }

    #[test]
    fn every_type_has_its_fields_in_order() {
        let zero = Timestamp::from_millis(0);
        let usage = Usage { input: 1, output: 2, cache_read: 3, cache_creation: u64::MAX };
        let figures = "\"input_tokens\":1,\"output_tokens\":2,\"cache_read_input_tokens\":3,\
                       \"cache_creation_input_tokens\":18446744073709551615";
        let rows = [
            (Event::SessionStart { session_id: "s" }, r#""type":"session_start","session_id":"s""#.to_owned()),
            (Event::UserInput { content: "a\n", id: None }, r#""type":"user_input","content":"a\n""#.into()),
            (
                Event::UserInput { content: "", id: Some("7") },
                r#""type":"user_input","content":"","id":"7""#.into(),
            ),
            (
                Event::ToolCall { name: "Read", id: "t", input: r#"{"a": 1}"# },
                r#""type":"tool_call","name":"Read","id":"t","input":{"a": 1}"#.into(),
            ),
            (
                Event::ToolResult { tool_use_id: "t", name: "Read", content: "x" },
                r#""type":"tool_result","tool_use_id":"t","name":"Read","content":"x""#.into(),
            ),
            (
                Event::Usage { usage, kind: UsageKind::Agent, model: Some("m"), estimated: true },
                format!(r#""type":"usage",{figures},"kind":"agent","model":"m","estimated":true"#),
            ),
            (
                Event::Usage { usage, kind: UsageKind::Compact, model: None, estimated: false },
                format!(r#""type":"usage",{figures},"kind":"compact""#),
            ),
            (
                Event::Usage { usage, kind: UsageKind::SubAgent { session_id: "sub_1" }, model: None, estimated: false },
                format!(r#""type":"usage",{figures},"kind":"sub_agent","sub_session_id":"sub_1""#),
            ),
            (Event::Retry, r#""type":"retry""#.into()),
            (Event::Stop { reason: "end_turn", id: Some("7"), exit: 0 }, r#""type":"stop","reason":"end_turn","id":"7""#.into()),
            (Event::Stop { reason: "error", id: Some("7"), exit: 5 }, r#""type":"stop","reason":"error","id":"7","exit":5"#.into()),
            (Event::Stop { reason: "error", id: None, exit: 5 }, r#""type":"stop","reason":"error""#.into()),
            (Event::Error { message: "no" }, r#""type":"error","message":"no""#.into()),
            (
                Event::ContextUpdate { kind: "compact", trigger: "auto" },
                r#""type":"context_update","kind":"compact","trigger":"auto""#.into(),
            ),
            (
                Event::SubAgentStart { session_id: "s", timestamp: zero, prompt: "p", description: "d", fork: false },
                r#""type":"sub_agent_start","session_id":"s","timestamp":"1970-01-01T00:00:00Z","prompt":"p","description":"d","fork":false"#.into(),
            ),
            (
                Event::SubAgentResult { session_id: "s", status: "ok", input_tokens: 1, output_tokens: 2, thinking: "", text: "t" },
                r#""type":"sub_agent_result","session_id":"s","status":"ok","input_tokens":1,"output_tokens":2,"thinking":"","text":"t""#.into(),
            ),
            (
                Event::SubAgentEnd { session_id: "s", timestamp: zero, status: "failed" },
                r#""type":"sub_agent_end","session_id":"s","timestamp":"1970-01-01T00:00:00Z","status":"failed""#.into(),
            ),
            (
                Event::AsyncTaskResult { task_id: "t", exit_code: -1, output: "o" },
                r#""type":"async_task_result","task_id":"t","exit_code":-1,"output":"o""#.into(),
            ),
            (Event::UserNotify { content: "c" }, r#""type":"user_notify","content":"c""#.into()),
            (Event::Sync { id: "1" }, r#""type":"sync","id":"1""#.into()),
            (
                Event::ApprovalRequest {
                    id: "a",
                    tool_use_id: "t",
                    name: "Bash",
                    input: "{}",
                    required: "0200",
                    allowed: "0467",
                    why: "w",
                },
                r#""type":"approval_request","id":"a","tool_use_id":"t","name":"Bash","input":{},"required":"0200","allowed":"0467","why":"w""#
                    .into(),
            ),
            (
                Event::Approval { id: "a", allow: "\"session\"", by: "terminal" },
                r#""type":"approval","id":"a","allow":"session","by":"terminal""#.into(),
            ),
        ];
        for (event, body) in rows {
            assert_eq!(encoded(event), format!("{{{body},\"ts\":\"{TS}\"}}\n"));
        }
        assert_eq!(encoded(Event::Text { content: "é\"" }), "{\"type\":\"text\",\"content\":\"é\\\"\"}\n");
        assert_eq!(encoded(Event::Thinking { content: "" }), "{\"type\":\"thinking\",\"content\":\"\"}\n");
    }

    #[test]
    fn the_owner_and_others_append_whole_lines() {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        let mut log = EventLog::open(&dir).unwrap();
        let other = std::thread::spawn({
            let dir = dir.clone();
            move || {
                (0..200)
                    .for_each(|_| append_shared(&dir, &[b"b".repeat(300), b"\n".to_vec()].concat()).unwrap())
            }
        });
        for _ in 0..200 {
            log.append(&[b"a".repeat(300), b"\n".to_vec()].concat()).unwrap();
        }
        other.join().unwrap();
        let content = std::fs::read_to_string(dir.events()).unwrap();
        assert_eq!(content.lines().count(), 400);
        assert!(content.lines().all(|line| line == "a".repeat(300) || line == "b".repeat(300)));
    }

    #[test]
    fn a_torn_tail_of_another_writer_does_not_swallow_the_next_line() {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        std::fs::write(dir.events(), "{\"type\":\"te").unwrap();
        append_shared(&dir, b"{}\n").unwrap();
        assert_eq!(std::fs::read_to_string(dir.events()).unwrap(), "{\"type\":\"te\n{}\n");
    }
}
