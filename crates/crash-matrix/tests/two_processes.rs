//! Two processes on one home that answer in the same chat (X3): what was to be said first is said first.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use capstan::protocol::{Event, Outbound};
use capstan_crash_matrix::FromHost;
use capstan_crash_matrix::channel::Line;
use capstan_crash_matrix::place::Place;
use tempfile::TempDir;

/// No assertion: it only ends a test that would hang.
const TOO_LONG: Duration = Duration::from_mins(1);

/// A message that a process wants to send, and waits to hear that the chat has it.
struct Sending {
    process: u32,
    message: Outbound,
    connection: UnixStream,
}

impl Sending {
    fn arrives(mut self) {
        self.connection.write_all(b"ok\n").expect("the process waits for it");
    }

    fn text(&self) -> String {
        self.message.content.text()
    }
}

/// The platform, and the processes that listen to it.
struct World {
    folder: TempDir,
    listening: Receiver<UnixStream>,
    sending: Receiver<Sending>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["home", "workspace"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let listener = UnixListener::bind(Place::new(folder.path(), 0).socket()).expect("a socket");
        let (listens, listening) = channel();
        let (sends, sending) = channel();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (listens, sends) = (listens.clone(), sends.clone());
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(connection.try_clone().expect("a handle")).lines();
                    while let Some(Ok(line)) = lines.next() {
                        match serde_json::from_str(&line).expect("what a host says") {
                            FromHost::Listens { channel } if channel.as_str() == Line::WIRE => {
                                listens.send(connection.try_clone().expect("a handle")).expect("the test is there");
                            }
                            FromHost::Sends { process, message } => {
                                let connection = connection.try_clone().expect("a handle");
                                // After its end a test hears nothing more.
                                let _unheard = sends.send(Sending { process, message, connection });
                            }
                            _ => {}
                        }
                    }
                });
            }
        });
        Self { folder, listening, sending }
    }

    /// Starts a process and waits until it listens.
    fn start(&self, process: u32) -> Process {
        let root = self.folder.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_crash-host"));
        command.current_dir(root.join("workspace")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", root.join("user"));
        command.env("CAPSTAN_HOME", root.join("home")).env("CAPSTAN_MODEL", "demo:echo");
        command.env(Place::VARIABLE, root).env(Place::PROCESS, process.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let wire = self.listening.recv_timeout(TOO_LONG).expect("the process listens");
        Process { child: child.expect("the host can be started"), wire }
    }

    #[track_caller]
    fn next(&self) -> Sending {
        self.sending.recv_timeout(TOO_LONG).expect("a message is sent")
    }
}

struct Process {
    child: Child,
    wire: UnixStream,
}

impl Process {
    /// Somebody says something in a session, and is answered in a chat.
    fn hears(&mut self, session: &str, chat: &str) {
        let event = Event { session_id: Some(session.into()), ..Event::message(Line::WIRE, chat, session) };
        let line = format!("{}\n", serde_json::to_string(&event).expect("an event is JSON"));
        self.wire.write_all(line.as_bytes()).expect("the process reads");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child");
    }
}

#[test]
fn x03_a_message_waits_for_an_earlier_one_of_another_process_to_the_same_chat() {
    let world = World::new();
    let (mut one, mut two) = (world.start(1), world.start(2));
    one.hears("first", "shared");
    let first = world.next();
    assert_eq!((first.process, first.text().contains("first")), (1, true));
    two.hears("second", "shared");
    // Said to the same process after it, and answered elsewhere: by then the second would have been sent.
    two.hears("third", "its own");
    let third = world.next();
    assert_eq!((third.process, third.message.chat_id.as_str()), (2, "its own"), "{}", third.text());
    third.arrives();
    two.hears("fourth", "its own");
    let fourth = world.next();
    assert_eq!(fourth.message.chat_id.as_str(), "its own", "{}", fourth.text());
    fourth.arrives();
    first.arrives();
    let second = world.next();
    assert_eq!((second.process, second.text().contains("second")), (2, true));
    second.arrives();
}

#[test]
fn x03_what_a_process_left_when_it_died_goes_before_what_another_has_to_say_to_the_chat() {
    let world = World::new();
    let (mut one, mut two) = (world.start(1), world.start(2));
    one.hears("first", "shared");
    let first = world.next();
    two.hears("second", "shared");
    two.hears("third", "its own");
    world.next().arrives();
    drop(one);
    drop(first);
    let again = world.next();
    assert_eq!((again.process, again.text().contains("first")), (2, true), "{}", again.text());
    assert!(again.message.is_possible_duplicate());
    again.arrives();
    let second = world.next();
    assert!(second.text().contains("second") && !second.message.is_possible_duplicate());
    second.arrives();
}
