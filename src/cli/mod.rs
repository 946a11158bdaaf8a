//! What the user typed, and what it starts.

mod again;
pub mod args;
mod console;
pub mod control;
pub mod core;
pub mod run;

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ErrorKind};

use crate::exit::Exit;
use crate::runtime::environ;
use crate::ui::out;
use crate::wire::json;
use args::{AgentArgs, Command, CommandArgs};

/// The program: parses the command line, does it, returns the exit code of CONTRACT §13.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    environ::hide(crate::config::KEY_VARIABLES.iter().copied());
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let first = arguments.get(1).and_then(|word| word.to_str());
    if first.is_some_and(CommandArgs::is_command) {
        return match CommandArgs::try_parse_from(arguments) {
            Ok(args) => ExitCode::from(command(args.command)),
            Err(error) => usage(&error),
        };
    }
    match AgentArgs::try_parse_from(arguments) {
        Ok(args) => ExitCode::from(run::run(&args)),
        Err(error) => usage(&error),
    }
}

fn command(command: Command) -> u8 {
    match command {
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut args::whole(), "bash-agent", &mut text);
            print(&text)
        }
        Command::Man => match man_page() {
            Ok(page) => print(&page),
            Err(error) => {
                out::complain(&error.to_string());
                Exit::Failed.code()
            }
        },
        Command::Core(core) => core::run(core),
        Command::Compact(args) => run::compact(args.agent),
        other => control::run(other),
    }
}

/// Text on stdin beyond this is refused: no model has a window for it.
const MAX_STDIN: u64 = 64 << 20;

/// All of stdin as clean text, without its last line feeds; `None` when it is over `MAX_STDIN`.
fn stdin_text() -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    io::stdin().lock().take(MAX_STDIN + 1).read_to_end(&mut bytes)?;
    let fits = bytes.len() as u64 <= MAX_STDIN;
    Ok(fits.then(|| json::clean(&bytes).trim_end_matches(['\n', '\r']).to_owned()))
}

/// Writes to stdout; a reader that has gone away ends it quietly.
pub(crate) fn print(bytes: &[u8]) -> u8 {
    let mut stdout = out::Stdout::new();
    stdout.write(bytes, None);
    if stdout.is_closed() { Exit::BrokenPipe.code() } else { Exit::Ok.code() }
}

/// The manual page in roff, with the exit codes.
fn man_page() -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(args::whole()).render(&mut page)?;
    page.extend_from_slice(b".SH \"EXIT STATUS\"\n");
    for (exit, meaning) in Exit::TABLE {
        page.extend_from_slice(format!(".TP\n{}\n{meaning}\n", exit.code()).as_bytes());
    }
    Ok(page)
}

/// Help and version go to stdout; anything else is one line on stderr that says what and what instead, exit 2.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return ExitCode::from(print(error.render().to_string().as_bytes()));
    }
    let text = error.render().to_string();
    let mut line = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    if let Some(values) = error.get(ContextKind::ValidValue) {
        line.push_str(&format!(" (give one of {values})"));
    } else if let Some(similar) = error.get(ContextKind::SuggestedArg) {
        line.push_str(&format!(" (did you mean '{similar}'?)"));
    }
    out::complain(&format!("{line}; see bash-agent --help"));
    Exit::Usage.into()
}
