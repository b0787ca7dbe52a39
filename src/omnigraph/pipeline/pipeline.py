"""The operations on a graph that run on Spark, as methods of one class."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Unpack

from omnigraph.commit.manifest import MAIN
from omnigraph.engine import maintenance
from omnigraph.engine.embed import embed
from omnigraph.engine.engines import Engine, SparkOptions
from omnigraph.engine.export import export
from omnigraph.engine.load import load
from omnigraph.engine.merge import merge
from omnigraph.engine.options import takes
from omnigraph.engine.requests import EmbedRequest, ExportRequest, LoadRequest, MergeRequest, OptimizeRequest
from omnigraph.engine.session import At
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.graph.pipelines import (
    AnalyseOptions,
    JobOptions,
    PipelineEmbedOptions,
    PipelineExportOptions,
    PipelineLoadOptions,
    PipelineMergeOptions,
    PipelineOptimizeOptions,
    RunOptions,
)
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.pipeline.analytics import Analysis, analyse
from omnigraph.pipeline.declared import RunReceipt, RunRequest, run
from omnigraph.pipeline.spark.session import Session
from omnigraph.read.export.files import ExportFormat, ExportReceipt
from omnigraph.upkeep.optimize import OptimizeReceipt
from omnigraph.upkeep.vectors import EmbedReceipt
from omnigraph.write.input.sources import LoadSource
from omnigraph.write.receipt import LoadReceipt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Pipeline:
    """Operations on a graph with Spark.

    `load`, `merge`, `embed`, `optimize` and `export` do the same as the method of `Graph` with this name and with
    `engine="spark"`. Each of them takes the options of the `Graph` method, and the following:

    - `jobs`: is called with the progress of the work on Spark.
    - `seconds`: the time limit of the work on Spark, in seconds.
    - `cancel`: stops the work from another thread. It has no effect after the commit.
    - `split_bytes`: the approximate bytes of input that one task reads.
    - `merge_threshold`: a number of bytes, or a text like `"512 MiB"`. If the rows of a type have at least this size,
      tasks merge them with the stored rows; otherwise the driver does. Default: `OMNIGRAPH_MERGE_THRESHOLD`, or 1 GiB.

    Args:
        graph: the graph.
        spark: the Spark session; by default that of the process, started when it is needed.
    """

    def __init__(self, graph: Graph, spark: Session | None = None) -> None:
        graph.session.require_whole("pipeline")
        self._graph = graph
        self._session = spark

    @takes(PipelineLoadOptions)
    def load(
        self,
        source: LoadSource | Mapping[str, DataFrame] | DataFrame | None = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        branch: str | None = None,
        **options: Unpack[PipelineLoadOptions],
    ) -> LoadReceipt:
        """Load any number of rows as one commit, by tasks on Spark. The result is the same as that of `Graph.load`.

        Args:
            source: a source of `Graph.load`, a DataFrame (`type_name` gives its type), or a mapping from types to
                DataFrames.
            nodes: rows by node type, in place of a source.
            edges: rows by edge type, together with `nodes`.
            branch: the target branch; by default the branch of the graph handle.
            options: the options of `Graph.load`, and those that are listed at this class.

        Raises:
            BadRowsError: records cannot become rows of their type.
            ConstraintError: rows break a constraint of the schema.
            KeyConflictError: an id must be new, but already exists.
            SparkUnavailableError: Spark cannot be started.
            SparkError: tasks failed repeatedly.
            CancelledError: the work was cancelled.
            BudgetExceededError: the work exceeded its time limit.
        """
        rows = _source(source, nodes, edges)
        return load(self._graph.session, rows, LoadRequest(branch=branch, **self._with_spark(options)))

    @takes(PipelineMergeOptions)
    def merge(self, source: str, into: str = MAIN, **options: Unpack[PipelineMergeOptions]) -> MergeReceipt:
        """Merge a branch into another, by tasks on Spark. The result is the same as that of `Graph.merge`.

        Raises:
            MergeConflictsError: the branches conflict.
            MergeSchemaError: rows cannot be converted between their schemas.
            SparkUnavailableError: Spark cannot be started.
            SparkError: tasks failed repeatedly.
            CancelledError: the work was cancelled.
            BudgetExceededError: the work exceeded its time limit.
        """
        return merge(self._graph.session, MergeRequest(source, into, **self._with_spark(options)))

    @takes(PipelineEmbedOptions)
    def embed(self, *, branch: str | None = None, **options: Unpack[PipelineEmbedOptions]) -> EmbedReceipt:
        """Compute vectors of `@embed` properties that are missing or out of date, by tasks on Spark. See `Graph.embed`.

        Raises:
            InputError: there is no such type, vector or engine.
            EmbeddingModelError: the schema names a model that differs from the configured model.
            EmbeddingError: vectors cannot be computed. Nothing was written.
            SparkUnavailableError: Spark cannot be started.
            SparkError: tasks failed repeatedly.
            CancelledError: the work was cancelled.
            BudgetExceededError: the work exceeded its time limit.
        """
        return embed(self._graph.session, EmbedRequest(branch=branch, **self._with_spark(options)))

    @takes(PipelineOptimizeOptions)
    def optimize(self, **options: Unpack[PipelineOptimizeOptions]) -> OptimizeReceipt:
        """Compact tables and build indexes by tasks on Spark. The result is the same as that of `Graph.optimize`.

        Raises:
            WriteTimeoutError: another writer held the lease of the branch for too long.
            SparkUnavailableError: Spark cannot be started.
            CancelledError: the work was cancelled.
        """
        return maintenance.optimize(self._graph.session, OptimizeRequest(**self._with_spark(options)))

    @takes(PipelineExportOptions)
    def export(
        self,
        target: str | os.PathLike[str],
        *,
        format: ExportFormat | str = ExportFormat.NDJSON,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[PipelineExportOptions],
    ) -> ExportReceipt:
        """Export one snapshot by tasks on Spark.

        NDJSON is one file, the same as `Graph.export` writes. Parquet and Arrow are a directory of parts for each type.

        Raises:
            InputError: there is no such type or format, or the target cannot be written.
            NotFoundError: there is no such commit.
            SparkUnavailableError: Spark cannot be started.
            SparkError: tasks failed repeatedly.
        """
        request = ExportRequest(target, format, branch=branch, at=at, **self._with_spark(options))
        receipt = export(self._graph.session, request)
        assert isinstance(receipt, ExportReceipt), "there is a target"
        return receipt

    @takes(AnalyseOptions)
    def analyse(self, **options: Unpack[AnalyseOptions]) -> Analysis:
        """Graph algorithms over one snapshot: PageRank, components, labels, triangles and shortest paths.

        Args:
            nodes: node types; by default those at the ends of the given edge types, or all if no edge types are given.
            edges: edge types; by default all edge types between the given node types.
            weight: an edge property that is the length of an edge, for shortest paths.
            branch: the branch whose head is analysed; by default the branch of the graph handle.
            at: the snapshot to analyse in place of the head: a snapshot, a commit id or a tag; or a time or manifest
                version of the branch.
            engine: `auto`, `local` or `spark`. `auto` runs in this process if the estimated memory is at most
                `OMNIGRAPH_QUERY_MEMORY`, and on Spark otherwise.
            options: the keyword arguments listed above.

        Raises:
            InputError: there is no such type, property or engine.
            NotFoundError: there is no such branch or commit.
        """
        return analyse(self._graph, session=self._session, **options)

    @takes(RunOptions)
    def run(self, pipeline: str | os.PathLike[str] | Mapping[str, Any], **options: Unpack[RunOptions]) -> RunReceipt:
        """Run a declared pipeline: load its rows as one commit on a branch, check the branch, then merge or keep it.

        An interrupted run continues when it is started again. Rows that are already loaded are not loaded again.

        Args:
            pipeline: the path of a YAML file, or its content.
            variables: the values of the variables of the pipeline.
            run_id: the id of the run; by default a digest of the file, the variables and the inputs.
            check: whether to only check the input, and write nothing.
            engine: `auto`, `local` or `spark`: where rows are loaded. SQL needs Spark.
            progress: is called with the progress of the load.
            jobs: is called with the progress of the work on Spark.
            cancel: stops the work on Spark from another thread.
            options: the keyword arguments that are listed above, from `variables` to `cancel`.

        Raises:
            InputError: the declaration is not valid, or a run with other inputs has the same id.
            PipelineCheckError: a check of the pipeline failed. Nothing was merged.
            BadRowsError: records cannot become rows of their type.
            ConstraintError: rows break a constraint of the schema.
            SparkUnavailableError: Spark is needed and cannot be started.
        """
        return run(self._graph, pipeline, RunRequest(session=self._session, **options))

    def _with_spark(self, options: Any) -> Any:
        """The options of a `Graph` method. The options for jobs on Spark are moved into the option `spark`."""
        spark = options.pop("spark", None) or SparkOptions()
        known = {each.name for each in fields(SparkOptions)} & set(JobOptions.__annotations__)
        given = {name: options.pop(name) for name in known if name in options}
        if self._session is not None:
            given["session"] = self._session
        return {"engine": Engine.SPARK, **options, "spark": replace(spark, **given)}


def _source(source: Any, nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None) -> Any:
    if nodes is None and edges is None:
        if source is None:
            raise InputError("there is nothing to load", hint="give a source, or nodes= and edges=")
        return source
    if source is not None:
        raise InputError("give a source, or nodes= and edges=, but not both")
    named = {node_key(name): rows for name, rows in (nodes or {}).items()}
    return named | {edge_key(name): rows for name, rows in (edges or {}).items()}
