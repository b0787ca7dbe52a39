"""The receipt of a revert or a cherry-pick. A copy is stored in a label of the commit, for repeated requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any

import orjson

from omnigraph.commit.manifest import Commit, commit_json
from omnigraph.commit.sidecar import WriterKind
from omnigraph.dataclass import dataclass
from omnigraph.errors import Conflict
from omnigraph.merge.preview import PreviewedChange
from omnigraph.merge.receipt import MergedChanges
from omnigraph.write.receipt import other_request, stored_receipt

REVERTED, PICKED = "reverted_commit", "picked_commit"
"""Labels with the id of the commit that was reverted or picked."""

REVERTED_MEMBER = "reverted_member"
"""Label with the id of the only member of the commit that was reverted."""


class PickOutcome(StrEnum):
    """The outcome of a revert or a cherry-pick."""

    REVERTED = "reverted"
    """The changes of the commit were undone."""
    PICKED = "picked"
    """The changes of the commit were applied."""
    NOTHING_TO_DO = "nothing_to_do"
    """The branch already has the resulting rows. There is no new commit."""


@dataclass(frozen=True, slots=True)
class PickReceipt:
    """The result of a revert or a cherry-pick, or of its preview.

    Attributes:
        commit_id: the commit that was reverted or picked.
        parent_id: the parent of that commit. The changes of the commit are its differences from this parent.
        branch: the branch that got the new commit.
        outcome: the outcome; if there are conflicts, the outcome that the request would have without them.
        changes: the changes of the branch by type key; unchanged types are left out. Entities that take part in a
            remaining conflict are not counted.
        resolved: number of conflicts that were resolved by choosing a side.
        edges_kept: number of edges that stay or are restored, because a choice keeps their node; without those that
            another choice leaves out.
        edges_omitted: number of edges that a revert does not restore, because one of their nodes no longer exists.
        conflicts: the remaining conflicts, in a preview only; at most the first 10,000.
        total_conflicts: number of remaining conflicts.
        preview: whether nothing was written.
        actor: the actor of the new commit.
        commit: the new commit; None if no commit was made.
        engine: where rows were compared: `local` or `spark`.
        left_out: types and properties that the commit has changed, and that the schema of the branch does not have.
        previewed: the first changes of a preview, with their values; at most 100.
        member_id: the only member of the commit that was reverted; None if the whole commit was.
    """

    commit_id: str
    parent_id: str
    branch: str
    outcome: PickOutcome
    changes: Mapping[str, MergedChanges] = field(default_factory=dict)
    resolved: int = 0
    edges_kept: int = 0
    edges_omitted: int = 0
    conflicts: tuple[Conflict, ...] = ()
    total_conflicts: int = 0
    preview: bool = False
    actor: str | None = None
    commit: Commit | None = None
    engine: str = "local"
    left_out: tuple[str, ...] = ()
    previewed: tuple[PreviewedChange, ...] = ()
    member_id: str | None = None

    @property
    def is_clean(self) -> bool:
        """Whether there are no conflicts."""
        return self.total_conflicts == 0

    def to_json(self) -> dict[str, Any]:
        """The receipt as a JSON object, which is the same in all interfaces."""
        return {
            "commit_id": self.commit_id,
            **({} if self.member_id is None else {"member_id": self.member_id}),
            "parent_id": self.parent_id,
            "branch": self.branch,
            "outcome": self.outcome.value,
            "preview": self.preview,
            "changes": {key: changes.to_json() for key, changes in self.changes.items()},
            "resolved": self.resolved,
            "edges_kept": self.edges_kept,
            "edges_omitted": self.edges_omitted,
            "left_out": list(self.left_out),
            **({"previewed": [change.to_json() for change in self.previewed]} if self.preview else {}),
            "merge_conflicts": [conflict.to_json() for conflict in self.conflicts],
            "total_conflicts": self.total_conflicts,
            "engine": self.engine,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }

    def label(self, kind: WriterKind, digest: str | None) -> tuple[str, str]:
        """The receipt, encoded as a label of the commit (name and value); `digest` is the digest of the request."""
        members: dict[str, Any] = {
            "commit": self.commit_id,
            "parent": self.parent_id,
            "outcome": self.outcome.value,
            "changes": {key: list(changes.to_json().values()) for key, changes in self.changes.items()},
            "resolved": self.resolved,
        }
        members |= {name: getattr(self, name) for name in ("edges_kept", "edges_omitted") if getattr(self, name)}
        if self.member_id is not None:
            members["member"] = self.member_id
        if self.left_out:
            members["left_out"] = list(self.left_out)
        if digest is not None:
            members["request"] = digest
        return _LABELS[kind], orjson.dumps(members).decode()

    def committed(self, commit: Commit | None) -> PickReceipt:
        return replace(self, commit=commit, actor=self.actor if commit is None else commit.actor)


_LABELS = {WriterKind.REVERT: "revert", WriterKind.CHERRY_PICK: "cherry_pick"}
"""The names of the labels that store the receipt, which is returned if the request is repeated."""


def earlier_pick(kind: WriterKind, branch: str, digest: str | None, commit: Commit) -> PickReceipt:
    """The receipt of an earlier revert or cherry-pick, read from its commit.

    Raises:
        InputError: another request has already used the idempotency key.
    """
    stored = stored_receipt(commit, kind, _LABELS[kind])
    if stored.get("request") != digest:
        raise other_request(commit, f"another {_LABELS[kind].replace('_', '-')} of commit {stored['commit']}")
    return PickReceipt(
        stored["commit"],
        stored["parent"],
        branch,
        PickOutcome(stored["outcome"]),
        {key: MergedChanges(*counts) for key, counts in stored["changes"].items()},
        stored["resolved"],
        stored.get("edges_kept", 0),
        stored.get("edges_omitted", 0),
        actor=commit.actor,
        commit=commit,
        left_out=tuple(stored.get("left_out", ())),
        member_id=stored.get("member"),
    )
