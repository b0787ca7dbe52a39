"""The IR of a query: the input of executors. It states the meaning, not the execution."""

# See docs/decisions/0002-ir-says-what-not-how.md

from __future__ import annotations

from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.lang.query.ir.expr import Aggregate, Bm25, Column, ConstValue, Expr, Fusion, Nearest, Rank
from omnigraph.lang.query.walk import walk
from omnigraph.lang.types import ValueType


@dataclass(frozen=True, slots=True)
class NodeVar:
    """A node variable.

    Attributes:
        types: the possible node types, sorted. An interface or alternative edges give several types.
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
    """An edge type, and the direction in which it is followed from the left to the right variable."""

    edge: str
    direction: Direction
    left_type: str
    right_type: str


@dataclass(frozen=True, slots=True)
class HopRange:
    """The allowed range of the shortest distance between two nodes, in hops. `max` is None if unbounded."""

    min: int
    max: int | None


@dataclass(frozen=True, slots=True)
class EdgeVar:
    """An edge variable. With it, a traversal returns one row per matched edge."""

    name: str
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expand:
    """A traversal: `left` and `right` are connected by one of the steps.

    Without an edge variable, each neighbour is returned once, even if several edges lead to it. With `hops`, a
    neighbour is a node whose shortest distance is in the range. With a path variable, the row also has the shortest
    path; of several shortest paths, the one with the smallest ids is taken.
    """

    left: str
    right: str
    steps: tuple[Step, ...]
    edge_var: EdgeVar | None = None
    hops: HopRange | None = None
    path_var: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A conjunction of clauses. A row assigns a value to every variable, so that all clauses are satisfied.

    The order of evaluation: required nodes, expands and filters; then `optionals`, in order, which keep rows without a
    match; then clauses that use an optional variable; then `negations`, which remove rows with a match.

    Attributes:
        nodes: the variables that the block binds, in the order of their first use.
        outer: the variables of enclosing blocks that the block uses, sorted.
        values: the `exists` and `count` blocks in its filters; for the `match` of a query, also in its columns.
    """

    nodes: tuple[NodeVar, ...]
    expands: tuple[Expand, ...]
    filters: tuple[Expr, ...]
    optionals: tuple[Block, ...] = ()
    negations: tuple[Block, ...] = ()
    outer: tuple[str, ...] = ()
    values: tuple[BlockValue, ...] = ()


class BlockFunction(StrEnum):
    EXISTS = "exists"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class BlockValue:
    """`exists { … }` or `count { … }`: for each row, whether the block has a match, or how many. Never null.

    Attributes:
        name: identifies the value in the query. Expressions refer to it with `Value`.
    """

    name: str
    function: BlockFunction
    block: Block


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
        grouped: whether the query has aggregates. If so, `keys` are the grouping keys.
        order: the written sort keys; empty if the query has no order.
        ties: the tie-breakers after the written sort keys. They make the order total.
        stages: the stages before `match`, in order. The rows of each stage are the input of the next one, and the rows
            of the last stage are the input of `match`: a variable or value that goes on is an `outer` one there.
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
    stages: tuple[Stage, ...] = ()

    @property
    def ranked(self) -> Rank | None:
        """The rank function that orders the result, if there is one. Rows without a rank are not in the result."""
        first = self.order[0].expr if self.order else None
        return first if isinstance(first, Nearest | Bm25 | Fusion) else None

    @property
    def keys(self) -> tuple[OutColumn, ...]:
        """The grouping keys: the columns that use no aggregate, neither directly nor through an alias."""
        aggregated: set[str] = set()
        for column in self.columns:
            parts = tuple(walk(column.expr))
            if any(isinstance(p, Aggregate) or (isinstance(p, Column) and p.name in aggregated) for p in parts):
                aggregated.add(column.name)
        return tuple(c for c in self.columns if self.grouped and c.name not in aggregated)


@dataclass(frozen=True, slots=True)
class Stage:
    """`match { … } with { … }`: rows that go on, as a bag. The order of `read` matters only with its limit.

    Attributes:
        read: the match and the columns of the stage; it has no stages. The columns of `carried` are ids of variables.
            All other columns become values, see `Value`.
        carried: the node and edge variables that go on.
    """

    read: Read
    carried: tuple[str, ...]

    @property
    def values(self) -> tuple[OutColumn, ...]:
        """The columns that become values."""
        return tuple(column for column in self.read.columns if column.name not in self.carried)


class EntityKind(StrEnum):
    NODE = "node"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Assign:
    property: str
    value: Expr


@dataclass(frozen=True, slots=True)
class EmbedOnWrite:
    """A vector to compute, because its source text is assigned and the vector is not."""

    target: str
    source: str
    model: str | None


class InsertMode(StrEnum):
    REPLACE = "replace"
    """If the type has a key, replaces the whole entity or creates it. Otherwise, the same as `CREATE`."""
    CREATE = "create"
    """Creates the entity. Fails if the id exists."""
    MERGE = "merge"
    """Creates the entity. If it exists, sets only the assigned properties."""


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
    """Deletes the matching entities. `cascades` are the edge types whose edges are deleted with their nodes."""

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
        default: the value of an omitted parameter.
        required: whether the parameter must be given: it has no default and is not nullable.
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
    """A checked query. Equal texts and equal schemas give equal queries."""

    name: str
    params: tuple[Parameter, ...]
    body: Read | Write
    description: str | None = None
    instruction: str | None = None

    @property
    def is_read(self) -> bool:
        return isinstance(self.body, Read)
