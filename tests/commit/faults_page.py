"""The fault matrix: the requests and flushes that fail in the tests of storage faults, with their numbers.

Run as a program, it writes the reference page of the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.commit.graphs import NODES, Operation


@dataclass(frozen=True, slots=True)
class FlushWrite:
    """A write. The tests fail each of its flushes once."""

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
    zip(map(str, FLUSHES), [(13, 11), (20, 18), (13, 11), (21, 19), (40, 18)], strict=True)
)
"""For each write: the number of flushes that fail in turn, and how often recovery has to undo the write."""

_ALWAYS = {"lease, write": 2, "manifest version, write": 1, "sidecar, write": 1, "sidecar, remove": 1}
_MERGE = {"work record, write": 1, "work record, remove": 1, "ancestors, write": 1}
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
"""The number of modifying requests of each kind in a write. The tests lose the response of each in turn."""

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "fault-matrix.md"


ARRIVALS = 4
"""Number of moments at which a late request takes effect.

After the writer failed, after recovery, after the next write, and after cleanup.
"""

_INTRODUCTION = """\
# Fault matrix

This page lists the storage faults that the tests inject into writes, with the number of cases.
`python -m tests.commit.faults_page` writes this page. The tests that are named below check that the numbers are right.

## Lost responses

A write sends several requests that modify the store. In each case, the writer gets no response to one of these
requests. The request takes effect at once, never, or late: after the writer has failed, after another writer has
recovered the graph, after the next write, or after a cleanup. In some cases the writer sends the request again with
success, and the first request takes effect after that. Then the tests check that

- every acknowledged write is visible exactly once, and no refused write is visible;
- a write with an unknown outcome is visible completely or not at all, and this does not change later;
- every table is at its version in the manifest, and no sidecar is left;
- the next write and the next cleanup succeed.

For S3, a proxy in front of the server drops the responses, so the tests include the requests that Lance sends. On disk,
the calls themselves take effect and then fail. These are the calls that write or remove a lease, a sidecar, a checksum
record, a work record or the ancestor file of a merge. The calls that publish a version or a fork of a Lance table fail
in the same way. `tests/commit/test_lost_answers.py` runs some of the cases in every test run; `make soak` runs all of
them.

In the tables, each row is a write. The numbers are its requests of each kind, all its requests, and the cases.
"""

_FLUSHES = """
## Failed flushes

In each case, one `fsync` of a write fails. The write flushes data, deletion, index and version files, the sidecar, the
manifest, references, and the directories above them. After a failed flush the write is refused, and nothing of it is
visible. If its sidecar exists, the sidecar is marked `rollback_only` and recovery undoes the write. Before the sidecar
exists, there is nothing to undo. At the end of a write, its sidecar is removed; a failed flush of this removal does no
harm. `tests/commit/test_failed_flush.py` tests this table.

| write | tables | branch | failed flushes | writes undone by recovery |
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
