"""The ranking of one arm of a fusion: positions of entities, from approximate scores where these suffice."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers
from omnigraph.read.search.scores import ApproximateScores, Floats, PartialScores, Scores, above, below

SORTED_FACTOR = 4
"""Only the best approximate scores of a ranking are sorted: this factor times the number of requested entities."""

MAX_COUNTED_ENTITIES = 48
"""With at most this number of entities, the position of each is found by counting smaller scores, without sorting."""

SAMPLE_RATIO = 16
"""Rough bounds of positions are found with the scores of the first 1 / `SAMPLE_RATIO` of all entities."""

Ties = Callable[[Numbers], Numbers]
"""Returns an integer for each entity. Entities with equal scores are sorted by it."""


@dataclass(frozen=True, slots=True)
class ArmValues:
    """One arm of a fusion: the scores of one ranking.

    Attributes:
        approximate: returns approximate scores of all entities.
        exact: returns the exact scores of given entities; smaller is better.
        weight: factor for the contribution of this arm to the fused score.
        part: returns the scores of about `count` best entities, which include the best `depth`; None if this costs as
            much as the scores of all. The arguments are `count` and `depth`.
    """

    approximate: Callable[[], ApproximateScores]
    exact: Callable[[Numbers], Scores]
    weight: float
    part: Callable[[int, int], PartialScores | None] | None = None


class Ranking:
    """The ranking of one arm. It computes positions of entities, from 0; `NOTHING` for an entity without a score."""

    def __init__(self, arm: ArmValues, ties: Ties) -> None:
        self._exact = arm.exact
        self._ties = ties
        self.weight = arm.weight
        self.approximate = arm.approximate()
        self.there: Mask = ~np.isnan(self.approximate.values)
        self.count = int(np.count_nonzero(self.there))
        self._end = -np.inf
        self._front: Floats = np.zeros(0)
        self._best: Numbers = np.zeros(0, np.int64)

    def covers(self, count: int) -> bool:
        """Whether the top `count` can be found."""
        return True

    def first(self, count: int) -> Mask:
        """Mask of the entities that can be among the top `count` of this arm. Also sorts the best scores."""
        self._end = self.approximate.front(count * SORTED_FACTOR)
        values = self.approximate.values
        self._best = np.flatnonzero(values <= below(values, self._end))
        self._front = np.sort(values[self._best]).astype(np.float64)
        last = self._end
        if len(self._front) > count:
            last = min(last, self._front[count - 1] + 2 * self.approximate.error)
        near: Mask = values <= below(values, last)
        return near

    def all_places(self) -> Numbers:
        """Exact position of each entity in the ranking; `NOTHING` for entities without a score."""
        entities = np.flatnonzero(self.there)
        places = np.full(len(self.there), NOTHING, np.int64)
        places[entities[in_order(entities, self._exact, self._ties)]] = np.arange(len(entities))
        return places

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(self.approximate.values[self.there]).astype(np.float64)

    def rough_bounds(self, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """Like `bounds`, but the bounds are wider for entities that are not among the best."""
        low, high = self._uncertain_range(chosen)
        there = self.there[chosen]
        earliest, latest = np.searchsorted(self._front, low, "left"), np.searchsorted(self._front, high, "right")
        far = np.flatnonzero(there & (high > self._end))
        if len(far):
            sample, others = self._sample
            earliest[far] = np.maximum(earliest[far], np.searchsorted(sample, low[far], "left"))
            # Entities outside the sample come before or after.
            latest[far] = np.searchsorted(sample, high[far], "right") + others
        return np.where(there, earliest, NOTHING), np.where(there, latest - 1, NOTHING)

    # See docs/decisions/0245-a-sample-excludes-late-entities.md
    @cached_property
    def _sample(self) -> tuple[Floats, int]:
        """The sorted scores of the first entities, and the number of other entities that have a score."""
        size = len(self.there) // SAMPLE_RATIO
        values = np.sort(self.approximate.values[:size]).astype(np.float64)
        return values, self.count - int(np.count_nonzero(self.there[:size]))

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
        if len(open_):
            low, high = self._uncertain_range(chosen[open_])
            places[open_] += self._offsets(chosen[open_], low, self._between(low, high))
        return places

    def front_places(self, chosen: Numbers, earliest: Numbers, latest: Numbers) -> tuple[Numbers, Numbers]:
        """Like `bounds`, but the positions of the best entities are exact."""
        low, high = self._uncertain_range(chosen)
        open_ = np.flatnonzero((latest > earliest) & (high <= self._end))
        first, last = earliest.copy(), latest.copy()
        if len(open_):
            entities = self._best[_in_ranges(self.approximate.values[self._best], low[open_], high[open_])]
            first[open_] += self._offsets(chosen[open_], low[open_], entities)
            last[open_] = first[open_]
        return first, last

    def _offsets(self, chosen: Numbers, low: Floats, entities: Numbers) -> Numbers:
        order = in_order(entities, self._exact, self._ties)
        return _offsets(chosen, low, entities, self.approximate.values[entities], order)

    def _between(self, low: Floats, high: Floats) -> Numbers:
        """Entities whose approximate scores are in at least one of the given ranges, in ascending order of entity."""
        values = self.approximate.values
        if len(low) > MAX_COUNTED_ENTITIES:
            return np.flatnonzero(_in_ranges(values, low, high) & self.there)
        parts = [
            np.flatnonzero((values >= above(values, begin)) & (values <= below(values, end)))
            for begin, end in _merged(low, high)
        ]
        return np.unique(np.concatenate(parts))


class PartialRanking:
    """The ranking of an arm whose scores are known only for the best entities.

    The position of an entity is exact if its score is below the limit of the known scores. The positions of other
    entities have bounds: an entity comes after all known entities with smaller scores.
    """

    def __init__(self, arm: ArmValues, part: PartialScores, ties: Ties) -> None:
        self._exact = arm.exact
        self._ties = ties
        self._part = part
        self.weight = arm.weight
        self.there = part.there
        self.count = int(np.count_nonzero(part.there))
        self._sorted = np.sort(part.values).astype(np.float64)
        self._values = np.full(len(part.there), np.nan)
        self._values[part.known] = part.values

    def covers(self, count: int) -> bool:
        """Whether the top `count` can be found."""
        return 0 < count <= len(self._sorted) and self._last(count) <= self._part.limit

    def _last(self, count: int) -> float:
        return float(self._sorted[count - 1]) + 2 * self._part.error

    def first(self, count: int) -> Mask:
        """Mask of the entities that can be among the top `count` of this arm."""
        near: Mask = np.zeros(len(self.there), bool)
        near[self._part.known] = self._part.values <= below(self._part.values, self._last(count))
        return near

    def rough_bounds(self, chosen: Numbers) -> tuple[Numbers, Numbers]:
        return self.bounds(chosen)

    def bounds(self, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """First and last possible position of each given entity."""
        unknown = chosen[self.there[chosen] & np.isnan(self._values[chosen])]
        if len(unknown):
            self._values[unknown] = self._part.more(unknown)
        there = self.there[chosen]
        low, high = self._uncertain_range(chosen)
        earliest = np.searchsorted(self._sorted, low, "left")
        latest = np.where(high <= self._part.limit, np.searchsorted(self._sorted, high, "right"), self.count)
        return np.where(there, earliest, NOTHING), np.where(there, latest - 1, NOTHING)

    def _uncertain_range(self, chosen: Numbers) -> tuple[Floats, Floats]:
        values = self._values[chosen]
        return values - 2 * self._part.error, values + 2 * self._part.error

    def front_places(self, chosen: Numbers, earliest: Numbers, latest: Numbers) -> tuple[Numbers, Numbers]:
        """Like `bounds`, but positions below the limit are exact."""
        low, high = self._uncertain_range(chosen)
        open_ = np.flatnonzero((latest > earliest) & (high <= self._part.limit))
        first, last = earliest.copy(), latest.copy()
        if len(open_):
            entities = self._part.known[_in_ranges(self._part.values, low[open_], high[open_])]
            order = in_order(entities, self._exact, self._ties)
            first[open_] += _offsets(chosen[open_], low[open_], entities, self._values[entities], order)
            last[open_] = first[open_]
        return first, last


def in_order(entities: Numbers, exact: Callable[[Numbers], Scores], ties: Ties) -> Numbers:
    """The order of the given entities by exact score, then by tie-breaker."""
    values = exact(entities)
    order: Numbers = np.argsort(values)
    values = values[order]
    same = values[1:] == values[:-1]
    if same.any():
        group = np.concatenate([[0], np.cumsum(~same)])
        tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
        order[tied] = order[tied][np.lexsort((ties(entities[order[tied]]), group[tied]))]
    return order


def _in_ranges(values: Floats, low: Floats, high: Floats) -> Mask:
    """Mask of the values that are in at least one of the given ranges."""
    inside: Mask = np.searchsorted(np.sort(low), values, "right") > np.searchsorted(np.sort(high), values, "left")
    return inside


def _offsets(chosen: Numbers, low: Floats, entities: Numbers, scores: Floats, order: Numbers) -> Numbers:
    """For each chosen entity, the number of entities of its uncertain range that come before it.

    Args:
        chosen: the chosen entities.
        low: the start of the uncertain range of each chosen entity.
        entities: all entities in these ranges, ascending.
        scores: approximate scores of these entities.
        order: exact order of these entities.
    """
    place = np.empty(len(entities), np.int64)
    place[order] = np.arange(len(entities))
    # `place` is a position among entities of all ranges. So the number of those before the range is subtracted.
    before = np.searchsorted(np.sort(scores).astype(np.float64), low, "left")
    found: Numbers = place[np.searchsorted(entities, chosen)] - before
    return found


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
