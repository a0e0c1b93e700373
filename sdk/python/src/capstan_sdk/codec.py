"""Base class of the generated models, and the conversion between JSON and their fields.

Tolerance, as the protocol demands: fields that a model does not know are kept in `extra` and written back, unknown
values of an enumeration are plain texts, an unknown variant of a tagged union is an `OtherVariant`.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import threading
import types
import typing
from typing import Any, Callable, ClassVar, Literal, TypeVar, Union

from .errors import ModelDecodeError

JsonValue = Any
Bytes = bytes
JsonObject = dict[str, Any]
Decoder = Callable[[Any, str], Any]
ModelType = TypeVar("ModelType", bound="Model")

_MISSING = dataclasses.MISSING


@dataclasses.dataclass(eq=False, repr=False)
class Model:
    """Base of the types of the protocol. `extra` has the fields that this version of the SDK does not know."""

    _required_: ClassVar[frozenset[str]] = frozenset()
    _tag_: ClassVar[tuple[str, str] | None] = None

    extra: JsonObject = dataclasses.field(default_factory=dict, kw_only=True)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __repr__(self) -> str:
        fields = [f"{name}={value!r}" for name, value in vars(self).items() if name != "extra" or value]
        return f"{type(self).__name__}({', '.join(fields)})"

    @classmethod
    def from_json(cls: type[ModelType], value: Any, path: str = "") -> ModelType:
        """The model of a JSON object; raises `ModelDecodeError` with the path of the field."""
        if not isinstance(value, dict):
            raise ModelDecodeError(f"{path or cls.__name__}: expected an object, got {_kind(value)}")
        plan = _decoding_plan(cls)
        fields: dict[str, Any] = {}
        for name, (decode, required, nullable) in plan.items():
            if name not in value:
                if required:
                    raise ModelDecodeError(f"{_join(path, name)}: the field is missing")
                continue
            item = value[name]
            if item is None and not required and not nullable:
                continue
            fields[name] = decode(item, _join(path, name))
        extra = {name: item for name, item in value.items() if name not in plan}
        return cls(**fields, extra=extra)

    def to_json(self) -> JsonObject:
        """The JSON object: required fields, and optional ones that differ from their defaults."""
        result = dict(self.extra)
        for name, required, default in _encoding_plan(type(self)):
            value = getattr(self, name)
            if required or (value is not None and value != default()):
                result[name] = encode_json(value)
        return result


_completion_lock = threading.RLock()


def lazy_dataclass(cls: type[ModelType]) -> type[ModelType]:
    """Dataclass that is made when its first instance is.

    Making a dataclass runs the compiler. For all types of the protocol this takes longer than the rest of the start of
    a plugin, which uses few of them.
    """

    def first_init(self: Any, *arguments: Any, **fields: Any) -> None:
        complete_dataclass(cls)
        cls.__init__(self, *arguments, **fields)

    first_init._is_lazy = True  # type: ignore[attr-defined]
    cls.__init__ = first_init  # type: ignore[method-assign]
    return cls


def complete_dataclass(cls: type[Model]) -> None:
    """Makes the dataclass of a type, and of those that it inherits from."""
    with _completion_lock:
        for each in reversed(cls.__mro__):
            if getattr(vars(each).get("__init__"), "_is_lazy", False):
                del each.__init__  # type: ignore[misc]
                dataclasses.dataclass(eq=False, repr=False)(each)


@dataclasses.dataclass(eq=False, repr=False)
class OtherVariant(Model):
    """A variant of a tagged union that this version of the SDK does not know: all its fields are in `extra`."""

    @property
    def type(self) -> str:
        """The field `type` of the variant, or an empty text."""
        return str(self.extra.get("type", ""))


def encode_json(value: Any) -> Any:
    """JSON of a model, of bytes (base64), and of lists and dicts of them; anything else as it is."""
    if isinstance(value, Model):
        return value.to_json()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {key: encode_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode_json(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(encode_json(item) for item in value)
    return value


@functools.lru_cache(maxsize=None)
def decoder_of(annotation: Any) -> Decoder:
    """Decoder for a type annotation: primitives, lists, dicts, models, optional values and unions of models."""
    if annotation is Any:
        return lambda value, path: value
    if annotation is None or annotation is type(None):
        return _decode_null
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return annotation.from_json
    if annotation is bytes:
        return _decode_bytes
    if annotation is float:
        return _decode_number
    if annotation in (str, int, bool):
        return functools.partial(_decode_primitive, annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return functools.partial(_decode_primitive, str)
    if origin is list:
        return functools.partial(_decode_list, decoder_of(arguments[0]))
    if origin is dict:
        return functools.partial(_decode_dict, decoder_of(arguments[1]))
    if origin in (Union, types.UnionType):
        return _union_decoder(arguments)
    raise TypeError(f"no decoder for {annotation!r}")


def _union_decoder(members: tuple[Any, ...]) -> Decoder:
    rest = [member for member in members if member is not type(None)]
    optional = len(rest) < len(members)
    decode = _tagged_decoder(rest) if any(_is_tagged(member) for member in rest) else _untagged_decoder(rest)
    if not optional:
        return decode
    return lambda value, path: None if value is None else decode(value, path)


def _is_tagged(member: Any) -> bool:
    return isinstance(member, type) and issubclass(member, Model) and member._tag_ is not None


def _tagged_decoder(members: list[Any]) -> Decoder:
    variants: dict[str, type[Model]] = {}
    tag = ""
    for member in members:
        if _is_tagged(member):
            tag, value = member._tag_
            variants[value] = member

    def decode(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise ModelDecodeError(f"{path}: expected an object, got {_kind(value)}")
        return variants.get(str(value.get(tag)), OtherVariant).from_json(value, path)

    return decode


def _untagged_decoder(members: list[Any]) -> Decoder:
    decoders = [decoder_of(member) for member in members]

    def decode(value: Any, path: str) -> Any:
        failure: ModelDecodeError | None = None
        for each in decoders:
            try:
                return each(value, path)
            except ModelDecodeError as error:
                failure = failure or error
        raise failure or ModelDecodeError(f"{path}: no form fits")

    return decode


def _decode_null(value: Any, path: str) -> None:
    if value is not None:
        raise ModelDecodeError(f"{path}: expected null, got {_kind(value)}")


def _decode_primitive(kind: type, value: Any, path: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ModelDecodeError(f"{path}: expected {_KIND_NAMES[kind]}, got {_kind(value)}")
    return value


def _decode_number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ModelDecodeError(f"{path}: expected a number, got {_kind(value)}")
    return float(value)


def _decode_bytes(value: Any, path: str) -> bytes:
    if not isinstance(value, str):
        raise ModelDecodeError(f"{path}: expected base64 in a text, got {_kind(value)}")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ModelDecodeError(f"{path}: not base64: {error}") from error


def _decode_list(decode: Decoder, value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise ModelDecodeError(f"{path}: expected a list, got {_kind(value)}")
    return [decode(item, f"{path}[{index}]") for index, item in enumerate(value)]


def _decode_dict(decode: Decoder, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ModelDecodeError(f"{path}: expected an object, got {_kind(value)}")
    return {key: decode(item, _join(path, key)) for key, item in value.items()}


DecodingPlan = dict[str, tuple[Decoder, bool, bool]]
EncodingPlan = list[tuple[str, bool, Callable[[], Any]]]

_decoding_plans: dict[type[Model], DecodingPlan] = {}
_encoding_plans: dict[type[Model], EncodingPlan] = {}


def _decoding_plan(cls: type[Model]) -> DecodingPlan:
    if cls in _decoding_plans:
        return _decoding_plans[cls]
    complete_dataclass(cls)
    hints = typing.get_type_hints(cls)
    plan: DecodingPlan = {}
    for item in dataclasses.fields(cls):
        if item.name != "extra":
            annotation = hints[item.name]
            nullable = annotation is Any or type(None) in typing.get_args(annotation)
            plan[item.name] = (decoder_of(annotation), item.name in cls._required_, nullable)
    _decoding_plans[cls] = plan
    return plan


def _encoding_plan(cls: type[Model]) -> EncodingPlan:
    if cls not in _encoding_plans:
        complete_dataclass(cls)
        _encoding_plans[cls] = [
            (item.name, item.name in cls._required_, _default_of(item))
            for item in dataclasses.fields(cls)
            if item.name != "extra"
        ]
    return _encoding_plans[cls]


def _default_of(item: dataclasses.Field[Any]) -> Callable[[], Any]:
    if item.default_factory is not _MISSING:
        return item.default_factory
    default = item.default
    return lambda: default


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_KIND_NAMES = {str: "a text", int: "an integer", bool: "true or false"}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, (int, float)):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"
