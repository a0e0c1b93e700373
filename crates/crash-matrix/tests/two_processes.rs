//! Two processes on one home that answer in the same chat (X3): what was to be said first is said first.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use capstan::protocol::{Event, OutboundMessage};
use capstan_crash_matrix::HostReport;
use capstan_crash_matrix::channel::PlatformChannel;
use capstan_crash_matrix::trial_dir::TrialDir;
use tempfile::TempDir;

/// No assertion: it only ends a test that would hang.
const MESSAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// A message that a process wants to send, and waits to hear that the chat has it.
struct PendingSend {
    process: u32,
    message: OutboundMessage,
    connection: UnixStream,
}

impl PendingSend {
    fn acknowledge(mut self) {
        self.connection.write_all(b"ok\n").expect("the process waits for it");
    }

    fn text(&self) -> String {
        self.message.content.text()
    }
}

/// The platform, and the processes that listen to it.
struct TwoProcessFixture {
    folder: TempDir,
    chat_streams: Receiver<UnixStream>,
    pending_sends: Receiver<PendingSend>,
}

impl TwoProcessFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["home", "workspace"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let listener = UnixListener::bind(TrialDir::new(folder.path(), 0).socket_path()).expect("a socket");
        let (listens, listening) = channel();
        let (sends, sending) = channel();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (listens, sends) = (listens.clone(), sends.clone());
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(connection.try_clone().expect("a handle")).lines();
                    while let Some(Ok(line)) = lines.next() {
                        match serde_json::from_str(&line).expect("what a host says") {
                            HostReport::Listens { channel } if channel.as_str() == PlatformChannel::CHAT_CHANNEL => {
                                listens.send(connection.try_clone().expect("a handle")).expect("the test is there");
                            }
                            HostReport::Sends { process, message } => {
                                let connection = connection.try_clone().expect("a handle");
                                // After its end a test hears nothing more.
                                let _unheard = sends.send(PendingSend { process, message, connection });
                            }
                            _ => {}
                        }
                    }
                });
            }
        });
        Self { folder, chat_streams: listening, pending_sends: sending }
    }

    /// Starts a process and waits until it listens.
    fn start(&self, process: u32) -> HostProcess {
        let root = self.folder.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_crash-host"));
        command.current_dir(root.join("workspace")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", root.join("user"));
        command.env("CAPSTAN_HOME", root.join("home")).env("CAPSTAN_MODEL", "demo:echo");
        command.env(TrialDir::DIR_VARIABLE, root).env(TrialDir::PROCESS_VARIABLE, process.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let wire = self.chat_streams.recv_timeout(MESSAGE_TIMEOUT).expect("the process listens");
        HostProcess { child: child.expect("the host can be started"), chat_stream: wire }
    }

    #[track_caller]
    fn next_send(&self) -> PendingSend {
        self.pending_sends.recv_timeout(MESSAGE_TIMEOUT).expect("a message is sent")
    }
}

struct HostProcess {
    child: Child,
    chat_stream: UnixStream,
}

impl HostProcess {
    /// Somebody says something in a session, and is answered in a chat.
    fn send_message(&mut self, session: &str, chat: &str) {
        let event =
            Event { session_id: Some(session.into()), ..Event::message(PlatformChannel::CHAT_CHANNEL, chat, session) };
        let line = format!("{}\n", serde_json::to_string(&event).expect("an event is JSON"));
        self.chat_stream.write_all(line.as_bytes()).expect("the process reads");
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child");
    }
}

#[test]
fn x03_a_message_waits_for_an_earlier_one_of_another_process_to_the_same_chat() {
    let world = TwoProcessFixture::new();
    let (mut one, mut two) = (world.start(1), world.start(2));
    one.send_message("first", "shared");
    let first = world.next_send();
    assert_eq!((first.process, first.text().contains("first")), (1, true));
    two.send_message("second", "shared");
    // Said to the same process after it, and answered elsewhere: by then the second would have been sent.
    two.send_message("third", "its own");
    let third = world.next_send();
    assert_eq!((third.process, third.message.chat_id.as_str()), (2, "its own"), "{}", third.text());
    third.acknowledge();
    two.send_message("fourth", "its own");
    let fourth = world.next_send();
    assert_eq!(fourth.message.chat_id.as_str(), "its own", "{}", fourth.text());
    fourth.acknowledge();
    first.acknowledge();
    let second = world.next_send();
    assert_eq!((second.process, second.text().contains("second")), (2, true));
    second.acknowledge();
}

#[test]
fn x03_what_a_process_left_when_it_died_goes_before_what_another_has_to_say_to_the_chat() {
    let world = TwoProcessFixture::new();
    let (mut one, mut two) = (world.start(1), world.start(2));
    one.send_message("first", "shared");
    let first = world.next_send();
    two.send_message("second", "shared");
    two.send_message("third", "its own");
    world.next_send().acknowledge();
    drop(one);
    drop(first);
    let again = world.next_send();
    assert_eq!((again.process, again.text().contains("first")), (2, true), "{}", again.text());
    assert!(again.message.is_possible_duplicate());
    again.acknowledge();
    let second = world.next_send();
    assert!(second.text().contains("second") && !second.message.is_possible_duplicate());
    second.acknowledge();
}
