//! The judgement on a command: `core classify` and scripts/lib/classify.sh, over the table and over generated commands.

use std::process::Command;

use proptest::prelude::*;

use crate::twins::{Awk, all_awks, awks, generated, root, run, same};

const TABLE: &str = include_str!("../../src/policy/classify/table.tsv");

/// Loads the twin once and judges the commands on stdin, each ended by NUL: the same end behind each answer.
const SCRIPT: &str = r#"
LIB_DIR=$1/scripts/lib AWK_DIR=$1/awk ASSETS_DIR=$1/src/assets
for part in base policy classify; do . "$LIB_DIR/$part.sh"; done
setup_awk
has_core() { return 1; }
CWD=$PWD BASE=$HOME/.bash-agent S=$2 TOOL_TMP=$3 RUN=$4
setup_places
while IFS= read -r -d '' command; do classify_command "$command"; printf '%s\0' "$NEEDS"; done
"#;

/// A home, a working directory beside it, and the places of a session.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["p", "u/.bash-agent/projects/-srv-p/s1", "agent.1", "own"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().canonicalize().unwrap().join(name).display().to_string()
    }

    fn session(&self) -> String {
        self.path("u/.bash-agent/projects/-srv-p/s1")
    }

    fn place(&self, mut command: Command) -> Command {
        command.current_dir(self.path("p")).env("HOME", self.path("u")).env_remove("BASH_AGENT_HOME");
        command
    }

    /// The places of the table, as they are here.
    fn fill(&self, command: &str) -> String {
        let places = [("/srv/p/", "p/"), ("/home/u", "u"), ("/tmp/agent.1", "agent.1")];
        places.iter().fold(command.to_owned(), |text, (from, to)| text.replace(from, &self.path(to)))
    }

    fn by_binary(&self, command: &str) -> String {
        let mut program = Command::new(env!("CARGO_BIN_EXE_bash-agent"));
        program.args(["core", "classify", "--session-dir", &self.session(), "--tmp", &self.path("agent.1")]);
        program.args(["--private", &self.path("own"), "-"]);
        let output = run(self.place(program), command.as_bytes());
        assert!(output.status.success(), "{command:?}");
        String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned()
    }

    fn by_script(&self, awk: Awk, commands: &[String]) -> Vec<String> {
        let mut program = Command::new("bash");
        program.args(["-c", SCRIPT, "bash"]).arg(root()).arg(self.session());
        program.args([self.path("agent.1"), self.path("own")]).env("BASH_AGENT_AWK", awk.join(" "));
        let input: String = commands.iter().map(|command| format!("{command}\0")).collect();
        let output = run(self.place(program), input.as_bytes());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
        let text = String::from_utf8(output.stdout).unwrap();
        let answers: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
        assert_eq!(answers.len(), commands.len());
        answers
    }
}

/// A row: the command, and whether the twin is said to differ.
fn rows(world: &World) -> Vec<(String, Option<&'static str>)> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let command = fields[1].replace("\\n", "\n").replace("'%s\n'", "'%s\\n'");
        (world.fill(&command), fields.get(2).copied())
    });
    rows.collect()
}

/// What one twin says of the rows, against the binary: the same, but where the table names another mode.
fn table_holds(world: &World, awk: Awk, rows: &[(String, Option<&str>)], binary: &[String]) {
    let commands: Vec<String> = rows.iter().map(|(command, _)| command.clone()).collect();
    let mut wrong = Vec::new();
    for (((command, differs), script), binary) in rows.iter().zip(world.by_script(awk, &commands)).zip(binary)
    {
        let good = match differs {
            None => script == *binary,
            Some(mode) => script.lines().next() == Some(mode) && script != *binary,
        };
        if !good {
            wrong.push(format!("{command:?}\n  the scripts: {script}\n  the binary:  {binary}"));
        }
    }
    assert!(wrong.is_empty(), "under {}:\n{}", awk.join(" "), wrong.join("\n"));
}

#[test]
fn the_table_of_commands() {
    let world = World::new();
    let rows = rows(&world);
    let binary: Vec<String> = rows.iter().map(|(command, _)| world.by_binary(command)).collect();
    for (at, awk) in all_awks().into_iter().enumerate() {
        // Every row through one awk, a share of them through each of the others.
        let part = |index: &usize| at == 0 || index % 4 == at;
        let taken: Vec<usize> = (0..rows.len()).filter(part).collect();
        let some: Vec<_> = taken.iter().map(|index| rows[*index].clone()).collect();
        let expected: Vec<_> = taken.iter().map(|index| binary[*index].clone()).collect();
        table_holds(&world, awk, &some, &expected);
    }
}

/// Plain commands, put together of programs of the table, words, redirections and compound commands.
fn command() -> impl Strategy<Value = String> {
    let table = include_str!("../../src/assets/programs.tsv");
    let lines = table.lines().filter(|line| !line.starts_with('#') && !line.starts_with("git"));
    let names = lines.flat_map(|line| line.split('\t').nth(1).unwrap().split(' '));
    // `[` wants its end.
    let names: Vec<String> = names
        .map(|name| if name.len() > 1 { name.split(':').next().unwrap() } else { name })
        .filter(|name| *name != "[")
        .chain([
            "own-program",
            "./run",
            "/usr/bin/rm",
            "rm",
            "cat",
            "git add",
            "git log",
            "git push",
            "cd",
            "cd",
        ])
        .map(str::to_owned)
        .collect();
    let words = "f|../x|/etc/passwd|$HOME/n|~/n|'a b'|\"$PWD/f\"|*.c|$x|{a,b}|-r|-n|/tmp/q|src/|$(cat f)|`ls`|\"a $(rm f)\"|\
                 \\f|$'\\x41'|-i|-f|-o|-c|-C|-d|--global|--output=o|a=b|x/../y|/tmp/*|~|/usr/bin|/dev/null|https://e.com/x|\
                 s/a/b/|'w f'|-e|-t|install|list|.env|5|${x:-y}|\"$x\"|${HOME}/q|--|+|{}|-exec|-delete|';'|é|$((1+2))";
    let words: Vec<&str> = words.split('|').collect();
    let redirects =
        vec!["", "", "", "> out", "2>/dev/null", "2>&1", ">> ../o", "< f", "&> o", "> ~/o f", ">&2"];
    let simple = (
        prop::sample::select(vec!["", "", "", "", "a=1 ", "PATH=. "]),
        prop::sample::select(names),
        prop::collection::vec(prop::sample::select(words), 0..4),
        prop::sample::select(redirects),
    );
    let simple = simple.prop_map(|(before, name, words, redirect)| {
        format!("{before}{name} {} {redirect}", words.join(" ")).trim_end().to_owned()
    });
    simple.prop_recursive(3, 6, 2, |inner| {
        let shapes = vec![
            "A | B",
            "A && B",
            "A || B",
            "A; B",
            "A\nB",
            "A & B",
            "if A; then B; fi",
            "while A; do B; done",
            "(A); B",
            "{ A; B; }",
            "x=f; A",
            "if A; then :; else B; fi",
            "for x in a b; do A; done; B",
        ];
        (prop::sample::select(shapes), inner.clone(), inner)
            .prop_map(|(shape, a, b)| shape.replace('B', "\u{1}").replace('A', &a).replace('\u{1}', &b))
    })
}

/// The reasons in one order: of a command's own it is that of its parts, and `PATH=. a $(b)` has two.
fn sorted(answer: &str) -> String {
    let mut lines: Vec<&str> = answer.lines().collect();
    lines[1..].sort_unstable();
    lines.join("\n")
}

#[test]
fn generated_commands() {
    let world = World::new();
    let awk = awks()[0];
    generated(6, prop::collection::vec(command(), 20), |commands| {
        for (command, script) in commands.iter().zip(world.by_script(awk, &commands)) {
            let binary = world.by_binary(command);
            same(&format!("{command:?}"), sorted(&script).as_bytes(), sorted(&binary).as_bytes())?;
        }
        Ok(())
    });
}

/// By itself the twin takes the binary's words and gives its answers.
#[test]
fn the_twin_by_itself() {
    let world = World::new();
    let run_twin = |arguments: &[&str], input: &[u8]| {
        let mut program = Command::new("bash");
        program.arg(root().join("scripts/lib/classify.sh")).args(arguments);
        run(world.place(program), input)
    };
    let run_core = |arguments: &[&str], input: &[u8]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_bash-agent"));
        program.args(["core", "classify"]).args(arguments);
        run(world.place(program), input)
    };
    let tmp = world.path("agent.1");
    for arguments in [
        &["rm f"][..],
        &["--mode", "0004", "cat f; rm f"],
        &["--mode", "0006", "cat f; rm f"],
        &["--mode", "read-only", "touch f"],
        &["--tmp", &tmp, "touch $TMPDIR/x"],
        &["--mode", "9", "ls"],
        &["-"],
    ] {
        let (script, binary) = (run_twin(arguments, b"cat f\nrm g\n"), run_core(arguments, b"cat f\nrm g\n"));
        assert_eq!(script.status.code(), binary.status.code(), "{arguments:?}");
        assert_eq!(
            String::from_utf8_lossy(&script.stdout),
            String::from_utf8_lossy(&binary.stdout),
            "{arguments:?}"
        );
    }
}
