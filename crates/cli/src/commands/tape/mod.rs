//! `capstan tape`.

mod checks;
mod context;
mod events;
mod list;
pub(super) mod source;
mod transfer;
mod verify;

use std::path::PathBuf;

use capstan_protocol::{EntryId, ErrorCode};
use capstan_tape::{DateRange, Entry, EntryKind, EntryOrder, Query, QueryStart, TapeSlice};
use clap::{Args, Subcommand};

use self::source::{HomeTapes, TapeSource};
use super::{print, print_lines, replace_control_chars};
use crate::CommandError;
use crate::command_line::CommandContext;

#[derive(Subcommand)]
pub(crate) enum TapeCommand {
    /// Lists the tapes.
    List {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows the entries of a tape, a line each.
    Show {
        /// A tape, a session id, or a path to a .jsonl file.
        name: String,
        #[command(flatten)]
        filter: EntryFilterArgs,
        /// Prints each entry as one line of JSON.
        #[arg(long)]
        json: bool,
        /// A generation that a reset has ended, whole.
        #[arg(long, value_name = "N", conflicts_with_all = EntryFilterArgs::ARG_IDS)]
        generation: Option<u32>,
    },
    /// Shows what came in, what was done, and what became of it.
    Events {
        /// A tape, a session id, or a path to a .jsonl file.
        name: String,
        /// At most this many, the newest.
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Prints each as one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Finds entries by their text, the newest first; a typo is forgiven.
    Search {
        /// A tape, a session id, or a path to a .jsonl file.
        name: String,
        /// The words to look for.
        text: String,
        #[command(flatten)]
        filter: EntryFilterArgs,
        /// Also looks at entries that no view shows.
        #[arg(long)]
        all: bool,
        /// Prints each entry as one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Lists the anchors of a tape.
    Anchors {
        /// A tape, a session id, or a path to a .jsonl file.
        name: String,
        /// Prints each anchor as one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Writes a tape to the standard output, one JSON object per line.
    Export {
        /// A tape, a session id, or a path to a .jsonl file.
        name: String,
        /// Joins the results of a step into one entry, as older systems expect.
        #[arg(long)]
        legacy: bool,
        /// A generation that a reset has ended.
        #[arg(long, value_name = "N")]
        generation: Option<u32>,
    },
    /// Makes a tape from a file of one JSON object per line.
    Import {
        /// The file.
        file: PathBuf,
        /// The name of the tape; by default the name of the file.
        #[arg(long)]
        name: Option<String>,
    },
    /// Prints what the model got at each call of a run, as JSON.
    Context {
        /// The run, or how its id begins; by default the newest of this workspace.
        run: Option<String>,
        /// Only this call, from 1 on.
        #[arg(long, value_name = "N")]
        call: Option<u32>,
    },
    /// Makes a tape that continues another from an entry.
    Fork {
        /// A tape or a session id.
        name: String,
        /// The name of the new tape.
        #[arg(long = "as", value_name = "NAME")]
        fork: String,
        /// The last entry it takes over; by default the newest.
        #[arg(long, value_name = "ID")]
        at: Option<u64>,
    },
    /// Ends a fork: its entries join the tape it continues.
    Merge {
        /// The fork.
        name: String,
    },
    /// Ends a fork: its entries go nowhere, and it stays readable.
    Discard {
        /// The fork.
        name: String,
    },
    /// Begins a new generation of a tape; the old one stays readable.
    Reset {
        /// A tape or a session id.
        name: String,
        /// Keeps the old generation for good.
        #[arg(long)]
        archive: bool,
    },
    /// Looks for damage.
    Verify {
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Which entries of a tape.
#[derive(Args, Default)]
pub(crate) struct EntryFilterArgs {
    /// Only what follows the newest anchor.
    #[arg(long, conflicts_with = "after_anchor")]
    after_last_anchor: bool,
    /// Only what follows the newest anchor of this name.
    #[arg(long, value_name = "NAME")]
    after_anchor: Option<String>,
    /// Only what comes before the next anchor of this name.
    #[arg(long, value_name = "NAME")]
    until_anchor: Option<String>,
    /// Only from this date or time on; a bare date is the whole day, in UTC.
    #[arg(long, value_name = "DATE")]
    from: Option<String>,
    /// Only up to this date or time.
    #[arg(long, value_name = "DATE")]
    to: Option<String>,
    /// Only entries of this kind; can be given several times.
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// At most this many.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl EntryFilterArgs {
    /// The names of its flags.
    const ARG_IDS: [&str; 7] = ["after_last_anchor", "after_anchor", "until_anchor", "from", "to", "kinds", "limit"];

    fn to_query(&self) -> Result<Query, CommandError> {
        let start = match (&self.after_anchor, self.after_last_anchor) {
            (Some(name), _) => QueryStart::Anchor(name.clone()),
            (None, true) => QueryStart::LastAnchor,
            (None, false) => QueryStart::Beginning,
        };
        let dated = match (self.from.as_deref(), self.to.as_deref()) {
            (None, None) => None,
            (from, to) => {
                let range = DateRange::between(from.unwrap_or("0001-01-01"), to.unwrap_or("9999-12-30"));
                Some(range.map_err(|error| CommandError::new(ErrorCode::Usage, error.to_string()))?)
            }
        };
        Ok(Query {
            start,
            until_anchor: self.until_anchor.clone(),
            date_range: dated,
            kinds: self.kinds.iter().map(|kind| EntryKind::from(kind.as_str())).collect(),
            text: None,
            order: EntryOrder::OldestFirst,
            limit: self.limit,
        })
    }
}

pub(crate) async fn run(context: CommandContext<'_>, command: TapeCommand) -> Result<(), CommandError> {
    let makes_a_tape = matches!(command, TapeCommand::Import { .. });
    let scope = if makes_a_tape { HomeTapes::creating_home(&context) } else { HomeTapes::new(&context) };
    let done = execute(&scope, command).await;
    scope.close().await?;
    done
}

async fn execute(scope: &HomeTapes<'_>, command: TapeCommand) -> Result<(), CommandError> {
    match command {
        TapeCommand::List { json } => list::list_tapes(scope, json).await,
        TapeCommand::Show { name, filter, json, generation } => {
            let TapeSource { tapes, tape } = scope.find_tape(&name).await?;
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
            events::print_events(scope.find_tape(&name).await?, limit, json).await
        }
        TapeCommand::Search { name, text, filter, all, json } => {
            let TapeSource { tapes, tape } = scope.find_tape(&name).await?;
            let limit = filter.limit;
            let query = Query { text: Some(text), order: EntryOrder::NewestFirst, limit: None, ..filter.to_query()? };
            checks::warn_of_missing_anchors(&tapes, &tape, &query).await?;
            let found = tapes.query(&tape, &query).await?;
            let shown = found.into_iter().filter(|entry| all || !entry.is_hidden());
            print_entries(&shown.take(limit.unwrap_or(usize::MAX)).collect::<Vec<_>>(), json)
        }
        TapeCommand::Anchors { name, json } => {
            let TapeSource { tapes, tape } = scope.find_tape(&name).await?;
            let anchors = TapeSlice { kinds: vec![EntryKind::Anchor], ..TapeSlice::default() };
            print_entries(&tapes.read(&tape, &anchors).await?, json)
        }
        TapeCommand::Export { name, legacy, generation } => {
            transfer::export_tape(scope.find_tape(&name).await?, legacy, generation).await
        }
        TapeCommand::Import { file, name } => transfer::import_tape(scope, &file, name).await,
        TapeCommand::Context { run, call } => context::print_context(scope, run, call).await,
        TapeCommand::Fork { name, fork, at } => {
            let TapeSource { tapes, tape } = scope.find_tape(&name).await?;
            let fork = source::parse_tape_name(&fork)?;
            checks::check_name_is_free(&tapes, &fork).await?;
            checks::check_entry(&tapes, &tape, at).await?;
            tapes.fork(&tape, &fork, at.map(EntryId)).await?;
            print(&format!("forked {tape} as {fork}"))
        }
        TapeCommand::Merge { name } => {
            let TapeSource { tapes, tape } = scope.find_tape(&name).await?;
            checks::check_fork(&tapes, &tape).await?;
            tapes.merge(&tape).await?;
            print(&format!("merged {tape}"))
        }
        TapeCommand::Discard { name } => {
            let TapeSource { tapes, tape } = scope.find_tape(&name).await?;
            checks::check_fork(&tapes, &tape).await?;
            tapes.discard(&tape).await?;
            print(&format!("discarded {tape}"))
        }
        TapeCommand::Reset { name, archive } => {
            let TapeSource { tapes, tape } = scope.find_tape(&name).await?;
            scope.check_idle(&tapes, &tape).await?;
            tapes.reset(&tape, archive).await?;
            print(&format!("{tape} begins a new generation"))
        }
        TapeCommand::Verify { json } => verify::verify_tapes(scope, json).await,
    }
}

/// Prints entries, a line each.
fn print_entries(entries: &[Entry], json: bool) -> Result<(), CommandError> {
    if json {
        return print_lines(entries.iter().map(capstan_store::jsonl::format_line));
    }
    print_lines(entries.iter().map(|entry| replace_control_chars(&format_entry(entry))))
}

/// How much of an entry is shown on its line.
const MAX_ENTRY_LINE_CHARS: usize = 160;

fn format_entry(entry: &Entry) -> String {
    let text = summarize_entry(entry);
    let mut shown: String = text.chars().take(MAX_ENTRY_LINE_CHARS).collect();
    if text.chars().count() > MAX_ENTRY_LINE_CHARS {
        shown.push('…');
    }
    format!("{:>5}  {}  {:11} {shown}", entry.id.to_string(), entry.date.as_str(), entry.kind.to_string())
}

/// What an entry says, in a line.
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
