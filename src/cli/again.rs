//! `/clear`, `/fork`, `/resume`: the program begins anew in its own place, with the flags it had, on another session. So
//! nothing of the old session can leak into the new one.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::args::AgentArgs;
use crate::agent::console::{Next, Onward};
use crate::config::Config;
use crate::model::Provider;

/// Begins anew; returns only when that fails.
pub(super) fn exec(args: &AgentArgs, config: &Config, onward: &Onward) -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut command = Command::new(program);
    command.args(arguments(args, config, onward));
    if let Some((name, key)) = key(args, config) {
        command.env(name, key);
    }
    let error = command.exec();
    io::Error::new(error.kind(), format!("{error}; `bash-agent --session {}` goes on here", onward.from))
}

/// A key that cannot be read a second time, or must not show in the process list.
fn key(args: &AgentArgs, config: &Config) -> Option<(&'static str, String)> {
    args.api_key.as_ref()?;
    let key = config.model.key.as_ref()?;
    let name = match config.model.provider {
        Provider::Claude => "ANTHROPIC_API_KEY",
        _ => "OPENAI_API_KEY",
    };
    Some((name, key.expose().to_owned()))
}

/// The flags of the run that ended, with what was changed in it.
fn arguments(args: &AgentArgs, config: &Config, onward: &Onward) -> Vec<OsString> {
    // By name, so that a new flag is not forgotten here.
    let AgentArgs {
        prompt: _,
        provider,
        model: _,
        max_tokens,
        tool_timeout,
        skill: _,
        image: _,
        max_turns,
        max_context,
        max_sub_agents,
        max_cost: _,
        max_total_tokens: _,
        max_time: _,
        api_key: _,
        base_url,
        effort: _,
        thinking,
        output_format: _,
        print: _,
        session: _,
        continue_: _,
        fork: _,
        stay: _,
        // A second run would write over the first one's answers.
        record: _,
        list_sessions: _,
        mode: _,
        ask,
        require_sandbox,
        no_mask,
        plain,
        verbose,
        interactive: _,
    } = args;
    let mut all: Vec<OsString> = vec!["--interactive".into()];
    match &onward.next {
        Next::New => all.push("--session".into()),
        Next::Fork => all.extend(["--session", &onward.from, "--fork"].map(OsString::from)),
        Next::Session(name) => all.extend(["--session", name].map(OsString::from)),
    }
    let numbers = [
        ("--max-tokens", max_tokens),
        ("--tool-timeout", tool_timeout),
        ("--max-turns", max_turns),
        ("--max-context", max_context),
        ("--max-sub-agents", max_sub_agents),
    ];
    for (name, value) in numbers.into_iter().filter_map(|(name, value)| Some((name, (*value)?))) {
        all.extend([name.into(), OsString::from(value.to_string())]);
    }
    let texts = [("--provider", provider), ("--base-url", base_url), ("--thinking", thinking)];
    for (name, value) in texts.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        all.extend([OsString::from(name), value.into()]);
    }
    let flags = [
        ("--ask", ask),
        ("--require-sandbox", require_sandbox),
        ("--no-mask", no_mask),
        ("--plain", plain),
        ("--verbose", verbose),
    ];
    all.extend(flags.into_iter().filter(|(_, on)| **on).map(|(name, _)| name.into()));
    match (&config.model.script_file, config.model.provider) {
        (Some(file), _) => all.extend(["--model".into(), file.into()]),
        (None, Provider::Script) => {}
        (None, _) => all.extend([OsString::from("--model"), config.model.model.clone().into()]),
    }
    all.extend([OsString::from("--effort"), config.model.effort.as_str().into()]);
    all.extend([OsString::from("--mode"), config.mode.to_string().into()]);
    for skill in &config.skills {
        all.extend([OsString::from("--skill"), skill.into()]);
    }
    all.extend(onward.budget.iter().map(OsString::from));
    all
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn what_was_set_and_changed_goes_along() {
        let args =
            AgentArgs::parse_from(["bash-agent", "-p", "script", "--plain", "--max-turns", "7", "hello"]);
        let env = |name: &str| (name == "HOME").then(|| OsString::from("/nonexistent"));
        let mut config = Config::resolve(&args, &env).unwrap();
        config.model.effort = crate::model::Effort::Low;
        let onward =
            |next| Onward { next, from: "old".into(), budget: vec!["--max-cost".into(), "1.5".into()] };
        let parsed = |next| {
            let words = arguments(&args, &config, &onward(next));
            AgentArgs::parse_from(std::iter::once(OsString::from("bash-agent")).chain(words))
        };
        let again = parsed(Next::New);
        assert_eq!((again.session, again.prompt), (Some(None), Vec::new()));
        assert_eq!((again.max_turns, again.max_cost, again.plain), (Some(7), Some(1.5), true));
        assert_eq!((again.effort.as_deref(), again.provider.as_deref()), (Some("low"), Some("script")));
        let again = parsed(Next::Fork);
        assert_eq!((again.session, again.fork), (Some(Some("old".into())), true));
        assert_eq!(parsed(Next::Session("x y".into())).session, Some(Some("x y".into())));
    }
}
