use std::time::Duration;

use capstan_protocol::{Event, EventId, OutboundMessage, SessionId, StreamEvent, ToolCall, ToolOutput, Usage};

use super::{ChatUpdate, ColorMode, CompletionWords, KeyInput, Screen, ScreenAction, TerminalSize, TurnEnding};

/// Terminal that records the rows that scrolled away.
struct ScreenHarness {
    screen: Screen,
    color_mode: ColorMode,
    scrolled_rows: Vec<String>,
    now: Duration,
}

impl ScreenHarness {
    fn new(columns: usize, rows: usize) -> Self {
        Self::with_color_mode(columns, rows, ColorMode::Plain)
    }

    fn with_color_mode(columns: usize, rows: usize, color_mode: ColorMode) -> Self {
        let words = CompletionWords { commands: vec!["help".to_owned(), "show".to_owned()], skills: Vec::new() };
        let screen = Screen::new(TerminalSize { columns, rows }, color_mode, vec!["earlier".to_owned()], words);
        Self { screen, color_mode, scrolled_rows: Vec::new(), now: Duration::ZERO }
    }

    fn send(&mut self, text: &str) -> &mut Self {
        self.screen.press(&KeyInput::Paste(text.to_owned()), |_| Vec::new());
        let ScreenAction::Send(message) = self.press(&KeyInput::Enter) else { panic!("no message was sent") };
        self.screen.add_user_message(&message, self.now);
        self
    }

    fn press(&mut self, key: &KeyInput) -> ScreenAction {
        self.screen.press(key, |_| Vec::new())
    }

    fn event(&mut self, body: StreamEvent) -> &mut Self {
        self.event_of("1", body, false)
    }

    fn event_of(&mut self, event: &str, body: StreamEvent, is_command: bool) -> &mut Self {
        self.screen.apply_update(ChatUpdate::Event { event: EventId::new(event), is_command, body }, self.now);
        self
    }

    fn text(&mut self, delta: &str) -> &mut Self {
        self.event(StreamEvent::text(delta))
    }

    fn call(&mut self, id: &str, name: &str, arguments: &str) -> &mut Self {
        self.event(StreamEvent::ToolCall { call: ToolCall::new(id, name, arguments) })
    }

    fn result(&mut self, id: &str, output: ToolOutput) -> &mut Self {
        self.event(StreamEvent::ToolResult { call_id: id.to_owned(), name: "bash".to_owned(), output })
    }

    fn message(&mut self, text: &str) -> &mut Self {
        let message = OutboundMessage::reply_to(&Event::message("cli", "local", ""), SessionId::new("s"), text);
        self.screen.apply_update(ChatUpdate::Message(message), self.now);
        self
    }

    fn notice(&mut self, text: &str) -> &mut Self {
        let message = OutboundMessage::notice(&Event::message("cli", "local", ""), SessionId::new("s"), text);
        self.screen.apply_update(ChatUpdate::Message(message), self.now);
        self
    }

    fn advance(&mut self, milliseconds: u64) -> &mut Self {
        self.now += Duration::from_millis(milliseconds);
        self
    }

    fn finish_event(&mut self) -> &mut Self {
        self.finish_event_with("1", &TurnEnding::default())
    }

    fn finish_event_with(&mut self, event: &str, ending: &TurnEnding) -> &mut Self {
        self.screen.finish_event(&EventId::new(event), ending, self.now);
        self
    }

    /// Rows that scrolled away, a separator, and the bottom with the cursor column noted.
    fn render(&mut self) -> String {
        let frame = self.screen.frame(self.now);
        let paint = |row| self.color_mode.paint(row).replace('\u{1b}', "^");
        self.scrolled_rows.extend(frame.finished.iter().map(paint));
        let mut bottom: Vec<String> = frame.bottom.iter().map(paint).collect();
        let at = format!("   <- cursor in column {}", frame.cursor_column);
        bottom[frame.cursor_row].push_str(&at);
        format!("{}\n======\n{}", self.scrolled_rows.join("\n"), bottom.join("\n"))
    }
}

fn usage_event(prompt: u64, completion: u64) -> StreamEvent {
    let (prompt_tokens, completion_tokens) = (Some(prompt), Some(completion));
    StreamEvent::Usage { usage: Usage { prompt_tokens, completion_tokens, ..Usage::default() } }
}

fn final_event(text: &str) -> StreamEvent {
    StreamEvent::Final { text: text.to_owned(), ok: true }
}

#[test]
fn c01_empty_chat_shows_the_input_prompt() {
    insta::assert_snapshot!(ScreenHarness::new(40, 10).render());
}

#[test]
fn c01_no_row_of_the_bottom_is_wider_than_the_terminal() {
    for columns in [1, 2, 5, 7] {
        let mut chat = ScreenHarness::new(columns, 10);
        chat.send("hello").call("c1", "bash", r#"{"cmd":"ls -la"}"#).text("Some words");
        chat.press(&KeyInput::Paste("text being typed".to_owned()));
        let frame = chat.screen.frame(chat.now);
        assert!(frame.bottom.iter().all(|row| row.columns() <= columns), "{columns}: {:?}", frame.bottom);
        assert!(frame.cursor_column < columns, "{columns}: {}", frame.cursor_column);
    }
}

#[test]
fn t07_reply_is_shown_while_it_streams() {
    let mut chat = ScreenHarness::new(40, 10);
    chat.send("hello").advance(1200).text("A first line.\n\nThe second is st");
    insta::assert_snapshot!(chat.render());
}

#[test]
fn a04_call_is_shown_while_it_runs_and_summarized_when_it_has_ended() {
    let mut chat = ScreenHarness::new(60, 20);
    chat.send("look").text("Let me see.").call("c1", "bash", r#"{"cmd":"ls -la"}"#);
    chat.call("c2", "fs_read", r#"{"path":"README.md","limit":20}"#).advance(300);
    let running = chat.render();
    let lines: Vec<String> = (1..=12).map(|number| format!("line {number}")).collect();
    chat.result("c1", ToolOutput::ok(lines.join("\n"))).advance(12_000);
    chat.result("c2", ToolOutput::error("no such file: \u{1b}[31mREADME.md"));
    chat.text("\n\nThere are **twelve**.")
        .event(usage_event(1234, 56))
        .event(final_event(""))
        .message("Let me see.\n\nThere are **twelve**.");
    chat.finish_event();
    insta::assert_snapshot!(format!("{running}\n\n\n{}", chat.render()));
}

#[test]
fn a04_full_output_of_a_tool_is_shown_on_request() {
    let mut chat = ScreenHarness::new(40, 20);
    let lines: Vec<String> = (1..=6).map(|number| format!("line {number}")).collect();
    chat.send("look").call("c1", "bash", r#"{"cmd":"ls"}"#).result("c1", ToolOutput::ok(lines.join("\n")));
    chat.event(final_event("")).finish_event();
    chat.render();
    chat.scrolled_rows.clear();
    chat.screen.show_output(None);
    chat.screen.show_output(Some(1));
    chat.screen.show_output(Some(7));
    insta::assert_snapshot!(chat.render());
}

#[test]
fn t07_reasoning_is_set_apart_from_the_reply() {
    let mut chat = ScreenHarness::with_color_mode(40, 20, ColorMode::Color);
    chat.send("why").event(StreamEvent::Reasoning { delta: "First I look, then I think about it.\nThen".to_owned() });
    chat.text("Because.").event(final_event("Because.")).message("Because.").finish_event();
    insta::assert_snapshot!(chat.render());
}

#[test]
fn a09_message_sent_during_a_run_is_marked_as_steering() {
    let mut chat = ScreenHarness::new(60, 20);
    chat.send("begin").text("Working on").send("and this too").text(" it.\n\nThat too.");
    chat.event(final_event("")).message("Working on it.\n\nThat too.").finish_event().finish_event();
    insta::assert_snapshot!(chat.render());
}

#[test]
fn c01_ctrl_c_cancels_and_then_quits() {
    let mut chat = ScreenHarness::new(50, 20);
    chat.send("begin").text("Working on").call("c1", "bash", r#"{"cmd":"sleep 100"}"#).advance(2000);
    assert_eq!(chat.press(&KeyInput::Interrupt), ScreenAction::Cancel);
    let cancelling = chat.render();
    chat.notice("Sorry, something went wrong: cancelled");
    chat.finish_event_with("1", &TurnEnding { is_cancelled: true, ..TurnEnding::default() });
    insta::assert_snapshot!(format!("{cancelling}\n\n\n{}", chat.render()));
    assert_eq!(chat.press(&KeyInput::Interrupt), ScreenAction::Quit, "a second one quits, however fast the run ended");
    chat.send("again");
    assert_eq!(chat.press(&KeyInput::Interrupt), ScreenAction::Cancel);
    assert_eq!(chat.press(&KeyInput::Interrupt), ScreenAction::Quit, "a second one quits without waiting");
}

#[test]
fn c01_messages_queued_behind_a_cancelled_run_are_shown_after_it() {
    let cancelled = TurnEnding { is_cancelled: true, ..TurnEnding::default() };
    let mut chat = ScreenHarness::new(50, 20);
    chat.send("begin").text("Working on").send("and this").send("this too");
    chat.press(&KeyInput::Interrupt);
    // The end of the first turn and the start of the next may arrive in any order.
    chat.event_of("2", StreamEvent::text("Here"), false).notice("Sorry: cancelled").finish_event_with("1", &cancelled);
    chat.event_of("2", StreamEvent::text(" is that."), false).event_of("2", final_event("Here is that."), false);
    chat.message("Here is that.").finish_event();
    chat.event_of("3", StreamEvent::text("And the"), false).press(&KeyInput::Interrupt);
    chat.notice("Sorry, something went wrong: cancelled").finish_event_with("3", &cancelled);
    insta::assert_snapshot!(chat.render());
}

#[test]
fn c01_cancellation_is_shown_once_when_the_next_turn_ends_before_its_notice() {
    let mut chat = ScreenHarness::new(50, 20);
    chat.send("begin").text("Working on").send("and this").press(&KeyInput::Interrupt);
    chat.event_of("2", StreamEvent::text("Here is that."), false).event_of("2", final_event("Here is that."), false);
    chat.notice("Sorry: cancelled").finish_event_with("1", &TurnEnding { is_cancelled: true, ..TurnEnding::default() });
    chat.message("Here is that.").finish_event();
    assert_eq!(chat.render().matches("■ cancelled").count(), 1, "{}", chat.render());
}

#[test]
fn c01_ctrl_c_clears_the_line_and_quits_only_when_pressed_twice_on_an_empty_one() {
    let mut chat = ScreenHarness::new(50, 20);
    chat.press(&KeyInput::Character('x'));
    assert_eq!(chat.press(&KeyInput::Interrupt), ScreenAction::Nothing);
    assert_eq!(chat.press(&KeyInput::Interrupt), ScreenAction::Nothing);
    assert!(chat.render().contains("ctrl-c again quits"));
    chat.press(&KeyInput::Character('x'));
    chat.press(&KeyInput::Backspace);
    assert_eq!(chat.press(&KeyInput::Interrupt), ScreenAction::Nothing, "text was typed in between");
    assert_eq!(chat.press(&KeyInput::Interrupt), ScreenAction::Quit);
    assert_eq!(ScreenHarness::new(50, 20).press(&KeyInput::EndOfInput), ScreenAction::Quit);
}

#[test]
fn a08_reason_and_remaining_delay_of_a_retry_are_shown_until_it_starts() {
    let waiting =
        || StreamEvent::Waiting { reason: "it answered 429,\nslow down".to_owned(), seconds: 3.5, code: None };
    let mut chat = ScreenHarness::new(80, 20);
    chat.send("hello").event(waiting()).advance(1000);
    assert!(chat.render().contains("ctrl-c cancels · retry in 3s: it answered 429, slow down"), "{}", chat.render());
    assert!(!chat.advance(3000).render().contains("retry in"), "the retry has started");
    assert!(!chat.event(waiting()).text("Here").render().contains("retry in"), "the model answers");
    chat.event(waiting()).press(&KeyInput::Interrupt);
    assert!(!chat.render().contains("retry in"), "the run is being cancelled");
}

#[test]
fn t11_failure_is_shown_with_its_hint() {
    let mut chat = ScreenHarness::new(60, 20);
    chat.send("hello").text("I wa").event(StreamEvent::error("the model broke off"));
    chat.event(StreamEvent::Final { text: "I wa".to_owned(), ok: false });
    chat.notice("Sorry, something went wrong: the model broke off");
    chat.finish_event_with("1", &TurnEnding { hint: Some("try again".to_owned()), ..TurnEnding::default() });
    insta::assert_snapshot!(chat.render());
}

#[test]
fn t11_failed_turn_without_a_final_event_is_not_shown_as_cancelled() {
    let mut chat = ScreenHarness::new(60, 20);
    chat.send("hello").text("I wa").send("and this").notice("Sorry, something went wrong: too late");
    chat.event_of("2", StreamEvent::text("Here it is."), false).finish_event_with("1", &TurnEnding::default());
    chat.event_of("2", final_event("Here it is."), false).message("Here it is.").finish_event();
    let shown = chat.render();
    assert!(shown.contains("I wa\n\n✗ Sorry, something went wrong: too late\n\nHere it is.\n"), "{shown}");
    assert!(!shown.contains("cancelled"), "{shown}");
}

#[test]
fn x02_event_recovered_from_an_earlier_chat_is_marked_as_resumed() {
    let mut chat = ScreenHarness::new(60, 20);
    chat.screen.apply_update(ChatUpdate::Recovered { text: "what was said\nthen".to_owned() }, chat.now);
    chat.text("An ans").text("wer.");
    assert!(chat.screen.is_busy());
    chat.event(final_event("An answer.")).message("An answer.");
    assert!(!chat.screen.is_busy());
    insta::assert_snapshot!(chat.render());
}

#[test]
fn x02_recovered_event_can_be_cancelled() {
    let mut chat = ScreenHarness::new(60, 20);
    chat.screen.apply_update(ChatUpdate::Recovered { text: "what was said".to_owned() }, chat.now);
    chat.text("An ans");
    assert_eq!(chat.press(&KeyInput::Interrupt), ScreenAction::Cancel);
    chat.notice("Sorry, something went wrong: cancelled");
    assert!(!chat.screen.is_busy());
    assert!(chat.render().contains("An ans\n\n■ cancelled"));
}

#[test]
fn c01_run_that_ends_before_its_cancellation_is_not_shown_as_cancelled() {
    let mut chat = ScreenHarness::new(60, 20);
    chat.send("hello").text("Done.");
    chat.press(&KeyInput::Interrupt);
    chat.event(final_event("Done.")).message("Done.").finish_event();
    assert!(!chat.render().contains("cancelled"));
}

#[test]
fn a03_command_output_is_shown_verbatim() {
    let mut chat = ScreenHarness::new(60, 20);
    let output = "# not a *heading*\n\n\n| no | table\n  indented";
    chat.send(",cat x")
        .event_of("1", StreamEvent::text(output), true)
        .event(final_event(output))
        .message(output)
        .finish_event();
    insta::assert_snapshot!(chat.render());
}

#[test]
fn a03_wrapped_command_output_keeps_its_indentation() {
    let mut chat = ScreenHarness::new(20, 20);
    let output = "  ,help\n      Lists the tools and how to call them.";
    chat.send(",help")
        .event_of("1", StreamEvent::text(output), true)
        .event(final_event(output))
        .message(output)
        .finish_event();
    let shown = chat.render();
    assert!(shown.contains("  ,help\n      Lists the\n      tools and how\n      to call them.\n"), "{shown}");
}

#[test]
fn a03_output_of_a_concurrent_command_is_shown_when_complete() {
    let mut chat = ScreenHarness::new(60, 20);
    chat.send("begin").text("One sentence that").send(",tape.info");
    chat.event_of("2", StreamEvent::text("entries: 5"), true).event_of("2", final_event("entries: 5"), true);
    chat.message("entries: 5")
        .finish_event()
        .text(" goes on.")
        .event(final_event(""))
        .message("One sentence that goes on.");
    chat.finish_event();
    insta::assert_snapshot!(chat.render());
}

#[test]
fn c01_narrow_terminal_shows_everything() {
    let mut chat = ScreenHarness::new(20, 10);
    chat.send("a message that is longer than the window")
        .text("Some `words` in 你好世界你好世界 and incomprehensibilities.\n\n");
    chat.call("c1", "bash", r#"{"cmd":"find . -name '*.rs' | xargs wc -l"}"#).advance(300);
    let running = chat.render();
    chat.result("c1", ToolOutput::ok("a line that is longer than the window\nb")).event(usage_event(12, 3));
    chat.press(&KeyInput::Paste("writing the next one meanwhile".to_owned()));
    let shown = chat.render();
    assert!(shown.lines().all(|line| line.split("   <-").next().unwrap_or_default().chars().count() <= 20), "{shown}");
    insta::assert_snapshot!(format!("{running}\n\n\n{shown}"));
}

#[test]
fn c01_terminal_resized_during_a_reply_shows_each_word_once() {
    let mut chat = ScreenHarness::new(40, 10);
    chat.send("tell me").text("One paragraph that goes on and on while 你好世界 👩\u{200d}👧 the window");
    let wide = chat.render();
    chat.screen.resize(TerminalSize { columns: 20, rows: 6 });
    chat.press(&KeyInput::Paste("writing 你好 meanwhile, too long".to_owned()));
    chat.text(" is made narrow, and then").render();
    let narrow = chat.render();
    chat.screen.resize(TerminalSize { columns: 200, rows: 10 });
    chat.text(" very wide indeed.").event(final_event("")).finish_event();
    insta::assert_snapshot!(format!("{wide}\n\n\n{narrow}\n\n\n{}", chat.render()));
}

#[test]
fn a04_narrow_terminal_shows_how_to_get_the_rest_of_an_output() {
    let mut chat = ScreenHarness::new(20, 10);
    chat.send("x").call("c1", "bash", r#"{"cmd":"seq 9"}"#).result("c1", ToolOutput::ok("1\n2\n3\n4\n5\n6\n7\n8\n9"));
    let shown = chat.render();
    assert!(shown.contains("  3\n  … ,show 1\n"), "{shown}");
}

#[test]
fn c01_terminal_of_few_rows_shows_the_last_ones_and_the_cursor() {
    let mut chat = ScreenHarness::new(20, 3);
    chat.send("x").text("a long text that would need several rows of its own to be seen");
    chat.press(&KeyInput::Paste("one\ntwo\nthree\nfour".to_owned()));
    insta::assert_snapshot!(chat.render());
}

#[test]
fn c01_long_paragraph_scrolls_while_it_streams_and_loses_no_word() {
    let mut chat = ScreenHarness::new(20, 10);
    let words: Vec<String> = (0..100).map(|number| format!("word{number}")).collect();
    chat.send("x");
    for word in &words {
        chat.text(&format!("{word} "));
        assert!(chat.render().split("======").nth(1).is_some_and(|bottom| bottom.lines().count() <= 11));
    }
    chat.event(final_event("")).message(&format!("{} ", words.join(" "))).finish_event();
    chat.render();
    let scrolled: Vec<String> = chat
        .scrolled_rows
        .iter()
        .flat_map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(scrolled[2..], words, "after the user message");
}

#[test]
fn c01_several_completion_choices_are_listed() {
    let mut chat = ScreenHarness::new(40, 10);
    chat.press(&KeyInput::Character(','));
    chat.press(&KeyInput::Tab);
    insta::assert_snapshot!(chat.render());
    chat.press(&KeyInput::Character('h'));
    chat.press(&KeyInput::Tab);
    assert!(chat.render().contains("› ,help    <-"));
}
