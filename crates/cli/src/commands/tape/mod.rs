//! `capstan tape`.

mod checks;
mod context;
mod events;
mod fork_session;
mod head;
mod list;
pub(super) mod source;
mod transfer;
mod verify;

use std::path::PathBuf;

use capstan_protocol::{EntryId, ErrorCode};
use capstan_tape::{ChainHead, DateRange, Entry, EntryKind, EntryOrder, Query, QueryStart, TapeSlice};
use clap::{Args, Subcommand};

pub(super) use self::fork_session::find_fork_session;
use self::source::{HomeTapes, TapeSource};
use super::{CommandContext, print, print_json_lines, print_lines, replace_control_chars, truncate_line};
use crate::CommandError;

#[derive(Subcommand)]
pub(crate) enum TapeCommand {
    /// List the tapes
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the entries of a tape, one per line
    Show {
        /// Tape, session id, or path to a .jsonl file
        name: String,
        #[command(flatten)]
        filter: EntryFilterArgs,
        /// Print each entry as one line of JSON
        #[arg(long)]
        json: bool,
        /// Show all entries of a generation that was ended by a reset
        #[arg(long, value_name = "N", conflicts_with_all = EntryFilterArgs::ARG_IDS)]
        generation: Option<u32>,
    },
    /// Show what happened in a session: events, tool calls, outcomes and deliveries
    Events {
        /// Tape, session id, or path to a .jsonl file
        name: String,
        /// Show only the newest N items
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Print each item as one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Search the entries of a tape by text, newest first, tolerating typos
    Search {
        /// Tape, session id, or path to a .jsonl file
        name: String,
        /// Words to search for
        text: String,
        #[command(flatten)]
        filter: EntryFilterArgs,
        /// Include hidden entries (`meta.context: false`), such as `event.accepted`
        #[arg(long)]
        all: bool,
        /// Print each entry as one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// List the anchors of a tape
    Anchors {
        /// Tape, session id, or path to a .jsonl file
        name: String,
        /// Print each anchor as one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a tape to standard output, one JSON object per line
    Export {
        /// Tape, session id, or path to a .jsonl file
        name: String,
        /// Write the format of Bub, which has one entry for all results of a step
        #[arg(long, alias = "legacy")]
        bub: bool,
        /// Export a generation that was ended by a reset
        #[arg(long, value_name = "N")]
        generation: Option<u32>,
    },
    /// Create a tape from a file with one JSON object per line
    Import {
        /// File to import
        file: PathBuf,
        /// Name of the tape [default: name of the file]
        #[arg(long)]
        name: Option<String>,
    },
    /// Print the request of each model call of a run as JSON
    Context {
        /// Id of the run, or a unique prefix [default: newest run of this workspace]
        run: Option<String>,
        /// Print only this call, counting from 1
        #[arg(long, value_name = "N")]
        call: Option<u32>,
    },
    /// Create a fork, which shares the entries of a tape up to a given one
    Fork {
        /// Tape or session id to fork
        name: String,
        /// Name of the fork
        #[arg(long = "as", value_name = "FORK")]
        fork: String,
        /// Last entry to share [default: newest]
        #[arg(long, value_name = "ID")]
        at: Option<u64>,
    },
    /// Append the entries of a fork to its parent and close the fork
    Merge {
        /// Name of the fork
        name: String,
    },
    /// Close a fork without merging it; it stays readable
    Discard {
        /// Name of the fork
        name: String,
    },
    /// Start a new generation of a tape; the old one stays readable
    Reset {
        /// Tape or session id
        name: String,
        /// Mark the old generation as archived. The mark is informational: every generation is kept
        #[arg(long)]
        archive: bool,
    },
    /// Print the head of a tape, TAPE:ID:HASH, to keep elsewhere and check with `tape verify`
    Head {
        /// Tape or session id [default: all tapes]
        name: Option<String>,
        /// Print each head as one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Check all tapes for damage and changed entries
    Verify {
        /// Check that this head is still part of its tape, TAPE:ID:HASH; repeatable
        #[arg(long = "head", value_name = "HEAD")]
        heads: Vec<ChainHead>,
        /// Check the heads in a file, one per line as `tape head` prints them
        #[arg(long, value_name = "FILE")]
        heads_from: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Default)]
pub(crate) struct EntryFilterArgs {
    /// Only entries after the newest anchor
    #[arg(long, conflicts_with = "after_anchor")]
    after_last_anchor: bool,
    /// Only entries after the newest anchor with this name
    #[arg(long, value_name = "NAME")]
    after_anchor: Option<String>,
    /// Only entries before the first anchor with this name, counted from the start of the selection
    #[arg(long, value_name = "NAME")]
    until_anchor: Option<String>,
    /// Only entries since this date or time; a date alone is the start of that day in UTC
    #[arg(long, value_name = "DATE")]
    from: Option<String>,
    /// Only entries until this date or time; a date alone is the end of that day in UTC
    #[arg(long, value_name = "DATE")]
    to: Option<String>,
    /// Only entries of this kind; repeatable
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Maximum number of entries
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl EntryFilterArgs {
    /// Ids of these arguments, for conflicts with other ones.
    const ARG_IDS: [&str; 7] = ["after_last_anchor", "after_anchor", "until_anchor", "from", "to", "kinds", "limit"];

    fn to_query(&self) -> Result<Query, CommandError> {
        let start = match (&self.after_anchor, self.after_last_anchor) {
            (Some(name), _) => QueryStart::Anchor(name.clone()),
            (None, true) => QueryStart::LastAnchor,
            (None, false) => QueryStart::Beginning,
        };
        let date_range = match (self.from.as_deref(), self.to.as_deref()) {
            (None, None) => None,
            (from, to) => {
                let range = DateRange::between(from.unwrap_or("0001-01-01"), to.unwrap_or("9999-12-30"));
                Some(range.map_err(|error| CommandError::new(ErrorCode::Usage, error.to_string()))?)
            }
        };
        Ok(Query {
            start,
            until_anchor: self.until_anchor.clone(),
            date_range,
            kinds: self.kinds.iter().map(|kind| EntryKind::from(kind.as_str())).collect(),
            text: None,
            order: EntryOrder::OldestFirst,
            limit: self.limit,
        })
    }
}

pub(crate) async fn run(context: CommandContext<'_>, command: TapeCommand) -> Result<(), CommandError> {
    let creates_tape = matches!(command, TapeCommand::Import { .. });
    let home = if creates_tape { HomeTapes::creating_home(&context) } else { HomeTapes::new(&context) };
    let executed = execute(&home, command).await;
    home.close().await?;
    executed
}

async fn execute(home: &HomeTapes<'_>, command: TapeCommand) -> Result<(), CommandError> {
    match command {
        TapeCommand::List { json } => list::list_tapes(home, json).await,
        TapeCommand::Show { name, filter, json, generation } => {
            let TapeSource { tapes, tape } = home.find_tape(&name).await?;
            let entries = match generation {
                None => {
                    let query = filter.to_query()?;
                    checks::warn_of_missing_anchors(&tapes, &tape, &query).await?;
                    tapes.query(&tape, &query).await?
                }
                Some(number) => {
                    checks::check_generation(&tapes, &tape, number).await?;
                    tapes.read_generation(&tape, number, &TapeSlice::all()).await?
                }
            };
            print_entries(&entries, json)
        }
        TapeCommand::Events { name, limit, json } => {
            events::print_events(home.find_tape(&name).await?, limit, json).await
        }
        TapeCommand::Search { name, text, filter, all, json } => {
            let TapeSource { tapes, tape } = home.find_tape(&name).await?;
            let limit = filter.limit;
            let query = Query { text: Some(text), order: EntryOrder::NewestFirst, limit: None, ..filter.to_query()? };
            checks::warn_of_missing_anchors(&tapes, &tape, &query).await?;
            let found = tapes.query(&tape, &query).await?;
            let visible = found.into_iter().filter(|entry| all || !entry.is_hidden());
            print_entries(&visible.take(limit.unwrap_or(usize::MAX)).collect::<Vec<_>>(), json)
        }
        TapeCommand::Anchors { name, json } => {
            let TapeSource { tapes, tape } = home.find_tape(&name).await?;
            let anchors = TapeSlice { kinds: vec![EntryKind::Anchor], ..TapeSlice::default() };
            print_entries(&tapes.read(&tape, &anchors).await?, json)
        }
        TapeCommand::Export { name, bub, generation } => {
            transfer::export_tape(home.find_tape(&name).await?, bub, generation).await
        }
        TapeCommand::Import { file, name } => transfer::import_tape(home, &file, name).await,
        TapeCommand::Context { run, call } => context::print_context(home, run, call).await,
        TapeCommand::Fork { name, fork, at } => {
            let TapeSource { tapes, tape } = home.find_stored_tape(&name).await?;
            let fork = source::parse_tape_name(&fork)
                .map_err(|error| error.with_hint("use letters, digits, `_`, `-` and `:` in the name after --as"))?;
            checks::check_name_is_free(&tapes, &fork).await?;
            checks::check_entry(&tapes, &tape, at).await?;
            tapes.fork(&tape, &fork, at.map(EntryId)).await?;
            print(&format!("forked {tape} as {fork}"))
        }
        TapeCommand::Merge { name } => {
            let TapeSource { tapes, tape } = home.find_stored_tape(&name).await?;
            checks::check_fork(&tapes, &tape).await?;
            let parent = tapes.record(&tape).await?.and_then(|record| record.fork).map(|fork| fork.parent);
            home.check_idle(&tapes, &tape).await?;
            if let Some(parent) = &parent {
                home.check_idle(&tapes, parent).await?;
            }
            let count = tapes.merge(&tape).await?;
            let entries = if count == 1 { "entry" } else { "entries" };
            print(&format!("merged {tape}: {count} {entries}"))
        }
        TapeCommand::Discard { name } => {
            let TapeSource { tapes, tape } = home.find_stored_tape(&name).await?;
            checks::check_fork(&tapes, &tape).await?;
            home.check_idle(&tapes, &tape).await?;
            tapes.discard(&tape).await?;
            print(&format!("discarded {tape}"))
        }
        TapeCommand::Reset { name, archive } => {
            let TapeSource { tapes, tape } = home.find_stored_tape(&name).await?;
            home.check_idle(&tapes, &tape).await?;
            tapes.reset(&tape, archive).await?;
            print(&format!("started a new generation of {tape}"))
        }
        TapeCommand::Head { name, json } => head::print_heads(home, name, json).await,
        TapeCommand::Verify { mut heads, heads_from, json } => {
            if let Some(file) = heads_from {
                heads.extend(head::read_heads(&file)?);
            }
            verify::verify_tapes(home, &heads, json).await
        }
    }
}

/// Prints entries, one per line.
fn print_entries(entries: &[Entry], json: bool) -> Result<(), CommandError> {
    if json {
        return print_json_lines(entries.iter().map(capstan_store::jsonl::format_line));
    }
    print_lines(entries.iter().map(|entry| replace_control_chars(&format_entry(entry))))
}

fn format_entry(entry: &Entry) -> String {
    let text = truncate_line(&summarize_entry(entry));
    format!("{:>5}  {}  {:11} {text}", entry.id.to_string(), entry.date.as_str(), entry.kind.to_string())
}

/// Content of an entry as text.
pub(super) fn summarize_entry(entry: &Entry) -> String {
    let payload = &entry.payload;
    let field = |name: &str| match payload.get(name) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    match entry.kind {
        EntryKind::Message => format!("{}: {}", field("role"), field("content")),
        EntryKind::Anchor => format!("{} {}", field("name"), field("state")),
        EntryKind::Event => format!("{} {}", field("name"), field("data")),
        EntryKind::ToolCall => field("calls"),
        EntryKind::ToolResult => field("results"),
        EntryKind::Error => format!("{}: {}", field("stage"), field("message")),
        EntryKind::System => field("content"),
        EntryKind::Other(_) => payload.to_string(),
    }
}
