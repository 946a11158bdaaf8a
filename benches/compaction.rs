//! What compaction is worth: one session of 200 turns, made up but always the same, with four policies and the vendors'
//! prices (`src/assets/models.json`). Prints the tables of docs/compaction.md: `cargo bench --bench compaction`.
//!
//! The cache is taken to work as the vendors say: what the last request held is read from it, what is new is written to it,
//! and after a compaction all that is sent is new. The summary call reads the old prefix from the cache.

#![allow(clippy::print_stdout, reason = "its tables are what it is for")]

use bash_agent::agent::compact_choice::{Costs, Line, Used, keep, last_quarter, nearly_full};
use bash_agent::model::Catalog;
use bash_agent::wire::message::Usage;

const TURNS: u64 = 200;
/// Tokens of tools and system prompt.
const FIXED: u64 = 4_500;
const SUMMARY: u64 = 500;
const INSTRUCTION: u64 = 70;
const MAX_CONTEXT: u64 = 200_000;

/// When a session is compacted.
#[derive(Clone, Copy)]
enum Policy {
    Never,
    /// At 90 % of `--max-context`, the last quarter of the turns is kept.
    Full,
    /// As the agent does it.
    Formula(Costs),
}

/// A session under way.
#[derive(Default)]
struct Session {
    window: Vec<Line>,
    used: Used,
    usage: Usage,
    /// Tokens of the last request and its answer: what the cache holds.
    cached: u64,
    summary: u64,
    largest: u64,
}

impl Session {
    fn tokens(&self) -> u64 {
        FIXED + self.summary + self.window.iter().map(|line| line.tokens).sum::<u64>()
    }

    fn add(&mut self, tokens: u64, starts_turn: bool) {
        self.window.push(Line { tokens, starts_turn });
    }

    /// One model call with `output` tokens, which become the next line.
    fn call(&mut self, output: u64) {
        let all = self.tokens();
        let read = self.cached.min(all);
        self.usage.cache_read += read;
        self.usage.cache_creation += all - read;
        self.usage.output += output;
        self.used.requests += 1;
        self.add(output, false);
        self.cached = all + output;
        self.largest = self.largest.max(self.cached);
    }

    fn compact_if_due(&mut self, policy: &Policy) {
        let kept = match policy {
            Policy::Never => 0,
            Policy::Full if nearly_full(self.cached, MAX_CONTEXT) => last_quarter(&self.window),
            Policy::Full => 0,
            Policy::Formula(costs) => keep(&self.window, costs, &self.used, MAX_CONTEXT, self.cached, false),
        };
        if kept == 0 {
            return;
        }
        let cut = self.window.len() - kept;
        let dropped: u64 = self.window[..cut].iter().map(|line| line.tokens).sum();
        self.usage.input += INSTRUCTION;
        self.usage.cache_read += FIXED + self.summary + dropped;
        self.usage.output += SUMMARY;
        self.used.compactions += 1;
        self.window.drain(..cut);
        self.summary = SUMMARY;
        // The summary stands in the system prompt, in front of all messages.
        self.cached = 0;
    }
}

/// The same numbers every time.
struct Dice(u64);

impl Dice {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + (self.0 >> 33) % (high - low + 1)
    }
}

/// Most turns are a question and a few calls; tool results are mostly short, some are whole files.
fn play(policy: &Policy) -> Session {
    let mut session = Session::default();
    let mut dice = Dice(7);
    for _ in 0..TURNS {
        session.used.turns += 1;
        session.add(dice.between(20, 300), true);
        for call in (0..dice.between(1, 7)).rev() {
            session.compact_if_due(policy);
            session.call(dice.between(60, 400));
            if call > 0 {
                let long = dice.between(1, 5) == 1;
                session.add(if long { dice.between(1500, 6000) } else { dice.between(20, 600) }, false);
            }
        }
        session.used.total_input = session.usage.input;
    }
    session
}

fn main() {
    let catalog = Catalog::builtin();
    for model in ["claude-sonnet-5-5", "claude-opus-5-5", "gpt-6-sol"] {
        let Some(price) = catalog.info(model).price else { continue };
        let own = Costs {
            p_input: price.cache_write.unwrap_or(price.input * 1.25),
            p_cache: price.cache_read.unwrap_or(price.input * 0.1),
            p_out: price.output,
            ..Costs::default()
        };
        let policies = [
            ("never", Policy::Never),
            ("at 90 % of 200k", Policy::Full),
            ("the formula", Policy::Formula(Costs::default())),
            ("the formula, `DP_P_*` = the model's prices", Policy::Formula(own)),
        ];
        println!(
            "| {model} | dollars | cache hit rate | compactions | calls | largest window |\n|---|---|---|---|---|---|"
        );
        for (name, policy) in policies {
            let Session { usage, used, largest, .. } = play(&policy);
            let input = usage.input + usage.cache_read + usage.cache_creation;
            println!(
                "| {name} | {:.2} | {:.1} % | {} | {} | {}k |",
                price.dollars(&usage),
                100.0 * usage.cache_read as f64 / input as f64,
                used.compactions,
                used.requests,
                largest / 1000
            );
        }
        println!();
    }
}
