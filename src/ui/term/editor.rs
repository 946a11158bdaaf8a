//! The line being typed: text, cursor, history, search, completion. Keys in, and what they ask for out; it knows no
//! terminal.

use unicode_segmentation::UnicodeSegmentation;

use super::complete::{Completion, Sources, common_prefix};
use super::history::History;
use super::keys::Key;

/// What a key asks of whoever runs the editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing: the text may have changed.
    Nothing,
    /// This is the input.
    Submit(String),
    /// This is for the turn that runs (Ctrl+O).
    Steer(String),
    /// Ctrl+C, or Escape.
    Interrupt {
        /// It was Ctrl+C: with nothing to interrupt it clears the line, and leaves at last.
        leaves: bool,
    },
    /// Ctrl+D on an empty line.
    End,
    /// Ctrl+Z.
    Suspend,
    /// Ctrl+L.
    Clear,
    /// Ctrl+V: an image from the clipboard.
    Image,
    /// Ctrl+G: edit the text in the user's own editor.
    OpenEditor,
}

/// A paste longer than this, or of more lines than `FOLD_LINES`, is shown as one mark.
const FOLD_BYTES: usize = 2_000;
const FOLD_LINES: usize = 12;
/// Marks in the text: characters of a private plane, one a paste.
const FIRST_MARK: u32 = 0xF_0000;
const LAST_MARK: u32 = 0xF_FFFD;
/// Steps that can be undone.
const MOST_UNDO: usize = 200;

/// Ctrl+R.
#[derive(Debug, Default)]
struct Search {
    wanted: String,
    /// The number of the line found.
    found: Option<usize>,
    /// Text and cursor from before.
    before: (String, usize),
}

/// Candidates that Tab goes through.
#[derive(Debug)]
struct Menu {
    completion: Completion,
    chosen: Option<usize>,
}

/// The editor.
pub(super) struct Editor {
    text: String,
    /// The cursor, a byte of `text`.
    at: usize,
    /// What was cut last.
    cut: String,
    undo: Vec<(String, usize)>,
    /// Folded pastes; their marks stand in `text`.
    pastes: Vec<String>,
    search: Option<Search>,
    menu: Option<Menu>,
    history: History,
    sources: Sources,
}

impl Editor {
    /// An empty line.
    pub(super) fn new(history: History, sources: Sources) -> Self {
        Self {
            text: String::new(),
            at: 0,
            cut: String::new(),
            undo: Vec::new(),
            pastes: Vec::new(),
            search: None,
            menu: None,
            history,
            sources,
        }
    }

    /// The text as shown: folded pastes are one character each (`label` names them).
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The cursor, a byte of `text`.
    pub(super) fn cursor(&self) -> usize {
        self.at
    }

    /// The text with its pastes unfolded.
    pub(super) fn whole(&self) -> String {
        let mut whole = String::with_capacity(self.text.len());
        for c in self.text.chars() {
            match self.paste_of(c) {
                Some(paste) => whole.push_str(paste),
                None => whole.push(c),
            }
        }
        whole
    }

    fn paste_of(&self, c: char) -> Option<&String> {
        let number = u32::from(c).checked_sub(FIRST_MARK)?;
        self.pastes.get(usize::try_from(number).ok()?)
    }

    /// What stands on the screen for the mark of a folded paste.
    pub(super) fn label(&self, c: char) -> Option<String> {
        let paste = self.paste_of(c)?;
        let number = u32::from(c) - FIRST_MARK + 1;
        let lines = paste.lines().count();
        Some(if lines > 1 {
            format!("[Pasted text #{number}: {lines} lines]")
        } else {
            format!("[Pasted text #{number}: {} characters]", paste.chars().count())
        })
    }

    /// The search that is under way: what is looked for, and whether it was found.
    pub(super) fn searching(&self) -> Option<(&str, bool)> {
        self.search.as_ref().map(|search| (search.wanted.as_str(), search.found.is_some()))
    }

    /// Candidates to be shown, and which one is chosen.
    pub(super) fn menu(&self) -> Option<(&Completion, Option<usize>)> {
        self.menu.as_ref().map(|menu| (&menu.completion, menu.chosen))
    }

    /// Empties the line.
    pub(super) fn clear(&mut self) {
        self.remember();
        self.set(String::new());
        self.search = None;
        self.menu = None;
    }

    /// The text becomes another one, the cursor at its end.
    pub(super) fn replace(&mut self, text: &str) {
        self.remember();
        self.set(clean(text));
    }

    fn set(&mut self, text: String) {
        self.at = text.len();
        self.text = text;
    }

    fn remember(&mut self) {
        if self.undo.last().is_none_or(|(text, _)| *text != self.text) {
            if self.undo.len() == MOST_UNDO {
                self.undo.remove(0);
            }
            self.undo.push((self.text.clone(), self.at));
        }
    }

    /// Puts text in at the cursor.
    pub(super) fn insert(&mut self, text: &str) {
        self.remember();
        let text = clean(text);
        self.text.insert_str(self.at, &text);
        self.at += text.len();
        self.history.edited();
    }

    fn paste(&mut self, text: &str) {
        let mark = u32::try_from(self.pastes.len()).ok().and_then(|n| char::from_u32(FIRST_MARK + n));
        match mark.filter(|mark| u32::from(*mark) <= LAST_MARK) {
            Some(mark) if text.len() > FOLD_BYTES || text.lines().count() > FOLD_LINES => {
                self.pastes.push(clean(text));
                self.remember();
                self.text.insert(self.at, mark);
                self.at += mark.len_utf8();
                self.history.edited();
            }
            _ => self.insert(text),
        }
    }

    /// Takes a key in.
    pub(super) fn key(&mut self, key: Key) -> Asked {
        if self.search.is_some() && !self.search_key(&key) {
            return Asked::Nothing;
        }
        if !matches!(key, Key::Tab | Key::BackTab) {
            self.menu = None;
        }
        let asked = self.edit(key);
        if self.menu.is_none() && self.search.is_none() {
            self.look_up();
        }
        asked
    }

    fn edit(&mut self, key: Key) -> Asked {
        match key {
            Key::Enter if self.text[..self.at].ends_with('\\') && self.at == self.text.len() => {
                self.delete_to(self.at - 1);
                self.insert("\n");
            }
            Key::Enter => return Asked::Submit(self.submit()),
            Key::Ctrl('o') if self.text.trim().is_empty() => {}
            Key::Ctrl('o') => return Asked::Steer(self.submit()),
            Key::Ctrl('c') => return Asked::Interrupt { leaves: true },
            Key::Escape => return Asked::Interrupt { leaves: false },
            Key::Ctrl('d') if self.text.is_empty() => return Asked::End,
            Key::Ctrl('z') => return Asked::Suspend,
            Key::Ctrl('l') => return Asked::Clear,
            Key::Ctrl('v') => return Asked::Image,
            Key::Ctrl('g') => return Asked::OpenEditor,
            Key::Ctrl('r') => self.begin_search(),
            Key::Tab => self.complete(true),
            Key::BackTab => self.complete(false),
            Key::Text(text) => self.insert(&text),
            Key::NewLine => self.insert("\n"),
            Key::Paste(text) => self.paste(&text),
            Key::Ctrl('_') => self.undo(),
            other => self.change(&other),
        }
        Asked::Nothing
    }

    /// Keys that move the cursor or take text away.
    fn change(&mut self, key: &Key) {
        match key {
            Key::Backspace | Key::Ctrl('h') => self.delete_to(self.left()),
            Key::Delete | Key::Ctrl('d') => self.delete_to(self.right()),
            Key::Ctrl('w') => self.kill_to(self.blank_left()),
            Key::Alt('\u{7f}') => self.kill_to(self.word_left()),
            Key::Alt('d') => self.kill_to(self.word_right()),
            Key::Ctrl('k') => self.kill_to(self.line_end()),
            Key::Ctrl('u') => self.kill_to(self.line_start()),
            Key::Ctrl('y') => {
                let cut = self.cut.clone();
                self.insert(&cut);
            }
            Key::Ctrl('t') => self.transpose(),
            Key::Left | Key::Ctrl('b') => self.at = self.left(),
            Key::Right | Key::Ctrl('f') => self.at = self.right(),
            Key::WordLeft | Key::Alt('b') => self.at = self.word_left(),
            Key::WordRight | Key::Alt('f') => self.at = self.word_right(),
            Key::Home | Key::Ctrl('a') => self.at = self.line_start(),
            Key::End | Key::Ctrl('e') => self.at = self.line_end(),
            Key::Alt('<') => self.at = 0,
            Key::Alt('>') => self.at = self.text.len(),
            Key::Up => self.up(),
            Key::Down => self.down(),
            Key::Ctrl('p') => self.older(),
            Key::Ctrl('n') => self.newer(),
            _ => {}
        }
    }

    /// The input is complete: it goes into the history, the line is empty again.
    fn submit(&mut self) -> String {
        let whole = self.whole();
        self.history.add(&whole);
        self.set(String::new());
        self.undo.clear();
        self.pastes.clear();
        self.menu = None;
        whole
    }

    fn undo(&mut self) {
        while let Some((text, at)) = self.undo.pop() {
            if text != self.text {
                self.text = text;
                self.at = at;
                return;
            }
        }
    }

    // Places, all of them bytes of `text`.

    fn left(&self) -> usize {
        self.text[..self.at].grapheme_indices(true).next_back().map_or(0, |(at, _)| at)
    }

    fn right(&self) -> usize {
        self.text[self.at..].graphemes(true).next().map_or(self.at, |g| self.at + g.len())
    }

    fn word_left(&self) -> usize {
        let is_word = |word: &str| word.chars().any(char::is_alphanumeric);
        let mut words = self.text[..self.at].split_word_bound_indices();
        words.rfind(|(_, word)| is_word(word)).map_or(0, |(at, _)| at)
    }

    fn word_right(&self) -> usize {
        let is_word = |word: &str| word.chars().any(char::is_alphanumeric);
        let mut words = self.text[self.at..].split_word_bound_indices();
        words.find(|(_, word)| is_word(word)).map_or(self.text.len(), |(at, word)| self.at + at + word.len())
    }

    /// The beginning of the word that blanks part.
    fn blank_left(&self) -> usize {
        let before = self.text[..self.at].trim_end();
        before.char_indices().rev().find(|(_, c)| c.is_whitespace()).map_or(0, |(at, c)| at + c.len_utf8())
    }

    fn line_start(&self) -> usize {
        self.text[..self.at].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.at..].find('\n').map_or(self.text.len(), |at| self.at + at)
    }

    fn delete_to(&mut self, other: usize) {
        if other == self.at {
            return;
        }
        self.remember();
        let (start, end) = (other.min(self.at), other.max(self.at));
        self.text.replace_range(start..end, "");
        self.at = start;
        self.history.edited();
    }

    /// Takes away what Ctrl+Y puts back. At the end of a line the line feed goes.
    fn kill_to(&mut self, other: usize) {
        let other =
            if other == self.at && self.text[self.at..].starts_with('\n') { self.at + 1 } else { other };
        if other != self.at {
            self.cut = self.text[other.min(self.at)..other.max(self.at)].to_owned();
            self.delete_to(other);
        }
    }

    fn transpose(&mut self) {
        let end = if self.at == self.text.len() { self.at } else { self.right() };
        let mut before = self.text[..end].grapheme_indices(true).rev();
        if let (Some((second, b)), Some((first, a))) = (before.next(), before.next()) {
            let swapped = format!("{b}{a}");
            debug_assert_eq!(first + swapped.len(), second + b.len());
            self.remember();
            self.text.replace_range(first..end, &swapped);
            self.at = end;
        }
    }

    /// Up a line in the text; from its first line, to the history.
    fn up(&mut self) {
        let start = self.line_start();
        if start == 0 {
            return self.older();
        }
        let column = self.text[start..self.at].graphemes(true).count();
        let above = self.text[..start - 1].rfind('\n').map_or(0, |at| at + 1);
        self.at = self.place(above, column);
    }

    fn down(&mut self) {
        let end = self.line_end();
        if end == self.text.len() {
            return self.newer();
        }
        let column = self.text[self.line_start()..self.at].graphemes(true).count();
        self.at = self.place(end + 1, column);
    }

    /// The byte of grapheme number `column` in the line that begins at `start`.
    fn place(&self, start: usize, column: usize) -> usize {
        let line = self.text[start..].split('\n').next().unwrap_or_default();
        line.grapheme_indices(true).nth(column).map_or(start + line.len(), |(at, _)| start + at)
    }

    fn older(&mut self) {
        let typed = self.text.clone();
        if let Some(line) = self.history.older(&typed).map(str::to_owned) {
            self.set(line);
        }
    }

    fn newer(&mut self) {
        if let Some(line) = self.history.newer() {
            self.set(line);
        }
    }

    // Search.

    fn begin_search(&mut self) {
        let before = (self.text.clone(), self.at);
        self.search = Some(Search { before, ..Search::default() });
    }

    /// A key while searching; whether it is an ordinary one that ends the search.
    fn search_key(&mut self, key: &Key) -> bool {
        let Some(search) = &mut self.search else { return true };
        let found = match key {
            Key::Text(text) => {
                search.wanted.push_str(&clean(text));
                let from = search.found.map_or(usize::MAX, |at| at + 1);
                self.history.find(&search.wanted, from)
            }
            Key::Backspace => {
                let end = search.wanted.grapheme_indices(true).next_back().map_or(0, |(at, _)| at);
                search.wanted.truncate(end);
                self.history.find(&search.wanted, usize::MAX)
            }
            Key::Ctrl('r') => self.history.find(&search.wanted, search.found.unwrap_or(usize::MAX)),
            Key::Ctrl('s') => search.found.and_then(|at| self.history.find_newer(&search.wanted, at)),
            Key::Ctrl('c' | 'g') => {
                (self.text, self.at) = std::mem::take(&mut search.before);
                self.search = None;
                return false;
            }
            Key::Escape => {
                self.search = None;
                return false;
            }
            _ => {
                self.search = None;
                return true;
            }
        };
        match found {
            Some((at, line)) if !search.wanted.is_empty() => {
                search.found = Some(at);
                let line = line.to_owned();
                self.set(line);
            }
            // Ctrl+R beyond the oldest stays there.
            _ if matches!(key, Key::Ctrl(_)) => {}
            _ => search.found = None,
        }
        false
    }

    // Completion.

    /// Shows what a command or path may become while it is typed.
    fn look_up(&mut self) {
        let at_end = self.text[self.at..].chars().next().is_none_or(char::is_whitespace);
        if at_end && (self.text.starts_with('/') || self.text[..self.at].contains('@')) {
            let completion = self.sources.complete(&self.text, self.at);
            let done = |completion: &Completion| {
                completion.candidates.len() == 1
                    && completion.candidates[0].text == self.text[completion.start..self.at]
            };
            self.menu = completion
                .filter(|completion| !done(completion))
                .map(|completion| Menu { completion, chosen: None });
        }
    }

    /// Tab: as far as all candidates agree, then from one to the next.
    fn complete(&mut self, forward: bool) {
        if self.menu.is_none() {
            let completion = self.sources.complete(&self.text, self.at);
            self.menu = completion.map(|completion| Menu { completion, chosen: None });
        }
        let Some(mut menu) = self.menu.take() else { return };
        let candidates = &menu.completion.candidates;
        let typed = &self.text[menu.completion.start..self.at];
        let common = common_prefix(candidates);
        if let [only] = candidates.as_slice() {
            let mut text = only.text.clone();
            if !text.ends_with('/') {
                text.push(' ');
            }
            self.exchange(menu.completion.start, &text);
            return;
        }
        if menu.chosen.is_none() && common.len() > typed.len() {
            let common = common.to_owned();
            self.exchange(menu.completion.start, &common);
        } else {
            let count = candidates.len();
            let next = match (menu.chosen, forward) {
                (None, true) => 0,
                (None, false) => count - 1,
                (Some(at), true) => (at + 1) % count,
                (Some(at), false) => (at + count - 1) % count,
            };
            menu.chosen = Some(next);
            let text = candidates[next].text.clone();
            self.exchange(menu.completion.start, &text);
        }
        self.menu = Some(menu);
    }

    fn exchange(&mut self, start: usize, text: &str) {
        self.remember();
        self.text.replace_range(start..self.at, text);
        self.at = start + text.len();
    }
}

/// Text without control characters, but for line feeds and tabs. Marks of pastes cannot be typed.
fn clean(text: &str) -> String {
    let is_mark = |c: char| (FIRST_MARK..=LAST_MARK).contains(&u32::from(c));
    text.chars().filter(|c| (!c.is_control() || matches!(c, '\n' | '\t')) && !is_mark(*c)).collect()
}
