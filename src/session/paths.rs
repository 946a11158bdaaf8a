//! Where everything lies (CONTRACT §1, §2): the only place that knows file names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::SessionError;

/// A project key longer than this is shortened.
const KEY_MAX: usize = 200;
/// How much of a long key is kept in front of its checksum.
const KEY_KEPT: usize = 180;
/// The longest file name that every file system of ours takes.
const NAME_MAX: usize = 255;

/// The base directory, `…/.bash-agent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base(PathBuf);

impl Base {
    /// The base directory at `dir`, whose last part is normally `.bash-agent`. Touches nothing.
    pub fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// The base directory from the values of BASH_AGENT_HOME and HOME; empty values count as unset.
    pub fn from_home(agent_home: Option<&OsStr>, home: Option<&OsStr>) -> Result<Self, SessionError> {
        let dir = agent_home.filter(|dir| !dir.is_empty()).or(home.filter(|dir| !dir.is_empty()));
        dir.map(|dir| Self(Path::new(dir).join(".bash-agent"))).ok_or(SessionError::NoHome)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The lines typed at the prompt.
    pub fn history(&self) -> PathBuf {
        self.0.join("history")
    }

    /// Our configuration.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// The user's global instructions.
    pub fn agents_md(&self) -> PathBuf {
        self.0.join("AGENTS.md")
    }

    /// The user's own model table, which overrides ours.
    pub fn models(&self) -> PathBuf {
        self.0.join("models.json")
    }

    /// The directory of all projects.
    pub fn projects(&self) -> PathBuf {
        self.0.join("projects")
    }

    /// The directory of the project at `cwd`, a physical path.
    pub fn project(&self, cwd: &Path) -> PathBuf {
        self.projects().join(project_key(cwd))
    }

    /// The directory of one session of the project at `cwd`. `name` must be a `valid_name`.
    pub fn session(&self, cwd: &Path, name: &str) -> SessionDir {
        SessionDir(self.project(cwd).join(name))
    }
}

/// The name of a project's directory, made from its physical path (CONTRACT §1).
pub fn project_key(cwd: &Path) -> String {
    let path = cwd.as_os_str().as_bytes();
    let mut key = String::from("-");
    for &byte in path.strip_prefix(b"/").unwrap_or(path) {
        let kept = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        if kept {
            key.push(char::from(byte));
        } else if !key.ends_with('-') {
            key.push('-');
        }
    }
    if key.len() > 1 && key.ends_with('-') {
        key.pop();
    }
    if key.len() > KEY_MAX {
        key.truncate(KEY_KEPT);
        key.push_str(&format!("-{}", cksum(path)));
    }
    key
}

/// The first number that POSIX `cksum` prints for these bytes.
pub fn cksum(bytes: &[u8]) -> u32 {
    let mut length = bytes.len();
    let length_bytes = std::iter::from_fn(|| {
        let byte = (length & 0xff) as u8;
        let more = length > 0;
        length >>= 8;
        more.then_some(byte)
    });
    let crc = bytes.iter().copied().chain(length_bytes).fold(0u32, |crc, byte| {
        (0..8).fold(crc ^ (u32::from(byte) << 24), |crc, _| {
            if crc & 0x8000_0000 == 0 { crc << 1 } else { (crc << 1) ^ 0x04c1_1db7 }
        })
    });
    !crc
}

/// Whether `name` can name a session (CONTRACT §1): printable characters without `/`, not empty, `.` or `..`, not
/// beginning with `-`, and short enough for a directory's name.
pub fn valid_name(name: &str) -> Result<(), SessionError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name == "." || name == ".." {
        "it is a directory's own name"
    } else if name.starts_with('-') {
        "it begins with '-'"
    } else if name.contains('/') {
        "it holds '/'"
    } else if name.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        "it holds a control character"
    } else if name.len() > NAME_MAX {
        "it is too long"
    } else {
        return Ok(());
    };
    Err(SessionError::BadName { name: name.chars().take(NAME_MAX).collect(), why })
}

/// A session's directory and the files in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDir(PathBuf);

impl SessionDir {
    /// The session at `dir`. Touches nothing.
    pub fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The session's id or name: the directory's own name.
    pub fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The window sent to the model.
    pub fn conversation(&self) -> PathBuf {
        self.0.join("conversation.jsonl")
    }

    /// The lines that compaction took out of the conversation.
    pub fn archive(&self) -> PathBuf {
        self.0.join("conversation-archive.jsonl")
    }

    /// Everything that happened.
    pub fn events(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    /// The summary of what was compacted.
    pub fn summary(&self) -> PathBuf {
        self.0.join("summary.txt")
    }

    /// The confirmed plan.
    pub fn plan(&self) -> PathBuf {
        self.0.join("plan.md")
    }

    /// The plan being drafted.
    pub fn plan_draft(&self) -> PathBuf {
        self.0.join("plan.draft")
    }

    /// The counters.
    pub fn stats(&self) -> PathBuf {
        self.0.join("stats.json")
    }

    /// Pasted images.
    pub fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    /// What the session is about: its directory, provider, model.
    pub fn meta(&self) -> PathBuf {
        self.0.join("session.json")
    }

    /// Who owns the session.
    pub fn lock(&self) -> PathBuf {
        self.0.join("session.lock")
    }

    /// Guards what several processes write.
    pub fn state_lock(&self) -> PathBuf {
        self.0.join("state.lock")
    }

    /// The last ids of inputs.
    pub fn input_ids(&self) -> PathBuf {
        self.0.join("input.ids")
    }

    /// Inputs too long for one write.
    pub fn input_dir(&self) -> PathBuf {
        self.0.join("input.d")
    }

    /// Where input comes in.
    pub fn input_fifo(&self) -> PathBuf {
        self.0.join("input.fifo")
    }

    /// Where results come in.
    pub fn notify_fifo(&self) -> PathBuf {
        self.0.join("notify.fifo")
    }

    /// Results that wait for a turn.
    pub fn notify_buf(&self) -> PathBuf {
        self.0.join("notify.buf")
    }

    /// Results that a turn is taking.
    pub fn notify_taken(&self) -> PathBuf {
        self.0.join("notify.buf.taken")
    }

    /// How many children and tasks are open.
    pub fn active_count(&self) -> PathBuf {
        self.0.join("active_sub.count")
    }

    /// Which children and tasks are open.
    pub fn active_list(&self) -> PathBuf {
        self.0.join("active_sub.list")
    }

    /// Exists while a turn is being worked on.
    pub fn running_flag(&self) -> PathBuf {
        self.0.join("agent_running.flag")
    }

    /// The note of an input with an id whose user line is being written (ours).
    pub fn input_journal(&self) -> PathBuf {
        self.0.join("input.journal")
    }

    /// The note of a compaction that is under way (ours): what to undo when it was not finished.
    pub fn compact_journal(&self) -> PathBuf {
        self.0.join("compact.journal")
    }
}

/// `FILE.suffix`, beside FILE.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_the_contract() {
        let rows: &[(&[u8], &str)] = &[
            (b"/srv/my app", "-srv-my-app"),
            (b"/a/my proj_(x)/\xc3\xa9t\xc3\xa9", "-a-my-proj_-x-t"),
            (b"/", "-"),
            (b"/a-b", "-a-b"),
            (b"/a/b", "-a-b"),
            (b"/.x/..y/", "-.x-..y"),
            (b"//--//", "-"),
            (b"/\xff\n*", "-"),
        ];
        for (path, key) in rows {
            assert_eq!(project_key(Path::new(OsStr::from_bytes(path))), *key, "{path:?}");
        }
    }

    #[test]
    fn a_key_of_200_bytes_stays_and_a_longer_one_ends_in_its_checksum() {
        let path = format!("/{}", "d".repeat(199));
        assert_eq!(project_key(Path::new(&path)), format!("-{}", "d".repeat(199)));
        let path = format!("/{}", "d".repeat(200));
        assert_eq!(project_key(Path::new(&path)), format!("-{}-{}", "d".repeat(179), CKSUM_OF_200_D));
    }

    const CKSUM_OF_200_D: u32 = 1407395025;

    #[test]
    fn cksum_is_the_one_of_posix() {
        assert_eq!(cksum(b""), 4_294_967_295);
        assert_eq!(cksum(b"123456789"), 930_766_865);
    }

    #[test]
    fn names_are_refused_by_rule() {
        for good in ["a", "my plan", "été 中文", "a.b", "...", "x-y", "sub_1", "%*'\"", "a\\b", " "] {
            assert!(valid_name(good).is_ok(), "{good:?}");
        }
        let long = "n".repeat(256);
        for bad in ["", ".", "..", "-a", "a/b", "../evil", "a\nb", "a\tb", "\u{1b}[0m", "a\u{2028}b", &long] {
            let error = valid_name(bad).unwrap_err();
            assert_eq!(error.exit().code(), 2, "{bad:?}");
            assert!(!error.to_string().contains('\n'), "{bad:?}");
        }
    }

    #[test]
    fn the_base_comes_from_the_environment() {
        let os = OsStr::new;
        let base = Base::from_home(Some(os("/b")), Some(os("/h"))).unwrap();
        assert_eq!(base.path(), Path::new("/b/.bash-agent"));
        let base = Base::from_home(Some(os("")), Some(os("/h"))).unwrap();
        assert_eq!(base.project(Path::new("/srv/x")), Path::new("/h/.bash-agent/projects/-srv-x"));
        assert_eq!(Base::from_home(None, Some(os(""))).unwrap_err().exit().code(), 2);
    }
}
