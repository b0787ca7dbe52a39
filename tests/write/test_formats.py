"""A new format is one class: its files are found, split and read like all others, locally and in S3."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit.conftest import _no_fsync
from tests.pipeline.in_process import InProcess
from tests.s3_server import S3Root

import omnigraph
from omnigraph.engine.engine_choice import input_bytes
from omnigraph.errors import InputError
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.storage.objects import open_store
from omnigraph.write.input import formats
from omnigraph.write.input.formats import Batched, RowFile, without_rows
from omnigraph.write.input.row_files import FileSplit, cut_file, row_files

__all__ = ["_no_fsync"]

SCHEMA = "node Person { name: String @key  age: I64? }"


@dataclass(frozen=True, slots=True)
class Blocks(Batched):
    """A JSON array of blocks, each an object of columns. A unit is a block."""

    name: str = "blocks"
    endings: tuple[str, ...] = (".blocks",)
    expands: bool = False

    def _blocks(self, file: RowFile) -> list[dict[str, list[object]]]:
        with file.input.open() as stream:
            found: list[dict[str, list[object]]] = json.load(stream)
            return found

    def sizes(self, file: RowFile) -> Sequence[int]:
        return [len(json.dumps(block)) for block in self._blocks(file)]

    def batches(self, file: RowFile, low: int, high: int | None) -> Iterator[pa.RecordBatch]:
        each = [pa.RecordBatch.from_pydict(block) for block in self._blocks(file)]
        yield without_rows(each[0].schema)
        yield from each[low:high]


@pytest.fixture
def data() -> Iterator[bytes]:
    """A file of the format, which is registered for the duration of the test."""
    added = Blocks()
    formats.FORMATS.append(added)
    blocks = [{"name": [f"p{i}", f"q{i}"], "age": [i, 7]} for i in range(20)]
    yield json.dumps(blocks).encode()
    formats.FORMATS.remove(added)


def test_files_of_a_custom_format_can_be_loaded(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "Person.blocks").write_bytes(data)
    (tmp_path / "people.blocks").write_bytes(data)
    graph = omnigraph.init(tmp_path / "graph", SCHEMA)
    (file,) = row_files(tmp_path / "Person.blocks")
    assert len(list(cut_file(FileSplit(file, None), 100))) > 5
    assert input_bytes(str(tmp_path / "Person.blocks")) == len(data)
    assert graph.load(tmp_path / "Person.blocks", mode="append").total == 40
    mapping = {"sources": [{"source": "people", "node": "Person", "properties": {"name": "name"}}]}
    pipeline = Pipeline(graph, InProcess())
    receipt = pipeline.load(str(tmp_path / "people.blocks"), mode="merge", mapping=mapping, split_bytes=100)
    assert receipt.total == 40
    (tmp_path / "Person.blocks.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"Person.blocks.gz cannot be loaded") as error:
        graph.load(tmp_path / "Person.blocks.gz", mode="append")
    assert ".blocks" in str(error.value.hint)


@pytest.mark.s3
def test_files_of_a_custom_format_can_be_loaded_from_s3(s3_root: S3Root, tmp_path: Path, data: bytes) -> None:
    open_store(s3_root.uri, s3_root.options).put("some/Person.blocks", data)
    graph = omnigraph.init(tmp_path / "graph", SCHEMA, storage_options=s3_root.options)
    assert graph.load(f"{s3_root.uri}/some/*.blocks", mode="append").total == 40


def test_file_name_endings_are_unique() -> None:
    endings = [ending for each in formats.FORMATS for ending in each.endings]
    assert len(endings) == len(set(endings))
    assert not set(endings) & set(formats.COMPRESSIONS)
