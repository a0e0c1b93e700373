//! From nothing to a reply: the release binary on the demo model, against an interpreter that does nothing.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::sample::{Sample, print_ratio, print_row};

const WARM_UP: usize = 5;
const TIMES: usize = 60;

pub(crate) fn binary() -> Result<PathBuf, Box<dyn std::error::Error>> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name("capstan");
    if path.is_file() { Ok(path) } else { Err(format!("{} is not there: build it first", path.display()).into()) }
}

/// How long a process takes from its start to its end.
pub(crate) fn time(command: &mut Command) -> Result<Duration, Box<dyn std::error::Error>> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status()?;
    let elapsed = begun.elapsed();
    if status.success() { Ok(elapsed) } else { Err(format!("{command:?} ended with {status}").into()) }
}

pub(crate) fn capstan(binary: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments).env_clear().env("HOME", home).env("CAPSTAN_HOME", home.join("home")).current_dir(home);
    command
}

/// The first `python3` of the path that is no script: a version manager's shim takes ten times as long as the
/// interpreter it starts, and would flatter us.
pub(crate) fn interpreter() -> Result<PathBuf, Box<dyn std::error::Error>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("python3")).find(|file| is_program(file));
    found.ok_or_else(|| "there is no python3 to compare with".into())
}

fn is_program(file: &Path) -> bool {
    let mut begin = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin != *b"#!"
}

pub(crate) fn python(interpreter: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(interpreter);
    command.args(arguments).env_clear();
    command
}

pub(crate) fn run() -> Outcome {
    let binary = binary()?;
    let interpreter = interpreter()?;
    println!("cold-start: {} run hello, against {}, {TIMES} each, in turns", binary.display(), interpreter.display());
    let folder = tempfile::tempdir()?;
    println!("  homes in {}", folder.path().display());
    let known = folder.path().join("known");
    std::fs::create_dir(&known)?;
    let mut samples: [Sample; 5] = Default::default();
    for number in 0..WARM_UP + TIMES {
        let fresh = folder.path().join(format!("fresh-{number}"));
        std::fs::create_dir(&fresh)?;
        // A session of its own each time: the reply does not get longer with the conversation.
        let session = format!("s{number}");
        let times = [
            time(&mut python(&interpreter, &["-c", "pass"]))?,
            time(&mut python(&interpreter, &["-I", "-S", "-c", "pass"]))?,
            time(&mut capstan(&binary, &fresh, &["run", "hello"]))?,
            time(&mut capstan(&binary, &known, &["run", "hello", "--session-id", &session]))?,
            time(&mut capstan(&binary, &known, &["--version"]))?,
        ];
        if number >= WARM_UP {
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
