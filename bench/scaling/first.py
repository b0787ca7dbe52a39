"""The first answer of a new process: `python bench/scaling/first.py EDGES PLACE QUESTION`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def first(edges: int, place: str, question: str) -> dict[str, object]:
    begun = time.perf_counter()
    # What a process has to import is part of what is measured.
    import omnigraph
    from bulk.measure import peak_memory
    from scaling.data import name_of
    from scaling.questions import QUESTIONS, ask, starts

    text, start = QUESTIONS[question], starts(edges)[0]
    open_graph = omnigraph.open  # which imports the engine
    imported, cpu = time.perf_counter(), time.process_time()
    graph = open_graph(place, read_only=True)
    opened = time.perf_counter()
    answer = ask(graph, text, start)
    answered = time.perf_counter()
    figures = {
        "import": imported - begun,
        "open": opened - imported,
        "first": answered - opened,
        "cpu": time.process_time() - cpu,
        "peak": peak_memory(),
        "answer": answer,
    }
    steps = graph.explain(text, {"name": name_of(start)}, analyze=True).to_json()["steps"]
    return figures | {"ways": sorted({way for step in steps for way in step.get("edges_by", [])})}


print(json.dumps(first(int(sys.argv[1]), sys.argv[2], sys.argv[3])))
