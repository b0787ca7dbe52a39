"""No page has a block that the tests leave out, except for those listed here with a reason."""

from __future__ import annotations

import doctest
import re
from collections import Counter
from pathlib import Path

import pytest
from tests.docs.test_examples import texts
from tests.docs.test_guides_run import ELSEWHERE, PAGES

from page_examples import Block, blocks, tabs

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "INVARIANTS.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

TESTED = {
    ("README.md", "sh"): "test_guides_run.py runs 'Two minutes'; the others install, and start make or a server",
    ("README.md", "python"): "test_guides_run.py",
    ("README.md", "text"): "test_guides_run.py, tests/test_demo.py",
    ("docs/coming-from.md", "sql"): "test_sql_pairs.py",
    ("docs/errors.md", "text"): "test_examples.py",
    ("docs/guide/cluster.md", "sh"): "test_cluster_page.py",
    ("docs/guide/cluster.md", "python"): "test_cluster_page.py",
    ("docs/guide/policies.md", "yaml"): "test_policy_page.py",
    ("docs/guide/server.md", "sh"): "test_server_page.py",
    ("docs/reference/cli.md", "text"): "test_reference_pages.py: written by a script",
    ("docs/reference/ir.md", "json"): "test_examples.py",
    ("docs/reference/ir.md", "text"): "test_examples.py",
    ("docs/reference/python.md", "python"): "test_reference_pages.py: written by a script",
}
"""Languages of a page that another test runs or compares."""

NOT_RUN = {
    ("CONTRIBUTING.md", "sh"): (1, "the targets of make"),
    ("docs/benchmarks.md", "sh"): (3, "start benchmarks"),
    ("docs/coming-from.md", "cypher"): (7, "queries of Neo4j and Kuzu"),
    ("docs/coming-from.md", "graphql"): (3, "queries of a GraphQL server"),
    ("docs/coming-from.md", "python"): (4, "programs with lancedb"),
    ("docs/guide/client.md", "python"): (1, "needs a server with a name"),
    ("docs/guide/client.md", "sh"): (1, "installs"),
    ("docs/guide/export.md", "sh"): (1, "needs a bucket"),
    ("docs/guide/following-changes.md", "sh"): (1, "a loop without an end"),
    ("docs/guide/importing.md", "sh"): (1, "needs an export of Kuzu; tests/importers imports one"),
    ("docs/guide/pipelines.md", "python"): (1, "needs a bucket"),
    ("docs/guide/pipelines.md", "sh"): (1, "needs a cluster"),
    ("docs/guide/pipelines.md", "yaml"): (2, "parts of a file; tests/pipeline runs such files"),
    ("docs/guide/policies.md", "sh"): (1, "the file of denials depends on the machine"),
    ("docs/guide/queries.md", "sh"): (1, "commands on files of the reader"),
    ("docs/guide/remote.md", "sh"): (1, "installs"),
    ("docs/guide/results.md", "text"): (1, "output on a terminal"),
    ("docs/guide/server.md", "json"): (1, "the shape of an error, with a random id"),
    ("docs/guide/server.md", "nginx"): (1, "configures another program"),
    ("docs/guide/server.md", "text"): (1, "the head of a query with dots for its body"),
    ("docs/guide/server.md", "typescript"): (1, "needs Node.js"),
    ("docs/guide/spark.md", "sh"): (1, "installs"),
    ("docs/reference/query-grammar.md", "peg"): (1, "a grammar"),
    ("docs/reference/schema-grammar.md", "peg"): (1, "a grammar"),
    ("docs/reference/storage-layout.md", "text"): (1, "a listing of a directory"),
    ("docs/start.md", "sh"): (1, "installs"),
}
"""Languages of a page that no test runs: the number of blocks, and the reason."""

RUN = ("console", "pycon", "omnigraph")


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read(page: Path) -> list[Block]:
    return list(blocks(page.read_text(encoding="utf-8")))


def test_blocks_that_no_test_runs_are_listed_with_a_reason() -> None:
    compiled = {(block.page, block.line) for language in ("pg", "gq") for block in texts(language)}
    found: Counter[tuple[str, str]] = Counter()
    for page in DOCUMENTS:
        name = page_name(page)
        found.update(
            (name, block.language)
            for block in read(page)
            if block.language not in RUN and not block.file and (name, block.line) not in compiled
        )
    listed = {key: count for key, (count, _) in NOT_RUN.items()}
    assert {key: count for key, count in found.items() if key not in TESTED} == listed
    assert found.keys() >= TESTED.keys()


def test_every_page_with_examples_runs_with_each_of_its_tabs() -> None:
    run = {(str(parameters.values[0]), parameters.values[1]) for parameters in PAGES}
    for page in DOCUMENTS:
        found = read(page)
        if (
            not any(block.language in RUN for block in found)
            or str(page.relative_to(ROOT / page_root(page))) in ELSEWHERE
        ):
            continue
        assert {(str(page), tab) for tab in tabs(found)} <= run, page


def page_root(page: Path) -> str:
    return "docs" if page.is_relative_to(ROOT / "docs") else "."


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if read(page)], ids=page_name)
def test_every_block_of_a_page_is_read_as_one(page: Path) -> None:
    """A fence without a language, an example without a prompt, and a file that nothing uses would be skipped."""
    found = read(page)
    fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(found)
    for block in found:
        if block.language == "console":
            assert block.text.startswith("$ "), block
        elif block.language == "omnigraph":
            assert block.text.startswith("$ omnigraph shell "), block
        elif block.language == "pycon":
            assert doctest.DocTestParser().get_examples(block.text), block
            assert block.text.startswith(">>> "), block
        if block.file and block.file not in FOUND_BY_COMMANDS:
            names = {block.file, Path(block.file).name, *(str(each) for each in Path(block.file).parents[:-1])}
            others = "".join(other.text for other in found if other is not block)
            assert any(name in others for name in names), f"{block.file} is not used"


FOUND_BY_COMMANDS = {
    "omnigraph.toml",  # every command reads it
    "ships-monday.csv",  # the pipeline names it with a variable
}
