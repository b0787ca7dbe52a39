"""Overrides of the engine's thresholds, so that small graphs take the code paths of large ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from random import Random
from unittest.mock import patch

CHOICES: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "topology.adjacency": {"_PORTION": (1, 3, 1 << 18), "_LOOKING": (0, 20_000)},
    "topology.edge_lookup": {
        "_ASKING": (-(10**9), -(10**9), 10_000),
        "_EACH": (0, 1_000),
        "_FOUND": (0, 10),
        "_UNCOVERED": (0, 10**9),
    },
    "execute.executor": {"_AT_ONCE": (1, 1, 1, 10**12)},
    "match.chunked_match": {"_SHARE": (2, 10**12)},
    "budget.chunks": {"CHUNK_ROWS": (5, 60, 1 << 16)},
    "shape.out_of_core": {
        "_LEAST": (1 << 14, 1 << 20),
        "_WAITING": (8, 10**12),
        "_PARTS": (3, 64),
        "_SAMPLES": (1, 16),
    },
    "columns.sorting": {
        "_PIECE": (4, 1 << 17),
        "_FEW": (0, 4, 512),
        "_FEW_DESCENTS": (0, 64, 10**9),
        "_TEXTS": (4, 1 << 15),
        "_SAMPLES": (1, 8),
        "_STRETCH": (2, 64),
        "_MANY": (1, 4),
    },
    "match.candidates": {"_SPARSE": (0, 16, 10**6), "_TRIED": (0, 2, 20_000)},
    "shape.group_codes": {"_WORTHWHILE": (0, 4, 10**6), "_ROOM": (0, 8), "_LEAST": (0, 1 << 16), "_MANY": (2, 1 << 18)},
    "match.count": {"_FEW": (0, 1, 8, 10**6)},
    "match.expand": {"_TOGETHER": (1, 5, 1 << 19)},
    "plan.plan_portions": {"_CHEAP": (-1.0, 20_000.0), "_GAIN": (0.0, 2.0), "_LEAST": (1, 3, 1_000)},
    "rows.frame": {"_OFTEN": (0, 4, 10**6)},
    "match.hops": {"_BITS": (1, 50, 1 << 26), "_SPARSE": (1, 32, 10**9), "_MUCH": (0.0, 3.0, 500.0)},
    "columns.id_index": {"_ROOM": (0, 4), "_SINGLE": (0, 64)},
    "columns.numbers": {"_SPREAD": (0, 64, 10**6)},
    "match.index_lookup": {"_LARGE": (0, 50_000)},
    "plan.plan_rank": {"_CHEAP": (-1.0, -1.0, 20_000.0), "_GAIN": (0.0, 1.5)},
    "match.scan": {"_TOGETHER": (1, 5, 1 << 19)},
    "plan.join_order": {"_ALL_WAYS": (0, 8), "_KEPT": (1, 24), "_LATE": (0.0, 4.0), "_STEP": (0.0, 50.0)},
    "shape.value_ranks": {"_FEW": (0, 512), "_WORTHWHILE": (0, 4, 10**6)},
    "columns.sort_keys": {"_MANY": (1, 2, 4)},
    "search.entities": {"_ROOM": (0, 8)},
    "search.fusion": {"_FURTHER": (1, 4), "_FEW": (0, 48)},
    "search.word_store": {"_WORTH_KEEPING": (0, 1_000_000), "_KEPT_CHANGE": (1, 20, 10**6)},
    "search.vector_sketch": {"_LEAST": (1, 32)},
    "search.search": {"_MANY": (0, 1, 8, 10**6), "_LARGE": (0, 100_000), "_OFTEN": (1, 16)},
    "search.index_update": {"_SMALL_CHANGE": (1, 2, 10)},
    "search.vectors": {"_WORTHWHILE": (0, 5_000), "_LIKELY": (1, 4), "_PRICE": (0, 16)},
    "columns.entity_table": {
        "_SMALL": (0, 10_000),
        "_ASKING": (-(10**6), 0, 10_000),
        "_TAKING": (1, 50),
        "_SCANNING": (-(10**6), 20_000),
        "_FEW": (0, 16),
        "_INDEXING": (0, 50, 10**6),
        "_PREPARING": (1, 25, 10**6),
        "_SPARSE": (1, 2, 4),
    },
    "topology.topology": {
        "_TOGETHER": (1, 1 << 18),
        "_KEPT_CHANGE": (1, 20, 10**6),
        "_KEPT_EDGES": (0, 1_000),
    },
    "topology.topology_update": {"_SMALL_CHANGE": (1, 2, 10), "_FEW": (0, 1_000)},
}
"""Values of each threshold: its default, and values with which small graphs take the code paths of large ones."""


@contextmanager
def turned(rng: Random) -> Iterator[dict[str, float]]:
    """Override the thresholds of the engine for a while. Half of the time they keep their defaults."""
    chosen = {}
    with ExitStack() as turns:
        if rng.random() < 0.5:
            for module, numbers in CHOICES.items():
                home = import_module(f"omnigraph.read.{module}")
                for name, choices in numbers.items():
                    chosen[f"{module}.{name}"] = value = rng.choice(choices)
                    if hasattr(home, name):
                        turns.enter_context(patch.object(home, name, value))
        yield chosen
