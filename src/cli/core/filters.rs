//! The filters of streams: frames and lines, SSE, replay, display.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use super::input::Stdin;
use super::{CoreError, SseArgs, Told, When, note, open, pump};
use crate::config::Look;
use crate::exit::Exit;
use crate::model::{self, DecoderOptions, End, ModelError, ModelEvent};
use crate::ui::out;
use crate::ui::render::{Human, Stream};
use crate::ui::replay::{self, begins_turn};
use crate::wire::message::{Channel, Message, Usage};
use crate::wire::replay::{Replay, live};
use crate::wire::resp::{self, Decoder};

/// A line longer than this is no message: a frame holds 64 MiB, and escapes double it.
const MAX_LINE: usize = 192 << 20;

/// Cuts a stream into lines, whatever pieces it comes in.
#[derive(Default)]
struct Splitter {
    partial: Vec<u8>,
}

impl Splitter {
    /// Gives each line, without its LF, to `each`; at the end (`None`) the last one, if it has no LF.
    fn feed(
        &mut self,
        piece: Option<&[u8]>,
        mut each: impl FnMut(&[u8]) -> Result<(), CoreError>,
    ) -> Result<(), CoreError> {
        let Some(mut rest) = piece else {
            let last = std::mem::take(&mut self.partial);
            return if last.is_empty() { Ok(()) } else { each(&last) };
        };
        while let Some(end) = memchr::memchr(b'\n', rest) {
            if self.partial.is_empty() {
                each(&rest[..end])?;
            } else {
                self.partial.extend_from_slice(&rest[..end]);
                each(&self.partial)?;
                self.partial.clear();
            }
            rest = &rest[end + 1..];
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > MAX_LINE { Err(CoreError::TooLong("a line")) } else { Ok(()) }
    }
}

/// `core resp encode`
pub(super) fn encode() -> Result<Exit, CoreError> {
    let mut lines = Splitter::default();
    let (mut number, mut failed) = (0_u64, false);
    let exit = pump("stdin", Stdin::new(), |piece, out| {
        lines.feed(piece, |line| {
            number += 1;
            let fields: Vec<Vec<u8>> = line.split(|byte| *byte == b'\t').map(unescaped).collect();
            let begin = out.len();
            resp::encode(&fields, out);
            let why = if fields.len() > resp::MAX_FIELDS {
                format!("{} fields, {} is the limit", fields.len(), resp::MAX_FIELDS)
            } else if out.len() - begin > resp::MAX_FRAME {
                "more than 64 MiB".to_owned()
            } else {
                return Ok(());
            };
            out.truncate(begin);
            failed = true;
            note(&format!("resp encode: line {number} has {why}"));
            Ok(())
        })
    })?;
    Ok(if failed && exit == Exit::Ok { Exit::Failed } else { exit })
}

/// `core resp decode`
pub(super) fn decode() -> Result<Exit, CoreError> {
    let mut decoder = Decoder::new();
    let mut failed = false;
    let exit = pump("stdin", Stdin::new(), |piece, out| {
        let end = match piece {
            Some(piece) => {
                decoder.feed(piece);
                None
            }
            None => decoder.finish(),
        };
        let mut broken = |error: resp::Malformed| {
            failed = true;
            note(&format!("resp decode: {error}"));
        };
        while let Some(frame) = decoder.next_with(|fields| line_into(fields, out)) {
            frame.unwrap_or_else(&mut broken);
        }
        if let Some(error) = end {
            broken(error);
        }
        Ok(())
    })?;
    Ok(if failed && exit == Exit::Ok { Exit::Failed } else { exit })
}

/// One message as a line.
fn line_into(fields: &[&[u8]], out: &mut Vec<u8>) {
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            out.push(b'\t');
        }
        for byte in *field {
            match byte {
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\t' => out.extend_from_slice(b"\\t"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                byte => out.push(*byte),
            }
        }
    }
    out.push(b'\n');
}

/// A field of a line; a backslash before anything else stands for itself.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut bytes = field.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = match bytes.peek() {
            Some(b'\\') => b'\\',
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            _ => 0,
        };
        if byte == b'\\' && escaped != 0 {
            out.push(escaped);
            bytes.next();
        } else {
            out.push(byte);
        }
    }
    out
}

/// An input that ends when the cell says so.
struct Until<'a>(Stdin, &'a Cell<bool>);

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.get() { Ok(0) } else { self.0.read(buffer) }
    }
}

/// `core sse`
pub(super) fn sse(args: &SseArgs) -> Result<Exit, CoreError> {
    let options =
        DecoderOptions { id_prefix: args.id_prefix.clone(), max_tokens: args.max_tokens.unwrap_or(u64::MAX) };
    let mut decoder = model::decoder(args.provider, &options);
    let mut events = Vec::new();
    let limit = args.stall_timeout.map_or(Duration::MAX, Duration::from_secs);
    let (mut last_event, mut seen, stalled) = (Instant::now(), 0, Cell::new(false));
    pump("stdin", Until(Stdin::new(), &stalled), |piece, out| {
        match piece {
            Some(piece) => {
                decoder.feed(piece, &mut events);
                if decoder.events() > seen {
                    (last_event, seen) = (Instant::now(), decoder.events());
                } else {
                    stalled.set(last_event.elapsed() > limit);
                }
            }
            None if stalled.get() => {
                decoder.finish(&End::Broken(String::new()), &args.server, &mut events);
                for event in &mut events {
                    if let ModelEvent::Failed(error) = event {
                        *error = ModelError::stalled(&args.server, limit);
                    }
                }
            }
            None => decoder.finish(&End::Clean, &args.server, &mut events),
        }
        if !args.join || piece.is_none() {
            for event in events.drain(..) {
                // A response that fails has its figures told before the error.
                if let (ModelEvent::Failed(_), Some(usage)) = (&event, decoder.usage()) {
                    Message::Usage(usage).encode(Channel::Display, out);
                }
                event_into(event, args, out);
            }
        }
        Ok(())
    })
}

fn event_into(event: ModelEvent, args: &SseArgs, out: &mut Vec<u8>) {
    let message = match event {
        ModelEvent::Text(content) => Message::Text { content },
        ModelEvent::Thinking(content) => Message::Thinking { content },
        ModelEvent::Signature { signature, id } => Message::Signature { signature, id },
        ModelEvent::RedactedThinking(data) => Message::RedactedThinking { data },
        ModelEvent::ToolCall { id, name, input } => Message::tool_call(name, id, input),
        ModelEvent::Usage { usage, estimated: false } => Message::Usage(usage),
        ModelEvent::Usage { usage, estimated: true } => {
            let input = args.sent.map_or(usage.input, |bytes| bytes.div_ceil(4));
            let message = Message::Usage(Usage { input, ..usage });
            let mut fields = message.fields(Channel::Display);
            if args.estimated {
                fields.push(b"estimated".into());
            }
            return resp::encode(&fields, out);
        }
        ModelEvent::Stop(reason) => Message::Stop { reason },
        ModelEvent::Retry { .. } => Message::Retry,
        ModelEvent::Failed(error) => Message::Error { message: error.message, kind: error.error_type },
        ModelEvent::Warning(text) => return note(&text),
    };
    message.encode(Channel::Display, out);
}

/// `core replay`
pub(super) fn replay(told: Told, last: Option<u64>, file: Option<&Path>) -> Result<Exit, CoreError> {
    let turns = last.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let Some(path) = file else {
        let stdin = Stdin::new();
        return match turns {
            Some(turns) => replay_stream(told, "stdin", last_turns(stdin, turns)?),
            None => replay_stream(told, "stdin", stdin),
        };
    };
    let name = path.display().to_string();
    let mut file = open(path)?;
    if let Some(turns) = turns {
        let start = replay::start_of(&file, turns).and_then(|start| file.seek(SeekFrom::Start(start)));
        start.map_err(|error| CoreError::Read(name.clone(), error))?;
    }
    replay_stream(told, &name, file)
}

fn replay_stream(told: Told, name: &str, input: impl Read) -> Result<Exit, CoreError> {
    let mut lines = Splitter::default();
    let mut replay = if told == Told::Whole { Replay::whole() } else { Replay::new() };
    let mut messages = Vec::new();
    pump(name, input, |piece, out| {
        lines.feed(piece, |line| {
            match told {
                Told::Live => messages.extend(live(line)),
                Told::Short | Told::Whole => replay.line(line, &mut messages),
            }
            Ok(())
        })?;
        if piece.is_none() {
            replay.finish(&mut messages);
        }
        messages.drain(..).for_each(|message: Message| message.encode(Channel::Display, out));
        Ok(())
    })
}

/// The last turns of a stream, which cannot be looked at from its end.
fn last_turns(mut input: impl Read, turns: usize) -> Result<io::Cursor<Vec<u8>>, CoreError> {
    let mut lines = Splitter::default();
    // The first piece holds what lies before all turns.
    let mut kept: VecDeque<Vec<u8>> = VecDeque::from([Vec::new()]);
    let mut begun = 0;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = match input.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CoreError::Read("stdin".to_owned(), error)),
        };
        lines.feed((read > 0).then(|| &buffer[..read]), |line| {
            if begins_turn(line) {
                begun += 1;
                kept.push_back(Vec::new());
                if begun >= turns {
                    kept.pop_front();
                }
            }
            if let Some(turn) = kept.back_mut() {
                turn.extend_from_slice(line);
                turn.push(b'\n');
            }
            Ok(())
        })?;
        if read == 0 {
            return Ok(io::Cursor::new(kept.into_iter().flatten().collect()));
        }
    }
}

/// `core display`
pub(super) fn display(color: When, error_color: When) -> Result<Exit, CoreError> {
    let (auto_out, auto_err) = Look::of(&|name: &str| std::env::var_os(name)).streams();
    let pick = |when, auto| match when {
        When::Auto => auto,
        When::Always => true,
        When::Never => false,
    };
    let mut human = Human::new(pick(color, auto_out), pick(error_color, auto_err));
    let mut decoder = Decoder::new();
    // Errors go to stderr, behind what was shown before them.
    let mut stdout = out::Stdout::new();
    let mut text = String::new();
    pump("stdin", Stdin::new(), |piece, _| {
        match piece {
            Some(piece) => decoder.feed(piece),
            None => drop(decoder.finish()),
        }
        while let Some(frame) = decoder.next_with(|fields| Message::from_fields(Channel::Display, fields)) {
            // Broken frames and unknown messages show nothing.
            let Ok(Ok(message)) = frame else { continue };
            let begin = text.len();
            if human.message(&message, &mut text) == Stream::Err {
                let error = text.split_off(begin);
                human.close_line(&mut text);
                stdout.write(text.as_bytes(), None);
                text.clear();
                out::stderr(error.as_bytes());
            }
        }
        if piece.is_none() {
            human.close_line(&mut text);
        }
        stdout.write(text.as_bytes(), None);
        text.clear();
        if stdout.is_closed() { Err(CoreError::Closed) } else { Ok(()) }
    })
}
