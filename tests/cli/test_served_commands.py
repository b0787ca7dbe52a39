"""Commands about servers: their graphs and stored queries, aliases, and names instead of addresses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.served import QUERIES, STORED, TOKEN, Site, start
from tests.cli.shell import Shell
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

BOTH = (("good", "Person"), ("bad", "Persn"))
PEOPLE = "match { $p: Person } return { $p.name as name } order { name } limit 1"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = start(tmp_path_factory.mktemp("site"), ["people", "fleet"])
    yield found
    found.process.stop()


@pytest.fixture
def home(tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    (path / "config.yaml").write_text(
        f"""
servers: {{harbour: {{url: "{site.address}"}}}}
profiles: {{web: {{server: harbour, default_graph: people}}, bare: {{server: harbour}}}}
aliases:
  above: {{server: harbour, graph: people, query: older, args: [than], format: csv}}
  adult: {{server: harbour, graph: people, query: older, params: {{than: 18}}}}
  grow: {{server: harbour, graph: people, query: add, args: [name]}}
  anywhere: {{query: people}}
"""
    )
    monkeypatch.setenv("OMNIGRAPH_HOME", str(path))
    monkeypatch.setenv("OMNIGRAPH_TOKEN_HARBOUR", TOKEN)
    return path


@pytest.fixture
def remote(shell: Shell, home: Path) -> Shell:
    return shell


def test_graphs_are_listed(remote: Shell, site: Site) -> None:
    found = remote.run("graphs", "list", "--server", "harbour")
    assert [line.split("\t")[0] for line in found.stdout.splitlines()] == ["fleet", "people"]
    assert set(remote.json("graphs", "list", "--profile", "web")["graphs"][0]) == {"graph_id", "uri"}
    # The token belongs to the address in the configuration, and is not sent to another one.
    assert "missing bearer token" in remote.fails(
        "graphs", "list", "--server", site.address.replace("127.0.0.1", "localhost")
    )


def test_a_server_without_a_graph_lists_its_graphs(remote: Shell, site: Site) -> None:
    said = remote.fails("branch", "list", "--server", "harbour", code=2)
    assert "name a graph of the server: --graph ID, one of fleet, people" in said
    assert "one of fleet, people" in remote.fails("branch", "list", "--profile", "bare", code=2)
    assert remote.run("branch", "list", "--profile", "bare", "--graph", "fleet").stdout == "draft\nmain\n"
    assert remote.run("branch", "list", "--profile", "web").stdout == "draft\nmain\n"


def test_an_address_can_be_that_of_a_graph(remote: Shell, site: Site) -> None:
    address = f"{site.address}/graphs/people"
    assert remote.run("branch", "list", "--server", address).stdout == "draft\nmain\n"
    found = remote.run("branch", "create", "side", "--server", address + "/")
    assert f"→ {address} (served)" in found.stderr
    assert remote.run("branch", "delete", "side", "--server", address, "--yes").stdout == "deleted branch side\n"


def test_defaults_name_a_server(remote: Shell, home: Path) -> None:
    with (home / "config.yaml").open("a") as file:
        file.write("defaults: {server: harbour, default_graph: people, output: csv}\n")
    assert remote.run("query", "-e", PEOPLE).stdout == "name\nann\n"
    assert remote.run("query", "-e", PEOPLE, "--graph", "fleet").stdout == "name\nann\n"
    assert remote.run("graphs", "list").exit_code == 0
    assert remote.run("alias", "anywhere").stdout.startswith("p.name,p.age,")


def test_aliases(remote: Shell) -> None:
    assert remote.run("alias", "above", "7").stdout == "name\nann\n"
    assert remote.run("alias", "above", "0").stdout == "name\nann\ncat\n"
    assert remote.run("alias", "above", "7", "--params", '{"than": 0}').stdout == "name\nann\ncat\n"
    params = remote.write("params.json", '{"than": 0}')
    assert remote.run("alias", "above", "--params-file", params, "--format", "jsonl").stdout.count("\n") == 3
    assert remote.json("alias", "adult")["rows"] == [{"name": "ann"}]
    assert "too many arguments: alias 'above' takes THAN" in remote.fails("alias", "above", "1", "2", code=2)
    assert "too many arguments: alias 'adult' takes none" in remote.fails("alias", "adult", "1", code=2)
    assert "than" in remote.fails("alias", "above", "many")
    assert "$than" in remote.fails("alias", "above")
    assert "the stored query 'add' writes" in remote.fails("alias", "grow", "zoe")
    assert "there is no alias 'abve'" in (said := remote.fails("alias", "abve"))
    assert "did you mean 'above'?" in said
    assert "name a graph" in remote.fails("alias", "anywhere", code=2)


def test_stored_queries_run_by_name(remote: Shell) -> None:
    served = ["--profile", "web"]
    assert remote.run("query", "older", *served, "--params", '{"than": 7}', "--format", "csv").stdout == "name\nann\n"
    assert "the stored query 'add' writes" in remote.fails("query", "add", *served, "--params", '{"name": "x"}')
    assert "the stored query 'people' reads" in remote.fails("mutate", "people", *served)
    assert "there is no stored query 'nope'" in remote.fails("query", "nope", *served)
    done = remote.run("mutate", "add", "--profile", "web", "--branch", "draft", "--params", '{"name": "zoe"}')
    assert done.stdout.startswith("changed draft via add: 1 node, 0 edges")
    store = str(remote.init())
    assert "give the query once" in remote.fails("query", "older", "--store", store, code=2)


def test_stored_queries_are_listed(remote: Shell, tmp_path: Path) -> None:
    remote.write(f"queries/{STORED}", QUERIES)
    listed = remote.run("queries", "list", str(tmp_path / "queries"))
    assert listed.stdout.splitlines() == [
        "mutation  add($name: String, $age: I32?) [mcp: add]",
        "read      older($than: I32) [mcp: older]",
        "    Persons above an age.",
        "    Give whole years.",
        "read      people() [mcp: people]",
    ]
    served = ["--server", "harbour", "--graph", "people"]
    assert remote.run("queries", "list", *served).stdout == listed.stdout
    assert remote.json("queries", "list", *served) == remote.json("queries", "list", str(tmp_path / "queries"))
    assert remote.json("queries", "list", *served)["queries"][0] == {
        "name": "add",
        "mcp_expose": True,
        "tool_name": "add",
        "mutation": True,
        "params": [
            {"name": "name", "type": "String", "nullable": False},
            {"name": "age", "type": "I32", "nullable": True},
        ],
    }
    assert remote.json("queries", "validate", *served) == {"ok": True, "breakages": [], "warnings": []}


def test_deprecated_stored_queries_name_their_successor(remote: Shell, tmp_path: Path) -> None:
    directory, body = str(tmp_path / "queries"), "{ match { $p: Person } return { $p.name } }"
    old = f'query people_v1() @deprecated("people") {body} query none() @deprecated("") {body} query people_v2() {body}'
    remote.write("queries/a.gq", old)
    assert remote.run("queries", "list", directory).stdout.splitlines() == [
        "read      none() [mcp: none] [deprecated]",
        "read      people_v1() [mcp: people_v1] [deprecated: use people]",
        "read      people_v2() [mcp: people_v2]",
    ]
    marks = [
        (one.get("deprecated"), one.get("successor")) for one in remote.json("queries", "list", directory)["queries"]
    ]
    assert marks == [(True, None), (True, "people"), (None, None)]
    schema = ("--schema", remote.schema)
    assert remote.run("queries", "validate", directory, *schema).stdout == "3 queries: valid\n"
    remote.write("queries/a.gq", old.replace('"people"', '"persons"'))
    failed = remote.run("queries", "validate", directory, *schema)
    assert failed.exit_code == 1
    assert failed.stdout.splitlines() == [
        "ERROR people_v1: it is deprecated for 'persons': there is no such query",
        "3 queries: 1 do not fit the schema",
    ]


def test_stored_queries_are_checked(remote: Shell, tmp_path: Path) -> None:
    directory = str(tmp_path / "queries")
    good, bad = (f"query {name}() {{ match {{ $p: {kind} }} return {{ $p.name }} }}\n" for name, kind in BOTH)
    remote.write("queries/a.gq", good + bad)
    remote.write("queries/b.gq", "query good() { match { $p: Person } return { $p.age } }")
    remote.write("queries/c.gq", "query (")
    store = remote.init()
    found = remote.run("queries", "validate", directory, "--store", store, "--json")
    assert found.exit_code == 1
    assert '"query": "bad"' in found.stdout
    assert "the name is declared in a.gq, too" in found.stdout
    assert '"query": "c.gq"' in found.stdout
    for schema in (["--schema", remote.schema], ["--server", "harbour", "--graph", "people"]):
        failed = remote.run("queries", "validate", directory, *schema)
        assert failed.exit_code == 1
        assert "ERROR bad: " in failed.stdout
    remote.write("queries/a.gq", "query near($v: Vector(3)) { match { $p: Person } return { $p.name, $v as v } }")
    (tmp_path / "queries" / "c.gq").unlink()
    checked = remote.run("queries", "validate", directory, "--store", store)
    assert (checked.exit_code, checked.stdout.splitlines()[-1]) == (0, "2 queries: valid")
    assert "WARN  near: agents cannot give the vector $v" in checked.stdout
    assert "give the directory of the queries" in remote.fails("queries", "validate", "--schema", remote.schema, code=2)
    assert "stored queries belong to a server" in remote.fails("queries", "list", "--store", store, code=2)


def test_a_wrong_token_is_refused_and_not_shown(remote: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_TOKEN_HARBOUR", "wr0ng")
    for args in (["branch", "list", "--profile", "web"], ["graphs", "list", "--server", "harbour"]):
        said = remote.fails(*args)
        assert "invalid bearer token" in said
        assert "wr0ng" not in said
    monkeypatch.delenv("OMNIGRAPH_TOKEN_HARBOUR")
    said = remote.fails("branch", "list", "--profile", "web")
    assert "missing bearer token" in said
    assert "omnigraph login NAME" in said
    assert "header" not in said


def test_an_address_with_tls_of_a_server_without_it_is_explained(remote: Shell, site: Site) -> None:
    said = remote.fails("branch", "list", "--server", site.address.replace("http:", "https:"), "--graph", "people")
    assert "the server cannot be reached: it does not speak TLS" in said
    assert "write http:// in the address" in said


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["query", "-e", PEOPLE], "stopped\n"),
        (
            ["mutate", "-e", 'query q() { insert Person { name: "x" } }'],
            "stopped\nthe server may still finish the write\n  help: read the graph to see whether it was written; ",
        ),
    ],
)
def test_ctrl_c_ends_a_call_and_its_connection(args: list[str], said: str) -> None:
    """The server sees that the client leaves, and stops its work. A write that was sent has an unknown outcome."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "omnigraph", *args, "--server", address, "--graph", "g"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        server.settimeout(PATIENCE)
        connection, _ = server.accept()
        with connection:
            connection.settimeout(PATIENCE)
            assert connection.recv(4).startswith(b"POST")
            process.send_signal(signal.SIGINT)
            while connection.recv(65536):
                pass
            out, err = process.communicate(timeout=PATIENCE)
    assert (out, process.returncode) == ("", 130)
    assert err.startswith(said)
