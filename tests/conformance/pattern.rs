//! Comparing what was expected with what came: `{*}` stands for any text within a line, `{**}` for any text, and a
//! line that is `{**}` alone for any number of lines, none among them.

use std::collections::HashSet;

use similar::TextDiff;

/// A piece of what is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'a> {
    Text(&'a str),
    /// Any text without a line feed.
    InLine,
    /// Any text.
    Any,
    /// Nothing, or any text that ends in a line feed.
    Lines,
}

/// Whether `actual` is what `expected` says.
pub(crate) fn matches(expected: &str, actual: &str) -> bool {
    rest_matches(&parts(expected), actual, &mut HashSet::new())
}

fn parts(expected: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = expected;
    while let Some(place) = rest.find("{*") {
        let (text, from) = rest.split_at(place);
        let line_start = (text.is_empty() && parts.is_empty()) || text.ends_with('\n') || {
            text.is_empty() && parts.last() == Some(&Part::Lines)
        };
        parts.push(Part::Text(text));
        let (part, length) = if line_start && from.starts_with("{**}\n") {
            (Part::Lines, "{**}\n".len())
        } else if from.starts_with("{**}") {
            (Part::Any, "{**}".len())
        } else if from.starts_with("{*}") {
            (Part::InLine, "{*}".len())
        } else {
            (Part::Text("{*"), "{*".len())
        };
        parts.push(part);
        rest = &from[length..];
    }
    parts.push(Part::Text(rest));
    parts
}

/// `failed` holds what was tried in vain (parts left, bytes left), so that the time stays bounded.
fn rest_matches(parts: &[Part<'_>], actual: &str, failed: &mut HashSet<(usize, usize)>) -> bool {
    let Some((first, rest)) = parts.split_first() else { return actual.is_empty() };
    if failed.contains(&(parts.len(), actual.len())) {
        return false;
    }
    let ends = |text: &str| text.char_indices().map(|(place, c)| place + c.len_utf8()).collect::<Vec<_>>();
    let found = match first {
        Part::Text(text) => actual.strip_prefix(text).is_some_and(|left| rest_matches(rest, left, failed)),
        Part::InLine => {
            let line = actual.split('\n').next().unwrap_or_default();
            rest_matches(rest, actual, failed)
                || ends(line).into_iter().any(|end| rest_matches(rest, &actual[end..], failed))
        }
        Part::Any => {
            rest_matches(rest, actual, failed)
                || ends(actual).into_iter().any(|end| rest_matches(rest, &actual[end..], failed))
        }
        Part::Lines => {
            rest_matches(rest, actual, failed)
                || actual
                    .match_indices('\n')
                    .any(|(place, _)| rest_matches(rest, &actual[place + 1..], failed))
        }
    };
    if !found {
        failed.insert((parts.len(), actual.len()));
    }
    found
}

/// `Ok`, or a diff under the title.
pub(crate) fn check(title: &str, expected: &str, actual: &str) -> Result<(), String> {
    if matches(expected, actual) {
        return Ok(());
    }
    let diff = TextDiff::from_lines(expected, actual);
    Err(format!(
        "{title} differs (- expected, + actual):\n{}",
        diff.unified_diff().context_radius(3).missing_newline_hint(true)
    ))
}

/// The rules of `matches`, checked by the runner itself: this target has no harness of its own.
pub(crate) fn self_test() -> Result<(), String> {
    for (expected, actual, right) in [
        ("a\n", "a\n", true),
        ("a\n", "a", false),
        ("a {*} c\n", "a b c\n", true),
        ("a {*} c\n", "a b\n c\n", false),
        ("{**}", "", true),
        ("{**}", "a\nb\n", true),
        ("a\n{**}\nz\n", "a\nb\nc\nz\n", true),
        ("a\n{**}\nz\n", "a\nz\n", true),
        ("a\n{**}\nz\n", "a\nb\n", false),
        ("{*}x{*}y", "1x2y", true),
        ("{*}x{*}y", "1y2x", false),
        ("", "x", false),
        ("{**}Done.\n", "a\nb\nDone.\n", true),
        ("{**}Done.\n", "Done.\n", true),
        ("{**}Done.\n", "Done.\nno", false),
        ("a{**}\n{**}\nb\n", "a\nb\n", true),
        ("a\n{**}\nb\n", "a\nx b\n", false),
        ("{**}\n{**}\nz\n", "z\n", true),
        ("{*}{**}{*}é{*}", "aé", true),
    ] {
        if matches(expected, actual) != right {
            return Err(format!("{expected:?} and {actual:?} must give {right}"));
        }
    }
    Ok(())
}
