"""The run API: typed calls from a run, or from a tool call, to the host.

Generated from crates/protocol/schema/capstan.json by scripts/generate_models.py: do not edit.
"""

from __future__ import annotations

from typing import Any, List, Optional, Protocol

from .codec import Bytes, JsonObject, JsonValue, decoder_of
from .model_stream import ModelStream
from .models import (
    ActionRequest,
    ActionSpec,
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
    ChildSession,
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
        request = ModelCall(
            model=model,
            system=system,
            options=options,
            fallbacks=fallbacks,
            **_given(messages=messages, tools=tools),
        )
        return self._caller.stream("models.stream", request.to_json())

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
        request = ModelCall(
            model=model,
            system=system,
            options=options,
            fallbacks=fallbacks,
            **_given(messages=messages, tools=tools),
        )
        response = await self._caller.call("models.invoke", request.to_json())
        decoded: ModelOutput = _decode(ModelOutput, response)
        return decoded

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
        request = ModelCall(
            model=model,
            system=system,
            options=options,
            fallbacks=fallbacks,
            **_given(messages=messages, tools=tools),
        )
        response = await self._caller.call("models.count_tokens", request.to_json())
        decoded: TokenCount = _decode(TokenCount, response)
        return decoded

    async def rerank(
        self,
        query: str,
        *,
        model: Optional[ModelId] = None,
        documents: Optional[List[str]] = None,
    ) -> List[RerankScore]:
        """Texts ranked by relevance to a query, best first. Providers that are compatible with OpenAI are asked at
        `/rerank` of their base URL; `not_found` for all others.

        model: Model to ask; absent: the host's default model.
        query: The query.
        documents: The texts.
        """
        request = RerankCall(
            model=model,
            query=query,
            **_given(documents=documents),
        )
        response = await self._caller.call("models.rerank", request.to_json())
        decoded: List[RerankScore] = _decode(List[RerankScore], response)
        return decoded

    async def list(self) -> ModelDirectory:
        """The models that the host is configured with and the grant covers with `stream`, the default one first,
        and the names of the providers. Providers may accept further models.
        """
        response = await self._caller.call("models.list", {})
        decoded: ModelDirectory = _decode(ModelDirectory, response)
        return decoded


class ToolsApi:
    """Methods `tools.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def list(self) -> List[ToolSpec]:
        """The tools that the grant covers with `tools`: `detail`."""
        response = await self._caller.call("tools.list", {})
        decoded: List[ToolSpec] = _decode(List[ToolSpec], response)
        return decoded

    async def detail(self, name: str) -> ToolSpec:
        """Description and schema of a tool, by its name (`fs.read`) or its name for models (`fs_read`).

        name: Name of the tool, or the name that a model was given for it.
        """
        response = await self._caller.call("tools.detail", ToolDetailCall(name=name).to_json())
        decoded: ToolSpec = _decode(ToolSpec, response)
        return decoded

    async def call(self, calls: List[ToolCall]) -> List[ToolOutput]:
        """Outputs of the tool calls of one step, in the same order. A call that fails, or that the grant does not
        cover, has an error output with a text for the model. All calls are recorded before the first one is
        made, each result when it is available. Steps are sequential: a second step waits for the first.

        calls: The calls, in the order of the model.
        """
        response = await self._caller.call("tools.call", ToolStepCall(calls=calls).to_json())
        decoded: List[ToolOutput] = _decode(List[ToolOutput], response)
        return decoded

    async def command(self, raw: str, name: str, *, arguments: Optional[JsonObject] = None) -> ToolOutput:
        """Output of the comma command that the run serves, which is recorded as a `command` event. The line is not
        added to the conversation. `raw` must be the line of the event.

        raw: The line as typed, without the comma.
        name: Name of the tool.
        arguments: Arguments of the tool.
        """
        request = CommandCall(
            raw=raw,
            name=name,
            **_given(arguments=arguments),
        )
        response = await self._caller.call("tools.command", request.to_json())
        decoded: ToolOutput = _decode(ToolOutput, response)
        return decoded

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
        response = await self._caller.call("tape.view", {})
        decoded: List[ChatMessage] = _decode(List[ChatMessage], response)
        return decoded

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
        response = await self._caller.call("tape.fork", ForkCall(at=at).to_json())
        decoded: ForkSummary = _decode(ForkSummary, response)
        return decoded

    async def info(self) -> TapeSummary:
        """Name, head, number of anchors, the last anchor and the number of entries since it."""
        response = await self._caller.call("tape.info", {})
        decoded: TapeSummary = _decode(TapeSummary, response)
        return decoded

    async def anchors(self, limit: int) -> List[TapeEntry]:
        """Anchors, newest first, at most 200.

        limit: Maximum number of anchors.
        """
        response = await self._caller.call("tape.anchors", AnchorsCall(limit=limit).to_json())
        decoded: List[TapeEntry] = _decode(List[TapeEntry], response)
        return decoded

    async def search(self, text: str, limit: int) -> List[TapeEntry]:
        """Messages, tool calls, tool results and anchors that contain every word of a text, typos tolerated; newest
        first, at most 200.

        text: The text.
        limit: Maximum number of entries.
        """
        response = await self._caller.call("tape.search", TapeSearchCall(text=text, limit=limit).to_json())
        decoded: List[TapeEntry] = _decode(List[TapeEntry], response)
        return decoded


class PromptApi:
    """Methods `prompt.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def system(self) -> str:
        """The system prompt, from the `system_prompt` hooks."""
        response = await self._caller.call("prompt.system", {})
        decoded: str = _decode(str, response)
        return decoded

    async def continuation(self, step: int) -> Optional[Content]:
        """The prompt of a further step, from the `continue_prompt` hooks; usually none.

        step: Number of the step that follows.
        """
        response = await self._caller.call("prompt.continuation", ContinuationCall(step=step).to_json())
        decoded: Optional[Content] = _decode(Optional[Content], response)
        return decoded


class SteeringApi:
    """Methods `steering.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def take(self) -> List[Content]:
        """Prompts of the messages offered to this run since the last call, in order; each is written to the tape,
        and its event is folded into this run. Ends before the first message with another binding or origin,
        which gets a turn of its own. Call it between two steps.
        """
        response = await self._caller.call("steering.take", {})
        decoded: List[Content] = _decode(List[Content], response)
        return decoded

    async def pull(self) -> List[SteeredMessage]:
        """Like `steering.take`, with the event of each message. A message is returned once, by either method."""
        response = await self._caller.call("steering.pull", {})
        decoded: List[SteeredMessage] = _decode(List[SteeredMessage], response)
        return decoded


class SessionApi:
    """Methods `session.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def model(self) -> Optional[ModelId]:
        """The model chosen for the session, if any."""
        response = await self._caller.call("session.model", {})
        decoded: Optional[ModelId] = _decode(Optional[ModelId], response)
        return decoded

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
        response = await self._caller.call("artifacts.describe", ArtifactDescribeCall(id=id).to_json())
        decoded: Artifact = _decode(Artifact, response)
        return decoded

    async def read(self, id: ArtifactId, limit: int, *, offset: int = 0) -> ArtifactPart:
        """A range of an artifact's content.

        id: The artifact.
        offset: First byte of the range.
        limit: Maximum length of the range.
        """
        request = ArtifactReadCall(
            id=id,
            offset=offset,
            limit=limit,
        )
        response = await self._caller.call("artifacts.read", request.to_json())
        decoded: ArtifactPart = _decode(ArtifactPart, response)
        return decoded

    async def create(self, name: str, media_type: str, content: Bytes) -> Artifact:
        """Stores content as a new artifact, durable when the call returns.

        name: Name for people: a file name without a path.
        media_type: Media type of the content.
        content: The content; base64 in JSON.
        """
        request = NewArtifact(
            name=name,
            media_type=media_type,
            content=content,
        )
        response = await self._caller.call("artifacts.create", request.to_json())
        decoded: Artifact = _decode(Artifact, response)
        return decoded

    async def list(self, limit: int, *, cursor: Optional[str] = None) -> ArtifactPage:
        """Artifacts on the tape of the session, oldest first, page by page.

        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of artifacts, at least 1.
        """
        response = await self._caller.call("artifacts.list", ArtifactListCall(cursor=cursor, limit=limit).to_json())
        decoded: ArtifactPage = _decode(ArtifactPage, response)
        return decoded


class RunsApi:
    """Methods `runs.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def child(
        self,
        prompt: Content,
        *,
        session: Optional[ChildSession] = None,
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

        prompt: Prompt of the child.
        session: Part of the conversation that the child sees besides its prompt. It can search the tape in any
            case.
        tools: Tools that the child may call.
        model: Model of the child; by default that of this run.
        max_steps: Maximum number of steps.
        max_tokens: Maximum number of tokens.
        timeout_ms: Maximum duration, in milliseconds in JSON.
        merge_back: Merge the entries of the child into the tape of this run when the child completes, so that later
            steps see its conversation. By default they stay on the child's fork.
        """
        request = ChildRunCall(
            prompt=prompt,
            session=session,
            tools=tools,
            model=model,
            max_steps=max_steps,
            max_tokens=max_tokens,
            timeout_ms=timeout_ms,
            merge_back=merge_back,
        )
        response = await self._caller.call("runs.child", request.to_json())
        decoded: ChildRunOutcome = _decode(ChildRunOutcome, response)
        return decoded

    async def get(self, run_id: RunId) -> RunSummary:
        """A run of the session in the ledger: status, times, usage.

        run_id: The run.
        """
        response = await self._caller.call("runs.get", RunGetCall(run_id=run_id).to_json())
        decoded: RunSummary = _decode(RunSummary, response)
        return decoded

    async def list(self, limit: int, *, cursor: Optional[str] = None) -> RunSummaryPage:
        """Runs of the session, newest first, page by page. A page may have fewer runs than the limit and still have
        a next one, because the ledger is searched in parts.

        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of runs, at least 1.
        """
        response = await self._caller.call("runs.list", RunListCall(cursor=cursor, limit=limit).to_json())
        decoded: RunSummaryPage = _decode(RunSummaryPage, response)
        return decoded

    async def events(self, run_id: RunId, limit: int, *, cursor: Optional[str] = None) -> EventLogItemPage:
        """Activity of a run of the session, as items of the event log, oldest first, page by page. The limit counts
        tape entries, so a page may have fewer items.

        run_id: The run.
        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of tape entries that the page covers, at least 1.
        """
        request = RunEventsCall(
            run_id=run_id,
            cursor=cursor,
            limit=limit,
        )
        response = await self._caller.call("runs.events", request.to_json())
        decoded: EventLogItemPage = _decode(EventLogItemPage, response)
        return decoded

    async def cancel(self, run_id: RunId) -> bool:
        """Cancels a child run of this run, at any depth. The response is false if it has ended.

        run_id: The child run.
        """
        response = await self._caller.call("runs.cancel", RunCancelCall(run_id=run_id).to_json())
        decoded: bool = _decode(bool, response)
        return decoded


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
        request = StateListCall(
            scope=scope,
            cursor=cursor,
            limit=limit,
            prefix=prefix,
        )
        response = await self._caller.call("state.list", request.to_json())
        decoded: StateEntryPage = _decode(StateEntryPage, response)
        return decoded

    async def delete(self, scope: StateScope, key: str) -> bool:
        """Removes a key; the response is true if it existed.

        scope: Scope of the state.
        key: The key.
        """
        response = await self._caller.call("state.delete", StateKeyCall(scope=scope, key=key).to_json())
        decoded: bool = _decode(bool, response)
        return decoded


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
        request = StoragePutCall(
            area=area,
            name=name,
            content=content,
        )
        response = await self._caller.call("storage.put", request.to_json())
        decoded: StorageEntry = _decode(StorageEntry, response)
        return decoded

    async def get(self, area: StorageArea, name: str) -> StoredContent:
        """The content under a name.

        area: Area of the storage.
        name: The name.
        """
        response = await self._caller.call("storage.get", StorageNameCall(area=area, name=name).to_json())
        decoded: StoredContent = _decode(StoredContent, response)
        return decoded

    async def list(self, area: StorageArea, limit: int, *, cursor: Optional[str] = None) -> StorageEntryPage:
        """Names and sizes in the order of the names, page by page.

        area: Area of the storage.
        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of names, at least 1.
        """
        request = StorageListCall(
            area=area,
            cursor=cursor,
            limit=limit,
        )
        response = await self._caller.call("storage.list", request.to_json())
        decoded: StorageEntryPage = _decode(StorageEntryPage, response)
        return decoded

    async def delete(self, area: StorageArea, name: str) -> bool:
        """Removes a name; the response is true if it existed.

        area: Area of the storage.
        name: The name.
        """
        response = await self._caller.call("storage.delete", StorageNameCall(area=area, name=name).to_json())
        decoded: bool = _decode(bool, response)
        return decoded


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
        request = PageRequest(
            session=session,
            order=order,
            cursor=cursor,
            limit=limit,
        )
        response = await self._caller.call("history.page", request.to_json())
        decoded: HistoryMessagePage = _decode(HistoryMessagePage, response)
        return decoded

    async def search(self, text: str, limit: int, *, session: Optional[SessionId] = None) -> List[HistoryMessage]:
        """Messages of the dialogue that contain a text, newest first.

        session: Session to search; absent: the run's own. Another session needs a grant for the workspace.
        text: The text.
        limit: Maximum number of messages, at least 1.
        """
        request = HistorySearchCall(
            session=session,
            text=text,
            limit=limit,
        )
        response = await self._caller.call("history.search", request.to_json())
        decoded: List[HistoryMessage] = _decode(List[HistoryMessage], response)
        return decoded


class EventsApi:
    """Methods `events.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def get(self, id: EventId) -> EventRecord:
        """An event with the same source as the run's event, and its outcome.

        id: Id of the event, at the source of the run's own event.
        """
        response = await self._caller.call("events.get", EventGetCall(id=id).to_json())
        decoded: EventRecord = _decode(EventRecord, response)
        return decoded

    async def raw(self, id: EventId, limit: int, *, offset: int = 0) -> RawPayloadPart:
        """A range of the raw payload of such an event, as its platform sent it; `not_found` if the channel passed
        none on.

        id: Id of the event, at the source of the run's own event.
        offset: First byte of the range.
        limit: Maximum length of the range.
        """
        response = await self._caller.call("events.raw", RawPayloadCall(id=id, offset=offset, limit=limit).to_json())
        decoded: RawPayloadPart = _decode(RawPayloadPart, response)
        return decoded

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
        request = PageRequest(
            session=session,
            order=order,
            cursor=cursor,
            limit=limit,
        )
        response = await self._caller.call("events.page", request.to_json())
        decoded: EventLogItemPage = _decode(EventLogItemPage, response)
        return decoded


class KnowledgeApi:
    """Methods `knowledge.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def list(self) -> List[KnowledgeBase]:
        """The knowledge bases that the grant covers with `list`."""
        response = await self._caller.call("knowledge.list", {})
        decoded: List[KnowledgeBase] = _decode(List[KnowledgeBase], response)
        return decoded

    async def retrieve(
        self,
        base: str,
        question: str,
        limit: int,
        *,
        cursor: Optional[str] = None,
        sources: Optional[List[str]] = None,
    ) -> RetrievedPage:
        """Passages with source, line and score, best first, page by page; `left_out` describes the parts that were
        not searched. `sources` limits the search to some sources of the base, if it can do that.

        base: Id of the knowledge base.
        question: Text of the question.
        cursor: `next` of the previous page; absent: the first page.
        limit: Maximum number of passages, at least 1.
        sources: Sources to search, by name; a final `*` matches the rest of a name. Empty: all.
        """
        request = RetrieveCall(
            base=base,
            question=question,
            cursor=cursor,
            limit=limit,
            **_given(sources=sources),
        )
        response = await self._caller.call("knowledge.retrieve", request.to_json())
        decoded: RetrievedPage = _decode(RetrievedPage, response)
        return decoded


class PlatformApi:
    """Methods `platform.*` of the run API."""

    def __init__(self, caller: RunCaller) -> None:
        self._caller = caller

    async def call(self, action: str, *, arguments: Optional[JsonObject] = None) -> JsonValue:
        """Performs an action on the platform; the response is the platform's.

        action: Name of the action at the channel: `message.delete`, `member.mute`.
        arguments: Arguments of the action.
        """
        request = ActionRequest(
            action=action,
            **_given(arguments=arguments),
        )
        return await self._caller.call("platform.call", request.to_json())

    async def list(self) -> List[ActionSpec]:
        """The actions that the channel of the event offers and the grant covers, by name."""
        response = await self._caller.call("platform.list", {})
        decoded: List[ActionSpec] = _decode(List[ActionSpec], response)
        return decoded


class AgentRunAPIProxy:
    """The only way from a plugin to the host: calls that the grant of the run covers, by group. Refusals raise
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
