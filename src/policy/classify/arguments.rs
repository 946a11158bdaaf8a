//! Arguments taken apart, and lists of names.

use super::words::Word;

/// Whether a list of names with blanks between them holds this one.
pub(super) fn listed(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|listed| listed == name)
}

/// The table that awk/classify.awk reads too.
const TABLE: &str = include_str!("../../assets/programs.tsv");

/// A program's line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Which rule it follows.
    pub(super) kind: &'static str,
    /// The letters of its options that take a value.
    pub(super) short: &'static str,
    /// The names of its long ones that do.
    pub(super) long: &'static str,
}

/// What the table says about a program.
pub(super) fn program(name: &str) -> Option<Entry> {
    entries(name).find(|entry| !entry.kind.starts_with("git-"))
}

/// What it says about a command of git.
pub(super) fn git_command(name: &str) -> Option<Entry> {
    entries(name).find(|entry| entry.kind.starts_with("git-"))
}

fn entries(name: &str) -> impl Iterator<Item = Entry> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(move |line| {
        let mut fields = line.split('\t');
        let (kind, names) = (fields.next()?, fields.next()?);
        let short = fields.next().unwrap_or_default();
        let own = names.split_ascii_whitespace().find_map(|listed| match listed.strip_prefix(name)? {
            "" => Some(short),
            letters => letters.strip_prefix(':'),
        })?;
        Some(Entry { kind, short: own, long: fields.next().unwrap_or_default() })
    })
}

/// The arguments, taken apart.
#[derive(Default)]
pub(super) struct Parsed {
    /// Options without their dashes; a value where one belongs to it.
    pub(super) options: Vec<(String, Option<Word>)>,
    pub(super) operands: Vec<Word>,
}

impl Parsed {
    /// Whether one of these options (a list with blanks) is there.
    pub(super) fn has(&self, names: &str) -> bool {
        self.options.iter().any(|(name, _)| listed(names, name))
    }

    /// Their values.
    pub(super) fn values(&self, names: &str) -> Vec<Word> {
        let named = self.options.iter().filter(|(name, _)| listed(names, name));
        named.filter_map(|(_, value)| value.clone()).collect()
    }
}

/// Takes arguments apart: the letters in `short` and the names in `long` take a value.
pub(super) fn parse(arguments: &[Word], short: &str, long: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let text = word.text.as_str();
        if text == "--" && word.known {
            parsed.operands.extend(rest.cloned());
            break;
        }
        if let Some(name) = text.strip_prefix("--") {
            match name.split_once('=') {
                Some((name, _)) => {
                    let value = word.from(name.len() + 3);
                    parsed.options.push((name.to_owned(), Some(value)));
                }
                None => {
                    let value = if listed(long, name) { rest.next().cloned() } else { None };
                    parsed.options.push((name.to_owned(), value));
                }
            }
        } else if text.len() > 1 && text.starts_with('-') {
            for (at, letter) in text.char_indices().skip(1) {
                if short.contains(letter) {
                    let end = at + letter.len_utf8();
                    let value = if end < text.len() || !word.known {
                        Some(word.from(end))
                    } else {
                        rest.next().cloned()
                    };
                    parsed.options.push((letter.to_string(), value));
                    break;
                }
                parsed.options.push((letter.to_string(), None));
            }
        } else {
            parsed.operands.push(word.clone());
        }
    }
    parsed
}
