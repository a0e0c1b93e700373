//! `capstan serve`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use capstan_channels::{CliChannel, StdioChannel};
use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::{Channel, ChannelError};
use capstan_hooks::points::ProvideChannels;
use capstan_host::Host;
use capstan_protocol::{ChannelName, ErrorCode};
use capstan_turn::TurnError;
use clap::Args;

use super::signals::TerminationSignals;
use super::trust::{TrustQuestion, settle_trust};
use super::{CommandContext, WorkspaceFlag};
use crate::{CommandError, builder, home, output};

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Channel to listen on; repeatable. `all` selects every channel that can listen; `!NAME` excludes one (alone: all
    /// others) [default: the setting `enabled_channels`]
    #[arg(long = "channel", value_name = "NAME")]
    channels: Vec<String>,
    #[command(flatten)]
    pub(crate) workspace: WorkspaceFlag,
}

/// Serves the selected channels. Prints nothing to standard output, which belongs to the channels.
pub(crate) async fn serve(mut context: CommandContext<'_>, arguments: ServeArgs) -> Result<(), CommandError> {
    settle_trust(&mut context, TrustQuestion::Skip)?;
    let hooks = context.capstan.build_hooks(&context.config, &CliChannel::unattended());
    let provided = builder::provided_channels(&hooks);
    let listeners = listening_channels(&hooks);
    let names = if arguments.channels.is_empty() {
        let selected = select_channels(&context.config.enabled_channels, &provided, &listeners);
        selected.map_err(|error| CommandError { message: format!("enabled_channels: {}", error.message), ..error })?
    } else {
        select_channels(&arguments.channels, &provided, &listeners)?
    };
    for line in context.config.unprovided_channels(&provided).into_iter().chain(context.config.unknown_plugins()) {
        stderr_line!("warning: {line}");
    }
    if names.iter().any(|name| name.as_str() == StdioChannel::CHANNEL_NAME) {
        output::check_stdout_open(StdioChannel::CHANNEL_NAME)?;
    }
    // Before the process becomes visible to others, so that no signal is missed.
    let mut signals = TerminationSignals::watch();
    let (store, owner) = home::open_store_and_lock(&context.config)?;
    let grace = context.config.stop_grace;
    let options = context.capstan.host_options(&context.config, context.workspace, owner);
    let monitored_store = Arc::clone(&store);
    let host = Host::start(hooks, store, options).await?;
    let tapes = host.tapes().clone();
    host.listen(&names).await;
    let (failures, mut is_signalled) = tokio::select! {
        failures = wait_for_channels(&host) => (failures, false),
        _ = signals.next() => (Vec::new(), true),
        // No more writes are possible: callers are notified, and the next start recovers unsettled events.
        error = monitored_store.wait_for_failure() => {
            abort_with_notices(host).await;
            return Err(error.into());
        }
    };
    let unsettled = if is_signalled || !failures.is_empty() { 0 } else { host.count_unsettled().await? };
    if is_signalled {
        host.stop_listening().await;
        stderr_line!("stopping: running turns have {} s to finish; a second signal forces exit", grace.as_secs());
    }
    let stopping = host.stop_within(grace);
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            stopped = &mut stopping => break stopped?,
            // No event is lost: the next start recovers unsettled ones.
            _ = signals.next() => {
                if std::mem::replace(&mut is_signalled, true) {
                    return Err(TurnError::Cancelled.into());
                }
            }
        }
    }
    match failures.first() {
        None if unsettled > 0 => {
            let message = format!("events without an outcome: {unsettled}");
            Err(CommandError::new(ErrorCode::EventsLeft, message))
        }
        // Messages of other tapes were served, but those of this one were refused.
        None if let Some(damage) = tapes.damage() => Err(damage.clone().into()),
        None => Ok(()),
        Some(error) => Err(CommandError::new(ErrorCode::ChannelFailed, error.to_string())),
    }
}

/// Ends a host whose store has failed permanently. Its turns cannot be recorded, so they are cancelled, and their callers
/// are notified of the delay.
async fn abort_with_notices(host: Host) {
    if let Err(error) = host.stop_within(Duration::ZERO).await {
        tracing::warn!(%error, "the host did not stop cleanly");
    }
}

/// Waits until all channels have closed, and returns the errors of those that failed. If none failed, also waits until
/// every accepted or recovered event is settled.
async fn wait_for_channels(host: &Host) -> Vec<ChannelError> {
    let failures = host.wait_for_channels().await;
    if failures.is_empty() {
        host.wait_until_idle().await;
    }
    failures
}

/// Channels that can listen: all but the built-in terminal, whose messages come from the command line.
pub(super) fn listening_channels(hooks: &HookRuntime) -> Vec<ChannelName> {
    let name = |channel: &Arc<dyn Channel>| channel.name().to_string();
    let provided = hooks.collect_provided_with_plugin::<ProvideChannels, Arc<dyn Channel>>(name);
    let is_builtin = |plugin| hooks.registry().identity(plugin).is_some_and(|identity| identity.is_builtin);
    let can_listen = |plugin, name: &ChannelName| name.as_str() != CliChannel::CHANNEL_NAME || !is_builtin(plugin);
    let listening = provided.iter().map(|(plugin, channel)| (plugin, channel.name()));
    listening.filter(|(plugin, name)| can_listen(plugin, name)).map(|(_, name)| name).collect()
}

/// Resolves `--channel` arguments: named channels, or all, minus the excluded ones.
fn select_channels(
    requested: &[String],
    provided: &[ChannelName],
    listeners: &[ChannelName],
) -> Result<Vec<ChannelName>, CommandError> {
    let listeners: Vec<&ChannelName> = listeners.iter().collect();
    let listed = listeners.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let (mut included, mut excluded, mut all) = (BTreeSet::new(), BTreeSet::new(), false);
    for name in requested {
        let (set, name) = match name.strip_prefix('!') {
            Some(name) => (&mut excluded, name),
            None if name == "all" => {
                all = true;
                continue;
            }
            None => (&mut included, name.as_str()),
        };
        let known = provided.iter().find(|known| known.as_str() == name);
        let known = known.ok_or_else(|| {
            let message = format!("unknown channel {name}; available: {listed}");
            CommandError::new(ErrorCode::ChannelUnknown, message)
        })?;
        set.insert(known);
    }
    if let Some(name) = included.iter().find(|name| !listeners.contains(name)) {
        let message = format!("the channel {name} cannot listen; available: {listed}");
        return Err(CommandError::new(ErrorCode::ChannelMissing, message));
    }
    // Exclusions alone select the rest.
    let all = all || (included.is_empty() && !excluded.is_empty());
    let selected = listeners.into_iter().filter(|name| (all || included.contains(name)) && !excluded.contains(name));
    let selected: Vec<ChannelName> = selected.cloned().collect();
    if selected.is_empty() {
        let message = format!("no channel to listen on; available: {listed}");
        let hint = "name one with --channel NAME, start every channel with --channel all, or set enabled_channels";
        return Err(CommandError::new(ErrorCode::ChannelMissing, message).with_hint(hint));
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use capstan_channels::CliChannel;
    use capstan_hooks::contracts::{Channel, ChannelCapabilities, ChannelError, Gateway};
    use capstan_hooks::points::ProvideChannels;
    use capstan_hooks::{BoxError, HookDeadlines, HookRegistrar, HookRuntime, Plugin, Registry};
    use capstan_protocol::{ChannelName, OutboundMessage};

    use super::{listening_channels, select_channels};

    /// Channel with a name of the built-in terminal or another one.
    struct NamedChannel(&'static str);

    #[async_trait]
    impl Channel for NamedChannel {
        fn name(&self) -> ChannelName {
            self.0.into()
        }

        fn capabilities(&self) -> ChannelCapabilities {
            ChannelCapabilities::default()
        }

        async fn start(&self, _: Arc<dyn Gateway>) -> Result<(), ChannelError> {
            Ok(())
        }

        async fn stop(&self) -> Result<(), ChannelError> {
            Ok(())
        }

        async fn send(&self, _: &OutboundMessage) -> Result<(), ChannelError> {
            Ok(())
        }
    }

    /// Plugin that provides a channel.
    struct ChannelPlugin {
        name: &'static str,
        channel: Arc<dyn Channel>,
    }

    impl Plugin for ChannelPlugin {
        fn name(&self) -> &str {
            self.name
        }

        fn register(&self, hooks: &mut HookRegistrar) -> Result<(), BoxError> {
            let channel = Arc::clone(&self.channel);
            hooks.on_sync(ProvideChannels, move || Ok(Some(vec![Arc::clone(&channel)])));
            Ok(())
        }
    }

    #[test]
    fn c02_a_channel_of_a_plugin_listens_in_place_of_the_built_in_terminal() {
        let mut registry = Registry::new();
        let terminal = Arc::new(CliChannel::unattended());
        registry.register_builtin(&ChannelPlugin { name: "builtin", channel: terminal });
        let listening = |registry: Registry| listening_channels(&HookRuntime::new(registry, HookDeadlines::default()));
        registry.register(&ChannelPlugin { name: "feed", channel: Arc::new(NamedChannel("feed")) });
        assert_eq!(listening(registry), [ChannelName::from("feed")]);

        let mut registry = Registry::new();
        registry.register_builtin(&ChannelPlugin { name: "builtin", channel: Arc::new(CliChannel::unattended()) });
        registry.register(&ChannelPlugin { name: "desk", channel: Arc::new(NamedChannel("cli")) });
        assert_eq!(listening(registry), [ChannelName::from("cli")]);
    }

    fn select_names(requested: &[&str]) -> Result<Vec<String>, String> {
        let requested: Vec<String> = requested.iter().map(|name| (*name).to_owned()).collect();
        let provided = ["cli".into(), "stdio".into(), "telegram".into()];
        let names = select_channels(&requested, &provided, &provided[1..]).map_err(|failure| failure.code)?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn c02_channels_are_selected_by_name_all_or_exclusion() {
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
    fn c02_unknown_channel_or_empty_selection_is_rejected() {
        let refused = |code: &str| Err(code.to_owned());
        assert_eq!(select_names(&["telegraph"]), refused("channel-unknown"));
        assert_eq!(select_names(&["all", "!telegraph"]), refused("channel-unknown"));
        assert_eq!(select_names(&[]), refused("channel-missing"));
        assert_eq!(select_names(&["cli"]), refused("channel-missing"));
        assert_eq!(select_names(&["stdio", "!stdio"]), refused("channel-missing"));
    }
}
