//! `capstan chat`.

mod history;
mod keys;
mod lines;
mod room;
mod standstill;
mod terminal;
mod words;

use std::io::IsTerminal as _;

use capstan_channels::Cli;
use capstan_channels::chat::Palette;
use capstan_protocol::{ActorRef, Event, ModelId, SessionId};
use clap::Args;

use crate::command_line::{self, Context, WorkspaceFlag};
use crate::{Exit, Failure};

/// What a chat can be told on its command line.
#[derive(Args)]
pub(crate) struct Chat {
    /// The session; by default cli:local, which `capstan run` has too.
    #[arg(long, value_name = "ID", value_parser = command_line::name)]
    pub(crate) session_id: Option<String>,
    /// The model, as provider:name, in place of the one that is set.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Shows no colours, as with `NO_COLOR` in the environment.
    #[arg(long)]
    pub(crate) no_color: bool,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
}

/// The chat within the channel, and who talks there: the same as of `capstan run`.
const CHAT: &str = "local";
const PERSON: &str = "human";
/// What ends a chat.
const QUIT: [&str; 2] = [",quit", ",exit"];

/// Whoever can move a cursor gets a screen; everybody else, as a script does, says a message per line.
pub(crate) async fn chat(mut context: Context<'_>, arguments: Chat) -> Result<(), Failure> {
    if let Some(model) = &arguments.model {
        context.config.model = model_of(model)?;
    }
    let session = match &arguments.session_id {
        Some(id) => SessionId::new(id.as_str()),
        None => Event::message(Cli::NAME, CHAT, "").fallback_session(),
    };
    if is_at_screen() {
        room::talk(context, session, palette(&arguments)).await
    } else {
        lines::talk(context, session).await
    }
}

/// Whether somebody sits at a terminal that can do more than print.
pub(crate) fn is_at_screen() -> bool {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    is_terminal && !std::env::var("TERM").is_ok_and(|term| term == "dumb")
}

fn palette(arguments: &Chat) -> Palette {
    let unwanted = arguments.no_color || std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    if unwanted { Palette::Plain } else { Palette::Colour }
}

fn model_of(text: &str) -> Result<ModelId, Failure> {
    let refused = |reason: &str| {
        Failure::new("usage", format!("--model {text} is no model: {reason}"), Exit::Usage)
            .hinted("give it as provider:name, as in openai:NAME or demo:")
    };
    let model: ModelId = text.parse().map_err(|error| refused(&format!("{error}")))?;
    if model.name().is_empty() && model.provider() != "demo" {
        return Err(refused("the name after the colon is missing"));
    }
    Ok(model)
}

/// An event as somebody says it here.
fn said(text: String, session: &SessionId) -> Event {
    let mut event = Event::message(Cli::NAME, CHAT, text);
    event.session_id = Some(session.clone());
    by_person(event)
}

fn by_person(mut event: Event) -> Event {
    event.actor = Some(ActorRef { id: PERSON.to_owned(), name: None });
    event
}
