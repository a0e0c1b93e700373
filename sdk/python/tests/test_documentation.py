"""The examples of the guide: its files are written to folders, its tests and commands run."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from raw_host import REPOSITORY, SOURCE

GUIDE = REPOSITORY / "docs" / "plugin-python.md"
BLOCK = re.compile(r"<!-- (file|run): (\S+?)(, appended)? -->\n```\w+\n(.*?)```\n", re.DOTALL)
DURATION = re.compile(r"in \d+\.\d+s")
# On a busy machine the debug mode of asyncio remarks that a callback was slow.
REMARK = re.compile(r"Executing <.* seconds\n")


class DocumentationTest(unittest.TestCase):
    folder: pathlib.Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="capstan-sdk-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for kind, name, appended, text in BLOCK.findall(GUIDE.read_text()):
            if kind == "file":
                path = cls.folder / name
                path.parent.mkdir(exist_ok=True)
                before = path.read_text() + "\n\n" if appended else ""
                path.write_text(before + text)

    def run_python(self, folder: str, *arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.folder / folder, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return REMARK.sub("", done.stdout + done.stderr)

    def test_commands_print_what_the_guide_shows(self) -> None:
        blocks = [(name, text) for kind, name, _, text in BLOCK.findall(GUIDE.read_text()) if kind == "run"]
        self.assertEqual(len(blocks), 2)
        for folder, text in blocks:
            for part in text.split("$ python3 ")[1:]:
                command, _, output = part.partition("\n")
                printed = self.run_python(folder, *command.split())
                self.assertEqual(DURATION.sub("in TIME", printed), DURATION.sub("in TIME", output))

    def test_every_example_passes_its_test(self) -> None:
        folders = sorted(path.parent.name for path in self.folder.glob("*/test_*.py"))
        self.assertEqual(folders, ["chat", "guard", "hello", "queue", "weather"])
        self.assertEqual(folders, sorted(path.name for path in self.folder.iterdir()))
        path = os.pathsep.join(str(self.folder / folder) for folder in folders)
        tests = [file.stem for file in sorted(self.folder.glob("*/test_*.py"))]
        code = (
            f"import sys, unittest; sys.path[:0] = {path!r}.split({os.pathsep!r}); unittest.main(None, argv=sys.argv)"
        )
        printed = self.run_python(".", "-c", code, *tests)
        self.assertIn("Ran 6 tests", printed)


if __name__ == "__main__":
    unittest.main()
