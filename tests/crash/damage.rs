//! Damage of every kind to every file of a session, as disks, editors and other programs do it (CASES A, B4).

use std::fs;
use std::path::Path;

use crate::check::{self, Before};
use crate::common::World;
use crate::scenario;

const FILES: [&str; 17] = [
    "conversation.jsonl",
    "conversation.jsonl",
    "events.jsonl",
    "conversation-archive.jsonl",
    "stats.json",
    "session.json",
    "summary.txt",
    "input.ids",
    "plan.md",
    "plan.draft",
    "notify.buf",
    "notify.buf.taken",
    "compact.journal",
    "active_sub.list",
    "active_sub.count",
    "agent_running.flag",
    "session.lock",
];

/// What may turn up in the middle of a file.
const JUNK: [&[u8]; 12] = [
    b"\0\0\0\0\0\0\0\0",
    b"\n\n \n",
    b"\xff\xfe\x80",
    b"{\"role\":\"assistant\",\"con",
    b"\n{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"nobody\",\"content\":\"x\"}]}\n",
    b"\n{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"alone\",\"name\":\"Read\",\"input\":}]}\n",
    b"\n{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"\"},{\"type\":\"text\",\"text\":\"\"}]}\n",
    b"\n{\"role\":\"user\",\"content\":\"\"}\n",
    b"*3\r\n$12\r\nAGENT_RESULT\r\n$99999999999999999999\r\n",
    b"*2\r\n$11\r\nUSER_NOTIFY\r\n$4\r\nnote\r\n",
    b"sub_gone 4194304\nsub_odd\n -1\n",
    b"\xe2\x80\xa8\r",
];

/// Numbers that are the same in every run (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Damages `content` in one way, and says which.
fn damage(content: &mut Vec<u8>, random: &mut Random) -> String {
    let at = random.below(content.len() + 1);
    let length = random.below(80).min(content.len() - at);
    let mut lines: Vec<Vec<u8>> =
        content.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let (a, b) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(8) {
        0 => content.truncate(at),
        1 => drop(content.drain(at..at + length)),
        2 => content[at..at + length].fill(0),
        3 if !lines.is_empty() => {
            lines.remove(a);
            *content = lines.concat();
            return format!("line {a} removed");
        }
        4 if !lines.is_empty() => {
            lines.insert(b, lines[a].clone());
            *content = lines.concat();
            return format!("line {a} doubled at {b}");
        }
        5 if !lines.is_empty() => {
            lines.swap(a, b);
            *content = lines.concat();
            return format!("lines {a} and {b} swapped");
        }
        6 => content.clear(),
        kind => {
            let junk = JUNK[random.below(JUNK.len())];
            content.splice(at..at, junk.iter().copied());
            return format!("{:?} put in at {at} ({kind})", String::from_utf8_lossy(junk));
        }
    }
    format!("bytes {at}, {length} (cut, taken out, zeroed or emptied)")
}

/// Damages the world's session `rounds` times, each time from its undamaged state; returns what went wrong.
pub(crate) fn try_all(world: &World, rounds: usize, mut random: Random) -> Vec<String> {
    let dir = world.session(scenario::NAME);
    let saved = world.root().join("saved");
    copy(dir.path(), &saved);
    let mut failures = Vec::new();
    for round in 0..rounds {
        fs::remove_dir_all(dir.path()).unwrap();
        copy(&saved, dir.path());
        let mut done = Vec::new();
        for _ in 0..=random.below(3) {
            let name = FILES[random.below(FILES.len())];
            let path = dir.path().join(name);
            let mut content = fs::read(&path).unwrap_or_default();
            done.push(format!("{name}: {}", damage(&mut content, &mut random)));
            fs::write(&path, content).unwrap();
        }
        let before = Before::read(&dir, None);
        let problems = check::mended(&dir, &before, &scenario::go_on(world));
        if !problems.is_empty() {
            failures.push(format!("round {round}, {}:\n    {}", done.join("; "), problems.join("\n    ")));
        }
    }
    failures
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}
