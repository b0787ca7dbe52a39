"""Every command that works with servers prints the same for a graph of a server as for the same graph in a storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.served import QUERIES, TOKEN, Site, Twins, start
from tests.cli.shell import Shell

from omnigraph.cli.main import capability, cli

pytestmark = pytest.mark.slow

TOURS = ("writes", "branches", "loads", "schema")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = start(tmp_path_factory.mktemp("site"), ["read", *TOURS])
    yield found
    found.process.stop()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", TOKEN)
    found = Shell(tmp_path)
    found.queries = found.write("queries.gq", QUERIES)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def read(shell: Shell, site: Site) -> Twins:
    return Twins(shell, site, "read", exact=True)


FORMATS = ("table", "kv", "csv", "tsv", "json", "jsonl", "ndjson", "markdown")
SELECT = "match { $p: Person } return { $p.name as name } order { name }"
READS: dict[str, list[str]] = {
    "query": ["query", "older", "--query", "queries.gq", "--params", '{"than": 0}'],
    "query-json": ["query", "people", "--query", "queries.gq", "--json"],
    "query-branch": ["query", "-e", SELECT, "--branch", "draft"],
    "query-tag": ["query", "-e", SELECT, "--snapshot", "v1"],
    "query-time": ["query", "-e", SELECT, "--at", "2100-01-01"],
    "query-returned": ["query", "-e", SELECT, "--returned", "1"],
    "query-empty": ["query", "-e", 'match { $p: Person { name: "x" } } return { $p.age }', "--format", "csv"],
    "branch-list": ["branch", "list"],
    "branch-list-json": ["branch", "list", "--json"],
    "snapshot": ["snapshot"],
    "snapshot-json": ["snapshot", "--json", "--branch", "draft"],
    "snapshot-tag": ["snapshot", "--snapshot", "v1"],
    "commit-list": ["commit", "list"],
    "commit-list-json": ["commit", "list", "--json", "--branch", "draft"],
    "commit-list-full": ["commit", "list", "--full"],
    "commit-list-pages": ["commit", "list", "--limit", "2"],
    "commit-list-actor": ["commit", "list", "--filter", "actor=lee", "--branch", "draft"],
    "commit-show": ["commit", "show", "v1"],
    "commit-show-json": ["commit", "show", "v1", "--json"],
    "commit-changes": ["commit", "changes", "v1"],
    "commit-changes-json": ["commit", "changes", "v1", "--json"],
    "commit-changes-pages": ["commit", "changes", "v1", "--limit", "1"],
    "commit-changes-filter": ["commit", "changes", "v1", "--kind", "edge", "--op", "insert"],
    "changes-poll": ["changes", "poll"],
    "changes-poll-json": ["changes", "poll", "--start", "beginning", "--json"],
    "changes-poll-page": ["changes", "poll", "--start", "beginning", "--limit", "2"],
    "changes-poll-filter": ["changes", "poll", "--start", "beginning", "--type", "Person", "--branch", "draft"],
    "schema-show": ["schema", "show"],
    "schema-show-json": ["schema", "show", "--branch", "draft", "--json"],
    "schema-show-tag": ["schema", "get", "--snapshot", "v1"],
    "export": ["export"],
    "export-types": ["export", "--type", "Knows", "--branch", "draft"],
    "export-tag": ["export", "--snapshot", "v1"],
    "blob-get": ["blob", "get", "node", "Person", "żółw 🐢", "photo"],
    "blob-range": ["blob", "get", "node", "Person", "żółw 🐢", "photo", "--offset", "2", "--length", "4"],
    "blob-stat": ["blob", "stat", "node", "Person", "żółw 🐢", "photo"],
    "blob-stat-json": ["blob", "stat", "node", "Person", "żółw 🐢", "photo", "--json", "--snapshot", "v1"],
}


@pytest.mark.parametrize("name", READS)
def test_reads(read: Twins, name: str) -> None:
    assert read.same(*READS[name]) or name in ("query-returned",)


@pytest.mark.parametrize("format", FORMATS)
def test_formats(read: Twins, format: str) -> None:
    assert read.same("query", "people", "--query", "queries.gq", "--format", format)


FAILURES: dict[str, tuple[int, list[str]]] = {
    "no-branch": (1, ["query", "-e", SELECT, "--branch", "drafd"]),
    "no-commit": (1, ["query", "-e", SELECT, "--snapshot", "01ZZZZZZZZZZZZZZZZZZZZZZZZ"]),
    "no-time": (1, ["query", "-e", SELECT, "--at", "2001-01-01"]),
    "no-parse": (1, ["query", "-e", "query q( {"]),
    "no-type": (1, ["query", "-e", "query q() { match { $p: Persn } return { $p.name } }"]),
    "no-property": (1, ["query", "-e", "query q() {\n  match { $p: Person }\n  return { $p.nam }\n}"]),
    "no-query": (1, ["query", "nobody", "--query", "queries.gq"]),
    "no-parameter": (1, ["query", "older", "--query", "queries.gq"]),
    "bad-parameter": (1, ["query", "older", "--query", "queries.gq", "--params", '{"than": "x"}']),
    "branch-and-snapshot": (2, ["query", "-e", SELECT, "--branch", "draft", "--snapshot", "v1"]),
    "snapshot-no-branch": (1, ["snapshot", "--branch", "nope"]),
    "commit-list-no-branch": (1, ["commit", "list", "--branch", "nope"]),
    "commit-list-bad-cursor": (1, ["commit", "list", "--cursor", "nope"]),
    "commit-show-none": (1, ["commit", "show", "01ZZZZZZZZZZZZZZZZZZZZZZZZ"]),
    "commit-show-short": (1, ["commit", "show", "01Z"]),
    "commit-changes-none": (1, ["commit", "changes", "nope"]),
    "commit-changes-bad-token": (1, ["commit", "changes", "v1", "--page-token", "nope"]),
    "changes-poll-bad-cursor": (1, ["changes", "poll", "--cursor", "nope"]),
    "changes-poll-no-type": (1, ["changes", "poll", "--start", "beginning", "--type", "Persn"]),
    "changes-poll-start-and-cursor": (1, ["changes", "poll", "--start", "now", "--cursor", "x"]),
    "schema-show-no-branch": (1, ["schema", "show", "--branch", "nope"]),
    "export-no-type": (1, ["export", "--type", "Persn"]),
    "export-no-branch": (1, ["export", "--branch", "nope"]),
    "blob-no-entity": (1, ["blob", "get", "node", "Person", "zoe", "photo"]),
    "blob-no-type": (1, ["blob", "get", "node", "Persn", "zoe", "photo"]),
    "blob-no-property": (1, ["blob", "stat", "node", "Person", "ann", "foto"]),
    "blob-null": (1, ["blob", "get", "node", "Person", "ann", "photo"]),
    "blob-past-the-end": (1, ["blob", "get", "node", "Person", "żółw 🐢", "photo", "--offset", "9"]),
    "blob-of-nothing": (1, ["blob", "get", "node", "Person", "żółw 🐢", "photo", "--length", "0"]),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(read: Twins, name: str) -> None:
    code, args = FAILURES[name]
    assert read.same(*args) == ""
    assert read.run(*args)[1].exit_code == code


TAKES_JSON = [name for name, (_, args) in FAILURES.items() if args[0] != "export" and args[:2] != ["blob", "get"]]


@pytest.mark.parametrize("name", TAKES_JSON)
def test_failures_as_json(read: Twins, name: str) -> None:
    assert '"exit_code"' in read.same(*FAILURES[name][1], "--json")


def test_files(read: Twins, tmp_path: Path) -> None:
    """Commands with `--out` write the same file."""
    for args in (
        ["export"],
        ["query", "people", "--query", "queries.gq", "--format", "arrow"],
        ["query", "people", "--query", "queries.gq", "--format", "parquet"],
        ["changes", "baseline"],
        ["changes", "baseline", "--json", "--kind", "node"],
        ["blob", "get", "node", "Person", "żółw 🐢", "photo"],
    ):
        found = []
        for number, result in enumerate(
            (read.same, read.run), 1
        ):  # the first writes both, so each time the last writer is the server
            result(*args, "--out", str(tmp_path / f"out-{number}"))
            found.append((tmp_path / f"out-{number}").read_bytes())
        read.shell.run(*args, "--out", str(tmp_path / "stored"), "--store", str(read.site.stores["read"]))
        assert {*found} == {(tmp_path / "stored").read_bytes()}
        assert found[0]


ADD = "query add($n: String) { insert Person { name: $n } }"


def test_mutations(shell: Shell, site: Site) -> None:
    twins = Twins(shell, site, "writes", exact=False)
    twins.same("mutate", "-e", ADD, "--params", '{"n": "dan"}', actor=True)
    twins.same("mutate", "-e", ADD, "--params", '{"n": "eve"}', "--json", "--message", "hello", actor=True)
    twins.same("mutate", "add", "--query", "queries.gq", "--params", '{"name": "fay"}', "--branch", "draft", actor=True)
    twins.same("mutate", "-e", ADD, "--params", '{"n": "gus"}', "--idempotency-key", "k", "--json", actor=True)
    twins.same("mutate", "-e", ADD, "--params", '{"n": "gus"}', "--idempotency-key", "k", "--json", actor=True)
    twins.same("mutate", "-e", ADD, "--params", '{"n": "hal"}', "--idempotency-key", "k", actor=True)
    twins.same("mutate", "-e", 'query q() { delete Person where name = "nobody" }', "--json", actor=True)
    twins.same("mutate", "-e", ADD, "--params", '{"n": "ann"}', actor=True)
    twins.same("mutate", "-e", "query q() { insert Persn { name: 1 } }", actor=True)
    twins.same("mutate", "-e", ADD, "--params", '{"n": "ian", "m": 1}', actor=True)
    twins.same("mutate", "-e", ADD, "--branch", "nope", "--params", '{"n": "x"}', actor=True)
    for json in ([], ["--json"]):
        lost = ["mutate", "-e", ADD, "--params", '{"n": "x"}', "--if-commit", "v1", *json]
        twins.same(*lost, actor=True)
        assert twins.run(*lost)[1].exit_code == 4
    heads = [
        json_of(shell, *where)["commits"][0]["graph_commit_id"]
        for where in (["--store", str(site.stores["writes"])], ["--server", site.address, "--graph", "writes"])
    ]
    assert heads[0] != heads[1]
    made = shell.run(
        *("mutate", "-e", ADD, "--params", '{"n": "jo"}', "--server", site.address, "--graph", "writes"),
        *("--if-commit", heads[1][:24]),
    )
    assert made.exit_code == 0, made.stderr
    twins.same("query", "-e", SELECT, "--branch", "draft", "--format", "csv")


def json_of(shell: Shell, *where: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = shell.json("commit", "list", *where)
    return found


def test_loads(shell: Shell, site: Site) -> None:
    twins = Twins(shell, site, "loads", exact=False)
    good = shell.write("good.ndjson", '{"type":"Person","data":{"name":"dan","age":3}}\n')
    more = shell.write("more.jsonl", '{"type":"Person","data":{"name":"eve"}}')
    sloppy = shell.write("sloppy.ndjson", '{"type":"Person","data":{"name":"fay","age":"7"}}\n')
    twins.same("load", "--data", good, "--mode", "append", actor=True)
    twins.same("load", "--data", good, "--mode", "append", actor=True)
    twins.same("load", "--data", good, "--data", more, "--mode", "merge", "--json", "--message", "both", actor=True)
    twins.same("load", "--data", "-", "--mode", "merge", stdin=Path(good).read_text(), actor=True)
    twins.same("load", "--data", sloppy, "--mode", "append", actor=True)
    twins.same("load", "--data", sloppy, "--mode", "append", "--lenient", actor=True)
    lines = Path(sloppy).read_text()
    twins.same("load", "--data", "-", "--mode", "merge", "--lenient", "--json", stdin=lines, actor=True)
    twins.same("load", "--data", good, "--data", sloppy, "--mode", "merge", "--lenient", actor=True)
    twins.same("load", "--data", good, "--data", sloppy, "--mode", "merge", actor=True)
    lonely = shell.write("lonely.ndjson", '{"edge":"Knows","from":"ann","to":"nobody"}\n')
    twins.same("load", "--data", good, "--data", lonely, "--mode", "merge", actor=True)
    twins.same("load", "--data", good, "--mode", "merge", "--branch", "fresh", "--from", "main", actor=True)
    twins.same("load", "--data", good, "--mode", "merge", "--branch", "none", actor=True)
    twins.same("load", "--data", good, "--mode", "merge", "--idempotency-key", "k", "--json", actor=True)
    twins.same("load", "--data", good, "--mode", "merge", "--idempotency-key", "k", "--json", actor=True)
    twins.same("load", "--data", more, "--mode", "merge", "--idempotency-key", "k", actor=True)
    twins.same("ingest", "--data", sloppy, "--branch", "fresher", actor=True)
    twins.same("load", "--data", shell.write("bad.ndjson", "{\n"), "--mode", "append", actor=True)
    latin = shell.write(
        "latin.ndjson",
        '{"type":"Person","data":{"name":"a"}}\n{"type":"Person","data":{"name":"ż"}}'.encode("iso8859-2"),
    )
    twins.same("load", "--data", latin, "--mode", "merge", actor=True)
    twins.same("load", "--data", latin, "--mode", "merge", "--lenient", actor=True)
    twins.same("load", "--data", good, "--mode", "overwrite", "--yes", actor=True)
    twins.same("query", "-e", SELECT)


def test_branches(shell: Shell, site: Site) -> None:
    twins = Twins(shell, site, "branches", exact=False)
    twins.same("branch", "create", "one", actor=True)
    twins.same("branch", "create", "two", "--from", "v1", "--json", actor=False)
    twins.same("branch", "create", "three", "--from", "draft", "--quiet", actor=True)
    twins.same("branch", "create", "one", actor=True)
    twins.same("branch", "create", "bad name", actor=True)
    twins.same("branch", "create", "four", "--from", "drafd", actor=True)
    twins.same("mutate", "-e", ADD, "--params", '{"n": "dan"}', "--branch", "one", actor=True)
    twins.same("branch", "merge", "one", "--preview", actor=True)
    twins.same("branch", "merge", "one", "--dry-run", actor=True)
    twins.same("branch", "merge", "one", "--delete-branch", actor=True)
    twins.same("branch", "merge", "three", actor=True)
    twins.same("branch", "merge", "three", "--json", actor=True)
    twins.same("branch", "merge", "none", actor=True)
    update = 'query q($a: I32) { update Person set { age: $a } where name = "ann" }'
    twins.same("mutate", "-e", update, "--params", '{"a": 50}', "--branch", "draft", actor=True)
    twins.same("mutate", "-e", update, "--params", '{"a": 60}', actor=True)
    twins.same("branch", "merge", "draft", "--preview", actor=True)
    twins.same("branch", "merge", "draft", actor=True)
    twins.same("branch", "merge", "draft", "--strategy", "theirs", "--json", "--message", "done", actor=True)
    twins.same("branch", "delete", "three", "--yes", actor=True)
    twins.same("branch", "delete", "two", "--yes", "--json", actor=False)
    twins.same("branch", "delete", "none", "--yes", actor=True)
    twins.same("branch", "delete", "main", "--yes", actor=True)
    twins.same("branch", "list")
    twins.same("commit", "list")
    twins.same("commit", "list", "--json")


def test_schemas(shell: Shell, site: Site) -> None:
    twins = Twins(shell, site, "schema", exact=False)
    old = twins.same("schema", "show")
    new = shell.write("new.pg", old.replace("age: I32?", "age: I32?\n    city: String?"))
    twins.same("schema", "apply", "--schema", new, "--message", "a city", actor=True)
    twins.same("schema", "apply", "--schema", new, "--json", actor=True)
    twins.same("schema", "apply", "--schema", shell.write("bad.pg", "node {"), actor=True)
    twins.same("schema", "apply", "--schema", shell.write("no.pg", old.replace("age: I32?", "age: Date?")), actor=True)
    twins.same("schema", "apply", "--schema", shell.write("old.pg", old), "--json", actor=True)
    twins.same("schema", "apply", "--schema", new, "--allow", "data-loss", "--yes", actor=True)
    twins.same("schema", "show")
    twins.same("commit", "list")


def test_every_command_that_works_with_servers_is_compared() -> None:
    def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
        if isinstance(command, click.Group):
            for name, each in command.commands.items():
                yield from leaves(each, (*path, name))
        else:
            yield path, command

    source = Path(__file__).read_text(encoding="utf-8")
    missing = [
        path
        for path, command in leaves(cli, ())
        if capability(path or ("",), command) == "any"
        and not command.deprecated
        and path[0] not in ("read", "change")
        and ", ".join(f'"{word}"' for word in path) not in source
    ]
    assert missing == []
