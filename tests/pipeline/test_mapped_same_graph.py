"""Tables with a mapping, and files in S3, give the same graph or errors in process and in partitions on Spark."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.pipeline.in_process import InProcess
from tests.pipeline.test_same_graph import on_spark
from tests.pipeline.worlds import SCHEMA, Rows, graph_at, outcome, rows, write
from tests.s3_server import S3Root

import omnigraph
from omnigraph.errors import BadRowsError, InputError
from omnigraph.graph import Graph
from omnigraph.pipeline.pipeline import Pipeline
from omnigraph.pipeline.spark.session import Session
from omnigraph.storage.objects import open_store
from omnigraph.write.input.table_mapping import TableMapping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RENAMED = {"name": "full name", "age": "years", "text": "words", "weight": "kg", "place": "where"}
MAPPING = """
csv: {separator: ";", quote: "'", null: [NA, ""]}
sources:
  - source: humans*
    node: Person
    properties: {name: full name, age: years}
    ignore: [comment]
  - source: notes*
    node: Note
    id: "n{nr}"
    properties: {text: words}
  - source: knows*
    edge: Knows
    from: {name: a}
    to: "{b}"
    properties: {weight: kg}
  - source: wrote*
    edge: Wrote
    from: a
    to: "n{b}"
    properties: {place: where}
"""
FILES = {"Person": "humans", "Note": "notes", "Knows": "knows", "Wrote": "wrote"}


def strange(content: Rows) -> Rows:
    """The same rows with the column names of the mapping."""
    out: Rows = {}
    for name, each in content.items():
        made = []
        for row in each:
            renamed = {RENAMED.get(key, key): value for key, value in row.items() if key not in ("id", "from", "to")}
            if name == "Person":
                renamed |= {"comment": "x"}
            if name == "Note":
                renamed |= {"nr": int(str(row["id"])[1:])}
            if "from" in row:
                to = str(row["to"])
                renamed |= {"a": row["from"], "b": int(to[1:]) if name == "Wrote" else to}
            made.append(renamed)
        out[FILES[name]] = made
    return out


def write_strange(directory: Path, content: Rows, format: str) -> Any:
    directory.mkdir(parents=True)
    for name, each in strange(content).items():
        if format == "parquet":
            pa.parquet.write_table(pa.Table.from_pylist(each), directory / f"{name}.parquet", row_group_size=20)
        elif format == "csv":
            with (directory / f"{name}.csv").open("w", newline="") as sink:
                names = list(dict.fromkeys(key for row in each for key in row if key != "tags"))
                lines = csv.DictWriter(sink, names, extrasaction="ignore", delimiter=";", quotechar="'")
                lines.writeheader()
                lines.writerows({k: "NA" if v is None else v for k, v in row.items()} for row in each)
    if format == "tables":
        return {name: pa.Table.from_pylist(each) for name, each in strange(content).items()}
    return str(directory)


@pytest.fixture
def mapping(tmp_path: Path) -> TableMapping:
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    return TableMapping.read(tmp_path / "mapping.yaml")


def _nothing(content: Rows) -> None:
    pass


def _broken_rules(content: Rows) -> None:
    content["Person"][41]["age"] = 121
    content["Knows"][7]["to"] = "nobody"
    content["Wrote"][2]["to"] = "n9999"


def _bad_values(content: Rows) -> None:
    content["Person"][3]["name"] = None
    content["Person"][40]["age"] = 2**40
    content["Knows"][100]["from"] = None
    content["Note"][20]["text"] = None
    for row in content["Wrote"]:
        row["place"] = None


@pytest.mark.parametrize("change", [_nothing, _broken_rules, _bad_values])
@pytest.mark.parametrize("format", ["csv", "parquet", "tables"])
@pytest.mark.parametrize("parts", [1, 7])
def test_a_mapped_load_in_partitions_gives_the_same_result(
    tmp_path: Path, mapping: TableMapping, change: Callable[[Rows], None], format: str, parts: int
) -> None:
    mode = ["append", "merge", "overwrite"][(parts + len(format)) % 3]
    _compare(InProcess(), tmp_path, mapping, change, format, parts, mode)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("change", "format"), [(_nothing, "csv"), (_bad_values, "parquet"), (_broken_rules, "tables")])
def test_a_mapped_load_on_spark_gives_the_same_result(
    session: Session, tmp_path: Path, mapping: TableMapping, change: Callable[[Rows], None], format: str
) -> None:
    _compare(session, tmp_path, mapping, change, format, 2, "merge")


def _compare(
    session: Session,
    place: Path,
    mapping: TableMapping,
    change: Callable[[Rows], None],
    format: str,
    parts: int,
    mode: str,
) -> None:
    content = rows(3, first=100)
    change(content)
    source = write_strange(place / "input", content, format)
    here, there, plain = graph_at(place / "here"), graph_at(place / "there"), graph_at(place / "plain")
    expected = outcome(here, lambda: here.load(source, mode=mode, mapping=mapping))
    found = outcome(there, lambda: on_spark(there, source, mode, session, parts, mapping=mapping))
    assert (found.said, found.content, found.commits) == (expected.said, expected.content, expected.commits)
    assert there.verify().ok
    if change is _nothing:  # the same as with the expected column names
        unmapped = "csv" if format == "csv" else "tables"
        plainly = write(place / "plainly", content, unmapped)
        said = outcome(plain, lambda: plain.load(plainly, mode=mode))
        assert (said.said, said.content) == (found.said, found.content)


def contents(directory: Path) -> dict[str, str]:
    """Every file below a directory with its content."""
    files = [file for file in sorted(directory.rglob("*")) if file.is_file()]
    return {str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_wrong_input_writes_no_file(tmp_path: Path, mapping: TableMapping) -> None:
    """A mapping that does not fit, a missing column, and rows that cannot be converted."""
    content = rows(3, first=100)
    _bad_values(content)
    source = write_strange(tmp_path / "input", content, "csv")
    graph = graph_at(tmp_path / "graph")
    before = contents(tmp_path / "graph")
    wrong: list[tuple[Any, type[Exception]]] = [
        (mapping, BadRowsError),
        ({"sources": [{"source": "*", "node": "Persn"}]}, InputError),
        ({"sources": [{"source": "*", "node": "Person", "properties": {"name": "nowhere"}}]}, InputError),
    ]
    for said, kind in wrong:
        with pytest.raises(kind):
            graph.load(source, mode="append", mapping=said)
        with pytest.raises(kind):
            Pipeline(graph, InProcess()).load(source, mode="append", mapping=said)
    after = {name: each for name, each in contents(tmp_path / "graph").items() if not name.startswith("__cluster")}
    assert {name: after.get(name) for name in before} == before
    assert not (tmp_path / "graph" / "__staging").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_data_frames_can_be_loaded_with_a_mapping(
    spark: SparkSession, session: Session, tmp_path: Path, mapping: TableMapping
) -> None:
    """Data frames are mapped by the names that they are passed with."""
    content = rows(3, first=100)
    source = write_strange(tmp_path / "input", content, "parquet")
    here, there = graph_at(tmp_path / "here"), graph_at(tmp_path / "there")
    expected = outcome(here, lambda: here.load(source, mode="merge", mapping=mapping))
    frames = {name: spark.read.parquet(f"{source}/{name}.parquet").coalesce(1) for name in sorted(FILES.values())}
    pipeline = Pipeline(there, session)
    found = outcome(there, lambda: pipeline.load(frames, mode="merge", mapping=mapping))
    assert (found.said, found.content) == (expected.said, expected.content)
    frames["notes"].createOrReplaceTempView("some_notes")
    assert pipeline.load(nodes={"notes": "some_notes"}, mode="merge", mapping=mapping).nodes == (("Note", 40),)
    with pytest.raises(InputError, match="there is no no_notes"):
        pipeline.load(nodes={"notes": "no_notes"}, mode="merge", mapping=mapping)
    bad = spark.createDataFrame([("zed", "old")], "`full name` string, years string")
    with pytest.raises(InputError, match=r"there is no column 'kg', but mapping.yaml, line 16 names it"):
        pipeline.load(edges={"knows": bad.selectExpr("`full name` as a")}, mode="merge", mapping=mapping)
    with pytest.raises(BadRowsError, match=r"humans, row 1: Person.age \(column 'years'\): expected a whole number"):
        pipeline.load(nodes={"humans": bad}, mode="merge", mapping=mapping)


# In S3


def put(root: S3Root, directory: Path, *, packed: bool = False) -> str:
    """Upload the files of a directory to their own prefix."""
    prefix = f"input-{uuid4().hex}"
    store = open_store(root.uri, root.options)
    for file in sorted(directory.iterdir()):
        data, name = file.read_bytes(), file.name
        store.put(f"{prefix}/{name}.gz" if packed else f"{prefix}/{name}", gzip.compress(data) if packed else data)
    return f"{root.uri}/{prefix}"


def reaching(root: S3Root, place: Path) -> Graph:
    """A graph in a directory, whose handle has the options to access the bucket."""
    graph_at(place).close()
    return omnigraph.open(place, storage_options=root.options)


@pytest.mark.s3
@pytest.mark.parametrize(
    ("format", "packed"), [("ndjson", False), ("ndjson", True), ("csv", True), ("parquet", False), ("arrow", False)]
)
def test_files_in_s3_load_the_same_graph(s3_root: S3Root, tmp_path: Path, format: str, packed: bool) -> None:
    content = rows(3, first=100)
    source = write(tmp_path / "input", content, format)
    _compare_s3(InProcess(), s3_root, tmp_path, source, packed)


@pytest.mark.s3
@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_files_in_s3(session: Session, s3_root: S3Root, tmp_path: Path) -> None:
    content = rows(3, first=100)
    _broken_rules(content)
    _compare_s3(session, s3_root, tmp_path, write(tmp_path / "input", content, "parquet"), False)


def _compare_s3(session: Session, root: S3Root, place: Path, source: str, packed: bool) -> None:
    there = put(root, Path(source), packed=packed)
    local, here, apart = graph_at(place / "local"), reaching(root, place / "here"), reaching(root, place / "apart")
    expected = outcome(local, lambda: local.load(source, mode="append"))
    patterns = [f"{there}/{name}" for name in ("*", "")]
    found = outcome(here, lambda: here.load(patterns[0], mode="append"))
    in_parts = outcome(apart, lambda: Pipeline(apart, session).load(patterns[1], mode="append", split_bytes=2_000))
    ending = ".gz" if packed else ""
    for each in (found, in_parts):
        assert each.said.replace(f"{ending}, ", ", ") == expected.said
        assert each.content == expected.content


@pytest.mark.s3
def test_a_mapping_and_its_files_can_be_in_s3(s3_root: S3Root, tmp_path: Path, mapping: TableMapping) -> None:
    content = rows(3, first=100)
    source = write_strange(tmp_path / "input", content, "csv")
    there = put(s3_root, Path(source))
    open_store(s3_root.uri, s3_root.options).put("mappings/all.yaml", MAPPING.encode())
    local, graph = graph_at(tmp_path / "local"), reaching(s3_root, tmp_path / "graph")
    expected = outcome(local, lambda: local.load(source, mode="append", mapping=mapping))
    where = f"{s3_root.uri}/mappings/all.yaml"
    found = outcome(graph, lambda: graph.load(f"{there}/*.csv", mode="append", mapping=where))
    assert (found.said, found.content) == (expected.said, expected.content)


@pytest.mark.s3
def test_missing_files_in_s3_are_named(s3_root: S3Root, tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "graph", SCHEMA, storage_options=s3_root.options)
    store = open_store(s3_root.uri, s3_root.options)
    store.put("some/notes.txt", b"x")
    for path, said in (
        (f"{s3_root.uri}/nowhere/Person.csv", "there is no s3://graphs/.*/nowhere/Person.csv"),
        (f"{s3_root.uri}/*.csv", "no file matches s3://graphs/"),
        (f"{s3_root.uri}/some/", "contains no file that can be loaded"),
        ("s3:///Person.csv", "the address has no valid bucket"),
    ):
        with pytest.raises(InputError, match=said):
            graph.load(path, mode="append")


@pytest.mark.s3
def test_an_object_that_changes_during_a_load_is_reported(s3_root: S3Root, tmp_path: Path) -> None:
    from omnigraph.write.input.row_files import FileSplit, cut_file, row_files

    store = open_store(s3_root.uri, s3_root.options)
    store.put("many.ndjson", b'{"type": "Note", "data": {"text": "a"}}\n' * 100)
    (file,) = row_files(f"{s3_root.uri}/many.ndjson", s3_root.options)
    splits = list(cut_file(FileSplit(file, None), 1_000))
    assert len(splits) == 4
    assert b"".join(b"".join(part.file.lines(part.low, part.high)) for part in splits) == store.get("many.ndjson").data
    store.put("many.ndjson", b'{"type": "Note", "data": {"text": "b"}}\n' * 100)
    with pytest.raises(InputError, match=r"many.ndjson has changed since the load began"):
        list(splits[2].file.lines(splits[2].low, splits[2].high))
