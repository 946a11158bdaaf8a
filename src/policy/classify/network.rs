//! Programs that fetch and send, and those that fetch before they build.

use super::Access;
use super::arguments::Parsed;
use super::programs::Program;
use super::words::Word;

impl Program<'_, '_, '_> {
    pub(super) fn curl(&mut self, parsed: &Parsed) {
        let urls = parsed.operands.iter().cloned().chain(parsed.values("url"));
        let mut network = false;
        for url in urls {
            if url.text.starts_with("file://") {
                self.judge.path(&url.from(7), Access::Read, self.state);
            } else {
                network = true;
            }
        }
        if network {
            self.judge.network(Access::Read, "fetches");
        }
        let sends = "d data data-raw data-binary data-urlencode F form T upload-file json";
        let verb = parsed
            .values("X request")
            .iter()
            .any(|word| !matches!(word.text.as_str(), "GET" | "HEAD" | "OPTIONS"));
        if verb || parsed.has(sends) {
            self.judge.network(Access::Write, "sends");
        }
        for value in parsed.values(sends) {
            // `@file`, `name=@file`; `-T file`.
            if let Some(at) = value.text.find('@') {
                self.judge.path(&value.from(at + 1), Access::Read, self.state);
            }
        }
        self.read_all(&parsed.values("T upload-file K config"));
        self.write_all(&parsed.values("o output c cookie-jar D dump-header output-dir"));
        if parsed.has("O remote-name J remote-header-name") {
            self.here(Access::Write);
        }
    }

    pub(super) fn wget(&mut self, parsed: &Parsed) {
        self.judge.network(Access::Read, "fetches");
        if parsed.has("post-data post-file method body-data body-file") {
            self.judge.network(Access::Write, "sends");
        }
        self.read_all(&parsed.values("i post-file body-file"));
        self.write_all(&parsed.values("o a O output-document P directory-prefix"));
        if !parsed.has("O output-document P directory-prefix spider") {
            self.here(Access::Write);
        }
    }

    pub(super) fn rsync(&mut self, parsed: &Parsed) {
        if parsed.has("e rsh") {
            self.judge.executes("runs another program", self.state);
        }
        let (remote, local): (Vec<Word>, Vec<Word>) =
            parsed.operands.iter().cloned().partition(|word| word.text.contains(':'));
        if !remote.is_empty() {
            self.judge.network(Access::Read, "uses the network");
            self.judge.network(Access::Write, "uses the network");
        }
        if let Some((last, sources)) = local.split_last() {
            self.read_all(sources);
            self.judge.path(last, Access::Write, self.state);
        }
    }

    pub(super) fn packages(&mut self) {
        let first = self.arguments.iter().find(|word| !word.text.starts_with('-') || word.text.len() == 2);
        let asks = [
            "list", "search", "show", "info", "policy", "depends", "-l", "-L", "-s", "-S", "-q", "-Q",
            "leaves",
        ];
        if first.is_some_and(|word| word.known && asks.contains(&word.text.as_str())) {
            return;
        }
        self.judge.system("changes the machine's packages");
        self.judge.network(Access::Read, "fetches");
    }

    pub(super) fn builds(&mut self) {
        let fetches = [
            "install", "i", "ci", "add", "update", "upgrade", "fetch", "get", "download", "search", "view",
            "audit", "sync", "login", "require",
        ];
        let mut words =
            self.arguments.iter().filter(|word| !word.text.starts_with('-') && !word.text.starts_with('+'));
        let first = words.next().map(|word| word.text.clone()).unwrap_or_default();
        let second = words.next().map(|word| word.text.clone()).unwrap_or_default();
        if fetches.contains(&first.as_str()) || (first == "mod" && second == "download") {
            self.judge.network(Access::Read, "fetches");
        }
        if first == "publish" || first == "push" {
            self.judge.network(Access::Read, "publishes");
            self.judge.network(Access::Write, "publishes");
        }
        self.judge.executes("runs code", self.state);
    }
}
