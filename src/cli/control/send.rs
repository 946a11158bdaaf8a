//! `send` and `wait`: one input into a running agent, and how to know that it is done (CONTRACT §3).

use std::time::{Duration, Instant};

use super::follow::{Follower, Next};
use super::{ControlError, PATIENCE, Place, owner, send_bytes, text_of};
use crate::cli::args::SendArgs;
use crate::exit::Exit;
use crate::runtime::fifo::SendError;
use crate::session::paths::SessionDir;
use crate::session::{input, time};
use crate::ui::out;
use crate::wire::json;
use crate::wire::ndjson::LinesBack;

/// What one write puts into a pipe whole (PIPE_BUF).
const ONE_WRITE: usize = 4096;

/// Sends one input; with `--wait` prints the final text of the turn that it starts.
pub(super) fn send(place: &Place, args: &SendArgs) -> Result<u8, ControlError> {
    let dir = place.running(&args.session)?;
    let text = text_of(&args.text)?;
    if owner(&dir).is_none() {
        return Err(ControlError::NotRunning(dir.name()));
    }
    let id = match (&args.id, args.wait) {
        (Some(id), _) => Some(id.clone()),
        (None, true) => Some(format!("send-{}-{}", time::new_id(), std::process::id())),
        (None, false) => None,
    };
    let waiter = match (&id, args.wait) {
        (Some(id), true) => Some(Waiter::new(&dir, id, args.timeout)?),
        _ => None,
    };
    let Line { bytes, file } = line(&dir, &text, id.as_deref())?;
    if let Err(error) = send_within(&dir, &bytes, args.timeout.filter(|_| args.wait)) {
        // Nobody will ever read it.
        file.map_or(Ok(()), |file| input::forget(&dir, &file))?;
        return Err(error);
    }
    match waiter {
        Some(waiter) => waiter.wait(),
        None => Ok(Exit::Ok.code()),
    }
}

/// Sends to input.fifo; an agent that does not read (stopped?) is given up after PATIENCE or, before that, at the
/// caller's own timeout.
fn send_within(dir: &SessionDir, line: &[u8], timeout: Option<u64>) -> Result<(), ControlError> {
    match timeout.map(Duration::from_secs).filter(|timeout| *timeout < PATIENCE) {
        Some(patience) => match send_bytes(dir, &dir.input_fifo(), line, patience) {
            Err(ControlError::Send(SendError::Full(_, seconds))) => Err(ControlError::Timeout(seconds)),
            sent => sent,
        },
        None => send_bytes(dir, &dir.input_fifo(), line, PATIENCE),
    }
}

/// What is written into input.fifo for an input.
struct Line {
    bytes: Vec<u8>,
    /// The file in input.d that it names.
    file: Option<String>,
}

/// The JSON line for an input; a long one goes into input.d, so that nothing can land inside it.
fn line(dir: &SessionDir, text: &str, id: Option<&str>) -> Result<Line, ControlError> {
    let with = |key: &str, value: &str| {
        let mut line = br#"{"type":"user_input","#.to_vec();
        json::string_into(&mut line, key);
        line.push(b':');
        json::string_into(&mut line, value);
        if let Some(id) = id {
            line.extend_from_slice(br#","id":"#);
            json::string_into(&mut line, id);
        }
        line.extend_from_slice(b"}\n");
        line
    };
    let whole = with("content", text);
    if whole.len() <= ONE_WRITE {
        return Ok(Line { bytes: whole, file: None });
    }
    let file = input::store_new(dir, text.as_bytes())?;
    let bytes = with("file", &file);
    if bytes.len() > ONE_WRITE {
        input::forget(dir, &file)?;
        return Err(ControlError::Usage("--id is too long: give at most 1000 bytes".to_owned()));
    }
    Ok(Line { bytes, file: Some(file) })
}

/// Waits until everything sent before is done.
pub(super) fn wait(dir: &SessionDir, timeout: Option<u64>) -> Result<u8, ControlError> {
    if owner(dir).is_none() {
        return Err(ControlError::NotRunning(dir.name()));
    }
    let id = format!("wait-{}-{}", time::new_id(), std::process::id());
    let mut follower = Follower::new(dir, false)?;
    let mut line = br#"{"type":"sync","id":"#.to_vec();
    json::string_into(&mut line, &id);
    line.extend_from_slice(b"}\n");
    send_within(dir, &line, timeout)?;
    let deadline = timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    loop {
        match follower.next(deadline)? {
            Next::Lines(lines) => {
                let done = lines.split(|b| *b == b'\n').any(|line| {
                    line.starts_with(br#"{"type":"sync""#) && text(line, "id").as_deref() == Some(&id)
                });
                if done {
                    return Ok(Exit::Ok.code());
                }
            }
            // It has ended, so it works on nothing any more.
            Next::Ended => return Ok(Exit::Ok.code()),
            Next::Timeout => return Err(ControlError::Timeout(timeout.unwrap_or_default())),
        }
    }
}

/// Follows the turn of one input to its end.
struct Waiter {
    follower: Follower,
    name: String,
    id: String,
    timeout: Option<u64>,
    turn: Turn,
}

/// What is known of the turn so far.
#[derive(Debug, Default)]
struct Turn {
    running: bool,
    /// Text of the present response.
    text: String,
    /// The response is complete: what comes next belongs to another.
    complete: bool,
    error: Option<String>,
}

impl Waiter {
    fn new(dir: &SessionDir, id: &str, timeout: Option<u64>) -> Result<Self, ControlError> {
        let follower = match known(dir, id)? {
            Known::No => Follower::new(dir, false)?,
            Known::InLog => Follower::new(dir, true)?,
            Known::BrokenOff => return Err(ControlError::BrokenOff(id.to_owned())),
        };
        Ok(Self { follower, name: dir.name(), id: id.to_owned(), timeout, turn: Turn::default() })
    }

    fn wait(mut self) -> Result<u8, ControlError> {
        let deadline = self.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        loop {
            match self.follower.next(deadline)? {
                Next::Lines(lines) => {
                    for line in lines.split(|b| *b == b'\n') {
                        if let Some(exit) = self.turn.take(line, &self.id) {
                            return Ok(self.turn.report(exit));
                        }
                    }
                }
                Next::Ended => return Err(ControlError::Ended(self.name)),
                Next::Timeout => return Err(ControlError::Timeout(self.timeout.unwrap_or_default())),
            }
        }
    }
}

impl Turn {
    /// Takes an event in; when the turn ended returns what a one-shot run of it exits with.
    fn take(&mut self, line: &[u8], id: &str) -> Option<u8> {
        let kind = text(line, "type")?;
        if kind == "user_input" {
            *self = Self { running: text(line, "id").as_deref() == Some(id), ..Self::default() };
            return None;
        }
        if !self.running {
            return None;
        }
        match kind.as_str() {
            "text" => {
                if std::mem::take(&mut self.complete) {
                    self.text.clear();
                }
                self.text.push_str(&text(line, "content")?);
            }
            "usage" => self.complete = true,
            "retry" => self.text.clear(),
            "error" => self.error = text(line, "message"),
            "stop" if text(line, "id").as_deref() == Some(id) => return Some(exit_of(line)),
            _ => {}
        }
        None
    }

    fn report(&self, exit: u8) -> u8 {
        if let Some(error) = self.error.as_ref().filter(|_| exit != 0) {
            out::complain(error);
        }
        if self.text.is_empty() {
            return exit;
        }
        let line_feed = if self.text.ends_with('\n') { "" } else { "\n" };
        match super::super::print(format!("{}{line_feed}", self.text).as_bytes()) {
            0 => exit,
            code => code,
        }
    }
}

/// The code that a one-shot run of the turn with this `stop` exits with: its own word, left out when it is 0. The
/// reasons speak for logs that are older than that word.
fn exit_of(stop: &[u8]) -> u8 {
    let said = json::member(stop, "exit").and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok());
    let by_reason = || match text(stop, "reason").unwrap_or_default().as_str() {
        "interrupted" => Exit::Interrupted,
        "refusal" | "content_filter" => Exit::Refused,
        "max_turns" | "max_cost" | "max_tokens_total" | "max_time" => Exit::Limit,
        "error" | "max_tokens" | "length" => Exit::Failed,
        _ => Exit::Ok,
    };
    said.unwrap_or_else(|| by_reason().code())
}

/// What is known of an input's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing: it will be run, or waits to be.
    No,
    /// Its turn runs or has ended, and is not run again: the answer stands in the log, or will.
    InLog,
    /// It was taken, but the agent was gone before its turn ended.
    BrokenOff,
}

/// How long a turn may take to get from its id to its flag.
const BEGINNING: Duration = Duration::from_secs(1);

fn known(dir: &SessionDir, id: &str) -> Result<Known, ControlError> {
    if !input::InputIds::load(dir)?.contains(id) {
        return Ok(Known::No);
    }
    let deadline = Instant::now() + BEGINNING;
    loop {
        // The flag is looked at first: a turn writes its end before it takes the flag away.
        let runs = dir.running_flag().exists();
        match last_trace(dir, id)? {
            Some(Trace::Ended) => return Ok(Known::InLog),
            Some(Trace::Begun) if runs => return Ok(Known::InLog),
            Some(Trace::Left) => return Ok(Known::BrokenOff),
            Some(Trace::Begun) | None if Instant::now() >= deadline => return Ok(Known::BrokenOff),
            Some(Trace::Begun) | None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The last that the log says about an input.
enum Trace {
    /// Its `stop`.
    Ended,
    /// Its `user_input`, and no other turn since.
    Begun,
    /// Its `user_input`, and then other turns.
    Left,
}

fn last_trace(dir: &SessionDir, id: &str) -> Result<Option<Trace>, ControlError> {
    let mut lines = LinesBack::new(std::fs::File::open(dir.events())?)?;
    let mut others = false;
    while let Some(line) = lines.next()? {
        let is_input = line.bytes.starts_with(br#"{"type":"user_input""#);
        if !is_input && !line.bytes.starts_with(br#"{"type":"stop""#) {
            continue;
        }
        match (text(line.bytes, "id").as_deref() == Some(id), is_input) {
            (true, false) => return Ok(Some(Trace::Ended)),
            (true, true) => return Ok(Some(if others { Trace::Left } else { Trace::Begun })),
            (false, _) => others = true,
        }
    }
    Ok(None)
}

fn text(line: &[u8], key: &str) -> Option<String> {
    json::member(line, key).and_then(json::string).map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_text_is_that_of_the_last_response() {
        let mut turn = Turn::default();
        let lines = [
            r#"{"type":"text","content":"before"}"#,
            r#"{"type":"user_input","content":"x","id":"a"}"#,
            r#"{"type":"text","content":"I look"}"#,
            r#"{"type":"usage","input_tokens":1}"#,
            r#"{"type":"tool_call","name":"Bash","id":"t","input":{}}"#,
            r#"{"type":"text","content":"lost"}"#,
            r#"{"type":"retry"}"#,
            r#"{"type":"text","content":"do"}"#,
            r#"{"type":"text","content":"ne"}"#,
            r#"{"type":"usage","input_tokens":1}"#,
        ];
        for line in lines {
            assert_eq!(turn.take(line.as_bytes(), "a"), None);
        }
        let stop = br#"{"type":"stop","reason":"end_turn","id":"a"}"#;
        assert_eq!(turn.take(stop, "a"), Some(0));
        assert_eq!(turn.text, "done");
    }

    #[test]
    fn the_exit_code_is_that_of_a_one_shot_run() {
        for (stop, exit) in [
            (r#"{"type":"stop","reason":"end_turn","id":"a"}"#, 0),
            (r#"{"type":"stop","reason":"error","id":"a","exit":8}"#, 8),
            (r#"{"type":"stop","reason":"interrupted","id":"a","exit":143}"#, 143),
            (r#"{"type":"stop","reason":"max_turns","id":"a"}"#, 9),
            (r#"{"type":"stop","reason":"error","id":"a"}"#, 1),
        ] {
            assert_eq!(exit_of(stop.as_bytes()), exit, "{stop}");
        }
    }
}
