//! What is known about models (`src/assets/models.json`): windows, limits, prices, how they think. A user's file of the
//! same form adds to it or replaces parts of it; unknown models work with the contract's defaults.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::wire::message::Usage;

const BUILTIN: &str = include_str!("../assets/models.json");

/// A models.json that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct CatalogError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// The known models.
#[derive(Clone, Debug)]
pub struct Catalog(HashMap<String, ModelInfo>);

/// What is known about one model; what is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelInfo {
    /// Size of the context window, in tokens.
    pub context: Option<u64>,
    /// Longest answer, in tokens.
    pub max_output: Option<u64>,
    /// What tokens cost.
    pub price: Option<Price>,
    /// How thinking is asked for.
    pub thinking: ThinkingKind,
    /// Whether it takes images. Not known: they are sent, and taken back when the server refuses them.
    pub vision: Option<bool>,
    /// The `thinking.type` that means "as little as possible"; none: the field is left out for that.
    pub disable: Option<String>,
}

/// Dollars a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input at full price.
    pub input: f64,
    /// Input read from the cache; a tenth of the full price when it is not known.
    pub cache_read: Option<f64>,
    /// Input written to the 5-minute cache; 1.25 of the full price when it is not known.
    pub cache_write: Option<f64>,
    /// Output, thinking included.
    pub output: f64,
}

/// How a model is told to think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingKind {
    /// Not known: asked for as the newest models want it, and taken back when the server refuses.
    #[default]
    Unknown,
    /// `adaptive` only; a budget is refused.
    Adaptive,
    /// `adaptive`, or `enabled` with a budget.
    AdaptiveOrBudget,
    /// `enabled` with a budget only; no effort.
    Budget,
    /// OpenAI's effort words.
    Effort,
    /// Not at all.
    None,
}

impl ModelInfo {
    /// Whether images are sent to this model.
    pub fn sees(&self) -> bool {
        self.vision.unwrap_or(true)
    }

    /// Whether an effort may be sent to this model (Anthropic's `output_config`).
    pub fn takes_effort(&self) -> bool {
        !matches!(self.thinking, ThinkingKind::Budget | ThinkingKind::None)
    }
}

impl Catalog {
    /// The models that are compiled in.
    pub fn builtin() -> Self {
        // The asset is checked by a test; an empty catalogue only means that every model is unknown.
        Self(serde_json::from_str(BUILTIN).unwrap_or_default())
    }

    /// The built-in models with those of the file at `path` over them, member by member; a file that does not exist
    /// changes nothing.
    pub fn load(path: &Path) -> Result<Self, CatalogError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::builtin()),
            Err(error) => return Err(CatalogError { path: path.to_owned(), reason: error.to_string() }),
        };
        Self::overlay(&text).map_err(|reason| CatalogError { path: path.to_owned(), reason })
    }

    fn overlay(text: &str) -> Result<Self, String> {
        let mut all: HashMap<String, Value> =
            serde_json::from_str(BUILTIN).map_err(|error| error.to_string())?;
        let over: HashMap<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (model, members) in over {
            merge(all.entry(model).or_insert(Value::Null), members);
        }
        let mut catalog = HashMap::with_capacity(all.len());
        for (model, members) in all {
            let info =
                serde_json::from_value(members).map_err(|error| format!("model `{model}`: {error}"))?;
            catalog.insert(model, info);
        }
        Ok(Self(catalog))
    }

    /// What is known about a model: by its name, or by the longest known name that it continues with `-` or `@`
    /// (dated versions). A vendor's prefix (`anthropic/…`) is looked through.
    pub fn info(&self, model: &str) -> ModelInfo {
        self.find(model).cloned().unwrap_or_default()
    }

    fn find(&self, model: &str) -> Option<&ModelInfo> {
        let mut name = model;
        loop {
            if let Some(info) = self.0.get(name) {
                return Some(info);
            }
            match name.rfind(['-', '@', ':']) {
                // `claude-opus-5-9` is not `claude-opus-5`: only what looks like a date or a tag may be dropped.
                Some(at) if is_version(&name[at..]) => name = &name[..at],
                _ => break,
            }
        }
        model.split_once('/').and_then(|(_, rest)| self.find(rest))
    }

    /// The price of a call in dollars; 0 when the model's price is not known.
    pub fn price(&self, model: &str, usage: &Usage) -> f64 {
        self.find(model).and_then(|info| info.price).map_or(0.0, |price| price.dollars(usage))
    }
}

impl Price {
    /// What these tokens cost, in dollars.
    pub fn dollars(&self, usage: &Usage) -> f64 {
        let Usage { input, output, cache_read, cache_creation } = *usage;
        self.sum([input, output, cache_read, cache_creation].map(|count| count as f64))
    }

    /// The same for counts of input, output, cache read and cache creation that may be negative.
    pub fn sum(&self, [input, output, cache_read, cache_creation]: [f64; 4]) -> f64 {
        let read = self.cache_read.unwrap_or(self.input * 0.1);
        let write = self.cache_write.unwrap_or(self.input * 1.25);
        (self.input * input + self.output * output + read * cache_read + write * cache_creation) / 1e6
    }
}

/// `-20251001`, `@20251001`, `-latest`, `:free`: what may follow a model's name.
fn is_version(suffix: &str) -> bool {
    let word = &suffix[1..];
    suffix.starts_with(':')
        || word == "latest"
        || (word.len() >= 6 && word.bytes().all(|byte| byte.is_ascii_digit()))
}

fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiled_in_models_are_all_read() {
        let lines = BUILTIN.lines().filter(|line| line.starts_with("  \"")).count();
        assert_eq!(Catalog::builtin().0.len(), lines);
    }

    #[test]
    fn a_call_is_priced_by_its_four_figures() {
        let catalog = Catalog::builtin();
        let usage =
            Usage { input: 1_000_000, output: 100_000, cache_read: 2_000_000, cache_creation: 400_000 };
        let dollars = |model| (catalog.price(model, &usage) * 1e6).round() / 1e6;
        assert_eq!(dollars("claude-sonnet-5-5"), 2.0 + 1.0 + 0.2 + 1.0);
        assert_eq!(dollars("claude-haiku-5-5"), 0.22);
        assert_eq!(dollars("some-local-model"), 0.0);
    }

    #[test]
    fn dated_and_prefixed_names_are_known_but_other_versions_are_not() {
        let catalog = Catalog::builtin();
        let haiku = catalog.info("claude-haiku-4-5");
        for name in ["claude-haiku-4-5-20251001", "anthropic/claude-haiku-4-5", "claude-haiku-4-5@20251001"] {
            assert_eq!(catalog.info(name), haiku, "{name}");
        }
        for name in ["claude-opus-5-9", "claude-haiku", "", "gpt-6-sol-mini"] {
            assert_eq!(catalog.info(name), ModelInfo::default(), "{name}");
        }
    }

    #[test]
    fn a_users_file_adds_models_and_replaces_single_members() {
        let text = r#"{"my-model":{"context":8192},"claude-opus-5-5":{"price":{"output":1}}}"#;
        let catalog = Catalog::overlay(text).unwrap();
        assert_eq!(catalog.info("my-model").context, Some(8192));
        let opus = catalog.info("claude-opus-5-5");
        assert_eq!(
            (opus.context, opus.price.unwrap().output, opus.price.unwrap().input),
            (Some(1_000_000), 1.0, 4.0)
        );
        let error = Catalog::overlay(r#"{"m":{"contextt":1}}"#).unwrap_err();
        assert!(error.contains("model `m`") && error.contains("contextt"), "{error}");
    }
}
