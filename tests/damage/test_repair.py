"""Repair: its findings, its actions with consent, and that a crashed repair loses nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import lance
import pytest
from click.testing import CliRunner
from tests.commit import raw
from tests.commit.child import Children
from tests.commit.graphs import SEED, Operation, assert_whole, create, ids, put
from tests.commit.matrix import REPAIR_POINTS
from tests.commit.raw import damage_data, newest_manifest, newest_version, stop_for_good, tear, undo_without_a_way_back

from omnigraph.cli.main import cli
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint, SimulatedCrashError, armed
from omnigraph.errors import (
    CorruptionError,
    DamagedFileError,
    DriftError,
    InputError,
    StorageError,
    StorageErrorKind,
)
from omnigraph.graph import Graph, open, repair
from omnigraph.storage import file_checks
from omnigraph.storage.checksums import FileChecksum
from omnigraph.storage.latest_version import TORN
from omnigraph.storage.table_ref import table_directory
from omnigraph.upkeep.repair import FORCED_ACTOR, REPAIR_ACTOR, Action, Classification, Repaired, RepairReport


def row(report: RepairReport, key: str = "node:A", branch: str | None = "main") -> Repaired:
    (found,) = [each for each in report.rows if (each.type_key, each.branch) == (key, branch)]
    return found


def verdict(report: RepairReport, key: str = "node:A", branch: str | None = "main") -> tuple[str, str]:
    found = row(report, key, branch)
    return found.classification.value, found.action.value


def test_repair_of_an_undamaged_graph_changes_nothing(graph: Graph, place: Path) -> None:
    graph.branches.create("dev")
    put(graph, ["own"], branch="dev")
    report = repair(place)
    assert report.ok
    assert {each.branch for each in report.rows} == {"main", "dev"}
    assert {verdict(report, each.type_key, each.branch) for each in report.rows} == {("no_drift", "no_op")}
    head = graph.snapshot().commit.id
    assert repair(place, confirm=True, force=True).ok
    assert graph.snapshot().commit.id == head, "no commit without a reason"


def test_force_needs_confirm(graph: Graph) -> None:
    with pytest.raises(InputError):
        graph.repair(force=True)


def test_repair_adopts_foreign_compaction(graph: Graph, place: Path) -> None:
    for name in ("x", "y", "z"):
        put(graph, [name])
    pin = graph.snapshot().pin("node:A")
    lance.dataset(str(raw.directory(graph, pin))).optimize.compact_files()
    with pytest.raises(DriftError, match="omnigraph repair"):
        put(graph, ["blocked"])
    report = graph.repair()
    assert verdict(report) == ("verified_maintenance", "preview")
    assert row(report).operations == ("ReserveFragments", "Rewrite")
    assert verdict(graph.repair(confirm=True)) == ("verified_maintenance", "healed")
    assert graph.snapshot().commit.actor == REPAIR_ACTOR
    put(graph, ["next"])
    assert ids(graph) == sorted([*SEED, "x", "y", "z", "next"])
    assert_whole(graph)


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_foreign_rows_are_adopted_only_with_force(graph: Graph, branch: str) -> None:
    if branch != "main":
        graph.branches.create(branch)
        put(graph, ["own"], branch=branch)
    before = ids(graph, branch=branch)
    raw.append(graph, "node:A", ["theirs"], branch)
    assert verdict(graph.repair(), branch=branch) == ("suspicious", "preview")
    refused = graph.repair(confirm=True)
    assert verdict(refused, branch=branch) == ("suspicious", "refused")
    assert refused.refused == (row(refused, branch=branch),)
    assert ids(graph, branch=branch) == before
    assert verdict(graph.repair(confirm=True, force=True), branch=branch) == ("suspicious", "forced")
    assert ids(graph, branch=branch) == sorted([*before, "theirs"])
    assert graph.snapshot(branch=branch).commit.actor == FORCED_ACTOR
    put(graph, ["next"], branch=branch)
    assert_whole(graph)


def test_the_repair_plan_shows_row_counts(graph: Graph) -> None:
    raw.append(graph, "node:A", ["t1", "t2"])
    lance.dataset(str(raw.directory(graph, graph.snapshot().pin("node:A")))).delete("id = 's1'")
    found = row(graph.repair())
    assert (found.rows_before, found.rows_after, found.rows_added, found.rows_removed) == (3, 4, 2, 1)
    assert found.plan == "point the graph at version 4: 3 rows before, 4 after; 2 added, 1 removed, 0 rewritten"


@pytest.mark.parametrize("ours", [False, True], ids=["foreign", "own"])
def test_a_restore_without_a_sidecar_is_never_adopted(graph: Graph, ours: bool) -> None:
    """A late restore may remove acknowledged rows. Any writer undoes a late restore that the engine made."""
    put(graph, ["kept"])
    (raw.restore_late if ours else raw.restore)(graph, "node:A", 1)
    report = graph.repair()
    assert verdict(report) == ("suspicious", "preview")
    assert row(report).plan == "restore the content of version 3: 4 rows before, 4 after"
    confirmed = graph.repair(confirm=True)
    assert verdict(confirmed) == ("suspicious", "healed" if ours else "refused")
    if not ours:
        assert verdict(graph.repair(confirm=True, force=True)) == ("suspicious", "forced")
    assert ids(graph) == sorted([*SEED, "kept"])
    put(graph, ["next"])
    assert ids(graph) == sorted([*SEED, "kept", "next"])
    assert_whole(graph)


def test_a_late_restore_does_not_remove_rows_of_a_lost_commit(graph: Graph, place: Path) -> None:
    """The restored version is older than the lost commit, whose rows are kept."""
    put(graph, ["kept"])
    raw.restore_late(graph, "node:A", 1)
    tear(newest_manifest(graph))
    graph.close()
    assert row(repair(place)).plan == "restore the content of version 3: 3 rows before, 4 after"
    repair(place, confirm=True, force=True)
    with open(place) as fresh:
        assert ids(fresh) == sorted([*SEED, "kept"])
        put(fresh, ["next"])
        assert_whole(fresh)


def test_a_damaged_newest_version_is_not_adopted(graph: Graph) -> None:
    before = ids(graph)
    raw.append(graph, "node:A", ["theirs"])
    data = raw.directory(graph, graph.snapshot().pin("node:A")) / "data"
    file = max(data.glob("*.lance"), key=lambda file: file.stat().st_mtime_ns)
    file.write_bytes(file.read_bytes()[:50])
    found = row(graph.repair())
    assert file.name in str(found.error)
    assert found.plan == "restore the content of version 2: 3 rows before, 3 after"
    assert verdict(graph.repair(confirm=True)) == ("suspicious", "refused")
    assert verdict(graph.repair(confirm=True, force=True)) == ("suspicious", "forced")
    assert ids(graph) == before
    put(graph, ["next"])
    assert_whole(graph)


def test_drift_without_its_transaction_file_is_unverifiable(graph: Graph) -> None:
    raw.append(graph, "node:A", ["theirs"])
    pin = graph.snapshot().pin("node:A")
    for file in (raw.directory(graph, pin) / "_transactions").glob(f"{pin.ref.version}-*.txn"):
        file.unlink()
    assert verdict(graph.repair()) == ("unverifiable", "preview")
    assert verdict(graph.repair(confirm=True)) == ("unverifiable", "refused")
    assert verdict(graph.repair(confirm=True, force=True)) == ("unverifiable", "forced")
    assert ids(graph) == sorted([*SEED, "theirs"])


def test_a_torn_version_that_the_manifest_does_not_need_is_quarantined(graph: Graph) -> None:
    raw.append(graph, "node:A", ["theirs"])
    file = newest_version(graph)
    tear(file)
    with pytest.raises(DamagedFileError, match=file.name):
        put(graph, ["blocked"])
    assert ids(graph) == sorted(SEED), "reading needs it not"
    found = [each for each in graph.repair(confirm=True).rows if each.type_key == "node:A"]
    assert [(each.classification, each.action) for each in found] == [
        (Classification.UNREADABLE, Action.QUARANTINED),
        (Classification.NO_DRIFT, Action.NO_OP),
    ]
    assert file.with_name(file.name + TORN).exists()
    assert [record.kind for record in graph.recovery.list()] == [RecoveryKind.TORN_FILE_SET_ASIDE]
    put(graph, ["next"])
    assert ids(graph) == sorted([*SEED, "next"])
    assert_whole(graph)


def test_damaged_data_is_restored_to_an_older_version_only_with_force(graph: Graph, place: Path) -> None:
    file = damage_data(graph)
    report = repair(place)
    assert verdict(report) == ("unreadable", "preview")
    assert file.name in str(row(report).error)
    assert "version 2: 4 rows before, 3 after" in str(row(report).plan)
    assert (row(report).rows_before, row(report).rows_after) == (4, 3)
    assert verdict(repair(place, confirm=True)) == ("unreadable", "refused")
    assert verdict(repair(place, confirm=True, force=True)) == ("unreadable", "forced")
    with open(place) as fresh:
        assert ids(fresh) == sorted(SEED)
        assert fresh.snapshot().commit.actor == FORCED_ACTOR
        assert fresh.verify().ok
        put(fresh, ["next"])
        assert_whole(fresh)
    assert file.exists(), "nothing is deleted"


def test_repair_is_refused_without_an_undamaged_version(graph: Graph, place: Path) -> None:
    file = damage_data(graph)
    for other in file.parent.glob("*.lance"):
        other.write_bytes(other.read_bytes()[:100])
    for version in (file.parent.parent / "_versions").glob("*.manifest"):
        if version != newest_version(graph):
            tear(version)
    report = repair(place, confirm=True, force=True)
    assert verdict(report) == ("unreadable", "refused")
    assert "backup" in str(row(report).plan)


@pytest.mark.parametrize("removed", [False, True], ids=["torn", "removed"])
def test_an_acknowledged_manifest_version_is_dropped_only_with_force(graph: Graph, place: Path, removed: bool) -> None:
    """The tables still have the rows of the lost commit, and repair adopts them."""
    put(graph, ["kept"])
    file = newest_manifest(graph)
    graph.close()
    tear(file)
    if removed:
        file.unlink()
    for read_only in (True, False):
        with pytest.raises(DamagedFileError, match=file.name):
            open(place, read_only=read_only)
    report = repair(place)
    assert verdict(report, "__manifest") == ("unreadable", "preview")
    assert verdict(report) == ("suspicious", "preview")
    assert verdict(repair(place, confirm=True), "__manifest") == ("unreadable", "refused")
    assert verdict(repair(place, confirm=True, force=True), "__manifest") == ("unreadable", "quarantined")
    assert removed or file.with_name(file.name + TORN).exists()
    with open(place) as fresh:
        assert ids(fresh) == sorted([*SEED, "kept"])
        assert fresh.snapshot().commit.actor == FORCED_ACTOR
        put(fresh, ["next"])
        assert_whole(fresh)


def test_an_unreadable_sidecar_is_quarantined(children: Children, graph: Graph, place: Path) -> None:
    job = {"uri": graph.uri, "writes": [("node:A", "append", ["half"])]}
    assert children.run("write", failpoint="table_committed=kill", **job).signal == signal.SIGKILL
    (sidecar,) = (place / "__recovery").glob("*.json")
    sidecar.write_bytes(sidecar.read_bytes()[:50])
    with pytest.raises(CorruptionError, match=sidecar.name):
        open(place)
    report = repair(place)
    assert verdict(report, f"__recovery/{sidecar.name}", None) == ("unreadable", "preview")
    report = repair(place, confirm=True)
    assert verdict(report, f"__recovery/{sidecar.name}", None) == ("unreadable", "quarantined")
    assert verdict(report) == ("suspicious", "refused"), "what it moved is for a person to judge"
    assert verdict(repair(place, confirm=True, force=True)) == ("suspicious", "forced")
    with open(place) as fresh:
        assert ids(fresh) == sorted([*SEED, "half"])
        put(fresh, ["next"])


def test_a_forced_repair_drops_a_write_that_cannot_be_recovered(children: Children, graph: Graph, place: Path) -> None:
    """Without repair no write is possible. A forced repair drops the write, and no reader ever sees half of it."""
    stop_for_good(children, graph)
    (sidecar,) = (place / "__recovery").glob("*.json")
    path = f"__recovery/{sidecar.name}"
    with pytest.raises(CorruptionError, match="node:B is at version 1") as refused:
        open(place)
    assert "omnigraph repair" in str(refused.value.hint)
    report = repair(place)
    assert verdict(report, path) == ("unsettled", "preview")
    assert "of which nothing is visible" in str(row(report, path).plan)
    assert row(report).plan == "restore the content of version 2: 3 rows before, 3 after"
    assert verdict(repair(place, confirm=True), path) == ("unsettled", "refused")
    assert sidecar.exists()
    report = repair(place, confirm=True, force=True)
    assert verdict(report, path) == ("unsettled", "quarantined")
    assert verdict(report) == ("suspicious", "forced")
    assert sidecar.with_name(sidecar.name + TORN).exists()
    with open(place) as fresh:
        assert fresh.snapshot().commit.actor == FORCED_ACTOR
        assert ids(fresh) == sorted(SEED)
        assert ids(fresh, "node:B") == []
        put(fresh, ["next"], ["node:A", "node:B"])
        (place / "__recovery" / f"{sidecar.name}{TORN}").unlink()
        assert_whole(fresh)


def test_a_recovery_error_names_the_write_and_the_repair_command(children: Children, graph: Graph, place: Path) -> None:
    sidecar, _, _ = undo_without_a_way_back(children, graph)
    for attempt in (lambda: open(place), lambda: put(graph, ["more"]), graph.refresh):
        with pytest.raises(CorruptionError, match=f"write {sidecar.stem} .* version 2 .* no longer exists") as refused:
            attempt()
        assert "omnigraph repair" in str(refused.value.hint)
        assert "may or may not" not in f"{refused.value} {refused.value.hint}"


def test_repair_keeps_a_visible_write_that_cannot_be_rolled_back(children: Children, graph: Graph, place: Path) -> None:
    sidecar, _, _ = undo_without_a_way_back(children, graph)
    done = CliRunner().invoke(cli, ["repair", str(place)])
    assert done.exit_code == 0
    assert f"__recovery/{sidecar.name}: unsettled: preview" in done.stdout
    assert "keep its write, which is visible as commit" in done.stdout
    assert CliRunner().invoke(cli, ["repair", str(place), "--confirm"]).exit_code == 1
    assert CliRunner().invoke(cli, ["repair", str(place), "--confirm", "--force"]).exit_code == 0
    assert sidecar.with_name(sidecar.name + TORN).exists()
    with open(place) as fresh:
        assert ids(fresh) == sorted([*SEED, "seen"])
        put(fresh, ["next"])
        assert fresh.verify().ok
        assert repair(place).ok


def test_drift_with_a_sidecar_is_left_to_recovery(children: Children, graph: Graph, place: Path) -> None:
    job = {"uri": graph.uri, "writes": [("node:A", "append", ["half"])]}
    assert children.run("write", failpoint="table_committed=kill", **job).signal == signal.SIGKILL
    assert verdict(repair(place)) == ("suspicious", "no_op")
    assert verdict(repair(place, confirm=True)) == ("no_drift", "no_op"), "it is settled first"
    assert ids(graph) == sorted([*SEED, "half"])


def test_damaged_indexes_are_dropped(graph: Graph, place: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(graph, SEED, operation=Operation.INDEX)
    graph.close()
    for file in (place / "nodes").glob("*/_indices/*/page_data.lance"):
        data = bytearray(file.read_bytes())
        data[10] ^= 1
        file.write_bytes(data)
    with open(place) as fresh:
        assert fresh.entity("A", "s1") is not None, "found by scanning"
        assert "page_data.lance is damaged" in caplog.text
        put(fresh, ["more"])
        assert fresh.entity("A", "more") is not None
        assert not fresh.verify().ok
        assert verdict(fresh.repair()) == ("unreadable", "preview")
        assert verdict(fresh.repair(confirm=True)) == ("unreadable", "healed")
    with open(place) as fresh:
        assert fresh.snapshot().commit.actor == REPAIR_ACTOR
        assert fresh.verify().ok
        assert fresh.repair().ok
        assert ids(fresh) == sorted([*SEED, "more"])
        fresh.ensure_indexes()
        assert all(index.uncovered == 0 for index in fresh.indexes() if index.type_key == "node:A")


def test_a_damaged_reference_is_quarantined_only_with_force(graph: Graph, place: Path) -> None:
    graph.branches.create("dev")
    (file,) = (place / "__refs").glob("*.json")
    file.write_bytes(b"")
    path = str(file.relative_to(place))
    with pytest.raises(DamagedFileError, match=file.name):
        graph.snapshot(branch="dev")
    assert verdict(repair(place, confirm=True), path, None) == ("unreadable", "refused")
    assert verdict(repair(place, confirm=True, force=True), path, None) == ("unreadable", "quarantined")
    with open(place) as fresh:
        assert [branch.name for branch in fresh.branches] == ["main"]


KILLED_BELOW = (Failpoint.REPAIR_MANIFEST_CHECKED, Failpoint.REPAIR_SIDECAR_CHECKED)


def _broken(graph: Graph, place: Path) -> None:
    """A graph with damage for every step of repair."""
    put(graph, ["kept"], ["node:A", "node:B"])
    damage_data(graph)
    raw.append(graph, "node:C", ["theirs"])
    tear(newest_version(graph, "node:C"))


@pytest.mark.parametrize("point", [point for point in REPAIR_POINTS if point not in KILLED_BELOW])
def test_a_killed_repair_has_the_same_outcome_when_it_is_repeated(
    children: Children, place: Path, point: Failpoint
) -> None:
    """Repair that is killed any number of times has the same outcome when it is repeated."""
    with create(place) as graph:
        _broken(graph, place)
    assert children.run("repair_all", failpoint=f"{point}=kill", uri=str(place)).signal == signal.SIGKILL
    assert children.run("repair_all", failpoint=f"{point}=kill", uri=str(place)).signal in (0, signal.SIGKILL)
    repair(place, confirm=True, force=True)
    with open(place) as fresh:
        assert repair(place).ok
        assert ids(fresh) == sorted([*SEED, "kept"])
        assert ids(fresh, "node:B") == sorted([*SEED, "kept"])
        assert ids(fresh, "node:C") == sorted(SEED)
        assert fresh.verify().ok
        put(fresh, ["next"])
        assert_whole(fresh)


def test_a_killed_manifest_repair_has_the_same_outcome_when_it_is_repeated(children: Children, place: Path) -> None:
    with create(place) as graph:
        put(graph, ["kept"])
        tear(newest_manifest(graph))
    killed = children.run("repair_all", failpoint=f"{Failpoint.REPAIR_MANIFEST_CHECKED}=kill", uri=str(place))
    assert killed.signal == signal.SIGKILL
    repair(place, confirm=True, force=True)
    with open(place) as fresh:
        assert ids(fresh) == sorted([*SEED, "kept"])
        put(fresh, ["next"])
        assert_whole(fresh)


UNSETTLED_POINTS = (
    Failpoint.REPAIR_TABLE_CHECKED,
    Failpoint.REPAIR_RESTORED,
    Failpoint.REPAIR_PUBLISH_CHECKED,
    Failpoint.REPAIR_PUBLISHED,
    Failpoint.REPAIR_SIDECAR_CHECKED,
    Failpoint.TORN_COPIED,
    Failpoint.REPAIR_SET_ASIDE,
)


@pytest.mark.parametrize("point", UNSETTLED_POINTS)
def test_a_killed_sidecar_repair_has_the_same_outcome_when_it_is_repeated(
    children: Children, place: Path, point: Failpoint
) -> None:
    """The sidecar is removed last, so a repeated repair knows which tables the first one moved."""
    with create(place) as graph:
        stop_for_good(children, graph)
    killed = children.run("repair_all", failpoint=f"{point}=kill", uri=str(place))
    assert killed.signal == signal.SIGKILL
    repair(place, confirm=True, force=True)
    with open(place) as fresh:
        assert ids(fresh) == sorted(SEED), "never half of a write"
        assert ids(fresh, "node:B") == []
        put(fresh, ["next"], ["node:A", "node:B"])
        assert repair(place).ok


def test_the_repair_command_shows_and_fixes_drift(graph: Graph, place: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["repair", str(place), *arguments])
        return done.exit_code, done.stdout

    code, said = run()
    assert code == 0
    assert said.startswith(f"repair {place} — preview mode, 5 datasets")
    raw.append(graph, "node:A", ["theirs"])
    assert run()[0] == 0
    code, said = run("--confirm", "--json")
    assert code == 1
    told = json.loads(said)
    assert (told["uri"], told["confirm"], told["force"]) == (str(place), True, False)
    (found,) = [each for each in told["datasets"] if each["type_key"] == "node:A"]
    assert (found["published_dataset_version"], found["lance_head_version"]) == (2, 3)
    assert (found["classification"], found["action"], found["operations"]) == ("suspicious", "refused", ["Append"])
    assert run("--force")[0] == 2
    assert run("--confirm", "--force")[0] == 0
    assert ids(graph) == sorted([*SEED, "theirs"])


def test_a_file_without_read_permission_does_not_count_as_damaged(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forced repair would remove rows that are undamaged."""
    put(graph, ["precious"])

    def forbidden(place: str) -> FileChecksum:
        raise PermissionError(13, "Permission denied", place)

    with monkeypatch.context() as patched:
        patched.setattr(file_checks, "file_checksum", forbidden)
        with open(place, read_only=True) as fresh, pytest.raises(StorageError, match="permission denied") as refused:
            fresh.verify()
        assert refused.value.kind is StorageErrorKind.CONFIGURATION
        with pytest.raises(StorageError, match="permission denied"):
            repair(place, confirm=True, force=True)
    assert "precious" in ids(graph)
    assert repair(place).ok


def test_verify_all_checks_every_branch(graph: Graph, place: Path) -> None:
    graph.branches.create("dev")
    put(graph, ["own"], branch="dev")
    table = graph.snapshot(branch="dev").manifest.tables["node:A"].ref
    file = max((place / table_directory(table.path, table.branch) / "data").iterdir())
    file.write_bytes(file.read_bytes()[:-1])

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["verify", str(place), *arguments])
        return done.exit_code, done.stdout

    assert run()[0] == 0
    code, said = run("--all")
    assert code == 1
    assert "on branch main: every constraint holds" in said
    assert file.name in said
    assert run("--all", "--json")[0] == 1
    assert run("--all", "--branch", "dev")[0] == 2


@pytest.mark.parametrize("point", [Failpoint.REPAIR_SET_ASIDE, Failpoint.REPAIR_PUBLISH_CHECKED])
@pytest.mark.parametrize("how", ["empty", "removed"])
def test_a_crashed_repair_is_completed_only_by_repair(graph: Graph, place: Path, how: str, point: Failpoint) -> None:
    """The next writer must not roll back the rows of the lost manifest version as late versions."""
    if how == "removed" and point is Failpoint.REPAIR_SET_ASIDE:
        pytest.skip("there is nothing to set aside")
    put(graph, ["kept"])
    file = newest_manifest(graph)
    file.write_bytes(b"") if how == "empty" else file.unlink()
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        repair(place, confirm=True, force=True)
    for read_only in (True, False):
        with pytest.raises(DamagedFileError) as refused:
            open(place, read_only=read_only)
        assert "omnigraph repair" in str(refused.value.hint)
    repair(place, confirm=True, force=True)
    with open(place) as fresh:
        put(fresh, ["later"])
        assert ids(fresh) == sorted([*SEED, "kept", "later"])
        assert_whole(fresh)
