"""Ranks: nearest, bm25 and rrf as orders and as columns, over exactly the rows of the match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.read.searching import bm25, distances, fused, has_any, library, read, rows_of

import omnigraph
from omnigraph.embed import Purpose
from omnigraph.embed.mock import MockEmbedder
from omnigraph.errors import EmbeddingError, EmbeddingModelError, ParameterError
from omnigraph.graph import Graph
from omnigraph.lang.query import ir

PLAIN = ir.Analyzer(stem=False, stop_words=False)
METRICS = {"near": "l2", "angle": "cosine", "inner": "dot"}
VECTORS = ([0.5, -1.0, 0.25], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
TEXTS = ("graph engine", "the quick fox", "state of the art naive", "join join cost", "nothing")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with library(tmp_path_factory.mktemp("ranks"), docs=120) as graph:
        yield graph


def column(graph: Graph, name: str, type_name: str = "Doc") -> dict[str, Any]:
    return {slug: row[name] for slug, row in rows_of(graph, type_name).items()}


def by_distance(found: dict[str, float]) -> list[str]:
    return sorted(found, key=lambda slug: (found[slug], slug))


def by_relevance(found: dict[str, float]) -> list[str]:
    return sorted(found, key=lambda slug: (-found[slug], slug))


def slugs(rows: Sequence[dict[str, Any]], name: str = "slug") -> list[Any]:
    return [row[name] for row in rows]


# One rank


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("name", METRICS)
def test_nearest_orders_by_distance(graph: Graph, name: str, vector: list[float]) -> None:
    expected = distances(column(graph, name), vector, METRICS[name])
    for limit in (1, 7, 1000):
        found = read(
            graph,
            f"($v: Vector(3)) match {{ $d: Doc }} return {{ $d.slug as slug, nearest($d.{name}, $v) as far }}"
            f" order {{ nearest($d.{name}, $v) }} limit {limit}",
            {"v": vector},
        )
        assert slugs(found) == by_distance(expected)[:limit]
        assert slugs(found, "far") == pytest.approx([expected[slug] for slug in slugs(found)])


def test_entities_without_a_vector_are_not_found(graph: Graph) -> None:
    vectors = column(graph, "near")
    found = read(
        graph, "match { $d: Doc } return { $d.slug as slug } order { nearest($d.near, [1.0, 0.0, 0.0]) } limit 1000"
    )
    assert set(slugs(found)) == {slug for slug, vector in vectors.items() if vector is not None}
    assert None in vectors.values()


@pytest.mark.parametrize("text", TEXTS)
def test_bm25_orders_by_relevance(graph: Graph, text: str) -> None:
    expected = bm25(column(graph, "text"), text)
    for limit in ("", "limit 5", "limit 5 offset 3"):
        found = read(
            graph,
            "($q: String) match { $d: Doc } return { $d.slug as slug, bm25($d.text, $q) as score }"
            f" order {{ bm25($d.text, $q) }} {limit}",
            {"q": text},
        )
        start, end = {"": (0, None), "limit 5": (0, 5)}.get(limit, (3, 8))
        assert slugs(found) == by_relevance(expected)[start:end]
        assert slugs(found, "score") == pytest.approx([expected[slug] for slug in slugs(found)])


def test_bm25_document_frequency_does_not_depend_on_the_match(graph: Graph) -> None:
    everywhere = bm25(column(graph, "text"), "graph engine")
    found = read(
        graph,
        'match { $d: Doc { year: 2001 } } return { $d.slug as slug, bm25($d.text, "graph engine") as score }'
        " order { score desc, slug }",
    )
    years = column(graph, "year")
    assert {row["slug"]: row["score"] for row in found} == pytest.approx(
        {slug: everywhere.get(slug) for slug in years if years[slug] == 2001}
    )


def test_bm25_document_frequency_covers_all_types_of_a_variable(graph: Graph) -> None:
    titles = {("Doc", slug): title for slug, title in column(graph, "title").items()}
    titles |= {("Note", slug): title for slug, title in column(graph, "title", "Note").items()}
    expected = bm25({f"{slug} {kind}": title for (kind, slug), title in titles.items()}, "fox cost", PLAIN)
    found = read(
        graph,
        'match { $w: Written } return { type($w) as kind, $w.id as id, bm25($w.title, "fox cost") as score }'
        ' order { bm25($w.title, "fox cost") }',
    )
    assert [f"{row['id']} {row['kind']}" for row in found] == by_relevance(expected)
    assert slugs(found, "score") == pytest.approx([expected[name] for name in by_relevance(expected)])


@pytest.mark.parametrize(
    "order", ["nearest($d.near, $v)", "bm25($d.text, $q)", "rrf(nearest($d.near, $v), bm25($d.text, $q))"]
)
def test_a_null_query_ranks_nothing(graph: Graph, order: str) -> None:
    head = "($v: Vector(3)?, $q: String?)"
    assert read(graph, f"{head} match {{ $d: Doc }} return {{ $d.slug as slug }} order {{ {order} }} limit 9", {}) == []


# Ranks by alias


def test_order_by_an_alias_keeps_unranked_rows_last(graph: Graph) -> None:
    everything = column(graph, "near")
    expected = distances(everything, [1.0, 0.5, 0.0], "l2")
    text = (
        "match { $d: Doc } return { $d.slug as slug, nearest($d.near, [1.0, 0.5, 0.0]) as far }"
        " order { far, slug desc } limit 1000"
    )
    found = read(graph, text)
    ranked = sorted(expected, reverse=True)
    ranked.sort(key=lambda slug: expected[slug])
    rest = sorted(set(everything) - set(expected), reverse=True)
    assert slugs(found) == ranked + rest
    assert [row["far"] for row in found[len(ranked) :]] == [None] * len(rest)
    few = read(graph, text.replace("limit 1000", "limit 7 offset 2"))
    assert few == found[2:9]


def test_scores_can_be_used_in_expressions(graph: Graph) -> None:
    expected = bm25(column(graph, "text"), "graph")
    found = read(
        graph,
        'match { $d: Doc search($d.text, "graph") } return { $d.slug as slug, bm25($d.text, "graph") as score,'
        " coalesce(score * 2.0, 0.0) as twice } order { twice desc, slug } limit 5",
    )
    assert slugs(found) == by_relevance(expected)[:5]
    assert slugs(found, "twice") == pytest.approx([2 * expected[slug] for slug in slugs(found)])


# Ranks within a match


def test_h4_a_variable_of_a_traversal_is_ranked(graph: Graph) -> None:
    expected = distances(column(graph, "near"), [0.5, 0.5, 0.5], "l2")
    members = read(graph, 'match { $t: Topic { slug: "t2" } $d about $t } return { $d.slug as slug }')
    wanted = {slug: expected[slug] for slug in slugs(members) if slug in expected}
    found = read(
        graph,
        'match { $t: Topic { slug: "t2" } $d about $t } return { $d.slug as slug }'
        " order { nearest($d.near, [0.5, 0.5, 0.5]) } limit 8",
    )
    assert slugs(found) == by_distance(wanted)[:8]
    assert slugs(found) != by_distance(expected)[:8]


def test_h6_a_limit_is_filled_if_enough_rows_match(graph: Graph) -> None:
    """The match excludes most of the overall nearest; the limit is filled with the others."""
    docs = rows_of(graph, "Doc")
    expected = distances({slug: doc["near"] for slug, doc in docs.items()}, [0.0, 0.5, 0.0], "l2")
    cited = read(graph, "match { $a: Doc $a cites $b } return { $a.slug as a, $b.slug as b }")
    left = {
        slug: far
        for slug, far in expected.items()
        if has_any(docs[slug]["text"], "graph")
        and docs[slug]["year"] != 2000
        and docs[slug]["year"] is not None
        and not any(row["a"] == slug and has_any(docs[row["b"]]["text"], "fox") for row in cited)
    }
    found = read(
        graph,
        'match { $d: Doc $d.year > 2000 search($d.text, "graph") not { $d cites $o search($o.text, "fox") } }'
        " return { $d.slug as slug } order { nearest($d.near, [0.0, 0.5, 0.0]) } limit 5",
    )
    assert slugs(found) == by_distance(left)[:5]
    assert len(found) == 5


def test_rows_of_one_entity_are_adjacent(graph: Graph) -> None:
    expected = distances(column(graph, "near"), [1.0, 1.0, 1.0], "l2")
    cited = read(graph, "match { $a: Doc $a cites $b } return { $a.slug as a, $b.slug as b }")
    found = read(
        graph,
        "match { $p: Doc $p cites $other } return { $p.slug as a, $other.slug as b }"
        " order { nearest($p.near, [1.0, 1.0, 1.0]) } limit 20",
    )
    rows = sorted(
        ((expected[row["a"]], row["b"], row["a"]) for row in cited if row["a"] in expected),
    )
    assert [(row["b"], row["a"]) for row in found] == [(b, a) for _, b, a in rows[:20]]


def test_a_rank_orders_a_product(graph: Graph) -> None:
    expected = bm25(column(graph, "text"), "fox")
    found = read(
        graph,
        'match { $a: Topic $d: Doc } return { $a.slug as topic, $d.slug as slug } order { bm25($d.text, "fox") }'
        " limit 10",
    )
    rows = sorted((-expected[slug], topic, slug) for slug in expected for topic in ("t0", "t1", "t2"))
    assert [(row["topic"], row["slug"]) for row in found] == [(topic, slug) for _, topic, slug in rows[:10]]


def test_an_optional_variable_that_found_nothing_has_no_rank(graph: Graph) -> None:
    expected = bm25(column(graph, "text"), "fox")
    found = read(
        graph,
        'match { $d: Doc optional { $d cites $o } } return { $o.slug as o, bm25($o.text, "fox") as score }'
        ' order { bm25($o.text, "fox") }',
    )
    assert {row["o"] for row in found} <= set(expected)
    kept = read(
        graph, 'match { $d: Doc optional { $d cites $o } } return { $o.slug as o, bm25($o.text, "fox") as score }'
    )
    assert any(row["o"] is None and row["score"] is None for row in kept)


# Fusion


@pytest.mark.parametrize("where", ["", "{ year: 2001 }"])
@pytest.mark.parametrize("k", [1, 60])
def test_fusion_adds_reciprocal_ranks(graph: Graph, where: str, k: int) -> None:
    years = column(graph, "year")
    left = {slug for slug in years if not where or years[slug] == 2001}
    near = distances(column(graph, "near"), [1.0, 0.0, 0.5], "l2")
    angle = distances(column(graph, "angle"), [1.0, 0.0, 0.5], "cosine")
    words = bm25(column(graph, "text"), "graph engine")
    arms = [
        ({s: v for s, v in near.items() if s in left}, False, 2.0),
        ({s: v for s, v in words.items() if s in left}, True, 1.5),
        ({s: v for s, v in angle.items() if s in left}, False, 1.0),
    ]
    expected = fused(arms, k)
    rrf = (
        'rrf(nearest($d.near, [1.0, 0.0, 0.5]) * 2.0, bm25($d.text, "graph engine") * 1.5,'
        " nearest($d.angle, [1.0, 0.0, 0.5]), $k)"
    )
    for limit in (3, 1000):
        found = read(
            graph,
            f"($k: I64) match {{ $d: Doc {where} }} return {{ $d.slug as slug, {rrf} as score }}"
            f" order {{ {rrf} }} limit {limit}",
            {"k": k},
        )
        assert slugs(found) == [slug for slug, _ in expected[:limit]]
        assert slugs(found, "score") == pytest.approx([score for _, score in expected[:limit]])
    aliased = read(
        graph,
        f"($k: I64) match {{ $d: Doc {where} }} return {{ $d.slug as slug, {rrf} as score }}"
        " order { score desc, slug } limit 1000",
        {"k": k},
    )
    by_score = sorted(expected, key=lambda pair: (-pair[1], pair[0]))
    assert slugs(aliased)[: len(expected)] == [slug for slug, _ in by_score]


def test_equal_fusion_scores_are_ordered_by_the_first_arm(tmp_path: Path) -> None:
    schema = "node Doc { slug: String @key  a: String  b: String }"
    with omnigraph.init(tmp_path / "ties", schema) as graph:
        # The first document by one arm is the second by the other.
        rows = {"slug": ["x", "y"], "a": ["fox fox", "fox dog"], "b": ["fox dog", "fox fox"]}
        graph.load({"Doc": pa.table(rows)}, mode="append")
        for first, second, expected in (("a", "b", ["x", "y"]), ("b", "a", ["y", "x"])):
            found = read(
                graph,
                f'match {{ $d: Doc }} return {{ $d.slug as slug }} order {{ rrf(bm25($d.{first}, "fox"),'
                f' bm25($d.{second}, "fox")) }} limit 2',
            )
            assert slugs(found) == expected


def test_fusion_ranks_entities_and_not_rows(graph: Graph) -> None:
    """A document that is cited often takes one position in each arm, not many."""
    cited = read(graph, "match { $a: Doc $a cites $b } return { $a.slug as a, $b.slug as b }")
    left = {row["b"] for row in cited}
    near = distances(column(graph, "near"), [1.0, 0.0, 0.5], "l2")
    words = bm25(column(graph, "text"), "graph engine")
    arms = [
        ({s: v for s, v in near.items() if s in left}, False, 1.0),
        ({s: v for s, v in words.items() if s in left}, True, 1.0),
    ]
    places = {slug: place for place, (slug, _) in enumerate(fused(arms, 60))}
    rows = sorted((places[row["b"]], row["a"], row["b"]) for row in cited if row["b"] in places)
    found = read(
        graph,
        "match { $a: Doc $a cites $b } return { $a.slug as a, $b.slug as b }"
        ' order { rrf(nearest($b.near, [1.0, 0.0, 0.5]), bm25($b.text, "graph engine")) } limit 25',
    )
    assert [(row["a"], row["b"]) for row in found] == [(a, b) for _, a, b in rows[:25]]


def test_fusion_ranks_all_types_of_a_variable(graph: Graph) -> None:
    """Nodes with equal scores are ordered by id, then by type."""
    titles = {f"{slug} Doc": title for slug, title in column(graph, "title").items()}
    titles |= {f"{slug} Note": title for slug, title in column(graph, "title", "Note").items()}
    arms = [(bm25(titles, words, PLAIN), True, 1.0) for words in ("fox cost", "the graph")]
    rrf = 'rrf(bm25($w.title, "fox cost"), bm25($w.title, "the graph"))'
    for limit in (4, 1000):
        found = read(
            graph,
            f"match {{ $w: Written }} return {{ type($w) as kind, $w.id as id, {rrf} as score }} order {{ {rrf} }}"
            f" limit {limit}",
        )
        expected = fused(arms, 60)[:limit]
        assert [(f"{row['id']} {row['kind']}", row["score"]) for row in found] == expected


def test_ranks_can_be_combined_with_distinct(graph: Graph) -> None:
    expected = distances(column(graph, "near"), [1.0, 0.0, 0.0], "l2")
    found = read(
        graph,
        "match { $d: Doc $d cites $o } return distinct { $d.slug as slug, nearest($d.near, [1.0, 0.0, 0.0]) as far }"
        " order { far, slug } limit 6",
    )
    citing = {row["slug"] for row in read(graph, "match { $d: Doc $d cites $o } return { $d.slug as slug }")}
    ranked = sorted((expected[slug], slug) for slug in citing if slug in expected)
    assert [(row["far"], row["slug"]) for row in found] == ranked[:6]


def test_k_of_a_fusion_must_be_positive(graph: Graph) -> None:
    text = (
        '($k: I64) match { $d: Doc } return { $d.slug as slug } order { rrf(bm25($d.text, "fox"),'
        ' bm25($d.title, "fox"), $k) } limit 3'
    )
    with pytest.raises(ParameterError) as caught:
        read(graph, text, {"k": 0})
    assert caught.value.parameter == "k"


# Texts as vectors


class _Told:
    """Records its inputs."""

    def __init__(self, name: str = "mock-small") -> None:
        self.name = name
        self.asked: list[tuple[list[str], int, Purpose]] = []

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> Any:
        self.asked.append((list(texts), dimension, purpose))
        return np.array([[3.0, 4.0, 0.0]] * len(texts), np.float32)


NEAR_TEXT = (
    "($q: String?) match { $d: Doc } return { $d.slug as slug, nearest($d.told, $q) as far }"
    " order { nearest($d.told, $q) } limit 9"
)


def test_a_text_is_embedded_once_and_as_a_query(graph: Graph) -> None:
    embedder = _Told()
    found = read(graph, NEAR_TEXT, {"q": "anything"}, embedder=embedder)
    assert embedder.asked == [(["anything"], 3, Purpose.QUERY)]
    expected = distances(column(graph, "told"), [0.6, 0.8, 0.0], "l2")
    assert slugs(found) == by_distance(expected)[:9]


def test_another_model_than_the_recorded_one_is_refused(graph: Graph) -> None:
    with pytest.raises(EmbeddingModelError):
        read(graph, NEAR_TEXT, {"q": "anything"}, embedder=_Told("another"))


def test_a_model_is_refused_even_when_nothing_is_left_to_rank(graph: Graph) -> None:
    nobody = NEAR_TEXT.replace("$d: Doc", '$d: Doc { slug: "nobody" }')
    with pytest.raises(EmbeddingModelError):
        read(graph, nobody, {"q": "anything"}, embedder=_Told("another"))
    assert read(graph, nobody, {"q": "anything"}, embedder=_Told()) == []


def test_any_embedder_is_accepted_without_a_recorded_model(graph: Graph) -> None:
    found = read(graph, NEAR_TEXT.replace("told", "near"), {"q": "x"}, embedder=MockEmbedder())
    assert len(found) == 9


def test_a_null_text_embeds_nothing(graph: Graph) -> None:
    embedder = _Told()
    assert read(graph, NEAR_TEXT, {"q": None}, embedder=embedder) == []
    assert embedder.asked == []


def test_a_blank_text_is_refused(graph: Graph) -> None:
    with pytest.raises(EmbeddingError):
        read(graph, NEAR_TEXT, {"q": "  "}, embedder=_Told())
