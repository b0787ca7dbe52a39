"""Every schema in the documentation compiles, and every query compiles with its schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from omnigraph.errors import TypeCheckError
from omnigraph.lang.functions import FUNCTIONS
from omnigraph.lang.query import compile_queries, format_queries, ir
from omnigraph.lang.query.expressions import OPERATOR_WORDS
from omnigraph.lang.query.ir import expr, query
from omnigraph.lang.schema import Catalog, check_schema, compile_schema, format_schema
from page_examples import blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAPERS = "examples/papers/schema.pg"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@dataclass(frozen=True)
class Text:
    """A block of a schema or of queries.

    The schema of queries is that of the library. A comment `<!-- schema: PATH -->` above a block names another one. A
    block that is a file belongs to the schema of its page.
    """

    page: str
    line: int
    schema: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


SCHEMA = re.compile(r"^<!-- schema: (\S+) -->$")


def texts(language: str) -> list[Text]:
    found = []
    for page in PAGES:
        source = page.read_text(encoding="utf-8")
        name, lines, own = page.relative_to(ROOT).as_posix(), source.splitlines(), None
        for block in blocks(source):
            if block.file and block.language == "pg":
                own = own or f"{name}:{block.line}"
            above = SCHEMA.match(lines[block.line - 2])
            schema = above[1] if above else (own if block.file else None) or PAPERS
            if block.language == language:
                found.append(Text(name, block.line, schema, block.text))
    return found


@cache
def catalog(schema: str) -> Catalog:
    """The catalogue of a schema: a file, or a block of a page."""
    page, _, line = schema.partition(":")
    text = (ROOT / page).read_text(encoding="utf-8")
    if line:
        text = next(block.text for block in blocks(text) if block.line == int(line))
    return compile_schema(text, schema)


@pytest.mark.parametrize("block", texts("pg"), ids=str)
def test_schemas_in_the_documentation_compile(block: Text) -> None:
    assert [error.render() for error in check_schema(block.text, str(block))] == []
    assert format_schema(format_schema(block.text)) == format_schema(block.text)


@pytest.mark.parametrize("block", texts("gq"), ids=str)
def test_queries_in_the_documentation_compile(block: Text) -> None:
    assert compile_queries(block.text, catalog(block.schema), str(block))
    assert format_queries(block.text) == block.text


def test_schemas_and_queries_of_the_documentation_are_found() -> None:
    assert len(texts("pg")) > 5
    assert len(texts("gq")) > 20


def test_the_error_on_the_errors_page_is_current() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    text = "query q() {\n    match { $p: Paper }\n    return { $p.titel }\n}\n"
    with pytest.raises(TypeCheckError) as caught:
        compile_queries(text, catalog(PAPERS), "queries.gq")
    assert f"```text\n{caught.value.render()}\n```" in page


def test_the_ir_page_names_every_class_and_member() -> None:
    page = (DOCS / "reference" / "ir.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page))
    for module in (expr, query):
        for name, cls in vars(module).items():
            if isinstance(cls, type) and cls.__module__ == module.__name__:
                assert name in named
                assert {member for member in getattr(cls, "__dataclass_fields__", ()) if member not in named} == set()


def test_the_json_on_the_ir_page_is_current() -> None:
    page = (DOCS / "reference" / "ir.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```gq\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (compiled,) = compile_queries(source, catalog(PAPERS)).values()
    assert ir.render(compiled) in page
    (shown,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert re.sub(r"\s+", "", ir.dumps(compiled)) == re.sub(r"\s+", "", shown)


def test_the_guide_shows_every_function_and_operator() -> None:
    guide = "".join((DOCS / "guide" / name).read_text(encoding="utf-8") for name in ("queries.md", "search.md"))
    for word in [*FUNCTIONS, *OPERATOR_WORDS, *(unit.value for unit in ir.TimeUnit)]:
        assert re.search(rf"\b{word}\b", guide), word
