//! stats.json: the counters of a session, updated by several processes that never lose one another's (CONTRACT §6).

use std::borrow::Cow;
use std::path::Path;

use super::error::{StorageError, shown};
use super::files::{Durability, read_small, replace};
use super::lock::StateLock;
use super::paths::SessionDir;
use super::time::Timestamp;
use crate::wire::json;

/// The counters in the order of their file.
const COUNTERS: [&str; 9] = [
    "current_turn_count",
    "agent_request_count",
    "compact_request_count",
    "sub_agent_request_count",
    "total_input_tokens",
    "total_output_tokens",
    "total_cache_read_tokens",
    "total_cache_creation_tokens",
    "current_context_tokens",
];
const LAST_UPDATED: &str = "last_updated";
const TOTAL_COST: &str = "total_cost_usd";
const LAST_SPEED: &str = "last_call_speed_tok_per_sec";

/// What stats.json holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// User and notify turns.
    pub current_turn_count: u64,
    /// Model calls of turns, those of sub-agents included.
    pub agent_request_count: u64,
    /// Summary calls.
    pub compact_request_count: u64,
    /// Sub-agents that answered.
    pub sub_agent_request_count: u64,
    /// Tokens read at full price.
    pub total_input_tokens: u64,
    /// Tokens written by the model.
    pub total_output_tokens: u64,
    /// Tokens read from the provider's cache.
    pub total_cache_read_tokens: u64,
    /// Tokens written to the provider's cache.
    pub total_cache_creation_tokens: u64,
    /// The size of the last model call of a turn, in tokens.
    pub current_context_tokens: u64,
    /// `YYYYMMDD-HHMMSS`, local time; older files may hold another form.
    pub last_updated: String,
    /// Dollars.
    pub total_cost_usd: f64,
    /// Output tokens a second of the last call.
    pub last_call_speed_tok_per_sec: f64,
    /// Keys we do not know, with their raw JSON values, in the file's order.
    pub extra: Vec<(String, String)>,
}

/// The value of an update.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Int(u64),
    /// Any other number that is finite and not negative.
    Float(f64),
    /// Text: only for `last_updated` and keys we do not know.
    Text(String),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

/// One change to stats.json.
#[derive(Clone, Debug, PartialEq)]
pub enum Update<'a> {
    /// `key=value`
    Set(Cow<'a, str>, Value),
    /// `key=+n`
    Add(Cow<'a, str>, Value),
}

/// An update that makes no sense; the text names it and says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad stats update {update:?}: {why}")]
pub struct BadUpdate {
    update: String,
    why: &'static str,
}

impl<'a> Update<'a> {
    /// Sets `key` to `value`.
    pub fn set(key: &'a str, value: impl Into<Value>) -> Self {
        Self::Set(Cow::Borrowed(key), value.into())
    }

    /// Adds `n` to `key`.
    pub fn add(key: &'a str, n: impl Into<Value>) -> Self {
        Self::Add(Cow::Borrowed(key), n.into())
    }

    /// Reads `key=value` or `key=+n`. Counters take whole numbers, the figures of ours any number that is not
    /// negative, `last_updated` and unknown keys anything (text there is stored as a JSON string).
    pub fn parse(text: &'a str) -> Result<Self, BadUpdate> {
        let bad = |why| BadUpdate { update: text.chars().take(200).collect(), why };
        let (key, value) = text.split_once('=').ok_or_else(|| bad("it is not KEY=VALUE or KEY=+N"))?;
        if key.is_empty() {
            return Err(bad("the key is empty"));
        }
        let (adds, number) = value.strip_prefix('+').map_or((false, value), |number| (true, number));
        let value = match number_value(number) {
            Some(value) => value,
            None if adds || COUNTERS.contains(&key) || key == TOTAL_COST || key == LAST_SPEED => {
                return Err(bad("it is not a number that is zero or more"));
            }
            None => Value::Text(value.to_owned()),
        };
        if COUNTERS.contains(&key) && !matches!(value, Value::Int(_)) {
            return Err(bad("a counter takes whole numbers"));
        }
        if key == LAST_UPDATED && adds {
            return Err(bad("a time cannot be added to"));
        }
        let key = Cow::Borrowed(key);
        Ok(if adds { Self::Add(key, value) } else { Self::Set(key, value) })
    }
}

/// A number that is zero or more, written as JSON writes numbers.
fn number_value(text: &str) -> Option<Value> {
    if !text.as_bytes().first()?.is_ascii_digit() {
        return None;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().map(Value::Int);
    }
    let number: f64 = text.parse().ok()?;
    number.is_finite().then_some(Value::Float(number))
}

impl Stats {
    /// Reads a stats file. A missing or broken one gives zeros, and a note that says so for the user; a broken field
    /// gives a zero and a note. An empty file is one that was just made.
    pub fn load(path: &Path) -> Result<(Self, Option<String>), StorageError> {
        let Some(content) = read_small(path)? else {
            return Ok((
                Self::default(),
                Some(format!("{} is missing: its counts start from 0", shown(path))),
            ));
        };
        if content.is_empty() {
            return Ok((Self::default(), None));
        }
        let (stats, bad) = match json::members(content.trim_ascii_end()) {
            Some(members) => Self::from_members(members),
            None => {
                return Ok((
                    Self::default(),
                    Some(format!("{} is broken: its counts start from 0", shown(path))),
                ));
            }
        };
        let note = format!("{} holds no usable {}: counted from 0", shown(path), bad.join(", "));
        Ok((stats, (!bad.is_empty()).then_some(note)))
    }

    /// The stats, and the names of the fields that could not be read.
    fn from_members(members: Vec<(Cow<'_, str>, &[u8])>) -> (Self, Vec<&'static str>) {
        let mut stats = Self::default();
        let mut bad = Vec::new();
        for (key, raw) in members {
            let text = std::str::from_utf8(raw).unwrap_or_default();
            if let Some(&name) = COUNTERS.iter().find(|name| **name == key) {
                match (number_value(text), stats.counter_mut(name)) {
                    (Some(Value::Int(value)), Some(counter)) => *counter = value,
                    _ => bad.push(name),
                }
            } else if key == LAST_UPDATED {
                stats.last_updated = json::string(raw).map(Cow::into_owned).unwrap_or_default();
            } else if let Some((name, figure)) = stats.figure_mut(&key) {
                match number_value(text) {
                    Some(Value::Float(value)) => *figure = value,
                    Some(Value::Int(value)) => *figure = value as f64,
                    _ => bad.push(name),
                }
            } else {
                stats.set_extra(&key, text.to_owned());
            }
        }
        (stats, bad)
    }

    /// Applies updates to a session's stats under state.lock and replaces the file atomically; returns the new stats
    /// and a note when the old file was missing or broken. When it fails the old content stays.
    pub fn update(dir: &SessionDir, updates: &[Update<'_>]) -> Result<(Self, Option<String>), StorageError> {
        Self::update_file(&dir.stats(), updates)
    }

    /// `update` for any stats file: the lock is the `state.lock` beside it.
    pub fn update_file(path: &Path, updates: &[Update<'_>]) -> Result<(Self, Option<String>), StorageError> {
        let dir = SessionDir::new(
            path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf(),
        );
        let lock = StateLock::take(&dir)?;
        Self::update_locked(&lock, path, updates)
    }

    /// `update_file` for who holds the lock already.
    pub(super) fn update_locked(
        _lock: &StateLock,
        path: &Path,
        updates: &[Update<'_>],
    ) -> Result<(Self, Option<String>), StorageError> {
        let (mut stats, note) = Self::load(path)?;
        stats.last_updated = Timestamp::now().local_compact();
        for update in updates {
            stats.apply(update);
        }
        stats.store(path, Durability::Atomic)?;
        Ok((stats, note))
    }

    /// Writes the file. Not for updates: those need the lock around reading and writing.
    pub(super) fn store(&self, path: &Path, durability: Durability) -> Result<(), StorageError> {
        replace(path, self.to_json().as_bytes(), durability)
    }

    /// The file's content: one JSON object on one line, and a line feed.
    pub fn to_json(&self) -> String {
        let mut out = vec![b'{'];
        for key in COUNTERS.iter().chain(&[LAST_UPDATED, TOTAL_COST, LAST_SPEED]) {
            self.member_into(&mut out, key);
        }
        for (key, _) in &self.extra {
            self.member_into(&mut out, key);
        }
        out.extend_from_slice(b"}\n");
        String::from_utf8(out).unwrap_or_default()
    }

    fn member_into(&self, out: &mut Vec<u8>, key: &str) {
        if out.len() > 1 {
            out.push(b',');
        }
        json::string_into(out, key);
        out.push(b':');
        out.extend_from_slice(self.raw(key).unwrap_or_default().as_bytes());
    }

    /// The value of a key as JSON.
    fn raw(&self, key: &str) -> Option<String> {
        if let Some(value) = self.counter(key) {
            return Some(value.to_string());
        }
        match key {
            LAST_UPDATED => {
                let mut out = Vec::new();
                json::string_into(&mut out, &self.last_updated);
                String::from_utf8(out).ok()
            }
            TOTAL_COST => Some(format!("{:.6}", self.total_cost_usd)),
            LAST_SPEED => Some(format!("{:.1}", self.last_call_speed_tok_per_sec)),
            _ => self.extra.iter().find(|(name, _)| name == key).map(|(_, raw)| raw.clone()),
        }
    }

    /// The value of a key for people and scripts: numbers as in the file, strings without their quotes.
    pub fn get(&self, key: &str) -> Option<String> {
        let raw = self.raw(key)?;
        match json::string(raw.as_bytes()) {
            Some(text) => Some(text.into_owned()),
            None => Some(raw),
        }
    }

    /// Applies one update. Counters saturate.
    pub fn apply(&mut self, update: &Update<'_>) {
        let (adds, key, value) = match update {
            Update::Set(key, value) => (false, key.as_ref(), value),
            Update::Add(key, value) => (true, key.as_ref(), value),
        };
        if let Some(counter) = self.counter_mut(key) {
            if let Value::Int(n) = *value {
                *counter = if adds { counter.saturating_add(n) } else { n };
            }
        } else if key == LAST_UPDATED {
            match value {
                Value::Text(text) => self.last_updated.clone_from(text),
                Value::Int(number) => self.last_updated = number.to_string(),
                Value::Float(number) => self.last_updated = number.to_string(),
            }
        } else if let Some((_, figure)) = self.figure_mut(key) {
            let number = match *value {
                Value::Int(number) => number as f64,
                Value::Float(number) => number,
                Value::Text(_) => return,
            };
            *figure = if adds { *figure + number } else { number };
        } else {
            self.apply_extra(adds, key, value);
        }
    }

    fn apply_extra(&mut self, adds: bool, key: &str, value: &Value) {
        let old = self.raw(key).filter(|_| adds).and_then(|raw| number_value(&raw));
        let raw = match (old, value) {
            (Some(Value::Int(old)), Value::Int(n)) => old.saturating_add(*n).to_string(),
            (Some(Value::Int(old)), Value::Float(n)) => format!("{:.6}", old as f64 + n),
            (Some(Value::Float(old)), Value::Int(n)) => format!("{:.6}", old + *n as f64),
            (Some(Value::Float(old)), Value::Float(n)) => format!("{:.6}", old + n),
            (_, Value::Int(n)) => n.to_string(),
            (_, Value::Float(n)) => n.to_string(),
            (_, Value::Text(text)) => {
                let mut out = Vec::new();
                json::string_into(&mut out, text);
                String::from_utf8(out).unwrap_or_default()
            }
        };
        self.set_extra(key, raw);
    }

    fn set_extra(&mut self, key: &str, raw: String) {
        match self.extra.iter_mut().find(|(name, _)| name == key) {
            Some((_, value)) => *value = raw,
            None => self.extra.push((key.to_owned(), raw)),
        }
    }

    fn counter(&self, key: &str) -> Option<u64> {
        // One table for reading and writing; a copy is cheap without the extra keys.
        let mut numbers = Self { extra: Vec::new(), last_updated: String::new(), ..*self };
        numbers.counter_mut(key).copied()
    }

    fn counter_mut(&mut self, key: &str) -> Option<&mut u64> {
        Some(match key {
            "current_turn_count" => &mut self.current_turn_count,
            "agent_request_count" => &mut self.agent_request_count,
            "compact_request_count" => &mut self.compact_request_count,
            "sub_agent_request_count" => &mut self.sub_agent_request_count,
            "total_input_tokens" => &mut self.total_input_tokens,
            "total_output_tokens" => &mut self.total_output_tokens,
            "total_cache_read_tokens" => &mut self.total_cache_read_tokens,
            "total_cache_creation_tokens" => &mut self.total_cache_creation_tokens,
            "current_context_tokens" => &mut self.current_context_tokens,
            _ => return None,
        })
    }

    fn figure_mut(&mut self, key: &str) -> Option<(&'static str, &mut f64)> {
        Some(match key {
            TOTAL_COST => (TOTAL_COST, &mut self.total_cost_usd),
            LAST_SPEED => (LAST_SPEED, &mut self.last_call_speed_tok_per_sec),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::testing::session;
    use proptest::prelude::*;

    #[test]
    fn the_file_has_the_contracts_form() {
        let stats = Stats {
            total_input_tokens: u64::MAX,
            last_updated: "20260102-030405".into(),
            ..Stats::default()
        };
        assert_eq!(
            stats.to_json(),
            "{\"current_turn_count\":0,\"agent_request_count\":0,\"compact_request_count\":0,\
             \"sub_agent_request_count\":0,\"total_input_tokens\":18446744073709551615,\"total_output_tokens\":0,\
             \"total_cache_read_tokens\":0,\"total_cache_creation_tokens\":0,\"current_context_tokens\":0,\
             \"last_updated\":\"20260102-030405\",\"total_cost_usd\":0.000000,\"last_call_speed_tok_per_sec\":0.0}\n"
        );
    }

    #[test]
    fn unknown_keys_and_other_orders_are_kept() {
        let (_temp, dir) = session();
        std::fs::write(
            dir.stats(),
            r#"{"mine":{"a":1},"total_input_tokens":3000000000,"last_updated":"x","n":7}"#,
        )
        .unwrap();
        let updates = [
            Update::add("total_input_tokens", 5),
            Update::parse("n=+1").unwrap(),
            Update::parse("w=hi").unwrap(),
        ];
        let (stats, note) = Stats::update(&dir, &updates).unwrap();
        assert_eq!(note, None);
        assert_eq!(stats.total_input_tokens, 3_000_000_005);
        let text = std::fs::read_to_string(dir.stats()).unwrap();
        assert!(text.ends_with(",\"mine\":{\"a\":1},\"n\":8,\"w\":\"hi\"}\n"), "{text}");
        assert_eq!(stats.get("w").as_deref(), Some("hi"));
        assert_eq!(stats.get("mine").as_deref(), Some("{\"a\":1}"));
        assert_eq!(stats.get("nothing"), None);
    }

    #[test]
    fn broken_fields_and_files_are_reported_and_start_from_zero() {
        let (_temp, dir) = session();
        let (_, note) = Stats::load(&dir.stats()).unwrap();
        assert!(note.unwrap().contains("is missing"));
        for (content, named) in [
            (
                "{\"total_input_tokens\":\"many\",\"agent_request_count\":-3,\"current_turn_count\":4}",
                "agent_request_count",
            ),
            ("{\"total_input_tokens\":1.5}", "total_input_tokens"),
            ("{\"total_input_tokens\":99999999999999999999}", "total_input_tokens"),
            ("{\"total_cost_usd\":null}", "total_cost_usd"),
            ("{\"current_turn_count\":4", "is broken"),
            ("[]", "is broken"),
            ("\0\0\0", "is broken"),
        ] {
            std::fs::write(dir.stats(), content).unwrap();
            let (stats, note) = Stats::load(&dir.stats()).unwrap();
            assert!(note.as_ref().is_some_and(|note| note.contains(named)), "{content}: {note:?}");
            assert_eq!(stats.total_input_tokens, 0);
            let (stats, _) = Stats::update(&dir, &[Update::add("total_input_tokens", 1)]).unwrap();
            assert_eq!(stats.total_input_tokens, 1);
            assert_eq!(Stats::load(&dir.stats()).unwrap().1, None);
        }
    }

    #[test]
    fn updates_are_read_or_refused() {
        assert_eq!(Update::parse("a=1"), Ok(Update::set("a", 1)));
        assert_eq!(Update::parse("total_cost_usd=+0.25"), Ok(Update::add("total_cost_usd", 0.25)));
        assert_eq!(
            Update::parse("last_updated=20260101-000000").unwrap(),
            Update::Set("last_updated".into(), Value::Text("20260101-000000".into()))
        );
        for bad in [
            "",
            "a",
            "=1",
            "current_turn_count=x",
            "current_turn_count=-1",
            "current_turn_count=1.5",
            "current_turn_count=+",
            "a=+b",
            "total_cost_usd=1e999",
            "last_updated=+1",
        ] {
            assert!(Update::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counters_stop_at_their_end() {
        let mut stats = Stats { total_input_tokens: u64::MAX - 1, ..Stats::default() };
        stats.apply(&Update::add("total_input_tokens", 5));
        assert_eq!(stats.total_input_tokens, u64::MAX);
    }

    #[test]
    fn updates_at_once_never_lose_one_another() {
        let (_temp, dir) = session();
        std::fs::write(dir.stats(), "").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        Stats::update(&dir, &[Update::add("agent_request_count", 1), Update::add("mine", 2)])
                            .unwrap();
                    }
                });
            }
        });
        let (stats, _) = Stats::load(&dir.stats()).unwrap();
        assert_eq!((stats.agent_request_count, stats.get("mine").as_deref()), (200, Some("400")));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_bytes_load_without_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (_temp, dir) = session();
            std::fs::write(dir.stats(), &content).unwrap();
            Stats::load(&dir.stats()).unwrap();
        }

        #[test]
        fn what_is_stored_is_loaded_again(
            counters in proptest::array::uniform4(any::<u64>()),
            cost in 0u64..1_000_000_000,
            extra in proptest::collection::btree_map("[a-z\"\\\\é]{1,8}", any::<u64>(), 0..4),
        ) {
            let (_temp, dir) = session();
            let stats = Stats {
                current_turn_count: counters[0],
                total_output_tokens: counters[1],
                total_cache_read_tokens: counters[2],
                current_context_tokens: counters[3],
                total_cost_usd: cost as f64 / 1e6,
                last_updated: "20260102-030405".into(),
                extra: extra.into_iter().map(|(key, value)| (key, value.to_string())).collect(),
                ..Stats::default()
            };
            stats.store(&dir.stats(), Durability::Atomic).unwrap();
            let (loaded, note) = Stats::load(&dir.stats()).unwrap();
            prop_assert_eq!(note, None);
            prop_assert_eq!(loaded.to_json(), stats.to_json());
        }
    }
}
