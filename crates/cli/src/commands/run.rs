//! `capstan run`.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use capstan_channels::{Cli, Printer};
use capstan_hooks::contracts::Channel;
use capstan_hooks::points::ProvideChannels;
use capstan_hooks::{Deadlines, HookRuntime, Inbound};
use capstan_host::{Host, Served};
use capstan_protocol::{ActorRef, Event, EventId, Outcome, SessionId};
use capstan_turn::{RunFailure, TurnError};
use serde_json::json;

use super::print_json;
use super::signals::Signals;
use crate::command_line::{Context, Run};
use crate::{Exit, Failure, builder};

/// How long a run that was cancelled may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) async fn run(context: Context<'_>, arguments: Run) -> Result<(), Failure> {
    let event = event(&context, &arguments)?;
    let cli = Cli::new(if arguments.json { Printer::silent() } else { Printer::standard() });
    let hooks = context.capstan.hooks(&context.config, &cli, Deadlines::default());
    check_channel(&hooks, &arguments.channel)?;
    let (store, owner) = builder::open_home(&context.config)?;
    let settings = builder::settings(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, settings).await?;
    let served = serve(host, event).await?;
    if arguments.json {
        print_json(&in_json(&served))?;
    }
    if let Some(error) = served.error {
        return Err(error.into());
    }
    if served.duplicate {
        ended_before(served.outcome)?;
    }
    tell(cli.take_notices(), &served.undelivered)
}

/// Says what goes to the standard error after a turn that did not fail, and whether its reply was delivered.
pub(super) fn tell(notices: Vec<String>, undelivered: &[String]) -> Result<(), Failure> {
    for notice in notices {
        eprintln!("{notice}");
    }
    match undelivered.first() {
        Some(reason) => {
            let message = format!("the reply could not be delivered: {reason}");
            Err(Failure::new("reply-undelivered", message, Exit::Failed))
        }
        None => Ok(()),
    }
}

/// A channel whose callers wait answers those who ask there, in the process that serves it: a run would answer nobody.
fn check_channel(hooks: &HookRuntime, name: &str) -> Result<(), Failure> {
    let channels = hooks.provided::<ProvideChannels, Arc<dyn Channel>>(|channel| channel.name().to_string());
    let asked = channels.iter().find(|channel| channel.name().as_str() == name);
    if name == Cli::NAME || !asked.is_some_and(|channel| channel.capabilities().caller_waits) {
        return Ok(());
    }
    let message = format!("a run cannot answer on the channel {name}: its callers wait where it is served");
    Err(Failure::new("channel-elsewhere", message, Exit::Usage))
}

/// An event that ended before fails its command again where it did then.
fn ended_before(outcome: Option<Outcome>) -> Result<(), Failure> {
    match outcome {
        Some(Outcome::Failed { notice, code }) => Err(TurnError::Run(RunFailure { message: notice, code }).into()),
        Some(Outcome::Cancelled) => Err(TurnError::Cancelled.into()),
        Some(Outcome::Replied { .. } | Outcome::Silent | Outcome::Folded { .. } | Outcome::Dropped) => Ok(()),
        None => {
            let message = "this process was told to end; another one still works on the event";
            let stopped = Failure::new("host-stopping", message, Exit::Cancelled);
            Err(stopped.hinted("nothing is lost: the same --event-id again gives its answer when it is there"))
        }
    }
}

/// The first interrupt cancels the run, which still ends with its outcome recorded, and waits a while for whoever does not
/// read the reply; a second one waits for nothing.
pub(super) async fn serve(host: Host, event: impl Into<Inbound>) -> Result<Served, Failure> {
    let mut signals = Signals::watch();
    let (running, event) = (host.clone(), event.into());
    let serving = async move {
        let served = host.serve(event).await;
        match &served {
            // Whoever waits knows by now, and nothing else goes on that is worth waiting for.
            Err(_) => host.give_up().await?,
            Ok(_) => host.stop().await?,
        }
        served
    };
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return Ok(served?),
        () = signals.next() => running.cancel(),
    }
    tokio::select! {
        served = &mut serving => Ok(served?),
        () = signals.next() => Err(TurnError::Cancelled.into()),
        () = tokio::time::sleep(PATIENCE) => Err(TurnError::Cancelled.into()),
    }
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

pub(super) fn in_json(served: &Served) -> serde_json::Value {
    let mut object = json!({
        "session_id": served.session,
        "run_id": served.run_id,
        "output": served.output,
        "outbounds": served.outbounds,
        "usage": served.usage,
        "outcome": served.outcome.as_ref().map(Outcome::name),
    });
    if served.duplicate {
        object["duplicate"] = true.into();
    }
    match (&served.error, &served.outcome) {
        (Some(error), _) => object["error"] = json!({ "code": error.code(), "message": error.public() }),
        // What failed before says so again.
        (None, Some(Outcome::Failed { notice, code })) => {
            object["error"] = json!({ "code": code.as_deref().unwrap_or("run-failed"), "message": notice });
        }
        (None, _) => {}
    }
    object
}
