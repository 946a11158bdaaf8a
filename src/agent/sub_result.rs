//! What a sub-agent did, read from its session directory once it has ended (CONTRACT §7, "Children").
//! The twin of awk/sub_result.awk.

use std::borrow::Cow;
use std::fs::File;

use crate::session::paths::SessionDir;
use crate::session::stats::Stats;
use crate::wire::json;
use crate::wire::message::{AgentResult, Usage};
use crate::wire::ndjson::LinesBack;

/// The result of the child in `dir`. `code` is what is said when it ended without a word: `ended with code <code>`.
pub fn of(dir: &SessionDir, ok: bool, code: &str) -> AgentResult {
    let stats = Stats::load(&dir.stats()).map(|(stats, _)| stats).unwrap_or_default();
    let usage = Usage {
        input: stats.total_input_tokens,
        output: stats.total_output_tokens,
        cache_read: stats.total_cache_read_tokens,
        cache_creation: stats.total_cache_creation_tokens,
    };
    let (thinking, text) = if ok {
        last_answer(dir)
    } else {
        (String::new(), last_error(dir).unwrap_or_else(|| format!("ended with code {code}")))
    };
    AgentResult { session_id: dir.name(), ok, thinking, text, usage, requests: stats.agent_request_count }
}

/// A child that never ran.
pub fn failed(session_id: &str, why: &str) -> AgentResult {
    AgentResult { session_id: session_id.to_owned(), text: why.to_owned(), ..AgentResult::default() }
}

/// The first line from the end that `pick` takes something from.
fn find_back<T>(path: &std::path::Path, pick: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    let mut lines = LinesBack::new(File::open(path).ok()?).ok()?;
    while let Some(line) = lines.next().ok()? {
        if let Some(found) = pick(line.bytes) {
            return Some(found);
        }
    }
    None
}

/// Thinking and text of the last assistant line, blocks joined by LF.
fn last_answer(dir: &SessionDir) -> (String, String) {
    let answer = find_back(&dir.conversation(), |line| {
        if !line.starts_with(br#"{"role":"assistant""#) {
            return None;
        }
        // By our own reader: an older log can hold lone surrogates, which serde_json refuses.
        if !json::is_valid(line) {
            return None;
        }
        let blocks = json::member(line, "content").and_then(json::elements).unwrap_or_default();
        let joined = |kind: &'static str| {
            let blocks = blocks.iter().filter(|block| text_of(block, "type").as_deref() == Some(kind));
            let texts = blocks.filter_map(|block| text_of(block, kind)).filter(|text| !text.is_empty());
            texts.collect::<Vec<_>>().join("\n")
        };
        Some((joined("thinking"), joined("text")))
    });
    answer.unwrap_or_default()
}

fn last_error(dir: &SessionDir) -> Option<String> {
    find_back(&dir.events(), |line| {
        if !line.starts_with(br#"{"type":"error""#) {
            return None;
        }
        json::string(json::member(line, "message")?).map(Cow::into_owned)
    })
}

fn text_of<'a>(object: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    json::member(object, key).and_then(json::string)
}
