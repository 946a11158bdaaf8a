//! JSON by bytes: escaping as CONTRACT §4 writes it, and looking into an object without building a tree.
//!
//! The scanner here checks the grammar (RFC 8259) without recursion and without allocation, so that no input can
//! overflow the stack. It is used for what must stay byte for byte as it came; where a tree is wanted, serde_json
//! builds it.

use std::borrow::Cow;

/// Deepest nesting accepted, the same as serde_json's default: what is valid here, it parses too.
pub const MAX_DEPTH: u32 = 127;

const REPLACEMENT: &str = "\u{FFFD}";

/// Appends `text` as the body of a JSON string, without its quotes (CONTRACT §4): the short escapes, other bytes
/// below 0x20 as `\u00xx`, NUL as U+FFFD, everything else raw.
pub fn escape_into(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    loop {
        let run = plain_run(rest);
        out.extend_from_slice(&rest[..run]);
        let Some(&byte) = rest.get(run) else { return };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0 => out.extend_from_slice(REPLACEMENT.as_bytes()),
            _ => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        rest = &rest[run + 1..];
    }
}

/// Appends `text` as a JSON string, quotes included.
pub fn string_into(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    escape_into(out, text);
    out.push(b'"');
}

/// Text for the wire (CONTRACT §4): each maximal part that is no UTF-8, and each NUL, becomes one U+FFFD. Borrowed
/// when there was nothing to mend.
pub fn clean(bytes: &[u8]) -> Cow<'_, str> {
    // The plain check is much faster than the one that looks for parts to mend.
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    };
    if memchr::memchr(0, text.as_bytes()).is_some() {
        Cow::Owned(text.replace('\0', REPLACEMENT))
    } else {
        text
    }
}

/// The text of a JSON string's body (what stands between its quotes). A surrogate pair gives one character. A lone
/// half, `\u0000` and anything that is no UTF-8 become U+FFFD; of an escape that JSON does not know, the backslash
/// becomes U+FFFD and the rest stays as text. Borrowed when there was nothing to decode.
pub fn unescape(body: &[u8]) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', body) else { return clean(body) };
    let mut text = Vec::with_capacity(body.len());
    text.extend_from_slice(&body[..first]);
    let mut rest = &body[first..];
    while !rest.is_empty() {
        // `rest` begins with a backslash.
        let (character, used) = escape(rest);
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[used..];
        let run = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        text.extend_from_slice(&rest[..run]);
        rest = &rest[run..];
    }
    match String::from_utf8(text) {
        Ok(text) if !text.contains('\0') => Cow::Owned(text),
        Ok(text) => Cow::Owned(text.replace('\0', REPLACEMENT)),
        Err(error) => Cow::Owned(clean(error.as_bytes()).into_owned()),
    }
}

/// The character that the escape at the start of `bytes` stands for, and the bytes it took.
fn escape(bytes: &[u8]) -> (char, usize) {
    const BAD: (char, usize) = (char::REPLACEMENT_CHARACTER, 1);
    let simple = match bytes.get(1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\x08',
        Some(b'f') => '\x0c',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(bytes).unwrap_or(BAD),
        _ => return BAD,
    };
    (simple, 2)
}

/// As `escape`, for `\uXXXX` and surrogate pairs; `None` when the four hex digits are not there.
fn unicode_escape(bytes: &[u8]) -> Option<(char, usize)> {
    let unit = hex4(bytes.get(2..6)?)?;
    if (0xD800..0xDC00).contains(&unit)
        && bytes.get(6..8) == Some(b"\\u")
        && let Some(low) = bytes.get(8..12).and_then(hex4)
        && (0xDC00..0xE000).contains(&low)
    {
        let code = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        return Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12));
    }
    let character = char::from_u32(unit).filter(|&c| c != '\0').unwrap_or(char::REPLACEMENT_CHARACTER);
    Some((character, 6))
}

fn hex4(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?))
}

/// The raw value of the top-level member `key` of a JSON object; the last one when the key is repeated, as parsers
/// take it. `None` when there is none, or when `object` is not one complete valid object. Does not allocate unless
/// a key has escapes in it.
pub fn member<'a>(object: &'a [u8], key: &str) -> Option<&'a [u8]> {
    pick(object, [key]).and_then(|[value]| value)
}

/// The raw values of these top-level members, found in one pass, each as `member` finds it. `None` when `object` is not
/// one complete valid object.
pub fn pick<'a, const N: usize>(object: &'a [u8], keys: [&str; N]) -> Option<[Option<&'a [u8]>; N]> {
    let mut found = [None; N];
    each_member(object, |name, value| {
        let at = if memchr::memchr(b'\\', name).is_some() {
            let name = unescape(name);
            keys.iter().position(|key| *key == name)
        } else {
            keys.iter().position(|key| key.as_bytes() == name)
        };
        if let Some(at) = at {
            found[at] = Some(value);
        }
    })?;
    Some(found)
}

/// All top-level members of a JSON object in their order, repeated keys included: the decoded key and the raw value.
/// `None` when `object` is not one complete valid object.
pub fn members(object: &[u8]) -> Option<Vec<(Cow<'_, str>, &[u8])>> {
    let mut list = Vec::with_capacity(8);
    each_member(object, |name, value| list.push((unescape(name), value)))?;
    Some(list)
}

/// Calls `visit` with the raw key (without its quotes, escapes not decoded) and the raw value of each top-level
/// member, in one pass and without allocation. `None` when `object` turned out not to be one complete valid object;
/// what was visited by then must be forgotten.
pub fn each_member<'a>(object: &'a [u8], mut visit: impl FnMut(&'a [u8], &'a [u8])) -> Option<()> {
    let mut scan = Scan { bytes: object, at: 0, around: 1 };
    scan.blanks();
    scan.expect(b'{')?;
    scan.blanks();
    if scan.peek() == Some(b'}') {
        scan.at += 1;
        return scan.end();
    }
    loop {
        let start = scan.at;
        scan.string()?;
        let name = &object[start + 1..scan.at - 1];
        scan.blanks();
        scan.expect(b':')?;
        scan.blanks();
        let start = scan.at;
        scan.value()?;
        visit(name, &object[start..scan.at]);
        scan.blanks();
        match scan.next()? {
            b',' => scan.blanks(),
            b'}' => return scan.end(),
            _ => return None,
        }
    }
}

/// The raw elements of a JSON array. `None` when `array` is not one complete valid array.
pub fn elements(array: &[u8]) -> Option<Vec<&[u8]>> {
    let mut scan = Scan { bytes: array, at: 0, around: 1 };
    let mut list = Vec::new();
    scan.blanks();
    scan.expect(b'[')?;
    scan.blanks();
    if scan.peek() == Some(b']') {
        scan.at += 1;
        return scan.end().map(|()| list);
    }
    loop {
        let start = scan.at;
        scan.value()?;
        list.push(&array[start..scan.at]);
        scan.blanks();
        match scan.next()? {
            b',' => scan.blanks(),
            b']' => return scan.end().map(|()| list),
            _ => return None,
        }
    }
}

/// The text of a raw JSON value when it is a string (as `unescape` decodes it), else `None`.
pub fn string(raw: &[u8]) -> Option<Cow<'_, str>> {
    let mut scan = Scan { bytes: raw, at: 0, around: 0 };
    scan.string()?;
    (scan.at == raw.len()).then(|| unescape(&raw[1..raw.len() - 1]))
}

/// The length in bytes, quotes included, of the JSON string that `bytes` begin with; `None` when they do not begin with
/// a whole one.
pub fn string_length(bytes: &[u8]) -> Option<usize> {
    let mut scan = Scan { bytes, at: 0, around: 0 };
    scan.string().map(|()| scan.at)
}

/// Whether `bytes` are exactly one JSON value, blanks around it allowed, nested at most `MAX_DEPTH` deep. The grammar
/// is checked and the bytes must be UTF-8; numbers too large for a machine and lone surrogate escapes are valid.
pub fn is_valid(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok() && complete(bytes).is_ok()
}

/// Why the arguments of a tool call cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    /// The grammar breaks (or the text ends) at this byte.
    #[error("the arguments are not valid JSON (at byte {at})")]
    NotJson {
        /// Offset into the text as it came.
        at: usize,
    },
    /// Valid JSON of another kind.
    #[error("the arguments are not a JSON object")]
    NotAnObject,
}

/// The arguments of a tool call as they are stored (CONTRACT §4): nothing, blanks and `null` are `{}`; an object stays
/// byte for byte, except that NUL (raw in a string, or `\u0000`) and lone surrogates become U+FFFD, and that a line
/// break between tokens (LF, CR or CR LF) becomes one blank, so that a line stays one line.
pub fn tool_input(raw: &str) -> Result<String, BadInput> {
    let bare = raw.trim_matches([' ', '\t', '\n', '\r']);
    if bare.is_empty() || bare == "null" {
        return Ok("{}".to_owned());
    }
    let raw: Cow<'_, str> =
        if raw.contains('\0') { raw.replace('\0', REPLACEMENT).into() } else { raw.into() };
    complete(raw.as_bytes()).map_err(|at| BadInput::NotJson { at })?;
    if !bare.starts_with('{') {
        return Err(BadInput::NotAnObject);
    }
    Ok(mend(raw))
}

/// The mending of `tool_input`, on text that is known to be valid JSON.
fn mend(valid: Cow<'_, str>) -> String {
    let bytes = valid.as_bytes();
    if memchr::memchr3(b'\\', b'\n', b'\r', bytes).is_none() {
        return valid.into_owned();
    }
    let mut out = String::with_capacity(bytes.len());
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = memchr::memchr3(b'\\', b'\n', b'\r', &bytes[at..]) {
        at += found;
        let (replacement, used) = match bytes[at] {
            b'\\' => match escape(&bytes[at..]) {
                // A `\ufffd` that the model wrote itself stays as it is.
                (char::REPLACEMENT_CHARACTER, 6) if !bytes[at + 2..at + 6].eq_ignore_ascii_case(b"fffd") => {
                    (REPLACEMENT, 6)
                }
                (_, used) => {
                    at += used;
                    continue;
                }
            },
            b'\r' if bytes.get(at + 1) == Some(&b'\n') => (" ", 2),
            _ => (" ", 1),
        };
        out.push_str(&valid[copied..at]);
        out.push_str(replacement);
        at += used;
        copied = at;
    }
    out.push_str(&valid[copied..]);
    out
}

/// Checks for one whole value; the error is the offset where the grammar breaks.
fn complete(bytes: &[u8]) -> Result<(), usize> {
    let mut scan = Scan { bytes, at: 0, around: 0 };
    scan.blanks();
    scan.value().and_then(|()| scan.end()).ok_or(scan.at)
}

/// How many bytes at the start of `bytes` may stand raw in a JSON string: all but `"`, `\` and those below 0x20.
fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let is_special = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    let mut at = 0;
    // Eight bytes at a time. Below the first match the markers are exact, and only the first one is used.
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*eight);
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let marks = (word.wrapping_sub(ONES * 0x20) & !word)
            | (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash);
        if marks & HIGH != 0 {
            return at + ((marks & HIGH).trailing_zeros() / 8) as usize;
        }
        at += 8;
        if at == 16 {
            // A long text goes on by the block, which the compiler makes a few wide instructions.
            let is_plain = |block: &&[u8]| !block.iter().fold(false, |found, &byte| found | is_special(byte));
            at += 32 * bytes[at..].chunks_exact(32).take_while(is_plain).count();
        }
    }
    let rest = &bytes[at..];
    at + rest.iter().position(|&byte| is_special(byte)).unwrap_or(rest.len())
}

/// A position in JSON text. Every step returns `None` where the grammar breaks and leaves `at` near that place.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Containers around the values to be read that were opened by other means than `value`.
    around: u32,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Blanks, then the end of the text.
    fn end(&mut self) -> Option<()> {
        self.blanks();
        (self.at == self.bytes.len()).then_some(())
    }

    /// One value, without blanks around it. Keeps one bit per open container instead of recursing.
    fn value(&mut self) -> Option<()> {
        let (mut depth, mut objects) = (0, 0u128);
        loop {
            match self.peek()? {
                b'"' => self.string()?,
                b'-' | b'0'..=b'9' => self.number()?,
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                open @ (b'{' | b'[') => {
                    if depth + self.around == MAX_DEPTH {
                        return None;
                    }
                    self.at += 1;
                    self.blanks();
                    // The closing halves lie two above `{` and `[`.
                    if self.peek()? == open + 2 {
                        self.at += 1;
                    } else {
                        depth += 1;
                        objects = objects << 1 | u128::from(open == b'{');
                        if open == b'{' {
                            self.key()?;
                        }
                        continue;
                    }
                }
                _ => return None,
            }
            // A value is complete: close what closes here, or go on to the next one.
            loop {
                if depth == 0 {
                    return Some(());
                }
                self.blanks();
                let in_object = objects & 1 == 1;
                match self.peek()? {
                    b',' => {
                        self.at += 1;
                        self.blanks();
                        if in_object {
                            self.key()?;
                        }
                        break;
                    }
                    byte if byte == if in_object { b'}' } else { b']' } => {
                        self.at += 1;
                        depth -= 1;
                        objects >>= 1;
                    }
                    _ => return None,
                }
            }
        }
    }

    /// A member's name and colon, with the blanks after them.
    fn key(&mut self) -> Option<()> {
        self.string()?;
        self.blanks();
        self.expect(b':')?;
        self.blanks();
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        loop {
            self.at += plain_run(&self.bytes[self.at..]);
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => match self.bytes.get(self.at + 1)? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
                    b'u' => {
                        hex4(self.bytes.get(self.at + 2..self.at + 6)?)?;
                        self.at += 6;
                    }
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    fn number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.next()? {
            b'0' => {}
            b'1'..=b'9' => while self.digit() {},
            _ => return None,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// At least one digit.
    fn digits(&mut self) -> Option<()> {
        if !self.digit() {
            return None;
        }
        while self.digit() {}
        Some(())
    }

    fn digit(&mut self) -> bool {
        let is_digit = self.peek().is_some_and(|byte| byte.is_ascii_digit());
        self.at += usize::from(is_digit);
        is_digit
    }

    fn literal(&mut self, word: &[u8]) -> Option<()> {
        self.bytes[self.at..].starts_with(word).then(|| self.at += word.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        escape_into(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes_are_those_of_the_contract() {
        assert_eq!(escaped("a\"b\\c\n\r\t\u{8}\u{c}"), r#"a\"b\\c\n\r\t\b\f"#);
        assert_eq!(escaped("\u{1}\u{b}\u{1f}\u{1b}"), r"\u0001\u000b\u001f\u001b");
        assert_eq!(escaped("\0"), "\u{FFFD}");
        // A6: these stay raw.
        assert_eq!(escaped("/\u{7f}\u{85}\u{2028}\u{2029}é🍸"), "/\u{7f}\u{85}\u{2028}\u{2029}é🍸");
    }

    #[test]
    fn pairs_are_joined_and_lone_halves_replaced() {
        // F5
        assert_eq!(unescape(br"\ud83c\udf78 \uD83C\uDF78"), "🍸 🍸");
        assert_eq!(unescape(br"a\ud83d"), "a\u{FFFD}");
        assert_eq!(unescape(br"\ud83dz"), "\u{FFFD}z");
        assert_eq!(unescape(br"\ud83d\ud83c\udf78"), "\u{FFFD}🍸");
        assert_eq!(unescape(br"\ud83d\u0041\udf78"), "\u{FFFD}A\u{FFFD}");
        assert_eq!(unescape(br"\ud83d\n"), "\u{FFFD}\n");
    }

    #[test]
    fn bad_escapes_lose_only_their_backslash() {
        assert_eq!(unescape(br"\q\u12G4\u12"), "\u{FFFD}q\u{FFFD}u12G4\u{FFFD}u12");
        assert_eq!(unescape(b"a\\"), "a\u{FFFD}");
        assert_eq!(unescape(br"\u0000"), "\u{FFFD}");
        assert_eq!(unescape(b"\0\xff\\n"), "\u{FFFD}\u{FFFD}\n");
        assert_eq!(unescape(b"\\\xc3\xa9"), "\u{FFFD}é");
        assert_eq!(unescape(b"\xe4\xb8\\u00ad"), "\u{FFFD}\u{ad}");
    }

    #[test]
    fn text_without_escapes_is_borrowed() {
        assert!(matches!(unescape("héllo".as_bytes()), Cow::Borrowed("héllo")));
        assert!(matches!(clean("héllo".as_bytes()), Cow::Borrowed("héllo")));
        assert_eq!(clean(b"a\xf0b\0\xe4\xb8\xffc"), "a\u{FFFD}b\u{FFFD}\u{FFFD}\u{FFFD}c");
    }

    #[test]
    fn member_finds_the_last_top_level_one() {
        let object = br#" { "a" : {"b":1} , "b":[1,{"a":2}],"a" :"x\"}" ,"c\u0064": -1.5e+3 } "#;
        assert_eq!(member(object, "a"), Some(br#""x\"}""#.as_slice()));
        assert_eq!(member(object, "b"), Some(br#"[1,{"a":2}]"#.as_slice()));
        assert_eq!(member(object, "cd"), Some(b"-1.5e+3".as_slice()));
        assert_eq!(member(object, "c"), None);
        assert_eq!(member(b"{}", "a"), None);
        for broken in [
            &br#"{"a":1"#[..],
            br#"{"a":1,}"#,
            br#"{"a":1}x"#,
            br#"{"a":}"#,
            br#"[{"a":1}]"#,
            b"",
            br#"{"a":1 "b":2}"#,
        ] {
            assert_eq!(member(broken, "a"), None, "{}", String::from_utf8_lossy(broken));
        }
        let all = members(object).unwrap();
        assert_eq!(all.iter().map(|(key, _)| key.as_ref()).collect::<Vec<_>>(), ["a", "b", "a", "cd"]);
    }

    #[test]
    fn elements_are_raw() {
        let list = elements(br#" [ 1, "a,]" ,{"b":[2]},[] ] "#).unwrap();
        assert_eq!(list, [&b"1"[..], br#""a,]""#, br#"{"b":[2]}"#, b"[]"]);
        assert_eq!(elements(b"[ ]"), Some(vec![]));
        for broken in [&b""[..], b"[", b"[1", b"[1,]", b"[1]x", b"{}", b"[1 2]"] {
            assert_eq!(elements(broken), None);
        }
    }

    #[test]
    fn only_whole_strings_are_strings() {
        assert_eq!(string(br#""a\n""#).unwrap(), "a\n");
        for raw in [&b"a"[..], b"\"", b"\"a", b"\"a\"b\"", b"", b"1", b"\"\\\""] {
            assert_eq!(string(raw), None);
        }
    }

    #[test]
    fn depth_is_limited_without_overflow() {
        for open in [&b"["[..], br#"{"a":"#] {
            assert!(!is_valid(&open.repeat(1_000_000)));
        }
        let nested = |depth| [b"[".repeat(depth), b"]".repeat(depth)].concat();
        for depth in [1, MAX_DEPTH as usize, MAX_DEPTH as usize + 1] {
            assert_eq!(
                is_valid(&nested(depth)),
                serde_json::from_slice::<serde_json::Value>(&nested(depth)).is_ok()
            );
        }
    }

    #[test]
    fn tool_input_keeps_bytes_and_mends_what_would_break_a_line() {
        for empty in ["", " ", "\r\n\t", "null", " null\n"] {
            assert_eq!(tool_input(empty).unwrap(), "{}");
        }
        let kept = r#"{ "a" :1.0,  "b":"\u00e9\/\n\ufffd\uFFFD\ud83c\udf78" }"#;
        assert_eq!(tool_input(kept).unwrap(), kept);
        assert_eq!(tool_input("{\r\n\t\"a\":\n1,\r\"b\":2\n}").unwrap(), "{ \t\"a\": 1, \"b\":2 }");
        assert_eq!(
            tool_input(r#"{"a":"\u0000 \ud83d \udf78\ud83d"}"#).unwrap(),
            "{\"a\":\"\u{FFFD} \u{FFFD} \u{FFFD}\u{FFFD}\"}"
        );
        assert_eq!(tool_input("{\"a\":\"\0\"}").unwrap(), "{\"a\":\"\u{FFFD}\"}");
        assert_eq!(tool_input(r#"{"a":"\\u0000"}"#).unwrap(), r#"{"a":"\\u0000"}"#);
        assert_eq!(tool_input("[1]"), Err(BadInput::NotAnObject));
        assert_eq!(tool_input(r#"{"command":"rm -r x"#), Err(BadInput::NotJson { at: 19 }));
        assert!(tool_input("{\"a\":\"x\ny\"}").is_err());
        assert!(tool_input("{}{}").is_err());
    }

    /// Text that is close to JSON more often than random bytes are.
    fn jsonish() -> impl Strategy<Value = Vec<u8>> {
        let token = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\"a\"",
            "\"b\":",
            "{\"a\":1}",
            "[]",
            "{}",
            "true",
            "null",
            "-",
            "0",
            "12",
            ".5",
            "e+1",
            " ",
            "\n",
            "\r",
            "\\",
            "\\u",
            "\\u00e9",
            "\\ud83c",
            "\\udf78",
            "\\n",
            "é",
            "🍸",
            "\u{1}",
            "x",
        ]);
        prop::collection::vec(token, 0..16).prop_map(|tokens| tokens.concat().into_bytes())
    }

    proptest! {
        #[test]
        fn escape_and_unescape_are_inverse(text in any::<String>()) {
            let text = text.replace('\0', "");
            let body = escaped(&text);
            prop_assert!(body.bytes().all(|byte| byte >= 0x20));
            prop_assert_eq!(unescape(body.as_bytes()), text.as_str());
            let quoted = format!("\"{body}\"");
            prop_assert_eq!(string(quoted.as_bytes()).unwrap(), text.as_str());
            prop_assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
        }

        #[test]
        fn plain_runs_end_at_the_first_special_byte(bytes in prop::collection::vec(any::<u8>(), 0..40), before in 0usize..150) {
            let bytes = [vec![b'a'; before], bytes].concat();
            let expected = bytes.iter().position(|&b| b < 0x20 || b == b'"' || b == b'\\').unwrap_or(bytes.len());
            prop_assert_eq!(plain_run(&bytes), expected);
        }

        #[test]
        fn any_bytes_unescape_to_clean_text(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(!unescape(&bytes).contains('\0'));
            prop_assert!(!clean(&bytes).contains('\0'));
        }

        #[test]
        fn valid_means_what_serde_json_takes(bytes in jsonish()) {
            // IgnoredAny checks the grammar only, as is_valid does.
            prop_assert_eq!(is_valid(&bytes), serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok());
        }

        #[test]
        fn members_are_what_serde_json_finds(bytes in jsonish()) {
            let Ok(map) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes) else { return Ok(()) };
            for (key, value) in map {
                let raw = member(&bytes, &key).unwrap();
                prop_assert_eq!(serde_json::from_slice::<serde_json::Value>(raw).unwrap(), value);
            }
        }

        #[test]
        fn tool_input_gives_one_line_of_the_same_meaning(bytes in jsonish()) {
            let text = String::from_utf8(bytes).unwrap();
            let Ok(input) = tool_input(&text) else { return Ok(()) };
            prop_assert!(!input.contains(['\n', '\r']));
            let parsed = serde_json::from_str::<serde_json::Value>(&input).unwrap();
            prop_assert!(parsed.is_object());
            if let Ok(original) = serde_json::from_str::<serde_json::Value>(&text) && original.is_object() {
                prop_assert_eq!(parsed, original);
            }
        }
    }
}
