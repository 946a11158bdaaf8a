//! What the model answers, as a small text: one thing a line.
//!
//! ```text
//! thinking "Let me " "think."      a thinking block in two deltas
//! signature c2lnbmVk               signs the thinking block before it
//! redacted b3BhcXVl                a redacted_thinking block
//! text "Hel" @go "lo"              a text block; the stream waits before "lo" until `go` is released
//! text Hello, world                one delta: the rest of the line
//! text "Hel" !                     the block stays open (then `cut`, `end` or `error`)
//! repeat 100000 "word "            a text block of that many equal deltas
//! tool Bash toolu_1 {"command":"true"}     input in one delta
//! tool Bash toolu_1 "{\"com" "mand\":1}"   input in pieces, valid or not; none at all is allowed
//! usage 100 20 40 7                input, output, cache read, cache creation (default 5010 5 0 0); `usage none`
//! stop max_tokens                  Anthropic's word, translated for the others (default: tool_use or end_turn)
//! wait NAME                        hold the stream here until NAME is released
//! cut                              break the connection here
//! end                              end the body here, cleanly, with no stop
//! error overloaded_error Busy      an error in the stream, then the end; with `status`: the body of that answer
//! status 429                       an answer that is no stream
//! header Retry-After: 1
//! type text/plain                  the Content-Type; `type none` sends none
//! body {"x":1}                     the whole body, as it is, or a JSON string
//! raw "data: x\n\n"                bytes into the stream, as they are
//! comment warming up               an SSE comment
//! ping                             Anthropic's ping event; a comment in the others
//! eol crlf                         line ends of the stream: lf, crlf, cr
//! split 1                          the stream in pieces of that many bytes
//! no-space                         `data:{…}` without the blank
//! no-done                          Chat without `[DONE]`
//! gzip                             the stream gzipped, whoever asked for it
//! ```
//! Empty lines and lines that begin with `#` are skipped.

use std::str::FromStr;

/// Token figures of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read at full price.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_creation: u64,
}

/// One piece of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Streamed as one delta.
    Piece(String),
    /// As many equal deltas.
    Repeat(usize, String),
    /// The stream waits for this name.
    Gate(String),
    /// The block is not closed.
    Open,
}

/// One line of an answer that makes bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A thinking block, and its signature.
    Thinking(Vec<Delta>, Option<String>),
    /// A redacted_thinking block.
    Redacted(String),
    /// A text block.
    Text(Vec<Delta>),
    /// A tool call; its input in pieces.
    Tool {
        /// The tool.
        name: String,
        /// The call.
        id: String,
        /// The input's text, piece by piece.
        input: Vec<Delta>,
    },
    /// The end of a whole response.
    Stop(String),
    /// An error in the stream, which ends then.
    Error {
        /// The provider's word.
        kind: String,
        /// For people.
        message: String,
    },
    /// The stream waits for this name.
    Gate(String),
    /// The connection breaks.
    Cut,
    /// The body ends cleanly, without a stop.
    End,
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// An SSE comment.
    Comment(String),
    /// A keep-alive.
    Ping,
}

/// One answer to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status. 200 streams `steps`, any other sends `body`.
    pub status: u16,
    /// More headers.
    pub headers: Vec<(String, String)>,
    /// The Content-Type; `None` = the usual one, `Some("")` = none at all.
    pub content_type: Option<String>,
    /// A body as it is.
    pub body: Option<Vec<u8>>,
    /// What is streamed, in order.
    pub steps: Vec<Step>,
    /// The figures; `None` = the provider reports none.
    pub usage: Option<Usage>,
    /// How the lines of the stream end.
    pub eol: &'static str,
    /// Size of the pieces; `None` = one event a piece.
    pub split: Option<usize>,
    /// `data: x` or `data:x`.
    pub space: bool,
    /// Whether Chat ends with `[DONE]`.
    pub done: bool,
    /// The stream is gzipped.
    pub gzip: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            status: 200,
            headers: Vec::new(),
            content_type: None,
            body: None,
            steps: Vec::new(),
            usage: Some(Usage { input: 5010, output: 5, cache_read: 0, cache_creation: 0 }),
            eol: "\n",
            split: None,
            space: true,
            done: true,
            gzip: false,
        }
    }
}

/// A line that is no answer line.
#[derive(Debug)]
pub struct BadLine(String);

impl std::fmt::Display for BadLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not an answer line: {}", self.0)
    }
}

impl std::error::Error for BadLine {}

impl FromStr for Answer {
    type Err = BadLine;

    fn from_str(text: &str) -> Result<Self, BadLine> {
        let mut answer = Self::default();
        for line in
            text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            answer.line(line).ok_or_else(|| BadLine(line.to_owned()))?;
        }
        if answer.status == 200 && answer.body.is_none() {
            answer.close();
        }
        Ok(answer)
    }
}

impl Answer {
    /// An answer that holds one text.
    pub fn text(text: &str) -> Self {
        let mut answer =
            Self { steps: vec![Step::Text(vec![Delta::Piece(text.to_owned())])], ..Self::default() };
        answer.close();
        answer
    }

    /// Adds the stop that an answer has unless it says how it ends.
    fn close(&mut self) {
        let ends = |step: &Step| matches!(step, Step::Stop(_) | Step::Cut | Step::End | Step::Error { .. });
        if !self.steps.iter().any(ends) {
            let calls = self.steps.iter().any(|step| matches!(step, Step::Tool { .. }));
            self.steps.push(Step::Stop(if calls { "tool_use" } else { "end_turn" }.to_owned()));
        }
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "thinking" => self.steps.push(Step::Thinking(deltas(rest)?, None)),
            "signature" => {
                let Some(Step::Thinking(_, signature)) = self.steps.last_mut() else { return None };
                *signature = Some(rest.to_owned());
            }
            "redacted" => self.steps.push(Step::Redacted(rest.to_owned())),
            "text" => self.steps.push(Step::Text(deltas(rest)?)),
            "repeat" => {
                let (count, text) = rest.split_once(' ')?;
                let text = serde_json::from_str(text).ok()?;
                self.steps.push(Step::Text(vec![Delta::Repeat(count.parse().ok()?, text)]));
            }
            "tool" => self.steps.push(tool(rest)?),
            "usage" => self.usage = usage(rest)?,
            "stop" => self.steps.push(Step::Stop(rest.to_owned())),
            "error" => {
                let (kind, message) = rest.split_once(' ')?;
                self.steps.push(Step::Error { kind: kind.to_owned(), message: message.to_owned() });
            }
            "wait" => self.steps.push(Step::Gate(rest.to_owned())),
            "cut" => self.steps.push(Step::Cut),
            "end" => self.steps.push(Step::End),
            "raw" => self.steps.push(Step::Raw(serde_json::from_str::<String>(rest).ok()?.into_bytes())),
            "comment" => self.steps.push(Step::Comment(rest.to_owned())),
            "ping" => self.steps.push(Step::Ping),
            _ => return self.option(word, rest),
        }
        Some(())
    }

    fn option(&mut self, word: &str, rest: &str) -> Option<()> {
        match word {
            "status" => self.status = rest.parse().ok()?,
            "header" => {
                let (name, value) = rest.split_once(':')?;
                self.headers.push((name.to_owned(), value.trim().to_owned()));
            }
            "type" => self.content_type = Some(if rest == "none" { "" } else { rest }.to_owned()),
            "body" => {
                let text = serde_json::from_str(rest).unwrap_or_else(|_| rest.to_owned());
                self.body = Some(text.into_bytes());
            }
            "eol" => {
                self.eol = match rest {
                    "lf" => "\n",
                    "crlf" => "\r\n",
                    "cr" => "\r",
                    _ => return None,
                }
            }
            "split" => self.split = Some(rest.parse().ok().filter(|size| *size > 0)?),
            "no-space" => self.space = false,
            "no-done" => self.done = false,
            "gzip" => self.gzip = true,
            _ => return None,
        }
        Some(())
    }
}

/// `NAME ID [input]`.
fn tool(rest: &str) -> Option<Step> {
    let (name, rest) = rest.split_once(' ')?;
    let (id, input) = rest.split_once(' ').unwrap_or((rest, ""));
    let input = if input.is_empty() { Vec::new() } else { deltas(input)? };
    Some(Step::Tool { name: name.to_owned(), id: id.to_owned(), input })
}

/// `none`, or two to four numbers.
fn usage(rest: &str) -> Option<Option<Usage>> {
    if rest == "none" {
        return Some(None);
    }
    let numbers: Vec<u64> = rest.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let at = |index: usize| numbers.get(index).copied();
    Some(Some(Usage {
        input: at(0)?,
        output: at(1)?,
        cache_read: at(2).unwrap_or(0),
        cache_creation: at(3).unwrap_or(0),
    }))
}

/// JSON strings, `@gate` and `!`, or else the whole rest as one piece.
fn deltas(rest: &str) -> Option<Vec<Delta>> {
    if !rest.starts_with(['"', '@', '!']) {
        return Some(vec![Delta::Piece(rest.to_owned())]);
    }
    let mut list = Vec::new();
    let mut rest = rest;
    while !rest.is_empty() {
        if rest.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            list.push(Delta::Piece(values.next()?.ok()?));
            rest = rest.get(values.byte_offset()..)?;
        } else {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            list.push(match word.strip_prefix('@') {
                Some(gate) => Delta::Gate(gate.to_owned()),
                None if word == "!" => Delta::Open,
                None => return None,
            });
            rest = after;
        }
        rest = rest.trim_start();
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_steps_and_the_stop_is_added() {
        let answer: Answer =
            "text \"a\" @go \"b\"\ntool Bash t1 {\"x\":1}\nusage 1 2 3 4".parse().expect("parses");
        assert_eq!(
            answer.steps,
            [
                Step::Text(vec![
                    Delta::Piece("a".into()),
                    Delta::Gate("go".into()),
                    Delta::Piece("b".into())
                ]),
                Step::Tool {
                    name: "Bash".into(),
                    id: "t1".into(),
                    input: vec![Delta::Piece("{\"x\":1}".into())]
                },
                Step::Stop("tool_use".into()),
            ]
        );
        assert_eq!(answer.usage, Some(Usage { input: 1, output: 2, cache_read: 3, cache_creation: 4 }));
    }

    #[test]
    fn an_unknown_word_is_an_error() {
        assert!("txet hello".parse::<Answer>().is_err());
        assert!("signature x".parse::<Answer>().is_err());
        assert!("usage 1".parse::<Answer>().is_err());
    }
}
