//! Messages: whatever a frame's fields hold, a message read from them survives a round trip on its channel.
#![no_main]

use bash_agent::wire::message::{Channel, Message};
use bash_agent::wire::resp::Decoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|stream: &[u8]| {
    let mut decoder = Decoder::new();
    decoder.feed(stream);
    while let Some(frame) = decoder.next() {
        let Ok(fields) = frame else { continue };
        for channel in [Channel::Input, Channel::Notify, Channel::Buffer, Channel::Display] {
            let Ok(message) = Message::from_fields(channel, &fields) else { continue };
            let again = Message::from_fields(channel, &message.fields(channel));
            assert_eq!(again, Ok(message));
        }
    }
});
