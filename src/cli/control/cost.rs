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
use crate::session::listing;
use crate::session::meta::Meta;
use crate::session::paths::SessionDir;
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

struct Bill {
    catalog: Catalog,
    /// By kind and model.
    rows: BTreeMap<(String, String), Row>,
}

impl Bill {
    fn new(catalog: Catalog) -> Self {
        Self { catalog, rows: BTreeMap::new() }
    }

    fn add(&mut self, dir: &SessionDir) -> Result<(), ControlError> {
        let model = Meta::load(dir)?.map(|meta| meta.model).unwrap_or_default();
        let file = match File::open(dir.events()) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mut lines = Lines::new(file);
        while let Some(line) = lines.next()? {
            if line.bytes.starts_with(br#"{"type":"usage""#) {
                self.line(line.bytes, &model);
            }
        }
        Ok(())
    }

    /// A sub-agent's figures, and those of older logs, do not name their model: it is the session's.
    fn line(&mut self, line: &[u8], session_model: &str) {
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
        let price = self.catalog.info(&model).price;
        let row = self.rows.entry((kind, model)).or_default();
        row.calls += 1;
        add(&mut row.usage, &usage);
        if let Some(price) = price {
            let all_input = usage.input + usage.cache_read + usage.cache_creation;
            let uncached =
                price.dollars(&Usage { input: all_input, output: usage.output, ..Usage::default() });
            let dollars = price.dollars(&usage);
            row.priced = true;
            row.dollars += dollars;
            row.saved += uncached - dollars;
        }
    }

    fn unpriced(&self) -> Vec<&str> {
        let mut models: Vec<&str> =
            self.rows.iter().filter(|(_, row)| !row.priced).map(|((_, model), _)| model.as_str()).collect();
        models.sort_unstable();
        models.dedup();
        models
    }

    fn total(&self) -> Row {
        self.rows.values().fold(Row::default(), |mut sum, row| {
            sum.calls += row.calls;
            add(&mut sum.usage, &row.usage);
            sum.dollars += row.dollars;
            sum.saved += row.saved;
            sum
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
        let total = self.total();
        let rows = self.rows.iter().map(|((kind, model), row)| (kind.as_str(), model.as_str(), row));
        for (kind, model, row) in rows.chain([("total", "", &total)]) {
            let usage = &row.usage;
            text.push_str(&format!(
                "{:<10} {:<24} {:>6} {:>12} {:>10} {:>12} {:>12} {:>6.1} {:>12.6} {:>12.6}\n",
                safe(kind),
                safe(model),
                row.calls,
                usage.input,
                usage.output,
                usage.cache_read,
                usage.cache_creation,
                hit_rate(usage),
                row.dollars,
                row.saved,
            ));
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        let object = |row: &Row| {
            json!({
                "calls": row.calls,
                "input_tokens": row.usage.input,
                "output_tokens": row.usage.output,
                "cache_read_input_tokens": row.usage.cache_read,
                "cache_creation_input_tokens": row.usage.cache_creation,
                "cache_hit_percent": (hit_rate(&row.usage) * 10.0).round() / 10.0,
                "cost_usd": (row.dollars * 1e6).round() / 1e6,
                "saved_by_cache_usd": (row.saved * 1e6).round() / 1e6,
            })
        };
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|((kind, model), row)| {
                let mut value = object(row);
                value["kind"] = json!(kind);
                value["model"] = json!(model);
                value
            })
            .collect();
        json!({"rows": rows, "total": object(&self.total())})
    }
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

    #[test]
    fn the_bill_is_the_vendors() {
        let mut bill = Bill::new(Catalog::builtin());
        let line = br#"{"type":"usage","input_tokens":1000000,"output_tokens":100000,"cache_read_input_tokens":2000000,"cache_creation_input_tokens":400000,"kind":"agent","model":"claude-sonnet-5-5"}"#;
        bill.line(line, "other");
        bill.line(
            br#"{"type":"usage","input_tokens":5,"output_tokens":0,"kind":"sub_agent"}"#,
            "unknown-model",
        );
        // 1 M at $2, 2 M read at $0.10, 0.4 M written at $2.50, 0.1 M out at $10.
        let total = bill.total();
        assert!((total.dollars - (2.0 + 0.2 + 1.0 + 1.0)).abs() < 1e-9, "{}", total.dollars);
        // Without a cache 3.4 M would have been read at $2.
        assert!((total.saved - (6.8 - 3.2)).abs() < 1e-9, "{}", total.saved);
        assert_eq!(total.calls, 2);
        assert_eq!(bill.unpriced(), ["unknown-model"]);
    }
}
