//! What models and tools print is shown, not obeyed.

use std::fs;

use serde_json::json;

use crate::common::{World, tape};
use crate::interactive;

#[test]
fn content_cannot_play_with_the_terminal() {
    let world = World::new();
    let evil = "\x1b]0;owned\x07\x1b]52;c;aGk=\x07\x1b[2J\x1b[H\x1b]9;4;1;50\x07\rgone\u{9b}2J\u{202e}";
    fs::write(world.work().join("evil"), evil).unwrap();
    let mut lines = vec![tape::text(&format!("model {evil}\n"))];
    lines.extend(tape::calls([tape::call("c", "Bash", json!({"command": "cat evil"}))]));
    lines.extend(tape::says("The end."));
    let mut term = interactive(&world, &lines, 80, 24);
    term.send("go\r");
    term.wait_for_last(&["The end.", ">"]);
    let shown = "^[]0;owned^G^[]52;c;aGk=^G^[[2J^[[H^[]9;4;1;50^G^Mgone<U+009B>2J<U+202E>";
    let screen = term.lines().concat();
    assert_eq!(screen.matches(shown).count(), 2, "{screen}");
    assert!(term.lines()[0].starts_with("bash-agent"), "nothing was cleared: {:?}", term.lines());
    assert!(!term.heard().clipboard);
    assert!(term.heard().title.starts_with("script T:1 "), "{}", term.heard().title);
    assert!(term.heard().osc.iter().all(|osc| osc.starts_with("9;4;3") || osc.starts_with("9;4;0")));
    let log = fs::read_to_string(world.session("s").events()).unwrap();
    let text: serde_json::Value =
        serde_json::from_str(log.lines().find(|line| line.starts_with("{\"type\":\"text\"")).unwrap())
            .unwrap();
    assert_eq!(text["content"], format!("model {evil}\n"), "the files keep what came");
}

#[test]
fn colours_are_those_of_the_terminal_and_none_with_no_color() {
    for no_color in [false, true] {
        let world = World::new();
        let cassette = world.cassette("c", &tape::calls([tape::call("c", "Glob", json!({"pattern": "*"}))]));
        let mut command =
            crate::in_terminal(world.command(["-p", "script", "-m", cassette.to_str().unwrap()]));
        command.args(["--session", "s", "--max-turns", "1"]);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let mut term = crate::pty::Term::start(command, 80, 24);
        term.send("go\r");
        term.wait_for("Error: Max turns (1) reached");
        let rows: Vec<u16> = (0..24).filter(|row| term.cell(*row, 0).has_contents()).collect();
        let coloured = |row: &u16| term.cell(*row, 0).fgcolor() != vt100::Color::Default;
        assert_eq!(rows.iter().any(coloured), !no_color, "{:?}", term.lines());
        term.send("\x04");
        assert_eq!(term.ends(), 0);
    }
}
