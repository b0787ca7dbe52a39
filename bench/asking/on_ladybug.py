"""Random questions to ladybug: tables with keys, and a prepared statement for each question."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ladybug
import pyarrow as pa

from asking.graphs import MEMORY, Graph
from asking.serve import StoppedError, main
from study.on_ladybug import copy

NODE = "CREATE NODE TABLE {name}(num INT64 PRIMARY KEY, rank INT64, score INT64, kind STRING, mark INT64);"
GAVE_UP = ("interrupt", "timeout", "memory", "buffer")


def store(files: Path, place: Path, graph: Graph) -> None:
    nodes = "".join(NODE.format(name=name) for name in graph.nodes)
    edges = "".join(f"CREATE REL TABLE {edge.name}(FROM {edge.source} TO {edge.target});" for edge in graph.edges)
    copy(files, place, nodes + edges)


class Ladybug:
    """Ladybug, with a graph open."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._open()

    def _open(self) -> None:
        self._base = ladybug.Database(str(self._place), read_only=True, buffer_pool_size=MEMORY)
        self._connection = ladybug.Connection(self._base)
        self._prepare = lru_cache(maxsize=4)(lambda text: self._connection.prepare(text, {}))

    def ask(self, text: str, seconds: float) -> pa.Table:
        self._connection.set_query_timeout(int(seconds * 1000))
        try:
            return self._connection.execute(self._prepare(text), {}).get_as_arrow()
        except RuntimeError as error:
            if not any(word in str(error).lower() for word in GAVE_UP):
                raise
            # A statement that was interrupted keeps its memory, and later ones find none.
            self._prepare.cache_clear()
            self._connection.close()
            self._base.close()
            self._open()
            raise StoppedError(str(error)) from error

    def explain(self, text: str) -> str:
        return str(self._connection.execute(f"EXPLAIN {text}").get_as_arrow().to_pylist())


if __name__ == "__main__":
    main(store, Ladybug)
