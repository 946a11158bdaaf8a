//! Programs that work on files, with rules of their own.

use super::arguments::{Entry, Parsed, parse};
use super::programs::Program;
use super::words::Word;
use super::{Access, scripts};

impl Program<'_, '_, '_> {
    pub(super) fn copies(&mut self, name: &str, parsed: &Parsed) {
        let mut operands = parsed.operands.clone();
        if name == "install" && parsed.has("d directory") {
            return self.write_all(&operands);
        }
        let target = parsed.values("t target-directory").into_iter().next();
        match target.or_else(|| if operands.len() > 1 { operands.pop() } else { None }) {
            Some(target) => self.judge.path(&target, Access::Write, self.state),
            None => self.here(Access::Write),
        }
        let symbolic = name == "ln" && parsed.has("s symbolic");
        if name == "mv" {
            self.write_all(&operands);
        } else if !symbolic {
            self.read_all(&operands);
        }
        // A hard link is the file itself: what writes to the one writes to the other.
        if name == "ln" && !symbolic {
            self.write_all(&operands);
        }
    }

    pub(super) fn dd(&mut self) {
        for word in self.arguments {
            if word.text.starts_with("if=") {
                self.judge.path(&word.from(3), Access::Read, self.state);
            } else if word.text.starts_with("of=") {
                self.judge.path(&word.from(3), Access::Write, self.state);
            } else if !word.known {
                self.judge.unknown("an operand is not known");
            }
        }
    }

    pub(super) fn grep(&mut self, name: &str, parsed: &Parsed) {
        for file in parsed.values("f file") {
            self.judge.path(&file, Access::Read, self.state);
        }
        let given = parsed.has("e regexp f file files");
        let operands = parsed.operands.get(usize::from(!given)..).unwrap_or_default();
        self.read_all(operands);
        let recursive = parsed.has("r R recursive") || matches!(name, "rg" | "ag" | "ack");
        if operands.is_empty() && recursive {
            self.here(Access::Read);
        }
        if parsed.has("pre hostname-bin") {
            self.judge.executes("runs another program", self.state);
        }
    }

    /// (-i takes its suffix in the same word only.)
    pub(super) fn sed(&mut self, parsed: &Parsed) {
        let mut scripts: Vec<Word> = parsed.values("e expression");
        let from_file = parsed.has("f file");
        let mut operands = parsed.operands.clone();
        if scripts.is_empty() && !from_file && !operands.is_empty() {
            scripts.push(operands.remove(0));
        }
        for script in &scripts {
            let effects = if script.known {
                scripts::sed(&script.text)
            } else {
                scripts::Effects { runs: true, ..Default::default() }
            };
            for path in &effects.reads {
                self.judge.path(&Word::known(path), Access::Read, self.state);
            }
            for path in &effects.writes {
                self.judge.path(&Word::known(path), Access::Write, self.state);
            }
            if effects.runs {
                self.judge.executes("the script can run commands", self.state);
            }
        }
        if from_file {
            self.judge.executes("runs a script", self.state);
        }
        let in_place = parsed.options.iter().any(|(name, _)| name == "i" || name.starts_with("in-place"));
        self.read_all(&operands);
        if in_place {
            self.write_all(&operands);
        }
    }

    pub(super) fn awk(&mut self, parsed: &Parsed) {
        let mut operands = &parsed.operands[..];
        if parsed.has("f file i include E exec l load") {
            self.judge.executes("runs a script", self.state);
        } else if let Some((program, rest)) = operands.split_first() {
            operands = rest;
            if !program.known || scripts::awk(&program.text).runs {
                self.judge.executes("the program can write or run commands", self.state);
            }
        }
        let files: Vec<Word> = operands.iter().filter(|word| !word.text.contains('=')).cloned().collect();
        self.read_all(&files);
    }

    pub(super) fn find(&mut self, kind: &str, parsed: &Parsed) {
        let is_expression = |word: &Word| word.text.starts_with(['-', '(', '!', ')']);
        let mut starts: Vec<Word> = match kind {
            "find" => self.arguments.iter().take_while(|word| !is_expression(word)).cloned().collect(),
            // The first operand is the pattern.
            _ => parsed.operands.iter().skip(1).cloned().collect(),
        };
        if starts.is_empty() {
            starts.push(Word::known("."));
        }
        self.read_all(&starts);
        for (at, word) in self.arguments.iter().enumerate() {
            let next = self.arguments.get(at + 1);
            match word.text.as_str() {
                "-delete" => self.write_all(&starts),
                "-fprint" | "-fprint0" | "-fprintf" | "-fls" => {
                    self.write_all(next.map(std::slice::from_ref).unwrap_or_default());
                }
                "-newer" | "-samefile" | "-files0-from" => {
                    self.read_all(next.map(std::slice::from_ref).unwrap_or_default());
                }
                "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec" | "--exec-batch" => {
                    let inner = self.arguments[at + 1..]
                        .iter()
                        .take_while(|word| !matches!(word.text.as_str(), ";" | "+"));
                    let inner: Vec<Word> = inner.cloned().collect();
                    for start in &starts {
                        let words: Vec<Word> = inner
                            .iter()
                            .map(|word| {
                                if word.text == "{}" {
                                    start.clone()
                                } else if word.text.contains("{}") {
                                    Word::unknown()
                                } else {
                                    word.clone()
                                }
                            })
                            .collect();
                        self.inner(&words);
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn tar(&mut self, entry: &Entry) {
        // The first word may be options without a dash.
        let mut arguments = self.arguments.to_vec();
        if let Some(first) = arguments.first_mut().filter(|word| !word.text.starts_with('-')) {
            first.text.insert(0, '-');
        }
        // A value follows its bundle: `-czf FILE`, `cfC FILE DIR` is too rare.
        let parsed = parse(&arguments, entry.short, entry.long);
        let archive: Vec<Word> = parsed.values("f file");
        let runs =
            "I use-compress-program to-command checkpoint-action rsh-command info-script F new-volume-script";
        if parsed.has(runs) {
            self.judge.executes("runs another program", self.state);
        }
        let dirs: Vec<Word> = parsed.values("C directory");
        if parsed.has("x extract get") {
            self.read_all(&archive);
            if parsed.has("O to-stdout") {
            } else if dirs.is_empty() {
                self.here(Access::Write);
            } else {
                self.write_all(&dirs);
            }
            if parsed.has("P absolute-names") {
                self.judge.executes("writes wherever the archive says", self.state);
            }
        } else if parsed.has("t list") {
            self.read_all(&archive);
        } else {
            self.write_all(&archive);
            self.read_all(&dirs);
            self.read_all(&parsed.operands);
        }
    }

    pub(super) fn sort(&mut self, parsed: &Parsed) {
        self.read_all(&parsed.operands);
        for output in parsed.values("o output") {
            self.judge.path(&output, Access::Write, self.state);
        }
        if parsed.has("compress-program") {
            self.judge.executes("runs another program", self.state);
        }
    }

    pub(super) fn split(&mut self, parsed: &Parsed) {
        self.read_all(parsed.operands.get(..1).unwrap_or_default());
        self.here(Access::Write);
        self.write_all(parsed.operands.get(1..).unwrap_or_default());
        if parsed.has("filter") {
            self.judge.executes("runs another program", self.state);
        }
    }

    pub(super) fn unzip(&mut self, parsed: &Parsed) {
        self.read_all(parsed.operands.get(..1).unwrap_or_default());
        if parsed.has("l p t v z") {
            return;
        }
        match parsed.values("d").first() {
            Some(dir) => self.judge.path(dir, Access::Write, self.state),
            None => self.here(Access::Write),
        }
    }
}
