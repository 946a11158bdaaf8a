//! Inputs: what was recorded, and strategies for what is generated.

use std::path::PathBuf;

use proptest::prelude::*;

use crate::twins::root;

/// Text that looks for trouble: escapes, line ends, several bytes a character, marks that a terminal obeys.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => "[a-z \\n]{0,12}".boxed(),
        3 => prop::sample::select(vec![
            "\\", "\\n", "\"", "\t", "\r", "\r\n", "\n\n", "é", "日本", "😀", "\u{202e}", "\u{9b}", "\u{2028}", "\u{61c}",
            "\u{1}", "\u{1f}", "\u{7f}", "\u{1b}[31m", "\u{fffd}", "\u{fffe}", "&", "%s", "/", "{", "}", "*1\r\n$", "\u{d7ff}",
            "\u{10ffff}",
        ]).prop_map(str::to_owned).boxed(),
        1 => any::<char>().prop_filter("NUL", |c| *c != '\0').prop_map(String::from).boxed(),
        1 => "[a-z]{100,300}".boxed(),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Text as bytes, sometimes no UTF-8; never NUL.
pub(crate) fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let broken = prop::collection::vec(1_u8..=255, 0..20);
    prop_oneof![6 => text().prop_map(String::into_bytes), 1 => broken]
}

/// A JSON string of some text, escaped in one of several ways.
pub(crate) fn json_string() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        r#""\u00e9\ud83d\ude00""#,
        r#""\ud83d alone""#,
        r#""\udc00\u0000""#,
        r#""\/\b\f""#,
        r#""ok""#,
        r#""""#,
    ]);
    prop_oneof![6 => text().prop_map(|text| serde_json::to_string(&text).unwrap()), 1 => odd.prop_map(str::to_owned)]
}

/// A number as JSON has them, of every size.
pub(crate) fn json_number() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "0",
        "-0",
        "-1",
        "1.5",
        "12.0",
        "1e3",
        "-2147483648",
        "2147483647",
        "2147483648",
        "-2147483649",
        "3000000000",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999",
        "9007199254740993",
        "0.0",
        "1E-2",
    ]);
    prop_oneof![2 => (0_u32..2000).prop_map(|n| n.to_string()), 1 => odd.prop_map(str::to_owned)]
}

/// Any JSON value, not deep.
pub(crate) fn json_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        json_string().boxed(),
        json_number().boxed(),
        prop::sample::select(vec!["null", "true", "false", "{}", "[]", "[ ]"])
            .prop_map(str::to_owned)
            .boxed(),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((json_string(), inner), 0..4).prop_map(|items| {
                let items: Vec<_> = items.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
                format!("{{{}}}", items.join(","))
            }),
        ]
    })
}

/// An object as a tool call's input is.
pub(crate) fn tool_input() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "path",
        "command",
        "pattern",
        "todos",
        "name",
        "description",
        "query",
        "url",
        "x",
        "é",
        "a\\tb",
    ]);
    let todos = prop::sample::select(vec![
        r#"[{"content":"a","status":"completed"},{"content":"b","status":"pending"}]"#,
        r#"[{"status":"completed"}"#,
        "[1,\"a\",{}]",
    ]);
    let value = prop_oneof![3 => json_string().boxed(), 2 => json_value().boxed(), 1 => todos.prop_map(str::to_owned).boxed()];
    prop::collection::vec((key, value), 0..5).prop_map(|members| {
        let members: Vec<_> = members.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

/// The name of a tool, known or not.
pub(crate) fn tool() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "Read",
        "Write",
        "Edit",
        "Bash",
        "Glob",
        "Grep",
        "TodoWrite",
        "Skill",
        "SubAgent",
        "WebSearch",
        "WebFetch",
        "Else",
        "",
    ])
    .prop_map(str::to_owned)
}

/// A RESP frame of some fields.
pub(crate) fn frame(fields: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    bash_agent::wire::resp::encode(fields, &mut out);
    out
}

/// The recorded sessions.
pub(crate) fn sessions() -> Vec<PathBuf> {
    let dir = root().join("tests/fixtures/upstream-sessions");
    let mut list: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    list.retain(|path| path.join("events.jsonl").is_file());
    list.sort();
    assert!(list.len() >= 5, "{list:?}");
    list
}
