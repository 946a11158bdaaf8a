//! The permission mode: four octal digits, and the scope a path falls into (CONTRACT §12).

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a tool wants to do, as a bit of one octal digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// 4.
    Read,
    /// 2.
    Write,
    /// 1.
    Execute,
}

impl Access {
    const fn bit(self) -> u16 {
        match self {
            Self::Read => 4,
            Self::Write => 2,
            Self::Execute => 1,
        }
    }
}

/// Where it wants to do it: one octal digit of the mode, from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The machine's own files, and keys and credentials wherever they lie.
    System,
    /// Everything no other scope holds.
    External,
    /// Sockets.
    Network,
    /// The session's directory, its TMPDIR and its plan.draft.
    Workspace,
}

impl Scope {
    const fn shift(self) -> u16 {
        match self {
            Self::System => 9,
            Self::External => 6,
            Self::Network => 3,
            Self::Workspace => 0,
        }
    }
}

/// Four octal digits: system, external, network, workspace; in each 4 read, 2 write, 1 execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(u16);

impl Mode {
    /// Nothing is allowed.
    pub const NONE: Self = Self(0);
    /// Read outside and inside, no writing: `read-only`.
    pub const READ_ONLY: Self = Self(0o444);
    /// Read outside, use the network, do everything in the workspace: `workspace`.
    pub const WORKSPACE: Self = Self(0o467);
    /// Everything but the system scope: `trusted`.
    pub const TRUSTED: Self = Self(0o777);
    /// What holds when nothing is said.
    pub const DEFAULT: Self = Self::WORKSPACE;

    /// The mode that `text` names: exactly four octal digits, `read-only`, `workspace` or `trusted`; else `None`.
    #[must_use]
    pub fn try_parse(text: &str) -> Option<Self> {
        match text {
            "read-only" => return Some(Self::READ_ONLY),
            "workspace" => return Some(Self::WORKSPACE),
            "trusted" => return Some(Self::TRUSTED),
            _ => {}
        }
        if text.len() != 4 || !text.bytes().all(|b| (b'0'..=b'7').contains(&b)) {
            return None;
        }
        u16::from_str_radix(text, 8).ok().map(Self)
    }

    /// As `try_parse`, but what is no mode counts as 0000: a typing error must not widen rights.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self::try_parse(text).unwrap_or(Self::NONE)
    }

    /// The mode that this one access needs.
    #[must_use]
    pub const fn of(scope: Scope, access: Access) -> Self {
        Self(access.bit() << scope.shift())
    }

    /// All bits of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every bit that `required` has is set.
    #[must_use]
    pub const fn allows(self, required: Self) -> bool {
        required.0 & !self.0 == 0
    }

    /// Whether this one access is allowed.
    #[must_use]
    pub const fn permits(self, scope: Scope, access: Access) -> bool {
        self.allows(Self::of(scope, access))
    }

    /// The number, `0..=0o7777`.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// Why an access was refused. Displays as the text for the model, without `Error: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The mode lacks a bit.
    #[error(
        "command blocked by bash safety policy (required={required} allowed={allowed}; \
         mode=system/external/network/workspace bits=4:read,2:write,1:execute)"
    )]
    Mode {
        /// The mode that the access needs.
        required: Mode,
        /// The mode that there is.
        allowed: Mode,
    },
    /// One of the agent's own files: closed to writes in every mode.
    #[error("{} belongs to the agent and is closed to tools; only plan.draft can be written there", .0.display())]
    AgentFile(PathBuf),
}

/// The directories that a session's rights are measured by. All of them really resolved (no symlinks).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The session's working directory.
    pub cwd: PathBuf,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// The session's own TMPDIR.
    pub tmp_dir: Option<PathBuf>,
    /// The agent's base, `…/.bash-agent`: config, all sessions.
    pub base_dir: PathBuf,
    /// The session's own directory.
    pub session_dir: PathBuf,
    /// The one file of the session that tools may write.
    pub plan_draft: PathBuf,
    /// Further directories of the agent's own, such as a script's temporary files.
    pub private: Vec<PathBuf>,
    /// Where links among `SENSITIVE_IN_HOME` lead.
    pub linked: Vec<PathBuf>,
}

/// Where those of the home's sensitive places lead that are links.
pub fn linked_secrets(home: &Path, real: &impl Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
    let places = SENSITIVE_IN_HOME.iter().map(|secret| home.join(secret));
    places.filter(|place| place.is_symlink()).map(|place| real(&place)).collect()
}

impl Places {
    /// The directories that are the agent's own.
    pub(super) fn own(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.base_dir, &self.session_dir].into_iter().chain(&self.private)
    }

    /// Whether `mode` lets a tool do `access` to `path`, which must be really resolved (no symlinks, no `..`).
    pub fn judge(&self, mode: Mode, path: &Path, access: Access) -> Result<(), Refusal> {
        let refused = |required| Refusal::Mode { required, allowed: mode };
        if access == Access::Read && is_runtime(path) && !self.is_secret(path) {
            return Ok(());
        }
        let required = Mode::of(self.scope(path), access);
        if !mode.allows(required) {
            return Err(refused(required));
        }
        if access != Access::Read && self.is_agent_file(path) {
            return Err(Refusal::AgentFile(path.to_path_buf()));
        }
        Ok(())
    }

    /// The scope of a really resolved path.
    #[must_use]
    pub fn scope(&self, path: &Path) -> Scope {
        if self.is_plan(path) {
            return Scope::Workspace;
        }
        if self.own().any(|own| path.starts_with(own)) || self.is_secret(path) {
            return Scope::System;
        }
        if self.tmp_dir.as_deref().is_some_and(|dir| path.starts_with(dir)) {
            return Scope::Workspace;
        }
        match SYSTEM_DIRS.iter().map(Path::new).find(|dir| path.starts_with(dir)) {
            // A cwd inside a system directory is a workspace; a cwd of `/` does not turn /etc into one.
            Some(system) if self.cwd.starts_with(system) && path.starts_with(&self.cwd) => Scope::Workspace,
            Some(system) if self.is_home_in(system) && self.is_below_home(path) => Scope::External,
            Some(_) => Scope::System,
            None if path.starts_with(&self.cwd) => Scope::Workspace,
            None => Scope::External,
        }
    }

    /// Whether the path is one of the agent's own files, which no tool may write whatever the mode.
    #[must_use]
    pub fn is_agent_file(&self, path: &Path) -> bool {
        self.own().any(|own| path.starts_with(own)) && path != self.plan_draft
    }

    /// Whether the path holds keys or credentials.
    #[must_use]
    pub fn is_secret(&self, path: &Path) -> bool {
        self.linked.iter().any(|secret| path.starts_with(secret)) || is_sensitive(path, self.home.as_deref())
    }

    /// plan.draft is the model's own; plan.md, which the prompt names, can be read.
    fn is_plan(&self, path: &Path) -> bool {
        path == self.plan_draft || path == self.session_dir.join("plan.md")
    }

    fn is_below_home(&self, path: &Path) -> bool {
        self.home.as_deref().is_some_and(|home| path.starts_with(home))
    }

    fn is_home_in(&self, system: &Path) -> bool {
        self.home.as_deref().is_some_and(|home| home.starts_with(system))
    }
}

/// The system scope's directories (macOS: behind `/private` too).
pub const SYSTEM_DIRS: &[&str] = &[
    "/etc",
    "/boot",
    "/root",
    "/proc",
    "/sys",
    "/dev",
    "/var",
    "/run",
    #[cfg(target_os = "macos")]
    "/private/etc",
    #[cfg(target_os = "macos")]
    "/private/var",
    #[cfg(target_os = "macos")]
    "/System",
];

/// What running a program needs to read, allowed in every mode.
pub const RUNTIME_PATHS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/locale.conf",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/alternatives",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Directories and files below the home that hold keys or credentials.
pub const SENSITIVE_IN_HOME: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".config/gh",
    ".config/gcloud",
    ".config/op",
    ".password-store",
    ".local/share/keyrings",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".cargo/credentials",
    ".cargo/credentials.toml",
];

pub(super) fn is_runtime(path: &Path) -> bool {
    RUNTIME_PATHS.iter().any(|allowed| path.starts_with(allowed))
}

/// Whether a path holds keys or credentials, by its place below `home` or by its name.
#[must_use]
pub fn is_sensitive(path: &Path, home: Option<&Path>) -> bool {
    if let Some(below) = home.and_then(|home| path.strip_prefix(home).ok())
        && SENSITIVE_IN_HOME.iter().any(|secret| below.starts_with(secret))
    {
        return true;
    }
    // Public certificates carry the same suffix as keys.
    let public = ["/etc/ssl/certs", "/usr", "/etc/pki", "/etc/ca-certificates"];
    if public.iter().any(|dir| path.starts_with(dir)) {
        return false;
    }
    path.file_name().is_some_and(is_sensitive_name)
}

/// Whether a file of this name is taken for a key or for credentials.
#[must_use]
pub fn is_sensitive_name(name: &OsStr) -> bool {
    let name = name.as_bytes().to_ascii_lowercase();
    if name.ends_with(b".pem") || name.ends_with(b".key") || name == b".env" {
        return true;
    }
    if let Some(kind) = name.strip_prefix(b".env.") {
        return !matches!(kind, b"example" | b"sample" | b"template" | b"dist");
    }
    matches!(
        name.as_slice(),
        b"id_rsa"
            | b"id_dsa"
            | b"id_ecdsa"
            | b"id_ed25519"
            | b"id_ecdsa_sk"
            | b"id_ed25519_sk"
            | b".netrc"
            | b".git-credentials"
            | b".pgpass"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(cwd: &str, home: &str) -> Places {
        let base = PathBuf::from(format!("{home}/.bash-agent"));
        let session_dir = base.join("projects/-p/s1");
        Places {
            cwd: cwd.into(),
            home: Some(home.into()),
            tmp_dir: Some("/tmp/agent.1".into()),
            plan_draft: session_dir.join("plan.draft"),
            session_dir,
            base_dir: base,
            private: Vec::new(),
            linked: Vec::new(),
        }
    }

    #[test]
    fn a_mode_is_four_octal_digits_or_a_name_and_anything_else_allows_nothing() {
        for (text, bits) in [
            ("0467", 0o467),
            ("7777", 0o7777),
            ("0000", 0),
            ("read-only", 0o444),
            ("workspace", 0o467),
            ("trusted", 0o777),
        ] {
            assert_eq!(Mode::try_parse(text).map(Mode::bits), Some(bits), "{text}");
        }
        for text in ["", "467", "00467", "0468", "+467", "0x67", " 467", "0467 ", "rw", "Trusted", "٠٤٦٧"]
        {
            assert_eq!(Mode::try_parse(text), None, "{text}");
            assert_eq!(Mode::parse(text), Mode::NONE, "{text}");
        }
        assert_eq!(Mode::DEFAULT.to_string(), "0467");
    }

    #[test]
    fn every_bit_stands_for_itself() {
        let scopes = [Scope::System, Scope::External, Scope::Network, Scope::Workspace];
        for scope in scopes {
            for access in [Access::Read, Access::Write, Access::Execute] {
                let only = Mode::of(scope, access);
                assert_eq!(only.bits().count_ones(), 1);
                assert!(only.permits(scope, access));
                assert!(!Mode(0o7777 & !only.bits()).permits(scope, access));
            }
        }
        assert_eq!(Mode::of(Scope::System, Access::Read).to_string(), "4000");
        assert_eq!(Mode::of(Scope::External, Access::Write).to_string(), "0200");
        assert_eq!(Mode::of(Scope::Network, Access::Execute).to_string(), "0010");
    }

    #[test]
    fn the_refusal_reads_as_the_contract_says() {
        let refusal = places("/srv/p", "/home/u")
            .judge(Mode::DEFAULT, Path::new("/etc/shadow"), Access::Read)
            .unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "command blocked by bash safety policy (required=4000 allowed=0467; \
             mode=system/external/network/workspace bits=4:read,2:write,1:execute)"
        );
    }

    #[test]
    fn scopes_of_paths() {
        use Scope::{External, System, Workspace};
        let user = places("/srv/p", "/home/u");
        for (path, scope) in [
            ("/srv/p", Workspace),
            ("/srv/p/a/b", Workspace),
            ("/srv/pp", External),
            ("/SRV/P/a", External),
            ("/home/u/x", External),
            ("/tmp/x", External),
            ("/tmp/agent.1/x", Workspace),
            ("/tmp/agent.11/x", External),
            ("/home/u/.bash-agent/projects/-p/s1/plan.draft", Workspace),
            ("/home/u/.bash-agent/projects/-p/s1/conversation.jsonl", System),
            ("/home/u/.bash-agent/projects/-p/s2/plan.draft", System),
            ("/home/u/.bash-agent/config.toml", System),
            ("/home/u/.ssh/id_ed25519", System),
            ("/home/u/.ssh", System),
            ("/home/u/.config/gh/hosts.yml", System),
            ("/srv/p/.env", System),
            ("/srv/p/.env.local", System),
            ("/srv/p/.env.example", Workspace),
            ("/srv/p/tls/server.KEY", System),
            ("/srv/p/keyboard.rs", Workspace),
            ("/etc/passwd", System),
            ("/var/log/x", System),
            ("/root/x", System),
            ("/", External),
        ] {
            assert_eq!(user.scope(Path::new(path)), scope, "{path}");
        }
        let root = places("/root/p", "/root");
        assert_eq!(root.scope(Path::new("/root/p/x")), Workspace);
        assert_eq!(root.scope(Path::new("/root/other")), External);
        assert_eq!(root.scope(Path::new("/root/.ssh/config")), System);
        assert_eq!(places("/", "/home/u").scope(Path::new("/etc/hosts")), System);
        assert_eq!(places("/", "/home/u").scope(Path::new("/data")), Workspace);
        assert_eq!(places("/var/www", "/home/u").scope(Path::new("/var/www/x")), Workspace);
        assert_eq!(places("/var/www", "/home/u").scope(Path::new("/var/lib/x")), System);
        let at_home = places("/home/u", "/home/u");
        assert_eq!(at_home.scope(Path::new("/home/u/src/x")), Workspace);
        assert_eq!(at_home.scope(Path::new("/home/u/.aws/credentials")), System);
        assert_eq!(at_home.scope(Path::new("/home/u/.bash-agent/history")), System);
    }

    #[test]
    fn the_agents_own_files_are_closed_to_writes_in_every_mode() {
        let all = Mode::parse("7777");
        let places = places("/home/u", "/home/u");
        let session = "/home/u/.bash-agent/projects/-p/s1";
        for file in ["events.jsonl", "input.fifo", "conversation.jsonl", "plan.md", "plan.draft.x"] {
            let path = PathBuf::from(format!("{session}/{file}"));
            assert_eq!(
                places.judge(all, &path, Access::Write),
                Err(Refusal::AgentFile(path.clone())),
                "{file}"
            );
        }
        for path in ["/home/u/.bash-agent/config.toml", "/home/u/.bash-agent/projects/-p/s2/plan.draft"] {
            assert!(places.judge(all, Path::new(path), Access::Write).is_err(), "{path}");
        }
        let draft = PathBuf::from(format!("{session}/plan.draft"));
        assert_eq!(places.judge(Mode::DEFAULT, &draft, Access::Write), Ok(()));
        assert_eq!(
            places.judge(Mode::DEFAULT, &PathBuf::from(session).join("plan.md"), Access::Read),
            Ok(())
        );
    }

    #[test]
    fn what_a_program_needs_can_be_read_in_every_mode() {
        let places = places("/srv/p", "/home/u");
        for path in ["/usr/include/stdio.h", "/etc/resolv.conf", "/dev/null", "/etc/ssl/certs/ca.pem"] {
            assert_eq!(places.judge(Mode::NONE, Path::new(path), Access::Read), Ok(()), "{path}");
            assert!(places.judge(Mode::DEFAULT, Path::new(path), Access::Write).is_err(), "{path}");
        }
        assert!(places.judge(Mode::NONE, Path::new("/srv/p/x"), Access::Read).is_err());
        assert!(places.judge(Mode::NONE, Path::new("/opt/app/server.key"), Access::Read).is_err());
    }
}
