"""Creating a graph: it exists completely, or a clear error says why not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import orjson
import pytest
from tests.graph.people import SCHEMA, add, names

import omnigraph
from omnigraph.commit.create import CLAIM_PATH
from omnigraph.commit.failpoints import Failpoint, FailpointError, SimulatedCrashError, armed
from omnigraph.commit.lease import Owner
from omnigraph.commit.schema_files import CONTRACT
from omnigraph.errors import (
    AlreadyInitializedError,
    CompileError,
    InitializationClaimedError,
    InitializationCommittedError,
    InitializationIndeterminateError,
    InputError,
)
from omnigraph.storage.ledger import Ledger, LedgerVersion
from omnigraph.storage.objects.local import LocalObjectStore


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "graph"


def works(place: Path) -> None:
    """Check that the graph can be used."""
    with omnigraph.open(place) as graph:
        add(graph, "Ann")
        assert names(graph) == ["Ann"]


def claim(place: Path, **members: object) -> None:
    place.mkdir(exist_ok=True)
    (place / CLAIM_PATH).write_bytes(orjson.dumps({"version": 1, "attempt_id": "x", **members}))


# ---- the schema


def test_the_schema_is_text_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "people.pg"
    file.write_text(SCHEMA)
    for name, schema in (("a", SCHEMA), ("b", file), ("c", str(file))):
        with omnigraph.init(tmp_path / name, schema) as graph:
            assert graph.schema_source == SCHEMA


def test_an_invalid_or_missing_schema_is_reported(tmp_path: Path, place: Path) -> None:
    with pytest.raises(InputError, match="cannot read the schema"):
        omnigraph.init(place, tmp_path / "nowhere.pg")
    (tmp_path / "latin.pg").write_bytes(b"// caf\xe9\nnode A { x: String @key }")
    with pytest.raises(InputError, match="not UTF-8"):
        omnigraph.init(place, tmp_path / "latin.pg")
    with pytest.raises(CompileError):
        omnigraph.init(place, "node A { x: Strin }")
    assert not place.exists()


def test_a_schema_without_types_is_a_graph_without_tables(place: Path) -> None:
    with omnigraph.init(place, "") as graph:
        assert graph.snapshot().tables == {}


# ---- existing files


def test_an_existing_graph_is_refused_even_with_force(place: Path) -> None:
    add(omnigraph.init(place, SCHEMA), "Ann")
    for force in (False, True):
        with pytest.raises(AlreadyInitializedError, match="there is a graph at"):
            omnigraph.init(place, SCHEMA, force=force)
    assert names(omnigraph.open(place)) == ["Ann"]


@pytest.mark.parametrize("left", CONTRACT)
def test_schema_files_without_a_graph_need_force(place: Path, left: str) -> None:
    place.mkdir()
    (place / left).write_text("old")
    with pytest.raises(AlreadyInitializedError, match=left):
        omnigraph.init(place, SCHEMA)
    assert (place / left).read_text() == "old"
    omnigraph.init(place, SCHEMA, force=True)
    works(place)


def test_unrelated_files_are_kept(place: Path) -> None:
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    omnigraph.init(place, SCHEMA)
    assert (place / "notes.txt").read_text() == "mine"


# ---- claims


def test_one_of_many_concurrent_inits_succeeds(place: Path) -> None:
    def create(_: int) -> str:
        try:
            omnigraph.init(place, SCHEMA)
        except (AlreadyInitializedError, InitializationClaimedError) as error:
            return error.code
        return "won"

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(create, range(8)))
    assert outcomes.count("won") == 1
    works(place)
    assert not (place / CLAIM_PATH).exists()


def test_a_live_claim_is_respected(place: Path) -> None:
    claim(place, owner=asdict(Owner.here()))
    for force in (False, True):
        with pytest.raises(InitializationClaimedError) as error:
            omnigraph.init(place, SCHEMA, force=force)
        assert error.value.hint is not None
        assert CLAIM_PATH in error.value.hint
    assert [path.name for path in place.iterdir() if not path.name.startswith(".og-")] == [CLAIM_PATH]


def test_an_unreadable_claim_is_respected(place: Path) -> None:
    claim(place)
    with pytest.raises(InitializationClaimedError):
        omnigraph.init(place, SCHEMA)


def test_the_claim_of_a_dead_process_is_taken_over(place: Path) -> None:
    claim(place, owner=asdict(Owner(Owner.here().host, 2**22 + 1, "0")))
    omnigraph.init(place, SCHEMA)
    works(place)
    assert not (place / CLAIM_PATH).exists()


# ---- failures at each step


@pytest.mark.parametrize("point", [Failpoint.INIT_SCHEMA_WRITTEN, Failpoint.INIT_TABLES_CREATED])
def test_a_failure_before_the_manifest_leaves_an_empty_directory(place: Path, point: Failpoint) -> None:
    with armed(point), pytest.raises(FailpointError):
        omnigraph.init(place, SCHEMA)
    assert [name for name in (*CONTRACT, CLAIM_PATH) if (place / name).exists()] == []
    omnigraph.init(place, SCHEMA)
    works(place)


def test_the_claim_stays_if_files_cannot_be_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining files are unknown, so no other process may start."""

    def fail(store: LocalObjectStore, path: str, etag: str) -> None:
        raise InputError("out of reach")

    with monkeypatch.context() as patch, armed(Failpoint.INIT_SCHEMA_WRITTEN):
        patch.setattr(LocalObjectStore, "delete_if", fail)
        # The probe of the store also deletes an object. It is not tested here.
        patch.setattr("omnigraph.commit.create.probe_create_if_absent", lambda _: None)
        with pytest.raises(FailpointError):
            omnigraph.init(place, SCHEMA)
    assert (place / CLAIM_PATH).exists()
    with pytest.raises(InitializationClaimedError):
        omnigraph.init(place, SCHEMA, force=True)


def test_a_failure_after_the_manifest_says_that_the_graph_exists(place: Path) -> None:
    with armed(Failpoint.INIT_COMMITTED), pytest.raises(InitializationCommittedError, match="was created, but a later"):
        omnigraph.init(place, SCHEMA)
    works(place)


def test_a_lost_answer_to_the_manifest_says_that_the_graph_exists(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = Ledger.create

    def lose_the_answer(ledger: Ledger, *args: object) -> LedgerVersion:
        create(ledger, *args)
        raise TimeoutError("no answer")

    monkeypatch.setattr(Ledger, "create", lose_the_answer)
    with pytest.raises(InitializationCommittedError, match="no answer"):
        omnigraph.init(place, SCHEMA)
    works(place)


def test_an_unknown_outcome_keeps_all_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(ledger: Ledger, *args: object) -> LedgerVersion:
        monkeypatch.setattr(Ledger, "open", fail_to_look)
        raise TimeoutError("no answer")

    def fail_to_look(ledger: Ledger, *args: object) -> LedgerVersion:
        raise TimeoutError("still no answer")

    monkeypatch.setattr(Ledger, "create", fail)
    with pytest.raises(InitializationIndeterminateError) as error:
        omnigraph.init(place, SCHEMA)
    assert "no answer" in str(error.value)
    assert "still no answer" in str(error.value)
    assert all((place / name).exists() for name in (*CONTRACT, CLAIM_PATH))


@pytest.mark.parametrize(
    "point", [Failpoint.INIT_CLAIMED, Failpoint.INIT_SCHEMA_WRITTEN, Failpoint.INIT_TABLES_CREATED]
)
def test_after_a_crash_init_works_with_force(place: Path, point: Failpoint) -> None:
    with armed(point, "crash"), pytest.raises(SimulatedCrashError):
        omnigraph.init(place, SCHEMA)
    with pytest.raises((AlreadyInitializedError, InitializationClaimedError)):
        omnigraph.init(place, SCHEMA)
    claim(place, owner=asdict(Owner(Owner.here().host, 2**22 + 1, "0")))
    omnigraph.init(place, SCHEMA, force=True)
    works(place)


def test_after_a_crash_behind_the_manifest_the_graph_exists(place: Path) -> None:
    with armed(Failpoint.INIT_COMMITTED, "crash"), pytest.raises(SimulatedCrashError):
        omnigraph.init(place, SCHEMA)
    works(place)
