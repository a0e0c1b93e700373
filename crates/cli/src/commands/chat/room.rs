//! A chat on a screen: keys and what the host tells come in, frames go out.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use capstan_channels::Chat;
use capstan_channels::chat::{Ended, Key, Palette, Screen, TICK, Told, Wish};
use capstan_hooks::Deadlines;
use capstan_hooks::contracts::Channel as _;
use capstan_host::{Host, HostError, Served};
use capstan_protocol::{EventId, SessionId};
use capstan_turn::TurnError;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use futures::{FutureExt as _, poll};
use tokio::sync::mpsc;

use super::history::History;
use super::keys::{Input, Keyboard};
use super::standstill::{Standstill, is_in_front};
use super::terminal::Terminal;
use super::words::{names, words};
use super::{CHAT, QUIT, by_person};
use crate::command_line::Context;
use crate::commands::signals::Signals;
use crate::{Exit, Failure, builder};

type Turn = BoxFuture<'static, (EventId, Result<Served, HostError>)>;

/// What can be done at a screen beside what every channel can.
const HERE: &str = "\
,show [NUMBER]     the whole of what a tool gave, by its number or the last one; ctrl-o too
enter, alt-enter   sends; begins a new line
tab, up, down      completes; an earlier or later message
ctrl-c             cancels the run, then leaves
ctrl-z, ctrl-d     gives the terminal to the shell until `fg`; leaves";

/// Why a chat ends.
enum End {
    /// Somebody left.
    Left,
    /// Somebody told the process to end.
    Told,
}

pub(super) async fn talk(context: Context<'_>, session: SessionId, palette: Palette) -> Result<(), Failure> {
    // Watched before anybody can know that this process is there to be told.
    let signals = Signals::watch();
    let (chat, told) = Chat::new(session.clone());
    let hooks = context.capstan.hooks(&context.config, &chat, Deadlines::default());
    let words = words(&hooks, &context.workspace, &context.config.tools.skills);
    let (store, owner) = builder::open_home(&context.config)?;
    let settings = builder::settings(&context.config, context.workspace.clone(), owner);
    let host = Host::start(hooks, store, settings).await?;
    host.attend(&chat.name(), &session).await?;
    let (history, messages) = History::open(&context.config.home);
    let mut screen = Screen::new(Terminal::size(), palette, messages, words);
    screen.note(&format!("capstan · {} · {session} · ,help lists commands, ctrl-d leaves", context.config.model));
    let unusable = |error: std::io::Error| {
        Failure::new("output-closed", format!("the terminal cannot be used: {error}"), Exit::Failed)
    };
    let terminal = Terminal::open(palette).map_err(unusable)?;
    let room = Room {
        workspace: context.workspace,
        session,
        chat,
        told,
        host: host.clone(),
        history,
        screen,
        terminal,
        standstill: Standstill::watch(),
        turns: FuturesUnordered::new(),
        begun: Instant::now(),
        is_to_cancel: false,
    };
    let ended = room.run(signals).await;
    // Whoever left waits for nothing: what goes on is cancelled, and that is on record.
    host.stop_within(Duration::ZERO).await?;
    match ended {
        Ok(End::Left) => Ok(()),
        Ok(End::Told) => Err(TurnError::Cancelled.into()),
        Err(error) => Err(unusable(error)),
    }
}

struct Room {
    workspace: PathBuf,
    session: SessionId,
    chat: Chat,
    told: mpsc::Receiver<Told>,
    host: Host,
    history: History,
    screen: Screen,
    terminal: Terminal,
    standstill: Standstill,
    /// The messages that are not answered.
    turns: FuturesUnordered<Turn>,
    begun: Instant,
    /// The run is to be cancelled as soon as there is one.
    is_to_cancel: bool,
}

impl Room {
    async fn run(mut self, mut signals: Signals) -> std::io::Result<End> {
        let mut keyboard = Keyboard::open();
        let mut tick = tokio::time::interval(TICK);
        let end = loop {
            // Keys may be faster than the word that the terminal has another size.
            self.screen.resize(Terminal::size());
            let frame = self.screen.frame(self.now());
            self.terminal.draw(&frame)?;
            tokio::select! {
                input = keyboard.next() => match input {
                    None => break End::Told,
                    Some(Input::Resized) => {}
                    Some(Input::Key(key)) => {
                        if self.press(&key).await?.is_break() {
                            break End::Left;
                        }
                    }
                },
                Some(told) = self.told.recv() => {
                    self.screen.tell(told, self.now());
                    self.hear_all();
                }
                Some((event, served)) = self.turns.next() => self.answered(&event, served),
                () = signals.next() => break End::Told,
                () = self.standstill.resumed() => self.go_on().await?,
                _ = tick.tick(), if self.screen.is_busy() => {
                    if self.is_to_cancel {
                        self.cancel();
                    }
                }
            }
        };
        let frame = self.screen.last_frame(self.now());
        self.terminal.draw(&frame)?;
        Ok(end)
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Takes in everything that was told so far, so that it is drawn at once.
    fn hear_all(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            self.screen.tell(told, self.now());
        }
    }

    async fn press(&mut self, key: &Key) -> std::io::Result<std::ops::ControlFlow<()>> {
        let workspace = self.workspace.clone();
        match self.screen.press(key, |folder| names(&workspace.join(folder))) {
            Wish::Nothing => {}
            Wish::Redraw => self.terminal.clear()?,
            Wish::Leave => return Ok(std::ops::ControlFlow::Break(())),
            Wish::Suspend => self.suspend().await?,
            Wish::Cancel => self.cancel(),
            Wish::Say(text) => return Ok(self.say(text).await),
        }
        Ok(std::ops::ControlFlow::Continue(()))
    }

    async fn suspend(&mut self) -> std::io::Result<()> {
        self.terminal.lend()?;
        self.standstill.stop().await?;
        self.terminal.retake()
    }

    /// Somebody stopped this process, and let it go on.
    async fn go_on(&mut self) -> std::io::Result<()> {
        if !is_in_front() {
            self.standstill.stop().await?;
        }
        self.terminal.retake()
    }

    /// A turn that has not begun yet is cancelled when it has.
    fn cancel(&mut self) {
        self.is_to_cancel = !self.host.cancel_in(&self.session) && self.screen.is_busy();
    }

    async fn say(&mut self, text: String) -> std::ops::ControlFlow<()> {
        self.history.add(&text);
        let line = text.trim();
        if QUIT.contains(&line) {
            return std::ops::ControlFlow::Break(());
        }
        if let Some(number) = line.strip_prefix(",show").filter(|rest| rest.is_empty() || rest.starts_with(' ')) {
            match number.trim() {
                "" => self.screen.expand(None),
                number => match number.parse() {
                    Ok(number) => self.screen.expand(Some(number)),
                    Err(_) => self.screen.note(",show takes the number of an output, as in ,show 2"),
                },
            }
            return std::ops::ControlFlow::Continue(());
        }
        self.screen.said(&text, self.now());
        if line == ",help" {
            self.screen.note(HERE);
        }
        let event = by_person(self.chat.event(CHAT, text));
        let (host, id) = (self.host.clone(), event.event_id.clone());
        let mut turn: Turn = async move { (id, host.serve(event).await) }.boxed();
        // It takes its place in line when it is first asked how far it is.
        match poll!(&mut turn) {
            std::task::Poll::Ready((event, served)) => self.answered(&event, served),
            std::task::Poll::Pending => self.turns.push(turn),
        }
        std::ops::ControlFlow::Continue(())
    }

    fn answered(&mut self, event: &EventId, served: Result<Served, HostError>) {
        // What it was answered with comes first.
        self.hear_all();
        let failed = |failure: Failure| Ended {
            failed: Some(failure.message),
            hint: Some(failure.hint).filter(|hint| !hint.is_empty()),
            ..Ended::default()
        };
        let ended = match served {
            Err(error) => failed(error.into()),
            Ok(Served { error: None, undelivered, .. }) => {
                let failed = undelivered.first().map(|reason| format!("the reply could not be shown: {reason}"));
                Ended { failed, ..Ended::default() }
            }
            Ok(Served { error: Some(TurnError::Cancelled), .. }) => Ended { cancelled: true, ..Ended::default() },
            // A notice has told what failed.
            Ok(Served { error: Some(error), outbounds, .. }) if !outbounds.is_empty() => {
                Ended { failed: None, ..failed(error.into()) }
            }
            Ok(Served { error: Some(error), .. }) => failed(error.into()),
        };
        self.is_to_cancel = false;
        self.screen.answered(event, &ended, self.now());
    }
}
