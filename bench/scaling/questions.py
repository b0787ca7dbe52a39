"""What is asked about the graph, and what an answer must be: rows, and the sum of the numbers of people in them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from scaling.data import PREFIX, name_of, people

if TYPE_CHECKING:
    from omnigraph.graph import Graph

STARTS = 20
ONE = "query one($name: String) { match { $a: Person { name: $name } $a follows $b } return { $b.name as name } }"
TWO = (
    "query two($name: String) "
    "{ match { $a: Person { name: $name } $a follows $b $b follows $c } return { $c.name as name } }"
)
THREE = (
    "query three($name: String) { match { $a: Person { name: $name } $a follows{1,3} $b } return { count($b) as n } }"
)
QUESTIONS = {"1 hop, names": ONE, "2 hops, names": TWO, "3 hops, reach": THREE}

Answer = tuple[int, int]


def starts(edges: int) -> list[int]:
    """The people to ask about."""
    chosen = random.Random(edges)
    return [chosen.randrange(people(edges)) for _ in range(STARTS)]


def ask(graph: Graph, text: str, start: int) -> Answer:
    """How many rows there are, and the sum of the numbers of the people in them; for a count, the count."""
    table = graph.query(text, {"name": name_of(start)}).to_arrow()
    if "n" in table.column_names:
        return table["n"][0].as_py(), 0
    numbers = pc.utf8_slice_codeunits(table["name"], len(PREFIX)).cast("int64")
    return table.num_rows, pc.sum(numbers).as_py() or 0
