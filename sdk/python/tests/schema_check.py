"""Validator of JSON Schema, as far as the schema bundle of the protocol uses it, and of the messages of a plugin."""

from __future__ import annotations

import functools
import json
import pathlib
from typing import Any, Optional

BUNDLE = pathlib.Path(__file__).resolve().parents[3] / "crates" / "protocol" / "schema" / "capstan.json"

PARAMS = {
    "run.result": "PluginRunResult",
    "run.call": "PluginRunCall",
    "channel.event": "PluginChannelEvent",
    "channel.ended": "PluginChannelEnded",
    "progress": "PluginProgress",
    "log": "PluginLog",
    "request.cancel": "PluginRequestCancel",
    "stream.credit": "PluginStreamCredit",
    "stream.item": "PluginStreamItem",
}
RESULTS = {
    "initialize": "PluginInitialized",
    "hook.call": "PluginHookAnswer",
    "tool.call": "ToolOutput",
    "knowledge.search": "PluginKnowledgePassages",
}
EMPTY_RESULTS = ("ping", "shutdown", "run.start", "channel.start", "channel.send", "channel.stop", "model.stream")

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def _is_of(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and not (isinstance(value, bool) and kind in ("integer", "number"))


@functools.lru_cache(maxsize=None)
def definitions() -> dict[str, Any]:
    """The types of the bundle, by name."""
    found = json.loads(BUNDLE.read_text(encoding="utf-8"))["$defs"]
    assert isinstance(found, dict)
    return found


def problem(schema: Any, value: Any, path: str = "") -> Optional[str]:
    """The first place where a value does not fit a schema; none if it fits."""
    if schema is True or schema == {}:
        return None
    if "$ref" in schema:
        return problem(definitions()[schema["$ref"].rsplit("/", 1)[-1]], value, path)
    if "const" in schema and value != schema["const"]:
        return f"{path}: {value!r} is not {schema['const']!r}"
    kinds = schema.get("type")
    if kinds is not None:
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if not any(_is_of(value, kind) for kind in kinds):
            return f"{path}: {value!r} is not of the type {' or '.join(kinds)}"
    if "discriminator" in schema and isinstance(value, dict):
        tag = schema["discriminator"]["propertyName"]
        target = schema["discriminator"]["mapping"].get(value.get(tag))
        if target is None:
            return f"{path}.{tag}: {value.get(tag)!r} is unknown"
        found = problem({"$ref": target}, value, path)
        if found:
            return found
    else:
        for word in ("anyOf", "oneOf"):
            if word in schema:
                found_all = [problem(member, value, path) for member in schema[word]]
                if all(found_all):
                    return found_all[0]
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                return f"{path}.{name}: is missing"
        properties = schema.get("properties", {})
        further = schema.get("additionalProperties", True)
        for name, item in value.items():
            if name in properties or further is not True:
                if name not in properties and further is False:
                    return f"{path}.{name}: is not allowed"
                found = problem(properties.get(name, further), item, f"{path}.{name}")
                if found:
                    return found
    if isinstance(value, list):
        for index, item in enumerate(value):
            found = problem(schema.get("items", True), item, f"{path}[{index}]")
            if found:
                return found
    if isinstance(value, (int, float)) and "minimum" in schema and value < schema["minimum"]:
        return f"{path}: {value} is below {schema['minimum']}"
    return None


def message_problem(message: dict[str, Any], method_of_answer: Optional[str]) -> Optional[str]:
    """The first place where a message of a plugin does not fit the schema bundle."""
    if message.get("jsonrpc") != "2.0":
        return "jsonrpc: is not 2.0"
    method = message.get("method")
    if method is not None:
        if method not in PARAMS and method != "ping":
            return f"method: {method} is not a method of a plugin"
        found = problem({"$ref": PARAMS[method]}, message["params"], method) if method in PARAMS else None
        if found is None and method == "run.call":
            request = {"method": message["params"]["method"], "params": message["params"].get("params", {})}
            found = problem({"$ref": "ApiRequest"}, request, "run.call")
        return found
    if "result" not in message:
        return None if isinstance(message.get("error"), dict) else "an answer without result and error"
    if method_of_answer in RESULTS:
        return problem({"$ref": RESULTS[method_of_answer]}, message["result"], method_of_answer)
    if method_of_answer in EMPTY_RESULTS and message["result"] != {}:
        return f"{method_of_answer}: the result is not {{}}"
    return None
