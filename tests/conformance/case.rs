//! What a case file says. The format is described in `README.md` beside the cases.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;

use serde::Deserialize;

/// One case: a little world, one or more runs of the program in it, and what must be there afterwards.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The file's name without its ending.
    pub(crate) area: String,
    /// Its own part.
    pub(crate) about: About,
    /// Runs, one after the other; the first is written at the case's top level.
    pub(crate) runs: Vec<Run>,
}

/// Everything of a case but its first run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct About {
    /// Unique in its file.
    pub(crate) name: String,
    /// The sentence of the contract, or the row of CASES, that it shows.
    pub(crate) shows: String,
    /// The part of an agent that it is about, where a runtime may lack it (`WITHOUT=PART`).
    pub(crate) part: Option<String>,
    /// A shell script that furnishes the working directory.
    #[serde(default)]
    pub(crate) setup: String,
    /// What the model answers, request after request.
    #[serde(default)]
    pub(crate) answers: Vec<String>,
    /// What it answers to requests that hold a text.
    #[serde(default)]
    pub(crate) rules: Vec<BodyRule>,
    /// Later runs.
    #[serde(default)]
    pub(crate) then: Vec<Run>,
    /// Runs that the step `side N` starts (from 1).
    #[serde(default)]
    pub(crate) side: Vec<Run>,
    /// How many requests the model gets in all; without it: as many as `answers`.
    pub(crate) requests: Option<usize>,
    /// What some of them hold.
    #[serde(default)]
    pub(crate) request: Vec<RequestExpect>,
    /// Files afterwards.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, FileExpect>,
    /// Checks made of every case that this one cannot pass, by name.
    #[serde(default)]
    pub(crate) skip: Vec<String>,
    /// Only where a program of this name is on PATH.
    pub(crate) needs: Option<String>,
    /// For the runner's own test: a text that the case's failure must hold.
    pub(crate) fails: Option<String>,
}

/// An answer to every request that holds `when`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BodyRule {
    /// A part of the body.
    pub(crate) when: String,
    /// The answer.
    pub(crate) answer: String,
}

/// One run of the program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Run {
    /// Its arguments.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// Its stdin; none: `/dev/null`.
    pub(crate) stdin: Option<String>,
    /// Which of `stdin`, `stdout` and `stderr` are a terminal of 80 columns.
    #[serde(default)]
    pub(crate) tty: Vec<String>,
    /// Added to the environment.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Taken from it.
    #[serde(default)]
    pub(crate) unset: Vec<String>,
    /// Its working directory below the case's own.
    #[serde(default)]
    pub(crate) cwd: String,
    /// What happens while it runs, a step a line.
    #[serde(default)]
    pub(crate) steps: String,
    /// Close our end of its stdout as soon as this text was read.
    pub(crate) close_stdout_after: Option<String>,
    /// What it prints.
    #[serde(default)]
    pub(crate) stdout: String,
    /// What it says on stderr.
    #[serde(default)]
    pub(crate) stderr: String,
    /// How it ends: its code, or 128 + signal.
    #[serde(default)]
    pub(crate) exit: i32,
}

/// What one request holds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RequestExpect {
    /// Which one, from 1.
    pub(crate) n: usize,
    /// Its path.
    pub(crate) path: Option<String>,
    /// Headers that it has, `name: value`.
    #[serde(default)]
    pub(crate) headers: Vec<String>,
    /// Names of headers that it lacks.
    #[serde(default)]
    pub(crate) no_headers: Vec<String>,
    /// The whole body.
    pub(crate) body: Option<String>,
    /// The elements of `messages` (or `input`), one a line.
    pub(crate) messages: Option<String>,
    /// Texts in the body.
    #[serde(default)]
    pub(crate) has: Vec<String>,
    /// Texts not in the body.
    #[serde(default)]
    pub(crate) lacks: Vec<String>,
    /// Its system prompt and tools are, to the byte, those of this request.
    pub(crate) same_prompt_as: Option<usize>,
    /// It begins, to the byte, as this request does: all of it goes on where the other ended, or (a summary's) all but its
    /// last message is the other's beginning.
    pub(crate) same_prefix_as: Option<usize>,
    /// A file of tests/conformance that holds the system prompt, places and session named as everywhere.
    pub(crate) prompt_file: Option<String>,
    /// The sections of the system prompt, in order.
    pub(crate) sections: Option<Vec<String>>,
}

/// What a file holds, or whether it is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum FileExpect {
    /// `true`: is there, `false`: is not.
    Exists(bool),
    /// This.
    Holds(String),
}

/// The keys of a table that belong to a run.
const RUN_KEYS: &[&str] = &[
    "args",
    "stdin",
    "tty",
    "env",
    "unset",
    "cwd",
    "steps",
    "close-stdout-after",
    "stdout",
    "stderr",
    "exit",
];

/// Reads every `*.toml` of a directory, in the order of the names.
pub(crate) fn load(dir: &Path) -> Result<Vec<Case>, String> {
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .map_err(|error| at(dir, error))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    paths.sort();
    let mut cases = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| at(&path, error))?;
        let area = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        cases.extend(parse(&area, &text).map_err(|error| at(&path, error))?);
    }
    Ok(cases)
}

fn at(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

fn parse(area: &str, text: &str) -> Result<Vec<Case>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        case: Vec<toml::Table>,
    }
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut cases: Vec<Case> = Vec::new();
    for mut table in file.case {
        let name = table.get("name").and_then(|name| name.as_str()).unwrap_or("?").to_owned();
        let named = |error: toml::de::Error| format!("case {name}: {error}");
        let mut first = toml::Table::new();
        for key in RUN_KEYS {
            if let Some(value) = table.remove(*key) {
                first.insert((*key).to_owned(), value);
            }
        }
        let about: About = table.try_into().map_err(named)?;
        let mut runs = vec![first.try_into::<Run>().map_err(named)?];
        runs.extend(about.then.iter().cloned());
        if cases.iter().any(|case| case.about.name == about.name) {
            return Err(format!("case {name}: a second one of this name"));
        }
        cases.push(Case { area: area.to_owned(), about, runs });
    }
    Ok(cases)
}
