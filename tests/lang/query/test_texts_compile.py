"""Whole files from the specification and from users compile to the expected IR."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lang.fixtures import ROOT, compare

from omnigraph.lang.query import compile_queries, format_queries, lint_queries
from omnigraph.lang.query.ir import fingerprint, render
from omnigraph.lang.schema import Catalog, compile_schema

TEXTS = sorted([*ROOT.glob("spec/*.gq"), *ROOT.glob("in_the_wild/*.gq")])


def _catalog(path: Path) -> Catalog:
    schema = path.with_suffix(".pg")
    return compile_schema(schema.read_bytes(), schema.name)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_files_compile_to_the_expected_ir(path: Path) -> None:
    queries = compile_queries(path.read_bytes(), _catalog(path), path.name)
    compare(path.with_suffix(".ir.expected"), "\n".join(render(query) for query in queries.values()))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_formatting_keeps_the_meaning(path: Path) -> None:
    catalog, text = _catalog(path), path.read_text(encoding="utf-8")
    before = {name: fingerprint(query) for name, query in compile_queries(text, catalog).items()}
    after = {name: fingerprint(query) for name, query in compile_queries(format_queries(text), catalog).items()}
    assert before == after


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_lint_describes_every_query(path: Path) -> None:
    report = lint_queries(path.read_bytes(), _catalog(path), path.name)
    assert report.status == "ok"
    assert all(result.operation is not None for result in report.results)
