use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Lines, PipeReader, PipeWriter, Write as _, pipe};
use std::sync::Arc;

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{Channel as _, ChannelError, ChannelErrorKind, ChannelReply, Gateway, IntakeError};
use capstan_protocol::{ErrorCode, OutboundMessage, Outcome, RunId, StreamEvent};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::{Options, StdioChannel, StdioStreams};

const TEST_LINE_LIMIT_BYTES: usize = 100_000;

/// Gateway that forwards events to the test and refuses those with a certain text.
struct RecordingGateway(mpsc::UnboundedSender<InboundEvent>);

impl Gateway for RecordingGateway {
    fn submit(&self, event: InboundEvent) -> BoxFuture<'static, Result<(), IntakeError>> {
        let refused = event.input.plain_text() == "refuse me";
        if !refused {
            self.0.send(event).unwrap();
        }
        Box::pin(async move {
            // A pending submission must not delay the next one.
            tokio::task::yield_now().await;
            if refused {
                Err(IntakeError { code: ErrorCode::QueueFull, message: "too many".to_owned() })
            } else {
                Ok(())
            }
        })
    }
}

/// Channel between a caller and a host, both played by the test.
struct StdioHarness {
    stdio: StdioChannel,
    channel_task: JoinHandle<Result<(), ChannelError>>,
    submitted: mpsc::UnboundedReceiver<InboundEvent>,
    input: Option<PipeWriter>,
    output: Option<Lines<BufReader<PipeReader>>>,
}

impl StdioHarness {
    fn new() -> Self {
        let (read, input) = pipe().unwrap();
        let (output, write) = pipe().unwrap();
        let streams = StdioStreams { input: Box::new(read), output: Box::new(write) };
        let stdio = StdioChannel::new(streams, Options { max_line_bytes: TEST_LINE_LIMIT_BYTES });
        let (sender, submitted) = mpsc::unbounded_channel();
        let channel_task = tokio::spawn({
            let stdio = stdio.clone();
            async move { stdio.start(Arc::new(RecordingGateway(sender))).await }
        });
        let output = Some(BufReader::new(output).lines());
        let mut wire = Self { stdio, channel_task, submitted, input: Some(input), output };
        assert_eq!(wire.read_line(), json!({"ready": true}));
        wire
    }

    fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.input.as_mut().unwrap().write_all(bytes.as_ref()).unwrap();
    }

    fn write_json(&mut self, line: &Value) {
        self.write(format!("{line}\n"));
    }

    /// Next output line. Blocks, so the channel needs a thread besides the test's.
    fn read_line(&mut self) -> Value {
        let line = tokio::task::block_in_place(|| self.output.as_mut().unwrap().next());
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    async fn submitted(&mut self) -> InboundEvent {
        self.submitted.recv().await.unwrap()
    }

    async fn settle(&self, event: &InboundEvent, outcome: Outcome) -> Result<(), ChannelError> {
        let session = event.session_id.clone().unwrap();
        let reply = ChannelReply {
            event: event.clone(),
            session,
            outcome,
            run_id: None,
            messages: Vec::new(),
            command_error: None,
            is_duplicate: false,
        };
        self.stdio.reply(&reply).await
    }

    async fn reply(&self, event: &InboundEvent, text: &str) {
        self.settle(event, Outcome::Replied { text: text.to_owned() }).await.unwrap();
    }

    fn end_input(&mut self) {
        self.input = None;
    }

    async fn wait_ended(self) -> Result<(), ChannelError> {
        self.channel_task.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_line_is_answered_under_its_id() {
    let mut wire = StdioHarness::new();
    wire.write_json(&json!({"id": {"n": 1}, "session": "s", "text": "hello"}));
    let event = wire.submitted().await;
    assert_eq!((event.chat_id().as_str(), event.input.plain_text()), ("s", "hello"));
    wire.reply(&event, "hi\nthere").await;
    assert_eq!(wire.read_line(), json!({"id": {"n": 1}, "session": "s", "text": "hi\nthere", "outcome": "replied"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_delayed_outcome_is_announced_and_printed_later() {
    let mut wire = StdioHarness::new();
    wire.write_json(&json!({"id": 1, "session": "s", "text": "hello"}));
    let event = wire.submitted().await;
    let reason = IntakeError { code: ErrorCode::DiskFull, message: "no room".to_owned() };
    wire.stdio.notify_delayed(&event, &reason).await.unwrap();
    assert_eq!(
        wire.read_line(),
        json!({
            "id": 1, "session": "s",
            "delayed": {"code": "disk-full", "message": "no room", "hint": ErrorCode::DiskFull.hint()},
        })
    );
    wire.reply(&event, "hi").await;
    assert_eq!(wire.read_line()["outcome"], "replied");
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_every_outcome_is_printed() {
    let mut wire = StdioHarness::new();
    let run_id = RunId::new("run-1");
    let outcomes = [
        (
            Outcome::Failed { notice: "no model".to_owned(), code: None },
            json!({"outcome": "failed", "text": "no model", "error": {"code": "run-failed", "message": "no model"}}),
        ),
        (Outcome::Silent, json!({"outcome": "silent", "text": ""})),
        (Outcome::Dropped, json!({"outcome": "dropped", "text": ""})),
        (Outcome::Cancelled, json!({"outcome": "cancelled", "text": ""})),
        (Outcome::Folded { run_id }, json!({"outcome": "folded", "text": "", "run_id": "run-1"})),
    ];
    for (outcome, mut expected) in outcomes {
        wire.write_json(&json!({"id": 1, "session": "s", "text": "hello"}));
        let event = wire.submitted().await;
        wire.settle(&event, outcome).await.unwrap();
        expected["id"] = json!(1);
        expected["session"] = json!("s");
        assert_eq!(wire.read_line(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x03_repeated_answer_is_marked_as_duplicate_and_names_its_run() {
    let mut wire = StdioHarness::new();
    wire.write_json(&json!({"id": 2, "session": "s", "text": "hello", "event_id": "e"}));
    let event = wire.submitted().await;
    let reply = ChannelReply {
        session: "s".into(),
        outcome: Outcome::Replied { text: "then".to_owned() },
        run_id: Some("run-1".into()),
        messages: vec![OutboundMessage::reply_to(&event, "s".into(), "then")],
        command_error: None,
        is_duplicate: true,
        event,
    };
    wire.stdio.reply(&reply).await.unwrap();
    let expected =
        json!({"id": 2, "session": "s", "text": "then", "outcome": "replied", "run_id": "run-1", "duplicate": true});
    assert_eq!(wire.read_line(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_stream_events_are_printed_only_on_request() {
    let mut wire = StdioHarness::new();
    wire.write_json(&json!({"id": "quiet", "session": "a", "text": "hello"}));
    wire.write_json(&json!({"id": "loud", "session": "b", "text": "hello", "stream": true}));
    for _ in 0..2 {
        let event = wire.submitted().await;
        wire.stdio.on_stream_event(&StreamEvent::text("hi"), &event).await.unwrap();
        wire.reply(&event, "hi").await;
    }
    assert_eq!(wire.read_line()["id"], "quiet");
    let event = json!({"type": "text", "delta": "hi"});
    assert_eq!(wire.read_line(), json!({"id": "loud", "session": "b", "event": event}));
    assert_eq!(wire.read_line()["outcome"], "replied");
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_message_that_answers_no_line_has_no_outcome() {
    let mut wire = StdioHarness::new();
    let event = capstan_protocol::Event::message("elsewhere", "1", "x");
    wire.stdio.send(&OutboundMessage::notice(&event, "s".into(), "by the way")).await.unwrap();
    assert_eq!(wire.read_line(), json!({"id": null, "session": "s", "text": "by the way", "kind": "notice"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_refused_line_is_reported_with_its_number_and_reading_continues() {
    let mut wire = StdioHarness::new();
    wire.write("\nno json\n");
    let error = json!({"code": "line-not-json", "message": "the line is not valid JSON: expected ident at column 2"});
    let mut expected = json!({"id": null, "line": 2, "error": error});
    expected["error"]["hint"] = json!(ErrorCode::LineNotJson.hint());
    assert_eq!(wire.read_line(), expected);
    wire.write_json(&json!({"id": 3, "session": "s", "text": "refuse me"}));
    let error = json!({"code": "queue-full", "message": "too many", "hint": ErrorCode::QueueFull.hint()});
    assert_eq!(wire.read_line(), json!({"id": 3, "line": 3, "error": error}));
    wire.write(format!("{}\n", "x".repeat(TEST_LINE_LIMIT_BYTES + 1)));
    assert_eq!(wire.read_line()["error"]["code"], "line-too-long");
    wire.write(r#"{"id":5,"session":"s","text":"without an end of the line"}"#);
    wire.end_input();
    let event = wire.submitted().await;
    wire.reply(&event, "taken").await;
    assert_eq!(wire.read_line()["text"], "taken");
    wire.wait_ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_reading_does_not_wait_for_turns_and_keeps_the_order() {
    let mut wire = StdioHarness::new();
    for n in 0..500 {
        wire.write_json(&json!({"id": n, "session": format!("s{}", n % 7), "text": "hello"}));
    }
    for n in 0..500 {
        assert_eq!(wire.submitted().await.chat_id().as_str(), format!("s{}", n % 7));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_reading_pauses_while_too_many_lines_are_unanswered() {
    const MAX_UNANSWERED_LINES: usize = 4096;
    const EXTRA_LINES: usize = 300;
    let mut wire = StdioHarness::new();
    let mut input = wire.input.take().unwrap();
    let writing = std::thread::spawn(move || {
        for n in 0..MAX_UNANSWERED_LINES + EXTRA_LINES {
            writeln!(input, "{}", json!({"id": n, "session": "s", "text": "hello"})).unwrap();
        }
    });
    let mut unanswered = VecDeque::new();
    for _ in 0..MAX_UNANSWERED_LINES {
        unanswered.push_back(wire.submitted().await);
    }
    for _ in 0..EXTRA_LINES {
        assert!(wire.submitted.is_empty(), "the budget of unanswered lines is used up");
        let event = unanswered.pop_front().unwrap();
        wire.reply(&event, "ok").await;
        wire.read_line();
        unanswered.push_back(wire.submitted().await);
    }
    writing.join().unwrap();
    drop(unanswered);
    wire.wait_ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_end_of_input_waits_for_unanswered_lines() {
    let mut wire = StdioHarness::new();
    wire.write_json(&json!({"id": 1, "session": "a", "text": "hello"}));
    wire.write_json(&json!({"id": 2, "session": "b", "text": "hello"}));
    wire.end_input();
    let (first, second) = (wire.submitted().await, wire.submitted().await);
    wire.reply(&second, "two").await;
    assert!(!wire.channel_task.is_finished(), "one line is unanswered");
    wire.reply(&first, "one").await;
    assert_eq!((wire.read_line()["id"].clone(), wire.read_line()["id"].clone()), (json!(2), json!(1)));
    wire.wait_ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn x03_event_dropped_without_an_answer_does_not_block_the_end() {
    let mut wire = StdioHarness::new();
    wire.write_json(&json!({"id": 1, "session": "a", "text": "hello"}));
    wire.end_input();
    drop(wire.submitted().await);
    wire.wait_ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c01_stopped_channel_reads_no_more_and_answers_accepted_lines() {
    let mut wire = StdioHarness::new();
    wire.write_json(&json!({"id": 1, "session": "a", "text": "hello"}));
    let event = wire.submitted().await;
    wire.stdio.stop().await.unwrap();
    // The reader thread may still read this line, but it is not submitted.
    wire.write_json(&json!({"id": 2, "session": "a", "text": "too late"}));
    assert!(!wire.channel_task.is_finished());
    wire.reply(&event, "in time").await;
    assert_eq!(wire.read_line()["text"], "in time");
    assert!(wire.submitted.try_recv().is_err());
    wire.wait_ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn x03_closed_output_ends_the_channel_and_fails_replies_permanently() {
    let mut wire = StdioHarness::new();
    wire.write_json(&json!({"id": 1, "session": "a", "text": "hello"}));
    wire.write_json(&json!({"id": 2, "session": "b", "text": "hello"}));
    let (first, second) = (wire.submitted().await, wire.submitted().await);
    wire.output = None;
    let outcome = || Outcome::Replied { text: "hi".to_owned() };
    assert_eq!(wire.settle(&first, outcome()).await.unwrap_err().kind, ChannelErrorKind::Permanent);
    assert_eq!(wire.settle(&second, outcome()).await.unwrap_err().kind, ChannelErrorKind::Permanent);
    // The input is still open: the output ends the channel.
    assert!(wire.input.is_some());
    assert_eq!(wire.channel_task.await.unwrap().unwrap_err().kind, ChannelErrorKind::Permanent);
}

#[tokio::test(flavor = "multi_thread")]
async fn x03_reading_pauses_while_the_output_is_not_read_and_resumes_afterwards() {
    const INVALID_LINE_COUNT: usize = 4000;
    let mut wire = StdioHarness::new();
    let mut input = wire.input.take().unwrap();
    let writing = std::thread::spawn(move || {
        for n in 0..INVALID_LINE_COUNT {
            // Each line is refused, and the refusals are not read yet.
            writeln!(input, "no json {n}").unwrap();
        }
        writeln!(input, "{}", json!({"id": "last", "session": "s", "text": "hello"})).unwrap();
    });
    for n in 1..=INVALID_LINE_COUNT {
        // The refusals fit neither into the pipe nor into the queue before it.
        assert!(
            n > INVALID_LINE_COUNT / 2 || wire.submitted.is_empty(),
            "the last line is not submitted before there is room"
        );
        assert_eq!(wire.read_line()["line"], n);
    }
    let event = wire.submitted().await;
    wire.reply(&event, "hi").await;
    assert_eq!(wire.read_line()["id"], "last");
    writing.join().unwrap();
    wire.wait_ended().await.unwrap();
}

/// Writer that reports its first write, and blocks until the test ends.
struct BlockedWriter {
    entered: std::sync::mpsc::Sender<()>,
    blocked: std::sync::mpsc::Receiver<()>,
}

impl std::io::Write for BlockedWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ended = self.entered.send(());
        let _ended = self.blocked.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn x03_stalled_reader_does_not_delay_the_end_of_a_stopped_channel() {
    let (_guard, blocked) = std::sync::mpsc::channel();
    let (entered, is_writing) = std::sync::mpsc::channel();
    let line = json!({"id": 1, "session": "a", "text": "hello"}).to_string();
    let output = Box::new(BlockedWriter { entered, blocked });
    let streams = StdioStreams { input: Box::new(std::io::Cursor::new(line)), output };
    let stdio = StdioChannel::new(streams, Options { max_line_bytes: TEST_LINE_LIMIT_BYTES });
    let (sender, mut submitted) = mpsc::unbounded_channel();
    let channel_task = tokio::spawn({
        let stdio = stdio.clone();
        async move { stdio.start(Arc::new(RecordingGateway(sender))).await }
    });
    let event = submitted.recv().await.unwrap();
    // The paused time must not pass before the thread of the writer has begun.
    is_writing.recv().unwrap();
    let outcome = Outcome::Replied { text: "unread".to_owned() };
    let reply = ChannelReply {
        event,
        session: "a".into(),
        outcome,
        run_id: None,
        messages: Vec::new(),
        command_error: None,
        is_duplicate: false,
    };
    stdio.stop().await.unwrap();
    let start = tokio::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(stdio.reply(&reply).await.unwrap_err().kind, ChannelErrorKind::Permanent);
    }
    assert!(start.elapsed() < 2 * super::STALLED_OUTPUT_TIMEOUT, "the timeout applies once: {:?}", start.elapsed());
    assert_eq!(channel_task.await.unwrap().unwrap_err().kind, ChannelErrorKind::Permanent);
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_channel_that_is_not_running_neither_sends_nor_reads() {
    let (read, mut input) = pipe().unwrap();
    let (_output, write) = pipe().unwrap();
    let streams = StdioStreams { input: Box::new(read.try_clone().unwrap()), output: Box::new(write) };
    let stdio = StdioChannel::new(streams, Options { max_line_bytes: TEST_LINE_LIMIT_BYTES });
    let event = capstan_protocol::Event::message("stdio", "1", "x");
    let sent = stdio.send(&OutboundMessage::reply_to(&event, "s".into(), "hi")).await;
    assert_eq!(sent.unwrap_err().kind, ChannelErrorKind::Permanent);
    input.write_all(b"mine\n").unwrap();
    assert_eq!(BufReader::new(read).lines().next().unwrap().unwrap(), "mine");
}
