"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.errors import cut

_LONGEST = 1000
"""Longer names get no suggestion. A caller may pass the content of a whole file as a name by mistake."""

_SIMILAR = 0.7
"""Minimum similarity of a suggested name. With 0.6, `Stored` would be suggested for `more`."""

_LESS_SIMILAR = 0.6
"""Minimum similarity of a suggested name that has the same first letter (`weight` for `wait`) or differs in at most two
letters (`photo` for `foto`).
"""


def did_you_mean(written: str, known: Iterable[str]) -> str | None:
    """A hint for an unknown name: the most similar known name, or all known names if there are few.

    >>> did_you_mean("lable", ["label", "rank"])
    "did you mean 'label'?"
    >>> did_you_mean("more", ["Stored", "Asset"])
    'known: Asset, Stored'
    >>> did_you_mean("node:Cook", ["node:Garden", "node:Plant"])
    'known: node:Garden, node:Plant'
    """
    from difflib import get_close_matches  # only messages of errors need it

    names = sorted(set(known))
    # Keys such as `node:Person` are compared without their kind, which would make all of them similar.
    has_kind = ":" in written
    by_folded = {(_bare(name) if has_kind else name).casefold(): name for name in reversed(names)}
    folded = (_bare(written) if has_kind else written)[:_LONGEST].casefold()
    near = get_close_matches(folded, by_folded, n=1, cutoff=_SIMILAR)
    if not near:
        likely = [name for name in by_folded if _starts_alike(name, folded) or _edit_distance(name, folded) <= 2]
        near = get_close_matches(folded, likely, n=1, cutoff=_LESS_SIMILAR)
    if near:
        return f"did you mean '{cut(by_folded[near[0]])}'?"
    if 0 < len(names) <= 8:
        return "known: " + ", ".join(map(cut, names))
    return None


def _bare(key: str) -> str:
    return key.rpartition(":")[2]


def _starts_alike(one: str, other: str) -> bool:
    """Whether two names have the same first letter. In a name such as `$s.taxon`, the property counts."""
    first, second = (name.rpartition(".")[2].lstrip("$")[:1] for name in (one, other))
    return first == second


def nearest(written: str, known: Iterable[str]) -> str | None:
    """The most similar known name, within an edit distance of 1 for short names and 2 for longer names.

    Ignores case and underscores. An edit inserts, deletes or replaces a letter, or swaps two neighbours.

    >>> nearest("kye", ["key", "unique"]), nearest("renameFrom", ["rename_from"]), nearest("owner", ["key"])
    ('key', 'rename_from', None)
    """
    folded = _folded(written)
    best = min(((_edit_distance(folded, _folded(name)), name) for name in known), default=None)
    if best is None or best[0] > (1 if len(folded) <= 5 else 2):
        return None
    return best[1]


def _folded(name: str) -> str:
    return name[:_LONGEST].casefold().replace("_", "")


def _edit_distance(a: str, b: str) -> int:
    """The edit distance of two names (Damerau-Levenshtein). A swap of two neighbours counts as one edit."""
    if abs(len(a) - len(b)) > 2:
        return 3
    rows = [list(range(len(b) + 1))]
    for i, left in enumerate(a, 1):
        row = [i]
        for j, right in enumerate(b, 1):
            cost = min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, rows[i - 2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
