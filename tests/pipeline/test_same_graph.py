"""A load gives the same graph, or the same errors in the same order, in process and in partitions on Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.in_process import InProcess
from tests.pipeline.worlds import Rows, graph_at, outcome, rows, write
from tests.sampling import every_nth

from omnigraph.engine.engines import SparkOptions
from omnigraph.graph import Graph
from omnigraph.pipeline.spark.session import Session
from omnigraph.write.receipt import LoadMode, LoadReceipt

Change = Callable[[Rows], None]


def _as_it_is(content: Rows) -> None:
    pass


def _bad_values(content: Rows) -> None:
    content["Person"][40]["age"] = "old"
    content["Person"][3]["nme"] = "x"
    content["Knows"][100]["to"] = 7
    content["Note"][20]["text"] = None


def _broken_rules(content: Rows) -> None:
    content["Person"][41]["age"] = 121
    content["Note"][4]["level"] = "middling"
    content["Note"][5] |= {"text": "text of n6", "size": 6}
    content["Person"][50]["email"] = content["Person"][51]["email"] = "same@x.org"
    content["Knows"][7]["to"] = "nobody"
    content["Knows"][8]["from"] = "nobody else"
    content["Wrote"][2]["to"] = "n-1"
    content["Knows"] += [{"from": "person 100", "to": "person 101"} for _ in range(5)]


def _twins(content: Rows) -> None:
    content["Person"].append({"name": "person 100"})
    content["Person"].append({"name": "person 130", "age": 130})
    content["Person"].append({"name": "person 100"})


def _same_ids(content: Rows) -> None:
    content["Note"].append({"id": "n101", "text": "again", "size": 900})
    content["Note"].append({"id": "n101", "text": "and again", "size": 901})


def _wrong_replaced(content: Rows) -> None:
    """Wrong values in records that later ones replace, and other violations."""
    content["Note"][7]["level"] = content["Note"][30]["level"] = "middling"
    content["Note"] += [{**content["Note"][i], "level": level} for i, level in ((7, "lowest"), (9, "high"), (7, "low"))]
    content["Knows"][8]["from"] = "nobody"


def _many_problems(content: Rows) -> None:
    for each in content["Knows"]:
        each["weight"] = "heavy"


def _many_violations(content: Rows) -> None:
    for each in content["Knows"]:
        each["to"] = "nobody"


def _overlapping(content: Rows) -> None:
    """Entities that exist: they are replaced, or refused."""
    content["Person"] += rows(5, 20, 1, first=10)["Person"]
    content["Note"] += [{"id": f"n{i}", "text": f"another {i}", "size": 5000 + i} for i in range(5, 10)]


CHANGES: list[Change] = [
    _as_it_is,
    _bad_values,
    _broken_rules,
    _twins,
    _same_ids,
    _many_problems,
    _many_violations,
    _overlapping,
    _wrong_replaced,
]
FORMATS = ["ndjson", "lines", "csv", "parquet", "arrow", "tables", "records"]


PARTS = (1, 2, 7)


MODES = [mode.value for mode in LoadMode]


def _name(value: object) -> str:
    return getattr(value, "__name__", str(value)).strip("_")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("change", CHANGES, ids=_name)
@pytest.mark.parametrize("parts", every_nth(PARTS, 2))
def test_a_partitioned_load_gives_the_same_result(tmp_path: Path, mode: str, change: Change, parts: int) -> None:
    _compare(InProcess(), tmp_path, mode, change, "ndjson", parts)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("change", [_as_it_is, _broken_rules, _overlapping], ids=_name)
@pytest.mark.parametrize("format", every_nth(FORMATS[1:], 2))
def test_a_partitioned_load_of_every_format_gives_the_same_result(
    tmp_path: Path, mode: str, change: Change, format: str
) -> None:
    _compare(InProcess(), tmp_path, mode, change, format, PARTS[len(mode + format) % 3])


@pytest.mark.parametrize("change", CHANGES, ids=_name)
@pytest.mark.parametrize("parts", PARTS)
def test_a_merge_by_tasks_gives_the_same_result(tmp_path: Path, change: Change, parts: int) -> None:
    _compare(InProcess(), tmp_path, "merge", change, "ndjson", parts, merge_threshold=0)


def _on_spark() -> list[tuple[str, Change, str, int]]:
    """Every change, every format and every mode; the case number decides the rest."""
    changes = [(MODES[i % 3], change, FORMATS[i % 2], PARTS[i % 3]) for i, change in enumerate(CHANGES)]
    return changes + [(MODES[i % 3], _as_it_is, format, PARTS[(i + 1) % 3]) for i, format in enumerate(FORMATS[2:])]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "change", "format", "parts"),
    every_nth(_on_spark(), 2),
    ids=_name,
)
def test_a_load_on_spark_gives_the_same_result(
    session: Session, tmp_path: Path, mode: str, change: Change, format: str, parts: int
) -> None:
    _compare(session, tmp_path, mode, change, format, parts)


@pytest.mark.spark
@pytest.mark.slow
def test_a_merge_by_tasks_on_spark_gives_the_same_result(session: Session, tmp_path: Path) -> None:
    _compare(session, tmp_path, "merge", _overlapping, "ndjson", 7, merge_threshold=0)


def _compare(
    session: Session,
    place: Path,
    mode: str,
    change: Change,
    format: str,
    parts: int,
    merge_threshold: int | None = None,
) -> None:
    content = rows(3, first=100)
    change(content)
    if format not in ("ndjson", "lines", "records"):
        content = _typed(content)
    source = write(place / "input", content, format)
    here, there = graph_at(place / "here"), graph_at(place / "there")
    expected = outcome(here, lambda: here.load(source, mode=mode))
    found = outcome(there, lambda: on_spark(there, source, mode, session, parts, merge_threshold))
    assert found.said == expected.said
    assert found.content == expected.content
    assert found.commits == expected.commits
    assert there.verify().ok
    assert not (place / "there" / "__staging").exists()


def _typed(content: Rows) -> Rows:
    """Rows that Arrow can represent: each column has one type."""
    for row in content["Knows"]:
        row["to"] = str(row["to"])
    for row in content["Person"]:
        row.pop("nme", None)
        row["age"] = row.get("age") if isinstance(row.get("age"), int) else None
    return content


def on_spark(
    graph: Graph,
    source: Any,
    mode: str,
    session: Session,
    parts: int,
    merge_threshold: int | None = None,
    **said: Any,
) -> LoadReceipt:
    """Load in about this many partitions, and compare a few rows at a time."""
    options = SparkOptions(
        session,
        split_bytes=-(-_size(source) // parts),
        part_rows=10_000 if parts == 1 else 60,
        merge_threshold=merge_threshold,
    )
    return graph.load(source, mode=mode, engine="spark", spark=options, **said)


def _size(source: Any) -> int:
    if isinstance(source, str):
        return sum(file.stat().st_size for file in Path(source).iterdir())
    if isinstance(source, dict):
        return sum(table.nbytes for table in source.values())
    return 1_000
