"""Parses dates and times in the format that a mapping gives, such as `%d.%m.%Y`, or seconds since 1970."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.lang.temporal import MS_PER_DAY
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.input.parse_text import matching_cells, parse_integers
from omnigraph.write.rows.convert import Report, convert

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = "(?i:" + "|".join(_MONTHS) + ")[A-Za-z]*"
_CODES = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "[0-9]{1,2}",
    "b": _NAMES,
    "B": _NAMES,
    "d": "[0-9]{1,2}",
    "H": "[0-9]{1,2}",
    "I": "[0-9]{1,2}",
    "p": "[AaPp][Mm]",
    "M": "[0-9]{2}",
    "S": "[0-9]{2}",
    "f": "[0-9]{1,9}",
    "z": "Z|UTC|[+-][0-9]{2}(?::?[0-9]{2})?",
}
"""The `strftime` codes that do not depend on the locale, and their patterns. Month names are English."""

_COUNTS = {"days": MS_PER_DAY, "seconds": 1000, "milliseconds": 1}
"""The length of a unit in milliseconds, for times that are numbers of units since 1970-01-01 UTC."""

_EXAMPLE = "write codes such as %d.%m.%Y or %Y%m%d %H:%M:%S; or days, seconds or milliseconds"


@dataclass(frozen=True, slots=True)
class DateFormat:
    """A format of dates and times.

    Attributes:
        text: the format as given.
        pattern: the regular expression of the format, with a group per code; None for numbers of units since 1970.
        codes: the `strftime` codes in the format, without `%`.
    """

    text: str
    pattern: str | None
    codes: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> DateFormat:
        """Parse a format.

        Raises:
            ValueError: the text is not a valid format. The second argument of the error is a hint.
        """
        if text in _COUNTS:
            return cls(text, None, frozenset())
        pattern, codes = "", []
        for part in re.findall(r"%.|[^%]|%", text, re.DOTALL):
            if part == "%%" or not part.startswith("%"):
                pattern += re.escape(part[-1])
                continue
            code = {"B": "b"}.get(part[1:], part[1:])
            if code not in _CODES or code in codes:
                problem = "used twice" if code in codes else "not a known code"
                raise ValueError(f"'{part}' is {problem}", _EXAMPLE)
            codes.append(code)
            pattern += f"(?P<{code}>{_CODES[code]})"
        for needed, what in (("Yy", "year"), ("mb", "month"), ("d", "day")):
            if sum(code in codes for code in needed) != 1:
                raise ValueError(f"'{text}' needs the {what} exactly once", _EXAMPLE)
        if ("I" in codes) != ("p" in codes) or ("I" in codes and "H" in codes):
            raise ValueError("%I needs %p, and cannot be used with %H", _EXAMPLE)
        return cls(text, f"^{pattern}$", frozenset(codes))

    def read(self, cells: pa.Array, kind: ValueType, report: Report, *, null_items: bool = False) -> pa.Array:
        """Parse cells. Reports cells in another format and returns null for them."""
        if pa.types.is_temporal(cells.type):
            return convert(cells, kind, report)
        texts = cells.cast(pa.utf8())
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.utf8()), texts)
        if self.pattern is None:
            return self._counted(texts, kind, report)
        expected = f"a {'date' if kind.scalar is Scalar.DATE else 'time'} written as {self.text}"
        groups = pc.extract_regex(matching_cells(texts, self.pattern, expected, report), self.pattern)
        return convert(self._usual(lambda code: pc.struct_field(groups, code), kind), kind, report)

    def _counted(self, texts: pa.Array, kind: ValueType, report: Report) -> pa.Array:
        numbers = parse_integers(texts, report)
        size = _COUNTS[self.text]
        # Larger numbers would overflow 64 bits. They are refused, because their years are out of range.
        most = 2**62 // size
        wrong = pc.or_(pc.greater(numbers, most), pc.less(numbers, -most)).fill_null(False)
        report(wrong, "outside the years 1 to 9999")
        numbers = pc.if_else(wrong, pa.scalar(None, pa.int64()), numbers)
        millis = pc.multiply(numbers, size).cast(pa.timestamp("ms", "UTC"))
        return convert(millis, kind, report)

    def _usual(self, group: Callable[[str], pa.Array], kind: ValueType) -> pa.Array:
        """The dates or times as ISO 8601 texts. `group` returns the parts of cells that match a code, such as `d`."""
        if "Y" in self.codes:
            year = group("Y")
        else:  # a two-digit year: 69 to 99 are 1969 to 1999, as in POSIX
            late = pc.greater(group("y").cast(pa.int32()), 68)
            year = pc.binary_join_element_wise(pc.if_else(late, "19", "20"), group("y"), "")
        month = _two(group("m")) if "m" in self.codes else _month(group("b"))
        day = pc.binary_join_element_wise(year, month, _two(group("d")), "-")
        if not self.codes & set("HIMSfz"):
            return day
        hour = _two(group("H")) if "H" in self.codes else self._twelve(group) if "I" in self.codes else "00"
        parts = [hour, *(group(code) if code in self.codes else "00" for code in "MS")]
        time = pc.binary_join_element_wise(*(_scalar(part) for part in parts), ":")
        fraction = pc.binary_join_element_wise(".", group("f"), "") if "f" in self.codes else ""
        offset = group("z") if "z" in self.codes else ""
        return pc.binary_join_element_wise(day, "T", _scalar(time), _scalar(fraction), _scalar(offset), "")

    def _twelve(self, group: Callable[[str], pa.Array]) -> pa.Array:
        """The hour from `%I` and `%p`. An hour outside 1 to 12 becomes 99, which the conversion refuses later."""
        hour = group("I").cast(pa.int32())
        noon = pc.equal(hour, 12)
        late = pc.equal(pc.utf8_lower(group("p")), "pm")
        shifted = pc.add(pc.if_else(noon, 0, hour), pc.if_else(late, 12, 0))
        legal = pc.and_(pc.greater_equal(hour, 1), pc.less_equal(hour, 12))
        return _two(pc.if_else(legal, shifted, 99).cast(pa.utf8()))


def _scalar(part: pa.Array | str) -> pa.Array | pa.Scalar:
    return pa.scalar(part, pa.utf8()) if isinstance(part, str) else part


def _two(digits: pa.Array) -> pa.Array:
    return pc.utf8_lpad(digits, 2, "0")


def _month(names: pa.Array) -> pa.Array:
    short = pc.utf8_slice_codeunits(pc.utf8_lower(names), 0, 3)
    return _two(pc.add(pc.index_in(short, pa.array(_MONTHS)), 1).cast(pa.utf8()))
