//! The streams of the three model APIs: any bytes, cut anywhere, give the same events, and exactly one end.
//! `cargo +nightly fuzz run model fuzz/corpus/model fuzz/seeds/model` begins with recorded answers.
#![no_main]

use bash_agent::model::{DecoderOptions, End, ModelEvent, Provider, decoder};
use libfuzzer_sys::fuzz_target;

/// Events with neighbouring pieces joined, as the cut decides where those are split.
fn decode(provider: Provider, body: &[u8], piece: usize) -> Vec<ModelEvent> {
    let mut decoder = decoder(provider, &DecoderOptions { max_tokens: 5, ..DecoderOptions::default() });
    let mut events = Vec::new();
    for bytes in body.chunks(piece) {
        decoder.feed(bytes, &mut events);
    }
    if !decoder.is_done() {
        decoder.finish(&End::Clean, "here", &mut events);
    }
    let mut joined: Vec<ModelEvent> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(ModelEvent::Text(last)), ModelEvent::Text(text)) => last.push_str(&text),
            (Some(ModelEvent::Thinking(last)), ModelEvent::Thinking(text)) => last.push_str(&text),
            (_, event) => joined.push(event),
        }
    }
    joined
}

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (api, piece, body) = input;
    let provider = [Provider::Claude, Provider::OpenAi, Provider::Responses][usize::from(api) % 3];
    let whole = decode(provider, body, body.len().max(1));
    assert_eq!(decode(provider, body, usize::from(piece).max(1)), whole);
    let is_end = |event: &ModelEvent| matches!(event, ModelEvent::Stop(_) | ModelEvent::Failed(_));
    assert_eq!(whole.iter().filter(|event| is_end(event)).count(), 1);
    assert!(whole.last().is_some_and(is_end));
});
