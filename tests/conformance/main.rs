//! One table of cases, run against every runtime (CONTRACT.md; how to write a case: `README.md` here).
//!
//! `AGENT` names the program (default: the one that cargo built). `AGENTS="name=command;name=command"` runs every
//! case against each, and prints a matrix; a command may begin with `NAME=value` words for its environment, and
//! `WITHOUT=area,area` there names areas that this runtime does not have.

mod always;
mod case;
mod check;
mod matrix;
mod normal;
mod pattern;
mod process;
mod scene;
#[path = "../common/shape.rs"]
mod shape;
mod world;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};

use case::Case;
use matrix::{Cell, Matrix};
use process::Ended;
use world::{Agent, World};

fn main() {
    // A shell's background job ignores Ctrl+C, one under nohup SIGHUP, and so would every agent that is started here.
    for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: the default action runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut arguments = Arguments::from_args();
    // Cases wait more than they work.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let matrix = Arc::<Mutex<Matrix>>::default();
    let trials = agents().and_then(|agents| trials(&dir, &agents, &matrix));
    let trials =
        trials.unwrap_or_else(|problem| vec![Trial::test("the table of cases", || Err(problem.into()))]);
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        report(&matrix.lock().unwrap_or_else(PoisonError::into_inner));
    }
    conclusion.exit();
}

fn trials(dir: &Path, agents: &[Agent], matrix: &Arc<Mutex<Matrix>>) -> Result<Vec<Trial>, String> {
    let mut trials = vec![Trial::test("runner::patterns", || pattern::self_test().map_err(Failed::from))];
    trials.push(Trial::test("runner::the matrix", || matrix::self_test().map_err(Failed::from)));
    let fake = dir.join("selftest/fake-agent.sh");
    let fake = Agent { name: "fake".into(), command: vec!["sh".into(), path_word(&fake)], env: Vec::new() };
    for case in case::load(&dir.join("selftest"))? {
        let fake = fake.clone();
        trials.push(Trial::test(format!("runner::{}", case.about.name), move || self_test(&case, &fake)));
    }
    for case in case::load(&dir.join("cases"))? {
        for agent in agents {
            let name = format!("{}::{}", case.area, case.about.name);
            if agent.is_without(&case) {
                matrix.lock().unwrap_or_else(PoisonError::into_inner).set(&name, &agent.name, Cell::Lacks);
                continue;
            }
            let (case, agent, matrix) = (case.clone(), agent.clone(), Arc::clone(matrix));
            let shown = if agents.len() > 1 { format!("{name} [{}]", agent.name) } else { name.clone() };
            trials.push(Trial::test(shown, move || {
                let result = run(&case, &agent).or_else(|report| again(&case, &agent, &report));
                let mut matrix = matrix.lock().unwrap_or_else(PoisonError::into_inner);
                matrix.set(&name, &agent.name, if result.is_ok() { Cell::Passed } else { Cell::Failed });
                result.map_err(Failed::from)
            }));
        }
    }
    Ok(trials)
}

fn path_word(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The programs to test.
fn agents() -> Result<Vec<Agent>, String> {
    if let Some(list) = std::env::var("AGENTS").ok().filter(|list| !list.is_empty()) {
        let entries = list.split(';').map(str::trim).filter(|entry| !entry.is_empty());
        return entries
            .map(|entry| {
                let (name, command) =
                    entry.split_once('=').ok_or_else(|| format!("AGENTS: {entry}: no name"))?;
                agent(name.trim(), command)
            })
            .collect();
    }
    let command = std::env::var("AGENT").unwrap_or_else(|_| env!("CARGO_BIN_EXE_bash-agent").to_owned());
    Ok(vec![agent("agent", &command)?])
}

/// `NAME=value … PROGRAM ARGUMENT…`; files that are here become absolute, as cases run elsewhere.
fn agent(name: &str, command: &str) -> Result<Agent, String> {
    let mut env = Vec::new();
    let mut words = Vec::new();
    for word in command.split_whitespace() {
        match word.split_once('=') {
            Some((key, value)) if words.is_empty() => env.push((key.to_owned(), absolute(value))),
            _ => words.push(absolute(word)),
        }
    }
    if words.is_empty() {
        Err(format!("AGENTS: {name}: no command"))
    } else {
        Ok(Agent { name: name.to_owned(), command: words, env })
    }
}

fn absolute(word: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(word);
    if word.contains('/') && path.exists() { path_word(&path) } else { word.to_owned() }
}

/// With `CONFORMANCE_RETRY` set a case that failed is run once more, and named: for runs whose business is something
/// else than a race that shows once in a thousand cases.
#[allow(clippy::print_stdout, reason = "the suite's report goes to stdout")]
fn again(case: &Case, agent: &Agent, report: &str) -> Result<(), String> {
    if std::env::var_os("CONFORMANCE_RETRY").is_none() {
        return Err(report.to_owned());
    }
    println!("second try: {}::{} [{}] failed at first:\n{report}", case.area, case.about.name, agent.name);
    run(case, agent)
}

/// One case against one program. The error is the whole report.
fn run(case: &Case, agent: &Agent) -> Result<(), String> {
    if case.about.needs.as_ref().is_some_and(|program| !on_path(program)) {
        return Ok(());
    }
    let world = World::new(case)?;
    let mut ended = Vec::new();
    let result = run_in(&world, case, agent, &mut ended);
    // Also after a failure: nothing may stay behind.
    let always = always::check(case, &ended, &world);
    let problems: Vec<String> = [result, always].into_iter().filter_map(Result::err).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let commands: Vec<String> =
        case.runs.iter().map(|run| process::command_line(agent, run, &world)).collect();
    world.keep_failed();
    Err(format!(
        "shows: {}\ncommand: {}\ncwd: {}\n{}\nlisting:\n{}",
        case.about.shows,
        commands.join("\nthen:    "),
        world.work.display(),
        problems.join("\n"),
        world.listing()
    ))
}

fn run_in(world: &World, case: &Case, agent: &Agent, ended: &mut Vec<Ended>) -> Result<(), String> {
    if !case.about.setup.is_empty() {
        let mut command = Command::new("sh");
        command.arg("-ec").arg(world.fill(&case.about.setup)).current_dir(&world.work).env_clear();
        command.envs(world.environment(agent)).env("PROJECT", world.project());
        let (status, said) = process::output(&mut command, world)?;
        if !status.success() {
            return Err(format!("setup: {status}: {said}"));
        }
    }
    for (index, run) in case.runs.iter().enumerate() {
        ended.push(process::run(world, agent, case, run));
        check::run(&format!("run {}", index + 1), run, &ended[index], world)?;
    }
    check::joined(
        [check::requests(case, world), check::files(case, world)]
            .into_iter()
            .filter_map(Result::err)
            .collect(),
    )
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A case of the runner's own test: it passes, or it fails with the words that it must fail with.
fn self_test(case: &Case, fake: &Agent) -> Result<(), Failed> {
    match (run(case, fake), &case.about.fails) {
        (Ok(()), None) => Ok(()),
        (Err(report), Some(words)) if report.contains(words.as_str()) => Ok(()),
        (Err(report), _) => Err(report.into()),
        (Ok(()), Some(words)) => Err(format!("passed, but must fail with: {words}").into()),
    }
}

/// The short matrix on stdout; the whole one into the file that `CONFORMANCE_MATRIX` names.
fn report(matrix: &Matrix) {
    // Nobody may be reading any more: the exit code says the same.
    let _ = std::io::stdout().write_all(matrix.short().as_bytes());
    if let Some(path) = std::env::var_os("CONFORMANCE_MATRIX").filter(|path| !path.is_empty())
        && let Err(error) = std::fs::write(&path, matrix.whole())
    {
        let _ = writeln!(std::io::stderr(), "CONFORMANCE_MATRIX: {}: {error}", path.display());
    }
}
