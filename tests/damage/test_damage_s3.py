"""Damage in S3: files have no checksums of ours, but damage is reported, and repair works as on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commit.child import Children
from tests.commit.graphs import SEED, assert_whole, create, ids, put
from tests.s3_server import S3Root
from tests.thresholds import Thresholds

from omnigraph.commit import manifest_successor
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.errors import DamagedFileError, OmnigraphError
from omnigraph.graph import Graph, open, repair
from omnigraph.storage.latest_version import TORN
from omnigraph.storage.table_ref import manifest_name

pytestmark = pytest.mark.s3


def version_file(graph: Graph) -> str:
    return f"__manifest/_versions/{manifest_name(graph.snapshot().manifest_version)}"


@pytest.mark.slow
@pytest.mark.parametrize("data", [b"", bytes(2000)], ids=["empty", "zeroed"])
def test_a_damaged_newest_manifest_version_needs_a_forced_repair(s3_root: S3Root, data: bytes) -> None:
    with create(s3_root.uri, s3_root.options) as graph:
        put(graph, ["kept"])
        path, objects = version_file(graph), graph.session.store.objects
        objects.put(path, data)
        for read_only in (True, False):
            with pytest.raises(OmnigraphError, match=manifest_name(3)):
                open(s3_root.uri, storage_options=s3_root.options, read_only=read_only)
        refused = repair(s3_root.uri, storage_options=s3_root.options, confirm=True)
        assert [row.type_key for row in refused.refused] == ["__manifest"]
        repair(s3_root.uri, storage_options=s3_root.options, confirm=True, force=True)
        assert objects.exists(path.replace("_versions", "_torn") + TORN)
    with open(s3_root.uri, storage_options=s3_root.options) as fresh:
        assert ids(fresh) == sorted([*SEED, "kept"])
        put(fresh, ["next"])
        assert_whole(fresh)
        assert fresh.verify().ok
        assert fresh.session.store.objects.list("__checksums") == []


@pytest.mark.slow
def test_a_torn_manifest_version_of_an_unacknowledged_write_needs_repair(
    children: Children, s3_root: S3Root, place: Path
) -> None:
    with create(s3_root.uri, s3_root.options) as graph:
        job = {"uri": graph.uri, "options": s3_root.options, "writes": [("node:A", "append", ["half"])]}
        children.run("write", failpoint="published=kill", **job)
        path = f"__manifest/_versions/{manifest_name(3)}"
        graph.session.store.objects.put(path, b"")
    # Opening quarantines no objects: S3 has no delete that requires an unchanged object.
    with pytest.raises(DamagedFileError, match=manifest_name(3)) as refused:
        open(s3_root.uri, storage_options=s3_root.options)
    assert "omnigraph repair" in str(refused.value.hint)
    with open(s3_root.uri, storage_options=s3_root.options, read_only=True) as reader:
        assert ids(reader) == sorted(SEED)
    repair(s3_root.uri, confirm=True, storage_options=s3_root.options)
    with open(s3_root.uri, storage_options=s3_root.options) as fresh:
        assert ids(fresh) == sorted([*SEED, "half"])
        put(fresh, ["next"])
        assert_whole(fresh)


@pytest.mark.slow
@pytest.mark.parametrize("point", [Failpoint.REPAIR_SET_ASIDE, Failpoint.REPAIR_PUBLISH_CHECKED])
def test_a_crashed_repair_is_completed_only_by_repair(s3_root: S3Root, point: Failpoint) -> None:
    """The next writer must not roll back the rows of the lost manifest version as late versions."""
    with create(s3_root.uri, s3_root.options) as graph:
        put(graph, ["kept"])
        graph.session.store.objects.put(f"__manifest/_versions/{manifest_name(3)}", b"")
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        repair(s3_root.uri, confirm=True, force=True, storage_options=s3_root.options)
    with pytest.raises(OmnigraphError) as refused:
        open_and_put(s3_root, "next")
    assert "omnigraph repair" in str(refused.value.hint)
    repair(s3_root.uri, confirm=True, force=True, storage_options=s3_root.options)
    open_and_put(s3_root, "later")
    with open(s3_root.uri, storage_options=s3_root.options) as fresh:
        assert ids(fresh) == sorted([*SEED, "kept", "later"])


def open_and_put(root: S3Root, name: str) -> None:
    with open(root.uri, storage_options=root.options) as graph:
        put(graph, [name])


def test_a_missing_data_file_is_reported(s3_root: S3Root) -> None:
    with create(s3_root.uri, s3_root.options) as graph:
        objects = graph.session.store.objects
        listed = objects.list(graph.snapshot().pin("node:A").ref.path)
        file = next(info.path for info in listed if "/data/" in info.path)
        objects.delete(file)
    with open(s3_root.uri, storage_options=s3_root.options) as fresh:
        with pytest.raises(OmnigraphError, match=file.rpartition("/")[2]):
            ids(fresh)
        assert not fresh.verify().ok


@pytest.mark.slow
def test_verify_reports_damage_of_the_history(s3_root: S3Root, thresholds: Thresholds) -> None:
    """Sizes and notes inside the objects are compared. References have checksums on all kinds of storage."""
    thresholds(manifest_successor, TAIL_COMMITS=4)
    with create(s3_root.uri, s3_root.options) as graph:
        for i in range(8):
            put(graph, [f"m{i}"])
        graph.branches.create("side")
        objects = graph.session.store.objects
        assert graph.verify().ok
        ledger = graph.session.store.capture("main").ledger
        assert len(ledger.parts) > 1
        for path, data in (
            (f"__manifest/_versions/{manifest_name(3)}", b""),
            (ledger._files[0][0], None),
            (ledger._files[0][0], b"short"),
            ("__refs/side.json", b"{}"),
        ):
            before = objects.get(path).data
            objects.delete(path)
            if data is not None:
                objects.put(path, data)
            assert path in [damage.path for damage in graph.verify().files.damages]
            objects.put(path, before)
        assert graph.verify().ok
