//! Landlock and seccomp.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope as Isolation,
};
use seccompiler::BpfProgram;

#[path = "sandbox_bwrap.rs"]
pub(super) mod bwrap;
#[path = "sandbox_filter.rs"]
mod filter;
#[path = "sandbox_hide.rs"]
mod hide;
#[path = "sandbox_kept.rs"]
mod kept;

use crate::policy::mode::{Access, Mode, Places, RUNTIME_PATHS, SYSTEM_DIRS, Scope};

/// Everything up to this version of Landlock is used where it is there.
const NEWEST: ABI = ABI::V7;

/// Beyond `RUNTIME_PATHS`: what libraries look into for a program that did nothing forbidden. A command that names
/// one of these files is still judged by the mode.
const LIBRARY_PATHS: &[&str] = &[
    "/etc/passwd",
    "/etc/group",
    "/etc/shells",
    "/etc/login.defs",
    "/etc/gitconfig",
    "/etc/gitattributes",
    "/etc/inputrc",
    "/etc/profile",
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "/etc/environment",
    "/etc/os-release",
    "/etc/lsb-release",
    "/etc/debian_version",
    "/etc/machine-id",
    "/etc/mime.types",
    "/etc/magic",
    "/etc/terminfo",
    "/etc/fonts",
    "/etc/ethers",
    "/etc/networks",
    "/etc/rpc",
    "/etc/crypto-policies",
    "/etc/pki",
    "/etc/python3",
    "/etc/perl",
    "/etc/npmrc",
    "/etc/pip.conf",
    "/etc/wgetrc",
    "/etc/java",
    "/etc/maven",
    "/etc/gradle",
    "/etc/php",
    "/etc/ImageMagick-6",
    "/etc/ImageMagick-7",
    "/etc/vim",
    "/etc/manpath.config",
    "/nix/store",
    "/gnu/store",
    "/snap",
    // Only of processes in the same sandbox are the private parts readable.
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/fs/cgroup",
];

/// Devices that keep nothing.
const OPEN_DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Capabilities (numbers of linux/capability.h) that root keeps no more: with them it reads the memory of any process
/// (PERFMON, SYS_ADMIN, SYS_PTRACE), makes devices, mounts, loads modules, and so on. Root's rights over files stay.
const DROPPED_CAPABILITIES: &[(libc::c_ulong, &str)] = &[
    (2, "CAP_DAC_READ_SEARCH"),
    (9, "CAP_LINUX_IMMUTABLE"),
    (12, "CAP_NET_ADMIN"),
    (16, "CAP_SYS_MODULE"),
    (17, "CAP_SYS_RAWIO"),
    (19, "CAP_SYS_PTRACE"),
    (20, "CAP_SYS_PACCT"),
    (21, "CAP_SYS_ADMIN"),
    (22, "CAP_SYS_BOOT"),
    (25, "CAP_SYS_TIME"),
    (26, "CAP_SYS_TTY_CONFIG"),
    (27, "CAP_MKNOD"),
    (29, "CAP_AUDIT_WRITE"),
    (30, "CAP_AUDIT_CONTROL"),
    (32, "CAP_MAC_OVERRIDE"),
    (33, "CAP_MAC_ADMIN"),
    (34, "CAP_SYSLOG"),
    (35, "CAP_WAKE_ALARM"),
    (36, "CAP_BLOCK_SUSPEND"),
    (37, "CAP_AUDIT_READ"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
    (40, "CAP_CHECKPOINT_RESTORE"),
];

/// A ruleset and a filter, ready to be put on.
pub(super) struct Prepared {
    ruleset: OwnedFd,
    filter: BpfProgram,
    /// What is covered because it lies inside what the mode opens.
    hide: Option<hide::Hide>,
    /// Named by a path only: another directory in its place has no rule.
    shared_memory: Option<hide::SharedMemory>,
    /// The mode gives the whole system: root stays root.
    whole_system: bool,
}

impl Prepared {
    pub(super) fn enter(&self) -> io::Result<()> {
        if let Some(hide) = &self.hide {
            hide.enter()?;
        }
        if let Some(shared_memory) = &self.shared_memory {
            shared_memory.enter(self.hide.is_some());
        }
        let program = libc::sock_fprog {
            len: libc::c_ushort::try_from(self.filter.len()).unwrap_or(0),
            filter: self.filter.as_ptr().cast_mut().cast::<libc::sock_filter>(),
        };
        if !self.whole_system {
            for &(capability, _) in DROPPED_CAPABILITIES {
                // SAFETY: takes numbers only. Fails for all but root, who alone has something to drop.
                unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            }
        }
        // SAFETY: three system calls; the only memory handed over is `program` and the filter, which outlive them, and
        // seccompiler's `sock_filter` has the kernel's layout.
        unsafe {
            check(libc::c_long::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))?;
            check(libc::syscall(libc::SYS_landlock_restrict_self, self.ruleset.as_raw_fd(), 0))?;
            check(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program))
        }
    }
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Landlock's version here; 0 without it.
pub(super) fn version() -> i64 {
    static VERSION: OnceLock<i64> = OnceLock::new();
    *VERSION.get_or_init(|| {
        const ASK_VERSION: libc::c_uint = 1;
        // SAFETY: with this flag the call takes no memory and only answers with a number.
        let version = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, ASK_VERSION)
        };
        version.max(0)
    })
}

pub(super) fn prepare(mode: Mode, places: &Places) -> io::Result<Option<Arc<Prepared>>> {
    if version() == 0 {
        return Ok(None);
    }
    if let Some(prepared) = kept::last(mode, places) {
        return Ok(Some(prepared));
    }
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|ruleset| ruleset.scope(Isolation::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(io::Error::other)?;
    let secrets = hide::secrets(places);
    let hides = must_hide(mode, places, &secrets) && hide::is_possible();
    let hide = if hides { Some(hide::Hide::new(places)?) } else { None };
    let mut grants = Grants::new(Some(ruleset), secrets, hides);
    grants.everything(mode, places)?;
    let ruleset = grants
        .ruleset
        .and_then(Option::<OwnedFd>::from)
        .ok_or_else(|| io::Error::other("the kernel gave no Landlock ruleset"))?;
    let whole_system = mode.permits(Scope::System, Access::Execute);
    let shared_memory = hide::SharedMemory::new(mode, places)?;
    let filter = filter::filter(mode)?;
    let prepared = Arc::new(Prepared { ruleset, filter, hide, shared_memory, whole_system });
    kept::keep(mode, places, grants.witness, &prepared);
    Ok(Some(prepared))
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute
}

/// All that changes files; device nodes only in the system scope: one made elsewhere would be a way to the disk.
fn writing(scope: Scope) -> BitFlags<AccessFs> {
    let all = AccessFs::from_all(NEWEST) & !reading();
    if scope == Scope::System { all } else { all & !(AccessFs::MakeChar | AccessFs::MakeBlock) }
}

/// The rules so far.
struct Grants {
    /// `None` when only the list is wanted, for another kind of sandbox.
    ruleset: Option<RulesetCreated>,
    /// What each path has: a rule more for the same would cost a system call.
    seen: BTreeMap<PathBuf, BitFlags<AccessFs>>,
    /// The credentials that are there.
    secrets: Vec<PathBuf>,
    /// The agent's files and the credentials are covered: they need no detour.
    hidden: bool,
    /// What the rules were made from.
    witness: kept::Witness,
}

impl Grants {
    fn new(ruleset: Option<RulesetCreated>, secrets: Vec<PathBuf>, hidden: bool) -> Self {
        Self { ruleset, seen: BTreeMap::new(), secrets, hidden, witness: kept::Witness::default() }
    }

    fn everything(&mut self, mode: Mode, places: &Places) -> io::Result<()> {
        let system = SYSTEM_DIRS.iter().map(PathBuf::from);
        for path in hide::candidates(places).chain(system).chain(places.own().cloned()) {
            self.witness.look_at(&path);
        }
        for path in runtime_paths() {
            self.file(path, reading())?;
        }
        for device in OPEN_DEVICES.iter().map(Path::new) {
            self.file(device, AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev)?;
        }
        // First, so that it has rules of its own: it takes the place of /dev/shm too, where nothing lies above it.
        for access in [Access::Read, Access::Write] {
            if let Some(tmp_dir) =
                places.tmp_dir.as_deref().filter(|_| mode.permits(Scope::Workspace, access))
            {
                let rights = if access == Access::Read { reading() } else { writing(Scope::Workspace) };
                let closed = self.closed(mode, places, access);
                self.tree(tmp_dir, rights, &closed)?;
            }
        }
        for access in [Access::Read, Access::Write] {
            for scope in [Scope::System, Scope::External, Scope::Workspace] {
                if mode.permits(scope, access) {
                    let rights = if access == Access::Read { reading() } else { writing(scope) };
                    let closed = self.closed(mode, places, access);
                    for root in self.roots(scope, places) {
                        self.tree(&root, rights, &closed)?;
                    }
                }
            }
            self.plan(mode, places, access)?;
        }
        Ok(())
    }

    /// plan.draft belongs to the workspace though it lies in the session; plan.md can be read.
    fn plan(&mut self, mode: Mode, places: &Places, access: Access) -> io::Result<()> {
        if !mode.permits(Scope::Workspace, access) {
            return Ok(());
        }
        match access {
            Access::Write => self.file(&places.plan_draft, AccessFs::WriteFile | AccessFs::Truncate),
            _ => {
                self.file(&places.plan_draft, AccessFs::ReadFile.into())?;
                self.file(&places.session_dir.join("plan.md"), AccessFs::ReadFile.into())
            }
        }
    }

    /// Grants a whole directory; one that holds something closed is granted entry by entry.
    fn tree(&mut self, path: &Path, rights: BitFlags<AccessFs>, closed: &[PathBuf]) -> io::Result<()> {
        if closed.iter().any(|closed| path.starts_with(closed)) {
            return Ok(());
        }
        if !closed.iter().any(|closed| closed.starts_with(path)) {
            return self.file(path, rights);
        }
        // Listing it is granted for what lies below too: names, not contents. The root would be everything.
        if path != Path::new("/") {
            self.file(path, rights & AccessFs::ReadDir)?;
        }
        let Ok(entries) = self.witness.list(path) else { return Ok(()) };
        for entry in entries.flatten() {
            // What a link leads to is granted where it lies, or not at all.
            if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                self.tree(&entry.path(), rights, closed)?;
            }
        }
        Ok(())
    }

    /// One rule. What is not there, or cannot be opened, is not granted.
    fn file(&mut self, path: &Path, rights: BitFlags<AccessFs>) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let has = |path: &Path| self.seen.get(path).is_some_and(|before| before.contains(rights));
        if rights.is_empty() || path.ancestors().any(has) {
            return Ok(());
        }
        let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let Ok(file) = fs::OpenOptions::new().read(true).custom_flags(flags).open(path) else {
            self.witness.opened(path, None);
            return Ok(());
        };
        let found = file.metadata()?;
        self.witness.opened(path, Some(&found));
        let rights = if found.is_dir() { rights } else { rights & AccessFs::from_file(NEWEST) };
        if rights.is_empty() {
            return Ok(());
        }
        if let Some(ruleset) = &mut self.ruleset {
            ruleset.add_rule(PathBeneath::new(file, rights)).map_err(io::Error::other)?;
        }
        *self.seen.entry(path.to_path_buf()).or_default() |= rights;
        Ok(())
    }

    /// Where a scope's grants begin.
    fn roots(&mut self, scope: Scope, places: &Places) -> Vec<PathBuf> {
        match scope {
            Scope::Network => Vec::new(),
            Scope::Workspace => vec![places.cwd.clone()],
            Scope::System => SYSTEM_DIRS.iter().map(PathBuf::from).collect(),
            Scope::External => {
                let entries = self.witness.list(Path::new("/")).into_iter().flatten().flatten();
                let tops = entries.filter(|entry| !entry.file_type().is_ok_and(|kind| kind.is_symlink()));
                let tops = tops.map(|entry| entry.path()).filter(|path| !is_system(path));
                tops.chain(places.home.clone()).collect()
            }
        }
    }

    /// What a grant of one scope must not reach: the agent's own files, credentials, and places of scopes that the mode
    /// does not give.
    fn closed(&self, mode: Mode, places: &Places, access: Access) -> Vec<PathBuf> {
        let mut closed = Vec::new();
        let system = mode.permits(Scope::System, access);
        if !self.hidden && (access == Access::Write || !system) {
            closed.extend(places.own().cloned());
        }
        if !system {
            if !self.hidden {
                closed.extend(self.secrets.iter().cloned());
            }
            // A cwd of `/` is no way to them.
            closed.extend(SYSTEM_DIRS.iter().map(PathBuf::from).filter(|dir| {
                !places.cwd.starts_with(dir)
                    && !places.home.as_ref().is_some_and(|home| home.starts_with(dir))
            }));
        }
        if !mode.permits(Scope::Workspace, access) {
            closed.push(places.cwd.clone());
            closed.extend(places.tmp_dir.clone());
        }
        if !mode.permits(Scope::External, access) {
            // A home inside a system directory (root's) is external, not system.
            closed
                .extend(places.home.clone().filter(|home| is_system(home) && !places.cwd.starts_with(home)));
        }
        // What is not there needs no detour around it.
        closed.retain(|path| path.symlink_metadata().is_ok());
        closed
    }
}

/// What is there of our own lists, links followed (`/bin`, `/etc/resolv.conf`); looked up once.
fn runtime_paths() -> &'static [PathBuf] {
    static PATHS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    PATHS.get_or_init(|| {
        let all = RUNTIME_PATHS.iter().chain(LIBRARY_PATHS);
        all.filter_map(|path| fs::canonicalize(path).ok()).collect()
    })
}

fn is_system(path: &Path) -> bool {
    SYSTEM_DIRS.iter().any(|dir| path.starts_with(dir))
}

/// Whether closed files lie in what the mode opens to writes, and cannot be hidden.
pub(super) fn needs_detour(mode: Mode, places: &Places) -> bool {
    version() > 0 && must_hide(mode, places, &hide::secrets(places)) && !hide::is_possible()
}

/// Whether a directory that the mode opens to writes holds the agent's files or credentials: granted entry by entry,
/// nothing new could be made right in it.
fn must_hide(mode: Mode, places: &Places, secrets: &[PathBuf]) -> bool {
    if !can_hide(mode, places, secrets) {
        return false;
    }
    let covered = || places.own().filter(|path| path.is_dir()).chain(secrets);
    let holds = |root: &Path| covered().any(|path| path.starts_with(root) && path != root);
    let workspace = mode.permits(Scope::Workspace, Access::Write) && holds(&places.cwd);
    let external = mode.permits(Scope::External, Access::Write)
        && (places.home.as_deref().is_some_and(holds) || places.private.iter().any(|path| path.is_dir()));
    workspace || external
}

/// Whether the agent's files and credentials can be covered: the mode keeps them closed, and the workspace does not lie
/// in them, where it would be covered too.
fn can_hide(mode: Mode, places: &Places, secrets: &[PathBuf]) -> bool {
    let mut covered = places.own().filter(|path| path.is_dir()).chain(secrets);
    !mode.permits(Scope::System, Access::Read)
        && places.session_dir.starts_with(&places.base_dir)
        && places.base_dir.is_dir()
        && !covered.any(|path| places.cwd.starts_with(path))
}
