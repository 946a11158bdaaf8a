//! An answer's steps in the words of the three APIs (facts: the vendors' documentation).

use serde_json::{Value, json};

use crate::answer::{Answer, Delta, Step, Usage};

/// Which API was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `POST …/messages`.
    Anthropic,
    /// `POST …/chat/completions`.
    Chat,
    /// `POST …/responses`.
    Responses,
}

/// What goes out, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the body, sent as one piece.
    Bytes(Vec<u8>),
    /// Wait until this name is released.
    Gate(String),
    /// Break the connection.
    Cut,
    /// End the body.
    End,
}

impl Dialect {
    /// By the end of the path.
    pub fn of_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        match path {
            _ if path.ends_with("/messages") => Some(Self::Anthropic),
            _ if path.ends_with("/chat/completions") => Some(Self::Chat),
            _ if path.ends_with("/responses") => Some(Self::Responses),
            _ => None,
        }
    }

    /// The body of an error status.
    pub fn error_body(self, kind: &str, message: &str) -> Value {
        match self {
            Self::Anthropic => {
                json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_mock"})
            }
            Self::Chat | Self::Responses => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
            }
        }
    }
}

/// The whole stream of an answer.
pub fn render(answer: &Answer, dialect: Dialect) -> Vec<Piece> {
    let mut out = Renderer { answer, dialect, pieces: Vec::new(), index: 0, output: Vec::new() };
    out.begin();
    for step in &answer.steps {
        out.step(step);
    }
    match answer.split {
        Some(size) => split(out.pieces, size),
        None => out.pieces,
    }
}

/// Joins what is neighbouring and cuts it every `size` bytes, so that pieces end anywhere.
fn split(pieces: Vec<Piece>, size: usize) -> Vec<Piece> {
    let mut cut = Vec::new();
    let mut run = Vec::new();
    let flush = |run: &mut Vec<u8>, cut: &mut Vec<Piece>| {
        cut.extend(run.chunks(size).map(|part| Piece::Bytes(part.to_vec())));
        run.clear();
    };
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => run.extend(bytes),
            other => {
                flush(&mut run, &mut cut);
                cut.push(other);
            }
        }
    }
    flush(&mut run, &mut cut);
    cut
}

struct Renderer<'a> {
    answer: &'a Answer,
    dialect: Dialect,
    pieces: Vec<Piece>,
    /// The block's index (Anthropic, Responses), the call's (Chat).
    index: usize,
    /// Finished items (Responses).
    output: Vec<Value>,
}

impl Renderer<'_> {
    fn event(&mut self, value: &Value) {
        let bytes = self.event_bytes(value);
        self.pieces.push(Piece::Bytes(bytes));
    }

    fn event_bytes(&self, value: &Value) -> Vec<u8> {
        let eol = self.answer.eol;
        let blank = if self.answer.space { " " } else { "" };
        match value["type"].as_str() {
            Some(name) if self.dialect != Dialect::Chat => {
                format!("event:{blank}{name}{eol}data:{blank}{value}{eol}{eol}")
            }
            _ => format!("data:{blank}{value}{eol}{eol}"),
        }
        .into_bytes()
    }

    fn begin(&mut self) {
        match self.dialect {
            Dialect::Anthropic => {
                let mut message = json!({"id": "msg_mock", "type": "message", "role": "assistant", "model": "mock",
                    "content": [], "stop_reason": null, "stop_sequence": null});
                if let Some(usage) = self.answer.usage {
                    message["usage"] = json!({"input_tokens": usage.input,
                        "cache_creation_input_tokens": usage.cache_creation,
                        "cache_read_input_tokens": usage.cache_read, "output_tokens": 1});
                }
                self.event(&json!({"type": "message_start", "message": message}));
            }
            Dialect::Chat => self.chat(json!({"role": "assistant", "content": ""}), Value::Null),
            Dialect::Responses => self.event(&json!({"type": "response.created",
                "response": {"id": "resp_mock", "object": "response", "status": "in_progress", "output": []}})),
        }
    }

    fn chat(&mut self, delta: Value, finish: Value) {
        self.event(&chat_chunk(delta, finish));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Thinking(deltas, signature) => self.thinking(deltas, signature.as_deref()),
            Step::Redacted(data) => self.redacted(data),
            Step::Text(deltas) => self.text(deltas),
            Step::Tool { name, id, input } => self.tool(name, id, input),
            Step::Stop(reason) => self.stop(reason),
            Step::Error { kind, message } => {
                let value = match self.dialect {
                    Dialect::Anthropic => self.dialect.error_body(kind, message),
                    Dialect::Chat => {
                        json!({"choices": [], "error": {"message": message, "type": kind, "code": kind}})
                    }
                    Dialect::Responses => json!({"type": "error", "code": kind, "message": message}),
                };
                self.event(&value);
                self.pieces.push(Piece::End);
            }
            Step::Gate(name) => self.pieces.push(Piece::Gate(name.clone())),
            Step::Cut => self.pieces.push(Piece::Cut),
            Step::End => self.pieces.push(Piece::End),
            Step::Raw(bytes) => self.pieces.push(Piece::Bytes(bytes.clone())),
            Step::Comment(text) => {
                let eol = self.answer.eol;
                self.pieces.push(Piece::Bytes(format!(": {text}{eol}{eol}").into_bytes()));
            }
            Step::Ping if self.dialect == Dialect::Anthropic => self.event(&json!({"type": "ping"})),
            Step::Ping => self.step(&Step::Comment("ping".into())),
        }
    }

    /// Sends the deltas; says whether the block is to be closed.
    fn deltas(&mut self, deltas: &[Delta], make: impl Fn(&Self, &str) -> Value) -> bool {
        for delta in deltas {
            match delta {
                Delta::Piece(text) => {
                    let value = make(self, text);
                    self.event(&value);
                }
                Delta::Repeat(count, text) => {
                    let bytes = self.event_bytes(&make(self, text));
                    // Pieces of about 64 KiB: a server under load sends several events at once.
                    let a_piece = (65_536 / bytes.len()).max(1);
                    let mut left = *count;
                    while left > 0 {
                        let now = left.min(a_piece);
                        self.pieces.push(Piece::Bytes(bytes.repeat(now)));
                        left -= now;
                    }
                }
                Delta::Gate(name) => self.pieces.push(Piece::Gate(name.clone())),
                Delta::Open => return false,
            }
        }
        true
    }

    fn thinking(&mut self, deltas: &[Delta], signature: Option<&str>) {
        match self.dialect {
            Dialect::Anthropic => {
                let open = json!({"type": "thinking", "thinking": "", "signature": ""});
                self.block(open, |this| {
                    let whole = this.deltas(deltas, |this, text| {
                        this.block_delta(json!({"type": "thinking_delta", "thinking": text}))
                    });
                    if let (true, Some(signature)) = (whole, signature) {
                        let value =
                            this.block_delta(json!({"type": "signature_delta", "signature": signature}));
                        this.event(&value);
                    }
                    whole
                });
            }
            Dialect::Chat => {
                self.deltas(deltas, |_, text| chat_chunk(json!({"reasoning_content": text}), Value::Null));
            }
            Dialect::Responses => {
                let id = format!("rs_{}", self.index);
                let open = json!({"type": "reasoning", "id": id, "summary": []});
                self.item(open, |this| {
                    let whole = this.deltas(deltas, |this, text| {
                        json!({"type": "response.reasoning_summary_text.delta", "item_id": id,
                            "output_index": this.index, "summary_index": 0, "delta": text})
                    });
                    let mut item = json!({"type": "reasoning", "id": id,
                        "summary": [{"type": "summary_text", "text": joined(deltas)}]});
                    if let Some(signature) = signature {
                        item["encrypted_content"] = json!(signature);
                    }
                    whole.then_some(item)
                });
            }
        }
    }

    fn redacted(&mut self, data: &str) {
        match self.dialect {
            Dialect::Anthropic => self.block(json!({"type": "redacted_thinking", "data": data}), |_| true),
            Dialect::Chat => {}
            Dialect::Responses => {
                let item = json!({"type": "reasoning", "id": format!("rs_{}", self.index), "summary": [],
                    "encrypted_content": data});
                self.item(item.clone(), |_| Some(item));
            }
        }
    }

    fn text(&mut self, deltas: &[Delta]) {
        match self.dialect {
            Dialect::Anthropic => self.block(json!({"type": "text", "text": ""}), |this| {
                this.deltas(deltas, |this, text| {
                    this.block_delta(json!({"type": "text_delta", "text": text}))
                })
            }),
            Dialect::Chat => {
                self.deltas(deltas, |_, text| chat_chunk(json!({"content": text}), Value::Null));
            }
            Dialect::Responses => {
                let id = format!("msg_{}", self.index);
                let open = json!({"type": "message", "id": id, "role": "assistant", "status": "in_progress",
                    "content": []});
                self.item(open, |this| {
                    let whole = this.deltas(deltas, |this, text| {
                        json!({"type": "response.output_text.delta", "item_id": id, "output_index": this.index,
                            "content_index": 0, "delta": text})
                    });
                    whole.then(|| {
                        json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
                            "content": [{"type": "output_text", "text": joined(deltas), "annotations": []}]})
                    })
                });
            }
        }
    }

    fn tool(&mut self, name: &str, id: &str, input: &[Delta]) {
        match self.dialect {
            Dialect::Anthropic => {
                self.block(json!({"type": "tool_use", "id": id, "name": name, "input": {}}), |this| {
                    this.deltas(input, |this, text| {
                        this.block_delta(json!({"type": "input_json_delta", "partial_json": text}))
                    })
                });
            }
            Dialect::Chat => {
                let index = self.index;
                self.chat(
                    json!({"tool_calls": [{"index": index, "id": id, "type": "function",
                        "function": {"name": name, "arguments": ""}}]}),
                    Value::Null,
                );
                self.deltas(input, |_, text| {
                    let call = json!({"index": index, "function": {"arguments": text}});
                    chat_chunk(json!({"tool_calls": [call]}), Value::Null)
                });
                self.index += 1;
            }
            Dialect::Responses => {
                let item_id = format!("fc_{}", self.index);
                let open = json!({"type": "function_call", "id": item_id, "call_id": id, "name": name,
                    "arguments": "", "status": "in_progress"});
                self.item(open, |this| {
                    let whole = this.deltas(input, |this, text| {
                        json!({"type": "response.function_call_arguments.delta", "item_id": item_id,
                            "output_index": this.index, "delta": text})
                    });
                    whole.then(|| {
                        json!({"type": "function_call", "id": item_id, "call_id": id, "name": name,
                            "arguments": joined(input), "status": "completed"})
                    })
                });
            }
        }
    }

    /// An Anthropic block: start, what `fill` sends, and its stop when `fill` says that it is whole.
    fn block(&mut self, open: Value, fill: impl FnOnce(&mut Self) -> bool) {
        self.event(&json!({"type": "content_block_start", "index": self.index, "content_block": open}));
        if fill(self) {
            self.event(&json!({"type": "content_block_stop", "index": self.index}));
        }
        self.index += 1;
    }

    fn block_delta(&self, delta: Value) -> Value {
        json!({"type": "content_block_delta", "index": self.index, "delta": delta})
    }

    /// An item of the Responses API: added, what `fill` sends, done with the item that `fill` gives.
    fn item(&mut self, open: Value, fill: impl FnOnce(&mut Self) -> Option<Value>) {
        self.event(&json!({"type": "response.output_item.added", "output_index": self.index, "item": open}));
        if let Some(item) = fill(self) {
            let done = json!({"type": "response.output_item.done", "output_index": self.index, "item": item});
            self.event(&done);
            self.output.push(item);
        }
        self.index += 1;
    }

    fn stop(&mut self, reason: &str) {
        match self.dialect {
            Dialect::Anthropic => {
                let mut delta = json!({"type": "message_delta",
                    "delta": {"stop_reason": reason, "stop_sequence": null}});
                if let Some(usage) = self.answer.usage {
                    delta["usage"] = json!({"output_tokens": usage.output});
                }
                self.event(&delta);
                self.event(&json!({"type": "message_stop"}));
            }
            Dialect::Chat => self.stop_chat(reason),
            Dialect::Responses => self.stop_responses(reason),
        }
        self.pieces.push(Piece::End);
    }

    fn stop_chat(&mut self, reason: &str) {
        let finish = match reason {
            "end_turn" => "stop",
            "tool_use" => "tool_calls",
            "max_tokens" => "length",
            "refusal" => "content_filter",
            other => other,
        };
        self.chat(json!({}), json!(finish));
        if let Some(usage) = self.answer.usage {
            let chunk = json!({"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 0,
                "model": "mock", "choices": [], "usage": openai_usage(usage, "prompt_tokens", "completion_tokens")});
            self.event(&chunk);
        }
        if self.answer.done {
            let eol = self.answer.eol;
            let blank = if self.answer.space { " " } else { "" };
            self.pieces.push(Piece::Bytes(format!("data:{blank}[DONE]{eol}{eol}").into_bytes()));
        }
    }

    fn stop_responses(&mut self, reason: &str) {
        let cause = match reason {
            "max_tokens" => Some("max_output_tokens"),
            "refusal" | "content_filter" => Some("content_filter"),
            _ => None,
        };
        let status = if cause.is_some() { "incomplete" } else { "completed" };
        let mut response =
            json!({"id": "resp_mock", "object": "response", "status": status, "output": self.output});
        if let Some(cause) = cause {
            response["incomplete_details"] = json!({"reason": cause});
        }
        if let Some(usage) = self.answer.usage {
            response["usage"] = openai_usage(usage, "input_tokens", "output_tokens");
        }
        self.event(&json!({"type": format!("response.{status}"), "response": response}));
    }
}

/// What an OpenAI-style API calls input includes what came from the cache.
fn openai_usage(usage: Usage, input_key: &str, output_key: &str) -> Value {
    let input = usage.input + usage.cache_read + usage.cache_creation;
    let mut value = serde_json::Map::new();
    value.insert(input_key.into(), json!(input));
    value.insert(format!("{input_key}_details"), json!({"cached_tokens": usage.cache_read}));
    value.insert(output_key.into(), json!(usage.output));
    value.insert("total_tokens".into(), json!(input + usage.output));
    Value::Object(value)
}

fn chat_chunk(delta: Value, finish: Value) -> Value {
    json!({"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 0, "model": "mock",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

/// The text of a block that was sent in pieces.
fn joined(deltas: &[Delta]) -> String {
    let mut text = String::new();
    for delta in deltas {
        match delta {
            Delta::Piece(piece) => text.push_str(piece),
            Delta::Repeat(count, piece) => text.push_str(&piece.repeat(*count)),
            Delta::Gate(_) | Delta::Open => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(script: &str, dialect: Dialect) -> String {
        let answer: Answer = script.parse().expect("an answer");
        let bytes: Vec<u8> = render(&answer, dialect)
            .into_iter()
            .flat_map(|piece| if let Piece::Bytes(bytes) = piece { bytes } else { Vec::new() })
            .collect();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn an_anthropic_stream_has_its_events_in_order() {
        let stream = stream("thinking a\nsignature s\ntext b\ntool T i {}", Dialect::Anthropic);
        let names: Vec<&str> = stream.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        assert_eq!(
            names,
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop"
            ]
        );
        assert!(stream.contains(r#""stop_reason":"tool_use""#));
    }

    #[test]
    fn chat_counts_cached_tokens_as_input_and_ends_with_done() {
        let stream = stream("text b\nusage 200 7 800", Dialect::Chat);
        assert!(stream.contains(r#""prompt_tokens":1000"#) && stream.contains(r#""cached_tokens":800"#));
        assert!(stream.ends_with("data: [DONE]\n\n"));
    }

    #[test]
    fn responses_ends_with_the_whole_output() {
        let stream = stream("text \"a\" \"b\"\nstop max_tokens", Dialect::Responses);
        assert!(stream.contains(r#""text":"ab""#) && stream.contains("event: response.incomplete\n"));
    }

    #[test]
    fn split_pieces_hold_the_same_bytes_and_keep_gates_in_place() {
        let answer: Answer = "text \"a\" @go \"b\"\nsplit 3".parse().expect("an answer");
        let pieces = render(&answer, Dialect::Anthropic);
        assert!(pieces.iter().all(|piece| !matches!(piece, Piece::Bytes(bytes) if bytes.len() > 3)));
        let gate = pieces.iter().position(|piece| *piece == Piece::Gate("go".into())).expect("the gate");
        let before: Vec<u8> = pieces[..gate]
            .iter()
            .flat_map(|piece| if let Piece::Bytes(bytes) = piece { bytes.clone() } else { Vec::new() })
            .collect();
        assert!(String::from_utf8_lossy(&before).contains(r#""text":"a""#));
    }
}
