"""Every row of the migration tables, applied to data: rows, values, indexes and other branches are right."""

from __future__ import annotations

import pytest
from tests.commit.graphs import assert_whole
from tests.migrate.cases import CASES, Case
from tests.migrate.garden import SCHEMA, content, modelled

from omnigraph.graph import Graph, open


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_schema_change_has_the_effect_of_its_model(graph: Graph, case: Case) -> None:
    new = case.schema(SCHEMA)
    before, head = content(graph), graph.snapshot()
    busy = content(graph, branch="busy")
    planned = graph.schema.plan(new)
    if case.kinds:
        assert sorted(step.kind for step in planned.plan.steps) == sorted(case.kinds)
    assert planned.cost.metadata_only is case.metadata_only, planned.lines()
    done = graph.schema.apply(new)
    assert done.applied
    expected = modelled(before, case.model)
    assert content(graph) == expected
    assert graph.schema.source == new
    assert graph.verify().ok
    if case.untouched:
        kept = {pin.id: pin.ref for pin in graph.snapshot().tables.values()}
        assert all(kept.get(pin.id, pin.ref) == pin.ref for pin in head.tables.values())
    # Other branches and old commits keep their schema and rows.
    assert content(graph, branch="busy") == busy
    assert content(graph, branch="idle") == before
    assert content(graph, at=head.commit.id) == before
    assert graph.schema.show(branch="busy") == SCHEMA == graph.schema.show(at=head.commit.id)
    # The same schema again changes nothing.
    again = graph.schema.apply(new)
    assert (again.applied, again.commit) == (False, None)
    # The tables take the same rows again, as one load of an export.
    graph.load(b"".join(graph.export()), mode="merge")
    assert content(graph) == expected
    # Indexes, compaction and another process give the same rows.
    graph.ensure_indexes()
    assert not [index for index in graph.indexes() if index.uncovered and index.covered]
    graph.optimize()
    assert content(graph) == expected
    assert graph.verify().ok
    assert_whole(graph)
    with open(graph.uri) as reopened:
        assert content(reopened) == expected
        assert_whole(reopened)
