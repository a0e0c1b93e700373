//! `capstan serve --channel stdio`, and whoever speaks with it over pipes.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use serde_json::Value;

use super::{BinaryOutput, CliFixture, TEST_TIMEOUT};

/// A process that serves `stdio`.
pub struct StdioServer {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    stderr_lines: Vec<String>,
}

impl StdioServer {
    /// Starts it and waits until it is ready.
    pub fn start(place: &CliFixture) -> Self {
        Self::with_command(place.command(&["serve", "--channel", "stdio"]))
    }

    /// Starts this and waits until it is ready.
    pub fn with_command(command: Command) -> Self {
        Self::start_if_ready(command).expect("it gets ready")
    }

    /// Starts this and waits until it is ready; nothing when it ends before.
    pub fn start_if_ready(mut command: Command) -> Option<Self> {
        let mut process = command.stdin(Stdio::piped()).spawn().expect("the binary starts");
        let input = process.stdin.take();
        let lines = spawn_line_reader(process.stdout.take().expect("its standard output is a pipe"));
        let errors = spawn_line_reader(process.stderr.take().expect("its standard error is a pipe"));
        let mut wire = Self { process, input, lines, errors, stderr_lines: Vec::new() };
        match wire.lines.recv_timeout(TEST_TIMEOUT) {
            Ok(line) => assert_eq!(line, r#"{"ready":true}"#),
            Err(RecvTimeoutError::Timeout) => panic!("it neither gets ready nor ends"),
            Err(RecvTimeoutError::Disconnected) => {
                wire.process.wait().expect("it ends");
                return None;
            }
        }
        Some(wire)
    }

    /// Writes these bytes.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.input.as_mut().expect("the input is open").write_all(bytes.as_ref()).expect("it reads");
    }

    /// Writes a line.
    pub fn send_line(&mut self, line: &Value) {
        self.write(format!("{line}\n"));
    }

    /// The next line of its standard output.
    #[track_caller]
    pub fn recv_line(&mut self) -> Value {
        let line = self.lines.recv_timeout(TEST_TIMEOUT).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}"))
    }

    /// Asks, and gives the line that answers.
    #[track_caller]
    pub fn send_and_recv(&mut self, line: &Value) -> Value {
        self.send_line(line);
        self.recv_line()
    }

    /// Waits until its standard error says this.
    pub fn wait_for_stderr(&mut self, text: &str) {
        while !self.stderr_lines.iter().any(|line| line.contains(text)) {
            self.stderr_lines.push(self.errors.recv_timeout(TEST_TIMEOUT).expect("a complaint"));
        }
    }

    /// Which process it is.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        capstan_testing::send_signal(self.process.id(), name);
    }

    /// Ends its input and waits for its end.
    pub fn close(mut self) -> BinaryOutput {
        self.close_stdin();
        self.wait_for_exit()
    }

    /// Ends its input.
    pub fn close_stdin(&mut self) {
        self.input = None;
    }

    /// Waits for its end, and gives what it still said.
    pub fn wait_for_exit(mut self) -> BinaryOutput {
        let stdout: String = self.lines.iter().map(|line| line + "\n").collect();
        self.stderr_lines.extend(self.errors.iter());
        let code = self.process.wait().expect("it ends").code();
        BinaryOutput { stdout, stderr: self.stderr_lines.join("\n"), code }
    }
}

/// The lines of a pipe, as they come.
fn spawn_line_reader(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            if send.send(line.expect("it speaks UTF-8")).is_err() {
                return;
            }
        }
    });
    lines
}
