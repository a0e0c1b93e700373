//! List of the methods of the run API.

/// Expands a macro with the list of the run API's methods, by group.
///
/// A group has a name in `RunApi`, the type of its facade, and methods. A method has:
///
/// - a doc comment, whose first paragraph is the last column of the table in `docs/run-api.md`;
/// - its name on the wire, and the grant that it requires, as text for that table; the permission that is checked is
///   `MethodHandler::permission` of its handler in `capstan_runs`;
/// - `call` or `stream`, its variant name, its request, and its response or stream item;
/// - its signature in the facade, and the request built from the arguments.
///
/// The callback macro must be in scope, and so must the types in the list: `capstan_protocol::run_api::*` and those of
/// the crate's root.
#[macro_export]
macro_rules! run_api_methods {
    ($callback:ident) => {
        $callback! {
            /// Models.
            models: ModelsApi {
                /// The response of a model, as a stream.
                ///
                /// The request is recorded before it is sent. Dropping the stream cancels the call.
                "models.stream" needs "`models`: `stream`, for that model",
                stream ModelsStream(ModelCall) -> ModelEvent,
                fn stream(call: ModelCall) = call;

                /// The complete response of a model.
                "models.invoke" needs "`models`: `invoke`, for that model",
                call ModelsInvoke(ModelCall) -> ModelOutput,
                fn invoke(call: ModelCall) = call;

                /// Number of tokens of a request; `estimated` marks an estimate from the length of the text, which is
                /// currently the case for every model.
                "models.count_tokens" needs "`models`: `count_tokens`, for that model",
                call ModelsCountTokens(ModelCall) -> TokenCount,
                fn count_tokens(call: ModelCall) = call;

                /// Texts ranked by relevance to a query, best first. Providers that are compatible with OpenAI are asked
                /// at `/rerank` of their base URL; `not_found` for all others.
                "models.rerank" needs "`models`: `rerank`, for that model",
                call ModelsRerank(RerankCall) -> Vec<RerankScore>,
                fn rerank(call: RerankCall) = call;

                /// The models that the host is configured with and the grant covers with `stream`, the default one first,
                /// and the names of the providers. Providers may accept further models.
                "models.list" needs "`models`: `stream`, for at least one model",
                call ModelsList(EmptyCall) -> ModelDirectory,
                fn list() = EmptyCall {};
            }

            /// Tools.
            tools: ToolsApi {
                /// The tools that the grant covers with `tools`: `detail`.
                "tools.list" needs "nothing",
                call ToolsList(EmptyCall) -> Arc<[ToolSpec]>,
                fn list() = EmptyCall {};

                /// Description and schema of a tool, by its name (`fs.read`) or its name for models (`fs_read`).
                "tools.detail" needs "`tools`: `detail`, for that tool",
                call ToolsDetail(ToolDetailCall) -> ToolSpec,
                fn detail(name: &str) = ToolDetailCall { name: name.to_owned() };

                /// Outputs of the tool calls of one step, in the same order. A call that fails, or that the grant does
                /// not cover, has an error output with a text for the model.
                ///
                /// All calls are recorded before the first one is made, each result when it is available. Steps are
                /// sequential: a second step waits for the first.
                "tools.call" needs "`tools`: `call`",
                call ToolsCall(ToolStepCall) -> Vec<ToolOutput>,
                fn call(calls: Vec<ToolCall>) = ToolStepCall { calls };

                /// Output of the comma command that the run serves, which is recorded as a `command` event. The line is not
                /// added to the conversation. `raw` must be the line of the event.
                "tools.command" needs "`tools`: `call`, for that tool",
                call ToolsCommand(CommandCall) -> ToolOutput,
                fn command(call: CommandCall) = call;

                /// Records a `command` event for the comma command that the run serves, if it cannot be run, with its line
                /// and the reason. `raw` must be the line of the event.
                "tools.refuse_command" needs "`tape`: `write`",
                call ToolsRefuseCommand(CommandRefusalCall) -> (),
                fn refuse_command(raw: &str, reason: &str) =
                    CommandRefusalCall { raw: raw.to_owned(), reason: reason.to_owned() };
            }

            /// The session's tape.
            tape: TapeApi {
                /// The messages that a model would read now, including the message that this run serves.
                "tape.view" needs "`tape`: `read`",
                call TapeView(EmptyCall) -> Vec<ChatMessage>,
                fn view() = EmptyCall {};

                /// Writes an anchor. Inside a step, the anchor takes effect after the step's results are recorded.
                "tape.handoff" needs "`tape`: `write`",
                call TapeHandoff(HandoffCall) -> (),
                fn handoff(name: &str, state: JsonObject) = HandoffCall { name: name.to_owned(), state };

                /// Writes an event that no view shows. Names of the host's own events, and names with the same first part
                /// (`action.` …), are rejected.
                "tape.note" needs "`tape`: `write`",
                call TapeNote(NoteCall) -> (),
                fn note(name: &str, data: Value) = NoteCall { name: name.to_owned(), data };

                /// Writes a message with the role `user`, such as the prompt of a further step.
                "tape.say" needs "`tape`: `write`",
                call TapeSay(SayCall) -> (),
                fn say(content: Content) = SayCall { content };

                /// Starts a new generation of the tape; `archive` marks the old one as archived. For commands only,
                /// while no other message of the session is being processed.
                "tape.reset" needs "`tape`: `write`",
                call TapeReset(ResetCall) -> (),
                fn reset(archive: bool) = ResetCall { archive };

                /// Creates a fork of the tape at an entry. A person continues it with `capstan run --tape`, and closes it
                /// with `capstan tape merge` or `capstan tape discard`. At most 100 for a run.
                "tape.fork" needs "`tape`: `write`",
                call TapeFork(ForkCall) -> ForkSummary,
                fn fork(at: Option<EntryId>) = ForkCall { at };

                /// Name, head, number of anchors, the last anchor and the number of entries since it.
                "tape.info" needs "`tape`: `read`",
                call TapeInfo(EmptyCall) -> TapeSummary,
                fn info() = EmptyCall {};

                /// Anchors, newest first, at most 200.
                "tape.anchors" needs "`tape`: `read`",
                call TapeAnchors(AnchorsCall) -> Vec<TapeEntry>,
                fn anchors(limit: usize) = AnchorsCall { limit };

                /// Messages, tool calls, tool results and anchors that contain every word of a text, typos tolerated;
                /// newest first, at most 200.
                "tape.search" needs "`tape`: `read`",
                call TapeSearch(TapeSearchCall) -> Vec<TapeEntry>,
                fn search(text: &str, limit: usize) = TapeSearchCall { text: text.to_owned(), limit };
            }

            /// The host's prompts.
            prompt: PromptApi {
                /// The system prompt, from the `system_prompt` hooks.
                "prompt.system" needs "`prompt`",
                call PromptSystem(EmptyCall) -> String,
                fn system() = EmptyCall {};

                /// The prompt of a further step, from the `continue_prompt` hooks; usually none.
                "prompt.continuation" needs "`prompt`",
                call PromptContinuation(ContinuationCall) -> Option<Content>,
                fn continuation(step: u32) = ContinuationCall { step };
            }

            /// Messages that arrive during the run and are meant for it.
            steering: SteeringApi {
                /// Prompts of the messages offered to this run since the last call, in order; each is written to the tape,
                /// and its event is folded into this run. Ends before the first message with another binding or origin,
                /// which gets a turn of its own.
                ///
                /// Call it between two steps.
                "steering.take" needs "`steering`",
                call SteeringTake(EmptyCall) -> Vec<Content>,
                fn take() = EmptyCall {};

                /// Like `steering.take`, with the event of each message. A message is returned once, by either method.
                "steering.pull" needs "`steering`",
                call SteeringPull(EmptyCall) -> Vec<SteeredMessage>,
                fn pull() = EmptyCall {};
            }

            /// Settings of the session, across its turns.
            session: SessionApi {
                /// The model chosen for the session, if any.
                "session.model" needs "`models`: `stream`, for at least one model",
                call SessionModel(EmptyCall) -> Option<ModelId>,
                fn model() = EmptyCall {};

                /// Chooses the session's model, from the next call on; `null` selects the host's default. For commands
                /// only.
                "session.choose_model" needs "`models`: `stream`, for that model",
                call SessionChooseModel(ModelChoiceCall) -> (),
                fn choose_model(model: Option<ModelId>) = ModelChoiceCall { model };
            }

            /// Content that is too large for the conversation: the artifacts of the session's tape, and for a fork
            /// those of its parent up to the branch point.
            artifacts: ArtifactsApi {
                /// Description of an artifact.
                "artifacts.describe" needs "`artifacts`: `metadata`",
                call ArtifactsDescribe(ArtifactDescribeCall) -> Artifact,
                fn describe(id: &ArtifactId) = ArtifactDescribeCall { id: id.clone() };

                /// A range of an artifact's content.
                "artifacts.read" needs "`artifacts`: `read`",
                call ArtifactsRead(ArtifactReadCall) -> ArtifactPart,
                fn read(id: &ArtifactId, offset: u64, limit: u64) = ArtifactReadCall { id: id.clone(), offset, limit };

                /// Stores content as a new artifact, durable when the call returns.
                "artifacts.create" needs "`artifacts`: `create`",
                call ArtifactsCreate(NewArtifact) -> Artifact,
                fn create(artifact: NewArtifact) = artifact;

                /// Artifacts on the tape of the session, oldest first, page by page.
                "artifacts.list" needs "`artifacts`: `metadata`",
                call ArtifactsList(ArtifactListCall) -> CursorPage<Artifact>,
                fn list(cursor: Option<&str>, limit: usize) =
                    ArtifactListCall { cursor: cursor.map(str::to_owned), limit };
            }

            /// Child runs.
            runs: RunsApi {
                /// Runs the same runner on a fork of the tape and waits for its end. The child uses this run's budget,
                /// gets at most this run's grant, and is cancelled when this run ends. With `merge_back`, the entries of a
                /// child that completed join the tape of this run under new ids, after the results of the open step; its
                /// anchors stay on the fork, so that the context of this run does not move.
                "runs.child" needs "`children`",
                call RunsChild(ChildRunCall) -> ChildRunOutcome,
                fn child(call: ChildRunCall) = call;

                /// A run of the session in the ledger: status, times, usage.
                "runs.get" needs "`events`: `get`",
                call RunsGet(RunGetCall) -> RunSummary,
                fn get(run_id: &RunId) = RunGetCall { run_id: run_id.clone() };

                /// Runs of the session, newest first, page by page. A page may have fewer runs than the limit and still
                /// have a next one, because the ledger is searched in parts.
                "runs.list" needs "`events`: `page`",
                call RunsList(RunListCall) -> CursorPage<RunSummary>,
                fn list(cursor: Option<&str>, limit: usize) = RunListCall { cursor: cursor.map(str::to_owned), limit };

                /// Activity of a run of the session, as items of the event log, oldest first, page by page. The limit counts
                /// tape entries, so a page may have fewer items.
                "runs.events" needs "`events`: `page`",
                call RunsEvents(RunEventsCall) -> CursorPage<EventLogItem>,
                fn events(run_id: &RunId, cursor: Option<&str>, limit: usize) =
                    RunEventsCall { run_id: run_id.clone(), cursor: cursor.map(str::to_owned), limit };

                /// Cancels a child run of this run, at any depth. The response is false if it has ended.
                "runs.cancel" needs "`children`",
                call RunsCancel(RunCancelCall) -> bool,
                fn cancel(run_id: &RunId) = RunCancelCall { run_id: run_id.clone() };
            }

            /// Values by key. Every runner has its own values in each scope.
            state: StateApi {
                /// The value under a key.
                "state.get" needs "`state`: that scope",
                call StateGet(StateKeyCall) -> Option<Value>,
                fn get(scope: StateScope, key: &str) = StateKeyCall { scope, key: key.to_owned() };

                /// Stores a value under a key, within the limits of the binding, durable when the call returns; `null`
                /// removes the key.
                "state.set" needs "`state`: that scope",
                call StateSet(StateSetCall) -> (),
                fn set(scope: StateScope, key: &str, value: Value) = StateSetCall { scope, key: key.to_owned(), value };

                /// Keys that begin with a prefix (an empty one: all keys) and their values, in the order of the keys, page
                /// by page.
                "state.list" needs "`state`: that scope",
                call StateList(StateListCall) -> CursorPage<StateEntry>,
                fn list(scope: StateScope, prefix: &str, cursor: Option<&str>, limit: usize) =
                    StateListCall { scope, cursor: cursor.map(str::to_owned), limit, prefix: prefix.to_owned() };

                /// Removes a key; the response is true if it existed.
                "state.delete" needs "`state`: that scope",
                call StateDelete(StateKeyCall) -> bool,
                fn delete(scope: StateScope, key: &str) = StateKeyCall { scope, key: key.to_owned() };
            }

            /// Content by name.
            storage: StorageApi {
                /// Stores content of up to 16 MiB under a name, replacing previous content, durable when the call
                /// returns. An area has at most 1000 names and 256 MiB.
                "storage.put" needs "`storage`: that area",
                call StoragePut(StoragePutCall) -> StorageEntry,
                fn put(area: StorageArea, name: &str, content: Vec<u8>) =
                    StoragePutCall { area, name: name.to_owned(), content };

                /// The content under a name.
                "storage.get" needs "`storage`: that area",
                call StorageGet(StorageNameCall) -> StoredContent,
                fn get(area: StorageArea, name: &str) = StorageNameCall { area, name: name.to_owned() };

                /// Names and sizes in the order of the names, page by page.
                "storage.list" needs "`storage`: that area",
                call StorageList(StorageListCall) -> CursorPage<StorageEntry>,
                fn list(area: StorageArea, cursor: Option<&str>, limit: usize) =
                    StorageListCall { area, cursor: cursor.map(str::to_owned), limit };

                /// Removes a name; the response is true if it existed.
                "storage.delete" needs "`storage`: that area",
                call StorageDelete(StorageNameCall) -> bool,
                fn delete(area: StorageArea, name: &str) = StorageNameCall { area, name: name.to_owned() };
            }

            /// The dialogue of a session, without tool calls and notes.
            history: HistoryApi {
                /// Messages of the dialogue, newest or oldest first, page by page.
                "history.page" needs "`history`: `page`",
                call HistoryPage(PageRequest) -> CursorPage<HistoryMessage>,
                fn page(call: PageRequest) = call;

                /// Messages of the dialogue that contain a text, newest first.
                "history.search" needs "`history`: `search`",
                call HistorySearch(HistorySearchCall) -> Vec<HistoryMessage>,
                fn search(session: Option<SessionId>, text: &str, limit: usize) =
                    HistorySearchCall { session, text: text.to_owned(), limit };
            }

            /// The event log.
            events: EventsApi {
                /// An event with the same source as the run's event, and its outcome.
                "events.get" needs "`events`: `get`",
                call EventsGet(EventGetCall) -> Box<EventRecord>,
                fn get(id: &EventId) = EventGetCall { id: id.clone() };

                /// A range of the raw payload of such an event, as its platform sent it; `not_found` if the channel passed
                /// none on.
                "events.raw" needs "`events`: `get`",
                call EventsRaw(RawPayloadCall) -> RawPayloadPart,
                fn raw(id: &EventId, offset: u64, limit: u64) = RawPayloadCall { id: id.clone(), offset, limit };

                /// Items of the event log, page by page. The limit counts tape entries: a page may have fewer items, or
                /// more, because outcomes and deliveries are not on the tape.
                "events.page" needs "`events`: `page`",
                call EventsPage(PageRequest) -> CursorPage<EventLogItem>,
                fn page(call: PageRequest) = call;
            }

            /// Knowledge bases.
            knowledge: KnowledgeApi {
                /// The knowledge bases that the grant covers with `list`.
                "knowledge.list" needs "`knowledge_bases`: `list`",
                call KnowledgeList(EmptyCall) -> Vec<KnowledgeBase>,
                fn list() = EmptyCall {};

                /// Passages with source, line and score, best first, page by page; `left_out` describes the parts
                /// that were not searched. `sources` limits the search to some sources of the base, if it can do that.
                "knowledge.retrieve" needs "`knowledge_bases`: `retrieve`, for that one",
                call KnowledgeRetrieve(RetrieveCall) -> RetrievedPage,
                fn retrieve(call: RetrieveCall) = call;
            }

            /// The platform that the event came from.
            platform: PlatformApi {
                /// Performs an action on the platform; the response is the platform's.
                "platform.call" needs "`platform_api`: that action",
                call PlatformCall(ActionRequest) -> Value,
                fn call(request: ActionRequest) = request;

                /// The actions that the channel of the event offers and the grant covers, by name.
                "platform.list" needs "nothing",
                call PlatformList(EmptyCall) -> Vec<ActionSpec>,
                fn list() = EmptyCall {};
            }
        }
    };
}
