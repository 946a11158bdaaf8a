//! Markdown → styled lines (CONTRACT §14), a line at a time, as it streams. Marks stay where they are, only quieter: so
//! a line takes the same cells before and after its marks are closed, nothing that was shown ever moves, and what is
//! copied is what the model wrote. Tables are the exception: while each row of one fits into one row of the screen,
//! raw and aligned, its columns are lined up, anew with every row.

use super::code;
use super::scribe::untab;
use super::style::{Line, Style, push, width};

/// Bytes of a line that is looked through for marks; what is longer is shown as it is.
const MOST: usize = 3072;
/// Rows of a table that are aligned.
const MOST_ROWS: usize = 100;
/// Emphasis in emphasis.
const MOST_DEEP: usize = 4;

/// A code block that is open.
struct Fence {
    mark: u8,
    count: usize,
    language: String,
}

/// What the lines before mean to the next one.
#[derive(Default)]
pub(super) struct Markdown {
    /// Off: lines are shown as they are.
    on: bool,
    fence: Option<Fence>,
    /// Rows of a table whose widths may still grow.
    table: Vec<String>,
    /// The table is too wide or too long to be aligned.
    loose: bool,
}

impl Markdown {
    /// Nothing was written yet; `on`: marks are looked for at all.
    pub(super) fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// A whole line: appends what is settled by it. `columns`: the terminal's width.
    pub(super) fn line(&mut self, line: &str, columns: usize, done: &mut Vec<Line>) {
        if self.on && self.fence.is_none() && is_row(line) {
            if !self.loose {
                self.table.push(line.to_owned());
                let no_table = self.table.len() == 2 && !is_delimiter(line);
                if no_table || self.table.len() > MOST_ROWS || aligned(&self.table, columns).is_none() {
                    self.settle(columns, done);
                    self.loose = true;
                }
                return;
            }
        } else {
            self.settle(columns, done);
        }
        done.push(self.styled(line));
        self.step(line);
    }

    /// What may still change, with the unfinished line at its end.
    pub(super) fn open(&self, line: &str, columns: usize) -> Vec<Line> {
        let mut open = self.rows(columns);
        if !line.is_empty() {
            open.push(self.styled(line));
        }
        open
    }

    /// Ends a table: its rows will not change any more.
    pub(super) fn settle(&mut self, columns: usize, done: &mut Vec<Line>) {
        done.append(&mut self.rows(columns));
        self.table.clear();
        self.loose = false;
    }

    /// The answer ended: an open code block is none of the next one's.
    pub(super) fn end(&mut self) {
        self.fence = None;
    }

    fn rows(&self, columns: usize) -> Vec<Line> {
        // A first row alone may be no table.
        let is_table = self.table.get(1).is_some_and(|row| is_delimiter(row));
        match aligned(&self.table, columns).filter(|_| is_table) {
            Some(lines) => lines,
            None => self.table.iter().map(|row| self.styled(row)).collect(),
        }
    }

    /// Code blocks begin and end with lines of their own.
    fn step(&mut self, line: &str) {
        if !self.on {
            return;
        }
        match (&self.fence, fence(line)) {
            (None, Some(fence)) => self.fence = Some(fence),
            (Some(open), Some(close)) if closes(open, &close) => self.fence = None,
            _ => {}
        }
    }

    fn styled(&self, line: &str) -> Line {
        let line = untab(line);
        if !self.on || line.len() > MOST {
            return Line::new(Style::PLAIN, line).words(0);
        }
        let mark = fence(&line);
        match (&self.fence, mark) {
            (Some(open), Some(close)) if closes(open, &close) => Line::new(Style::GREY, line),
            (Some(open), _) => code::line(&open.language, &line),
            (None, Some(_)) => Line::new(Style::GREY, line),
            (None, None) => text(&line),
        }
    }
}

/// The beginning or end of a code block.
fn fence(line: &str) -> Option<Fence> {
    let line = line.trim();
    let mark = *line.as_bytes().first().filter(|byte| matches!(byte, b'`' | b'~'))?;
    let count = line.bytes().take_while(|byte| *byte == mark).count();
    let info = &line[count..];
    if count < 3 || info.contains('`') {
        return None;
    }
    let language = info.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    Some(Fence { mark, count, language })
}

fn closes(open: &Fence, close: &Fence) -> bool {
    close.mark == open.mark && close.count >= open.count && close.language.is_empty()
}

/// A line outside of code blocks and tables.
fn text(line: &str) -> Line {
    let body = line.trim_start_matches(' ');
    let lead = line.len() - body.len();
    let (mark, style, base) = if let Some(count) = heading(body) {
        (count, Style::GREY, Style::PLAIN.bold())
    } else if let Some(count) = bullet(body) {
        (count, Style::CYAN, Style::PLAIN)
    } else if body.starts_with('>') {
        let count = body.len() - body.trim_start_matches(['>', ' ']).len();
        (count, Style::GREY, Style { italic: true, ..Style::PLAIN })
    } else if is_rule(body) {
        (body.len(), Style::GREY, Style::PLAIN)
    } else {
        (0, Style::PLAIN, Style::PLAIN)
    };
    let mut spans = Vec::new();
    push(&mut spans, Style::PLAIN, &line[..lead]);
    push(&mut spans, style, &body[..mark]);
    inline(&body[mark..], base, 0, &mut spans);
    let indent = if mark > 0 && mark < body.len() && heading(body).is_none() { lead + mark } else { 0 };
    Line { spans, ..Line::default() }.words(indent)
}

fn heading(line: &str) -> Option<usize> {
    let count = line.bytes().take_while(|byte| *byte == b'#').count();
    ((1..=6).contains(&count) && line[count..].starts_with(' ')).then_some(count + 1)
}

/// Bytes of a list item's mark and the blank behind it.
fn bullet(line: &str) -> Option<usize> {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let marks: &[char] = if digits == 0 { &['-', '*', '+'] } else { &['.', ')'] };
    (digits < 10
        && line[digits..].starts_with(marks)
        && line[digits + 1..].starts_with(' ')
        && !is_rule(line))
    .then_some(digits + 2)
}

fn is_rule(line: &str) -> bool {
    let mut marks = line.chars().filter(|c| *c != ' ');
    let Some(first @ ('-' | '*' | '_')) = marks.next() else { return false };
    let mut count = 1;
    marks.all(|c| {
        count += 1;
        c == first
    }) && count >= 3
}

/// Emphasis, code and links in a piece of a line.
fn inline(text: &str, style: Style, depth: usize, spans: &mut Vec<(Style, String)>) {
    let mut at = 0;
    let mut plain = 0;
    while at < text.len() {
        let rest = &text[at..];
        let before = text[..at].chars().next_back();
        let Some(mark) = Mark::at(rest, before).filter(|_| depth < MOST_DEEP) else {
            at += skip(rest);
            continue;
        };
        push(spans, style, &text[plain..at]);
        match mark {
            Mark::Code { mark, whole } => {
                push(spans, Style::GREY, &rest[..mark]);
                push(spans, Style { fg: Style::CYAN.fg, ..style }, &rest[mark..whole - mark]);
                push(spans, Style::GREY, &rest[whole - mark..whole]);
                at += whole;
            }
            Mark::Strong { mark, whole } => {
                let inner = match (&rest[..mark], mark) {
                    ("~~", _) => Style { strike: true, ..style },
                    (_, 1) => Style { italic: true, ..style },
                    (_, 2) => style.bold(),
                    _ => Style { italic: true, ..style.bold() },
                };
                push(spans, Style::GREY, &rest[..mark]);
                inline(&rest[mark..whole - mark], inner, depth + 1, spans);
                push(spans, Style::GREY, &rest[whole - mark..whole]);
                at += whole;
            }
            Mark::Link { label, whole } => {
                push(spans, Style::GREY, "[");
                inline(&rest[1..=label], Style { underline: true, ..style }, depth + 1, spans);
                push(spans, Style::GREY, &rest[label + 1..whole]);
                at += whole;
            }
        }
        plain = at;
    }
    push(spans, style, &text[plain..]);
}

/// Bytes that begin no mark: a character, an escaped one, or a run of marks that nothing closes.
fn skip(rest: &str) -> usize {
    let mut chars = rest.chars();
    let Some(first) = chars.next() else { return 0 };
    match first {
        '\\' => 1 + chars.next().filter(char::is_ascii_punctuation).map_or(0, char::len_utf8),
        '`' | '*' | '_' | '~' => rest.len() - rest.trim_start_matches(first).len(),
        other => other.len_utf8(),
    }
}

/// Something that is marked: bytes of its mark, and of the whole with both marks.
enum Mark {
    Code { mark: usize, whole: usize },
    Strong { mark: usize, whole: usize },
    Link { label: usize, whole: usize },
}

impl Mark {
    /// What begins here, if it is closed in this line.
    fn at(rest: &str, before: Option<char>) -> Option<Self> {
        let first = rest.chars().next()?;
        match first {
            '`' => {
                let mark = run(rest, '`');
                Some(Self::Code { mark, whole: code_end(rest, mark)? })
            }
            '*' | '_' | '~' => {
                let mark = run(rest, first);
                let fits = if first == '~' { mark == 2 } else { mark <= 3 };
                // 2*3*4 and snake_case_names are no emphasis.
                let in_word = before.is_some_and(char::is_alphanumeric) && (first != '*' || mark == 1);
                let opens = rest[mark..].chars().next().is_some_and(|c| !c.is_whitespace());
                if !fits || in_word || !opens {
                    return None;
                }
                Some(Self::Strong { mark, whole: strong_end(rest, first, mark)? })
            }
            '[' => link(rest),
            _ => None,
        }
    }
}

fn run(text: &str, mark: char) -> usize {
    text.len() - text.trim_start_matches(mark).len()
}

/// The end of the code that begins here with `mark` backticks.
fn code_end(rest: &str, mark: usize) -> Option<usize> {
    let mut at = mark;
    loop {
        at += rest[at..].find('`')?;
        let count = run(&rest[at..], '`');
        at += count;
        if count == mark {
            return Some(at);
        }
    }
}

/// The end of the emphasis that begins here; marks in code do not close it.
fn strong_end(rest: &str, sign: char, mark: usize) -> Option<usize> {
    let mut at = mark;
    let mut before = ' ';
    while at < rest.len() {
        let here = &rest[at..];
        let first = here.chars().next()?;
        let mut step = skip(here);
        if first == '`' {
            step = code_end(here, step).unwrap_or(step);
        } else if first == sign && step == mark && !before.is_whitespace() {
            let in_word = here[step..].chars().next().is_some_and(char::is_alphanumeric);
            if !in_word || (sign == '*' && mark > 1) {
                return Some(at + step);
            }
        }
        at += step;
        before = rest[..at].chars().next_back().unwrap_or(' ');
    }
    None
}

/// `[label](address)`.
fn link(rest: &str) -> Option<Mark> {
    let close = rest.find("](")?;
    let label = &rest[1..close];
    let address = &rest[close + 2..];
    let end = address.find(')')?;
    if label.is_empty() || label.contains(['[', ']']) || address[..end].contains(char::is_whitespace) {
        return None;
    }
    Some(Mark::Link { label: close - 1, whole: close + 2 + end + 1 })
}

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

fn is_delimiter(line: &str) -> bool {
    let cells = cells(line);
    !cells.is_empty()
        && cells.iter().all(|cell| {
            let dashes = cell.strip_prefix(':').unwrap_or(cell);
            let dashes = dashes.strip_suffix(':').unwrap_or(dashes);
            !dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-')
        })
}

/// The cells of a table's row, without the blanks around them.
fn cells(row: &str) -> Vec<&str> {
    let row = row.trim();
    let row = row.strip_prefix('|').unwrap_or(row);
    let mut cells = Vec::new();
    let mut from = 0;
    let mut at = 0;
    while at < row.len() {
        let here = &row[at..];
        let mut step = skip(here);
        if here.starts_with('`') {
            step = code_end(here, step).unwrap_or(step);
        } else if here.starts_with('|') {
            cells.push(row[from..at].trim());
            from = at + 1;
        }
        at += step;
    }
    if !row[from..].trim().is_empty() {
        cells.push(row[from..].trim());
    }
    cells
}

/// The rows with their columns lined up; none where a row would take more than one row of the screen.
fn aligned(table: &[String], columns: usize) -> Option<Vec<Line>> {
    let rows: Vec<Vec<&str>> = table.iter().map(|row| cells(row)).collect();
    let count = rows.iter().map(Vec::len).max()?;
    let mut widths = vec![1; count];
    for (at, row) in rows.iter().enumerate().filter(|(at, _)| *at != 1) {
        if width(&table[at]) > columns || table[at].contains('\t') {
            return None;
        }
        for (cell, most) in row.iter().zip(&mut widths) {
            *most = (*most).max(width(cell));
        }
    }
    if table.get(1).is_some_and(|row| width(row) > columns)
        || widths.iter().sum::<usize>() + 3 * count + 1 > columns
    {
        return None;
    }
    let sides: Vec<(bool, bool)> = rows.get(1).map_or_else(Vec::new, |row| {
        row.iter().map(|cell| (cell.starts_with(':'), cell.ends_with(':'))).collect()
    });
    let line = |(at, row): (usize, &Vec<&str>)| {
        let mut spans = Vec::new();
        for (column, most) in widths.iter().enumerate() {
            let bar = if column == 0 { "| " } else { " | " };
            push(&mut spans, Style::GREY, bar);
            if at == 1 {
                push(&mut spans, Style::GREY, &"-".repeat(*most));
                continue;
            }
            let cell = row.get(column).copied().unwrap_or_default();
            let gap = most.saturating_sub(width(cell));
            let left = match sides.get(column) {
                Some((false, true)) => gap,
                Some((true, true)) => gap / 2,
                _ => 0,
            };
            let style = if at == 0 { Style::PLAIN.bold() } else { Style::PLAIN };
            push(&mut spans, Style::PLAIN, &" ".repeat(left));
            inline(cell, style, 0, &mut spans);
            push(&mut spans, Style::PLAIN, &" ".repeat(gap - left));
        }
        push(&mut spans, Style::GREY, " |");
        Line { spans, ..Line::default() }
    };
    Some(rows.iter().enumerate().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(texts: &[&str], columns: usize) -> Vec<Line> {
        let mut markdown = Markdown::new(true);
        let mut done = Vec::new();
        for text in texts {
            markdown.line(text, columns, &mut done);
        }
        markdown.settle(columns, &mut done);
        done
    }

    fn shown(line: &Line) -> String {
        line.spans.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Each piece that is not plain, with letters for its looks.
    fn marks(text: &str) -> String {
        let lines = all(&[text], 80);
        assert_eq!(shown(&lines[0]), text, "nothing is added or left out");
        let mut out = String::new();
        for (style, text) in &lines[0].spans {
            let mut look = match style.fg {
                90 => ".".to_owned(),
                36 => "c".to_owned(),
                _ => String::new(),
            };
            for (on, letter) in
                [(style.bold, 'b'), (style.italic, 'i'), (style.underline, 'u'), (style.strike, 's')]
            {
                if on {
                    look.push(letter);
                }
            }
            out.push_str(&if look.is_empty() { text.clone() } else { format!("<{look}:{text}>") });
        }
        out
    }

    #[test]
    fn marks_within_a_line_are_told_from_signs() {
        for (text, expected) in [
            ("a **b** c", "a <.:**><b:b><.:**> c"),
            (
                "*a* _b_ ***c*** ~~d~~",
                "<.:*><i:a><.:*> <.:_><i:b><.:_> <.:***><bi:c><.:***> <.:~~><s:d><.:~~>",
            ),
            ("**a `b**` c**", "<.:**><b:a ><.:`><cb:b**><.:`><b: c><.:**>"),
            ("``a`b`` c", "<.:``><c:a`b><.:``> c"),
            ("**a *b* c**", "<.:**><b:a ><.:*><bi:b><.:*><b: c><.:**>"),
            ("漢**字**漢", "漢<.:**><b:字><.:**>漢"),
            ("[a](http://b/c) d", "<.:[><u:a><.:](http://b/c)> d"),
            ("2*3*4 and a_b_c and 2 * 3 * 4", "2*3*4 and a_b_c and 2 * 3 * 4"),
            ("**open and `open and [open](", "**open and `open and [open]("),
            ("\\*a\\* \\`b\\` a\\", "\\*a\\* \\`b\\` a\\"),
            ("* * a [x] [](y) **** ** a", "<c:* >* a [x] [](y) **** ** a"),
        ] {
            assert_eq!(marks(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_have_their_kinds_by_how_they_begin() {
        for (text, expected) in [
            ("## A `b`", "<.:## ><b:A ><.:`><cb:b><.:`>"),
            ("#no", "#no"),
            ("####### no", "####### no"),
            ("- a", "<c:- >a"),
            ("  12. a", "  <c:12. >a"),
            ("-1 is a number, 1.5 too", "-1 is a number, 1.5 too"),
            ("> a", "<.:> ><i:a>"),
            ("* * *", "<.:* * *>"),
            ("---", "<.:--->"),
            ("", ""),
        ] {
            assert_eq!(marks(text), expected, "{text}");
        }
        assert_eq!(all(&["  - a"], 80)[0].wrap, super::super::style::Wrap::Words(4));
    }

    #[test]
    fn code_blocks_end_where_they_say() {
        let lines = all(&["```text", "**a** # b", "~~~", "```x", "| a |", "````", "**b**"], 80);
        let looks: Vec<_> = lines.iter().map(|line| line.spans.first().map(|(style, _)| style.fg)).collect();
        assert_eq!(looks[0], Some(90));
        for line in &lines[1..5] {
            assert_eq!(line.spans.len(), 1, "{line:?}");
            assert_eq!(line.spans[0].0, Style::PLAIN);
        }
        assert_eq!(looks[5], Some(90));
        assert!(lines[6].spans.iter().any(|(style, _)| style.bold));
    }

    #[test]
    fn tables_are_lined_up_where_they_fit_and_left_alone_elsewhere() {
        let table = ["| a | bb |", "|:--|---:|", "| **long** | 漢 |", "| x \\| `|` | 1 | 2 |", "end"];
        let texts = |columns| all(&table, columns).iter().map(shown).collect::<Vec<_>>();
        assert_eq!(
            texts(40),
            [
                "| a        | bb |   |",
                "| -------- | -- | - |",
                "| **long** | 漢 |   |",
                "| x \\| `|` |  1 | 2 |",
                "end",
            ]
        );
        assert_eq!(texts(15), table, "too narrow");
        assert_eq!(
            all(&["| a", "| b |", "c"], 40).iter().map(shown).collect::<Vec<_>>(),
            ["| a", "| b |", "c"]
        );
    }

    #[test]
    fn a_table_is_shown_while_it_grows() {
        let mut markdown = Markdown::new(true);
        let mut done = Vec::new();
        let texts = |lines: Vec<Line>| lines.iter().map(shown).collect::<Vec<_>>();
        markdown.line("| a | b |", 40, &mut done);
        assert_eq!(texts(markdown.open("|-", 40)), ["| a | b |", "|-"]);
        markdown.line("|-|-|", 40, &mut done);
        markdown.line("| long | c |", 40, &mut done);
        assert_eq!(texts(markdown.open("", 40)), ["| a    | b |", "| ---- | - |", "| long | c |"]);
        assert!(done.is_empty());
        markdown.line(&format!("| {} |", "x".repeat(50)), 40, &mut done);
        assert_eq!(done.len(), 4, "too wide: all of it is settled");
        assert_eq!(shown(&done[0]), "| a | b |");
        markdown.line("| d | e |", 40, &mut done);
        assert_eq!(done.len(), 5);
    }

    #[test]
    fn however_it_streams_the_screen_is_the_same_in_the_end() {
        use crate::ui::term::style::Row;
        use crate::ui::term::view::{Area, View};
        let words: Vec<String> = (100..150).map(|n| format!("w{n}")).collect();
        let rows: String = (100..120).map(|n| format!("| r{n} | x |\n")).collect();
        let long = words.join(" ");
        let text = format!(
            "- **`{long}`**\n~~a~~ [b](c)\n\n| a | b |\n|---|---|\n{rows}| wider | 1 |\n\n```rust\nlet a = \"{long}\";\n```\n\
             | a | b |\n|---|---|\n| c | d |\n| {long} | e |\n| f | g |\n"
        );
        let screens = [1, 7, 90, text.len()].map(|size| {
            let mut view = View::new((20, 10), true);
            let mut terminal = vt100::Parser::new(10.try_into().unwrap(), 20.try_into().unwrap(), 1000);
            let mut markdown = Markdown::new(true);
            let mut line = String::new();
            for piece in text.as_bytes().chunks(size) {
                let mut done = Vec::new();
                for part in std::str::from_utf8(piece).unwrap().split_inclusive('\n') {
                    line.push_str(part);
                    if let Some(whole) = line.strip_suffix('\n') {
                        markdown.line(whole, 20, &mut done);
                        line.clear();
                    }
                }
                let mut out = String::new();
                let area = Area { rows: vec![Row::cut(Style::PLAIN, ">", 19)], cursor: (0, 1) };
                view.frame(done, markdown.open(&line, 20), area, &mut out);
                terminal.process(out.as_bytes());
            }
            // All of it, what has scrolled away too.
            let mut all = String::new();
            let screen = terminal.screen_mut();
            screen.set_scrollback(1000);
            for back in (0..=screen.scrollback()).rev() {
                screen.set_scrollback(back);
                let rows: Vec<String> = screen.rows(0, 20).collect();
                // A table's first rows had no reason to be wider when they left the screen.
                let joined = if back == 0 { rows.join("\n") } else { rows[0].clone() };
                all.extend(joined.chars().filter(|c| !matches!(c, ' ' | '-')));
                all.push('\n');
            }
            all
        });
        for screen in &screens {
            assert_eq!(*screen, screens[3]);
            for word in words.iter().cloned().chain((100..120).map(|n| format!("r{n}"))) {
                assert!(screen.contains(&word), "{word} is nowhere");
            }
        }
    }

    #[test]
    fn switched_off_nothing_is_looked_for() {
        let mut markdown = Markdown::new(false);
        let mut done = Vec::new();
        for line in ["# a", "```", "| a |", "|---|"] {
            markdown.line(line, 80, &mut done);
        }
        let expected = ["# a", "```", "| a |", "|---|"].map(|text| Line::new(Style::PLAIN, text).words(0));
        assert_eq!(done, expected);
    }

    #[test]
    fn no_text_is_lost_whatever_marks_it_holds() {
        let signs = ["*", "**", "`", "_", "~~", "[", "](", ")", " ", "a", "漢", "\\", "#", "-", ">", "1."];
        let mut seed = 7_usize;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(signs[(seed >> 33) % signs.len()]);
            }
            assert_eq!(shown(&all(&[&text], 80)[0]), text);
        }
    }
}
