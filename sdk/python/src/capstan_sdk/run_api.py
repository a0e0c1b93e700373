"""The run API: typed calls from a run, or from a tool call, to the host.

Generated from crates/protocol/schema/capstan.json by scripts/generate_models.py: do not edit.
"""

from __future__ import annotations

from typing import Any, List, Optional, Protocol

from .codec import Bytes, JsonObject, JsonValue, decoder_of
from .model_stream import ModelStream
from .models import (
    ActionRequest,
    AllowList,
    AnchorsCall,
    Artifact,
    ArtifactDescribeCall,
    ArtifactId,
    ArtifactListCall,
    ArtifactPage,
    ArtifactPart,
    ArtifactReadCall,
    ChatMessage,
    ChildRunCall,
    ChildRunOutcome,
    CommandCall,
    CommandRefusalCall,
    Content,
    ContinuationCall,
    EntryId,
    EntryOrder,
    EventGetCall,
    EventId,
    EventLogItemPage,
    EventRecord,
    ForkCall,
    ForkSummary,
    HandoffCall,
    HistoryMessage,
    HistoryMessagePage,
    HistorySearchCall,
    KnowledgeBase,
    ModelCall,
    ModelChoiceCall,
    ModelDirectory,
    ModelId,
    ModelOptions,
    ModelOutput,
    NewArtifact,
    NoteCall,
    PageRequest,
    RawPayloadCall,
    RawPayloadPart,
    RerankCall,
    RerankScore,
    ResetCall,
    RetrieveCall,
    RetrievedPage,
    RunCancelCall,
    RunEventsCall,
    RunGetCall,
    RunId,
    RunListCall,
    RunSummary,
    RunSummaryPage,
    SayCall,
    SessionId,
    StateEntryPage,
    StateKeyCall,
    StateListCall,
    StateScope,
    StateSetCall,
    SteeredMessage,
    StorageArea,
    StorageEntry,
    StorageEntryPage,
    StorageListCall,
    StorageNameCall,
    StoragePutCall,
    StoredContent,
    TapeEntry,
    TapeSearchCall,
    TapeSummary,
    TokenCount,
    ToolCall,
    ToolDetailCall,
    ToolOutput,
    ToolSpec,
    ToolStepCall,
)


class RunCaller(Protocol):
    """Sends calls with the authority of one run or tool call."""

    async def call(self, method: str, params: JsonObject) -> JsonValue:
        """Response of a method."""

    def stream(self, method: str, params: JsonObject) -> ModelStream:
        """Response of a method that is a stream of model events."""


def _decode(annotation: Any, response: Any) -> Any:
    return decoder_of(annotation)(response, "result")


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


class ModelsApi:
    """Methods `models.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    def stream(
        self,
        *,
        model: Optional[ModelId] = None,
        system: str = "",
        messages: Optional[List[ChatMessage]] = None,
        tools: Optional[List[ToolSpec]] = None,
        options: Optional[ModelOptions] = None,
        fallbacks: Optional[List[ModelId]] = None,
    ) -> ModelStream:
        """The response of a model, as a stream. The request is recorded before it is sent. Dropping the stream
        cancels the call.

        model: Model to ask; absent: the host's default model.
        system: System prompt; empty for none.
        messages: The conversation.
        tools: Tools that the model may call.
        options: Options of the call; absent ones are those of the host.
        fallbacks: Models to try, in order, if the model fails before the first token of its reply; absent: those of
            the host.
        """
        return self._caller.stream("models.stream", ModelCall(model=model, system=system, options=options, fallbacks=fallbacks, **_given(messages=messages, tools=tools)).to_json())

    async def invoke(
        self,
        *,
        model: Optional[ModelId] = None,
        system: str = "",
        messages: Optional[List[ChatMessage]] = None,
        tools: Optional[List[ToolSpec]] = None,
        options: Optional[ModelOptions] = None,
        fallbacks: Optional[List[ModelId]] = None,
    ) -> ModelOutput:
        """The complete response of a model.

        model: Model to ask; absent: the host's default model.
        system: System prompt; empty for none.
        messages: The conversation.
        tools: Tools that the model may call.
        options: Options of the call; absent ones are those of the host.
        fallbacks: Models to try, in order, if the model fails before the first token of its reply; absent: those of
            the host.
        """
        response: ModelOutput = _decode(ModelOutput, await self._caller.call("models.invoke", ModelCall(model=model, system=system, options=options, fallbacks=fallbacks, **_given(messages=messages, tools=tools)).to_json()))
        return response

    async def count_tokens(
        self,
        *,
        model: Optional[ModelId] = None,
        system: str = "",
        messages: Optional[List[ChatMessage]] = None,
        tools: Optional[List[ToolSpec]] = None,
        options: Optional[ModelOptions] = None,
        fallbacks: Optional[List[ModelId]] = None,
    ) -> TokenCount:
        """Number of tokens of a request; `estimated` marks an estimate from the length of the text, which is
        currently the case for every model.

        model: Model to ask; absent: the host's default model.
        system: System prompt; empty for none.
        messages: The conversation.
        tools: Tools that the model may call.
        options: Options of the call; absent ones are those of the host.
        fallbacks: Models to try, in order, if the model fails before the first token of its reply; absent: those of
            the host.
        """
        response: TokenCount = _decode(TokenCount, await self._caller.call("models.count_tokens", ModelCall(model=model, system=system, options=options, fallbacks=fallbacks, **_given(messages=messages, tools=tools)).to_json()))
        return response

    async def rerank(
        self,
        query: str,
        *,
        model: Optional[ModelId] = None,
        documents: Optional[List[str]] = None,
    ) -> List[RerankScore]:
        """Texts ranked by relevance to a query, best first; `not_found` if the provider does not support it, which
        is true of all built-in ones.

        model: Model to ask; absent: the host's default model.
        query: The query.
        documents: The texts.
        """
        response: List[RerankScore] = _decode(List[RerankScore], await self._caller.call("models.rerank", RerankCall(model=model, query=query, **_given(documents=documents)).to_json()))
        return response

    async def list(self) -> ModelDirectory:
        """The models that the host is configured with and the grant covers with `stream`, the default one first,
        and the names of the providers. Providers may accept further models.
        """
        response: ModelDirectory = _decode(ModelDirectory, await self._caller.call("models.list", {}))
        return response


class ToolsApi:
    """Methods `tools.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def list(self) -> List[ToolSpec]:
        """The tools that the grant covers with `tools`: `detail`."""
        response: List[ToolSpec] = _decode(List[ToolSpec], await self._caller.call("tools.list", {}))
        return response

    async def detail(self, name: str) -> ToolSpec:
        """Description and schema of a tool, by its name (`fs.read`) or its name for models (`fs_read`).

        name: Name of the tool, or the name that a model was given for it.
        """
        response: ToolSpec = _decode(ToolSpec, await self._caller.call("tools.detail", ToolDetailCall(name=name).to_json()))
        return response

    async def call(self, calls: List[ToolCall]) -> List[ToolOutput]:
        """Outputs of the tool calls of one step, in the same order. A call that fails, or that the grant does not
        cover, has an error output with a text for the model. All calls are recorded before the first one is
        made, each result when it is available. Steps are sequential: a second step waits for the first.

        calls: The calls, in the order of the model.
        """
        response: List[ToolOutput] = _decode(List[ToolOutput], await self._caller.call("tools.call", ToolStepCall(calls=calls).to_json()))
        return response

    async def command(self, raw: str, name: str, *, arguments: Optional[JsonObject] = None) -> ToolOutput:
        """Output of the comma command that the run serves, which is recorded as a `command` event. The line is not
        added to the conversation. `raw` must be the line of the event.

        raw: The line as typed, without the comma.
        name: Name of the tool.
        arguments: Arguments of the tool.
        """
        response: ToolOutput = _decode(ToolOutput, await self._caller.call("tools.command", CommandCall(raw=raw, name=name, **_given(arguments=arguments)).to_json()))
        return response

    async def refuse_command(self, raw: str, reason: str) -> None:
        """Records a `command` event for the comma command that the run serves, if it cannot be run, with its line
        and the reason. `raw` must be the line of the event.

        raw: The line as typed, without the comma.
        reason: Reason that may be shown to users.
        """
        await self._caller.call("tools.refuse_command", CommandRefusalCall(raw=raw, reason=reason).to_json())


class TapeApi:
    """Methods `tape.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def view(self) -> List[ChatMessage]:
        """The messages that a model would read now, including the message that this run serves."""
        response: List[ChatMessage] = _decode(List[ChatMessage], await self._caller.call("tape.view", {}))
        return response

    async def handoff(self, name: str, *, state: Optional[JsonObject] = None) -> None:
        """Writes an anchor. Inside a step, the anchor takes effect after the step's results are recorded.

        name: Name of the anchor.
        state: State that the context starts from.
        """
        await self._caller.call("tape.handoff", HandoffCall(name=name, **_given(state=state)).to_json())

    async def note(self, name: str, data: JsonValue) -> None:
        """Writes an event that no view shows. Names of the host's own events, and names with the same first part
        (`action.` …), are rejected.

        name: Name of the event.
        data: Data of the event.
        """
        await self._caller.call("tape.note", NoteCall(name=name, data=data).to_json())

    async def say(self, content: Content) -> None:
        """Writes a message with the role `user`, such as the prompt of a further step.

        content: Content of the message.
        """
        await self._caller.call("tape.say", SayCall(content=content).to_json())

    async def reset(self, *, archive: bool = False) -> None:
        """Starts a new generation of the tape; `archive` marks the old one as archived. For commands only, while no
        other message of the session is being processed.

        archive: Mark the old generation as archived.
        """
        await self._caller.call("tape.reset", ResetCall(archive=archive).to_json())

    async def fork(self, *, at: Optional[EntryId] = None) -> ForkSummary:
        """Creates a fork of the tape at an entry. A person continues it with `capstan run --tape`, and closes it
        with `capstan tape merge` or `capstan tape discard`. At most 100 for a run.

        at: Last entry that the fork shares with the tape; absent: the newest.
        """
        response: ForkSummary = _decode(ForkSummary, await self._caller.call("tape.fork", ForkCall(at=at).to_json()))
        return response

    async def info(self) -> TapeSummary:
        """Name, head, number of anchors, the last anchor and the number of entries since it."""
        response: TapeSummary = _decode(TapeSummary, await self._caller.call("tape.info", {}))
        return response

    async def anchors(self, limit: int) -> List[TapeEntry]:
        """Anchors, newest first, at most 200.

        limit: Maximum number of anchors.
        """
        response: List[TapeEntry] = _decode(List[TapeEntry], await self._caller.call("tape.anchors", AnchorsCall(limit=limit).to_json()))
        return response

    async def search(self, text: str, limit: int) -> List[TapeEntry]:
        """Messages, tool calls, tool results and anchors that contain every word of a text, typos tolerated; newest
        first, at most 200.

        text: The text.
        limit: Maximum number of entries.
        """
        response: List[TapeEntry] = _decode(List[TapeEntry], await self._caller.call("tape.search", TapeSearchCall(text=text, limit=limit).to_json()))
        return response


class PromptApi:
    """Methods `prompt.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def system(self) -> str:
        """The system prompt, from the `system_prompt` hooks."""
        response: str = _decode(str, await self._caller.call("prompt.system", {}))
        return response

    async def continuation(self, step: int) -> Optional[Content]:
        """The prompt of a further step, from the `continue_prompt` hooks; usually none.

        step: Number of the step that follows.
        """
        response: Optional[Content] = _decode(Optional[Content], await self._caller.call("prompt.continuation", ContinuationCall(step=step).to_json()))
        return response


class SteeringApi:
    """Methods `steering.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def take(self) -> List[Content]:
        """Prompts of the messages offered to this run since the last call, in order; each is written to the tape,
        and its event is folded into this run. Ends before the first message with another binding or origin,
        which gets a turn of its own. Call it between two steps.
        """
        response: List[Content] = _decode(List[Content], await self._caller.call("steering.take", {}))
        return response

    async def pull(self) -> List[SteeredMessage]:
        """Like `steering.take`, with the event of each message. A message is returned once, by either method."""
        response: List[SteeredMessage] = _decode(List[SteeredMessage], await self._caller.call("steering.pull", {}))
        return response


class SessionApi:
    """Methods `session.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def model(self) -> Optional[ModelId]:
        """The model chosen for the session, if any."""
        response: Optional[ModelId] = _decode(Optional[ModelId], await self._caller.call("session.model", {}))
        return response

    async def choose_model(self, *, model: Optional[ModelId] = None) -> None:
        """Chooses the session's model, from the next call on; `null` selects the host's default. For commands only.

        model: Model of the session from the next call on; absent: the host's default model.
        """
        await self._caller.call("session.choose_model", ModelChoiceCall(model=model).to_json())


class ArtifactsApi:
    """Methods `artifacts.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def describe(self, id: ArtifactId) -> Artifact:
        """Description of an artifact.

        id: The artifact.
        """
        response: Artifact = _decode(Artifact, await self._caller.call("artifacts.describe", ArtifactDescribeCall(id=id).to_json()))
        return response

    async def read(self, id: ArtifactId, limit: int, *, offset: int = 0) -> ArtifactPart:
        """A range of an artifact's content.

        id: The artifact.
        offset: First byte of the range.
        limit: Maximum length of the range.
        """
        response: ArtifactPart = _decode(ArtifactPart, await self._caller.call("artifacts.read", ArtifactReadCall(id=id, offset=offset, limit=limit).to_json()))
        return response

    async def create(self, name: str, media_type: str, content: Bytes) -> Artifact:
        """Stores content as a new artifact, durable when the call returns.

        name: Name for people: a file name without a path.
        media_type: Media type of the content.
        content: The content; base64 in JSON.
        """
        response: Artifact = _decode(Artifact, await self._caller.call("artifacts.create", NewArtifact(name=name, media_type=media_type, content=content).to_json()))
        return response

    async def list(self, limit: int, *, cursor: Optional[str] = None) -> ArtifactPage:
        """Artifacts on the tape of the session, oldest first, page by page.

        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of artifacts, at least 1.
        """
        response: ArtifactPage = _decode(ArtifactPage, await self._caller.call("artifacts.list", ArtifactListCall(cursor=cursor, limit=limit).to_json()))
        return response


class RunsApi:
    """Methods `runs.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def child(
        self,
        prompt: Content,
        *,
        tools: AllowList = "all",
        model: Optional[ModelId] = None,
        max_steps: Optional[int] = None,
        max_tokens: Optional[int] = None,
        timeout_ms: Optional[int] = None,
        merge_back: bool = False,
    ) -> ChildRunOutcome:
        """Runs the same runner on a fork of the tape and waits for its end. The child uses this run's budget, gets
        at most this run's grant, and is cancelled when this run ends. With `merge_back`, the entries of a child
        that completed join the tape of this run under new ids, after the results of the open step; its anchors
        stay on the fork, so that the context of this run does not move.

        prompt: Prompt of the child. The child sees nothing else of the conversation, but can search its tape.
        tools: Tools that the child may call.
        model: Model of the child; by default that of this run.
        max_steps: Maximum number of steps.
        max_tokens: Maximum number of tokens.
        timeout_ms: Maximum duration, in milliseconds in JSON.
        merge_back: Merge the entries of the child into the tape of this run when the child completes, so that later
            steps see its conversation. By default they stay on the child's fork.
        """
        response: ChildRunOutcome = _decode(ChildRunOutcome, await self._caller.call("runs.child", ChildRunCall(prompt=prompt, tools=tools, model=model, max_steps=max_steps, max_tokens=max_tokens, timeout_ms=timeout_ms, merge_back=merge_back).to_json()))
        return response

    async def get(self, run_id: RunId) -> RunSummary:
        """A run of the session in the ledger: status, times, usage.

        run_id: The run.
        """
        response: RunSummary = _decode(RunSummary, await self._caller.call("runs.get", RunGetCall(run_id=run_id).to_json()))
        return response

    async def list(self, limit: int, *, cursor: Optional[str] = None) -> RunSummaryPage:
        """Runs of the session, newest first, page by page. A page may have fewer runs than the limit and still have
        a next one, because the ledger is searched in parts.

        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of runs, at least 1.
        """
        response: RunSummaryPage = _decode(RunSummaryPage, await self._caller.call("runs.list", RunListCall(cursor=cursor, limit=limit).to_json()))
        return response

    async def events(self, run_id: RunId, limit: int, *, cursor: Optional[str] = None) -> EventLogItemPage:
        """Activity of a run of the session, as items of the event log, oldest first, page by page. The limit counts
        tape entries, so a page may have fewer items.

        run_id: The run.
        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of tape entries that the page covers, at least 1.
        """
        response: EventLogItemPage = _decode(EventLogItemPage, await self._caller.call("runs.events", RunEventsCall(run_id=run_id, cursor=cursor, limit=limit).to_json()))
        return response

    async def cancel(self, run_id: RunId) -> bool:
        """Cancels a child run of this run, at any depth. The response is false if it has ended.

        run_id: The child run.
        """
        response: bool = _decode(bool, await self._caller.call("runs.cancel", RunCancelCall(run_id=run_id).to_json()))
        return response


class StateApi:
    """Methods `state.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def get(self, scope: StateScope, key: str) -> JsonValue:
        """The value under a key.

        scope: Scope of the state.
        key: The key.
        """
        return await self._caller.call("state.get", StateKeyCall(scope=scope, key=key).to_json())

    async def set(self, scope: StateScope, key: str, value: JsonValue) -> None:
        """Stores a value under a key, within the limits of the binding, durable when the call returns; `null`
        removes the key.

        scope: Scope of the state.
        key: The key.
        value: The value; `null` removes the key.
        """
        await self._caller.call("state.set", StateSetCall(scope=scope, key=key, value=value).to_json())

    async def list(
        self,
        scope: StateScope,
        limit: int,
        *,
        cursor: Optional[str] = None,
        prefix: str = "",
    ) -> StateEntryPage:
        """Keys that begin with a prefix (an empty one: all keys) and their values, in the order of the keys, page
        by page.

        scope: Scope of the state.
        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of keys, at least 1.
        prefix: Prefix of the keys; absent: all keys.
        """
        response: StateEntryPage = _decode(StateEntryPage, await self._caller.call("state.list", StateListCall(scope=scope, cursor=cursor, limit=limit, prefix=prefix).to_json()))
        return response

    async def delete(self, scope: StateScope, key: str) -> bool:
        """Removes a key; the response is true if it existed.

        scope: Scope of the state.
        key: The key.
        """
        response: bool = _decode(bool, await self._caller.call("state.delete", StateKeyCall(scope=scope, key=key).to_json()))
        return response


class StorageApi:
    """Methods `storage.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def put(self, area: StorageArea, name: str, content: Bytes) -> StorageEntry:
        """Stores content of up to 16 MiB under a name, replacing previous content, durable when the call returns.
        An area has at most 1000 names and 256 MiB.

        area: Area of the storage.
        name: The name.
        content: The content; base64 in JSON.
        """
        response: StorageEntry = _decode(StorageEntry, await self._caller.call("storage.put", StoragePutCall(area=area, name=name, content=content).to_json()))
        return response

    async def get(self, area: StorageArea, name: str) -> StoredContent:
        """The content under a name.

        area: Area of the storage.
        name: The name.
        """
        response: StoredContent = _decode(StoredContent, await self._caller.call("storage.get", StorageNameCall(area=area, name=name).to_json()))
        return response

    async def list(self, area: StorageArea, limit: int, *, cursor: Optional[str] = None) -> StorageEntryPage:
        """Names and sizes in the order of the names, page by page.

        area: Area of the storage.
        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of names, at least 1.
        """
        response: StorageEntryPage = _decode(StorageEntryPage, await self._caller.call("storage.list", StorageListCall(area=area, cursor=cursor, limit=limit).to_json()))
        return response

    async def delete(self, area: StorageArea, name: str) -> bool:
        """Removes a name; the response is true if it existed.

        area: Area of the storage.
        name: The name.
        """
        response: bool = _decode(bool, await self._caller.call("storage.delete", StorageNameCall(area=area, name=name).to_json()))
        return response


class HistoryApi:
    """Methods `history.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def page(
        self,
        limit: int,
        *,
        session: Optional[SessionId] = None,
        order: EntryOrder = "oldest_first",
        cursor: Optional[str] = None,
    ) -> HistoryMessagePage:
        """Messages of the dialogue, newest or oldest first, page by page.

        session: Session to read; absent: the run's own. Another session needs a grant for the workspace.
        order: Order of the list.
        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of items, at least 1.
        """
        response: HistoryMessagePage = _decode(HistoryMessagePage, await self._caller.call("history.page", PageRequest(session=session, order=order, cursor=cursor, limit=limit).to_json()))
        return response

    async def search(self, text: str, limit: int, *, session: Optional[SessionId] = None) -> List[HistoryMessage]:
        """Messages of the dialogue that contain a text, newest first.

        session: Session to search; absent: the run's own. Another session needs a grant for the workspace.
        text: The text.
        limit: Maximum number of messages, at least 1.
        """
        response: List[HistoryMessage] = _decode(List[HistoryMessage], await self._caller.call("history.search", HistorySearchCall(session=session, text=text, limit=limit).to_json()))
        return response


class EventsApi:
    """Methods `events.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def get(self, id: EventId) -> EventRecord:
        """An event with the same source as the run's event, and its outcome.

        id: Id of the event, at the source of the run's own event.
        """
        response: EventRecord = _decode(EventRecord, await self._caller.call("events.get", EventGetCall(id=id).to_json()))
        return response

    async def raw(self, id: EventId, limit: int, *, offset: int = 0) -> RawPayloadPart:
        """A range of the raw payload of such an event, as its platform sent it; `not_found` if the channel passed
        none on.

        id: Id of the event, at the source of the run's own event.
        offset: First byte of the range.
        limit: Maximum length of the range.
        """
        response: RawPayloadPart = _decode(RawPayloadPart, await self._caller.call("events.raw", RawPayloadCall(id=id, offset=offset, limit=limit).to_json()))
        return response

    async def page(
        self,
        limit: int,
        *,
        session: Optional[SessionId] = None,
        order: EntryOrder = "oldest_first",
        cursor: Optional[str] = None,
    ) -> EventLogItemPage:
        """Items of the event log, page by page. The limit counts tape entries: a page may have fewer items, or
        more, because outcomes and deliveries are not on the tape.

        session: Session to read; absent: the run's own. Another session needs a grant for the workspace.
        order: Order of the list.
        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of items, at least 1.
        """
        response: EventLogItemPage = _decode(EventLogItemPage, await self._caller.call("events.page", PageRequest(session=session, order=order, cursor=cursor, limit=limit).to_json()))
        return response


class KnowledgeApi:
    """Methods `knowledge.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def list(self) -> List[KnowledgeBase]:
        """The knowledge bases that the grant covers with `list`."""
        response: List[KnowledgeBase] = _decode(List[KnowledgeBase], await self._caller.call("knowledge.list", {}))
        return response

    async def retrieve(
        self,
        base: str,
        question: str,
        limit: int,
        *,
        cursor: Optional[str] = None,
    ) -> RetrievedPage:
        """Passages with source, line and score, best first, page by page; `left_out` describes the parts that were
        not searched.

        base: Id of the knowledge base.
        question: Text of the question.
        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of passages, at least 1.
        """
        response: RetrievedPage = _decode(RetrievedPage, await self._caller.call("knowledge.retrieve", RetrieveCall(base=base, question=question, cursor=cursor, limit=limit).to_json()))
        return response


class PlatformApi:
    """Methods `platform.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def call(self, action: str, *, arguments: Optional[JsonObject] = None) -> JsonValue:
        """Performs an action on the platform; the response is the platform's.

        action: Name of the action at the channel: `message.delete`, `member.mute`.
        arguments: Arguments of the action.
        """
        return await self._caller.call("platform.call", ActionRequest(action=action, **_given(arguments=arguments)).to_json())


class AgentRunAPIProxy:
    """The only way from a plugin to the host: the calls that the grant of the run covers, by group. Refusals raise
    `RunApiError`, calls after the end of the run `RunEndedError`.
    """

    def __init__(self, caller: RunCaller) -> None:
        self.models = ModelsApi(caller)
        self.tools = ToolsApi(caller)
        self.tape = TapeApi(caller)
        self.prompt = PromptApi(caller)
        self.steering = SteeringApi(caller)
        self.session = SessionApi(caller)
        self.artifacts = ArtifactsApi(caller)
        self.runs = RunsApi(caller)
        self.state = StateApi(caller)
        self.storage = StorageApi(caller)
        self.history = HistoryApi(caller)
        self.events = EventsApi(caller)
        self.knowledge = KnowledgeApi(caller)
        self.platform = PlatformApi(caller)
