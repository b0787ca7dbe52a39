"""Hard drops remove the data from earlier commits, except where a branch or a tag needs it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.commit.child import Children
from tests.commit.graphs import assert_whole
from tests.migrate.garden import SCHEMA, content, create

from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import ConflictError, VersionReclaimedError
from omnigraph.graph import Graph, open
from omnigraph.migrate import hard_drops

NO_OLD = SCHEMA.replace("    old: String?\n", "")
NO_BEDS = SCHEMA.replace("node Bed { name: String @key  size: I64?  kind: String? }\n", "").replace(
    "edge In: Plant -> Bed @card(0..3) { since: I32? }\n", ""
)


@pytest.fixture
def alone(tmp_path: Path) -> Graph:
    """The garden without other branches."""
    graph = create(tmp_path / "alone")
    for name in ("idle", "busy"):
        graph.branches.delete(name)
    return graph


def test_a_soft_drop_keeps_the_data_in_earlier_commits(alone: Graph) -> None:
    before, head = content(alone), alone.snapshot().commit.id
    done = alone.schema.apply(NO_OLD)
    assert done.hard_drops == ()
    assert content(alone, at=head) == before
    assert done.planned.plan.steps[0].to_json()["mode"] == "soft"


def test_a_hard_drop_of_a_property_removes_it_from_earlier_commits(alone: Graph) -> None:
    head = alone.snapshot().commit.id
    after = {name: dict(rows) for name, rows in content(alone).items()}
    done = alone.schema.apply(NO_OLD, allow="data_loss")
    assert done.planned.plan.steps[0].to_json()["mode"] == "hard"
    (drop,) = done.hard_drops
    assert (drop.type_key, drop.versions_kept, drop.error) == ("node:Plant", 0, None)
    assert drop.versions_removed > 0
    assert done.warnings == []
    with pytest.raises(VersionReclaimedError):
        content(alone, at=head)
    assert content(alone)["Plant"] == {
        id: {name: value for name, value in row.items() if name != "old"} for id, row in after["Plant"].items()
    }
    # A state is kept or removed as a whole: other types of the commit cannot be read, either.
    with pytest.raises(VersionReclaimedError, match=f"the state at commit {head} no longer exists"):
        alone.snapshot(commit=head)
    assert head in alone.commits.list().removed
    assert alone.verify().ok
    assert_whole(alone)
    with open(alone.uri) as reopened, pytest.raises(VersionReclaimedError):
        content(reopened, at=head)


def test_a_hard_drop_of_a_type_removes_its_table(alone: Graph) -> None:
    head, bed = alone.snapshot().commit.id, alone.snapshot().pin("node:Bed").ref.path
    done = alone.schema.apply(NO_BEDS, allow="data_loss")
    assert [(drop.type_key, drop.versions_kept, drop.error) for drop in done.hard_drops] == [
        ("edge:In", 0, None),
        ("node:Bed", 0, None),
    ]
    with pytest.raises(VersionReclaimedError):
        alone.snapshot(commit=head).scan("node:Bed")
    assert not list((Path(alone.uri) / bed).rglob("*.lance"))
    assert sorted(content(alone)) == ["Plant"]
    assert_whole(alone)


def test_a_hard_drop_keeps_what_branches_and_tags_need(graph: Graph) -> None:
    before, busy, head = content(graph), content(graph, branch="busy"), graph.snapshot().commit.id
    early = graph.snapshot(branch="busy").commit.id
    graph.mutate('query grow() { update Plant set { height: 8 } where code = "p21" }', branch="busy")
    later = content(graph, branch="busy")
    graph.tags.create("v1")
    done = graph.schema.apply(NO_OLD, allow="data_loss")
    (drop,) = done.hard_drops
    assert drop.versions_kept > 0
    assert drop.kept_for == ("branch 'busy'", "branch 'idle'", "tag 'v1'")
    assert done.warnings == [
        f"node:Plant: {drop.versions_kept} older versions still have the dropped data, because branch 'busy', "
        "branch 'idle' and tag 'v1' need them"
    ]
    assert done.to_json()["hard_drops"][0]["kept_for"] == list(drop.kept_for)
    assert content(graph, branch="idle") == before == content(graph, at="v1") == content(graph, at=head)
    assert content(graph, branch="busy") == later
    assert content(graph, at=early) == busy, "another branch keeps its history"
    assert_whole(graph)


def test_a_failed_removal_is_reported_and_not_raised(alone: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise ConflictError("the store is busy")

    monkeypatch.setattr(hard_drops, "cleanup", fail)
    head = alone.snapshot().commit.id
    done = alone.schema.apply(NO_OLD, allow="data_loss")
    assert done.applied
    (drop,) = done.hard_drops
    assert "the store is busy" in str(drop.error)
    assert "omnigraph cleanup" in done.warnings[0]
    assert done.to_json()["hard_drops"][0]["error"] == drop.error
    assert "old" in content(alone, at=head)["Plant"]["p01"]
    monkeypatch.undo()
    alone.cleanup(keep=1)
    with pytest.raises(VersionReclaimedError):
        content(alone, at=head)


POINTS = [
    Failpoint.CLEANUP_LOOKED,
    Failpoint.CLEANUP_PROPOSED,
    Failpoint.CLEANUP_DECIDED,
    Failpoint.CLEANUP_VERSIONS_REMOVED,
    Failpoint.CLEANUP_FILES_REMOVED,
]


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_killed_removal_leaves_the_change_and_can_be_completed(
    children: Children, alone: Graph, point: Failpoint
) -> None:
    head = alone.snapshot().commit.id
    ending = children.run(
        "apply_schema", failpoint=f"{point.value}=kill", uri=alone.uri, source=NO_OLD, allow="data_loss"
    )
    assert ending.signal == signal.SIGKILL
    with open(alone.uri) as reopened:
        assert reopened.schema.source == NO_OLD
        assert "old" not in content(reopened)["Plant"]["p01"]
        assert reopened.schema.apply(NO_OLD).applied is False
        reopened.cleanup(keep=1)
        with pytest.raises(VersionReclaimedError):
            content(reopened, at=head)
        assert reopened.verify().ok
        assert_whole(reopened)
