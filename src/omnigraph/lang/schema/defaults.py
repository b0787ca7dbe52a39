"""Check default values: the property must allow a default, and the value must fit."""

# See docs/decisions/0012-defaults-are-checked-with-the-schema.md

from __future__ import annotations

import math
import struct

from omnigraph.lang.schema import ast
from omnigraph.lang.schema.ast import LiteralKind
from omnigraph.lang.schema.catalog import Check, Constraint, Default, Property, Range
from omnigraph.lang.schema.owner import Owner
from omnigraph.lang.schema.problems import Problems
from omnigraph.lang.schema.regex import matches_part, pattern_error
from omnigraph.lang.temporal import format_date, format_datetime, parse_date, parse_datetime
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType

_TEMPORAL = (Scalar.DATE, Scalar.DATETIME)


class _InvalidDefaultError(ValueError):
    """A default does not fit its property. Has a reason and a hint."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.hint = hint


def read_default(
    problems: Problems,
    owner: Owner,
    target: Property,
    written: ast.Literal,
    key: tuple[str, ...],
    constraints: list[Constraint],
) -> Default | None:
    """Read the default of a property. Reports an invalid default and returns None."""
    where = f"{owner}: '{target.name}'"
    if not target.type.is_plain_scalar:
        problems.report(
            "OG-SC-028",
            f"{where} is {target.type} and cannot have a default",
            written.span,
            hint="defaults are for single values; make the property nullable instead",
        )
        return None
    if target.name in key:
        problems.report(
            "OG-SC-028",
            f"{where} is part of the key and cannot have a default",
            written.span,
            hint="with a default, entities that leave the key out would overwrite each other",
        )
        return None
    try:
        default = _convert(written, target.type)
        _check_constraints(default, target.name, constraints)
    except _InvalidDefaultError as misfit:
        problems.report("OG-SC-027", f"{owner}: default of '{target.name}': {misfit}", written.span, hint=misfit.hint)
        return None
    return default


def _convert(written: ast.Literal, type_: ValueType) -> Default:
    if written.kind is LiteralKind.NOW:
        if type_.scalar in _TEMPORAL:
            return Default(now=True)
        raise _InvalidDefaultError(f"now() is a time, and the property is {type_}")
    if written.kind is LiteralKind.WORD and not type_.is_enum:
        if written.text == "null":
            raise _InvalidDefaultError("the default cannot be null", "a nullable property without a default is null")
        raise _InvalidDefaultError(
            f"the bare word {written.text} is not a valid {type_}", f'quote a text: @default("{written.text}")'
        )
    if type_.is_enum:
        return Default(_enum_value(written, type_))
    if type_.scalar in _TEMPORAL:
        return Default(_moment(written, type_))
    if type_.scalar.is_integer:
        return Default(_integer(written, type_))
    if type_.scalar.is_float:
        return Default(_float(written, type_))
    expected = LiteralKind.BOOL if type_.scalar is Scalar.BOOL else LiteralKind.STRING
    if written.kind is not expected:
        hint = "write true or false" if expected is LiteralKind.BOOL else f'quote it: @default("{written.text}")'
        raise _InvalidDefaultError(f"{written.text} is not a valid {type_.scalar.value}", hint)
    return Default(written.value)


def _enum_value(written: ast.Literal, type_: ValueType) -> str:
    values = type_.enum_values or ()
    if written.text not in values:
        raise _InvalidDefaultError(f"'{written.text}' is not among the values", "the values are " + ", ".join(values))
    return written.text


def _moment(written: ast.Literal, type_: ValueType) -> str:
    """The canonical text of a date or time, so that equal defaults compare as equal."""
    if written.kind is not LiteralKind.STRING:
        raise _InvalidDefaultError(
            f"{written.text} is not a valid {type_.scalar.value}", 'write a text, like "2026-03-14", or now()'
        )
    try:
        if type_.scalar is Scalar.DATE:
            return format_date(parse_date(written.text))
        return format_datetime(parse_datetime(written.text))
    except (ValueError, OverflowError) as error:
        raise _InvalidDefaultError(f'"{written.text}" is not a valid {type_.scalar.value}: {error}') from None


def _integer(written: ast.Literal, type_: ValueType) -> int:
    if written.kind is not LiteralKind.INT:
        raise _InvalidDefaultError(f"{written.text} is not a valid {type_.scalar.value}", "write a whole number")
    least, most = INTEGER_RANGES[type_.scalar]
    value = int(written.text)
    if not least <= value <= most:
        raise _InvalidDefaultError(
            f"{written.text} does not fit into {type_.scalar.value}", f"its range is {least} to {most}"
        )
    return value


def _float(written: ast.Literal, type_: ValueType) -> float:
    if written.kind not in (LiteralKind.INT, LiteralKind.FLOAT):
        raise _InvalidDefaultError(f"{written.text} is not a valid {type_.scalar.value}", "write a number")
    value = float(written.text)
    try:
        if type_.scalar is Scalar.F32:
            struct.pack("<f", value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise _InvalidDefaultError(f"{written.text} is out of range for {type_.scalar.value}")
    return value


def _check_constraints(default: Default, name: str, constraints: list[Constraint]) -> None:
    """Check the default against the constraints of its property."""
    value = default.value
    for constraint in constraints:
        match constraint:
            case Range(property, least, most) if property == name and isinstance(value, int | float):
                if (least is not None and value < least) or (most is not None and value > most):
                    raise _InvalidDefaultError(f"{value} is outside of its @range")
            case Check(property, pattern) if property == name and isinstance(value, str):
                if pattern_error(pattern) is None and not matches_part(pattern, value):
                    raise _InvalidDefaultError(f'"{value}" does not match its @check')
