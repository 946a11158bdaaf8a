//! What a command needs, as far as it can be told before it runs: its programs, redirections and substitutions, each
//! with scope and access (CONTRACT §12). What cannot be known counts as execute in the workspace; what a program
//! really does is held by the sandbox, not here.

mod arguments;
mod files;
mod git;
mod network;
mod programs;
mod scripts;
mod words;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use tree_sitter::{Node, Parser};

use super::mode::{Access, Mode, Places, Scope, is_runtime};
use words::Word;

/// Commands inside commands (`sh -c`, `eval`) are followed this deep.
const MAX_NESTING: u32 = 8;
/// Deeper trees are not walked: their depth is the stack's.
const MAX_DEPTH: u32 = 200;
/// Loops inside loops whose bodies are looked at twice: what the first round assigns counts in the second.
const MAX_TWICE: u32 = 3;

/// What is needed and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The bits.
    pub required: Mode,
    /// For people: `rm ../x: write external`.
    pub why: String,
}

/// The judgement on a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Every part that needs something, in the order of the command, each once.
    pub needs: Vec<Need>,
}

impl Verdict {
    /// All bits together.
    #[must_use]
    pub fn required(&self) -> Mode {
        self.needs.iter().fold(Mode::NONE, |mode, need| mode.union(need.required))
    }
}

/// What the judgement looks at besides the command.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The session's places.
    pub places: &'a Places,
    /// Where an absolute path really leads.
    pub resolve: &'a dyn Fn(&Path) -> PathBuf,
}

/// Judges a command as `bash -c` would run it in the working directory.
#[must_use]
pub fn classify(command: &str, view: &View<'_>) -> Verdict {
    let mut judge = Judge {
        view: *view,
        verdict: Verdict::default(),
        nesting: 0,
        part: String::new(),
        behind: HashMap::new(),
    };
    let mut state = State { cwd: Some(view.places.cwd.clone()), ..State::default() };
    judge.command_text(command, &mut state);
    judge.verdict
}

/// What the shell knows at a point of the command.
#[derive(Clone, Default)]
struct State {
    /// `None` after a `cd` to somewhere unknown.
    cwd: Option<PathBuf>,
    /// `None` for a variable whose value is not known. Those not named here come from outside: unknown too.
    variables: HashMap<String, Option<String>>,
    functions: HashSet<String>,
    /// Inside an `if`, a loop, a `case`: what is assigned may not be.
    conditional: bool,
    loops: u32,
}

struct Judge<'a> {
    view: View<'a>,
    verdict: Verdict,
    nesting: u32,
    /// The part of the command that is being looked at, for the reasons.
    part: String,
    /// Words that stand behind the redirections of a command, which is named by its node: `rm >f x`.
    behind: HashMap<usize, Vec<Word>>,
}

impl Judge<'_> {
    /// Parses and judges a text; one that cannot be parsed, or is nested too deep, is code that nobody knows.
    fn command_text(&mut self, text: &str, state: &mut State) {
        if self.nesting >= MAX_NESTING {
            self.unknown("commands nested too deep");
            return;
        }
        let mut parser = Parser::new();
        let tree = match parser.set_language(&tree_sitter_bash::LANGUAGE.into()) {
            Ok(()) => parser.parse(text, None),
            Err(_) => None,
        };
        let Some(tree) = tree else { return self.unknown("not parsed") };
        self.nesting += 1;
        let before = state.clone();
        self.walk(tree.root_node(), text, state, 0);
        if tree.root_node().has_error() {
            self.salvage(text, &before);
        }
        self.nesting -= 1;
    }

    /// The shell may understand what the grammar does not: every stretch between separators is judged as if it were a
    /// command. Too much is found this way rather than too little.
    fn salvage(&mut self, text: &str, state: &State) {
        self.part = String::new();
        self.unknown("not understood");
        for part in text.split([';', '|', '&', '\n', '(', ')', '`']) {
            self.part = part.trim().chars().take(60).collect();
            let mut words = Vec::new();
            let mut into_file = false;
            for word in words::rough(part, self.view.places) {
                match word.text.rfind('>') {
                    Some(at) if at + 1 == word.text.len() && word.known => into_file = true,
                    Some(at) => self.path(&word.from(at + 1), Access::Write, state),
                    None if std::mem::take(&mut into_file) => self.path(&word, Access::Write, state),
                    None => words.push(word),
                }
            }
            programs::judge(self, &words, &mut state.clone());
        }
    }

    fn need(&mut self, required: Mode, why: &str) {
        if required == Mode::NONE {
            return;
        }
        let why = match self.part.is_empty() {
            true => why.to_owned(),
            false => format!("{}: {why}", self.part),
        };
        let need = Need { required, why };
        if !self.verdict.needs.contains(&need) {
            self.verdict.needs.push(need);
        }
    }

    /// Something that only running it can tell.
    fn unknown(&mut self, why: &str) {
        self.need(Mode::of(Scope::Workspace, Access::Execute), why);
    }

    fn walk(&mut self, node: Node<'_>, text: &str, state: &mut State, depth: u32) {
        if depth > MAX_DEPTH {
            return self.unknown("nested too deep");
        }
        match node.kind() {
            "subshell" | "command_substitution" | "process_substitution" => {
                self.children(node, text, &mut state.clone(), depth);
            }
            "pipeline" => {
                for child in children(node) {
                    self.walk(child, text, &mut state.clone(), depth + 1);
                }
            }
            "if_statement" | "case_statement" => self.branches(node, text, state, depth),
            "while_statement" | "for_statement" | "c_style_for_statement" => {
                self.a_loop(node, text, state, depth)
            }
            "function_definition" => {
                // One that may not be defined must not hide the program of its name.
                if let Some(name) = node.child_by_field_name("name").filter(|_| !state.conditional) {
                    state.functions.insert(text[name.byte_range()].to_owned());
                }
                // Judged as if it were called: at once, and with nothing known about its variables.
                let mut inside = State { conditional: true, ..state.clone() };
                inside.variables.clear();
                self.children(node, text, &mut inside, depth);
            }
            "variable_assignment" => {
                self.part = excerpt(node.byte_range(), text);
                self.assignment(node, text, state, depth);
            }
            "declaration_command" | "unset_command" => self.declaration(node, text, state, depth),
            "command" => self.command(node, text, state, depth),
            "redirected_statement" => self.redirected(node, text, state, depth),
            "file_redirect" => self.redirect(node, text, state, depth),
            _ => self.children(node, text, state, depth),
        }
    }

    fn children(&mut self, node: Node<'_>, text: &str, state: &mut State, depth: u32) {
        for child in children(node) {
            self.walk(child, text, state, depth + 1);
        }
    }

    fn branches(&mut self, node: Node<'_>, text: &str, state: &mut State, depth: u32) {
        let before = std::mem::replace(&mut state.conditional, true);
        self.children(node, text, state, depth);
        state.conditional = before;
    }

    fn a_loop(&mut self, node: Node<'_>, text: &str, state: &mut State, depth: u32) {
        if let Some(name) = node.child_by_field_name("variable") {
            state.variables.insert(text[name.byte_range()].to_owned(), None);
        }
        state.loops += 1;
        let rounds = if state.loops <= MAX_TWICE { 2 } else { 1 };
        for _ in 0..rounds {
            self.branches(node, text, state, depth);
        }
        state.loops -= 1;
    }

    /// `name=value`, alone: the value is known from here on, if it can be.
    fn assignment(&mut self, node: Node<'_>, text: &str, state: &mut State, depth: u32) {
        self.children(node, text, state, depth);
        let Some(name) = node.child_by_field_name("name") else { return };
        let name = text[name.byte_range()].split('[').next().unwrap_or_default().to_owned();
        self.dangerous_variable(&name);
        let value = node.child_by_field_name("value");
        let plain = !text[node.byte_range()].contains("+=") && !state.conditional;
        let value = match value {
            None => Some(String::new()),
            Some(value) => match &words::expand(value, text, state, self.view.places)[..] {
                [Word { text, known: true, .. }] if plain => Some(text.clone()),
                _ => None,
            },
        };
        state.variables.insert(name, value.filter(|_| plain));
    }

    /// A variable that makes programs run other programs.
    fn dangerous_variable(&mut self, name: &str) {
        let starts = ["LD_", "GIT_", "PYTHON", "PERL5", "RUBY", "NODE_", "BASH_", "DYLD_", "LESS"];
        let names = [
            "PATH",
            "ENV",
            "IFS",
            "SHELLOPTS",
            "BASHOPTS",
            "PS4",
            "PROMPT_COMMAND",
            "EDITOR",
            "VISUAL",
            "PAGER",
        ];
        if names.contains(&name) || starts.iter().any(|start| name.starts_with(start)) {
            self.unknown(&format!("{name} decides what programs do"));
        }
    }

    fn declaration(&mut self, node: Node<'_>, text: &str, state: &mut State, depth: u32) {
        self.part = excerpt(node.byte_range(), text);
        self.children(node, text, state, depth);
        let is_unset = node.kind() == "unset_command";
        for child in children(node) {
            let words = match child.kind() {
                "variable_name" => vec![Word::known(&text[child.byte_range()])],
                kind if is_word(kind) => words::expand(child, text, state, self.view.places),
                _ => continue,
            };
            for word in words {
                if is_unset {
                    state.functions.remove(&word.text);
                    state.variables.insert(word.text, Some(String::new()));
                } else if let Some((name, _)) = word.text.split_once('=') {
                    // `export "PATH=."`
                    let name = name.split(['[', '+']).next().unwrap_or_default();
                    self.dangerous_variable(name);
                    state.variables.insert(name.to_owned(), None);
                }
            }
        }
    }

    /// A redirected statement. What stands behind its redirections belongs to the command before them.
    fn redirected(&mut self, node: Node<'_>, text: &str, state: &mut State, depth: u32) {
        let behind = self.words_behind(node, text, state, 0);
        if !behind.is_empty() {
            match node.child_by_field_name("body").and_then(last_command) {
                Some(command) => drop(self.behind.insert(command.id(), behind)),
                None => self.unknown("words behind a redirection"),
            }
        }
        self.children(node, text, state, depth);
    }

    /// The words that stand behind here-documents and the targets of redirections.
    fn words_behind(&self, node: Node<'_>, text: &str, state: &State, depth: u32) -> Vec<Word> {
        let mut words = Vec::new();
        if depth > MAX_DEPTH {
            return words;
        }
        for redirect in children(node) {
            let skipped = match redirect.kind() {
                "heredoc_redirect" => {
                    words.extend(self.words_behind(redirect, text, state, depth + 1));
                    0
                }
                "file_redirect" => 1,
                _ => continue,
            };
            let more = children(redirect).filter(|child| is_word(child.kind())).skip(skipped);
            words.extend(more.flat_map(|word| words::expand(word, text, state, self.view.places)));
        }
        words
    }

    /// One simple command: assignments before it, its words, its redirections, what is substituted inside.
    fn command(&mut self, node: Node<'_>, text: &str, state: &mut State, depth: u32) {
        let behind = self.behind.remove(&node.id());
        let mut words = Vec::new();
        for child in children(node) {
            match child.kind() {
                "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {
                    self.walk(child, text, state, depth + 1);
                }
                "variable_assignment" => {
                    self.part = excerpt(node.byte_range(), text);
                    self.assignment(child, text, &mut state.clone(), depth);
                }
                _ => {
                    self.children(child, text, &mut state.clone(), depth + 1);
                    if matches!(child.kind(), "command_substitution" | "process_substitution") {
                        self.walk(child, text, &mut state.clone(), depth + 1);
                    }
                    words.extend(words::expand(child, text, state, self.view.places));
                }
            }
        }
        words.extend(behind.into_iter().flatten());
        self.part = excerpt(node.byte_range(), text);
        programs::judge(self, &words, state);
    }

    fn redirect(&mut self, node: Node<'_>, text: &str, state: &mut State, depth: u32) {
        self.children(node, text, state, depth);
        let Some(destination) = node.child_by_field_name("destination") else { return };
        let operator = text[node.start_byte()..destination.start_byte()].chars();
        let operator: String = operator.filter(|c| matches!(c, '<' | '>' | '&' | '|')).collect();
        self.part = excerpt(node.start_byte()..destination.end_byte(), text);
        for word in words::expand(destination, text, state, self.view.places) {
            let is_descriptor = word.known && word.text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
            if matches!(operator.as_str(), ">&" | "<&") && is_descriptor {
                continue;
            }
            if operator.contains('<') {
                self.path(&word, Access::Read, state);
            }
            if operator.contains('>') {
                self.path(&word, Access::Write, state);
            }
        }
    }

    /// Judges one path.
    fn path(&mut self, word: &Word, access: Access, state: &State) {
        let verb = if access == Access::Write { "write" } else { "read" };
        if word.text.starts_with("/dev/tcp/") || word.text.starts_with("/dev/udp/") {
            let network =
                Mode::of(Scope::Network, Access::Read).union(Mode::of(Scope::Network, Access::Write));
            return self.need(network, "connects");
        }
        let Some(known) = word.known_directory() else {
            let both = Mode::of(Scope::Workspace, access).union(Mode::of(Scope::Workspace, Access::Execute));
            return self.need(both, &format!("{verb}s what is not known"));
        };
        if !word.known {
            self.unknown(&format!("{verb}s what is not known"));
        }
        let path = match &state.cwd {
            Some(cwd) => cwd.join(known),
            None if known.starts_with('/') => PathBuf::from(known),
            None => return self.unknown("the directory is not known"),
        };
        let (required, place) = self.required(&path, access);
        self.need(required, &format!("{verb} {place}"));
    }

    /// What an access to an absolute path needs, and the scope's name.
    fn required(&self, path: &Path, access: Access) -> (Mode, &'static str) {
        const FREE: [&str; 8] = [
            "/dev/null",
            "/dev/zero",
            "/dev/full",
            "/dev/random",
            "/dev/urandom",
            "/dev/tty",
            "/dev/stdout",
            "/dev/stderr",
        ];
        if FREE.iter().any(|free| path == Path::new(free))
            || path.starts_with("/dev/fd")
            || path == Path::new("/dev/stdin")
        {
            return (Mode::NONE, "nothing");
        }
        if access == Access::Read && is_own_process(path) {
            return (Mode::NONE, "nothing");
        }
        let real = (self.view.resolve)(path);
        if access == Access::Read && is_runtime(&real) && !self.view.places.is_secret(&real) {
            return (Mode::NONE, "nothing");
        }
        let scope = self.view.places.scope(&real);
        let name = match scope {
            Scope::System => "system",
            Scope::External => "external",
            Scope::Network => "network",
            Scope::Workspace => "workspace",
        };
        (Mode::of(scope, access), name)
    }

    /// Code runs in the working directory.
    fn executes(&mut self, why: &str, state: &State) {
        let scope = match &state.cwd {
            Some(cwd) => match self.view.places.scope(&(self.view.resolve)(cwd)) {
                // Of the system only the mode's own bit can tell.
                scope @ (Scope::Workspace | Scope::External | Scope::System) => scope,
                Scope::Network => Scope::Workspace,
            },
            None => Scope::Workspace,
        };
        self.need(Mode::of(scope, Access::Execute), why);
    }

    fn network(&mut self, access: Access, why: &str) {
        self.need(Mode::of(Scope::Network, access), why);
    }

    fn system(&mut self, why: &str) {
        let both = Mode::of(Scope::System, Access::Write).union(Mode::of(Scope::System, Access::Execute));
        self.need(both, why);
    }
}

/// `/proc/self` and what is private in it, but no way through it to elsewhere.
fn is_own_process(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix("/proc/self") else { return false };
    let mut names = below.components();
    let first = names.next().map(|name| name.as_os_str().to_owned());
    let ways = ["root", "cwd", "fd", "task", "map_files", "exe", "mem"];
    first.is_none_or(|first| !ways.iter().any(|way| first == *way))
        && !below.components().any(|name| name == std::path::Component::ParentDir)
}

fn children<'t>(node: Node<'t>) -> impl Iterator<Item = Node<'t>> + 't {
    (0..u32::try_from(node.child_count()).unwrap_or(u32::MAX)).filter_map(move |index| node.child(index))
}

/// The command that the redirections behind a statement belong to.
fn last_command(statement: Node<'_>) -> Option<Node<'_>> {
    let mut node = statement;
    while matches!(node.kind(), "pipeline" | "list" | "negated_command") {
        node = node.named_child(u32::try_from(node.named_child_count()).ok()?.checked_sub(1)?)?;
    }
    Some(node).filter(|node| node.kind() == "command")
}

fn is_word(kind: &str) -> bool {
    matches!(
        kind,
        "word"
            | "string"
            | "raw_string"
            | "ansi_c_string"
            | "concatenation"
            | "number"
            | "simple_expansion"
            | "expansion"
            | "command_substitution"
            | "process_substitution"
            | "arithmetic_expansion"
            | "brace_expression"
    )
}

/// The beginning of a part, on one line.
fn excerpt(range: std::ops::Range<usize>, text: &str) -> String {
    let part = text[range].split_whitespace().collect::<Vec<_>>().join(" ");
    match part.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &part[..end]),
        None => part,
    }
}

#[cfg(test)]
mod tests;
