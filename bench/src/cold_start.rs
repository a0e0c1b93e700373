//! From nothing to a reply: the release binary on the demo model, against an interpreter that does nothing.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::BenchResult;
use crate::timing_sample::{TimingSample, print_ratio, print_row};

const COLD_START_WARM_UP_ROUNDS: usize = 5;
const COLD_START_ROUNDS: usize = 60;

pub(crate) fn capstan_binary() -> Result<PathBuf, Box<dyn std::error::Error>> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name("capstan");
    if path.is_file() { Ok(path) } else { Err(format!("{} is not there: build it first", path.display()).into()) }
}

/// How long a process takes from its start to its end.
pub(crate) fn time_command(command: &mut Command) -> Result<Duration, Box<dyn std::error::Error>> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status()?;
    let elapsed = begun.elapsed();
    if status.success() { Ok(elapsed) } else { Err(format!("{command:?} ended with {status}").into()) }
}

pub(crate) fn capstan_command(binary: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments).env_clear().env("HOME", home).env("CAPSTAN_HOME", home.join("home")).current_dir(home);
    command
}

/// The first `python3` of the path that is no script: a version manager's shim takes ten times as long as the
/// interpreter it starts, and would flatter us.
pub(crate) fn find_python() -> Result<PathBuf, Box<dyn std::error::Error>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("python3")).find(|file| is_program(file));
    found.ok_or_else(|| "there is no python3 to compare with".into())
}

fn is_program(file: &Path) -> bool {
    let mut begin = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin != *b"#!"
}

pub(crate) fn python_command(interpreter: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(interpreter);
    command.args(arguments).env_clear();
    command
}

pub(crate) fn run() -> BenchResult {
    let binary = capstan_binary()?;
    let interpreter = find_python()?;
    println!(
        "cold-start: {} run hello, against {}, {COLD_START_ROUNDS} each, in turns",
        binary.display(),
        interpreter.display()
    );
    let folder = tempfile::tempdir()?;
    println!("  homes in {}", folder.path().display());
    let known = folder.path().join("known");
    std::fs::create_dir(&known)?;
    let mut samples: [TimingSample; 5] = Default::default();
    for number in 0..COLD_START_WARM_UP_ROUNDS + COLD_START_ROUNDS {
        let fresh = folder.path().join(format!("fresh-{number}"));
        std::fs::create_dir(&fresh)?;
        // A session of its own each time: the reply does not get longer with the conversation.
        let session = format!("s{number}");
        let times = [
            time_command(&mut python_command(&interpreter, &["-c", "pass"]))?,
            time_command(&mut python_command(&interpreter, &["-I", "-S", "-c", "pass"]))?,
            time_command(&mut capstan_command(&binary, &fresh, &["run", "hello"]))?,
            time_command(&mut capstan_command(&binary, &known, &["run", "hello", "--session-id", &session]))?,
            time_command(&mut capstan_command(&binary, &known, &["--version"]))?,
        ];
        if number >= COLD_START_WARM_UP_ROUNDS {
            samples.iter_mut().zip(times).for_each(|(sample, time)| sample.push(time));
        }
    }
    let [python, bare, fresh, known, version] = &samples;
    print_row("python3 -c pass", python);
    print_row("python3 -I -S -c pass", bare);
    print_row("capstan run hello, no home yet", fresh);
    print_row("capstan run hello, home is there", known);
    print_row("capstan --version", version);
    print_ratio("no home yet, to python3", fresh.ratio_to(python), Some(2.0));
    print_ratio("home is there, to python3", known.ratio_to(python), Some(2.0));
    print_ratio("no home yet, to python3 -I -S", fresh.ratio_to(bare), None);
    print_ratio("--version, to python3", version.ratio_to(python), None);
    Ok(())
}
