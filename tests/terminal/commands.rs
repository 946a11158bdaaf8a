//! `/commands`, steering, images.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::common::{World, tape};
use crate::{gate, in_terminal, interactive, never_ends, pty::Term, start};

/// A PNG of one pixel, as far as anybody looks.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";

#[test]
fn commands_are_listed_and_the_nearest_is_named() {
    let world = World::new();
    let mut term = interactive(&world, &tape::says("ok"), 100, 40);
    term.send("/h");
    term.wait_for_last(&["> /h", "  /help  these commands, and the keys"]);
    term.send("\t\r");
    term.wait_for("/resume NAME");
    term.wait_for("Ctrl+O      steers the turn");
    term.send("/hlep\r");
    term.wait_for_last(&[
        "> /hlep",
        "bash-agent: no command /hlep: did you mean /help? /help lists them",
        ">",
    ]);
    term.send("/etc/hosts is no command\r");
    term.wait_for_last(&["> /etc/hosts is no command", "ok", ">"]);
}

#[test]
fn harmless_commands_work_in_a_turn_and_the_others_wait() {
    let world = World::new();
    let mut lines = never_ends(&["Working"]);
    lines.extend(tape::says("ok"));
    let mut term = interactive(&world, &lines, 100, 30);
    term.send("go\r");
    term.wait_for("Working");
    term.send("/status\r");
    term.wait_for("state    working");
    term.send("/effort low\r/effort\r");
    term.wait("the command", |term| term.lines().iter().any(|line| line == "> /effort"));
    assert!(!term.lines().iter().any(|line| line == "low"));
    term.send("\x03");
    term.wait_for_last(&["Interrupted.", "effort is low from now on", "low", ">"]);
    term.send("/effort lots\r");
    term.wait_for("/effort: 'lots' is no level: give low, medium, high, xhigh or max");
    term.send("/mode 0444\r");
    term.wait_for_last(&["> /mode 0444", "mode is 0444 from now on", ">"]);
    term.send("/quit\r");
    assert_eq!(term.ends(), 0);
}

#[test]
fn results_are_folded_and_shown_whole() {
    let world = World::new();
    let mut lines = tape::calls([tape::call("c", "Bash", json!({"command": "seq 1 20"}))]);
    lines.extend(tape::says("ok"));
    let mut term = interactive(&world, &lines, 80, 40);
    term.send("go\r");
    term.wait_for_last(&["5", "6", "… 14 more lines (/last shows all)", "ok", ">"]);
    term.send("/last\r");
    term.wait_for_last(&["19", "20", ">"]);
    term.send("/last 2\r/last x\r");
    term.wait_for("no result 2: there are 1 to 1, 1 being the last");
    term.wait_for("/last: 'x' is no number: give 1 for the last result");
}

#[test]
fn another_model_answers_and_files_are_written() {
    let world = World::new();
    let other = world.cassette("other.ndjson", &tape::says("I am the other one."));
    let mut term = interactive(&world, &tape::says("I am the first."), 100, 30);
    term.send("who\r");
    term.wait_for("I am the first.");
    term.send(&format!("/model {}\r", other.display()));
    term.wait_for("from now on");
    term.send("who\r");
    term.wait_for_last(&["I am the other one.", ">"]);
    term.send("/export talk.md\r");
    term.wait_for("written to");
    let talk = fs::read_to_string(world.work().join("talk.md")).unwrap();
    assert!(talk.contains("I am the first.") && talk.contains("I am the other one."), "{talk}");
    term.send("/export talk.md\r");
    term.wait_for("exists: name another");
    term.send("/export /nonexistent/x.md\r");
    term.wait_for("cannot write /nonexistent/x.md");
}

#[test]
fn sessions_are_left_copied_and_resumed() {
    let world = World::new();
    let mut term = interactive(&world, &tape::says("answer"), 80, 24);
    term.send("first question\r");
    term.wait_for_last(&["answer", ">"]);
    term.send("/clear\r");
    term.wait("a new session", |term| term.lines().iter().filter(|line| *line == crate::HELLO).count() == 2);
    term.wait_for_last(&[crate::HELLO, ">"]);
    term.send("second question\r");
    term.wait_for_last(&["> second question", "answer", ">"]);
    term.send("/resume nowhere\r");
    term.wait_for("nowhere");
    term.send("/resume s\r");
    term.wait_for_last(&[crate::HELLO, "> first question", "answer", "", ">"]);
    term.send("/fork\r");
    term.wait("a copy", |term| term.lines().iter().filter(|line| *line == crate::HELLO).count() >= 3);
    term.wait_for_last(&[crate::HELLO, ">"]);
    term.send("third\r");
    term.wait_for_last(&["> third", "answer", ">"]);
    term.send("\x04");
    assert_eq!(term.ends(), 0);
    assert!(!term.lines().last().unwrap().contains("--session s "), "the copy has a name of its own");
    let kept = fs::read_to_string(world.session("s").conversation()).unwrap();
    assert!(!kept.contains("third"), "{kept}");
}

#[test]
fn ctrl_o_steers_the_turn() {
    let world = World::new();
    let gate = gate(&world);
    let mut lines = tape::calls([tape::call("c", "Bash", json!({"command": "cat g"}))]);
    lines.extend(tape::says("As you wish."));
    let mut term = interactive(&world, &lines, 80, 24);
    term.send("go\r");
    term.wait_for("[tool] Bash(cat g)");
    term.send("not the tests\x0f");
    term.wait_for_last(&[">"]);
    let buffer = world.session("s").notify_buf();
    crate::common::wait_for("the remark", || fs::metadata(&buffer).is_ok_and(|buffer| buffer.len() > 0));
    fs::write(gate, "released\n").unwrap();
    term.wait_for_last(&["released", "[user inject] not the tests", "As you wish.", ">"]);
    let events = fs::read_to_string(world.session("s").events()).unwrap();
    assert_eq!(events.matches("\"type\":\"user_input\"").count(), 1);
    assert_eq!(events.matches("\"type\":\"user_notify\"").count(), 1);
}

#[test]
fn images_come_from_files_and_the_clipboard() {
    let world = World::new();
    let bin = world.root().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(world.root().join("clip.png"), PNG).unwrap();
    fs::write(bin.join("xclip"), format!("#!/bin/sh\ncat {}/clip.png\n", world.root().display())).unwrap();
    // One that has nothing to give comes first.
    fs::write(bin.join("wl-paste"), "#!/bin/sh\nexit 1\n").unwrap();
    for name in ["xclip", "wl-paste"] {
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(world.work().join("shot.png"), PNG).unwrap();
    let cassette = world.cassette("c", &tape::says("Seen."));
    let mut command =
        in_terminal(world.command(["-p", "script", "-m", cassette.to_str().unwrap(), "--session", "s"]));
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", bin.display()));
    let mut term = Term::start(command, 100, 24);
    term.wait_for_last(&[">"]);
    term.send("look at \x16");
    term.wait_for_last(&["> look at [Image #1]"]);
    term.send("\r");
    term.wait_for("Seen.");
    assert_eq!(fs::read(world.session("s").images().join("1.png")).unwrap(), PNG);
    term.send("/image shot.png\r");
    term.wait_for_last(&["> [Image #2]"]);
    term.send("\x15/image none.png\r");
    term.wait_for("there is no such file");
    fs::remove_file(world.root().join("clip.png")).unwrap();
    term.send("\x16");
    term.wait_for("no image in the clipboard");
}

#[test]
fn a_person_is_called_when_a_question_waits() {
    for (bell, expected) in
        [("", "bell"), ("bell = \"osc9\"", "9;"), ("bell = \"osc777\"", "777;"), ("bell = \"off\"", "")]
    {
        let world = World::new();
        fs::create_dir_all(world.base().path()).unwrap();
        fs::write(world.base().config(), bell).unwrap();
        let mut lines =
            tape::calls([tape::call("c", "Bash", json!({"command": "touch /etc/bash-agent-test"}))]);
        lines.extend(tape::says("Well then."));
        let mut term = start(&world, &lines, &["--ask"], 100, 24);
        term.wait_for_last(&[">"]);
        term.send("go\r");
        term.wait_for("[approval]");
        term.send("n\r");
        term.wait_for_last(&["Well then.", ">"]);
        assert!(!term.lines().iter().any(|line| line.contains("waits: n")));
        let calls =
            term.heard().osc.iter().filter(|osc| !osc.starts_with("9;4;")).cloned().collect::<Vec<_>>();
        match expected {
            "bell" => assert!(term.heard().bells == 1 && calls.is_empty(), "{calls:?}"),
            "" => assert!(term.heard().bells == 0 && calls.is_empty(), "{calls:?}"),
            osc => assert!(calls.len() == 1 && calls[0].starts_with(osc), "{calls:?}"),
        }
    }
}
