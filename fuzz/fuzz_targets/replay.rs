//! Replay: any lines give messages that fit into frames, and the end of the input leaves nothing behind.
#![no_main]

use bash_agent::wire::message::{Channel, Message};
use bash_agent::wire::replay::Replay;
use bash_agent::wire::resp::{self, Measure};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|events: &[u8]| {
    let mut replay = Replay::new();
    let mut messages = Vec::new();
    for line in events.split(|&byte| byte == b'\n') {
        replay.line(line, &mut messages);
    }
    replay.finish(&mut messages);
    let count = messages.len();
    replay.finish(&mut messages);
    assert_eq!(messages.len(), count);
    for message in &messages {
        let mut frame = Vec::new();
        message.encode(Channel::Display, &mut frame);
        assert_eq!(resp::measure(&frame), Measure::Complete(frame.len()));
        if let Message::ToolResult { content, .. } = message {
            assert!(content.chars().count() <= 203);
        }
    }
});
