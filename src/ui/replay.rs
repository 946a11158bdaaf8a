//! What an opened session shows first: its last turns (CONTRACT §8). Found from the end of the log, so that its size
//! does not matter.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::Path;

use super::out;
use super::part::{self, Program};
use crate::wire::message::Message;
use crate::wire::ndjson::{Lines, LinesBack};
use crate::wire::replay::Replay;

/// How many turns are shown.
pub const TURNS: usize = 10;

/// Gives `each` the display messages of the last turns of the log at `events`, from `part` if there is one.
pub fn show(part: Option<Program>, events: &Path, each: &mut dyn FnMut(&Message)) -> io::Result<()> {
    match by_part(part, events)? {
        Some(messages) => messages.iter().for_each(each),
        None => each_message(events, TURNS, each)?,
    }
    Ok(())
}

/// What the user's own replay makes of the last turns. `None`: there is no such part, or it failed, which is reported.
fn by_part(part: Option<Program>, events: &Path) -> io::Result<Option<Vec<Message>>> {
    let Some(program) = part else { return Ok(None) };
    let mut file = match File::open(events) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(start_of(&file, TURNS)?))?;
    match part::replay(&program, file) {
        Ok(messages) => Ok(Some(messages)),
        Err(why) => {
            out::complain(&program.complaint(&why));
            Ok(None)
        }
    }
}

/// Gives `each` the display messages of the last `turns` turns.
pub fn each_message(events: &Path, turns: usize, mut each: impl FnMut(&Message)) -> io::Result<()> {
    let mut file = match File::open(events) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(start_of(&file, turns)?))?;
    let mut lines = Lines::new(file);
    let mut replay = Replay::new();
    let mut messages = Vec::new();
    while let Some(line) = lines.next()? {
        replay.line(line.bytes, &mut messages);
        messages.drain(..).for_each(|message| each(&message));
    }
    replay.finish(&mut messages);
    messages.iter().for_each(each);
    Ok(())
}

/// The offset of the line that begins the `turns`-th last turn; 0 when there are fewer.
pub fn start_of(file: &File, turns: usize) -> io::Result<u64> {
    let mut lines = LinesBack::new(file.try_clone()?)?;
    let mut left = turns;
    while let Some(line) = lines.next()? {
        if begins_turn(line.bytes) {
            left -= 1;
            if left == 0 {
                return Ok(line.offset);
            }
        }
    }
    Ok(0)
}

/// Whether a turn begins with this event line (CONTRACT §8).
pub fn begins_turn(line: &[u8]) -> bool {
    line.starts_with(b"{\"type\":\"user_input\"") || line.starts_with(b"{\"type\":\"user_message\"")
}
