"""Versions of stored queries, and the queries that replace deprecated ones."""

# See docs/decisions/0370-stored-queries-have-versions.md

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_VERSIONED = re.compile(r"(.+)_v([1-9][0-9]{0,8})")


def queries_by_name(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The queries that each name may stand for: the query of exactly this name, and its versions, the newest first.

    >>> queries_by_name(["people_v9", "people_v10"])["people"]
    ('people_v10', 'people_v9')
    """
    exact = {name: (name,) for name in names}
    versions: dict[str, list[tuple[int, str]]] = {}
    for name in exact:
        found = _VERSIONED.fullmatch(name)
        if found is not None:
            versions.setdefault(found[1], []).append((int(found[2]), name))
    newest = {base: tuple(name for _, name in sorted(found, reverse=True)) for base, found in versions.items()}
    return {name: exact.get(name, ()) + newest.get(name, ()) for name in {**exact, **newest}}


def successor_problem(name: str, successor: str, writes: Mapping[str, bool]) -> str | None:
    """The reason why a query cannot replace a deprecated one; None if it can.

    Args:
        name: the deprecated query.
        successor: the query that it names.
        writes: whether each stored query writes.
    """
    found = next(iter(queries_by_name(writes).get(successor, ())), None)
    if found is None:
        problem = "there is no such query"
    elif found == name:
        problem = "a query cannot replace itself"
    elif writes[found] != writes[name]:
        problem = f"it {'writes' if writes[found] else 'reads'}"
    else:
        return None
    return f"it is deprecated for '{successor}': {problem}"
