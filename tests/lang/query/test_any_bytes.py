"""Any input gives a result or an error with a location, never a crash."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import examples
from tests.lang.query.catalogs import FAMILIAR, FAMILIAR_PARAMS, dense, papers
from tests.lang.strategies_query import WORDS, query_files
from tests.lang.strategies_typed import valid_queries

from omnigraph.errors import CompileError, ParseError, SourceText, TypeCheckError
from omnigraph.errors.source import printable
from omnigraph.lang.codes import all_codes
from omnigraph.lang.query import ast, describe, format_queries, ir, lint_queries, parse_queries, print_queries
from omnigraph.lang.query.check import check_query
from omnigraph.lang.schema import Catalog
from omnigraph.lang.tokens import query_tokens

EXAMPLES = Path(__file__).parents[3] / "examples" / "papers"
READS = (EXAMPLES / "queries.gq").read_text(encoding="utf-8")
WRITES = (EXAMPLES / "mutations.gq").read_text(encoding="utf-8")
PAPERS = papers()
DENSE = dense()


def check_place(error: CompileError, length: int) -> None:
    """Check that the error has a span inside the text, and can be rendered."""
    assert error.span is not None
    assert 0 <= error.span.start < error.span.end <= length
    assert printable(error.message) in error.render()


def parsed(text: str | bytes) -> ast.QueryFile | None:
    """The tree, or None after a proper error."""
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    try:
        return parse_queries(text)
    except ParseError as error:
        check_place(error, len(data))
        return None


def check(file: ast.QueryFile, catalog: Catalog, seen: Counter[str] | None = None) -> None:
    """Check that every query of a parsed file gives a consistent IR, or an error with a code and a span."""
    length = len(file.source.text.encode())
    for query in file.queries:
        try:
            checked = check_query(query, catalog, file.source)
        except TypeCheckError as error:
            check_place(error, length)
            outcome = str(error.diagnostic)
        else:
            assert ir.from_json(json.loads(ir.dumps(checked))) == checked
            assert hash(checked) == hash(replace(checked))
            assert ir.render(checked)
            json.dumps(describe(checked, catalog).to_json())
            outcome = "ok"
        assert outcome == "ok" or outcome in all_codes()
        if seen is not None:
            seen[outcome] += 1
    report = lint_queries(file.source.text, catalog)
    json.dumps(report.to_json({"kind": "file"}, "q.gq"))
    assert {finding.code for finding in report.findings} <= all_codes().keys()


# ---- any text

SCRAPS = st.sampled_from(
    (
        *WORDS,
        *"{}()[]<>:,.?=@|*/%+-$#;'&!\"\\",
        "query q() { match { ",
        " } return { ",
        "$a",
        "Paper",
        "1e999",
        "0x1",
        "\0",
    )
)


@examples(200)
@given(st.binary(max_size=80))
def test_any_bytes_parse_or_give_an_error(data: bytes) -> None:
    parsed(data)


@examples(200)
@given(st.text(st.characters(codec=None), max_size=60))
def test_any_text_parses_or_gives_an_error(text: str) -> None:
    parsed(text)


@examples(300)
@given(st.lists(SCRAPS | st.text(max_size=3), max_size=25))
def test_any_sequence_of_tokens_parses_or_gives_an_error(words: list[str]) -> None:
    file = parsed(" ".join(words))
    if file is not None:
        check(file, DENSE)


@pytest.mark.parametrize(
    "text",
    [
        *("query", "query q", "query q(", "query q(", "query q(,", "query q() {", "query q() { match {", "q", "{", "$"),
        *(
            "@",
            "@description",
            "//",
            "/*",
            "/*/",
            "/**",
            '"',
            '"\\',
            '"\\"',
            "'",
            "\ufeff",
            "\ufeffquery",
            "é",
            "\ud800",
        ),
        *(
            "1e999",
            "query q() { match { 1e999 = 1 } return { 1 } }",
            "query q($a: Vector(0)) {",
            "-",
            "--",
            "not",
            "1.",
            ".1",
        ),
        *('query q() @x("") {', 'query q() @description("a") @description("b") {', "query q($a: [Vector(3)]) {"),
        *(
            'query q() { delete X where a = "\\x" }',
            "query q() { match { $a knows{1} $b",
            "query q() { match { $a knows{9999999999,",
        ),
    ],
)
def test_broken_text_is_an_error(text: str) -> None:
    assert parsed(text) is None or text in ("//",)


def test_an_empty_text_has_no_queries() -> None:
    assert parse_queries("").queries == parse_queries(b"").queries == parse_queries("// nothing").queries == ()


@pytest.mark.parametrize("data", [b"\xff", b"query \xc3", b"query q() { \xed\xa0\x80 }", b"\x80" * 9])
def test_invalid_utf8_is_an_error(data: bytes) -> None:
    with pytest.raises(ParseError, match="not UTF-8") as caught:
        parse_queries(data)
    assert caught.value.span is not None
    assert data[caught.value.span.start] >= 0x80
    assert "-->" in caught.value.render()


# ---- broken variants of valid text


def queries_of(text: str) -> list[str]:
    data = text.encode()
    return [data[query.span.start : query.span.end].decode() for query in parse_queries(text).queries]


QUERIES = [*queries_of(READS), *queries_of(WRITES)]


@pytest.mark.parametrize("query", QUERIES[::12])
def test_a_truncated_query_is_an_error(query: str) -> None:
    """A truncated query is an error with a span inside the text."""
    data = query.encode()
    for end in range(1, len(data)):
        assert parsed(data[:end]) is None


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_a_truncation_of_any_example_query_is_an_error(query: str) -> None:
    test_a_truncated_query_is_an_error(query)


def pieces(text: str) -> list[str]:
    """A text as its tokens, each with the preceding white space."""
    tokens = query_tokens(SourceText(text))
    ends = [0, *tokens.ends[:-1]]
    data = text.encode()
    return [data[a:b].decode() for a, b in pairwise(ends)]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """An example query after a few random edits."""
    made = pieces(draw(st.sampled_from(QUERIES)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(made) - 1))
        other = draw(st.integers(0, len(made) - 1))
        match draw(st.sampled_from(("delete", "duplicate", "swap", "replace", "copy", "insert"))):
            case "delete" if len(made) > 1:
                del made[at]
            case "duplicate":
                made.insert(at, made[at])
            case "swap":
                made[at], made[other] = made[other], made[at]
            case "replace":
                made[at] = draw(SCRAPS)
            case "copy":
                made[at] = made[other]
            case _:
                made.insert(at, " " + draw(SCRAPS))
    return "".join(made)


@examples(1500)
@given(mutated())
def test_mutated_queries_compile_or_give_an_error(text: str) -> None:
    file = parsed(text)
    if file is not None:
        check(file, PAPERS)
        assert parse_queries(format_queries(text)) == file


@pytest.mark.soak
@examples(4000)
@given(mutated())
def test_mutated_queries_compile_or_give_an_error_in_long_runs(text: str) -> None:
    file = parsed(text)
    if file is not None:
        check(file, PAPERS)


# ---- any tree against a schema


@examples(250)
@given(query_files(FAMILIAR, most=1))
def test_any_syntax_tree_compiles_or_gives_an_error(file: ast.QueryFile) -> None:
    check(parse_queries(print_queries(file)), DENSE)
    declared = tuple(replace(query, params=FAMILIAR_PARAMS) for query in file.queries)
    check(parse_queries(print_queries(ast.QueryFile(declared))), DENSE)


# ---- valid queries


@pytest.mark.parametrize("catalog", [PAPERS, DENSE], ids=["papers", "dense"])
def test_generated_queries_for_a_schema_compile(catalog: Catalog) -> None:
    seen: Counter[str] = Counter()

    @examples(200)
    @given(valid_queries(catalog))
    def check_one(query: ast.Query) -> None:
        text = print_queries(ast.QueryFile((query,)))
        file = parse_queries(text)
        assert file.queries == (query,)
        check(file, catalog, seen)

    check_one()
    assert seen["ok"] >= seen.total() / 2, seen


@examples(150)
@given(valid_queries(PAPERS))
def test_layout_does_not_change_the_fingerprint(query: ast.Query) -> None:
    text = print_queries(ast.QueryFile((query,)))
    loose = " // a comment\n".join(pieces(text)) if '"' not in text else text.replace("\n", "\n\n  ")
    checked = check_query(query, PAPERS)
    for variant in (loose, format_queries(loose), text.replace("\n", " // x\n")):
        again = check_query(parse_queries(variant).queries[0], PAPERS)
        assert again == checked
        assert ir.fingerprint(again) == ir.fingerprint(checked)


@pytest.mark.soak
@examples(1000)
@given(valid_queries(DENSE))
def test_generated_queries_for_a_schema_compile_in_long_runs(query: ast.Query) -> None:
    check(parse_queries(print_queries(ast.QueryFile((query,)))), DENSE)
