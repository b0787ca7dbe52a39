"""The walks of the study in plain numpy, on arrays that are laid out for them: about as fast as Python can be.

A compressed adjacency in both directions, and the columns that the questions need. No text is parsed, nothing is
checked, no snapshot is taken, and each question has its own code. The person to start at is found by comparing numbers.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from study.data import Numbers
from study.questions import START, many
from study.serve import Answers, main


class Walks:
    """The answers, one method for each question."""

    def __init__(self, place: Path, persons: int) -> None:
        people = pq.read_table(place / "Person.parquet")
        follows = pq.read_table(place / "Follows.parquet")
        self.nums, self.ages = people["num"].to_numpy(), people["age"].to_numpy()
        self.names = people["name"].combine_chunks()
        sources, self.targets = follows["from"].to_numpy(), follows["to"].to_numpy().astype(np.int32)
        self.starts, self.in_starts = (
            np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=persons))]) for ends in (sources, self.targets)
        )
        self.many = np.array(many(persons))

    def q1(self) -> pa.Table:
        counts = np.diff(self.in_starts)
        best = np.flatnonzero(counts >= np.partition(counts, -3)[-3])
        best = best[np.lexsort((self.nums[best], -counts[best]))][:3]
        return pa.table({"num": self.nums[best], "name": self.names.take(pa.array(best)), "fans": counts[best]})

    def q8(self) -> pa.Table:
        return pa.table({"paths": [int(np.dot(np.diff(self.in_starts), np.diff(self.starts)))]})

    def q9(self) -> pa.Table:
        ways = np.where(self.ages < 50, np.diff(self.in_starts), 0)
        last = np.concatenate([[0], np.cumsum((self.ages > 25)[self.targets])])
        return pa.table({"paths": [int(np.dot(ways, last[self.starts[1:]] - last[self.starts[:-1]]))]})

    def hop1(self) -> pa.Table:
        found = self._next(self._rows(START))
        return pa.table({"num": self.nums[found], "name": self.names.take(pa.array(found))})

    def within(self, hops: int) -> pa.Table:
        return pa.table({"persons": [self._reached(int(self._rows(START)[0]), hops)]})

    def reach100(self) -> pa.Table:
        rows = np.flatnonzero(np.isin(self.nums, self.many))
        return pa.table({"num": self.nums[rows], "persons": [self._reached(int(row), 3) for row in rows]})

    def rows100(self) -> pa.Table:
        first = np.flatnonzero(np.isin(self.nums, self.many))
        through = self._next(first)
        first = np.repeat(first, self._counts(first))
        young = self.ages[through] < 50
        first, through = first[young], through[young]
        last = self._next(through)
        counts = self._counts(through)
        first, through = np.repeat(first, counts), np.repeat(through, counts)
        old = self.ages[last] > 25
        first, through, last = first[old], through[old], last[old]
        columns = {"first": self.nums[first], "through": self.nums[through], "last": self.nums[last]}
        return pa.table({**columns, "name": self.names.take(pa.array(last))})

    def _rows(self, num: int) -> Numbers:
        return np.flatnonzero(self.nums == num)

    def _counts(self, rows: Numbers) -> Numbers:
        counts: Numbers = self.starts[rows + 1] - self.starts[rows]
        return counts

    def _next(self, rows: Numbers) -> Numbers:
        """Whom these follow, one after another."""
        counts = self._counts(rows)
        ends = np.cumsum(counts)
        where = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.starts[rows] - ends + counts, counts)
        found: Numbers = self.targets[where]
        return found

    def _reached(self, row: int, hops: int) -> int:
        seen = np.zeros(len(self.nums), bool)
        seen[row] = True
        edge, total = np.array([row]), 0
        for _ in range(hops):
            found = self._next(edge)
            fresh = np.zeros(len(self.nums), bool)
            fresh[found] = True
            fresh &= ~seen
            seen |= fresh
            edge = np.flatnonzero(fresh)
            total += len(edge)
        return total


def store(files: Path, place: Path) -> None:
    place.symlink_to(files, target_is_directory=True)


def answers(place: Path, persons: int) -> Answers:
    walks = Walks(place, persons)
    named = {name: getattr(walks, name) for name in ("q1", "q8", "q9", "hop1", "reach100", "rows100")}
    return {**named, "hop2": partial(walks.within, 2), "hop3": partial(walks.within, 3)}


if __name__ == "__main__":
    main(store, answers)
