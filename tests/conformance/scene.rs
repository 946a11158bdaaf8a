//! What a case looked like at the moment when something did not happen: its processes, and the small files of its
//! temporary directory. For the report, because all of it is gone when the program has been killed.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::process;
use crate::world::World;

/// As much of a file as is shown.
const SHOWN: usize = 400;

/// The processes of the case and the files of its temporary directory, as lines that begin with a line feed.
pub(crate) fn describe(world: &World) -> String {
    let mut text = String::from(
        "\nits processes then (pid, parent, group, state, where it waits, command; open files):",
    );
    for (pid, command) in process::leftovers(world) {
        let dir = Path::new("/proc").join(pid.to_string());
        let _ = write!(text, "\n{pid} {} {} {command}", stat(&dir), read(&dir.join("wchan")));
        let _ = write!(text, "\n    {}", files(&dir));
    }
    text.push_str("\nits temporary files then:");
    contents(&world.tmp, &mut text);
    text
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Parent, group and state, the third to fifth fields of `stat`, behind the name in brackets.
fn stat(dir: &Path) -> String {
    let stat = read(&dir.join("stat"));
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    let state = fields.next().unwrap_or_default();
    let (parent, group) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    format!("{parent} {group} {state}")
}

/// `number=file` of each open descriptor.
fn files(dir: &Path) -> String {
    let open = fs::read_dir(dir.join("fd")).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<String> = open
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?;
            Some(format!("{}={}", entry.file_name().to_string_lossy(), target.display()))
        })
        .collect();
    names.sort();
    names.join(" ")
}

fn contents(dir: &Path, text: &mut String) {
    let mut entries: Vec<_> = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
            contents(&path, text);
        } else if kind.is_ok_and(|kind| kind.is_file()) {
            let bytes = fs::read(&path).unwrap_or_default();
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
            let _ = write!(text, "\n{} ({} bytes): {}", path.display(), bytes.len(), shown.trim_end());
        }
    }
}
