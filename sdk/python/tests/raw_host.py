"""A host for tests of the wire: it drives a plugin process with plain lines, without the transport of the SDK."""

from __future__ import annotations

import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from typing import Any, Callable, Optional

import schema_check

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"
REPOSITORY = SOURCE.parent.parent.parent
MAX_WAIT_SECONDS = 20.0

Message = dict[str, Any]

MANIFEST = """
id = "test/plugin"
version = "1.0.0"
protocol = 1
command = ["python3", "plugin.py"]
"""


def context(run_id: str, text: str = "") -> Message:
    """A run context."""
    event = {"event_id": "e", "event_type": "message.received", "source": "test", "input": {"text": text}}
    return {
        "run_id": run_id,
        "trigger": {"type": "message.received", "binding_id": "b"},
        "event": event,
        "conversation": {"session_id": "s"},
        "input": {"text": text},
        "delivery": {},
        "resources": {"grant": {}},
        "context": {"tape": "t"},
        "runtime": {"workspace": "/", "started_at": "2026-01-01T00:00:00Z"},
    }


class RawHost:
    """One plugin process, and the messages that it sent."""

    def __init__(self, folder: pathlib.Path, command: list[str]) -> None:
        environment = {name: os.environ[name] for name in ("PATH", "LANG", "HOME") if name in os.environ}
        environment["PYTHONPATH"] = str(SOURCE)
        environment["CAPSTAN_PLUGIN_PROTOCOL"] = "1"
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.messages: queue.Queue[Optional[Message]] = queue.Queue()
        self.kept: list[Message] = []
        self.bad_lines: list[bytes] = []
        self.schema_problems: list[str] = []
        self._methods: dict[Any, str] = {}
        self.stderr = b""
        self._may_read = threading.Event()
        self._may_read.set()
        self._ids = 100
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read_stdout, self._read_stderr)]
        for thread in self._threads:
            thread.start()

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        while True:
            self._may_read.wait()
            line = self.process.stdout.readline()
            if not line:
                self.messages.put(None)
                return
            try:
                message = json.loads(line)
            except ValueError:
                if line.endswith(b"\n"):  # the end of the process may cut its last line off
                    self.bad_lines.append(line[:200])
                continue
            found = schema_check.message_problem(message, self._methods.get(message.get("id")))
            if found is not None:
                self.schema_problems.append(found)
            self.messages.put(message)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line

    def pause_reading(self) -> None:
        """Reads no further line after the next one."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Reads again."""
        self._may_read.set()

    def send_bytes(self, data: bytes) -> None:
        """Sends bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: Message) -> None:
        """Sends a message on one line."""
        if "id" in message and "method" in message:
            self._methods[message["id"]] = message["method"]
        self.send_bytes(line_of(message))

    def notify(self, method: str, **params: Any) -> None:
        """Sends a notification."""
        self.send({"method": method, "params": params})

    def ask(self, method: str, **params: Any) -> int:
        """Sends a request; its id."""
        self._ids += 1
        self.send({"id": self._ids, "method": method, "params": params})
        return self._ids

    def call(self, method: str, **params: Any) -> Message:
        """Sends a request and waits for its answer."""
        return self.answer(self.ask(method, **params))

    def answer(self, identifier: Any) -> Message:
        """The answer to a request."""
        return self.wait_for(lambda message: message.get("id") == identifier and "method" not in message)

    def results(self, run_id: str, count: int) -> list[Message]:
        """The next results of a run."""
        return [self.result(run_id) for _ in range(count)]

    def result(self, run_id: str) -> Message:
        """The next result of a run."""
        message = self.wait_for(lambda each: each.get("method") == "run.result" and each["params"]["run_id"] == run_id)
        result = message["params"]["result"]
        assert isinstance(result, dict)
        return result

    def request(self, method: str) -> Message:
        """The next request of the plugin with this method."""
        return self.wait_for(lambda message: message.get("method") == method and "id" in message)

    def notification(self, method: str) -> Message:
        """The next notification of the plugin with this method."""
        return self.wait_for(lambda message: message.get("method") == method and "id" not in message)

    def wait_for(self, matches: Callable[[Message], bool]) -> Message:
        """The first message that matches and was not returned before; others are kept."""
        for index, message in enumerate(self.kept):
            if matches(message):
                return self.kept.pop(index)
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while True:
            try:
                found = self.messages.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no such message; stderr: {self.stderr.decode()}; kept: {self.kept}") from None
            if found is None:
                self.messages.put(None)
                raise AssertionError(f"the plugin closed its stdout; stderr: {self.stderr.decode()}; kept: {self.kept}")
            if matches(found):
                return found
            self.kept.append(found)

    def initialize(self, **params: Any) -> Message:
        """Sends `initialize`; the answer."""
        return self.call("initialize", **{"protocol": 1, "plugin": {"id": "test/plugin", "version": "1.0.0"}, **params})

    def start_run(self, run_id: str, text: str = "", credit: int = 1000, runner: str = "main", **params: Any) -> None:
        """Starts a run; the answer must be `{}`."""
        answer = self.call(
            "run.start", run_id=run_id, runner=runner, context=context(run_id, text), credit=credit, **params
        )
        assert answer.get("result") == {}, answer

    def drain(self) -> list[Message]:
        """All messages up to the answers of requests sent now, one after the other.

        The event loop of the plugin answers an unknown method, and between two of them what was woken goes on.
        """
        for _ in range(5):
            self.answer(self.ask("no.such"))
        found, self.kept = self.kept, []
        return found

    def close_stdin(self) -> None:
        """Ends the input of the plugin."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> int:
        """Waits for the end of the process; its status."""
        status = self.process.wait(MAX_WAIT_SECONDS)
        self._join()
        return status

    def end(self) -> int:
        """Ends the plugin in order; its status."""
        try:
            self.close_stdin()
        except BrokenPipeError:
            pass
        return self.wait()

    def kill(self) -> None:
        """Ends the process if it is still there."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                if pipe is not None:
                    pipe.close()
            except BrokenPipeError:
                pass

    def _join(self) -> None:
        self.resume_reading()
        for thread in self._threads:
            thread.join(MAX_WAIT_SECONDS)


def line_of(message: Message) -> bytes:
    """The line of a message."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


class WireTest(unittest.TestCase):
    """Base of tests that start a plugin process."""

    def start_plugin(self, code: str, manifest: str = "", initialize: bool = True, **params: Any) -> RawHost:
        """Starts a plugin of this code. `manifest` has its contributions."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="capstan-sdk-"))
        self.addCleanup(shutil.rmtree, folder)
        (folder / "plugin.toml").write_text(MANIFEST + textwrap.dedent(manifest))
        (folder / "plugin.py").write_text(textwrap.dedent(code))
        host = RawHost(folder, [sys.executable, "-S", "plugin.py"])
        self.addCleanup(self.check_lines, host)
        self.addCleanup(host.kill)
        if initialize:
            answer = host.initialize(**params)
            self.assertIn("result", answer, host.stderr)
        return host

    def check_lines(self, host: RawHost) -> None:
        """Every line that the plugin wrote must be a message that fits the schema bundle."""
        self.assertEqual(host.bad_lines, [])
        self.assertEqual(host.schema_problems, [])
