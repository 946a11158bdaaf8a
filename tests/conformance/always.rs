//! What must be so after every case, whatever it shows: the rules of the session directory (CONTRACT §2, §4–§6),
//! the key in no file and no stream, nothing left behind. A case names what it cannot pass in `skip`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::case::Case;
use crate::process::{self, Ended};
use crate::shape::{self, Start};
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
    let start = Start::default();
    for session in sessions(&world.project()) {
        made("listing", listing(&session));
        made("modes", modes(&session, world));
        made("conversation", shape::conversation(&session, &start));
        made("events", shape::events(&session, &start));
        made("stops", shape::stops(&session, &start));
        made("sums", shape::sums(&session, &start));
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
