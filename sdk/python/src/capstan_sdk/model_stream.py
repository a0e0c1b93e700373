"""The output of a model that a run called, as a stream under credit."""

from __future__ import annotations

import asyncio
import collections
from typing import Any, Awaitable, Callable, Optional, cast

from .codec import decoder_of
from .credit import ReceiveCredit, item_cost
from .errors import FAILED, RpcError
from .models import ModelEvent

STREAM_CREDIT = 32

Opener = Callable[[str, int], Awaitable[Any]]


class StreamRegistry:
    """Streams that this side consumes, by name, and how to give their credit back."""

    def __init__(self, give_credit: Callable[[str, int], None]) -> None:
        self._give_credit = give_credit
        self._streams: dict[str, ModelStream] = {}
        self._opened = 0
        self.dropped_items = 0

    def open(self, stream: ModelStream) -> str:
        """A new name for a stream."""
        self._opened += 1
        name = f"stream-{self._opened}"
        self._streams[name] = stream
        return name

    def close(self, name: str) -> None:
        """Drops items that arrive later."""
        self._streams.pop(name, None)

    def give_credit(self, name: str, credit: int) -> None:
        """Gives credit back, if the stream is still open."""
        if name in self._streams:
            self._give_credit(name, credit)

    def receive(self, name: str, item: Any, line_len: int) -> None:
        """Passes an item to its stream; items of unknown streams are dropped and counted."""
        stream = self._streams.get(name)
        if stream is None or not stream.receive(item, item_cost(line_len)):
            self.dropped_items += 1


class ModelStream:
    """Events of a model, in order. Iterate with `async for`; leave early with `aclose()`, or use `async with`.

    The call begins with the first iteration. A consumer that is slow slows only the model that it reads.
    """

    def __init__(self, registry: StreamRegistry, opener: Opener, credit: int = STREAM_CREDIT) -> None:
        self._registry = registry
        self._opener = opener
        self._first_credit = credit
        self._credit = ReceiveCredit(credit)
        self._items: collections.deque[tuple[Any, int]] = collections.deque()
        self._changed = asyncio.Event()
        self._name: Optional[str] = None
        self._request: Optional[asyncio.Future[Any]] = None
        self._is_closed = False
        self._violation: Optional[RpcError] = None

    def __aiter__(self) -> ModelStream:
        return self

    async def __aenter__(self) -> ModelStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def __anext__(self) -> ModelEvent:
        if self._is_closed:
            raise StopAsyncIteration
        if self._request is None:
            self._name = self._registry.open(self)
            self._request = asyncio.ensure_future(self._opener(self._name, self._first_credit))
            self._request.add_done_callback(self._end)
        while not self._items:
            if self._violation is not None:
                self._is_closed = True
                raise self._violation
            if self._request.done():
                self._is_closed = True
                if self._request.cancelled():
                    raise asyncio.CancelledError
                self._request.result()
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        item, cost = self._items.popleft()
        given = self._credit.consume(cost)
        if given and self._name is not None:
            self._registry.give_credit(self._name, given)
        return cast(ModelEvent, decoder_of(ModelEvent)(item, "item"))

    def receive(self, item: Any, cost: int) -> bool:
        """Takes an item that arrived; false if the stream has ended. An item without credit ends it."""
        if self._is_closed or self._violation is not None:
            return False
        if not self._credit.receive(cost):
            self._violation = RpcError(FAILED, "the host sent an item without credit")
            if self._request is not None:
                self._request.cancel()
            self._changed.set()
            return False
        self._items.append((item, cost))
        self._changed.set()
        return True

    async def aclose(self) -> None:
        """Ends the stream: the call of the model is cancelled."""
        self.cancel()
        if self._request is not None:
            await asyncio.wait([self._request])

    def cancel(self) -> None:
        """Ends the stream without waiting."""
        self._is_closed = True
        self._items.clear()
        if self._request is not None and not self._request.done():
            self._request.cancel()

    def _end(self, request: asyncio.Future[Any]) -> None:
        if self._name is not None:
            self._registry.close(self._name)
        if not request.cancelled():
            request.exception()  # raised by the next iteration, if there is one
        self._changed.set()
