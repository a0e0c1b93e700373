//! Cold start: the release binary on the demo model up to its reply, compared with an interpreter that does nothing.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::timing_sample::{TimingSample, print_ratio, print_row};
use crate::{BenchError, BenchResult};

const COLD_START_WARM_UP_ROUNDS: usize = 5;
const COLD_START_ROUNDS: usize = 60;

pub(crate) fn capstan_binary() -> Result<PathBuf, BenchError> {
    let current = std::env::current_exe()?;
    let path = current.with_file_name("capstan");
    if path.is_file() { Ok(path) } else { Err(format!("{} does not exist: build it first", path.display()).into()) }
}

/// Measures the duration of a process.
pub(crate) fn time_command(command: &mut Command) -> Result<Duration, BenchError> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started_at = Instant::now();
    let status = command.status()?;
    let elapsed = started_at.elapsed();
    if status.success() { Ok(elapsed) } else { Err(format!("{command:?} exited with {status}").into()) }
}

pub(crate) fn capstan_command(binary: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments).env_clear().env("HOME", home).env("CAPSTAN_HOME", home.join("home")).current_dir(home);
    command
}

/// Finds the first `python3` on the path that is not a script: the shim of a version manager takes ten times as long as
/// the interpreter it starts, and would flatter our ratio.
pub(crate) fn find_python() -> Result<PathBuf, BenchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let python = std::env::split_paths(&path).map(|folder| folder.join("python3")).find(|file| is_program(file));
    python.ok_or_else(|| "no python3 to compare with".into())
}

fn is_program(file: &Path) -> bool {
    let mut prefix = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut prefix)).is_ok() && prefix != *b"#!"
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
        "cold-start: {} run hello, compared with {}, {COLD_START_ROUNDS} each, alternating",
        binary.display(),
        interpreter.display()
    );
    let folder = tempfile::tempdir()?;
    println!("  homes in {}", folder.path().display());
    let existing = folder.path().join("existing");
    std::fs::create_dir(&existing)?;
    let mut samples: [TimingSample; 5] = Default::default();
    for number in 0..COLD_START_WARM_UP_ROUNDS + COLD_START_ROUNDS {
        let new = folder.path().join(format!("new-{number}"));
        std::fs::create_dir(&new)?;
        // A new session each time keeps the reply from growing with the conversation.
        let session = format!("s{number}");
        let times = [
            time_command(&mut python_command(&interpreter, &["-c", "pass"]))?,
            time_command(&mut python_command(&interpreter, &["-I", "-S", "-c", "pass"]))?,
            time_command(&mut capstan_command(&binary, &new, &["run", "hello"]))?,
            time_command(&mut capstan_command(&binary, &existing, &["run", "hello", "--session-id", &session]))?,
            time_command(&mut capstan_command(&binary, &existing, &["--version"]))?,
        ];
        if number >= COLD_START_WARM_UP_ROUNDS {
            samples.iter_mut().zip(times).for_each(|(sample, time)| sample.push(time));
        }
    }
    let [python, bare, new, existing, version] = &samples;
    print_row("python3 -c pass", python);
    print_row("python3 -I -S -c pass", bare);
    print_row("capstan run hello, new home", new);
    print_row("capstan run hello, existing home", existing);
    print_row("capstan --version", version);
    print_ratio("new home, to python3", new.ratio_to(python), Some(2.0));
    print_ratio("existing home, to python3", existing.ratio_to(python), Some(2.0));
    print_ratio("new home, to python3 -I -S", new.ratio_to(bare), None);
    print_ratio("--version, to python3", version.ratio_to(python), None);
    Ok(())
}
