//! What a person sees (CONTRACT §14), and the other output formats (§13).

pub mod approve;
pub mod out;
pub mod part;
pub mod plain;
pub mod render;
pub mod replay;
pub mod screen;
pub mod term;
pub mod title;
