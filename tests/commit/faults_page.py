"""What is made to fail in tests of storage faults, and the page of the documentation that shows it.

Run as a program it writes the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commit.graphs import NODES

from omnigraph.commit.writer import Operation


@dataclass(frozen=True, slots=True)
class FlushWrite:
    """A write, each flush of which fails once."""

    operation: Operation
    tables: tuple[str, ...]
    branch: str = "main"

    def __str__(self) -> str:
        return f"{self.operation.value} {len(self.tables)} {self.branch}"

    @property
    def how(self) -> dict[str, Any]:
        return {"operation": self.operation, "branch": self.branch}


FLUSHES = [
    FlushWrite(Operation.APPEND, NODES[:1]),
    FlushWrite(Operation.UPSERT, NODES[:2]),
    FlushWrite(Operation.DELETE, NODES[:1]),
    FlushWrite(Operation.INDEX, NODES[:1]),
    FlushWrite(Operation.APPEND, NODES[:2], "dev"),
]

FLUSHED: dict[str, int] = {}
"""How many flushes each of these writes makes."""

_ALWAYS = {"lease, write": 2, "manifest version, write": 1, "sidecar, write": 1, "sidecar, remove": 1}
_LANCE = {"manifest rows, write": 1, "manifest transaction, write": 1}


def _disk(tables: int, forks: int = 0) -> dict[str, int]:
    found = _ALWAYS | {"table version, write": tables}
    return found | ({"fork reference, write": forks} if forks else {})


def _s3(tables: int, forks: int = 0, deletions: int = 0) -> dict[str, int]:
    found = _ALWAYS | _LANCE | {"data file, write": tables}
    found |= dict.fromkeys(("table transaction, write", "table version, write"), tables + forks)
    found |= {"fork reference, write": forks} if forks else {}
    return found | ({"deletion file, write": deletions} if deletions else {})


REQUESTS: dict[str, dict[str, dict[str, int]]] = {
    "disk": {
        "append to 1 table": _disk(1),
        "append to 2 tables": _disk(2),
        "upsert of 2 tables": _disk(2),
        "change of 2 tables": _disk(2),
        "append to 1 table, first on a branch": _disk(1, 1),
        "append to 3 tables, first on a branch": _disk(3, 3),
        "merge of 2 tables": _disk(2),
    },
    "s3": {
        "append to 1 table": _s3(1),
        "append to 2 tables": _s3(2),
        "upsert of 2 tables": _s3(2),
        "change of 2 tables": _s3(2, deletions=2),
        "append to 1 table, first on a branch": _s3(1, 1),
        "append to 3 tables, first on a branch": _s3(3, 3),
        "merge of 2 tables": _s3(2),
    },
}
"""How many requests of each kind a write makes that change something. Each loses its answer in turn."""

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "fault-matrix.md"


def page() -> str:
    return ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
