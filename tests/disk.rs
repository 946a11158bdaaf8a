//! A file system that is really full, and one that becomes read-only, under both agents (issues 4 and 5). A small tmpfs in
//! a mount namespace of its own; where that is not permitted the tests say so and pass.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test crate")]

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{Ran, World, tape};

/// Mounts 1 MB on $HOME; `fill` and `free` use it up and give it back.
const STAGE: &str = r#"
mount -t tmpfs -o size=1m,mode=700 tmpfs "$HOME"
fill() { dd if=/dev/zero of="$HOME/fill" bs=4096 2>/dev/null || :; }
free() { rm "$HOME/fill"; }
turn() { code=0; "$AGENT" -p script -m "$CASSETTE" --print --session s "$1" >out 2>err || code=$?; }
holds() { grep -q -F -e "$2" "$1" || { echo "no '$2' in $1:"; cat "$1"; exit 1; }; }
ends_with() { [ "$code" = "$1" ] || { echo "exit $code, not $1:"; cat out err; exit 1; }; }
"#;

fn agents() -> [PathBuf; 2] {
    [common::program(), common::bash_agent()]
}

/// Runs the script with each agent; `$D` is the session's directory.
#[track_caller]
fn stage(script: &str) {
    for agent in agents() {
        let world = World::new();
        let mut probe = Command::new("unshare");
        let mounts = "mount -t tmpfs -o size=1m tmpfs \"$HOME\"";
        probe.args(["--mount", "sh", "-c", mounts]).env("HOME", world.home());
        let permitted = probe.output().is_ok_and(|output| output.status.success());
        if !permitted {
            eprintln!("skipped: no mount namespace here (unshare --mount, mount -t tmpfs)");
            return;
        }
        let cassette = world.cassette("cassette", &tape::says("fine"));
        let mut command =
            world.command_of("unshare".as_ref(), ["--mount", "timeout", "60", "bash", "-eu", "-c"]);
        command
            .arg(format!("{STAGE}{script}"))
            .env("AGENT", &agent)
            .env("CASSETTE", cassette)
            .env("D", world.session("s").path())
            .env("BASH_AGENT_CORE", "");
        let ran = Ran::of(command);
        assert_eq!(ran.code, Some(0), "{}: {ran:?}", agent.display());
    }
}

#[test]
fn a_full_disk_is_said_and_nothing_is_lost() {
    stage(
        r#"
turn one; ends_with 0
fill
turn two; ends_with 11; holds err "No space left on device"
free
turn three; ends_with 0
jq -e . "$D/conversation.jsonl" "$D/events.jsonl" >/dev/null
holds "$D/conversation.jsonl" '"content":"one"'
holds "$D/conversation.jsonl" '"content":"three"'
"#,
    );
}

#[test]
fn a_disk_that_becomes_read_only_is_said_and_nothing_is_lost() {
    stage(
        r#"
turn one; ends_with 0
mount -o remount,ro "$HOME"
turn two; ends_with 11; holds err "Read-only file system"
mount -o remount,rw "$HOME"
turn three; ends_with 0
holds "$D/conversation.jsonl" '"content":"one"'
holds "$D/conversation.jsonl" '"content":"three"'
"#,
    );
}

#[test]
fn a_result_that_finds_the_disk_full_is_kept_told_and_delivered() {
    stage(
        r#"
"$AGENT" -p script -m "$CASSETTE" --stay --session s >out 2>err &
agent=$!
until "$AGENT" wait --session s 2>/dev/null; do sleep 0.1; done
fill
long=$(printf '%050000d' 7)
printf '*4\r\n$17\r\nASYNC_TASK_RESULT\r\n$6\r\ntask_7\r\n$1\r\n0\r\n$50000\r\n%s\r\n' "$long" >"$D/notify.fifo"
until grep -q "kept in memory" err; do sleep 0.1; done
free
"$AGENT" send --session s --wait go on >/dev/null
until grep -q -F '[bg-bash task_7]' "$D/conversation.jsonl"; do sleep 0.1; done
"$AGENT" stop --session s
wait "$agent"
[ "$(grep -c -F '[bg-bash task_7] exit_code=0\nOutput: 0000' "$D/conversation.jsonl")" = 1 ]
jq -e . "$D/conversation.jsonl" "$D/events.jsonl" >/dev/null
"#,
    );
}
