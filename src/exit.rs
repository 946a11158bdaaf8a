//! Exit codes: the whole table of CONTRACT §13, in one place.

/// How a process of ours ends. The number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The last turn ended well.
    Ok = 0,
    /// It failed in a way no other code names.
    Failed = 1,
    /// Flags, names, configuration; no key and no base URL.
    Usage = 2,
    /// No such session, or nobody runs it.
    NoSession = 3,
    /// Another agent owns the session.
    Locked = 4,
    /// The API refused the key or the right (401, 403).
    Auth = 5,
    /// 429, 503, 529 or an overload in the stream outlasted the retries.
    Overloaded = 6,
    /// No connection, a stream that kept breaking, or 408, 409 and other 5xx that outlasted the retries.
    Network = 7,
    /// Context too long, and compaction could not help.
    ContextTooLong = 8,
    /// A limit of the user's: turns, cost, tokens, time.
    Limit = 9,
    /// The model refused, or a content filter did.
    Refused = 10,
    /// Own storage: disk full, read-only, no permission.
    Storage = 11,
    /// A `--timeout` of ours ran out.
    Timeout = 124,
    /// SIGHUP.
    HungUp = 129,
    /// SIGINT.
    Interrupted = 130,
    /// stdout was closed early.
    BrokenPipe = 141,
    /// SIGTERM.
    Terminated = 143,
}

impl Exit {
    /// Every code with its meaning, in order: the table of the man page.
    pub const TABLE: &'static [(Exit, &'static str)] = &[
        (Exit::Ok, "the last turn ended well"),
        (Exit::Failed, "it failed otherwise"),
        (Exit::Usage, "usage: flags, names, config; no key and no base URL"),
        (Exit::NoSession, "no such session, or nobody runs it"),
        (Exit::Locked, "another agent owns the session"),
        (Exit::Auth, "the API refused the key or the right (401, 403)"),
        (Exit::Overloaded, "429, 503, 529 or an overload in the stream outlasted the retries"),
        (
            Exit::Network,
            "no connection, the stream kept breaking, or 408, 409 and other 5xx outlasted the retries",
        ),
        (Exit::ContextTooLong, "context too long and compaction could not help"),
        (Exit::Limit, "a limit of the user's: turns, cost, tokens, time"),
        (Exit::Refused, "the model refused, or a content filter did"),
        (Exit::Storage, "own storage: disk full, read-only, no permission"),
        (Exit::Timeout, "a --timeout ran out"),
        (Exit::HungUp, "SIGHUP"),
        (Exit::Interrupted, "SIGINT"),
        (Exit::BrokenPipe, "stdout was closed early"),
        (Exit::Terminated, "SIGTERM"),
    ];

    /// The number given to the system.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
