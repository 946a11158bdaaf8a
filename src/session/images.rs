//! The images of a session (CONTRACT §2): `images/N.png`, which a prompt names as `[Image #N]`. The conversation keeps
//! only that text; what becomes of it in a request is the model's matter (`model::images`).
//!
//! PNG is what the contract knows. JPEG, GIF and WebP are kept as they came, under their own endings.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::{StorageError, shown};
use super::files::{Durability, replace};
use super::paths::SessionDir;

/// The largest image taken, in bytes: what is 5 MiB in base64, the least that the three APIs take.
pub const MAX_IMAGE: u64 = 5 * 1024 * 1024 / 4 * 3;

/// What an image is, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `image/png`
    Png,
    /// `image/jpeg`
    Jpeg,
    /// `image/gif`
    Gif,
    /// `image/webp`
    Webp,
}

impl Format {
    const ALL: [Self; 4] = [Self::Png, Self::Jpeg, Self::Gif, Self::Webp];

    /// Looks at the first bytes of a file (12 are enough); `None`: no image that a model takes.
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }

    /// Its name in a request.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    /// How its file in `images/` ends.
    pub fn ending(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Gif => "gif",
            Self::Webp => "webp",
        }
    }
}

/// Why an image is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It is none, or not one that a model takes.
    #[error("cannot use the image {path}: {problem}")]
    Unfit {
        /// What was given.
        path: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// It could not be kept.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ImageError {
    /// The exit code: 2 for a bad image, 11 for our own storage.
    pub fn exit(&self) -> crate::exit::Exit {
        match self {
            Self::Unfit { .. } => crate::exit::Exit::Usage,
            Self::Storage(error) => error.exit(),
        }
    }
}

/// How a prompt names an image.
pub fn mention(number: u64) -> String {
    format!("[Image #{number}]")
}

/// Looks whether a file is an image that can be sent, without reading all of it.
pub fn check(file: &Path) -> Result<(), ImageError> {
    open(file).map(drop)
}

/// Copies an image file into the session; returns its number. Only the session's owner may do this.
pub fn add(dir: &SessionDir, file: &Path) -> Result<u64, ImageError> {
    let (mut source, path) = (open(file)?, shown(file));
    let mut bytes = Vec::new();
    let read = source.by_ref().take(MAX_IMAGE + 1).read_to_end(&mut bytes);
    read.map_err(|error| ImageError::Unfit { path: path.clone(), problem: error.to_string() })?;
    keep(dir, &bytes, path)
}

/// Keeps an image that came in memory (a clipboard's); `source` says for errors where it came from. Returns its number.
pub fn add_bytes(dir: &SessionDir, bytes: &[u8], source: &str) -> Result<u64, ImageError> {
    keep(dir, bytes, source.to_owned())
}

fn keep(dir: &SessionDir, bytes: &[u8], path: String) -> Result<u64, ImageError> {
    let format = fitting(&bytes[..bytes.len().min(12)], bytes.len() as u64, path)?;
    let number = 1 + last(&dir.images()).map_err(StorageError::at("read", &dir.images()))?;
    let target = dir.images().join(format!("{number}.{}", format.ending()));
    replace(&target, bytes, Durability::Synced)?;
    Ok(number)
}

/// Opens what is given as an image and looks at its size and first bytes. Never waits for a FIFO.
fn open(file: &Path) -> Result<File, ImageError> {
    let path = shown(file);
    let unfit = |problem: &str| ImageError::Unfit { path: path.clone(), problem: problem.to_owned() };
    let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(file);
    let mut source = opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound => unfit("there is no such file"),
        ErrorKind::PermissionDenied => unfit("permission denied"),
        _ => unfit(&error.to_string()),
    })?;
    let metadata = source.metadata().map_err(|error| unfit(&error.to_string()))?;
    if !metadata.is_file() {
        return Err(unfit("it is no regular file"));
    }
    let mut head = [0; 12];
    let mut filled = 0;
    while filled < head.len() {
        match source.read(&mut head[filled..]).map_err(|error| unfit(&error.to_string()))? {
            0 => break,
            count => filled += count,
        }
    }
    fitting(&head[..filled], metadata.len(), path.clone())?;
    std::io::Seek::rewind(&mut source).map_err(|error| unfit(&error.to_string()))?;
    Ok(source)
}

fn fitting(head: &[u8], size: u64, path: String) -> Result<Format, ImageError> {
    if size > MAX_IMAGE {
        let problem = format!("it has {size} bytes, and models take {MAX_IMAGE} at most: scale it down");
        return Err(ImageError::Unfit { path, problem });
    }
    Format::of(head).ok_or_else(|| {
        let problem = "it is no PNG, JPEG, GIF or WebP: convert it to PNG".to_owned();
        ImageError::Unfit { path, problem }
    })
}

/// The highest number in the directory; 0 when there is none.
fn last(images: &Path) -> std::io::Result<u64> {
    let mut last = 0;
    for entry in fs::read_dir(images)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.split('.').next()).and_then(number_of);
        last = last.max(number.unwrap_or(0));
    }
    Ok(last)
}

/// `N` as it stands in a name or a mention: digits, not 0 in front, at most nine.
fn number_of(digits: &str) -> Option<u64> {
    let plain = (1..=9).contains(&digits.len())
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// The file of image `number` and what it is; `None` when there is none.
pub fn find(images: &Path, number: u64) -> Option<(PathBuf, Format)> {
    Format::ALL.into_iter().find_map(|format| {
        let path = images.join(format!("{number}.{}", format.ending()));
        let metadata = fs::metadata(&path).ok()?;
        (metadata.is_file() && metadata.len() > 0).then_some((path, format))
    })
}

/// Whether there is any image at all: without one a prompt need not be searched.
pub fn any(images: &Path) -> bool {
    fs::read_dir(images).is_ok_and(|mut entries| entries.next().is_some())
}

/// The next `[Image #N]` in `text`: its number, and the byte behind it.
pub fn next_mention(text: &[u8]) -> Option<(u64, usize)> {
    const START: &[u8] = b"[Image #";
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&text[from..], START) {
        let digits = from + at + START.len();
        let end = digits + text[digits..].iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
        let number = std::str::from_utf8(&text[digits..end]).ok().and_then(number_of);
        if let (Some(number), Some(b']')) = (number, text.get(end)) {
            return Some((number, end + 1));
        }
        from = digits;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    fn session() -> (tempfile::TempDir, SessionDir) {
        let home = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(home.path().join("s"));
        fs::create_dir_all(dir.images()).unwrap();
        (home, dir)
    }

    #[test]
    fn images_are_numbered_from_one_and_keep_their_bytes() {
        let (home, dir) = session();
        let file = home.path().join("a b.png");
        fs::write(&file, PNG).unwrap();
        assert!(!any(&dir.images()));
        assert_eq!(add(&dir, &file).unwrap(), 1);
        assert_eq!(add_bytes(&dir, b"\xff\xd8\xff\xe0jpeg", "the clipboard").unwrap(), 2);
        fs::write(dir.images().join("7.png"), PNG).unwrap();
        assert_eq!(add(&dir, &file).unwrap(), 8);
        assert_eq!(fs::read(dir.images().join("1.png")).unwrap(), PNG);
        assert_eq!(find(&dir.images(), 2), Some((dir.images().join("2.jpg"), Format::Jpeg)));
        assert_eq!((find(&dir.images(), 3), any(&dir.images())), (None, true));
    }

    #[test]
    fn what_is_no_image_is_refused_with_its_name() {
        let (home, dir) = session();
        let path = |name: &str| home.path().join(name);
        fs::write(path("text"), "hello").unwrap();
        fs::write(path("empty"), "").unwrap();
        let large = File::create(path("large.png")).unwrap();
        std::io::Write::write_all(&mut &large, PNG).unwrap();
        large.set_len(MAX_IMAGE + 1).unwrap();
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (name, why) in [
            ("text", "convert it to PNG"),
            ("empty", "convert it to PNG"),
            ("large.png", "3932161 bytes"),
            ("fifo", "no regular file"),
            ("missing", "no such file"),
            ("", "no regular file"),
        ] {
            let error = add(&dir, &path(name)).unwrap_err();
            assert!(error.to_string().contains(why), "{name}: {error}");
            assert!(error.to_string().contains(name) && error.exit() == crate::exit::Exit::Usage);
        }
        assert!(!any(&dir.images()));
    }

    #[test]
    fn only_whole_mentions_count() {
        assert_eq!(next_mention(b"a [Image #12] b"), Some((12, 13)));
        assert_eq!(next_mention(b"[Image #x][Image #3]"), Some((3, 20)));
        for text in
            ["", "[Image #", "[Image #0]", "[Image #01]", "[Image #1", "[image #1]", "[Image #1234567890]"]
        {
            assert_eq!(next_mention(text.as_bytes()), None, "{text}");
        }
    }
}
