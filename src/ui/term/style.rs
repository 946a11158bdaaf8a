//! Styled text and how it falls into rows of a terminal.

use std::fmt::Write as _;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a piece of text looks. Colours are the terminal's own sixteen, so that they suit light and dark ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    /// An SGR number, 30–37 or 90–97; 0 = the default.
    pub(super) fg: u8,
    /// Bold.
    pub(super) bold: bool,
    /// Dim.
    pub(super) dim: bool,
    /// Italic.
    pub(super) italic: bool,
    /// Underlined.
    pub(super) underline: bool,
    /// Struck through.
    pub(super) strike: bool,
    /// Background and foreground swapped.
    pub(super) reverse: bool,
}

impl Style {
    /// No style at all.
    pub(super) const PLAIN: Self = Self {
        fg: 0,
        bold: false,
        dim: false,
        italic: false,
        underline: false,
        strike: false,
        reverse: false,
    };
    /// Errors, removed lines.
    pub(super) const RED: Self = Self::color(31);
    /// The user's own words, added lines.
    pub(super) const GREEN: Self = Self::color(32);
    /// Calls, warnings.
    pub(super) const YELLOW: Self = Self::color(33);
    /// Sub-agents.
    pub(super) const MAGENTA: Self = Self::color(35);
    /// The agent's own remarks, code.
    pub(super) const CYAN: Self = Self::color(36);
    /// What matters less.
    pub(super) const GREY: Self = Self::color(90);

    const fn color(fg: u8) -> Self {
        Self { fg, ..Self::PLAIN }
    }

    /// The same in bold.
    pub(super) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    fn sgr(self, out: &mut String) {
        out.push_str("\x1b[0");
        if self.fg != 0 {
            let _ = write!(out, ";{}", self.fg);
        }
        for (on, code) in [
            (self.bold, "1"),
            (self.dim, "2"),
            (self.italic, "3"),
            (self.underline, "4"),
            (self.reverse, "7"),
            (self.strike, "9"),
        ] {
            if on {
                out.push(';');
                out.push_str(code);
            }
        }
        out.push('m');
    }
}

/// Where a line that is too long is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wrap {
    /// At the terminal's edge, by the terminal itself: it copies as one line.
    #[default]
    Edge,
    /// At the last blank; the rows that follow are indented by this many cells.
    Words(usize),
}

/// One line of output. It holds no control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// What it holds.
    pub(super) spans: Vec<(Style, String)>,
    /// How it is broken.
    pub(super) wrap: Wrap,
    /// The next line goes on where this one ends.
    pub(super) more: bool,
}

impl Line {
    /// A line of one style.
    pub(super) fn new(style: Style, text: impl Into<String>) -> Self {
        Self { spans: vec![(style, text.into())], wrap: Wrap::Edge, more: false }
    }

    /// The same, broken at blanks.
    pub(super) fn words(mut self, indent: usize) -> Self {
        self.wrap = Wrap::Words(indent);
        self
    }
}

/// Appends a piece, to the last one where both look the same.
pub(super) fn push(spans: &mut Vec<(Style, String)>, style: Style, text: &str) {
    match spans.last_mut() {
        Some((last, held)) if *last == style => held.push_str(text),
        _ if text.is_empty() => {}
        _ => spans.push((style, text.to_owned())),
    }
}

/// Part of a line that fits into the terminal's width.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// What it holds.
    pub(super) spans: Vec<(Style, String)>,
    /// Cells, counted high where terminals differ.
    pub(super) width: usize,
    /// The next row of the same line follows without a line feed: the terminal breaks the line itself.
    pub(super) soft: bool,
}

impl Row {
    /// A row of one style; cut to `limit` cells.
    pub(super) fn cut(style: Style, text: &str, limit: usize) -> Self {
        let mut row = Self::default();
        for grapheme in text.graphemes(true) {
            let cells = cells(grapheme).0;
            if row.width + cells > limit {
                break;
            }
            push(&mut row.spans, style, grapheme);
            row.width += cells;
        }
        row
    }

    /// Appends the row as bytes for the terminal, without colour when `color` is off.
    pub(super) fn write(&self, color: bool, out: &mut String) {
        let mut styled = false;
        for (style, text) in &self.spans {
            if color && (*style != Style::PLAIN || styled) {
                style.sgr(out);
                styled = *style != Style::PLAIN;
            }
            out.push_str(text);
        }
        if styled {
            out.push_str("\x1b[0m");
        }
    }
}

/// Cells of a text in one row.
pub(super) fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.graphemes(true).map(|g| cells(g).0).sum() }
}

/// Cells of one grapheme, and whether all terminals agree on that. Where they do not (joined emoji, variation
/// selectors, flags) the most that one of them takes is counted: a row is then broken by us before it is too long.
pub(super) fn cells(grapheme: &str) -> (usize, bool) {
    let mut chars = grapheme.chars();
    let (Some(first), rest) = (chars.next(), chars.as_str()) else { return (0, true) };
    if rest.is_empty() {
        return (first.width().unwrap_or(0), true);
    }
    let whole = grapheme.width();
    let parts: usize = grapheme.chars().map(|c| c.width().unwrap_or(0)).sum();
    (whole.max(parts), whole == parts)
}

/// Breaks a line into rows of at most `limit` cells; an empty line is one empty row.
pub(super) fn rows(line: &Line, limit: usize) -> Vec<Row> {
    let limit = limit.max(2);
    let mut breaker = Breaker { limit, rows: Vec::new(), row: Row::default(), sure: true, blank: None };
    for (style, text) in &line.spans {
        for grapheme in text.graphemes(true) {
            breaker.add(*style, grapheme, line.wrap);
        }
    }
    breaker.rows.push(breaker.row);
    breaker.rows
}

struct Breaker {
    limit: usize,
    rows: Vec<Row>,
    row: Row,
    /// All terminals agree on the row's width.
    sure: bool,
    /// The row up to and with its last blank, and the bytes that follow it there.
    blank: Option<Row>,
}

impl Breaker {
    fn add(&mut self, style: Style, grapheme: &str, wrap: Wrap) {
        let (cells, sure) = cells(grapheme);
        if self.row.width + cells > self.limit {
            match wrap {
                Wrap::Words(_) if grapheme == " " => {
                    // The blank that would begin the next row is what parts the two.
                    self.end_row(false, wrap);
                    self.blank = None;
                    return;
                }
                Wrap::Words(_) => self.end_at_blank(wrap),
                Wrap::Edge => self.end_row(self.sure, wrap),
            }
        }
        push(&mut self.row.spans, style, grapheme);
        self.row.width += cells;
        self.sure &= sure;
        if grapheme == " " && matches!(wrap, Wrap::Words(_)) {
            self.blank = Some(self.row.clone());
        }
    }

    fn end_row(&mut self, soft: bool, wrap: Wrap) {
        let mut row = std::mem::take(&mut self.row);
        row.soft = soft;
        self.rows.push(row);
        self.sure = true;
        if let Wrap::Words(indent) = wrap {
            let indent = indent.min(self.limit / 2);
            self.row = Row::cut(Style::PLAIN, &" ".repeat(indent), self.limit);
        }
    }

    /// Ends the row at its last blank and takes what follows that over to the next; a word as long as a row is split.
    fn end_at_blank(&mut self, wrap: Wrap) {
        let Some(head) = self.blank.take().filter(|head| head.width * 3 >= self.limit) else {
            return self.end_row(false, wrap);
        };
        let whole = std::mem::replace(&mut self.row, head);
        let kept: usize = self.row.spans.iter().map(|(_, text)| text.len()).sum();
        self.end_row(false, wrap);
        let mut skip = kept;
        for (style, text) in &whole.spans {
            let from = skip.min(text.len());
            skip -= from;
            for grapheme in text[from..].graphemes(true) {
                push(&mut self.row.spans, *style, grapheme);
                let (cells, sure) = cells(grapheme);
                self.row.width += cells;
                self.sure &= sure;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &Line, limit: usize) -> Vec<String> {
        rows(line, limit)
            .iter()
            .map(|row| row.spans.iter().map(|(_, text)| text.as_str()).collect())
            .collect()
    }

    #[test]
    fn a_line_breaks_at_the_edge_or_at_blanks() {
        let line = Line::new(Style::PLAIN, "one two three");
        assert_eq!(texts(&line, 6), ["one tw", "o thre", "e"]);
        assert_eq!(texts(&line.clone().words(2), 8), ["one two ", "  three"]);
        assert_eq!(texts(&line.words(0), 7), ["one two", "three"]);
        assert_eq!(texts(&Line::default(), 7), [""]);
        assert_eq!(texts(&Line::new(Style::PLAIN, "abcdefgh").words(2), 5), ["abcde", "  fgh"]);
    }

    #[test]
    fn wide_characters_never_straddle_the_edge() {
        assert_eq!(texts(&Line::new(Style::PLAIN, "a漢字b"), 4), ["a漢", "字b"]);
        let family = "👩\u{200d}👩\u{200d}👧";
        assert_eq!(cells(family), (6, false));
        let broken = rows(&Line::new(Style::PLAIN, format!("ab{family}{family}")), 10);
        assert_eq!(broken.len(), 2);
        assert!(!broken[0].soft, "the terminal may count less, so the break is ours");
    }

    #[test]
    fn styles_are_written_only_where_they_change() {
        let mut line = Line::new(Style::PLAIN, "a");
        push(&mut line.spans, Style::RED, "b");
        push(&mut line.spans, Style::RED, "c");
        push(&mut line.spans, Style::PLAIN, "d");
        let mut out = String::new();
        rows(&line, 80)[0].write(true, &mut out);
        assert_eq!(out, "a\x1b[0;31mbc\x1b[0md");
        out.clear();
        rows(&line, 80)[0].write(false, &mut out);
        assert_eq!(out, "abcd");
    }
}
