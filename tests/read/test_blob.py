"""A blob is read in ranges from a fixed snapshot, and its etag changes with its bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import BlobIntegrityError, BlobRangeError, InputError, NotFoundError, ResourceLimitError
from omnigraph.graph import Graph
from omnigraph.read import blobs
from omnigraph.read.blobs import RANGE_BYTES
from omnigraph.settings import FSYNC

SCHEMA = """
node Ship { name: String @key  crew: I32?  photo: Blob?  film: Blob? }
node Docked { name: String @key }
edge Docked: Ship -> Ship { log: Blob?  @key(src, dst) }
"""
LARGE = bytes(range(256)) * (RANGE_BYTES // 256) + b"the end"


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FSYNC.name, "0")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        photos = pa.array([b"picture", b"", None, LARGE], pa.large_binary())
        made.load(
            {
                "Ship": pa.table({"name": ["argo", "empty", "none", "large"], "photo": photos}),
                "edge:Docked": pa.table({"from": ["argo"], "to": ["none"], "log": [b"log"]}),
            },
            mode="append",
        )
        yield made


def test_ranges_are_half_open(graph: Graph) -> None:
    photo = graph.blob("Ship", "argo", "photo")
    assert (photo.size, photo.uri) == (7, None)
    assert photo.read() == b"picture"
    assert photo.read(2) == b"cture"
    assert photo.read(2, 4) == b"ct"
    assert photo.read(7) == photo.read(3, 3) == b""
    assert graph.blob("Ship", "empty", "photo").read() == b""


@pytest.mark.parametrize(("start", "end"), [(8, None), (-1, None), (0, 8), (5, 4), (0, -1)])
def test_a_range_outside_of_the_blob_is_refused(graph: Graph, start: int, end: int | None) -> None:
    photo = graph.blob("Ship", "argo", "photo")
    for read in (photo.read, photo.iter):
        with pytest.raises(BlobRangeError) as caught:
            read(start, end)
        assert (caught.value.start, caught.value.end, caught.value.length) == (start, end, 7)


def test_a_single_read_is_limited_and_iteration_is_not(graph: Graph, tmp_path: Path) -> None:
    photo = graph.blob("Ship", "large", "photo")
    assert photo.read(0, RANGE_BYTES) == LARGE[:RANGE_BYTES]
    with pytest.raises(ResourceLimitError) as caught:
        photo.read()
    assert (caught.value.resource, caught.value.limit) == ("Blob read range bytes", RANGE_BYTES)
    pieces = list(photo.iter())
    assert [len(piece) for piece in pieces] == [RANGE_BYTES, 7]
    assert b"".join(pieces) == LARGE
    assert b"".join(photo.iter(5, RANGE_BYTES + 6)) == LARGE[5 : RANGE_BYTES + 6]
    photo.save(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == LARGE


def test_a_failed_download_leaves_the_old_file(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "photo").write_bytes(b"before")
    photo = graph.blob("Ship", "large", "photo")
    read = blobs.Blob._bytes

    def fail(blob: blobs.Blob, start: int, end: int) -> bytes:
        if start:
            raise BlobIntegrityError("Ship.photo", "half way")
        return read(blob, start, end)

    monkeypatch.setattr(blobs.Blob, "_bytes", fail)
    with pytest.raises(BlobIntegrityError):
        photo.save(place / "photo")
    assert [path.read_bytes() for path in place.iterdir()] == [b"before"]
    with pytest.raises(InputError, match="cannot write"):
        graph.blob("Ship", "argo", "photo").save(tmp_path / "no" / "where")


def test_missing_blobs_types_and_properties_are_named(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match="is null"):
        graph.blob("Ship", "none", "photo")
    with pytest.raises(NotFoundError, match="there is no Ship 'nobody'"):
        graph.blob("Ship", "nobody", "photo")
    with pytest.raises(NotFoundError, match="no type node:Shop"):
        graph.blob("Shop", "argo", "photo")
    with pytest.raises(InputError, match="no property 'foto'") as caught:
        graph.blob("Ship", "argo", "foto")
    assert caught.value.hint == "did you mean 'photo'?"
    with pytest.raises(InputError, match=r"Ship\.crew is not a Blob"):
        graph.blob("Ship", "argo", "crew")


def test_blobs_of_edges_can_be_read(graph: Graph) -> None:
    assert graph.blob("edge:Docked", '["argo","none"]', "log").read() == b"log"


def test_a_blob_handle_reads_its_snapshot(graph: Graph) -> None:
    before = graph.blob("Ship", "argo", "photo")
    first = graph.snapshot()
    graph.branches.create("work")
    change = pa.table({"name": ["argo"], "photo": [b"other"]})
    graph.load({"Ship": change}, mode="merge", branch="work")
    assert before.snapshot_id == first.id == "manifest:main:v2"
    assert before.commit_id == first.commit.id
    after = graph.blob("Ship", "argo", "photo", branch="work")
    assert (after.read(), after.snapshot_id) == (b"other", "manifest:work:v3")
    assert before.read() == graph.blob("Ship", "argo", "photo").read() == b"picture"
    graph.load({"Ship": change}, mode="merge")
    for at in (first, first.commit.id):
        assert graph.blob("Ship", "argo", "photo", at=at).read() == b"picture"
    with pytest.raises(InputError, match="already belongs to a branch"):
        graph.blob("Ship", "argo", "photo", branch="work", at=first)


def test_the_etag_changes_only_when_the_bytes_change(graph: Graph) -> None:
    def tag(**where: str) -> str:
        etag = graph.blob("Ship", "argo", "photo", **where).etag
        assert etag is not None
        return etag

    first = tag()
    assert re.fullmatch(r'"[0-9a-f]{32}"', first)
    assert graph.blob("Ship", "empty", "photo").etag != first
    graph.branches.create("work")
    graph.load({"Ship": pa.table({"name": ["new"], "photo": [b"picture"]})}, mode="append")
    assert tag() == tag(branch="work") == first
    assert graph.blob("Ship", "new", "photo").etag != first
    # Two branches have the same version number, and other bytes of the same length at the same position.
    graph.load({"Ship": pa.table({"name": ["argo"], "photo": [b"PICTURE"]})}, mode="merge", branch="work")
    graph.load({"Ship": pa.table({"name": ["argo"], "photo": [b"Picture"]})}, mode="merge")
    assert len({first, tag(), tag(branch="work")}) == 3
    assert tag(branch="work") == tag(branch="work")


def test_a_column_with_another_property_id_is_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "PROPERTY_ID", "omnigraph.something_else")
    with pytest.raises(BlobIntegrityError, match="another property"):
        graph.blob("Ship", "argo", "photo")
