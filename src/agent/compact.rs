//! Compaction (CONTRACT §9): when, how much, the summary call, and the cut. Whatever fails leaves the session as it was.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use super::ask::{Asked, Quiet};
use super::compact_choice::{self as choice, Costs, Line, Used};
use super::{Agent, prompt};
use crate::model::{ErrorKind, ModelError};
use crate::session::events::Event;
use crate::session::stats::{Stats, Update};
use crate::session::{StorageError, archive, leave_out};
use crate::wire::message::Message;
use crate::wire::ndjson::Lines;

/// After a failed summary the next tries wait for this many model calls.
const PAUSE_AFTER_FAILURE: u64 = 5;

/// How often a request that is too long is asked again with half of it: a summary over half as many lines, a turn's call
/// with half of its large results.
pub(super) const HALVINGS: u32 = 3;

/// What asks for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Before a model call, when it pays or the window is nearly full.
    Auto,
    /// The API refused a request as too long.
    TooLong,
    /// PlanConfirm.
    PlanConfirm,
    /// PlanClear.
    PlanClear,
    /// The user.
    Manual,
}

impl Trigger {
    fn word(self) -> &'static str {
        match self {
            Self::Auto | Self::TooLong => "auto",
            Self::PlanConfirm => "plan_confirm",
            Self::PlanClear => "plan_clear",
            Self::Manual => "manual",
        }
    }
}

/// What a compaction came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The window is shorter now.
    Done,
    /// There was nothing to drop, or it would not pay.
    Nothing,
    /// The turn was interrupted meanwhile.
    Interrupted,
    /// No summary: for the user.
    Failed(String),
}

/// The sizes of the window's lines, kept so that each model call looks only at what was appended since the last.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    lines: Vec<Line>,
    /// Where each line begins.
    starts: Vec<u64>,
    end: u64,
}

impl Sizes {
    /// Reads on to byte `end` of the conversation.
    fn extend(&mut self, path: &Path, end: u64) -> io::Result<()> {
        if end < self.end {
            *self = Self::default();
        }
        if end == self.end {
            return Ok(());
        }
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(self.end))?;
        let mut lines = Lines::new(file);
        while let Some(line) = lines.next()? {
            if self.end >= end {
                break;
            }
            let tokens = choice::tokens(line.length);
            self.lines.push(Line { tokens, starts_turn: choice::starts_turn(line.bytes) });
            self.starts.push(self.end);
            self.end += line.length + u64::from(line.terminated);
        }
        Ok(())
    }

    fn kept_tokens(&self, keep: usize) -> u64 {
        self.lines[self.lines.len() - keep..].iter().map(|line| line.tokens).sum()
    }

    /// About half of the lines that `keep` drops, up to a turn; 0 when that is none.
    fn drop_half(&self, keep: usize) -> usize {
        let dropped = self.lines.len() - keep;
        let cut = (1..=dropped / 2).rev().find(|at| self.lines[*at].starts_turn);
        cut.map_or(0, |cut| self.lines.len() - cut)
    }
}

/// What is remembered between compactions of one run.
#[derive(Debug, Default)]
pub(super) struct Memory {
    sizes: Sizes,
    /// Not before this many model calls of this run.
    not_before: u64,
    /// The same for leaving out results.
    leave_out_not_before: u64,
    /// Model calls of this run.
    calls: u64,
}

impl Memory {
    /// A model call of a turn was made.
    pub(super) fn called(&mut self) {
        self.calls += 1;
    }
}

impl Agent {
    /// Compacts when it is due before a model call. A failure is told and the turn goes on. Returns whether the turn
    /// was interrupted meanwhile.
    pub(super) fn compact_if_due(&mut self) -> Result<bool, StorageError> {
        if self.compaction.calls >= self.compaction.not_before
            && self.compact(Trigger::Auto)? == Outcome::Interrupted
        {
            return Ok(true);
        }
        if self.compaction.calls >= self.compaction.leave_out_not_before {
            let (stats, _) = Stats::load(&self.session.dir.stats())?;
            let (context, max) = (stats.current_context_tokens, self.settings.max_context);
            if choice::nearly_full(context, max) {
                self.leave_out_results(leave_out::Goal::HalfOf { context, max })?;
            }
        }
        Ok(false)
    }

    /// What compaction keeps does not fit: the oldest large tool results are left out of requests from now on. Returns
    /// whether there was one to leave out.
    pub(super) fn leave_out_results(&mut self, goal: leave_out::Goal) -> Result<bool, StorageError> {
        let path = self.session.dir.conversation();
        let meta = &mut self.session.meta;
        let from = File::open(&path)
            .and_then(|file| leave_out::choose(file, meta.results_from, goal))
            .map_err(StorageError::at("read", &path))?;
        if from == meta.results_from {
            return Ok(false);
        }
        meta.results_from = from;
        meta.store(&self.session.dir)?;
        self.compaction.leave_out_not_before = self.compaction.calls + 1;
        self.recorder.display().notice(
            "the window is full: the oldest large tool results are left out of requests (conversation.jsonl keeps them)",
        );
        Ok(true)
    }

    /// Compacts now, as far as there is something to drop. With a limit of the run reached nothing is asked.
    pub(super) fn compact(&mut self, trigger: Trigger) -> Result<Outcome, StorageError> {
        if self.limit_reached().is_some() {
            return Ok(Outcome::Nothing);
        }
        let (stats, _) = Stats::load(&self.session.dir.stats())?;
        let mut keep = self.choose(trigger, &stats)?;
        if keep == 0 {
            return Ok(Outcome::Nothing);
        }
        let mut outcome = Outcome::Nothing;
        for _ in 0..HALVINGS {
            match self.summarise(keep)? {
                Summary::Text(text) => match self.cut(keep, &text) {
                    Ok(context) => {
                        self.compacted(context, trigger)?;
                        return Ok(Outcome::Done);
                    }
                    // The session is as it was (§9).
                    Err(error) => {
                        outcome = Outcome::Failed(error.to_string());
                        break;
                    }
                },
                Summary::Interrupted => return Ok(Outcome::Interrupted),
                Summary::TooLong(why) => {
                    outcome = Outcome::Failed(why);
                    keep = self.compaction.sizes.drop_half(keep);
                    if keep == 0 {
                        break;
                    }
                }
                Summary::Failed(why) => {
                    outcome = Outcome::Failed(why);
                    break;
                }
            }
        }
        self.compaction.not_before = self.compaction.calls + PAUSE_AFTER_FAILURE;
        if let Outcome::Failed(why) = &outcome {
            self.recorder.error(&format!("compaction failed, nothing was dropped: {why}"))?;
        }
        Ok(outcome)
    }

    fn choose(&mut self, trigger: Trigger, stats: &Stats) -> Result<usize, StorageError> {
        let path = self.session.dir.conversation();
        let sizes = &mut self.compaction.sizes;
        sizes.extend(&path, self.session.conversation.len()).map_err(StorageError::at("read", &path))?;
        let used = Used {
            turns: stats.current_turn_count,
            compactions: stats.compact_request_count,
            requests: stats.agent_request_count,
            total_input: stats.total_input_tokens,
        };
        let (costs, max) = (&self.settings.costs, self.settings.max_context);
        let is_asked_for = trigger != Trigger::Auto;
        Ok(choice::keep(&sizes.lines, costs, &used, max, stats.current_context_tokens, is_asked_for))
    }

    /// Asks for a summary of all but the last `keep` lines, with the prefix of an ordinary call.
    fn summarise(&mut self, keep: usize) -> Result<Summary, StorageError> {
        let sizes = &self.compaction.sizes;
        let until = sizes.starts[sizes.lines.len() - keep];
        let most = self.settings.costs.s.max(1.0) as u64;
        let instruction = prompt::SUMMARY_INSTRUCTION.trim_end().replace("{{max_tokens}}", &most.to_string());
        match self.ask_quietly(Quiet { until, instruction })? {
            Asked::Interrupted => Ok(Summary::Interrupted),
            Asked::Failed(ModelError { kind: ErrorKind::ContextTooLong, message, .. }) => {
                Ok(Summary::TooLong(message))
            }
            Asked::Failed(error) => Ok(Summary::Failed(error.to_string())),
            Asked::Complete(response) => {
                let stop = response.stop.as_deref().unwrap_or_default();
                let text = response.text();
                if !matches!(
                    stop,
                    "end_turn" | "stop" | "stop_sequence" | "tool_use" | "tool_calls" | "completed"
                ) {
                    return Ok(Summary::Failed(format!("the summary was cut off ({stop})")));
                }
                let summary = cut_to(&text, most);
                if summary.trim().is_empty() {
                    return Ok(Summary::Failed("the model gave no summary".to_owned()));
                }
                Ok(Summary::Text(summary.to_owned()))
            }
        }
    }

    /// Summary first, cut last (§9). Returns the tokens that were kept.
    fn cut(&mut self, keep: usize, summary: &str) -> Result<u64, StorageError> {
        let sizes = &self.compaction.sizes;
        let cut = sizes.starts[sizes.lines.len() - keep];
        let context = sizes.kept_tokens(keep);
        let session = &mut self.session;
        archive::compact(&session.dir, &mut session.conversation, &mut session.meta, cut, summary)?;
        self.compaction.sizes = Sizes::default();
        // One call with the shorter window comes first: without progress there is no second one.
        self.compaction.not_before = self.compaction.calls + 1;
        Ok(context)
    }

    /// The figures and the event.
    fn compacted(&mut self, context: u64, trigger: Trigger) -> Result<(), StorageError> {
        let stats = self.update_stats(&[Update::set("current_context_tokens", context)])?;
        let (kind, trigger) = ("compact", trigger.word());
        let message = Message::ContextUpdate { kind: kind.to_owned(), trigger: trigger.to_owned() };
        self.recorder.show(&Event::ContextUpdate { kind, trigger }, &message)?;
        self.recorder.display().figures(true, &stats);
        Ok(())
    }
}

enum Summary {
    Text(String),
    Interrupted,
    TooLong(String),
    Failed(String),
}

/// A summary that is longer than `most` tokens, line by line (§9), is cut at a line's end; a first line that is too
/// long alone, at a character. Its twin is scripts/lib/cut_summary.awk.
fn cut_to(text: &str, most: u64) -> &str {
    let text = text.trim_matches('\n');
    let (mut used, mut end) = (0, 0);
    for line in text.split_inclusive('\n') {
        let line = line.trim_end_matches('\n');
        used += choice::tokens(line.len() as u64);
        if used > most {
            break;
        }
        // With the line feed before it.
        end = (line.as_ptr() as usize - text.as_ptr() as usize) + line.len();
    }
    if end > 0 {
        return text[..end].trim_end_matches('\n');
    }
    let first = text.split('\n').next().unwrap_or_default();
    let limit = usize::try_from(most.saturating_sub(1).saturating_mul(4)).unwrap_or(usize::MAX);
    let end = (0..=limit.min(first.len())).rev().find(|at| first.is_char_boundary(*at)).unwrap_or(0);
    &first[..end]
}

/// The cost model's parameters from `DP_*`; what is no number, or out of range, is named and its default used.
pub fn costs(get: impl Fn(&str) -> Option<String>, warnings: &mut Vec<String>) -> Costs {
    let mut costs = Costs::default();
    let mut set = |name: &str, target: &mut f64, highest: f64| {
        let Some(text) = get(name) else { return };
        match text.trim().parse::<f64>() {
            Ok(value) if (0.0..=highest).contains(&value) => *target = value,
            _ => warnings.push(format!("{name}={text} is no number from 0 to {highest}; using {target}")),
        }
    };
    let any = 1e12;
    set("DP_P_INPUT", &mut costs.p_input, any);
    set("DP_P_CACHE", &mut costs.p_cache, any);
    set("DP_P_OUT", &mut costs.p_out, any);
    set("DP_V", &mut costs.v, any);
    set("DP_S", &mut costs.s, any);
    set("DP_L", &mut costs.l, any);
    set("DP_BASELINE_E", &mut costs.baseline_e, any);
    set("DP_E_FIXED", &mut costs.e_fixed, any);
    set("DP_R", &mut costs.r, 1.0);
    set("DP_BETA", &mut costs.beta, any);
    set("DP_MIN_KEEP_RATIO", &mut costs.min_keep, 1.0);
    set("DP_QUALITY_PENALTY", &mut costs.quality_penalty, any);
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_summary_is_cut_at_a_lines_end() {
        assert_eq!(cut_to("\nshort\n", 500), "short");
        assert_eq!(cut_to("one\ntwo three", 3), "one");
        assert_eq!(
            cut_to("one\n\ntwo three", 4),
            "one",
            "every line counts, and none is left empty at the end"
        );
        assert_eq!(cut_to("one\n\ntwo", 5), "one\n\ntwo");
        assert_eq!(cut_to("äöüäöü", 2), "äö");
    }

    #[test]
    fn parameters_that_are_none_are_named() {
        let mut warnings = Vec::new();
        let get = |name: &str| match name {
            "DP_S" => Some("700".to_owned()),
            "DP_R" => Some("2".to_owned()),
            "DP_V" => Some("many".to_owned()),
            _ => None,
        };
        let costs = costs(get, &mut warnings);
        assert_eq!((costs.s, costs.r, costs.v), (700.0, 0.8, 5000.0));
        assert_eq!(warnings.len(), 2, "{warnings:?}");
    }
}
