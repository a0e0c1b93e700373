//! Child processes that run one of the ignored tests of this binary.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const DATABASE_PATH_ENV: &str = "CAPSTAN_TEST_DATABASE";

/// Command for a child process that runs a test of this module with this [database](database_path). Its input and output are pipes.
pub fn child_command(test: &str, database: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("faults::{test}"), "--ignored", "--nocapture"]).env(DATABASE_PATH_ENV, database);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Database of a child process.
pub fn database_path() -> PathBuf {
    std::env::var_os(DATABASE_PATH_ENV).expect("the process was started by another test").into()
}

/// Waits in a child process for a command of its parent; `None` if the parent has closed the pipe.
pub fn read_command() -> Option<String> {
    std::io::stdin().lines().next().map(Result::unwrap)
}

/// Writes a line from a child process to its parent, with a prefix that the test harness does not use.
pub fn report(text: &str) {
    std::io::stdout().lock().write_all(format!("\n> {text}\n").as_bytes()).unwrap();
}

/// Child process with its pipes. Dropping it kills the process.
pub struct FaultProcess {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl FaultProcess {
    /// Starts a process that runs a test.
    pub fn start(test: &str, database: &Path) -> Self {
        let mut child = child_command(test, database).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Sends a command to the process.
    pub fn send_command(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// Waits for the next report of the process.
    pub fn read_report(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the process ended without a report");
            if let Some(text) = line.strip_prefix("> ") {
                return text.trim_end().to_owned();
            }
        }
    }
}

impl Drop for FaultProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
