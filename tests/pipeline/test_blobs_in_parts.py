"""Tasks load blobs from URIs as one process does: with the same policy, checks and limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.in_process import InProcess
from tests.pipeline.test_same_graph import on_spark
from tests.pipeline.worlds import outcome
from tests.s3_server import S3Root
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import ResourceLimitError
from omnigraph.graph import Graph
from omnigraph.pipeline.load import blobs as by_tasks
from omnigraph.pipeline.load import partition_task
from omnigraph.pipeline.load.rows import SparkRows
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.spark.session import Session
from omnigraph.storage.objects import open_store
from omnigraph.write import external_blobs as in_process

SCHEMA = """
node Photo { name: String @key  image: Blob?  thumb: Blob? }
node Note { text: String?  scan: Blob? }
edge Of: Note -> Photo { print: Blob? }
"""
Change = Callable[[list[dict[str, Any]], Path], None]


def world(assets: Path) -> list[dict[str, Any]]:
    """Blobs as bytes, as URIs in several spellings, and nulls."""
    for i in range(8):
        (assets / f"{i} a.bin").write_bytes(bytes([i]) * (i + 1))
    spelled = [f"{assets.as_uri()}/{i}%20a.bin" for i in range(8)]
    records: list[dict[str, Any]] = []
    for i in range(40):
        image = [spelled[i % 8], "base64:aGk=", None, spelled[i % 3].replace("%20", "%20")][i % 4]
        records.append({"type": "Photo", "data": {"name": f"p{i}", "image": image, "thumb": spelled[7 - i % 8]}})
        records.append({"type": "Note", "data": {"id": f"n{i}", "text": f"{i}", "scan": spelled[i % 8]}})
        records.append({"edge": "Of", "from": f"n{i}", "to": f"p{i}", "data": {"id": f"e{i}", "print": image}})
    return records


def _nothing(records: list[dict[str, Any]], assets: Path) -> None:
    pass


def _not_allowed(records: list[dict[str, Any]], assets: Path) -> None:
    records[61]["data"]["scan"] = "file:///etc/passwd"
    records[60]["data"]["thumb"] = "https://user:secret@example.org/x"


def _not_there(records: list[dict[str, Any]], assets: Path) -> None:
    records[90]["data"]["thumb"] = f"{assets.as_uri()}/nowhere"
    records[31]["data"]["scan"] = f"{assets.as_uri()}/nowhere%20else"


def _broken(records: list[dict[str, Any]], assets: Path) -> None:
    """Violations between entities are reported first."""
    _not_there(records, assets)
    records[62]["to"] = "nobody"


def _repeated(records: list[dict[str, Any]], assets: Path) -> None:
    """The last of several records with one id wins, and the blobs of the others do not count."""
    early = {"type": "Note", "data": {"id": "n39", "scan": f"{assets.as_uri()}/nowhere"}}
    records.insert(0, early)


CHANGES: list[Change] = [_nothing, _not_allowed, _not_there, _broken, _repeated]


def graphs(place: Path, assets: Path) -> tuple[Graph, Graph]:
    made = [omnigraph.init(place / name, SCHEMA, blob_sources=[f"{assets.as_uri()}/"]) for name in ("here", "there")]
    for graph in made:  # existing rows for the merge
        graph.load([{"type": "Note", "data": {"id": "n1", "text": "old"}}], mode="append")
    return made[0], made[1]


def _compare(session: Session, place: Path, change: Change, mode: str, parts: int, **said: Any) -> str:
    assets = place / "assets"
    assets.mkdir()
    records = world(assets)
    change(records, assets)
    if mode == "append":  # every id is new
        records = [record for record in records if record["data"].get("id") not in ("n1", "e1")]
    source = place / "input"
    source.mkdir()
    (source / "all.ndjson").write_text("\n".join(json.dumps(record) for record in records))
    here, there = graphs(place, assets)
    expected = outcome(here, lambda: here.load(str(source), mode=mode, **said))
    found = outcome(there, lambda: on_spark(there, str(source), mode, session, parts, **said))
    assert found.said == expected.said
    assert found.content == expected.content
    for graph in (here, there):
        assert graph.verify().ok
    if found.said.startswith("{") and not said:
        for name in ("p0", "p3", "p8"):
            one, other = here.blob("Photo", name, "image"), there.blob("Photo", name, "image")
            assert (one.uri or one.read()) == (other.uri or other.read())  # an overwrite keeps references
    assert not (place / "there" / "__staging").exists()
    return found.said


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("parts", [1, 5])
def test_loading_blobs_in_partitions_gives_the_same_result(
    tmp_path: Path, change: Change, mode: str, parts: int
) -> None:
    said = _compare(InProcess(), tmp_path, change, mode, parts)
    if change is _not_allowed:
        assert said.startswith("ExternalBlobPolicyError")
        assert "secret" not in said
    if change is _not_there:
        assert said.startswith("ExternalBlobSourceError")
    if change is _broken:
        assert said.startswith("ConstraintError")


def test_a_check_accesses_sources_and_writes_nothing(tmp_path: Path) -> None:
    assert '"commit": null' in _compare(InProcess(), tmp_path, _nothing, "merge", 3, check=True)


@pytest.mark.parametrize(("name", "limit"), [("URI_CELLS", 50), ("COPIED_BYTES", 100), ("URI_BYTES", 20)])
def test_blob_limits_apply_to_the_whole_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds, name: str, limit: int
) -> None:
    thresholds(in_process, **{name: limit})
    if name == "COPIED_BYTES":
        thresholds(by_tasks, **{name: limit})
        monkeypatch.setattr(in_process.admit, "__kwdefaults__", {"budget": limit})
    assert _compare(InProcess(), tmp_path, _nothing, "merge", 5).startswith("ResourceLimitError")


@pytest.mark.s3
def test_blobs_are_copied_from_s3_by_tasks(s3_root: S3Root, tmp_path: Path) -> None:
    open_store(s3_root.uri, s3_root.options).put("assets/x.bin", b"from afar")
    graph = omnigraph.init(
        tmp_path / "graph", SCHEMA, storage_options=s3_root.options, blob_sources=[f"{s3_root.uri}/assets/"]
    )
    records = [{"type": "Photo", "data": {"name": "p", "image": f"{s3_root.uri}/assets/x.bin"}}]
    on_spark(graph, records, "append", InProcess(), 2)
    assert graph.blob("Photo", "p", "image").read() == b"from afar"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("change", "mode"), [(_nothing, "append"), (_not_there, "merge")])
def test_loading_blobs_on_spark_gives_the_same_result(
    session: Session, tmp_path: Path, change: Change, mode: str
) -> None:
    _compare(session, tmp_path, change, mode, 3)


def _notes(graph: Graph) -> list[tuple[str, str | None]]:
    rows = graph.snapshot().scan("node:Note", columns=["id", "text"]).to_pylist()
    return sorted((row["id"], row["text"]) for row in rows)


def _given(tmp_path: Path, *ids: str) -> tuple[Graph, list[dict[str, Any]]]:
    """An empty graph, and notes with blob URIs to load."""
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "a").write_bytes(b"a")
    graph = omnigraph.init(tmp_path / "g", SCHEMA, blob_sources=[f"{assets.as_uri()}/"])
    data = [{"id": name, "text": f"new {i}", "scan": f"{assets.as_uri()}/a"} for i, name in enumerate(ids)]
    return graph, [{"type": "Note", "data": each} for each in data]


def test_the_last_record_of_an_id_wins_in_an_empty_table(tmp_path: Path) -> None:
    graph, records = _given(tmp_path, "n0", "n1", "n0")
    receipt = Pipeline(graph, InProcess()).load(records, mode="merge")
    assert receipt.total == 2
    assert _notes(graph) == [("n0", "new 2"), ("n1", "new 1")]
    assert graph.verify().ok


def test_rows_of_a_concurrent_commit_into_an_empty_table_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, records = _given(tmp_path, "n0", "n1")
    compare = SparkRows._find_duplicates
    done: list[bool] = []

    def overtaken(self: Any, *given: Any) -> None:
        compare(self, *given)
        if not done:
            done.append(True)
            graph.load([{"type": "Note", "data": {"id": "n1", "text": "first"}}], mode="append")

    monkeypatch.setattr(SparkRows, "_find_duplicates", overtaken)
    Pipeline(graph, InProcess()).load(records, mode="merge")
    assert done
    assert _notes(graph) == [("n0", "new 0"), ("n1", "new 1")]
    assert graph.verify().ok


def test_references_of_replaced_records_do_not_count_towards_the_limit(tmp_path: Path, thresholds: Thresholds) -> None:
    thresholds(in_process, URI_CELLS=10)
    thresholds(partition_task, URI_CELLS=10)
    files = [tmp_path / "assets" / f"{i}.bin" for i in range(14)]
    files[0].parent.mkdir()
    for i, file in enumerate(files):
        file.write_bytes(bytes([i + 1]))
    names = [*"aaaaaa", *"bcdefghi", "a"]  # 15 or 14 references, of which 9 remain
    for count in (15, 14):
        records: list[dict[str, Any]] = [
            {"type": "Note", "data": {"id": name, "scan": files[i % 14].as_uri()}}
            for i, name in enumerate(names[:count])
        ]
        here, there = graphs(tmp_path / str(count), tmp_path / "assets")
        here.load(records, mode="merge")
        Pipeline(there, InProcess()).load(records, mode="merge")
        last = {record["data"]["id"]: bytes([i % 14 + 1]) for i, record in enumerate(records)}
        for graph in (here, there):
            assert {name: graph.blob("Note", name, "scan").read() for name in last} == last
    here, there = graphs(tmp_path / "many", tmp_path / "assets")
    records += [{"type": "Note", "data": {"id": f"z{i}", "scan": files[0].as_uri()}} for i in range(3)]
    for load in (here.load, Pipeline(there, InProcess()).load):
        with pytest.raises(ResourceLimitError, match="12"):
            load(records, mode="merge")
