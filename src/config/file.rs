//! The config files: what their keys take, and what a value that is none is told (CONTRACT §13).

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use super::ConfigError;
use crate::cli::args::{self, OutputFormat};
use crate::policy::Confinement;
use crate::ui::term::Bell;

/// A config file longer than this is refused: it is none.
const MAX_FILE: u64 = 1 << 20;

/// A config file as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileConfig {
    pub(super) provider: Option<String>,
    pub(super) model: Option<String>,
    pub(super) effort: Option<String>,
    pub(super) thinking: Option<String>,
    #[serde(default, deserialize_with = "size")]
    pub(super) max_tokens: Option<u64>,
    #[serde(default, deserialize_with = "size")]
    pub(super) max_context: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    pub(super) max_turns: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    pub(super) max_sub_agents: Option<u64>,
    #[serde(default, deserialize_with = "dollars")]
    pub(super) max_cost: Option<f64>,
    #[serde(default, deserialize_with = "whole")]
    pub(super) max_time: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    pub(super) tool_timeout: Option<u64>,
    #[serde(default, deserialize_with = "size")]
    pub(super) tool_result_max_bytes: Option<u64>,
    pub(super) skills: Option<Vec<String>>,
    pub(super) output_format: Option<OutputFormat>,
    pub(super) mode: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    pub(super) stall_timeout: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    pub(super) retry_base_ms: Option<u64>,
    pub(super) base_url: Option<String>,
    pub(super) api_key: Option<String>,
    pub(super) headers: Option<BTreeMap<String, String>>,
    pub(super) extra_body: Option<Table>,
    pub(super) parts: Option<BTreeMap<String, String>>,
    pub(super) providers: Option<BTreeMap<String, ProviderConfig>>,
    pub(super) trusted: Option<Vec<PathBuf>>,
    pub(super) sandbox: Option<SandboxChoice>,
    #[serde(default, deserialize_with = "whole")]
    pub(super) ask_timeout: Option<u64>,
    pub(super) keep_env: Option<Vec<String>>,
    pub(super) mask: Option<bool>,
    pub(super) plain: Option<bool>,
    pub(super) bell: Option<Bell>,
    pub(super) markdown: Option<bool>,
}

/// `sandbox =`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SandboxChoice {
    Off,
    Auto,
    Required,
    Bubblewrap,
}

impl From<SandboxChoice> for Confinement {
    fn from(choice: SandboxChoice) -> Self {
        match choice {
            SandboxChoice::Off => Self::Off,
            SandboxChoice::Auto => Self::WherePossible,
            SandboxChoice::Required => Self::Required,
            SandboxChoice::Bubblewrap => Self::Bubblewrap,
        }
    }
}

/// `[providers.NAME]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProviderConfig {
    pub(super) api: String,
    pub(super) base_url: Option<String>,
    pub(super) key_env: Option<String>,
    pub(super) model: Option<String>,
    pub(super) headers: Option<BTreeMap<String, String>>,
    pub(super) extra_body: Option<Table>,
}

/// What a key takes. In text or not: a number may stand in quotes too.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Size,
    Count,
    Seconds,
    Milliseconds,
    Dollars,
    Truth,
    OneOf(&'static [&'static str]),
    Texts,
    /// A table of any names with texts.
    TextTable,
    /// A table of tables, each with these keys.
    Tables(&'static [(&'static str, Kind)]),
    /// Whatever it is goes on as it is.
    Any,
}

/// Every key, and what it takes; scripts/lib/config.sh has the same (`toml_kind`).
const KEYS: &[(&str, Kind)] = &[
    ("provider", Kind::Text),
    ("model", Kind::Text),
    ("effort", Kind::Text),
    ("thinking", Kind::Text),
    ("max_tokens", Kind::Size),
    ("max_context", Kind::Size),
    ("max_turns", Kind::Count),
    ("max_sub_agents", Kind::Count),
    ("max_cost", Kind::Dollars),
    ("max_time", Kind::Seconds),
    ("tool_timeout", Kind::Seconds),
    ("tool_result_max_bytes", Kind::Size),
    ("skills", Kind::Texts),
    ("output_format", Kind::OneOf(&["human", "stream-json", "text", "json"])),
    ("mode", Kind::Text),
    ("stall_timeout", Kind::Seconds),
    ("retry_base_ms", Kind::Milliseconds),
    ("base_url", Kind::Text),
    ("api_key", Kind::Text),
    ("headers", Kind::TextTable),
    ("extra_body", Kind::Any),
    ("parts", Kind::TextTable),
    ("providers", Kind::Tables(PROVIDER_KEYS)),
    ("trusted", Kind::Texts),
    ("sandbox", Kind::OneOf(&["off", "auto", "required", "bubblewrap"])),
    ("ask_timeout", Kind::Seconds),
    ("keep_env", Kind::Texts),
    ("mask", Kind::Truth),
    ("plain", Kind::Truth),
    ("bell", Kind::OneOf(&["bell", "osc9", "osc777", "off"])),
    ("markdown", Kind::Truth),
];

const PROVIDER_KEYS: &[(&str, Kind)] = &[
    ("api", Kind::Text),
    ("base_url", Kind::Text),
    ("key_env", Kind::Text),
    ("model", Kind::Text),
    ("headers", Kind::TextTable),
    ("extra_body", Kind::Any),
];

/// The first value that is not of its key's kind, as `KEY: what it is and what to give`. Keys that are none, and what
/// is no table where one belongs, are told when the file is taken in, with the line.
fn check(table: &Table, keys: &[(&str, Kind)], above: &str) -> Result<(), String> {
    for (key, value) in table {
        let Some((_, kind)) = keys.iter().find(|(name, _)| name == key) else { continue };
        let path = format!("{above}{key}");
        match (kind, value) {
            (Kind::TextTable, Value::Table(texts)) => {
                for (name, text) in texts {
                    of_kind(Kind::Text, text, false).map_err(|why| format!("{path}.{name}: {why}"))?;
                }
            }
            (Kind::Tables(keys), Value::Table(tables)) => {
                for (name, table) in tables {
                    if let Value::Table(table) = table {
                        check(table, keys, &format!("{path}.{name}."))?;
                    }
                }
            }
            _ => of_kind(*kind, value, key == "api_key").map_err(|why| format!("{path}: {why}"))?,
        }
    }
    Ok(())
}

fn of_kind(kind: Kind, value: &Value, is_secret: bool) -> Result<(), String> {
    let text = scalar(value);
    let shown = if is_secret { "***" } else { text.as_str() };
    match kind {
        Kind::Text if value.is_str() => Ok(()),
        Kind::Text => Err(format!("'{shown}' is no text: put it in quotes")),
        Kind::Size => args::size(&text).map(drop),
        Kind::Count => args::count(&text).map(drop),
        Kind::Seconds => args::seconds(&text).map(drop),
        Kind::Milliseconds if text.parse::<u64>().is_ok() => Ok(()),
        Kind::Milliseconds => Err(format!("'{shown}' is no number of milliseconds: give a whole number")),
        Kind::Dollars => args::dollars(&text).map(drop),
        Kind::Truth if value.is_bool() => Ok(()),
        Kind::Truth => Err(format!("'{shown}' is no truth value: give true or false, without quotes")),
        Kind::OneOf(words) if value.is_str() && words.contains(&text.as_str()) => Ok(()),
        Kind::OneOf(words) => {
            Err(format!("'{shown}' is not known: give one of {}, in quotes", words.join(", ")))
        }
        Kind::Texts if value.as_array().is_some_and(|all| all.iter().all(Value::is_str)) => Ok(()),
        Kind::Texts => Err(format!("'{shown}' is no list of texts: give one such as [\"a\", \"b\"]")),
        Kind::TextTable | Kind::Tables(_) | Kind::Any => Ok(()),
    }
}

/// A value as it was written, without its quotes; what kind it is where it has parts.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

/// A number, or a text with one; which one is looked at before (`check`).
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Value::deserialize(deserializer).map(|value| scalar(&value))
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    args::size(&number(deserializer)?).map(Some).map_err(D::Error::custom)
}

fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    number(deserializer)?.parse().map(Some).map_err(D::Error::custom)
}

fn dollars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    args::dollars(&number(deserializer)?).map(Some).map_err(D::Error::custom)
}

impl FileConfig {
    /// Reads a config file; a missing one is an empty one.
    pub(super) fn load(path: &Path) -> Result<Self, ConfigError> {
        let problem = |problem: String| ConfigError::File { path: path.display().to_string(), problem };
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            // A home that is no directory is the session's matter, which says what to do.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(problem(format!("cannot read it: {error}"))),
        };
        let is_file = file.metadata().map_err(|e| problem(e.to_string()))?.is_file();
        if !is_file {
            return Err(problem("it is no regular file".to_owned()));
        }
        let mut text = String::new();
        file.take(MAX_FILE + 1)
            .read_to_string(&mut text)
            .map_err(|error| problem(format!("cannot read it: {error}")))?;
        if text.len() as u64 > MAX_FILE {
            return Err(problem("it is over 1 MiB, which no config file is".to_owned()));
        }
        let wrong = |error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            problem(format!("line {line}: {}", error.message().replace('\n', " ")))
        };
        check(&toml::from_str(&text).map_err(wrong)?, KEYS, "").map_err(problem)?;
        toml::from_str(&text).map_err(wrong)
    }

    /// Keys that a project's file may not set: they could take a key or widen rights.
    pub(super) fn forbidden_in_project(&self) -> Vec<&'static str> {
        [
            ("base_url", self.base_url.is_some()),
            ("api_key", self.api_key.is_some()),
            ("headers", self.headers.is_some()),
            ("extra_body", self.extra_body.is_some()),
            ("parts", self.parts.is_some()),
            ("providers", self.providers.is_some()),
            ("provider", self.provider.is_some()),
            ("trusted", self.trusted.is_some()),
            ("sandbox", self.sandbox.is_some()),
            ("ask_timeout", self.ask_timeout.is_some()),
            ("keep_env", self.keep_env.is_some()),
            ("mask", self.mask.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, set)| set.then_some(name))
        .collect()
    }

    /// What only a trusted project's file may hold replaces the user's.
    pub(super) fn take_access(&mut self, project: &mut Self) {
        fn take<T>(user: &mut Option<T>, project: &mut Option<T>) {
            if project.is_some() {
                *user = project.take();
            }
        }
        take(&mut self.base_url, &mut project.base_url);
        take(&mut self.api_key, &mut project.api_key);
        take(&mut self.headers, &mut project.headers);
        take(&mut self.extra_body, &mut project.extra_body);
        take(&mut self.parts, &mut project.parts);
        take(&mut self.providers, &mut project.providers);
        take(&mut self.sandbox, &mut project.sandbox);
        take(&mut self.ask_timeout, &mut project.ask_timeout);
        take(&mut self.keep_env, &mut project.keep_env);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_kind_and_every_kind_a_key() {
        let unknown = toml::from_str::<FileConfig>("nonsense = 1").unwrap_err().to_string();
        let (_, known) = unknown.split_once("expected one of ").unwrap();
        let known: Vec<&str> = known.trim().split(", ").map(|key| key.trim_matches('`')).collect();
        assert_eq!(known, KEYS.iter().map(|(key, _)| *key).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_may_stand_in_quotes() {
        let text = "max_tokens = \"4k\"\nmax_turns = \"3\"\nmax_cost = \"$0.5\"\nretry_base_ms = 0\n";
        check(&toml::from_str(text).unwrap(), KEYS, "").unwrap();
        let config: FileConfig = toml::from_str(text).unwrap();
        assert_eq!((config.max_tokens, config.max_turns), (Some(4000), Some(3)));
        assert_eq!((config.max_cost, config.retry_base_ms), (Some(0.5), Some(0)));
    }
}
