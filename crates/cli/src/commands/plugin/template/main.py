"""A runner for Capstan. Change `run`; the rest speaks the plugin protocol."""
import asyncio
import json
import os
import sys

# Standard output belongs to the protocol. Prints go to standard error, which the host logs.
OUTPUT = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)


async def run(context, api):
    """Serves one event: yields results, and calls the host through `api`."""
    count = (await api("state.get", scope="conversation", key="count") or 0) + 1
    yield {"type": "message.delta", "data": {"delta": "Hello! "}}
    yield {"type": "message.delta", "data": {"delta": f"That was message {count}: {context['input']['text']}"}}
    yield {"type": "state.updated", "data": {"state": {"count": count}}}


class Connection:
    def __init__(self):
        self.next_id = 0
        self.answers = {}
        self.tasks = {}
        self.credits = {}

    def send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        OUTPUT.write(line + b"\n")

    async def call(self, run_id, method, **params):
        self.next_id += 1
        answer = self.answers[self.next_id] = asyncio.get_running_loop().create_future()
        request = {"run_id": run_id, "method": method, "params": params}
        self.send({"id": self.next_id, "method": "run.call", "params": request})
        return await answer

    async def yield_result(self, run_id, result):
        credit = self.credits[run_id]
        while credit["left"] <= 0:
            credit["more"].clear()
            await credit["more"].wait()
        params = {"run_id": run_id, "result": result}
        credit["left"] -= 1 + len(json.dumps({"jsonrpc": "2.0", "method": "run.result", "params": params})) // 65536
        self.send({"method": "run.result", "params": params})

    async def serve_run(self, params):
        run_id = params["run_id"]
        self.credits[run_id] = {"left": params["credit"], "more": asyncio.Event()}
        try:
            async for result in run(params["context"], lambda method, **rest: self.call(run_id, method, **rest)):
                await self.yield_result(run_id, result)
            await self.yield_result(run_id, {"type": "run.completed"})
        except Exception as error:  # The failure of one run must not end the others.
            await self.yield_result(run_id, {"type": "run.failed", "data": {"message": str(error)}})
        finally:
            self.credits.pop(run_id, None)
            self.tasks.pop(run_id, None)

    def handle(self, message):
        if "method" not in message:
            answer = self.answers.pop(message.get("id"), None)
            if answer and not answer.done():
                if "error" in message:
                    answer.set_exception(RuntimeError(message["error"]["message"]))
                else:
                    answer.set_result(message["result"])
            return
        method, params = message["method"], message.get("params", {})
        if method == "initialize":
            plugin = params["plugin"]
            result = {"protocol": 1, "id": plugin["id"], "version": plugin["version"], "runners": ["main"]}
        elif method == "run.start":
            self.tasks[params["run_id"]] = asyncio.ensure_future(self.serve_run(params))
            result = {}
        elif method == "run.cancel" and params["run_id"] in self.tasks:
            self.tasks[params["run_id"]].cancel()
            return
        elif method == "stream.credit" and params["stream"] in self.credits:
            credit = self.credits[params["stream"]]
            credit["left"] += params["credit"]
            credit["more"].set()
            return
        elif method in ("ping", "shutdown"):
            result = {}
        elif "id" in message:
            error = {"code": -32601, "message": f"unknown method {method}"}
            return self.send({"id": message["id"], "error": error})
        else:
            return
        self.send({"id": message["id"], "result": result})


async def main():
    reader = asyncio.StreamReader(limit=16 * 1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    connection = Connection()
    while line := await reader.readline():
        connection.handle(json.loads(line))


if __name__ == "__main__":
    asyncio.run(main())
