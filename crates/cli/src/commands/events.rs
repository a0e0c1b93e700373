//! `capstan events`.

use capstan_channels::{CliChannel, CliPrinter};
use capstan_host::{Host, IncomingEvent};
use capstan_protocol::{ErrorCode, Event};
use clap::Subcommand;
use serde_json::Value;

use super::CommandContext;
use super::document::InputDocument;
use super::serve_one::{PrintMode, check_channel, finish_command, serve_event};
use super::trust::{TrustQuestion, settle_trust};
use crate::{CommandError, home, output};

#[derive(Subcommand)]
pub(crate) enum EventsCommand {
    /// Submit an event, wait for its outcome, and print it as JSON
    ///
    /// The envelope needs at least `event_type`, `source` and `input`. Replies are printed unless `delivery` names another
    /// channel.
    Send {
        /// JSON file with the envelope of the event; - for standard input
        file: String,
    },
    /// Submit a LangBot query, wait for its outcome, and print it as JSON
    ///
    /// The query must include its pipeline. It becomes an event with its own binding, recorded with the event; the bindings
    /// of this host do not apply.
    Query {
        /// File with the query in JSON, or - for standard input
        file: String,
    },
}

/// The document given to the command.
enum CliEventInput {
    Event(Box<Event>),
    Query(Value),
}

/// Reads the event that `events send` submits: without a reply channel of its own, it is answered here.
pub(super) fn read_sent_event(file: &str) -> Result<Event, CommandError> {
    let mut event = InputDocument::read(file)?.parse_envelope()?;
    event.delivery.output_channel.get_or_insert_with(|| CliChannel::CHANNEL_NAME.into());
    Ok(event)
}

pub(crate) async fn run(mut context: CommandContext<'_>, command: EventsCommand) -> Result<(), CommandError> {
    settle_trust(&mut context, TrustQuestion::Skip)?;
    let input = match command {
        EventsCommand::Send { file } => CliEventInput::Event(Box::new(read_sent_event(&file)?)),
        EventsCommand::Query { file } => {
            CliEventInput::Query(InputDocument::read(&file)?.parse_unique_json(ErrorCode::QueryInvalid)?)
        }
    };
    output::check_stdout_writable(CliChannel::CHANNEL_NAME)?;
    let cli = CliChannel::new(CliPrinter::silent());
    let hooks = context.capstan.build_hooks(&context.config, &cli);
    if let CliEventInput::Event(event) = &input
        && let Some(channel) = &event.delivery.output_channel
    {
        check_channel(&hooks, channel)?;
    }
    let (store, owner) = home::open_store_and_lock(&context.config)?;
    let options = context.capstan.host_options(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, options).await?;
    let inbound = match input {
        CliEventInput::Event(event) => IncomingEvent::from(*event),
        CliEventInput::Query(query) => match host.map_langbot_query(query, &CliChannel::CHANNEL_NAME.into()) {
            Ok(inbound) => inbound,
            Err(error) => {
                host.stop().await?;
                return Err(error.into());
            }
        },
    };
    finish_command(serve_event(host, inbound, PrintMode::Json).await?, cli.take_notices())
}
