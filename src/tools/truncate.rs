//! Results over the limit keep head and tail (CONTRACT §11); what is read meanwhile stays bounded.

use std::borrow::Cow;

/// Kept beyond what can be shown, on both sides of the gap: a character or a secret that the gap cuts in two lies
/// whole inside it.
const SLACK: usize = 4096;
/// The part of the slack that stays unseen in any case: longer than a secret.
const EDGE: usize = 1024;

/// The line that stands for what was left out of `bytes` bytes.
#[must_use]
pub fn marker(bytes: u64) -> String {
    format!("\n\n[... truncated: showing first/last portions of {bytes} bytes ...]\n\n")
}

/// `text`, at most `max` bytes long (but for a `max` smaller than the marker): half the room for the head, half for
/// the tail, both cut between characters.
#[must_use]
pub fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(join(text, text, text.len() as u64, max))
}

fn join(head: &str, tail: &str, bytes: u64, max: usize) -> String {
    let marker = marker(bytes);
    let room = max.saturating_sub(marker.len());
    [prefix(head, room / 2), &marker, suffix(tail, room - room / 2)].concat()
}

/// The first `max` bytes of `text` at most, cut between characters.
#[must_use]
pub fn prefix(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The last `max` bytes of `text` at most, cut between characters.
#[must_use]
pub fn suffix(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Takes any amount of bytes and keeps head and tail of them: never more than about twice the limit.
pub struct Bounded {
    max: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

impl Bounded {
    /// For a result of at most `max` bytes.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, head: Vec::new(), tail: Vec::new(), total: 0 }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_room() - self.head.len()));
        self.head.extend_from_slice(head);
        let keep = self.max + SLACK;
        if rest.len() >= keep {
            self.tail.clear();
            self.tail.extend_from_slice(&rest[rest.len() - keep..]);
            return;
        }
        // Shifted only when it has doubled, so that each byte moves about once.
        if self.tail.len() + rest.len() > 2 * keep {
            self.tail.drain(..self.tail.len() - keep);
        }
        self.tail.extend_from_slice(rest);
    }

    /// How many bytes were taken in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Head and tail of a command's output as text of at most `max` bytes (no more than the limit), `edit`ed (secrets masked) before the cut. Trailing line feeds are
    /// dropped; bytes that are not UTF-8, and NUL, become U+FFFD.
    #[must_use]
    pub fn finish(self, max: usize, edit: &dyn Fn(String) -> String) -> String {
        self.finish_with(max, edit, |bytes| bytes.iter().rposition(|&b| b != b'\n').map_or(0, |at| at + 1))
    }

    /// As `finish`, for the lines of a file: of the trailing line feeds only the one that ends the last line is
    /// dropped, and not even that when nothing else is there.
    #[must_use]
    pub fn finish_lines(self, edit: &dyn Fn(String) -> String) -> String {
        let max = self.max;
        self.finish_with(max, edit, |bytes| match bytes {
            [rest @ .., b'\n'] if !rest.is_empty() => rest.len(),
            _ => bytes.len(),
        })
    }

    fn finish_with(
        mut self,
        max: usize,
        edit: &dyn Fn(String) -> String,
        end: impl Fn(&[u8]) -> usize,
    ) -> String {
        let max = max.min(self.max);
        let whole = self.total == (self.head.len() + self.tail.len()) as u64;
        if whole {
            self.head.append(&mut self.tail);
            let text = edit(clean(&self.head[..end(&self.head)]));
            return if text.len() <= max { text } else { join(&text, &text, self.total, max) };
        }
        let end = end(&self.tail);
        // Half a secret at the edge of the gap is not recognised: the edge itself is never shown.
        let (head, tail) = (edit(clean(&self.head)), edit(clean(&self.tail[..end])));
        let head = prefix(&head, head.len().saturating_sub(EDGE));
        let tail = suffix(&tail, tail.len().saturating_sub(EDGE));
        join(head, tail, self.total, max)
    }

    fn head_room(&self) -> usize {
        self.max / 2 + SLACK
    }
}

/// Bytes as text: what is not UTF-8, and NUL, becomes U+FFFD.
#[must_use]
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text.into_owned() }
}

/// `text` without terminal control: escape sequences (CSI, OSC, DCS …), C1 and other control characters but tab, line
/// feed and carriage return.
#[must_use]
pub fn without_controls(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => match rest.clone().next() {
                Some('[') => {
                    rest.next();
                    skip_csi(&mut rest);
                }
                Some(']' | 'P' | 'X' | '^' | '_') => {
                    rest.next();
                    skip_string(&mut rest);
                }
                // Two or three characters: intermediates, then one final.
                Some(' '..='~') => skip_escape(&mut rest),
                _ => {}
            },
            '\u{9b}' => skip_csi(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut rest),
            c if is_control(c) => {}
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn skip_escape(rest: &mut std::str::Chars<'_>) {
    while let Some(c) = rest.clone().next() {
        match c {
            ' '..='/' => drop(rest.next()),
            '0'..='~' => {
                rest.next();
                return;
            }
            _ => return,
        }
    }
}

/// Parameters and intermediates, then one final character; anything else ends the sequence and stays.
fn skip_csi(rest: &mut std::str::Chars<'_>) {
    while let Some(c) = rest.clone().next() {
        match c {
            ' '..='?' => drop(rest.next()),
            '@'..='~' => {
                rest.next();
                return;
            }
            _ => return,
        }
    }
}

/// Up to BEL or ST. One that never ends is not a sequence: only its introducer is dropped.
fn skip_string(rest: &mut std::str::Chars<'_>) {
    let mut ahead = rest.clone();
    while let Some(c) = ahead.next() {
        match c {
            '\u{7}' | '\u{9c}' => {
                *rest = ahead;
                return;
            }
            '\u{1b}' => {
                if ahead.clone().next() == Some('\\') {
                    ahead.next();
                    *rest = ahead;
                }
                return;
            }
            '\n' => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(text: String) -> String {
        text
    }

    #[test]
    fn head_and_tail_stand_around_the_marker() {
        let text = format!("{}{}", "a".repeat(300), "z".repeat(300));
        let cut = cut(&text, 200);
        assert_eq!(cut.len(), 200);
        assert!(cut.starts_with("aaa") && cut.ends_with("zzz"));
        assert!(
            cut.contains("\n\n[... truncated: showing first/last portions of 600 bytes ...]\n\n"),
            "{cut}"
        );
    }

    #[test]
    fn a_cut_never_falls_inside_a_character() {
        for character in ["é", "世", "😀", "👩‍👩‍👧"] {
            let text = character.repeat(200);
            for max in 60..140 {
                let cut = cut(&text, max);
                assert!(cut.len() <= max.max(marker(text.len() as u64).len()), "{character} {max}");
                assert!(!cut.contains('\u{fffd}'));
            }
        }
    }

    #[test]
    fn memory_stays_bounded_whatever_comes() {
        let mut bounded = Bounded::new(1000);
        let line = vec![b'y'; 1 << 16];
        for _ in 0..2000 {
            bounded.push(&line);
        }
        bounded.push(b"end");
        assert!(bounded.head.capacity() + bounded.tail.capacity() < 40_000);
        let text = bounded.finish(1000, &same);
        assert_eq!(text.len(), 1000);
        assert!(text.starts_with('y') && text.ends_with("yend") && text.contains(" of 131072003 bytes "));
    }

    #[test]
    fn a_secret_that_the_gap_cuts_is_masked_all_the_same() {
        let secret = "sk-0123456789abcdef";
        let mask = |text: String| text.replace(secret, "***");
        for shift in 0..40 {
            let mut bounded = Bounded::new(400);
            let text = format!("{}{}", "x".repeat(shift), secret.repeat(2000));
            bounded.push(text.as_bytes());
            let out = bounded.finish(400, &mask);
            let (head, tail) = out.split_once("\n\n[...").unwrap();
            assert!(!head.contains("sk-"), "{head}");
            let tail = tail.split_once("]\n\n").unwrap().1;
            assert!(!tail.contains("0123") && !tail.contains("abc"), "{tail}");
        }
    }

    #[test]
    fn controls_are_taken_out_of_what_the_model_gets() {
        for (from, to) in [
            ("\u{1b}]0;x\u{7}\u{1b}[2K\rALL PASSED", "\rALL PASSED"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}]52;c;AAAA\u{7}a", "a"),
            ("\u{9b}31mred\u{9d}0;t\u{9c}x\u{85}", "redx"),
            ("a\u{8}b\u{7}\tc\n", "ab\tc\n"),
            ("\u{1b}(Bx\u{1b}7y", "xy"),
            ("\u{1b}]never ends\nline", "never ends\nline"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("plain é", "plain é"),
        ] {
            assert_eq!(without_controls(from), to, "{from:?}");
        }
    }

    proptest! {
        #[test]
        fn however_the_bytes_come_the_result_is_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..30_000), step in 1_usize..5000) {
            let mut whole = Bounded::new(500);
            whole.push(&bytes);
            let mut pieces = Bounded::new(500);
            for piece in bytes.chunks(step) {
                pieces.push(piece);
            }
            let text = whole.finish(500, &same);
            prop_assert!(text.len() <= 500);
            prop_assert_eq!(text, pieces.finish(500, &same));
        }
    }
}
