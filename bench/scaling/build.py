"""Make the topology of a graph, whose indexes are there: `python bench/scaling/build.py PLACE`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import omnigraph
from bulk.measure import report

with omnigraph.open(sys.argv[1]) as graph:
    report(graph.ensure_indexes)
