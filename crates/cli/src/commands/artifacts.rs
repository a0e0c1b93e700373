//! `capstan artifacts`.

use std::collections::HashSet;

use capstan_host::artifact_admin::{ArtifactAdmin, StoredArtifact};
use capstan_protocol::{ArtifactId, Clock, Content, ErrorCode, SessionId, Timestamp};
use capstan_store::SqliteStore;
use capstan_tape::{OutboxRecord, TapeAddress};
use clap::Subcommand;
use serde_json::{Value, json};

use super::tape::source::HomeTapes;
use super::{CommandContext, format_age, print_bytes, print_json, print_lines, replace_control_chars};
use crate::{CommandError, home};

const CLEAR_DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;

#[derive(Subcommand)]
pub(crate) enum ArtifactsCommand {
    /// List artifacts: long tool results, and files that runs stored
    List {
        /// List only artifacts of this session
        #[arg(long, value_name = "ID")]
        session_id: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the content of an artifact
    Show {
        /// Id of the artifact
        id: String,
    },
    /// Remove the content of an artifact, or of those selected by --older-than; dry run without --yes
    ///
    /// The entry of the artifact stays on its tape, without its content. Artifacts that an unsent message refers to are
    /// kept.
    Clear {
        /// Id of the artifact
        #[arg(required_unless_present = "older_than", conflicts_with_all = ["older_than", "session_id"])]
        id: Option<String>,
        /// Remove artifacts that are at least this many days old
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
        older_than: Option<u32>,
        /// With --older-than, remove only artifacts of this session
        #[arg(long, value_name = "ID", requires = "older_than")]
        session_id: Option<String>,
        /// Confirm the removal
        #[arg(long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn run(context: CommandContext<'_>, command: ArtifactsCommand) -> Result<(), CommandError> {
    let home_tapes = HomeTapes::new(&context);
    let executed = execute(&home_tapes, command).await;
    home_tapes.close().await?;
    executed
}

async fn execute(home_tapes: &HomeTapes<'_>, command: ArtifactsCommand) -> Result<(), CommandError> {
    let system =
        TapeAddress { workspace: home_tapes.workspace_id().await?, session: capstan_host::SYSTEM_SESSION.into() };
    let admin = ArtifactAdmin::new(home_tapes.tapes()?.clone(), Clock::system(), system);
    match command {
        ArtifactsCommand::List { session_id, json } => {
            let artifacts = select_artifacts(&admin, session_id, None).await?;
            if json {
                return print_json(&artifacts.iter().map(artifact_json).collect::<Vec<_>>());
            }
            let now = Timestamp::now();
            print_lines(artifacts.iter().map(|stored| format_artifact(stored, now)))
        }
        ArtifactsCommand::Show { id } => {
            let stored = find_artifact(&admin, &id).await?;
            let content = admin.content(&stored.artifact).await?;
            let content = content.ok_or_else(|| unknown_artifact(&id, "has no content in this home"))?;
            print_bytes(&content)
        }
        ArtifactsCommand::Clear { id: Some(id), yes, json, .. } => {
            let stored = find_artifact(&admin, &id).await?;
            if !stored.is_removable() {
                return Err(unknown_artifact(&id, "was stored by an earlier version, and its content may be shared"));
            }
            if unsent_artifacts(home_tapes).await?.contains(&stored.artifact.id) {
                return Err(unknown_artifact(&id, "is part of a message that was not sent yet"));
            }
            clear_artifacts(&admin, &[stored], "asked for", yes, json).await
        }
        ArtifactsCommand::Clear { id: None, older_than, session_id, yes, json } => {
            let days = older_than.unwrap_or(1);
            let (mut selected, unsent) =
                (select_artifacts(&admin, session_id, Some(days)).await?, unsent_artifacts(home_tapes).await?);
            let total = selected.len();
            selected.retain(|stored| stored.is_removable() && !unsent.contains(&stored.artifact.id));
            let kept = total - selected.len();
            if kept > 0 {
                stderr_line!(
                    "note: {kept} artifacts are kept: an unsent message or an earlier version may share their content"
                );
            }
            clear_artifacts(&admin, &selected, &format!("created {days} days ago or earlier"), yes, json).await
        }
    }
}

/// Artifacts of a session, or of all, that are at least this old.
async fn select_artifacts(
    admin: &ArtifactAdmin,
    session_id: Option<String>,
    days: Option<u32>,
) -> Result<Vec<StoredArtifact>, CommandError> {
    let (session, now) = (session_id.map(SessionId::new), Timestamp::now());
    let is_old = |stored: &StoredArtifact| {
        let Some(days) = days else { return true };
        let age = stored.created_at.map(|created_at| now.as_millis().saturating_sub(created_at.as_millis()));
        age.is_some_and(|age| age >= i64::from(days) * CLEAR_DAY_MILLIS)
    };
    let mut artifacts = admin.list().await?;
    artifacts.retain(|stored| (session.is_none() || stored.session == session) && is_old(stored));
    Ok(artifacts)
}

async fn find_artifact(admin: &ArtifactAdmin, id: &str) -> Result<StoredArtifact, CommandError> {
    let found = admin.find(&ArtifactId::new(id)).await?;
    found.ok_or_else(|| unknown_artifact(id, "is not stored in this home"))
}

fn unknown_artifact(id: &str, problem: &str) -> CommandError {
    CommandError::new(ErrorCode::ArtifactUnknown, format!("artifact {id} {problem}"))
}

/// Artifacts that a message refers to which was not sent yet.
async fn unsent_artifacts(home_tapes: &HomeTapes<'_>) -> Result<HashSet<ArtifactId>, CommandError> {
    let database = home::database_path(&home_tapes.context.config.home);
    if !database.exists() {
        return Ok(HashSet::new());
    }
    let snapshot = SqliteStore::open_snapshot(database)?;
    let mut records: Vec<OutboxRecord> = home_tapes.tapes()?.store().pending_outbound().collect().await?;
    records.extend(snapshot.held_messages(usize::MAX).await?.newest);
    records.extend(snapshot.dead_letters(usize::MAX).await?.newest);
    let parts = records.into_iter().flat_map(|record| match record.message.content {
        Content::Parts(parts) => parts,
        Content::Text(_) => Vec::new(),
    });
    Ok(parts.filter_map(|part| part.artifact_id()).collect())
}

async fn clear_artifacts(
    admin: &ArtifactAdmin,
    selected: &[StoredArtifact],
    reason: &str,
    is_confirmed: bool,
    json: bool,
) -> Result<(), CommandError> {
    if is_confirmed {
        admin.remove(selected, reason).await?;
    }
    if json {
        let artifacts: Vec<Value> = selected.iter().map(artifact_json).collect();
        return print_json(&json!({ "cleared": is_confirmed, "artifacts": artifacts }));
    }
    let (verb, now) = (if is_confirmed { "cleared" } else { "would clear" }, Timestamp::now());
    print_lines(selected.iter().map(|stored| format!("{verb} {}", format_artifact(stored, now))))?;
    if !is_confirmed && !selected.is_empty() {
        stderr_line!("note: nothing was removed; add --yes to remove it");
    }
    Ok(())
}

fn artifact_json(stored: &StoredArtifact) -> Value {
    let artifact = &stored.artifact;
    json!({ "id": artifact.id, "name": artifact.name, "media_type": artifact.media_type, "bytes": artifact.bytes,
            "hash": artifact.hash, "tape": stored.tape, "session_id": stored.session, "created_at": stored.created_at,
            "removable": stored.is_removable() })
}

fn format_artifact(stored: &StoredArtifact, now: Timestamp) -> String {
    let artifact = &stored.artifact;
    let owner = stored.session.as_ref().map_or(stored.tape.as_str(), SessionId::as_str);
    let age = stored.created_at.map(|at| format!(", {} ago", format_age(at, now))).unwrap_or_default();
    let (id, name, media_type, bytes) = (&artifact.id, &artifact.name, &artifact.media_type, artifact.bytes);
    replace_control_chars(&format!("{id}  {name}  {media_type}, {bytes} bytes  {owner}{age}"))
}
