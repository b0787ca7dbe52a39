"""How Lance tokenizes texts: assumptions of our own full-text search."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.query import FullTextOperator, MatchQuery, PhraseQuery

from omnigraph.lang.query import ir
from omnigraph.lang.schema.indexes import LANGUAGES
from omnigraph.storage.text_analysis import settings, words_of

TEXTS = (
    *("The quick brown foxes", "quick, quick: dog!", "a state of the art", "state art", "state-of-art", "naïve CAFÉ"),
    *("Straße", "x² + 12,5", "你好，世界", "running ran runs", "don't e-mail me", "", "the", "x" * 60 + " fox", "½ Ⅷ"),
)
QUERIES = (
    "quick",
    "fox dog",
    "state of the art",
    "state art",
    "cafe",
    "strasse",
    "x2",
    "你好",
    "run",
    "mail",
    "x" * 60,
)


def indexed(place: Path, analyzer: ir.Analyzer) -> LanceDataset:
    rows = pa.table({"n": range(len(TEXTS) + 1), "text": [*TEXTS, None]})
    dataset = lance.write_dataset(rows, place, enable_stable_row_ids=True)
    built = dataset.create_index_uncommitted(
        "text", "INVERTED", name="words", fragment_ids=[0], with_position=True, **settings(analyzer)
    )
    built = dataset.merge_existing_index_segments([built])
    return LanceDataset.commit(dataset, LanceOperation.CreateIndex([built], []), read_version=dataset.version)


def found(dataset: LanceDataset, query: Any) -> set[int]:
    return set(dataset.scanner(columns=["n"], full_text_query=query).to_table()["n"].to_pylist())


@pytest.mark.parametrize(
    "analyzer",
    [
        ir.Analyzer(),
        ir.Analyzer(stem=False, stop_words=False),
        ir.Analyzer(tokenizer="whitespace", ascii_folding=False),
        ir.Analyzer(language="german", lower_case=False),
        ir.Analyzer(tokenizer="raw"),
    ],
)
def test_an_index_has_the_words_that_tokenize_gives(tmp_path: Path, analyzer: ir.Analyzer) -> None:
    dataset = indexed(tmp_path / "t", analyzer)
    words = [set(words_of(text, analyzer)[0]) for text in TEXTS]
    places = [set(zip(*words_of(text, analyzer), strict=True)) for text in TEXTS]
    for query in QUERIES:
        wanted, at = words_of(query, analyzer)
        if not wanted:
            continue
        some = {n for n, text in enumerate(words) if text & set(wanted)}
        every = {n for n, text in enumerate(words) if text >= set(wanted)}
        row = {
            n
            for n, text in enumerate(places)
            if any(
                all((word, start + place) in text for word, place in zip(wanted, at, strict=True)) for start in range(9)
            )
        }
        assert found(dataset, MatchQuery(query, "text")) == some, query
        assert found(dataset, MatchQuery(query, "text", operator=FullTextOperator.AND)) == every, query
        assert found(dataset, PhraseQuery(query, "text")) == row, query


def test_stop_words_keep_their_positions() -> None:
    """So the position of a word in a joined text identifies its piece."""
    assert words_of("0 the quick the fox", ir.Analyzer()) == (["0", "quick", "fox"], [0, 2, 4])
    assert words_of("the quick", ir.Analyzer())[1] == [0]  # counted from the first word that is not a stop word


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_keeps_numbers_that_mark_boundaries(language: str) -> None:
    for stem in (True, False):
        words, places = words_of("0 1000000 hello 0", ir.Analyzer(language=language, stem=stem))
        assert (words[0], words[1], words[-1]) == ("0", "1000000", "0")
        assert (places[0], places[1], places[-1]) == (0, 1, 3)


def test_ascii_text_is_split_as_in_our_analyzer() -> None:
    plain = ir.Analyzer(stem=False, stop_words=False, lower_case=False, ascii_folding=False)
    for code in range(1, 128):
        words, _ = words_of(f"9{chr(code)}9", plain)
        assert (len(words) == 1) is chr(code).isalnum(), code
        words, _ = words_of(f"9{chr(code)}9", ir.Analyzer("whitespace", "english", False, False, False, False))
        assert (len(words) == 2) is (chr(code) in " \t\n\x0c\r"), code


def test_the_whitespace_tokenizer_splits_at_ascii_spaces_only() -> None:
    odd = [chr(code) for code in range(128, 0x3001) if unicodedata.category(chr(code)) == "Zs"]
    for letter in odd:
        assert words_of(f"9{letter}9", ir.Analyzer("whitespace", "english", False, False, False, False))[1] == [0]


def test_text_search_results_depend_on_the_index(tmp_path: Path) -> None:
    """The reason not to use it: without an index it tokenizes differently, finds no typos and scores by other rules."""
    dataset = indexed(tmp_path / "t", ir.Analyzer())
    bare = lance.dataset(tmp_path / "t", version=1)
    assert found(dataset, MatchQuery("foxes", "text")) != found(bare, MatchQuery("fox", "text"))
    assert found(bare, MatchQuery("dogg", "text", fuzziness=1)) == set()

    def scores(dataset: LanceDataset) -> dict[int, float]:
        rows = dataset.scanner(columns=["n", "_score"], full_text_query=MatchQuery("quick", "text")).to_table()
        return dict(zip(rows["n"].to_pylist(), rows["_score"].to_pylist(), strict=True))

    assert scores(dataset).keys() == scores(bare).keys()
    assert scores(dataset) != scores(bare)
