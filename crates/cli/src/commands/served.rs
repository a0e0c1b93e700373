//! An event that a command feeds to a host of its own, and how that command ends.

use std::sync::Arc;
use std::time::Duration;

use capstan_channels::Cli;
use capstan_hooks::contracts::Channel;
use capstan_hooks::points::ProvideChannels;
use capstan_hooks::{HookRuntime, Inbound};
use capstan_host::{Host, Served};
use capstan_protocol::{ChannelName, Outcome};
use capstan_turn::{RunFailure, TurnError};
use serde_json::json;

use super::print_json;
use super::signals::Signals;
use crate::{Exit, Failure};

/// How long a run that was cancelled may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// A channel whose callers wait answers those who ask there, in the process that serves it: a command would answer
/// nobody.
pub(super) fn check_channel(hooks: &HookRuntime, name: &ChannelName) -> Result<(), Failure> {
    let channels = hooks.provided::<ProvideChannels, Arc<dyn Channel>>(|channel| channel.name().to_string());
    let asked = channels.iter().find(|channel| channel.name() == *name);
    if name.as_str() == Cli::NAME || !asked.is_some_and(|channel| channel.capabilities().caller_waits) {
        return Ok(());
    }
    let message = format!("a run cannot answer on the channel {name}: its callers wait where it is served");
    Err(Failure::new("channel-elsewhere", message, Exit::Usage))
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

/// What a command prints of an event that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printed {
    /// Nothing: the answer was printed where it was said.
    Nothing,
    /// Everything, as JSON.
    Json,
}

/// Ends a command as its event did: whether it failed, now or when it was sent before, and whether its reply was
/// delivered.
pub(super) fn end(served: Served, notices: Vec<String>, printed: Printed) -> Result<(), Failure> {
    if printed == Printed::Json {
        print_json(&in_json(&served))?;
    }
    if let Some(error) = served.error {
        return Err(error.into());
    }
    if served.duplicate {
        ended_before(served.outcome)?;
    } else if served.run_id.is_none() && served.outcome == Some(Outcome::Silent) {
        complain!("nothing was done: no binding that is in force fits; `capstan bindings list` shows them");
    }
    tell(notices, &served.undelivered)
}

/// Says what goes to the standard error after a turn that did not fail, and whether its reply was delivered.
pub(super) fn tell(notices: Vec<String>, undelivered: &[String]) -> Result<(), Failure> {
    for notice in notices {
        complain!("{notice}");
    }
    match undelivered.first() {
        Some(reason) => {
            let message = format!("the reply could not be delivered: {reason}");
            Err(Failure::new("reply-undelivered", message, Exit::Failed))
        }
        None => Ok(()),
    }
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
            Err(stopped.hinted("nothing is lost: the same event id again gives its answer when it is there"))
        }
    }
}

fn in_json(served: &Served) -> serde_json::Value {
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
    if !served.undelivered.is_empty() {
        object["undelivered"] = json!(served.undelivered);
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

#[cfg(test)]
mod tests {
    use capstan_host::Served;
    use capstan_protocol::Outcome;

    use super::{Printed, end, in_json};

    fn served(outcome: Outcome) -> Served {
        Served {
            session: "s".into(),
            run_id: Some("run-1".into()),
            output: "hello".to_owned(),
            outbounds: Vec::new(),
            usage: None,
            outcome: Some(outcome),
            error: None,
            undelivered: Vec::new(),
            duplicate: false,
        }
    }

    #[test]
    fn x03_a_reply_that_reached_nobody_fails_its_command_and_says_so_in_json() {
        let replied = served(Outcome::Replied { text: "hello".to_owned() });
        assert_eq!(in_json(&replied).get("undelivered"), None);
        let lost = Served { undelivered: vec!["nobody listens".to_owned()], ..replied };
        assert_eq!(in_json(&lost)["undelivered"][0], "nobody listens");
        let failure = end(lost, Vec::new(), Printed::Nothing).unwrap_err();
        assert_eq!(failure.code, "reply-undelivered");
    }

    #[test]
    fn x03_what_failed_before_fails_again() {
        let failed =
            served(Outcome::Failed { notice: "no key".to_owned(), code: Some("model-unauthorized".to_owned()) });
        let failure = end(Served { duplicate: true, ..failed }, Vec::new(), Printed::Nothing).unwrap_err();
        assert_eq!((failure.code.as_str(), failure.message.as_str()), ("model-unauthorized", "no key"));
    }
}
