"""A load of files into a new graph: `python bench/bulk/ours.py FILES PLACE`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import omnigraph
from bulk.data import SCHEMA
from bulk.measure import report

files, place = sys.argv[1:]
with omnigraph.init(place, SCHEMA) as graph:
    report(lambda: graph.load(files, mode="append"))
