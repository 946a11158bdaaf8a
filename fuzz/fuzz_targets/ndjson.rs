//! Lines: forwards in reads of any size and backwards, a file gives the same lines, and together they are the file.
#![no_main]

use std::io::{self, Read, Write};

use bash_agent::wire::ndjson::{Lines, LinesBack};
use libfuzzer_sys::fuzz_target;

/// Hands out at most `.1` bytes a read.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.1);
        self.0.read(&mut buffer[..count])
    }
}

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (step, repeat, bytes) = input;
    // Long enough to cross the readers' blocks now and then.
    let bytes = bytes.repeat(if repeat == 0 { 3000 } else { 1 });
    let mut lines = Lines::new(Slow(&bytes, usize::from(step) * 97 + 1));
    let (mut all, mut file) = (Vec::new(), Vec::new());
    while let Some(line) = lines.next().expect("memory does not fail") {
        assert_eq!((line.offset, line.length), (file.len() as u64, line.bytes.len() as u64));
        file.extend_from_slice(line.bytes);
        file.extend(line.terminated.then_some(b'\n'));
        all.push((line.bytes.to_vec(), line.offset, line.terminated));
    }
    assert_eq!(file, bytes);
    let mut temporary = tempfile::tempfile().expect("a temporary file");
    temporary.write_all(&bytes).expect("room for it");
    let mut back = LinesBack::new(temporary).expect("a readable file");
    while let Some(line) = back.next().expect("a readable file") {
        assert_eq!(Some((line.bytes.to_vec(), line.offset, line.terminated)), all.pop());
    }
    assert!(all.is_empty());
});
