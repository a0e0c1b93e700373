"""A tool plugin without an SDK: one JSON object per line on stdin and stdout, and a command of the system.

It serves one request at a time. An SDK adds concurrency, cancellation and deadlines.
"""

import json
import subprocess
import sys


def initialize(params):
    """The names that the program implements, as in plugin.toml."""
    identity = params["plugin"]
    return {"protocol": 1, "id": identity["id"], "version": identity["version"], "tools": ["disk.free"]}


def call_tool(params):
    """Runs df. A failure is an output that the model reads."""
    folder = params.get("arguments", {}).get("folder", "/")
    done = subprocess.run(["df", "-h", "--", folder], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return {"content": done.stdout or done.stderr, "is_error": done.returncode != 0}


METHODS = {"initialize": initialize, "tool.call": call_tool, "ping": lambda params: {}, "shutdown": lambda params: {}}

for line in sys.stdin:
    try:
        message = json.loads(line)
        is_request = "method" in message and "id" in message
    except (ValueError, TypeError):
        continue  # lines that are no message are dropped
    if not is_request:
        continue  # notifications, such as request.cancel, are ignored
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    serve = METHODS.get(message["method"])
    if serve is None:
        answer["error"] = {"code": -32601, "message": f"there is no method {message['method']}"}
    else:
        try:
            answer["result"] = serve(message.get("params") or {})
        except Exception as error:
            answer["error"] = {"code": -32603, "message": repr(error)}
    print(json.dumps(answer), flush=True)
