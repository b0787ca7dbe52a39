"""The side of an engine: it stores a graph once, and then answers orders that come as lines of JSON.

    python bench/asking/NAME.py store FILES PLACE GRAPH
    python bench/asking/NAME.py open PLACE GRAPH

An order is `["answer", text, seconds, file]`, `["sample", text, seconds, repeats]` or `["explain", text]`. The reply is
`["done", seconds of each call]`, `["stopped", why]` when the engine gave up or ran out of time, or `["plan", text]`.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from asking.graphs import GRAPHS, Graph


class StoppedError(Exception):
    """The engine gave up: out of time, or out of memory."""


class Engine(Protocol):
    def ask(self, text: str, seconds: float) -> pa.Table:
        """Answer a question.

        Raises:
            StoppedError: the engine gave up.
        """
        ...

    def explain(self, text: str) -> str: ...


def main(store: Callable[[Path, Path, Graph], object], open_: Callable[[Path], Engine]) -> None:
    task, *words = sys.argv[1:]
    if task == "store":
        files, place, graph = words
        store(Path(files), Path(place), GRAPHS[graph])
        return
    replies, sys.stdout = sys.stdout, sys.stderr
    engine = open_(Path(words[0]))
    for line in sys.stdin:
        print(json.dumps(_reply(engine, *json.loads(line))), file=replies, flush=True)


def _reply(engine: Engine, order: str, text: str, *rest: float | str) -> tuple[str, float | str]:
    if order == "explain":
        return "plan", engine.explain(text)
    seconds = float(rest[0])
    try:
        if order == "answer":
            start = time.perf_counter()
            found = engine.ask(text, seconds)
            taken = time.perf_counter() - start
            _save(found, str(rest[1]))
            return "done", taken
        return "done", _sample(engine, text, seconds, int(rest[1]))
    except StoppedError as error:
        return "stopped", str(error)


def _sample(engine: Engine, text: str, seconds: float, repeats: int) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(repeats):
            engine.ask(text, seconds)
        return (time.perf_counter() - start) / repeats
    finally:
        gc.enable()


def _save(answer: pa.Table, file: str) -> None:
    with pa.ipc.new_file(file, answer.schema) as sink:
        sink.write_table(answer)
