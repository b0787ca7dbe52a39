"""The same Parquet files into ladybug: `.venv-bench/bin/python bench/bulk/ladybug_copy.py FILES PLACE`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ladybug

from bulk.measure import report


def copy(files: Path, place: Path) -> None:
    place.mkdir(parents=True)
    connection = ladybug.Connection(ladybug.Database(str(place / "graph.lbug")))
    connection.execute("CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT32, city STRING)")
    connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since DATE, weight FLOAT)")
    for name in ("Person", "Knows"):
        connection.execute(f"COPY {name} FROM '{files / name}.parquet'")
    connection.close()


def counts(place: Path) -> dict[str, dict[str, int]]:
    connection = ladybug.Connection(ladybug.Database(str(place / "graph.lbug")))
    asked = {"node:Person": "MATCH (p:Person)", "edge:Knows": "MATCH ()-[k:Knows]->()"}
    return {"rows": {key: connection.execute(f"{what} RETURN count(*)").get_next()[0] for key, what in asked.items()}}


files, place = map(Path, sys.argv[1:])
report(lambda: copy(files, place), lambda: counts(place))
