//! Limits of the user's on a whole run: dollars, tokens, time. They hold for summaries and sub-agents too; reaching one
//! ends the turn with a stop reason of its own and exit 9, and the session can go on (CONTRACT §5, `stop`).

use std::time::{Duration, Instant};

use super::Agent;

/// What a run may use; `None` = as much as it wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// Dollars.
    pub cost: Option<f64>,
    /// Tokens, all four kinds together.
    pub tokens: Option<u64>,
    /// Wall time.
    pub time: Option<Duration>,
}

/// A limit that was reached.
pub(super) struct Reached {
    /// The `stop` event's reason.
    pub(super) reason: &'static str,
    /// For the user.
    pub(super) message: String,
}

impl Agent {
    /// Looked at before every model call.
    pub(super) fn limit_reached(&self) -> Option<Reached> {
        let budget = &self.settings.budget;
        if let Some(most) = budget.cost.filter(|most| self.totals.cost >= *most) {
            let message = format!("Max cost (${most}) reached: ${:.6} used", self.totals.cost);
            return Some(Reached { reason: "max_cost", message });
        }
        if let Some(most) = budget.tokens.filter(|most| self.tokens_used() >= *most) {
            let message = format!("Max tokens ({most}) reached: {} used", self.tokens_used());
            return Some(Reached { reason: "max_tokens_total", message });
        }
        self.time_over()
    }

    /// The run's time is over.
    pub(super) fn time_over(&self) -> Option<Reached> {
        let most = self.settings.budget.time?;
        self.deadline.filter(|deadline| Instant::now() >= *deadline)?;
        Some(Reached { reason: "max_time", message: format!("Max time ({} s) reached", most.as_secs()) })
    }

    fn tokens_used(&self) -> u64 {
        let usage = &self.totals.usage;
        usage.input + usage.output + usage.cache_read + usage.cache_creation
    }

    /// What is left for a child that starts now, as flags. A child of a run that used everything gets the least there is.
    pub(super) fn budget_flags(&self) -> Vec<String> {
        let budget = &self.settings.budget;
        let mut flags = Vec::new();
        if let Some(most) = budget.cost {
            flags.extend([
                "--max-cost".to_owned(),
                format!("{:.6}", (most - self.totals.cost).max(0.000_001)),
            ]);
        }
        if let Some(most) = budget.tokens {
            let left = most.saturating_sub(self.tokens_used()).max(1);
            flags.extend(["--max-total-tokens".to_owned(), left.to_string()]);
        }
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now()).as_secs().max(1);
            flags.extend(["--max-time".to_owned(), left.to_string()]);
        }
        flags
    }
}
