//! `--record FILE`: writes what a model answers as a cassette that `script` can play.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{ErrorKind, Model, ModelError, ModelEvent, Request};
use crate::runtime::cancel::Cancel;
use crate::wire::json;

/// A model whose answers are also written to a file.
pub(super) struct Recorder {
    inner: Box<dyn Model>,
    path: PathBuf,
    file: Mutex<File>,
}

impl Recorder {
    /// Makes the file (mode 0600), or empties the one that is there.
    pub(super) fn create(inner: Box<dyn Model>, path: &Path) -> Result<Self, ModelError> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        match file {
            Ok(file) => Ok(Self { inner, path: path.to_owned(), file: Mutex::new(file) }),
            Err(error) => {
                Err(ModelError::new(ErrorKind::Settings, format!("--record {}: {error}", path.display())))
            }
        }
    }
}

impl Model for Recorder {
    fn stream<'a>(
        &'a self,
        request: &'a Request<'a>,
        cancel: &'a Cancel,
    ) -> Box<dyn Iterator<Item = ModelEvent> + 'a> {
        Box::new(Recording {
            recorder: self,
            events: self.inner.stream(request, cancel),
            lines: Vec::new(),
            warning: None,
        })
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

/// A response being recorded. Its lines are written when it ends, so that an interrupted one leaves nothing.
struct Recording<'a> {
    recorder: &'a Recorder,
    events: Box<dyn Iterator<Item = ModelEvent> + 'a>,
    lines: Vec<u8>,
    /// The last event, held back behind a warning that it could not be written.
    warning: Option<ModelEvent>,
}

impl Iterator for Recording<'_> {
    type Item = ModelEvent;

    fn next(&mut self) -> Option<ModelEvent> {
        if let Some(last) = self.warning.take() {
            return Some(last);
        }
        let event = self.events.next()?;
        encode(&event, &mut self.lines);
        if matches!(event, ModelEvent::Stop(_) | ModelEvent::Failed(_)) {
            let lines = std::mem::take(&mut self.lines);
            if let Err(error) = append(&self.recorder.file, &lines) {
                self.warning = Some(event);
                return Some(ModelEvent::Warning(format!(
                    "--record {}: {error}",
                    self.recorder.path.display()
                )));
            }
        }
        Some(event)
    }
}

/// Writes a whole response, or nothing.
fn append(file: &Mutex<File>, lines: &[u8]) -> io::Result<()> {
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    let end = file.seek(SeekFrom::End(0))?;
    let written = file.write_all(lines);
    if written.is_err() {
        file.set_len(end)?;
    }
    written
}

/// The cassette line of an event; a warning has none.
fn encode(event: &ModelEvent, out: &mut Vec<u8>) {
    match event {
        ModelEvent::Text(text) => line(out, "text", &[("content", text)]),
        ModelEvent::Thinking(text) => line(out, "thinking", &[("content", text)]),
        ModelEvent::Signature { signature, id: None } => {
            line(out, "thinking", &[("content", ""), ("signature", signature)]);
        }
        ModelEvent::Signature { signature, id: Some(id) } => {
            line(out, "thinking", &[("content", ""), ("signature", signature), ("id", id)]);
        }
        ModelEvent::RedactedThinking(data) => line(out, "redacted_thinking", &[("data", data)]),
        ModelEvent::ToolCall { id, name, input } => call(out, id, name, input),
        ModelEvent::Usage { usage, .. } => {
            let figures = format!(
                "{{\"type\":\"usage\",\"input_tokens\":{},\"output_tokens\":{},\"cache_read_input_tokens\":{},\
                 \"cache_creation_input_tokens\":{}}}\n",
                usage.input, usage.output, usage.cache_read, usage.cache_creation
            );
            out.extend_from_slice(figures.as_bytes());
        }
        ModelEvent::Stop(reason) => line(out, "stop", &[("reason", reason)]),
        ModelEvent::Retry { .. } => line(out, "retry", &[]),
        // A retryable status would be retried when played, and this error is one that no retry helped.
        ModelEvent::Failed(error) => line(out, "error", &[("message", &error.message)]),
        ModelEvent::Warning(_) => {}
    }
}

fn line(out: &mut Vec<u8>, kind: &str, members: &[(&str, &str)]) {
    out.extend_from_slice(b"{\"type\":");
    json::string_into(out, kind);
    for (key, value) in members {
        out.push(b',');
        json::string_into(out, key);
        out.push(b':');
        json::string_into(out, value);
    }
    out.extend_from_slice(b"}\n");
}

/// A call's input is written as the object that it is; what is none, as a string.
fn call(out: &mut Vec<u8>, id: &str, name: &str, input: &str) {
    out.extend_from_slice(b"{\"type\":\"tool_call\",\"name\":");
    json::string_into(out, name);
    out.extend_from_slice(b",\"id\":");
    json::string_into(out, id);
    out.extend_from_slice(b",\"input\":");
    match json::tool_input(input) {
        Ok(_) if input.trim().is_empty() => json::string_into(out, input),
        Ok(object) => out.extend_from_slice(object.as_bytes()),
        Err(_) => json::string_into(out, input),
    }
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Lines, run};
    use super::super::{Provider, Settings, new};
    use std::os::unix::fs::PermissionsExt;

    fn settings(script: &std::path::Path, record: Option<&std::path::Path>) -> Settings {
        let mut settings = Settings::new(Provider::Script);
        settings.script_file = Some(script.to_owned());
        settings.record = record.map(ToOwned::to_owned);
        settings
    }

    const CASSETTE: &str = r#"{"type":"text","content":"a \"b\"\n"}
{"type":"text","content":"c"}
{"type":"retry"}
{"type":"thinking","content":"t"}
{"type":"thinking","content":"","signature":"s"}
{"type":"thinking","content":"","signature":"s","id":"i"}
{"type":"redacted_thinking","data":"d"}
{"type":"tool_call","name":"Read","id":"x","input":{"path":"ü"}}
{"type":"tool_call","name":"Read","id":"y","input":"{\"path\":"}
{"type":"tool_call","name":"Read","id":"z","input":""}
{"type":"usage","input_tokens":1,"output_tokens":2,"cache_read_input_tokens":3,"cache_creation_input_tokens":4}
{"type":"stop","reason":"tool_use"}
{"type":"text","content":"half"}
{"type":"error","message":"no"}
"#;

    #[test]
    fn what_was_recorded_plays_the_same_again() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        std::fs::write(&first, CASSETTE).unwrap();
        let recording = new(settings(&first, Some(&second))).unwrap();
        let seen: Vec<_> = (0..2).map(|_| run(recording.as_ref(), &Lines::hello())).collect();
        assert_eq!(std::fs::read_to_string(&second).unwrap(), CASSETTE);
        assert_eq!(std::fs::metadata(&second).unwrap().permissions().mode() & 0o777, 0o600);
        let playing = new(settings(&second, None)).unwrap();
        let again: Vec<_> = (0..2).map(|_| run(playing.as_ref(), &Lines::hello())).collect();
        assert_eq!(seen, again);
    }

    #[test]
    fn an_interrupted_response_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        std::fs::write(&first, CASSETTE).unwrap();
        let model = new(settings(&first, Some(&second))).unwrap();
        let cancel = crate::runtime::cancel::Cancel::new().unwrap();
        let window = Lines::hello();
        let request =
            super::super::Request { system: "", tools: "", window: &window, instruction: None, images: None };
        let mut events = model.stream(&request, &cancel);
        assert!(events.next().is_some());
        cancel.cancel();
        assert_eq!(events.count(), 0);
        assert_eq!(std::fs::read_to_string(&second).unwrap(), "");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_a_settings_error() {
        let error = new(settings("/dev/null".as_ref(), None)).err().unwrap();
        assert!(error.message.contains("no cassette"), "{error}");
        let mut settings = Settings::new(Provider::Script);
        settings.record = Some("/nonexistent/file".into());
        assert!(new(settings).err().unwrap().message.starts_with("--record /nonexistent/file: No such file"));
    }
}
