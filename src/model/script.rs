//! The `script` provider: plays a cassette, so that the whole agent runs without a network and a key.
//!
//! A cassette is NDJSON: `text`, `thinking` (with `signature`), `redacted_thinking`, `tool_call`, `usage`, `retry`, and
//! `stop` or `error`, which end a response. Any line may have `delay_ms`. Responses are played in order; the last one
//! repeats when they are used up.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::sse::{number_of, text_of};
use super::{ErrorKind, Model, ModelError, ModelEvent, Request, Settings};
use crate::runtime::cancel::Cancel;
use crate::wire::json;
use crate::wire::message::Usage;

/// The cassette that is played when none is named.
const DEMO: &[u8] = include_bytes!("../assets/demo.ndjson");

/// Bytes of one line of a cassette.
const MAX_LINE: u64 = 64 << 20;

trait Source: Read + Seek + Send {}
impl<T: Read + Seek + Send> Source for T {}

/// A model that plays a cassette.
pub(super) struct ScriptModel {
    name: String,
    tries: u32,
    tape: Mutex<Tape>,
}

impl ScriptModel {
    /// Opens the cassette of the settings, or the built-in demo.
    pub(super) fn open(settings: Settings) -> Result<Self, ModelError> {
        let (source, label): (Box<dyn Source>, String) = match &settings.script_file {
            Some(path) => (Box::new(open(path)?), path.display().to_string()),
            None => (Box::new(Cursor::new(DEMO)), "the built-in demo".to_owned()),
        };
        let tape = Tape { reader: BufReader::new(source), label, line: 0, at: 0, response: (0, 0), calls: 0 };
        Ok(Self { name: settings.model, tries: settings.retry.tries, tape: Mutex::new(tape) })
    }

    fn tape(&self) -> MutexGuard<'_, Tape> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &Path) -> Result<File, ModelError> {
    let cannot =
        |error: io::Error| ModelError::new(ErrorKind::Settings, format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(cannot)?;
    if file.metadata().map_err(cannot)?.is_file() {
        return Ok(file);
    }
    Err(ModelError::new(ErrorKind::Settings, format!("{} is no file, so no cassette", path.display())))
}

impl Model for ScriptModel {
    fn stream<'a>(
        &'a self,
        _: &'a Request<'a>,
        cancel: &'a Cancel,
    ) -> Box<dyn Iterator<Item = ModelEvent> + 'a> {
        Box::new(Play { model: self, cancel, next: None, usage: None, failed: 0, begun: false, over: false })
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// The cassette and the place on it.
struct Tape {
    reader: BufReader<Box<dyn Source>>,
    /// For messages.
    label: String,
    /// Number and offset of the next line.
    line: u64,
    at: u64,
    /// Line number and offset where the last response began.
    response: (u64, u64),
    /// Calls that were given an id.
    calls: u64,
}

impl Tape {
    /// The next line that is not empty, and its number; `None` at the end.
    fn next_line(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        loop {
            let mut line = Vec::new();
            let count = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut line)?;
            if count == 0 {
                return Ok(None);
            }
            self.at += count as u64;
            self.line += 1;
            if !line.trim_ascii().is_empty() {
                return Ok(Some((self.line, line)));
            }
        }
    }

    /// The first line of the next response: when the tape is at its end, of the last one again.
    fn first_line(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let here = (self.line, self.at);
        if let Some(line) = self.next_line()? {
            self.response = here;
            return Ok(Some(line));
        }
        (self.line, self.at) = self.response;
        self.reader.seek(SeekFrom::Start(self.at))?;
        self.next_line()
    }
}

/// One response being played.
struct Play<'a> {
    model: &'a ScriptModel,
    cancel: &'a Cancel,
    /// What still belongs to the line last read.
    next: Option<ModelEvent>,
    usage: Option<Usage>,
    failed: u32,
    /// A line of this response was read.
    begun: bool,
    over: bool,
}

impl Iterator for Play<'_> {
    type Item = ModelEvent;

    fn next(&mut self) -> Option<ModelEvent> {
        if self.cancel.is_cancelled() {
            self.over = true;
        }
        if let Some(event) = self.next.take_if(|_| !self.cancel.is_cancelled()) {
            return Some(event);
        }
        while !self.over {
            let (number, line) = match self.line() {
                Ok(line) => line,
                Err(error) => return self.end(ModelEvent::Failed(error)),
            };
            let delay = number_of(&line, "delay_ms").unwrap_or(0);
            if delay > 0 && self.cancel.sleep(Duration::from_millis(delay)) {
                self.over = true;
                return None;
            }
            if let Some(event) = self.event(number, &line) {
                return Some(event);
            }
        }
        None
    }
}

impl Play<'_> {
    fn line(&mut self) -> Result<(u64, Vec<u8>), ModelError> {
        let mut tape = self.model.tape();
        let line = if self.begun { tape.next_line() } else { tape.first_line() };
        let wrong = |why: &str| ModelError::new(ErrorKind::Settings, format!("{}: {why}", tape.label));
        match line {
            Ok(Some(line)) => {
                self.begun = true;
                Ok(line)
            }
            Ok(None) if self.begun => {
                Err(wrong("it ends in the middle of a response: the last line must be a `stop`"))
            }
            Ok(None) => Err(wrong("it holds no response")),
            Err(error) => Err(wrong(&error.to_string())),
        }
    }

    fn end(&mut self, last: ModelEvent) -> Option<ModelEvent> {
        self.over = true;
        Some(last)
    }

    /// What a line means; `None` when it gives nothing of its own.
    fn event(&mut self, number: u64, line: &[u8]) -> Option<ModelEvent> {
        let line = line.trim_ascii();
        let text = |key| text_of(line, key).unwrap_or_default().into_owned();
        match text("type").as_str() {
            "text" => Some(ModelEvent::Text(text("content"))),
            "thinking" => {
                let id = text_of(line, "id").map(|id| id.into_owned());
                let signature = text_of(line, "signature")
                    .map(|text| ModelEvent::Signature { signature: text.into_owned(), id });
                match text("content") {
                    content if content.is_empty() => signature,
                    content => {
                        self.next = signature;
                        Some(ModelEvent::Thinking(content))
                    }
                }
            }
            "redacted_thinking" => Some(ModelEvent::RedactedThinking(text("data"))),
            "tool_call" => Some(self.call(text("id"), text("name"), line)),
            "usage" => {
                let count = |key| number_of(line, key).unwrap_or(0);
                self.usage = Some(Usage {
                    input: count("input_tokens"),
                    output: count("output_tokens"),
                    cache_read: count("cache_read_input_tokens"),
                    cache_creation: count("cache_creation_input_tokens"),
                });
                None
            }
            "retry" => {
                let message = "the cassette asks for a retry".to_owned();
                Some(ModelEvent::Retry { usage: self.usage.take(), message, wait: Duration::ZERO })
            }
            "stop" => {
                self.next = Some(ModelEvent::Stop(text("reason")));
                let usage = self.usage.take();
                self.end(ModelEvent::Usage { usage: usage.unwrap_or_default(), estimated: usage.is_none() })
            }
            "error" => self.error(line),
            kind => {
                let why = match kind {
                    "" => "is no JSON object with a `type`".to_owned(),
                    kind => format!("has the unknown type `{kind}`"),
                };
                let message = format!("{}: line {number} {why}", self.model.tape().label);
                self.end(ModelEvent::Failed(ModelError::new(ErrorKind::Settings, message)))
            }
        }
    }

    /// A call: `input` is an object, or a string with exactly what a model sent.
    fn call(&self, id: String, name: String, line: &[u8]) -> ModelEvent {
        let raw = json::member(line, "input").unwrap_or_default();
        let input = json::string(raw).unwrap_or_else(|| json::clean(raw)).into_owned();
        let id = match id {
            id if id.is_empty() => {
                let mut tape = self.model.tape();
                tape.calls += 1;
                format!("call_{}", tape.calls)
            }
            id => id,
        };
        ModelEvent::ToolCall { id, name, input }
    }

    /// An `error` line: one that HTTP would retry goes on with the next response, at once.
    fn error(&mut self, line: &[u8]) -> Option<ModelEvent> {
        let message = text_of(line, "message").unwrap_or_default().into_owned();
        let status = number_of(line, "status").and_then(|status| u16::try_from(status).ok());
        let Some(status) = status else {
            return self.end(ModelEvent::Failed(ModelError::new(ErrorKind::Rejected, message)));
        };
        let body = serde_json::json!({ "error": { "message": message } }).to_string();
        let mut error = ModelError { message, ..ModelError::from_status(status, body.as_bytes()) };
        self.failed += 1;
        if error.is_retryable() && self.failed < self.model.tries {
            self.begun = false;
            return Some(ModelEvent::Retry {
                usage: self.usage.take(),
                message: error.message,
                wait: Duration::ZERO,
            });
        }
        if error.is_retryable() {
            error.message.push_str(&format!(" (given up after {} tries)", self.failed));
        }
        self.end(ModelEvent::Failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Lines, run, show};
    use super::super::{Provider, new};
    use super::*;
    use std::io::Write;

    fn settings(cassette: &str) -> (tempfile::NamedTempFile, Settings) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(cassette.as_bytes()).unwrap();
        let mut settings = Settings::new(Provider::Script);
        settings.script_file = Some(file.path().to_owned());
        (file, settings)
    }

    /// The events of so many calls.
    fn play(cassette: &str, calls: usize) -> Vec<Vec<String>> {
        let (_file, settings) = settings(cassette);
        let model = new(settings).unwrap();
        (0..calls).map(|_| show(&run(model.as_ref(), &Lines::hello()))).collect()
    }

    #[test]
    fn responses_come_in_order_and_the_last_one_repeats() {
        let cassette = r#"{"type":"text","content":"one"}
{"type":"stop","reason":"end_turn"}

{"type":"thinking","content":"t","signature":"s","id":"rs_1"}
{"type":"redacted_thinking","data":"d"}
{"type":"tool_call","name":"Read","input":{"path":"x"}}
{"type":"tool_call","name":"Read","id":"mine","input":"{\"pa"}
{"type":"usage","input_tokens":1,"output_tokens":2,"cache_read_input_tokens":3,"cache_creation_input_tokens":4}
{"type":"stop","reason":"tool_use"}"#;
        let second = |call: &str| {
            let call = format!("call: {call} Read {{\"path\":\"x\"}}");
            let lines = [
                "thinking: t",
                "signature: s Some(\"rs_1\")",
                "redacted: d",
                &call,
                "call: mine Read {\"pa",
                "usage: 1 2 3 4",
                "stop: tool_use",
            ];
            lines.map(str::to_owned).to_vec()
        };
        let first = ["text: one", "usage: 0 0 0 0 estimated", "stop: end_turn"].map(str::to_owned).to_vec();
        assert_eq!(play(cassette, 3), [first, second("call_1"), second("call_2")]);
    }

    #[test]
    fn an_error_that_http_would_retry_goes_on_with_the_next_response() {
        let error = r#"{"type":"usage","input_tokens":5,"output_tokens":1}
{"type":"error","message":"busy","status":529}
"#;
        let good = "{\"type\":\"text\",\"content\":\"ok\"}\n{\"type\":\"stop\",\"reason\":\"end_turn\"}\n";
        let events = play(&format!("{error}{good}"), 1);
        assert_eq!(
            events[0],
            ["retry: busy Some((5, 1))", "text: ok", "usage: 0 0 0 0 estimated", "stop: end_turn"]
        );
        let events = play(error, 1);
        assert_eq!(events[0].len(), 4, "the last response repeats, within the tries: {events:?}");
        assert_eq!(events[0][3], "failed: Overloaded Some(529) busy (given up after 4 tries)");
        assert_eq!(
            play(r#"{"type":"error","message":"no","status":401}"#, 1)[0],
            ["failed: Auth Some(401) no"]
        );
        assert_eq!(play(r#"{"type":"error","message":"no"}"#, 1)[0], ["failed: Rejected None no"]);
    }

    #[test]
    fn a_cassette_that_is_none_says_where() {
        for (cassette, why) in [
            ("", "it holds no response"),
            ("{\"type\":\"text\",\"content\":\"x\"}\n", "it ends in the middle of a response"),
            ("\n{\"type\":\"tex\"}\n", "line 2 has the unknown type `tex`"),
            ("hello\n", "line 1 is no JSON object with a `type`"),
        ] {
            let events = play(cassette, 1);
            let last = events[0].last().unwrap();
            assert!(last.starts_with("failed: Settings None /") && last.contains(why), "{last}");
        }
        let mut settings = Settings::new(Provider::Script);
        settings.script_file = Some("/nonexistent/cassette".into());
        let error = new(settings.clone()).err().unwrap();
        assert!(error.message.starts_with("/nonexistent/cassette: No such file"), "{error}");
        settings.script_file = Some("/".into());
        assert_eq!(new(settings).err().unwrap().message, "/ is no file, so no cassette");
    }

    #[test]
    fn the_demo_plays_to_its_end() {
        let model = new(Settings::new(Provider::Script)).unwrap();
        let mut calls = 0;
        loop {
            let events = run(model.as_ref(), &Lines::hello());
            calls += 1;
            match events.last() {
                Some(ModelEvent::Stop(reason)) if reason == "end_turn" => break,
                Some(ModelEvent::Stop(reason)) if reason == "tool_use" && calls < 50 => {}
                last => panic!("call {calls}: {last:?}"),
            }
        }
        assert!(calls > 1);
    }

    #[test]
    fn a_delay_ends_with_the_cancel() {
        let (_file, settings) = settings(
            "{\"type\":\"text\",\"content\":\"a\"}\n{\"type\":\"text\",\"content\":\"b\",\"delay_ms\":600000}\n",
        );
        let model = new(settings).unwrap();
        let cancel = Cancel::new().unwrap();
        let window = Lines::hello();
        let request = Request { system: "", tools: "", window: &window, instruction: None, images: None };
        let mut events = model.stream(&request, &cancel);
        assert_eq!(events.next(), Some(ModelEvent::Text("a".to_owned())));
        let theirs = cancel.clone();
        let canceller = std::thread::spawn(move || theirs.cancel());
        assert_eq!(events.next(), None);
        assert_eq!(events.next(), None);
        canceller.join().unwrap();
    }
}
