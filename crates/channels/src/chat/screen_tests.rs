use std::time::Duration;

use capstan_protocol::{Event, EventId, OutboundMessage, SessionId, StreamEvent, ToolCall, ToolOutput, Usage};

use super::{ChatUpdate, ColorMode, CompletionWords, KeyInput, Screen, ScreenAction, TerminalSize, TurnEnding};

/// A terminal that remembers what scrolled away.
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

    fn with_color_mode(columns: usize, rows: usize, palette: ColorMode) -> Self {
        let words = CompletionWords { commands: vec!["help".to_owned(), "show".to_owned()], skills: Vec::new() };
        let screen = Screen::new(TerminalSize { columns, rows }, palette, vec!["earlier".to_owned()], words);
        Self { screen, color_mode: palette, scrolled_rows: Vec::new(), now: Duration::ZERO }
    }

    fn say(&mut self, text: &str) -> &mut Self {
        self.screen.press(&KeyInput::Paste(text.to_owned()), |_| Vec::new());
        let ScreenAction::Send(said) = self.press(&KeyInput::Enter) else { panic!("nothing was said") };
        self.screen.add_user_message(&said, self.now);
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

    fn finish_event_with(&mut self, event: &str, ended: &TurnEnding) -> &mut Self {
        self.screen.finish_event(&EventId::new(event), ended, self.now);
        self
    }

    /// Everything, as it stands now: a line between what scrolled away and the bottom, and a sign where the cursor is.
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
fn c01_an_empty_chat_shows_where_to_write() {
    insta::assert_snapshot!(ScreenHarness::new(40, 10).render());
}

#[test]
fn c01_no_row_of_the_bottom_is_wider_than_the_terminal() {
    for columns in [1, 2, 5, 7] {
        let mut seen = ScreenHarness::new(columns, 10);
        seen.say("hello").call("c1", "bash", r#"{"cmd":"ls -la"}"#).text("Some words");
        seen.press(&KeyInput::Paste("what is being written".to_owned()));
        let frame = seen.screen.frame(seen.now);
        assert!(frame.bottom.iter().all(|row| row.columns() <= columns), "{columns}: {:?}", frame.bottom);
        assert!(frame.cursor_column < columns, "{columns}: {}", frame.cursor_column);
    }
}

#[test]
fn t07_a_reply_is_seen_while_it_comes() {
    let mut seen = ScreenHarness::new(40, 10);
    seen.say("hello").advance(1200).text("A first line.\n\nThe second is st");
    insta::assert_snapshot!(seen.render());
}

#[test]
fn a04_a_call_is_seen_while_it_runs_and_in_short_when_it_has_ended() {
    let mut seen = ScreenHarness::new(60, 20);
    seen.say("look").text("Let me see.").call("c1", "bash", r#"{"cmd":"ls -la"}"#);
    seen.call("c2", "fs_read", r#"{"path":"README.md","limit":20}"#).advance(300);
    let running = seen.render();
    let lines: Vec<String> = (1..=12).map(|number| format!("line {number}")).collect();
    seen.result("c1", ToolOutput::ok(lines.join("\n"))).advance(12_000);
    seen.result("c2", ToolOutput::error("no such file: \u{1b}[31mREADME.md"));
    seen.text("\n\nThere are **twelve**.")
        .event(usage_event(1234, 56))
        .event(final_event(""))
        .message("Let me see.\n\nThere are **twelve**.");
    seen.finish_event();
    insta::assert_snapshot!(format!("{running}\n\n\n{}", seen.render()));
}

#[test]
fn a04_the_whole_of_what_a_tool_gave_is_shown_on_request() {
    let mut seen = ScreenHarness::new(40, 20);
    let lines: Vec<String> = (1..=6).map(|number| format!("line {number}")).collect();
    seen.say("look").call("c1", "bash", r#"{"cmd":"ls"}"#).result("c1", ToolOutput::ok(lines.join("\n")));
    seen.event(final_event("")).finish_event();
    seen.render();
    seen.scrolled_rows.clear();
    seen.screen.show_output(None);
    seen.screen.show_output(Some(1));
    seen.screen.show_output(Some(7));
    insta::assert_snapshot!(seen.render());
}

#[test]
fn t07_reasoning_is_set_apart_from_the_reply() {
    let mut seen = ScreenHarness::with_color_mode(40, 20, ColorMode::Color);
    seen.say("why").event(StreamEvent::Reasoning { delta: "First I look, then I think about it.\nThen".to_owned() });
    seen.text("Because.").event(final_event("Because.")).message("Because.").finish_event();
    insta::assert_snapshot!(seen.render());
}

#[test]
fn a09_what_is_said_during_a_run_is_told_to_go_to_it() {
    let mut seen = ScreenHarness::new(60, 20);
    seen.say("begin").text("Working on").say("and this too").text(" it.\n\nThat too.");
    seen.event(final_event("")).message("Working on it.\n\nThat too.").finish_event().finish_event();
    insta::assert_snapshot!(seen.render());
}

#[test]
fn c01_ctrl_c_cancels_and_then_leaves() {
    let mut seen = ScreenHarness::new(50, 20);
    seen.say("begin").text("Working on").call("c1", "bash", r#"{"cmd":"sleep 100"}"#).advance(2000);
    assert_eq!(seen.press(&KeyInput::Interrupt), ScreenAction::Cancel);
    let cancelling = seen.render();
    seen.notice("Sorry, something went wrong: cancelled");
    seen.finish_event_with("1", &TurnEnding { is_cancelled: true, ..TurnEnding::default() });
    insta::assert_snapshot!(format!("{cancelling}\n\n\n{}", seen.render()));
    assert_eq!(seen.press(&KeyInput::Interrupt), ScreenAction::Quit, "a second one leaves, however fast the run ended");
    seen.say("again");
    assert_eq!(seen.press(&KeyInput::Interrupt), ScreenAction::Cancel);
    assert_eq!(seen.press(&KeyInput::Interrupt), ScreenAction::Quit, "a second one waits for nothing");
}

#[test]
fn c01_what_waited_for_a_run_that_was_cancelled_is_shown_after_it() {
    let cancelled = TurnEnding { is_cancelled: true, ..TurnEnding::default() };
    let mut seen = ScreenHarness::new(50, 20);
    seen.say("begin").text("Working on").say("and this").say("this too");
    seen.press(&KeyInput::Interrupt);
    // Whether the end is heard of first, or the next turn, makes no difference.
    seen.event_of("2", StreamEvent::text("Here"), false).notice("Sorry: cancelled").finish_event_with("1", &cancelled);
    seen.event_of("2", StreamEvent::text(" is that."), false).event_of("2", final_event("Here is that."), false);
    seen.message("Here is that.").finish_event();
    seen.event_of("3", StreamEvent::text("And the"), false).press(&KeyInput::Interrupt);
    seen.notice("Sorry, something went wrong: cancelled").finish_event_with("3", &cancelled);
    insta::assert_snapshot!(seen.render());
}

#[test]
fn c01_a_run_that_was_cancelled_is_told_of_once_though_the_next_has_ended_before_its_end_is_heard_of() {
    let mut seen = ScreenHarness::new(50, 20);
    seen.say("begin").text("Working on").say("and this").press(&KeyInput::Interrupt);
    seen.event_of("2", StreamEvent::text("Here is that."), false).event_of("2", final_event("Here is that."), false);
    seen.notice("Sorry: cancelled").finish_event_with("1", &TurnEnding { is_cancelled: true, ..TurnEnding::default() });
    seen.message("Here is that.").finish_event();
    assert_eq!(seen.render().matches("■ cancelled").count(), 1, "{}", seen.render());
}

#[test]
fn c01_ctrl_c_clears_the_line_and_leaves_only_when_pressed_twice_on_an_empty_one() {
    let mut seen = ScreenHarness::new(50, 20);
    seen.press(&KeyInput::Character('x'));
    assert_eq!(seen.press(&KeyInput::Interrupt), ScreenAction::Nothing);
    assert_eq!(seen.press(&KeyInput::Interrupt), ScreenAction::Nothing);
    assert!(seen.render().contains("ctrl-c again leaves"));
    seen.press(&KeyInput::Character('x'));
    seen.press(&KeyInput::Backspace);
    assert_eq!(seen.press(&KeyInput::Interrupt), ScreenAction::Nothing, "something was written in between");
    assert_eq!(seen.press(&KeyInput::Interrupt), ScreenAction::Quit);
    assert_eq!(ScreenHarness::new(50, 20).press(&KeyInput::EndOfInput), ScreenAction::Quit);
}

#[test]
fn a8_why_and_how_long_a_model_is_waited_for_is_seen_until_it_is_asked_again() {
    let waits = || StreamEvent::Waiting { reason: "it answered 429,\nslow down".to_owned(), seconds: 3.5 };
    let mut seen = ScreenHarness::new(80, 20);
    seen.say("hello").event(waits()).advance(1000);
    assert!(
        seen.render().contains("ctrl-c cancels · asks again in 3s: it answered 429, slow down"),
        "{}",
        seen.render()
    );
    assert!(!seen.advance(3000).render().contains("asks again"), "it is being asked");
    assert!(!seen.event(waits()).text("Here").render().contains("asks again"), "it answers");
    seen.event(waits()).press(&KeyInput::Interrupt);
    assert!(!seen.render().contains("asks again"), "it is not asked again");
}

#[test]
fn t11_a_failure_is_told_with_what_to_do() {
    let mut seen = ScreenHarness::new(60, 20);
    seen.say("hello").text("I wa").event(StreamEvent::error("the model broke off"));
    seen.event(StreamEvent::Final { text: "I wa".to_owned(), ok: false });
    seen.notice("Sorry, something went wrong: the model broke off");
    seen.finish_event_with("1", &TurnEnding { hint: Some("try again".to_owned()), ..TurnEnding::default() });
    insta::assert_snapshot!(seen.render());
}

#[test]
fn t11_a_turn_that_failed_without_an_end_was_not_cancelled() {
    let mut seen = ScreenHarness::new(60, 20);
    seen.say("hello").text("I wa").say("and this").notice("Sorry, something went wrong: too late");
    seen.event_of("2", StreamEvent::text("Here it is."), false).finish_event_with("1", &TurnEnding::default());
    seen.event_of("2", final_event("Here it is."), false).message("Here it is.").finish_event();
    let shown = seen.render();
    assert!(shown.contains("I wa\n\n✗ Sorry, something went wrong: too late\n\nHere it is.\n"), "{shown}");
    assert!(!shown.contains("cancelled"), "{shown}");
}

#[test]
fn x02_what_an_earlier_chat_left_is_shown_as_such() {
    let mut seen = ScreenHarness::new(60, 20);
    seen.screen.apply_update(ChatUpdate::Recovered { text: "what was said\nthen".to_owned() }, seen.now);
    seen.text("An ans").text("wer.");
    assert!(seen.screen.is_busy());
    seen.event(final_event("An answer.")).message("An answer.");
    assert!(!seen.screen.is_busy());
    insta::assert_snapshot!(seen.render());
}

#[test]
fn x02_what_an_earlier_chat_left_can_be_cancelled() {
    let mut seen = ScreenHarness::new(60, 20);
    seen.screen.apply_update(ChatUpdate::Recovered { text: "what was said".to_owned() }, seen.now);
    seen.text("An ans");
    assert_eq!(seen.press(&KeyInput::Interrupt), ScreenAction::Cancel);
    seen.notice("Sorry, something went wrong: cancelled");
    assert!(!seen.screen.is_busy());
    assert!(seen.render().contains("An ans\n\n■ cancelled"));
}

#[test]
fn c01_a_run_that_ended_before_it_could_be_cancelled_was_not() {
    let mut seen = ScreenHarness::new(60, 20);
    seen.say("hello").text("Done.");
    seen.press(&KeyInput::Interrupt);
    seen.event(final_event("Done.")).message("Done.").finish_event();
    assert!(!seen.render().contains("cancelled"));
}

#[test]
fn a03_the_output_of_a_command_is_shown_as_it_is() {
    let mut seen = ScreenHarness::new(60, 20);
    let output = "# not a *heading*\n\n\n| no | table\n  indented";
    seen.say(",cat x")
        .event_of("1", StreamEvent::text(output), true)
        .event(final_event(output))
        .message(output)
        .finish_event();
    insta::assert_snapshot!(seen.render());
}

#[test]
fn a03_the_output_of_a_command_keeps_its_indent_where_its_lines_are_broken() {
    let mut seen = ScreenHarness::new(20, 20);
    let output = "  ,help\n      Lists the tools and how to call them.";
    seen.say(",help")
        .event_of("1", StreamEvent::text(output), true)
        .event(final_event(output))
        .message(output)
        .finish_event();
    let shown = seen.render();
    assert!(shown.contains("  ,help\n      Lists the\n      tools and how\n      to call them.\n"), "{shown}");
}

#[test]
fn a03_a_command_beside_a_run_is_shown_when_it_is_whole() {
    let mut seen = ScreenHarness::new(60, 20);
    seen.say("begin").text("One sentence that").say(",tape.info");
    seen.event_of("2", StreamEvent::text("entries: 5"), true).event_of("2", final_event("entries: 5"), true);
    seen.message("entries: 5")
        .finish_event()
        .text(" goes on.")
        .event(final_event(""))
        .message("One sentence that goes on.");
    seen.finish_event();
    insta::assert_snapshot!(seen.render());
}

#[test]
fn c01_a_narrow_window_still_shows_everything() {
    let mut seen = ScreenHarness::new(20, 10);
    seen.say("a message that is longer than the window")
        .text("Some `words` in 你好世界你好世界 and incomprehensibilities.\n\n");
    seen.call("c1", "bash", r#"{"cmd":"find . -name '*.rs' | xargs wc -l"}"#).advance(300);
    let running = seen.render();
    seen.result("c1", ToolOutput::ok("a line that is longer than the window\nb")).event(usage_event(12, 3));
    seen.press(&KeyInput::Paste("writing the next one meanwhile".to_owned()));
    let shown = seen.render();
    assert!(shown.lines().all(|line| line.split("   <-").next().unwrap_or_default().chars().count() <= 20), "{shown}");
    insta::assert_snapshot!(format!("{running}\n\n\n{shown}"));
}

#[test]
fn c01_a_window_that_changes_its_size_while_a_reply_comes_shows_each_word_once() {
    let mut seen = ScreenHarness::new(40, 10);
    seen.say("tell me").text("One paragraph that goes on and on while 你好世界 👩\u{200d}👧 the window");
    let wide = seen.render();
    seen.screen.resize(TerminalSize { columns: 20, rows: 6 });
    seen.press(&KeyInput::Paste("writing 你好 meanwhile, too long".to_owned()));
    seen.text(" is made narrow, and then").render();
    let narrow = seen.render();
    seen.screen.resize(TerminalSize { columns: 200, rows: 10 });
    seen.text(" very wide indeed.").event(final_event("")).finish_event();
    insta::assert_snapshot!(format!("{wide}\n\n\n{narrow}\n\n\n{}", seen.render()));
}

#[test]
fn a04_a_narrow_window_still_tells_how_the_rest_of_an_output_is_seen() {
    let mut seen = ScreenHarness::new(20, 10);
    seen.say("x").call("c1", "bash", r#"{"cmd":"seq 9"}"#).result("c1", ToolOutput::ok("1\n2\n3\n4\n5\n6\n7\n8\n9"));
    let shown = seen.render();
    assert!(shown.contains("  3\n  … ,show 1\n"), "{shown}");
}

#[test]
fn c01_a_window_of_a_few_rows_shows_the_last_ones_and_the_cursor() {
    let mut seen = ScreenHarness::new(20, 3);
    seen.say("x").text("a long text that would need several rows of its own to be seen");
    seen.press(&KeyInput::Paste("one\ntwo\nthree\nfour".to_owned()));
    insta::assert_snapshot!(seen.render());
}

#[test]
fn c01_a_long_paragraph_scrolls_away_while_it_comes_and_nothing_is_lost() {
    let mut seen = ScreenHarness::new(20, 10);
    let words: Vec<String> = (0..100).map(|number| format!("word{number}")).collect();
    seen.say("x");
    for word in &words {
        seen.text(&format!("{word} "));
        assert!(seen.render().split("======").nth(1).is_some_and(|bottom| bottom.lines().count() <= 11));
    }
    seen.event(final_event("")).message(&format!("{} ", words.join(" "))).finish_event();
    seen.render();
    let scrolled: Vec<String> = seen
        .scrolled_rows
        .iter()
        .flat_map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(scrolled[2..], words, "after what was said");
}

#[test]
fn c01_choices_are_shown_when_there_are_several() {
    let mut seen = ScreenHarness::new(40, 10);
    seen.press(&KeyInput::Character(','));
    seen.press(&KeyInput::Tab);
    insta::assert_snapshot!(seen.render());
    seen.press(&KeyInput::Character('h'));
    seen.press(&KeyInput::Tab);
    assert!(seen.render().contains("› ,help    <-"));
}
