//! A chat on a screen: keys and what the host tells come in, frames go out.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use capstan_channels::ChatChannel;
use capstan_channels::chat::{ChatUpdate, ColorMode, KeyInput, SPINNER_INTERVAL, Screen, ScreenAction, TurnEnding};
use capstan_hooks::HookDeadlines;
use capstan_hooks::contracts::Channel as _;
use capstan_host::{Host, HostError, ServedEvent};
use capstan_protocol::{ErrorCode, EventId, ExitClass, SessionId};
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
use super::{LOCAL_CHAT_ID, QUIT_COMMANDS, with_local_actor};
use crate::command_line::CommandContext;
use crate::commands::signals::TerminationSignals;
use crate::{CommandError, builder};

type PendingTurn = BoxFuture<'static, (EventId, Result<ServedEvent, HostError>)>;

/// What can be done at a screen beside what every channel can.
const SCREEN_HELP: &str = "\
,show [NUMBER]     the whole of what a tool gave, by its number or the last one; ctrl-o too
enter, alt-enter   sends; begins a new line
tab, up, down      completes; an earlier or later message
ctrl-c             cancels the run, then leaves
ctrl-z, ctrl-d     gives the terminal to the shell until `fg`; leaves";

/// Why a chat ends.
enum ChatEnd {
    /// Somebody left.
    UserLeft,
    /// Somebody told the process to end.
    Terminated,
}

pub(super) async fn run_screen_chat(
    context: CommandContext<'_>,
    session: SessionId,
    palette: ColorMode,
) -> Result<(), CommandError> {
    // Watched before anybody can know that this process is there to be told.
    let signals = TerminationSignals::watch();
    let (chat, told) = ChatChannel::new(session.clone());
    let hooks = context.capstan.build_hooks(&context.config, &chat, HookDeadlines::default());
    let words = completion_words(&hooks, &context.workspace, &context.config.tools.skills);
    let (store, owner) = builder::open_home_store(&context.config)?;
    let settings = builder::host_options(&context.config, context.workspace.clone(), owner);
    let host = Host::start(hooks, store, settings).await?;
    host.attend_session(&chat.name(), &session).await?;
    let (history, messages) = ChatHistory::open(&context.config.home);
    let mut screen = Screen::new(TerminalRenderer::size(), palette, messages, words);
    screen.add_note(&format!("capstan · {} · {session} · ,help lists commands, ctrl-d leaves", context.config.model));
    let unusable = |error: std::io::Error| {
        CommandError::new(ErrorCode::OutputClosed, format!("the terminal cannot be used: {error}"))
            .with_exit(ExitClass::Failed)
    };
    let terminal = TerminalRenderer::open(palette).map_err(unusable)?;
    let room = ScreenChat {
        workspace: context.workspace,
        session,
        chat,
        updates: told,
        host: host.clone(),
        history,
        screen,
        terminal,
        job_control: JobControl::watch(),
        pending_turns: FuturesUnordered::new(),
        started_at: Instant::now(),
        cancel_pending: false,
    };
    let ended = room.run(signals).await;
    // Whoever left waits for nothing: what goes on is cancelled, and that is on record.
    host.stop_within(Duration::ZERO).await?;
    match ended {
        Ok(ChatEnd::UserLeft) => Ok(()),
        Ok(ChatEnd::Terminated) => Err(TurnError::Cancelled.into()),
        Err(error) => Err(unusable(error)),
    }
}

struct ScreenChat {
    workspace: PathBuf,
    session: SessionId,
    chat: ChatChannel,
    updates: mpsc::Receiver<ChatUpdate>,
    host: Host,
    history: ChatHistory,
    screen: Screen,
    terminal: TerminalRenderer,
    job_control: JobControl,
    /// The messages that are not answered.
    pending_turns: FuturesUnordered<PendingTurn>,
    started_at: Instant,
    /// The run is to be cancelled as soon as there is one.
    cancel_pending: bool,
}

impl ScreenChat {
    async fn run(mut self, mut signals: TerminationSignals) -> std::io::Result<ChatEnd> {
        let mut keyboard = KeyboardReader::open();
        let mut tick = tokio::time::interval(SPINNER_INTERVAL);
        let end = loop {
            // Keys may be faster than the word that the terminal has another size.
            self.screen.resize(TerminalRenderer::size());
            let frame = self.screen.frame(self.elapsed());
            self.terminal.draw(&frame)?;
            tokio::select! {
                input = keyboard.next() => match input {
                    None => break ChatEnd::Terminated,
                    Some(TerminalInput::Resized) => {}
                    Some(TerminalInput::Key(key)) => {
                        if self.handle_key(&key).await?.is_break() {
                            break ChatEnd::UserLeft;
                        }
                    }
                },
                Some(told) = self.updates.recv() => {
                    self.screen.apply_update(told, self.elapsed());
                    self.drain_updates();
                }
                Some((event, served)) = self.pending_turns.next() => self.finish_turn(&event, served),
                () = signals.next() => break ChatEnd::Terminated,
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

    fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Takes in everything that was told so far, so that it is drawn at once.
    fn drain_updates(&mut self) {
        while let Ok(told) = self.updates.try_recv() {
            self.screen.apply_update(told, self.elapsed());
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

    /// Somebody stopped this process, and let it go on.
    async fn resume(&mut self) -> std::io::Result<()> {
        if !is_foreground() {
            self.job_control.suspend().await?;
        }
        self.terminal.reacquire()
    }

    /// A turn that has not begun yet is cancelled when it has.
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
        let event = with_local_actor(self.chat.message_event(LOCAL_CHAT_ID, text));
        let (host, id) = (self.host.clone(), event.event_id.clone());
        let mut turn: PendingTurn = async move { (id, host.serve(event).await) }.boxed();
        // It takes its place in line when it is first asked how far it is.
        match poll!(&mut turn) {
            std::task::Poll::Ready((event, served)) => self.finish_turn(&event, served),
            std::task::Poll::Pending => self.pending_turns.push(turn),
        }
        std::ops::ControlFlow::Continue(())
    }

    fn finish_turn(&mut self, event: &EventId, served: Result<ServedEvent, HostError>) {
        // What it was answered with comes first.
        self.drain_updates();
        let failed = |failure: CommandError| TurnEnding {
            error: Some(failure.message),
            hint: Some(failure.hint).filter(|hint| !hint.is_empty()),
            ..TurnEnding::default()
        };
        let ended = match served {
            Err(error) => failed(error.into()),
            Ok(ServedEvent { error: None, delivery_errors: undelivered, .. }) => {
                let failed = undelivered.first().map(|reason| format!("the reply could not be shown: {reason}"));
                TurnEnding { error: failed, ..TurnEnding::default() }
            }
            Ok(ServedEvent { error: Some(TurnError::Cancelled), .. }) => {
                TurnEnding { is_cancelled: true, ..TurnEnding::default() }
            }
            // A notice has told what failed.
            Ok(ServedEvent { error: Some(error), outbounds, .. }) if !outbounds.is_empty() => {
                TurnEnding { error: None, ..failed(error.into()) }
            }
            Ok(ServedEvent { error: Some(error), .. }) => failed(error.into()),
        };
        self.cancel_pending = false;
        self.screen.finish_event(event, &ended, self.elapsed());
    }
}
