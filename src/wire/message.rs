//! Typed messages: what the fields of each RESP frame mean (CONTRACT §3). The only place that knows field orders.

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
