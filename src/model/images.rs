//! Images in a request (PROVIDERS): where a user's text names an image of the session, a model that sees gets it as a
//! block behind that text; one that does not gets its path in a note. The twin of awk/window.awk, "Images".

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::convert::{Items, USER_TEXT};
use crate::session::images::{self, Format};
use crate::session::mend::is_blank_body;
use crate::wire::json;

/// Bytes encoded at once: a multiple of three, so that the pieces join.
const PIECE: usize = 48 << 10;

/// How an API takes text and images in a user's message.
pub(super) struct Form {
    /// The type of a text block.
    pub(super) text: &'static str,
    /// Before the media type, between it and the data, after the data.
    pub(super) image: [&'static str; 3],
}

/// What a request does about images.
pub(super) struct Images<'a> {
    dir: &'a Path,
    /// As blocks; else as a note.
    form: Option<&'static Form>,
}

/// A piece of a user's text (the body of a JSON string) and the image that it ends with.
struct Part<'a> {
    text: &'a [u8],
    number: u64,
    path: PathBuf,
    format: Format,
}

impl<'a> Images<'a> {
    /// `None` where there is nothing to do: the session has no images.
    pub(super) fn new(dir: Option<&'a Path>, sees: bool, form: &'static Form) -> Option<Self> {
        let dir = dir.filter(|dir| images::any(dir))?;
        Some(Self { dir, form: sees.then_some(form) })
    }

    /// Writes the message of a line that names images of the session; `false`: it names none and nothing was written.
    pub(super) fn write(&self, line: &[u8], items: &mut Items) -> io::Result<bool> {
        let body = line.strip_prefix(USER_TEXT).and_then(|rest| rest.strip_suffix(b"\"}"));
        let Some(body) = body else { return Ok(false) };
        let (parts, rest) = self.parts(body);
        if parts.is_empty() {
            return Ok(false);
        }
        match self.form {
            Some(form) => blocks(form, &parts, rest, items)?,
            None => note(body, &parts, items),
        }
        Ok(true)
    }

    /// The text up to each image, and what is left behind the last one. An image counts where it is first named.
    fn parts<'b>(&self, body: &'b [u8]) -> (Vec<Part<'b>>, &'b [u8]) {
        let (mut parts, mut start, mut at) = (Vec::<Part<'b>>::new(), 0, 0);
        while let Some((number, length)) = images::next_mention(&body[at..]) {
            at += length;
            if parts.iter().any(|part| part.number == number) {
                continue;
            }
            if let Some((path, format)) = images::find(self.dir, number) {
                parts.push(Part { text: &body[start..at], number, path, format });
                start = at;
            }
        }
        (parts, &body[start..])
    }
}

fn blocks(form: &Form, parts: &[Part<'_>], rest: &[u8], items: &mut Items) -> io::Result<()> {
    let text = |text: &[u8], out: &mut Vec<u8>| {
        for piece in [b"{\"type\":\"", form.text.as_bytes(), b"\",\"text\":\"", text, b"\"}"] {
            out.extend_from_slice(piece);
        }
    };
    items.out.extend_from_slice(b",{\"role\":\"user\",\"content\":[");
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            items.out.push(b',');
        }
        text(part.text, &mut items.out);
        let [before, between, after] = form.image;
        for piece in [",", before, part.format.media_type(), between] {
            items.out.extend_from_slice(piece.as_bytes());
        }
        data(&part.path, items)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", part.path.display())))?;
        items.out.extend_from_slice(after.as_bytes());
    }
    // A blank text block is refused.
    if !is_blank_body(rest) {
        items.out.push(b',');
        text(rest, &mut items.out);
    }
    items.out.extend_from_slice(b"]}");
    Ok(())
}

/// The file in base64, passed on piece by piece.
fn data(path: &Path, items: &mut Items) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; PIECE];
    let mut text = String::new();
    loop {
        let mut filled = 0;
        while filled < PIECE {
            match file.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        text.clear();
        STANDARD.encode_string(&piece[..filled], &mut text);
        items.out.extend_from_slice(text.as_bytes());
        items.image_bytes += text.len() as u64;
        items.flush()?;
        if filled < PIECE {
            return Ok(());
        }
    }
}

fn note(body: &[u8], parts: &[Part<'_>], items: &mut Items) {
    items.out.push(b',');
    items.out.extend_from_slice(USER_TEXT);
    items.out.extend_from_slice(body);
    items.out.extend_from_slice(b"\\n\\n<attached-images>\\n");
    for part in parts {
        let line = format!("{}: {}\n", images::mention(part.number), part.path.display());
        json::escape_into(&mut items.out, &line);
    }
    items.out.extend_from_slice(b"</attached-images>\"}");
}
