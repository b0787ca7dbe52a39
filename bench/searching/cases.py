"""What is asked, of both."""

from __future__ import annotations

from dataclasses import dataclass

LIMIT = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A search that is asked with every question.

    Attributes:
        name: how reports call it.
        kind: `vector`, `words`, `hybrid`, `topic` (hybrid among the documents of a topic) or `cited` (hybrid, with what
            the documents cite).
        vector: the column of vectors.
        keeps: how many of a hundred documents the filter keeps.
    """

    name: str
    kind: str
    vector: str = "v128"
    keeps: int = 100


def cases() -> list[Case]:
    found = [
        Case(f"{dimension} numbers, {_kept(keeps)}", "vector", f"v{dimension}", keeps)
        for dimension in (128, 384)
        for keeps in (100, 10, 1)
    ]
    found += [Case("words", "words"), Case("words, a filter keeps 10 %", "words", keeps=10)]
    for dimension in (128, 384):
        found += [
            Case(f"hybrid, {dimension} numbers", "hybrid", f"v{dimension}"),
            Case(f"hybrid among the documents of a topic, {dimension} numbers", "topic", f"v{dimension}"),
            Case(f"hybrid and what is cited, {dimension} numbers", "cited", f"v{dimension}"),
        ]
    return found


def _kept(keeps: int) -> str:
    return "no filter" if keeps == 100 else f"a filter keeps {keeps} %"
