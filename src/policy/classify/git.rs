//! git and its commands.

use super::Access;
use super::arguments::{Parsed, git_command, listed, parse};
use super::programs::Program;
use super::words::Word;

impl Program<'_, '_, '_> {
    pub(super) fn git(&mut self) {
        let mut rest = self.arguments;
        let outside = self.state.cwd.clone();
        while let Some(word) = rest.first().filter(|word| word.text.starts_with('-') || !word.known) {
            match word.text.as_str() {
                "-C" if rest.len() > 1 => {
                    let inner =
                        Program { judge: &mut *self.judge, arguments: &rest[1..2], state: &mut *self.state };
                    { inner }.change_directory();
                    rest = &rest[2..];
                }
                "-c" | "--config-env" | "--git-dir" | "--work-tree" | "--exec-path" | "--namespace" => {
                    self.judge.unknown("settings decide what git runs");
                    rest = rest.get(2..).unwrap_or_default();
                }
                "--version" | "--help" => return,
                text if word.known && !text.contains('=') => rest = &rest[1..],
                _ => {
                    self.judge.unknown("settings decide what git runs");
                    rest = &rest[1..];
                }
            }
        }
        if let Some((command, arguments)) = rest.split_first() {
            if command.known {
                Program { judge: &mut *self.judge, arguments, state: &mut *self.state }
                    .git_command(&command.text);
            } else {
                self.judge.unknown("the git command is not known");
            }
        }
        self.state.cwd = outside;
    }

    pub(super) fn git_command(mut self, command: &str) {
        // Only flags that list: then nothing is changed.
        let lists = |flags: &str| {
            let lists = |text: &str| {
                listed(flags, text) || text.starts_with("--sort") || text.starts_with("--format")
            };
            self.arguments.iter().all(|word| word.known && lists(&word.text))
        };
        let entry = git_command(command);
        match entry.as_ref().map_or("", |entry| entry.kind) {
            "git-reads" => {
                self.here(Access::Read);
                let outputs = self.arguments.iter().filter(|word| word.text.starts_with("--output="));
                self.write_all(&outputs.map(|word| word.from(9)).collect::<Vec<_>>());
                if self.arguments.iter().any(|word| word.text == "--no-index") {
                    self.read_all(&parse(self.arguments, "", "").operands);
                }
                if self.arguments.iter().any(|word| {
                    word.text.starts_with("-O")
                        || word.text.starts_with("--open-files-in-pager")
                        || word.text == "--ext-diff"
                }) {
                    self.judge.executes("runs another program", self.state);
                }
            }
            "git-lists" => {
                let flags = match command {
                    "branch" => "-a -r -v -vv --list -l --show-current --all",
                    "tag" => "-l --list -n",
                    "remote" => "-v show get-url",
                    _ => "list show -p",
                };
                self.here(Access::Read);
                if !lists(flags) || (command == "stash" && self.arguments.is_empty()) {
                    self.here(Access::Write);
                }
            }
            "git-config"
                if self.arguments.iter().any(|word| {
                    matches!(word.text.as_str(), "-l" | "--list" | "--get" | "--get-all" | "get" | "list")
                }) =>
            {
                self.here(Access::Read);
            }
            "git-config" => {
                if self.arguments.iter().any(|word| word.text == "--global") {
                    self.write_all(&[self.home_file(".gitconfig")]);
                } else if self.arguments.iter().any(|word| word.text == "--system") {
                    self.judge.system("works on the machine");
                } else {
                    self.here(Access::Write);
                    self.judge.executes("settings decide what git runs", self.state);
                }
            }
            "git-clone" => self.git_clone(),
            kind @ ("git-fetches" | "git-submodule") => {
                self.judge.network(Access::Read, "fetches");
                self.here(Access::Write);
                if kind == "git-submodule" {
                    self.judge.executes("runs commands", self.state);
                }
            }
            "git-sends" => {
                self.judge.network(Access::Read, "sends");
                self.judge.network(Access::Write, "sends");
                self.here(Access::Read);
            }
            "git-init" => {
                let parsed = self.git_parsed(command);
                if parsed.operands.is_empty() {
                    self.here(Access::Write);
                }
                self.write_all(&parsed.operands);
            }
            "git-writes" => {
                self.here(Access::Read);
                self.here(Access::Write);
            }
            kind @ ("git-exports" | "git-places") => {
                self.here(Access::Read);
                self.here(Access::Write);
                let parsed = self.git_parsed(command);
                self.write_all(&parsed.values("o output output-directory"));
                if kind == "git-places" {
                    self.write_all(parsed.operands.get(1..2).unwrap_or_default());
                }
            }
            "git-rebase"
                if !self.arguments.iter().any(|word| {
                    word.text.starts_with("-x") || word.text.starts_with("--exec") || !word.known
                }) =>
            {
                self.here(Access::Write);
            }
            _ => self.judge.executes("runs commands", self.state),
        }
    }

    fn git_parsed(&self, command: &str) -> Parsed {
        let (short, long) = git_command(command).map_or(("", ""), |entry| (entry.short, entry.long));
        parse(self.arguments, short, long)
    }

    pub(super) fn home_file(&self, name: &str) -> Word {
        match &self.judge.view.places.home {
            Some(home) => Word::known(&home.join(name).to_string_lossy()),
            None => Word::unknown(),
        }
    }

    pub(super) fn git_clone(&mut self) {
        let parsed = self.git_parsed("clone");
        if parsed.has("c config u upload-pack template") {
            self.judge.executes("settings decide what git runs", self.state);
        }
        if let Some(from) = parsed.operands.first() {
            if !from.known || (from.text.contains(':') && !from.text.starts_with("file://")) {
                self.judge.network(Access::Read, "fetches");
            } else {
                let start = if from.text.starts_with("file://") { 7 } else { 0 };
                self.judge.path(&from.from(start), Access::Read, self.state);
            }
        }
        match parsed.operands.get(1) {
            Some(to) => self.judge.path(to, Access::Write, self.state),
            None => self.here(Access::Write),
        }
    }
}
