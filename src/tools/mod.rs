//! The tools a model can call (CONTRACT §11). Each takes a JSON object and gives text; none of them can end the agent.

mod bash;
mod edit;
mod files;
mod input;
mod mask;
mod place;
mod process;
mod search;
mod skills;
mod todo;
pub mod truncate;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use bash::{CommandResult, classify_in, judge_command, run_command};
pub use edit::{Edited, check_edit, edit_text};
pub use place::real_path;
pub use process::{become_subreaper, end_leftovers};
pub use skills::{Skill, Skills};

use crate::policy::{Confinement, Mode, Refusal};
use crate::runtime::cancel::Cancel;
use crate::wire::message::Todo;

/// What the tools of one session work with. Nothing else is read: neither the environment (but for what Bash hands
/// on) nor any configuration.
#[derive(Clone)]
pub struct Context {
    /// The session's working directory, absolute and physical.
    pub cwd: PathBuf,
    /// The user's home, when known: `~`, and where credentials lie.
    pub home: Option<PathBuf>,
    /// What the tools may do.
    pub mode: Mode,
    /// Whether commands are confined by the kernel.
    pub confinement: Confinement,
    /// The session's own TMPDIR; made (0700) when a command is first run, removed by its owner at exit.
    pub tmp_dir: Option<PathBuf>,
    /// The agent's base directory, `…/.bash-agent`: closed to tools.
    pub base_dir: PathBuf,
    /// The session's directory: closed to tools but for `plan_draft`.
    pub session_dir: PathBuf,
    /// The session's plan.draft.
    pub plan_draft: PathBuf,
    /// Further directories of the agent's own, closed as its base directory is.
    pub private: Vec<PathBuf>,
    /// The longest result in bytes (`TOOL_RESULT_MAX_BYTES`).
    pub max_result: usize,
    /// The longest time a call may take; a call's own `timeout` can only be shorter.
    pub timeout: Duration,
    /// The skills found.
    pub skills: Skills,
    /// Names of variables that a command does not get to see.
    pub hidden_env: Vec<String>,
    /// Values that are masked in every result.
    pub secrets: Vec<String>,
    /// Whether what looks like a token or a private key is masked too.
    pub mask_tokens: bool,
}

/// One call of the model.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The call's id.
    pub id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// A JSON object.
    pub input: &'a str,
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// For the model, and the conversation. Can be empty.
    pub content: String,
    /// For the event and the display.
    pub shown: String,
    /// Whether it failed.
    pub is_error: bool,
    /// The extra pairs of TodoWrite.
    pub todo: Option<Todo>,
    /// It did nothing, because the mode lacks a bit: the mode that it needs.
    pub refused: Option<Mode>,
}

impl Output {
    /// A success that shows what the model gets.
    #[must_use]
    pub fn plain(content: impl Into<String>) -> Self {
        let content = content.into();
        Self { shown: content.clone(), content, is_error: false, todo: None, refused: None }
    }

    /// A failure: `Error: ` and what went wrong.
    #[must_use]
    pub fn error(text: &str) -> Self {
        Self { is_error: true, ..Self::plain(format!("Error: {text}")) }
    }

    /// A call that may not run.
    #[must_use]
    pub fn refusal(refusal: &Refusal) -> Self {
        Failure::from(refusal.clone()).output()
    }

    /// A call that an interrupt kept from running, or that did not end in time for it.
    #[must_use]
    pub fn interrupted() -> Self {
        Self::error("interrupted")
    }
}

/// Why a call failed: the text for the model, without `Error: `.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    text: String,
    /// The mode that was missing.
    refused: Option<Mode>,
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), refused: None }
    }

    /// The result that says it.
    pub(crate) fn output(&self) -> Output {
        Output { refused: self.refused, ..Output::error(&self.text) }
    }

    /// What an interrupt leaves.
    pub(crate) fn interrupted() -> Self {
        Self::new("interrupted")
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let refused = match &refusal {
            Refusal::Mode { required, .. } => Some(*required),
            Refusal::AgentFile(_) => None,
        };
        Self { text: refusal.to_string(), refused }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Runs one call to its end. An interrupt (`cancel`) ends it within 100 ms with `Error: interrupted`.
/// PlanConfirm, PlanClear, SubAgent and background commands are the agent's own and unknown here.
#[must_use]
pub fn run(ctx: &Context, call: &Call<'_>, cancel: &Cancel) -> Output {
    let output = input::Input::parse(call.input).and_then(|input| match call.name {
        "Read" => files::read(ctx, &input, cancel),
        "Write" => files::write(ctx, &input),
        "Edit" => edit::edit(ctx, &input),
        "Bash" => bash::bash(ctx, &input, cancel),
        "Glob" => search::glob(ctx, &input, cancel),
        "Grep" => search::grep(ctx, &input, cancel),
        "TodoWrite" => todo::todo_write(&input),
        "Skill" => skills::skill(ctx, &input),
        name => Err(Failure::new(format!("unknown tool: {name}"))),
    });
    let output = output.unwrap_or_else(|failure| failure.output());
    Output { content: finished(ctx, output.content), shown: finished(ctx, output.shown), ..output }
}

/// What a refused call wanted, for the person who is asked: the parts that the mode does not allow.
#[must_use]
pub fn reasons(ctx: &Context, name: &str, input: &str) -> String {
    let Ok(input) = input::Input::parse(input) else { return String::new() };
    let text = |key: &str| input.text(key).ok().flatten().unwrap_or_default().to_owned();
    let why = match name {
        "Bash" => bash::reasons(ctx, &text("command")),
        name => format!("{name} {}", text(if name == "Glob" { "pattern" } else { "path" })),
    };
    masked(ctx, why)
}

/// Whether calls of this tool can run side by side with others: they change nothing.
#[must_use]
pub fn runs_beside_others(name: &str) -> bool {
    matches!(name, "Read" | "Glob" | "Grep" | "Skill" | "TodoWrite")
}

/// Masked, without NUL, and within the limit.
fn finished(ctx: &Context, text: String) -> String {
    let text = masked(ctx, text);
    let text = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text };
    match truncate::cut(&text, ctx.max_result) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(cut) => cut,
    }
}

/// `text` with every secret replaced by `***`.
fn masked(ctx: &Context, text: String) -> String {
    mask::mask(text, &ctx.secrets, ctx.mask_tokens)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod confined;

#[cfg(test)]
pub(crate) mod testing {
    //! A small world for tool tests: workspace, home, session, all below one temporary directory.
    use std::path::Path;

    use super::*;

    pub(crate) struct World {
        pub(crate) ctx: Context,
        root: tempfile::TempDir,
    }

    impl World {
        pub(crate) fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let real = root.path().canonicalize().unwrap();
            let home = real.join("home");
            let base_dir = home.join(".bash-agent");
            let session_dir = base_dir.join("projects/-w/s1");
            std::fs::create_dir_all(&session_dir).unwrap();
            std::fs::create_dir(real.join("w")).unwrap();
            let plan_draft = session_dir.join("plan.draft");
            std::fs::write(&plan_draft, "").unwrap();
            let ctx = Context {
                cwd: real.join("w"),
                home: Some(home),
                mode: Mode::DEFAULT,
                confinement: Confinement::Required,
                tmp_dir: Some(real.join("tmp")),
                base_dir,
                session_dir,
                plan_draft,
                private: Vec::new(),
                max_result: 100_000,
                timeout: Duration::from_secs(60),
                skills: Skills::default(),
                hidden_env: Vec::new(),
                secrets: Vec::new(),
                mask_tokens: true,
            };
            Self { ctx, root }
        }

        pub(crate) fn root(&self) -> PathBuf {
            self.root.path().canonicalize().unwrap()
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.ctx.cwd.join(name)
        }

        pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
            std::fs::write(path, content).unwrap();
        }

        pub(crate) fn get(&self, name: &str) -> Vec<u8> {
            std::fs::read(self.path(name)).unwrap()
        }

        pub(crate) fn run(&self, name: &str, input: serde_json::Value) -> Output {
            self.run_with(name, input, &Cancel::new().unwrap())
        }

        pub(crate) fn run_with(&self, name: &str, input: serde_json::Value, cancel: &Cancel) -> Output {
            run(&self.ctx, &Call { id: "c1", name, input: &input.to_string() }, cancel)
        }

        /// Runs a call that must succeed.
        pub(crate) fn ok(&self, name: &str, input: serde_json::Value) -> String {
            let output = self.run(name, input);
            assert!(!output.is_error, "{}", output.content);
            output.content
        }

        /// Runs a call that must fail.
        pub(crate) fn err(&self, name: &str, input: serde_json::Value) -> String {
            let output = self.run(name, input);
            assert!(output.is_error, "{}", output.content);
            assert!(output.content.starts_with("Error: "), "{}", output.content);
            output.content
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::testing::World;
    use super::*;

    #[test]
    fn an_unknown_tool_and_a_broken_input_are_results() {
        let world = World::new();
        assert_eq!(world.err("Nope", json!({})), "Error: unknown tool: Nope");
        let call = Call { id: "c", name: "Read", input: "[1" };
        let output = run(&world.ctx, &call, &Cancel::new().unwrap());
        assert!(output.is_error && output.content.starts_with("Error: the input is not a JSON object"));
    }

    #[test]
    fn secrets_are_masked_in_every_result_errors_too() {
        let mut world = World::new();
        world.ctx.secrets = vec!["sk-ant-secret-1".into(), "short".into()];
        world.put("f", "key=sk-ant-secret-1 short\n");
        assert_eq!(world.ok("Read", json!({"path":"f"})), "key=*** short");
        assert_eq!(world.ok("Bash", json!({"command":"cat f"})), "key=*** short");
        assert!(!world.err("Read", json!({"path":"sk-ant-secret-1"})).contains("secret"));
        assert!(!world.err("Bash", json!({"command":"cat f; sleep 300", "timeout": 0.3})).contains("secret"));
    }
}
