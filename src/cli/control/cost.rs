//! `cost`: tokens and dollars by kind and model, summed over the `usage` events of a session, of this directory's
//! sessions, or of all (CONTRACT §5, §6).

use std::collections::BTreeMap;
use std::fs::File;

use serde_json::json;

use super::{ControlError, Place};
use crate::cli::args::CostArgs;
use crate::config::ConfigError;
use crate::exit::Exit;
use crate::model::Catalog;
use crate::model::catalog::Price;
use crate::session::listing;
use crate::session::meta::Meta;
use crate::session::paths::{Base, SessionDir};
use crate::ui::out;
use crate::ui::render::safe;
use crate::wire::json::{self, member};
use crate::wire::message::Usage;
use crate::wire::ndjson::Lines;

/// Prints the bill.
pub(super) fn cost(place: &Place, args: &CostArgs) -> Result<u8, ControlError> {
    let catalog =
        Catalog::load(&place.base.models()).map_err(|error| ConfigError::Value(error.to_string()))?;
    let mut bill = Bill::new(catalog);
    for dir in sessions(place, args)? {
        bill.add(&dir)?;
    }
    for model in bill.unpriced() {
        out::complain(&format!(
            "no price is known for '{model}': its tokens count as $0 (add it to models.json)"
        ));
    }
    let text = if args.json { format!("{}\n", bill.json()) } else { bill.text() };
    match super::super::print(text.as_bytes()) {
        0 => Ok(Exit::Ok.code()),
        code => Ok(code),
    }
}

/// The bill of one session, and the models that have no price.
pub(super) fn text(base: &Base, dir: &SessionDir) -> Result<String, ControlError> {
    let catalog = Catalog::load(&base.models()).map_err(|error| ConfigError::Value(error.to_string()))?;
    let mut bill = Bill::new(catalog);
    bill.add(dir)?;
    let mut text = bill.text();
    for model in bill.unpriced() {
        text.push_str(&format!("no price is known for '{}': its tokens count as $0\n", safe(model)));
    }
    Ok(text)
}

fn sessions(place: &Place, args: &CostArgs) -> Result<Vec<SessionDir>, ControlError> {
    if args.all {
        let mut all = Vec::new();
        for project in read_dir(&place.base.projects())? {
            // Sub-agents' sessions are left out: their parents' events hold their figures.
            all.extend(read_dir(&project)?.into_iter().map(SessionDir::new).filter(is_own));
        }
        return Ok(all);
    }
    if args.project {
        let project = place.base.project(&place.cwd);
        let entries = listing::list(&place.base, &place.cwd)?;
        return Ok(entries.into_iter().map(|entry| SessionDir::new(project.join(entry.name))).collect());
    }
    Ok(vec![place.any(&args.session)?])
}

fn is_own(dir: &SessionDir) -> bool {
    !dir.name().starts_with("sub_") && dir.events().is_file()
}

fn read_dir(path: &std::path::Path) -> Result<Vec<std::path::PathBuf>, ControlError> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut paths: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    paths.sort();
    Ok(paths)
}

/// One row: a kind of call with one model.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    calls: u64,
    usage: Usage,
    dollars: f64,
    /// What the same tokens would have cost without a cache, less what they cost.
    saved: f64,
    priced: bool,
}

impl Row {
    /// With what its tokens cost.
    fn priced(mut self, price: Option<Price>) -> Self {
        if let Some(price) = price {
            let Usage { input, output, cache_read, cache_creation } = self.usage;
            let uncached = Usage { input: input + cache_read + cache_creation, output, ..Usage::default() };
            self.priced = true;
            self.dollars = price.dollars(&self.usage);
            self.saved = price.dollars(&uncached) - self.dollars;
        }
        self
    }
}

/// What compaction saved with one model: how often the window was compacted, and tokens to be priced, which may be
/// negative.
///
/// A compaction that took D tokens out of the window saves D tokens read from the cache in every later call. In the
/// first call after it the window was not in the cache as a whole: what its input cost counts against what the old
/// window would have cost, read from the cache; and so does the summary call.
#[derive(Clone, Copy, Debug, Default)]
struct Savings {
    compactions: u64,
    input: i128,
    output: i128,
    cache_read: i128,
    cache_creation: i128,
}

impl Savings {
    fn subtract(&mut self, usage: &Usage) {
        self.input -= i128::from(usage.input);
        self.output -= i128::from(usage.output);
        self.cache_read -= i128::from(usage.cache_read);
        self.cache_creation -= i128::from(usage.cache_creation);
    }

    fn dollars(&self, price: &Price) -> f64 {
        let tokens = [self.input, self.output, self.cache_read, self.cache_creation];
        price.sum(tokens.map(|count| count as f64))
    }
}

/// Where the window of a session stands while its events are gone through.
#[derive(Debug, Default)]
struct Window {
    /// The tokens of the last call.
    before: u64,
    /// What compaction has taken out so far.
    dropped: u64,
    /// Compactions since the last call.
    pending: u64,
}

struct Bill {
    catalog: Catalog,
    /// By kind and model.
    rows: BTreeMap<(String, String), Row>,
    /// By model.
    savings: BTreeMap<String, Savings>,
}

impl Bill {
    fn new(catalog: Catalog) -> Self {
        Self { catalog, rows: BTreeMap::new(), savings: BTreeMap::new() }
    }

    fn add(&mut self, dir: &SessionDir) -> Result<(), ControlError> {
        let model = Meta::load(dir)?.map(|meta| meta.model).unwrap_or_default();
        let file = match File::open(dir.events()) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut window = Window::default();
        let mut lines = Lines::new(file);
        while let Some(line) = lines.next()? {
            if line.bytes.starts_with(br#"{"type":"usage""#) {
                self.line(line.bytes, &model, &mut window);
            } else if line.bytes.starts_with(br#"{"type":"context_update""#) {
                window.pending += 1;
            }
        }
        Ok(())
    }

    /// A sub-agent's figures, and those of older logs, do not name their model: it is the session's.
    fn line(&mut self, line: &[u8], session_model: &str, window: &mut Window) {
        if json::members(line).is_none() {
            return;
        }
        let text = |key: &str| member(line, key).and_then(json::string).map(std::borrow::Cow::into_owned);
        let number = |key: &str| {
            member(line, key).and_then(|raw| std::str::from_utf8(raw).ok()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let usage = Usage {
            input: number("input_tokens"),
            output: number("output_tokens"),
            cache_read: number("cache_read_input_tokens"),
            cache_creation: number("cache_creation_input_tokens"),
        };
        let kind = text("kind").unwrap_or_else(|| "agent".to_owned());
        let model = text("model").unwrap_or_else(|| session_model.to_owned());
        match kind.as_str() {
            "compact" => self.savings.entry(model.clone()).or_default().subtract(&usage),
            "agent" => self.follow(&usage, &model, window),
            _ => {}
        }
        let row = self.rows.entry((kind, model)).or_default();
        row.calls += 1;
        add(&mut row.usage, &usage);
    }

    /// A call of the agent: what compactions before it have saved.
    fn follow(&mut self, usage: &Usage, model: &str, window: &mut Window) {
        let all = usage.input + usage.cache_read + usage.cache_creation;
        if window.pending > 0 {
            window.dropped += window.before.saturating_sub(all);
            let savings = self.savings.entry(model.to_owned()).or_default();
            savings.subtract(&Usage { output: 0, ..*usage });
            savings.cache_read += i128::from(all) + i128::from(window.dropped);
            savings.compactions += window.pending;
            window.pending = 0;
        } else if window.dropped > 0 {
            self.savings.entry(model.to_owned()).or_default().cache_read += i128::from(window.dropped);
        }
        window.before = all + usage.output;
    }

    fn price(&self, model: &str) -> Option<Price> {
        self.catalog.info(model).price
    }

    fn unpriced(&self) -> Vec<&str> {
        let models = self.rows.keys().map(|(_, model)| model.as_str());
        let mut models: Vec<&str> = models.filter(|model| self.price(model).is_none()).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    /// The rows, and their sum.
    fn priced(&self) -> (Vec<(&str, &str, Row)>, Row) {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|((kind, model), row)| (kind.as_str(), model.as_str(), row.priced(self.price(model))))
            .collect();
        let total = rows.iter().fold(Row::default(), |mut sum, (_, _, row)| {
            sum.calls += row.calls;
            add(&mut sum.usage, &row.usage);
            sum.dollars += row.dollars;
            sum.saved += row.saved;
            sum
        });
        (rows, total)
    }

    /// How often windows were compacted, and the dollars that this saved.
    fn compaction(&self) -> (u64, f64) {
        self.savings.iter().fold((0, 0.0), |(times, dollars), (model, savings)| {
            let saved = self.price(model).map_or(0.0, |price| savings.dollars(&price));
            (times + savings.compactions, dollars + saved)
        })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{:<10} {:<24} {:>6} {:>12} {:>10} {:>12} {:>12} {:>6} {:>12} {:>12}\n",
            "KIND",
            "MODEL",
            "CALLS",
            "INPUT",
            "OUTPUT",
            "CACHE READ",
            "CACHE WRITE",
            "HIT %",
            "COST $",
            "SAVED $"
        );
        let (rows, total) = self.priced();
        for (kind, model, row) in rows.into_iter().chain([("total", "", total)]) {
            let usage = &row.usage;
            text.push_str(&format!(
                "{:<10} {:<24} {:>6} {:>12} {:>10} {:>12} {:>12} {:>6.1} {:>12} {:>12}\n",
                safe(kind),
                safe(model),
                row.calls,
                usage.input,
                usage.output,
                usage.cache_read,
                usage.cache_creation,
                hit_rate(usage),
                money(row.dollars),
                money(row.saved),
            ));
        }
        let (times, dollars) = self.compaction();
        if times > 0 {
            text.push_str(&format!("compactions: {times}; they saved about ${} on top\n", money(dollars)));
        }
        text
    }

    /// One object; dollars with six decimals, as they stand in stats.json.
    fn json(&self) -> String {
        let figures = |row: &Row| {
            format!(
                r#""calls":{},"input_tokens":{},"output_tokens":{},"cache_read_input_tokens":{},"cache_creation_input_tokens":{},"cache_hit_percent":{:.1},"cost_usd":{},"saved_by_cache_usd":{}"#,
                row.calls,
                row.usage.input,
                row.usage.output,
                row.usage.cache_read,
                row.usage.cache_creation,
                hit_rate(&row.usage),
                money(row.dollars),
                money(row.saved),
            )
        };
        let (rows, total) = self.priced();
        let rows: Vec<String> = rows
            .iter()
            .map(|(kind, model, row)| {
                let (kind, model, known) = (json!(kind), json!(model), row.priced);
                format!(r#"{{"kind":{kind},"model":{model},{},"price_known":{known}}}"#, figures(row))
            })
            .collect();
        let (times, dollars) = self.compaction();
        format!(
            r#"{{"rows":[{}],"total":{{{},"compactions":{times},"saved_by_compaction_usd":{}}}}}"#,
            rows.join(","),
            figures(&total),
            money(dollars)
        )
    }
}

/// Dollars with six decimals, and no `-0`.
fn money(dollars: f64) -> String {
    let dollars = if dollars.abs() < 0.000_000_5 { 0.0 } else { dollars };
    format!("{dollars:.6}")
}

fn add(sum: &mut Usage, usage: &Usage) {
    sum.input += usage.input;
    sum.output += usage.output;
    sum.cache_read += usage.cache_read;
    sum.cache_creation += usage.cache_creation;
}

/// Percent of all input tokens that were read from the cache.
fn hit_rate(usage: &Usage) -> f64 {
    let all = usage.input + usage.cache_read + usage.cache_creation;
    if all == 0 { 0.0 } else { 100.0 * usage.cache_read as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bill(lines: &[&str]) -> Bill {
        let mut bill = Bill::new(Catalog::builtin());
        let mut window = Window::default();
        for line in lines {
            match line.strip_prefix("compacted") {
                Some(_) => window.pending += 1,
                None => {
                    let figures: Vec<&str> = line.split(' ').collect();
                    let event = format!(
                        r#"{{"type":"usage","input_tokens":{},"output_tokens":{},"cache_read_input_tokens":{},"cache_creation_input_tokens":{},"kind":"{}"}}"#,
                        figures[1], figures[2], figures[3], figures[4], figures[0]
                    );
                    bill.line(event.as_bytes(), "claude-sonnet-5-5", &mut window);
                }
            }
        }
        bill
    }

    fn near(amount: f64, expected: f64) {
        assert!((amount - expected).abs() < 1e-9, "{amount} is not {expected}");
    }

    #[test]
    fn the_bill_is_the_vendors() {
        let mut bill = bill(&["agent 1000000 100000 2000000 400000"]);
        bill.line(
            br#"{"type":"usage","input_tokens":5,"output_tokens":0,"kind":"sub_agent","model":"unknown-model"}"#,
            "other",
            &mut Window::default(),
        );
        // 1 M at $2, 2 M read at $0.10, 0.4 M written at $2.50, 0.1 M out at $10.
        let (rows, total) = bill.priced();
        near(total.dollars, 2.0 + 0.2 + 1.0 + 1.0);
        // Without a cache 3.4 M would have been read at $2.
        near(total.saved, 6.8 - 3.2);
        assert_eq!((rows.len(), total.calls), (2, 2));
        assert_eq!(bill.unpriced(), ["unknown-model"]);
    }

    #[test]
    fn a_compaction_pays_back_call_after_call() {
        // 100,000 tokens of context; the summary call reads them and writes 500; then 20,000 are left, not in the cache.
        let start = ["agent 0 0 90000 10000", "compact 100 500 100000 0", "compacted", "agent 0 0 0 20000"];
        let bill_of = |more: usize| {
            let lines = [&start[..], &vec!["agent 0 0 20000 0"; more]].concat();
            bill(&lines).compaction()
        };
        // Summary: 100 at $2, 500 out at $10, 100,000 read at $0.10. First call: 20,000 written at $2.50 in place of
        // 100,000 read at $0.10.
        let price = 0.0002 + 0.005 + 0.01 + 0.05 - 0.01;
        let (times, saved) = bill_of(0);
        assert_eq!(times, 1);
        near(saved, -price);
        // Every later call reads 80,000 less, at $0.10.
        near(bill_of(10).1, 10.0 * 0.008 - price);
    }
}
