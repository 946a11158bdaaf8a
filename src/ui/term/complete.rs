//! What the word under the cursor may become: a `/command`, or a file after `@`.

use std::path::{Path, PathBuf};

/// One way to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// What takes the place of the word.
    pub(super) text: String,
    /// What it is, for the person.
    pub(super) about: String,
}

/// What may be typed at a place, and which bytes of the text it replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// First byte of the word.
    pub(super) start: usize,
    /// Never empty.
    pub(super) candidates: Vec<Candidate>,
}

/// Entries of a directory beyond this are not looked at.
const MOST_ENTRIES: usize = 5_000;

/// Where candidates come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Command words with their arguments and what they do.
    pub commands: Vec<(String, String)>,
    /// Names for the argument of a command: `/skill`.
    pub arguments: Vec<(String, Vec<String>)>,
    /// Where relative paths start.
    pub cwd: PathBuf,
    /// For `~/`.
    pub home: Option<PathBuf>,
}

impl Sources {
    /// What the text before the cursor (`text[..at]`) may become; `None` when it is nothing that can be completed.
    pub(super) fn complete(&self, text: &str, at: usize) -> Option<Completion> {
        let before = &text[..at];
        if let Some(word) = before.strip_prefix('/').filter(|word| !word.contains(char::is_whitespace)) {
            return completion(0, self.commands(word));
        }
        if let Some((command, argument)) = before.split_once(' ').filter(|(c, _)| c.starts_with('/')) {
            let names = self.arguments.iter().find(|(name, _)| *name == command).map(|(_, names)| names);
            if let Some(names) = names {
                let fits = |name: &&String| name.starts_with(argument);
                let all = names.iter().filter(fits).map(|name| candidate(name, "")).collect();
                return completion(command.len() + 1, all);
            }
            if matches!(command, "/export" | "/image") {
                return completion(command.len() + 1, self.files(argument, "", ""));
            }
        }
        self.after_at(before)
    }

    fn commands(&self, word: &str) -> Vec<Candidate> {
        let fits = self.commands.iter().filter(|(name, _)| name.trim_start_matches('/').starts_with(word));
        fits.map(|(name, about)| candidate(name, about)).collect()
    }

    /// A path after an `@` that begins a word; with blanks it stands in double quotes.
    fn after_at(&self, before: &str) -> Option<Completion> {
        let start = match before.rfind("@\"").filter(|at| !before[at + 2..].contains('"')) {
            Some(at) => at,
            None => {
                let word = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
                // The blank may take several bytes.
                let word = (word..=before.len()).find(|at| before.is_char_boundary(*at))?;
                before[word..].starts_with('@').then_some(word)?
            }
        };
        let begins_word = before[..start].chars().next_back().is_none_or(char::is_whitespace);
        let path = before[start + 1..].trim_start_matches('"');
        let all = if begins_word { self.files(path, "@", "\"") } else { Vec::new() };
        completion(start, all)
    }

    /// Files whose path begins with `typed`, directories with a slash at their end.
    fn files(&self, typed: &str, lead: &str, quote: &str) -> Vec<Candidate> {
        let (dir, prefix) = typed.rfind('/').map_or(("", typed), |at| typed.split_at(at + 1));
        let place = match (dir.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.cwd.join(dir),
        };
        let mut names = names_in(&place);
        names.retain(|name| name.starts_with(prefix) && (!name.starts_with('.') || prefix.starts_with('.')));
        let write = |name: &String| {
            let path = format!("{dir}{name}");
            let quoted = path.contains(char::is_whitespace) && !quote.is_empty();
            let text = if quoted { format!("{lead}{quote}{path}{quote}") } else { format!("{lead}{path}") };
            candidate(&text, "")
        };
        names.iter().map(write).collect()
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .take(MOST_ENTRIES)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            if name.chars().any(char::is_control) {
                return None;
            }
            Some(if entry.path().is_dir() { format!("{name}/") } else { name })
        })
        .collect();
    names.sort_unstable();
    names
}

fn candidate(text: &str, about: &str) -> Candidate {
    Candidate { text: text.to_owned(), about: about.to_owned() }
}

fn completion(start: usize, candidates: Vec<Candidate>) -> Option<Completion> {
    (!candidates.is_empty()).then_some(Completion { start, candidates })
}

/// What all candidates begin with.
pub(super) fn common_prefix(candidates: &[Candidate]) -> &str {
    let Some(first) = candidates.first() else { return "" };
    let same = |other: &Candidate| {
        let pairs = first.text.char_indices().zip(other.text.chars());
        let end = pairs.take_while(|((_, a), b)| a == b).last().map_or(0, |((at, c), _)| at + c.len_utf8());
        end.min(first.text.len())
    };
    let end = candidates.iter().map(same).min().unwrap_or(0);
    &first.text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(completion: Option<Completion>) -> Vec<String> {
        completion.into_iter().flat_map(|c| c.candidates).map(|c| c.text).collect()
    }

    #[test]
    fn commands_and_paths_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["main.rs", "mäin.rs", "my file", ".hidden"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("src")).unwrap();
        std::fs::write(dir.path().join("src/lib.rs"), "").unwrap();
        let sources = Sources {
            commands: vec![("/help".into(), "all".into()), ("/compact".into(), String::new())],
            arguments: vec![("/skill".into(), vec!["deploy".into()])],
            cwd: dir.path().to_owned(),
            home: None,
        };
        let at_end = |text: &str| texts(sources.complete(text, text.len()));
        assert_eq!(at_end("/"), ["/help", "/compact"]);
        assert_eq!(at_end("/c"), ["/compact"]);
        assert_eq!(at_end("/skill d"), ["deploy"]);
        assert_eq!(at_end("/image s"), ["src/"]);
        assert_eq!(at_end("see @m"), ["@main.rs", "@\"my file\"", "@mäin.rs"]);
        assert_eq!(at_end("see @src/l"), ["@src/lib.rs"]);
        assert_eq!(at_end("see @\"my f"), ["@\"my file\""]);
        assert_eq!(at_end("mail me@m"), [""; 0]);
        assert_eq!(at_end("see @.h"), ["@.hidden"]);
        assert_eq!(at_end("漢　@sr"), ["@src/"]);
        let all: Vec<Candidate> = ["@mainä", "@mainö"].iter().map(|text| candidate(text, "")).collect();
        assert_eq!(common_prefix(&all), "@main");
    }
}
