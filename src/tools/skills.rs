//! Skills: directories with a SKILL.md that the model can load by name (CONTRACT §10).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::input::Input;
use super::place::{open_exactly, reason};
use super::truncate::clean;
use super::{Context, Failure, Output};
use crate::policy::mode::is_sensitive;

/// Where skills lie, below the working directory first, then below the home.
const PLACES: [&str; 2] = [".claude/skills", "skills"];
/// How much of a file is looked at for its description.
const MAX_HEAD: u64 = 16 << 10;
/// A skill longer than this is cut: it would fill the model's window.
const MAX_SKILL: u64 = 1 << 20;

/// One skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// The name of its directory.
    pub name: String,
    /// The front matter's description, else the first line of text; on one line.
    pub description: String,
    /// Its directory, as found.
    pub dir: PathBuf,
    /// Whether the description is the front matter's.
    pub described: bool,
    /// Where its SKILL.md really lay when it was judged.
    real: PathBuf,
}

/// The skills of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skills(BTreeMap<String, Skill>);

impl Skills {
    /// Looks below `cwd` and `home`; of equal names the first place wins. What cannot be read is not there.
    #[must_use]
    pub fn discover(cwd: &Path, home: Option<&Path>) -> Self {
        let mut skills = BTreeMap::new();
        let roots = std::iter::once(cwd).chain(home.filter(|home| *home != cwd));
        for place in roots.flat_map(|root| PLACES.map(|place| root.join(place))) {
            let Ok(entries) = std::fs::read_dir(&place) else { continue };
            for entry in entries.flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                if name.starts_with('.') || name.contains(char::is_control) || skills.contains_key(&name) {
                    continue;
                }
                if let Some(skill) = Skill::open(name, place.join(entry.file_name()), home) {
                    skills.insert(skill.name.clone(), skill);
                }
            }
        }
        Self(skills)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Skill> {
        self.0.values()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The skill of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Skill> {
        self.0.get(name)
    }

    /// The skill-index section: `- name: description` lines joined by LF; empty without skills.
    #[must_use]
    pub fn index(&self) -> String {
        let line = |skill: &Skill| match skill.description.as_str() {
            "" => format!("- {}", skill.name),
            description => format!("- {}: {description}", skill.name),
        };
        self.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Sentences for the user about skills without a description of their own.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let shown =
            |skill: &Skill| if skill.description.is_empty() { "only its name" } else { "its first line" };
        self.iter().filter(|skill| !skill.described).map(move |skill| {
            let file = skill.dir.join("SKILL.md");
            format!(
                "{}: no `description:` between two `---` lines; the skill index shows {}",
                file.display(),
                shown(skill)
            )
        })
    }

    /// What the model gets of a skill: `Base directory: <dir>`, an empty line, the text without its front matter and
    /// with `${BASH_AGENT_SKILL_DIR}` replaced. `None` when there is no such skill.
    pub fn load(&self, name: &str) -> Option<io::Result<String>> {
        self.get(name).map(Skill::load)
    }
}

impl Skill {
    fn open(name: String, dir: PathBuf, home: Option<&Path>) -> Option<Self> {
        let file = dir.join("SKILL.md");
        // A link in somebody's repository must not put a key into the prompt.
        let real = std::fs::canonicalize(&file).ok()?;
        if is_sensitive(&real, home) || real.starts_with("/etc") || real.starts_with("/proc") {
            return None;
        }
        let head = read_up_to(&real, MAX_HEAD).ok()?;
        let (description, described) = describe(&head);
        Some(Self { description, described, name, dir, real })
    }

    fn load(&self) -> io::Result<String> {
        let text = read_up_to(&self.real, MAX_SKILL)?;
        let (_, body) = split_front_matter(&text);
        let dir = self.dir.to_string_lossy();
        let body = body.trim_matches('\n').replace("${BASH_AGENT_SKILL_DIR}", &dir);
        Ok(format!("Base directory: {dir}\n\n{body}"))
    }
}

/// The Skill tool.
pub(crate) fn skill(ctx: &Context, input: &Input) -> Result<Output, Failure> {
    let name = input.required("name", "name")?;
    match ctx.skills.load(name) {
        Some(Ok(text)) => Ok(Output::plain(text)),
        Some(Err(error)) => Err(Failure::new(format!("skill {name}: {}", reason(&error)))),
        None => Err(Failure::new(format!("skill not found: {name}"))),
    }
}

fn read_up_to(path: &Path, max: u64) -> io::Result<String> {
    // Really resolved when it was judged: a link put there since is not followed.
    let file = File::from(open_exactly(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("SKILL.md is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    let text = clean(&bytes);
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// The lines between two `---` at the beginning, and what follows; no such lines: all is text.
fn split_front_matter(text: &str) -> (&str, &str) {
    let Some(rest) =
        text.strip_prefix("---").and_then(|rest| rest.trim_start_matches([' ', '\r']).strip_prefix('\n'))
    else {
        return ("", text);
    };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if matches!(line.trim_end(), "---" | "...") {
            return (&rest[..at], &rest[at + line.len()..]);
        }
        at += line.len();
    }
    ("", text)
}

/// A skill's description, and whether it is the front matter's.
fn describe(text: &str) -> (String, bool) {
    let (front, body) = split_front_matter(text);
    let description = field(front, "description");
    if !description.is_empty() {
        return (description, true);
    }
    let line = body.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
    (one_line(line.unwrap_or_default()), false)
}

/// A top-level field of simple YAML: plain, quoted, folded over indented lines, or a block (`>`, `|`).
fn field(front: &str, key: &str) -> String {
    let mut lines = front.lines();
    let Some(first) = lines.find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':')) else {
        return String::new();
    };
    let mut value = first.trim().to_owned();
    if matches!(value.trim_end_matches(['-', '+']), ">" | "|") {
        value.clear();
    }
    for line in lines.take_while(|line| line.trim().is_empty() || line.starts_with([' ', '\t'])) {
        value.push(' ');
        value.push_str(line);
    }
    let value = value.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    match (quoted('"'), quoted('\'')) {
        (Some(inner), _) => one_line(&inner.replace("\\\"", "\"").replace("\\\\", "\\")),
        (_, Some(inner)) => one_line(&inner.replace("''", "'")),
        _ => one_line(value),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;
    use crate::tools::testing::World;

    #[test]
    fn a_description_is_found_in_every_form() {
        for (text, description) in [
            ("---\nname: x\ndescription: Makes things.\n---\nBody", "Makes things."),
            ("---\r\ndescription: \"With: a \\\"quote\\\"\"\r\n---\r\nBody", "With: a \"quote\""),
            ("---\ndescription: 'it''s'\n---\n", "it's"),
            ("---\ndescription: >-\n  two\n  lines\nother: x\n---\n", "two lines"),
            ("---\ndescription: first\n  second\n---\n", "first second"),
            ("---\nname: only\n---\n\n# The Title\ntext", "The Title"),
            ("# Heading\n\ntext", "Heading"),
            ("---\nnever closed", "---"),
            ("", ""),
        ] {
            assert_eq!(describe(text).0, description, "{text:?}");
        }
    }

    #[test]
    fn skills_are_found_in_order_and_loaded_by_name() {
        let mut world = World::new();
        let home = world.ctx.home.clone().unwrap();
        world.put(
            ".claude/skills/a/SKILL.md",
            "---\ndescription: from the project\n---\n\nRun ${BASH_AGENT_SKILL_DIR}/x with ${HOME}.\n",
        );
        world.put("skills/a/SKILL.md", "second");
        world.put("skills/b/SKILL.md", "Bee");
        world.put("skills/empty/README", "no skill");
        std::fs::create_dir_all(home.join(".claude/skills/b")).unwrap();
        std::fs::write(home.join(".claude/skills/b/SKILL.md"), "from home").unwrap();
        std::fs::create_dir_all(home.join("skills/c")).unwrap();
        std::fs::write(home.join("skills/c/SKILL.md"), "").unwrap();
        let skills = Skills::discover(&world.ctx.cwd, Some(&home));
        assert_eq!(skills.index(), "- a: from the project\n- b: Bee\n- c");
        world.ctx.skills = skills;
        let dir = world.path(".claude/skills/a");
        let dir = dir.display();
        assert_eq!(
            world.ok("Skill", json!({"name":"a"})),
            format!("Base directory: {dir}\n\nRun {dir}/x with ${{HOME}}.")
        );
        assert_eq!(world.err("Skill", json!({"name":"nope"})), "Error: skill not found: nope");
        assert_eq!(world.err("Skill", json!({"name":"../a"})), "Error: skill not found: ../a");
    }

    #[test]
    fn a_skill_that_is_a_link_to_a_key_is_none() {
        let world = World::new();
        let home = world.ctx.home.clone().unwrap();
        std::fs::create_dir_all(home.join(".ssh")).unwrap();
        std::fs::write(home.join(".ssh/config"), "secret").unwrap();
        std::fs::create_dir_all(world.path("skills/x")).unwrap();
        symlink(home.join(".ssh/config"), world.path("skills/x/SKILL.md")).unwrap();
        assert!(Skills::discover(&world.ctx.cwd, Some(&home)).is_empty());
    }

    #[test]
    fn a_skill_that_becomes_a_link_is_not_followed() {
        let mut world = World::new();
        world.put("skills/x/SKILL.md", "good");
        world.put("secret", "bad");
        world.ctx.skills = Skills::discover(&world.ctx.cwd, None);
        std::fs::remove_file(world.path("skills/x/SKILL.md")).unwrap();
        symlink(world.path("secret"), world.path("skills/x/SKILL.md")).unwrap();
        assert!(world.err("Skill", json!({"name":"x"})).contains("symbolic links"));
    }
}
