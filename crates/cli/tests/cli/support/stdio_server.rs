//! A `capstan serve --channel stdio` process and its pipes.

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
    /// Starts the server and waits until it is ready.
    pub fn start(fixture: &CliFixture) -> Self {
        Self::with_command(fixture.command(&["serve", "--channel", "stdio"]))
    }

    /// Starts a command and waits until it is ready.
    pub fn with_command(command: Command) -> Self {
        Self::start_if_ready(command).expect("the server becomes ready")
    }

    /// Starts a command and waits until it is ready; `None` if it exits before.
    pub fn start_if_ready(mut command: Command) -> Option<Self> {
        let mut process = command.stdin(Stdio::piped()).spawn().expect("the binary starts");
        let input = process.stdin.take();
        let lines = spawn_line_reader(process.stdout.take().expect("its standard output is a pipe"));
        let errors = spawn_line_reader(process.stderr.take().expect("its standard error is a pipe"));
        let mut server = Self { process, input, lines, errors, stderr_lines: Vec::new() };
        match server.lines.recv_timeout(TEST_TIMEOUT) {
            Ok(line) => assert_eq!(line, r#"{"ready":true}"#),
            Err(RecvTimeoutError::Timeout) => panic!("the server neither becomes ready nor exits"),
            Err(RecvTimeoutError::Disconnected) => {
                server.process.wait().expect("it ends");
                return None;
            }
        }
        Some(server)
    }

    /// Writes raw bytes.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.input.as_mut().expect("the input is open").write_all(bytes.as_ref()).expect("it reads");
    }

    /// Writes a line.
    pub fn send_line(&mut self, line: &Value) {
        self.write(format!("{line}\n"));
    }

    /// Writes a line; false if the process has ended.
    pub fn try_send_line(&mut self, line: &Value) -> bool {
        self.input.as_mut().expect("the input is open").write_all(format!("{line}\n").as_bytes()).is_ok()
    }

    /// Next line of standard output, if there is one within this time.
    pub fn try_recv_line(&mut self, timeout: std::time::Duration) -> Option<Value> {
        let line = self.lines.recv_timeout(timeout).ok()?;
        Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}")))
    }

    /// Next line of standard output.
    #[track_caller]
    pub fn recv_line(&mut self) -> Value {
        let line = self.lines.recv_timeout(TEST_TIMEOUT).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}"))
    }

    /// Writes a line and returns the reply.
    #[track_caller]
    pub fn send_and_recv(&mut self, line: &Value) -> Value {
        self.send_line(line);
        self.recv_line()
    }

    /// Waits until standard error contains this text.
    pub fn wait_for_stderr(&mut self, text: &str) {
        while !self.stderr_lines.iter().any(|line| line.contains(text)) {
            self.stderr_lines.push(self.errors.recv_timeout(TEST_TIMEOUT).expect("a line of standard error"));
        }
    }

    /// Process id.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        capstan_testing::send_signal(self.process.id(), name);
    }

    /// Closes standard input and waits for the exit.
    pub fn close(mut self) -> BinaryOutput {
        self.close_stdin();
        self.wait_for_exit()
    }

    /// Closes standard input.
    pub fn close_stdin(&mut self) {
        self.input = None;
    }

    /// Waits for the exit, and returns the remaining output.
    pub fn wait_for_exit(mut self) -> BinaryOutput {
        let stdout: String = self.lines.iter().map(|line| line + "\n").collect();
        self.stderr_lines.extend(self.errors.iter());
        let code = self.process.wait().expect("it ends").code();
        BinaryOutput { stdout, stderr: self.stderr_lines.join("\n"), code }
    }
}

/// Reads the lines of a pipe on a thread.
fn spawn_line_reader(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            if send.send(line.expect("UTF-8 output")).is_err() {
                return;
            }
        }
    });
    lines
}
