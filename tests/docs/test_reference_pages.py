"""The generated reference pages are up to date."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypedDict, Unpack

import pytest

import omnigraph
import reference_pages
from omnigraph import settings

PAGES = reference_pages.pages()


@cache
def text(name: str) -> str:
    """The generated text of a page. It is not made when the tests are collected, which every test process does."""
    return next(page() for path, page in PAGES.items() if path.name == name)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_reference_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == text(path.name), "run scripts/reference_pages.py"


def test_every_setting_has_a_row() -> None:
    assert [each.name for each in settings.all_settings() if f"| `{each.name}` |" not in text("settings.md")] == []


def test_every_public_name_has_a_section() -> None:
    exported = [name for name in omnigraph.__all__ if not name.startswith("__")]
    assert [name for name in exported if f"\n### {name}\n" not in text("python.md")] == []


def test_every_member_of_a_graph_and_of_a_client_has_a_section(tmp_path: Path) -> None:
    page = text("python.md")
    found = 0
    with (
        omnigraph.init(tmp_path / "g", "node A { n: String @key }") as graph,
        omnigraph.connect(tmp_path / "g") as client,
    ):
        for owner, handle in (("graph", graph), ("client", client)):
            for name in {*dir(type(handle)), *vars(handle)}:
                if name.startswith("_") or f"\n#### {type(handle).__name__}.{name}\n" in page:
                    continue
                part = getattr(handle, name)
                if type(part) is getattr(omnigraph, type(part).__name__, None):
                    continue
                members = [member for member in dir(type(part)) if not member.startswith("_")]
                assert [each for each in members if f"\n#### {owner}.{name}.{each}\n" not in page] == [], name
                found += len(members)
    assert found > 20


class Options(TypedDict, total=False):
    """Keyword arguments that several functions share."""

    limit: int | None
    actor: str


def run(name: str, **options: Unpack[Options]) -> None:
    """A function with shared keyword arguments."""


def test_shared_keyword_arguments_are_spelled_out() -> None:
    expected = "run(name: str, *, limit: int | None = …, actor: str = …) -> None"
    assert reference_pages._signature("run", run) == expected


def test_commands_and_options_are_listed() -> None:
    page = text("cli.md")
    assert "\n## omnigraph load\n" in page
    assert "\n### omnigraph branch merge\n" in page
    assert "| `--mode [overwrite\\|append\\|merge]` |" in page
    assert "## omnigraph ingest" not in page  # hidden
