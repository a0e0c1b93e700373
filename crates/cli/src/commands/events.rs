//! `capstan events`.

use capstan_channels::{CliChannel, CliPrinter};
use capstan_hooks::HookDeadlines;
use capstan_host::{Host, IncomingEvent};
use capstan_protocol::{ErrorCode, Event};
use clap::Subcommand;
use serde_json::Value;

use super::document::InputDocument;
use super::serve_one::{PrintMode, check_channel, finish_command, serve_event};
use crate::command_line::CommandContext;
use crate::{CommandError, builder};

#[derive(Subcommand)]
pub(crate) enum EventsCommand {
    /// Feeds an event to the host, waits for its end, and prints its outcome as JSON.
    ///
    /// Of its envelope only `event_type`, `source` and `input` are required. What is said to whoever sent it is printed,
    /// unless its `delivery` names another channel.
    Send {
        /// A file with the envelope, in JSON; - reads it from the standard input.
        file: String,
    },
    /// Feeds a query of an older host, with the pipeline it ran in, waits for its end, and prints its outcome as JSON.
    ///
    /// It becomes an event with a binding of its own, which is recorded with it; the bindings of this host are not asked.
    Query {
        /// A file with the query, in JSON; - reads it from the standard input.
        file: String,
    },
}

/// What was given.
enum CliEventInput {
    Event(Box<Event>),
    Query(Value),
}

pub(crate) async fn run(context: CommandContext<'_>, command: EventsCommand) -> Result<(), CommandError> {
    let fed = match command {
        EventsCommand::Send { file } => {
            let mut event = InputDocument::read(&file)?.parse_envelope()?;
            event.delivery.output_channel.get_or_insert_with(|| CliChannel::CHANNEL_NAME.into());
            CliEventInput::Event(Box::new(event))
        }
        EventsCommand::Query { file } => {
            CliEventInput::Query(InputDocument::read(&file)?.parse_unique_json(ErrorCode::QueryInvalid)?)
        }
    };
    let cli = CliChannel::new(CliPrinter::silent());
    let hooks = context.capstan.build_hooks(&context.config, &cli, HookDeadlines::default());
    if let CliEventInput::Event(event) = &fed
        && let Some(channel) = &event.delivery.output_channel
    {
        check_channel(&hooks, channel)?;
    }
    let (store, owner) = builder::open_home_store(&context.config)?;
    let settings = builder::host_options(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, settings).await?;
    let inbound = match fed {
        CliEventInput::Event(event) => IncomingEvent::from(*event),
        CliEventInput::Query(query) => match host.map_langbot_query(query, &CliChannel::CHANNEL_NAME.into()) {
            Ok(inbound) => inbound,
            Err(error) => {
                host.stop().await?;
                return Err(error.into());
            }
        },
    };
    finish_command(serve_event(host, inbound).await?, cli.take_notices(), PrintMode::Json)
}
