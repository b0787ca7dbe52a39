"""The study in Cypher. Standard library only."""

from __future__ import annotations

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
