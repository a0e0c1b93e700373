//! `capstan outbox`.

use capstan_channels::CliChannel;
use capstan_host::{CALLER_DISCONNECTED_REASON, drop_request, request_revision, resend_request};
use capstan_protocol::{ErrorCode, OutboxStatus, Timestamp};
use capstan_store::SqliteStore;
use capstan_tape::{Batch, Fact, OutboxRecord, StoreError};
use clap::Subcommand;
use serde_json::{Value, json};

use super::serve::listening_channels;
use super::tape::source::HomeTapes;
use super::{CommandContext, SERVE_COMMAND_EXAMPLE, print, print_json, print_lines, replace_control_chars};
use crate::{CommandError, home};

#[derive(Subcommand)]
pub(crate) enum OutboxCommand {
    /// List held and undelivered messages, oldest first
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Send a held or undelivered message again
    ///
    /// The message is sent by the `capstan serve` that serves its channel: the running one, or else the next one.
    Resend {
        /// Id of the message
        id: u64,
    },
    /// Drop a held or undelivered message
    ///
    /// The message is no longer listed, and its text stays on the tape.
    Drop {
        /// Id of the message
        id: u64,
    },
}

pub(crate) async fn run(context: CommandContext<'_>, command: OutboxCommand) -> Result<(), CommandError> {
    let home_tapes = HomeTapes::new(&context);
    let executed = execute(&home_tapes, command).await;
    home_tapes.close().await?;
    executed
}

async fn execute(home_tapes: &HomeTapes<'_>, command: OutboxCommand) -> Result<(), CommandError> {
    match command {
        OutboxCommand::List { json: true } => {
            print_json(&read_unsent_messages(home_tapes).await?.iter().map(record_json).collect::<Vec<_>>())
        }
        OutboxCommand::List { json: false } => {
            let records = read_unsent_messages(home_tapes).await?;
            print_lines(records.iter().map(|record| replace_control_chars(&format_record(record))))
        }
        OutboxCommand::Resend { id } => {
            let record = request(home_tapes, id, resend_request).await?;
            let channel = &record.message.channel;
            print(&format!("message {id} will be sent by the `{SERVE_COMMAND_EXAMPLE}` that serves channel {channel}"))
        }
        OutboxCommand::Drop { id } => {
            let drop_record = |record: &OutboxRecord, revision, now| {
                let reason = format!("{} (dropped by the operator)", reason_of(record));
                drop_request(record, reason, revision, now)
            };
            request(home_tapes, id, drop_record).await?;
            print(&format!("dropped message {id}; its text stays on the tape"))
        }
    }
}

/// Writes a request about a held or undelivered message, and returns the message.
async fn request(
    home_tapes: &HomeTapes<'_>,
    id: u64,
    request: impl Fn(&OutboxRecord, u64, Timestamp) -> Batch,
) -> Result<OutboxRecord, CommandError> {
    loop {
        let store = home_tapes.tapes()?.store();
        let revision = request_revision(store.as_ref()).await?;
        let records = read_unsent_messages(home_tapes).await?;
        let record = records.into_iter().find(|record| record.id.0 == id).ok_or_else(|| unknown_message(id))?;
        let batch = request(&record, revision, Timestamp::now());
        let is_resend = batch.facts.iter().any(|fact| matches!(fact, Fact::AdoptOutbound { .. }));
        // No other caller may get a reply whose caller has disconnected.
        if is_resend && reason_of(&record) == CALLER_DISCONNECTED_REASON {
            let message = format!("message {id} is a reply to a caller that has disconnected");
            let error = CommandError::new(ErrorCode::OutboxUnknown, message);
            return Err(error.with_hint("the caller gets it when the event is sent again with the same id"));
        }
        if is_resend && record.message.channel.as_str() == CliChannel::CHANNEL_NAME && !serves_terminal(home_tapes) {
            return Err(terminal_message(&record));
        }
        match store.commit(batch).await {
            Ok(_) => return Ok(record),
            // Another operator was faster: this message may be among those that were decided.
            Err(StoreError::NamespaceChanged { .. }) => {}
            Err(StoreError::OutboxConflict { .. }) => return Err(unknown_message(id)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns true if a plugin provides a terminal that `capstan serve` can listen on.
fn serves_terminal(home_tapes: &HomeTapes<'_>) -> bool {
    let context = home_tapes.context;
    let hooks = context.capstan.build_hooks(&context.config, &CliChannel::unattended());
    listening_channels(&hooks).iter().any(|name| name.as_str() == CliChannel::CHANNEL_NAME)
}

/// Error for a message to the terminal: no process would send it.
fn terminal_message(record: &OutboxRecord) -> CommandError {
    let (id, session) = (record.id.0, &record.message.session_id);
    let message = format!("message {id} is for the terminal, on which `capstan serve` does not listen");
    let hint = format!("read it with `capstan tape show {session}`, or drop it with `capstan outbox drop {id}`");
    CommandError::new(ErrorCode::OutboxUnknown, message).with_hint(&hint)
}

/// Held and undelivered messages, oldest first.
async fn read_unsent_messages(home_tapes: &HomeTapes<'_>) -> Result<Vec<OutboxRecord>, CommandError> {
    let database = home::database_path(&home_tapes.context.config.home);
    if !database.exists() {
        return Ok(Vec::new());
    }
    let store = SqliteStore::open_snapshot(database)?;
    let mut records = store.held_messages(usize::MAX).await?.newest;
    records.extend(store.dead_letters(usize::MAX).await?.newest);
    records.sort_by_key(|record| record.id);
    Ok(records)
}

fn unknown_message(id: u64) -> CommandError {
    CommandError::new(ErrorCode::OutboxUnknown, format!("no held or undelivered message has the id {id}"))
}

fn reason_of(record: &OutboxRecord) -> &str {
    match &record.status {
        OutboxStatus::Held { reason, .. }
        | OutboxStatus::Undelivered { reason }
        | OutboxStatus::Acknowledged { reason } => reason,
        OutboxStatus::Waiting { .. } | OutboxStatus::Sent { .. } => "",
    }
}

fn status_name(record: &OutboxRecord) -> &'static str {
    if matches!(record.status, OutboxStatus::Held { .. }) { "held" } else { "undelivered" }
}

fn record_json(record: &OutboxRecord) -> Value {
    json!({ "id": record.id.0, "status": status_name(record), "reason": reason_of(record),
            "event": record.event, "staged_at": record.staged_at, "message": record.message })
}

fn format_record(record: &OutboxRecord) -> String {
    let (message, status) = (&record.message, status_name(record));
    let target = format!("{} {}", message.channel, message.chat_id);
    let text = message.content.text();
    format!("{:>5}  {}  {status:11}  {target}  {}: {text}", record.id.0, record.staged_at, reason_of(record))
}
