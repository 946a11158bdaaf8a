//! The little world of one case: an own home, working directory and temporary directory, and a model.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mock_model::{After, Rule, Server, When};

use crate::case::Case;
use crate::shape::fits;

/// The key that the program is given; it must turn up nowhere but in the request's headers.
pub(crate) const KEY: &str = "sk-conformance-0123456789abcdef";

/// Marks every process of a case, so that none is left over unseen.
pub(crate) const MARK: &str = "CONFORMANCE_CASE";

/// How long one case may take in all. Only a case that fails comes near it.
const LIMIT: Duration = Duration::from_secs(60);

/// A program under test: a name for the reader, words to run, environment that it needs.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    /// As the matrix calls it.
    pub(crate) name: String,
    /// Program and first arguments.
    pub(crate) command: Vec<String>,
    /// Set for its runs only.
    pub(crate) env: Vec<(String, String)>,
}

impl Agent {
    /// Whether it was named with `WITHOUT=WORD,…`, and the case's area, or what it calls its `part`, is among them.
    pub(crate) fn is_without(&self, case: &Case) -> bool {
        let words =
            self.env.iter().filter(|(name, _)| name == "WITHOUT").flat_map(|(_, value)| value.split(','));
        words.into_iter().any(|word| word == case.area || case.about.part.as_deref() == Some(word))
    }
}

/// One case's places and its model.
pub(crate) struct World {
    root: PathBuf,
    /// `$HOME`
    pub(crate) home: PathBuf,
    /// The working directory.
    pub(crate) work: PathBuf,
    /// `$TMPDIR`
    pub(crate) tmp: PathBuf,
    /// The model.
    pub(crate) model: Server,
    /// The value of [`MARK`].
    pub(crate) mark: String,
    /// When the case is given up.
    pub(crate) deadline: Instant,
    keep: Cell<bool>,
}

impl World {
    /// Makes the directories and starts the model.
    pub(crate) fn new(case: &Case) -> Result<Self, String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let temp = fs::canonicalize(std::env::temp_dir()).map_err(|error| format!("temp dir: {error}"))?;
        let root = temp.join(format!("conformance-{mark}"));
        let (home, work, tmp) = (root.join("home"), root.join("work"), root.join("tmp"));
        for dir in [&home, &work, &tmp] {
            fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        let keep = Cell::new(keeps("1"));
        let mut world = Self {
            home,
            work,
            tmp,
            model: Server::start(Vec::new(), After::Nothing)
                .map_err(|error| format!("mock model: {error}"))?,
            mark,
            deadline: Instant::now() + LIMIT,
            keep,
            root,
        };
        world.model = world.start_model(case)?;
        Ok(world)
    }

    fn start_model(&self, case: &Case) -> Result<Server, String> {
        let rule = |when, text: &str| {
            let answer = self.fill(text).parse().map_err(|error| format!("answer: {error}"))?;
            Ok::<_, String>(Rule { when, answer })
        };
        let mut rules = Vec::new();
        for text in &case.about.answers {
            rules.push(rule(When::Next, text)?);
        }
        for other in &case.about.rules {
            rules.push(rule(When::Body(other.when.clone()), &other.answer)?);
        }
        Server::start(rules, After::Nothing).map_err(|error| format!("mock model: {error}"))
    }

    /// The case has failed: with `CONFORMANCE_KEEP=failed` its directory stays.
    pub(crate) fn keep_failed(&self) {
        self.keep.set(self.keep.get() || keeps("failed"));
    }

    /// Time left for this case.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// `…/.bash-agent`
    pub(crate) fn base(&self) -> PathBuf {
        self.home.join(".bash-agent")
    }

    /// The directory with the sessions of the working directory (CONTRACT §1; our temporary paths need no more
    /// of the rule than this).
    pub(crate) fn project(&self) -> PathBuf {
        self.base().join("projects").join(self.project_key())
    }

    fn project_key(&self) -> String {
        self.work.to_string_lossy().replace('/', "-")
    }

    /// The one session that is no sub-agent's.
    pub(crate) fn session(&self) -> Result<PathBuf, String> {
        self.only(|name| !name.starts_with("sub_"))
    }

    fn only(&self, wanted: impl Fn(&str) -> bool) -> Result<PathBuf, String> {
        let mut found = sessions(&self.project());
        found.retain(|dir| wanted(&dir.file_name().unwrap_or_default().to_string_lossy()));
        match found.as_slice() {
            [one] => Ok(one.clone()),
            many => {
                Err(format!("expected one session in {}, found {}", self.project().display(), many.len()))
            }
        }
    }

    /// What a case calls a file: `work:PATH`, `home:PATH`, `*/PATH` in the only session, `id/PATH` in the only one
    /// that drew its name, `sub/PATH` in the only sub-agent's, else a path in the project's directory.
    pub(crate) fn path(&self, name: &str) -> Result<PathBuf, String> {
        let name = &*self.fill(name);
        if let Some(rest) = name.strip_prefix("id/") {
            return Ok(self.only(|name| fits(name, "99999999-999999-hhhh").is_some())?.join(rest));
        }
        if let Some(rest) = name.strip_prefix("work:") {
            return Ok(self.work.join(rest));
        }
        if let Some(rest) = name.strip_prefix("home:") {
            return Ok(self.home.join(rest));
        }
        if let Some(rest) = name.strip_prefix("*/") {
            return Ok(self.session()?.join(rest));
        }
        if let Some(rest) = name.strip_prefix("sub/") {
            return Ok(self.only(|name| name.starts_with("sub_"))?.join(rest));
        }
        Ok(self.project().join(name))
    }

    /// Puts this world's values where a case says `{{NAME}}`.
    pub(crate) fn fill(&self, text: &str) -> String {
        if !text.contains("{{") {
            return text.to_owned();
        }
        text.replace("{{URL}}", &self.model.url())
            .replace("{{CWD}}", &self.work.to_string_lossy())
            .replace("{{HOME}}", &self.home.to_string_lossy())
            .replace("{{TMP}}", &self.tmp.to_string_lossy())
            .replace("{{PROJECT}}", &self.project().to_string_lossy())
            .replace("{{KEY}}", KEY)
            .replace("{{SOURCE}}", env!("CARGO_MANIFEST_DIR"))
    }

    /// Values that differ from run to run, the longest first, and what they are called in a case.
    pub(crate) fn places(&self) -> Vec<(String, &'static str)> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        vec![
            (self.project_key(), "<PROJECT>"),
            (text(&self.home), "<HOME>"),
            (text(&self.work), "<CWD>"),
            (text(&self.tmp), "<TMP>"),
            (format!("127.0.0.1:{}", self.model.port()), "<MODEL>"),
        ]
    }

    /// The whole environment of a process: nothing is taken over from ours but PATH and what an agent needs.
    pub(crate) fn environment(&self, agent: &Agent) -> BTreeMap<String, String> {
        let mut env: BTreeMap<String, String> = BTreeMap::new();
        for name in ["PATH", "AWK_DIR", "BASH_AGENT_AWK", "BASH_AGENT_CORE", "LLVM_PROFILE_FILE"] {
            if let Ok(value) = std::env::var(name) {
                env.insert(name.to_owned(), value);
            }
        }
        let url = self.model.url();
        for (name, value) in [
            ("HOME", &*self.home.to_string_lossy()),
            ("TMPDIR", &*self.tmp.to_string_lossy()),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
            ("SHELL", "/bin/sh"),
            ("NO_PROXY", "127.0.0.1"),
            ("ANTHROPIC_API_KEY", KEY),
            ("ANTHROPIC_BASE_URL", &url),
            ("OPENAI_API_KEY", KEY),
            ("OPENAI_BASE_URL", &url),
            (MARK, &self.mark),
        ] {
            env.insert(name.to_owned(), value.to_owned());
        }
        env.extend(agent.env.iter().cloned());
        env
    }

    /// Every path below the root, with modes, for the report of a failure.
    pub(crate) fn listing(&self) -> String {
        let mut lines = Vec::new();
        list(&self.root, &self.root, &mut lines);
        lines.join("\n")
    }
}

/// Whether `CONFORMANCE_KEEP` says so: `1` keeps every case's directory, `failed` those of cases that failed.
fn keeps(word: &str) -> bool {
    std::env::var_os("CONFORMANCE_KEEP").is_some_and(|value| value == word)
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.keep.get() {
            // A case may have taken its own rights away.
            for dir in [&self.home, &self.work, &self.tmp] {
                let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
            }
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// Every directory in a project's directory, sorted.
pub(crate) fn sessions(project: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(project)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_dir())
        .collect();
    found.sort();
    found
}

fn list(root: &Path, dir: &Path, lines: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let Ok(meta) = entry.metadata() else { continue };
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        lines.push(format!("{:o} {:>8} {name}", meta.permissions().mode(), meta.len()));
        if meta.is_dir() {
            list(root, &path, lines);
        }
    }
}
