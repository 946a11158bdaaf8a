//! What the flags, the environment and the config files mean together: one plain `Config`, made once.
//! Flags win over the environment, it over the project's file, that over the user's file (CONTRACT §13).
//! Nothing below reads the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod file;

use crate::agent::compact;
use crate::agent::compact_choice::Costs;
use crate::agent::limits::Budget;
use crate::cli::args::{self, AgentArgs, OutputFormat};
use crate::model::{Catalog, Effort, Provider, Proxies, Secret, Settings, Thinking};
use crate::policy::{Confinement, Mode};
use crate::session::paths::Base;
use crate::ui::term::Bell;
use file::{FileConfig, SandboxChoice};

/// The name of a project's own config file.
pub const PROJECT_FILE: &str = ".bash-agent.toml";

/// Variables that carry keys: taken out of every tool's environment.
pub const KEY_VARIABLES: &[&str] =
    &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "DEEPSEEK_API_KEY", "JINA_API_KEY"];

/// Why a configuration is refused: exit 2, except for the base directory.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value that is none, with what to give instead.
    #[error("{0}")]
    Value(String),
    /// A config file that cannot be used.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The working directory is gone or closed.
    #[error("cannot use the working directory: {0}; cd to one that exists")]
    Cwd(std::io::Error),
    /// No directory for sessions.
    #[error("neither BASH_AGENT_HOME nor HOME is set: set one of them to a directory you can write to")]
    NoHome,
}

impl ConfigError {
    /// The exit code of CONTRACT §13.
    pub fn exit(&self) -> crate::exit::Exit {
        match self {
            Self::NoHome => crate::exit::Exit::Storage,
            Self::Cwd(_) => crate::exit::Exit::Failed,
            Self::Value(_) | Self::File { .. } => crate::exit::Exit::Usage,
        }
    }
}

/// The environment, as a function, so that tests can bring their own.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Where a turn ends because the user said so. `None` = no limit.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Model calls of one turn.
    pub turns: u64,
    /// Tokens of the window.
    pub context: u64,
    /// Dollars, tokens and time of the whole run.
    pub budget: Budget,
    /// Sub-agents running at once.
    pub sub_agents: usize,
}

/// Everything that was decided before the work begins.
#[derive(Clone, Debug)]
pub struct Config {
    /// `…/.bash-agent`.
    pub base: Base,
    /// The physical working directory.
    pub cwd: PathBuf,
    /// `$HOME`, as it is.
    pub home: Option<PathBuf>,
    /// The model and how to reach it.
    pub model: Settings,
    /// The user's limits.
    pub limits: Limits,
    /// How long a tool may run.
    pub tool_timeout: Duration,
    /// Bytes of one tool result (`TOOL_RESULT_MAX_BYTES`).
    pub max_result: usize,
    /// What tools may do.
    pub mode: Mode,
    /// Whether commands are confined by the kernel.
    pub confinement: Confinement,
    /// A refusal becomes a question, which waits this long for its answer.
    pub ask: Option<Duration>,
    /// Keys and tokens in what tools print are masked.
    pub mask: bool,
    /// The session's own TMPDIR lies in this directory.
    pub tmp: PathBuf,
    /// Skills named by `--skill` or the config.
    pub skills: Vec<String>,
    /// What stdout carries.
    pub format: OutputFormat,
    /// The prompt's `lang`: the first of LC_ALL, LC_MESSAGES, LANG, up to the dot.
    pub lang: String,
    /// The prompt's `shell`.
    pub shell: String,
    /// The awk that runs parts ending in `.awk` (words).
    pub awk: Vec<String>,
    /// `AWK_DIR`: where those parts find json.awk and protocol.awk when they are not beside them.
    pub awk_dir: Option<PathBuf>,
    /// Parts that a program of the user's takes over (`BASH_AGENT_PARTS`), by name.
    pub parts: BTreeMap<String, String>,
    /// This agent is somebody's sub-agent (`BASH_AGENT_CHILD=1`).
    pub is_child: bool,
    /// The program to run sub-agents with; `None` = this one.
    pub sub_agent_program: Option<PathBuf>,
    /// Names of the variables that tools must not see.
    pub hidden_env: Vec<String>,
    /// Variables that commands get to see though their names look like secrets.
    pub keep_env: Vec<String>,
    /// The keys themselves, to be masked in what tools print.
    pub secrets: Vec<Secret>,
    /// Say more.
    pub verbose: bool,
    /// What the environment says about terminals.
    pub look: Look,
    /// The terminal is written to line by line, and its own line editing used.
    pub plain: bool,
    /// How a person is called when a long turn ends.
    pub bell: Bell,
    /// Answers are shown as Markdown at a terminal with colours.
    pub markdown: bool,
    /// `$VISUAL`, else `$EDITOR`: a shell command that edits the file named behind it.
    pub editor: Option<String>,
    /// The cost model of compaction (`DP_*`).
    pub costs: Costs,
    /// Things to tell the user once.
    pub warnings: Vec<String>,
}

/// The first of the values that is there: flag, environment, project's file, user's file.
fn first<T>(values: [Option<T>; 4]) -> Option<T> {
    values.into_iter().flatten().next()
}

fn text_of(env: Env<'_>, name: &str) -> Option<String> {
    let value = env(name)?;
    (!value.is_empty()).then(|| value.to_string_lossy().into_owned())
}

/// Both config files, the project's one checked against what it may set.
struct Files {
    user: FileConfig,
    project: FileConfig,
}

impl Files {
    fn load(base: &Base, cwd: &Path, home: Option<&Path>) -> Result<Self, ConfigError> {
        let mut user = FileConfig::load(&base.config())?;
        let path = cwd.join(PROJECT_FILE);
        let mut project = FileConfig::load(&path)?;
        let trusted = user.trusted.iter().flatten().any(|dir| {
            let dir = match (dir.strip_prefix("~"), home) {
                (Ok(rest), Some(home)) => home.join(rest),
                _ => dir.clone(),
            };
            dir.canonicalize().is_ok_and(|dir| dir == cwd)
        });
        let file = |problem: String| ConfigError::File { path: path.display().to_string(), problem };
        if trusted {
            user.take_access(&mut project);
        } else {
            if let Some(key) = project.forbidden_in_project().first() {
                return Err(file(format!(
                    "a project may not set '{key}': move it to {}, or list this directory under 'trusted' there",
                    base.config().display()
                )));
            }
            if let Some(mode) = &project.mode {
                let widest = user
                    .mode
                    .as_deref()
                    .filter(|mode| *mode != ASK)
                    .map_or(Ok(Mode::default()), parse_mode)?;
                if !widest.allows(parse_mode(mode)?) {
                    return Err(file(format!(
                        "mode '{mode}' is wider than yours ({widest}): a project may only narrow it"
                    )));
                }
            }
        }
        Ok(Self { user, project })
    }
}

/// As a mode: workspace, and a question in place of a refusal.
const ASK: &str = "ask";

/// Seconds that a question waits.
const ASK_TIMEOUT: u64 = 300;

/// `--mode` and `mode =`: four octal digits or a name.
fn parse_mode(text: &str) -> Result<Mode, ConfigError> {
    Mode::try_parse(text).ok_or_else(|| {
        ConfigError::Value(format!(
            "'{text}' is no mode: give four octal digits (system, external, network, workspace), read-only, workspace, trusted or ask"
        ))
    })
}

/// The values given, turned into a typed choice, or an error that names what there is.
fn choice<T: std::str::FromStr>(
    what: &str,
    text: Option<String>,
    all: &str,
) -> Result<Option<T>, ConfigError> {
    let Some(text) = text else { return Ok(None) };
    match text.parse() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(ConfigError::Value(format!("unknown {what} '{text}': give one of {all}"))),
    }
}

impl Config {
    /// Resolves everything. Reads the two config files and, for `--api-key @FILE` or `-`, that file or stdin.
    pub fn resolve(args: &AgentArgs, env: Env<'_>) -> Result<Self, ConfigError> {
        let cwd = std::env::current_dir().map_err(ConfigError::Cwd)?;
        let home = env("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let base = base_of(env)?;
        let files = Files::load(&base, &cwd, home.as_deref())?;
        let mut warnings = Vec::new();
        let limits = limits(args, &files);
        let model = model_settings(args, env, &files, &base, &mut warnings)?;
        let mut hidden_env: Vec<String> = KEY_VARIABLES.iter().map(|name| (*name).to_owned()).collect();
        hidden_env.extend(files.user.providers.iter().flatten().filter_map(|(_, p)| p.key_env.clone()));
        let secrets = hidden_env
            .iter()
            .filter_map(|name| text_of(env, name))
            .chain(model.key.iter().chain(&model.auth_token).map(|key| key.expose().to_owned()))
            .map(|key| Secret::new(&key))
            .collect();
        let Files { user, project } = files;
        let (mode, asks) = match (&args.mode, text_of(env, "BASH_AGENT_BASH_MODE"), &project.mode, &user.mode)
        {
            (Some(mode), ..) | (None, None, None, Some(mode)) if mode == ASK => (Mode::WORKSPACE, true),
            (Some(mode), ..) => (parse_mode(mode)?, false),
            (None, Some(digits), ..) => (Mode::parse(&digits), false),
            (None, None, Some(mode), _) | (None, None, None, Some(mode)) => (parse_mode(mode)?, false),
            (None, None, None, None) => (Mode::default(), false),
        };
        let ask = (args.ask || asks).then(|| Duration::from_secs(user.ask_timeout.unwrap_or(ASK_TIMEOUT)));
        let confinement = match (args.require_sandbox, user.sandbox) {
            (true, Some(SandboxChoice::Bubblewrap)) => Confinement::Bubblewrap,
            (true, _) => Confinement::Required,
            (false, chosen) => chosen.map_or_else(Confinement::default, Confinement::from),
        };
        let max_result = match text_of(env, "TOOL_RESULT_MAX_BYTES") {
            Some(text) => args::size(&text)
                .map_err(|error| ConfigError::Value(format!("TOOL_RESULT_MAX_BYTES: {error}")))?,
            None => project.tool_result_max_bytes.or(user.tool_result_max_bytes).unwrap_or(100_000),
        };
        let stream_json = args.print.then_some(OutputFormat::StreamJson);
        Ok(Self {
            base,
            cwd,
            home,
            model,
            limits,
            tool_timeout: Duration::from_secs(
                first([args.tool_timeout, None, project.tool_timeout, user.tool_timeout])
                    .unwrap_or(600)
                    .max(1),
            ),
            max_result: usize::try_from(max_result).unwrap_or(usize::MAX),
            mode,
            confinement,
            ask,
            mask: !args.no_mask && user.mask.unwrap_or(true),
            tmp: env("TMPDIR")
                .filter(|dir| !dir.is_empty())
                .map_or_else(|| PathBuf::from("/tmp"), PathBuf::from),
            skills: if args.skill.is_empty() {
                first([None, None, project.skills, user.skills]).unwrap_or_default()
            } else {
                args.skill.clone()
            },
            format: first([
                stream_json.or(args.output_format),
                None,
                project.output_format,
                user.output_format,
            ])
            .unwrap_or(OutputFormat::Human),
            lang: lang(env),
            shell: text_of(env, "SHELL").unwrap_or_else(|| "/bin/sh".to_owned()),
            awk: text_of(env, "BASH_AGENT_AWK")
                .unwrap_or_else(|| "awk".to_owned())
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            awk_dir: env("AWK_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from),
            parts: parts(env, user.parts, project.parts)?,
            is_child: text_of(env, "BASH_AGENT_CHILD").is_some_and(|value| value == "1"),
            sub_agent_program: env("BASH_AGENT_SUBAGENT").filter(|p| !p.is_empty()).map(PathBuf::from),
            hidden_env,
            keep_env: user.keep_env.unwrap_or_default(),
            secrets,
            verbose: args.verbose,
            plain: args.plain || user.plain.unwrap_or(false),
            bell: user.bell.unwrap_or_default(),
            markdown: user.markdown.unwrap_or(true),
            editor: text_of(env, "VISUAL").or_else(|| text_of(env, "EDITOR")),
            look: Look::of(env),
            costs: compact::costs(|name| text_of(env, name), &mut warnings),
            warnings,
        })
    }
}

/// What the environment says about terminals (CONTRACT §14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Colour is wanted: no NO_COLOR.
    pub color: bool,
    /// TERM names a terminal that understands escapes.
    pub capable: bool,
}

impl Look {
    /// Reads NO_COLOR and TERM.
    pub fn of(env: Env<'_>) -> Self {
        Self {
            color: text_of(env, "NO_COLOR").is_none(),
            capable: text_of(env, "TERM").is_some_and(|term| term != "dumb"),
        }
    }

    /// Whether stdout and stderr take colour.
    pub fn streams(self) -> (bool, bool) {
        let wanted = self.color && self.capable;
        (wanted && std::io::stdout().is_terminal(), wanted && std::io::stderr().is_terminal())
    }
}

/// The base directory of CONTRACT §1.
pub fn base_of(env: Env<'_>) -> Result<Base, ConfigError> {
    let dir =
        env("BASH_AGENT_HOME").filter(|d| !d.is_empty()).or_else(|| env("HOME").filter(|d| !d.is_empty()));
    match dir {
        Some(dir) => Ok(Base::new(PathBuf::from(dir).join(".bash-agent"))),
        None => Err(ConfigError::NoHome),
    }
}

/// How commands that are started here are confined: by the config files and the environment, without flags.
pub fn confinement(base: &Base, env: Env<'_>) -> Result<(Confinement, Mode), ConfigError> {
    let cwd = std::env::current_dir().map_err(ConfigError::Cwd)?;
    let home = env("HOME").map(PathBuf::from);
    let Files { user, project } = Files::load(base, &cwd, home.as_deref())?;
    let mode = match (text_of(env, "BASH_AGENT_BASH_MODE"), &project.mode, &user.mode) {
        (Some(digits), ..) => Mode::parse(&digits),
        (None, Some(mode), _) | (None, None, Some(mode)) if mode != ASK => parse_mode(mode)?,
        _ => Mode::default(),
    };
    Ok((user.sandbox.map_or_else(Confinement::default, Confinement::from), mode))
}

fn limits(args: &AgentArgs, files: &Files) -> Limits {
    let (project, user) = (&files.project, &files.user);
    let turns = first([args.max_turns, None, project.max_turns, user.max_turns]);
    let sub_agents = first([args.max_sub_agents, None, project.max_sub_agents, user.max_sub_agents]);
    let budget = Budget {
        cost: first([args.max_cost, None, project.max_cost, user.max_cost]),
        tokens: args.max_total_tokens,
        time: first([args.max_time, None, project.max_time, user.max_time]).map(Duration::from_secs),
    };
    Limits {
        turns: turns.unwrap_or(1000),
        context: first([args.max_context, None, project.max_context, user.max_context]).unwrap_or(200_000),
        budget,
        sub_agents: usize::try_from(sub_agents.unwrap_or(8)).unwrap_or(usize::MAX),
    }
}

fn lang(env: Env<'_>) -> String {
    ["LC_ALL", "LC_MESSAGES", "LANG"]
        .into_iter()
        .find_map(|name| text_of(env, name))
        .map(|value| value.split('.').next().unwrap_or_default().to_owned())
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| "C".to_owned())
}

/// `BASH_AGENT_PARTS=replay=FILE,display=FILE` over the files' `[parts]`.
fn parts(
    env: Env<'_>,
    user: Option<BTreeMap<String, String>>,
    project: Option<BTreeMap<String, String>>,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut parts = user.unwrap_or_default();
    parts.extend(project.unwrap_or_default());
    for pair in
        text_of(env, "BASH_AGENT_PARTS").unwrap_or_default().split(',').filter(|pair| !pair.is_empty())
    {
        let (name, program) = pair.split_once('=').unwrap_or((pair, ""));
        parts.insert(name.to_owned(), program.to_owned());
    }
    for (name, program) in &parts {
        if !matches!(name.as_str(), "replay" | "display") || program.is_empty() {
            return Err(ConfigError::Value(format!(
                "BASH_AGENT_PARTS: '{name}={program}' is no part: give replay=FILE or display=FILE"
            )));
        }
    }
    Ok(parts)
}

/// What a provider starts with: its variables and its own server.
struct Api {
    provider: Provider,
    key: Option<Secret>,
    auth_token: Option<Secret>,
    base_url: Option<String>,
    model: Option<String>,
    headers: BTreeMap<String, String>,
    extra_body: Option<toml::Table>,
}

fn model_settings(
    args: &AgentArgs,
    env: Env<'_>,
    files: &Files,
    base: &Base,
    warnings: &mut Vec<String>,
) -> Result<Settings, ConfigError> {
    let (user, project) = (&files.user, &files.project);
    let name = first([args.provider.clone(), None, project.provider.clone(), user.provider.clone()])
        .unwrap_or_else(|| "claude".to_owned());
    let mut api = api(&name, env, user)?;
    if let Some(url) = args.base_url.clone() {
        api.base_url = Some(url);
    }
    if let Some(given) = &args.api_key {
        api.key = Some(key_from(given, warnings)?);
        api.auth_token = None;
    }
    let has_access = api.key.is_some() || api.auth_token.is_some() || api.base_url.is_some();
    if !has_access && api.provider != Provider::Responses && api.provider != Provider::Script {
        use_deepseek(&mut api, env);
    }
    if let Some(url) = &api.base_url {
        check_url(url)?;
    }
    let max_tokens = first([args.max_tokens, None, project.max_tokens, user.max_tokens]).unwrap_or(16_384);
    let effort =
        first([args.effort.clone(), text_of(env, "EFFORT"), project.effort.clone(), user.effort.clone()]);
    let thinking = first([
        args.thinking.clone(),
        text_of(env, "THINKING"),
        project.thinking.clone(),
        user.thinking.clone(),
    ]);
    let model =
        args.model.clone().or_else(|| project.model.clone()).or(api.model).or_else(|| user.model.clone());
    let mut settings = Settings::new(api.provider);
    if api.provider == Provider::Script {
        settings.script_file = args.model.clone().map(PathBuf::from);
    } else if let Some(model) = model {
        settings.model = model;
    }
    if let Some(url) = api.base_url {
        settings.base_url = url;
    }
    settings.key = api.key;
    settings.auth_token = api.auth_token;
    settings.headers = api.headers.into_iter().collect();
    settings.extra_body = api.extra_body.map(json_of).transpose()?;
    settings.max_tokens = max_tokens;
    if base.models().exists() {
        settings.catalog =
            Catalog::load(&base.models()).map_err(|error| ConfigError::Value(error.to_string()))?;
    }
    settings.record = args.record.clone();
    settings.proxies = Proxies::from_env(|name| text_of(env, name));
    if let Some(effort) = choice::<Effort>("effort", effort, "low, medium, high, xhigh, max")? {
        settings.effort = effort;
    }
    if let Some(thinking) = choice::<Thinking>("thinking", thinking, "adaptive, enabled, disabled")? {
        settings.thinking = thinking;
    }
    if let Some(stall) = first([None, None, project.stall_timeout, user.stall_timeout]) {
        settings.stall_timeout = Duration::from_secs(stall.max(1));
    }
    if let Some(base) = first([None, None, project.retry_base_ms, user.retry_base_ms]) {
        settings.retry.base = Duration::from_millis(base);
    }
    Ok(settings)
}

/// Finds the provider by its word or by its name in the user's config.
fn api(name: &str, env: Env<'_>, user: &FileConfig) -> Result<Api, ConfigError> {
    let secret = |variable: &str| text_of(env, variable).map(|key| Secret::new(&key));
    if let Some(own) = user.providers.as_ref().and_then(|all| all.get(name)) {
        let provider = choice::<Provider>("api", Some(own.api.clone()), "claude, openai, responses")?;
        let key = own.key_env.as_deref().and_then(secret);
        let mut headers = user.headers.clone().unwrap_or_default();
        for (name, value) in own.headers.iter().flatten() {
            // Names have no case.
            headers.retain(|other, _| !other.eq_ignore_ascii_case(name));
            headers.insert(name.clone(), value.clone());
        }
        return Ok(Api {
            provider: provider.unwrap_or(Provider::Claude),
            key,
            auth_token: None,
            base_url: own.base_url.clone(),
            model: own.model.clone(),
            headers,
            extra_body: own.extra_body.clone().or_else(|| user.extra_body.clone()),
        });
    }
    let mut names = "claude, openai, responses, script".to_owned();
    for own in user.providers.iter().flatten() {
        names.push_str(", ");
        names.push_str(own.0);
    }
    let provider = choice::<Provider>("provider", Some(name.to_owned()), &names)?.unwrap_or(Provider::Claude);
    let (key, auth_token, url) = match provider {
        Provider::Claude => {
            (secret("ANTHROPIC_API_KEY"), secret("ANTHROPIC_AUTH_TOKEN"), text_of(env, "ANTHROPIC_BASE_URL"))
        }
        Provider::OpenAi | Provider::Responses => {
            (secret("OPENAI_API_KEY"), None, text_of(env, "OPENAI_BASE_URL"))
        }
        Provider::Script => (None, None, None),
    };
    Ok(Api {
        provider,
        key: key.or_else(|| {
            user.api_key.clone().filter(|_| provider != Provider::Script).map(|key| Secret::new(&key))
        }),
        auth_token,
        base_url: url.or_else(|| user.base_url.clone()),
        model: None,
        headers: user.headers.clone().unwrap_or_default(),
        extra_body: user.extra_body.clone(),
    })
}

/// DeepSeek serves whoever has only its key.
fn use_deepseek(api: &mut Api, env: Env<'_>) {
    let Some(key) = text_of(env, "DEEPSEEK_API_KEY") else { return };
    api.key = Some(Secret::new(&key));
    api.model = Some("deepseek-chat".to_owned());
    let url = if api.provider == Provider::Claude {
        "https://api.deepseek.com/anthropic/v1"
    } else {
        "https://api.deepseek.com/v1"
    };
    api.base_url = Some(url.to_owned());
}

fn check_url(url: &str) -> Result<(), ConfigError> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.unwrap_or_default().split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || url.contains(char::is_whitespace) {
        return Err(ConfigError::Value(format!(
            "'{url}' is no base URL: give http://HOST[:PORT][/PATH] or https://…"
        )));
    }
    Ok(())
}

/// `--api-key KEY`, `@FILE` or `-`.
fn key_from(given: &str, warnings: &mut Vec<String>) -> Result<Secret, ConfigError> {
    let read = |source: &str, mut reader: Box<dyn Read>| {
        let mut text = String::new();
        reader
            .by_ref()
            .take(64 * 1024)
            .read_to_string(&mut text)
            .map_err(|error| ConfigError::Value(format!("--api-key: cannot read {source}: {error}")))?;
        Ok::<_, ConfigError>(text)
    };
    let text = if given == "-" {
        read("stdin", Box::new(std::io::stdin()))?
    } else if let Some(path) = given.strip_prefix('@') {
        let file = std::fs::File::open(path)
            .map_err(|error| ConfigError::Value(format!("--api-key: cannot open {path}: {error}")))?;
        read(path, Box::new(file))?
    } else {
        warnings.push(
            "a key given as an argument shows in the process list: use --api-key @FILE or -".to_owned(),
        );
        given.to_owned()
    };
    let key = text.trim();
    if key.is_empty() || key.chars().any(char::is_control) {
        return Err(ConfigError::Value("--api-key: the key is empty or holds control characters".to_owned()));
    }
    Ok(Secret::new(key))
}

fn json_of(table: toml::Table) -> Result<serde_json::Map<String, serde_json::Value>, ConfigError> {
    match serde_json::to_value(table) {
        Ok(serde_json::Value::Object(map)) => Ok(map),
        _ => Err(ConfigError::Value("extra_body holds a value that JSON has no form for".to_owned())),
    }
}
