//! The server: gives answers, holds streams at gates, keeps requests.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::answer::{Answer, Step};
use crate::dialect::{Dialect, Piece, render};
use crate::http;

/// Which requests an answer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// The next request that no [`When::Body`] takes; each such answer is given once, in order.
    Next,
    /// Every request whose body holds this text.
    Body(String),
}

/// What follows the last answer of [`When::Next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// No further request is expected: it gets status 400 and is recorded as unscripted.
    Nothing,
    /// The last one, for ever.
    Last,
    /// The first one again.
    First,
}

/// One answer and the requests that it is for.
#[derive(Clone, Debug)]
pub struct Rule {
    /// When it is given.
    pub when: When,
    /// What is given.
    pub answer: Answer,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Method, path, headers.
    pub head: http::Head,
    /// The whole body.
    pub body: Vec<u8>,
    /// No answer was left for it.
    pub unscripted: bool,
    /// The client had closed the connection before the answer's end.
    pub gone: bool,
    /// When it had come whole.
    pub arrived: Instant,
    /// When its answer had been sent to its end, or given up.
    pub answered: Option<Instant>,
}

/// A running server. Dropping it closes every connection and ends its threads.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    rules: Vec<Rule>,
    after: After,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    requests: Vec<Recorded>,
    next: usize,
    released: BTreeSet<String>,
    streams: Vec<TcpStream>,
    workers: Vec<JoinHandle<()>>,
    closing: bool,
}

impl Server {
    /// Starts on a free port of 127.0.0.1.
    pub fn start(rules: Vec<Rule>, after: After) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { rules, after, state: Mutex::default(), changed: Condvar::new() });
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, &shared))
        };
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// A server that gives these texts' answers in order.
    pub fn with(answers: Vec<Answer>) -> io::Result<Self> {
        Self::start(
            answers.into_iter().map(|answer| Rule { when: When::Next, answer }).collect(),
            After::Nothing,
        )
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Every request so far, in the order in which they were complete.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.lock().requests.clone()
    }

    /// Waits until `n` requests have come whole. Says whether they did.
    pub fn wait_requests(&self, n: usize, limit: Duration) -> bool {
        self.wait(limit, |state| state.requests.len() >= n)
    }

    /// Waits until request `n` (from 1) was left by its client before the answer's end.
    pub fn wait_gone(&self, n: usize, limit: Duration) -> bool {
        self.wait(limit, |state| state.requests.get(n.wrapping_sub(1)).is_some_and(|request| request.gone))
    }

    /// Lets every stream pass that waits, or will wait, for `name`.
    pub fn release(&self, name: &str) {
        self.shared.lock().released.insert(name.to_owned());
        self.shared.changed.notify_all();
    }

    fn wait(&self, limit: Duration, done: impl Fn(&State) -> bool) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.shared.lock();
        while !done(&state) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let workers = {
            let mut state = self.shared.lock();
            state.closing = true;
            for stream in &state.streams {
                // It may be closed already: then there is nothing to do.
                let _ = stream.shutdown(Shutdown::Both);
            }
            std::mem::take(&mut state.workers)
        };
        self.shared.changed.notify_all();
        // Wakes the acceptor out of accept(2).
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for worker in workers {
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// A panic elsewhere leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request and picks its answer.
    fn answer(&self, head: http::Head, body: Vec<u8>) -> (usize, Option<&Answer>) {
        let text = String::from_utf8_lossy(&body).into_owned();
        let by_body = |rule: &&Rule| matches!(&rule.when, When::Body(part) if text.contains(part));
        let mut state = self.lock();
        let answer = self.rules.iter().find(by_body).or_else(|| {
            let ordered: Vec<&Rule> = self.rules.iter().filter(|rule| rule.when == When::Next).collect();
            let at = match self.after {
                After::Nothing => state.next,
                After::Last => state.next.min(ordered.len().saturating_sub(1)),
                After::First => state.next % ordered.len().max(1),
            };
            state.next += 1;
            ordered.get(at).copied()
        });
        state.requests.push(Recorded {
            head,
            body,
            unscripted: answer.is_none(),
            gone: false,
            arrived: Instant::now(),
            answered: None,
        });
        let index = state.requests.len() - 1;
        drop(state);
        self.changed.notify_all();
        (index, answer.map(|rule| &rule.answer))
    }

    fn mark(&self, index: usize, change: impl FnOnce(&mut Recorded)) {
        if let Some(request) = self.lock().requests.get_mut(index) {
            change(request);
        }
        self.changed.notify_all();
    }

    /// Waits for a gate. Says whether to go on: not when the client left or the server closes.
    fn pass(&self, name: &str, stream: &TcpStream) -> bool {
        let mut state = self.lock();
        loop {
            if state.closing || client_left(stream) {
                return false;
            }
            if state.released.contains(name) {
                return true;
            }
            // The short limit only serves to see a client leave: sockets do not ring a condition.
            let pause = Duration::from_millis(5);
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Whether the other side has closed, without taking any byte.
fn client_left(stream: &TcpStream) -> bool {
    let mut byte = [0];
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let left = match stream.peek(&mut byte) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    left || stream.set_nonblocking(false).is_err()
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let mut state = shared.lock();
        if state.closing {
            return;
        }
        if let Ok(copy) = stream.try_clone() {
            state.streams.push(copy);
        }
        let shared = Arc::clone(shared);
        state.workers.push(thread::spawn(move || {
            // An error here is the client's leaving: the request's record says so.
            let _ = serve(stream, &shared);
        }));
    }
}

/// Every request of one connection.
fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    while let Some(head) = http::read_head(&mut input)? {
        if head.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let body = http::read_body(&mut input, &head)?;
        let dialect = Dialect::of_path(&head.path);
        let (index, answer) = shared.answer(head, body);
        let sent = match (dialect, answer) {
            (Some(dialect), Some(answer)) => respond(&mut stream, shared, answer, dialect),
            (None, Some(answer)) if answer.body.is_some() => {
                respond(&mut stream, shared, answer, Dialect::Anthropic)
            }
            (None, _) => plain(&mut stream, 404, &[], "text/plain", b"no such path in the mock\n"),
            (_, None) => plain(&mut stream, 400, &[], "text/plain", b"the mock has no answer left\n"),
        };
        let whole = matches!(sent, Ok(Sent::Whole));
        shared.mark(index, |request| {
            request.gone = sent.is_err();
            request.answered = Some(Instant::now());
        });
        if !whole {
            break;
        }
    }
    // Closed for both directions, whatever copies there are.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(())
}

/// How an answer ended.
#[derive(Clone, Copy)]
enum Sent {
    /// The connection can be used again.
    Whole,
    /// Broken, as the script wanted.
    Cut,
}

fn respond(stream: &mut TcpStream, shared: &Shared, answer: &Answer, dialect: Dialect) -> io::Result<Sent> {
    if let Some(body) = &answer.body {
        let kind = answer.content_type.as_deref().unwrap_or("application/json");
        return plain(stream, answer.status, &answer.headers, kind, body);
    }
    if answer.status != 200 {
        let error = answer.steps.iter().find_map(|step| match step {
            Step::Error { kind, message } => Some((kind.clone(), message.clone())),
            _ => None,
        });
        let (kind, message) =
            error.unwrap_or_else(|| ("mock_error".to_owned(), format!("mock says {}", answer.status)));
        let body = dialect.error_body(&kind, &message).to_string();
        let kind = answer.content_type.as_deref().unwrap_or("application/json");
        return plain(stream, answer.status, &answer.headers, kind, body.as_bytes());
    }
    let mut head = String::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n");
    let mut zip = answer.gzip.then(http::Gzip::default);
    if zip.is_some() {
        head.push_str("Content-Encoding: gzip\r\n");
    }
    push_headers(&mut head, &answer.headers, answer.content_type.as_deref().unwrap_or("text/event-stream"));
    stream.write_all(head.as_bytes())?;
    for piece in render(answer, dialect) {
        match piece {
            Piece::Bytes(bytes) => match &mut zip {
                Some(zip) => http::write_chunk(stream, &zip.piece(&bytes))?,
                None => http::write_chunk(stream, &bytes)?,
            },
            Piece::Gate(name) => {
                if !shared.pass(&name, stream) {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
            Piece::Cut => return Ok(Sent::Cut),
            Piece::End => break,
        }
    }
    if let Some(zip) = zip {
        http::write_chunk(stream, &zip.end())?;
    }
    stream.write_all(b"0\r\n\r\n")?;
    Ok(Sent::Whole)
}

fn push_headers(head: &mut String, headers: &[(String, String)], content_type: &str) {
    if !content_type.is_empty() {
        head.push_str(&format!("Content-Type: {content_type}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
}

fn plain(
    stream: &mut TcpStream,
    status: u16,
    headers: &[(String, String)],
    content_type: &str,
    body: &[u8],
) -> io::Result<Sent> {
    let mut head =
        format!("HTTP/1.1 {status} {}\r\nContent-Length: {}\r\n", http::reason(status), body.len());
    push_headers(&mut head, headers, content_type);
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    stream.write_all(&bytes)?;
    Ok(Sent::Whole)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn post(server: &Server, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("connects");
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("sends");
        stream.shutdown(Shutdown::Write).expect("half closes");
        stream
    }

    fn whole(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("reads");
        text
    }

    #[test]
    fn answers_come_in_order_and_by_body() {
        let rule = |when, text| Rule { when, answer: Answer::text(text) };
        let rules = vec![
            rule(When::Next, "one"),
            rule(When::Body("summar".into()), "short"),
            rule(When::Next, "two"),
        ];
        let server = Server::start(rules, After::Nothing).expect("starts");
        assert!(whole(post(&server, "{}")).contains(r#""text":"one""#));
        assert!(whole(post(&server, "summarise")).contains(r#""text":"short""#));
        assert!(whole(post(&server, "{}")).contains(r#""text":"two""#));
        assert!(whole(post(&server, "{}")).starts_with("HTTP/1.1 400 "));
        let requests = server.requests();
        assert_eq!(requests.len(), 4);
        assert_eq!(requests[1].body, b"summarise");
        assert!(requests[3].unscripted);
    }

    #[test]
    fn a_gate_holds_until_it_is_released_and_a_cut_has_no_last_chunk() {
        let answer = "text \"a\" @go \"b\" !\ncut".parse().expect("an answer");
        let server = Server::with(vec![answer]).expect("starts");
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("connects");
        stream.write_all(b"POST /v1/messages HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}").expect("sends");
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(r#""text":"a""#) {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).expect("reads");
            assert!(count > 0, "ended before the gate");
            seen.extend_from_slice(&bytes[..count]);
        }
        assert!(!String::from_utf8_lossy(&seen).contains(r#""text":"b""#));
        server.release("go");
        let rest = whole(stream);
        assert!(rest.contains(r#""text":"b""#) && !rest.ends_with("0\r\n\r\n"), "{rest}");
    }

    #[test]
    fn a_client_that_leaves_is_noticed() {
        let answer = "text \"a\" @never \"b\"".parse().expect("an answer");
        let server = Server::with(vec![answer]).expect("starts");
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("connects");
        stream.write_all(b"POST /v1/messages HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}").expect("sends");
        assert!(server.wait_requests(1, LIMIT));
        drop(stream);
        assert!(server.wait_gone(1, LIMIT));
    }
}
