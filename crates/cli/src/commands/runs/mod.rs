//! `capstan runs`.

mod cancel;
mod grant;
mod list;
mod show;

use std::time::Duration;

use capstan_protocol::{ErrorCode, RunId};
use capstan_tape::{RunRecord, RunStatus, Store};
use clap::{Subcommand, ValueEnum};

use super::CommandContext;
use super::tape::source::HomeTapes;
use crate::CommandError;

#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, newest first
    List {
        /// Maximum number of runs
        #[arg(long, value_name = "N", default_value = "20")]
        limit: usize,
        /// List only runs with this status
        #[arg(long, value_name = "STATUS")]
        status: Option<RunStatusArg>,
        /// List only runs of this session
        #[arg(long = "session-id", alias = "session", value_name = "ID")]
        session: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the event, status, usage, grant and results of a run
    Show {
        /// Id of the run, or a unique prefix
        run: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Cancel a run and wait until it has ended
    Cancel {
        /// Id of the run, or a unique prefix
        run: String,
        /// Time to wait; 0 returns after the request
        #[arg(long, value_name = "SECONDS", default_value = "30")]
        wait: u64,
    },
}

/// Argument of `--status`.
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
    let home = HomeTapes::new(&context);
    let executed = execute(&home, command).await;
    home.close().await?;
    executed
}

async fn execute(home: &HomeTapes<'_>, command: RunsCommand) -> Result<(), CommandError> {
    let tapes = home.tapes()?;
    let store = tapes.store().as_ref();
    match command {
        RunsCommand::List { limit, status, session, json } => {
            let filter = list::RunFilter { limit, status: status.map(Into::into), session };
            list::list(store, &filter, json).await
        }
        RunsCommand::Show { run, json } => show::show(tapes, find_run(store, &run).await?, json).await,
        RunsCommand::Cancel { run, wait } => {
            cancel::cancel(home, store, find_run(store, &run).await?, Duration::from_secs(wait)).await
        }
    }
}

/// Finds a run by its id or by a unique prefix of it.
pub(super) async fn find_run(store: &dyn Store, wanted: &str) -> Result<RunRecord, CommandError> {
    if let Some(run) = store.run(&RunId::new(wanted)).await? {
        return Ok(run);
    }
    let unknown = |message: String| CommandError::new(ErrorCode::RunUnknown, message);
    let (mut candidates, mut runs) = (Vec::new(), store.runs());
    while candidates.len() < 2
        && !wanted.is_empty()
        && let Some(run) = runs.next().await?
    {
        candidates.extend(Some(run).filter(|run| run.run_id.as_str().starts_with(wanted)));
    }
    match (candidates.pop(), candidates.pop()) {
        (Some(run), None) => Ok(run),
        (Some(_), Some(_)) => {
            let ambiguous = unknown(format!("several runs start with {wanted:?}"));
            Err(ambiguous.with_hint("give more of the id; `capstan runs list` lists the runs"))
        }
        _ => Err(unknown(format!("unknown run {wanted:?}"))),
    }
}
