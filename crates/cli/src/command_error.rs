//! How a command fails: a stable code, what happened, what to do, and an exit code.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use capstan_host::HostError;
use capstan_tape::StoreError;
use capstan_turn::TurnError;

use crate::config::ConfigError;

/// The exit codes of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CliExitCode {
    /// The turn failed, and that is recorded.
    Failed = 1,
    /// What was asked makes no sense; nothing was done.
    Usage = 2,
    /// The configuration is wrong; nothing was done.
    Config = 3,
    /// The store refused or failed.
    Store = 4,
    /// The run was cancelled.
    Cancelled = 130,
}

impl From<CliExitCode> for ExitCode {
    fn from(exit: CliExitCode) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that failed. Each code has a page in `docs/errors/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandError {
    /// The stable code.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// What the process exits with.
    pub exit: CliExitCode,
}

/// Every code a command can fail with, and what to do about it.
pub(crate) const ERROR_HINTS: &[(&str, &str)] = &[
    ("action-unknown", "look on the platform whether it was done before you ask for it again"),
    ("backup-damaged", "nothing was kept of the copy; `capstan doctor` tells what is damaged"),
    ("backup-exists", "give another path, or --force to replace what is there"),
    (
        "binding-ambiguous",
        "narrow the scope, the event types or the filters of one of the two, or disable the other one first",
    ),
    ("binding-invalid", "correct what is named; docs/bindings.md lists the fields"),
    ("binding-unknown", "`capstan bindings list` shows those there are"),
    ("binding-unreadable", "save it anew with `capstan bindings set`, or remove it with `capstan bindings remove`"),
    (
        "channel-elsewhere",
        "leave --channel out to be answered here, or serve the channel, as in `capstan serve --channel stdio`",
    ),
    ("channel-failed", "the channel's own words are above; what was accepted is kept, and taken up at the next start"),
    (
        "channel-missing",
        "name those to listen on, as in `capstan serve --channel stdio`; `--channel all` takes every one",
    ),
    ("channel-unknown", "use one of those that are named; `capstan run` without --channel uses the terminal"),
    (
        "command-denied",
        "the resource_policy of the binding says which tools there are; `capstan bindings list` shows the bindings",
    ),
    ("command-invalid", "`,help` shows how each command is called; quote words that belong together"),
    ("command-unknown", "`,help` lists the commands"),
    ("config-invalid", "mend or remove what is named; `capstan config show` then prints every setting and its origin"),
    (
        "config-untrusted",
        "set it in your own config.toml or environment, or trust_workspace = true there if you trust the workspace",
    ),
    ("disk-full", "make room on the disk and try again; nothing that was acknowledged is lost"),
    ("envelope-invalid", "an envelope has at least event_type, source and input; docs/bindings.md lists the fields"),
    (
        "event-id-taken",
        "give every event an id of its own: the same id means the same event, in whatever session it is sent",
    ),
    ("events-left", "`capstan doctor` says what is in the way; the next start takes them up"),
    ("hook-failed", "`capstan hooks` shows who implements the hook; run with CAPSTAN_LOG=debug for the whole story"),
    ("home-unusable", "set CAPSTAN_HOME to a directory you can write to"),
    ("host-stopping", "nothing is lost: the message is taken up at the next start"),
    ("input-invalid", "give a message that is not empty, or - to read it from the standard input as UTF-8"),
    (
        "key-elsewhere",
        "give the key for the new address with --api-key-stdin, or take the old one out of the home's files; nothing was written",
    ),
    ("line-field-invalid", "correct the field that is named and send the line again"),
    ("line-field-missing", "a line has at least `session` and `text`"),
    ("line-field-unknown", "leave the field out, or spell it as it is meant; docs/stdio.md lists the fields"),
    ("line-not-json", "write one whole JSON object on each line, with line ends inside texts escaped"),
    ("line-not-object", "write a JSON object, as in {\"session\": \"s\", \"text\": \"hello\"}"),
    ("line-not-utf8", "write lines in UTF-8"),
    ("line-text-empty", "give a text that is not empty"),
    ("line-too-long", "shorten the text, put it into a file of the workspace, or raise max_message_bytes"),
    ("max-run-tokens", "raise max_run_tokens, or ask for a smaller piece of work"),
    ("max-steps", "raise max_steps, or ask for a smaller piece of work"),
    ("message-too-large", "shorten the message, put it into a file of the workspace, or raise max_message_bytes"),
    (
        "model-broken",
        "try again; if it stays, check that CAPSTAN_API_BASE points to an endpoint of the model's provider",
    ),
    (
        "model-context-overflow",
        "the message, or what tools gave for it, is too long: shorten it, have less read at once, or use a model that takes more",
    ),
    (
        "model-rate-limited",
        "wait and try again, or pay where nothing is left; CAPSTAN_FALLBACK_MODELS names models to fall back on",
    ),
    (
        "model-rejected",
        "check the model, its options and what the provider said, if anything; what its filter stopped is to be said otherwise",
    ),
    (
        "model-unauthorized",
        "set a key that the provider accepts; `capstan config show` tells where the present one is from",
    ),
    (
        "model-unknown",
        "check that CAPSTAN_MODEL names a model the provider has and CAPSTAN_API_BASE is where it says; see docs/models.md",
    ),
    ("model-unreachable", "check the network and CAPSTAN_API_BASE; CAPSTAN_MODEL=demo: works without either"),
    ("nested-too-deep", "hand over what has fewer levels, or put the deep part into a text"),
    (
        "output-closed",
        "leave the standard output open for whoever reads the answers; `>/dev/null` is for when nobody is to",
    ),
    (
        "output-failed",
        "make room where the standard output goes, or send it elsewhere; what the command was to do is done",
    ),
    ("plugin-command-failed", "the plugin's own words are above"),
    ("problems-found", "each check above says what to do about what it found"),
    ("query-invalid", "correct what is named; docs/queries.md lists what a query has and what it becomes"),
    ("queue-full", "send it again when the session has less to do; nothing of it was kept"),
    ("reply-undelivered", "the reply stands on the tape: `capstan tape show SESSION` has it"),
    ("run-cancelled", "nothing is lost: `capstan tape show SESSION` has what was done so far"),
    ("run-failed", "`capstan tape show SESSION` has what was done so far"),
    (
        "run-flooded",
        "have the runner say less, or raise the limit that is named; `capstan tape show SESSION` has what was done so far",
    ),
    ("run-still-running", "the request stands; ask again with a longer --wait, or end the process that runs it"),
    ("run-timeout", "raise run_timeout_seconds, or ask for a smaller piece of work"),
    ("run-unknown", "`capstan runs list` shows the runs there are"),
    ("runner-unknown", "`capstan hooks` shows who provides runners"),
    ("session-busy", "wait for the other process, or use another session"),
    (
        "session-reserved",
        "give the conversation another session id; `capstan tape show system` shows what stands there",
    ),
    ("skill-invalid", "mend the SKILL.md that is named; the skill `skill-creator` says how one is written"),
    ("skill-unknown", "`capstan skills list` shows the skills there are"),
    (
        "state-invalid",
        "quote a text twice, as in '\"text\"'; docs/state.md says how spaces, keys and values are written",
    ),
    ("state-too-large", "remove other keys first, or raise limits in the state_policy of the binding"),
    ("state-unknown", "`capstan state list` shows the spaces there are, `capstan state show SPACE` its keys"),
    ("store-busy", "end the process that keeps the database open for writing, then try again; `fuser` names it"),
    ("store-corrupt", "restore the file from a backup, or move it away to begin anew; it is left as it is"),
    ("store-empty", "there is nothing to lose yet; check CAPSTAN_HOME if you expected something"),
    ("store-failed", "check the disk, its free space and the permissions of the home directory"),
    ("store-read-only", "let this user write to the home directory and what is in it, or set CAPSTAN_HOME to another"),
    (
        "store-unsynced",
        "check the disk, then start Capstan anew: it makes sure of what is there before it writes anything",
    ),
    ("store-too-new", "use the version of Capstan that wrote it, or a newer one"),
    ("tape-damaged", "mend the line or entry that is named, or restore the tape from a backup"),
    ("tape-elsewhere", "set tape_store to what it was when the tape was written (`capstan config show`)"),
    ("tape-exists", "give it another name"),
    ("tape-file-unreadable", "check the path; a tape file has one JSON object per line"),
    ("tape-fork-closed", "a fork that was merged or discarded can only be read; fork the tape again"),
    ("tape-id-too-great", "number the entries of the file anew, from 1 on, and import it again"),
    ("tape-name-invalid", "use letters, digits, `_`, `-` and `:`; give one with --name"),
    ("tape-out-of-order", "the ids of a tape must increase; mend the file and import it again"),
    ("tape-open-call", "merge the fork when the turn that is running on its tape has ended"),
    (
        "tape-unknown",
        "`capstan tape list` shows the tapes there are; a session id or a path to a .jsonl file works too",
    ),
    ("usage", "`capstan --help` shows how it is called"),
    ("workspace-missing", "give an existing directory with --workspace, or leave it out for the current one"),
];

/// What to do about an error of this code; empty for a code that is not in the table.
pub(crate) fn hint_for_code(code: &str) -> &'static str {
    ERROR_HINTS.iter().find(|(known, _)| *known == code).map_or("", |(_, hint)| hint)
}

impl CommandError {
    /// A failure with a code that is in the table.
    pub(crate) fn new(code: &str, message: impl Into<String>, exit: CliExitCode) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint: hint_for_code(code).to_owned(), exit }
    }

    /// The same with advice that fits this case better than what the code says to all.
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        Self { hint: hint.to_owned(), ..self }
    }

    pub(crate) fn workspace_error(path: &Path, reason: &str) -> Self {
        Self::new(
            "workspace-missing",
            format!("the workspace {} cannot be used: {reason}", path.display()),
            CliExitCode::Usage,
        )
    }

    pub(crate) fn home_error(path: &Path, error: &std::io::Error) -> Self {
        let message = format!("cannot make {}: {error}", path.display());
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Self::new("disk-full", message, CliExitCode::Store)
            }
            _ => Self::new("home-unusable", message, CliExitCode::Config),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "\nhint: {}", self.hint) }
    }
}

impl std::error::Error for CommandError {}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        let code = match &error {
            ConfigError::Untrusted { .. } | ConfigError::LimitRaised { .. } => "config-untrusted",
            ConfigError::NoHome | ConfigError::HomeNotDirectory { .. } => "home-unusable",
            ConfigError::Unreadable { .. }
            | ConfigError::UnusableFile { .. }
            | ConfigError::Malformed { .. }
            | ConfigError::UnknownKey { .. }
            | ConfigError::Invalid { .. } => "config-invalid",
        };
        let failure = Self::new(code, error.to_string(), CliExitCode::Config);
        match &error {
            ConfigError::Unreadable { .. } => {
                failure.with_hint("let this user read it and the folder it is in, or use another workspace or home")
            }
            ConfigError::UnusableFile { .. } => failure.with_hint(
                "put a regular file of at most 1 MiB there, or remove it; a link of a workspace must not lead out of it",
            ),
            ConfigError::Malformed { path, .. } | ConfigError::UnknownKey { path, .. } if is_workspace_file(path) => {
                failure.with_hint("the file is the workspace's, which an agent can write too: mend or remove it")
            }
            _ => failure,
        }
    }
}

/// Whether a file of settings is one of a workspace.
fn is_workspace_file(path: &str) -> bool {
    Path::new(path).file_name().is_some_and(|name| name == "capstan.toml" || name == ".env")
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::TapeNotFound { .. }
            | StoreError::TapeExists { .. }
            | StoreError::OutOfOrder { .. }
            | StoreError::ForkClosed { .. }
            | StoreError::OpenToolCall { .. }
            | StoreError::NestedTooDeep { .. } => CliExitCode::Usage,
            StoreError::Corrupt { .. }
            | StoreError::SchemaTooNew { .. }
            | StoreError::StoredElsewhere { .. }
            | StoreError::Fenced { .. }
            | StoreError::HeadMoved { .. }
            | StoreError::NamespaceChanged { .. }
            | StoreError::DuplicateEvent { .. }
            | StoreError::EventNotInFlight { .. }
            | StoreError::OutboxConflict { .. }
            | StoreError::DiskFull { .. }
            | StoreError::ReadOnly { .. }
            | StoreError::Busy { .. }
            | StoreError::SyncFailed { .. }
            | StoreError::Io { .. } => CliExitCode::Store,
        };
        Self::new(error.code(), error.to_string(), exit)
    }
}

impl From<HostError> for CommandError {
    fn from(error: HostError) -> Self {
        let exit = match error {
            HostError::Store(error) => return error.into(),
            HostError::UnrecordedEffects { error: ref store, .. } => Self::from(store.clone()).exit,
            HostError::MessageTooLarge { .. }
            | HostError::UnknownChannel { .. }
            | HostError::EventIdConflict { .. }
            | HostError::SessionReserved { .. } => CliExitCode::Usage,
            HostError::Hook(_) | HostError::QueueFull | HostError::SessionBusy | HostError::Stopping => {
                CliExitCode::Failed
            }
            HostError::ProcessLock { .. } => CliExitCode::Store,
        };
        Self::new(error.code(), error.to_string(), exit)
    }
}

impl From<TurnError> for CommandError {
    fn from(error: TurnError) -> Self {
        let message = error.to_string();
        match error {
            TurnError::Cancelled => Self::new("run-cancelled", message, CliExitCode::Cancelled),
            TurnError::Store(error) => error.into(),
            TurnError::Run(failure) => {
                let code = failure.code.as_deref().unwrap_or("run-failed");
                let is_of_store = code == "disk-full" || code.starts_with("store-");
                Self::new(code, failure.message, if is_of_store { CliExitCode::Store } else { CliExitCode::Failed })
            }
            TurnError::Hook(_)
            | TurnError::Busy
            | TurnError::QueueFull
            | TurnError::Timeout
            | TurnError::UnknownRunner(_) => Self::new(error.code(), message, CliExitCode::Failed),
        }
    }
}
