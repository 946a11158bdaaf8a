//! notify.buf: results that wait for a turn, and how a turn takes them (CONTRACT §7, "Draining").

use std::fs;
use std::io::{self, Write};

use super::conversation::user_line;
use super::error::StorageError;
use super::files::{Durability, open_append_again, remove, replace_with};
use super::lock::StateLock;
use super::paths::{SessionDir, beside};
use super::stats::{Stats, Update};
use super::{active, events};
use crate::wire::message::{Channel, Message};
use crate::wire::ndjson::LinesBack;
use crate::wire::replay;
use crate::wire::resp::{Decoder, Measure, measure};

/// A result or remark, and everything that goes with it.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Lines for events.jsonl, with their line feeds.
    pub lines: &'a [u8],
    /// Changes to stats.json.
    pub updates: &'a [Update<'a>],
    /// One frame for notify.buf.
    pub frame: &'a [u8],
    /// The child or task that it answers.
    pub answered: Option<&'a str>,
}

/// What `record` could not do.
#[derive(Debug, Default)]
pub struct Failed {
    /// notify.buf could not be written: the frame is in nobody's hands but the caller's.
    pub buffer: Option<StorageError>,
    /// Events, stats, list or count could not be written: the result is delivered all the same.
    pub other: Option<StorageError>,
}

/// Writes events, stats and notify.buf and lowers list and count, in this order, under one hold of state.lock
/// (CONTRACT §7). Goes on when one of the files cannot be written.
pub fn record(dir: &SessionDir, delivery: &Delivery<'_>) -> Failed {
    let lock = match StateLock::take(dir) {
        Ok(lock) => lock,
        Err(error) => return Failed { buffer: Some(error), other: None },
    };
    let events = match delivery.lines {
        [] => Ok(()),
        lines => events::append_locked(&lock, dir, lines),
    };
    let stats = match delivery.updates {
        [] => Ok(()),
        updates => Stats::update_locked(&lock, &dir.stats(), updates).map(drop),
    };
    let buffer = append_frame(&lock, dir, delivery.frame);
    // One that is not in notify.buf is open until it is delivered: `restore` finds it should the owner end before that.
    let answered = delivery.answered.filter(|_| buffer.is_ok());
    let listed = answered.map_or(Ok(()), |id| active::remove_locked(&lock, dir, id).map(drop));
    Failed { buffer: buffer.err(), other: events.and(stats).and(listed).err() }
}

/// Puts results that were held in memory into notify.buf, for the session's next owner.
pub fn keep(dir: &SessionDir, held: &[Message]) -> Result<(), StorageError> {
    let mut frames = Vec::new();
    held.iter().for_each(|message| message.encode(Channel::Buffer, &mut frames));
    append_frame(&StateLock::take(dir)?, dir, &frames)
}

/// Results that were held in memory got into the conversation: they are no longer open.
pub fn delivered(dir: &SessionDir, held: &[Message]) -> Result<(), StorageError> {
    held.iter().filter_map(id_of).try_for_each(|id| active::remove(dir, id).map(drop))
}

/// Appends one frame, whole or not at all.
fn append_frame(_lock: &StateLock, dir: &SessionDir, frame: &[u8]) -> Result<(), StorageError> {
    let path = dir.notify_buf();
    let mut file = open_append_again(&path)?;
    let appended = file.metadata().and_then(|metadata| {
        file.write_all(frame).or_else(|error| {
            file.set_len(metadata.len())?;
            Err(error)
        })
    });
    appended.map_err(StorageError::at("write", &path))
}

/// Whether something waits. Cheap; needs no lock.
pub fn is_waiting(dir: &SessionDir) -> bool {
    [dir.notify_buf(), dir.notify_taken()]
        .iter()
        .any(|path| fs::metadata(path).is_ok_and(|file| file.len() > 0))
}

/// Takes all that waits: notify.buf becomes notify.buf.taken. What an earlier taking left (its user line could not be
/// written) comes first. `None`: nothing waits. Call `drained` when the user line is written.
pub fn take(dir: &SessionDir) -> Result<Option<Vec<u8>>, StorageError> {
    let taken = dir.notify_taken();
    let lock = StateLock::take(dir)?;
    put_back(&lock, dir)?;
    match fs::rename(dir.notify_buf(), &taken) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::at("take", &dir.notify_buf())(error)),
    }
    let frames = fs::read(&taken).map_err(StorageError::at("read", &taken))?;
    if frames.is_empty() {
        remove(&taken)?;
        return Ok(None);
    }
    Ok(Some(frames))
}

/// The user line that holds what was taken is written: forgets notify.buf.taken.
pub fn drained(dir: &SessionDir) -> Result<(), StorageError> {
    remove(&dir.notify_taken()).map(drop)
}

/// Puts notify.buf.taken back in front of notify.buf.
fn put_back(_lock: &StateLock, dir: &SessionDir) -> Result<(), StorageError> {
    let (buffer, taken) = (dir.notify_buf(), dir.notify_taken());
    let frames = match fs::read(&taken) {
        Ok(frames) => frames,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StorageError::at("read", &taken)(error)),
    };
    let waiting = match fs::read(&buffer) {
        Ok(waiting) => waiting,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return fs::rename(&taken, &buffer).map_err(StorageError::at("put back", &taken));
        }
        Err(error) => return Err(StorageError::at("read", &buffer)(error)),
    };
    // When it begins with them a crash came between the two steps here: they are back already.
    if !waiting.starts_with(&frames) {
        replace_with(&buffer, Durability::Atomic, |file| {
            file.write_all(&frames)?;
            file.write_all(&waiting)
        })?;
    }
    remove(&taken).map(drop)
}

/// At opening: a notify.buf.taken that was found goes back, unless `last_user_line` (without its line feed) is the
/// line that it would make; then it was delivered. Returns what to tell the user.
pub(super) fn recover(
    dir: &SessionDir,
    last_user_line: Option<&[u8]>,
) -> Result<Option<String>, StorageError> {
    let lock = StateLock::take(dir)?;
    let taken = dir.notify_taken();
    match fs::read(&taken) {
        Ok(frames) => {
            let (messages, _) = messages(&frames);
            let delivered = !messages.is_empty() && last_user_line == Some(&user_line(&user_text(&messages)));
            if delivered {
                remove(&taken)?;
            } else {
                put_back(&lock, dir)?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(StorageError::at("read", &taken)(error)),
    }
    cut_torn_frame(&lock, dir)
}

/// How many of the last events are searched for results that a crash kept from notify.buf.
const EVENTS_SEARCHED: usize = 1000;

/// At opening: `record` writes a result's event first and lowers the list last. So what a dead owner had `open` and has
/// an event, but is not in notify.buf, was lost between the two, and is put there. Call it after `recover`.
pub(super) fn restore(dir: &SessionDir, open: &[active::Active]) -> Result<(), StorageError> {
    if open.is_empty() {
        return Ok(());
    }
    let lock = StateLock::take(dir)?;
    let waiting = match fs::read(dir.notify_buf()) {
        Ok(frames) => messages(&frames).0,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(StorageError::at("read", &dir.notify_buf())(error)),
    };
    let waits = |id: &str| waiting.iter().any(|message| id_of(message) == Some(id));
    let missing = |message: &Message| {
        id_of(message).is_some_and(|id| open.iter().any(|open| open.id == id) && !waits(id))
    };
    let mut lost = last_results(dir).map_err(StorageError::at("read", &dir.events()))?;
    lost.retain(missing);
    let mut frames = Vec::new();
    lost.iter().for_each(|message| message.encode(Channel::Buffer, &mut frames));
    if frames.is_empty() { Ok(()) } else { append_frame(&lock, dir, &frames) }
}

fn id_of(message: &Message) -> Option<&str> {
    match message {
        Message::AgentResult(result) => Some(&result.session_id),
        Message::AsyncTaskResult { task_id, .. } => Some(task_id),
        _ => None,
    }
}

/// The results among the last events, in order.
fn last_results(dir: &SessionDir) -> io::Result<Vec<Message>> {
    let mut results = Vec::new();
    let mut lines = LinesBack::new(fs::File::open(dir.events())?)?;
    for _ in 0..EVENTS_SEARCHED {
        let Some(line) = lines.next()? else { break };
        let is_result = [br#"{"type":"sub_agent_result""#.as_slice(), br#"{"type":"async_task_result""#]
            .iter()
            .any(|start| line.bytes.starts_with(start));
        results.extend(is_result.then(|| replay::live(line.bytes)).into_iter().flatten());
    }
    results.reverse();
    Ok(results)
}

/// A frame that a crash left half would swallow the next one: it goes to notify.buf.torn.
fn cut_torn_frame(_lock: &StateLock, dir: &SessionDir) -> Result<Option<String>, StorageError> {
    let path = dir.notify_buf();
    let content = match fs::read(&path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StorageError::at("read", &path)(error)),
    };
    let mut whole = 0;
    while let Measure::Complete(length) = measure(&content[whole..]) {
        whole += length;
    }
    // Noise within is the decoder's matter, which goes on behind it.
    if whole == content.len() || measure(&content[whole..]) != Measure::Incomplete {
        return Ok(None);
    }
    let torn = beside(&path, ".torn");
    open_append_again(&torn)?.write_all(&content[whole..]).map_err(StorageError::at("write", &torn))?;
    let cut = fs::OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(whole as u64));
    cut.map_err(StorageError::at("cut", &path))?;
    Ok(Some(format!(
        "notify.buf: a result that was only half written was moved to {}",
        super::error::shown(&torn)
    )))
}

/// The messages in what was taken, and a sentence about bytes that are none.
pub fn messages(frames: &[u8]) -> (Vec<Message>, Option<String>) {
    let mut decoder = Decoder::new();
    decoder.feed(frames);
    let mut messages = Vec::new();
    let mut problem = None;
    while let Some(frame) = decoder.next_with(|fields| Message::from_fields(Channel::Buffer, fields)) {
        match frame {
            Ok(Ok(message)) => messages.push(message),
            Ok(Err(error)) => problem = Some(format!("notify.buf: {error}")),
            Err(malformed) => problem = Some(format!("notify.buf: {malformed}")),
        }
    }
    if let Some(malformed) = decoder.finish() {
        problem = Some(format!("notify.buf: {malformed}"));
    }
    (messages, problem)
}

/// The text of the one user line that these messages become. Lines for what is empty are left out.
pub fn user_text(messages: &[Message]) -> String {
    let mut lines = Vec::new();
    for message in messages {
        match message {
            Message::AgentResult(result) => {
                let status = if result.ok { "ok" } else { "failed" };
                let (input, output) = (result.usage.input, result.usage.output);
                lines.push(format!("[sub-agent {}] {status} (in={input}, out={output})", result.session_id));
                push_labelled(&mut lines, "Thinking", &result.thinking);
                push_labelled(&mut lines, "Text", &result.text);
            }
            Message::AsyncTaskResult { task_id, exit_code, output } => {
                lines.push(format!("[bg-bash {task_id}] exit_code={exit_code}"));
                push_labelled(&mut lines, "Output", output);
            }
            Message::UserNotify { text } => lines.push(text.clone()),
            _ => {}
        }
    }
    lines.join("\n")
}

fn push_labelled(lines: &mut Vec<String>, label: &str, text: &str) {
    if !text.is_empty() {
        lines.push(format!("{label}: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::testing::session;
    use crate::wire::message::{AgentResult, Usage};

    fn frame(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        Message::UserNotify { text: text.to_owned() }.encode(Channel::Buffer, &mut out);
        out
    }

    fn deliver(dir: &SessionDir, frame: &[u8], answered: Option<&str>) {
        let delivery = Delivery { lines: b"{}\n", updates: &[Update::add("n", 1)], frame, answered };
        let failed = record(dir, &delivery);
        assert!(failed.buffer.is_none() && failed.other.is_none(), "{failed:?}");
    }

    #[test]
    fn what_is_delivered_is_taken_once_and_becomes_one_line() {
        let (_temp, dir) = session();
        active::add(&dir, "sub_1", 5).unwrap();
        let result = AgentResult {
            session_id: "sub_1".into(),
            ok: true,
            thinking: String::new(),
            text: "done\n".into(),
            usage: Usage { input: 3, output: 4, ..Usage::default() },
            requests: 1,
        };
        let mut agent = Vec::new();
        Message::AgentResult(result).encode(Channel::Buffer, &mut agent);
        deliver(&dir, &agent, Some("sub_1"));
        assert!(active::entries(&dir).unwrap().is_empty());
        deliver(&dir, &frame("go on"), Some("sub_1"));
        let task = Message::AsyncTaskResult { task_id: "task_1".into(), exit_code: 2, output: "o".into() };
        let mut bytes = Vec::new();
        task.encode(Channel::Buffer, &mut bytes);
        deliver(&dir, &bytes, None);
        assert!(is_waiting(&dir));
        assert_eq!(fs::read_to_string(dir.events()).unwrap(), "{}\n".repeat(3));
        assert_eq!(Stats::load(&dir.stats()).unwrap().0.get("n").as_deref(), Some("3"));
        let taken = take(&dir).unwrap().unwrap();
        let (messages, problem) = messages(&taken);
        assert_eq!(problem, None);
        assert_eq!(
            user_text(&messages),
            "[sub-agent sub_1] ok (in=3, out=4)\nText: done\n\ngo on\n[bg-bash task_1] exit_code=2\nOutput: o"
        );
        drained(&dir).unwrap();
        assert!(!is_waiting(&dir));
        assert_eq!(take(&dir).unwrap(), None);
    }

    #[test]
    fn what_was_taken_and_not_drained_comes_first_and_once() {
        let (_temp, dir) = session();
        deliver(&dir, &frame("a"), None);
        take(&dir).unwrap().unwrap();
        deliver(&dir, &frame("b"), None);
        let both = [frame("a"), frame("b")].concat();
        assert_eq!(take(&dir).unwrap().unwrap(), both);
        // A crash between putting back and forgetting: both files hold it.
        fs::write(dir.notify_buf(), &both).unwrap();
        fs::write(dir.notify_taken(), frame("a")).unwrap();
        assert_eq!(take(&dir).unwrap().unwrap(), both);
    }

    #[test]
    fn at_opening_what_was_delivered_is_forgotten_and_the_rest_put_back() {
        let (_temp, dir) = session();
        fs::write(dir.notify_taken(), frame("a")).unwrap();
        recover(&dir, Some(&user_line("something else"))).unwrap();
        assert_eq!(fs::read(dir.notify_buf()).unwrap(), frame("a"));
        assert!(!dir.notify_taken().exists());
        take(&dir).unwrap().unwrap();
        recover(&dir, Some(&user_line("a"))).unwrap();
        assert!(!dir.notify_taken().exists() && !dir.notify_buf().exists());
    }

    #[test]
    fn a_half_frame_is_cut_off_and_does_not_swallow_the_next() {
        let (_temp, dir) = session();
        let half = &frame("lost")[..14];
        fs::write(dir.notify_buf(), [frame("a").as_slice(), half].concat()).unwrap();
        let note = recover(&dir, None).unwrap();
        assert!(note.is_some_and(|note| note.contains("notify.buf.torn")));
        deliver(&dir, &frame("b"), None);
        assert_eq!(take(&dir).unwrap().unwrap(), [frame("a"), frame("b")].concat());
        assert_eq!(fs::read(beside(&dir.notify_buf(), ".torn")).unwrap(), half);
    }

    #[test]
    fn a_result_that_a_crash_kept_from_the_buffer_is_put_there_once() {
        let (_temp, dir) = session();
        active::add(&dir, "task_1", 5).unwrap();
        active::add(&dir, "task_2", 6).unwrap();
        let event = |id: &str| {
            format!(
                "{{\"type\":\"async_task_result\",\"task_id\":\"{id}\",\"exit_code\":3,\"output\":\"o\"}}\n"
            )
        };
        fs::write(dir.events(), [event("task_old"), event("task_1")].concat() + "{\"type\":\"te").unwrap();
        let open = active::entries(&dir).unwrap();
        restore(&dir, &open).unwrap();
        restore(&dir, &open).unwrap();
        let (messages, _) = messages(&take(&dir).unwrap().unwrap());
        assert_eq!(user_text(&messages), "[bg-bash task_1] exit_code=3\nOutput: o");
        // What nobody had open was delivered before.
        drained(&dir).unwrap();
        restore(&dir, &[]).unwrap();
        assert_eq!(take(&dir).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_written_beside_the_buffer_does_not_keep_a_result_from_it() {
        let (_temp, dir) = session();
        fs::create_dir(dir.stats()).unwrap();
        let failed = record(
            &dir,
            &Delivery { lines: b"{}\n", updates: &[Update::add("n", 1)], frame: &frame("a"), answered: None },
        );
        assert!(failed.buffer.is_none() && failed.other.is_some());
        assert_eq!(take(&dir).unwrap().unwrap(), frame("a"));
    }
}
