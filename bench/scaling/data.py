"""A graph of people who follow each other, at any size: the same for the same size. Each follows ten on average."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = """\
node Person { name: String @key }
edge Follows: Person -> Person
"""
PREFIX = "person-"
DEGREE = 10
PORTION = 5_000_000
"""How many edges are made at a time."""

Ends = npt.NDArray[np.int32]


def people(edges: int) -> int:
    """How many people there are for so many edges."""
    return max(edges // DEGREE, 1)


def name_of(number: int) -> str:
    return f"{PREFIX}{number:08d}"


def names(edges: int) -> pa.Array:
    digits = pc.utf8_lpad(pa.array(np.arange(people(edges))).cast(pa.utf8()), 8, "0")
    return pc.binary_join_element_wise(PREFIX, digits, "")


def portions(edges: int) -> Iterator[tuple[Ends, Ends]]:
    """Who follows whom, as the numbers of people, a portion at a time."""
    random = np.random.default_rng(edges)
    for first in range(0, edges, PORTION):
        size = min(PORTION, edges - first)
        source, target = random.integers(0, people(edges), (2, size), np.int32)
        yield source, target
