//! The README's picture: the built-in demo in a terminal, as an asciinema cast and as an SVG of its last screen.
//! `make picture` writes both; otherwise the test checks that the picture is still what the program shows.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::json;

use crate::common::World;
use crate::in_terminal;
use crate::pty::Term;

const COLUMNS: u16 = 92;
const ROWS: u16 = 38;
/// Rows of the picture, the last one being that of the cursor: whether the status was drawn once more before the turn's
/// end moves the screen by a row.
const SHOWN: u16 = 35;
const TASK: &str = "the totals are wrong, please fix report.sh";
/// Seconds between two frames of the cast, while keys are typed and while the agent works.
const STEPS: (f64, f64) = (0.05, 0.8);
/// Begins a frame of the program.
const FRAME: &[u8] = b"\x1b[?2026h";
/// Width and height of a cell, and the margins, in the picture's units.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGINS: (f64, f64) = (16.0, 40.0);
/// A dark terminal's sixteen colours.
const COLORS: [&str; 16] = [
    "#45475a", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#89dceb", "#bac2de", //
    "#7f849c", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#89dceb", "#ffffff",
];

#[test]
fn the_picture_in_the_readme_is_what_the_program_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let world = World::new();
    for entry in fs::read_dir(root.join("src/assets/demo")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, world.work().join(path.file_name().unwrap())).unwrap();
    }
    let command = in_terminal(world.command(["-p", "script", "--session", "demo"]));
    let mut term = Term::start(command, COLUMNS, ROWS);
    term.wait_for_last(&[">"]);
    for (at, _) in TASK.char_indices() {
        term.send(&TASK[at..=at]);
        let typed = format!("> {}", TASK[..=at].trim_end());
        term.wait_for_last(&[&typed]);
    }
    let typed = term.written.len();
    term.send("\r");
    term.wait("the turn's end", |term| {
        term.lines().ends_with(&[
            "(All of this was recorded in another place: what the tools said above is what holds here.)"
                .into(),
            ">".into(),
        ])
    });
    let (picture, cast) = (svg(&term), cast(&term.written, typed));
    term.send("\x04");
    assert_eq!(term.ends(), 0);

    assert!(picture.len() < 60_000, "{} bytes are too many for the first screen", picture.len());
    for secret in [world.root().to_str().unwrap(), "/home/"] {
        assert!(!picture.contains(secret) && !cast.contains(secret), "a path of this machine: {secret}");
    }
    let path = root.join("docs/demo.svg");
    if std::env::var_os("PICTURE").is_some() {
        fs::write(&path, picture).unwrap();
        fs::write(root.join("docs/demo.cast"), cast).unwrap();
    } else {
        assert!(
            fs::read_to_string(&path).unwrap() == picture,
            "docs/demo.svg is not what the program shows any more (`make picture` draws it anew):\n{}",
            term.lines().join("\n")
        );
    }
}

/// An asciinema recording (version 2): one event a frame, at fixed times. What came first `typed` bytes is typing.
fn cast(written: &[u8], typed: usize) -> String {
    let head = json!({"version": 2, "width": COLUMNS, "height": ROWS, "title": "bash-agent -p script"});
    let mut out = format!("{head}\n");
    let mut starts: Vec<usize> = memchr::memmem::find_iter(written, FRAME).collect();
    starts[0] = 0;
    let mut time = 0.5;
    for (at, start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(written.len());
        let text = std::str::from_utf8(&written[*start..end]).unwrap();
        let _ = writeln!(out, "[{time:.2}, \"o\", {}]", json!(text));
        time += if *start < typed { STEPS.0 } else { STEPS.1 };
    }
    out
}

/// The screen as a picture.
fn svg(term: &Term) -> String {
    let (width, height) =
        (f64::from(COLUMNS) * CELL.0 + 2.0 * MARGINS.0, f64::from(SHOWN) * CELL.1 + MARGINS.1 + MARGINS.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" \
         font-size=\"14\" fill=\"#cdd6f4\">\n<title>bash-agent at a terminal</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1e1e2e\"/>\n"
    );
    for (at, color) in ["#f38ba8", "#f9e2af", "#a6e3a1"].iter().enumerate() {
        let _ = writeln!(out, "<circle cx=\"{}\" cy=\"18\" r=\"6\" fill=\"{color}\"/>", 22 + 20 * at);
    }
    let (last, cursor) = term.cursor();
    let top = (last + 1).checked_sub(SHOWN).expect("the demo fills the screen");
    for row in top..=last {
        let y = MARGINS.1 + CELL.1 * f64::from(row - top) + 13.0;
        let mut column = 0;
        while column < COLUMNS {
            let cell = term.cell(row, column);
            let look = look(&cell);
            let from = column;
            let mut text = String::new();
            while column < COLUMNS {
                let cell = term.cell(row, column);
                // A blank belongs to any look.
                if cell.has_contents() && self::look(&cell) != look {
                    break;
                }
                if !cell.is_wide_continuation() {
                    text.push_str(if cell.has_contents() { cell.contents() } else { " " });
                }
                column += 1;
            }
            let lead = text.len() - text.trim_start_matches(' ').len();
            if !text.trim().is_empty() {
                let x = MARGINS.0 + CELL.0 * f64::from(from + u16::try_from(lead).unwrap());
                let text = text.trim().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                let _ = writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{y:.0}\" xml:space=\"preserve\"{look}>{text}</text>"
                );
            }
        }
    }
    let (x, y) = (MARGINS.0 + CELL.0 * f64::from(cursor), MARGINS.1 + CELL.1 * f64::from(last - top));
    let _ =
        writeln!(out, "<rect x=\"{x:.1}\" y=\"{y:.0}\" width=\"8\" height=\"17\" fill=\"#cdd6f4\"/>\n</svg>");
    out
}

/// Colour and weight of a cell, as attributes.
fn look(cell: &vt100::Cell) -> String {
    let mut out = match cell.fgcolor() {
        vt100::Color::Idx(color) => format!(" fill=\"{}\"", COLORS[usize::from(color) % 16]),
        _ => String::new(),
    };
    if cell.bold() {
        out.push_str(" font-weight=\"bold\"");
    }
    if cell.italic() {
        out.push_str(" font-style=\"italic\"");
    }
    if cell.underline() {
        out.push_str(" text-decoration=\"underline\"");
    }
    out
}
