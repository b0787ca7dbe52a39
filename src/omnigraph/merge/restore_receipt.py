"""The receipt of a restore of entities. A copy is stored in a label of the commit, for repeated requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

import orjson

from omnigraph.commit.manifest import Commit, commit_json
from omnigraph.commit.sidecar import WriterKind
from omnigraph.dataclass import dataclass
from omnigraph.merge.preview import PreviewedChange
from omnigraph.merge.receipt import MergedChanges
from omnigraph.write.receipt import other_request, stored_receipt

LABEL = "restore"
"""The name of the label that stores the receipt, which is returned if the request is repeated."""

FROM = "restored_from"
"""The name of the label with the id of the commit that the rows were taken from."""


@dataclass(frozen=True, slots=True)
class RestoreReceipt:
    """The result of a restore of entities, or of its preview.

    Attributes:
        branch: the branch that got the commit.
        from_commit: the commit that the rows were taken from.
        changes: the changes of the branch by type key; unchanged types are left out.
        edges_omitted: number of edges that were not restored, because the node at one of their ends does not exist.
        preview: whether nothing was written.
        actor: the actor of the commit.
        commit: the new commit; None for a preview, or if the branch already has these rows.
        left_out: properties that are not restored, because the schema of the branch does not have them.
        previewed: the first changes of a preview, with their values; at most 100.
    """

    branch: str
    from_commit: str
    changes: Mapping[str, MergedChanges] = field(default_factory=dict)
    edges_omitted: int = 0
    preview: bool = False
    actor: str | None = None
    commit: Commit | None = None
    left_out: tuple[str, ...] = ()
    previewed: tuple[PreviewedChange, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether a row changes."""
        return bool(self.changes)

    def to_json(self) -> dict[str, Any]:
        """The receipt as a JSON object, which is the same in all interfaces."""
        return {
            "branch": self.branch,
            "from_commit_id": self.from_commit,
            "preview": self.preview,
            "changes": {key: changes.to_json() for key, changes in self.changes.items()},
            "edges_omitted": self.edges_omitted,
            "left_out": list(self.left_out),
            **({"previewed": [change.to_json() for change in self.previewed]} if self.preview else {}),
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }

    def label(self, digest: str | None) -> tuple[str, str]:
        """The receipt, encoded as a label of the commit (name and value); `digest` is the digest of the request."""
        members: dict[str, Any] = {
            "from": self.from_commit,
            "changes": {key: list(changes.to_json().values()) for key, changes in self.changes.items()},
            "edges_omitted": self.edges_omitted,
        }
        if self.left_out:
            members["left_out"] = list(self.left_out)
        return LABEL, orjson.dumps(members if digest is None else members | {"request": digest}).decode()

    def committed(self, commit: Commit | None) -> RestoreReceipt:
        return replace(self, commit=commit, actor=self.actor if commit is None else commit.actor)


def earlier_restore(branch: str, digest: str | None, commit: Commit) -> RestoreReceipt:
    """The receipt of an earlier restore, read from its commit.

    Raises:
        InputError: another request has already used the idempotency key.
    """
    stored = stored_receipt(commit, WriterKind.RESTORE, LABEL)
    if stored.get("request") != digest:
        raise other_request(commit, "another restore")
    changes = {key: MergedChanges(*counts) for key, counts in stored["changes"].items()}
    omitted, left_out = stored["edges_omitted"], tuple(stored.get("left_out", ()))
    return RestoreReceipt(branch, stored["from"], changes, omitted, False, commit.actor, commit, left_out)
