//! The model behind the agent: one trait, four providers (DESIGN, "The model behind it").
//!
//! A request is borrowed pieces; the answer is an iterator of [`ModelEvent`]. Retries happen inside, and say so.

pub mod body;
pub mod catalog;
pub mod error;
pub mod sse;

mod ahead;
mod anthropic;
mod convert;
#[cfg(test)]
mod fixtures;
mod http;
mod images;
mod openai_chat;
mod openai_responses;
mod record;
mod retry;
mod script;
mod stream;
#[cfg(test)]
mod testing;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::runtime::cancel::Cancel;
use crate::session::window::Window;
use crate::wire::message::Usage;

pub use self::body::BodyParts;
pub use self::catalog::Catalog;
pub use self::error::{ErrorKind, ModelError};
pub use self::http::Proxies;
pub use self::retry::RetryPolicy;
pub use self::sse::{Decoder, DecoderOptions, End};
pub use self::stream::Omit;

/// The model that is used at DeepSeek when none is named.
pub const DEEPSEEK_MODEL: &str = "deepseek-chat";

/// A key or token. Shown as `***` wherever it is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the value; blanks and line ends around it are dropped (keys come from files).
    pub fn new(value: &str) -> Self {
        Self(value.trim().to_owned())
    }

    /// The value itself, for the request's header only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A word of the command line that is none of those allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not one of: {allowed}")]
pub struct UnknownWord {
    /// What was given.
    pub word: String,
    /// What would have been right, separated by commas.
    pub allowed: &'static str,
}

/// Makes an enum of words: `as_str`, `FromStr`, `Display`.
macro_rules! words {
    ($name:ident, $allowed:literal, $($variant:ident = $word:literal),+) => {
        impl $name {
            /// The word as typed on the command line and sent to the API.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { word: word.to_owned(), allowed: $allowed }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Which API is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Anthropic Messages.
    Claude,
    /// OpenAI Chat Completions and the servers that speak it.
    OpenAi,
    /// OpenAI Responses.
    Responses,
    /// A cassette: no network, no key.
    Script,
}
words!(
    Provider,
    "claude, openai, responses, script",
    Claude = "claude",
    OpenAi = "openai",
    Responses = "responses",
    Script = "script"
);

impl Provider {
    /// The model that is used when none is named.
    pub fn default_model(self) -> &'static str {
        match self {
            Self::Claude => "claude-sonnet-5-5",
            Self::OpenAi | Self::Responses => "gpt-6-sol",
            Self::Script => "script",
        }
    }

    /// Where DeepSeek speaks this API (`DEEPSEEK_API_KEY`, CONTRACT §13); `None` where it does not.
    pub fn deepseek_base_url(self) -> Option<&'static str> {
        match self {
            Self::Claude => Some("https://api.deepseek.com/anthropic/v1"),
            Self::OpenAi => Some("https://api.deepseek.com/v1"),
            Self::Responses | Self::Script => None,
        }
    }

    /// The vendor's own base URL; empty for `script`.
    pub fn default_base_url(self) -> &'static str {
        match self {
            Self::Claude => "https://api.anthropic.com/v1",
            Self::OpenAi | Self::Responses => "https://api.openai.com/v1",
            Self::Script => "",
        }
    }
}

/// How hard the model thinks (`--effort`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// `low`
    Low,
    /// `medium`
    Medium,
    /// `high`, the default
    #[default]
    High,
    /// `xhigh`
    XHigh,
    /// `max`
    Max,
}
words!(
    Effort,
    "low, medium, high, xhigh, max",
    Low = "low",
    Medium = "medium",
    High = "high",
    XHigh = "xhigh",
    Max = "max"
);

/// Whether the model thinks before it answers (`--thinking`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Thinking {
    /// The model decides how much; the default.
    #[default]
    Adaptive,
    /// With a budget, on the models that know budgets.
    Enabled,
    /// Not at all, as far as the model allows (PROVIDERS).
    Disabled,
}
words!(
    Thinking,
    "adaptive, enabled, disabled",
    Adaptive = "adaptive",
    Enabled = "enabled",
    Disabled = "disabled"
);

/// Everything that a model needs to know, resolved by the configuration. Nothing here reads the environment.
#[derive(Clone)]
pub struct Settings {
    /// Which API.
    pub provider: Provider,
    /// The model's id, as the API knows it.
    pub model: String,
    /// `http://host`, `http://host/v1`, …: a base without a path gets `/v1` (CONTRACT §13).
    pub base_url: String,
    /// `x-api-key` (claude) or bearer token (openai, responses).
    pub key: Option<Secret>,
    /// A bearer token for claude (`ANTHROPIC_AUTH_TOKEN`); goes before `key`.
    pub auth_token: Option<Secret>,
    /// Further request headers; one of the same name replaces ours.
    pub headers: Vec<(String, String)>,
    /// `--effort`
    pub effort: Effort,
    /// `--thinking`
    pub thinking: Thinking,
    /// `--max-tokens`: the longest answer asked for, in tokens.
    pub max_tokens: u64,
    /// Time for a TCP connection and its TLS handshake.
    pub connect_timeout: Duration,
    /// Time without any event after which a stream counts as stalled.
    pub stall_timeout: Duration,
    /// How often and how long is asked again.
    pub retry: RetryPolicy,
    /// Members added to the request body, or put in the place of ours.
    pub extra_body: Option<serde_json::Map<String, serde_json::Value>>,
    /// Whether reasoning goes back with the calls it led to (Chat Completions servers that stream `reasoning_content`).
    pub send_reasoning: bool,
    /// `script`: the cassette; none: the built-in demo.
    pub script_file: Option<PathBuf>,
    /// `--record FILE`: every response is also written there, as a cassette.
    pub record: Option<PathBuf>,
    /// The proxies to go through.
    pub proxies: Proxies,
    /// What is known about models.
    pub catalog: Catalog,
}

impl fmt::Debug for Settings {
    // Headers and extra members may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, model, max_tokens, .. } = self;
        f.debug_struct("Settings")
            .field("provider", provider)
            .field("model", model)
            .field("max_tokens", max_tokens)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// The defaults of the contract for this provider: its own URL and model, no key.
    pub fn new(provider: Provider) -> Self {
        Self {
            provider,
            model: provider.default_model().to_owned(),
            base_url: provider.default_base_url().to_owned(),
            key: None,
            auth_token: None,
            headers: Vec::new(),
            effort: Effort::default(),
            thinking: Thinking::default(),
            max_tokens: 16384,
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(300),
            retry: RetryPolicy::default(),
            extra_body: None,
            send_reasoning: true,
            script_file: None,
            record: None,
            proxies: Proxies::default(),
            catalog: Catalog::builtin(),
        }
    }

    /// What must not be shown: keys, and the values of the user's own headers.
    fn secrets(&self) -> Vec<&str> {
        let keys = self.key.iter().chain(&self.auth_token).map(Secret::expose);
        keys.chain(self.headers.iter().map(|(_, value)| value.as_str()).filter(|value| value.len() >= 8))
            .collect()
    }
}

/// The lines of a conversation, mended (CONTRACT §4): what `session::Window` gives.
pub trait Conversation {
    /// The lines joined by commas, as one stream, and its exact length in bytes.
    fn spliced(&self) -> io::Result<(Box<dyn io::Read + '_>, u64)>;
    /// Gives every line, without its line feed, to `each`, and stops at its first error.
    fn lines(&self, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;
}

impl Conversation for Window {
    fn spliced(&self) -> io::Result<(Box<dyn io::Read + '_>, u64)> {
        Ok((Box::new(Window::spliced(self)), self.len()))
    }

    fn lines(&self, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        Window::lines(self, each)
    }
}

/// One model call: borrowed pieces that become the body.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The system prompt.
    pub system: &'a str,
    /// tools.json: a JSON array on one line, in Anthropic's form.
    pub tools: &'a str,
    /// What has been said.
    pub window: &'a dyn Conversation,
    /// One more user message behind the window, not stored (the summary instruction).
    pub instruction: Option<&'a str>,
    /// The session's directory of images, which user turns may name as `[Image #N]`.
    pub images: Option<&'a Path>,
}

/// One thing that happens while a model answers.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// A piece of the answer. The pieces of one read are joined.
    Text(String),
    /// A piece of thinking.
    Thinking(String),
    /// Ends a thinking block that is signed; the thinking before it may be empty.
    Signature {
        /// As received.
        signature: String,
        /// The item's id (Responses).
        id: Option<String>,
    },
    /// A whole redacted thinking block: its data, as received, never to be shown.
    RedactedThinking(String),
    /// A tool call, complete as far as the response is. It may only run after `Stop`.
    ToolCall {
        /// Letters, digits, `_` and `-` only.
        id: String,
        /// The tool.
        name: String,
        /// As the model wrote it: perhaps empty, perhaps no JSON.
        input: String,
    },
    /// The final figures of the call; once, before `Stop`.
    Usage {
        /// Without what is counted twice elsewhere: `input` excludes cached tokens.
        usage: Usage,
        /// The server gave none and we guessed.
        estimated: bool,
    },
    /// The response is complete; the last event. The provider's own word.
    Stop(String),
    /// Forget what this response has streamed so far: it is asked for again after `wait`.
    Retry {
        /// What the given-up try had reported.
        usage: Option<Usage>,
        /// Why, for people.
        message: String,
        /// How long until the next try.
        wait: Duration,
    },
    /// Something the user should know, once.
    Warning(String),
    /// The call failed for good; the last event.
    Failed(ModelError),
}

/// A model: asks, and streams the answer.
pub trait Model: Send + Sync {
    /// Sends the request when the iterator is first pulled. It ends after `Stop` or `Failed`; when cancelled it just
    /// ends. A name look-up or a connection under way (at most `connect_timeout`) is not interrupted by a cancel.
    fn stream<'a>(
        &'a self,
        request: &'a Request<'a>,
        cancel: &'a Cancel,
    ) -> Box<dyn Iterator<Item = ModelEvent> + 'a>;

    /// The model's id.
    fn name(&self) -> &str;
}

/// Makes the model of these settings. Opens no connection; opens the files of `script_file` and `record`.
pub fn new(settings: Settings) -> Result<Box<dyn Model>, ModelError> {
    let record = settings.record.clone();
    let model: Box<dyn Model> = match settings.provider {
        Provider::Script => Box::new(script::ScriptModel::open(settings)?),
        _ => Box::new(stream::HttpModel::new(settings)?),
    };
    Ok(match record {
        Some(path) => Box::new(record::Recorder::create(model, &path)?),
        None => model,
    })
}

/// The decoder of a provider's stream, without any HTTP (`core sse`).
pub fn decoder(provider: Provider, options: &DecoderOptions) -> Decoder {
    sse::decoder(provider, options)
}

/// The body that a request would have (`core body`). `script` has an empty one.
pub fn body<'a>(settings: &Settings, request: &Request<'a>, omit: &Omit) -> io::Result<BodyParts<'a>> {
    stream::body(settings, request, omit)
}

/// Whether a stop reason says that the answer was cut by a limit: then its calls are not to run (CONTRACT §7).
pub fn is_cut_off(stop: &str) -> bool {
    matches!(
        stop,
        "max_tokens" | "length" | "max_output_tokens" | "incomplete" | "model_context_window_exceeded"
    )
}

/// Whether a stop reason says that the model refused or a filter did (exit 10).
pub fn is_refusal(stop: &str) -> bool {
    matches!(stop, "refusal" | "content_filter")
}
