"""The components of a plugin, driven by the test harness over the real wire."""

from __future__ import annotations

import asyncio
import inspect
import json
import pathlib
import sys
import tempfile
import unittest
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "src"))

import schema_check
from raw_host import MANIFEST, MAX_WAIT_SECONDS

from capstan_sdk import (
    AgentRunAPIProxy,
    AgentRunContext,
    AgentRunner,
    Channel,
    ChannelStoppedError,
    ChatMessage,
    HookAnswer,
    KnowledgeAnswer,
    KnowledgePassage,
    KnowledgeQuery,
    ModelCallError,
    ModelEventText,
    ModelOutput,
    ModelRequest,
    OutboundMessage,
    Plugin,
    RpcError,
    RunApiError,
    RunEndedError,
    ToolCall,
    ToolContext,
    ToolError,
    ToolFunction,
    ToolOutput,
    Usage,
    deny,
    finish_request,
    message_completed,
    message_delta,
    render_messages,
    run_completed,
    run_failed,
    state_updated,
    stay_silent,
)
from capstan_sdk.testing import HarnessError, PluginHarness, covers, run_once

RUNNER = '[[runners]]\nname = "main"\nlabel = "Main"\n'
EVERYTHING = RUNNER + """
[runners.permissions]
models = "all"
tools = "all"
knowledge_bases = "all"
history = ["page", "search"]
events = ["get", "page"]
artifacts = ["metadata", "read", "create"]
state = ["conversation", "actor"]
storage = ["plugin", "workspace", "binding"]
platform_api = {only = ["message.delete"]}
tape = "write"
prompt = true
children = true
steering = true
"""


class HarnessTest(unittest.IsolatedAsyncioTestCase):
    def plugin(self, manifest: str) -> Plugin:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "plugin.toml"
        path.write_text(MANIFEST + manifest)
        return Plugin(path)

    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().slow_callback_duration = 10

    def run(self, result: Any = None) -> Any:  # a bound for every test, so that none hangs
        method = getattr(self, self._testMethodName)
        if inspect.iscoroutinefunction(method):

            async def bounded() -> None:
                await asyncio.wait_for(method(), MAX_WAIT_SECONDS)

            setattr(self, self._testMethodName, bounded)
        return super().run(result)


class RunTest(HarnessTest):
    async def test_every_group_of_the_run_api(self) -> None:
        plugin = self.plugin(
            EVERYTHING + '[[tools]]\nname = "sum"\ndescription = "Sum"\nparameters = {type = "object", '
            'properties = {a = {type = "integer"}, b = {type = "integer"}}, required = ["a", "b"]}\n'
        )

        @plugin.tool("sum")
        def add(a: int, b: int) -> int:
            return a + b

        seen: list[Any] = []

        @plugin.runner("main")
        async def main(ctx: AgentRunContext) -> Any:
            api = ctx.api
            await api.state.set("conversation", "count", 3)
            seen.append(await api.state.get("conversation", "count"))
            seen.append([entry.key for entry in (await api.state.list("conversation", 10, prefix="c")).items])
            seen.append(await api.state.delete("conversation", "count"))
            await api.storage.put("plugin", "page", b"\x00\x01")
            seen.append((await api.storage.get("plugin", "page")).content)
            artifact = await api.artifacts.create("a.txt", "text/plain", b"hello")
            seen.append((await api.artifacts.read(artifact.id, 3, offset=1)).content)
            seen.append((await api.models.invoke(messages=[ChatMessage("user", "hi")])).text)
            async for event in api.models.stream(messages=[ChatMessage("user", "hi")]):
                seen.append(event.type)
            seen.append((await api.models.count_tokens(messages=[ChatMessage("user", "12345678")])).tokens)
            seen.append((await api.models.list()).default)
            outputs = await api.tools.call([ToolCall("1", ToolFunction("sum", '{"a": 1, "b": 2}'))])
            seen.append(outputs[0].content)
            seen.append((await api.tools.detail("sum")).description)
            await api.tape.note("mine.note", {"x": 1})
            seen.append(await api.steering.take())
            seen.append(await api.prompt.system())
            passages = (await api.knowledge.retrieve("base", "question", 5)).passages.items
            seen.append([passage.text for passage in passages])
            seen.append(await api.platform.call("message.delete", arguments={"id": 1}))
            yield run_completed()

        async with PluginHarness(plugin) as host:
            host.api.model_replies.extend(
                [ModelOutput("invoked"), ModelOutput("streamed", usage=Usage(total_tokens=3))]
            )
            host.api.steering.append("faster")
            host.api.knowledge["base"] = [KnowledgePassage("a.md", "rope", 0.5)]
            host.api.on("platform.call", lambda params: {"deleted": params["arguments"]["id"]})
            report = await host.run("main")
            self.assertEqual(report.types, ["run.completed"], report.failure)
        self.assertEqual(
            seen,
            [3, ["count"], True, b"\x00\x01", b"ell", "invoked", "text", "usage", "stop", 2, "test:model"]
            + ["3", "Sum", ["faster"], "", ["rope"], {"deleted": 1}],
        )
        self.assertEqual(host.api.notes, [("mine.note", {"x": 1})])

    async def test_permissions_of_the_manifest_are_enforced(self) -> None:
        plugin = self.plugin(RUNNER + 'permissions = {state = ["conversation"]}\n')

        @plugin.runner("main")
        async def main(ctx: AgentRunContext) -> Any:
            await ctx.api.state.get("conversation", "key")
            try:
                await ctx.api.state.get("actor", "key")
            except RunApiError as error:
                yield message_delta(error.reason)
            await ctx.api.tape.view()

        async with PluginHarness(plugin) as host:
            report = await host.run("main")
        self.assertEqual((report.text, report.status), ("unauthorized", "failed"))
        self.assertIn("do not cover tape.view", report.failure or "")

    async def test_credit_of_the_harness(self) -> None:
        plugin = self.plugin(RUNNER)

        @plugin.runner("main")
        async def main(ctx: AgentRunContext) -> Any:
            for number in range(100):
                yield message_delta(f"{number} ")

        async with PluginHarness(plugin) as host:
            run = await host.start_run("main", credit=2, gives_credit=False)
            other = await host.run("main", credit=1)
            self.assertEqual(len(other.results), 101)
            self.assertEqual(len(run.received), 2)
            run.give_credit(200)
            self.assertEqual((await run.report()).text.split(), [str(number) for number in range(100)])

    async def test_cancelled_run_and_calls_after_its_end(self) -> None:
        plugin = self.plugin(EVERYTHING)
        ends: list[str] = []
        after: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def call_late(ctx: AgentRunContext) -> None:
            try:
                await ctx.api.state.get("conversation", "key")
            except RunEndedError as error:
                after.set_result(str(error))

        @plugin.runner("main")
        class Main(AgentRunner):
            async def run(self, ctx: AgentRunContext) -> Any:
                try:
                    yield message_delta("begun")
                    await asyncio.Event().wait()
                finally:
                    ends.append(ctx.cancel_reason)
                    asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(call_late(ctx)))

        async with PluginHarness(plugin) as host:
            run = await host.start_run("main")
            async for _ in run:
                break
            run.cancel("deadline")
            self.assertEqual((await run.report()).status, "cancelled")
            self.assertEqual(await after, "the run has ended")
        self.assertEqual(ends, ["deadline"])

    async def test_a_run_with_a_grace_period_yields_its_last_results(self) -> None:
        plugin = self.plugin(RUNNER + "capabilities = {interrupt = true}\n")

        @plugin.runner("main")
        async def main(ctx: AgentRunContext) -> Any:
            yield message_delta("begun")
            await ctx.cancelled.wait()
            yield message_completed(f"stopped: {ctx.cancel_reason}")

        async with PluginHarness(plugin) as host:
            run = await host.start_run("main")
            async for _ in run:
                break
            run.cancel("host_stopping", grace_ms=5000)
            report = await run.report()
        self.assertEqual((report.status, report.text), ("cancelled", "stopped: host_stopping"))

    async def test_log_progress_config_and_remaining_time(self) -> None:
        plugin = self.plugin(RUNNER)

        @plugin.runner("main")
        async def main(ctx: AgentRunContext) -> Any:
            ctx.log("warn", "careful", city="Paris")
            ctx.progress("reading", 1.5)
            remaining = ctx.remaining_seconds()
            assert remaining is not None
            yield message_completed(f"{ctx.config['greeting']} {ctx.settings['token']} {0 < remaining <= 60}")

        async with PluginHarness(plugin, settings={"token": "t"}) as host:
            report = await host.run("main", config={"greeting": "hi"}, deadline_ms=60_000)
        self.assertEqual(report.text, "hi t True")
        self.assertEqual(
            host.logs, [{"level": "warn", "message": "careful", "run_id": "run-1", "fields": {"city": "Paris"}}]
        )
        self.assertEqual(host.progress, [{"run_id": "run-1", "message": "reading", "fraction": 1.0}])

    async def test_state_of_one_run_is_in_the_context_of_the_next(self) -> None:
        plugin = self.plugin(RUNNER + 'permissions = {state = ["conversation"]}\n')

        @plugin.runner("main")
        async def main(ctx: AgentRunContext) -> Any:
            yield state_updated({"seen": ctx.state["conversation"].get("seen", 0) + 1, "old": None})

        async with PluginHarness(plugin) as host:
            host.api.state["conversation"]["old"] = 1
            await host.run("main")
            await host.run("main")
        self.assertEqual(host.api.state["conversation"], {"seen": 2})

    async def test_a_failed_and_a_silent_run(self) -> None:
        plugin = self.plugin(RUNNER)

        @plugin.runner("main")
        async def main(ctx: AgentRunContext) -> Any:
            yield run_failed("no", code="luck") if ctx.text == "fail" else run_completed(silent=True)

        async with PluginHarness(plugin) as host:
            failed, silent = await host.run("main", "fail"), await host.run("main")
        self.assertEqual((failed.status, failed.failure, failed.failure_code), ("failed", "no", "luck"))
        self.assertTrue(silent.silent)
        self.assertEqual(run_once_of(plugin), "completed")

    async def test_a_manifest_that_differs_is_reported_before_anything_starts(self) -> None:
        from capstan_sdk import ManifestError

        with self.assertRaisesRegex(ManifestError, "does not implement the runner main"):
            async with PluginHarness(self.plugin(RUNNER)):
                pass

    async def test_a_violation_fails_the_test(self) -> None:
        plugin = self.plugin(RUNNER)

        @plugin.runner("main")
        async def main(ctx: AgentRunContext) -> Any:
            yield run_completed()

        with self.assertRaisesRegex(HarnessError, "unknown run ghost"):
            async with PluginHarness(plugin) as host:
                host._server.connection.notify("run.result", {"run_id": "ghost", "result": {"type": "run.completed"}})


def run_once_of(plugin: Plugin) -> str:
    """Status of a run that is driven from code that is not asynchronous."""
    import threading

    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(run_once(plugin, "main", "hi").status))
    thread.start()
    thread.join()
    return found[0]


class HookTest(HarnessTest):
    async def test_only_declared_arguments_arrive_and_state_changes_are_a_patch(self) -> None:
        plugin = self.plugin('[[hooks]]\nname = "build_prompt"\narguments = ["state", "message", "handle"]\n')

        @plugin.hook()
        async def build_prompt(message: Any, state: Any, handle: Any) -> str:
            state["greeted"] = True
            del state["draft"]
            handle.note("mine.note", {"x": 1})
            handle.anchor("begin")
            handle.send("ops", "chat", "hello")
            return f"{message.event.input.text} from {message.origin}"

        message = {
            "event": {"event_id": "1", "event_type": "t", "source": "s", "input": {"text": "hi"}},
            "origin": "remote",
        }
        async with PluginHarness(plugin) as host:
            answer = await host.call_hook(
                "build_prompt", message=message, state={"draft": 1, "kept": 2}, session_id="s"
            )
        self.assertEqual(answer.value, "hi from remote")
        self.assertEqual(answer.state, {"kept": 2, "greeted": True})
        self.assertEqual([effect["type"] for effect in answer.effects], ["note", "anchor", "send"])
        self.assertIsNone(schema_check.problem({"$ref": "PluginHookAnswer"}, {"effects": answer.effects}))

    async def test_values_of_hooks(self) -> None:
        names = [
            "before_tool_call",
            "before_llm_call",
            "after_llm_call",
            "render_outbound",
            "dispatch_outbound",
            "on_error",
        ]
        arguments = [["call"], ["request"], ["outcome"], ["model_output"], ["message"], ["error", "notice"]]
        manifest = "".join(f'[[hooks]]\nname = "{n}"\narguments = {json.dumps(a)}\n' for n, a in zip(names, arguments))
        plugin = self.plugin(
            manifest + '[[hooks]]\nname = "system_prompt"\nmode = "static"\ntext = "Degrees are in Celsius."\n'
        )
        seen: list[Any] = []

        @plugin.hook("before_tool_call")
        def check_call(call: Any) -> Any:
            return deny(f"{call.name} is not allowed")

        @plugin.hook("before_llm_call")
        def answer_call(request: ModelRequest) -> Any:
            return finish_request(ModelOutput(f"from {request.model}"))

        @plugin.hook()
        def after_llm_call(outcome: Any) -> None:
            seen.append((outcome.output, outcome.error))

        @plugin.hook()
        def render_outbound(model_output: str) -> Any:
            return render_messages([OutboundMessage("s", "ops", "c", model_output)]) if model_output else stay_silent()

        @plugin.hook()
        def dispatch_outbound(message: OutboundMessage) -> HookAnswer:
            return HookAnswer(message.chat_id == "c", stage=True)

        @plugin.hook()
        def on_error(error: Any, notice: Any) -> None:
            notice.text = f"sorry: {error.public}"

        async with PluginHarness(plugin) as host:
            self.assertNotIn("system_prompt", host.initialized["hooks"])
            denied = await host.call_hook("before_tool_call", call={"name": "fs.write", "arguments": {}})
            self.assertEqual(denied.value, {"deny": "fs.write is not allowed"})
            finished = await host.call_hook("before_llm_call", request=ModelRequest("m", []))
            self.assertEqual(finished.value["finish"]["text"], "from m")
            await host.call_hook("after_llm_call", outcome={"error": "timeout"})
            self.assertEqual(seen, [(None, "timeout")])
            self.assertEqual((await host.call_hook("render_outbound", model_output="")).value, {"silent": True})
            rendered = await host.call_hook("render_outbound", model_output="hi")
            self.assertEqual(rendered.value["messages"][0]["content"], "hi")
            dispatched = await host.call_hook("dispatch_outbound", message=OutboundMessage("s", "ops", "c", "x"))
            self.assertEqual((dispatched.value, dispatched.stage), (True, True))
            failed = await host.call_hook("on_error", error={"detail": "d", "public": "p"})
            self.assertEqual(failed.notice, "sorry: p")

    async def test_an_exception_is_an_error_answer(self) -> None:
        plugin = self.plugin('[[hooks]]\nname = "build_prompt"\n')

        @plugin.hook()
        def build_prompt() -> None:
            raise ValueError("broken")

        async with PluginHarness(plugin) as host:
            with self.assertLogs("capstan_sdk"), self.assertRaises(RpcError) as raised:
                await host.call_hook("build_prompt")
        self.assertEqual((raised.exception.code, raised.exception.message), (-32603, "ValueError: broken"))


class ToolTest(HarnessTest):
    MANIFEST = """
[[tools]]
name = "tool"
description = "Tool"
parameters = {type = "object", properties = {x = {type = "string"}}}
"""

    async def test_outputs_of_tools(self) -> None:
        plugin = self.plugin(self.MANIFEST)

        @plugin.tool("tool")
        def tool(ctx: ToolContext, x: str = "") -> Any:
            """Tool."""
            if x == "error":
                raise ToolError("no such city")
            return {
                "json": {"a": 1},
                "none": None,
                "parts": [{"type": "text", "text": "a"}],
                "output": ToolOutput("o", True),
            }.get(x, x)

        async with PluginHarness(plugin) as host:
            outputs = {
                x: await host.call_tool("tool", {"x": x}) for x in ("text", "json", "none", "parts", "output", "error")
            }
        self.assertEqual(outputs["text"], ToolOutput("text"))
        self.assertEqual(outputs["json"].content, '{"a": 1}')
        self.assertEqual(outputs["none"].content, "")
        self.assertEqual(outputs["parts"].content, [{"type": "text", "text": "a"}])
        self.assertEqual(outputs["output"], ToolOutput("o", True))
        self.assertEqual(outputs["error"], ToolOutput("no such city", True))

    async def test_a_tool_reaches_the_storage_of_its_plugin_and_nothing_else(self) -> None:
        plugin = self.plugin(self.MANIFEST)
        kept: list[ToolContext] = []

        @plugin.tool("tool")
        async def tool(ctx: ToolContext, x: str = "") -> str:
            kept.append(ctx)
            await ctx.api.storage.put("plugin", "x", b"1")
            try:
                await ctx.api.tape.view()
            except RunApiError as error:
                return error.reason
            return "allowed"

        async with PluginHarness(plugin) as host:
            self.assertEqual((await host.call_tool("tool")).content, "unauthorized")
            with self.assertRaises(RunEndedError):
                await kept[0].api.storage.get("plugin", "x")


class ChannelTest(HarnessTest):
    async def test_many_events_under_little_credit(self) -> None:
        plugin = self.plugin('[[channels]]\nname = "feed"\n')
        acknowledged: list[str] = []

        @plugin.channel("feed")
        class Feed(Channel):
            async def run(self) -> None:
                for number in range(50):
                    await self.submit(self.message("hi", conversation_id="c", event_id=str(number), actor="ann"))
                    acknowledged.append(str(number))

        async with PluginHarness(plugin) as host:
            await host.start_channel("feed", credit=2)
            events = [(await host.next_event()).event for _ in range(50)]
            self.assertEqual(await host.ended_channels.get(), {"channel": "feed"})
        self.assertEqual([event.event_id for event in events], acknowledged)
        self.assertEqual(events[0].actor and events[0].actor.id, "ann")

    async def test_submit_of_a_channel_that_is_not_started(self) -> None:
        plugin = self.plugin('[[channels]]\nname = "feed"\n')
        feed = Channel()
        plugin.channel("feed")(feed)
        async with PluginHarness(plugin) as host:
            with self.assertRaises(ChannelStoppedError):
                await feed.submit(feed.message("hi", conversation_id="c"))
            await host.start_channel("feed")
            await feed.submit(feed.message("hi", conversation_id="c"), b"raw")
            self.assertEqual((await host.next_event()).raw, b"raw")
            await host.stop_channel("feed")
            with self.assertRaises(ChannelStoppedError):
                await feed.submit(feed.message("hi", conversation_id="c"))

    async def test_a_channel_that_cannot_connect(self) -> None:
        plugin = self.plugin('[[channels]]\nname = "feed"\n')

        @plugin.channel("feed")
        class Feed(Channel):
            async def start(self) -> None:
                raise ConnectionRefusedError("port 25")

        async with PluginHarness(plugin) as host:
            with self.assertLogs("capstan_sdk"), self.assertRaisesRegex(RpcError, "ConnectionRefusedError: port 25"):
                await host.start_channel("feed")


class SourceTest(HarnessTest):
    async def test_knowledge(self) -> None:
        plugin = self.plugin('[[knowledge]]\nid = "climate"\ndescription = "Climate"\n')

        @plugin.knowledge("climate")
        async def search(query: KnowledgeQuery) -> KnowledgeAnswer:
            passages = [KnowledgePassage("a.csv", query.text, 0.5, line=3)] * query.limit
            return KnowledgeAnswer(passages, skipped="b.csv is locked")

        async with PluginHarness(plugin) as host:
            answer = await host.search("climate", "rain", limit=2)
        self.assertEqual((len(answer.passages), answer.passages[0].line, answer.skipped), (2, 3, "b.csv is locked"))

    async def test_models(self) -> None:
        plugin = self.plugin('[[models]]\nname = "local"\n')

        @plugin.model("local")
        async def stream(request: ModelRequest) -> Any:
            if request.model == "busy":
                raise ModelCallError("rate_limited", "slow down")
            for number in range(100):
                yield ModelEventText(str(number))

        async with PluginHarness(plugin) as host:
            events = [event async for event in host.stream_model("local", ModelRequest("m", []), credit=3)]
            self.assertEqual([event.to_json().get("data") for event in events], [*map(str, range(100)), None])
            self.assertEqual(events[-1].to_json(), {"type": "stop"})
            with self.assertRaises(RpcError) as raised:
                async for _ in host.stream_model("local", ModelRequest("busy", [])):
                    pass
            self.assertEqual(raised.exception.data, {"kind": "rate_limited"})


def sample(schema: Any) -> Any:
    """A value that fits a schema: all required fields, and the first form of each union."""
    if schema is True or schema == {}:
        return {"any": 1}
    if "$ref" in schema:
        return sample(schema_check.definitions()[schema["$ref"].rsplit("/", 1)[-1]])
    if "const" in schema:
        return schema["const"]
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return sample(schema[word][0])
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: sample(properties[name]) for name in properties}
    if kind == "array":
        return [sample(schema["items"])]
    return {"string": "AAAA", "integer": 3, "number": 0.5, "boolean": True, "null": None, None: {"any": 1}}[kind]


class FacadeTest(unittest.IsolatedAsyncioTestCase):
    async def test_every_call_and_response_fits_the_schema(self) -> None:
        definitions = schema_check.definitions()

        class Caller:
            """Checks requests, and answers with samples."""

            async def call(self, method: str, params: dict[str, Any]) -> Any:
                found = schema_check.problem({"$ref": "ApiRequest"}, {"method": method, "params": params})
                assert found is None, f"{method}: {found}"
                return response

            def stream(self, method: str, params: dict[str, Any]) -> Any:
                assert schema_check.problem({"$ref": "ApiRequest"}, {"method": method, "params": params}) is None
                return None

        api = AgentRunAPIProxy(Caller())
        from capstan_sdk.codec import encode_json
        from capstan_sdk.testing import covers as _covers  # the harness knows every method

        for method, target in definitions["ApiResponse"]["discriminator"]["mapping"].items():
            response = sample(definitions[target.rsplit("/", 1)[-1]]["properties"]["result"])
            function = getattr(getattr(api, method.split(".")[0]), method.split(".")[1])
            request = definitions["ApiRequest"]["discriminator"]["mapping"][method].rsplit("/", 1)[-1]
            params = sample(definitions[request]["properties"]["params"])
            arguments = {name: params[name] for name in inspect.signature(function).parameters}
            for name in arguments:
                if name == "content" and method in ("artifacts.create", "storage.put"):
                    arguments[name] = b"\x00\x00\x00"
            result = function(**arguments)
            if method != "models.stream":
                decoded = encode_json(await result)
                wrapped = {"method": method, "result": decoded}
                self.assertIsNone(schema_check.problem({"$ref": "ApiResponse"}, wrapped), method)
            _covers({}, method, params)

    def test_forms_of_permissions(self) -> None:
        call = {"model": "openai:gpt"}
        for access, expected in [
            ("all", True),
            (["stream"], True),
            (["invoke"], False),
            ({"only": ["openai:gpt"]}, True),
            ({"names": {"only": ["other"]}, "operations": ["stream"]}, False),
            ({"operations": ["stream"]}, True),
            (None, False),
        ]:
            self.assertEqual(covers({"models": access}, "models.stream", call), expected, access)


if __name__ == "__main__":
    unittest.main()
