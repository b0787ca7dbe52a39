"""A load of files into a new graph in one process: `python bench/bulk/in_process.py FILES PLACE`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import omnigraph
from bulk.data import SCHEMA
from bulk.measure import report
from bulk.state import Phases, state
from omnigraph.graph import Graph


def load(graph: Graph, files: str, phases: Phases) -> None:
    graph.load(files, mode="append", progress=phases)
    phases.end()


files, place = sys.argv[1:]
phases = Phases()
with omnigraph.init(place, SCHEMA) as graph:
    report(lambda: load(graph, files, phases), lambda: {"phases": phases.seconds, **state(graph)})
