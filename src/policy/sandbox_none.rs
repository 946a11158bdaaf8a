//! No sandbox on this system.

use std::io;
use std::sync::Arc;

use crate::policy::mode::{Mode, Places};

/// Nothing can be prepared here.
pub(super) enum Prepared {}

impl Prepared {
    pub(super) fn enter(&self) -> io::Result<()> {
        match *self {}
    }
}

pub(super) fn prepare(_mode: Mode, _places: &Places) -> io::Result<Option<Arc<Prepared>>> {
    Ok(None)
}

/// There is no bubblewrap either.
pub(super) mod bwrap {
    use super::{Mode, Places, io};
    use std::ffi::OsString;

    pub(in crate::policy) fn is_possible() -> bool {
        false
    }

    pub(in crate::policy) fn words(
        _mode: Mode,
        _places: &Places,
    ) -> io::Result<(Vec<OsString>, Vec<std::os::fd::OwnedFd>)> {
        Err(io::Error::other("there is no bubblewrap on this system"))
    }
}

pub(super) fn version() -> i64 {
    0
}

pub(super) fn needs_detour(_mode: Mode, _places: &Places) -> bool {
    false
}
