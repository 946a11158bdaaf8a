//! The fixture matrix: every shape of a stream as a file (`tests/fixtures/sse-*`), with the messages that it must give
//! beside it, through the binary and each awk. Rows are shapes, columns are decoders; the table goes to stderr.
//!
//! `NAME.sse` is a body as a server sends it (`NAME.http`: with its head, from a real server), `NAME.messages` what
//! `core resp decode` shows of the messages. Expectations are written by hand; splits at every byte are tested in
//! `src/model/fixtures.rs`.

use std::io::Write;
use std::path::Path;

use crate::twins::{Awk, all_awks, awk, core, root};

/// A shape: where it lies, its API, its bytes, what is expected.
struct Shape {
    name: String,
    provider: &'static str,
    body: Vec<u8>,
    expected: String,
}

const DIRECTORIES: [(&str, &str); 4] = [
    ("sse-claude", "claude"),
    ("sse-openai", "openai"),
    ("sse-responses", "responses"),
    ("sse-llama-server", ""),
];

fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (directory, provider) in DIRECTORIES {
        let mut files: Vec<_> = std::fs::read_dir(root().join("tests/fixtures").join(directory))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        files.sort();
        for file in
            files.iter().filter(|file| file.extension().is_some_and(|end| end == "sse" || end == "http"))
        {
            shapes.push(shape(file, directory, provider));
        }
    }
    shapes
}

fn shape(file: &Path, directory: &str, provider: &'static str) -> Shape {
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    let raw = std::fs::read(file).unwrap();
    let start = if file.extension().is_some_and(|end| end == "http") { head_length(&raw) } else { 0 };
    let provider = match (provider, name.split('-').next()) {
        ("", Some("messages")) => "claude",
        ("", Some("responses")) => "responses",
        ("", _) => "openai",
        (provider, _) => provider,
    };
    let expected = std::fs::read_to_string(file.with_extension("messages"))
        .unwrap_or_else(|_| panic!("{} has no expectation beside it", file.display()));
    Shape { name: format!("{directory}/{name}"), provider, body: raw[start..].to_vec(), expected }
}

/// Where the body of an answer begins.
fn head_length(raw: &[u8]) -> usize {
    let after = |end: &[u8]| raw.windows(end.len()).position(|bytes| bytes == end).map(|at| at + end.len());
    [after(b"\r\n\r\n"), after(b"\n\n")].into_iter().flatten().min().expect("a head")
}

/// Frames as lines.
fn lines(frames: &[u8]) -> String {
    String::from_utf8(core(&["resp", "decode"], frames).stdout).unwrap()
}

fn by_binary(shape: &Shape, body: &[u8]) -> String {
    let options = ["sse", "--provider", shape.provider, "--join", "--estimated", "--server", "here"];
    lines(&core(&options, body).stdout)
}

fn by_awk(name: Awk, shape: &Shape, body: &[u8]) -> String {
    let program = match shape.provider {
        "claude" => "sse_anthropic.awk",
        "openai" => "sse_openai.awk",
        _ => "sse_responses.awk",
    };
    lines(&awk(name, program, &["-vjoin=1", "-vestimated=1", "-vserver=here"], body).stdout)
}

#[test]
fn every_shape_gives_its_messages_in_every_decoder() {
    let awks = all_awks();
    let mut table = format!("{:<52} binary", "shape");
    awks.iter().for_each(|name| table.push_str(&format!(" {:>12}", name.join(" "))));
    let mut failures = Vec::new();
    let shapes = shapes();
    assert!(shapes.len() > 120, "the fixtures are there");
    for shape in &shapes {
        table.push_str(&format!("\n{:<52}", shape.name));
        let mut cell = |column: &str, width: usize, got: String| {
            let good = got == shape.expected;
            table.push_str(&format!(" {:>width$}", if good { "ok" } else { "FAILED" }));
            if !good {
                failures.push(format!("{} by {column}: expected\n{}got\n{got}", shape.name, shape.expected));
            }
        };
        cell("the binary", 6, by_binary(shape, &shape.body));
        for (at, name) in awks.iter().enumerate() {
            // The line ends of a stream make no difference: each awk gets another kind.
            let end = ["\n", "\r\n", "\r"][at % 3].as_bytes();
            // What has no LF as a line end of its own (a bare CR would join its lines) goes as it is.
            let body = match shape.body.contains(&b'\r') {
                true => shape.body.clone(),
                false => shape.body.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(end),
            };
            // These two do not keep NUL, or what is no UTF-8: such bytes are the business of the others.
            cell(&name.join(" "), 12, by_awk(name, shape, &body));
        }
    }
    table.push('\n');
    // Past the test runner, which shows the output of failed tests only.
    std::io::stderr().write_all(table.as_bytes()).unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
