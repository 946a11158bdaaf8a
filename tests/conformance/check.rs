//! Compares what a case expects with what came of it.

use std::fs;

use serde_json::value::RawValue;

use crate::case::{Case, FileExpect, RequestExpect, Run};
use crate::normal;
use crate::pattern;
use crate::process::Ended;
use crate::world::World;

/// One run's streams and exit code.
pub(crate) fn run(title: &str, run: &Run, ended: &Ended, world: &World) -> Result<(), String> {
    let mut problems = Vec::new();
    if let Some(problem) = &ended.problem {
        problems.push(problem.clone());
    }
    let stdout = if is_stream_json(run) {
        normal::events(&ended.stdout, world)
    } else {
        normal::text(&ended.stdout, world)
    };
    let stderr = normal::text(&ended.stderr, world);
    problems.extend(pattern::check(&format!("{title}: stdout"), &run.stdout, &stdout).err());
    problems.extend(pattern::check(&format!("{title}: stderr"), &run.stderr, &stderr).err());
    if run.exit != ended.exit {
        problems.push(format!("{title}: exit code is {}, expected {}", ended.exit, run.exit));
    }
    if !problems.is_empty() {
        problems.push(format!("--- stdout ---\n{stdout}\n--- stderr ---\n{stderr}\n---"));
    }
    joined(problems)
}

/// Whether a run prints events.
pub(crate) fn is_stream_json(run: &Run) -> bool {
    run.args
        .iter()
        .any(|arg| arg == "--print" || arg == "stream-json" || arg == "--output-format=stream-json")
}

/// Every file that the case names.
pub(crate) fn files(case: &Case, world: &World) -> Result<(), String> {
    let check = |(name, expect): (&String, &FileExpect)| -> Result<(), String> {
        let path = world.path(name)?;
        match expect {
            FileExpect::Exists(wanted) if path.symlink_metadata().is_ok() == *wanted => Ok(()),
            FileExpect::Exists(true) => Err(format!("{name} is not there")),
            FileExpect::Exists(false) => Err(format!("{name} is there")),
            FileExpect::Holds(text) => {
                let bytes = fs::read(&path).map_err(|error| format!("{name}: {error}"))?;
                let actual = String::from_utf8_lossy(&bytes);
                let actual = match path.file_name().and_then(|name| name.to_str()) {
                    Some("events.jsonl") => normal::events(&actual, world),
                    Some("stats.json") => normal::stats(&actual, world),
                    _ => normal::text(&actual, world),
                };
                pattern::check(name, text, &actual)
            }
        }
    };
    joined(case.about.files.iter().filter_map(|file| check(file).err()).collect())
}

/// How many requests there were, and what they held.
pub(crate) fn requests(case: &Case, world: &World) -> Result<(), String> {
    let requests = world.model.requests();
    let by_rules = case.about.requests.is_none() && !case.about.rules.is_empty();
    let wanted = case.about.requests.unwrap_or(case.about.answers.len());
    let mut problems = Vec::new();
    if !by_rules && requests.len() != wanted {
        let bodies: Vec<_> = requests.iter().map(|request| String::from_utf8_lossy(&request.body)).collect();
        let count = requests.len();
        problems.push(format!("{count} requests, expected {wanted}:\n{}", short(&bodies.join("\n"))));
    }
    for expect in &case.about.request {
        match expect.n.checked_sub(1).and_then(|at| requests.get(at)) {
            Some(request) => {
                problems.extend(request_holds(expect, request, world).err());
                let other = expect.same_prompt_as.and_then(|n| requests.get(n.wrapping_sub(1)));
                if other.is_some_and(|other| prefix(&other.body) != prefix(&request.body)) {
                    problems.push(format!(
                        "request {}: another prompt than {:?}",
                        expect.n, expect.same_prompt_as
                    ));
                }
            }
            None => problems.push(format!("there is no request {}", expect.n)),
        }
    }
    problems.extend(prefixes(case, &requests));
    joined(problems)
}

/// The requests that should begin as others do, and do not.
fn prefixes(case: &Case, requests: &[mock_model::Recorded]) -> Vec<String> {
    let mut problems = Vec::new();
    for expect in &case.about.request {
        let Some(n) = expect.same_prefix_as else { continue };
        let bodies = (requests.get(n.wrapping_sub(1)), requests.get(expect.n.wrapping_sub(1)));
        let (Some(other), Some(own)) = bodies else { continue };
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        let (other, own) = (text(&other.body), text(&own.body));
        let other = other.strip_suffix("]}").unwrap_or(&other);
        let own = &own[..own.rfind(",{\"role\":\"").unwrap_or(own.len())];
        if !own.starts_with(other) && !other.starts_with(own) {
            let at = own.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
            let around = |body: &str| {
                String::from_utf8_lossy(&body.as_bytes()[at.saturating_sub(80)..body.len().min(at + 80)])
                    .into_owned()
            };
            problems.push(format!(
                "request {}: it leaves the prefix of request {n} at byte {at}\n  {n}: …{}…\n  {}: …{}…",
                expect.n,
                around(other),
                expect.n,
                around(own)
            ));
        }
    }
    problems
}

/// What the provider's cache keeps of a request: all before its messages.
fn prefix(body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    body.split("\"messages\":[").next().unwrap_or_default().to_owned()
}

/// The end of a long text says most.
fn short(text: &str) -> String {
    let skip = text.chars().count().saturating_sub(4000);
    text.chars().skip(skip).collect()
}

fn request_holds(
    expect: &RequestExpect,
    request: &mock_model::Recorded,
    world: &World,
) -> Result<(), String> {
    let title = |what: &str| format!("request {}: {what}", expect.n);
    let body = String::from_utf8_lossy(&request.body);
    let mut problems = Vec::new();
    if expect.path.as_ref().is_some_and(|path| *path != request.head.path) {
        problems.push(title(&format!("its path is {}", request.head.path)));
    }
    for header in &expect.headers {
        let (name, value) = header.split_once(": ").unwrap_or((header, ""));
        if request.head.header(name) != Some(&*world.fill(value)) {
            problems.push(title(&format!("header {name} is {:?}", request.head.header(name).is_some())));
        }
    }
    for name in expect.no_headers.iter().filter(|name| request.head.header(name).is_some()) {
        problems.push(title(&format!("it has the header {name}")));
    }
    let normal = normal::text(&with_known_parts(&body), world);
    if let Some(wanted) = &expect.body {
        problems.extend(pattern::check(&title("body"), wanted.trim_end(), &normal).err());
    }
    if let Some(wanted) = &expect.messages {
        let messages = normal::text(&elements(&body), world);
        problems.extend(pattern::check(&title("messages"), wanted, &messages).err());
    }
    for part in expect.has.iter().filter(|part| !body.contains(&world.fill(part))) {
        problems.push(title(&format!("does not hold {part}\n{}", short(&body))));
    }
    for part in expect.lacks.iter().filter(|part| body.contains(&world.fill(part))) {
        problems.push(title(&format!("holds {part}\n{}", short(&body))));
    }
    if let Some(name) = &expect.prompt_file {
        problems.extend(prompt_is(name, &body, world).err());
    }
    if let Some(wanted) = &expect.sections {
        let found = sections(&body);
        if found != *wanted {
            problems.push(title(&format!("sections are {found:?}, expected {wanted:?}")));
        }
    }
    joined(problems)
}

type Members<'a> = std::collections::HashMap<String, &'a RawValue>;

/// Replaces the parts of a body whose wording is kept elsewhere by a name: the system prompt, and the tools where
/// they are, to the byte, what `src/assets/tools.json` says.
fn with_known_parts(body: &str) -> String {
    let Ok(members) = serde_json::from_str::<Members>(body) else { return body.to_owned() };
    let mut out = body.to_owned();
    for (key, name) in [("system", "<SYSTEM>"), ("tools", "<TOOLS>"), ("instructions", "<SYSTEM>")] {
        let Some(raw) = members.get(key).map(|raw| raw.get()) else { continue };
        let tools = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/assets/tools.json"));
        if key != "tools" || raw == tools.trim_end() {
            out = out.replacen(raw, name, 1);
        }
    }
    out
}

/// The messages of a body, one a line.
fn elements(body: &str) -> String {
    let Ok(members) = serde_json::from_str::<Members>(body) else { return "the body is no JSON".to_owned() };
    let list = members.get("messages").or(members.get("input")).map_or("[]", |raw| raw.get());
    let list: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    list.iter().map(|raw| format!("{}\n", raw.get())).collect()
}

/// Whether the system prompt is that of a file. With CONFORMANCE_WRITE=1 the file is written: look at the diff.
fn prompt_is(name: &str, body: &str, world: &World) -> Result<(), String> {
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let found = normal::text(body["system"].as_str().unwrap_or_default(), world) + "\n";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name);
    if std::env::var_os("CONFORMANCE_WRITE").is_some() {
        return fs::write(&path, found).map_err(|error| format!("{}: {error}", path.display()));
    }
    let wanted = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if wanted == found {
        Ok(())
    } else {
        pattern::check(name, &wanted, &found).and(Err(format!("{name} differs")))
    }
}

/// The names of the system prompt's sections.
fn sections(body: &str) -> Vec<String> {
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let system = body["system"].as_str().unwrap_or_default();
    let mut open: Option<String> = None;
    let mut found = Vec::new();
    for line in system.lines() {
        match &open {
            Some(name) if line == format!("</{name}>") => open = None,
            Some(_) => {}
            None => {
                let tag = line.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(line);
                let name = tag.split(' ').next().unwrap_or(tag).to_owned();
                found.push(name.clone());
                open = Some(name);
            }
        }
    }
    found
}

/// All problems as one.
pub(crate) fn joined(problems: Vec<String>) -> Result<(), String> {
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}
