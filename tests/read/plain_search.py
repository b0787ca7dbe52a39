"""Search over one text and one vector at a time, for the oracle."""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import lance

from omnigraph.lang.query import ir


@cache
def words(text: str, analyzer: ir.Analyzer) -> tuple[tuple[str, int], ...]:
    """The words of a text with their positions, as Lance tokenizes it. Lance is the reference for tokens."""
    found = lance.tokenize(
        text,
        base_tokenizer=analyzer.tokenizer,
        language=analyzer.language.title(),
        stem=analyzer.stem,
        remove_stop_words=analyzer.stop_words,
        lower_case=analyzer.lower_case,
        ascii_folding=analyzer.ascii_folding,
        max_token_length=None,
    )
    return tuple((token.text, token.position) for token in found)


def matches(mode: ir.TextMode, text: str | None, query: str | None, edits: int, analyzer: ir.Analyzer) -> bool:
    """Whether a text matches the words of a query."""
    if text is None or query is None:
        return False
    if mode is ir.TextMode.FUZZY:
        plain = replace(analyzer, stem=False)
        return any(_edits(a, b) <= edits for a, _ in words(text, plain) for b, _ in words(query, plain))
    there, wanted = words(text, analyzer), words(query, analyzer)
    known = {word for word, _ in there}
    match mode:
        case ir.TextMode.ANY:
            return any(word in known for word, _ in wanted)
        case ir.TextMode.ALL:
            return bool(wanted) and all(word in known for word, _ in wanted)
    first = wanted[0][1] if wanted else 0
    starts = [place for word, place in there if wanted and word == wanted[0][0]]
    return any(all((word, start + place - first) in there for word, place in wanted) for start in starts)


@cache
def _edits(left: str, right: str) -> int:
    """The edit distance: the least number of letters to insert, delete or replace."""
    if not left or not right:
        return len(left) + len(right)
    changed = _edits(left[1:], right[1:]) + (left[0] != right[0])
    return min(changed, _edits(left[1:], right) + 1, _edits(left, right[1:]) + 1)


def single(number: float) -> float:
    """A number in single precision."""
    try:
        found: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return number
    return found


def relevance(texts: Iterable[str | None], text: str | None, query: str | None, analyzer: ir.Analyzer) -> float | None:
    """BM25 of one of some texts; None if it contains no word of the query."""
    if text is None or query is None:
        return None
    all_words = [[word for word, _ in words(other, analyzer)] for other in texts if other is not None]
    mine = [word for word, _ in words(text, analyzer)]
    average = sum(map(len, all_words)) / len(all_words)
    total, found = 0.0, False
    for wanted, _ in words(query, analyzer):
        often = mine.count(wanted)
        if not often:
            continue
        having = sum(wanted in other for other in all_words)
        weight = math.log(1 + (len(all_words) - having + 0.5) / (having + 0.5))
        total += weight * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * len(mine) / average))
        found = True
    return single(total) if found else None


def distance(vector: Sequence[float] | None, query: Sequence[float] | None, metric: ir.Metric) -> float | None:
    """The distance of a vector from a query."""
    if vector is None or query is None:
        return None
    query = [single(part) for part in query]
    if metric is ir.Metric.L2:
        return single(math.dist(vector, query))
    product = math.fsum(a * b for a, b in zip(vector, query, strict=True))
    if metric is ir.Metric.DOT:
        return single(1 - product)
    lengths = math.hypot(*vector) * math.hypot(*query)
    return single(1 - product / lengths) if lengths else None


def fused(arms: Sequence[tuple[Mapping[Hashable, float], float]], k: int) -> dict[Hashable, tuple[float, int]]:
    """The score and position of each entity in a fusion.

    Args:
        arms: for each arm, the positions of the entities in its order, and its weight.
        k: the constant that is added to positions.
    """
    entities = dict.fromkeys(entity for places, _ in arms for entity in places)
    scores = {
        entity: sum(sorted(weight / (k + places[entity] + 1) for places, weight in arms if entity in places))
        for entity in entities
    }
    last = len(scores)
    order = sorted(scores, key=lambda entity: (-scores[entity], [places.get(entity, last) for places, _ in arms]))
    return {entity: (scores[entity], place) for place, entity in enumerate(order)}
