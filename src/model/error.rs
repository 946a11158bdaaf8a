//! What can go wrong with a model call, in one typed error, and how a server's own words are found in what it sent.

use std::time::Duration;

use super::Provider;
use crate::exit::Exit;
use crate::wire::json;

/// The type of our own error of a stream that gave no event for too long.
const STALLED: &str = "stalled";

/// The kinds of failure that somebody above treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The settings cannot work: a bad URL, a missing key, a cassette that is none.
    Settings,
    /// The API refused the key or the right (401, 403).
    Auth,
    /// 429, 503, 529, or an overload in mid-stream.
    Overloaded,
    /// No connection, a broken or stalled stream, 408, 409 and the other 5xx.
    Network,
    /// The request is longer than the model's context (413, or a 400 that says so).
    ContextTooLong,
    /// The API does not take the thinking blocks of the conversation (a 400 that names them): they can be left out.
    ThinkingRejected,
    /// Any other 4xx: asking again would not help.
    Rejected,
    /// Our own files could not be read.
    Storage,
}

/// A model call that failed for good (retries are behind it).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What to do about it.
    pub kind: ErrorKind,
    /// For people: the server's own words where it had any; never holds a key.
    pub message: String,
    /// The HTTP status, or the one that an error in mid-stream stands for.
    pub status: Option<u16>,
    /// The provider's error type (`overloaded_error`, …), where it gave one.
    pub error_type: Option<String>,
}

impl ModelError {
    /// An error without a status.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, error_type: None }
    }

    /// A stream of `place` that gave no event for `limit`. It is not asked for again: that would last as long once more.
    pub fn stalled(place: &str, limit: Duration) -> Self {
        let message = format!("{place}: no event for {} s, the stream is stalled", limit.as_secs_f32());
        Self { error_type: Some(STALLED.to_owned()), ..Self::new(ErrorKind::Network, message) }
    }

    /// The exit code of a run that ends with it (CONTRACT §13).
    pub fn exit(&self) -> Exit {
        match self.kind {
            ErrorKind::Settings => Exit::Usage,
            ErrorKind::Auth => Exit::Auth,
            ErrorKind::Overloaded => Exit::Overloaded,
            ErrorKind::Network => Exit::Network,
            ErrorKind::ContextTooLong => Exit::ContextTooLong,
            ErrorKind::Storage => Exit::Storage,
            ErrorKind::ThinkingRejected | ErrorKind::Rejected => Exit::Failed,
        }
    }

    /// Whether asking again may help: 408, 409, 429, every 5xx, connections and streams that broke.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            ErrorKind::Overloaded => self.error_type.as_deref() != Some("insufficient_quota"),
            ErrorKind::Network => self.error_type.as_deref() != Some(STALLED),
            _ => false,
        }
    }

    /// An answer with an error status: `body` is what came with it, perhaps cut.
    pub fn from_status(status: u16, body: &[u8]) -> Self {
        let said = Said::find(body);
        let kind = kind_of(status, &said);
        let message = match said.message.as_str() {
            "" => format!("HTTP {status}{}", reason_phrase(status)),
            words => format!("HTTP {status}: {words}"),
        };
        Self { kind, message, status: Some(status), error_type: said.error_type }
    }

    /// An error object inside a stream that had begun with 200 (`data` is the event's JSON).
    pub(super) fn from_event(data: &[u8]) -> Self {
        let said = Said::find(data);
        let status = said.code.or_else(|| said.error_type.as_deref().and_then(status_of_type)).unwrap_or(500);
        let message = match said.message.as_str() {
            "" => "the server reported an error without a message".to_owned(),
            words => words.to_owned(),
        };
        let error_type = said.error_type.clone().or_else(|| said.code.map(|code| code.to_string()));
        Self { kind: kind_of(status, &said), message, status: Some(status), error_type }
    }

    /// The same error with every secret in its text masked: a server may repeat a key that it refuses.
    pub(super) fn redacted(mut self, secrets: &[&str]) -> Self {
        for secret in secrets {
            // Shorter ones are no secrets, but would make holes in any text.
            if secret.len() >= 4 && self.message.contains(secret) {
                self.message = self.message.replace(secret, "***");
            }
        }
        self
    }
}

/// What a user can do about a refusal, to stand behind the server's own words; empty when there is nothing to say.
pub(super) fn hint(provider: Provider, status: u16) -> String {
    let keys = match provider {
        Provider::Claude | Provider::Script => "ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN",
        Provider::OpenAi | Provider::Responses => "OPENAI_API_KEY",
    };
    match status {
        401 => format!("; look at the key ({keys}, --api-key or the provider's key_env)"),
        403 => "; look at the rights of the key and at the model's name (--model)".to_owned(),
        404 => "; look at the model's name (--model) and at the base URL (--base-url)".to_owned(),
        _ => String::new(),
    }
}

/// What a server said in an error body, whatever form it chose.
#[derive(Debug, Default)]
struct Said {
    message: String,
    error_type: Option<String>,
    code: Option<u16>,
}

/// Longest message taken over from a server, in bytes.
const MAX_MESSAGE: usize = 2000;

impl Said {
    fn find(body: &[u8]) -> Self {
        let body = body.trim_ascii();
        let mut said = if body.first() == Some(&b'{') { Self::in_json(body) } else { Self::default() };
        if said.message.is_empty() && said.error_type.is_none() {
            said.message = plain_text(&json::clean(body));
        }
        if said.message.len() > MAX_MESSAGE {
            let cut = (0..=MAX_MESSAGE).rev().find(|&at| said.message.is_char_boundary(at)).unwrap_or(0);
            said.message.truncate(cut);
            said.message.push('…');
        }
        said
    }

    /// `{"error":{"message","type","code"}}`, `{"error":"…"}`, `{"message":…}`, `{"detail":…}`, and a Responses
    /// `{"response":{"error":{…}}}`.
    fn in_json(body: &[u8]) -> Self {
        let response = json::member(body, "response").unwrap_or(body);
        let error = json::member(response, "error").filter(|raw| *raw != b"null").unwrap_or(response);
        if let Some(text) = json::string(error) {
            return Self { message: text.into_owned(), ..Self::default() };
        }
        let text =
            |key: &str| json::member(error, key).and_then(json::string).filter(|text| !text.is_empty());
        let code = json::member(error, "code");
        let numeric = |raw: &[u8]| str::from_utf8(raw).ok()?.parse::<u16>().ok().filter(|code| *code >= 400);
        let word = text("code").filter(|word| word.parse::<u16>().is_err()).map(|word| word.into_owned());
        let kind = text("type").filter(|kind| kind != "error").map(|kind| kind.into_owned());
        Self {
            message: text("message").or_else(|| text("detail")).unwrap_or_default().into_owned(),
            code: code
                .and_then(numeric)
                .or_else(|| text("code").and_then(|code| numeric(code.as_bytes())))
                .or_else(|| json::member(error, "status").and_then(numeric)),
            // A word in `code` says more than the class in `type` (`insufficient_quota`, `context_length_exceeded`).
            error_type: word.or(kind),
        }
    }
}

/// Readable words of a body that is no JSON: an HTML page's title, else its first lines without tags.
fn plain_text(body: &str) -> String {
    let lower = body.to_ascii_lowercase();
    if let (Some(start), Some(end)) = (lower.find("<title>"), lower.find("</title>"))
        && start + 7 <= end
    {
        let title = body[start + 7..end].split_whitespace().collect::<Vec<_>>().join(" ");
        if !title.is_empty() {
            return title;
        }
    }
    let mut text = String::new();
    let mut in_tag = false;
    for c in body.chars().take(MAX_MESSAGE * 4) {
        match c {
            '<' if lower.starts_with('<') => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                text.push(' ');
            }
            _ if in_tag => {}
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn kind_of(status: u16, said: &Said) -> ErrorKind {
    if is_context_error(status, said) {
        return ErrorKind::ContextTooLong;
    }
    match status {
        401 | 403 => ErrorKind::Auth,
        429 | 503 | 529 => ErrorKind::Overloaded,
        408 | 409 | 500..=599 => ErrorKind::Network,
        400 if names_thinking_block(&said.message) => ErrorKind::ThinkingRejected,
        _ => ErrorKind::Rejected,
    }
}

fn is_context_error(status: u16, said: &Said) -> bool {
    if status == 413 || said.error_type.as_deref() == Some("context_length_exceeded") {
        return true;
    }
    let text = said.message.to_ascii_lowercase();
    let phrases = [
        "prompt is too long",
        "maximum context length",
        "exceeds the context window",
        "exceed context limit",
        "exceeds the available context size",
        "context length exceeded",
        "input is too long",
    ];
    matches!(status, 400 | 422 | 500) && phrases.iter().any(|phrase| text.contains(phrase))
}

/// A 400 about a thinking block of the conversation (`messages.3.content.0: Invalid signature in thinking block`), as
/// opposed to one about the request's `thinking` field.
fn names_thinking_block(message: &str) -> bool {
    let text = message.to_ascii_lowercase();
    text.contains("thinking")
        && (text.contains("messages.") || text.contains("signature") || text.contains("block"))
}

/// The HTTP status that an error type of a stream stands for.
fn status_of_type(error_type: &str) -> Option<u16> {
    Some(match error_type {
        "overloaded_error" | "overloaded" | "server_overloaded" => 529,
        "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" => 429,
        "authentication_error" | "invalid_api_key" => 401,
        "permission_error" => 403,
        "not_found_error" | "model_not_found" => 404,
        "request_too_large" | "context_length_exceeded" => 413,
        "invalid_request_error" | "billing_error" | "invalid_prompt" => 400,
        "timeout_error" => 408,
        _ => return None,
    })
}

fn reason_phrase(status: u16) -> &'static str {
    match status {
        400 => " (bad request)",
        401 => " (the key was refused)",
        403 => " (not permitted)",
        404 => " (not found)",
        408 => " (request timeout)",
        413 => " (request too large)",
        429 => " (rate limited)",
        500 => " (internal server error)",
        502 => " (bad gateway)",
        503 => " (service unavailable)",
        504 => " (gateway timeout)",
        529 => " (overloaded)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_words_are_found_in_every_form() {
        let table: [(&str, &str); 9] = [
            (
                r#"{"type":"error","error":{"type":"not_found_error","message":"no model"},"request_id":"r"}"#,
                "no model",
            ),
            (
                r#"{"error":{"code":400,"message":"Expected 'content'","type":"invalid_request_error"}}"#,
                "Expected 'content'",
            ),
            (r#"{"error":"model 'x' not found"}"#, "model 'x' not found"),
            (r#"{"object":"error","message":"vllm says no","code":400}"#, "vllm says no"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            ("upstream connect error\nreset", "upstream connect error reset"),
            ("<html><head><TITLE>502 Bad\n Gateway</TITLE></head><body>x</body></html>", "502 Bad Gateway"),
            ("<p>only <b>tags</b></p>", "only tags"),
            ("2 < 3 is true", "2 < 3 is true"),
        ];
        for (body, words) in table {
            let error = ModelError::from_status(418, body.as_bytes());
            assert_eq!(error.message, format!("HTTP 418: {words}"), "{body}");
        }
        assert_eq!(ModelError::from_status(502, b"").message, "HTTP 502 (bad gateway)");
    }

    #[test]
    fn kinds_and_exit_codes_follow_the_status_and_the_words() {
        let table: [(u16, &str, ErrorKind, Exit, bool); 14] = [
            (401, "{}", ErrorKind::Auth, Exit::Auth, false),
            (403, "{}", ErrorKind::Auth, Exit::Auth, false),
            (404, "{}", ErrorKind::Rejected, Exit::Failed, false),
            (408, "{}", ErrorKind::Network, Exit::Network, true),
            (409, "{}", ErrorKind::Network, Exit::Network, true),
            (413, "{}", ErrorKind::ContextTooLong, Exit::ContextTooLong, false),
            (429, "{}", ErrorKind::Overloaded, Exit::Overloaded, true),
            (
                429,
                r#"{"error":{"code":"insufficient_quota"}}"#,
                ErrorKind::Overloaded,
                Exit::Overloaded,
                false,
            ),
            (500, "x", ErrorKind::Network, Exit::Network, true),
            (503, "x", ErrorKind::Overloaded, Exit::Overloaded, true),
            (529, "x", ErrorKind::Overloaded, Exit::Overloaded, true),
            (
                400,
                r#"{"error":{"message":"prompt is too long: 9 > 8"}}"#,
                ErrorKind::ContextTooLong,
                Exit::ContextTooLong,
                false,
            ),
            (
                400,
                r#"{"error":{"message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#,
                ErrorKind::ThinkingRejected,
                Exit::Failed,
                false,
            ),
            (
                400,
                r#"{"error":{"message":"thinking.type: unknown"}}"#,
                ErrorKind::Rejected,
                Exit::Failed,
                false,
            ),
        ];
        for (status, body, kind, exit, retryable) in table {
            let error = ModelError::from_status(status, body.as_bytes());
            assert_eq!(
                (error.kind, error.exit(), error.is_retryable()),
                (kind, exit, retryable),
                "{status} {body}"
            );
        }
    }

    #[test]
    fn an_error_in_mid_stream_stands_for_a_status() {
        let table: [(&str, u16, Option<&str>, &str); 5] = [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                529,
                Some("overloaded_error"),
                "Overloaded",
            ),
            (
                r#"{"choices":[],"error":{"code":502,"message":"bad upstream"}}"#,
                502,
                Some("502"),
                "bad upstream",
            ),
            (
                r#"{"type":"error","code":"rate_limit_exceeded","message":"slow down"}"#,
                429,
                Some("rate_limit_exceeded"),
                "slow down",
            ),
            (
                r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"oops"}}}"#,
                500,
                Some("server_error"),
                "oops",
            ),
            (r#"{"error":{"message":"x","code":"503"}}"#, 503, Some("503"), "x"),
        ];
        for (data, status, error_type, message) in table {
            let error = ModelError::from_event(data.as_bytes());
            assert_eq!(
                (error.status, error.error_type.as_deref(), error.message.as_str()),
                (Some(status), error_type, message)
            );
            assert!(error.is_retryable(), "{data}");
        }
    }

    #[test]
    fn a_key_that_the_server_repeats_is_masked() {
        let error =
            ModelError::from_status(401, br#"{"error":{"message":"Incorrect API key: sk-very-secret."}}"#);
        assert_eq!(error.redacted(&["", "sk-very-secret"]).message, "HTTP 401: Incorrect API key: ***.");
    }
}
