//! A chat without a screen: one message per line, as a script or a pipe gives them, and the replies as plain text.

use std::io::{BufRead, IsTerminal as _, Read as _, Write as _};
use std::time::Duration;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::HookDeadlines;
use capstan_host::{Host, ServedEvent};
use capstan_protocol::{ErrorCode, ExitClass, SessionId};
use capstan_turn::TurnError;
use tokio::sync::mpsc;

use super::{QUIT_COMMANDS, message_event};
use crate::command_line::CommandContext;
use crate::commands::serve_one;
use crate::commands::signals::TerminationSignals;
use crate::{CommandError, builder};

/// How long a run that was cancelled may take to end.
const LINE_CHAT_CANCEL_GRACE: Duration = Duration::from_secs(5);

/// Each message has its turn before the next is read. One that fails does not end the rest; the last failure is what
/// the command fails with.
pub(super) async fn run_line_chat(context: CommandContext<'_>, session: SessionId) -> Result<(), CommandError> {
    let mut signals = TerminationSignals::watch();
    let cli = CliChannel::new(CliPrinter::standard());
    let hooks = context.capstan.build_hooks(&context.config, &cli, HookDeadlines::default());
    let (store, owner) = builder::open_home_store(&context.config)?;
    let settings = builder::host_options(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, settings).await?;
    let is_person = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let talk = LineChat { host: host.clone(), session, cli, is_interactive: is_person };
    let talked = talk.run(spawn_line_reader(context.config.max_message_bytes), &mut signals).await;
    host.stop().await?;
    talked
}

struct LineChat {
    host: Host,
    session: SessionId,
    cli: CliChannel,
    /// Somebody sits there, at a terminal that can only print.
    is_interactive: bool,
}

impl LineChat {
    async fn run(
        &self,
        mut lines: mpsc::Receiver<Result<String, CommandError>>,
        signals: &mut TerminationSignals,
    ) -> Result<(), CommandError> {
        let (mut count, mut failed) = (0_usize, 0_usize);
        // The last failure: not told yet, and told.
        let (mut untold, mut told): (Option<CommandError>, Option<CommandError>) = (None, None);
        loop {
            self.prompt();
            let line = tokio::select! {
                line = lines.recv() => line,
                () = signals.next() => return Err(TurnError::Cancelled.into()),
            };
            let Some(line) = line else { break };
            if let Some(failure) = untold.take() {
                stderr_line!("{failure}");
                told = Some(failure);
            }
            let ended = match line {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) if QUIT_COMMANDS.contains(&text.trim()) => break,
                Ok(text) => self.send_message(text, signals).await,
                Err(failure) => Err(failure),
            };
            count += 1;
            if let Err(failure) = ended {
                failed += 1;
                if failure.exit == ExitClass::Cancelled && !self.is_interactive {
                    return Err(failure);
                }
                untold = Some(failure);
            }
        }
        match (untold, told) {
            (Some(failure), _) => Err(failure),
            // Whoever sits there has seen it.
            (None, Some(_)) if self.is_interactive => Ok(()),
            (None, Some(told)) => {
                let message = format!("{failed} of {count} messages failed; the last one so: {}", told.message);
                Err(CommandError { message, ..told })
            }
            (None, None) => Ok(()),
        }
    }

    fn prompt(&self) {
        if self.is_interactive {
            print!("> ");
            // A prompt that cannot be shown is no reason to stop.
            let _unseen = std::io::stdout().flush();
        }
    }

    /// One message. An interrupt cancels its run, which still ends with its outcome recorded.
    async fn send_message(&self, text: String, signals: &mut TerminationSignals) -> Result<(), CommandError> {
        let event = message_event(text, &self.session);
        let serving = self.host.serve(event);
        tokio::pin!(serving);
        let served = tokio::select! {
            served = &mut serving => served,
            () = signals.next() => {
                self.host.cancel_session_turn(&self.session);
                tokio::select! {
                    served = &mut serving => served,
                    () = signals.next() => return Err(TurnError::Cancelled.into()),
                    () = tokio::time::sleep(LINE_CHAT_CANCEL_GRACE) => return Err(TurnError::Cancelled.into()),
                }
            }
        }?;
        self.report_outcome(served)
    }

    fn report_outcome(&self, served: ServedEvent) -> Result<(), CommandError> {
        let notices = self.cli.take_notices();
        if let Some(error) = served.error {
            return Err(error.into());
        }
        serve_one::report_delivery(notices, &served.delivery_errors)
    }
}

/// The lines of the standard input, read by a thread that nobody joins: it may wait for a line that never comes.
fn spawn_line_reader(limit: usize) -> mpsc::Receiver<Result<String, CommandError>> {
    let (sender, receiver) = mpsc::channel(1);
    let reading = move || {
        let mut input = std::io::stdin().lock();
        loop {
            let line = match read_line(&mut input, limit) {
                Ok(Some(line)) => line,
                Ok(None) => return,
                Err(error) => {
                    let message = format!("the standard input cannot be read: {error}");
                    // Nobody may be there to be told.
                    let _unheard = sender.blocking_send(Err(CommandError::new(ErrorCode::InputInvalid, message)));
                    return;
                }
            };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    // Were there no thread, the input would be at its end.
    let _detached = std::thread::Builder::new().name("lines".to_owned()).spawn(reading);
    receiver
}

/// The next line without its end, or why it cannot be used; nothing at the end of the input.
fn read_line(input: &mut impl BufRead, limit: usize) -> std::io::Result<Option<Result<String, CommandError>>> {
    let mut line = Vec::new();
    // Its end may take two more.
    let allowed = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(2);
    if input.by_ref().take(allowed).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let is_whole = line.pop_if(|byte| *byte == b'\n').is_some();
    line.pop_if(|byte| *byte == b'\r');
    if line.len() > limit {
        if !is_whole {
            input.skip_until(b'\n')?;
        }
        let message = format!("a line of the standard input has more than the {limit} bytes allowed");
        return Ok(Some(Err(CommandError::new(ErrorCode::MessageTooLarge, message))));
    }
    let invalid = || CommandError::new(ErrorCode::InputInvalid, "a line of the standard input is not valid UTF-8");
    Ok(Some(String::from_utf8(line).map_err(|_| invalid())))
}
