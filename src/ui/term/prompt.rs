//! The area below the output: what waits, what is going on, the line being typed, what it may become.

use std::time::Duration;

use unicode_segmentation::UnicodeSegmentation;

use super::complete::Completion;
use super::editor::Editor;
use super::style::{Row, Style, cells, width};
use super::view::Area;

/// Candidates shown at once.
const MENU_ROWS: usize = 6;
/// Waiting inputs shown at once.
const QUEUE_ROWS: usize = 3;
/// Cells of `> `, which stands in front of the line.
const LEAD: usize = 2;

/// What is going on while a turn runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Status {
    /// What the turn does now.
    pub(super) doing: String,
    /// How long the turn has run.
    pub(super) elapsed: Duration,
    /// Tokens read and written in this turn so far.
    pub(super) tokens: (u64, u64),
    /// Sub-agents and background commands that are not done.
    pub(super) children: usize,
}

impl Status {
    /// As one row; what does not fit is left out from the end.
    fn row(&self, limit: usize) -> Row {
        let mut parts = vec![self.doing.clone(), duration(self.elapsed)];
        let (input, output) = self.tokens;
        if input + output > 0 {
            parts.push(format!("{} in, {} out", amount(input), amount(output)));
        }
        match self.children {
            0 => {}
            1 => parts.push("1 in the background".to_owned()),
            n => parts.push(format!("{n} in the background")),
        }
        parts.push("Ctrl+C interrupts".to_owned());
        let whole = |parts: &[String]| format!("· {}", parts.join(" · "));
        while parts.len() > 2 && width(&whole(&parts)) > limit {
            parts.pop();
        }
        // The time is what a person looks for: a long command is cut, not it.
        let spare =
            limit.saturating_sub(width(&whole(&["".to_owned()])) + width(&parts[1..].join(" · ")) + 3);
        if width(&parts[0]) > spare {
            let cut = Row::cut(Style::PLAIN, &parts[0], spare.saturating_sub(1));
            parts[0] = cut.spans.into_iter().map(|(_, text)| text).collect::<String>() + "…";
        }
        Row::cut(Style::GREY, &whole(&parts), limit)
    }
}

/// `12 s`, `3 m 05 s`, `1 h 02 m`.
pub(super) fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {:02} m", seconds / 3600, seconds / 60 % 60),
    }
}

/// `950`, `1.2k`, `34k`, `1.2M`.
pub(super) fn amount(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..10_000 => format!("{}.{}k", count / 1_000, count % 1_000 / 100),
        10_000..1_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// What the area is made of.
pub(super) struct Parts<'a> {
    /// The line being typed.
    pub(super) editor: &'a Editor,
    /// While a turn runs.
    pub(super) status: Option<Status>,
    /// Inputs that wait for the turn's end.
    pub(super) queue: &'a [String],
    /// A remark below the line.
    pub(super) hint: Option<&'a str>,
}

/// Lays the area out in `columns` and at most `limit` rows. The line being typed comes first when there is little room.
pub(super) fn area(parts: &Parts<'_>, columns: usize, limit: usize) -> Area {
    let most = columns - 1;
    let (input, cursor) = input_rows(parts.editor, most);
    let status: Vec<Row> = parts.status.iter().map(|status| status.row(most)).collect();
    let mut below: Vec<Row> = parts.hint.iter().map(|hint| Row::cut(Style::GREY, hint, most)).collect();
    if let Some((wanted, found)) = parts.editor.searching() {
        let state = if found || wanted.is_empty() { "" } else { ": not found" };
        below.insert(0, Row::cut(Style::CYAN, &format!("search '{wanted}'{state}"), most));
    }
    if let Some((completion, chosen)) = parts.editor.menu() {
        below.extend(menu_rows(completion, chosen, most));
    }
    let queue = queue_rows(parts.queue, most);

    let room = limit.saturating_sub(status.len()).max(1);
    let shown = input.len().min(room);
    let first =
        (cursor.0 + 1).saturating_sub(shown).max(if cursor.0 < shown { 0 } else { cursor.0 + 1 - shown });
    let room = room - shown;
    below.truncate(room);
    let queue_room = room - below.len();

    let mut rows: Vec<Row> = queue.into_iter().take(queue_room).collect();
    if limit > 1 {
        rows.extend(status);
    }
    let at = (rows.len() + cursor.0 - first, cursor.1);
    rows.extend(input.into_iter().skip(first).take(shown));
    rows.extend(below);
    Area { rows, cursor: at }
}

fn queue_rows(queue: &[String], most: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for text in queue.iter().take(QUEUE_ROWS) {
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        rows.push(Row::cut(Style::GREY, &format!("waits: {}", first.replace('\t', " ")), most));
    }
    if queue.len() > QUEUE_ROWS {
        rows.push(Row::cut(Style::GREY, &format!("… and {} more", queue.len() - QUEUE_ROWS), most));
    }
    rows
}

/// The line being typed as rows of at most `most` cells, and the cursor in them.
fn input_rows(editor: &Editor, most: usize) -> (Vec<Row>, (usize, usize)) {
    let mut rows = vec![Row::cut(Style::GREEN, "> ", most)];
    let mut cursor = (0, LEAD);
    let mut at = 0;
    let indent = || Row::cut(Style::PLAIN, "  ", most);
    for grapheme in editor.text().graphemes(true) {
        let mut chars = grapheme.chars();
        let first = chars.next().unwrap_or_default();
        let (style, text) = match (first, editor.label(first)) {
            (_, Some(label)) => (Style::CYAN, label),
            ('\t', _) => (Style::PLAIN, "    ".to_owned()),
            _ => (Style::PLAIN, grapheme.to_owned()),
        };
        let here = (rows.len() - 1, rows.last().map_or(0, |row| row.width));
        if grapheme == "\n" {
            if at == editor.cursor() {
                cursor = here;
            }
            rows.push(indent());
        } else {
            let cells = if text.len() == grapheme.len() { cells(&text).0 } else { width(&text) };
            if here.1 + cells > most.max(LEAD + 2) && here.1 > LEAD {
                rows.push(indent());
            }
            let here = (rows.len() - 1, rows.last().map_or(0, |row| row.width));
            if at == editor.cursor() {
                cursor = here;
            }
            if let Some(row) = rows.last_mut() {
                let cut = Row::cut(style, &text, most - row.width.min(most));
                row.width += cut.width;
                row.spans.extend(cut.spans);
            }
        }
        at += grapheme.len();
    }
    if at <= editor.cursor() {
        cursor = (rows.len() - 1, rows.last().map_or(LEAD, |row| row.width));
    }
    (rows, (cursor.0, cursor.1.min(most)))
}

fn menu_rows(completion: &Completion, chosen: Option<usize>, most: usize) -> Vec<Row> {
    let all = &completion.candidates;
    let first = chosen.map_or(0, |at| (at + 1).saturating_sub(MENU_ROWS));
    let shown = &all[first..all.len().min(first + MENU_ROWS)];
    let widest = shown.iter().map(|candidate| width(&candidate.text)).max().unwrap_or(0);
    let mut rows = Vec::new();
    for (at, candidate) in shown.iter().enumerate() {
        let style = if chosen == Some(first + at) { Style::CYAN.bold() } else { Style::CYAN };
        let mut row = Row::cut(style, &format!("  {}", candidate.text), most);
        if !candidate.about.is_empty() {
            let gap = " ".repeat(widest - width(&candidate.text) + 2);
            let about = Row::cut(Style::GREY, &format!("{gap}{}", candidate.about), most - row.width);
            row.width += about.width;
            row.spans.extend(about.spans);
        }
        rows.push(row);
    }
    let left = all.len() - first - shown.len();
    if left > 0 {
        rows.push(Row::cut(Style::GREY, &format!("  … {left} more"), most));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_keeps_the_time_in_twenty_columns() {
        let status = Status {
            doing: "Bash(cargo test --workspace)".into(),
            elapsed: Duration::from_secs(75),
            tokens: (12_345, 950),
            children: 2,
        };
        let text = |limit| status.row(limit).spans.into_iter().map(|(_, text)| text).collect::<String>();
        assert_eq!(
            text(100),
            "· Bash(cargo test --workspace) · 1 m 15 s · 12k in, 950 out · 2 in the background · Ctrl+C interrupts"
                .chars().take(text(100).chars().count()).collect::<String>()
        );
        assert_eq!(text(20), "· Bash(c… · 1 m 15 s");
    }
}
