"""What every contender is asked: the nine questions of the study, a lookup, and walks from one person and from many.

Answers are compared as sets of rows, so a question says how ties are decided and not how rows are ordered. Standard
library only: contenders run where nothing else of ours is installed.
"""

from __future__ import annotations

from typing import Final

QUESTIONS: Final = {
    "q1": "the 3 most-followed persons",
    "q2": "the city of the most-followed person",
    "q3": "the 5 cities of a country with the lowest average age",
    "q4": "persons from 30 to 40, the 3 countries with the most",
    "q5": "how many men in London enjoy fine dining",
    "q6": "the city with the most women who play tennis",
    "q7": "the state of a country with the most persons from 23 to 30 who take photographs",
    "q8": "how many paths of two follows there are",
    "q9": "how many paths of two follows through a person below 50 to one above 25",
    "point": "a person by its number",
    "hop1": "whom a person follows",
    "hop2": "how many persons are within 2 follows of a person",
    "hop3": "how many persons are within 3 follows of a person",
    "reach100": "how many persons are within 3 follows, for each of 100 persons",
    "rows100": "paths of two follows from 100 persons, through persons below 50 to ones above 25",
}
WALKS: Final = ("q1", "q8", "q9", "hop1", "hop2", "hop3", "reach100", "rows100")
"""Those that are walks, and have a floor."""

LONG_WALKS: Final = ("q1", "q8", "q9", "hop3", "reach100", "rows100")
"""Those of which walking is most of the work. Others take as long as a call takes before it walks."""

COUNTRY: Final = "United States"
START: Final = 137
MANY: Final = 100


def many(persons: int) -> list[int]:
    """The persons that the walks from many start at, spread over all."""
    return list(range(0, persons, max(persons // MANY, 1)))[:MANY]
