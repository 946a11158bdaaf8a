//! Test support: a model server of raw sockets, and conversations in memory.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Conversation, Model, ModelEvent, Provider, Request, RetryPolicy, Settings};
use crate::runtime::cancel::Cancel;

/// A conversation of lines in memory.
pub(super) struct Lines(pub(super) Vec<String>);

impl Lines {
    pub(super) fn new(lines: &[&str]) -> Self {
        Self(lines.iter().map(|line| (*line).to_owned()).collect())
    }

    /// One user line.
    pub(super) fn hello() -> Self {
        Self::new(&[r#"{"role":"user","content":"hello"}"#])
    }
}

impl Conversation for Lines {
    fn spliced(&self) -> io::Result<(Box<dyn Read + '_>, u64)> {
        let all = self.0.join(",").into_bytes();
        let len = all.len() as u64;
        Ok((Box::new(io::Cursor::new(all)), len))
    }

    fn lines(&self, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.0.iter().try_for_each(|line| each(line.as_bytes()))
    }
}

/// What the server does, in order, when a request has come.
#[derive(Clone)]
pub(super) enum Step {
    /// Writes these bytes with one write.
    Send(Vec<u8>),
    /// Waits until the client closes the connection.
    UntilClosed,
    /// Closes the connection. Without it the connection serves the next request.
    Close,
}

/// A server that answers each request with the next list of steps.
pub(super) struct Mock {
    pub(super) url: String,
    requests: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    stopped: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Request line and headers.
    pub(super) head: String,
    pub(super) body: String,
}

impl Mock {
    pub(super) fn new(answers: Vec<Vec<Step>>) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let stopped = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let (seen, open, end) = (Arc::clone(&requests), Arc::clone(&connections), Arc::clone(&stopped));
        let listener = std::thread::spawn(move || {
            let mut servers = Vec::new();
            for stream in socket.incoming() {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                let stream = stream.unwrap();
                open.lock().unwrap().push(stream.try_clone().unwrap());
                let (answers, seen) = (Arc::clone(&answers), Arc::clone(&seen));
                servers.push(std::thread::spawn(move || {
                    // An error here is the client's leaving.
                    let _ = serve(stream, &answers, &seen);
                }));
            }
            for server in servers {
                server.join().unwrap();
            }
        });
        Self { url, requests, connections, stopped, listener: Some(listener) }
    }

    pub(super) fn requests(&self) -> Vec<Seen> {
        self.requests.lock().unwrap().clone()
    }

    pub(super) fn connection_count(&self) -> usize {
        self.connections.lock().unwrap().len()
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        for stream in self.connections.lock().unwrap().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        let joined = self.listener.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            joined.unwrap().unwrap();
        }
    }
}

fn serve(stream: TcpStream, answers: &Mutex<VecDeque<Vec<Step>>>, seen: &Mutex<Vec<Seen>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        // A TLS handshake: this server speaks none.
        if reader.fill_buf()?.first() == Some(&0x16) {
            return writer.shutdown(Shutdown::Both);
        }
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head.to_ascii_lowercase().lines().find_map(|line| {
            line.strip_prefix("content-length:").map(|value| value.trim().parse::<usize>().unwrap())
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        seen.lock().unwrap().push(Seen { head, body: String::from_utf8(body).unwrap() });
        let Some(steps) = answers.lock().unwrap().pop_front() else { return Ok(()) };
        for step in steps {
            match step {
                Step::Send(bytes) => writer.write_all(&bytes)?,
                Step::UntilClosed => {
                    io::copy(&mut reader, &mut io::sink())?;
                    return Ok(());
                }
                Step::Close => return writer.shutdown(Shutdown::Both),
            }
        }
    }
}

/// An answer with a length.
pub(super) fn plain(status: &str, headers: &str, body: &str) -> Vec<Step> {
    let text = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
    vec![Step::Send(text.into_bytes())]
}

pub(super) const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A whole event stream in one chunk.
pub(super) fn stream(events: &str) -> Vec<Step> {
    let text = format!("{STREAM_HEAD}{:x}\r\n{events}\r\n0\r\n\r\n", events.len());
    vec![Step::Send(text.into_bytes())]
}

/// The beginning of an event stream, then `after`.
pub(super) fn begun(events: &str, after: Step) -> Vec<Step> {
    let text = format!("{STREAM_HEAD}{:x}\r\n{events}\r\n", events.len());
    vec![Step::Send(text.into_bytes()), after]
}

/// Settings for the mock: quick retries.
pub(super) fn settings(provider: Provider, url: &str) -> Settings {
    let mut settings = Settings::new(provider);
    settings.base_url = url.to_owned();
    settings.retry = RetryPolicy { base: Duration::from_millis(1), ..RetryPolicy::default() };
    settings
}

/// All events of one call.
pub(super) fn run(model: &dyn Model, window: &dyn Conversation) -> Vec<ModelEvent> {
    let cancel = Cancel::new().unwrap();
    let request = Request { system: "be brief", tools: "[]", window, instruction: None, images: None };
    model.stream(&request, &cancel).collect()
}

/// Events as short lines, pieces of text and thinking joined.
pub(super) fn show(events: &[ModelEvent]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for event in events {
        let (word, text) = match event {
            ModelEvent::Text(text) => ("text", text.clone()),
            ModelEvent::Thinking(text) => ("thinking", text.clone()),
            ModelEvent::Signature { signature, id } => ("signature", format!("{signature} {id:?}")),
            ModelEvent::RedactedThinking(data) => ("redacted", data.clone()),
            ModelEvent::ToolCall { id, name, input } => ("call", format!("{id} {name} {input}")),
            ModelEvent::Usage { usage, estimated } => {
                let guess = if *estimated { " estimated" } else { "" };
                let text =
                    format!("{} {} {} {}", usage.input, usage.output, usage.cache_read, usage.cache_creation);
                ("usage", text + guess)
            }
            ModelEvent::Stop(reason) => ("stop", reason.clone()),
            ModelEvent::Retry { usage, message, .. } => {
                ("retry", format!("{message} {:?}", usage.map(|usage| (usage.input, usage.output))))
            }
            ModelEvent::Warning(text) => ("warning", text.clone()),
            ModelEvent::Failed(error)
                if error.message.ends_with("broke before its end (the server closed it)") =>
            {
                ("broken", String::new())
            }
            ModelEvent::Failed(error) => {
                ("failed", format!("{:?} {:?} {}", error.kind, error.status, error.message))
            }
        };
        match lines.last_mut() {
            Some(last) if matches!(word, "text" | "thinking") && last.starts_with(&format!("{word}: ")) => {
                last.push_str(&text);
            }
            _ if word == "broken" => lines.push(word.to_owned()),
            _ => lines.push(format!("{word}: {text}")),
        }
    }
    lines
}

/// What a decoder makes of a body that comes in pieces of `size` bytes and then ends cleanly.
pub(super) fn decode(provider: Provider, body: &[u8], size: usize) -> Vec<String> {
    let mut decoder = super::decoder(provider, &super::DecoderOptions::default());
    let mut events = Vec::new();
    for piece in body.chunks(size.max(1)) {
        decoder.feed(piece, &mut events);
    }
    if !decoder.is_done() {
        decoder.finish(&super::End::Clean, "here", &mut events);
    }
    show(&events)
}

/// The same for a list of events, as SSE.
pub(super) fn decode_events(provider: Provider, events: &[&str]) -> Vec<String> {
    let body: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    decode(provider, body.as_bytes(), usize::MAX)
}

/// The body of a recorded answer.
pub(super) fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/sse-llama-server/{name}.http", env!("CARGO_MANIFEST_DIR"));
    let raw = std::fs::read(path).unwrap();
    let crlf = raw.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4);
    let start = crlf.or_else(|| raw.windows(2).position(|bytes| bytes == b"\n\n").map(|at| at + 2)).unwrap();
    raw[start..].to_vec()
}
