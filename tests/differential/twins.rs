//! Runs the two twins of a part.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

/// One awk: its name, and its words.
pub(crate) type Awk = &'static [&'static str];

/// Those that every input goes through, and those that a sample does.
const ALL: [Awk; 2] = [&["mawk"], &["gawk"]];
const SAMPLED: [Awk; 2] = [&["busybox", "awk"], &["original-awk"]];

fn installed(list: &'static [Awk]) -> Vec<Awk> {
    let (there, missing): (Vec<Awk>, Vec<Awk>) = list.iter().copied().partition(|awk| {
        let mut command = Command::new(awk[0]);
        command.args(&awk[1..]).arg("BEGIN { exit }").stdin(Stdio::null());
        command.output().is_ok_and(|output| output.status.success())
    });
    missing.iter().for_each(|awk| eprintln!("skipped: {} is not installed", awk.join(" ")));
    there
}

/// mawk and gawk, as far as they are installed. They keep NUL bytes.
pub(crate) fn awks() -> &'static [Awk] {
    static AWKS: OnceLock<Vec<Awk>> = OnceLock::new();
    AWKS.get_or_init(|| installed(&ALL))
}

/// Every awk that is installed.
pub(crate) fn all_awks() -> Vec<Awk> {
    static OTHERS: OnceLock<Vec<Awk>> = OnceLock::new();
    [awks(), OTHERS.get_or_init(|| installed(&SAMPLED))].concat()
}

/// The repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn run(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the twin starts");
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // A twin may end before it has read everything.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("the twin ends")
    })
}

/// `bash-agent core ARGUMENTS` over `input`.
pub(crate) fn core(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bash-agent"));
    command.arg("core").args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DP_") {
            command.env_remove(name);
        }
    }
    run(command, input)
}

/// The awk program of that name, with its libraries, `options` and `input`.
pub(crate) fn awk(awk: Awk, program: &str, options: &[&str], input: &[u8]) -> Output {
    let dir = root().join("awk");
    let mut command = Command::new(awk[0]);
    command.args(&awk[1..]).env("LC_ALL", "C");
    command.arg("-f").arg(dir.join("json.awk")).arg("-f").arg(dir.join("protocol.awk"));
    if program.starts_with("body_") {
        command.arg("-f").arg(dir.join("window.awk"));
    }
    command.arg("-f").arg(dir.join(program)).args(options);
    run(command, input)
}

/// A value of awk's `-v`, which reads escapes.
pub(crate) fn v(name: &str, value: impl AsRef<Path>) -> String {
    format!("-v{name}={}", value.as_ref().display().to_string().replace('\\', "\\\\"))
}

/// Whether both gave the same; says how not.
pub(crate) fn same(what: &str, theirs: &[u8], ours: &[u8]) -> Result<(), String> {
    if theirs == ours {
        return Ok(());
    }
    let at = theirs.iter().zip(ours).take_while(|(a, b)| a == b).count();
    let around = |bytes: &[u8]| {
        let piece = &bytes[at.saturating_sub(60)..bytes.len().min(at + 60)];
        piece.escape_ascii().to_string()
    };
    Err(format!("{what}: they part at byte {at}\n  awk  …{}…\n  core …{}…", around(theirs), around(ours)))
}

/// Compares one part over one input in some awks: standard output and exit code.
pub(crate) fn compare(
    awks: &[Awk],
    program: &str,
    options: &[&str],
    arguments: &[&str],
    input: &[u8],
) -> Result<(), String> {
    let ours = core(arguments, input);
    for name in awks {
        let theirs = awk(name, program, options, input);
        let what = format!("{program} under {}", name.join(" "));
        same(&what, &theirs.stdout, &ours.stdout)?;
        if theirs.status.code() != ours.status.code() {
            let said = String::from_utf8_lossy(&theirs.stderr).into_owned();
            let our_words = String::from_utf8_lossy(&ours.stderr).into_owned();
            return Err(format!("{what}: {} {said} / {} {our_words}", theirs.status, ours.status));
        }
    }
    Ok(())
}

/// Runs `check` over so many generated inputs; a failure is made small first. The inputs are the same each time, so that
/// a change is judged by itself; `DIFFERENTIAL_ROUNDS` (`make soak`) tries so many times as many, new ones each time.
pub(crate) fn generated<S: proptest::strategy::Strategy>(
    cases: u32,
    strategy: S,
    check: impl Fn(S::Value) -> Result<(), String>,
) {
    let rounds: Option<u32> = std::env::var("DIFFERENTIAL_ROUNDS").ok().and_then(|n| n.parse().ok());
    let config = Config {
        cases: cases * rounds.unwrap_or(1),
        rng_seed: if rounds.is_some() { RngSeed::Random } else { RngSeed::Fixed(0) },
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&strategy, |value| check(value).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("{error}");
    }
}
