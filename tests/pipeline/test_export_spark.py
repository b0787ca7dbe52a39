"""An export by Spark equals a local export: NDJSON byte by byte, Parquet and Arrow row by row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest
from tests.pipeline.test_source import ROWS, SCHEMA
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.pipeline import export as exporting
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.spark.session import Session

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    made = omnigraph.init(tmp_path_factory.mktemp("export") / "g", SCHEMA)
    made.load(ROWS, mode="append")
    odd = ["", '"', "\\", "\n", "é", "z\x00", "漢字", "𝄞"]
    made.load(
        pa.table({"name": [f"n{text}{i:03}" for i, text in enumerate(odd * 30)]}), mode="append", type_name="Place"
    )
    made.mutate('query x() { delete Place where name = "n000" }')
    made.tags.create("then")
    made.load([{"type": "Thing", "data": {"name": "later"}}], mode="append")
    return made


@pytest.fixture(params=[1 << 30, 500])
def _parts(request: pytest.FixtureRequest, thresholds: Thresholds) -> None:
    """One partition for each type, or several."""
    thresholds(exporting, PARTITION_BYTES=request.param)


@pytest.mark.usefixtures("_parts")
def test_ndjson_equals_a_local_export_byte_by_byte(session: Session, graph: Graph, tmp_path: Path) -> None:
    receipt = Pipeline(graph, session).export(tmp_path / "there.ndjson")
    assert receipt == graph.export(tmp_path / "here.ndjson")
    assert (tmp_path / "there.ndjson").read_bytes() == (tmp_path / "here.ndjson").read_bytes()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["here.ndjson", "there.ndjson"]
    assert list((Path(graph.uri) / "__staging").rglob("*.ndjson")) == []


def test_selected_types_of_an_earlier_state_can_be_exported(session: Session, graph: Graph, tmp_path: Path) -> None:
    Pipeline(graph, session).export(tmp_path / "there", types=["Thing", "Likes"], at="then")
    graph.export(tmp_path / "here", types=["Thing", "Likes"], at="then")
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("_parts")
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_columnar_files_have_the_same_rows(session: Session, graph: Graph, tmp_path: Path, format: str) -> None:
    receipt = Pipeline(graph, session).export(tmp_path / "there", format=format)
    assert receipt == graph.export(tmp_path / "here", format=format)
    for file in sorted((tmp_path / "here").iterdir()):
        parts = sorted((tmp_path / "there" / file.name).iterdir())
        here = pa.dataset.dataset(file, format=format).to_table()
        there = pa.concat_tables([pa.dataset.dataset(part, format=format).to_table() for part in parts])
        assert there.schema == here.schema
        assert there.equals(here)
    again = omnigraph.init(tmp_path / "again", SCHEMA)
    again.load(sorted((tmp_path / "there").iterdir()), mode="append")
    assert b"".join(again.export()) == b"".join(graph.export())


def test_invalid_exports_are_refused(session: Session, graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'xml' is not an export format"):
        Pipeline(graph, session).export(tmp_path / "x", format="xml")
    with pytest.raises(InputError, match="there is no type 'Nothing'"):
        Pipeline(graph, session).export(tmp_path / "x", types="Nothing")
    with pytest.raises(InputError, match="local files"):
        Pipeline(graph, session).export("gs://bucket/x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InputError, match="not an empty directory"):
        Pipeline(graph, session).export(tmp_path / "full", format="arrow")
