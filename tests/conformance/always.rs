//! What must be so after every case, whatever it shows: the rules of the session directory (CONTRACT §2, §4–§6),
//! the key in no file and no stream, nothing left behind. A case names what it cannot pass in `skip`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Map, Value};

use crate::case::Case;
use crate::normal::fits;
use crate::process::{self, Ended};
use crate::world::{KEY, World, sessions};

/// Kept files of a session, all there as soon as it is open.
const KEPT: &[&str] = &[
    "conversation-archive.jsonl",
    "conversation.jsonl",
    "events.jsonl",
    "input.ids",
    "plan.draft",
    "plan.md",
    "session.json",
    "session.lock",
    "state.lock",
    "stats.json",
    "summary.txt",
];

/// May be there too: rests of a crash, inputs and results not yet read.
const MAY_BE: &[&str] = &[
    "conversation.jsonl.torn",
    "conversation-archive.jsonl.torn",
    "events.jsonl.torn",
    "images",
    "input.d",
    "notify.buf",
];

/// Makes every check that the case does not skip.
pub(crate) fn check(case: &Case, ended: &[Ended], world: &World) -> Result<(), String> {
    let mut problems = Vec::new();
    let mut made = |name: &str, result: Result<(), String>| {
        if let (Err(problem), false) = (result, case.about.skip.iter().any(|skip| skip == name)) {
            problems.push(format!("[{name}] {problem}"));
        }
    };
    made("processes", process::no_leftovers(world));
    made("secrets", secrets(ended, world));
    made("scripted", scripted(world));
    made("tmp", empty(&world.tmp));
    for session in sessions(&world.project()) {
        made("listing", listing(&session));
        made("modes", modes(&session, world));
        made("conversation", conversation(&session));
        made("events", events(&session));
        made("stops", stops(&session));
        made("sums", sums(&session));
    }
    crate::check::joined(problems)
}

/// A request that no answer was written for.
fn scripted(world: &World) -> Result<(), String> {
    match world.model.requests().iter().position(|request| request.unscripted) {
        Some(index) => Err(format!("no answer was left for request {}", index + 1)),
        None => Ok(()),
    }
}

fn empty(dir: &Path) -> Result<(), String> {
    let names = names(dir);
    if names.is_empty() { Ok(()) } else { Err(format!("left in TMPDIR: {}", names.join(", "))) }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn listing(session: &Path) -> Result<(), String> {
    let names = names(session);
    let mut problems = Vec::new();
    for kept in KEPT.iter().chain(&["images"]).filter(|kept| !names.iter().any(|name| name == *kept)) {
        problems.push(format!("{kept} is missing"));
    }
    for name in &names {
        if !KEPT.contains(&name.as_str()) && !MAY_BE.contains(&name.as_str()) {
            problems.push(format!("{name} was left behind"));
        }
    }
    if fs::metadata(session.join("state.lock")).is_ok_and(|meta| meta.len() > 0) {
        problems.push("state.lock is not empty".to_owned());
    }
    named(session, problems)
}

fn named(session: &Path, problems: Vec<String>) -> Result<(), String> {
    let name = session.file_name().unwrap_or_default().to_string_lossy().into_owned();
    crate::check::joined(problems.into_iter().map(|problem| format!("{name}: {problem}")).collect())
}

/// Files 0600, directories 0700, from the base down.
fn modes(session: &Path, world: &World) -> Result<(), String> {
    let project = world.project();
    let mut paths = vec![world.base(), world.base().join("projects"), project, session.to_owned()];
    paths.extend(names(session).iter().map(|name| session.join(name)));
    let mut problems = Vec::new();
    for path in paths {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let wanted = if meta.is_dir() { 0o700 } else { 0o600 };
        let mode = meta.permissions().mode() & 0o7777;
        if mode != wanted {
            problems.push(format!("{} has mode {mode:o}", path.display()));
        }
    }
    crate::check::joined(problems)
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
fn conversation(session: &Path) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    for line in lines(&session.join("conversation.jsonl"))? {
        let message = object(&line)?;
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

fn events(session: &Path) -> Result<(), String> {
    for line in lines(&session.join("events.jsonl"))? {
        let event = object(&line)?;
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
fn stops(session: &Path) -> Result<(), String> {
    let stats = stats(session)?;
    let lines = lines(&session.join("events.jsonl"))?;
    let stops = lines.iter().filter(|line| line.starts_with("{\"type\":\"stop\",")).count() as u64;
    let turns = number(&stats, "current_turn_count");
    if stops == turns { Ok(()) } else { Err(format!("{stops} stop events in {turns} turns")) }
}

fn stats(session: &Path) -> Result<Map<String, Value>, String> {
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
fn sums(session: &Path) -> Result<(), String> {
    let stats = stats(session)?;
    let mut problems = Vec::new();
    let usages: Vec<Map<String, Value>> = lines(&session.join("events.jsonl"))?
        .iter()
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
        if sum != number(&stats, total) {
            problems.push(format!("{total} is {}, the usage events give {sum}", number(&stats, total)));
        }
    }
    named(session, problems)
}

/// The key is in no stream and no file.
fn secrets(ended: &[Ended], world: &World) -> Result<(), String> {
    let mut problems = Vec::new();
    if ended.iter().any(|run| run.stdout.contains(KEY) || run.stderr.contains(KEY)) {
        problems.push("the API key was printed".to_owned());
    }
    let mut dirs = vec![world.base()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_file()
                && String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).contains(KEY)
            {
                problems.push(format!("the API key is in {}", path.display()));
            }
        }
    }
    crate::check::joined(problems)
}
