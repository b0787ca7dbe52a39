"""A scan with the prefilter of a condition loses no row for which the condition is true, in a real table."""

from __future__ import annotations

import random
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from tests.evaluate.expressions import EDGES, PROPERTIES, Condition, conditions, table
from tests.evaluate.test_expressions_agree_with_python import NOW, compiled
from tests.example_counts import examples

from omnigraph.errors import ExecutionError
from omnigraph.evaluate import Request, holds, table_rows
from omnigraph.evaluate.prefilter import prefilter
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.types import INTEGER_RANGES, Scalar
from omnigraph.storage.scans import scanner

REQUEST = Request({}, NOW)

POOLS: dict[Scalar, list[Any]] = {
    Scalar.STRING: ["", "a", "A", "ab", "b%", "a_b", "é", "É", "'", '"', "\\", "a\0b", "😀", " a "],
    Scalar.BOOL: [True, False],
    Scalar.F32: [0.0, -0.0, 0.5, -2.5, 1.5, 2.0**24, 0.10000000149011612, 3.0],
    Scalar.F64: [0.0, -0.0, 0.1, 2.7, 2.0**53, -1e300, 3.0],
    Scalar.DATE: [0, -1, 59, 19_782, -(2**31), 2**31 - 1],
    Scalar.DATETIME: [0, -1, 1, 86_400_000, NOW],
}


def rows_of_all_kinds(count: int) -> list[dict[str, Any]]:
    """Deterministic rows that combine every kind of value with every other."""
    chance = random.Random(20_260_314)
    rows = []
    for i in range(count):
        row: dict[str, Any] = {"id": f"r{i}"}
        for name, kind in PROPERTIES.items():
            pool = POOLS.get(kind.scalar)
            if pool is None:
                low, high = INTEGER_RANGES[kind.scalar]
                pool = [edge for edge in [*EDGES, 3, 5, 7] if low <= edge <= high]
            value: Any = chance.choices(pool, k=chance.randrange(3)) if kind.list else chance.choice(pool)
            row[name] = None if kind.nullable and chance.random() < 0.2 else value
        rows.append(row)
    return rows


ROWS = table(rows_of_all_kinds(200))


@pytest.fixture(scope="module", params=["scanned", "indexed"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    dataset = lance.write_dataset(ROWS, str(tmp_path_factory.mktemp("table") / request.param))
    if request.param == "indexed":
        for name in ("id", "text", "i32", "i64", "f32", "f64", "day"):
            dataset.create_scalar_index(name, "BTREE")
        dataset.create_scalar_index("flag", "BITMAP")
    return dataset


def passed(dataset: lance.LanceDataset, filter: pc.Expression) -> set[str]:
    return set(scanner(dataset, columns=["id"], filter=filter).to_table()["id"].to_pylist())


def matching(where: ir.Expr, request: Request) -> set[str]:
    return set(ROWS.filter(holds(where, table_rows(ROWS), request))["id"].to_pylist())


@examples(150)
@given(condition=conditions(depth=1))
def test_the_prefilter_loses_no_matching_row(stored: lance.LanceDataset, condition: Condition) -> None:
    where = compiled(condition)
    request = Request({name: given for name, (_, given) in condition.params.items()}, NOW)
    found = prefilter(where, request)
    if found is None:
        return
    passing = passed(stored, found)  # Lance accepts every generated filter
    try:
        wanted = matching(where, request)
    except ExecutionError:
        return
    assert wanted <= passing


SAID_EXACTLY = [
    'text = "a"',
    '"a" = text',
    'text != "a"',
    'text < "a"',
    'text in ["a", "é", ""]',
    "text in []",
    'text contains "%"',
    'text starts_with "a"',
    'text ends_with "_b"',
    'text = "a\0b"',
    "text is null",
    "text is not null",
    "flag",
    "not flag",
    "flag = false",
    "i32 = 3",
    "i32 = 3.0",
    "not (i32 < 3)",
    "3 > i32",
    "i64 = 9007199254740993",
    "i64 in [1, 2.0, 2.5]",
    "i64 >= -9223372036854775808",
    "f32 = 0.1",
    "f32 = 0",
    "f32 in [0.1, -0.0]",
    "f32 >= 0.0",
    "f64 = 0.1",
    "f64 in [0.0]",
    "f64 <= -0.0",
    'day = date("1969-12-31")',
    'day < date("1970-01-01")',
    'day in [date("1970-01-01")]',
    'id = "r7"',
    'id in ["r7", "r8"]',
    'text = "a" and flag',
    'text = "a" or (flag and i32 = 3)',
    'not (text = "a" and flag)',
    'not (text = "a" or i32 = 3)',
    'text = "a" or text = "é" or (text in ["b%"] or id = "r7")',
    "flag = true or flag = false",
    "f32 = 0 or f32 = 1.5 or f32 in [0.5]",
    "f64 = 0.1 or not (f64 != 2.7)",
    'day = date("1969-12-31") or day = date("1970-01-01") or i32 = 3',
    "not (i64 != 3 and not (i64 = 5))",
]


@pytest.mark.parametrize("text", SAID_EXACTLY)
def test_supported_conditions_are_pushed_down_exactly(stored: lance.LanceDataset, text: str) -> None:
    where = compiled(Condition(text, {}))
    found = prefilter(where, REQUEST)
    assert found is not None
    assert passed(stored, found) == matching(where, REQUEST)


NOTHING_SAID = [
    "u64 = 3",
    "u32 in [3]",
    "time = now()",
    'texts contains "a"',
    "i32 = i64",
    "i32 = 2.5",
    "i32 < 3000000000",
    "i32 + 1 = 3",
    'text matches "a"',
    'not (text contains "a")',
    'text not in ["a"]',
    "flag or u64 = 3",
    "not (flag and u64 = 3)",
    "text = word",
    "word in texts",
]


@pytest.mark.parametrize("text", NOTHING_SAID)
def test_unsupported_conditions_are_not_pushed_down(text: str) -> None:
    assert prefilter(compiled(Condition(text, {})), REQUEST) is None


def test_the_supported_part_of_a_conjunction_is_pushed_down() -> None:
    both = prefilter(compiled(Condition('text = "a" and u64 = 3', {})), REQUEST)
    assert str(both) == '(text == "a")'


def test_a_null_parameter_is_not_pushed_down() -> None:
    condition = Condition("text = $p", {"p": (PROPERTIES["text"], None)})
    assert prefilter(compiled(condition), Request({"p": None}, NOW)) is None


def test_a_text_key_is_looked_up_as_the_id() -> None:
    catalog = compile_schema("node Person { name: String @key  mail: String? }")
    body = compile_query('query q() { delete Person where name = "x" and mail = "y" }', catalog).body
    assert isinstance(body, ir.Write)
    (statement,) = body.statements
    assert isinstance(statement, ir.Delete)
    assert str(prefilter(statement.where, REQUEST, key="name")) == '((id == "x") and (mail == "y"))'
    assert str(prefilter(statement.where, REQUEST)) == '((name == "x") and (mail == "y"))'


def test_endpoints_of_an_edge_are_pushed_down_as_columns() -> None:
    catalog = compile_schema("node Person { name: String @key }  edge Knows: Person -> Person")
    body = compile_query('query q() { delete Knows where from = "a" and to in ["b"] }', catalog).body
    assert isinstance(body, ir.Write)
    (statement,) = body.statements
    assert isinstance(statement, ir.Delete)
    found = str(prefilter(statement.where, REQUEST))
    assert found.startswith('((src == "a") and is_in(dst')
    edges = pa.table({"id": ["1", "2", "3"], "src": ["a", "a", "b"], "dst": ["b", "c", "b"]})
    assert holds(statement.where, table_rows(edges), REQUEST).to_pylist() == [True, False, False]


WIDE = 3_000
BROAD = {
    "or of one column": " or ".join(f'text = "v{i}"' for i in range(WIDE)) + ' or text = "a"',
    "or of many columns": " or ".join(f'text != "v{i}"' for i in range(WIDE)),
    "and": " and ".join(f'text != "v{i}"' for i in range(WIDE)),
    "not or": "not (" + " or ".join(f"i64 = {i + 100}" for i in range(WIDE)) + ")",
    "not and": "not (" + " and ".join(f"i64 != {i}" for i in range(WIDE)) + ")",
    "or of and": " or ".join(f"(i64 = {i} and i32 > {i} and (flag or i32 < {i}))" for i in range(WIDE // 3)),
    "and of or": " and ".join(f"(i64 != {i + 100} or i32 >= {i} or not flag)" for i in range(WIDE // 3)),
    "lists": " or ".join(f"i64 in [{i}, {i + 1}] or f64 in [{i}.0] or f64 = {i}.5" for i in range(WIDE // 3)),
}


@pytest.mark.parametrize("shape", BROAD)
def test_a_broad_condition_gives_a_filter_of_bounded_size(stored: lance.LanceDataset, shape: str) -> None:
    """A filter grows with each enclosing `and` and `or`. A chain of 3,000 terms could never be serialised."""
    where = compiled(Condition(BROAD[shape], {}))
    found = prefilter(where, REQUEST)
    wanted = matching(where, REQUEST)
    if found is not None:
        text = str(found)
        assert text.count("==") + text.count("!=") + text.count(">") + text.count("<") + text.count("is_in") <= 64
        assert wanted <= passed(stored, found)
    assert (found is None) == (shape in ("or of many columns", "or of and"))


@pytest.mark.parametrize("kind", ["chain", "alternating", "negated"])
def test_a_deep_condition_gives_a_filter_of_bounded_size(stored: lance.LanceDataset, kind: str) -> None:
    text = 'text = "a"'
    for i in range(30):
        if kind == "chain":
            text = f'({text}) or text = "v{i}"'
        elif kind == "alternating":
            text = f"({text}) and i64 != {i + 100}" if i % 2 else f"({text}) or i32 = {i}"
        else:
            text = f"not (({text}) and i64 = {i + 100})"
    where = compiled(Condition(text, {}))
    found = prefilter(where, REQUEST)
    if found is not None:
        assert str(found).count("i64") <= 12, "how deep a filter may be"
        assert matching(where, REQUEST) <= passed(stored, found)
    if kind == "chain":
        assert found is not None
        assert str(found).startswith("is_in(text"), "one column is looked up once"


def test_a_long_list_is_pushed_down_beside_other_conditions() -> None:
    listed = Condition("i64 in $many", {"many": (PROPERTIES["ints"], None)})
    beside = Condition("i64 in $many and flag", listed.params)
    request = Request({"many": tuple(range(100_000))}, NOW)
    for condition in (listed, beside):
        assert "is_in(i64" in str(prefilter(compiled(condition), request))
