"""A server process with copies of a graph, so that a command can be run on the storage and on the server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

import yaml
from click.testing import Result
from tests.cli.shell import Shell
from tests.client.conftest import ServerProcess

import omnigraph
from omnigraph.dataclass import dataclass

SCHEMA = """\
node Person {
    name: String @key
    age: I32?
    score: F64?
    born: Date?
    seen: DateTime?
    tags: [String]?
    photo: Blob?
}

edge Knows: Person -> Person {
    since: Date?
    @key(src, dst)
}
"""
ROWS = """\
{"type":"Person","data":{"name":"ann","age":30,"score":0.1,"born":"1990-03-14","tags":["a, b","c"]}}
{"type":"Person","data":{"name":"bob \\"the\\" dog\\nnew line","age":-1,"score":1e300,"seen":"2026-03-14T09:30:00Z"}}
{"type":"Person","data":{"name":"żółw 🐢","photo":"base64:YSBwaWN0dXJl"}}
{"edge":"Knows","from":"ann","to":"żółw 🐢","data":{"since":"2020-01-02"}}
"""
PEOPLE = (
    "query people($than: I32?) { match { $p: Person } return { $p.name, $p.age, $p.score, $p.born, $p.seen, $p.tags }"
)
QUERIES = f"""\
{PEOPLE.replace("($than: I32?)", "()")} order {{ $p.name }} }}
query older($than: I32) @description("Persons above an age.") @instruction("Give whole years.") {{
    match {{ $p: Person  $p.age > $than }}
    return {{ $p.name as name }}
    order {{ name }}
}}
query add($name: String, $age: I32?) {{ insert Person {{ name: $name, age: $age }} }}
"""
STORED = "stored.gq"
TOKEN = "secret-of-kim"
"""The token of the actor `kim`."""

POLICY = {
    "version": 1,
    "groups": {"all": ["kim"]},
    "rules": [
        {
            "id": "everything",
            "allow": {
                "actors": {"group": "all"},
                "actions": [
                    *("read", "export", "change", "schema_apply", "branch_create", "branch_delete", "branch_merge"),
                    *("invoke_query", "admin"),
                ],
            },
        }
    ],
}
LISTS = {
    "version": 1,
    "groups": {"all": ["kim"]},
    "rules": [{"id": "lists", "allow": {"actors": {"group": "all"}, "actions": ["graph_list"]}}],
}


def build(path: Path) -> None:
    """A graph with some history: two branches, a tag, and changes of three actors."""
    with omnigraph.init(path, SCHEMA, actor="kim") as graph:
        graph.load(ROWS.encode(), mode="append", message="the first rows")
        graph.branches.create("draft")
        graph.tags.create("v1")
    with omnigraph.open(path, actor="lee", branch="draft") as graph:
        graph.mutate('query q() { update Person set { age: 31 } where name = "ann" }')
    with omnigraph.open(path) as graph:
        graph.mutate('query q() { insert Person { name: "cat", age: 7 } }', message="a cat")


@dataclass(frozen=True, slots=True)
class Site:
    """A running server and the graphs that it serves.

    Attributes:
        address: `http://host:port`.
        stores: a twin of each served graph in a storage, by the id of the graph. Both have the same history.
    """

    address: str
    stores: Mapping[str, Path]
    process: ServerProcess

    def uri(self, graph: str) -> str:
        return f"{self.address}/graphs/{graph}"


def start(directory: Path, graphs: list[str]) -> Site:
    """Build graphs, and serve a copy of each."""
    queries = directory / "queries"
    queries.mkdir()
    (queries / STORED).write_text(QUERIES, encoding="utf-8")
    (directory / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    (directory / "lists.yaml").write_text(yaml.safe_dump(LISTS))
    build(directory / "origin")
    stores: dict[str, Path] = {}
    served = {}
    with omnigraph.open(directory / "origin") as origin:
        for graph in graphs:
            stores[graph] = directory / f"{graph}-stored"
            origin.backup(str(stores[graph]))
            origin.backup(str(directory / f"{graph}-served"))
            served[graph] = {"store": f"{graph}-served", "queries": "queries", "policy": "policy.yaml"}
    config = directory / "serve.yaml"
    config.write_text(yaml.safe_dump({"graphs": served, "server_policy": "lists.yaml"}))
    tokens = json.dumps({"kim": TOKEN})
    process = ServerProcess(config, OMNIGRAPH_SERVER_BEARER_TOKENS_JSON=tokens)
    return Site(process.address, stores, process)


_VARIES = [
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b"), "ID"),
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{8,25}(?=  \d{4}-\d\d-\d\d )"), "SHORT"),
    (re.compile(r'(?<="created_at": )\d{16}'), "MICROS"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+Z)?"), "TIME"),
    (re.compile(r"(?<=cursor: )\S+|(?<=_cursor\": \")[^\"]+|(?<=\"cursor\": \")[^\"]+"), "CURSOR"),
    (re.compile(r"(?<=etag: \")[0-9a-f]{32}|(?<=\\\")[0-9a-f]{32}"), "ETAG"),
    (re.compile(r"(?<=-)[0-9a-hjkmnp-tv-z]{26}\b"), "PATH"),
    (re.compile(r'(?<="why": )".*"'), "WHY"),
    (re.compile(r" {2,}"), "  "),
]


def comparable(text: str, place: str, *, exact: bool) -> str:
    """Replace the address of the graph; and ids, times and cursors, which differ after a write."""
    text = text.replace(place, "GRAPH").replace("(direct, local)", "(HOW)").replace("(served)", "(HOW)")
    if not exact:
        for pattern, name in _VARIES:
            text = pattern.sub(name, text)
    return text


@dataclass(frozen=True, slots=True)
class Twins:
    """A graph in a storage, and its copy on a server.

    Attributes:
        exact: whether ids and times are compared, too. They are the same until the first write.
    """

    shell: Shell
    site: Site
    graph: str
    exact: bool

    def run(self, *args: str, stdin: str | None = None, actor: bool = False) -> tuple[Result, Result]:
        """Run a command on both. `--as` names the actor of the storage; the server knows it by the token."""
        stored = self.shell.run(
            *args, "--store", str(self.site.stores[self.graph]), *(["--as", "kim"] if actor else []), stdin=stdin
        )
        served = self.shell.run(*args, "--server", self.site.address, "--graph", self.graph, stdin=stdin)
        return stored, served

    def same(self, *args: str, stdin: str | None = None, actor: bool = False) -> str:
        """Check that a command prints the same for both, and return what it printed to stdout."""
        stored, served = self.run(*args, stdin=stdin, actor=actor)
        places = (str(self.site.stores[self.graph]), self.site.uri(self.graph))
        for stream in ("stdout", "stderr"):
            texts = [getattr(one, stream) for one in (stored, served)]
            ours, theirs = (
                comparable(text, place, exact=self.exact) for text, place in zip(texts, places, strict=True)
            )
            assert theirs == ours, "\n".join(
                unified_diff(ours.splitlines(), theirs.splitlines(), "stored", stream, n=0)
            )
        assert served.exit_code == stored.exit_code, args
        return stored.stdout
