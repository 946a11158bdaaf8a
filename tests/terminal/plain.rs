//! Terminals that take no escapes, and people who want none: lines in, lines out.

use crate::common::{World, tape};
use crate::pty::Term;
use crate::{in_terminal, never_ends};

const HELLO: &str = "bash-agent interactive mode (type 'exit' or Ctrl+D to quit)";

fn plain(world: &World, lines: &[String], term: Option<&str>, more: &[&str]) -> Term {
    let cassette = world.cassette("cassette.ndjson", lines);
    let args = ["-p", "script", "-m", cassette.to_str().unwrap(), "--session", "s"];
    let mut command = in_terminal(world.command(args.iter().chain(more)));
    match term {
        Some(term) => command.env("TERM", term),
        None => command.env_remove("TERM"),
    };
    let mut term = Term::start(command, 80, 24);
    term.wait_for_screen(&[HELLO, ">"]);
    term
}

#[test]
fn a_dumb_terminal_gets_no_escape_at_all() {
    let mut lines = never_ends(&["Working"]);
    lines.extend(tape::says("fine"));
    for (name, more) in [(Some("dumb"), [].as_slice()), (None, &[])] {
        let world = World::new();
        let mut term = plain(&world, &lines, name, more);
        term.send("one\r");
        term.wait_for("Working");
        term.send("\x03");
        term.wait_for("Interrupted.");
        term.wait_for_last(&["Interrupted.", ">"]);
        term.send("two\\\rlines\r");
        term.wait_for_last(&["> two\\", "lines", "fine", ">"]);
        term.send("\x04");
        assert_eq!(term.ends(), 0);
        assert!(!term.written.contains(&0x1b), "{}", String::from_utf8_lossy(&term.written));
    }
}

#[test]
fn plain_moves_no_cursor_and_leaves_at_the_second_ctrl_c() {
    let world = World::new();
    let mut term = plain(&world, &tape::says("fine"), Some("xterm"), &["--plain"]);
    term.send("one\r");
    term.wait_for_last(&["> one", "fine", ">"]);
    term.send("half");
    term.wait_for_last(&["> half"]);
    term.send("\x03");
    term.wait_for_last(&["> half^C", "bash-agent: Ctrl+C again leaves", ">"]);
    term.send("\x03");
    assert_eq!(term.ends(), 130);
    let written = String::from_utf8_lossy(&term.written).into_owned();
    let others = written.split('\x1b').skip(1).filter(|piece| {
        let colour = piece.starts_with('[')
            && piece
                .trim_start_matches(['[', ';'])
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
                .starts_with('m');
        !colour && !piece.starts_with(']')
    });
    assert_eq!(others.collect::<Vec<_>>(), [""; 0], "only colours and the title");
}
