//! Chat on a terminal screen: an event loop from keys, chat updates and signals to frames.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_channels::ChatChannel;
use capstan_channels::chat::{ChatUpdate, ColorMode, KeyInput, SPINNER_INTERVAL, Screen, ScreenAction, TurnEnding};
use capstan_hooks::contracts::Channel as _;
use capstan_host::{Host, HostError, IncomingEvent, ServedEvent};
use capstan_protocol::{ErrorCode, EventId, ExitClass, SessionId};
use capstan_tape::StoreError;
use capstan_turn::TurnError;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use futures::{FutureExt as _, poll};
use tokio::sync::mpsc;

use super::completions::{completion_paths, completion_words};
use super::history::ChatHistory;
use super::job_control::{JobControl, is_foreground};
use super::keyboard::{KeyboardReader, TerminalInput};
use super::terminal::TerminalRenderer;
use super::{LocalChat, QUIT_COMMANDS, with_local_actor};
use crate::commands::CommandContext;
use crate::commands::signals::TerminationSignals;
use crate::{CommandError, home};

type PendingTurn = BoxFuture<'static, (EventId, Result<ServedEvent, HostError>)>;

/// Help on keys and commands of the screen, shown after that of the agent.
const SCREEN_HELP: &str = "\
,show [NUMBER]     show the full output of a tool, by number or the last one (also ctrl-o)
enter, alt-enter   send the message; start a new line
tab, up, down      complete; recall an earlier or later message
ctrl-c             cancel the run; press again to quit
ctrl-z, ctrl-d     suspend (resume with `fg`); quit";

/// Reason for the end of a chat.
enum ChatEnd {
    /// The user quit.
    UserLeft,
    /// A signal or the loss of the terminal.
    Terminated {
        /// A message had no outcome yet, so that its run is cancelled.
        is_run_active: bool,
    },
    /// The store failed permanently.
    StoreFailed(StoreError),
}

pub(super) async fn run_screen_chat(
    context: CommandContext<'_>,
    address: LocalChat,
    palette: ColorMode,
) -> Result<(), CommandError> {
    let LocalChat { chat_id, session } = address;
    // Before the process becomes visible to others, so that no signal is missed.
    let signals = TerminationSignals::watch();
    let (chat, updates) = ChatChannel::new(session.clone());
    let hooks = context.capstan.build_hooks(&context.config, &chat);
    let words = completion_words(&hooks, &context.workspace, &context.config.tools.skills);
    let (store, owner) = home::open_store_and_lock(&context.config)?;
    let options = context.capstan.host_options(&context.config, context.workspace.clone(), owner);
    let host = Host::start(hooks, store, options).await?;
    host.recover_session_on(&chat.name(), &session).await?;
    let (history, messages) = ChatHistory::open(&context.config.home);
    let mut screen = Screen::new(TerminalRenderer::size(), palette, messages, words);
    screen.add_note(&format!("capstan · {} · {session} · ,help lists commands, ctrl-d quits", context.config.model));
    let unusable = |error: std::io::Error| {
        CommandError::new(ErrorCode::OutputClosed, format!("the terminal cannot be used: {error}"))
            .with_exit(ExitClass::Failed)
    };
    let terminal = TerminalRenderer::open(palette).map_err(unusable)?;
    let screen_chat = ScreenChat {
        workspace: context.workspace,
        session,
        chat_id,
        chat,
        updates,
        host: host.clone(),
        history,
        screen,
        terminal,
        job_control: JobControl::watch(),
        pending_turns: FuturesUnordered::new(),
        started_at: Instant::now(),
        cancel_pending: false,
    };
    let end = screen_chat.run(signals).await;
    // A user who quit does not wait: running turns are cancelled, and recorded as such.
    host.stop_within(Duration::ZERO).await?;
    match end {
        Ok(ChatEnd::UserLeft | ChatEnd::Terminated { is_run_active: false }) => Ok(()),
        Ok(ChatEnd::Terminated { is_run_active: true }) => Err(TurnError::Cancelled.into()),
        Ok(ChatEnd::StoreFailed(error)) => Err(error.into()),
        Err(error) => Err(unusable(error)),
    }
}

struct ScreenChat {
    workspace: PathBuf,
    session: SessionId,
    chat_id: String,
    chat: ChatChannel,
    updates: mpsc::Receiver<ChatUpdate>,
    host: Host,
    history: ChatHistory,
    screen: Screen,
    terminal: TerminalRenderer,
    job_control: JobControl,
    /// Turns of messages that have no outcome yet.
    pending_turns: FuturesUnordered<PendingTurn>,
    started_at: Instant,
    /// Cancellation was requested before the turn began.
    cancel_pending: bool,
}

impl ScreenChat {
    async fn run(mut self, mut signals: TerminationSignals) -> std::io::Result<ChatEnd> {
        let mut keyboard = KeyboardReader::open();
        let mut tick = tokio::time::interval(SPINNER_INTERVAL);
        let store = Arc::clone(self.host.tapes().store());
        let end = loop {
            // Keys may arrive before the resize event.
            self.screen.resize(TerminalRenderer::size());
            let frame = self.screen.frame(self.elapsed());
            self.terminal.draw(&frame)?;
            tokio::select! {
                input = keyboard.next() => match input {
                    None => break self.terminated(),
                    Some(TerminalInput::Resized) => {}
                    Some(TerminalInput::Key(key)) => {
                        if self.handle_key(&key).await?.is_break() {
                            break ChatEnd::UserLeft;
                        }
                    }
                },
                Some(update) = self.updates.recv() => {
                    self.screen.apply_update(update, self.elapsed());
                    self.drain_updates();
                }
                Some((event, served)) = self.pending_turns.next() => self.finish_turn(&event, served),
                _ = signals.next() => break self.terminated(),
                error = store.wait_for_failure() => break ChatEnd::StoreFailed(error),
                () = self.job_control.resume_signal() => self.resume().await?,
                _ = tick.tick(), if self.screen.is_busy() => {
                    if self.cancel_pending {
                        self.cancel();
                    }
                }
            }
        };
        let frame = self.screen.last_frame(self.elapsed());
        self.terminal.draw(&frame)?;
        Ok(end)
    }

    fn terminated(&self) -> ChatEnd {
        ChatEnd::Terminated { is_run_active: !self.pending_turns.is_empty() }
    }

    fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Applies all queued updates, so that one frame shows them.
    fn drain_updates(&mut self) {
        while let Ok(update) = self.updates.try_recv() {
            self.screen.apply_update(update, self.elapsed());
        }
    }

    async fn handle_key(&mut self, key: &KeyInput) -> std::io::Result<std::ops::ControlFlow<()>> {
        let workspace = self.workspace.clone();
        match self.screen.press(key, |folder| completion_paths(&workspace.join(folder))) {
            ScreenAction::Nothing => {}
            ScreenAction::Redraw => self.terminal.clear()?,
            ScreenAction::Quit => return Ok(std::ops::ControlFlow::Break(())),
            ScreenAction::Suspend => self.suspend().await?,
            ScreenAction::Cancel => self.cancel(),
            ScreenAction::Send(text) => return Ok(self.submit(text).await),
        }
        Ok(std::ops::ControlFlow::Continue(()))
    }

    async fn suspend(&mut self) -> std::io::Result<()> {
        self.terminal.release()?;
        self.job_control.suspend().await?;
        self.terminal.reacquire()
    }

    /// Takes the terminal back after SIGCONT, or suspends again if the process was resumed in the background.
    async fn resume(&mut self) -> std::io::Result<()> {
        if !is_foreground() {
            self.job_control.suspend().await?;
        }
        self.terminal.reacquire()
    }

    /// Cancels the turn of the session, or marks it for cancellation if it has not begun yet.
    fn cancel(&mut self) {
        self.cancel_pending = !self.host.cancel_session_turn(&self.session) && self.screen.is_busy();
    }

    async fn submit(&mut self, text: String) -> std::ops::ControlFlow<()> {
        self.history.add(&text);
        let line = text.trim();
        if QUIT_COMMANDS.contains(&line) {
            return std::ops::ControlFlow::Break(());
        }
        if let Some(number) = line.strip_prefix(",show").filter(|rest| rest.is_empty() || rest.starts_with(' ')) {
            match number.trim() {
                "" => self.screen.show_output(None),
                number => match number.parse() {
                    Ok(number) => self.screen.show_output(Some(number)),
                    Err(_) => self.screen.add_note(",show takes the number of an output, as in ,show 2"),
                },
            }
            return std::ops::ControlFlow::Continue(());
        }
        self.screen.add_user_message(&text, self.elapsed());
        if line == ",help" {
            self.screen.add_note(SCREEN_HELP);
        }
        let event = with_local_actor(self.chat.message_event(&self.chat_id, text));
        let (host, id) = (self.host.clone(), event.event_id.clone());
        let mut turn: PendingTurn = async move { (id, host.serve(IncomingEvent::trusted(event)).await) }.boxed();
        // The first poll takes the queue slot, so that messages keep their order.
        match poll!(&mut turn) {
            std::task::Poll::Ready((event, served)) => self.finish_turn(&event, served),
            std::task::Poll::Pending => self.pending_turns.push(turn),
        }
        std::ops::ControlFlow::Continue(())
    }

    fn finish_turn(&mut self, event: &EventId, served: Result<ServedEvent, HostError>) {
        // The reply precedes the end of its turn.
        self.drain_updates();
        let failed = |failure: CommandError| TurnEnding {
            error: Some(failure.message),
            hint: Some(failure.hint).filter(|hint| !hint.is_empty()),
            ..TurnEnding::default()
        };
        let ending = match served {
            Err(error) => failed(error.into()),
            Ok(ServedEvent { error: None, delivery_errors, .. }) => {
                let error = delivery_errors.first().map(|reason| format!("the reply could not be shown: {reason}"));
                TurnEnding { error, ..TurnEnding::default() }
            }
            Ok(ServedEvent { error: Some(TurnError::Cancelled), .. }) => {
                TurnEnding { is_cancelled: true, ..TurnEnding::default() }
            }
            // A notice has already reported the failure.
            Ok(ServedEvent { error: Some(error), outbounds, .. }) if !outbounds.is_empty() => {
                TurnEnding { error: None, ..failed(error.into()) }
            }
            Ok(ServedEvent { error: Some(error), .. }) => failed(error.into()),
        };
        self.cancel_pending = false;
        self.screen.finish_event(event, &ending, self.elapsed());
    }
}
