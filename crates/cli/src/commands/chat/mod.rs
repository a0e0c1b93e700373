//! `capstan chat`.

mod completions;
mod history;
mod job_control;
mod keyboard;
mod line_chat;
mod screen_chat;
mod terminal;

use std::io::IsTerminal as _;

use capstan_channels::CliChannel;
use capstan_channels::chat::ColorMode;
use capstan_protocol::{ActorRef, ErrorCode, Event, ModelId, SessionId};
use clap::Args;

use crate::CommandError;
use crate::command_line::{self, CommandContext, WorkspaceFlag};

/// What a chat can be told on its command line.
#[derive(Args)]
pub(crate) struct ChatArgs {
    /// The session; by default cli:local, which `capstan run` has too.
    #[arg(long, value_name = "ID", value_parser = command_line::parse_name)]
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
const LOCAL_CHAT_ID: &str = "local";
const LOCAL_ACTOR_ID: &str = "human";
/// What ends a chat.
const QUIT_COMMANDS: [&str; 2] = [",quit", ",exit"];

/// Whoever can move a cursor gets a screen; everybody else, as a script does, says a message per line.
pub(crate) async fn run_chat(mut context: CommandContext<'_>, arguments: ChatArgs) -> Result<(), CommandError> {
    if let Some(model) = &arguments.model {
        context.config.model = parse_model(model)?;
    }
    let session = match &arguments.session_id {
        Some(id) => SessionId::new(id.as_str()),
        None => Event::message(CliChannel::CHANNEL_NAME, LOCAL_CHAT_ID, "").fallback_session(),
    };
    if is_screen_terminal() {
        screen_chat::run_screen_chat(context, session, select_palette(&arguments)).await
    } else {
        line_chat::run_line_chat(context, session).await
    }
}

/// Whether somebody sits at a terminal that can do more than print.
pub(crate) fn is_screen_terminal() -> bool {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    is_terminal && !std::env::var("TERM").is_ok_and(|term| term == "dumb")
}

fn select_palette(arguments: &ChatArgs) -> ColorMode {
    let unwanted = arguments.no_color || std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    if unwanted { ColorMode::Plain } else { ColorMode::Color }
}

fn parse_model(text: &str) -> Result<ModelId, CommandError> {
    let refused = |reason: &str| {
        CommandError::new(ErrorCode::Usage, format!("--model {text} is no model: {reason}"))
            .with_hint("give it as provider:name, as in openai:NAME or demo:")
    };
    let model: ModelId = text.parse().map_err(|error| refused(&format!("{error}")))?;
    if model.name().is_empty() && model.provider() != "demo" {
        return Err(refused("the name after the colon is missing"));
    }
    Ok(model)
}

/// An event as somebody says it here.
fn message_event(text: String, session: &SessionId) -> Event {
    let mut event = Event::message(CliChannel::CHANNEL_NAME, LOCAL_CHAT_ID, text);
    event.session_id = Some(session.clone());
    with_local_actor(event)
}

fn with_local_actor(mut event: Event) -> Event {
    event.actor = Some(ActorRef { id: LOCAL_ACTOR_ID.to_owned(), name: None });
    event
}
