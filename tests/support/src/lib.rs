//! A model server on 127.0.0.1 for tests and benches.
//!
//! An [`Answer`] is written once, as blocks, and rendered in the dialect of the path that was asked: `/messages`
//! (Anthropic), `/chat/completions`, `/responses`. A [`Server`] gives the answers in order or by a text in the
//! request's body, holds a stream where the answer says `wait NAME` until the test releases that name, and keeps
//! every request. Nothing in here sleeps.

pub mod answer;
pub mod dialect;
pub mod http;
pub mod server;

pub use answer::Answer;
pub use dialect::Dialect;
pub use server::{After, Recorded, Rule, Server, When};
