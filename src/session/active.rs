//! active_sub.list and active_sub.count: the children and background tasks that have not answered yet (CONTRACT §2).
//! The list is the truth, the count is its number of lines; both change under one hold of state.lock.

use super::error::StorageError;
use super::files::{read_small, replace_both};
use super::lock::StateLock;
use super::paths::SessionDir;

/// A child or task that has not answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// `sub_…` or `task_…`.
    pub id: String,
    /// Its process; 0 while it is queued.
    pub pid: u32,
}

/// Adds a child or task, before it starts; one that is listed only gets the pid. Returns how many are open now.
pub fn add(dir: &SessionDir, id: &str, pid: u32) -> Result<u64, StorageError> {
    let lock = StateLock::take(dir)?;
    let mut entries = entries(dir)?;
    match entries.iter_mut().find(|entry| entry.id == id) {
        Some(entry) => entry.pid = pid,
        None => entries.push(Active { id: id.to_owned(), pid }),
    }
    store(&lock, dir, &entries)
}

/// Notes the process of a child or task, unless it has answered already.
pub fn set_pid(dir: &SessionDir, id: &str, pid: u32) -> Result<(), StorageError> {
    let lock = StateLock::take(dir)?;
    let mut entries = entries(dir)?;
    if let Some(entry) = entries.iter_mut().find(|entry| entry.id == id) {
        entry.pid = pid;
        store(&lock, dir, &entries)?;
    }
    Ok(())
}

/// Takes a child or task out: it could not be started. Returns whether it was listed.
pub fn remove(dir: &SessionDir, id: &str) -> Result<bool, StorageError> {
    let lock = StateLock::take(dir)?;
    remove_locked(&lock, dir, id)
}

/// Empties the list, as at a start: what a dead owner had started ends with it.
pub fn reset(dir: &SessionDir) -> Result<(), StorageError> {
    let lock = StateLock::take(dir)?;
    let is_reset = read_small(&dir.active_list())?.is_some_and(|list| list.is_empty())
        && read_small(&dir.active_count())?.is_some_and(|count| count == b"0\n");
    // Replacing a file can cost a millisecond, and this is the usual case.
    if is_reset { Ok(()) } else { store(&lock, dir, &[]).map(drop) }
}

/// All that are open, in the order they were added. Needs no lock: the file is replaced whole.
pub fn entries(dir: &SessionDir) -> Result<Vec<Active>, StorageError> {
    let content = read_small(&dir.active_list())?.unwrap_or_default();
    let lines = String::from_utf8_lossy(&content);
    let entry = |line: &str| {
        let (id, pid) = line.rsplit_once(' ')?;
        Some(Active { id: id.to_owned(), pid: pid.parse().unwrap_or(0) })
    };
    Ok(lines.lines().filter_map(entry).collect())
}

/// `remove` for who holds the lock already.
pub(super) fn remove_locked(lock: &StateLock, dir: &SessionDir, id: &str) -> Result<bool, StorageError> {
    let mut entries = entries(dir)?;
    let before = entries.len();
    entries.retain(|entry| entry.id != id);
    let was_listed = entries.len() < before;
    if was_listed {
        store(lock, dir, &entries)?;
    }
    Ok(was_listed)
}

fn store(_lock: &StateLock, dir: &SessionDir, entries: &[Active]) -> Result<u64, StorageError> {
    let list: String = entries.iter().map(|entry| format!("{} {}\n", entry.id, entry.pid)).collect();
    let count = entries.len() as u64;
    let text = format!("{count}\n");
    replace_both([(&dir.active_list(), list.as_bytes()), (&dir.active_count(), text.as_bytes())])?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_the_lists_length_and_never_below_zero() {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        let count = || std::fs::read_to_string(dir.active_count()).unwrap();
        assert_eq!(add(&dir, "sub_1", 0).unwrap(), 1);
        assert_eq!(add(&dir, "task_1", 77).unwrap(), 2);
        set_pid(&dir, "sub_1", 78).unwrap();
        set_pid(&dir, "sub_answered", 79).unwrap();
        assert_eq!(std::fs::read_to_string(dir.active_list()).unwrap(), "sub_1 78\ntask_1 77\n");
        assert!(remove(&dir, "sub_1").unwrap());
        assert!(!remove(&dir, "sub_1").unwrap());
        assert!(!remove(&dir, "never").unwrap());
        assert_eq!((count().as_str(), entries(&dir).unwrap().len()), ("1\n", 1));
        assert!(remove(&dir, "task_1").unwrap());
        assert!(!remove(&dir, "task_1").unwrap());
        assert_eq!(count(), "0\n");
        add(&dir, "sub_2", 0).unwrap();
        reset(&dir).unwrap();
        assert_eq!((count().as_str(), entries(&dir).unwrap().len()), ("0\n", 0));
    }
}
