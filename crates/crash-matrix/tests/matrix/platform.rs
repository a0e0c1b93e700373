//! The platform: everything outside the host, which survives its death.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use capstan::protocol::{Event, Outbound, Outcome};
use capstan_crash_matrix::FromHost;
use capstan_crash_matrix::channel::Line;

/// A platform that listens on a socket.
pub struct Platform {
    socket: PathBuf,
    state: Shared,
    accepts: Option<JoinHandle<()>>,
}

type Shared = Arc<Mutex<Record>>;

/// What the platform knows.
#[derive(Default)]
pub struct Record {
    /// What was handed in, in order.
    pub offered: Vec<Offered>,
    /// What was sent, in order.
    pub sent: Vec<Sent>,
    /// Which callers were answered, in order.
    pub answers: Vec<Answered>,
    pub refused: Vec<String>,
    /// How many connections are open.
    pub connections: usize,
    listening: HashMap<String, UnixStream>,
    is_over: bool,
}

/// An event that somebody has for the host.
pub struct Offered {
    pub event: Event,
    /// The host said that it has it.
    pub is_acknowledged: bool,
}

/// A message that the host sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub process: u32,
    pub message: Outbound,
}

/// An answer to a caller that waited.
#[derive(Debug, Clone)]
pub struct Answered {
    pub process: u32,
    pub event: String,
    pub outcome: Outcome,
    pub texts: Vec<String>,
    pub duplicate: bool,
}

impl Record {
    pub fn is_acknowledged(&self, id: &str) -> bool {
        self.offered.iter().any(|offered| offered.event.event_id.as_str() == id && offered.is_acknowledged)
    }

    pub fn is_answered(&self, id: &str) -> bool {
        self.answers.iter().any(|answer| answer.event == id)
    }

    /// Whether somebody still wants the host to have an event: a chat that was not told so, a caller that was not
    /// answered.
    fn is_due(&self, offered: &Offered) -> bool {
        if offered.event.source.as_str() == Line::DESK {
            !self.is_answered(offered.event.event_id.as_str())
        } else {
            !offered.is_acknowledged
        }
    }

    /// Everything that is due on a channel goes to the connection that has just been made.
    fn listens(&mut self, channel: &str, stream: UnixStream) {
        let due =
            self.offered.iter().filter(|offered| offered.event.source.as_str() == channel && self.is_due(offered));
        due.for_each(|offered| hand_in(&stream, &offered.event));
        self.listening.insert(channel.to_owned(), stream);
    }
}

/// A host that is dead will be sent the event again.
fn hand_in(mut stream: &UnixStream, event: &Event) {
    let line = format!("{}\n", serde_json::to_string(event).expect("an event is JSON"));
    let _unheard = stream.write_all(line.as_bytes());
}

impl Platform {
    pub fn start(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).expect("a socket for the platform");
        let state = Shared::default();
        let shared = Arc::clone(&state);
        let accepts = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut record = lock(&shared);
                if record.is_over {
                    return;
                }
                record.connections += 1;
                drop(record);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    hear(&stream, &shared);
                    lock(&shared).connections -= 1;
                });
            }
        });
        Self { socket: socket.to_owned(), state, accepts: Some(accepts) }
    }

    pub fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.state)
    }

    /// Somebody says something. It is handed in now, and again whenever the host comes back without having it.
    pub fn offer(&self, event: Event) {
        let mut record = self.record();
        if let Some(stream) = record.listening.get(event.source.as_str()) {
            hand_in(stream, &event);
        }
        record.offered.push(Offered { event, is_acknowledged: false });
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.record().is_over = true;
        // Wakes the thread that accepts.
        let _woken = UnixStream::connect(&self.socket);
        if let Some(accepts) = self.accepts.take() {
            accepts.join().expect("the platform works to the end");
        }
    }
}

/// Hears what the host says on a connection, until it ends. Half a line was never said.
fn hear(stream: &UnixStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
        let said: FromHost = serde_json::from_str(&line).expect("the host says what the platform knows");
        line.clear();
        let mut record = lock(shared);
        match said {
            FromHost::Listens { channel } => {
                record.listens(channel.as_str(), stream.try_clone().expect("another handle of the connection"));
                continue;
            }
            FromHost::Accepted { event_id } => {
                let known = record.offered.iter_mut().filter(|offered| offered.event.event_id == event_id);
                known.for_each(|offered| offered.is_acknowledged = true);
                continue;
            }
            FromHost::Refused { event_id, reason } => {
                record.refused.push(format!("{event_id}: {reason}"));
                continue;
            }
            FromHost::Sends { process, message } => record.sent.push(Sent { process, message }),
            FromHost::Answers { process, event_id, outcome, texts, duplicate } => {
                record.answers.push(Answered { process, event: event_id.to_string(), outcome, texts, duplicate });
            }
        }
        drop(record);
        // A host that is dead does not know that it was heard.
        let _unheard = (&mut &*stream).write_all(b"ok\n");
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, Record> {
    shared.lock().expect("no thread of the platform panicked")
}
