//! A file system that is really full, one that becomes read-only, and one without locks, under both agents (issues 4
//! and 5). The first two are a small tmpfs in a mount namespace of its own; where that is not permitted the tests say so
//! and pass. For the last a seccomp filter answers each flock(2).
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test crate")]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ran, Running, World, tape};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

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

/// Each flock(2) of `command` and of all that it starts fails with `errno`.
fn without_locks(command: &mut Command, errno: i32) {
    let rules = BTreeMap::from([(libc::SYS_flock, Vec::new())]);
    let fails = SeccompAction::Errno(errno.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, fails, arch).unwrap();
    let program = BpfProgram::try_from(filter).unwrap();
    // SAFETY: the filter is made; installing it is two prctl calls, which a forked child may make.
    unsafe {
        command.pre_exec(move || {
            seccompiler::apply_filter(&program).map_err(|_| io::Error::from_raw_os_error(errno))
        });
    }
}

/// The programs of PATH but `flock`, as links in `dir`.
fn path_without_flock(dir: &Path) -> OsString {
    fs::create_dir(dir).unwrap();
    for from in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for entry in fs::read_dir(from).into_iter().flatten() {
            let entry = entry.unwrap();
            if entry.file_name() != "flock" {
                // The first of a name is the one that PATH means.
                let _ = symlink(entry.path(), dir.join(entry.file_name()));
            }
        }
    }
    dir.into()
}

#[test]
fn a_file_system_without_locks_is_named() {
    let world = World::new();
    let cassette = world.cassette("cassette", &tape::says("fine"));
    // The Bash agent takes flock(1), else perl.
    let own = std::env::var_os("PATH").unwrap();
    let perl = path_without_flock(&world.root().join("perl"));
    let runs = [(common::program(), &own), (common::bash_agent(), &own), (common::bash_agent(), &perl)];
    for (agent, path) in runs {
        for errno in [libc::ENOLCK, libc::ENOSYS, libc::EOPNOTSUPP] {
            let run = |args: &[&str], fails: bool| {
                let mut command = world.command_of(&agent, args);
                command.env("BASH_AGENT_CORE", "").env("PATH", path);
                if fails {
                    without_locks(&mut command, errno);
                }
                Ran::of(command)
            };
            let turn = ["-p", "script", "-m", cassette.to_str().unwrap(), "--print", "--session", "s", "hi"];
            let ran = run(&turn, true).exits(11);
            let lock = world.session("s").lock();
            for part in
                [lock.to_str().unwrap(), "has no locks", "set BASH_AGENT_HOME to a directory on a local one"]
            {
                assert!(ran.stderr.contains(part), "{part}: {ran:?}");
            }
            assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
            // Nobody can run it there, and nothing waits for somebody who does.
            run(&["send", "--session", "s", "x"], true).exits(3);
            run(&["status", "--session", "s"], true).exits(0);
            run(&turn, false).exits(0);
            let conversation = fs::read_to_string(world.session("s").conversation()).unwrap();
            assert!(conversation.ends_with("\"text\":\"fine\"}]}\n"), "{conversation}");
            fs::remove_dir_all(world.session("s").path()).unwrap();
        }
    }
}

#[test]
fn without_flock_the_bash_agent_locks_with_perl() {
    let world = World::with(common::bash_agent());
    let perl = path_without_flock(&world.root().join("perl"));
    let cassette = world.cassette("cassette", &tape::says("fine"));
    let run = |args: &[&str]| {
        let mut command = world.command(args);
        command.env("BASH_AGENT_CORE", "").env("PATH", &perl);
        command
    };
    let flags = ["-p", "script", "-m", cassette.to_str().unwrap(), "--print", "--session", "s"];
    let mut agent = Running::start(run(&[&flags[..], &["--stay", "hi"]].concat()));
    agent.until("\"stop\"");
    let refused = Ran::of(run(&[&flags[..], &["too"]].concat())).exits(4);
    assert!(refused.stderr.contains(&agent.pid().to_string()), "{refused:?}");
    let answer = Ran::of(run(&["send", "--session", "s", "--wait", "more"])).exits(0);
    assert_eq!(answer.stdout, "fine\n");
    Ran::of(run(&["stop", "--session", "s"])).exits(0);
    let (status, stderr) = agent.wait();
    assert_eq!(status.code(), Some(0), "{stderr}");
}

#[test]
fn a_file_in_a_fifos_place_outlives_the_bash_agent() {
    let world = World::with(common::bash_agent());
    let cassette = world.cassette("cassette", &tape::says("fine"));
    let run =
        || world.run(["-p", "script", "-m", cassette.to_str().unwrap(), "--print", "--session", "s", "hi"]);
    run().exits(0);
    let dir = world.session("s");
    for path in [dir.input_fifo(), dir.notify_fifo()] {
        fs::write(&path, "precious").unwrap();
        let ran = run().exits(11);
        assert!(ran.stderr.contains("is not a FIFO"), "{ran:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
    }
    run().exits(0);
}
