"""Results of a run: what `AgentRunner.run` yields."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Union

from .codec import JsonObject, encode_json
from .models import Content, StateScope, ToolCall, ToolOutput, Usage


@dataclasses.dataclass
class AgentRunResult:
    """One result of a run. Use the functions of this module to make one."""

    type: str
    data: JsonObject = dataclasses.field(default_factory=dict)
    usage: Optional[Usage] = None
    sequence: Optional[int] = None
    timestamp: Optional[str] = None

    @property
    def is_terminal(self) -> bool:
        """Ends the run: `run.completed` or `run.failed`."""
        return self.type in ("run.completed", "run.failed")

    def to_json(self) -> JsonObject:
        """The result as it is sent."""
        value: JsonObject = {"type": self.type}
        if self.data:
            value["data"] = encode_json(self.data)
        for name in ("usage", "sequence", "timestamp"):
            field = getattr(self, name)
            if field is not None:
                value[name] = encode_json(field)
        return value

    @classmethod
    def from_json(cls, value: JsonObject) -> AgentRunResult:
        """The result of its JSON."""
        usage = value.get("usage")
        return cls(
            type=str(value.get("type", "")),
            data=value.get("data") or {},
            usage=None if usage is None else Usage.from_json(usage, "usage"),
            sequence=value.get("sequence"),
            timestamp=value.get("timestamp"),
        )


def message_delta(delta: str, *, usage: Optional[Usage] = None) -> AgentRunResult:
    """The next piece of a message: the text to append, not the text so far."""
    return AgentRunResult("message.delta", {"delta": delta}, usage)


def reasoning_delta(delta: str, *, usage: Optional[Usage] = None) -> AgentRunResult:
    """The next piece of the reasoning: the text to append."""
    return AgentRunResult("reasoning.delta", {"delta": delta}, usage)


def message_completed(
    content: Content, *, provider_meta: Optional[JsonObject] = None, usage: Optional[Usage] = None
) -> AgentRunResult:
    """A complete message: a text, or a list of parts."""
    data: JsonObject = {"content": content}
    if provider_meta:
        data["provider_meta"] = provider_meta
    return AgentRunResult("message.completed", data, usage)


def tool_call_started(call: ToolCall, *, usage: Optional[Usage] = None) -> AgentRunResult:
    """A call of a tool of the runner itself, for the tape. Tools of the host are called with `ctx.api.tools.call`."""
    return AgentRunResult("tool.call.started", {"call": call}, usage)


def tool_call_completed(call_id: str, name: str, output: Union[ToolOutput, str]) -> AgentRunResult:
    """The output of a call that `tool_call_started` announced."""
    answer = ToolOutput(content=output) if isinstance(output, str) else output
    return AgentRunResult("tool.call.completed", {"call_id": call_id, "name": name, "output": answer})


def state_updated(state: JsonObject, scope: StateScope = "conversation") -> AgentRunResult:
    """Values to store, committed together with the reply that follows; `None` removes a key."""
    return AgentRunResult("state.updated", {"scope": scope, "state": state})


def artifact_created(name: str, media_type: str, content: bytes) -> AgentRunResult:
    """Content to store as an artifact. A later message sends it with `artifact_part(name=...)`."""
    return AgentRunResult("artifact.created", {"name": name, "media_type": media_type, "content": content})


def action_requested(action: str, arguments: Optional[JsonObject] = None) -> AgentRunResult:
    """Request for an action on the platform, such as `message.delete`."""
    return AgentRunResult("action.requested", {"action": action, "arguments": arguments or {}})


def run_completed(*, silent: bool = False, usage: Optional[Usage] = None) -> AgentRunResult:
    """The end of the run. The SDK adds one if the runner returns without it."""
    return AgentRunResult("run.completed", {"silent": True} if silent else {}, usage)


def run_failed(message: str, *, code: Optional[str] = None, usage: Optional[Usage] = None) -> AgentRunResult:
    """The end of a run that failed, with a message for people. The SDK makes one of an exception."""
    data: JsonObject = {"message": message}
    if code is not None:
        data["code"] = code
    return AgentRunResult("run.failed", data, usage)


def text_part(text: str) -> JsonObject:
    """Part of a message: text."""
    return {"type": "text", "text": text}


def image_part(url: str) -> JsonObject:
    """Part of a message: an image at a `data:`, `http:` or `https:` address."""
    return {"type": "image_url", "image_url": {"url": url}}


def artifact_part(*, id: Optional[str] = None, name: Optional[str] = None) -> JsonObject:
    """Part of a message: an artifact of the session by its id, or one of the run itself by its name."""
    if (id is None) == (name is None):
        raise ValueError("artifact_part needs either an id or a name")
    return {"type": "artifact", "artifact": {"id": id} if name is None else {"name": name}}


def content_text(content: Any) -> str:
    """The text of a content: the text parts, one per line; other parts are left out."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
