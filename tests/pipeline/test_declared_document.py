"""The document of a pipeline: all other content is refused with the file, the location and a hint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import InputError
from omnigraph.pipeline.declared.document import FileSource, GraphSource, QueryCheck, SparkSource, Then, read_document

PLAIN: dict[str, Any] = {
    "pipeline": "fleet",
    "sources": {"ships": "ships.csv"},
    "load": {"nodes": {"Ship": "ships"}},
    "mode": "append",
    "then": "review",
}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in PLAIN.items() if name not in names}


def test_a_declaration_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    (tmp_path / "heavy.gq").write_text(
        "query heavy($than: I64) { match { $s: Ship  $s.tons > $than } return { $s.name } }"
    )
    file.write_text(
        """
pipeline: fleet
graph: harbour
variables: {day: 2026-03-14, least: 100}
sources:
  ships: in/ships-${day}.csv
  logs: {path: "s3://bucket/logs/*.ndjson", columns: {ship: string, tons: bigint}}
  known: {type: Ship, branch: main}
  other: {graph: ../other, type: "node:Ship", commit: v1}
  orders: {table: sales.orders}
  wires: {format: jdbc, options: {url: "jdbc:x", fetchsize: 10}}
steps:
  heavy: SELECT * FROM ships WHERE tons > :least;
load:
  nodes: {Ship: heavy}
  edges: {Follows: logs}
mode: merge
branch: nightly-${day}
message: costs $$5
checks:
  no giants: SELECT * FROM heavy WHERE tons > 1000000
  few:
    file: heavy.gq
    params: {than: "${least}", exactly: 7}
    expect: {at_least: 1, at_most: 9}
then: merge
"""
    )
    found = read_document(file, {"least": 250})
    assert found.variables == {"day": "2026-03-14", "least": "250"}
    assert found.graph == str(tmp_path / "harbour")
    assert found.sources == {
        "ships": FileSource(str(tmp_path / "in/ships-2026-03-14.csv")),
        "logs": FileSource("s3://bucket/logs/*.ndjson", {"ship": "string", "tons": "bigint"}),
        "known": GraphSource(None, "Ship", "main"),
        "other": GraphSource(str(tmp_path / "../other"), "node:Ship", None, "v1"),
        "orders": SparkSource(table="sales.orders"),
        "wires": SparkSource(format="jdbc", options={"url": "jdbc:x", "fetchsize": "10"}),
    }
    assert found.steps == {"heavy": "SELECT * FROM ships WHERE tons > :least"}
    assert [(target.key, target.rows) for target in found.targets] == [("node:Ship", "heavy"), ("edge:Follows", "logs")]
    assert (found.branch, found.base, found.message, found.then) == (
        "nightly-2026-03-14",
        "main",
        "costs $5",
        Then.MERGE,
    )
    few = found.checks[1]
    assert isinstance(few, QueryCheck)
    assert (few.params, few.least, few.most) == ({"than": "250", "exactly": 7}, 1, 9)
    assert "jdbc:x" not in repr(found), "options may hold credentials"


def test_the_digest_depends_on_the_content_of_a_declaration(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("{pipeline: p, sources: {a: a.csv}, load: {nodes: {A: a}}, mode: append, then: review}")
    two.write_text("# the same\nthen: review\npipeline: p\nmode: append\nsources: {a: a.csv}\nload: {nodes: {A: a}}\n")
    assert read_document(one).digest == read_document(two).digest
    two.write_text(one.read_text().replace("append", "merge"))
    assert read_document(one).digest != read_document(two).digest


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (without("pipeline"), "the pipeline: 'pipeline' is missing", "give the pipeline a name"),
        (PLAIN | {"pipeline": "a b"}, "the pipeline: pipeline: 'a b' is not a valid name", "use letters"),
        (without("load"), "the pipeline: 'load' is missing", "name the rows"),
        (without("mode"), "the pipeline: 'mode' is missing", "write 'mode: append'"),
        (without("then"), "the pipeline: 'then' is missing", "write 'then: merge'"),
        (PLAIN | {"source": {}}, "the pipeline: source: unknown name", "did you mean 'sources'?"),
        (PLAIN | {"mode": "upsert"}, "the pipeline: mode: 'upsert' is not allowed here", "append, merge, overwrite"),
        (PLAIN | {"then": "publish"}, "the pipeline: then: 'publish' is not allowed here", "merge, review"),
        (PLAIN | {"branch": "a..b"}, "the pipeline: branch: 'a..b' is not a valid name", "use letters"),
        (
            PLAIN | {"branch": "main"},
            "the pipeline: then: the rows are loaded into 'main' directly",
            "name another branch",
        ),
        (PLAIN | {"load": {}}, "the pipeline: load: there is nothing to load", "name types"),
        (
            PLAIN | {"load": {"nodes": {"Ship": "shps"}}},
            "the pipeline: load.nodes.Ship: there is no source or step 'shps'",
            "did you mean 'ships'?",
        ),
        (
            PLAIN | {"steps": {"ships": "SELECT 1"}},
            "the pipeline: steps.ships: a source already has this name",
            "rename the step",
        ),
        (PLAIN | {"steps": {"a-b": "SELECT 1"}}, "the pipeline: steps.a-b: 'a-b' is not a valid name", "use letters"),
        (PLAIN | {"steps": {"node_Ship": "SELECT 1"}}, "steps.node_Ship: 'node_Ship' is reserved", "names that"),
        (PLAIN | {"steps": {"a": 7}}, "the pipeline: steps.a: expected a text, found a number", None),
        (
            PLAIN | {"variables": {"d": 1}, "steps": {"a": "SELECT ${d}"}},
            "the pipeline: steps.a: in SQL, a variable is a query parameter: write :d instead of ${d}",
            "IDENTIFIER",
        ),
        (PLAIN | {"message": "${dya}"}, "the pipeline: message: there is no variable 'dya'", "declare it"),
        (
            PLAIN | {"variables": {"day": None}},
            "the pipeline: variables.day: this variable has no value",
            "--var day=VALUE",
        ),
        (
            PLAIN | {"sources": {"s": {"columns": {}}}},
            "the pipeline: sources.s: it does not say where the rows come from",
            "give",
        ),
        (
            PLAIN | {"sources": {"s": {"table": "t", "path": "p"}}},
            "the pipeline: sources.s.path: this cannot be combined with 'table'",
            "allowed here: table",
        ),
        (
            PLAIN | {"checks": {"c": {"sql": "a", "query": "b"}}},
            "the pipeline: checks.c: a check needs exactly one of 'sql', 'query' and 'file'",
            "'query' is a text",
        ),
        (
            PLAIN | {"checks": {"c": {"query": "q", "expect": "many"}}},
            "checks.c.expect: 'many' is not allowed here",
            "none, some",
        ),
        (PLAIN | {"checks": {"c": {"file": "no.gq"}}}, "the pipeline: checks.c.file: there is no file", None),
        (PLAIN | {"embed": "no"}, "the pipeline: embed: expected true or false, found a text", None),
        ("text", "pipeline.yaml, line 1: expected names with values, found a text", None),
    ],
)
def test_wrong_declarations_are_refused_with_their_location(
    given: Any, message: str, hint: str | None, tmp_path: Path
) -> None:
    if isinstance(given, str):
        file = tmp_path / "pipeline.yaml"
        file.write_text(given)
        given = file
    with pytest.raises(InputError) as found:
        read_document(given)
    assert message in found.value.message
    assert hint is None or hint in str(found.value.hint)


def test_an_undeclared_variable_is_refused() -> None:
    with pytest.raises(InputError, match="the pipeline: variables: there is no variable 'dya'") as found:
        read_document(PLAIN | {"variables": {"day": 1}}, {"dya": "2"})
    assert found.value.hint == "did you mean 'day'?"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline: a\npipeline: b\n", "p.yaml, line 2: duplicate name 'pipeline'"),
        ("pipeline: [a\n", "p.yaml, line 2, column 1: not YAML: "),
        ("pipeline: !!python/name:os.system\n", "p.yaml, line 1: unknown tag "),
    ],
)
def test_invalid_yaml_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as found:
        read_document(file)
    assert message in found.value.message


def test_a_source_without_a_mapping_entry_is_refused() -> None:
    mapping = {"sources": [{"source": "boats", "node": "Ship"}]}
    given = PLAIN | {"mapping": mapping, "load": {"mapped": "ships"}}
    with pytest.raises(InputError, match=r"the pipeline: load.mapped: the mapping has no entry for 'ships'"):
        read_document(given)
    found = read_document(given | {"mapping": {"sources": [{"source": "ships", "node": "Ship"}]}})
    assert [(target.key, target.rows) for target in found.targets] == [("ships", "ships")]
    with pytest.raises(InputError, match=r"the pipeline: mapping: the mapping: sources\[0\].nod: unknown name"):
        read_document(given | {"mapping": {"sources": [{"source": "ships", "nod": "Ship"}]}})


def test_a_missing_declaration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*no\.yaml"):
        read_document(tmp_path / "no.yaml")
