"""Text to tree and back: printing, formatting, and arbitrary bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.lang.strategies_schema import commented, trees, valid_schemas

from omnigraph.errors import ParseError
from omnigraph.lang.schema import ast, check_schema, format_schema, parse_schema, print_schema
from omnigraph.lang.tokens import read_source, schema_tokens


@given(trees)
def test_printing_and_parsing_round_trips(tree: ast.Schema) -> None:
    assert parse_schema(print_schema(tree)) == tree


@given(trees)
def test_printed_text_is_already_formatted(tree: ast.Schema) -> None:
    text = print_schema(tree)
    assert format_schema(text) == text


@given(trees.map(print_schema).flatmap(commented))
def test_formatting_keeps_meaning_and_comments_and_is_idempotent(text: str) -> None:
    formatted = format_schema(text)
    assert parse_schema(formatted) == parse_schema(text)
    assert _comments(formatted) == _comments(text)
    assert format_schema(formatted) == formatted


def _comments(text: str) -> list[str]:
    return sorted(comment.text.rstrip() for comment in schema_tokens(read_source(text)).comments)


@given(st.binary(max_size=60))
def test_any_bytes_parse_or_give_an_error_with_a_location(data: bytes) -> None:
    _parses_or_fails_inside(data)


_WORDS = """
node edge interface implements enum ( ) { } [ ] : -> , ? .. = @ - @key @unique @index @range @check @card @card_in
@default @allow @embed now A B String I32 Vector a b 1 2.5 "x" "é" true // /* */ "
"""
_pieces = st.sampled_from([*_WORDS.split(), "\n"])


@given(st.lists(_pieces, max_size=25).map(" ".join))
def test_any_tokens_parse_or_give_an_error_with_a_location(text: str) -> None:
    _parses_or_fails_inside(text.encode())


@given(valid_schemas(), st.data())
def test_damaged_schemas_parse_or_give_an_error_with_a_location(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 5)))
    _parses_or_fails_inside((text[:start] + text[end:]).encode())


def _parses_or_fails_inside(data: bytes) -> None:
    for problem in check_schema(data, "x.pg"):
        assert isinstance(problem, ParseError) or problem.diagnostic is not None
        assert problem.span is not None
        assert 0 <= problem.span.start <= problem.span.end <= len(data)
        assert problem.render()
        if isinstance(problem, ParseError):
            return
    tree = parse_schema(data)
    assert parse_schema(print_schema(tree)) == tree


@given(trees)
def test_every_declaration_has_its_span(tree: ast.Schema) -> None:
    text = print_schema(tree)
    for declaration in parse_schema(text).declarations:
        written = text.encode()[slice(*declaration.span)].decode()
        assert written.split()[0] in ("interface", "node", "edge")
        for member in declaration.members:
            piece = text.encode()[slice(*member.span)].decode()
            assert piece.startswith(member.name.text if isinstance(member, ast.Property) else "@")


@given(valid_schemas())
def test_generated_schemas_compile(text: str) -> None:
    assert [error.render() for error in check_schema(text)] == []


def test_formatting_does_not_turn_an_annotation_into_a_constraint() -> None:
    """With a space it is an annotation with a value, which is an error: formatting must not hide that."""
    text = "node A {\n    d: I32 @ unique(d)\n}\n"
    assert format_schema(text) == text
    assert check_schema(text)
