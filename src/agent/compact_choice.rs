//! How many lines of the window to keep: the cost model of CONTRACT §9, without any I/O. Its twin is
//! awk/compact_dp.awk; both do the same arithmetic in the same order, so that both choose the same line.

/// The instruction of a summary call, in tokens.
const INSTRUCTION: f64 = 70.0;

/// One line of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its size by the rule of §9.
    pub tokens: u64,
    /// A true user turn: the window may be cut before it.
    pub starts_turn: bool,
}

impl Line {
    /// The size of a line: ⌊(b+3)/4⌋+1 tokens for its bytes without the line feed.
    pub fn of(bytes: &[u8]) -> Self {
        Self { tokens: tokens(bytes.len() as u64), starts_turn: starts_turn(bytes) }
    }
}

/// The size of `bytes` bytes in tokens (§9).
pub fn tokens(bytes: u64) -> u64 {
    bytes.div_ceil(4) + 1
}

/// Whether the window may be cut before this line (§4).
pub fn starts_turn(line: &[u8]) -> bool {
    line.starts_with(br#"{"role":"user","content":""#)
}

/// The names and defaults of §9. Prices in dollars a million tokens, sizes in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// `DP_P_INPUT`
    pub p_input: f64,
    /// `DP_P_CACHE`
    pub p_cache: f64,
    /// `DP_P_OUT`
    pub p_out: f64,
    /// `DP_V`: the fixed prefix.
    pub v: f64,
    /// `DP_S`: the summary.
    pub s: f64,
    /// `DP_L`: calls a turn; 0 = from the stats.
    pub l: f64,
    /// `DP_BASELINE_E`: turns still expected.
    pub baseline_e: f64,
    /// `DP_E_FIXED`: the same, fixed; 0 = from the baseline.
    pub e_fixed: f64,
    /// `DP_R`: what a summary keeps.
    pub r: f64,
    /// `DP_BETA`
    pub beta: f64,
    /// `DP_MIN_KEEP_RATIO`
    pub min_keep: f64,
    /// `DP_QUALITY_PENALTY`
    pub quality_penalty: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            p_input: 3.0,
            p_cache: 0.30,
            p_out: 15.0,
            v: 5000.0,
            s: 500.0,
            l: 0.0,
            baseline_e: 8.0,
            e_fixed: 0.0,
            r: 0.8,
            beta: 0.03,
            min_keep: 0.25,
            quality_penalty: 0.2,
        }
    }
}

/// What the session has used so far (stats.json).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// `current_turn_count`, this turn counted.
    pub turns: u64,
    /// `compact_request_count`
    pub compactions: u64,
    /// `agent_request_count`
    pub requests: u64,
    /// `total_input_tokens`
    pub total_input: u64,
}

/// The choice by cost: how many of the last lines to keep, or 0 = do not compact.
pub fn choose(lines: &[Line], costs: &Costs, used: &Used, max_context: u64) -> usize {
    let n = lines.len();
    let model = Model::new(lines, costs, used, max_context);
    let low = 3.max((n as f64 * costs.min_keep + 0.5).floor() as usize);
    let high = if costs.min_keep > 0.5 { n } else { (n as f64 * (1.0 - costs.min_keep)).floor() as usize };
    let mut best: Option<(f64, usize)> = None;
    let mut kept: f64 = lines.iter().rev().take(low.saturating_sub(1)).map(|line| line.tokens as f64).sum();
    for k in low..=high.min(n) {
        kept += lines[n - k].tokens as f64;
        if model.total - kept <= 0.0 {
            continue;
        }
        let benefit = model.benefit(kept);
        if best.is_none_or(|(most, _)| benefit > most) {
            best = Some((benefit, k));
        }
    }
    let Some((_, k)) = best else { return 0 };
    let Some(cut) = (0..=n - k).rev().find(|at| lines[*at].starts_turn) else { return 0 };
    let kept: f64 = lines[cut..].iter().map(|line| line.tokens as f64).sum();
    let worth_it = n - cut <= high && model.total - kept >= 20.0 * costs.s && model.benefit(kept) > 0.0;
    if worth_it { n - cut } else { 0 }
}

/// How many of the last lines to keep, or 0 = do not compact: the choice by cost; without one, the last quarter of the
/// turns when the compaction `is_asked_for` or `context` tokens nearly fill the window.
pub fn keep(
    lines: &[Line],
    costs: &Costs,
    used: &Used,
    max_context: u64,
    context: u64,
    is_asked_for: bool,
) -> usize {
    let keep = choose(lines, costs, used, max_context);
    if keep == 0 && (is_asked_for || nearly_full(context, max_context)) { last_quarter(lines) } else { keep }
}

/// Whether a window of `context` tokens is so full that cost no longer counts.
pub fn nearly_full(context: u64, max_context: u64) -> bool {
    context as f64 > 0.9 * max_context as f64
}

/// The choice without costs: keep the last max(1, ⌊turns/4 + ½⌋) turns; 0 = there is nothing to drop.
pub fn last_quarter(lines: &[Line]) -> usize {
    let turns = lines.iter().filter(|line| line.starts_turn).count();
    let keep = ((turns + 2) / 4).max(1);
    let mut left = keep;
    for (at, line) in lines.iter().enumerate().rev() {
        if line.starts_turn {
            left -= 1;
            if left == 0 {
                return if at == 0 { 0 } else { lines.len() - at };
            }
        }
    }
    0
}

struct Model {
    costs: Costs,
    total: f64,
    max_context: f64,
    /// Calls still to come.
    calls: f64,
    average_input: f64,
    kept_quality: f64,
}

impl Model {
    fn new(lines: &[Line], costs: &Costs, used: &Used, max_context: u64) -> Self {
        let expected = if costs.e_fixed > 0.0 {
            costs.e_fixed
        } else {
            (costs.baseline_e - used.turns as f64).max((costs.baseline_e / 2.0).floor())
        };
        let per_turn = if costs.l > 0.0 {
            costs.l
        } else if used.turns == 0 || used.requests == 0 {
            5.0
        } else {
            (used.requests as f64 / used.turns as f64).max(1.0)
        };
        Self {
            costs: *costs,
            total: lines.iter().map(|line| line.tokens as f64).sum(),
            max_context: max_context as f64,
            calls: expected * per_turn,
            average_input: if used.requests == 0 {
                4000.0
            } else {
                used.total_input as f64 / used.requests as f64
            },
            kept_quality: power(costs.r, used.compactions + 1).max(0.37),
        }
    }

    /// Dollars won by keeping lines of `kept` tokens, times 10⁶ (the sign and the order are what counts).
    fn benefit(&self, kept: f64) -> f64 {
        let c = &self.costs;
        let dropped = self.total - kept;
        let cheaper_calls = (self.calls - 1.0) * c.p_cache * dropped;
        let cold_cache = (c.s + kept) * (c.p_input - c.p_cache);
        let summary = c.p_cache * (c.v + dropped) + c.p_input * INSTRUCTION + c.p_out * c.s;
        let forgotten = c.beta * (1.0 - self.kept_quality) * self.calls * self.average_input * c.p_input;
        let crowded = if self.total > 0.3 * self.max_context {
            let (before, after) = (c.v + self.total, c.v + kept);
            c.quality_penalty * c.p_input * (before * before - after * after) / self.max_context
        } else {
            0.0
        };
        cheaper_calls - cold_cache - summary - forgotten + crowded
    }
}

/// `base` to the power `times`, by repeated multiplication: the same in every awk.
fn power(base: f64, times: u64) -> f64 {
    let mut value = 1.0;
    for _ in 0..times.min(10_000) {
        value *= base;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(turns: usize, tokens: u64) -> Vec<Line> {
        (0..turns * 4).map(|at| Line { tokens, starts_turn: at % 4 == 0 }).collect()
    }

    fn used(turns: u64) -> Used {
        Used { turns, compactions: 0, requests: turns * 5, total_input: turns * 20_000 }
    }

    #[test]
    fn a_small_window_is_left_alone() {
        assert_eq!(choose(&window(5, 100), &Costs::default(), &used(5), 200_000), 0);
        assert_eq!(choose(&[], &Costs::default(), &used(0), 200_000), 0);
    }

    #[test]
    fn a_crowded_window_is_cut_at_a_turn() {
        let lines = window(30, 1500);
        let keep = choose(&lines, &Costs::default(), &used(30), 200_000);
        assert!(keep > 0 && keep < lines.len());
        assert!(lines[lines.len() - keep].starts_turn);
    }

    #[test]
    fn without_costs_a_quarter_of_the_turns_stays() {
        assert_eq!(last_quarter(&window(8, 10)), 8);
        assert_eq!(last_quarter(&window(10, 10)), 12, "10/4 + 1/2 rounds to 3 turns");
        assert_eq!(last_quarter(&window(1, 10)), 0, "one turn: nothing to drop");
        assert_eq!(last_quarter(&[]), 0);
    }

    /// The formula as it stands in §9, term by term, tried for every k.
    fn slow(lines: &[Line], c: &Costs, used: &Used, m: f64) -> usize {
        let n = lines.len();
        let total: f64 = lines.iter().map(|l| l.tokens as f64).sum();
        let e = (c.baseline_e - used.turns as f64).max((c.baseline_e / 2.0).floor());
        let l = (used.requests as f64 / used.turns as f64).max(1.0);
        let r = e * l;
        let avg = used.total_input as f64 / used.requests as f64;
        let rt = c.r.powi(used.compactions as i32 + 1).max(0.37);
        let benefit = |k: usize| {
            let kept: f64 = lines[n - k..].iter().map(|l| l.tokens as f64).sum();
            let h = total - kept;
            let quality = if total > 0.3 * m {
                c.quality_penalty * c.p_input * ((c.v + total).powi(2) - (c.v + kept).powi(2)) / m
            } else {
                0.0
            };
            let value = (r - 1.0) * c.p_cache * h
                - (c.s + kept) * (c.p_input - c.p_cache)
                - (c.p_cache * (c.v + h) + c.p_input * 70.0 + c.p_out * c.s)
                - c.beta * (1.0 - rt) * r * avg * c.p_input
                + quality;
            (h > 0.0).then_some(value)
        };
        let low = 3.max((n as f64 * c.min_keep).round() as usize);
        let high = (n as f64 * (1.0 - c.min_keep)).floor() as usize;
        let mut best = (f64::NEG_INFINITY, 0);
        for k in low..=high {
            if let Some(value) = benefit(k).filter(|value| *value > best.0) {
                best = (value, k);
            }
        }
        if best.1 == 0 {
            return 0;
        }
        let mut k = best.1;
        while k <= n && !lines[n - k].starts_turn {
            k += 1;
            if k > n {
                return 0;
            }
        }
        let kept: f64 = lines[n - k..].iter().map(|l| l.tokens as f64).sum();
        let good = k <= high && total - kept >= 20.0 * c.s && benefit(k).is_some_and(|b| b > 0.0);
        if good { k } else { 0 }
    }

    proptest::proptest! {
        #[test]
        fn the_choice_is_that_of_the_plain_formula(
            sizes in proptest::collection::vec((1_u64..4000, proptest::bool::weighted(0.3)), 0..200),
            turns in 1_u64..60, compactions in 0_u64..6, requests in 1_u64..600, total_input in 0_u64..5_000_000,
        ) {
            let lines: Vec<Line> = sizes.iter().map(|(tokens, starts_turn)| Line { tokens: *tokens, starts_turn: *starts_turn }).collect();
            let used = Used { turns, compactions, requests, total_input };
            let costs = Costs::default();
            let fast = choose(&lines, &costs, &used, 200_000);
            proptest::prop_assert_eq!(fast, slow(&lines, &costs, &used, 200_000.0));
        }
    }
}
