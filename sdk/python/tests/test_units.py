"""Parts of the SDK by themselves: limits, credit, models, schemas, the manifest and its reader."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import Annotated, Any, Literal, Optional, TypedDict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "src"))

import schema_check
from raw_host import MANIFEST, REPOSITORY, SOURCE, context

from capstan_sdk import (
    AgentRunner,
    Manifest,
    ManifestError,
    ModelDecodeError,
    Plugin,
    RegistrationError,
    RunContext,
    ToolContext,
    results,
)
from capstan_sdk.codec import OtherVariant, decoder_of
from capstan_sdk.connection import Connection
from capstan_sdk.credit import ReceiveCredit, SendCredit, StreamClosedError, item_cost
from capstan_sdk.framing import BadLine, FrameLimits, FrameSplitter, FrameTooLargeError, decode_line, encode_line
from capstan_sdk.json_schema import SchemaError, convert_value, function_schema
from capstan_sdk.manifest import _CHANNEL, _HOOK, _MANIFEST, _RUNNER, _TOOL, HOOK_ARGUMENTS
from capstan_sdk.models import ChatMessage, Event, ModelEvent, NewArtifact, ToolOutput
from capstan_sdk.toml_reader import TomlReader, parse_toml

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "scripts"
PROTOCOL_PAGE = REPOSITORY / "docs" / "plugin-protocol.md"


class GeneratedTest(unittest.TestCase):
    def test_generated_files_are_current(self) -> None:
        done = subprocess.run(
            [sys.executable, SCRIPTS / "generate_models.py", "--check"], capture_output=True, text=True
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_facade_has_every_method_of_the_run_api(self) -> None:
        from capstan_sdk.run_api import AgentRunAPIProxy

        proxy = AgentRunAPIProxy(None)  # type: ignore[arg-type]
        for method in schema_check.definitions()["ApiRequest"]["discriminator"]["mapping"]:
            group, _, name = method.partition(".")
            self.assertTrue(callable(getattr(getattr(proxy, group), name)), method)

    def test_every_result_has_a_helper_that_fits_the_schema(self) -> None:
        from capstan_sdk import ToolCall, ToolFunction, Usage

        call = ToolCall("1", ToolFunction("f", "{}"))
        made = [
            results.message_delta("a"),
            results.reasoning_delta("a"),
            results.message_completed(
                [results.text_part("a"), results.artifact_part(name="b")], usage=Usage(total_tokens=3)
            ),
            results.tool_call_started(call),
            results.tool_call_completed("1", "f", "output"),
            results.state_updated({"key": None}, "actor"),
            results.artifact_created("a.txt", "text/plain", b"abc"),
            results.action_requested("message.delete", {"id": 1}),
            results.run_completed(silent=True),
            results.run_failed("no", code="luck"),
        ]
        for result in made:
            self.assertIsNone(schema_check.problem({"$ref": "RunResult"}, result.to_json()), result)
        types = schema_check.definitions()["RunResult"]["discriminator"]["mapping"]
        self.assertEqual([result.type for result in made], list(types))

    def test_the_schema_check_finds_what_does_not_fit(self) -> None:
        check = schema_check.problem
        self.assertIn("delta", check({"$ref": "RunResult"}, {"type": "message.delta", "data": {}}) or "")
        self.assertIn("type", check({"$ref": "RunResult"}, {"type": "other", "data": {}}) or "")
        self.assertIn("limit", check({"$ref": "TapeSearchCall"}, {"text": "a", "limit": -1}) or "")
        self.assertIn("x", check({"$ref": "ActionRequest"}, {"action": "a", "x": 1}) or "")


class FramingTest(unittest.TestCase):
    def test_limit_of_a_line_is_exact(self) -> None:
        splitter = FrameSplitter(FrameLimits(max_frame_bytes=5))
        lines = list(splitter.feed(b"12345\n12345\r\n123456\n1\n"))
        self.assertEqual([line for line in lines if isinstance(line, bytes)], [b"12345", b"12345", b"1"])
        self.assertIsInstance(lines[2], BadLine)

    def test_a_long_line_is_not_kept(self) -> None:
        splitter = FrameSplitter(FrameLimits(max_frame_bytes=100))
        for _ in range(1000):
            self.assertEqual(list(splitter.feed(b"x" * 90)), [])
        self.assertEqual(splitter._pieces, [])
        lines = list(splitter.feed(b"\n{}\n"))
        self.assertIsInstance(lines[0], BadLine)
        self.assertEqual(lines[1], b"{}")

    def test_limit_of_the_depth_is_exact(self) -> None:
        for depth, fits in ((4, True), (5, False)):
            line = b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
            self.assertEqual(isinstance(decode_line(line, FrameLimits(max_frame_depth=4)), dict), fits)
        message = {"jsonrpc": "2.0", "id": 1, "result": [[[[]]]]}
        with self.assertRaises(FrameTooLargeError):
            encode_line(message, FrameLimits(max_frame_depth=4))
        encode_line(message, FrameLimits(max_frame_depth=5))

    def test_messages_that_are_not_valid(self) -> None:
        bad = [
            {"jsonrpc": "1.0", "id": 1, "result": 1},
            {"jsonrpc": "2.0", "id": -1, "result": 1},
            {"jsonrpc": "2.0", "id": 2**53, "result": 1},
            {"jsonrpc": "2.0", "id": True, "result": 1},
            {"jsonrpc": "2.0", "id": "x" * 129, "method": "ping"},
            {"jsonrpc": "2.0", "id": 1, "result": 1, "error": {"code": 1}},
            {"jsonrpc": "2.0", "id": 1},
            {"jsonrpc": "2.0", "id": 1, "error": {"message": "no code"}},
            {"jsonrpc": "2.0", "method": 5},
        ]
        for message in bad:
            self.assertIsInstance(decode_line(json.dumps(message).encode(), FrameLimits()), BadLine, message)

    def test_limits_of_the_peer_tolerate_nonsense(self) -> None:
        limits = FrameLimits.from_json(
            {"max_frame_bytes": True, "max_frame_depth": "x", "max_concurrent_requests": 7, "y": 1}
        )
        self.assertEqual(limits, FrameLimits(max_concurrent_requests=7))


class CreditTest(unittest.IsolatedAsyncioTestCase):
    def test_cost_of_an_item(self) -> None:
        self.assertEqual([item_cost(length) for length in (0, 65535, 65536, 131072)], [1, 1, 2, 3])

    def test_the_consumer_gives_back_at_half_of_the_first_credit(self) -> None:
        credit = ReceiveCredit(8)
        self.assertEqual([credit.consume(1) for _ in range(8)], [0, 0, 0, 4, 0, 0, 0, 4])
        self.assertTrue(ReceiveCredit(1).receive(5))
        small = ReceiveCredit(1)
        small.receive(5)
        self.assertFalse(small.receive(1))

    async def test_senders_wait_in_order_and_a_cancelled_one_is_passed_over(self) -> None:
        credit = SendCredit(1)
        sent: list[int] = []

        async def send(number: int) -> None:
            await credit.spend(1)
            sent.append(number)

        tasks = [asyncio.create_task(send(number)) for number in range(5)]
        while not sent:
            await asyncio.sleep(0)
        tasks[1].cancel()
        credit.grant(2)
        await asyncio.gather(tasks[2], tasks[3])
        self.assertEqual((sent, credit.available), ([0, 2, 3], 0))
        credit.close()
        with self.assertRaises(StreamClosedError):
            await tasks[4]

    async def test_a_waiter_that_is_cancelled_when_it_was_woken_wakes_the_next(self) -> None:
        credit = SendCredit(0)
        first, second = asyncio.create_task(credit.spend(1)), asyncio.create_task(credit.spend(1))
        await asyncio.sleep(0)
        credit.grant(1)
        first.cancel()
        await second
        self.assertTrue(first.cancelled())


class QueueTest(unittest.IsolatedAsyncioTestCase):
    async def test_senders_wait_while_the_other_side_does_not_read(self) -> None:
        read_end, write_end = os.pipe()
        input_end, unused = os.pipe()
        connection = Connection(input_end, write_end, _NoHandler())
        credit = SendCredit(10**6)
        line = b"x" * 999_999 + b"\n"
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for _ in range(50):
                await connection.send_item(credit, line)
                sent += 1

        task = asyncio.create_task(flood())
        for _ in range(100):
            await asyncio.sleep(0)
        self.assertLess(sent, 10)  # 4 MB are queued, and no more is taken
        received = 0
        loop = asyncio.get_running_loop()
        while received < 50 * len(line):
            received += len(await loop.run_in_executor(None, os.read, read_end, 1 << 20))
        await task
        self.assertEqual(sent, 50)
        await connection.close()
        for descriptor in (read_end, write_end, input_end, unused):
            os.close(descriptor)


class _NoHandler:
    def handle_request(self, request: Any) -> Any:
        return None

    def handle_notification(self, method: str, params: dict[str, Any], line_len: int) -> None:
        pass

    def handle_item(self, stream: str, item: Any, line_len: int) -> None:
        pass

    def handle_end(self) -> None:
        pass


class ModelTest(unittest.TestCase):
    def test_unknown_fields_and_values_survive_a_round_trip(self) -> None:
        value = {"role": "narrator", "content": [{"type": "hologram", "x": 1}], "further": {"y": [1]}}
        message = ChatMessage.from_json(value)
        self.assertEqual((message.role, message.extra), ("narrator", {"further": {"y": [1]}}))
        self.assertEqual(message.to_json(), value)

    def test_unknown_variants_are_kept(self) -> None:
        event = decoder_of(ModelEvent)({"type": "from.the.future", "data": 1}, "item")
        self.assertIsInstance(event, OtherVariant)
        self.assertEqual((event.type, event.to_json()), ("from.the.future", {"type": "from.the.future", "data": 1}))

    def test_errors_name_the_field(self) -> None:
        value = context("r")
        del value["event"]["event_type"]
        with self.assertRaisesRegex(ModelDecodeError, r"^context\.event\.event_type: the field is missing$"):
            RunContext.from_json(value, "context")
        value = context("r")
        value["input"] = {"contents": [1]}
        with self.assertRaisesRegex(ModelDecodeError, r"^input\.contents\[0\]: expected an object, got a number$"):
            RunContext.from_json(value)

    def test_null_is_the_same_as_absent(self) -> None:
        output = ToolOutput.from_json({"content": "a", "is_error": None})
        self.assertEqual((output.is_error, output.to_json()), (False, {"content": "a"}))

    def test_bytes_are_base64(self) -> None:
        self.assertEqual(NewArtifact("a", "b", b"\x00\xff").to_json()["content"], "AP8=")
        self.assertEqual(
            NewArtifact.from_json({"name": "a", "media_type": "b", "content": "AP8="}).content, b"\x00\xff"
        )
        with self.assertRaisesRegex(ModelDecodeError, "content: not base64"):
            NewArtifact.from_json({"name": "a", "media_type": "b", "content": "%"})

    def test_models_compare_and_print(self) -> None:
        event = Event("1", "message.received", "cli")
        self.assertEqual(event, Event.from_json(event.to_json()))
        self.assertNotEqual(event, Event("2", "message.received", "cli"))
        self.assertIn("event_id='1'", repr(event))


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Place:
    city: str
    height: float = 0.0


class Options(TypedDict, total=False):
    short: bool


class SchemaTest(unittest.TestCase):
    def test_schema_of_a_function(self) -> None:
        def tool(
            ctx: ToolContext,
            city: Annotated[str, "Name of the city"],
            days: int = 3,
            unit: Literal["c", "f"] = "c",
            tags: Optional[list[str]] = None,
            color: Color = Color.RED,
            place: Optional[Place] = None,
            options: Optional[Options] = None,
            **further: Any,
        ) -> str:
            return ""

        schema = function_schema(tool, ToolContext)
        self.assertEqual(schema.context_name, "ctx")
        self.assertTrue(schema.takes_any)
        place = {
            "type": "object",
            "properties": {"city": {"type": "string"}, "height": {"type": "number", "default": 0.0}},
            "additionalProperties": False,
            "required": ["city"],
        }
        properties = {
            "city": {"type": "string", "description": "Name of the city"},
            "days": {"type": "integer", "default": 3},
            "unit": {"enum": ["c", "f"], "default": "c"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            "color": {"enum": ["red", "blue"]},
            "place": {"anyOf": [place, {"type": "null"}]},
            "options": {"anyOf": [{"type": "object", "properties": {"short": {"type": "boolean"}}}, {"type": "null"}]},
        }
        self.assertEqual(schema.parameters, {"type": "object", "properties": properties, "required": ["city"]})

    def test_arguments_become_the_types_of_the_hints(self) -> None:
        self.assertEqual(convert_value(Optional[Place], {"city": "a", "height": 3}), Place("a", 3.0))
        self.assertEqual(convert_value(list[Color], ["red"]), [Color.RED])
        self.assertEqual(convert_value(dict[str, Place], {"a": {"city": "b"}}), {"a": Place("b")})
        self.assertEqual(convert_value(Optional[list[Place]], [{"city": "b"}]), [Place("b")])
        self.assertIsNone(convert_value(Optional[Place], None))

    def test_a_hint_without_schema_is_refused(self) -> None:
        def tool(when: complex) -> str:
            return ""

        with self.assertRaisesRegex(SchemaError, r"tool\(when\)"):
            function_schema(tool, ToolContext)


class ManifestTest(unittest.TestCase):
    def parse(self, text: str) -> Manifest:
        return Manifest.parse(MANIFEST + textwrap.dedent(text))

    def test_the_manifest_of_the_specification(self) -> None:
        page = PROTOCOL_PAGE.read_text()
        text = page.split("affected.\n\n```toml\n")[1].split("```")[0]
        manifest = Manifest.parse(text)
        self.assertEqual(
            (manifest.id, list(manifest.tools), list(manifest.knowledge)), ("ann/weather", ["weather.now"], ["climate"])
        )
        self.assertTrue(manifest.is_static("system_prompt"))

    def test_the_hooks_and_keys_are_those_of_the_specification(self) -> None:
        rows = [
            line.split("|")
            for line in PROTOCOL_PAGE.read_text()
            .split("| hook | arguments | `value` |")[1]
            .split("\n\n")[0]
            .split("\n")[2:]
        ]
        hooks = {row[1].strip(" `"): tuple(name.strip(" `") for name in row[2].split(",")) for row in rows}
        self.assertEqual(HOOK_ARGUMENTS, hooks)
        for check, name in (
            (_MANIFEST, "PluginManifest"),
            (_RUNNER, "PluginRunnerManifest"),
            (_HOOK, "PluginHookManifest"),
            (_TOOL, "PluginToolManifest"),
            (_CHANNEL, "PluginChannelManifest"),
        ):
            keys = set(schema_check.definitions()[name]["properties"])
            with self.assertRaises(ManifestError) as raised:
                check({"no-such-key": 1, **self.required(name)}, "x")
            known = set(str(raised.exception).split("known are ")[1].split(", "))
            self.assertEqual(known, keys, name)

    def required(self, name: str) -> dict[str, Any]:
        values = {"id": "a/b", "version": "1", "protocol": 1, "command": ["a"], "label": "l", "description": "d"}
        own = {"PluginHookManifest": {"name": "load_state"}}.get(name, {"name": "n"})
        wanted = schema_check.definitions()[name]["required"]
        return {key: {**values, **own}[key] for key in wanted if key in {**values, **own}}

    def test_errors_name_the_key(self) -> None:
        for text, message in {
            "further = 1": "further: unknown key",
            '[[tools]]\nname = "a"': r"tools\[0\]\.description: the key is missing",
            '[[tools]]\nname = "A"\ndescription = "d"': r"tools\[0\]\.name: 'A' is not a valid name",
            '[[tools]]\nname = "a"\ndescription = "d"\neffect = "magic"': r"tools\[0\]\.effect: 'magic' is none of none, reads",
            '[[hooks]]\nname = "build_prompt"\narguments = ["step"]': "the hook has no argument 'step'",
            '[[hooks]]\nname = "nothing"': r"hooks\[0\]\.name: 'nothing' is none of",
            '[[models]]\nname = "a"\n[[models]]\nname = "a"': r"models\[1\]\.name: a is there twice",
            "x = = 1": r"plugin\.toml: .*line 6",
        }.items():
            with self.assertRaisesRegex(ManifestError, message):
                self.parse(text)
        with self.assertRaisesRegex(ManifestError, "version 2 is not supported"):
            Manifest.parse(MANIFEST.replace("protocol = 1", "protocol = 2"))

    def test_differences_between_code_and_manifest_have_hints(self) -> None:
        plugin = Plugin()

        @plugin.tool("weather.now")
        def now(city: str, days: int) -> str:
            return ""

        @plugin.hook()
        def build_prompt(message: Any) -> str:
            return ""

        @plugin.runner("extra")
        async def extra(ctx: Any) -> Any:
            yield results.run_completed()

        manifest = self.parse("""
            [[tools]]
            name = "weather.now"
            description = "Weather"
            parameters = {type = "object", properties = {city = {type = "integer"}, place = {type = "string"}}}

            [[hooks]]
            name = "build_prompt"
            arguments = ["state"]

            [[channels]]
            name = "station"
        """)
        self.assertEqual(
            plugin.differences(manifest),
            [
                'the manifest does not have the runner extra: add [[runners]] with name = "extra"',
                'the code does not implement the channel station: add @plugin.channel("station") or remove it',
                'the hook build_prompt takes other arguments than the manifest declares: write arguments = ["message"]',
                "the function of the tool weather.now has no parameter place, which the manifest declares",
                "the manifest does not declare the parameter days of the tool weather.now",
                "the parameter city of the tool weather.now has no default: add it to required in the manifest",
                "the parameter city of the tool weather.now is string in the code and integer in the manifest",
            ],
        )

    def test_parameters_in_a_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "plugin.toml").write_text(
                MANIFEST + '[[tools]]\nname = "a"\ndescription = "d"\nparameters = "a.json"\n'
            )
            (path / "a.json").write_text('{"type": "object"}')
            self.assertEqual(Manifest.load(path).tool_parameters("a"), {"type": "object"})

    def test_registrations_that_are_refused(self) -> None:
        plugin = Plugin()

        async def coroutine(ctx: Any) -> None:
            pass

        class NoYield(AgentRunner):
            async def run(self, ctx: Any) -> Any:  # type: ignore[override]
                return None

        for register, contribution in [
            (plugin.runner("a"), coroutine),
            (plugin.runner("b"), NoYield),
            (plugin.hook("no_such_hook"), coroutine),
            (plugin.hook("build_prompt"), coroutine),
            (plugin.model("c"), coroutine),
            (plugin.channel("d"), object()),
            (plugin.tool("e", parameters={"properties": {"x": {}}}), coroutine),
        ]:
            with self.assertRaises(RegistrationError):
                register(contribution)


class CommandTest(unittest.TestCase):
    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        command = [sys.executable, "-m", "capstan_sdk", *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)

    def test_the_printed_manifest_agrees_with_the_code(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        code = """
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.tool("a.b")
            def tool(text: str = 'quote " and \\n') -> str:
                'Says "hello".'

            @plugin.hook()
            def build_prompt(message, state): pass

            @plugin.channel("c")
            class C(Channel): pass

            @plugin.knowledge("k")
            def search(query): pass

            @plugin.model("m")
            async def model(request): yield None

            @plugin.runner("r")
            async def runner(ctx): yield None

            serve(plugin)
        """
        (self.folder / "plugin.py").write_text(textwrap.dedent(code))
        missing = self.command("check", "plugin.py")
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))
        self.assertIn("plugin.toml: the manifest does not exist", missing.stderr)
        printed = self.command("manifest", "plugin.py")
        self.assertEqual((printed.returncode, printed.stderr), (0, ""))
        (self.folder / "plugin.toml").write_text(MANIFEST + printed.stdout)
        checked = self.command("check", "plugin.py")
        self.assertEqual((checked.stdout, checked.stderr), ("test/plugin 1.0.0: the manifest and the code agree\n", ""))
        self.assertEqual(self.command("check", "no.py").returncode, 1)
        self.assertEqual(self.command("other").returncode, 2)


class TomlTest(unittest.TestCase):
    TEXT = r'''
        # a comment
        text = "a\tb\u00e9\"" # after
        literal = 'C:\new'
        "quoted key" = 1
        a.b.c = [1, 0x1F, 1_000, -3]
        float = 1.5e3
        flags = [true, false]
        mixed = [ "x", {y = 1, z.w = "v"},
          # inside
          [1, 2],
        ]
        long = """
one \
   two
"three""""
        raw = @@@x\n@@@

        [table]
        key = {}
        [table.inner]
        key = 1
        [[list]]
        name = "a"
        [[list.items]]
        n = 1
        [[list.items]]
        n = 2
        [[list]]
        name = "b"
        items = []
    '''

    def test_the_small_reader_agrees_with_tomllib(self) -> None:
        text = "\n".join(line.lstrip() for line in self.TEXT.replace("@@@", "'''").split("\n"))
        expected: dict[str, Any] = {
            "text": 'a\tbé"',
            "literal": "C:\\new",
            "quoted key": 1,
            "a": {"b": {"c": [1, 31, 1000, -3]}},
            "float": 1500.0,
            "flags": [True, False],
            "mixed": ["x", {"y": 1, "z": {"w": "v"}}, [1, 2]],
            "table": {"key": {}, "inner": {"key": 1}},
            "list": [{"name": "a", "items": [{"n": 1}, {"n": 2}]}, {"name": "b", "items": []}],
        }
        found = TomlReader(text).document()
        self.assertEqual({key: found[key] for key in expected}, expected)
        self.assertEqual(found, parse_toml(text))
        for path in [*REPOSITORY.glob("examples/plugins/*/plugin.toml")]:
            self.assertEqual(TomlReader(path.read_text()).document(), parse_toml(path.read_text()), path)

    def test_mistakes_are_refused_with_their_place(self) -> None:
        for text in (
            "a",
            "a = ",
            "a = 1 b = 2",
            "a = 1\na = 2",
            "[a]\n[a]",
            "a = {b = 1}\n[a]\nc = 1",
            'a = "x',
            "a = [1",
            "[[a]]\n[a]\nb=1\n[a]",
            "a = 2026-01-01",
            'a = "\\q"',
            "a = 1\na.b = 2",
            "= 1",
        ):
            with self.assertRaises(ManifestError, msg=text) as raised:
                TomlReader(text).document()
            self.assertRegex(str(raised.exception), r"\(at line \d+, column \d+\)$")
            if "2026" not in text:
                with self.assertRaises(ManifestError, msg=text):
                    parse_toml(text)


if __name__ == "__main__":
    unittest.main()
