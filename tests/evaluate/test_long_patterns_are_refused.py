"""A pattern that RE2 would compile for a long time is refused at once, wherever it comes from."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph, OmnigraphError
from omnigraph.errors import ParseError
from omnigraph.lang.query import compile_query
from omnigraph.lang.query.expressions import MAX_MATCHES
from omnigraph.lang.schema import check_schema, compile_schema
from omnigraph.lang.schema.regex import MAX_PATTERN, matches_part, pattern_error

SCHEMA = "node Note { slug: String @key text: String }"
LONG = "a?" * 50_000
REASON = "it has 100,000 characters, and a pattern may have at most 4,000"
QUERY = "query q($p: String) { match { $n: Note $n.text matches $p } return { $n.slug } }"
MUTATION = 'query m($p: String) { update Note set { text: "x" } where text matches $p }'


@contextmanager
def refused_at_once() -> Iterator[None]:
    began = time.process_time()
    with pytest.raises(OmnigraphError) as raised:
        yield
    assert time.process_time() - began < 5
    assert REASON in raised.value.render()
    assert len(raised.value.render()) < 2_000


def literal(text: str, pattern: str) -> str:
    return text.replace("($p: String)", "()").replace("$p", f'"{pattern}"')


@pytest.mark.parametrize(
    "send",
    [
        lambda graph: graph.query(QUERY, {"p": LONG}),
        lambda graph: graph.query(literal(QUERY, LONG)),
        lambda graph: graph.mutate(MUTATION, {"p": LONG}),
        lambda graph: graph.mutate(literal(MUTATION, LONG)),
        lambda graph: graph.schema.plan(f'node Note {{ slug: String @key text: String @check(text, "{LONG}") }}'),
    ],
    ids=["parameter", "literal", "parameter of a mutation", "literal of a mutation", "@check"],
)
def test_a_long_pattern_is_refused_at_once(send: Callable[[Graph], object], tmp_path: Path) -> None:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as graph:
        graph.load({"Note": [{"slug": "one", "text": "banana"}]}, mode="append")
        with refused_at_once():
            send(graph)


def test_a_long_pattern_of_braces_is_refused_at_once() -> None:
    schema = f'node Note {{ text: String @check(text, "{"{" * 1_000_000}") }}'
    began = time.process_time()
    assert ["OG-SC-024" in error.render() for error in check_schema(schema, "schema.pg")] == [True]
    assert time.process_time() - began < 5


def test_the_longest_pattern_matches() -> None:
    pattern = "|".join(["banana"] * 800)[:MAX_PATTERN]
    assert len(pattern) == MAX_PATTERN
    assert pattern_error(pattern) is None
    assert matches_part(pattern, "a banana")
    assert pattern_error(pattern + "s") is not None


def test_very_many_patterns_are_refused_before_they_are_compiled() -> None:
    schema = compile_schema("node Note { text: String }")

    def query(number: int) -> str:
        patterns = " or ".join(f'$n.text matches "\\\\pL{{30}}{i}"' for i in range(number))
        return f"query q() {{ match {{ $n: Note  ({patterns}) }} return {{ $n.text as text }} }}"

    assert compile_query(query(MAX_MATCHES), schema) is not None
    with pytest.raises(ParseError, match=f"more than {MAX_MATCHES} conditions with 'matches'"):
        compile_query(query(50_000), schema)
