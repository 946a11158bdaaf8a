//! Ctrl+C, Ctrl+Z, Ctrl+D and the signals behind them.

use std::fs;

use nix::sys::signal::Signal;
use nix::sys::termios::{LocalFlags, tcgetattr};
use serde_json::json;

use crate::common::{World, tape};
use crate::{interactive, never_ends};

#[test]
fn ctrl_c_interrupts_a_turn_once() {
    let world = World::new();
    let mut lines = never_ends(&["Thinking about it"]);
    lines.extend(tape::calls([tape::call("c", "Bash", json!({"command": "sleep 600"}))]));
    lines.extend(tape::says("fine"));
    let mut term = interactive(&world, &lines, 80, 24);
    term.send("one\r");
    term.wait_for("Thinking about it");
    term.send("\x03");
    term.wait_for_last(&["> one", "Thinking about it", "Interrupted.", ">"]);
    term.send("two\r");
    term.wait_for("[tool] Bash(sleep 600)");
    term.send("\x03");
    term.wait_for_last(&["[tool] Bash(sleep 600)", "Error: interrupted", "Interrupted.", ">"]);
    term.send("three\r");
    term.wait_for_last(&["> three", "fine", ">"]);
    // From outside it is the same.
    let events = fs::read_to_string(world.session("s").events()).unwrap();
    assert_eq!(events.matches("\"reason\":\"interrupted\"").count(), 2);
}

#[test]
fn ctrl_c_at_rest_clears_and_then_leaves() {
    let world = World::new();
    let mut term = interactive(&world, &tape::says("ok"), 80, 24);
    term.send("half a line\x03");
    term.wait_for_last(&[">", "Ctrl+C again leaves"]);
    term.send("x\x7f");
    term.wait_for_last(&[">"]);
    term.send("\x03");
    term.wait_for_last(&[">", "Ctrl+C again leaves"]);
    term.send("\x03");
    assert_eq!(term.ends(), 130);
    assert!(term.lines().ends_with(&["Resume with: --session s  or  --continue".to_owned()]));
}

#[test]
fn sigint_from_outside_is_ctrl_c() {
    let world = World::new();
    let mut term = interactive(&world, &never_ends(&["Working"]), 80, 24);
    term.send("one\r");
    term.wait_for("Working");
    term.signal(Signal::SIGINT);
    term.wait_for_last(&["Working", "Interrupted.", ">"]);
    term.send("\x04");
    assert_eq!(term.ends(), 0);
}

#[test]
fn the_terminal_is_left_as_it_was() {
    let world = World::new();
    let mut term = interactive(&world, &never_ends(&["Working"]), 80, 24);
    let raw =
        |term: &crate::pty::Term| !tcgetattr(term.master()).unwrap().local_flags.contains(LocalFlags::ICANON);
    assert!(raw(&term));
    term.send("one\r");
    term.wait_for("Working");
    term.signal(Signal::SIGTERM);
    assert_eq!(term.ends(), 143);
    assert!(!raw(&term));
    let written = String::from_utf8_lossy(&term.written).into_owned();
    assert_eq!(written.matches("\x1b[?2004h").count(), written.matches("\x1b[?2004l").count());
    assert!(term.lines().contains(&"Interrupted.".to_owned()), "{:?}", term.lines());
}

#[test]
fn a_hang_up_saves_and_ends() {
    let world = World::new();
    let mut term = interactive(&world, &never_ends(&["Working"]), 80, 24);
    term.send("one\r");
    term.wait_for("Working");
    term.signal(Signal::SIGHUP);
    assert_eq!(term.ends(), 129);
    let events = fs::read_to_string(world.session("s").events()).unwrap();
    assert!(events.lines().last().unwrap().starts_with("{\"type\":\"stop\",\"reason\":\"interrupted\""));
    assert!(!world.session("s").running_flag().exists());
}

#[test]
fn ctrl_z_stops_and_fg_goes_on() {
    let world = World::new();
    let gate = crate::gate(&world);
    let mut lines = tape::calls([tape::call("c", "Bash", json!({"command": "cat g"}))]);
    lines.extend(tape::says("Back again."));
    let cassette = world.cassette("cassette.ndjson", &lines);
    let mut shell = crate::in_terminal(world.command_of("bash".as_ref(), ["--norc", "--noprofile", "-i"]));
    shell.env("PS1", "shell$ ").env("HISTFILE", "/dev/null");
    let mut term = crate::pty::Term::start(shell, 80, 24);
    term.wait_for_last(&["shell$"]);
    let agent = crate::common::program();
    term.send(&format!("clear; {} -p script -m {} --session s\r", agent.display(), cassette.display()));
    term.wait_for_last(&[">"]);
    term.send("one\r");
    term.wait_for("[tool] Bash(cat g)");
    term.send("half\x1a");
    term.wait("the shell", |term| term.lines().last().is_some_and(|line| line == "shell$"));
    assert!(term.lines().iter().any(|line| line.contains("Stopped")), "{:?}", term.lines());
    term.send("fg\r");
    term.wait_for_last(&["> half"]);
    fs::write(gate, "released\n").unwrap();
    term.wait_for_last(&["released", "Back again.", "> half"]);
    term.send("\x15\x04");
    term.wait_for_last(&["Resume with: --session s  or  --continue", "shell$"]);
    term.send("exit\r");
    assert_eq!(term.ends(), 0);
}
