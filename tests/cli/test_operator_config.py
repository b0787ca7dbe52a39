"""The configuration of the user: what commands work on by default, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.shell import Shell

from omnigraph.cli.operator_config import read_config

CONFIG = """
operator: {actor: act-kim}
servers:
  harbour: {url: https://graph.harbour.example}
  local: {url: "http://127.0.0.1:1/base"}
clusters:
  harbour: {root: s3://harbour-graphs/prod}
defaults:
  server: harbour
  default_graph: fleet
  output: csv
  table_max_column_width: 8
  table_cell_layout: wrap
profiles:
  ops: {cluster: harbour, default_graph: fleet}
  dev: {store: ./dev.omni}
  web: {server: local, default_graph: people}
  broken: {server: local, store: ./dev.omni}
  lost: {server: nowhere}
aliases:
  docked:
    server: harbour
    graph: fleet
    query: ships_in_port
    args: [port]
    params: {limit: 20}
    format: kv
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("OMNIGRAPH_HOME", str(path))
    return path


def write(home: Path, text: str) -> None:
    (home / "config.yaml").write_text(text, encoding="utf-8")


def test_everything_is_read(home: Path) -> None:
    write(home, CONFIG)
    config = read_config()
    assert config.actor == "act-kim"
    assert config.server("harbour") == "https://graph.harbour.example"
    assert (config.default_server, config.default_graph, config.default_store) == ("harbour", "fleet", None)
    assert (config.output, config.width, config.layout) == ("csv", 8, "wrap")
    alias = config.alias("docked")
    assert (alias.server, alias.graph, alias.query, alias.args) == ("harbour", "fleet", "ships_in_port", ("port",))
    assert (dict(alias.params), alias.format) == ({"limit": 20}, "kv")


@pytest.mark.parametrize("text", [None, "", "# nothing\n", "servers:\n"])
def test_no_configuration_is_an_empty_one(home: Path, text: str | None, shell: Shell, graph: str) -> None:
    if text is not None:
        write(home, text)
    assert read_config().defaults_binding() is None
    assert "name a graph" in shell.fails("branch", "list", code=2)
    assert shell.run("branch", "list", graph).stdout == "main\n"


def test_unknown_names_are_warnings_without_their_values(home: Path, shell: Shell, graph: str) -> None:
    write(home, "servrs: {}\ndefaults: {outputt: csv}\nservers: {a: {url: 'http://a', token: s3cret}}\n")
    found = shell.run("branch", "list", "--profile", "x", graph)
    assert found.stdout == "main\n"  # an explicit graph needs no configuration
    found = shell.run("profile", "list")
    assert found.exit_code == 0
    assert "config.yaml, line 1: servrs: unknown name, ignored; did you mean 'servers'?" in found.stderr
    assert "line 2: defaults.outputt: unknown name, ignored; did you mean 'output'?" in found.stderr
    assert "line 3: servers.a.token: unknown name, ignored" in found.stderr
    assert "s3cret" not in found.output
    query = ("query", graph, "-e", "match { $p: Person } return { $p.name }")
    assert shell.run(*query).stderr.count("servrs: unknown name") == 1


def test_a_user_without_a_home_directory_has_no_configuration(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", _no_home)
    assert shell.run("profile", "list").exit_code == 0
    assert "there is no home directory" in shell.fails("login", "a", "--token", "x")


def _no_home(path: Path) -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servers: 3", "line 1: servers: expected names with values, found a number"),
        ("servers: {a: {}}", "line 1: servers.a: 'url' is missing"),
        ("servers: {a: {url: ftp://a}}", "servers.a.url: this is not the address of a server"),
        ("servers: {a: {url: 'http://a/?token=x'}}", "the address of a server has no query"),
        ("servers: {a: {url: 'http://kim:pw@a'}}", "the address of a server has no user and password"),
        ("servers: {a: {url: http://a}}\nservers: {}", "line 2: duplicate name 'servers'"),
        ("defaults: {server: a}", "defaults.server: there is no server 'a'"),
        ("defaults: {store: ./x, default_graph: g}", "'store' and 'default_graph' exclude each other"),
        ("defaults: {store: ./x, server: http://a}", "'store' and 'server' exclude each other"),
        ("defaults: {output: xml}", "defaults.output: 'xml' is not one of table, kv, csv"),
        ("defaults: {table_max_column_width: 7}", "expected a number of at least 8"),
        ("defaults: {table_max_column_width: true}", "expected a number of at least 8"),
        ("defaults: {table_cell_layout: cut}", "'cut' is not one of truncate, wrap"),
        ("aliases: {a: {server: http://a}}", "aliases.a: the query is missing"),
        ("aliases: {a: {query: q, server: b}}", "aliases.a.server: there is no server 'b'"),
        ("aliases: {a: {query: q, args: [x, x]}}", "aliases.a.args: a parameter is listed twice"),
        ("aliases: {a: {query: q, params: [1]}}", "aliases.a.params: expected names with values"),
        ("operator: {actor: 3}", "operator.actor: expected a text, found a number"),
        ("a: [", "not YAML"),
        ("- a", "expected names with values, found a list"),
        ("\0", "not YAML"),
    ],
)
def test_wrong_values_are_errors_with_their_line(home: Path, shell: Shell, text: str, message: str) -> None:
    write(home, text)
    said = shell.fails("profile", "list")
    assert message in said
    assert str(home / "config.yaml") in said


def test_profiles_are_listed_and_shown(home: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, CONFIG)
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "web")
    entries = {one["name"]: one for one in json.loads(shell.run("profile", "list", "--json").stdout)}
    assert entries["ops"] == {
        "name": "ops",
        "binding": "cluster:harbour",
        "scope_kind": "cluster",
        "target": "harbour",
        "valid": True,
        "error": None,
        "default_graph": "fleet",
        "active": False,
    }
    assert entries["web"]["active"]
    assert (entries["broken"]["valid"], entries["broken"]["scope_kind"]) == (False, None)
    assert entries["broken"]["error"] == "give exactly one of 'server', 'cluster' and 'store'"
    assert entries["lost"]["error"] == "there is no server 'nowhere'"
    listed = shell.run("profile", "list").stdout.splitlines()
    assert "web  server:local  graph=people  active" in listed
    assert "lost  server:nowhere  not valid: there is no server 'nowhere'" in listed
    assert shell.json("profile", "show") == {
        "name": "web",
        "scope_kind": "server",
        "target": "local",
        "endpoint": "http://127.0.0.1:1/base",
        "default_graph": "people",
        "output_format": "csv",
    }
    assert shell.run("profile", "show", "dev").stdout.splitlines() == [
        "name: dev",
        "scope_kind: store",
        "target: ./dev.omni",
        "endpoint: ./dev.omni",
        "output_format: csv",
    ]
    monkeypatch.delenv("OMNIGRAPH_PROFILE")
    assert shell.json("profile", "show")["target"] == "harbour"
    assert "profile 'broken' is not valid: give exactly one" in shell.fails("profile", "show", "broken")
    assert "there is no profile 'wep'" in (said := shell.fails("profile", "show", "wep"))
    assert "did you mean 'web'?" in said


def test_profiles_and_defaults_name_the_storage(
    home: Path, shell: Shell, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, f"profiles: {{dev: {{store: {graph}}}}}\noperator: {{actor: act-kim}}\n")
    assert shell.run("branch", "list", "--profile", "dev").stdout == "main\n"
    assert shell.run("--profile", "dev", "optimize").exit_code == 0
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "dev")
    assert shell.run("branch", "list").stdout == "main\n"
    assert shell.run("version").exit_code == 0  # a command without a graph ignores the profile
    made = shell.json("mutate", "-e", 'query q() { insert Person { name: "ann" } }')
    assert made["actor_id"] == "act-kim"
    made = shell.json("mutate", "-e", 'query q() { insert Person { name: "bob" } }', "--as", "lee")
    assert made["actor_id"] == "lee"
    assert "--graph selects a graph of a server, and profile 'dev' names one graph" in shell.fails(
        "branch", "list", "--graph", "x", code=2
    )
    monkeypatch.delenv("OMNIGRAPH_PROFILE")
    write(home, f"defaults: {{store: {graph}, output: csv}}\n")
    found = shell.run("query", "-e", "match { $p: Person } return { $p.name as name } order { name }")
    assert found.stdout == "name\nann\nbob\n"
    found = shell.run("query", "-e", "match { $p: Person } return { count($p) as n }", "--format", "kv")
    assert found.stdout.splitlines()[1:] == ["row 1", "n: 2"]


def test_tables_have_the_configured_layout(home: Path, shell: Shell, graph: str) -> None:
    long = "x" * 20
    shell.add_person(graph, long)
    query = ("query", "--store", graph, "-e", "match { $p: Person } return { $p.name as name }")
    write(home, "defaults: {table_max_column_width: 8}")
    assert shell.run(*query).stdout.splitlines()[3:] == ["xxxxxxx…"]
    write(home, "defaults: {table_max_column_width: 8, table_cell_layout: wrap}")
    assert shell.run(*query).stdout.splitlines()[3:] == ["xxxxxxxx", "xxxxxxxx", "xxxx"]


def test_a_profile_is_used_only_for_what_it_is_bound_to(home: Path, shell: Shell, graph: str) -> None:
    write(home, CONFIG)
    assert "profile 'ops' is bound to a cluster, and 'branch list' needs a server or a store" in shell.fails(
        "branch", "list", "--profile", "ops"
    )
    for profile in ("ops", "web"):
        said = shell.fails("optimize", "--profile", profile, code=2)
        assert f"'optimize' needs the storage of a graph, and profile '{profile}' is bound to a" in said
    said = shell.fails("optimize", code=2)
    assert "defaults.server of" in said
    assert "is bound to a server. Give --store URI." in said
    assert "'graphs list' needs a server, and profile 'dev' is bound to a store" in shell.fails(
        "graphs", "list", "--profile", "dev", code=2
    )
    assert "profile 'broken' is not valid" in shell.fails("branch", "list", "--profile", "broken")
    assert shell.run("branch", "list", graph, "--profile", "broken").exit_code == 0
