"""Tests of plugins without a host: `PluginHarness` plays the host, in the same process, over the real wire.

    class HelloTest(unittest.IsolatedAsyncioTestCase):
        async def test_hello(self):
            async with PluginHarness(plugin) as host:
                run = await host.run("hello", "good morning")
                self.assertEqual(run.text, "hello, good morning")

The harness loads the manifest, frames every message and enforces credit, as the host does. A violation of the protocol
fails the test when the harness is left. The run API is a `FakeRunApi`: stored data in memory, models and tools by
script.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import collections
import dataclasses
import inspect
import json
import os
from typing import Any, AsyncIterator, Callable, Optional, Union

from .codec import JsonObject, decoder_of, encode_json
from .components import KnowledgeAnswer
from .connection import Connection, IncomingRequest
from .credit import ReceiveCredit, SendCredit, item_cost
from .errors import (
    FAILED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNKNOWN_RUN,
    CapstanError,
    ModelDecodeError,
    RpcError,
    RunApiError,
)
from .framing import FrameLimits
from .manifest import PROTOCOL_VERSION, Manifest
from .model_stream import ModelStream, StreamRegistry
from .models import Event, KnowledgePassage, ModelEvent, ModelOutput, ModelRequest, OutboundMessage, ToolOutput
from .plugin import Plugin
from .results import AgentRunResult, content_text
from .run_session import UNCOUNTED_CALLS
from .server import PluginServer

DEFAULT_CREDIT = 16
DEFAULT_TIMEOUT_MS = 10_000
FAKE_TIME = "2026-01-01T00:00:00Z"

ModelReply = Union[str, ModelOutput, list[ModelEvent]]
CallFunction = Callable[[JsonObject], Any]


class HarnessError(CapstanError, AssertionError):
    """The plugin violated the protocol, or the harness was asked for what the plugin does not have."""


def run_context(run_id: str, text: str, **fields: Any) -> JsonObject:
    """A run context as JSON, for a message with this text. `fields` replace whole fields, such as `config`."""
    event: JsonObject = {
        "event_id": f"event-{run_id}",
        "event_type": "message.received",
        "source": "test",
        "conversation_id": "conversation-1",
        "actor": {"id": "person-1", "name": "Ann"},
        "input": {"text": text},
    }
    context: JsonObject = {
        "run_id": run_id,
        "trigger": {"type": "message.received", "binding_id": "test"},
        "event": event,
        "conversation": {"session_id": "test:conversation-1", "conversation_id": "conversation-1"},
        "actor": event["actor"],
        "input": event["input"],
        "delivery": {"output_channel": "test", "chat_id": "conversation-1"},
        "resources": {"grant": {}},
        "context": {"tape": "tape-1"},
        "state": {},
        "runtime": {"workspace": os.getcwd(), "started_at": FAKE_TIME},
        "config": {},
    }
    context.update(encode_json(fields))
    return context


def covers(permissions: JsonObject, method: str, params: JsonObject) -> bool:
    """The permissions of a runner, as its manifest has them, cover a call."""
    group, _, name = method.partition(".")
    if group in ("models", "session"):
        operation = {"list": "stream", "model": "stream", "choose_model": "stream"}.get(name, name)
        return _covers_operation(permissions.get("models"), operation, params.get("model"))
    if group == "tools":
        if name == "list":
            return True
        if name == "refuse_command":
            return permissions.get("tape") == "write"
        return _covers_operation(permissions.get("tools"), "detail" if name == "detail" else "call", params.get("name"))
    if group == "knowledge":
        return _covers_operation(permissions.get("knowledge_bases"), name, params.get("base"))
    if group == "tape":
        needs_write = name in ("handoff", "note", "say", "reset", "fork")
        return permissions.get("tape") in (("write",) if needs_write else ("read", "write"))
    if group in ("prompt", "steering"):
        return permissions.get(group) is True
    if group == "platform":
        return _covers_name(permissions.get("platform_api"), params.get("action"))
    if group == "runs":
        if name in ("child", "cancel"):
            return permissions.get("children") is True
        return {"get": "get", "list": "page", "events": "page"}[name] in permissions.get("events", [])
    if group == "events":
        return ("page" if name == "page" else "get") in permissions.get("events", [])
    if group == "artifacts":
        return {"describe": "metadata", "list": "metadata"}.get(name, name) in permissions.get("artifacts", [])
    wanted = params.get("scope") if group == "state" else params.get("area") if group == "storage" else name
    return wanted in permissions.get(group, [])


def _covers_operation(access: Any, operation: str, name: Optional[str]) -> bool:
    if isinstance(access, list):
        return operation in access
    if isinstance(access, dict) and ("names" in access or "operations" in access):
        operations = access.get("operations")
        return (operations is None or operation in operations) and _covers_name(access.get("names", "all"), name)
    return _covers_name(access, name)


def _covers_name(allowed: Any, name: Optional[str]) -> bool:
    if allowed == "all":
        return True
    names = allowed if isinstance(allowed, list) else allowed.get("only", []) if isinstance(allowed, dict) else []
    return name in names if name is not None else bool(names)


class FakeRunApi:
    """The run API of the harness. Data is kept in memory, and can be read and prepared by the test.

    state: values by scope. storage: contents by area. artifacts: `(name, media type, content)` by id.
    model_replies: replies of models, in order: a text, a `ModelOutput`, or a list of events.
    steering: prompts that the next `steering.take` returns. knowledge: passages by knowledge base.
    view: messages of `tape.view`. notes: what `tape.note` wrote, as `(name, data)`.
    calls: all calls, as `(method, params)`. enforce_permissions: refuse what the manifest does not ask for.
    """

    def __init__(self, harness: PluginHarness) -> None:
        self._harness = harness
        self._functions: dict[str, CallFunction] = {}
        self._tools: dict[str, Callable[..., Any]] = {}
        self.enforce_permissions = True
        self.state: dict[str, JsonObject] = collections.defaultdict(dict)
        self.storage: dict[str, dict[str, bytes]] = collections.defaultdict(dict)
        self.artifacts: dict[str, tuple[str, str, bytes]] = {}
        self.model_replies: collections.deque[ModelReply] = collections.deque()
        self.steering: list[Any] = []
        self.knowledge: dict[str, list[KnowledgePassage]] = {}
        self.view: list[JsonObject] = []
        self.notes: list[tuple[str, Any]] = []
        self.calls: list[tuple[str, JsonObject]] = []

    def on(self, method: str, function: CallFunction) -> None:
        """Serves a method with a function of its params that returns JSON or a model, or raises `RunApiError`."""
        self._functions[method] = function

    def tool(self, name: str, function: Callable[..., Any]) -> None:
        """Adds a tool of the host: the function gets the arguments by name. Tools of the plugin are there anyway."""
        self._tools[name] = function

    async def serve(self, method: str, params: JsonObject) -> Any:
        """Response of a method."""
        self.calls.append((method, params))
        function = self._functions.get(method) or getattr(self, "_" + method.replace(".", "_"), None)
        if function is None:
            raise RpcError(INVALID_PARAMS, f"the test harness does not serve {method}: use harness.api.on(...)")
        response = function(params)
        return encode_json(await response if inspect.isawaitable(response) else response)

    def next_reply(self) -> list[ModelEvent]:
        """Events of the next reply of a model."""
        if not self.model_replies:
            raise RunApiError("not_found", "no reply of a model is prepared: add it to harness.api.model_replies")
        reply = self.model_replies.popleft()
        if isinstance(reply, list):
            return reply
        output = ModelOutput(reply) if isinstance(reply, str) else reply
        events: list[JsonObject] = [{"type": "text", "data": output.text}] if output.text else []
        events += [{"type": "tool_call", "data": call.to_json()} for call in output.tool_calls]
        events += [{"type": "usage", "data": output.usage.to_json()}] if output.usage else []
        decode = decoder_of(ModelEvent)
        return [decode(event, "event") for event in [*events, {"type": "stop"}]]

    def _models_invoke(self, params: JsonObject) -> Any:
        text, calls, usage = "", [], None
        for event in (encode_json(each) for each in self.next_reply()):
            if event["type"] == "text":
                text += event["data"]
            elif event["type"] == "tool_call":
                calls.append(event["data"])
            elif event["type"] == "usage":
                usage = event["data"]
        return {"text": text, "tool_calls": calls, "usage": usage}

    def _models_count_tokens(self, params: JsonObject) -> Any:
        letters = sum(len(content_text(message.get("content"))) for message in params.get("messages", []))
        return {"tokens": (letters + 3) // 4, "estimated": True}

    def _models_list(self, params: JsonObject) -> Any:
        return {"default": "test:model", "models": ["test:model"], "providers": ["test"]}

    def _session_model(self, params: JsonObject) -> Any:
        return None

    def _session_choose_model(self, params: JsonObject) -> Any:
        return None

    def _tools_list(self, params: JsonObject) -> Any:
        manifest = self._harness.manifest
        own = [
            {"name": name, "description": tool["description"], "parameters": manifest.tool_parameters(name) or {}}
            for name, tool in manifest.tools.items()
        ]
        for name, function in self._tools.items():
            own.append({"name": name, "description": function.__doc__ or "", "parameters": {}})
        return own

    def _tools_detail(self, params: JsonObject) -> Any:
        for tool in self._tools_list({}):
            if params["name"] in (tool["name"], tool["name"].replace(".", "_")):
                return tool
        raise RunApiError("not_found", f"no tool {params['name']}")

    async def _tools_call(self, params: JsonObject) -> Any:
        return [await self._call_tool(call) for call in params["calls"]]

    async def _call_tool(self, call: JsonObject) -> JsonObject:
        name = call["function"]["name"]
        arguments = json.loads(call["function"]["arguments"] or "{}")
        for own in self._harness.manifest.tools:
            if name in (own, own.replace(".", "_")):
                return (await self._harness.call_tool(own, arguments)).to_json()
        for tool, function in self._tools.items():
            if name in (tool, tool.replace(".", "_")):
                try:
                    output = function(**arguments)
                    output = await output if inspect.isawaitable(output) else output
                except Exception as error:
                    return {"content": str(error), "is_error": True}
                return output.to_json() if isinstance(output, ToolOutput) else {"content": output}
        return {"content": f"there is no tool {name}", "is_error": True}

    def _tape_view(self, params: JsonObject) -> Any:
        return self.view

    def _tape_note(self, params: JsonObject) -> Any:
        self.notes.append((params["name"], params["data"]))

    def _tape_say(self, params: JsonObject) -> Any:
        self.view.append({"role": "user", "content": params["content"]})

    def _tape_handoff(self, params: JsonObject) -> Any:
        self.view.clear()

    def _tape_search(self, params: JsonObject) -> Any:
        return []

    def _tape_anchors(self, params: JsonObject) -> Any:
        return []

    def _tape_info(self, params: JsonObject) -> Any:
        return {"name": "tape-1", "head": len(self.view), "anchors": 0, "entries_since_last_anchor": len(self.view)}

    def _prompt_system(self, params: JsonObject) -> Any:
        return ""

    def _prompt_continuation(self, params: JsonObject) -> Any:
        return None

    def _steering_take(self, params: JsonObject) -> Any:
        taken, self.steering = self.steering, []
        return taken

    def _steering_pull(self, params: JsonObject) -> Any:
        taken = self._steering_take(params)
        return [
            {"prompt": prompt, "event": {"event_id": f"steered-{number}", "text": content_text(prompt)}}
            for number, prompt in enumerate(taken)
        ]

    def _state_get(self, params: JsonObject) -> Any:
        return self.state[params["scope"]].get(params["key"])

    def _state_set(self, params: JsonObject) -> Any:
        self.apply_state(params["scope"], {params["key"]: params["value"]})

    def _state_delete(self, params: JsonObject) -> Any:
        return self.state[params["scope"]].pop(params["key"], None) is not None

    def _state_list(self, params: JsonObject) -> Any:
        prefix = params.get("prefix", "")
        found = [(key, value) for key, value in sorted(self.state[params["scope"]].items()) if key.startswith(prefix)]
        return _page([{"key": key, "value": value, "at": FAKE_TIME} for key, value in found], params)

    def apply_state(self, scope: str, patch: JsonObject) -> None:
        """Stores values; None removes a key."""
        for key, value in patch.items():
            if value is None:
                self.state[scope].pop(key, None)
            else:
                self.state[scope][key] = value

    def _storage_put(self, params: JsonObject) -> Any:
        content = _bytes(params["content"])
        self.storage[params["area"]][params["name"]] = content
        return self._storage_entry(params["name"], content)

    def _storage_get(self, params: JsonObject) -> Any:
        return {"content": self._stored(params)}

    def _storage_delete(self, params: JsonObject) -> Any:
        return self.storage[params["area"]].pop(params["name"], None) is not None

    def _storage_list(self, params: JsonObject) -> Any:
        entries = sorted(self.storage[params["area"]].items())
        return _page([self._storage_entry(name, content) for name, content in entries], params)

    def _stored(self, params: JsonObject) -> bytes:
        content = self.storage[params["area"]].get(params["name"])
        if content is None:
            raise RunApiError("not_found", f"nothing is stored as {params['name']}")
        return content

    def _storage_entry(self, name: str, content: bytes) -> JsonObject:
        return {"name": name, "bytes": len(content), "hash": "0", "at": FAKE_TIME}

    def _artifacts_create(self, params: JsonObject) -> Any:
        identifier = f"artifact-{len(self.artifacts) + 1}"
        self.artifacts[identifier] = (params["name"], params["media_type"], _bytes(params["content"]))
        return self._artifacts_describe({"id": identifier})

    def _artifacts_describe(self, params: JsonObject) -> Any:
        if params["id"] not in self.artifacts:
            raise RunApiError("not_found", f"there is no artifact {params['id']}")
        name, media_type, content = self.artifacts[params["id"]]
        return {"id": params["id"], "name": name, "media_type": media_type, "bytes": len(content), "hash": "0"}

    def _artifacts_read(self, params: JsonObject) -> Any:
        description = self._artifacts_describe(params)
        offset = params.get("offset", 0)
        content = self.artifacts[params["id"]][2][offset : offset + params["limit"]]
        return {"artifact": description, "offset": offset, "content": content}

    def _artifacts_list(self, params: JsonObject) -> Any:
        return _page([self._artifacts_describe({"id": identifier}) for identifier in self.artifacts], params)

    def _knowledge_list(self, params: JsonObject) -> Any:
        return [{"id": base, "description": ""} for base in self.knowledge]

    def _knowledge_retrieve(self, params: JsonObject) -> Any:
        return {"passages": _page(self.knowledge.get(params["base"], []), params)}

    def _history_page(self, params: JsonObject) -> Any:
        return _page([], params)

    def _history_search(self, params: JsonObject) -> Any:
        return []


def _page(items: list[Any], params: JsonObject) -> JsonObject:
    start = int(params.get("cursor") or 0)
    end = start + params["limit"]
    return {"items": items[start:end], "next": str(end) if end < len(items) else None}


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise RpcError(INVALID_PARAMS, f"content: not base64: {error}") from None


@dataclasses.dataclass
class RunReport:
    """A run that has ended.

    results: everything it yielded. status: `completed`, `failed` or `cancelled`. silent: it completed as silent.
    failure, failure_code: of `run.failed`.
    """

    run_id: str
    results: list[AgentRunResult]
    status: str
    silent: bool = False
    failure: Optional[str] = None
    failure_code: Optional[str] = None

    @property
    def text(self) -> str:
        """Text of the last complete message, or else the deltas together."""
        messages = [content_text(encode_json(each.data["content"])) for each in self.of_type("message.completed")]
        return messages[-1] if messages else "".join(each.data["delta"] for each in self.of_type("message.delta"))

    @property
    def types(self) -> list[str]:
        """Types of the results, in order."""
        return [result.type for result in self.results]

    def of_type(self, type: str) -> list[AgentRunResult]:
        """Results of one type."""
        return [result for result in self.results if result.type == type]


class HarnessRun:
    """A run that was started. Iterate over its results, or wait for `report`."""

    def __init__(self, harness: PluginHarness, run_id: str, credit: int, gives_credit: bool) -> None:
        self.run_id = run_id
        self._harness = harness
        self._credit = ReceiveCredit(credit)
        self._gives_credit = gives_credit
        self._results: list[AgentRunResult] = []
        self._changed = asyncio.Event()
        self._status = ""
        self._is_cancelled = False
        self._read = 0

    @property
    def is_open(self) -> bool:
        """The run has not ended."""
        return not self._status

    @property
    def received(self) -> list[AgentRunResult]:
        """Results up to now."""
        return self._results

    def __aiter__(self) -> AsyncIterator[AgentRunResult]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[AgentRunResult]:
        while True:
            while self._read < len(self._results):
                self._read += 1
                yield self._results[self._read - 1]
            if self._status:
                return
            self._changed.clear()
            await self._changed.wait()

    async def report(self) -> RunReport:
        """Waits for the end of the run."""
        while not self._status:
            self._changed.clear()
            await self._changed.wait()
        report = RunReport(self.run_id, self._results, self._status)
        if self._results and self._results[-1].is_terminal:
            data = self._results[-1].data
            report.silent = data.get("silent") is True
            report.failure, report.failure_code = data.get("message"), data.get("code")
        return report

    def cancel(self, reason: str = "cancelled", grace_ms: int = 0) -> None:
        """Cancels the run; with a grace period it may yield its last results. Its status is `cancelled` in any case."""
        self._is_cancelled = True
        params = {"run_id": self.run_id, "reason": reason, "grace_ms": grace_ms}
        self._harness.connection.notify("run.cancel", params)
        if grace_ms == 0:
            self.end("cancelled")

    def give_credit(self, credit: int) -> None:
        """Gives credit for further results, of a run that was started with `gives_credit=False`."""
        self._credit.add(credit)
        self._harness.connection.notify("stream.credit", {"stream": self.run_id, "credit": credit})

    def receive(self, result: AgentRunResult, line_len: int) -> None:
        """Takes a result that arrived."""
        cost = item_cost(line_len)
        if not self.is_open:
            if not self._is_cancelled:
                self._harness.violate(f"run {self.run_id}: {result.type} after the end of the run")
            return
        if not self._credit.receive(cost):
            self._harness.violate(f"run {self.run_id}: {result.type} without credit")
        self._results.append(result)
        self._changed.set()
        if result.type == "state.updated":
            self._harness.api.apply_state(result.data.get("scope", "conversation"), result.data["state"])
        if result.is_terminal:
            self.end("completed" if result.type == "run.completed" else "failed")
        elif self._gives_credit:
            given = self._credit.consume(cost)
            if given:
                self._harness.connection.notify("stream.credit", {"stream": self.run_id, "credit": given})

    def end(self, status: str) -> None:
        """Ends the run."""
        if not self._status:
            self._status = "cancelled" if self._is_cancelled else status
            self._changed.set()


@dataclasses.dataclass
class HookReport:
    """Answer of a hook: its value, the turn state after it, and the effects and notice it asked for."""

    value: Any
    state: JsonObject
    effects: list[JsonObject]
    notice: Optional[str]
    stage: Optional[bool]


@dataclasses.dataclass
class ReceivedEvent:
    """An event that a channel submitted. It is accepted unless the test refuses it."""

    event: Event
    raw: Optional[bytes]


class PluginHarness:
    """Plays the host for one plugin. Use it with `async with`.

    api: the run API of its runs. logs, progress: messages of the plugin. refuse_event: set it to a function of an
    `Event` that raises `RpcError`, to refuse events of channels.
    """

    def __init__(
        self,
        plugin: Plugin,
        *,
        settings: Optional[JsonObject] = None,
        data_dir: Optional[str] = None,
        limits: FrameLimits = FrameLimits(),
    ) -> None:
        self._plugin = plugin
        self._settings = settings or {}
        self._data_dir = data_dir
        self._limits = limits
        self._runs: dict[str, HarnessRun] = {}
        self._run_runners: dict[str, str] = {}
        self._calls: set[str] = set()
        self._numbers: collections.Counter[str] = collections.Counter()
        self._events: asyncio.Queue[ReceivedEvent] = asyncio.Queue()
        self._channel_credit: dict[str, ReceiveCredit] = {}
        self._violations: list[str] = []
        self._descriptors: list[int] = []
        self.api = FakeRunApi(self)
        self.manifest: Manifest
        self.connection: Connection
        self.initialized: JsonObject = {}
        self.logs: list[JsonObject] = []
        self.progress: list[JsonObject] = []
        self.ended_channels: asyncio.Queue[JsonObject] = asyncio.Queue()
        self.refuse_event: Optional[Callable[[Event], None]] = None
        self._streams: StreamRegistry
        self._server: PluginServer

    async def __aenter__(self) -> PluginHarness:
        self.manifest = self._plugin.load_manifest()
        to_plugin, from_plugin = os.pipe(), os.pipe()
        self._descriptors = [*to_plugin, *from_plugin]
        self._server = PluginServer(self._plugin, self.manifest)
        self._server.serve(to_plugin[0], from_plugin[1])
        self.connection = Connection(from_plugin[0], to_plugin[1], self, self._limits, _is_uncounted)
        self.connection.answers_ping = True
        self._streams = StreamRegistry(
            lambda stream, credit: self.connection.notify("stream.credit", {"stream": stream, "credit": credit})
        )
        self.connection.start()
        params: JsonObject = {
            "protocol": PROTOCOL_VERSION,
            "host": {"name": "capstan_sdk.testing", "version": "0"},
            "plugin": {"id": self.manifest.id, "version": self.manifest.version},
            "settings": self._settings,
            "limits": self._limits.to_json(),
        }
        if self._data_dir is not None:
            params["data_dir"] = self._data_dir
        try:
            self.initialized = await self.request("initialize", params)
        except BaseException:
            await self._disconnect()
            raise
        self.connection.set_peer_limits(FrameLimits.from_json(self.initialized.get("limits")))
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if error is None:
                await self.request("shutdown", {"deadline_ms": 2000})
        finally:
            await self._disconnect()
        if error is None and self._violations:
            raise HarnessError("the plugin violated the protocol: " + "; ".join(self._violations))

    async def _disconnect(self) -> None:
        read_by_plugin, write_to_plugin, read_from_plugin, write_by_plugin = self._descriptors
        await self.connection.close()
        os.close(write_to_plugin)
        await self._server.finished.wait()
        await self._server.close()
        await self._server.connection.join()
        os.close(write_by_plugin)
        await self.connection.join()
        os.close(read_by_plugin)
        os.close(read_from_plugin)

    def violate(self, text: str) -> None:
        """Records a violation of the protocol, which fails the test."""
        self._violations.append(text)

    def _number(self, kind: str) -> str:
        self._numbers[kind] += 1
        return f"{kind}-{self._numbers[kind]}"

    async def request(self, method: str, params: JsonObject) -> Any:
        """Result of a request of the protocol, sent as it is."""
        return await self.connection.request(method, params, counts=False)

    # Runs

    async def start_run(
        self,
        runner: str,
        text: str = "",
        *,
        credit: int = DEFAULT_CREDIT,
        gives_credit: bool = True,
        deadline_ms: Optional[int] = None,
        **fields: Any,
    ) -> HarnessRun:
        """Starts a run for a message. `fields` are those of the run context, such as `config={"greeting": "hi"}`."""
        if runner not in self.manifest.runners:
            raise HarnessError(f"the manifest has no runner {runner}")
        run_id = self._number("run")
        permissions = self.manifest.runners[runner].get("permissions", {})
        fields.setdefault("state", {scope: dict(self.api.state[scope]) for scope in permissions.get("state", [])})
        context = run_context(run_id, text, **fields)
        run = HarnessRun(self, run_id, credit, gives_credit)
        self._runs[run_id] = run
        self._run_runners[run_id] = runner
        params: JsonObject = {"run_id": run_id, "runner": runner, "context": context, "credit": credit}
        if deadline_ms is not None:
            params["deadline_ms"] = deadline_ms
        await self.request("run.start", params)
        return run

    async def run(self, runner: str, text: str = "", **options: Any) -> RunReport:
        """Starts a run and waits for its end. Options as of `start_run`."""
        return await (await self.start_run(runner, text, **options)).report()

    # Hooks, tools, knowledge, models

    async def call_hook(self, hook: str, *, state: Optional[JsonObject] = None, **arguments: Any) -> HookReport:
        """Calls a hook. Only the arguments that the manifest declares are sent; models and JSON are accepted."""
        declared = self.manifest.hooks[hook].get("arguments", [])
        given: JsonObject = {"state": state or {}, "handle": True, "notice": True, **arguments}
        sent = {name: encode_json(given[name]) for name in declared if name in given}
        params = {"call_id": self._number("hook"), "hook": hook, "arguments": sent, "deadline_ms": DEFAULT_TIMEOUT_MS}
        answer = await self.request("hook.call", params)
        after = dict(state or {})
        for key, value in answer.get("state", {}).items():
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        effects = answer.get("effects", [])
        return HookReport(answer.get("value"), after, effects, answer.get("notice"), answer.get("stage"))

    async def call_tool(self, tool: str, arguments: Optional[JsonObject] = None) -> ToolOutput:
        """Calls a tool."""
        call_id = self._number("call")
        self._calls.add(call_id)
        params = {
            "call_id": call_id,
            "run_id": "run-0",
            "tool": tool,
            "arguments": arguments or {},
            "workspace": os.getcwd(),
            "deadline_ms": DEFAULT_TIMEOUT_MS,
        }
        try:
            return ToolOutput.from_json(await self.request("tool.call", params), "result")
        finally:
            self._calls.discard(call_id)

    async def search(self, source: str, text: str, *, offset: int = 0, limit: int = 10) -> KnowledgeAnswer:
        """Searches a knowledge source."""
        params = {"source": source, "text": text, "offset": offset, "limit": limit, "deadline_ms": DEFAULT_TIMEOUT_MS}
        answer = await self.request("knowledge.search", params)
        passages = [KnowledgePassage.from_json(passage, "passages") for passage in answer["passages"]]
        return KnowledgeAnswer(passages, answer.get("skipped"))

    def stream_model(self, provider: str, request: ModelRequest, *, credit: int = DEFAULT_CREDIT) -> ModelStream:
        """Output of a model of the plugin."""

        async def open_stream(name: str, first_credit: int) -> Any:
            params = {"provider": provider, "request": request.to_json(), "stream": name, "credit": first_credit}
            return await self.request("model.stream", params)

        return ModelStream(self._streams, open_stream, credit)

    # Channels

    async def start_channel(self, channel: str, *, credit: int = DEFAULT_CREDIT) -> None:
        """Starts a channel."""
        self._channel_credit[channel] = ReceiveCredit(credit)
        await self.request("channel.start", {"channel": channel, "credit": credit})

    async def stop_channel(self, channel: str) -> None:
        """Stops a channel."""
        await self.request("channel.stop", {"channel": channel, "deadline_ms": DEFAULT_TIMEOUT_MS})
        self._channel_credit.pop(channel, None)

    async def next_event(self) -> ReceivedEvent:
        """The next event that a channel submitted."""
        return await self._events.get()

    async def send(self, channel: str, content: Any, *, chat_id: str = "conversation-1", **fields: Any) -> None:
        """Sends a message through a channel; raises `RpcError` with the kind of the failure in `data`."""
        message = OutboundMessage(session_id="test", channel=channel, chat_id=chat_id, content=content, **fields)
        params = {"channel": channel, "message": message.to_json(), "deadline_ms": DEFAULT_TIMEOUT_MS}
        await self.request("channel.send", params)

    # Messages of the plugin

    def handle_request(self, request: IncomingRequest) -> Any:
        """Serves `run.call` and `channel.event`."""
        if request.method == "run.call":
            return self._serve_call(request.params)
        if request.method == "channel.event":
            return self._accept_event(request)
        raise RpcError(METHOD_NOT_FOUND, f"there is no method {request.method}")

    def handle_notification(self, method: str, params: JsonObject, line_len: int) -> None:
        """Takes results, log and progress messages, and the end of channels."""
        if method == "run.result":
            run = self._runs.get(str(params.get("run_id")))
            if run is None:
                self.violate(f"a result for the unknown run {params.get('run_id')}")
            else:
                run.receive(AgentRunResult.from_json(params.get("result") or {}), line_len)
        elif method == "log":
            self.logs.append(params)
        elif method == "progress":
            self.progress.append(params)
        elif method == "channel.ended":
            self._channel_credit.pop(str(params.get("channel")), None)
            self.ended_channels.put_nowait(params)

    def handle_item(self, stream: str, item: Any, line_len: int) -> None:
        """Takes an item of a model of the plugin."""
        self._streams.receive(stream, item, line_len)

    def handle_end(self) -> None:
        """The plugin has closed its side: all runs fail."""
        for run in self._runs.values():
            run.end("failed")

    async def _serve_call(self, params: JsonObject) -> Any:
        method, call = str(params.get("method")), params.get("params") or {}
        if ("run_id" in params) == ("call_id" in params):
            raise RpcError(INVALID_PARAMS, "run_id: exactly one of run_id and call_id")
        if "run_id" in params:
            run = self._runs.get(params["run_id"])
            if run is None or not run.is_open:
                raise RpcError(UNKNOWN_RUN, f"no run {params['run_id']} is being served")
            runner = self.manifest.runners[self._run_runners[params["run_id"]]]
            if self.api.enforce_permissions and not covers(runner.get("permissions", {}), method, call):
                raise RunApiError("unauthorized", f"the permissions of the runner in plugin.toml do not cover {method}")
        elif params["call_id"] not in self._calls:
            raise RpcError(UNKNOWN_RUN, f"no call {params['call_id']} is being served")
        elif not method.startswith("storage.") or call.get("area") != "plugin":
            raise RunApiError("unauthorized", "a tool reaches storage of the area plugin, and nothing else")
        if method == "models.stream":
            return await self._stream_reply(params)
        try:
            return await self.api.serve(method, call)
        except (KeyError, ModelDecodeError) as error:
            raise RpcError(INVALID_PARAMS, f"{method}: {error}") from None

    async def _stream_reply(self, params: JsonObject) -> JsonObject:
        self.api.calls.append(("models.stream", params.get("params") or {}))
        credit = SendCredit(params["credit"])
        self.connection.send_streams[params["stream"]] = credit
        try:
            for event in self.api.next_reply():
                item = {"stream": params["stream"], "item": encode_json(event)}
                line = self.connection.encode({"jsonrpc": "2.0", "method": "stream.item", "params": item})
                await self.connection.send_item(credit, line)
            return {}
        finally:
            self.connection.send_streams.pop(params["stream"], None)

    def _accept_event(self, request: IncomingRequest) -> JsonObject:
        params = request.params
        channel = str(params.get("channel"))
        credit = self._channel_credit.get(channel)
        if credit is None:
            raise RpcError(UNKNOWN_RUN, f"the channel {channel} is not started")
        cost = item_cost(request.line_len)
        if not credit.receive(cost):
            self.violate(f"channel {channel}: an event without credit")
        given = credit.consume(cost)
        if given:
            self.connection.notify("stream.credit", {"stream": f"channel:{channel}", "credit": given})
        event = Event.from_json(params.get("event"), "event")
        if event.source != channel:
            refusal = {"code": "input-invalid", "message": f"source: not {channel}", "retryable": False}
            raise RpcError(FAILED, f"the source of the event is not {channel}", refusal)
        if self.refuse_event is not None:
            self.refuse_event(event)
        raw = params.get("raw")
        self._events.put_nowait(ReceivedEvent(event, None if raw is None else _bytes(raw)))
        return {}


def _is_uncounted(method: str, params: JsonObject) -> bool:
    return method == "run.call" and params.get("method") in UNCOUNTED_CALLS


def run_once(plugin: Plugin, runner: str, text: str = "", **options: Any) -> RunReport:
    """Drives one message through a runner and returns its report: for tests that are not asynchronous."""

    async def run() -> RunReport:
        async with PluginHarness(plugin) as host:
            return await host.run(runner, text, **options)

    return asyncio.run(run())
