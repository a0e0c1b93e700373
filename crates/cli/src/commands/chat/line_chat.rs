//! Chat without a screen, for scripts and pipes: one message per line of input, replies as plain text.

use std::io::{BufRead, IsTerminal as _, Read as _, Write as _};

use capstan_channels::{CliChannel, CliPrinter};
use capstan_host::{Host, IncomingEvent, ServedEvent};
use capstan_protocol::{ChannelName, ErrorCode, Event, ExitClass};
use capstan_turn::TurnError;
use tokio::sync::mpsc;

use super::{LocalChat, QUIT_COMMANDS};
use crate::commands::CommandContext;
use crate::commands::serve_one::{self, RUN_CANCEL_GRACE};
use crate::commands::signals::{TerminationSignal, TerminationSignals};
use crate::{CommandError, home, output};

/// Runs one turn per line, in order. A failed message does not end the chat; the command returns the last failure. The
/// messages that a killed chat left are answered first.
pub(super) async fn run_line_chat(context: CommandContext<'_>, address: LocalChat) -> Result<(), CommandError> {
    output::check_stdout_writable(CliChannel::CHANNEL_NAME)?;
    let mut signals = TerminationSignals::watch();
    let cli = CliChannel::new(CliPrinter::standard());
    let hooks = context.capstan.build_hooks(&context.config, &cli);
    let (store, owner) = home::open_store_and_lock(&context.config)?;
    let options = context.capstan.host_options(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, options).await?;
    let is_interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let chat = LineChat { host: host.clone(), address, cli, is_interactive };
    let result = chat.run(spawn_line_reader(context.config.max_message_bytes), &mut signals).await;
    host.stop().await?;
    result
}

/// Effect of signals during a message.
enum ChatInterruption {
    None,
    /// ctrl-c at a terminal: the chat continues with the next message.
    RunCancelled,
    ChatEnds,
}

fn interrupted_error() -> CommandError {
    let message = "the chat was interrupted; further lines of input were not read";
    CommandError::new(ErrorCode::HostStopping, message)
        .with_exit(ExitClass::Cancelled)
        .with_hint("the messages before it have been answered: send the others again")
}

struct LineChat {
    host: Host,
    address: LocalChat,
    cli: CliChannel,
    /// Input and output are a terminal without cursor control.
    is_interactive: bool,
}

impl LineChat {
    async fn run(
        &self,
        mut lines: mpsc::Receiver<Result<String, CommandError>>,
        signals: &mut TerminationSignals,
    ) -> Result<(), CommandError> {
        self.show_orphaned_events(signals).await?;
        let (mut count, mut failed) = (0_usize, 0_usize);
        // The last failure: not yet printed, and printed.
        let (mut unreported, mut reported): (Option<CommandError>, Option<CommandError>) = (None, None);
        loop {
            self.prompt();
            let line = tokio::select! {
                line = lines.recv() => line,
                error = self.host.tapes().store().wait_for_failure() => return Err(error.into()),
                _ = signals.next() => return self.end_idle(unreported),
            };
            let Some(line) = line else { break };
            if let Some(failure) = unreported.take() {
                stderr_line!("{failure}");
                reported = Some(failure);
            }
            let (sent, interruption) = match line {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) if QUIT_COMMANDS.contains(&text.trim()) => break,
                Ok(text) => self.send_message(self.address.message_event(text), signals).await,
                Err(failure) => (Err(failure), ChatInterruption::None),
            };
            count += 1;
            failed += usize::from(sent.is_err());
            match (sent, interruption) {
                (sent, ChatInterruption::ChatEnds) => return sent.and_then(|()| Err(interrupted_error())),
                (Ok(()), ChatInterruption::None | ChatInterruption::RunCancelled) => {}
                // A person reads the failure before typing the next message.
                (Err(failure), _) if self.is_interactive => {
                    stderr_line!("{failure}");
                    reported = Some(failure);
                }
                (Err(failure), _) => unreported = Some(failure),
            }
        }
        match (unreported, reported) {
            (Some(failure), _) => Err(failure),
            // The user has seen the failure.
            (None, Some(_)) if self.is_interactive => Ok(()),
            (None, Some(failure)) => {
                let message = format!("{failed} of {count} messages failed; last failure: {}", failure.message);
                Err(CommandError { message, ..failure })
            }
            (None, None) => Ok(()),
        }
    }

    /// Recovers the messages that a killed chat of this session left, and shows their replies. Their failures are printed,
    /// but are none of this chat, unless one ends it.
    async fn show_orphaned_events(&self, signals: &mut TerminationSignals) -> Result<(), CommandError> {
        let channel = ChannelName::new(CliChannel::CHANNEL_NAME);
        for event in self.host.orphaned_events(&channel, &self.address.session).await? {
            stderr_line!("resumed after an interruption: {}", event.input.plain_text());
            match self.send_message(event, signals).await {
                (sent, ChatInterruption::ChatEnds) => return sent.and_then(|()| Err(interrupted_error())),
                (Err(failure), _) => stderr_line!("{failure}"),
                (Ok(()), _) => {}
            }
        }
        Ok(())
    }

    /// Ends the chat after a signal without a run. A person just leaves; in a script, lines may be left.
    fn end_idle(&self, unreported: Option<CommandError>) -> Result<(), CommandError> {
        if self.is_interactive {
            println!();
            return Ok(());
        }
        if let Some(failure) = unreported {
            stderr_line!("{failure}");
        }
        Err(interrupted_error())
    }

    fn prompt(&self) {
        if self.is_interactive {
            print!("> ");
            // A lost prompt is not a failure.
            let _unflushed = std::io::stdout().flush();
        }
    }

    /// Serves one message. A signal cancels its run, whose outcome is still recorded; a second one does not wait for it.
    async fn send_message(
        &self,
        event: Event,
        signals: &mut TerminationSignals,
    ) -> (Result<(), CommandError>, ChatInterruption) {
        let serving = self.host.serve(IncomingEvent::trusted(event));
        tokio::pin!(serving);
        let (served, interruption) = tokio::select! {
            served = &mut serving => (served, ChatInterruption::None),
            error = self.host.tapes().store().wait_for_failure() => {
                return (Err(error.into()), ChatInterruption::ChatEnds);
            }
            signal = signals.next() => {
                self.host.cancel_session_turn(&self.address.session);
                let goes_on = self.is_interactive && signal == TerminationSignal::Interrupt;
                tokio::select! {
                    served = &mut serving => {
                        (served, if goes_on { ChatInterruption::RunCancelled } else { ChatInterruption::ChatEnds })
                    }
                    _ = signals.next() => return (Err(TurnError::Cancelled.into()), ChatInterruption::ChatEnds),
                    () = tokio::time::sleep(RUN_CANCEL_GRACE) => {
                        return (Err(TurnError::Cancelled.into()), ChatInterruption::ChatEnds);
                    }
                }
            }
        };
        self.cli.end_turn();
        (served.map_err(CommandError::from).and_then(|served| self.report_outcome(served)), interruption)
    }

    fn report_outcome(&self, served: ServedEvent) -> Result<(), CommandError> {
        let notices = self.cli.take_notices();
        if let Some(error) = served.error {
            return Err(error.into());
        }
        serve_one::report_delivery(notices, &served.delivery_errors)?;
        if served.is_duplicate {
            serve_one::repeat_outcome(served.outcome.clone())?;
        }
        // A person has read the output of the command.
        let command_error = serve_one::command_error(&served).filter(|_| !self.is_interactive);
        command_error.map_or(Ok(()), Err)
    }
}

/// Reads the lines of standard input on a detached thread, which cannot be joined because it may block in a read forever.
fn spawn_line_reader(limit: usize) -> mpsc::Receiver<Result<String, CommandError>> {
    let (sender, receiver) = mpsc::channel(1);
    let read_lines = move || {
        let mut input = std::io::stdin().lock();
        loop {
            let line = match read_line(&mut input, limit) {
                Ok(Some(line)) => line,
                Ok(None) => return,
                Err(error) => {
                    let message = format!("the standard input cannot be read: {error}");
                    // The chat may have ended already.
                    let _unsent = sender.blocking_send(Err(CommandError::new(ErrorCode::InputInvalid, message)));
                    return;
                }
            };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    // If the thread cannot be started, its sender is dropped, which ends the input.
    let _detached = std::thread::Builder::new().name("lines".to_owned()).spawn(read_lines);
    receiver
}

/// Next line without its line ending, or the reason to reject it; `None` at the end of the input.
fn read_line(input: &mut impl BufRead, limit: usize) -> std::io::Result<Option<Result<String, CommandError>>> {
    let mut line = Vec::new();
    // Two more bytes for the line ending.
    let allowed = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(2);
    if input.by_ref().take(allowed).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let is_complete = line.pop_if(|byte| *byte == b'\n').is_some();
    line.pop_if(|byte| *byte == b'\r');
    if line.len() > limit {
        if !is_complete {
            input.skip_until(b'\n')?;
        }
        let message = format!("a line of the standard input is longer than the {limit} bytes allowed");
        return Ok(Some(Err(CommandError::new(ErrorCode::MessageTooLarge, message))));
    }
    let invalid = || CommandError::new(ErrorCode::InputInvalid, "a line of the standard input is not valid UTF-8");
    Ok(Some(String::from_utf8(line).map_err(|_| invalid())))
}
