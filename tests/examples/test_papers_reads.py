"""Every read of the example runs against a library, and gives the rows that its description promises."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.graph import Graph
from omnigraph.read.result.result import Result
from omnigraph.settings import FSYNC
from papers import TYPES, embed, generate

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Library:
    """A graph, its generated rows, and its queries."""

    graph: Graph
    rows: Mapping[str, Rows]
    text: str

    def ask(self, query: str, **params: object) -> Result:
        return self.graph.query(self.text, params, name=query)

    def _most(self, edge: str, end: str) -> str:
        """The node with the most edges of a type at one end."""
        return str(Counter(row[end] for row in self.rows[edge]).most_common(1)[0][0])

    @property
    def author(self) -> str:
        """The author with the most papers."""
        return self._most("Wrote", "from")

    @property
    def cited(self) -> str:
        """The paper that is cited most."""
        return self._most("Cites", "to")

    @property
    def citing(self) -> str:
        """The paper with the most citations of others."""
        return self._most("Cites", "from")


@pytest.fixture(scope="module")
def library(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FSYNC.name, "0")
        with omnigraph.init(tmp_path_factory.mktemp("papers") / "graph", folder / "schema.pg") as graph:
            batches: dict[str, list[pa.RecordBatch]] = {}
            for name, batch in generate(300, seed=7):
                batches.setdefault(name, []).append(batch)
            tables = {name: pa.Table.from_batches(made, TYPES[name]) for name, made in batches.items()}
            graph.load(tables, mode="append")
            rows = {name: table.to_pylist() for name, table in tables.items()}
            yield Library(graph, rows, (folder / "queries.gq").read_text(encoding="utf-8"))


def parameters(library: Library) -> dict[str, dict[str, object]]:
    """The parameters of each query, chosen so that it returns rows."""
    rows = library.rows
    venue = next(
        v for v in rows["Venue"] if f'["{v["series"]}","{v["year"]}"]' in {e["to"] for e in rows["PublishedIn"]}
    )
    place = next(i for i in rows["Institution"] if i["latitude"] is not None)
    reviewed = Counter(edge["from"] for edge in rows["Reviewed"])
    busy_years = Counter(edge["when"].year for edge in rows["Reviewed"] if reviewed[edge["from"]] > 1)
    at_venue = {"series": venue["series"], "year": venue["year"]}
    reviewed_papers = {edge["to"] for edge in rows["Reviewed"]}
    where = next(e["to"] for e in rows["PublishedIn"] if e["from"] in reviewed_papers)
    series, year = re.findall(r'"([^"]*)"', where)
    return {
        "paper": {"doi": library.citing},
        "find_by_name": {"prefix": "A"},
        "find_author": {"text": rows["Author"][0]["name"].split()[0]},
        "catalogue": {"kinds": ["article", "survey"]},
        "tagged": {
            "keyword": next(k for p in rows["Paper"] if p["status"] == "published" for k in p["keywords"] or [])
        },
        "speakers": {"language": "en", "country": place["country"]},
        "recently_recorded": {"days": 36500},
        "papers_of": {"orcid": library.author},
        "byline": {"doi": library.citing},
        "coauthors": {"orcid": library.author},
        "academic_family": {"orcid": rows["Advises"][0]["from"]},
        "descendants": {"orcid": rows["Advises"][0]["from"]},
        "open_science_authors": {},
        "conflicts_of_interest": {"since": "1990-01-01T00:00:00Z"},
        "review_load": {"year": busy_years.most_common(1)[0][0]},
        "turnaround": {"series": series, "year": int(year)},
        "cited_by": {"doi": library.cited},
        "influence": {"doi": library.cited},
        "ancestry": {"doi": library.citing},
        "second_hand": {"doi": library.citing},
        "citation_path": {"from_doi": library.citing, "to_doi": library.cited},
        "nearby": {"doi": library.citing},
        "self_citations": {"orcid": library.author},
        "builds_on": {"doi": library.citing},
        "work_family": {"doi": library.citing},
        "surroundings": {"doi": library.citing},
        "uncited": {"before": "2030-01-01"},
        "programme": at_venue,
        "venue_statistics": {"from_year": 1990},
        "papers_per_year": {"slug": rows["Topic"][0]["slug"]},
        "institution_output": {"country": place["country"]},
        "nearby_institutions": {"latitude": place["latitude"], "longitude": place["longitude"]},
        "dataset_users": {"accession": int(rows["Uses"][0]["to"])},
        "idle_datasets": {},
        "open_questions": {},
        "search_papers": {"text": "schema migration"},
        "exact_phrase": {"phrase": "schema migration"},
        "similar_papers": {"text": "schema migration"},
        "nearest_to_vector": {"vector": embed(["schema migration"])[0], "topic": rows["About"][0]["to"]},
        "recommend": {"text": "schema migration", "orcid": library.author},
        "experts": {"text": "migration"},
        "library_size": {},
        "popular_topics": {},
    }


def test_every_read_of_the_example_gives_rows(library: Library) -> None:
    asked = parameters(library)
    assert list(asked) == re.findall(r"^query (\w+)", library.text, re.MULTILINE)
    empty = [name for name, params in asked.items() if len(library.ask(name, **params)) == 0]
    assert empty == []


def test_an_author_has_the_papers_that_they_wrote(library: Library) -> None:
    papers = {paper["doi"]: paper for paper in library.rows["Paper"]}
    wrote = [edge for edge in library.rows["Wrote"] if edge["from"] == library.author]
    expected = sorted(
        ((papers[edge["to"]]["published"], edge["to"], edge["position"]) for edge in wrote),
        key=lambda row: (row[0] is None, -row[0].toordinal() if row[0] else 0, row[1]),
    )
    found = library.ask("papers_of", orcid=library.author)
    assert [(row["p.published"], row["p.doi"], row["position"]) for row in found] == expected


def test_coauthors_are_counted_by_papers(library: Library) -> None:
    by_paper: dict[str, set[str]] = {}
    for edge in library.rows["Wrote"]:
        by_paper.setdefault(edge["to"], set()).add(edge["from"])
    together = Counter(other for byline in by_paper.values() if library.author in byline for other in byline)
    del together[library.author]
    found = library.ask("coauthors", orcid=library.author, least=1)
    assert {row["orcid"]: row["papers"] for row in found} == dict(together)


def test_second_hand_citations_are_exactly_two_hops_away(library: Library) -> None:
    cites: dict[str, set[str]] = {}
    for edge in library.rows["Cites"]:
        cites.setdefault(edge["from"], set()).add(edge["to"])
    near = cites[library.citing]
    expected = {far for paper in near for far in cites.get(paper, ())} - near - {library.citing}
    found = library.ask("second_hand", doi=library.citing)
    assert [row["q.doi"] for row in found] == sorted(expected)


def test_a_search_stays_within_the_match(library: Library) -> None:
    (topic,) = {library.rows["About"][0]["to"]}
    inside = {edge["from"] for edge in library.rows["About"] if edge["to"] == topic}
    found = library.ask("nearest_to_vector", vector=embed(["schema migration"])[0], topic=topic)
    assert len(found) == min(10, len(inside))
    assert {row["p.doi"] for row in found} <= inside
