"""The digest of a load depends only on the rows of the input."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph
from omnigraph.embed import Embedder
from omnigraph.errors import BadRowsError, InputError
from omnigraph.graph import Graph
from omnigraph.lang.schema import TypeKind, accept, compile_schema
from omnigraph.settings import FSYNC
from omnigraph.write.request_digest import RowsDigest
from omnigraph.write.rows.chunking import chunks_of
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import Origin, RawRows

SCHEMA = """
node Thing {
    text: String?  flag: Bool?  whole: I64?  real: F64?  day: Date?  time: DateTime?
    words: [String]?  vec: Vector(2)?  data: Blob?
    mood: String? @default("calm")
    at: DateTime @default(now())
}
edge Next: Thing -> Thing
"""
ACCEPTED = accept(compile_schema(SCHEMA), "test")
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "id": (pa.utf8(), st.text(max_size=3)),
    "text": (pa.utf8(), st.text(max_size=5)),
    "flag": (pa.bool_(), st.booleans()),
    "whole": (pa.int64(), st.integers(-3, 3)),
    "real": (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    "day": (pa.date32(), st.dates()),
    "words": (pa.list_(pa.utf8()), st.lists(st.text(max_size=2), max_size=3)),
    "vec": (pa.list_(pa.float32(), 2), st.lists(st.floats(-2, 2, width=16), min_size=2, max_size=2)),
    "data": (pa.binary(), st.binary(max_size=3)),
    "mood": (pa.utf8(), st.sampled_from(["calm", "cross"])),
}


def digest(rows: list[dict[str, Any]], cuts: list[int], names: list[str] | None = None) -> str:
    """The digest of rows in several batches."""
    problems = Problems()
    made = RowsDigest(ACCEPTED, problems)
    places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, end in pairwise(places):
        part = rows[start:end]
        columns = {
            name: pa.array([row.get(name) for row in part], kind)
            for name, (kind, _) in COLUMNS.items()
            if (names is not None and name in names) or any(name in row for row in part)
        }
        absent = {"mood": pa.array(["mood" not in row for row in part], pa.bool_())} if "mood" in columns else {}
        made.take(RawRows(TypeKind.NODE, "Thing", columns, absent, Origin.consecutive(len(part), first=start + 1)))
    problems.check()
    return made.value()


ROWS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.none() | values for name, (_, values) in COLUMNS.items()}), max_size=8
)


@given(rows=ROWS, cuts=st.lists(st.integers(0, 8), max_size=3), names=st.lists(st.sampled_from(sorted(COLUMNS))))
def test_the_digest_does_not_depend_on_batch_boundaries(
    rows: list[dict[str, Any]], cuts: list[int], names: list[str]
) -> None:
    assert digest(rows, cuts, names) == digest(rows, [])


def plain(rows: list[dict[str, Any]]) -> str:
    """The meaning of rows: null is the same as omitted, except for properties with a default."""
    return repr([sorted((n, v) for n, v in row.items() if v is not None or n == "mood") for row in rows])


@given(one=ROWS, other=ROWS)
def test_different_rows_have_different_digests(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert (digest(one, []) == digest(other, [])) == (plain(one) == plain(other))


def test_chunks_of_rows_have_the_digest_of_all_rows() -> None:
    table = pa.table({"text": [f"text {i}" if i % 3 else None for i in range(100)]})
    raw = RawRows(TypeKind.NODE, "Thing", {"text": table["text"].combine_chunks()}, {}, Origin.consecutive(100))
    whole, cut = RowsDigest(ACCEPTED, Problems()), RowsDigest(ACCEPTED, Problems())
    whole.take(raw)
    parts = list(chunks_of(raw, 64))
    assert len(parts) > 4
    for part in parts:
        cut.take(part)
    assert whole.value() == cut.value() != cut.value("another mode")


# Repeated loads


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv(FSYNC.name, "0")
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        yield made


def test_the_same_rows_in_any_format_are_the_same_request(graph: Graph, tmp_path: Path) -> None:
    """Generated ids and the current time are not part of a request."""
    rows = [{"text": f"t{i}", "whole": i if i % 2 else None} for i in range(10)]
    lines = "".join(json.dumps({"type": "Thing", "data": row}) + "\n" for row in rows)
    (tmp_path / "rows.ndjson").write_text(lines)
    table = pa.Table.from_pylist(rows)
    pa.parquet.write_table(table, tmp_path / "Thing.parquet", row_group_size=3)
    first = graph.load({"Thing": rows}, mode="append", idempotency_key="k")
    assert first.total == 10
    again: list[Any] = [
        {"Thing": rows},
        {"Thing": table},
        {"Thing": iter(rows)},
        lines.encode(),
        io.StringIO(lines),
        tmp_path / "rows.ndjson",
        tmp_path / "Thing.parquet",
    ]
    for source in again:
        assert graph.load(source, mode="append", idempotency_key="k") == first
    assert graph.snapshot().pin("node:Thing").row_count == 10


def test_null_for_a_property_with_a_default_is_another_request(graph: Graph) -> None:
    graph.load({"Thing": [{"text": "x", "mood": None}]}, mode="append", idempotency_key="k")
    with pytest.raises(InputError, match="a load of other rows"):
        graph.load({"Thing": [{"text": "x"}]}, mode="append", idempotency_key="k")


def test_a_value_that_does_not_fit_is_not_taken_for_null(graph: Graph) -> None:
    graph.load({"Thing": [{"text": "x", "whole": None}]}, mode="append", idempotency_key="k")
    with pytest.raises(BadRowsError, match=r"Thing\.whole"):
        graph.load({"Thing": [{"text": "x", "whole": "many"}]}, mode="append", idempotency_key="k")


def test_a_lenient_load_is_recognised(graph: Graph) -> None:
    source = [{"type": "Thing", "data": {"whole": "7", "words": ["a", None], "hat": 1}}]
    first = graph.load(source, mode="append", lenient=True, idempotency_key="k")
    again = graph.load(source, mode="append", lenient=True, idempotency_key="k")
    assert again.commit == first.commit


class Counting:
    """An embedder that counts its calls."""

    name = "counting"

    def __init__(self) -> None:
        self.asked = 0

    def embed(self, texts: Any, dimension: int, *, purpose: object) -> Any:
        self.asked += 1
        return np.full((len(texts), dimension), float(self.asked), np.float32)


def test_a_repeated_load_computes_no_vectors(tmp_path: Path) -> None:
    schema = 'node Note { text: String  vec: Vector(4) @embed("text") }'
    counting = Counting()
    embedder: Embedder = counting
    with omnigraph.init(tmp_path / "graph", schema, embedder=embedder) as graph:
        source = {"Note": [{"text": "a"}, {"text": "b"}]}
        first = graph.load(source, mode="append", idempotency_key="k")
        assert graph.load(source, mode="append", idempotency_key="k") == first
        assert counting.asked == 1
