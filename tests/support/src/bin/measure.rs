//! `measure [--runs N] TITLE NAME PROGRAM ARGUMENT… [--vs NAME PROGRAM ARGUMENT…]…`: whole processes against each other.
//!
//! Runs the commands in turn, N times each (default 15) after one run to warm up, and prints for each the median, lowest
//! and highest wall time and CPU time (user + system), the highest resident memory, and the ratios to the first.
//! Their streams are /dev/null. Linux counts this process's own memory as the least that a child can have had; it is
//! kept small (about 3 MB) for that reason.

use std::error::Error;
use std::io::{self, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// One run of one command.
#[derive(Clone, Copy, Default)]
struct Sample {
    /// Milliseconds.
    wall: f64,
    /// Milliseconds.
    cpu: f64,
    /// Megabytes (10⁶ bytes).
    rss: f64,
}

struct Contestant {
    name: String,
    command: Vec<String>,
    samples: Vec<Sample>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where stderr is gone, the exit code still says it.
            let _ = writeln!(io::stderr(), "measure: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut runs = 15;
    if args.first().is_some_and(|arg| arg == "--runs") {
        runs = args.get(1).ok_or("--runs needs a number")?.parse()?;
        args.drain(..2);
    }
    let (title, commands) = args.split_first().ok_or("no title")?;
    let mut all = Vec::new();
    for part in commands.split(|arg| arg == "--vs") {
        let (name, command) = part.split_first().ok_or("no name")?;
        all.push(Contestant { name: name.clone(), command: command.to_vec(), samples: Vec::new() });
    }
    for round in 0..=runs {
        for contestant in &mut all {
            let sample = sample(&contestant.command)?;
            if round > 0 {
                contestant.samples.push(sample);
            }
        }
    }
    print(title, runs, &all)
}

/// Runs a command once. An exit code other than 0 is an error: it would measure something else.
fn sample(command: &[String]) -> Result<Sample, Box<dyn Error>> {
    let (program, rest) = command.split_first().ok_or("no program")?;
    let start = Instant::now();
    let child = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let pid = i32::try_from(child.id())?;
    let mut status = 0;
    // SAFETY: all bytes zero is a valid rusage (plain numbers).
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `pid` is our own child, not waited for before (`child` is only dropped, which does not wait); both
    // pointers are to live locals of the types that wait4 fills in.
    if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } != pid {
        return Err(io::Error::last_os_error().into());
    }
    let wall = start.elapsed().as_secs_f64() * 1000.0;
    if status != 0 {
        return Err(format!("{}: wait status {status}", command.join(" ")).into());
    }
    let millis = |time: libc::timeval| time.tv_sec as f64 * 1000.0 + time.tv_usec as f64 / 1000.0;
    let cpu = millis(usage.ru_utime) + millis(usage.ru_stime);
    Ok(Sample { wall, cpu, rss: usage.ru_maxrss as f64 * 1024.0 / 1e6 })
}

fn print(title: &str, runs: usize, all: &[Contestant]) -> Result<(), Box<dyn Error>> {
    let mut out = format!("{title}  ({runs} runs: median [lowest–highest])\n");
    let width = all.iter().map(|one| one.name.chars().count()).max().unwrap_or(0);
    let mut first: Option<[f64; 3]> = None;
    for one in all {
        let figures: [fn(&Sample) -> f64; 3] = [|s| s.wall, |s| s.cpu, |s| s.rss];
        let [wall, cpu, rss] = figures.map(|figure| spread(one.samples.iter().map(figure).collect()));
        out.push_str(&format!(
            "  {:width$}  wall {:8.2} ms [{:.2}–{:.2}]  CPU {:8.2} ms [{:.2}–{:.2}]  RSS {:6.2} MB",
            one.name, wall.1, wall.0, wall.2, cpu.1, cpu.0, cpu.2, rss.2
        ));
        match first {
            None => first = Some([wall.1, cpu.1, rss.2]),
            Some([w, c, r]) => {
                out.push_str(&format!(
                    "  = wall {:.2}×, CPU {:.2}×, RSS {:.2}×",
                    wall.1 / w,
                    cpu.1 / c,
                    rss.2 / r
                ));
            }
        }
        out.push('\n');
    }
    io::stdout().write_all(out.as_bytes())?;
    Ok(())
}

/// Lowest, median, highest.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(0), at(values.len() / 2), at(values.len().saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_a_child_s_own_time_and_memory() {
        let command: Vec<String> =
            ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"].map(String::from).into();
        let sample = sample(&command).expect("runs");
        assert!(sample.cpu > 0.0 && sample.wall > 0.0 && sample.rss > 0.1);
        assert!(super::sample(&["false".to_owned()]).is_err());
        assert_eq!(spread(vec![3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
    }
}
