"""Tools for authors.

python -m capstan_sdk manifest FILE   print what the code contributes, as tables for plugin.toml
python -m capstan_sdk check FILE      compare plugin.toml with the code
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import sys
from typing import Any

from . import serving
from .errors import CapstanError
from .plugin import Plugin


def load_plugin(path: str) -> Plugin:
    """The plugin object of a source file."""
    file = pathlib.Path(path).resolve()
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise CapstanError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    serving.is_inspecting = True
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError:
        raise CapstanError(f"{path}: the file does not exist") from None
    plugins = [value for value in vars(module).values() if isinstance(value, Plugin)]
    if len(plugins) != 1:
        raise CapstanError(f"{path}: expected one Plugin at the top level, found {len(plugins)}")
    return plugins[0]


def toml_value(value: Any) -> str:
    """A value of JSON in the form of TOML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(key: str) -> str:
    """A key in the form of TOML."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def manifest_tables(plugin: Plugin) -> str:
    """Tables of the contributions of a plugin. What the code does not know has a placeholder."""
    tables: list[tuple[str, dict[str, Any]]] = []
    tables += [("runners", {"name": name, "label": name}) for name in plugin.runners]
    tables += [("hooks", {"name": name, "arguments": list(hook.arguments)}) for name, hook in plugin.hooks.items()]
    for name, tool in plugin.tools.items():
        description = " ".join(tool.description.split()) or name
        tables.append(("tools", {"name": name, "description": description, "parameters": tool.schema.parameters}))
    tables += [("channels", {"name": name}) for name in plugin.channels]
    tables += [("knowledge", {"id": name, "description": name}) for name in plugin.knowledge_sources]
    tables += [("models", {"name": name}) for name in plugin.model_providers]
    return "\n".join(
        f"[[{key}]]\n" + "".join(f"{name} = {toml_value(value)}\n" for name, value in table.items())
        for key, table in tables
    )


def main(arguments: list[str]) -> int:
    """Runs a command; its status."""
    if len(arguments) != 2 or arguments[0] not in ("manifest", "check"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        plugin = load_plugin(arguments[1])
        if arguments[0] == "manifest":
            print(manifest_tables(plugin), end="")
        else:
            manifest = plugin.load_manifest()
            print(f"{manifest.id} {manifest.version}: the manifest and the code agree")
    except CapstanError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
