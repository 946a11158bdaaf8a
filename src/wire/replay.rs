//! Replay: lines of events.jsonl in, display messages out (CONTRACT §8). The twin of `awk/event_replay.awk`.

use std::borrow::Cow;

use super::json;
use super::message::{AgentResult, Message, Usage};

/// Code points of a tool's result that replay shows.
const RESULT_CHARS: usize = 200;

/// Turns event lines into display messages.
///
/// Text and thinking of a response, and what comes between them, are held until it is sure that no `retry` takes them
/// back; then neighbouring pieces of one kind come as one message.
#[derive(Debug, Default)]
pub struct Replay {
    held: Vec<Message>,
    run: Option<Run>,
    /// Results are not cut.
    whole: bool,
}

/// Neighbouring pieces of text or of thinking.
#[derive(Debug)]
struct Run {
    thinking: bool,
    text: String,
}

/// An event's members.
struct Event<'a>(Vec<(Cow<'a, str>, &'a [u8])>);

impl<'a> Event<'a> {
    fn raw(&self, key: &str) -> Option<&'a [u8]> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, raw)| *raw)
    }

    /// A string member's text; empty when there is none.
    fn text(&self, key: &str) -> String {
        self.raw(key).and_then(json::string).unwrap_or_default().into_owned()
    }

    /// A number's value; 0 when there is none.
    fn number<N: std::str::FromStr + Default>(&self, key: &str) -> N {
        let text = self.raw(key).and_then(|raw| std::str::from_utf8(raw).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }

    fn tool_call(&self) -> Message {
        let input = self.raw("input").map(json::clean).unwrap_or_default();
        Message::tool_call(self.text("name"), self.text("id"), input.into_owned())
    }
}

/// The messages that show one event at once, for who watches a running session: nothing is held, results are whole.
/// None for what is not shown.
pub fn live(line: &[u8]) -> Vec<Message> {
    let members = std::str::from_utf8(line).ok().and_then(|line| json::members(line.as_bytes()));
    let Some(event) = members.map(Event) else { return Vec::new() };
    let kind = event.raw("type").and_then(json::string).unwrap_or_default();
    vec![match kind.as_ref() {
        "text" => Message::Text { content: event.text("content") },
        "thinking" => Message::Thinking { content: event.text("content") },
        "tool_result" => {
            let [tool_use_id, name, content] = ["tool_use_id", "name", "content"].map(|key| event.text(key));
            Message::ToolResult { tool_use_id, name, content, todo: None }
        }
        "retry" => Message::Retry,
        "stop" => Message::Stop { reason: event.text("reason") },
        "context_update" => {
            Message::ContextUpdate { kind: event.text("kind"), trigger: event.text("trigger") }
        }
        _ => {
            let (mut replay, mut out) = (Replay::new(), Vec::new());
            replay.line(line, &mut out);
            replay.finish(&mut out);
            return out;
        }
    }]
}

impl Replay {
    /// A replay with nothing held.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, but with results whole: a transcript.
    pub fn whole() -> Self {
        Self { whole: true, ..Self::default() }
    }

    /// Takes one event line and appends the messages that are sure by now. A line that is no JSON object is skipped.
    pub fn line(&mut self, line: &[u8], out: &mut Vec<Message>) {
        let members = std::str::from_utf8(line).ok().and_then(|text| json::members(text.as_bytes()));
        let Some(event) = members.map(Event) else { return };
        let kind = event.raw("type").and_then(json::string).unwrap_or_default();
        match kind.as_ref() {
            "text" => self.piece(false, &event),
            "thinking" => self.piece(true, &event),
            "usage" => self.end_run(),
            "retry" => {
                self.run = None;
                self.held.retain(|held| !matches!(held, Message::Text { .. } | Message::Thinking { .. }));
            }
            "user_input" | "user_message" => {
                self.finish(out);
                out.push(Message::UserMessage { content: event.text("content") });
            }
            "tool_call" => {
                self.finish(out);
                out.push(event.tool_call());
            }
            "tool_result" => {
                self.finish(out);
                let [tool_use_id, name] = ["tool_use_id", "name"].map(|key| event.text(key));
                let content = event.text("content");
                let content = if self.whole { content } else { shortened(content) };
                out.push(Message::ToolResult { tool_use_id, name, content, todo: None });
            }
            "stop" => self.finish(out),
            "assistant_message" => {
                self.finish(out);
                assistant_message(&event, out);
            }
            "sub_agent_result" => self.hold(Message::AgentResult(agent_result(&event)), out),
            "async_task_result" => {
                let exit_code = event.number("exit_code");
                let [task_id, output] = ["task_id", "output"].map(|key| event.text(key));
                self.hold(Message::AsyncTaskResult { task_id, exit_code, output }, out);
            }
            "user_notify" => self.hold(Message::UserNotify { text: event.text("content") }, out),
            "error" => self.hold(Message::Error { message: event.text("message"), kind: None }, out),
            _ => {}
        }
    }

    /// Appends what is still held: at the end of the input.
    pub fn finish(&mut self, out: &mut Vec<Message>) {
        self.end_run();
        out.append(&mut self.held);
    }

    fn piece(&mut self, thinking: bool, event: &Event<'_>) {
        if self.run.as_ref().is_none_or(|run| run.thinking != thinking) {
            self.end_run();
        }
        let run = self.run.get_or_insert_with(|| Run { thinking, text: String::new() });
        if let Some(text) = event.raw("content").and_then(json::string) {
            run.text.push_str(&text);
        }
    }

    fn end_run(&mut self) {
        match self.run.take() {
            Some(Run { text, .. }) if text.is_empty() => {}
            Some(Run { thinking: true, text }) => self.held.push(Message::Thinking { content: text }),
            Some(Run { thinking: false, text }) => self.held.push(Message::Text { content: text }),
            None => {}
        }
    }

    /// A message that keeps its place among what is held.
    fn hold(&mut self, message: Message, out: &mut Vec<Message>) {
        self.end_run();
        if self.held.is_empty() {
            out.push(message);
        } else {
            self.held.push(message);
        }
    }
}

fn agent_result(event: &Event<'_>) -> AgentResult {
    AgentResult {
        session_id: event.text("session_id"),
        ok: event.raw("status") == Some(b"\"ok\""),
        thinking: event.text("thinking"),
        text: event.text("text"),
        usage: Usage {
            input: event.number("input_tokens"),
            output: event.number("output_tokens"),
            ..Usage::default()
        },
        requests: 0,
    }
}

/// The form of older logs: a whole answer in one event.
fn assistant_message(event: &Event<'_>, out: &mut Vec<Message>) {
    let content = event.text("text");
    if !content.is_empty() {
        out.push(Message::Text { content });
    }
    let calls = event.raw("tool_calls").and_then(json::elements).unwrap_or_default();
    out.extend(calls.into_iter().map(|call| Event(json::members(call).unwrap_or_default()).tool_call()));
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(RESULT_CHARS) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One word a message, for short expectations.
    fn shown(message: &Message) -> String {
        match message {
            Message::Text { content } => format!("TEXT {content}"),
            Message::Thinking { content } => format!("THINKING {content}"),
            Message::UserMessage { content } => format!("USER {content}"),
            Message::UserNotify { text } => format!("NOTIFY {text}"),
            Message::Error { message, kind: None } => format!("ERROR {message}"),
            Message::ToolCall { name, id, input, members } => format!("CALL {name} {id} {input} {members:?}"),
            Message::ToolResult { tool_use_id, name, content, todo: None } => {
                format!("RESULT {tool_use_id} {name} {content}")
            }
            Message::AsyncTaskResult { task_id, exit_code, output } => {
                format!("TASK {task_id} {exit_code} {output}")
            }
            Message::AgentResult(result) => {
                let AgentResult { session_id, ok, thinking, text, usage, .. } = result;
                format!("AGENT {session_id} {ok} {} {} {thinking} {text}", usage.input, usage.output)
            }
            other => panic!("{other:?} is not shown in replay"),
        }
    }

    fn replay(lines: &[&str]) -> Vec<String> {
        let mut replay = Replay::new();
        let mut out = Vec::new();
        for line in lines {
            replay.line(line.as_bytes(), &mut out);
        }
        replay.finish(&mut out);
        out.iter().map(shown).collect()
    }

    const TEXT_A: &str = r#"{"type":"text","content":"a"}"#;
    const TEXT_B: &str = r#"{"type":"text","content":"b\n\ud83c\udf78"}"#;
    const THINK: &str = r#"{"type":"thinking","content":"t"}"#;
    const EMPTY: &str = r#"{"type":"text","content":""}"#;
    const USAGE: &str = r#"{"type":"usage","input_tokens":1}"#;
    const RETRY: &str = r#"{"type":"retry","ts":"x"}"#;
    const STOP: &str = r#"{"type":"stop","reason":"end_turn"}"#;
    const ERROR: &str = r#"{"type":"error","message":"e"}"#;
    const NOTIFY: &str = r#"{"type":"user_notify","content":"n"}"#;
    const USER: &str = r#"{"type":"user_input","content":"u","ts":"x"}"#;

    #[test]
    fn neighbours_are_joined_and_others_are_not() {
        assert_eq!(replay(&[THINK, THINK, TEXT_A, TEXT_B, STOP]), ["THINKING tt", "TEXT ab\n🍸"]);
        assert_eq!(
            replay(&[TEXT_A, r#"{"type":"sub_agent_end","session_id":"s"}"#, "broken {", "", TEXT_A]),
            ["TEXT aa"]
        );
        assert_eq!(replay(&[TEXT_A, USAGE, TEXT_A]), ["TEXT a", "TEXT a"]);
        assert_eq!(replay(&[TEXT_A, NOTIFY, TEXT_A]), ["TEXT a", "NOTIFY n", "TEXT a"]);
        assert_eq!(replay(&[THINK, EMPTY, THINK, EMPTY]), ["THINKING t", "THINKING t"]);
    }

    #[test]
    fn a_retry_takes_back_text_and_thinking_only() {
        assert_eq!(
            replay(&[USER, THINK, TEXT_A, ERROR, USAGE, RETRY, TEXT_B, STOP]),
            ["USER u", "ERROR e", "TEXT b\n🍸"]
        );
        assert_eq!(replay(&[TEXT_A, STOP, RETRY, THINK]), ["TEXT a", "THINKING t"]);
        assert_eq!(replay(&[TEXT_A, RETRY]), Vec::<String>::new());
    }

    #[test]
    fn messages_come_when_they_are_sure() {
        let mut replay = Replay::new();
        let mut out = Vec::new();
        for line in [NOTIFY, TEXT_A, NOTIFY, USAGE] {
            replay.line(line.as_bytes(), &mut out);
        }
        assert_eq!(out.len(), 1);
        replay.line(STOP.as_bytes(), &mut out);
        assert_eq!(out.iter().map(shown).collect::<Vec<_>>(), ["NOTIFY n", "TEXT a", "NOTIFY n"]);
    }

    #[test]
    fn every_shown_event_has_its_message() {
        let lines = [
            r#"{"type":"session_start","session_id":"s"}"#,
            r#"{"type":"user_message","content":"old"}"#,
            r#"{"type":"tool_call","name":"Bash","id":"c","input":{"command":"a\tb","n":1}}"#,
            r#"{"type":"tool_result","tool_use_id":"c","name":"Bash","content":"out"}"#,
            r#"{"type":"sub_agent_result","session_id":"sub_1","status":"failed","input_tokens":3000000000,"output_tokens":2,"thinking":"t","text":"x"}"#,
            r#"{"type":"async_task_result","task_id":"task_1","exit_code":143,"output":"o"}"#,
            r#"{"type":"assistant_message","text":"hi","tool_calls":[{"name":"Read","id":"r","input":{"path":"p"}},{"name":"X"}]}"#,
            r#"{"type":"context_update","kind":"compact","trigger":"auto"}"#,
            r#"{"type":"sync","id":"s"}"#,
            r#"{"type":"from_the_future"}"#,
            r#"{"type":7}"#,
            r#"["type","text"]"#,
            // As upstream wrote it: no JSON.
            r#"{"type":"tool_call","name":"PlanClear","id":"toolu_raw","input":}"#,
        ];
        let expected = [
            "USER old",
            r#"CALL Bash c {"command":"a\tb","n":1} [("command", "a\tb"), ("n", "1")]"#,
            "RESULT c Bash out",
            "AGENT sub_1 false 3000000000 2 t x",
            "TASK task_1 143 o",
            "TEXT hi",
            r#"CALL Read r {"path":"p"} [("path", "p")]"#,
            "CALL X   []",
        ];
        assert_eq!(replay(&lines), expected);
    }

    #[test]
    fn results_are_cut_at_characters() {
        let result =
            |text: &str| replay(&[&format!(r#"{{"type":"tool_result","content":"{text}"}}"#)]).remove(0);
        assert_eq!(result(&"é".repeat(200)), format!("RESULT   {}", "é".repeat(200)));
        assert_eq!(result(&"🍸".repeat(201)), format!("RESULT   {}...", "🍸".repeat(200)));
    }

    proptest! {
        #[test]
        fn text_is_neither_lost_nor_doubled(lines in prop::collection::vec(prop::sample::select(vec![TEXT_A, THINK, EMPTY, USAGE, STOP, ERROR, NOTIFY, USER, "junk"]), 0..24)) {
            let count = |word: &str, messages: &[String]| messages.iter().map(|shown| shown.matches(word).count()).sum::<usize>();
            let messages = replay(&lines);
            let texts: Vec<String> = messages.iter().filter_map(|shown| shown.strip_prefix("TEXT ").map(str::to_owned)).collect();
            prop_assert_eq!(count("a", &texts), lines.iter().filter(|line| **line == TEXT_A).count());
            for (word, line) in [("ERROR", ERROR), ("NOTIFY", NOTIFY), ("USER", USER)] {
                prop_assert_eq!(count(word, &messages), lines.iter().filter(|other| **other == line).count());
            }
        }

        #[test]
        fn any_bytes_are_taken(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let mut replay = Replay::new();
            let mut out = Vec::new();
            for line in &lines {
                replay.line(line, &mut out);
            }
            replay.finish(&mut out);
            prop_assert!(out.is_empty());
        }
    }
}
