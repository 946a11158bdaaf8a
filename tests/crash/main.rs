//! Kills the agent at every call that changes something below its home, or makes that call fail, and looks at what is
//! left (DESIGN "Durability", CASES A, B, N8, Q1).
//!
//! A library written in C (`shim.c`), preloaded into the agent, counts those calls; `cargo test` tries a sample of the
//! points, `CRASH_FULL=1 cargo test --test crash` (`make soak`) each point in each mode. `CRASH_POINT=MODE:N`,
//! `MODE:N:M` with the next start killed at call M, or `MODE:N:M:bash` with the Bash agent going on, tries one.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test crate")]

mod check;
#[path = "../common/mod.rs"]
mod common;
mod damage;
mod scenario;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use scenario::{Mode, Point};

/// How many points `cargo test` tries.
const SAMPLE: usize = 63;

#[test]
fn whatever_call_is_the_last_the_session_goes_on() {
    let shim = Shim::build();
    let (calls, problems) = scenario::play(&shim.library, None);
    assert_eq!(problems, Vec::<String>::new(), "the undisturbed run");
    let total = calls.len();
    assert!(total > 200, "only {total} calls were counted: is the agent linked dynamically?");
    let points = points(total);
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    // The agent waits for the disk a lot, so a few at once are good.
    let workers = std::thread::available_parallelism().map_or(2, usize::from) + 1;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (calls, problems) = scenario::play(&shim.library, Some(*point));
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
    assert!(
        failures.is_empty(),
        "{} of {} points failed:\n{}",
        failures.len(),
        points.len(),
        failures.join("\n")
    );
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
fn points(total: usize) -> Vec<Point> {
    if let Ok(text) = std::env::var("CRASH_POINT") {
        let mut words = text.split(':');
        let name = words.next().unwrap();
        let mode = *Mode::ALL.iter().find(|mode| mode.name() == name).expect("a mode");
        let number = words.next().expect("CRASH_POINT=MODE:N or MODE:N:M").parse().unwrap();
        let again = words.next().and_then(|again| again.parse().ok()).filter(|again| *again > 0);
        return vec![Point { mode, number, again, in_bash: words.next() == Some("bash") }];
    }
    let full = std::env::var_os("CRASH_FULL").is_some();
    let count = if full { total * Mode::ALL.len() } else { SAMPLE };
    // Neighbours differ in mode. The next start makes about 60 calls before its turn begins.
    let point = |index: usize| Point {
        mode: Mode::ALL[index % Mode::ALL.len()],
        number: 1 + index * total / count,
        again: (index % 2 == 1).then_some(1 + index * 7 % 60),
        in_bash: index % 8 == 2,
    };
    (0..count).map(point).collect()
}

/// The preloaded library, compiled for this run.
struct Shim {
    _dir: tempfile::TempDir,
    library: PathBuf,
}

impl Shim {
    fn build() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("shim.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash/shim.c");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .args([&library, &source])
            .status()
            .expect("cc, which rustc needs too");
        assert!(status.success());
        Self { _dir: dir, library }
    }
}
