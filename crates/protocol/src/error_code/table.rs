//! The error codes: one entry for each.
//!
//! The comment of an entry is its meaning, the first sentence of its page. A new code is one entry here, the error
//! variant that carries it (`#[code(NAME)]`) or the place that reports it, and a page in `docs/errors`.

use super::{CodeEntry, CodeOwner, ExitClass};

macro_rules! error_codes {
    ($(
        #[doc = $meaning:literal]
        $name:ident { id: $id:literal, exit: $exit:ident, owner: $owner:ident, hint: $hint:literal }
    )*) => {
        /// Stable code of an error: its id, its hint, the exit class of a command that fails with it, and its page.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $name,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the ids.
            pub const ALL_CODES: &[Self] = &[$(Self::$name),*];

            /// The code with this id.
            pub fn from_id(id: &str) -> Option<Self> {
                match id {
                    $($id => Some(Self::$name),)*
                    _ => None,
                }
            }

            pub(super) const fn entry(self) -> CodeEntry {
                match self {
                    $(Self::$name => CodeEntry {
                        id: $id,
                        meaning: $meaning,
                        hint: $hint,
                        exit: ExitClass::$exit,
                        owner: CodeOwner::$owner,
                        page: concat!("docs/errors/", $id, ".md"),
                    },)*
                }
            }
        }
    };
}

error_codes! {
    /// A run requested a platform action, and its outcome is unknown.
    ActionUnknown { id: "action-unknown", exit: Failed, owner: Shared,
        hint: "check on the platform whether the action was performed before requesting it again" }
    /// No stored artifact has the given id, or its content cannot be removed.
    ArtifactUnknown { id: "artifact-unknown", exit: Usage, owner: Shared,
        hint: "run `capstan artifacts list` to see the artifacts" }
    /// An attachment of a remote event refers to an address that remote sources may not name.
    AttachmentRefused { id: "attachment-refused", exit: Usage, owner: Shared,
        hint: "send the content as a data: URL, or a public http: or https: URL" }
    /// A backup failed its verification.
    BackupDamaged { id: "backup-damaged", exit: Store, owner: Shared,
        hint: "to back up, run `capstan doctor` to list the damage; to restore, use another backup" }
    /// A file or folder already exists at the path of the backup.
    BackupExists { id: "backup-exists", exit: Usage, owner: Shared,
        hint: "choose another path, or pass --force to replace the existing files" }
    /// A binding matches some events with the same specificity as another enabled binding.
    BindingAmbiguous { id: "binding-ambiguous", exit: Usage, owner: Shared,
        hint: "narrow the scope, event types or filters of one of the two bindings, or disable the other one first" }
    /// A binding is malformed, or its runner does not accept its configuration.
    BindingInvalid { id: "binding-invalid", exit: Usage, owner: Shared,
        hint: "correct the field named in the message; docs/bindings.md lists the fields" }
    /// No binding has the given id.
    BindingUnknown { id: "binding-unknown", exit: Usage, owner: Shared,
        hint: "run `capstan bindings list` to see the bindings" }
    /// A stored binding cannot be read by this version.
    BindingUnreadable { id: "binding-unreadable", exit: Usage, owner: Shared,
        hint: "save it again with `capstan bindings set`, or remove it with `capstan bindings remove`" }
    /// A run cannot reply on the channel given with `--channel`.
    ChannelElsewhere { id: "channel-elsewhere", exit: Usage, owner: Shared,
        hint: "omit --channel to get the reply here, or serve the channel: `capstan serve --channel stdio`" }
    /// A channel stopped because of an error.
    ChannelFailed { id: "channel-failed", exit: Failed, owner: Shared,
        hint: "fix the problem reported by the channel; accepted events are stored and resumed at the next start" }
    /// No channel to listen on was selected.
    ChannelMissing { id: "channel-missing", exit: Usage, owner: Shared,
        hint: "name the channels to listen on: `capstan serve --channel stdio`; `--channel all` selects all of them" }
    /// No channel has the given name.
    ChannelUnknown { id: "channel-unknown", exit: Usage, owner: Shared,
        hint: "use one of the channels listed in the message; `capstan run` without --channel uses the terminal" }
    /// The binding does not grant the tool that a comma command calls.
    CommandDenied { id: "command-denied", exit: Failed, owner: Shared,
        hint: "add the tool to the resource_policy of the binding; `capstan bindings list` shows the bindings" }
    /// A comma command ran and failed.
    CommandFailed { id: "command-failed", exit: Failed, owner: Shared,
        hint: "the output of the command says why; `capstan tape show SESSION` shows its record" }
    /// A comma command was called with invalid arguments.
    CommandInvalid { id: "command-invalid", exit: Failed, owner: Shared,
        hint: "`,help` shows the parameters of each command; quote arguments that contain spaces" }
    /// No comma command has this name, and unknown names may not run as shell commands here.
    CommandUnknown { id: "command-unknown", exit: Failed, owner: Shared,
        hint: "`,help` lists the commands" }
    /// A configuration file or variable is invalid.
    ConfigInvalid { id: "config-invalid", exit: Config, owner: Shared,
        hint: "correct or remove the setting named in the message; `capstan config show` prints all settings and origins" }
    /// The workspace configures a setting that only the user may set.
    ConfigUntrusted { id: "config-untrusted", exit: Config, owner: Shared,
        hint: "set it in your own config.toml or environment, or trust this workspace with `capstan trust`" }
    /// A write failed because the disk is full or a quota or file size limit was reached.
    DiskFull { id: "disk-full", exit: Store, owner: Store,
        hint: "free disk space and try again; acknowledged data is not lost" }
    /// A document is not a valid event envelope.
    EnvelopeInvalid { id: "envelope-invalid", exit: Usage, owner: Shared,
        hint: "an envelope has at least event_type, source and input; docs/bindings.md lists the fields" }
    /// The event id was already used for an event of another session or workspace.
    EventIdTaken { id: "event-id-taken", exit: Usage, owner: Shared,
        hint: "use a unique id for every event: a repeated id means a repeated event, whatever its session" }
    /// All channels have ended, and some events still have no outcome.
    EventsLeft { id: "events-left", exit: Failed, owner: Shared,
        hint: "run `capstan doctor` to find the cause; the next start resumes the events" }
    /// The home directory, or a file in it, belongs to another user or can be written by others.
    HomeInsecure { id: "home-insecure", exit: Config, owner: Shared,
        hint: "run `chmod go-w` on it, or `capstan doctor --repair`" }
    /// The home directory cannot be used.
    HomeUnusable { id: "home-unusable", exit: Config, owner: Shared,
        hint: "set CAPSTAN_HOME to a writable directory" }
    /// A hook of a plugin returned an error, panicked or timed out.
    HookFailed { id: "hook-failed", exit: Failed, owner: Host,
        hint: "run `capstan hooks` to see which plugin implements the hook, and set CAPSTAN_LOG=debug for details" }
    /// The host stopped before the message was processed.
    HostStopping { id: "host-stopping", exit: Failed, owner: Shared,
        hint: "no action needed: the message is stored and processed at the next start" }
    /// A message or an input file cannot be used.
    InputInvalid { id: "input-invalid", exit: Usage, owner: Shared,
        hint: "pass a non-empty message, or - to read UTF-8 text from the standard input" }
    /// A defect of the host or of a plugin ended the acceptance of an event.
    IntakeFailed { id: "intake-failed", exit: Failed, owner: Host,
        hint: "submit the same event id again to get its outcome, and report the panic on standard error as a bug" }
    /// An API key stored for one server would be sent to another one.
    KeyElsewhere { id: "key-elsewhere", exit: Config, owner: Shared,
        hint: "pass the key for the new address with --api-key-stdin, or delete the stored key; nothing was written" }
    /// A field of a line has an invalid value.
    LineFieldInvalid { id: "line-field-invalid", exit: Continue, owner: Shared,
        hint: "correct the field named in the message and send the line again" }
    /// A line lacks a required field.
    LineFieldMissing { id: "line-field-missing", exit: Continue, owner: Shared,
        hint: "a line has at least the fields `session` and `text`" }
    /// A line has an unknown field.
    LineFieldUnknown { id: "line-field-unknown", exit: Continue, owner: Shared,
        hint: "correct or remove the field; docs/stdio.md lists the fields" }
    /// A line is not valid JSON.
    LineNotJson { id: "line-not-json", exit: Continue, owner: Shared,
        hint: "write one complete JSON object per line, and escape line breaks in strings" }
    /// A line is valid JSON but not an object.
    LineNotObject { id: "line-not-object", exit: Continue, owner: Shared,
        hint: "write a JSON object, for example {\"session\": \"s\", \"text\": \"hello\"}" }
    /// A line is not valid UTF-8.
    LineNotUtf8 { id: "line-not-utf8", exit: Continue, owner: Shared,
        hint: "encode lines as UTF-8" }
    /// The text of a line is empty.
    LineTextEmpty { id: "line-text-empty", exit: Continue, owner: Shared,
        hint: "pass a text that is not blank" }
    /// A line is longer than the limit.
    LineTooLong { id: "line-too-long", exit: Continue, owner: Shared,
        hint: "shorten the text, put it into a file of the workspace, or raise max_message_bytes" }
    /// The run reached its token limit before it finished.
    MaxRunTokens { id: "max-run-tokens", exit: Failed, owner: Shared,
        hint: "raise max_run_tokens, or request a smaller task" }
    /// The run reached its step limit before it finished.
    MaxSteps { id: "max-steps", exit: Failed, owner: Shared,
        hint: "raise max_steps, or request a smaller task" }
    /// A message is larger than the limit.
    MessageTooLarge { id: "message-too-large", exit: Usage, owner: Shared,
        hint: "shorten the message, put it into a file of the workspace, or raise max_message_bytes" }
    /// The response of the model is incomplete or unusable.
    ModelBroken { id: "model-broken", exit: Failed, owner: Shared,
        hint: "try again; if the error persists, check that CAPSTAN_API_BASE is an endpoint of the model's provider" }
    /// The request exceeds the context window of the model, even after a handoff.
    ModelContextOverflow { id: "model-context-overflow", exit: Failed, owner: Shared,
        hint: "shorten the message, have tools return less at once, or use a model with a larger context window" }
    /// Every key of every model that may answer is cooling down after a refusal.
    ModelExhausted { id: "model-exhausted", exit: Failed, owner: Shared,
        hint: "try again at the time in the message, or add keys (api_keys) or fallback_models; a restart ends cool-downs" }
    /// The provider rejected the request because of a rate limit or quota.
    ModelRateLimited { id: "model-rate-limited", exit: Failed, owner: Shared,
        hint: "wait and try again, or check the quota of the account; CAPSTAN_FALLBACK_MODELS names fallback models" }
    /// The provider rejected the request, or its content filter stopped the response.
    ModelRejected { id: "model-rejected", exit: Failed, owner: Shared,
        hint: "check the model, its options and the provider's message; rephrase what a content filter stopped" }
    /// The provider rejected the API key, or no key is set.
    ModelUnauthorized { id: "model-unauthorized", exit: Failed, owner: Shared,
        hint: "set a key that the provider accepts; `capstan config show` prints the origin of the current one" }
    /// The provider or the model does not exist.
    ModelUnknown { id: "model-unknown", exit: Failed, owner: Shared,
        hint: "check that CAPSTAN_MODEL names a known provider and one of its models, and check CAPSTAN_API_BASE; see docs/models.md" }
    /// The provider cannot be reached, or another server answered at its address.
    ModelUnreachable { id: "model-unreachable", exit: Failed, owner: Shared,
        hint: "check the network and CAPSTAN_API_BASE; CAPSTAN_MODEL=demo: works without either" }
    /// Data was rejected because its lists and objects are nested too deeply.
    NestedTooDeep { id: "nested-too-deep", exit: Usage, owner: Shared,
        hint: "reduce the nesting, or pass the nested part as text" }
    /// No held or undelivered message has the given id, or it cannot be sent again.
    OutboxUnknown { id: "outbox-unknown", exit: Usage, owner: Shared,
        hint: "run `capstan outbox list` to see the held and undelivered messages" }
    /// The standard output is closed, so replies cannot be written.
    OutputClosed { id: "output-closed", exit: Usage, owner: Shared,
        hint: "keep the standard output open for the reader of the replies; use `>/dev/null` to discard them" }
    /// The output of a command could not be written to the standard output.
    OutputFailed { id: "output-failed", exit: Failed, owner: Shared,
        hint: "free space at the target of the standard output, or redirect it; the command itself is complete" }
    /// A command of a plugin failed.
    PluginCommandFailed { id: "plugin-command-failed", exit: Failed, owner: Shared,
        hint: "the plugin's own message is above" }
    /// A plugin process failed, or does not implement what its manifest declares.
    PluginFailed { id: "plugin-failed", exit: Failed, owner: Shared,
        hint: "run `capstan plugin doctor` to see the reason; the host starts the plugin again by itself" }
    /// The manifest of a plugin cannot be used.
    PluginInvalid { id: "plugin-invalid", exit: Usage, owner: Shared,
        hint: "correct the key named in the message; docs/plugin-protocol.md lists the keys" }
    /// No plugin with the given name is installed.
    PluginUnknown { id: "plugin-unknown", exit: Usage, owner: Shared,
        hint: "run `capstan plugin list` to see the installed plugins" }
    /// `capstan doctor` found problems.
    ProblemsFound { id: "problems-found", exit: Failed, owner: Shared,
        hint: "follow the suggestion printed with each failed check" }
    /// A document is not a valid LangBot query, or requests something that the host does not support.
    QueryInvalid { id: "query-invalid", exit: Usage, owner: Shared,
        hint: "correct the field named in the message; docs/langbot.md lists the fields and their effects" }
    /// The queue of the session is full.
    QueueFull { id: "queue-full", exit: Failed, owner: Host,
        hint: "send the message again when the session has fewer queued messages; it was not stored" }
    /// The turn succeeded, but its reply could not be delivered.
    ReplyUndelivered { id: "reply-undelivered", exit: Failed, owner: Shared,
        hint: "the reply is recorded on the tape: `capstan tape show SESSION`" }
    /// The run was cancelled.
    RunCancelled { id: "run-cancelled", exit: Cancelled, owner: Host,
        hint: "the work done so far is recorded: `capstan tape show SESSION`" }
    /// The run failed.
    RunFailed { id: "run-failed", exit: Failed, owner: Shared,
        hint: "the work done so far is recorded: `capstan tape show SESSION`" }
    /// The runner produced more results than a run may have.
    RunFlooded { id: "run-flooded", exit: Failed, owner: Shared,
        hint: "reduce the results of the runner, or raise the limit named in the message" }
    /// A cancelled run did not end within the wait time.
    RunStillRunning { id: "run-still-running", exit: Failed, owner: Shared,
        hint: "the request stays recorded; repeat it with a longer --wait, or end the process that executes the run" }
    /// The run exceeded its time limit.
    RunTimeout { id: "run-timeout", exit: Failed, owner: Host,
        hint: "raise run_timeout_seconds, or request a smaller task" }
    /// No run matches the given id, several runs match it, or the run has no such model call.
    RunUnknown { id: "run-unknown", exit: Usage, owner: Shared,
        hint: "run `capstan runs list` to see the runs" }
    /// The binding names a runner that no plugin provides.
    RunnerUnknown { id: "runner-unknown", exit: Failed, owner: Host,
        hint: "run `capstan runners list` to see the runners; a plugin may be missing in this binary" }
    /// Another process is using the session.
    SessionBusy { id: "session-busy", exit: Failed, owner: Host,
        hint: "wait for the other process, or use another session" }
    /// A new session would have the name of a fork.
    SessionIsFork { id: "session-is-fork", exit: Usage, owner: Host,
        hint: "continue the fork with `--tape NAME`, or with the session id `fork:NAME`; or use another session id" }
    /// The session `system` is reserved for the host.
    SessionReserved { id: "session-reserved", exit: Usage, owner: Shared,
        hint: "use another session id; `capstan tape show system` shows the entries of the reserved session" }
    /// A skill folder is invalid and is ignored.
    SkillInvalid { id: "skill-invalid", exit: Failed, owner: Shared,
        hint: "correct the SKILL.md named in the message; the skill `skill-creator` explains the format" }
    /// No skill has the given name.
    SkillUnknown { id: "skill-unknown", exit: Usage, owner: Shared,
        hint: "run `capstan skills list` to see the skills" }
    /// A state value, its key or its namespace is invalid.
    StateInvalid { id: "state-invalid", exit: Usage, owner: Shared,
        hint: "quote a text twice: '\"text\"'; docs/state.md describes namespaces, keys and values" }
    /// A state value would exceed the limits of the binding.
    StateTooLarge { id: "state-too-large", exit: Usage, owner: Shared,
        hint: "remove other keys first, or raise the limits in the state_policy of the binding" }
    /// No state namespace or key matches, or an abbreviated id is ambiguous.
    StateUnknown { id: "state-unknown", exit: Usage, owner: Shared,
        hint: "run `capstan state list` to see the namespaces, and `capstan state show NAMESPACE` to see the keys of one" }
    /// Another process kept the database locked for too long.
    StoreBusy { id: "store-busy", exit: Store, owner: Store,
        hint: "end the process that keeps the database locked (`fuser` names it), then try again" }
    /// A data file is damaged, or was not written by Capstan.
    StoreCorrupt { id: "store-corrupt", exit: Store, owner: Store,
        hint: "restore the file from a backup, or move it away to start with a new one; it was not modified" }
    /// The home directory has no database to back up.
    StoreEmpty { id: "store-empty", exit: Usage, owner: Store,
        hint: "check CAPSTAN_HOME if you expected data; `capstan config show` prints the home directory" }
    /// The disk, the file system or the database failed.
    StoreFailed { id: "store-failed", exit: Store, owner: Store,
        hint: "check the disk, its free space and the permissions of the home directory" }
    /// The database can be read but not written.
    StoreReadOnly { id: "store-read-only", exit: Store, owner: Store,
        hint: "make the home directory and its files writable for this user, or set CAPSTAN_HOME to another directory" }
    /// The files of the store were removed, replaced, cut or overwritten, or have lost their content.
    StoreReplaced { id: "store-replaced", exit: Store, owner: Store,
        hint: "stop all processes of the home directory, check which files are there, then start again; docs/operations.md describes restoring" }
    /// The part of Capstan that writes to the store has stopped.
    StoreStopped { id: "store-stopped", exit: Store, owner: Store,
        hint: "restart Capstan; events in progress are recovered. Please report the panic message as a defect" }
    /// The data was written by a newer version of Capstan.
    StoreTooNew { id: "store-too-new", exit: Store, owner: Store,
        hint: "use the version of Capstan that wrote the data, or a newer one; `capstan store rollback` returns to the copy kept before the migration, and `capstan tape export` and `capstan store backup` still read the newer data" }
    /// The disk failed to sync written data.
    StoreUnsynced { id: "store-unsynced", exit: Store, owner: Store,
        hint: "check the disk, then restart Capstan: it verifies the stored data before it writes again" }
    /// A tape is damaged.
    TapeDamaged { id: "tape-damaged", exit: Store, owner: Host,
        hint: "repair the line or entry named in the message, or restore the tape from a backup" }
    /// The entries of the tape are in another tape store than the configured one.
    TapeElsewhere { id: "tape-elsewhere", exit: Store, owner: Host,
        hint: "set tape_store to the value it had when the tape was written (`capstan config show`)" }
    /// A tape or session with this name already exists.
    TapeExists { id: "tape-exists", exit: Usage, owner: Host,
        hint: "choose another name" }
    /// A file cannot be read as a tape.
    TapeFileUnreadable { id: "tape-file-unreadable", exit: Usage, owner: Host,
        hint: "check the path; a tape file has one JSON object per line" }
    /// The fork was merged or discarded and is read-only.
    TapeForkClosed { id: "tape-fork-closed", exit: Usage, owner: Host,
        hint: "fork the tape again; a merged or discarded fork is read-only" }
    /// An entry of the file has an id above 9007199254740991.
    TapeIdTooGreat { id: "tape-id-too-great", exit: Usage, owner: Host,
        hint: "renumber the entries of the file, starting at 1, and import it again" }
    /// The name is not a valid tape name.
    TapeNameInvalid { id: "tape-name-invalid", exit: Usage, owner: Host,
        hint: "use letters, digits, `_`, `-` and `:`; pass another name with --name" }
    /// The fork cannot be merged while a tool call of the parent tape has no result.
    TapeOpenCall { id: "tape-open-call", exit: Usage, owner: Host,
        hint: "merge the fork when the current turn of the parent tape has ended" }
    /// The entry ids in the file do not increase.
    TapeOutOfOrder { id: "tape-out-of-order", exit: Usage, owner: Host,
        hint: "correct the ids of the file, which must increase, and import it again" }
    /// No tape matches the given name.
    TapeUnknown { id: "tape-unknown", exit: Usage, owner: Host,
        hint: "run `capstan tape list` to see the tapes; a session id or a path to a .jsonl file works too" }
    /// The command line is invalid.
    Usage { id: "usage", exit: Usage, owner: Shared,
        hint: "run `capstan --help` for usage" }
    /// The workspace directory cannot be used.
    WorkspaceMissing { id: "workspace-missing", exit: Usage, owner: Shared,
        hint: "pass an existing directory with --workspace, or omit it to use the current one" }
    /// An event names a workspace that this host does not serve.
    WorkspaceNotServed { id: "workspace-not-served", exit: Usage, owner: Shared,
        hint: "leave workspace_id out of the event, or send it to a host of that workspace with --workspace" }
}
