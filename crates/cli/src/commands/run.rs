//! `capstan run`.

use std::io::Read as _;

use capstan_channels::{Cli, Printer};
use capstan_hooks::Deadlines;
use capstan_host::Host;
use capstan_protocol::{ActorRef, Event, EventId, SessionId};

use super::served::{Printed, check_channel, end, serve};
use crate::command_line::{Context, Run};
use crate::{Exit, Failure, builder};

pub(crate) async fn run(context: Context<'_>, arguments: Run) -> Result<(), Failure> {
    let event = event(&context, &arguments)?;
    let cli = Cli::new(if arguments.json { Printer::silent() } else { Printer::standard() });
    let hooks = context.capstan.hooks(&context.config, &cli, Deadlines::default());
    check_channel(&hooks, &event.source)?;
    let (store, owner) = builder::open_home(&context.config)?;
    let settings = builder::settings(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, settings).await?;
    let printed = if arguments.json { Printed::Json } else { Printed::Nothing };
    end(serve(host, event).await?, cli.take_notices(), printed)
}

fn event(context: &Context<'_>, arguments: &Run) -> Result<Event, Failure> {
    let text = match arguments.message.as_str() {
        "-" => read_input(context.config.max_message_bytes)?,
        text => text.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(Failure::new("input-invalid", "the message is empty", Exit::Usage));
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
fn read_input(limit: usize) -> Result<String, Failure> {
    let invalid = |reason: &str| Failure::new("input-invalid", format!("the standard input {reason}"), Exit::Usage);
    let mut bytes = Vec::new();
    let allowed = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = std::io::stdin().lock().take(allowed).read_to_end(&mut bytes);
    read.map_err(|error| invalid(&format!("cannot be read: {error}")))?;
    if bytes.len() > limit {
        // The end may have been cut within a character, which is no fault of the message.
        let message = format!("the standard input has more than the {limit} bytes allowed");
        return Err(Failure::new("message-too-large", message, Exit::Usage));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("is not valid UTF-8"))?;
    // As on every channel: not everything that a message passes through can hold one.
    if text.contains('\0') {
        return Err(
            invalid("has a NUL character").hinted("leave it out: a message is a text, and files can be read by path")
        );
    }
    Ok(text)
}
