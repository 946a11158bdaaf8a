//! The recipes of docs/pipelines.md do what they say, and so do README's section on swapping and that of docs/wire.md:
//! each of the `sh` blocks is run, in order, with a model from a cassette. A block behind a comment `<!-- not run: WHY -->` is left out.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test crate")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Ran, World, tape};
use serde_json::json;

/// Plays the cassette wherever the page asks a model.
const WRAPPER: &str = r#"#!/bin/sh
case $1 in
  send | notify | interrupt | stop | wait | watch | status | sessions | path | export | core) exec PROGRAM "$@" ;;
esac
exec PROGRAM -p script -m CASSETTE "$@"
"#;

struct Block {
    line: usize,
    text: String,
}

/// The `sh` blocks that are to be run.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut skip = false;
    for (number, line) in page.lines().enumerate() {
        match &mut open {
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some(block) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            None if line == "```sh" && !std::mem::take(&mut skip) => {
                open = Some(Block { line: number + 2, text: String::new() });
            }
            None if line.starts_with("<!-- not run:") => skip = true,
            None => {}
        }
    }
    blocks
}

/// The part of a page below a heading of the second order, its lines numbered as in the page.
fn section(page: &str, heading: &str) -> String {
    let mut inside = false;
    page.lines()
        .map(|line| {
            if line.starts_with("## ") {
                inside = line == heading;
            }
            if inside { format!("{line}\n") } else { "\n".to_owned() }
        })
        .collect()
}

/// A project to try things on, and `bash-agent` on PATH.
fn stage() -> World {
    let world = World::new();
    let cassette = world.cassette(
        "cassette",
        &[
            tape::calls([tape::call("t", "Bash", json!({"command": "ls src"}))]),
            tape::says("OK, nothing to say against it.\nsrc/a.sh"),
        ]
        .concat(),
    );
    let bin = world.root().join("bin");
    fs::create_dir(&bin).unwrap();
    let wrapper = WRAPPER
        .replace("PROGRAM", common::program().to_str().unwrap())
        .replace("CASSETTE", cassette.to_str().unwrap());
    fs::write(bin.join("bash-agent"), wrapper).unwrap();
    fs::set_permissions(bin.join("bash-agent"), fs::Permissions::from_mode(0o755)).unwrap();
    let work = world.work();
    fs::create_dir(work.join("src")).unwrap();
    for (name, text) in [
        ("src/a.sh", "echo a\n"),
        ("b.sh", "echo b\n"),
        ("prompt.md", "Say something.\n"),
        ("build.log", "error\n"),
    ] {
        fs::write(work.join(name), text).unwrap();
    }
    run(&world, "git init -q . && git add . && git commit -q -m Start").exits(0);
    world
}

fn run(world: &World, script: &str) -> Ran {
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("timeout");
    command
        .args(["60", "bash", "-eu", "-o", "pipefail", "-c", script])
        .env_clear()
        .env("PATH", format!("{}:{path}", world.root().join("bin").display()))
        .env("HOME", world.home())
        .env("TMPDIR", world.root().join("tmp"))
        .envs([("GIT_AUTHOR_NAME", "t"), ("GIT_AUTHOR_EMAIL", "t@localhost")])
        .envs([("GIT_COMMITTER_NAME", "t"), ("GIT_COMMITTER_EMAIL", "t@localhost")])
        .current_dir(world.work());
    Ran::of(command)
}

fn is_there(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|dir| dir.join(program).is_file())
}

#[test]
fn every_recipe_runs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pipelines.md");
    let blocks = blocks(&fs::read_to_string(page).unwrap());
    assert!(blocks.len() >= 10, "only {} blocks were found", blocks.len());
    let world = stage();
    for Block { line, text } in &blocks {
        if text.contains("| parallel") && !is_there("parallel") {
            continue;
        }
        let ran = run(&world, text);
        assert_eq!(ran.code, Some(0), "docs/pipelines.md, line {line}:\n{text}\n{ran:?}");
        assert_eq!(ran.stderr, "", "docs/pipelines.md, line {line}:\n{text}");
    }
    let work = world.work();
    for name in [
        "answer.md",
        "report.txt",
        "explanation.txt",
        "notes.txt",
        "week.txt",
        "b.sh.review",
        "src/a.sh.review",
    ] {
        let text = fs::read_to_string(work.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(text.starts_with("OK, nothing"), "{name}: {text:?}");
    }
    let log = run(&world, "git log --oneline").exits(0).stdout;
    assert!(log.contains("Run the tests every night"), "the hook kept the commit: {log}");
    let conversation = fs::read_to_string(world.session("feed").conversation()).unwrap();
    assert!(conversation.contains("Look at build.log.") && conversation.contains("Then at report.txt."));
    assert!(world.session("review b.sh").conversation().exists());
}

/// Puts what a page calls by its place in the repository there.
fn bring_scripts(world: &World) {
    let (repository, work) = (Path::new(env!("CARGO_MANIFEST_DIR")), world.work());
    fs::create_dir(work.join("scripts")).unwrap();
    for name in ["awk", "scripts/lib"] {
        std::os::unix::fs::symlink(repository.join(name), work.join(name)).unwrap();
    }
    let wrapper = fs::read_to_string(world.root().join("bin/bash-agent")).unwrap();
    let wrapped =
        |program: &Path| wrapper.replace(common::program().to_str().unwrap(), program.to_str().unwrap());
    let build = format!(
        "#!/bin/sh\n{0}/scripts/build.sh \"$PWD/dist/real.sh\" && mv dist/wrapper dist/agent.sh\n",
        repository.display()
    );
    fs::create_dir(work.join("dist")).unwrap();
    for (name, text) in [
        ("scripts/agent.sh", wrapped(&common::bash_agent())),
        ("scripts/build.sh", build),
        ("dist/wrapper", wrapped(&work.join("dist/real.sh"))),
    ] {
        fs::write(work.join(name), text).unwrap();
        fs::set_permissions(work.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Runs the blocks of a section; what each printed.
fn run_section(page: &str, heading: &str) -> Vec<String> {
    let world = stage();
    bring_scripts(&world);
    run(&world, "bash-agent hello").exits(0);
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let blocks = blocks(&section(&text, heading));
    assert!(!blocks.is_empty(), "{page} has no {heading}");
    blocks
        .iter()
        .map(|Block { line, text }| {
            let script = world.root().join("block.sh");
            fs::write(&script, text).unwrap();
            let ran = if text.contains("# at a terminal") {
                let inner = format!("exec bash -eu -o pipefail {}", script.display());
                run(&world, &format!("TERM=dumb script -qefc '{inner}' /dev/null < /dev/null"))
            } else {
                run(&world, text)
            };
            assert_eq!(ran.code, Some(0), "{page}, line {line}:\n{text}\n{ran:?}");
            assert_eq!(ran.stderr, "", "{page}, line {line}:\n{text}");
            ran.stdout
        })
        .collect()
}

#[test]
fn the_readme_swaps_the_runtimes() {
    let shown = run_section("README.md", "## Bash or Rust: swap at any time").concat();
    for asked in ["> Find the slowest test.", "> Now make it faster."] {
        assert!(shown.contains(asked), "{shown}");
    }
    assert!(shown.matches("OK, nothing to say against it.").count() >= 7, "{shown}");
}

#[test]
fn parts_of_ones_own_in_three_lines() {
    let shown = run_section("docs/wire.md", "## Swapping parts");
    let [.., transcripts, loud, questions] = &shown[..] else { panic!("{shown:?}") };
    assert!(transcripts.is_empty() || transcripts.contains("OK, nothing"), "{transcripts}");
    assert!(loud.contains("OK, NOTHING TO SAY AGAINST IT."), "{loud}");
    assert!(questions.contains("> hello") && !questions.contains("OK, nothing"), "{questions}");
}
