//! The system prompt (CONTRACT §10): sections in a fixed order, the same bytes from both runtimes for the same session,
//! and nothing in it that changes between two calls unless a file it shows changed.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::session::paths::SessionDir;
use crate::tools::Skills;
use crate::wire::json;

/// The tools as the model sees them, minified.
pub const TOOLS: &str = include_str!("../assets/tools.json");
/// The instruction of a summary call, with `{{max_tokens}}`.
pub const SUMMARY_INSTRUCTION: &str = include_str!("../assets/prompt/summary-instruction.md");

const IDENTITY: &str = include_str!("../assets/prompt/agent-identity.md");
const RULES: &str = include_str!("../assets/prompt/rules.md");
const USING_TOOLS: &str = include_str!("../assets/prompt/using-your-tools.md");
const SUB_AGENTS: &str = include_str!("../assets/prompt/sub-agent-guidance.md");
const TODO: &str = include_str!("../assets/prompt/todo-guidance.md");
const PLAN: &str = include_str!("../assets/prompt/plan-lifecycle-guidance.md");
const LANGUAGE: &str = include_str!("../assets/prompt/output-language.md");
const LANGUAGES: &str = include_str!("../assets/languages.tsv");

/// Where instructions are looked for, first found first taken, in the base directory and in the working directory.
const INSTRUCTION_FILES: &[&str] = &["AGENTS.md", "AGENT.md", "CLAUDE.md", ".claude/CLAUDE.md"];

/// An instruction file, plan or summary is shown up to this many bytes.
const MAX_SHOWN: usize = 100_000;

/// Our own tags: text from files may not open or close one.
const TAGS: &[&str] = &[
    "agent-identity",
    "environment",
    "rules",
    "using-your-tools",
    "sub-agent-guidance",
    "todo-guidance",
    "plan-lifecycle-guidance",
    "instruction-file",
    "skill-index",
    "selected-skills",
    "skill",
    "current-plan",
    "context-snapshot",
    "output-language",
];

/// What the prompt is made from.
pub struct Sources<'a> {
    /// `…/.bash-agent`.
    pub base: &'a Path,
    /// The session's files.
    pub session: &'a SessionDir,
    /// The physical working directory.
    pub cwd: &'a Path,
    /// `$HOME`.
    pub home: Option<&'a Path>,
    /// `lang` of the environment section.
    pub lang: &'a str,
    /// `shell` of the environment section.
    pub shell: &'a str,
    /// All skills there are.
    pub skills: &'a Skills,
    /// Those selected.
    pub selected: &'a [String],
}

/// The system prompt, and what to tell the user about files that could not be shown whole.
pub fn system(sources: &Sources<'_>) -> (String, Vec<String>) {
    let mut prompt = Prompt::default();
    prompt.section("agent-identity", "", IDENTITY);
    prompt.section("environment", "", &environment(sources));
    prompt.section("rules", "", RULES);
    prompt.section("using-your-tools", "", USING_TOOLS);
    prompt.section("sub-agent-guidance", "", SUB_AGENTS);
    prompt.section("todo-guidance", "", TODO);
    let plan = PLAN
        .replace("{{plan_draft}}", &sources.session.plan_draft().to_string_lossy())
        .replace("{{plan}}", &sources.session.plan().to_string_lossy());
    prompt.section("plan-lifecycle-guidance", "", &plan);
    let instructions = prompt.instructions(sources);
    prompt.section("instruction-files", "", &instructions);
    prompt.section("skill-index", "", &harmless(&sources.skills.index()));
    prompt.warnings.extend(sources.skills.warnings());
    let selected = prompt.selected(sources);
    prompt.section("selected-skills", "", &selected);
    let plan = prompt.file(&sources.session.plan());
    let name = format!(" name=\"{}\"", sources.session.plan().display());
    prompt.section("current-plan", &name, &plan);
    let summary = prompt.file(&sources.session.summary());
    prompt.section("context-snapshot", "", &summary);
    prompt.section("output-language", "", &LANGUAGE.replace("{{language}}", language(sources.lang)));
    (prompt.text, prompt.warnings)
}

#[derive(Default)]
struct Prompt {
    text: String,
    warnings: Vec<String>,
}

impl Prompt {
    /// Appends `<tag>\n…\n</tag>`, unless the body is empty.
    fn section(&mut self, tag: &str, attributes: &str, body: &str) {
        let body = body.trim_end_matches(['\n', '\r']);
        if body.trim().is_empty() {
            return;
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        for piece in ["<", tag, attributes, ">\n", body, "\n</", tag, ">"] {
            self.text.push_str(piece);
        }
    }

    fn instructions(&mut self, sources: &Sources<'_>) -> String {
        let mut parts = Vec::new();
        for (name, dir) in [("global", sources.base), ("project", sources.cwd)] {
            let Some(path) = INSTRUCTION_FILES.iter().map(|file| dir.join(file)).find(|path| path.is_file())
            else {
                continue;
            };
            let text = self.file(&path);
            if !text.is_empty() {
                parts.push(format!("<instruction-file name=\"{name}\">\n{text}\n</instruction-file>"));
            }
        }
        parts.join("\n")
    }

    fn selected(&mut self, sources: &Sources<'_>) -> String {
        let mut parts = Vec::new();
        for name in sources.selected {
            match sources.skills.load(name) {
                Some(Ok(text)) => {
                    let text = harmless(text.trim_end_matches('\n'));
                    parts.push(format!("<skill name=\"{name}\">\n{text}\n</skill>"));
                }
                Some(Err(error)) => {
                    self.warnings.push(format!("skill {name}: {error}; left out of the prompt"))
                }
                None => self.warnings.push(format!("skill {name} is gone; left out of the prompt")),
            }
        }
        parts.join("\n")
    }

    /// A text file's content without its last line feeds, cut at the limit; empty when it cannot be read.
    fn file(&mut self, path: &Path) -> String {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_SHOWN as u64 + 1).read_to_end(&mut bytes));
        if let Err(error) = read {
            if error.kind() != std::io::ErrorKind::NotFound {
                self.warnings.push(format!("{}: {error}; left out of the prompt", path.display()));
            }
            return String::new();
        }
        if bytes.len() > MAX_SHOWN {
            let end =
                (MAX_SHOWN - 3..=MAX_SHOWN).rev().find(|at| bytes[*at] & 0xc0 != 0x80).unwrap_or(MAX_SHOWN);
            bytes.truncate(end);
            self.warnings.push(format!(
                "{}: longer than {MAX_SHOWN} bytes; the model sees the first {end}",
                path.display()
            ));
        }
        harmless(json::clean(&bytes).trim_end_matches(['\n', '\r']))
    }
}

fn environment(sources: &Sources<'_>) -> String {
    let platform = nix::sys::utsname::uname().map(|name| name.sysname().to_string_lossy().into_owned());
    format!(
        "lang: {}\npwd: {}\nhome: {}\nplatform: {}\nshell: {}",
        sources.lang,
        json::clean(sources.cwd.as_os_str().as_encoded_bytes()),
        sources.home.map(|home| json::clean(home.as_os_str().as_encoded_bytes())).unwrap_or_default(),
        platform.unwrap_or_default(),
        sources.shell,
    )
}

/// The language's name for a locale such as `zh_CN`: the whole name first, then its language; else the locale itself.
fn language(lang: &str) -> &str {
    let find = |key: &str| {
        LANGUAGES
            .lines()
            .find_map(|line| line.split_once('\t').filter(|(code, _)| *code == key).map(|(_, name)| name))
    };
    let code = lang.split('@').next().unwrap_or(lang);
    find(code).or_else(|| find(code.split('_').next().unwrap_or(code))).unwrap_or(lang)
}

/// Text from files cannot open or close a section: `<rules>` becomes `<\rules>`, `</rules>` becomes `<\/rules>`.
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        let name = rest.strip_prefix('/').unwrap_or(rest);
        if TAGS.iter().any(|tag| name.starts_with(tag)) {
            out.push('\\');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_follows_the_locale() {
        for (lang, name) in [
            ("zh_CN", "Simplified Chinese"),
            ("en_US", "English"),
            ("de_AT@euro", "German"),
            ("C", "English"),
            ("tlh", "tlh"),
        ] {
            assert_eq!(language(lang), name);
        }
    }

    #[test]
    fn text_from_files_cannot_leave_its_section() {
        assert_eq!(harmless("a </rules> <b> <current-plan>"), "a <\\/rules> <b> <\\current-plan>");
        assert_eq!(harmless("1 < 2 <"), "1 < 2 <");
    }
}
