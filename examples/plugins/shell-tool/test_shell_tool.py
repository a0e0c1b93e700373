"""Test of the tool over its wire, with nothing but lines."""

import json
import pathlib
import subprocess
import sys
import unittest
from typing import Any

FOLDER = pathlib.Path(__file__).parent


class ShellToolTest(unittest.TestCase):
    def converse(self, *lines: Any) -> list[Any]:
        text = "".join(
            (line if isinstance(line, str) else json.dumps({"jsonrpc": "2.0", **line})) + "\n" for line in lines
        )
        command = [sys.executable, "tool.py"]
        done = subprocess.run(command, cwd=FOLDER, input=text, capture_output=True, text=True, timeout=20)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_a_conversation(self) -> None:
        identity = {"id": "capstan/shell-tool", "version": "1.0.0"}
        call = {"call_id": "c", "run_id": "r", "tool": "disk.free", "arguments": {"folder": "/"}, "workspace": "/"}
        missing = {**call, "arguments": {"folder": "/no/such/folder"}}
        answers = self.converse(
            {"id": 1, "method": "initialize", "params": {"protocol": 1, "plugin": identity}},
            "no message",
            "[]",
            {"method": "request.cancel", "params": {"id": 9}},
            {"id": "two", "method": "tool.call", "params": call},
            {"id": 3, "method": "tool.call", "params": missing},
            {"id": 4, "method": "no.such"},
            {"id": 5, "method": "shutdown", "params": {"deadline_ms": 1000}},
        )
        self.assertEqual(answers[0]["result"], {"protocol": 1, **identity, "tools": ["disk.free"]})
        self.assertEqual(answers[1]["id"], "two")
        self.assertIn("%", answers[1]["result"]["content"])
        self.assertTrue(answers[2]["result"]["is_error"])
        self.assertEqual(answers[3]["error"]["code"], -32601)
        self.assertEqual(answers[4], {"jsonrpc": "2.0", "id": 5, "result": {}})


if __name__ == "__main__":
    unittest.main()
