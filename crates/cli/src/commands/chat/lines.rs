//! A chat without a screen: one message per line, as a script or a pipe gives them, and the replies as plain text.

use std::io::{BufRead, IsTerminal as _, Read as _, Write as _};
use std::time::Duration;

use capstan_channels::{Cli, Printer};
use capstan_hooks::Deadlines;
use capstan_host::{Host, Served};
use capstan_protocol::SessionId;
use capstan_turn::TurnError;
use tokio::sync::mpsc;

use super::{QUIT, said};
use crate::command_line::Context;
use crate::commands::served;
use crate::commands::signals::Signals;
use crate::{Exit, Failure, builder};

/// How long a run that was cancelled may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Each message has its turn before the next is read. One that fails does not end the rest; the last failure is what
/// the command fails with.
pub(super) async fn talk(context: Context<'_>, session: SessionId) -> Result<(), Failure> {
    let mut signals = Signals::watch();
    let cli = Cli::new(Printer::standard());
    let hooks = context.capstan.hooks(&context.config, &cli, Deadlines::default());
    let (store, owner) = builder::open_home(&context.config)?;
    let settings = builder::settings(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, settings).await?;
    let is_person = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let talk = Talk { host: host.clone(), session, cli, is_person };
    let talked = talk.run(lines(context.config.max_message_bytes), &mut signals).await;
    host.stop().await?;
    talked
}

struct Talk {
    host: Host,
    session: SessionId,
    cli: Cli,
    /// Somebody sits there, at a terminal that can only print.
    is_person: bool,
}

impl Talk {
    async fn run(
        &self,
        mut lines: mpsc::Receiver<Result<String, Failure>>,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let (mut count, mut failed) = (0_usize, 0_usize);
        // The last failure: not told yet, and told.
        let (mut untold, mut told): (Option<Failure>, Option<Failure>) = (None, None);
        loop {
            self.prompt();
            let line = tokio::select! {
                line = lines.recv() => line,
                () = signals.next() => return Err(TurnError::Cancelled.into()),
            };
            let Some(line) = line else { break };
            if let Some(failure) = untold.take() {
                complain!("{failure}");
                told = Some(failure);
            }
            let ended = match line {
                Ok(text) if text.trim().is_empty() => continue,
                Ok(text) if QUIT.contains(&text.trim()) => break,
                Ok(text) => self.say(text, signals).await,
                Err(failure) => Err(failure),
            };
            count += 1;
            if let Err(failure) = ended {
                failed += 1;
                if failure.exit == Exit::Cancelled && !self.is_person {
                    return Err(failure);
                }
                untold = Some(failure);
            }
        }
        match (untold, told) {
            (Some(failure), _) => Err(failure),
            // Whoever sits there has seen it.
            (None, Some(_)) if self.is_person => Ok(()),
            (None, Some(told)) => {
                let message = format!("{failed} of {count} messages failed; the last one so: {}", told.message);
                Err(Failure { message, ..told })
            }
            (None, None) => Ok(()),
        }
    }

    fn prompt(&self) {
        if self.is_person {
            print!("> ");
            // A prompt that cannot be shown is no reason to stop.
            let _unseen = std::io::stdout().flush();
        }
    }

    /// One message. An interrupt cancels its run, which still ends with its outcome recorded.
    async fn say(&self, text: String, signals: &mut Signals) -> Result<(), Failure> {
        let event = said(text, &self.session);
        let serving = self.host.serve(event);
        tokio::pin!(serving);
        let served = tokio::select! {
            served = &mut serving => served,
            () = signals.next() => {
                self.host.cancel_in(&self.session);
                tokio::select! {
                    served = &mut serving => served,
                    () = signals.next() => return Err(TurnError::Cancelled.into()),
                    () = tokio::time::sleep(PATIENCE) => return Err(TurnError::Cancelled.into()),
                }
            }
        }?;
        self.ended(served)
    }

    fn ended(&self, served: Served) -> Result<(), Failure> {
        let notices = self.cli.take_notices();
        if let Some(error) = served.error {
            return Err(error.into());
        }
        served::tell(notices, &served.undelivered)
    }
}

/// The lines of the standard input, read by a thread that nobody joins: it may wait for a line that never comes.
fn lines(limit: usize) -> mpsc::Receiver<Result<String, Failure>> {
    let (sender, receiver) = mpsc::channel(1);
    let reading = move || {
        let mut input = std::io::stdin().lock();
        loop {
            let line = match next_line(&mut input, limit) {
                Ok(Some(line)) => line,
                Ok(None) => return,
                Err(error) => {
                    let message = format!("the standard input cannot be read: {error}");
                    // Nobody may be there to be told.
                    let _unheard = sender.blocking_send(Err(Failure::new("input-invalid", message, Exit::Usage)));
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
fn next_line(input: &mut impl BufRead, limit: usize) -> std::io::Result<Option<Result<String, Failure>>> {
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
        return Ok(Some(Err(Failure::new("message-too-large", message, Exit::Usage))));
    }
    let invalid = || Failure::new("input-invalid", "a line of the standard input is not valid UTF-8", Exit::Usage);
    Ok(Some(String::from_utf8(line).map_err(|_| invalid())))
}
