//! Lines of a log, forwards and from the end. Only the byte 0x0A ends a line: U+2028, U+0085 and CR are text.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use memchr::{memchr, memrchr};

/// Most bytes of one line that are held in memory. Nothing of ours is that long; a damaged file may be.
pub const MAX_LINE: usize = 256 << 20;

const BLOCK: usize = 128 << 10;

/// One line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Without the line feed. Empty when the line is longer than `MAX_LINE`.
    pub bytes: &'a [u8],
    /// Its length in the file, without the line feed.
    pub length: u64,
    /// Where it begins, counted from the start of what is read.
    pub offset: u64,
    /// A line feed ends it: the last line of a file may be without one.
    pub terminated: bool,
}

impl Line<'_> {
    /// Nothing but blanks: such lines are no records.
    pub fn is_blank(&self) -> bool {
        self.length == self.bytes.len() as u64 && self.bytes.iter().all(u8::is_ascii_whitespace)
    }
}

/// Reads lines one after the other through one buffer, which grows as far as the longest line asks.
pub struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The unread part of what was read: `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Of the unread part, what is known to hold no line feed.
    searched: usize,
    /// Offset of `buffer[start]`.
    offset: u64,
    limit: usize,
}

impl<R: Read> Lines<R> {
    /// Lines of `reader`, offsets counted from where it stands.
    pub fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new(), start: 0, end: 0, searched: 0, offset: 0, limit: MAX_LINE }
    }

    /// The next line; `None` at the end. Reads that a signal broke are repeated; other errors are the reader's.
    #[allow(clippy::should_implement_trait, reason = "a line borrows from the buffer")]
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            if let Some(found) = memchr(b'\n', &self.buffer[self.start + self.searched..self.end]) {
                let length = self.searched + found;
                if length > self.limit {
                    break;
                }
                return Ok(Some(self.take(length, true)));
            }
            self.searched = self.end - self.start;
            if self.searched > self.limit {
                break;
            }
            if self.fill()? == 0 {
                let left = self.searched;
                return Ok((left > 0).then(|| self.take(left, false)));
            }
        }
        self.skip_line().map(Some)
    }

    /// Takes `length` bytes as a line, and its line feed.
    fn take(&mut self, length: usize, terminated: bool) -> Line<'_> {
        let (start, offset) = (self.start, self.offset);
        self.consume(length + usize::from(terminated));
        Line { bytes: &self.buffer[start..start + length], length: length as u64, offset, terminated }
    }

    fn consume(&mut self, length: usize) {
        self.start += length;
        self.offset += length as u64;
        self.searched = 0;
    }

    /// Reads more behind what is unread; the number of bytes that came.
    fn fill(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize((self.end * 2).max(BLOCK), 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
            }
        }
    }

    /// A line that is too long: reads past its end and keeps nothing of it.
    fn skip_line(&mut self) -> io::Result<Line<'_>> {
        let offset = self.offset;
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(found) = memchr(b'\n', unread) {
                self.consume(found + 1);
                let length = self.offset - offset - 1;
                return Ok(Line { bytes: &[], length, offset, terminated: true });
            }
            self.consume(self.end - self.start);
            if self.fill()? == 0 {
                return Ok(Line { bytes: &[], length: self.offset - offset, offset, terminated: false });
            }
        }
    }
}

/// Reads a file's lines from the last to the first, block by block, so that the end of a log costs the same however
/// long the log is. Lines appended after `new` are not seen.
pub struct LinesBack {
    file: File,
    /// The bytes of the file from `offset` on; those up to `end` are unread.
    buffer: Vec<u8>,
    end: usize,
    offset: u64,
    /// How many of the last unread bytes are known to hold no line feed.
    searched: usize,
    /// The unread bytes end a line whose line feed was already taken off.
    terminated: bool,
    limit: usize,
}

impl LinesBack {
    /// The lines of `file` from its present end. Fails when the file cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let offset = file.metadata()?.len();
        let mut lines = Self {
            file,
            buffer: Vec::new(),
            end: 0,
            offset,
            searched: 0,
            terminated: false,
            limit: MAX_LINE,
        };
        lines.fill(BLOCK)?;
        if lines.buffer.last() == Some(&b'\n') {
            lines.end -= 1;
            lines.terminated = true;
        }
        Ok(lines)
    }

    /// The line before the last one given; `None` at the start of the file. Fails when the file cannot be read or was
    /// cut meanwhile.
    #[allow(clippy::should_implement_trait, reason = "a line borrows from the buffer")]
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let unsearched = &self.buffer[..self.end - self.searched];
            if let Some(found) = memrchr(b'\n', unsearched) {
                return Ok(Some(self.take(found + 1)));
            }
            if self.offset == 0 {
                let left = self.end > 0 || self.terminated;
                return Ok(left.then(|| self.take(0)));
            }
            self.searched = self.end;
            if self.end > self.limit {
                return self.skip_line().map(Some);
            }
            self.fill(self.end.max(BLOCK))?;
        }
    }

    /// Takes the unread bytes from `from` on as a line; the byte before is a line feed, or there is none.
    fn take(&mut self, from: usize) -> Line<'_> {
        let line = from..self.end;
        let (length, terminated) = (line.len(), self.terminated);
        self.end = from.saturating_sub(1);
        self.terminated = from > 0;
        self.searched = 0;
        let bytes = if length > self.limit { &[] } else { &self.buffer[line] };
        Line { bytes, length: length as u64, offset: self.offset + from as u64, terminated }
    }

    /// Reads `length` bytes more in front of the unread ones.
    fn fill(&mut self, length: usize) -> io::Result<()> {
        let length = usize::try_from(self.offset).map_or(length, |offset| length.min(offset));
        self.buffer.resize(length + self.end, 0);
        self.buffer.copy_within(..self.end, length);
        self.offset -= length as u64;
        self.end += length;
        self.file.read_exact_at(&mut self.buffer[..length], self.offset)
    }

    /// A line that is too long: reads back past its start and keeps nothing of it.
    fn skip_line(&mut self) -> io::Result<Line<'_>> {
        let line_end = self.offset + self.end as u64;
        let terminated = self.terminated;
        loop {
            self.end = 0;
            self.fill(BLOCK)?;
            let found = memrchr(b'\n', &self.buffer[..self.end]);
            if found.is_none() && self.offset > 0 {
                continue;
            }
            self.end = found.unwrap_or(0);
            self.terminated = found.is_some();
            self.searched = 0;
            let offset = self.offset + found.map_or(0, |at| at as u64 + 1);
            return Ok(Line { bytes: &[], length: line_end - offset, offset, terminated });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    /// A line as the tests compare it: bytes, length, offset, terminated.
    type Owned = (Vec<u8>, u64, u64, bool);

    fn owned(line: Line<'_>) -> Owned {
        (line.bytes.to_vec(), line.length, line.offset, line.terminated)
    }

    /// Hands out at most `step` bytes a read.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.1).min(self.0.len());
            let (head, tail) = self.0.split_at(count);
            buffer[..count].copy_from_slice(head);
            self.0 = tail;
            Ok(count)
        }
    }

    fn forwards(bytes: &[u8], step: usize, limit: usize) -> Vec<Owned> {
        let mut lines = Lines { limit, ..Lines::new(Slow(bytes, step)) };
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(owned(line));
        }
        all
    }

    fn backwards(bytes: &[u8], limit: usize) -> Vec<Owned> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut lines = LinesBack { limit, ..LinesBack::new(file).unwrap() };
        let mut all = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            all.push(owned(line));
        }
        all.reverse();
        all
    }

    fn reference(bytes: &[u8], limit: usize) -> Vec<Owned> {
        let mut offset = 0;
        let line = |piece: &[u8]| {
            let (body, terminated) = piece.strip_suffix(b"\n").map_or((piece, false), |body| (body, true));
            let kept = if body.len() > limit { &[] } else { body };
            let line = (kept.to_vec(), body.len() as u64, offset, terminated);
            offset += piece.len() as u64;
            line
        };
        bytes.split_inclusive(|&byte| byte == b'\n').map(line).collect()
    }

    #[test]
    fn only_a_line_feed_ends_a_line() {
        // A2, A6, A9
        let text = "a\u{2028}b\u{2029}c\u{85}d\re\x0bf\n\0\0\0\n{\"torn\n\n \t\nend";
        let expected = reference(text.as_bytes(), MAX_LINE);
        assert_eq!(expected.len(), 6);
        assert_eq!(forwards(text.as_bytes(), 1, MAX_LINE), expected);
        assert_eq!(backwards(text.as_bytes(), MAX_LINE), expected);
    }

    #[test]
    fn lines_longer_than_a_block_and_longer_than_the_limit() {
        let long = b"x".repeat(3 * BLOCK + 17);
        let bytes = [b"first\n", &long[..], b"\n\nlast\n", &long, b"\n", &long].concat();
        for limit in [MAX_LINE, 2 * BLOCK, 4] {
            let expected = reference(&bytes, limit);
            assert_eq!(forwards(&bytes, BLOCK / 3, limit), expected);
            assert_eq!(forwards(&bytes, usize::MAX, limit), expected);
            assert_eq!(backwards(&bytes, limit), expected);
        }
    }

    #[test]
    fn blank_lines_are_known_but_a_line_too_long_is_none() {
        let line = Line { bytes: b" \t\r", length: 3, offset: 0, terminated: true };
        assert!(line.is_blank());
        assert!(!Line { bytes: &[], length: 3, ..line }.is_blank());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn both_ways_give_the_same_lines(
            bytes in prop::collection::vec(prop_oneof![2 => Just(b'\n'), 5 => any::<u8>()], 0..80),
            step in 1..20usize,
            limit in prop_oneof![Just(MAX_LINE), 0..10usize],
        ) {
            let expected = reference(&bytes, limit);
            prop_assert_eq!(&forwards(&bytes, step, limit), &expected);
            prop_assert_eq!(&backwards(&bytes, limit), &expected);
        }
    }
}
