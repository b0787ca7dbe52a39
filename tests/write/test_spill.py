"""A load stays within its memory budget for any input size, and leaves no temporary file."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import InputError, ResourceLimitError, StorageError
from omnigraph.graph import Graph
from omnigraph.lang.schema import TypeKind, accept, compile_schema
from omnigraph.settings import FSYNC, LOAD_MEMORY
from omnigraph.write import load as load_module
from omnigraph.write.load import Load, LoadMode
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.chunking import chunks_of
from omnigraph.write.rows.raw_rows import Origin, RawRows
from omnigraph.write.spill import Spool, memory_budget

SCHEMA = """
node Person { name: String @key  bio: String?  mail: String? @unique }
node Note { text: String }
edge Knows: Person -> Person @card(0..3) { since: Date? }
"""

SMALL = 32 * 1024
"""A budget that a few hundred rows exceed many times."""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary directory, which must be empty afterwards."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


def tables(people: int = 600, batch: int = 50) -> dict[str, pa.Table]:
    """A graph in many small batches, so that rows are spilled repeatedly."""
    names = [f"p{i}" for i in range(people)]
    person = pa.table({"name": names, "bio": ["x" * (i % 300) for i in range(people)], "mail": names})
    edges = pa.table({"from": names, "to": names[1:] + names[:1], "since": ["2020-01-31"] * people})
    notes = pa.table({"id": [f"n{i % 400}" for i in range(people)], "text": [str(i) for i in range(people)]})
    parts = {"Person": person, "Knows": edges, "Note": notes}
    return {name: pa.Table.from_batches(table.to_batches(batch)) for name, table in parts.items()}


def content(graph: Graph) -> dict[str, list[tuple[str, ...]]]:
    """All content except generated ids."""
    view = graph.snapshot()
    found = {}
    for key in view.tables:
        rows = view.scan(key).to_pylist()
        found[key] = sorted(tuple(str(v) for k, v in row.items() if k != "id" or key != "edge:Knows") for row in rows)
    return found


@pytest.mark.parametrize("mode", ["merge", "append"])
def test_a_spilled_load_gives_the_same_graph(tmp_path: Path, scratch: Path, mode: str) -> None:
    given = tables()
    if mode == "append":
        given["Note"] = given["Note"].slice(0, 400)  # later ids are duplicates, and only in a merge the last one wins
    graphs = []
    for name, budget in (("small", SMALL), ("large", None)):
        with omnigraph.init(tmp_path / name, SCHEMA) as graph:
            graph.load(given, mode=mode, memory_budget=budget)
            graphs.append(content(graph))
            assert graph.verify().ok
    assert graphs[0] == graphs[1]
    assert len(graphs[0]["node:Note"]) == 400


def test_rows_beyond_the_budget_are_spilled(scratch: Path) -> None:
    accepted = accept(compile_schema(SCHEMA), "0" * 26)
    small, large = Load(accepted, LoadMode.MERGE, budget=SMALL), Load(accepted, LoadMode.MERGE)
    for load in (small, large):
        load.read(
            lambda _: (raw("Note", text=[str(i) * 500] * 30, id=[f"{i}-{k}" for k in range(30)]) for i in range(40))
        )
    assert large.spilled == 0
    assert small.spilled > 10 * SMALL
    assert small.changes()["node:Note"].rows.equals(large.changes()["node:Note"].rows)


def raw(name: str, **columns: Any) -> RawRows:
    arrays = {key: values if isinstance(values, pa.Array) else pa.array(values) for key, values in columns.items()}
    return RawRows(TypeKind.NODE, name, arrays, {}, Origin.consecutive(len(next(iter(arrays.values())))))


def test_spilled_rows_are_not_in_memory(scratch: Path) -> None:
    spool = Spool(1 << 20)
    before = pa.total_allocated_bytes()
    for i in range(64):
        spool.add("a", pa.table({"x": np.full(1 << 15, i)}))
    assert pa.total_allocated_bytes() - before < 2 << 20
    rows = spool.take("a")
    assert rows.num_rows == 64 << 15
    assert rows["x"].slice(5 << 15, 1)[0].as_py() == 5
    assert spool.keys == []


def test_the_largest_type_is_spilled_first(scratch: Path) -> None:
    spool = Spool(1000)
    spool.add("small", pa.table({"x": np.zeros(10)}))
    spool.add("large", pa.table({"x": np.zeros(200)}))
    assert spool.spilled == 1600
    assert spool.keys == ["large", "small"]


CHILD = """
import os, signal, sys
import pyarrow as pa
import omnigraph
graph = omnigraph.init(sys.argv[1], "node Note { text: String }")
def stop(told):
    if told.rows > 4000:
        os.kill(os.getpid(), signal.SIGKILL)
rows = pa.Table.from_batches(pa.table({"text": ["x" * 100] * 5000}).to_batches(100))
graph.load({"Note": rows}, mode="append", memory_budget=32 * 1024, progress=stop)
"""


@pytest.mark.slow
def test_a_killed_load_leaves_no_file(tmp_path: Path, scratch: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(scratch), FSYNC.name: "0"}
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path / "graph")], env=environment)
    assert done.returncode == -signal.SIGKILL


def test_a_full_disk_is_a_clear_error(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        before = graph.snapshot().commit
        with pytest.raises(StorageError, match="No space left") as caught:
            graph.load(tables(), mode="merge", memory_budget=SMALL)
        assert "TMPDIR" in str(caught.value.hint)
        assert graph.snapshot().commit == before


def test_a_check_beyond_the_budget_reports_its_size(tmp_path: Path, scratch: Path) -> None:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        with pytest.raises(ResourceLimitError, match="the ids of node:Note") as caught:
            graph.load(tables(), mode="append", memory_budget=4096)
        assert (caught.value.limit, caught.value.actual) == (4096, 600 * 16)
        assert "engine spark" in str(caught.value.hint)
        assert graph.snapshot().pin("node:Person").row_count == 0


def test_chunks_are_bounded_and_in_order() -> None:
    texts = ["x" * (i % 97) for i in range(1000)] + ["y" * 50_000]
    for kind in (pa.utf8(), pa.large_utf8(), pa.string_view()):
        column = pa.array(texts, kind)
        given = RawRows(TypeKind.NODE, "Note", {"text": column}, {"text": column.is_null()}, Origin.consecutive(1001))
        cut = list(chunks_of(given, 4096))
        assert len(cut) > 10
        assert [text for piece in cut for text in piece.columns["text"].to_pylist()] == texts
        assert [n for piece in cut for n in piece.origin.records.tolist()] == list(range(1, 1002))
        assert all(len(piece.absent["text"]) == len(piece.origin.records) for piece in cut)
        assert all(
            len(piece.origin.records) == 1 or len("".join(piece.columns["text"].to_pylist())) <= 4096 for piece in cut
        )


def test_dictionary_columns_count_with_their_decoded_size() -> None:
    column = pa.array(["x" * 1000, "y" * 1000] * 500).dictionary_encode()
    cut = list(chunks_of(RawRows(TypeKind.NODE, "Note", {"text": column}, {}, Origin.consecutive(1000)), 100_000))
    assert 10 <= len(cut) <= 20


def test_text_beyond_the_size_of_one_column_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of two GiB, scaled down by a million: no chunk may exceed it, for any source."""
    limit = 2048
    sizes: list[int] = []
    original = RowBuilder.build

    def guarded(self: Any, columns: Any, *more: Any) -> pa.Table:
        sizes.append(sum(len(text) for texts in columns.values() for text in texts.to_pylist()))
        return original(self, columns, *more)

    monkeypatch.setattr(load_module, "chunks_of", lambda rows: chunks_of(rows, limit))
    monkeypatch.setattr(RowBuilder, "build", guarded)
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        column = pa.array([str(i) * 20 for i in range(500)], pa.large_utf8())
        assert graph.load({"Note": pa.table({"text": column})}, mode="append").total == 500
        stored = graph.snapshot().scan("node:Note", columns=["text"])["text"].to_pylist()
    assert sorted(stored) == sorted(column.to_pylist())
    assert max(sizes) <= limit
    assert len(sizes) > 5


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        (None, {}, 1 << 30),
        (None, {LOAD_MEMORY.name: "2 GiB"}, 2 << 30),
        (4096, {LOAD_MEMORY.name: "2 GiB"}, 4096),
        ("512mib", {}, 512 << 20),
        ("1.5GiB", {}, 3 << 29),
    ],
)
def test_memory_budgets_are_parsed(given: int | str | None, environment: dict[str, str], expected: int) -> None:
    assert memory_budget(given, environment) == expected


@pytest.mark.parametrize("given", ["much", "-1", "0", "2 GB of it", ""])
def test_invalid_memory_budgets_are_refused(given: str) -> None:
    with pytest.raises(InputError, match="is not an amount"):
        memory_budget(given, {})
    with pytest.raises(InputError, match=f"^{LOAD_MEMORY.name}: '{re.escape(str(given))}' is not an amount"):
        memory_budget(None, {LOAD_MEMORY.name: str(given)})
