"""The functions of the query language: one registry for the parser, the checker, the evaluator, completion and docs.

To add a scalar function with one argument, add an entry here and its implementation in `omnigraph.evaluate.functions`.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from omnigraph.dataclass import dataclass
from omnigraph.lang.types import Scalar, ValueType


class FunctionKind(StrEnum):
    """The group of a function."""

    AGGREGATE = "aggregate"
    TEXT = "text"
    NUMBER = "number"
    TIME = "time"
    VALUE = "value"
    GRAPH = "graph"
    SEARCH = "search"


class Takes(Enum):
    """The accepted argument types of a scalar function with one argument."""

    TEXT = "a text"
    NUMBER = "a number"
    TIME = "a Date or DateTime"
    TEXT_OR_LIST = "a text, a list or a path"

    def accepts(self, value: ValueType) -> bool:
        """Whether the function accepts a value of this type."""
        match self:
            case Takes.TEXT:
                return _is_text(value)
            case Takes.NUMBER:
                return value.scalar.is_numeric and not value.list
            case Takes.TIME:
                return value.scalar in (Scalar.DATE, Scalar.DATETIME) and not value.list
            case Takes.TEXT_OR_LIST:
                return _is_text(value) or value.list


class Gives(Enum):
    """The result type of a scalar function with one argument."""

    TEXT = auto()
    INTEGER = auto()
    SAME_KIND = auto()
    """I64 for an integer, F64 for any other number."""

    def result(self, value: ValueType) -> ValueType:
        """The result type for an argument of the given type. It is nullable if the argument is."""
        match self:
            case Gives.TEXT:
                scalar = Scalar.STRING
            case Gives.INTEGER:
                scalar = Scalar.I64
            case Gives.SAME_KIND:
                scalar = Scalar.I64 if value.scalar.is_integer else Scalar.F64
        return ValueType(scalar, value.nullable)


def _is_text(value: ValueType) -> bool:
    return value.scalar is Scalar.STRING and not value.list


@dataclass(frozen=True, slots=True)
class Function:
    """A function.

    Attributes:
        name: the name of the function.
        kind: the group of the function.
        signature: the call with its arguments, as the documentation shows it.
        about: the meaning of the function, in one sentence.
        takes: the argument type of a scalar function with one argument. The checker has separate rules for the others.
        gives: the result type of a scalar function with one argument.
    """

    name: str
    kind: FunctionKind
    signature: str
    about: str
    takes: Takes | None = None
    gives: Gives | None = None


_ALL = (
    Function(
        "count",
        FunctionKind.AGGREGATE,
        "count(* | [distinct] value)",
        "Number of rows, or of values that are not null.",
    ),
    Function("sum", FunctionKind.AGGREGATE, "sum([distinct] number)", "Sum of numbers."),
    Function("avg", FunctionKind.AGGREGATE, "avg([distinct] number)", "Mean of numbers."),
    Function("min", FunctionKind.AGGREGATE, "min(value)", "Smallest value."),
    Function("max", FunctionKind.AGGREGATE, "max(value)", "Largest value."),
    Function("collect", FunctionKind.AGGREGATE, "collect([distinct] value)", "List of the values that are not null."),
    Function("lower", FunctionKind.TEXT, "lower(text)", "The text in lower case.", Takes.TEXT, Gives.TEXT),
    Function("upper", FunctionKind.TEXT, "upper(text)", "The text in upper case.", Takes.TEXT, Gives.TEXT),
    Function(
        "trim", FunctionKind.TEXT, "trim(text)", "The text without white space at its ends.", Takes.TEXT, Gives.TEXT
    ),
    Function(
        "length",
        FunctionKind.TEXT,
        "length(text | list | path)",
        "Number of characters, of list items, or of edges of a path.",
        Takes.TEXT_OR_LIST,
        Gives.INTEGER,
    ),
    Function("abs", FunctionKind.NUMBER, "abs(number)", "Absolute value.", Takes.NUMBER, Gives.SAME_KIND),
    Function(
        "floor",
        FunctionKind.NUMBER,
        "floor(number)",
        "Largest integer that is not above the number.",
        Takes.NUMBER,
        Gives.SAME_KIND,
    ),
    Function(
        "ceil",
        FunctionKind.NUMBER,
        "ceil(number)",
        "Smallest integer that is not below the number.",
        Takes.NUMBER,
        Gives.SAME_KIND,
    ),
    Function(
        "round",
        FunctionKind.NUMBER,
        "round(number [, digits])",
        "The number, rounded to some digits; by default 0.",
    ),
    Function("coalesce", FunctionKind.VALUE, "coalesce(value, value, …)", "The first value that is not null."),
    Function("now", FunctionKind.TIME, "now()", "The time at which the query began."),
    Function("date", FunctionKind.TIME, 'date("2026-03-14")', "A Date."),
    Function("datetime", FunctionKind.TIME, 'datetime("2026-03-14T09:30:00Z")', "A DateTime."),
    Function("year", FunctionKind.TIME, "year(time)", "The year of a Date or DateTime.", Takes.TIME, Gives.INTEGER),
    Function("month", FunctionKind.TIME, "month(time)", "The month, 1 to 12.", Takes.TIME, Gives.INTEGER),
    Function("day", FunctionKind.TIME, "day(time)", "The day of the month, 1 to 31.", Takes.TIME, Gives.INTEGER),
    Function("date_diff", FunctionKind.TIME, "date_diff(unit, start, end)", "Whole units of time from start to end."),
    Function("date_add", FunctionKind.TIME, "date_add(unit, amount, time)", "The time plus an amount of units."),
    Function("type", FunctionKind.GRAPH, "type($variable)", "The name of the type of a node or edge."),
    Function("nodes", FunctionKind.GRAPH, "nodes($path)", "The ids of the nodes of a path."),
    Function("edges", FunctionKind.GRAPH, "edges($path)", "The ids of the edges of a path."),
    Function(
        "nearest", FunctionKind.SEARCH, "nearest($variable.vector, vector | text)", "Rank by distance between vectors."
    ),
    Function("bm25", FunctionKind.SEARCH, "bm25($variable.text, words)", "Rank by relevance of words (BM25)."),
    Function("rrf", FunctionKind.SEARCH, "rrf(rank, rank, … [, k=60])", "Reciprocal rank fusion of several ranks."),
    Function(
        "search",
        FunctionKind.SEARCH,
        "search($variable.text, words [, all=true])",
        "Whether a text contains any of the words, or all of them.",
    ),
    Function(
        "fuzzy",
        FunctionKind.SEARCH,
        "fuzzy($variable.text, words [, edits])",
        "Whether a text contains any of the words, with up to 2 edits.",
    ),
    Function(
        "match_text", FunctionKind.SEARCH, "match_text($variable.text, phrase)", "Whether a text contains a phrase."
    ),
)

FUNCTIONS = {function.name: function for function in _ALL}
"""All functions, by name."""

AGGREGATES = frozenset(name for name, function in FUNCTIONS.items() if function.kind is FunctionKind.AGGREGATE)
