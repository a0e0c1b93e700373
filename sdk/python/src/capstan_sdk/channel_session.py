"""Channels that are started: their events under credit, and their orderly stop."""

from __future__ import annotations

import asyncio
import base64
import logging
from typing import Any, Optional

from .components import Channel
from .connection import Connection
from .credit import SendCredit, StreamClosedError
from .errors import (
    FAILED,
    UNKNOWN_RUN,
    ChannelStoppedError,
    DeliveryError,
    EventRefusedError,
    RpcError,
    describe_exception,
)
from .models import Event, OutboundMessage

logger = logging.getLogger("capstan_sdk")


class ChannelSession:
    """One started channel."""

    def __init__(self, connection: Connection, channel: Channel, credit: int) -> None:
        self._connection = connection
        self._channel = channel
        self._credit = SendCredit(credit)
        self._stream = f"channel:{channel.name}"
        self._submitted: set[asyncio.Future[Any]] = set()
        self._is_stopping = False
        self.task: Optional[asyncio.Task[None]] = None
        connection.send_streams[self._stream] = self._credit

    @property
    def is_listening(self) -> bool:
        """The channel was started and has not ended."""
        return self.task is not None and not self.task.done() and not self._is_stopping

    async def start(self) -> None:
        """Connects the channel; it listens when this returns."""
        self._channel._submit = self.submit
        try:
            await self._channel.start()
        except BaseException:
            self._close()
            raise
        self.task = asyncio.create_task(self._channel.run(), name=self._stream)
        self.task.add_done_callback(self._ended)

    async def submit(self, event: Event, raw: Optional[bytes]) -> None:
        """Passes an event to the host; returns when it is durable."""
        if self._is_stopping:
            raise ChannelStoppedError(f"the channel {self._channel.name} is being stopped")
        params: dict[str, Any] = {"channel": self._channel.name, "event": event.to_json()}
        if raw is not None:
            params["raw"] = base64.b64encode(raw).decode("ascii")
        request = asyncio.ensure_future(self._connection.request("channel.event", params, self._credit))
        self._submitted.add(request)
        request.add_done_callback(self._submitted.discard)
        try:
            await asyncio.shield(request)
        except StreamClosedError:
            raise ChannelStoppedError(f"the channel {self._channel.name} has stopped") from None
        except RpcError as error:
            if error.code == UNKNOWN_RUN:
                raise ChannelStoppedError(error.message) from None
            code = error.data.get("code")
            text = code if isinstance(code, str) else "event-refused"
            raise EventRefusedError(text, error.message, error.data.get("retryable") is True) from None

    async def send(self, message: OutboundMessage) -> None:
        """Sends a message; an exception becomes the kind of its failure."""
        try:
            await self._channel.send(message)
        except DeliveryError as error:
            raise RpcError(FAILED, error.message, {"kind": error.kind}) from None
        except Exception as error:
            logger.exception("channel %s: send failed", self._channel.name)
            raise RpcError(FAILED, describe_exception(error), {"kind": "unknown"}) from None

    async def stop(self) -> None:
        """Submits nothing more, waits for the answers to submitted events, and ends the channel."""
        self._is_stopping = True
        try:
            await self._channel.stop()
        except Exception:
            logger.exception("channel %s: stop failed", self._channel.name)
        try:
            while self._submitted:
                await asyncio.wait(list(self._submitted))
        finally:
            self._close()
            if self.task is not None:
                self.task.cancel()
        if self.task is not None:
            await asyncio.wait([self.task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        self._close()
        if self._is_stopping or self._connection.has_ended:
            return
        params = {"channel": self._channel.name}
        if error is not None and not isinstance(error, ChannelStoppedError):
            logger.error("channel %s ended", self._channel.name, exc_info=error)
            params["error"] = describe_exception(error)
        self._connection.notify("channel.ended", params)

    def _close(self) -> None:
        self._credit.close()
        if self._channel._submit == self.submit:
            self._channel._submit = None
        if self._connection.send_streams.get(self._stream) is self._credit:
            del self._connection.send_streams[self._stream]
