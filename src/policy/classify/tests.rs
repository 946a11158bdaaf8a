use std::path::Component;

use super::*;

const TABLE: &str = include_str!("table.tsv");

fn places() -> Places {
    let base = PathBuf::from("/home/u/.bash-agent");
    let session_dir = base.join("projects/-srv-p/s1");
    Places {
        cwd: "/srv/p".into(),
        home: Some("/home/u".into()),
        tmp_dir: Some("/tmp/agent.1".into()),
        plan_draft: session_dir.join("plan.draft"),
        session_dir,
        base_dir: base,
        private: Vec::new(),
        linked: Vec::new(),
    }
}

/// No file system: `..` by name, and the two links of /proc.
fn resolve(path: &Path) -> PathBuf {
    let path = path
        .strip_prefix("/proc/self/root")
        .map_or_else(|_| path.to_path_buf(), |rest| Path::new("/").join(rest));
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::Normal(name) => out.push(name),
            _ => {}
        }
    }
    out
}

fn judged(command: &str) -> Verdict {
    classify(command, &View { places: &places(), resolve: &resolve })
}

#[test]
fn the_table_holds() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split('\t');
        let (mode, command) = (fields.next().unwrap(), fields.next().unwrap());
        let verdict = judged(&command.replace("\\n", "\n").replace("'%s\n'", "'%s\\n'"));
        count += 1;
        if verdict.required().to_string() != mode {
            wrong.push(format!("{command}: {} instead of {mode}: {:?}", verdict.required(), verdict.needs));
        }
    }
    assert!(count >= 150);
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_reasons_name_the_part() {
    let verdict = judged("echo hi && rm ../x | cat");
    assert_eq!(
        verdict.needs,
        [Need { required: Mode::parse("0200"), why: "rm ../x: write external".to_owned() }]
    );
}

/// Zero-width characters, odd names, broken text: blocked or judged, never a panic.
#[test]
fn odd_commands_never_pass_as_harmless() {
    for command in
        ["r\u{200b}m f", "rm\u{a0}f", "if then rm f", "((", "rm f )", "$(", "\u{0}", "'", "x() { rm f; "]
    {
        assert_ne!(judged(command).required(), Mode::NONE, "{command:?}");
    }
    let deep = format!("{}rm f{}", "$(".repeat(3000), ")".repeat(3000));
    assert_ne!(judged(&deep).required(), Mode::NONE);
    let nested = (0..20).fold("rm f".to_owned(), |inner, _| format!("eval {inner}"));
    assert_ne!(judged(&nested).required(), Mode::NONE);
    judged(&"{a,b}".repeat(40));
    assert_eq!(judged(""), Verdict::default());
}

mod anything {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_judged_without_a_panic(command in "[ -~\n\u{e9}]{0,60}") {
            super::judged(&command);
        }

        #[test]
        fn a_removal_is_seen_behind_anything(before in "[a-z ;|&\n]{0,20}") {
            let command = format!("{before}\nrm ../x");
            prop_assert!(!crate::policy::Mode::DEFAULT.allows(super::judged(&command).required()) , "{command:?}");
        }
    }
}
