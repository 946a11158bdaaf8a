//! The FIFO scanners: any bytes, cut anywhere, with any silence between, never panic or wedge; without silence every
//! cut gives the same items; and a good message after silence always arrives.
#![no_main]

use std::time::{Duration, Instant};

use bash_agent::wire::inbox::{Item, Scanner};
use bash_agent::wire::message::{Channel, Message};
use libfuzzer_sys::fuzz_target;

const LONG: Duration = Duration::from_secs(10);

fn scan(channel: Channel, pieces: &[&[u8]], waits: &[Duration]) -> Vec<Item> {
    let mut scanner = Scanner::new(channel);
    let mut now = Instant::now();
    let mut items = Vec::new();
    let waits = waits.iter().copied().chain(std::iter::repeat(Duration::ZERO));
    for (piece, wait) in pieces.iter().zip(waits) {
        scanner.feed(piece, now, &mut items);
        now += wait;
        scanner.tick(now, &mut items);
    }
    scanner.tick(now + LONG, &mut items);
    assert_eq!(scanner.deadline(), None);
    let last = match channel {
        Channel::Input => Message::UserInput { seq: "0".to_owned(), content: "last".to_owned() },
        _ => Message::UserNotify { text: "last".to_owned() },
    };
    let mut frame = Vec::new();
    last.encode(channel, &mut frame);
    scanner.feed(&frame, now + LONG, &mut items);
    assert_eq!(items.pop(), Some(Item::Message(last)));
    items
}

fuzz_target!(|input: (bool, u8, Vec<u16>, &[u8])| {
    let (notify, piece, waits, stream) = input;
    let channel = if notify { Channel::Notify } else { Channel::Input };
    let pieces: Vec<&[u8]> = stream.chunks(usize::from(piece).max(1)).collect();
    assert_eq!(scan(channel, &pieces, &[]), scan(channel, &[stream], &[]));
    let waits: Vec<_> = waits.into_iter().map(|wait| Duration::from_millis(u64::from(wait))).collect();
    scan(channel, &pieces, &waits);
});
