"""Inputs with many wrong names are refused quickly: suggestions are computed only for problems that are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.patience import at_most

import omnigraph
from omnigraph.errors import BadRowsError, InputError
from omnigraph.graph import Graph
from omnigraph.lang import names
from omnigraph.write.input import envelopes
from omnigraph.write.rows.problems import SHOWN

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
MANY = 2_000
INPUTS = {
    "node types": [f'{{"type": "Person{n:04}", "data": {{}}}}' for n in range(MANY)],
    "edge types": [f'{{"edge": "Knows{n:04}", "from": "a", "to": "b"}}' for n in range(MANY)],
    "properties": [f'{{"type": "Person", "data": {{"name": "x{n}", "name{n:04}": 1}}}}' for n in range(MANY)],
    "properties of a record": [
        '{"type": "Person", "data": {"name": "x", ' + ", ".join(f'"name{n:04}": 1' for n in range(MANY)) + "}}"
    ],
}
COLUMNS = ",".join(["name", *(f"name{n:04}" for n in range(MANY))])


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        yield made


@pytest.fixture
def suggested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names for which a suggestion was computed."""
    found: list[str] = []

    def did_you_mean(written: str, known: Iterable[str]) -> str | None:
        known = list(known)
        if known:
            found.append(written)
        return names.did_you_mean(written, known)

    monkeypatch.setattr(envelopes, "did_you_mean", did_you_mean)
    return found


def refused(graph: Graph, path: Path, text: str) -> BadRowsError:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadRowsError) as error:
        graph.load(path, mode="append")
    assert error.value.total == MANY
    return error.value


@pytest.mark.parametrize("lines", INPUTS.values(), ids=INPUTS)
def test_suggestions_are_computed_for_shown_problems(
    lines: list[str], graph: Graph, tmp_path: Path, suggested: list[str]
) -> None:
    error = refused(graph, tmp_path / "rows.ndjson", "\n".join(lines))
    assert len(error.problems) == SHOWN
    assert all("did you mean '" in problem.message for problem in error.problems)
    assert len(suggested) == SHOWN


def test_suggestions_for_columns_are_computed_for_shown_problems(
    graph: Graph, tmp_path: Path, suggested: list[str]
) -> None:
    error = refused(graph, tmp_path / "Person.csv", f"{COLUMNS}\n{'1,' * MANY}1\n")
    assert all("did you mean 'name'?" in problem.message for problem in error.problems)
    assert len(suggested) == SHOWN


def test_problems_with_and_without_a_suggestion_are_counted_together(graph: Graph, tmp_path: Path) -> None:
    shown = refused(graph, tmp_path / "rows.ndjson", "\n".join(INPUTS["node types"])).render()
    assert shown.startswith(
        "rows.ndjson, line 1: input: there is no node type 'Person0000'; did you mean 'Person'? (and 1,999 more of this"
    )


def test_a_name_that_occurs_twice_is_found_quickly_among_many(graph: Graph, tmp_path: Path) -> None:
    many = [f"p{n}" for n in range(40_000)]
    record = ", ".join(f'"{name}": 1' for name in [*many, "twice", "twice"])
    (tmp_path / "rows.ndjson").write_text(f'{{"type": "Person", "data": {{{record}}}}}', encoding="utf-8")
    (tmp_path / "Person.csv").write_text(",".join([*many, "twice", "twice"]), encoding="utf-8")
    table = pa.table([pa.array([1])] * 20_002, names=[*many[:20_000], "twice", "twice"])
    for source in (tmp_path / "rows.ndjson", tmp_path / "Person.csv", {"Person": table}):
        with at_most(200), pytest.raises(InputError, match=r"'twice'.* twice"):
            graph.load(source, mode="append")
