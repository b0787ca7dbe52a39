"""Finding the name that a writer probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from omnigraph.errors import cut

_LONGEST = 1000
"""How much of a name is compared with others: some names are whole files that were put in the wrong place."""


def did_you_mean(written: str, known: Iterable[str]) -> str | None:
    """A hint for an unknown name: the nearest known one, or the known ones when they are few.

    >>> did_you_mean("lable", ["label", "rank"])
    "did you mean 'label'?"
    """
    names = sorted(set(known))
    by_folded = {name.casefold(): name for name in reversed(names)}
    near = get_close_matches(written[:_LONGEST].casefold(), by_folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{cut(by_folded[near[0]])}'?"
    if 0 < len(names) <= 8:
        return "known: " + ", ".join(map(cut, names))
    return None
