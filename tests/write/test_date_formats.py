"""Dates and times in the format of a mapping are read exactly, or reported."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.input.date_formats import DateFormat
from omnigraph.write.rows.values import Fault


class Heard:
    """Collects the reported problems."""

    def __init__(self) -> None:
        self.wrong: list[tuple[list[bool], str]] = []

    def __call__(self, wrong: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
        if any(wrong.to_pylist()):
            self.wrong.append((wrong.to_pylist(), message))


@pytest.mark.parametrize(
    ("format", "cell", "expected"),
    [
        ("%d.%m.%Y", "14.3.2026", "2026-03-14"),
        ("%Y%m%d", "20260314", "2026-03-14"),
        ("%m/%d/%y", "03/14/69", "1969-03-14"),
        ("%d %B %Y", "14 March 2026", "2026-03-14"),
        ("%d-%b-%Y %I:%M:%S %p", "14-MAR-2026 12:05:00 AM", "2026-03-14"),
        ("days", "2", "1970-01-03"),
        ("seconds", "172800", "1970-01-03"),
        ("milliseconds", "-1", "1969-12-31"),
    ],
)
def test_dates_are_read_in_the_given_format(format: str, cell: str, expected: str) -> None:
    said = DateFormat.parse(format)
    kind = ValueType(Scalar.DATE)
    heard = Heard()
    made = said.read(pa.array([cell, "", None]), kind, heard)
    assert (heard.wrong, [None if day is None else str(day) for day in made.to_pylist()]) == (
        [],
        [expected, None, None],
    )


def test_times_are_read_in_the_given_format() -> None:
    said = DateFormat.parse("%d.%m.%Y %H:%M:%S.%f %z")
    cells = pa.array(["01.01.1970 02:00:00.25 +0200", "01.01.1970 00:00:01.0 UTC"])
    made = said.read(cells, ValueType(Scalar.DATETIME), Heard())
    assert made.view(pa.int64()).to_pylist() == [250, 1000]


@pytest.mark.parametrize("cell", ["14/3/2026", "14.3.26", "2026-03-14", "31.2.2026", "14.13.2026", "x"])
def test_a_cell_in_another_format_is_reported(cell: str) -> None:
    heard = Heard()
    made = DateFormat.parse("%d.%m.%Y").read(pa.array(["1.1.2000", cell]), ValueType(Scalar.DATE), heard)
    assert ([wrong for wrong, _ in heard.wrong], made.to_pylist()[1]) == ([[False, True]], None)


@pytest.mark.parametrize(
    ("format", "reason"),
    [
        ("%d.%m", "needs the year exactly once"),
        ("%Y-%m-%d %q", "'%q' is not a known code"),
        ("%Y %Y-%m-%d", "'%Y' is used twice"),
        ("%Y-%m-%d %I:%M", "%I needs %p"),
        ("", "needs the year"),
        ("dd.mm.yyyy", "needs the year exactly once"),
        ("%Y-%m-%d %", "not a known code"),
    ],
)
def test_invalid_formats_are_refused(format: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        DateFormat.parse(format)
