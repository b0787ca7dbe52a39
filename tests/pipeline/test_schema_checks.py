"""The checks of a schema change find the same rows in this process, with little memory, and in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.in_process import InProcess

import omnigraph
from omnigraph.engine.engines import Choice, SparkOptions
from omnigraph.errors import SchemaDataError
from omnigraph.graph import Graph
from omnigraph.pipeline.spark.session import Session

COUNT = 600
SCHEMA = """
node Person { name: String @key  mail: String?  team: String?  age: I32?  level: enum(low, mid, high)? }
edge Knows: Person -> Person
"""
PEOPLE: list[dict[str, Any]] = [
    {
        "name": f"p{i:03d}",
        "mail": None if i % 4 == 0 else f"m{i % 450}",
        "team": "same",
        "age": i - 100,
        "level": ("low", "mid", "high")[i % 3],
    }
    for i in range(COUNT)
]
KNOWS = [(f"p{i:03d}", f"p{(i * i) % 50:03d}") for i in range(400)]


def _holders(fields: tuple[str, ...]) -> dict[tuple[Any, ...], list[str]]:
    found: dict[tuple[Any, ...], list[str]] = {}
    for one in PEOPLE:
        values = tuple(one[name] for name in fields)
        if None not in values:
            found.setdefault(values, []).append(one["name"])
    return {values: sorted(names) for values, names in found.items() if len(names) > 1}


def _in_degree(name: str) -> int:
    return sum(to == name for _, to in KNOWS)


@dataclass(frozen=True)
class Check:
    """A stricter schema, and the ids that its check names, in order. They are computed without the engine."""

    old: str
    new: str
    expected: Callable[[], list[str]]

    @property
    def schema(self) -> str:
        return SCHEMA.replace(self.old, self.new)


def _greatest(fields: tuple[str, ...]) -> list[str]:
    return [names[-1] for names in sorted(_holders(fields).values(), key=lambda names: names[0])]


CHECKS: Mapping[str, Check] = {
    "required": Check("mail: String?", "mail: String", lambda: [p["name"] for p in PEOPLE if p["mail"] is None]),
    "unique": Check("mail: String?", "mail: String? @unique", lambda: _greatest(("mail",))),
    "one value": Check("team: String?", "team: String? @unique", lambda: _greatest(("team",))),
    "tuple": Check("level: ", "@unique(team, level)  level: ", lambda: _greatest(("level", "team"))),
    "range": Check(
        "level: ", "@range(age, 0..300)  level: ", lambda: [p["name"] for p in PEOPLE if not 0 <= p["age"] <= 300]
    ),
    "enum": Check("mid, high", "mid", lambda: [p["name"] for p in PEOPLE if p["level"] == "high"]),
    "card": Check(
        "Knows: Person -> Person", "Knows: Person -> Person @card(1..)", lambda: [p["name"] for p in PEOPLE[400:]]
    ),
    "card_in": Check(
        "Knows: Person -> Person",
        "Knows: Person -> Person @card_in(0..8)",
        lambda: [p["name"] for p in PEOPLE if _in_degree(p["name"]) > 8],
    ),
}


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: [row[name] for row in rows] for name in rows[0]})


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with omnigraph.init(tmp_path_factory.mktemp("checks") / "graph", SCHEMA) as made:
        made.load({"Person": _table(PEOPLE[:400])}, mode="append")
        made.load({"Person": _table(PEOPLE[400:])}, mode="append")
        made.load({"Knows": pa.table({"from": [a for a, _ in KNOWS], "to": [b for _, b in KNOWS]})}, mode="append")
        yield made


def _refused(graph: Graph, check: Check, **options: Any) -> SchemaDataError:
    with pytest.raises(SchemaDataError) as refused:
        graph.schema.apply(check.schema, **options)
    return refused.value


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_finds_the_same_rows_on_every_engine(graph: Graph, name: str) -> None:
    check = CHECKS[name]
    expected = check.expected()
    local = _refused(graph, check, engine="local")
    assert local.total == len(expected)
    assert [one.entity_id for one in local.violations] == expected[:100]
    small = _refused(graph, check, engine="local", memory_budget="4 KiB")
    spark = _refused(graph, check, engine="spark", spark=SparkOptions(InProcess(), tasks=3))
    for other in (small, spark):
        assert (other.total, other.violations) == (local.total, local.violations)


@pytest.mark.spark
@pytest.mark.slow
def test_checks_on_spark_find_the_same_rows(graph: Graph, session: Session) -> None:
    for name in ("unique", "range", "card_in"):
        check = CHECKS[name]
        spark = _refused(graph, check, engine="spark", spark=SparkOptions(session))
        assert [one.entity_id for one in spark.violations] == check.expected()[:100]


def test_a_check_that_succeeds_runs_in_tasks_and_the_receipt_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[str] = []
    real = InProcess.job

    def job(self: InProcess, what: str, monitor: Any = None) -> Any:
        jobs.append(what)
        return real(self, what, monitor)

    monkeypatch.setattr(InProcess, "job", job)
    options: Any = {"engine": "spark", "spark": SparkOptions(InProcess())}
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load({"Person": pa.table({"name": ["a", "b"], "mail": ["x", "y"]})}, mode="append")
        checked = SCHEMA.replace("mail: String?", "mail: String @unique")
        assert graph.schema.apply(checked, **options).engine == "spark"
        assert jobs == ["checking node:Person", "checking node:Person"]
        jobs.clear()
        chosen: list[Choice] = []
        renamed = checked.replace("team: String?", 'club: String? @rename_from("team")')
        done = graph.schema.apply(renamed, chosen=chosen.append, **options)
        assert (done.applied, done.engine, jobs) == (True, "local", [])
        assert (chosen[0].engine.value, chosen[0].why) == ("local", "only metadata changes")
