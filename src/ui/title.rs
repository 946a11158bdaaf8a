//! The terminal's title and progress (CONTRACT §14): OSC 0 and OSC 9;4 on stderr.

use std::fmt::Write as _;

use crate::session::stats::Stats;

/// What the title tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// User and notify turns.
    pub turns: u64,
    /// Model calls.
    pub requests: u64,
    /// Input tokens at full price.
    pub input: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens of the window.
    pub context: u64,
}

impl Figures {
    /// Those of a session.
    pub fn of(stats: &Stats) -> Self {
        Self {
            turns: stats.current_turn_count,
            requests: stats.agent_request_count,
            input: stats.total_input_tokens,
            cache_read: stats.total_cache_read_tokens,
            output: stats.total_output_tokens,
            context: stats.current_context_tokens,
        }
    }
}

/// `[⏳ ]<model> T:<turns> R:<requests> I:<input>(<cache %>) O:<output> C:<context>`.
pub fn text(model: &str, busy: bool, figures: &Figures) -> String {
    let input = figures.input.saturating_add(figures.cache_read);
    let cache = if input == 0 {
        "—".to_owned()
    } else {
        // Rounded half up, in integers.
        format!("{}%", (u128::from(figures.cache_read) * 200 + u128::from(input)) / (u128::from(input) * 2))
    };
    format!(
        "{}{model} T:{} R:{} I:{}({cache}) O:{} C:{}",
        if busy { "⏳ " } else { "" },
        figures.turns,
        figures.requests,
        grouped(input),
        grouped(figures.output),
        grouped(figures.context),
    )
}

/// The escape sequences that set the title and the progress mark.
pub fn sequence(model: &str, busy: bool, figures: &Figures) -> String {
    let progress = if busy { "3" } else { "0" };
    format!("\x1b]0;{}\x07\x1b]9;4;{progress};0\x07", text(model, busy, figures))
}

/// Thousands parted by commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        let _ = out.write_char(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_groups_thousands_and_rounds_the_cache_rate() {
        let figures =
            Figures { turns: 1, requests: 2, input: 850, cache_read: 320, output: 1_234_567, context: 167 };
        assert_eq!(text("m", true, &figures), "⏳ m T:1 R:2 I:1,170(27%) O:1,234,567 C:167");
        assert_eq!(text("m", false, &Figures::default()), "m T:0 R:0 I:0(—) O:0 C:0");
    }
}
