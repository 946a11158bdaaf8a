//! What was prepared for the last command serves the next one too, while nothing that it was made from has changed: a
//! preparation asks the system some seven hundred times, a check a hundred.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::Prepared;
use crate::policy::mode::{Mode, Places};

/// This process's last one.
static LAST: Mutex<Option<Last>> = Mutex::new(None);

struct Last {
    mode: Mode,
    places: Places,
    witness: Witness,
    prepared: Arc<Prepared>,
}

/// The last one, where it is as good as new.
pub(super) fn last(mode: Mode, places: &Places) -> Option<Arc<Prepared>> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.as_ref()
        .filter(|last| last.mode == mode && last.places == *places && last.witness.still_holds())
        .map(|last| Arc::clone(&last.prepared))
}

/// Keeps one for the next command. `witness` saw what it was made from.
pub(super) fn keep(mode: Mode, places: &Places, witness: Witness, prepared: &Arc<Prepared>) {
    // What is covered by mounts is named by paths, whose kinds are not looked at here.
    let is_fit = prepared.hide.is_none() && witness.is_settled(SystemTime::now());
    let last = is_fit.then(|| Last { mode, places: places.clone(), witness, prepared: Arc::clone(prepared) });
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = last;
}

/// Everything that a preparation saw of the file system: which file each path was (`None`: none), and of directories
/// that were listed when they last changed.
#[derive(Default)]
pub(super) struct Witness {
    files: Vec<(PathBuf, Option<Identity>)>,
    listings: Vec<(PathBuf, Option<(Identity, Time)>)>,
}

/// Device, inode, and when that file was made, where the file system knows: inodes of files that are gone serve again.
type Identity = (u64, u64, Option<SystemTime>);

/// Time of the last change, in seconds and nanoseconds.
type Time = (i64, i64);

impl Witness {
    /// Notes which file a path is. Links are not followed.
    pub(super) fn look_at(&mut self, path: &Path) {
        self.files.push((path.to_path_buf(), identity(path)));
    }

    /// Notes a file that was opened, or that there was none.
    pub(super) fn opened(&mut self, path: &Path, file: Option<&Metadata>) {
        self.files.push((path.to_path_buf(), file.map(of)));
    }

    /// The entries of a directory.
    pub(super) fn list(&mut self, path: &Path) -> io::Result<std::fs::ReadDir> {
        // Before it is read: a change in between is then seen as one.
        self.listings.push((path.to_path_buf(), state(path)));
        std::fs::read_dir(path)
    }

    fn still_holds(&self) -> bool {
        self.files.iter().all(|(path, before)| identity(path) == *before)
            && self.listings.iter().all(|(path, before)| state(path) == *before)
    }

    /// Whether a change from now on gives each listed directory another time than it has: file systems count in ticks
    /// of the kernel (10 ms at most), or in whole seconds.
    fn is_settled(&self, now: SystemTime) -> bool {
        self.listings.iter().filter_map(|(_, state)| state.as_ref()).all(|(_, (seconds, nanos))| {
            let tick = Duration::from_millis(if *nanos == 0 { 2000 } else { 20 });
            let changed = Duration::new(
                u64::try_from(*seconds).unwrap_or_default(),
                u32::try_from(*nanos).unwrap_or_default(),
            );
            now.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|now| now > changed + tick)
        })
    }
}

fn identity(path: &Path) -> Option<Identity> {
    path.symlink_metadata().ok().as_ref().map(of)
}

fn of(file: &Metadata) -> Identity {
    (file.dev(), file.ino(), file.created().ok())
}

fn state(path: &Path) -> Option<(Identity, Time)> {
    let directory = path.symlink_metadata().ok()?;
    Some((of(&directory), (directory.ctime(), directory.ctime_nsec())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::thread;

    use super::super::{prepare, version};
    use super::*;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            for dir in ["home/.bash-agent/s", "home/.config", "work"] {
                fs::create_dir_all(world.path(dir)).unwrap();
            }
            world
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn prepare(&self) -> Arc<Prepared> {
            let session_dir = self.path("home/.bash-agent/s");
            let places = Places {
                cwd: self.path("work"),
                home: Some(self.path("home")),
                base_dir: self.path("home/.bash-agent"),
                plan_draft: session_dir.join("plan.draft"),
                session_dir,
                ..Places::default()
            };
            prepare(Mode::DEFAULT, &places).unwrap().unwrap()
        }

        /// One that is kept, once the directories have had their times for long enough.
        fn kept(&self) -> Arc<Prepared> {
            loop {
                let (first, second) = (self.prepare(), self.prepare());
                if Arc::ptr_eq(&first, &second) {
                    return first;
                }
                thread::yield_now();
            }
        }
    }

    /// One test: the one that is kept is the process's. Another test's would only make it wait.
    #[test]
    fn a_sandbox_serves_again_until_something_that_it_was_made_from_changes() {
        if version() == 0 {
            return;
        }
        let world = World::new();
        fs::write(world.path("work/new"), "in a directory that is open as a whole").unwrap();
        let mut last = world.kept();
        let changes: [(&str, &dyn Fn()); 7] = [
            ("a new entry beside something closed", &|| fs::create_dir(world.path("home/new")).unwrap()),
            ("credentials in an open directory", &|| fs::create_dir(world.path("home/.config/gh")).unwrap()),
            ("credentials that are gone", &|| fs::remove_dir(world.path("home/.config/gh")).unwrap()),
            ("the plan", &|| fs::write(world.path("home/.bash-agent/s/plan.draft"), "").unwrap()),
            ("another plan, perhaps with its inode", &|| {
                fs::remove_file(world.path("home/.bash-agent/s/plan.draft")).unwrap();
                fs::write(world.path("home/.bash-agent/s/plan.draft"), "").unwrap();
            }),
            ("another workspace in its place", &|| {
                fs::rename(world.path("work"), world.path("old")).unwrap();
                fs::create_dir(world.path("work")).unwrap();
            }),
            ("a link in its place", &|| {
                fs::remove_dir(world.path("work")).unwrap();
                symlink(world.path("old"), world.path("work")).unwrap();
            }),
        ];
        for (what, change) in changes {
            change();
            assert!(!Arc::ptr_eq(&last, &world.prepare()), "{what}");
            last = world.kept();
        }
    }

    #[test]
    fn a_time_is_trusted_when_the_next_one_would_differ() {
        let at = |seconds, nanos| Witness {
            listings: vec![(PathBuf::from("/"), Some(((0, 0, None), (seconds, nanos))))],
            ..Witness::default()
        };
        let now = SystemTime::UNIX_EPOCH + Duration::new(100, 30_000_000);
        assert!(at(100, 9_000_000).is_settled(now));
        assert!(!at(100, 10_000_000).is_settled(now));
        assert!(!at(99, 0).is_settled(now), "whole seconds");
        assert!(at(98, 0).is_settled(now));
        assert!(!at(200, 1).is_settled(now), "a clock that is ahead");
    }
}
