"""What was found out about a query, for the next time that it runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MOST = 4096


def remembered(function: Callable[[K], V]) -> Callable[[K], V]:
    """Remember the results of a function of something that never changes, such as a part of a compiled query.

    Compiled queries are kept and run again, so the same object comes again. Comparing two objects would cost as much as
    finding out.
    """
    held: dict[int, tuple[K, V]] = {}

    @wraps(function)
    def remembering(thing: K) -> V:
        found = held.get(id(thing))
        if found is not None and found[0] is thing:
            return found[1]
        result = function(thing)
        if len(held) >= _MOST:
            held.clear()
        # The object is held too, so that no other gets its place in memory.
        held[id(thing)] = (thing, result)
        return result

    return remembering
