"""The manifest `plugin.toml`: reading it, and its form. The host checks the same and more before it starts anything."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from typing import Any, Callable, Optional, Union

from .codec import JsonObject
from .errors import ManifestError
from .toml_reader import parse_toml

MANIFEST_NAME = "plugin.toml"
PROTOCOL_VERSION = 1
MAX_MANIFEST_BYTES = 1024 * 1024

# Arguments of each hook, as in the specification of the protocol.
HOOK_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "resolve_session": ("message",),
    "admit_message": ("message", "session_id", "busy"),
    "load_state": ("message", "session_id", "handle"),
    "build_prompt": ("message", "session_id", "state", "tools", "handle"),
    "continue_prompt": ("step", "session_id", "state"),
    "save_state": ("session_id", "state", "message", "model_output", "failure", "handle"),
    "render_outbound": ("message", "session_id", "state", "model_output", "model_content", "handle"),
    "dispatch_outbound": ("message", "inbound"),
    "system_prompt": ("prompt", "session_id", "state"),
    "before_llm_call": ("request", "session_id", "state"),
    "after_llm_call": ("request", "outcome", "session_id", "state"),
    "before_tool_call": ("call", "session_id", "state"),
    "after_tool_call": ("call", "outcome", "session_id", "state"),
    "on_error": ("stage", "error", "message", "notice", "handle"),
}

Check = Callable[[Any, str], None]


def _fail(path: str, reason: str) -> ManifestError:
    return ManifestError(f"{MANIFEST_NAME}: {path}: {reason}")


def _typed(kind: Union[type, tuple[type, ...]], name: str) -> Check:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _fail(path, f"expected {name}")

    return check


_text = _typed(str, "a text")
_boolean = _typed(bool, "true or false")
_table = _typed(dict, "a table")
_schema = _typed((dict, str), "a JSON Schema as a table, or the name of a file")


def _name(pattern: str) -> Check:
    expression = re.compile(pattern)

    def check(value: Any, path: str) -> None:
        _text(value, path)
        if not expression.fullmatch(value) or len(value) > 64:
            raise _fail(
                path, f"{value!r} is not a valid name: lower case letters, digits, - and _, at most 64 characters"
            )

    return check


def _one_of(*values: str) -> Check:
    def check(value: Any, path: str) -> None:
        if value not in values:
            raise _fail(path, f"{value!r} is none of {', '.join(values)}")

    return check


def _list_of(item: Check) -> Check:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, list):
            raise _fail(path, "expected a list")
        for index, each in enumerate(value):
            item(each, f"{path}[{index}]")

    return check


def _integer_from(least: int) -> Check:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise _fail(path, f"expected an integer from {least}")

    return check


def _label(value: Any, path: str) -> None:
    if isinstance(value, str):
        return
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _fail(path, "expected a text, or a table of texts by language")


def _table_of(required: dict[str, Check], optional: dict[str, Check]) -> Check:
    def check(value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise _fail(path, "expected a table")
        for key in required:
            if key not in value:
                raise _fail(f"{path}.{key}".lstrip("."), "the key is missing")
        for key, item in value.items():
            known = required.get(key) or optional.get(key)
            place = f"{path}.{key}".lstrip(".")
            if known is None:
                raise _fail(place, f"unknown key; known are {', '.join([*required, *optional])}")
            known(item, place)

    return check


_PLAIN_NAME = r"[a-z0-9_-]+"
_DOTTED_NAME = r"[a-z0-9_.-]+"
_INTAKE = _table_of(
    {},
    {
        "admission": _one_of("follow_up", "steer", "collect", "interrupt", "drop"),
        "debounce": _table_of(
            {"quiet_ms": _integer_from(0), "max_wait_ms": _integer_from(0)}, {"active_window_ms": _integer_from(0)}
        ),
    },
)
_RUNNER = _table_of(
    {"name": _name(_PLAIN_NAME), "label": _label},
    {
        "description": _label,
        "capabilities": _table,
        "permissions": _table,
        "requires": _table,
        "timeout_seconds": _integer_from(1),
        "config_schema": _schema,
    },
)
_HOOK = _table_of(
    {"name": _one_of(*HOOK_ARGUMENTS)},
    {"arguments": _list_of(_text), "fail_closed": _boolean, "mode": _one_of("static", "dynamic"), "text": _text},
)
_TOOL = _table_of(
    {"name": _name(_DOTTED_NAME), "description": _text},
    {
        "parameters": _schema,
        "effect": _one_of("none", "reads", "writes", "unrestricted"),
        "resource": _text,
        "max_concurrent_calls": _integer_from(1),
        "needs_trusted_origin": _boolean,
        "needs_knowledge": _boolean,
        "command_only": _boolean,
        "has_own_deadline": _boolean,
    },
)
_CHANNEL = _table_of({"name": _name(_PLAIN_NAME)}, {"capabilities": _table, "intake": _INTAKE})
_MANIFEST = _table_of(
    {
        "id": _name(r"[a-z][a-z0-9_-]*/[a-z][a-z0-9_-]*"),
        "version": _text,
        "protocol": _integer_from(1),
        "command": _list_of(_text),
    },
    {
        "description": _text,
        "required": _boolean,
        "permissions": _list_of(_text),
        "config_schema": _schema,
        "access": _table_of({}, {"hosts": _list_of(_text), "read": _list_of(_text), "write": _list_of(_text)}),
        "runners": _list_of(_RUNNER),
        "hooks": _list_of(_HOOK),
        "tools": _list_of(_TOOL),
        "channels": _list_of(_CHANNEL),
        "knowledge": _list_of(_table_of({"id": _name(_PLAIN_NAME), "description": _text}, {})),
        "models": _list_of(_table_of({"name": _name(_PLAIN_NAME)}, {})),
    },
)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A manifest that was read. The contributions are the tables of the file, by name."""

    id: str
    version: str
    protocol: int
    command: list[str]
    runners: dict[str, JsonObject]
    hooks: dict[str, JsonObject]
    tools: dict[str, JsonObject]
    channels: dict[str, JsonObject]
    knowledge: dict[str, JsonObject]
    models: dict[str, JsonObject]
    folder: pathlib.Path

    @classmethod
    def load(cls, path: Union[str, os.PathLike[str]]) -> Manifest:
        """The manifest of a file, or of `plugin.toml` in a folder."""
        file = pathlib.Path(path)
        if file.is_dir():
            file = file / MANIFEST_NAME
        try:
            if file.stat().st_size > MAX_MANIFEST_BYTES:
                raise ManifestError(f"{file}: larger than {MAX_MANIFEST_BYTES} bytes")
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ManifestError(f"{file}: the manifest does not exist") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ManifestError(f"{file}: {error}") from None
        return cls.parse(text, file.parent)

    @classmethod
    def parse(cls, text: str, folder: Union[str, os.PathLike[str]] = ".") -> Manifest:
        """The manifest of a text. Files that it names are in the folder."""
        try:
            table = parse_toml(text)
        except ManifestError as error:
            raise ManifestError(f"{MANIFEST_NAME}: {error}") from None
        _MANIFEST(table, "")
        if table["protocol"] != PROTOCOL_VERSION:
            raise _fail(
                "protocol", f"version {table['protocol']} is not supported; this SDK implements {PROTOCOL_VERSION}"
            )
        if not table["command"]:
            raise _fail("command", "the list is empty")
        manifest = cls(
            id=table["id"],
            version=table["version"],
            protocol=table["protocol"],
            command=table["command"],
            runners=_by_name(table, "runners", "name"),
            hooks=_by_name(table, "hooks", "name"),
            tools=_by_name(table, "tools", "name"),
            channels=_by_name(table, "channels", "name"),
            knowledge=_by_name(table, "knowledge", "id"),
            models=_by_name(table, "models", "name"),
            folder=pathlib.Path(folder),
        )
        manifest._check_hooks()
        return manifest

    def _check_hooks(self) -> None:
        for name, hook in self.hooks.items():
            for argument in hook.get("arguments", []):
                if argument not in HOOK_ARGUMENTS[name]:
                    known = ", ".join(HOOK_ARGUMENTS[name])
                    raise _fail(f"hooks.{name}.arguments", f"the hook has no argument {argument!r}; it has {known}")
            if hook.get("mode") == "static" and (name != "system_prompt" or "text" not in hook):
                raise _fail(f"hooks.{name}.mode", "static is for system_prompt only, and needs text")

    def is_static(self, hook: str) -> bool:
        """The hook is a text of the manifest: no code serves it."""
        return self.hooks.get(hook, {}).get("mode") == "static"

    def tool_parameters(self, tool: str) -> Optional[JsonObject]:
        """JSON Schema of the arguments of a tool; none if it takes no arguments."""
        schema = self.tools[tool].get("parameters")
        if not isinstance(schema, str):
            return schema
        try:
            value = json.loads((self.folder / schema).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _fail(f"tools.{tool}.parameters", f"{schema}: {error}") from None
        if not isinstance(value, dict):
            raise _fail(f"tools.{tool}.parameters", f"{schema}: not an object")
        return value


def _by_name(table: JsonObject, key: str, name: str) -> dict[str, JsonObject]:
    found: dict[str, JsonObject] = {}
    for index, item in enumerate(table.get(key, [])):
        if item[name] in found:
            raise _fail(f"{key}[{index}].{name}", f"{item[name]} is there twice")
        found[item[name]] = item
    return found
