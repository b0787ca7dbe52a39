"""After columns were added or dropped, a load that replaces a type stores each value in its own column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph

SCHEMA = "node Person { name: String @key  %s }"
BEFORE = "m: String?  y: String?  photo: Blob?"
ROW = {"a": "1", "m": "2", "n": "3", "y": "4", "z": "5"}
CHANGES = {
    "the first column is added": "a: String?  m: String?  y: String?  photo: Blob?",
    "columns are added between others": "m: String?  n: String?  y: String?  z: String?  photo: Blob?",
    "a column is dropped": "y: String?  photo: Blob?",
    "columns are added and dropped": "a: String?  n: String?  y: String?  photo: Blob?",
    "a column is renamed": 'z: String? @rename_from("m")  y: String?  photo: Blob?',
    "the blob is dropped": "a: String?  m: String?  y: String?",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("allow", ["drops", "data_loss"])
def test_an_overwrite_stores_each_value_in_its_column(tmp_path: Path, change: str, allow: str) -> None:
    with omnigraph.init(tmp_path / "g", SCHEMA % BEFORE) as graph:
        graph.load({"Person": [{"name": "old", "m": "x", "y": "y", "photo": b"old"}]}, mode="append")
        graph.schema.apply(SCHEMA % CHANGES[change], allow=allow)
        row: dict[str, Any] = {name: value for name, value in ROW.items() if f"{name}: " in CHANGES[change]}
        if "photo" in CHANGES[change]:
            row["photo"] = b"new"
        for mode in ("overwrite", "append", "overwrite"):
            given = {"name": f"{mode}-1", **row}
            graph.load({"Person": [given]}, mode=mode)
            expected = given | ({"photo": "base64:bmV3"} if "photo" in row else {})
            found = [json.loads(line)["data"] for line in b"".join(graph.export()).splitlines()]
            (stored,) = (one for one in found if one["name"] == given["name"])
            assert stored == {"id": given["name"]} | expected
        assert graph.verify().total == 0
