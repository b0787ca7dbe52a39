"""Retention keeps every commit that a later merge may need as a base, and is compared with a naive model."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from random import Random

import pytest

from omnigraph.commit.retention import kept_commits

History = Mapping[str, Sequence[str]]


def ancestors(history: History, name: str) -> set[str]:
    """A commit and all of its ancestors."""
    found, stack = set(), [name]
    while stack:
        one = stack.pop()
        if one in history and one not in found:
            found.add(one)
            stack += history[one]
    return found


def naive(history: History, heads: Collection[str]) -> set[str]:
    """The retention rule, implemented directly from the specification."""
    kept = {head for head in heads if head in history}
    while True:
        leads_to = {name: {head for head in kept if name in ancestors(history, head)} for name in history}
        children = {name: [c for c in history if name in history[c]] for name in history}
        found = {
            name
            for name in history
            if leads_to[name] and all(leads_to[child] != leads_to[name] for child in children[name])
        }
        if found | kept == kept:
            return kept
        kept |= found


def best_common(history: History, left: str, right: str) -> set[str]:
    """Common ancestors that are not ancestors of another common ancestor."""
    common = ancestors(history, left) & ancestors(history, right)
    return {one for one in common if not any(one != other and one in ancestors(history, other) for other in common)}


def random_history(chance: Random, commits: int) -> tuple[dict[str, list[str]], set[str]]:
    history: dict[str, list[str]] = {"c000": []}
    heads = ["c000"]
    for number in range(1, commits):
        name = f"c{number:03}"
        place = chance.randrange(len(heads))
        act = chance.random()
        if act < 0.2:
            heads.append(chance.choice(list(history)))  # a branch from any commit
            continue
        parents = [heads[place]]
        if act < 0.5 and len(heads) > 1:
            parents.append(chance.choice(heads))
        history[name] = list(dict.fromkeys(parents))
        heads[place] = name
        if act > 0.95 and len(heads) > 2:
            heads.pop(chance.randrange(len(heads)))  # delete a branch
    tags = {chance.choice(list(history)) for _ in range(chance.randrange(3))}
    return history, {*heads, *tags}


@pytest.mark.parametrize("seed", range(40))
def test_retention_agrees_with_the_naive_model(seed: int) -> None:
    history, heads = random_history(Random(seed), 45)
    kept = kept_commits(history, heads)
    assert kept == naive(history, heads)
    # Includes every base of a merge of heads, and of a merge of bases with each other.
    for left, right in combinations(kept, 2):
        assert best_common(history, left, right) <= kept


def test_retention_keeps_heads_and_branch_points() -> None:
    history = {f"m{n}": [f"m{n - 1}"] if n else [] for n in range(100)}
    assert kept_commits(history, {"m99"}) == {"m99"}
    history |= {"d0": ["m40"], "d1": ["d0"]}
    assert kept_commits(history, {"m99", "d1"}) == {"m99", "d1", "m40"}
    # The merged commit is the base from now on.
    history |= {"m100": ["m99", "d1"], "d2": ["d1"]}
    assert kept_commits(history, {"m100", "d2"}) == {"m100", "d2", "d1"}


def test_retention_keeps_both_bases_of_a_criss_cross_merge_and_their_base() -> None:
    history = {"o": [], "a": ["o"], "b": ["o"], "ab": ["a", "b"], "ba": ["b", "a"], "x": ["ab"], "y": ["ba"]}
    assert kept_commits(history, {"x", "y"}) == {"x", "y", "a", "b", "o"}


def test_unknown_heads_and_parents_are_ignored() -> None:
    assert kept_commits({"b": ["a"], "c": ["b", "gone"]}, {"c", "elsewhere"}) == {"c"}
    assert kept_commits({}, {"c"}) == set()


def test_retention_of_a_hundred_thousand_commits_is_fast() -> None:
    """Ten branches that often merge each other are processed in one pass."""
    chance = Random(1)
    history: dict[str, list[str]] = {"0": []}
    lines = ["0"] * 10
    for number in range(1, 100_000):
        place = chance.randrange(10)
        parents = [lines[place]]
        if number % 10 == 0:
            parents.append(lines[chance.randrange(10)])
        history[str(number)] = list(dict.fromkeys(parents))
        lines[place] = str(number)
    began = time.perf_counter()
    kept = kept_commits(history, set(lines))
    assert time.perf_counter() - began < 20
    assert set(lines) <= kept
