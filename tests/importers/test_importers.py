"""Imports from Neo4j, Kuzu and RDF: every node, edge and value arrives, and bad input is one error."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.cli.main import cli
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.importers import staged_types


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")


def run(*args: object) -> Result:
    result = CliRunner().invoke(cli, list(map(str, args)), prog_name="omnigraph")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def imported(tmp_path: Path, kind: str, *inputs: object) -> list[dict[str, Any]]:
    """The records of the graph that an import creates, without ids that are generated."""
    result = run("import", kind, tmp_path / "graph", *inputs)
    assert result.exit_code == 0, result.output
    with omnigraph.open(tmp_path / "graph", read_only=True) as graph:
        lines = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    for line in lines:
        if "edge" in line and len(line["data"]["id"]) == 26:
            del line["data"]["id"]
    return lines


def refused(tmp_path: Path, kind: str, *inputs: object) -> str:
    result = run("import", kind, tmp_path / "graph", *inputs)
    assert result.exit_code != 0
    assert "Traceback" not in result.output
    return result.output


def nodes(lines: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line["data"].items() if value is not None}
        for line in lines
        if line.get("type") == name
    ]


def edges(lines: list[dict[str, Any]], name: str) -> list[tuple[str, str]]:
    return [(line["from"], line["to"]) for line in lines if line.get("edge") == name]


# ---- Neo4j


def neo4j(tmp_path: Path, **files: str) -> Path:
    directory = tmp_path / "neo4j"
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / f"{name.replace('__', '-')}.csv").write_text(text, encoding="utf-8")
    return directory


MOVIES = """\
movieId:ID,title,year:int,rating:double,seen:boolean,:LABEL
tt1,"The ""Matrix"" 1",1999,8.7,true,Movie
tt2,"Matrix, Reloaded",,,false,Movie;Sequel
"""
ACTORS_HEADER = "personId:ID,name,born:date,tags:string[],nums:long[],at:datetime,:LABEL\n"
ACTORS = 'keanu,Keanu,1964-09-02,a;b,1;2,2015-06-24T12:50:35.556+0100[Europe/Stockholm],Actor\nlaurence,"",,,,,Actor\n'
ROLES = """\
:START_ID,role,:END_ID,:TYPE
keanu,Neo,tt1,ACTED_IN
keanu,Neo,tt2,ACTED_IN
laurence,,tt1,ACTED_IN
laurence,,keanu,KNOWS
laurence,,keanu,KNOWS
"""


def test_a_neo4j_export_is_imported_whole(tmp_path: Path) -> None:
    lines = imported(
        tmp_path, "neo4j", neo4j(tmp_path, movies=MOVIES, actors__header=ACTORS_HEADER, actors=ACTORS, roles=ROLES)
    )
    assert nodes(lines, "Movie") == [
        {
            "id": "tt1",
            "labels": ["Movie"],
            "movieId": "tt1",
            "rating": 8.7,
            "seen": True,
            "title": 'The "Matrix" 1',
            "year": 1999,
        },
        {"id": "tt2", "labels": ["Movie", "Sequel"], "movieId": "tt2", "seen": False, "title": "Matrix, Reloaded"},
    ]
    keanu, laurence = nodes(lines, "Actor")
    assert keanu == {
        "id": "keanu",
        "at": 1435146635556,
        "born": (date(1964, 9, 2) - date(1970, 1, 1)).days,
        "name": "Keanu",
        "nums": [1, 2],
        "personId": "keanu",
        "tags": ["a", "b"],
    }
    assert laurence == {"id": "laurence", "name": "", "personId": "laurence"}
    assert edges(lines, "ActedIn") == [("keanu", "tt1"), ("keanu", "tt2"), ("laurence", "tt1")]
    assert edges(lines, "Knows") == [("laurence", "keanu")] * 2


def test_id_groups_and_files_without_labels(tmp_path: Path) -> None:
    lines = imported(
        tmp_path,
        "neo4j",
        neo4j(
            tmp_path,
            people=":ID(P)|name|size:int\n1|ann|3\n2|bob|\n",
            cities="id:ID(C)|name\n1|Oslo\n",
            lives_in=":START_ID(P)|:END_ID(C)|since:int\n1|1|2020\n2|1|\n",
        ),
    )
    assert nodes(lines, "Person") == [{"id": "1", "name": "ann", "size": 3}, {"id": "2", "name": "bob"}]
    assert nodes(lines, "City") == [{"id": "1", "city_id": "1", "name": "Oslo"}]
    assert edges(lines, "LivesIn") == [("1", "1"), ("2", "1")]


def test_a_relationship_between_several_types_gives_an_edge_type_for_each(tmp_path: Path) -> None:
    lines = imported(
        tmp_path,
        "neo4j",
        neo4j(
            tmp_path,
            nodes=":ID,:LABEL,name\na,Person,ann\nb,Firm,acme\nc,Person,cid\n",
            likes=":START_ID,:END_ID,:TYPE\na,b,LIKES\na,c,LIKES\nb,c,OWNS\n",
        ),
    )
    assert edges(lines, "LikesPersonFirm") == [("a", "b")]
    assert edges(lines, "LikesPersonPerson") == [("a", "c")]
    assert edges(lines, "Owns") == [("b", "c")]


def test_different_labels_have_different_types(tmp_path: Path) -> None:
    lines = imported(
        tmp_path,
        "neo4j",
        neo4j(
            tmp_path,
            nodes=":ID,:LABEL\n1,Foo Bar\n2,FooBar\n3,Größe\n",
            rels=":START_ID,:END_ID,:TYPE\n1,1,KNOWS\n1,1,knows\n1,1,KNOWS\n",
        ),
    )
    assert [len(nodes(lines, name)) for name in ("FooBar", "FooBar2", "Grosse")] == [1, 1, 1]
    assert [len(edges(lines, name)) for name in ("Knows", "Knows2")] == [2, 1]


def test_delimiters_and_quotes_of_neo4j_admin(tmp_path: Path) -> None:
    source = neo4j(tmp_path, a=":ID^name^tags:string[]^:LABEL\n1^'a^b'^x|y^P\n")
    lines = imported(tmp_path, "neo4j", source, "--delimiter", "^", "--quote", "'", "--array-delimiter", "|")
    assert nodes(lines, "P") == [{"id": "1", "name": "a^b", "tags": ["x", "y"]}]
    assert "is not one ASCII character" in refused(tmp_path / "x", "neo4j", source, "--delimiter", "ab")


def test_an_import_into_a_directory_with_files_is_refused_and_removes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "graph"
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    (place / "people.csv").write_text(":ID,name\n1,ann\n1,bob\n")
    message = refused(tmp_path, "neo4j", place / "people.csv")
    assert "is not empty" in message
    assert sorted(path.name for path in place.iterdir()) == ["people.csv", "thesis.txt"]


def test_a_failed_import_leaves_no_graph_and_can_be_repeated(tmp_path: Path) -> None:
    output = refused(tmp_path, "neo4j", neo4j(tmp_path, a=":ID,:LABEL\n1,P\n2,P\n1,P\n"))
    assert "node:P: '1' is the id of several records" in output
    assert "--files DIR" in output
    assert not (tmp_path / "graph").exists()
    assert len(imported(tmp_path, "neo4j", neo4j(tmp_path, a=":ID,:LABEL\n1,P\n2,P\n"))) == 2


def test_a_file_of_apoc_is_imported(tmp_path: Path) -> None:
    text = (
        '"_id","_labels","name","age","_start","_end","_type","since"\n'
        '"0",":Person","ann","3",,,,\n"1",":Person:Admin","bob","",,,,\n,,,,"0","1","KNOWS","2020"\n'
    )
    lines = imported(tmp_path, "neo4j", neo4j(tmp_path, all=text))
    assert [node["name"] for node in nodes(lines, "Person")] == ["ann", "bob"]
    assert nodes(lines, "Person")[1]["labels"] == ["Person", "Admin"]
    assert edges(lines, "Knows") == [("0", "1")]
    assert next(line for line in lines if "edge" in line)["data"] == {"since": "2020"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": "x,y\n1,2\n"}, "a.csv has no header of Neo4j"),
        ({"a": ":ID,age:int,:LABEL\n1,old,P\n"}, "a.csv, line 2: P.age: expected a whole number, found 'old'"),
        ({"a": ":ID,n:int[]\n1,1;x\n"}, "A.n: an item of the list: expected a whole number, found 'x'"),
        ({"a": ":ID\n1\n", "b": ":START_ID,:END_ID(X)\n1,1\n"}, "line 2: there are no nodes in the id group 'X'"),
        (
            {"a": ":ID,:LABEL\n1,A\n2,B\n", "b": ":START_ID,:END_ID\n1,3\n"},
            "b.csv, line 2: there is no node with the id '3'",
        ),
        ({"a": ":ID,name\n1,x\n,y\n"}, "a.csv, line 3: input: the node has no id"),
        (
            {"a": ":ID\n1\n", "b": ":START_ID,:END_ID\n1,1\n1,\n"},
            "b.csv, line 3: input: the relationship has no start or no end",
        ),
        ({"a": ":ID,x:int\n1,2\n", "b": "b:ID,:LABEL,x:date\n2,A,2020-01-01\n"}, "A.x is Date?, and I64? in another"),
    ],
)
def test_a_bad_neo4j_export_is_one_error(tmp_path: Path, files: dict[str, str], message: str) -> None:
    assert message in refused(tmp_path, "neo4j", neo4j(tmp_path, **files))


def test_a_second_id_or_label_column_is_an_error(tmp_path: Path) -> None:
    for number, header in enumerate(("x:ID,y:ID,name", "x:ID,:LABEL,:LABEL", ":START_ID,:START_ID,:END_ID")):
        files = neo4j(tmp_path / f"{number}", people=f"{header}\n1,2,3\n")
        assert "the header has several columns with :" in refused(tmp_path, "neo4j", files)


@pytest.mark.parametrize("error", [InputError("no memory is left"), KeyboardInterrupt(), RuntimeError("a bug")])
def test_an_import_that_fails_or_is_interrupted_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def failing(*args: object, **options: object) -> None:
        raise error

    files = neo4j(tmp_path, people=":ID,name\n1,ann\n")
    with monkeypatch.context() as patched:
        patched.setattr(Graph, "load", failing)
        assert run("import", "neo4j", tmp_path / "graph", files).exit_code != 0
    assert not (tmp_path / "graph").exists()
    assert len(nodes(imported(tmp_path, "neo4j", files), "Person")) == 1


# ---- Kuzu


KUZU_SCHEMA = """\
CREATE NODE TABLE `Person` (`id` INT64,`name` STRING,`height` DOUBLE,`born` DATE,`seen` TIMESTAMP,`tags` STRING[],
`nums` INT64[],`vec` FLOAT[2],`ok` BOOL,`raw` BLOB, PRIMARY KEY(`id`));
CREATE NODE TABLE `City` (`city name` STRING, PRIMARY KEY(`city name`));
CREATE REL TABLE `Knows` (FROM `Person` TO `Person`, `since` DATE,MANY_MANY);
CREATE REL TABLE `Likes` (FROM `Person` TO `Person`, FROM `Person` TO `City`, `note` STRING, MANY_MANY);
"""
_STYLE = 'escape ="\\\\", delim =",", quote="\\"", header=true'
KUZU_COPY = f"""\
COPY `Person` (`id`,`name`,`height`,`born`,`seen`,`tags`,`nums`,`vec`,`ok`,`raw`) FROM "Person.csv" ({_STYLE});
COPY `City` (`city name`) FROM "City.csv" ({_STYLE});
COPY `Knows` (`since`) FROM "Knows.csv" ({_STYLE});
COPY `Likes` (`note`) FROM "Likes_Person_Person.csv" (from="Person", to="Person", {_STYLE});
COPY `Likes` (`note`) FROM "Likes_Person_City.csv" (from="Person", to="City", {_STYLE});
"""


def kuzu_csv(tmp_path: Path) -> Path:
    directory = tmp_path / "kuzu"
    directory.mkdir()
    files = {
        "schema.cypher": KUZU_SCHEMA,
        "copy.cypher": KUZU_COPY,
        "Person.csv": "id,name,height,born,seen,tags,nums,vec,ok,raw\n"
        '1,"ann \\"a\\", x",1.5,2020-01-31,2020-01-31 10:00:00.123,"[a,b c]","[1,2]","[0.5,1.0]",True,\\\\xAA\\\\x00z\n'
        '2,"",,,,,,,,\n',
        "City.csv": "city name\nOslo\n",
        "Knows.csv": "a.id,b.id,r.since\n1,2,2021-01-01\n",
        "Likes_Person_Person.csv": "a.id,b.id,r.note\n2,1,\n",
        "Likes_Person_City.csv": 'a.id,b.id,r.note\n1,Oslo,"two\nlines"\n',
    }
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def test_a_kuzu_export_with_csv_files_is_imported_whole(tmp_path: Path) -> None:
    lines = imported(tmp_path, "kuzu", kuzu_csv(tmp_path))
    ann, bob = nodes(lines, "Person")
    assert ann == {
        "id": "1",
        "born": 18292,
        "height": 1.5,
        "name": 'ann "a", x',
        "nums": [1, 2],
        "ok": True,
        "person_id": 1,
        "raw": "base64:qgB6",
        "seen": 1580464800123,
        "tags": ["a", "b c"],
        "vec": [0.5, 1.0],
    }
    assert bob == {"id": "2", "name": "", "person_id": 2}
    assert edges(lines, "Knows") == [("1", "2")]
    assert edges(lines, "Likes_Person_Person") == [("2", "1")]
    assert edges(lines, "Likes_Person_City") == [("1", "Oslo")]
    assert next(line for line in lines if line.get("edge") == "Likes_Person_City")["data"] == {"note": "two\nlines"}


def test_a_ladybug_export_with_parquet_files_is_imported_whole(tmp_path: Path) -> None:
    directory = tmp_path / "ladybug"
    directory.mkdir()
    storage = "WITH (storage = '/old/place', format = 'icebug-disk')"
    (directory / "schema.cypher").write_text(
        f"CREATE NODE TABLE `P` (`id` INT64,`u` UUID,`st` STRUCT(a INT64, b STRING), PRIMARY KEY(`id`)) {storage};\n"
        f"CREATE REL TABLE `K` (FROM `P` TO `P`, `since` DATE,MANY_MANY) {storage};\n"
    )
    uuids = pa.array([b"\0" * 16, None], pa.binary(16))
    people = pa.table({"id": [1, 2], "u": uuids, "st": [{"a": 1, "b": "x"}, None]})
    pa.parquet.write_table(people, directory / "nodes_P.parquet")
    knows = pa.table({"from": [1], "to": [2], "since": [date(2021, 1, 1)]})
    pa.parquet.write_table(knows, directory / "rels_K.parquet")
    lines = imported(tmp_path, "kuzu", directory)
    assert nodes(lines, "P") == [
        {"id": "1", "p_id": 1, "st": '{"a": 1, "b": "x"}', "u": "00000000-0000-0000-0000-000000000000"},
        {"id": "2", "p_id": 2},
    ]
    assert edges(lines, "K") == [("1", "2")]


def test_nested_lists_of_kuzu_stay_whole(tmp_path: Path) -> None:
    (tmp_path / "schema.cypher").write_text("CREATE NODE TABLE P (id INT64, n INT64[][], PRIMARY KEY(id));")
    (tmp_path / "copy.cypher").write_text('COPY P FROM "P.csv" (header=false);')
    (tmp_path / "P.csv").write_text('1,"[[1],[2,3]]"\n')
    (cell,) = nodes(imported(tmp_path, "kuzu", tmp_path), "P")
    assert cell["n"] == ["[1]", "[2,3]"]
    (tmp_path / "copy.cypher").write_text('COPY P FROM "P.parquet";')
    pa.parquet.write_table(pa.table({"id": [1], "n": [[[1], [2, 3]]]}), tmp_path / "P.parquet")
    (tmp_path / "more").mkdir()
    lines = imported(tmp_path / "more", "kuzu", tmp_path)
    assert nodes(lines, "P")[0]["n"] == ["[1]", "[2, 3]"]


def test_tables_of_kuzu_with_one_type_name_are_refused(tmp_path: Path) -> None:
    table = "CREATE NODE TABLE `{}` (id INT64, PRIMARY KEY(id));"
    (tmp_path / "schema.cypher").write_text(table.format("a-b") + table.format("a_b"))
    assert "node table a-b and the node table a_b both become the type A_b" in refused(tmp_path, "kuzu", tmp_path)


def test_an_import_may_have_more_types_than_open_files(tmp_path: Path, thresholds: Thresholds) -> None:
    thresholds(staged_types, MAX_OPEN_FILES=2)
    rows = "".join(f"{i},L{i % 5}\n" for i in range(20))
    lines = imported(tmp_path, "neo4j", neo4j(tmp_path, a=f":ID,:LABEL\n{rows}", b=":ID(x),:LABEL\nb,L0\n"))
    assert [len(nodes(lines, f"L{i}")) for i in range(5)] == [5, 4, 4, 4, 4]


def test_a_bad_kuzu_export_is_one_error(tmp_path: Path) -> None:
    assert "there is no file" in refused(tmp_path, "kuzu", tmp_path)
    directory = kuzu_csv(tmp_path)
    (directory / "Knows.csv").write_text("a.id,b.id,r.since\n1,2,soon\n")
    assert "Knows.csv: since: " in refused(tmp_path, "kuzu", directory)
    (directory / "Knows.csv").unlink()
    assert "Knows.csv cannot be read" in refused(tmp_path, "kuzu", directory)
    (directory / "schema.cypher").write_text("")
    assert "declares no tables" in refused(tmp_path, "kuzu", directory)


# ---- RDF


TURTLE = """\
@prefix foaf: <http://xmlns.com/foaf/0.1/> .
@prefix ex: <http://example.org/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
ex:ann a foaf:Person ; foaf:name "Ann" ; foaf:age 31 ; ex:born "1990-01-02"^^xsd:date ; foaf:knows ex:bob, ex:cid ;
    foaf:nick "a", "annie" ; rdfs:label "Anna"@de ; ex:home <http://example.org/places/Oslo> ; ex:mixed 1 .
ex:bob a foaf:Person, ex:Admin ; foaf:name "Bob" ; ex:score 1.5 ; ex:seen "2024-01-01T10:00:00Z"^^xsd:dateTime ;
    ex:ok true ; ex:mixed "x" .
ex:cid a foaf:Person ; ex:score 2 ; ex:worksFor ex:acme ; ex:bad "old"^^xsd:integer .
ex:acme a ex:Company .
"""


def test_turtle_is_imported_whole(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    (tmp_path / "x.ttl").write_text(TURTLE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("logging.Logger.warning", lambda *args, **kwargs: None)  # rdflib reports the bad integer
        lines = imported(tmp_path, "rdf", tmp_path / "x.ttl")
    ex = "http://example.org/"
    ann, bob, cid = nodes(lines, "Person")
    assert ann == {
        "id": f"{ex}ann",
        "age": 31,
        "born": 7306,
        "iri": f"{ex}ann",
        "label_de": "Anna",
        "mixed": "1",
        "name": "Ann",
        "nick": ["a", "annie"],
    }
    assert bob["types"] == ["http://xmlns.com/foaf/0.1/Person", f"{ex}Admin"]
    assert (bob["score"], bob["seen"], bob["ok"], bob["mixed"]) == (1.5, 1704103200000, True, "x")
    assert (cid["score"], cid["bad"]) == (2.0, "old")
    assert edges(lines, "Knows") == [(f"{ex}ann", f"{ex}bob"), (f"{ex}ann", f"{ex}cid")]
    assert edges(lines, "WorksFor") == [(f"{ex}cid", f"{ex}acme")]
    assert edges(lines, "Home") == [(f"{ex}ann", f"{ex}places/Oslo")]
    assert nodes(lines, "Resource") == [{"id": f"{ex}places/Oslo", "iri": f"{ex}places/Oslo"}]


def test_n_triples_give_the_same_graph_as_turtle(tmp_path: Path) -> None:
    rdflib = pytest.importorskip("rdflib")
    (tmp_path / "x.ttl").write_text(TURTLE.replace(' ; ex:bad "old"^^xsd:integer', ""), encoding="utf-8")
    rdflib.Graph().parse(tmp_path / "x.ttl").serialize(tmp_path / "x.nt", format="nt", encoding="utf-8")
    (tmp_path / "nt").mkdir()
    assert imported(tmp_path / "nt", "rdf", tmp_path / "x.nt") == imported(tmp_path, "rdf", tmp_path / "x.ttl")


def test_bad_rdf_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    (tmp_path / "x.ttl").write_text("this is no turtle", encoding="utf-8")
    assert "x.ttl cannot be read as turtle" in refused(tmp_path, "rdf", tmp_path / "x.ttl")
    assert "the name does not give the format" in refused(tmp_path, "rdf", neo4j(tmp_path, a="x"))
    (tmp_path / "x.ttl").write_text("", encoding="utf-8")
    assert "there are no triples" in refused(tmp_path, "rdf", tmp_path / "x.ttl")


# ---- all


def test_files_are_written_instead_of_a_graph(tmp_path: Path) -> None:
    source = neo4j(tmp_path, movies=MOVIES)
    result = run("import", "neo4j", "--files", tmp_path / "out", source)
    assert result.exit_code == 0, result.output
    init_line, load_line = (line.replace("next: ", "").strip() for line in result.stdout.splitlines()[-2:])
    for line in (init_line, load_line):
        words = [word.strip("'") for word in line.replace("GRAPH", str(tmp_path / "graph")).split()[1:]]
        assert run(*words).exit_code == 0
    assert "already" in refused(tmp_path, "neo4j", source)


def test_the_arguments_are_checked(tmp_path: Path) -> None:
    assert "name the graph to create, then the input" in refused(tmp_path, "neo4j")
    assert "name one directory" in refused(tmp_path, "kuzu", "a", "b")
    result = run("import", "neo4j", tmp_path / "graph", neo4j(tmp_path, movies=MOVIES), "--json")
    assert json.loads(result.stdout) == {"uri": str(tmp_path / "graph"), "nodes": {"Movie": 2}, "edges": {}}


PLACE = "CREATE NODE TABLE P (id INT64, tags STRING[], PRIMARY KEY(id));\n"
COPY_PLACE = 'COPY P (id, tags) FROM "p.csv";\n'
BROKEN_EXPORTS: dict[str, tuple[str | bytes, str, str, str]] = {
    "unknown column": (PLACE, 'COPY P (id, nope) FROM "p.csv";', "1,[a]", "copy.cypher loads P.nope, which"),
    "column twice": (PLACE, 'COPY P (id, tags, tags) FROM "p.csv";', "1,[a],[b]", "loads a column of P twice"),
    "rows without keys": (PLACE, 'COPY P (tags) FROM "p.csv";', "[a]", "without the primary key of P"),
    "no key": ("CREATE NODE TABLE P (id INT64, tags STRING[]);", COPY_PLACE, "1,[a]", "table P has no primary key"),
    "broken key": (PLACE.replace("KEY(id)", "KEY id"), COPY_PLACE, "1,[a]", "table P has no primary key"),
    "no ends": (PLACE + "CREATE REL TABLE K (since INT64);", COPY_PLACE, "1,[a]", "table K connects no node tables"),
    "another encoding": (PLACE.encode("utf-16"), COPY_PLACE, "1,[a]", "schema.cypher is not UTF-8"),
    "long separator": (PLACE, 'COPY P FROM "p.csv" (delim="||");', "1||[a]", "delim='||' is not one ASCII character"),
    "no separator": (PLACE, 'COPY P FROM "p.csv" (delim="");', "1,[a]", "delim='' is not one ASCII character"),
    "empty vectors": (PLACE.replace("STRING[]", "FLOAT[0]"), COPY_PLACE, "1,[]", "P.tags has arrays of 0 numbers"),
    "large vectors": (PLACE.replace("STRING[]", "FLOAT[9999999999]"), COPY_PLACE, "1,[]", "of 9999999999 numbers"),
    "no brackets": (PLACE, COPY_PLACE, "1,abc", "p.csv: tags: expected a list in brackets: abc (1 values)"),
}


@pytest.mark.parametrize("name", BROKEN_EXPORTS)
def test_a_broken_export_of_kuzu_is_an_error(tmp_path: Path, name: str) -> None:
    schema, copies, rows, message = BROKEN_EXPORTS[name]
    directory = tmp_path / "kuzu"
    directory.mkdir()
    (directory / "schema.cypher").write_bytes(schema if isinstance(schema, bytes) else schema.encode())
    (directory / "copy.cypher").write_text(copies, encoding="utf-8")
    (directory / "p.csv").write_text(f"{rows}\n", encoding="utf-8")
    found = refused(tmp_path, "kuzu", directory)
    assert message in found
    assert "bug" not in found


def test_parquet_columns_of_kuzu_are_found_by_name(tmp_path: Path) -> None:
    directory = tmp_path / "kuzu"
    directory.mkdir()
    (directory / "schema.cypher").write_text(PLACE, encoding="utf-8")
    table = pa.table({"tags": [["a"]], "id": [1]})
    pa.parquet.write_table(table, directory / "nodes_P.parquet")
    assert nodes(imported(tmp_path, "kuzu", directory), "P") == [{"id": "1", "p_id": 1, "tags": ["a"]}]
    pa.parquet.write_table(table.select(["id"]), directory / "nodes_P.parquet")
    assert "has the columns id, not id, tags" in refused(tmp_path / "other", "kuzu", directory)


def test_lists_of_texts_of_kuzu(tmp_path: Path) -> None:
    directory = tmp_path / "kuzu"
    directory.mkdir()
    (directory / "schema.cypher").write_text(PLACE, encoding="utf-8")
    (directory / "copy.cypher").write_text(COPY_PLACE, encoding="utf-8")
    cells = ('"[a,b c]"', "[]", "", '"[a,,é]"', '"[""b,c"",d]"', '"[a\\,b,[c,d]]"', '"[x\ny]"')
    (directory / "p.csv").write_text("".join(f"{n},{cell}\n" for n, cell in enumerate(cells)), encoding="utf-8")
    found = nodes(imported(tmp_path, "kuzu", directory), "P")
    lists = [["a", "b c"], [], None, ["a", "", "é"], ["b,c", "d"], ["a,b", "[c,d]"], ["x\ny"]]
    assert [one.get("tags") for one in sorted(found, key=lambda one: one["p_id"])] == lists
