//! `capstan serve`.

use std::collections::BTreeSet;
use std::sync::Arc;

use capstan_channels::{Cli, Printer, Stdio};
use capstan_hooks::Deadlines;
use capstan_hooks::contracts::ChannelError;
use capstan_host::Host;
use capstan_protocol::ChannelName;
use capstan_turn::TurnError;

use super::signals::Signals;
use super::standard_output;
use crate::command_line::{Context, Serve};
use crate::{Exit, Failure, builder};

/// The standard output belongs to the channels: this says nothing there.
pub(crate) async fn serve(context: Context<'_>, arguments: Serve) -> Result<(), Failure> {
    let hooks = context.capstan.hooks(&context.config, &Cli::new(Printer::silent()), Deadlines::default());
    let provided = builder::channels(&hooks);
    let names = chosen(&arguments.channels, &provided)?;
    for line in context.config.unprovided_channels(&provided) {
        complain!("warning: {line}");
    }
    if names.iter().any(|name| name.as_str() == Stdio::NAME) {
        standard_output::check()?;
    }
    // Watched before anybody can know that this process is there to be told.
    let mut signals = Signals::watch();
    let (store, owner) = builder::open_home(&context.config)?;
    let grace = context.config.stop_grace;
    let settings = builder::settings(&context.config, context.workspace, owner);
    let broken = Arc::clone(&store);
    let host = Host::start(hooks, store, settings).await?;
    host.listen(&names).await;
    let (failures, mut is_told) = tokio::select! {
        failures = to_the_end(&host) => (failures, false),
        () = signals.next() => (Vec::new(), true),
        // Nothing can be written any more, so nothing is waited for: what has no outcome is taken up at the next start.
        error = broken.broken() => return Err(error.into()),
    };
    let left = if is_told || !failures.is_empty() { 0 } else { host.unended().await? };
    if is_told {
        host.stop_listening().await;
        complain!("stopping: turns that are running have {} s to end; once more ends at once", grace.as_secs());
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
            Err(Failure::new("events-left", message, Exit::Failed))
        }
        None => Ok(()),
        Some(error) => Err(Failure::new("channel-failed", error.to_string(), Exit::Failed)),
    }
}

/// Returns when the channels have ended by themselves, with why those did that failed. When none did, everything that
/// was accepted or taken up has its outcome.
async fn to_the_end(host: &Host) -> Vec<ChannelError> {
    let failures = host.ended().await;
    if failures.is_empty() {
        host.idle().await;
    }
    failures
}

/// The channels to listen on: those that are named, or all, without those that are not wanted.
fn chosen(asked: &[String], provided: &[ChannelName]) -> Result<Vec<ChannelName>, Failure> {
    // Its message comes with the command line.
    let can_listen = |name: &&ChannelName| name.as_str() != Cli::NAME;
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
            Failure::new("channel-unknown", message, Exit::Usage)
        })?;
        set.insert(known);
    }
    if let Some(name) = wanted.iter().find(|name| !able.contains(name)) {
        let message = format!("the channel {name} has nothing to listen to; those that can listen: {listed}");
        return Err(Failure::new("channel-missing", message, Exit::Usage));
    }
    // Only to say what is not wanted is to want the rest.
    let all = all || (wanted.is_empty() && !unwanted.is_empty());
    let chosen = able.into_iter().filter(|name| (all || wanted.contains(name)) && !unwanted.contains(name));
    let chosen: Vec<ChannelName> = chosen.cloned().collect();
    if chosen.is_empty() {
        let message = format!("no channel to listen on; those that can listen: {listed}");
        return Err(Failure::new("channel-missing", message, Exit::Usage));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::chosen;

    fn listen(asked: &[&str]) -> Result<Vec<String>, String> {
        let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        let provided = ["cli".into(), "stdio".into(), "telegram".into()];
        let names = chosen(&asked, &provided).map_err(|failure| failure.code)?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn c02_channels_are_enabled_by_name_all_or_not() {
        let names = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(listen(&["stdio"]), names(&["stdio"]));
        assert_eq!(listen(&["stdio", "telegram", "stdio"]), names(&["stdio", "telegram"]));
        assert_eq!(listen(&["all"]), names(&["stdio", "telegram"]));
        assert_eq!(listen(&["all", "!stdio"]), names(&["telegram"]));
        assert_eq!(listen(&["!telegram"]), names(&["stdio"]));
        assert_eq!(listen(&["stdio", "!telegram"]), names(&["stdio"]));
        assert_eq!(listen(&["!cli"]), names(&["stdio", "telegram"]));
    }

    #[test]
    fn c02_a_name_nobody_provides_or_nothing_to_listen_on_is_refused() {
        let refused = |code: &str| Err(code.to_owned());
        assert_eq!(listen(&["telegraph"]), refused("channel-unknown"));
        assert_eq!(listen(&["all", "!telegraph"]), refused("channel-unknown"));
        assert_eq!(listen(&[]), refused("channel-missing"));
        assert_eq!(listen(&["cli"]), refused("channel-missing"));
        assert_eq!(listen(&["stdio", "!stdio"]), refused("channel-missing"));
    }
}
