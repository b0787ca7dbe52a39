"""`omnigraph analytics`: results are printed, written to a file, or stored as a property on a branch."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from tests.cli.shell import Shell

SCHEMA = """\
node Page { name: String @key  rank: F64?  part: String? }
edge Links: Page -> Page { cost: I32? }
"""
PAIRS = [("about", "home"), ("blog", "home"), ("home", "blog"), ("blog", "about")]


@pytest.fixture
def web(shell: Shell) -> str:
    shell.write("web.pg", SCHEMA)
    uri = str(shell.root / "web")
    lines = [{"type": "Page", "data": {"name": name}} for name in ("about", "blog", "home", "old")]
    lines += [{"edge": "Links", "from": a, "to": b, "data": {"cost": n}} for n, (a, b) in enumerate(PAIRS)]
    shell.write("web.ndjson", "\n".join(map(json.dumps, lines)))
    assert shell.run("init", uri, "--schema", str(shell.root / "web.pg")).exit_code == 0
    assert shell.run("load", uri, "--data", str(shell.root / "web.ndjson"), "--mode", "append").exit_code == 0
    return uri


def test_ranks_are_printed(shell: Shell, web: str) -> None:
    result = shell.run("analytics", "pagerank", web, "--top", "2", "--format", "csv")
    header, first, second = result.stdout.splitlines()
    assert header == "type,id,rank"
    assert first.startswith("Page,home,0.37")
    assert second.startswith("Page,blog,0.36")
    assert result.stderr == "pagerank in this process: about 0.0 MiB of memory, limit 4.0 GiB\n"
    assert shell.run("analytics", "pagerank", web, "--quiet").stderr == ""
    shown = shell.run("analytics", "triangles", "--uri", web, "--quiet").stdout.splitlines()
    assert shown[0] == "4 rows from branch main via triangles"


def test_analytics_prints_json(shell: Shell, web: str) -> None:
    told = shell.json("analytics", "components", web)
    assert [row["component"] for row in told["rows"]] == ["Page:about", "Page:about", "Page:about", "Page:old"]
    told = shell.json("analytics", "paths", web, "--source", "home", "--weight", "cost")
    assert [(row["id"], row["distance"]) for row in told["rows"]] == [("about", 5.0), ("blog", 2.0), ("home", 0.0)]
    told = shell.json("analytics", "labels", web, "--iterations", "3", "--edge", "Links")
    assert len(told["rows"]) == 4


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_a_result_can_be_written_to_a_file(ending: str, shell: Shell, web: str) -> None:
    path = shell.root / f"ranks.{ending}"
    assert shell.run("analytics", "pagerank", web, "--out", str(path)).exit_code == 0
    readers = {
        "parquet": pyarrow.parquet.read_table,
        "arrow": pyarrow.feather.read_table,
        "csv": pyarrow.csv.read_csv,
    }
    assert readers[ending](path)["id"].to_pylist() == ["about", "blog", "home", "old"]


def test_a_result_can_be_written_to_a_property(shell: Shell, web: str) -> None:
    result = shell.run("analytics", "pagerank", web, "--write", "rank", "--to", "ranked", "--message", "ranks")
    assert result.stdout == "wrote rank of 4 nodes on branch ranked\n"
    best = "query best() { match { $p: Page } return { $p.name } order { $p.rank desc } limit 1 }"
    assert shell.json("query", "--uri", web, "--branch", "ranked", "-e", best)["rows"] == [{"p.name": "home"}]
    commit = shell.json("commit", "list", web, "--branch", "ranked")["commits"][0]
    assert commit["message"] == "ranks"
    told = shell.json("analytics", "components", web, "--write", "part", "--to", "parted", "--as", "ann", "--quiet")
    assert told["branch"] == "parted"
    assert told["actor_id"] == "ann"


def test_an_earlier_state_can_be_analysed(shell: Shell, web: str) -> None:
    shell.run("tag", "create", "v1", "--uri", web)
    shell.run("mutate", "--uri", web, "-e", 'query q() { delete Page where name = "old" }')
    assert len(shell.json("analytics", "triangles", web)["rows"]) == 3
    assert len(shell.json("analytics", "triangles", web, "--snapshot", "v1")["rows"]) == 4


def test_wrong_arguments_are_reported(shell: Shell, web: str, tmp_path: Path) -> None:
    assert "--write PROPERTY and --to BRANCH" in shell.fails("analytics", "labels", web, "--write", "part", code=2)
    assert "need a write" in shell.fails("analytics", "labels", web, "--message", "m", code=2)
    assert "must end in .parquet" in shell.fails("analytics", "labels", web, "--out", "x.json", code=2)
    assert "Page" in shell.fails("analytics", "labels", web, "--node", "Pgae")
    nowhere = str(tmp_path / "no" / "x.csv")
    assert f"cannot write {nowhere}" in shell.fails("analytics", "labels", web, "--out", nowhere, "--quiet")
