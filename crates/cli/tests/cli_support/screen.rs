//! The binary at a real terminal, and what a person would see there.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// How long something may take to be seen, on a machine that has much else to do.
const SCREEN_TIMEOUT: Duration = Duration::from_mins(2);
/// How much of what scrolled away is remembered, in rows.
const SCROLLBACK_ROWS: usize = 2000;

pub const CTRL_C: &str = "\u{3}";
pub const CTRL_D: &str = "\u{4}";
pub const ENTER: &str = "\r";

/// The binary at a terminal of its own.
pub struct TerminalSession {
    terminal: File,
    /// The binary's side, kept open so that it can be looked at after the end.
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
        // Whoever had this side too would never see the terminal close.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal: OwnedFd = openpt(flags).expect("a terminal");
        grantpt(&terminal).expect("a terminal of one's own");
        unlockpt(&terminal).expect("a terminal that can be opened");
        let name = ptsname(&terminal, Vec::new()).expect("its name").into_string().expect("a name in UTF-8");
        resize(&terminal, columns, rows);
        let other_side = OpenOptions::new().read(true).write(true).open(name).expect("its other side");
        let side = || Stdio::from(other_side.try_clone().expect("its other side once more"));
        // It becomes the command, with the terminal as the one that controls it.
        let mut started = Command::new("setsid");
        started.arg("--ctty").arg(command.get_program()).args(command.get_args());
        started.env_clear().env("TERM", "xterm-256color");
        started.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        started.current_dir(command.get_current_dir().expect("a workspace"));
        let child = started.stdin(side()).stdout(side()).stderr(side()).spawn().expect("it starts");
        let parser = vt100::Parser::new(non_zero(rows), non_zero(columns), SCROLLBACK_ROWS);
        let seen = Arc::new((Mutex::new(TerminalOutput { parser, raw: Vec::new() }), Condvar::new()));
        let terminal = File::from(terminal);
        spawn_reader(terminal.try_clone().expect("the terminal once more"), Arc::clone(&seen));
        Self { terminal, pty_peer: other_side, child, output: seen }
    }

    /// Types.
    pub fn send(&self, keys: &str) {
        (&self.terminal).write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Types a message and sends it, when there is a prompt.
    pub fn say(&self, text: &str) {
        self.wait("a prompt", |screen| screen.lines().any(|line| line.starts_with('›')));
        self.send(text);
        // Sent as one with its end it could be taken for something that was pasted.
        self.send(ENTER);
    }

    /// Makes the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.output.0.lock().unwrap().parser.screen_mut().set_size(non_zero(rows), non_zero(columns));
        resize(&self.terminal, columns, rows);
    }

    /// Waits until the screen is like this, and gives it.
    #[track_caller]
    pub fn wait(&self, what: &str, is_seen: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + SCREEN_TIMEOUT;
        let mut seen = self.output.0.lock().unwrap();
        loop {
            let contents = seen.parser.screen().contents();
            if is_seen(&contents) {
                return contents;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} was not seen:\n{contents}");
            seen = self.output.1.wait_timeout(seen, left).unwrap().0;
        }
    }

    /// Waits until this text is seen, and gives the screen.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Everything that was written to the terminal, as it was.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.output.0.lock().unwrap().raw).into_owned()
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end, and gives the exit code. The terminal must be as it was found.
    #[track_caller]
    pub fn wait_for_exit(mut self) -> Option<i32> {
        let status = self.child.wait().expect("it ends");
        let modes = tcgetattr(&self.pty_peer).expect("the terminal is there").local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "the terminal is left as it was found");
        status.code()
    }

    /// Ends it as nobody can refuse.
    pub fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

impl Drop for TerminalSession {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; one that did not has seen the end.
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

/// Takes in what is written for as long as the terminal is there.
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
