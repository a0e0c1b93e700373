//! Serving one event in a host that lives as long as the command.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use capstan_channels::CliChannel;
use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::Channel;
use capstan_hooks::points::ProvideChannels;
use capstan_host::{Host, HostError, IncomingEvent, ServedEvent};
use capstan_protocol::{ChannelName, ErrorCode, EventKey, ExitClass, Outcome};
use capstan_tape::{Batch, Fact, OutboxId, OutboxStatus, Store, StoreError};
use capstan_turn::{RunError, TurnError};
use serde_json::json;

use super::signals::TerminationSignals;
use crate::CommandError;
use crate::output::print_json_reply;

/// Time a cancelled run gets to end.
pub(super) const RUN_CANCEL_GRACE: Duration = Duration::from_secs(5);

/// Rejects a channel with waiting callers: only the process that serves the channel can reply to them.
pub(super) fn check_channel(hooks: &HookRuntime, name: &ChannelName) -> Result<(), CommandError> {
    let channels = hooks.collect_provided::<ProvideChannels, Arc<dyn Channel>>(|channel| channel.name().to_string());
    let channel = channels.iter().find(|channel| channel.name() == *name);
    if name.as_str() == CliChannel::CHANNEL_NAME
        || !channel.is_some_and(|channel| channel.capabilities().has_waiting_callers)
    {
        return Ok(());
    }
    let message = format!("cannot reply on the channel {name}: its callers wait in the process that serves it");
    Err(CommandError::new(ErrorCode::ChannelElsewhere, message))
}

/// Error of a comma command that replied with its failure.
pub(super) fn command_error(served: &ServedEvent) -> Option<CommandError> {
    let message = served.command_error.clone().filter(|_| served.error.is_none())?;
    Some(CommandError::new(ErrorCode::CommandFailed, message))
}

/// Serves an event, prints its outcome in mode [`PrintMode::Json`], and stops the host.
///
/// The first signal cancels the run and waits up to [`RUN_CANCEL_GRACE`] for its outcome to be recorded and its reply to be
/// read. A second signal forces exit.
pub(super) async fn serve_event(
    host: Host,
    event: impl Into<IncomingEvent>,
    print_mode: PrintMode,
) -> Result<ServedEvent, CommandError> {
    let mut signals = TerminationSignals::watch();
    let (running, event) = (host.clone(), event.into());
    let store = Arc::clone(host.tapes().store());
    let journal = Arc::clone(&store);
    let serving = async move {
        let served = match print_mode {
            PrintMode::Nothing => host.serve(event).await,
            PrintMode::Json => serve_and_print(&host, event, journal.as_ref()).await,
        };
        match &served {
            // The waiting caller has been notified, and no other work is worth waiting for.
            Err(_) => host.abort().await?,
            Ok(_) => host.stop().await?,
        }
        served
    };
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return Ok(served?),
        error = store.wait_for_failure() => return Err(error.into()),
        _ = signals.next() => running.cancel_all_runs(),
    }
    tokio::select! {
        served = &mut serving => Ok(served?),
        _ = signals.next() => Err(TurnError::Cancelled.into()),
        () = tokio::time::sleep(RUN_CANCEL_GRACE) => Err(TurnError::Cancelled.into()),
    }
}

/// Serves an event and prints its outcome as JSON. The channel `cli` has only collected its messages, so those that this
/// call delivered become undelivered if they cannot be printed.
async fn serve_and_print(host: &Host, event: IncomingEvent, store: &dyn Store) -> Result<ServedEvent, HostError> {
    let key = EventKey::from(&*event.event);
    let earlier = sent_messages(store, &key).await?;
    let mut served = host.serve(event).await?;
    let Err(error) = print_json_reply(&outcome_to_json(&served, command_error(&served).as_ref())) else {
        return Ok(served);
    };
    let reason = error.to_string();
    let mut batch = Batch::new();
    for id in sent_messages(store, &key).await?.difference(&earlier) {
        batch.push(Fact::RecordDelivery { id: *id, status: OutboxStatus::Undelivered { reason: reason.clone() } });
    }
    store.commit(batch).await?;
    served.delivery_errors.push(reason);
    Ok(served)
}

/// Messages of an event that the channel `cli` has delivered.
async fn sent_messages(store: &dyn Store, event: &EventKey) -> Result<BTreeSet<OutboxId>, StoreError> {
    let mut sent = BTreeSet::new();
    let mut records = store.outbox_records(event);
    while let Some(record) = records.next().await? {
        let is_local = record.message.channel.as_str() == CliChannel::CHANNEL_NAME;
        if is_local && matches!(record.status, OutboxStatus::Sent { .. }) {
            sent.insert(record.id);
        }
    }
    Ok(sent)
}

/// Output of a command after its event is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrintMode {
    /// None, because the channel has printed the reply.
    Nothing,
    /// The outcome as JSON.
    Json,
}

/// Maps the outcome of an event to the result of the command. Fails if the event failed, now or when it was submitted
/// before, or if its reply was not delivered.
pub(super) fn finish_command(served: ServedEvent, notices: Vec<String>) -> Result<(), CommandError> {
    let command_error = command_error(&served);
    if let Some(error) = served.error {
        return Err(error.into());
    }
    if served.is_duplicate {
        repeat_outcome(served.outcome)?;
    } else if served.run_id.is_none() && served.outcome == Some(Outcome::Silent) {
        stderr_line!("no enabled binding matches the event; `capstan bindings list` lists the bindings");
    }
    report_delivery(notices, &served.delivery_errors)?;
    command_error.map_or(Ok(()), Err)
}

/// Prints notices to standard error, and fails if the reply was not delivered.
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

/// Repeats the failure of an event that was settled by an earlier command.
pub(super) fn repeat_outcome(outcome: Option<Outcome>) -> Result<(), CommandError> {
    match outcome {
        Some(Outcome::Failed { notice, code }) => Err(TurnError::Run(RunError { message: notice, code }).into()),
        Some(Outcome::Cancelled) => Err(TurnError::Cancelled.into()),
        Some(Outcome::Replied { .. } | Outcome::Silent | Outcome::Folded { .. } | Outcome::Dropped) => Ok(()),
        None => {
            let message = "this process is stopping; another process is still working on the event";
            let stopped = CommandError::new(ErrorCode::HostStopping, message).with_exit(ExitClass::Cancelled);
            Err(stopped.with_hint("no event is lost: submit the same event id again to get the reply"))
        }
    }
}

fn outcome_to_json(served: &ServedEvent, command_error: Option<&CommandError>) -> serde_json::Value {
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
    if let Some(error) = command_error {
        object["error"] = json!({ "code": error.code, "message": error.message });
    }
    match (&served.error, &served.outcome) {
        (Some(error), _) => object["error"] = json!({ "code": error.code(), "message": error.public_message() }),
        // Settled as failed by an earlier command.
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

    use super::{finish_command, outcome_to_json};

    fn served_to_json(served: &ServedEvent) -> serde_json::Value {
        outcome_to_json(served, None)
    }

    fn served_with_outcome(outcome: Outcome) -> ServedEvent {
        ServedEvent {
            session: "s".into(),
            run_id: Some("run-1".into()),
            output: "hello".to_owned(),
            outbounds: Vec::new(),
            usage: None,
            outcome: Some(outcome),
            error: None,
            command_error: None,
            delivery_errors: Vec::new(),
            is_duplicate: false,
        }
    }

    #[test]
    fn x03_undelivered_reply_fails_the_command_and_is_reported_in_json() {
        let replied = served_with_outcome(Outcome::Replied { text: "hello".to_owned() });
        assert_eq!(served_to_json(&replied).get("undelivered"), None);
        let lost = ServedEvent { delivery_errors: vec!["no listener".to_owned()], ..replied };
        assert_eq!(served_to_json(&lost)["undelivered"][0], "no listener");
        let failure = finish_command(lost, Vec::new()).unwrap_err();
        assert_eq!(failure.code, ErrorCode::ReplyUndelivered);
    }

    #[test]
    fn a03_failed_command_fails_the_process_and_its_event_is_replied() {
        let served = served_with_outcome(Outcome::Replied { text: "[exited with code 1]".to_owned() });
        let failed = ServedEvent { command_error: Some("the command false failed".to_owned()), ..served };
        let failure = finish_command(failed.clone(), Vec::new()).unwrap_err();
        assert_eq!(
            (failure.code.clone(), failure.message.as_str()),
            (ErrorCode::CommandFailed.into(), "the command false failed")
        );
        let json = outcome_to_json(&failed, Some(&failure));
        assert_eq!((&json["outcome"], &json["error"]["code"]), (&"replied".into(), &"command-failed".into()));
    }

    #[test]
    fn x03_duplicate_of_a_failed_event_fails_again() {
        let failed = served_with_outcome(Outcome::Failed {
            notice: "no key".to_owned(),
            code: Some(ErrorCode::ModelUnauthorized.into()),
        });
        let failure = finish_command(ServedEvent { is_duplicate: true, ..failed }, Vec::new()).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (ErrorCode::ModelUnauthorized.into(), "no key"));
    }
}
