"""The syntax tree of `.gq`. Every node has its span. Comparisons of nodes ignore spans."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.errors import SourceText, Span
from omnigraph.lang.tokens import Tokens
from omnigraph.lang.types import ValueType

NOWHERE = Span(0, 0)

ANONYMOUS = "_"
"""The name of `$_`. Each occurrence is a new variable."""


class LiteralKind(StrEnum):
    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    NULL = "null"
    DATE = "date"
    DATETIME = "datetime"


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal value. A date is stored as its text; the checker parses it."""

    kind: LiteralKind
    value: str | int | float | bool | None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class ListLiteral:
    items: tuple[Literal | ListLiteral, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Var:
    """`$name`: a bound variable or a parameter."""

    name: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Access:
    """`$name.property`. The property `*` means all properties."""

    var: str
    property: str
    span: Span = field(default=NOWHERE, compare=False)
    property_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A bare name: an alias in a read, a property in a `where`."""

    name: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Now:
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function call: scalar, search or rank."""

    function: str
    args: tuple[Expr, ...]
    options: tuple[tuple[str, Expr], ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count(x)`, `count(distinct x)`, …. No argument means `count(*)`."""

    function: str
    arg: Expr | None
    distinct: bool = False
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus of an expression that is not a literal."""

    operand: Expr
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    op: str
    left: Expr
    right: Expr
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`=`, `!=`, `<`, `<=`, `>`, `>=`, `contains`, `starts_with`, `ends_with`, `matches`."""

    op: str
    left: Expr
    right: Expr
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Membership:
    """`left in right`, `left not in right`."""

    left: Expr
    right: Expr
    negated: bool = False
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class NullTest:
    """`operand is null`, `operand is not null`."""

    operand: Expr
    negated: bool = False
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expr
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Logical:
    """`and` or `or` over two or more operands. `a and b and c` is one node with three operands."""

    op: str
    operands: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class BlockValue:
    """`exists { … }` or `count { … }`: whether a block has a match for a row, or how many it has."""

    function: str
    clauses: tuple[Clause, ...]
    span: Span = field(default=NOWHERE, compare=False)


Expr = (
    Literal
    | ListLiteral
    | Var
    | Access
    | Name
    | Now
    | Call
    | Aggregate
    | Negate
    | Arithmetic
    | Comparison
    | Membership
    | NullTest
    | Not
    | Logical
    | BlockValue
)

Value = Literal | ListLiteral | Var | Now


@dataclass(frozen=True, slots=True)
class Assign:
    """`name: value`, in the braces of a pattern, an insert or an update."""

    name: str
    value: Value
    span: Span = field(default=NOWHERE, compare=False)
    name_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Pattern:
    """`$v: Type { name: value, … }`. Each `name: value` is a matcher: the property must have this value."""

    var: str
    type_name: str
    matchers: tuple[Assign, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    type_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Hops:
    """`{min,max}`. Without a maximum, the number of hops is unbounded."""

    min: int
    max: int | None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Traversal:
    """`$a $e:<word>{1,3} $b`, and `shortest $p: …`.

    Attributes:
        words: the edge types; empty means all edge types that fit (`*`).
        undirected: whether the edge is written in `< >`.
        path_var: the path variable of `shortest`; None for an ordinary traversal.
    """

    left: Var
    words: tuple[str, ...]
    right: Var
    undirected: bool = False
    edge_var: str | None = None
    hops: Hops | None = None
    path_var: str | None = None
    span: Span = field(default=NOWHERE, compare=False)
    word_span: Span = field(default=NOWHERE, compare=False)
    word_spans: tuple[Span, ...] = field(default=(), compare=False)
    edge_var_span: Span = field(default=NOWHERE, compare=False)
    path_var_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Negation:
    """`not { … }`: true if the block has no match."""

    clauses: tuple[Clause, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Optional:
    """`optional { … }`: binds nulls if the block has no match."""

    clauses: tuple[Clause, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Filter:
    """A boolean expression that must be true."""

    expr: Expr
    span: Span = field(default=NOWHERE, compare=False)


Clause = Pattern | Traversal | Negation | Optional | Filter


@dataclass(frozen=True, slots=True)
class Projection:
    expr: Expr
    alias: str | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Sort:
    """One sort key of `order`. Direction and position of nulls are None if not written."""

    expr: Expr
    descending: bool | None = None
    nulls_first: bool | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """`match { … } with { … }`: the rows that the next stage starts with. The first stage has a match."""

    match: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    having: tuple[Filter, ...] = ()
    order: tuple[Sort, ...] = ()
    limit: Literal | Var | None = None
    span: Span = field(default=NOWHERE, compare=False)
    match_span: Span = field(default=NOWHERE, compare=False)
    with_span: Span = field(default=NOWHERE, compare=False)
    having_span: Span = field(default=NOWHERE, compare=False)
    order_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Read:
    """A query that reads. After stages, `match` may be empty."""

    match: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    distinct: bool = False
    having: tuple[Filter, ...] = ()
    order: tuple[Sort, ...] = ()
    limit: Literal | Var | None = None
    offset: Literal | Var | None = None
    stages: tuple[Stage, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    match_span: Span = field(default=NOWHERE, compare=False)
    return_span: Span = field(default=NOWHERE, compare=False)
    having_span: Span = field(default=NOWHERE, compare=False)
    order_span: Span = field(default=NOWHERE, compare=False)


class InsertMode(StrEnum):
    INSERT = "insert"
    CREATE = "create"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class Insert:
    """`insert`, `create` or `merge`. `kind` is `node` or `edge` if written."""

    mode: InsertMode
    type_name: str
    assigns: tuple[Assign, ...]
    kind: str | None = None
    span: Span = field(default=NOWHERE, compare=False)
    type_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Update:
    type_name: str
    assigns: tuple[Assign, ...]
    where: Expr
    kind: str | None = None
    span: Span = field(default=NOWHERE, compare=False)
    type_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Delete:
    type_name: str
    where: Expr
    kind: str | None = None
    span: Span = field(default=NOWHERE, compare=False)
    type_span: Span = field(default=NOWHERE, compare=False)


Statement = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class Write:
    statements: tuple[Statement, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class EnumOf:
    """A parameter type that refers to the enum of a property: `Person.status`."""

    type_name: str
    property: str
    nullable: bool = False
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    type: ValueType | EnumOf
    default: Literal | ListLiteral | None = None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Query:
    """One query.

    Attributes:
        deprecated: the name of the query that replaces this one, empty if none does; None if it is not deprecated.
    """

    name: str
    params: tuple[Param, ...]
    body: Read | Write
    description: str | None = None
    instruction: str | None = None
    deprecated: str | None = None
    span: Span = field(default=NOWHERE, compare=False)
    name_span: Span = field(default=NOWHERE, compare=False)
    body_span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class QueryFile:
    """The queries of one text in source order, and its tokens."""

    queries: tuple[Query, ...]
    tokens: Tokens | None = field(default=None, compare=False, repr=False)

    @property
    def source(self) -> SourceText:
        """The source text. Empty for a tree that was built by a program."""
        return self.tokens.source if self.tokens else SourceText("")
