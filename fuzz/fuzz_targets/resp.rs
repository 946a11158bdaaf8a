//! RESP: any bytes, cut anywhere, give the same frames; a frame encodes back to what it was read from.
#![no_main]

use bash_agent::wire::resp::{self, Decoder, Malformed};
use libfuzzer_sys::fuzz_target;

type Frames = Vec<Result<Vec<Vec<u8>>, Malformed>>;

fn decode(stream: &[u8], piece: usize) -> Frames {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    for bytes in stream.chunks(piece) {
        decoder.feed(bytes);
        while let Some(frame) = decoder.next() {
            frames.push(frame);
        }
    }
    frames.extend(decoder.finish().map(Err));
    frames
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, stream) = input;
    let whole = decode(stream, stream.len().max(1));
    assert_eq!(decode(stream, usize::from(piece).max(1)), whole);
    let frames: Vec<_> = whole.into_iter().flatten().collect();
    let mut encoded = Vec::new();
    for fields in &frames {
        resp::encode(fields, &mut encoded);
    }
    assert_eq!(decode(&encoded, encoded.len().max(1)), frames.into_iter().map(Ok).collect::<Frames>());
});
