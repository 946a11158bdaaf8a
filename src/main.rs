//! The `bash-agent` program.

fn main() {}
