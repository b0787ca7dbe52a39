"""The receipt of a load. A copy is stored in a label of the commit, for repeated requests."""

# See docs/decisions/0042-receipts-are-read-from-commits.md

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from enum import StrEnum
from typing import Any

import orjson

from omnigraph.commit.manifest import Commit, commit_json
from omnigraph.commit.sidecar import WriterKind
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.write.rows.problems import Coercion, Leniency

LABEL = "load"
"""The name of the label that stores the receipt, which is returned if the request is repeated."""


class LoadMode(StrEnum):
    """How a load treats entities that already exist."""

    APPEND = "append"
    """Every id must be new."""
    MERGE = "merge"
    """An upsert: an entity that exists is replaced as a whole."""
    OVERWRITE = "overwrite"
    """Every type that occurs in the input is replaced by the rows of the input."""


def load_mode(mode: LoadMode | str) -> LoadMode:
    """Parse the name of a load mode.

    Raises:
        InputError: there is no such mode.
    """
    try:
        return LoadMode(mode)
    except ValueError:
        raise InputError(f"'{mode}' is not a load mode", hint="use append, merge or overwrite") from None


Counts = tuple[tuple[str, int], ...]


class MergeWay(StrEnum):
    """The join method of a load on Spark with mode `merge`: one process or tasks join loaded rows with stored rows."""

    PROCESS = "process"
    """In one process. This is the fastest if the ids fit into the memory of this process."""
    TASKS = "tasks"
    """In Spark tasks."""


@dataclass(frozen=True, slots=True)
class MergedType:
    """How a load on Spark merged the rows of one type.

    Attributes:
        type_key: `node:<Type>` or `edge:<Type>`.
        way: where the rows were merged.
        why: why the rows were merged there.
    """

    type_key: str
    way: MergeWay
    why: str


class CommitCounts:
    """The numbers of entities that a write changed. A transaction that is not committed yet has none."""

    __slots__ = ()
    commit: Commit | None

    @property
    def created(self) -> int | None:
        """Number of new entities; None if it is not recorded."""
        return self._total("inserted")

    @property
    def updated(self) -> int | None:
        """Number of entities that existed and were written again; None if it is not recorded."""
        return self._total("updated")

    @property
    def deleted(self) -> int | None:
        """Number of removed entities; None if it is not recorded."""
        return self._total("deleted")

    def _total(self, name: str) -> int | None:
        totals = None if self.commit is None else self.commit.totals
        return None if totals is None else int(getattr(totals, name))


@dataclass(frozen=True, slots=True)
class LoadReceipt(CommitCounts):
    """The result of a load.

    Attributes:
        branch: the target branch.
        base_branch: the branch from which the target is created if it does not exist; None if the caller named none.
        branch_created: whether the load created the target branch.
        nodes: number of loaded entities per node type, in name order.
        edges: number of loaded entities per edge type, in name order.
        coerced: the changes that the lenient reader made to the input.
        actor: the actor of the commit.
        commit: the commit; None when there was nothing to load.
        merges: how a load on Spark merged rows, per type; empty in the receipt of a repeated request.
        engine: where the rows were built: `local` or `spark`.
        why: why this engine was chosen.
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
        """Number of loaded entities."""
        return sum(count for _, count in (*self.nodes, *self.edges))

    def to_json(self) -> dict[str, Any]:
        """The receipt as a JSON object, which is the same in all interfaces."""
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
    """The part of a receipt that the load provides. The other part comes from the commit.

    Attributes:
        loaded: number of entities per type key.
        digest: the digest of the request; None when it has no idempotency key.
    """

    mode: LoadMode
    loaded: Mapping[str, int]
    coerced: tuple[Coercion, ...] = ()
    base_branch: str | None = None
    branch_created: bool = False
    digest: str | None = None

    def label(self) -> tuple[str, str]:
        """These values, encoded as a label of the commit (name and value)."""
        members: dict[str, Any] = {"mode": self.mode.value, "loaded": dict(self.loaded)}
        if self.coerced:
            # Store locations without values: a user who may read the history may lack permission to read the data.
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
        of_kind = [(TypeKey.parse(key), count) for key, count in self.loaded.items()]
        return tuple(sorted((key.name, count) for key, count in of_kind if key.kind is kind))


def earlier_receipt(branch: str, mode: LoadMode, digest: Callable[[], str], commit: Commit) -> LoadReceipt:
    """The receipt of an earlier load, read from its commit.

    Args:
        branch: the target branch.
        mode: the mode of the current request.
        digest: returns the digest of the current request. It reads the whole input, so it is called last.
        commit: the commit that has the idempotency key.

    Raises:
        InputError: another request has already used the idempotency key.
    """
    stored = stored_receipt(commit, WriterKind.LOAD, LABEL)
    if stored["mode"] != mode.value:
        raise other_request(commit, f"a load with mode {stored['mode']}")
    if stored.get("request") != digest():
        raise other_request(commit, "a load of other rows")
    coerced = tuple(Coercion(Leniency(kind), *rest) for kind, *rest in stored.get("coerced", ()))
    answer = LoadAnswer(mode, stored["loaded"], coerced, stored.get("base_branch"), bool(stored.get("branch_created")))
    return answer.receipt(branch, commit.actor, commit)


def stored_receipt(commit: Commit, kind: WriterKind, label: str) -> dict[str, Any]:
    """The receipt that a write has stored in a label of its commit.

    Raises:
        InputError: another kind of write made the commit. It may have a label of this name, too.
    """
    text = dict(commit.labels).get(label) if commit.writer == kind else None
    try:
        stored = None if text is None else orjson.loads(text)
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or not stored:
        raise other_request(commit, f"a write of kind {commit.writer}")
    return stored


def other_request(commit: Commit, made_by: str) -> InputError:
    """The error for an idempotency key that another request has used."""
    return InputError(
        f"the idempotency key '{commit.idempotency_key}' belongs to commit {commit.id}, made by {made_by}",
        hint="use each key for one request only: give this request another key",
    )
