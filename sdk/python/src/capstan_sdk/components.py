"""Base classes of what a plugin contributes."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import uuid
from typing import Any, AsyncIterator, Awaitable, Callable, Optional, Union

from .codec import JsonObject
from .contexts import AgentRunContext
from .errors import ChannelStoppedError, DeliveryError
from .models import ActorRef, Event, EventInput, KnowledgePassage, OutboundMessage
from .results import AgentRunResult

Submit = Callable[[Event, Optional[bytes]], Awaitable[None]]


class AgentRunner(abc.ABC):
    """A runner: it serves events. One instance serves all runs of all bindings, many at the same time.

    Capabilities, permissions and the schema of the configuration are in the manifest.
    """

    @abc.abstractmethod
    def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
        """Yields the results of a run. Implement it as `async def` with `yield`.

        The SDK adds `run.completed` at the end, and makes `run.failed` of an exception.
        """


class FunctionRunner(AgentRunner):
    """A runner that is one asynchronous generator function."""

    def __init__(self, function: Callable[[AgentRunContext], AsyncIterator[AgentRunResult]]) -> None:
        self._function = function

    def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
        return self._function(ctx)


class Channel:
    """A channel: it turns messages of a platform into events, and sends messages to the platform.

    The SDK calls `start`, then `run` for as long as the channel listens, and `stop` at the end; `send` at any time
    between.
    """

    name: str = ""
    settings: JsonObject = {}
    _submit: Optional[Submit] = None

    async def start(self) -> None:
        """Connects to the platform. The channel listens when this returns; an exception is reported to the host."""

    async def run(self) -> None:
        """Receives messages and passes them to `submit`, until the channel ends.

        An exception ends the channel, and the host starts it again later. This default waits: for channels whose
        messages arrive in callbacks.
        """
        await asyncio.Event().wait()

    async def send(self, message: OutboundMessage) -> None:
        """Sends a message; returns when the platform has taken it.

        Raises `DeliveryError`; any other exception counts as `unknown`: the message may have been sent.
        """
        raise DeliveryError("permanent", f"the channel {self.name} sends no messages")

    async def stop(self) -> None:
        """Disconnects from the platform. Submitted events are still accepted; `run` is cancelled afterwards."""

    async def submit(self, event: Event, raw: Optional[bytes] = None) -> None:
        """Passes an event to the host, and returns when it is durable: acknowledge the platform after that.

        Waits while the host takes no more events of this channel. `raw` is the payload of the platform. Raises
        `EventRefusedError`, and `ChannelStoppedError` when the channel is being stopped. When the connection breaks,
        submit the event again with the same `event_id`.
        """
        if self._submit is None:
            raise ChannelStoppedError(f"the channel {self.name} is not started")
        await self._submit(event, raw)

    def message(
        self,
        text: str,
        *,
        conversation_id: str,
        event_id: Optional[str] = None,
        actor: Union[ActorRef, str, None] = None,
        contents: Optional[list[JsonObject]] = None,
        **fields: Any,
    ) -> Event:
        """An event for a message. Without an `event_id` of the platform a random one is made.

        `fields` are further ones of `Event`.
        """
        return Event(
            event_id=event_id or str(uuid.uuid4()),
            event_type="message.received",
            source=self.name,
            conversation_id=conversation_id,
            actor=ActorRef(id=actor) if isinstance(actor, str) else actor,
            input=EventInput(text=text, contents=contents or []),
            **fields,
        )


@dataclasses.dataclass(frozen=True)
class KnowledgeQuery:
    """A search in a knowledge source: the passages `offset` to `offset + limit`, best first."""

    text: str
    offset: int
    limit: int


@dataclasses.dataclass
class KnowledgeAnswer:
    """Passages, and a text about the parts of the source that were not searched."""

    passages: list[KnowledgePassage]
    skipped: Optional[str] = None
