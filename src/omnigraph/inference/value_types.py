"""Tests which types the values of a column have. The conversions of `load` decide, so a load accepts these types."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.input.date_formats import DateFormat
from omnigraph.write.input.parse_text import from_text
from omnigraph.write.rows.convert import Report, convert
from omnigraph.write.rows.values import Fault

Read = Callable[[pa.Array, ValueType, Report], pa.Array]

DAYS_AS_NUMBERS = "%Y%m%d"
"""The format of dates like 20260314, which are numbers, too."""

_CLOCK = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p")
_DAYS = (
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%Y/%m/%d",
    "%d %b %Y",
    "%d-%b-%Y",
    "%b %d %Y",
    "%b %d, %Y",
    "%d.%m.%y",
    "%d/%m/%y",
    "%m/%d/%y",
)
_DAY_SHAPE = (
    r"^\s*([0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}"
    r"|[0-9]{1,2}[ -][A-Za-z]{3,9}[ -][0-9]{4}"
    r"|[A-Za-z]{3,9} [0-9]{1,2},? [0-9]{4})"
)
_WHOLE = r"^(0|-?[1-9][0-9]*)$"
_DIGITS = r"^-?[0-9]+$"
_AMOUNT = r"^[-+(]?\s?[$€£¥]?\s?([0-9]{1,3}([,.' ][0-9]{3})+|[0-9]+)([.,][0-9]+)?\s?[$€£¥%)]?$"
_NUMBER = r"^-?((0|[1-9][0-9]{0,14})|(0|[1-9][0-9]*)(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))$"
"""Numbers. A float does not have all digits of a whole number with more than 15."""
_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A type that the values of a text column may have.

    Attributes:
        kind: the type.
        pattern: a regular expression that all values match.
        format: the format of dates and times, if the mapping has to name it.
        cells: whether only the cells of CSV files are converted to this type. Texts of other tables are not.
        reason: for a text, why it is no number.
    """

    kind: ValueType
    pattern: str
    format: str | None = None
    cells: bool = True
    reason: str = ""

    def accepts(self, texts: pa.Array) -> bool:
        """Whether a load converts all texts, which match the pattern, to the type."""
        read: Read = from_text if self.cells else convert
        if self.format is not None:
            read = DateFormat.parse(self.format).read
        try:
            convert(read(texts, self.kind, _refuse), self.kind, _refuse)
        except (_RefusedError, pa.ArrowInvalid):
            return False
        return True


def _scalar(scalar: Scalar) -> ValueType:
    return ValueType(scalar, nullable=True)


def _list(scalar: Scalar) -> ValueType:
    return ValueType(scalar, nullable=True, list=True)


TIMES = (
    Candidate(_scalar(Scalar.DATE), r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", cells=False),
    Candidate(_scalar(Scalar.DATETIME), _INSTANT, cells=False),
    Candidate(_scalar(Scalar.DATETIME), _DAY_SHAPE, "%Y-%m-%dT%H:%M"),
    *(Candidate(_scalar(Scalar.DATE), _DAY_SHAPE, day) for day in _DAYS),
    *(
        Candidate(_scalar(Scalar.DATETIME), _DAY_SHAPE, f"{day}{gap}{clock}")
        for day in (*_DAYS, "%Y-%m-%d")
        for gap in (" ", ", ")
        for clock in _CLOCK
        if gap == " " or not day.startswith("%Y")
    ),
)
"""Dates and times in texts, in the order of preference."""

CELLS = (
    Candidate(_scalar(Scalar.BOOL), r"^(true|True|TRUE|false|False|FALSE)$"),
    Candidate(_scalar(Scalar.I64), _WHOLE),
    Candidate(_scalar(Scalar.U64), _WHOLE),
    Candidate(_scalar(Scalar.F64), _NUMBER),
    *TIMES,
    Candidate(_list(Scalar.I64), r"^\["),
    Candidate(_list(Scalar.F64), r"^\["),
    Candidate(_list(Scalar.STRING), r"^\["),
    Candidate(_scalar(Scalar.BLOB), r"^base64:"),
    Candidate(_scalar(Scalar.DATE), r"^[0-9]{8}$", DAYS_AS_NUMBERS),
    Candidate(_scalar(Scalar.STRING), _DIGITS, reason="digits, but with leading zeros or too many for a number"),
    Candidate(_scalar(Scalar.STRING), _AMOUNT, reason="numbers with signs or separators that a load does not convert"),
)
"""The types of cells of CSV files, in the order of preference."""

TEXTS = (*TIMES, Candidate(_scalar(Scalar.BLOB), r"^base64:", cells=False))
"""The types of texts in other tables, in the order of preference."""


_FIRST_ROWS = 1000
"""Rows that are tested first: most types do not fit them."""


class _RefusedError(Exception):
    pass


def _refuse(wrong: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
    if pc.any(wrong).as_py():
        raise _RefusedError


def _fits(texts: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is True


class TextType:
    """Finds the type of a text column, batch by batch.

    Args:
        candidates: the possible types, in the order of preference.
    """

    def __init__(self, candidates: tuple[Candidate, ...]) -> None:
        self._left = list(candidates)
        self._seen = False

    def take(self, texts: pa.Array) -> None:
        if len(texts):
            self._seen = True
            for part in (texts.slice(0, _FIRST_ROWS), texts.slice(_FIRST_ROWS)):
                if len(part):
                    fitting = {pattern for pattern in {each.pattern for each in self._left} if _fits(part, pattern)}
                    self._left = [each for each in self._left if each.pattern in fitting and each.accepts(part)]

    @property
    def candidates(self) -> list[Candidate]:
        """The types that fit all texts; none if there were no texts."""
        return self._left if self._seen else []


def arrow_kind(kind: pa.DataType) -> ValueType | None:
    """The type of a property that takes all values of an Arrow type; None if there is none."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = arrow_kind(kind.value_type)
        if item is None or not item.is_plain_scalar or item.list:
            return None
        if pa.types.is_fixed_size_list(kind) and pa.types.is_float32(kind.value_type):
            return ValueType(Scalar.VECTOR, nullable=True, dim=kind.list_size)
        return _list(item.scalar)
    if pa.types.is_struct(kind):
        names = {kind.field(i).name for i in range(kind.num_fields)}
        return _scalar(Scalar.BLOB) if names == {"data", "uri"} else None
    if pa.types.is_decimal(kind):
        return _scalar(Scalar.F64 if kind.scale else Scalar.I64)
    for test, scalar in _SCALARS:
        if test(kind):
            return _scalar(scalar)
    return None


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], Scalar], ...] = (
    (pa.types.is_boolean, Scalar.BOOL),
    (pa.types.is_uint64, Scalar.U64),
    (pa.types.is_uint32, Scalar.U32),
    (pa.types.is_int64, Scalar.I64),
    (pa.types.is_integer, Scalar.I32),
    (pa.types.is_float64, Scalar.F64),
    (pa.types.is_floating, Scalar.F32),
    (pa.types.is_date32, Scalar.DATE),
    (pa.types.is_date64, Scalar.DATETIME),
    (pa.types.is_timestamp, Scalar.DATETIME),
    (pa.types.is_string, Scalar.STRING),
    (pa.types.is_large_string, Scalar.STRING),
    (pa.types.is_string_view, Scalar.STRING),
    (pa.types.is_binary, Scalar.BLOB),
    (pa.types.is_large_binary, Scalar.BLOB),
    (pa.types.is_binary_view, Scalar.BLOB),
)


def common_kind(one: ValueType | None, other: ValueType | None) -> ValueType | None:
    """The type that takes the values of two types of a JSON member; None if there is none."""
    if one is None or other is None or one == other:
        return one or other
    if one.list == other.list and {one.scalar, other.scalar} == {Scalar.I64, Scalar.F64}:
        return _list(Scalar.F64) if one.list else _scalar(Scalar.F64)
    scalars = {one.scalar, other.scalar}
    if Scalar.U64 in scalars and scalars < {Scalar.U64, Scalar.I64, Scalar.F64} and not one.list and not other.list:
        return _scalar(Scalar.F64 if Scalar.F64 in scalars else Scalar.U64)
    return None
