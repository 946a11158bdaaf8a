//! What known programs do with their arguments.

use std::path::{Component, Path, PathBuf};

use super::arguments::{Entry, Parsed, parse, program};
use super::words::Word;
use super::{Access, Judge, State, is_runtime};

/// Judges one simple command.
pub(super) fn judge(judge: &mut Judge<'_>, mut words: &[Word], state: &mut State) {
    const OPENING: [&str; 9] = ["if", "then", "elif", "else", "while", "until", "do", "!", "{"];
    // Where compound commands are not understood, their words stand before those of a command.
    while words.len() > 1 && OPENING.contains(&words[0].text.as_str()) {
        words = &words[1..];
    }
    let Some(first) = words.first() else { return };
    if !first.known || first.text.is_empty() {
        return judge.unknown("the program is not known");
    }
    let arguments = &words[1..];
    if state.functions.contains(&first.text) {
        // Its body was judged where it was defined.
        return;
    }
    let mut name = first.text.as_str();
    if name.contains('/') {
        let path = state.cwd.as_deref().unwrap_or(Path::new("/")).join(name);
        let real = (judge.view.resolve)(&path);
        // By its own name too, for what a link in /usr leads to; `..` says nothing about where that is.
        let is_named = is_runtime(&path) && !path.components().any(|name| name == Component::ParentDir);
        if !is_runtime(&real) && !is_named {
            judge.path(first, Access::Read, state);
            return judge.executes("runs a program of its own", state);
        }
        name = name.rsplit('/').next().unwrap_or(name);
    }
    if matches!(arguments, [only] if only.known && matches!(only.text.as_str(), "--version" | "--help" | "-V"))
        && !is_shell(name)
    {
        return;
    }
    Program { judge, arguments, state }.named(name);
}

fn is_shell(name: &str) -> bool {
    program(name).is_some_and(|entry| entry.kind == "shell")
}

/// One program's name is known; these are its arguments.
pub(super) struct Program<'j, 'v, 's> {
    pub(super) judge: &'j mut Judge<'v>,
    pub(super) arguments: &'s [Word],
    pub(super) state: &'s mut State,
}

impl Program<'_, '_, '_> {
    fn named(mut self, name: &str) {
        let Some(entry) = program(name) else {
            return match name.starts_with("mkfs.") {
                true => self.judge.system("works on the machine"),
                false => self.judge.executes("runs code", self.state),
            };
        };
        match entry.kind {
            "harmless" => {}
            "reads" | "lists" | "jq" => self.reads(&entry),
            "writes" | "packs" => {
                let parsed = self.parsed(&entry);
                let to_stdout = entry.kind == "packs" && parsed.has("c stdout to-stdout");
                if to_stdout { self.read_all(&parsed.operands) } else { self.write_all(&parsed.operands) }
            }
            "system" => self.judge.system("works on the machine"),
            "asks" => self.judge.network(Access::Read, "asks the network"),
            "talks" => self.talks(),
            "listens" => self.listens(),
            "cd" => self.change_directory(),
            "eval" | "trap" | "alias" => self.evaluates(entry.kind),
            "source" => {
                self.read_all(self.arguments.get(..1).unwrap_or_default());
                self.judge.executes("runs a file's commands", self.state);
            }
            "forgets" => self.forgets(),
            "shell" => self.shell(&entry),
            "wraps" | "wraps-one" | "command" | "becomes" => self.wrapper(&entry),
            "contains" => self.judge.executes("runs another program", self.state),
            "env" => self.env(),
            "xargs" => self.xargs(),
            _ => self.special(name, &entry),
        }
    }

    /// The arguments taken apart as the table says.
    pub(super) fn parsed(&self, entry: &Entry) -> Parsed {
        parse(self.arguments, entry.short, entry.long)
    }

    fn reads(&mut self, entry: &Entry) {
        let parsed = self.parsed(entry);
        let skip = usize::from(entry.kind == "jq" && !parsed.has("f from-file"));
        let operands = parsed.operands.get(skip..).unwrap_or_default();
        self.read_all(operands);
        if operands.is_empty() && entry.kind == "lists" {
            self.here(Access::Read);
        }
    }

    fn talks(&mut self) {
        self.judge.network(Access::Read, "uses the network");
        self.judge.network(Access::Write, "uses the network");
    }

    fn listens(&mut self) {
        let listens = self.arguments.iter().any(|word| {
            word.text.contains("LISTEN") || (word.text.starts_with('-') && word.text.contains('l'))
        });
        self.talks();
        if listens {
            self.judge.network(Access::Execute, "listens");
        }
    }

    pub(super) fn read_all(&mut self, words: &[Word]) {
        for word in words.iter().filter(|word| word.text != "-" || !word.known) {
            self.judge.path(word, Access::Read, self.state);
        }
    }

    pub(super) fn write_all(&mut self, words: &[Word]) {
        for word in words.iter().filter(|word| word.text != "-" || !word.known) {
            self.judge.path(word, Access::Write, self.state);
        }
    }

    /// The working directory itself.
    pub(super) fn here(&mut self, access: Access) {
        self.judge.path(&Word::known("."), access, self.state);
    }

    pub(super) fn inner(&mut self, words: &[Word]) {
        judge(self.judge, words, self.state);
    }

    pub(super) fn change_directory(&mut self) {
        let operand = self
            .arguments
            .iter()
            .find(|word| !(word.known && word.text.starts_with('-') && word.text.len() > 1));
        let target = match operand {
            None => self.judge.view.places.home.clone(),
            Some(word) if word.known && word.text != "-" && word.known_directory() == Some(&word.text) => {
                self.state
                    .cwd
                    .as_ref()
                    .map(|cwd| cwd.join(&word.text))
                    .or_else(|| Some(PathBuf::from(&word.text)).filter(|path| path.is_absolute()))
            }
            Some(_) => None,
        };
        let target = target.map(|path| (self.judge.view.resolve)(&path));
        // In a branch that may not be taken it is either of two.
        let certain = !self.state.conditional || target == self.state.cwd;
        self.state.cwd = target.filter(|_| certain);
        if self.state.cwd.is_none() {
            self.judge.unknown("goes to a directory that is not known");
        }
    }

    /// `eval`, `trap`, `alias`: text that is run as commands, now or later.
    fn evaluates(&mut self, name: &str) {
        let texts: Vec<&Word> = match name {
            "eval" => self.arguments.iter().collect(),
            "trap" => self.arguments.iter().filter(|word| !word.text.starts_with('-')).take(1).collect(),
            _ => self.arguments.iter().filter(|word| word.text.contains('=')).collect(),
        };
        if name == "trap" && self.arguments.first().is_some_and(|word| word.known && word.text == "-") {
            return;
        }
        if texts.iter().any(|word| !word.known) {
            return self.judge.unknown("runs what is not known");
        }
        if name == "alias" {
            for word in texts {
                let text = word.text.split_once('=').map_or("", |(_, value)| value).to_owned();
                self.judge.command_text(&text, &mut self.state.clone());
            }
        } else {
            let text = texts.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
            self.judge.command_text(&text, self.state);
        }
    }

    /// Variables that get what is read, or printed (`printf -v`).
    fn forgets(&mut self) {
        for word in self.arguments {
            self.state.variables.insert(word.text.clone(), None);
        }
    }

    /// `sh -c TEXT` is its text; anything else is a script.
    fn shell(&mut self, entry: &Entry) {
        let parsed = self.parsed(entry);
        if !parsed.has("c") {
            self.read_all(parsed.operands.get(..1).unwrap_or_default());
            return self.judge.executes("runs a script", self.state);
        }
        match parsed.operands.first() {
            Some(text) if text.known => {
                // $0, $1 … are what follows; variables that were not exported are not there.
                let mut state = State {
                    variables: Default::default(),
                    functions: Default::default(),
                    ..self.state.clone()
                };
                self.judge.command_text(&text.text, &mut state);
            }
            _ => self.judge.unknown("runs what is not known"),
        }
    }

    /// Programs that run another one, whose words follow theirs.
    fn wrapper(&mut self, entry: &Entry) {
        let asks = |word: &Word| matches!(word.text.as_str(), "-v" | "-V");
        match entry.kind {
            "command" if self.arguments.iter().any(asks) => return,
            "becomes" => self.judge.system("acts as another user"),
            _ => {}
        }
        let operands = usize::from(entry.kind == "wraps-one");
        let mut rest = self.arguments;
        while let Some(word) = rest.first() {
            let text = word.text.as_str();
            if !text.starts_with('-') || !word.known || text == "-" {
                break;
            }
            rest = &rest[1..];
            if text == "--" {
                break;
            }
            let takes = text.len() == 2 && entry.short.contains(&text[1..]);
            rest = rest.get(usize::from(takes)..).unwrap_or_default();
        }
        let rest = rest.get(operands..).unwrap_or_default();
        if !rest.is_empty() {
            self.inner(rest);
        }
    }

    fn env(&mut self) {
        let mut rest = self.arguments;
        while let Some(word) = rest.first() {
            let text = word.text.as_str();
            if !word.known && !text.contains('=') {
                break;
            }
            if let Some((name, _)) = text.split_once('=').filter(|_| !text.starts_with('-')) {
                self.judge.dangerous_variable(name);
            } else if matches!(text, "-u" | "-C" | "--unset" | "--chdir") {
                rest = rest.get(1..).unwrap_or_default();
                if matches!(text, "-C" | "--chdir") {
                    self.judge.unknown("runs elsewhere");
                }
            } else if text.starts_with("-S") || text.starts_with("--split-string") {
                return self.judge.unknown("runs what is not known");
            } else if !text.starts_with('-') {
                break;
            }
            rest = rest.get(1..).unwrap_or_default();
        }
        if !rest.is_empty() {
            self.inner(rest);
        }
    }

    /// The program with operands that nobody knows.
    fn xargs(&mut self) {
        let mut rest = self.arguments;
        while let Some(word) = rest.first().filter(|word| word.text.starts_with('-') && word.known) {
            let takes =
                matches!(word.text.as_str(), "-n" | "-P" | "-I" | "-d" | "-L" | "-s" | "-a" | "-E" | "-j");
            if let (true, Some(file)) = (word.text == "-a", rest.get(1)) {
                self.judge.path(file, Access::Read, self.state);
            }
            rest = rest.get(1 + usize::from(takes)..).unwrap_or_default();
        }
        if !rest.is_empty() {
            let words = [rest, &[Word::unknown()]].concat();
            self.inner(&words);
        }
    }

    /// Programs with rules of their own.
    fn special(&mut self, name: &str, entry: &Entry) {
        let parsed = self.parsed(entry);
        match entry.kind {
            "copies" => self.copies(name, &parsed),
            "dd" => self.dd(),
            "changes" => {
                let skip = usize::from(!parsed.has("reference"));
                self.write_all(parsed.operands.get(skip..).unwrap_or_default());
            }
            "grep" => self.grep(name, &parsed),
            "sed" => self.sed(&parsed),
            "awk" => self.awk(&parsed),
            "find" | "fd" => self.find(entry.kind, &parsed),
            "sort" => self.sort(&parsed),
            "uniq" => {
                self.read_all(parsed.operands.get(..1).unwrap_or_default());
                self.write_all(parsed.operands.get(1..).unwrap_or_default());
            }
            "split" => self.split(&parsed),
            "patch" => {
                for input in parsed.values("i input") {
                    self.judge.path(&input, Access::Read, self.state);
                }
                self.here(Access::Write);
                self.write_all(&parsed.operands);
            }
            "tar" => self.tar(entry),
            "zip" => {
                self.write_all(parsed.operands.get(..1).unwrap_or_default());
                self.read_all(parsed.operands.get(1..).unwrap_or_default());
            }
            "unzip" => self.unzip(&parsed),
            "curl" => self.curl(&parsed),
            "wget" => self.wget(&parsed),
            "rsync" => self.rsync(&parsed),
            "git" => self.git(),
            "packages" => self.packages(),
            "builds" => self.builds(),
            _ => self.judge.executes("runs code", self.state),
        }
    }
}
