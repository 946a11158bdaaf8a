//! Takes out of what a run left whatever differs from run to run: places, ports, ids, times, pids, speeds.

use crate::shape::fits;
use crate::world::World;

/// Replaces what differs in any text.
pub(crate) fn text(text: &str, world: &World) -> String {
    let mut text = text.to_owned();
    for (value, name) in world.places() {
        text = text.replace(&value, name);
    }
    let text = replace(&text, "sub_99999999-999999-hhhh", "<SUB>");
    let text = replace(&text, "task_99999999-999999-hhhh", "<TASK>");
    let text = replace(&text, "99999999-999999-hhhh", "<ID>");
    let text = replace(&text, "9999-99-99T99:99:99Z", "<TIME>");
    let text = after(&text, "pid=", "<PID>");
    after(&text, "\"duration_ms\":", "<MS>")
}

/// Lines of events: also without `ts`, neighbouring pieces of text and thinking joined.
pub(crate) fn events(raw: &str, world: &World) -> String {
    let mut out = String::new();
    let mut open: Option<&str> = None;
    for line in raw.split_inclusive('\n') {
        let piece = ["text", "thinking"].into_iter().find_map(|kind| {
            let head = format!("{{\"type\":\"{kind}\",\"content\":\"");
            line.strip_prefix(head.as_str())?.strip_suffix("\"}\n").map(|content| (kind, content))
        });
        match piece {
            Some((kind, content)) if open == Some(kind) => {
                out.truncate(out.len() - "\"}\n".len());
                out.push_str(content);
                out.push_str("\"}\n");
            }
            _ => {
                open = piece.map(|(kind, _)| kind);
                out.push_str(&without_ts(line));
            }
        }
    }
    text(&out, world)
}

/// Drops a well-formed `ts` at the end of an event line.
fn without_ts(line: &str) -> String {
    const HEAD: &str = ",\"ts\":\"";
    let ts = "9999-99-99T99:99:99.999Z\"}\n";
    match line.rfind(HEAD) {
        Some(place) if fits(&line[place + HEAD.len()..], ts) == Some(ts.len()) => {
            format!("{}}}\n", &line[..place])
        }
        _ => line.to_owned(),
    }
}

/// stats.json: also without the time and the speed.
pub(crate) fn stats(raw: &str, world: &World) -> String {
    let text = text(raw, world);
    let text = replace(&text, "\"last_updated\":\"99999999-999999\"", "\"last_updated\":\"<TIME>\"");
    decimals(&text, "\"last_call_speed_tok_per_sec\":", 1, "<SPEED>")
}

/// A number with exactly `places` decimals behind `head`.
fn decimals(text: &str, head: &str, places: usize, name: &str) -> String {
    let Some(start) = text.find(head).map(|place| place + head.len()) else { return text.to_owned() };
    let tail = &text[start..];
    let length = tail.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tail.len());
    match tail[..length].split_once('.') {
        Some((whole, part)) if !whole.is_empty() && part.len() == places => {
            format!("{}{name}{}", &text[..start], &tail[length..])
        }
        _ => text.to_owned(),
    }
}

/// Replaces the digits behind every `head`.
fn after(text: &str, head: &str, name: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(place) = rest.find(head) {
        let (before, tail) = rest.split_at(place + head.len());
        let length = tail.bytes().take_while(u8::is_ascii_digit).count();
        out.push_str(before);
        if length > 0 {
            out.push_str(name);
        }
        rest = &tail[length..];
    }
    out + rest
}

/// Replaces what has the form of `form` (`9` a digit, `h` a lower-case hex digit, else itself).
pub(crate) fn replace(text: &str, form: &str, name: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if let Some(length) = fits(rest, form) {
            out.push_str(name);
            rest = &rest[length..];
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}
