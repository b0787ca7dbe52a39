"""Random questions to DuckDB: keys on the nodes, edges in order and with an index on where they begin."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Timer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import duckdb
import pyarrow as pa

from asking.graphs import MEMORY, Graph
from asking.serve import StoppedError, main
from study.on_duckdb import store as store_files


def store(files: Path, place: Path, graph: Graph) -> None:
    store_files(files, place)


class DuckDB:
    """DuckDB, with a graph open."""

    def __init__(self, place: Path) -> None:
        self._base = duckdb.connect(str(place), read_only=True, config={"memory_limit": f"{MEMORY}B"})

    def ask(self, text: str, seconds: float) -> pa.Table:
        watch = Timer(seconds, self._base.interrupt)
        watch.start()
        try:
            return self._base.sql(text).to_arrow_table()
        except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
            raise StoppedError(str(error)) from error
        finally:
            watch.cancel()

    def explain(self, text: str) -> str:
        return str(self._base.sql(f"EXPLAIN {text}").fetchall()[0][1])


if __name__ == "__main__":
    main(store, DuckDB)
