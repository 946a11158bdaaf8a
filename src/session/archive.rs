//! Moving the lines that compaction drops from conversation.jsonl to the archive (CONTRACT §9): summary first, cut
//! last. A journal, compact.journal, says how to undo what a crash left unfinished, so that conversation and archive
//! together hold every line once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use super::conversation::Conversation;
use super::error::{SessionError, StorageError};
use super::files::{
    Durability, into_storage, open_append, open_append_again, read_small, remove, replace, sync_parent,
};
use super::meta::Meta;
use super::paths::{SessionDir, beside};
use crate::wire::json;

/// What a compaction was about to do.
#[derive(Debug, PartialEq, Eq)]
struct Journal {
    /// Bytes of the conversation before it.
    conversation: u64,
    /// Bytes of it that go to the archive.
    cut: u64,
    /// Bytes of the archive before it.
    archive: u64,
    /// `thinking_from` before it.
    thinking_from: u64,
    /// `results_from` before it.
    results_from: u64,
    /// The summary before it.
    summary: Vec<u8>,
}

/// Writes the summary, moves the first `cut` bytes of the conversation to the archive and replaces the conversation by
/// the rest. `cut` is where a line begins; 0 does nothing. Sets and stores the offsets in `meta`. When it fails the
/// session is as it was before.
pub fn compact(
    dir: &SessionDir,
    conversation: &mut Conversation,
    meta: &mut Meta,
    cut: u64,
    summary: &str,
) -> Result<(), StorageError> {
    if cut == 0 {
        return Ok(());
    }
    // An earlier one that failed could perhaps not be undone.
    recover(dir).map_err(into_storage)?;
    let source = check_cut(dir, conversation, cut)?;
    let archive = fs::metadata(dir.archive()).map_or(0, |file| file.len());
    let old_summary = read_small(&dir.summary())?.unwrap_or_default();
    let journal = Journal {
        conversation: conversation.len(),
        cut,
        archive,
        thinking_from: meta.thinking_from,
        results_from: meta.results_from,
        summary: old_summary,
    };
    // The journal knows a broken compaction by the conversation's length: over a power cut, too.
    source.sync_data().map_err(StorageError::at("sync", &dir.conversation()))?;
    replace(&dir.compact_journal(), journal.to_json().as_bytes(), Durability::Synced)?;
    meta.thinking_from = journal.conversation - cut;
    meta.results_from = journal.results_from.saturating_sub(cut);
    match move_lines(dir, &source, &journal, meta, summary) {
        Ok(kept) => {
            conversation.replaced_by(kept, journal.conversation - cut);
            // One that stays says at the next opening that all was done.
            let _ = remove(&dir.compact_journal());
            Ok(())
        }
        Err(error) => {
            meta.thinking_from = journal.thinking_from;
            meta.results_from = journal.results_from;
            // What cannot be undone now is undone at the next opening: the journal says how.
            let _ = undo(dir, &journal);
            Err(error)
        }
    }
}

/// The conversation for reading, once it is sure that `cut` is where one of its lines, not the first, begins.
fn check_cut(dir: &SessionDir, conversation: &Conversation, cut: u64) -> Result<File, StorageError> {
    let path = dir.conversation();
    let file = File::open(&path).map_err(StorageError::at("read", &path))?;
    let mut before = [0];
    let at_line =
        cut < conversation.len() && file.read_exact_at(&mut before, cut - 1).is_ok() && before == *b"\n";
    if !at_line {
        return Err(StorageError::at("cut", &path)(io::Error::other(format!(
            "no line begins at byte {cut}"
        ))));
    }
    Ok(file)
}

/// The steps, up to the renaming that makes them count; returns the new conversation, open for appending.
fn move_lines(
    dir: &SessionDir,
    source: &File,
    journal: &Journal,
    meta: &Meta,
    summary: &str,
) -> Result<File, StorageError> {
    let mut text = summary.trim_end_matches('\n').to_owned();
    text.push('\n');
    replace(&dir.summary(), text.as_bytes(), Durability::Synced)?;

    let path = dir.archive();
    let mut archive = open_append_again(&path)?;
    copy_range(source, 0..journal.cut, &mut archive).map_err(StorageError::at("write", &path))?;

    meta.store(dir)?;

    let path = dir.conversation();
    let temporary = beside(&path, ".tmp");
    remove(&temporary)?;
    let mut kept = open_append(&temporary).map_err(into_storage)?;
    let moved = copy_range(source, journal.cut..journal.conversation, &mut kept)
        .and_then(|()| fs::rename(&temporary, &path));
    moved.map_err(StorageError::at("write", &path))?;
    // Too late to fail: over a power cut the journal decides by what is there.
    let _ = sync_parent(&path);
    Ok(kept)
}

/// Appends a range of a file to another, synced.
fn copy_range(mut source: &File, range: std::ops::Range<u64>, target: &mut File) -> io::Result<()> {
    source.seek(SeekFrom::Start(range.start))?;
    let wanted = range.end - range.start;
    let copied = io::copy(&mut source.take(wanted), target)?;
    if copied != wanted {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    target.sync_all()
}

/// Puts back what a compaction had done before its last step.
fn undo(dir: &SessionDir, journal: &Journal) -> Result<(), StorageError> {
    remove(&beside(&dir.conversation(), ".tmp"))?;
    let path = dir.archive();
    let archive = open_append_again(&path)?;
    archive.set_len(journal.archive).map_err(StorageError::at("cut", &path))?;
    let now = read_small(&dir.summary())?.unwrap_or_default();
    if now != journal.summary {
        replace(&dir.summary(), &journal.summary, Durability::Synced)?;
    }
    if let Some(mut meta) = Meta::load(dir)?
        && (meta.thinking_from, meta.results_from) != (journal.thinking_from, journal.results_from)
    {
        meta.thinking_from = journal.thinking_from;
        meta.results_from = journal.results_from;
        meta.store(dir)?;
    }
    remove(&dir.compact_journal()).map(drop)
}

/// At opening: finishes or undoes a compaction that a crash broke off. Returns what to tell the user.
pub(super) fn recover(dir: &SessionDir) -> Result<Option<String>, SessionError> {
    let Some(content) = read_small(&dir.compact_journal())? else { return Ok(None) };
    let Some(journal) = Journal::parse(&content) else {
        // It is replaced atomically, so this is none of ours; it cannot say anything.
        remove(&dir.compact_journal())?;
        return Ok(Some("compact.journal could not be read and was removed".to_owned()));
    };
    if is_done(dir, &journal).map_err(StorageError::at("read", &dir.archive()))? {
        remove(&dir.compact_journal())?;
        return Ok(None);
    }
    let archive = fs::metadata(dir.archive()).map_or(0, |file| file.len());
    if archive > journal.archive + journal.cut {
        remove(&dir.compact_journal())?;
        return Ok(Some("a compaction broke off; the archive may hold some lines twice".to_owned()));
    }
    undo(dir, &journal)?;
    Ok(Some("a compaction that broke off was undone".to_owned()))
}

/// Whether the last step, the renaming, was done: then the dropped lines are no longer at the conversation's start.
fn is_done(dir: &SessionDir, journal: &Journal) -> io::Result<bool> {
    let conversation = File::open(dir.conversation())?;
    if conversation.metadata()?.len() < journal.conversation {
        return Ok(true);
    }
    let archive = OpenOptions::new().read(true).open(dir.archive())?;
    if archive.metadata()?.len() < journal.archive + journal.cut {
        return Ok(false);
    }
    Ok(!same_bytes(&conversation, 0, &archive, journal.archive, journal.cut)?)
}

fn same_bytes(a: &File, a_start: u64, b: &File, b_start: u64, length: u64) -> io::Result<bool> {
    let mut blocks = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut done = 0;
    while done < length {
        let count = usize::try_from(length - done).unwrap_or(usize::MAX).min(blocks.0.len());
        a.read_exact_at(&mut blocks.0[..count], a_start + done)?;
        b.read_exact_at(&mut blocks.1[..count], b_start + done)?;
        if blocks.0[..count] != blocks.1[..count] {
            return Ok(false);
        }
        done += count as u64;
    }
    Ok(true)
}

impl Journal {
    fn to_json(&self) -> String {
        let mut out = format!(
            "{{\"conversation\":{},\"cut\":{},\"archive\":{},\"thinking_from\":{},\"results_from\":{},\"summary\":",
            self.conversation, self.cut, self.archive, self.thinking_from, self.results_from
        )
        .into_bytes();
        json::string_into(&mut out, &json::clean(&self.summary));
        out.extend_from_slice(b"}\n");
        String::from_utf8(out).unwrap_or_default()
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let content = content.trim_ascii_end();
        let number = |key| std::str::from_utf8(json::member(content, key)?).ok()?.parse().ok();
        let summary = json::string(json::member(content, "summary")?)?.into_owned().into_bytes();
        let journal = Self {
            conversation: number("conversation")?,
            cut: number("cut")?,
            archive: number("archive")?,
            thinking_from: number("thinking_from")?,
            results_from: number("results_from").unwrap_or(0),
            summary,
        };
        (journal.cut <= journal.conversation).then_some(journal)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const LINES: [&str; 6] = [
        "{\"role\":\"user\",\"content\":\"one\"}\n",
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"1\"}]}\n",
        "not json \u{0}\r\n",
        "{\"role\":\"user\",\"content\":\"two\"}\n",
        "{\"role\":\"user\",\"content\":\"two\"}\n",
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"2\"}]}\n",
    ];

    struct Fixture {
        _temp: tempfile::TempDir,
        dir: SessionDir,
        conversation: Conversation,
        meta: Meta,
    }

    fn fixture() -> Fixture {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        fs::write(dir.conversation(), LINES.concat()).unwrap();
        fs::write(dir.archive(), "earlier\n").unwrap();
        fs::write(dir.summary(), "old\n").unwrap();
        let conversation = Conversation::open(&dir).unwrap();
        let meta = Meta::new(Path::new("/x"));
        meta.store(&dir).unwrap();
        Fixture { _temp: temp, dir, conversation, meta }
    }

    fn read(path: impl AsRef<Path>) -> String {
        String::from_utf8(fs::read(path).unwrap()).unwrap()
    }

    fn cut(lines: usize) -> u64 {
        LINES[..lines].concat().len() as u64
    }

    #[test]
    fn dropped_lines_go_to_the_archive_and_appends_to_the_new_file() {
        let mut f = fixture();
        compact(&f.dir, &mut f.conversation, &mut f.meta, cut(4), "new").unwrap();
        f.conversation.append_user("three").unwrap();
        assert_eq!(read(f.dir.archive()), format!("earlier\n{}", LINES[..4].concat()));
        assert_eq!(
            read(f.dir.conversation()),
            format!("{}{{\"role\":\"user\",\"content\":\"three\"}}\n", LINES[4..].concat())
        );
        assert_eq!(read(f.dir.summary()), "new\n");
        assert_eq!(f.meta.thinking_from, LINES[4..].concat().len() as u64);
        assert_eq!(Meta::load(&f.dir).unwrap().unwrap(), f.meta);
        assert!(!f.dir.compact_journal().exists());
    }

    #[test]
    fn a_cut_at_nothing_at_the_end_or_within_a_line_changes_nothing() {
        let mut f = fixture();
        compact(&f.dir, &mut f.conversation, &mut f.meta, 0, "new").unwrap();
        for at in [1, cut(6), cut(6) + 1, u64::MAX] {
            compact(&f.dir, &mut f.conversation, &mut f.meta, at, "new").unwrap_err();
        }
        assert_eq!(read(f.dir.conversation()), LINES.concat());
        assert_eq!((read(f.dir.archive()).as_str(), read(f.dir.summary()).as_str()), ("earlier\n", "old\n"));
    }

    #[test]
    fn a_step_that_fails_leaves_the_session_as_it_was() {
        for blocked in ["summary.txt.tmp", "session.json.tmp", "conversation.jsonl.tmp"] {
            let mut f = fixture();
            // A directory in the way fails the step as a full disk would.
            fs::create_dir_all(f.dir.path().join(blocked).join("x")).unwrap();
            compact(&f.dir, &mut f.conversation, &mut f.meta, cut(4), "new").unwrap_err();
            fs::remove_dir_all(f.dir.path().join(blocked)).unwrap();
            recover(&f.dir).unwrap();
            assert_eq!(read(f.dir.conversation()), LINES.concat(), "{blocked}");
            assert_eq!(
                (read(f.dir.archive()).as_str(), read(f.dir.summary()).as_str()),
                ("earlier\n", "old\n")
            );
            f.conversation.append_user("three").unwrap();
            assert!(read(f.dir.conversation()).ends_with("three\"}\n"));
        }
    }

    /// Stops after each step, as a crash would, and opens again.
    #[test]
    fn a_crash_after_any_step_leaves_every_line_once() {
        // The fifth line is like the fourth, so bytes alone do not say whether a cut of four lines was done.
        for lines in [3, 4, 5] {
            for steps in 0..=4 {
                let f = fixture();
                let journal = Journal {
                    conversation: f.conversation.len(),
                    cut: cut(lines),
                    archive: "earlier\n".len() as u64,
                    thinking_from: 7,
                    results_from: 5,
                    summary: b"old\n".to_vec(),
                };
                fs::write(f.dir.compact_journal(), journal.to_json()).unwrap();
                let dropped = LINES[..lines].concat();
                if steps >= 1 {
                    fs::write(f.dir.summary(), "new\n").unwrap();
                }
                if steps >= 2 {
                    let part = if steps == 2 { &dropped[..dropped.len() / 2] } else { &dropped };
                    fs::write(f.dir.archive(), format!("earlier\n{part}")).unwrap();
                }
                let (thinking_from, results_from) = if steps >= 3 { (90, 0) } else { (7, 5) };
                Meta { thinking_from, results_from, ..f.meta.clone() }.store(&f.dir).unwrap();
                if steps >= 4 {
                    fs::write(f.dir.conversation(), LINES[lines..].concat()).unwrap();
                }
                recover(&f.dir).unwrap();
                assert_eq!(
                    format!("{}{}", read(f.dir.archive()), read(f.dir.conversation())),
                    format!("earlier\n{}", LINES.concat()),
                    "{lines} lines, {steps} steps"
                );
                assert_eq!(read(f.dir.summary()), if steps >= 4 { "new\n" } else { "old\n" });
                let meta = Meta::load(&f.dir).unwrap().unwrap();
                let offsets = (meta.thinking_from, meta.results_from);
                assert_eq!(offsets, if steps >= 4 { (90, 0) } else { (7, 5) });
                assert!(!f.dir.compact_journal().exists());
                assert_eq!(recover(&f.dir).unwrap(), None);
            }
        }
    }
}
