//! Where a path really leads, and opening exactly that: no symlink is followed between the judgement and the use.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode as FileMode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{AccessFlags, Gid, Uid, UnlinkatFlags, faccessat, fchown, unlinkat};

use super::{Context, Failure};
use crate::policy::{Access, Places, mode};

/// Links followed before a path is given up, as the kernel does.
const MAX_LINKS: u32 = 40;

/// A tool's view of the file system: relative paths start at `cwd`, every path is judged by where it really leads.
pub(crate) struct Ground<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) places: Places,
}

impl<'a> Ground<'a> {
    /// Resolves the session's directories once.
    pub(crate) fn new(ctx: &'a Context) -> Self {
        let real = real_path;
        // It lies where others can write too: a link in its place leads nowhere.
        let real_parent = |path: &Path| match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => real(parent).join(name),
            _ => path.to_path_buf(),
        };
        let places = Places {
            cwd: real(&ctx.cwd),
            home: ctx.home.as_deref().map(real),
            tmp_dir: ctx.tmp_dir.as_deref().map(real_parent),
            base_dir: real(&ctx.base_dir),
            session_dir: real(&ctx.session_dir),
            plan_draft: real(&ctx.plan_draft),
            private: ctx.private.iter().map(|path| real(path)).collect(),
            linked: ctx.home.iter().flat_map(|home| mode::linked_secrets(home, &real)).collect(),
        };
        Self { ctx, places }
    }

    /// The absolute form of a path as the model wrote it; `~` is the home, as in the shell.
    pub(crate) fn absolute(&self, path: &str) -> Result<PathBuf, Failure> {
        if path.is_empty() {
            return Err(Failure::new("no path provided"));
        }
        if path.contains('\0') {
            return Err(Failure::new("a path cannot hold a NUL byte"));
        }
        if let Some(home) = &self.ctx.home {
            if path == "~" {
                return Ok(home.clone());
            }
            if let Some(rest) = path.strip_prefix("~/") {
                return Ok(home.join(rest));
            }
        }
        Ok(self.ctx.cwd.join(path))
    }

    /// Where `path` really leads, if `access` to it is allowed.
    pub(crate) fn judged(&self, path: &str, access: Access) -> Result<PathBuf, Failure> {
        let resolved = resolve(&self.absolute(path)?).map_err(|error| about(path, &error))?;
        self.places.judge(self.ctx.mode, &resolved, access)?;
        Ok(resolved)
    }

    /// Opens a regular file for reading. `path` is what the model wrote.
    pub(crate) fn open_regular(&self, path: &str) -> Result<(File, PathBuf), Failure> {
        let resolved = self.judged(path, Access::Read)?;
        let kind = fstatat(nix::fcntl::AT_FDCWD, &resolved, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|errno| about(path, &errno.into()))?;
        // Looked at before opening: opening a device can have effects.
        must_be_regular(path, &kind)?;
        let file =
            open_exactly(&resolved, OFlag::O_RDONLY | OFlag::O_NONBLOCK).map_err(|e| about(path, &e))?;
        let file = File::from(file);
        must_be_regular(path, &fstat(&file).map_err(|errno| about(path, &errno.into()))?)?;
        Ok((file, resolved))
    }
}

/// The message for a failed system call on `path`.
pub(crate) fn about(path: &str, error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ENOENT) => Failure::new(format!("file not found: {path}")),
        Some(libc::ENOTDIR) => Failure::new(format!("{path}: a part of the path is not a directory")),
        Some(libc::EACCES | libc::EPERM) => Failure::new(format!("permission denied: {path}")),
        _ => Failure::new(format!("{path}: {}", reason(error))),
    }
}

/// A system error in the system's words, without Rust's `(os error n)`.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}

fn must_be_regular(path: &str, stat: &FileStat) -> Result<(), Failure> {
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => return Ok(()),
        libc::S_IFDIR => "a directory; use Glob to list it",
        libc::S_IFIFO => "a FIFO",
        libc::S_IFSOCK => "a socket",
        libc::S_IFCHR | libc::S_IFBLK => "a device",
        libc::S_IFLNK => "a symbolic link that changed meanwhile",
        _ => "no regular file",
    };
    Err(Failure::new(format!("{path} is {kind}")))
}

/// The physical path that `path` (absolute) leads to: links followed, `.` and `..` gone. What does not exist yet
/// stays as written, so a dangling link gives the place that a write through it would make.
pub(crate) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut todo: Vec<OsString> = parts(path);
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&part);
        match std::fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                if target.is_absolute() {
                    done = PathBuf::from("/");
                }
                todo.extend(parts(&target));
            }
            // EINVAL: it exists and is no link.
            Err(error) => match error.raw_os_error() {
                Some(libc::EINVAL | libc::ENOENT) => done = next,
                _ => return Err(error),
            },
        }
    }
    Ok(done)
}

/// The same; a path that cannot be followed is taken as it stands.
pub fn real_path(path: &Path) -> PathBuf {
    resolve(path).unwrap_or_else(|_| path.to_path_buf())
}

/// The names of a path, last first.
fn parts(path: &Path) -> Vec<OsString> {
    let mut parts: Vec<OsString> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect();
    parts.reverse();
    parts
}

/// Opens a resolved path, refusing any link that came into being since it was resolved.
pub(crate) fn open_exactly(resolved: &Path, flags: OFlag) -> io::Result<OwnedFd> {
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY;
    #[cfg(target_os = "linux")]
    {
        use nix::fcntl::{OpenHow, ResolveFlag, openat2};
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        match openat2(nix::fcntl::AT_FDCWD, resolved, how) {
            // Before Linux 5.6, or hidden by a container's filter.
            Err(Errno::ENOSYS | Errno::EPERM) => {}
            other => return other.map_err(io::Error::from),
        }
    }
    let file = openat(nix::fcntl::AT_FDCWD, resolved, flags, FileMode::empty())?;
    if place_of(file.as_fd(), resolved)? == resolved { Ok(file) } else { Err(Errno::ELOOP.into()) }
}

/// Where an open descriptor really lies.
fn place_of(file: BorrowedFd<'_>, resolved: &Path) -> io::Result<PathBuf> {
    match std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        Ok(place) => Ok(place),
        // No /proc (macOS): the path is looked at again.
        Err(_) => std::fs::canonicalize(resolved),
    }
}

/// A file to be written: its directory is open, so that nothing can be put under it any more.
pub(crate) struct Target {
    dir: OwnedFd,
    name: OsString,
    old: Option<FileStat>,
}

impl Target {
    /// Opens the directory of `resolved` (made when it is missing and `make_dirs` is set) and looks at the file.
    /// Fails when there is something that is no regular file, or a file that may not be written.
    pub(crate) fn open(path: &str, resolved: &Path, make_dirs: bool) -> Result<Self, Failure> {
        let (Some(parent), Some(name)) = (resolved.parent(), resolved.file_name()) else {
            return Err(Failure::new(format!("{path} is a directory")));
        };
        let dir = if make_dirs { make_dir(parent) } else { open_dir(parent) }.map_err(|e| about(path, &e))?;
        let old = match fstatat(&dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(about(path, &errno.into())),
        };
        if let Some(stat) = &old {
            must_be_regular(path, stat)?;
            // The rename below needs no right to the file itself; the file's own mode is obeyed all the same.
            faccessat(&dir, name, AccessFlags::W_OK, AtFlags::empty())
                .map_err(|errno| about(path, &errno.into()))?;
        }
        Ok(Self { dir, name: name.to_owned(), old })
    }

    /// Opens the file itself for reading; `None` when there is none.
    pub(crate) fn read(&self) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        Ok(File::from(openat(&self.dir, self.name.as_os_str(), flags, FileMode::empty())?))
    }

    /// The file's size, when there is one.
    pub(crate) fn old_size(&self) -> Option<u64> {
        self.old.as_ref().and_then(|stat| u64::try_from(stat.st_size).ok())
    }

    /// Replaces the file whole: a new file beside it, then a rename. Mode and (where permitted) owner stay; what was
    /// written is read back before anybody is told. On any error the old file is untouched.
    pub(crate) fn replace(&self, content: &[u8]) -> io::Result<()> {
        let (temporary, file) = self.temporary()?;
        let written = self.fill(&file, content).and_then(|()| self.rename(&temporary));
        if written.is_err() {
            // Best effort: the error that matters is the first one.
            let _ = unlinkat(&self.dir, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
        written?;
        if same_content(self.read()?, content)? {
            Ok(())
        } else {
            Err(io::Error::other("the file holds something else than what was written"))
        }
    }

    fn temporary(&self) -> io::Result<(OsString, File)> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // A private mode until the owner is right; a new file gets what the umask leaves of 0666.
        let mode = FileMode::from_bits_truncate(if self.old.is_some() { 0o600 } else { 0o666 });
        for number in 0..1000_u32 {
            let name = OsString::from(format!(".agent-{}-{number}.tmp", std::process::id()));
            match openat(&self.dir, name.as_os_str(), flags, mode) {
                Ok(file) => return Ok((name, File::from(file))),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::EEXIST.into())
    }

    fn fill(&self, file: &File, content: &[u8]) -> io::Result<()> {
        use std::io::Write as _;
        (&*file).write_all(content)?;
        if let Some(old) = &self.old {
            let now = fstat(file)?;
            if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid) {
                let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
                // Only root may give a file away; a group of one's own can always be kept.
                if fchown(file, Some(uid), Some(gid)).is_err() {
                    let _ = fchown(file, None, Some(gid));
                }
            }
            // After the owner: a change of owner clears set-id bits.
            fchmod(file, FileMode::from_bits_truncate(old.st_mode & 0o7777))?;
        }
        file.sync_data()
    }

    fn rename(&self, temporary: &OsStr) -> io::Result<()> {
        let now = match fstatat(&self.dir, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(errno.into()),
        };
        if fingerprint(now.as_ref()) != fingerprint(self.old.as_ref()) {
            return Err(io::Error::other("somebody else changed the file meanwhile; read it again"));
        }
        renameat(&self.dir, temporary, &self.dir, self.name.as_os_str())?;
        Ok(())
    }
}

/// What tells that a file is still the one that was looked at.
fn fingerprint(stat: Option<&FileStat>) -> Option<(u64, i64, i64, i64)> {
    stat.map(|s| (s.st_ino, s.st_size, s.st_mtime, s.st_mtime_nsec))
}

fn same_content(file: File, content: &[u8]) -> io::Result<bool> {
    use std::io::Read as _;
    if file.metadata()?.size() != content.len() as u64 {
        return Ok(false);
    }
    let mut piece = vec![0; content.len().clamp(1, 64 * 1024)];
    let (mut file, mut at) = (file, 0);
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(at == content.len());
        }
        if content.get(at..at + count) != Some(&piece[..count]) {
            return Ok(false);
        }
        at += count;
    }
}

fn open_dir(resolved: &Path) -> io::Result<OwnedFd> {
    open_exactly(resolved, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
}

/// Opens a directory, making what is missing of it, one descriptor after the other.
fn make_dir(resolved: &Path) -> io::Result<OwnedFd> {
    let mut there = resolved;
    let mut missing = Vec::new();
    let mut dir = loop {
        match open_dir(there) {
            Ok(dir) => break dir,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
        let (Some(parent), Some(name)) = (there.parent(), there.file_name()) else {
            return Err(Errno::ENOENT.into());
        };
        missing.push(name);
        there = parent;
    };
    for name in missing.into_iter().rev() {
        match mkdirat(&dir, name, FileMode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        dir = openat(&dir, name, flags, FileMode::empty())?;
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_is_where_it_really_leads() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/sub")).unwrap();
        symlink("real/sub", root.join("link")).unwrap();
        symlink(root.join("nowhere/x"), root.join("dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        for (path, real) in [
            ("link/x", "real/sub/x"),
            ("link/../x", "real/x"),
            ("real//./sub/", "real/sub"),
            ("dangling", "nowhere/x"),
            ("new/dir/file", "new/dir/file"),
        ] {
            assert_eq!(resolve(&root.join(path)).unwrap(), root.join(real), "{path}");
        }
        assert_eq!(resolve(&root.join("loop")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert_eq!(resolve(Path::new("/../..")).unwrap(), Path::new("/"));
    }

    #[test]
    fn a_link_put_in_place_after_the_judgement_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::fs::write(root.join("d/f"), "x").unwrap();
        let resolved = resolve(&root.join("d/f")).unwrap();
        open_exactly(&resolved, OFlag::O_RDONLY).unwrap();
        std::fs::rename(root.join("d"), root.join("elsewhere")).unwrap();
        symlink("elsewhere", root.join("d")).unwrap();
        assert_eq!(open_exactly(&resolved, OFlag::O_RDONLY).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(Target::open("d/f", &resolved, true).is_err());
    }

    #[test]
    fn a_file_that_changed_meanwhile_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("f");
        std::fs::write(&path, "one").unwrap();
        let target = Target::open("f", &path, false).unwrap();
        std::fs::write(&path, "three").unwrap();
        assert!(target.replace(b"two").unwrap_err().to_string().contains("changed"));
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the temporary is gone");
    }
}
