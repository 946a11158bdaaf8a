//! Glob and Grep: ripgrep's rules and forms by its own libraries, sorted by the bytes of the path, judged as all files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use grep_printer::StandardBuilder;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::{WalkBuilder, WalkState};
use nix::fcntl::OFlag;

use super::input::Input;
use super::place::{Ground, about, open_exactly, reason};
use super::truncate::Bounded;
use super::{Context, Failure, Output, masked};
use crate::policy::Access;
use crate::runtime::cancel::Cancel;

/// More files than this are not listed or searched: their names alone would fill the memory.
const MAX_FILES: usize = 1_000_000;
/// The longest line that Grep takes into memory.
const MAX_LINE: usize = 32 << 20;
/// The most lines of context on each side.
const MAX_CONTEXT: u64 = 1000;
/// Files searched by one thread at a time, and how far the fastest may run ahead of the slowest.
const BATCH: usize = 16;
const AHEAD: usize = 64;

/// The paths of the files that match a glob, one a line, in the form of `rg --files -g`.
pub(crate) fn glob(ctx: &Context, input: &Input, cancel: &Cancel) -> Result<Output, Failure> {
    let pattern = input.required("pattern", "pattern")?;
    let ground = Ground::new(ctx);
    let given = input.text("path")?.filter(|path| !path.is_empty());
    let (path, pattern) = match given {
        Some(path) => (path.to_owned(), relative(pattern, path, &ctx.cwd)),
        None => split(pattern, &ctx.cwd),
    };
    let root = Root::open(&ground, &path, given.is_none())?;
    if root.is_file {
        return Err(Failure::new(format!("{path} is not a directory")));
    }
    let clock = Clock::new(ctx, cancel);
    let found = root.walk(&ground, Some(&pattern), &clock)?;
    let mut bounded = Bounded::new(ctx.max_result);
    for file in &found.files {
        bounded.push(root.shown(file).as_os_str().as_bytes());
        bounded.push(b"\n");
    }
    // A closed directory is no secret here: its name is listed nowhere.
    let notes = found.notes(false);
    clock.finish(ctx, "Glob", bounded, &notes)
}

/// The matching lines of the files below a path, in the form of `rg -n --heading`.
pub(crate) fn grep(ctx: &Context, input: &Input, cancel: &Cancel) -> Result<Output, Failure> {
    let pattern = input.required("pattern", "pattern")?;
    let context = input.count("context")?.unwrap_or(0).min(MAX_CONTEXT);
    let matcher = RegexMatcherBuilder::new()
        .line_terminator(Some(b'\n'))
        .multi_line(true)
        .build(pattern)
        .map_err(|error| Failure::new(format!("invalid pattern: {error}")))?;
    let ground = Ground::new(ctx);
    let given = input.text("path")?.filter(|path| !path.is_empty());
    let root = Root::open(&ground, given.unwrap_or("."), given.is_none())?;
    let clock = Clock::new(ctx, cancel);
    let job =
        Job { matcher, context: usize::try_from(context).unwrap_or(0), root: &root, clock: &clock, ctx };
    let mut bounded = Bounded::new(ctx.max_result);
    if root.is_file {
        let (_, resolved) = ground.open_regular(given.unwrap_or("."))?;
        let mut notes = Vec::new();
        bounded.push(&job.search(&resolved, &mut notes));
        return clock.finish(ctx, "Grep", bounded, &notes);
    }
    let glob = input.text("glob")?.filter(|glob| !glob.is_empty());
    let glob = glob.map(|glob| relative(glob, given.unwrap_or("."), &ctx.cwd));
    let found = root.walk(&ground, glob.as_deref(), &clock)?;
    let mut notes = found.notes(true);
    job.search_all(&found.files, &mut bounded, &mut notes);
    clock.finish(ctx, "Grep", bounded, &notes)
}

/// A pattern without the place it starts from: `./x`, or an absolute one below the searched path.
fn relative(pattern: &str, path: &str, cwd: &Path) -> String {
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let root = cwd.join(path);
    let below = |root: &Path| Some(pattern.strip_prefix(root.to_str()?)?.strip_prefix('/')?.to_owned());
    below(&root).or_else(|| below(cwd)).unwrap_or_else(|| pattern.to_owned())
}

/// For a pattern without a path: one that leads elsewhere (`/usr/include/**/*.h`, `../x/*.rs`, `~/…`) is split into the
/// place and the pattern there.
fn split(pattern: &str, cwd: &Path) -> (String, String) {
    let pattern = relative(pattern, ".", cwd);
    if !["/", "../", "~/"].iter().any(|start| pattern.starts_with(start)) {
        return (".".to_owned(), pattern);
    }
    let magic = pattern.find(['*', '?', '[', '{']).unwrap_or(pattern.len());
    match pattern[..magic].rfind('/') {
        // `/src/*.rs` that names nothing on this machine is anchored at the root of the search, as in rg.
        Some(0) => (".".to_owned(), pattern),
        Some(end) if pattern.starts_with('/') && !Path::new(&pattern[..end]).is_dir() => {
            (".".to_owned(), pattern)
        }
        Some(end) => (pattern[..end].to_owned(), pattern[end + 1..].to_owned()),
        None => (".".to_owned(), pattern),
    }
}

/// Ends long searches: an interrupt, or the tools' time limit.
struct Clock<'a> {
    cancel: &'a Cancel,
    deadline: Option<Instant>,
    limit: Duration,
}

impl<'a> Clock<'a> {
    fn new(ctx: &Context, cancel: &'a Cancel) -> Self {
        Self { cancel, deadline: Instant::now().checked_add(ctx.timeout), limit: ctx.timeout }
    }

    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.is_late()
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// The result as far as it came, with what is to be said about it.
    fn finish(
        &self,
        ctx: &Context,
        tool: &str,
        output: Bounded,
        notes: &[String],
    ) -> Result<Output, Failure> {
        let late = self.is_late();
        let mut notes = notes.to_vec();
        if self.cancel.is_cancelled() {
            return Err(Failure::interrupted());
        }
        if late {
            notes.push(format!("[... {tool} timed out after {} seconds ...]", self.limit.as_secs_f64()));
        }
        let notes = notes.join("\n");
        let head = if late { "Error: " } else { "" };
        let room = ctx.max_result.saturating_sub(notes.len() + head.len() + 1);
        let text = output.finish(room, &|text| masked(ctx, text));
        let gap = if notes.is_empty() || text.is_empty() { "" } else { "\n" };
        Ok(Output { is_error: late, ..Output::plain(format!("{head}{text}{gap}{notes}")) })
    }
}

/// Where a search starts, and how its files are shown.
struct Root {
    real: PathBuf,
    prefix: PathBuf,
    is_file: bool,
}

impl Root {
    /// `bare`: no path was given, so files are shown as `./…`.
    fn open(ground: &Ground<'_>, path: &str, bare: bool) -> Result<Self, Failure> {
        let real = ground.judged(path, Access::Read)?;
        let metadata = std::fs::symlink_metadata(&real).map_err(|error| about(path, &error))?;
        let prefix = PathBuf::from(if bare && path.is_empty() { "." } else { path });
        Ok(Self { real, prefix, is_file: !metadata.is_dir() })
    }

    /// The path as ripgrep would print it.
    fn shown(&self, file: &Path) -> PathBuf {
        match file.strip_prefix(&self.real) {
            Ok(below) => self.prefix.join(below),
            Err(_) => file.to_path_buf(),
        }
    }

    /// All files below that are neither ignored nor hidden nor closed, sorted by the bytes of their path.
    fn walk(&self, ground: &Ground<'_>, glob: Option<&str>, clock: &Clock<'_>) -> Result<Found, Failure> {
        let globs = globs(&self.real, glob)?;
        let found = Mutex::new(Found::default());
        let closed = Arc::new(AtomicU64::new(0));
        self.walker(ground, glob, &globs, &closed).run(|| {
            let (found, globs) = (&found, &globs);
            Box::new(move |entry| {
                if clock.is_over() {
                    return WalkState::Quit;
                }
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        lock(found).errors.push(error.to_string());
                        return WalkState::Continue;
                    }
                };
                let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
                if !is_file || globs.matched(entry.path(), false).is_ignore() {
                    return WalkState::Continue;
                }
                let mut found = lock(found);
                if found.files.len() >= MAX_FILES {
                    found.too_many = true;
                    return WalkState::Quit;
                }
                found.files.push(entry.into_path());
                WalkState::Continue
            })
        });
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.closed = closed.load(Ordering::Relaxed);
        found.files.sort_unstable_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
        Ok(found)
    }

    fn walker(
        &self,
        ground: &Ground<'_>,
        glob: Option<&str>,
        globs: &Override,
        closed: &Arc<AtomicU64>,
    ) -> ignore::WalkParallel {
        // A pattern that names something hidden wants it; .git only when it says so itself.
        let names = |wanted: &dyn Fn(&str) -> bool| glob.is_some_and(|glob| glob.split('/').any(wanted));
        let wants_hidden = names(&|part| part.starts_with('.') || part.starts_with("{."));
        let wants_git = names(&|part| part.starts_with(".git") && !part.contains("ignore"));
        let (places, mode) = (ground.places.clone(), ground.ctx.mode);
        let (globs, closed) = (globs.clone(), Arc::clone(closed));
        WalkBuilder::new(&self.real)
            .hidden(!wants_hidden)
            .add_custom_ignore_filename(".rgignore")
            .threads(threads())
            .filter_entry(move |entry| {
                let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                if entry.depth() == 0 {
                    return true;
                }
                if is_dir && entry.file_name() == ".git" && !wants_git {
                    return false;
                }
                if globs.matched(entry.path(), is_dir).is_ignore() {
                    return false;
                }
                let open = places.judge(mode, entry.path(), Access::Read).is_ok();
                closed.fetch_add(u64::from(!open), Ordering::Relaxed);
                open
            })
            .build_parallel()
    }
}

fn globs(root: &Path, glob: Option<&str>) -> Result<Override, Failure> {
    let invalid = |error: ignore::Error| Failure::new(format!("invalid glob: {error}"));
    let mut builder = OverrideBuilder::new(root);
    if let Some(glob) = glob {
        builder.add(glob).map_err(invalid)?;
    }
    builder.build().map_err(invalid)
}

/// What a walk found.
#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    errors: Vec<String>,
    closed: u64,
    too_many: bool,
}

impl Found {
    fn notes(&self, closed: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if closed && self.closed > 0 {
            notes.push(format!("[... {} closed by the safety policy, not searched ...]", self.closed));
        }
        if let Some(error) = self.errors.first() {
            let more = self.errors.len() - 1;
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            notes.push(format!("[... not read: {error}{more} ...]"));
        }
        if self.too_many {
            notes.push(format!("[... stopped after {MAX_FILES} files ...]"));
        }
        notes
    }
}

/// One Grep.
struct Job<'a> {
    matcher: RegexMatcher,
    context: usize,
    root: &'a Root,
    clock: &'a Clock<'a>,
    ctx: &'a Context,
}

impl Job<'_> {
    fn searcher(&self) -> Searcher {
        // As rg: a file that was named is searched through, one that was found is left at its first NUL.
        let binary = if self.root.is_file { BinaryDetection::convert(0) } else { BinaryDetection::quit(0) };
        SearcherBuilder::new()
            .line_number(true)
            .binary_detection(binary)
            .before_context(self.context)
            .after_context(self.context)
            .heap_limit(Some(MAX_LINE))
            .build()
    }

    /// The printed matches of one file; empty when there are none.
    fn search(&self, file: &Path, notes: &mut Vec<String>) -> Vec<u8> {
        let shown = self.root.shown(file);
        let failed =
            |error: &io::Error| format!("[... not searched: {}: {} ...]", shown.display(), reason(error));
        let opened = open_exactly(file, OFlag::O_RDONLY | OFlag::O_NONBLOCK).map(File::from);
        let opened = match opened.and_then(|opened| opened.metadata().map(|metadata| (opened, metadata))) {
            Ok((opened, metadata)) if metadata.is_file() => opened,
            // It was a file when it was found.
            Ok(_) => return Vec::new(),
            Err(error) => {
                notes.push(failed(&error));
                return Vec::new();
            }
        };
        let mut printer = StandardBuilder::new()
            .heading(!self.root.is_file)
            .path(!self.root.is_file)
            .build_no_color(Capped { bytes: Vec::new(), max: 2 * self.ctx.max_result, full: false });
        let reader = Watched { file: opened, clock: self.clock };
        let searched = self.searcher().search_reader(
            &self.matcher,
            reader,
            printer.sink_with_path(&self.matcher, &shown),
        );
        let mut out = std::mem::take(printer.get_mut().get_mut());
        if let Err(error) = searched
            && !out.full
            && !self.clock.is_over()
        {
            notes.push(failed(&error));
        }
        if out.full {
            out.bytes.extend_from_slice(b"\n[... more matches in this file ...]\n");
        }
        out.bytes
    }

    /// Searches side by side, and hands the results on in order.
    fn search_all(&self, files: &[PathBuf], output: &mut Bounded, notes: &mut Vec<String>) {
        let batches: Vec<&[PathBuf]> = files.chunks(BATCH).collect();
        let next = AtomicUsize::new(0);
        let emitted = (Mutex::new(0_usize), Condvar::new());
        let workers = threads().min(batches.len());
        let mut errors = Vec::new();
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..workers {
                let (sender, next, emitted, batches) = (sender.clone(), &next, &emitted, &batches);
                scope.spawn(move || {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(batch) = batches.get(number) else { return };
                        // Results wait for their turn in memory: nobody may run too far ahead.
                        let mut done = lock(&emitted.0);
                        while number > *done + AHEAD {
                            done = emitted.1.wait(done).unwrap_or_else(PoisonError::into_inner);
                        }
                        drop(done);
                        if sender.send((number, self.search_batch(batch))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let mut waiting = BTreeMap::new();
            let mut first = true;
            for (number, result) in receiver {
                waiting.insert(number, result);
                let mut done = lock(&emitted.0);
                while let Some((blocks, mut batch_errors)) = waiting.remove(&*done) {
                    for block in blocks {
                        if !std::mem::take(&mut first) {
                            output.push(b"\n");
                        }
                        output.push(&block);
                    }
                    errors.append(&mut batch_errors);
                    *done += 1;
                }
                emitted.1.notify_all();
            }
        });
        let more = errors.len().saturating_sub(5);
        notes.extend(errors.into_iter().take(5));
        if more > 0 {
            notes.push(format!("[... {more} more files not searched ...]"));
        }
    }

    fn search_batch(&self, files: &[PathBuf]) -> (Vec<Vec<u8>>, Vec<String>) {
        let mut errors = Vec::new();
        let blocks = files
            .iter()
            .take_while(|_| !self.clock.is_over())
            .map(|file| self.search(file, &mut errors))
            .filter(|block| !block.is_empty())
            .collect();
        (blocks, errors)
    }
}

/// A file whose reading ends with the search's time.
struct Watched<'a> {
    file: File,
    clock: &'a Clock<'a>,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.clock.is_over() {
            return Err(io::Error::other("the search is over"));
        }
        self.file.read(buffer)
    }
}

/// The matches of one file, up to a limit: then its search ends.
#[derive(Default)]
struct Capped {
    bytes: Vec<u8>,
    max: usize,
    full: bool,
}

impl io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() > self.max {
            self.full = true;
            return Err(io::Error::other("enough"));
        }
        // What one line holds beyond the limit is never shown.
        let room = (self.max + 1).saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(8)
}

/// A poisoned lock only means that another thread panicked; the data here stays whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::policy::Mode;
    use crate::tools::testing::World;

    /// A tree with everything that rg has a rule for.
    fn forest() -> World {
        let world = World::new();
        std::fs::create_dir(world.path(".git")).unwrap();
        for (name, content) in [
            (".git/config", "needle\n"),
            (".gitignore", "*.log\n/target\n"),
            (".hidden/x.rs", "needle\n"),
            ("target/a.rs", "needle\n"),
            ("x.log", "needle\n"),
            ("a.rs", "no\nneedle one\nno\nno\nno\nno\nneedle two\n"),
            ("a/b.rs", "needle\n"),
            ("a/c.txt", "nothing\n"),
            ("a-b.rs", "no\n"),
            ("sub/deep/d.rs", "x\r\nneedle\r\n"),
            ("crlf.txt", "needle\r\n"),
            ("last.txt", "needle"),
            ("nul-late.bin", "needle\nx\n\0\n"),
        ] {
            world.put(name, content);
        }
        symlink("a/b.rs", world.path("link.rs")).unwrap();
        world
    }

    fn rg(world: &World, args: &[&str]) -> Option<String> {
        let output = std::process::Command::new("rg")
            .args(args)
            .current_dir(&world.ctx.cwd)
            .env_remove("RIPGREP_CONFIG_PATH")
            .stdin(std::process::Stdio::null())
            .output()
            .ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
    }

    #[test]
    fn glob_lists_as_rg_does_sorted_by_bytes() {
        let world = forest();
        assert_eq!(
            world.ok("Glob", json!({"pattern":"*.rs"})),
            "./a-b.rs\n./a.rs\n./a/b.rs\n./sub/deep/d.rs"
        );
        assert_eq!(world.ok("Glob", json!({"pattern":"a/*"})), "./a/b.rs\n./a/c.txt");
        assert_eq!(world.ok("Glob", json!({"pattern":"./sub/**/*.rs"})), "./sub/deep/d.rs");
        assert_eq!(world.ok("Glob", json!({"pattern":"*.{txt,bin}","path":"a"})), "a/c.txt");
        assert_eq!(world.ok("Glob", json!({"pattern":"**/*.rs","path":"sub"})), "sub/deep/d.rs");
        let absolute = world.ctx.cwd.display().to_string();
        assert_eq!(world.ok("Glob", json!({"pattern":format!("{absolute}/a/*.rs")})), "./a/b.rs");
        assert_eq!(
            world.ok("Glob", json!({"pattern":"*.rs","path":format!("{absolute}/a")})),
            format!("{absolute}/a/b.rs")
        );
        assert_eq!(world.ok("Glob", json!({"pattern":"../w/a/*.rs"})), "../w/a/b.rs");
        assert_eq!(world.ok("Glob", json!({"pattern":"nope"})), "");
    }

    #[test]
    fn ignored_and_hidden_files_are_left_out_unless_they_are_named() {
        let world = forest();
        let all = world.ok("Glob", json!({"pattern":"**/*"}));
        assert!(
            !all.contains("target")
                && !all.contains(".git")
                && !all.contains("x.log")
                && !all.contains(".hidden"),
            "{all}"
        );
        assert_eq!(world.ok("Glob", json!({"pattern":".hidden/**"})), "./.hidden/x.rs");
        assert_eq!(world.ok("Glob", json!({"pattern":".gitignore"})), "./.gitignore");
        assert_eq!(world.ok("Glob", json!({"pattern":".git/*"})), "./.git/config");
        assert_eq!(world.ok("Glob", json!({"pattern":"*.rs","path":"target"})), "target/a.rs");
        assert!(!world.ok("Glob", json!({"pattern":"!a"})).contains("./a/"));
    }

    #[test]
    fn bad_places_and_patterns_are_named() {
        let world = forest();
        assert_eq!(world.err("Glob", json!({"pattern":""})), "Error: no pattern provided");
        assert_eq!(world.err("Glob", json!({"pattern":"*","path":"nope"})), "Error: file not found: nope");
        assert_eq!(world.err("Glob", json!({"pattern":"*","path":"a.rs"})), "Error: a.rs is not a directory");
        assert!(world.err("Glob", json!({"pattern":"a[b"})).starts_with("Error: invalid glob: "));
        assert!(world.err("Grep", json!({"pattern":"(a"})).starts_with("Error: invalid pattern: "));
        assert!(world.err("Grep", json!({"pattern":"a\nb"})).starts_with("Error: invalid pattern: "));
        assert_eq!(world.err("Grep", json!({"pattern":"a","path":"nope"})), "Error: file not found: nope");
        assert_eq!(world.err("Grep", json!({"path":"a"})), "Error: no pattern provided");
    }

    #[test]
    fn grep_prints_as_rg_does() {
        let world = forest();
        assert_eq!(
            world.ok("Grep", json!({"pattern":"needle"})),
            "./a.rs\n2:needle one\n7:needle two\n\n./a/b.rs\n1:needle\n\n./crlf.txt\n1:needle\r\n\n./last.txt\n1:needle\n\n\
             ./sub/deep/d.rs\n2:needle\r"
        );
        assert_eq!(world.ok("Grep", json!({"pattern":"needle","path":"a.rs"})), "2:needle one\n7:needle two");
        assert_eq!(
            world.ok("Grep", json!({"pattern":"NEEDLE|one$","path":"a.rs","context":"1"})),
            "1-no\n2:needle one\n3-no"
        );
        assert_eq!(
            world.ok("Grep", json!({"pattern":"needle","glob":"*.rs","path":"a"})),
            "a/b.rs\n1:needle"
        );
        assert_eq!(world.ok("Grep", json!({"pattern":"absent"})), "");
        let Some(_) = rg(&world, &["--version"]) else { return };
        let same = ["-n", "--heading", "--color", "never", "--sort", "path"];
        for (args, input) in [
            (&["-C1", "needle", "a"][..], json!({"pattern":"needle","path":"a","context":1})),
            (&["-C2", "needle", "./sub"], json!({"pattern":"needle","path":"./sub","context":2})),
            (&["-C1", "needle", "a.rs"], json!({"pattern":"needle","path":"a.rs","context":1})),
            (&["needle", "nul-late.bin"], json!({"pattern":"needle","path":"nul-late.bin"})),
            (&["-g", "*.txt", "need", "./"], json!({"pattern":"need","path":"./","glob":"*.txt"})),
        ] {
            let theirs = rg(&world, &[&same[..], args].concat()).unwrap();
            assert_eq!(world.ok("Grep", input), theirs, "{args:?}");
        }
        for (args, input) in [
            (["--files", "--sort", "path", "-g", "*.rs", "./"], json!({"pattern":"*.rs","path":"./"})),
            (["--files", "--sort", "path", "-g", "*.txt", "a"], json!({"pattern":"*.txt","path":"a"})),
        ] {
            let mut theirs: Vec<String> = rg(&world, &args).unwrap().lines().map(str::to_owned).collect();
            theirs.sort_unstable();
            assert_eq!(world.ok("Glob", input), theirs.join("\n"), "{args:?}");
        }
    }

    #[test]
    fn many_files_come_in_order_and_within_the_limit() {
        let mut world = World::new();
        for number in 0..400 {
            world.put(&format!("d{}/f{number:03}", number % 7), format!("needle {number}\n"));
        }
        let output = world.ok("Grep", json!({"pattern":"needle"}));
        let names: Vec<&str> = output.lines().filter(|line| line.starts_with("./")).collect();
        assert_eq!(names.len(), 400);
        assert!(names.is_sorted());
        world.ctx.max_result = 500;
        let output = world.ok("Grep", json!({"pattern":"needle"}));
        assert!(output.len() <= 500 && output.contains("truncated") && output.contains("needle 0"));
        world.put("one", "needle\n".repeat(10_000));
        assert!(world.ok("Grep", json!({"pattern":"needle","path":"one"})).len() <= 500);
    }

    /// CASES F3.
    #[test]
    fn a_name_that_is_no_text_gets_a_replacement_mark() {
        let world = World::new();
        let name = OsStr::from_bytes(b"bad\xffname");
        std::fs::write(world.ctx.cwd.join(name), "needle\n").unwrap();
        assert_eq!(world.ok("Glob", json!({"pattern":"*"})), "./bad\u{fffd}name");
        assert_eq!(world.ok("Grep", json!({"pattern":"needle"})), "./bad\u{fffd}name\n1:needle");
    }

    /// CASES O9: what is closed is neither entered nor searched.
    #[test]
    fn closed_places_are_left_out_and_said() {
        let mut world = World::new();
        world.put("server.key", "needle\n");
        world.put("ok", "needle\n");
        symlink(world.root().join("home"), world.path("out")).unwrap();
        let output = world.ok("Grep", json!({"pattern":"needle"}));
        assert_eq!(output, "./ok\n1:needle\n[... 1 closed by the safety policy, not searched ...]");
        assert!(world.err("Grep", json!({"pattern":"needle","path":"server.key"})).contains("required=4000"));
        // The home as working directory: the agent's own files and the keys stay closed.
        world.ctx.cwd = world.ctx.home.clone().unwrap();
        std::fs::create_dir_all(world.ctx.cwd.join(".ssh")).unwrap();
        std::fs::write(world.ctx.cwd.join(".ssh/config"), "x").unwrap();
        std::fs::write(world.ctx.session_dir.join("events.jsonl"), "x").unwrap();
        for pattern in [".ssh/*", ".bash-agent/**", "**/.*/**"] {
            assert_eq!(world.ok("Glob", json!({ "pattern": pattern })), "", "{pattern}");
        }
        world.ctx.mode = Mode::NONE;
        assert!(world.err("Glob", json!({"pattern":"*"})).contains("required=0004 allowed=0000"));
    }

    #[test]
    fn an_interrupt_ends_a_search() {
        let world = forest();
        let cancel = Cancel::new().unwrap();
        cancel.cancel();
        for input in [json!({"pattern":"needle"}), json!({"pattern":"needle","path":"a.rs"})] {
            assert_eq!(world.run_with("Grep", input, &cancel).content, "Error: interrupted");
        }
        assert_eq!(world.run_with("Glob", json!({"pattern":"*"}), &cancel).content, "Error: interrupted");
    }

    #[test]
    fn a_search_ends_at_the_time_limit() {
        let mut world = forest();
        world.ctx.timeout = Duration::ZERO;
        assert_eq!(
            world.err("Grep", json!({"pattern":"needle"})),
            "Error: [... Grep timed out after 0 seconds ...]"
        );
    }
}
