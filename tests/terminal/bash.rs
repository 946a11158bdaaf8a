//! The Bash agent at a terminal: bash's own line editor, with keys and commands of ours.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::common::{World, bash_agent, tape};
use crate::{gate, in_terminal, pty::Term};

const HELLO: &str = "bash-agent interactive mode (type 'exit' or Ctrl+D to quit)";

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";

/// The agent in a terminal, its prompt there. Programs in the world's `bin` come before others.
fn interactive(world: &World, lines: &[String], more: &[&str]) -> Term {
    let cassette = world.cassette("cassette.ndjson", lines);
    let args = ["-p", "script", "-m", cassette.to_str().unwrap(), "--session", "s", "-i"];
    let mut command = in_terminal(world.command_of(&bash_agent(), args.iter().chain(more)));
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", world.root().join("bin").display()));
    let mut term = Term::start(command, 100, 40);
    term.wait_for_screen(&[HELLO, ">"]);
    term
}

/// A program of the clipboard, a shell script with this body.
fn clipboard(world: &World, name: &str, body: &str) {
    let bin = world.root().join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join(name), format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn events(world: &World) -> String {
    fs::read_to_string(world.session("s").events()).unwrap()
}

#[test]
fn the_history_is_walked_and_kept() {
    let world = World::new();
    let mut lines = tape::says("first answer");
    lines.extend(tape::says("second answer"));
    let mut term = interactive(&world, &lines, &[]);
    term.send("héllo 漢字\r");
    term.wait_for_last(&["> héllo 漢字", "first answer", ">"]);
    term.send("\x1b[A");
    term.wait_for_last(&["> héllo 漢字"]);
    term.send("\x12llo\r");
    term.wait_for_last(&["second answer", ">"]);
    assert_eq!(events(&world).matches("\"content\":\"héllo 漢字\"").count(), 2);
    term.send("\x04");
    assert_eq!(term.ends(), 0);
    assert_eq!(fs::read_to_string(world.base().history()).unwrap(), "héllo 漢字\nhéllo 漢字\n");
}

#[test]
fn ctrl_o_steers_the_turn_that_runs_and_is_an_input_at_rest() {
    let world = World::new();
    let gate = gate(&world);
    let mut lines = tape::says("At rest.");
    lines.extend(tape::calls([tape::call("c", "Bash", json!({"command": "cat g"}))]));
    lines.extend(tape::says("As you wish."));
    let mut term = interactive(&world, &lines, &[]);
    term.send("nothing runs\x0f");
    term.wait_for_last(&["> nothing runs", "At rest.", ">"]);
    // A turn from elsewhere, beside the prompt.
    let fifo = world.session("s").input_fifo();
    fs::write(fifo, "{\"type\":\"user_input\",\"content\":\"from elsewhere\"}\n").unwrap();
    term.wait_for("[tool] Bash(cat g)");
    term.send("not the tests\x0f");
    term.wait_for("(the turn hears of it before its next model call)");
    fs::write(gate, "released\n").unwrap();
    term.wait_for("As you wish.");
    assert!(term.lines().iter().any(|line| line == "[user inject] not the tests"), "{:?}", term.lines());
    let events = events(&world);
    assert_eq!(events.matches("\"type\":\"user_input\"").count(), 2, "{events}");
    assert_eq!(events.matches("\"type\":\"user_notify\"").count(), 1, "{events}");
    term.send("\x04");
    assert_eq!(term.ends(), 0);
}

#[test]
fn ctrl_v_and_slash_image_take_images() {
    let world = World::new();
    fs::write(world.root().join("clip.png"), PNG).unwrap();
    clipboard(&world, "wl-paste", "exit 1");
    clipboard(&world, "xclip", &format!("cat {}/clip.png", world.root().display()));
    clipboard(&world, "osascript", "exit 1");
    fs::write(world.work().join("shot.png"), PNG).unwrap();
    let mut term = interactive(&world, &tape::says("Seen."), &[]);
    // In the middle of a line, behind wide characters.
    term.send("漢 this\x1b[D\x1b[D\x1b[D\x1b[D\x16");
    term.wait_for_last(&["> 漢 [Image #1]this"]);
    term.send(" is \r");
    term.wait_for_last(&["Seen.", ">"]);
    assert_eq!(fs::read(world.session("s").images().join("1.png")).unwrap(), PNG);
    assert!(events(&world).contains("漢 [Image #1] is this"));
    term.send("/image shot.png\r");
    term.wait_for_last(&["[Image #2] is in the session: name it so in what you ask", ">"]);
    // AppleScript gives hexadecimal digits.
    fs::remove_file(world.root().join("clip.png")).unwrap();
    let hex: String = PNG.iter().map(|byte| format!("{byte:02X}")).collect();
    clipboard(&world, "osascript", &format!("echo '«data PNGf{hex}»'"));
    term.send("\x16");
    term.wait_for_last(&["> [Image #3]"]);
    assert_eq!(fs::read(world.session("s").images().join("3.png")).unwrap(), PNG);
}

#[test]
fn what_is_no_image_is_said_and_the_line_stays() {
    let world = World::new();
    clipboard(&world, "wl-paste", "exit 1");
    clipboard(&world, "xclip", "exit 1");
    clipboard(&world, "osascript", "exit 1");
    let mut term = interactive(&world, &tape::says("ok"), &[]);
    term.send("see \x16");
    term.wait_for_last(&["(no image in the clipboard)", "> see"]);
    clipboard(&world, "xclip", "echo words");
    term.send("\x16");
    term.wait_for_last(&[
        "(cannot use the clipboard's image: it is no PNG, JPEG, GIF or WebP: convert it to PNG)",
        "> see",
    ]);
    term.send("\x15/image none.png\r");
    term.wait_for("cannot use the image none.png: there is no such file");
    term.wait_for_last(&[">"]);
    assert_eq!(fs::read_dir(world.session("s").images()).unwrap().count(), 0);
}

#[test]
fn commands_are_listed_and_done() {
    for more in [[].as_slice(), &["--plain"]] {
        let world = World::new();
        let mut term = interactive(&world, &tape::says("ok"), more);
        for (line, answer) in [
            ("/help", "/quit        end the session (also /exit, exit, quit, Ctrl+D)"),
            ("/status", "state    waiting for input"),
            ("/cost", "0.0000"),
            ("/sessions", "PREVIEW"),
            ("/model other", "no command /model here, only the binary has it: /help lists what there is"),
            ("/hlep", "no command /hlep: /help lists them"),
            ("/image", "/image: which file? give its path"),
            ("/compact", "there is nothing to compact"),
        ] {
            term.send(&format!("{line}\r"));
            term.wait(answer, |term| {
                let lines = term.lines();
                lines.iter().any(|line| line.contains(answer)) && lines.last().is_some_and(|line| line == ">")
            });
        }
        assert_eq!(term.lines().iter().any(|line| line.contains("Ctrl+V  pastes")), more.is_empty());
        term.send("/etc/hosts is no command\r");
        term.wait_for_last(&["> /etc/hosts is no command", "ok", ">"]);
        let events = events(&world);
        assert_eq!(events.matches("\"type\":\"user_input\"").count(), 1, "{events}");
        term.send("/quit\r");
        assert_eq!(term.ends(), 0);
    }
}
