//! The words of a command after the expansions that can be done without running it.

use tree_sitter::Node;

use super::{Places, State, children};

/// Stands for what is not known inside a word.
const UNKNOWN: char = '\u{10ffff}';
/// Stands for a blank that splits words: it came out of an unquoted variable.
const SPLIT: char = '\u{10fffe}';
/// More words than this are not made of one: `{1..1000000}` is no list of files.
const MAX_BRACES: usize = 256;

/// One word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Its text; what comes before the unknown part, if there is one.
    pub(super) text: String,
    /// Whether that is all of it.
    pub(super) known: bool,
    /// Where a pattern (`*`, `?`, `[`) begins that the shell will replace by file names.
    glob: Option<usize>,
}

impl Word {
    /// A word that is certain.
    pub(super) fn known(text: &str) -> Self {
        Self { text: text.to_owned(), known: true, glob: None }
    }

    /// A word that nothing is known of.
    pub(super) fn unknown() -> Self {
        Self { text: String::new(), known: false, glob: None }
    }

    /// The text from byte `start` on.
    pub(super) fn from(&self, start: usize) -> Self {
        let text = self.text.get(start..).unwrap_or_default().to_owned();
        Self { text, known: self.known, glob: self.glob.map(|glob| glob.saturating_sub(start)) }
    }

    /// The path as far as it is certain: all of it, or the directory before a pattern or an unknown part. `None` when
    /// not even that is known.
    pub(super) fn known_directory(&self) -> Option<&str> {
        let certain = match self.glob {
            Some(glob) => &self.text[..glob],
            None if self.known => return Some(&self.text),
            None => &self.text,
        };
        match certain.rfind('/') {
            Some(0) => Some("/"),
            Some(end) => Some(&certain[..end]),
            // A pattern without a slash stays where it is; an unknown word can lead anywhere.
            None if self.known => Some("."),
            None => None,
        }
    }
}

/// A character and whether it was quoted.
type Char = (char, bool);

/// The words that a node becomes.
pub(super) fn expand(node: Node<'_>, text: &str, state: &State, places: &Places) -> Vec<Word> {
    let mut chars = Vec::new();
    let mut expansion = Expansion { text, state, places, out: &mut chars };
    expansion.node(node, false);
    let mut words = Vec::new();
    for word in braces(&chars) {
        words.extend(
            word.split(|(c, _)| *c == SPLIT).filter(|part| !part.is_empty() || word.is_empty()).map(finish),
        );
    }
    // An empty variable is no word at all; an empty string is one.
    if words.is_empty() && chars.is_empty() && !matches!(node.kind(), "simple_expansion" | "expansion") {
        words.push(Word::known(""));
    }
    words.retain(|word| {
        !(word.text.is_empty() && word.known && matches!(node.kind(), "simple_expansion" | "expansion"))
    });
    words
}

/// The words of a text that no grammar understands: quotes are taken for what they mostly are.
pub(super) fn rough(text: &str, places: &Places) -> Vec<Word> {
    let state = State::default();
    let mut words = Vec::new();
    for part in text.split_whitespace() {
        let mut chars = Vec::new();
        let part = part.replace(['\'', '"'], "");
        Expansion { text: "", state: &state, places, out: &mut chars }.plain(&part);
        let known = part.find('$').map_or(chars.len(), |at| part[..at].chars().count().min(chars.len()));
        if known < chars.len() {
            chars.truncate(known);
            chars.push((UNKNOWN, true));
        }
        words.extend(braces(&chars).iter().map(|word| finish(word)));
    }
    words
}

fn finish(chars: &[Char]) -> Word {
    let end = chars.iter().position(|(c, _)| *c == UNKNOWN);
    let certain = &chars[..end.unwrap_or(chars.len())];
    let glob = certain.iter().position(|(c, quoted)| !quoted && matches!(c, '*' | '?' | '['));
    let bytes = |count: usize| certain[..count].iter().map(|(c, _)| c.len_utf8()).sum();
    Word { text: certain.iter().map(|(c, _)| c).collect(), known: end.is_none(), glob: glob.map(bytes) }
}

struct Expansion<'a> {
    text: &'a str,
    state: &'a State,
    places: &'a Places,
    out: &'a mut Vec<Char>,
}

impl Expansion<'_> {
    fn node(&mut self, node: Node<'_>, quoted: bool) {
        let text = &self.text[node.byte_range()];
        match node.kind() {
            "word" | "number" | "variable_name" | "extglob_pattern" | "regex" | "test_operator" => {
                self.plain(text)
            }
            "command_name" | "concatenation" => self.parts(node, quoted),
            "raw_string" => self.push(text.trim_start_matches('\'').trim_end_matches('\''), true),
            "ansi_c_string" => self.ansi(text),
            "string" | "translated_string" => self.parts(node, true),
            "string_content" => self.double_quoted(text),
            "simple_expansion" => self.variable(text.trim_start_matches('$'), quoted),
            "expansion" => match text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
                Some(name) if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                    self.variable(name, quoted);
                }
                _ => self.unknown(),
            },
            "$" | "\"" => {}
            // A descriptor's name, as the shell makes it.
            "process_substitution" => self.push("/dev/fd/63", true),
            _ if !node.is_named() => self.plain(text),
            _ => self.unknown(),
        }
    }

    /// Children, and what lies between them: the grammar gives some blanks of a string to nobody.
    fn parts(&mut self, node: Node<'_>, quoted: bool) {
        let mut at = node.start_byte();
        for child in children(node) {
            if quoted {
                self.double_quoted(&self.text[at..child.start_byte()]);
            }
            self.node(child, quoted);
            at = child.end_byte();
        }
    }

    fn push(&mut self, text: &str, quoted: bool) {
        self.out.extend(
            text.chars().map(|c| (if matches!(c, UNKNOWN | SPLIT) { '\u{fffd}' } else { c }, quoted)),
        );
    }

    fn unknown(&mut self) {
        self.out.push((UNKNOWN, true));
    }

    /// Unquoted text: a backslash quotes, and is gone before a line feed.
    fn plain(&mut self, text: &str) {
        let first = self.out.is_empty();
        let mut rest = text;
        if first && (text == "~" || text.starts_with("~/")) {
            match &self.places.home {
                Some(home) => self.push(&home.to_string_lossy(), true),
                None => self.unknown(),
            }
            rest = &text[1..];
        } else if first && text.starts_with('~') {
            self.unknown();
        }
        let mut chars = rest.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('\n') | None => {}
                    Some(c) => self.out.push((c, true)),
                },
                c => self.push(c.encode_utf8(&mut [0; 4]), false),
            }
        }
    }

    fn double_quoted(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match (c, chars.peek()) {
                ('\\', Some('\n')) => drop(chars.next()),
                ('\\', Some(&next)) if matches!(next, '$' | '`' | '"' | '\\') => {
                    chars.next();
                    self.out.push((next, true));
                }
                _ => self.out.push((c, true)),
            }
        }
    }

    /// `$'…'`.
    fn ansi(&mut self, text: &str) {
        let inner = text.trim_start_matches('$').trim_start_matches('\'').trim_end_matches('\'');
        let mut chars = inner.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '\\' {
                self.out.push((c, true));
                continue;
            }
            let Some(escape) = chars.next() else { return };
            let mut digits = |radix: u32, most: usize, first: Option<char>| {
                let mut number: String = first.into_iter().collect();
                while number.len() < most && chars.peek().is_some_and(|c| c.is_digit(radix)) {
                    number.extend(chars.next());
                }
                u32::from_str_radix(&number, radix).ok().and_then(char::from_u32)
            };
            let c = match escape {
                'n' => Some('\n'),
                't' => Some('\t'),
                'r' => Some('\r'),
                'a' => Some('\u{7}'),
                'b' => Some('\u{8}'),
                'e' | 'E' => Some('\u{1b}'),
                'f' => Some('\u{c}'),
                'v' => Some('\u{b}'),
                '0'..='7' => digits(8, 3, Some(escape)),
                'x' => digits(16, 2, None),
                'u' => digits(16, 4, None),
                'U' => digits(16, 8, None),
                '\\' | '\'' | '"' | '?' => Some(escape),
                _ => None,
            };
            self.out.push((c.unwrap_or(UNKNOWN), true));
        }
    }

    fn variable(&mut self, name: &str, quoted: bool) {
        let place = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let value = match (self.state.variables.get(name), name) {
            (Some(value), _) => value.clone(),
            (None, "HOME") => self.places.home.as_deref().map(place),
            (None, "PWD") => self.state.cwd.as_deref().map(place),
            (None, "TMPDIR") => self.places.tmp_dir.as_deref().map(place),
            _ => None,
        };
        match value {
            None => self.unknown(),
            Some(value) if quoted => self.push(&value, true),
            Some(value) => {
                for c in value.chars() {
                    match c {
                        ' ' | '\t' | '\n' => self.out.push((SPLIT, false)),
                        c => self.push(c.encode_utf8(&mut [0; 4]), false),
                    }
                }
            }
        }
    }
}

/// `a{b,c}d` becomes two words; `{1..9}` one that is not known.
fn braces(chars: &[Char]) -> Vec<Vec<Char>> {
    let mut done = Vec::new();
    let mut todo = vec![chars.to_vec()];
    while let Some(word) = todo.pop() {
        match first_brace(&word) {
            Some(_) if todo.len() + done.len() > MAX_BRACES => {
                done.push(vec![(UNKNOWN, true)]);
                return done;
            }
            Some((start, end, commas)) => {
                let mut from = start + 1;
                let alternatives = commas.iter().copied().chain([end]).map(|to| {
                    let part = &word[from..to];
                    from = to + 1;
                    [&word[..start], part, &word[end + 1..]].concat()
                });
                let alternatives: Vec<_> = alternatives.collect();
                todo.extend(alternatives.into_iter().rev());
            }
            None => done.push(word),
        }
    }
    done
}

/// The first unquoted brace that holds a comma of its own: start, end, commas. A range makes the braces one part.
fn first_brace(word: &[Char]) -> Option<(usize, usize, Vec<usize>)> {
    let starts = word.iter().enumerate().filter(|(_, c)| **c == ('{', false)).map(|(at, _)| at);
    for start in starts {
        let (mut depth, mut commas) = (0, Vec::new());
        for (at, c) in word.iter().enumerate().skip(start) {
            match c {
                ('{', false) => depth += 1,
                (',', false) if depth == 1 => commas.push(at),
                ('}', false) => {
                    depth -= 1;
                    if depth == 0 {
                        if !commas.is_empty() {
                            return Some((start, at, commas));
                        }
                        break;
                    }
                }
                _ => {}
            }
        }
    }
    None
}
