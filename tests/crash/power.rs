//! A power cut: only what was synced is sure to be there.
//!
//! The model is that of ALICE ("All File Systems Are Not Created Equal", OSDI 2014) at its three hardest points, with
//! what the tracer saw synced: a file's content is that of its last fsync or fdatasync, a file never synced is empty.
//! Names are as `Disk` says. A real disk keeps more; what survives here survives there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// What the disk keeps of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// Nothing: a directory holds the names of its own last fsync, so renames, new files and removals are undone.
    Strict,
    /// All names and renames, as journals order them before the data; files end where they were synced.
    Short,
    /// The same, but files have their length: what was not synced is zeros.
    Zeros,
}

/// Leaves below `base` what a power cut leaves; `shadow` is what the tracer recorded.
pub(crate) fn cut(base: &Path, shadow: &Path, disk: Disk) {
    match disk {
        Disk::Short | Disk::Zeros => keep_names(base, shadow, disk),
        Disk::Strict => {
            let rebuilt = base.with_extension("rebuilt");
            let parent =
                fs::read_to_string(shadow.join(key(base.parent().unwrap()) + ".dir")).unwrap_or_default();
            let own = key(base);
            if parent.lines().any(|line| line.split(' ').nth(1) == Some(&own)) {
                rebuild(&own, &rebuilt, shadow);
            }
            let _ = fs::remove_dir_all(base);
            if rebuilt.exists() {
                fs::rename(&rebuilt, base).unwrap();
            }
        }
    }
}

/// As the tracer names an inode.
fn key(path: &Path) -> String {
    let Ok(metadata) = fs::symlink_metadata(path) else { return String::new() };
    let birth =
        metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{}-{}.{}", metadata.ino(), birth.as_secs(), birth.subsec_nanos())
}

fn keep_names(dir: &Path, shadow: &Path, disk: Disk) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            keep_names(&path, shadow, disk);
        } else if metadata.is_file() {
            let mut content = fs::read(shadow.join(key(&path))).unwrap_or_default();
            if disk == Disk::Zeros && content.len() < metadata.len() as usize {
                content.resize(metadata.len() as usize, 0);
            }
            fs::write(&path, content).unwrap();
        }
    }
}

fn rebuild(own: &str, target: &Path, shadow: &Path) {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    fs::DirBuilder::new().mode(0o700).create(target).unwrap();
    let entries = fs::read_to_string(shadow.join(format!("{own}.dir"))).unwrap_or_default();
    for line in entries.lines() {
        let mut words = line.splitn(3, ' ');
        let (kind, key, name) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        match kind {
            "d" => rebuild(key, &target.join(name), shadow),
            "f" => {
                let mut options = fs::OpenOptions::new();
                let mut file =
                    options.write(true).create_new(true).mode(0o600).open(target.join(name)).unwrap();
                let content = fs::read(shadow.join(key)).unwrap_or_default();
                std::io::Write::write_all(&mut file, &content).unwrap();
            }
            _ => {}
        }
    }
}
