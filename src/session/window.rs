//! What is sent to the model: conversation.jsonl with the mending of `mend`, streamed (CONTRACT §4, §7).
//!
//! For a request, whose length must be known, one pass over the file says which of its bytes are sent; what is sent is
//! then read from the file again, piece by piece, so that a conversation of any size takes little memory. (A small one
//! is kept in memory instead.)

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use memchr::{memchr, memmem, memrchr};

use super::conversation::USER_TURN;
pub use super::mend::{LOST_RESULT, WindowOptions};
use super::mend::{Mender, Piece, Quick, Verdict};
use super::paths::SessionDir;
use crate::wire::ndjson::Lines;

/// A conversation up to this size is kept in memory, and each of its lines is parsed.
const SMALL: u64 = 1 << 20;
/// How much is read at once.
const BLOCK: usize = 256 << 10;

/// The messages of a conversation as they can be sent.
#[derive(Debug)]
pub struct Window {
    source: Source,
    segments: Vec<Segment>,
    len: u64,
    messages: u64,
    notes: Vec<String>,
}

/// Where the bytes of the segments are.
#[derive(Debug)]
enum Source {
    Memory(Vec<u8>),
    File(File),
}

/// A run of what is sent.
#[derive(Debug)]
enum Segment {
    /// Bytes of the source; a line feed in them stands between two messages.
    Source(Range<u64>),
    /// Bytes that are not there.
    Text(Box<[u8]>),
}

impl Window {
    /// The window of a session as it is now; lines appended later are not in it. Fails when the file cannot be read.
    pub fn open(dir: &SessionDir, options: WindowOptions) -> io::Result<Self> {
        Self::of(File::open(dir.conversation())?, options)
    }

    /// The window of a conversation's file.
    pub fn of(file: File, options: WindowOptions) -> io::Result<Self> {
        let size = file.metadata()?.len().min(options.until.unwrap_or(u64::MAX));
        let mut builder = Builder::new(options);
        let source = if size <= SMALL {
            let mut content = Vec::with_capacity(size as usize + 1);
            (&file).rewind()?;
            (&file).take(size).read_to_end(&mut content)?;
            builder.strictly(&content);
            Source::Memory(content)
        } else {
            builder.scan(&file, size, options.strict)?;
            Source::File(file)
        };
        Ok(builder.finish(source))
    }

    /// The messages, joined by commas: what stands between the brackets of a request's `messages`.
    pub fn spliced(&self) -> Spliced<'_> {
        self.reader(b',')
    }

    /// Writes what `spliced` reads.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut reader = self.spliced();
        let mut block = vec![0; BLOCK.min(usize::try_from(self.len).unwrap_or(BLOCK)).max(1)];
        loop {
            match reader.read(&mut block)? {
                0 => return Ok(()),
                count => out.write_all(&block[..count])?,
            }
        }
    }

    /// The length of `spliced` in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no message.
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// How many messages there are.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Gives each message as one line, without a line feed, to `each`, and stops at its first error.
    pub fn lines(&self, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut lines = Lines::new(self.reader(b'\n'));
        while let Some(line) = lines.next()? {
            each(line.bytes)?;
        }
        Ok(())
    }

    /// What was left out or made up, in sentences for the user.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn reader(&self, separator: u8) -> Spliced<'_> {
        Spliced { window: self, separator, segment: 0, done: 0 }
    }
}

/// Reads a window's messages. Each read goes straight from the file into the caller's buffer, which should be large.
#[derive(Debug)]
pub struct Spliced<'a> {
    window: &'a Window,
    separator: u8,
    segment: usize,
    /// Bytes of the current segment that were read.
    done: u64,
}

impl Spliced<'_> {
    fn read_source(&self, range: &Range<u64>, out: &mut [u8]) -> io::Result<usize> {
        let start = range.start + self.done;
        let count = out.len().min(usize::try_from(range.end - start).unwrap_or(usize::MAX));
        let count = match &self.window.source {
            Source::Memory(content) => {
                out[..count].copy_from_slice(&content[start as usize..start as usize + count]);
                count
            }
            Source::File(file) => match file.read_at(&mut out[..count], start)? {
                0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "conversation.jsonl became shorter",
                    ));
                }
                count => count,
            },
        };
        join_lines(&mut out[..count], self.separator);
        Ok(count)
    }
}

/// Puts `separator` in the place of each line feed.
fn join_lines(mut bytes: &mut [u8], separator: u8) {
    if separator == b'\n' {
        return;
    }
    while let Some(at) = memchr(b'\n', bytes) {
        bytes[at] = separator;
        bytes = &mut bytes[at + 1..];
    }
}

impl Read for Spliced<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        // Small segments are joined, so that many mended lines do not make as many small reads of the caller.
        while let Some(segment) = self.window.segments.get(self.segment)
            && filled < out.len()
        {
            let (count, length) = match segment {
                Segment::Source(range) => match self.read_source(range, &mut out[filled..]) {
                    Ok(count) => (count, range.end - range.start),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) if filled > 0 => break,
                    Err(error) => return Err(error),
                },
                Segment::Text(text) => {
                    let rest = &text[self.done as usize..];
                    let count = rest.len().min(out.len() - filled);
                    out[filled..filled + count].copy_from_slice(&rest[..count]);
                    // Only separators of ours are text that ends in a line feed.
                    if self.separator != b'\n' && out[filled + count - 1] == b'\n' {
                        out[filled + count - 1] = self.separator;
                    }
                    (count, text.len() as u64)
                }
            };
            filled += count;
            self.done += count as u64;
            if self.done == length {
                self.segment += 1;
                self.done = 0;
            }
        }
        Ok(filled)
    }
}

/// Collects the segments of a window while going through a file.
struct Builder {
    mender: Mender,
    segments: Vec<Segment>,
    len: u64,
    messages: u64,
    /// The number of the last line.
    number: u64,
    ids: Vec<Range<usize>>,
    finder: memmem::Finder<'static>,
}

impl Builder {
    fn new(options: WindowOptions) -> Self {
        Self {
            mender: Mender::new(options),
            segments: Vec::new(),
            len: 0,
            messages: 0,
            number: 0,
            ids: Vec::new(),
            finder: memmem::Finder::new(MARK),
        }
    }

    /// Goes through lines in memory and parses each.
    fn strictly(&mut self, content: &[u8]) {
        let mut start = 0;
        while start < content.len() {
            let end = memchr(b'\n', &content[start..]).map_or(content.len(), |at| start + at);
            self.line(&content[start..end], start as u64, false);
            start = end + 1;
        }
    }

    /// Goes through a file block by block; parses every line, or only those whose bytes are not as we write them.
    fn scan(&mut self, file: &File, size: u64, strict: bool) -> io::Result<()> {
        let mut buffer = vec![0; BLOCK];
        // Where the buffer begins in the file, and how much of it is filled.
        let (mut offset, mut filled) = (0u64, 0usize);
        loop {
            let left = usize::try_from(size - offset - filled as u64).unwrap_or(usize::MAX);
            let end = buffer.len().min(filled.saturating_add(left));
            let count = match file.read_at(&mut buffer[filled..end], offset + filled as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            let fresh = filled;
            filled += count;
            if count == 0 {
                if filled > 0 {
                    self.line(&buffer[..filled], offset, false);
                }
                return Ok(());
            }
            let Some(last) = memrchr(b'\n', &buffer[fresh..filled]) else {
                if filled == buffer.len() {
                    buffer.resize(filled * 2, 0);
                }
                continue;
            };
            let whole = fresh + last + 1;
            self.block(&buffer[..whole], offset, strict);
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
            offset += whole as u64;
            if buffer.len() > 4 * BLOCK && filled < BLOCK {
                buffer.truncate(BLOCK);
                buffer.shrink_to_fit();
            }
        }
    }

    /// A block of whole lines.
    fn block(&mut self, block: &[u8], offset: u64, strict: bool) {
        let clean = !strict && is_clean(block);
        let mut start = 0;
        while let Some(length) = memchr(b'\n', &block[start..]) {
            let line = &block[start..start + length];
            let well = !strict && (clean || is_clean(line));
            self.line(line, offset + start as u64, well);
            start += length + 1;
        }
    }

    /// One line. `clean`: its bytes are (`is_clean`), so a quick look may do.
    fn line(&mut self, line: &[u8], offset: u64, clean: bool) {
        self.number += 1;
        if clean
            && let Some(quick) = look(line, &self.finder, &mut self.ids)
            && self.mender.quick(quick, line, offset)
        {
            self.separate(Some(offset));
            self.source(offset..offset + line.len() as u64);
            return;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let step = self.mender.line(line, offset, self.number);
        if let Some(message) = step.before {
            self.separate(None);
            self.text(&message);
        }
        match step.verdict {
            Verdict::Drop => {}
            Verdict::Keep => {
                self.separate(Some(offset));
                self.source(offset..offset + line.len() as u64);
            }
            Verdict::Pieces(pieces) => {
                self.separate(
                    matches!(pieces.first(), Some(Piece::Keep(range)) if range.start == 0).then_some(offset),
                );
                for piece in pieces {
                    match piece {
                        Piece::Keep(range) => {
                            self.source(offset + range.start as u64..offset + range.end as u64)
                        }
                        Piece::Text(text) => self.text(&text),
                    }
                }
            }
        }
    }

    /// Ends the last message, before one that begins in the file at `next`, where it does.
    fn separate(&mut self, next: Option<u64>) {
        self.messages += 1;
        if self.messages == 1 {
            return;
        }
        match self.segments.last() {
            // The line feed between the two lines is there.
            Some(Segment::Source(last)) if Some(last.end + 1) == next => self.source(last.end..last.end + 1),
            _ => self.text(b"\n"),
        }
    }

    fn source(&mut self, range: Range<u64>) {
        self.len += range.end - range.start;
        match self.segments.last_mut() {
            Some(Segment::Source(last)) if last.end == range.start => last.end = range.end,
            _ => self.segments.push(Segment::Source(range)),
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.len += text.len() as u64;
        self.segments.push(Segment::Text(text.into()));
    }

    fn end(&mut self) {
        if let Some(message) = self.mender.finish() {
            self.separate(None);
            self.text(&message);
        }
    }

    fn finish(mut self, source: Source) -> Window {
        self.end();
        let notes = self.mender.into_report().notes();
        Window { source, segments: self.segments, len: self.len, messages: self.messages, notes }
    }
}

/// Whether a block of lines is UTF-8 without control characters but line feeds, and without escapes of surrogates,
/// which could be halves of pairs.
fn is_clean(block: &[u8]) -> bool {
    is_text(block)
        && !memmem::find_iter(block, b"\\u").any(|at| matches!(block.get(at + 2), Some(b'd' | b'D')))
}

/// Plain ASCII takes one pass.
fn is_text(block: &[u8]) -> bool {
    let odd = |byte: u8| byte.wrapping_sub(0x20) > 0x5f && byte != b'\n';
    if block.iter().fold(0u8, |any, &byte| any | u8::from(odd(byte))) == 0 {
        return true;
    }
    let control = |byte: u8| byte < 0x20 && byte != b'\n';
    block.iter().fold(0u8, |any, &byte| any | u8::from(control(byte))) == 0
        && std::str::from_utf8(block).is_ok()
}

/// The end of `"role":"`, `"type":"`, `"signature":"` and `"name":"`. Quotes in strings are escaped, so it is found
/// only where a key of the message, of a block or of a call's input ends in e: few places, found by one fast search.
const MARK: &[u8] = b"e\":\"";
const ROLE_AT: usize = 5;
const ASSISTANT: &[u8] = br#"{"role":"assistant","content":[{"type":""#;
const RESULTS: &[u8] = br#"{"role":"user","content":[{"type":"tool_result","tool_use_id":""#;

/// Looks whether a clean line is as we write it; `None`: it must be parsed.
fn look<'a>(line: &[u8], finder: &memmem::Finder<'_>, ids: &'a mut Vec<Range<usize>>) -> Option<Quick<'a>> {
    ids.clear();
    if let Some(content) = line.strip_prefix(USER_TURN) {
        let ends = content.len() > 2 && content.ends_with(b"\"}") && content[content.len() - 3] != b'\\';
        let alone = finder.find(&line[ROLE_AT + 1..]).is_none();
        return (ends && alone && begins_text(content)).then_some(Quick::UserText);
    }
    if line.starts_with(ASSISTANT) && line.ends_with(b"}]}") {
        let thinks = look_at_assistant(line, finder, ids)?;
        return Some(Quick::Assistant { calls: ids, thinks });
    }
    if line.starts_with(RESULTS) && line.ends_with(b"}]}") {
        look_at_results(line, finder, ids)?;
        return Some(Quick::Results { ids });
    }
    None
}

/// Whether a string's body begins with something that is surely no blank, nor its end. Blanks beyond ASCII begin with
/// one of four bytes.
fn begins_text(body: &[u8]) -> bool {
    body.first().is_some_and(|&byte| byte > b' ' && !matches!(byte, b'"' | b'\\' | 0xc2 | 0xe1 | 0xe2 | 0xe3))
}

/// The ids of an assistant line's calls, into `ids`; returns whether it holds thinking.
fn look_at_assistant(line: &[u8], finder: &memmem::Finder<'_>, ids: &mut Vec<Range<usize>>) -> Option<bool> {
    let mut thinks = false;
    // What must, and what may, come next.
    let mut unsigned = false;
    let mut in_input = false;
    let mut ends_in_thinking = false;
    let mut at = ASSISTANT.len() - b"\"type\":\"".len();
    while let Some(found) = finder.find(&line[at..]) {
        let mark = at + found;
        at = mark + MARK.len();
        let before = &line[..mark];
        if before.ends_with(b"{\"typ") {
            let opening = mark - b"{\"typ".len();
            // Nested objects of an input begin otherwise; those that do not are parsed.
            let top = opening + 1 == ASSISTANT.len() - b"\"type\":\"".len()
                || line[..opening].ends_with(if in_input { b"}},".as_slice() } else { b"},".as_slice() });
            if unsigned || !top {
                return None;
            }
            let body = &line[at..];
            in_input = false;
            ends_in_thinking = false;
            if let Some(text) = body.strip_prefix(b"text\",\"text\":\"") {
                begins_text(text).then_some(())?;
            } else if body.starts_with(b"thinking\",\"thinking\":\"") {
                (thinks, unsigned, ends_in_thinking) = (true, true, true);
            } else if body.starts_with(b"redacted_thinking\",\"data\":\"") {
                (thinks, ends_in_thinking) = (true, true);
            } else {
                let id =
                    at + body.strip_prefix(b"tool_use\",\"id\":\"").map(|rest| body.len() - rest.len())?;
                let end = id_end(line, id)?;
                let name = line[end..].strip_prefix(b"\",\"name\":\"")?;
                let input = &name[memchr(b'"', name).filter(|&length| length > 0)?..];
                input.starts_with(b"\",\"input\":{").then_some(())?;
                at = line.len() - input.len();
                ids.push(id..end);
                in_input = true;
            }
        } else if unsigned && before.ends_with(b"\",\"signatur") {
            (line[at] != b'"').then_some(())?;
            unsigned = false;
        } else if !in_input {
            return None;
        }
    }
    (!unsigned && !ends_in_thinking).then_some(thinks)
}

/// The ids of a line of results, into `ids`.
fn look_at_results(line: &[u8], finder: &memmem::Finder<'_>, ids: &mut Vec<Range<usize>>) -> Option<()> {
    let mut at = RESULTS.len() - b"\"type\":\"tool_result\",\"tool_use_id\":\"".len();
    while let Some(found) = finder.find(&line[at..]) {
        let mark = at + found;
        let body = &line[mark + MARK.len()..];
        let id = line.len() - body.strip_prefix(b"tool_result\",\"tool_use_id\":\"")?.len();
        if !line[..mark].ends_with(b"{\"typ") {
            return None;
        }
        let end = id_end(line, id)?;
        let content = line[end..].strip_prefix(b"\",\"content\":\"")?;
        (content.first() != Some(&b'"')).then_some(())?;
        ids.push(id..end);
        at = line.len() - content.len();
    }
    Some(())
}

/// Where the id that begins at `start` ends, if it is one that every API takes.
fn id_end(line: &[u8], start: usize) -> Option<usize> {
    let end = start + memchr(b'"', &line[start..])?;
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (end > start && line[start..end].iter().all(fits)).then_some(end)
}

#[cfg(test)]
mod tests;
