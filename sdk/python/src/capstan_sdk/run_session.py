"""Runs that are being served, and their calls of the run API."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any, Optional

from .codec import JsonObject, JsonValue
from .components import AgentRunner
from .connection import Connection
from .contexts import AgentRunContext
from .credit import SendCredit, StreamClosedError
from .errors import (
    FAILED,
    UNKNOWN_RUN,
    ConnectionLostError,
    RpcError,
    RunApiError,
    RunEndedError,
    RunFailure,
    describe_exception,
)
from .framing import EncodeError, FrameTooLargeError
from .model_stream import ModelStream, StreamRegistry
from .results import AgentRunResult, run_completed, run_failed

logger = logging.getLogger("capstan_sdk")

MAX_FAILURE_LEN = 2000

# Calls that may contain further requests, or last as long as their consumer: they do not count as concurrent requests.
UNCOUNTED_CALLS = frozenset(["models.stream", "tools.call", "tools.command", "runs.child", "platform.call"])


class AuthorityCaller:
    """Calls of the run API with the authority of one run (`run_id`) or tool call (`call_id`)."""

    def __init__(self, connection: Connection, streams: StreamRegistry, authority: JsonObject) -> None:
        self._connection = connection
        self._streams = streams
        self._authority = authority
        self._open: set[ModelStream] = set()
        self._is_closed = False

    async def call(self, method: str, params: JsonObject) -> JsonValue:
        """Response of a method."""
        return await self._request(method, {"params": params} if params else {})

    def stream(self, method: str, params: JsonObject) -> ModelStream:
        """Response of a method that is a stream."""

        async def open_stream(name: str, credit: int) -> Any:
            try:
                return await self._request(method, {"params": params, "stream": name, "credit": credit})
            finally:
                self._open.discard(stream)

        stream = ModelStream(self._streams, open_stream)
        self._open.add(stream)
        return stream

    def close(self) -> None:
        """Ends the authority: open streams end, later calls fail."""
        self._is_closed = True
        for stream in list(self._open):
            stream.cancel()
        self._open.clear()

    async def _request(self, method: str, fields: JsonObject) -> JsonValue:
        if self._is_closed:
            raise RunEndedError()
        params = {**self._authority, "method": method, **fields}
        try:
            return await self._connection.request("run.call", params, counts=method not in UNCOUNTED_CALLS)
        except RpcError as error:
            raise translate_call_error(error) from None


def translate_call_error(error: RpcError) -> RpcError:
    """The error of the run API that an error answer stands for."""
    if error.code == UNKNOWN_RUN:
        return RunEndedError(error.message)
    if error.code == FAILED and isinstance(error.data.get("code"), str):
        data = error.data
        cause = data.get("cause")
        return RunApiError(
            data["code"],
            str(data.get("message", error.message)),
            data.get("retryable") is True,
            cause if isinstance(cause, str) else None,
        )
    return error


class RunSession:
    """One run: it sends the results that the runner yields, each when there is credit for it."""

    def __init__(
        self,
        connection: Connection,
        runner: AgentRunner,
        context: AgentRunContext,
        caller: AuthorityCaller,
        credit: int,
    ) -> None:
        self.context = context
        self._connection = connection
        self._runner = runner
        self._caller = caller
        self._credit = SendCredit(credit)
        self._run_id = context.run_id
        self._is_closed = False
        self._is_cancelled = False
        self._task: Optional[asyncio.Task[None]] = None
        connection.send_streams[self._run_id] = self._credit

    def start(self) -> asyncio.Task[None]:
        """Begins the run."""
        self._task = asyncio.create_task(self._serve(), name=f"run {self._run_id}")
        self._task.add_done_callback(lambda _: self._close())
        return self._task

    def cancel(self, reason: str, grace_ms: float) -> None:
        """Cancels the run: with a grace period the runner is told, without one it is stopped."""
        self._is_cancelled = True
        self.context.cancel_reason = reason
        self.context.cancelled.set()
        if grace_ms <= 0:
            self._close()
            if self._task is not None:
                self._task.cancel()

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._credit.close()
            self._caller.close()
            if self._connection.send_streams.get(self._run_id) is self._credit:
                del self._connection.send_streams[self._run_id]

    async def _serve(self) -> None:
        try:
            end = await self._results()
            if end is not None:
                await self._send(end)
        except (StreamClosedError, ConnectionLostError):
            pass

    async def _results(self) -> Optional[AgentRunResult]:
        """Sends what the runner yields; the terminal result that the SDK has to add, if any."""
        generator = self._runner.run(self.context)
        try:
            async for result in generator:
                if not isinstance(result, AgentRunResult):
                    kind = type(result).__name__
                    raise TypeError(f"a runner yields results such as message_completed(...), not {kind}")
                await self._send(result)
                if result.is_terminal:
                    return None
            return run_completed()
        except (StreamClosedError, ConnectionLostError):
            return None
        except RunFailure as failure:
            return run_failed(failure.message[:MAX_FAILURE_LEN], code=failure.code)
        except (FrameTooLargeError, EncodeError) as error:
            logger.error("run %s: a result cannot be sent: %s", self._run_id, error)
            return run_failed(f"a result cannot be sent: {error}", code="result-invalid")
        except Exception as error:
            if not self._is_cancelled:
                logger.exception("run %s failed", self._run_id)
            return run_failed(describe_exception(error)[:MAX_FAILURE_LEN], code="runner-error")
        finally:
            await self._finish(generator)

    async def _finish(self, generator: Any) -> None:
        if inspect.isasyncgen(generator):
            try:
                await generator.aclose()
            except Exception:
                logger.exception("run %s: the runner failed while it was closed", self._run_id)

    async def _send(self, result: AgentRunResult) -> None:
        params = {"run_id": self._run_id, "result": result.to_json()}
        line = self._connection.encode({"jsonrpc": "2.0", "method": "run.result", "params": params})
        if self._is_closed:
            raise StreamClosedError
        await self._connection.send_item(self._credit, line)
        if result.is_terminal:
            self._close()
