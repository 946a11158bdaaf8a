//! JSON strings and members, and the edit of a text.

use std::io::Read;
use std::path::Path;

use super::input::Stdin;
use super::{CoreError, MAX_INPUT, note, open, print, pump, whole_stdin};
use crate::exit::Exit;
use crate::tools;
use crate::wire::json;
use crate::wire::resp::Decoder;

/// `core json escape`
pub(super) fn escape() -> Result<Exit, CoreError> {
    // The first bytes of a character whose last ones have not come.
    let mut begun: Vec<u8> = Vec::new();
    pump("stdin", Stdin::new(), |piece, out| {
        let Some(piece) = piece else {
            json::escape_into(out, &json::clean(&begun));
            return Ok(());
        };
        begun.extend_from_slice(piece);
        let whole = begun.len() - unfinished(&begun);
        json::escape_into(out, &json::clean(&begun[..whole]));
        begun.drain(..whole);
        Ok(())
    })
}

/// How many bytes at the end of `text` begin a character that goes on behind them.
fn unfinished(text: &[u8]) -> usize {
    let start = text.len().saturating_sub(3);
    // Of the last bytes: where one that begins a character stands.
    let Some(lead) = text[start..].iter().rposition(|byte| byte & 0xc0 != 0x80) else { return 0 };
    let tail = &text[start + lead..];
    match std::str::from_utf8(tail) {
        Err(error) if error.error_len().is_none() => tail.len(),
        _ => 0,
    }
}

/// `core json get`
pub(super) fn get(key: &str, raw: bool) -> Result<Exit, CoreError> {
    let object = whole_stdin()?;
    let object = object.trim_ascii();
    if !json::is_valid(object) {
        return Err(CoreError::Failed("stdin is not one valid JSON value".to_owned()));
    }
    let Some(value) = json::member(object, key) else {
        // The exit code says it; a caller that asks whether a key is there wants no words.
        return Ok(Exit::Failed);
    };
    Ok(match json::string(value) {
        Some(text) if !raw => print(text.as_bytes()),
        _ => print(value),
    })
}

/// `core edit`
pub(super) fn edit(path: &Path, name: Option<String>, reply: Option<&Path>) -> Result<Exit, CoreError> {
    let name = name.unwrap_or_else(|| path.display().to_string());
    let done = edited(path, &name);
    let said = match &done {
        Ok(edited) => edited.reply.as_str(),
        Err(why) => why,
    };
    match reply {
        Some(file) => {
            std::fs::write(file, said).map_err(|error| CoreError::Write(file.display().to_string(), error))?
        }
        None if done.is_err() => note(said),
        None => {}
    }
    Ok(match done {
        Ok(edited) => print(&edited.content),
        Err(_) => Exit::Failed,
    })
}

/// The new content, or why there is none.
fn edited(path: &Path, name: &str) -> Result<tools::Edited, String> {
    let input = whole_stdin().map_err(|error| error.to_string())?;
    let mut decoder = Decoder::new();
    decoder.feed(&input);
    let fields = match decoder.next() {
        Some(Ok(fields)) => fields,
        Some(Err(_)) | None => return Err("no old_string and new_string were given".to_owned()),
    };
    let [old, new] = &fields[..] else {
        return Err(match fields.len() {
            1 => "no new_string provided".to_owned(),
            count => format!("two fields belong here, the old and the new text, not {count}"),
        });
    };
    let (old, new) = (json::clean(old), json::clean(new));
    tools::check_edit(&old, &new)?;
    let file = open(path).map_err(|_| format!("file not found: {name}"))?;
    let mut content = Vec::new();
    file.take(MAX_INPUT + 1).read_to_end(&mut content).map_err(|error| format!("{name}: {error}"))?;
    if content.len() as u64 > MAX_INPUT {
        return Err(format!("{name} is too large to edit"));
    }
    tools::edit_text(name, &content, &old, &new)
}

#[cfg(test)]
mod tests {
    use super::unfinished;

    #[test]
    fn only_a_character_that_goes_on_is_unfinished() {
        for (text, count) in [
            ("".as_bytes(), 0),
            (b"a", 0),
            ("é".as_bytes(), 0),
            (b"a\xc3", 1),
            (b"\xe2\x82", 2),
            (b"\xf0\x9f\x98", 3),
            (b"\xf0\x9f\x98\x80", 0),
            (b"\x98\x80\x80", 0),
            (b"\xff", 0),
            (b"\xe2\x28", 0),
        ] {
            assert_eq!(unfinished(text), count, "{text:?}");
        }
    }
}
