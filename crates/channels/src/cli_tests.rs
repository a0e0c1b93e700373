use std::io::Write;
use std::sync::{Arc, Mutex};

use capstan_hooks::Inbound;
use capstan_hooks::contracts::Channel as _;
use capstan_protocol::{Event, Outbound, StreamEvent, ToolCall};

use super::{Cli, Printer};
use crate::OneScreen;

#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Screen {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Terminal {
    cli: Cli,
    inbound: Inbound,
    replies: Screen,
    notes: Screen,
}

impl Terminal {
    fn new() -> Self {
        let (replies, notes) = (Screen::default(), Screen::default());
        let printer = Printer { replies: Box::new(replies.clone()), notes: Box::new(notes.clone()) };
        Self::of(printer, replies, notes)
    }

    /// One that a person looks at.
    fn one_screen() -> Self {
        let (screen, one) = (Screen::default(), OneScreen::default());
        let (replies, notes) = (one.replies(screen.clone()), one.notes(screen.clone()));
        Self::of(Printer { replies: Box::new(replies), notes: Box::new(notes) }, screen.clone(), screen)
    }

    fn of(printer: Printer, replies: Screen, notes: Screen) -> Self {
        let cli = Cli::new(printer);
        Self { cli, inbound: Event::message("cli", "local", "hi").into(), replies, notes }
    }

    async fn stream(&self, deltas: &[&str]) {
        for delta in deltas {
            self.cli.on_event(&StreamEvent::text(*delta), &self.inbound).await.unwrap();
        }
    }

    fn reply(&self, text: &str) -> Outbound {
        Outbound::reply_to(&self.inbound, self.inbound.fallback_session(), text)
    }
}

#[tokio::test]
async fn c01_a_reply_that_was_streamed_is_not_shown_twice() {
    let terminal = Terminal::new();
    terminal.stream(&["hel", "lo"]).await;
    assert_eq!(terminal.replies.text(), "hello", "shown while the model runs");
    terminal.cli.send(&terminal.reply("hello")).await.unwrap();
    assert_eq!(terminal.replies.text(), "hello\n");
}

#[tokio::test]
async fn c01_a_reply_that_differs_from_the_stream_is_shown_whole() {
    let terminal = Terminal::new();
    terminal.stream(&["hello"]).await;
    terminal.cli.send(&terminal.reply("HELLO")).await.unwrap();
    assert_eq!(terminal.replies.text(), "hello\nHELLO\n");
}

#[tokio::test]
async fn c01_tool_calls_go_to_the_notes_and_notices_to_the_caller() {
    let terminal = Terminal::new();
    let call = ToolCall::new("a", "bash", r#"{"cmd":"ls"}"#);
    terminal.cli.on_event(&StreamEvent::ToolCall { call }, &terminal.inbound).await.unwrap();
    let notice = Outbound::notice(&terminal.inbound, "cli:local".into(), "it failed");
    terminal.cli.send(&notice).await.unwrap();
    assert_eq!(terminal.notes.text(), "> bash ls\n");
    assert_eq!(terminal.replies.text(), "");
    assert_eq!(terminal.cli.take_notices(), ["it failed"]);
}

#[tokio::test]
async fn c01_a_tool_call_has_a_line_of_its_own_where_a_person_sees_it_beside_the_reply() {
    let call = || StreamEvent::ToolCall { call: ToolCall::new("a", "bash", "{}") };
    let terminal = Terminal::one_screen();
    terminal.stream(&["I will ", "look.", ""]).await;
    terminal.cli.on_event(&call(), &terminal.inbound).await.unwrap();
    terminal.cli.on_event(&call(), &terminal.inbound).await.unwrap();
    assert_eq!(terminal.replies.text(), "I will look.\n> bash\n> bash\n");
    let apart = Terminal::new();
    apart.stream(&["I will look."]).await;
    apart.cli.on_event(&call(), &apart.inbound).await.unwrap();
    assert_eq!((apart.replies.text().as_str(), apart.notes.text().as_str()), ("I will look.", "> bash\n"));
}

#[tokio::test]
async fn a8_a_wait_that_is_noticed_is_told_among_the_notes() {
    let terminal = Terminal::new();
    for seconds in [0.4, 1.2] {
        let event = StreamEvent::Waiting { reason: "it answered 429".to_owned(), seconds };
        terminal.cli.on_event(&event, &terminal.inbound).await.unwrap();
    }
    assert_eq!(terminal.notes.text(), "it answered 429; asking again in 2 s\n");
    assert_eq!(terminal.replies.text(), "");
}

#[tokio::test]
async fn c01_a_reply_that_breaks_off_ends_its_line() {
    let terminal = Terminal::new();
    terminal.stream(&["half"]).await;
    terminal.cli.on_event(&StreamEvent::error("cut"), &terminal.inbound).await.unwrap();
    assert_eq!(terminal.replies.text(), "half\n");
}
