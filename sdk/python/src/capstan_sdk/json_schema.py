"""JSON Schema of the parameters of a function, from its type hints, and the conversion of arguments to them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from typing import Annotated, Any, Callable, Literal, Optional, Union

from .codec import JsonObject
from .errors import CapstanError

_EMPTY = inspect.Parameter.empty
_PRIMITIVES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class SchemaError(CapstanError):
    """A type hint has no JSON Schema: pass `parameters` to the decorator."""


@dataclasses.dataclass(frozen=True)
class FunctionSchema:
    """Parameters of a tool function."""

    parameters: JsonObject
    hints: dict[str, Any]
    context_name: Optional[str]
    takes_any: bool

    def convert(self, arguments: JsonObject) -> dict[str, Any]:
        """Arguments of a call as the function expects them: dataclasses and enumerations in place of JSON."""
        return {name: convert_value(self.hints.get(name, Any), value) for name, value in arguments.items()}


def function_schema(function: Callable[..., Any], context_type: type) -> FunctionSchema:
    """Schema of the parameters of a function; the one with the type of the context is left out."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise SchemaError(f"{function.__name__}: type hint not found: {error}") from None
    properties: JsonObject = {}
    required: list[str] = []
    context_name = None
    takes_any = False
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, Any)
        if hint is context_type:
            context_name = name
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise SchemaError(f"{function.__name__}: the parameter {name} cannot be passed by name")
        try:
            schema = type_schema(hint)
        except SchemaError as error:
            raise SchemaError(f"{function.__name__}({name}): {error}") from None
        if parameter.default is _EMPTY:
            required.append(name)
        elif _is_json(parameter.default) and parameter.default is not None:
            schema = {**schema, "default": parameter.default}
        properties[name] = schema
    parameters: JsonObject = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    if not takes_any:
        parameters["additionalProperties"] = False
    return FunctionSchema(parameters, hints, context_name, takes_any)


def type_schema(hint: Any) -> JsonObject:
    """Schema of a type hint: primitives, lists, dicts, `Literal`, enumerations, unions, dataclasses and TypedDicts.

    A text in `Annotated` is the description.
    """
    if hint is Any or hint is object:
        return {}
    if hint is None:
        return {"type": "null"}
    if isinstance(hint, type) and hint in _PRIMITIVES:
        return {"type": _PRIMITIVES[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        schema = type_schema(arguments[0])
        texts = [item for item in arguments[1:] if isinstance(item, str)]
        extra = {key: value for item in arguments[1:] if isinstance(item, dict) for key, value in item.items()}
        return {**schema, **({"description": texts[0]} if texts else {}), **extra}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return _union_schema(arguments)
    if origin in (list, tuple, set, frozenset) or hint in (list, tuple, set):
        item = next((each for each in arguments if each is not Ellipsis), Any)
        schema = {"type": "array", "items": type_schema(item)}
        return {**schema, "uniqueItems": True} if (origin or hint) in (set, frozenset) else schema
    if origin is dict or hint is dict:
        value = type_schema(arguments[1]) if arguments else {}
        return {"type": "object", "additionalProperties": value} if value else {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass_schema(hint)
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        schema = {"type": "object", "properties": {name: type_schema(each) for name, each in hints.items()}}
        required = sorted(hint.__required_keys__)
        return {**schema, "required": required} if required else schema
    raise SchemaError(f"no JSON Schema for {hint!r}: pass `parameters` to the decorator")


def _union_schema(members: tuple[Any, ...]) -> JsonObject:
    schemas = [type_schema(member) for member in members]
    if all(set(schema) == {"type"} for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def _dataclass_schema(hint: type) -> JsonObject:
    hints = typing.get_type_hints(hint, include_extras=True)
    properties: JsonObject = {}
    required = []
    for item in dataclasses.fields(hint):
        schema = type_schema(hints[item.name])
        if item.default is not dataclasses.MISSING and _is_json(item.default) and item.default is not None:
            schema = {**schema, "default": item.default}
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            required.append(item.name)
        properties[item.name] = schema
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def convert_value(hint: Any, value: Any) -> Any:
    """A JSON value as an instance of a type hint. The host has validated it: anything unexpected stays as it is."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return convert_value(arguments[0], value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        hints = typing.get_type_hints(hint, include_extras=True)
        return hint(**{name: convert_value(hints.get(name, Any), item) for name, item in value.items()})
    if isinstance(value, list) and origin in (list, tuple, set, frozenset) and arguments:
        items = [convert_value(arguments[0], item) for item in value]
        return items if origin is list else origin(items)
    if isinstance(value, dict) and origin is dict:
        return {key: convert_value(arguments[1], item) for key, item in value.items()}
    if origin in (Union, types.UnionType):
        for member in arguments:
            if isinstance(value, dict) and dataclasses.is_dataclass(member):
                return convert_value(member, value)
            if isinstance(value, list) and typing.get_origin(member) is list:
                return convert_value(member, value)
    return value


def _is_json(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_json(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    return value is None or isinstance(value, (str, int, float, bool)) and not isinstance(value, enum.Enum)
