//! A terminal that breaks rows anew when its width changes, as most do: tmux.

use std::ffi::OsStr;
use std::path::Path;

use crate::common::{World, tape, wait_for};
use crate::never_ends;

/// A server with one window, the program in it; ended when this is dropped.
struct Tmux<'w> {
    world: &'w World,
}

impl<'w> Tmux<'w> {
    /// A window of 80 columns and 24 rows, the prompt in it.
    fn start(world: &'w World, lines: &[String]) -> Self {
        let cassette = world.cassette("cassette.ndjson", lines);
        let tmux = Self { world };
        let agent = crate::common::program();
        let program =
            [agent.as_os_str(), "-p".as_ref(), "script".as_ref(), "-m".as_ref(), cassette.as_os_str()];
        let size: [&OsStr; 6] = ["new-session", "-d", "-x", "80", "-y", "24"].map(OsStr::new);
        tmux.run(size.into_iter().chain(program).chain(["--session", "s"].map(OsStr::new)));
        wait_for("the prompt", || tmux.screen(&[]).last().is_some_and(|line| line == ">"));
        tmux
    }

    fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let mut command = self.world.command_of(Path::new("tmux"), ["-S", "socket", "-f", "/dev/null"]);
        let output = command.current_dir(self.world.work()).args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn send(&self, keys: &[&str]) {
        self.run(["send-keys"].iter().chain(keys));
    }

    /// The rows that hold anything; with `-S -` those that have scrolled away too.
    fn screen(&self, more: &[&str]) -> Vec<String> {
        let shown = self.run(["capture-pane", "-p"].iter().chain(more));
        shown.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self
            .world
            .command_of(Path::new("tmux"), ["-S", "socket", "kill-server"])
            .current_dir(self.world.work())
            .output();
    }
}

/// What is typed, as its rows show it: all of it, once.
fn typed(screen: &[String]) -> String {
    let start = screen.iter().position(|line| line.starts_with("> this")).unwrap_or(screen.len());
    let rows = screen[start..].iter().map(|row| row.get(2..).unwrap_or(row));
    // A row that ends with a blank has lost it.
    rows.collect::<String>().replace(' ', "")
}

#[test]
fn a_resize_neither_loses_nor_doubles_the_line_being_typed() {
    const LINE: &str = "this line is longer than forty columns and goes on until its last wörd";
    let answer =
        "An answer that is longer than forty columns too, so that it is broken as well as what is typed.";
    for (lines, in_turn) in [(tape::says("ok"), false), (never_ends(&[answer]), true)] {
        let world = World::new();
        let tmux = Tmux::start(&world, &lines);
        if in_turn {
            tmux.send(&["go", "Enter"]);
            wait_for("the answer", || tmux.screen(&[]).iter().any(|line| line.starts_with("An answer")));
        }
        tmux.send(&["-l", LINE]);
        let mut expected = LINE.replace(' ', "");
        for width in ["80", "40", "20", "100"] {
            tmux.run(["resize-window", "-x", width, "-y", "24"]);
            // A key after each, so that there is something to wait for.
            tmux.send(&["-l", "!"]);
            expected.push('!');
            let wide = width.parse().unwrap();
            let mut screen = Vec::new();
            wait_for(&format!("the line at {width} columns"), || {
                screen = tmux.screen(&[]);
                typed(&screen) == expected
            });
            assert!(screen.iter().all(|row| row.chars().count() <= wide), "{width}: {screen:#?}");
            // Rows that tmux itself has pushed off are out of reach; what was still on the screen is not left behind.
            let all = tmux.screen(&["-S", "-"]);
            assert_eq!(all.concat().matches('ö').count(), 1, "{width}: {all:#?}");
        }
    }
}
