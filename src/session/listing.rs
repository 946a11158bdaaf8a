//! The sessions of a directory: which there are, which is the newest, and how they are listed (CONTRACT §13).

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};

use super::error::StorageError;
use super::files::{SMALL_FILE, read_up_to};
use super::lock::probe;
use super::meta::Meta;
use super::paths::{Base, SessionDir};
use super::time::Timestamp;
use crate::wire::json;

/// Sub-agents' sessions begin so; they are never listed.
const SUB_AGENT: &str = "sub_";
/// A preview longer than this, in characters, is cut.
const PREVIEW_MAX: usize = 60;
const PREVIEW_KEPT: usize = 57;
/// How much of a summary is read for its first line.
const SUMMARY_READ: usize = 4096;

/// One session in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id or name.
    pub name: String,
    /// When its events.jsonl was last written.
    pub modified: Timestamp,
    /// The first line of its summary, cut to 60 characters.
    pub preview: String,
}

/// A session and when its events.jsonl was last written, in seconds and nanoseconds.
struct Found {
    name: String,
    modified: (i64, i64),
}

/// The sessions of `cwd` (a physical path), the newest first; sub-agents' and those of another directory with the same
/// key are left out. A project without a directory has none.
pub fn list(base: &Base, cwd: &Path) -> Result<Vec<Entry>, StorageError> {
    let Some(project) = Project::open(base, cwd)? else { return Ok(Vec::new()) };
    let found = project.newest_first()?;
    let entry = |found: &Found| {
        project.has(&found.name).then(|| Entry {
            name: found.name.clone(),
            modified: Timestamp::from_millis(found.modified.0 * 1000 + found.modified.1 / 1_000_000),
            preview: preview(&project.read(&relative(&found.name).summary(), SUMMARY_READ)),
        })
    };
    Ok(found.iter().filter_map(entry).collect())
}

/// The session whose events.jsonl was written last: the one that `--continue` takes.
pub fn newest(base: &Base, cwd: &Path) -> Result<Option<SessionDir>, StorageError> {
    first(base, cwd, |_| true)
}

/// The newest session that an agent runs.
pub fn newest_running(base: &Base, cwd: &Path) -> Result<Option<SessionDir>, StorageError> {
    first(base, cwd, |dir| probe(dir).is_some())
}

fn first(
    base: &Base,
    cwd: &Path,
    fits: impl Fn(&SessionDir) -> bool,
) -> Result<Option<SessionDir>, StorageError> {
    let Some(project) = Project::open(base, cwd)? else { return Ok(None) };
    let found = project.newest_first()?;
    let mut dirs = found.iter().map(|found| (&found.name, SessionDir::new(project.path.join(&found.name))));
    Ok(dirs.find(|(name, dir)| fits(dir) && project.has(name)).map(|(_, dir)| dir))
}

/// A project's directory, open: looking names up from there is cheaper than by whole paths.
struct Project<'a> {
    dir: File,
    path: PathBuf,
    cwd: &'a Path,
}

impl<'a> Project<'a> {
    /// `None`: the project has no directory.
    fn open(base: &Base, cwd: &'a Path) -> Result<Option<Self>, StorageError> {
        let path = base.project(cwd);
        match File::open(&path) {
            Ok(dir) => Ok(Some(Self { dir, path, cwd })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::at("read", &path)(error)),
        }
    }

    fn newest_first(&self) -> Result<Vec<Found>, StorageError> {
        let entries = fs::read_dir(&self.path).map_err(StorageError::at("read", &self.path))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(StorageError::at("read", &self.path))?;
            names.extend(entry.file_name().into_string().ok().filter(|name| !name.starts_with(SUB_AGENT)));
        }
        let find = |name: String| {
            // What has no events is no session (yet).
            let events = fstatat(&self.dir, &relative(&name).events(), AtFlags::empty()).ok()?;
            Some(Found { name, modified: (events.st_mtime, events.st_mtime_nsec) })
        };
        let mut found: Vec<_> = names.into_iter().filter_map(find).collect();
        found.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| b.name.cmp(&a.name)));
        Ok(found)
    }

    /// Whether a session works in this directory or, as older ones, does not say.
    fn has(&self, name: &str) -> bool {
        Meta::parse(&self.read(&relative(name).meta(), SMALL_FILE)).is_none_or(|meta| meta.is_of(self.cwd))
    }

    /// The start of a file in the project's directory; nothing when it cannot be read.
    fn read(&self, path: &Path, limit: usize) -> Vec<u8> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = openat(&self.dir, path, flags, Mode::empty()).map(File::from);
        file.ok().and_then(|file| read_up_to(&file, limit).ok()).unwrap_or_default()
    }
}

/// A session as seen from its project's directory.
fn relative(name: &str) -> SessionDir {
    SessionDir::new(PathBuf::from(name))
}

/// The first line of a summary that is not blank, without control characters, cut.
fn preview(summary: &[u8]) -> String {
    let text = json::clean(summary);
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim_end();
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= PREVIEW_MAX {
        return line;
    }
    line.chars().take(PREVIEW_KEPT).collect::<String>() + "..."
}

/// The table of `--list-sessions`, line feeds included.
pub fn table(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "No sessions found.\n".to_owned();
    }
    let mut out = row("NAME", "MODIFIED", "PREVIEW");
    for entry in entries {
        out.push_str(&row(&entry.name, &entry.modified.local_minute(), &entry.preview));
    }
    out
}

fn row(name: &str, modified: &str, preview: &str) -> String {
    format!("{name:<40} {modified:<16} {preview}\n")
}

/// The list as NDJSON, the newest first: `{"session_id":…,"modified":…,"preview":…,"path":…}` a line.
pub fn ndjson(entries: &[Entry], project: &Path) -> String {
    let mut out = Vec::new();
    for entry in entries {
        let path = project.join(&entry.name);
        let texts = [
            ("{\"session_id\":", entry.name.as_str()),
            (",\"modified\":", &entry.modified.ts()),
            (",\"preview\":", &entry.preview),
            (",\"path\":", &path.to_string_lossy()),
        ];
        for (key, text) in texts {
            out.extend_from_slice(key.as_bytes());
            json::string_into(&mut out, text);
        }
        out.extend_from_slice(b"}\n");
    }
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    struct Fixture {
        _temp: tempfile::TempDir,
        base: Base,
    }

    impl Fixture {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let base = Base::new(temp.path().join(".bash-agent"));
            Self { _temp: temp, base }
        }

        fn session(&self, cwd: &str, name: &str, age: u64) -> SessionDir {
            let dir = self.base.session(Path::new(cwd), name);
            fs::create_dir_all(dir.path()).unwrap();
            let events = File::create(dir.events()).unwrap();
            events.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000 - age)).unwrap();
            dir
        }

        fn names(&self, cwd: &str) -> Vec<String> {
            list(&self.base, Path::new(cwd)).unwrap().into_iter().map(|entry| entry.name).collect()
        }
    }

    #[test]
    fn the_newest_comes_first_and_others_are_left_out() {
        let f = Fixture::new();
        assert_eq!(f.names("/a/b"), [""; 0]);
        assert_eq!(newest(&f.base, Path::new("/a/b")).unwrap(), None);
        f.session("/a/b", "old", 30);
        f.session("/a/b", "new one", 10);
        f.session("/a/b", "sub_1", 1);
        let foreign = f.session("/a-b", "foreign", 2);
        Meta::new(Path::new("/a-b")).store(&foreign).unwrap();
        fs::create_dir(f.base.project(Path::new("/a/b")).join("no session")).unwrap();
        assert_eq!(f.names("/a/b"), ["new one", "old"]);
        assert_eq!(f.names("/a-b"), ["foreign", "new one", "old"]);
        assert_eq!(newest(&f.base, Path::new("/a/b")).unwrap().unwrap().name(), "new one");
        assert_eq!(newest_running(&f.base, Path::new("/a/b")).unwrap(), None);
        let old = f.base.session(Path::new("/a/b"), "old");
        let _lock = super::super::lock::OwnerLock::take(&old).unwrap();
        assert_eq!(newest_running(&f.base, Path::new("/a/b")).unwrap(), Some(old));
    }

    #[test]
    fn the_table_has_the_contracts_form() {
        let f = Fixture::new();
        assert_eq!(table(&[]), "No sessions found.\n");
        let dir = f.session("/p", "s", 0);
        fs::write(dir.summary(), format!("\n{}\u{1b}[31m\nsecond", "é".repeat(61))).unwrap();
        let entries = list(&f.base, Path::new("/p")).unwrap();
        let minute = entries[0].modified.local_minute();
        assert_eq!(
            table(&entries),
            format!(
                "NAME{} MODIFIED{} PREVIEW\ns{} {minute} {}...\n",
                " ".repeat(36),
                " ".repeat(8),
                " ".repeat(39),
                "é".repeat(57)
            )
        );
        assert_eq!(minute.len(), 16);
        let json = ndjson(&entries, Path::new("/x"));
        assert!(
            json.starts_with(
                "{\"session_id\":\"s\",\"modified\":\"2033-05-18T03:33:20.000Z\",\"preview\":\"é"
            ),
            "{json}"
        );
        assert!(json.ends_with("...\",\"path\":\"/x/s\"}\n"));
    }

    #[test]
    fn a_preview_of_sixty_characters_is_whole() {
        for length in [60, 61] {
            let preview = preview("x".repeat(length).as_bytes());
            assert_eq!((preview.len(), preview.ends_with("...")), (60, length > 60));
        }
    }
}
