"""Inferred schemas and mappings: a load of the same files succeeds, and the types are those of the data."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.commit.conftest import _no_fsync
from tests.inference.data_sets import DATA_SETS
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.cli.main import cli
from omnigraph.errors import InputError
from omnigraph.inference import Inferred, infer, table_profile

__all__ = ["_no_fsync"]


def written(directory: Path, **files: str) -> Path:
    """Write files; `people_csv` becomes `people.csv`."""
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        (directory / f"{stem}.{ending}").write_text(text, encoding="utf-8")
    return directory


def loaded(tmp_path: Path, found: Inferred, source: Any) -> omnigraph.Graph:
    """A graph with the inferred schema and all rows of the source."""
    graph = omnigraph.init(tmp_path / "graph", found.schema)
    if found.mapping is None:
        graph.load(source, mode=found.mode)
        return graph
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(found.mapping, encoding="utf-8")
    graph.load(source, mode=found.mode, mapping=mapping)
    return graph


def entity(graph: omnigraph.Graph, name: str, entity_id: str) -> dict[str, Any]:
    found = graph.entity(name, entity_id)
    assert found is not None
    return found


def properties(found: Inferred, name: str) -> dict[str, str]:
    """The types of the properties of a type."""
    catalog = omnigraph.compile_schema(found.schema)
    declared = catalog.nodes.get(name) or catalog.edges[name]
    return {prop.name: str(prop.type) for prop in declared.properties.values()}


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_public_data_set_is_loaded_whole(tmp_path: Path, name: str) -> None:
    data = DATA_SETS[name]
    source = tmp_path / "input"
    source.mkdir()
    data.write(source)
    found = infer(source, columns=data.columns, format=data.format)
    graph = omnigraph.init(tmp_path / "graph", found.schema)
    found.write(tmp_path / "out")
    receipt = graph.load(source, mode=found.mode, mapping=tmp_path / "out" / "mapping.yaml", format=data.format)
    assert dict(receipt.nodes) == data.nodes
    assert dict(receipt.edges) == data.edges


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_commands_load_a_public_data_set(tmp_path: Path, name: str) -> None:
    data = DATA_SETS[name]
    source = tmp_path / "input"
    source.mkdir()
    data.write(source)
    columns = [f"--columns={file}={','.join(names)}" for file, names in data.columns.items()]
    format = [] if data.format is None else ["--format", data.format]
    out, graph = str(tmp_path / "out"), str(tmp_path / "graph")
    run = CliRunner().invoke(cli, ["infer", str(source), "--out", out, *columns, *format])
    assert run.exit_code == 0, run.output
    *_, init_line, load_line = run.output.splitlines()
    for line in (init_line.removeprefix("next: "), load_line.strip()):
        words = line.replace("GRAPH", graph).split()
        done = CliRunner().invoke(cli, words[1:])
        assert done.exit_code == 0, done.output
    assert f"{sum(data.nodes.values()) + sum(data.edges.values())} entities" in done.output


def test_every_type_of_a_cell_is_found(tmp_path: Path) -> None:
    header = "id,whole,big,real,truth,day,moment,list,word,code,us_date,stamp,born"
    rows = [
        f"{i},{-(i % 10)},{2**63 + i % 10},{i % 10}.5,{'true' if i % 2 else 'False'},2024-01-{i % 10 + 10},"
        f'2024-01-01T00:00:{i % 10 + 10}Z,"[{i % 10}]",{"red" if i % 2 else "blue"},00{i % 10},'
        f"01/{i % 10 + 13}/2024,{1_700_000_000 + i % 10},199901{i % 10 + 10}"
        for i in range(40)
    ]
    source = written(tmp_path / "in", things_csv="\n".join([header, *rows]) + "\n") / "things.csv"
    found = infer(source)
    assert properties(found, "Thing") == {
        "thing_id": "I64",
        "whole": "I64",
        "big": "U64",
        "real": "F64",
        "truth": "Bool",
        "day": "Date",
        "moment": "DateTime",
        "list": "[I64]",
        "word": "enum(blue, red)",
        "code": "String",
        "us_date": "Date",
        "stamp": "DateTime",
        "born": "Date",
    }
    graph = loaded(tmp_path, found, source)
    assert graph.entity("Thing", "3") == {
        "id": "3",
        "thing_id": 3,
        "whole": -3,
        "big": 2**63 + 3,
        "real": 3.5,
        "truth": True,
        "day": date(2024, 1, 13),
        "moment": datetime.fromisoformat("2024-01-01T00:00:13+00:00"),
        "list": [3],
        "word": "red",
        "code": "003",
        "us_date": date(2024, 1, 16),
        "stamp": datetime.fromisoformat("2023-11-14T22:13:23+00:00"),
        "born": date(1999, 1, 13),
    }


def test_nulls_of_other_systems_are_found_only_where_they_cannot_be_texts(tmp_path: Path) -> None:
    text = "id,age,country\n1,31,NA\n2,NA,DE\n3,7,SE\n"
    source = written(tmp_path / "in", people_csv=text) / "people.csv"
    found = infer(source)
    assert properties(found, "Person")["age"] == "String"
    assert "a text because of values such as 'NA'" in found.schema
    source.write_text(text.replace("NA\n2", "FI\n2"))
    assert properties(infer(source), "Person")["age"] == "I64?"
    source.write_text(text.replace("NA\n2", "FI\n2").replace("2,NA", '2,"NA"'))
    assert properties(infer(source), "Person")["age"] == "String"  # in quotes it is no null for a load
    loaded(tmp_path, infer(source), source)


def test_an_ambiguous_date_stays_a_text(tmp_path: Path) -> None:
    source = written(tmp_path / "in", events_csv="id,day\n1,01/02/2024\n2,03/04/2024\n") / "events.csv"
    found = infer(source)
    assert properties(found, "Event")["day"] == "String"
    assert "dates that could be %d/%m/%Y or %m/%d/%Y" in found.schema


def test_numbers_with_leading_zeros_stay_texts(tmp_path: Path) -> None:
    source = written(tmp_path / "in", towns_csv="zip,name\n01067,Dresden\n80331,Munich\n") / "towns.csv"
    assert properties(infer(source), "Town") == {"name": "String", "zip": "String"}


def test_a_reference_with_unknown_values_stays_a_property(tmp_path: Path) -> None:
    source = written(
        tmp_path / "in",
        customers_csv="customer_id,name\n1,ann\n2,bob\n",
        orders_csv="order_id,customer_id\n10,1\n11,7\n12,2\n",
    )
    found = infer(source)
    assert found.edges == ()
    assert "customer_id: 1 of its 3 distinct values are in no row of customers.csv" in found.schema
    loaded(tmp_path, found, source)


def test_a_key_of_one_kind_of_thing_is_a_reference_in_another_table(tmp_path: Path) -> None:
    source = written(
        tmp_path / "in",
        products_csv="sku,title\nS-1,ball\nS-2,book\n",
        orders_csv="order_id,sku\n10,S-1\n11,S-2\n12,S-1\n",
    )
    found = infer(source)
    assert found.edges == ("OrderProduct",)
    with loaded(tmp_path, found, source) as graph:
        counted = graph.query("query q() { match { $o orderProduct $p } return { $p.sku as sku, count(*) as n } }")
        assert counted.to_pylist() == [{"sku": "S-1", "n": 2}, {"sku": "S-2", "n": 1}]


def test_headers_of_several_words_become_names_in_lower_case(tmp_path: Path) -> None:
    source = written(tmp_path / "in", people_csv="Customer ID,Full Name,E-Mail,CreatorPersonId\n1,ann,a@b,x\n")
    found = infer(source)
    assert set(properties(found, "Person")) == {"customer_id", "full_name", "e_mail", "creatorPersonId"}
    assert "// from people.csv, 1 row\n" in found.schema
    assert "the 1 value is unique" in found.schema
    loaded(tmp_path, found, source).close()


def test_small_numbers_are_no_references_by_chance(tmp_path: Path) -> None:
    rows = "".join(f"{i},p{i},{i % 3 + 1}\n" for i in range(1, 20))
    source = written(tmp_path / "in", products_csv=f"product_id,name,category_id\n{rows}")
    assert infer(source).edges == ()


def test_a_list_of_edges_alone_gives_its_nodes(tmp_path: Path) -> None:
    source = written(tmp_path / "in", web_tsv="from_page\tto_page\n1\t2\n2\t3\n3\t1\n1\t2\n")
    found = infer(source)
    assert (found.nodes, found.edges, found.mode) == (("Page",), ("Web",), "merge")
    graph = loaded(tmp_path, found, source)
    assert graph.snapshot().pin("node:Page").row_count == 3
    assert graph.snapshot().pin("edge:Web").row_count == 4


def test_frames_and_tables(tmp_path: Path) -> None:
    people = pd.DataFrame({"name": ["ann", "bob"], "age": [31, None], "weight": [50.5, float("nan")]})
    knows = pa.table({"src": ["ann"], "dst": ["bob"], "since": [date(2020, 1, 31)]})
    found = infer({"people": people, "knows": knows})
    assert properties(found, "Person") == {"age": "I64?", "name": "String", "weight": "F64?"}
    assert properties(found, "Knows") == {"since": "Date"}
    graph = loaded(tmp_path, found, {"people": people, "knows": knows})
    assert entity(graph, "Person", "ann")["age"] == 31


def test_an_export_is_inferred_and_loaded_to_the_same_bytes(tmp_path: Path) -> None:
    schema = """
    node Ship { name: String @key  crew: I32?  parts: [String]?  photo: Blob?  deep: U64? }
    node Day { country: String  number: I32  @key(country, number) }
    node Note { text: String }
    edge Docked: Ship -> Ship { cost: F64?  @key(src, dst) }
    edge On: Note -> Day
    """
    graph = omnigraph.init(tmp_path / "first", schema)
    records: list[dict[str, Any]] = [
        {"type": "Ship", "data": {"name": "a", "crew": 3, "parts": ["x", "2020-01-01"], "deep": 2**64 - 1}},
        {"type": "Ship", "data": {"name": "2020-01-01", "photo": "base64:AAEC"}},
        {"type": "Day", "data": {"country": 'S"E\\', "number": 7}},
        {"type": "Day", "data": {"country": "DE", "number": 8}},
        {"type": "Note", "data": {"id": "n1", "text": "hello"}},
        {"edge": "Docked", "from": "a", "to": "2020-01-01", "data": {"cost": 0.5}},
        {"edge": "On", "from": "n1", "to": '["DE","8"]'},
    ]
    graph.load(records, mode="append")
    graph.export(tmp_path / "out.ndjson")
    found = infer(tmp_path / "out.ndjson")
    assert found.mapping is None
    assert "@key(country, number)" in found.schema
    again = loaded(tmp_path, found, tmp_path / "out.ndjson")
    assert b"".join(again.export()) == b"".join(graph.export())


@pytest.mark.parametrize("format", ["csv", "parquet", "arrow"])
def test_the_files_of_an_export_name_types_ids_and_ends(tmp_path: Path, format: str) -> None:
    schema = """
    node Ship { name: String @key  crew: I32?  deep: U64?  built: Date?  parts: [String]?  photo: Blob? }
    node Note { text: String }
    node Empty { text: String }
    edge Docked: Ship -> Ship { cost: F64?  @key(src, dst) }
    edge On: Note -> Ship
    """
    first = omnigraph.init(tmp_path / "first", schema)
    records: list[dict[str, Any]] = [
        {
            "type": "Ship",
            "data": {"name": "a", "crew": 3, "built": "2020-01-31", "parts": ["x"], "photo": "base64:AA=="},
        },
        {"type": "Ship", "data": {"name": "NA", "deep": 2**64 - 1}},
        {"type": "Note", "data": {"id": "n1", "text": "null"}},
        {"edge": "Docked", "from": "a", "to": "NA", "data": {"cost": 0.5}},
        {"edge": "On", "from": "n1", "to": "a"},
    ]
    first.load(records, mode="append")
    first.export(tmp_path / "out", format=format)
    found = infer(tmp_path / "out")
    assert found.mapping is None
    assert (set(found.nodes), set(found.edges)) == ({"Empty", "Note", "Ship"}, {"Docked", "On"})
    assert "name: String @key" in found.schema
    again = loaded(tmp_path, found, tmp_path / "out")
    assert b"".join(again.export()) == b"".join(first.export())


def test_a_column_without_values_keeps_its_type() -> None:
    table = pa.table({"name": ["a"], "weight": pa.nulls(1, pa.float64()), "parts": pa.nulls(1, pa.list_(pa.int64()))})
    assert properties(infer({"t": table}), "T") == {"name": "String", "parts": "[I64]?", "weight": "F64?"}
    assert properties(infer({"t": table.slice(0, 0)}), "T") == {"name": "String?", "parts": "[I64]?", "weight": "F64?"}


def test_records_with_the_type_behind_the_data_and_ids_from_keys(tmp_path: Path) -> None:
    lines = [
        {"data": {"name": "ann", "age": 3}, "type": "Person"},
        {"type": "Person", "data": {"name": "bob", "joined": "2024-01-31"}},
        {"edge": "Knows", "from": "ann", "to": "bob"},
    ]
    source = tmp_path / "people.ndjson"
    source.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    found = infer(source)
    assert properties(found, "Person") == {"age": "I64?", "joined": "Date?", "name": "String"}
    assert entity(loaded(tmp_path, found, source), "Person", "ann")["age"] == 3


def test_plain_objects_are_tables(tmp_path: Path) -> None:
    people: list[dict[str, Any]] = [
        {"id": i, "name": f"p{i}", "born": "2000-01-02", "friend_of": None, "w": i / 2} for i in range(9)
    ]
    people += [{"id": 9, "name": "p9", "tags": ["x"], "at": "31.12.2024", "deep": {"a": 1}}]
    orders = [{"order_id": i, "person_id": i % 9} for i in range(20)]
    source = tmp_path / "in"
    source.mkdir()
    (source / "people.ndjson").write_text("\n".join(map(json.dumps, people)))
    (source / "orders.jsonl").write_text("\n".join(map(json.dumps, orders)))
    found = infer(source)
    assert properties(found, "Person") == {
        "at": "Date?",
        "born": "Date?",
        "friend_of": "String?",
        "name": "String",
        "person_id": "I64",
        "tags": "[String]?",
        "w": "F64?",
    }
    assert "deep is left out: no property can have values of the type struct<a: int64>" in found.schema
    graph = loaded(tmp_path, found, source)
    assert graph.snapshot().pin("edge:OrderPerson").row_count == 20
    assert entity(graph, "Person", "9")["at"] == date(2024, 12, 31)


def test_headers_are_repaired_and_separators_found(tmp_path: Path) -> None:
    source = written(tmp_path / "in", people_csv=";name;name\n0;ann;smith\n1;bob;jones\n") / "people.csv"
    found = infer(source)
    assert found.mapping is not None
    assert 'columns: ["c1", "name", "name_2"]' in found.mapping
    loaded(tmp_path, found, source)


def test_pairs_of_a_large_table_are_not_tested(tmp_path: Path, thresholds: Thresholds) -> None:
    rows = "".join(f"{i // 2},{i % 2}\n" for i in range(100))
    source = written(tmp_path / "in", cells_csv=f"row_id,side\n{rows}") / "cells.csv"
    assert "@key(row_id, side)" in infer(source).schema
    thresholds(table_profile, MAX_PAIR_ROWS=50)
    assert "@key" not in infer(source).schema


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"empty_csv": ""}, "empty.csv is empty"),
        ({"a_csv": "x,y\n"}, "a.csv has no rows"),
        ({"a_ndjson": "[1]\n"}, "a.ndjson: a record is not a JSON object: [1]"),
        ({"a_ndjson": '{"type": "A", "data": {"x": 1}}\n{"type": "A", "data": {"x": "b"}}\n'}, "a.ndjson: no type can"),
        ({"a_ndjson": '{"edge": "E", "from": "a", "to": "b"}\n'}, "the 'from' of the edge E are the ids of no type"),
    ],
)
def test_input_without_types_is_an_error(tmp_path: Path, files: dict[str, str], message: str) -> None:
    source = written(tmp_path / "in", **files)
    with pytest.raises(InputError) as error:
        infer(source)
    assert message in str(error.value)


@pytest.mark.parametrize(("given", "found"), [(5, "a number"), ([], "a list"), (None, "null")])
def test_a_table_of_a_wrong_type_is_named(given: Any, found: str) -> None:
    with pytest.raises(InputError, match=f"^'a': expected a table or a file, found {found}$"):
        infer({"a": given})


def test_columns_must_fit_the_file(tmp_path: Path) -> None:
    source = written(tmp_path / "in", a_csv="1,2\n3,4\n")
    with pytest.raises(InputError, match="--columns names 1 columns, but the file has 2"):
        infer(source, columns={"a.csv": ["x"]})
    with pytest.raises(InputError, match=r"columns are given for b\.csv, but there is no such CSV file"):
        infer(source, columns={"b.csv": ["x"]})
    assert properties(infer(source, columns={"a.csv": ["x", "y"]}), "A") == {"x": "I64", "y": "I64"}


def test_files_are_not_overwritten(tmp_path: Path) -> None:
    source = written(tmp_path / "in", a_csv="x,y\n1,2\n")
    infer(source).write(tmp_path / "out")
    with pytest.raises(InputError, match="exists"):
        infer(source).write(tmp_path / "out")
