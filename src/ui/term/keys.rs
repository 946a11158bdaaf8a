//! Bytes of a terminal in raw mode → keys. Pure: it is told when no more bytes follow.

/// A key, or what a terminal sends in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Text that was typed.
    Text(String),
    /// Text that was pasted (bracketed paste), line ends as LF.
    Paste(String),
    /// Ctrl and a letter (lower case) or one of `@ \ ] ^ _`.
    Ctrl(char),
    /// Alt and a character.
    Alt(char),
    /// Return.
    Enter,
    /// Alt+Return, Shift+Return, Ctrl+J: a line feed in the text.
    NewLine,
    /// Tab.
    Tab,
    /// Shift+Tab.
    BackTab,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Escape alone.
    Escape,
    /// An arrow.
    Up,
    /// An arrow.
    Down,
    /// An arrow.
    Left,
    /// An arrow.
    Right,
    /// Ctrl or Alt and an arrow.
    WordLeft,
    /// Ctrl or Alt and an arrow.
    WordRight,
    /// Home.
    Home,
    /// End.
    End,
}

const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

/// Takes bytes as they come and gives whole keys.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
    /// In a paste: how far its end was looked for already.
    searched: Option<usize>,
}

impl Decoder {
    /// More bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes wait that may be the beginning of something longer, or an Escape (not a paste: that has an end).
    pub(super) fn waits(&self) -> bool {
        !self.bytes.is_empty() && self.searched.is_none()
    }

    /// The next whole key. `at_rest`: no more bytes came for a while, so what is there is all there is.
    pub(super) fn next(&mut self, at_rest: bool) -> Option<Key> {
        loop {
            if self.searched.is_some() {
                return self.paste();
            }
            match self.bytes.first()? {
                0x1b => match self.escape(at_rest)? {
                    Some(key) => return Some(key),
                    None => continue,
                },
                byte if *byte < 0x20 || *byte == 0x7f => {
                    let key = control(*byte);
                    self.bytes.remove(0);
                    return Some(key);
                }
                _ => return self.text(at_rest),
            }
        }
    }

    /// A run of printable text; a character cut in two waits for its rest.
    fn text(&mut self, at_rest: bool) -> Option<Key> {
        let end = self.bytes.iter().position(|b| *b < 0x20 || *b == 0x7f).unwrap_or(self.bytes.len());
        let run = &self.bytes[..end];
        let valid = match std::str::from_utf8(run) {
            Ok(_) => end,
            Err(error) if error.error_len().is_none() && end == self.bytes.len() && !at_rest => {
                error.valid_up_to()
            }
            Err(_) => end,
        };
        if valid == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&self.bytes[..valid]).into_owned();
        self.bytes.drain(..valid);
        Some(Key::Text(text))
    }

    /// `Some(None)`: a sequence that means nothing to us was dropped.
    fn escape(&mut self, at_rest: bool) -> Option<Option<Key>> {
        let Some(second) = self.bytes.get(1).copied() else {
            return at_rest.then(|| self.take(1, Some(Key::Escape)));
        };
        match second {
            b'[' | b'O' => {}
            b'\r' | b'\n' => return Some(self.take(2, Some(Key::NewLine))),
            0x7f | 0x08 => return Some(self.take(2, Some(Key::Alt('\u{7f}')))),
            0x1b => return Some(self.take(1, Some(Key::Escape))),
            byte if byte < 0x20 => return Some(self.take(2, None)),
            byte if byte < 0x80 => return Some(self.take(2, Some(Key::Alt(char::from(byte))))),
            _ => return Some(self.take(1, Some(Key::Escape))),
        }
        if self.bytes.starts_with(PASTE_START) {
            self.bytes.drain(..PASTE_START.len());
            self.searched = Some(0);
            return Some(None);
        }
        let Some(end) = self.bytes[2..].iter().position(|b| (0x40..=0x7e).contains(b)) else {
            // Not ended: at rest it is Alt and a bracket, or rubbish.
            let whole = self.bytes.len();
            let key = (whole == 2).then_some(Key::Alt(char::from(second)));
            return at_rest.then(|| self.take(whole, key));
        };
        let end = end + 2;
        let parameters = String::from_utf8_lossy(&self.bytes[2..end]).into_owned();
        let last = self.bytes[end];
        Some(self.take(end + 1, sequence(&parameters, last)))
    }

    fn take(&mut self, count: usize, key: Option<Key>) -> Option<Key> {
        self.bytes.drain(..count);
        key
    }

    fn paste(&mut self) -> Option<Key> {
        let from = self.searched.unwrap_or(0);
        let Some(at) = memchr::memmem::find(&self.bytes[from..], PASTE_END) else {
            self.searched = Some(self.bytes.len().saturating_sub(PASTE_END.len()).max(from));
            return None;
        };
        let end = from + at;
        let text = String::from_utf8_lossy(&self.bytes[..end]).replace("\r\n", "\n").replace('\r', "\n");
        self.bytes.drain(..end + PASTE_END.len());
        self.searched = None;
        Some(Key::Paste(text))
    }
}

fn control(byte: u8) -> Key {
    match byte {
        b'\r' => Key::Enter,
        b'\n' => Key::NewLine,
        b'\t' => Key::Tab,
        0x7f | 0x08 => Key::Backspace,
        0 => Key::Ctrl('@'),
        1..=26 => Key::Ctrl(char::from(byte + b'a' - 1)),
        _ => Key::Ctrl(char::from(byte + 0x40)),
    }
}

/// What `ESC [ parameters last` or `ESC O last` means.
fn sequence(parameters: &str, last: u8) -> Option<Key> {
    let mut numbers = parameters.split(';').map(|number| number.parse::<u32>().unwrap_or(1));
    let first = numbers.next().unwrap_or(1);
    let modifier = numbers.next().unwrap_or(1);
    // 1 + (1 Shift, 2 Alt, 4 Ctrl).
    let by_word = modifier > 1 && (modifier - 1) & 6 != 0;
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' if by_word => Key::WordRight,
        b'C' => Key::Right,
        b'D' if by_word => Key::WordLeft,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'M' if parameters.is_empty() => Key::Enter,
        b'Z' => Key::BackTab,
        b'~' => match first {
            1 | 7 => Key::Home,
            4 | 8 => Key::End,
            3 if by_word => Key::Alt('d'),
            3 => Key::Delete,
            // xterm's modifyOtherKeys: 27;modifier;code.
            27 => return other(numbers.next()?, modifier),
            _ => return None,
        },
        b'u' => return other(first, modifier),
        _ => return None,
    })
}

/// A key told by its code and its modifiers.
fn other(code: u32, modifier: u32) -> Option<Key> {
    let bits = modifier.saturating_sub(1);
    let c = char::from_u32(code)?;
    Some(match (c, bits) {
        ('\r', 0) => Key::Enter,
        ('\r', _) => Key::NewLine,
        ('\t', 0) => Key::Tab,
        ('\t', _) => Key::BackTab,
        ('\u{7f}', bits) if bits & 6 != 0 => Key::Alt('\u{7f}'),
        ('\u{7f}', _) => Key::Backspace,
        ('\u{1b}', _) => Key::Escape,
        (c, bits) if bits & 4 != 0 => Key::Ctrl(c.to_ascii_lowercase()),
        (c, bits) if bits & 2 != 0 => Key::Alt(c),
        (c, _) => Key::Text(c.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(pieces: &[&[u8]]) -> Vec<Key> {
        let mut decoder = Decoder::default();
        let mut keys = Vec::new();
        for piece in pieces {
            decoder.feed(piece);
            while let Some(key) = decoder.next(false) {
                keys.push(key);
            }
        }
        while let Some(key) = decoder.next(true) {
            keys.push(key);
        }
        keys
    }

    fn text(text: &str) -> Key {
        Key::Text(text.to_owned())
    }

    #[test]
    fn keys_come_out_of_bytes_wherever_they_are_cut() {
        let bytes = "a漢\r\x1b[A\x1b[1;5D\x1bOF\x1bb\x1b\r\x7f\x03".as_bytes();
        let all = [
            text("a"),
            text("漢"),
            Key::Enter,
            Key::Up,
            Key::WordLeft,
            Key::End,
            Key::Alt('b'),
            Key::NewLine,
            Key::Backspace,
            Key::Ctrl('c'),
        ];
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(keys(&single), all);
        assert_eq!(keys(&[bytes])[1..], all[2..], "in one piece the two characters are one text");
    }

    #[test]
    fn an_escape_alone_is_one_only_when_nothing_follows() {
        assert_eq!(keys(&[b"\x1b"]), [Key::Escape]);
        assert_eq!(keys(&[b"\x1b", b"[B"]), [Key::Down]);
        assert_eq!(keys(&[b"\x1b\x1b"]), [Key::Escape, Key::Escape]);
        assert_eq!(keys(&[b"\x1b[99;99y"]), [], "an unknown sequence types nothing");
        assert_eq!(keys(&[b"\x1b["]), [Key::Alt('[')]);
    }

    #[test]
    fn a_paste_is_one_key_whatever_it_holds() {
        let all = keys(&[b"\x1b[200~one\rtwo\r\n\x1b[A\x03", b"x\x1b[20", b"1~y"]);
        assert_eq!(all, [Key::Paste("one\ntwo\n\x1b[A\x03x".to_owned()), text("y")]);
    }

    #[test]
    fn modified_returns_are_line_feeds() {
        assert_eq!(keys(&[b"\x1b[13;2u"]), [Key::NewLine]);
        assert_eq!(keys(&[b"\x1b[27;2;13~"]), [Key::NewLine]);
        assert_eq!(keys(&[b"\n"]), [Key::NewLine]);
    }
}
