//! Typed messages: what the fields of each RESP frame mean (CONTRACT §3). The only place that knows field orders.

use std::borrow::Cow;

use super::{json, resp};

/// The four token figures of one model call (or of a sum of calls), the same meaning for every provider:
/// `input` does not include what came from or went to the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read at full price.
    pub input: u64,
    /// Tokens written by the model.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_creation: u64,
}

/// Where a frame travels: the same message can have another field order elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// `input.fifo`.
    Input,
    /// `notify.fifo`.
    Notify,
    /// `notify.buf`.
    Buffer,
    /// Between model, turn and display.
    Display,
}

/// What a sub-agent did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentResult {
    /// The child's session, `sub_…`.
    pub session_id: String,
    /// `ok` or `failed`.
    pub ok: bool,
    /// Its last thinking.
    pub thinking: String,
    /// Its last text, or the error.
    pub text: String,
    /// Its tokens. On `Buffer` and `Display` only input and output travel.
    pub usage: Usage,
    /// Its model calls. Travels on `Notify` only.
    pub requests: u64,
}

/// One message of the wire. Strings are clean UTF-8: what enters is cleaned (CONTRACT §4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A user's input.
    UserInput {
        /// Always `0` today.
        seq: String,
        /// The text.
        content: String,
    },
    /// notify.buf holds something and nobody is in a turn.
    NotifyPending,
    /// End the session after the turn, with this exit code.
    SessionEnd {
        /// The code asked for.
        code: Option<u8>,
    },
    /// End the running turn.
    Interrupt,
    /// A sub-agent's result.
    AgentResult(AgentResult),
    /// A background task's result.
    AsyncTaskResult {
        /// `task_…`.
        task_id: String,
        /// The command's exit code, 128 + n for a signal.
        exit_code: i32,
        /// What it printed, cut as §11.
        output: String,
    },
    /// The user steers a running turn.
    UserNotify {
        /// The text.
        text: String,
    },
    /// A piece of the answer.
    Text {
        /// The text.
        content: String,
    },
    /// A piece of thinking.
    Thinking {
        /// The text.
        content: String,
    },
    /// Ends a thinking block that was signed (ours; model → turn only).
    Signature {
        /// As received.
        signature: String,
        /// The item's id (Responses).
        id: Option<String>,
    },
    /// A redacted thinking block (ours; model → turn only, never displayed).
    RedactedThinking {
        /// As received.
        data: String,
    },
    /// The model calls a tool.
    ToolCall {
        /// The tool.
        name: String,
        /// The call's id.
        id: String,
        /// Raw JSON object, as the model wrote it.
        input: String,
        /// Top-level members of `input`: strings decoded, other values as JSON.
        members: Vec<(String, String)>,
    },
    /// What the tool gave.
    ToolResult {
        /// The call's id.
        tool_use_id: String,
        /// The tool.
        name: String,
        /// As displayed.
        content: String,
        /// `checklist` and `summary` of TodoWrite.
        todo: Option<Todo>,
    },
    /// Figures of one model call.
    Usage(Usage),
    /// The response ended.
    Stop {
        /// The provider's word, or ours (CONTRACT §5).
        reason: String,
    },
    /// Something failed.
    Error {
        /// For people.
        message: String,
        /// The provider's error type, where known (ours; model → turn only).
        kind: Option<String>,
    },
    /// Forget what this response has streamed so far.
    Retry,
    /// The window changed.
    ContextUpdate {
        /// `compact`.
        kind: String,
        /// `auto`, `plan_confirm`, `plan_clear`, `manual`.
        trigger: String,
    },
    /// A user's input, in replay.
    UserMessage {
        /// The text.
        content: String,
    },
    /// Images of a user's input, in replay.
    ImageDescribe {
        /// Their names.
        images: String,
        /// What they show.
        description: String,
    },
}

/// The extra pairs of TodoWrite's TOOL_RESULT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Todo {
    /// `- [x] …` lines.
    pub checklist: String,
    /// `completed/total`.
    pub summary: String,
}

/// Why the fields of a frame are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// No message of this name travels here. The name may be of any length and hold anything.
    #[error("unknown message `{}`", shortened(.0))]
    Unknown(String),
    /// Too few or too many fields.
    #[error("{name} with {count} fields")]
    Count {
        /// The message.
        name: &'static str,
        /// Its fields, the name not counted.
        count: usize,
    },
    /// A field that is no number, or one out of range.
    #[error("{name}: {field} is `{}`, not a number in range", shortened(.value))]
    Number {
        /// The message.
        name: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: String,
    },
    /// A status that is neither `ok` nor `failed`.
    #[error("AGENT_RESULT: status is `{}`, neither ok nor failed", shortened(.0))]
    Status(String),
}

/// The first part of a foreign value, for an error message.
fn shortened(value: &str) -> String {
    let mut short: String = value.chars().take(80).collect();
    if short.len() < value.len() {
        short.push_str("...");
    }
    short
}

/// Members of a TOOL_CALL that still fit beside its name, tool name, id and input.
const MAX_MEMBERS: usize = (resp::MAX_FIELDS - 4) / 2;

/// The fields of one message, taken apart by name.
struct Fields<'a, F> {
    name: &'static str,
    /// Without the name.
    rest: &'a [F],
}

impl<F: AsRef<[u8]>> Fields<'_, F> {
    fn text(&self, index: usize) -> String {
        self.optional(index).unwrap_or_default()
    }

    fn optional(&self, index: usize) -> Option<String> {
        self.rest.get(index).map(|field| json::clean(field.as_ref()).into_owned())
    }

    fn number<N: std::str::FromStr>(&self, index: usize, field: &'static str) -> Result<N, MessageError> {
        let value = self.text(index);
        // `parse` alone would also take a sign.
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let parsed = if digits { value.parse().ok() } else { None };
        parsed.ok_or(MessageError::Number { name: self.name, field, value })
    }

    fn ok(&self, index: usize) -> Result<bool, MessageError> {
        match self.rest.get(index).map(AsRef::as_ref) {
            Some(b"ok") => Ok(true),
            Some(b"failed") => Ok(false),
            _ => Err(MessageError::Status(self.text(index))),
        }
    }

    /// Name and value by turns, from `index` on.
    fn pairs(&self, index: usize) -> impl Iterator<Item = (String, String)> {
        (index..self.rest.len()).step_by(2).map(|at| (self.text(at), self.text(at + 1)))
    }

    fn usage(&self, [input, output, cache_read, cache_creation]: [usize; 4]) -> Result<Usage, MessageError> {
        Ok(Usage {
            input: self.number(input, "input")?,
            output: self.number(output, "output")?,
            cache_read: self.number(cache_read, "cache_read")?,
            cache_creation: self.number(cache_creation, "cache_creation")?,
        })
    }
}

/// Every message name, where it travels, and how many fields may follow it.
const NAMES: &[(&str, &[Channel], std::ops::RangeInclusive<usize>)] = {
    use Channel::{Buffer, Display, Input, Notify};
    const RESULT: &[Channel] = &[Notify, Buffer, Display];
    &[
        // The two that come in thousands are found first.
        ("TEXT", &[Display], 1..=1),
        ("THINKING", &[Display], 1..=1),
        ("USER_INPUT", &[Input], 1..=2),
        ("NOTIFY_PENDING", &[Input], 0..=0),
        ("SESSION_END", &[Input], 0..=1),
        ("INTERRUPT", &[Input], 0..=0),
        ("AGENT_RESULT", RESULT, 6..=9),
        ("ASYNC_TASK_RESULT", RESULT, 3..=3),
        ("USER_NOTIFY", RESULT, 1..=1),
        ("SIGNATURE", &[Display], 1..=2),
        ("REDACTED_THINKING", &[Display], 1..=1),
        ("TOOL_CALL", &[Display], 3..=resp::MAX_FIELDS - 1),
        ("TOOL_RESULT", &[Display], 3..=resp::MAX_FIELDS - 1),
        // A fifth field, `estimated`, marks figures that a filter guessed.
        ("USAGE", &[Display], 4..=5),
        ("STOP", &[Display], 1..=1),
        ("ERROR", &[Display], 1..=2),
        ("RETRY", &[Display], 0..=0),
        ("CONTEXT_UPDATE", &[Display], 2..=2),
        ("USER_MESSAGE", &[Display], 1..=1),
        ("IMAGE_DESCRIBE", &[Display], 2..=2),
    ]
};

impl Message {
    /// The message that these fields (the name first) are on `channel`. Texts are cleaned; numbers must be plain
    /// decimals in range. Fails for names that do not travel there, wrong field counts and values out of range.
    pub fn from_fields(channel: Channel, fields: &[impl AsRef<[u8]>]) -> Result<Message, MessageError> {
        let (name, rest) = match fields {
            [name, rest @ ..] => (name.as_ref(), rest),
            [] => (&b""[..], fields),
        };
        let unknown = || MessageError::Unknown(json::clean(name).into_owned());
        let (name, _, counts) = NAMES
            .iter()
            .find(|(known, channels, _)| known.as_bytes() == name && channels.contains(&channel))
            .ok_or_else(unknown)?;
        if !counts.contains(&rest.len()) {
            return Err(MessageError::Count { name, count: rest.len() });
        }
        let fields = Fields { name, rest };
        Ok(match *name {
            "TEXT" => Message::Text { content: fields.text(0) },
            "THINKING" => Message::Thinking { content: fields.text(0) },
            "USER_INPUT" if rest.len() == 1 => {
                Message::UserInput { seq: "0".to_owned(), content: fields.text(0) }
            }
            "USER_INPUT" => Message::UserInput { seq: fields.text(0), content: fields.text(1) },
            "NOTIFY_PENDING" => Message::NotifyPending,
            "SESSION_END" if rest.is_empty() => Message::SessionEnd { code: None },
            "SESSION_END" => Message::SessionEnd { code: Some(fields.number(0, "exit code")?) },
            "INTERRUPT" => Message::Interrupt,
            "AGENT_RESULT" => Message::AgentResult(agent_result(channel, &fields)?),
            "ASYNC_TASK_RESULT" => Message::AsyncTaskResult {
                task_id: fields.text(0),
                exit_code: fields.number(1, "exit_code")?,
                output: fields.text(2),
            },
            "USER_NOTIFY" => Message::UserNotify { text: fields.text(0) },
            "SIGNATURE" => Message::Signature { signature: fields.text(0), id: fields.optional(1) },
            "REDACTED_THINKING" => Message::RedactedThinking { data: fields.text(0) },
            "TOOL_CALL" => tool_call(&fields)?,
            "TOOL_RESULT" => tool_result(&fields)?,
            "USAGE" => Message::Usage(fields.usage([0, 1, 2, 3])?),
            "STOP" => Message::Stop { reason: fields.text(0) },
            "ERROR" => Message::Error { message: fields.text(0), kind: fields.optional(1) },
            "RETRY" => Message::Retry,
            "CONTEXT_UPDATE" => Message::ContextUpdate { kind: fields.text(0), trigger: fields.text(1) },
            "USER_MESSAGE" => Message::UserMessage { content: fields.text(0) },
            "IMAGE_DESCRIBE" => {
                Message::ImageDescribe { images: fields.text(0), description: fields.text(1) }
            }
            _ => return Err(unknown()),
        })
    }

    /// A tool call with its members taken from `input` (a raw JSON object): strings decoded, other values as JSON.
    /// Members that one frame cannot hold are left out; `input` holds them all.
    pub fn tool_call(name: String, id: String, input: String) -> Message {
        let members = json::members(input.as_bytes()).unwrap_or_default();
        let value = |raw| json::string(raw).unwrap_or_else(|| json::clean(raw)).into_owned();
        let members =
            members.into_iter().take(MAX_MEMBERS).map(|(key, raw)| (key.into_owned(), value(raw))).collect();
        Message::ToolCall { name, id, input, members }
    }

    /// The fields of the message on `channel`, the name first: at most `resp::MAX_FIELDS`.
    pub fn fields(&self, channel: Channel) -> Vec<Cow<'_, [u8]>> {
        let mut fields = Vec::with_capacity(8);
        match self {
            Message::UserInput { seq, content } => texts(&mut fields, &["USER_INPUT", seq, content]),
            Message::NotifyPending => texts(&mut fields, &["NOTIFY_PENDING"]),
            Message::SessionEnd { code } => {
                texts(&mut fields, &["SESSION_END"]);
                numbers(&mut fields, code.map(u64::from));
            }
            Message::Interrupt => texts(&mut fields, &["INTERRUPT"]),
            Message::AgentResult(result) => result.fields(channel, &mut fields),
            Message::AsyncTaskResult { task_id, exit_code, output } => {
                texts(&mut fields, &["ASYNC_TASK_RESULT", task_id]);
                fields.push(exit_code.to_string().into_bytes().into());
                texts(&mut fields, &[output]);
            }
            Message::UserNotify { text } => texts(&mut fields, &["USER_NOTIFY", text]),
            Message::Text { content } => texts(&mut fields, &["TEXT", content]),
            Message::Thinking { content } => texts(&mut fields, &["THINKING", content]),
            Message::Signature { signature, id } => {
                texts(&mut fields, &["SIGNATURE", signature]);
                texts(&mut fields, id.as_deref().as_slice());
            }
            Message::RedactedThinking { data } => texts(&mut fields, &["REDACTED_THINKING", data]),
            Message::ToolCall { name, id, input, members } => {
                texts(&mut fields, &["TOOL_CALL", name, id, input]);
                for (key, value) in members.iter().take(MAX_MEMBERS) {
                    texts(&mut fields, &[key, value]);
                }
            }
            Message::ToolResult { tool_use_id, name, content, todo } => {
                texts(&mut fields, &["TOOL_RESULT", tool_use_id, name, content]);
                if let Some(Todo { checklist, summary }) = todo {
                    texts(&mut fields, &["checklist", checklist, "summary", summary]);
                }
            }
            Message::Usage(usage) => {
                texts(&mut fields, &["USAGE"]);
                numbers(&mut fields, [usage.input, usage.output, usage.cache_read, usage.cache_creation]);
            }
            Message::Stop { reason } => texts(&mut fields, &["STOP", reason]),
            Message::Error { message, kind } => {
                texts(&mut fields, &["ERROR", message]);
                texts(&mut fields, kind.as_deref().as_slice());
            }
            Message::Retry => texts(&mut fields, &["RETRY"]),
            Message::ContextUpdate { kind, trigger } => {
                texts(&mut fields, &["CONTEXT_UPDATE", kind, trigger])
            }
            Message::UserMessage { content } => texts(&mut fields, &["USER_MESSAGE", content]),
            Message::ImageDescribe { images, description } => {
                texts(&mut fields, &["IMAGE_DESCRIBE", images, description]);
            }
        }
        fields
    }

    /// Appends the message as one RESP frame.
    pub fn encode(&self, channel: Channel, out: &mut Vec<u8>) {
        match self {
            // The two that come in thousands need no list of fields.
            Message::Text { content } => resp::encode(&["TEXT", content], out),
            Message::Thinking { content } => resp::encode(&["THINKING", content], out),
            _ => resp::encode(&self.fields(channel), out),
        }
    }
}

impl AgentResult {
    fn fields<'a>(&'a self, channel: Channel, fields: &mut Vec<Cow<'a, [u8]>>) {
        let Usage { input, output, cache_read, cache_creation } = self.usage;
        texts(fields, &["AGENT_RESULT", &self.session_id, if self.ok { "ok" } else { "failed" }]);
        if channel == Channel::Notify {
            texts(fields, &[&self.thinking, &self.text]);
            numbers(fields, [input, output, cache_read, cache_creation, self.requests]);
        } else {
            numbers(fields, [input, output]);
            texts(fields, &[&self.thinking, &self.text]);
        }
    }
}

fn texts<'a>(fields: &mut Vec<Cow<'a, [u8]>>, list: &[&'a str]) {
    fields.extend(list.iter().map(|text| Cow::Borrowed(text.as_bytes())));
}

fn numbers(fields: &mut Vec<Cow<'_, [u8]>>, list: impl IntoIterator<Item = u64>) {
    fields.extend(list.into_iter().map(|number| Cow::Owned(number.to_string().into_bytes())));
}

/// The two field orders of AGENT_RESULT: all figures last on notify.fifo, input and output first elsewhere.
fn agent_result(
    channel: Channel,
    fields: &Fields<'_, impl AsRef<[u8]>>,
) -> Result<AgentResult, MessageError> {
    let count = fields.rest.len();
    let (session_id, ok) = (fields.text(0), fields.ok(1));
    match (channel, count) {
        (Channel::Notify, 9) => Ok(AgentResult {
            session_id,
            ok: ok?,
            thinking: fields.text(2),
            text: fields.text(3),
            usage: fields.usage([4, 5, 6, 7])?,
            requests: fields.number(8, "requests")?,
        }),
        (Channel::Buffer | Channel::Display, 6) => Ok(AgentResult {
            session_id,
            ok: ok?,
            usage: Usage {
                input: fields.number(2, "input")?,
                output: fields.number(3, "output")?,
                ..Usage::default()
            },
            thinking: fields.text(4),
            text: fields.text(5),
            requests: 0,
        }),
        _ => Err(MessageError::Count { name: fields.name, count }),
    }
}

fn tool_call(fields: &Fields<'_, impl AsRef<[u8]>>) -> Result<Message, MessageError> {
    let count = fields.rest.len();
    if count.is_multiple_of(2) {
        return Err(MessageError::Count { name: fields.name, count });
    }
    let [name, id, input] = [0, 1, 2].map(|index| fields.text(index));
    Ok(Message::ToolCall { name, id, input, members: fields.pairs(3).collect() })
}

/// Pairs with other names are left out: a later version may send more.
fn tool_result(fields: &Fields<'_, impl AsRef<[u8]>>) -> Result<Message, MessageError> {
    let count = fields.rest.len();
    if count.is_multiple_of(2) {
        return Err(MessageError::Count { name: fields.name, count });
    }
    let (mut checklist, mut summary) = (None, None);
    for (name, value) in fields.pairs(3) {
        match name.as_str() {
            "checklist" => checklist = Some(value),
            "summary" => summary = Some(value),
            _ => {}
        }
    }
    let todo = (checklist.is_some() || summary.is_some())
        .then(|| Todo { checklist: checklist.unwrap_or_default(), summary: summary.unwrap_or_default() });
    let [tool_use_id, name, content] = [0, 1, 2].map(|index| fields.text(index));
    Ok(Message::ToolResult { tool_use_id, name, content, todo })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn from(channel: Channel, fields: &[&str]) -> Result<Message, MessageError> {
        Message::from_fields(channel, fields)
    }

    #[test]
    fn user_input_has_two_forms() {
        let message = Message::UserInput { seq: "0".to_owned(), content: "hi".to_owned() };
        assert_eq!(from(Channel::Input, &["USER_INPUT", "0", "hi"]), Ok(message.clone()));
        assert_eq!(from(Channel::Input, &["USER_INPUT", "hi"]), Ok(message.clone()));
        assert_eq!(message.fields(Channel::Input), [&b"USER_INPUT"[..], b"0", b"hi"]);
    }

    #[test]
    fn agent_results_change_their_order_between_channels() {
        let on_notify = ["AGENT_RESULT", "sub_1", "failed", "hm", "out", "1", "2", "3", "4", "5"];
        let message = from(Channel::Notify, &on_notify).unwrap();
        let Message::AgentResult(result) = &message else { panic!("{message:?}") };
        assert_eq!(result.usage, Usage { input: 1, output: 2, cache_read: 3, cache_creation: 4 });
        assert_eq!((result.requests, result.ok), (5, false));
        assert_eq!(message.fields(Channel::Notify), on_notify.map(str::as_bytes));
        let in_buffer = ["AGENT_RESULT", "sub_1", "failed", "1", "2", "hm", "out"];
        assert_eq!(message.fields(Channel::Buffer), in_buffer.map(str::as_bytes));
        assert_eq!(message.fields(Channel::Display), in_buffer.map(str::as_bytes));
        let read = from(Channel::Buffer, &in_buffer).unwrap();
        assert_eq!(read.fields(Channel::Buffer), in_buffer.map(str::as_bytes));
    }

    #[test]
    fn errors_name_the_value() {
        let number =
            |value| from(Channel::Notify, &["ASYNC_TASK_RESULT", "t", value, "out"]).unwrap_err().to_string();
        for value in ["", "x", "-1", "+1", "2147483648", "1.0", " 1"] {
            assert_eq!(
                number(value),
                format!("ASYNC_TASK_RESULT: exit_code is `{value}`, not a number in range")
            );
        }
        assert!(from(Channel::Notify, &["ASYNC_TASK_RESULT", "t", "2147483647", ""]).is_ok());
        let usage = |value| from(Channel::Display, &["USAGE", "1", "1", "1", value]);
        assert!(usage("18446744073709551615").is_ok());
        assert!(usage("18446744073709551616").unwrap_err().to_string().contains("`18446744073709551616`"));
        assert_eq!(
            from(Channel::Input, &["SESSION_END", "256"]).unwrap_err().to_string(),
            "SESSION_END: exit code is `256`, not a number in range"
        );
        assert_eq!(
            from(Channel::Buffer, &["AGENT_RESULT", "s", "done", "1", "1", "", ""]),
            Err(MessageError::Status("done".to_owned()))
        );
    }

    #[test]
    fn messages_of_other_channels_are_unknown() {
        for (channel, fields) in [
            (Channel::Input, &["TEXT", "x"][..]),
            (Channel::Notify, &["USER_INPUT", "x"]),
            (Channel::Buffer, &["INTERRUPT"]),
            (Channel::Display, &["NOTIFY_PENDING"]),
            (Channel::Input, &["", "x"]),
            (Channel::Input, &[]),
        ] {
            assert!(matches!(from(channel, fields), Err(MessageError::Unknown(_))), "{fields:?}");
        }
        let long = MessageError::Unknown("N".repeat(10_000));
        assert!(long.to_string().len() < 200);
    }

    #[test]
    fn field_counts_are_checked() {
        for fields in [
            &["TEXT"][..],
            &["TEXT", "a", "b"],
            &["RETRY", "x"],
            &["USAGE", "1"],
            &["TOOL_CALL", "a", "b", "{}", "k"],
            &["TOOL_RESULT", "a", "b"],
            &["ERROR"],
        ] {
            let error = from(Channel::Display, fields).unwrap_err();
            assert_eq!(error.to_string(), format!("{} with {} fields", fields[0], fields.len() - 1));
        }
    }

    #[test]
    fn a_tool_call_carries_its_members_as_far_as_they_fit() {
        let call = |input: &str| Message::tool_call("Bash".to_owned(), "c1".to_owned(), input.to_owned());
        let message = call(r#"{"command":"a\n\u00e9","timeout": 5,"x":[1, 2]}"#);
        let expected: [&[u8]; 10] = [
            b"TOOL_CALL",
            b"Bash",
            b"c1",
            br#"{"command":"a\n\u00e9","timeout": 5,"x":[1, 2]}"#,
            b"command",
            "a\né".as_bytes(),
            b"timeout",
            b"5",
            b"x",
            b"[1, 2]",
        ];
        assert_eq!(message.fields(Channel::Display), expected);
        let many: Vec<String> = (0..100).map(|index| format!("\"k{index}\":{index}")).collect();
        let fields = call(&format!("{{{}}}", many.join(","))).fields(Channel::Display).len();
        assert_eq!(fields, resp::MAX_FIELDS);
    }

    #[test]
    fn what_enters_is_cleaned() {
        let message = Message::from_fields(Channel::Display, &[&b"TEXT"[..], b"a\xf0b\0"]).unwrap();
        assert_eq!(message, Message::Text { content: "a\u{FFFD}b\u{FFFD}".to_owned() });
    }

    fn text() -> impl Strategy<Value = String> {
        any::<String>().prop_map(|text| text.replace('\0', ""))
    }

    fn usage() -> impl Strategy<Value = Usage> {
        any::<[u64; 4]>().prop_map(|[input, output, cache_read, cache_creation]| Usage {
            input,
            output,
            cache_read,
            cache_creation,
        })
    }

    /// Every kind of message that travels on the display channel.
    fn displayed() -> impl Strategy<Value = Message> {
        let todo =
            prop::option::of((text(), text()).prop_map(|(checklist, summary)| Todo { checklist, summary }));
        let members = prop::collection::vec((text(), text()), 0..=MAX_MEMBERS);
        prop_oneof![
            text().prop_map(|content| Message::Text { content }),
            text().prop_map(|content| Message::Thinking { content }),
            (text(), prop::option::of(text()))
                .prop_map(|(signature, id)| Message::Signature { signature, id }),
            text().prop_map(|data| Message::RedactedThinking { data }),
            (text(), text(), text(), members).prop_map(|(name, id, input, members)| Message::ToolCall {
                name,
                id,
                input,
                members
            }),
            (text(), text(), text(), todo).prop_map(|(tool_use_id, name, content, todo)| {
                Message::ToolResult { tool_use_id, name, content, todo }
            }),
            usage().prop_map(Message::Usage),
            text().prop_map(|reason| Message::Stop { reason }),
            (text(), prop::option::of(text())).prop_map(|(message, kind)| Message::Error { message, kind }),
            Just(Message::Retry),
            (text(), text()).prop_map(|(kind, trigger)| Message::ContextUpdate { kind, trigger }),
            text().prop_map(|content| Message::UserMessage { content }),
            (text(), text()).prop_map(|(images, description)| Message::ImageDescribe { images, description }),
            (text(), 0..=i32::MAX, text()).prop_map(|(task_id, exit_code, output)| {
                Message::AsyncTaskResult { task_id, exit_code, output }
            }),
            text().prop_map(|text| Message::UserNotify { text }),
        ]
    }

    fn round_trip(message: &Message, channel: Channel) -> Message {
        let mut frame = Vec::new();
        message.encode(channel, &mut frame);
        assert_eq!(resp::measure(&frame), resp::Measure::Complete(frame.len()));
        Message::from_fields(channel, &resp::fields(&frame).unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn display_messages_come_back(message in displayed()) {
            prop_assert_eq!(round_trip(&message, Channel::Display), message);
        }

        #[test]
        fn inputs_and_results_come_back(text in text(), ok in any::<bool>(), usage in usage(), requests in any::<u64>(), code in any::<Option<u8>>()) {
            let input = Message::UserInput { seq: "0".to_owned(), content: text.clone() };
            prop_assert_eq!(round_trip(&input, Channel::Input), input);
            for message in [Message::NotifyPending, Message::Interrupt, Message::SessionEnd { code }] {
                prop_assert_eq!(round_trip(&message, Channel::Input), message);
            }
            let result = Message::AgentResult(AgentResult { session_id: "sub_1".to_owned(), ok, thinking: text.clone(), text, usage, requests });
            prop_assert_eq!(round_trip(&result, Channel::Notify), result);
        }

        #[test]
        fn any_fields_are_a_message_or_an_error(name in 0..NAMES.len(), rest in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..8), 0..12)) {
            let mut fields = vec![NAMES[name].0.as_bytes().to_vec()];
            fields.extend(rest);
            for channel in [Channel::Input, Channel::Notify, Channel::Buffer, Channel::Display] {
                if let Ok(message) = Message::from_fields(channel, &fields) {
                    prop_assert_eq!(round_trip(&message, channel), message);
                }
            }
        }
    }
}
