"""The patterns in DuckDB, as joins of edges; nodes are joined only where a property is needed."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import duckdb

from matching.questions import FIRST_PERSONS
from study.on_duckdb import ask, store
from study.serve import Answers, main

TWO_STEPS = """
SELECT count(*) AS found
FROM Knows f JOIN Knows g ON g."from" = f."to" JOIN Likes t ON t."from" = g."to" WHERE f."from" <> g."to"
"""
TEXTS = {
    "triangles": """
SELECT count(*) AS found FROM Follows f JOIN Follows g ON g."from" = f."to"
JOIN Follows h ON h."from" = g."to" AND h."to" = f."from"
""",
    "mutual": """
SELECT count(*) AS found FROM Follows f JOIN Follows g ON g."from" = f."to" AND g."to" = f."from"
""",
    "city": """
SELECT count(*) AS found
FROM Follows f JOIN LivesIn a ON a."from" = f."from" JOIN LivesIn b ON b."from" = f."to" AND b."to" = a."to"
""",
    "cycles4": f"""
SELECT count(*) AS found FROM Follows f JOIN Follows g ON g."from" = f."to"
JOIN Follows h ON h."from" = g."to" JOIN Follows i ON i."from" = h."to" AND i."to" = f."from"
WHERE f."from" < {FIRST_PERSONS}
""",
    "lsqb3": """
WITH homes AS (SELECT l."from" AS n, p."to" AS nation FROM LocatedIn l JOIN PartOf p ON p."from" = l."to")
SELECT count(*) AS found FROM Knows f JOIN Knows g ON g."from" = f."to"
JOIN Knows h ON h."from" = g."to" AND h."to" = f."from"
JOIN homes a ON a.n = f."from" JOIN homes b ON b.n = g."from" AND b.nation = a.nation
JOIN homes c ON c.n = h."from" AND c.nation = a.nation
""",
    "lsqb6": TWO_STEPS,
    "lsqb9": f"""
{TWO_STEPS} AND NOT EXISTS (SELECT 1 FROM Knows k WHERE k."from" = f."from" AND k."to" = g."to")
""",
    "interests": """
SELECT l."to" AS num, count(DISTINCT i."to") AS interests
FROM LivesIn l JOIN Follows f ON f."from" = l."from" JOIN HasInterest i ON i."from" = f."to" GROUP BY l."to"
""",
    "ages": """
SELECT f."from" AS num, avg(p.age) AS age FROM Follows f JOIN Person p ON p.num = f."to"
GROUP BY f."from" ORDER BY age DESC, num LIMIT 10
""",
    "properties": """
SELECT gender, isMarried AS married, count(*) AS persons, avg(age) AS age, min(birthday) AS first
FROM Person GROUP BY gender, isMarried
""",
}


def answers(place: Path, persons: int) -> Answers:
    base = duckdb.connect(str(place), read_only=True)
    return {name: partial(ask, base, text) for name, text in TEXTS.items()}


if __name__ == "__main__":
    main(store, answers)
