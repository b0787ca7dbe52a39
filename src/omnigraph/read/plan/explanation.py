"""Explanations: the plan of a query with estimated row counts, and with actual row counts if the query was run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Any

from omnigraph.amounts import counted
from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import Spending
from omnigraph.read.context.trace import Entry
from omnigraph.read.plan.statistics import Statistics

_NARROWEST = 30
"""Minimum width of the descriptions of steps."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan of a query. `str` returns it as text.

    Attributes:
        query: the compiled query.
        branch: the branch that was read; None if the call named a snapshot.
        snapshot: the commit that was read, if the call named it; else None.
        steps: the operators, in order, with estimated row counts.
        statistics: statistics that the join order of each block was chosen from. Equal statistics give equal plans.
        counts_bytes: whether the bytes and read requests are shown. They are not to an actor that sees a part of the
            graph: they depend on hidden rows.
        spent: budget usage, if the query was run.
        returned: number of rows of the result, if the query was run.
    """

    query: ir.Query
    branch: str | None
    snapshot: str | None
    steps: tuple[Entry, ...]
    spent: Spending | None = None
    seconds: float | None = None
    returned: int | None = None
    statistics: tuple[Statistics, ...] = ()
    counts_bytes: bool = True

    @property
    def analyzed(self) -> bool:
        """Whether the query was run."""
        return self.spent is not None

    def without_bytes(self) -> Explanation:
        """The explanation without bytes and read requests, which depend on hidden rows."""
        assert self.spent is not None
        for step in self.steps:
            step.forget_bytes()
        spent = Spending(self.spent.budget, rows=self.spent.rows)
        return replace(self, spent=spent, counts_bytes=False)

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON object. It includes the IR of the query."""
        members: dict[str, Any] = {
            "query_name": self.query.name,
            "target": {"branch": self.branch, "snapshot": self.snapshot},
            "ir": ir.to_json(self.query),
            "steps": [step.to_json(counts_bytes=self.counts_bytes) for step in self.steps],
            "statistics": [known.to_json() for known in self.statistics],
        }
        if self.spent is not None and self.seconds is not None:
            sizes = {
                "peak_bytes": self.spent.peak,
                "bytes_read": self.spent.read,
                "requests": self.spent.requests,
            }
            members["analyzed"] = {
                "row_count": self.returned,
                "rows_looked_at": self.spent.rows,
                **(sizes if self.counts_bytes else {}),
                "milliseconds": round(self.seconds * 1000, 3),
            }
        return members

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The plan as text. With a width, descriptions of steps continue on the next line if they do not fit."""
        steps = list(_lines(self.steps, 0))
        aligned = _aligned(steps, width, analyzed=self.analyzed, counts_bytes=self.counts_bytes)
        lines = [ir.render(self.query).rstrip(), "", *aligned]
        if self.spent is not None and self.seconds is not None:
            used = (
                f"{counted(self.returned or 0, 'row')} in {self.seconds * 1000:.2f} ms; looked at "
                f"{counted(self.spent.rows, 'row')}"
            )
            if self.counts_bytes:
                used += (
                    f", read {_size(self.spent.read)} in {counted(self.spent.requests, 'request')}, "
                    f"held {_size(self.spent.peak)} at most"
                )
            lines += ["", *([used] if width is None else wrap(used, width))]
        return "\n".join(lines)


def _lines(steps: Sequence[Entry], level: int) -> Iterator[tuple[str, Entry]]:
    for step in steps:
        access = f", by {' and '.join(step.edge_access)}" if step.edge_access else ""
        yield f"{'  ' * level}{step.action} {step.text}".rstrip() + access, step
        yield from _lines(step.steps, level + 1)


def _aligned(lines: Sequence[tuple[str, Entry]], width: int | None, *, analyzed: bool, counts_bytes: bool) -> list[str]:
    """The operators as the lines of a text table: arguments, estimated rows, and actual rows, times and bytes."""
    sizes = ["bytes", "read"] if counts_bytes else []
    head = ["step", "estimate", "rows", *(["ms", *sizes, "calls"] if analyzed else [])]
    table = [head]
    for text, entry in lines:
        row = [text, "" if entry.estimate is None else _about(entry.estimate), _known(entry.rows)]
        if analyzed:
            row += ["" if entry.seconds is None else f"{entry.seconds * 1000:.2f}"]
            row += [_known(entry.size), str(entry.read)] if counts_bytes else []
            row += [str(entry.calls)]
        table.append(row)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    if width is not None:
        widths[0] = max(_NARROWEST, min(widths[0], width - sum(widths[1:]) - 2 * len(widths[1:])))
    found = []
    for text, *numbers in table:
        first, *more = _wrapped(text, widths[0])
        cells = (number.rjust(w) for number, w in zip(numbers, widths[1:], strict=True))
        found += ["  ".join([first.ljust(widths[0]), *cells]).rstrip(), *more]
    return found


def _wrapped(text: str, width: int) -> list[str]:
    """The description of a step on lines of a width. All but the first have a deeper indent."""
    indent = " " * (len(text) - len(text.lstrip()))
    return wrap(text.lstrip(), width, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False)


def _about(rows: float) -> str:
    return f"{rows:.0f}" if rows >= 10 else f"{rows:.2g}"


def _known(number: int | None) -> str:
    return "" if number is None else str(number)


def _size(size: int) -> str:
    """An amount of memory for people.

    >>> _size(1), _size(48_000), _size(3 << 20)
    ('1 byte', '46.9 KiB', '3.0 MiB')
    """
    if size < 10_000:
        return counted(size, "byte")
    return f"{size / 1024:,.1f} KiB" if size < 1 << 20 else f"{size / (1 << 20):,.1f} MiB"
