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

use super::tape::find_fork_session;
use super::trust::{TrustQuestion, settle_trust};
use super::{CommandContext, WorkspaceFlag, parse_name};
use crate::CommandError;

#[derive(Args)]
pub(crate) struct ChatArgs {
    /// Session id [default: cli:CHAT]
    #[arg(long, value_name = "ID", value_parser = parse_name)]
    session_id: Option<String>,
    /// Chat within the channel
    #[arg(long, value_name = "ID", default_value = LOCAL_CHAT_ID, value_parser = parse_name)]
    chat_id: String,
    /// Fork to continue, created with `capstan tape fork`; turns read its parent too and write to the fork
    #[arg(long, value_name = "FORK", conflicts_with = "session_id", value_parser = parse_name)]
    tape: Option<String>,
    /// Model as PROVIDER:NAME, overriding the configured one
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Disable colors; same as setting `NO_COLOR`
    #[arg(long)]
    no_color: bool,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
}

/// Default id of the chat; also the default of `capstan run`.
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
    let session = match (&arguments.tape, &arguments.session_id) {
        (Some(fork), _) => find_fork_session(&context, fork).await?,
        (None, Some(id)) => SessionId::new(id.as_str()),
        (None, None) => Event::message(CliChannel::CHANNEL_NAME, arguments.chat_id.as_str(), "").fallback_session(),
    };
    let chat = LocalChat { chat_id: arguments.chat_id.clone(), session };
    let session = &chat.session;
    if session.as_str() == SYSTEM_SESSION {
        return Err(HostError::SessionReserved { session: session.clone() }.into());
    }
    settle_trust(&mut context, TrustQuestion::Ask)?;
    if is_screen_terminal() {
        screen_chat::run_screen_chat(context, chat, select_color_mode(&arguments)).await
    } else {
        line_chat::run_line_chat(context, chat).await
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

/// Chat and session of the messages that are typed.
struct LocalChat {
    chat_id: String,
    session: SessionId,
}

impl LocalChat {
    /// The event of a message typed by the local user.
    fn message_event(&self, text: String) -> Event {
        let mut event = Event::message(CliChannel::CHANNEL_NAME, self.chat_id.as_str(), text);
        event.session_id = Some(self.session.clone());
        with_local_actor(event)
    }
}

fn with_local_actor(mut event: Event) -> Event {
    event.actor = Some(ActorRef { id: LOCAL_ACTOR_ID.to_owned(), name: None, kind: None });
    event
}
