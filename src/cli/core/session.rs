//! The filters that look at a session's files, and the notify reader.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{BodyArgs, CompactChoiceArgs, CoreError, MAX_INPUT, Show, Trigger, note, open, pour, print};
use crate::agent::compact_choice::{self as choice, Line, Used};
use crate::agent::{compact, prompt, sub_result as child};
use crate::config::Look;
use crate::config::{Config, base_of};
use crate::exit::Exit;
use crate::model::{self, Catalog, Omit, Provider, Request};
use crate::runtime::fifo::Fifo;
use crate::runtime::notify::{Noticed, Reader};
use crate::session::meta::Meta;
use crate::session::notify::Delivery;
use crate::session::paths::SessionDir;
use crate::session::stats::{Stats, Update};
use crate::session::window::{Window, WindowOptions};
use crate::session::{lock, notify};
use crate::tools::Skills;
use crate::ui::out;
use crate::ui::render::safe;
use crate::wire::inbox::{Item, Scanner};
use crate::wire::json;
use crate::wire::message::{Channel, Message, Usage};
use crate::wire::ndjson::Lines;

/// How often the notify reader looks whether its session still has an owner, which no descriptor tells.
const OWNER_CHECK: Duration = Duration::from_secs(2);

/// `core stats update`
pub(super) fn stats_update(file: &Path) -> Result<Exit, CoreError> {
    let input = super::whole_stdin()?;
    let text = json::clean(&input);
    let lines = text.lines().filter(|line| !line.is_empty());
    let updates = match lines.map(Update::parse).collect::<Result<Vec<_>, _>>() {
        Ok(updates) => updates,
        Err(error) => {
            note(&error.to_string());
            return Ok(Exit::Usage);
        }
    };
    let (_, problem) = Stats::update_file(file, &updates)?;
    problem.iter().for_each(|problem| note(problem));
    Ok(Exit::Ok)
}

/// `core stats get`
pub(super) fn stats_get(file: &Path, keys: &[String]) -> Result<Exit, CoreError> {
    let (stats, problem) = Stats::load(file)?;
    problem.iter().for_each(|problem| note(problem));
    let values = keys.iter().map(|key| stats.get(key).unwrap_or_default() + "\n");
    Ok(print(values.collect::<String>().as_bytes()))
}

/// `core compact-choice`
pub(super) fn compact_choice(args: &CompactChoiceArgs) -> Result<Exit, CoreError> {
    let mut warnings = Vec::new();
    let costs =
        compact::costs(|name| std::env::var(name).ok().filter(|text| !text.is_empty()), &mut warnings);
    warnings.iter().for_each(|warning| note(warning));
    let mut lines = Vec::new();
    let mut file = Lines::new(open(&args.file)?);
    let unreadable = |error| CoreError::Read(args.file.display().to_string(), error);
    while let Some(line) = file.next().map_err(unreadable)? {
        let starts_turn = choice::starts_turn(line.bytes);
        lines.push(Line { tokens: choice::tokens(line.length), starts_turn });
    }
    let used = Used {
        turns: args.turns,
        compactions: args.compactions,
        requests: args.requests,
        total_input: args.total_input,
    };
    let is_asked_for = args.trigger != Trigger::Auto;
    let keep = choice::keep(&lines, &costs, &used, args.max_context, args.context, is_asked_for);
    Ok(print(format!("{keep}\n").as_bytes()))
}

/// `core sub-result`
pub(super) fn sub_result(dir: PathBuf, exit_code: u32) -> Result<Exit, CoreError> {
    let result = child::of(&SessionDir::new(dir), exit_code == 0, &exit_code.to_string());
    let mut frame = Vec::new();
    Message::AgentResult(result).encode(Channel::Notify, &mut frame);
    Ok(print(&frame))
}

/// `core body`
pub(super) fn body(args: BodyArgs) -> Result<Exit, CoreError> {
    if let Some(extra) = args.agent.prompt.first() {
        return Err(CoreError::Usage(format!("unexpected argument '{extra}': a body needs no prompt")));
    }
    let config = Config::resolve(&args.agent, &|name: &str| std::env::var_os(name))?;
    config.warnings.iter().for_each(|warning| out::complain(warning));
    let settings = &config.model;
    if settings.provider == Provider::Script {
        return Err(CoreError::Usage(
            "a cassette gets no request: give -p claude, openai or responses".to_owned(),
        ));
    }
    let omit = Omit::of(&args.omit).map_err(|word| {
        CoreError::Usage(format!("--omit {word} names no field; `core body --help` lists them"))
    })?;
    let dir = SessionDir::new(std::path::absolute(&args.session_dir).unwrap_or(args.session_dir));
    let system = match &args.system {
        Some(file) => text_of(file)?,
        None => system_prompt(&config, &dir),
    };
    let instruction = args.instruction.as_deref().map(text_of).transpose()?;
    let mut meta = Meta::load(&dir)?.unwrap_or_default();
    let unreadable = |error| CoreError::Read(dir.conversation().display().to_string(), error);
    let length = std::fs::metadata(dir.conversation()).map_err(unreadable)?.len();
    meta.before_call(settings.provider.as_str(), &settings.model, length);
    let options = WindowOptions {
        thinking_from: meta.thinking_from,
        until: args.until,
        results_from: meta.results_from,
        drop_unsigned: settings.provider == Provider::Claude,
        drop_signed: args.drop_signed,
        ..WindowOptions::default()
    };
    let window = Window::open(&dir, options).map_err(unreadable)?;
    window.notes().iter().for_each(|problem| note(problem));
    let images = dir.images();
    let request = Request {
        system: &system,
        tools: prompt::TOOLS.trim_end(),
        window: &window,
        instruction: instruction.as_deref().filter(|text| !text.is_empty()),
        images: Some(&images),
    };
    let body = model::body(settings, &request, &omit).map_err(unreadable)?;
    if let Some(file) = &args.image_bytes {
        let failed = |error| CoreError::Write(file.display().to_string(), error);
        std::fs::write(file, format!("{}\n", body.image_bytes())).map_err(failed)?;
    }
    pour("the conversation", body)
}

fn system_prompt(config: &Config, dir: &SessionDir) -> String {
    let (text, warnings) = prompt::system(&prompt::Sources {
        base: config.base.path(),
        session: dir,
        cwd: &config.cwd,
        home: config.home.as_deref(),
        lang: &config.lang,
        shell: &config.shell,
        skills: &Skills::discover(&config.cwd, config.home.as_deref()),
        selected: &config.skills,
    });
    warnings.iter().for_each(|warning| out::complain(warning));
    text
}

/// A file's text; one last line feed does not count.
fn text_of(path: &Path) -> Result<String, CoreError> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(MAX_INPUT).read_to_end(&mut bytes);
    read.map_err(|error| CoreError::Read(path.display().to_string(), error))?;
    let text = json::clean(&bytes);
    Ok(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// `core notify-reader`
pub(super) fn notify_reader(dir: PathBuf, show: Show) -> Result<Exit, CoreError> {
    if !dir.is_dir() {
        return Err(CoreError::Usage(format!("{} is no session directory", dir.display())));
    }
    let dir = SessionDir::new(dir);
    if lock::probe(&dir).is_none() {
        return Err(CoreError::Usage(format!(
            "nobody runs {}: an agent starts its reader itself",
            dir.name()
        )));
    }
    let fifo = Fifo::open(&dir.notify_fifo())?;
    let catalog = base_of(&|name: &str| std::env::var_os(name))
        .ok()
        .and_then(|base| Catalog::load(&base.models()).ok())
        .unwrap_or_else(Catalog::builtin);
    // The model is in session.json from the first call on, and may change.
    let session = dir.clone();
    let price = move |usage: &Usage| {
        let meta = Meta::load(&session).ok().flatten().unwrap_or_default();
        catalog.price(&meta.model, usage)
    };
    let reader = Reader::new(dir.clone(), price);
    NoticeLoop { dir, reader, show, stdout: out::Stdout::new(), held: Vec::new() }.run(&fifo)
}

/// An error is said on stderr where stdout has no display behind it (CONTRACT §14).
fn complain_of(message: &Message) {
    if let Message::Error { message, .. } = message {
        let colored = Look::of(&|name: &str| std::env::var_os(name)).streams().1;
        let (on, off) = if colored { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
        note(&format!("{on}Error: {}{off}", safe(message)));
    }
}

/// The notify reader in the foreground.
struct NoticeLoop {
    dir: SessionDir,
    reader: Reader,
    show: Show,
    stdout: out::Stdout,
    /// Frames that notify.buf could not take (the disk is full): tried again.
    held: Vec<Vec<u8>>,
}

impl NoticeLoop {
    fn run(mut self, fifo: &Fifo) -> Result<Exit, CoreError> {
        let broken = |error| CoreError::Read(fifo.path().display().to_string(), error);
        let mut scanner = Scanner::new(Channel::Notify);
        let mut buffer = vec![0; 64 << 10];
        let wake = super::input::wake();
        let mut items = Vec::new();
        loop {
            if super::input::is_interrupted() {
                return Ok(Exit::Interrupted);
            }
            let check = Instant::now() + OWNER_CHECK;
            let deadline = scanner.deadline().map_or(check, |deadline| deadline.min(check));
            let read = if fifo.wait_with(Some(deadline), wake).map_err(broken)? {
                fifo.read(&mut buffer).map_err(broken)?
            } else {
                0
            };
            let now = Instant::now();
            if read > 0 {
                scanner.feed(&buffer[..read], now, &mut items);
            } else if lock::probe(&self.dir).is_none() {
                return Ok(Exit::Ok);
            }
            scanner.tick(now, &mut items);
            self.retry_held();
            for item in items.drain(..) {
                self.take(item);
            }
            if self.stdout.is_closed() {
                return Ok(Exit::BrokenPipe);
            }
        }
    }

    fn take(&mut self, item: Item) {
        let Some(noticed) = self.reader.take(item) else { return };
        let Noticed { lines, messages, answered, held, warning } = noticed;
        if let Some(why) = warning {
            note(&why);
        }
        if let Some(message) = held {
            let mut frame = Vec::new();
            message.encode(Channel::Buffer, &mut frame);
            self.held.push(frame);
        }
        let mut shown = Vec::new();
        match self.show {
            Show::Messages => {
                messages.iter().for_each(|message| message.encode(Channel::Display, &mut shown))
            }
            Show::Events => shown = lines,
            Show::None => {}
        }
        self.stdout.write(&shown, None);
        if self.show != Show::Messages {
            messages.iter().for_each(complain_of);
        }
        // An error only: nothing waits in notify.buf.
        let waits = answered.is_some() || messages.is_empty();
        if let Some(warning) = waits.then(|| self.reader.raise()).flatten() {
            note(&warning);
        }
    }

    fn retry_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let dir = self.dir.clone();
        self.held.retain(|frame| {
            let again = Delivery { lines: b"", updates: &[], frame, answered: None };
            notify::record(&dir, &again).buffer.is_some()
        });
        if self.held.is_empty()
            && let Some(warning) = self.reader.raise()
        {
            note(&warning);
        }
    }
}
