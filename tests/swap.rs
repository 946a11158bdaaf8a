//! Parts that are exchanged while an agent works (DESIGN "Swapping"): the Bash agent with the binary's filters, with
//! one that dies at its work, with one that cannot be used.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(target_os = "linux")]
use std::process::Stdio;

use common::{Ran, World, bash_agent, program};
use mock_model::server::{After, Rule, When};
use mock_model::{Answer, Server};

/// Stands in for the binary: notes which filter is asked for, and dies at one of them. (A child agent gets the real one.)
const CORE: &str = r#"#!/bin/sh
if [ "$2" = --version ] || [ -n "$BASH_AGENT_CHILD" ]; then exec PROGRAM "$@"; fi
case "$2 $3" in
  resp\ * | stats\ * | json\ *) name="$2 $3" ;;
  *) name=$2 ;;
esac
echo "$name" >> LOG
if [ "$name" = "VICTIM" ]; then
  # With what it had to do in its hands.
  case $name in
    notify-reader) for dir; do :; done; dd bs=65536 count=1 < "$dir/notify.fifo" > /dev/null 2>&1 ;;
    sse | display) dd bs=65536 count=1 of=/dev/null 2> /dev/null ;;
  esac
  kill -KILL $$
fi
exec PROGRAM "$@"
"#;

struct Stage {
    world: World,
    server: Server,
}

fn executable(path: &Path, text: &str) -> PathBuf {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

/// A turn that edits a file, has a sub-agent work, and confirms a plan, which compacts the conversation.
fn stage(victim: &str) -> Stage {
    let world = World::with(bash_agent());
    fs::write(world.work().join("f.txt"), "one\ntwo\n").unwrap();
    let child = r#""messages":[{"role":"user","content":"SUBTASK"#;
    let rule = |when: When, text: &str| Rule { when, answer: text.parse::<Answer>().unwrap() };
    let edit = r#"tool Edit e1 {"path":"f.txt","old_string":"two","new_string":"2 \"é\""}"#;
    // The stream that is lost is asked for again.
    let lost = (victim == "sse").then(|| rule(When::Next, edit));
    let rules = [
        rule(When::Body(child.to_owned()), "text The child's answer."),
        rule(When::Body("Task focus".to_owned()), "text What was done so far."),
        rule(When::Next, edit),
        rule(When::Next, r#"tool SubAgent s1 {"prompt":"SUBTASK \"x\"","description":"d"}"#),
        rule(When::Next, "tool PlanConfirm p1 {}"),
        rule(When::Next, "text Finished."),
    ];
    let rules = lost.into_iter().chain(rules).collect();
    Stage { world, server: Server::start(rules, After::Last).unwrap() }
}

impl Stage {
    fn core(&self, victim: &str) -> PathBuf {
        let text = CORE
            .replace("PROGRAM", program().to_str().unwrap())
            .replace("LOG", self.log().to_str().unwrap())
            .replace("VICTIM", victim);
        executable(&self.world.root().join("core"), &text)
    }

    fn log(&self) -> PathBuf {
        self.world.root().join("log")
    }

    fn command(&self, core: &Path, args: &[&str]) -> Command {
        let mut command = self.world.command(args);
        command.env("BASH_AGENT_CORE", core).env("ANTHROPIC_BASE_URL", self.server.url());
        command
    }

    fn run(&self, core: &Path, args: &[&str]) -> Ran {
        Ran::of(self.command(core, args))
    }

    /// Runs the turn; whatever filters did, all of it must be there.
    fn turn(&self, core: &Path) -> Ran {
        let draft = self.world.session("s").plan_draft();
        fs::create_dir_all(draft.parent().unwrap()).unwrap();
        fs::write(draft, "The \"plan\".\n").unwrap();
        let ran = self.run(core, &["--session", "s", "Do \"it\"."]).exits(0);
        assert_eq!(fs::read_to_string(self.world.work().join("f.txt")).unwrap(), "one\n2 \"é\"\n");
        let dir = self.world.session("s");
        let conversation =
            [dir.archive(), dir.conversation()].map(|path| fs::read_to_string(path).unwrap()).concat();
        assert!(conversation.contains("The child's answer."), "{conversation}\n{ran:?}");
        assert!(conversation.contains("Plan confirmed"), "{conversation}");
        assert!(!dir.notify_buf().exists() && !dir.active_list().exists());
        common::shape::check(dir.path(), &common::shape::Start::default()).unwrap();
        ran
    }
}

#[test]
fn every_row_of_the_table_is_the_cores_when_there_is_one() {
    let stage = stage("none");
    let core = stage.core("none");
    let ran = stage.turn(&core);
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.contains("[tool] Edit(f.txt)") && ran.stdout.contains("Finished."), "{}", ran.stdout);
    let watched = stage.run(&core, &["watch", "--from-start", "--session", "s"]).exits(0);
    assert!(watched.stdout.contains("Finished."), "{watched:?}");
    stage.run(&core, &["export", "--session", "s"]).exits(0);
    let mut running = common::Running::start(stage.command(&core, &["--stay", "--session", "t"]));
    common::wait_for("the agent", || stage.run(&core, &["wait", "--session", "t"]).code == Some(0));
    stage.run(&core, &["stop", "--session", "t"]).exits(0);
    running.wait();
    let log = fs::read_to_string(stage.log()).unwrap();
    for filter in [
        "body",
        "compact-choice",
        "display",
        "edit",
        "json escape",
        "notify-reader",
        "replay",
        "resp encode",
        "sse",
        "stats update",
        "sub-result",
    ] {
        assert!(log.lines().any(|line| line == filter), "{filter} was done by awk: {log}");
    }
}

/// Runs the turn with a filter that is killed whenever it is asked to work.
fn without(victim: &str) {
    let stage = stage(victim);
    let ran = stage.turn(&stage.core(victim));
    let said = format!("ended with code 137 at `{victim}`: awk does its work from now on");
    assert_eq!(ran.stderr.matches(&said).count(), 1, "{victim}: {}", ran.stderr);
    let log = fs::read_to_string(stage.log()).unwrap();
    // The display of results and that of an answer are two processes, which may run at once.
    let times = log.lines().filter(|line| *line == victim).count();
    assert!(times == 1 || (victim == "display" && times == 2), "it is not asked again: {log}");
    let usages = fs::read_to_string(stage.world.session("s").events()).unwrap();
    // A stream that was lost is asked for again; nothing else is done twice.
    let lost = usages.lines().filter(|line| line.starts_with("{\"type\":\"retry\"")).count();
    assert_eq!(lost, usize::from(victim == "sse"), "{victim}");
}

#[test]
fn the_filters_of_the_model_may_die() {
    ["body", "sse", "compact-choice"].into_iter().for_each(without);
}

#[test]
fn the_filters_of_the_tools_may_die() {
    ["edit", "sub-result", "json escape"].into_iter().for_each(without);
}

#[test]
fn the_display_may_die() {
    without("display");
}

#[test]
fn the_stats_may_die() {
    without("stats update");
}

#[test]
fn the_notify_reader_may_die_with_a_result_in_its_hands() {
    without("notify-reader");
}

#[test]
fn a_core_that_cannot_be_used_is_said_and_awk_works() {
    let world = World::with(bash_agent());
    let old = executable(&world.root().join("old"), "#!/bin/sh\necho bash-agent-core 0.0.9\n");
    let none = executable(&world.root().join("none"), "#!/bin/sh\nexit 2\n");
    let ourselves = bash_agent();
    for (core, why) in [
        (Path::new("/nonexistent/core"), "cannot be run"),
        (world.root(), "cannot be run"),
        (&old, "is version 0.0.9, and 0.1.0 is needed"),
        (&none, "is no bash-agent of version 0.1.0 or newer"),
        (&ourselves, "has no filters"),
    ] {
        let mut command = world.command(["-p", "script", "--output-format", "text", "hi"]);
        let ran = Ran::of({
            command.env("BASH_AGENT_CORE", core);
            command
        })
        .exits(0);
        let line = format!("Warning: the core {} {why}", core.display());
        assert!(ran.stderr.starts_with(&line) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
        assert!(!ran.stdout.is_empty());
    }
}

#[test]
fn without_the_variable_the_core_is_what_the_path_names() {
    let stage = stage("none");
    let bin = stage.world.root().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::rename(stage.core("none"), bin.join("bash-agent")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let run = |core: Option<&str>| {
        let mut command = stage.world.command(["-p", "script", "hi"]);
        command.env("PATH", &path);
        core.map(|core| command.env("BASH_AGENT_CORE", core));
        Ran::of(command).exits(0)
    };
    run(Some(""));
    assert!(!stage.log().exists(), "an empty value means awk alone");
    run(None);
    assert!(fs::read_to_string(stage.log()).unwrap().contains("stats update"));
    // The Bash agent under the binary's name is no core, and that needs no word.
    fs::remove_file(bin.join("bash-agent")).unwrap();
    std::os::unix::fs::symlink(bash_agent(), bin.join("bash-agent")).unwrap();
    assert_eq!(run(None).stderr, "");
}

#[test]
fn a_program_that_is_missing_or_dies_is_an_error_and_no_hang() {
    let world = World::with(bash_agent());
    // Every program of the machine but those two.
    let bin = world.root().join("programs");
    fs::create_dir(&bin).unwrap();
    for dir in std::env::split_paths(&std::env::var_os("PATH").unwrap()) {
        for file in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let name = file.file_name();
            if name != "curl" && name != "awk" && name != "bash-agent" {
                // The first of a name is the one that counts.
                let _ = std::os::unix::fs::symlink(file.path(), bin.join(name));
            }
        }
    }
    let awk = std::env::var("BASH_AGENT_AWK").unwrap_or_else(|_| "awk".to_owned());
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *response.awk*) dd bs=64 count=1 of=/dev/null 2>/dev/null; exit 3 ;; esac\nexec {awk} \"$@\"\n"
    );
    let dying = executable(&world.root().join("dying"), &script);
    let run = |args: &[&str], env: &[(&str, &Path)], code: i32, said: &str| {
        let mut command = world.command(args);
        command.env("BASH_AGENT_CORE", "").envs(env.iter().copied());
        let ran = Ran::of(command).exits(code);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    };
    let url = ["-p", "claude", "--base-url", "http://127.0.0.1:9", "hi"];
    let tape = ["-p", "script", "hi"];
    let awk = Path::new(&awk);
    run(
        &url,
        &[("PATH", &bin), ("BASH_AGENT_AWK", &which(awk))],
        2,
        "no curl here: install the package curl",
    );
    run(
        &tape,
        &[("PATH", &bin), ("BASH_AGENT_AWK", Path::new("awk"))],
        2,
        "no awk here: install the package mawk or gawk",
    );
    run(&tape, &[("BASH_AGENT_AWK", Path::new("false"))], 2, "'false' is no awk that works");
    run(&tape, &[("BASH_AGENT_AWK", &dying)], 7, "the model call ended without an answer");
    run(&["core", "sse"], &[], 2, "run `bash-agent core`");
}

/// Where a program of the PATH is.
fn which(name: &Path) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.exists()).unwrap()
}

/// Gives a filter of the binary some input, then Ctrl+C while it waits for more: what it printed, and its exit code.
#[cfg(target_os = "linux")]
fn interrupted(world: &World, args: &[&str], input: &[u8]) -> (Vec<u8>, Option<i32>) {
    use std::io::Write;
    let mut command = world.command_of(&program(), args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    // It has read all of it and waits: it sleeps, and the pipe is empty.
    let pid = i32::try_from(child.id()).unwrap();
    common::wait_for("the filter to read", || {
        let mut left: libc::c_int = 1;
        // SAFETY: FIONREAD writes one int to the address given, which is that of one.
        let done =
            unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&stdin), libc::FIONREAD, &raw mut left) };
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        done == 0 && left == 0 && state.contains(") S ")
    });
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    (output.stdout, output.status.code())
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_a_filter_with_what_it_holds() {
    let world = World::new();
    let event = b"{\"type\":\"text\",\"content\":\"held back\"}\n";
    let frame = b"*2\r\n$4\r\nTEXT\r\n$9\r\nheld back\r\n";
    assert_eq!(interrupted(&world, &["core", "replay"], event), (frame.to_vec(), Some(130)));
    assert_eq!(interrupted(&world, &["core", "replay", "--last", "1"], event), (frame.to_vec(), Some(130)));
    assert_eq!(interrupted(&world, &["core", "display"], frame), (b"held back\n".to_vec(), Some(130)));
    let stats = world.root().join("stats.json");
    let update = ["core", "stats", "update", stats.to_str().unwrap()];
    assert_eq!(interrupted(&world, &update, b"current_turn_count=+1\n"), (Vec::new(), Some(130)));
    assert!(!stats.exists(), "an update is made whole or not at all");
}
