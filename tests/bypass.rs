//! What commands must not be able to do, and what they must (CONTRACT §12; CASES O, P): `fixtures/bypass.toml` and
//! `fixtures/everyday.toml`, run by both runtimes under every sandbox that this machine has.
//!
//! A row of the bypass table is a command and an effect. An agent's model asks for the command twice, as it is and
//! veiled (`eval` of base64, which only the sandbox can hold); afterwards no effect may be there. As the counter-check
//! the same command runs free, and then there must be one: a row that shows nothing fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test crate")]

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("bypass: skipped, no sandbox is tested on this system");
}

#[cfg(target_os = "linux")]
mod common;

#[cfg(target_os = "linux")]
#[path = "bypass/linux.rs"]
mod linux;

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}
