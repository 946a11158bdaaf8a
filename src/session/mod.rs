//! What is kept: the session directory (CONTRACT §1, §2, §4–§6).

mod error;
mod files;
pub(crate) mod mend;
mod open;
mod tail;

pub mod active;
pub mod archive;
pub mod conversation;
pub mod events;
pub mod images;
pub mod input;
pub mod leave_out;
pub mod listing;
pub mod lock;
pub mod meta;
pub mod notify;
pub mod paths;
pub mod plan;
pub mod stats;
#[cfg(test)]
pub(crate) mod testing;
pub mod time;
pub mod window;

pub use error::{SessionError, StorageError};
pub use files::Durability;
pub use open::{OpenOptions, Pick, Session, copy_to, find, new_child};
