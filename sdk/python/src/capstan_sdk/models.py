"""Types of the Capstan protocol.

Generated from crates/protocol/schema/capstan.json by scripts/generate_models.py: do not edit.
"""

from __future__ import annotations

from dataclasses import field as field_of
from typing import TYPE_CHECKING, ClassVar, Literal, Optional, TypeAlias, Union

from .codec import Bytes, JsonObject, JsonValue, Model, OtherVariant

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from .codec import lazy_dataclass as dataclass

# Handling of a message that arrives while its session is running a turn. An idle session starts a turn at once,
# whatever the mode.
AdmissionMode: TypeAlias = Union[Literal["follow_up", "steer", "collect", "interrupt", "drop"], str]

# Allowed resources of a kind, by name.
AllowList: TypeAlias = JsonValue

# Kinds of run-API errors.
ApiErrorCode: TypeAlias = Union[
    Literal["unauthorized", "not_found", "deadline_exceeded", "payload_too_large", "rate_limited", "invalid_argument", "runtime_error"],
    str,
]

# Decision about a tool call.
ApprovalDecision: TypeAlias = Union[Literal["allow", "ask", "deny"], str]

# Id of an artifact: the run that created it and a number within the run.
ArtifactId: TypeAlias = str

# Operation on artifacts.
ArtifactOperation: TypeAlias = Union[Literal["metadata", "read", "create"], str]

# Id of a binding.
BindingId: TypeAlias = str

# Content hash of a blob, in hexadecimal.
BlobHash: TypeAlias = str

# Name of a channel, such as `cli`.
ChannelName: TypeAlias = str

# Id of a chat within a channel.
ChatId: TypeAlias = str

# Conversation that a child run starts with.
ChildSession: TypeAlias = Union[Literal["temp", "inherit"], str]

# Comma commands that a run may execute. Ordered: each level includes the previous one.
CommandAccess: TypeAlias = Union[Literal["read_only", "all"], str]

# Content of a message: plain text or a list of parts.
Content: TypeAlias = Union[str, list[JsonObject]]

# One part of a message. Parts of unknown types are preserved.
ContentPart: TypeAlias = JsonObject

# Kind of a chat.
ConversationKind: TypeAlias = Union[Literal["private", "group"], str]

# Position of an entry on its tape. Ids increase and are never reused.
EntryId: TypeAlias = int

# Order in which entries are read.
EntryOrder: TypeAlias = Union[Literal["oldest_first", "newest_first"], str]

# Id of an event, unique within its source and bot.
EventId: TypeAlias = str

# Operation on the event log.
EventOperation: TypeAlias = Union[Literal["get", "page"], str]

# Trust in the source of an event. Ordered: a trusted origin allows everything that a remote one allows. Assigned by
# the host when it accepts the event, from the channel that submitted it, and stored beside the event. No field of
# an event states an origin.
EventOrigin: TypeAlias = Union[Literal["remote", "trusted"], str]

# Operation on the history of a conversation.
HistoryOperation: TypeAlias = Union[Literal["page", "search"], str]

# Runner's use of state that the host stores.
HostStateRequirement: TypeAlias = Union[Literal["none", "optional", "required"], str]

# Operation on a knowledge base.
KnowledgeOperation: TypeAlias = Union[Literal["list", "retrieve"], str]

# Allowed resources of a kind, and the allowed operations on them.
KnowledgeOperationAccess: TypeAlias = JsonValue

# Text for people, with optional translations.
LocalizedText: TypeAlias = Union[str, dict[str, str]]

# Role of a message's author.
MessageRole: TypeAlias = Union[Literal["system", "user", "assistant", "tool"], str]

# Id of a model, written `provider:name`.
ModelId: TypeAlias = str

# Operation on a model.
ModelOperation: TypeAlias = Union[Literal["invoke", "stream", "rerank", "count_tokens"], str]

# Allowed resources of a kind, and the allowed operations on them.
ModelOperationAccess: TypeAlias = JsonValue

# Kind of outbound message.
OutboundKind: TypeAlias = Union[Literal["reply", "notice"], str]

# Range of history and events that a run may read.
ReadScope: TypeAlias = Union[Literal["conversation", "workspace"], str]

# Reasoning effort of a model before it answers.
Reasoning: TypeAlias = Union[Literal["none", "low", "medium", "high"], str]

# Id of a run, one execution of a runner.
RunId: TypeAlias = str

# Id of a runner, such as `builtin:agent` or `plugin:author/name/runner`.
RunnerId: TypeAlias = str

# Location of a runner's code.
RunnerSource: TypeAlias = Union[Literal["plugin", "host_adapter"], str]

# Id of a session: the key of its tape, actor, lease and state.
SessionId: TypeAlias = str

# Scope of a runner's stored state. Runners do not share state.
StateScope: TypeAlias = Union[Literal["conversation", "actor", "subject", "binding", "runner", "workspace"], str]

# Area in which a runner stores content by name.
StorageArea: TypeAlias = Union[Literal["plugin", "workspace", "binding"], str]

# Access of a run to its session's tape. Ordered: each level includes the previous one.
TapeAccess: TypeAlias = Union[Literal["none", "read", "write"], str]

# Name of a tape. Validated on construction, because it may become a file name.
TapeName: TypeAlias = str

Timestamp: TypeAlias = str

# Name of a tool, such as `fs.read`.
ToolName: TypeAlias = str

# Operation on a tool.
ToolOperation: TypeAlias = Union[Literal["detail", "call"], str]

# Allowed resources of a kind, and the allowed operations on them.
ToolOperationAccess: TypeAlias = JsonValue

# Id of a workspace: its resolved path at first use.
WorkspaceId: TypeAlias = str

# Forms of the time of an event.
EventTimeForm: TypeAlias = Union[Timestamp, int]


@dataclass
class ActionRequest(Model):
    """Request for an action on the platform of an event.

    action: Name of the action at the channel: `message.delete`, `member.mute`.
    arguments: Arguments of the action.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["action"])

    action: str
    arguments: JsonObject = field_of(default_factory=dict)


@dataclass
class ActionSpec(Model):
    """Description of an action that a channel can perform on its platform.

    name: Name that requests use: `message.delete`, `member.mute`.
    description: Effect of the action, for people.
    parameters: JSON Schema of the arguments. The channel never receives arguments that violate it.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["description", "name", "parameters"])

    name: str
    description: str
    parameters: JsonValue


@dataclass
class ActorRef(Model):
    """Originator of an event.

    id: Id at the source.
    name: Display name.
    type: Type of the originator: `user`, `bot`, `system`.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["id"])

    id: str
    name: Optional[str] = None
    type: Optional[str] = None


@dataclass
class AdapterContext(Model):
    """Results of the host's hooks for an event; runners may ignore them.

    prompt: Prompt from the `build_prompt` hooks.
    """

    prompt: Optional[Content] = None


@dataclass
class AnchorsCall(Model):
    """Request for the newest anchors.

    limit: Maximum number of anchors.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["limit"])

    limit: int


@dataclass
class ApiError(Model):
    """Error response of the run API.

    code: Kind of error.
    message: Description that may be shown to users.
    retryable: True if the same call may succeed later.
    cause: Stable code of the cause, if there is one (`model-unreachable`).
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["code", "message"])

    code: ApiErrorCode
    message: str
    retryable: bool = False
    cause: Optional[str] = None


@dataclass
class ApprovalRule(Model):
    """Rule that allows or denies a tool call, or requires approval by a person.

    tool: Name of the tool; a `*` at the end matches any suffix, as in `fs.*`.
    containing: Match only calls whose arguments contain this text; absent: all calls.
    decision: Decision about matching calls.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["decision", "tool"])

    tool: str
    decision: ApprovalDecision
    containing: Optional[str] = None


@dataclass
class Artifact(Model):
    """Description of an artifact, recorded on the tape of the run that created it.

    id: Id of the artifact.
    name: Name for people: `bash`, `report.csv`.
    media_type: Media type of the content, such as `text/plain`.
    bytes: Size of the content.
    hash: Hash of the content.
    content_blob: Blob with the content and a unique mark, which can be removed by itself. Absent in artifacts of
        earlier versions, whose content is the blob `hash`, which may be shared, and in attachments, whose content
        is part of their event.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["bytes", "hash", "id", "media_type", "name"])

    id: ArtifactId
    name: str
    media_type: str
    bytes: int
    hash: BlobHash
    content_blob: Optional[BlobHash] = None


@dataclass
class ArtifactDescribeCall(Model):
    """Request for the description of an artifact.

    id: The artifact.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["id"])

    id: ArtifactId


@dataclass
class ArtifactListCall(Model):
    """Request for a page of the artifacts of the session.

    cursor: `next` of the previous page; absent: the first page.
    limit: Maximum number of artifacts, at least 1.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["limit"])

    limit: int
    cursor: Optional[str] = None


@dataclass
class ArtifactPage(Model):
    """A page of a list, and the cursor of the next one.

    items: Items of the page.
    next: Cursor of the next page, for the same list and the same method; none at the end. Opaque.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["items"])

    items: list[Artifact]
    next: Optional[str] = None


@dataclass
class ArtifactPart(Model):
    """A range of an artifact's content.

    artifact: The artifact.
    offset: First byte of the range.
    content: The range, base64 in JSON. Shorter than the limit where the artifact ends.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["artifact", "content", "offset"])

    artifact: Artifact
    offset: int
    content: Bytes


@dataclass
class ArtifactReadCall(Model):
    """Request for a range of an artifact's content.

    id: The artifact.
    offset: First byte of the range.
    limit: Maximum length of the range.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["id", "limit"])

    id: ArtifactId
    limit: int
    offset: int = 0


@dataclass
class ChatMessage(Model):
    """One message of a conversation.

    role: Role of a message's author.
    content: Content of the message; empty if the message only calls tools.
    tool_calls: Tool calls of an assistant message.
    tool_call_id: Id of the call that a tool message answers.
    name: Name of the tool that answered, or of the author.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["role"])

    role: MessageRole
    content: Content = ""
    tool_calls: list[ToolCall] = field_of(default_factory=list)
    tool_call_id: Optional[str] = None
    name: Optional[str] = None


@dataclass
class ChildRunCall(Model):
    """Task for a child run. An absent limit is inherited from the parent, whose limits the child cannot exceed.

    prompt: Prompt of the child.
    session: Part of the conversation that the child sees besides its prompt. It can search the tape in any case.
    tools: Tools that the child may call.
    model: Model of the child; by default that of this run.
    max_steps: Maximum number of steps.
    max_tokens: Maximum number of tokens.
    timeout_ms: Maximum duration, in milliseconds in JSON.
    merge_back: Merge the entries of the child into the tape of this run when the child completes, so that later
        steps see its conversation. By default they stay on the child's fork.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["prompt"])

    prompt: Content
    session: Optional[ChildSession] = None
    tools: AllowList = "all"
    model: Optional[ModelId] = None
    max_steps: Optional[int] = None
    max_tokens: Optional[int] = None
    timeout_ms: Optional[int] = None
    merge_back: bool = False


@dataclass
class ChildRunOutcome(Model):
    """A child run that has ended.

    run_id: Id of the child run.
    tape: Tape of the child, a fork that is closed now, or at the end of the open step if it is merged.
    text: Text of the child's messages.
    usage: Tokens that the child used, as far as known.
    failure: Reason of the failure, if the child failed.
    merged: The entries of the child are merged into the tape of its parent: now, or after the results of the open
        step.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["run_id", "tape", "text"])

    run_id: RunId
    tape: TapeName
    text: str
    usage: Optional[Usage] = None
    failure: Optional[str] = None
    merged: bool = False


@dataclass
class CommandCall(Model):
    """A comma command.

    raw: The line as typed, without the comma.
    name: Name of the tool.
    arguments: Arguments of the tool.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["name", "raw"])

    raw: str
    name: str
    arguments: JsonObject = field_of(default_factory=dict)


@dataclass
class CommandRefusalCall(Model):
    """A comma command that cannot be run.

    raw: The line as typed, without the comma.
    reason: Reason that may be shown to users.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["raw", "reason"])

    raw: str
    reason: str


@dataclass
class ContinuationCall(Model):
    """Request for the prompt of a further step.

    step: Number of the step that follows.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["step"])

    step: int


@dataclass
class ConversationContext(Model):
    """Conversation of a run.

    session_id: Session of the conversation.
    conversation_id: Chat at the source.
    kind: Kind of the chat, if the source knows it.
    thread_id: Thread within the chat.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["session_id"])

    session_id: SessionId
    conversation_id: Optional[str] = None
    kind: Optional[ConversationKind] = None
    thread_id: Optional[str] = None


@dataclass
class DeliveryTarget(Model):
    """Destination of replies.

    output_channel: Channel for replies, if it is not the source.
    chat_id: Chat for replies, if it is not the conversation.
    reply_to: Message to reply to.
    """

    output_channel: Optional[ChannelName] = None
    chat_id: Optional[ChatId] = None
    reply_to: Optional[str] = None


@dataclass
class Event(Model):
    """Occurrence at a source, in the form that all parts of the host share.

    event_id: Unique within `(source, bot_id)`: a repeated id is the same event.
    event_type: Type of the event, such as `message.received`.
    event_time: Time of the event at the source, if the source provides it: RFC 3339, or seconds since the epoch.
    source: Source of the event: by default, the channel.
    bot_id: Bot account that received the event.
    workspace_id: Workspace of the event.
    conversation_id: Chat at the source.
    conversation_kind: Kind of the chat, if the source knows it.
    thread_id: Thread within the chat.
    session_id: Session of the event: the one that the source requests before it is resolved, the resolved one
        afterwards.
    actor: Originator of the event.
    subject: Target of the event.
    input: Text and attachments of the event.
    delivery: Destination of replies.
    raw_ref: Reference to the platform's own payload.
    metadata: Further data from the source.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["event_id", "event_type", "source"])

    event_id: EventId
    event_type: str
    source: ChannelName
    event_time: Optional[EventTimeForm] = None
    bot_id: Optional[str] = None
    workspace_id: Optional[WorkspaceId] = None
    conversation_id: Optional[str] = None
    conversation_kind: Optional[ConversationKind] = None
    thread_id: Optional[str] = None
    session_id: Optional[SessionId] = None
    actor: Optional[ActorRef] = None
    subject: Optional[SubjectRef] = None
    input: EventInput = field_of(default_factory=lambda: EventInput())
    delivery: DeliveryTarget = field_of(default_factory=lambda: DeliveryTarget())
    raw_ref: Optional[RawPayloadRef] = None
    metadata: JsonObject = field_of(default_factory=dict)


@dataclass
class EventGetCall(Model):
    """Request for an event by its id.

    id: Id of the event, at the source of the run's own event.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["id"])

    id: EventId


@dataclass
class EventInput(Model):
    """Text and attachments of an event.

    text: Text, if any.
    contents: Further parts: images and other attachments.
    """

    text: Optional[str] = None
    contents: list[ContentPart] = field_of(default_factory=list)


@dataclass
class EventKey(Model):
    """Identity of an event: its id within its source and bot.

    source: Source of the event.
    bot_id: Bot that received the event; empty for a source without bots.
    event_id: Id of the event at the source.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["bot_id", "event_id", "source"])

    source: ChannelName
    bot_id: str
    event_id: EventId


@dataclass
class EventLogItemActivity(Model):
    """Tool calls and results, commands, platform actions, handoffs, dispatched messages, errors.

    entry: Entry of the item.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["entry", "fact"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("fact", "activity")

    entry: TapeEntry
    fact: Literal["activity"] = field_of(default="activity", kw_only=True)


@dataclass
class EventLogItemDelivery(Model):
    """A message of the event's turn, and its delivery status.

    row: Row of the outbox.
    staged_at: Time at which the message was staged.
    event: Event whose turn sent the message.
    message: The message.
    delivery: Current delivery status.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["delivery", "event", "fact", "message", "row", "staged_at"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("fact", "delivery")

    row: int
    staged_at: Timestamp
    event: EventKey
    message: OutboundMessage
    delivery: OutboxStatus
    fact: Literal["delivery"] = field_of(default="delivery", kw_only=True)


@dataclass
class EventLogItemInbound(Model):
    """An event was accepted.

    entry: Entry of the item.
    event: The event.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["entry", "event", "fact"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("fact", "inbound")

    entry: TapeEntry
    event: Event
    fact: Literal["inbound"] = field_of(default="inbound", kw_only=True)


@dataclass
class EventLogItemOutcome(Model):
    """Outcome of an event.

    event: The event.
    outcome: Outcome of the event; absent while it is in flight.
    run_id: Run that settled the event.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["event", "fact"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("fact", "outcome")

    event: EventKey
    fact: Literal["outcome"] = field_of(default="outcome", kw_only=True)
    outcome: Optional[Outcome] = None
    run_id: Optional[RunId] = None


@dataclass
class EventLogItemPage(Model):
    """A page of a list, and the cursor of the next one.

    items: Items of the page.
    next: Cursor of the next page, for the same list and the same method; none at the end. Opaque.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["items"])

    items: list[EventLogItem]
    next: Optional[str] = None


@dataclass
class EventRecord(Model):
    """An accepted event and its outcome.

    event: The event.
    session_id: Session of the event.
    accepted_at: Time of acceptance.
    outcome: Outcome of the event; absent while it is in flight.
    run_id: Run that settled the event.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["accepted_at", "event", "session_id"])

    event: Event
    session_id: SessionId
    accepted_at: Timestamp
    outcome: Optional[Outcome] = None
    run_id: Optional[RunId] = None


@dataclass
class ForkCall(Model):
    """Request for a fork of the tape.

    at: Last entry that the fork shares with the tape; absent: the newest.
    """

    at: Optional[EntryId] = None


@dataclass
class ForkSummary(Model):
    """A fork of a tape.

    tape: Name of the fork, as `capstan run --tape` and `capstan tape merge` take it.
    session_id: Session whose turns read the tape up to the position and the fork, and write to the fork.
    position: Last entry that the fork shares with the tape.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["position", "session_id", "tape"])

    tape: TapeName
    session_id: SessionId
    position: EntryId


@dataclass
class Grant(Model):
    """Authority of one run: computed when the run begins, stored with it, and from then on the only source of
    permission checks.

    models: Models, by `provider:name`.
    tools: Tools, by name.
    knowledge_bases: Knowledge bases, by id.
    history: Conversation history.
    events: Event log.
    reach: Range of history and events.
    artifacts: Artifacts of the session.
    state: State stored by the host.
    storage: Content stored by the host.
    platform_api: Platform actions, by name.
    tape: Tape of the session.
    prompt: System prompt and continuation prompt of the host, and the prompt built from the event.
    children: Child runs.
    steering: Messages that arrive during the run.
    commands: Comma commands that the run may execute.
    shell_commands: Allow a comma command with an unknown name to run as a shell command.
    approvals: Approval rules for tool calls. The first matching rule applies; a call that matches none is allowed.
    state_limits: Limits of stored state, if the run may store any.
    """

    models: ModelOperationAccess = field_of(default_factory=lambda: {'names': {'only': []}, 'operations': []})
    tools: ToolOperationAccess = field_of(default_factory=lambda: {'names': {'only': []}, 'operations': []})
    knowledge_bases: KnowledgeOperationAccess = field_of(default_factory=lambda: {'names': {'only': []}, 'operations': []})
    history: list[HistoryOperation] = field_of(default_factory=list)
    events: list[EventOperation] = field_of(default_factory=list)
    reach: ReadScope = "conversation"
    artifacts: list[ArtifactOperation] = field_of(default_factory=list)
    state: list[StateScope] = field_of(default_factory=list)
    storage: list[StorageArea] = field_of(default_factory=list)
    platform_api: AllowList = field_of(default_factory=lambda: {'only': []})
    tape: TapeAccess = "none"
    prompt: bool = False
    children: bool = False
    steering: bool = False
    commands: Optional[CommandAccess] = None
    shell_commands: bool = False
    approvals: list[ApprovalRule] = field_of(default_factory=list)
    state_limits: StateLimits = field_of(default_factory=lambda: StateLimits.from_json({'keys': 1000, 'value_bytes': 65536, 'total_bytes': 1048576}))


@dataclass
class HandoffCall(Model):
    """A handoff: the anchor to be written.

    name: Name of the anchor.
    state: State that the context starts from.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["name"])

    name: str
    state: JsonObject = field_of(default_factory=dict)


@dataclass
class HistoryHandles(Model):
    """Handles to the history of the conversation.

    tape: Tape of the session.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["tape"])

    tape: TapeName


@dataclass
class HistoryMessage(Model):
    """A message of the dialogue.

    entry: Entry of the message on the tape.
    role: Author of the message: the user or the assistant.
    text: Text of the message; parts that are not text are omitted.
    date: Date of the entry.
    run_id: Run that ingested or wrote the message.
    content: Content of the message, with its images and other parts.
    events: Events that the message was built from, in order: several if they were combined into one turn. Empty for
        messages of the assistant, and for messages from before the host recorded them.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["date", "entry", "role", "text"])

    entry: EntryId
    role: MessageRole
    text: str
    date: str
    run_id: Optional[RunId] = None
    content: Content = ""
    events: list[MessageEvent] = field_of(default_factory=list)


@dataclass
class HistoryMessagePage(Model):
    """A page of a list, and the cursor of the next one.

    items: Items of the page.
    next: Cursor of the next page, for the same list and the same method; none at the end. Opaque.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["items"])

    items: list[HistoryMessage]
    next: Optional[str] = None


@dataclass
class HistorySearchCall(Model):
    """Request for the newest messages that contain a text.

    session: Session to search; absent: the run's own. Another session needs a grant for the workspace.
    text: The text.
    limit: Maximum number of messages, at least 1.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["limit", "text"])

    text: str
    limit: int
    session: Optional[SessionId] = None


@dataclass
class KnowledgeBase(Model):
    """A knowledge base that a run may query.

    id: Id of the knowledge base.
    description: Subject of the knowledge base, for people and models.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["description", "id"])

    id: str
    description: str


@dataclass
class KnowledgeOperationAccessFields(Model):
    """Type KnowledgeOperationAccessFields."""

    names: Optional[AllowList] = None
    operations: Optional[list[KnowledgeOperation]] = None


@dataclass
class KnowledgePassage(Model):
    """A passage of a knowledge base.

    source: Source of the passage, such as a file, by a name within the knowledge base.
    line: First line of the passage, where the source has lines.
    text: The text.
    score: Relevance, on a scale of the knowledge base: higher is better.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["score", "source", "text"])

    source: str
    text: str
    score: float
    line: Optional[int] = None


@dataclass
class KnowledgePassagePage(Model):
    """A page of a list, and the cursor of the next one.

    items: Items of the page.
    next: Cursor of the next page, for the same list and the same method; none at the end. Opaque.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["items"])

    items: list[KnowledgePassage]
    next: Optional[str] = None


@dataclass
class MessageEvent(Model):
    """Event that a message was built from: who said what, without the additions of the prompt.

    event_id: Id of the event.
    actor: Originator of the event.
    thread_id: Thread within the chat.
    text: Text of the event itself.
    contents: Further parts of the event: images and other attachments.
    attachments: Those with inline content, as artifacts, if the grant covers artifacts.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["event_id", "text"])

    event_id: EventId
    text: str
    actor: Optional[ActorRef] = None
    thread_id: Optional[str] = None
    contents: list[ContentPart] = field_of(default_factory=list)
    attachments: list[Artifact] = field_of(default_factory=list)


@dataclass
class ModelCall(Model):
    """Request to a model.

    model: Model to ask; absent: the host's default model.
    system: System prompt; empty for none.
    messages: The conversation.
    tools: Tools that the model may call.
    options: Options of the call; absent ones are those of the host.
    fallbacks: Models to try, in order, if the model fails before the first token of its reply; absent: those of the
        host.
    """

    model: Optional[ModelId] = None
    system: str = ""
    messages: list[ChatMessage] = field_of(default_factory=list)
    tools: list[ToolSpec] = field_of(default_factory=list)
    options: Optional[ModelOptions] = None
    fallbacks: Optional[list[ModelId]] = None


@dataclass
class ModelChoiceCall(Model):
    """Choice of the session's model.

    model: Model of the session from the next call on; absent: the host's default model.
    """

    model: Optional[ModelId] = None


@dataclass
class ModelDirectory(Model):
    """Models that a run may ask.

    default: Model for calls that name none, if the grant covers it.
    models: Configured models, the default one first.
    providers: Names of the providers.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["models", "providers"])

    models: list[ModelId]
    providers: list[str]
    default: Optional[ModelId] = None


@dataclass
class ModelEventProviderMeta(Model):
    """Opaque provider data that later requests must include with this message."""

    _required_: ClassVar[frozenset[str]] = frozenset(["data", "type"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("type", "provider_meta")

    data: JsonObject
    type: Literal["provider_meta"] = field_of(default="provider_meta", kw_only=True)


@dataclass
class ModelEventReasoning(Model):
    """Next piece of the reasoning."""

    _required_: ClassVar[frozenset[str]] = frozenset(["data", "type"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("type", "reasoning")

    data: str
    type: Literal["reasoning"] = field_of(default="reasoning", kw_only=True)


@dataclass
class ModelEventStop(Model):
    """The answer is complete."""

    _required_: ClassVar[frozenset[str]] = frozenset(["type"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("type", "stop")

    type: Literal["stop"] = field_of(default="stop", kw_only=True)


@dataclass
class ModelEventText(Model):
    """Next piece of the text."""

    _required_: ClassVar[frozenset[str]] = frozenset(["data", "type"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("type", "text")

    data: str
    type: Literal["text"] = field_of(default="text", kw_only=True)


@dataclass
class ModelEventToolCall(Model):
    """A complete tool call."""

    _required_: ClassVar[frozenset[str]] = frozenset(["data", "type"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("type", "tool_call")

    data: ToolCall
    type: Literal["tool_call"] = field_of(default="tool_call", kw_only=True)


@dataclass
class ModelEventTruncated(Model):
    """The answer reached the token limit and is incomplete. A tool call whose arguments are not a JSON object was
    cut off and must not be made.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["type"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("type", "truncated")

    type: Literal["truncated"] = field_of(default="truncated", kw_only=True)


@dataclass
class ModelEventUsage(Model):
    """Tokens that the call used."""

    _required_: ClassVar[frozenset[str]] = frozenset(["data", "type"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("type", "usage")

    data: Usage
    type: Literal["usage"] = field_of(default="usage", kw_only=True)


@dataclass
class ModelOperationAccessFields(Model):
    """Type ModelOperationAccessFields."""

    names: Optional[AllowList] = None
    operations: Optional[list[ModelOperation]] = None


@dataclass
class ModelOptions(Model):
    """Options of a model call; the provider decides about absent ones.

    max_tokens: Maximum number of tokens in the output.
    reasoning: Reasoning effort before the answer.
    temperature: Sampling temperature.
    top_p: Probability mass of the tokens to sample from.
    stop: Texts that end the output.
    timeout_seconds: Maximum duration of the whole call, in seconds.
    body: Further keys of the request body. A key that the host sets itself keeps the host's value.
    """

    max_tokens: Optional[int] = None
    reasoning: Optional[Reasoning] = None
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    stop: list[str] = field_of(default_factory=list)
    timeout_seconds: Optional[int] = None
    body: JsonObject = field_of(default_factory=dict)


@dataclass
class ModelOutput(Model):
    """Complete output of a model call, collected from its stream.

    text: Text of the answer.
    tool_calls: Tool calls that the model requests.
    usage: Token usage, as far as the provider reported it.
    provider_meta: Opaque provider data that later requests must include with this message.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["text"])

    text: str
    tool_calls: list[ToolCall] = field_of(default_factory=list)
    usage: Optional[Usage] = None
    provider_meta: JsonObject = field_of(default_factory=dict)


@dataclass
class ModelRequest(Model):
    """Request to a model.

    model: Model to call.
    system: System prompt; empty for none.
    messages: The conversation.
    tools: Tools that the model may call.
    options: Options of the call.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["messages", "model"])

    model: ModelId
    messages: list[ChatMessage]
    system: str = ""
    tools: list[ToolSpec] = field_of(default_factory=list)
    options: ModelOptions = field_of(default_factory=lambda: ModelOptions())


@dataclass
class NewArtifact(Model):
    """Content to be stored as an artifact.

    name: Name for people: a file name without a path.
    media_type: Media type of the content.
    content: The content; base64 in JSON.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["content", "media_type", "name"])

    name: str
    media_type: str
    content: Bytes


@dataclass
class NoteCall(Model):
    """An event to be written that no view shows.

    name: Name of the event.
    data: Data of the event.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["data", "name"])

    name: str
    data: JsonValue


@dataclass
class OutboundMessage(Model):
    """Final message for a chat.

    session_id: Session of the message.
    channel: Channel that sends the message.
    chat_id: Chat that receives the message.
    kind: Reply, or notice of a failure.
    content: Content of the message.
    reply_to: Id of the message that this one replies to.
    metadata: Further data for the channel.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["channel", "chat_id", "content", "session_id"])

    session_id: SessionId
    channel: ChannelName
    chat_id: ChatId
    content: Content
    kind: OutboundKind = "reply"
    reply_to: Optional[str] = None
    metadata: JsonObject = field_of(default_factory=dict)


@dataclass
class OutboxStatusHeld(Model):
    """Held for the operator: it waited too long, or may have been sent after the backup that was restored.

    reason: Reason for holding the message.
    fate_unknown: An earlier attempt may have succeeded.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["reason", "status"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("status", "held")

    reason: str
    status: Literal["held"] = field_of(default="held", kw_only=True)
    fate_unknown: bool = False


@dataclass
class OutboxStatusNoted(Model):
    """Held message or dead letter that the operator dropped, or dead letter that `capstan doctor --repair`
    acknowledged.

    reason: Reason why the message was held or given up.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["reason", "status"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("status", "noted")

    reason: str
    status: Literal["noted"] = field_of(default="noted", kw_only=True)


@dataclass
class OutboxStatusSent(Model):
    """Accepted by the channel.

    possible_duplicate: The message may have been sent more than once.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["status"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("status", "sent")

    status: Literal["sent"] = field_of(default="sent", kw_only=True)
    possible_duplicate: bool = False


@dataclass
class OutboxStatusUndelivered(Model):
    """Dead letter: no longer retried; its text stays on the tape.

    reason: Reason why the message was given up, such as an error of the channel.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["reason", "status"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("status", "undelivered")

    reason: str
    status: Literal["undelivered"] = field_of(default="undelivered", kw_only=True)


@dataclass
class OutboxStatusWaiting(Model):
    """Waiting for its next attempt.

    attempts: Number of attempts so far.
    fate_unknown: An earlier attempt may have succeeded.
    reason: Failure of the last attempt.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["status"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("status", "waiting")

    status: Literal["waiting"] = field_of(default="waiting", kw_only=True)
    attempts: int = 0
    fate_unknown: bool = False
    reason: Optional[str] = None


@dataclass
class OutcomeCancelled(Model):
    """The run was cancelled."""

    _required_: ClassVar[frozenset[str]] = frozenset(["outcome"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("outcome", "cancelled")

    outcome: Literal["cancelled"] = field_of(default="cancelled", kw_only=True)


@dataclass
class OutcomeDropped(Model):
    """Dropped by admission."""

    _required_: ClassVar[frozenset[str]] = frozenset(["outcome"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("outcome", "dropped")

    outcome: Literal["dropped"] = field_of(default="dropped", kw_only=True)


@dataclass
class OutcomeFailed(Model):
    """The turn failed and the user was notified.

    notice: Text of the notice.
    code: Stable code of the failure, if there is one.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["notice", "outcome"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("outcome", "failed")

    notice: str
    outcome: Literal["failed"] = field_of(default="failed", kw_only=True)
    code: Optional[str] = None


@dataclass
class OutcomeFolded(Model):
    """Folded into the run of another event.

    run_id: Run that ingested the event.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["outcome", "run_id"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("outcome", "folded")

    run_id: RunId
    outcome: Literal["folded"] = field_of(default="folded", kw_only=True)


@dataclass
class OutcomeReplied(Model):
    """The turn ended with a reply.

    text: Text of the reply.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["outcome", "text"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("outcome", "replied")

    text: str
    outcome: Literal["replied"] = field_of(default="replied", kw_only=True)


@dataclass
class OutcomeSilent(Model):
    """The turn ended without a reply."""

    _required_: ClassVar[frozenset[str]] = frozenset(["outcome"])
    _tag_: ClassVar[Optional[tuple[str, str]]] = ("outcome", "silent")

    outcome: Literal["silent"] = field_of(default="silent", kw_only=True)


@dataclass
class PageRequest(Model):
    """Request for a page of the history or of the event log.

    session: Session to read; absent: the run's own. Another session needs a grant for the workspace.
    order: Order of the list.
    cursor: `next` of the previous page; absent: the first page.
    limit: Maximum number of items, at least 1.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["limit"])

    limit: int
    session: Optional[SessionId] = None
    order: EntryOrder = "oldest_first"
    cursor: Optional[str] = None


@dataclass
class PermissionSet(Model):
    """Set of permissions: those that a runner requests, those that a binding allows, or those that a run has.

    models: Models, by `provider:name`.
    tools: Tools, by name.
    knowledge_bases: Knowledge bases, by id.
    history: Conversation history.
    events: Event log.
    reach: Range of history and events.
    artifacts: Artifacts of the session.
    state: State stored by the host.
    storage: Content stored by the host.
    platform_api: Platform actions, by name.
    tape: Tape of the session.
    prompt: System prompt and continuation prompt of the host, and the prompt built from the event.
    children: Child runs.
    steering: Messages that arrive during the run.
    """

    models: ModelOperationAccess = field_of(default_factory=lambda: {'names': {'only': []}, 'operations': []})
    tools: ToolOperationAccess = field_of(default_factory=lambda: {'names': {'only': []}, 'operations': []})
    knowledge_bases: KnowledgeOperationAccess = field_of(default_factory=lambda: {'names': {'only': []}, 'operations': []})
    history: list[HistoryOperation] = field_of(default_factory=list)
    events: list[EventOperation] = field_of(default_factory=list)
    reach: ReadScope = "conversation"
    artifacts: list[ArtifactOperation] = field_of(default_factory=list)
    state: list[StateScope] = field_of(default_factory=list)
    storage: list[StorageArea] = field_of(default_factory=list)
    platform_api: AllowList = field_of(default_factory=lambda: {'only': []})
    tape: TapeAccess = "none"
    prompt: bool = False
    children: bool = False
    steering: bool = False


@dataclass
class PluginRef(Model):
    """Reference from a runner to its plugin.

    author: Author of the plugin.
    name: Name of the plugin.
    version: Version of the plugin.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["author", "name"])

    author: str
    name: str
    version: Optional[str] = None


@dataclass
class RawPayloadCall(Model):
    """Request for a range of the raw payload of an event.

    id: Id of the event, at the source of the run's own event.
    offset: First byte of the range.
    limit: Maximum length of the range.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["id", "limit"])

    id: EventId
    limit: int
    offset: int = 0


@dataclass
class RawPayloadPart(Model):
    """A range of the raw payload of an event.

    bytes: Size of the whole payload.
    offset: First byte of the range.
    content: The range, base64 in JSON. Shorter than the limit where the payload ends.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["bytes", "content", "offset"])

    bytes: int
    offset: int
    content: Bytes


@dataclass
class RawPayloadRef(Model):
    """Reference to the platform's own payload in the store: part of the acceptance record if it is short, otherwise
    a blob.

    blob: Hash of the payload.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["blob"])

    blob: BlobHash


@dataclass
class RerankCall(Model):
    """Texts to be ranked by relevance to a query.

    model: Model to ask; absent: the host's default model.
    query: The query.
    documents: The texts.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["query"])

    query: str
    model: Optional[ModelId] = None
    documents: list[str] = field_of(default_factory=list)


@dataclass
class RerankScore(Model):
    """Relevance of one text.

    index: Position of the text in the request, from 0.
    score: Relevance: higher is better.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["index", "score"])

    index: int
    score: float


@dataclass
class ResetCall(Model):
    """Request for a new generation of the tape.

    archive: Mark the old generation as archived.
    """

    archive: bool = False


@dataclass
class RetrieveCall(Model):
    """A query to a knowledge base.

    base: Id of the knowledge base.
    question: Text of the question.
    cursor: `next` of the previous page; absent: the first page.
    limit: Maximum number of passages, at least 1.
    sources: Sources to search, by name; a final `*` matches the rest of a name. Empty: all.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["base", "limit", "question"])

    base: str
    question: str
    limit: int
    cursor: Optional[str] = None
    sources: list[str] = field_of(default_factory=list)


@dataclass
class RetrievedPage(Model):
    """A page of passages.

    passages: The passages, best first. If the base has changed since the previous page, passages may be repeated or
        missing.
    left_out: Parts of the base that were not searched, with the reason; absent if the whole base was searched.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["passages"])

    passages: KnowledgePassagePage
    left_out: Optional[str] = None


@dataclass
class RunCancelCall(Model):
    """Request to cancel a child run.

    run_id: The child run.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["run_id"])

    run_id: RunId


@dataclass
class RunContext(Model):
    """Context of a run. It has the event but no message history, only handles to request the history.

    run_id: Id of the run.
    trigger: Reason of the run.
    event: Event that the run serves.
    conversation: Conversation of the event.
    actor: Originator of the event.
    subject: Target of the event.
    input: Text and attachments of the event.
    attachments: Attachments with inline content of the events that the run serves, as artifacts: `artifacts.read`
        returns their content.
    delivery: Destination of replies.
    resources: Resources that the run may use.
    context: Handles to the history.
    state: Stored state of the runner when the run began, by scope: an object of keys and values for each scope that
        the grant covers.
    turn_state: Values of the `load_state` hooks, if the grant covers the prompts of the host.
    runtime: Facts about the running host.
    config: Configuration of the runner, from the binding.
    adapter: Results of the host's hooks for this event.
    metadata: Further data.
    """

    _required_: ClassVar[frozenset[str]] = frozenset([
        "context", "conversation", "delivery", "event", "input", "resources", "run_id", "runtime", "trigger",
    ])

    run_id: RunId
    trigger: RunTrigger
    event: Event
    conversation: ConversationContext
    input: EventInput
    delivery: DeliveryTarget
    resources: RunResources
    context: HistoryHandles
    runtime: RuntimeContext
    actor: Optional[ActorRef] = None
    subject: Optional[SubjectRef] = None
    attachments: list[Artifact] = field_of(default_factory=list)
    state: JsonObject = field_of(default_factory=dict)
    turn_state: JsonObject = field_of(default_factory=dict)
    config: JsonObject = field_of(default_factory=dict)
    adapter: AdapterContext = field_of(default_factory=lambda: AdapterContext())
    metadata: JsonObject = field_of(default_factory=dict)


@dataclass
class RunEventsCall(Model):
    """Request for the events of a run.

    run_id: The run.
    cursor: `next` of the previous page; absent: the first page.
    limit: Maximum number of tape entries that the page covers, at least 1.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["limit", "run_id"])

    run_id: RunId
    limit: int
    cursor: Optional[str] = None


@dataclass
class RunGetCall(Model):
    """Request for a run of the ledger.

    run_id: The run.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["run_id"])

    run_id: RunId


@dataclass
class RunListCall(Model):
    """Request for a page of the runs of the session.

    cursor: `next` of the previous page; absent: the first page.
    limit: Maximum number of runs, at least 1.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["limit"])

    limit: int
    cursor: Optional[str] = None


@dataclass
class RunResources(Model):
    """Resources that a run may use.

    grant: Grant of the run, which does not change.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["grant"])

    grant: Grant


@dataclass
class RunSummary(Model):
    """A run, as recorded in the ledger.

    run_id: Id of the run.
    parent: Run that started this one, for a child run.
    event: Event that the run serves.
    runner: Its runner.
    binding: Its binding.
    status: `created`, `running`, `completed`, `failed`, `cancelled`, `timeout` or `interrupted`.
    started_at: Start time.
    ended_at: End time, once the run has ended.
    usage: Tokens that the run used, as far as known.
    """

    _required_: ClassVar[frozenset[str]] = frozenset([
        "binding", "event", "run_id", "runner", "started_at", "status",
    ])

    run_id: RunId
    event: EventKey
    runner: RunnerId
    binding: BindingId
    status: str
    started_at: Timestamp
    parent: Optional[RunId] = None
    ended_at: Optional[Timestamp] = None
    usage: Optional[Usage] = None


@dataclass
class RunSummaryPage(Model):
    """A page of a list, and the cursor of the next one.

    items: Items of the page.
    next: Cursor of the next page, for the same list and the same method; none at the end. Opaque.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["items"])

    items: list[RunSummary]
    next: Optional[str] = None


@dataclass
class RunTrigger(Model):
    """Reason of a run.

    type: Type of the event.
    binding_id: Binding that matched the event.
    origin: Trust in the source of the event, assigned by the host.
    accepted_at: Time at which the host accepted the event.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["binding_id", "type"])

    type: str
    binding_id: BindingId
    origin: Optional[EventOrigin] = None
    accepted_at: Optional[Timestamp] = None


@dataclass
class RunnerCapabilities(Model):
    """Capabilities that a runner declares.

    streaming: Emits `message.delta`.
    tool_calling: Calls tools.
    knowledge_retrieval: Queries knowledge bases.
    event_context: Serves events that are not messages.
    platform_api: Requests platform actions.
    interrupt: Ends promptly after cancellation.
    stateful_session: Keeps information about a conversation across runs.
    host_state: Use of state that the host stores.
    interactions: Asks the user questions during a run.
    multimodal_input: Reads images and other content parts.
    self_managed_context: Manages its own context: the host passes the event and handles, but no history.
    steering: Fetches messages that arrive during a run.
    effects_through_host: Has all its effects through the host, so that a run interrupted by a crash can be resumed.
    """

    streaming: bool = False
    tool_calling: bool = False
    knowledge_retrieval: bool = False
    event_context: bool = False
    platform_api: bool = False
    interrupt: bool = False
    stateful_session: bool = False
    host_state: HostStateRequirement = "none"
    interactions: bool = False
    multimodal_input: bool = False
    self_managed_context: bool = False
    steering: bool = False
    effects_through_host: bool = False


@dataclass
class RuntimeContext(Model):
    """Facts about the running host.

    workspace: Workspace directory.
    started_at: Start time of the run.
    deadline: Time at which the run must have ended.
    max_steps: Maximum number of model calls of the run, including those of its child runs.
    version: Version of the host.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["started_at", "workspace"])

    workspace: str
    started_at: Timestamp
    deadline: Optional[Timestamp] = None
    max_steps: Optional[int] = None
    version: Optional[str] = None


@dataclass
class SayCall(Model):
    """A message with the role `user` to be written.

    content: Content of the message.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["content"])

    content: Content


@dataclass
class StateEntry(Model):
    """A stored value and its key.

    key: The key.
    value: The value.
    at: Time of the last write.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["at", "key", "value"])

    key: str
    value: JsonValue
    at: Timestamp


@dataclass
class StateEntryPage(Model):
    """A page of a list, and the cursor of the next one.

    items: Items of the page.
    next: Cursor of the next page, for the same list and the same method; none at the end. Opaque.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["items"])

    items: list[StateEntry]
    next: Optional[str] = None


@dataclass
class StateKeyCall(Model):
    """A key of a scope, to be read or removed.

    scope: Scope of the state.
    key: The key.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["key", "scope"])

    scope: StateScope
    key: str


@dataclass
class StateLimits(Model):
    """Limits of the state that a runner may store in one scope.

    keys: Maximum number of keys.
    value_bytes: Maximum size of one value, as JSON.
    total_bytes: Maximum size of all keys and values together.
    """

    keys: int = 1000
    value_bytes: int = 65536
    total_bytes: int = 1048576


@dataclass
class StateListCall(Model):
    """Request for a page of the keys and values of a scope.

    scope: Scope of the state.
    cursor: `next` of the previous page; absent: the first page.
    limit: Maximum number of keys, at least 1.
    prefix: Prefix of the keys; absent: all keys.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["limit", "scope"])

    scope: StateScope
    limit: int
    cursor: Optional[str] = None
    prefix: str = ""


@dataclass
class StateSetCall(Model):
    """A value to be stored under a key.

    scope: Scope of the state.
    key: The key.
    value: The value; `null` removes the key.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["key", "scope", "value"])

    scope: StateScope
    key: str
    value: JsonValue


@dataclass
class SteeredMessage(Model):
    """A message that arrived during the run.

    prompt: Prompt of the message, as `steering.take` returns it.
    event: Event of the message.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["event", "prompt"])

    prompt: Content
    event: MessageEvent


@dataclass
class StorageEntry(Model):
    """Description of stored content.

    name: The name.
    bytes: Size of the content.
    hash: Hash of the content; equal content is stored once.
    at: Time of the last write.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["at", "bytes", "hash", "name"])

    name: str
    bytes: int
    hash: BlobHash
    at: Timestamp


@dataclass
class StorageEntryPage(Model):
    """A page of a list, and the cursor of the next one.

    items: Items of the page.
    next: Cursor of the next page, for the same list and the same method; none at the end. Opaque.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["items"])

    items: list[StorageEntry]
    next: Optional[str] = None


@dataclass
class StorageListCall(Model):
    """Request for a page of the names of an area.

    area: Area of the storage.
    cursor: `next` of the previous page; absent: the first page.
    limit: Maximum number of names, at least 1.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["area", "limit"])

    area: StorageArea
    limit: int
    cursor: Optional[str] = None


@dataclass
class StorageNameCall(Model):
    """A name of an area, to be read or removed.

    area: Area of the storage.
    name: The name.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["area", "name"])

    area: StorageArea
    name: str


@dataclass
class StoragePutCall(Model):
    """Content to be stored under a name.

    area: Area of the storage.
    name: The name.
    content: The content; base64 in JSON.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["area", "content", "name"])

    area: StorageArea
    name: str
    content: Bytes


@dataclass
class StoredContent(Model):
    """Stored content.

    content: The content; base64 in JSON.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["content"])

    content: Bytes


@dataclass
class SubjectRef(Model):
    """Target of an event: a message, a member, a group.

    type: Type of the target.
    id: Id at the source.
    data: Further data about the target.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["id", "type"])

    type: str
    id: str
    data: JsonObject = field_of(default_factory=dict)


@dataclass
class TapeEntry(Model):
    """An entry of a tape, as a run reads it.

    id: Position on the tape.
    kind: Kind of entry: `message`, `tool_call`, `tool_result`, `event`, `anchor`, `error`, or a kind of another
        system.
    payload: Content of the entry, by its kind.
    meta: Metadata, such as the run that the entry belongs to.
    date: Date of the entry, as stored.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["date", "id", "kind"])

    id: EntryId
    kind: str
    date: str
    payload: JsonValue = None
    meta: JsonObject = field_of(default_factory=dict)


@dataclass
class TapeSearchCall(Model):
    """Request for the newest entries that contain a text.

    text: The text.
    limit: Maximum number of entries.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["limit", "text"])

    text: str
    limit: int


@dataclass
class TapeSummary(Model):
    """Name, head and anchors of a tape.

    name: Name of the tape.
    head: Newest entry.
    anchors: Number of anchors.
    last_anchor: Name of the newest anchor.
    entries_since_last_anchor: Number of entries after the newest anchor.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["anchors", "entries_since_last_anchor", "head", "name"])

    name: TapeName
    head: EntryId
    anchors: int
    entries_since_last_anchor: int
    last_anchor: Optional[str] = None


@dataclass
class TokenCount(Model):
    """Number of tokens of a request.

    tokens: Number of tokens.
    estimated: Estimated from the length of the text, not counted by the model's own tokenizer.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["estimated", "tokens"])

    tokens: int
    estimated: bool


@dataclass
class ToolCall(Model):
    """Tool call, as a model requests it.

    id: Id of the call; a provider may reuse ids.
    type: Always `function`.
    function: Tool and arguments of a call.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["function", "id"])

    id: str
    function: ToolFunction
    type: str = "function"


@dataclass
class ToolDetailCall(Model):
    """Request for the description and schema of a tool.

    name: Name of the tool, or the name that a model was given for it.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["name"])

    name: str


@dataclass
class ToolFunction(Model):
    """Tool and arguments of a call.

    name: Name of the tool, as given to the model.
    arguments: Arguments as JSON text of the model, which may be invalid.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["arguments", "name"])

    name: str
    arguments: str


@dataclass
class ToolOperationAccessFields(Model):
    """Type ToolOperationAccessFields."""

    names: Optional[AllowList] = None
    operations: Optional[list[ToolOperation]] = None


@dataclass
class ToolOutput(Model):
    """Output of a tool.

    content: Content for the model.
    is_error: True if the call failed.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["content"])

    content: Content
    is_error: bool = False


@dataclass
class ToolSpec(Model):
    """Description of a tool, for models and for `help`.

    name: Name of the tool.
    description: Purpose of the tool, in one or two sentences.
    parameters: JSON Schema of the arguments, an object. Shared, because every request contains all schemas.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["description", "name", "parameters"])

    name: ToolName
    description: str
    parameters: JsonValue


@dataclass
class ToolStepCall(Model):
    """Tool calls of one step.

    calls: The calls, in the order of the model.
    """

    _required_: ClassVar[frozenset[str]] = frozenset(["calls"])

    calls: list[ToolCall]


@dataclass
class Usage(Model):
    """Token counts as reported by the provider; an absent count is unknown, not zero.

    prompt_tokens: Number of tokens in the request.
    completion_tokens: Number of tokens in the reply.
    total_tokens: Number of tokens in request and reply.
    """

    prompt_tokens: Optional[int] = None
    completion_tokens: Optional[int] = None
    total_tokens: Optional[int] = None


# One item of the event log.
EventLogItem: TypeAlias = Union[
    EventLogItemInbound,
    EventLogItemOutcome,
    EventLogItemDelivery,
    EventLogItemActivity,
    OtherVariant,
]


# One event of a model's answer.
ModelEvent: TypeAlias = Union[
    ModelEventText,
    ModelEventReasoning,
    ModelEventToolCall,
    ModelEventUsage,
    ModelEventProviderMeta,
    ModelEventTruncated,
    ModelEventStop,
    OtherVariant,
]


# Delivery status of a message in the outbox.
OutboxStatus: TypeAlias = Union[
    OutboxStatusWaiting,
    OutboxStatusSent,
    OutboxStatusUndelivered,
    OutboxStatusHeld,
    OutboxStatusNoted,
    OtherVariant,
]


# Final result of an accepted event. Every event is settled with exactly one.
Outcome: TypeAlias = Union[
    OutcomeReplied,
    OutcomeSilent,
    OutcomeFolded,
    OutcomeDropped,
    OutcomeCancelled,
    OutcomeFailed,
    OtherVariant,
]


__all__ = [
    "ActionRequest",
    "ActionSpec",
    "ActorRef",
    "AdapterContext",
    "AdmissionMode",
    "AllowList",
    "AnchorsCall",
    "ApiError",
    "ApiErrorCode",
    "ApprovalDecision",
    "ApprovalRule",
    "Artifact",
    "ArtifactDescribeCall",
    "ArtifactId",
    "ArtifactListCall",
    "ArtifactOperation",
    "ArtifactPage",
    "ArtifactPart",
    "ArtifactReadCall",
    "BindingId",
    "BlobHash",
    "ChannelName",
    "ChatId",
    "ChatMessage",
    "ChildRunCall",
    "ChildRunOutcome",
    "ChildSession",
    "CommandAccess",
    "CommandCall",
    "CommandRefusalCall",
    "Content",
    "ContentPart",
    "ContinuationCall",
    "ConversationContext",
    "ConversationKind",
    "DeliveryTarget",
    "EntryId",
    "EntryOrder",
    "Event",
    "EventGetCall",
    "EventId",
    "EventInput",
    "EventKey",
    "EventLogItem",
    "EventLogItemActivity",
    "EventLogItemDelivery",
    "EventLogItemInbound",
    "EventLogItemOutcome",
    "EventLogItemPage",
    "EventOperation",
    "EventOrigin",
    "EventRecord",
    "EventTimeForm",
    "ForkCall",
    "ForkSummary",
    "Grant",
    "HandoffCall",
    "HistoryHandles",
    "HistoryMessage",
    "HistoryMessagePage",
    "HistoryOperation",
    "HistorySearchCall",
    "HostStateRequirement",
    "KnowledgeBase",
    "KnowledgeOperation",
    "KnowledgeOperationAccess",
    "KnowledgeOperationAccessFields",
    "KnowledgePassage",
    "KnowledgePassagePage",
    "LocalizedText",
    "MessageEvent",
    "MessageRole",
    "ModelCall",
    "ModelChoiceCall",
    "ModelDirectory",
    "ModelEvent",
    "ModelEventProviderMeta",
    "ModelEventReasoning",
    "ModelEventStop",
    "ModelEventText",
    "ModelEventToolCall",
    "ModelEventTruncated",
    "ModelEventUsage",
    "ModelId",
    "ModelOperation",
    "ModelOperationAccess",
    "ModelOperationAccessFields",
    "ModelOptions",
    "ModelOutput",
    "ModelRequest",
    "NewArtifact",
    "NoteCall",
    "OutboundKind",
    "OutboundMessage",
    "OutboxStatus",
    "OutboxStatusHeld",
    "OutboxStatusNoted",
    "OutboxStatusSent",
    "OutboxStatusUndelivered",
    "OutboxStatusWaiting",
    "Outcome",
    "OutcomeCancelled",
    "OutcomeDropped",
    "OutcomeFailed",
    "OutcomeFolded",
    "OutcomeReplied",
    "OutcomeSilent",
    "PageRequest",
    "PermissionSet",
    "PluginRef",
    "RawPayloadCall",
    "RawPayloadPart",
    "RawPayloadRef",
    "ReadScope",
    "Reasoning",
    "RerankCall",
    "RerankScore",
    "ResetCall",
    "RetrieveCall",
    "RetrievedPage",
    "RunCancelCall",
    "RunContext",
    "RunEventsCall",
    "RunGetCall",
    "RunId",
    "RunListCall",
    "RunResources",
    "RunSummary",
    "RunSummaryPage",
    "RunTrigger",
    "RunnerCapabilities",
    "RunnerId",
    "RunnerSource",
    "RuntimeContext",
    "SayCall",
    "SessionId",
    "StateEntry",
    "StateEntryPage",
    "StateKeyCall",
    "StateLimits",
    "StateListCall",
    "StateScope",
    "StateSetCall",
    "SteeredMessage",
    "StorageArea",
    "StorageEntry",
    "StorageEntryPage",
    "StorageListCall",
    "StorageNameCall",
    "StoragePutCall",
    "StoredContent",
    "SubjectRef",
    "TapeAccess",
    "TapeEntry",
    "TapeName",
    "TapeSearchCall",
    "TapeSummary",
    "Timestamp",
    "TokenCount",
    "ToolCall",
    "ToolDetailCall",
    "ToolFunction",
    "ToolName",
    "ToolOperation",
    "ToolOperationAccess",
    "ToolOperationAccessFields",
    "ToolOutput",
    "ToolSpec",
    "ToolStepCall",
    "Usage",
    "WorkspaceId",
]
