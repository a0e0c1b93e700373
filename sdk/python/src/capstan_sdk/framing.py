"""Framing of the plugin protocol: one JSON object per line, with limits that are checked before a line is parsed."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Iterator, Union

DEFAULT_MAX_FRAME_BYTES = 8 * 1024 * 1024
DEFAULT_MAX_FRAME_DEPTH = 128
DEFAULT_MAX_CONCURRENT_REQUESTS = 256

# A text, also one without its closing quote, or a bracket. Every alternative ends, so that no input makes it backtrack.
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


@dataclasses.dataclass(frozen=True)
class FrameLimits:
    """Limits of one side of a connection, as announced in `initialize`."""

    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
    max_frame_depth: int = DEFAULT_MAX_FRAME_DEPTH
    max_concurrent_requests: int = DEFAULT_MAX_CONCURRENT_REQUESTS

    @classmethod
    def from_json(cls, value: Any) -> FrameLimits:
        """Limits announced by the other side; absent and unusable ones are the defaults."""
        given = value if isinstance(value, dict) else {}
        fields = {
            item.name: given[item.name]
            for item in dataclasses.fields(cls)
            if isinstance(given.get(item.name), int) and given[item.name] is not True and given[item.name] > 0
        }
        return cls(**fields)

    def to_json(self) -> dict[str, int]:
        """The limits as they are announced."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class BadLine:
    """A line that was dropped. `request_id` is set if the line is an answerable request that is not valid."""

    reason: str
    request_id: Union[int, str, None] = None


class FrameTooLargeError(Exception):
    """A message exceeds the limits of its receiver."""


class EncodeError(Exception):
    """A message has content that JSON cannot represent."""


def nesting_depth(line: bytes, limit: int) -> int:
    """Depth of nested arrays and objects of a line, exact up to `limit`; counting stops above it."""
    if line.count(b"{") + line.count(b"[") <= limit:
        return 0
    depth = deepest = 0
    for match in _TOKENS.finditer(line):
        token = line[match.start()]
        if token in b"[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > limit:
                break
        elif token in b"]}":
            depth -= 1
    return deepest


class FrameSplitter:
    """Cuts a stream of bytes into lines. A line above the limit is skipped up to its end without being kept."""

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self._pieces: list[bytes] = []
        self._len = 0
        self._is_skipping = False

    def feed(self, data: bytes) -> Iterator[Union[bytes, BadLine]]:
        """Complete lines, in order, without their ends; empty ones are left out."""
        start = 0
        while True:
            end = data.find(b"\n", start)
            if end < 0:
                self._keep(data[start:])
                return
            self._keep(data[start:end])
            start = end + 1
            if self._is_skipping:
                self._is_skipping = False
                yield BadLine(f"the line is longer than {self._limits.max_frame_bytes} bytes")
                continue
            line = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces, self._len = [], 0
            if line.endswith(b"\r"):
                line = line[:-1]
            if len(line) > self._limits.max_frame_bytes:
                yield BadLine(f"the line is longer than {self._limits.max_frame_bytes} bytes")
            elif line.strip(b" \t\r"):
                yield line

    def _keep(self, piece: bytes) -> None:
        if self._is_skipping or not piece:
            return
        self._pieces.append(piece)
        self._len += len(piece)
        if self._len > self._limits.max_frame_bytes + 1:  # a carriage return does not count
            self._pieces, self._len, self._is_skipping = [], 0, True


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def decode_line(line: bytes, limits: FrameLimits) -> Union[dict[str, Any], BadLine]:
    """The message of a line, checked against the limits before it is parsed."""
    if nesting_depth(line, limits.max_frame_depth) > limits.max_frame_depth:
        return BadLine(f"nested deeper than {limits.max_frame_depth} levels")
    try:
        message = _DECODER.decode(line.decode("utf-8").strip(" \t\r"))
    except UnicodeDecodeError:
        return BadLine("not UTF-8")
    except (ValueError, RecursionError) as error:
        return BadLine(f"not JSON: {error}")
    if not isinstance(message, dict):
        return BadLine("not an object")
    return _validate_message(message)


def _validate_message(message: dict[str, Any]) -> Union[dict[str, Any], BadLine]:
    identifier = message.get("id")
    has_id = "id" in message
    method = message.get("method")
    if has_id and not is_request_id(identifier):
        return BadLine("the id is neither an integer from 0 to 2^53-1 nor a text of at most 128 bytes")
    answerable = identifier if has_id and isinstance(method, str) else None
    if message.get("jsonrpc") != "2.0":
        return BadLine('"jsonrpc" is not "2.0"', answerable)
    if "method" in message:
        if not isinstance(method, str):
            return BadLine("the method is not a text")
        params = message.get("params")
        if params is None:
            message["params"] = {}
        elif not isinstance(params, dict):
            return BadLine("params is not an object", answerable)
        return message
    if not has_id:
        return BadLine("neither a method nor an id")
    if ("result" in message) == ("error" in message):
        return BadLine("an answer has either a result or an error")
    error = message.get("error")
    if "error" in message and not (isinstance(error, dict) and _is_integer(error.get("code"))):
        return BadLine("the error has no code")
    return message


def is_request_id(value: Any) -> bool:
    """Valid id of a request."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace")) <= 128
    return _is_integer(value) and 0 <= value < 2**53


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_line(message: dict[str, Any], limits: FrameLimits) -> bytes:
    """The line of a message, with its end. Raises `FrameTooLargeError` if it exceeds the limits of the receiver."""
    try:
        text = _ENCODER.encode(message)
    except RecursionError:
        raise FrameTooLargeError(f"nested deeper than {limits.max_frame_depth} levels") from None
    except (TypeError, ValueError) as error:
        raise EncodeError(f"not JSON: {error}") from None
    try:
        line = text.encode("utf-8")
    except UnicodeEncodeError:  # lone surrogates, which UTF-8 cannot represent
        line = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")
    if len(line) > limits.max_frame_bytes:
        raise FrameTooLargeError(f"{len(line)} bytes, more than the {limits.max_frame_bytes} that the receiver accepts")
    if nesting_depth(line, limits.max_frame_depth) > limits.max_frame_depth:
        raise FrameTooLargeError(f"nested deeper than {limits.max_frame_depth} levels")
    return line + b"\n"
