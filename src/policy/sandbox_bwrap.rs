//! Bubblewrap, where the kernel has no Landlock: the same grants as mounts, the same seccomp filter, and a process
//! namespace of its own, in which the agent cannot be seen.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use landlock::AccessFs;

use super::{DROPPED_CAPABILITIES, Grants, can_hide, filter, hide};
use crate::policy::mode::{Access, Mode, Places, Scope};

/// In every sandbox: no processes but its own, a new /proc of them, no shared memory of others.
const ALWAYS: &[&str] = &["--unshare-pid", "--unshare-ipc"];

/// What root could change the machine with in the new /proc: bubblewrap itself does not close all of it everywhere.
const PROC_SETTINGS: &[&str] =
    &["/proc/sys", "/proc/sysrq-trigger", "/proc/fs", "/proc/irq", "/proc/bus", "/proc/acpi", "/proc/mtrr"];

/// Whether bubblewrap is installed and may do its work. Tried once.
pub(in crate::policy) fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let mut probe = Command::new("bwrap");
        probe.args(ALWAYS).args([
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--unshare-net",
            "true",
        ]);
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    })
}

/// The words that go before a command, and the open files that they name: the options, which would show the closed
/// places in the command's list of processes, and the seccomp filter.
pub(in crate::policy) fn words(mode: Mode, places: &Places) -> io::Result<(Vec<OsString>, Vec<OwnedFd>)> {
    let calls = filter_file(mode)?;
    // Mounts cover what is closed; a mount for every entry beside it would take seconds.
    let secrets = hide::secrets(places);
    let hidden = can_hide(mode, places, &secrets);
    let mut grants = Grants::new(None, secrets, hidden);
    grants.everything(mode, places)?;
    let mut words: Vec<OsString> = Vec::new();
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
    if !mode.permits(Scope::System, Access::Write) {
        for path in PROC_SETTINGS.iter().map(Path::new) {
            add("--ro-bind-try", &[path, path]);
        }
    }
    add("--dev", &[Path::new("/dev")]);
    if mode.permits(Scope::System, Access::Write) {
        add("--dev-bind", &[Path::new("/dev"), Path::new("/dev")]);
    }
    if hidden {
        cover(mode, places, &mut add);
    }
    if ![Access::Read, Access::Write, Access::Execute]
        .iter()
        .any(|&access| mode.permits(Scope::Network, access))
    {
        add("--unshare-net", &[]);
    }
    add("--chdir", &[&places.cwd]);
    words.extend(ALWAYS.iter().map(OsString::from));
    if !mode.permits(Scope::System, Access::Execute) {
        // Root would keep all of them.
        for (_, name) in DROPPED_CAPABILITIES {
            words.extend(["--cap-drop".into(), name.into()]);
        }
    }
    words.extend(["--seccomp".into(), calls.as_raw_fd().to_string().into()]);
    let mut bytes = Vec::new();
    for word in &words {
        bytes.extend_from_slice(word.as_bytes());
        bytes.push(0);
    }
    let options = nameless(&bytes)?;
    let command = vec!["bwrap".into(), "--args".into(), options.as_raw_fd().to_string().into(), "--".into()];
    Ok((command, vec![options, calls]))
}

/// The seccomp filter, as bubblewrap reads it.
fn filter_file(mode: Mode) -> io::Result<OwnedFd> {
    nameless(&filter::bytes(&filter::filter(mode)?))
}

/// A file in memory, to be read from its start.
fn nameless(bytes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: a C string that outlives the call.
    let fd = unsafe { libc::memfd_create(c"bwrap".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that nobody else owns.
    let mut file = fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Empty places over the agent's files, but for the plan, and over the credentials.
fn cover(mode: Mode, places: &Places, add: &mut impl FnMut(&str, &[&Path])) {
    add("--tmpfs", &[&places.base_dir]);
    let plan = places.session_dir.join("plan.md");
    if mode.permits(Scope::Workspace, Access::Write) {
        add("--bind-try", &[&places.plan_draft, &places.plan_draft]);
    } else if mode.permits(Scope::Workspace, Access::Read) {
        add("--ro-bind-try", &[&places.plan_draft, &places.plan_draft]);
    }
    if mode.permits(Scope::Workspace, Access::Read) && plan.is_file() {
        add("--ro-bind", &[&plan, &plan]);
    }
    add("--remount-ro", &[&places.base_dir]);
    for secret in
        hide::secrets(places).into_iter().chain(places.private.iter().filter(|path| path.is_dir()).cloned())
    {
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
