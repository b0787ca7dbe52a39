"""Make the indexed graph of a size: `python bench/scaling/load.py EDGES PLACE`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa

import omnigraph
from bulk.measure import report
from scaling.data import SCHEMA, names, portions

edges, place = int(sys.argv[1]), sys.argv[2]


def load() -> None:
    everybody = names(edges)
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load({"Person": pa.table({"name": everybody})}, mode="append")
        for source, target in portions(edges):
            rows = {"from": everybody.take(pa.array(source)), "to": everybody.take(pa.array(target))}
            graph.load({"Follows": pa.table(rows)}, mode="append")
        graph.ensure_indexes()


report(load)
