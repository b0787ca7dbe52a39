"""Retention: the commits that later merges may need as a merge base.

A merge uses the best common ancestors of two heads. If there are several, it also uses their best common ancestors. A
commit can be one of them only if none of its children is an ancestor of all heads that the commit is an ancestor of.
All such commits are kept. The same rule then applies with the kept commits as heads, until nothing is added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

ORPHANS_OLDER_THAN = timedelta(days=7)
"""Minimum age of orphan files that cleanup removes."""


def kept_commits(parents: Mapping[str, Sequence[str]], heads: Collection[str]) -> set[str]:
    """The commits that have to stay readable.

    Args:
        parents: the parents of every known commit. Parents that are not a key of this mapping are ignored.
        heads: the commits that branches and tags name.

    Example:
        >>> history = {"a": [], "b": ["a"], "c": ["b"], "d": ["b"], "e": ["d"]}
        >>> sorted(kept_commits(history, {"c", "e"}))
        ['b', 'c', 'e']
    """
    order = _children_first(parents, [head for head in heads if head in parents])
    children: dict[str, int] = dict.fromkeys(order, 0)
    for name in order:
        for parent in set(parents[name]):
            if parent in children:
                children[parent] += 1
    return _kept(parents, order, children, set(heads))


def _children_first(parents: Mapping[str, Sequence[str]], heads: Sequence[str]) -> list[str]:
    """All ancestors of the heads, each after all its children."""
    waiting: dict[str, int] = {}
    seen = set(heads)
    stack = list(seen)
    while stack:
        for parent in set(parents[stack.pop()]):
            if parent in parents:
                waiting[parent] = waiting.get(parent, 0) + 1
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
    ready = [name for name in seen if name not in waiting]
    order = []
    while ready:
        name = ready.pop()
        order.append(name)
        for parent in set(parents[name]):
            if parent in parents:
                waiting[parent] -= 1
                if waiting[parent] == 0:
                    ready.append(parent)
    return order


def _kept(
    parents: Mapping[str, Sequence[str]], order: Sequence[str], children: Mapping[str, int], heads: set[str]
) -> set[str]:
    """The heads, and each commit with more kept descendants than any of its children.

    In `order`, a commit comes after all its children, and only they decide whether it is kept. So one pass is enough: a
    kept commit counts as a head for the commits after it, and as its own descendant. A set of kept commits is stored as
    the bits of an integer. The sets are compared only for commits with several children. A set is dropped when its
    commit was processed.
    """
    reached: dict[str, int] = {}
    covered: dict[str, list[int]] = {}
    kept: set[str] = set()
    for name in order:
        seen = covered.pop(name, None)
        leads_to = reached.pop(name, 0)
        if name in heads or (seen is not None and leads_to not in seen):
            leads_to |= 1 << len(kept)
            kept.add(name)
        for parent in set(parents[name]):
            if parent in children:
                reached[parent] = reached.get(parent, 0) | leads_to
                if children[parent] > 1:
                    covered.setdefault(parent, []).append(leads_to)
    return kept
