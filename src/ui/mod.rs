//! What a person sees (CONTRACT §14), and the other output formats (§13).

pub mod out;
pub mod part;
pub mod render;
pub mod repl;
pub mod replay;
pub mod screen;
pub mod title;
