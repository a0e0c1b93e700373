"""Flow control: the credit of a stream, on the side that sends and on the side that consumes."""

from __future__ import annotations

import asyncio
import collections

BYTES_PER_CREDIT = 65536
MAX_INITIAL_CREDIT = 1024


def item_cost(line_len: int) -> int:
    """Credit that an item costs: 1, plus 1 for each full 64 KiB of its line."""
    return 1 + line_len // BYTES_PER_CREDIT


class StreamClosedError(Exception):
    """The stream has ended: the item is not sent."""


class SendCredit:
    """Credit of a stream that this side sends. Senders wait in order of arrival."""

    def __init__(self, credit: int) -> None:
        self._credit = credit
        self._is_closed = False
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()

    @property
    def available(self) -> int:
        """Credit that is left; negative after an item that cost more than there was."""
        return self._credit

    def grant(self, credit: int) -> None:
        """Adds credit of the receiver."""
        self._credit += credit
        self._wake()

    def close(self) -> None:
        """Ends the stream: waiting senders fail with `StreamClosedError`."""
        self._is_closed = True
        self._wake()

    async def spend(self, cost: int) -> None:
        """Waits until the credit is above 0, then takes the cost of an item."""
        if self._waiting or (self._credit <= 0 and not self._is_closed):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._waiting.remove(waiter)
                self._wake()
                raise
            self._waiting.remove(waiter)
        if self._is_closed:
            self._wake()
            raise StreamClosedError
        self._credit -= cost
        self._wake()

    def _wake(self) -> None:
        if self._waiting and (self._credit > 0 or self._is_closed) and not self._waiting[0].done():
            self._waiting[0].set_result(None)


class ReceiveCredit:
    """Credit of a stream that this side consumes. Costs are given back in portions of half of the first credit."""

    def __init__(self, credit: int) -> None:
        self._portion = max(1, credit // 2)
        self._remaining = credit
        self._consumed = 0

    def receive(self, cost: int) -> bool:
        """Counts an item that arrived; false if it was sent without credit."""
        if self._remaining <= 0:
            return False
        self._remaining -= cost
        return True

    def add(self, credit: int) -> None:
        """Counts credit that was given beside the portions."""
        self._remaining += credit

    def consume(self, cost: int) -> int:
        """Counts an item that was consumed; the credit to give back now, or 0."""
        self._consumed += cost
        if self._consumed < self._portion:
            return 0
        given, self._consumed = self._consumed, 0
        self._remaining += given
        return given
