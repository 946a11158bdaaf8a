//! A call's input: members by name, forgiving about numbers written as strings.

use serde_json::{Map, Value};

use super::Failure;

/// A tool's JSON object.
pub(crate) struct Input(Map<String, Value>);

impl Input {
    /// Fails when `text` is no JSON object.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        match serde_json::from_str(text) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            Ok(_) => Err(Failure::new("the input is not a JSON object")),
            Err(error) => Err(Failure::new(format!("the input is not a JSON object: {error}"))),
        }
    }

    /// A string that must be there and not be empty: `no <what> provided` otherwise.
    pub(crate) fn required(&self, key: &str, what: &str) -> Result<&str, Failure> {
        match self.text(key)? {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(Failure::new(format!("no {what} provided"))),
        }
    }

    /// A string; `None` when absent or null, an error when it is something else.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, Failure> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Failure::new(format!("{key} must be a string"))),
        }
    }

    /// A number that is not negative, as such or as a string; `None` when absent, null or an empty string.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, Failure> {
        let number = match self.0.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(Value::Number(number)) => number.as_f64(),
            Some(_) => None,
        };
        match number {
            Some(number) if number.is_finite() && number >= 0.0 => Ok(Some(number)),
            _ => Err(Failure::new(format!("{key} must be a number that is not negative"))),
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>, Failure> {
        match self.number(key)? {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            // Checked here; a cast saturates.
            Some(number) if number.fract() == 0.0 => Ok(Some(number as u64)),
            Some(_) => Err(Failure::new(format!("{key} must be a whole number"))),
            None => Ok(None),
        }
    }

    /// Any value.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }
}
