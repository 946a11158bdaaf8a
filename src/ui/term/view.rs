//! What stands on the screen: the output, of which the last lines may still change, and below it the area of the line
//! being typed. Each frame moves the cursor up to the first row that changed, clears from there, and writes the rest:
//! so output appears above the line being typed, and neither ever mangles the other. Only relative moves are used; what
//! has scrolled away is never touched.

use std::fmt::Write as _;

use super::style::{Line, Row, rows};

/// Begins a frame: shown as one where the terminal can, the cursor hidden meanwhile.
const BEGIN: &str = "\x1b[?2026h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?2026l";
/// Clears the cursor's row and all below it. Not in one go from the row's start: where that is the screen's first cell, tmux puts
/// what it clears into the scrollback, and the line being typed would stand there once more.
const CLEAR: &str = "\r\x1b[K\x1b[C\x1b[J\r";

/// The rows below the output, and the cursor in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Area {
    /// None wider than the terminal less one cell.
    pub(super) rows: Vec<Row>,
    /// Row and column of the cursor.
    pub(super) cursor: (usize, usize),
}

/// The screen as we left it.
pub(super) struct View {
    width: usize,
    height: usize,
    color: bool,
    /// Rows that may still change, as they stand on the screen.
    open: Vec<Row>,
    /// The end of a line that goes on (`Line::more`): the row it has reached.
    carry: Option<Line>,
    /// Empty: nothing is drawn below the output.
    area: Area,
}

impl View {
    /// A view on a terminal of this size, the cursor at the beginning of a line.
    pub(super) fn new((width, height): (usize, usize), color: bool) -> Self {
        Self {
            width: width.max(4),
            height: height.max(2),
            color,
            open: Vec::new(),
            carry: None,
            area: Area::default(),
        }
    }

    /// Columns.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Rows that the area may have: one is left to the output.
    pub(super) fn area_limit(&self) -> usize {
        self.height.saturating_sub(1).max(1)
    }

    /// Draws: `done` and then `open` take the place of what was open before; `done` will not change any more.
    pub(super) fn frame(&mut self, done: Vec<Line>, open: Vec<Line>, area: Area, out: &mut String) {
        let (rows, settled) = self.lay_out(done, open);
        let same = self.open.iter().zip(&rows).take_while(|(old, new)| old == new).count();
        if same == self.open.len() && same == rows.len() && area == self.area {
            self.open.drain(..settled);
            return;
        }
        // What has scrolled off cannot be changed any more.
        let visible = self.height.saturating_sub(self.area.rows.len());
        let first = same.max(self.open.len().saturating_sub(visible)).min(rows.len());
        out.push_str(BEGIN);
        self.move_up(self.open.len().saturating_sub(first) + self.area.cursor.0, out);
        out.push_str(CLEAR);
        for row in &rows[first..] {
            row.write(self.color, out);
            if !row.soft {
                out.push_str("\r\n");
            }
        }
        self.draw_area(area, out);
        out.push_str(END);
        self.open = rows;
        self.open.drain(..settled);
    }

    /// The rows of it all, and how many of them are settled.
    fn lay_out(&mut self, done: Vec<Line>, open: Vec<Line>) -> (Vec<Row>, usize) {
        let mut all = Vec::new();
        let mut line = self.carry.take();
        let join = |line: &mut Option<Line>, next: Line| match line {
            Some(line) => {
                line.spans.extend(next.spans);
                line.more = next.more;
            }
            None => *line = Some(next),
        };
        for next in done {
            join(&mut line, next);
            if let Some(whole) = line.take_if(|line| !line.more) {
                all.extend(rows(&whole, self.width));
            }
        }
        let mut settled = all.len();
        if let Some(part) = &line {
            // Its last row stays open: what comes next goes on there.
            let part_rows = rows(part, self.width);
            let last = part_rows.len() - 1;
            settled += last;
            let mut carry = Line { spans: part_rows[last].spans.clone(), ..part.clone() };
            if last > 0 {
                all.extend_from_slice(&part_rows[..last]);
                line = Some(carry.clone());
            }
            carry.more = true;
            self.carry = Some(carry);
        }
        for next in open {
            join(&mut line, next);
            if let Some(whole) = line.take() {
                all.extend(rows(&whole, self.width));
            }
        }
        if let Some(whole) = line {
            all.extend(rows(&whole, self.width));
        }
        (all, settled)
    }

    fn draw_area(&mut self, area: Area, out: &mut String) {
        for (at, row) in area.rows.iter().enumerate() {
            if at > 0 {
                out.push_str("\r\n");
            }
            row.write(self.color, out);
        }
        let (row, column) = area.cursor;
        self.move_up(area.rows.len().saturating_sub(row + 1), out);
        out.push('\r');
        if column > 0 {
            let _ = write!(out, "\x1b[{column}C");
        }
        self.area = area;
    }

    fn move_up(&self, count: usize, out: &mut String) {
        if count > 0 {
            let _ = write!(out, "\x1b[{}A", count.min(self.height));
        }
    }

    /// The terminal has another size. Terminals break the rows that no longer fit again, so ours are counted at the new
    /// width; all that we may still change is cleared, to be drawn by the next frame.
    pub(super) fn resize(&mut self, (width, height): (usize, usize), out: &mut String) {
        let (width, height) = (width.max(4), height.max(2));
        let lines_of = |cells: usize| cells.div_ceil(width).max(1);
        let mut above = 0;
        let mut cells = 0;
        for row in &self.open {
            cells += row.width;
            if !row.soft {
                above += lines_of(cells);
                cells = 0;
            }
        }
        above += self.area.rows[..self.area.cursor.0].iter().map(|row| lines_of(row.width)).sum::<usize>();
        above += self.area.cursor.1 / width;
        self.width = width;
        self.height = height;
        self.move_up(above.min(height - 1), out);
        out.push_str(CLEAR);
        self.open.clear();
        self.area = Area::default();
    }

    /// Clears the screen; the next frame begins at its top.
    pub(super) fn clear(&mut self, out: &mut String) {
        out.push_str("\x1b[H\x1b[2J");
        self.forget();
    }

    /// Takes the area off the screen, so that others can write below the output.
    pub(super) fn hide(&mut self, out: &mut String) {
        self.move_up(self.area.cursor.0, out);
        out.push_str(CLEAR);
        self.forget();
    }

    /// Others have written meanwhile: the cursor stands at the beginning of a line, nothing above it is ours.
    fn forget(&mut self) {
        self.open.clear();
        self.area = Area::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::term::style::Style;

    struct Screen {
        view: View,
        terminal: vt100::Parser,
    }

    impl Screen {
        fn new(width: u16, height: u16) -> Self {
            Self {
                view: View::new((width.into(), height.into()), true),
                terminal: vt100::Parser::new(height.try_into().unwrap(), width.try_into().unwrap(), 100),
            }
        }

        fn frame(&mut self, done: &[&str], open: &[&str], typed: &str) {
            let lines = |texts: &[&str]| texts.iter().map(|t| Line::new(Style::PLAIN, *t)).collect();
            let row = Row::cut(Style::PLAIN, &format!("> {typed}"), self.view.width() - 1);
            let column = row.width;
            let mut out = String::new();
            let area = Area { rows: vec![row], cursor: (0, column) };
            self.view.frame(lines(done), lines(open), area, &mut out);
            self.terminal.process(out.as_bytes());
        }

        #[track_caller]
        fn shows(&self, expected: &[&str]) {
            let screen = self.terminal.screen();
            let mut shown: Vec<_> =
                screen.rows(0, screen.size().1.into()).map(|row| row.trim_end().to_owned()).collect();
            shown.truncate(usize::from(screen.cursor_position().0) + 1);
            assert_eq!(shown, expected);
            let (row, column) = self.terminal.screen().cursor_position();
            let last = expected.last().map_or(0, |line| crate::ui::term::style::width(line));
            assert_eq!((usize::from(row), usize::from(column)), (expected.len() - 1, last));
        }
    }

    #[test]
    fn an_unfinished_line_grows_above_what_is_typed() {
        let mut screen = Screen::new(10, 6);
        screen.frame(&[], &["Hel"], "a");
        screen.shows(&["Hel", "> a"]);
        screen.frame(&[], &["Hello, wor"], "ab");
        screen.shows(&["Hello, wor", "> ab"]);
        screen.frame(&[], &["Hello, world"], "ab");
        screen.shows(&["Hello, wor", "ld", "> ab"]);
        screen.frame(&["Hello, world!", "next"], &[], "ab");
        screen.shows(&["Hello, wor", "ld!", "next", "> ab"]);
        screen.frame(&[], &["漢字漢字漢字"], "abc");
        screen.shows(&["Hello, wor", "ld!", "next", "漢字漢字漢", "字", "> abc"]);
    }

    #[test]
    fn lines_that_scroll_away_are_left_alone() {
        let mut screen = Screen::new(8, 4);
        screen.frame(&["1", "2", "3", "4"], &["5"], "x");
        screen.shows(&["3", "4", "5", "> x"]);
        screen.frame(&[], &["5", "6", "7", "8", "9"], "x");
        screen.shows(&["7", "8", "9", "> x"]);
        screen.frame(&["five", "6", "7", "8", "nine"], &[], "x");
        screen.shows(&["7", "8", "nine", "> x"]);
    }

    #[test]
    fn a_line_that_goes_on_is_settled_piece_by_piece() {
        let mut screen = Screen::new(6, 8);
        let part = |text: &str| Line { more: true, ..Line::new(Style::PLAIN, text) };
        let area = || Area { rows: vec![Row::cut(Style::PLAIN, ">", 5)], cursor: (0, 1) };
        let mut out = String::new();
        screen.view.frame(vec![part("abcdefgh")], vec![Line::new(Style::PLAIN, "ij")], area(), &mut out);
        screen.view.frame(vec![part("ijkl"), part("mn")], vec![], area(), &mut out);
        screen.view.frame(vec![Line::new(Style::PLAIN, "o")], vec![], area(), &mut out);
        screen.terminal.process(out.as_bytes());
        screen.shows(&["abcdef", "ghijkl", "mno", ">"]);
    }
}
