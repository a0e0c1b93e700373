//! `capstan runs`.

mod cancel;
mod grant;
mod list;
mod show;

use std::time::Duration;

use capstan_protocol::{ErrorCode, RunId};
use capstan_tape::{RunRecord, RunStatus, Store};
use clap::{Subcommand, ValueEnum};

use super::tape::source::HomeTapes;
use crate::CommandError;
use crate::command_line::CommandContext;

#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// Lists the runs, the newest first.
    List {
        /// At most this many.
        #[arg(long, value_name = "N", default_value = "20")]
        limit: usize,
        /// Only runs of this status.
        #[arg(long, value_name = "STATUS")]
        status: Option<RunStatusArg>,
        /// Only runs of this session.
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Prints JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows a run: its event, how it ended, what it used, what it might do, and its results in order.
    Show {
        /// The run, or how its id begins.
        run: String,
        /// Prints one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Asks a run to end, and waits until it has.
    Cancel {
        /// The run, or how its id begins.
        run: String,
        /// How long to wait; 0 only asks.
        #[arg(long, value_name = "SECONDS", default_value = "30")]
        wait: u64,
    },
}

/// The status of a run, as it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunStatusArg {
    Created,
    Running,
    Completed,
    Failed,
    Cancelled,
    Timeout,
    Interrupted,
}

impl From<RunStatusArg> for RunStatus {
    fn from(status: RunStatusArg) -> Self {
        match status {
            RunStatusArg::Created => Self::Created,
            RunStatusArg::Running => Self::Running,
            RunStatusArg::Completed => Self::Completed,
            RunStatusArg::Failed => Self::Failed,
            RunStatusArg::Cancelled => Self::Cancelled,
            RunStatusArg::Timeout => Self::Timeout,
            RunStatusArg::Interrupted => Self::Interrupted,
        }
    }
}

pub(crate) async fn run(context: CommandContext<'_>, command: RunsCommand) -> Result<(), CommandError> {
    let scope = HomeTapes::new(&context);
    let done = execute(&scope, command).await;
    scope.close().await?;
    done
}

async fn execute(scope: &HomeTapes<'_>, command: RunsCommand) -> Result<(), CommandError> {
    let tapes = scope.tapes()?;
    let store = tapes.store().as_ref();
    match command {
        RunsCommand::List { limit, status, session, json } => {
            let filter = list::RunFilter { limit, status: status.map(Into::into), session };
            list::list(store, &filter, json).await
        }
        RunsCommand::Show { run, json } => show::show(tapes, find_run(store, &run).await?, json).await,
        RunsCommand::Cancel { run, wait } => {
            cancel::cancel(scope, store, find_run(store, &run).await?, Duration::from_secs(wait)).await
        }
    }
}

/// The run of this id, or the only one whose id begins like that.
pub(super) async fn find_run(store: &dyn Store, wanted: &str) -> Result<RunRecord, CommandError> {
    if let Some(run) = store.run(&RunId::new(wanted)).await? {
        return Ok(run);
    }
    let unknown = |message: String| CommandError::new(ErrorCode::RunUnknown, message);
    let runs = store.runs(usize::MAX).await?;
    let mut alike = runs.into_iter().filter(|run| run.run_id.as_str().starts_with(wanted));
    match (alike.next(), alike.next()) {
        (Some(run), None) if !wanted.is_empty() => Ok(run),
        (Some(_), Some(_)) if !wanted.is_empty() => {
            let several = unknown(format!("several runs begin with {wanted:?}"));
            Err(several.with_hint("give more of its id; `capstan runs list` shows the runs there are"))
        }
        _ => Err(unknown(format!("there is no run {wanted:?}"))),
    }
}
