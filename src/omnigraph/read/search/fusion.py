"""Reciprocal rank fusion (RRF): sort entities by their positions in several rankings.

Each ranking is called an arm of the fusion. The fused score of an entity depends on its positions in all rankings.
Approximate positions are enough to find candidates for the top rows. Exact positions are computed only for these
candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.rows.frame import FusedRanks
from omnigraph.read.search.scores import ApproximateScores, Floats, Scores, above, below

_LAST = np.iinfo(np.int64).max

SORTED_FACTOR = 4
"""Only the best approximate scores of a ranking are sorted: this factor times the number of requested entities."""

MAX_COUNTED_ENTITIES = 48
"""With at most this number of entities, the position of each is found by counting smaller scores, without sorting."""


@dataclass(frozen=True, slots=True)
class ArmValues:
    """One arm of a fusion: the scores of one ranking.

    Attributes:
        approximate: approximate scores of all entities.
        exact: returns the exact scores of given entities; smaller is better.
        weight: factor for the contribution of this arm to the fused score.
    """

    approximate: ApproximateScores
    exact: Callable[[Numbers], Scores]
    weight: float


def fused(
    arms: Sequence[ArmValues], k: int, ties: Callable[[Numbers], Numbers], count: int | None = None
) -> FusedRanks:
    """Compute the fused scores and positions of all entities.

    Args:
        arms: the arms, in query order.
        k: the constant of the RRF formula. It is added to each position.
        ties: function that returns an integer for each entity. Entities with equal scores are sorted by it.
        count: number of top entities that are needed; None for all.
    """
    orders = [_Order(arm, ties) for arm in arms]
    found = np.logical_or.reduce([order.there for order in orders])
    if count is None or count >= int(np.count_nonzero(found)):
        chosen = np.flatnonzero(found)
        places = [order.all_places()[chosen] for order in orders]
    else:
        chosen, bounds = _contenders(orders, found, k, count)
        places = [order.places(chosen, *of_order) for order, of_order in zip(orders, bounds, strict=True)]
    score = _sums(orders, places, k)
    keys = [np.where(place == NOTHING, _LAST, place) for place in reversed(places)]
    best_first = chosen[np.lexsort((*keys, -score))]
    result = FusedRanks(np.full(len(found), np.nan), np.full(len(found), NOTHING, np.int64))
    result.score[chosen] = score
    result.place[best_first] = np.arange(len(chosen))
    return result


def _contenders(
    orders: Sequence[_Order], found: Mask, k: int, count: int
) -> tuple[Numbers, list[tuple[Numbers, Numbers]]]:
    """Entities that can be among the top `count`, and bounds of their positions in each ranking."""
    # `least` is a lower bound of the fused score of the entity at position `count`: each of the first `count` entities
    # of an arm gets at least this score from this arm.
    least = max((order.weight / (k + count) for order in orders if order.count >= count), default=0.0)
    chosen = np.flatnonzero(found)
    if least and count:
        # An entity that is after position `depth` in all arms has a lower score than `least`.
        depth = int(sum(order.weight for order in orders) / least) - k + 1
        # Entities are excluded first with rough bounds, which need few sorted scores; then the rest with tight bounds.
        chosen = np.flatnonzero(np.logical_or.reduce([order.first(depth) for order in orders]))
        chosen = chosen[_can_be_among(orders, [order.rough_bounds(chosen) for order in orders], k, count)]
    bounds = [order.bounds(chosen) for order in orders]
    near = np.flatnonzero(_can_be_among(orders, bounds, k, count))
    return chosen[near], [(earliest[near], latest[near]) for earliest, latest in bounds]


def _can_be_among(orders: Sequence[_Order], bounds: Sequence[tuple[Numbers, Numbers]], k: int, count: int) -> Mask:
    """Mask of entities that can be among the top `count`, by bounds of their positions."""
    lowest = _sums(orders, [latest for _, latest in bounds], k)
    if count == 0:
        return np.zeros(len(lowest), bool)
    bound = np.partition(lowest, len(lowest) - count)[len(lowest) - count]
    # The tolerance covers rounding errors of the sums.
    near: Mask = _sums(orders, [earliest for earliest, _ in bounds], k) >= bound * (1 - 1e-12)
    return near


def _sums(orders: Sequence[_Order], places: Sequence[Numbers], k: int) -> Scores:
    """RRF scores, from the positions of entities in each arm."""
    parts = [
        np.where(place == NOTHING, 0.0, order.weight / (k + place + 1.0))
        for order, place in zip(orders, places, strict=True)
    ]
    if len(parts) == 2:
        return parts[0] + parts[1]
    # Terms are added in ascending order, so that the sum does not depend on the order of the arms.
    total: Scores = np.zeros(len(parts[0]))
    for part in np.sort(np.array(parts), axis=0):
        total += part
    return total


class _Order:
    """The ranking of one arm. It computes positions of entities, from 0; `NOTHING` for an entity without a score."""

    def __init__(self, arm: ArmValues, ties: Callable[[Numbers], Numbers]) -> None:
        self._exact = arm.exact
        self._ties = ties
        self.weight = arm.weight
        self.approximate = arm.approximate
        self.there: Mask = ~np.isnan(arm.approximate.values)
        self.count = int(np.count_nonzero(self.there))
        self._end = -np.inf
        self._front: Floats = np.zeros(0)

    def first(self, count: int) -> Mask:
        """Mask of the entities that can be among the top `count` of this arm. Also sorts the best scores."""
        self._end = self.approximate.front(count * SORTED_FACTOR)
        values = self.approximate.values
        self._front = np.sort(values[values <= below(values, self._end)]).astype(np.float64)
        last = self._end
        if len(self._front) > count:
            last = min(last, self._front[count - 1] + 2 * self.approximate.error)
        near: Mask = values <= below(values, last)
        return near

    def all_places(self) -> Numbers:
        """Exact position of each entity in the ranking; `NOTHING` for entities without a score."""
        entities = np.flatnonzero(self.there)
        places = np.full(len(self.there), NOTHING, np.int64)
        places[entities[self._in_order(entities)]] = np.arange(len(entities))
        return places

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(self.approximate.values[self.there]).astype(np.float64)

    def rough_bounds(self, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """Like `bounds`, but the bounds are wider for entities that are not among the best."""
        low, high = self._uncertain_range(chosen)
        there = self.there[chosen]
        latest = np.where(high <= self._end, np.searchsorted(self._front, high, "right"), self.count)
        earliest = np.searchsorted(self._front, low, "left")
        return np.where(there, earliest, NOTHING), np.where(there, latest - 1, NOTHING)

    def bounds(self, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """First and last possible position of each given entity."""
        low, high = self._uncertain_range(chosen)
        there = self.there[chosen]
        far = np.flatnonzero(there & (high > self._end))
        if len(far) > MAX_COUNTED_ENTITIES:
            earliest, latest = np.searchsorted(self._sorted, low, "left"), np.searchsorted(self._sorted, high, "right")
        else:
            earliest, latest = np.searchsorted(self._front, low, "left"), np.searchsorted(self._front, high, "right")
            values = self.approximate.values
            for place in far:
                earliest[place] = np.count_nonzero(values < above(values, low[place]))
                latest[place] = np.count_nonzero(values <= below(values, high[place]))
        return np.where(there, earliest, NOTHING), np.where(there, latest - 1, NOTHING)

    def _uncertain_range(self, chosen: Numbers) -> tuple[Floats, Floats]:
        """For each given entity, a range of approximate scores. Entities in this range may come before or after it."""
        values = self.approximate.values[chosen].astype(np.float64)
        return values - 2 * self.approximate.error, values + 2 * self.approximate.error

    def places(self, chosen: Numbers, earliest: Numbers, latest: Numbers) -> Numbers:
        """Exact positions of the given entities. `earliest` and `latest` are the results of `bounds`."""
        places = earliest.copy()
        open_ = np.flatnonzero(latest > places)
        if len(open_) == 0:
            return places
        low, high = self._uncertain_range(chosen[open_])
        entities = self._between(low, high)
        place = np.empty(len(entities), np.int64)
        place[self._in_order(entities)] = np.arange(len(entities))
        # `place` is a position among entities with an uncertain order. So the number of those before the range of the
        # given entity is subtracted.
        before = np.searchsorted(np.sort(self.approximate.values[entities]).astype(np.float64), low, "left")
        places[open_] += place[np.searchsorted(entities, chosen[open_])] - before
        return places

    def _between(self, low: Floats, high: Floats) -> Numbers:
        """Entities whose approximate scores are in at least one of the given ranges, in ascending order of entity."""
        values = self.approximate.values
        if len(low) > MAX_COUNTED_ENTITIES:
            inside = np.searchsorted(np.sort(low), values, "right") > np.searchsorted(np.sort(high), values, "left")
            return np.flatnonzero(inside & self.there)
        parts = [
            np.flatnonzero((values >= above(values, begin)) & (values <= below(values, end)))
            for begin, end in _merged(low, high)
        ]
        return np.unique(np.concatenate(parts))

    def _in_order(self, entities: Numbers) -> Numbers:
        """The order of the given entities by exact score, then by tie-breaker."""
        values = self._exact(entities)
        order: Numbers = np.argsort(values)
        values = values[order]
        same = values[1:] == values[:-1]
        if same.any():
            group = np.concatenate([[0], np.cumsum(~same)])
            tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
            order[tied] = order[tied][np.lexsort((self._ties(entities[order[tied]]), group[tied]))]
        return order


def _merged(low: Floats, high: Floats) -> list[tuple[float, float]]:
    """Merge overlapping ranges."""
    order = np.argsort(low)
    found: list[tuple[float, float]] = []
    for begin, end in zip(low[order].tolist(), high[order].tolist(), strict=True):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
