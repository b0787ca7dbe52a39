"""The verbs of a graph on Spark, as methods of a handle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Unpack

from omnigraph.commit.manifest import MAIN
from omnigraph.engine.engines import Engine, SparkOptions
from omnigraph.engine.options import takes
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
    """A graph on Spark. `load`, `merge`, `embed`, `optimize` and `export` are those of `Graph` with `engine="spark"`.

    All of them take the options of `Graph` and these:

    - `jobs`: is called with the progress of the work on Spark.
    - `seconds`: the time limit of the work on Spark.
    - `cancel`: stops the work from another thread, until it is committed.
    - `split_bytes`: the approximate size of the input that one task reads.
    - `merge_threshold`: the size of the rows of a type from which tasks merge them with the stored rows: bytes, or a
      text such as `"512 MiB"`; by default `OMNIGRAPH_MERGE_THRESHOLD`, or 1 GiB.

    Args:
        graph: the graph.
        spark: the Spark session; by default that of the process, started when it is needed.
    """

    def __init__(self, graph: Graph, spark: Session | None = None) -> None:
        self._graph = graph
        self._session = spark

    @takes(PipelineLoadOptions, without=("engine",))
    def load(
        self,
        source: LoadSource | Mapping[str, DataFrame] | DataFrame | None = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        branch: str | None = None,
        **options: Unpack[PipelineLoadOptions],
    ) -> LoadReceipt:
        """Load rows of any volume as one commit, by tasks on Spark. The graph is the one that `Graph.load` makes.

        Args:
            source: a source of `Graph.load`, or DataFrames: one whose type `type_name` names, or a mapping by type.
            nodes: rows by node type, in place of a source.
            edges: rows by edge type, together with `nodes`.
            branch: the target; by default the branch of the handle.
            options: the options of `Graph.load` and of this class.

        Raises:
            BadRowsError: records cannot become rows of their type.
            ConstraintError: rows break a constraint of the schema.
            KeyConflictError: an id exists that should be new.
            SparkUnavailableError: Spark cannot be started.
            SparkError: tasks failed repeatedly.
            CancelledError: it was cancelled.
            BudgetExceededError: it exceeded its time limit.
        """
        rows = _source(source, nodes, edges)
        return self._graph.load(rows, branch=branch, **self._with_spark(options))

    @takes(PipelineMergeOptions, without=("engine",))
    def merge(self, source: str, into: str = MAIN, **options: Unpack[PipelineMergeOptions]) -> MergeReceipt:
        """Merge a branch into another; tasks on Spark compare the tables. The result is that of `Graph.merge`.

        Raises:
            MergeConflictsError: the branches conflict.
            MergeSchemaError: rows cannot be converted between their schemas.
            SparkUnavailableError: Spark cannot be started.
            SparkError: tasks failed repeatedly.
            CancelledError: it was cancelled.
            BudgetExceededError: it exceeded its time limit.
        """
        return self._graph.merge(source, into, **self._with_spark(options))

    @takes(PipelineEmbedOptions, without=("engine",))
    def embed(self, *, branch: str | None = None, **options: Unpack[PipelineEmbedOptions]) -> EmbedReceipt:
        """Compute vectors of `@embed` properties that are missing or out of date, by tasks on Spark. See `Graph.embed`.

        Raises:
            InputError: there is no such type, vector or engine.
            EmbeddingModelError: the schema records another model than the configured one.
            EmbeddingError: vectors cannot be computed. Nothing was written.
            SparkUnavailableError: Spark cannot be started.
            SparkError: tasks failed repeatedly.
            CancelledError: it was cancelled.
            BudgetExceededError: it exceeded its time limit.
        """
        return self._graph.embed(branch=branch, **self._with_spark(options))

    @takes(PipelineOptimizeOptions, without=("engine",))
    def optimize(self, **options: Unpack[PipelineOptimizeOptions]) -> OptimizeReceipt:
        """Compact tables and build indexes by tasks on Spark. The result is that of `Graph.optimize`.

        Raises:
            WriteTimeoutError: it did not get the lease in time.
            SparkUnavailableError: Spark cannot be started.
            CancelledError: it was cancelled.
        """
        return self._graph.optimize(**self._with_spark(options))

    @takes(PipelineExportOptions, without=("engine",))
    def export(
        self,
        target: str | os.PathLike[str],
        *,
        format: ExportFormat | str = ExportFormat.NDJSON,
        branch: str | None = None,
        at: Any = None,
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
        return self._graph.export(target, format=format, branch=branch, at=at, **self._with_spark(options))

    @takes(AnalyseOptions)
    def analyse(self, **options: Unpack[AnalyseOptions]) -> Analysis:
        """Graph algorithms over one snapshot: PageRank, components, labels, triangles and shortest paths.

        Args:
            nodes: node types; by default those at the ends of the edges, or all if no edges are given.
            edges: edge types; by default all between the nodes.
            weight: an edge property that is the length of an edge, for shortest paths.
            branch: the head of a branch; by default that of the handle.
            at: another snapshot: a snapshot, a commit id or a tag; or a time or manifest version of the branch.
            engine: `auto`, `local` or `spark`; by default this process up to the memory that `OMNIGRAPH_QUERY_MEMORY`
                allows, and Spark beyond.
            options: the arguments above.

        Raises:
            InputError: there is no such type, property or engine.
            NotFoundError: there is no such branch or commit.
        """
        return analyse(self._graph, session=self._session, **options)

    @takes(RunOptions)
    def run(self, pipeline: str | os.PathLike[str] | Mapping[str, Any], **options: Unpack[RunOptions]) -> RunReceipt:
        """Run a declared pipeline: load its rows as one commit on a branch, check the branch, and merge or leave it.

        An interrupted run continues when it is started again. Rows that are already loaded are not loaded again.

        Args:
            pipeline: the path of a YAML file, or its content.
            variables: the values of its variables.
            run_id: the id of the run; by default a digest of the file, the variables and the inputs.
            check: check everything, and write nothing.
            engine: `auto`, `local` or `spark`: where rows are loaded. SQL needs Spark.
            progress: is called with the progress of the load.
            jobs: is called with the progress of the work on Spark.
            cancel: stops the work on Spark from another thread.
            options: the arguments above.

        Raises:
            InputError: the declaration is not valid, or the id belongs to another run.
            PipelineCheckError: a check does not hold. Nothing was merged.
            BadRowsError: records cannot become rows of their type.
            ConstraintError: rows break a constraint of the schema.
            SparkUnavailableError: Spark is needed and cannot be started.
        """
        return run(self._graph, pipeline, RunRequest(session=self._session, **options))

    def _with_spark(self, options: Any) -> Any:
        """The options of a verb of `Graph`: the job options become its `spark` option."""
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
