"""The people of the study, where they live, what they like and whom they follow: the same for the same size.

The study has 100,000 persons, 2.4 million follows, 7,117 cities in 273 states of 3 countries, and 41 interests. A few
persons are followed by very many, most by about as many as they follow; nobody follows somebody twice or themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PERSONS = 100_000
FOLLOWS_EACH = 24.2
CITIES = 7_117
STATES = 273
FAMOUS = 200
"""One person of so many is famous, and takes a twentieth of all follows."""

COUNTRIES = ("United States", "United Kingdom", "Canada")
INTERESTS = (
    *("anime", "archery", "astronomy", "baking", "biking", "birdwatching", "board games", "camping", "chess"),
    *("climbing", "collecting", "comics", "cooking", "dancing", "fashion", "fine dining", "fishing", "football"),
    *("gardening", "gaming", "golf", "hiking", "history", "jazz", "knitting", "languages", "literature", "movies"),
    *("music", "painting", "photography", "poetry", "politics", "running", "sailing", "skiing", "swimming"),
    *("tennis", "travel", "volunteering", "yoga"),
)

Numbers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


def write_files(folder: Path, persons: int = PERSONS) -> None:
    """A Parquet file for each type. Edges have the columns `from` and `to`, sorted by both."""
    folder.mkdir(parents=True)
    for name, table in tables(persons).items():
        pq.write_table(table, folder / f"{name}.parquet")


def tables(persons: int = PERSONS) -> dict[str, pa.Table]:
    random = np.random.default_rng(20_230_801)
    cities = max(CITIES * persons // PERSONS, 12)
    states = min(STATES, cities // 2)
    interests = persons * 5 // 2
    return {
        "Person": _persons(random, persons),
        "City": _cities(cities),
        "State": pa.table({"num": np.arange(states), "name": _named("State", np.arange(states))}),
        "Country": pa.table({"num": np.arange(len(COUNTRIES)), "name": COUNTRIES}),
        "Interest": pa.table({"num": np.arange(len(INTERESTS)), "name": INTERESTS}),
        "Follows": _follows(random, persons),
        # The first cities are the large ones.
        "LivesIn": edges(np.arange(persons), (cities * random.power(0.5, persons)).astype(np.int64)),
        "HasInterest": edges(random.integers(0, persons, interests), random.integers(0, len(INTERESTS), interests)),
        "CityIn": edges(np.arange(cities), np.arange(cities) % states),
        "StateIn": edges(np.arange(states), np.arange(states) % len(COUNTRIES)),
    }


def _persons(random: np.random.Generator, count: int) -> pa.Table:
    ages = random.integers(18, 71, count)
    days = (ages * 365.25).astype(np.int64) + random.integers(1, 365, count)
    return pa.table(
        {
            "num": np.arange(count),
            "name": _named("Person", random.permutation(count)),
            "gender": pa.array(["female", "male"]).take(pa.array(random.integers(0, 2, count))),
            "birthday": pa.array(np.datetime64("2023-08-01", "D") - days),
            "age": ages,
            "isMarried": random.random(count) < 0.5,
        }
    )


def _cities(count: int) -> pa.Table:
    numbers = np.arange(count)
    # The second city is in the second state, and that is in the second country.
    names = pc.if_else(pa.array(numbers == 1), "London", _named("City", numbers))
    return pa.table({"num": numbers, "name": names})


def _follows(random: np.random.Generator, persons: int) -> pa.Table:
    count = int(persons * FOLLOWS_EACH)
    famous = random.permutation(persons)[: max(persons // FAMOUS, 1)]
    sources = random.integers(0, persons, count)
    targets = random.integers(0, persons, count)
    # Some of the famous are a lot more famous than others.
    ones = famous[(len(famous) * random.power(0.4, count)).astype(np.int64)]
    targets = np.where(random.random(count) < 1 / 20, ones, targets)
    others = sources != targets
    return edges(sources[others], targets[others])


def _named(kind: str, numbers: Numbers) -> pa.Array:
    return pc.binary_join_element_wise(kind, pa.array(numbers).cast(pa.utf8()), " ")


def edges(sources: Numbers, targets: Numbers) -> pa.Table:
    """Each pair once, sorted."""
    width = int(targets.max()) + 1
    pairs = np.unique(sources * width + targets)
    return pa.table({"from": pairs // width, "to": pairs % width})
