"""The injected faults of the storage tests, and the documentation page that lists them.

Run as a program, this module writes the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commit.graphs import NODES, Operation


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

FLUSHED: dict[str, tuple[int, int]] = dict(
    zip(map(str, FLUSHES), [(16, 13), (23, 20), (16, 13), (24, 21), (46, 18)], strict=True)
)
"""The number of flushes of each write, each of which fails once, and how many of these failures undo the write."""

_ALWAYS = {"lease, write": 2, "manifest version, write": 1, "sidecar, write": 1, "sidecar, remove": 1}
_MERGE = {"record of work, write": 1, "record of work, remove": 1, "ancestors, write": 1}
_LANCE = {"manifest rows, write": 1, "manifest transaction, write": 1}


def _disk(tables: int, forks: int = 0) -> dict[str, int]:
    found = _ALWAYS | {"table version, write": tables, "checksums, write": 1}
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
        "merge of 2 tables": _disk(2) | _MERGE,
    },
    "s3": {
        "append to 1 table": _s3(1),
        "append to 2 tables": _s3(2),
        "upsert of 2 tables": _s3(2),
        "change of 2 tables": _s3(2, deletions=2),
        "append to 1 table, first on a branch": _s3(1, 1),
        "append to 3 tables, first on a branch": _s3(3, 3),
        "merge of 2 tables": _s3(2) | _MERGE | {"ancestors, remove": 1},
    },
}
"""The number of modifying requests of each kind that a write sends. Each loses its answer in turn."""

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "fault-matrix.md"


ARRIVALS = 4
"""When a late request arrives: after the writer gave up, after recovery, after the next write, or after cleanup."""

_INTRODUCTION = """\
# Fault matrix

What is made to fail while a graph is written, and how often. This page is written by
`python -m tests.commit.faults_page`; the tests that it names compare the counts with what they meet.

## Answers that are lost

Every request of a write that changes something loses its answer in turn. It took effect, or never does, or takes
effect late: when the writer has given up, after another handle has recovered the graph, after the next write, or after
a cleanup; and late although it was sent again, with success, in between. Afterwards: what was acknowledged is there,
once; what was refused is not; an unknown outcome is all or nothing, and stays what it was found to be; every table is
where the graph points; no sidecar is left; the next write and the next cleanup succeed.

In S3 a proxy in front of the server loses the answers, so Lance's own requests are among them. On disk the calls to the
store of control objects lose theirs, and so do the calls that make a version or a fork of Lance visible.
`tests/commit/test_lost_answers.py` tries some of the cases in every run; `make soak` tries all of them.
"""

_FLUSHES = """
## Flushes that fail

Every `fsync` of a write fails once, in turn: of data, deletion, index and version files, of the sidecar, of the
manifest, of references, and of the directories above them. The write is refused, and nothing of it is visible. If its
sidecar was there, it was marked `rollback_only` and undone; a flush that fails earlier has nothing to undo, and that of
the directory from which the sidecar is removed does no harm. `tests/commit/test_failed_flush.py` holds it.

| write | tables | branch | flushes that fail | undone |
|---|---|---|---|---|
"""


def page() -> str:
    lines = [_INTRODUCTION]
    for store, writes in REQUESTS.items():
        kinds = sorted({kind for found in writes.values() for kind in found})
        lines.append(f"### {'On disk' if store == 'disk' else 'In S3'}\n")
        lines.append(f"| write | {' | '.join(kinds)} | requests | cases |")
        lines.append("|---" * (len(kinds) + 3) + "|")
        total = 0
        for name, found in writes.items():
            requests = sum(found.values())
            cases = requests * (2 + 2 * ARRIVALS)
            total += cases
            lines.append(f"| {name} | {' | '.join(str(found.get(k, '')) for k in kinds)} | {requests} | {cases} |")
        lines.append(f"\n{total} cases.\n")
    text = "\n".join(lines).rstrip("\n") + "\n" + _FLUSHES
    for write in FLUSHES:
        failed, undone = FLUSHED[str(write)]
        text += f"| {write.operation.value} | {len(write.tables)} | {write.branch} | {failed} | {undone} |\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
