"""Plugin of the tests. Its first argument selects what it does; see the functions named `mode_...`."""
import fcntl
import json
import os
import signal
import sys
import time

OUT = os.fdopen(os.dup(1), "wb", buffering=0)
MODE = sys.argv[1] if len(sys.argv) > 1 else "echo"


def send(**message):
    OUT.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def result(run_id, kind, **data):
    send(method="run.result", params={"run_id": run_id, "result": {"type": kind, "data": data}})


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def leave_daemon():
    """Returns when a process in a session of its own, whose parent has exited, holds a lock."""
    lock = open(os.path.join(os.environ["CAPSTAN_PLUGIN_DATA"], "lock"), "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    parent = os.fork()
    if parent == 0:
        os.setsid()
        if os.fork() == 0:
            for stream in (0, 1, 2):
                os.close(stream)
            OUT.close()
            time.sleep(1000)
        os._exit(0)
    os.waitpid(parent, 0)
    lock.close()


class Plugin:
    def __init__(self):
        self.next_id = 0
        self.waiting = {}
        self.runs = {}
        self.log = []

    def call(self, then, name, /, **params):
        self.next_id += 1
        self.waiting[self.next_id] = then
        send(id=self.next_id, method=name, params=params)

    def serve(self):
        while True:
            self.handle(read())

    def handle(self, message):
        if "method" not in message:
            self.waiting.pop(message["id"])(message)
            return
        method, params = message["method"], message.get("params", {})
        handler = getattr(self, "on_" + method.replace(".", "_"), None)
        if handler:
            handler(message, params)
        elif "id" in message:
            send(id=message["id"], result={})

    # What the host asks for.

    def on_initialize(self, message, params):
        with open("plugin.json") as file:
            answer = json.load(file)
        if MODE == "liar":
            answer["runners"] = ["other"]
        if MODE == "hangs_at_initialize":
            time.sleep(1000)
        if MODE == "exits_at_initialize":
            print("boom", file=sys.stderr)
            sys.exit(7)
        if MODE == "garbage":
            OUT.write(b"Hello from print()\n\xff\xfe\x00\n[]\n{\"jsonrpc\":\n\n")
        self.settings = params["settings"]
        if MODE == "early":
            self.call(self.keep_early, "run.call", run_id="run-1", method="tape.info")
            self.handle(read())
        send(id=message["id"], result=answer)
        if MODE == "never_reads":
            time.sleep(1000)

    def keep_early(self, answer):
        self.early = answer["error"]["code"]

    def on_run_start(self, message, params):
        send(id=message["id"], result={})
        run_id, text = params["run_id"], params["context"]["input"]["text"]
        self.runs[run_id] = params
        getattr(self, "mode_" + MODE, self.mode_echo)(run_id, text)

    def on_run_cancel(self, message, params):
        self.log.append(params)
        if MODE == "last_words" and params["grace_ms"] > 0:
            result(params["run_id"], "message.completed", content=f"cancelled: {params['reason']}")
            result(params["run_id"], "run.completed")

    def on_stream_credit(self, message, params):
        credit = self.runs.get(params["stream"])
        if credit is not None and "pump" in credit:
            credit["left"] += params["credit"]
            credit["pump"]()

    def on_tool_call(self, message, params):
        if params["tool"] == "steal":
            answers = []

            def denied(answer):
                answers.append(answer.get("error", {}).get("code", "allowed"))
                if len(answers) == 2:
                    text = json.dumps(answers)
                    send(id=message["id"], result={"content": text})

            self.call(denied, "run.call", call_id=params["call_id"], method="state.get",
                      params={"scope": "conversation", "key": "a"})
            self.call(denied, "run.call", run_id=params["run_id"], method="state.get",
                      params={"scope": "conversation", "key": "a"})
        elif params["tool"] == "fails":
            send(id=message["id"], error={"code": -32000, "message": "no luck today"})
        else:
            send(id=message["id"], result={"content": json.dumps(params["arguments"], sort_keys=True)})

    def on_hook_call(self, message, params):
        self.hook_answer(message["id"], params["hook"], params["arguments"])

    def hook_answer(self, id, hook, arguments):
        if hook == "build_prompt":
            send(id=id, result={"value": f"{sorted(arguments)} {arguments['state'].get('mood')}",
                                "state": {"mood": "good", "gone": None}})
        elif hook == "before_tool_call":
            name = arguments["call"]["name"]
            send(id=id, result={"value": {"deny": f"not {name}"}})
        elif hook == "load_state":
            send(id=id, result={"value": {"color": "red"}, "effects": [{"type": "note", "name": "x.seen", "data": 1}]})
        elif hook == "on_error":
            send(id=id, result={"notice": "the plugin is sorry"})
        elif hook == "save_state":
            send(id=id, error={"code": -32000, "message": "disk of the plugin"})
        elif hook == "system_prompt":
            send(id=id, result={"value": "Be kind."})
        else:
            send(id=id, result={})

    def on_knowledge_search(self, message, params):
        passage = {"source": "a.md", "line": 3, "text": params["text"].upper(), "score": 1.5}
        send(id=message["id"], result={"passages": [passage], "skipped": "b.md is not text"})

    def on_model_stream(self, message, params):
        """Streams thirty texts under credit, or fails after the first."""
        stream, fails = params["stream"], params["request"]["model"].endswith("broken")
        left, sent = [params["credit"]], [0]

        def item(event):
            send(method="stream.item", params={"stream": stream, "item": event})
            left[0] -= 1
            sent[0] += 1

        def pump():
            while left[0] > 0 and sent[0] < 30:
                item({"type": "text", "data": f"{sent[0]} "} if sent[0] != 3 else {"type": "from_the_future"})
                if fails:
                    error = {"code": -32000, "message": "slow down", "data": {"kind": "rate_limited"}}
                    return send(id=message["id"], error=error)
            if left[0] > 0 and sent[0] == 30:
                item({"type": "stop"})
                send(id=message["id"], result={})

        self.runs[stream] = {"left": 0}

        def more():
            left[0] += self.runs[stream]["left"]
            self.runs[stream]["left"] = 0
            pump()

        self.runs[stream]["pump"] = more
        pump()

    def on_channel_start(self, message, params):
        self.credit = params["credit"]
        send(id=message["id"], result={})
        event = {"event_type": "message.received", "source": params["channel"], "event_id": "e1",
                 "conversation_id": "c", "input": {"text": "from the platform"}}
        if MODE == "foreign_source":
            event["source"] = "cli"

        def accepted(answer):
            outcome = answer.get("error", {"message": "accepted"})["message"]
            send(method="log", params={"level": "warn", "message": outcome})
            self.accepted = outcome
            if MODE == "ends":
                send(method="channel.ended", params={"channel": params["channel"], "error": "the platform is gone"})

        self.call(accepted, "channel.event", channel=params["channel"], event=event)

    def on_channel_send(self, message, params):
        text = params["message"]["content"]
        if text == "exit":
            sys.exit(1)
        if text == "refuse":
            send(id=message["id"], error={"code": -32000, "message": "blocked", "data": {"kind": "permanent"}})
        elif text == "later":
            send(id=message["id"], error={"code": -32000, "message": "busy", "data": {"kind": "not_sent"}})
        elif text == "odd":
            send(id=message["id"], error={"code": -32000, "message": "?", "data": {"kind": "half_sent"}})
        elif text == "accepted?":
            done = getattr(self, "accepted", "nothing") == "accepted"
            send(id=message["id"], **({"result": {}} if done else {"error": {"code": -32000, "message": "no"}}))
        else:
            send(id=message["id"], result={})

    # What a run does.

    def mode_echo(self, run_id, text):
        result(run_id, "message.delta", delta="you said ")
        result(run_id, "message.completed", content=f"you said {text}")
        result(run_id, "run.completed")

    def mode_garbage(self, run_id, text):
        OUT.write(b"print again\n")
        self.mode_echo(run_id, text)

    def mode_early(self, run_id, text):
        self.mode_echo(run_id, str(self.early))

    def mode_flood(self, run_id, text):
        for number in range(5000):
            send(method="log", params={"level": "error", "message": f"line {number}"})
            send(method="progress", params={"run_id": run_id, "message": "x" * 100})
            send(method="from.the.future", params={"a": [1]})
            result("run-of-another", "message.delta", delta="x")
            print("y" * 100, file=sys.stderr)
        self.mode_echo(run_id, text)

    def mode_settings(self, run_id, text):
        env = {name: os.environ[name] for name in sorted(os.environ) if name not in ("PATH", "LC_CTYPE")}
        result(run_id, "message.completed", content=json.dumps([self.settings, env]))
        result(run_id, "run.completed")

    def mode_reads_files(self, run_id, text):
        """Tries to read and to write each file that the message names."""
        seen = {}
        for path in json.loads(text):
            for mode in ("r", "a"):
                try:
                    with open(path, mode):
                        seen.setdefault(path, "")
                        seen[path] += mode
                except OSError:
                    seen.setdefault(path, "")
        result(run_id, "message.completed", content=json.dumps(seen))
        result(run_id, "run.completed")

    def mode_exits(self, run_id, text):
        if text == "exit":
            sys.exit(3)
        self.mode_echo(run_id, text)

    def mode_killed(self, run_id, text):
        os.kill(os.getpid(), signal.SIGKILL)

    def mode_silent(self, run_id, text):
        if text != "hang":
            self.mode_echo(run_id, text)

    def mode_last_words(self, run_id, text):
        result(run_id, "message.delta", delta="working")

    def mode_cancel_log(self, run_id, text):
        if text == "report":
            result(run_id, "message.completed", content=json.dumps(self.log))
            result(run_id, "run.completed")

    def mode_foreign(self, run_id, text):
        result("run-of-another", "run.completed")
        send(method="run.result", params={"run_id": run_id, "result": {"type": "run.completed", "run_id": "other"}})
        self.mode_echo(run_id, text)

    def mode_twice(self, run_id, text):
        self.mode_echo(run_id, text)
        result(run_id, "message.completed", content="after the end")
        result(run_id, "run.completed")

    def mode_over_credit(self, run_id, text):
        if text == "ok":
            return self.mode_echo(run_id, text)
        for number in range(40):
            result(run_id, "message.delta", delta=str(number))
        result(run_id, "run.completed")

    def mode_pump(self, run_id, text):
        """Sends a hundred results under credit, and tells in the log when it has to wait."""
        run = self.runs[run_id]
        run["left"], run["sent"] = run["credit"], 0

        def pump():
            while run["left"] > 0 and run["sent"] <= 100:
                if run["sent"] == 100:
                    result(run_id, "run.completed")
                else:
                    result(run_id, "message.delta", delta=f"{run['sent']} ")
                run["sent"] += 1
                run["left"] -= 1

        run["pump"] = pump
        pump()

    def mode_calls(self, run_id, text):
        """Makes the call of the text, and replies with the answer."""
        method, params = text.split(" ", 1)

        def answered(answer):
            answer.pop("id"), answer.pop("jsonrpc")
            result(run_id, "message.completed", content=json.dumps(answer))
            result(run_id, "run.completed")

        self.call(answered, "run.call", run_id=run_id, method=method, **json.loads(params))

    def mode_streams(self, run_id, text):
        """Calls a model with a credit of one, and replies with the items."""
        items = []

        def item(message, params):
            items.append(params["item"])
            send(method="stream.credit", params={"stream": params["stream"], "credit": 1})

        def answered(answer):
            result(run_id, "message.completed", content=json.dumps([items, answer.get("result")]))
            result(run_id, "run.completed")

        self.on_stream_item = item
        self.call(answered, "run.call", run_id=run_id, method="models.stream", params={}, stream="m", credit=1)

    def mode_other_run(self, run_id, text):
        def answered(answer):
            result(run_id, "message.completed", content=json.dumps(answer["error"]["code"]))
            result(run_id, "run.completed")

        self.call(answered, "run.call", run_id="run-of-another", method="tape.info")

    def on_shutdown(self, message, params):
        if MODE == "ignores_shutdown":
            time.sleep(1000)
        if MODE == "leaves_a_child":
            leave_daemon()
        send(id=message["id"], result={})


Plugin().serve()
