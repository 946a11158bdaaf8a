//! Directories hidden from a command by mounts of its own. Landlock cannot deny below what it allows; where the
//! workspace holds the keys or the agent's files (a cwd that is the home), they are covered instead.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::policy::mode::{Places, SENSITIVE_IN_HOME};

/// From linux/mount.h.
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;

/// What is to be covered, ready for the child: no memory is taken there any more.
pub(super) struct Hide {
    namespace: Namespace,
    /// The agent's base directory, and the way down to the session, outermost first.
    base: CString,
    way: Vec<CString>,
    /// Files of the session that stay where they are.
    kept: Vec<CString>,
    directories: Vec<CString>,
    files: Vec<CString>,
}

impl Hide {
    /// Covers the base directory (but for the plan), what else is the agent's own, and the credentials below the home.
    pub(super) fn new(places: &Places) -> io::Result<Self> {
        let below = places.session_dir.strip_prefix(&places.base_dir).map_err(io::Error::other)?;
        let mut way = Vec::new();
        let mut path = places.base_dir.clone();
        for name in below {
            path.push(name);
            way.push(c_path(&path)?);
        }
        let plans = [places.plan_draft.clone(), places.session_dir.join("plan.md")];
        let kept =
            plans.iter().filter(|plan| plan.is_file()).map(|plan| c_path(plan)).collect::<Result<_, _>>()?;
        let secrets = secrets(places);
        let (mut directories, files): (Vec<_>, Vec<_>) = secrets.iter().partition(|secret| secret.is_dir());
        directories.extend(places.private.iter().filter(|path| path.is_dir()));
        let c_paths =
            |paths: Vec<&PathBuf>| paths.into_iter().map(|path| c_path(path)).collect::<Result<_, _>>();
        Ok(Self {
            namespace: Namespace::new()?,
            base: c_path(&places.base_dir)?,
            way,
            kept,
            directories: c_paths(directories)?,
            files: c_paths(files)?,
        })
    }

    /// Makes the mounts, in a namespace of the calling process's own. System calls only.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.namespace.enter()?;
        self.cover_base()?;
        for directory in &self.directories {
            cover(directory, libc::MS_RDONLY)?;
        }
        for file in &self.files {
            mount(c"/dev/null", file, c"", libc::MS_BIND)?;
        }
        Ok(())
    }

    /// An empty base directory with the same way down to the same plan, and nothing else.
    fn cover_base(&self) -> io::Result<()> {
        let mut plans = [-1; 2];
        for (plan, path) in plans.iter_mut().zip(&self.kept) {
            let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC.cast_unsigned();
            // SAFETY: the path is a C string that outlives the call.
            let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
            *plan = checked(fd)?;
        }
        cover(&self.base, 0)?;
        for directory in &self.way {
            // SAFETY: as above.
            checked(libc::c_long::from(unsafe { libc::mkdir(directory.as_ptr(), 0o700) }))?;
        }
        for (plan, path) in plans.iter().zip(&self.kept) {
            // SAFETY: as above; the descriptor is the one just opened.
            unsafe {
                checked(libc::c_long::from(libc::mknod(path.as_ptr(), libc::S_IFREG | 0o600, 0)))?;
                let flags = MOVE_MOUNT_F_EMPTY_PATH;
                let here = libc::AT_FDCWD;
                checked(libc::syscall(
                    libc::SYS_move_mount,
                    *plan,
                    c"".as_ptr(),
                    here,
                    path.as_ptr(),
                    flags,
                ))?;
            }
        }
        mount(c"", &self.base, c"", libc::MS_REMOUNT | libc::MS_RDONLY)
    }
}

/// Where credentials may lie: below the home, and where links there lead.
pub(super) fn candidates(places: &Places) -> impl Iterator<Item = PathBuf> {
    let home = places.home.iter();
    let all = home.flat_map(|home| SENSITIVE_IN_HOME.iter().map(|secret| home.join(secret)));
    all.chain(places.linked.iter().cloned())
}

/// Those that are there.
pub(super) fn secrets(places: &Places) -> Vec<PathBuf> {
    // A link cannot be covered: what it leads to is.
    candidates(places).filter(|path| path.exists() && !path.is_symlink()).collect()
}

/// Whether this process may have mounts of its own: by its own right, or as root of a user namespace. Tried once.
pub(super) fn is_possible() -> bool {
    static POSSIBLE: OnceLock<bool> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let Ok(namespace) = Namespace::new() else { return false };
        let mut probe = Command::new("true");
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: `enter` makes system calls only.
        unsafe { probe.pre_exec(move || namespace.enter().and_then(|()| cover(c"/tmp", libc::MS_RDONLY))) };
        probe.status().is_ok_and(|status| status.success())
    })
}

/// A mount namespace, inside a user namespace where that is needed.
struct Namespace {
    users: Vec<u8>,
    groups: Vec<u8>,
}

impl Namespace {
    fn new() -> io::Result<Self> {
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        Ok(Self {
            users: format!("{uid} {uid} 1\n").into_bytes(),
            groups: format!("{gid} {gid} 1\n").into_bytes(),
        })
    }

    fn enter(&self) -> io::Result<()> {
        // SAFETY: flags only.
        let own = unsafe { libc::unshare(libc::CLONE_NEWNS) };
        if own != 0 {
            // SAFETY: flags only; the caller has a single thread, as the child of a fork does.
            checked(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUSER) }))?;
            // The agent is closed to others (PR_SET_DUMPABLE), and with it, until the exec, the files below.
            // SAFETY: sets a flag of this process.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
            write(c"/proc/self/setgroups", b"deny")?;
            write(c"/proc/self/uid_map", &self.users)?;
            write(c"/proc/self/gid_map", &self.groups)?;
        }
        // Nothing done here is to be seen outside.
        mount(c"", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)
    }
}

fn cover(path: &std::ffi::CStr, flags: libc::c_ulong) -> io::Result<()> {
    mount(c"tmpfs", path, c"tmpfs", flags | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}

fn mount(
    source: &std::ffi::CStr,
    target: &std::ffi::CStr,
    kind: &std::ffi::CStr,
    flags: libc::c_ulong,
) -> io::Result<()> {
    // SAFETY: C strings that outlive the call.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    checked(libc::c_long::from(result)).map(drop)
}

/// Writes a small file of /proc in one call.
fn write(path: &std::ffi::CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: a C string and a buffer that outlive the calls; the descriptor is closed again.
    unsafe {
        let fd = checked(libc::c_long::from(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC)))?;
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let result = if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        libc::close(fd);
        result
    }
}

fn checked(result: libc::c_long) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(libc::c_int::try_from(result).unwrap_or(-1)) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}
