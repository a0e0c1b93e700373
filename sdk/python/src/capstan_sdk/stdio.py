"""The real stdin and stdout of the process, moved away from code that prints.

After `claim_stdio`, everything that writes to stdout writes to stderr: `print`, C extensions and child processes. Stdin
is empty.
"""

from __future__ import annotations

import os
import sys
from typing import Optional

_OWNER_VARIABLE = "CAPSTAN_PLUGIN_STDIO"

_claimed: Optional[tuple[int, int]] = None


def claim_stdio() -> tuple[int, int]:
    """Descriptors of the wire: to read from, to write to. The second call returns the same."""
    global _claimed
    if _claimed is None:
        wire_in, wire_out = os.dup(0), os.dup(1)  # not inherited by child processes
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(line_buffering=True)  # also sends what was printed before, now to stderr
        os.environ[_OWNER_VARIABLE] = str(os.getpid())
        _claimed = (wire_in, wire_out)
    return _claimed


def claim_if_plugin() -> None:
    """Claims when the SDK is imported in a process that the host started as a plugin.

    Code at the top level of a module can print then. A child process of a plugin inherits the environment, but not the
    wire.
    """
    owner = os.environ.get(_OWNER_VARIABLE)
    if "CAPSTAN_PLUGIN_PROTOCOL" in os.environ and owner in (None, str(os.getpid())):
        claim_stdio()
