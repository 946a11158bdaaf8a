//! When to ask again, and how long to wait before it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// How often and how long a call is tried.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Tries in all, the first one included.
    pub tries: u32,
    /// The wait before the second try; doubled for each further one, ± 50 %.
    pub base: Duration,
    /// Time for failing and waiting, in all. The time in which an answer is streamed does not count.
    pub budget: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { tries: 4, base: Duration::from_millis(500), budget: Duration::from_secs(120) }
    }
}

impl RetryPolicy {
    /// The wait after the `failed`-th try (1, 2, …) when the server names none.
    pub(super) fn backoff(&self, failed: u32) -> Duration {
        let doubled = self.base.saturating_mul(1 << (failed.saturating_sub(1)).min(16));
        // 0.5 … 1.5
        doubled.mul_f64(0.5 + random_unit())
    }
}

/// A number in [0, 1): spreads clients that failed together. Needs no quality, so the hasher's random keys will do.
fn random_unit() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// A short random word for ids that must differ from call to call.
pub(super) fn random_word() -> String {
    format!("{:08x}", RandomState::new().build_hasher().finish() as u32)
}

/// The wait that a server asks for: `retry-after-ms`, else `retry-after` in seconds or as a date (a past one: no
/// wait). What cannot be read is none.
pub(super) fn retry_after(
    millis: Option<&str>,
    seconds: Option<&str>,
    now: jiff::Timestamp,
) -> Option<Duration> {
    let count = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten()
    };
    if let Some(millis) = millis.and_then(|text| count(text.trim())) {
        return Some(Duration::from_millis(millis));
    }
    let text = seconds?.trim();
    if let Some(seconds) = count(text) {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_milliseconds_or_a_date() {
        let now: jiff::Timestamp = "2026-12-02T03:00:00Z".parse().unwrap();
        let seconds = |text| retry_after(None, Some(text), now);
        assert_eq!(seconds("7"), Some(Duration::from_secs(7)));
        assert_eq!(seconds(" 0 "), Some(Duration::ZERO));
        assert_eq!(seconds("86400"), Some(Duration::from_secs(86400)));
        assert_eq!(seconds("Wed, 02 Dec 2026 03:00:07 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(seconds("Wed, 02 Dec 2026 02:00:00 GMT"), Some(Duration::ZERO));
        for unreadable in ["soon", "-5", "", "1e9", "3.5", "99999999999999999999999"] {
            assert_eq!(seconds(unreadable), None, "{unreadable}");
        }
        assert_eq!(retry_after(Some("250"), Some("9"), now), Some(Duration::from_millis(250)));
        assert_eq!(retry_after(Some("x"), Some("9"), now), Some(Duration::from_secs(9)));
    }

    #[test]
    fn backoff_doubles_and_stays_within_half() {
        let policy = RetryPolicy::default();
        for (failed, millis) in [(1, 500), (2, 1000), (3, 2000)] {
            for _ in 0..50 {
                let wait = policy.backoff(failed).as_millis();
                assert!((millis / 2..=millis * 3 / 2).contains(&wait), "{failed}: {wait}");
            }
        }
    }
}
