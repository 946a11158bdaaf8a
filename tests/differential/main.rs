//! Every part of DESIGN's "Swapping" table through both twins, `bash-agent core …` and the awk program: the same input,
//! recorded or generated, gives the same bytes and the same exit code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test")]

mod commands;
mod data;
mod files;
mod matrix;
mod notify;
mod streams;
mod texts;
mod twins;
