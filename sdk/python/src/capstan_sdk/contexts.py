"""What the code of a plugin is given: the context of a run, and that of a tool call."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Optional

from .codec import JsonObject
from .models import RunContext
from .results import content_text
from .run_api import AgentRunAPIProxy

Notify = Callable[[str, JsonObject], None]


class CallReporter:
    """Progress and log messages of one run or tool call."""

    def __init__(self, notify: Notify, authority: JsonObject) -> None:
        self._notify = notify
        self._authority = authority

    def log(self, level: str, message: str, fields: JsonObject) -> None:
        """Sends a log message."""
        params: JsonObject = {"level": level, "message": message, **self._authority}
        if fields:
            params["fields"] = fields
        self._notify("log", params)

    def progress(self, message: Optional[str], fraction: Optional[float]) -> None:
        """Sends a progress message."""
        params = dict(self._authority)
        if message is not None:
            params["message"] = message
        if fraction is not None:
            params["fraction"] = min(1.0, max(0.0, fraction))
        self._notify("progress", params)


class AgentRunContext(RunContext):
    """Context of a run: the fields of `RunContext`, and the way to the host.

    api: the run API, with the authority of this run.
    settings: settings of the plugin.
    cancelled: set when the run is cancelled and has a grace period (capability `interrupt`): yield the last results.
    cancel_reason: `cancelled`, `deadline`, `host_stopping`; further ones may follow. Empty before.
    """

    api: AgentRunAPIProxy
    settings: JsonObject
    cancelled: asyncio.Event
    cancel_reason: str
    _reporter: CallReporter
    _ends_at: Optional[float]

    def attach(
        self, api: AgentRunAPIProxy, settings: JsonObject, reporter: CallReporter, deadline_ms: Optional[float]
    ) -> None:
        """Connects the context with the host."""
        self.api = api
        self.settings = settings
        self.cancelled = asyncio.Event()
        self.cancel_reason = ""
        self._reporter = reporter
        self._ends_at = None if deadline_ms is None else time.monotonic() + deadline_ms / 1000

    @property
    def text(self) -> str:
        """Text of the input, or an empty text."""
        return self.input.text or content_text(self.input.contents)

    def remaining_seconds(self) -> Optional[float]:
        """Time until the host ends the run; None without a deadline."""
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    def log(self, level: str, message: str, **fields: Any) -> None:
        """Writes to the log of the host. `level`: `error`, `warn`, `info`, `debug`, `trace`."""
        self._reporter.log(level, message, fields)

    def progress(self, message: Optional[str] = None, fraction: Optional[float] = None) -> None:
        """Shows progress to people; never recorded."""
        self._reporter.progress(message, fraction)


class ToolContext:
    """Context of a tool call. A tool gets it as the parameter with this type.

    api: the run API, with the authority of the call: `api.storage` with the area `plugin`.
    run_id: run that the call belongs to, for logs. workspace: folder of the workspace.
    """

    def __init__(
        self,
        api: AgentRunAPIProxy,
        settings: JsonObject,
        reporter: CallReporter,
        call_id: str,
        run_id: str,
        workspace: str,
    ) -> None:
        self.api = api
        self.settings = settings
        self.call_id = call_id
        self.run_id = run_id
        self.workspace = workspace
        self._reporter = reporter

    def log(self, level: str, message: str, **fields: Any) -> None:
        """Writes to the log of the host. `level`: `error`, `warn`, `info`, `debug`, `trace`."""
        self._reporter.log(level, message, fields)

    def progress(self, message: Optional[str] = None, fraction: Optional[float] = None) -> None:
        """Shows progress to people; never recorded."""
        self._reporter.progress(message, fraction)
