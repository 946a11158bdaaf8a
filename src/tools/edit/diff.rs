//! The shortest edit from one list of lines to another, chosen as awk/edit_file.awk chooses it where several are as
//! short: `similar` brings its own choice, which no other program repeats.

use std::ops::Range;

use similar::DiffOp;

/// Beyond so many differences everything counts as replaced (Myers' greedy algorithm takes the square of it).
const MAX_DIFFERENCES: usize = 400;

/// The operations that make `new` of `old`, in order; within a run of changes the removed lines come first.
pub(super) fn operations(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(same).count();
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let mut all = Operations::default();
    all.equal(head);
    match trail(&old[head..old_end], &new[head..new_end]) {
        Some(trail) => walk(&trail, old_end - head, new_end - head, &mut all),
        None => all.change(old_end - head, new_end - head),
    }
    all.equal(tail);
    all.done
}

/// For each number of differences the line of `old` that is reached on each diagonal, from the lowest to the highest,
/// two apart. `None`: there are too many.
fn trail(old: &[&str], new: &[&str]) -> Option<Vec<Vec<usize>>> {
    let most = (old.len() + new.len()).min(MAX_DIFFERENCES);
    let mut trail: Vec<Vec<usize>> = Vec::new();
    for differences in 0..=most {
        let mut reached = Vec::with_capacity(differences + 1);
        for step in 0..=differences {
            let mut x = trail.last().map_or(0, |last| came_from(last, step).0);
            let mut y = x + differences - 2 * step;
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            reached.push(x);
            if x >= old.len() && y >= new.len() {
                trail.push(reached);
                return Some(trail);
            }
        }
        trail.push(reached);
    }
    None
}

/// Where the `step`-th diagonal begins, coming from the diagonals of one difference less, and whether a line was removed.
fn came_from(last: &[usize], step: usize) -> (usize, bool) {
    let inserts = step == 0 || (step < last.len() && last[step - 1] < last[step]);
    if inserts { (last[step], false) } else { (last[step - 1] + 1, true) }
}

/// Goes the way back from the end, and gives its operations from the beginning.
fn walk(trail: &[Vec<usize>], old: usize, new: usize, all: &mut Operations) {
    let (mut x, mut y) = (old, new);
    let mut steps = Vec::new();
    for differences in (1..trail.len()).rev() {
        let step = (x + differences - y) / 2;
        let (begin, removes) = came_from(&trail[differences - 1], step);
        let equal = x - begin;
        (x, y) = (begin, y - equal);
        steps.push((equal, removes));
        if removes { x -= 1 } else { y -= 1 }
    }
    all.equal(x);
    for (equal, removes) in steps.into_iter().rev() {
        all.change(usize::from(removes), usize::from(!removes));
        all.equal(equal);
    }
}

/// Operations as they come, with neighbours of a kind made one.
#[derive(Default)]
struct Operations {
    done: Vec<DiffOp>,
    old: usize,
    new: usize,
}

impl Operations {
    fn equal(&mut self, len: usize) {
        match self.done.last_mut() {
            _ if len == 0 => {}
            Some(DiffOp::Equal { len: before, .. }) => *before += len,
            _ => self.done.push(DiffOp::Equal { old_index: self.old, new_index: self.new, len }),
        }
        (self.old, self.new) = (self.old + len, self.new + len);
    }

    fn change(&mut self, old_len: usize, new_len: usize) {
        let (mut old, mut new) = (self.old..self.old + old_len, self.new..self.new + new_len);
        if let Some(last) = self.done.pop_if(|last| !matches!(last, DiffOp::Equal { .. })) {
            old.start = last.old_range().start;
            new.start = last.new_range().start;
        }
        (self.old, self.new) = (old.end, new.end);
        self.done.extend(changed(old, new));
    }
}

fn changed(old: Range<usize>, new: Range<usize>) -> Option<DiffOp> {
    let (old_index, new_index, old_len, new_len) = (old.start, new.start, old.len(), new.len());
    match (old_len, new_len) {
        (0, 0) => None,
        (_, 0) => Some(DiffOp::Delete { old_index, old_len, new_index }),
        (0, _) => Some(DiffOp::Insert { old_index, new_index, new_len }),
        _ => Some(DiffOp::Replace { old_index, old_len, new_index, new_len }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations on the characters of two words, as `-`, `+` and blanks before them.
    fn script(old: &str, new: &str) -> String {
        let (old, new): (Vec<&str>, Vec<&str>) = (old.split("").collect(), new.split("").collect());
        let mut out = String::new();
        for op in operations(&old, &new) {
            let equal = matches!(op, DiffOp::Equal { .. });
            old[op.old_range()].iter().for_each(|c| out += &format!("{}{c}", if equal { "" } else { "-" }));
            new[op.new_range()].iter().filter(|_| !equal).for_each(|c| out += &format!("+{c}"));
        }
        out
    }

    #[test]
    fn the_shortest_edit_and_of_equal_ones_always_the_same() {
        assert_eq!(script("abc", "abc"), "abc");
        assert_eq!(script("", "ab"), "+a+b");
        assert_eq!(script("abcabba", "cbabac"), "-a-bc+bab-ba+c");
        assert_eq!(script("xeel", "e"), "-xe-e-l");
        assert_eq!(script("abcd", "axyd"), "a-b-c+x+yd");
    }

    #[test]
    fn too_many_differences_are_one_replacement() {
        let old: Vec<String> = (0..300).map(|n| format!("old {n}")).collect();
        let new: Vec<String> = (0..300).map(|n| format!("new {n}")).collect();
        let (mut old, mut new): (Vec<&str>, Vec<&str>) =
            (old.iter().map(String::as_str).collect(), new.iter().map(String::as_str).collect());
        (old[150], new[150]) = ("same", "same");
        let replace = DiffOp::Replace { old_index: 0, old_len: 300, new_index: 0, new_len: 300 };
        assert_eq!(operations(&old, &new), [replace]);
    }
}
