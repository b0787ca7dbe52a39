"""The site builds without warnings, and fetches nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pygments.token import Error, Keyword, Name, Token

import docs_site
from docs_lexers import QueryLexer, SchemaLexer

ROOT = Path(__file__).parents[2]
RESOURCES = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "use": "href"}
FOREIGN = re.compile(r"^(?:https?:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return directory


class Resources(HTMLParser):
    """Everything that a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in ("canonical", "next", "prev"):
            return
        if address := values.get(RESOURCES.get(tag, "")):
            self.found.append(address)


@pytest.mark.slow
def test_the_site_fetches_nothing_from_other_hosts(site: Path) -> None:
    foreign = set()
    for page in site.rglob("*.html"):
        parser = Resources()
        text = page.read_text(encoding="utf-8")
        parser.feed(text)
        foreign |= {f"{page.name}: {address}" for address in parser.found if FOREIGN.match(address)}
        foreign |= {f"{page.name}: {code}" for code in re.findall(r"@import|class=\"mermaid|fonts\.g", text)}
    for style in site.rglob("*.css"):
        addresses = re.findall(r"url\([\"']?([^\"')]+)", style.read_text(encoding="utf-8"))
        foreign |= {f"{style.name}: {address}" for address in addresses if FOREIGN.match(address)}
    assert foreign == set()
    assert '"assets/stylesheets/' in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_files_have_titles_and_diagrams_are_part_of_their_pages(site: Path) -> None:
    named = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        files = [title for _, title, _ in docs_site.NAMED.findall(page.read_text(encoding="utf-8"))]
        html = (site / page.relative_to(ROOT / "docs")).with_suffix(".html").read_text(encoding="utf-8")
        assert re.findall(r'<span class="filename">(.+?)</span>', html) == files, page
        named += len(files)
    assert named > 100
    drawn = (site / "how-it-works.html").read_text(encoding="utf-8")
    assert drawn.count('<span class="diagram"') == drawn.count('<svg class="og"') == 5


def test_the_home_page_links_every_guide() -> None:
    linked = set(re.findall(r"\]\((guide/[\w-]+\.md)\)", (ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    assert linked == {f"guide/{page.name}" for page in (ROOT / "docs" / "guide").glob("*.md")}


@pytest.mark.slow
def test_schemas_and_queries_have_colours_in_pages(site: Path) -> None:
    html = (site / "start.html").read_text(encoding="utf-8")
    assert '<span class="kd">node</span><span class="w"> </span><span class="nc">Person</span>' in html
    assert '<span class="kd">query</span><span class="w"> </span><span class="nf">knows</span>' in html


@pytest.mark.slow
def test_the_search_index_has_every_page(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f'"location":"{page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()}' in index, page


@pytest.mark.parametrize(
    ("language", "session", "expected"),
    [
        ("console", "$ omnigraph a \\\n    --b\noutput\n$ omnigraph c\n", "omnigraph a \\\n    --b\nomnigraph c"),
        ("pycon", ">>> for x in y:\n...     f(x)\n...\n1\n>>> a\nTraceback\n    ...\n", "for x in y:\n    f(x)\n\na"),
    ],
)
def test_the_lines_that_a_user_types_are_copied(language: str, session: str, expected: str) -> None:
    assert docs_site.typed(language, session) == expected


def tokens(lexer: SchemaLexer | QueryLexer, text: str) -> dict[str, object]:
    return {value: kind for kind, value in lexer.get_tokens(text)}


def test_schemas_have_colours() -> None:
    found = tokens(SchemaLexer(), "node Person implements Named {\n  name: String? @key // text\n  kind: enum(a)\n}\n")
    assert (found["node"], found["Person"], found["implements"]) == (Keyword.Declaration, Name.Class, Keyword)
    assert (found["name"], found["String"], found["@key"]) == (Name.Attribute, Keyword.Type, Name.Decorator)


def test_queries_have_colours_and_names_may_be_keywords() -> None:
    text = "query match($order: I64) { match { $a: T { limit: 1 } not { $a in $b } } return { $a.where as n } limit 3 }"
    found = list(QueryLexer().get_tokens(text))
    assert (Name.Function, "match") in found
    assert (Keyword, "match") in found
    assert (Name.Attribute, "limit") in found
    assert (Keyword, "limit") in found
    assert (Name.Attribute, "where") in found
    assert (Name.Variable, "$order") in found


@pytest.mark.parametrize(("suffix", "lexer"), [("pg", SchemaLexer()), ("gq", QueryLexer())])
def test_every_schema_and_query_is_coloured_without_errors(suffix: str, lexer: SchemaLexer | QueryLexer) -> None:
    files = sorted((ROOT / "examples").rglob(f"*.{suffix}"))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        found = list(lexer.get_tokens(text))
        assert "".join(value for _, value in found).strip() == text.strip()
        assert [value for kind, value in found if kind in (Error, Token.Text)] == []
