//! What happens → lines for a person (CONTRACT §14), as it streams. The last lines may still change: an unfinished one
//! grows, a table is aligned anew with each of its rows.

use std::collections::VecDeque;

use super::markdown::Markdown;
use super::style::{Line, Style};
use crate::ui::render::{argument, cut, safe};
use crate::wire::message::{AgentResult, Message};

/// Lines of a result that are shown; `/last` shows the rest.
const FOLDED: usize = 6;
/// An edit's diff says what a person wants to check.
const FOLDED_DIFF: usize = 24;
/// Results that `/last` can show.
const MOST_KEPT: usize = 20;
/// Lines of an own input that are repeated.
const ECHOED: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Nothing,
    Text,
    Thinking,
}

/// Turns messages into lines.
pub(super) struct Scribe {
    done: Vec<Line>,
    open: Open,
    /// The unfinished line.
    line: String,
    markdown: Markdown,
    /// The terminal's width, as of the last time.
    width: usize,
    /// Calls whose results have not come, by id, as shown.
    calls: Vec<(String, String)>,
    /// Results, the newest last: what was called, and the whole text.
    kept: VecDeque<(String, String)>,
}

impl Scribe {
    /// Nothing was said yet. `markdown`: answers are shown as such.
    pub(super) fn new(width: usize, markdown: bool) -> Self {
        Self {
            done: Vec::new(),
            open: Open::Nothing,
            line: String::new(),
            markdown: Markdown::new(markdown),
            width,
            calls: Vec::new(),
            kept: VecDeque::new(),
        }
    }

    /// The lines that are settled since the last time, and those that may still change.
    pub(super) fn take(&mut self, width: usize) -> (Vec<Line>, Vec<Line>) {
        self.width = width;
        let open = match self.open {
            Open::Text => self.markdown.open(&self.line, width),
            Open::Thinking if !self.line.is_empty() => vec![thinking_line(&self.line)],
            Open::Thinking | Open::Nothing => Vec::new(),
        };
        (std::mem::take(&mut self.done), open)
    }

    /// What runs now, for the status.
    pub(super) fn running(&self) -> Option<&str> {
        self.calls.first().map(|(_, label)| label.as_str())
    }

    /// Takes a message in.
    pub(super) fn message(&mut self, message: &Message) {
        match message {
            Message::Text { content } => self.stream(Open::Text, content),
            Message::Thinking { content } => self.stream(Open::Thinking, content),
            Message::ToolCall { name, id, members, .. } => {
                let label = format!("{name}({})", argument(name, members));
                self.line(Style::YELLOW, &format!("[tool] {label}"));
                self.calls.push((id.clone(), label));
            }
            Message::ToolResult { tool_use_id, name, content, .. } => {
                self.close();
                let at = self.calls.iter().position(|(id, _)| id == tool_use_id);
                let label = at.map_or_else(|| name.clone(), |at| self.calls.remove(at).1);
                self.result(name, &label, content);
            }
            Message::Error { message, .. } => self.line(Style::RED, &format!("Error: {message}")),
            Message::Stop { reason } => {
                self.close();
                self.markdown.end();
                self.calls.clear();
                if reason == "interrupted" {
                    self.line(Style::CYAN, "Interrupted.");
                }
            }
            Message::ContextUpdate { trigger, .. } => {
                self.line(Style::CYAN, &format!("Context compacted ({trigger})."));
            }
            Message::UserMessage { content } => self.echo(content),
            Message::UserNotify { text } => self.line(Style::YELLOW, &format!("[user inject] {text}")),
            Message::AgentResult(result) => self.agent_result(result),
            Message::AsyncTaskResult { task_id, exit_code, output } => {
                let style = if *exit_code == 0 { Style::CYAN } else { Style::RED };
                self.line(style, &format!("[bg-bash {task_id}] exit_code={exit_code}"));
                self.brief(Style::PLAIN, output);
                self.keep(&format!("[bg-bash {task_id}]"), output);
            }
            Message::ImageDescribe { images, description } => {
                self.line(Style::GREY, &format!("[images] {images} {description}"));
            }
            // A response ends here: the next one begins on a line of its own.
            Message::Usage(_) | Message::Retry => {
                self.close();
                self.markdown.end();
            }
            Message::UserInput { .. }
            | Message::NotifyPending
            | Message::SessionEnd { .. }
            | Message::Interrupt
            | Message::Signature { .. }
            | Message::RedactedThinking { .. } => {}
        }
    }

    /// Ends the line that stands open.
    pub(super) fn close(&mut self) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.finish(&line);
        }
        self.markdown.settle(self.width, &mut self.done);
        self.open = Open::Nothing;
    }

    /// Lines of one style.
    pub(super) fn line(&mut self, style: Style, text: &str) {
        self.close();
        for line in safe(text).lines() {
            self.done.push(Line::new(style, untab(line)).words(2));
        }
    }

    /// Text as it is: what a command prints.
    pub(super) fn print(&mut self, text: &str) {
        self.close();
        for line in safe(text).lines() {
            self.done.push(Line::new(Style::PLAIN, untab(line)));
        }
    }

    /// An empty line.
    pub(super) fn blank(&mut self) {
        self.close();
        self.done.push(Line::default());
    }

    /// What the user said.
    pub(super) fn echo(&mut self, content: &str) {
        self.close();
        let content = safe(content.trim_end());
        let count = content.lines().count();
        for (at, line) in content.lines().take(ECHOED).enumerate() {
            let lead = if at == 0 { "> " } else { "  " };
            let end = line.char_indices().nth(2_000).map_or(line.len(), |(end, _)| end);
            self.done.push(Line::new(Style::GREEN, format!("{lead}{}", untab(&line[..end]))).words(2));
        }
        if count > ECHOED {
            self.done.push(Line::new(Style::GREY, format!("  … {} more lines", count - ECHOED)));
        }
    }

    fn stream(&mut self, kind: Open, content: &str) {
        if content.is_empty() {
            return;
        }
        if self.open != kind {
            self.close();
            self.open = kind;
        }
        let content = safe(content);
        let mut pieces = content.split('\n');
        self.line.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let line = std::mem::replace(&mut self.line, piece.to_owned());
            self.finish(&line);
        }
    }

    fn finish(&mut self, line: &str) {
        match self.open {
            Open::Thinking => self.done.push(thinking_line(line)),
            Open::Text | Open::Nothing => self.markdown.line(line, self.width, &mut self.done),
        }
    }

    fn result(&mut self, name: &str, label: &str, content: &str) {
        let content = content.trim_end_matches('\n');
        self.keep(label, content);
        let shown = match name {
            "Read" | "Write" => content.lines().next().unwrap_or_default(),
            _ => content,
        };
        let is_diff = name == "Edit" || shown.starts_with("diff --git ");
        let most = if is_diff { FOLDED_DIFF } else { FOLDED };
        let shown = safe(shown);
        let count = shown.lines().count();
        // One line more is no reason to fold.
        let most = if count == most + 1 { count } else { most };
        for line in shown.lines().take(most) {
            let style = if is_diff { diff_style(line) } else { Style::PLAIN };
            self.done.push(Line::new(style, untab(&cut(line, 2_000, 2_000))));
        }
        if count > most {
            let text = format!("… {} more lines (/last shows all)", count - most);
            self.done.push(Line::new(Style::GREY, text));
        }
    }

    fn keep(&mut self, label: &str, content: &str) {
        if self.kept.len() == MOST_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((label.to_owned(), content.to_owned()));
    }

    /// The result of the `back`-th last call (1 = the last one), whole. Says so when there is none.
    pub(super) fn show_last(&mut self, back: usize) {
        let Some((label, content)) = self.kept.len().checked_sub(back).and_then(|at| self.kept.get(at))
        else {
            let text = match self.kept.len() {
                0 => "no tool has given a result yet".to_owned(),
                n => format!("no result {back}: there are 1 to {n}, 1 being the last"),
            };
            return self.line(Style::YELLOW, &text);
        };
        let (label, content) = (label.clone(), safe(content));
        let is_diff = label.starts_with("Edit(") || content.starts_with("diff --git ");
        self.line(Style::YELLOW, &label);
        for line in content.lines() {
            let style = if is_diff { diff_style(line) } else { Style::PLAIN };
            self.done.push(Line::new(style, untab(line)));
        }
    }

    fn agent_result(&mut self, result: &AgentResult) {
        let id = &result.session_id;
        if result.ok {
            let (input, output) = (result.usage.input, result.usage.output);
            self.line(Style::MAGENTA, &format!("[sub-agent {id}] completed (in={input}, out={output})"));
        } else {
            self.line(Style::RED, &format!("[sub-agent {id}] failed"));
        }
        self.brief(Style::GREY, &result.thinking);
        self.brief(Style::PLAIN, &result.text);
        self.keep(&format!("[sub-agent {id}]"), &result.text);
    }

    fn brief(&mut self, style: Style, text: &str) {
        self.line(style, cut(text, 120, 120).trim_end_matches('\n'));
    }
}

fn thinking_line(line: &str) -> Line {
    Line::new(Style::GREY, untab(line)).words(0)
}

/// How a line of a unified diff looks.
pub(super) fn diff_style(line: &str) -> Style {
    match line.as_bytes() {
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => Style::PLAIN.bold(),
        [b'+', ..] => Style::GREEN,
        [b'-', ..] => Style::RED,
        [b'@', b'@', ..] => Style::CYAN,
        _ => Style::PLAIN,
    }
}

/// Tabs as blanks, to the next multiple of eight cells.
pub(super) fn untab(line: &str) -> String {
    if !line.contains('\t') {
        return line.to_owned();
    }
    let mut out = String::with_capacity(line.len() + 8);
    let mut column = 0;
    for piece in line.split_inclusive('\t') {
        let text = piece.trim_end_matches('\t');
        out.push_str(text);
        column += super::style::width(text);
        if piece.len() > text.len() {
            let gap = 8 - column % 8;
            out.extend(std::iter::repeat_n(' ', gap));
            column += gap;
        }
    }
    out
}
