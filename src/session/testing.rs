//! A session directory for tests.

use super::paths::SessionDir;

/// An empty one; it is gone with the first of the two.
pub(crate) fn session() -> (tempfile::TempDir, SessionDir) {
    let temp = tempfile::tempdir().unwrap();
    let dir = SessionDir::new(temp.path().to_path_buf());
    (temp, dir)
}
