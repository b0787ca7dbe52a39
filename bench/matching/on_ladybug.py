"""The patterns in ladybug: prepared statements in Cypher."""

from __future__ import annotations

import sys
from functools import cache, partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ladybug

from matching.questions import ENDS, FIRST_PERSONS
from study.on_ladybug import TABLES as STUDY
from study.on_ladybug import ask, copy
from study.serve import Answers, main

NODES = ("Member", "Town", "Nation", "Tag")
EDGES = {
    "Knows": ("Member", "Member"),
    "LocatedIn": ("Member", "Town"),
    "PartOf": ("Town", "Nation"),
    "Likes": ("Member", "Tag"),
}
TWO_STEPS = "MATCH (a:Member)-[:Knows]->(b:Member)-[:Knows]->(c:Member)-[:Likes]->(t:Tag)"
TEXTS = {
    "triangles": """
MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person)-[:Follows]->(a) RETURN count(*) AS found
""",
    "mutual": "MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(a) RETURN count(*) AS found",
    "city": """
MATCH (a:Person)-[:Follows]->(b:Person), (a)-[:LivesIn]->(c:City), (b)-[:LivesIn]->(c) RETURN count(*) AS found
""",
    "cycles4": f"""
MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person)-[:Follows]->(d:Person)-[:Follows]->(a)
WHERE a.num < {FIRST_PERSONS} RETURN count(*) AS found
""",
    "lsqb3": """
MATCH (a:Member)-[:Knows]->(b:Member)-[:Knows]->(c:Member)-[:Knows]->(a),
(a)-[:LocatedIn]->(x:Town)-[:PartOf]->(n:Nation), (b)-[:LocatedIn]->(y:Town)-[:PartOf]->(n),
(c)-[:LocatedIn]->(z:Town)-[:PartOf]->(n) RETURN count(*) AS found
""",
    "lsqb6": f"{TWO_STEPS} WHERE a.num <> c.num RETURN count(*) AS found",
    "lsqb9": f"{TWO_STEPS} WHERE a.num <> c.num AND NOT EXISTS {{ MATCH (a)-[:Knows]->(c) }} RETURN count(*) AS found",
    "interests": """
MATCH (c:City)<-[:LivesIn]-(p:Person)-[:Follows]->(q:Person)-[:HasInterest]->(i:Interest)
RETURN c.num AS num, count(DISTINCT i.num) AS interests
""",
    "ages": """
MATCH (p:Person)-[:Follows]->(q:Person) RETURN p.num AS num, avg(q.age) AS age ORDER BY age DESC, num LIMIT 10
""",
    "shortest": f"""
MATCH (a:Person {{num: {ENDS[0]}}})-[e:Follows* SHORTEST 1..30]->(b:Person {{num: {ENDS[1]}}}) RETURN length(e) AS hops
""",
    "properties": """
MATCH (p:Person) RETURN p.gender AS gender, p.isMarried AS married, count(*) AS persons, avg(p.age) AS age,
min(p.birthday) AS first
""",
}


def store(files: Path, place: Path) -> None:
    nodes = "".join(f"CREATE NODE TABLE {name}(num INT64 PRIMARY KEY);" for name in NODES)
    edges = "".join(f"CREATE REL TABLE {name}(FROM {one} TO {other});" for name, (one, other) in EDGES.items())
    copy(files, place, STUDY + nodes + edges)


def answers(place: Path, persons: int) -> Answers:
    connection = ladybug.Connection(ladybug.Database(str(place), read_only=True))
    prepare = cache(lambda name: connection.prepare(TEXTS[name], {}))
    return {name: partial(ask, connection, partial(prepare, name), {}) for name in TEXTS}


if __name__ == "__main__":
    main(store, answers)
