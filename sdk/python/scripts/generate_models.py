#!/usr/bin/env python3
"""Generates the models and the facade of the run API from the JSON Schema bundle of the protocol.

scripts/generate_models.py          write src/capstan_sdk/models.py and src/capstan_sdk/run_api.py
scripts/generate_models.py --check  fail if one of them is not current
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
import textwrap
from typing import Any

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
BUNDLE = PACKAGE.parent.parent / "crates" / "protocol" / "schema" / "capstan.json"
SOURCE = PACKAGE / "src" / "capstan_sdk"
LINE_LEN = 116

# Types that the SDK represents in another way (calls and responses by the facade, results by `results`, parts of a
# message as plain objects), messages that its transport reads and writes itself, and types of the host alone.
EXCLUDED = re.compile(
    r"(ApiRe(quest|sponse)\w*|RunResult\w*|KnownPart\w*|ImageUrl|EmptyCall|Plugin(?!Ref)\w*|StreamEvent\w*"
    r"|Binding|BindingScope|EventFilter|\w+Policy|Descriptor)$"
)
OVERRIDES = {"Content": "Union[str, list[JsonObject]]", "ContentPart": "JsonObject"}

HEADER = '''"""{title}

Generated from crates/protocol/schema/capstan.json by scripts/generate_models.py: do not edit.
"""

from __future__ import annotations
'''

Schema = dict[str, Any]


def reference(schema: Schema) -> str | None:
    target = schema.get("$ref")
    return None if target is None else str(target).rsplit("/", 1)[-1]


def docstring(text: str, indent: str, extra: list[str] | None = None) -> list[str]:
    text = " ".join(text.split()).replace("\\", "\\\\")
    if not extra and len(indent) + len(text) + 6 <= LINE_LEN:
        return [f'{indent}"""{text}"""']
    lines = textwrap.wrap(text, LINE_LEN - len(indent) - 3)
    result = [f'{indent}"""{lines[0]}'] + [indent + line for line in lines[1:]]
    if extra:
        result.append("")
        for item in extra:
            wrapped = textwrap.wrap(item, LINE_LEN - len(indent), subsequent_indent="    ")
            result += [indent + line for line in wrapped]
    return result + [f'{indent}"""']


def union(members: list[str]) -> str:
    unique = list(dict.fromkeys(members))
    if len(unique) == 1:
        return unique[0]
    if "None" in unique:
        rest = [member for member in unique if member != "None"]
        return f"Optional[{union(rest)}]"
    return f"Union[{', '.join(unique)}]"


class ModelGenerator:
    """Python source of the types of a schema bundle."""

    def __init__(self, definitions: dict[str, Schema]) -> None:
        self.definitions = definitions
        self.tags: dict[str, tuple[str, str]] = {}
        for schema in definitions.values():
            discriminator = schema.get("discriminator")
            if discriminator:
                for value, target in discriminator["mapping"].items():
                    self.tags[target.rsplit("/", 1)[-1]] = (discriminator["propertyName"], value)

    def annotation(self, schema: Any) -> str:
        """Type annotation of a schema."""
        if schema is True or schema == {} or set(schema) <= {"description", "default"}:
            return "JsonValue"
        name = reference(schema)
        if name is not None:
            return "JsonObject" if name == "EmptyCall" else name
        if "anyOf" in schema:
            return union([self.annotation(member) for member in schema["anyOf"]])
        kind = schema["type"]
        if isinstance(kind, list):
            return union([self.annotation({**schema, "type": each}) for each in kind])
        if kind == "string":
            return "Bytes" if "base64" in schema.get("description", "") else "str"
        if kind == "array":
            return f"list[{self.annotation(schema['items'])}]"
        if kind == "object":
            values = schema.get("additionalProperties", True)
            return f"dict[str, {self.annotation(values)}]" if isinstance(values, dict) else "JsonObject"
        return {"integer": "int", "number": "float", "boolean": "bool", "null": "None"}[kind]

    def is_model(self, name: str) -> bool:
        schema = self.definitions[name]
        return schema.get("type") == "object" and "properties" in schema and name not in OVERRIDES

    def alias(self, name: str, schema: Schema) -> str:
        """Right side of a type alias."""
        if name in OVERRIDES:
            return OVERRIDES[name]
        members = schema.get("oneOf") or schema.get("anyOf")
        if members is None:
            return self.annotation(schema)
        if "discriminator" in schema:
            return f"Union[{', '.join([*(self.annotation(member) for member in members), 'OtherVariant'])}]"
        if all("const" in member for member in members):
            values = ", ".join(json.dumps(member["const"]) for member in members)
            return f"Union[Literal[{values}], str]"
        annotations = [self.annotation(member) for member in members]
        is_scalar = all(each in ("str", "int", "Timestamp") or each.startswith("dict[") for each in annotations)
        return union(annotations) if is_scalar else "JsonValue"

    def default(self, schema: Schema, annotation: str) -> tuple[str, str]:
        """Annotation and default of an optional field."""
        if annotation.startswith("Optional[") or annotation == "JsonValue" and schema.get("default") is None:
            return annotation, "None"
        value = schema.get("default")
        if annotation in self.definitions and self.is_model(annotation):
            if value is None:
                return f"Optional[{annotation}]", "None"
            made = f"{annotation}.from_json({value!r})" if value else f"{annotation}()"
            return annotation, f"field_of(default_factory=lambda: {made})"
        if value is None:
            name = (
                annotation
                if annotation not in self.definitions
                else self.alias(annotation, self.definitions[annotation])
            )
            if name.startswith("list["):
                value = []
            elif name.startswith(("dict[", "JsonObject")):
                value = {}
            elif name in ("str", "int", "bool", "float"):
                value = {"str": "", "int": 0, "bool": False, "float": 0.0}[name]
            else:
                return f"Optional[{annotation}]", "None"
        if isinstance(value, list) and not value:
            return annotation, "field_of(default_factory=list)"
        if isinstance(value, dict) and not value:
            return annotation, "field_of(default_factory=dict)"
        if isinstance(value, (list, dict)):
            return annotation, f"field_of(default_factory=lambda: {value!r})"
        return annotation, json.dumps(value) if isinstance(value, str) else repr(value)

    def model(self, name: str, schema: Schema) -> list[str]:
        """Lines of a dataclass."""
        required = list(schema.get("required", []))
        properties = schema["properties"]
        tag = self.tags.get(name)
        documented = [
            f"{field}: {' '.join(item['description'].split())}"
            for field, item in properties.items()
            if "description" in item
        ]
        lines = ["@dataclass", f"class {name}(Model):"]
        lines += docstring(schema.get("description", f"Type {name}."), "    ", documented)
        lines.append("")
        if required:
            lines += wrapped_names("    _required_: ClassVar[frozenset[str]] = frozenset([", sorted(required), "])")
        if tag:
            lines.append(
                f"    _tag_: ClassVar[Optional[tuple[str, str]]] = ({json.dumps(tag[0])}, {json.dumps(tag[1])})"
            )
        if required or tag:
            lines.append("")
        optional = []
        for field, item in properties.items():
            if tag and field == tag[0]:
                optional.append(
                    f"    {field}: Literal[{json.dumps(tag[1])}] = field_of(default={json.dumps(tag[1])}, kw_only=True)"
                )
            elif field in required:
                lines.append(f"    {field}: {self.annotation(item)}")
            else:
                annotation, default = self.default(item, self.annotation(item))
                optional.append(f"    {field}: {annotation} = {default}")
        return lines + optional

    def source(self) -> str:
        """Source of models.py."""
        lines = [HEADER.format(title="Types of the Capstan protocol."), *self.imports()]
        names = [name for name in sorted(self.definitions) if not EXCLUDED.match(name)]
        unions = [name for name in names if "discriminator" in self.definitions[name]]
        models = [name for name in names if self.is_model(name)]
        aliases = [name for name in names if name not in unions and name not in models]
        refers = {name: any(other in self.alias(name, self.definitions[name]) for other in aliases) for name in aliases}
        for name in sorted(aliases, key=lambda each: refers[each]):
            lines += ["", *self.alias_lines(name, self.definitions[name])]
        for name in models:
            lines += ["", "", *self.model(name, self.definitions[name])]
        for name in unions:
            lines += ["", "", *self.alias_lines(name, self.definitions[name])]
        names_list = ["", "", "__all__ = [", *(f"    {json.dumps(name)}," for name in names), "]"]
        return "\n".join(lines + names_list) + "\n"

    def imports(self) -> list[str]:
        return [
            "from dataclasses import field as field_of",
            "from typing import TYPE_CHECKING, ClassVar, Literal, Optional, TypeAlias, Union",
            "",
            "from .codec import Bytes, JsonObject, JsonValue, Model, OtherVariant",
            "",
            "if TYPE_CHECKING:",
            "    from dataclasses import dataclass",
            "else:",
            "    from .codec import lazy_dataclass as dataclass",
        ]

    def alias_lines(self, name: str, schema: Schema) -> list[str]:
        comment = " ".join(schema.get("description", "").split())
        lines = [f"# {line}" for line in textwrap.wrap(comment, LINE_LEN - 2)]
        target = self.alias(name, schema)
        line = f"{name}: TypeAlias = {target}"
        if len(line) <= LINE_LEN:
            return [*lines, line]
        head, inside = target.split("[", 1)
        members = [f"    {member}," for member in split_members(inside[:-1])]
        return [*lines, f"{name}: TypeAlias = {head}[", *members, "]"]


def wrapped_names(head: str, names: list[str], tail: str) -> list[str]:
    """One line with the quoted names, or as many as they need."""
    line = head + ", ".join(json.dumps(name) for name in names) + tail
    if len(line) <= LINE_LEN:
        return [line]
    indent = " " * (len(head) - len(head.lstrip()))
    inside = textwrap.wrap(", ".join(json.dumps(name) for name in names) + ",", LINE_LEN - len(indent) - 4)
    return [head, *(f"{indent}    {each}" for each in inside), indent + tail]


def split_members(text: str) -> list[str]:
    """Splits at the commas outside of brackets."""
    members, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            members.append(text[start:position].strip())
            start = position + 1
    return [*members, text[start:].strip()]


class FacadeGenerator:
    """Python source of the run API: one class per group, one method per method of the protocol."""

    def __init__(self, models: ModelGenerator) -> None:
        self.models = models
        self.definitions = models.definitions
        self.used: set[str] = set()

    def use(self, annotation: str) -> str:
        self.used.update(name for name in re.findall(r"\w+", annotation) if name in self.definitions)
        return annotation

    def method(self, full_name: str) -> list[str]:
        call = self.variant("ApiRequest", full_name)
        response = self.variant("ApiResponse", full_name)["properties"]["result"]
        name = full_name.split(".")[1]
        params = reference(call["properties"]["params"])
        fields: list[str] = []
        optional: list[str] = []
        arguments: list[str] = []
        given: list[str] = []
        documented: list[str] = []
        if params and params != "EmptyCall":
            schema = self.definitions[params]
            for field, item in schema["properties"].items():
                annotation = self.models.annotation(item)
                if "description" in item:
                    documented.append(f"{field}: {' '.join(item['description'].split())}")
                arguments.append(f"{field}={field}")
                if field in schema.get("required", []):
                    fields.append(f"{field}: {self.use(annotation)}")
                else:
                    annotation, default = self.models.default(item, annotation)
                    if default.startswith("field_of("):
                        annotation, default = union([annotation, "None"]), "None"
                        given.append(arguments.pop())
                    optional.append(f"{field}: {self.use(annotation)} = {default}")
            self.used.add(params)
        signature = ["self", *fields, *(["*", *optional] if optional else [])]
        if given:
            arguments.append(f"**_given({', '.join(given)})")
        built = f"{params}({', '.join(arguments)}).to_json()" if arguments else "{}"
        result = self.use(self.models.annotation(response))
        doc = docstring(call.get("description", full_name), "        ", documented)
        prepared: list[str] = []
        if len(built) > 60:
            prepared = [f"        request = {params}(", *(f"            {each}," for each in arguments), "        )"]
            built = "request.to_json()"
        doc += prepared
        if full_name == "models.stream":
            head = self.signature("def", name, signature, "ModelStream")
            return [*head, *doc, f"        return self._caller.stream({json.dumps(full_name)}, {built})"]
        head = self.signature("async def", name, signature, result)
        sent = f"await self._caller.call({json.dumps(full_name)}, {built})"
        if result == "None":
            return [*head, *doc, f"        {sent}"]
        if result in ("JsonValue",):
            return [*head, *doc, f"        return {sent}"]
        return [
            *head,
            *doc,
            f"        response = {sent}",
            f"        decoded: {result} = _decode({result}, response)",
            "        return decoded",
        ]

    def signature(self, keyword: str, name: str, parameters: list[str], result: str) -> list[str]:
        line = f"    {keyword} {name}({', '.join(parameters)}) -> {result}:"
        if len(line) <= LINE_LEN:
            return [line]
        return [f"    {keyword} {name}(", *(f"        {each}," for each in parameters), f"    ) -> {result}:"]

    def variant(self, union_name: str, full_name: str) -> Schema:
        mapping = self.definitions[union_name]["discriminator"]["mapping"]
        found = self.definitions[str(mapping[full_name]).rsplit("/", 1)[-1]]
        assert isinstance(found, dict)
        return found

    def source(self) -> str:
        """Source of run_api.py."""
        methods = list(self.definitions["ApiRequest"]["discriminator"]["mapping"])
        groups: dict[str, list[str]] = {}
        for full_name in methods:
            groups.setdefault(full_name.split(".")[0], []).append(full_name)
        body: list[str] = []
        for group, members in groups.items():
            body += ["", "", f"class {group.capitalize()}Api:", f'    """Methods `{group}.*` of the run API."""', ""]
            body += ["    def __init__(self, caller: RunCaller) -> None:", "        self._caller = caller"]
            for full_name in members:
                body += ["", *self.method(full_name)]
        body += ["", "", "class AgentRunAPIProxy:"]
        body += docstring(
            "The only way from a plugin to the host: calls that the grant of the run covers, by group. Refusals raise "
            "`RunApiError`, calls after the end of the run `RunEndedError`.",
            "    ",
        )
        body += ["", "    def __init__(self, caller: RunCaller) -> None:"]
        body += [f"        self.{group} = {group.capitalize()}Api(caller)" for group in groups]
        names = ["ModelEvent", *self.used]
        imports = sorted({name for name in names if not EXCLUDED.match(name)})
        lines = [HEADER.format(title="The run API: typed calls from a run, or from a tool call, to the host.")]
        lines += ["from typing import Any, List, Optional, Protocol, Union", ""]
        lines += ["from .codec import Bytes, JsonObject, JsonValue, decoder_of"]
        lines += ["from .model_stream import ModelStream", "from .models import ("]
        lines += [f"    {name}," for name in imports if name != "ModelEvent"] + [")"]
        lines += [
            "",
            "",
            "class RunCaller(Protocol):",
            '    """Sends calls with the authority of one run or tool call."""',
            "",
            "    async def call(self, method: str, params: JsonObject) -> JsonValue:",
            '        """Response of a method."""',
            "",
            "    def stream(self, method: str, params: JsonObject) -> ModelStream:",
            '        """Response of a method that is a stream of model events."""',
            "",
            "",
            "def _decode(annotation: Any, response: Any) -> Any:",
            '    return decoder_of(annotation)(response, "result")',
            "",
            "",
            "def _given(**arguments: Any) -> dict[str, Any]:",
            "    return {name: value for name, value in arguments.items() if value is not None}",
        ]
        text = "\n".join(lines + body) + "\n"
        text = text.replace("list[", "List[")  # `list` is also the name of methods
        for name in ("Union", "Optional"):
            if f"{name}[" not in text:
                text = re.sub(rf"(from typing import .*), {name}\b", r"\1", text)
        if "_given(" not in text.split("def _given")[1].split("\n", 1)[1]:
            raise SystemExit("_given is unused")
        return text


def generate() -> dict[pathlib.Path, str]:
    """Source of each generated file."""
    models = ModelGenerator(json.loads(BUNDLE.read_text(encoding="utf-8"))["$defs"])
    return {SOURCE / "models.py": models.source(), SOURCE / "run_api.py": FacadeGenerator(models).source()}


def main() -> int:
    """Writes or checks the files."""
    stale = [path for path, text in generate().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.name} is not current: run sdk/python/scripts/generate_models.py", file=sys.stderr)
        return 1 if stale else 0
    for path, text in generate().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
