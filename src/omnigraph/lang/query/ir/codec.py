"""JSON encoding and fingerprint of the IR.

Each node of the IR is a JSON object whose `kind` is the class name. Its members are in declaration order. Members with
their default value are omitted, so a new member does not change the encoding of older queries.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from enum import StrEnum
from functools import cache
from typing import Any

from omnigraph.errors import InputError
from omnigraph.lang.query.ir import expr, query
from omnigraph.lang.types import ValueType

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]

_CLASSES: dict[str, type] = {"ValueType": ValueType} | {
    cls.__name__: cls
    for module in (expr, query)
    for cls in vars(module).values()
    if isinstance(cls, type) and cls.__module__ == module.__name__ and "__dataclass_fields__" in vars(cls)
}
_KINDS: dict[type, str] = {cls: kind for kind, cls in _CLASSES.items()}


def to_json(ir: query.Query) -> JsonValue:
    """Encode a query as JSON values."""
    return _encode(ir)


def from_json(data: JsonValue) -> query.Query:
    """Decode the result of `to_json`.

    Raises:
        InputError: the data is not the JSON of a query.
    """
    try:
        decoded = _decode(data)
    except RecursionError:
        raise InputError("this JSON is nested too deeply to be a query") from None
    if not isinstance(decoded, query.Query):
        raise InputError("this is not the JSON of a query")
    return decoded


def dumps(ir: query.Query) -> str:
    """Encode a query as compact JSON. Equal queries give equal texts."""
    return json.dumps(to_json(ir), ensure_ascii=False, separators=(",", ":"))


def fingerprint(ir: query.Query) -> str:
    """A hash of the IR. Equal fingerprints mean equal IR."""
    return "sha256:" + hashlib.sha256(dumps(ir).encode()).hexdigest()


@cache
def _members(cls: type) -> tuple[tuple[str, Any, Any], ...]:
    """Name, default and declared type of each member."""
    hints = typing.get_type_hints(cls)
    return tuple((f.name, f.default, hints[f.name]) for f in dataclasses.fields(cls))


def _encode(value: Any) -> JsonValue:
    kind = _KINDS.get(type(value))
    if kind is not None:
        out: dict[str, JsonValue] = {"kind": kind}
        for name, default, _ in _members(value.__class__):
            member = getattr(value, name)
            if default is dataclasses.MISSING or member != default or type(member) is not type(default):
                out[name] = _encode(member)
        return out
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    return value  # type: ignore[no-any-return]


def _decode(data: JsonValue) -> Any:
    if not isinstance(data, dict):
        return tuple(_decode(item) for item in data) if isinstance(data, list) else data
    cls = _CLASSES.get(str(data.get("kind")))
    if cls is None:
        raise InputError(f"unknown IR node {data.get('kind')!r}")
    members: dict[str, Any] = {}
    for name, default, hint in _members(cls):
        if name in data:
            members[name] = _member(hint, data[name])
            if not _fits(members[name], hint):
                raise InputError(f"member {name!r} of IR node {data['kind']} is of the wrong type")
        elif default is dataclasses.MISSING:
            raise InputError(f"IR node {data['kind']} lacks {name!r}")
    unknown = data.keys() - members.keys() - {"kind"}
    if unknown:
        raise InputError(f"IR node {data['kind']} has unknown members: {', '.join(sorted(unknown))}")
    return cls(**members)


def _member(hint: Any, data: JsonValue) -> Any:
    """Decode a member. Enums need the declared type; all other values are self-describing."""
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(data, str):
        for choice in choices:
            if isinstance(choice, type) and issubclass(choice, StrEnum):
                if data not in choice.__members__.values():
                    raise InputError(f"{data!r} is not a {choice.__name__}")
                return choice(data)
    return _decode(data)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a decoded value has the declared type of the member."""
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if isinstance(hint, str | typing.ForwardRef):
        return _fits(value, expr.ConstValue)  # a recursive type
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)
