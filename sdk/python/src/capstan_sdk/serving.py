"""The main function of a plugin."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from .errors import CapstanError
from .manifest import Manifest
from .plugin import Plugin
from .server import PluginServer
from .stdio import claim_stdio

MAX_WORKERS = 64
WORKER_NAME = "capstan-worker"
THREADS_TIMEOUT = 0.5
WATCHDOG_TIMEOUT = 5.0


is_inspecting = False


def serve(plugin: Plugin) -> None:
    """Serves the plugin until the host ends it. Does not return.

    An error of the manifest is reported to the host, as the answer to `initialize`.
    """
    if is_inspecting:  # `python -m capstan_sdk` imports the code, also if it calls `serve` without a guard
        return
    manifest, failure = None, ""
    try:
        manifest = plugin.load_manifest()
    except CapstanError as error:
        failure = str(error)
        print(failure, file=sys.stderr)
    if os.isatty(0):
        print("This is a plugin for Capstan: the host starts it. Test it with capstan_sdk.testing.", file=sys.stderr)
        sys.exit(1 if failure else 0)
    read_descriptor, write_descriptor = claim_stdio()
    if not logging.getLogger().handlers:
        logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    workers = ThreadPoolExecutor(MAX_WORKERS, WORKER_NAME)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_default_executor(workers)
    loop.run_until_complete(_serve(plugin, manifest, failure, read_descriptor, write_descriptor))
    workers.shutdown(wait=False, cancel_futures=True)
    _exit(1 if failure else 0)


async def _serve(
    plugin: Plugin, manifest: Manifest | None, failure: str, read_descriptor: int, write_descriptor: int
) -> None:
    server = PluginServer(plugin, manifest, failure)
    server.serve(read_descriptor, write_descriptor, start_watchdog)
    await server.finished.wait()
    await server.close()


def start_watchdog() -> None:
    """Ends the process some time after its input, also if code of the author blocks the event loop.

    The host kills it earlier, unless the host was killed itself.
    """
    watchdog = threading.Timer(WATCHDOG_TIMEOUT, os._exit, [1])
    watchdog.daemon = True
    watchdog.start()


def _exit(status: int) -> None:
    """Ends the process. Threads of the author that do not end in time end with it."""
    end = time.monotonic() + THREADS_TIMEOUT
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
    sys.exit(status)
