//! An event that a command feeds to a host of its own, and how that command ends.

use std::sync::Arc;
use std::time::Duration;

use capstan_channels::CliChannel;
use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::Channel;
use capstan_hooks::points::ProvideChannels;
use capstan_host::{Host, IncomingEvent, ServedEvent};
use capstan_protocol::{ChannelName, ErrorCode, ExitClass, Outcome};
use capstan_turn::{RunError, TurnError};
use serde_json::json;

use super::print_json;
use super::signals::TerminationSignals;
use crate::CommandError;

/// How long a run that was cancelled may take to end.
const RUN_CANCEL_GRACE: Duration = Duration::from_secs(5);

/// A channel whose callers wait answers those who ask there, in the process that serves it: a command would answer
/// nobody.
pub(super) fn check_channel(hooks: &HookRuntime, name: &ChannelName) -> Result<(), CommandError> {
    let channels = hooks.collect_provided::<ProvideChannels, Arc<dyn Channel>>(|channel| channel.name().to_string());
    let asked = channels.iter().find(|channel| channel.name() == *name);
    if name.as_str() == CliChannel::CHANNEL_NAME
        || !asked.is_some_and(|channel| channel.capabilities().has_waiting_callers)
    {
        return Ok(());
    }
    let message = format!("a run cannot answer on the channel {name}: its callers wait where it is served");
    Err(CommandError::new(ErrorCode::ChannelElsewhere, message))
}

/// The first interrupt cancels the run, which still ends with its outcome recorded, and waits a while for whoever does not
/// read the reply; a second one waits for nothing.
pub(super) async fn serve_event(host: Host, event: impl Into<IncomingEvent>) -> Result<ServedEvent, CommandError> {
    let mut signals = TerminationSignals::watch();
    let (running, event) = (host.clone(), event.into());
    let serving = async move {
        let served = host.serve(event).await;
        match &served {
            // Whoever waits knows by now, and nothing else goes on that is worth waiting for.
            Err(_) => host.abort().await?,
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
        () = tokio::time::sleep(RUN_CANCEL_GRACE) => Err(TurnError::Cancelled.into()),
    }
}

/// What a command prints of an event that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrintMode {
    /// Nothing: the answer was printed where it was said.
    Nothing,
    /// Everything, as JSON.
    Json,
}

/// Ends a command as its event did: whether it failed, now or when it was sent before, and whether its reply was
/// delivered.
pub(super) fn finish_command(
    served: ServedEvent,
    notices: Vec<String>,
    printed: PrintMode,
) -> Result<(), CommandError> {
    if printed == PrintMode::Json {
        print_json(&served_to_json(&served))?;
    }
    if let Some(error) = served.error {
        return Err(error.into());
    }
    if served.is_duplicate {
        repeat_outcome(served.outcome)?;
    } else if served.run_id.is_none() && served.outcome == Some(Outcome::Silent) {
        stderr_line!("nothing was done: no binding that is in force fits; `capstan bindings list` shows them");
    }
    report_delivery(notices, &served.delivery_errors)
}

/// Says what goes to the standard error after a turn that did not fail, and whether its reply was delivered.
pub(super) fn report_delivery(notices: Vec<String>, undelivered: &[String]) -> Result<(), CommandError> {
    for notice in notices {
        stderr_line!("{notice}");
    }
    match undelivered.first() {
        Some(reason) => {
            let message = format!("the reply could not be delivered: {reason}");
            Err(CommandError::new(ErrorCode::ReplyUndelivered, message))
        }
        None => Ok(()),
    }
}

/// An event that ended before fails its command again where it did then.
fn repeat_outcome(outcome: Option<Outcome>) -> Result<(), CommandError> {
    match outcome {
        Some(Outcome::Failed { notice, code }) => Err(TurnError::Run(RunError { message: notice, code }).into()),
        Some(Outcome::Cancelled) => Err(TurnError::Cancelled.into()),
        Some(Outcome::Replied { .. } | Outcome::Silent | Outcome::Folded { .. } | Outcome::Dropped) => Ok(()),
        None => {
            let message = "this process was told to end; another one still works on the event";
            let stopped = CommandError::new(ErrorCode::HostStopping, message).with_exit(ExitClass::Cancelled);
            Err(stopped.with_hint("nothing is lost: the same event id again gives its answer when it is there"))
        }
    }
}

fn served_to_json(served: &ServedEvent) -> serde_json::Value {
    let mut object = json!({
        "session_id": served.session,
        "run_id": served.run_id,
        "output": served.output,
        "outbounds": served.outbounds,
        "usage": served.usage,
        "outcome": served.outcome.as_ref().map(Outcome::name),
    });
    if served.is_duplicate {
        object["duplicate"] = true.into();
    }
    if !served.delivery_errors.is_empty() {
        object["undelivered"] = json!(served.delivery_errors);
    }
    match (&served.error, &served.outcome) {
        (Some(error), _) => object["error"] = json!({ "code": error.code(), "message": error.public_message() }),
        // What failed before says so again.
        (None, Some(Outcome::Failed { notice, code })) => {
            object["error"] = json!({ "code": code.clone().unwrap_or(ErrorCode::RunFailed.into()), "message": notice });
        }
        (None, _) => {}
    }
    object
}

#[cfg(test)]
mod tests {
    use capstan_host::ServedEvent;
    use capstan_protocol::{ErrorCode, Outcome};

    use super::{PrintMode, finish_command, served_to_json};

    fn served_with_outcome(outcome: Outcome) -> ServedEvent {
        ServedEvent {
            session: "s".into(),
            run_id: Some("run-1".into()),
            output: "hello".to_owned(),
            outbounds: Vec::new(),
            usage: None,
            outcome: Some(outcome),
            error: None,
            delivery_errors: Vec::new(),
            is_duplicate: false,
        }
    }

    #[test]
    fn x03_a_reply_that_reached_nobody_fails_its_command_and_says_so_in_json() {
        let replied = served_with_outcome(Outcome::Replied { text: "hello".to_owned() });
        assert_eq!(served_to_json(&replied).get("undelivered"), None);
        let lost = ServedEvent { delivery_errors: vec!["nobody listens".to_owned()], ..replied };
        assert_eq!(served_to_json(&lost)["undelivered"][0], "nobody listens");
        let failure = finish_command(lost, Vec::new(), PrintMode::Nothing).unwrap_err();
        assert_eq!(failure.code, ErrorCode::ReplyUndelivered);
    }

    #[test]
    fn x03_what_failed_before_fails_again() {
        let failed = served_with_outcome(Outcome::Failed {
            notice: "no key".to_owned(),
            code: Some(ErrorCode::ModelUnauthorized.into()),
        });
        let failure =
            finish_command(ServedEvent { is_duplicate: true, ..failed }, Vec::new(), PrintMode::Nothing).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (ErrorCode::ModelUnauthorized.into(), "no key"));
    }
}
