"""Bar and line charts of two columns of a result."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.read.result.picture import COLORS, TEXT_WIDTH, Picture, label, line, number, svg, text_content
from omnigraph.read.result.text_table import grouped, is_number, rounded, text_column

KINDS = ("bar", "line")

MOST_BARS = 50
"""Bars of a chart. Later rows are not drawn, and the chart says so."""

_WIDTH, _HEIGHT = 640, 320
_TOP, _BOTTOM, _RIGHT = 16, 44, 20
_BAR = 22
_DAY = 86_400
_BUCKETS = _WIDTH
"""A line with more points is reduced to the smallest and the largest value of each of so many parts."""

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def chart(table: pa.Table, x: str | None, y: str | None, kind: str | None) -> Picture:
    """Draw a chart. `Result.chart` describes the arguments.

    Raises:
        InputError: a column does not exist or does not fit, or there is no such kind of chart.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"'{cut(kind)}' is not a kind of chart", hint="use bar or line")
    x, y = _chosen(table, x, y)
    values, across = table[y], table[x]
    if not is_number(values.type):
        raise InputError(f"column '{cut(y)}' has no numbers", hint="y is a column of numbers")
    if kind is None:
        kind = "line" if _is_ordered(across.type) else "bar"
    if kind == "line" and not _is_ordered(across.type):
        raise InputError(
            f"column '{cut(x)}' has no numbers, dates or times, so its values have no place on a line", hint="use bar"
        )
    return _lines(across, values, x, y) if kind == "line" else _bars(across, values, x, y)


def _chosen(table: pa.Table, x: str | None, y: str | None) -> tuple[str, str]:
    names = table.column_names
    for name in (x, y):
        if name is not None and name not in names:
            raise InputError(f"there is no column '{cut(name)}'", hint=did_you_mean(name, names))
    if len(names) < 2:
        raise InputError("a chart needs two columns", hint="return a name or a time, and a number")
    if x is None:
        x = next(name for name in names if name != y)
    if y is None:
        numbers = [field.name for field in table.schema if field.name != x and is_number(field.type)]
        if not numbers:
            raise InputError(f"the result has no column of numbers beside '{cut(x)}'", hint="return a number")
        y = numbers[0]
    return x, y


def _is_ordered(kind: pa.DataType) -> bool:
    return is_number(kind) or bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _floats(column: pa.ChunkedArray) -> Floats:
    """Values as floats; null and infinite values are NaN. Dates and times are seconds since 1970."""
    kind = column.type
    if pa.types.is_date(kind):
        column = pc.multiply(column.cast(pa.int32()).cast(pa.float64()), float(_DAY))
    elif pa.types.is_timestamp(kind):
        column = pc.divide(column.cast(pa.timestamp("ms", kind.tz)).cast(pa.int64()).cast(pa.float64()), 1000.0)
    found = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
    return np.where(np.isfinite(found), found, np.nan)


# ---- bars


def _bars(across: pa.ChunkedArray, values: pa.ChunkedArray, x: str, y: str) -> Picture:
    left_out = max(0, len(values) - MOST_BARS)
    across, values = across.slice(0, MOST_BARS), values.slice(0, MOST_BARS)
    names = ["null" if name is None else name for name in text_column(x, across, 200).cells]
    shown = ["null" if text is None else text for text in text_column(y, values, 200).cells]
    heights = np.nan_to_num(_floats(values))
    low, high = min(0.0, float(heights.min(initial=0))), max(0.0, float(heights.max(initial=0)))
    scale_of = high - low or 1.0
    left = 16 + TEXT_WIDTH * min(30, max(map(len, names), default=0))
    room = _WIDTH - left - _RIGHT - TEXT_WIDTH * max(map(len, shown), default=0) - 8
    zero = left + room * (0 - low) / scale_of
    parts = [label(left, _TOP, y), label(left - 8, _TOP, x, anchor="end")]
    for i, (name, text) in enumerate(zip(names, shown, strict=True)):
        top = _TOP + 10 + i * _BAR
        length = room * abs(heights[i]) / scale_of
        start = zero if heights[i] >= 0 else zero - length
        parts.append(label(left - 8, top + 14, name, anchor="end"))
        parts.append(
            f'<rect x="{number(start)}" y="{number(top + 2)}" width="{number(length)}" height="{_BAR - 6}" '
            f'fill="{COLORS[0]}"><title>{text_content(f"{name}: {text}")}</title></rect>'
        )
        parts.append(label(max(start + length, zero) + 6, top + 14, text))
    bottom = _TOP + 10 + len(names) * _BAR
    parts.append(line(zero, _TOP + 8, zero, bottom, extra=' stroke-opacity="0.5"'))
    if left_out:
        parts.append(label(left, bottom + 16, f"… {left_out:,} more", extra=' fill-opacity="0.7"'))
    return svg(_WIDTH, bottom + (24 if left_out else 8), f"{y} by {x}", *parts)


# ---- lines


def _lines(across: pa.ChunkedArray, values: pa.ChunkedArray, x: str, y: str) -> Picture:
    xs, ys = _floats(across), _floats(values)
    known = ~(np.isnan(xs) | np.isnan(ys))
    xs, ys = xs[known], ys[known]
    order = np.argsort(xs, kind="stable")
    xs, ys = _reduced(xs[order], ys[order])
    if len(xs) == 0:
        return svg(_WIDTH, 40, f"{y} by {x}", label(16, 24, f"no values of {y} by {x}"))
    y_ticks, x_ticks = ticks(float(ys.min()), float(ys.max())), ticks(float(xs.min()), float(xs.max()))
    y_texts = [text or "" for text in rounded(y_ticks)]
    x_texts = _across_texts(x_ticks, across.type)
    left = 16 + TEXT_WIDTH * max(map(len, y_texts))
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    low, high = min(y_ticks[0], float(ys.min())), max(y_ticks[-1], float(ys.max()))
    first, last = float(xs.min()), float(xs.max())

    def place_x(value: float | Floats) -> Floats:
        return np.asarray(left + (right - left) * (value - first) / (last - first or 1.0))

    def place_y(value: float | Floats) -> Floats:
        return np.asarray(bottom - (bottom - _TOP - 12) * (value - low) / (high - low or 1.0))

    parts = [label(left, _TOP - 2, y), label(right, _HEIGHT - 6, x, anchor="end")]
    for tick, text in zip(y_ticks, y_texts, strict=True):
        at = float(place_y(tick))
        parts += [
            line(left, at, right, at, extra=' stroke-opacity="0.15"'),
            label(left - 6, at + 4, text, anchor="end"),
        ]
    for tick, text in zip(x_ticks, x_texts, strict=True):
        if first <= tick <= last:
            at = float(place_x(tick))
            parts += [line(at, bottom, at, bottom + 4), label(at, bottom + 18, text, anchor="middle")]
    parts.append(line(left, bottom, right, bottom))
    points = " ".join(f"{number(px)},{number(py)}" for px, py in zip(place_x(xs), place_y(ys), strict=True))
    if len(xs) == 1:
        px, py = points.split(",")
        parts.append(f'<circle cx="{px}" cy="{py}" r="3" fill="{COLORS[0]}"/>')
    else:
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[0]}" stroke-width="1.5"/>')
    return svg(_WIDTH, _HEIGHT, f"{y} by {x}", *parts)


def _reduced(xs: Floats, ys: Floats) -> tuple[Floats, Floats]:
    """Of a line with many points, the smallest and the largest value of each part. `xs` is sorted."""
    if len(xs) <= 4 * _BUCKETS:
        return xs, ys
    bucket = np.minimum(((xs - xs[0]) / ((xs[-1] - xs[0]) or 1.0) * _BUCKETS).astype(np.int64), _BUCKETS - 1)
    by_value = np.lexsort((ys, bucket))
    of_bucket = bucket[by_value]
    smallest = np.flatnonzero(np.r_[True, of_bucket[1:] != of_bucket[:-1]])
    largest = np.r_[smallest[1:] - 1, len(by_value) - 1]
    kept = np.unique(by_value[np.r_[smallest, largest]])
    return xs[kept], ys[kept]


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two values.

    >>> ticks(0, 10), ticks(0.13, 0.31)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [0.15, 0.2, 0.25, 0.3])
    """
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= count)
    start, end = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(start, end + 1)]


def _across_texts(places: list[float], kind: pa.DataType) -> list[str]:
    """The texts of the horizontal axis."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        span = places[-1] - places[0]
        form = "%m-%d %H:%M" if span >= 300 else "%H:%M:%S"
        if span >= 5 * _DAY or pa.types.is_date(kind):
            form = "%Y-%m-%d"
        return [f"{datetime.fromtimestamp(place, UTC):{form}}" for place in places]
    if pa.types.is_integer(kind):
        texts = grouped([int(place) for place in places])
        return [(text or "") if place.is_integer() else "" for place, text in zip(places, texts, strict=True)]
    return [text or "" for text in rounded(places)]
