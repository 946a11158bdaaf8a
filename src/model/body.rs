//! A request body in pieces: small ones from memory, the conversation streamed from its file, the length known before.

use std::io::{self, Read};

/// A request body: reads as one stream of exactly `len()` bytes.
pub struct BodyParts<'a> {
    parts: Vec<Part<'a>>,
    /// The part being read.
    at: usize,
    /// Bytes of it already handed out.
    used: u64,
    len: u64,
    image_bytes: u64,
    failed: bool,
}

enum Part<'a> {
    Bytes(Vec<u8>),
    Stream { reader: Box<dyn Read + 'a>, len: u64 },
}

impl Part<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Stream { len, .. } => *len,
        }
    }
}

impl<'a> BodyParts<'a> {
    /// An empty body.
    pub fn new() -> Self {
        Self { parts: Vec::new(), at: 0, used: 0, len: 0, image_bytes: 0, failed: false }
    }

    /// Adds bytes that are in memory.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        self.len += bytes.len() as u64;
        self.parts.push(Part::Bytes(bytes));
    }

    /// Adds a stream of exactly `len` bytes; reading fails when it ends sooner, and never goes beyond.
    pub fn push_stream(&mut self, reader: impl Read + 'a, len: u64) {
        self.len += len;
        self.parts.push(Part::Stream { reader: Box::new(reader), len });
    }

    /// The whole length in bytes: the Content-Length.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// How much of the length are images (base64), whose tokens have nothing to do with their bytes.
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// Says that `count` bytes of what was added are images.
    pub fn count_image_bytes(&mut self, count: u64) {
        self.image_bytes += count;
    }

    /// Whether it holds nothing at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a read failed: then the file is at fault, not the network.
    pub fn failed(&self) -> bool {
        self.failed
    }
}

impl Default for BodyParts<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl Read for BodyParts<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(part) = self.parts.get_mut(self.at) {
            let left = part.len() - self.used;
            if left == 0 {
                self.at += 1;
                self.used = 0;
                continue;
            }
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            if want == 0 {
                return Ok(0);
            }
            let count = match part {
                Part::Bytes(bytes) => {
                    let from = bytes.len() - usize::try_from(left).unwrap_or(0);
                    buffer[..want].copy_from_slice(&bytes[from..from + want]);
                    Ok(want)
                }
                Part::Stream { reader, .. } => reader.read(&mut buffer[..want]),
            };
            // A stream that ends early must be an error: the length has been promised, and the rest would be waited for.
            let count = match count {
                Ok(0) => Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the conversation became shorter while it was sent",
                )),
                other => other,
            };
            match count {
                Ok(count) => {
                    self.used += count as u64;
                    return Ok(count);
                }
                Err(error) => {
                    self.failed |= error.kind() != io::ErrorKind::Interrupted;
                    return Err(error);
                }
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_read_as_one_stream_whatever_the_buffer() {
        for size in [1, 2, 3, 7, 64] {
            let mut body = BodyParts::new();
            body.push_bytes(b"head,".to_vec());
            body.push_stream(&b"0123456789 and more than promised"[..], 10);
            body.push_bytes(Vec::new());
            body.push_bytes(b",tail".to_vec());
            assert_eq!(body.len(), 20);
            let mut all = Vec::new();
            let mut buffer = vec![0; size];
            loop {
                let count = body.read(&mut buffer).unwrap();
                if count == 0 {
                    break;
                }
                all.extend_from_slice(&buffer[..count]);
            }
            assert_eq!(all, b"head,0123456789,tail");
            assert!(!body.failed());
        }
    }

    #[test]
    fn a_stream_that_ends_early_is_an_error_of_ours() {
        let mut body = BodyParts::new();
        body.push_stream(&b"short"[..], 10);
        let error = body.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(body.failed());
    }
}
