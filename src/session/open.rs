//! Opening a session: finding or making it, owning it, and putting right what a dead owner left (CONTRACT §2, §4, §7).

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::conversation::{Conversation, ToolResult, tool_results_line};
use super::error::{SessionError, StorageError};
use super::events::{self, EventLog};
use super::files::{Durability, ensure_dir, make_dir, open_append, remove};
use super::lock::{OwnerLock, StateLock};
use super::mend::LOST_RESULT;
use super::meta::Meta;
use super::paths::{Base, SessionDir, valid_name};
use super::stats::Stats;
use super::{active, archive, files, input, listing, notify, tail, time};

/// Which session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// A new one with an id of its own.
    New,
    /// The one of this name, made when it is missing.
    Named(String),
    /// The newest of the directory.
    Latest,
}

/// What to open.
#[derive(Clone, Debug)]
pub struct OpenOptions<'a> {
    /// The base directory.
    pub base: &'a Base,
    /// The physical working directory.
    pub cwd: &'a Path,
    /// The session, or with `fork` the one to copy.
    pub pick: Pick,
    /// Open a new session that begins as a copy; `Pick::New` copies the newest.
    pub fork: bool,
}

/// A session that this process owns.
#[derive(Debug)]
pub struct Session {
    /// Its files.
    pub dir: SessionDir,
    /// events.jsonl was empty: a `session_start` event is due.
    pub fresh: bool,
    /// What was found broken and put right, in sentences for stderr and `error` events.
    pub notes: Vec<String>,
    /// conversation.jsonl.
    pub conversation: Conversation,
    /// session.json.
    pub meta: Meta,
    /// stats.json at opening.
    pub stats: Stats,
    /// The directories' entries of a new session's files are not known to be on the disk.
    unsynced_dirs: bool,
    // Held as long as the session is open.
    _lock: OwnerLock,
}

impl Session {
    /// Opens a session and owns it until it is dropped. Makes what is missing, ends or cuts off torn tails, gives
    /// calls that a crash left open their results, puts results that were being taken back, and sweeps FIFOs, flag
    /// and counters of a dead owner. Reads only the ends of the long files.
    pub fn open(options: &OpenOptions<'_>) -> Result<Self, SessionError> {
        let dir = locate(options)?;
        let lock = OwnerLock::take(&dir)?;
        let mut notes = Vec::new();
        sweep(&dir)?;
        notes.extend(archive::recover(&dir)?);
        notes.extend(make_files(&dir)?);
        let meta = open_meta(&dir, options.cwd, &mut notes)?;
        let mut conversation = Conversation::open(&dir)?;
        notes.extend(close_calls(&dir, &mut conversation)?);
        input::recover(&dir)?;
        notes.extend(recover_inputs(&dir)?);
        notes.extend(recover_results(&dir)?);
        let stats = open_stats(&dir, &mut notes)?;
        let fresh = events::is_empty(&dir.events());
        open_append(&dir.events())?;
        Ok(Self { dir, fresh, notes, conversation, meta, stats, unsynced_dirs: fresh, _lock: lock })
    }

    /// events.jsonl, for appending by the session's owner.
    pub fn event_log(&self) -> Result<EventLog, SessionError> {
        EventLog::open(&self.dir)
    }

    /// What is to be synced (`File::sync_data`, on any thread) so that all lines appended up to now survive a power
    /// cut: conversation and events, and for a new session, the first time, the directories that name them.
    pub fn sync_handles(&mut self, events: &EventLog) -> Result<Vec<fs::File>, StorageError> {
        let mut handles = vec![self.conversation.sync_handle()?, events.sync_handle()?];
        if self.unsynced_dirs {
            // Session, project, all projects, base, and where that lies.
            for dir in self.dir.path().ancestors().take(5) {
                handles.push(fs::File::open(dir).map_err(StorageError::at("sync", dir))?);
            }
            self.unsynced_dirs = false;
        }
        Ok(handles)
    }

    /// A turn is being worked on (CONTRACT §2, agent_running.flag).
    pub fn raise_flag(&self) -> Result<(), StorageError> {
        let content = format!("{}\n", std::process::id());
        files::replace(&self.dir.running_flag(), content.as_bytes(), Durability::Atomic)
    }

    /// No turn is being worked on.
    pub fn lower_flag(&self) -> Result<(), StorageError> {
        remove(&self.dir.running_flag()).map(drop)
    }

    /// Takes away what exists only while an agent runs, then gives the session up. Goes on when something cannot be
    /// removed; the first error is returned.
    pub fn close(self) -> Result<(), StorageError> {
        let dir = &self.dir;
        let paths =
            [dir.input_fifo(), dir.notify_fifo(), dir.running_flag(), dir.active_count(), dir.active_list()];
        let removed = paths.map(|path| remove(&path).map(drop));
        removed.into_iter().collect()
    }

    /// The session's id or name.
    pub fn name(&self) -> String {
        self.dir.name()
    }
}

/// Finds a session without owning or changing it; `None` is the newest of the directory.
pub fn find(base: &Base, cwd: &Path, name: Option<&str>) -> Result<SessionDir, SessionError> {
    let project = base.project(cwd);
    let Some(name) = name else {
        let newest = listing::newest(base, cwd)?;
        return newest.ok_or_else(|| SessionError::NoSession { what: "no session yet".to_owned(), project });
    };
    valid_name(name)?;
    let dir = base.session(cwd, name);
    if !dir.path().is_dir() {
        return Err(SessionError::NoSession { what: format!("no session {name}"), project });
    }
    Ok(dir)
}

/// A new session directory beside `parent`, `sub_` and an id that no other has, queued or running.
pub fn new_child(parent: &SessionDir) -> Result<SessionDir, StorageError> {
    let project = parent.path().parent().unwrap_or(parent.path());
    loop {
        let dir = SessionDir::new(project.join(format!("sub_{}", time::new_id())));
        if make_dir(dir.path())? {
            return Ok(dir);
        }
    }
}

/// Fills a new session directory with what a fork takes along (CONTRACT §7, §13): for a sub-agent that starts from a
/// copy of its parent's conversation, without a line whose calls still run.
pub fn copy_to(source: &SessionDir, target: &SessionDir) -> Result<(), SessionError> {
    ensure_dir(target.path())?;
    fill(source, target)
}

/// The directory of the session to open, made when it is missing.
fn locate(options: &OpenOptions<'_>) -> Result<SessionDir, SessionError> {
    let OpenOptions { base, cwd, .. } = *options;
    if let Pick::Named(name) = &options.pick {
        valid_name(name)?;
    }
    if options.fork {
        let source = match &options.pick {
            Pick::Named(name) => find(base, cwd, Some(name))?,
            Pick::New | Pick::Latest => find(base, cwd, None)?,
        };
        let dir = make_new(base, cwd)?;
        return match fill(&source, &dir) {
            Ok(()) => Ok(dir),
            Err(error) => {
                // Nobody has seen it: half a copy is worth nothing.
                let _ = fs::remove_dir_all(dir.path());
                Err(error)
            }
        };
    }
    match &options.pick {
        Pick::New => make_new(base, cwd),
        Pick::Latest => find(base, cwd, None).and_then(own_dir),
        Pick::Named(name) => {
            make_project(base, cwd)?;
            let dir = base.session(cwd, name);
            ensure_dir(dir.path())?;
            own_dir(dir)
        }
    }
}

/// Makes a session with an id of its own.
fn make_new(base: &Base, cwd: &Path) -> Result<SessionDir, SessionError> {
    make_project(base, cwd)?;
    loop {
        let dir = base.session(cwd, &time::new_id());
        if make_dir(dir.path())? {
            return Ok(dir);
        }
    }
}

/// Makes the directories above a session. The home directory itself is made only where its parent exists: a path that
/// is wrong from further up is a mistake, or a disk that is not mounted.
fn make_project(base: &Base, cwd: &Path) -> Result<(), SessionError> {
    if base.path().is_dir() {
        ensure_dir(&base.projects())?;
        return ensure_dir(&base.project(cwd));
    }
    if let Some(home) = base.path().parent().filter(|home| !home.as_os_str().is_empty())
        && !home.is_dir()
    {
        if !home.parent().is_some_and(Path::is_dir) {
            return Err(SessionError::HomeMissing(home.to_path_buf()));
        }
        ensure_dir(home)?;
    }
    ensure_dir(base.path())?;
    ensure_dir(&base.projects())?;
    ensure_dir(&base.project(cwd))
}

/// A session's directory, once it is sure that it is ours.
fn own_dir(dir: SessionDir) -> Result<SessionDir, SessionError> {
    let uid = fs::metadata(dir.path()).map_err(StorageError::at("open", dir.path()))?.uid();
    let own = nix::unistd::geteuid().as_raw();
    if uid != own {
        return Err(SessionError::NotOwned { path: dir.path().to_path_buf(), uid, own });
    }
    Ok(dir)
}

/// Removes what stands only while an agent runs.
fn sweep(dir: &SessionDir) -> Result<(), SessionError> {
    for path in [dir.input_fifo(), dir.notify_fifo()] {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.file_type().is_fifo() => {
                remove(&path)?;
            }
            Ok(_) => return Err(SessionError::WrongKind { path, expected: "FIFO" }),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(StorageError::at("look at", &path)(error).into()),
        }
    }
    remove(&dir.running_flag())?;
    sweep_temporaries(dir)?;
    Ok(())
}

/// Removes new contents of files that never took their place. Who else replaces files here holds state.lock.
fn sweep_temporaries(dir: &SessionDir) -> Result<(), StorageError> {
    let _lock = StateLock::take(dir)?;
    let read = |error| StorageError::at("read", dir.path())(error);
    for entry in fs::read_dir(dir.path()).map_err(read)? {
        let entry = entry.map_err(read)?;
        let name = entry.file_name();
        // `.new`: the Bash agent's.
        let is_temporary =
            [".tmp", ".new"].iter().any(|end| name.as_encoded_bytes().ends_with(end.as_bytes()));
        if is_temporary && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Inputs that a dead owner never read.
fn recover_inputs(dir: &SessionDir) -> Result<Vec<String>, SessionError> {
    if !fs::exists(dir.input_dir()).unwrap_or(true) {
        return Ok(Vec::new());
    }
    let last = tail::last_user_line(dir)?;
    Ok(input::set_aside(dir, last.as_deref())?)
}

/// Results that a dead owner had not delivered go back into notify.buf; then nothing is open any more.
fn recover_results(dir: &SessionDir) -> Result<Option<String>, SessionError> {
    let mut note = None;
    if fs::exists(dir.notify_taken()).unwrap_or(true) || fs::exists(dir.notify_buf()).unwrap_or(true) {
        let last = tail::last_user_line(dir)?;
        note = notify::recover(dir, last.as_deref())?;
    }
    notify::restore(dir, &active::entries(dir)?)?;
    active::reset(dir)?;
    Ok(note)
}

/// Makes the kept files that are missing and mends the ends of the others. Returns what to tell the user.
fn make_files(dir: &SessionDir) -> Result<Vec<String>, SessionError> {
    ensure_dir(&dir.images())?;
    let mut notes = Vec::new();
    for path in [dir.conversation(), dir.archive()] {
        notes.extend(tail::repair(&path)?);
    }
    {
        // A child or task of a dead owner may still be writing its last event.
        let _lock = StateLock::take(dir)?;
        notes.extend(tail::repair(&dir.events())?);
    }
    for path in [dir.summary(), dir.plan(), dir.plan_draft(), dir.input_ids()] {
        open_append(&path)?;
    }
    Ok(notes)
}

/// Reads the stats; those of a new session are made, missing ones reported and made.
fn open_stats(dir: &SessionDir, notes: &mut Vec<String>) -> Result<Stats, SessionError> {
    let (stats, note) = Stats::load(&dir.stats())?;
    if !fs::exists(dir.stats()).unwrap_or(true) {
        zero_stats(dir)?;
        let is_new = fs::metadata(dir.conversation()).is_ok_and(|file| file.len() == 0);
        notes.extend(note.filter(|_| !is_new));
    } else {
        notes.extend(note);
    }
    Ok(stats)
}

fn zero_stats(dir: &SessionDir) -> Result<(), StorageError> {
    let stats = Stats { last_updated: time::Timestamp::now().local_compact(), ..Stats::default() };
    stats.store(&dir.stats(), Durability::Atomic)
}

fn open_meta(dir: &SessionDir, cwd: &Path, notes: &mut Vec<String>) -> Result<Meta, SessionError> {
    let Some(mut meta) = Meta::load(dir)? else {
        let meta = Meta::new(cwd);
        meta.store(dir)?;
        return Ok(meta);
    };
    if meta.cwd.is_empty() {
        meta.cwd = Meta::new(cwd).cwd;
        meta.store(dir)?;
    } else if !meta.is_of(cwd) {
        notes.push(format!(
            "session {} was made in {}, not here",
            dir.name(),
            super::error::shown(Path::new(&meta.cwd))
        ));
    }
    Ok(meta)
}

/// Calls at the conversation's end that have no results get results that say so.
fn close_calls(dir: &SessionDir, conversation: &mut Conversation) -> Result<Option<String>, SessionError> {
    let Some((_, calls)) = tail::open_calls(&dir.conversation())? else { return Ok(None) };
    let count = calls.len();
    let lost = |id| ToolResult { id, content: LOST_RESULT.to_owned(), is_error: true };
    let results: Vec<_> = calls.into_iter().map(lost).collect();
    conversation.append_line(&tool_results_line(&results))?;
    Ok(Some(match count {
        1 => "the last run ended while a tool call ran: its outcome is unknown".to_owned(),
        _ => format!("the last run ended while {count} tool calls ran: their outcome is unknown"),
    }))
}

/// Copies into a new session what a fork takes along (CONTRACT §13): not events, not stats.
fn fill(source: &SessionDir, target: &SessionDir) -> Result<(), SessionError> {
    let pairs = [
        (source.conversation(), target.conversation()),
        (source.archive(), target.archive()),
        (source.summary(), target.summary()),
        (source.plan(), target.plan()),
        (source.plan_draft(), target.plan_draft()),
    ];
    for (from, to) in &pairs {
        copy_file(from, to)?;
    }
    // The source may be running: its last line may be half written, or have calls that are being run.
    tail::repair(&target.conversation())?;
    tail::repair(&target.archive())?;
    let path = target.conversation();
    if let Some((offset, _)) = tail::open_calls(&path)? {
        open_append(&path)?.set_len(offset).map_err(StorageError::at("cut", &path))?;
    }
    copy_images(source, target)?;
    zero_stats(target)?;
    if let Some(old) = Meta::load(source)? {
        let meta = Meta { created: time::Timestamp::now().ts(), ..old };
        meta.store(target)?;
    }
    Ok(())
}

fn copy_images(source: &SessionDir, target: &SessionDir) -> Result<(), SessionError> {
    ensure_dir(&target.images())?;
    let images = match fs::read_dir(source.images()) {
        Ok(images) => images,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StorageError::at("read", &source.images())(error).into()),
    };
    for image in images {
        let image = image.map_err(StorageError::at("read", &source.images()))?;
        if image.file_type().is_ok_and(|kind| kind.is_file()) {
            copy_file(&image.path(), &target.images().join(image.file_name()))?;
        }
    }
    Ok(())
}

/// Appends what a file holds now to another; one that is missing holds nothing.
fn copy_file(from: &Path, to: &Path) -> Result<(), SessionError> {
    let mut target = open_append(to)?;
    let source = match fs::File::open(from) {
        Ok(source) => source,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StorageError::at("read", from)(error).into()),
    };
    let size = source.metadata().map_err(StorageError::at("read", from))?.len();
    io::copy(&mut source.take(size), &mut target).map_err(StorageError::at("write", to))?;
    Ok(())
}

#[cfg(test)]
mod tests;
