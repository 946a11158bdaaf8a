//! `mock-model [--repeat|--cycle] [--log FILE] [SCRIPT]`: the server as a program, for shell tests and benches.
//!
//! Prints its URL, answers as SCRIPT says (answers separated by lines of `---`; an answer whose first line is
//! `when TEXT` is for every request that holds TEXT), and ends when its stdin ends. Without SCRIPT: `text Hello`.
//! `--repeat` gives the last answer for ever, `--cycle` begins again with the first. `--log` writes one JSON line a
//! request, at the end; `gap_us` is the time from the last answer's end to the request's arrival, in microseconds.

use std::error::Error;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use mock_model::{After, Answer, Rule, Server, When};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where stderr is gone, the exit code still says it.
            let _ = writeln!(io::stderr(), "mock-model: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let (mut after, mut log, mut script) = (After::Nothing, None, None);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--repeat" => after = After::Last,
            "--cycle" => after = After::First,
            "--log" => log = Some(args.next().ok_or("--log needs a file")?),
            _ => script = Some(std::fs::read_to_string(&arg).map_err(|error| format!("{arg}: {error}"))?),
        }
    }
    let server = Server::start(rules(script.as_deref().unwrap_or("text Hello"))?, after)?;
    writeln!(io::stdout(), "{}", server.url())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    if let Some(log) = log {
        let mut lines = String::new();
        let mut last = None;
        for request in server.requests() {
            let gap = last.map(|last| request.arrived.saturating_duration_since(last).as_micros());
            last = request.answered;
            let line = serde_json::json!({"method": request.head.method, "path": request.head.path,
                "headers": request.head.headers, "gap_us": gap, "body": String::from_utf8_lossy(&request.body)});
            lines.push_str(&format!("{line}\n"));
        }
        std::fs::write(log, lines)?;
    }
    Ok(())
}

fn rules(script: &str) -> Result<Vec<Rule>, Box<dyn Error>> {
    let mut rules = Vec::new();
    for part in script.split("\n---\n") {
        let (when, text) = match part.trim_start().strip_prefix("when ") {
            Some(rest) => {
                let (text, answer) = rest.split_once('\n').unwrap_or((rest, ""));
                (When::Body(text.to_owned()), answer)
            }
            None => (When::Next, part),
        };
        rules.push(Rule { when, answer: text.parse::<Answer>()? });
    }
    Ok(rules)
}
