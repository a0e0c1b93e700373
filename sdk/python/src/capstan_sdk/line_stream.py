"""Lines over two file descriptors: one thread reads, one writes, and the event loop never blocks on either.

The threads keep the connection alive while code of a plugin occupies the event loop: `ping` is answered by the reader.
"""

from __future__ import annotations

import collections
import os
import select
import stat
import threading
from typing import Callable, Optional

READ_LEN = 256 * 1024
MAX_QUEUED_BYTES = 64 * 1024 * 1024
DRAINED_BYTES = 4 * 1024 * 1024
MAX_WRITE_BYTES = 1024 * 1024


class LineWriter:
    """Bounded queue of lines in front of a file descriptor, written in order by a thread."""

    def __init__(self, descriptor: int, on_drained: Callable[[], None], on_broken: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_drained = on_drained
        self._on_broken = on_broken
        self._lines: collections.deque[bytes] = collections.deque()
        self._queued = 0
        self._is_writing = False
        self._is_closed = False
        self._is_broken = False
        self._wants_drained = False
        self._changed = threading.Condition()
        self._poll: Optional[select.poll] = None
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLOUT)
        self._thread = threading.Thread(target=self._run, name="capstan-writer", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Queues a line. Never blocks: senders with many lines call `wait_drained` of the connection first."""
        with self._changed:
            if self._is_closed or self._is_broken:
                return
            if not self._lines and not self._is_writing and self._write_now(line):
                return
            self._lines.append(line)
            self._queued += len(line)
            self._changed.notify_all()

    def is_full(self) -> bool:
        """More is queued than a sender should add to; `on_drained` is called when there is room again."""
        with self._changed:
            full = self._queued > DRAINED_BYTES and not self._is_broken and not self._is_closed
            self._wants_drained = self._wants_drained or full
            return full

    def block_while_full(self) -> None:
        """Blocks the calling thread while the queue is at its limit."""
        with self._changed:
            while self._queued > MAX_QUEUED_BYTES and not self._is_broken and not self._is_closed:
                self._changed.wait()

    def close(self, timeout: float) -> bool:
        """Writes what is queued, for at most `timeout` seconds; true if everything was written."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._is_broken or not (self._lines or self._is_writing), timeout)
            self._is_closed = True
            self._changed.notify_all()
            return done and not self._is_broken

    def _write_now(self, line: bytes) -> bool:
        # A pipe that is ready takes at least PIPE_BUF bytes at once, so this write does not block.
        if self._poll is None or len(line) > select.PIPE_BUF:
            return False
        try:
            ready = self._poll.poll(0)
            if not ready or ready[0][1] != select.POLLOUT:
                return False
            os.write(self._descriptor, line)
        except OSError:
            return False
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._is_closed)
                if self._is_closed:
                    return
                data = self._take()
                self._is_writing = True
            is_whole = self._write(data)
            with self._changed:
                self._is_writing = False
                self._queued -= len(data)
                drained = self._wants_drained and self._queued <= DRAINED_BYTES
                if not is_whole:
                    self._is_broken = True
                    self._lines.clear()
                    drained = True
                if drained:
                    self._wants_drained = False
                self._changed.notify_all()
            if drained:
                self._on_drained()
            if not is_whole:
                self._on_broken()
                return

    def _take(self) -> bytes:
        taken = [self._lines.popleft()]
        size = len(taken[0])
        while self._lines and size + len(self._lines[0]) <= MAX_WRITE_BYTES:
            taken.append(self._lines.popleft())
            size += len(taken[-1])
        return b"".join(taken)

    def _write(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            try:
                written = os.write(self._descriptor, view)
            except BlockingIOError:
                select.select([], [self._descriptor], [])
                continue
            except OSError:
                return False
            view = view[written:]
        return True


class ByteReader:
    """Thread that reads a file descriptor to its end."""

    def __init__(self, descriptor: int, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_data = on_data
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name="capstan-reader", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Waits for the end of the thread."""
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while True:
                try:
                    data = os.read(self._descriptor, READ_LEN)
                except BlockingIOError:
                    select.select([self._descriptor], [], [])
                    continue
                except OSError:
                    return
                if not data:
                    return
                self._on_data(data)
        finally:
            self._on_end()
