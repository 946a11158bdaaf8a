//! `status`: what a session is doing, from its files and its lock.

use serde_json::json;

use super::{ControlError, owner};
use crate::cli::core::policy::places_of;
use crate::config;
use crate::session::meta::Meta;
use crate::session::paths::{Base, SessionDir};
use crate::session::stats::Stats;
use crate::session::{active, notify};
use crate::ui::render::safe;

/// Prints it, as text or as one JSON object.
pub(super) fn status(base: &Base, dir: &SessionDir, as_json: bool) -> Result<u8, ControlError> {
    let status = Status::read(base, dir)?;
    let text = if as_json { format!("{}\n", status.json()) } else { status.text() };
    Ok(super::super::print(text.as_bytes()))
}

/// What a person sees of it.
pub(super) fn text(base: &Base, dir: &SessionDir) -> Result<String, ControlError> {
    Ok(Status::read(base, dir)?.text())
}

struct Status {
    name: String,
    path: String,
    pid: Option<u32>,
    busy: bool,
    waiting: bool,
    children: Vec<active::Active>,
    meta: Meta,
    stats: Stats,
    /// What confines commands that are started here.
    sandbox: String,
}

impl Status {
    fn read(base: &Base, dir: &SessionDir) -> Result<Self, ControlError> {
        let (confinement, mode) = config::confinement(base, &|name: &str| std::env::var_os(name))?;
        let pid = owner(dir);
        // Without an owner the flag and the list are what a crash left.
        let children = if pid.is_some() { active::entries(dir)? } else { Vec::new() };
        Ok(Self {
            name: dir.name(),
            path: dir.path().display().to_string(),
            pid,
            busy: pid.is_some() && dir.running_flag().exists(),
            waiting: notify::is_waiting(dir),
            children,
            meta: Meta::load(dir)?.unwrap_or_default(),
            stats: Stats::load(&dir.stats())?.0,
            sandbox: confinement.describe_at(mode, &places_of(base, dir.path())?),
        })
    }

    fn state(&self) -> &'static str {
        match (self.pid, self.busy) {
            (None, _) => "not running",
            (Some(_), true) => "working",
            (Some(_), false) => "waiting for input",
        }
    }

    /// Percent of all input tokens that came from the cache.
    fn cache_rate(&self) -> f64 {
        let stats = &self.stats;
        let parts =
            [stats.total_input_tokens, stats.total_cache_read_tokens, stats.total_cache_creation_tokens];
        let all: f64 = parts.iter().map(|part| *part as f64).sum();
        if all == 0.0 { 0.0 } else { 100.0 * stats.total_cache_read_tokens as f64 / all }
    }

    fn text(&self) -> String {
        let stats = &self.stats;
        let owner = self.pid.map_or(String::new(), |pid| format!(" (pid {pid})"));
        let mut text = format!(
            "session  {}\nstate    {}{owner}\npath     {}\nmodel    {} {}\nturns    {}\nrequests {} (and {} summaries, {} sub-agents)\n\
             tokens   in {}, out {}, cache read {} ({:.0} %), cache written {}\ncontext  {}\ncost     ${:.6}\nsandbox  {}\n",
            safe(&self.name),
            self.state(),
            safe(&self.path),
            safe(&self.meta.provider),
            safe(&self.meta.model),
            stats.current_turn_count,
            stats.agent_request_count,
            stats.compact_request_count,
            stats.sub_agent_request_count,
            stats.total_input_tokens,
            stats.total_output_tokens,
            stats.total_cache_read_tokens,
            self.cache_rate(),
            stats.total_cache_creation_tokens,
            stats.current_context_tokens,
            stats.total_cost_usd,
            self.sandbox,
        );
        for child in &self.children {
            let state = if child.pid == 0 { "queued".to_owned() } else { format!("pid {}", child.pid) };
            text.push_str(&format!("open     {} ({state})\n", safe(&child.id)));
        }
        if self.waiting {
            text.push_str("results wait for the next turn\n");
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        let children: Vec<_> =
            self.children.iter().map(|child| json!({"id": child.id, "pid": child.pid})).collect();
        json!({
            "session_id": self.name,
            "path": self.path,
            "running": self.pid.is_some(),
            "pid": self.pid,
            "busy": self.busy,
            "results_waiting": self.waiting,
            "open": children,
            "provider": self.meta.provider,
            "model": self.meta.model,
            "sandbox": self.sandbox,
            "cache_rate_percent": (self.cache_rate() * 10.0).round() / 10.0,
            "stats": serde_json::from_str::<serde_json::Value>(&self.stats.to_json()).unwrap_or_default(),
        })
    }
}
