//! Why an old text is not in a file although it nearly is: the first character that differs, and where.

use memchr::memmem;

use super::{line_number, visible};

/// A larger file is only searched for the longest beginning of the text.
const MAX_FOLDED: usize = 4 << 20;
/// A beginning this long says something in any text; in a short text a quarter of it will do.
const MIN_BEGINNING: usize = 8;

/// `: the nearest …`, or nothing when nothing is near.
pub(super) fn near_miss(content: &[u8], old: &str) -> String {
    // Invalid bytes are one character each here, so that offsets stay true.
    let Some(start) = folded_place(content, old).or_else(|| longest_beginning(content, old)) else {
        return "; nothing like it is there: read the file again".to_owned();
    };
    let (common, theirs, ours) = first_difference(&content[start..], old);
    let at = start + common;
    let line = line_number(content, at);
    let column = column(content, at);
    let mut text = format!(
        ". The nearest place is line {}; the first difference is at line {line}, column {column}: the file has {}, \
         old_string has {}",
        line_number(content, start),
        name(theirs),
        name(ours),
    );
    let file_line = line_of(content, at);
    let old_line = old[..common_in_old(old, common)].rfind('\n').map_or(0, |end| end + 1);
    let old_line = old[old_line..].lines().next().unwrap_or_default();
    text.push_str(&format!("\nfile:       {}\nold_string: {}", visible(&file_line), visible(old_line)));
    text
}

fn common_in_old(old: &str, common: usize) -> usize {
    let mut at = common.min(old.len());
    while !old.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Where the text would be found if white space and look-alikes did not count. The place is moved back over the
/// white space before it when the text begins with some.
fn folded_place(content: &[u8], old: &str) -> Option<usize> {
    if content.len() > MAX_FOLDED {
        return None;
    }
    let (needle, _) = folded(old.as_bytes());
    if needle.is_empty() {
        return None;
    }
    let (haystack, places) = folded(content);
    let found = memmem::find(&haystack, &needle)?;
    let mut start = places[found];
    if old.starts_with(char::is_whitespace) {
        let line = memchr::memrchr(b'\n', &content[..start]).map_or(0, |end| end + 1);
        let blank = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|text| text.trim().is_empty());
        if blank(&content[line..start]) {
            start = line;
        }
    }
    Some(start)
}

/// The text without white space and with plain quotes and dashes, and where each of its bytes was.
fn folded(bytes: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut out = Vec::with_capacity(bytes.len());
    let mut places = Vec::with_capacity(bytes.len());
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for (offset, c) in chunk.valid().char_indices() {
            if c.is_whitespace() || is_invisible(c) {
                continue;
            }
            let plain = match c {
                '‘' | '’' | '‚' | '′' => '\'',
                '“' | '”' | '„' | '″' => '"',
                '‐' | '‑' | '‒' | '–' | '—' | '−' => '-',
                c => c,
            };
            let mut encoded = [0; 4];
            for byte in plain.encode_utf8(&mut encoded).bytes() {
                out.push(byte);
                places.push(at + offset);
            }
        }
        at += chunk.valid().len();
        for &byte in chunk.invalid() {
            out.push(byte);
            places.push(at);
            at += 1;
        }
    }
    (out, places)
}

/// Where the longest beginning of the text occurs, when that is long enough to tell something.
fn longest_beginning(content: &[u8], old: &str) -> Option<usize> {
    // Without the indentation, which is everywhere.
    let skipped = old.len() - old.trim_start().len();
    let old = &old.as_bytes()[skipped..];
    let found = |length: usize| memmem::find(content, &old[..length]);
    let (mut there, mut gone) = (MIN_BEGINNING.min(old.len() / 4).max(3), old.len() + 1);
    if old.len() < there {
        return None;
    }
    let mut place = found(there)?;
    // A beginning that is not found has no longer one that is.
    while gone - there > 1 {
        let middle = there + (gone - there) / 2;
        match found(middle.min(old.len())) {
            Some(at) => (there, place) = (middle, at),
            None => gone = middle,
        }
    }
    Some(
        place.saturating_sub(skipped).max(memchr::memrchr(b'\n', &content[..place]).map_or(0, |end| end + 1)),
    )
}

/// How many bytes agree, and the characters that follow on both sides.
fn first_difference(content: &[u8], old: &str) -> (usize, Option<char>, Option<char>) {
    let mut common = content.iter().zip(old.as_bytes()).take_while(|(a, b)| a == b).count();
    while !old.is_char_boundary(common) {
        common -= 1;
    }
    (common, first_char(&content[common..]), old[common..].chars().next())
}

/// The first character of some bytes; U+FFFD where they are not UTF-8.
fn first_char(bytes: &[u8]) -> Option<char> {
    let head = &bytes[..bytes.len().min(4)];
    let chunk = head.utf8_chunks().next()?;
    chunk.valid().chars().next().or(Some('\u{fffd}'))
}

fn line_of(content: &[u8], at: usize) -> String {
    let start = memchr::memrchr(b'\n', &content[..at]).map_or(0, |end| end + 1);
    let end = memchr::memchr(b'\n', &content[at..]).map_or(content.len(), |end| at + end);
    String::from_utf8_lossy(&content[start..end]).into_owned()
}

/// In characters, from 1.
fn column(content: &[u8], at: usize) -> usize {
    let start = memchr::memrchr(b'\n', &content[..at]).map_or(0, |end| end + 1);
    String::from_utf8_lossy(&content[start..at]).chars().count() + 1
}

/// Characters that take no room on the screen, or change its direction.
pub(super) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn name(c: Option<char>) -> String {
    let Some(c) = c else { return "its end".to_owned() };
    let code = format!("U+{:04X}", u32::from(c));
    let what = match c {
        '\t' => "tab",
        '\n' => "line feed",
        '\r' => "carriage return",
        ' ' => "space",
        '\u{a0}' => "no-break space",
        '\u{202f}' => "narrow no-break space",
        '\u{3000}' => "ideographic space",
        '\u{200b}' => "zero-width space",
        '\u{feff}' => "byte order mark",
        '\u{fffd}' => "not UTF-8",
        '\u{300}'..='\u{36f}' => "combining mark",
        c if c.is_whitespace() || c.is_control() || is_invisible(c) => "invisible",
        c => return format!("{code} ({c})"),
    };
    format!("{code} ({what})")
}
