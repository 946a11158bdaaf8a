//! The filters that look at a session's files.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use crate::data;
use crate::twins::{Awk, all_awks, awk, awks, core, generated, root, same, v};

fn stats_same(awks: &[Awk], before: Option<&str>, updates: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stats.json");
    let path = file.to_str().unwrap().to_owned();
    let put = || match before {
        Some(text) => std::fs::write(&file, text).unwrap(),
        None => drop(std::fs::remove_file(&file)),
    };
    // Updates come last, so the time is the same in both.
    let updates = format!("{updates}\nlast_updated=20260506-123456\n");
    let keys = "current_turn_count total_input_tokens total_cost_usd last_updated own none";
    for name in awks {
        put();
        let theirs = awk(name, "stats.awk", &[&v("file", &file), "-vnow=x"], updates.as_bytes());
        let theirs_got = awk(name, "stats.awk", &[&v("file", &file), &format!("-vget={keys}")], b"");
        let got = core(&[&["stats", "get", &path][..], &keys.split(' ').collect::<Vec<_>>()].concat(), b"");
        let ours = core(&["stats", "update", &path], updates.as_bytes());
        let what = format!("stats under {} ({before:?} {updates:?})", name.join(" "));
        same(&format!("get of {what}"), &theirs_got.stdout, &got.stdout)?;
        if theirs.status.code() != ours.status.code() {
            return Err(format!("{what}: {} / {}", theirs.status, ours.status));
        }
        if theirs.status.success() {
            same(&format!("notes of {what}"), &theirs.stderr, &ours.stderr)?;
            same(&what, &theirs.stdout, &std::fs::read(&file).unwrap())?;
        } else {
            assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), before, "nothing is written");
        }
    }
    Ok(())
}

#[test]
fn stats_as_recorded() {
    for session in data::sessions() {
        let before = std::fs::read_to_string(session.join("stats.json")).unwrap();
        stats_same(
            &all_awks(),
            Some(&before),
            "total_input_tokens=+18446744073709551000\nagent_request_count=+1\nown=x y",
        )
        .unwrap();
    }
    for before in [
        None,
        Some(""),
        Some("{broken"),
        Some("{\"total_input_tokens\":-5,\"own\":[1],\"current_turn_count\":\"x\"}\n"),
    ] {
        stats_same(&all_awks(), before, "total_cost_usd=+0.25").unwrap();
    }
}

#[test]
fn stats_as_generated() {
    let key = || {
        prop::sample::select(vec![
            "current_turn_count",
            "total_input_tokens",
            "total_cost_usd",
            "last_call_speed_tok_per_sec",
            "own",
            "last_updated",
        ])
    };
    let number = prop::sample::select(vec![
        "0",
        "1",
        "7",
        "999999999999999",
        "1000000000000000000",
        "18446744073709551615",
        "0.5",
        "12.25",
    ]);
    let sane = (key(), any::<bool>(), number.clone())
        .prop_map(|(key, adds, n)| format!("{key}={}{n}", if adds { "+" } else { "" }));
    let odd = prop::sample::select(vec![
        "x",
        "=1",
        "own=",
        "own=a b",
        "own=+x",
        "total_input_tokens=-1",
        "total_input_tokens=1.5",
        "own=é\"\\",
        "",
    ]);
    let update = prop_oneof![6 => sane, 1 => odd.prop_map(str::to_owned)];
    let member = (key(), prop_oneof![3 => number.prop_map(str::to_owned), 1 => data::json_value()])
        .prop_map(|(key, value)| format!("\"{key}\":{value}"));
    let all = (prop::collection::vec(member, 0..6), prop::collection::vec(update, 0..8));
    generated(32, all, |(members, updates)| {
        stats_same(awks(), Some(&format!("{{{}}}\n", members.join(","))), &updates.join("\n"))
    });
}

/// What agent.sh does to update the figures, twenty times.
const UPDATES_IN_BASH: &str = r#"
set -u
LC_ALL=C
AWK_DIR=$LIB_DIR/../../awk
for part in base text core session; do . "$LIB_DIR/$part.sh"; done
CORE= S=$1 SV=$1 RUN=$2
setup_clock
setup_awk
setup_lock
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  update_stats total_input_tokens=+3 agent_request_count=+1 total_cost_usd=+0.000001
done
"#;

/// Both runtimes write the same stats.json at the same time: none loses what another has added (CONTRACT §6).
#[test]
fn stats_of_mixed_writers_are_exact() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stats.json");
    std::fs::write(&file, "").unwrap();
    let updates = || {
        for _ in 0..20 {
            let done = core(
                &["stats", "update", file.to_str().unwrap()],
                b"total_input_tokens=+3\nagent_request_count=+1\ntotal_cost_usd=+0.000001\n",
            );
            assert!(done.status.success());
        }
    };
    let in_bash = || {
        let own = tempfile::tempdir().unwrap();
        let mut command = Command::new("bash");
        command.args(["-c", UPDATES_IN_BASH, "bash"]).arg(dir.path()).arg(own.path());
        let done = command.env("LIB_DIR", root().join("scripts/lib")).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(updates);
            scope.spawn(in_bash);
        }
    });
    let stats = std::fs::read_to_string(&file).unwrap();
    for figure in
        ["\"total_input_tokens\":360,", "\"agent_request_count\":120,", "\"total_cost_usd\":0.000120,"]
    {
        assert!(stats.contains(figure), "{figure} is not in {stats}");
    }
}

/// Flags of core, in the order of awk's `-v` names.
const CHOICE: [(&str, &str); 6] = [
    ("--turns", "t"),
    ("--compactions", "c"),
    ("--requests", "requests"),
    ("--total-input", "total_input"),
    ("--context", "context"),
    ("--max-context", "M"),
];

fn choice_same(
    awks: &[Awk],
    conversation: &Path,
    figures: [u64; 6],
    trigger: &str,
    settings: &[(&str, &str)],
) -> Result<(), String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bash-agent"));
    command.args(["core", "compact-choice", conversation.to_str().unwrap(), "--trigger", trigger]);
    for ((flag, _), n) in CHOICE.iter().zip(figures) {
        command.args([*flag, &n.to_string()]);
    }
    let ours = command.envs(settings.iter().copied()).output().unwrap();
    for name in awks {
        let mut options: Vec<String> =
            CHOICE.iter().zip(figures).map(|((_, name), n)| format!("-v{name}={n}")).collect();
        options.push(format!("-vtrigger={trigger}"));
        let mut command = Command::new(name[0]);
        command
            .args(&name[1..])
            .args(options)
            .arg("-f")
            .arg(root().join("awk/compact_dp.awk"))
            .arg(conversation);
        let theirs = command.env("LC_ALL", "C").envs(settings.iter().copied()).output().unwrap();
        same(
            &format!("choice under {} {figures:?} {trigger} {settings:?}", name.join(" ")),
            &theirs.stdout,
            &ours.stdout,
        )?;
    }
    Ok(())
}

#[test]
fn compact_choice_as_recorded() {
    for session in data::sessions() {
        let conversation = session.join("conversation.jsonl");
        for trigger in ["auto", "plan_confirm", "plan_clear", "manual"] {
            for max in [200_000, 500] {
                choice_same(&all_awks(), &conversation, [8, 0, 20, 80_000, 499, max], trigger, &[]).unwrap();
            }
        }
    }
}

#[test]
fn compact_choice_as_generated() {
    let line = (any::<bool>(), 0_usize..4000);
    let figures = (0_u64..30, 0_u64..5, 0_u64..200, 0_u64..3_000_000, 0_u64..250_000, 1000_u64..300_000);
    let setting = prop::sample::select(vec![
        ("DP_S", "100"),
        ("DP_L", "12"),
        ("DP_E_FIXED", "9.5"),
        ("DP_MIN_KEEP_RATIO", "0.6"),
        ("DP_R", "2"),
        ("DP_V", "-4"),
        ("DP_V", "many"),
        ("DP_P_CACHE", "1"),
        ("DP_BETA", "0"),
        ("DP_QUALITY_PENALTY", "3"),
        ("DP_MIN_KEEP_RATIO", "7"),
        ("DP_S", ""),
    ]);
    let trigger = prop::sample::select(vec!["auto", "manual"]);
    let all = (prop::collection::vec(line, 0..120), figures, trigger, prop::collection::vec(setting, 0..3));
    generated(40, all, |(lines, (t, c, requests, input, context, max), trigger, settings)| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for (is_turn, size) in lines {
            let head = if is_turn { "{\"role\":\"user\",\"content\":\"" } else { "{\"role\":\"assistant\"" };
            std::io::Write::write_all(&mut file, format!("{head}{}\n", "x".repeat(size)).as_bytes()).unwrap();
        }
        choice_same(awks(), file.path(), [t, c, requests, input, context, max], trigger, &settings)
    });
}

fn result_same(awks: &[Awk], dir: &Path) -> Result<(), String> {
    for code in ["0", "1", "143"] {
        let ours = core(&["sub-result", dir.to_str().unwrap(), "--exit-code", code], b"");
        for name in awks {
            let theirs = awk(name, "sub_result.awk", &[&v("dir", dir), &format!("-vcode={code}")], b"");
            same(
                &format!("result of {} under {}", dir.display(), name.join(" ")),
                &theirs.stdout,
                &ours.stdout,
            )?;
        }
    }
    Ok(())
}

#[test]
fn sub_result() {
    for session in data::sessions() {
        result_same(&all_awks(), &session).unwrap();
    }
    result_same(&all_awks(), Path::new("/nonexistent/sub_x")).unwrap();
    let text = data::json_string;
    let block = prop_oneof![
        text().prop_map(|s| format!(r#"{{"type":"text","text":{s}}}"#)),
        text().prop_map(|s| format!(r#"{{"type":"thinking","thinking":{s},"signature":"x"}}"#)),
        Just(r#"{"type":"tool_use","id":"t","name":"Bash","input":{}}"#.to_owned()),
    ];
    let content = prop::collection::vec(block, 0..4).prop_map(|blocks| format!("[{}]", blocks.join(",")));
    let line = prop_oneof![
        3 => content.prop_map(|content| format!(r#"{{"role":"assistant","content":{content}}}"#)),
        1 => Just(r#"{"role":"user","content":"x"}"#.to_owned()),
        1 => Just(r#"{"role":"assistant","con"#.to_owned()),
    ];
    let error = prop_oneof![2 => text().prop_map(|s| format!(r#"{{"type":"error","message":{s}}}"#)), 1 => Just(r#"{"type":"error","message":7}"#.to_owned())];
    let stats = prop::sample::select(vec![
        "",
        "{broken",
        r#"{"total_input_tokens":5,"agent_request_count":3000000000}"#,
        r#"{"total_output_tokens":-1}"#,
    ]);
    generated(
        24,
        (prop::collection::vec(line, 0..4), prop::collection::vec(error, 0..3), stats),
        |(lines, errors, stats)| {
            let dir = tempfile::tempdir().unwrap();
            let put = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
            put("conversation.jsonl", lines.iter().map(|line| format!("{line}\n")).collect());
            put("events.jsonl", errors.iter().map(|line| format!("{line}\n")).collect());
            put("stats.json", stats.to_owned());
            result_same(awks(), dir.path())
        },
    );
}

/// The provider, its program, a model.
const APIS: [(&str, &str, &str); 5] = [
    ("claude", "body_anthropic.awk", "claude-sonnet-5-5"),
    ("claude", "body_anthropic.awk", "some-other-model"),
    ("openai", "body_openai.awk", "gpt-6-sol"),
    ("openai", "body_openai.awk", "deepseek-chat"),
    ("responses", "body_responses.awk", "gpt-6-sol"),
];

/// What a server may refuse: the words of `-v omit` and of `core body --omit`.
const OMITTED: [&str; 8] = [
    "thinking",
    "effort",
    "cache_control",
    "stream_options",
    "include",
    "summary",
    "other_limit",
    "other_reasoning",
];

fn body_same(awks: &[Awk], session: &Path, thinking: &str) -> Result<(), String> {
    body_same_without(awks, session, thinking, None)
}

/// The same; with `until` only so many bytes of the conversation, no signed thinking, and nothing that a server may refuse.
fn body_same_without(
    awks: &[Awk],
    session: &Path,
    thinking: &str,
    until: Option<usize>,
) -> Result<(), String> {
    let meta = std::fs::read_to_string(session.join("session.json")).unwrap_or_default();
    let results_from =
        meta.split_once("\"results_from\":").map_or("0", |(_, rest)| rest.trim_end_matches(['}', '\n']));
    let home = tempfile::tempdir().unwrap();
    let system = home.path().join("system");
    std::fs::write(&system, "You are \"an\" agent.\n\té\n").unwrap();
    let tools = root().join("src/assets/tools.json");
    let empty = home.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    for (provider, program, model) in APIS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bash-agent"));
        command.args(["core", "body"]).arg(session).args([
            "-p",
            provider,
            "-m",
            model,
            "--thinking",
            thinking,
            "--effort",
            "low",
        ]);
        command.arg("--system").arg(&system).env_clear().env("HOME", home.path()).current_dir(home.path());
        let mut conversation = session.join("conversation.jsonl");
        if let Some(until) = until {
            let whole = std::fs::read(&conversation).unwrap();
            conversation = home.path().join("conversation");
            std::fs::write(&conversation, &whole[..until]).unwrap();
            command.args(["--drop-signed", "--until", &until.to_string()]);
            command.args(OMITTED.iter().flat_map(|word| ["--omit", word]));
        }
        let ours = command.output().unwrap();
        if !ours.status.success() {
            return Err(String::from_utf8_lossy(&ours.stderr).into_owned());
        }
        for name in awks {
            let known = awk(
                name,
                "models.awk",
                &[&format!("-vmodel={model}"), root().join("src/assets/models.json").to_str().unwrap()],
                b"",
            );
            let known = String::from_utf8(known.stdout).unwrap();
            let word =
                |at: usize| known.split_whitespace().nth(at).filter(|word| *word != "-").unwrap_or_default();
            let (kind, disable) = (format!("-vthinking_kind={}", word(2)), format!("-vdisable={}", word(3)));
            let url = match provider {
                "claude" => "https://api.anthropic.com/v1",
                _ => "https://api.openai.com/v1",
            };
            let options = [
                v("system_file", &system),
                v("tools_file", &tools),
                v("extra_file", &empty),
                v("images_dir", session.join("images")),
                format!("-vvision={}", u8::from(word(4) != "false")),
                kind,
                disable,
                "-veffort=low".into(),
                format!("-vthinking={thinking}"),
                format!("-vmodel={model}"),
                format!("-vbase_url={url}"),
                format!("-vdrop_unsigned={}", u8::from(provider == "claude")),
                format!("-vresults_from={results_from}"),
                format!("-vdrop_signed={}", u8::from(until.is_some())),
                format!("-vomit={}", if until.is_some() { OMITTED.join(" ") } else { String::new() }),
                conversation.display().to_string(),
            ];
            let theirs = awk(name, program, &options.iter().map(String::as_str).collect::<Vec<_>>(), b"");
            let what =
                format!("{program} {model} {thinking} under {} of {}", name.join(" "), session.display());
            same(&what, &theirs.stdout, &ours.stdout)?;
        }
    }
    Ok(())
}

#[test]
fn body_as_recorded() {
    for session in data::sessions() {
        for thinking in ["adaptive", "enabled", "disabled"] {
            body_same(if thinking == "adaptive" { awks() } else { &awks()[..1] }, &session, thinking)
                .unwrap();
        }
    }
}

/// Images of every length modulo three, named once, twice, in any order, and some that are not there.
#[test]
fn body_with_images() {
    let dir = tempfile::tempdir().unwrap();
    let images = dir.path().join("it's images");
    let session = images.join("s");
    std::fs::create_dir_all(session.join("images")).unwrap();
    for (name, length) in [("1.png", 100_000), ("2.jpg", 1), ("3.gif", 2), ("4.webp", 49_152), ("5.png", 0)] {
        let bytes: Vec<u8> = (0..length).map(|at: u32| (at * 7 + at / 251) as u8).collect();
        std::fs::write(session.join("images").join(name), bytes).unwrap();
    }
    let lines = [
        r#"{"role":"user","content":"plain [Image #9] [Image #5] [Image #0] [Image #01]"}"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"[Image #1]"}]}"#,
        r#"{"role":"user","content":"[Image #2] and \"[Image #1]\" and\n[Image #2]\n\u2003"}"#,
        r#"{"role":"user","content":"[Image #4]\n \t"}"#,
        r#"{ "role": "user", "content": "é[Image #3][Image #1234567890]" }"#,
    ];
    std::fs::write(session.join("conversation.jsonl"), lines.join("\n") + "\n").unwrap();
    body_same(awks(), &session, "adaptive").unwrap();
}

#[test]
fn body_as_generated() {
    let text = data::json_string;
    let block = prop_oneof![
        3 => text().prop_map(|s| format!(r#"{{"type":"text","text":{s}}}"#)),
        2 => (text(), prop::sample::select(vec!["", r#","signature":"sig""#, r#","signature":"s","id":"rs_1""#, r#","signature":"""#])).prop_map(|(s, more)| format!(r#"{{"type":"thinking","thinking":{s}{more}}}"#)),
        1 => Just(r#"{"type":"redacted_thinking","data":"opaque"}"#.to_owned()),
        3 => (0..4, data::tool(), data::tool_input()).prop_map(|(n, name, input)| format!(r#"{{"type":"tool_use","id":"t{n}","name":"{name}","input":{input}}}"#)),
        1 => Just(r#"{"type":"tool_use","id":"t9","name":"PlanClear","input":}"#.to_owned()),
    ];
    let result = (0..4, text(), any::<bool>()).prop_map(|(n, s, failed)| {
        format!(
            r#"{{"type":"tool_result","tool_use_id":"t{n}","content":{s}{}}}"#,
            if failed { r#","is_error":true"# } else { "" }
        )
    });
    let list = |blocks: Vec<String>| format!("[{}]", blocks.join(","));
    let line = prop_oneof![
        3 => text().prop_map(|s| format!(r#"{{"role":"user","content":{s}}}"#)),
        4 => prop::collection::vec(block, 0..4).prop_map(move |blocks| format!(r#"{{"role":"assistant","content":{}}}"#, list(blocks))),
        3 => prop::collection::vec(result, 0..4).prop_map(move |blocks| format!(r#"{{"role":"user","content":{}}}"#, list(blocks))),
        1 => prop::sample::select(vec!["", "{broken", "[]", r#"{"role":"system","content":"x"}"#]).prop_map(str::to_owned),
    ];
    let large = (0..4, 900_usize..1200).prop_map(|(n, size)| {
        format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{n}","content":"{}","is_error":true}}]}}"#,
            "y".repeat(size)
        )
    });
    let line = prop_oneof![5 => line, 1 => large];
    generated(24, (prop::collection::vec(line, 0..10), 0..4000), |(lines, results_from)| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("session.json"),
            format!("{{\"cwd\":\"\",\"results_from\":{results_from}}}\n"),
        )
        .unwrap();
        std::fs::write(
            dir.path().join("conversation.jsonl"),
            lines.iter().map(|line| format!("{line}\n")).collect::<String>(),
        )
        .unwrap();
        body_same(awks(), dir.path(), "adaptive").map_err(|error| format!("{error}\n{}", lines.join("\n")))
    });
}

#[test]
fn body_of_what_is_dropped_without_what_a_server_refuses() {
    for session in data::sessions() {
        let conversation = std::fs::read_to_string(session.join("conversation.jsonl")).unwrap();
        let ends: Vec<usize> = conversation.match_indices('\n').map(|(at, _)| at + 1).collect();
        for until in [ends[ends.len() / 2], conversation.len()] {
            body_same_without(awks(), &session, "adaptive", Some(until)).unwrap();
        }
    }
}
