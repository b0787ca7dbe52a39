"""An export is one snapshot. Its bytes depend only on the content, and it loads back as the same graph."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.read.everything import SCHEMA, SINGLE, full, things
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.write_request import SchemaChange, WriteRequest
from omnigraph.errors import BranchNotFoundError, InputError, NotFoundError
from omnigraph.graph import Graph
from omnigraph.lang.schema import compile_schema, evolve, ir_hash
from omnigraph.read.export import export as export_module
from omnigraph.read.export import files, ordered
from omnigraph.read.export.export import TypeExport, exported
from omnigraph.settings import FSYNC

FORMATS = ("ndjson", "csv", "parquet", "arrow")
PEOPLE = """
node Person { name: String @key  age: I32?  photo: Blob? }
edge Knows: Person -> Person { since: Date?  @key(src, dst) }
"""


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FSYNC.name, "0")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FSYNC.name, "0")
        with full(tmp_path_factory.mktemp("everything") / "graph") as graph:
            yield graph


@pytest.fixture
def people(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "people", PEOPLE) as graph:
        yield graph


def text(graph: Graph, **said: object) -> bytes:
    return b"".join(graph.export(**said))  # type: ignore[call-overload]


def add(graph: Graph, *names: str, branch: str | None = None) -> None:
    graph.load({"Person": pa.table({"name": list(names)})}, mode="append", branch=branch)


# ---- form


def test_edges_precede_nodes_and_types_and_ids_are_sorted(people: Graph) -> None:
    add(people, "b", "B", "é", "a", "z", "\U0001f600", "￿")
    people.load({"Knows": pa.table({"from": ["b"], "to": ["a"], "since": ["1970-01-03"]})}, mode="append")
    assert text(people).decode().splitlines() == [
        '{"edge":"Knows","from":"b","to":"a","data":{"id":"[\\"b\\",\\"a\\"]","since":2}}',
        '{"type":"Person","data":{"id":"B","age":null,"name":"B","photo":null}}',
        '{"type":"Person","data":{"id":"a","age":null,"name":"a","photo":null}}',
        '{"type":"Person","data":{"id":"b","age":null,"name":"b","photo":null}}',
        '{"type":"Person","data":{"id":"z","age":null,"name":"z","photo":null}}',
        '{"type":"Person","data":{"id":"é","age":null,"name":"é","photo":null}}',
        '{"type":"Person","data":{"id":"￿","age":null,"name":"￿","photo":null}}',
        '{"type":"Person","data":{"id":"\U0001f600","age":null,"name":"\U0001f600","photo":null}}',
    ]


def test_every_value_is_written_exactly(everything: Graph) -> None:
    lines = [json.loads(line) for line in text(everything, types=["Thing"]).splitlines()]
    found = {line["data"]["id"]: line["data"] for line in lines}
    for row in things().to_pylist():
        data = found[row["name"]]
        assert list(data) == ["id", *sorted(set(data) - {"id"})]
        for name in ("text", "flag", "small", "big", "count", "huge", "double", "kind", "texts", "numbers", "reals"):
            assert data[name] == row[name], name
            assert str(data[name]) == str(row[name]), name  # -0.0 is not 0.0, true is not 1
    assert [found[name]["single"] for name in things()["name"].to_pylist()[:3]] == [0.1, 3.4028235e38, 1e-45]
    assert pa.array([0.1, 3.4028235e38, 1e-45], pa.float32()).to_pylist() == SINGLE
    assert found["plain"]["day"] == 18321
    assert found["plain"]["moments"] == [0, 1]
    assert found["plain"]["photo"] == "base64:aGVsbG8="
    assert found['quo"te\\back\nline\ttab\u0001']["photo"] == "base64:"
    assert found["nothing"] == dict.fromkeys(found["nothing"], None) | {"id": "nothing", "name": "nothing"}


def test_a_name_that_a_node_and_an_edge_share_selects_both(everything: Graph) -> None:
    lines = [json.loads(line) for line in text(everything, types=["Same"]).splitlines()]
    assert [line.get("edge", line.get("type")) for line in lines] == ["Same", "Same"]
    assert "edge" in lines[0]


def test_an_empty_list_of_types_exports_nothing(everything: Graph) -> None:
    assert text(everything, types=[]) == b""


def test_an_unknown_type_is_refused_before_the_export_begins(everything: Graph) -> None:
    with pytest.raises(InputError, match="there is no type 'Thin'") as caught:
        everything.export(types=["Note", "Thin"])
    assert caught.value.hint == "did you mean 'Thing'?"


# ---- round trip


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "csv"])  # a text contains NUL
def test_an_export_loads_as_the_same_graph(everything: Graph, tmp_path: Path, format: str) -> None:
    target = tmp_path / ("all.ndjson" if format == "ndjson" else "all")
    receipt = everything.export(target, format=format)
    assert receipt.total == 15
    assert receipt.commit_id == everything.snapshot().commit.id
    assert dict(receipt.edges) == {"Near": 2, "Same": 1, "Wrote": 2}
    with omnigraph.init(tmp_path / "copy", SCHEMA) as copy:
        assert copy.load(target, mode="append").total == receipt.total
        assert text(copy) == text(everything)
        again = tmp_path / "again"
        copy.export(again, format=format)
        for name in [target] if target.is_file() else sorted(target.iterdir()):
            written = again if again.is_file() else again / name.name
            assert written.read_bytes() == name.read_bytes()
        for part in ("photo", "film"):
            names = things()["name"].to_pylist()
            blobs = [(copy.entity("Thing", name) or {})[part] for name in names]
            assert blobs == [(everything.entity("Thing", name) or {})[part] for name in names]
        assert copy.blob("Thing", things()["name"][1].as_py(), "film").read(0, 10) == b"\0" * 10


def test_batches_are_paired_with_their_type_key(everything: Graph) -> None:
    found = dict(everything.export(format="arrow", types=["Near", "Thing"]))
    assert list(found) == ["edge:Near", "node:Thing"]
    assert found["edge:Near"].schema.names == ["id", "from", "to", "since"]
    assert found["node:Thing"].schema.field("moment").type == pa.timestamp("ms", "UTC")


# ---- equal content gives equal exports


def test_an_export_does_not_depend_on_the_table_layout(tmp_path: Path, thresholds: Thresholds) -> None:
    """One graph is loaded at once, the other gets the same content by many small writes on a branch."""
    names = [f"p{number:03}" for number in range(40)]
    rows = pa.table(
        {
            "name": names,
            "age": pa.array([None if i % 3 == 0 else i for i in range(40)], pa.int32()),
            "photo": pa.array([None if i % 5 == 0 else bytes([i]) * (i * 5000) for i in range(40)], pa.large_binary()),
        }
    )
    edges = pa.table({"from": names[:20], "to": names[20:], "since": pa.array(range(20), pa.int32())})
    with omnigraph.init(tmp_path / "one", PEOPLE) as one, omnigraph.init(tmp_path / "other", PEOPLE) as other:
        one.load({"Person": rows, "Knows": edges}, mode="append")
        for start in range(0, 40, 7):
            part = rows.slice(start, 7)
            other.load({"Person": part.set_column(1, "age", pa.nulls(part.num_rows, pa.int32()))}, mode="append")
        add(other, "extra")
        other.branches.create("work")
        backwards = rows.take(pa.array(range(39, -1, -1)))
        for start in (0, 30, 10, 20):
            other.load({"Person": backwards.slice(start, 10)}, mode="merge", branch="work")
        for start in (10, 0, 15, 5):
            other.load({"Knows": edges.slice(start, 5)}, mode="append", branch="work")
        other.mutate('query drop() { delete Person where name = "extra" }', branch="work")
        pin = other.snapshot(branch="work").pin("node:Person").ref
        dataset = lance.dataset(f"{other.uri}/{pin.path}/tree/{pin.branch}", version=pin.version)
        assert len(dataset.get_fragments()) > 1
        assert text(other, branch="work") == text(one)
        for format in ("parquet", "arrow"):
            one.export(tmp_path / f"one-{format}", format=format)
            other.export(tmp_path / f"other-{format}", format=format, branch="work")
            for file in (tmp_path / f"one-{format}").iterdir():
                assert file.read_bytes() == (tmp_path / f"other-{format}" / file.name).read_bytes(), file.name
        # With a very small budget, the rows go through temporary files.
        thresholds(ordered, BATCH_ROWS=3)
        spilled = exported(other.snapshot(branch="work"), other.accepted_schema, None, budget=500)
        assert b"".join(piece for part in spilled for piece in part.lines()) == text(one)


def test_a_large_blob_is_written_in_pieces(everything: Graph, thresholds: Thresholds) -> None:
    whole = text(everything)
    thresholds(export_module, MAX_MATERIALIZED_BYTES=4, BLOB_CHUNK_BYTES=30_000)
    pieces = list(everything.export())
    assert b"".join(pieces) == whole
    assert len(pieces) > 100


# ---- one snapshot


def test_concurrent_writes_are_not_exported(people: Graph) -> None:
    add(people, "ann")
    pieces = people.export()
    add(people, "bob")
    assert b"bob" not in b"".join(pieces)


def test_branches_tags_and_commits_can_be_exported(people: Graph) -> None:
    add(people, "ann")
    first = people.snapshot()
    people.tags.create("first", commit=first.commit.id)
    before = text(people)
    people.branches.create("work")
    add(people, "bob", branch="work")
    add(people, "cid")
    assert text(people, at=first) == text(people, at=first.commit.id) == text(people, at="first") == before
    assert b'"bob"' in text(people, branch="work")
    assert b'"cid"' not in text(people, branch="work")
    with pytest.raises(InputError, match="already belongs to a branch"):
        people.export(branch="work", at=first)
    with pytest.raises(BranchNotFoundError):
        people.export(branch="nowhere")
    with pytest.raises(NotFoundError):
        people.export(at="nothing")


def test_a_past_state_is_exported_with_the_schema_that_it_had(people: Graph) -> None:
    add(people, "ann")
    first, before = people.snapshot(), text(people)
    source = PEOPLE + "node City { name: String @key }"
    accepted = evolve(people.accepted_schema, compile_schema(source))
    change = SchemaChange(source, accepted, ir_hash(people.accepted_schema))
    people.write_tables(WriteRequest(kind=WriterKind.SCHEMA_APPLY, schema=change), lambda _: [])
    people.load({"City": pa.table({"name": ["Bern"]})}, mode="append")
    assert b"Bern" in text(people)
    people.refresh()
    assert text(people, at=first) == before
    with pytest.raises(InputError, match="there is no type 'City'"):
        people.export(types=["City"], at=first)


# ---- files


def test_an_open_file_accepts_ndjson_only(everything: Graph) -> None:
    stream = io.BytesIO()
    everything.export(stream)
    assert stream.getvalue() == text(everything)
    with pytest.raises(InputError, match="parquet writes a file for each type"):
        everything.export(stream, format="parquet")


def test_parquet_needs_a_directory(everything: Graph) -> None:
    with pytest.raises(InputError, match="an export as parquet needs a target directory"):
        everything.export(format="parquet")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="'xml' is not an export format"):
        everything.export("x", format="xml")


@pytest.mark.parametrize("format", FORMATS)
def test_a_failed_export_leaves_no_file_and_keeps_the_old_one(
    everything: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    target = tmp_path / "target"
    if format == "ndjson":
        target.write_bytes(b"what was there")
    rows = TypeExport._rows

    def fail(part: TypeExport, *given: object) -> Iterator[pa.Table]:
        yield from rows(part)
        if part.key == "node:Note":
            raise RuntimeError("half way")

    monkeypatch.setattr(TypeExport, "_rows", lambda part, largest=None: fail(part))
    with pytest.raises(RuntimeError, match="half way"):
        everything.export(target, format=format)
    assert [path.name for path in tmp_path.iterdir()] == (["target"] if format == "ndjson" else [])
    if format == "ndjson":
        assert target.read_bytes() == b"what was there"


def test_a_directory_that_is_not_empty_is_refused(everything: Graph, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    everything.export(empty, format="arrow")
    assert len(list(empty.iterdir())) == 7
    with pytest.raises(InputError, match="is not an empty directory"):
        everything.export(empty, format="arrow")
    with pytest.raises(InputError, match="cannot write"):
        everything.export(tmp_path / "no" / "where", format="arrow")
    with pytest.raises(InputError, match="cannot write"):
        everything.export(tmp_path / "no" / "where.ndjson")
    with pytest.raises(InputError, match="local files"):
        everything.export("gs://bucket/all.ndjson")


def test_a_parquet_file_has_few_row_groups(people: Graph, tmp_path: Path, thresholds: Thresholds) -> None:
    thresholds(ordered, BATCH_ROWS=10)
    thresholds(files, ROW_GROUP_ROWS=30)
    names = [f"p{number:03}" for number in range(100)]
    add(people, *names)
    people.load({"Knows": pa.table({"from": names[:-1], "to": names[1:]})}, mode="append")
    people.export(tmp_path / "all", format="parquet")

    def groups(name: str) -> list[int]:
        said = pa.parquet.ParquetFile(tmp_path / "all" / name).metadata
        return [said.row_group(number).num_rows for number in range(said.num_row_groups)]

    assert groups("edge.Knows.parquet") == [30, 30, 30, 9]
    assert groups("node.Person.parquet") == [10] * 10  # each row could have a large blob


def test_a_parquet_file_has_the_rows_of_its_type(everything: Graph, tmp_path: Path) -> None:
    everything.export(tmp_path / "all", format="parquet")
    rows = pa.parquet.read_table(tmp_path / "all" / "node.Thing.parquet")
    assert rows["id"].to_pylist() == sorted(things()["name"].to_pylist())
    assert pc.struct_field(rows["photo"], "data").to_pylist()[1] == b"hello"


def test_a_single_type_may_be_a_plain_string(everything: Graph) -> None:
    assert text(everything, types="Thing") == text(everything, types=["Thing"]) != b""


def test_a_file_opened_in_text_mode_is_refused(everything: Graph, tmp_path: Path) -> None:
    with open(tmp_path / "out", "w") as file, pytest.raises(InputError, match="open in text mode"):
        everything.export(file)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="cannot be written to a value of type int"):
        everything.export(7)  # type: ignore[call-overload]
