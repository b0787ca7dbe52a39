"""Requests for a commit: its metadata, its preconditions, and the writes that were prepared for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa

from omnigraph.commit.commit_metadata import LONGEST_NAME, LONGEST_TEXT, check_actor, check_text, checked_labels
from omnigraph.commit.manifest import MAIN, Commit, Manifest, Member, TypeCounts
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.table_writes import TableWrite
from omnigraph.commit.work_records import Work
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.storage.table_ref import TableRef

GRAPH_HEAD = "graph_head"
"""The value of `ReadConflict.member` if the branch head has changed."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The table writes of one attempt, and other values that only the preparation can determine.

    Attributes:
        writes: the table writes.
        labels: labels of the commit, in addition to those of the request.
        merged_parent: head of the branch that the write merges. If set, a commit is made even if no table changes.
        merged_generation: generation of that head.
        ancestors: the commits that the branch gets by the merge, as rows from `History.missing_in_target`.
        needs: table versions that must exist when the commit is published: for a merge, those of its base and source.
        adopt: for a branch update, the state of the parent. The branch takes over its tables and its schema, and the
            writes apply to these tables.
        counts: the number of changed entities by type, for the commit; None if they are those of the writes.
        on_head: the writes are valid only for the head that they were prepared on.
        matched: evaluates the conditions of the write on a snapshot. Returns type keys with matching entity ids.
        touched: for a branch update, finds the ids of the entities of the branch that change, by their type key in the
            branch; None for all entities of a type. The writes do not tell: they apply to the tables of the parent.
        keys: for a group, the actors and idempotency keys of its members. No commit of the branch may have one of
            these pairs.
        members: for a group, returns its members, given the state and the number of entities that the staged writes
            change. Called right before the sidecar is written.
    """

    writes: Sequence[TableWrite]
    labels: tuple[tuple[str, str], ...] = ()
    merged_parent: str | None = None
    merged_generation: int = 0
    ancestors: pa.Table | None = None
    needs: Collection[TableRef] = ()
    adopt: Manifest | None = None
    counts: tuple[TypeCounts, ...] | None = None
    on_head: bool = False
    matched: Callable[[Snapshot], list[tuple[str, pa.Array]]] | None = None
    touched: Callable[[], Mapping[str, pa.Array | None]] | None = None
    keys: Collection[tuple[str | None, str]] = ()
    members: Callable[[Manifest, tuple[TypeCounts, ...]], tuple[Member, ...]] | None = None


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A query whose result a write depends on."""

    text: str
    params: Mapping[str, object]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Precondition: nothing that the write depends on has changed since a commit.

    Attributes:
        commit: an ancestor of the branch head.
        reads: queries whose results the write depends on, in addition to its own reads.
    """

    commit: str
    reads: tuple[ReadQuery, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A new schema that a write on `main` activates.

    Attributes:
        source: the schema's source text.
        accepted: the compiled schema.
        replaces: hash of the schema that it was derived from. It must still be active.
        hard: type keys, before the change, whose dropped data has to be removed from earlier commits.
    """

    source: str
    accepted: AcceptedSchema
    replaces: str
    hard: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Metadata and preconditions of a commit.

    Attributes:
        branch: the branch to write to.
        kind: the kind of writer.
        actor: who writes.
        message: the commit message.
        labels: labels of the commit; stored in name order.
        replayable: whether the write may be prepared again after another commit changed its read set.
        timeout: seconds to wait for the lease and for retries; None uses the setting of the graph.
        expect_head: precondition: this commit is the branch head.
        unchanged: precondition: the read set has not changed since a commit.
        idempotency_key: if a commit of the branch has this key, that commit is returned and nothing is written.
        schema: a schema to activate with the commit.
        work: the work record that protects files which were written before the commit; None if the write stages all
            its files itself.
        healed: whether the caller has just settled the interrupted writes of the branch.
        on_repeat: is called with the earlier commit, if a commit has the idempotency key. It may raise an error.
    """

    branch: str = MAIN
    kind: WriterKind = WriterKind.LOAD
    actor: str | None = None
    message: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    replayable: bool = True
    timeout: float | None = None
    expect_head: str | None = None
    unchanged: Unchanged | None = None
    idempotency_key: str | None = None
    schema: SchemaChange | None = None
    work: Work | None = None
    healed: bool = False
    on_repeat: Callable[[Commit], None] | None = None

    def __post_init__(self) -> None:
        """Validate the fields that are stored in the commit.

        Raises:
            InputError: a field is not a text, or too long.
        """
        check_actor(self.actor)
        if self.timeout is not None and not self.timeout >= 0:
            raise InputError("a timeout must be a number of seconds, at least 0")
        if self.message is not None:
            check_text(self.message, "the message", LONGEST_TEXT)
        if self.expect_head is not None:
            check_text(self.expect_head, "the expected head", LONGEST_NAME)
        if self.unchanged is not None:
            check_text(self.unchanged.commit, "the commit in `unchanged`", LONGEST_NAME)
        if self.idempotency_key is not None:
            check_text(self.idempotency_key, "the idempotency key", LONGEST_NAME, empty=False)
        object.__setattr__(self, "labels", checked_labels(self.labels))


Prepare = Callable[[Manifest], Sequence[TableWrite] | Prepared]
"""Prepares the writes for a captured state. Called again for every attempt, so it also has to validate the writes."""
