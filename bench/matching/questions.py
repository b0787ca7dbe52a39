"""What the three engines are asked. Standard library only: peers run where nothing else of ours is installed."""

from __future__ import annotations

from typing import Final

QUESTIONS: Final = {
    "triangles": "triangles of follows",
    "mutual": "pairs that follow each other",
    "city": "follows within one city",
    "cycles4": "cycles of four follows from 200 persons",
    "lsqb3": "triangles within a nation",
    "lsqb6": "two steps and tags, the start is not the end",
    "lsqb9": "two steps and tags, the start does not know the end",
    "interests": "different interests of those whom the persons of a city follow, for each city",
    "ages": "the 10 persons who follow the oldest on average",
    "shortest": "the length of a shortest path between two persons",
    "properties": "persons by two properties: number, average age, first birthday",
}
NOT_IN_SQL: Final = ("shortest",)

FIRST_PERSONS: Final = 200
ENDS: Final = (137, 271)
