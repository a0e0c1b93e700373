//! The binary at a pseudo-terminal, with an emulated screen.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Timeout for expected output, generous enough for a busy machine.
const SCREEN_TIMEOUT: Duration = Duration::from_mins(2);
/// Rows of scrollback.
const SCROLLBACK_ROWS: usize = 2000;

pub const CTRL_C: &str = "\u{3}";
pub const CTRL_D: &str = "\u{4}";
pub const ENTER: &str = "\r";

/// The binary at its own pseudo-terminal.
pub struct TerminalSession {
    terminal: File,
    /// Side of the binary, kept open so that its modes can be checked after the exit.
    pty_peer: File,
    child: Child,
    output: Arc<(Mutex<TerminalOutput>, Condvar)>,
}

struct TerminalOutput {
    parser: vt100::Parser,
    raw: Vec<u8>,
}

impl TerminalSession {
    /// Starts a command at a terminal of this size.
    pub fn open(command: &Command, columns: u16, rows: u16) -> Self {
        // The child must not inherit this side, or it would never see the terminal close.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal: OwnedFd = openpt(flags).expect("a terminal");
        grantpt(&terminal).expect("access to the terminal");
        unlockpt(&terminal).expect("a terminal that can be opened");
        let name = ptsname(&terminal, Vec::new()).expect("its name").into_string().expect("a name in UTF-8");
        resize(&terminal, columns, rows);
        let pty_peer = OpenOptions::new().read(true).write(true).open(name).expect("its other side");
        let side = || Stdio::from(pty_peer.try_clone().expect("a duplicate of its other side"));
        // `setsid` executes the command with the terminal as its controlling terminal.
        let mut started = Command::new("setsid");
        started.arg("--ctty").arg(command.get_program()).args(command.get_args());
        started.env_clear().env("TERM", "xterm-256color");
        started.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        started.current_dir(command.get_current_dir().expect("a workspace"));
        let child = started.stdin(side()).stdout(side()).stderr(side()).spawn().expect("it starts");
        let parser = vt100::Parser::new(non_zero(rows), non_zero(columns), SCROLLBACK_ROWS);
        let output = Arc::new((Mutex::new(TerminalOutput { parser, raw: Vec::new() }), Condvar::new()));
        let terminal = File::from(terminal);
        spawn_reader(terminal.try_clone().expect("a duplicate of the terminal"), Arc::clone(&output));
        Self { terminal, pty_peer, child, output }
    }

    /// Types keys.
    pub fn send(&self, keys: &str) {
        (&self.terminal).write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Waits for a prompt, types a message and sends it.
    pub fn say(&self, text: &str) {
        self.wait("a prompt", |screen| screen.lines().any(|line| line.starts_with('›')));
        self.send(text);
        // Separate from the text, or it could be taken for pasted text.
        self.send(ENTER);
    }

    /// Resizes the terminal.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.output.0.lock().unwrap().parser.screen_mut().set_size(non_zero(rows), non_zero(columns));
        resize(&self.terminal, columns, rows);
    }

    /// Waits until the screen satisfies a condition, and returns it.
    #[track_caller]
    pub fn wait(&self, what: &str, is_seen: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + SCREEN_TIMEOUT;
        let mut seen = self.output.0.lock().unwrap();
        loop {
            let contents = seen.parser.screen().contents();
            if is_seen(&contents) {
                return contents;
            }
            let remaining = end.saturating_duration_since(Instant::now());
            assert!(!remaining.is_zero(), "{what} did not appear:\n{contents}");
            seen = self.output.1.wait_timeout(seen, remaining).unwrap().0;
        }
    }

    /// Waits until this text appears, and returns the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// All bytes written to the terminal.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.output.0.lock().unwrap().raw).into_owned()
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the exit, asserts that the terminal modes are restored, and returns the exit code.
    #[track_caller]
    pub fn wait_for_exit(mut self) -> Option<i32> {
        let status = self.child.wait().expect("it ends");
        let modes = tcgetattr(&self.pty_peer).expect("terminal modes").local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "the terminal modes are restored");
        status.code()
    }

    /// Kills the process with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

impl Drop for TerminalSession {
    fn drop(&mut self) {
        // A failed test must not leave the process behind; otherwise it has already ended.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

fn non_zero(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a terminal has rows and columns")
}

fn resize(terminal: &impl std::os::fd::AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("the terminal takes another size");
}

/// Reads the output of the terminal on a thread, until the terminal closes.
fn spawn_reader(mut terminal: File, seen: Arc<(Mutex<TerminalOutput>, Condvar)>) {
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = terminal.read(&mut bytes) {
            let mut now = seen.0.lock().unwrap();
            now.parser.process(&bytes[..count]);
            now.raw.extend_from_slice(&bytes[..count]);
            seen.1.notify_all();
        }
    });
}
