"""Every write of the example runs against a library, and does what its description says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import ConstraintError, KeyConflictError
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC
from omnigraph.write.mutation import MutationReceipt
from papers import TYPES, generate

ME, YOU = "0000-0001-0000-0001", "0000-0001-0000-0002"
NEW = "10.5555/new.1"


@pytest.fixture(scope="module")
def library(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """One library for all steps of the test, which run in order."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FSYNC.name, "0")
        with omnigraph.init(tmp_path_factory.mktemp("papers") / "graph", folder / "schema.pg") as graph:
            batches: dict[str, list[pa.RecordBatch]] = {}
            for name, batch in generate(60, seed=7):
                batches.setdefault(name, []).append(batch)
            graph.load(
                {name: pa.Table.from_batches(made, TYPES[name]) for name, made in batches.items()}, mode="append"
            )
            yield graph


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return (folder / "mutations.gq").read_text(encoding="utf-8")


def entity(graph: Graph, type_name: str, entity_id: str) -> dict[str, Any]:
    found = graph.entity(type_name, entity_id)
    assert found is not None
    return found


def some(graph: Graph, type_name: str) -> dict[str, Any]:
    """The entity of a type with the smallest id."""
    rows = graph.snapshot().scan(f"node:{type_name}", columns=["id"])["id"].to_pylist()
    return entity(graph, type_name, min(rows))


def test_every_mutation_of_the_example_runs(library: Graph, text: str) -> None:
    ran: set[str] = set()

    def run(query: str, **params: object) -> tuple[int, int]:
        ran.add(query)
        done: MutationReceipt = library.mutate(text, params, name=query)
        return done.affected_nodes, done.affected_edges

    school, topic, venue = (some(library, name)["id"] for name in ("Institution", "Topic", "Venue"))
    old = some(library, "Paper")["id"]

    author = {"orcid": ME, "name": "Ada", "languages": ["en", "fr"]}
    assert run("register_author", **author, institution=school, since="2020-01-31") == (1, 1)
    with pytest.raises(KeyConflictError):
        run("register_author", **author, institution=school, since="2021-01-31")
    assert entity(library, "Author", ME)["active"] is True
    assert run("save_author", **author, email="ada@example.org") == (1, 0)
    assert run("set_email", **author, email=None) == (1, 0)
    assert run("set_email", orcid=YOU, name="Bo", languages=["zh"], email="bo@example.org") == (1, 0)
    assert entity(library, "Author", ME)["email"] is None

    abstract = "entangled qubits and gate fidelity"
    paper = {"doi": NEW, "title": "Gates", "abstract": abstract, "author": ME, "topic": topic}
    assert run("submit_paper", **paper) == (1, 2)
    written = entity(library, "Paper", NEW)
    assert (written["status"], written["kind"], written["downloads"]) == ("submitted", "article", 0)
    assert len(written["abstract_vec"]) == 64
    with pytest.raises(ConstraintError, match="not found in Topic"):
        run("submit_paper", **paper | {"topic": "no-such-topic"})

    for _ in range(2):
        assert run("add_citation", **{"from": NEW, "to": old}) == (0, 1)
    assert entity(library, "Cites", f'["{NEW}","{old}"]')["intent"] == "background"
    assert run("add_topic", slug="quantum-gates", name="Gates", parent=topic) == (1, 1)
    assert run("add_review", reviewer=YOU, paper=NEW, verdict="accept", confidence=None) == (0, 1)
    assert entity(library, "Reviewed", f'["{YOU}","{NEW}","1"]')["verdict"] == "accept"
    assert run("add_note", kind="question", body="why gates?", pages=[1, 2]) == (1, 0)

    assert run("publish", doi=NEW, on="2026-03-14", venue=venue) == (1, 1)
    assert run("attach_pdf", doi=NEW, pdf="base64:JVBERg==", pages=12) == (1, 0)
    assert run("set_vector", doi=NEW, vector=[1.0] + [0.0] * 63) == (1, 0)
    written = entity(library, "Paper", NEW)
    assert (written["status"], written["pages"], written["abstract"]) == ("published", 12, abstract)
    assert written["abstract_vec"] == [1.0] + [0.0] * 63
    assert written["pdf"].size == 4
    assert run("open_up", before="2026-03-15")[0] >= 1
    assert run("open_up", before="2026-03-15") == (0, 0)
    written = entity(library, "Paper", NEW)
    assert (written["open_access"], written["pdf"].size) == (True, 4)

    assert run("leave_institution", orcid=ME, ror=school, on="2024-01-31") == (0, 1)
    assert run("leave_institution", orcid=ME, ror=school, on="2024-02-28") == (0, 0)
    assert run("resolve_notes", kind="question", words="why gates?") == (1, 0)
    assert run("clear_old_notes", before="2000-01-01T00:00:00Z") == (0, 0)
    assert run("clear_old_notes", before="2100-01-01T00:00:00Z")[0] >= 1
    assert run("drop_uses", paper=old, purposes=["analysis", "evaluation", "training"])[0] == 0
    assert run("drop_stale_drafts", before="1990-01-01T00:00:00Z") == (0, 0)
    with pytest.raises(ConstraintError, match=f"Wrote @card_in: '{NEW}'"):
        run("forget_author", orcid=ME)  # the only author of a paper
    assert run("forget_author", orcid=YOU) == (1, 1)

    assert ran == set(re.findall(r"^query (\w+)", text, re.MULTILINE))
