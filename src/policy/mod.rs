//! What a tool may do: the mode and its scopes, and the kernel's help to make it true.

pub mod classify;
pub mod mode;
pub mod sandbox;

pub use mode::{Access, Mode, Places, Refusal, Scope};
pub use sandbox::{Cage, Confinement};
