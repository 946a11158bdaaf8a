//! Secrets in results: known values, and tokens of well-known shapes, become `***`.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;

/// What stands for a secret.
const MASK: &str = "***";
/// A shorter value would mask half of everything.
const MIN_SECRET: usize = 8;

/// How a token begins, and how many characters (`[A-Za-z0-9_-]`, and `.` where told) follow at least.
struct Shape {
    prefix: &'static str,
    min: usize,
    dots: bool,
}

const fn shape(prefix: &'static str, min: usize) -> Shape {
    Shape { prefix, min, dots: false }
}

const SHAPES: &[Shape] = &[
    shape("sk-", 20),
    shape("sk_live_", 16),
    shape("rk_live_", 16),
    shape("ghp_", 30),
    shape("gho_", 30),
    shape("ghu_", 30),
    shape("ghs_", 30),
    shape("ghr_", 30),
    shape("github_pat_", 22),
    shape("glpat-", 20),
    shape("xoxb-", 20),
    shape("xoxp-", 20),
    shape("xoxa-", 20),
    shape("xapp-", 20),
    shape("AKIA", 16),
    shape("ASIA", 16),
    shape("AIza", 35),
    shape("npm_", 36),
    shape("pypi-", 40),
    shape("hf_", 30),
    shape("dckr_pat_", 20),
    shape("jina_", 30),
    shape("gsk_", 40),
    shape("xai-", 40),
    // A signed JSON web token: three parts.
    Shape { prefix: "eyJ", min: 40, dots: true },
];

/// `text` with every one of `secrets` masked and, where `shapes` is set, whatever looks like a token or a private key.
pub(crate) fn mask(mut text: String, secrets: &[String], shapes: bool) -> String {
    for secret in secrets.iter().filter(|secret| secret.len() >= MIN_SECRET) {
        if text.contains(secret.as_str()) {
            text = text.replace(secret.as_str(), MASK);
        }
    }
    if shapes && let Cow::Owned(masked) = without_tokens(&text) {
        return masked;
    }
    text
}

fn without_tokens(text: &str) -> Cow<'_, str> {
    let mut ranges: Vec<Range<usize>> = SHAPES.iter().flat_map(|shape| tokens(text, shape)).collect();
    private_keys(text, &mut ranges);
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    ranges.sort_by_key(|range| range.start);
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for range in ranges {
        if range.start >= at {
            out.push_str(&text[at..range.start]);
            out.push_str(MASK);
        }
        at = at.max(range.end);
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn tokens(text: &str, shape: &Shape) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    for start in memmem::find_iter(bytes, shape.prefix) {
        if start > 0 && is_part(bytes[start - 1]) {
            continue;
        }
        let body = &bytes[start + shape.prefix.len()..];
        let end = body.iter().position(|&b| !(is_part(b) || shape.dots && b == b'.')).unwrap_or(body.len());
        let body = &body[..end];
        let parts = body.iter().filter(|&&b| b == b'.').count();
        // A long name with hyphens is no key: keys hold figures.
        let is_random = body.iter().any(u8::is_ascii_digit) && body.iter().any(u8::is_ascii_alphabetic);
        if body.len() >= shape.min && is_random && (!shape.dots || parts == 2) {
            found.push(start..start + shape.prefix.len() + end);
        }
    }
    found
}

/// The lines between BEGIN and END of a private key; half of one, where a result was cut, too.
fn private_keys(text: &str, ranges: &mut Vec<Range<usize>>) {
    let mut at = 0;
    let mut begun = None;
    for line in text.split_inclusive('\n') {
        let is_mark = |mark: &str| line.contains(mark) && line.contains("PRIVATE KEY-----");
        if is_mark("-----BEGIN ") {
            begun = Some(at + line.len());
        } else if is_mark("-----END ") {
            let start = begun.take().unwrap_or_else(|| base64_before(text, at));
            ranges.push(start..at);
        }
        at += line.len();
    }
    if let Some(start) = begun {
        ranges.push(start..text.len());
    }
    ranges.retain(|range| !range.is_empty());
}

/// The start of the lines of base64 that end at `end`.
fn base64_before(text: &str, end: usize) -> usize {
    let is_base64 = |line: &str| {
        !line.trim().is_empty()
            && line.trim().bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
    };
    let mut start = end;
    for line in text[..end].split_inclusive('\n').rev() {
        if !is_base64(line) {
            break;
        }
        start -= line.len();
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_and_shapes_are_masked() {
        let secrets = ["my-own-secret".to_owned(), "tiny".to_owned()];
        // Put together here, so that no scanner takes this file for a leak.
        let body = "0aB1cD2eF3gH4iJ5kL6mN7oP8qR9sT0uV1wX2yZ3";
        for (text, masked) in [
            ("a my-own-secret b tiny".to_owned(), "a *** b tiny".to_owned()),
            (format!("KEY=sk-{body}"), "KEY=***".to_owned()),
            (format!("x sk-ant-api03-{body}-{body}AA, y"), "x ***, y".to_owned()),
            (format!("\"ghp_{body}\""), "\"***\"".to_owned()),
            (format!("AKIA{}", "IOSFODNN7EXAMPLE"), "***".to_owned()),
            (format!("Bearer eyJ{body}.{body}.{body}"), "Bearer ***".to_owned()),
            (format!("eyJ{body}"), format!("eyJ{body}")),
            ("sk-learn-is-a-library-for-models".to_owned(), "sk-learn-is-a-library-for-models".to_owned()),
            (format!("task-{body}"), format!("task-{body}")),
            (format!("sk-{}", &body[..10]), format!("sk-{}", &body[..10])),
            ("ghp_ and AKIA alone".to_owned(), "ghp_ and AKIA alone".to_owned()),
        ] {
            assert_eq!(mask(text.clone(), &secrets, true), masked, "{text}");
        }
        assert_eq!(mask(format!("sk-{body}"), &[], false), format!("sk-{body}"));
    }

    #[test]
    fn a_private_key_is_masked_whole_or_cut() {
        let (begin, end) = ("-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----");
        let body = "b3BlbnNzaC1rZXk\nAAAA+/==\n";
        assert_eq!(
            mask(format!("a\n{begin}\n{body}{end}\nb"), &[], true),
            format!("a\n{begin}\n***{end}\nb")
        );
        assert_eq!(mask(format!("a\n{begin}\n{body}"), &[], true), format!("a\n{begin}\n***"));
        assert_eq!(mask(format!("some text\n{body}{end}\nb"), &[], true), format!("some text\n***{end}\nb"));
        assert_eq!(mask(format!("{begin}\n"), &[], true), format!("{begin}\n"));
    }
}
