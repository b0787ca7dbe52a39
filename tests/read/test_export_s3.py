"""An export to S3 equals a local one. A partial export is never mistaken for a complete one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.s3_server import S3Root
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import InputError, StorageError
from omnigraph.graph import Graph
from omnigraph.read.export.export import TypeExport
from omnigraph.settings import FSYNC
from omnigraph.storage.files import s3_output
from omnigraph.storage.files.s3_output import UNFINISHED, S3Output
from omnigraph.storage.objects import s3
from omnigraph.storage.objects.s3 import S3ObjectStore
from omnigraph.storage.uri import GraphUri

pytestmark = pytest.mark.s3

FORMATS = ("ndjson", "parquet", "arrow")
SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob?  tags: [String]? }
node Empty { name: String @key }
edge Knows: Person -> Person { since: Date?  @key(src, dst) }
"""


@pytest.fixture
def graph(tmp_path: Path, s3_root: S3Root, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """A local graph. The environment points nowhere, so that only its own options reach the bucket."""
    monkeypatch.setenv(FSYNC.name, "0")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with omnigraph.init(tmp_path / "graph", SCHEMA, storage_options=s3_root.options) as made:
        people = {"name": ["ann", "bob", "é"], "age": [1, None, 3], "tags": [["a"], [], None]}
        made.load({"Person": pa.table(people)}, mode="append")
        made.load([{"type": "Person", "data": {"name": "pic", "photo": "base64:aGVsbG8="}}], mode="append")
        made.load({"Knows": pa.table({"from": ["ann"], "to": ["bob"]})}, mode="append")
        yield made


@pytest.fixture
def store(s3_root: S3Root) -> S3ObjectStore:
    return S3ObjectStore(GraphUri.parse(s3_root.uri, s3_root.options))


def names(store: S3ObjectStore) -> list[str]:
    return [info.path for info in store.list()]


@pytest.mark.parametrize("format", FORMATS)
def test_an_s3_export_equals_a_local_one_and_loads_back(
    graph: Graph, store: S3ObjectStore, s3_root: S3Root, tmp_path: Path, format: str
) -> None:
    name = "all.ndjson" if format == "ndjson" else "deep/all"
    receipt = graph.export(f"{s3_root.uri}/{name}", format=format)
    here = tmp_path / "here"
    assert receipt == graph.export(here, format=format)
    written = {name: here} if format == "ndjson" else {f"{name}/{file.name}": file for file in here.iterdir()}
    assert {path: store.get(path).data for path in names(store)} == {
        path: file.read_bytes() for path, file in written.items()
    }
    with omnigraph.init(tmp_path / "copy", SCHEMA, storage_options=s3_root.options) as copy:
        copy.load(f"{s3_root.uri}/{name}", mode="append")
        assert b"".join(copy.export()) == b"".join(graph.export())


def test_a_prefix_that_is_not_empty_is_refused(graph: Graph, store: S3ObjectStore, s3_root: S3Root) -> None:
    graph.export(f"{s3_root.uri}/all", format="arrow")
    before = names(store)
    for format in ("arrow", "parquet"):
        with pytest.raises(InputError, match="is not an empty directory"):
            graph.export(f"{s3_root.uri}/all/", format=format)
        with pytest.raises(InputError, match="is not an empty directory"):
            graph.export(f"{s3_root.uri}/all/node.Empty.arrow", format=format)
    for file in (f"{s3_root.uri}/all", "s3://graphs"):
        with pytest.raises(InputError, match="it is a directory"):
            graph.export(file)
    assert names(store) == before
    graph.export(f"{s3_root.uri}/all.ndjson", types="Empty")
    graph.export(f"{s3_root.uri}/all.ndjson")  # a file is replaced, as on a local disk
    assert store.get("all.ndjson").data == b"".join(graph.export())


def test_a_missing_bucket_is_named(graph: Graph) -> None:
    for format in FORMATS:
        with pytest.raises(StorageError, match="NoSuchBucket") as caught:
            graph.export("s3://there-is-none/all", format=format)
        assert "s3://there-is-none" in str(caught.value)
        assert "the bucket does not exist" in (caught.value.hint or "")


@pytest.mark.parametrize("format", FORMATS)
def test_a_failed_export_leaves_no_object_and_keeps_the_old_one(
    graph: Graph, store: S3ObjectStore, s3_root: S3Root, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    before = []
    if format == "ndjson":
        store.put("all", b"what was there")
        before = ["all"]
    rows = TypeExport._rows
    seen: list[str] = []

    def fail(part: TypeExport) -> Iterator[pa.Table]:
        yield from rows(part)
        if part.key == "node:Person":
            seen.extend(names(store))
            raise RuntimeError("half way")

    monkeypatch.setattr(TypeExport, "_rows", lambda part, largest=None: fail(part))
    with pytest.raises(RuntimeError, match="half way"):
        graph.export(f"{s3_root.uri}/all", format=format)
    assert names(store) == before
    if format == "ndjson":
        assert store.get("all").data == b"what was there"
    else:  # some files were written
        assert seen == [f"all/{UNFINISHED}", f"all/edge.Knows.{format}", f"all/node.Empty.{format}"]


def test_a_partial_export_of_a_killed_process_does_not_load(
    graph: Graph, store: S3ObjectStore, s3_root: S3Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cleanup runs, as after a kill."""
    rows = TypeExport._rows

    def die(part: TypeExport) -> Iterator[pa.Table]:
        yield from rows(part)
        if part.key == "node:Person":
            monkeypatch.setattr(S3ObjectStore, "delete_files", _unreachable)
            raise RuntimeError("killed")

    monkeypatch.setattr(TypeExport, "_rows", lambda part, largest=None: die(part))
    with pytest.raises(RuntimeError, match="killed"):
        graph.export(f"{s3_root.uri}/all", format="parquet")
    assert names(store) == [f"all/{UNFINISHED}", "all/edge.Knows.parquet", "all/node.Empty.parquet"]
    with pytest.raises(InputError, match="is an export that is not finished"):
        graph.load(f"{s3_root.uri}/all", mode="merge")
    with pytest.raises(InputError, match="is not an empty directory"):
        graph.export(f"{s3_root.uri}/all", format="parquet")


def _unreachable(*_: object) -> None:
    raise StorageError("no answer", kind=omnigraph.errors.StorageErrorKind.TRANSIENT, uri="s3://graphs", path="")


def test_one_of_two_concurrent_exports_succeeds(
    store: S3ObjectStore, s3_root: S3Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = GraphUri.parse(f"{s3_root.uri}/all", s3_root.options)
    first, second = S3Output(target), S3Output(target)
    monkeypatch.setattr(s3_output.S3Output, "check_directory", lambda _: None)  # both checked before either began
    with first.directory() as directory:
        with pytest.raises(InputError, match="is not an empty directory"), second.directory():
            pass
        with directory.file("a") as file:
            file.write(b"whole")
    with pytest.raises(InputError, match="is not an empty directory"), second.directory():
        pass
    assert names(store) == ["all/a"]


def test_a_large_file_uses_a_multipart_upload(store: S3ObjectStore, thresholds: Thresholds) -> None:
    thresholds(s3, PART_BYTES=5 << 20)
    piece = bytes(range(256)) * (4 << 10)
    with store.writing("large") as file:
        for _ in range(12):
            assert file.write(piece) == len(piece)
        assert names(store) == []
    assert store.get("large").data == piece * 12
    assert store.head("large").etag.strip('"').endswith("-3")  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="half way"):
        _write_half(store, piece)
    assert store.get("large").data == piece * 12


def test_a_buffer_may_be_reused_after_the_write(store: S3ObjectStore) -> None:
    room = bytearray(b"before")
    with store.writing("file") as file:
        file.write(room)
        room[:] = b"after!"
        file.write(memoryview(room)[:0])
        file.write(pa.py_buffer(b", and more"))
    assert store.get("file").data == b"before, and more"


def _write_half(store: S3ObjectStore, piece: bytes) -> None:
    with store.writing("large") as file:
        for _ in range(12):
            file.write(b"other" + piece)
        raise RuntimeError("half way")
