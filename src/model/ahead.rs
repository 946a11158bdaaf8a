//! Deltas told by sight. The events of one answer differ in little but their text, so one that was taken apart tells
//! what the next ones look like, and those need no parsing (`wire::sse::Sink::take_ahead`).
//!
//! This is exact, not a guess: between the same bytes, one whole JSON string in the place of another changes nothing
//! but its value.

use memchr::memchr;

use crate::wire::json;

/// Most events that are passed over after an attempt that brought nothing.
const MAX_PAUSE: u32 = 64;

/// What a delta adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text,
    Thinking,
}

/// What a decoder finds in an event that does nothing but add a piece.
pub(super) struct Found<'a> {
    pub(super) piece: Piece,
    /// The raw JSON string.
    pub(super) text: &'a [u8],
    /// A raw number that counts the events.
    pub(super) count: Option<&'a [u8]>,
    /// A raw string that means nothing.
    pub(super) filler: Option<&'a [u8]>,
}

/// The events at the start of some bytes, taken at once.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) piece: Piece,
    /// Their text, joined.
    pub(super) text: String,
    /// Their length in bytes.
    pub(super) length: usize,
    /// How many there are.
    pub(super) events: u64,
}

/// Knows what the last delta looked like.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    piece: Option<Piece>,
    /// An event: what stands before the first hole, the hole, what stands before the next one, …
    parts: Vec<(Vec<u8>, Hole)>,
    /// What stands behind the last hole.
    end: Vec<u8>,
    /// Events to pass over before the next attempt, and how many after that one if it fails too.
    pause: u32,
    next_pause: u32,
}

/// What differs from one event to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hole {
    Text,
    Filler,
    Count,
}

impl Ahead {
    /// Takes the deltas that `bytes` begin with. `find` looks at the data of one that is like none before, and says
    /// what it adds when it does nothing else.
    pub(super) fn take<'a>(
        &mut self,
        bytes: &'a [u8],
        find: impl FnOnce(&'a [u8]) -> Option<Found<'a>>,
    ) -> Option<Taken> {
        self.run(bytes).or_else(|| {
            if self.pause > 0 {
                self.pause -= 1;
                return None;
            }
            self.next_pause = (self.next_pause * 2).clamp(1, MAX_PAUSE);
            self.pause = self.next_pause;
            self.learn(bytes, find)?;
            self.run(bytes)
        })
    }

    /// The events that look like the last one.
    fn run(&mut self, bytes: &[u8]) -> Option<Taken> {
        let mut taken = Taken { piece: self.piece?, text: String::new(), length: 0, events: 0 };
        while let Some((text, length)) = self.like(&bytes[taken.length..]) {
            taken.text.push_str(&json::unescape(text));
            taken.length += length;
            taken.events += 1;
        }
        if taken.events > 1 {
            (self.pause, self.next_pause) = (0, 0);
        }
        (taken.events > 0).then_some(taken)
    }

    /// The body of the text of the event that `bytes` begin with, and the event's length.
    fn like<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], usize)> {
        let (mut rest, mut text) = (bytes, None);
        for (before, hole) in &self.parts {
            rest = rest.strip_prefix(before.as_slice())?;
            let length = match hole {
                Hole::Text | Hole::Filler => json::string_length(rest)?,
                Hole::Count => whole_number(rest)?,
            };
            if *hole == Hole::Text {
                text = Some(&rest[1..length - 1]);
            }
            rest = &rest[length..];
        }
        let rest = rest.strip_prefix(self.end.as_slice())?;
        Some((text?, bytes.len() - rest.len()))
    }

    /// Keeps the look of the event that `bytes` begin with, if all of it is there.
    fn learn<'a>(&mut self, bytes: &'a [u8], find: impl FnOnce(&'a [u8]) -> Option<Found<'a>>) -> Option<()> {
        self.piece = None;
        let mut data = bytes;
        if data.starts_with(b"event:") {
            data = &data[memchr(b'\n', data)? + 1..];
        }
        let data = &data[..memchr(b'\n', data)?];
        let after = offset(bytes, data) + data.len();
        if !bytes[after..].starts_with(b"\n\n") {
            return None;
        }
        let found = find(data.strip_prefix(b"data:")?)?;
        let holes =
            [(Some(found.text), Hole::Text), (found.count, Hole::Count), (found.filler, Hole::Filler)];
        let mut holes: Vec<(&[u8], Hole)> =
            holes.into_iter().filter_map(|(raw, hole)| Some((raw?, hole))).collect();
        holes.sort_by_key(|(raw, _)| offset(bytes, raw));
        self.parts.clear();
        let mut at = 0;
        for (raw, hole) in holes {
            let start = offset(bytes, raw);
            self.parts.push((bytes[at..start].to_vec(), hole));
            at = start + raw.len();
        }
        self.end = bytes[at..after + 2].to_vec();
        self.piece = Some(found.piece);
        Some(())
    }
}

/// Where `part` lies in the bytes that it was cut from.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

/// The length of the whole number, as JSON writes it, that `bytes` begin with.
fn whole_number(bytes: &[u8]) -> Option<usize> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits == 1 || (digits > 1 && bytes[0] != b'0')).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(data: &[u8]) -> Option<Found<'_>> {
        Some(Found {
            piece: Piece::Text,
            text: json::member(data, "t")?,
            count: json::member(data, "n"),
            filler: json::member(data, "f"),
        })
    }

    #[test]
    fn events_that_differ_in_their_holes_are_taken_at_once() {
        let bytes = b"event: e\ndata: {\"n\":9,\"t\":\"a\\n\",\"f\":\"x\"}\n\nevent: e\ndata: {\"n\":10,\"t\":\"\\u00e9\",\"f\":\"\"}\n\nevent: o\n";
        let taken = Ahead::default().take(bytes, find).unwrap();
        assert_eq!((taken.text.as_str(), taken.events), ("a\né", 2));
        assert_eq!(&bytes[taken.length..], b"event: o\n");
    }

    #[test]
    fn what_differs_elsewhere_is_left() {
        let first = b"data: {\"t\":\"a\",\"n\":1}\n\n";
        for other in [
            "data: {\"t\":\"b\",\"n\":01}\n\n",
            "data: {\"t\":\"b\",\"n\":1.5}\n\n",
            "data: {\"t\":null,\"n\":2}\n\n",
            "data: {\"t\":\"\u{1}\",\"n\":2}\n\n",
            "data: {\"t\":\"\\x\",\"n\":2}\n\n",
            "data: {\"t\":\"b\",\"n\":2,\"m\":3}\n\n",
            "data: {\"t\":\"b\",\"n\":2}\ndata: 1\n\n",
            "data: {\"t\":\"b\",\"n\":2}\n",
            ": {\"t\":\"b\",\"n\":2}\n\n",
        ] {
            let mut ahead = Ahead::default();
            let bytes = [first, other.as_bytes()].concat();
            let taken = ahead.take(&bytes, find).unwrap();
            assert_eq!((taken.text.as_str(), taken.length), ("a", first.len()), "{other}");
        }
    }

    #[test]
    fn attempts_in_vain_become_rare() {
        let mut ahead = Ahead::default();
        let mut attempts = 0;
        for _ in 0..10_000 {
            let taken = ahead.take(b"data: {}\n\n", |_| {
                attempts += 1;
                None
            });
            assert!(taken.is_none());
        }
        assert!(attempts < 200, "{attempts}");
    }
}
