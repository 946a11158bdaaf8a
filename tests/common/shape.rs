//! What must be so in a session directory after any run, whoever ran it (CONTRACT §4-§6): the form of every line and
//! event, one `stop` a turn, totals that are the sums of the `usage` events.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

/// What was there before this suite's programs came: it keeps the form that it has.
#[derive(Debug, Default)]
pub(crate) struct Start {
    /// Lines of conversation.jsonl.
    pub(crate) lines: HashSet<String>,
    /// How many lines events.jsonl had.
    pub(crate) events: usize,
    /// stats.json.
    pub(crate) stats: Map<String, Value>,
}

impl Start {
    /// The session as it is now.
    #[allow(dead_code, reason = "the conformance cases begin with nothing")]
    pub(crate) fn of(session: &Path) -> Self {
        let read = |name: &str| lines(&session.join(name)).unwrap_or_default();
        Self {
            lines: read("conversation.jsonl").into_iter().collect(),
            events: read("events.jsonl").len(),
            stats: stats(session).unwrap_or_default(),
        }
    }
}

/// All of it.
#[allow(dead_code, reason = "the conformance cases name what they skip")]
pub(crate) fn check(session: &Path, start: &Start) -> Result<(), String> {
    conversation(session, start)?;
    events(session, start)?;
    stops(session, start)?;
    sums(session, start)
}

/// How many bytes at the start of `text` have the form of `form`.
pub(crate) fn fits(text: &str, form: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if bytes.len() < form.len() {
        return None;
    }
    let same = form.bytes().zip(bytes).all(|(form, byte)| match form {
        b'9' => byte.is_ascii_digit(),
        b'h' => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
        other => other == *byte,
    });
    same.then_some(form.len())
}

/// Lines of a file; a last line without its LF is a problem.
fn lines(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(format!("{}: the last line has no line feed", path.display()));
    }
    Ok(text.split_terminator('\n').map(str::to_owned).collect())
}

fn object(line: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(line).map_err(|error| format!("no JSON object ({error}): {line}"))
}

/// Every line parses and has its form; each tool_use is answered in the next line.
pub(crate) fn conversation(session: &Path, start: &Start) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    for line in lines(&session.join("conversation.jsonl"))?.iter().filter(|line| !start.lines.contains(*line))
    {
        let message = object(line)?;
        if message.keys().collect::<Vec<_>>() != ["role", "content"] {
            return Err(format!("other keys than role, content: {line}"));
        }
        let blocks = message["content"].as_array().cloned().unwrap_or_default();
        let ids = |key: &str| -> Vec<String> {
            let of_calls = blocks.iter().filter(|block| block["type"] != "thinking");
            of_calls.filter_map(|block| block[key].as_str().map(str::to_owned)).collect()
        };
        if !open.is_empty() && ids("tool_use_id") != open {
            return Err(format!("calls {open:?} are not answered, in order, by: {line}"));
        }
        open = if message["role"] == "assistant" { ids("id") } else { Vec::new() };
    }
    if open.is_empty() { Ok(()) } else { Err(format!("calls {open:?} are not answered")) }
}

/// The fields of every event type, in order; `?` marks one that may be missing.
const EVENTS: &[(&str, &[&str])] = &[
    ("session_start", &["session_id"]),
    ("user_input", &["content", "id?"]),
    ("text", &["content"]),
    ("thinking", &["content"]),
    ("tool_call", &["name", "id", "input"]),
    ("tool_result", &["tool_use_id", "name", "content"]),
    (
        "usage",
        &[
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "kind",
            "sub_session_id?",
            "model",
            "estimated?",
        ],
    ),
    ("retry", &[]),
    ("stop", &["reason", "id?", "exit?"]),
    ("error", &["message"]),
    ("context_update", &["kind", "trigger"]),
    ("sub_agent_start", &["session_id", "timestamp", "prompt", "description", "fork"]),
    ("sub_agent_result", &["session_id", "status", "input_tokens", "output_tokens", "thinking", "text"]),
    ("sub_agent_end", &["session_id", "timestamp", "status"]),
    ("async_task_result", &["task_id", "exit_code", "output"]),
    ("user_notify", &["content"]),
    ("sync", &["id"]),
    ("approval_request", &["id", "tool_use_id", "name", "input", "required", "allowed", "why"]),
    ("approval", &["id", "allow", "by"]),
];

pub(crate) fn events(session: &Path, start: &Start) -> Result<(), String> {
    for line in lines(&session.join("events.jsonl"))?.iter().skip(start.events) {
        let event = object(line)?;
        let mut keys = event.keys().map(String::as_str).peekable();
        if keys.next() != Some("type") {
            return Err(format!("`type` is not first: {line}"));
        }
        let kind = event["type"].as_str().unwrap_or_default();
        let Some((_, fields)) = EVENTS.iter().find(|(name, _)| *name == kind) else {
            return Err(format!("an unknown type: {line}"));
        };
        for field in *fields {
            let optional = field.ends_with('?');
            let field = field.trim_end_matches('?');
            // A sub-agent's usage has one call or several, of one model or of none that is known.
            let optional = optional || (field == "model" && event["kind"] == "sub_agent");
            if keys.peek() == Some(&field) {
                keys.next();
            } else if !optional {
                return Err(format!("`{field}` is not where it should be: {line}"));
            }
        }
        if !matches!(kind, "text" | "thinking") {
            let ts = event.get("ts").and_then(Value::as_str).unwrap_or_default();
            if keys.next() != Some("ts") || ts.len() != 24 || fits(ts, "9999-99-99T99:99:99.999Z").is_none() {
                return Err(format!("does not end in a good `ts`: {line}"));
            }
        }
        if let Some(key) = keys.next() {
            return Err(format!("a field `{key}` too much: {line}"));
        }
    }
    Ok(())
}

/// Exactly one `stop` a turn. A notify turn has no `user_input`, but counts in stats.json.
pub(crate) fn stops(session: &Path, start: &Start) -> Result<(), String> {
    let stats = stats(session)?;
    let lines = lines(&session.join("events.jsonl"))?;
    let lines = &lines[start.events..];
    let stops = lines.iter().filter(|line| line.starts_with("{\"type\":\"stop\",")).count() as u64;
    let turns = number(&stats, "current_turn_count") - number(&start.stats, "current_turn_count");
    if stops == turns { Ok(()) } else { Err(format!("{stops} stop events in {turns} turns")) }
}

pub(crate) fn stats(session: &Path) -> Result<Map<String, Value>, String> {
    let text = fs::read_to_string(session.join("stats.json")).map_err(|error| error.to_string())?;
    if text.is_empty() {
        return Ok(Map::new());
    }
    object(text.strip_suffix('\n').ok_or("stats.json does not end in a line feed")?)
}

fn number(stats: &Map<String, Value>, key: &str) -> u64 {
    stats.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// The totals are the sums of all `usage` events.
pub(crate) fn sums(session: &Path, start: &Start) -> Result<(), String> {
    let stats = stats(session)?;
    let mut problems = Vec::new();
    let usages: Vec<Map<String, Value>> = lines(&session.join("events.jsonl"))?
        .iter()
        .skip(start.events)
        .filter(|line| line.starts_with("{\"type\":\"usage\","))
        .map(|line| object(line))
        .collect::<Result<_, _>>()?;
    for (total, figure) in [
        ("total_input_tokens", "input_tokens"),
        ("total_output_tokens", "output_tokens"),
        ("total_cache_read_tokens", "cache_read_input_tokens"),
        ("total_cache_creation_tokens", "cache_creation_input_tokens"),
    ] {
        let sum: u64 = usages.iter().map(|usage| number(usage, figure)).sum();
        let counted = number(&stats, total) - number(&start.stats, total);
        if sum != counted {
            problems.push(format!("{total} grew by {counted}, the usage events give {sum}"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}
