"""The JSON bodies of answers, for the OpenAPI document. Answers may have more members than these."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, RootModel


class Health(BaseModel):
    status: Literal["ok"]
    version: str
    internal_schema_version: int
    source_version: str | None = None


class Readiness(BaseModel):
    """Whether the server answers requests. `warnings` are for the operator."""

    status: Literal["ready", "draining"]
    state: Literal["open", "default_deny", "policy_enabled"]
    graphs: int
    quarantined: int
    warnings: list[str]


class GraphEntry(BaseModel):
    graph_id: str
    uri: str


class Graphs(BaseModel):
    graphs: list[GraphEntry]
    cursor: str | None = None


class Dataset(BaseModel):
    entity_kind: Literal["node", "edge"]
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


class SnapshotAnswer(BaseModel):
    graph_branch: str
    graph_manifest_version: int
    graph_commit_id: str
    internal_schema_version: int
    datasets: list[Dataset]


class Target(BaseModel):
    branch: str | None
    snapshot: str | None


class LegacyRead(BaseModel):
    query_name: str
    target: Target
    row_count: int
    columns: list[str]
    rows: list[dict[str, Any]]


class Read(LegacyRead):
    graph_commit_id: str | None = None
    warnings: list[str] | None = None


class CommitAnswer(BaseModel):
    """A commit. `graph_branch` is null for `main`; `created_at` is in microseconds."""

    graph_commit_id: str
    graph_branch: str | None
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    message: str | None = None
    labels: dict[str, str] | None = None
    kind: str | None = None
    counts: dict[str, Any] | None = None
    members: list[dict[str, Any]] | None = None
    member_id: str | None = None


class ListedCommit(CommitAnswer):
    """A commit of a listing. `is_kept` is false if its state can no longer be read."""

    is_kept: bool | None = None


class Commits(BaseModel):
    commits: list[ListedCommit]
    cursor: str | None = None


class Change(BaseModel):
    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None = None
    commit: CommitAnswer | None


class Invoked(RootModel[Read | Change]):
    """The answer of a stored query: that of a query that reads, or of a query that writes."""


class LoadedType(BaseModel):
    name: str
    entities_loaded: int


class BatchLoad(BaseModel):
    branch: str
    base_branch: str | None = None
    branch_created: bool
    mode: str
    nodes: list[LoadedType]
    edges: list[LoadedType]
    total_entities: int
    actor_id: str | None = None
    commit: CommitAnswer | None = None
    coerced: list[dict[str, Any]] | None = None


class Ingest(BatchLoad):
    uri: str


class Schema(BaseModel):
    schema_source: str


class SchemaApplied(BaseModel):
    uri: str
    supported: bool
    applied: bool
    step_count: int
    steps: list[dict[str, Any]]
    graph_manifest_version: int
    lines: list[str]
    warnings: list[str]
    actor_id: str | None = None


class Branches(BaseModel):
    branches: list[str]
    cursor: str | None = None


class BranchCreated(BaseModel):
    uri: str
    from_: str = Field(alias="from")
    name: str
    actor_id: str | None = None


class BranchDeleted(BaseModel):
    uri: str
    name: str
    actor_id: str | None = None


class TagEntry(BaseModel):
    """A tag. `graph_branch` is null for `main`; `created_at` is in microseconds, and null for tags of old releases."""

    name: str
    graph_commit_id: str
    graph_branch: str | None
    graph_manifest_version: int
    created_at: int | None


class Tags(BaseModel):
    tags: list[TagEntry]
    cursor: str | None = None


class TagCreated(TagEntry):
    uri: str
    actor_id: str | None = None


class TagDeleted(BaseModel):
    uri: str
    name: str
    actor_id: str | None = None


class TableOutcome(BaseModel):
    key: str
    state: str
    from_version: int | None
    to_version: int | None


class Recovery(BaseModel):
    """A write that recovery has completed or undone. `graph_commit_id` is null if nothing was published."""

    operation_id: str
    graph_commit_id: str | None
    recovery_kind: Literal["RolledForward", "RolledBack", "OrphanedBranchDiscarded", "TornFileSetAside"]
    recovery_for_actor: str | None
    sidecar_writer_kind: str
    graph_branch: str
    per_table_outcomes: list[TableOutcome]
    created_at: int


class PendingWrite(BaseModel):
    """A write that is in progress, or that was interrupted and will be recovered."""

    operation_id: str
    graph_commit_id: str
    actor_id: str | None
    sidecar_writer_kind: str
    graph_branch: str
    started_at: int


class Recoveries(BaseModel):
    recoveries: list[Recovery]
    pending: list[PendingWrite]
    cursor: str | None = None


class Merge(BaseModel):
    source: str
    target: str
    outcome: str
    actor_id: str | None = None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    commit: CommitAnswer | None = None
    merge_conflicts: list[dict[str, Any]] | None = None
    total_conflicts: int | None = None


class CatalogParameter(BaseModel):
    name: str
    kind: Literal["string", "bool", "int", "bigint", "float", "date", "datetime", "blob", "vector", "list"]
    type: str
    item_kind: str | None = None
    vector_dim: int | None = None
    nullable: bool


class CatalogEntry(BaseModel):
    name: str
    tool_name: str
    description: str | None = None
    instruction: str | None = None
    deprecated: bool | None = None
    successor: str | None = None
    mutation: bool
    params: list[CatalogParameter]


class Queries(BaseModel):
    queries: list[CatalogEntry]
    cursor: str | None = None


class Cause(BaseModel):
    graph_commit_id: str
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    authored_branch: str
    actor_id: str | None
    authored_at: int


class TypeName(BaseModel):
    id: str
    name: str


class EntityChange(BaseModel):
    kind: Literal["node", "edge"]
    type: TypeName
    id: str
    op: Literal["insert", "update", "delete"]
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class ChangeBlock(BaseModel):
    cause: Cause
    changes: list[EntityChange]


class CommitChanges(ChangeBlock):
    next_page_token: str | None = None


class FeedPage(BaseModel):
    blocks: list[ChangeBlock]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None


class SchemaDifference(BaseModel):
    """A change of the schema: of a type, or of a property of it."""

    change: str
    kind: str
    type_name: str
    property: str | None
    part: str | None
    before: str | None
    after: str | None


class Endpoints(BaseModel):
    src: str
    dst: str


class NetChange(BaseModel):
    """The change of one entity between two states. `changed` names the properties that an update has changed."""

    kind: Literal["node", "edge"]
    type_name: str
    id: str
    op: Literal["insert", "update", "delete"]
    published_dataset_version: int
    endpoints: Endpoints | None = None
    changed: list[str] | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class ChangeStats(BaseModel):
    inserts: int
    updates: int
    deletes: int
    types_affected: int


class Diff(BaseModel):
    """The changes from one state to another. `truncated` says that there are more than `limit`; `stats` counts all."""

    from_graph_manifest_version: int
    to_graph_manifest_version: int
    from_graph_commit_id: str
    to_graph_commit_id: str
    graph_branch: str | None
    schema_: list[SchemaDifference] = Field(alias="schema")
    changes: list[NetChange]
    stats: ChangeStats
    truncated: bool


class TypedEntity(BaseModel):
    entity_kind: str
    type_name: str


class KeyConflict(TypedEntity):
    entity_id: str | None


class VersionConflict(TypedEntity):
    expected_published_dataset_version: int
    actual_published_dataset_version: int


class ManifestConflict(BaseModel):
    table_key: str
    expected: int
    actual: int


class ReadSetConflict(BaseModel):
    member: str
    expected: str | int | None
    actual: str | int | None


class ResourceLimit(BaseModel):
    resource: str
    limit: float
    actual: float


class BlobRange(BaseModel):
    start: int
    end: int | None
    length: int


class ExternalBlobSource(BaseModel):
    uri: str
    reason: str


class RecoveryRequired(BaseModel):
    operation_id: str


class PreconditionFailure(BaseModel):
    expected: str
    actual: str | None


class ChangeFeedGap(BaseModel):
    cursor: str | None
    first_unreadable_commit_id: str


class ChangeDiffRefusal(BaseModel):
    reason: str
    graph_commit_id: str
    type_name: str | None


class Error(BaseModel):
    """Every error of the server. Only the details that apply are present."""

    error: str
    code: (
        Literal[
            "unauthorized",
            "forbidden",
            "bad_request",
            "not_found",
            "method_not_allowed",
            "conflict",
            "too_many_requests",
            "internal",
        ]
        | None
    ) = None
    kind: str
    disposition: Literal["fix", "retry", "decide", "unknown"]
    request_id: str
    hint: str | None = None
    diagnostic: str | None = None
    span: dict[str, int] | None = None
    merge_conflicts: list[dict[str, Any]] | None = None
    total_conflicts: int | None = None
    problems: list[dict[str, Any]] | None = None
    violations: list[dict[str, Any]] | None = None
    total_problems: int | None = None
    problem_counts: list[list[Any]] | None = None
    published_dataset_version_conflict: VersionConflict | None = None
    manifest_conflict: ManifestConflict | None = None
    read_set_conflict: ReadSetConflict | None = None
    key_conflict: KeyConflict | None = None
    key_conflicts: dict[str, Any] | None = None
    resource_limit: ResourceLimit | None = None
    blob_range: BlobRange | None = None
    external_blob_source: ExternalBlobSource | None = None
    recovery_required: RecoveryRequired | None = None
    precondition_failure: PreconditionFailure | None = None
    change_feed_gap: ChangeFeedGap | None = None
    change_diff_refusal: ChangeDiffRefusal | None = None
