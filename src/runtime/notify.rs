//! The notify reader (CONTRACT §7): reads notify.fifo all the time; each result is written to the events, the stats
//! and notify.buf and taken off the count under one hold of state.lock, then the main loop hears of it.
//! `core notify-reader` runs the same for another runtime's main loop.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::fifo::{self, Fifo};
use super::inbox::{Event as Happening, Inbox, scan};
use crate::session::events;
use crate::session::events::{Event, UsageKind};
use crate::session::notify::{self, Delivery};
use crate::session::paths::SessionDir;
use crate::session::stats::Update;
use crate::session::time::Timestamp;
use crate::wire::inbox::Item;
use crate::wire::json;
use crate::wire::message::{AgentResult, Channel, Message, Usage};
use crate::wire::ndjson::Lines;

/// How long NOTIFY_PENDING may take to get into input.fifo.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a frame became.
#[derive(Debug)]
pub struct Noticed {
    /// Lines that were written to events.jsonl.
    pub lines: Vec<u8>,
    /// For the display.
    pub messages: Vec<Message>,
    /// The child or task that this answers.
    pub answered: Option<String>,
    /// notify.buf could not be written (the disk is full): the result itself.
    pub held: Option<Message>,
    /// What could not be written, for the user.
    pub warning: Option<String>,
}

/// Takes what arrives on one session's notify.fifo in.
pub struct Reader {
    dir: SessionDir,
    price: Box<dyn Fn(&Usage) -> f64 + Send>,
    /// Ids that have their result already, over restarts too; read from the log when the first result comes.
    answered: Option<HashSet<String>>,
}

impl Reader {
    /// A reader for the session; `price` gives the dollars of a child's tokens.
    pub fn new(dir: SessionDir, price: impl Fn(&Usage) -> f64 + Send + 'static) -> Self {
        Self { dir, price: Box::new(price), answered: None }
    }

    /// Takes one item in; `None` when it changed nothing.
    pub fn take(&mut self, item: Item) -> Option<Noticed> {
        match item {
            Item::Message(message @ (Message::AgentResult(_) | Message::AsyncTaskResult { .. })) => {
                Some(self.result(message))
            }
            Item::Message(message @ Message::UserNotify { .. }) => Some(self.remark(message)),
            Item::Problem(text) => Some(self.problem(&text)),
            other => Some(self.problem(&format!("notify.fifo: {} does not belong here", name_of(&other)))),
        }
    }

    /// Raises NOTIFY_PENDING when no turn runs. The flag is looked at after the append (CONTRACT §7, step 3).
    pub fn raise(&self) -> Option<String> {
        if self.dir.running_flag().exists() {
            return None;
        }
        let mut frame = Vec::new();
        Message::NotifyPending.encode(Channel::Input, &mut frame);
        match fifo::send(&self.dir.input_fifo(), &frame, PATIENCE) {
            Ok(()) | Err(fifo::SendError::NobodyThere(_)) => None,
            Err(error) => Some(format!("a result waits in notify.buf, but could not be announced: {error}")),
        }
    }

    fn result(&mut self, message: Message) -> Noticed {
        let id = match &message {
            Message::AgentResult(result) => result.session_id.clone(),
            Message::AsyncTaskResult { task_id, .. } => task_id.clone(),
            _ => String::new(),
        };
        if id.is_empty() {
            return self.problem("notify.fifo: a result with no id");
        }
        if self.is_answered(&id) {
            return self.problem(&format!("notify.fifo: a second result for {id}, dropped"));
        }
        let now = Timestamp::now();
        let mut lines = Vec::new();
        let mut updates = Vec::new();
        match &message {
            Message::AgentResult(result) => self.agent_result(result, now, &mut lines, &mut updates),
            Message::AsyncTaskResult { task_id, exit_code, output } => {
                Event::AsyncTaskResult { task_id, exit_code: *exit_code, output }.encode(now, &mut lines);
            }
            _ => {}
        }
        let mut frame = Vec::new();
        message.encode(Channel::Buffer, &mut frame);
        let delivery = Delivery { lines: &lines, updates: &updates, frame: &frame, answered: Some(&id) };
        let failed = notify::record(&self.dir, &delivery);
        if let Some(answered) = &mut self.answered {
            answered.insert(id.clone());
        }
        let (held, warning) = held(failed, &message);
        Noticed { lines, messages: vec![message], answered: Some(id), held, warning }
    }

    fn agent_result(
        &self,
        result: &AgentResult,
        now: Timestamp,
        lines: &mut Vec<u8>,
        updates: &mut Vec<Update<'static>>,
    ) {
        let status = if result.ok { "ok" } else { "failed" };
        let id = result.session_id.as_str();
        let usage = result.usage;
        let kind = UsageKind::SubAgent { session_id: id };
        Event::Usage { usage, kind, model: None, estimated: false }.encode(now, lines);
        let (thinking, text) = (result.thinking.as_str(), result.text.as_str());
        Event::SubAgentResult {
            session_id: id,
            status,
            input_tokens: usage.input,
            output_tokens: usage.output,
            thinking,
            text,
        }
        .encode(now, lines);
        Event::SubAgentEnd { session_id: id, timestamp: now, status }.encode(now, lines);
        updates.extend([
            Update::add("agent_request_count", result.requests),
            Update::add("sub_agent_request_count", 1),
            Update::add("total_input_tokens", usage.input),
            Update::add("total_output_tokens", usage.output),
            Update::add("total_cache_read_tokens", usage.cache_read),
            Update::add("total_cache_creation_tokens", usage.cache_creation),
            Update::add("total_cost_usd", (self.price)(&usage)),
        ]);
    }

    /// A remark waits in notify.buf; its event is written when it gets into the conversation.
    fn remark(&mut self, message: Message) -> Noticed {
        let mut frame = Vec::new();
        message.encode(Channel::Buffer, &mut frame);
        let delivery = Delivery { lines: b"", updates: &[], frame: &frame, answered: None };
        let (held, warning) = held(notify::record(&self.dir, &delivery), &message);
        Noticed { lines: Vec::new(), messages: Vec::new(), answered: None, held, warning }
    }

    fn problem(&self, text: &str) -> Noticed {
        let lines = Event::Error { message: text }.line(Timestamp::now());
        // An event log that cannot be written is told by the turn that meets it.
        let _ = events::append_shared(&self.dir, &lines);
        let message = Message::Error { message: text.to_owned(), kind: None };
        Noticed { lines, messages: vec![message], answered: None, held: None, warning: None }
    }

    fn is_answered(&mut self, id: &str) -> bool {
        if self.answered.is_none() {
            self.answered = Some(answered_ids(&self.dir).unwrap_or_default());
        }
        self.answered.as_ref().is_some_and(|answered| answered.contains(id))
    }
}

/// The message that must be kept in memory, and what to tell the user.
fn held(failed: notify::Failed, message: &Message) -> (Option<Message>, Option<String>) {
    match failed.buffer {
        Some(error) => {
            let text = format!("{error}; a result is kept in memory and delivered with the next turn");
            (Some(message.clone()), Some(text))
        }
        None => (None, failed.other.map(|error| error.to_string())),
    }
}

fn name_of(item: &Item) -> &'static str {
    match item {
        Item::Message(Message::UserInput { .. }) | Item::Text(_) | Item::Input { .. } => "user input",
        _ => "this message",
    }
}

/// The ids of all results in the log.
fn answered_ids(dir: &SessionDir) -> io::Result<HashSet<String>> {
    let mut ids = HashSet::new();
    let mut lines = Lines::new(File::open(dir.events())?);
    while let Some(line) = lines.next()? {
        let key = if line.bytes.starts_with(br#"{"type":"sub_agent_result""#) {
            "session_id"
        } else if line.bytes.starts_with(br#"{"type":"async_task_result""#) {
            "task_id"
        } else {
            continue;
        };
        ids.extend(json::member(line.bytes, key).and_then(json::string).map(|id| id.into_owned()));
    }
    Ok(ids)
}

/// Starts the thread that reads `fifo` for ever and tells `inbox`.
pub fn start(
    fifo: Fifo,
    dir: SessionDir,
    price: impl Fn(&Usage) -> f64 + Send + 'static,
    inbox: &Inbox,
) -> io::Result<()> {
    let sender = inbox.sender();
    let mut reader = Reader::new(dir, price);
    std::thread::Builder::new().name("notify.fifo".to_owned()).spawn(move || {
        serve(&fifo, &mut reader, |noticed| sender.send(Happening::Noticed(noticed)).is_ok());
    })?;
    Ok(())
}

/// Reads `fifo` for ever, until `tell` says no; what changed is told, then NOTIFY_PENDING is raised where it is due.
pub fn serve(fifo: &Fifo, reader: &mut Reader, mut tell: impl FnMut(Noticed) -> bool) {
    let busy = AtomicBool::new(false);
    scan(fifo, Channel::Notify, &busy, |item| {
        let Some(noticed) = reader.take(item) else { return true };
        let raises = noticed.answered.is_some() || noticed.messages.is_empty();
        if !tell(noticed) {
            return false;
        }
        match reader.raise().filter(|_| raises) {
            Some(warning) => tell(reader.problem(&warning)),
            None => true,
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::stats::Stats;

    fn session() -> (tempfile::TempDir, SessionDir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        std::fs::write(dir.events(), "").unwrap();
        (temp, dir)
    }

    fn result(id: &str) -> Item {
        let usage = Usage { input: 10, output: 5, cache_read: 3, cache_creation: 1 };
        let (session_id, text) = (id.to_owned(), "done".to_owned());
        Item::Message(Message::AgentResult(AgentResult {
            session_id,
            ok: true,
            thinking: String::new(),
            text,
            usage,
            requests: 2,
        }))
    }

    #[test]
    fn a_result_is_written_counted_and_buffered_once() {
        let (_temp, dir) = session();
        let mut reader = Reader::new(dir.clone(), |_| 0.5);
        assert!(reader.take(result("sub_1")).unwrap().held.is_none());
        let second = reader.take(result("sub_1")).unwrap();
        assert!(matches!(&second.messages[..], [Message::Error { .. }]));
        // A new reader, as after a restart, knows it from the log.
        let mut reader = Reader::new(dir.clone(), |_| 0.5);
        assert!(reader.take(result("sub_1")).unwrap().answered.is_none());
        let (stats, _) = Stats::load(&dir.stats()).unwrap();
        assert_eq!((stats.sub_agent_request_count, stats.agent_request_count), (1, 2));
        assert_eq!((stats.total_input_tokens, stats.total_cost_usd), (10, 0.5));
        let frames = notify::take(&dir).unwrap().unwrap();
        assert_eq!(notify::messages(&frames).0.len(), 1);
        let events = std::fs::read_to_string(dir.events()).unwrap();
        let kinds: Vec<_> = events.lines().map(|line| line.split('"').nth(3).unwrap()).collect();
        assert_eq!(kinds, ["usage", "sub_agent_result", "sub_agent_end", "error", "error"]);
    }
}
