"""Requests: one frozen dataclass per verb, and a TypedDict of its keyword options.

A method takes `**options: Unpack[LoadOptions]` and builds `LoadRequest(**options)`. A test checks that the options and
the fields of the request are the same. `Graph` documents them.
"""

# See docs/decisions/0153-one-request-per-verb.md

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from omnigraph.changes.commit_page import DEFAULT_BYTES, DEFAULT_CHANGES
from omnigraph.changes.feed import DEFAULT_COMMITS
from omnigraph.changes.row_images import ChangeOp
from omnigraph.commit.manifest import MAIN
from omnigraph.dataclass import dataclass
from omnigraph.engine.engines import Choice, Engine, SparkOptions
from omnigraph.engine.query_requests import ExplainRequest as ExplainRequest
from omnigraph.engine.query_requests import QueryRequest as QueryRequest
from omnigraph.engine.query_text import ListedRead, QueryText
from omnigraph.engine.session import At
from omnigraph.merge.choices import Resolutions, Strategy
from omnigraph.merge.property_level import MergeLevel
from omnigraph.migrate.allow import Allow
from omnigraph.read.budget import Cancellation
from omnigraph.read.export.files import ExportFormat, Target
from omnigraph.upkeep.optimize import ROWS_PER_FRAGMENT
from omnigraph.upkeep.vectors import EmbedProgress, Which
from omnigraph.write.input.table_mapping import MappingSource
from omnigraph.write.load import LoadProgress
from omnigraph.write.receipt import LoadMode


@dataclass(frozen=True, kw_only=True)
class CommitFields:
    """The fields of `CommitOptions`."""

    expect_head: str | None = None
    timeout: float | None = None
    message: str | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class WriteFields(CommitFields):
    """The fields of `WriteOptions`."""

    unchanged_since: str | None = None
    reads: Sequence[ListedRead] = ()
    idempotency_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExecutionFields:
    """The fields of `ExecutionOptions`."""

    engine: Engine | str = Engine.AUTO
    spark: SparkOptions | None = None
    cancel: Cancellation | None = None
    chosen: Callable[[Choice], None] | None = None


@dataclass(frozen=True)
class MutateRequest(WriteFields):
    """A query that writes."""

    text: QueryText
    params: Mapping[str, object] | None = None
    name: str | None = None
    branch: str | None = None


@dataclass(frozen=True, kw_only=True)
class TransactionRequest(WriteFields):
    """Several writes that become one commit."""

    branch: str | None = None


@dataclass(frozen=True, kw_only=True)
class LoadRequest(WriteFields, ExecutionFields):
    """Options of one load. The source is a separate argument, because it may be readable only once."""

    mode: LoadMode | str
    branch: str | None = None
    base: str | None = None
    type_name: str | None = None
    mapping: MappingSource | None = None
    format: str | None = None
    lenient: bool = False
    embed: bool = True
    memory_budget: int | str | None = None
    progress: Callable[[LoadProgress], None] | None = None
    check: bool = False


@dataclass(frozen=True)
class MergeRequest(WriteFields, ExecutionFields):
    """A branch to merge into another.

    Attributes:
        expect_source: merge only if this commit is the head of the source.
    """

    source: str
    into: str = MAIN
    strategy: Strategy | str | None = None
    resolutions: Resolutions | None = None
    preview: bool = False
    delete_branch: bool = False
    level: MergeLevel | str | None = None
    memory_budget: int | str | None = None
    expect_source: str | None = None


@dataclass(frozen=True)
class BranchUpdateRequest(WriteFields, ExecutionFields):
    """A branch that receives the schema and the rows of its parent.

    Attributes:
        name: the branch.
        strategy: the side that wins all conflicts: `ours` is the branch, `theirs` is the parent.
    """

    name: str
    strategy: Strategy | str | None = None
    resolutions: Resolutions | None = None
    preview: bool = False
    level: MergeLevel | str | None = None
    memory_budget: int | str | None = None


@dataclass(frozen=True, kw_only=True)
class PickFields(WriteFields, ExecutionFields):
    """The fields of `PickOptions`.

    Attributes:
        parent: for a merge commit, the parent that its changes are relative to: 1 is the head of the branch before the
            merge, 2 the head of the merged branch.
    """

    parent: int | None = None
    strategy: Strategy | str | None = None
    resolutions: Resolutions | None = None
    level: MergeLevel | str | None = None
    preview: bool = False
    memory_budget: int | str | None = None


@dataclass(frozen=True)
class RevertRequest(PickFields):
    """A commit whose changes are undone on a branch.

    Attributes:
        member: the only member of the commit whose changes are undone; None for all changes.
    """

    commit: str
    branch: str | None = None
    member: str | None = None


@dataclass(frozen=True)
class CherryPickRequest(PickFields):
    """A commit whose changes are applied to a branch."""

    commit: str
    into: str | None = None


@dataclass(frozen=True)
class RestoreRequest(WriteFields):
    """Entities to bring back to their state in a commit.

    Attributes:
        edges: whether to restore the edges of nodes, too.
    """

    type_name: str
    ids: str | Sequence[str]
    at: At
    branch: str | None = None
    edges: bool = False
    preview: bool = False
    memory_budget: int | str | None = None


@dataclass(frozen=True, kw_only=True)
class EmbedRequest(CommitFields, ExecutionFields):
    """Vectors of `@embed` properties to compute."""

    branch: str | None = None
    which: Which | str = Which.STALE
    types: str | Sequence[str] = ()
    properties: str | Sequence[str] = ()
    memory_budget: int | str | None = None
    progress: Callable[[EmbedProgress], None] | None = None
    check: bool = False


@dataclass(frozen=True)
class ExportRequest(ExecutionFields):
    """A snapshot to export."""

    target: Target | None = None
    format: ExportFormat | str = ExportFormat.NDJSON
    types: str | Sequence[str] | None = None
    branch: str | None = None
    at: At | None = None


@dataclass(frozen=True)
class DiffRequest:
    """Two states to compare."""

    before: At
    after: At
    types: str | Sequence[str] | None = None
    ids: str | Sequence[str] | None = None
    ops: str | Sequence[ChangeOp | str] | None = None


@dataclass(frozen=True, kw_only=True)
class ChangeFields:
    """The fields of `ChangeOptions`."""

    kinds: str | Sequence[str] | None = None
    types: str | Sequence[str] | None = None
    ops: str | Sequence[ChangeOp | str] | None = None


@dataclass(frozen=True, kw_only=True)
class CommitChangesRequest(ChangeFields):
    """A page of the changes of one commit."""

    commit: str
    page_token: str | None = None
    limit: int = DEFAULT_CHANGES
    max_bytes: int = DEFAULT_BYTES


@dataclass(frozen=True, kw_only=True)
class PollRequest(ChangeFields):
    """A page of the change feed of a branch."""

    branch: str | None = None
    start: str | None = None
    cursor: str | None = None
    page_token: str | None = None
    limit: int = DEFAULT_CHANGES
    max_bytes: int = DEFAULT_BYTES
    max_commits: int = DEFAULT_COMMITS
    wait: float = 0.0


@dataclass(frozen=True, kw_only=True)
class BaselineRequest(ChangeFields):
    """An export of a branch, with the cursor from which the change feed continues."""

    branch: str | None = None


@dataclass(frozen=True)
class LogRequest:
    """An entity whose changes are listed.

    Attributes:
        follow: whether to list the commits of merged branches.
    """

    type_name: str
    entity_id: str
    branch: str | None = None
    at: At | None = None
    follow: bool = True


@dataclass(frozen=True)
class BlameRequest:
    """An entity whose values are assigned to commits.

    Attributes:
        property: only this property; None for all.
        follow: whether to name the commits of merged branches.
    """

    type_name: str
    entity_id: str
    property: str | None = None
    branch: str | None = None
    at: At | None = None
    follow: bool = True


@dataclass(frozen=True, kw_only=True)
class OptimizeRequest(ExecutionFields):
    """Options of one compaction."""

    branch: str | None = None
    rows_per_fragment: int = ROWS_PER_FRAGMENT


@dataclass(frozen=True)
class SchemaApplyRequest(CommitFields, ExecutionFields):
    """A schema to apply to `main`."""

    schema: str | os.PathLike[str]
    branch: str | None = None
    allow: Allow | str = Allow.DROPS
    memory_budget: int | str | None = None
