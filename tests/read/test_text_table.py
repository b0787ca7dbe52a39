"""Tables for people fit the width, align numbers, and show no control characters."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from rich.cells import cell_len

from omnigraph.read.result.result import Result, for_people
from omnigraph.read.result.text_table import grouped, rounded, table_lines


def result(**columns: pa.Array) -> Result:
    return Result("q", "main", None, None, for_people(pa.table(columns)), None)


def test_a_printed_result_shows_its_rows() -> None:
    made = result(name=pa.array(["ann", None]), age=pa.array([41, 7]))
    assert str(made).splitlines() == ["name │ age", "─────┼────", "ann  │  41", "null │   7", "2 rows"]
    assert str(result(n=pa.array([1]))).endswith("\n1 row")
    assert repr(result(n=pa.array([1]))) == "<Result of q: 1 row of n>"


def test_a_printed_result_is_bounded() -> None:
    lines = str(result(n=pa.array(range(1_498)))).splitlines()
    assert len(lines) == 23
    assert lines[-1] == "… 1,478 more, 1,498 rows"


def test_a_printed_result_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    made = result(a=pa.array(["x" * 300]), b=pa.array(["y" * 300]))
    for width in (40, 80, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        assert max(map(cell_len, str(made).splitlines())) == width


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ([1999, 2024], ["1999", "2024"]),
        ([1999, 10_000], ["1,999", "10,000"]),
        ([-12_345, None], ["-12,345", None]),
        ([2**63 - 1], ["9,223,372,036,854,775,807"]),
    ],
)
def test_large_integers_have_separators_and_years_have_none(numbers: list[int | None], texts: list[str | None]) -> None:
    assert grouped(numbers) == texts


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        ([1.5, 20.25, 3.0], ["1.50", "20.25", "3.00"]),
        ([0.1 + 0.2], ["0.3"]),
        ([2 / 3, 100.0], ["0.667", "100.000"]),
        ([1e-12, 0.5], ["1e-12", "0.5"]),
        ([1.0, 2.0], ["1", "2"]),
        ([0.0, -0.0], ["0", "-0"]),
        ([1e20, 1.5], ["1e+20", "1.5"]),
        ([float("nan"), float("-inf"), None], ["NaN", "-Infinity", None]),
        ([12345.678], ["12,345.7"]),
        ([], []),
    ],
)
def test_floats_have_few_digits(numbers: list[float | None], texts: list[str | None]) -> None:
    assert rounded(numbers) == texts


def test_numbers_are_never_truncated_and_texts_are() -> None:
    made = pa.table({"text": ["a long text " * 10], "number": [123_456_789_012]})
    lines = table_lines(made, 30)
    assert lines[2].endswith("… │ 123,456,789,012")
    assert {cell_len(line) for line in lines} == {30}


def test_columns_that_do_not_fit_are_named() -> None:
    made = pa.table({f"column{i}": ["some text here"] for i in range(9)})
    lines = table_lines(made, 40)
    assert len(lines) == 4
    assert lines[3] == "… 6 more columns do not fit: column3, column4, column5, column6, column7, column8"
    assert table_lines(pa.table({"a": [10**15], "b": [10**15]}), 25)[3] == "… 1 more column does not fit: b"


@pytest.mark.parametrize("text", ["漢字かな", "👩‍👩‍👧", "é", "a\u0301", "한국어"])
def test_wide_and_combined_characters_are_aligned(text: str) -> None:
    lines = table_lines(pa.table({"t": [text, "x"], "n": [1, 2]}), 80)
    assert len({cell_len(line) for line in lines}) == 1


def test_control_characters_are_visible_and_keep_the_line() -> None:
    (_, _, row) = table_lines(pa.table({"t": ["a\nb\tc\x1b[31m\u202e\x00"]}), 80)
    assert row == "a\\nb\\tc\ufffd[31m\\u202e\ufffd"
    assert table_lines(pa.table({"na\nme": ["x"]}), 80)[0] == "na\\nme"


def test_colors_emphasize_the_header_and_dim_nulls() -> None:
    made = pa.table({"t": pa.array([None], pa.utf8())})
    plain, colored = table_lines(made, 80), table_lines(made, 80, color=True)
    assert colored == ["\x1b[1mt   \x1b[0m", "\x1b[2m────\x1b[0m", "\x1b[2mnull\x1b[0m"]
    assert plain == ["t", "────", "null"]


def test_times_are_short_if_they_have_no_milliseconds() -> None:
    moments = [dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC), None]
    whole = table_lines(pa.table({"at": pa.array(moments, pa.timestamp("ms", "UTC"))}), 80)
    assert whole[2:] == ["2024-01-02T03:04:05Z", "null"]
    exact = pa.array([dt.datetime(2024, 1, 2, 3, 4, 5, 7000, tzinfo=dt.UTC)], pa.timestamp("ms", "UTC"))
    assert table_lines(pa.table({"at": exact}), 80)[2] == "2024-01-02T03:04:05.007Z"


def test_a_long_text_is_cheap_to_truncate() -> None:
    (_, _, row) = table_lines(pa.table({"t": ["x" * 5_000_000]}), 80)
    assert row == "x" * 79 + "…"
