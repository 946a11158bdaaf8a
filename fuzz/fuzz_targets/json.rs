//! JSON by bytes against serde_json: the same grammar, the same members, the same strings; tool input stays what it was.
#![no_main]

use bash_agent::wire::json;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fn check_members(bytes: &[u8]) {
    let Ok(map) = serde_json::from_slice::<Map<String, Value>>(bytes) else { return };
    // A NUL in a key is read as U+FFFD, as anywhere.
    for (key, value) in map.iter().filter(|(key, _)| !key.contains(['\0', '\u{FFFD}'])) {
        let raw = json::member(bytes, key).expect("a member that serde_json finds");
        assert_eq!(&serde_json::from_slice::<Value>(raw).expect("a raw value"), value);
        if let Value::String(text) = value {
            assert_eq!(json::string(raw).expect("a string"), text.replace('\0', "\u{FFFD}"));
        }
    }
}

fn check_tool_input(text: &str) {
    let Ok(input) = json::tool_input(text) else { return };
    assert!(!input.contains(['\n', '\r', '\0']));
    let parsed: Value = serde_json::from_str(&input).unwrap_or(Value::Null);
    // serde_json refuses numbers that are too large for it; the grammar does not.
    assert!(parsed.is_object() || text.contains(['e', 'E']) || text.len() > 300);
    assert_eq!(json::tool_input(&input).as_ref(), Ok(&input));
}

fuzz_target!(|bytes: &[u8]| {
    let value = serde_json::from_slice::<Value>(bytes);
    let valid = json::is_valid(bytes);
    if value.is_ok() {
        assert!(valid);
    }
    // What we take beyond serde_json: lone surrogates and numbers out of range.
    if valid && let Err(error) = value {
        let text = error.to_string();
        assert!(
            text.contains("surrogate") || text.contains("hex escape") || text.contains("out of range"),
            "{text}"
        );
    }
    check_members(bytes);
    let text = json::clean(bytes);
    let mut body = Vec::new();
    json::escape_into(&mut body, &text);
    assert_eq!(json::unescape(&body), text);
    assert!(!json::unescape(bytes).contains('\0'));
    check_tool_input(&text);
    json::elements(bytes);
});
