"""Size and depth are bounded: a huge or deep text gives a result or a typed error quickly, at any stack depth."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from tests.lang.query.catalogs import dense
from tests.patience import at_most
from tests.sampling import every_nth

from omnigraph.errors import CatalogError, CompileError, InputError, OmnigraphError, ParseError, TypeCheckError
from omnigraph.lang.query import compile_queries, format_queries, ir, lint_queries, parse_queries
from omnigraph.lang.query.ir.codec import JsonValue
from omnigraph.lang.schema import compile_schema, format_schema, parse_schema
from omnigraph.lang.tokens import MAX_SOURCE_BYTES

CATALOG = dense()
EFFORT = 3_000
"""A generous limit: code that is not linear would take minutes."""


def read(clause: str = "$a: Person", result: str = "$a.name", tail: str = "", params: str = "") -> str:
    return f"query q({params}) {{ match {{ $a: Person {clause} }} return {{ {result} }} {tail} }}"


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return opening * depth + inner + closing * depth


WIDE: dict[str, Callable[[int], str]] = {
    "or": lambda n: read(" or ".join(f"$a.age = {i}" for i in range(n))),
    "and": lambda n: read(" and ".join(f"$a.age > {i}" for i in range(n))),
    "clauses": lambda n: read(" ".join(f"$a.age > {i}" for i in range(n))),
    "patterns": lambda n: read(" ".join(f"$a: Person {{ age: {i} }}" for i in range(n))),
    "traversals": lambda n: read(" ".join(f"$a knows $b{i}" for i in range(n))),
    "negations": lambda n: read(" ".join(f"not {{ $a knows $b{i} }}" for i in range(n))),
    "optionals": lambda n: read(" ".join(f"optional {{ $a knows $b{i} }}" for i in range(n))),
    "alternatives": lambda n: read(f"$a ({' | '.join(['knows'] * n)}) $b"),
    "matchers": lambda n: read(f"$a: Person {{ {', '.join(f'age: {i}' for i in range(n))} }}"),
    "projections": lambda n: read(result=", ".join(f"$a.age + {i} as c{i}" for i in range(n))),
    "aliases": lambda n: read(result="$a.age as c0, " + ", ".join(f"c{i} + 1 as c{i + 1}" for i in range(n))),
    "having": lambda n: read(result="count(*) as n", tail=f"having {{ {' '.join(f'n > {i}' for i in range(n))} }}"),
    "sorts": lambda n: read(tail=f"order {{ {', '.join(['$a.name'] * n)} }}"),
    "numbers": lambda n: read(f"$a.age in [{', '.join(map(str, range(10 * n)))}]"),
    "arguments": lambda n: read(result=f"coalesce({', '.join(['$a.age'] * n)}) as c"),
    "params": lambda n: read("$a.age > $p0", params=", ".join(f"$p{i}: I64 = {i}" for i in range(n))),
    "inserts": lambda n: "query q() { " + 'insert Knows { from: "a" to: "b" } ' * n + "}",
    "assigns": lambda n: f"query q() {{ insert Person {{ {' '.join(f'x{i}: {i}' for i in range(n))} }} }}",
    "where": lambda n: f"query q() {{ delete Person where {' or '.join(f'age = {i}' for i in range(n))} }}",
    "queries": lambda n: "\n".join(
        f"query q{i}() {{ match {{ $a: Person }} return {{ $a.age }} }}" for i in range(n // 5)
    ),
    "comments": lambda n: "// c\n" * n + read("/* c */ " * n, tail="// c\n" * n),
    "blank lines": lambda n: "\n" * n + read("\n" * n, tail="\n" * n),
    "string": lambda n: read(f'$a.name = "{"x" * 100 * n}"'),
    "escapes": lambda n: read(f'$a.name = "{chr(92) * 2 * n}"'),
    "unicode": lambda n: read(f'$a.name = "{"ß😀" * n}"') + "// ß\n" * n,
    "one name": lambda n: read(f"$a.{'x' * 100 * n} = 1"),
    "unclosed string": lambda n: read('$a.name = "' + "x\\n" * 50 * n),
    "unclosed comment": lambda n: read("/*" + "* /" * 50 * n),
    "garbage": lambda n: "} ) ] " * n,
}
"""Texts that grow in one dimension. Each uses names of the schema, so that all checks run."""

SCHEMAS: dict[str, Callable[[int], str]] = {
    "nodes": lambda n: "\n".join(f"node N{i} {{ p: String @key }}" for i in range(n)),
    "edges": lambda n: "node N { p: String @key }" + "\n".join(f"edge E{i}: N -> N" for i in range(n)),
    "interfaces": lambda n: (
        "\n".join(f"interface I{i} {{ p{i}: String }}" for i in range(n))
        + f"node N implements {', '.join(f'I{i}' for i in range(n))} {{ }}"
    ),
    "properties": lambda n: f"node N {{ {' '.join(f'p{i}: [String]? @x(1)' for i in range(n))} }}",
    "enum": lambda n: f"node N {{ p: enum({', '.join(f'v{i}' for i in range(n))}) }}",
    "constraints": lambda n: f"node N {{ {' '.join(f'p{i}: I64 @range(p{i}, 0..9)' for i in range(n))} }}",
    "annotations": lambda n: f"node N {' '.join(f'@a{i}(1, x=2)' for i in range(n))} {{ p: String }}",
    "comments": lambda n: "// c\n" * n + "node N { " + "/* c */ " * n + " }",
    "string": lambda n: f'node N @description("{"x" * 100 * n}") {{ }}',
    "unclosed string": lambda n: 'node N @description("' + "x\\n" * 50 * n,
    "unclosed comment": lambda n: "/*" + "* /" * 50 * n,
    "garbage": lambda n: "} ) ] " * n,
}

DEEP: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: read(nested("(", "1 = 1", ")", n)),
    "not": lambda n: read("not " * n + "1 = 1"),
    "minus": lambda n: read("- " * n + "$a.age = 1"),
    "not blocks": lambda n: read(nested("not { $a knows $b ", "", "}", n)),
    "optional blocks": lambda n: read(nested("optional { $a knows $b ", "", "}", n)),
    "calls": lambda n: read(nested("abs(", "$a.age", ")", n) + " = 1"),
    "sums": lambda n: read(" + ".join(["$a.age"] * n) + " = 1"),
    "products": lambda n: read(" * ".join(["$a.age"] * n) + " = 1"),
    "and in or": lambda n: read(nested("(1 = 1 and (1 = 2 or ", "1 = 1", "))", n)),
    "lists": lambda n: read(f"$a.age in {nested('[', '', ']', n)}"),
    "unclosed": lambda n: "query q() { match { " + "(" * n,
    "where": lambda n: f"query q() {{ delete Person where {nested('(', 'age = 1', ')', n)} }}",
}
"""Nested texts."""


def check_short(error: CompileError, text: str) -> None:
    """Check that an error quotes only a part of its text, and is short."""
    assert len(error.render()) < len(text) + 1_000


def run_everything(text: str) -> None:
    """Run all operations on a text; each must give a result or an error of the family."""
    for work in (parse_queries, format_queries, lambda text: compile_queries(text, CATALOG)):
        try:
            made = work(text)
        except (ParseError, TypeCheckError) as error:
            check_short(error, text)
        else:
            for query in made.values() if isinstance(made, dict) else ():
                assert ir.from_json(ir.to_json(query)) == query
                assert ir.render(query)
                assert ir.fingerprint(query)
    assert lint_queries(text, CATALOG).to_json({}, "q.gq")["status"] in ("ok", "error")


@pytest.mark.slow
@pytest.mark.parametrize("shape", every_nth(WIDE, 2))
def test_a_wide_text_compiles_or_fails_quickly(shape: str) -> None:
    text = WIDE[shape](10_000 if shape in ("or", "and", "clauses", "projections", "numbers", "queries") else 3_000)
    with at_most(EFFORT):
        run_everything(text)


@pytest.mark.parametrize("depth", [10, 60, 5_000])
@pytest.mark.parametrize("shape", DEEP)
def test_a_deep_text_compiles_or_fails_quickly(shape: str, depth: int) -> None:
    with at_most(EFFORT):
        run_everything(DEEP[shape](depth))


def test_long_chains_compile() -> None:
    """A long text that is not deep is valid."""
    for shape in ("or", "and", "clauses", "projections", "numbers", "queries", "traversals", "having", "where"):
        assert compile_queries(WIDE[shape](2_000), CATALOG)


@pytest.mark.parametrize("shape", SCHEMAS)
def test_a_wide_schema_compiles_or_fails_quickly(shape: str) -> None:
    text = SCHEMAS[shape](2_000)
    with at_most(EFFORT):
        for work in (parse_schema, format_schema, compile_schema):
            try:
                work(text)
            except (ParseError, CatalogError) as error:
                check_short(error, text)


def test_an_oversized_text_is_refused_quickly() -> None:
    for text in ("x" * 50_000_000, b"x" * 50_000_000, "ß" * MAX_SOURCE_BYTES):
        with at_most(EFFORT):
            for work in (parse_queries, format_queries, parse_schema, format_schema, compile_schema):
                with pytest.raises(ParseError, match="bytes"):
                    work(text)
            report = lint_queries(text, CATALOG)
        assert [finding.code for finding in report.findings] == ["Q000"]


def test_the_error_of_an_oversized_text_names_its_file() -> None:
    for parse in (parse_queries, parse_schema):
        with pytest.raises(ParseError) as caught:
            parse(b"x" * (MAX_SOURCE_BYTES + 1), "huge.txt")
        assert "huge.txt:1:" in caught.value.render()
        assert len(caught.value.render()) < 1_000


def test_the_longest_accepted_line_is_parsed_quickly() -> None:
    line = read('$a.name = "') + "x" * (MAX_SOURCE_BYTES - 200) + '"'
    with at_most(EFFORT), pytest.raises(ParseError) as caught:
        parse_queries(line)
    assert len(caught.value.render()) < 1_000


@pytest.mark.parametrize("digits", [19, 20, 40, 41, 5_000, 1_000_000])
def test_numbers_with_many_digits_are_parsed_quickly(digits: int) -> None:
    number = "9" * digits
    with at_most(EFFORT):
        for text in (
            read(f"$a.big = {number}"),
            read(f"$a.big = -{number}"),
            read(f"$a.score = {number}.5"),
            read(f"$a.score = 1e{number}"),
            read(f"$a.score = 1e-{number}"),
            read(f"$a knows{{1,{number}}} $b"),
            read(tail=f"limit {number}"),
            read(params=f"$v: Vector({number})"),
            read(params=f"$v: I32 = {number}"),
            f"query q() {{ update Person set {{ age: {number} }} where age = {number} }}",
        ):
            run_everything(text)


def test_deeply_nested_json_is_refused() -> None:
    data: JsonValue = {"kind": "Now"}
    for _ in range(5_000):
        data = {"kind": "Not", "term": data}
    with pytest.raises(InputError, match="nested"):
        ir.from_json(data)


# ---- the caller's stack


def with_frames_left(frames: int, work: Callable[[], object]) -> object:
    """Run a function with only this many free frames on the stack."""

    def depth() -> int:
        frame, count = sys._getframe(), 0
        while frame.f_back is not None:
            frame, count = frame.f_back, count + 1
        return count

    def descend(more: int) -> object:
        return work() if more <= 0 else descend(more - 1)

    return descend(sys.getrecursionlimit() - depth() - frames)


@pytest.mark.parametrize("shape", ["parentheses", "not blocks", "calls", "sums", "where", "and in or"])
@pytest.mark.parametrize("work", ["parse", "format", "compile", "lint"])
def test_a_nearly_full_stack_is_a_typed_error(shape: str, work: str) -> None:
    text = DEEP[shape](20)
    works: dict[str, Callable[[], object]] = {
        "parse": lambda: parse_queries(text),
        "format": lambda: format_queries(text),
        "compile": lambda: compile_queries(text, CATALOG),
        "lint": lambda: lint_queries(text, CATALOG),
    }
    outcomes = set()
    for frames in range(25, 400, 5):
        try:
            with_frames_left(frames, works[work])
        except (ParseError, TypeCheckError) as error:
            outcomes.add("nested" if "nested" in error.message else str(error))
        else:
            outcomes.add("result")
    assert outcomes - {"nested"} == {"result"}


# ---- growth


def seconds(work: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    with suppress(OmnigraphError):
        work(text)
    return time.process_time() - began


def check_growth(work: Callable[[str], object], shape: Callable[[int], str]) -> None:
    """Four times the text takes about four times as long; sixteen times would be quadratic.

    The best CPU time of several runs counts, because a busy machine only adds time.
    """
    small, large = shape(300), shape(1200)
    base = grown = float("inf")
    for _ in range(12):
        base = min(base, seconds(work, small))
        grown = min(grown, seconds(work, large))
        if grown < 8 * max(base, 0.0005):
            return
    pytest.fail(f"{base:.4f} s became {grown:.4f} s")


@pytest.mark.parametrize("shape", WIDE)
@pytest.mark.parametrize(
    "work",
    [parse_queries, format_queries, partial(lint_queries, catalog=CATALOG)],
    ids=["parse", "format", "lint"],
)
def test_time_is_linear_in_the_size_of_the_text(shape: str, work: Callable[[str], object]) -> None:
    check_growth(work, WIDE[shape])


@pytest.mark.parametrize("shape", SCHEMAS)
@pytest.mark.parametrize("work", [parse_schema, format_schema, compile_schema], ids=["parse", "format", "compile"])
def test_time_is_linear_in_the_size_of_the_schema(shape: str, work: Callable[[str], object]) -> None:
    check_growth(work, SCHEMAS[shape])
