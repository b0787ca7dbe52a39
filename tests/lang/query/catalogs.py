"""The schemas that query properties are checked against."""

from __future__ import annotations

from pathlib import Path

from tests.lang.strategies_query import Vocabulary

from omnigraph.lang.functions import FUNCTIONS
from omnigraph.lang.query import parse_queries
from omnigraph.lang.schema import Catalog, compile_schema

ROOT = Path(__file__).parents[3]

DENSE = """
interface Labelled { label: String  vec: Vector(3)? @embed("label") }
interface Lonely { label: String  vec: Vector(3)? }
node Person implements Labelled {
    name: String @key
    age: I32?
    born: Date?
    at: DateTime
    tags: [String]?
    photo: Blob?
    mood: enum(good, bad)
    score: F32 @default(1)
    big: U64?
}
node Place implements Labelled { name: String  age: I64  at: DateTime @default(now())  ok: Bool? }
edge Knows: Person -> Person { since: Date?  mood: enum(good, bad)?  @key(src, dst) }
edge Likes: Person -> Person
edge Trusts: Person -> Person
edge Visits: Person -> Place { at: DateTime?  age: I32 }
edge Person: Place -> Person
"""
"""Few names with many uses: an interface without implementations, and an edge type named like a node type."""

FAMILIAR = Vocabulary.of(
    names=[
        "name",
        "age",
        "born",
        "at",
        "tags",
        "photo",
        "mood",
        "score",
        "big",
        "label",
        "vec",
        "since",
        "ok",
        "id",
        "from",
        "to",
        "x",
        "all",
        "k",
    ],
    types=["Person", "Place", "Labelled", "Lonely", "Knows", "Visits"],
    variables=[*"aabbce", "_", *"nsvldm"],
    edge_words=["knows", "visits", "person"],
    functions=sorted(FUNCTIONS),
)
"""The names of `DENSE`, so that trees often refer to existing types and properties."""

FAMILIAR_PARAMS = (
    parse_queries(
        """
        query familiar(
            $n: I64, $s: String = "x", $v: Vector(3), $l: [String]?, $d: Date? = date("2026-03-14"), $m: Person.mood
        ) { delete Person where name = $s }
        """
    )
    .queries[0]
    .params
)
"""Parameters for some of the variables of `FAMILIAR`."""


def dense() -> Catalog:
    return compile_schema(DENSE)


def papers() -> Catalog:
    return compile_schema((ROOT / "examples" / "papers" / "schema.pg").read_text(encoding="utf-8"))
