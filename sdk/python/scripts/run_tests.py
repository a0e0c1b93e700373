#!/usr/bin/env python3
"""Runs the tests of the SDK and of the examples, as several processes at a time, because most of them wait for a plugin
process."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = PACKAGE.parent.parent / "examples" / "plugins"


def main() -> int:
    """Runs all tests; 0 if they pass."""
    example_tests = sorted(EXAMPLES.glob("*/test_*.py"))
    wire = (PACKAGE / "tests" / "test_wire.py").read_text(encoding="utf-8")
    groups = [
        ["test_units", "test_harness", *(file.stem for file in example_tests)],
        ["test_documentation"],
        *([f"test_wire.{name}"] for name in re.findall(r"^class (\w+)\(WireTest\)", wire, re.MULTILINE)),
    ]
    folders = [PACKAGE / "src", PACKAGE / "tests", *(file.parent for file in example_tests)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(folder) for folder in folders)}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "unittest", *group],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for group in groups
    ]
    failed = tests = 0
    for group, process in zip(groups, started):
        output, _ = process.communicate()
        count = re.search(r"^Ran (\d+) test", output, re.MULTILINE)
        tests += int(count[1]) if count else 0
        if process.returncode != 0 or count is None:
            failed += 1
            print(f"== {' '.join(group)}\n{output}")
    print(f"{tests} tests, {len(groups)} groups, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
