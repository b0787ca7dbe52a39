"""OmniGraph: a typed property graph on Lance, with branches over the whole graph.

All public names are here. Each is imported at its first use, so that the package is imported fast.
"""

# See docs/decisions/0251-no-garbage-collection-during-imports.md

from __future__ import annotations

import gc
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from omnigraph.changes.commit_page import ChangeCause as ChangeCause
    from omnigraph.changes.commit_page import ChangePage as ChangePage
    from omnigraph.changes.commit_page import EntityChange as EntityChange
    from omnigraph.changes.diff import ChangeCounts as ChangeCounts
    from omnigraph.changes.diff import Diff as Diff
    from omnigraph.changes.diff import DiffStat as DiffStat
    from omnigraph.changes.diff import TypeDiff as TypeDiff
    from omnigraph.changes.feed import ChangeBlock as ChangeBlock
    from omnigraph.changes.feed import FeedPage as FeedPage
    from omnigraph.changes.row_images import ChangeOp as ChangeOp
    from omnigraph.changes.schema_differences import SchemaDifference as SchemaDifference
    from omnigraph.client.clients import AsyncGraphClient as AsyncGraphClient
    from omnigraph.client.clients import GraphClient as GraphClient
    from omnigraph.client.connect import SERVER_VERSION as SERVER_VERSION
    from omnigraph.client.connect import connect as connect
    from omnigraph.client.connect import connect_async as connect_async
    from omnigraph.commit.branch_reset import BranchReset as BranchReset
    from omnigraph.commit.branches import Branch as Branch
    from omnigraph.commit.location import Relocation as Relocation
    from omnigraph.commit.manifest import Commit as Commit
    from omnigraph.commit.manifest import TypeCounts as TypeCounts
    from omnigraph.commit.snapshots import Snapshot as Snapshot
    from omnigraph.commit.table_writes import Append as Append
    from omnigraph.commit.table_writes import Change as Change
    from omnigraph.commit.table_writes import DeleteIds as DeleteIds
    from omnigraph.commit.table_writes import DeleteWhere as DeleteWhere
    from omnigraph.commit.table_writes import Insert as Insert
    from omnigraph.commit.table_writes import Overwrite as Overwrite
    from omnigraph.commit.table_writes import TableWrite as TableWrite
    from omnigraph.commit.table_writes import Upsert as Upsert
    from omnigraph.commit.tags import Tag as Tag
    from omnigraph.commit.write_request import WriteRequest as WriteRequest
    from omnigraph.embed import Embedder as Embedder
    from omnigraph.engine.access import Action as Action
    from omnigraph.engine.access import Decision as Decision
    from omnigraph.engine.changes import Baseline as Baseline
    from omnigraph.engine.changes import Follower as Follower
    from omnigraph.engine.engines import Choice as Choice
    from omnigraph.engine.engines import Engine as Engine
    from omnigraph.engine.engines import JobProgress as JobProgress
    from omnigraph.engine.engines import SparkOptions as SparkOptions
    from omnigraph.engine.maintenance import UpkeepReport as UpkeepReport
    from omnigraph.engine.opening import relocate as relocate
    from omnigraph.engine.opening import repair as repair
    from omnigraph.engine.opening import restore as restore
    from omnigraph.engine.prepared_query import PreparedQuery as PreparedQuery
    from omnigraph.engine.query_requests import ExplainRequest as ExplainRequest
    from omnigraph.engine.query_requests import QueryRequest as QueryRequest
    from omnigraph.engine.requests import BaselineRequest as BaselineRequest
    from omnigraph.engine.requests import BlameRequest as BlameRequest
    from omnigraph.engine.requests import CherryPickRequest as CherryPickRequest
    from omnigraph.engine.requests import CommitChangesRequest as CommitChangesRequest
    from omnigraph.engine.requests import DiffRequest as DiffRequest
    from omnigraph.engine.requests import EmbedRequest as EmbedRequest
    from omnigraph.engine.requests import ExportRequest as ExportRequest
    from omnigraph.engine.requests import LoadRequest as LoadRequest
    from omnigraph.engine.requests import LogRequest as LogRequest
    from omnigraph.engine.requests import MergeRequest as MergeRequest
    from omnigraph.engine.requests import MutateRequest as MutateRequest
    from omnigraph.engine.requests import OptimizeRequest as OptimizeRequest
    from omnigraph.engine.requests import PollRequest as PollRequest
    from omnigraph.engine.requests import RestoreRequest as RestoreRequest
    from omnigraph.engine.requests import RevertRequest as RevertRequest
    from omnigraph.engine.requests import TransactionRequest as TransactionRequest
    from omnigraph.engine.row_scope import RowRules as RowRules
    from omnigraph.engine.row_scope import Rows as Rows
    from omnigraph.engine.session import Session as Session
    from omnigraph.errors import AccessDeniedError as AccessDeniedError
    from omnigraph.errors import AlreadyInitializedError as AlreadyInitializedError
    from omnigraph.errors import BadRowsError as BadRowsError
    from omnigraph.errors import BlobIntegrityError as BlobIntegrityError
    from omnigraph.errors import BlobRangeError as BlobRangeError
    from omnigraph.errors import BranchNotFoundError as BranchNotFoundError
    from omnigraph.errors import BudgetExceededError as BudgetExceededError
    from omnigraph.errors import CancelledError as CancelledError
    from omnigraph.errors import CatalogError as CatalogError
    from omnigraph.errors import ChangeCursorError as ChangeCursorError
    from omnigraph.errors import ChangedSinceError as ChangedSinceError
    from omnigraph.errors import ChangeFeedGapError as ChangeFeedGapError
    from omnigraph.errors import ClockError as ClockError
    from omnigraph.errors import CompileError as CompileError
    from omnigraph.errors import ConfigurationError as ConfigurationError
    from omnigraph.errors import Conflict as Conflict
    from omnigraph.errors import ConflictError as ConflictError
    from omnigraph.errors import ConflictKind as ConflictKind
    from omnigraph.errors import ConstraintError as ConstraintError
    from omnigraph.errors import CorruptionError as CorruptionError
    from omnigraph.errors import DamagedFileError as DamagedFileError
    from omnigraph.errors import Disposition as Disposition
    from omnigraph.errors import DriftError as DriftError
    from omnigraph.errors import EmbeddingError as EmbeddingError
    from omnigraph.errors import EmbeddingModelError as EmbeddingModelError
    from omnigraph.errors import EmbeddingUnavailableError as EmbeddingUnavailableError
    from omnigraph.errors import ExecutionError as ExecutionError
    from omnigraph.errors import ExternalBlobPolicyError as ExternalBlobPolicyError
    from omnigraph.errors import ExternalBlobSourceError as ExternalBlobSourceError
    from omnigraph.errors import FlushFailedError as FlushFailedError
    from omnigraph.errors import ForbiddenError as ForbiddenError
    from omnigraph.errors import FormatError as FormatError
    from omnigraph.errors import IncompleteCopyError as IncompleteCopyError
    from omnigraph.errors import InitializationClaimedError as InitializationClaimedError
    from omnigraph.errors import InitializationCommittedError as InitializationCommittedError
    from omnigraph.errors import InitializationIndeterminateError as InitializationIndeterminateError
    from omnigraph.errors import InputError as InputError
    from omnigraph.errors import KeyConflictError as KeyConflictError
    from omnigraph.errors import LeaseLostError as LeaseLostError
    from omnigraph.errors import LeaseTimeoutError as LeaseTimeoutError
    from omnigraph.errors import MediaTypeError as MediaTypeError
    from omnigraph.errors import MergeConflictsError as MergeConflictsError
    from omnigraph.errors import MergeSchemaError as MergeSchemaError
    from omnigraph.errors import MethodNotAllowedError as MethodNotAllowedError
    from omnigraph.errors import NetworkError as NetworkError
    from omnigraph.errors import NotFoundError as NotFoundError
    from omnigraph.errors import ObjectChangedError as ObjectChangedError
    from omnigraph.errors import ObjectExistsError as ObjectExistsError
    from omnigraph.errors import ObjectNotFoundError as ObjectNotFoundError
    from omnigraph.errors import OmnigraphError as OmnigraphError
    from omnigraph.errors import OutcomeUnknownError as OutcomeUnknownError
    from omnigraph.errors import ParameterError as ParameterError
    from omnigraph.errors import ParentlessCommitError as ParentlessCommitError
    from omnigraph.errors import ParseError as ParseError
    from omnigraph.errors import PickConflictsError as PickConflictsError
    from omnigraph.errors import PipelineCheckError as PipelineCheckError
    from omnigraph.errors import PlanError as PlanError
    from omnigraph.errors import PolicyError as PolicyError
    from omnigraph.errors import PreconditionFailedError as PreconditionFailedError
    from omnigraph.errors import Problem as Problem
    from omnigraph.errors import ReadOnlyError as ReadOnlyError
    from omnigraph.errors import ReadSetChangedError as ReadSetChangedError
    from omnigraph.errors import RecoveryRequiredError as RecoveryRequiredError
    from omnigraph.errors import RequestTimeoutError as RequestTimeoutError
    from omnigraph.errors import ResourceLimitError as ResourceLimitError
    from omnigraph.errors import RetryableError as RetryableError
    from omnigraph.errors import SchemaBoundaryError as SchemaBoundaryError
    from omnigraph.errors import SchemaDataError as SchemaDataError
    from omnigraph.errors import Span as Span
    from omnigraph.errors import SparkError as SparkError
    from omnigraph.errors import SparkUnavailableError as SparkUnavailableError
    from omnigraph.errors import StagedFilesRemovedError as StagedFilesRemovedError
    from omnigraph.errors import StorageError as StorageError
    from omnigraph.errors import TooManyRequestsError as TooManyRequestsError
    from omnigraph.errors import TransactionConflictError as TransactionConflictError
    from omnigraph.errors import TransactionEndedError as TransactionEndedError
    from omnigraph.errors import TypeCheckError as TypeCheckError
    from omnigraph.errors import UnauthorizedError as UnauthorizedError
    from omnigraph.errors import VersionReclaimedError as VersionReclaimedError
    from omnigraph.errors import Violation as Violation
    from omnigraph.errors import WriteTimeoutError as WriteTimeoutError
    from omnigraph.errors import WriteUndoneError as WriteUndoneError
    from omnigraph.graph.branch import BranchHandle as BranchHandle
    from omnigraph.graph.changes import Changes as Changes
    from omnigraph.graph.collections import CommitPage as CommitPage
    from omnigraph.graph.graph import Graph as Graph
    from omnigraph.graph.graph import init as init
    from omnigraph.graph.graph import open as open
    from omnigraph.graph.pipelines import Pipeline as Pipeline
    from omnigraph.graph.schema import Schema as Schema
    from omnigraph.graph.transaction import Transaction as Transaction
    from omnigraph.history.entity import BlamedValue as BlamedValue
    from omnigraph.history.entity import EntityLog as EntityLog
    from omnigraph.history.entity import EntityOperation as EntityOperation
    from omnigraph.history.entity import LoggedChange as LoggedChange
    from omnigraph.inference import Inferred as Inferred
    from omnigraph.inference import infer as infer
    from omnigraph.lang.query import compile_query as compile_query
    from omnigraph.lang.schema import Catalog as Catalog
    from omnigraph.lang.schema import compile_schema as compile_schema
    from omnigraph.merge.choices import Resolutions as Resolutions
    from omnigraph.merge.choices import Strategy as Strategy
    from omnigraph.merge.pick_receipt import PickOutcome as PickOutcome
    from omnigraph.merge.pick_receipt import PickReceipt as PickReceipt
    from omnigraph.merge.preview import PreviewedChange as PreviewedChange
    from omnigraph.merge.property_level import MergeLevel as MergeLevel
    from omnigraph.merge.receipt import MergeOutcome as MergeOutcome
    from omnigraph.merge.receipt import MergeReceipt as MergeReceipt
    from omnigraph.merge.restore_receipt import RestoreReceipt as RestoreReceipt
    from omnigraph.migrate.allow import Allow as Allow
    from omnigraph.migrate.costs import StepCost as StepCost
    from omnigraph.migrate.receipt import HardDrop as HardDrop
    from omnigraph.migrate.receipt import SchemaPlan as SchemaPlan
    from omnigraph.migrate.receipt import SchemaReceipt as SchemaReceipt
    from omnigraph.pipeline.analytics import Analysis as Analysis
    from omnigraph.pipeline.declared import RunReceipt as RunReceipt
    from omnigraph.pipeline.declared import RunRequest as RunRequest
    from omnigraph.pipeline.spark.session import SparkSettings as SparkSettings
    from omnigraph.pipeline.spark.session import session as spark_session
    from omnigraph.policy.policy import Policy as Policy
    from omnigraph.read.blobs import Blob as Blob
    from omnigraph.read.budget import Budget as Budget
    from omnigraph.read.budget import Cancellation as Cancellation
    from omnigraph.read.export.files import ExportFormat as ExportFormat
    from omnigraph.read.export.files import ExportReceipt as ExportReceipt
    from omnigraph.read.plan.explanation import Explanation as Explanation
    from omnigraph.read.result.result import Result as Result
    from omnigraph.server.app import create_app as create_app
    from omnigraph.upkeep.backup import CopyReceipt as CopyReceipt
    from omnigraph.upkeep.cleanup import CleanupReport as CleanupReport
    from omnigraph.upkeep.indexes import IndexCoverage as IndexCoverage
    from omnigraph.upkeep.indexes import IndexReceipt as IndexReceipt
    from omnigraph.upkeep.optimize import OptimizeReceipt as OptimizeReceipt
    from omnigraph.upkeep.repair_report import RepairReport as RepairReport
    from omnigraph.upkeep.status import Advice as Advice
    from omnigraph.upkeep.status import BranchStatus as BranchStatus
    from omnigraph.upkeep.status import GraphStatus as GraphStatus
    from omnigraph.upkeep.status import TableStatus as TableStatus
    from omnigraph.upkeep.status import TagStatus as TagStatus
    from omnigraph.upkeep.status import Thresholds as Thresholds
    from omnigraph.upkeep.vectors import EmbedProgress as EmbedProgress
    from omnigraph.upkeep.vectors import EmbedReceipt as EmbedReceipt
    from omnigraph.upkeep.vectors import Which as Which
    from omnigraph.write.load import LoadPhase as LoadPhase
    from omnigraph.write.load import LoadProgress as LoadProgress
    from omnigraph.write.mutation import MutationReceipt as MutationReceipt
    from omnigraph.write.receipt import LoadMode as LoadMode
    from omnigraph.write.receipt import LoadReceipt as LoadReceipt
    from omnigraph.write.rules.verify import IntegrityReport as IntegrityReport

_HOMES = {
    "commit.branch_reset": ("BranchReset",),
    "changes.schema_differences": ("SchemaDifference",),
    "changes.commit_page": (
        "ChangeCause",
        "ChangePage",
        "EntityChange",
    ),
    "changes.diff": (
        "ChangeCounts",
        "Diff",
        "DiffStat",
        "TypeDiff",
    ),
    "changes.feed": (
        "ChangeBlock",
        "FeedPage",
    ),
    "changes.row_images": ("ChangeOp",),
    "client.clients": (
        "AsyncGraphClient",
        "GraphClient",
    ),
    "client.connect": (
        "SERVER_VERSION",
        "connect",
        "connect_async",
    ),
    "commit.branches": ("Branch",),
    "commit.location": ("Relocation",),
    "commit.manifest": (
        "Commit",
        "TypeCounts",
    ),
    "commit.snapshots": ("Snapshot",),
    "commit.table_writes": (
        "Append",
        "Change",
        "DeleteIds",
        "DeleteWhere",
        "Insert",
        "Overwrite",
        "TableWrite",
        "Upsert",
    ),
    "commit.tags": ("Tag",),
    "commit.write_request": ("WriteRequest",),
    "embed": ("Embedder",),
    "engine.access": (
        "Action",
        "Decision",
    ),
    "engine.changes": (
        "Baseline",
        "Follower",
    ),
    "engine.engines": (
        "Choice",
        "Engine",
        "JobProgress",
        "SparkOptions",
    ),
    "engine.maintenance": ("UpkeepReport",),
    "engine.opening": (
        "relocate",
        "repair",
        "restore",
    ),
    "engine.prepared_query": ("PreparedQuery",),
    "engine.query_requests": (
        "ExplainRequest",
        "QueryRequest",
    ),
    "engine.requests": (
        "CherryPickRequest",
        "BaselineRequest",
        "CommitChangesRequest",
        "DiffRequest",
        "BlameRequest",
        "EmbedRequest",
        "ExportRequest",
        "LoadRequest",
        "LogRequest",
        "MergeRequest",
        "MutateRequest",
        "OptimizeRequest",
        "PollRequest",
        "RestoreRequest",
        "RevertRequest",
        "TransactionRequest",
    ),
    "engine.row_scope": ("RowRules", "Rows"),
    "engine.session": ("Session",),
    "errors": (
        "AccessDeniedError",
        "AlreadyInitializedError",
        "BadRowsError",
        "BlobIntegrityError",
        "BlobRangeError",
        "BranchNotFoundError",
        "BudgetExceededError",
        "CancelledError",
        "CatalogError",
        "ChangeCursorError",
        "ChangeFeedGapError",
        "ChangedSinceError",
        "ClockError",
        "CompileError",
        "ConfigurationError",
        "Conflict",
        "ConflictError",
        "ConflictKind",
        "ConstraintError",
        "CorruptionError",
        "DamagedFileError",
        "Disposition",
        "DriftError",
        "EmbeddingError",
        "EmbeddingModelError",
        "EmbeddingUnavailableError",
        "ExecutionError",
        "ExternalBlobPolicyError",
        "ExternalBlobSourceError",
        "FlushFailedError",
        "ForbiddenError",
        "FormatError",
        "IncompleteCopyError",
        "InitializationClaimedError",
        "InitializationCommittedError",
        "InitializationIndeterminateError",
        "InputError",
        "KeyConflictError",
        "LeaseLostError",
        "LeaseTimeoutError",
        "MediaTypeError",
        "MergeConflictsError",
        "MergeSchemaError",
        "MethodNotAllowedError",
        "NetworkError",
        "NotFoundError",
        "ObjectChangedError",
        "ObjectExistsError",
        "ObjectNotFoundError",
        "OmnigraphError",
        "OutcomeUnknownError",
        "ParameterError",
        "ParentlessCommitError",
        "ParseError",
        "PickConflictsError",
        "PipelineCheckError",
        "PlanError",
        "PolicyError",
        "PreconditionFailedError",
        "Problem",
        "ReadOnlyError",
        "ReadSetChangedError",
        "RecoveryRequiredError",
        "RequestTimeoutError",
        "ResourceLimitError",
        "RetryableError",
        "SchemaDataError",
        "SchemaBoundaryError",
        "Span",
        "SparkError",
        "SparkUnavailableError",
        "StagedFilesRemovedError",
        "StorageError",
        "TooManyRequestsError",
        "TransactionConflictError",
        "TransactionEndedError",
        "TypeCheckError",
        "UnauthorizedError",
        "VersionReclaimedError",
        "Violation",
        "WriteTimeoutError",
        "WriteUndoneError",
    ),
    "graph.branch": ("BranchHandle",),
    "graph.changes": ("Changes",),
    "graph.collections": ("CommitPage",),
    "graph.graph": (
        "Graph",
        "init",
        "open",
    ),
    "graph.pipelines": ("Pipeline",),
    "graph.schema": ("Schema",),
    "graph.transaction": ("Transaction",),
    "history.entity": (
        "BlamedValue",
        "LoggedChange",
        "EntityLog",
        "EntityOperation",
    ),
    "inference": ("Inferred", "infer"),
    "lang.query": ("compile_query",),
    "lang.schema": (
        "Catalog",
        "compile_schema",
    ),
    "merge.choices": (
        "Resolutions",
        "Strategy",
    ),
    "merge.pick_receipt": (
        "PickOutcome",
        "PickReceipt",
    ),
    "merge.preview": ("PreviewedChange",),
    "merge.property_level": ("MergeLevel",),
    "merge.receipt": (
        "MergeOutcome",
        "MergeReceipt",
    ),
    "merge.restore_receipt": ("RestoreReceipt",),
    "migrate.costs": ("StepCost",),
    "migrate.allow": ("Allow",),
    "migrate.receipt": (
        "HardDrop",
        "SchemaPlan",
        "SchemaReceipt",
    ),
    "pipeline.analytics": ("Analysis",),
    "pipeline.declared": (
        "RunReceipt",
        "RunRequest",
    ),
    "pipeline.spark.session": ("SparkSettings",),
    "policy.policy": ("Policy",),
    "read.blobs": ("Blob",),
    "read.budget": (
        "Budget",
        "Cancellation",
    ),
    "read.export.files": (
        "ExportFormat",
        "ExportReceipt",
    ),
    "read.plan.explanation": ("Explanation",),
    "read.result.result": ("Result",),
    "server.app": ("create_app",),
    "upkeep.backup": ("CopyReceipt",),
    "upkeep.cleanup": ("CleanupReport",),
    "upkeep.indexes": (
        "IndexCoverage",
        "IndexReceipt",
    ),
    "upkeep.optimize": ("OptimizeReceipt",),
    "upkeep.repair_report": ("RepairReport",),
    "upkeep.status": (
        "Advice",
        "BranchStatus",
        "GraphStatus",
        "TableStatus",
        "TagStatus",
        "Thresholds",
    ),
    "upkeep.vectors": (
        "EmbedProgress",
        "EmbedReceipt",
        "Which",
    ),
    "write.load": (
        "LoadPhase",
        "LoadProgress",
    ),
    "write.mutation": ("MutationReceipt",),
    "write.receipt": (
        "LoadMode",
        "LoadReceipt",
    ),
    "write.rules.verify": ("IntegrityReport",),
}
"""The public names of each module."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", "spark_session", *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it."""
    if name == "spark_session":
        found = _load("pipeline.spark.session").session
    elif name in _MODULES:
        found = getattr(_load(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    globals()[name] = found
    return found


def _load(module: str) -> Any:
    """Import a module without garbage collection: imports create many objects and hardly any garbage."""
    with _not_collecting:
        return import_module(f"omnigraph.{module}")


class _NotCollecting:
    """Turns garbage collection off while at least one thread is in a `with` block."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads = 0
        self._collects = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._threads:
                self._collects = gc.isenabled()
                gc.disable()
            self._threads += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._threads -= 1
            if not self._threads and self._collects:
                gc.enable()


_not_collecting = _NotCollecting()


def __dir__() -> list[str]:
    return sorted(__all__)
