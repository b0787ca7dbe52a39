"""Bind parameters: convert given JSON or Python values to the declared types."""

# See docs/decisions/0044-a-misspelt-parameter-is-an-error.md

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np

from omnigraph.errors import ParameterError, cut, shown
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.temporal import MS_PER_DAY, parse_date, parse_datetime
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType

JS_SAFE = 2**53 - 1
"""The largest integer that every JSON parser reads exactly."""

_DECIMAL = re.compile(r"(-?)0*([0-9]{1,20})", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = parse_datetime("0001-01-01"), parse_datetime("9999-12-31T23:59:59.999")


def bind(
    params: Sequence[ir.Parameter], given: Mapping[str, object], *, js_safe: bool = False
) -> dict[str, ir.ConstValue]:
    """Return the value of every declared parameter.

    A missing parameter gets its default, or null if its type is nullable. Undeclared names are ignored (`undeclared`
    lists them) if all declared parameters are given. Otherwise an undeclared name is an error: it is probably a
    misspelt parameter, and null or a default would silently replace it.

    Args:
        params: the declared parameters.
        given: the values by name, without `$`: JSON values, or Python and numpy values.
        js_safe: whether integers beyond ±(2^53 - 1) must be given as texts.

    Raises:
        ParameterError: a parameter is missing or misspelt, or its value does not fit.
    """
    left_out = [param.name for param in params if param.name not in given]
    unknown = undeclared(params, given)
    misspelt = next((name for name in unknown if _is_near(name, left_out)), None)
    if misspelt is not None:
        raise _unknown(misspelt, left_out)
    bound = {param.name: _one(param, given, js_safe) for param in params}
    if left_out and unknown:
        raise _unknown(unknown[0], left_out)
    return bound


def _unknown(name: str, left_out: list[str]) -> ParameterError:
    return ParameterError(cut(name), f"there is no parameter '{cut(name)}'", hint=_name_hint(name, left_out))


def _is_near(wrong: str, names: list[str]) -> bool:
    return (_name_hint(wrong, names) or "known").startswith(("did you mean", "give it as"))


def undeclared(params: Iterable[ir.Parameter | ast.Param], given: Mapping[str, object]) -> tuple[str, ...]:
    """The given names that are not declared, sorted."""
    return tuple(sorted({str(name) for name in given} - {param.name for param in params}))


def _name_hint(wrong: str, names: list[str]) -> str | None:
    """A hint for an undeclared name."""
    bare = wrong.removeprefix("$")
    return f"give it as '{bare}', without $" if wrong != bare and bare in names else did_you_mean(wrong, names)


def _one(param: ir.Parameter, given: Mapping[str, object], js_safe: bool) -> ir.ConstValue:
    name, kind = param.name, param.type
    if name not in given:
        if param.required:
            raise ParameterError(name, f"not given, and {kind} cannot be null")
        return param.default
    try:
        return _value(given[name], kind, js_safe)
    except _InvalidValueError as error:
        raise ParameterError(name, str(error), hint=error.hint) from None


class _InvalidValueError(Exception):
    """A value does not fit its declared type."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def _value(value: object, kind: ValueType, js_safe: bool) -> ir.ConstValue:
    if value is None:
        if not kind.nullable:
            raise _InvalidValueError(f"null is not a value of {kind}")
        return None
    if kind.is_vector:
        return _vector(value, kind)
    if kind.list:
        return _each(_items(value, f"expected {kind}"), lambda item: _scalar(item, kind.item, js_safe))
    return _scalar(value, kind, js_safe)


def _items(value: object, expected: str) -> Iterable[object]:
    if isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise _InvalidValueError(f"{expected}, not an array of {value.ndim} dimensions")
        return value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return value
    raise _InvalidValueError(f"{expected}, not {_shown(value)}")


def _each(items: Iterable[object], make: Callable[[object], ir.ConstValue]) -> tuple[ir.ConstValue, ...]:
    values = []
    for i, item in enumerate(items):
        try:
            values.append(make(item))
        except _InvalidValueError as error:
            raise _InvalidValueError(f"item {i}: {error}", error.hint) from None
    return tuple(values)


def _vector(value: object, kind: ValueType) -> ir.ConstValue:
    items = list(_items(value, f"expected a list of {kind.dim} numbers"))
    if len(items) != kind.dim:
        raise _InvalidValueError(f"expected {kind.dim} numbers, not {len(items)}")
    if all(issubclass(kind, float | np.floating) for kind in {*map(type, items)}):
        with np.errstate(over="ignore"):
            numbers = np.array(items).astype(np.float32)
        if np.isfinite(numbers).all():
            return tuple(numbers.tolist())
    return _each(items, lambda item: _float(item, Scalar.F32))


def _scalar(value: object, kind: ValueType, js_safe: bool) -> ir.ConstValue:
    scalar = kind.scalar
    if value is None:
        raise _InvalidValueError("null is not allowed")
    if scalar.is_integer:
        return _integer(value, scalar, js_safe)
    if scalar.is_float:
        return _float(value, scalar)
    if scalar is Scalar.BOOL:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        raise _InvalidValueError(f"expected true or false, not {_shown(value)}")
    if scalar is Scalar.DATE:
        return _date(value)
    if scalar is Scalar.DATETIME:
        return _datetime(value)
    if scalar is Scalar.BLOB and isinstance(value, bytes | bytearray | memoryview):
        return "base64:" + base64.b64encode(value).decode("ascii")
    return _text(value, kind)


def _text(value: object, kind: ValueType) -> str:
    if not isinstance(value, str):
        raise _InvalidValueError(f"expected a text, not {_shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _InvalidValueError("the text contains half of a surrogate pair, which is not valid Unicode") from None
    text = str(value)
    if kind.enum_values is not None and text not in kind.enum_values:
        values = ", ".join(kind.enum_values)
        raise _InvalidValueError(
            f"{_shown(text)} is not a value of {kind.item}", did_you_mean(text, kind.enum_values) or values
        )
    return text


def _integer(value: object, scalar: Scalar, js_safe: bool) -> int:
    low, high = INTEGER_RANGES[scalar]
    if isinstance(value, str):
        digits = _DECIMAL.fullmatch(value)
        if digits is None:
            raise _InvalidValueError(f"expected a whole number from {low} to {high}, not {_shown(value)}")
        number = int(digits.expand(r"\1\2"))
    elif isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if js_safe and abs(number) > JS_SAFE:
            raise _InvalidValueError(f"{_shown(number)} is beyond ±(2^53 - 1)", "send it as a text")
    elif isinstance(value, Decimal) and value.is_finite() and value.adjusted() < 20 and value == int(value):
        number = int(value)
    else:
        raise _InvalidValueError(f"expected a whole number, not {_shown(value)}")
    if not low <= number <= high:
        raise _InvalidValueError(f"{_shown(number)} is out of range for {scalar.value} ({low} to {high})")
    return number


def _float(value: object, scalar: Scalar) -> float:
    if not isinstance(value, int | float | np.integer | np.floating | Decimal) or isinstance(value, bool):
        raise _InvalidValueError(f"expected a number, not {_shown(value)}")
    try:
        number = float(value)
        if scalar is Scalar.F32:
            # Round to F32, because comparisons use stored values.
            (number,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        raise _InvalidValueError(f"{_shown(value)} is too large for {scalar.value}") from None
    if not np.isfinite(number):
        raise _InvalidValueError(f"{number} is not finite")
    return number


def _date(value: object) -> int:
    if isinstance(value, str):
        return _parsed(value, parse_date)
    moment = _moment(value)
    if moment is None:
        raise _InvalidValueError(f"expected a date like 2026-03-14, not {_shown(value)}")
    return moment // MS_PER_DAY


def _datetime(value: object) -> int:
    if isinstance(value, str):
        return _parsed(value, parse_datetime)
    moment = _moment(value)
    if moment is None:
        raise _InvalidValueError(f"expected a time like 2026-03-14T09:30:00Z, not {_shown(value)}")
    return moment


def _parsed(text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise _InvalidValueError(f"{_shown(text)}: {error}") from None


def _moment(value: object) -> int | None:
    """Milliseconds since 1970 of a Python or numpy date or time; None for other values. The default zone is UTC."""
    if isinstance(value, np.datetime64) and not np.isnat(value):
        moment = int(value.astype("datetime64[ms]").astype(np.int64))
    elif isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        moment = (aware - _EPOCH) // timedelta(milliseconds=1)
    elif isinstance(value, date):
        moment = (value.toordinal() - _EPOCH.toordinal()) * MS_PER_DAY
    else:
        return None
    if not _FIRST <= moment <= _LAST:
        raise _InvalidValueError(f"{value} is outside the years 1 to 9999 in UTC")
    return moment


def _shown(value: object) -> str:
    """Quote a value in an error message. For a list or an object, return only its kind."""
    if value is None or isinstance(value, str | int | float | Decimal | np.number | date):
        return shown(value)
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence | np.ndarray):
        return "a list"
    return f"a {type(value).__name__}"
