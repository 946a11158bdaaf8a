//! `export`: a readable transcript of a session, streamed from its events.

use std::fmt::Write as _;
use std::fs::File;

use serde_json::json;

use super::ControlError;
use crate::cli::args::ExportFormat;
use crate::exit::Exit;
use crate::session::paths::SessionDir;
use crate::ui::out::Stdout;
use crate::wire::message::Message;
use crate::wire::ndjson::Lines;
use crate::wire::replay::Replay;

/// Prints the whole session.
pub(super) fn export(dir: &SessionDir, format: ExportFormat) -> Result<u8, ControlError> {
    let mut stdout = Stdout::new();
    each_piece(dir, format, |piece| {
        stdout.write(piece.as_bytes(), None);
        Ok(!stdout.is_closed())
    })?;
    Ok(if stdout.is_closed() { Exit::BrokenPipe.code() } else { Exit::Ok.code() })
}

/// Writes the whole session to a file.
pub(in crate::cli) fn export_to(dir: &SessionDir, format: ExportFormat, file: File) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::io::BufWriter::new(file);
    each_piece(dir, format, |piece| file.write_all(piece.as_bytes()).map(|()| true))?;
    file.flush()
}

/// Gives the transcript to `write`, piece by piece, until that says no.
fn each_piece(
    dir: &SessionDir,
    format: ExportFormat,
    mut write: impl FnMut(&str) -> std::io::Result<bool>,
) -> std::io::Result<()> {
    let mut lines = Lines::new(File::open(dir.events())?);
    let mut transcript = Replay::whole();
    let mut writer = Writer { format, first: true };
    if !write(&writer.head(&dir.name()))? {
        return Ok(());
    }
    let mut messages = Vec::new();
    loop {
        let line = lines.next()?;
        let at_end = line.is_none();
        match line {
            Some(line) => transcript.line(line.bytes, &mut messages),
            None => transcript.finish(&mut messages),
        }
        for message in messages.drain(..) {
            if !write(&writer.message(&message))? {
                return Ok(());
            }
        }
        if at_end {
            return write(writer.tail()).map(drop);
        }
    }
}

struct Writer {
    format: ExportFormat,
    first: bool,
}

/// One part of a transcript.
struct Part<'a> {
    /// A class in HTML, a `type` in JSON.
    kind: &'static str,
    title: String,
    body: &'a str,
    /// Shown as it is, in a fixed font, folded.
    verbatim: bool,
}

impl<'a> Part<'a> {
    fn of(message: &'a Message) -> Option<Self> {
        let part = |kind, title: &str, body, verbatim| Self { kind, title: title.to_owned(), body, verbatim };
        Some(match message {
            Message::UserMessage { content } => part("user", "User", content, false),
            Message::Text { content } => part("text", "Assistant", content, false),
            Message::Thinking { content } => part("thinking", "Thinking", content, true),
            Message::ToolCall { name, input, .. } => part("tool_call", &format!("Call: {name}"), input, true),
            Message::ToolResult { name, content, .. } => {
                part("tool_result", &format!("Result: {name}"), content, true)
            }
            Message::Error { message, .. } => part("error", "Error", message, false),
            Message::UserNotify { text } => part("user_notify", "User, to the running turn", text, false),
            Message::AgentResult(result) => {
                let title =
                    format!("Sub-agent {} {}", result.session_id, if result.ok { "ok" } else { "failed" });
                part("sub_agent_result", &title, &result.text, false)
            }
            Message::AsyncTaskResult { task_id, exit_code, output } => {
                let title = format!("Background task {task_id}, exit code {exit_code}");
                part("async_task_result", &title, output, true)
            }
            _ => return None,
        })
    }
}

impl Writer {
    fn head(&self, name: &str) -> String {
        match self.format {
            ExportFormat::Md => format!("# Session {name}\n"),
            ExportFormat::Json => "[".to_owned(),
            ExportFormat::Html => {
                let name = escaped(name);
                format!(
                    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
                     content=\"width=device-width\">\n<title>{name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
                )
            }
        }
    }

    fn tail(&self) -> &'static str {
        match self.format {
            ExportFormat::Md => "",
            ExportFormat::Json => "\n]\n",
            ExportFormat::Html => "</body>\n</html>\n",
        }
    }

    fn message(&mut self, message: &Message) -> String {
        let Some(part) = Part::of(message) else { return String::new() };
        let mut text = String::new();
        match self.format {
            ExportFormat::Md if part.verbatim => {
                let fence = fence_for(part.body);
                let _ = write!(
                    text,
                    "\n**{}**\n\n{fence}\n{}\n{fence}\n",
                    part.title,
                    part.body.trim_end_matches('\n')
                );
            }
            ExportFormat::Md => {
                let _ = write!(text, "\n## {}\n\n{}\n", part.title, part.body.trim_end_matches('\n'));
            }
            ExportFormat::Json => {
                let comma = if std::mem::take(&mut self.first) { "" } else { "," };
                let _ = write!(
                    text,
                    "{comma}\n{}",
                    json!({"type": part.kind, "title": part.title, "content": part.body})
                );
            }
            ExportFormat::Html => {
                let (kind, title, body) = (part.kind, escaped(&part.title), escaped(part.body));
                let _ = if part.verbatim {
                    writeln!(
                        text,
                        "<details class=\"{kind}\"><summary>{title}</summary><pre>{body}</pre></details>"
                    )
                } else {
                    writeln!(text, "<section class=\"{kind}\"><h2>{title}</h2><div>{body}</div></section>")
                };
            }
        }
        text
    }
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}
h2{font-size:.85rem;margin:1.5rem 0 .25rem;opacity:.6}
section div{white-space:pre-wrap;overflow-wrap:anywhere}
.user div{font-weight:600}.error div{color:#b00020}
details{margin:.5rem 0;opacity:.85}summary{cursor:pointer}
pre{white-space:pre-wrap;overflow-wrap:anywhere;border-left:3px solid #8884;padding-left:.75rem}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}}
";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A fence longer than any run of backquotes in the text.
fn fence_for(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_cannot_break_out_of_its_frame() {
        assert_eq!(fence_for("a ``` b ```` c"), "`````");
        let mut writer = Writer { format: ExportFormat::Html, first: true };
        let text = writer.message(&Message::Text { content: "<script>\"&".into() });
        assert!(text.contains("&lt;script&gt;&quot;&amp;") && !text.contains("<script>"));
    }

    #[test]
    fn json_is_one_array() {
        let mut writer = Writer { format: ExportFormat::Json, first: true };
        let mut text = writer.head("s");
        text.push_str(&writer.message(&Message::UserMessage { content: "a".into() }));
        text.push_str(&writer.message(&Message::Text { content: "b".into() }));
        text.push_str(writer.tail());
        let all: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!((all.len(), all[1]["content"].as_str()), (2, Some("b")));
    }
}
