"""The study in Polars: frames in memory, read from Parquet files, in the order of their files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import polars as pl
import pyarrow as pa

from study.questions import COUNTRY, QUESTIONS, START, many
from study.serve import Answers, main


class Study:
    """The plans, one method for each question."""

    def __init__(self, place: Path, persons: int, frame: Callable[[Path, str], pl.LazyFrame]) -> None:
        nodes, edges = (
            ("Person", "City", "State", "Country", "Interest"),
            ("Follows", "LivesIn", "HasInterest", "CityIn", "StateIn"),
        )
        self.person, self.city, self.state, self.country, self.interest = (
            frame(place / f"{name}.parquet", "num") for name in nodes
        )
        self.follows, self.lives_in, self.has_interest, self.city_in, self.state_in = (
            frame(place / f"{name}.parquet", "from") for name in edges
        )
        self.many = pl.LazyFrame({"first": many(persons)})

    def q1(self) -> pl.LazyFrame:
        return (
            self._most_followed(3)
            .join(self.person, left_on="to", right_on="num")
            .select(num="to", name="name", fans="fans")
        )

    def q2(self) -> pl.LazyFrame:
        homes = self._most_followed(1).join(self.lives_in, left_on="to", right_on="from", suffix="_city")
        states = homes.join(self.city, left_on="to_city", right_on="num").join(
            self.city_in, left_on="to_city", right_on="from", suffix="_state"
        )
        named = states.join(self.state, left_on="to_state", right_on="num", suffix="_state")
        return named.select(num="to", city="name", state="name_state", fans="fans")

    def q3(self) -> pl.LazyFrame:
        people = self.lives_in.join(self._cities_of(COUNTRY), left_on="to", right_on="from")
        ages = people.join(self.person, left_on="from", right_on="num").group_by("to").agg(age=pl.col("age").mean())
        return (
            ages.sort("age", "to")
            .head(5)
            .join(self.city, left_on="to", right_on="num")
            .select(num="to", city="name", age="age")
        )

    def q4(self) -> pl.LazyFrame:
        people = self.person.filter(pl.col("age").is_between(30, 40)).select("num")
        states = people.join(self.lives_in, left_on="num", right_on="from").join(
            self.city_in, left_on="to", right_on="from", suffix="_s"
        )
        counts = (
            states.join(self.state_in, left_on="to_s", right_on="from", suffix="_c")
            .group_by("to_c")
            .agg(persons=pl.len())
        )
        named = counts.join(self.country, left_on="to_c", right_on="num").select(country="name", persons="persons")
        return named.sort("persons", "country", descending=[True, False]).head(3)

    def q5(self) -> pl.LazyFrame:
        london = self.city.filter(pl.col("name") == "London").join(
            self._cities_of("United Kingdom"), left_on="num", right_on="from", how="semi"
        )
        people = self.lives_in.join(london, left_on="to", right_on="num", how="semi")
        men = self.person.filter(pl.col("gender") == "male").join(people, left_on="num", right_on="from", how="semi")
        return (
            self._fans_of("fine dining").join(men, left_on="from", right_on="num", how="semi").select(persons=pl.len())
        )

    def q6(self) -> pl.LazyFrame:
        women = self.person.filter(pl.col("gender") == "female")
        players = self._fans_of("tennis").join(women, left_on="from", right_on="num", how="semi").select("from")
        counts = players.join(self.lives_in, on="from").group_by("to").agg(persons=pl.len())
        best = counts.sort("persons", "to", descending=[True, False]).head(1)
        return best.join(self.city, left_on="to", right_on="num").select(num="to", city="name", persons="persons")

    def q7(self) -> pl.LazyFrame:
        young = self.person.filter(pl.col("age").is_between(23, 30))
        people = self._fans_of("photography").join(young, left_on="from", right_on="num", how="semi").select("from")
        cities = people.join(self.lives_in, on="from").join(
            self._cities_of(COUNTRY), left_on="to", right_on="from", suffix="_s"
        )
        best = cities.group_by("state").agg(persons=pl.len()).sort("persons", "state", descending=[True, False]).head(1)
        return best.join(self.state, left_on="state", right_on="num").select(
            num="state", state="name", persons="persons"
        )

    def q8(self) -> pl.LazyFrame:
        ways = self.follows.group_by("to").agg(ways=pl.len().cast(pl.Int64))
        out = self.follows.group_by("from").agg(out=pl.len())
        return out.join(ways, left_on="from", right_on="to").select(paths=(pl.col("ways") * pl.col("out")).sum())

    def q9(self) -> pl.LazyFrame:
        through = self.person.filter(pl.col("age") < 50)
        last = self.person.filter(pl.col("age") > 25)
        ways = (
            self.follows.group_by("to")
            .agg(ways=pl.len().cast(pl.Int64))
            .join(through, left_on="to", right_on="num", how="semi")
        )
        out = self.follows.join(last, left_on="to", right_on="num", how="semi").group_by("from").agg(out=pl.len())
        return out.join(ways, left_on="from", right_on="to").select(paths=(pl.col("ways") * pl.col("out")).sum())

    def point(self) -> pl.LazyFrame:
        return self.person.filter(pl.col("num") == START).select("name", "gender", "age")

    def hop1(self) -> pl.LazyFrame:
        found = self.follows.filter(pl.col("from") == START)
        return found.join(self.person, left_on="to", right_on="num").select(num="to", name="name")

    def hop2(self) -> pl.LazyFrame:
        one = self.follows.filter(pl.col("from") == START).select("to")
        return self._different(one, self._next(one))

    def hop3(self) -> pl.LazyFrame:
        one = self.follows.filter(pl.col("from") == START).select("to")
        two = self._next(one)
        return self._different(one, two, self._next(two))

    def reach100(self) -> pl.LazyFrame:
        one = self.follows.join(self.many, left_on="from", right_on="first").select(first="from", n="to")
        two = self._next_of_many(one).unique()
        every = pl.concat([one, two, self._next_of_many(two)]).filter(pl.col("first") != pl.col("n"))
        return every.group_by("first").agg(persons=pl.col("n").n_unique()).rename({"first": "num"})

    def rows100(self) -> pl.LazyFrame:
        through = self.person.filter(pl.col("age") < 50)
        last = self.person.filter(pl.col("age") > 25).select("num", "name")
        one = self.follows.join(self.many, left_on="from", right_on="first", how="semi")
        one = one.join(through, left_on="to", right_on="num", how="semi").select(first="from", through="to")
        two = one.join(self.follows, left_on="through", right_on="from")
        return (
            two.join(last, left_on="to", right_on="num").select("first", "through", "to", "name").rename({"to": "last"})
        )

    def _most_followed(self, count: int) -> pl.LazyFrame:
        fans = self.follows.group_by("to").agg(fans=pl.len())
        return fans.sort("fans", "to", descending=[True, False]).head(count)

    def _cities_of(self, country: str) -> pl.LazyFrame:
        wanted = self.country.filter(pl.col("name") == country)
        states = self.state_in.join(wanted, left_on="to", right_on="num", how="semi").select(state="from")
        return self.city_in.join(states, left_on="to", right_on="state").select("from", state="to")

    def _fans_of(self, interest: str) -> pl.LazyFrame:
        wanted = self.interest.filter(pl.col("name") == interest)
        return self.has_interest.join(wanted, left_on="to", right_on="num", how="semi")

    def _next(self, nodes: pl.LazyFrame) -> pl.LazyFrame:
        return self.follows.join(nodes, left_on="from", right_on="to", how="semi").select("to")

    def _next_of_many(self, pairs: pl.LazyFrame) -> pl.LazyFrame:
        return pairs.join(self.follows, left_on="n", right_on="from").select("first", n="to")

    @staticmethod
    def _different(*parts: pl.LazyFrame) -> pl.LazyFrame:
        return pl.concat(parts).filter(pl.col("to") != START).select(persons=pl.col("to").n_unique())


def store(files: Path, place: Path) -> None:
    place.symlink_to(files, target_is_directory=True)


def in_memory(file: Path, order: str) -> pl.LazyFrame:
    return pl.read_parquet(file).set_sorted(order).lazy()


def on_disk(file: Path, order: str) -> pl.LazyFrame:
    return pl.scan_parquet(file).set_sorted(order)


def answers(frame: Callable[[Path, str], pl.LazyFrame], place: Path, persons: int) -> Answers:
    study = Study(place, persons, frame)
    return {name: partial(ask, getattr(study, name)) for name in QUESTIONS}


def ask(plan: Callable[[], pl.LazyFrame]) -> pa.Table:
    return plan().collect().to_arrow()


if __name__ == "__main__":
    main(store, partial(answers, in_memory), partial(answers, on_disk))
