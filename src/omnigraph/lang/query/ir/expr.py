"""Expressions of the IR. Each knows its type; names are resolved, literals are values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.lang.types import Scalar, ValueType

BOOL = ValueType(Scalar.BOOL)
STRING = ValueType(Scalar.STRING)
I64 = ValueType(Scalar.I64)
F64 = ValueType(Scalar.F64)
DATETIME = ValueType(Scalar.DATETIME)

SELF = "self"
"""The variable that a mutation's `where` is about."""

ConstValue = str | int | float | bool | None | tuple["ConstValue", ...]


@dataclass(frozen=True, slots=True)
class Const:
    """A value. A Date is its epoch day, a DateTime its epoch millisecond (UTC), a list or vector a tuple."""

    value: ConstValue
    type: ValueType


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the query, bound at each call."""

    name: str
    type: ValueType


@dataclass(frozen=True, slots=True)
class Now:
    """The time of the request, the same at every occurrence."""

    @property
    def type(self) -> ValueType:
        return DATETIME


@dataclass(frozen=True, slots=True)
class Prop:
    """A declared property of a node or edge variable; null where the entity's type does not declare it."""

    var: str
    name: str
    type: ValueType


class Role(StrEnum):
    """The columns that every entity has beside its properties."""

    ID = "id"
    FROM = "from"
    TO = "to"


@dataclass(frozen=True, slots=True)
class Ident:
    """The id of a variable's entity, or an endpoint id of an edge variable."""

    var: str
    role: Role
    nullable: bool = False

    @property
    def type(self) -> ValueType:
        return STRING.with_nullable(self.nullable)


@dataclass(frozen=True, slots=True)
class Entity:
    """The node behind a variable of several types. As a value it is the id; two are one only if type and id agree."""

    var: str
    nullable: bool = False

    @property
    def type(self) -> ValueType:
        return STRING.with_nullable(self.nullable)


@dataclass(frozen=True, slots=True)
class TypeOf:
    """The declared type name of a variable's entity."""

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
    """The length of a path variable, or the ids along it."""

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
    """The list on the left has an item equal to the right side."""


NULL_IS_FALSE = frozenset(
    {CompareOp.CONTAINS, CompareOp.STARTS_WITH, CompareOp.ENDS_WITH, CompareOp.MATCHES, CompareOp.HAS_ITEM}
)
"""Comparisons that ask whether something is found: in null, nothing is."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison. Numbers of different types compare exactly.

    When a side is null, it is unknown for the operators that order and equate, and false for those that search.
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
    """Whether an optional variable found nothing."""

    var: str
    negated: bool

    @property
    def type(self) -> ValueType:
        return BOOL


@dataclass(frozen=True, slots=True)
class SameEntity:
    """Whether two node variables are the same node: same type and same id."""

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
    """A scalar function; null in, null out, except for `coalesce`."""

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
    """Whole units from `start` to `end`, towards zero."""

    unit: TimeUnit
    start: Expr
    end: Expr
    type: ValueType


@dataclass(frozen=True, slots=True)
class DateAdd:
    """A date moved by whole units; a day past the end of a month becomes its last day."""

    unit: TimeUnit
    amount: Expr
    date: Expr
    type: ValueType


@dataclass(frozen=True, slots=True)
class Analyzer:
    """How texts become words, in the property and in the query alike. The schema may say otherwise for a property.

    Attributes:
        tokenizer: where words end: at anything but letters and digits, at white space, or nowhere (`raw`).
        language: whose endings and stop words are meant.
        stem: whether endings are cut off.
        stop_words: whether words that stand everywhere are left out.
        lower_case: whether case does not matter.
        ascii_folding: whether accents do not matter.
    """

    tokenizer: str = "simple"
    language: str = "english"
    stem: bool = True
    stop_words: bool = True
    lower_case: bool = True
    ascii_folding: bool = True

    @classmethod
    def with_options(cls, options: Mapping[str, str]) -> Analyzer:
        """What the options of a full-text index say."""
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
    """Whether a text property holds the words of a query; null text never matches."""

    mode: TextMode
    field: Prop
    query: Expr
    edits: Const | Param | None = None
    """Letters that may differ in a word, for `FUZZY`."""
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
    """The distance of a vector property from a query: smaller is nearer.

    Attributes:
        query: a vector, or a text that is embedded at the property's dimension.
        model: the model that a text must be embedded with, when the schema records one.
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
    """The relevance of a text property for a query: larger is better. Null where no word of the query occurs."""

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
    """Reciprocal rank fusion: the sum over arms of weight / (k + place + 1). Larger is better.

    Equal sums stand in the order of the first arm, then of the next. Null where no arm has a value.
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
    """A value per group. No argument counts rows."""

    function: AggregateFunction
    arg: Expr | None
    distinct: bool
    type: ValueType


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the result, by name."""

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
)
