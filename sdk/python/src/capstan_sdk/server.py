"""The plugin side of a connection: serves the requests of the host with what a plugin registered."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import logging
from typing import Any, Awaitable, Callable, Optional, cast

from .channel_session import ChannelSession
from .codec import JsonObject, Model, encode_json
from .components import KnowledgeAnswer, KnowledgeQuery
from .connection import Connection, IncomingRequest
from .contexts import AgentRunContext, CallReporter, ToolContext
from .credit import MAX_INITIAL_CREDIT, SendCredit
from .errors import (
    FAILED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    NOT_READY,
    TOO_LARGE,
    CapstanError,
    ModelCallError,
    ModelDecodeError,
    RpcError,
    ToolError,
    describe_exception,
)
from .framing import EncodeError, FrameLimits, FrameTooLargeError
from .hook_values import HookAnswer, TurnHandle, UserNotice, decode_argument
from .manifest import PROTOCOL_VERSION, Manifest
from .model_stream import StreamRegistry
from .models import ModelEventStop, ModelRequest, OutboundMessage, ToolOutput
from .plugin import Plugin
from .run_api import AgentRunAPIProxy
from .run_session import AuthorityCaller, RunSession
from .version import SDK_NAME, SDK_VERSION

logger = logging.getLogger("capstan_sdk")

SHUTDOWN_DEADLINE_MS = 5000
END_TIMEOUT = 1.0

# Requests that are answered at once, or last as long as their consumer: they do not count as concurrent requests.
UNCOUNTED_REQUESTS = frozenset(["initialize", "shutdown", "run.start", "model.stream"])


def is_uncounted_request(method: str, params: JsonObject) -> bool:
    """The request does not count towards `max_concurrent_requests` of the plugin."""
    return method in UNCOUNTED_REQUESTS


def param(params: JsonObject, name: str, kind: type, default: Any = ...) -> Any:
    """A parameter of a request; -32602 names the one that is missing or has another type."""
    value = params.get(name)
    if value is None:
        if default is ...:
            raise RpcError(INVALID_PARAMS, f"{name}: the parameter is missing")
        return default
    allowed: tuple[type, ...] = (int, float) if kind is float else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise RpcError(INVALID_PARAMS, f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def credit_param(params: JsonObject) -> int:
    """The first credit of a stream."""
    credit: int = param(params, "credit", int)
    if not 1 <= credit <= MAX_INITIAL_CREDIT:
        raise RpcError(INVALID_PARAMS, f"credit: expected 1 to {MAX_INITIAL_CREDIT}")
    return credit


class PluginServer:
    """Serves one connection for a plugin."""

    def __init__(self, plugin: Plugin, manifest: Optional[Manifest], startup_error: str = "") -> None:
        self._plugin = plugin
        self._manifest = manifest
        self._startup_error = startup_error
        self._state = "starting"
        self._runs: dict[str, RunSession] = {}
        self._channels: dict[str, ChannelSession] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self._has_stopped = False
        self._is_started = False
        self.finished = asyncio.Event()
        self.connection: Connection
        self._streams: StreamRegistry
        self._methods: dict[str, Callable[[IncomingRequest], Any]] = {
            "run.start": self._start_run,
            "hook.call": self._call_hook,
            "tool.call": self._call_tool,
            "channel.start": self._start_channel,
            "channel.send": self._send_to_channel,
            "channel.stop": self._stop_channel,
            "knowledge.search": self._search,
            "model.stream": self._stream_model,
        }

    def serve(
        self, read_descriptor: int, write_descriptor: int, on_input_end: Callable[[], None] = lambda: None
    ) -> None:
        """Begins to serve a connection. `on_input_end` is called on another thread."""
        self.connection = Connection(
            read_descriptor, write_descriptor, self, FrameLimits(), is_uncounted_request, on_input_end
        )
        self._streams = StreamRegistry(
            lambda stream, credit: self.connection.notify("stream.credit", {"stream": stream, "credit": credit})
        )
        self.connection.start()

    async def close(self) -> None:
        """Ends what is still being served, for at most a moment, and the connection."""
        self._state = "closed"
        listening = [session.task for session in self._channels.values() if session.task is not None]
        tasks = [task for task in [*self._tasks, *listening] if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_TIMEOUT)
        await self._stop_plugin(END_TIMEOUT)
        await self.connection.close(0.0 if self.connection.has_ended else END_TIMEOUT)

    # Messages

    def handle_request(self, request: IncomingRequest) -> Any:
        """Begins a request; called in the order of arrival."""
        method = request.method
        if method == "initialize":
            if self._state != "starting":
                raise RpcError(NOT_READY, "initialize comes once, as the first message")
            self._state = "initializing"
            return self._initialize(request.params)
        if method == "shutdown":
            if self._state != "ready":
                raise RpcError(NOT_READY, "not ready")
            self._state = "draining"
            return self._keep(self._shutdown(param(request.params, "deadline_ms", float, SHUTDOWN_DEADLINE_MS)))
        if self._state in ("starting", "initializing"):
            raise RpcError(NOT_READY, "not ready")
        serve = self._methods.get(method)
        if serve is None:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {method}")
        if self._state != "ready" and not (self._state == "draining" and method in ("channel.send", "channel.stop")):
            raise RpcError(NOT_READY, "the plugin is being shut down")
        try:
            result = serve(request)
        except ModelDecodeError as error:
            raise RpcError(INVALID_PARAMS, str(error)) from None
        if method != "run.start" and request.params.get("deadline_ms") is not None:
            self.connection.limit_time(request, request.params["deadline_ms"])
        return self._keep(result) if inspect.isawaitable(result) else result

    def handle_notification(self, method: str, params: JsonObject, line_len: int) -> None:
        """Takes `run.cancel`; everything else is ignored."""
        if method == "run.cancel":
            run = self._runs.get(str(params.get("run_id")))
            grace = params.get("grace_ms")
            if run is not None:
                run.cancel(str(params.get("reason") or "cancelled"), grace if isinstance(grace, (int, float)) else 0)

    def handle_item(self, stream: str, item: Any, line_len: int) -> None:
        """Passes an item to the stream of the run that reads it."""
        self._streams.receive(stream, item, line_len)

    def handle_end(self) -> None:
        """The host is gone, or wants the process to end."""
        self._state = "closed"
        for run in list(self._runs.values()):
            run.cancel("host_stopping", 0)
        for task in list(self._tasks):
            task.cancel()
        self.finished.set()

    def _keep(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Connection

    async def _initialize(self, params: JsonObject) -> JsonObject:
        try:
            result = await self._begin(params)
        except RpcError:
            self._state = "starting"
            raise
        except Exception as error:
            self._state = "starting"
            logger.exception("the plugin could not start")
            raise RpcError(FAILED, describe_exception(error)) from None
        self._state = "ready"
        self.connection.answers_ping = True
        return result

    async def _begin(self, params: JsonObject) -> JsonObject:
        if self._startup_error or self._manifest is None:
            raise RpcError(FAILED, self._startup_error or "no manifest")
        manifest = self._manifest
        version = param(params, "protocol", int)
        if version != PROTOCOL_VERSION:
            raise RpcError(
                FAILED, f"protocol version {version} is not supported; this SDK implements {PROTOCOL_VERSION}"
            )
        identity = param(params, "plugin", dict, {})
        if identity.get("id", manifest.id) != manifest.id:
            raise RpcError(FAILED, f"the host wants {identity['id']}, and the manifest is that of {manifest.id}")
        self.connection.set_peer_limits(FrameLimits.from_json(params.get("limits")))
        self._plugin.settings = param(params, "settings", dict, {})
        self._plugin.data_dir = param(params, "data_dir", str, self._plugin.data_dir)
        for channel in self._plugin.channels.values():
            channel.settings = self._plugin.settings
        self._is_started = True
        for function in self._plugin.start_functions:
            await call_function(function)
        return {
            "protocol": PROTOCOL_VERSION,
            "id": manifest.id,
            "version": manifest.version,
            "runners": list(self._plugin.runners),
            "tools": list(self._plugin.tools),
            "channels": list(self._plugin.channels),
            "models": list(self._plugin.model_providers),
            "knowledge": list(self._plugin.knowledge_sources),
            "hooks": {name: list(hook.arguments) for name, hook in self._plugin.hooks.items()},
            "limits": FrameLimits().to_json(),
            "sdk": {"name": SDK_NAME, "version": SDK_VERSION},
        }

    async def _shutdown(self, deadline_ms: float) -> JsonObject:
        seconds = deadline_ms / 1000
        for run in list(self._runs.values()):
            run.cancel("host_stopping", deadline_ms)
        await asyncio.gather(*(session.stop() for session in self._channels.values()), return_exceptions=True)
        own = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not own and not task.done()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds * 0.7)
            for run in list(self._runs.values()):
                run.cancel("host_stopping", 0)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=seconds * 0.1)
        await self._stop_plugin(seconds * 0.1)
        return {}

    async def _stop_plugin(self, timeout: float) -> None:
        if self._has_stopped or not self._is_started:
            return
        self._has_stopped = True
        for function in self._plugin.stop_functions:
            try:
                await asyncio.wait_for(call_function(function), timeout)
            except Exception:
                logger.exception("a stop function failed")

    def _notify(self, method: str, params: JsonObject) -> None:
        try:
            self.connection.notify_or_drop(method, params)
        except (FrameTooLargeError, EncodeError) as error:
            logger.warning("%s not sent: %s", method, error)

    # Runs

    def _start_run(self, request: IncomingRequest) -> JsonObject:
        params = request.params
        run_id: str = param(params, "run_id", str)
        name: str = param(params, "runner", str)
        credit = credit_param(params)
        deadline_ms = param(params, "deadline_ms", float, None)
        context = AgentRunContext.from_json(param(params, "context", dict), "context")
        runner = self._plugin.runners.get(name)
        if runner is None:
            raise RpcError(INVALID_PARAMS, f"runner: there is no runner {name}")
        if context.run_id != run_id:
            raise RpcError(INVALID_PARAMS, "context.run_id: differs from run_id")
        if run_id in self._runs:
            raise RpcError(INVALID_PARAMS, "run_id: the run is being served")
        authority = {"run_id": run_id}
        caller = AuthorityCaller(self.connection, self._streams, authority)
        reporter = CallReporter(self._notify, authority)
        context.attach(AgentRunAPIProxy(caller), self._plugin.settings, reporter, deadline_ms)
        run = RunSession(self.connection, runner, context, caller, credit)
        self._runs[run_id] = run
        task = run.start()
        self._keep(task)
        task.add_done_callback(lambda _: self._runs.pop(run_id, None))
        return {}

    # Hooks

    def _call_hook(self, request: IncomingRequest) -> Awaitable[JsonObject]:
        name: str = param(request.params, "hook", str)
        given: JsonObject = param(request.params, "arguments", dict, {})
        hook = self._plugin.hooks.get(name)
        if hook is None:
            raise RpcError(INVALID_PARAMS, f"hook: there is no hook {name}")
        arguments = {argument: decode_argument(name, argument, given.get(argument)) for argument in hook.arguments}
        return self._answer_hook(hook.function, arguments)

    async def _answer_hook(self, function: Callable[..., Any], arguments: JsonObject) -> JsonObject:
        before = copy.deepcopy(arguments.get("state"))
        returned = await call_function(function, **arguments)
        answer = returned if isinstance(returned, HookAnswer) else HookAnswer(returned)
        patch = state_patch(before, arguments.get("state"))
        patch.update(answer.state or {})
        handle, notice = arguments.get("handle"), arguments.get("notice")
        effects = [*(handle.effects if isinstance(handle, TurnHandle) else []), *answer.effects]
        text = answer.notice or (notice.text if isinstance(notice, UserNotice) else "")
        result: JsonObject = {}
        if answer.value is not None:
            result["value"] = encode_json(answer.value)
        if patch:
            result["state"] = encode_json(patch)
        if effects:
            result["effects"] = encode_json(effects)
        if text:
            result["notice"] = text
        if answer.stage is not None:
            result["stage"] = answer.stage
        return result

    # Tools

    def _call_tool(self, request: IncomingRequest) -> Awaitable[JsonObject]:
        params = request.params
        name: str = param(params, "tool", str)
        tool = self._plugin.tools.get(name)
        if tool is None:
            raise RpcError(INVALID_PARAMS, f"tool: there is no tool {name}")
        call_id: str = param(params, "call_id", str)
        arguments = tool.schema.convert(param(params, "arguments", dict, {}))
        caller = AuthorityCaller(self.connection, self._streams, {"call_id": call_id})
        if tool.schema.context_name is not None:
            arguments[tool.schema.context_name] = ToolContext(
                AgentRunAPIProxy(caller),
                self._plugin.settings,
                CallReporter(self._notify, {"call_id": call_id}),
                call_id,
                param(params, "run_id", str, ""),
                param(params, "workspace", str, ""),
            )
        return self._answer_tool(tool.function, arguments, caller)

    async def _answer_tool(
        self, function: Callable[..., Any], arguments: JsonObject, caller: AuthorityCaller
    ) -> JsonObject:
        try:
            return tool_output(await call_function(function, **arguments)).to_json()
        except ToolError as error:
            return ToolOutput(content=str(error), is_error=True).to_json()
        finally:
            caller.close()

    # Channels

    async def _start_channel(self, request: IncomingRequest) -> JsonObject:
        name: str = param(request.params, "channel", str)
        credit = credit_param(request.params)
        channel = self._plugin.channels.get(name)
        if channel is None:
            raise RpcError(INVALID_PARAMS, f"channel: there is no channel {name}")
        session = self._channels.get(name)
        if session is not None and session.is_listening:
            raise RpcError(INVALID_PARAMS, f"channel: {name} is listening")
        session = ChannelSession(self.connection, channel, credit)
        self._channels[name] = session
        await session.start()
        return {}

    def _listening_channel(self, request: IncomingRequest) -> ChannelSession:
        name: str = param(request.params, "channel", str)
        session = self._channels.get(name)
        if session is None:
            raise RpcError(NOT_READY, f"the channel {name} is not started", {"kind": "not_sent"})
        return session

    async def _send_to_channel(self, request: IncomingRequest) -> JsonObject:
        session = self._listening_channel(request)
        try:
            message = OutboundMessage.from_json(param(request.params, "message", dict), "message")
        except ModelDecodeError as error:
            raise RpcError(INVALID_PARAMS, str(error)) from None
        await session.send(message)
        return {}

    async def _stop_channel(self, request: IncomingRequest) -> JsonObject:
        session = self._listening_channel(request)
        await session.stop()
        self._channels.pop(param(request.params, "channel", str), None)
        return {}

    # Knowledge and models

    async def _search(self, request: IncomingRequest) -> JsonObject:
        params = request.params
        name: str = param(params, "source", str)
        function = self._plugin.knowledge_sources.get(name)
        if function is None:
            raise RpcError(INVALID_PARAMS, f"source: there is no knowledge source {name}")
        query = KnowledgeQuery(param(params, "text", str), param(params, "offset", int, 0), param(params, "limit", int))
        try:
            answer = await call_function(function, query)
        except CapstanError as error:
            raise RpcError(FAILED, str(error)) from None
        found = answer if isinstance(answer, KnowledgeAnswer) else KnowledgeAnswer(list(answer))
        result: JsonObject = {"passages": encode_json(found.passages)}
        if found.skipped is not None:
            result["skipped"] = found.skipped
        return result

    def _stream_model(self, request: IncomingRequest) -> Awaitable[JsonObject]:
        params = request.params
        name: str = param(params, "provider", str)
        provider = self._plugin.model_providers.get(name)
        if provider is None:
            raise RpcError(INVALID_PARAMS, f"provider: there is no model provider {name}")
        stream: str = param(params, "stream", str)
        if stream in self.connection.send_streams:
            raise RpcError(INVALID_PARAMS, f"stream: {stream} is in use")
        credit = SendCredit(credit_param(params))
        asked = ModelRequest.from_json(param(params, "request", dict), "request")
        self.connection.send_streams[stream] = credit
        return self._answer_model(provider(asked), stream, credit)

    async def _answer_model(self, events: Any, stream: str, credit: SendCredit) -> JsonObject:
        is_stopped = False
        try:
            async for event in events:
                if not isinstance(event, Model):
                    raise TypeError(
                        f"a model provider yields events such as ModelEventText, not {type(event).__name__}"
                    )
                await self._send_model_event(stream, event, credit)
                if isinstance(event, ModelEventStop):
                    is_stopped = True
                    break
            if not is_stopped:
                await self._send_model_event(stream, ModelEventStop(), credit)
            return {}
        except ModelCallError as error:
            raise RpcError(FAILED, error.message, {"kind": error.kind}) from None
        except FrameTooLargeError as error:
            raise RpcError(TOO_LARGE, f"an item of {stream}: {error}") from None
        except RpcError:
            raise
        except Exception as error:
            logger.exception("a model provider failed")
            raise RpcError(FAILED, describe_exception(error), {"kind": "broken"}) from None
        finally:
            credit.close()
            self.connection.send_streams.pop(stream, None)
            await events.aclose()

    async def _send_model_event(self, stream: str, event: Model, credit: SendCredit) -> None:
        params = {"stream": stream, "item": event.to_json()}
        line = self.connection.encode({"jsonrpc": "2.0", "method": "stream.item", "params": params})
        await self.connection.send_item(credit, line)


async def call_function(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Result of a function of the author. One that is not asynchronous runs in a thread, so that it delays nothing."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):
        return await function(*arguments, **named)
    result = await asyncio.to_thread(function, *arguments, **named)
    return await result if inspect.isawaitable(result) else result


def state_patch(before: Any, after: Any) -> JsonObject:
    """Changes that a hook made to its copy of the turn state: new and changed values, and None for removed keys."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return {}
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return {**changed, **{key: None for key in before if key not in after}}


def tool_output(value: Any) -> ToolOutput:
    """Output of a tool: a text, parts of a message, or any other JSON as text."""
    if isinstance(value, ToolOutput):
        return value
    if value is None or isinstance(value, str):
        return ToolOutput(content=value or "")
    if isinstance(value, list) and value and all(isinstance(part, dict) and "type" in part for part in value):
        return ToolOutput(content=cast("list[JsonObject]", value))
    return ToolOutput(content=json.dumps(encode_json(value), ensure_ascii=False))
