//! Bubblewrap, where the kernel has no Landlock: the same grants as mounts. It keeps the network digit only as a
//! whole (none, or all of it), and does not keep a command from signalling the agent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use landlock::AccessFs;

use super::{Grants, hide, must_hide};
use crate::policy::mode::{Access, Mode, Places, Scope};

/// Whether bubblewrap is installed and may do its work. Tried once.
pub(in crate::policy) fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let mut probe = Command::new("bwrap");
        probe.args(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-net", "true"]);
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    })
}

/// The words that go before a command: bubblewrap with its options.
pub(in crate::policy) fn words(mode: Mode, places: &Places) -> io::Result<Vec<OsString>> {
    let hidden = must_hide(mode, places);
    let mut grants = Grants { ruleset: None, seen: BTreeMap::new(), hidden };
    grants.everything(mode, places)?;
    let mut words: Vec<OsString> = vec!["bwrap".into()];
    let mut add = |option: &str, paths: &[&Path]| {
        words.push(option.into());
        words.extend(paths.iter().map(|path| path.as_os_str().to_owned()));
    };
    for (link, target) in links() {
        add("--symlink", &[&target, &link]);
    }
    // In the order of their names: what lies above comes first. What is gone by then is no loss.
    for (path, rights) in &grants.seen {
        if path.starts_with("/proc") || path.starts_with("/dev") {
            continue;
        }
        if *rights == AccessFs::ReadDir {
            add("--dir", &[path]);
        } else if rights.contains(AccessFs::WriteFile) {
            add("--bind-try", &[path, path]);
        } else {
            add("--ro-bind-try", &[path, path]);
        }
    }
    add("--proc", &[Path::new("/proc")]);
    add("--dev", &[Path::new("/dev")]);
    if mode.permits(Scope::System, Access::Write) {
        add("--dev-bind", &[Path::new("/dev"), Path::new("/dev")]);
    }
    if hidden {
        cover(places, &mut add);
    }
    if ![Access::Read, Access::Write, Access::Execute]
        .iter()
        .any(|&access| mode.permits(Scope::Network, access))
    {
        add("--unshare-net", &[]);
    }
    add("--unshare-ipc", &[]);
    add("--chdir", &[&places.cwd]);
    add("--", &[]);
    Ok(words)
}

/// Empty places over the agent's files, but for the plan, and over the credentials.
fn cover(places: &Places, add: &mut impl FnMut(&str, &[&Path])) {
    add("--tmpfs", &[&places.base_dir]);
    add("--bind", &[&places.plan_draft, &places.plan_draft]);
    let plan = places.session_dir.join("plan.md");
    if plan.is_file() {
        add("--ro-bind", &[&plan, &plan]);
    }
    add("--remount-ro", &[&places.base_dir]);
    for secret in hide::secrets(places) {
        if secret.is_dir() {
            add("--tmpfs", &[&secret]);
            add("--remount-ro", &[&secret]);
        } else {
            add("--ro-bind", &[Path::new("/dev/null"), &secret]);
        }
    }
}

/// The links right below the root (`/bin`, `/lib`), with where they lead.
fn links() -> Vec<(PathBuf, PathBuf)> {
    let entries = fs::read_dir("/").into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.filter_map(|link| Some((link.path(), fs::read_link(link.path()).ok()?))).collect()
}
