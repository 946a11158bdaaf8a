//! What happened goes to events.jsonl first, then to whoever watches (CONTRACT §5).

use super::Display;
use crate::runtime::cancel::Cancel;
use crate::session::StorageError;
use crate::session::events::{Event, EventLog};
use crate::session::time::Timestamp;
use crate::wire::message::{Message, Todo};

/// Writes events and shows them.
pub struct Recorder {
    log: EventLog,
    display: Box<dyn Display>,
    cancel: Option<Cancel>,
    line: Vec<u8>,
}

impl Recorder {
    /// Events go to `log`, then to `display`.
    pub fn new(log: EventLog, display: Box<dyn Display>) -> Self {
        Self { log, display, cancel: None, line: Vec::new() }
    }

    /// Who watches.
    pub fn display(&mut self) -> &mut dyn Display {
        self.display.as_mut()
    }

    /// The log.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// What may cut a blocked display short.
    pub fn set_cancel(&mut self, cancel: Option<Cancel>) {
        self.cancel = cancel;
    }

    /// Writes an event that no message shows.
    pub fn event(&mut self, event: &Event<'_>) -> Result<(), StorageError> {
        self.write(event, None)
    }

    /// Writes an event and shows the message that goes with it.
    pub fn show(&mut self, event: &Event<'_>, message: &Message) -> Result<(), StorageError> {
        self.write(event, Some(message))
    }

    /// Shows what another writer has put into events.jsonl.
    pub fn foreign(&mut self, lines: &[u8], messages: &[Message]) {
        self.display.event(lines, None, self.cancel.as_ref());
        for message in messages {
            self.display.event(b"", Some(message), self.cancel.as_ref());
        }
    }

    fn write(&mut self, event: &Event<'_>, message: Option<&Message>) -> Result<(), StorageError> {
        self.line.clear();
        event.encode(Timestamp::now(), &mut self.line);
        let result = self.log.append(&self.line);
        self.display.event(&self.line, message, self.cancel.as_ref());
        result
    }

    /// A piece of text.
    pub fn text(&mut self, content: String) -> Result<(), StorageError> {
        let message = Message::Text { content };
        let Message::Text { content } = &message else { return Ok(()) };
        self.write(&Event::Text { content }, Some(&message))
    }

    /// A piece of thinking.
    pub fn thinking(&mut self, content: String) -> Result<(), StorageError> {
        let message = Message::Thinking { content };
        let Message::Thinking { content } = &message else { return Ok(()) };
        self.write(&Event::Thinking { content }, Some(&message))
    }

    /// A call.
    pub fn tool_call(&mut self, name: &str, id: &str, input: &str) -> Result<(), StorageError> {
        let message = Message::tool_call(name.to_owned(), id.to_owned(), input.to_owned());
        self.write(&Event::ToolCall { name, id, input }, Some(&message))
    }

    /// A result, as displayed.
    pub fn tool_result(
        &mut self,
        tool_use_id: &str,
        name: &str,
        content: &str,
        todo: Option<Todo>,
    ) -> Result<(), StorageError> {
        let message = Message::ToolResult {
            tool_use_id: tool_use_id.to_owned(),
            name: name.to_owned(),
            content: content.to_owned(),
            todo,
        };
        self.write(&Event::ToolResult { tool_use_id, name, content }, Some(&message))
    }

    /// An error, for the log and the person.
    pub fn error(&mut self, text: &str) -> Result<(), StorageError> {
        let message = Message::Error { message: text.to_owned(), kind: None };
        self.write(&Event::Error { message: text }, Some(&message))
    }
}
