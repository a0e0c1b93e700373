"""Test of the feed without a host."""

import pathlib
import tempfile
import unittest

from feed import plugin

from capstan_sdk import Event, RpcError
from capstan_sdk.testing import PluginHarness

FAST = {"poll_seconds": 0.001}


class FeedTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "inbox" / "ops").mkdir(parents=True)

    def write(self, name: str, text: str) -> pathlib.Path:
        file = self.folder / "inbox" / "ops" / name
        file.write_text(text)
        return file

    async def test_files_are_messages_and_removed_after_acceptance(self) -> None:
        file = self.write("1.txt", "the disk is full")
        async with PluginHarness(plugin, settings=FAST, data_dir=str(self.folder)) as host:
            is_there: list[bool] = []
            host.refuse_event = lambda event: is_there.append(file.exists())
            await host.start_channel("feed")
            received = await host.next_event()
            await host.stop_channel("feed")
        self.assertEqual((received.event.input.text, received.event.conversation_id), ("the disk is full", "ops"))
        self.assertEqual(received.raw, b"the disk is full")
        self.assertEqual(is_there, [True])

    async def test_a_file_that_is_refused_for_now_is_submitted_again_under_the_same_id(self) -> None:
        self.write("1.txt", "hello")
        seen: list[str] = []

        def refuse_once(event: Event) -> None:
            seen.append(event.event_id)
            if len(seen) == 1:
                raise RpcError(-32000, "later", {"code": "input-invalid", "message": "later", "retryable": True})

        async with PluginHarness(plugin, settings=FAST, data_dir=str(self.folder)) as host:
            host.refuse_event = refuse_once
            await host.start_channel("feed")
            await host.next_event()
        self.assertEqual(len(seen), 2)
        self.assertEqual(seen[0], seen[1])

    async def test_replies_are_appended(self) -> None:
        async with PluginHarness(plugin, settings=FAST, data_dir=str(self.folder)) as host:
            await host.start_channel("feed")
            await host.send("feed", "on it", chat_id="ops")
            await host.send("feed", "done", chat_id="ops")
            with self.assertRaises(RpcError) as refused:
                await host.send("feed", "no", chat_id="../ops")
        self.assertEqual((self.folder / "outbox" / "ops.txt").read_text(), "on it\ndone\n")
        self.assertEqual(refused.exception.data, {"kind": "permanent"})


if __name__ == "__main__":
    unittest.main()
