"""The study in DuckDB: a database file, keys on the nodes, edges in order and with an index on where they begin."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import duckdb
import pyarrow as pa

from study.serve import Answers, main
from study.sql import texts


def store(files: Path, place: Path) -> None:
    with duckdb.connect(str(place)) as base:
        for file in sorted(files.iterdir()):
            base.execute(f"CREATE TABLE {file.stem} AS FROM '{file}'")
            columns = [name for name, *_ in base.execute(f"DESCRIBE {file.stem}").fetchall()]
            if "num" in columns:
                base.execute(f"ALTER TABLE {file.stem} ADD PRIMARY KEY (num)")
            else:
                base.execute(f'CREATE INDEX {file.stem}_from ON {file.stem} ("from")')
        base.execute("ANALYZE")


def answers(place: Path, persons: int) -> Answers:
    base = duckdb.connect(str(place), read_only=True)
    known = texts(persons, kept="MATERIALIZED")
    # Counting different numbers with bits is what DuckDB does best.
    known["reach100"] = known["reach100"].replace("count(DISTINCT n)", f"bit_count(bitstring_agg(n, 0, {persons}))")
    return {name: partial(ask, base, text) for name, text in known.items()}


def ask(base: duckdb.DuckDBPyConnection, text: str) -> pa.Table:
    return base.sql(text).to_arrow_table()


if __name__ == "__main__":
    main(store, answers)
