"""One side of a connection: requests, answers and notifications of JSON-RPC 2.0, with cancellation and deadlines.

Both sides have the same rights, so the plugin and the host of the test harness use the same class. A thread reads and
decodes (see `line_stream`), everything else happens on the event loop, in the order of arrival.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import threading
from typing import Any, Awaitable, Callable, Optional, Protocol, Union

from .credit import SendCredit, item_cost
from .errors import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    NOT_READY,
    OVERLOADED,
    TOO_LARGE,
    CapstanError,
    ConnectionLostError,
    RpcError,
    describe_exception,
)
from .framing import (
    BadLine,
    EncodeError,
    FrameLimits,
    FrameSplitter,
    FrameTooLargeError,
    decode_line,
    encode_line,
)
from .line_stream import ByteReader, LineWriter

MAX_UNDELIVERED_BYTES = 64 * 1024 * 1024

logger = logging.getLogger("capstan_sdk")

RequestId = Union[int, str]
Message = dict[str, Any]


class IncomingRequest:
    """A request of the other side. It is answered exactly once."""

    def __init__(self, identifier: RequestId, method: str, params: Message, line_len: int) -> None:
        self.id = identifier
        self.line_len = line_len
        self.method = method
        self.params = params
        self.is_answered = False
        self.task: Optional[asyncio.Future[Any]] = None
        self.timer: Optional[asyncio.TimerHandle] = None


class ConnectionHandler(Protocol):
    """Serves the messages of the other side, on the event loop."""

    def handle_request(self, request: IncomingRequest) -> Any:
        """The result, or an awaitable of it. Raises `RpcError` for an error answer."""

    def handle_notification(self, method: str, params: Message, line_len: int) -> None:
        """Takes a notification; unknown ones are ignored."""

    def handle_item(self, stream: str, item: Any, line_len: int) -> None:
        """Takes an item of a stream."""

    def handle_end(self) -> None:
        """The other side has closed its end, or cannot be reached any more."""


def _never(method: str, params: Message) -> bool:
    return False


def _nothing() -> None:
    pass


class Connection:
    """One side of a connection over two file descriptors. `on_input_end` is called on the thread of the reader."""

    def __init__(
        self,
        read_descriptor: int,
        write_descriptor: int,
        handler: ConnectionHandler,
        limits: FrameLimits = FrameLimits(),
        is_uncounted: Callable[[str, Message], bool] = _never,
        on_input_end: Callable[[], None] = _nothing,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._limits = limits
        self._is_uncounted = is_uncounted
        self._on_input_end = on_input_end
        self._splitter = FrameSplitter(limits)
        self._lock = threading.Lock()
        self._serving: dict[RequestId, IncomingRequest] = {}
        self._counted: set[RequestId] = set()
        self._arrived: collections.deque[tuple[Message, int]] = collections.deque()
        self._arrived_bytes = 0
        self._is_delivery_scheduled = False
        self._delivered = threading.Condition(self._lock)
        self._next_id = 0
        self._pending: dict[RequestId, asyncio.Future[Message]] = {}
        self._abandoned: set[RequestId] = set()
        self._has_ended = False
        self._room = asyncio.Event()
        self._logged_kinds: set[str] = set()
        self._permits = asyncio.Semaphore(FrameLimits().max_concurrent_requests)
        self.peer_limits = FrameLimits()
        self.answers_ping = False
        self.counters: collections.Counter[str] = collections.Counter()
        self.send_streams: dict[str, SendCredit] = {}
        self._writer = LineWriter(write_descriptor, self._on_drained, self._on_broken)
        self._reader = ByteReader(read_descriptor, self._on_data, self._on_end)

    def start(self) -> None:
        """Begins to read messages."""
        self._reader.start()

    @property
    def has_ended(self) -> bool:
        """The other side is gone."""
        return self._has_ended

    def set_peer_limits(self, limits: FrameLimits) -> None:
        """Limits of the other side, from `initialize`."""
        self.peer_limits = limits
        self._permits = asyncio.Semaphore(limits.max_concurrent_requests)

    async def close(self, timeout: float = 1.0) -> None:
        """Writes what is queued, for at most `timeout` seconds, and takes no more."""
        await self._loop.run_in_executor(None, self._writer.close, timeout)

    async def join(self, timeout: float = 1.0) -> None:
        """Waits for the end of the thread that reads, after the other side has closed."""
        await self._loop.run_in_executor(None, self._reader.join, timeout)

    # Sending

    def notify(self, method: str, params: Message) -> None:
        """Sends a notification."""
        self._writer.put(self.encode({"jsonrpc": "2.0", "method": method, "params": params}))

    def notify_or_drop(self, method: str, params: Message) -> None:
        """Sends a notification that may be lost: it is dropped while the other side does not read."""
        if self._writer.is_full():
            self.counters["dropped_notifications"] += 1
        else:
            self.notify(method, params)

    def encode(self, message: Message) -> bytes:
        """The line of a message; raises `FrameTooLargeError` and `EncodeError`."""
        return encode_line(message, self.peer_limits)

    def put_line(self, line: bytes) -> None:
        """Sends an encoded message."""
        self._writer.put(line)

    async def send_item(self, credit: SendCredit, line: bytes) -> None:
        """Sends an item of a stream when there is credit for it and room in the queue."""
        await self.wait_drained()
        await credit.spend(item_cost(len(line) - 1))
        self._writer.put(line)

    async def wait_drained(self) -> None:
        """Waits while more is queued for the other side than it reads."""
        while self._writer.is_full() and not self._has_ended:
            self._room.clear()
            if self._writer.is_full():
                await self._room.wait()

    async def request(
        self, method: str, params: Message, credit: Optional[SendCredit] = None, counts: bool = True
    ) -> Any:
        """Result of a request. An error answer raises `RpcError`; cancelling the caller cancels the request."""
        if counts:
            async with self._permits:
                return await self._request(method, params, credit)
        return await self._request(method, params, credit)

    async def _request(self, method: str, params: Message, credit: Optional[SendCredit]) -> Any:
        if self._has_ended:
            raise ConnectionLostError("the connection to the host has ended")
        self._next_id += 1
        identifier = self._next_id
        try:
            line = self.encode({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
        except FrameTooLargeError as error:
            raise RpcError(TOO_LARGE, f"{method}: {error}") from None
        except EncodeError as error:
            raise CapstanError(f"{method}: {error}") from None
        answer: asyncio.Future[Message] = self._loop.create_future()
        self._pending[identifier] = answer
        is_sent = False
        try:
            if credit is None:
                await self.wait_drained()
                self._writer.put(line)
            else:
                await self.send_item(credit, line)
            is_sent = True
            message = await answer
        except asyncio.CancelledError:
            if is_sent and identifier in self._pending:
                self._abandoned.add(identifier)
                self.notify("request.cancel", {"id": identifier})
            raise
        finally:
            self._pending.pop(identifier, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # the end of the connection may have come while the request waited for credit
        if "error" in message:
            refusal = message["error"]
            data = refusal.get("data")
            raise RpcError(refusal["code"], str(refusal.get("message", "")), data if isinstance(data, dict) else None)
        return message["result"]

    # Receiving: on the thread of the reader

    def _on_data(self, data: bytes) -> None:
        arrived: list[tuple[Message, int]] = []
        for line in self._splitter.feed(data):
            message = line if isinstance(line, BadLine) else decode_line(line, self._limits)
            if isinstance(message, BadLine):
                self._refuse_line(message)
            elif isinstance(line, bytes) and self._accept(message, len(line)):
                arrived.append((message, len(line)))
        if not arrived:
            return
        with self._delivered:
            while self._arrived_bytes > MAX_UNDELIVERED_BYTES and not self._has_ended:
                self._delivered.wait()
            self._arrived.extend(arrived)
            self._arrived_bytes += sum(size for _, size in arrived)
            is_scheduled, self._is_delivery_scheduled = self._is_delivery_scheduled, True
        if not is_scheduled:
            self._call_loop(self._deliver)

    def _refuse_line(self, line: BadLine) -> None:
        self._count("bad_lines", line.reason)
        if line.request_id is not None:
            self._writer.block_while_full()
            self._put_error(line.request_id, RpcError(INVALID_REQUEST, line.reason))

    def _accept(self, message: Message, line_len: int) -> bool:
        """Registers a request; false if it was answered or dropped here."""
        if "method" not in message or "id" not in message:
            return True
        identifier, method = message["id"], message["method"]
        if method == "ping":
            self._writer.block_while_full()
            if self.answers_ping:
                self._put({"jsonrpc": "2.0", "id": identifier, "result": {}})
            else:
                self._put_error(identifier, RpcError(NOT_READY, "not ready"))
            return False
        is_counted = not self._is_uncounted(method, message["params"])
        with self._lock:
            if identifier in self._serving:
                is_duplicate = True
            else:
                is_duplicate = False
                is_overloaded = is_counted and len(self._counted) >= self._limits.max_concurrent_requests
                if not is_overloaded:
                    self._serving[identifier] = IncomingRequest(identifier, method, message["params"], line_len)
                    if is_counted:
                        self._counted.add(identifier)
        if is_duplicate:
            self._count("bad_lines", "the id of a request is in use")
            return False
        if is_overloaded:
            self._writer.block_while_full()
            text = f"more than {self._limits.max_concurrent_requests} requests at a time"
            self._put_error(identifier, RpcError(OVERLOADED, text))
            return False
        return True

    def _count(self, kind: str, reason: str) -> None:
        with self._lock:
            self.counters[kind] += 1
            is_first = (kind + reason) not in self._logged_kinds and len(self._logged_kinds) < 100
            self._logged_kinds.add(kind + reason)
        if is_first:
            logger.warning("message dropped: %s", reason)

    def _on_end(self) -> None:
        self._on_input_end()
        self._call_loop(self._end)

    def _on_broken(self) -> None:
        self._call_loop(self._end)

    def _on_drained(self) -> None:
        self._call_loop(self._room.set)

    def _call_loop(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass  # the loop is closed, and the process about to end

    # Receiving: on the event loop

    def _end(self) -> None:
        if self._has_ended:
            return
        with self._delivered:
            self._has_ended = True
            self._delivered.notify_all()
        self._deliver()
        self._room.set()
        for credit in list(self.send_streams.values()):
            credit.close()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError("the connection to the host has ended"))
        self._handler.handle_end()

    def _deliver(self) -> None:
        with self._delivered:
            arrived, self._arrived = self._arrived, collections.deque()
            self._arrived_bytes = 0
            self._is_delivery_scheduled = False
            self._delivered.notify_all()
        for message, line_len in arrived:
            try:
                self._dispatch(message, line_len)
            except Exception:
                logger.exception("message not handled")

    def _dispatch(self, message: Message, line_len: int) -> None:
        if "method" not in message:
            self._take_answer(message)
        elif "id" in message:
            self._begin(self._serving[message["id"]])
        else:
            self._take_notification(message["method"], message["params"], line_len)

    def _take_answer(self, message: Message) -> None:
        identifier = message["id"]
        answer = self._pending.get(identifier)
        if answer is not None and not answer.done():
            answer.set_result(message)
        elif identifier in self._abandoned:
            self._abandoned.discard(identifier)
        else:
            self._count("unknown_answers", "an answer to no request")

    def _take_notification(self, method: str, params: Message, line_len: int) -> None:
        if method == "request.cancel":
            identifier = params.get("id")
            request = self._serving.get(identifier) if isinstance(identifier, (int, str)) else None
            if request is not None and request.task is not None:
                request.task.cancel()
        elif method == "stream.credit":
            stream, amount = params.get("stream"), params.get("credit")
            credit = self.send_streams.get(stream) if isinstance(stream, str) else None
            if credit is None or not isinstance(amount, int) or isinstance(amount, bool) or amount < 1:
                self.counters["dropped_credit"] += 1  # may have crossed with the end of the stream
            else:
                credit.grant(amount)
        elif method == "stream.item":
            self._handler.handle_item(str(params.get("stream")), params.get("item"), line_len)
        else:
            self._handler.handle_notification(method, params, line_len)

    def _begin(self, request: IncomingRequest) -> None:
        try:
            result = self._handler.handle_request(request)
        except Exception as error:
            self.answer_error(request, error)
            return
        if not isinstance(result, Awaitable):
            self._answer(request, result)
            return
        request.task = asyncio.ensure_future(result)
        request.task.add_done_callback(lambda task: self._finish(request, task))

    def limit_time(self, request: IncomingRequest, deadline_ms: Any) -> None:
        """Answers a request with -32002 and cancels its task when its time is over."""
        if isinstance(deadline_ms, (int, float)) and not isinstance(deadline_ms, bool):
            request.timer = self._loop.call_later(max(0.0, deadline_ms / 1000), self._expire, request)

    def _expire(self, request: IncomingRequest) -> None:
        self.answer_error(request, RpcError(DEADLINE_EXCEEDED, "the time of the request is over"))
        if request.task is not None:
            request.task.cancel()

    def _finish(self, request: IncomingRequest, task: asyncio.Future[Any]) -> None:
        if task.cancelled():
            self.answer_error(request, RpcError(CANCELLED, "cancelled"))
            return
        error = task.exception()
        if error is not None:
            self.answer_error(request, error)
        else:
            self._answer(request, task.result())

    def _answer(self, request: IncomingRequest, result: Any) -> None:
        if not self._release(request):
            return
        try:
            self._writer.put(self.encode({"jsonrpc": "2.0", "id": request.id, "result": result}))
        except FrameTooLargeError as error:
            self._put_error(request.id, RpcError(TOO_LARGE, f"the answer to {request.method}: {error}"))
        except EncodeError as error:
            self._put_error(request.id, RpcError(INTERNAL_ERROR, f"the answer to {request.method}: {error}"))

    def answer_error(self, request: IncomingRequest, error: BaseException) -> None:
        """Answers a request with an error, unless it was answered."""
        if not self._release(request):
            return
        if not isinstance(error, RpcError):
            logger.error("%s failed", request.method, exc_info=error)
            error = RpcError(INTERNAL_ERROR, describe_exception(error))
        self._put_error(request.id, error)

    def _release(self, request: IncomingRequest) -> bool:
        if request.is_answered:
            return False
        request.is_answered = True
        if request.timer is not None:
            request.timer.cancel()
        with self._lock:
            self._serving.pop(request.id, None)
            self._counted.discard(request.id)
        return True

    def _put_error(self, identifier: RequestId, error: RpcError) -> None:
        try:
            self._put({"jsonrpc": "2.0", "id": identifier, "error": error.to_json()})
        except (FrameTooLargeError, EncodeError):
            bare = RpcError(error.code, error.message)
            self._put({"jsonrpc": "2.0", "id": identifier, "error": bare.to_json()})

    def _put(self, message: Message) -> None:
        self._writer.put(self.encode(message))
