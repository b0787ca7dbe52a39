"""Text filters: their matches, at every position in a query."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.read.searching import (
    BETWEEN,
    WORDS,
    has_all,
    has_any,
    has_nearly,
    has_phrase,
    library,
    read,
    rows_of,
)

from omnigraph.errors import ParameterError
from omnigraph.graph import Graph
from omnigraph.lang.query import ir

PLAIN = ir.Analyzer(stem=False, stop_words=False)
QUERIES = (
    *WORDS,
    "quick fox",
    "state of the art",
    "state art",
    "graphs of engines",
    "the",
    "of the",
    "",
    "naïve CAFÉ",
    "strasse",
    "graph graph",
    "nothing at all",
    "fox graph",
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with library(tmp_path_factory.mktemp("filters"), docs=120) as graph:
        yield graph


def slugs(rows: list[dict[str, object]]) -> list[str]:
    return sorted(str(row["slug"]) for row in rows)


@pytest.mark.parametrize("query", QUERIES)
def test_each_filter_agrees_with_its_definition(graph: Graph, query: str) -> None:
    docs = rows_of(graph, "Doc")
    for condition, expected in (
        ("search($d.text, $q)", [s for s, d in docs.items() if has_any(d["text"], query)]),
        ("search($d.text, $q, all=true)", [s for s, d in docs.items() if has_all(d["text"], query)]),
        ("match_text($d.text, $q)", [s for s, d in docs.items() if has_phrase(d["text"], query)]),
        ("search($d.title, $q)", [s for s, d in docs.items() if has_any(d["title"], query, PLAIN)]),
        ("match_text($d.title, $q)", [s for s, d in docs.items() if has_phrase(d["title"], query, PLAIN)]),
        *(
            (f"fuzzy($d.text, $q, {edits})", [s for s, d in docs.items() if has_nearly(d["text"], query, edits)])
            for edits in range(3)
        ),
    ):
        found = read(graph, f"($q: String) match {{ $d: Doc {condition} }} return {{ $d.slug as slug }}", {"q": query})
        assert slugs(found) == expected, condition


def test_the_documents_contain_the_searched_phrases(graph: Graph) -> None:
    docs = rows_of(graph, "Doc").values()
    assert 0 < sum(has_phrase(doc["text"], "state art") for doc in docs) < len(docs)
    assert any(has_phrase(doc["text"], "graphs of engines") for doc in docs)
    assert any("\n" in (doc["text"] or "") for doc in docs)
    assert len(BETWEEN) > 1


@pytest.mark.parametrize("typo", ["databse", "dtabase", "databasee", "databsae", "Databaze", "engnie", "runing"])
def test_fuzzy_finds_ordinary_typos(graph: Graph, typo: str) -> None:
    wanted = {"e": "engine", "r": "running"}.get(typo[0], "database")
    meant = read(graph, f'match {{ $d: Doc fuzzy($d.text, "{wanted}", 0) }} return {{ $d.slug as slug }}')
    found = read(graph, f'match {{ $d: Doc fuzzy($d.text, "{typo}") }} return {{ $d.slug as slug }}')
    assert meant
    assert {row["slug"] for row in meant} <= {row["slug"] for row in found}


def test_the_edit_distance_may_be_a_parameter(graph: Graph) -> None:
    text = '($n: I64) match { $d: Doc fuzzy($d.text, "foks", $n) } return { $d.slug as slug }'
    counts = [len(read(graph, text, {"n": n})) for n in range(3)]
    assert counts[0] == counts[1] == 0 < counts[2]
    with pytest.raises(ParameterError) as caught:
        read(graph, text, {"n": 3})
    assert caught.value.parameter == "n"


# Positions of filters


def test_h4_a_filter_on_a_traversal_variable_applies(graph: Graph) -> None:
    docs = rows_of(graph, "Doc")
    every = read(graph, 'match { $t: Topic { slug: "t1" } $d about $t } return { $d.slug as slug }')
    found = read(
        graph, 'match { $t: Topic { slug: "t1" } $d about $t search($d.text, "graph") } return { $d.slug as slug }'
    )
    assert slugs(found) == slugs([row for row in every if has_any(docs[row["slug"]]["text"], "graph")])
    assert 0 < len(found) < len(every)


def test_h5_all_filters_on_one_variable_apply(graph: Graph) -> None:
    docs = rows_of(graph, "Doc")
    found = read(
        graph,
        'match { $d: Doc search($d.text, "graph") search($d.text, "engine") search($d.title, "fox quick run") }'
        ' return { $d.slug as slug } order { bm25($d.text, "join") }',
    )
    expected = [
        slug
        for slug, doc in docs.items()
        if has_any(doc["text"], "graph")
        and has_any(doc["text"], "engine")
        and has_any(doc["title"], "fox quick run", PLAIN)
        and has_any(doc["text"], "join")
    ]
    assert slugs(found) == expected
    assert expected


@pytest.mark.parametrize("condition", ["search($d.text, $q)", "match_text($d.text, $q)", "fuzzy($d.text, $q, 1)"])
def test_h5_a_null_query_matches_nothing(graph: Graph, condition: str) -> None:
    head = "($q: String?)"
    assert read(graph, f"{head} match {{ $d: Doc {condition} }} return {{ $d.slug as slug }}", {"q": None}) == []
    every = read(graph, f"{head} match {{ $d: Doc not {condition} }} return {{ $d.slug as slug }}", {"q": None})
    assert slugs(every) == list(rows_of(graph, "Doc"))


def test_h7_filters_inside_not_apply(graph: Graph) -> None:
    docs = rows_of(graph, "Doc")
    cited = {
        (row["a"], row["b"])
        for row in read(graph, "match { $a: Doc $a cites $b } return { $a.slug as a, $b.slug as b }")
    }
    own = read(graph, 'match { $d: Doc not { search($d.text, "graph") } } return { $d.slug as slug }')
    assert slugs(own) == [slug for slug, doc in docs.items() if not has_any(doc["text"], "graph")]
    others = read(
        graph, 'match { $d: Doc not { $d cites $other search($other.text, "graph") } } return { $d.slug as slug }'
    )
    bad = {a for a, b in cited if has_any(docs[b]["text"], "graph")}
    assert slugs(others) == [slug for slug in docs if slug not in bad]


def test_filters_work_in_boolean_expressions(graph: Graph) -> None:
    docs = rows_of(graph, "Doc")
    found = read(
        graph,
        'match { $d: Doc not (search($d.text, "graph") or match_text($d.text, "quick fox")) and'
        ' ($d.year = 2001 or search($d.title, "cost")) } return { $d.slug as slug }',
    )
    assert slugs(found) == [
        slug
        for slug, doc in docs.items()
        if not (has_any(doc["text"], "graph") or has_phrase(doc["text"], "quick fox"))
        and (doc["year"] == 2001 or has_any(doc["title"], "cost", PLAIN))
    ]
    assert found


def test_filters_on_two_variables_can_be_combined(graph: Graph) -> None:
    docs = rows_of(graph, "Doc")
    cited = read(graph, "match { $a: Doc $a cites $b } return { $a.slug as a, $b.slug as b }")
    found = read(
        graph,
        'match { $a: Doc $a cites $b search($a.text, "graph") or search($b.text, "engine") }'
        " return { $a.slug as a, $b.slug as b }",
    )
    expected = [
        row for row in cited if has_any(docs[row["a"]]["text"], "graph") or has_any(docs[row["b"]]["text"], "engine")
    ]
    key = lambda row: (row["a"], row["b"])  # noqa: E731
    assert sorted(found, key=key) == sorted(expected, key=key)


def test_filters_in_optional_blocks_leave_nulls(graph: Graph) -> None:
    docs = rows_of(graph, "Doc")
    found = read(
        graph,
        'match { $d: Doc optional { $d cites $o search($o.text, "graph") } } return { $d.slug as d, $o.slug as o }',
    )
    cited = read(graph, "match { $a: Doc $a cites $b } return { $a.slug as a, $b.slug as b }")
    pairs = {(row["a"], row["b"]) for row in cited if has_any(docs[row["b"]]["text"], "graph")}
    alone = {(slug, None) for slug in docs if slug not in {a for a, _ in pairs}}
    assert {(row["d"], row["o"]) for row in found} == pairs | alone
    # A null variable has no text.
    without = read(
        graph,
        'match { $d: Doc optional { $d cites $o } not search($o.text, "graph") } return { $d.slug as d, $o.slug as o }',
    )
    assert None in {row["o"] for row in without}
    assert all(row["o"] is None or not has_any(docs[row["o"]]["text"], "graph") for row in without)


def test_filters_search_all_types_of_an_interface(graph: Graph) -> None:
    titles = [("Doc", slug, doc["title"]) for slug, doc in rows_of(graph, "Doc").items()]
    titles += [("Note", slug, note["title"]) for slug, note in rows_of(graph, "Note").items()]
    found = read(graph, 'match { $w: Written search($w.title, "fox") } return { type($w) as kind, $w.id as id }')
    expected = [(kind, slug) for kind, slug, title in titles if has_any(title, "fox", PLAIN)]
    assert sorted((row["kind"], row["id"]) for row in found) == sorted(expected)
    assert ("Note", "d001") in expected


def test_counts_respect_filters(graph: Graph) -> None:
    docs = rows_of(graph, "Doc")
    (row,) = read(graph, 'match { $d: Doc search($d.text, "graph") } return { count($d) as n }')
    assert row["n"] == sum(has_any(doc["text"], "graph") for doc in docs.values())
