"""A merge of random branches gives the rows or conflicts of a plain Python model."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from tests.merge.model import SCHEMA, World
from tests.merge.repository_model import empty
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.merge import located_rows
from omnigraph.storage import row_changes, row_pairs

SEEDS = range(int(os.environ.get("OMNIGRAPH_MERGES", "16")))


def _world(place: Path, random: Random) -> World:
    world = World(omnigraph.init(place, SCHEMA))
    world.record("main", empty())
    for _ in range(random.randrange(3, 8)):
        world.write("main", random)
    return world


def _as_if_many(thresholds: Thresholds) -> None:
    """Read rows as if there were many: by scans, and in several groups."""
    thresholds(row_pairs, SCAN_ROWS=0, SCAN_RATIO=1_000_000, GATHER_ROWS=2)
    thresholds(located_rows, GROUP_ROWS=3)
    thresholds(row_changes, LOOKUP_LIMIT=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_merge_of_two_random_branches_agrees_with_the_model(place: Path, seed: int, thresholds: Thresholds) -> None:
    random = Random(seed)
    if seed % 2:
        _as_if_many(thresholds)
    world = _world(place, random)
    world.branch("side", "main")
    for _ in range(random.randrange(1, 5)):
        world.write("side", random)
    for _ in range(random.randrange(0, 4)):
        world.write("main", random)
    strategy = random.choice((None, "ours", "theirs"))
    world.merge("side", "main", strategy, memory_budget=random.choice((None, "1 KiB")))
    assert world.graph.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_merges_between_many_random_branches_agree_with_the_model(
    place: Path, seed: int, thresholds: Thresholds
) -> None:
    random = Random(1000 + seed)
    if seed % 2:
        _as_if_many(thresholds)
    world = _world(place, random)
    names = ["main"]
    for step in range(random.randrange(8, 16)):
        what = random.random()
        if what < 0.2 and len(names) < 4:
            names.append(f"branch{step}")
            world.branch(names[-1], random.choice(names[:-1]))
        elif what < 0.6 or len(names) == 1:
            for _ in range(random.randrange(1, 4)):
                world.write(random.choice(names), random)
        else:
            source, target = random.sample(names, 2)
            world.merge(source, target, random.choice((None, "ours", "theirs")))
    assert all(world.graph.verify(branch=name).ok for name in names)
