//! The fixtures of tests/fixtures/sse-*: however the network cuts a stream, and whatever ends its lines, the events are
//! the same. What they are is checked by the fixture matrix (tests/differential/matrix.rs).

use super::Provider;
use super::testing::decode;

#[test]
fn a_stream_means_the_same_however_it_is_cut() {
    for (directory, provider) in [
        ("sse-claude", Provider::Claude),
        ("sse-openai", Provider::OpenAi),
        ("sse-responses", Provider::Responses),
    ] {
        let path = format!("{}/tests/fixtures/{directory}", env!("CARGO_MANIFEST_DIR"));
        for entry in std::fs::read_dir(path).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_none_or(|end| end != "sse") {
                continue;
            }
            let body = std::fs::read(&file).unwrap();
            let whole = decode(provider, &body, usize::MAX);
            for end in ["\n", "\r\n", "\r"] {
                let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
                let body = lines.join(end.as_bytes());
                for size in [1, 2, 3, 5, 7, 16, 61, 64, 127, 1000] {
                    assert_eq!(decode(provider, &body, size), whole, "{} {size} {end:?}", file.display());
                }
            }
        }
    }
}
