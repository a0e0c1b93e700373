use std::io::Write;
use std::sync::{Arc, Mutex};

use capstan_hooks::InboundEvent;
use capstan_hooks::contracts::{Channel as _, ChannelErrorKind};
use capstan_protocol::{Event, OutboundMessage, StreamEvent, ToolCall};

use super::{CliChannel, CliPrinter};
use crate::SharedTty;

#[derive(Clone, Default)]
struct CapturedOutput(Arc<Mutex<Vec<u8>>>);

impl CapturedOutput {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for CapturedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct CliHarness {
    cli: CliChannel,
    inbound: InboundEvent,
    replies: CapturedOutput,
    notes: CapturedOutput,
}

impl CliHarness {
    fn new() -> Self {
        let (replies, notes) = (CapturedOutput::default(), CapturedOutput::default());
        let printer = CliPrinter { replies: Box::new(replies.clone()), notes: Box::new(notes.clone()) };
        Self::with_printer(printer, replies, notes)
    }

    /// Harness in which both streams go to the same terminal.
    fn with_shared_tty() -> Self {
        let (screen, tty) = (CapturedOutput::default(), SharedTty::default());
        let (replies, notes) = (tty.reply_writer(screen.clone()), tty.note_writer(screen.clone()));
        Self::with_printer(CliPrinter { replies: Box::new(replies), notes: Box::new(notes) }, screen.clone(), screen)
    }

    fn with_printer(printer: CliPrinter, replies: CapturedOutput, notes: CapturedOutput) -> Self {
        let cli = CliChannel::new(printer);
        Self { cli, inbound: Event::message("cli", "local", "hi").into(), replies, notes }
    }

    async fn stream_deltas(&self, deltas: &[&str]) {
        for delta in deltas {
            self.cli.on_stream_event(&StreamEvent::text(*delta), &self.inbound).await.unwrap();
        }
    }

    fn reply(&self, text: &str) -> OutboundMessage {
        OutboundMessage::reply_to(&self.inbound, self.inbound.fallback_session(), text)
    }
}

#[tokio::test]
async fn c01_streamed_reply_is_not_shown_twice() {
    let terminal = CliHarness::new();
    terminal.stream_deltas(&["hel", "lo"]).await;
    assert_eq!(terminal.replies.text(), "hello", "shown while the model runs");
    terminal.cli.send(&terminal.reply("hello")).await.unwrap();
    assert_eq!(terminal.replies.text(), "hello\n");
}

#[tokio::test]
async fn c01_text_of_a_cancelled_run_is_no_part_of_the_next_reply() {
    let terminal = CliHarness::new();
    terminal.stream_deltas(&["You said: a "]).await;
    terminal.cli.end_turn();
    terminal.stream_deltas(&["You said: next"]).await;
    terminal.cli.send(&terminal.reply("You said: next")).await.unwrap();
    terminal.cli.end_turn();
    assert_eq!(terminal.replies.text(), "You said: a \nYou said: next\n");
}

#[tokio::test]
async fn c01_reply_that_differs_from_the_stream_is_shown_in_full() {
    let terminal = CliHarness::new();
    terminal.stream_deltas(&["hello"]).await;
    terminal.cli.send(&terminal.reply("HELLO")).await.unwrap();
    assert_eq!(terminal.replies.text(), "hello\nHELLO\n");
}

#[tokio::test]
async fn c01_tool_calls_go_to_the_notes_and_notices_to_the_caller() {
    let terminal = CliHarness::new();
    let call = ToolCall::new("a", "bash", r#"{"cmd":"ls"}"#);
    terminal.cli.on_stream_event(&StreamEvent::ToolCall { call }, &terminal.inbound).await.unwrap();
    let notice = OutboundMessage::notice(&terminal.inbound, "cli:local".into(), "it failed");
    terminal.cli.send(&notice).await.unwrap();
    assert_eq!(terminal.notes.text(), "> bash ls\n");
    assert_eq!(terminal.replies.text(), "");
    assert_eq!(terminal.cli.take_notices(), ["it failed"]);
}

#[tokio::test]
async fn c01_tool_call_starts_a_new_line_when_notes_and_reply_share_a_terminal() {
    let call = || StreamEvent::ToolCall { call: ToolCall::new("a", "bash", "{}") };
    let terminal = CliHarness::with_shared_tty();
    terminal.stream_deltas(&["I will ", "look.", ""]).await;
    terminal.cli.on_stream_event(&call(), &terminal.inbound).await.unwrap();
    terminal.cli.on_stream_event(&call(), &terminal.inbound).await.unwrap();
    assert_eq!(terminal.replies.text(), "I will look.\n> bash\n> bash\n");
    let separate = CliHarness::new();
    separate.stream_deltas(&["I will look."]).await;
    separate.cli.on_stream_event(&call(), &separate.inbound).await.unwrap();
    assert_eq!((separate.replies.text().as_str(), separate.notes.text().as_str()), ("I will look.", "> bash\n"));
}

#[tokio::test]
async fn a08_retry_delay_of_a_second_or_more_is_shown_in_the_notes() {
    let terminal = CliHarness::new();
    for seconds in [0.4, 1.2] {
        let event = StreamEvent::Waiting { reason: "it answered 429".to_owned(), seconds, code: None };
        terminal.cli.on_stream_event(&event, &terminal.inbound).await.unwrap();
    }
    assert_eq!(terminal.notes.text(), "it answered 429; retrying in 2 s\n");
    assert_eq!(terminal.replies.text(), "");
}

#[tokio::test]
async fn c01_interrupted_reply_ends_its_line() {
    let terminal = CliHarness::new();
    terminal.stream_deltas(&["half"]).await;
    terminal.cli.on_stream_event(&StreamEvent::error("cut"), &terminal.inbound).await.unwrap();
    let end = StreamEvent::Final { text: "half".to_owned(), ok: false };
    terminal.cli.on_stream_event(&end, &terminal.inbound).await.unwrap();
    assert_eq!(terminal.replies.text(), "half\n");
}

#[tokio::test]
async fn t07_reply_after_an_error_event_is_shown_once() {
    let terminal = CliHarness::new();
    terminal.stream_deltas(&["part "]).await;
    terminal.cli.on_stream_event(&StreamEvent::error("cut"), &terminal.inbound).await.unwrap();
    terminal.stream_deltas(&["rest"]).await;
    terminal.cli.send(&terminal.reply("part rest")).await.unwrap();
    assert_eq!(terminal.replies.text(), "part rest\n");
}

#[tokio::test]
async fn x03_message_to_an_unattended_terminal_is_not_confirmed() {
    let terminal = CliHarness::new();
    let error = CliChannel::unattended().send(&terminal.reply("hello")).await.unwrap_err();
    assert_eq!(error.kind, ChannelErrorKind::Permanent);
}
