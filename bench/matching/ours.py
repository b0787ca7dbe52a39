"""The patterns in this database."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import omnigraph
from matching.questions import ENDS, FIRST_PERSONS, QUESTIONS
from study.ours import SCHEMA as STUDY
from study.ours import table
from study.serve import Answers, main

SCHEMA = f"""{STUDY}
node Member {{ num: I64 @key }}
node Town {{ num: I64 @key }}
node Nation {{ num: I64 @key }}
node Tag {{ num: I64 @key }}
edge Knows: Member -> Member
edge LocatedIn: Member -> Town
edge PartOf: Town -> Nation
edge Likes: Member -> Tag
"""
QUERIES = f"""\
query triangles() {{
    match {{ $a follows $b  $b follows $c  $c follows $a }}
    return {{ count(*) as found }}
}}
query mutual() {{
    match {{ $a follows $b  $b follows $a }}
    return {{ count(*) as found }}
}}
query city() {{
    match {{ $a follows $b  $a livesIn $c  $b livesIn $c }}
    return {{ count(*) as found }}
}}
query cycles4() {{
    match {{ $a: Person  $a.num < {FIRST_PERSONS}  $a follows $b  $b follows $c  $c follows $d  $d follows $a }}
    return {{ count(*) as found }}
}}
query lsqb3() {{
    match {{
        $a knows $b  $b knows $c  $c knows $a
        $a locatedIn $x  $x partOf $n
        $b locatedIn $y  $y partOf $n
        $c locatedIn $z  $z partOf $n
    }}
    return {{ count(*) as found }}
}}
query lsqb6() {{
    match {{ $a knows $b  $b knows $c  $c likes $t  $a != $c }}
    return {{ count(*) as found }}
}}
query lsqb9() {{
    match {{ $a knows $b  $b knows $c  $c likes $t  $a != $c  not {{ $a knows $c }} }}
    return {{ count(*) as found }}
}}
query interests() {{
    match {{ $p livesIn $c  $p follows $q  $q hasInterest $i }}
    return {{ $c.num as num, count(distinct $i) as interests }}
}}
query ages() {{
    match {{ $p follows $q }}
    return {{ $p.num as num, avg($q.age) as age }}
    order {{ age desc, num }}
    limit 10
}}
query shortest() {{
    match {{
        $a: Person {{ num: {ENDS[0]} }}
        $b: Person {{ num: {ENDS[1]} }}
        shortest $path: $a follows{{1,}} $b
    }}
    return {{ length($path) as hops }}
}}
query properties() {{
    match {{ $p: Person }}
    return {{
        $p.gender as gender, $p.isMarried as married,
        count(*) as persons, avg($p.age) as age, min($p.birthday) as first
    }}
}}
"""


def store(files: Path, place: Path) -> None:
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load({file.stem: table(file) for file in sorted(files.iterdir())}, mode="append")
        graph.ensure_indexes()


def answers(place: Path, persons: int) -> Answers:
    graph = omnigraph.open(place, read_only=True)
    return {name: partial(_ask, graph.prepare(QUERIES, name=name)) for name in QUESTIONS}


def _ask(question: omnigraph.PreparedQuery) -> object:
    return question().to_arrow()


if __name__ == "__main__":
    main(store, answers)
