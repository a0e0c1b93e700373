//! Which tape a command means.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use capstan_host::Owners;
use capstan_protocol::{SessionId, TapeName, Timestamp, WorkspaceId};
use capstan_store::jsonl;
use capstan_tape::{Batch, Fact, MemoryStore, NewTape, Store, TapeAddress, Tapes, tape_name};

use crate::command_line::Context;
use crate::{Exit, Failure, builder};

/// A tape and where it is.
pub(super) struct Source {
    pub(super) tapes: Tapes,
    pub(super) tape: TapeName,
}

/// A name for a tape, checked.
pub(super) fn name(text: &str) -> Result<TapeName, Failure> {
    TapeName::parse(text).map_err(|error| Failure::new("tape-name-invalid", error.to_string(), Exit::Usage))
}

/// The tapes of the home, for as long as a command runs: opened when they are first needed, closed at its end.
pub(in crate::commands) struct Scope<'a> {
    pub(in crate::commands) context: &'a Context<'a>,
    /// Whether the command makes a home where there is none.
    begins: bool,
    opened: OnceCell<Tapes>,
}

impl<'a> Scope<'a> {
    /// For a command that looks at tapes or changes one that is there.
    pub(in crate::commands) fn new(context: &'a Context<'a>) -> Self {
        Self { context, begins: false, opened: OnceCell::new() }
    }

    /// For a command that makes a tape.
    pub(in crate::commands) fn beginning(context: &'a Context<'a>) -> Self {
        Self { begins: true, ..Self::new(context) }
    }

    /// The tapes of the home.
    pub(in crate::commands) fn tapes(&self) -> Result<&Tapes, Failure> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let config = &self.context.config;
        let store: Arc<dyn Store> = if self.begins {
            builder::open_store(config)?
        } else if builder::database(config).exists() {
            builder::open_store_to_read(config)?
        } else {
            // Nothing was ever written: looking at it writes nothing either.
            Arc::new(MemoryStore::new())
        };
        let tapes = capstan_host::tapes(&self.context.hooks(), store)?;
        Ok(self.opened.get_or_init(|| tapes))
    }

    /// Closes what was opened.
    pub(in crate::commands) async fn close(self) -> Result<(), Failure> {
        match self.opened.get() {
            Some(tapes) => Ok(tapes.close().await?),
            None => Ok(()),
        }
    }

    /// The identity of the workspace the command was called in.
    pub(in crate::commands) async fn workspace(&self) -> Result<WorkspaceId, Failure> {
        let path = self.context.workspace.to_string_lossy().into_owned();
        let known = self.tapes()?.store().workspace(&path).await?;
        Ok(known.unwrap_or_else(|| WorkspaceId::new(path)))
    }

    /// Refuses while a turn is running on the tape: the rest of it would land in another generation.
    pub(super) async fn check_idle(&self, tapes: &Tapes, tape: &TapeName) -> Result<(), Failure> {
        let owners = Owners::in_folder(builder::owners(&self.context.config.home));
        let lease = tapes.store().lease(tape).await?;
        if lease.is_some_and(|lease| owners.holds(&lease, Timestamp::now())) {
            return Err(Failure::new("session-busy", format!("a turn is running on tape {tape}"), Exit::Failed));
        }
        Ok(())
    }

    /// What a name means: a file that is there, a tape, the tape of a session of this workspace, or the only tape whose
    /// name begins like that.
    pub(super) async fn find(&self, wanted: &str) -> Result<Source, Failure> {
        let path = Path::new(wanted);
        if path.is_file() {
            return read_in_place(path).await;
        }
        let tapes = self.tapes()?.clone();
        if let Ok(tape) = TapeName::parse(wanted)
            && tapes.record(&tape).await?.is_some()
        {
            return Ok(Source { tapes, tape });
        }
        let workspace = self.workspace().await?;
        let tape = tape_name(&TapeAddress { workspace, session: SessionId::new(wanted) });
        if tapes.record(&tape).await?.is_some() {
            return Ok(Source { tapes, tape });
        }
        let known = tapes.list().await?;
        let mut alike = known.into_iter().map(|record| record.name).filter(|name| name.as_str().starts_with(wanted));
        match (alike.next(), alike.next()) {
            (Some(tape), None) if !wanted.is_empty() => Ok(Source { tapes, tape }),
            _ if wanted.contains('/') || path.extension().is_some_and(|extension| extension == "jsonl") => {
                Err(Failure::new("tape-file-unreadable", format!("there is no file {wanted}"), Exit::Usage))
            }
            _ => Err(Failure::new("tape-unknown", format!("there is no tape {wanted:?}"), Exit::Usage)),
        }
    }
}

/// A file as a tape: read where it is, and never written to.
async fn read_in_place(path: &Path) -> Result<Source, Failure> {
    let entries = read_file(path)?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let tape = TapeName::parse(stem).or_else(|_| TapeName::parse("file"));
    let tape = tape.map_err(|error| Failure::new("tape-name-invalid", error.to_string(), Exit::Usage))?;
    let tapes = Tapes::new(Arc::new(MemoryStore::new()));
    let mut batch = Batch::new();
    batch.push(Fact::EnsureTape(NewTape::named(tape.clone())));
    batch.push(Fact::Import { tape: tape.clone(), entries });
    tapes.commit(batch).await?;
    Ok(Source { tapes, tape })
}

/// The entries of a file. A torn last line is reported; the rest is there.
pub(super) fn read_file(path: &Path) -> Result<Vec<capstan_tape::Entry>, Failure> {
    let file = jsonl::read_file(path).map_err(|error| {
        let code = if matches!(error, capstan_tape::StoreError::Corrupt { .. }) {
            "tape-damaged"
        } else {
            "tape-file-unreadable"
        };
        Failure::new(code, error.to_string(), Exit::Usage)
    })?;
    if let Some(torn) = &file.torn {
        complain!(
            "warning: line {} of {} is torn ({} bytes) and was left out; the lines before it are whole",
            torn.line,
            path.display(),
            torn.bytes
        );
    }
    Ok(file.entries)
}
