//! What a mode allows: the judgement on a command, and a command confined (CONTRACT §12).

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{CoreError, print, whole_stdin};
use crate::config::{self, ConfigError};
use crate::exit::Exit;
use crate::policy::mode::linked_secrets;
use crate::policy::{Cage, Confinement, Mode, Places, Refusal};
use crate::session::paths::{self, Base};
use crate::tools;
use crate::wire::json;

/// Whose places are meant: those of the current directory, and of a session when one is named.
#[derive(Args, Debug)]
pub(super) struct PlacesArgs {
    /// The session's directory: closed, but for its plan.draft
    #[arg(long, value_name = "DIR")]
    session_dir: Option<PathBuf>,
    /// A temporary directory that belongs to the workspace
    #[arg(long, value_name = "DIR")]
    tmp: Option<PathBuf>,
    /// A further directory that is closed (repeatable)
    #[arg(long, value_name = "DIR")]
    private: Vec<PathBuf>,
}

/// `core classify`.
#[derive(Args, Debug)]
pub struct ClassifyArgs {
    /// Which places.
    #[command(flatten)]
    places: PlacesArgs,
    /// Exit 1, with the refusal on stderr, when this mode does not allow the command
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<Mode>,
    /// The command, as one argument; `-` reads it from stdin
    #[arg(value_name = "COMMAND", allow_hyphen_values = true)]
    command: OsString,
}

/// `core sandbox`.
#[derive(Args, Debug)]
pub struct SandboxArgs {
    /// Which places.
    #[command(flatten)]
    places: PlacesArgs,
    /// Confine by bubblewrap, even where the kernel has Landlock
    #[arg(long)]
    bubblewrap: bool,
    /// What the command may do: four octal digits, read-only, workspace or trusted
    #[arg(value_name = "MODE", value_parser = mode)]
    mode: Mode,
    /// The command and its arguments; without one, what confines commands here is printed (exit 1: nothing)
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::try_parse(text).ok_or_else(|| {
        format!(
            "'{text}' is no mode: give four octal digits (system, external, network, workspace), read-only, workspace or trusted"
        )
    })
}

/// The places of the current directory and a session's.
pub(in crate::cli) fn places_of(base: &Base, session_dir: &Path) -> Result<Places, ConfigError> {
    PlacesArgs { session_dir: Some(session_dir.to_owned()), tmp: None, private: Vec::new() }.places_in(base)
}

impl PlacesArgs {
    fn places(&self) -> Result<Places, ConfigError> {
        self.places_in(&config::base_of(&|name| std::env::var_os(name))?)
    }

    fn places_in(&self, base: &Base) -> Result<Places, ConfigError> {
        let cwd = std::env::current_dir().map_err(ConfigError::Cwd)?;
        let real = |path: &Path| tools::real_path(&cwd.join(path));
        let base_dir = real(base.path());
        let session_dir = match &self.session_dir {
            Some(dir) => real(dir),
            // None that is there: the sandbox asks for a place below the base directory.
            None => base_dir.join("projects").join(paths::project_key(&cwd)).join("none"),
        };
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| real(home.as_ref()));
        Ok(Places {
            linked: home.iter().flat_map(|home| linked_secrets(home, &real)).collect(),
            home,
            tmp_dir: self.tmp.as_deref().map(real),
            base_dir,
            plan_draft: session_dir.join("plan.draft"),
            session_dir,
            private: self.private.iter().map(|path| real(path)).collect(),
            cwd,
        })
    }
}

/// `core classify`: the mode that the command needs, then a line for each part that needs something.
pub(super) fn classify(args: &ClassifyArgs) -> Result<Exit, CoreError> {
    let command = if args.command == "-" { whole_stdin()? } else { args.command.as_encoded_bytes().to_vec() };
    let verdict = tools::classify_in(&args.places.places()?, &json::clean(&command));
    let mut text = format!("{}\n", verdict.required());
    for need in &verdict.needs {
        text.push_str(&format!("{}\t{}\n", need.required, need.why));
    }
    let printed = print(text.as_bytes());
    match args.mode {
        Some(allowed) if !allowed.allows(verdict.required()) => {
            let refusal = Refusal::Mode { required: verdict.required(), allowed };
            Err(CoreError::Failed(refusal.to_string()))
        }
        _ => Ok(printed),
    }
}

/// `core sandbox`: becomes the command, confined; never without confinement.
pub(super) fn sandbox(args: &SandboxArgs) -> Result<Exit, CoreError> {
    let confinement = if args.bubblewrap { Confinement::Bubblewrap } else { Confinement::Required };
    let Some((program, arguments)) = args.command.split_first() else {
        let printed = print(format!("{}\n", confinement.describe()).as_bytes());
        return Ok(if confinement.holds() { printed } else { Exit::Failed });
    };
    let failed = |error: std::io::Error| {
        CoreError::Failed(format!("could not run {}: {error}", program.to_string_lossy()))
    };
    let cage = Cage::new(confinement, args.mode, &args.places.places()?).map_err(failed)?;
    let mut command = cage.command(program, || Ok(()));
    for name in config::KEY_VARIABLES {
        command.env_remove(name);
    }
    if let Some(tmp) = &args.places.tmp {
        command.env("TMPDIR", tmp);
    }
    Err(failed(command.args(arguments).exec()))
}
