//! The four output formats of CONTRACT §13 as one display. stdout carries only what the format promises.

use std::io::IsTerminal;
use std::path::Path;

use serde_json::json;

use super::out::{self, Stdout};
use super::part::{self, Ended, Program};
use super::render::{CYAN, GREY, Human, Stream, safe};
use super::replay;
use super::title::{self, Figures};
use crate::agent::approval::Approval;
use crate::agent::{Display, RunEnd, TurnEnd};
use crate::cli::args::OutputFormat;
use crate::config::Look;
use crate::runtime::cancel::Cancel;
use crate::session::stats::Stats;
use crate::wire::message::Message;

/// What stdout and stderr show of a run.
pub struct Screen {
    format: OutputFormat,
    out: Stdout,
    human: Human,
    text: String,
    /// The model's name, when stderr is a terminal that takes a title.
    title: Option<String>,
    error_color: bool,
    out_color: bool,
    interactive: bool,
    /// The prompt stands there.
    asked: bool,
    /// What takes the place of `human`: a program, and once it was needed, its run.
    display: Option<(Program, Option<part::Display>)>,
    /// What takes the place of the built-in replay.
    replay: Option<Program>,
}

impl Screen {
    /// A display of this format for a model.
    pub fn new(format: OutputFormat, look: Look, model: &str) -> Self {
        let (out_color, error_color) = look.streams();
        let error_terminal = look.capable && std::io::stderr().is_terminal();
        Self {
            format,
            out: Stdout::new(),
            human: Human::new(out_color, error_color),
            text: String::new(),
            title: error_terminal.then(|| model.to_owned()),
            error_color,
            out_color,
            interactive: false,
            asked: false,
            display: None,
            replay: None,
        }
    }

    /// The same with parts of the user's own.
    pub fn with_parts(mut self, display: Option<Program>, replay: Option<Program>) -> Self {
        self.display = display.map(|program| (program.colored(self.out_color, self.error_color), None));
        self.replay = replay;
        self
    }

    /// Gives a message to the display part; whether that took it. A part that is no more is reported once, and what it
    /// has not read is shown here.
    fn show_by_part(&mut self, message: &Message, cancel: Option<&Cancel>) -> bool {
        let Some((program, running)) = &mut self.display else { return false };
        // Never to be displayed.
        if matches!(message, Message::Signature { .. } | Message::RedactedThinking { .. }) {
            return true;
        }
        let started = match running.take() {
            Some(display) => Ok(display),
            None => part::Display::start(program)
                .map_err(|why| Ended { why: Some(why), left: vec![message.clone()] }),
        };
        let shown = started.and_then(|mut display| {
            display.show(message, cancel)?;
            *running = Some(display);
            Ok(())
        });
        if let Err(ended) = shown {
            self.take_over(ended);
        }
        true
    }

    /// The built-in display does the work from here.
    fn take_over(&mut self, ended: Ended) {
        let Some((program, _)) = self.display.take() else { return };
        if let Some(why) = ended.why {
            out::complain(&program.complaint(&why));
        }
        ended.left.iter().for_each(|message| self.show(message, None));
    }

    /// What is written past the display part comes behind what it was given.
    fn settle(&mut self) {
        if let Some((_, Some(display))) = &mut self.display {
            display.settle();
        }
    }

    /// Shows a message in the human format, whatever the format of the run: replay.
    pub fn show(&mut self, message: &Message, cancel: Option<&Cancel>) {
        self.leave_prompt();
        if self.show_by_part(message, cancel) {
            return;
        }
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        match self.human.message(message, &mut text) {
            Stream::Out => self.out.write(text.as_bytes(), cancel),
            Stream::Err => {
                self.close_line(cancel);
                out::stderr(text.as_bytes());
            }
        }
        self.text = text;
    }

    fn paint(&mut self, code: &str, text: &str) {
        self.settle();
        let (on, off) =
            if self.out_color { (format!("\x1b[{code}m"), "\x1b[0m") } else { (String::new(), "") };
        self.out.write(format!("{on}{text}{off}\n").as_bytes(), None);
    }

    /// Writes to stdout as it is (the empty line after a replay, a prompt).
    fn raw(&mut self, text: &str) {
        self.out.write(text.as_bytes(), None);
    }

    /// What comes stands below a prompt that nobody has answered.
    fn leave_prompt(&mut self) {
        if std::mem::take(&mut self.asked) {
            self.out.write(b"\n", None);
        }
    }

    fn close_line(&mut self, cancel: Option<&Cancel>) {
        self.settle();
        self.leave_prompt();
        self.text.clear();
        self.human.close_line(&mut self.text);
        self.out.write(self.text.as_bytes(), cancel);
    }

    fn complain(&self, text: &str) {
        let (on, off) = if self.error_color { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
        out::stderr(format!("{on}Error: {}{off}\n", safe(text)).as_bytes());
    }
}

impl Display for Screen {
    fn event(&mut self, line: &[u8], message: Option<&Message>, cancel: Option<&Cancel>) {
        match self.format {
            OutputFormat::StreamJson => self.out.write(line, cancel),
            OutputFormat::Human => {
                if let Some(message) = message {
                    self.show(message, cancel);
                }
                return;
            }
            OutputFormat::Text | OutputFormat::Json => {}
        }
        if let Some(Message::Error { message, .. }) = message {
            self.complain(message);
        }
    }

    fn approval(&mut self, approval: &Approval, at_terminal: bool) {
        if self.format == OutputFormat::Human {
            self.close_line(None);
        }
        if at_terminal || self.format != OutputFormat::StreamJson {
            out::stderr(safe(&approval.question(at_terminal)).as_bytes());
        }
    }

    fn notice(&mut self, text: &str) {
        if self.format == OutputFormat::Human {
            self.close_line(None);
        }
        out::complain(&safe(text));
    }

    fn greet(&mut self, log: Option<&Path>) -> std::io::Result<()> {
        if self.format != OutputFormat::Human {
            return Ok(());
        }
        self.interactive = true;
        self.paint(CYAN, "bash-agent interactive mode (type 'exit' or Ctrl+D to quit)");
        let Some(log) = log else { return Ok(()) };
        let part = self.replay.take();
        let mut shown = false;
        replay::show(part, log, &mut |message| {
            self.show(message, None);
            shown = true;
        })?;
        if shown {
            self.close_line(None);
            self.raw("\n");
        }
        Ok(())
    }

    fn print(&mut self, text: &str) {
        self.close_line(None);
        self.out.write(safe(text).as_bytes(), None);
    }

    fn insert(&mut self, _text: &str) {}

    fn model_changed(&mut self, name: &str) {
        if let Some(title) = &mut self.title {
            name.clone_into(title);
        }
    }

    fn turn_begins(&mut self, _content: Option<&str>) {}

    fn typed(&mut self) {
        // The Return that sent it has ended the line of the prompt.
        self.asked = false;
    }

    fn ready(&mut self) {
        if self.interactive && !self.asked {
            self.close_line(None);
            self.raw("> ");
            self.asked = true;
        }
    }

    fn child_started(&mut self, id: &str, description: &str) {
        if self.format == OutputFormat::Human {
            self.close_line(None);
            self.out.write(format!("[sub-agent {id}] {}\n", safe(description)).as_bytes(), None);
        }
    }

    fn figures(&mut self, busy: bool, stats: &Stats) {
        let Some(model) = &self.title else { return };
        out::stderr(title::sequence(model, busy, &Figures::of(stats)).as_bytes());
    }

    fn turn_ended(&mut self, end: &TurnEnd) {
        match self.format {
            OutputFormat::Human => self.close_line(None),
            OutputFormat::Text if !end.text.is_empty() => {
                self.out.write(end.text.as_bytes(), None);
                if !end.text.ends_with('\n') {
                    self.out.write(b"\n", None);
                }
            }
            OutputFormat::Text | OutputFormat::StreamJson | OutputFormat::Json => {}
        }
    }

    fn is_closed(&self) -> bool {
        self.out.is_closed()
    }

    fn finish(&mut self, run: &RunEnd<'_>) {
        if let Some((_, Some(display))) =
            self.display.as_mut().map(|(program, display)| (program, display.take()))
            && let Err(ended) = display.finish()
        {
            self.take_over(ended);
            self.close_line(None);
        }
        if self.format == OutputFormat::Json {
            let mut line = result_object(run).to_string();
            line.push('\n');
            self.out.write(line.as_bytes(), None);
        }
        if self.interactive && !run.moves_on {
            self.paint(CYAN, "Goodbye!");
            self.paint(GREY, &format!("Resume with: --session {}  or  --continue", safe(run.session_id)));
        }
        self.out.finish();
    }
}

/// The one object of the `json` format.
fn result_object(run: &RunEnd<'_>) -> serde_json::Value {
    let last = run.last;
    let result = last.map(|end| end.error.as_deref().unwrap_or(&end.text)).unwrap_or_default();
    json!({
        "type": "result",
        "is_error": run.exit != 0,
        "result": result,
        "session_id": run.session_id,
        "stop_reason": last.map(|end| end.reason.as_str()).unwrap_or_default(),
        "usage": {
            "input_tokens": run.usage.input,
            "output_tokens": run.usage.output,
            "cache_read_input_tokens": run.usage.cache_read,
            "cache_creation_input_tokens": run.usage.cache_creation,
        },
        // Millionths of a dollar are as fine as stats.json keeps it.
        "total_cost_usd": (run.cost * 1e6).round() / 1e6,
        "num_turns": run.turns,
        "duration_ms": u64::try_from(run.duration.as_millis()).unwrap_or(u64::MAX),
    })
}
