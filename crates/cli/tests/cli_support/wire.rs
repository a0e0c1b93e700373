//! `capstan serve --channel stdio`, and whoever speaks with it over pipes.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use serde_json::Value;

use super::{Place, Said, TOO_LONG};

/// A process that serves `stdio`.
pub struct Wire {
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    complaints: Vec<String>,
}

impl Wire {
    /// Starts it and waits until it is ready.
    pub fn start(place: &Place) -> Self {
        Self::of(place.command(&["serve", "--channel", "stdio"]))
    }

    /// Starts this and waits until it is ready.
    pub fn of(command: Command) -> Self {
        Self::if_ready(command).expect("it gets ready")
    }

    /// Starts this and waits until it is ready; nothing when it ends before.
    pub fn if_ready(mut command: Command) -> Option<Self> {
        let mut process = command.stdin(Stdio::piped()).spawn().expect("the binary starts");
        let input = process.stdin.take();
        let lines = lines_of(process.stdout.take().expect("its standard output is a pipe"));
        let errors = lines_of(process.stderr.take().expect("its standard error is a pipe"));
        let mut wire = Self { process, input, lines, errors, complaints: Vec::new() };
        match wire.lines.recv_timeout(TOO_LONG) {
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
    pub fn ask(&mut self, line: &Value) {
        self.write(format!("{line}\n"));
    }

    /// The next line of its standard output.
    #[track_caller]
    pub fn line(&mut self) -> Value {
        let line = self.lines.recv_timeout(TOO_LONG).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("no JSON ({error}): {line}"))
    }

    /// Asks, and gives the line that answers.
    #[track_caller]
    pub fn answer_to(&mut self, line: &Value) -> Value {
        self.ask(line);
        self.line()
    }

    /// Waits until its standard error says this.
    pub fn complains_of(&mut self, text: &str) {
        while !self.complaints.iter().any(|line| line.contains(text)) {
            self.complaints.push(self.errors.recv_timeout(TOO_LONG).expect("a complaint"));
        }
    }

    /// Which process it is.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Ends its input and waits for its end.
    pub fn end(mut self) -> Said {
        self.end_input();
        self.ended()
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        self.input = None;
    }

    /// Waits for its end, and gives what it still said.
    pub fn ended(mut self) -> Said {
        let stdout: String = self.lines.iter().map(|line| line + "\n").collect();
        self.complaints.extend(self.errors.iter());
        let code = self.process.wait().expect("it ends").code();
        Said { stdout, stderr: self.complaints.join("\n"), code }
    }
}

/// The lines of a pipe, as they come.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
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
