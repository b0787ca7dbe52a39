"""What a load answers, and how its commit remembers the answer for a request that is sent twice."""

# See docs/decisions/0042-receipts-are-read-from-commits.md

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from omnigraph.commit.manifest import Commit, commit_json
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import InputError
from omnigraph.lang.schema import TypeKind
from omnigraph.write.rows.problems import Coercion, Leniency

LABEL = "load"
"""The label of a load's commit: what the receipt said. A repeated request is answered from it."""


class LoadMode(StrEnum):
    """What happens to entities that exist."""

    APPEND = "append"
    """Every id must be new."""
    MERGE = "merge"
    """An entity that exists is replaced, as a whole."""
    OVERWRITE = "overwrite"
    """Every type that the input mentions is replaced by what the input holds of it."""


Counts = tuple[tuple[str, int], ...]


class MergeWay(StrEnum):
    """Who brings the rows of a merge together with those that they replace."""

    PROCESS = "process"
    """One process: the quickest, as long as their ids fit its memory."""
    TASKS = "tasks"
    """Tasks on Spark."""


@dataclass(frozen=True, slots=True)
class MergedType:
    """How the rows of one type were merged by a load on Spark.

    Attributes:
        type_key: `node:<Type>` or `edge:<Type>`.
        way: who did it.
        why: what decided that.
    """

    type_key: str
    way: MergeWay
    why: str


@dataclass(frozen=True, slots=True)
class LoadReceipt:
    """What a load did.

    Attributes:
        branch: where to.
        base_branch: the branch that a missing target would be forked from; None when none was named.
        branch_created: whether the target was made for this load.
        nodes: entities loaded, by node type in name order.
        edges: the same by edge type.
        coerced: what the lenient reader changed.
        actor: who it was by.
        commit: the commit; None when there was nothing to load.
        merges: how a load on Spark merged rows, type by type; an answer that is given again does not say it.
        engine: `local` or `spark`: where the rows were built.
        why: the reason of that choice.
    """

    branch: str
    mode: LoadMode
    nodes: Counts
    edges: Counts
    commit: Commit | None
    base_branch: str | None = None
    branch_created: bool = False
    actor: str | None = None
    coerced: tuple[Coercion, ...] = ()
    merges: tuple[MergedType, ...] = ()
    engine: str = field(default="local", compare=False)
    why: str = field(default="", compare=False)

    @property
    def total(self) -> int:
        """How many entities were loaded."""
        return sum(count for _, count in (*self.nodes, *self.edges))

    def to_json(self) -> dict[str, Any]:
        """The receipt as every surface gives it."""
        members: dict[str, Any] = {
            "branch": self.branch,
            "base_branch": self.base_branch,
            "branch_created": self.branch_created,
            "mode": self.mode.value,
            "nodes": [{"name": name, "entities_loaded": count} for name, count in self.nodes],
            "edges": [{"name": name, "entities_loaded": count} for name, count in self.edges],
            "total_entities": self.total,
            "coerced": [asdict(coercion) for coercion in self.coerced],
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
            "engine": self.engine,
            "why": self.why,
        }
        if self.merges:
            members["merges"] = [asdict(merge) for merge in self.merges]
        return members


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """The part of a receipt that only the load itself knows.

    Attributes:
        loaded: how many entities of each type, by type key.
        digest: what tells the request from others; None when it has no idempotency key.
    """

    mode: LoadMode
    loaded: Mapping[str, int]
    coerced: tuple[Coercion, ...] = ()
    base_branch: str | None = None
    branch_created: bool = False
    digest: str | None = None

    def label(self) -> tuple[str, str]:
        """The answer as a label of the commit."""
        members: dict[str, Any] = {"mode": self.mode.value, "loaded": dict(self.loaded)}
        if self.coerced:
            # Places, and no values: whoever may read the history need not be allowed to read the data.
            members["coerced"] = [[c.kind.value, c.subject, c.count, c.example] for c in self.coerced]
        if self.base_branch is not None:
            members |= {"base_branch": self.base_branch, "branch_created": self.branch_created}
        if self.digest is not None:
            members["request"] = self.digest
        return LABEL, orjson.dumps(members).decode()

    def receipt(self, branch: str, actor: str | None, commit: Commit | None) -> LoadReceipt:
        return LoadReceipt(
            branch,
            self.mode,
            self._counts(TypeKind.NODE),
            self._counts(TypeKind.EDGE),
            commit,
            self.base_branch,
            self.branch_created,
            actor if commit is None else commit.actor,
            self.coerced,
        )

    def _counts(self, kind: TypeKind) -> Counts:
        of_kind = [(key.partition(":"), count) for key, count in self.loaded.items()]
        return tuple(sorted((name, count) for (word, _, name), count in of_kind if word == kind.value))


def answered(branch: str, mode: LoadMode, digest: Callable[[], str], commit: Commit) -> LoadReceipt:
    """The receipt of a load that was made before, from its commit.

    Args:
        branch: where to.
        mode: of the load that is asked for now.
        digest: what tells that from others. Asked for only if it may be the same: it takes reading the input.
        commit: what has its idempotency key.

    Raises:
        InputError: the commit was made by another request, under the same idempotency key.
    """
    label = dict(commit.labels).get(LABEL)
    said: dict[str, Any] = orjson.loads(label) if label is not None else {}
    if commit.writer != WriterKind.LOAD or not said:
        raise other_request(commit, f"a write of kind {commit.writer}")
    if said["mode"] != mode.value:
        raise other_request(commit, f"a load with mode {said['mode']}")
    if said.get("request") != digest():
        raise other_request(commit, "a load of other rows")
    coerced = tuple(Coercion(Leniency(kind), *rest) for kind, *rest in said.get("coerced", ()))
    answer = LoadAnswer(mode, said["loaded"], coerced, said.get("base_branch"), bool(said.get("branch_created")))
    return answer.receipt(branch, commit.actor, commit)


def other_request(commit: Commit, made_by: str) -> InputError:
    """The error for an idempotency key that stands for another request."""
    return InputError(
        f"the idempotency key '{commit.idempotency_key}' belongs to commit {commit.id}, made by {made_by}",
        hint="a key stands for one request: give this one another",
    )
