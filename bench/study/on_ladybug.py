"""The study in ladybug, an embedded graph database: tables with keys, and prepared statements in Cypher."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ladybug
import pyarrow as pa

from study.cypher import TEXTS
from study.questions import COUNTRY, START, many
from study.serve import Answers, main

TABLES = """
CREATE NODE TABLE Person(num INT64 PRIMARY KEY, name STRING, gender STRING, birthday DATE, age INT64, isMarried BOOL);
CREATE NODE TABLE City(num INT64 PRIMARY KEY, name STRING);
CREATE NODE TABLE State(num INT64 PRIMARY KEY, name STRING);
CREATE NODE TABLE Country(num INT64 PRIMARY KEY, name STRING);
CREATE NODE TABLE Interest(num INT64 PRIMARY KEY, name STRING);
CREATE REL TABLE Follows(FROM Person TO Person);
CREATE REL TABLE LivesIn(FROM Person TO City);
CREATE REL TABLE HasInterest(FROM Person TO Interest);
CREATE REL TABLE CityIn(FROM City TO State);
CREATE REL TABLE StateIn(FROM State TO Country);
"""


def store(files: Path, place: Path) -> None:
    copy(files, place, TABLES)


def copy(files: Path, place: Path, tables: str) -> None:
    """Make tables, and copy the file of each one into it, in this order: nodes come before their edges."""
    connection = ladybug.Connection(ladybug.Database(str(place)))
    connection.execute(tables)
    for name in re.findall(r"TABLE (\w+)\(", tables):
        connection.execute(f"COPY {name} FROM '{files / name}.parquet'")
    connection.close()


def answers(place: Path, persons: int) -> Answers:
    connection = ladybug.Connection(ladybug.Database(str(place), read_only=True))
    every = {"country": COUNTRY, "num": START, "many": many(persons)}
    given = {name: {key: value for key, value in every.items() if f"${key}" in text} for name, text in TEXTS.items()}
    prepare = cache(lambda name: connection.prepare(TEXTS[name], given[name]))
    return {name: partial(ask, connection, partial(prepare, name), given[name]) for name in TEXTS}


def ask(
    connection: ladybug.Connection, statement: Callable[[], ladybug.PreparedStatement], given: dict[str, object]
) -> pa.Table:
    return connection.execute(statement(), given).get_as_arrow()


if __name__ == "__main__":
    main(store, answers)
