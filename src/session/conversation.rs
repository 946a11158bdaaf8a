//! conversation.jsonl: the lines and how they are appended (CONTRACT §4). What is sent of them is `window`'s matter.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};

use super::error::{SessionError, StorageError};
use super::files::open_append;
use super::paths::SessionDir;
use crate::wire::json;

/// What is stored and sent for a tool that printed nothing.
pub const NO_OUTPUT: &str = "(no output)";

/// How a true user turn begins: the only place where the window may be cut.
pub const USER_TURN: &[u8] = br#"{"role":"user","content":""#;

/// A true user turn as a line, without its line feed.
pub fn user_line(text: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(USER_TURN.len() + text.len() + text.len() / 16 + 8);
    line.extend_from_slice(USER_TURN);
    json::escape_into(&mut line, text);
    line.extend_from_slice(b"\"}");
    line
}

/// One assistant message, block by block in the order the model gave them. Blocks that hold nothing are left out.
#[derive(Clone, Debug, Default)]
pub struct AssistantLine {
    line: Vec<u8>,
}

impl AssistantLine {
    /// A message without blocks.
    pub fn new() -> Self {
        Self::default()
    }

    /// A thinking block. Kept when it has text or a signature; both stay exactly as received.
    pub fn thinking(&mut self, text: &str, signature: Option<&str>, id: Option<&str>) {
        if text.is_empty() && signature.is_none() {
            return;
        }
        self.begin("thinking");
        self.member("thinking", text);
        if let Some(signature) = signature {
            self.member("signature", signature);
        }
        if let Some(id) = id {
            self.member("id", id);
        }
        self.line.push(b'}');
    }

    /// A redacted thinking block, exactly as received.
    pub fn redacted(&mut self, data: &str) {
        self.begin("redacted_thinking");
        self.member("data", data);
        self.line.push(b'}');
    }

    /// A text block. Blank text is left out: no API takes it back.
    pub fn text(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        self.begin("text");
        self.member("text", text);
        self.line.push(b'}');
    }

    /// A call. `input` is a JSON object that went through `json::tool_input`.
    pub fn tool_use(&mut self, id: &str, name: &str, input: &str) {
        self.begin("tool_use");
        self.member("id", id);
        self.member("name", name);
        self.line.extend_from_slice(b",\"input\":");
        self.line.extend_from_slice(input.as_bytes());
        self.line.push(b'}');
    }

    /// Whether no block was kept.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The line, without its line feed; `None` when no block was kept, for an empty message is none.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        if self.is_empty() {
            return None;
        }
        self.line.extend_from_slice(b"]}");
        Some(self.line)
    }

    fn begin(&mut self, kind: &str) {
        let opening: &[u8] = if self.line.is_empty() { br#"{"role":"assistant","content":["# } else { b"," };
        self.line.extend_from_slice(opening);
        self.line.extend_from_slice(b"{\"type\":");
        json::string_into(&mut self.line, kind);
    }

    fn member(&mut self, key: &str, text: &str) {
        member_into(&mut self.line, key, text);
    }
}

/// What one call gave, as the model gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The call's id.
    pub id: String,
    /// What it gave; empty is stored as `(no output)`.
    pub content: String,
    /// Whether it failed.
    pub is_error: bool,
}

/// The results of all calls of one response as a line, without its line feed. `results` is not empty.
pub fn tool_results_line(results: &[ToolResult]) -> Vec<u8> {
    let size: usize = results.iter().map(|result| result.content.len() + 128).sum();
    let mut line = Vec::with_capacity(size);
    line.extend_from_slice(br#"{"role":"user","content":["#);
    for (index, result) in results.iter().enumerate() {
        if index > 0 {
            line.push(b',');
        }
        tool_result_into(&mut line, &result.id, &result.content, result.is_error);
    }
    line.extend_from_slice(b"]}");
    line
}

/// One tool_result block.
pub(super) fn tool_result_into(line: &mut Vec<u8>, id: &str, content: &str, is_error: bool) {
    line.extend_from_slice(br#"{"type":"tool_result""#);
    member_into(line, "tool_use_id", id);
    member_into(line, "content", if content.is_empty() { NO_OUTPUT } else { content });
    if is_error {
        line.extend_from_slice(br#","is_error":true"#);
    }
    line.push(b'}');
}

fn member_into(line: &mut Vec<u8>, key: &str, text: &str) {
    line.push(b',');
    json::string_into(line, key);
    line.push(b':');
    json::string_into(line, text);
}

/// conversation.jsonl, open for appending. Only the session's owner has one.
#[derive(Debug)]
pub struct Conversation {
    file: File,
    path: PathBuf,
    len: u64,
    /// Bytes after `len` are the rest of an append that failed and could not be taken back.
    dirty: bool,
}

impl Conversation {
    /// Opens the session's conversation, making it when it is missing. Its tail must be whole (`Session::open`).
    pub(super) fn open(dir: &SessionDir) -> Result<Self, SessionError> {
        let path = dir.conversation();
        let file = open_append(&path)?;
        let len = file.metadata().map_err(StorageError::at("read", &path))?.len();
        Ok(Self { file, path, len, dirty: false })
    }

    /// Appends a true user turn.
    pub fn append_user(&mut self, text: &str) -> Result<(), StorageError> {
        self.append_line(&user_line(text))
    }

    /// Appends one line, given without its line feed, with one write. When it fails the file is as it was before.
    pub fn append_line(&mut self, line: &[u8]) -> Result<(), StorageError> {
        if self.dirty {
            self.take_back().map_err(StorageError::at("write", &self.path))?;
        }
        match write_line(&mut self.file, line) {
            Ok(()) => {
                self.len += line.len() as u64 + 1;
                Ok(())
            }
            Err(error) => {
                self.dirty = true;
                // A failure here is tried again before the next append.
                let _ = self.take_back();
                Err(StorageError::at("write", &self.path)(error))
            }
        }
    }

    /// The file's length in bytes: where the next line begins.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A handle for `File::sync_data` on another thread. Take a new one for every sync: compaction replaces the file.
    pub fn sync_handle(&self) -> Result<File, StorageError> {
        self.file.try_clone().map_err(StorageError::at("sync", &self.path))
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Goes on with the file that has taken this one's place.
    pub(super) fn replaced_by(&mut self, file: File, len: u64) {
        self.file = file;
        self.len = len;
        self.dirty = false;
    }

    fn take_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.len)?;
        self.dirty = false;
        Ok(())
    }
}

/// One `writev` where the system takes it whole.
fn write_line(file: &mut File, line: &[u8]) -> io::Result<()> {
    let total = line.len() + 1;
    let mut done = 0;
    while done < total {
        let parts = [IoSlice::new(line.get(done..).unwrap_or_default()), IoSlice::new(b"\n")];
        match file.write_vectored(&parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: Vec<u8>) -> String {
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn lines_have_the_contracts_bytes() {
        assert_eq!(
            text(user_line("a\"b\n\u{1}/\u{2028}é")),
            "{\"role\":\"user\",\"content\":\"a\\\"b\\n\\u0001/\u{2028}é\"}"
        );
        let mut line = AssistantLine::new();
        line.thinking("", None, None);
        line.thinking("hm", Some("s=="), Some("rs_1"));
        line.thinking("", Some("t"), None);
        line.redacted("xx");
        line.text(" \n");
        line.text("hi");
        line.tool_use("t1", "Read", r#"{"path": "a"}"#);
        assert_eq!(
            text(line.finish().unwrap()),
            concat!(
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s==","id":"rs_1"},"#,
                r#"{"type":"thinking","thinking":"","signature":"t"},{"type":"redacted_thinking","data":"xx"},"#,
                r#"{"type":"text","text":"hi"},{"type":"tool_use","id":"t1","name":"Read","input":{"path": "a"}}]}"#
            )
        );
        let results = [
            ToolResult { id: "t1".into(), content: String::new(), is_error: false },
            ToolResult { id: "t2".into(), content: "Error: no".into(), is_error: true },
        ];
        assert_eq!(
            text(tool_results_line(&results)),
            concat!(
                r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"(no output)"},"#,
                r#"{"type":"tool_result","tool_use_id":"t2","content":"Error: no","is_error":true}]}"#
            )
        );
    }

    #[test]
    fn a_message_that_holds_nothing_is_none() {
        let mut line = AssistantLine::new();
        line.text("");
        line.thinking("", None, None);
        assert!(line.is_empty());
        assert_eq!(line.finish(), None);
    }

    #[test]
    fn appends_are_counted_and_synced_from_elsewhere() {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        let mut conversation = Conversation::open(&dir).unwrap();
        conversation.append_user("hi").unwrap();
        let handle = conversation.sync_handle().unwrap();
        std::thread::spawn(move || handle.sync_data().unwrap()).join().unwrap();
        let content = std::fs::read(dir.conversation()).unwrap();
        assert_eq!(content, b"{\"role\":\"user\",\"content\":\"hi\"}\n");
        assert_eq!(conversation.len(), content.len() as u64);
    }

    #[test]
    fn what_a_failed_append_left_is_taken_back_before_the_next() {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        let mut conversation = Conversation::open(&dir).unwrap();
        conversation.append_user("a").unwrap();
        (&conversation.file).write_all(b"{\"role\":\"us").unwrap();
        conversation.dirty = true;
        conversation.append_user("b").unwrap();
        let content = std::fs::read_to_string(dir.conversation()).unwrap();
        assert_eq!(content, "{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"user\",\"content\":\"b\"}\n");
    }
}
