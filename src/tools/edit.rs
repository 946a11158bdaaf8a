//! Edit: replaces one exact place, or says why there is none.

use std::io::Read as _;

use memchr::memmem;
use similar::{DiffOp, DiffableStr, group_diff_ops};

use super::files::write_failed;
use super::input::Input;
use super::place::{Ground, Target, about};
use super::truncate::{clean, prefix};
use super::{Context, Failure, Output};
use crate::policy::Access;

mod diff;
mod hint;

/// A larger file is not edited: it is held in memory twice.
const MAX_FILE: u64 = 256 << 20;
/// Unchanged lines around a change in the diff.
const CONTEXT: usize = 3;
/// More places than this are not counted.
const MAX_PLACES: usize = 10_000;
/// Line numbers named when the text occurs more often than once.
const MAX_NAMED: usize = 20;

/// Replaces `old_string`, which must occur exactly once, by `new_string`, literally.
pub(crate) fn edit(ctx: &Context, input: &Input) -> Result<Output, Failure> {
    let path = input.required("path", "path")?;
    let old = input.text("old_string")?.unwrap_or_default();
    let Some(new) = input.text("new_string")? else {
        return Err(Failure::new("no new_string provided"));
    };
    checked(old, new)?;
    let ground = Ground::new(ctx);
    let resolved = ground.judged(path, Access::Read)?;
    ground.judged(path, Access::Write)?;
    let target = Target::open(path, &resolved, false)?;
    let Some(size) = target.old_size() else {
        return Err(Failure::new(format!("file not found: {path}")));
    };
    if size > MAX_FILE {
        return Err(Failure::new(format!("{path} is too large to edit ({size} bytes)")));
    }
    let mut content = Vec::new();
    target.read().and_then(|mut file| file.read_to_end(&mut content)).map_err(|error| about(path, &error))?;
    let change = Change::find(path, &content, old, new)?;
    target.replace(&change.applied(&content)).map_err(|error| write_failed(path, &error))?;
    let (added, removed, diff) = change.diff(&content, path);
    let reply = format!("Success: Edit({path}) [+{added} -{removed} lines]");
    Ok(Output { shown: format!("{reply}\n{diff}"), ..Output::plain(reply) })
}

/// A text that was edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The whole new content.
    pub content: Vec<u8>,
    /// What the tool says: one line, LF, a unified diff.
    pub reply: String,
}

/// Whether `old` can be replaced by `new` at all; else the reason, without `Error: `.
pub fn check_edit(old: &str, new: &str) -> Result<(), String> {
    checked(old, new).map_err(|failure| failure.to_string())
}

/// Replaces `old`, which must occur exactly once in `content`, by `new`: the Edit tool without a file (`core edit`).
/// `path` is how messages call it. Fails with the reason, without `Error: `.
pub fn edit_text(path: &str, content: &[u8], old: &str, new: &str) -> Result<Edited, String> {
    let change = Change::find(path, content, old, new).map_err(|failure| failure.to_string())?;
    let (added, removed, diff) = change.diff(content, path);
    let reply = format!("Success: Edit({path}) [+{added} -{removed} lines]\n{diff}");
    Ok(Edited { content: change.applied(content), reply })
}

fn checked(old: &str, new: &str) -> Result<(), Failure> {
    if old.is_empty() {
        return Err(Failure::new("old_string is empty; to create or replace a whole file use Write"));
    }
    if old == new {
        return Err(Failure::new("old_string and new_string are the same"));
    }
    Ok(())
}

/// One replacement: `old` bytes at `at` give way to `new`.
struct Change {
    at: usize,
    old: usize,
    new: Vec<u8>,
}

impl Change {
    /// The one place where `old` is found: exactly, or with the file's CR LF for its LF.
    fn find(path: &str, content: &[u8], old: &str, new: &str) -> Result<Self, Failure> {
        let places = occurrences(content, old.as_bytes());
        if let [at] = places[..] {
            // A text without line ends takes the file's; one that has them has just been matched with them.
            let crlf = !old.contains('\n') && line_is_crlf(content, at + old.len());
            let new = if crlf { with_crlf(new) } else { new.as_bytes().to_vec() };
            return Ok(Self { at, old: old.len(), new });
        }
        if places.is_empty() && old.contains('\n') && memmem::find(content, b"\r\n").is_some() {
            let old = with_crlf(old);
            let places = occurrences(content, &old);
            if let [at] = places[..] {
                return Ok(Self { at, old: old.len(), new: with_crlf(new) });
            }
            if !places.is_empty() {
                return Err(several(path, content, &places));
            }
        }
        if places.is_empty() {
            return Err(Failure::new(format!(
                "old_string not found in {path}{}",
                hint::near_miss(content, old)
            )));
        }
        Err(several(path, content, &places))
    }

    fn applied(&self, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(content.len() - self.old + self.new.len());
        out.extend_from_slice(&content[..self.at]);
        out.extend_from_slice(&self.new);
        out.extend_from_slice(&content[self.at + self.old..]);
        out
    }

    /// Lines added and removed, and the unified diff. Only the lines around the change are compared.
    fn diff(&self, content: &[u8], path: &str) -> (usize, usize, String) {
        let start = lines_back(content, self.at, CONTEXT);
        let end = lines_on(content, self.at + self.old, CONTEXT);
        let before = clean(&content[start..end]);
        let after = clean(&Self { at: self.at - start, ..self.copy() }.applied(&content[start..end]));
        let (before, after) = (before.tokenize_lines(), after.tokenize_lines());
        let first = line_number(content, start) - 1;
        let (mut added, mut removed) = (0, 0);
        let mut text = format!("--- a/{path}\n+++ b/{path}\n");
        for group in group_diff_ops(diff::operations(&before, &after), CONTEXT) {
            let (Some(head), Some(last)) = (group.first(), group.last()) else { continue };
            let old = head.old_range().start..last.old_range().end;
            let new = head.new_range().start..last.new_range().end;
            text.push_str(&format!("@@ -{} +{} @@\n", range(&old, first), range(&new, first)));
            for op in &group {
                let is_equal = matches!(op, DiffOp::Equal { .. });
                let new_range = if is_equal { 0..0 } else { op.new_range() };
                push_lines(&mut text, if is_equal { ' ' } else { '-' }, &before[op.old_range()]);
                push_lines(&mut text, '+', &after[new_range.clone()]);
                removed += if is_equal { 0 } else { op.old_range().len() };
                added += new_range.len();
            }
        }
        text.truncate(text.trim_end_matches('\n').len());
        (added, removed, text)
    }

    fn copy(&self) -> Self {
        Self { at: self.at, old: self.old, new: self.new.clone() }
    }
}

/// Lines of a hunk, each behind its sign.
fn push_lines(text: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        text.push(sign);
        text.push_str(line);
        if !line.ends_with_newline() {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// `start,length` of a hunk, as diff -u writes it; `before` lines lie above what was compared.
fn range(lines: &std::ops::Range<usize>, before: usize) -> String {
    match lines.len() {
        0 => format!("{},0", before + lines.start),
        1 => format!("{}", before + lines.start + 1),
        count => format!("{},{count}", before + lines.start + 1),
    }
}

/// Where `needle` begins, overlapping places included (`aa` in `aaa` is no certain place); not all of very many.
fn occurrences(content: &[u8], needle: &[u8]) -> Vec<usize> {
    let finder = memmem::Finder::new(needle);
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = finder.find(&content[from..]) {
        places.push(from + at);
        if places.len() > MAX_PLACES {
            break;
        }
        from += at + 1;
    }
    places
}

fn several(path: &str, content: &[u8], places: &[usize]) -> Failure {
    let mut lines: Vec<String> =
        places.iter().take(MAX_NAMED).map(|&at| line_number(content, at).to_string()).collect();
    if places.len() > MAX_NAMED {
        lines.push("…".to_owned());
    }
    let count =
        if places.len() > MAX_PLACES { format!("more than {MAX_PLACES}") } else { places.len().to_string() };
    Failure::new(format!(
        "old_string occurs {count} times in {path}, at lines {}; give more of the lines around the one that is meant",
        lines.join(", ")
    ))
}

/// The number of the line that holds the byte `at`, from 1.
fn line_number(content: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', &content[..at]).count() + 1
}

/// Whether the line that holds `at` ends in CR LF. A last line without end goes by the one before.
fn line_is_crlf(content: &[u8], at: usize) -> bool {
    let end = memchr::memchr(b'\n', &content[at..]).map(|end| at + end);
    end.or_else(|| memchr::memrchr(b'\n', &content[..at]))
        .is_some_and(|end| end > 0 && content[end - 1] == b'\r')
}

/// Every LF that has no CR before it gets one.
fn with_crlf(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if byte == b'\n' && out.last() != Some(&b'\r') {
            out.push(b'\r');
        }
        out.push(byte);
    }
    out
}

/// The start of the line `count` lines above the one that holds `at`.
fn lines_back(content: &[u8], at: usize, count: usize) -> usize {
    memchr::memrchr_iter(b'\n', &content[..at]).nth(count).map_or(0, |end| end + 1)
}

/// The end of the line `count` lines below the one that holds the byte before `at`.
fn lines_on(content: &[u8], at: usize, count: usize) -> usize {
    memchr::memchr_iter(b'\n', &content[at..]).nth(count).map_or(content.len(), |end| at + end + 1)
}

/// A short piece of text on one line, with what cannot be seen made visible.
fn visible(text: &str) -> String {
    let mut out = String::new();
    for c in prefix(text, 120).chars() {
        match c {
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            ' ' => out.push(' '),
            c if c.is_whitespace() || c.is_control() || hint::is_invisible(c) => {
                out.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tools::testing::World;

    fn change(world: &World, old: &str, new: &str) -> Output {
        world.run("Edit", json!({"path":"f","old_string":old,"new_string":new}))
    }

    #[test]
    fn an_edit_replies_in_one_line_and_shows_a_diff() {
        let world = World::new();
        world.put("f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        let output = change(&world, "5\n", "five\nV\n");
        assert_eq!(output.content, "Success: Edit(f) [+2 -1 lines]");
        assert_eq!(
            output.shown,
            "Success: Edit(f) [+2 -1 lines]\n--- a/f\n+++ b/f\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+V\n 6\n 7\n 8"
        );
        assert_eq!(world.get("f"), b"1\n2\n3\n4\nfive\nV\n6\n7\n8\n9\n");
    }

    #[test]
    fn the_diff_is_the_one_that_diff_makes() {
        for (before, old, new) in [
            ("a\nb\nc\nd\ne\nf\ng\nh\n", "e\n", ""),
            ("a\nb", "b", "c"),
            ("a\n", "a\n", "b"),
            ("a", "a", ""),
            ("x\ny\nz\n", "y\n", "y\nnew\n"),
            (
                "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n",
                "two\nthree\nfour\nfive\nsix\nseven\neight\nnine\n",
                "2\nthree\nfour\nfive\nsix\nseven\neight\n9\n",
            ),
            ("a\nb\nc\nd\ne\nf\ng\n", "a", "A"),
        ] {
            let world = World::new();
            world.put("f", before);
            world.put("old", before);
            let output = change(&world, old, new);
            assert!(!output.is_error, "{}", output.content);
            let theirs = std::process::Command::new("diff")
                .args(["-u", "--label", "a/f", "--label", "b/f", "old", "f"])
                .current_dir(&world.ctx.cwd)
                .output()
                .unwrap();
            let theirs = String::from_utf8(theirs.stdout).unwrap();
            let (_, ours) = output.shown.split_once('\n').unwrap();
            assert_eq!(ours, theirs.trim_end(), "{before:?} {old:?}");
        }
    }

    /// CASES G1.
    #[test]
    fn crlf_files_match_and_stay_crlf() {
        for (before, old, new, after) in [
            ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
            ("a\r\nb\r\n", "a", "x\ny", "x\r\ny\r\nb\r\n"),
            ("a\r\nb", "b", "x\ny", "a\r\nx\r\ny"),
            ("a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n"),
            ("a\nb\r\nc\n", "b", "x\ny", "a\nx\r\ny\r\nc\n"),
            ("a\nb\r\nc\n", "a\n", "x\ny\n", "x\ny\nb\r\nc\n"),
            ("a\nb\n", "a", "x\r\ny", "x\r\ny\nb\n"),
            ("a\r\n", "a", "b\r\nc", "b\r\nc\r\n"),
        ] {
            let world = World::new();
            world.put("f", before);
            let output = change(&world, old, new);
            assert!(!output.is_error, "{before:?}: {}", output.content);
            assert_eq!(String::from_utf8(world.get("f")).unwrap(), after, "{before:?}");
        }
        let world = World::new();
        world.put("f", "a\r\nb\r\na\r\nb\r\n");
        assert!(change(&world, "a\nb", "x").content.contains("occurs 2 times in f, at lines 1, 3"));
    }

    /// CASES G3, G4: the first differing character, its code point, and the line.
    #[test]
    fn a_near_miss_names_the_first_difference() {
        for (before, old, parts) in [
            (
                "x = \u{a0}1;\n",
                "x =  1;",
                &["line 1", "column 5", "U+00A0 (no-break space)", "U+0020 (space)", "\\u{a0}"][..],
            ),
            ("say(“hi”)\n", "say(\"hi\")", &["column 5", "U+201C (“)", "U+0022 (\")"]),
            ("cafe\u{301} au lait\n", "café au lait", &["line 1, column 4", "U+0065 (e)", "U+00E9 (é)"]),
            (
                "if x:\n\tfoo()\n\tbar()\n",
                "    foo()\n    bar()",
                &["line 2, column 1", "U+0009 (tab)", "\\tfoo()"],
            ),
            (
                "if x:\n\tfoo()\n",
                "if x:\n    foo()",
                &["nearest place is line 1", "line 2, column 1", "U+0009"],
            ),
            ("a  b\n", "a b\n", &["column 3", "U+0020 (space), old_string has U+0062"]),
            ("one two\nthree four\n", "one two\nthree five\n", &["line 2, column 8", "(o)", "(i)"]),
            ("a\u{200b}b\n", "ab", &["column 2", "U+200B"]),
            ("abc\ndef\n", "abc\r\ndef\r\n", &["U+000A (line feed)", "U+000D (carriage return)"]),
            ("a long line here", "a long line here and more", &["the file has its end"]),
            ("\u{ff}nothing", "quite different", &["nothing like it is there"]),
        ] {
            let world = World::new();
            world.put("f", before);
            let text = change(&world, old, "new").content;
            assert!(text.starts_with("Error: old_string not found in f"), "{text}");
            for part in parts {
                assert!(text.contains(part), "{before:?}: {part} in {text}");
            }
            assert_eq!(world.get("f"), before.as_bytes());
        }
    }

    /// CASES G5, G7, G8, G10.
    #[test]
    fn what_is_not_exactly_once_is_refused_and_nothing_is_written() {
        let world = World::new();
        world.put("f", "x\na\nb\na\n\na\n");
        assert!(change(&world, "a", "c").content.contains("occurs 3 times in f, at lines 2, 4, 6;"));
        world.put("f", "aaa");
        assert!(change(&world, "aa", "b").content.contains("occurs 2 times"));
        world.put("f", "a".repeat(50_000));
        assert!(
            change(&world, "aa", "b").content.contains("occurs more than 10000 times in f, at lines 1, 1,")
        );
        for before in ["abc", ""] {
            world.put("f", before);
            assert!(change(&world, "", "x").content.contains("old_string is empty"));
            assert!(change(&world, "abd", "x").is_error);
            assert_eq!(world.get("f"), before.as_bytes());
        }
        world.put("f", "abc");
        assert!(change(&world, "b", "b").content.contains("the same"));
        assert_eq!(world.err("Edit", json!({"path":"f","old_string":"b"})), "Error: no new_string provided");
        assert_eq!(
            world.err("Edit", json!({"path":"nope","old_string":"b","new_string":"c"})),
            "Error: file not found: nope"
        );
        assert!(world.err("Edit", json!({"path":"nope","old_string":"","new_string":"c"})).contains("empty"));
        assert!(
            world
                .err("Edit", json!({"path":".","old_string":"b","new_string":"c"}))
                .contains("is a directory")
        );
        assert_eq!(world.err("Edit", json!({"old_string":"b","new_string":"c"})), "Error: no path provided");
    }

    /// CASES G6, G9.
    #[test]
    fn the_new_text_is_taken_literally() {
        for new in ["$&", "$1", "$$", "&", "\\1", "\\\\", "\\n", "%s", "`", "two blanks  ", "  ", ""] {
            let world = World::new();
            world.put("f", "a\tOLD\tb\n");
            assert!(!change(&world, "OLD", new).is_error);
            assert_eq!(String::from_utf8(world.get("f")).unwrap(), format!("a\t{new}\tb\n"));
        }
        let world = World::new();
        world.put("f", "all");
        assert_eq!(change(&world, "all", "").content, "Success: Edit(f) [+0 -1 lines]");
        assert_eq!(world.get("f"), b"");
    }

    /// CASES G5, G11: every other byte, the mode and the link stay.
    #[test]
    fn everything_else_stays() {
        let world = World::new();
        world.put("real", b"\xef\xbb\xbfall:\n\tcc \xff\xfe\0 x # note\n\tend");
        std::fs::set_permissions(world.path("real"), PermissionsExt::from_mode(0o2755)).unwrap();
        symlink("real", world.path("f")).unwrap();
        assert!(!change(&world, "# note", "# word").is_error);
        assert_eq!(world.get("real"), b"\xef\xbb\xbfall:\n\tcc \xff\xfe\0 x # word\n\tend");
        assert!(world.path("f").is_symlink());
        assert_eq!(world.path("real").metadata().unwrap().mode() & 0o7777, 0o2755);
        assert_eq!(std::fs::read_dir(&world.ctx.cwd).unwrap().count(), 2, "no temporary is left");
    }

    /// CASES G11. Root may write anywhere, so the thread gives its rights away first.
    #[cfg(target_os = "linux")]
    #[test]
    fn without_the_right_to_write_the_old_content_stays() {
        let world = World::new();
        std::fs::create_dir(world.path("d")).unwrap();
        std::fs::write(world.path("d/f"), "old").unwrap();
        std::fs::write(world.path("closed"), "old").unwrap();
        let mode = |path: &str, mode| {
            std::fs::set_permissions(world.path(path), PermissionsExt::from_mode(mode)).unwrap();
        };
        std::fs::set_permissions(world.root(), PermissionsExt::from_mode(0o755)).unwrap();
        mode("d/f", 0o666);
        mode("d", 0o555);
        mode("closed", 0o444);
        mode("", 0o777);
        std::thread::scope(|scope| {
            let edits = scope.spawn(|| {
                // SAFETY: the raw call changes this thread only, which ends with the test.
                unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, -1) };
                ["d/f", "closed"]
                    .map(|path| world.err("Edit", json!({"path":path,"old_string":"old","new_string":"new"})))
            });
            let edits = edits.join().unwrap();
            assert!(
                edits[0].contains("could not write d/f: Permission denied; the file is unchanged"),
                "{edits:?}"
            );
            assert_eq!(edits[1], "Error: permission denied: closed");
        });
        assert_eq!((world.get("d/f"), world.get("closed")), (b"old".to_vec(), b"old".to_vec()));
        mode("d", 0o755);
    }

    proptest! {
        #[test]
        fn an_edit_is_a_replacement_or_an_error(before in "[ab\\r\\n\t ]{0,40}", old in "[ab\\r\\n\t ]{1,4}", new in "[ab\\r\\n]{0,4}") {
            let count = before.as_bytes().windows(old.len()).filter(|window| *window == old.as_bytes()).count();
            match Change::find("f", before.as_bytes(), &old, &new) {
                Ok(change) => {
                    let after = change.applied(before.as_bytes());
                    prop_assert!(count <= 1);
                    let (start, end) = (&before.as_bytes()[..change.at], &before.as_bytes()[change.at + change.old..]);
                    prop_assert!(after.starts_with(start) && after.ends_with(end));
                    prop_assert_eq!(String::from_utf8(change.new.clone()).unwrap().replace("\r\n", "\n"), new.replace("\r\n", "\n"));
                    change.diff(before.as_bytes(), "f");
                }
                Err(_) => prop_assert!(count != 1),
            }
        }
    }
}
