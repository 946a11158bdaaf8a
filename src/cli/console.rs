//! The `/commands` of a person at a terminal: one table for `/help`, completion and doing.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::PoisonError;

use super::args::{AgentArgs, ExportFormat};
use super::control;
use super::run::{self, Priced};
use crate::agent::Agent;
use crate::agent::console::{Console, Engine, Next};
use crate::config::Config;
use crate::model::{self, Effort, Provider};
use crate::policy::Mode;
use crate::session::{StorageError, images, listing};
use crate::tools::Skills;

/// One command.
struct Entry {
    name: &'static str,
    argument: &'static str,
    about: &'static str,
    /// It changes nothing, so that it is done in a turn too.
    harmless: bool,
}

const fn entry(name: &'static str, argument: &'static str, about: &'static str, harmless: bool) -> Entry {
    Entry { name, argument, about, harmless }
}

const TABLE: &[Entry] = &[
    entry("/help", "", "these commands, and the keys", true),
    entry("/status", "", "what the session is doing, and its figures", true),
    entry("/cost", "", "tokens and dollars by kind and model", true),
    entry("/last", "[N]", "the last result in full (2: the one before)", true),
    entry("/plan", "", "the plan, and its draft", true),
    entry("/sessions", "", "the sessions of this directory", true),
    entry("/model", "[NAME]", "which model answers; another one from now on", false),
    entry("/effort", "[LEVEL]", "how hard the model thinks: low, medium, high, xhigh, max", false),
    entry("/mode", "[MODE]", "what tools may do: four octal digits, or a name that --mode takes", false),
    entry("/skill", "[NAME]", "put a skill into the prompt; without NAME the list", false),
    entry("/image", "FILE", "take an image into the session", false),
    entry("/compact", "", "summarise older messages now", false),
    entry("/export", "FILE", "write a transcript: .md, .html or .json", false),
    entry("/clear", "", "begin a new session; this one can be resumed", false),
    entry("/fork", "", "go on with a copy of this session", false),
    entry("/resume", "NAME", "go on with another session", false),
    entry("/quit", "", "end the session (also /exit, exit, quit, Ctrl+D)", false),
];

/// Keys that `/help` names; docs/terminal.md has all of them.
const KEYS: &str = "\
Alt+Return  a line feed            Ctrl+C  ends the turn; clears; leaves
Ctrl+O      steers the turn        Ctrl+V  pastes an image
Ctrl+R      searches the history   Tab     completes /commands and @files
Ctrl+G      opens your editor      Ctrl+Z  stops; fg continues
";

/// Command words with what stands beside them, for completion.
pub(super) fn words() -> Vec<(String, String)> {
    TABLE.iter().map(|entry| (entry.name.to_owned(), entry.about.to_owned())).collect()
}

/// What a person has changed; the run that comes next begins with it.
pub(super) struct Desk {
    args: AgentArgs,
    config: Config,
    skills: Skills,
    /// The model's name for prices, shared with whoever counts.
    priced: Priced,
    /// The configuration as it is now, for the run that comes next.
    current: Rc<RefCell<Config>>,
}

/// Why a command is not done: for the person.
type Refused = String;

impl Desk {
    pub(super) fn new(
        args: &AgentArgs,
        config: &Config,
        skills: Skills,
        priced: Priced,
        current: Rc<RefCell<Config>>,
    ) -> Self {
        Self { args: args.clone(), config: config.clone(), skills, priced, current }
    }

    fn command(&mut self, name: &str, argument: &str, agent: &mut Agent) -> Result<(), Refused> {
        let storage = |error: StorageError| error.to_string();
        match name {
            "/help" | "/?" => agent.display().print(&help()),
            "/status" => {
                let text = control::status_text(&self.config.base, agent.session_dir())?;
                let (mode, effort) = (self.config.mode, self.config.model.effort.as_str());
                agent.display().print(&format!("{text}mode     {mode}\neffort   {effort}\n"));
            }
            "/cost" => {
                let text = control::cost_text(&self.config.base, agent.session_dir())?;
                agent.display().print(&text);
            }
            "/last" => agent.display().print("results are shown in full here"),
            "/plan" => {
                let text = plan(agent.session_dir().plan(), agent.session_dir().plan_draft())?;
                agent.display().print(&text);
            }
            "/sessions" => {
                let entries =
                    listing::list(&self.config.base, &self.config.cwd).map_err(|e| e.to_string())?;
                agent.display().print(&listing::table(&entries));
            }
            "/model" => self.model(argument, agent)?,
            "/effort" => self.effort(argument, agent)?,
            "/mode" => self.mode(argument, agent)?,
            "/skill" => self.skill(argument, agent)?,
            "/image" => self.image(argument, agent)?,
            "/compact" => agent.compact_by_hand().map_err(storage)?,
            "/export" => self.export(argument, agent)?,
            "/clear" => agent.move_on(Next::New),
            "/fork" => agent.move_on(Next::Fork),
            "/resume" => self.resume(argument, agent)?,
            "/quit" | "/exit" => agent.end(),
            other => return Err(unknown(other)),
        }
        Ok(())
    }

    fn model(&mut self, name: &str, agent: &mut Agent) -> Result<(), Refused> {
        if name.is_empty() {
            let model = &self.config.model;
            let text = format!("{} ({})\n", model.model, model.provider.as_str());
            agent.display().print(&text);
            return Ok(());
        }
        if name.contains(char::is_whitespace) {
            return Err(format!("/model: '{name}' is no name: give one word"));
        }
        let mut settings = self.config.model.clone();
        if settings.provider == Provider::Script {
            settings.script_file = Some(self.path(name));
        } else {
            settings.model = name.to_owned();
        }
        self.change(settings, agent)?;
        agent.display().print(&format!("from now on {name} answers\n"));
        Ok(())
    }

    fn effort(&mut self, level: &str, agent: &mut Agent) -> Result<(), Refused> {
        if level.is_empty() {
            let text = format!("{}\n", self.config.model.effort.as_str());
            agent.display().print(&text);
            return Ok(());
        }
        let mut settings = self.config.model.clone();
        settings.effort = level
            .parse::<Effort>()
            .map_err(|_| format!("/effort: '{level}' is no level: give low, medium, high, xhigh or max"))?;
        self.change(settings, agent)?;
        agent.display().print(&format!("effort is {level} from now on\n"));
        Ok(())
    }

    fn change(&mut self, settings: model::Settings, agent: &mut Agent) -> Result<(), Refused> {
        let model = model::new(settings.clone()).map_err(|error| error.to_string())?;
        let mut config = self.config.clone();
        config.model = settings;
        let launch = run::launch(&self.args, &config).map_err(|error| error.to_string())?;
        let name = config.model.model.clone();
        *self.priced.write().unwrap_or_else(PoisonError::into_inner) = name.clone();
        agent.set_engine(Engine { model: model.into(), provider: config.model.provider, name }, launch);
        self.keep(config);
        Ok(())
    }

    fn mode(&mut self, text: &str, agent: &mut Agent) -> Result<(), Refused> {
        if text.is_empty() {
            let text = format!("{}\n", self.config.mode);
            agent.display().print(&text);
            return Ok(());
        }
        let mode = Mode::try_parse(text).ok_or_else(|| {
            format!("/mode: '{text}' is no mode: give four octal digits (system, external, network, workspace) or a name that --mode takes")
        })?;
        let mut config = self.config.clone();
        config.mode = mode;
        let launch = run::launch(&self.args, &config).map_err(|error| error.to_string())?;
        agent.set_mode(mode, launch);
        self.keep(config);
        agent.display().print(&format!("mode is {mode} from now on\n"));
        Ok(())
    }

    fn skill(&mut self, name: &str, agent: &mut Agent) -> Result<(), Refused> {
        if name.is_empty() {
            let index = self.skills.index();
            let text = if index.is_empty() {
                "no skills in .claude/skills or skills\n".to_owned()
            } else {
                index + "\n"
            };
            agent.display().print(&text);
            return Ok(());
        }
        if self.skills.get(name).is_none() {
            let known: Vec<&str> = self.skills.iter().map(|skill| skill.name.as_str()).collect();
            return Err(match known.as_slice() {
                [] => format!("no skill '{name}': there are none in .claude/skills or skills"),
                _ => format!("no skill '{name}': there are {}", known.join(", ")),
            });
        }
        let text = if agent.select_skill(name) {
            "is in the prompt from now on"
        } else {
            "is in the prompt already"
        };
        agent.display().print(&format!("skill {name} {text}\n"));
        let mut config = self.config.clone();
        if !config.skills.iter().any(|skill| skill == name) {
            config.skills.push(name.to_owned());
        }
        self.keep(config);
        Ok(())
    }

    fn image(&mut self, file: &str, agent: &mut Agent) -> Result<(), Refused> {
        if file.is_empty() {
            return Err("/image: name a file: /image FILE".to_owned());
        }
        let path = self.path(file);
        let number = images::add(agent.session_dir(), &path).map_err(|error| error.to_string())?;
        let mention = images::mention(number);
        agent.display().print(&format!("{} is {mention}: name it so in your line\n", path.display()));
        agent.display().insert(&format!("{mention} "));
        Ok(())
    }

    fn export(&mut self, file: &str, agent: &mut Agent) -> Result<(), Refused> {
        if file.is_empty() {
            return Err("/export: name a file: /export FILE (.md, .html or .json)".to_owned());
        }
        let path = self.path(file);
        let format = match path.extension().and_then(|end| end.to_str()) {
            Some("html" | "htm") => ExportFormat::Html,
            Some("json") => ExportFormat::Json,
            _ => ExportFormat::Md,
        };
        let cannot = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("/export: {} exists: name another file", path.display())
            }
            _ => format!("/export: cannot write {}: {error}", path.display()),
        };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(cannot)?;
        control::export_to(agent.session_dir(), format, file).map_err(cannot)?;
        agent.display().print(&format!("written to {}\n", path.display()));
        Ok(())
    }

    fn resume(&mut self, name: &str, agent: &mut Agent) -> Result<(), Refused> {
        if name.is_empty() {
            return Err("/resume: name a session: /resume NAME (/sessions lists them)".to_owned());
        }
        if name == agent.session_dir().name() {
            return Err(format!("/resume: {name} is this session"));
        }
        let dir = crate::session::find(&self.config.base, &self.config.cwd, Some(name))
            .map_err(|e| e.to_string())?;
        if let Some(pid) = crate::session::lock::probe(&dir) {
            return Err(format!(
                "/resume: another agent (pid {pid}) runs {name}: leave it there, or watch it with `bash-agent watch`"
            ));
        }
        agent.move_on(Next::Session(name.to_owned()));
        Ok(())
    }

    /// A path as a person types it.
    fn path(&self, typed: &str) -> PathBuf {
        let typed = typed.trim_matches('"');
        match (typed.strip_prefix("~/"), &self.config.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.config.cwd.join(typed),
        }
    }

    fn keep(&mut self, config: Config) {
        *self.current.borrow_mut() = config.clone();
        self.config = config;
    }
}

impl Console for Desk {
    fn is_harmless(&self, line: &str) -> bool {
        let word = line.split_whitespace().next().unwrap_or_default();
        // What is no command is told at once, too.
        TABLE
            .iter()
            .find(|entry| entry.name == word)
            .is_none_or(|entry| entry.harmless && !matches!(word, "/exit"))
            && word != "/exit"
    }

    fn run(&mut self, line: &str, agent: &mut Agent) -> Result<(), StorageError> {
        let line = line.trim();
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if let Err(why) = self.command(name, argument.trim(), agent) {
            agent.display().notice(&why);
        }
        Ok(())
    }
}

fn help() -> String {
    let wide = |entry: &Entry| entry.name.len() + 1 + entry.argument.len();
    let widest = TABLE.iter().map(wide).max().unwrap_or(0);
    let mut text = String::new();
    for entry in TABLE {
        let call = format!("{} {}", entry.name, entry.argument);
        let _ = writeln!(text, "{call:widest$}  {}", entry.about);
    }
    text.push_str(KEYS);
    text
}

/// Names the command that was meant, if one is near.
fn unknown(name: &str) -> String {
    let near = TABLE
        .iter()
        .map(|entry| (strsim::damerau_levenshtein(entry.name, name), entry.name))
        .chain(TABLE.iter().filter(|entry| entry.name.starts_with(name)).map(|entry| (0, entry.name)))
        .min()
        .filter(|(distance, _)| *distance <= 3);
    match near {
        Some((_, near)) => format!("no command {name}: did you mean {near}? /help lists them"),
        None => format!("no command {name}: /help lists them"),
    }
}

fn plan(plan: PathBuf, draft: PathBuf) -> Result<String, Refused> {
    let read = |path: &Path| match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("/plan: cannot read {}: {error}", path.display())),
    };
    let (plan, draft) = (read(&plan)?, read(&draft)?);
    let mut text = String::new();
    for (title, part) in [("Plan", &plan), ("Draft", &draft)] {
        if !part.trim().is_empty() {
            let _ = writeln!(text, "{title}:\n{}", part.trim_end());
        }
    }
    Ok(if text.is_empty() { "there is no plan\n".to_owned() } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_command_is_named() {
        assert!(unknown("/hlep").contains("did you mean /help?"));
        assert!(unknown("/sess").contains("did you mean /sessions?"));
        assert!(!unknown("/frobnicate").contains("did you mean"));
    }

    #[test]
    fn help_fits_eighty_columns() {
        for line in help().lines() {
            assert!(line.chars().count() < 100, "{line}");
        }
    }
}
