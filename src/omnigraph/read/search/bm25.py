"""BM25 relevance scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.read.search.inverted_index import K1, InvertedIndex
from omnigraph.read.search.scores import Scores, rounded


def bm25(collection: Sequence[InvertedIndex], words: Sequence[str]) -> list[Scores]:
    """BM25 score of each entity of several types for the words of a query; NaN if its text contains none of the words.

    Document frequencies and the average length are computed over all texts of these types. A word that occurs in n of N
    texts has the weight `ln(1 + (N - n + 0.5) / (n + 0.5))`. If it occurs f times in a text of L words, and texts have
    A words on average, it adds `f * (K1 + 1) / (f + K1 * (1 - B + B * L / A))` times its weight to the score of the
    text. A word that occurs several times in the query counts several times. Scores are rounded to single precision.
    """
    texts = sum(part.texts for part in collection)
    average = sum(part.total for part in collection) / max(texts, 1)
    scores = [np.zeros(len(part.length)) for part in collection]
    for word in words:
        entries = [part.find(word) for part in collection]
        spans = [
            slice(0, 0) if number is None else slice(int(part.first[number]), int(part.first[number + 1]))
            for part, number in zip(collection, entries, strict=True)
        ]
        containing = sum(span.stop - span.start for span in spans)
        weight = np.log1p((texts - containing + 0.5) / (containing + 0.5))
        for part, span, score in zip(collection, spans, scores, strict=True):
            if span.start == span.stop:
                continue
            entities = part.entity[span].astype(np.int64)
            counts = np.diff(part.begin[span.start : span.stop + 1]).astype(np.float64)
            # Each array is used again, because allocating many large arrays takes longer than computing their values.
            divisors = part.discounts(average).take(entities)
            divisors += counts
            counts *= K1 + 1
            counts /= divisors
            counts *= weight
            # Faster than `score[entities] += counts`.
            np.add.at(score, entities, counts)
    return [_rounded_or_nan(score) for score in scores]


def _rounded_or_nan(score: Scores) -> Scores:
    """Round scores. A score of 0 becomes NaN: no query word occurs in the text, because each word adds more than 0."""
    found = rounded(score)
    np.copyto(found, np.nan, where=score == 0)
    return found
