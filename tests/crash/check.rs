//! What must hold of a session after any crash or fault.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitStatus;

use bash_agent::session::notify;
use bash_agent::session::paths::SessionDir;
use bash_agent::session::stats::Stats;
use bash_agent::session::window::{Window, WindowOptions};
use bash_agent::wire::message::Message;
use bash_agent::wire::replay::Replay;
use serde_json::Value;

use crate::common::{Ran, World};
use crate::scenario::{CHILD, LAST_WORDS, Mode, PLAN, Point, REMARK, SUMMARIES};

/// Faults at these calls may pass in silence: they are done for the sake of people or of a power cut only, or only
/// take away what the next start would take away.
fn may_be_silent(call: &str) -> bool {
    let mut words = call.split(' ').skip(1);
    let (name, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    matches!(name, "fsync" | "fdatasync")
        || path.ends_with("/session.lock")
        || path.ends_with("/compact.journal")
}

/// Whether a fault was handled: said, and either survived or ended with the code for storage.
pub(crate) fn failed_well(
    point: Point,
    calls: &[String],
    status: ExitStatus,
    stderr: &str,
    dir: &SessionDir,
) -> Vec<String> {
    let mut problems = Vec::new();
    match status.code() {
        Some(0 | 11) => {}
        _ => problems.push(format!("it ended with {status}")),
    }
    let call = &calls[point.number - 1];
    let takes_space =
        ["write", "create", "mk", "copy", "pwrite"].iter().any(|name| call.contains(&format!(" {name}")));
    let fails = takes_space || !matches!(point.mode, Mode::NoSpaceOnce | Mode::NoSpaceFromHere);
    let said = !stderr.trim().is_empty()
        || lines(&dir.events()).iter().any(|line| line.starts_with(r#"{"type":"error""#))
        || lines(&dir.events())
            .iter()
            .any(|line| line.starts_with(r#"{"type":"tool_result""#) && line.contains("Error: "));
    if fails && !said && !may_be_silent(call) {
        problems.push("the fault was not said".to_owned());
    }
    if status.code() == Some(11) && stderr.trim().is_empty() {
        problems.push("exit 11 without a word".to_owned());
    }
    problems
}

/// A session as the crash left it.
pub(crate) struct Before {
    messages: Vec<String>,
    events: Vec<Value>,
    waiting: Vec<Message>,
    /// After a power cut: the inputs that the user knew to be taken. Nothing else unsynced is missed then.
    acknowledged: Option<Vec<String>>,
}

impl Before {
    pub(crate) fn read(dir: &SessionDir, acknowledged: Option<Vec<String>>) -> Self {
        let frames = [
            fs::read(dir.notify_taken()).unwrap_or_default(),
            fs::read(dir.notify_buf()).unwrap_or_default(),
        ];
        Self {
            messages: [lines(&dir.archive()), lines(&dir.conversation())].concat(),
            events: lines(&dir.events()).iter().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            acknowledged,
            waiting: frames.iter().flat_map(|frames| notify::messages(frames).0).collect(),
        }
    }

    fn has_event(&self, kind: &str, matches: impl Fn(&Value) -> bool) -> bool {
        self.events.iter().any(|event| event["type"] == kind && matches(event))
    }
}

/// Everything that must hold once the session was opened again and one turn was done. `whole`: nothing was disturbed;
/// `in_bash`: the Bash agent went on.
pub(crate) fn reopened(
    world: &World,
    dir: &SessionDir,
    before: &Before,
    ran: &Ran,
    (whole, in_bash): (bool, bool),
) -> Vec<String> {
    let mut problems = Vec::new();
    if ran.code != Some(0) || !ran.stdout.contains(r#""type":"stop","reason":"end_turn""#) {
        problems.push(format!("the session does not go on: {ran:?}"));
        return problems;
    }
    if let Err(error) = bash_agent::session::find(&world.base(), &world.work(), Some("crash")) {
        problems.push(error.to_string());
    }
    nothing_is_left(dir, &mut problems);
    every_line_is_json(dir, &mut problems);
    let after = [lines(&dir.archive()), lines(&dir.conversation())].concat();
    every_line_once(before, &after, &mut problems);
    inputs_are_kept(before, &after, &mut problems);
    results_are_delivered(before, &after, in_bash, &mut problems);
    the_window_is_valid(dir, true, &mut problems);
    small_files_are_whole(dir, before, &mut problems);
    if let (stats, Some(note)) = Stats::load(&dir.stats()).unwrap() {
        problems.push(format!("stats: {note}: {stats:?}"));
    }
    replays(dir, &mut problems);
    if whole {
        the_scenario_was_played(&after, before, &mut problems);
    }
    problems
}

/// What must hold after any damage to the files of a session that nobody ran: it goes on, loses nothing that could still
/// be read, and sends what the API takes.
pub(crate) fn mended(dir: &SessionDir, before: &Before, ran: &Ran) -> Vec<String> {
    let mut problems = Vec::new();
    if ran.code != Some(0) || !ran.stdout.contains(r#""type":"stop","reason":"end_turn""#) {
        problems.push(format!("the session does not go on: {ran:?}"));
        return problems;
    }
    nothing_is_left(dir, &mut problems);
    let after: HashSet<String> =
        [lines(&dir.archive()), lines(&dir.conversation())].concat().into_iter().collect();
    for line in before
        .messages
        .iter()
        .filter(|line| serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object()))
    {
        // Bytes that are no text are no JSON, although `lines` makes text of them.
        if !line.contains('\u{fffd}') && !after.contains(line) {
            problems.push(format!("lost: {line}"));
        }
    }
    the_window_is_valid(dir, false, &mut problems);
    if let (stats, Some(note)) = Stats::load(&dir.stats()).unwrap() {
        problems.push(format!("stats: {note}: {stats:?}"));
    }
    replays(dir, &mut problems);
    problems
}

/// Whole lines only; none when the file is missing.
fn lines(path: &Path) -> Vec<String> {
    let content = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(str::to_owned).collect()
}

fn nothing_is_left(dir: &SessionDir, problems: &mut Vec<String>) {
    for entry in fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let metadata = entry.metadata().unwrap();
        let passing = name.ends_with(".fifo")
            || name.ends_with(".tmp")
            || name.ends_with(".new")
            || name == "input.journal"
            || name.starts_with('.')
            || matches!(
                name.as_str(),
                "agent_running.flag"
                    | "active_sub.count"
                    | "active_sub.list"
                    | "notify.buf.taken"
                    | "compact.journal"
            )
            || (name == "notify.buf" && metadata.len() > 0);
        if passing {
            problems.push(format!("{name} is left over"));
        }
        let mode = metadata.mode() & 0o777;
        if mode != if metadata.is_dir() { 0o700 } else { 0o600 } {
            problems.push(format!("{name} has the mode {mode:o}"));
        }
    }
}

fn every_line_is_json(dir: &SessionDir, problems: &mut Vec<String>) {
    for path in [dir.conversation(), dir.archive(), dir.events()] {
        let content = fs::read_to_string(&path).unwrap();
        if !content.is_empty() && !content.ends_with('\n') {
            problems.push(format!("{} does not end in a line feed", path.display()));
        }
        for line in content.lines() {
            if serde_json::from_str::<Value>(line).is_err() {
                problems.push(format!("{}: {line:?} is no JSON", path.display()));
            }
        }
    }
}

/// Nothing that was there is lost, and nothing is there twice.
fn every_line_once(before: &Before, after: &[String], problems: &mut Vec<String>) {
    let mut count: HashMap<&str, usize> = HashMap::new();
    after.iter().for_each(|line| *count.entry(line).or_default() += 1);
    for (line, times) in &count {
        // The last response of a cassette repeats, so these may come again.
        let may_repeat = LAST_WORDS.iter().any(|words| line.contains(&format!("\"text\":\"{words}\"")));
        if *times > 1 && !may_repeat {
            problems.push(format!("{times} times: {line}"));
        }
    }
    for line in &before.messages {
        if serde_json::from_str::<Value>(line).is_ok() && !count.contains_key(line.as_str()) {
            problems.push(format!("lost: {line}"));
        }
    }
}

fn user_texts(messages: &[String]) -> Vec<String> {
    let values = messages.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values
        .filter(|line| line["role"] == "user")
        .filter_map(|line| Some(line["content"].as_str()?.to_owned()))
        .collect()
}

/// Every input whose event was written is there, in order.
fn inputs_are_kept(before: &Before, after: &[String], problems: &mut Vec<String>) {
    let texts = user_texts(after);
    let mut at = 0;
    let logged = before.events.iter().filter(|event| event["type"] == "user_input");
    let logged = logged.map(|event| event["content"].as_str().unwrap_or_default());
    let expected: Vec<&str> = match &before.acknowledged {
        Some(acknowledged) => acknowledged.iter().map(String::as_str).collect(),
        None => logged.collect(),
    };
    for content in expected {
        match texts[at..].iter().position(|text| text == content) {
            Some(found) => at += found + 1,
            None => problems.push(format!("an acknowledged input is lost or out of order: {content:.40}")),
        }
    }
}

/// Every result and remark that was taken in is in the conversation once.
fn results_are_delivered(before: &Before, after: &[String], in_bash: bool, problems: &mut Vec<String>) {
    let texts = user_texts(after);
    let count = |part: &str| texts.iter().map(|text| text.matches(part).count()).sum::<usize>();
    let mut expect = |part: &str, taken: bool| {
        let times = count(part);
        if times > 1 || (taken && times == 0 && before.acknowledged.is_none()) {
            problems.push(format!("{part} was delivered {times} times (taken in: {taken})"));
        }
    };
    let waits = |id: &str| {
        before.waiting.iter().any(|message| match message {
            Message::AgentResult(result) => result.session_id == id,
            Message::AsyncTaskResult { task_id, .. } => task_id == id,
            Message::UserNotify { text } => text == id,
            _ => false,
        })
    };
    expect(&format!("[sub-agent {CHILD}]"), waits(CHILD));
    expect(REMARK, waits(REMARK) || before.has_event("user_notify", |event| event["content"] == REMARK));
    for event in before.events.iter().filter(|event| event["type"] == "async_task_result") {
        // A result of the agent's own is listed as open until it is in notify.buf, so the binary never loses it.
        let id = event["task_id"].as_str().unwrap_or_default();
        expect(&format!("[bg-bash {id}]"), !in_bash || waits(id));
    }
}

/// What would be sent is what the API takes: roles, pairs, no empty blocks. `takes_turns`: no line is missing, so no two
/// assistant messages follow each other (which the API takes).
fn the_window_is_valid(dir: &SessionDir, takes_turns: bool, problems: &mut Vec<String>) {
    let options = WindowOptions { drop_unsigned: true, ..WindowOptions::default() };
    let window = Window::open(dir, options).unwrap();
    let mut body = b"[".to_vec();
    window.write_to(&mut body).unwrap();
    body.push(b']');
    let messages: Vec<Value> = match serde_json::from_slice(&body) {
        Ok(messages) => messages,
        Err(error) => return problems.push(format!("the window is no JSON: {error}")),
    };
    if messages.first().is_none_or(|first| first["role"] != "user") {
        problems.push("the window does not begin with a user message".to_owned());
    }
    let mut open: Vec<String> = Vec::new();
    let mut last_role = String::new();
    for message in &messages {
        let role = message["role"].as_str().unwrap_or_default().to_owned();
        if takes_turns && role == "assistant" && last_role == role {
            problems.push(format!("two assistant messages in a row: {message}"));
        }
        last_role = role;
        let results = ids(message, "tool_result", "tool_use_id");
        if results != open {
            problems.push(format!("calls {open:?} are answered by {results:?}"));
        }
        open = ids(message, "tool_use", "id");
        if is_hollow(message) {
            problems.push(format!("an empty message or block: {message}"));
        }
    }
    if !open.is_empty() {
        problems.push(format!("calls without results: {open:?}"));
    }
}

fn ids(message: &Value, kind: &str, key: &str) -> Vec<String> {
    let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    blocks
        .iter()
        .filter(|block| block["type"] == kind)
        .map(|block| block[key].as_str().unwrap().to_owned())
        .collect()
}

fn is_hollow(message: &Value) -> bool {
    match &message["content"] {
        Value::String(text) => text.is_empty(),
        Value::Array(blocks) => {
            blocks.is_empty()
                || blocks.iter().any(|block| {
                    ["text", "content", "signature"]
                        .iter()
                        .any(|key| block[key].as_str().is_some_and(str::is_empty))
                })
        }
        _ => true,
    }
}

/// What is replaced is old or new, never half, and the plan is never lost.
fn small_files_are_whole(dir: &SessionDir, before: &Before, problems: &mut Vec<String>) {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| error.to_string());
    let (summary, plan, draft) = (read(&dir.summary()), read(&dir.plan()), read(&dir.plan_draft()));
    if !summary.is_empty() && !SUMMARIES.iter().any(|text| summary == format!("{text}\n")) {
        problems.push(format!("summary.txt holds {summary:?}"));
    }
    for (name, text) in [("plan.md", &plan), ("plan.draft", &draft)] {
        if !text.is_empty() && text != PLAN {
            problems.push(format!("{name} holds {text:?}"));
        }
    }
    let done = |id: &str, text: &str| {
        before.has_event("tool_result", |event| {
            event["tool_use_id"] == id
                && event["content"].as_str().is_some_and(|content| content.contains(text))
        })
    };
    if before.acknowledged.is_some() {
        return;
    }
    let clear_began = before.has_event("tool_call", |event| event["id"] == "clear");
    if done("draft", "OK: wrote") && !clear_began && draft != PLAN && plan != PLAN {
        problems.push("the plan is lost".to_owned());
    }
    if done("confirm", "confirmed") && !clear_began && (plan != PLAN || !draft.is_empty()) {
        problems.push(format!("a confirmed plan: plan.md {plan:?}, plan.draft {draft:?}"));
    }
    if done("clear", "cleared") && !plan.is_empty() {
        problems.push("a cleared plan is back".to_owned());
    }
}

fn replays(dir: &SessionDir, problems: &mut Vec<String>) {
    let mut replay = Replay::whole();
    let mut shown = Vec::new();
    for line in lines(&dir.events()) {
        replay.line(line.as_bytes(), &mut shown);
    }
    replay.finish(&mut shown);
    let last = shown.iter().rev().find_map(|message| match message {
        Message::Text { content } => Some(content.as_str()),
        _ => None,
    });
    if last != Some(LAST_WORDS[1]) {
        problems.push(format!("the replay ends with {last:?}"));
    }
}

/// The undisturbed run did all that the test is about.
fn the_scenario_was_played(after: &[String], before: &Before, problems: &mut Vec<String>) {
    let all = after.join("\n");
    for part in [
        "the first task",
        "the fifth task",
        "[sub-agent sub_from_elsewhere] ok",
        "[bg-bash task_",
        REMARK,
        "Plan cleared.",
    ] {
        if !all.contains(part) {
            problems.push(format!("the scenario has no {part:?}"));
        }
    }
    let compactions = before.events.iter().filter(|event| event["type"] == "context_update").count();
    if compactions != 2 {
        problems.push(format!("{compactions} compactions"));
    }
}
