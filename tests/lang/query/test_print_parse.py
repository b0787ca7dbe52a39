"""Printing is the inverse of parsing, and formatting changes no query and loses no comment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import examples
from tests.lang.strategies_query import query_files

from omnigraph.errors import SourceText
from omnigraph.lang.query import ast, format_queries, parse_queries, print_queries
from omnigraph.lang.tokens import query_tokens

EXAMPLES = Path(__file__).parents[3] / "examples" / "papers"
FILES = query_files()


# ---- trees


@examples(250)
@given(FILES)
def test_printing_and_parsing_round_trips(file: ast.QueryFile) -> None:
    text = print_queries(file)
    parsed = parse_queries(text)
    assert parsed == file
    assert print_queries(parsed) == text
    assert format_queries(text) == text


@pytest.mark.soak
@examples(1200)
@given(query_files(most=1))
def test_printing_and_parsing_round_trips_in_long_runs(file: ast.QueryFile) -> None:
    assert parse_queries(print_queries(file)) == file


@pytest.mark.parametrize("name", ["queries.gq", "mutations.gq"])
def test_formatting_the_examples_keeps_their_meaning(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    formatted = format_queries(text)
    assert parse_queries(formatted) == parse_queries(text)
    assert format_queries(formatted) == formatted


@pytest.mark.parametrize(
    "clause",
    [
        "(contains = 1)",  # operator words are names, too
        "(not in = 1)",
        "(or(1))",
        "(-1 < $a.x)",
        "($a = $b)",
        "($a contains $b)",
        "$a.x contains $b",
        "$a contains $b",
        "not (not = 1)",
        "f((x = 1), y=1)",
        "count((distinct + 1)) > 1",
        "count(distinct distinct) > 1",
        "$a.x - -1 = -(1)",
        "$a.x * ($a.y + 1) / 2 = -$a.z",
        "($a.x or $a.y) and not ($a.x and $a.y)",
        "((1 = 1) = 1) = 1",
        "$a.in in []",
        "(is is not null)",
        '"\\"\\\\\\n\\r\\t" = 1e-07',
        "shortest $p: $a (in | is){1,} $_",
        "$a <(*)>{1,3} $b",
        "$a $e:<knows> $b",
    ],
)
def test_ambiguous_filters_round_trip(clause: str) -> None:
    """Each stands between two others, so that only its own syntax separates it from them."""
    file = parse_queries(f"query q() {{ match {{ $a.x = $b  {clause}  (1 = 1) }} return {{ 1 }} }}")
    assert isinstance(file.queries[0].body, ast.Read)
    assert len(file.queries[0].body.match) == 3
    assert parse_queries(print_queries(file)) == file


@pytest.mark.parametrize("key", ["not", "not desc", "null", "(null)", "(not asc)", "(not desc) asc", "(not asc or x)"])
def test_ambiguous_sort_keys_round_trip(key: str) -> None:
    file = parse_queries(f"query q() {{ match {{ $a: A }} return {{ $a }} order {{ {key} }} }}")
    assert parse_queries(print_queries(file)) == file


@pytest.mark.parametrize("where", ["true = 1", "(true) = 1", "null != 1", "(1 + true) = true", "not not = 1"])
def test_a_property_may_be_named_like_a_constant(where: str) -> None:
    text = f"query q() {{\n    delete X where {where}\n}}\n"
    assert print_queries(parse_queries(text)) == text


# ---- comments

FORMS = (
    "// c{}.",
    "/* c{}. */",
    "/* c{}.\n   and more */",
    '// c{}. } "',
    "/* c{}. // */",
    "// c{}. /*",
    "/** c{}. **/",
)
GAPS = st.sampled_from(("", " ", "\n", "\n\n", "\n\n\n", "\r\n", " \t\n  "))


@st.composite
def commented(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A text with comments between any of its tokens, and the comments."""
    text = print_queries(draw(FILES))
    tokens = query_tokens(SourceText(text))
    data = text.encode()
    count = len(tokens.kinds) - 1
    starts = [*tokens.starts[:-1], len(data)]
    places = draw(st.sets(st.integers(0, count), max_size=6))
    pieces: list[str] = []
    comments: list[str] = []
    last = 0
    for i in range(count + 1):
        pieces.append(data[last : starts[i]].decode())
        # White space between a name and its parenthesis would split a call.
        is_call = 0 < i < count and tokens.kinds[i - 1 : i + 1] == ["name", "("] and last == starts[i]
        for _ in range(draw(st.integers(1, 2)) if i in places and not is_call else 0):
            comment = draw(st.sampled_from(FORMS)).replace("{}", str(len(comments)))
            comments.append(comment)
            end = "\n" if comment.startswith("//") else ""
            pieces += [draw(GAPS), comment, end, draw(GAPS)]
        if i < count:
            pieces.append(data[starts[i] : tokens.ends[i]].decode())
            last = tokens.ends[i]
    return "".join(pieces), comments


def check_format(text: str, comments: list[str]) -> str:
    """Check the properties of every formatted text."""
    formatted = format_queries(text)
    assert parse_queries(formatted) == parse_queries(text)
    assert {comment: formatted.count(comment) for comment in comments} == dict.fromkeys(comments, 1)
    assert format_queries(formatted) == formatted
    assert "\n\n\n" not in formatted
    assert not formatted or formatted.endswith("\n")
    assert not formatted.startswith("\n")
    return formatted


@examples(250)
@given(commented())
def test_formatting_keeps_every_comment_once(made: tuple[str, list[str]]) -> None:
    check_format(*made)


@pytest.mark.soak
@examples(1200)
@given(commented())
def test_formatting_keeps_every_comment_once_in_long_runs(made: tuple[str, list[str]]) -> None:
    check_format(*made)


READ = """\
query q(
    $a: I64, $b: String = "x"
)
@description("d")
{
    match { $p: Paper { doi: $b, title: "t" } $p $e : (cites | replaces) $q not { $q about $t } optional { $t: Topic } }
    return distinct { $p.doi as doi, count($q) + $a as n }
    having { n > 1 or n < 3 }
    order { n desc nulls last, doi }
    limit 5
    offset $a
}
"""
WRITE = """\
query w($a: I64) {
    insert Paper { doi: "x", pages: [1, 2] }
    update node Paper set { title: "y" } where doi = "x" and pages in [1, 2]
    merge edge Cites { from: "a" to: "b" }
    delete Paper where not (doi is null)
}
"""


@pytest.mark.parametrize("comment", ["// here\n", "/* here */", "/* here\n too */", "\n// here\n\n"])
@pytest.mark.parametrize("text", [READ, WRITE], ids=["read", "write"])
def test_a_comment_between_any_two_tokens_is_kept(text: str, comment: str) -> None:
    tokens = query_tokens(SourceText(text))
    for i, start in enumerate([*tokens.starts[:-1], len(text)]):
        if tokens.kinds[i] != "(" or tokens.kinds[i - 1] != "name":
            check_format(f"{text[:start]} {comment}{text[start:]}", [comment.strip()])


def test_comments_between_all_tokens_are_kept() -> None:
    for text in (READ, WRITE):
        tokens = query_tokens(SourceText(text))
        comments = [f"// c{i}." for i in range(len(tokens.kinds))]
        pieces = [f"{comments[i]}\n{tokens.texts[i]}\n" for i in range(len(tokens.kinds))]
        joined = "".join(pieces).replace("description\n", "@description\n", 1)
        check_format(joined, comments)


@pytest.mark.parametrize("text", ["// alone", "/* alone */", "// alone\n\n\n// and not\n", "\n\n  // alone  \n\n"])
def test_a_file_of_comments_keeps_all_of_them(text: str) -> None:
    formatted = format_queries(text)
    assert [line.strip() for line in formatted.splitlines() if line] == [
        line.strip() for line in text.splitlines() if line.strip()
    ]
    assert format_queries(formatted) == formatted


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\t\r\n"])
def test_an_empty_file_stays_empty(text: str) -> None:
    assert format_queries(text) == ""


# ---- layout

SOURCE = """\
// before the first
query a ( ) { // behind the head
  match { $p : Paper // behind a pattern
    // before a filter


    $p.pages > // inside a filter
      3
    not { $p cites $_ // inside a block
    }
    // at the end of the match
  }
  return { // behind the return
    $p.doi, // behind a projection
    $p.title /* behind the last */ }
  limit 3 // behind the limit
} // behind the query
// between


/* before the second */ query b() { match { $p: Paper } return { $p.doi /* inside a line */ } }
query c($x: I64 /* inside the parameters */) { delete Paper where pages = $x } // at the very end"""

FORMATTED = """\
// before the first
query a() {  // behind the head
    match {
        $p: Paper  // behind a pattern
        // before a filter

        // inside a filter
        $p.pages > 3
        not {
            $p cites $_  // inside a block
        }
        // at the end of the match
    }
    return {  // behind the return
        $p.doi,  // behind a projection
        $p.title  /* behind the last */
    }
    limit 3  // behind the limit
}  // behind the query

// between

/* before the second */
query b() {
    match { $p: Paper }
    return {
        $p.doi  /* inside a line */
    }
}

/* inside the parameters */
query c($x: I64) {
    delete Paper where pages = $x
}  // at the very end
"""


def test_comments_have_their_canonical_position() -> None:
    assert format_queries(SOURCE) == FORMATTED
    assert format_queries(FORMATTED) == FORMATTED


def test_single_blank_lines_between_clauses_are_kept() -> None:
    text = (
        "query a() {\n\n\n  match {\n\n $p: Paper\n\n\n\n $p.pages = 1\n $p.doi = 2\n\n }\n\n return { 1 }\n\n}\n\n\n\n"
        "query b() { match { 1 = 1 } return { 1 } }"
    )
    assert format_queries(text) == (
        "query a() {\n    match {\n        $p: Paper\n\n        $p.pages = 1\n        $p.doi = 2\n    }\n\n"
        "    return { 1 }\n}\n\nquery b() {\n    match { 1 = 1 }\n    return { 1 }\n}\n"
    )


def test_line_endings_do_not_change_the_result() -> None:
    assert format_queries(SOURCE.replace("\n", "\r\n")) == FORMATTED


def test_long_heads_and_lists_are_wrapped() -> None:
    params = ", ".join(f"$parameter_{i}: String" for i in range(8))
    columns = ", ".join(f"$p.property_{i}" for i in range(12))
    text = f'query q({params}) @description("{"long " * 20}") {{ match {{ $p: P }} return {{ {columns} }} }}'
    formatted = format_queries(text)
    assert parse_queries(formatted) == parse_queries(text)
    assert format_queries(formatted) == formatted
    assert "\n    $parameter_0: String,\n" in formatted
    assert "\n        $p.property_0,\n" in formatted
    assert max(len(line) for line in formatted.splitlines() if "@" not in line) <= 100


def test_no_code_is_printed_behind_a_comment() -> None:
    """A line comment runs to the end of its line: code behind it would be lost."""
    for text in (SOURCE, FORMATTED):
        for line in format_queries(text).splitlines():
            _, mark, comment = line.partition("//")
            assert not mark or re.fullmatch(r" [a-z ]+", comment), line
