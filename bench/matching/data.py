"""The persons of the study, and beside them a small network in the shape of LSQB at scale 0.1.

The small network has 1,700 members who know each other 36,270 times (each pair in both directions; a few members know
very many), in 1,343 towns of 111 nations, with 23 tags each. Its names differ from those of the study, so that both fit
into one database.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from study import data as study

MEMBERS = 1_700
PAIRS = 36_270 // 2
SKEW = 1.33
"""The deviation of the logarithm of how many a member knows: there are 2.4 million paths of two."""
TOWNS, NATIONS, TAGS, TAGS_EACH = 1_343, 111, 16_080, 23


def write_files(folder: Path, persons: int = study.PERSONS) -> None:
    """A Parquet file for each type. Edges have the columns `from` and `to`, sorted by both."""
    study.write_files(folder, persons)
    for name, table in small_network(max(MEMBERS * persons // study.PERSONS, 40)).items():
        pq.write_table(table, folder / f"{name}.parquet")


def small_network(members: int = MEMBERS) -> dict[str, pa.Table]:
    random = np.random.default_rng(20_210_621)
    towns, tags = max(TOWNS * members // MEMBERS, 8), max(TAGS * members // MEMBERS, 50)
    nations = min(NATIONS, towns // 2)
    homes = (towns * random.power(0.5, members)).astype(np.int64)
    liked = (tags * random.power(0.5, members * TAGS_EACH)).astype(np.int64)
    return {
        "Member": pa.table({"num": np.arange(members)}),
        "Town": pa.table({"num": np.arange(towns)}),
        "Nation": pa.table({"num": np.arange(nations)}),
        "Tag": pa.table({"num": np.arange(tags)}),
        "Knows": _knows(random, homes % nations, PAIRS * members // MEMBERS),
        "LocatedIn": study.edges(np.arange(members), homes),
        "PartOf": study.edges(np.arange(towns), np.arange(towns) % nations),
        "Likes": study.edges(random.integers(0, members, members * TAGS_EACH), liked),
    }


def _knows(random: np.random.Generator, nations: study.Numbers, pairs: int) -> pa.Table:
    """So many pairs, in both directions. Half of them are within a nation, where there is anybody else."""
    members = len(nations)
    weight = random.lognormal(0, SKEW, members)
    one, two = (random.choice(members, pairs * 4, p=weight / weight.sum()) for _ in range(2))
    near = _nearby(random, nations, weight, one)
    two = np.where(random.random(len(two)) < 0.5, near, two)
    low, high = np.minimum(one, two), np.maximum(one, two)
    keys = (low * members + high)[low != high]
    _, first = np.unique(keys, return_index=True)
    low, high = np.divmod(keys[np.sort(first)[:pairs]], members)
    return study.edges(np.concatenate([low, high]), np.concatenate([high, low]))


def _nearby(
    random: np.random.Generator,
    nations: study.Numbers,
    weight: np.ndarray[tuple[int], np.dtype[np.float64]],
    ones: study.Numbers,
) -> study.Numbers:
    """For each of these members another one of the same nation."""
    found = ones.copy()
    for nation in np.unique(nations[ones]):
        there, wanted = np.flatnonzero(nations == nation), np.flatnonzero(nations[ones] == nation)
        found[wanted] = random.choice(there, len(wanted), p=weight[there] / weight[there].sum())
    return found
