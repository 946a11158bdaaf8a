//! `watch`: follows a session's events, for people or as they are. Reads only; any number of them can run.

use super::ControlError;
use super::follow::{Follower, Next};
use crate::cli::args::WatchFormat;
use crate::config::Look;
use crate::exit::Exit;
use crate::session::paths::SessionDir;
use crate::ui::out::{self, Stdout};
use crate::ui::render::{Human, Stream};
use crate::wire::replay;

/// Ends with 0 when nobody runs the session and all is shown.
pub(super) fn watch(dir: &SessionDir, from_start: bool, format: WatchFormat) -> Result<u8, ControlError> {
    let mut follower = Follower::new(dir, from_start)?;
    let mut stdout = Stdout::new();
    let mut view = View::new(format);
    loop {
        match follower.next(None)? {
            Next::Lines(lines) => view.lines(&lines, &mut stdout),
            Next::Ended => {
                view.finish(&mut stdout);
                return Ok(Exit::Ok.code());
            }
            Next::Timeout => {}
        }
        if stdout.is_closed() {
            return Ok(Exit::BrokenPipe.code());
        }
    }
}

/// How lines are shown.
enum View {
    StreamJson,
    Human(Human),
}

impl View {
    fn new(format: WatchFormat) -> Self {
        match format {
            WatchFormat::StreamJson => Self::StreamJson,
            WatchFormat::Human => {
                let (out, error) = Look::of(&|name: &str| std::env::var_os(name)).streams();
                Self::Human(Human::new(out, error))
            }
        }
    }

    fn lines(&mut self, lines: &[u8], stdout: &mut Stdout) {
        let Self::Human(human) = self else {
            stdout.write(lines, None);
            return;
        };
        let mut text = String::new();
        for message in lines.split(|b| *b == b'\n').flat_map(replay::live) {
            let mut piece = String::new();
            match human.message(&message, &mut piece) {
                Stream::Out => text.push_str(&piece),
                Stream::Err => {
                    human.close_line(&mut text);
                    stdout.write(text.as_bytes(), None);
                    text.clear();
                    out::stderr(piece.as_bytes());
                }
            }
        }
        stdout.write(text.as_bytes(), None);
    }

    fn finish(&mut self, stdout: &mut Stdout) {
        if let Self::Human(human) = self {
            let mut text = String::new();
            human.close_line(&mut text);
            stdout.write(text.as_bytes(), None);
        }
    }
}
