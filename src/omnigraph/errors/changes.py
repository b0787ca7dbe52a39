"""Errors of the change feed."""

from __future__ import annotations

from omnigraph.errors.family import ConflictError, InputError, OmnigraphError

_BASELINE = "take a new baseline ('changes baseline'), and continue from its cursor"


class ParentlessCommitError(ConflictError):
    """The first commit of a graph has no changes, because it has no parent.

    Attributes:
        commit_id: the commit.
    """

    code = "parentless_commit"
    reason = "parentless_commit"

    def __init__(self, commit_id: str) -> None:
        super().__init__(
            f"commit {commit_id} has no parent, so it has no changes", hint="read the state at the commit instead"
        )
        self.commit_id = commit_id

    def to_json(self) -> dict[str, str | None]:
        """The details for HTTP, under `change_diff_refusal`."""
        return {"reason": self.reason, "graph_commit_id": self.commit_id, "type_name": None}


class SchemaBoundaryError(ConflictError):
    """A commit changes the columns of a type, so its changes cannot be described row by row.

    Attributes:
        commit_id: the commit.
        type_name: a type that it changes.
    """

    code = "schema_boundary"
    reason = "schema_boundary"

    def __init__(self, commit_id: str, type_name: str, *, in_feed: bool = True) -> None:
        hint = f"{_BASELINE}; or leave the commit out, with the start 'after:{commit_id}'"
        if not in_feed:
            hint = (
                f"show its changes as a diff: 'omnigraph commit show {commit_id} --changes', or 'graph.diff' in Python"
            )
        super().__init__(f"commit {commit_id} changes the schema of {type_name}", hint=hint)
        self.commit_id = commit_id
        self.type_name = type_name

    def to_json(self) -> dict[str, str | None]:
        """The details for HTTP, under `change_diff_refusal`."""
        return {"reason": self.reason, "graph_commit_id": self.commit_id, "type_name": self.type_name}


class ChangeFeedGapError(OmnigraphError):
    """Cleanup, or a schema change, has removed a table version that is needed to compute the changes of a commit.

    Attributes:
        cursor: the cursor before the gap; None for the changes of a single commit.
        first_unreadable_commit_id: the first commit whose changes cannot be read.
    """

    code = "change_feed_gap"

    def __init__(self, first_unreadable_commit_id: str, cursor: str | None = None) -> None:
        super().__init__(
            f"the changes of commit {first_unreadable_commit_id} can no longer be read: "
            "cleanup, or a schema change that removed data, has removed them",
            hint=_BASELINE,
        )
        self.first_unreadable_commit_id = first_unreadable_commit_id
        self.cursor = cursor

    def to_json(self) -> dict[str, str | None]:
        """The details for HTTP, under `change_feed_gap`."""
        return {"cursor": self.cursor, "first_unreadable_commit_id": self.first_unreadable_commit_id}


class ChangeCursorError(InputError):
    """A cursor or page token is damaged, or belongs to another graph, branch or filter."""

    code = "change_cursor_rejected"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"change cursor rejected: {reason}",
            hint="use the token with the graph, branch and filters that it was made for, or take a new baseline",
        )
        self.reason = reason
