//! RESP frames: arrays of bulk strings (CONTRACT §3).
//!
//! A scan of our own measures a frame first: it takes the limits seriously, never recurses and never waits for
//! more than a frame may hold. redis-protocol only sees frames that were measured.

use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;

/// Most fields a frame may have, the name included.
pub const MAX_FIELDS: usize = 64;

/// Most bytes a frame may take, its headers included.
pub const MAX_FRAME: usize = 64 << 20;

/// Appends one frame. `fields` are 1 to `MAX_FIELDS` (a `Message` keeps to that); a reader refuses others.
pub fn encode(fields: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    let size: usize = fields.iter().map(|field| field.as_ref().len() + 16).sum();
    out.reserve(size + 8);
    header(b'*', fields.len(), out);
    for field in fields {
        let field = field.as_ref();
        header(b'$', field.len(), out);
        out.extend_from_slice(field);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends `kind`, the number and CR LF.
fn header(kind: u8, number: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// Whether bytes at the start of a message begin a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// `*`, one or two digits, CR LF, `$`: a frame.
    Frame,
    /// Too few bytes to tell.
    Unclear,
    /// Something else.
    Other,
}

/// Looks at the first bytes of a message: at most six decide.
pub fn begins(bytes: &[u8]) -> Begins {
    let digits = bytes.iter().skip(1).take(2).take_while(|byte| byte.is_ascii_digit()).count();
    match bytes {
        [] | [b'*'] => return Begins::Unclear,
        [b'*', ..] if digits > 0 => {}
        _ => return Begins::Other,
    }
    let rest = &bytes[1 + digits..];
    match rest {
        [b'\r', b'\n', b'$', ..] => Begins::Frame,
        [] | [b'\r'] | [b'\r', b'\n'] => Begins::Unclear,
        _ => Begins::Other,
    }
}

/// What a scan of a frame's bytes found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The frame is whole and takes this many bytes.
    Complete(usize),
    /// So far right; more bytes are needed.
    Incomplete,
    /// No frame: a field not closed by CR LF, a count or length out of range, another type.
    Malformed,
}

/// Measures the frame at the start of `bytes`.
pub fn measure(bytes: &[u8]) -> Measure {
    Measuring::default().go_on(bytes)
}

/// A measurement that goes on where it stopped when more bytes of the same frame have come, so that a frame in many
/// pieces is scanned once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measuring {
    /// Bytes known to be right.
    at: usize,
    /// Fields still to come; `None` before the count was read.
    left: Option<usize>,
}

/// One step of a measurement.
enum Step<T> {
    Done(T),
    NeedMore,
    Bad,
}

impl Measuring {
    /// `bytes` is the frame from its first byte on: those of the last call and any that have come since.
    pub fn go_on(&mut self, bytes: &[u8]) -> Measure {
        let mut left = match self.left {
            Some(left) => left,
            None => match number(bytes, 0, b'*', 2) {
                Step::Done((count, at)) if (1..=MAX_FIELDS).contains(&count) => {
                    self.at = at;
                    count
                }
                Step::NeedMore => return Measure::Incomplete,
                Step::Done(_) | Step::Bad => return Measure::Malformed,
            },
        };
        while left > 0 {
            self.left = Some(left);
            match field_end(bytes, self.at) {
                Step::Done(end) => self.at = end,
                Step::NeedMore => return Measure::Incomplete,
                Step::Bad => return Measure::Malformed,
            }
            left -= 1;
        }
        self.left = Some(0);
        Measure::Complete(self.at)
    }
}

/// Reads `kind`, at most `most` digits and CR LF at `at`: the number and where it ends.
fn number(bytes: &[u8], at: usize, kind: u8, most: usize) -> Step<(usize, usize)> {
    match bytes.get(at) {
        None => return Step::NeedMore,
        Some(&byte) if byte != kind => return Step::Bad,
        Some(_) => {}
    }
    let mut value = 0;
    let mut end = at + 1;
    loop {
        match bytes.get(end) {
            None => return Step::NeedMore,
            Some(digit @ b'0'..=b'9') if end - at <= most => value = value * 10 + usize::from(digit - b'0'),
            Some(b'\r') if end > at + 1 => break,
            Some(_) => return Step::Bad,
        }
        end += 1;
    }
    match bytes.get(end + 1) {
        None => Step::NeedMore,
        Some(b'\n') => Step::Done((value, end + 2)),
        Some(_) => Step::Bad,
    }
}

/// Where the field at `at` ends, its CR LF included.
fn field_end(bytes: &[u8], at: usize) -> Step<usize> {
    // MAX_FRAME has eight digits.
    let end = match number(bytes, at, b'$', 8) {
        Step::Done((length, start)) => start + length,
        Step::NeedMore => return Step::NeedMore,
        Step::Bad => return Step::Bad,
    };
    if end + 2 > MAX_FRAME {
        return Step::Bad;
    }
    match (bytes.get(end), bytes.get(end + 1)) {
        (Some(b'\r'), Some(b'\n')) => Step::Done(end + 2),
        (None, _) | (Some(b'\r'), None) => Step::NeedMore,
        _ => Step::Bad,
    }
}

/// The fields of one frame that `measure` found complete; `None` for anything else.
pub fn fields(frame: &[u8]) -> Option<Vec<&[u8]>> {
    let Ok(Some((RangeFrame::Array(ranges), _))) = decode_range(frame) else { return None };
    let field = |range| match range {
        RangeFrame::BulkString((start, end)) => frame.get(start..end),
        _ => None,
    };
    ranges.into_iter().map(field).collect()
}

/// Bytes of a stream that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed RESP frame at byte {offset}")]
pub struct Malformed {
    /// Where in the stream they begin.
    pub offset: u64,
}

/// Decodes a stream that should hold nothing but frames: a filter's input, notify.buf. After a malformed frame it
/// goes on at the next line that begins one. (The FIFOs, where time matters too, have `inbox::Scanner`.)
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Consumed part of `buffer`.
    start: usize,
    /// Stream offset of `buffer[start]`.
    offset: u64,
    measuring: Measuring,
    /// A malformed frame was reported, and the next one not found yet. The value: at the start of a line.
    skipping: Option<bool>,
}

impl Decoder {
    /// A decoder at the start of its stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            // What is left is a part of one frame, once `next` was called until it had no more.
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The fields of the next whole frame. `None`: feed more.
    #[allow(clippy::should_implement_trait, reason = "more can come after None")]
    pub fn next(&mut self) -> Option<Result<Vec<Vec<u8>>, Malformed>> {
        self.next_with(|fields| fields.iter().map(|field| field.to_vec()).collect())
    }

    /// As `next`, without copying the fields: `take` makes of them what is wanted.
    pub fn next_with<T>(&mut self, take: impl FnOnce(&[&[u8]]) -> T) -> Option<Result<T, Malformed>> {
        if self.skipping.is_some() && !self.skip() {
            return None;
        }
        let rest = &self.buffer[self.start..];
        let length = match self.measuring.go_on(rest) {
            Measure::Incomplete => return None,
            Measure::Malformed => 0,
            Measure::Complete(length) => length,
        };
        if let Some(fields) = fields(&rest[..length]) {
            let taken = take(&fields);
            self.consume(length);
            return Some(Ok(taken));
        }
        let malformed = Malformed { offset: self.offset };
        self.consume(1);
        self.skipping = Some(false);
        Some(Err(malformed))
    }

    /// Ends the stream: a frame that it breaks off in is malformed.
    pub fn finish(&mut self) -> Option<Malformed> {
        let left = self.buffer.len() - self.start;
        let malformed = Malformed { offset: self.offset };
        self.consume(left);
        (left > 0 && self.skipping.take().is_none()).then_some(malformed)
    }

    /// Bytes fed and not yet taken: a partial frame, once `next` gives `None`.
    pub fn pending(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    fn consume(&mut self, length: usize) {
        self.start += length;
        self.offset += length as u64;
        self.measuring = Measuring::default();
    }

    /// Drops bytes up to the next line that begins a frame; whether it was found.
    fn skip(&mut self) -> bool {
        while let Some(at_line) = self.skipping {
            let rest = &self.buffer[self.start..];
            match begins(rest) {
                Begins::Frame if at_line => self.skipping = None,
                Begins::Unclear if at_line => return false,
                _ => {
                    let line_feed = memchr::memchr(b'\n', rest);
                    self.consume(line_feed.map_or(rest.len(), |found| found + 1));
                    self.skipping = Some(line_feed.is_some());
                    if line_feed.is_none() {
                        return false;
                    }
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(fields: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(fields, &mut out);
        out
    }

    /// Everything a decoder gives for a stream fed in these pieces; broken frames as their offsets.
    fn decode(pieces: &[&[u8]]) -> Vec<Result<Vec<Vec<u8>>, Malformed>> {
        let mut decoder = Decoder::new();
        let mut all = Vec::new();
        for piece in pieces {
            decoder.feed(piece);
            while let Some(next) = decoder.next() {
                all.push(next);
            }
        }
        all.extend(decoder.finish().map(Err));
        all
    }

    #[test]
    fn frames_are_arrays_of_bulk_strings() {
        assert_eq!(
            frame(&["USER_NOTIFY", "hé", ""]),
            "*3\r\n$11\r\nUSER_NOTIFY\r\n$3\r\nhé\r\n$0\r\n\r\n".as_bytes()
        );
        assert_eq!(frame(&["1234567890"]), b"*1\r\n$10\r\n1234567890\r\n");
    }

    #[test]
    fn the_first_bytes_decide() {
        for prefix in ["", "*", "*1", "*64", "*1\r", "*64\r\n"] {
            assert_eq!(begins(prefix.as_bytes()), Begins::Unclear, "{prefix:?}");
        }
        for text in
            ["a", "*a", "**", "*123", "*1\n", "*1\rx", "*1\r\nx", "*\r\n$", "* item", "*-1\r\n$", "{", "*1x"]
        {
            assert_eq!(begins(text.as_bytes()), Begins::Other, "{text:?}");
        }
        assert_eq!(begins(b"*1\r\n$"), Begins::Frame);
        assert_eq!(begins(b"*00\r\n$x"), Begins::Frame);
    }

    #[test]
    fn what_is_out_of_range_is_malformed() {
        let malformed = [
            "*0\r\n$",
            "*65\r\n$1\r\n",
            "*1\r\n$-1\r\n",
            "*1\r\n$\r\n",
            "*1\r\n$1\r\nab",
            "*1\r\n$1\r\na\rx",
            "*1\r\n$1x",
            "*1\r\n:1\r\n",
            "*1\r\n*1\r\n",
            "*1\r\n$999999999",
            "*1\r\n$67108864\r\n",
            "*2\r\n$1\r\na\r\n+",
            "*-1\r\n",
            "x",
        ];
        for text in malformed {
            assert_eq!(measure(text.as_bytes()), Measure::Malformed, "{text:?}");
        }
        assert_eq!(measure(b"*1\r\n$67108840\r\n"), Measure::Incomplete);
        assert_eq!(measure(b"*1\r\n$1\r\na\r\nrest"), Measure::Complete(11));
    }

    #[test]
    fn the_longest_frame_fits_and_one_byte_more_does_not() {
        let longest = MAX_FRAME - b"*1\r\n$67108846\r\n\r\n".len();
        let header_of = |length: usize| format!("*1\r\n${length}\r\n");
        assert_eq!(measure(header_of(longest).as_bytes()), Measure::Incomplete);
        assert_eq!(measure(header_of(longest + 1).as_bytes()), Measure::Malformed);
    }

    #[test]
    fn a_broken_frame_is_skipped_up_to_the_next_one() {
        // J6: a frame cut in the middle, directly followed by others.
        let whole = frame(&["USER_NOTIFY", "later"]);
        let stream =
            [b"*2\r\n$11\r\nUSER_NOTIFY\r\n$40\r\nhalf\r\n".as_slice(), &whole, &whole, b"*1\r\n$3\r\nab"]
                .concat();
        let all = decode(&[&stream]);
        let cut = stream.len() as u64 - 10;
        assert_eq!(all[0], Err(Malformed { offset: 0 }));
        assert_eq!(all[1], Ok(vec![b"USER_NOTIFY".to_vec(), b"later".to_vec()]));
        assert_eq!(all[2], all[1]);
        assert_eq!(all[3..], [Err(Malformed { offset: cut })]);
    }

    /// A frame with arbitrary fields, or bytes that break one.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let fields = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 1..5);
        let whole = fields.prop_map(|fields| {
            let mut out = Vec::new();
            encode(&fields, &mut out);
            out
        });
        let token = prop::sample::select(vec![
            "*1\r\n$",
            "*2\r\n",
            "$3\r\n",
            "abc",
            "\r\n",
            "\n",
            "*",
            "$",
            "9",
            "\r",
            "*1\r\n$2\r\nab\r\n",
        ]);
        let noise = prop::collection::vec(token, 0..6).prop_map(|tokens| tokens.concat().into_bytes());
        prop_oneof![3 => whole, 2 => noise]
    }

    proptest! {
        #[test]
        fn fields_come_back(list in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..=MAX_FIELDS), 0..4)) {
            let mut stream = Vec::new();
            for fields in &list {
                encode(fields, &mut stream);
            }
            prop_assert_eq!(decode(&[&stream]), list.into_iter().map(Ok).collect::<Vec<_>>());
        }

        #[test]
        fn any_split_decodes_the_same(pieces in prop::collection::vec(piece(), 0..6), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4)) {
            let stream = pieces.concat();
            let whole = decode(&[&stream]);
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            prop_assert_eq!(&decode(&bytes), &whole);
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            places.extend([0, stream.len()]);
            places.sort_unstable();
            let split: Vec<&[u8]> = places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
            prop_assert_eq!(&decode(&split), &whole);
        }

        #[test]
        fn a_measured_frame_is_what_redis_protocol_decodes(bytes in piece()) {
            if let Measure::Complete(length) = measure(&bytes) {
                let decoded = redis_protocol::resp2::decode::decode(&bytes).unwrap().unwrap();
                prop_assert_eq!(decoded.1, length);
                prop_assert!(fields(&bytes[..length]).is_some());
            }
        }
    }
}
