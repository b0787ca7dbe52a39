"""Columns of texts and vectors are processed in batches, with the same result as one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import at_most
from tests.read.searching import distance, distances
from tests.thresholds import Thresholds

from omnigraph.lang.query import ir
from omnigraph.read.budget import Budget, Cancellation, Spending
from omnigraph.read.search import analysis
from omnigraph.read.search.fusion import fused
from omnigraph.read.search.fuzzy import FuzzyWords
from omnigraph.read.search.inverted_index import InvertedIndex
from omnigraph.read.search.rankings import ArmValues
from omnigraph.read.search.scores import ApproximateScores
from omnigraph.read.search.vectors import Vectors
from omnigraph.storage.text_analysis import words_of

ANALYZERS = (
    ir.Analyzer(),
    ir.Analyzer(stem=False),
    ir.Analyzer(stop_words=False, lower_case=False, ascii_folding=False),
    ir.Analyzer(tokenizer="whitespace"),
    ir.Analyzer(tokenizer="raw"),
    ir.Analyzer(tokenizer="raw", stem=False, stop_words=False, lower_case=False, ascii_folding=False),
    ir.Analyzer(tokenizer="raw", language="tamil"),
    ir.Analyzer(language="german"),
    ir.Analyzer(language="tamil"),
)
PIECES = (
    *("the", "and", "running", "Fox", "foxes", "naïve", "café", "Straße", "x²", "12,5", "don't", "e-mail", "ΑΣ"),
    *(
        "你好，世界",
        "，",
        "a_b",
        "½",
        "foo\x0bbar",
        "foo\u00a0bar",
        "1000000",
        "１００００００",
        "\0",
        "  ",
        "\n",
        "😀",
        "é",
    ),
)
TEXTS = st.lists(
    st.none()
    | st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    max_size=8,
)


def entries(words: InvertedIndex) -> dict[str, dict[int, list[int]]]:
    """For each word, the texts that contain it and its positions."""
    found: dict[str, dict[int, list[int]]] = {}
    for number, word in enumerate(words.vocabulary.to_pylist()):
        for entry in range(words.first[number], words.first[number + 1]):
            places = words.place[words.begin[entry] : words.begin[entry + 1]]
            found.setdefault(word, {})[int(words.entity[entry])] = places.tolist()
    return found


def one_by_one(texts: list[str | None], analyzer: ir.Analyzer) -> dict[str, dict[int, list[int]]]:
    found: dict[str, dict[int, list[int]]] = {}
    for number, text in enumerate(texts):
        if not text:
            continue
        if analyzer.tokenizer == "raw":
            words, places = words_of(text, analyzer)
        else:
            # A prefix, since positions are counted from the first word.
            words, places = words_of(f"0 {text}", analyzer)
            words, places = words[1:], [place - 1 for place in places[1:]]
        for word, place in zip(words, places, strict=True):
            found.setdefault(word, {}).setdefault(number, []).append(place)
    return found


@pytest.mark.parametrize("analyzer", ANALYZERS, ids=str)
@given(texts=TEXTS)
def test_an_inverted_index_agrees_with_one_text_at_a_time(analyzer: ir.Analyzer, texts: list[str | None]) -> None:
    words = InvertedIndex.of(pa.array(texts, pa.utf8()), analyzer)
    expected = one_by_one(texts, analyzer)
    assert entries(words) == expected
    assert words.vocabulary.to_pylist() == sorted(expected)
    assert words.texts == sum(text is not None for text in texts)
    lengths = [sum(len(places.get(number, ())) for places in expected.values()) for number in range(len(texts))]
    assert words.length.tolist() == lengths
    for word in (*expected, "nobody", ""):
        assert words.containing(word).tolist() == sorted(expected.get(word, {}))


def test_large_columns_are_indexed_in_portions(thresholds: Thresholds) -> None:
    random = Random(7)
    texts = [random.choice([None, "", " ".join(random.choices(PIECES, k=random.randrange(9)))]) for _ in range(200)]
    whole = entries(InvertedIndex.of(pa.array(texts), ir.Analyzer()))
    thresholds(analysis, TEXT_CHUNK_BYTES=64)
    assert entries(InvertedIndex.of(pa.array(texts), ir.Analyzer())) == whole
    padded = pa.concat_arrays([pa.array(["cut off", None]), pa.array(texts)]).slice(2)
    assert entries(InvertedIndex.of(padded, ir.Analyzer())) == whole


CONTROLS = "".join(map(chr, range(1, 32))) + "\x7f"


@pytest.mark.parametrize("analyzer", ANALYZERS, ids=str)
def test_words_are_analysed_in_portions(analyzer: ir.Analyzer, thresholds: Thresholds) -> None:
    """Includes texts that use every candidate for a separator."""
    random = Random(8)
    texts = [" ".join(random.choices(PIECES, k=random.randrange(9))) for _ in range(100)]
    texts += [
        f"the {CONTROLS} running foxes",
        *(f"Foxes{letter}running dogs" for letter in CONTROLS),
        "\xa0",
        "running\xa0",
    ]
    expected = one_by_one(list(texts), analyzer)
    for size in (1, 64, 1 << 18):
        thresholds(analysis, PIECE_CHUNK_BYTES=size)
        assert entries(InvertedIndex.of(pa.array(texts), analyzer)) == expected


@pytest.mark.parametrize("tokenizer", ["raw", "simple"])
def test_many_texts_are_analysed_with_few_calls(
    tokenizer: str, monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds
) -> None:
    calls: list[str] = []

    def counted(text: str, analyzer: ir.Analyzer) -> tuple[list[str], list[int]]:
        calls.append(text)
        return words_of(text, analyzer)

    monkeypatch.setattr(analysis, "words_of", counted)
    texts = pa.array([f"Text number{number}" for number in range(2_000)])
    asked = Counting()
    with Spending(Budget(), asked).running():
        InvertedIndex.of(texts, ir.Analyzer(tokenizer=tokenizer))
    assert len(calls) < 10
    calls.clear()
    thresholds(analysis, PIECE_CHUNK_BYTES=1_000)
    more = Counting()
    with Spending(Budget(), more).running():
        InvertedIndex.of(texts, ir.Analyzer(tokenizer=tokenizer))
    assert max(map(len, calls)) < 3_000
    assert more.asked > asked.asked + 10


class Counting(Cancellation):
    """Counts the checks for cancellation."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    @property
    def cancelled(self) -> bool:
        self.asked += 1
        return False


def test_digits_that_look_like_a_separator_are_kept_apart() -> None:
    texts = ["，1000000，你", "1000000 １００００００ 1000001", "你，1000001，1000000"]
    assert entries(InvertedIndex.of(pa.array(texts), ir.Analyzer())) == one_by_one(list(texts), ir.Analyzer())


@given(words=st.lists(st.text("abcé", max_size=6), unique=True, max_size=30), word=st.text("abcé", max_size=6))
def test_fuzzy_words_are_within_the_edit_distance(words: list[str], word: str) -> None:
    spellings = FuzzyWords(pa.array(words, pa.utf8()))
    for edits in range(3):
        near = [number for number, other in enumerate(words) if distance(word, other) <= edits]
        assert sorted(spellings.near(word, edits).tolist()) == near


@given(word=st.text("ab", min_size=5, max_size=12), data=st.data())
def test_long_fuzzy_words_are_within_the_edit_distance(word: str, data: st.DataObject) -> None:
    lengths = range(len(word) - 2, len(word) + 3)
    words = list({"".join(data.draw(st.lists(st.sampled_from("ab"), min_size=n, max_size=n))) for n in lengths})
    for edits in range(3):
        near = [number for number, other in enumerate(words) if distance(word, other) <= edits]
        assert sorted(FuzzyWords(pa.array(words)).near(word, edits).tolist()) == near


def test_a_long_word_is_compared_in_one_step_per_letter() -> None:
    """One step per letter, with a check for cancellation at each."""
    word, asked = "ab" * 1_000, Counting()
    spellings = FuzzyWords(pa.array([word, word[1:], "b" + word, "b" * 2_000]))
    with at_most(400), Spending(Budget(seconds=None), asked).running():
        assert sorted(spellings.near(word, 2).tolist()) == [0, 1, 2]
    assert asked.asked >= 2_000


NUMBERS = st.sampled_from([0.0, 0.5, -0.5, 1.0, 1e-30, 1e20, -3e38, 3e38, 0.1]) | st.floats(-2, 2, width=32)
VECTOR = st.lists(NUMBERS, min_size=3, max_size=3)


@pytest.mark.parametrize("metric", list(ir.Metric))
@given(rows=st.lists(st.none() | VECTOR, max_size=12), query=VECTOR, count=st.integers(0, 12))
def test_approximate_distances_keep_every_possible_nearest_neighbour(
    metric: ir.Metric, rows: list[list[float] | None], query: list[float], count: int
) -> None:
    column = pa.array(rows, pa.list_(pa.float32(), 3))
    vectors = Vectors.of(column)
    numbers = np.arange(len(rows))
    wanted = np.array(query, np.float32)
    exact = vectors.distances(wanted, metric, numbers)
    expected = distances({str(n): row for n, row in enumerate(column.to_pylist())}, query, metric.value)
    for number in range(len(rows)):
        if str(number) in expected:
            # Large products that cancel out leave an error in proportion to their size.
            size = vectors.lengths[number] * np.linalg.norm(wanted.astype(np.float64))
            off = 1e-6 + (1e-14 * size if metric is ir.Metric.DOT else 0.0)
            assert exact[number] == pytest.approx(expected[str(number)], rel=1e-6, abs=off)
        else:
            assert np.isnan(exact[number])
    left_out = ~vectors.approximate(wanted, metric, numbers).candidates(count)
    there = np.sort(exact[~np.isnan(exact)])
    farthest = there[min(count, len(there)) - 1] if count and len(there) else -np.inf
    assert (np.isnan(exact[left_out]) | (exact[left_out] > farthest)).all()


def test_distances_of_some_vectors_equal_those_of_all() -> None:
    random = np.random.default_rng(3)
    rows = random.standard_normal((500, 40)).astype(np.float32)
    vectors = Vectors.of(pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 40))
    query = random.standard_normal(40).astype(np.float32)
    for metric in ir.Metric:
        everything = vectors.distances(query, metric, np.arange(500))
        some = np.sort(random.choice(500, 77, replace=False))
        assert (vectors.distances(query, metric, some) == everything[some]).all()
        chosen = np.flatnonzero(vectors.approximate(query, metric, np.arange(500)).candidates(10))
        assert set(np.argsort(everything)[:10]) <= set(chosen)
        assert len(chosen) < 20
        part = some[vectors.approximate(query, metric, some).candidates(10)]
        assert set(some[np.argsort(everything[some])[:10]]) <= set(part)


def arm(values: Sequence[float], weight: float = 1.0, *, error: float = 0.0, seed: int = 0) -> ArmValues:
    """An arm whose values are known up to an error."""
    exact = np.array(values)
    off = np.random.default_rng(seed).uniform(-error, error, len(exact))
    scores = ApproximateScores(exact + off, error)
    return ArmValues(lambda: scores, lambda chosen: exact[chosen], weight)


def test_a_fusion_score_does_not_depend_on_the_order_of_arms() -> None:
    """Three arms in any order: sums of the same terms are equal, and the first arm decides."""
    nan = np.nan
    arms = ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [2.0, 3.0, 1.0])
    for order in ((0, 1, 2), (1, 2, 0), (2, 1, 0)):
        found = fused([arm(arms[number]) for number in order], 60, lambda chosen: chosen)
        assert len(set(found.score.tolist())) == 1
        assert found.place.tolist() == np.argsort(np.argsort(arms[order[0]])).tolist()
    none = fused([arm([nan, 1.0]), arm([nan, nan], 2.0)], 60, lambda chosen: chosen)
    assert np.isnan(none.score[0])
    assert none.place.tolist() == [-1, 0]


SOME = st.one_of(st.just(float("nan")), st.integers(0, 6).map(float), st.floats(0, 6))


@given(
    rows=st.lists(st.tuples(SOME, SOME, SOME), max_size=20),
    k=st.integers(1, 70),
    count=st.integers(0, 20),
    error=st.sampled_from([0.0, 0.01, 0.5, 10.0]),
    arms=st.integers(2, 3),
    weights=st.tuples(*[st.sampled_from([0.5, 1.0, 2.0])] * 3),
)
def test_the_top_of_a_fusion_is_exact_with_approximate_arms(
    rows: list[tuple[float, float, float]],
    k: int,
    count: int,
    error: float,
    arms: int,
    weights: tuple[float, float, float],
) -> None:
    """With approximate values and a limit, the top entities and scores equal those of an exact computation."""
    columns = [[row[number] for row in rows] for number in range(arms)]
    exact = fused([arm(c, w) for c, w in zip(columns, weights, strict=False)], k, lambda chosen: -chosen)
    doubtful = [arm(c, w, error=error, seed=n) for n, (c, w) in enumerate(zip(columns, weights, strict=False))]
    assert fused(doubtful, k, lambda chosen: -chosen).place.tolist() == exact.place.tolist()
    few = fused(doubtful, k, lambda chosen: -chosen, count)
    for entity, place in enumerate(exact.place):
        if 0 <= place < count:
            assert few.place[entity] == place
            assert few.score[entity] == exact.score[entity]
        elif few.place[entity] >= 0:
            assert few.place[entity] >= count


def test_fusion_positions_agree_with_a_plain_sort() -> None:
    values = [3.0, 1.0, float("nan"), 1.0, 2.0]
    found = fused([arm(values), arm([float("nan")] * 5)], 1, lambda chosen: -chosen)
    assert found.place.tolist() == [3, 1, -1, 0, 2]
    assert found.score.tolist()[:2] == [1 / 5, 1 / 3]
