//! Answers in Markdown, as they stream.

use std::fs;

use crate::common::{World, tape};
use crate::pty::Term;
use crate::{in_terminal, interactive, never_ends, start};

const ANSWER: &[&str] = &[
    "## Tot",
    "als\n\n- **north",
    "** is *150*, see `report.sh` and its data in `sales.csv`\n- south\n\n| a | b |\n|---|--:|\n| lon",
    "ger | 1 |\n\n```sh\nif true; then # yes\n```\n> done",
];

/// Row and column of the first `part` on the screen.
fn place(term: &Term, part: &str) -> (u16, u16) {
    let lines = term.lines();
    let row =
        lines.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {lines:#?}"));
    let column = lines[row].find(part).unwrap();
    (row.try_into().unwrap(), column.try_into().unwrap())
}

fn cell(term: &Term, part: &str) -> vt100::Cell {
    let (row, column) = place(term, part);
    term.cell(row, column)
}

#[test]
fn an_answer_is_styled_while_it_streams() {
    let world = World::new();
    let mut term = interactive(&world, &never_ends(ANSWER), 80, 24);
    term.send("go\r");
    term.wait_for("> done");
    let lines = term.lines();
    assert_eq!(
        lines[1..lines.len() - 2],
        [
            "> go",
            "## Totals",
            "",
            "- **north** is *150*, see `report.sh` and its data in `sales.csv`",
            "- south",
            "",
            "| a      | b |",
            "| ------ | - |",
            "| longer | 1 |",
            "",
            "```sh",
            "if true; then # yes",
            "```",
            "> done",
        ]
    );
    assert!(cell(&term, "Totals").bold());
    assert!(cell(&term, "north").bold());
    assert!(!cell(&term, " is ").bold());
    assert!(cell(&term, "150").italic());
    assert!(cell(&term, "done").italic());
    let color = |part: &str| cell(&term, part).fgcolor();
    assert_eq!(color("report.sh"), vt100::Color::Idx(6));
    assert_eq!(color("if true"), vt100::Color::Idx(5));
    assert_eq!(color("# yes"), vt100::Color::Idx(8));
    assert_eq!(color("south"), vt100::Color::Default);
}

#[test]
fn a_narrow_terminal_breaks_what_is_styled_and_leaves_tables_that_do_not_fit() {
    let world = World::new();
    let mut pieces = vec!["A paragraph that is **bold and lo", "ng and ends** here\n\n"];
    pieces.extend([
        "- an item that goes on\n",
        "| a | b |\n|---|---|\n| wide",
        " enough | cell |\n| x | y |",
    ]);
    let mut term = interactive(&world, &never_ends(&pieces), 20, 14);
    term.send("go\r");
    term.wait_for("| x | y |");
    let lines = term.lines();
    let end = lines.iter().position(|line| line == "| x | y |").unwrap();
    assert_eq!(
        lines[end - 10..=end],
        [
            "A paragraph that is",
            "**bold and long and",
            "ends** here",
            "",
            "- an item that goes",
            "  on",
            "| a | b |",
            "|---|---|",
            "| wide enough | cell",
            "|",
            "| x | y |",
        ],
        "{lines:#?}"
    );
    assert!(cell(&term, "ends").bold(), "a mark in another row");
    assert!(!cell(&term, "here").bold());
}

#[test]
fn without_colours_or_switched_off_it_is_shown_as_it_came() {
    for no_color in [false, true] {
        let world = World::new();
        let text = "# a\n**b**\n| long | c |\n|-|-|\n| d | e |";
        let cassette = world.cassette("cassette.ndjson", &tape::says(text));
        let mut command = in_terminal(world.command(["-p", "script", "-m", cassette.to_str().unwrap()]));
        command.args(["--session", "s"]);
        if no_color {
            command.env("NO_COLOR", "1");
        } else {
            fs::create_dir_all(world.home().join(".bash-agent")).unwrap();
            fs::write(world.home().join(".bash-agent/config.toml"), "markdown = false\n").unwrap();
        }
        let mut term = Term::start(command, 80, 24);
        term.wait_for_keys();
        term.send("go\r");
        term.wait_for_last(&["# a", "**b**", "| long | c |", "|-|-|", "| d | e |", ">"]);
        assert!(!cell(&term, "b**").bold());
    }
}

#[test]
fn an_open_code_block_ends_with_its_answer() {
    let world = World::new();
    let mut lines = tape::says("```sh\n# \x1b[31mone");
    lines.extend(tape::says("# two"));
    let mut term = start(&world, &lines, &[], 80, 24);
    term.wait_for_keys();
    term.send("go\r");
    term.wait_for_last(&["```sh", "# ^[[31mone", ">"]);
    term.send("on\r");
    term.wait_for_last(&["# two", ">"]);
    assert!(cell(&term, "two").bold(), "a heading, no comment");
    assert_eq!(cell(&term, "one").fgcolor(), vt100::Color::Idx(8));
}
