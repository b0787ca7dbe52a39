"""An export by tasks to S3 equals an export to a directory, and loads back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipeline.in_process import InProcess
from tests.s3_server import S3Root
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import InputError, StorageError
from omnigraph.graph import Graph
from omnigraph.pipeline import export as exporting
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.storage.files.s3_output import UNFINISHED, S3Directory
from omnigraph.storage.objects.s3 import S3ObjectStore
from omnigraph.storage.uri import GraphUri

pytestmark = pytest.mark.s3

SCHEMA = """
node Person { name: String @key  age: I32?  tags: [String]?  at: Vector(2)? }
node Empty { name: String @key }
edge Knows: Person -> Person { since: DateTime?  @key(src, dst) }
"""
NAMES = [f"p{number:03}" for number in range(40)]


@pytest.fixture
def session() -> InProcess:
    return InProcess()


@pytest.fixture
def graph(tmp_path: Path, s3_root: S3Root) -> Graph:
    made = omnigraph.init(tmp_path / "graph", SCHEMA, storage_options=s3_root.options)
    for some in (NAMES[::2], NAMES[1::2]):
        at = pa.array([[1.0, 2.0]] * len(some), pa.list_(pa.float32(), 2))
        made.load({"Person": pa.table({"name": some, "age": range(len(some)), "at": at})}, mode="append")
    made.load({"Knows": pa.table({"from": NAMES[1:], "to": NAMES[:-1]})}, mode="append")
    return made


@pytest.fixture
def store(s3_root: S3Root) -> S3ObjectStore:
    return S3ObjectStore(GraphUri.parse(s3_root.uri, s3_root.options))


def names(store: S3ObjectStore) -> list[str]:
    return [info.path for info in store.list()]


def test_an_ndjson_export_to_s3_equals_a_local_one(
    graph: Graph, session: InProcess, store: S3ObjectStore, s3_root: S3Root
) -> None:
    Pipeline(graph, session).export(f"{s3_root.uri}/all.ndjson")
    assert store.get("all.ndjson").data == b"".join(graph.export())
    assert names(store) == ["all.ndjson"]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_columnar_exports_to_s3_equal_local_ones(
    graph: Graph,
    session: InProcess,
    store: S3ObjectStore,
    s3_root: S3Root,
    tmp_path: Path,
    thresholds: Thresholds,
    format: str,
) -> None:
    thresholds(exporting, PARTITION_BYTES=1000)
    receipt = Pipeline(graph, session).export(f"{s3_root.uri}/all", format=format)
    assert receipt == Pipeline(graph, session).export(tmp_path / "here", format=format)
    here = {f"all/{file.relative_to(tmp_path / 'here')}": file for file in (tmp_path / "here").rglob("part-*")}
    assert names(store) == sorted(here)
    assert f"all/node.Person.{format}/part-00001.{format}" in here
    assert f"all/node.Empty.{format}/part-00000.{format}" in here
    assert all(store.get(path).data == file.read_bytes() for path, file in here.items())

    again = omnigraph.init(tmp_path / "again", SCHEMA, storage_options=s3_root.options)
    again.load(f"{s3_root.uri}/all/*", mode="append")
    assert b"".join(again.export()) == b"".join(graph.export())

    for taken in ("all", f"all/node.Empty.{format}"):
        with pytest.raises(InputError, match="is not an empty directory"):
            Pipeline(graph, session).export(f"{s3_root.uri}/{taken}", format=format)
        with pytest.raises(InputError, match="it is a directory"):
            Pipeline(graph, session).export(f"{s3_root.uri}/{taken}")
    assert names(store) == sorted(here)


def test_a_missing_bucket_is_reported_before_the_export(
    graph: Graph, session: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "_write_parts", lambda *_: pytest.fail("work was begun"))
    for format in ("ndjson", "parquet"):
        with pytest.raises(StorageError, match="NoSuchBucket"):
            Pipeline(graph, session).export("s3://there-is-none/all", format=format)


def test_a_failed_export_leaves_no_objects(
    graph: Graph, session: InProcess, store: S3ObjectStore, s3_root: S3Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen = S3Directory.file, []

    def fail(directory: S3Directory, name: str) -> object:
        if "Person" in name:
            seen.extend(names(store))
            with pytest.raises(InputError, match="is an export that is not finished"):
                graph.load(f"{s3_root.uri}/all/edge.Knows.arrow", mode="merge")
            raise RuntimeError("half way")
        return file(directory, name)

    monkeypatch.setattr(S3Directory, "file", fail)
    with pytest.raises(RuntimeError, match="half way"):
        Pipeline(graph, session).export(f"{s3_root.uri}/all", format="arrow")
    assert names(store) == []
    marks = [f"all/{name}{UNFINISHED}" for name in ("", "edge.Knows.arrow/", "node.Empty.arrow/", "node.Person.arrow/")]
    parts = [f"all/{name}/part-00000.arrow" for name in ("edge.Knows.arrow", "node.Empty.arrow")]
    assert seen == sorted(marks + parts)
