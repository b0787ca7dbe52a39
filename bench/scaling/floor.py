"""The floor: the same arrays from ends that are numbers already, and walks over them in numpy alone.

`python bench/scaling/floor.py EDGES ROUNDS` says how long both take, and what the answers to all questions are.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import numpy.typing as npt

from bulk.measure import peak_memory
from scaling.data import Ends, people, portions
from scaling.questions import Answer, starts

Numbers = npt.NDArray[np.int64]


class Arrays:
    """The edges by one end."""

    def __init__(self, near: Ends, far: Ends, nodes: int) -> None:
        order = np.argsort(near, kind="stable")
        self.far, self.edge = far[order], order.astype(np.int32)
        self.first = np.concatenate([[0], np.cumsum(np.bincount(near, minlength=nodes))])

    def next(self, nodes: Numbers) -> Numbers:
        begin, degree = self.first[nodes], self.first[nodes + 1] - self.first[nodes]
        at = np.repeat(begin - (np.cumsum(degree) - degree), degree) + np.arange(int(degree.sum()))
        return self.far[at].astype(np.int64)


def one(out: Arrays, start: int) -> Answer:
    found = np.unique(out.next(np.array([start])))
    return len(found), int(found.sum())


def two(out: Arrays, start: int) -> Answer:
    parts = [one(out, int(node)) for node in np.unique(out.next(np.array([start])))]
    return sum(rows for rows, _ in parts), sum(total for _, total in parts)


def three(out: Arrays, start: int) -> Answer:
    seen = frontier = np.array([start])
    loop = int((out.next(frontier) == start).any())
    for _ in range(3):
        frontier = np.setdiff1d(out.next(frontier), seen)
        seen = np.union1d(seen, frontier)
    return len(seen) - 1 + loop, 0


WALKS = {"1 hop, names": one, "2 hops, names": two, "3 hops, reach": three}

edges, rounds = int(sys.argv[1]), int(sys.argv[2])
source, target = (np.concatenate(part) for part in zip(*portions(edges), strict=True))
begun, cpu = time.perf_counter(), time.process_time()
out = Arrays(source, target, people(edges))
into = Arrays(target, source, people(edges))
figures: dict[str, object] = {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
chosen = starts(edges)
samples: dict[str, list[float]] = {name: [] for name in WALKS}
for _ in range(rounds):
    for name, walk in WALKS.items():
        begun = time.process_time()
        for start in chosen:
            walk(out, start)
        samples[name].append((time.process_time() - begun) / len(chosen))
figures["answers"] = {name: [walk(out, start) for start in chosen] for name, walk in WALKS.items()}
print(json.dumps({**figures, "samples": samples, "peak": peak_memory()}))
