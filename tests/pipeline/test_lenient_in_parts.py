"""The lenient reader gives the same result in partitions as in one process: graph, counts and first locations."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.pipeline.in_process import InProcess
from tests.pipeline.test_same_graph import on_spark
from tests.pipeline.worlds import outcome

from omnigraph.graph import Graph, init
from omnigraph.pipeline.spark.session import Session

SCHEMA = """
node Day { day: Date @key  note: String? }
node Pair { a: String  b: I64  @key(a, b)  tags: [String]? }
node Free { text: String?  size: I32? }
edge Next: Day -> Day { weight: F64? }
edge Of: Free -> Pair
"""


def world(*, ambiguous: bool = False, wrong: bool = False) -> list[dict[str, Any]]:
    """Records with all cases that the lenient reader changes, in no order."""
    records: list[dict[str, Any]] = []
    for i in range(60):
        day = f"2024-{i % 12 + 1:02d}-{i // 12 + 1:02d}"
        records.append({"type": "Day", "data": {"id": day, "day": day, "note": i if i % 7 == 0 else "x", "hat": 1}})
        records.append({"type": "Pair", "data": {"id": f'["p{i}", {i}]', "a": f"p{i}", "b": i, "tags": ["t", None]}})
        records.append({"type": "Free", "data": {"id": f"f{i}", "size": "large" if i % 5 == 0 else i}, "extra": True})
        other = f"2024-{(i + 5) % 12 + 1:02d}-{i // 12 + 1:02d}"
        records.append({"edge": "Next", "from": day, "to": other, "data": {"weight": "heavy" if i % 9 == 0 else 1.5}})
        records.append({"edge": "Of", "from": f"f{i}", "to": f'["p{i}", {i}]' if i % 2 else f"p{i}", "data": {}})
        if i % 2 == 0:
            records[-4]["data"]["id"] = f"p{i}"
    if ambiguous:
        records.append({"type": "Pair", "data": {"id": "p4", "a": "p4", "b": 4000}})
        records.append({"type": "Pair", "data": {"id": "p8", "a": "p8", "b": 8000}})
    if wrong:
        records[50]["type"] = "Dya"
        records[55]["data"]["day"] = "2024-02-31"
        records.append({"type": "Day", "data": {}})
    random.Random(3).shuffle(records)
    return records


def write(directory: Path, records: list[dict[str, Any]], format: str) -> str:
    directory.mkdir()
    if format == "ndjson":
        (directory / "all.ndjson").write_text("\n".join(json.dumps(each) for each in records) + "\n\n")
    elif format == "files":
        for i in range(3):
            lines = "\n".join(json.dumps(each) for each in records[i::3])
            (directory / f"{i}.ndjson").write_text(lines)
    else:
        for name in ("Day", "Pair", "Free"):
            rows = [each["data"] for each in records if each.get("type") == name]
            for row in rows:
                if name == "Free":
                    row["size"] = str(row["size"])
                row["note"] = str(row.get("note"))
            table = pa.Table.from_pylist(rows)
            pa.parquet.write_table(table, directory / f"{name}.parquet", row_group_size=7)
        ends = [{"from": each["from"], "to": each["to"]} for each in records if each.get("edge") == "Next"]
        pa.parquet.write_table(pa.Table.from_pylist(ends), directory / "Next.parquet", row_group_size=7)
    return str(directory)


def graphs(place: Path) -> tuple[Graph, Graph]:
    return init(place / "here", SCHEMA), init(place / "there", SCHEMA)


CASES = {
    "changed": world(),
    "ambiguous": world(ambiguous=True),
    "wrong": world(wrong=True),
    "both": world(ambiguous=True, wrong=True),
}


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize(
    ("format", "case"),
    [
        *((format, case) for format in ("ndjson", "files") for case in CASES),
        ("parquet", "changed"),
        ("parquet", "ambiguous"),
    ],
)
def test_a_lenient_load_in_partitions_gives_the_same_result(tmp_path: Path, format: str, case: str, parts: int) -> None:
    _compare(InProcess(), tmp_path, format, case, parts)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("case", ["changed", "both"])
def test_a_lenient_load_on_spark_gives_the_same_result(session: Session, tmp_path: Path, case: str) -> None:
    _compare(session, tmp_path, "ndjson", case, 3)


def _compare(session: Session, place: Path, format: str, case: str, parts: int) -> None:
    source = write(place / "input", json.loads(json.dumps(CASES[case])), format)
    here, there = graphs(place)
    expected = outcome(here, lambda: here.load(source, mode="append", lenient=True))
    found = outcome(there, lambda: on_spark(there, source, "append", session, parts, lenient=True))
    assert found.said == expected.said
    assert found.content == expected.content
    if case == "changed":
        assert "rewritten_id" in found.said
        assert "rewritten_end" in found.said
        assert there.verify().ok
    assert ("stands for more than one entity" in found.said) == (case in ("ambiguous", "both"))
    assert ("there is no node type 'Dya'" in found.said) == (case in ("wrong", "both"))
    assert not (place / "there" / "__staging").exists()


def test_a_repeated_lenient_load_returns_the_first_commit(tmp_path: Path) -> None:
    source = write(tmp_path / "input", CASES["changed"], "ndjson")
    here, _ = graphs(tmp_path)
    first = here.load(source, mode="append", lenient=True, idempotency_key="k")
    again = on_spark(here, source, "append", InProcess(), 5, lenient=True, idempotency_key="k")
    assert first.commit is not None
    assert again.commit is not None
    assert first.commit.id == again.commit.id
