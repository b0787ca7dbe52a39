"""Staged files and their directory are removed when the work ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.in_process import InProcess
from tests.pipeline.test_embed_spark import Failing, Model

import omnigraph
from omnigraph.engine.engines import SparkOptions
from omnigraph.errors import ConstraintError, EmbeddingUnavailableError, MergeConflictsError, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.pipeline.analytics import analyse
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.spark.staging import Staging

SCHEMA = """
node Note { name: String @key  text: String?  rank: F64?  vec: Vector(4)? @embed("text") }
edge Cites: Note -> Note
"""
_NAMES = [f"n{number}" for number in range(200)]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "g", SCHEMA, embedder=Model()) as made:
        made.load({"Note": _notes(), "Cites": pa.table({"from": _NAMES[1:], "to": _NAMES[:-1]})}, mode="append")
        made.branches.create("draft")
        made.load({"Note": _notes("other").slice(0, 5)}, mode="merge", branch="draft")
        made.load({"Note": _notes("more").slice(9, 5)}, mode="merge")
    with omnigraph.open(tmp_path / "g", embedder=Model("another")) as opened:
        yield opened


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[Staging]:
    """All staging directories, so that a test knows that something was staged."""
    made: list[Staging] = []
    at = Staging.new.__func__  # type: ignore[attr-defined]

    def remembered(cls: type[Staging], uri: Any) -> Staging:
        made.append(at(cls, uri))
        return made[-1]

    monkeypatch.setattr(Staging, "new", classmethod(remembered))
    return made


def _notes(text: str = "text") -> pa.Table:
    return pa.table({"name": _NAMES, "text": [f"{text} {number}" for number in range(len(_NAMES))]})


def _load(graph: Graph, place: Path) -> None:
    Pipeline(graph, InProcess()).load({"Note": _notes("new")}, mode="overwrite", split_bytes=1000, branch="draft")


def _merge_rows(graph: Graph, place: Path) -> None:
    Pipeline(graph, InProcess()).load({"Note": _notes("new")}, mode="merge", split_bytes=1000, merge_threshold=0)


def _merge(graph: Graph, place: Path) -> None:
    Pipeline(graph, InProcess()).merge("draft")


def _embed(graph: Graph, place: Path) -> None:
    assert Pipeline(graph, InProcess()).embed().commit is not None


def _optimize(graph: Graph, place: Path) -> None:
    options = SparkOptions(InProcess(), segment_rows=50)
    graph.optimize(engine="spark", rows_per_fragment=50, spark=options)


def _export(graph: Graph, place: Path) -> None:
    Pipeline(graph, InProcess()).export(place / "out.ndjson")


@pytest.mark.parametrize("work", [_load, _merge_rows, _merge, _embed, _optimize, _export])
def test_finished_work_leaves_no_staged_files(
    graph: Graph, tmp_path: Path, places: list[Staging], work: Callable[..., None]
) -> None:
    work(graph, tmp_path)
    assert len(places) == 1
    assert not (Path(graph.uri) / "__staging").exists()


def _wrong_load(graph: Graph, place: Path) -> None:
    edges = pa.table({"from": _NAMES, "to": [*_NAMES[1:], "nobody"]})
    Pipeline(graph, InProcess()).load({"Cites": edges}, mode="append", split_bytes=1000)


def _wrong_merge(graph: Graph, place: Path) -> None:
    graph.load({"Note": _notes("mine").slice(0, 5)}, mode="merge")
    Pipeline(graph, InProcess()).merge("draft")


def _wrong_embed(graph: Graph, place: Path) -> None:
    with omnigraph.open(graph.uri, embedder=Failing("third")) as opened:
        Pipeline(opened, InProcess()).embed()


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (_wrong_load, ConstraintError),
        (_wrong_merge, MergeConflictsError),
        (_wrong_embed, EmbeddingUnavailableError),
    ],
)
def test_failed_work_leaves_no_staged_files(
    graph: Graph, tmp_path: Path, places: list[Staging], work: Callable[..., None], error: type[OmnigraphError]
) -> None:
    with pytest.raises(error):
        work(graph, tmp_path)
    assert len(places) == 1
    assert not (Path(graph.uri) / "__staging").exists()


def test_writing_an_analytics_result_leaves_no_staged_files(graph: Graph) -> None:
    receipt = analyse(graph).pagerank().write("rank", branch="main")
    assert receipt.total == len(_NAMES)
    assert not (Path(graph.uri) / "__staging").exists()
