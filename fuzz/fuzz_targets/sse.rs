//! SSE: any bytes, cut anywhere, give the same events; and events written out again come back.
#![no_main]

use bash_agent::wire::sse::Decoder;
use libfuzzer_sys::fuzz_target;

fn decode(body: &[u8], piece: usize) -> Vec<(String, Vec<u8>)> {
    let mut events = Vec::new();
    let mut sink = |name: &str, data: &[u8]| events.push((name.to_owned(), data.to_vec()));
    let mut decoder = Decoder::new();
    for bytes in body.chunks(piece) {
        decoder.feed(bytes, &mut sink);
    }
    decoder.finish(&mut sink);
    events
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, body) = input;
    let whole = decode(body, body.len().max(1));
    assert_eq!(decode(body, usize::from(piece).max(1)), whole);
    let mut written = Vec::new();
    for (name, data) in &whole {
        written.extend_from_slice(format!("event: {name}\r\n").as_bytes());
        for line in data.split(|&byte| byte == b'\n') {
            written.extend_from_slice(b"data: ");
            written.extend_from_slice(line);
            written.extend_from_slice(b"\r\n");
        }
        written.extend_from_slice(b"\r\n");
    }
    assert_eq!(decode(&written, 7), whole);
});
