//! The notify reader, `bash-agent core notify-reader` and `scripts/lib/notify.sh`: either serves whoever holds the
//! session's lock, and leaves the same files.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::Value;

use crate::data::{self, frame};
use crate::twins::{Awk, awks, root, same};

/// What one reader made of some bytes.
#[derive(Debug)]
struct Left {
    files: Vec<(&'static str, String)>,
    stdout: String,
    code: Option<i32>,
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Event lines without their times, figures without theirs.
fn timeless(text: &str) -> String {
    text.lines()
        .map(|line| {
            let mut object: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
            ["ts", "timestamp", "last_updated"].iter().for_each(|key| drop(object.shift_remove(*key)));
            serde_json::to_string(&object).unwrap() + "\n"
        })
        .collect()
}

/// Runs a reader on a session of which 20 children are open, until it has taken the last frame; then the owner goes.
fn read_by(mut command: Command, show: &str, input: &[&[u8]]) -> Left {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let path = |name: &str| dir.join(name);
    fs::write(path("events.jsonl"), "").unwrap();
    fs::write(path("session.json"), r#"{"cwd":"/","created":"","model":"claude-sonnet-5-5"}"#).unwrap();
    fs::write(path("active_sub.list"), (0..20).map(|n| format!("sub_{n} 1\n")).collect::<String>()).unwrap();
    fs::write(path("active_sub.count"), "20\n").unwrap();
    for name in ["input.fifo", "notify.fifo"] {
        nix::unistd::mkfifo(&path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let fifo = |name: &str| OpenOptions::new().read(true).write(true).open(path(name)).unwrap();
    let (mut notify, pending) = (fifo("notify.fifo"), fifo("input.fifo"));
    let lock = lock_of(&path("session.lock"));
    command.args(["--show", show]).arg(dir).env("HOME", dir).env("TMPDIR", dir);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let read = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
    // One after the other: what follows noise or a broken frame is found only after silence.
    for (number, piece) in input.iter().enumerate() {
        let before = (read("events.jsonl").len(), read("notify.buf").len());
        notify.write_all(piece).unwrap();
        wait_for(&format!("what becomes of piece {number} ({})", piece.escape_ascii()), || {
            (read("events.jsonl").len(), read("notify.buf").len()) != before
        });
        // All of it is done under one hold of this lock.
        lock_of(&path("state.lock"));
    }
    drop(lock);
    drop(pending);
    let output = child.wait_with_output().unwrap();
    let mut files: Vec<_> =
        ["notify.buf", "active_sub.list", "active_sub.count"].map(|name| (name, read(name))).into();
    files.push(("events.jsonl", timeless(&read("events.jsonl"))));
    files.push(("stats.json", timeless(&read("stats.json"))));
    assert_eq!(
        fs::read_dir(dir).unwrap().filter(|entry| is_private(&entry.as_ref().unwrap().path())).count(),
        0
    );
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stdout = if show == "events" { timeless(&stdout) } else { stdout };
    Left { files, stdout, code: output.status.code() }
}

fn lock_of(path: &Path) -> Flock<File> {
    let file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno).unwrap()
}

fn is_private(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with("bash-agent.")
}

fn reader_same(awk: Awk, show: &str, input: &[Vec<u8>]) {
    let input: Vec<&[u8]> = input.iter().map(Vec::as_slice).collect();
    let mut core = Command::new(env!("CARGO_BIN_EXE_bash-agent"));
    core.args(["core", "notify-reader"]);
    let mut script = Command::new(root().join("scripts/lib/notify.sh"));
    script.env("BASH_AGENT_AWK", awk.join(" "));
    let (ours, theirs) = (read_by(core, show, &input), read_by(script, show, &input));
    for ((name, theirs), (_, ours)) in theirs.files.iter().zip(&ours.files) {
        same(name, theirs.as_bytes(), ours.as_bytes()).unwrap();
    }
    same("stdout", theirs.stdout.as_bytes(), ours.stdout.as_bytes()).unwrap();
    assert_eq!((theirs.code, ours.code), (Some(0), Some(0)));
}

fn fields(list: &[&str]) -> Vec<u8> {
    frame(&list.iter().map(|field| field.as_bytes().to_vec()).collect::<Vec<_>>())
}

#[test]
fn notify_reader() {
    let input = [
        fields(&["AGENT_RESULT", "sub_3", "ok", "Hm.\n", "Done, \"naïve\" 🙂\n", "100", "20", "3", "4", "2"]),
        fields(&["ASYNC_TASK_RESULT", "task_1", "137", "out\tput\r\n\u{1b}[31m"]),
        fields(&["AGENT_RESULT", "sub_3", "ok", "", "again", "1", "1", "1", "1", "1"]),
        fields(&["USER_NOTIFY", "Do not\ntouch \\n it."]),
        fields(&["AGENT_RESULT", "sub_19", "failed", "", "", "18446744073709551", "0", "0", "0", "0"]),
        fields(&["NOTHING", "x"]),
        fields(&["USER_INPUT", "0", "hi"]),
        fields(&["AGENT_RESULT", "sub_4", "lost", "", "", "0", "0", "0", "0", "0"]),
        fields(&["AGENT_RESULT", "sub_4", "ok", "", "", "0", "-1", "0", "0", "0"]),
        fields(&["AGENT_RESULT", "sub_4", "ok", "", ""]),
        fields(&["ASYNC_TASK_RESULT", "task_2", "2147483648", ""]),
        fields(&["ASYNC_TASK_RESULT", "task_2", "2147483647", ""]),
        fields(&["USER_NOTIFY"]),
    ];
    for show in ["messages", "events", "none"] {
        reader_same(awks()[0], show, &input);
    }
}

#[test]
fn notify_reader_as_generated() {
    let mut runner = TestRunner::deterministic();
    let mut text = || data::text().new_tree(&mut runner).unwrap().current();
    let input: Vec<Vec<u8>> = (0..12)
        .map(|n| match n % 3 {
            0 => fields(&[
                "AGENT_RESULT",
                &format!("sub_{n}"),
                if n % 2 == 0 { "ok" } else { "failed" },
                &text(),
                &text(),
                "7",
                "5",
                "3",
                "1",
                "2",
            ]),
            1 => fields(&["ASYNC_TASK_RESULT", &format!("task_{n}"), "130", &text()]),
            _ => fields(&["USER_NOTIFY", &format!("x{}", text())]),
        })
        .collect();
    for awk in awks() {
        reader_same(awk, "messages", &input);
    }
}
