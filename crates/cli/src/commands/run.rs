//! `capstan run`.

use std::io::Read as _;

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::HookDeadlines;
use capstan_host::Host;
use capstan_protocol::{ActorRef, ErrorCode, Event, EventId, SessionId};

use super::serve_one::{PrintMode, check_channel, finish_command, serve_event};
use crate::command_line::{CommandContext, RunArgs};
use crate::{CommandError, builder};

pub(crate) async fn run(context: CommandContext<'_>, arguments: RunArgs) -> Result<(), CommandError> {
    let event = build_event(&context, &arguments)?;
    let cli = CliChannel::new(if arguments.json { CliPrinter::silent() } else { CliPrinter::standard() });
    let hooks = context.capstan.build_hooks(&context.config, &cli, HookDeadlines::default());
    check_channel(&hooks, &event.source)?;
    let (store, owner) = builder::open_home_store(&context.config)?;
    let settings = builder::host_options(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, settings).await?;
    let printed = if arguments.json { PrintMode::Json } else { PrintMode::Nothing };
    finish_command(serve_event(host, event).await?, cli.take_notices(), printed)
}

fn build_event(context: &CommandContext<'_>, arguments: &RunArgs) -> Result<Event, CommandError> {
    let text = match arguments.message.as_str() {
        "-" => read_stdin_message(context.config.max_message_bytes)?,
        text => text.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(CommandError::new(ErrorCode::InputInvalid, "the message is empty"));
    }
    let mut event = Event::message(arguments.channel.as_str(), arguments.chat_id.clone(), text);
    if let Some(id) = arguments.event_id.as_deref() {
        event.event_id = EventId::new(id);
    }
    event.session_id = arguments.session_id.as_deref().map(SessionId::new);
    event.actor = Some(ActorRef { id: arguments.sender_id.clone(), name: None });
    Ok(event)
}

/// Reads no more than a message may have, and one byte to know that there was more.
fn read_stdin_message(limit: usize) -> Result<String, CommandError> {
    let invalid = |reason: &str| CommandError::new(ErrorCode::InputInvalid, format!("the standard input {reason}"));
    let mut bytes = Vec::new();
    let allowed = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = std::io::stdin().lock().take(allowed).read_to_end(&mut bytes);
    read.map_err(|error| invalid(&format!("cannot be read: {error}")))?;
    if bytes.len() > limit {
        // The end may have been cut within a character, which is no fault of the message.
        let message = format!("the standard input has more than the {limit} bytes allowed");
        return Err(CommandError::new(ErrorCode::MessageTooLarge, message));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("is not valid UTF-8"))?;
    // As on every channel: not everything that a message passes through can hold one.
    if text.contains('\0') {
        return Err(invalid("has a NUL character")
            .with_hint("leave it out: a message is a text, and files can be read by path"));
    }
    Ok(text)
}
