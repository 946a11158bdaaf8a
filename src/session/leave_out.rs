//! Which large tool results are left out of requests when what compaction keeps does not fit (CONTRACT §9). The oldest
//! go first; the file stays as it is, and what is left out stays so from call to call: it is all that begins before one
//! byte offset (`Meta::results_from`). Its twin is awk/leave_out.awk.

use std::fs::File;
use std::io;

use super::mend::saving;
use crate::wire::ndjson::Lines;

/// How much is to be left of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Half of the size that it has now: a request of that size was refused.
    Half,
    /// What fills half of `max`, where it fills `context` tokens now.
    HalfOf {
        /// Tokens of the window, as the last call counted them.
        context: u64,
        /// `--max-context`.
        max: u64,
    },
}

/// A line: where it ends, its bytes as they are sent, and how many of them can be left out.
struct Sized {
    end: u64,
    bytes: u64,
    saving: u64,
}

/// The new `results_from`: large results in lines that begin before it are left out. It is the old one when there is
/// nothing more to leave out. Fails when the file cannot be read.
pub fn choose(conversation: File, results_from: u64, goal: Goal) -> io::Result<u64> {
    let mut lines = Vec::new();
    let mut file = Lines::new(conversation);
    let mut size = 0;
    while let Some(line) = file.next()? {
        let saving = saving(line.bytes);
        let sized = match line.offset < results_from {
            true => Sized { end: line.offset + line.length + 1, bytes: line.length - saving, saving: 0 },
            false => Sized { end: line.offset + line.length + 1, bytes: line.length, saving },
        };
        size += tokens(sized.bytes);
        lines.push(sized);
    }
    // As awk has its numbers.
    let goal = match goal {
        Goal::Half => (size as f64 / 2.0).floor(),
        Goal::HalfOf { context, max } => (size as f64 * max as f64 / (2.0 * context.max(1) as f64)).floor(),
    };
    let mut from = results_from;
    for line in lines.iter().filter(|line| line.saving > 0) {
        if size as f64 <= goal {
            break;
        }
        size = size - tokens(line.bytes) + tokens(line.bytes - line.saving);
        from = line.end;
    }
    Ok(from)
}

/// The size rule of §9.
fn tokens(bytes: u64) -> u64 {
    bytes.div_ceil(4) + 1
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;
    use crate::session::conversation::{ToolResult, tool_results_line};

    fn conversation(sizes: &[usize]) -> (File, Vec<u64>) {
        let mut file = tempfile::tempfile().unwrap();
        let mut ends = Vec::new();
        file.write_all(b"{\"role\":\"user\",\"content\":\"go\"}\n").unwrap();
        for (index, size) in sizes.iter().enumerate() {
            let id = format!("t{index}");
            writeln!(
                file,
                r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"Bash","input":{{}}}}]}}"#
            )
            .unwrap();
            let mut line =
                tool_results_line(&[ToolResult { id, content: "x".repeat(*size), is_error: false }]);
            line.push(b'\n');
            file.write_all(&line).unwrap();
            ends.push(file.stream_position().unwrap());
        }
        (file, ends)
    }

    fn choose(file: &File, from: u64, goal: Goal) -> u64 {
        let mut file = file.try_clone().unwrap();
        file.rewind().unwrap();
        super::choose(file, from, goal).unwrap()
    }

    #[test]
    fn the_oldest_large_results_go_until_half_is_left() {
        let (file, ends) = conversation(&[4000, 100, 4000, 4000, 4000]);
        // Two of the four are a little less than half: the calls and what stands in place of the results count too.
        assert_eq!(choose(&file, 0, Goal::Half), ends[3]);
        // Of what is left, half again; then nothing more can be done.
        assert_eq!(choose(&file, ends[3], Goal::Half), ends[4]);
        assert_eq!(choose(&file, ends[4], Goal::Half), ends[4]);
    }

    #[test]
    fn the_goal_is_half_of_the_context() {
        let (file, ends) = conversation(&[4000; 10]);
        assert_eq!(choose(&file, 0, Goal::HalfOf { context: 1000, max: 1000 }), ends[5]);
        assert_eq!(choose(&file, 0, Goal::HalfOf { context: 1000, max: 400 }), ends[8]);
        assert_eq!(choose(&file, 0, Goal::HalfOf { context: 1000, max: 2000 }), 0, "it fits");
        let (small, _) = conversation(&[900; 10]);
        assert_eq!(choose(&small, 0, Goal::Half), 0, "small results stay");
    }
}
