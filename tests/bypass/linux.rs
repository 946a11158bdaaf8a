//! The rows, the worlds they run in and the effects that are looked for.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use libtest_mimic::{Arguments, Failed, Trial};
use mock_model::server::After;
use mock_model::{Answer, Server};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::{Ran, World, bash_agent, program};

/// Whatever holds this came from where a command must not read. It is in no command: they write it in two parts.
const MARK: &str = "effect-seen";

/// A row of `bypass.toml`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default = "default_mode")]
    mode: String,
    /// `sh -e` in the working directory, before the agent starts.
    #[serde(default)]
    setup: String,
    command: String,
    /// Programs without which the row is skipped.
    #[serde(default)]
    needs: Vec<String>,
    /// A condition in sh: the effect is there. Looked at beside what is always looked at.
    #[serde(default)]
    effect: Option<String>,
    /// Why there is no counter-check.
    #[serde(default)]
    unchecked: Option<String>,
}

/// A row of `everyday.toml`: a command that must end well in its own directory.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Everyday {
    name: String,
    command: String,
    #[serde(default)]
    needs: Vec<String>,
    /// Whether it works only where a process may have mounts of its own.
    #[serde(default)]
    needs_mounts: bool,
}

fn default_mode() -> String {
    "0467".to_owned()
}

#[derive(Deserialize)]
struct Table<T> {
    row: Vec<T>,
}

fn table<T: for<'a> Deserialize<'a>>(name: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    toml::from_str::<Table<T>>(&fs::read_to_string(path).unwrap()).unwrap().row
}

/// A runtime and what holds its commands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runner {
    Binary,
    BinaryWithBubblewrap,
    Scripts,
    ScriptsAlone,
    /// The counter-check: the binary, nothing forbidden, nothing confined.
    Free,
}

impl Runner {
    const ALL: [Self; 4] = [Self::Binary, Self::BinaryWithBubblewrap, Self::Scripts, Self::ScriptsAlone];

    fn name(self) -> &'static str {
        match self {
            Self::Binary => "binary, Landlock",
            Self::BinaryWithBubblewrap => "binary, bubblewrap",
            Self::Scripts => "agent.sh, Landlock of the core",
            Self::ScriptsAlone => "agent.sh alone, bubblewrap",
            Self::Free => "counter-check",
        }
    }

    /// Why it cannot run here.
    fn lacks(self) -> Option<&'static str> {
        let works = |args: &[&str], sign: &str| {
            let output = Command::new(program()).args(["core", "sandbox"]).args(args).output().unwrap();
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains(sign)
        };
        match self {
            Self::Binary | Self::Scripts if !works(&["0467"], "Landlock") => {
                Some("this kernel has no Landlock")
            }
            Self::BinaryWithBubblewrap | Self::ScriptsAlone
                if !works(&["--bubblewrap", "0467"], "bubblewrap") =>
            {
                Some("bubblewrap is missing or may do nothing here")
            }
            _ => None,
        }
    }
}

pub(crate) fn main() {
    let mut arguments = Arguments::from_args();
    // Rows wait more than they work.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let runners = Runner::ALL.map(|runner| (runner, runner.lacks()));
    let mut skipped = Vec::new();
    let mut trials = Vec::new();
    for row in table::<Row>("bypass.toml") {
        let missing = missing(&row.needs);
        let counter = (Runner::Free, row.unchecked.as_deref().map(|_| "unchecked"));
        for (runner, lacks) in runners.into_iter().chain([counter]) {
            let row = row.clone();
            let name = format!("{} [{}]", row.name, runner.name());
            let skip = missing.is_some() || lacks.is_some();
            trials.push(Trial::test(name, move || bypass(&row, runner)).with_ignored_flag(skip));
        }
        skipped.extend(missing.map(|program| format!("{}: no {program} here", row.name)));
        skipped.extend(row.unchecked.map(|why| format!("{}: no counter-check: {why}", row.name)));
    }
    let rows = table::<Everyday>("everyday.toml");
    let mounts = ["-m", "-rm"].iter().any(|flags| {
        let tried = Command::new("unshare").args([flags, "true"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    });
    let (rows, left_out): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| missing(&row.needs).is_none() && (mounts || !row.needs_mounts));
    skipped.extend(left_out.iter().map(|row| format!("everyday: {}: something is missing", row.name)));
    for (runner, lacks) in runners {
        let rows = rows.clone();
        let name = format!("everyday commands [{}]", runner.name());
        trials.push(Trial::test(name, move || everyday(&rows, runner)).with_ignored_flag(lacks.is_some()));
        skipped.extend(lacks.map(|why| format!("{}: {why}", runner.name())));
    }
    if !arguments.list {
        for line in skipped {
            eprintln!("bypass: skipped: {line}");
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn missing(needs: &[String]) -> Option<String> {
    let is_there = |name: &str| {
        let version = Command::new("sh").args(["-c", "command -v \"$1\"", "sh", name]).output().unwrap();
        version.status.success()
    };
    needs.iter().find(|name| !is_there(name)).cloned()
}

/// A world with what must stay as it is around the working directory.
struct Scene {
    world: World,
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    hidden: UnixListener,
    /// A process outside, with a secret in its environment.
    bystander: Child,
    /// HOME for the agent, where it is not the world's.
    home: Option<PathBuf>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.bystander.kill();
        let _ = self.bystander.wait();
    }
}

impl Scene {
    fn new(runner: Runner) -> Self {
        let scripts = matches!(runner, Runner::Scripts | Runner::ScriptsAlone);
        let world = World::with(if scripts { bash_agent() } else { program() });
        let (home, out) = (world.home(), world.root().join("out"));
        let base = home.join(".bash-agent");
        let other = world.session("other").path().to_owned();
        for dir in [&out, &home.join(".ssh"), &home.join(".aws"), &home.join(".gnupg"), &other] {
            fs::create_dir_all(dir).unwrap();
        }
        use std::os::unix::fs::PermissionsExt as _;
        for dir in base.join("x").ancestors().skip(1).take(1).chain(other.ancestors().take(3)) {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        }
        for secret in [".ssh/id_rsa", ".aws/credentials", ".netrc", ".gnupg/ring"] {
            fs::write(home.join(secret), format!("{MARK}\n")).unwrap();
        }
        fs::write(home.join(".bashrc"), "# plain\n").unwrap();
        fs::write(out.join("kept"), "kept\n").unwrap();
        fs::write(
            other.join("conversation.jsonl"),
            format!("{{\"role\":\"user\",\"content\":\"{MARK}\"}}\n"),
        )
        .unwrap();
        let config = match runner {
            Runner::BinaryWithBubblewrap | Runner::ScriptsAlone => "sandbox = \"bubblewrap\"\n",
            Runner::Free => "sandbox = \"off\"\n",
            _ => "sandbox = \"required\"\n",
        };
        fs::write(base.join("config.toml"), config).unwrap();
        let hidden = format!("bash-agent-bypass-{}", world.root().display());
        let tcp = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let udp = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let unix = UnixListener::bind(out.join("sock")).unwrap();
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(hidden).unwrap()).unwrap();
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        hidden.set_nonblocking(true).unwrap();
        let bystander =
            Command::new("sleep").arg("600").env("KEPT", MARK).stdin(Stdio::null()).spawn().unwrap();
        Self { world, tcp, udp, unix, hidden, bystander, home: None }
    }

    fn names(&self) -> Vec<(&'static str, String)> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        vec![
            ("HOME", text(&self.world.home())),
            ("OUT", text(&self.world.root().join("out"))),
            ("WORK", text(&self.world.work())),
            ("S", text(self.world.session("t").path())),
            ("OTHER", text(self.world.session("other").path())),
            ("BASE", text(&self.world.home().join(".bash-agent"))),
            ("TCP", self.tcp.local_addr().unwrap().port().to_string()),
            ("UDP", self.udp.local_addr().unwrap().port().to_string()),
            ("ABSTRACT", format!("bash-agent-bypass-{}", self.world.root().display())),
            ("BYSTANDER", self.bystander.id().to_string()),
        ]
    }

    fn fill(&self, text: &str) -> String {
        self.names()
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value))
    }

    fn sh(&self, script: &str) -> bool {
        let mut command = self.world.command_of(Path::new("sh"), ["-e", "-c", &self.fill(script)]);
        command.env("GIT_CONFIG_NOSYSTEM", "1").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().unwrap().success()
    }

    /// One turn in which the model asks for these commands. Returns how it ended, their results, and the number of
    /// requests.
    fn turn(&self, runner: Runner, mode: &str, commands: &[String]) -> (Ran, Vec<String>, usize) {
        let calls = commands
            .iter()
            .enumerate()
            .map(|(n, command)| format!("tool Bash b{n} {}\n", json!({ "command": command, "timeout": 15 })));
        let asks = format!("wait started\n{}", calls.collect::<String>());
        let mut answers = vec![asks.parse::<Answer>().unwrap()];
        answers.push("text Done.".parse().unwrap());
        let rules = answers
            .into_iter()
            .map(|answer| mock_model::server::Rule { when: mock_model::server::When::Next, answer });
        let server = Server::start(rules.collect(), After::Last).unwrap();
        let mode = if runner == Runner::Free { "7777" } else { mode };
        let mut agent = self.world.command(["--session", "t", "--no-mask", "--mode", mode, "go"]);
        agent.env("ANTHROPIC_BASE_URL", server.url()).env("ANTHROPIC_API_KEY", format!("sk-{MARK}"));
        agent.env("BASH_AGENT_CORE", if runner == Runner::Scripts { program() } else { PathBuf::new() });
        if let Some(home) = &self.home {
            agent.env("HOME", home).env("BASH_AGENT_HOME", self.world.home().join(".bash-agent"));
        }
        agent.stdout(Stdio::piped()).stderr(Stdio::piped());
        let agent = agent.spawn().unwrap();
        fs::write(self.world.work().join("pid"), agent.id().to_string()).unwrap();
        server.release("started");
        let ran = Ran::from(agent.wait_with_output().unwrap());
        let requests = server.requests();
        let results = requests.get(1).map(|request| results(&request.body)).unwrap_or_default();
        (ran, results, requests.len())
    }

    /// All that is outside the working directory and not the running session's own.
    fn surroundings(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        let own = self.world.session("t");
        for root in [self.world.home(), self.world.root().join("out")] {
            look(&root, own.path(), &mut all);
        }
        // What the agent makes there for itself.
        all.retain(|path, text| {
            text != "a directory" || !path.starts_with(self.world.home().join(".bash-agent"))
        });
        all
    }

    /// The effects that can be seen from outside.
    fn effects(&mut self, row: &Row, before: &BTreeMap<PathBuf, String>) -> Vec<String> {
        let mut effects = Vec::new();
        let after = self.surroundings();
        for path in before.keys().chain(after.keys()) {
            if before.get(path) != after.get(path) {
                effects.push(format!(
                    "{}: {:?} became {:?}",
                    path.display(),
                    before.get(path),
                    after.get(path)
                ));
            }
        }
        effects.dedup();
        if self.tcp.accept().is_ok() {
            effects.push("a TCP connection".to_owned());
        }
        if self.udp.recv(&mut [0; 64]).is_ok() {
            effects.push("a UDP packet".to_owned());
        }
        if self.unix.accept().is_ok() || self.hidden.accept().is_ok() {
            effects.push("a connection to a Unix socket".to_owned());
        }
        if self.bystander.try_wait().unwrap().is_some() {
            effects.push("the bystander was killed".to_owned());
        }
        if row.effect.as_ref().is_some_and(|effect| self.sh(effect)) {
            effects.push(format!("the row's own: {}", row.effect.as_deref().unwrap_or_default()));
        }
        effects
    }
}

fn look(path: &Path, own: &Path, all: &mut BTreeMap<PathBuf, String>) {
    if path == own {
        return;
    }
    let Ok(data) = path.symlink_metadata() else { return };
    let text = if data.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            look(&entry.path(), own, all);
        }
        "a directory".to_owned()
    } else if data.is_file() {
        let mut bytes = Vec::new();
        let read = fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_or_else(|error| error.to_string(), |_| String::from_utf8_lossy(&bytes).into_owned())
    } else {
        format!("{:?}", data.file_type())
    };
    all.insert(path.to_owned(), text);
}

/// The texts of the results in a request's last message.
fn results(body: &[u8]) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).unwrap();
    let last = body["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    let text = |result: &Value| match &result["content"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    last["content"].as_array().map(|parts| parts.iter().map(text).collect()).unwrap_or_default()
}

fn bypass(row: &Row, runner: Runner) -> Result<(), Failed> {
    let mut scene = Scene::new(runner);
    if !scene.sh(&row.setup) {
        return Err("the setup failed".into());
    }
    let before = scene.surroundings();
    let plain = scene.fill(&row.command);
    let veiled = base64::engine::general_purpose::STANDARD.encode(&plain);
    let mut commands = vec![plain];
    if runner != Runner::Free {
        commands.push(format!("eval \"$(echo {veiled} | base64 -d)\""));
    }
    let (ran, results, requests) = scene.turn(runner, &row.mode, &commands);
    let mut effects = scene.effects(row, &before);
    if results.iter().any(|result| result.contains(MARK)) {
        effects.push("bytes that are closed were read".to_owned());
    }
    if ran.code != Some(0)
        || !ran.stdout.contains("Done.")
        || requests != 2
        || results.len() != commands.len()
    {
        effects.push(format!("the agent ended with {:?} after {requests} requests", ran.code));
    }
    let said = format!("results: {results:#?}\nstdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    match (runner, effects.is_empty()) {
        (Runner::Free, true) => Err(format!("the row shows nothing: free, it has no effect\n{said}").into()),
        (Runner::Free, false) | (_, true) => Ok(()),
        (_, false) => Err(format!("{effects:#?}\n{said}").into()),
    }
}

fn everyday(rows: &[Everyday], runner: Runner) -> Result<(), Failed> {
    // Compilers and interpreters may lie in the user's own home, which is external like any home.
    let mut scene = Scene::new(runner);
    scene.home = std::env::var_os("HOME").map(PathBuf::from);
    let commands: Vec<_> = rows
        .iter()
        .enumerate()
        .map(|(n, row)| {
            format!("mkdir d{n} && cd d{n} && {{\n{}\n}} && echo row-''ok", scene.fill(&row.command))
        })
        .collect();
    let (ran, results, _) = scene.turn(runner, "0467", &commands);
    let mut failed = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let result = results.get(n).map_or("no result", String::as_str);
        if !result.ends_with("row-ok") {
            failed.push(format!("{}: {result}", row.name));
        }
    }
    if failed.is_empty() && ran.code == Some(0) {
        return Ok(());
    }
    Err(format!("{}\nended with {:?}\nstderr: {}", failed.join("\n"), ran.code, ran.stderr).into())
}
