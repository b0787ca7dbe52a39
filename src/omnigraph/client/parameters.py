"""The values of query parameters as JSON, so that a server binds the same values as the engine does."""

# See docs/decisions/0044-a-misspelt-parameter-is-an-error.md

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import orjson

from omnigraph.errors import ParameterError
from omnigraph.lang.types import Scalar, ValueType

_INT64, _UINT64 = -(1 << 63), (1 << 64) - 1
_MAX_BITS = 1024
"""Bits of the largest whole number that is a float, too."""


def parameters_json(params: Mapping[str, object]) -> dict[str, Any]:
    """The values of parameters, as values that orjson writes.

    Raises:
        ParameterError: a value fits no type of a parameter.
    """
    found = {}
    for name, value in params.items():
        try:
            found[str(name)] = _value(value)
        except _InvalidValueError as error:
            raise ParameterError(str(name), str(error)) from None
    return found


def check_bytes(text: str, name: str | None, params: Mapping[str, object] | None) -> None:
    """Check that bytes are given for blobs only. They are sent as texts, which other parameters would take, too.

    Raises:
        ParameterError: a parameter of another type has bytes.
        CompileError: the text does not compile.
    """
    given = [key for key, value in (params or {}).items() if isinstance(value, bytes | bytearray | memoryview)]
    if not given:
        return
    from omnigraph.lang.query import parse_queries, select_query

    for declared in select_query(parse_queries(text), name).params:
        kind = declared.type
        if declared.name in given and not (isinstance(kind, ValueType) and kind.scalar is Scalar.BLOB):
            raise ParameterError(declared.name, f"bytes are not a value of {kind}")


class _InvalidValueError(Exception):
    """A value fits no type of a parameter."""


def _value(value: object) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biu" or (value.dtype.kind == "f" and np.isfinite(value).all()):
            return value.tolist()
        return _items(value.tolist() if value.dtype.kind == "f" else list(value))
    if isinstance(value, Mapping):
        return {str(name): _value(one) for name, one in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return f"base64:{b64encode(value).decode()}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _items(value)
    return _scalar(value)


def _items(values: Sequence[object]) -> list[Any]:
    found = []
    for number, value in enumerate(values):
        try:
            found.append(_value(value))
        except _InvalidValueError as error:
            raise _InvalidValueError(f"item {number}: {error}") from None
    return found


def _scalar(value: object) -> Any:
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return str(value.astype("datetime64[ms]"))
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Decimal) and value.is_finite():
        value = int(value) if value.adjusted() < 20 and value == int(value) else float(value)
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            raise _InvalidValueError(f"{value} is not finite")
        return float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise _InvalidValueError(f"a {type(value).__name__} is not a value of a parameter")


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _InvalidValueError("the text contains half of a surrogate pair, which is not valid Unicode") from None
    return str(text)


def _integer(number: int) -> Any:
    """A whole number. orjson writes those of 64 bits only; larger ones can be values of a float parameter."""
    if _INT64 <= number <= _UINT64:
        return number
    if number.bit_length() > _MAX_BITS:
        raise _InvalidValueError("the number is too large")
    return orjson.Fragment(str(number))
