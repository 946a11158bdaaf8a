//! `bash-agent [OPTIONS] [PROMPT]`: from what was typed to a running agent.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::again;
use super::args::{AgentArgs, OutputFormat};
use super::console::{self, Desk};
use crate::agent::children::Launch;
use crate::agent::main_loop::{ListenError, Parts, Until};
use crate::agent::{self, Agent, Display};
use crate::config::{Config, ConfigError, KEY_VARIABLES};
use crate::exit::Exit;
use crate::model::{self, Model, Provider};
use crate::policy::Confinement;
use crate::runtime::environ;
use crate::runtime::inbox::Inbox;
use crate::runtime::signals::{self, Attendant};
use crate::session::paths;
use crate::session::{self, OpenOptions, Pick, Session, SessionError, StorageError, images, listing};
use crate::tools::{self, Skills};
use crate::ui::approve::TerminalAnswers;
use crate::ui::out;
use crate::ui::part::{self, Program};
use crate::ui::plain;
use crate::ui::screen::Screen;
use crate::ui::term::{self, Terminal};
use crate::wire::json;
use crate::wire::message::Usage;

/// Why a run cannot start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Model(#[from] model::ModelError),
    #[error(transparent)]
    Image(#[from] images::ImageError),
    #[error("{0}")]
    Usage(String),
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
}

impl StartError {
    fn exit(&self) -> Exit {
        match self {
            Self::Config(error) => error.exit(),
            Self::Session(error) => error.exit(),
            Self::Storage(_) | Self::Listen(_) => Exit::Storage,
            Self::Model(error) => error.exit(),
            Self::Image(error) => error.exit(),
            Self::Usage(_) => Exit::Usage,
            Self::System(_) => Exit::Failed,
        }
    }
}

/// Runs the agent; returns the exit code.
pub fn run(args: &AgentArgs) -> u8 {
    match start(args) {
        Ok(code) => code,
        Err(error) => {
            out::complain(&error.to_string());
            error.exit().code()
        }
    }
}

/// `bash-agent compact`: compacts the session named, or the newest, which nobody may run meanwhile.
pub fn compact(mut args: AgentArgs) -> u8 {
    // `--session` without a name means none, not a new one.
    args.session = args.session.filter(Option::is_some);
    args.continue_ = args.session.is_none();
    let bare = args.prompt.is_empty() && args.image.is_empty();
    let done = if bare && !args.stay && !args.interactive && !args.fork {
        start_compaction(&args)
    } else {
        Err(StartError::Usage(
            "compact takes no prompt, --image, --stay, -i or --fork: give --session NAME or nothing"
                .to_owned(),
        ))
    };
    done.unwrap_or_else(|error| {
        out::complain(&error.to_string());
        error.exit().code()
    })
}

fn start_compaction(args: &AgentArgs) -> Result<u8, StartError> {
    let config = Config::resolve(args, &|name: &str| std::env::var_os(name))?;
    for warning in &config.warnings {
        out::complain(warning);
    }
    let skills = Skills::discover(&config.cwd, config.home.as_deref());
    check_access(&config)?;
    let model = model::new(config.model.clone())?;
    let session = existing(args, &config)?;
    let notes = session.notes.clone();
    let inbox = Inbox::new();
    let (display, _) = display(&config, &skills, false, &inbox)?;
    let priced = Arc::new(RwLock::new(config.model.model.clone()));
    let mut agent = assemble(args, &config, &priced, (session, model.into(), skills), (inbox, display))?;
    agent.report(&notes)?;
    Ok(agent.compact_now())
}

/// Opens a session that exists already.
fn existing(args: &AgentArgs, config: &Config) -> Result<Session, SessionError> {
    let name = args.session.clone().flatten();
    session::find(&config.base, &config.cwd, name.as_deref())?;
    open(args, config)
}

fn start(args: &AgentArgs) -> Result<u8, StartError> {
    let env = |name: &str| std::env::var_os(name);
    if args.list_sessions {
        let base = crate::config::base_of(&env)?;
        let cwd = std::env::current_dir().map_err(ConfigError::Cwd)?;
        let entries = listing::list(&base, &cwd)?;
        return Ok(super::print(listing::table(&entries).as_bytes()));
    }
    let config = Config::resolve(args, &env)?;
    close_to_others(&config);
    for warning in &config.warnings {
        out::complain(warning);
    }
    let mut start = input(args)?;
    check_images(args, &start)?;
    let skills = Skills::discover(&config.cwd, config.home.as_deref());
    check_skills(&config, &skills)?;
    check_access(&config)?;
    let model = model::new(config.model.clone())?;
    let session = open(args, &config)?;
    attach_images(args, &session, &mut start)?;
    run_session(args, &config, session, model.into(), skills, start)
}

/// Keys and tokens leave the block that /proc shows, and nobody may look into this process. No thread runs yet.
fn close_to_others(config: &Config) {
    let tokens = std::env::vars_os().map(|(name, _)| name).filter(|name| environ::is_secret_name(name));
    let mut names: Vec<String> = tokens.filter_map(|name| name.into_string().ok()).collect();
    names.extend(config.hidden_env.iter().cloned());
    // Those were hidden first of all.
    names.retain(|name| !KEY_VARIABLES.contains(&name.as_str()));
    names.sort();
    names.dedup();
    environ::hide(names.iter().map(String::as_str));
    environ::close_process();
}

fn check_skills(config: &Config, skills: &Skills) -> Result<(), StartError> {
    let Some(missing) = config.skills.iter().find(|name| skills.get(name).is_none()) else { return Ok(()) };
    let known: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
    Err(StartError::Usage(match known.as_slice() {
        [] => format!("no skill '{missing}': there are none in .claude/skills or skills"),
        _ => format!("no skill '{missing}': there are {}", known.join(", ")),
    }))
}

/// How a run begins and ends.
struct Start {
    /// Its first input.
    first: Option<String>,
    until: Until,
    /// A person types.
    interactive: bool,
}

impl Start {
    fn with(first: String, until: Until) -> Self {
        Self { first: Some(first), until, interactive: false }
    }
}

/// Looks at what `--image` names before anything is made.
fn check_images(args: &AgentArgs, start: &Start) -> Result<(), StartError> {
    if !args.image.is_empty() && start.first.is_none() {
        let text = "--image needs something to say about it: give a PROMPT, or pipe it in";
        return Err(StartError::Usage(text.to_owned()));
    }
    args.image.iter().try_for_each(|file| images::check(file).map_err(StartError::from))
}

/// Copies the images of `--image` into the session and names them behind the first input.
fn attach_images(args: &AgentArgs, session: &Session, start: &mut Start) -> Result<(), StartError> {
    for file in &args.image {
        let number = images::add(&session.dir, file)?;
        if let Some(first) = &mut start.first {
            first.push(' ');
            first.push_str(&images::mention(number));
        }
    }
    Ok(())
}

/// The first input, and when the run ends.
fn input(args: &AgentArgs) -> Result<Start, StartError> {
    let appends_stdin = args.prompt.iter().any(|word| word == "-");
    let mut words = args.prompt.iter().filter(|word| *word != "-");
    let prompt = words.next().cloned();
    if let Some(extra) = words.next() {
        return Err(StartError::Usage(format!(
            "unexpected argument '{extra}': quote the whole prompt as one argument"
        )));
    }
    let terminal = std::io::stdin().is_terminal();
    if args.interactive && !terminal {
        return Err(StartError::Usage(
            "-i needs a terminal on stdin; to feed a waiting agent use --stay and its input.fifo".to_owned(),
        ));
    }
    let until = if args.stay || args.interactive { Until::Ended } else { Until::Done };
    let typed = match (prompt, appends_stdin) {
        (Some(prompt), false) => {
            return Ok(Start { interactive: args.interactive, ..Start::with(prompt, until) });
        }
        (None, false) if args.stay || terminal => {
            return Ok(Start { first: None, until: Until::Ended, interactive: !args.stay });
        }
        (prompt, _) => prompt,
    };
    let text = stdin_text()?;
    let input = match typed {
        Some(prompt) if text.is_empty() => prompt,
        Some(prompt) => format!("{prompt}\n\n{text}"),
        None => text,
    };
    if input.trim().is_empty() {
        return Err(StartError::Usage(
            "no prompt: stdin was empty; give a PROMPT or pipe text in".to_owned(),
        ));
    }
    Ok(Start::with(input, until))
}

/// All of stdin as clean text, without its last line feeds.
fn stdin_text() -> Result<String, StartError> {
    super::stdin_text()
        .map_err(|error| StartError::Usage(format!("cannot read stdin: {error}; give a PROMPT instead")))?
        .ok_or_else(|| {
            StartError::Usage("stdin is over 64 MiB: name the file in the prompt instead".to_owned())
        })
}

/// Without a key and a base URL nothing can be asked: says what to set, and who listens on this machine.
fn check_access(config: &Config) -> Result<(), StartError> {
    let settings = &config.model;
    let own_server = settings.base_url != settings.provider.default_base_url();
    if settings.provider == Provider::Script
        || own_server
        || settings.key.is_some()
        || settings.auth_token.is_some()
    {
        return Ok(());
    }
    let names = match settings.provider {
        Provider::Claude => "ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN), or ANTHROPIC_BASE_URL",
        _ => "OPENAI_API_KEY, or OPENAI_BASE_URL",
    };
    let mut text = format!(
        "no API key: set {names} for a server of your own, or DEEPSEEK_API_KEY; `-p script` runs offline without any"
    );
    for (name, port, probe, sign) in
        [("Ollama", 11434, "/", "Ollama is running"), ("llama.cpp", 8080, "/health", "\"status\":\"ok\"")]
    {
        if answers(port, probe, sign) {
            text.push_str(&format!(
                "; {name} runs here: try -p openai --base-url http://127.0.0.1:{port} -m MODEL"
            ));
        }
    }
    Err(StartError::Usage(text))
}

/// Whether a server on this machine answers `path` with `sign`.
fn answers(port: u16, path: &str, sign: &str) -> bool {
    use std::io::Write;
    let patience = Duration::from_millis(200);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, patience) else { return false };
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    let mut answer = Vec::new();
    let asked = stream
        .set_read_timeout(Some(patience))
        .and_then(|()| stream.write_all(request.as_bytes()))
        .and_then(|()| stream.take(4096).read_to_end(&mut answer));
    asked.is_ok() && json::clean(&answer).contains(sign)
}

fn open(args: &AgentArgs, config: &Config) -> Result<Session, SessionError> {
    let pick = match (&args.session, args.continue_) {
        (Some(Some(name)), _) => Pick::Named(name.clone()),
        (Some(None), _) => Pick::New,
        (None, true) => Pick::Latest,
        (None, false) if args.fork => Pick::Latest,
        (None, false) => Pick::New,
    };
    Session::open(&OpenOptions { base: &config.base, cwd: &config.cwd, pick, fork: args.fork })
}

fn run_session(
    args: &AgentArgs,
    config: &Config,
    session: Session,
    model: Arc<dyn Model>,
    skills: Skills,
    start: Start,
) -> Result<u8, StartError> {
    tools::become_subreaper();
    let inbox = Inbox::new();
    let (notes, events) = (session.notes.clone(), session.dir.events());
    let is_new = session.fresh;
    let (display, attendant) = display(config, &skills, start.interactive, &inbox)?;
    signals::listen(&inbox, attendant)?;
    let desk_skills = skills.clone();
    let priced = Arc::new(RwLock::new(config.model.model.clone()));
    let mut agent = assemble(args, config, &priced, (session, model, skills), (inbox, display))?;
    agent.listen(price(config, &priced))?;
    agent.report(&notes)?;
    let current = Rc::new(RefCell::new(config.clone()));
    if start.interactive {
        let desk = Desk::new(args, config, desk_skills, priced, Rc::clone(&current));
        agent.attend(Box::new(desk), (!is_new).then_some(events.as_path()))?;
    }
    if config.ask.is_some()
        && !start.interactive
        && let Some(answers) = TerminalAnswers::start(agent.sender())?
    {
        agent.answered_by(Box::new(answers));
    }
    match agent.run(start.first, start.until) {
        (_, Some(onward)) => Err(again::exec(args, &current.borrow(), &onward).into()),
        (code, None) => Ok(code),
    }
}

/// Who shows what happens, and at a terminal who hears of Ctrl+C.
fn display(
    config: &Config,
    skills: &Skills,
    interactive: bool,
    inbox: &Inbox,
) -> Result<(Box<dyn Display>, Option<Attendant>), StartError> {
    let own_display = part(config, "display");
    let edits = interactive
        && config.format == OutputFormat::Human
        && config.look.capable
        && !config.plain
        && own_display.is_none()
        && std::io::stdout().is_terminal();
    if edits {
        let options = term::Options {
            color: config.look.color,
            title: std::io::stderr().is_terminal(),
            model: config.model.model.clone(),
            history: config.base.history(),
            sources: term::Sources {
                commands: console::words(),
                arguments: vec![(
                    "/skill".to_owned(),
                    skills.iter().map(|skill| skill.name.clone()).collect(),
                )],
                cwd: config.cwd.clone(),
                home: config.home.clone(),
            },
            bell: config.bell,
            markdown: config.markdown && config.look.color,
            editor: config.editor.clone(),
        };
        let terminal = Terminal::start(options, part(config, "replay"), inbox.sender(), inbox.running())?;
        let attendant = terminal.attendant();
        return Ok((Box::new(terminal), Some(attendant)));
    }
    let screen = Screen::new(config.format, config.look, &config.model.model)
        .with_parts(own_display, part(config, "replay"));
    let attendant = if interactive {
        Some(plain::start(inbox.sender(), inbox.running(), config.base.history())?)
    } else {
        None
    };
    Ok((Box::new(screen), attendant))
}

fn assemble(
    args: &AgentArgs,
    config: &Config,
    priced: &Priced,
    (session, model, skills): (Session, Arc<dyn Model>, Skills),
    (inbox, display): (Inbox, Box<dyn Display>),
) -> Result<Agent, StartError> {
    Ok(Agent::new(Parts {
        settings: agent_settings(config, priced),
        tools: Arc::new(tool_context(config, &session, skills)),
        session,
        model,
        inbox,
        launch: launch(args, config)?,
        display,
    })?)
}

/// The program that takes a part over. One that cannot be used is reported; the built-in part does the work.
fn part(config: &Config, name: &'static str) -> Option<Program> {
    let path = config.parts.get(name).filter(|_| config.format == OutputFormat::Human)?;
    let setting = part::Setting {
        awk: &config.awk,
        awk_dir: config.awk_dir.as_deref(),
        hidden_env: &config.hidden_env,
    };
    match Program::new(name, path, &setting) {
        Ok(program) => Some(program),
        Err(why) => {
            out::complain(&format!("the {name} part {why}: the built-in one takes over"));
            None
        }
    }
}

fn tool_context(config: &Config, session: &Session, skills: Skills) -> tools::Context {
    let tokens: Vec<(String, String)> = std::env::vars_os()
        .filter(|(name, _)| environ::is_secret_name(name))
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, _)| !config.keep_env.contains(name))
        .collect();
    let secrets = config.secrets.iter().map(|secret| secret.expose().to_owned());
    // A short value of somebody else's variable would mask too much.
    let others = tokens.iter().map(|(_, value)| value.clone()).filter(|value| value.len() >= MIN_TOKEN);
    tools::Context {
        cwd: config.cwd.clone(),
        home: config.home.clone(),
        mode: config.mode,
        confinement: config.confinement,
        tmp_dir: Some(tmp_dir(config, session)),
        base_dir: config.base.path().to_owned(),
        plan_draft: session.dir.plan_draft(),
        private: Vec::new(),
        session_dir: session.dir.path().to_owned(),
        max_result: config.max_result,
        timeout: config.tool_timeout,
        skills,
        secrets: if config.mask { secrets.chain(others).collect() } else { Vec::new() },
        hidden_env: config
            .hidden_env
            .iter()
            .cloned()
            .chain(tokens.into_iter().map(|(name, _)| name))
            .collect(),
        mask_tokens: config.mask,
    }
}

/// A value of a variable that looks like a secret is masked from this length on.
const MIN_TOKEN: usize = 16;

/// The session's own TMPDIR: always the same, so that what a killed run left is swept with the next one.
fn tmp_dir(config: &Config, session: &Session) -> PathBuf {
    let key = paths::project_key(session.dir.path());
    config.tmp.join(format!("bash-agent-{:08x}", paths::cksum(key.as_bytes())))
}

fn agent_settings(config: &Config, priced: &Priced) -> agent::Settings {
    agent::Settings {
        base: config.base.path().to_owned(),
        cwd: config.cwd.clone(),
        home: config.home.clone(),
        lang: config.lang.clone(),
        shell: config.shell.clone(),
        selected_skills: config.skills.clone(),
        ask: config.ask,
        max_turns: config.limits.turns,
        max_context: config.limits.context,
        budget: config.limits.budget.clone(),
        max_tokens: config.model.max_tokens,
        provider: config.model.provider,
        model_name: config.model.model.clone(),
        price: Box::new(price(config, priced)),
        costs: config.costs,
        is_child: config.is_child,
    }
}

/// The name of the model whose prices hold; `/model` changes it.
pub(super) type Priced = Arc<RwLock<String>>;

/// Dollars of a call, by the catalogue's prices for the model.
fn price(config: &Config, priced: &Priced) -> impl Fn(&Usage) -> f64 + Send + 'static {
    let (catalog, model) = (config.model.catalog.clone(), Arc::clone(priced));
    move |usage| catalog.price(&model.read().unwrap_or_else(PoisonError::into_inner), usage)
}

/// How this agent starts its sub-agents: the same program, provider, model and limits, never wider rights, and keys in
/// the environment only.
pub(super) fn launch(args: &AgentArgs, config: &Config) -> std::io::Result<Launch> {
    let model = &config.model;
    let program = match &config.sub_agent_program {
        Some(program) => program.clone(),
        None => std::env::current_exe()?,
    };
    let mut arguments: Vec<OsString> = Vec::new();
    let mut flag = |name: &str, value: OsString| arguments.extend([OsString::from(name), value]);
    if let Some(provider) = &args.provider {
        flag("--provider", provider.into());
    }
    match (&model.script_file, model.provider) {
        (Some(file), _) => flag("--model", file.into()),
        (None, Provider::Script) => {}
        (None, _) => flag("--model", model.model.clone().into()),
    }
    if let Some(url) = &args.base_url {
        flag("--base-url", url.into());
    }
    if config.confinement == Confinement::Required {
        arguments.push("--require-sandbox".into());
    }
    if args.no_mask {
        arguments.push("--no-mask".into());
    }
    let mut flag = |name: &str, value: OsString| arguments.extend([OsString::from(name), value]);
    flag("--max-tokens", model.max_tokens.to_string().into());
    flag("--tool-timeout", config.tool_timeout.as_secs().to_string().into());
    flag("--max-turns", config.limits.turns.to_string().into());
    flag("--max-context", config.limits.context.to_string().into());
    flag("--effort", model.effort.as_str().into());
    flag("--thinking", model.thinking.as_str().into());
    let mut environment = vec![("BASH_AGENT_BASH_MODE".to_owned(), config.mode.to_string().into())];
    if args.api_key.is_some()
        && let Some(key) = &model.key
    {
        let name = match model.provider {
            Provider::Claude => "ANTHROPIC_API_KEY",
            _ => "OPENAI_API_KEY",
        };
        environment.push((name.to_owned(), key.expose().into()));
    }
    Ok(Launch { program, arguments, environment, cwd: config.cwd.clone(), limit: config.limits.sub_agents })
}
