"""Random conditions as text over a type with a property of every kind, with rows and parameters to evaluate them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from omnigraph.lang.arrow import arrow_type
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.types import INTEGER_RANGES, Scalar, ValueType

CATALOG = compile_schema(
    """
    node Thing {
        text: String?  word: String  flag: Bool?
        i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?  count: I64
        day: Date?  time: DateTime?
        texts: [String]?  ints: [I64]?  naturals: [U64]?  floats: [F32]?  days: [Date]?  times: [DateTime]?
    }
    """
)
PROPERTIES = {name: prop.type for name, prop in CATALOG.nodes["Thing"].properties.items()}
NUMBERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64)

TEXTS = st.text("aAbz%_.^$ \n\t\0éÉÄΩωЖж😀\u00a0\u3000'\"\\", max_size=5)
PATTERNS = st.sampled_from(["", "^a", "b$", "a.", "[a-z]+", "(?i)É", "a|b", r"\.", "^$", r"\bA", "😀", r"\s", "%"])
DAYS = st.one_of(
    st.integers(-800_000, 3_000_000),
    st.sampled_from([0, -1, 58, 59, 60, 365, 11_016, 19_782, -(2**31), 2**31 - 1]),
)
MILLIS = st.one_of(
    st.integers(-(10**14), 10**14),
    st.sampled_from([0, -1, 1, 86_399_999, 86_400_000, -(2**63), 2**63 - 1]),
)
EDGES = [0, 1, -1, 2, 2**24 + 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1]
EDGES += [-(2**63), 2**63, 2**64 - 1, 10**18, 5 * 10**18]
FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 0.1, 2.7, 0.5, 1.5, -2.5, 2.675, 2.0**53, 2.0**63, 2.0**64, 1e300, -1e39]),
    st.integers(-1000, 1000).map(lambda n: n / 8),
)
F32S = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.5, 2.0**24, 0.5])


def scalars(scalar: Scalar) -> st.SearchStrategy[Any]:
    """Values of a type, as Python represents them."""
    if scalar.is_integer:
        low, high = INTEGER_RANGES[scalar]
        edges = [edge for edge in EDGES if low <= edge <= high]
        return st.integers(low, high) | st.sampled_from(edges) | st.integers(max(low, -9), 9)
    return {
        Scalar.STRING: TEXTS,
        Scalar.BOOL: st.booleans(),
        Scalar.F32: F32S,
        Scalar.F64: FLOATS,
        Scalar.DATE: DAYS,
        Scalar.DATETIME: MILLIS,
    }[scalar]


def values(kind: ValueType) -> st.SearchStrategy[Any]:
    found = scalars(kind.scalar)
    if kind.list:
        found = st.lists(found, max_size=3).map(tuple)
    return st.none() | found if kind.nullable else found


ROWS = st.lists(st.fixed_dictionaries({name: values(kind) for name, kind in PROPERTIES.items()}), max_size=5)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows in stored form, with ids."""
    columns = {"id": pa.array([row["id"] for row in rows], pa.utf8())}
    for name, kind in PROPERTIES.items():
        given = [row[name] for row in rows]
        if kind.scalar is Scalar.DATETIME and not kind.list:
            columns[name] = pa.array(given, pa.int64()).view(pa.date64())
        elif kind.scalar is Scalar.DATETIME:
            plain = pa.array(given, pa.list_(pa.int64()))
            items = plain.values.view(pa.date64())
            columns[name] = pa.ListArray.from_arrays(plain.offsets, items, type=arrow_type(kind), mask=plain.is_null())
        else:
            columns[name] = pa.array(given, arrow_type(kind))
    return pa.table(columns)


@dataclass
class Builder:
    """Draws one condition, and records its parameters with their values."""

    draw: st.DrawFn
    params: dict[str, tuple[ValueType, Any]] = field(default_factory=dict)

    def pick(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def param(self, kind: ValueType) -> str:
        kind = kind.with_nullable(self.draw(st.integers(0, 4)) == 0)
        name = f"p{len(self.params)}"
        given = self.draw(values(kind))
        self.params[name] = (kind, given)
        return f"${name}"

    def named(self, *wanted: Scalar, is_list: bool = False) -> str:
        return self.pick(*(n for n, kind in PROPERTIES.items() if kind.scalar in wanted and kind.list == is_list))

    def texts(self, depth: int) -> str:
        match self.draw(st.integers(0, 9 if depth else 4)):
            case 0 | 1:
                return self.named(Scalar.STRING)
            case 2:
                return "id"
            case 3:
                return literal(self.draw(TEXTS))
            case 4:
                return self.param(ValueType(Scalar.STRING))
            case 5:
                return f"({self.texts(depth - 1)} + {self.texts(depth - 1)})"
            case 6:
                return f"coalesce({self.texts(depth - 1)}, {self.texts(depth - 1)})"
        return f"{self.pick('lower', 'upper', 'trim')}({self.texts(depth - 1)})"

    def numbers(self, depth: int) -> str:
        match self.draw(st.integers(0, 11 if depth else 4)):
            case 0 | 1:
                return self.named(*NUMBERS)
            case 2:
                return repr(self.draw(FLOATS))
            case 3:
                return str(self.draw(st.sampled_from(EDGES) | st.integers(-99, 99)))
            case 4:
                return self.param(ValueType(self.draw(st.sampled_from(NUMBERS))))
            case 5 | 6 | 7:
                return f"({self.numbers(depth - 1)} {self.pick(*'+-*/%')} {self.numbers(depth - 1)})"
            case 8:
                return f"(-{self.named(*NUMBERS)})"
            case 9:
                return f"coalesce({self.numbers(depth - 1)}, {self.numbers(depth - 1)})"
            case 10:
                return self.measures(depth)
        function = self.pick("abs", "round", "floor", "ceil", "round to")
        if function == "round to":
            places = str(self.draw(st.integers(-20, 25))) if self.draw(st.booleans()) else self.named(Scalar.I32)
            return f"round({self.numbers(depth - 1)}, {places})"
        return f"{function}({self.numbers(depth - 1)})"

    def measures(self, depth: int) -> str:
        """Numbers that are computed from other values."""
        match self.draw(st.integers(0, 3)):
            case 0:
                return f"length({self.texts(depth - 1)})"
            case 1:
                return f"length({self.lists()})"
            case 2:
                time = self.dates if self.draw(st.booleans()) else self.times
                return f"{self.pick('year', 'month', 'day')}({time(depth - 1)})"
        if self.draw(st.booleans()):
            return f'date_diff("{self.unit(Scalar.DATE)}", {self.dates(depth - 1)}, {self.dates(depth - 1)})'
        return f'date_diff("{self.unit(Scalar.DATETIME)}", {self.times(depth - 1)}, {self.times(depth - 1)})'

    def unit(self, scalar: Scalar) -> str:
        parts = () if scalar is Scalar.DATE else ("millisecond", "second", "minute", "hour")
        return self.pick(*parts, "day", "week", "month", "year")

    def dates(self, depth: int) -> str:
        match self.draw(st.integers(0, 4 if depth else 2)):
            case 0:
                return "day"
            case 1:
                return f'date("{self.draw(st.dates()).isoformat()}")'
            case 2:
                return self.param(ValueType(Scalar.DATE))
        return f'date_add("{self.unit(Scalar.DATE)}", {self.amount()}, {self.dates(depth - 1)})'

    def times(self, depth: int) -> str:
        match self.draw(st.integers(0, 4 if depth else 3)):
            case 0:
                return "time"
            case 1:
                return f'datetime("{self.draw(st.datetimes()).isoformat()}Z")'
            case 2:
                return self.param(ValueType(Scalar.DATETIME))
            case 3:
                return "now()"
        return f'date_add("{self.unit(Scalar.DATETIME)}", {self.amount()}, {self.times(depth - 1)})'

    def amount(self) -> str:
        if self.draw(st.integers(0, 4)) == 0:
            return self.named(Scalar.I64, Scalar.I32, Scalar.U64)
        return str(self.draw(st.integers(-300, 300)))

    def lists(self) -> str:
        return self.pick(*(name for name, kind in PROPERTIES.items() if kind.list))

    def condition(self, depth: int) -> str:
        match self.draw(st.integers(0, 9 if depth else 6)):
            case 0:
                return f"{self.numbers(depth)} {self.order()} {self.numbers(depth)}"
            case 1:
                word = self.pick("contains", "starts_with", "ends_with")
                op = word if self.draw(st.booleans()) else self.order()
                return f"{self.texts(depth)} {op} {self.texts(depth)}"
            case 2:
                side = self.dates if self.draw(st.booleans()) else self.times
                return f"{side(depth)} {self.order()} {side(depth)}"
            case 3:
                return f"{self.texts(depth)} matches {literal(self.draw(PATTERNS))}"
            case 4:
                return self.membership(depth)
            case 5:
                operand = self.pick(*PROPERTIES, "id", "(i64 / i32)", "lower(text)")
                return f"{operand} {self.pick('is null', 'is not null')}"
            case 6:
                self.params.setdefault("b", (ValueType(Scalar.BOOL, True), self.draw(st.none() | st.booleans())))
                return self.pick("flag", "flag = true", "flag < true", "flag != $b", "$b >= flag")
            case 7:
                return f"not ({self.condition(depth - 1)})"
        return f"({self.condition(depth - 1)} {self.pick('and', 'or')} {self.condition(depth - 1)})"

    def order(self) -> str:
        return self.pick("=", "!=", "<", "<=", ">", ">=")

    def membership(self, depth: int) -> str:
        word = self.pick("in", "not in")
        match self.draw(st.integers(0, 4)):
            case 0:
                scalar = self.draw(st.sampled_from(NUMBERS))
                return f"{self.numbers(depth)} {word} {self.param(ValueType(scalar, list=True))}"
            case 1:
                written = self.draw(st.lists(st.sampled_from(EDGES[:12]) | FLOATS, max_size=3))
                return f"{self.numbers(depth)} {word} [{', '.join(map(repr, written))}]"
            case 2:
                items = self.pick("texts", self.param(ValueType(Scalar.STRING, list=True)))
                return f"{self.texts(depth)} {word} {items}"
            case 3:
                return f"{self.numbers(depth)} {word} {self.pick('ints', 'naturals', 'floats')}"
        if self.draw(st.booleans()):
            return f"{self.pick('ints', 'naturals', 'floats')} contains {self.numbers(depth)}"
        return self.pick(
            "texts contains text", "days contains day", "times contains time", "day in days", "time in times"
        )


def literal(text: str) -> str:
    """A text literal of the language."""
    return json.dumps(text, ensure_ascii=False).replace("\\u0000", "\0")


@dataclass(frozen=True)
class Condition:
    """A condition with its parameters."""

    text: str
    params: dict[str, tuple[ValueType, Any]]

    @property
    def query(self) -> str:
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in self.params.items())
        return f"query q({declared}) {{ delete Thing where {self.text} }}"


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> Condition:
    builder = Builder(draw)
    text = builder.condition(depth)
    return Condition(text, builder.params)
