//! Mounts of a command's own. Landlock cannot deny below what it allows; where the workspace holds the keys or the
//! agent's files (a cwd that is the home), they are covered instead. And shared memory lies in one directory for all
//! processes, which stays closed: the session's temporary directory takes its place.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::policy::mode::{Access, Mode, Places, SENSITIVE_IN_HOME, Scope};

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

/// Where the C library keeps shared memory and semaphores that have names.
const SHARED_MEMORY: &CStr = c"/dev/shm";

/// Shared memory of the session's own. What cannot be had is left out: then the directory is simply closed.
pub(super) struct SharedMemory {
    namespace: Namespace,
    tmp_dir: CString,
}

impl SharedMemory {
    /// `None` where it is not needed, or where trying could do harm.
    pub(super) fn new(mode: Mode, places: &Places) -> io::Result<Option<Self>> {
        let system = mode.permits(Scope::System, Access::Write);
        match &places.tmp_dir {
            Some(dir) if !system && mode.permits(Scope::Workspace, Access::Write) && may_have_users() => {
                Ok(Some(Self { namespace: Namespace::new()?, tmp_dir: c_path(dir)? }))
            }
            _ => Ok(None),
        }
    }

    /// Puts it in its place; `inside`: in a namespace that the process has entered. System calls only.
    pub(super) fn enter(&self, inside: bool) {
        // No step of it is a reason to run no command: Landlock holds without, and knows the directory, not its path.
        if inside || self.namespace.try_enter(false).unwrap_or(false) {
            let _ = mount(&self.tmp_dir, SHARED_MEMORY, c"", libc::MS_BIND);
        }
    }
}

/// Whether a user namespace is what it should be, where one can be made: some systems allow to make it and then do not
/// let it do anything.
fn may_have_users() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let restricted = std::fs::read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
        nix::unistd::geteuid().is_root() || !restricted.is_ok_and(|text| text.starts_with(b"1"))
    })
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
    root: bool,
    users: Vec<u8>,
    groups: Vec<u8>,
}

impl Namespace {
    fn new() -> io::Result<Self> {
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        Ok(Self {
            root: uid.is_root(),
            users: format!("{uid} {uid} 1\n").into_bytes(),
            groups: format!("{gid} {gid} 1\n").into_bytes(),
        })
    }

    fn enter(&self) -> io::Result<()> {
        if self.try_enter(true)? { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// As `enter`; false, with nothing changed, where there can be none. Root that may not mount becomes root of a user
    /// namespace only where `root_too`: it loses its rights over the files of others there.
    fn try_enter(&self, root_too: bool) -> io::Result<bool> {
        // SAFETY: flags only.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            if self.root && !root_too {
                return Ok(false);
            }
            // SAFETY: flags only; the caller has a single thread, as the child of a fork does.
            if unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWUSER) } != 0 {
                return Ok(false);
            }
            // The agent is closed to others (PR_SET_DUMPABLE), and with it, until the exec, the files below.
            // SAFETY: sets a flag of this process.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
            write(c"/proc/self/setgroups", b"deny")?;
            write(c"/proc/self/uid_map", &self.users)?;
            write(c"/proc/self/gid_map", &self.groups)?;
        }
        // Nothing done here is to be seen outside.
        mount(c"", c"/", c"", libc::MS_REC | libc::MS_PRIVATE).map(|()| true)
    }
}

fn cover(path: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    mount(c"tmpfs", path, c"tmpfs", flags | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: C strings that outlive the call.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) };
    checked(libc::c_long::from(result)).map(drop)
}

/// Writes a small file of /proc in one call.
fn write(path: &CStr, bytes: &[u8]) -> io::Result<()> {
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
