//! Quiet colours for the lines of a code block: comments, strings and keywords of a few languages, each line by itself.

use super::scribe::diff_style;
use super::style::{Line, Style, push};

/// What a language's lines are told apart by.
struct Language {
    names: &'static [&'static str],
    /// What begins a comment; `#` only behind a blank.
    comment: &'static str,
    quotes: &'static [char],
    keywords: &'static str,
}

const LANGUAGES: &[Language] = &[
    Language {
        names: &["rust", "rs"],
        comment: "//",
        quotes: &['"'],
        keywords: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod \
                   move mut pub ref return self Self static struct super trait true type unsafe use where while",
    },
    Language {
        names: &["c", "h", "cpp", "c++", "java", "cs", "csharp", "kotlin", "swift"],
        comment: "//",
        quotes: &['"', '\''],
        keywords: "auto bool break case catch char class const continue default do double else enum extends false final float for \
                   if import int interface long new null private protected public return short sizeof static struct switch \
                   this throw true try typedef unsigned using void while",
    },
    Language {
        names: &["go"],
        comment: "//",
        quotes: &['"', '\'', '`'],
        keywords: "break case chan const continue default defer else false for func go goto if import interface map nil package \
                   range return select struct switch true type var",
    },
    Language {
        names: &["js", "javascript", "jsx", "ts", "typescript", "tsx"],
        comment: "//",
        quotes: &['"', '\'', '`'],
        keywords: "async await break case catch class const continue default delete else export extends false finally for from \
                   function if import in interface let new null of return switch this throw true try type typeof undefined var \
                   while yield",
    },
    Language {
        names: &["python", "py"],
        comment: "#",
        quotes: &['"', '\''],
        keywords: "and as assert async await break class continue def del elif else except False finally for from global if \
                   import in is lambda None not or pass raise return self True try while with yield",
    },
    Language {
        names: &["sh", "bash", "shell", "zsh"],
        comment: "#",
        quotes: &['"', '\''],
        keywords: "case do done elif else esac exit export fi for function if in local return set then until while",
    },
    Language {
        names: &["yaml", "yml", "toml", "ini", "make", "makefile", "dockerfile", "awk", "ruby", "rb", "perl"],
        comment: "#",
        quotes: &['"', '\''],
        keywords: "",
    },
    Language { names: &["json", "jsonc"], comment: "//", quotes: &['"'], keywords: "false null true" },
];

/// A line of code, broken at the edge: it copies as one line.
pub(super) fn line(language: &str, text: &str) -> Line {
    if language == "diff" || language == "patch" {
        return Line::new(diff_style(text), text);
    }
    match LANGUAGES.iter().find(|known| known.names.contains(&language)) {
        Some(language) => Line { spans: spans(language, text), ..Line::default() },
        None => Line::new(Style::PLAIN, text),
    }
}

fn spans(language: &Language, text: &str) -> Vec<(Style, String)> {
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let opens = language.comment != "#" || text[..at].chars().next_back().is_none_or(char::is_whitespace);
        let (style, step) = if rest.starts_with(language.comment) && opens {
            (Style::GREY, rest.len())
        } else if let Some(end) = language.quotes.contains(&first).then(|| string_end(rest, first)).flatten()
        {
            (Style::GREEN, end)
        } else if first == '\\' {
            (Style::PLAIN, 1 + rest[1..].chars().next().map_or(0, char::len_utf8))
        } else {
            let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let is_keyword =
                word > 0 && language.keywords.split_whitespace().any(|known| known == &rest[..word]);
            (
                if is_keyword { Style::MAGENTA } else { Style::PLAIN },
                word.max(if word == 0 { first.len_utf8() } else { 1 }),
            )
        };
        push(&mut spans, style, &rest[..step]);
        at += step;
    }
    spans
}

/// The end of the string that begins here, if it ends in this line.
fn string_end(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, sign) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if sign == '\\' {
            escaped = true;
        } else if sign == quote {
            return Some(at + quote.len_utf8());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(language: &str, text: &str) -> String {
        let line = line(language, text);
        let shown: String = line.spans.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(shown, text, "nothing is added or left out");
        let mut out = String::new();
        for (style, text) in &line.spans {
            let look = match *style {
                Style::GREY => "c",
                Style::GREEN => "s",
                Style::MAGENTA => "k",
                Style::RED => "r",
                _ => "",
            };
            out.push_str(&if look.is_empty() { text.clone() } else { format!("<{look}:{text}>") });
        }
        out
    }

    #[test]
    fn comments_strings_and_keywords_are_told_apart() {
        for (language, text, expected) in [
            (
                "rust",
                "let a: &'a str = \"b // \\\" c\"; // d",
                "<k:let> a: &'a str = <s:\"b // \\\" c\">; <c:// d>",
            ),
            ("sh", "if [ $# -gt 1 ]; then # it's", "<k:if> [ $# -gt 1 ]; <k:then> <c:# it's>"),
            ("sh", "echo it\\'s \"open", "echo it\\'s \"open"),
            ("py", "def f(x): return 'é' # 漢", "<k:def> f(x): <k:return> <s:'é'> <c:# 漢>"),
            ("json", "{\"a\": true}", "{<s:\"a\">: <k:true>}"),
            ("diff", "-a", "<r:-a>"),
            ("what", "if \"a\" # b", "if \"a\" # b"),
            ("", "if", "if"),
        ] {
            assert_eq!(looks(language, text), expected, "{language}: {text}");
        }
    }
}
