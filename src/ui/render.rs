//! Display messages → text for a person (CONTRACT §14).

use std::fmt::Write as _;

use crate::wire::message::{AgentResult, Message};

/// Where a rendered piece belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// stdout.
    Out,
    /// stderr.
    Err,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Nothing,
    Thinking,
    Text,
}

/// Turns messages into text, one at a time; remembers only whether a line is open.
#[derive(Debug)]
pub struct Human {
    color: bool,
    error_color: bool,
    last: Last,
    /// stdout stands in the middle of a line.
    line_open: bool,
}

pub(super) const GREY: &str = "90";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const MAGENTA: &str = "35";
pub(super) const CYAN: &str = "36";

impl Human {
    /// `color` for stdout, `error_color` for stderr.
    pub fn new(color: bool, error_color: bool) -> Self {
        Self { color, error_color, last: Last::Nothing, line_open: false }
    }

    /// The text of one message, appended to `out`; says where it belongs.
    pub fn message(&mut self, message: &Message, out: &mut String) -> Stream {
        match message {
            Message::Text { content } => self.text(content, out),
            Message::Thinking { content } => self.thinking(content, out),
            Message::ToolCall { name, members, .. } => {
                self.close_line(out);
                let line = format!("[tool] {name}({})", argument(name, members));
                self.line(YELLOW, &line, out);
            }
            Message::ToolResult { name, content, .. } => self.tool_result(name, content, out),
            Message::Error { message, .. } => {
                let text = format!("Error: {}", safe(message));
                paint(self.error_color, RED, &text, out);
                out.push('\n');
                return Stream::Err;
            }
            Message::Stop { reason } => {
                self.close_line(out);
                if reason == "interrupted" {
                    self.line(CYAN, "Interrupted.", out);
                }
            }
            Message::ContextUpdate { trigger, .. } => {
                self.close_line(out);
                self.line(CYAN, &format!("Context compacted ({trigger})."), out);
            }
            Message::UserMessage { content } => {
                self.close_line(out);
                self.line(GREEN, &format!("> {}", cut(first_line(content), 80, 77)), out);
            }
            Message::UserNotify { text } => {
                self.close_line(out);
                self.line(YELLOW, &format!("[user inject] {text}"), out);
            }
            Message::AgentResult(result) => self.agent_result(result, out),
            Message::AsyncTaskResult { task_id, exit_code, output } => {
                self.close_line(out);
                let color = if *exit_code == 0 { CYAN } else { RED };
                self.line(color, &format!("[bg-bash {task_id}] exit_code={exit_code}"), out);
                self.brief(output, out);
            }
            Message::ImageDescribe { images, description } => {
                self.close_line(out);
                self.line(GREY, &format!("[images] {images} {description}"), out);
            }
            Message::UserInput { .. }
            | Message::NotifyPending
            | Message::SessionEnd { .. }
            | Message::Interrupt
            | Message::Signature { .. }
            | Message::RedactedThinking { .. } => {}
            // A response ends here: the next one begins on a line of its own.
            Message::Usage(_) | Message::Retry => self.close_line(out),
        }
        Stream::Out
    }

    /// Ends the line that stands open, if any: the end of the output, or before something else prints.
    pub fn close_line(&mut self, out: &mut String) {
        if std::mem::take(&mut self.line_open) {
            out.push('\n');
        }
        self.last = Last::Nothing;
    }

    fn text(&mut self, content: &str, out: &mut String) {
        if content.is_empty() {
            return;
        }
        if self.last == Last::Thinking {
            self.close_line(out);
        }
        self.last = Last::Text;
        safe_into(content, out);
        self.line_open = !content.ends_with('\n');
    }

    fn thinking(&mut self, content: &str, out: &mut String) {
        if content.is_empty() {
            return;
        }
        if self.last == Last::Text {
            self.close_line(out);
        }
        self.last = Last::Thinking;
        paint(self.color, GREY, &safe(content), out);
        self.line_open = !content.ends_with('\n');
    }

    fn tool_result(&mut self, name: &str, content: &str, out: &mut String) {
        self.close_line(out);
        let shown = match name {
            "Read" | "Write" => first_line(content),
            _ => content.trim_end_matches('\n'),
        };
        safe_into(shown, out);
        out.push('\n');
    }

    fn agent_result(&mut self, result: &AgentResult, out: &mut String) {
        self.close_line(out);
        let id = &result.session_id;
        if result.ok {
            let (input, output) = (result.usage.input, result.usage.output);
            self.line(MAGENTA, &format!("[sub-agent {id}] completed (in={input}, out={output})"), out);
        } else {
            self.line(RED, &format!("[sub-agent {id}] failed"), out);
        }
        if !result.thinking.is_empty() {
            paint(self.color, GREY, &safe(&cut(&result.thinking, 120, 120)), out);
            out.push('\n');
        }
        self.brief(&result.text, out);
    }

    fn brief(&mut self, text: &str, out: &mut String) {
        if !text.is_empty() {
            safe_into(cut(text, 120, 120).trim_end_matches('\n'), out);
            out.push('\n');
        }
    }

    fn line(&mut self, color: &str, text: &str, out: &mut String) {
        paint(self.color, color, &safe(text), out);
        out.push('\n');
    }
}

fn paint(color: bool, code: &str, text: &str, out: &mut String) {
    if color {
        let _ = write!(out, "\x1b[{code}m{text}\x1b[0m");
    } else {
        out.push_str(text);
    }
}

/// The key argument of a call: what tells a person most, on one line.
pub fn argument(name: &str, members: &[(String, String)]) -> String {
    let get =
        |key: &str| members.iter().rev().find(|(k, _)| k == key).map_or("", |(_, value)| value.as_str());
    let one_line = |text: &str| text.replace(['\n', '\r'], " ");
    match name {
        "Read" | "Write" | "Edit" => one_line(get("path")),
        "Bash" => cut(&one_line(get("command")), 80, 77),
        "Glob" | "Grep" => one_line(get("pattern")),
        "TodoWrite" => todo_summary(get("todos")),
        "Skill" => one_line(get("name")),
        "SubAgent" => cut(&one_line(get("description")), 80, 77),
        "WebSearch" => one_line(get("query")),
        "WebFetch" => one_line(get("url")),
        _ => String::new(),
    }
}

/// `completed/total` of a `todos` array; empty when it is none.
pub fn todo_summary(todos: &str) -> String {
    let Ok(serde_json::Value::Array(todos)) = serde_json::from_str(todos) else { return String::new() };
    let done = todos.iter().filter(|todo| todo["status"] == "completed").count();
    format!("{done}/{}", todos.len())
}

fn first_line(text: &str) -> &str {
    text.split('\n').next().unwrap_or_default().trim_end_matches('\r')
}

/// Text longer than `limit` code points becomes its first `keep` and `...`.
pub fn cut(text: &str, limit: usize, keep: usize) -> String {
    if text.len() <= limit || text.chars().nth(limit).is_none() {
        return text.to_owned();
    }
    let end = text.char_indices().nth(keep).map_or(text.len(), |(at, _)| at);
    format!("{}...", &text[..end])
}

/// Text from outside, made harmless for a terminal.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    safe_into(text, &mut out);
    out
}

/// Control characters, C1 and bidirectional marks are shown, not sent: content may not move the cursor,
/// retitle the terminal or reorder what a person reads. LF and TAB pass; CR before LF is dropped.
pub fn safe_into(text: &str, out: &mut String) {
    // 0xC2 leads C1, 0xD8 U+061C, 0xE2 the other marks: everything else passes as it is.
    let suspicious =
        |b: u8| (b < 0x20 && b != b'\n' && b != b'\t') || b == 0x7f || matches!(b, 0xc2 | 0xd8 | 0xe2);
    if !text.bytes().any(suspicious) {
        out.push_str(text);
        return;
    }
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\u{0}'..='\u{1f}' => {
                out.push('^');
                out.push(char::from(c as u8 + 0x40));
            }
            '\u{7f}' => out.push_str("^?"),
            '\u{80}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                let _ = write!(out, "<U+{:04X}>", c as u32);
            }
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(messages: &[Message], color: bool) -> String {
        let mut human = Human::new(color, color);
        let mut out = String::new();
        for message in messages {
            human.message(message, &mut out);
        }
        human.close_line(&mut out);
        out
    }

    fn text(content: &str) -> Message {
        Message::Text { content: content.to_owned() }
    }

    #[test]
    fn thinking_is_grey_and_a_line_feed_parts_it_from_text() {
        let messages = [
            Message::Thinking { content: "Let me ".into() },
            Message::Thinking { content: "think.".into() },
            text("Answer."),
        ];
        assert_eq!(render(&messages, true), "\x1b[90mLet me \x1b[0m\x1b[90mthink.\x1b[0m\nAnswer.\n");
        assert_eq!(render(&messages, false), "Let me think.\nAnswer.\n");
    }

    #[test]
    fn a_line_feed_is_added_only_where_one_is_missing() {
        assert_eq!(render(&[text("a\n")], false), "a\n");
        assert_eq!(render(&[text("a")], false), "a\n");
        assert_eq!(render(&[], false), "");
    }

    #[test]
    fn a_command_is_one_line_and_cut() {
        let long = format!("echo {}\nls", "x".repeat(100));
        let members = vec![("command".to_owned(), long)];
        let label = argument("Bash", &members);
        assert_eq!(label.chars().count(), 80);
        assert!(label.ends_with("...") && !label.contains('\n'));
        assert_eq!(argument("Unknown", &members), "");
    }

    #[test]
    fn content_cannot_play_with_the_terminal() {
        assert_eq!(safe("\x1b]0;x\x07\x1b[2K\rALL PASSED"), "^[]0;x^G^[[2K^MALL PASSED");
        assert_eq!(safe("a\r\nb\tc"), "a\nb\tc");
        assert_eq!(safe("x\u{9b}2J \u{202e}y é – 😀"), "x<U+009B>2J <U+202E>y é – 😀");
    }

    #[test]
    fn read_and_write_show_only_their_summary() {
        let result = Message::ToolResult {
            tool_use_id: "t".into(),
            name: "Read".into(),
            content: "Read(f) [2 lines, 4 bytes]\na\nb".into(),
            todo: None,
        };
        assert_eq!(render(&[result], false), "Read(f) [2 lines, 4 bytes]\n");
    }

    #[test]
    fn cutting_never_splits_a_character() {
        assert_eq!(cut("ééé", 3, 2), "ééé");
        assert_eq!(cut("éééé", 3, 2), "éé...");
    }
}
