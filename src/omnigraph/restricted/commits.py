"""Commits without what they say about hidden rows and branches."""

# See docs/decisions/0313-commits-are-shown-without-counts.md
# See docs/decisions/0347-branches-that-cannot-be-read-look-absent.md

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import pyarrow as pa

from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.ref_names import SYSTEM
from omnigraph.storage.ledger import LedgerVersion

T = TypeVar("T")

_RECEIPTS = frozenset(
    {"load", "merge", "restore", "pipeline", "query", "request", "affected_nodes", "affected_edges", "reverted_member"}
)
"""Labels with the receipts of writes. They count rows, and name conflicts and requests."""

_NAMING_BRANCHES = frozenset({"load", "merge"})
"""Labels with receipts that may name other branches."""

_NAMING_TYPES = (
    (re.compile(r"\bRestore \w+ from commit\b"), "Restore entities from commit"),
    (re.compile(r"\brepair: (?:node|edge):[^\"\n]*"), "repair"),
)
"""Default messages of writes that name types, and their replacements. Messages of reverts and picks quote them."""

HIDDEN_BRANCH = f"{SYSTEM}hidden"
"""Stands for the name of a branch that the actor may not know. No branch can have this name."""


def visible_commit(commit: Commit) -> Commit:
    """A commit without its counts, its receipts and its members, which list the ids of changed entities.

    A message that no caller has written names no types.
    """
    labels = tuple((name, value) for name, value in commit.labels if name not in _RECEIPTS)
    message = commit.message
    for pattern, replacement in _NAMING_TYPES if message else ():
        message = pattern.sub(replacement, message or "")
    return replace(commit, counts=None, members=(), labels=labels, message=message)


def known_commit(commit: Commit, knows: Callable[[str], bool]) -> Commit:
    """A commit as an actor sees it who may not know of all branches.

    The history of a branch may have commits of another one that it was created from. Of those of an unknown branch,
    only the ids and the time are shown. The receipts of other commits may name unknown branches, and are left out.

    Args:
        commit: the commit.
        knows: whether the actor may know of a branch.
    """
    if knows(commit.branch):
        labels = tuple(label for label in commit.labels if label[0] not in _NAMING_BRANCHES)
        return commit if len(labels) == len(commit.labels) else replace(commit, labels=labels)
    return Commit(
        commit.id,
        HIDDEN_BRANCH,
        commit.manifest_version,
        commit.parent,
        commit.merged_parent,
        None,
        commit.created_at,
        ledger=commit.ledger,
        generation=commit.generation,
    )


class RestrictedLedger:
    """A version of the manifest whose commits are decoded as an actor sees them.

    Args:
        stored: the state that it is the version of, with all that its commits record.
    """

    def __init__(self, stored: Manifest) -> None:
        self.stored = stored
        self._base = stored.ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._base, name)

    def decoded(self, rows: pa.Table, decode: Callable[[pa.Table], T], indexes: Sequence[int] | None = None) -> T:
        """Decode rows, as `LedgerVersion.decoded`. Commits lose what they say about hidden rows."""
        found = self._base.decoded(rows, decode, indexes)
        if not isinstance(found, list):
            return found
        return cast(T, [visible_commit(one) if isinstance(one, Commit) else one for one in found])


def stored_commits(view: Manifest) -> Manifest:
    """A restricted state whose commits are as they are stored: the recent ones, and those that are decoded later."""
    if not isinstance(view.ledger, RestrictedLedger):
        return view
    stored = view.ledger.stored
    return replace(view, ledger=stored.ledger, recent=stored.recent)


def restricted_ledger(stored: Manifest) -> LedgerVersion:
    """The ledger of a stored state as an actor sees it, with the type of the stored one."""
    return cast(LedgerVersion, RestrictedLedger(stored))
