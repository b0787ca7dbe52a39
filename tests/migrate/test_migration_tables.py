"""Every row of the migration tables, applied to data: rows, values, indexes and other branches are right."""

from __future__ import annotations

import pytest
from tests.commit.graphs import assert_whole
from tests.migrate.cases import CASES, Case, parameters
from tests.migrate.counts import diff_counts, shown_counts
from tests.migrate.garden import SCHEMA, content, modelled

from omnigraph.graph import Graph, open


@pytest.mark.slow
@pytest.mark.parametrize("case", parameters())
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
    assert done.commit is not None
    assert shown_counts(done.commit) == diff_counts(graph, done.commit)
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
    # They receive the schema by an update, with the rows of main and their own.
    for branch, rows in (("idle", expected), ("busy", modelled(busy, case.model))):
        assert graph.branches.update(branch).is_clean
        assert content(graph, branch=branch) == rows
        assert graph.schema.show(branch=branch) == new
        assert graph.verify(branch=branch).ok
        assert graph.branches.update(branch).outcome == "already_up_to_date"
    assert content(graph) == expected
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


CODES = {
    "drop a node type with its edges": {"OG-DS-102", "OG-DS-103"},
    "drop a property with its constraints": {"OG-DS-104", "OG-CD-101"},
    "nullable to required": {"OG-MF-104"},
    "remove @unique": {"OG-CD-101"},
    "remove constraints of an edge": {"OG-CD-101"},
    "another source of @embed": {"OG-VE-101"},
    "another model of @embed": {"OG-VE-101"},
}


def test_the_plan_of_a_change_names_the_codes_of_its_steps(graph: Graph) -> None:
    for name, codes in CODES.items():
        planned = graph.schema.plan(CASES[name].schema(SCHEMA))
        assert planned.supported
        assert {step.code for step in planned.plan.steps if step.code is not None} == codes, name


@pytest.mark.slow
@pytest.mark.parametrize("case", parameters())
def test_changes_of_a_branch_with_the_former_schema_reach_main_and_lose_nothing(graph: Graph, case: Case) -> None:
    """`main` goes to the older branch and back: both have the rows of the model."""
    new = case.schema(SCHEMA)
    busy = modelled(content(graph, branch="busy"), case.model)
    graph.schema.apply(new)
    graph.merge("main", into="busy")
    assert graph.schema.show(branch="busy") == SCHEMA
    back = graph.merge("busy")
    assert back.is_clean
    assert ("In" in back.left_out) is ("drop_type" in case.kinds and "In" not in busy)
    assert content(graph) == busy
    assert graph.schema.source == new
    assert graph.verify().ok
    assert_whole(graph)
