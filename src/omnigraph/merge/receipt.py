"""The receipt of a merge. A copy is stored in a label of the commit, for repeated requests."""

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
from omnigraph.write.receipt import other_request, stored_receipt

LABEL = "merge"
"""The name of the label that stores the receipt, which is returned if the request is repeated."""


class MergeOutcome(StrEnum):
    """The outcome of a merge."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    """The target already has all commits of the source."""
    FAST_FORWARD = "fast_forward"
    """The target has no commits of its own since the base."""
    MERGED = "merged"
    """Both branches have commits of their own since the base."""


@dataclass(frozen=True, slots=True)
class MergedChanges:
    """The changes of a merge to one type."""

    inserted: int
    updated: int
    deleted: int

    def to_json(self) -> dict[str, int]:
        return {"inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}


@dataclass(frozen=True, slots=True)
class MergeReceipt:
    """The result of a merge, or of its preview.

    Attributes:
        source: the branch that was merged.
        target: the branch that it was merged into.
        outcome: the outcome; if there are conflicts, the outcome that the merge would have without them.
        source_commit: the head of the source that was merged.
        base_commits: the best common ancestors of both heads; several were merged into a virtual base.
        changes: the changes of the target by type key; unchanged types are left out. Entities that take part in a
            remaining conflict are not counted.
        resolved: number of conflicts that were resolved by choosing a side.
        edges_kept: number of edges that stay or are restored, because a choice keeps their node; without those that
            another choice leaves out.
        conflicts: the remaining conflicts, in a preview only; at most the first 10,000.
        total_conflicts: number of remaining conflicts.
        preview: whether nothing was written.
        actor: the actor of the commit.
        commit: the commit on the target; None if no commit was made.
        branch_deleted: whether the source branch was deleted after the merge; None if this was not requested.
        branch_delete_error: the reason why the source could not be deleted.
        engine: where rows were compared: `local` or `spark`.
        left_out: types and properties that the source has changed, and that the schema of the target does not have.
            Their values are not merged.
        previewed: the first changes of a preview, with their values; at most 100.
        schema_changes: the changes of the schema of the target by a branch update, one text each; None if the schema
            stays the same. A change of constraints alone is not listed.
    """

    source: str
    target: str
    outcome: MergeOutcome
    source_commit: str
    base_commits: tuple[str, ...]
    changes: Mapping[str, MergedChanges] = field(default_factory=dict)
    resolved: int = 0
    edges_kept: int = 0
    conflicts: tuple[Conflict, ...] = ()
    total_conflicts: int = 0
    preview: bool = False
    actor: str | None = None
    commit: Commit | None = None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    engine: str = "local"
    left_out: tuple[str, ...] = ()
    previewed: tuple[PreviewedChange, ...] = ()
    schema_changes: tuple[str, ...] | None = None

    @property
    def base_commit(self) -> str | None:
        """The best common ancestor; None if there are several."""
        return self.base_commits[0] if len(self.base_commits) == 1 else None

    @property
    def is_clean(self) -> bool:
        """Whether there are no conflicts."""
        return self.total_conflicts == 0

    def to_json(self) -> dict[str, Any]:
        """The receipt as a JSON object, which is the same in all interfaces."""
        members: dict[str, Any] = {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome.value,
            "source_commit_id": self.source_commit,
            "base_commit_id": self.base_commit,
            "base_commit_ids": list(self.base_commits),
            "preview": self.preview,
            "changes": {key: changes.to_json() for key, changes in self.changes.items()},
            "resolved": self.resolved,
            "edges_kept": self.edges_kept,
            "left_out": list(self.left_out),
            **({} if self.schema_changes is None else {"schema_changes": list(self.schema_changes)}),
            **({"previewed": [change.to_json() for change in self.previewed]} if self.preview else {}),
            "merge_conflicts": [conflict.to_json() for conflict in self.conflicts],
            "total_conflicts": self.total_conflicts,
            "engine": self.engine,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }
        if self.branch_deleted is not None:
            members["branch_deleted"] = self.branch_deleted
        if self.branch_delete_error is not None:
            members["branch_delete_error"] = self.branch_delete_error
        return members

    def label(self, digest: str | None) -> tuple[str, str]:
        """The receipt, encoded as a label of the commit (name and value); `digest` is the digest of the request."""
        members: dict[str, Any] = {
            "source": self.source,
            "source_commit": self.source_commit,
            "base_commits": list(self.base_commits),
            "outcome": self.outcome.value,
            "changes": {key: list(changes.to_json().values()) for key, changes in self.changes.items()},
            "resolved": self.resolved,
        }
        if self.edges_kept:
            members["edges_kept"] = self.edges_kept
        if self.left_out:
            members["left_out"] = list(self.left_out)
        if self.schema_changes is not None:
            members["schema_changes"] = list(self.schema_changes)
        if digest is not None:
            members["request"] = digest
        return LABEL, orjson.dumps(members).decode()

    def committed(self, commit: Commit | None) -> MergeReceipt:
        return replace(self, commit=commit, actor=self.actor if commit is None else commit.actor)


def stored_merge(commit: Commit) -> Mapping[str, Any] | None:
    """The members of the receipt that a merge or a branch update has stored in its commit; None for other commits."""
    label = dict(commit.labels).get(LABEL)
    if commit.writer not in (WriterKind.BRANCH_MERGE, WriterKind.BRANCH_UPDATE) or label is None:
        return None
    try:
        stored = orjson.loads(label)
    except ValueError:
        return None  # a label that the user has set
    return stored if isinstance(stored, dict) and "source" in stored else None


def adopts_tables(commit: Commit) -> bool:
    """Whether a commit is a branch update that took over the tables of the parent, with their schema."""
    if commit.writer != WriterKind.BRANCH_UPDATE:
        return False
    stored = stored_merge(commit)
    return stored is None or "schema_changes" in stored


def earlier_receipt(
    target: str, digest: str | None, commit: Commit, kind: WriterKind = WriterKind.BRANCH_MERGE
) -> MergeReceipt:
    """The receipt of an earlier merge or branch update, read from its commit.

    Raises:
        InputError: another request has already used the idempotency key.
    """
    stored = stored_receipt(commit, kind, LABEL)
    if stored.get("request") != digest:
        raise other_request(commit, f"another merge of '{stored['source']}'")
    return MergeReceipt(
        stored["source"],
        target,
        MergeOutcome(stored["outcome"]),
        stored["source_commit"],
        tuple(stored["base_commits"]) if "base_commits" in stored else (stored["base_commit"],),
        {key: MergedChanges(*counts) for key, counts in stored["changes"].items()},
        stored["resolved"],
        stored.get("edges_kept", 0),
        actor=commit.actor,
        commit=commit,
        left_out=tuple(stored.get("left_out", ())),
        schema_changes=tuple(stored["schema_changes"]) if "schema_changes" in stored else None,
    )
