//! `capstan tape`.

mod asked;
mod context;
mod events;
mod list;
pub(super) mod source;
mod transfer;
mod verify;

use std::path::PathBuf;

use capstan_protocol::EntryId;
use capstan_tape::{DateRange, Entry, Kind, Order, Query, Slice, Start};
use clap::{Args, Subcommand};

use self::source::{Scope, Source};
use super::{plain, print, print_lines};
use crate::command_line::Context;
use crate::{Exit, Failure};

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
        filter: Filter,
        /// Prints each entry as one line of JSON.
        #[arg(long)]
        json: bool,
        /// A generation that a reset has ended, whole.
        #[arg(long, value_name = "N", conflicts_with_all = Filter::NAMES)]
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
        filter: Filter,
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
pub(crate) struct Filter {
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

impl Filter {
    /// The names of its flags.
    const NAMES: [&str; 7] = ["after_last_anchor", "after_anchor", "until_anchor", "from", "to", "kinds", "limit"];

    fn query(&self) -> Result<Query, Failure> {
        let start = match (&self.after_anchor, self.after_last_anchor) {
            (Some(name), _) => Start::Anchor(name.clone()),
            (None, true) => Start::LastAnchor,
            (None, false) => Start::Beginning,
        };
        let dated = match (self.from.as_deref(), self.to.as_deref()) {
            (None, None) => None,
            (from, to) => {
                let range = DateRange::between(from.unwrap_or("0001-01-01"), to.unwrap_or("9999-12-30"));
                Some(range.map_err(|error| Failure::new("usage", error.to_string(), Exit::Usage))?)
            }
        };
        Ok(Query {
            start,
            until_anchor: self.until_anchor.clone(),
            dated,
            kinds: self.kinds.iter().map(|kind| Kind::from(kind.as_str())).collect(),
            text: None,
            order: Order::OldestFirst,
            limit: self.limit,
        })
    }
}

pub(crate) async fn run(context: Context<'_>, command: TapeCommand) -> Result<(), Failure> {
    let makes_a_tape = matches!(command, TapeCommand::Import { .. });
    let scope = if makes_a_tape { Scope::beginning(&context) } else { Scope::new(&context) };
    let done = execute(&scope, command).await;
    scope.close().await?;
    done
}

async fn execute(scope: &Scope<'_>, command: TapeCommand) -> Result<(), Failure> {
    match command {
        TapeCommand::List { json } => list::list(scope, json).await,
        TapeCommand::Show { name, filter, json, generation } => {
            let Source { tapes, tape } = scope.find(&name).await?;
            let entries = match generation {
                None => {
                    let query = filter.query()?;
                    asked::warn_of_missing_anchors(&tapes, &tape, &query).await?;
                    tapes.query(&tape, &query).await?
                }
                Some(number) => {
                    asked::check_generation(&tapes, &tape, number).await?;
                    tapes.read_generation(&tape, number, &Slice::all()).await?
                }
            };
            print_entries(&entries, json)
        }
        TapeCommand::Events { name, limit, json } => events::events(scope.find(&name).await?, limit, json).await,
        TapeCommand::Search { name, text, filter, all, json } => {
            let Source { tapes, tape } = scope.find(&name).await?;
            let limit = filter.limit;
            let query = Query { text: Some(text), order: Order::NewestFirst, limit: None, ..filter.query()? };
            asked::warn_of_missing_anchors(&tapes, &tape, &query).await?;
            let found = tapes.query(&tape, &query).await?;
            let shown = found.into_iter().filter(|entry| all || !entry.is_hidden());
            print_entries(&shown.take(limit.unwrap_or(usize::MAX)).collect::<Vec<_>>(), json)
        }
        TapeCommand::Anchors { name, json } => {
            let Source { tapes, tape } = scope.find(&name).await?;
            let anchors = Slice { kinds: vec![Kind::Anchor], ..Slice::default() };
            print_entries(&tapes.read(&tape, &anchors).await?, json)
        }
        TapeCommand::Export { name, legacy, generation } => {
            transfer::export(scope.find(&name).await?, legacy, generation).await
        }
        TapeCommand::Import { file, name } => transfer::import(scope, &file, name).await,
        TapeCommand::Context { run, call } => context::context(scope, run, call).await,
        TapeCommand::Fork { name, fork, at } => {
            let Source { tapes, tape } = scope.find(&name).await?;
            let fork = source::name(&fork)?;
            asked::check_name(&tapes, &fork).await?;
            asked::check_entry(&tapes, &tape, at).await?;
            tapes.fork(&tape, &fork, at.map(EntryId)).await?;
            print(&format!("forked {tape} as {fork}"))
        }
        TapeCommand::Merge { name } => {
            let Source { tapes, tape } = scope.find(&name).await?;
            asked::check_fork(&tapes, &tape).await?;
            tapes.merge(&tape).await?;
            print(&format!("merged {tape}"))
        }
        TapeCommand::Discard { name } => {
            let Source { tapes, tape } = scope.find(&name).await?;
            asked::check_fork(&tapes, &tape).await?;
            tapes.discard(&tape).await?;
            print(&format!("discarded {tape}"))
        }
        TapeCommand::Reset { name, archive } => {
            let Source { tapes, tape } = scope.find(&name).await?;
            scope.check_idle(&tapes, &tape).await?;
            tapes.reset(&tape, archive).await?;
            print(&format!("{tape} begins a new generation"))
        }
        TapeCommand::Verify { json } => verify::verify(scope, json).await,
    }
}

/// Prints entries, a line each.
fn print_entries(entries: &[Entry], json: bool) -> Result<(), Failure> {
    if json {
        return print_lines(entries.iter().map(capstan_store::jsonl::write_line));
    }
    print_lines(entries.iter().map(|entry| plain(&line(entry))))
}

/// How much of an entry is shown on its line.
const SHOWN_CHARS: usize = 160;

fn line(entry: &Entry) -> String {
    let text = summary(entry);
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if text.chars().count() > SHOWN_CHARS {
        shown.push('…');
    }
    format!("{:>5}  {}  {:11} {shown}", entry.id.to_string(), entry.date.as_str(), entry.kind.to_string())
}

/// What an entry says, in a line.
pub(super) fn summary(entry: &Entry) -> String {
    let payload = &entry.payload;
    let field = |name: &str| match payload.get(name) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    match entry.kind {
        Kind::Message => format!("{}: {}", field("role"), field("content")),
        Kind::Anchor => format!("{} {}", field("name"), field("state")),
        Kind::Event => format!("{} {}", field("name"), field("data")),
        Kind::ToolCall => field("calls"),
        Kind::ToolResult => field("results"),
        Kind::Error => format!("{}: {}", field("stage"), field("message")),
        Kind::System => field("content"),
        Kind::Other(_) => payload.to_string(),
    }
}
