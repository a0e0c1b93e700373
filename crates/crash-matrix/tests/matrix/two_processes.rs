//! X3: two processes with one home that reply to the same chat keep the order of messages.

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

/// Not an assertion: ends a test that would hang.
const MESSAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Message of a process that waits for its acknowledgement.
struct PendingSend {
    process: u32,
    message: OutboundMessage,
    connection: UnixStream,
}

impl PendingSend {
    fn acknowledge(mut self) {
        self.connection.write_all(b"ok\n").expect("the process waits for the acknowledgement");
    }

    fn text(&self) -> String {
        self.message.content.text()
    }
}

/// Platform and the processes connected to it.
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
        let (stream_sender, chat_streams) = channel();
        let (send_sender, pending_sends) = channel();
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (stream_sender, send_sender) = (stream_sender.clone(), send_sender.clone());
                std::thread::spawn(move || {
                    let mut lines = BufReader::new(connection.try_clone().expect("a handle")).lines();
                    while let Some(Ok(line)) = lines.next() {
                        match serde_json::from_str(&line).expect("a report of the host") {
                            HostReport::Listening { channel } if channel.as_str() == PlatformChannel::CHAT_CHANNEL => {
                                stream_sender
                                    .send(connection.try_clone().expect("a handle"))
                                    .expect("the test is there");
                            }
                            HostReport::Message { process, message } => {
                                let connection = connection.try_clone().expect("a handle");
                                // The test may have ended.
                                let _unread = send_sender.send(PendingSend { process, message, connection });
                            }
                            _ => {}
                        }
                    }
                });
            }
        });
        Self { folder, chat_streams, pending_sends }
    }

    /// Starts a process and waits until its channel listens.
    fn start(&self, process: u32) -> HostProcess {
        let root = self.folder.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_crash-host"));
        command.current_dir(root.join("workspace")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", root.join("user"));
        command.env("CAPSTAN_HOME", root.join("home")).env("CAPSTAN_MODEL", "demo:echo");
        command.env(TrialDir::DIR_VARIABLE, root).env(TrialDir::PROCESS_VARIABLE, process.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let chat_stream = self.chat_streams.recv_timeout(MESSAGE_TIMEOUT).expect("the process listens");
        HostProcess { child: child.expect("the host can be started"), chat_stream }
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
    /// Sends a message in a session, to be answered in a chat.
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
fn x03_message_waits_for_an_earlier_one_of_another_process_in_its_chat() {
    let fixture = TwoProcessFixture::new();
    let (mut one, mut two) = (fixture.start(1), fixture.start(2));
    one.send_message("first", "shared");
    let first = fixture.next_send();
    assert_eq!((first.process, first.text().contains("first")), (1, true));
    two.send_message("second", "shared");
    // Sent to the same process later, and answered in another chat: by then the second reply would have been sent.
    two.send_message("third", "its own");
    let third = fixture.next_send();
    assert_eq!((third.process, third.message.chat_id.as_str()), (2, "its own"), "{}", third.text());
    third.acknowledge();
    two.send_message("fourth", "its own");
    let fourth = fixture.next_send();
    assert_eq!(fourth.message.chat_id.as_str(), "its own", "{}", fourth.text());
    fourth.acknowledge();
    first.acknowledge();
    let second = fixture.next_send();
    assert_eq!((second.process, second.text().contains("second")), (2, true));
    second.acknowledge();
}

#[test]
fn x03_orphaned_message_of_a_dead_process_is_sent_first() {
    let fixture = TwoProcessFixture::new();
    let (mut one, mut two) = (fixture.start(1), fixture.start(2));
    one.send_message("first", "shared");
    let first = fixture.next_send();
    two.send_message("second", "shared");
    two.send_message("third", "its own");
    fixture.next_send().acknowledge();
    drop(one);
    drop(first);
    let resent = fixture.next_send();
    assert_eq!((resent.process, resent.text().contains("first")), (2, true), "{}", resent.text());
    assert!(resent.message.is_possible_duplicate());
    resent.acknowledge();
    let second = fixture.next_send();
    assert!(second.text().contains("second") && !second.message.is_possible_duplicate());
    second.acknowledge();
}
