//! bash-agent: a coding agent made of files, FIFOs and filters.
//!
//! The crate is built in floors; each knows only those below it:
//! `cli` → `ui` → `agent` → `model` · `tools` · `runtime` → `session` → `wire` · `policy`.

pub mod agent;
pub mod cli;
pub mod config;
pub mod exit;
pub mod model;
pub mod policy;
pub mod runtime;
pub mod session;
pub mod tools;
pub mod ui;
pub mod wire;
