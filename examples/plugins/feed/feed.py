"""A channel: each file `inbox/CHAT/NAME.txt` in the data folder of the plugin is a message, and replies are appended to
`outbox/CHAT.txt`.

Write a message under another name and rename it, so that no half of it is read.
"""

import asyncio
import os
import pathlib

from capstan_sdk import Channel, DeliveryError, EventRefusedError, OutboundMessage, Plugin, content_text, serve

MAX_MESSAGE_BYTES = 1024 * 1024

plugin = Plugin()


@plugin.channel("feed")
class Feed(Channel):
    """Polls the inbox. A file is removed when its event is durable, and not before."""

    async def start(self) -> None:
        self.folder = pathlib.Path(plugin.data_dir)
        self.inbox.mkdir(parents=True, exist_ok=True)
        self.outbox.mkdir(parents=True, exist_ok=True)

    @property
    def inbox(self) -> pathlib.Path:
        return self.folder / "inbox"

    @property
    def outbox(self) -> pathlib.Path:
        return self.folder / "outbox"

    async def run(self) -> None:
        while True:
            for file in sorted(self.inbox.glob("*/*.txt"), key=lambda path: (path.stat().st_mtime_ns, path.name)):
                await self.receive(file)
            await asyncio.sleep(self.settings.get("poll_seconds", 1.0))

    async def receive(self, file: pathlib.Path) -> None:
        """Submits one file. After a crash it is submitted again under the same id, and gets one turn."""
        raw = file.read_bytes()[:MAX_MESSAGE_BYTES]
        event = self.message(
            raw.decode("utf-8", "replace"),
            conversation_id=file.parent.name,
            event_id=f"{file.parent.name}/{file.name}/{file.stat().st_mtime_ns}",
        )
        try:
            await self.submit(event, raw)
        except EventRefusedError as error:
            if error.retryable:
                return
            file.rename(file.with_suffix(".refused"))
            print(f"{file}: {error}")
            return
        file.unlink()

    async def send(self, message: OutboundMessage) -> None:
        if "/" in message.chat_id or message.chat_id.startswith("."):
            raise DeliveryError("permanent", f"{message.chat_id} is not the name of a chat")
        try:
            descriptor = os.open(self.outbox / f"{message.chat_id}.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise DeliveryError("not_sent", str(error)) from error
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(content_text(message.content) + "\n")


if __name__ == "__main__":
    serve(plugin)
