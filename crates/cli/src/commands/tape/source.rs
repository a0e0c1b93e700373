//! Which tape a command means.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use capstan_host::ProcessLiveness;
use capstan_protocol::{ErrorCode, ExitClass, SessionId, TapeName, Timestamp, WorkspaceId};
use capstan_store::jsonl;
use capstan_tape::{Batch, Fact, MemoryStore, NewTape, Store, TapeAddress, TapeRepository, tape_name};

use crate::command_line::CommandContext;
use crate::{CommandError, builder};

/// A tape and where it is.
pub(super) struct TapeSource {
    pub(super) tapes: TapeRepository,
    pub(super) tape: TapeName,
}

/// A name for a tape, checked.
pub(super) fn parse_tape_name(text: &str) -> Result<TapeName, CommandError> {
    TapeName::parse(text).map_err(|error| CommandError::new(ErrorCode::TapeNameInvalid, error.to_string()))
}

/// The tapes of the home, for as long as a command runs: opened when they are first needed, closed at its end.
pub(in crate::commands) struct HomeTapes<'a> {
    pub(in crate::commands) context: &'a CommandContext<'a>,
    /// Whether the command makes a home where there is none.
    creates_home: bool,
    open_tapes: OnceCell<TapeRepository>,
}

impl<'a> HomeTapes<'a> {
    /// For a command that looks at tapes or changes one that is there.
    pub(in crate::commands) fn new(context: &'a CommandContext<'a>) -> Self {
        Self { context, creates_home: false, open_tapes: OnceCell::new() }
    }

    /// For a command that makes a tape.
    pub(in crate::commands) fn creating_home(context: &'a CommandContext<'a>) -> Self {
        Self { creates_home: true, ..Self::new(context) }
    }

    /// The tapes of the home.
    pub(in crate::commands) fn tapes(&self) -> Result<&TapeRepository, CommandError> {
        if let Some(opened) = self.open_tapes.get() {
            return Ok(opened);
        }
        let config = &self.context.config;
        let store: Arc<dyn Store> = if self.creates_home {
            builder::open_store(config)?
        } else if builder::database_path(config).exists() {
            builder::open_existing_store(config)?
        } else {
            // Nothing was ever written: looking at it writes nothing either.
            Arc::new(MemoryStore::new())
        };
        let tapes = capstan_host::open_tapes(&self.context.build_hooks(), store)?;
        Ok(self.open_tapes.get_or_init(|| tapes))
    }

    /// Closes what was opened.
    pub(in crate::commands) async fn close(self) -> Result<(), CommandError> {
        match self.open_tapes.get() {
            Some(tapes) => Ok(tapes.close().await?),
            None => Ok(()),
        }
    }

    /// The identity of the workspace the command was called in.
    pub(in crate::commands) async fn workspace_id(&self) -> Result<WorkspaceId, CommandError> {
        let path = self.context.workspace.to_string_lossy().into_owned();
        let known = self.tapes()?.store().workspace(&path).await?;
        Ok(known.unwrap_or_else(|| WorkspaceId::new(path)))
    }

    /// Refuses while a turn is running on the tape: the rest of it would land in another generation.
    pub(super) async fn check_idle(&self, tapes: &TapeRepository, tape: &TapeName) -> Result<(), CommandError> {
        let owners = ProcessLiveness::open(builder::process_locks_dir(&self.context.config.home));
        let lease = tapes.store().lease(tape).await?;
        if lease.is_some_and(|lease| owners.is_lease_held(&lease, Timestamp::now())) {
            return Err(CommandError::new(ErrorCode::SessionBusy, format!("a turn is running on tape {tape}")));
        }
        Ok(())
    }

    /// What a name means: a file that is there, a tape, the tape of a session of this workspace, or the only tape whose
    /// name begins like that.
    pub(super) async fn find_tape(&self, wanted: &str) -> Result<TapeSource, CommandError> {
        let path = Path::new(wanted);
        if path.is_file() {
            return open_file_as_tape(path).await;
        }
        let tapes = self.tapes()?.clone();
        if let Ok(tape) = TapeName::parse(wanted)
            && tapes.record(&tape).await?.is_some()
        {
            return Ok(TapeSource { tapes, tape });
        }
        let workspace = self.workspace_id().await?;
        let tape = tape_name(&TapeAddress { workspace, session: SessionId::new(wanted) });
        if tapes.record(&tape).await?.is_some() {
            return Ok(TapeSource { tapes, tape });
        }
        let known = tapes.list().await?;
        let mut alike = known.into_iter().map(|record| record.name).filter(|name| name.as_str().starts_with(wanted));
        match (alike.next(), alike.next()) {
            (Some(tape), None) if !wanted.is_empty() => Ok(TapeSource { tapes, tape }),
            _ if wanted.contains('/') || path.extension().is_some_and(|extension| extension == "jsonl") => {
                Err(CommandError::new(ErrorCode::TapeFileUnreadable, format!("there is no file {wanted}")))
            }
            _ => Err(CommandError::new(ErrorCode::TapeUnknown, format!("there is no tape {wanted:?}"))),
        }
    }
}

/// A file as a tape: read where it is, and never written to.
async fn open_file_as_tape(path: &Path) -> Result<TapeSource, CommandError> {
    let entries = read_file(path)?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let tape = TapeName::parse(stem).or_else(|_| TapeName::parse("file"));
    let tape = tape.map_err(|error| CommandError::new(ErrorCode::TapeNameInvalid, error.to_string()))?;
    let tapes = TapeRepository::new(Arc::new(MemoryStore::new()));
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::with_name(tape.clone())));
    batch.push(Fact::ImportEntries { tape: tape.clone(), entries });
    tapes.commit(batch).await?;
    Ok(TapeSource { tapes, tape })
}

/// The entries of a file. A torn last line is reported; the rest is there.
pub(super) fn read_file(path: &Path) -> Result<Vec<capstan_tape::Entry>, CommandError> {
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
            "warning: line {} of {} is torn ({} bytes) and was left out; the lines before it are whole",
            torn.line_number,
            path.display(),
            torn.byte_len
        );
    }
    Ok(file.entries)
}
