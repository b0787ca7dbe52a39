"""Every way to get at an answer gives the same one: each is forced, and compared with the oracle."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from tests.read.test_oracle_agrees import QUERIES, agreed

from omnigraph.read.space import space
from omnigraph.read.space.cache import ColumnCache

PAIRS = 150


def _values_by_row_id(patch: pytest.MonkeyPatch) -> None:
    """No column is read whole where single values can be asked for."""
    patch.setattr(space, "_SMALL", 0)
    patch.setattr(space, "_ASKING", 0)
    patch.setattr(space, "_TAKING", 1)
    patch.setattr(ColumnCache, "rents", lambda *_: True)


def _everything_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Columns and indexes of ids are made at once."""
    patch.setattr(ColumnCache, "rents", lambda *_: False)


def _nothing_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Nothing is kept for the next read."""
    patch.setattr(ColumnCache, "_keep", lambda *_: None)


def _listing(patch: pytest.MonkeyPatch) -> None:
    """Nothing is counted without being listed."""
    patch.setattr("omnigraph.read.engine.can_be_counted", lambda *_: None)


WAYS = [
    _values_by_row_id,
    _everything_in_memory,
    _nothing_in_memory,
    _listing,
]


@pytest.mark.parametrize("way", WAYS)
def test_this_way_agrees_with_the_oracle(way: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(way)
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    way(monkeypatch)
    done: Counter[str] = Counter()
    for seed in count(70_000 + 100 * WAYS.index(way)):
        done += agreed(seed, range(QUERIES), PAIRS - done.total())
        if done.total() >= PAIRS:
            return
