"""A question as a value, independent of any language.

Columns of an answer are called c0, c1 and so on: first the keys, then the aggregates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Edge:
    kind: str
    source: str
    target: str

    @property
    def ends(self) -> tuple[str, str]:
        return self.source, self.target


@dataclass(frozen=True, slots=True)
class Property:
    var: str
    name: str


Value: TypeAlias = int | str


@dataclass(frozen=True, slots=True)
class Compare:
    left: Property
    op: str
    right: Property | Value


@dataclass(frozen=True, slots=True)
class OneOf:
    left: Property
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    left: Property
    negated: bool


@dataclass(frozen=True, slots=True)
class Either:
    one: Condition
    other: Condition


@dataclass(frozen=True, slots=True)
class Different:
    """Two variables of one type are different nodes."""

    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Exists:
    """A block has a solution, or at least so many."""

    block: Block
    at_least: int | None


Condition: TypeAlias = Compare | OneOf | IsNull | Either | Different | Exists


@dataclass(frozen=True, slots=True)
class Block:
    """Edges with conditions: all of a match, or what `not` and `optional` hold."""

    types: Mapping[str, str]
    """The types of the variables that the block binds."""
    edges: tuple[Edge, ...]
    conditions: tuple[Condition, ...] = ()

    def uses(self) -> Iterator[Property]:
        for condition in self.conditions:
            yield from properties(condition)


@dataclass(frozen=True, slots=True)
class Aggregate:
    function: str
    of: Property | None
    """None counts rows. The property `num`, which is the key, stands for the node."""
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    column: int
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    keys: tuple[Property, ...]
    aggregates: tuple[Aggregate, ...] = ()
    distinct: bool = False
    at_least: int | None = None
    """Keeps the groups whose first aggregate, a count, is so large."""
    order: tuple[Order, ...] = ()
    limit: int | None = None

    def uses(self) -> Iterator[Property]:
        yield from self.keys
        yield from (part.of for part in self.aggregates if part.of is not None)


@dataclass(frozen=True, slots=True)
class Stage:
    """Ends a match: one variable goes on, with the number of its rows, if that is large enough."""

    kept: str
    at_least: int
    then: Block


@dataclass(frozen=True, slots=True)
class Question:
    graph: str
    shape: str
    match: Block
    answer: Answer
    without: tuple[Block, ...] = ()
    optional: Block | None = None
    stage: Stage | None = None
    features: tuple[str, ...] = field(default=())
    """What a report groups by."""


def properties(condition: Condition) -> Iterator[Property]:
    match condition:
        case Compare(left, _, right):
            yield left
            if isinstance(right, Property):
                yield right
        case OneOf(left) | IsNull(left):
            yield left
        case Either(one, other):
            yield from properties(one)
            yield from properties(other)
        case Different(one, other):
            yield Property(one, KEY)
            yield Property(other, KEY)
        case Exists(block):
            yield from (what for what in block.uses() if what.var not in block.types)


KEY = "num"
