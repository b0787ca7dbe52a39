"""Expressions of the IR. Each has its type. Names are resolved, and literals are values."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from omnigraph.dataclass import dataclass
from omnigraph.lang.types import Scalar, ValueType

BOOL = ValueType(Scalar.BOOL)
STRING = ValueType(Scalar.STRING)
I64 = ValueType(Scalar.I64)
F64 = ValueType(Scalar.F64)
DATETIME = ValueType(Scalar.DATETIME)

SELF = "self"
"""The variable of the entity in the `where` of a mutation."""

ConstValue = str | int | float | bool | None | tuple["ConstValue", ...]


@dataclass(frozen=True, slots=True)
class Const:
    """A constant. A Date is an epoch day, a DateTime an epoch millisecond (UTC), a list or vector a tuple."""

    value: ConstValue
    type: ValueType


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the query. Each call binds it."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Now:
    """The time of the request. It is the same at every occurrence."""

    @property
    def type(self) -> ValueType:
        return DATETIME


@dataclass(frozen=True, slots=True)
class Prop:
    """A property of a node or edge variable. Null if the type of the entity does not declare it."""

    var: str
    name: str
    type: ValueType


class Role(StrEnum):
    """The system columns of entities: the id, and the endpoints of edges."""

    ID = "id"
    FROM = "from"
    TO = "to"


@dataclass(frozen=True, slots=True)
class Ident:
    """The id of the entity of a variable, or an endpoint id of an edge variable."""

    var: str
    role: Role
    nullable: bool = False

    @property
    def type(self) -> ValueType:
        return STRING.with_nullable(self.nullable)


@dataclass(frozen=True, slots=True)
class Entity:
    """The node of a variable with several types. Its value is the id. Two nodes are equal if type and id are equal."""

    var: str
    nullable: bool = False

    @property
    def type(self) -> ValueType:
        return STRING.with_nullable(self.nullable)


@dataclass(frozen=True, slots=True)
class TypeOf:
    """The type name of the entity of a variable."""

    var: str
    nullable: bool = False

    @property
    def type(self) -> ValueType:
        return STRING.with_nullable(self.nullable)


class PathPart(StrEnum):
    LENGTH = "length"
    NODES = "nodes"
    EDGES = "edges"


@dataclass(frozen=True, slots=True)
class PathValue:
    """The length of a path, or the ids of its nodes or edges."""

    var: str
    part: PathPart
    type: ValueType


class CompareOp(StrEnum):
    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    MATCHES = "matches"
    HAS_ITEM = "has_item"
    """True if the list on the left contains the value on the right."""


NULL_IS_FALSE = frozenset(
    {CompareOp.CONTAINS, CompareOp.STARTS_WITH, CompareOp.ENDS_WITH, CompareOp.MATCHES, CompareOp.HAS_ITEM}
)
"""The search operators. They are false, not null, if a side is null."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison. Numbers of different types are compared by their exact values.

    If a side is null, equality and order operators give null, and search operators give false.
    """

    op: CompareOp
    left: Expr
    right: Expr

    @property
    def type(self) -> ValueType:
        unknown = self.op not in NULL_IS_FALSE and (self.left.type.nullable or self.right.type.nullable)
        return BOOL.with_nullable(unknown)


@dataclass(frozen=True, slots=True)
class InList:
    """Whether a value equals an item of a list."""

    value: Expr
    items: Expr
    negated: bool

    @property
    def type(self) -> ValueType:
        return BOOL.with_nullable(self.value.type.nullable or self.items.type.nullable)


@dataclass(frozen=True, slots=True)
class IsNull:
    value: Expr
    negated: bool

    @property
    def type(self) -> ValueType:
        return BOOL


@dataclass(frozen=True, slots=True)
class VarIsNull:
    """Whether an optional variable is unbound."""

    var: str
    negated: bool

    @property
    def type(self) -> ValueType:
        return BOOL


@dataclass(frozen=True, slots=True)
class SameEntity:
    """Whether two node variables are the same node: equal type and equal id."""

    left: str
    right: str
    negated: bool
    nullable: bool = False

    @property
    def type(self) -> ValueType:
        return BOOL.with_nullable(self.nullable)


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple[Expr, ...]

    @property
    def type(self) -> ValueType:
        return BOOL.with_nullable(any(t.type.nullable for t in self.terms))


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple[Expr, ...]

    @property
    def type(self) -> ValueType:
        return BOOL.with_nullable(any(t.type.nullable for t in self.terms))


@dataclass(frozen=True, slots=True)
class Not:
    term: Expr

    @property
    def type(self) -> ValueType:
        return self.term.type


class ArithOp(StrEnum):
    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"
    CONCAT = "concat"


@dataclass(frozen=True, slots=True)
class Arith:
    """Arithmetic in the result type. Division by zero is null."""

    op: ArithOp
    left: Expr
    right: Expr
    type: ValueType


@dataclass(frozen=True, slots=True)
class Negate:
    value: Expr
    type: ValueType


class Function(StrEnum):
    LOWER = "lower"
    UPPER = "upper"
    TRIM = "trim"
    LENGTH = "length"
    COALESCE = "coalesce"
    ABS = "abs"
    ROUND = "round"
    FLOOR = "floor"
    CEIL = "ceil"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class Apply:
    """A scalar function. A null argument gives null, except for `coalesce`."""

    function: Function
    args: tuple[Expr, ...]
    type: ValueType


class TimeUnit(StrEnum):
    MILLISECOND = "millisecond"
    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class DateDiff:
    """Whole units from `start` to `end`, truncated towards zero."""

    unit: TimeUnit
    start: Expr
    end: Expr
    type: ValueType


@dataclass(frozen=True, slots=True)
class DateAdd:
    """A date plus whole units. A day after the end of a month becomes the last day of the month."""

    unit: TimeUnit
    amount: Expr
    date: Expr
    type: ValueType


@dataclass(frozen=True, slots=True)
class Analyzer:
    """How texts are split into words, in properties and queries. The index of a property can set other options.

    Attributes:
        tokenizer: how words are separated: by all characters except letters and digits, by white space, or not (`raw`).
        language: the language of the stemmer and the stop words.
        stem: whether words are reduced to their stems.
        stop_words: whether stop words are removed.
        lower_case: whether words are converted to lower case.
        ascii_folding: whether accents are removed.
    """

    tokenizer: str = "simple"
    language: str = "english"
    stem: bool = True
    stop_words: bool = True
    lower_case: bool = True
    ascii_folding: bool = True

    @classmethod
    def with_options(cls, options: Mapping[str, str]) -> Analyzer:
        """The analyzer with the options of a full-text index."""
        usual = cls()

        def flag(name: str, default: bool) -> bool:
            return options[name] == "true" if name in options else default

        return cls(
            options.get("tokenizer", usual.tokenizer),
            options.get("language", usual.language),
            flag("stem", usual.stem),
            flag("stop_words", usual.stop_words),
            flag("lower_case", usual.lower_case),
            flag("ascii_folding", usual.ascii_folding),
        )


class TextMode(StrEnum):
    ANY = "any"
    ALL = "all"
    PHRASE = "phrase"
    FUZZY = "fuzzy"


@dataclass(frozen=True, slots=True)
class TextMatch:
    """Whether a text property contains the words of a query. A null text never matches."""

    mode: TextMode
    field: Prop
    query: Expr
    edits: Const | Param | None = None
    """The maximum edit distance per word, for `FUZZY`."""
    analyzer: Analyzer = Analyzer()

    @property
    def type(self) -> ValueType:
        return BOOL


class Metric(StrEnum):
    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The distance of a vector property to a query vector. Smaller is nearer.

    Attributes:
        query: a vector, or a text to embed with the dimension of the property.
        model: the model for embedding the text, if the schema records one.
    """

    field: Prop
    query: Expr
    metric: Metric
    model: str | None = None

    @property
    def type(self) -> ValueType:
        return F64.with_nullable(True)


@dataclass(frozen=True, slots=True)
class Bm25:
    """The BM25 score of a text property for a query. Larger is better. Null if the text has no word of the query."""

    field: Prop
    query: Expr
    analyzer: Analyzer = Analyzer()

    @property
    def type(self) -> ValueType:
        return F64.with_nullable(True)


@dataclass(frozen=True, slots=True)
class Arm:
    rank: Nearest | Bm25
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Fusion:
    """Reciprocal rank fusion of several rankings, the arms. Larger is better.

    The value is the sum of weight / (k + position + 1) over all arms. Ties are broken by the order of the first arm,
    then of the next arm. Null if no arm has a value.
    """

    arms: tuple[Arm, ...]
    k: Const | Param

    @property
    def type(self) -> ValueType:
        return F64.with_nullable(True)


Rank = Nearest | Bm25 | Fusion


class AggregateFunction(StrEnum):
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate: one value per group. Without an argument, it counts rows."""

    function: AggregateFunction
    arg: Expr | None
    distinct: bool
    type: ValueType


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result, by name."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Value:
    """A value that belongs to the row, by name: of an earlier stage (`Stage`), or the result of a `BlockValue`."""

    name: str
    type: ValueType


Expr = (
    Const
    | Param
    | Now
    | Prop
    | Ident
    | Entity
    | TypeOf
    | PathValue
    | Compare
    | InList
    | IsNull
    | VarIsNull
    | SameEntity
    | And
    | Or
    | Not
    | Arith
    | Negate
    | Apply
    | DateDiff
    | DateAdd
    | TextMatch
    | Nearest
    | Bm25
    | Fusion
    | Aggregate
    | Column
    | Value
)
