//! A process of its own that does what one of the ignored tests of this binary says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const DATABASE_PATH_ENV: &str = "CAPSTAN_TEST_DATABASE";

/// A process that is not started yet, whose [`database`] is this one. What it says can be read from a pipe.
pub fn child_command(what: &str, database: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", what, "--ignored", "--nocapture"]).env(DATABASE_PATH_ENV, database);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// In such a process: the database it was given.
pub fn database_path() -> PathBuf {
    std::env::var_os(DATABASE_PATH_ENV).expect("started by another test").into()
}

/// In such a process: waits for a word of whoever started it. There is none when that one has gone.
pub fn read_command() -> Option<String> {
    std::io::stdin().lines().next().map(Result::unwrap)
}

/// In such a process: says something on a line of its own, behind a mark that the test harness does not use.
pub fn report(word: &str) {
    std::io::stdout().lock().write_all(format!("\n> {word}\n").as_bytes()).unwrap();
}

/// Such a process, and a conversation with it. It is killed when this is dropped.
pub struct FaultProcess {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl FaultProcess {
    /// Starts it.
    pub fn start(what: &str, database: &Path) -> Self {
        let mut child = child_command(what, database).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Says a word to it.
    pub fn send_command(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
    }

    /// Waits for the next word that it says.
    pub fn read_report(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it has ended without a word");
            if let Some(word) = line.strip_prefix("> ") {
                return word.trim_end().to_owned();
            }
        }
    }
}

impl Drop for FaultProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
