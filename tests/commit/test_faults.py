"""Behaviour with failing storage, read-only media, missing files, and files of another graph."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path

import lance
import orjson
import pyarrow as pa
import pytest
from tests.commit.graphs import SCHEMA, SEED, assert_whole, create, ids, put, sidecars
from tests.sampling import every_nth
from tests.storage.faults import FaultyStore, Operation

from omnigraph.commit import store as store_module
from omnigraph.commit.create import CLAIM_PATH
from omnigraph.commit.format_version import CURRENT
from omnigraph.commit.manifest import STAMP
from omnigraph.commit.schema_files import CONTRACT, SOURCE_PATH
from omnigraph.errors import (
    AlreadyInitializedError,
    CatalogError,
    CorruptionError,
    Disposition,
    FormatError,
    InitializationClaimedError,
    NotFoundError,
    OmnigraphError,
    ReadOnlyError,
    StorageError,
)
from omnigraph.graph import Graph, init, open
from omnigraph.storage.ledger_seal import SEAL
from omnigraph.storage.objects import ObjectStore, open_store

ROOT = Path(__file__).resolve().parents[2]
PAIR = ("node:A", "node:B")

# Every call to the object store fails once before and once after it takes effect


@dataclass(frozen=True, slots=True)
class Act:
    """An action on a graph, and how to check whether it happened."""

    name: str
    do: Callable[[Graph], object]
    happened: Callable[[Graph], bool]


def start(graph: Graph) -> str:
    """The first commit of the graph."""
    return list(graph.commits)[-1].id


def transact(graph: Graph) -> None:
    """One transaction of two steps."""
    with graph.branch().transaction() as tx:
        tx.load({"A": pa.table({"k": ["new"]})}, mode="append")
        tx.load({"B": pa.table({"k": ["new"]})}, mode="append")


ACTS = [
    Act("commit", lambda g: put(g, ["new"], PAIR), lambda g: "new" in ids(g)),
    Act("commit on a branch", lambda g: put(g, ["new"], PAIR, branch="dev"), lambda g: "new" in ids(g, branch="dev")),
    Act("create a branch", lambda g: g.branches.create("made"), lambda g: "made" in g.branches),
    Act("delete a branch", lambda g: g.branches.delete("dev"), lambda g: "dev" not in g.branches),
    Act("create a tag", lambda g: g.tags.create("t"), lambda g: bool(g.tags.list())),
    Act("reset a branch", lambda g: g.branches.reset("dev", start(g)), lambda g: ids(g, branch="dev") == []),
    Act("commit by revert", lambda g: g.revert(g.branch().head.id), lambda g: ids(g) == []),
    Act("refresh", lambda g: g.refresh(), lambda g: True),
]
TRANSACTION = Act("commit by transaction", transact, lambda g: ids(g) == ids(g, "node:B") == sorted([*SEED, "new"]))


def faulty(graph: Graph) -> FaultyStore:
    """Send all calls of a graph through one faulty store."""
    graph.session.store.objects = graph.session.store.leases = faults = FaultyStore(graph.session.store.objects)
    graph.session.store.timeouts.ttl = 0.3
    return faults


def numbered(calls: list[tuple[Operation, str]]) -> Iterator[tuple[Operation, int]]:
    """Each call with its number among the calls of its kind."""
    seen: Counter[Operation] = Counter()
    for operation, _ in calls:
        seen[operation] += 1
        yield operation, seen[operation]


def calls_of(act: Act, place: Path) -> list[tuple[Operation, str]]:
    with create(place) as graph:
        graph.branches.create("dev")
        faults = faulty(graph)
        act.do(graph)
        return list(faults.calls)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.slow
@pytest.mark.parametrize("act", every_nth([*ACTS, TRANSACTION], 2), ids=lambda act: act.name)
def test_any_failed_storage_call_gives_a_typed_error_and_the_graph_stays_usable(
    tmp_path: Path, act: Act, when: str
) -> None:
    """The caller gets a result or a typed error, "nothing happened" is true, and the graph works afterwards."""
    calls = calls_of(act, tmp_path / "rehearsal")
    assert calls
    for number, (operation, nth) in enumerate(numbered(calls)):
        place = tmp_path / f"{number}"
        with create(place) as graph:
            graph.branches.create("dev")
            faults = faulty(graph)
            getattr(faults, f"fail_{when}")(operation, nth)
            error: OmnigraphError | None = None
            try:
                act.do(graph)
            except OmnigraphError as raised:
                error = raised
            faults.reset()
            with open(place) as reopened:
                happened = act.happened(reopened)
                assert happened or error is not None, (operation, nth)
                if error is not None and error.disposition is not Disposition.UNKNOWN and "commit" in act.name:
                    assert not happened, f"{error!r} says that nothing happened"
                reopened.session.store.timeouts.ttl = 0.3
                put(reopened, ["next"], PAIR)
                assert_whole(reopened)
            put(graph, ["last"], PAIR)
            assert_whole(graph)


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.name)
def test_slow_storage_does_not_make_an_operation_fail(place: Path, act: Act) -> None:
    with create(place) as graph:
        graph.branches.create("dev")
        faults = faulty(graph)
        graph.session.store.timeouts.ttl = 5
        operations: list[Operation] = ["get", "list", "create", "replace", "delete"]
        for operation in operations:
            faults.delay(operation, 0.2)
        act.do(graph)
        assert act.happened(graph)
        assert_whole(graph)
        assert graph.recovery.list() == []


# Creating a graph


def init_with(monkeypatch: pytest.MonkeyPatch, place: Path, prepare: Callable[[FaultyStore], None]) -> FaultyStore:
    """Create the next graph through a faulty store."""
    faults = FaultyStore(open_store(str(place), fsync=False))
    prepare(faults)

    def opened(*_: object, **__: object) -> ObjectStore:
        return faults

    monkeypatch.setattr(store_module, "open_store", opened)
    return faults


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_after_any_failed_call_of_init_a_graph_can_be_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Afterwards there is a graph, or a graph can be created: with `force` if files were left."""
    rehearsal = init_with(monkeypatch, tmp_path / "rehearsal", lambda faults: None)
    init(tmp_path / "rehearsal", SCHEMA)
    calls = list(rehearsal.calls)
    for number, (operation, nth) in enumerate(numbered(calls)):
        place = tmp_path / f"{number}"
        init_with(monkeypatch, place, methodcaller(f"fail_{when}", operation, nth))
        try:
            init(place, SCHEMA).close()
            failed = False
        except OmnigraphError:
            failed = True
        monkeypatch.undo()
        try:
            open(place).close()
        except NotFoundError:
            assert failed
            (place / CLAIM_PATH).unlink(missing_ok=True)
            init(place, SCHEMA, force=True).close()
        with open(place) as graph:
            put(graph, SEED, PAIR)
            assert_whole(graph)


def test_only_one_of_two_concurrent_inits_creates_the_graph(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second checks before the first is done, and claims after the first has finished: it must change nothing."""
    real = open_store(str(place), fsync=False)

    class Late(FaultyStore):
        def create(self, path: str, data: bytes) -> str:
            if path == CLAIM_PATH:
                monkeypatch.undo()
                with create(place):
                    pass
            return super().create(path, data)

    late = Late(real)
    monkeypatch.setattr(store_module, "open_store", lambda *_, **__: late)
    with pytest.raises(AlreadyInitializedError):
        init(place, SCHEMA, force=True)
    with open(place) as graph:
        assert ids(graph) == sorted(SEED)
        assert not graph.session.store.objects.exists(CLAIM_PATH)
        assert_whole(graph)


def test_init_respects_the_claim_of_a_live_process(place: Path) -> None:
    objects = open_store(str(place), fsync=False)
    objects.create(CLAIM_PATH, orjson.dumps({"version": 1, "attempt_id": "x"}))
    with pytest.raises(InitializationClaimedError) as caught:
        init(place, SCHEMA)
    assert CLAIM_PATH in str(caught.value.hint)
    assert [info.path for info in objects.list()] == [CLAIM_PATH]


@pytest.mark.parametrize("trouble", [b"", b"not a manifest"])
def test_init_refuses_a_graph_whose_manifest_cannot_be_read(graph: Graph, place: Path, trouble: bytes) -> None:
    """Otherwise `init` would overwrite an existing graph."""
    for version in (place / "__manifest" / "_versions").iterdir():
        version.write_bytes(trouble)
    with pytest.raises(StorageError):
        open(place)
    with pytest.raises(StorageError):
        init(place, SCHEMA, force=True)
    assert (place / "nodes").exists()


# Read-only media


_BECOME_NOBODY = """
import os, sys
if os.getuid() == 0:
    os.setuid(65534)
try:
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
except PermissionError:
    sys.exit(77)
"""


def as_nobody(code: str) -> str:
    """Run a program as a user who owns none of these files.

    The program changes its own user id: to start it as another user, Python would fork itself, which may be large.
    """
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "LANCE_LOG": "error", "HOME": "/nonexistent"}
    command = [sys.executable, "-c", _BECOME_NOBODY, code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=False)
    if done.returncode == 77:
        pytest.skip("no other user may run this Python")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def public_place() -> Iterator[Path]:
    """A directory that every user can reach, unlike the directories of pytest."""
    directory = Path(tempfile.mkdtemp(prefix="omnigraph-test-"))
    directory.chmod(0o755)
    yield directory / "graph"
    shutil.rmtree(directory)


def test_a_graph_on_read_only_media_can_be_read_and_not_written(public_place: Path) -> None:
    """Reading needs no write permission. Writing fails with a clear error and changes nothing."""
    place = public_place
    create(place).close()
    files = [place, *place.rglob("*")]
    before = sorted(files)
    try:
        for path in files:
            path.chmod(0o555 if path.is_dir() else 0o444)
        read = "from omnigraph.graph import open; from tests.commit.graphs import ids"
        assert as_nobody(f"{read}; print(ids(open({str(place)!r}, read_only=True)))") == str(sorted(SEED))
        refused = as_nobody(
            f"{read}\nfrom omnigraph.errors import StorageError\n"
            f"try: open({str(place)!r})\nexcept StorageError as error: print(error.kind)"
        )
        assert refused == "Configuration"
        for path in files:
            if path.name == "_versions" and path.parent.name == "__manifest":
                path.chmod(0o000)
        unreadable = as_nobody(
            f"{read}\nfrom omnigraph.errors import StorageError\n"
            f"try: open({str(place)!r}, read_only=True)\nexcept StorageError as error: print('refused')"
        )
        assert unreadable == "refused", "a graph that may not be read is not 'no graph'"
    finally:
        for path in files:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert sorted([place, *place.rglob("*")]) == before


def test_read_only_handle_writes_nothing(graph: Graph, place: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    with open(place, read_only=True) as reader:
        assert ids(reader) == sorted(SEED)
        reader.refresh()
        for attempt in (
            lambda: put(reader, ["new"]),
            lambda: reader.branches.create("dev"),
            lambda: reader.branches.delete("dev"),
            lambda: reader.tags.create("t"),
            lambda: reader.tags.delete("t"),
        ):
            with pytest.raises(ReadOnlyError):
                attempt()
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before


# Schema files


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("path", CONTRACT)
def test_a_missing_schema_file_is_reported(graph: Graph, place: Path, path: str, read_only: bool) -> None:
    kept = graph.session.store.objects.get(path).data
    graph.session.store.objects.delete(path)
    with pytest.raises(NotFoundError, match=path) as caught:
        open(place, read_only=read_only)
    assert "backup" in str(caught.value.hint)
    assert not graph.session.store.objects.exists(path), "nothing is made again silently"
    graph.session.store.objects.put(path, kept)
    open(place, read_only=read_only).close()


def test_an_edited_schema_file_is_refused_unless_only_comments_changed(graph: Graph, place: Path) -> None:
    """A new comment is accepted. A change of the schema's meaning is refused."""
    source = graph.session.store.objects.get(SOURCE_PATH).data
    graph.session.store.objects.put(SOURCE_PATH, source + b"\n// a remark\n")
    open(place).close()
    graph.session.store.objects.put(SOURCE_PATH, source.replace(b"node C", b"node D"))
    with pytest.raises((CatalogError, CorruptionError)):
        open(place)
    graph.session.store.objects.put(SOURCE_PATH, source + b"\nnode {")
    with pytest.raises(OmnigraphError):
        open(place)
    graph.session.store.objects.put(SOURCE_PATH, source)
    with open(place) as reopened:
        assert_whole(reopened)


def test_schema_files_of_another_graph_are_refused(graph: Graph, place: Path, tmp_path: Path) -> None:
    """The files match each other, but not the tables."""
    other = init(tmp_path / "other", SCHEMA.replace("node C", "node D").replace("-> C", "-> D"))
    for path in CONTRACT:
        graph.session.store.objects.put(path, other.session.store.objects.get(path).data)
    with pytest.raises(CorruptionError):
        open(place)


# The format stamp


def stamp(place: Path, value: str | None) -> None:
    """Write the format stamp of a graph."""
    dataset = lance.dataset(str(place / "__manifest"))
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    metadata = {key: text for key, text in (dataset.schema.metadata or {}).items() if key not in (STAMP.encode(), SEAL)}
    schema: pa.Schema = dataset.schema.with_metadata(metadata if value is None else {**metadata, STAMP: value})
    lance.LanceDataset.commit(dataset, lance.LanceOperation.Overwrite(schema, fragments), read_version=dataset.version)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (str(CURRENT + 1), FormatError, "upgrade omnigraph"),
        ("0", FormatError, "export"),
        ("-1", FormatError, "export"),
        ("soon", CorruptionError, "soon"),
        (None, CorruptionError, "stamp"),
    ],
)
def test_an_unsupported_format_stamp_is_refused(
    graph: Graph, place: Path, value: str | None, error: type[OmnigraphError], says: str, read_only: bool
) -> None:
    stamp(place, value)
    with pytest.raises(error) as caught:
        open(place, read_only=read_only)
    assert says in caught.value.render()
    stamp(place, str(CURRENT))
    open(place, read_only=read_only).close()


def test_closing_a_handle_needs_no_storage(graph: Graph, place: Path) -> None:
    shutil.rmtree(place)
    graph.close()
    graph.close()
    with pytest.raises(OmnigraphError):
        put(graph, ["new"])
    assert sidecars(graph) == []
