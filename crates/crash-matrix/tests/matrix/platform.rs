//! Platform of the tests: everything outside the host, which survives its death.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use capstan::protocol::{Event, OutboundMessage, Outcome};
use capstan_crash_matrix::HostReport;
use capstan_crash_matrix::channel::PlatformChannel;

/// Platform that listens on a socket.
pub struct FakePlatform {
    socket: PathBuf,
    state: SharedRecord,
    accept_thread: Option<JoinHandle<()>>,
}

type SharedRecord = Arc<Mutex<PlatformRecord>>;

/// Record of the platform.
#[derive(Default)]
pub struct PlatformRecord {
    /// Events offered to the host, in order.
    pub offered: Vec<PlatformEvent>,
    /// Messages sent by the host, in order.
    pub sent: Vec<PlatformMessage>,
    /// Replies to callers, in order.
    pub answers: Vec<CallerReply>,
    pub refused: Vec<String>,
    /// Number of open connections.
    pub connections: usize,
    channel_streams: HashMap<String, UnixStream>,
    is_stopped: bool,
}

/// Event for the host.
pub struct PlatformEvent {
    pub event: Event,
    /// The host has acknowledged the event.
    pub is_acknowledged: bool,
}

/// Message sent by the host.
#[derive(Debug, Clone)]
pub struct PlatformMessage {
    pub process: u32,
    pub message: OutboundMessage,
}

/// Reply to a waiting caller.
#[derive(Debug, Clone)]
pub struct CallerReply {
    pub process: u32,
    pub event: String,
    pub outcome: Outcome,
    pub texts: Vec<String>,
    pub duplicate: bool,
}

impl PlatformRecord {
    pub fn is_acknowledged(&self, id: &str) -> bool {
        self.offered.iter().any(|offered| offered.event.event_id.as_str() == id && offered.is_acknowledged)
    }

    pub fn is_answered(&self, id: &str) -> bool {
        self.answers.iter().any(|answer| answer.event == id)
    }

    /// Returns true if an event must be offered again: a chat has no acknowledgement, or a caller no reply.
    fn needs_offer(&self, offered: &PlatformEvent) -> bool {
        if offered.event.source.as_str() == PlatformChannel::CALLER_CHANNEL {
            !self.is_answered(offered.event.event_id.as_str())
        } else {
            !offered.is_acknowledged
        }
    }

    /// Sends all due events of a channel on its new connection.
    fn connect_channel(&mut self, channel: &str, stream: UnixStream) {
        let due =
            self.offered.iter().filter(|offered| offered.event.source.as_str() == channel && self.needs_offer(offered));
        due.for_each(|offered| write_event(&stream, &offered.event));
        self.channel_streams.insert(channel.to_owned(), stream);
    }
}

/// Writes an event; a dead host will get it again.
fn write_event(mut stream: &UnixStream, event: &Event) {
    let line = format!("{}\n", serde_json::to_string(event).expect("an event is JSON"));
    let _unread = stream.write_all(line.as_bytes());
}

impl FakePlatform {
    pub fn start(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).expect("a socket for the platform");
        let state = SharedRecord::default();
        let shared = Arc::clone(&state);
        let accept_thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut record = lock_record(&shared);
                if record.is_stopped {
                    return;
                }
                record.connections += 1;
                drop(record);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    read_reports(&stream, &shared);
                    lock_record(&shared).connections -= 1;
                });
            }
        });
        Self { socket: socket.to_owned(), state, accept_thread: Some(accept_thread) }
    }

    pub fn record(&self) -> MutexGuard<'_, PlatformRecord> {
        lock_record(&self.state)
    }

    /// Offers an event now, and again whenever the host restarts without having it.
    pub fn offer(&self, event: Event) {
        let mut record = self.record();
        if let Some(stream) = record.channel_streams.get(event.source.as_str()) {
            write_event(stream, &event);
        }
        record.offered.push(PlatformEvent { event, is_acknowledged: false });
    }
}

impl Drop for FakePlatform {
    fn drop(&mut self) {
        self.record().is_stopped = true;
        // Wakes the accepting thread.
        let _woken = UnixStream::connect(&self.socket);
        if let Some(accept_thread) = self.accept_thread.take() {
            accept_thread.join().expect("the platform does not panic");
        }
    }
}

/// Reads the reports of the host on a connection until it ends. An incomplete line is ignored.
fn read_reports(stream: &UnixStream, shared: &SharedRecord) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
        let report: HostReport = serde_json::from_str(&line).expect("a report of the host");
        line.clear();
        let mut record = lock_record(shared);
        match report {
            HostReport::Listening { channel } => {
                record.connect_channel(channel.as_str(), stream.try_clone().expect("another handle of the connection"));
                continue;
            }
            HostReport::Accepted { event_id } => {
                let matching = record.offered.iter_mut().filter(|offered| offered.event.event_id == event_id);
                matching.for_each(|offered| offered.is_acknowledged = true);
                continue;
            }
            HostReport::Refused { event_id, reason } => {
                record.refused.push(format!("{event_id}: {reason}"));
                continue;
            }
            HostReport::Message { process, message } => record.sent.push(PlatformMessage { process, message }),
            HostReport::Reply { process, event_id, outcome, texts, duplicate } => {
                record.answers.push(CallerReply { process, event: event_id.to_string(), outcome, texts, duplicate });
            }
        }
        drop(record);
        // A dead host does not see the acknowledgement.
        let _unread = (&mut &*stream).write_all(b"ok\n");
    }
}

fn lock_record(shared: &SharedRecord) -> MutexGuard<'_, PlatformRecord> {
    shared.lock().expect("no thread of the platform panicked")
}
