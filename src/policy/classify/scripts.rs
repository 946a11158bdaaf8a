//! Little languages inside arguments: what a sed or awk program reads, writes or runs.

/// What a program text can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// Files it names to read.
    pub(super) reads: Vec<String>,
    /// Files it names to write.
    pub(super) writes: Vec<String>,
    /// It runs commands, or it is not understood.
    pub(super) runs: bool,
}

/// The effects of a sed script.
pub(super) fn sed(script: &str) -> Effects {
    let mut effects = Effects::default();
    let mut sed = Sed { rest: script };
    while !sed.rest.is_empty() {
        if sed.command(&mut effects).is_none() {
            effects.runs = true;
            return effects;
        }
    }
    effects
}

struct Sed<'a> {
    rest: &'a str,
}

impl Sed<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn skip(&mut self, wanted: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(wanted);
    }

    fn line(&mut self) -> String {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        let line = line.trim().to_owned();
        self.rest = rest;
        line
    }

    /// Up to the delimiter; a backslash hides the next character.
    fn until(&mut self, delimiter: char) -> Option<()> {
        loop {
            match self.next()? {
                '\\' => drop(self.next()?),
                c if c == delimiter => return Some(()),
                _ => {}
            }
        }
    }

    fn address(&mut self) -> Option<()> {
        match self.peek() {
            Some('/') => {
                self.next();
                self.until('/')?;
                self.skip(|c| matches!(c, 'I' | 'M'));
            }
            Some('\\') => {
                self.next();
                let delimiter = self.next()?;
                self.until(delimiter)?;
                self.skip(|c| matches!(c, 'I' | 'M'));
            }
            _ => self.skip(|c| c.is_ascii_digit() || matches!(c, '$' | '~' | '+')),
        }
        Some(())
    }

    /// One command with its addresses; `None` when it is not understood.
    fn command(&mut self, effects: &mut Effects) -> Option<()> {
        self.skip(|c| c.is_whitespace() || matches!(c, ';' | '}'));
        if self.rest.is_empty() {
            return Some(());
        }
        self.address()?;
        self.skip(|c| c == ' ');
        if self.peek() == Some(',') {
            self.next();
            self.skip(|c| c == ' ');
            self.address()?;
        }
        self.skip(|c| c.is_whitespace() || c == '!');
        match self.next()? {
            '{' | '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' => {}
            '#' | ':' | 'b' | 't' | 'T' => self.label(),
            'q' | 'Q' | 'l' | 'L' => self.skip(|c| c.is_ascii_digit() || c == ' '),
            // A text goes on after a line that ends in a backslash.
            'a' | 'i' | 'c' => while self.line().ends_with('\\') {},
            'r' | 'R' => effects.reads.push(self.line()),
            'w' | 'W' => effects.writes.push(self.line()),
            'y' => {
                let delimiter = self.next()?;
                self.until(delimiter)?;
                self.until(delimiter)?;
            }
            's' => {
                let delimiter = self.next()?;
                self.until(delimiter)?;
                self.until(delimiter)?;
                self.flags(effects)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn label(&mut self) {
        let end = self.rest.find(['\n', ';', '}']).unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }

    fn flags(&mut self, effects: &mut Effects) -> Option<()> {
        while let Some(c) = self.peek() {
            match c {
                'g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9' => drop(self.next()),
                'w' => {
                    self.next();
                    effects.writes.push(self.line());
                    return Some(());
                }
                c if c.is_whitespace() || matches!(c, ';' | '}') => return Some(()),
                // `e` runs the result.
                _ => return None,
            }
        }
        Some(())
    }
}

/// The effects of an awk program: what it writes or runs is not followed.
pub(super) fn awk(program: &str) -> Effects {
    let code = without_strings(program);
    let pipes = code.replace("||", "").contains('|');
    let prints = code
        .split([';', '{', '}', '\n'])
        .any(|statement| statement.trim_start().starts_with("print") && statement.contains('>'));
    let runs = pipes || prints || ["system", "getline", "@"].iter().any(|word| code.contains(word));
    Effects { runs, ..Effects::default() }
}

/// The program without what stands in double quotes.
fn without_strings(program: &str) -> String {
    let mut out = String::new();
    let mut chars = program.chars();
    while let Some(c) = chars.next() {
        out.push(c);
        if c == '"' {
            while let Some(c) = chars.next() {
                match c {
                    '\\' => drop(chars.next()),
                    '"' => break,
                    _ => {}
                }
            }
            out.push('"');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sed_scripts_are_understood_or_run() {
        for (script, writes, reads, runs) in [
            ("s/a/b/g", &[][..], &[][..], false),
            ("1,5p;$d; /x\\/y/I!s|a|b|2; y/ab/cd/", &[], &[], false),
            ("/a/,/b/{s/x/y/;p}", &[], &[], false),
            ("s/a/b/w out", &["out"], &[], false),
            ("w /etc/x", &["/etc/x"], &[], false),
            ("$r f", &[], &["f"], false),
            ("s/a/b/e", &[], &[], true),
            ("1e date", &[], &[], true),
            ("a\\\ntext; w x\np", &[], &[], false),
            (":x; N; bx", &[], &[], false),
            ("s/a", &[], &[], true),
        ] {
            let effects = sed(script);
            assert_eq!(effects.runs, runs, "{script}");
            if !runs {
                assert_eq!(
                    (&effects.writes[..], &effects.reads[..]),
                    (&own(writes)[..], &own(reads)[..]),
                    "{script}"
                );
            }
        }
    }

    fn own(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn awk_programs_that_only_print_are_harmless() {
        for (program, runs) in [
            ("{ print $1 }", false),
            ("$1 > 5 || $2 == \"a > b | c\" { n++ } END { print n }", false),
            ("{ print > \"f\" }", true),
            ("{ print | \"sh\" }", true),
            ("BEGIN { system(\"rm f\") }", true),
            ("BEGIN { \"date\" | getline x }", true),
        ] {
            assert_eq!(awk(program).runs, runs, "{program}");
        }
    }
}
