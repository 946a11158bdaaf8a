//! JSON strings and members, and the edit.

use proptest::prelude::*;

use crate::data::{self, frame};
use crate::twins::{all_awks, awk, awks, compare, core, generated, same, v};

/// awk cannot see whether the last line has its LF, so its callers add a mark; ours takes every byte.
fn escape_same(awks: &[crate::twins::Awk], text: &[u8]) -> Result<(), String> {
    let ours = core(&["json", "escape"], text);
    let marked = [text, b"."].concat();
    for name in awks {
        let theirs = awk(name, "json_cli.awk", &["-vop=escape", "-vmark=1"], &marked);
        same(&format!("escape under {}", name.join(" ")), &theirs.stdout, &ours.stdout)?;
    }
    Ok(())
}

#[test]
fn json_escape() {
    for text in [
        &b""[..],
        b"\n",
        b"a\n\n",
        b"\x01\x1f\x7f\"\\/",
        b"\xff\xc3\xa9\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82",
        b"\r\n\t\x08\x0c",
    ] {
        escape_same(&all_awks(), text).unwrap();
    }
    escape_same(awks(), b"a\0b").unwrap();
    generated(24, data::bytes(), |text| escape_same(awks(), &text));
}

#[test]
fn json_get() {
    let get = |awks: &[crate::twins::Awk], object: &[u8], key: &str| {
        compare(awks, "json_cli.awk", &["-vop=get", &v("key", key)], &["json", "get", key], object)?;
        compare(
            awks,
            "json_cli.awk",
            &["-vop=get", "-vraw=1", &v("key", key)],
            &["json", "get", "--raw", key],
            object,
        )
    };
    let objects = [
        r#"{"a":"x\ny\u00e9\ud83d\ude00\ud83d","b":[1, 2],"a":"last"}"#,
        " {\"a\" : {\"a\":1} ,\n\"b\":null}\n",
        r#"{"\u0061":1.50}"#,
        r#"{"a":1"#,
        r#"["a"]"#,
        "",
        r#"{"a":""}"#,
    ];
    for object in objects {
        for key in ["a", "b", "none"] {
            get(&all_awks(), object.as_bytes(), key)
                .unwrap_or_else(|error| panic!("{object} {key}: {error}"));
        }
    }
    generated(24, data::tool_input(), |object| {
        get(awks(), object.as_bytes(), "path").and_then(|()| get(awks(), object.as_bytes(), "é"))
    });
}

fn edit_same(awks: &[crate::twins::Awk], content: &[u8], old: &str, new: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let (file, reply) = (dir.path().join("file"), dir.path().join("reply"));
    std::fs::write(&file, content).unwrap();
    let input = frame(&[old.as_bytes().to_vec(), new.as_bytes().to_vec()]);
    let path = file.to_str().unwrap();
    let arguments = ["edit", path, "--name", "f", "--reply", reply.to_str().unwrap()];
    let ours = core(&arguments, &input);
    let our_reply = std::fs::read(&reply).unwrap();
    for name in awks {
        std::fs::remove_file(&reply).unwrap();
        let theirs =
            awk(name, "edit_file.awk", &["-vpath=f", &v("file", &file), &v("reply", &reply)], &input);
        let what = format!("edit under {} ({content:?}, {old:?}, {new:?})", name.join(" "));
        same(&format!("reply of {what}"), &std::fs::read(&reply).unwrap_or_default(), &our_reply)?;
        same(&what, &theirs.stdout, &ours.stdout)?;
        if theirs.status.code() != ours.status.code() {
            return Err(format!("{what}: {} / {}", theirs.status, ours.status));
        }
    }
    Ok(())
}

#[test]
fn edit() {
    let long = (1..=30).map(|n| format!("line {n}\n")).collect::<String>();
    for (content, old, new) in [
        (long.as_str(), "line 12\n", "twelve\nand a half\n"),
        (&long, "line 30\n", ""),
        (&long, "line 1", "x"),
        (&long, "line 99", "x"),
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz"),
        ("a\r\nb", "b", "x\ny"),
        ("a", "a", ""),
        ("a", "", "b"),
        ("a", "a", "a"),
        ("", "a", "b"),
        ("aaa", "aa", "b"),
        ("say(“hi”)\n", "say(\"hi\")", "x"),
        ("if x:\n\tfoo()\n", "if x:\n    foo()", "x"),
        ("cafe\u{301}", "café", "x"),
        ("é\n", "é", "$& \\1 %s"),
    ] {
        edit_same(&all_awks(), content.as_bytes(), old, new).unwrap();
    }
    let missing =
        core(&["edit", "/nonexistent/file", "--name", "f"], &frame(&[b"a".to_vec(), b"b".to_vec()]));
    assert_eq!((missing.status.code(), missing.stderr), (Some(1), b"file not found: f\n".to_vec()));
}

#[test]
fn edit_as_generated() {
    let line = prop::sample::select(vec!["a", "b", "a b", "\tx", "é", "", "long line of text", "a\r"]);
    let content = (prop::collection::vec(line, 0..25), any::<bool>());
    let cut = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        prop::sample::select(vec!["", "new", "x\ny", "\n", "a", "a\nb\na\n\na b\n", "\n\n\tx\na"]),
    );
    generated(40, (content, cut), |((lines, last), (from, to, new))| {
        let content = lines.join("\n") + if last { "\n" } else { "" };
        let places: Vec<usize> = content.char_indices().map(|(at, _)| at).chain([content.len()]).collect();
        let (from, to) = (*from.get(&places), *to.get(&places));
        edit_same(awks(), content.as_bytes(), &content[from.min(to)..from.max(to)], new)
    });
}
