//! Resolution of tape names given to commands.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use capstan_host::ProcessLiveness;
use capstan_protocol::{ErrorCode, ExitClass, SessionId, TapeName, Timestamp, WorkspaceId};
use capstan_store::jsonl;
use capstan_tape::{Batch, Fact, MemoryStore, NewTape, Store, StoreError, TapeAddress, TapeRepository};

use crate::commands::CommandContext;
use crate::{CommandError, home};

/// A tape and its repository.
pub(super) struct TapeSource {
    pub(super) tapes: TapeRepository,
    pub(super) tape: TapeName,
}

/// Parses the name of a tape.
pub(super) fn parse_tape_name(text: &str) -> Result<TapeName, CommandError> {
    TapeName::parse(text).map_err(|error| CommandError::new(ErrorCode::TapeNameInvalid, error.to_string()))
}

/// The tapes of the home, opened on first use. The command closes them at its end.
pub(in crate::commands) struct HomeTapes<'a> {
    pub(in crate::commands) context: &'a CommandContext<'a>,
    /// Create a missing home.
    creates_home: bool,
    open_tapes: OnceCell<TapeRepository>,
}

impl<'a> HomeTapes<'a> {
    /// For a command that reads tapes or changes existing ones.
    pub(in crate::commands) fn new(context: &'a CommandContext<'a>) -> Self {
        Self { context, creates_home: false, open_tapes: OnceCell::new() }
    }

    /// For a command that may create the first tape of a home.
    pub(in crate::commands) fn creating_home(context: &'a CommandContext<'a>) -> Self {
        Self { creates_home: true, ..Self::new(context) }
    }

    /// The tapes of the home.
    pub(in crate::commands) fn tapes(&self) -> Result<&TapeRepository, CommandError> {
        if let Some(tapes) = self.open_tapes.get() {
            return Ok(tapes);
        }
        let config = &self.context.config;
        let store: Arc<dyn Store> = if self.creates_home {
            home::open_store(config)?
        } else if home::database_path(&config.home).exists() {
            home::open_existing_store(config)?
        } else {
            // Reading must not create a database.
            Arc::new(MemoryStore::new())
        };
        let tapes = capstan_host::open_tapes(&self.context.build_hooks(), store)?;
        Ok(self.open_tapes.get_or_init(|| tapes))
    }

    /// Closes the tapes if they were opened.
    pub(in crate::commands) async fn close(self) -> Result<(), CommandError> {
        match self.open_tapes.get() {
            Some(tapes) => Ok(tapes.close().await?),
            None => Ok(()),
        }
    }

    /// Id of the workspace that the command runs in.
    pub(in crate::commands) async fn workspace_id(&self) -> Result<WorkspaceId, CommandError> {
        let path = self.context.workspace.to_string_lossy().into_owned();
        let known = self.tapes()?.store().workspace(&path).await?;
        Ok(known.unwrap_or_else(|| WorkspaceId::new(path)))
    }

    /// Fails while a turn is running on the tape: a reset would split it between two generations, and a closed fork could
    /// not record its end.
    pub(super) async fn check_idle(&self, tapes: &TapeRepository, tape: &TapeName) -> Result<(), CommandError> {
        let owners = ProcessLiveness::open(home::process_locks_dir(&self.context.config.home));
        let lease = tapes.store().lease(tape).await?;
        if lease.is_some_and(|lease| owners.is_lease_held(&lease, Timestamp::now())) {
            let busy = CommandError::new(ErrorCode::SessionBusy, format!("a turn is running on tape {tape}"));
            return Err(busy.with_exit(ExitClass::Store));
        }
        Ok(())
    }

    /// Resolves a name: an existing file, or a [stored tape](Self::find_stored_tape), in this order.
    pub(super) async fn find_tape(&self, name: &str) -> Result<TapeSource, CommandError> {
        let path = Path::new(name);
        if path.is_file() { open_file_as_tape(path).await } else { self.find_stored_tape(name).await }
    }

    /// Resolves the name of a tape that is stored in the home: a tape, a session of this workspace, or a unique prefix of
    /// a tape name, in this order. A change of a file would be lost with the command, so a file is refused.
    pub(super) async fn find_stored_tape(&self, name: &str) -> Result<TapeSource, CommandError> {
        let path = Path::new(name);
        let tapes = self.tapes()?.clone();
        if let Ok(tape) = TapeName::parse(name)
            && tapes.record(&tape).await?.is_some()
        {
            return Ok(TapeSource { tapes, tape });
        }
        let workspace = self.workspace_id().await?;
        match tapes.session_tape(&TapeAddress { workspace, session: SessionId::new(name) }).await {
            Ok(tape) if tapes.record(&tape).await?.is_some() => return Ok(TapeSource { tapes, tape }),
            Ok(_) | Err(StoreError::TapeNotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let known = tapes.list().await?;
        let mut candidates = known.into_iter().map(|record| record.name).filter(|tape| tape.as_str().starts_with(name));
        match (candidates.next(), candidates.next()) {
            (Some(tape), None) if !name.is_empty() => Ok(TapeSource { tapes, tape }),
            _ if path.is_file() => {
                let message = format!("{name} is a file; import it first with: capstan tape import {name}");
                Err(CommandError::new(ErrorCode::TapeUnknown, message))
            }
            _ if name.contains('/') || path.extension().is_some_and(|extension| extension == "jsonl") => {
                let message = if path.exists() { not_a_file_message(path) } else { format!("there is no file {name}") };
                Err(CommandError::new(ErrorCode::TapeFileUnreadable, message))
            }
            _ => Err(CommandError::new(ErrorCode::TapeUnknown, format!("unknown tape {name:?}"))),
        }
    }
}

/// Opens a file as a read-only tape.
async fn open_file_as_tape(path: &Path) -> Result<TapeSource, CommandError> {
    let entries = read_file(path)?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let tape = TapeName::parse(stem).or_else(|_| TapeName::parse("file"));
    let tape = tape.map_err(|error| CommandError::new(ErrorCode::TapeNameInvalid, error.to_string()))?;
    let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::without_session(tape.clone())));
    batch.push(Fact::ImportEntries { tape: tape.clone(), entries });
    tapes.commit(batch).await?;
    Ok(TapeSource { tapes, tape })
}

/// Reads the entries of a regular file: a device or a pipe may have no end. Skips a torn last line with a warning.
pub(super) fn read_file(path: &Path) -> Result<Vec<capstan_tape::Entry>, CommandError> {
    if path.exists() && !path.is_file() {
        return Err(CommandError::new(ErrorCode::TapeFileUnreadable, not_a_file_message(path)));
    }
    let file = jsonl::read_file(path).map_err(|error| {
        let code = if matches!(error, capstan_tape::StoreError::Corrupt { .. }) {
            ErrorCode::TapeDamaged
        } else {
            ErrorCode::TapeFileUnreadable
        };
        CommandError::new(code, error.to_string()).with_exit(ExitClass::Usage)
    })?;
    if let Some(torn) = &file.torn_line {
        stderr_line!(
            "warning: line {} of {} is incomplete ({} bytes) and was skipped; the lines before it are complete",
            torn.line_number,
            path.display(),
            torn.byte_len
        );
    }
    Ok(file.entries)
}

fn not_a_file_message(path: &Path) -> String {
    format!("{} is not a regular file", path.display())
}
