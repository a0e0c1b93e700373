//! From nothing to a reply: the release binary on the demo model, against an interpreter that does nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::sample::{Sample, print_ratio, print_row};

const WARM_UP: usize = 5;
const TIMES: usize = 60;

fn binary() -> Result<PathBuf, Box<dyn std::error::Error>> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name("capstan");
    if path.is_file() { Ok(path) } else { Err(format!("{} is not there: build it first", path.display()).into()) }
}

/// How long a process takes from its start to its end.
fn time(command: &mut Command) -> Result<Duration, Box<dyn std::error::Error>> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status()?;
    let elapsed = begun.elapsed();
    if status.success() { Ok(elapsed) } else { Err(format!("{command:?} ended with {status}").into()) }
}

fn capstan(binary: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments).env_clear().env("HOME", home).env("CAPSTAN_HOME", home.join("home")).current_dir(home);
    command
}

fn python() -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", "pass"]);
    command
}

pub(crate) fn run() -> Outcome {
    let binary = binary()?;
    println!("cold-start: {} run hello, against python3 -c pass, {TIMES} each, in turns", binary.display());
    let folder = tempfile::tempdir()?;
    println!("  homes in {}", folder.path().display());
    let known = folder.path().join("known");
    std::fs::create_dir(&known)?;
    let mut samples: [Sample; 4] = Default::default();
    for number in 0..WARM_UP + TIMES {
        let fresh = folder.path().join(format!("fresh-{number}"));
        std::fs::create_dir(&fresh)?;
        // A session of its own each time: the reply does not get longer with the conversation.
        let session = format!("s{number}");
        let times = [
            time(&mut python())?,
            time(&mut capstan(&binary, &fresh, &["run", "hello"]))?,
            time(&mut capstan(&binary, &known, &["run", "hello", "--session-id", &session]))?,
            time(&mut capstan(&binary, &known, &["--version"]))?,
        ];
        if number >= WARM_UP {
            samples.iter_mut().zip(times).for_each(|(sample, time)| sample.push(time));
        }
    }
    let [python, fresh, known, version] = &samples;
    print_row("python3 -c pass", python);
    print_row("capstan run hello, no home yet", fresh);
    print_row("capstan run hello, home is there", known);
    print_row("capstan --version", version);
    print_ratio("no home yet, to python3", fresh.ratio_to(python), Some(2.0));
    print_ratio("home is there, to python3", known.ratio_to(python), Some(2.0));
    print_ratio("--version, to python3", version.ratio_to(python), None);
    Ok(())
}
