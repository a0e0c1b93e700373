//! `capstan run`.

use std::io::Read as _;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_host::{Host, IncomingEvent};
use capstan_protocol::{ActorRef, ErrorCode, Event, EventId, SessionId};
use clap::Args;

use super::serve_one::{PrintMode, check_channel, finish_command, serve_event};
use super::tape::find_fork_session;
use super::trust::{TrustQuestion, settle_trust};
use super::{CommandContext, WorkspaceFlag, parse_name};
use crate::{CommandError, home, output};

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Message text, or - for standard input; a message that starts with a comma is a command (try ,help)
    message: String,
    /// Session to continue [default: CHANNEL:CHAT]
    #[arg(long, value_name = "ID", value_parser = parse_name)]
    session_id: Option<String>,
    /// Fork to continue, created with `capstan tape fork`; the turn reads its parent too and writes to the fork
    #[arg(long, value_name = "FORK", conflicts_with = "session_id", value_parser = parse_name)]
    tape: Option<String>,
    /// Channel of the message and of the reply
    #[arg(long, value_name = "NAME", default_value = "cli")]
    channel: String,
    /// Chat within the channel
    #[arg(long, value_name = "ID", default_value = "local", value_parser = parse_name)]
    chat_id: String,
    /// Sender of the message
    #[arg(long, value_name = "ID", default_value = "human", value_parser = parse_name)]
    sender_id: String,
    /// Idempotency key: if this id was used before, return the stored reply instead of running a second turn
    #[arg(long, value_name = "ID", value_parser = parse_name)]
    event_id: Option<String>,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
    /// Print one JSON object: `session_id`, `run_id`, `output`, `outbounds`, `usage`, `outcome`
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(mut context: CommandContext<'_>, arguments: RunArgs) -> Result<(), CommandError> {
    // A program reads the JSON, and the standard input may be the message.
    let can_ask = !arguments.json && arguments.message != "-";
    settle_trust(&mut context, if can_ask { TrustQuestion::Ask } else { TrustQuestion::Skip })?;
    let mut event = build_event(&context, &arguments)?;
    if let Some(fork) = &arguments.tape {
        event.session_id = Some(find_fork_session(&context, fork).await?);
    }
    if arguments.json || event.source.as_str() == CliChannel::CHANNEL_NAME {
        output::check_stdout_writable(CliChannel::CHANNEL_NAME)?;
    }
    let cli = CliChannel::new(if arguments.json { CliPrinter::silent() } else { CliPrinter::standard() });
    let hooks = context.capstan.build_hooks(&context.config, &cli);
    check_channel(&hooks, &event.source)?;
    let (store, owner) = home::open_store_and_lock(&context.config)?;
    let options = context.capstan.host_options(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, options).await?;
    let print_mode = if arguments.json { PrintMode::Json } else { PrintMode::Nothing };
    finish_command(serve_event(host, with_origin(event), print_mode).await?, cli.take_notices())
}

/// Origin of a message: trusted on the channel of the terminal. A message in the name of another channel is a message of
/// that channel, perhaps passed on by a script.
fn with_origin(event: Event) -> IncomingEvent {
    if event.source.as_str() == CliChannel::CHANNEL_NAME { IncomingEvent::trusted(event) } else { event.into() }
}

fn build_event(context: &CommandContext<'_>, arguments: &RunArgs) -> Result<Event, CommandError> {
    let text = match arguments.message.as_str() {
        "-" => read_stdin_message(context.config.max_message_bytes)?,
        text => text.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(CommandError::new(ErrorCode::InputInvalid, "the message is empty"));
    }
    if text.trim() == "," {
        let error = CommandError::new(ErrorCode::InputInvalid, "the comma is followed by no command");
        return Err(error.with_hint("`capstan run ,help` lists the commands"));
    }
    let mut event = Event::message(arguments.channel.as_str(), arguments.chat_id.clone(), text);
    if let Some(id) = arguments.event_id.as_deref() {
        event.event_id = EventId::new(id);
    }
    event.session_id = arguments.session_id.as_deref().map(SessionId::new);
    event.actor = Some(ActorRef { id: arguments.sender_id.clone(), name: None, kind: None });
    Ok(event)
}

/// Reads at most `limit` bytes of standard input, plus one to detect an oversized message.
fn read_stdin_message(limit: usize) -> Result<String, CommandError> {
    let invalid = |reason: &str| CommandError::new(ErrorCode::InputInvalid, format!("the standard input {reason}"));
    let mut bytes = Vec::new();
    let allowed = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = std::io::stdin().lock().take(allowed).read_to_end(&mut bytes);
    read.map_err(|error| invalid(&format!("cannot be read: {error}")))?;
    if bytes.len() > limit {
        // Before the UTF-8 check: the cut may have split a valid character.
        let message = format!("the standard input is larger than the {limit} bytes allowed");
        return Err(CommandError::new(ErrorCode::MessageTooLarge, message));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("is not valid UTF-8"))?;
    // Rejected on every channel, because some consumers of a message cannot represent NUL.
    if text.contains('\0') {
        return Err(invalid("contains a NUL character")
            .with_hint("send text only; the agent can read a binary file by its path"));
    }
    Ok(text)
}
