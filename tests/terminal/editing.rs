//! The line editor, and output above the line being typed.

use std::fs;

use serde_json::json;

use crate::common::{World, tape};
use crate::{HELLO, gate, interactive, never_ends, start};

fn user_texts(world: &World) -> Vec<String> {
    let content = fs::read_to_string(world.session("s").conversation()).unwrap();
    let values = content.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    values.filter(|v| v["role"] == "user").filter_map(|v| Some(v["content"].as_str()?.to_owned())).collect()
}

#[test]
fn a_line_is_typed_and_answered() {
    let world = World::new();
    let mut term = interactive(&world, &tape::says("Hello, 漢字 and 😀!"), 80, 24);
    term.wait_for_screen(&[HELLO, ">"]);
    term.send("héllo 漢字\r");
    term.wait_for_screen(&[HELLO, "> héllo 漢字", "Hello, 漢字 and 😀!", ">"]);
    assert_eq!(term.cursor(), (3, 2));
    term.send("exit\r");
    assert_eq!(term.ends(), 0);
    assert_eq!(
        term.lines()[3..],
        ["Goodbye!", "Resume with: --session s  or  --continue"],
        "{:?}",
        term.lines()
    );
    assert_eq!(user_texts(&world), ["héllo 漢字"]);
    assert_eq!(fs::read_to_string(world.base().history()).unwrap(), "héllo 漢字\nexit\n");
}

#[test]
fn words_move_and_are_cut() {
    let world = World::new();
    let mut term = interactive(&world, &tape::says("ok"), 80, 24);
    // Ctrl+A, Alt+F, Ctrl+W, Ctrl+E, Ctrl+Y; Ctrl+U would take it all.
    term.send("one two three\x01\x1bf\x17\x05\x19!\x1bb");
    term.wait_for_last(&[">  two threeone!"]);
    assert_eq!(term.cursor().1, 7);
    term.send("\x15\x0b");
    term.wait_for_last(&[">"]);
    // Ctrl+Left twice, Delete, Backspace, undo.
    term.send("aa bb cc\x1b[1;5D\x1b[1;5D\x1b[3~\x7f");
    term.wait_for_last(&["> aab cc"]);
    term.send("\x1f\x1f");
    term.wait_for_last(&["> aa bb cc"]);
}

#[test]
fn the_history_is_walked_and_searched() {
    let world = World::new();
    fs::create_dir_all(world.base().path()).unwrap();
    fs::write(world.base().history(), "cargo test\ngit log\nmake\n").unwrap();
    let mut term = interactive(&world, &tape::says("ok"), 80, 24);
    term.send("dra\x1b[A\x1b[A");
    term.wait_for_last(&["> git log"]);
    term.send("\x1b[B\x1b[B");
    term.wait_for_last(&["> dra"]);
    term.send("\x12car");
    term.wait_for_last(&["> cargo test", "search 'car'"]);
    term.send("zz");
    term.wait_for_last(&["> cargo test", "search 'carzz': not found"]);
    term.send("\x07");
    term.wait_for_last(&["> dra"]);
    term.send("\x12t\x12\x12");
    term.wait_for_last(&["> cargo test", "search 't'"]);
    term.send("\r");
    term.wait_for("ok");
    assert_eq!(user_texts(&world), ["cargo test"]);
}

#[test]
fn several_lines_are_one_input() {
    let world = World::new();
    let mut term = interactive(&world, &tape::says("ok"), 20, 10);
    term.send("first\x1b\rsecond\nthird line that is too long\x1b[A\x1b[A!");
    term.wait("the lines", |t| {
        t.lines()
            .ends_with(&["> first!", "  second", "  third line that i", "  s too long"].map(str::to_owned))
    });
    term.send("\r");
    term.wait_for("ok");
    assert_eq!(user_texts(&world), ["first!\nsecond\nthird line that is too long"]);
}

#[test]
fn a_paste_is_one_input_however_long() {
    let world = World::new();
    let mut term = interactive(&world, &tape::says("ok"), 80, 24);
    term.send("see \x1b[200~a\rb\x1b[201~ end");
    term.wait_for_last(&["> see a", "  b end"]);
    term.send("\x15\x7f\x15\x7f\x15");
    term.wait_for_last(&[">"]);
    let long = "0123456789abcde\r".repeat(1 << 16);
    term.send(&format!("see \x1b[200~{long}\x1b[201~!"));
    term.wait_for_last(&["> see [Pasted text #1: 65536 lines]!"]);
    term.send("\x1b[D\x1b[D\x7f ");
    term.wait_for_last(
        &["> see  [Pasted text #1: 65536 lines]!"].map(|_| "> see [Pasted text #1: 65536 lines]!"),
    );
    term.send("\r");
    term.wait_for("ok");
    assert_eq!(user_texts(&world), [format!("see {}!", long.replace('\r', "\n"))]);
}

#[test]
fn typing_goes_on_while_an_answer_streams() {
    let mut lines = vec![tape::text("An unfinished"), tape::call("c", "Bash", json!({"command": "cat g"}))];
    lines.extend([tape::usage(1200, 50), tape::stop("tool_use")]);
    lines.extend(tape::says("Done: all is well."));
    for (columns, rows) in [(80, 24), (20, 10), (120, 40)] {
        let world = World::new();
        let gate = gate(&world);
        let mut term = interactive(&world, &lines, columns, rows);
        term.send("go\r");
        term.wait_for("[tool] Bash(cat g");
        term.send("next 漢😀");
        term.wait_for_last(&["> next 漢😀"]);
        fs::write(gate, "released\n").unwrap();
        term.wait_for_last(&[
            "> go",
            "An unfinished",
            "[tool] Bash(cat g)",
            "released",
            "Done: all is well.",
            "> next 漢😀",
        ]);
        term.send("\r");
        term.wait_for("> next 漢😀");
        term.send("\x04");
        assert_eq!(term.ends(), 0);
    }
}

#[test]
fn a_line_typed_in_a_turn_waits_and_is_not_lost() {
    let world = World::new();
    let mut lines = never_ends(&["Working"]);
    lines.extend(tape::says("second answer"));
    let mut term = interactive(&world, &lines, 80, 24);
    term.send("one\r");
    term.wait_for("Working");
    term.send("two\rthr");
    term.wait_for("waits: two");
    term.wait_for_last(&["> thr"]);
    term.send("\x03");
    term.wait_for_last(&["> one", "Working", "Interrupted.", "> two", "second answer", "> thr"]);
}

#[test]
fn commands_and_files_are_completed() {
    let world = World::new();
    fs::write(world.work().join("main.rs"), "").unwrap();
    fs::write(world.work().join("make.sh"), "").unwrap();
    let mut term = interactive(&world, &tape::says("ok"), 80, 24);
    term.send("see @m");
    term.wait_for_last(&["> see @m", "  @main.rs", "  @make.sh"]);
    term.send("\t");
    term.wait_for_last(&["> see @ma", "  @main.rs", "  @make.sh"]);
    term.send("i\t");
    term.wait_for_last(&["> see @main.rs"]);
}

#[test]
fn a_resize_draws_anew() {
    let world = World::new();
    let mut term = interactive(&world, &never_ends(&["Some words"]), 80, 24);
    term.send("go\r");
    term.wait_for("Some words");
    term.send("a line that is longer than twenty");
    term.wait_for_last(&["> a line that is longer than twenty"]);
    term.resize(20, 10);
    term.wait_for_last(&["> a line that is lo", "  nger than twenty"]);
    term.resize(100, 30);
    term.wait_for_last(&["> a line that is longer than twenty"]);
}

#[test]
fn a_narrow_low_terminal_still_shows_the_line() {
    let world = World::new();
    let mut term = interactive(&world, &tape::says("ok"), 20, 4);
    term.send("a\nb\nc\nd\ne\nf");
    term.wait_for_last(&["  e", "  f"]);
    term.send("\r");
    term.wait_for("ok");
    let tiny = World::new();
    let mut term = start(&tiny, &tape::says("ok"), &[], 2, 1);
    term.wait_for_keys();
    term.send("hi\r");
    term.send("\x04");
    assert_eq!(term.ends(), 0, "{}", String::from_utf8_lossy(&term.written));
}

#[test]
fn what_is_typed_before_the_prompt_is_not_lost() {
    let world = World::new();
    let mut term = start(&world, &tape::says("ok"), &[], 80, 24);
    term.send("early\r");
    term.wait_for("ok");
    assert_eq!(user_texts(&world), ["early"]);
}
