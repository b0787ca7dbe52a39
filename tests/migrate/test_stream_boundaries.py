"""The Spark stream goes on where the change feed goes on, for every kind of step of a schema change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.migrate.cases import CASES, Case
from tests.migrate.garden import SCHEMA

from omnigraph.changes.commit_page import EntityChange
from omnigraph.errors import InputError, SchemaBoundaryError
from omnigraph.graph import Graph
from omnigraph.lang.schema.migrate.steps import Step
from omnigraph.pipeline.source.source import OmnigraphSource
from omnigraph.pipeline.source.stream import StreamReader

TYPES = ("Plant", "Bed", "In")
STOPPING = ("add_property", "drop_property", "change_nullability", "widen_property", "drop_type")
"""The kinds of steps that change the columns of a type, or that drop a type with rows."""

SHOWN = ("code", "name", "state", "moods", "note", "label", "old", "former", "title", "kind", "size", "from", "to")
"""Columns whose values are the same in JSON and in Spark."""

Changes = list[tuple[str, str, dict[str, Any]]]


def one_per_kind() -> dict[str, Case]:
    """The first case with each kind of step, the opposite of a change of type, and the case with all of them."""
    known: set[str] = set()
    chosen: dict[str, Case] = {}
    for name, case in CASES.items():
        if not case.kinds or not known.issuperset(case.kinds) or name == "String to enum":
            chosen[name] = case
        known.update(case.kinds)
    return chosen


CHOSEN = one_per_kind()


def stream(graph: Graph, type_: str, **options: str) -> StreamReader:
    source = OmnigraphSource({"path": graph.uri, "type": type_, "changes": "true", **options})
    return source.streamReader(source.schema())


def streamed(reading: StreamReader, start: dict[str, str], renamed: Mapping[str, str]) -> Changes | None:
    """The changes after an offset; None if the stream stops with an error."""
    try:
        parts = reading.partitions(start, reading.latestOffset(start, ReadAllAvailable()))
    except InputError:
        return None
    rows = [row for part in parts for batch in reading.read(part) for row in batch.to_pylist()]
    return [(row["_change"], row["id"], shown({renamed.get(name, name): row[name] for name in row})) for row in rows]


def fed(changes: Iterable[EntityChange]) -> Changes:
    found = []
    for change in changes:
        image = change.before if change.op == "delete" else change.after
        assert image is not None
        found.append((change.op.value, change.id, shown(image["properties"] | image.get("endpoints", {}))))
    return found


def shown(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in SHOWN if values.get(name) is not None}


def of_type(step: Step) -> str:
    found = getattr(step, "type_name", None) or getattr(step, "name", "")
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize("case", CHOSEN.values(), ids=CHOSEN)
def test_the_stream_stops_where_the_feed_has_a_boundary(graph: Graph, case: Case) -> None:
    head = graph.snapshot()
    cursor = graph.changes.poll(start="now").cursor
    ids = {name: next(pin.id for key, pin in head.tables.items() if key.endswith(f":{name}")) for name in TYPES}
    starts = {name: {"commit": head.commit.id, "type": str(id_)} for name, id_ in ids.items()}
    running = {name: stream(graph, name) for name in TYPES}
    narrow = {name: stream(graph, name, columns="id") for name in TYPES}
    new = case.schema(SCHEMA)
    steps = graph.schema.plan(new).plan.steps
    assert graph.schema.apply(new).applied
    now = {pin.id: key.partition(":")[2] for key, pin in graph.snapshot().tables.items()}
    names = {name: now[id_] for name, id_ in ids.items() if id_ in now}
    if "Plant" in names:
        graph.mutate(f'query q() {{ delete {names["Plant"]} where id = "p05" }}')

    # The steps of the plan are the expected values.
    stopped = {of_type(step) for step in steps if step.kind in STOPPING}
    stopping = {name for name in TYPES if {name, names.get(name, name)} & stopped}
    try:
        page = graph.changes.poll(cursor=cursor, limit=8192)
    except SchemaBoundaryError:
        assert stopping
    else:
        assert not stopping
        assert page.caught_up
    for name in TYPES:
        found = streamed(running[name], starts[name], {})
        assert (found is None) is (name in stopping), name
        # A stream without properties stops only if its type is dropped.
        assert (streamed(narrow[name], starts[name], {}) is None) is (name not in names), name
        if stopping:
            continue
        wanted = fed(c for block in page.blocks for c in block.changes if c.type_name == names[name])
        assert name != "Plant" or wanted[-1][:2] == ("delete", "p05")
        # A running stream keeps the names of its columns. After a restart, they have their new names.
        renames = {
            getattr(step, "from_"): getattr(step, "to")  # noqa: B009
            for step in steps
            if step.kind == "rename_property" and of_type(step) in (name, names[name], "Named")
        }
        assert streamed(running[name], starts[name], renames) == wanted
        assert streamed(stream(graph, names[name]), starts[name], {}) == wanted
