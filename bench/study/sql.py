"""The study in SQL, in the form that asks least of an engine: counts before joins, and distinct ends after each step.

The straightforward form of q8, a join that lists every path, takes each of the engines many times as long. Standard
library only.
"""

from __future__ import annotations

from study.questions import COUNTRY, START, many

ONE = """WITH h1 AS {kept} (SELECT "to" AS n FROM Follows WHERE "from" = {start})"""
TWO = """h2 AS {kept} (SELECT DISTINCT f."to" AS n FROM h1 JOIN Follows f ON f."from" = h1.n)"""
THREE = """h3 AS (SELECT f."to" AS n FROM h2 JOIN Follows f ON f."from" = h2.n)"""
DIFFERENT = "SELECT count(DISTINCT n) AS persons FROM ({every}) r WHERE n <> {start}"
MANY = """
WITH m(s) AS (VALUES {rows}), h1 AS {kept} (SELECT m.s, f."to" AS n FROM Follows f JOIN m ON f."from" = m.s),
h2 AS {kept} (SELECT DISTINCT h1.s, f."to" AS n FROM h1 JOIN Follows f ON f."from" = h1.n),
every AS (
    SELECT s, n FROM h1 UNION ALL SELECT s, n FROM h2
    UNION ALL SELECT h2.s, f."to" AS n FROM h2 JOIN Follows f ON f."from" = h2.n)
"""
TEXTS = {
    "q1": """
WITH fans AS (SELECT "to" AS n, count(*) AS fans FROM Follows GROUP BY "to"),
best AS (SELECT n, fans FROM fans ORDER BY fans DESC, n LIMIT 3)
SELECT p.num, p.name, b.fans FROM best b JOIN Person p ON p.num = b.n
""",
    "q2": """
WITH fans AS (SELECT "to" AS n, count(*) AS fans FROM Follows GROUP BY "to"),
best AS (SELECT n, fans FROM fans ORDER BY fans DESC, n LIMIT 1)
SELECT b.n AS num, c.name AS city, s.name AS state, b.fans
FROM best b JOIN LivesIn l ON l."from" = b.n JOIN City c ON c.num = l."to"
JOIN CityIn ci ON ci."from" = c.num JOIN State s ON s.num = ci."to"
""",
    "q3": """
WITH homes AS (
    SELECT ci."from" AS n FROM CityIn ci JOIN StateIn si ON si."from" = ci."to" JOIN Country co ON co.num = si."to"
    WHERE co.name = '{country}'),
ages AS (
    SELECT h.n, avg(p.age) AS age FROM homes h JOIN LivesIn l ON l."to" = h.n JOIN Person p ON p.num = l."from"
    GROUP BY h.n ORDER BY age, h.n LIMIT 5)
SELECT c.num, c.name AS city, a.age FROM ages a JOIN City c ON c.num = a.n
""",
    "q4": """
SELECT co.name AS country, count(*) AS persons
FROM Person p JOIN LivesIn l ON l."from" = p.num JOIN CityIn ci ON ci."from" = l."to"
JOIN StateIn si ON si."from" = ci."to" JOIN Country co ON co.num = si."to"
WHERE p.age BETWEEN 30 AND 40 GROUP BY co.name ORDER BY persons DESC, country LIMIT 3
""",
    "q5": """
SELECT count(*) AS persons
FROM Interest i JOIN HasInterest h ON h."to" = i.num JOIN Person p ON p.num = h."from"
JOIN LivesIn l ON l."from" = p.num JOIN City c ON c.num = l."to" JOIN CityIn ci ON ci."from" = c.num
JOIN StateIn si ON si."from" = ci."to" JOIN Country co ON co.num = si."to"
WHERE i.name = 'fine dining' AND p.gender = 'male' AND c.name = 'London' AND co.name = 'United Kingdom'
""",
    "q6": """
WITH homes AS (
    SELECT l."to" AS n, count(*) AS persons
    FROM Interest i JOIN HasInterest h ON h."to" = i.num JOIN Person p ON p.num = h."from"
    JOIN LivesIn l ON l."from" = p.num
    WHERE i.name = 'tennis' AND p.gender = 'female' GROUP BY l."to" ORDER BY persons DESC, n LIMIT 1)
SELECT c.num, c.name AS city, o.persons FROM homes o JOIN City c ON c.num = o.n
""",
    "q7": """
SELECT s.num, s.name AS state, count(*) AS persons
FROM Interest i JOIN HasInterest h ON h."to" = i.num JOIN Person p ON p.num = h."from"
JOIN LivesIn l ON l."from" = p.num JOIN CityIn ci ON ci."from" = l."to" JOIN State s ON s.num = ci."to"
JOIN StateIn si ON si."from" = s.num JOIN Country co ON co.num = si."to"
WHERE i.name = 'photography' AND p.age BETWEEN 23 AND 30 AND co.name = '{country}'
GROUP BY s.num, s.name ORDER BY persons DESC, s.num LIMIT 1
""",
    "q8": """
WITH i AS (SELECT "to" AS n, count(*) AS ways FROM Follows GROUP BY "to")
SELECT CAST(sum(i.ways) AS BIGINT) AS paths FROM Follows f JOIN i ON i.n = f."from"
""",
    "q9": """
WITH i AS (SELECT b.num AS n, count(*) AS ways FROM Follows f JOIN Person b ON b.num = f."to" WHERE b.age < 50
           GROUP BY b.num)
SELECT CAST(sum(i.ways) AS BIGINT) AS paths
FROM Follows f JOIN i ON i.n = f."from" JOIN Person c ON c.num = f."to" WHERE c.age > 25
""",
    "point": "SELECT name, gender, age FROM Person WHERE num = {start}",
    "hop1": """SELECT p.num, p.name FROM Follows f JOIN Person p ON p.num = f."to" WHERE f."from" = {start}""",
    "hop2": f"""
{ONE}, h2 AS (SELECT f."to" AS n FROM h1 JOIN Follows f ON f."from" = h1.n)
{DIFFERENT.replace("{every}", "SELECT n FROM h1 UNION ALL SELECT n FROM h2")}
""",
    "hop3": f"""
{ONE}, {TWO}, {THREE}
{DIFFERENT.replace("{every}", "SELECT n FROM h1 UNION ALL SELECT n FROM h2 UNION ALL SELECT n FROM h3")}
""",
    "reach100": MANY + "SELECT s AS num, count(DISTINCT n) AS persons FROM every WHERE n <> s GROUP BY s",
    "rows100": """
WITH m(s) AS (VALUES {rows}), f AS {kept} (SELECT m.s, g."to" AS n FROM Follows g JOIN m ON g."from" = m.s)
SELECT f.s AS first, f.n AS through, g."to" AS last, c.name
FROM f JOIN Person b ON b.num = f.n JOIN Follows g ON g."from" = f.n JOIN Person c ON c.num = g."to"
WHERE b.age < 50 AND c.age > 25
""",
}


def texts(persons: int, kept: str = "") -> dict[str, str]:
    """All questions.

    Args:
        persons: how many there are.
        kept: the word that has a part computed once where it is used more than once, in engines that have it.
    """
    rows = ", ".join(f"({num})" for num in many(persons))
    return {name: text.format(country=COUNTRY, start=START, rows=rows, kept=kept) for name, text in TEXTS.items()}
