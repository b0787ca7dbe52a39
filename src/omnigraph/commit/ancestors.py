"""Where two branches parted: the commit from which both have come the least way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from omnigraph.commit.lineage import commits, find_in
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.store import Store
from omnigraph.errors import BranchNotFoundError, CorruptionError


def merge_base(store: Store, source: Manifest, target: Manifest) -> Commit:
    """The common ancestor with the least summed distance to both heads; of several, the one with the highest version.

    No more of the history is read than lies between the heads and that commit.
    """
    history = _History(store, source, target)
    distances = ({source.head.id: 0}, {target.head.id: 0})
    edges = [[source.head.id], [target.head.id]]
    best: tuple[int, int, str] | None = None
    depth = 0
    while edges[0] or edges[1]:
        for name in {*edges[0], *edges[1]}:
            if name in distances[0] and name in distances[1]:
                rank = (distances[0][name] + distances[1][name], -history.known[name].manifest_version, name)
                best = rank if best is None else min(best, rank)
        # What is found from here on is further away from one head than the best is from both.
        if best is not None and depth >= best[0]:
            break
        depth += 1
        for side in (0, 1):
            edges[side] = history.parents(edges[side], distances[side], depth)
    if best is None:
        raise CorruptionError(
            f"'{source.branch}' and '{target.branch}' have no commit in common",
            hint="their histories were changed from outside",
        )
    return history.known[best[2]]


class _History:
    """The commits that lead to two heads, read as far as they are asked for."""

    def __init__(self, store: Store, source: Manifest, target: Manifest) -> None:
        self._store = store
        self._views = [source, target]
        self._older: list[Iterator[Commit]] = [commits(source), commits(target)]
        self.known = {commit.id: commit for view in self._views for commit in (*view.recent, view.head)}

    def parents(self, ids: list[str], distances: dict[str, int], distance: int) -> list[str]:
        """The parents of some commits that were not met before; they are met now."""
        found = []
        for commit in (self.known[name] for name in ids):
            for parent in (commit.parent, commit.merged_parent):
                # Commits of a branch that is gone cannot be read, and nothing but them leads there.
                if parent is not None and parent not in distances and self._find(parent):
                    distances[parent] = distance
                    found.append(parent)
        return found

    def _find(self, name: str) -> bool:
        if name in self.known:
            return True
        for view, older in zip(self._views, self._older, strict=True):
            if find_in(view, name) is not None:
                for commit in older:
                    self.known.setdefault(commit.id, commit)
                    if commit.id == name:
                        break
                return True
        for branch in self._store.branch_names():
            with suppress(BranchNotFoundError):  # deleted while we look
                elsewhere = find_in(self._store.capture(branch), name)
                if elsewhere is not None:
                    self.known[name] = elsewhere
                    return True
        return False
