"""The graphs, the four kinds of requests, and their twins as calls of a graph in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

import omnigraph
from omnigraph.graph import Graph
from searching.data import read_file, write_files
from serving.generator import DIGITS, NUMBER

READS, WRITES = "reads", "writes"
"""The ids of the two graphs of a server."""

FOLLOWED = 24
"""How many others each person follows."""

FIRST_EVENTS = 1_000
"""Number of rows of a graph that is written, at the beginning."""

LIMIT = 10
VECTOR = "v128"

READ_SCHEMA = """\
node Person { name: String @key  age: I32 }
edge Follows: Person -> Person
node Doc {
    slug: String @key
    text: String
    v128: Vector(128)
    @index(text, kind="fts")
    @index(v128, kind="vector")
}
"""
WRITE_SCHEMA = "node Event { name: String @key  at: I32 }"


@dataclass(slots=True)
class Kind:
    """A kind of requests.

    Attributes:
        graph: the id of the graph.
        text: the query.
        params: the parameters of several requests. A parameter that is None gets a new name in each request.
    """

    name: str
    graph: str
    text: str
    params: Sequence[Mapping[str, Any]]
    _expected: Sequence[bytes] = ()

    @property
    def writes(self) -> bool:
        return self.graph == WRITES

    def requests(self, address: str) -> list[bytes]:
        """The HTTP requests."""
        path = f"/graphs/{self.graph}/{'mutate' if self.writes else 'query'}"
        return [_request(address, path, self.text, params) for params in self.params]

    def expected(self, graph: Graph) -> Sequence[bytes]:
        """For each request, a text that its answer has to contain: its rows, as this process reads them."""
        if self.writes:
            return [b'"affected_nodes":1,'] * len(self.params)
        if not self._expected:
            found = (graph.query(self.text, params).to_pylist() for params in self.params)
            self._expected = [b'"rows":' + orjson.dumps(rows) + b"}" for rows in found]
        return self._expected

    def call(self, graph: Graph) -> Callable[[], object]:
        """The next call of the same kind, with all rows of its answer as Python values."""
        numbers = count()

        def call() -> object:
            number = next(numbers)
            params = self.params[number % len(self.params)]
            if self.writes:
                return graph.mutate(self.text, {**params, "name": f"embedded-{number}"})
            return graph.query(self.text, params).to_pylist()

        return call


def _request(address: str, path: str, text: str, params: Mapping[str, Any]) -> bytes:
    named = {name: "{number}" if value is None else value for name, value in params.items()}
    body = orjson.dumps({"query": text, "params": named}, option=orjson.OPT_SERIALIZE_NUMPY)
    length = len(body) + (DIGITS - len(NUMBER)) * body.count(NUMBER)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    return head.encode() + body


def kinds(files: Path, persons: int) -> list[Kind]:
    """The kinds of requests.

    Args:
        files: the folder of `write_files`.
        persons: number of persons.
    """
    random = np.random.default_rng(15)
    names = [{"name": f"p{number}"} for number in random.integers(0, persons, 500)]
    asked = [{"text": one["text"], "vector": one[VECTOR]} for one in read_file(files, "questions").to_pylist()]
    return [
        Kind(
            "point query",
            READS,
            "query point($name: String) { match { $p: Person { name: $name } } return { $p.age as age } }",
            names,
        ),
        Kind(
            "2 hops",
            READS,
            "query hops($name: String) { match { $p: Person { name: $name }  $p follows $q  $q follows $r }"
            f" return distinct {{ $r.name as name }} limit {LIMIT} }}",
            names,
        ),
        Kind(
            "hybrid search",
            READS,
            "query hybrid($text: String, $vector: Vector(128)) { match { $d: Doc } return { $d.slug as slug }"
            f" order {{ rrf(nearest($d.{VECTOR}, $vector), bm25($d.text, $text)) }} limit {LIMIT} }}",
            asked,
        ),
        Kind(
            "one-row mutation",
            WRITES,
            "query add($name: String, $at: I32) { insert Event { name: $name, at: $at } }",
            [{"name": None, "at": 7}],
        ),
    ]


def make_reads(place: Path, files: Path, persons: int) -> None:
    """Write the graph that is read."""
    random = np.random.default_rng(16)
    names = np.array([f"p{number}" for number in range(persons)])
    followed = (np.arange(persons)[:, None] + random.integers(1, persons, (persons, FOLLOWED))) % persons
    tables = {
        "Person": pa.table({"name": names, "age": pa.array(np.arange(persons) % 90, pa.int32())}),
        "Follows": pa.table({"from": np.repeat(names, FOLLOWED), "to": names[followed.ravel()]}),
        "Doc": read_file(files, "Doc").select(["slug", "text", VECTOR]),
    }
    with omnigraph.init(place, READ_SCHEMA) as graph:
        graph.load(tables, mode="append")


def make_writes(place: Path) -> None:
    """Write the graph that is written."""
    numbers = range(FIRST_EVENTS)
    rows = pa.table({"name": [f"first-{number}" for number in numbers], "at": pa.array(numbers, pa.int32())})
    with omnigraph.init(place, WRITE_SCHEMA) as graph:
        graph.load({"Event": rows}, mode="append")


__all__ = ["FIRST_EVENTS", "READS", "WRITES", "Kind", "kinds", "make_reads", "make_writes", "write_files"]
