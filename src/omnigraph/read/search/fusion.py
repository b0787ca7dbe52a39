"""Reciprocal rank fusion: entities ordered by their places in several orders.

Places count all entities that are left, so a score depends on each of them. Still, who can be among the first is known
from places that are nearly right, and only what is close to those is looked at exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from omnigraph.read.search.scores import Floats, Nearly, Scores, above, below
from omnigraph.read.space.space import NOTHING, Mask, Numbers

_LAST = np.iinfo(np.int64).max

_FURTHER = 4
"""How many times as far as contenders may stand values are put in order: what stands behind is worth little."""

_FEW = 48
"""For so many entities, values before them are counted for each, instead of putting all in order."""


@dataclass(frozen=True, slots=True)
class Fused:
    """What a fusion gives to entities, or to the rows that hold them.

    Attributes:
        score: larger is better; NaN where no arm has a value, and for what is certainly not among the first.
        place: the place in the order of the fusion, from 0; `NOTHING` where there is no score.
    """

    score: Scores
    place: Numbers

    def take(self, rows: Numbers) -> Fused:
        return Fused(self.score[rows], self.place[rows])


@dataclass(frozen=True, slots=True)
class ArmValues:
    """One arm.

    Attributes:
        nearly: about where each entity stands.
        exact: values by which some entities stand in order exactly, smaller ones first.
        weight: what its places are worth.
    """

    nearly: Nearly
    exact: Callable[[Numbers], Scores]
    weight: float


def fused(arms: Sequence[ArmValues], k: int, ties: Callable[[Numbers], Numbers], count: int | None = None) -> Fused:
    """The fusion of some arms.

    Args:
        arms: the arms in the order in which they are written.
        k: what is added to each place.
        ties: gives numbers for some entities that put those with equal values in order.
        count: how many of the first are wanted; None for all.
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
    result = Fused(np.full(len(found), np.nan), np.full(len(found), NOTHING, np.int64))
    result.score[chosen] = score
    result.place[best_first] = np.arange(len(chosen))
    return result


def _contenders(
    orders: Sequence[_Order], found: Mask, k: int, count: int
) -> tuple[Numbers, list[tuple[Numbers, Numbers]]]:
    """The entities that may be among the first `count`, and between which places each stands in the orders."""
    # What the last of them has at least: as much as the last of the first `count` of an arm gets from it alone.
    least = max((order.weight / (k + count) for order in orders if order.count >= count), default=0.0)
    chosen = np.flatnonzero(found)
    if least and count:
        # Who stands behind this place in all arms gets less than that.
        depth = int(sum(order.weight for order in orders) / least) - k + 1
        # Places near the front are known from few values, and further back that they are worth little.
        chosen = np.flatnonzero(np.logical_or.reduce([order.first(depth) for order in orders]))
        chosen = chosen[_can_be_among(orders, [order.rough_bounds(chosen) for order in orders], k, count)]
    bounds = [order.bounds(chosen) for order in orders]
    near = np.flatnonzero(_can_be_among(orders, bounds, k, count))
    return chosen[near], [(earliest[near], latest[near]) for earliest, latest in bounds]


def _can_be_among(orders: Sequence[_Order], bounds: Sequence[tuple[Numbers, Numbers]], k: int, count: int) -> Mask:
    """Which of some entities may be among the first `count`, by the first and the last place that each may have."""
    lowest = _sums(orders, [latest for _, latest in bounds], k)
    if count == 0:
        return np.zeros(len(lowest), bool)
    bound = np.partition(lowest, len(lowest) - count)[len(lowest) - count]
    # A little below, since sums of nearly equal numbers differ by how they are made.
    near: Mask = _sums(orders, [earliest for earliest, _ in bounds], k) >= bound * (1 - 1e-12)
    return near


def _sums(orders: Sequence[_Order], places: Sequence[Numbers], k: int) -> Scores:
    """What places are worth together."""
    parts = [
        np.where(place == NOTHING, 0.0, order.weight / (k + place + 1.0))
        for order, place in zip(orders, places, strict=True)
    ]
    if len(parts) == 2:
        return parts[0] + parts[1]
    # From the smallest to the largest, so that a sum does not depend on which arm gave what.
    total: Scores = np.zeros(len(parts[0]))
    for part in np.sort(np.array(parts), axis=0):
        total += part
    return total


class _Order:
    """The places of entities in the order of one arm; `NOTHING` for entities that it has no value for."""

    def __init__(self, arm: ArmValues, ties: Callable[[Numbers], Numbers]) -> None:
        self._exact = arm.exact
        self._ties = ties
        self.weight = arm.weight
        self.nearly = arm.nearly
        self.there: Mask = ~np.isnan(arm.nearly.values)
        self.count = int(np.count_nonzero(self.there))
        self._end = -np.inf
        self._front: Floats = np.zeros(0)

    def first(self, count: int) -> Mask:
        """Which entities may be among the first so many. The values of some more are put in order."""
        self._end = self.nearly.front(count * _FURTHER)
        values = self.nearly.values
        self._front = np.sort(values[values <= below(values, self._end)]).astype(np.float64)
        last = self._end
        if len(self._front) > count:
            last = min(last, self._front[count - 1] + 2 * self.nearly.doubt)
        near: Mask = values <= below(values, last)
        return near

    def all_places(self) -> Numbers:
        """The places of all entities."""
        entities = np.flatnonzero(self.there)
        places = np.full(len(self.there), NOTHING, np.int64)
        places[entities[self._in_order(entities)]] = np.arange(len(entities))
        return places

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(self.nearly.values[self.there]).astype(np.float64)

    def rough_bounds(self, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """The same as `bounds`, but further apart for entities that are not near the front."""
        low, high = self._around(chosen)
        there = self.there[chosen]
        latest = np.where(high <= self._end, np.searchsorted(self._front, high, "right"), self.count)
        earliest = np.searchsorted(self._front, low, "left")
        return np.where(there, earliest, NOTHING), np.where(there, latest - 1, NOTHING)

    def bounds(self, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """The first and the last place that some entities may have."""
        low, high = self._around(chosen)
        there = self.there[chosen]
        far = np.flatnonzero(there & (high > self._end))
        if len(far) > _FEW:
            earliest, latest = np.searchsorted(self._sorted, low, "left"), np.searchsorted(self._sorted, high, "right")
        else:
            earliest, latest = np.searchsorted(self._front, low, "left"), np.searchsorted(self._front, high, "right")
            values = self.nearly.values
            for place in far:
                earliest[place] = np.count_nonzero(values < above(values, low[place]))
                latest[place] = np.count_nonzero(values <= below(values, high[place]))
        return np.where(there, earliest, NOTHING), np.where(there, latest - 1, NOTHING)

    def _around(self, chosen: Numbers) -> tuple[Floats, Floats]:
        """Between which values everything lies whose order among some entities is in doubt."""
        values = self.nearly.values[chosen].astype(np.float64)
        return values - 2 * self.nearly.doubt, values + 2 * self.nearly.doubt

    def places(self, chosen: Numbers, earliest: Numbers, latest: Numbers) -> Numbers:
        """The places of some entities, of which the first and the last are known that each may have."""
        places = earliest.copy()
        open_ = np.flatnonzero(latest > places)
        if len(open_) == 0:
            return places
        low, high = self._around(chosen[open_])
        entities = self._between(low, high)
        place = np.empty(len(entities), np.int64)
        place[self._in_order(entities)] = np.arange(len(entities))
        # Places among these are counted from the first that may come after what is certainly before.
        before = np.searchsorted(np.sort(self.nearly.values[entities]).astype(np.float64), low, "left")
        places[open_] += place[np.searchsorted(entities, chosen[open_])] - before
        return places

    def _between(self, low: Floats, high: Floats) -> Numbers:
        """The entities whose values lie in any of some ranges, ascending."""
        values = self.nearly.values
        if len(low) > _FEW:
            inside = np.searchsorted(np.sort(low), values, "right") > np.searchsorted(np.sort(high), values, "left")
            return np.flatnonzero(inside & self.there)
        parts = [
            np.flatnonzero((values >= above(values, begin)) & (values <= below(values, end)))
            for begin, end in _merged(low, high)
        ]
        return np.unique(np.concatenate(parts))

    def _in_order(self, entities: Numbers) -> Numbers:
        """Some entities in their exact order."""
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
    """Ranges, those put together that meet."""
    order = np.argsort(low)
    found: list[tuple[float, float]] = []
    for begin, end in zip(low[order].tolist(), high[order].tolist(), strict=True):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
