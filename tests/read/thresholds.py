"""Overrides of the engine's thresholds, so that small graphs take the code paths of large ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from random import Random

from omnigraph.testing import thresholds

CHOICES: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "topology.adjacency": {
        "CHUNK_EDGES": (1, 3, 1 << 18),
        "CHUNK_PAIRS": (1, 7, 1 << 18),
        "PAIRS_PER_EDGE_RATIO": (0, 8, 10**9),
        "COLUMN_RATIO": (0, 8, 10**9),
        "MAX_MATRIX_PAIRS": (-1, 1 << 25),
        "LOOP_SEARCH_COST_EDGES": (0, 20_000),
    },
    "topology.edge_lookup": {
        "LOOKUP_COST_EDGES": (-(10**9), -(10**9), 10_000),
        "LOOKUP_COST_EDGES_PER_NODE": (0, 1_000),
        "LOOKUP_COST_EDGES_PER_RESULT": (0, 10),
        "MAX_UNINDEXED_EDGES": (0, 10**9),
    },
    "execute.executor": {"MEMORY_RATIO": (1, 1, 1, 10**12)},
    "match.chunked_match": {"CHUNK_MEMORY_RATIO": (2, 10**12)},
    "budget.chunks": {"CHUNK_ROWS": (5, 60, 1 << 16)},
    "shape.out_of_core": {
        "MIN_BUFFER_BYTES": (1 << 14, 1 << 20),
        "BUFFER_MEMORY_RATIO": (8, 10**12),
        "MAX_PARTITIONS": (3, 64),
        "SAMPLES_PER_PARTITION": (1, 16),
    },
    "columns.stoppable": {"ARRAY_CHUNK_ROWS": (1, 3, 1 << 20)},
    "columns.sorting": {
        "SORT_CHUNK_ROWS": (4, 1 << 17),
        "MAX_UNPACKED_ROWS": (0, 4, 512),
        "NEARLY_SORTED_ROWS_PER_DESCENT": (0, 64, 10**9),
        "RANK_CHUNK_ROWS": (4, 1 << 15),
        "SAMPLES_PER_BOUND": (1, 8),
        "BLOCK_ROWS": (2, 64),
        "MIN_BLOCKS_PER_RESULT": (1, 4),
        "NUMBERS_PER_ROW": (0, 4, 100),
    },
    "match.candidates": {"SPARSE_RATIO": (0, 16, 10**6), "MAX_EXACT_COUNT_NODES": (0, 2, 20_000)},
    "shape.group_codes": {
        "WHOLE_COLUMN_RATIO": (0, 4, 10**6),
        "SLOTS_PER_ROW": (0, 8),
        "MIN_SLOTS": (0, 1 << 16),
        "MAX_UNCHUNKED_VALUES": (2, 1 << 18),
    },
    "match.meet": {"CHUNK_PATHS": (1, 5, 1 << 19), "MIN_MARK_BITS": (1, 12), "MAX_MARK_BITS": (1, 24)},
    "match.close": {"MIN_SHORTER_GAIN": (0.0, 1.5, 10**9)},
    "shape.groups": {"MIN_CLUSTERED_ROWS": (0, 1 << 10, 10**9)},
    "shape.distinct_counts": {"MARKS_PER_ROW": (0, 8), "MIN_MARKS": (0, 1 << 16), "MAX_HASHED_SHARE": (0.0, 0.25, 1.0)},
    "match.count": {"MIN_REPLANNED_COST_EDGES": (0.0, 20_000.0)},
    "match.narrow": {"NARROW_RATIO": (0, 1, 8, 10**6)},
    "match.node_weights": {"SPARSE_RATIO": (0, 1, 8, 10**6)},
    "match.fold": {"SAFE_SUM": (5.0, float(2**62))},
    "match.parts": {
        "PART_ROWS": (1, 5, 1 << 19),
        "FIRST_PART_RATIO": (1, 8),
        "MIN_PARALLEL_ROWS": (0, 1 << 20),
        "MIN_PARALLEL_BYTES": (0, 128 << 20),
    },
    "plan.planner": {
        "MIN_SUBTRACT_GAIN": (0.0, 0.0, 1.0, 10**9),
        "SUBTRACT_PLAN_COST_EDGES": (0.0, 20_000.0),
        "MIN_FOLD_COST_EDGES": (-1.0, -1.0, 50_000.0),
        "MIN_FOLD_GAIN": (0.0, 0.0, 1.0),
    },
    "plan.plan_candidates": {"MIN_EXCLUDE_GAIN": (0.0, 1.0, 10**9), "MIN_EXCLUDE_COST_EDGES": (0.0, 20_000.0)},
    "plan.plan_portions": {
        "MIN_FULL_MATCH_COST_EDGES": (-1.0, 20_000.0),
        "MIN_GAIN": (0.0, 2.0),
        "FIRST_PORTION_ROWS": (1, 3, 1_000),
    },
    "rows.frame": {
        "WHOLE_TABLE_RATIO": (0, 4, 10**6),
        "KEYS_PER_ROW": (0, 4, 10**4),
        "MIN_KEYS": (0, 1 << 16),
        "MIN_HASHED_ROWS": (0, 1 << 12),
        "MAX_DISTINCT_SHARE": (0.0, 0.5, 1.0),
    },
    "columns.hash_groups": {"SLOTS_PER_KEY": (0, 2), "MAX_PASSES": (1, 2, 4), "CHUNK_KEYS": (1, 3, 1 << 15)},
    "match.hops": {
        "MAX_MARKED_PAIRS": (1, 50, 1 << 26),
        "MAX_BATCHED_EDGES_PER_START": (0.0, 3.0, 500.0),
    },
    "match.marks": {"SPARSE_RATIO": (1, 32, 10**9)},
    "match.shortest_paths": {
        "MAX_MARKED_PAIRS": (0, 50, 1 << 26),
        "FIRST_STARTS": (1, 2, 8),
        "LAYER_EDGES": (1, 10, 1 << 19),
    },
    "match.both_ways": {"MAX_MARKED_PAIRS": (1, 50, 1 << 26), "PAIR_COST_RATIO": (0.0, 0.0, 1.0, 10.0**12)},
    "columns.id_index": {"SLOTS_PER_ENTITY": (0, 4), "MAX_SINGLE_IDS": (0, 64)},
    "columns.numbers": {"SPARSE_RATIO": (0, 64, 10**6), "SEARCH_RATIO": (0, 16, 10**6)},
    "match.index_lookup": {"SMALL_TABLE_ROWS": (0, 50_000)},
    "plan.plan_rank": {"MIN_FULL_MATCH_COST_EDGES": (-1.0, -1.0, 20_000.0), "MIN_GAIN": (0.0, 1.5)},
    "match.rank": {"SAFETY_FACTOR": (0.01, 1, 2)},
    "match.block_value": {"CHUNK_ROWS": (1, 5, 1 << 20), "MAX_CHUNKS": (1, 1000)},
    "match.scan": {"CHUNK_ROWS": (1, 5, 1 << 19)},
    "plan.join_order": {
        "MAX_EXHAUSTIVE_VARIABLES": (0, 8),
        "BEAM_WIDTH": (1, 24),
        "MEET_COST_EDGES": (0.0, 0.0, 6.0),
        "LATE_TEST_COST_EDGES": (0.0, 4.0),
        "OPERATOR_COST_ROWS": (0.0, 50.0),
        "MIN_COST_PER_STATE_EDGES": (0.0, 50_000.0),
        "IN_ORDER_WALK_COST_EDGES": (0.0, 0.6),
    },
    "plan.refined_order": {
        "MIN_REFINED_COST_EDGES": (0.0, 500_000.0),
        "MIN_COST_PER_NODE_EDGES": (0.0, 2.0, 10.0**9),
        "MIN_COST_PER_COUNTED_EDGE": (0.001, 16.0),
    },
    "shape.value_ranks": {"MAX_DIRECT_ROWS": (0, 512), "WHOLE_COLUMN_RATIO": (0, 4, 10**6)},
    "columns.distinct_values": {"MIN_ENTITIES": (0, 0, 4_096), "MAX_DISTINCT_VALUES": (0, 2, 4_096)},
    "columns.column_codes": {"WHOLE_COLUMN_RATIO": (0, 4, 10**6)},
    "columns.sort_keys": {"SELECTION_RATIO": (1, 2, 4), "SMALL_SORT_ROWS": (0, 256, 256)},
    "search.entities": {"SLOTS_PER_ROW": (0, 8)},
    "search.fusion": {"MAX_EARLY_ENTITIES": (1, 10**9), "KNOWN_FACTOR": (0.001, 0.01, 1.25)},
    "search.rankings": {"SORTED_FACTOR": (1, 4), "MAX_COUNTED_ENTITIES": (0, 48), "SAMPLE_RATIO": (1, 3, 16)},
    "search.word_store": {"MIN_SAVED_TOKENS": (0, 1_000_000), "SAVED_CHANGE_RATIO": (1, 20, 10**6)},
    "search.vector_sketch": {"MIN_DIMENSIONS": (1, 32)},
    "search.search": {"SPARSE_RATIO": (0, 1, 8, 10**6), "MIN_INDEXED_ENTITIES": (0, 100_000), "SPARSE_READS": (1, 16)},
    "search.index_update": {"REBUILD_RATIO": (1, 2, 10)},
    "search.vectors": {
        "MIN_SKETCHED_VECTORS": (0, 5_000),
        "CANDIDATE_FACTOR": (1, 4),
        "SKETCH_COST_PRODUCTS": (0, 16),
        "PARTIAL_COST_RATIO": (1, 6),
        "MAX_SKIPPED_BITS": (0, 8),
    },
    "columns.entity_table": {
        "SMALL_TABLE_ROWS": (0, 10_000),
        "LOOKUP_COST_ROWS": (-(10**6), 0, 40_000),
        "LOOKUP_COST_ROWS_PER_VALUE": (1, 50),
        "INDEX_SEARCH_COST_ROWS": (-(10**6), 20_000),
        "MAX_IDS_BY_SCAN": (0, 16),
        "ID_INDEX_COST_SCANS": (0, 50, 10**6),
        "HASH_TABLE_COST_SCANS": (1, 25, 10**6),
    },
    "topology.topology": {"CHUNK_EDGES": (1, 1 << 18)},
    "topology.topologies": {"SAVED_CHANGE_RATIO": (1, 20, 10**6), "SAVED_CHANGE_EDGES": (0, 1_000)},
    "topology.topology_update": {"REBUILD_RATIO": (1, 2, 10), "MAX_SLICED_INSERTS": (0, 1_000)},
}
"""Values of each threshold: its default, and values with which small graphs take the code paths of large ones."""

FORMAT_CHOICES: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "columns.numbering": {"MAX_SLOTS_PER_ENTITY": (1, 2, 4)},
    "topology.adjacency": {"FILTER_BITS_PER_EDGE": (0, 1, 16)},
}
"""Values of thresholds on which derived files or cached arrays depend. All reads of a graph need the same ones."""


@contextmanager
def turned(rng: Random, choices: Mapping[str, Mapping[str, tuple[float, ...]]] = CHOICES) -> Iterator[dict[str, float]]:
    """Override the thresholds of the engine for a while. Half of the time they keep their defaults."""
    chosen: dict[str, float] = {}
    with ExitStack() as turns:
        if rng.random() < 0.5:
            for module, numbers in choices.items():
                values = {name: rng.choice(choices) for name, choices in numbers.items()}
                chosen |= {f"{module}.{name}": value for name, value in values.items()}
                turns.enter_context(thresholds(import_module(f"omnigraph.read.{module}"), **values))
        yield chosen
