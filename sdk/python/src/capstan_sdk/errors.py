"""Errors of the SDK, and the error codes of the plugin protocol."""

from __future__ import annotations

from typing import Any

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
FAILED = -32000
CANCELLED = -32001
DEADLINE_EXCEEDED = -32002
OVERLOADED = -32003
NOT_READY = -32004
UNKNOWN_RUN = -32005
TOO_LARGE = -32006

MAX_ERROR_MESSAGE_LEN = 2000


class CapstanError(Exception):
    """Base of all errors of the SDK."""


class ManifestError(CapstanError):
    """The manifest cannot be used, or differs from the code."""


class ModelDecodeError(CapstanError):
    """JSON does not have the form of its type. The message begins with the path of the field."""


class RpcError(CapstanError):
    """The error answer to a request: raised for requests of the plugin, and raised by handlers as their answer."""

    def __init__(self, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data or {}

    def to_json(self) -> dict[str, Any]:
        """The error as it is sent: one line, of limited length."""
        text = " ".join(self.message.split())[:MAX_ERROR_MESSAGE_LEN] or "failed"
        value: dict[str, Any] = {"code": self.code, "message": text}
        if self.data:
            value["data"] = self.data
        return value


class RunApiError(RpcError):
    """Refusal or failure of a call of the run API.

    `reason` is the code of the run API, such as `unauthorized` or `not_found`; further ones may follow.
    """

    def __init__(self, reason: str, message: str, retryable: bool = False, cause: str | None = None) -> None:
        data: dict[str, Any] = {"code": reason, "message": message, "retryable": retryable}
        if cause is not None:
            data["cause"] = cause
        super().__init__(FAILED, message, data)
        self.reason = reason
        self.retryable = retryable
        self.cause = cause


class RunEndedError(RpcError):
    """The run or call whose authority was used has ended."""

    def __init__(self, message: str = "the run has ended") -> None:
        super().__init__(UNKNOWN_RUN, message)


class ConnectionLostError(CapstanError):
    """The connection to the host has ended."""


class RunFailure(CapstanError):
    """Raised by a runner to end its run with `run.failed`, a message for people and an optional code."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class ToolError(CapstanError):
    """Raised by a tool for a failure that the model should read and react to."""


class ModelCallError(CapstanError):
    """Raised by a model provider.

    `kind`: `unreachable`, `unauthorized`, `unknown_model`, `rate_limited`, `context_overflow`, `rejected`, `broken`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class DeliveryError(CapstanError):
    """Raised by `Channel.send`.

    `kind`: `not_sent` (the host retries), `permanent` (the host gives up), `unknown` (the message may have been sent).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class EventRefusedError(CapstanError):
    """The host did not accept an event. With `retryable`, the same event may be accepted later."""

    def __init__(self, code: str, message: str, retryable: bool) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable


class ChannelStoppedError(CapstanError):
    """The channel is being stopped, or has stopped: it submits no further events."""


def describe_exception(error: BaseException) -> str:
    """Name and text of an exception on one line, for error messages."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {text}" if text else name
