"""`omnigraph explain`: the meaning of a query and its steps."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from tests.cli.shell import Shell

import omnigraph

ASKED = ("--params", '{"name": "ann"}')


@pytest.fixture
def people(shell: Shell, graph: str) -> str:
    with omnigraph.open(graph) as opened:
        opened.load(
            {"Person": pa.table({"name": ["ann", "bob"]}), "Knows": [{"from": "ann", "to": "bob"}]}, mode="append"
        )
    return graph


def test_explain_prints_the_steps_of_a_query(shell: Shell, people: str) -> None:
    result = shell.run("explain", "--uri", people, "--query", shell.queries, *ASKED)
    assert result.exit_code == 0
    assert result.stdout == (
        "read friends($name: String)\n"
        "  match\n"
        "    node $p: Person\n"
        "    node $friend: Person\n"
        "    expand $p to $friend by Person -Knows-> Person\n"
        "    filter ($p.name = $name)\n"
        "  return\n"
        "    friend.name: String = $friend.name\n"
        "  order $friend.name asc nulls first\n"
        "  ties $friend.id, $p.id\n"
        "\n"
        "step                                                         estimate  rows\n"
        "lookup $p: Person where ($p.name = $name)                           1     1\n"
        "scan $p: Person                                                     1\n"
        "expand $p to $friend by Person -Knows-> Person, by topology       0.5\n"
        "sort by $friend.name                                              0.5\n"
        "project friend.name                                               0.5\n"
    )


def test_explain_analyze_prints_rows_times_and_bytes(shell: Shell, people: str) -> None:
    text = shell.run("explain", "--uri", people, "--query", shell.queries, *ASKED, "--analyze").stdout
    assert re.search(r"^step +estimate +rows +ms +bytes +read +calls$", text, re.MULTILINE)
    assert re.search(r"^expand \$p to \$friend .* 0\.5 +1 +[\d.]+ +8 +\d+ +1$", text, re.MULTILINE)
    end = r"^1 row in [\d.]+ ms; looked at \d+ rows?, read .+ in \d+ requests?, held \d+ bytes? at most$"
    assert re.search(end, text, re.MULTILINE)


def test_explain_prints_json(shell: Shell, people: str) -> None:
    plan = shell.json("explain", "--uri", people, "--query", shell.queries, *ASKED)
    assert plan["query_name"] == "friends"
    assert plan["target"] == {"branch": "main", "snapshot": None}
    assert plan["ir"]["name"] == "friends"
    assert [step["action"] for step in plan["steps"]] == ["lookup", "scan", "expand", "sort", "project"]
    assert plan["steps"][2]["estimated_rows"] == 0.5
    assert "rows" not in plan["steps"][2]
    assert "analyzed" not in plan
    done = shell.json("explain", "--uri", people, "--query", shell.queries, *ASKED, "--analyze")
    assert done["steps"][2]["rows"] == 1
    assert done["steps"][2]["calls"] == 1
    assert done["steps"][2]["edges_by"] == ["topology"]
    assert done["analyzed"]["row_count"] == 1
    assert {"rows_looked_at", "peak_bytes", "bytes_read", "requests", "milliseconds"} < done["analyzed"].keys()


def test_explain_needs_the_parameters(shell: Shell, people: str) -> None:
    assert "$name: not given" in shell.fails("explain", "--uri", people, "--query", shell.queries)
