use std::os::unix::fs::PermissionsExt;

use super::super::conversation::user_line;
use super::super::lock::probe;
use super::super::window::{Window, WindowOptions};
use super::*;
use crate::exit::Exit;
use crate::wire::message::{Channel, Message};

const CWD: &str = "/srv/my app";
const CALL: &str = r#"{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Bash","input":{}},{"type":"tool_use","id":"t2","name":"Bash","input":{}}]}"#;

struct Place {
    _temp: tempfile::TempDir,
    base: Base,
}

impl Place {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let base = Base::new(temp.path().join(".bash-agent"));
        Self { _temp: temp, base }
    }

    fn options(&self, pick: Pick, fork: bool) -> OpenOptions<'_> {
        OpenOptions { base: &self.base, cwd: Path::new(CWD), pick, fork }
    }

    fn open(&self, name: &str) -> Result<Session, SessionError> {
        Session::open(&self.options(Pick::Named(name.to_owned()), false))
    }

    /// A session's directory with these files in it.
    fn prepared(&self, name: &str, files: &[(&str, &[u8])]) -> SessionDir {
        let dir = self.base.session(Path::new(CWD), name);
        fs::create_dir_all(dir.path()).unwrap();
        for (file, content) in files {
            fs::write(dir.path().join(file), content).unwrap();
        }
        dir
    }
}

fn read(path: std::path::PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

fn messages(dir: &SessionDir) -> Vec<serde_json::Value> {
    let options = WindowOptions { drop_unsigned: true, ..WindowOptions::default() };
    let window = Window::open(dir, options).unwrap();
    let mut bytes = b"[".to_vec();
    window.write_to(&mut bytes).unwrap();
    bytes.push(b']');
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_new_session_has_all_its_files_for_its_owner_only() {
    let place = Place::new();
    let mut session = Session::open(&place.options(Pick::New, false)).unwrap();
    let events = session.event_log().unwrap();
    for expected in [7, 2] {
        let handles = session.sync_handles(&events).unwrap();
        assert_eq!(handles.len(), expected);
        handles.iter().for_each(|handle| handle.sync_data().unwrap());
    }
    assert!(session.fresh && session.notes.is_empty(), "{:?}", session.notes);
    assert_eq!(probe(&session.dir), Some(std::process::id()));
    let mut names: Vec<_> = fs::read_dir(session.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "active_sub.count",
            "active_sub.list",
            "conversation-archive.jsonl",
            "conversation.jsonl",
            "events.jsonl",
            "images",
            "input.ids",
            "plan.draft",
            "plan.md",
            "session.json",
            "session.lock",
            "state.lock",
            "stats.json",
            "summary.txt"
        ]
    );
    let mut path = session.dir.path();
    while path != place.base.path().parent().unwrap() {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o700, "{path:?}");
        path = path.parent().unwrap();
    }
    for name in names.iter().filter(|name| *name != "images") {
        let mode = fs::metadata(session.dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
    assert_eq!(read(session.dir.active_count()), "0\n");
    assert!(read(session.dir.meta()).starts_with("{\"cwd\":\"/srv/my app\",\"created\":\"2"));
    let dir = session.dir.clone();
    drop(session);
    let again = place.open(&dir.name()).unwrap();
    assert!(again.fresh && again.notes.is_empty(), "{:?}", again.notes);
}

#[test]
fn a_session_has_one_owner() {
    let place = Place::new();
    let first = place.open("a").unwrap();
    let error = place.open("a").unwrap_err();
    assert_eq!(error.exit(), Exit::Locked);
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    place.open("b").unwrap();
    drop(first);
    place.open("a").unwrap();
}

#[test]
fn torn_tails_are_cut_off_and_the_next_line_is_whole() {
    let place = Place::new();
    let whole = "{\"role\":\"user\",\"content\":\"a\"}\n";
    let event = "{\"type\":\"user_input\",\"content\":\"a\"}\n";
    let dir = place.prepared(
        "s",
        &[
            ("conversation.jsonl", format!("{whole}{{\"role\":\"assistant\",\"con").as_bytes()),
            ("conversation-archive.jsonl", &[whole.as_bytes(), &[0; 100]].concat()),
            ("events.jsonl", format!("{event}{{\"type\":\"te").as_bytes()),
            ("stats.json", b"{\"current_turn_count\":1}\n"),
        ],
    );
    let mut session = place.open("s").unwrap();
    assert_eq!(session.notes.len(), 3, "{:?}", session.notes);
    assert!(!session.fresh);
    session.conversation.append_user("b").unwrap();
    session.event_log().unwrap().append(b"{\"type\":\"retry\"}\n").unwrap();
    assert_eq!(read(dir.conversation()), format!("{whole}{}\n", String::from_utf8(user_line("b")).unwrap()));
    assert_eq!(read(dir.archive()), whole);
    assert_eq!(read(dir.events()), format!("{event}{{\"type\":\"retry\"}}\n"));
    drop(session);
    assert!(place.open("s").unwrap().notes.is_empty(), "it is said once");
}

#[test]
fn calls_that_a_crash_left_open_get_results() {
    let place = Place::new();
    let content = format!("{{\"role\":\"user\",\"content\":\"a\"}}\n{CALL}");
    let dir = place.prepared("s", &[("conversation.jsonl", content.as_bytes()), ("stats.json", b"")]);
    let session = place.open("s").unwrap();
    assert_eq!(session.notes, ["the last run ended while 2 tool calls ran: their outcome is unknown"]);
    let result = |id| ToolResult { id, content: LOST_RESULT.to_owned(), is_error: true };
    let line = tool_results_line(&[result("t1".into()), result("t2".into())]);
    assert_eq!(read(dir.conversation()), format!("{content}\n{}\n", String::from_utf8(line).unwrap()));
    assert_eq!(messages(&dir).len(), 3);
    drop(session);
    assert!(place.open("s").unwrap().notes.is_empty());
}

#[test]
fn what_a_dead_owner_left_is_swept() {
    let place = Place::new();
    let dir = place.prepared(
        "s",
        &[
            ("agent_running.flag", b"1\n"),
            ("active_sub.count", b"3\n"),
            ("active_sub.list", b"sub_1 5\n"),
            ("session.lock", b"1\n"),
        ],
    );
    for fifo in [dir.input_fifo(), dir.notify_fifo()] {
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let _session = place.open("s").unwrap();
    assert!(!dir.running_flag().exists() && !dir.input_fifo().exists() && !dir.notify_fifo().exists());
    assert_eq!((read(dir.active_count()).as_str(), read(dir.active_list()).as_str()), ("0\n", ""));
}

#[test]
fn results_that_were_being_taken_are_not_lost_and_not_told_twice() {
    let place = Place::new();
    let mut frame = Vec::new();
    Message::UserNotify { text: "look".into() }.encode(Channel::Buffer, &mut frame);
    for (conversation, waits) in [("{\"role\":\"user\",\"content\":\"look\"}\n", false), ("", true)] {
        let dir = place.prepared(
            "s",
            &[
                ("conversation.jsonl", conversation.as_bytes()),
                ("notify.buf.taken", &frame),
                ("stats.json", b""),
            ],
        );
        let session = place.open("s").unwrap();
        assert_eq!(notify::is_waiting(&dir), waits);
        assert_eq!(notify::take(&dir).unwrap(), waits.then(|| frame.clone()));
        assert!(session.notes.is_empty(), "{:?}", session.notes);
    }
}

#[test]
fn broken_stats_are_reported() {
    let place = Place::new();
    place.prepared("s", &[("conversation.jsonl", b"{\"role\":\"user\",\"content\":\"a\"}\n")]);
    assert!(place.open("s").unwrap().notes[0].contains("stats.json is missing"));
    assert!(place.open("s").unwrap().notes.is_empty(), "it is said once");
    place.prepared("s", &[("stats.json", b"{\"total")]);
    assert!(place.open("s").unwrap().notes[0].contains("stats.json is broken"));
}

#[test]
fn the_latest_is_opened_or_said_to_be_missing() {
    let place = Place::new();
    let latest = || Session::open(&place.options(Pick::Latest, false));
    assert_eq!(latest().unwrap_err().exit(), Exit::NoSession);
    drop(place.open("a").unwrap());
    let newer = place.open("sub_b").unwrap();
    assert_eq!(latest().unwrap().name(), "a");
    drop(newer);
    assert_eq!(find(&place.base, Path::new(CWD), None).unwrap().name(), "a");
    assert_eq!(find(&place.base, Path::new(CWD), Some("nope")).unwrap_err().exit(), Exit::NoSession);
    assert!(!place.base.session(Path::new(CWD), "nope").path().exists());
}

#[test]
fn a_fork_takes_the_conversation_along_and_leaves_its_source_alone() {
    let place = Place::new();
    let first = "{\"role\":\"user\",\"content\":\"a\"}\n";
    let content = format!("{first}{CALL}\n");
    let dir = place.prepared(
        "s",
        &[
            ("conversation.jsonl", content.as_bytes()),
            ("conversation-archive.jsonl", b"{}\n"),
            ("summary.txt", b"sum\n"),
            ("plan.md", b"plan"),
            ("plan.draft", b"draft"),
            ("events.jsonl", b"{\"type\":\"retry\"}\n"),
            ("stats.json", b"{\"current_turn_count\":7}\n"),
        ],
    );
    fs::create_dir(dir.images()).unwrap();
    fs::write(dir.images().join("1.png"), "png").unwrap();
    let meta = Meta { provider: "claude".into(), thinking_from: 5, ..Meta::new(Path::new(CWD)) };
    meta.store(&dir).unwrap();
    // The source may be running.
    let _owner = OwnerLock::take(&dir).unwrap();
    for pick in [Pick::Named("s".into()), Pick::Latest, Pick::New] {
        let fork = Session::open(&place.options(pick, true)).unwrap();
        assert!(fork.fresh && fork.notes.is_empty(), "{:?}", fork.notes);
        assert_ne!(fork.name(), "s");
        assert_eq!(read(fork.dir.conversation()), first, "the open call stays behind");
        for (file, text) in
            [(fork.dir.archive(), "{}\n"), (fork.dir.summary(), "sum\n"), (fork.dir.plan(), "plan")]
        {
            assert_eq!(read(file), text);
        }
        assert_eq!(read(fork.dir.images().join("1.png")), "png");
        assert_eq!((fork.meta.provider.as_str(), fork.meta.thinking_from), ("claude", 5));
        assert_eq!(fork.stats.current_turn_count, 0);
        fs::remove_dir_all(fork.dir.path()).unwrap();
    }
    assert_eq!(read(dir.conversation()), content);
    let child = place.base.session(Path::new(CWD), "sub_1");
    copy_to(&dir, &child).unwrap();
    assert_eq!(read(child.conversation()), first);
    place.open("sub_1").unwrap();
    let nothing = Session::open(&place.options(Pick::Named("nope".into()), true));
    assert_eq!(nothing.unwrap_err().exit(), Exit::NoSession);
}

#[test]
fn what_is_wrong_is_named_with_its_path() {
    let place = Place::new();
    assert_eq!(place.open("a/../b").unwrap_err().exit(), Exit::Usage);
    assert!(!place.base.path().exists(), "a bad name makes nothing");

    let dir = place.prepared("fifo", &[("input.fifo", b"not a fifo")]);
    let error = place.open("fifo").unwrap_err();
    assert!(error.to_string().contains("input.fifo is not a FIFO: move it away"), "{error}");
    assert_eq!(read(dir.input_fifo()), "not a fifo");

    let dir = place.prepared("file", &[]);
    fs::create_dir(dir.conversation()).unwrap();
    let error = place.open("file").unwrap_err();
    assert!(error.to_string().contains("conversation.jsonl is not a regular file"), "{error}");

    fs::write(place.base.project(Path::new(CWD)).join("plain"), "").unwrap();
    let error = place.open("plain").unwrap_err();
    assert!(error.to_string().contains("plain is not a directory"), "{error}");

    let gone = Base::new(place.base.path().join("no/such/home/.bash-agent"));
    let options = OpenOptions { base: &gone, cwd: Path::new(CWD), pick: Pick::New, fork: false };
    let error = Session::open(&options).unwrap_err();
    assert!(matches!(&error, SessionError::HomeMissing(path) if path.ends_with("no/such/home")), "{error}");
    assert_eq!(error.exit(), Exit::Storage);
}

#[test]
fn a_directory_of_someone_else_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        // Only root can give a directory away.
        return;
    }
    let place = Place::new();
    let dir = place.prepared("s", &[]);
    std::os::unix::fs::chown(dir.path(), Some(12345), None).unwrap();
    let error = place.open("s").unwrap_err();
    assert!(error.to_string().contains("belongs to user 12345"), "{error}");
}

#[test]
fn another_directory_with_the_same_key_is_said() {
    let place = Place::new();
    let options = |cwd| OpenOptions {
        base: &place.base,
        cwd: Path::new(cwd),
        pick: Pick::Named("s".into()),
        fork: false,
    };
    drop(Session::open(&options("/a/b")).unwrap());
    let session = Session::open(&options("/a-b")).unwrap();
    assert_eq!(session.notes, ["session s was made in /a/b, not here"]);
    drop(session);
    assert!(Session::open(&options("/a/b")).unwrap().notes.is_empty());
}

#[test]
fn every_session_of_upstream_opens_and_gives_valid_messages() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/upstream-sessions");
    let mut count = 0;
    for fixture in fs::read_dir(fixtures).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
        let place = Place::new();
        let name = fixture.file_name().into_string().unwrap();
        let dir = place.prepared(&name, &[]);
        for file in fs::read_dir(fixture.path()).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
        }
        let before = fs::read(dir.conversation()).unwrap();
        let session = place.open(&name).unwrap();
        assert!(session.notes.is_empty() && !session.fresh, "{name}: {:?}", session.notes);
        assert_eq!(fs::read(dir.conversation()).unwrap(), before, "{name}");
        assert!(session.stats.current_turn_count > 0, "{name}");
        let sent = messages(&dir);
        assert_valid(&name, &sent);
        let users = before
            .split(|byte| *byte == b'\n')
            .filter(|line| line.starts_with(b"{\"role\":\"user\""))
            .count();
        assert_eq!(sent.iter().filter(|message| message["role"] == "user").count(), users, "{name}");
        let listed = listing::list(&place.base, Path::new(CWD)).unwrap();
        assert_eq!(listed.len(), 1, "{name}");
        count += 1;
    }
    assert_eq!(count, 7);
}

/// What the Messages API asks of calls, results and blocks.
fn assert_valid(name: &str, messages: &[serde_json::Value]) {
    let mut open: Vec<String> = Vec::new();
    let mut ids = std::collections::HashSet::new();
    for message in messages {
        let blocks = message["content"].as_array().cloned().unwrap_or_default();
        let results: Vec<_> =
            blocks.iter().filter_map(|block| block["tool_use_id"].as_str()).map(str::to_owned).collect();
        assert_eq!(results, open, "{name}: {message}");
        open.clear();
        for block in blocks {
            let text = |key: &str| block[key].as_str().unwrap_or_default().trim().to_owned();
            match block["type"].as_str().unwrap() {
                "text" => assert_ne!(text("text"), "", "{name}"),
                "tool_result" => assert_ne!(text("content"), "", "{name}"),
                "tool_use" => {
                    assert!(block["input"].is_object(), "{name}");
                    assert!(ids.insert(text("id")), "{name}: {} twice", text("id"));
                    open.push(text("id"));
                }
                other => panic!("{name}: {other} was sent"),
            }
        }
    }
    assert!(open.is_empty(), "{name}");
}

#[test]
fn no_two_children_have_a_name_in_common() {
    let temp = tempfile::tempdir().unwrap();
    let parent = SessionDir::new(temp.path().join("parent"));
    // As many as are likely to draw the same four digits in one second.
    let names: std::collections::HashSet<_> = (0..1000).map(|_| new_child(&parent).unwrap().name()).collect();
    assert_eq!(names.len(), 1000);
    assert!(names.iter().all(|name| name.starts_with("sub_") && temp.path().join(name).is_dir()));
}
