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
use capstan_host::{HostError, SYSTEM_SESSION};
use capstan_protocol::{ActorRef, ErrorCode, Event, ModelId, SessionId};
use clap::Args;

use super::{CommandContext, WorkspaceFlag, parse_name};
use crate::CommandError;

#[derive(Args)]
pub(crate) struct ChatArgs {
    /// Session id [default: cli:local]
    #[arg(long, value_name = "ID", value_parser = parse_name)]
    session_id: Option<String>,
    /// Model as PROVIDER:NAME, overriding the configured one
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Disable colors; same as setting `NO_COLOR`
    #[arg(long)]
    no_color: bool,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
}

/// Id of the chat; also the default of `capstan run`.
const LOCAL_CHAT_ID: &str = "local";
/// Id of the sender; also the default of `capstan run`.
const LOCAL_ACTOR_ID: &str = "human";
/// Commands that end a chat.
const QUIT_COMMANDS: [&str; 2] = [",quit", ",exit"];

/// Runs a full-screen chat on a terminal with cursor control, otherwise a line-by-line chat (in a script, for example).
pub(crate) async fn run_chat(mut context: CommandContext<'_>, arguments: ChatArgs) -> Result<(), CommandError> {
    if let Some(model) = &arguments.model {
        context.config.model = parse_model(model)?;
    }
    let session = match &arguments.session_id {
        Some(id) => SessionId::new(id.as_str()),
        None => Event::message(CliChannel::CHANNEL_NAME, LOCAL_CHAT_ID, "").fallback_session(),
    };
    if session.as_str() == SYSTEM_SESSION {
        return Err(HostError::SessionReserved { session }.into());
    }
    if is_screen_terminal() {
        screen_chat::run_screen_chat(context, session, select_color_mode(&arguments)).await
    } else {
        line_chat::run_line_chat(context, session).await
    }
}

/// Checks for an interactive terminal with cursor control.
pub(crate) fn is_screen_terminal() -> bool {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    is_terminal && !std::env::var("TERM").is_ok_and(|term| term == "dumb")
}

fn select_color_mode(arguments: &ChatArgs) -> ColorMode {
    let is_plain = arguments.no_color || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if is_plain { ColorMode::Plain } else { ColorMode::Color }
}

fn parse_model(text: &str) -> Result<ModelId, CommandError> {
    let invalid = |reason: &str| {
        CommandError::new(ErrorCode::Usage, format!("invalid --model {text}: {reason}"))
            .with_hint("use PROVIDER:NAME, such as openai:gpt-4.1; the demo model is `demo:`, without a name")
    };
    let model: ModelId = text.parse().map_err(|error| invalid(&format!("{error}")))?;
    if model.name().is_empty() && model.provider() != "demo" {
        return Err(invalid("the name after the colon is missing"));
    }
    Ok(model)
}

/// The event of a message typed by the local user.
fn message_event(text: String, session: &SessionId) -> Event {
    let mut event = Event::message(CliChannel::CHANNEL_NAME, LOCAL_CHAT_ID, text);
    event.session_id = Some(session.clone());
    with_local_actor(event)
}

fn with_local_actor(mut event: Event) -> Event {
    event.actor = Some(ActorRef { id: LOCAL_ACTOR_ID.to_owned(), name: None });
    event
}
