//! As much of HTTP/1.1 as a client of a model API uses.

use std::io::{self, BufRead, Read, Write};

/// A request's first line and headers.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// `POST`, ….
    pub method: String,
    /// With the query, if any.
    pub path: String,
    /// In order, names as sent.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// A header's value, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Reads a head. `None` at the end of the connection.
pub fn read_head(input: &mut impl BufRead) -> io::Result<Option<Head>> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Err(bad("no request line"));
    };
    let mut head = Head { method: method.to_owned(), path: path.to_owned(), headers: Vec::new() };
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Err(bad("the head breaks off"));
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(Some(head));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a header without a colon"))?;
        head.headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// Reads the body that belongs to `head`.
pub fn read_body(input: &mut impl BufRead, head: &Head) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if head.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        loop {
            let mut line = String::new();
            input.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16).map_err(|_| bad("a bad chunk size"))?;
            input.by_ref().take(size as u64).read_to_end(&mut body)?;
            input.read_line(&mut line)?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    let length = match head.header("content-length") {
        Some(value) => value.parse::<u64>().map_err(|_| bad("a bad content-length"))?,
        None => 0,
    };
    input.by_ref().take(length).read_to_end(&mut body)?;
    if body.len() as u64 == length { Ok(body) } else { Err(bad("the body breaks off")) }
}

/// Sends one chunk of a chunked body in one write.
pub fn write_chunk(output: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    output.write_all(&chunk)
}

/// The usual words of a status.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Payload Too Large",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        529 => "Overloaded",
        _ => "Mock",
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_by_length_and_by_chunks_are_read_whole() {
        let mut input = &b"POST /v1/messages HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST /x HTTP/1.1\r\n\
            transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"[..];
        for (path, body) in [("/v1/messages", "abc"), ("/x", "hello")] {
            let head = read_head(&mut input).expect("a head").expect("not the end");
            assert_eq!(head.path, path);
            assert_eq!(read_body(&mut input, &head).expect("a body"), body.as_bytes());
        }
        assert!(read_head(&mut input).expect("the end").is_none());
    }
}

/// A gzip stream of stored blocks, one a piece: nothing is held back.
#[derive(Default)]
pub(crate) struct Gzip {
    begun: bool,
    crc: u32,
    length: u32,
}

impl Gzip {
    /// The bytes that carry a piece.
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
        }
        for block in bytes.chunks(usize::from(u16::MAX)) {
            let length = block.len() as u16;
            out.push(0);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&(!length).to_le_bytes());
            out.extend_from_slice(block);
        }
        self.length = self.length.wrapping_add(bytes.len() as u32);
        let mut crc = !self.crc;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            }
        }
        self.crc = !crc;
        out
    }

    /// The bytes of its end.
    pub(crate) fn end(&self) -> Vec<u8> {
        let mut out = vec![1, 0, 0, 0xff, 0xff];
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out
    }
}
