"""Violations of constraints: collect them, and describe each in a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.errors import ConstraintError, Violation, cut, shown
from omnigraph.errors.write import kind_of
from omnigraph.lang.schema.catalog import Cardinality
from omnigraph.write.rules.constraints import ROW, ValueRule

SHOWN = 100

Describe = Callable[[dict[str, Any]], Violation]
"""Converts a row that breaks a constraint to a violation with a message."""


class Violations:
    """Collected violations. All are counted; the first hundred are kept with their messages."""

    def __init__(self) -> None:
        self.first: list[Violation] = []
        self.total = 0
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, rows: pa.Table, describe: Describe, total: int | None = None) -> None:
        """Add rows that break a constraint. `total` is the number of such rows, if `rows` has only the first ones."""
        count = rows.num_rows if total is None else total
        self.total += count
        for row in rows.slice(0, 1).to_pylist():
            kind = kind_of(describe(row))
            self._counts[kind] = self._counts.get(kind, 0) + count
        self.first += [describe(row) for row in rows.slice(0, SHOWN - len(self.first)).to_pylist()]

    def refuse(self) -> None:
        """Raise the collected violations.

        Raises:
            ConstraintError: there are violations.
        """
        if self.total:
            raise ConstraintError(tuple(self.first), self.total, counts=self._counts)


# Messages


def unique_subject(owner: str, fields: tuple[str, ...]) -> str:
    return f"{owner}.{fields[0]}" if len(fields) == 1 else f"{owner}.({', '.join(fields)})"


def described(owner: str, row: Mapping[str, Any]) -> str:
    """A description of a new entity. It is used in messages in place of the generated id."""
    return f"from {shown(row['src'])} to {shown(row['dst'])}" if "src" in row else f"a new {owner}"


def describe_value(owner: str, rule: ValueRule, *, new: bool = False) -> Describe:
    subject = f"{owner}.{rule.property}"
    return lambda row: Violation(
        "value",
        subject,
        row["id"],
        f"{shown(row[rule.property])} {rule.reason}",
        described=described(owner, row) if new else "",
        row=row.get(ROW),
    )


def describe_missing(subject: str) -> Describe:
    return lambda row: Violation("required", subject, row["id"], "the property is required")


def describe_duplicate_key(subject: str) -> Describe:
    return lambda row: Violation("unique", subject, row["id"], "two records have this key")


def describe_unique(subject: str) -> Describe:
    def describe(row: dict[str, Any]) -> Violation:
        values = [shown(value) for value in row["shared"].values()]
        held = values[0] if len(values) == 1 else f"({', '.join(values)})"
        return Violation("unique", subject, row["id"], f"has {held}, and so has '{cut(row['other'])}'", row["other"])

    return describe


def describe_endpoint(edge: str, end: str, node: str, *, new: bool = False) -> Describe:
    return lambda row: Violation(
        "endpoint",
        f"{edge}.{end}",
        row["id"],
        f"{end} {shown(row[end])} not found in {node}",
        described=described(edge, row) if new else "",
    )


def describe_cardinality(edge: str, end: str, card: Cardinality) -> Describe:
    subject = f"{edge} {'@card' if end == 'src' else '@card_in'}"
    bound = f"{card.min}..{'' if card.max is None else card.max}"
    return lambda row: Violation("cardinality", subject, row["node"], f"has {row['edges']} edges, allowed are {bound}")
