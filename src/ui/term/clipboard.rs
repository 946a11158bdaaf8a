//! An image from the desktop's clipboard, by whichever program is there to ask.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take; some wait for a selection that never comes.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than this is no image that a model takes.
const MOST: u64 = 32 << 20;

/// Programs that write the clipboard's PNG to stdout.
const PROGRAMS: &[&[&str]] = &[
    &["wl-paste", "--no-newline", "--type", "image/png"],
    &["xclip", "-selection", "clipboard", "-t", "image/png", "-o"],
    // macOS: AppleScript prints data as hexadecimal digits between guillemets.
    &["osascript", "-e", "get the clipboard as «class PNGf»"],
];

/// Looks for an image on a thread of its own; `give` gets its bytes, or a remark for the person.
pub(super) fn image(give: impl FnOnce(Result<Vec<u8>, &'static str>) + Send + 'static) {
    let look = move || {
        let mut asked = false;
        for words in PROGRAMS {
            let Some(output) = output_of(words) else { continue };
            asked = true;
            let bytes = if words[0] == "osascript" { of_hex(&output) } else { output };
            if !bytes.is_empty() {
                return give(Ok(bytes));
            }
        }
        give(Err(if asked {
            "no image in the clipboard"
        } else {
            "to paste images install wl-paste or xclip, or use /image FILE"
        }));
    };
    // Without a thread there is no image.
    let _ = std::thread::Builder::new().name("clipboard".to_owned()).spawn(look);
}

/// What a program prints; empty when it fails, `None` when there is no such program.
fn output_of(words: &[&str]) -> Option<Vec<u8>> {
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let reader = child.stdout.take().map(|stdout| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.take(MOST).read_to_end(&mut bytes);
            if read.is_ok() { bytes } else { Vec::new() }
        })
    });
    let deadline = Instant::now() + PATIENCE;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            _ => {
                // It may have ended by itself meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                break false;
            }
        }
    };
    let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    Some(if ended { bytes } else { Vec::new() })
}

/// The bytes of `«data PNGf89504E…»`.
fn of_hex(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let digits = text.split_once("PNGf").map_or("", |(_, rest)| rest);
    let digits: Vec<u8> = digits.bytes().take_while(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks_exact(2).filter_map(|pair| std::str::from_utf8(pair).ok());
    pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_applescript_answer_is_decoded() {
        assert_eq!(of_hex("«data PNGf89504E47»\n".as_bytes()), [0x89, 0x50, 0x4e, 0x47]);
        assert_eq!(of_hex(b"execution error"), [0; 0]);
    }
}
