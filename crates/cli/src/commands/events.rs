//! `capstan events`.

use capstan_channels::{Cli, Printer};
use capstan_hooks::{Deadlines, Inbound};
use capstan_host::{Host, QueryError};
use capstan_protocol::Event;
use clap::Subcommand;
use serde_json::Value;

use super::document::Document;
use super::served::{Printed, check_channel, end, serve};
use crate::command_line::Context;
use crate::{Exit, Failure, builder};

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
enum Fed {
    Event(Box<Event>),
    Query(Value),
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Binding(error) => error.into(),
            QueryError::Invalid(_) => Self::new(error.code(), error.to_string(), Exit::Usage),
        }
    }
}

pub(crate) async fn run(context: Context<'_>, command: EventsCommand) -> Result<(), Failure> {
    let fed = match command {
        EventsCommand::Send { file } => {
            let mut event = Document::read(&file)?.envelope()?;
            event.delivery.output_channel.get_or_insert_with(|| Cli::NAME.into());
            Fed::Event(Box::new(event))
        }
        EventsCommand::Query { file } => Fed::Query(Document::read(&file)?.value("query-invalid")?),
    };
    let cli = Cli::new(Printer::silent());
    let hooks = context.capstan.hooks(&context.config, &cli, Deadlines::default());
    if let Fed::Event(event) = &fed
        && let Some(channel) = &event.delivery.output_channel
    {
        check_channel(&hooks, channel)?;
    }
    let (store, owner) = builder::open_home(&context.config)?;
    let settings = builder::settings(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, settings).await?;
    let inbound = match fed {
        Fed::Event(event) => Inbound::new(*event),
        Fed::Query(query) => match host.query(query, &Cli::NAME.into()) {
            Ok(inbound) => inbound,
            Err(error) => {
                host.stop().await?;
                return Err(error.into());
            }
        },
    };
    end(serve(host, inbound).await?, cli.take_notices(), Printed::Json)
}
