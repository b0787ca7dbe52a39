"""Conditions on two variables keep the same rows when they compare codes as when they compare values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.columns import column_codes
from omnigraph.read.match import filter as filter_module
from omnigraph.read.match import parts

FIELDS = (
    "key: I64 @key  text: String?  word: String?  small: I64?  i32: I32?  i64: I64?  u32: U32?  u64: U64?  "
    "f32: F32?  f64: F64?  day: Date?  time: DateTime?  flag: Bool?  empty: I64?  low: I64?"
)
SCHEMA = f"""
node Left {{ {FIELDS} }}
node Right {{ {FIELDS} }}
edge Joins: Left -> Right {{ weight: I64? }}
"""
BIG = 2**53
VALUES: dict[str, list[Any]] = {
    "text": ["", "a", "A", "é", "😀", "ab", None],
    "word": ["ab", "é", "zz", "a", None],
    "small": [0, 1, -3, 127, None],
    "i32": [-(2**31), 2**31 - 1, 0, None],
    "i64": [BIG, BIG + 1, -BIG - 1, 1, 2**63 - 1, None],
    "u32": [0, 2**32 - 1, 1, 127],
    "u64": [0, 2**64 - 1, 2**63 - 1, 1, BIG + 1, None],
    "f32": [0.0, -0.0, 1.5, 2.0**31, None],
    "f64": [0.0, -0.0, 1.0, float(BIG), -(2.0**31) - 1, 2.0**63, None],
    "day": [date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29), None],
    "time": [datetime(1969, 12, 31, tzinfo=UTC), datetime(2024, 2, 29, 1, tzinfo=UTC), None],
    "flag": [True, False, None],
    "empty": [None],
    "low": [-(2**63), 0, 1, None],
}
NUMBERS = ("small", "i32", "i64", "u32", "u64", "f32", "f64", "empty", "low")
FLOATS = ("f32", "f64")
WIDE = ("i64", "low")
"""Columns whose integers are not all exact as floats."""
UNCODED = ("u64", "low")
"""Columns without codes: a value is too large, NaN, or the least integer."""
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SIZE = 9
PAIRS = [
    *product(NUMBERS, NUMBERS),
    *product(("text", "word"), ("text", "word")),
    ("day", "day"),
    ("time", "time"),
    ("flag", "flag"),
]


def rows(shift: int) -> dict[str, list[Any]]:
    return {name: [values[(i * shift) % len(values)] for i in range(SIZE)] for name, values in VALUES.items()}


LEFT, RIGHT = rows(1), rows(5)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with omnigraph.init(tmp_path_factory.mktemp("conditions") / "graph", SCHEMA) as made:
        keys = list(range(SIZE))
        kinds = {"i32": pa.int32(), "u32": pa.uint32(), "u64": pa.uint64(), "f32": pa.float32(), "empty": pa.int64()}

        def table(columns: dict[str, list[Any]]) -> pa.Table:
            return pa.table({"key": keys, **{n: pa.array(v, kinds.get(n)) for n, v in columns.items()}})

        pairs = list(product(keys, keys))
        joins = {"from": [str(a) for a, _ in pairs], "to": [str(b) for _, b in pairs]}
        weights = [None if a == b else a - b for a, b in pairs]
        made.load(
            {"Left": table(LEFT), "Right": table(RIGHT), "Joins": pa.table({**joins, "weight": weights})},
            mode="append",
        )
        yield made


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each comparison of codes."""
    found: list[int] = []

    def counting(op: Any, left: Any, left_numbers: Any, right: Any, right_numbers: Any) -> Any:
        found.append(len(left_numbers))
        return column_codes.compare_rows(op, left, left_numbers, right, right_numbers)

    monkeypatch.setattr(filter_module, "compare_rows", counting)
    return found


def asked(graph: Graph, match: str) -> list[tuple[int, int]]:
    text = f"query q() {{ match {{ {match} }} return {{ $a.key as x, $b.key as y }} order {{ x, y }} }}"
    return [(row["x"], row["y"]) for row in graph.query(text).to_pylist()]


def expected(left: list[Any], sign: str, right: list[Any]) -> list[tuple[int, int]]:
    # Python compares integers with floats by their exact values, and texts by their code points.
    return [
        (a, b)
        for a, b in product(range(SIZE), range(SIZE))
        if left[a] is not None and right[b] is not None and OPERATORS[sign](left[a], right[b])
    ]


@pytest.mark.parametrize(("x", "y"), PAIRS)
def test_codes_compare_like_values(graph: Graph, thresholds: Thresholds, compared: list[int], x: str, y: str) -> None:
    for sign in OPERATORS:
        match = f"$a joins $b  $a.{x} {sign} $b.{y}"
        truth = expected(LEFT[x], sign, RIGHT[y])
        thresholds(column_codes, WHOLE_COLUMN_RATIO=0)
        assert asked(graph, match) == truth, sign  # this also reads the columns
        thresholds(column_codes, WHOLE_COLUMN_RATIO=10**6)
        compared.clear()
        assert asked(graph, match) == truth, sign
        inexact = (x in FLOATS) != (y in FLOATS) and (x in WIDE or y in WIDE)
        assert bool(compared) == (not inexact and x not in UNCODED and y not in UNCODED), sign


@pytest.mark.parametrize("name", ["text", "small", "f64", "flag", "id"])
def test_two_variables_of_one_type_share_their_codes(
    graph: Graph, thresholds: Thresholds, compared: list[int], name: str
) -> None:
    thresholds(column_codes, WHOLE_COLUMN_RATIO=10**6)
    values = [str(i) for i in range(SIZE)] if name == "id" else LEFT[name]
    for sign in OPERATORS:
        text = (
            f"query q() {{ match {{ $a joins $r  $b joins $r  $r.key = 0  $a.{name} {sign} $b.{name} }} "
            "return { $a.key as x, $b.key as y } order { x, y } }"
        )
        for _ in range(2):
            found = [(row["x"], row["y"]) for row in graph.query(text).to_pylist()]
            assert found == expected(values, sign, values), sign
    assert compared


def test_a_missing_optional_node_satisfies_no_comparison(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(column_codes, WHOLE_COLUMN_RATIO=10**6)
    match = "$a: Left  optional { $a joins $m  $m.key = 3  $a.key < 4 }  $a joins $b  $b.small >= $m.small"
    found = asked(graph, match)
    truth = [(a, b) for a, b in expected([RIGHT["small"][3]] * SIZE, "<=", RIGHT["small"]) if a < 4]
    assert asked(graph, match) == found == truth
    assert truth


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ("$e.weight > 2", lambda weight: weight is not None and weight > 2),
        ("2 >= $e.weight", lambda weight: weight is not None and weight <= 2),
        ("$e.weight != 2", lambda weight: weight is not None and weight != 2),
        ("$e.weight is null", lambda weight: weight is None),
        ("$e.weight is not null", lambda weight: weight is not None),
        ("$e.weight in [1, 5]", lambda weight: weight in (1, 5)),
    ],
)
def test_a_condition_on_an_edge_is_tested_once_per_edge(graph: Graph, test: str, holds: Callable[[Any], bool]) -> None:
    truth = [(a, b) for a, b in product(range(SIZE), range(SIZE)) if holds(None if a == b else a - b)]
    assert asked(graph, f"$a $e:joins $b  {test}") == truth
    optional = f"$a: Left  $b: Right  optional {{ $a $e:joins $b  $a.key = $b.key }}  {test}"
    assert asked(graph, optional) == [(a, b) for a, b in product(range(SIZE), range(SIZE)) if holds(None)]


def test_conditions_are_tested_before_rows_are_produced(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(parts, PART_ROWS=5, MIN_PARALLEL_ROWS=0)
    match = "$a joins $b  $a.small < $b.small  $a.key != $b.key  $a.key + $b.key > 7"
    truth = [(a, b) for a, b in expected(LEFT["small"], "<", RIGHT["small"]) if a != b and a + b > 7]
    assert asked(graph, match) == truth
    text = f"query q() {{ match {{ {match} }} return {{ $a.key as x, $b.key as y }} }}"
    plan = graph.explain(text, analyze=True)
    (walk,) = [step for step in plan.steps if step.action == "expand"]
    assert "where" in walk.text
    assert "$a.small < $b.small" in walk.text
    assert walk.rows == len(truth)
    assert [step.action for step in plan.steps] == ["scan", "expand", "sort", "project"]


def test_nan_has_no_code() -> None:
    assert column_codes.number_codes(pa.array([1.0, float("nan")])) is None
    codes = column_codes.number_codes(pa.array([1.0, None]))
    assert codes is not None
    assert codes.present(codes.values).tolist() == [True, False, False]


@pytest.mark.parametrize(("most", "kind"), [(127, "int8"), (128, "int16"), (2**15, "int32"), (2**31, "int64")])
def test_codes_are_as_narrow_as_possible(most: int, kind: str) -> None:
    codes = column_codes.number_codes(pa.array([most, 0, None]))
    assert codes is not None
    assert (codes.values.dtype.name, codes.values.tolist(), codes.null) == (kind, [most, 0, -1, -1], -1)
