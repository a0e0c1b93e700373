"""Arguments and answers of hooks."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from .codec import JsonObject, Model
from .models import Content, Event, ModelOutput, ModelRequest, OutboundMessage, ToolOutput


@dataclasses.dataclass(eq=False, repr=False)
class InboundMessage(Model):
    """A message that entered the host, as hooks see it."""

    event: Event = dataclasses.field(default_factory=lambda: Event("", "", ""))
    origin: str = "remote"
    accepted_at: Optional[str] = None


@dataclasses.dataclass(eq=False, repr=False)
class ToolCallRequest(Model):
    """A tool call that the host is about to make, or has made."""

    name: str = ""
    arguments: JsonObject = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False, repr=False)
class ModelOutcome(Model):
    """End of a model call: its output, or its error."""

    output: Optional[ModelOutput] = None
    error: Optional[str] = None


@dataclasses.dataclass(eq=False, repr=False)
class TurnError(Model):
    """An error of a turn: `detail` for the log, `public` for people."""

    detail: str = ""
    public: str = ""


class TurnHandle:
    """Effects of a hook on its turn, committed with the turn. The plugin needs the permissions for them."""

    def __init__(self) -> None:
        self.effects: list[JsonObject] = []

    def note(self, name: str, data: Any) -> None:
        """Writes an event that no view shows."""
        self.effects.append({"type": "note", "name": name, "data": data})

    def anchor(self, name: str, state: Optional[JsonObject] = None) -> None:
        """Writes an anchor, with a state for the next phase."""
        self.effects.append({"type": "anchor", "name": name, "state": state or {}})

    def send(self, channel: str, chat_id: str, content: Content) -> None:
        """Sends a message."""
        self.effects.append({"type": "send", "channel": channel, "chat_id": chat_id, "content": content})


class UserNotice:
    """The message for the user about an error. `text` is empty until it is set."""

    def __init__(self) -> None:
        self.text = ""


@dataclasses.dataclass
class HookAnswer:
    """The full answer of a hook, for what a plain value cannot say.

    value: as the plain value; None: no answer, the next plugin is asked.
    state: patch of the turn state; None removes a key.
    effects: as the methods of `TurnHandle` make them.
    notice: of `on_error`, the message for the user.
    stage: of `dispatch_outbound`, put the message into the outbox.
    """

    value: Any = None
    state: Optional[JsonObject] = None
    effects: list[JsonObject] = dataclasses.field(default_factory=list)
    notice: Optional[str] = None
    stage: Optional[bool] = None


def proceed(arguments: JsonObject) -> JsonObject:
    """Answer of `before_tool_call`: make the call with these arguments."""
    return {"proceed": arguments}


def replace_call(output: ToolOutput) -> JsonObject:
    """Answer of `before_tool_call`: this is the output, make no call."""
    return {"replace": output.to_json()}


def deny(reason: str) -> JsonObject:
    """Answer of `before_tool_call`: make no call, the model reads the reason."""
    return {"deny": reason}


def change_request(request: ModelRequest) -> JsonObject:
    """Answer of `before_llm_call`: send this request instead."""
    return {"change": request.to_json()}


def finish_request(output: ModelOutput) -> JsonObject:
    """Answer of `before_llm_call`: this is the output, ask no model."""
    return {"finish": output.to_json()}


def render_messages(messages: list[OutboundMessage]) -> JsonObject:
    """Answer of `render_outbound`: send these messages."""
    return {"messages": [message.to_json() for message in messages]}


def stay_silent() -> JsonObject:
    """Answer of `render_outbound`: send nothing."""
    return {"silent": True}


def decode_argument(hook: str, name: str, value: Any) -> Any:
    """A hook argument as its type. `state` stays a dict, contents stay as they are."""
    if value is None:
        return TurnHandle() if name == "handle" else UserNotice() if name == "notice" else None
    if name == "message" and hook == "dispatch_outbound":
        return OutboundMessage.from_json(value, name)
    if name in ("message", "inbound"):
        return InboundMessage.from_json(value, name)
    if name == "request":
        return ModelRequest.from_json(value, name)
    if name == "call":
        return ToolCallRequest.from_json(value, name)
    if name == "outcome":
        return (ModelOutcome if hook == "after_llm_call" else ToolOutput).from_json(value, name)
    if name == "error":
        return TurnError.from_json(value, name)
    if name == "handle":
        return TurnHandle()
    if name == "notice":
        return UserNotice()
    return value
