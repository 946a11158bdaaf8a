//! One response of the model, as it grows: the blocks of the assistant line to come (CONTRACT §4).

use crate::model::ModelEvent;
use crate::session::conversation::AssistantLine;
use crate::wire::json;
use crate::wire::message::Usage;

/// A call the model made, as it goes into files and to its tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Unique within the response, `[A-Za-z0-9_-]+`.
    pub id: String,
    /// The tool.
    pub name: String,
    /// A JSON object.
    pub input: String,
    /// What the model wrote, when that is no JSON object; `input` is `{}` then.
    pub broken_input: Option<String>,
}

#[derive(Debug)]
enum Block {
    Thinking { text: String, signature: Option<String>, id: Option<String>, open: bool },
    Redacted(String),
    Text(String),
    Call(Call),
}

/// What a response held when it was complete, and before that what it holds so far.
#[derive(Debug, Default)]
pub struct Response {
    blocks: Vec<Block>,
    /// The last figures; `None` until the provider reported any.
    pub usage: Option<(Usage, bool)>,
    /// The stop reason: present exactly when the response is complete.
    pub stop: Option<String>,
}

impl Response {
    /// Takes one event in. Retries, warnings and failures are the turn's matter.
    pub fn take(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Text(text) => match self.blocks.last_mut() {
                Some(Block::Text(last)) => last.push_str(text),
                _ => self.blocks.push(Block::Text(text.clone())),
            },
            ModelEvent::Thinking(text) => match self.blocks.last_mut() {
                Some(Block::Thinking { text: last, open: true, .. }) => last.push_str(text),
                _ => self.blocks.push(Block::Thinking {
                    text: text.clone(),
                    signature: None,
                    id: None,
                    open: true,
                }),
            },
            ModelEvent::Signature { signature, id } => self.sign(signature, id.as_deref()),
            ModelEvent::RedactedThinking(data) => self.blocks.push(Block::Redacted(data.clone())),
            ModelEvent::ToolCall { id, name, input } => {
                let call = self.call(id, name, input);
                self.blocks.push(Block::Call(call));
            }
            ModelEvent::Usage { usage, estimated } => self.usage = Some((*usage, *estimated)),
            ModelEvent::Stop(reason) => self.stop = Some(reason.clone()),
            ModelEvent::Retry { .. } | ModelEvent::Warning(_) | ModelEvent::Failed(_) => {}
        }
    }

    /// A signature ends the thinking block it signs; one without any text signs an empty block.
    fn sign(&mut self, signature: &str, id: Option<&str>) {
        if !matches!(self.blocks.last(), Some(Block::Thinking { open: true, .. })) {
            let text = String::new();
            self.blocks.push(Block::Thinking { text, signature: None, id: None, open: true });
        }
        if let Some(Block::Thinking { signature: last, id: last_id, open, .. }) = self.blocks.last_mut() {
            *last = Some(signature.to_owned());
            *last_id = id.map(str::to_owned);
            *open = false;
        }
    }

    /// Mends what the APIs would refuse later: odd or doubled ids, an input that is no object.
    fn call(&self, id: &str, name: &str, input: &str) -> Call {
        let mut clean: String = id
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
            .collect();
        if clean.is_empty() {
            clean = format!("call_{}", self.calls().count() + 1);
        }
        let mut unique = clean.clone();
        let mut number = 2;
        while self.calls().any(|call| call.id == unique) {
            unique = format!("{clean}_{number}");
            number += 1;
        }
        let (input, broken_input) = match json::tool_input(input) {
            Ok(input) => (input, None),
            Err(_) => ("{}".to_owned(), Some(input.to_owned())),
        };
        Call { id: unique, name: name.to_owned(), input, broken_input }
    }

    /// The calls, in the model's order.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call(call) => Some(call),
            _ => None,
        })
    }

    /// Takes the calls out: a response that was cut off runs none of them.
    pub fn drop_calls(&mut self) -> usize {
        let before = self.blocks.len();
        self.blocks.retain(|block| !matches!(block, Block::Call(_)));
        before - self.blocks.len()
    }

    /// Takes a last thinking block out that was never signed although others are: cut off before its signature came.
    pub fn drop_unfinished_thinking(&mut self) {
        let signed = self.blocks.iter().any(|b| matches!(b, Block::Thinking { signature: Some(_), .. }));
        if signed && matches!(self.blocks.last(), Some(Block::Thinking { signature: None, .. })) {
            self.blocks.pop();
        }
    }

    /// The text, its blocks joined by LF.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text(text) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The line for conversation.jsonl, without its LF; `None` when no block holds anything.
    pub fn line(&self) -> Option<Vec<u8>> {
        let mut line = AssistantLine::new();
        for block in &self.blocks {
            match block {
                Block::Thinking { text, signature, id, .. } => {
                    line.thinking(text, signature.as_deref(), id.as_deref());
                }
                Block::Redacted(data) => line.redacted(data),
                Block::Text(text) => line.text(text),
                Block::Call(call) => line.tool_use(&call.id, &call.name, &call.input),
            }
        }
        line.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(events: &[ModelEvent]) -> Response {
        let mut response = Response::default();
        for event in events {
            response.take(event);
        }
        response
    }

    fn call(id: &str, input: &str) -> ModelEvent {
        ModelEvent::ToolCall { id: id.into(), name: "Bash".into(), input: input.into() }
    }

    #[test]
    fn pieces_join_and_the_line_keeps_the_models_order() {
        let response = response(&[
            ModelEvent::Thinking("a".into()),
            ModelEvent::Thinking("b".into()),
            ModelEvent::Signature { signature: "s".into(), id: None },
            ModelEvent::Text("x".into()),
            ModelEvent::Text("y".into()),
            call("t1", ""),
        ]);
        let line = String::from_utf8(response.line().unwrap()).unwrap();
        assert_eq!(
            line,
            concat!(
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"ab","signature":"s"},"#,
                r#"{"type":"text","text":"xy"},{"type":"tool_use","id":"t1","name":"Bash","input":{}}]}"#
            )
        );
        assert_eq!(response.text(), "xy");
    }

    #[test]
    fn nothing_makes_no_line() {
        assert!(response(&[]).line().is_none());
        assert!(
            response(&[ModelEvent::Text(String::new()), ModelEvent::Thinking(String::new())])
                .line()
                .is_none()
        );
    }

    #[test]
    fn odd_and_doubled_ids_are_made_unique() {
        let response = response(&[call("a b", "{}"), call("a b", "{}"), call("", "{}")]);
        let ids: Vec<_> = response.calls().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["a_b", "a_b_2", "call_3"]);
    }

    #[test]
    fn an_input_that_is_no_object_is_stored_as_an_empty_one() {
        let response = response(&[call("a", r#"{"command":"rm -r x"#)]);
        let call = response.calls().next().unwrap();
        assert_eq!(
            (call.input.as_str(), call.broken_input.as_deref()),
            ("{}", Some(r#"{"command":"rm -r x"#))
        );
    }
}
