"""The IR of a whole query: what an executor is given. It says what is meant, never how to find it."""

# See docs/decisions/0002-ir-says-what-not-how.md

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from omnigraph.lang.query.ir.expr import Aggregate, Bm25, Column, ConstValue, Expr, Fusion, Nearest, Rank
from omnigraph.lang.query.walk import walk
from omnigraph.lang.types import ValueType


@dataclass(frozen=True, slots=True)
class NodeVar:
    """A variable that ranges over nodes.

    Attributes:
        types: the node types that it ranges over, sorted; several for an interface or alternative edges.
        named: False for `$_`.
    """

    name: str
    types: tuple[str, ...]
    named: bool = True


class Direction(StrEnum):
    OUT = "out"
    IN = "in"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Step:
    """One way to get from left to right: an edge type, walked in a direction."""

    edge: str
    direction: Direction
    left_type: str
    right_type: str


@dataclass(frozen=True, slots=True)
class HopRange:
    """Shortest distances that count; `max` None is unbounded."""

    min: int
    max: int | None


@dataclass(frozen=True, slots=True)
class EdgeVar:
    """A variable that holds the matched edge: one row per edge."""

    name: str
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expand:
    """`left` and `right` are joined by any of the steps.

    Without an edge variable the neighbours of a row form a set. With hops, a neighbour is a node whose shortest
    distance lies in the range. With a path variable, the row also holds the shortest path, ties broken by the ids
    along it.
    """

    left: str
    right: str
    steps: tuple[Step, ...]
    edge_var: EdgeVar | None = None
    hops: HopRange | None = None
    path_var: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A conjunction. A row is one assignment of all variables for which everything holds.

    Required nodes, expands and filters come first; then `optionals`, in order, each keeping rows without a solution;
    then whatever mentions an optional variable; then `negations`, each removing rows with a solution.

    Attributes:
        nodes: the variables that are introduced here, in order of first mention.
        outer: the variables of enclosing blocks that are mentioned here, sorted.
    """

    nodes: tuple[NodeVar, ...]
    expands: tuple[Expand, ...]
    filters: tuple[Expr, ...]
    optionals: tuple[Block, ...] = ()
    negations: tuple[Block, ...] = ()
    outer: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutColumn:
    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class SortKey:
    expr: Expr
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Read:
    """A read query.

    Attributes:
        grouped: whether there are aggregates; then `keys` are the grouping keys.
        order: the written keys. Empty means no order was asked for.
        ties: what makes the order total, after the written keys.
    """

    match: Block
    columns: tuple[OutColumn, ...]
    grouped: bool
    distinct: bool
    having: tuple[Expr, ...]
    order: tuple[SortKey, ...]
    ties: tuple[Expr, ...]
    limit: Expr | None
    offset: Expr | None

    @property
    def ranked(self) -> Rank | None:
        """The rank that is the order itself. Rows without a value for it are not part of the result."""
        first = self.order[0].expr if self.order else None
        return first if isinstance(first, Nearest | Bm25 | Fusion) else None

    @property
    def keys(self) -> tuple[OutColumn, ...]:
        """The grouping keys: the columns that hold neither an aggregate nor a column that does."""
        aggregated: set[str] = set()
        for column in self.columns:
            parts = tuple(walk(column.expr))
            if any(isinstance(p, Aggregate) or (isinstance(p, Column) and p.name in aggregated) for p in parts):
                aggregated.add(column.name)
        return tuple(c for c in self.columns if self.grouped and c.name not in aggregated)


class EntityKind(StrEnum):
    NODE = "node"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Assign:
    property: str
    value: Expr


@dataclass(frozen=True, slots=True)
class EmbedOnWrite:
    """A vector that the write computes, because its text is written and it is not."""

    target: str
    source: str
    model: str | None


class InsertMode(StrEnum):
    REPLACE = "replace"
    """A whole-entity upsert where the type has a key, otherwise a strict insert."""
    CREATE = "create"
    """A strict insert."""
    MERGE = "merge"
    """Creates, or sets only what is assigned."""


@dataclass(frozen=True, slots=True)
class InsertNode:
    mode: InsertMode
    type_name: str
    assigns: tuple[Assign, ...]
    defaults: tuple[Assign, ...] = ()
    embeds: tuple[EmbedOnWrite, ...] = ()


@dataclass(frozen=True, slots=True)
class InsertEdge:
    mode: InsertMode
    type_name: str
    source: Expr
    target: Expr
    assigns: tuple[Assign, ...]
    defaults: tuple[Assign, ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    entity: EntityKind
    type_name: str
    assigns: tuple[Assign, ...]
    where: Expr
    embeds: tuple[EmbedOnWrite, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes what matches; `cascades` are the edge types whose incident edges go with deleted nodes."""

    entity: EntityKind
    type_name: str
    where: Expr
    cascades: tuple[str, ...] = ()


Statement = InsertNode | InsertEdge | Update | Delete


@dataclass(frozen=True, slots=True)
class Write:
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter.

    Attributes:
        default: what an omitted parameter becomes.
        required: whether it must be given: no default, and null is not a value of its type.
    """

    name: str
    type: ValueType
    default: ConstValue = None
    has_default: bool = False

    @property
    def required(self) -> bool:
        return not self.has_default and not self.type.nullable


@dataclass(frozen=True, slots=True)
class Query:
    """A checked query. Equal texts under equal schemas give equal queries."""

    name: str
    params: tuple[Parameter, ...]
    body: Read | Write
    description: str | None = None
    instruction: str | None = None

    @property
    def is_read(self) -> bool:
        return isinstance(self.body, Read)
