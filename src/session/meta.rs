//! session.json: what the session is about (CONTRACT §2, §4; ours).

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::StorageError;
use super::files::{Durability, read_small, replace};
use super::paths::SessionDir;
use super::time::Timestamp;
use crate::wire::json;

/// What session.json holds. Texts are empty where they are not known yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The physical directory the session works in; invalid UTF-8 in it is U+FFFD.
    pub cwd: String,
    /// When the session was made, as `ts`.
    pub created: String,
    /// `rust` or `bash`: who wrote this last.
    pub runtime: String,
    /// Its version.
    pub version: String,
    /// The provider of the last model call.
    pub provider: String,
    /// The model of the last model call.
    pub model: String,
    /// Byte offset into conversation.jsonl: thinking before it is left out of requests.
    pub thinking_from: u64,
    /// Byte offset into conversation.jsonl: large tool results before it are left out of requests.
    pub results_from: u64,
    /// Keys we do not know, with their raw JSON values.
    pub extra: Vec<(String, String)>,
}

impl Meta {
    /// A new session's.
    pub fn new(cwd: &Path) -> Self {
        Self { cwd: cwd_text(cwd), created: Timestamp::now().ts(), ..Self::default() }.stamped()
    }

    /// Reads a session's file. `None`: it is missing or broken, as in sessions of older agents.
    pub fn load(dir: &SessionDir) -> Result<Option<Self>, StorageError> {
        Ok(read_small(&dir.meta())?.and_then(|content| Self::parse(&content)))
    }

    pub(super) fn parse(content: &[u8]) -> Option<Self> {
        let mut meta = Self::default();
        for (key, raw) in json::members(content.trim_ascii_end())? {
            let text = || json::string(raw).map(Cow::into_owned).unwrap_or_default();
            let offset = || std::str::from_utf8(raw).ok().and_then(|raw| raw.parse().ok()).unwrap_or(0);
            match key.as_ref() {
                "cwd" => meta.cwd = text(),
                "created" => meta.created = text(),
                "runtime" => meta.runtime = text(),
                "version" => meta.version = text(),
                "provider" => meta.provider = text(),
                "model" => meta.model = text(),
                "thinking_from" => meta.thinking_from = offset(),
                "results_from" => meta.results_from = offset(),
                _ => meta.extra.push((key.into_owned(), String::from_utf8_lossy(raw).into_owned())),
            }
        }
        Some(meta)
    }

    /// Replaces a session's file atomically. Only the owner does.
    pub fn store(&self, dir: &SessionDir) -> Result<(), StorageError> {
        replace(&dir.meta(), self.to_json().as_bytes(), Durability::Atomic)
    }

    /// The file's content: one JSON object on one line, and a line feed.
    pub fn to_json(&self) -> String {
        let mut out = vec![b'{'];
        let texts = [
            ("cwd", &self.cwd),
            ("created", &self.created),
            ("runtime", &self.runtime),
            ("version", &self.version),
            ("provider", &self.provider),
            ("model", &self.model),
        ];
        for (key, text) in texts {
            json::string_into(&mut out, key);
            out.push(b':');
            json::string_into(&mut out, text);
            out.push(b',');
        }
        out.extend_from_slice(format!("\"thinking_from\":{}", self.thinking_from).as_bytes());
        if self.results_from > 0 {
            out.extend_from_slice(format!(",\"results_from\":{}", self.results_from).as_bytes());
        }
        for (key, raw) in &self.extra {
            out.push(b',');
            json::string_into(&mut out, key);
            out.push(b':');
            out.extend_from_slice(raw.as_bytes());
        }
        out.extend_from_slice(b"}\n");
        String::from_utf8(out).unwrap_or_default()
    }

    /// To be called before each model call: notes provider and model, and when they differ from the last call's sets
    /// `thinking_from` to `conversation_len`. Returns whether anything changed, that is, whether to `store`.
    pub fn before_call(&mut self, provider: &str, model: &str, conversation_len: u64) -> bool {
        if self.provider == provider && self.model == model {
            return false;
        }
        let called_before = !self.provider.is_empty() || !self.model.is_empty();
        if called_before {
            self.thinking_from = conversation_len;
        }
        provider.clone_into(&mut self.provider);
        model.clone_into(&mut self.model);
        *self = std::mem::take(self).stamped();
        true
    }

    /// Whether the session works in `cwd`, or does not say where.
    pub fn is_of(&self, cwd: &Path) -> bool {
        self.cwd.is_empty() || self.cwd == cwd_text(cwd)
    }

    fn stamped(mut self) -> Self {
        self.runtime = "rust".to_owned();
        self.version = env!("CARGO_PKG_VERSION").to_owned();
        self
    }
}

fn cwd_text(cwd: &Path) -> String {
    json::clean(cwd.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_stored_and_loaded_with_what_others_put_there() {
        let temp = tempfile::tempdir().unwrap();
        let dir = SessionDir::new(temp.path().to_path_buf());
        assert_eq!(Meta::load(&dir).unwrap(), None);
        let mut meta = Meta::new(Path::new("/a \"b\""));
        meta.extra.push(("later".into(), "[1,2]".into()));
        meta.thinking_from = 5_000_000_000;
        meta.results_from = 70;
        meta.store(&dir).unwrap();
        assert_eq!(Meta::load(&dir).unwrap(), Some(meta.clone()));
        assert!(meta.is_of(Path::new("/a \"b\"")) && !meta.is_of(Path::new("/a")));
        let text = std::fs::read_to_string(dir.meta()).unwrap();
        assert!(text.starts_with("{\"cwd\":\"/a \\\"b\\\"\",\"created\":\"20"), "{text}");
        assert!(
            text.ends_with(
                ",\"provider\":\"\",\"model\":\"\",\"thinking_from\":5000000000,\"results_from\":70,\"later\":[1,2]}\n"
            )
        );
        std::fs::write(dir.meta(), "{").unwrap();
        assert_eq!(Meta::load(&dir).unwrap(), None);
    }

    #[test]
    fn thinking_is_left_out_from_a_change_of_model_on() {
        let mut meta = Meta::new(Path::new("/a"));
        assert!(meta.before_call("claude", "m1", 10));
        assert_eq!(meta.thinking_from, 0);
        assert!(!meta.before_call("claude", "m1", 20));
        assert!(meta.before_call("claude", "m2", 30));
        assert_eq!(meta.thinking_from, 30);
    }
}
