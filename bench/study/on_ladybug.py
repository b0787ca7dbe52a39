"""The study in ladybug, an embedded graph database: tables with keys, and prepared statements in Cypher."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ladybug
import pyarrow as pa

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
TEXTS = {
    "q1": """
MATCH (f:Person)-[:Follows]->(p:Person) WITH p, count(*) AS fans
RETURN p.num AS num, p.name AS name, fans ORDER BY fans DESC, num LIMIT 3
""",
    "q2": """
MATCH (f:Person)-[:Follows]->(p:Person) WITH p, count(*) AS fans ORDER BY fans DESC, p.num LIMIT 1
MATCH (p)-[:LivesIn]->(c:City)-[:CityIn]->(s:State) RETURN p.num AS num, c.name AS city, s.name AS state, fans
""",
    "q3": """
MATCH (p:Person)-[:LivesIn]->(c:City)-[:CityIn]->(s:State)-[:StateIn]->(co:Country {name: $country})
RETURN c.num AS num, c.name AS city, avg(p.age) AS age ORDER BY age, num LIMIT 5
""",
    "q4": """
MATCH (p:Person)-[:LivesIn]->(c:City)-[:CityIn]->(s:State)-[:StateIn]->(co:Country) WHERE p.age >= 30 AND p.age <= 40
RETURN co.name AS country, count(*) AS persons ORDER BY persons DESC, country LIMIT 3
""",
    "q5": """
MATCH (p:Person {gender: 'male'})-[:HasInterest]->(i:Interest {name: 'fine dining'}),
(p)-[:LivesIn]->(c:City {name: 'London'})-[:CityIn]->(s:State)-[:StateIn]->(co:Country {name: 'United Kingdom'})
RETURN count(*) AS persons
""",
    "q6": """
MATCH (p:Person {gender: 'female'})-[:HasInterest]->(i:Interest {name: 'tennis'}), (p)-[:LivesIn]->(c:City)
RETURN c.num AS num, c.name AS city, count(*) AS persons ORDER BY persons DESC, num LIMIT 1
""",
    "q7": """
MATCH (p:Person)-[:LivesIn]->(c:City)-[:CityIn]->(s:State)-[:StateIn]->(co:Country {name: $country}),
(p)-[:HasInterest]->(i:Interest {name: 'photography'}) WHERE p.age >= 23 AND p.age <= 30
RETURN s.num AS num, s.name AS state, count(*) AS persons ORDER BY persons DESC, num LIMIT 1
""",
    "q8": "MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person) RETURN count(*) AS paths",
    "q9": """
MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person) WHERE b.age < 50 AND c.age > 25
RETURN count(*) AS paths
""",
    "point": "MATCH (p:Person {num: $num}) RETURN p.name AS name, p.gender AS gender, p.age AS age",
    "hop1": "MATCH (p:Person {num: $num})-[:Follows]->(q:Person) RETURN q.num AS num, q.name AS name",
    "hop2": """
MATCH (p:Person {num: $num})-[:Follows* SHORTEST 1..2]->(q:Person) WHERE q.num <> $num RETURN count(*) AS persons
""",
    "hop3": """
MATCH (p:Person {num: $num})-[:Follows* SHORTEST 1..3]->(q:Person) WHERE q.num <> $num RETURN count(*) AS persons
""",
    "reach100": """
MATCH (p:Person)-[:Follows* SHORTEST 1..3]->(q:Person) WHERE p.num IN $many AND q.num <> p.num
RETURN p.num AS num, count(*) AS persons
""",
    "rows100": """
MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person) WHERE a.num IN $many AND b.age < 50 AND c.age > 25
RETURN a.num AS first, b.num AS through, c.num AS last, c.name AS name
""",
}


def store(files: Path, place: Path) -> None:
    connection = ladybug.Connection(ladybug.Database(str(place)))
    connection.execute(TABLES)
    for table in ("Person", "City", "State", "Country", "Interest", "Follows", "LivesIn", "HasInterest", "CityIn", "StateIn"):
        connection.execute(f"COPY {table} FROM '{files / table}.parquet'")
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
