"""A mapping describes tables: all of its features, and all errors in it or in the rows."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from tests.commit.conftest import _no_fsync

from omnigraph.cli.main import cli
from omnigraph.errors import BadRowsError, InputError, OmnigraphError
from omnigraph.graph import Graph, init
from omnigraph.write.input import json_objects
from omnigraph.write.input.table_mapping import TableMapping

__all__ = ["_no_fsync"]

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    source: String?
    tags: [String]?
    joined: DateTime?
}
node Company { title: String  size: U64? }
node Day { country: String  day: Date  @key(country, day) }
edge Works: Person -> Company { since: Date? }
edge Born: Person -> Day { place: String? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return init(tmp_path / "graph", SCHEMA)


def load(graph: Graph, source: Any, *sources: dict[str, Any], **said: Any) -> Any:
    return graph.load(source, mode=said.pop("mode", "append"), mapping={"sources": list(sources)}, **said)


def refused(graph: Graph, source: Any, *sources: dict[str, Any], **said: Any) -> list[str]:
    """The problems of the rows."""
    with pytest.raises(BadRowsError) as error:
        load(graph, source, *sources, **said)
    return [str(problem) for problem in error.value.problems]


def all_of(graph: Graph, name: str) -> list[dict[str, Any]]:
    """Every node of a type, or with a plus every edge, in the form of an export."""
    word = "edge" if name.startswith("+") else "type"
    lines = map(json.loads, b"".join(graph.export()).splitlines())
    found = [line for line in lines if line.get(word) == name.removeprefix("+")]
    return [line.get("data", {}) | {end: line[end] for end in ("from", "to") if end in line} for line in found]


def test_columns_become_properties(graph: Graph) -> None:
    people = pa.table({"full name": ["ann"], "years": [31], "note": ["x"], "source": ["own"]})
    person = {"source": "people", "node": "Person", "properties": {"name": "full name", "age": "years"}}
    load(graph, {"people": people}, {**person, "ignore": "note"})
    assert graph.entity("Person", "ann") == {
        "id": "ann",
        "name": "ann",
        "age": 31,
        "source": "own",
        "tags": None,
        "joined": None,
    }


def test_constants_of_every_type_can_be_assigned(graph: Graph) -> None:
    constants = {"source": "crm", "age": 7, "tags": ["a", "b"], "joined": "2024-01-31T10:00:00Z"}
    made: dict[str, Any] = {name: {"value": value} for name, value in constants.items()}
    load(
        graph,
        {"people": pa.table({"n": ["ann", "bob"]})},
        {"source": "people", "node": "Person", "properties": {"name": "n", **made}},
    )
    for name in ("ann", "bob"):
        found = graph.entity("Person", name)
        assert found is not None
        assert (found["source"], found["age"], found["tags"]) == ("crm", 7, ["a", "b"])
        assert str(found["joined"]) == "2024-01-31 10:00:00+00:00"


@pytest.mark.parametrize("numbers", [pa.array([7, 8]), pa.array(["7", "8"]), pa.array([7, 8], pa.decimal128(20, 0))])
def test_ids_and_endpoints_are_composed_from_columns(graph: Graph, numbers: pa.Array) -> None:
    tables = {
        "firms": pa.table({"nr": numbers, "title": ["a", "b"]}),
        "people": pa.table({"first": ["ann", "bob"], "last": ["x", "y"]}),
        "works": pa.table({"f": ["ann", "bob"], "l": ["x", "y"], "nr": numbers, "since": [date(2020, 1, 31), None]}),
    }
    receipt = load(
        graph,
        tables,
        {"source": "firms", "node": "Company", "id": "firm:{nr}"},
        {"source": "people", "node": "Person", "properties": {"name": "{first} {{{last}}}"}},
        {"source": "works", "edge": "Works", "from": "{f} {{{l}}}", "to": "firm:{nr}"},
    )
    assert receipt.total == 6
    assert {(row["from"], row["to"]) for row in all_of(graph, "+Works")} == {
        ("ann {x}", "firm:7"),
        ("bob {y}", "firm:8"),
    }


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_an_endpoint_can_be_given_by_the_key_of_its_node(graph: Graph, tmp_path: Path, format: str) -> None:
    """The members of a key have types, and the id differs from the text in the file."""
    day: object = "1990-01-02" if format == "csv" else date(1990, 1, 2)
    days = [{"c": "SE", "d": day}]
    born = [{"who": "ann", "c": "SE", "d": day, "place": "Visby"}]
    for name, each in (("days", days), ("born", born)):
        if format == "csv":
            with (tmp_path / f"{name}.csv").open("w", newline="") as sink:
                lines = csv.DictWriter(sink, list(each[0]))
                lines.writeheader()
                lines.writerows(each)
        else:
            pa.parquet.write_table(pa.Table.from_pylist(each), tmp_path / f"{name}.parquet")
    graph.load({"Person": [{"name": "ann"}]}, mode="append")
    load(
        graph,
        [str(tmp_path / f"{name}.{format}") for name in ("days", "born")],
        {"source": "days*", "node": "Day", "properties": {"country": "c", "day": "d"}},
        {"source": "born*", "edge": "Born", "from": {"name": "who"}, "to": {"day": "d", "country": "c"}},
    )
    assert [(row["from"], row["to"]) for row in all_of(graph, "+Born")] == [("ann", '["SE","7306"]')]


def test_a_key_of_an_endpoint_may_have_a_constant(graph: Graph) -> None:
    tables = {"born": pa.table({"who": ["ann"], "d": [date(1990, 1, 2)]})}
    graph.load({"Person": [{"name": "ann"}], "Day": [{"country": "SE", "day": "1990-01-02"}]}, mode="append")
    to = {"day": "d", "country": {"value": "SE"}}
    assert load(graph, tables, {"source": "born", "edge": "Born", "from": "who", "to": to}).total == 1


def test_a_column_can_select_the_type_of_a_row(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("kind,a,b,age\nperson,ann,,7\nfirm,,acme,\nworks,ann,acme,\nperson,bob,,\n")
    said = {
        "source": "all.csv",
        "column": "kind",
        "when": {
            "person": {"node": "Person", "properties": {"name": "a"}},
            "firm": {"node": "Company", "id": "f-{b}", "properties": {"title": "b"}},
            "works": {"edge": "Works", "from": "a", "to": "f-{b}"},
        },
    }
    receipt = load(graph, tmp_path / "all.csv", said)
    assert (receipt.nodes, receipt.edges) == ((("Company", 1), ("Person", 2)), (("Works", 1),))
    (tmp_path / "all.csv").write_text("kind,a,b,age\nperson,cid,acme,7\nship,,x,\n,x,,\nfirm,,b,9\n")
    assert refused(graph, tmp_path / "all.csv", said) == [
        "all.csv, line 2: Person.b: the mapping does not mention this column for rows of Person",
        "all.csv, line 3: input: column 'kind': expected one of person, firm, works, found 'ship'",
        "all.csv, line 4: input: column 'kind': expected one of person, firm, works, found nothing",
        "all.csv, line 5: Company.age: the mapping does not mention this column for rows of Company",
    ]


def test_an_overwrite_replaces_every_type_of_the_mapping(graph: Graph) -> None:
    """An overwrite replaces a type even if the table has no rows of it."""
    graph.load({"Company": [{"title": "old"}], "Person": [{"name": "old"}]}, mode="append")
    said = {
        "source": "all",
        "column": "kind",
        "when": {
            "p": {"node": "Person", "properties": {"name": "a"}},
            "c": {"node": "Company", "properties": {"title": "a"}},
        },
    }
    receipt = load(graph, {"all": pa.table({"kind": ["p"], "a": ["new"]})}, said, mode="overwrite")
    assert receipt.nodes == (("Company", 0), ("Person", 1))


def test_unmapped_columns_are_handled_as_declared(graph: Graph) -> None:
    table = {"people": pa.table({"n": ["ann"], "age": [7], "x": [1]})}
    said = {"source": "people", "node": "Person", "properties": {"name": "n"}}
    assert refused(graph, table, said) == [
        "people: Person.x: there is no such property; known: age, id, joined, name, source, tags; the mapping does not "
        "mention this column: name it under 'properties' or 'ignore'"
    ]
    assert len(refused(graph, table, {**said, "others": "refuse"})) == 2
    assert refused(graph, {"people": pa.table({"n": ["ann"], "name": ["x"]})}, said) == [
        "people: Person.name: the mapping fills 'name' from another column; "
        "to leave this one out, name it under 'ignore'"
    ]
    receipt = load(graph, table, said, lenient=True)
    assert [str(each) for each in receipt.coerced] == ["Person.x: ignored property (1), first at people"]
    load(graph, table, {**said, "others": "ignore"}, mode="merge")
    found = graph.entity("Person", "ann")
    assert found is not None
    assert found["age"] is None


@pytest.mark.parametrize("packed", [False, True])
def test_a_csv_dialect_can_be_declared(graph: Graph, tmp_path: Path, packed: bool) -> None:
    text = b"n|years|src\n'a|n''n'|NA|'NA'\nbob|7|\\N\n'two\nlines'||\n"
    path = tmp_path / ("people.csv.gz" if packed else "people.csv")
    path.write_bytes(gzip.compress(text) if packed else text)
    dialect = {"separator": "|", "quote": "'", "null": ["NA", "\\N"]}
    said = {"source": "people", "node": "Person", "properties": {"name": "n", "age": "years", "source": "src"}}
    graph.load(path, mode="append", mapping={"csv": dialect, "sources": [said]})
    rows = {row["name"]: (row.get("age"), row.get("source")) for row in all_of(graph, "Person")}
    assert rows == {"a|n'n": (None, "NA"), "bob": (7, None), "two\nlines": (None, None)}


def test_problems_name_the_source_column(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("n,years,when\nann,old,x\n,7,\n")
    said = {"source": "people.csv", "node": "Person", "properties": {"name": "n", "age": "years", "joined": "when"}}
    assert refused(graph, tmp_path / "people.csv", said) == [
        "people.csv, line 2: Person.age (column 'years'): expected a whole number, found 'old'",
        "people.csv, line 2: Person.joined (column 'when'): 'x': not a timestamp like 2026-03-14T09:30:00Z",
        "people.csv, line 3: Person.name (column 'n'): is required",
    ]
    born = {"source": "born", "edge": "Born", "from": "who", "to": {"country": "c", "day": "d"}}
    table = pa.table({"who": ["ann", None], "c": ["SE", "SE"], "d": ["1990-02-31", None]})
    assert refused(graph, {"born": table}, born) == [
        "born, row 1: Born.to (columns 'c', 'd'): '1990-02-31': there is no day 1990-02-31",
        "born, row 2: Born.from (column 'who'): is required",
        "born, row 2: Born.to (columns 'c', 'd'): is required",
    ]


def test_columns_that_cannot_be_part_of_an_id_are_refused(graph: Graph) -> None:
    table = {"firms": pa.table({"nr": [1.5], "title": ["a"]})}
    with pytest.raises(InputError, match=r"Company.id: a column of double cannot be part of a text: 'nr'"):
        load(graph, table, {"source": "firms", "node": "Company", "id": "f{nr}"})


def test_the_first_matching_entry_applies_to_a_table(graph: Graph, tmp_path: Path) -> None:
    """The first matching entry; tables without one load as without a mapping."""
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "x.csv").write_text(f"n\n{directory}\n")
    (tmp_path / "Person.csv").write_text("name\nplain\n")
    (tmp_path / "all.ndjson").write_text('{"type": "Person", "data": {"name": "line"}}\n')
    sources = [str(tmp_path / name) for name in ("a/x.csv", "b/x.csv", "Person.csv", "all.ndjson")]
    load(
        graph,
        sources,
        {"source": ["a/x.csv", "c/*.csv"], "node": "Person", "properties": {"name": "n", "source": {"value": "first"}}},
        {"source": "x.*", "node": "Person", "properties": {"name": "n", "source": {"value": "second"}}},
    )
    found = {row["name"]: row.get("source") for row in all_of(graph, "Person")}
    assert found == {"a": "first", "b": "second", "plain": None, "line": None}


YAML = "sources:\n  - source: people\n    "


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("sources: 1", "m.yaml, line 1: sources: expected a list, found a number", None),
        ("csv: {}", "m.yaml, line 1: 'sources' is missing", "write sources: with a list of tables"),
        ("sources:\n  - node: Person", "line 2: sources[0]: 'source' is missing", "write source:"),
        (YAML + "nodes: Person", "line 3: sources[0].nodes: unknown name", "did you mean 'node'?"),
        (YAML + "id: x", "line 2: sources[0]: there must be exactly one type", "write node: or edge:"),
        (YAML + "node: Persn", "line 3: sources[0].node: there is no node type 'Persn'", "did you mean 'Person'?"),
        (YAML + "edge: Person", "line 3: sources[0].edge: there is no edge type 'Person'", "known: Born, Works"),
        (YAML + "node: 7", "line 3: sources[0].node: expected a text, found a number", "put a text in quotes"),
        (YAML + "node: Person\n    from: x", "line 4: sources[0].from: a node has no 'from' and 'to'", None),
        (YAML + "node: Person\n    properties: {agee: x}", "properties.agee: Person has no property 'agee'", "'age'"),
        (
            YAML + "node: Person\n    properties: {id: x}",
            "properties.id: 'id' is not a property",
            "next to properties:",
        ),
        (YAML + "node: Person\n    properties: {age: {value: old}}", "age.value: expected a whole number", None),
        (YAML + "node: Person\n    properties: {age: {vale: 1}}", "age.vale: unknown name", "'value'"),
        (YAML + "node: Person\n    properties: {name: {value: null}}", "name.value: null is not allowed", None),
        (YAML + "node: Person\n    properties: {name: 'a{b'}", "name: an unmatched brace in 'a{b'", "{{"),
        (YAML + "node: Person\n    properties: {name: ''}", "properties.name: the text is empty", None),
        (YAML + "node: Person\n    others: some", "others: 'some' is not valid here", "match, ignore or refuse"),
        (YAML + "node: Person\n    csv: {separator: ab}", "csv.separator: expected one ASCII character", None),
        (YAML + "node: Person\n    csv: {separator: '\"'}", "csv: separator and quote are the same character", None),
        (YAML + "node: Person\n    csv: {skip: -1}", "csv.skip: expected a number of lines", None),
        (YAML + "node: Person\n    csv: {quote: ab}", "csv.quote: expected one ASCII character", None),
        (YAML + "node: Person\n    csv: {null: [NA, null]}", "null[1]: expected a text, found nothing", '"null"'),
        (YAML + "node: Person\n    column: kind", "column: 'when' is missing", "write when:"),
        (
            YAML + "when: {a: {node: Person}}",
            "when: 'column' is missing: the column that selects the type of a row",
            None,
        ),
        (
            YAML + "column: k\n    node: Person\n    when: {a: {node: Person}}",
            "'node' does not belong next to 'when'",
            "under each value in when:",
        ),
        (YAML + "column: k\n    when: {}", "sources[0].when: it is empty", None),
        (YAML + "edge: Born\n    from: a\n    to: {country: c}", "to: the key of Day is country, day", "each of them"),
        (YAML + "edge: Works\n    from: a\n    to: {title: c}", "to: Company has no key", "give its id"),
        (YAML + "edge: Works\n    to: a\n    others: ignore", "its 'from' is missing", None),
    ],
)
def test_a_wrong_mapping_is_refused_before_the_input_is_read(
    graph: Graph, tmp_path: Path, text: str, said: str, hint: str | None
) -> None:
    """The mapping is refused first: the input file does not even exist."""
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(InputError) as error:
        graph.load(tmp_path / "nowhere.csv", mode="append", mapping=tmp_path / "m.yaml")
    assert error.value.message.startswith("m.yaml")
    assert said in error.value.message
    assert hint is None or hint in str(error.value.hint)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            {"people": [{"n": "ann"}]},
            "the mapping describes 'people', but it is a list of records; a mapping is for tables only",
        ),
        (
            "people.ndjson",
            "the mapping describes people.ndjson, but each of its records names its type; a mapping is for tables "
            "and plain objects only",
        ),
        ({"people": pa.table({"m": ["ann"]})}, "people: there is no column 'n', but the mapping names it"),
    ],
)
def test_tables_that_do_not_fit_the_mapping_are_refused(graph: Graph, tmp_path: Path, source: Any, said: str) -> None:
    (tmp_path / "people.ndjson").write_text('{"type": "Person", "data": {"name": "ann"}}')
    given = tmp_path / source if isinstance(source, str) else source
    with pytest.raises(InputError) as error:
        load(graph, given, {"source": "people", "node": "Person", "properties": {"name": "n"}})
    assert error.value.message == said


def test_a_type_name_beside_a_mapping_is_refused(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("n\nann\n")
    with pytest.raises(InputError, match=r"the mapping gives the type of people.csv: leave --type"):
        load(graph, tmp_path / "people.csv", {"source": "people.csv", "node": "Person"}, type_name="Person")


def test_a_mapping_may_be_json_and_is_read_once(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text('{"sources":\n\t[{"source": "p", "node": "Person", "properties": {"name": "n"}}]}')
    mapping = TableMapping.read(tmp_path / "m.json")
    assert TableMapping.read(mapping) is mapping
    assert graph.load({"p": pa.table({"n": ["ann"]})}, mode="append", mapping=mapping).total == 1
    with pytest.raises(InputError, match="there is no file"):
        TableMapping.read(tmp_path / "no.yaml")


def test_the_command_line_accepts_a_mapping(graph: Graph, tmp_path: Path) -> None:
    graph.close()
    (tmp_path / "m.yaml").write_text(YAML + "node: Person\n    properties: {name: n}\n")
    (tmp_path / "people.csv").write_text("n\nann\n")
    said = ["load", str(tmp_path / "graph"), "--data", str(tmp_path / "people.csv"), "--mode", "append", "--quiet"]
    good = CliRunner().invoke(cli, [*said, "--mapping", str(tmp_path / "m.yaml")])
    assert (good.exit_code, "1 entity" in good.output) == (0, True), good.output
    bad = CliRunner().invoke(cli, [*said, "--mapping", str(tmp_path / "none.yaml")])
    assert bad.exit_code != 0
    assert "there is no file" in bad.output


def test_an_idempotency_key_covers_the_mapped_rows(graph: Graph) -> None:
    table, said = pa.table({"n": ["ann"], "m": ["bob"]}), {"source": "p", "node": "Person", "others": "ignore"}
    first = load(graph, {"p": table}, {**said, "properties": {"name": "n"}}, idempotency_key="k")
    again = load(graph, {"p": table}, {**said, "properties": {"name": "n"}}, idempotency_key="k")
    assert first.commit.id == again.commit.id
    with pytest.raises(OmnigraphError, match="idempotency"):
        load(graph, {"p": table}, {**said, "properties": {"name": "m"}}, idempotency_key="k")


def test_a_mapping_can_declare_a_date_format(graph: Graph, tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("name,in,land,born\nann,14.3.2026 09:30:00,SE,7306\nbob,,SE,7307\n")
    joined = {"column": "in", "format": "%d.%m.%Y %H:%M:%S"}
    day = {"column": "born", "format": "days"}
    node = {"source": "people.csv", "node": "Person", "properties": {"joined": joined}, "ignore": ["land", "born"]}
    load(graph, people, node)
    days = {"source": "people.csv", "node": "Day", "properties": {"country": "land", "day": day}, "others": "ignore"}
    load(graph, people, days)
    edge = {"source": "people.csv", "edge": "Born", "from": "name", "to": {"country": "land", "day": day}}
    load(graph, people, edge | {"others": "ignore"})
    found = graph.query(
        "query q() { match { $p: Person  $p born $d } return { $p.name, $p.joined, $d.day } order { $p.name } }"
    )
    rows = [tuple(map(str, row.values())) for row in found.to_arrow().to_pylist()]
    assert rows == [("ann", "2026-03-14 09:30:00+00:00", "1990-01-02"), ("bob", "None", "1990-01-03")]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"column": "age", "format": "%Y"}, "needs the month exactly once"),
        ({"format": "days"}, "neither a value nor a column"),
        ({"column": "age", "value": 3}, "neither a value nor a column"),
        ({}, "it is empty"),
        ({"column": "age", "format": "days"}, "'age' is I32\\?, and 'format' is for Date and DateTime"),
    ],
)
def test_invalid_date_formats_are_refused(graph: Graph, tmp_path: Path, said: dict[str, Any], reason: str) -> None:
    (tmp_path / "people.csv").write_text("name,age\nann,1\n")
    with pytest.raises(InputError, match=reason):
        load(graph, tmp_path / "people.csv", {"source": "*", "node": "Person", "properties": {"age": said}})


def test_a_row_gives_several_entities(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "staff.csv").write_text("who,firm,nr,start\nann,Acme,7,2020-01-31\nbob,,,\ncid,Acme,7,\n")
    entry = {
        "source": "staff.csv",
        "rows": [
            {"node": "Person", "properties": {"name": "who"}, "others": "ignore"},
            {
                "node": "Company",
                "id": "c{nr}",
                "properties": {"title": "firm"},
                "others": "ignore",
                "optional": True,
            },
            {
                "edge": "Works",
                "from": "who",
                "to": "c{nr}",
                "properties": {"since": "start"},
                "others": "ignore",
                "optional": True,
            },
        ],
    }
    receipt = load(graph, tmp_path / "staff.csv", entry, mode="merge")
    assert dict(receipt.nodes) == {"Person": 3, "Company": 1}
    assert {(row["from"], row["to"]) for row in all_of(graph, "+Works")} == {("ann", "c7"), ("cid", "c7")}
    entry["rows"][2]["optional"] = False  # type: ignore[index]
    assert refused(graph, tmp_path / "staff.csv", entry, mode="merge") == [
        "staff.csv, line 3: Works.to (column 'nr'): is required"
    ]


def test_the_key_of_an_optional_node_may_be_a_matching_column(graph: Graph) -> None:
    table = pa.table({"name": ["ann", None], "title": ["Acme", "Bolt"]})
    rows = [{"node": "Person", "optional": True, "ignore": "title"}, {"node": "Company", "ignore": "name"}]
    receipt = load(graph, {"both": table}, {"source": "both", "rows": rows})
    assert (dict(receipt.nodes), receipt.total) == ({"Person": 1, "Company": 2}, 3)


def test_a_file_without_a_header_gets_names(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("ann;31\nbob;32\n")
    person = {"source": "people.csv", "node": "Person"}
    load(graph, tmp_path / "people.csv", {**person, "csv": {"header": False, "columns": ["name", "age"]}})
    load(
        graph,
        tmp_path / "people.csv",
        {**person, "csv": {"header": False}, "properties": {"name": "c1", "age": "c2"}},
        mode="merge",
    )
    assert [row["age"] for row in all_of(graph, "Person")] == [31, 32]
    with pytest.raises(InputError, match=r"people\.csv, line 1: there are 2 columns, but 'csv: columns' .* names 1"):
        load(graph, tmp_path / "people.csv", {**person, "csv": {"header": False, "columns": ["name"]}})
    (tmp_path / "people.csv").write_text("who;who\neve;7\n")
    load(graph, tmp_path / "people.csv", {**person, "csv": {"columns": ["name", "age"]}})
    assert graph.entity("Person", "eve") is not None
    (tmp_path / "people.csv").write_text("")
    assert load(graph, tmp_path / "people.csv", {**person, "csv": {"header": False, "columns": ["name"]}}).total == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rows": []}, "rows: it is empty"),
        ({"rows": [{"node": "Person"}], "id": "x"}, "id: 'id' does not belong next to 'rows'"),
        ({"rows": [{"node": "Person", "optional": "yes"}]}, "rows[0].optional: expected true or false, found a text"),
        ({"node": "Person", "csv": {"columns": ["a", "a"]}}, "csv.columns: it contains a name twice"),
        ({"node": "Person", "csv": {"header": 1}}, "csv.header: expected true or false, found a number"),
        ({"node": "Person", "optional": True}, "optional: unknown name"),
    ],
)
def test_wrong_members_of_rows_and_headers_are_errors(graph: Graph, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        load(graph, {"t": pa.table({"name": ["ann"]})}, {"source": "t", **more})
    assert message in str(error.value)


OBJECTS = [
    {"who": "ann", "years": 31, "tags": ["a", "2020-01-01"], "at": "31.01.2024", "extra": {"x": 1}},
    {"who": "bob", "at": None},
    {"who": "2020-01-01", "years": None, "at": "01.02.2024", "late": True},
]
OBJECT_ENTRY: dict[str, Any] = {
    "source": "*.ndjson",
    "node": "Person",
    "properties": {"name": "who", "age": "years", "tags": "tags", "joined": {"column": "at", "format": "%d.%m.%Y"}},
    "others": "ignore",
}


@pytest.mark.parametrize("spread", [False, True])
def test_plain_objects_are_a_table(graph: Graph, tmp_path: Path, spread: bool) -> None:
    text = "\n".join(json.dumps(each, indent=1 if spread else None) for each in OBJECTS)
    (tmp_path / "people.ndjson").write_text(text)
    load(graph, tmp_path / "people.ndjson", OBJECT_ENTRY)
    found = {row["name"]: row for row in all_of(graph, "Person")}
    assert (found["ann"]["age"], found["ann"]["tags"], found["ann"]["joined"]) == (
        31,
        ["a", "2020-01-01"],
        1706659200000,
    )
    assert (found["bob"]["age"], found["bob"]["joined"]) == (None, None)
    assert found["2020-01-01"]["joined"] == 1706745600000


def test_plain_objects_in_several_blocks_keep_their_lines(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_objects, "BLOCK_BYTES", 200)
    monkeypatch.setattr("omnigraph.write.input.formats._CHUNK", 70)
    lines = [json.dumps({"who": f"p{i}", "years": i if i != 40 else "old"}) for i in range(60)]
    (tmp_path / "people.ndjson").write_text("\n".join([*lines, '{"who": 7}', "nonsense", "[1]", '{"who": "q"']))
    assert refused(graph, tmp_path / "people.ndjson", OBJECT_ENTRY) == [
        "people.ndjson, line 41: Person.years: expected a whole number, found a text",
        "people.ndjson, line 61: Person.who: expected a text, found a number",
        "people.ndjson, line 62: input: this is not JSON: Expecting value: line 1 column 1 (char 0)",
        "people.ndjson, line 63: input: expected an object",
        "people.ndjson, line 64: input: the object is not complete",
    ]


def test_ids_and_edges_of_plain_objects(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "jobs.ndjson").write_text('{"p": "ann", "f": 7, "t": "Acme", "unknown": 1}\n')
    rows = [
        {"node": "Person", "properties": {"name": "p"}},
        {"node": "Company", "id": "c{f}", "properties": {"title": "t"}},
        {"edge": "Works", "from": "p", "to": "c{f}"},
    ]
    entry = {"source": "jobs.ndjson", "rows": rows}
    assert refused(graph, tmp_path / "jobs.ndjson", entry) == [
        "jobs.ndjson, line 1: Person or Company or Works.unknown: the mapping does not mention this column: name it "
        "under 'properties' or 'ignore'"
    ]
    load(graph, tmp_path / "jobs.ndjson", {**entry, "ignore": "unknown"})
    assert [(row["from"], row["to"]) for row in all_of(graph, "+Works")] == [("ann", "c7")]
