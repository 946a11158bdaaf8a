//! Kills the agent at every call that changes something below its home, cuts the power there, or makes that call fail,
//! and looks at what is left (DESIGN "Durability", CASES A, B, N8, Q1).
//!
//! A tracer written in C (`tracer.c`, ptrace) runs the agent and all it starts, the Bash agent with its awk, mv and cat
//! too, and counts those calls. `cargo test` tries a sample of the points, `CRASH_FULL=1 cargo test --test crash`
//! (`make soak`) each point in each mode; `CRASH_FULL=2/8` the second of eight parts of them. `CRASH_POINT=MODE:N`,
//! `MODE:N:M` with the next start killed at call M, `MODE:N:M:bash` with the Bash agent going on, or `MODE:N:M:victim`
//! with the Bash agent disturbed, tries one.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test crate")]

mod check;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod power;
mod scenario;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use scenario::{Mode, Point, Victim};

/// How many points `cargo test` tries with the binary, and with the Bash agent, which takes longer.
const SAMPLE: usize = 60;
const SAMPLE_IN_BASH: usize = 13;

#[test]
fn whatever_call_is_the_last_the_session_goes_on() {
    try_points(Victim::Binary, SAMPLE, &Mode::ALL);
}

#[test]
fn whatever_call_of_the_bash_agent_is_the_last_the_session_goes_on() {
    try_points(Victim::Bash, SAMPLE_IN_BASH, &Mode::IN_BASH);
}

fn try_points(victim: Victim, sample: usize, modes: &[Mode]) {
    let tracer = Tracer::build();
    let (calls, problems) = scenario::play(&tracer.program, victim, None);
    assert_eq!(problems, Vec::<String>::new(), "the undisturbed run");
    let total = calls.len();
    assert!(total > 200, "only {total} calls were counted");
    let points = points(victim, total, sample, modes);
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    // The agent waits for the disk a lot, so a few at once are good.
    let workers = std::thread::available_parallelism().map_or(2, usize::from) + 1;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (calls, problems) = scenario::play(&tracer.program, victim, Some(*point));
                    if problems.is_empty() {
                        continue;
                    }
                    let call = calls.get(point.number - 1).cloned().unwrap_or_default();
                    let mut text = format!("{point}, at `{call}`:");
                    problems.iter().for_each(|problem| text.push_str(&format!("\n    {problem}")));
                    eprintln!("{text}");
                    failures.lock().unwrap().push(text);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let (failed, tried) = (failures.len(), points.len());
    eprintln!("{victim:?}: {total} calls, {tried} points, {failed} failed");
    assert!(failures.is_empty(), "{failed} of {tried} points failed:\n{}", failures.join("\n"));
}

/// How many damages `cargo test` tries, in each of two worlds.
const DAMAGES: usize = 60;

#[test]
fn whatever_is_damaged_the_session_goes_on() {
    let rounds = if std::env::var_os("CRASH_FULL").is_some() { 2000 } else { DAMAGES };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let worlds: Vec<_> = [0x9e37_79b9_7f4a_7c15, 0x2545_f491_4f6c_dd1d]
            .map(|seed| {
                scope.spawn(move || damage::try_all(&scenario::whole(), rounds, damage::Random(seed)))
            })
            .into();
        worlds.into_iter().flat_map(|world| world.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{} damages are not survived:\n{}", failures.len(), failures.join("\n"));
}

/// The points to try among `total` calls.
fn points(victim: Victim, total: usize, sample: usize, modes: &[Mode]) -> Vec<Point> {
    if let Ok(text) = std::env::var("CRASH_POINT") {
        let mut words = text.split(':');
        let name = words.next().unwrap();
        let mode = *Mode::EVERY.iter().find(|mode| mode.name() == name).expect("a mode");
        let number = words.next().expect("CRASH_POINT=MODE:N or MODE:N:M").parse().unwrap();
        let again = words.next().and_then(|again| again.parse().ok()).filter(|again| *again > 0);
        let last = words.next();
        let is_meant = (last == Some("victim")) == (victim == Victim::Bash);
        let point = Point { mode, number, again, in_bash: last == Some("bash"), victim };
        return is_meant.then_some(point).into_iter().collect();
    }
    let full = std::env::var("CRASH_FULL").ok();
    let count = if full.is_some() { total * modes.len() } else { sample };
    // Neighbours differ in mode. The next start makes about 60 calls before its turn begins.
    let point = |index: usize| Point {
        mode: modes[index % modes.len()],
        number: 1 + index * total / count,
        again: (victim == Victim::Binary && index % 2 == 1).then_some(1 + index * 7 % 60),
        in_bash: victim == Victim::Binary && index % 8 == 2,
        victim,
    };
    let part = full.and_then(|full| {
        let (part, parts) = full.split_once('/')?;
        Some((part.parse::<usize>().ok()?, parts.parse::<usize>().ok()?))
    });
    let (part, parts) = part.unwrap_or((1, 1));
    (count * (part - 1) / parts..count * part / parts).map(point).collect()
}

/// The tracer, compiled for this run.
struct Tracer {
    _dir: tempfile::TempDir,
    program: PathBuf,
}

impl Tracer {
    fn build() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("tracer");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash/tracer.c");
        let status = Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-o"])
            .args([&program, &source])
            .status()
            .expect("cc, which rustc needs too");
        assert!(status.success());
        Self { _dir: dir, program }
    }
}
