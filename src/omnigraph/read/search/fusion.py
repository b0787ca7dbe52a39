"""Reciprocal rank fusion (RRF): sort entities by their positions in several rankings.

Each ranking is called an arm of the fusion. The fused score of an entity depends on its positions in all rankings.
Approximate positions are enough to find candidates for the top rows. Exact positions are computed only for these
candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.rows.frame import FusedRanks
from omnigraph.read.search.rankings import ArmValues, PartialRanking, Ranking, Ties
from omnigraph.read.search.scores import Scores

_LAST = np.iinfo(np.int64).max

MAX_EARLY_ENTITIES = 1
"""A ranking is partial only if at most this number of top entities of another arm is expected to come early in it."""

KNOWN_FACTOR = 1.25
"""A partial ranking knows this many times the entities that are expected to be needed."""

_ROUNDING = 1e-12
"""Tolerance for rounding errors of fused scores."""

_Rankings = Sequence[Ranking | PartialRanking]
_Bounds = list[tuple[Numbers, Numbers]]
"""For each ranking, the first and last possible position of each entity."""


def fused(arms: Sequence[ArmValues], k: int, ties: Ties, count: int | None = None) -> FusedRanks:
    """Compute the fused scores and positions of all entities.

    Args:
        arms: the arms, in query order.
        k: the constant of the RRF formula. It is added to each position.
        ties: function that returns an integer for each entity. Entities with equal scores are sorted by it.
        count: number of top entities that are needed; None for all.
    """
    rankings = [Ranking(arm, ties) for arm in arms]
    found = np.logical_or.reduce([ranking.there for ranking in rankings])
    if count is None or count >= int(np.count_nonzero(found)):
        chosen = np.flatnonzero(found)
        places = [ranking.all_places()[chosen] for ranking in rankings]
    else:
        contenders = _contenders(rankings, found, k, count)
        assert contenders is not None, "all scores are known"
        chosen, bounds = contenders
        places = [ranking.places(chosen, *of) for ranking, of in zip(rankings, bounds, strict=True)]
    return _scored(rankings, len(found), chosen, places, k)


def _scored(rankings: _Rankings, total: int, chosen: Numbers, places: Sequence[Numbers], k: int) -> FusedRanks:
    """Fused scores and positions, from the exact positions of the chosen entities in each arm."""
    score = _sums(rankings, places, k)
    result = FusedRanks(np.full(total, np.nan), np.full(total, NOTHING, np.int64))
    result.score[chosen] = score
    result.place[chosen[_sorted(places, score)]] = np.arange(len(chosen))
    return result


# See docs/decisions/0232-a-fusion-compares-few-vectors.md
def fused_order(arms: Sequence[ArmValues], k: int, ties: Ties, count: int) -> FusedRanks | None:
    """Find the top `count` entities in order, by bounds of positions, or by exact positions if bounds do not suffice.

    Fused scores are not computed, or only for some entities. Returns None if all entities are needed, see `fused`.
    """
    rankings = _partial_rankings(arms, k, ties, count)
    found = None if rankings is None else _order_by_bounds(rankings, k, count)
    return _order_by_bounds([Ranking(arm, ties) for arm in arms], k, count) if found is None else found


def _order_by_bounds(rankings: _Rankings, k: int, count: int) -> FusedRanks | None:
    there = np.logical_or.reduce([ranking.there for ranking in rankings])
    if count >= int(np.count_nonzero(there)):
        return None
    contenders = _contenders(rankings, there, k, count)
    if contenders is None:
        return None
    chosen, bounds = contenders
    tight = [ranking.front_places(chosen, *of) for ranking, of in zip(rankings, bounds, strict=True)]
    order = _certain_order(rankings, tight, k, count)
    if order is None:
        complete = [ranking for ranking in rankings if isinstance(ranking, Ranking)]
        if len(complete) < len(rankings):
            return None
        places = [ranking.places(chosen, *of) for ranking, of in zip(complete, tight, strict=True)]
        return _scored(rankings, len(there), chosen, places, k)
    result = FusedRanks(np.full(len(there), np.nan), np.full(len(there), NOTHING, np.int64))
    result.place[chosen[order]] = np.arange(len(chosen))
    result.score[chosen] = -result.place[chosen]
    return result


def _partial_rankings(arms: Sequence[ArmValues], k: int, ties: Ties, count: int) -> _Rankings | None:
    """The rankings of the arms, one of them with the scores of its best entities only; None if this is not faster."""
    partial = [number for number, arm in enumerate(arms) if arm.part is not None]
    if len(partial) != 1 or len(arms) < 2 or count == 0:
        return None
    arm, others = arms[partial[0]], [Ranking(arm, ties) for arm in arms if arm.part is None]
    # After this position in the partial arm, entities differ by less than those at positions up to `count` elsewhere.
    # If one of the top entities of another arm comes earlier, its position is needed, and the bounds do not suffice.
    late = (k + count) * (k + count + 1) * arm.weight / min(ranking.weight for ranking in others)
    if late * count > MAX_EARLY_ENTITIES * len(others[0].there):
        return None
    # An entity that is known in all arms is compared with those whose positions are only known to be late.
    wanted = int(KNOWN_FACTOR * max(late, *(ranking.count for ranking in others)))
    assert arm.part is not None
    part = arm.part(wanted, _depth([some.weight for some in arms], k, count))
    if part is None:
        return None
    return [*others[: partial[0]], PartialRanking(arm, part, ties), *others[partial[0] :]]


def _certain_order(rankings: _Rankings, bounds: _Bounds, k: int, count: int) -> Numbers | None:
    """The order of entities by fused score, if bounds of positions show the top `count` and their order; else None."""
    lowest = _sums(rankings, [last for _, last in bounds], k)
    highest = _sums(rankings, [first for first, _ in bounds], k)
    order = _sorted([first for first, _ in bounds], lowest)
    is_open = np.logical_or.reduce([first != last for first, last in bounds])[order]
    lowest, highest = lowest[order], highest[order]
    # The highest possible score of each later entity: of those with bounds only, and of all.
    later_open = _most_after(np.where(is_open, highest, -np.inf))
    later = np.where(is_open, _most_after(highest), later_open)
    return order if bool((later < lowest * (1 - _ROUNDING))[:count].all()) else None


def _most_after(values: Scores) -> Scores:
    """For each value, the largest of the values after it."""
    most = np.maximum.accumulate(values[::-1])[::-1]
    return np.append(most[1:], -np.inf)


def _sorted(places: Sequence[Numbers], score: Scores) -> Numbers:
    """The order of entities by fused score, then by their positions in each arm."""
    keys = [np.where(place == NOTHING, _LAST, place) for place in reversed(places)]
    order: Numbers = np.lexsort((*keys, -score))
    return order


def _contenders(rankings: _Rankings, found: Mask, k: int, count: int) -> tuple[Numbers, _Bounds] | None:
    """Entities that can be among the top `count`, and bounds of their positions in each ranking.

    Returns None if the known scores do not suffice.
    """
    heaviest = max((ranking.weight for ranking in rankings if ranking.count >= count), default=0.0)
    chosen = np.flatnonzero(found)
    if heaviest and count:
        depth = _depth([ranking.weight for ranking in rankings], k, count, heaviest)
        if not all(ranking.covers(depth) for ranking in rankings):
            return None
        # Entities are excluded first with rough bounds, which need few sorted scores; then the rest with tight bounds.
        chosen = np.flatnonzero(np.logical_or.reduce([ranking.first(depth) for ranking in rankings]))
        rough = [ranking.rough_bounds(chosen) for ranking in rankings]
        chosen = chosen[_can_be_among(rankings, rough, k, count)]
    elif not all(ranking.covers(len(found)) for ranking in rankings):
        return None
    bounds = [ranking.bounds(chosen) for ranking in rankings]
    near = np.flatnonzero(_can_be_among(rankings, bounds, k, count))
    return chosen[near], [(earliest[near], latest[near]) for earliest, latest in bounds]


def _depth(weights: Sequence[float], k: int, count: int, heaviest: float | None = None) -> int:
    """An entity that is after this position in all arms is not among the top `count`.

    Args:
        weights: the weights of the arms.
        k: the constant of the RRF formula.
        count: number of top entities.
        heaviest: the largest weight of an arm with at least `count` entities; by default, of all arms.
    """
    # `least` is a lower bound of the fused score of the entity at position `count`: each of the first `count` entities
    # of an arm gets at least this score from this arm.
    least = (max(weights) if heaviest is None else heaviest) / (k + count)
    return int(sum(weights) / least) - k + 1


def _can_be_among(rankings: _Rankings, bounds: Sequence[tuple[Numbers, Numbers]], k: int, count: int) -> Mask:
    """Mask of entities that can be among the top `count`, by bounds of their positions."""
    lowest = _sums(rankings, [latest for _, latest in bounds], k)
    if count == 0:
        return np.zeros(len(lowest), bool)
    bound = np.partition(lowest, len(lowest) - count)[len(lowest) - count]
    # The tolerance covers rounding errors of the sums.
    near: Mask = _sums(rankings, [earliest for earliest, _ in bounds], k) >= bound * (1 - _ROUNDING)
    return near


def _sums(rankings: _Rankings, places: Sequence[Numbers], k: int) -> Scores:
    """RRF scores, from the positions of entities in each arm."""
    parts = [
        np.where(place == NOTHING, 0.0, ranking.weight / (k + place + 1.0))
        for ranking, place in zip(rankings, places, strict=True)
    ]
    if len(parts) == 2:
        return parts[0] + parts[1]
    # Terms are added in ascending order, so that the sum does not depend on the order of the arms.
    total: Scores = np.zeros(len(parts[0]))
    for part in np.sort(np.array(parts), axis=0):
        total += part
    return total
