//! The `bash-agent` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    bash_agent::cli::main(std::env::args_os())
}
