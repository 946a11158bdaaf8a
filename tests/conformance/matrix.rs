//! What came out: cases × runtimes, as a table that a person can read.

use std::collections::BTreeMap;
use std::fmt::Write;

/// One case with one runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// It passed.
    Passed,
    /// It did not.
    Failed,
    /// The runtime was said to lack the case's part (`WITHOUT=…`).
    Lacks,
}

impl Cell {
    fn word(cell: Option<&Self>) -> &'static str {
        match cell {
            Some(Self::Passed) => "ok",
            Some(Self::Failed) => "FAIL",
            Some(Self::Lacks) => "lacks",
            None => "-",
        }
    }
}

/// Case (`area::name`) → runtime → what came out.
#[derive(Debug, Default)]
pub(crate) struct Matrix(BTreeMap<String, BTreeMap<String, Cell>>);

impl Matrix {
    /// Notes one cell.
    pub(crate) fn set(&mut self, case: &str, runtime: &str, cell: Cell) {
        self.0.entry(case.to_owned()).or_default().insert(runtime.to_owned(), cell);
    }

    /// The cases that ran with any runtime: a filter leaves out others.
    fn rows(&self) -> impl Iterator<Item = (&String, &BTreeMap<String, Cell>)> {
        self.0.iter().filter(|(_, cells)| cells.values().any(|cell| *cell != Cell::Lacks))
    }

    fn runtimes(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.rows().flat_map(|(_, cells)| cells.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Every case a row.
    pub(crate) fn whole(&self) -> String {
        let rows = self.rows().map(|(case, cells)| (case.as_str(), cells)).collect::<Vec<_>>();
        self.table("case", &rows.iter().map(|(case, cells)| self.words(case, cells)).collect::<Vec<_>>())
    }

    /// The areas with `passed/cases`, then a row for each case that failed or that a runtime lacks. Empty with one runtime.
    pub(crate) fn short(&self) -> String {
        if self.runtimes().len() < 2 {
            return String::new();
        }
        let mut areas: Vec<&str> = self.rows().map(|(case, _)| area_of(case)).collect();
        areas.dedup();
        let mut rows: Vec<Vec<String>> = areas.iter().map(|area| self.counts(area, Some(area))).collect();
        rows.push(self.counts("all", None));
        let mut text = self.table("area", &rows);
        let odd = self.rows().filter(|(_, cells)| cells.values().any(|cell| *cell != Cell::Passed));
        let odd: Vec<Vec<String>> = odd.map(|(case, cells)| self.words(case, cells)).collect();
        if !odd.is_empty() {
            text.push('\n');
            text.push_str(&self.table("failed, or lacking there", &odd));
        }
        text
    }

    fn words(&self, title: &str, cells: &BTreeMap<String, Cell>) -> Vec<String> {
        let words = self.runtimes().into_iter().map(|name| Cell::word(cells.get(name)).to_owned());
        std::iter::once(title.to_owned()).chain(words).collect()
    }

    fn counts(&self, title: &str, area: Option<&str>) -> Vec<String> {
        let count = |name: &str| {
            let cells: Vec<Cell> = self
                .rows()
                .filter(|(case, _)| area.is_none_or(|area| area_of(case) == area))
                .filter_map(|(_, cells)| cells.get(name).copied())
                .collect();
            format!("{}/{}", cells.iter().filter(|cell| **cell == Cell::Passed).count(), cells.len())
        };
        std::iter::once(title.to_owned()).chain(self.runtimes().into_iter().map(count)).collect()
    }

    fn table(&self, title: &str, rows: &[Vec<String>]) -> String {
        let mut all = vec![self.words(title, &BTreeMap::new())];
        for (cell, name) in all[0].iter_mut().skip(1).zip(self.runtimes()) {
            name.clone_into(cell);
        }
        all.extend(rows.iter().cloned());
        let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..all[0].len()).map(width).collect();
        let mut text = String::new();
        for row in &all {
            let _ = write!(text, "{:<width$}", row[0], width = widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                let _ = write!(text, "  {cell:>width$}");
            }
            text.push('\n');
        }
        text
    }
}

fn area_of(case: &str) -> &str {
    case.split_once("::").map_or(case, |(area, _)| area)
}

/// The tables of a small matrix, to the byte.
pub(crate) fn self_test() -> Result<(), String> {
    let mut matrix = Matrix::default();
    for (case, runtime, cell) in [
        ("a::one", "binary", Cell::Passed),
        ("a::one", "sh", Cell::Passed),
        ("a::two", "binary", Cell::Passed),
        ("a::two", "sh", Cell::Lacks),
        ("b::one", "binary", Cell::Passed),
        ("b::one", "sh", Cell::Failed),
        ("c::filtered away", "sh", Cell::Lacks),
    ] {
        matrix.set(case, runtime, cell);
    }
    let short = "area  binary   sh\na        2/2  1/2\nb        1/1  0/1\nall      3/3  1/3\n\n\
                 failed, or lacking there  binary     sh\na::two                        ok  lacks\n\
                 b::one                        ok   FAIL\n";
    let whole =
        "case    binary     sh\na::one      ok     ok\na::two      ok  lacks\nb::one      ok   FAIL\n";
    match (matrix.short() == short, matrix.whole() == whole) {
        (true, true) => Ok(()),
        _ => Err(format!("the matrix reads:\n{}\n{}", matrix.short(), matrix.whole())),
    }
}
