//! Server-sent events: bytes of a response body in, events out (PROVIDERS, 'SSE itself').

use std::borrow::Cow;
use std::mem;

use memchr::{memchr, memchr2};

/// Most bytes kept of one event's data, and of one line that is not whole yet. What is longer is cut there: a JSON
/// body then no longer parses, which the reader reports.
pub const MAX_EVENT: usize = 64 << 20;

/// Splits a response body into events, however the network cut it. An event that lies whole in one chunk is handed on
/// from there without a copy.
///
/// Lines end in LF, CR or CR LF; a line that ends in CR counts at once, a following LF is dropped when it comes.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The start of a line whose end has not come.
    line: Vec<u8>,
    /// Name and data of the event whose blank line has not come.
    event: Vec<u8>,
    data: Vec<u8>,
    /// `data` counts, even when it is empty: a `data` line was seen.
    has_data: bool,
    /// The last chunk ended in CR.
    after_cr: bool,
    /// The first line was looked at, so a BOM can no longer come.
    started: bool,
}

/// The event being put together within one chunk: borrowed from it as long as that goes.
#[derive(Default)]
struct Borrowed<'a> {
    event: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
}

/// A field of an event, as a line gives it.
enum Field<'a> {
    Event(&'a [u8]),
    Data(&'a [u8]),
    Other,
}

/// Takes what a decoder finds.
pub trait Sink {
    /// One event: its name, empty when it has none, and its data.
    fn event(&mut self, name: &str, data: &[u8]);

    /// `bytes` begin where an event begins. A sink that knows the whole events at their start by sight can take them at
    /// once: returns how many bytes it took, which end behind a blank line. A short cut: it may always take none.
    fn take_ahead(&mut self, _bytes: &[u8]) -> usize {
        0
    }
}

impl<F: FnMut(&str, &[u8])> Sink for F {
    fn event(&mut self, name: &str, data: &[u8]) {
        self(name, data);
    }
}

impl Decoder {
    /// A decoder at the start of a body.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the body and calls `sink` with name and data of every event that they complete. The
    /// name is empty when the event has none. Comments, and events without a `data` line, give nothing.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl Sink) {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        rest = self.finish_line(rest);
        let mut borrowed = Borrowed::default();
        if self.at_event() {
            rest = &rest[sink.take_ahead(rest)..];
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let line = &rest[..end];
            rest = self.after_line(rest, end);
            if line.is_empty() {
                self.dispatch(mem::take(&mut borrowed), sink);
                // After a CR at the chunk's end its LF may still come.
                if !self.after_cr {
                    rest = &rest[sink.take_ahead(rest)..];
                }
            } else {
                self.take_line(line, &mut borrowed);
            }
        }
        self.keep(borrowed);
        self.line.extend_from_slice(&rest[..rest.len().min(MAX_EVENT)]);
    }

    /// Ends a body that ended cleanly: its last event counts without a blank line (and its last line without an end).
    /// A body that broke off is not to be finished.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        self.finish_line(b"\n");
        self.dispatch(Borrowed::default(), sink);
        *self = Self::default();
    }

    /// Whether the next byte is the first of an event: nothing of one is kept, and the body's start is behind.
    fn at_event(&self) -> bool {
        self.started && !self.after_cr && self.line.is_empty() && self.event.is_empty() && !self.has_data
    }

    /// Completes the line that an earlier chunk began, if any, from `bytes`; what is left of them.
    fn finish_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.line.is_empty() {
            return bytes;
        }
        let end = memchr2(b'\n', b'\r', bytes);
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        let room = MAX_EVENT.saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        let Some(end) = end else { return &[] };
        let rest = self.after_line(bytes, end);
        let mut line = mem::take(&mut self.line);
        let mut borrowed = Borrowed::default();
        self.take_line(&line, &mut borrowed);
        self.keep(borrowed);
        line.clear();
        self.line = line;
        rest
    }

    /// What follows the line end at `end`, which may be CR LF.
    fn after_line<'a>(&mut self, bytes: &'a [u8], end: usize) -> &'a [u8] {
        let rest = &bytes[end + 1..];
        if bytes[end] == b'\n' {
            return rest;
        }
        self.after_cr = rest.is_empty();
        rest.strip_prefix(b"\n").unwrap_or(rest)
    }

    /// Adds one line, without its end, to the event.
    fn take_line<'a>(&mut self, line: &'a [u8], borrowed: &mut Borrowed<'a>) {
        let mut line = line;
        if !self.started {
            self.started = true;
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        match field(line) {
            Field::Event(name) => borrowed.event = Some(name),
            Field::Data(data) if borrowed.data.is_none() && !self.has_data => borrowed.data = Some(data),
            Field::Data(data) => {
                if let Some(first) = borrowed.data.take() {
                    self.add_data(first);
                }
                self.add_data(data);
            }
            Field::Other => {}
        }
    }

    /// Keeps beyond this chunk what was borrowed from it.
    fn keep(&mut self, borrowed: Borrowed<'_>) {
        if let Some(event) = borrowed.event {
            self.event.clear();
            self.event.extend_from_slice(event);
        }
        if let Some(data) = borrowed.data {
            self.add_data(data);
        }
    }

    /// Adds a data line to the kept ones, joined by LF.
    fn add_data(&mut self, data: &[u8]) {
        if self.has_data && self.data.len() < MAX_EVENT {
            self.data.push(b'\n');
        }
        self.has_data = true;
        let room = MAX_EVENT.saturating_sub(self.data.len());
        self.data.extend_from_slice(&data[..data.len().min(room)]);
    }

    /// A blank line: hands the event on, if it has data, and begins a new one.
    fn dispatch(&mut self, borrowed: Borrowed<'_>, sink: &mut impl Sink) {
        let name = borrowed.event.unwrap_or(&self.event);
        // The plain check is the fast one.
        let name = std::str::from_utf8(name).map_or_else(|_| String::from_utf8_lossy(name), Cow::Borrowed);
        match borrowed.data {
            Some(data) => sink.event(&name, data),
            None if self.has_data => sink.event(&name, &self.data),
            None => {}
        }
        self.started = true;
        self.has_data = false;
        self.event.clear();
        self.data.clear();
    }
}

/// Reads one line: the name up to the colon, the value after it and at most one blank.
fn field(line: &[u8]) -> Field<'_> {
    let (name, value) = match memchr(b':', line) {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => (line, &b""[..]),
    };
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match name {
        b"data" => Field::Data(value),
        b"event" => Field::Event(value),
        _ => Field::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Event = (String, Vec<u8>);

    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
        let mut events = Vec::new();
        let mut sink = |name: &str, data: &[u8]| events.push((name.to_owned(), data.to_vec()));
        let mut decoder = Decoder::new();
        for piece in pieces {
            decoder.feed(piece, &mut sink);
        }
        decoder.finish(&mut sink);
        events
    }

    fn event(name: &str, data: &str) -> Event {
        (name.to_owned(), data.as_bytes().to_vec())
    }

    /// The rules once more, the slow way: on the whole body, line by line.
    fn reference(body: &[u8]) -> Vec<Event> {
        let mut lines = vec![Vec::new()];
        let mut bytes = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\r' | b'\n' => {
                    if byte == b'\r' {
                        bytes.next_if_eq(&b'\n');
                    }
                    lines.push(Vec::new());
                }
                _ => lines.last_mut().unwrap().push(byte),
            }
        }
        lines.push(Vec::new());
        let (mut events, mut name, mut data) = (Vec::new(), Vec::new(), Vec::<Vec<u8>>::new());
        for line in lines {
            let mut parts = line.splitn(2, |&byte| byte == b':');
            let key = parts.next().unwrap();
            let value = parts.next().unwrap_or_default();
            let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
            match key {
                b"event" => name = value,
                b"data" => data.push(value),
                _ if line.is_empty() => {
                    if !data.is_empty() {
                        events.push((String::from_utf8_lossy(&name).into_owned(), data.join(&b'\n')));
                    }
                    (name, data) = (Vec::new(), Vec::new());
                }
                _ => {}
            }
        }
        events
    }

    const BODY: &str = "event: a\ndata: {\"x\":\"你好 مرحبا 🍸\"}\n\ndata:two\ndata: lines\n\n: ping\n\nevent: end\ndata: {}\n\n";

    fn expected() -> Vec<Event> {
        vec![event("a", "{\"x\":\"你好 مرحبا 🍸\"}"), event("", "two\nlines"), event("end", "{}")]
    }

    #[test]
    fn all_line_ends_work_also_cut_anywhere() {
        // D1, D2, D3
        for line_end in ["\n", "\r\n", "\r"] {
            let body = BODY.replace('\n', line_end);
            assert_eq!(decode([body.as_bytes()]), expected());
            assert_eq!(decode(body.as_bytes().chunks(1)), expected());
            for at in 0..body.len() {
                let (head, tail) = body.as_bytes().split_at(at);
                assert_eq!(decode([head, tail]), expected());
            }
        }
        let mixed = "event: a\rdata: 1\r\n\ndata: 2\n\r\ndata: 3\r\r";
        assert_eq!(decode([mixed.as_bytes()]), [event("a", "1"), event("", "2"), event("", "3")]);
    }

    #[test]
    fn an_event_is_handed_on_with_its_last_byte() {
        for line_end in ["\n", "\r\n", "\r"] {
            let body = format!("data: 1{line_end}{line_end}");
            let mut count = 0;
            let mut decoder = Decoder::new();
            // Of the last CR LF the CR is enough.
            let enough = body.strip_suffix("\r\n").map_or(body.len(), |rest| rest.len() + 1);
            decoder.feed(&body.as_bytes()[..enough], &mut |_: &str, _: &[u8]| count += 1);
            decoder.feed(b"data: 2", &mut |_: &str, _: &[u8]| count += 100);
            assert_eq!(count, 1, "{line_end:?}");
        }
    }

    #[test]
    fn one_blank_after_the_colon_goes() {
        // D4
        assert_eq!(
            decode([&b"event:message_stop\ndata:{\"type\":1}\n\n"[..]]),
            [event("message_stop", "{\"type\":1}")]
        );
        assert_eq!(decode([&b"data:  x \ndata\ndata:\n\n"[..]]), [event("", " x \n\n")]);
    }

    #[test]
    fn comments_and_events_without_data_give_nothing() {
        // D5, D7
        let body = ": PROCESSING\n\n: PROCESSING\nid: 7\ndata: 1\n: PROCESSING\n\n: ping\n\nevent: x\nretry: 5\n\nx: y\n\ndata: 2\n\n";
        assert_eq!(decode([body.as_bytes()]), [event("", "1"), event("", "2")]);
    }

    #[test]
    fn a_body_that_broke_off_keeps_its_last_event_to_itself() {
        for body in ["data: 1\n", "data: 1", "event: e\ndata: 1\n"] {
            let mut decoder = Decoder::new();
            decoder.feed(body.as_bytes(), &mut |_: &str, _: &[u8]| panic!("too early"));
            let mut count = 0;
            decoder.finish(&mut |_: &str, data: &[u8]| {
                assert_eq!(data, b"1");
                count += 1;
            });
            assert_eq!(count, 1);
        }
    }

    #[test]
    fn a_bom_may_lead() {
        let body = b"\xef\xbb\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\n";
        assert_eq!(decode([&body[..]]), [event("", "1")]);
        assert_eq!(decode(body.chunks(1)), [event("", "1")]);
        assert_eq!(decode([&b"\n\xef\xbb\xbfdata: 1\n\n"[..]]), []);
    }

    proptest! {
        #[test]
        fn any_bytes_cut_anywhere_follow_the_rules(
            tokens in prop::collection::vec(prop::sample::select(vec![
                "data", "data:", "data: ", "event: e", "event:", ":", " ", "x", "é", "\n", "\n", "\r", "\r\n", "\n\n", "\u{feff}", "id: 1",
            ]), 0..24),
            raw in prop::collection::vec(any::<u8>(), 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut body = tokens.concat().into_bytes();
            body.extend(raw);
            let expected = reference(&body);
            prop_assert_eq!(&decode([&body[..]]), &expected);
            prop_assert_eq!(&decode(body.chunks(1)), &expected);
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            places.extend([0, body.len()]);
            places.sort_unstable();
            let pieces = places.windows(2).map(|pair| &body[pair[0]..pair[1]]);
            prop_assert_eq!(&decode(pieces), &expected);
        }
    }
}
