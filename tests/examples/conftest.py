"""The generated example library for the tests."""

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.lang.schema import Catalog, compile_schema
from papers import TYPES, generate

PAPERS = 2_000
FOLDER = Path(__file__).parents[2] / "examples" / "papers"


@pytest.fixture(scope="session")
def folder() -> Path:
    """The directory of the example."""
    return FOLDER


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return compile_schema((FOLDER / "schema.pg").read_text(encoding="utf-8"), "schema.pg")


@pytest.fixture(scope="session")
def tables() -> dict[str, pa.Table]:
    """A whole library, one table per type."""
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in TYPES}
    for name, batch in generate(PAPERS, seed=7, batch_rows=700):
        batches[name].append(batch)
    return {name: pa.Table.from_batches(made, TYPES[name]) for name, made in batches.items()}
