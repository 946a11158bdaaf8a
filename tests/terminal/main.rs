//! The interactive terminal, driven as a person does: the real program in a terminal of several sizes, keys in, screens
//! out (CONTRACT §8, §14).
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate")]

mod bash;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod editing;
mod markdown;
mod picture;
mod plain;
mod pty;
mod safety;
mod signals;
mod tmux;

use std::path::PathBuf;
use std::process::Command;

use common::{World, tape};
use pty::Term;

/// The first line of a session.
const HELLO: &str = "bash-agent interactive mode (/help shows what there is, Ctrl+D leaves)";

/// A program with this cassette in a terminal, its prompt there.
fn interactive(world: &World, lines: &[String], columns: u16, rows: u16) -> Term {
    let mut term = start(world, lines, &[], columns, rows);
    term.wait("the prompt", |term| term.lines().last().is_some_and(|line| line == ">"));
    term
}

/// The same with more arguments; waits for nothing.
fn start(world: &World, lines: &[String], more: &[&str], columns: u16, rows: u16) -> Term {
    let cassette = world.cassette("cassette.ndjson", lines);
    let mut args = vec!["-p", "script", "-m", cassette.to_str().unwrap()];
    args.extend(more);
    if !more.contains(&"--session") {
        args.extend(["--session", "s"]);
    }
    Term::start(in_terminal(world.command(args)), columns, rows)
}

/// With the variables of a terminal.
fn in_terminal(mut command: Command) -> Command {
    command.env("TERM", "xterm-256color");
    command
}

/// A response whose text comes in these pieces, the last of them only after an interrupt or a day.
fn never_ends(pieces: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = pieces.iter().map(|piece| tape::text(piece)).collect();
    lines.push(
        serde_json::json!({"type": "text", "content": "never", "delay_ms": 86_400_000_u64}).to_string(),
    );
    lines
}

/// A FIFO that a command reads: it ends when the test writes to it.
fn gate(world: &World) -> PathBuf {
    let path = world.work().join("g");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    path
}
