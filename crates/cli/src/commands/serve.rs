//! `capstan serve`.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_channels::{CliChannel, CliPrinter, StdioChannel};
use capstan_hooks::HookDeadlines;
use capstan_hooks::contracts::ChannelError;
use capstan_host::Host;
use capstan_protocol::{ChannelName, ErrorCode};
use capstan_turn::TurnError;

use super::signals::TerminationSignals;
use super::standard_output;
use crate::command_line::{CommandContext, ServeArgs};
use crate::{CommandError, builder};

/// The standard output belongs to the channels: this says nothing there.
pub(crate) async fn serve(context: CommandContext<'_>, arguments: ServeArgs) -> Result<(), CommandError> {
    let hooks =
        context.capstan.build_hooks(&context.config, &CliChannel::new(CliPrinter::silent()), HookDeadlines::default());
    let provided = builder::provided_channels(&hooks);
    let names = select_channels(&arguments.channels, &provided)?;
    for line in context.config.unprovided_channels(&provided) {
        stderr_line!("warning: {line}");
    }
    if names.iter().any(|name| name.as_str() == StdioChannel::CHANNEL_NAME) {
        standard_output::check_open()?;
    }
    // Watched before anybody can know that this process is there to be told.
    let mut signals = TerminationSignals::watch();
    let (store, owner) = builder::open_home_store(&context.config)?;
    let grace = context.config.stop_grace;
    let settings = builder::host_options(&context.config, context.workspace, owner);
    let broken = Arc::clone(&store);
    let host = Host::start(hooks, store, settings).await?;
    host.listen(&names).await;
    let (failures, mut is_told) = tokio::select! {
        failures = wait_for_channels(&host) => (failures, false),
        () = signals.next() => (Vec::new(), true),
        // Nothing can be written any more, so nothing is waited for: what has no outcome is taken up at the next start.
        error = broken.wait_for_failure() => return Err(error.into()),
    };
    let left = if is_told || !failures.is_empty() { 0 } else { host.count_unsettled().await? };
    if is_told {
        host.stop_listening().await;
        stderr_line!("stopping: turns that are running have {} s to end; once more ends at once", grace.as_secs());
    }
    let stopping = host.stop_within(grace);
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            stopped = &mut stopping => break stopped?,
            // Nothing is lost: what has no outcome is taken up at the next start.
            () = signals.next() => {
                if std::mem::replace(&mut is_told, true) {
                    return Err(TurnError::Cancelled.into());
                }
            }
        }
    }
    match failures.first() {
        None if left > 0 => {
            let message = format!("events that could not be brought to their outcome: {left}");
            Err(CommandError::new(ErrorCode::EventsLeft, message))
        }
        None => Ok(()),
        Some(error) => Err(CommandError::new(ErrorCode::ChannelFailed, error.to_string())),
    }
}

/// Returns when the channels have ended by themselves, with why those did that failed. When none did, everything that
/// was accepted or taken up has its outcome.
async fn wait_for_channels(host: &Host) -> Vec<ChannelError> {
    let failures = host.wait_for_channels().await;
    if failures.is_empty() {
        host.wait_until_idle().await;
    }
    failures
}

/// The channels to listen on: those that are named, or all, without those that are not wanted.
fn select_channels(asked: &[String], provided: &[ChannelName]) -> Result<Vec<ChannelName>, CommandError> {
    // Its message comes with the command line.
    let can_listen = |name: &&ChannelName| name.as_str() != CliChannel::CHANNEL_NAME;
    let able: Vec<&ChannelName> = provided.iter().filter(can_listen).collect();
    let listed = able.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let (mut wanted, mut unwanted, mut all) = (BTreeSet::new(), BTreeSet::new(), false);
    for name in asked {
        let (set, name) = match name.strip_prefix('!') {
            Some(name) => (&mut unwanted, name),
            None if name == "all" => {
                all = true;
                continue;
            }
            None => (&mut wanted, name.as_str()),
        };
        let known = provided.iter().find(|known| known.as_str() == name);
        let known = known.ok_or_else(|| {
            let message = format!("there is no channel {name}; those that can listen: {listed}");
            CommandError::new(ErrorCode::ChannelUnknown, message)
        })?;
        set.insert(known);
    }
    if let Some(name) = wanted.iter().find(|name| !able.contains(name)) {
        let message = format!("the channel {name} has nothing to listen to; those that can listen: {listed}");
        return Err(CommandError::new(ErrorCode::ChannelMissing, message));
    }
    // Only to say what is not wanted is to want the rest.
    let all = all || (wanted.is_empty() && !unwanted.is_empty());
    let chosen = able.into_iter().filter(|name| (all || wanted.contains(name)) && !unwanted.contains(name));
    let chosen: Vec<ChannelName> = chosen.cloned().collect();
    if chosen.is_empty() {
        let message = format!("no channel to listen on; those that can listen: {listed}");
        return Err(CommandError::new(ErrorCode::ChannelMissing, message));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ErrorCode, FailureCode};

    use super::select_channels;

    fn select_names(asked: &[&str]) -> Result<Vec<String>, FailureCode> {
        let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        let provided = ["cli".into(), "stdio".into(), "telegram".into()];
        let names = select_channels(&asked, &provided).map_err(|failure| failure.code)?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn c02_channels_are_enabled_by_name_all_or_not() {
        let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(select_names(&["stdio"]), names(&["stdio"]));
        assert_eq!(select_names(&["stdio", "telegram", "stdio"]), names(&["stdio", "telegram"]));
        assert_eq!(select_names(&["all"]), names(&["stdio", "telegram"]));
        assert_eq!(select_names(&["all", "!stdio"]), names(&["telegram"]));
        assert_eq!(select_names(&["!telegram"]), names(&["stdio"]));
        assert_eq!(select_names(&["stdio", "!telegram"]), names(&["stdio"]));
        assert_eq!(select_names(&["!cli"]), names(&["stdio", "telegram"]));
    }

    #[test]
    fn c02_a_name_nobody_provides_or_nothing_to_listen_on_is_refused() {
        let refused = |code: ErrorCode| Err(code.into());
        assert_eq!(select_names(&["telegraph"]), refused(ErrorCode::ChannelUnknown));
        assert_eq!(select_names(&["all", "!telegraph"]), refused(ErrorCode::ChannelUnknown));
        assert_eq!(select_names(&[]), refused(ErrorCode::ChannelMissing));
        assert_eq!(select_names(&["cli"]), refused(ErrorCode::ChannelMissing));
        assert_eq!(select_names(&["stdio", "!stdio"]), refused(ErrorCode::ChannelMissing));
    }
}
