//! A reader that does not read, and very much at once: nothing is lost, memory, threads and files stay bounded, an
//! interrupt works at once (issue 10). The long forms are in `make soak` and `make bench`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{ChildStdout, Command, Stdio};

use bash_agent::session::paths::SessionDir;
use common::{Ran, World, tape, wait_for};
use serde_json::Value;

/// A pipe with this much unread, of the 64 kB that it can hold, is full for small pieces.
const FULL: usize = 48 << 10;

/// A figure of /proc/PID/status: kB, or a count.
fn figure(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// How many bytes lie unread in a pipe.
fn unread(pipe: &ChildStdout) -> usize {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, and the pipe is open as long as it is borrowed.
    assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut count) }, 0);
    usize::try_from(count).unwrap()
}

fn events(dir: &SessionDir) -> Vec<Value> {
    let log = fs::read_to_string(dir.events()).unwrap_or_default();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All text of a session's answers.
fn text(dir: &SessionDir) -> String {
    let is_text = |event: &Value| event["type"] == "text";
    events(dir)
        .iter()
        .filter(|event| is_text(event))
        .map(|event| event["content"].as_str().unwrap())
        .collect()
}

#[test]
fn a_reader_that_does_not_read_holds_the_stream_back_and_an_interrupt_still_works() {
    let world = World::new();
    let deltas = std::iter::repeat_n(tape::text("word "), 200_000);
    let cassette: Vec<String> = deltas.chain([tape::usage(1, 1), tape::stop("end_turn")]).collect();
    let cassette = world.cassette("long", &cassette);
    let args = ["--session", "s", "-p", "script", "-m", cassette.to_str().unwrap(), "go"];
    let mut agent = world.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = agent.stdout.take().unwrap();
    wait_for("a full pipe", || unread(&stdout) >= FULL);
    assert!(figure(agent.id(), "VmHWM") < 64 << 10, "{} kB", figure(agent.id(), "VmHWM"));
    world.run(["interrupt", "--session", "s"]).exits(0);
    let dir = world.session("s");
    wait_for("the end of the turn", || events(&dir).iter().any(|event| event["type"] == "stop"));
    assert!(unread(&stdout) >= FULL, "nobody has read it");
    let mut shown = String::new();
    stdout.read_to_string(&mut shown).unwrap();
    let logged = text(&dir);
    assert!(logged.len() < 5 * 200_000, "it was not held back");
    assert!(shown.starts_with(&logged), "shown {} bytes, logged {}", shown.len(), logged.len());
    Ran::from(agent.wait_with_output().unwrap()).exits(130);
}

#[test]
fn a_thousand_remarks_at_once_are_all_delivered() {
    let world = World::new();
    let mut agent = world.stay("s", &world.cassette("hello", &tape::says("yes")));
    let dir = world.session("s");
    // After a turn it has what it needs for one.
    world.run(["send", "--session", "s", "--wait", "hi"]).exits(0);
    let (files, threads) = (open_files(agent.pid()), figure(agent.pid(), "Threads"));
    let remarks: Vec<String> = (0..1000).map(|number| format!("remark {number}.")).collect();
    for part in remarks.chunks(100) {
        let frames: String = part
            .iter()
            .map(|text| format!("*2\r\n$11\r\nUSER_NOTIFY\r\n${}\r\n{text}\r\n", text.len()))
            .collect();
        fs::OpenOptions::new()
            .append(true)
            .open(dir.notify_fifo())
            .unwrap()
            .write_all(frames.as_bytes())
            .unwrap();
    }
    wait_for("all remarks", || {
        events(&dir).iter().filter(|event| event["type"] == "user_notify").count() == remarks.len()
    });
    world.run(["wait", "--session", "s", "--timeout", "60"]).exits(0);
    let conversation = fs::read_to_string(dir.conversation()).unwrap();
    for remark in &remarks {
        assert_eq!(conversation.matches(remark.as_str()).count(), 1, "{remark}");
    }
    // What the last turn is still bringing to the disk is open a moment longer.
    wait_for("no more files and threads than before", || {
        open_files(agent.pid()) <= files && figure(agent.pid(), "Threads") <= threads
    });
    world.run(["stop", "--session", "s"]).exits(0);
    let (status, stderr) = agent.wait();
    assert_eq!(status.code(), Some(0), "{stderr}");
}

fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The disk takes nothing any more (every fdatasync waits): the turn goes on, and an interrupt ends its tool. Only the
/// word that the turn has ended waits for the disk.
#[test]
fn a_disk_that_stalls_holds_neither_the_turn_nor_an_interrupt() {
    const STALL: &[&str] = &[
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=fdatasync",
        "-e",
        "inject=fdatasync:delay_enter=1000000000",
    ];
    let works =
        |status: std::io::Result<std::process::ExitStatus>| status.is_ok_and(|status| status.success());
    if !works(Command::new("strace").args(STALL).arg("true").status()) {
        eprintln!("skipped: strace is missing, or may not trace here");
        return;
    }
    let world = World::new();
    let call = tape::call("t1", "Bash", serde_json::json!({"command": "echo $$ >pid; sleep 1000"}));
    let cassette = world.cassette("stall", &[call, tape::stop("tool_use")]);
    let args = ["--session", "s", "-p", "script", "-m", cassette.to_str().unwrap(), "go"];
    let agent = world.command(args);
    let mut traced = Command::new("strace");
    traced
        .args(STALL)
        .arg(agent.get_program())
        .args(agent.get_args())
        .current_dir(agent.get_current_dir().unwrap());
    for (name, value) in agent.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    let mut tracer = traced.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let dir = world.session("s");
    let number = || fs::read_to_string(world.work().join("pid")).ok()?.trim().parse::<u32>().ok();
    wait_for("the tool", || number().is_some());
    let lives =
        |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    let tool = number().unwrap();
    assert!(lives(tool));
    world.run(["interrupt", "--session", "s"]).exits(0);
    wait_for("the end of the tool", || !lives(tool));
    assert!(!events(&dir).iter().any(|event| event["type"] == "stop"), "said before it was on the disk");
    // The disk is back.
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    wait_for("the end of the turn", || events(&dir).iter().any(|event| event["type"] == "stop"));
    assert_eq!(events(&dir).last().unwrap()["reason"], "interrupted");
}
