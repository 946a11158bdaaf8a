//! Read and Write.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::input::Input;
use super::place::{Ground, Target, about, reason};
use super::truncate::Bounded;
use super::{Context, Failure, Output};
use crate::policy::Access;
use crate::runtime::cancel::Cancel;

/// A file larger than this is read only in part: its lines are not even counted.
const MAX_WHOLE: u64 = 64 << 20;
/// What is looked at to tell text from data.
const SNIFF: usize = 8192;

/// The lines of a file, as they are (no numbers): all, or `limit` from line `offset` (from 1) on.
pub(crate) fn read(ctx: &Context, input: &Input, cancel: &Cancel) -> Result<Output, Failure> {
    let path = input.required("path", "path")?;
    let offset = input.count("offset")?;
    let limit = input.count("limit")?;
    if limit == Some(0) {
        return Err(Failure::new("limit must be at least 1"));
    }
    let (mut file, _) = Ground::new(ctx).open_regular(path)?;
    let failed = |error: io::Error| about(path, &error);
    let size = file.metadata().map_err(failed)?.len();
    if is_binary(&mut file).map_err(failed)? {
        return Err(Failure::new(format!(
            "{path} is a binary file of {size} bytes; look at it with a command (file, xxd, strings)"
        )));
    }
    if size > MAX_WHOLE && limit.is_none() {
        return Err(Failure::new(format!(
            "{path} is too large to read whole ({size} bytes); use offset and limit, or Grep"
        )));
    }
    let first = offset.unwrap_or(1).max(1);
    let mut window = Window::new(first, limit, ctx.max_result, size > MAX_WHOLE);
    if !window.scan(&mut file, cancel).map_err(failed)? {
        return Err(Failure::interrupted());
    }
    let lines = if window.stopped { "?".to_owned() } else { window.lines().to_string() };
    let text = window.finish(path, size, &|text| super::masked(ctx, text))?;
    let mut summary = format!("Read({path}) [{lines} lines, {size} bytes");
    if let Some(offset) = offset {
        summary.push_str(&format!(", offset={offset}"));
    }
    if let Some(limit) = limit {
        summary.push_str(&format!(", limit={limit}"));
    }
    Ok(Output { shown: format!("{summary}]\n{text}"), ..Output::plain(text) })
}

/// Whether the file's beginning holds a NUL, as grep and git judge it. Leaves the file at its beginning.
fn is_binary(file: &mut File) -> io::Result<bool> {
    let mut start = [0; SNIFF];
    let count = file.read(&mut start)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(memchr::memchr(0, &start[..count]).is_some())
}

/// The wanted lines of a file, found piece by piece.
struct Window {
    /// The first and, from there, the last wanted line; from 1.
    first: u64,
    last: u64,
    /// The line that the next byte belongs to.
    line: u64,
    /// Whether the last byte seen ended a line (or nothing was seen).
    at_start: bool,
    /// End the scan after the last wanted line.
    stop_early: bool,
    /// It did.
    stopped: bool,
    kept: Bounded,
    replaced: bool,
}

impl Window {
    fn new(first: u64, limit: Option<u64>, max: usize, stop_early: bool) -> Self {
        let last = limit.map_or(u64::MAX, |limit| first.saturating_add(limit - 1));
        let kept = Bounded::new(max);
        Self { first, last, line: 1, at_start: true, stop_early, stopped: false, kept, replaced: false }
    }

    /// Reads what is needed of the file; `false` when interrupted.
    fn scan(&mut self, file: &mut File, cancel: &Cancel) -> io::Result<bool> {
        let mut piece = vec![0; 64 << 10];
        loop {
            if cancel.is_cancelled() {
                return Ok(false);
            }
            let count = match file.read(&mut piece) {
                Ok(0) => return Ok(true),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.feed(&piece[..count]);
            if self.stop_early && self.line > self.last {
                self.stopped = true;
                return Ok(true);
            }
        }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.line > self.last && !self.stop_early {
                // Only counted from here on.
                self.line += memchr::memchr_iter(b'\n', bytes).count() as u64;
                self.at_start = bytes.last() == Some(&b'\n');
                return;
            }
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let (part, rest) = bytes.split_at(end);
            if (self.first..=self.last).contains(&self.line) {
                self.replaced = self.replaced || std::str::from_utf8(part).is_err();
                self.kept.push(part);
            }
            self.at_start = part.ends_with(b"\n");
            self.line += u64::from(self.at_start);
            bytes = rest;
        }
    }

    /// How many lines were seen; a last one without line feed counts.
    fn lines(&self) -> u64 {
        self.line - u64::from(self.at_start)
    }

    fn finish(self, path: &str, size: u64, mask: &dyn Fn(String) -> String) -> Result<String, Failure> {
        if size == 0 && self.lines() == 0 {
            return Ok(format!("[{path} is empty]"));
        }
        if self.kept.total() == 0 {
            return Err(Failure::new(format!(
                "offset {} is past the end of {path} ({} lines)",
                self.first,
                self.lines()
            )));
        }
        let replaced = self.replaced;
        let mut text = self.kept.finish_lines(mask);
        if replaced && text.contains('\u{fffd}') {
            text.push_str("\n[bytes that are not UTF-8 are shown as \u{fffd}]");
        }
        Ok(text)
    }
}

/// Makes the file, with the directories above it, or replaces it whole.
pub(crate) fn write(ctx: &Context, input: &Input) -> Result<Output, Failure> {
    let path = input.required("path", "path")?;
    let Some(content) = input.text("content")? else {
        return Err(Failure::new("no content provided"));
    };
    if path.ends_with('/') {
        return Err(Failure::new(format!("{path} is a directory")));
    }
    let resolved = Ground::new(ctx).judged(path, Access::Write)?;
    let target = Target::open(path, &resolved, true)?;
    target.replace(content.as_bytes()).map_err(|error| write_failed(path, &error))?;
    let reply = format!("OK: wrote {} bytes to {path}", content.len());
    let lines = memchr::memchr_iter(b'\n', content.as_bytes()).count()
        + usize::from(!content.is_empty() && !content.ends_with('\n'));
    let shown = format!("Write({path}) [{lines} lines, {} bytes]\n{reply}", content.len());
    Ok(Output { shown, ..Output::plain(reply) })
}

/// The message for a write that failed; the old file is still there.
pub(crate) fn write_failed(path: &str, error: &io::Error) -> Failure {
    Failure::new(format!("could not write {path}: {}; the file is unchanged", reason(error)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use serde_json::json;

    use super::*;
    use crate::policy::Mode;
    use crate::tools::testing::World;

    #[test]
    fn read_gives_the_lines_and_shows_a_summary() {
        let world = World::new();
        world.put("f.txt", "one\ntwo\r\nthree\n");
        let whole = world.run("Read", json!({"path":"f.txt"}));
        assert_eq!(whole.content, "one\ntwo\r\nthree");
        assert_eq!(whole.shown, "Read(f.txt) [3 lines, 15 bytes]\none\ntwo\r\nthree");
        let part = world.run("Read", json!({"path":"f.txt","offset":2,"limit":"1"}));
        assert_eq!(part.content, "two\r");
        assert_eq!(part.shown, "Read(f.txt) [3 lines, 15 bytes, offset=2, limit=1]\ntwo\r");
        assert_eq!(world.ok("Read", json!({"path":"f.txt","offset":0,"limit":2})), "one\ntwo\r");
    }

    #[test]
    fn odd_files_give_a_short_clear_result() {
        let world = World::new();
        world.put("empty", "");
        world.put("line", "x".repeat(5_000_000));
        world.put("data", b"\x7fELF\0\0");
        world.put("latin", b"caf\xe9\n");
        world.put("feeds", "\n\n");
        nix::unistd::mkfifo(&world.path("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        File::create(world.path("sparse")).unwrap().set_len(2 << 30).unwrap();
        let text = world.path("large");
        std::fs::write(&text, "first\nsecond\n").unwrap();
        File::options().write(true).open(&text).unwrap().set_len(2 << 30).unwrap();
        std::fs::create_dir(world.path("dir")).unwrap();
        let read = |path: &str| world.run("Read", json!({ "path": path })).content;
        assert_eq!(read("empty"), "[empty is empty]");
        assert_eq!(read("line").len(), 100_000);
        assert!(read("data").contains("binary file of 6 bytes"));
        assert_eq!(read("latin"), "caf\u{fffd}\n[bytes that are not UTF-8 are shown as \u{fffd}]");
        assert_eq!(read("feeds"), "\n");
        assert_eq!(read("fifo"), "Error: fifo is a FIFO");
        assert_eq!(read("dir"), "Error: dir is a directory; use Glob to list it");
        assert!(read("sparse").contains("binary file"));
        assert_eq!(read("nope"), "Error: file not found: nope");
        assert_eq!(read("line/x"), "Error: line/x: a part of the path is not a directory");
        assert_eq!(read(""), "Error: no path provided");
        assert_eq!(
            world.err("Read", json!({"path":"latin","offset":9})),
            "Error: offset 9 is past the end of latin (1 lines)"
        );
    }

    #[test]
    fn a_device_is_never_opened() {
        let mut world = World::new();
        world.ctx.mode = Mode::parse("7777");
        assert_eq!(world.err("Read", json!({"path":"/dev/zero"})), "Error: /dev/zero is a device");
        assert!(world.err("Write", json!({"path":"/dev/null","content":"x"})).contains("is a device"));
    }

    #[test]
    fn a_huge_text_is_read_in_part_only() {
        let world = World::new();
        let line = format!("{}\n", "y".repeat(99));
        world.put("big", line.repeat(700_000));
        assert!(
            world.err("Read", json!({"path":"big"})).contains("too large to read whole (70000000 bytes)")
        );
        let part = world.run("Read", json!({"path":"big","offset":3,"limit":2}));
        assert_eq!(part.content.len(), 199);
        assert!(part.shown.starts_with("Read(big) [? lines, 70000000 bytes, offset=3, limit=2]\n"));
    }

    #[test]
    fn write_makes_directories_and_keeps_mode_and_link() {
        let world = World::new();
        let made = world.run("Write", json!({"path":"a/b/new.txt","content":"x\ny\n"}));
        assert_eq!(made.content, "OK: wrote 4 bytes to a/b/new.txt");
        assert_eq!(made.shown, "Write(a/b/new.txt) [2 lines, 4 bytes]\nOK: wrote 4 bytes to a/b/new.txt");
        assert_eq!(world.get("a/b/new.txt"), b"x\ny\n");
        std::fs::set_permissions(world.path("a/b/new.txt"), PermissionsExt::from_mode(0o751)).unwrap();
        symlink("a/b/new.txt", world.path("link")).unwrap();
        world.ok("Write", json!({"path":"link","content":""}));
        assert!(world.path("link").is_symlink());
        assert_eq!(world.get("a/b/new.txt"), b"");
        assert_eq!(world.path("link").metadata().unwrap().mode() & 0o7777, 0o751);
        assert_eq!(
            world.err("Write", json!({"path":"a","content":"x"})),
            "Error: a is a directory; use Glob to list it"
        );
        assert_eq!(world.err("Write", json!({"path":"z"})), "Error: no content provided");
        assert_eq!(world.err("Write", json!({"path":"z","content":{}})), "Error: content must be a string");
        assert!(world.err("Write", json!({"path":"a/","content":"x"})).contains("directory"));
    }

    /// CASES O9, O10.
    #[test]
    fn a_link_leads_to_where_it_is_judged() {
        let world = World::new();
        let outside = world.root().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("there"), "old").unwrap();
        symlink(&outside, world.path("out")).unwrap();
        symlink(outside.join("there"), world.path("notes.md")).unwrap();
        symlink(outside.join("not-yet"), world.path("dangling")).unwrap();
        symlink("dangling", world.path("twice")).unwrap();
        for path in
            ["out/x", "out/there", "notes.md", "dangling", "twice", "../outside/x", "./out/../../outside/x"]
        {
            let refused = world.err("Write", json!({"path":path,"content":"new"}));
            assert!(refused.contains("required=0200 allowed=0467"), "{path}: {refused}");
        }
        assert!(
            world
                .err("Edit", json!({"path":"notes.md","old_string":"old","new_string":"n"}))
                .contains("0200")
        );
        assert_eq!(std::fs::read(outside.join("there")).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
        // External reading is in the default mode, and not in 0067.
        assert_eq!(world.ok("Read", json!({"path":"notes.md"})), "old");
        let mut closed = world;
        closed.ctx.mode = Mode::parse("0067");
        for (tool, input) in [
            ("Read", json!({"path":"notes.md"})),
            ("Glob", json!({"pattern":"*","path":"out"})),
            ("Grep", json!({"pattern":"old","path":"out"})),
            ("Grep", json!({"pattern":"old","path":"notes.md"})),
        ] {
            assert!(closed.err(tool, input).contains("required=0400 allowed=0067"), "{tool}");
        }
    }

    /// CASES O11: the trusted temporary directory has no way out.
    #[test]
    fn the_own_temporary_directory_is_judged_by_the_real_place() {
        let world = World::new();
        let tmp = world.ctx.tmp_dir.clone().unwrap();
        std::fs::create_dir_all(tmp.join("sub")).unwrap();
        symlink(world.root(), tmp.join("up")).unwrap();
        let at = |rest: &str| format!("{}{rest}", tmp.display());
        assert!(world.ok("Write", json!({"path":at("/sub//../x"),"content":"1"})).starts_with("OK"));
        for rest in ["/../escaped", "/sub/../../escaped", "/up/escaped", "//..//escaped"] {
            assert!(
                world.err("Write", json!({"path":at(rest),"content":"1"})).contains("required=0200"),
                "{rest}"
            );
        }
        let upper = at("/x").replace("/tmp/x", "/TMP/x");
        assert!(world.err("Write", json!({"path":upper,"content":"1"})).contains("required=0200"));
        assert!(!world.root().join("escaped").exists());
    }

    /// Issue 9 point 6.
    #[test]
    fn of_the_session_only_the_plan_draft_can_be_written() {
        let mut world = World::new();
        let session = world.ctx.session_dir.clone();
        let write = |world: &World, path: std::path::PathBuf| {
            world.run("Write", json!({"path":path.to_str().unwrap(),"content":"forged"}))
        };
        assert!(!write(&world, session.join("plan.draft")).is_error);
        assert_eq!(std::fs::read(session.join("plan.draft")).unwrap(), b"forged");
        symlink(&session, world.path("s")).unwrap();
        for mode in ["0467", "7777"] {
            world.ctx.mode = Mode::parse(mode);
            for path in [
                session.join("events.jsonl"),
                session.join("sub/x"),
                session.parent().unwrap().join("s2/plan.draft"),
                world.ctx.base_dir.join("config.toml"),
                world.path("s/conversation.jsonl"),
            ] {
                assert!(write(&world, path.clone()).is_error, "{mode} {}", path.display());
                assert!(!path.exists());
            }
        }
    }

    /// CASES K8: any name works, none is shown to a shell.
    #[test]
    fn odd_names_work() {
        let world = World::new();
        for name in ["with space", "q'u\"o`te", "line\nfeed", "-rf", "%s%n", "*", "$(touch x)", "é世", "a;b"]
        {
            world.ok("Write", json!({"path":name,"content":"1\n"}));
            assert_eq!(world.ok("Read", json!({"path":name})), "1", "{name:?}");
            world.ok("Edit", json!({"path":name,"old_string":"1","new_string":"2"}));
            assert_eq!(world.get(name), b"2\n");
        }
        assert!(world.err("Read", json!({"path":"a\0b"})).contains("NUL"));
        assert!(
            world.err("Write", json!({"path":"n".repeat(300),"content":""})).contains("File name too long")
        );
        std::fs::write(world.ctx.home.clone().unwrap().join("h"), "home").unwrap();
        assert_eq!(world.ok("Read", json!({"path":"~/h"})), "home");
    }

    #[test]
    fn credentials_are_closed_wherever_they_lie() {
        let world = World::new();
        world.put(".env", "KEY=1");
        world.put("tls/server.key", "k");
        for path in [".env", "tls/server.key", "~/.ssh/id_ed25519", "/etc/shadow", "/proc/self/environ"] {
            assert!(world.err("Read", json!({"path":path})).contains("required=4000"), "{path}");
        }
    }

    #[test]
    fn an_interrupt_ends_a_read() {
        let world = World::new();
        world.put("f", "x\n");
        let cancel = Cancel::new().unwrap();
        cancel.cancel();
        let output = world.run_with("Read", json!({"path":"f"}), &cancel);
        assert_eq!((output.is_error, output.content.as_str()), (true, "Error: interrupted"));
    }
}
