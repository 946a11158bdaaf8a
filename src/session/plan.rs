//! The plan and its draft (CONTRACT §2).

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

use super::error::StorageError;
use super::files::{Durability, open_append_again, read_small, replace, sync_parent};
use super::paths::SessionDir;

/// Whether there is a draft that is not blank.
pub fn has_draft(dir: &SessionDir) -> Result<bool, StorageError> {
    let content = read_small(&dir.plan_draft())?.unwrap_or_default();
    Ok(!content.trim_ascii().is_empty())
}

/// Moves the draft to plan.md and leaves an empty draft. `false`: there is no draft, or it is blank; nothing changed.
pub fn confirm(dir: &SessionDir) -> Result<bool, StorageError> {
    let draft = dir.plan_draft();
    if !has_draft(dir)? {
        return Ok(false);
    }
    let moved = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&draft).and_then(|file| {
        // The model's tools made it, with a mode of their own.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.sync_all()?;
        fs::rename(&draft, dir.plan())?;
        sync_parent(&draft)
    });
    moved.map_err(StorageError::at("move", &draft))?;
    open_append_again(&draft)?;
    Ok(true)
}

/// Empties plan.md.
pub fn clear(dir: &SessionDir) -> Result<(), StorageError> {
    replace(&dir.plan(), b"", Durability::Synced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_confirmed_once_and_a_plan_cleared() {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        assert!(!confirm(&dir).unwrap());
        fs::write(dir.plan_draft(), " \n").unwrap();
        assert!(!confirm(&dir).unwrap());
        fs::write(dir.plan_draft(), "1. do it\n").unwrap();
        assert!(confirm(&dir).unwrap());
        assert_eq!(fs::read_to_string(dir.plan()).unwrap(), "1. do it\n");
        assert_eq!(fs::read(dir.plan_draft()).unwrap(), b"");
        assert_eq!(fs::metadata(dir.plan()).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(!confirm(&dir).unwrap());
        clear(&dir).unwrap();
        assert_eq!(fs::read(dir.plan()).unwrap(), b"");
    }
}
