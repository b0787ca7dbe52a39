"""Sorting reads only the keys that decide the order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.read.budget import Budget

ROWS = 200


@pytest.mark.parametrize(
    "shape",
    [
        "return { $a.x as x } order { x desc, $a.text } limit 3",
        "return distinct { $a.x as x, $a.text as t } order { x desc, t } limit 3",
    ],
)
def test_texts_that_do_not_decide_the_order_need_no_memory(tmp_path: Path, shape: str) -> None:
    with omnigraph.init(tmp_path / "graph", "node A { name: String @key  x: I64  text: String }") as graph:
        texts = [f"{number} " * 30_000 for number in range(ROWS)]
        rows = {"name": [f"a{number}" for number in range(ROWS)], "x": list(range(ROWS)), "text": texts}
        graph.load({"A": pa.table(rows)}, mode="append")
        found = graph.query(f"query q() {{ match {{ $a: A }} {shape} }}", budget=Budget(memory=20_000_000)).to_pylist()
    assert [row["x"] for row in found] == [199, 198, 197]
