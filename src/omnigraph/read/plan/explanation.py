"""Explanations: the plan of a query with estimated row counts, and with actual row counts if the query was run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.read.budget.budget import Spending
from omnigraph.read.context.trace import Entry
from omnigraph.read.plan.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan of a query. `str` returns it as text.

    Attributes:
        query: the compiled query.
        branch: the branch that was read; None if the call named a snapshot.
        snapshot: the commit that was read, if the call named it; else None.
        steps: the operators, in order, with estimated row counts.
        statistics: statistics that the join order of each block was chosen from. Equal statistics give equal plans.
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

    @property
    def analyzed(self) -> bool:
        """Whether the query was run."""
        return self.spent is not None

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON object. It includes the IR of the query."""
        members: dict[str, Any] = {
            "query_name": self.query.name,
            "target": {"branch": self.branch, "snapshot": self.snapshot},
            "ir": ir.to_json(self.query),
            "steps": [step.to_json() for step in self.steps],
            "statistics": [known.to_json() for known in self.statistics],
        }
        if self.spent is not None and self.seconds is not None:
            members["analyzed"] = {
                "row_count": self.returned,
                "rows_looked_at": self.spent.rows,
                "peak_bytes": self.spent.peak,
                "bytes_read": self.spent.read,
                "requests": self.spent.requests,
                "milliseconds": round(self.seconds * 1000, 3),
            }
        return members

    def __str__(self) -> str:
        lines = [ir.render(self.query).rstrip(), "", *_aligned(list(_lines(self.steps, 0)), analyzed=self.analyzed)]
        if self.spent is not None and self.seconds is not None:
            lines += [
                "",
                f"{self.returned} rows in {self.seconds * 1000:.2f} ms; looked at {self.spent.rows} rows, "
                f"read {_size(self.spent.read)} in {self.spent.requests} requests, "
                f"held {_size(self.spent.peak)} at most",
            ]
        return "\n".join(lines)


def _lines(steps: Sequence[Entry], level: int) -> Iterator[tuple[str, Entry]]:
    for step in steps:
        access = f", by {' and '.join(step.edge_access)}" if step.edge_access else ""
        yield f"{'  ' * level}{step.action} {step.text}".rstrip() + access, step
        yield from _lines(step.steps, level + 1)


def _aligned(lines: Sequence[tuple[str, Entry]], *, analyzed: bool) -> list[str]:
    """The operators as the lines of a text table: arguments, estimated rows, and actual rows, times and bytes."""
    head = ["step", "estimate", "rows", *(["ms", "bytes", "read", "calls"] if analyzed else [])]
    table = [head]
    for text, entry in lines:
        row = [text, "" if entry.estimate is None else _about(entry.estimate), _known(entry.rows)]
        if analyzed:
            row += ["" if entry.seconds is None else f"{entry.seconds * 1000:.2f}", _known(entry.size)]
            row += [str(entry.read), str(entry.calls)]
        table.append(row)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in table
    ]


def _about(rows: float) -> str:
    return f"{rows:.0f}" if rows >= 10 else f"{rows:.2g}"


def _known(number: int | None) -> str:
    return "" if number is None else str(number)


def _size(size: int) -> str:
    return f"{size} bytes" if size < 10_000 else f"{size / (1 << 20):.1f} MiB"
