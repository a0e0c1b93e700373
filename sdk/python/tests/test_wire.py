"""The wire of a plugin process: framing, bad input, concurrency, cancellation, flow control and the end."""

from __future__ import annotations

import collections
import random
import unittest

from raw_host import Message, RawHost, WireTest, context, line_of

RUNNER = '[[runners]]\nname = "main"\nlabel = "Main"\n'

ECHO = """
    from capstan_sdk import *
    plugin = Plugin()

    @plugin.runner("main")
    async def main(ctx):
        yield message_completed(ctx.text)

    serve(plugin)
"""

# Yields "1", "2" ... for `count N`; waits for `run.cancel` or an answer of the host for `wait`.
COUNTER = """
    import asyncio
    from capstan_sdk import *
    plugin = Plugin()

    @plugin.runner("main")
    async def main(ctx):
        word, _, number = ctx.text.partition(" ")
        if word == "count":
            for each in range(int(number)):
                yield message_delta(str(each + 1))
        elif word == "wait":
            yield message_delta("waiting")
            await asyncio.Event().wait()
        elif word == "ask":
            yield message_delta(str(await ctx.api.state.get("conversation", "key")))
        elif word == "grace":
            yield message_delta("waiting")
            await ctx.cancelled.wait()
            yield message_completed(ctx.cancel_reason)
        elif word == "raise":
            raise ValueError("bad city")
        elif word == "big":
            yield message_completed("x" * int(number))
        elif word == "fail":
            raise RunFailure("no luck", code="luck")
        elif word == "text":
            yield "a text"
        elif word == "after":
            yield run_completed()
            print("code after the end of the run")
            yield message_delta("late")

    serve(plugin)
"""


class FramingTest(WireTest):
    def test_split_and_glued_frames(self) -> None:
        host = self.start_plugin(ECHO, RUNNER)
        params = {"runner": "main", "credit": 5}
        lines = b"".join(
            line_of(
                {
                    "id": number,
                    "method": "run.start",
                    "params": {**params, "run_id": f"r{number}", "context": context(f"r{number}", "a€b")},
                }
            )
            for number in range(3)
        )
        for start in range(0, len(lines), 700):  # cuts lines, and characters of more than one byte
            host.send_bytes(lines[start : start + 700])
        for number in range(3):
            self.assertEqual(host.result(f"r{number}")["data"]["content"], "a€b")
            self.assertEqual(host.result(f"r{number}"), {"type": "run.completed"})

    def test_carriage_returns_and_blank_lines_are_ignored(self) -> None:
        host = self.start_plugin(ECHO, RUNNER)
        host.send_bytes(b"\n  \r\n\r\n" + line_of({"id": 7, "method": "ping"})[:-1] + b"\r\n")
        self.assertEqual(host.answer(7)["result"], {})

    def test_garbage_is_dropped_and_the_next_line_is_read(self) -> None:
        host = self.start_plugin(ECHO, RUNNER)
        deep = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 200 + b"]" * 200 + b"}\n"
        for line in (
            b"hello\n",
            b"\xff\xfe\n",
            b"[1]\n",
            b"{}\n",
            b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n',
            deep,
        ):
            host.send_bytes(line)
        host.send_bytes(b'{"jsonrpc":"2.0","id":1,"result":NaN}\n' + b'"' + b'\\"' * 200_000 + b"\n")
        host.send_bytes(line_of({"id": "text id", "method": "ping"}))
        self.assertEqual(host.answer("text id")["result"], {})
        self.assertEqual(host.kept, [])

    def test_an_answerable_bad_request_gets_invalid_request(self) -> None:
        host = self.start_plugin(ECHO, RUNNER)
        host.send_bytes(b'{"id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"method":"ping","params":[]}\n')
        self.assertEqual([host.answer(number)["error"]["code"] for number in (1, 2)], [-32600, -32600])

    def test_a_line_above_the_limit_is_skipped(self) -> None:
        host = self.start_plugin(ECHO, RUNNER)
        host.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"' + b"x" * (9 * 1024 * 1024) + b'"}\n')
        host.send_bytes(line_of({"id": 2, "method": "ping"}))
        self.assertEqual(host.answer(2)["result"], {})
        self.assertEqual(host.kept, [])

    def test_depth_in_texts_does_not_count(self) -> None:
        host = self.start_plugin(ECHO, RUNNER)
        text = '["{' * 300 + '\\"'
        host.start_run("r", text)
        self.assertEqual(host.result("r")["data"]["content"], text)

    def test_print_of_the_author_goes_to_stderr(self) -> None:
        code = """
            import os, subprocess, sys, ctypes
            from capstan_sdk import *
            print("at the top")
            plugin = Plugin()

            @plugin.runner("main")
            async def main(ctx):
                print("printed")
                sys.stdout.write("written\\n")
                os.write(1, b"by descriptor\\n")
                subprocess.run(["sh", "-c", "echo by a child"])
                ctypes.CDLL(None).puts(b"by C")
                ctypes.CDLL(None).fflush(None)
                print("{", file=sys.__stdout__)
                yield message_completed(repr(sys.stdin.read()))

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER)
        host.start_run("r")
        self.assertEqual([each["type"] for each in host.results("r", 2)], ["message.completed", "run.completed"])
        self.assertEqual(host.end(), 0)
        self.assertEqual(host.bad_lines, [])
        for text in (b"at the top", b"printed", b"written", b"by descriptor", b"by a child", b"by C", b"{"):
            self.assertIn(text, host.stderr)

    def test_a_child_that_imports_the_sdk_keeps_its_stdout(self) -> None:
        code = """
            import subprocess, sys
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.runner("main")
            async def main(ctx):
                child = subprocess.run([sys.executable, "-c", "import capstan_sdk; print('child')"], capture_output=True)
                yield message_completed(child.stdout.decode())

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER)
        host.start_run("r")
        self.assertEqual(host.result("r")["data"]["content"], "child\n")


class RequestTest(WireTest):
    def test_requests_before_initialize_are_not_ready(self) -> None:
        host = self.start_plugin(ECHO, RUNNER, initialize=False)
        codes = [host.call(method)["error"]["code"] for method in ("ping", "run.start", "shutdown", "no.such")]
        self.assertEqual(codes, [-32004, -32004, -32004, -32004])
        self.assertEqual(host.initialize()["result"]["runners"], ["main"])
        self.assertEqual(host.initialize()["error"]["code"], -32004)

    def test_initialize_reports_what_the_code_implements(self) -> None:
        host = self.start_plugin(ECHO, RUNNER, initialize=False)
        result = host.initialize()["result"]
        self.assertEqual((result["protocol"], result["id"], result["version"]), (1, "test/plugin", "1.0.0"))
        self.assertEqual(result["hooks"], {})
        self.assertEqual(result["limits"]["max_frame_bytes"], 8 * 1024 * 1024)
        self.assertEqual(result["sdk"]["name"], "capstan-sdk-python")

    def test_a_difference_from_the_manifest_answers_initialize(self) -> None:
        host = self.start_plugin(
            ECHO, RUNNER + '[[tools]]\nname = "weather.now"\ndescription = "Weather"\n', initialize=False
        )
        error = host.initialize()["error"]
        self.assertEqual(error["code"], -32000)
        self.assertIn("the code does not implement the tool weather.now", error["message"])

    def test_a_protocol_version_that_is_not_supported_is_refused(self) -> None:
        host = self.start_plugin(ECHO, RUNNER, initialize=False)
        self.assertIn("version 2 is not supported", host.initialize(protocol=2)["error"]["message"])

    def test_unknown_methods_and_notifications(self) -> None:
        host = self.start_plugin(ECHO, RUNNER)
        host.notify("no.such", x=1)
        self.assertEqual(host.call("no.such")["error"]["code"], -32601)

    def test_unknown_fields_are_ignored_and_bad_params_named(self) -> None:
        host = self.start_plugin(ECHO, RUNNER)
        host.start_run("r", "hi", further={"x": 1})
        self.assertEqual(host.result("r")["data"]["content"], "hi")
        broken = context("s")
        broken["event"]["source"] = 5
        error = host.call("run.start", run_id="s", runner="main", context=broken, credit=5)["error"]
        self.assertEqual(
            (error["code"], error["message"]), (-32602, "context.event.source: expected a text, got a number")
        )
        error = host.call("run.start", run_id="s", runner="main", context=context("s"))["error"]
        self.assertEqual((error["code"], error["message"]), (-32602, "credit: the parameter is missing"))
        error = host.call("run.start", run_id="s", runner="other", context=context("s"), credit=1)["error"]
        self.assertEqual((error["code"], error["message"]), (-32602, "runner: there is no runner other"))

    def test_ping_is_answered_while_the_code_of_a_run_blocks_the_loop(self) -> None:
        code = """
            import os, threading
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.runner("main")
            async def main(ctx):
                yield message_delta("blocking")
                with open("gate") as gate:   # a named pipe: blocks the event loop until the test writes
                    gate.read()
                yield message_completed("free")

            os.mkfifo("gate")
            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER)
        host.start_run("r")
        host.result("r")
        for _ in range(3):
            self.assertEqual(host.call("ping")["result"], {})
        gate = f"/proc/{host.process.pid}/cwd/gate"
        with open(gate, "w") as file:
            file.write("go")
        self.assertEqual(host.result("r")["data"]["content"], "free")

    def test_too_many_requests_are_answered_overloaded(self) -> None:
        code = """
            import asyncio
            from capstan_sdk import *
            plugin = Plugin()
            gate = asyncio.Event()

            @plugin.tool()
            async def wait() -> str:
                await gate.wait()
                return "done"

            @plugin.runner("main")
            async def main(ctx):
                gate.set()
                yield run_completed()

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER + '[[tools]]\nname = "wait"\ndescription = "Wait"\n')
        asked = [host.ask("tool.call", call_id=f"c{number}", tool="wait", arguments={}) for number in range(256)]
        self.assertEqual(host.call("tool.call", call_id="further", tool="wait", arguments={})["error"]["code"], -32003)
        host.start_run("r")  # is not counted
        self.assertEqual([host.answer(each)["result"]["content"] for each in asked], ["done"] * 256)

    def test_an_answer_twice_and_an_unknown_answer_are_dropped(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        host.start_run("r", "ask")
        call = host.request("run.call")
        self.assertEqual(call["params"]["method"], "state.get")
        host.send({"id": 987, "result": "unknown"})
        host.send({"id": call["id"], "result": "first"})
        host.send({"id": call["id"], "result": "second"})
        self.assertEqual(host.result("r")["data"]["delta"], "first")
        self.assertEqual(host.result("r"), {"type": "run.completed"})
        self.assertEqual(host.call("ping")["result"], {})

    def test_a_request_id_in_use_is_dropped(self) -> None:
        code = """
            import asyncio
            from capstan_sdk import *
            plugin = Plugin()
            calls = []

            @plugin.tool()
            async def second(ctx: ToolContext) -> str:
                calls.append(ctx.call_id)
                while len(calls) < 2:
                    await asyncio.sleep(0)
                return ",".join(calls)

            serve(plugin)
        """
        host = self.start_plugin(code, '[[tools]]\nname = "second"\ndescription = "Second"\n')
        for call in ("a", "b"):
            host.send({"id": 5, "method": "tool.call", "params": {"call_id": call, "tool": "second"}})
        host.send({"id": 6, "method": "tool.call", "params": {"call_id": "c", "tool": "second"}})
        self.assertEqual(host.answer(5)["result"]["content"], "a,c")

    def test_cancel_of_a_request_and_its_deadline(self) -> None:
        code = """
            import asyncio
            from capstan_sdk import *
            plugin = Plugin()
            ends = []

            @plugin.tool()
            async def wait(ctx: ToolContext) -> str:
                try:
                    ctx.progress("begun")
                    await asyncio.Event().wait()
                finally:
                    ends.append("end")

            @plugin.tool()
            def count() -> int:
                return len(ends)

            serve(plugin)
        """
        manifest = "".join(f'[[tools]]\nname = "{name}"\ndescription = "Tool"\n' for name in ("wait", "count"))
        host = self.start_plugin(code, manifest)
        first = host.ask("tool.call", call_id="a", tool="wait", arguments={})
        self.assertEqual(host.notification("progress")["params"], {"call_id": "a", "message": "begun"})
        host.notify("request.cancel", id=first)
        host.notify("request.cancel", id=999)
        self.assertEqual(host.answer(first)["error"]["code"], -32001)
        self.assertEqual(host.call("tool.call", call_id="b", tool="count", arguments={})["result"]["content"], "1")
        late = host.call("tool.call", call_id="c", tool="wait", arguments={}, deadline_ms=20)
        self.assertEqual(late["error"]["code"], -32002)
        host.call("tool.call", call_id="d", tool="count", arguments={})
        self.assertEqual([message for message in host.kept if "method" not in message], [])


class RunTest(WireTest):
    def test_200_concurrent_runs(self) -> None:
        code = """
            import asyncio
            from capstan_sdk import *
            plugin = Plugin()
            present = []
            everyone = asyncio.Event()

            @plugin.runner("main")
            async def main(ctx):
                present.append(ctx.run_id)
                if len(present) == 200:
                    everyone.set()
                await everyone.wait()
                seen = await ctx.api.state.get("conversation", ctx.run_id)
                for number in range(5):
                    yield message_delta(f"{seen}.{number} ")

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER)
        runs = [f"r{number}" for number in range(200)]
        for run in runs:
            host.ask("run.start", run_id=run, runner="main", context=context(run), credit=16)
        deltas: dict[str, list[str]] = {run: [] for run in runs}
        ended: set[str] = set()
        while len(ended) < 200:
            message = host.wait_for(lambda each: each.get("method") in ("run.call", "run.result"))
            run = message["params"]["run_id"]
            if message["method"] == "run.call":
                host.send({"id": message["id"], "result": message["params"]["params"]["key"]})
            elif message["params"]["result"]["type"] == "run.completed":
                self.assertNotIn(run, ended)
                ended.add(run)
            else:
                deltas[run].append(message["params"]["result"]["data"]["delta"])
        for run in runs:
            self.assertEqual(deltas[run], [f"{run}.{number} " for number in range(5)])

    def test_a_run_without_credit_waits_while_others_go_on(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        host.start_run("slow", "count 50", credit=3)
        host.start_run("fast", "count 200", credit=1000)
        self.assertEqual([each["data"]["delta"] for each in host.results("slow", 3)], ["1", "2", "3"])
        self.assertEqual(
            [each["data"]["delta"] for each in host.results("fast", 200)], [str(n + 1) for n in range(200)]
        )
        self.assertEqual(host.result("fast"), {"type": "run.completed"})
        self.assertEqual([each for each in host.drain() if each.get("method") == "run.result"], [])
        host.notify("stream.credit", stream="slow", credit=2)
        self.assertEqual([each["data"]["delta"] for each in host.results("slow", 2)], ["4", "5"])
        self.assertEqual(host.drain(), [])
        host.notify("stream.credit", stream="slow", credit=100)
        self.assertEqual([each["data"]["delta"] for each in host.results("slow", 45)], [str(n) for n in range(6, 51)])

    def test_a_large_item_costs_more_credit(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        host.start_run("r", f"big {3 * 65536}", credit=1)
        self.assertEqual(host.result("r")["type"], "message.completed")
        host.notify("stream.credit", stream="r", credit=3)  # 4 were used, so that 0 are left
        self.assertEqual(host.drain(), [])
        host.notify("stream.credit", stream="r", credit=1)
        self.assertEqual(host.result("r"), {"type": "run.completed"})

    def test_credit_of_other_streams_and_bad_credit_change_nothing(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        host.start_run("r", "count 5", credit=1)
        host.result("r")
        for credit in (
            {"stream": "other", "credit": 9},
            {"stream": "r", "credit": -4},
            {"stream": "r", "credit": "x"},
            {},
        ):
            host.notify("stream.credit", **credit)
        self.assertEqual(host.drain(), [])

    def test_cancel_of_one_of_many_runs(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        for run in ("a", "b", "c"):
            host.start_run(run, "ask")
        host.start_run("cancelled", "wait")
        host.result("cancelled")
        host.notify("run.cancel", run_id="cancelled", reason="cancelled", grace_ms=0)
        for _ in range(3):
            call = host.request("run.call")
            host.send({"id": call["id"], "result": call["params"]["run_id"]})
        for run in ("a", "b", "c"):
            self.assertEqual(host.result(run)["data"]["delta"], run)
            self.assertEqual(host.result(run), {"type": "run.completed"})
        self.assertEqual(host.drain(), [])
        host.start_run("cancelled", "count 1")  # the id is free again
        self.assertEqual(host.result("cancelled")["data"]["delta"], "1")

    def test_cancel_with_a_grace_period_lets_the_runner_end(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        host.start_run("r", "grace")
        host.result("r")
        host.notify("run.cancel", run_id="r", reason="host_stopping", grace_ms=5000)
        self.assertEqual(host.result("r")["data"]["content"], "host_stopping")
        self.assertEqual(host.result("r"), {"type": "run.completed"})

    def test_a_call_of_a_cancelled_run_is_cancelled(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        host.start_run("r", "ask")
        call = host.request("run.call")
        host.notify("run.cancel", run_id="r", grace_ms=0)
        self.assertEqual(host.notification("request.cancel")["params"], {"id": call["id"]})
        host.send({"id": call["id"], "error": {"code": -32001, "message": "cancelled"}})
        self.assertEqual(host.drain(), [])

    def test_exceptions_of_the_author_end_only_their_run(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        expected = {
            "raise": {"message": "ValueError: bad city", "code": "runner-error"},
            "fail": {"message": "no luck", "code": "luck"},
            "text": {
                "message": "TypeError: a runner yields results such as message_completed(...), not str",
                "code": "runner-error",
            },
        }
        for word, data in expected.items():
            host.start_run(word, word)
            self.assertEqual(host.result(word), {"type": "run.failed", "data": data})
        host.start_run("after", "after")
        self.assertEqual(host.result("after"), {"type": "run.completed"})
        self.assertEqual(host.drain(), [])
        host.end()
        self.assertIn(b"Traceback", host.stderr)
        self.assertNotIn(b"code after the end", host.stderr)

    def test_a_result_above_the_limit_of_the_host_fails_its_run(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER, limits={"max_frame_bytes": 4096})
        host.start_run("r", "big 5000")
        result = host.result("r")
        self.assertEqual((result["type"], result["data"]["code"]), ("run.failed", "result-invalid"))

    def test_results_that_json_cannot_represent(self) -> None:
        code = """
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.runner("main")
            async def main(ctx):
                yield message_delta("a\\ud800b\\u2028\\n")
                yield state_updated({"value": float("nan")})

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER)
        host.start_run("r")
        self.assertEqual(host.result("r")["data"]["delta"], "a\ufffdb\u2028\n")
        self.assertEqual(host.result("r")["type"], "run.failed")

    def test_errors_of_the_run_api_have_their_types(self) -> None:
        code = """
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.runner("main")
            async def main(ctx):
                for key in ("a", "b", "c"):
                    try:
                        await ctx.api.state.get("conversation", key)
                    except RunApiError as error:
                        yield message_delta(f"{error.reason} {error.retryable} {error}")
                    except RunEndedError as error:
                        yield message_delta(f"ended {error}")
                    except RpcError as error:
                        yield message_delta(f"{error.code} {error}")

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER)
        host.start_run("r")
        refusals = [
            (-32000, {"code": "from_the_future", "message": "no", "retryable": True}, "from_the_future True no"),
            (-32005, None, "ended no"),
            (-32006, None, "-32006 no"),
        ]
        for code_number, data, text in refusals:
            error = {"code": code_number, "message": "no", **({"data": data} if data else {})}
            host.send({"id": host.request("run.call")["id"], "error": error})
            self.assertEqual(host.result("r")["data"]["delta"], text)


class StreamTest(WireTest):
    CODE = """
        from capstan_sdk import *
        plugin = Plugin()

        @plugin.runner("main")
        async def main(ctx):
            async with ctx.api.models.stream(messages=[ChatMessage("user", ctx.text)]) as stream:
                async for event in stream:
                    if event.type == "text":
                        yield message_delta(event.data)
                    if ctx.text == "leave":
                        break
            if ctx.text == "leave":
                yield message_completed("left")

        serve(plugin)
    """

    def test_the_consumer_gives_credit_back_and_unknown_events_pass(self) -> None:
        host = self.start_plugin(self.CODE, RUNNER)
        host.start_run("r", "hi", credit=1000)
        call = host.request("run.call")
        stream, credit = call["params"]["stream"], call["params"]["credit"]
        self.assertEqual(call["params"]["params"]["messages"], [{"role": "user", "content": "hi"}])
        left = credit
        for number in range(100):
            while left <= 0:
                given = host.notification("stream.credit")["params"]
                self.assertEqual(given["stream"], stream)
                left += given["credit"]
            host.notify("stream.item", stream=stream, item={"type": "text", "data": str(number)})
            left -= 1
        host.notify("stream.item", stream=stream, item={"type": "from.the.future", "data": 1})
        host.notify("stream.item", stream="other", item={"type": "text", "data": "other"})
        host.send({"id": call["id"], "result": {}})
        self.assertEqual([each["data"]["delta"] for each in host.results("r", 100)], [str(n) for n in range(100)])
        self.assertEqual(host.result("r"), {"type": "run.completed"})

    def test_items_without_credit_end_their_stream_and_nothing_else(self) -> None:
        host = self.start_plugin(self.CODE, RUNNER)
        host.start_run("r", "hi", credit=1)
        host.start_run("other", "hi")
        calls = {call["params"]["run_id"]: call for call in (host.request("run.call"), host.request("run.call"))}
        stream, credit = calls["r"]["params"]["stream"], calls["r"]["params"]["credit"]
        for _ in range(2 * credit):  # the run waits for its own credit, and consumes two of them
            host.notify("stream.item", stream=stream, item={"type": "text", "data": "a"})
        self.assertEqual(host.notification("request.cancel")["params"], {"id": calls["r"]["id"]})
        host.notify("stream.credit", stream="r", credit=1000)
        results = host.results("r", credit + 1)
        self.assertEqual(results[-1]["data"]["message"], "RpcError: the host sent an item without credit")
        host.notify("stream.item", stream=calls["other"]["params"]["stream"], item={"type": "text", "data": "b"})
        self.assertEqual(host.result("other")["data"]["delta"], "b")

    def test_a_stream_that_is_left_is_cancelled(self) -> None:
        host = self.start_plugin(self.CODE, RUNNER)
        host.start_run("r", "leave")
        call = host.request("run.call")
        host.notify("stream.item", stream=call["params"]["stream"], item={"type": "text", "data": "a"})
        host.result("r")
        self.assertEqual(host.notification("request.cancel")["params"], {"id": call["id"]})
        self.assertEqual(host.result("r")["data"]["content"], "left")

    def test_an_error_of_the_model_reaches_the_runner(self) -> None:
        host = self.start_plugin(self.CODE, RUNNER)
        host.start_run("r", "hi")
        call = host.request("run.call")
        host.notify("stream.item", stream=call["params"]["stream"], item={"type": "text", "data": "a"})
        data = {"code": "runtime_error", "message": "the provider failed"}
        host.send({"id": call["id"], "error": {"code": -32000, "message": "failed", "data": data}})
        self.assertEqual(host.result("r")["data"]["delta"], "a")
        self.assertEqual(host.result("r")["data"]["message"], "RunApiError: the provider failed")

    def test_a_model_provider_waits_for_credit(self) -> None:
        code = """
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.model("local")
            async def local(request):
                for number in range(10):
                    yield ModelEventText(f"{request.model}{number}")

            serve(plugin)
        """
        host = self.start_plugin(code, '[[models]]\nname = "local"\n')
        request = {"model": "m", "messages": []}
        asked = host.ask("model.stream", provider="local", request=request, stream="s1", credit=4)
        items = [host.notification("stream.item")["params"]["item"]["data"] for _ in range(4)]
        self.assertEqual(items, ["m0", "m1", "m2", "m3"])
        self.assertEqual(host.drain(), [])
        host.notify("stream.credit", stream="s1", credit=20)
        items = [host.notification("stream.item")["params"]["item"] for _ in range(7)]
        self.assertEqual(items[-1], {"type": "stop"})
        self.assertEqual(host.answer(asked)["result"], {})


class EndTest(WireTest):
    def test_the_end_of_the_host_leaves_no_complaints(self) -> None:
        code = """
            import asyncio
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.runner("main")
            async def main(ctx):
                yield message_delta("begun")
                async for event in ctx.api.models.stream(messages=[]):
                    yield message_delta(event.data)

            @plugin.channel("feed")
            class Feed(Channel):
                async def run(self):
                    await asyncio.gather(*(self.submit(self.message(str(n), conversation_id="c")) for n in range(3)))

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER + '[[channels]]\nname = "feed"\n')
        host.call("channel.start", channel="feed", credit=1)
        host.request("channel.event")
        host.start_run("stream")
        stream = host.request("run.call")["params"]["stream"]
        host.start_run("starved", credit=1)
        host.notify("stream.item", stream=stream, item={"type": "text", "data": "a"})
        host.results("stream", 2)
        host.drain()
        self.assertEqual(host.end(), 0)
        self.assertEqual(host.stderr.decode(), "")

    def test_shutdown_waits_for_a_run_and_calls_stop_functions(self) -> None:
        code = """
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.runner("main")
            async def main(ctx):
                yield message_delta("begun")
                await ctx.cancelled.wait()
                yield message_delta(str(await ctx.api.state.get("conversation", "key")))

            @plugin.on_stop
            def stop():
                print("stopped")

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER)
        host.start_run("r")
        host.result("r")
        shutdown = host.ask("shutdown", deadline_ms=20_000)
        call = host.request("run.call")
        self.assertEqual(
            host.call("run.start", run_id="x", runner="main", credit=1, context={})["error"]["code"], -32004
        )
        host.send({"id": call["id"], "result": "last"})
        self.assertEqual(host.result("r")["data"]["delta"], "last")
        self.assertEqual(host.result("r"), {"type": "run.completed"})
        self.assertEqual(host.answer(shutdown)["result"], {})
        self.assertEqual(host.end(), 0)
        self.assertIn(b"stopped", host.stderr)

    def test_shutdown_ends_a_run_that_does_not_end(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        host.start_run("r", "wait")
        host.result("r")
        self.assertEqual(host.call("shutdown", deadline_ms=100)["result"], {})
        self.assertEqual(host.end(), 0)

    def test_the_process_ends_with_its_stdin_while_runs_are_served(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        for number in range(20):
            host.start_run(f"r{number}", "wait")
        self.assertEqual(host.end(), 0)

    def test_the_process_ends_although_a_thread_of_the_author_does_not(self) -> None:
        code = """
            import threading
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.tool()
            def hang() -> str:
                print("hanging", flush=True)
                threading.Event().wait()

            serve(plugin)
        """
        host = self.start_plugin(code, '[[tools]]\nname = "hang"\ndescription = "Hang"\n')
        host.ask("tool.call", call_id="a", tool="hang", arguments={})
        self.assertEqual(host.drain(), [])
        self.assertEqual(host.end(), 0)

    def test_the_process_ends_although_code_of_the_author_blocks_the_event_loop(self) -> None:
        code = """
            import time
            import capstan_sdk.serving
            from capstan_sdk import *
            capstan_sdk.serving.WATCHDOG_TIMEOUT = 0.05
            plugin = Plugin()

            @plugin.runner("main")
            async def main(ctx):
                yield message_delta("begun")
                time.sleep(1000)

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER)
        host.start_run("r")
        host.result("r")
        self.assertEqual(host.end(), 1)

    def test_a_channel_is_cancelled_when_the_host_is_gone(self) -> None:
        code = """
            import asyncio
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.channel("feed")
            class Feed(Channel):
                async def run(self):
                    try:
                        await asyncio.Event().wait()
                    finally:
                        print("disconnected")

            serve(plugin)
        """
        host = self.start_plugin(code, '[[channels]]\nname = "feed"\n')
        host.call("channel.start", channel="feed", credit=1)
        self.assertEqual(host.end(), 0)
        self.assertEqual(host.stderr.decode(), "disconnected\n")

    def test_exit_functions_run_after_a_tool_that_used_a_thread(self) -> None:
        code = """
            import atexit
            from capstan_sdk import *
            plugin = Plugin()
            atexit.register(lambda: print("exit function"))

            @plugin.tool()
            def threaded() -> str:
                return "done"

            serve(plugin)
        """
        host = self.start_plugin(code, '[[tools]]\nname = "threaded"\ndescription = "Threaded"\n')
        self.assertEqual(
            host.call("tool.call", call_id="a", tool="threaded", arguments={})["result"]["content"], "done"
        )
        self.assertEqual(host.end(), 0)
        self.assertIn(b"exit function", host.stderr)

    def test_a_host_that_does_not_read_does_not_stop_the_plugin_from_ending(self) -> None:
        host = self.start_plugin(COUNTER, RUNNER)
        host.pause_reading()
        for number in range(4):
            host.ask(
                "run.start",
                run_id=f"r{number}",
                runner="main",
                context=context(f"r{number}", "big 4000000"),
                credit=1000,
            )
        host.close_stdin()
        self.assertEqual(host.process.wait(20), 0)

    def test_a_flood_is_complete_after_a_pause_of_the_host(self) -> None:
        code = """
            from capstan_sdk import *
            plugin = Plugin()

            @plugin.runner("main")
            async def main(ctx):
                for _ in range(500):
                    yield message_delta("x" * 100_000)

            serve(plugin)
        """
        host = self.start_plugin(code, RUNNER)
        host.pause_reading()
        host.ask("run.start", run_id="flood", runner="main", context=context("flood"), credit=1002)
        host.resume_reading()
        self.assertEqual(len([host.result("flood") for _ in range(500)]), 500)
        self.assertEqual(host.result("flood"), {"type": "run.completed"})

    def test_an_interpreter_error_at_the_top_ends_the_process(self) -> None:
        host = self.start_plugin("import no_such_module", initialize=False)
        self.assertEqual(host.wait(), 1)
        self.assertIn(b"no_such_module", host.stderr)


class RandomTest(WireTest):
    """Requests, cancellations, deadlines, runs and credit in random order, the same in every execution."""

    CODE = """
        import asyncio
        from capstan_sdk import *
        plugin = Plugin()

        @plugin.tool("mixed")
        async def mixed(ctx: ToolContext, n: int) -> str:
            try:
                for _ in range(n % 7):
                    await asyncio.sleep(0)
                if n % 11 == 0:
                    raise ToolError("no")
                if n % 6 == 0:
                    await ctx.api.storage.get("plugin", "x")
            except asyncio.CancelledError:
                if n % 2:
                    raise
            return "done"

        @plugin.tool("threaded")
        def threaded(n: int) -> str:
            return "done"

        @plugin.runner("main")
        async def main(ctx):
            for n in range(int(ctx.text)):
                yield message_delta(str(n))

        serve(plugin)
    """
    TOOLS = "".join(
        f'[[tools]]\nname = "{name}"\ndescription = "Tool"\n'
        'parameters = {type = "object", properties.n.type = "integer", required = ["n"]}\n'
        for name in ("mixed", "threaded")
    )

    def test_one_answer_per_request_and_whole_runs(self) -> None:
        host = self.start_plugin(self.CODE, RUNNER + self.TOOLS)
        chance = random.Random(7)
        asked: set[str] = set()
        cancelled: set[str] = set()
        runs: dict[str, list[Message]] = {}
        answers: collections.Counter[str] = collections.Counter()

        def is_over(run: str) -> bool:
            return run in cancelled or bool(runs[run]) and runs[run][-1]["type"] == "run.completed"

        def receive() -> None:
            message = host.wait_for(lambda _: True)
            if "method" not in message:
                answers[message["id"]] += 1
            elif message["method"] == "run.call":
                host.send({"id": message["id"], "result": {"content": ""}})
            elif message["method"] == "run.result":
                run = message["params"]["run_id"]
                runs[run].append(message["params"]["result"])
                host.notify("stream.credit", stream=run, credit=chance.randrange(1, 4))

        for number in range(600):
            identifier = f"request-{number}"
            asked.add(identifier)
            if chance.random() < 0.7:
                tool = chance.choice(["mixed", "threaded"])
                params: Message = {"call_id": f"call-{number}", "tool": tool, "arguments": {"n": number}}
                if chance.random() < 0.3:
                    params["deadline_ms"] = chance.choice([0, 1, 1000])
                host.send({"id": identifier, "method": "tool.call", "params": params})
                if chance.random() < 0.3:
                    host.notify("request.cancel", id=identifier)
            else:
                run = f"run-{number}"
                runs[run] = []
                params = {"run_id": run, "runner": "main", "context": context(run, str(chance.randrange(20)))}
                host.send(
                    {"id": identifier, "method": "run.start", "params": {**params, "credit": chance.randrange(1, 5)}}
                )
                if chance.random() < 0.2:
                    cancelled.add(run)
                    host.notify("run.cancel", run_id=run, grace_ms=0)
            while len(asked) - len(answers) > 50:
                receive()
        while len(answers) < len(asked) or not all(is_over(run) for run in runs):
            receive()
        self.assertEqual(host.end(), 0)
        left = [message for message in iter(host.messages.get, None) if "method" not in message]
        self.assertEqual((set(answers), set(answers.values()), left), (asked, {1}, []))
        for run, results in runs.items():
            deltas = [result["data"]["delta"] for result in results if result["type"] == "message.delta"]
            self.assertEqual(deltas, [str(n) for n in range(len(deltas))], run)
            self.assertLessEqual([result["type"] for result in results].count("run.completed"), 1, run)


class ChannelTest(WireTest):
    CODE = """
        import asyncio
        from capstan_sdk import *
        plugin = Plugin()

        @plugin.channel("feed")
        class Feed(Channel):
            async def run(self):
                for number in range(5):
                    event = self.message(f"message {number}", conversation_id="c", event_id=f"e{number}")
                    try:
                        await self.submit(event, raw=b"raw")
                        print(f"acknowledged {number}")
                    except EventRefusedError as error:
                        print(f"refused {number} {error.code} {error.retryable}")
                if self.settings.get("fails"):
                    raise ValueError("the connection was refused")
                await asyncio.Event().wait()

            async def send(self, message):
                kind = content_text(message.content)
                if kind == "crash":
                    raise ValueError("crash")
                if kind != "ok":
                    raise DeliveryError(kind, "no")

        serve(plugin)
    """
    MANIFEST = '[[channels]]\nname = "feed"\n'

    def test_events_need_credit_and_are_acknowledged_after_the_answer(self) -> None:
        host = self.start_plugin(self.CODE, self.MANIFEST)
        self.assertEqual(host.call("channel.start", channel="feed", credit=1)["result"], {})
        first = host.request("channel.event")
        self.assertEqual(first["params"]["channel"], "feed")
        self.assertEqual(first["params"]["raw"], "cmF3")
        expected = {
            "event_id": "e0",
            "event_type": "message.received",
            "source": "feed",
            "conversation_id": "c",
            "input": {"text": "message 0"},
        }
        self.assertEqual(first["params"]["event"], expected)
        host.send({"id": first["id"], "result": {}})
        self.assertEqual(host.drain(), [])
        host.notify("stream.credit", stream="channel:feed", credit=1)
        second = host.request("channel.event")
        self.assertEqual(second["params"]["event"]["event_id"], "e1")
        refusal = {"code": "input-invalid", "message": "no", "retryable": True}
        host.send({"id": second["id"], "error": {"code": -32000, "message": "no", "data": refusal}})
        host.notify("stream.credit", stream="channel:feed", credit=1)
        self.assertEqual(host.request("channel.event")["params"]["event"]["event_id"], "e2")
        host.end()
        self.assertEqual(host.stderr.decode(), "acknowledged 0\nrefused 1 input-invalid True\n")

    def test_stop_waits_for_the_answers_to_submitted_events(self) -> None:
        host = self.start_plugin(self.CODE, self.MANIFEST)
        host.call("channel.start", channel="feed", credit=10)
        event = host.request("channel.event")
        stop = host.ask("channel.stop", channel="feed", deadline_ms=5000)
        self.assertEqual(host.drain(), [])
        self.assertEqual(self.deliver(host, "ok"), {})
        host.send({"id": event["id"], "result": {}})
        self.assertEqual(host.answer(stop)["result"], {})
        self.assertEqual(host.drain(), [])
        self.assertEqual(host.call("channel.start", channel="feed", credit=10)["result"], {})
        self.assertEqual(host.request("channel.event")["params"]["event"]["event_id"], "e0")

    def test_kinds_of_delivery_errors(self) -> None:
        host = self.start_plugin(self.CODE, self.MANIFEST)
        self.assertEqual(self.deliver(host, "ok"), {"kind": "not_sent"})
        host.call("channel.start", channel="feed", credit=1)
        self.assertEqual(self.deliver(host, "ok"), {})
        self.assertEqual(self.deliver(host, "permanent"), {"kind": "permanent"})
        self.assertEqual(self.deliver(host, "crash"), {"kind": "unknown"})

    def test_a_channel_that_fails_reports_its_end(self) -> None:
        host = self.start_plugin(self.CODE, self.MANIFEST, settings={"fails": True})
        host.call("channel.start", channel="feed", credit=100)
        for _ in range(5):
            host.send({"id": host.request("channel.event")["id"], "result": {}})
        ended = host.notification("channel.ended")["params"]
        self.assertEqual(ended, {"channel": "feed", "error": "ValueError: the connection was refused"})

    def deliver(self, host: RawHost, text: str) -> object:
        message = {"session_id": "s", "channel": "feed", "chat_id": "c", "content": text}
        answer = host.call("channel.send", channel="feed", message=message, deadline_ms=5000)
        return answer["error"]["data"] if "error" in answer else answer["result"]


if __name__ == "__main__":
    unittest.main()
