"""Concurrent writers of all kinds, the log of each, and the expected graph after a sequence of writes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.write.requests import Content

from omnigraph.commit.manifest import Commit
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph

SHARED = ("s1", "s2", "s3")
"""The keys that all writers write."""

QUERIES = """
query save($k: String, $own: String, $n: I64) {
    insert A { k: $k, n: $n }
    insert A { k: $own, n: $n }
    insert AB { from: $k, to: "1", n: $n }
}
query link($k: String, $n: I64) { insert AB { from: $k, to: "1", n: $n } }
query change($k: String, $n: I64) { update A set { n: $n } where k = $k }
query remove($k: String) { delete A where k = $k }
"""

Done = Mapping[str, Any]
"""One write: its commit, the query or mode, the shared key, its own key, and the written number."""


def work(graph: Graph, name: str, rounds: int, log: Path) -> None:
    """Run one write after the other, and log the acknowledged and the refused ones."""
    chance = random.Random(name)
    with log.open("a", buffering=1) as lines:
        for number in range(rounds):
            what = chance.choice(("save", "save", "link", "change", "remove", "merge", "append"))
            done = {"what": what, "k": chance.choice(SHARED), "own": f"{name}-{number}", "n": chance.getrandbits(40)}
            try:
                commit = _do(graph, done)
            except OmnigraphError as error:
                lines.write(json.dumps({"refused": type(error).__name__, **done}) + "\n")
            else:
                lines.write(json.dumps({"commit": commit and commit.id, **done}) + "\n")


def _do(graph: Graph, done: Done) -> Commit | None:
    k, own, n = (done[name] for name in ("k", "own", "n"))
    if done["what"] == "merge":
        nodes = pa.table({"k": [k, own], "n": [n, n]})
        edges = pa.table({"from": [k, own], "to": ["1", "1"], "n": [n, n]})
        return graph.load({"A": nodes, "AB": edges}, mode="merge").commit
    if done["what"] == "append":
        return graph.load(
            {"A": pa.table({"k": [own], "n": [n]}), "B": pa.table({"k": [own], "n": [n]})}, mode="append"
        ).commit
    wanted = {"save": ("k", "own", "n"), "link": ("k", "n"), "change": ("k", "n"), "remove": ("k",)}[done["what"]]
    return graph.mutate(QUERIES, {name: done[name] for name in wanted}, name=done["what"]).commit


def read_logs(logs: Iterable[Path]) -> list[Done]:
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def replay(begin: Content, done: Iterable[Done]) -> Content:
    """The content of the graph after these writes, one after the other."""
    state = {name: dict(entities) for name, entities in begin.items()}
    for each in done:
        _apply(state, each)
    return state


def _apply(state: Content, done: Done) -> None:
    k, own, n = (done[name] for name in ("k", "own", "n"))
    what = done["what"]
    if what in ("save", "merge"):
        state["A"] |= {(k,): n, (own,): n}
    if what in ("save", "merge", "link"):
        assert (k,) in state["A"], "an edge to nothing"
        state["AB"][k, "1"] = n
    if what == "merge":
        state["AB"][own, "1"] = n
    if what == "append":
        assert (own,) not in state["A"]
        state["A"][own,] = n
        state["B"][own,] = n
    if what in ("change", "remove"):
        assert (k,) in state["A"], "it is a commit though nothing matched"
        state["A"][k,] = n
    if what == "remove":
        del state["A"][k,]
        for edge in [edge for edge in state["AB"] if edge[0] == k]:
            del state["AB"][edge]
