"""The study in OmniGraph."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph
from omnigraph import PreparedQuery
from study.questions import COUNTRY, QUESTIONS, START, many
from study.serve import Answers, main

SCHEMA = """\
node Person { num: I64 @key  name: String  gender: String  birthday: Date  age: I64  isMarried: Bool }
node City { num: I64 @key  name: String }
node State { num: I64 @key  name: String }
node Country { num: I64 @key  name: String }
node Interest { num: I64 @key  name: String }
edge Follows: Person -> Person
edge LivesIn: Person -> City
edge HasInterest: Person -> Interest
edge CityIn: City -> State
edge StateIn: State -> Country
"""
QUERIES = """\
query q1() {
    match { $fan follows $p }
    return { $p.num as num, $p.name as name, count($fan) as fans }
    order { fans desc, num }
    limit 3
}
query q2() {
    match { $fan follows $p  $p livesIn $c  $c cityIn $s }
    return { $p.num as num, $c.name as city, $s.name as state, count($fan) as fans }
    order { fans desc, num }
    limit 1
}
query q3($country: String) {
    match { $p livesIn $c  $c cityIn $s  $s stateIn $in  $in.name = $country }
    return { $c.num as num, $c.name as city, avg($p.age) as age }
    order { age, num }
    limit 5
}
query q4() {
    match { $p: Person  $p.age >= 30  $p.age <= 40  $p livesIn $c  $c cityIn $s  $s stateIn $in }
    return { $in.name as country, count($p) as persons }
    order { persons desc, country }
    limit 3
}
query q5() {
    match {
        $p: Person { gender: "male" }
        $p hasInterest $i
        $i.name = "fine dining"
        $p livesIn $c
        $c.name = "London"
        $c cityIn $s
        $s stateIn $in
        $in.name = "United Kingdom"
    }
    return { count($p) as persons }
}
query q6() {
    match { $p: Person { gender: "female" }  $p hasInterest $i  $i.name = "tennis"  $p livesIn $c }
    return { $c.num as num, $c.name as city, count($p) as persons }
    order { persons desc, num }
    limit 1
}
query q7($country: String) {
    match {
        $p: Person
        $p.age >= 23
        $p.age <= 30
        $p hasInterest $i
        $i.name = "photography"
        $p livesIn $c
        $c cityIn $s
        $s stateIn $in
        $in.name = $country
    }
    return { $s.num as num, $s.name as state, count($p) as persons }
    order { persons desc, num }
    limit 1
}
query q8() {
    match { $a follows $b  $b follows $c }
    return { count(*) as paths }
}
query q9() {
    match { $a follows $b  $b follows $c  $b.age < 50  $c.age > 25 }
    return { count(*) as paths }
}
query point($num: I64) {
    match { $p: Person { num: $num } }
    return { $p.name as name, $p.gender as gender, $p.age as age }
}
query hop1($num: I64) {
    match { $p: Person { num: $num }  $p follows $q }
    return { $q.num as num, $q.name as name }
}
query hop2($num: I64) {
    match { $p: Person { num: $num }  $p follows{1,2} $q }
    return { count($q) as persons }
}
query hop3($num: I64) {
    match { $p: Person { num: $num }  $p follows{1,3} $q }
    return { count($q) as persons }
}
query reach100($many: [I64]) {
    match { $p: Person  $p.num in $many  $p follows{1,3} $q }
    return { $p.num as num, count($q) as persons }
}
query rows100($many: [I64]) {
    match { $a: Person  $a.num in $many  $a follows $b  $b follows $c  $b.age < 50  $c.age > 25 }
    return { $a.num as first, $b.num as through, $c.num as last, $c.name as name }
}
"""


def store(files: Path, place: Path) -> None:
    with omnigraph.init(place, SCHEMA) as graph:
        graph.load({file.stem: table(file) for file in sorted(files.iterdir())}, mode="append")
        graph.ensure_indexes()


def table(file: Path) -> pa.Table:
    """The rows of a file. An edge names its ends by id, and that is a text."""
    rows = pq.read_table(file)
    ends = pa.schema([field.with_type(pa.utf8()) if field.name in ("from", "to") else field for field in rows.schema])
    return rows.cast(ends)


def answers(place: Path, persons: int) -> Answers:
    graph = omnigraph.open(place, read_only=True)
    country: dict[str, object] = {"country": COUNTRY}
    one: dict[str, object] = {"num": START}
    all_: dict[str, object] = {"many": many(persons)}
    given = {"q3": country, "q7": country, "point": one, "hop1": one, "hop2": one, "hop3": one}
    given |= {"reach100": all_, "rows100": all_}
    return {name: partial(ask, graph.prepare(QUERIES, name=name), given.get(name, {})) for name in QUESTIONS}


def ask(question: PreparedQuery, given: Mapping[str, object]) -> pa.Table:
    return question(given).to_arrow()


if __name__ == "__main__":
    main(store, answers)
