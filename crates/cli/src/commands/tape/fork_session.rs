//! `--tape`: the session that works on a fork.

use capstan_protocol::{ErrorCode, SessionId};
use capstan_tape::{ForkState, StoreError, TapeAddress, fork_session};

use super::checks::check_fork;
use super::source::{HomeTapes, TapeSource};
use crate::CommandError;
use crate::commands::CommandContext;

/// Session that works on the fork with this name. Fails if there is no such fork, or if it is closed.
pub(in crate::commands) async fn find_fork_session(
    context: &CommandContext<'_>,
    name: &str,
) -> Result<SessionId, CommandError> {
    let home = HomeTapes::new(context);
    let session = find_open_fork(&home, name).await;
    home.close().await?;
    session
}

async fn find_open_fork(home: &HomeTapes<'_>, name: &str) -> Result<SessionId, CommandError> {
    let TapeSource { tapes, tape } = home.find_tape(name).await?;
    check_fork(&tapes, &tape).await.map_err(|error| {
        error.with_hint("create a fork with `capstan tape fork NAME --as FORK`; --session-id continues a session")
    })?;
    let state = tapes.record(&tape).await?.and_then(|record| record.fork).map(|fork| fork.state);
    if state != Some(ForkState::Open) {
        return Err(StoreError::ForkClosed { tape }.into());
    }
    let address = TapeAddress { workspace: home.workspace_id().await?, session: fork_session(&tape) };
    match tapes.session_tape(&address).await {
        Ok(_) => Ok(address.session),
        Err(StoreError::TapeNotFound { tape }) => {
            let message = format!("the fork {tape} belongs to another workspace");
            let error = CommandError::new(ErrorCode::TapeUnknown, message);
            Err(error.with_hint("run the command in the workspace of the fork, or name it with --workspace"))
        }
        Err(error) => Err(error.into()),
    }
}
