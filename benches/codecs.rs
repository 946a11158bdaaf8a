//! The decoders against what they are built on, in one process (`cargo bench --bench codecs`): RESP frames against
//! redis-protocol alone, NDJSON lines against counting line feeds, SSE events against finding line ends.
//!
//! Each pair runs in turn; printed are the medians in GB/s and their ratio. Nothing here is asserted.

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bash_agent::wire::{ndjson, resp, sse};
use memchr::memchr_iter;

const RUNS: usize = 15;

/// What a reader of a FIFO or a file gets at once.
const CHUNK: usize = 128 << 10;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let frames = frames();
    out.write_all(
        pair(
            "RESP frames (budget: 0.8)",
            frames.len(),
            "redis-protocol",
            || redis(&frames),
            || ours(&frames),
        )
        .as_bytes(),
    )?;
    let lines = lines();
    out.write_all(
        pair(
            "NDJSON lines (budget: 0.7)",
            lines.len(),
            "memchr",
            || line_feeds(&lines),
            || ndjson(lines.as_slice()),
        )
        .as_bytes(),
    )?;
    let mut file = tempfile::NamedTempFile::new()?;
    for _ in 0..8 {
        file.write_all(&lines)?;
    }
    out.write_all(
        pair(
            "NDJSON lines of a file (budget: 0.7)",
            8 * lines.len(),
            "wc -l",
            || wc(file.path()),
            || read_lines(file.path()),
        )
        .as_bytes(),
    )?;
    let events = events();
    out.write_all(
        pair("SSE events", events.len(), "memchr", || line_feeds(&events), || sse(&events)).as_bytes(),
    )
}

/// Runs both in turn and compares their medians.
fn pair(
    title: &str,
    bytes: usize,
    other_name: &str,
    other: impl Fn() -> usize,
    ours: impl Fn() -> usize,
) -> String {
    let (mut slow, mut fast) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        fast.push(timed(&other));
        slow.push(timed(&ours));
    }
    let rate = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        bytes as f64 / times[times.len() / 2].as_secs_f64() / 1e9
    };
    let (other, ours) = (rate(&mut fast), rate(&mut slow));
    format!("{title}: {other_name} {other:.2} GB/s, ours {ours:.2} GB/s = {:.2}×\n", ours / other)
}

fn timed(work: impl Fn() -> usize) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

/// 32 MB of frames as they lie in notify.buf: short ones, and one in ten of 4 kB.
fn frames() -> Vec<u8> {
    let long = "result ".repeat(600);
    let mut bytes = Vec::new();
    for index in 0.. {
        let text = if index % 10 == 0 { long.as_str() } else { "look at the other file first" };
        resp::encode(&["ASYNC_TASK_RESULT", "task_20260102-030405-00ff", "0", text], &mut bytes);
        if bytes.len() > 32 << 20 {
            return bytes;
        }
    }
    bytes
}

fn redis(bytes: &[u8]) -> usize {
    let (mut rest, mut count) = (bytes, 0);
    while let Ok(Some((frame, length))) = redis_protocol::resp2::decode::decode_range(rest) {
        black_box(frame);
        count += 1;
        rest = &rest[length..];
    }
    count
}

fn ours(bytes: &[u8]) -> usize {
    let mut decoder = resp::Decoder::new();
    let mut count = 0;
    for chunk in bytes.chunks(CHUNK) {
        decoder.feed(chunk);
        while let Some(frame) = decoder.next_with(|fields| black_box(fields).len()) {
            count += usize::from(frame.is_ok());
        }
    }
    count
}

/// 32 MB of event lines.
fn lines() -> Vec<u8> {
    let line = "{\"type\":\"text\",\"content\":\"a piece of the answer, as it came from the model\"}\n";
    line.repeat((32 << 20) / line.len()).into_bytes()
}

fn line_feeds(bytes: &[u8]) -> usize {
    memchr_iter(b'\n', bytes).count()
}

/// `wc -l`, its start included: it counts a file of 256 MB.
fn wc(path: &Path) -> usize {
    let counted = Command::new("wc").arg("-l").arg(path).output();
    counted.map_or(0, |counted| counted.stdout.len())
}

fn read_lines(path: &Path) -> usize {
    File::open(path).map_or(0, ndjson)
}

fn ndjson(input: impl Read) -> usize {
    let mut lines = ndjson::Lines::new(input);
    let mut count = 0;
    while let Ok(Some(line)) = lines.next() {
        black_box(line.bytes);
        count += 1;
    }
    count
}

/// 32 MB of deltas.
fn events() -> Vec<u8> {
    let event = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
        {\"type\":\"text_delta\",\"text\":\"word\"}}\n\n";
    event.repeat((32 << 20) / event.len()).into_bytes()
}

fn sse(bytes: &[u8]) -> usize {
    let mut decoder = sse::Decoder::new();
    let mut count = 0;
    for chunk in bytes.chunks(CHUNK) {
        decoder.feed(chunk, &mut |name: &str, data: &[u8]| {
            black_box((name, data));
            count += 1;
        });
    }
    count
}
