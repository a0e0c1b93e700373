//! `capstan events`.

use capstan_channels::{Cli, Printer};
use capstan_hooks::Deadlines;
use capstan_host::Host;
use clap::Subcommand;

use super::document::Document;
use super::print_json;
use super::run::{in_json, serve};
use crate::command_line::Context;
use crate::{Failure, builder};

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
}

pub(crate) async fn run(context: Context<'_>, command: EventsCommand) -> Result<(), Failure> {
    let EventsCommand::Send { file } = command;
    let mut event = Document::read(&file)?.envelope()?;
    event.delivery.output_channel.get_or_insert_with(|| Cli::NAME.into());
    let cli = Cli::new(Printer::silent());
    let hooks = context.capstan.hooks(&context.config, &cli, Deadlines::default());
    let (store, owner) = builder::open_home(&context.config)?;
    let settings = builder::settings(&context.config, context.workspace, owner);
    let host = Host::start(hooks, store, settings).await?;
    let served = serve(host, event).await?;
    print_json(&in_json(&served))?;
    match served.error {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}
