"""Keyword options of the verbs: one TypedDict each. `requests` has the dataclasses with the same fields."""

# See docs/decisions/0153-one-request-per-verb.md

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Required

from omnigraph.engine.options import TypedDict

if TYPE_CHECKING:
    from omnigraph.changes.row_images import ChangeOp
    from omnigraph.engine.engines import Choice, Engine, SparkOptions
    from omnigraph.engine.query_text import ListedRead
    from omnigraph.engine.session import At
    from omnigraph.merge.choices import Resolutions, Strategy
    from omnigraph.merge.property_level import MergeLevel
    from omnigraph.migrate.allow import Allow
    from omnigraph.read.budget import Budget, Cancellation
    from omnigraph.upkeep.vectors import EmbedProgress, Which
    from omnigraph.write.input.table_mapping import MappingSource
    from omnigraph.write.load import LoadProgress
    from omnigraph.write.receipt import LoadMode


class CommitOptions(TypedDict, total=False):
    """Options of all verbs that commit."""

    expect_head: str | None
    timeout: float | None
    message: str | None
    labels: Mapping[str, str] | None


class WriteOptions(CommitOptions, total=False):
    """Options of writes with preconditions and an idempotency key."""

    unchanged_since: str | None
    reads: Sequence[ListedRead]
    idempotency_key: str | None


class ExecutionOptions(TypedDict, total=False):
    """Options of verbs that run in this process or on Spark."""

    engine: Engine | str
    spark: SparkOptions | None
    cancel: Cancellation | None
    chosen: Callable[[Choice], None] | None


class QueryOptions(TypedDict, total=False):
    """Options of `query`."""

    name: str | None
    budget: Budget | None
    cancel: Cancellation | None


class ExplainOptions(QueryOptions, total=False):
    """Options of `explain`."""

    analyze: bool


class MutateOptions(WriteOptions, total=False):
    """Options of `mutate`."""

    name: str | None


class RowOptions(TypedDict, total=False):
    """Options of `load` that control how input becomes rows."""

    mode: Required[LoadMode | str]
    type_name: str | None
    mapping: MappingSource | None
    format: str | None
    lenient: bool
    embed: bool
    memory_budget: int | str | None
    progress: Callable[[LoadProgress], None] | None


class LoadOptions(RowOptions, WriteOptions, ExecutionOptions, total=False):
    """Options of `load`."""

    base: str | None
    check: bool


class MergeOptions(WriteOptions, ExecutionOptions, total=False):
    """Options of `merge`."""

    strategy: Strategy | str | None
    resolutions: Resolutions | None
    preview: bool
    delete_branch: bool
    level: MergeLevel | str | None
    memory_budget: int | str | None


class BranchUpdateOptions(WriteOptions, ExecutionOptions, total=False):
    """Options of `branches.update`."""

    strategy: Strategy | str | None
    resolutions: Resolutions | None
    preview: bool
    level: MergeLevel | str | None
    memory_budget: int | str | None


class PickOptions(WriteOptions, ExecutionOptions, total=False):
    """Options of `revert` and `cherry_pick`."""

    parent: int | None
    strategy: Strategy | str | None
    resolutions: Resolutions | None
    level: MergeLevel | str | None
    preview: bool
    memory_budget: int | str | None


class RestoreOptions(WriteOptions, total=False):
    """Options of `restore`."""

    edges: bool
    preview: bool
    memory_budget: int | str | None


class EmbedOptions(CommitOptions, ExecutionOptions, total=False):
    """Options of `embed`."""

    which: Which | str
    types: str | Sequence[str]
    properties: str | Sequence[str]
    memory_budget: int | str | None
    progress: Callable[[EmbedProgress], None] | None
    check: bool


class ExportOptions(ExecutionOptions, total=False):
    """Options of `export`."""

    types: str | Sequence[str] | None


class DiffOptions(TypedDict, total=False):
    """Options of `diff`."""

    types: str | Sequence[str] | None
    ids: str | Sequence[str] | None
    ops: str | Sequence[ChangeOp | str] | None


class ChangeOptions(TypedDict, total=False):
    """Options of all reads of the change feed."""

    kinds: str | Sequence[str] | None
    types: str | Sequence[str] | None
    ops: str | Sequence[ChangeOp | str] | None


class CommitChangesOptions(ChangeOptions, total=False):
    """Options of `changes.of`."""

    page_token: str | None
    limit: int
    max_bytes: int


class FollowOptions(ChangeOptions, total=False):
    """Options of `changes.follow`."""

    start: str | None
    cursor: str | None
    page_token: str | None
    limit: int
    max_bytes: int
    max_commits: int


class PollOptions(FollowOptions, total=False):
    """Options of `changes.poll`."""

    wait: float


class HistoryOptions(TypedDict, total=False):
    """Options of `log` and `blame`."""

    branch: str | None
    at: At | None
    follow: bool


class OptimizeOptions(ExecutionOptions, total=False):
    """Options of `optimize`."""

    branch: str | None
    rows_per_fragment: int


class SchemaApplyOptions(CommitOptions, ExecutionOptions, total=False):
    """Options of `schema.apply`."""

    branch: str | None
    allow: Allow | str
    memory_budget: int | str | None
