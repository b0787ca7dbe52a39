"""Answers of a process that has its topology: `python bench/scaling/hops.py EDGES PLACE ROUNDS`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import omnigraph
from bulk.measure import peak_memory
from scaling.questions import QUESTIONS, ask, starts

WARM = 4
edges, place, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
chosen = starts(edges)
graph = omnigraph.open(place, read_only=True)
answers = {name: [ask(graph, text, start) for start in chosen] for name, text in QUESTIONS.items()}
samples: dict[str, list[float]] = {name: [] for name in QUESTIONS}
for _ in range(WARM * (rounds - 1)):
    # Until columns that are asked for again and again are in memory, and the ids of all people are in order.
    for text in QUESTIONS.values():
        for start in chosen:
            ask(graph, text, start)
for _ in range(rounds):
    for name, text in QUESTIONS.items():
        begun = time.process_time()
        for start in chosen:
            ask(graph, text, start)
        samples[name].append((time.process_time() - begun) / len(chosen))
print(json.dumps({"answers": answers, "samples": samples, "peak": peak_memory()}))
