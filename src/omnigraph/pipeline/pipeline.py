"""What a graph can have done on Spark, as its handle offers it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.commit.manifest import MAIN
from omnigraph.commit.ref_names import branch_name
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.graph.embedding import EmbedRequest, embed, several, which_of
from omnigraph.graph.graph import At
from omnigraph.graph.loading import LoadRequest, load_mode
from omnigraph.graph.merging import MergeRequest
from omnigraph.graph.preconditions import ListedRead, unchanged
from omnigraph.merge.choices import Resolutions, Strategy
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.pipeline.analytics import Analysis, analyse
from omnigraph.pipeline.declared import RunReceipt, RunRequest, run
from omnigraph.pipeline.embedding import embed_on_spark, way
from omnigraph.pipeline.engine import Choice, Engine
from omnigraph.pipeline.export import export
from omnigraph.pipeline.jobs import JobProgress, Watch
from omnigraph.pipeline.load import SparkOptions, load
from omnigraph.pipeline.merge import MergeOptions, merge
from omnigraph.pipeline.optimize import optimize_by
from omnigraph.pipeline.session import Session, session
from omnigraph.read.budget import Cancellation
from omnigraph.read.export.files import ExportFormat, ExportReceipt
from omnigraph.upkeep.optimize import ROWS_PER_FRAGMENT, OptimizeReceipt
from omnigraph.upkeep.vectors import EmbedProgress, EmbedReceipt, Which
from omnigraph.write.load import LoadProgress
from omnigraph.write.receipt import LoadMode, LoadReceipt
from omnigraph.write.sources import LoadSource
from omnigraph.write.splits import SPLIT_BYTES
from omnigraph.write.table_mapping import MappingSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Pipeline:
    """A graph on Spark.

    Args:
        graph: the graph.
        spark: the session; by default that of the process, which is started when it is needed.
    """

    def __init__(self, graph: Graph, spark: Session | None = None) -> None:
        self._graph = graph
        self._session = spark

    def load(
        self,
        source: LoadSource | Mapping[str, DataFrame] | DataFrame | None = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: LoadMode | str,
        type_name: str | None = None,
        mapping: MappingSource | None = None,
        lenient: bool = False,
        branch: str | None = None,
        base: str | None = None,
        expect_head: str | None = None,
        unchanged_since: str | None = None,
        reads: Sequence[ListedRead] = (),
        timeout: float | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        embed: bool = True,
        memory_budget: int | str | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
        check: bool = False,
        jobs: Callable[[JobProgress], None] | None = None,
        cancel: Cancellation | None = None,
        seconds: float | None = None,
        split_bytes: int = SPLIT_BYTES,
        merge_threshold: int | str | None = None,
    ) -> LoadReceipt:
        """Load rows as one commit, by tasks on Spark: any amount, and the same graph that `Graph.load` makes of it.

        Args:
            source: what `Graph.load` takes, or DataFrames: one whose type `type_name` says, or by type.
            nodes: rows by node type, in the place of a source.
            edges: rows by edge type, beside those.
            mode: as in `Graph.load`, like everything down to `check`.
            type_name: the type in a file or table that does not say it.
            mapping: what tables are whose columns are not named like the properties: DataFrames, too, by the names
                that they are given under.
            lenient: read what the strict reader would refuse, as far as that makes sense.
            branch: where to.
            base: a branch to fork the target from if there is no such branch yet.
            expect_head: load only if this commit is the branch head.
            unchanged_since: write only if nothing that the write depends on has changed since this commit: the rows
                that it touches, what each of its conditions matches, and the results of `reads`.
            reads: queries, each as a text or as (text, parameters).
            timeout: seconds that it may wait for its turn, and be run again after others; by default 60.
            idempotency_key: a load with a key that a commit of the branch carries is not repeated.
            message: the commit's.
            embed: compute the `@embed` vectors that the input leaves out.
            memory_budget: how much memory the rows of one task may take.
            progress: is told how far the load has come.
            check: check everything, and write nothing.
            jobs: is told how far the work on Spark has come.
            cancel: stops the load from another thread, until it is committed.
            seconds: how long the work on Spark may take.
            split_bytes: about how much of the input one task reads.
            merge_threshold: from how many bytes of rows of a type on tasks merge them with what is stored, and not
                this process: bytes, or a text such as `"512 MiB"`; by default `OMNIGRAPH_MERGE_THRESHOLD`, or 1 GiB.

        Raises:
            BadRowsError: records cannot become rows of their type.
            ConstraintError: rows break a constraint of the schema.
            KeyConflictError: an id exists that should be new.
            SparkUnavailableError: Spark cannot be started.
            SparkError: work on Spark failed, again and again.
            CancelledError: it was told to stop.
            BudgetExceededError: it took too long.
        """
        self._graph._writable()
        request = LoadRequest(
            load_mode(mode),
            self._graph.default_branch if branch is None else branch,
            base=base,
            type_name=type_name,
            mapping=self._graph._mapping(mapping),
            lenient=lenient,
            expect_head=expect_head,
            unchanged=unchanged(unchanged_since, reads),
            timeout=timeout,
            idempotency_key=idempotency_key,
            message=message,
            embed=embed,
            memory_budget=memory_budget,
            progress=progress,
            check=check,
        )
        watch = Watch(jobs, cancel or Cancellation(), seconds)
        options = SparkOptions(self._session or session(), watch, split_bytes, merge_threshold=merge_threshold)
        return load(self._graph, _source(source, nodes, edges), request, options)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: Strategy | str | None = None,
        resolutions: Resolutions | None = None,
        preview: bool = False,
        delete_branch: bool = False,
        message: str | None = None,
        labels: Mapping[str, str] | None = None,
        expect_head: str | None = None,
        unchanged_since: str | None = None,
        reads: Sequence[ListedRead] = (),
        timeout: float | None = None,
        idempotency_key: str | None = None,
        memory_budget: int | str | None = None,
        jobs: Callable[[JobProgress], None] | None = None,
        cancel: Cancellation | None = None,
        seconds: float | None = None,
    ) -> MergeReceipt:
        """Merge a branch into another, by tasks on Spark: any size, and the same graph that `Graph.merge` makes of it.

        Args:
            source: the branch to merge; as in `Graph.merge`, like everything down to `memory_budget`.
            into: the branch that gets the commit.
            strategy: which side is right in every conflict.
            resolutions: which side is right in single conflicts.
            preview: say what would happen, and write nothing.
            delete_branch: delete the source afterwards.
            message: the commit's.
            labels: the commit's.
            expect_head: merge only if this commit is the head of the target.
            unchanged_since: write only if nothing that the write depends on has changed since this commit: the rows
                that it touches, what each of its conditions matches, and the results of `reads`.
            reads: queries, each as a text or as (text, parameters).
            timeout: seconds that it may wait for its turn, and be run again after others; by default 60.
            idempotency_key: a merge with a key that a commit of the target carries is not repeated.
            memory_budget: how much memory the rows that change may take here.
            jobs: is told how far the work on Spark has come.
            cancel: stops the merge from another thread, until it is committed.
            seconds: how long the work on Spark may take.

        Raises:
            MergeConflictsError: the branches disagree.
            MergeSchemaError: rows cannot be carried between their schemas.
            SparkUnavailableError: Spark cannot be started.
            SparkError: work on Spark failed, again and again.
            CancelledError: it was told to stop.
            BudgetExceededError: it took too long.
        """
        request = MergeRequest(
            source,
            into,
            strategy,
            resolutions,
            preview,
            delete_branch,
            message,
            labels,
            expect_head,
            idempotency_key,
            memory_budget,
            unchanged=unchanged(unchanged_since, reads),
            timeout=timeout,
        )
        watch = Watch(jobs, cancel or Cancellation(), seconds)
        return merge(self._graph, request, MergeOptions(self._session or session(), watch))

    def embed(
        self,
        *,
        which: Which | str = Which.STALE,
        types: str | Sequence[str] = (),
        properties: str | Sequence[str] = (),
        branch: str | None = None,
        expect_head: str | None = None,
        message: str | None = None,
        memory_budget: int | str | None = None,
        progress: Callable[[EmbedProgress], None] | None = None,
        check: bool = False,
        engine: Engine | str = Engine.SPARK,
        jobs: Callable[[JobProgress], None] | None = None,
        cancel: Cancellation | None = None,
        seconds: float | None = None,
    ) -> EmbedReceipt:
        """Bring the vectors of `@embed` properties up to date, by tasks on Spark: the vectors that `Graph.embed` gives.

        Args:
            which: as in `Graph.embed`, like everything down to `check`.
            types: node types.
            properties: vectors.
            branch: where.
            expect_head: do it only if this commit is the branch head.
            message: the commit's.
            memory_budget: how much memory vectors may take here, with the engine `local`.
            progress: is told how far it has come.
            check: compute what there is to compute, and write nothing.
            engine: `spark`, `local`, or `auto`, which goes by the size of the tables.
            jobs: is told how far the work on Spark has come.
            cancel: stops it from another thread, until it is committed.
            seconds: how long the work on Spark may take.

        Raises:
            InputError: there is no such type, vector or engine.
            EmbeddingModelError: the schema records another model than the one that is configured.
            EmbeddingError: vectors cannot be computed. Nothing was written.
            SparkUnavailableError: Spark cannot be started.
            SparkError: work on Spark failed, again and again.
            CancelledError: it was told to stop.
            BudgetExceededError: it took too long.
        """
        self._graph._writable()
        stop = cancel or Cancellation()
        request = EmbedRequest(
            branch_name(self._graph.default_branch if branch is None else branch),
            which_of(which),
            several(types),
            several(properties),
            expect_head=expect_head,
            message=message,
            memory_budget=memory_budget,
            progress=progress,
            cancel=stop,
            check=check,
        )
        spark = self._session or session()
        chosen = way(self._graph, engine, request.branch, request.types, started=spark.started)
        if chosen.engine is not Engine.SPARK:
            return embed(self._graph, request)
        return embed_on_spark(self._graph, request, spark, Watch(jobs, stop, seconds))

    def optimize(
        self,
        *,
        engine: Engine | str = Engine.SPARK,
        rows_per_fragment: int = ROWS_PER_FRAGMENT,
        jobs: Callable[[JobProgress], None] | None = None,
        cancel: Cancellation | None = None,
        seconds: float | None = None,
        chosen: Callable[[Choice], None] | None = None,
    ) -> OptimizeReceipt:
        """Do what `Graph.optimize` does, with tasks that pack rows and build indexes.

        Args:
            engine: `spark`, `local`, or `auto`: on Spark if much has to be written anew.
            rows_per_fragment: about how many rows a file has afterwards.
            jobs: is told how far the work on Spark has come.
            cancel: stops it from another thread, until it is committed.
            seconds: how long the work on Spark may take.
            chosen: is told where the work is done.

        Raises:
            WriteTimeoutError: it did not get its turn in time.
            SparkUnavailableError: Spark cannot be started.
            CancelledError: it was told to stop.
        """
        self._graph._writable()
        watch = Watch(jobs, cancel or Cancellation(), seconds)
        return optimize_by(
            self._graph,
            engine,
            lambda: self._session or session(),
            watch,
            rows_per_fragment=rows_per_fragment,
            chosen=chosen,
        )

    def export(
        self,
        target: str | os.PathLike[str],
        *,
        format: ExportFormat | str = ExportFormat.NDJSON,
        types: str | Sequence[str] | None = None,
        branch: str | None = None,
        at: At | None = None,
        jobs: Callable[[JobProgress], None] | None = None,
        cancel: Cancellation | None = None,
        seconds: float | None = None,
    ) -> ExportReceipt:
        """Export one snapshot by tasks on Spark.

        Args:
            target: a file for NDJSON, the same as `Graph.export` writes; a new directory for Parquet and Arrow, with a
                directory of parts for each type. A path, or `s3://bucket/path`.
            format: `ndjson`, `parquet` or `arrow`.
            types: a name or several; by default all.
            branch: the newest state of a branch; by default the handle's.
            at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.
            jobs: is told how far the work on Spark has come.
            cancel: stops it from another thread.
            seconds: how long it may take.

        Raises:
            InputError: there is no such type or format, or the target cannot be written.
            NotFoundError: there is no such commit.
            SparkUnavailableError: Spark cannot be started.
            SparkError: Spark failed.
        """
        return export(
            self._graph,
            target,
            format=format,
            types=types,
            branch=branch,
            at=at,
            session=self._session,
            watch=Watch(jobs, cancel or Cancellation(), seconds),
        )

    def analyse(
        self,
        *,
        nodes: str | Sequence[str] | None = None,
        edges: str | Sequence[str] | None = None,
        weight: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        engine: Engine | str = Engine.AUTO,
    ) -> Analysis:
        """A snapshot, ready for algorithms: PageRank, components, labels, triangles and shortest paths.

        Args:
            nodes: node types; by default those at the ends of the edges, and all when no edges are named.
            edges: edge types; by default all that lie between the nodes.
            weight: a property of every edge that says how long it is, for shortest paths.
            branch: the newest state of a branch; by default the handle's.
            at: another state: a snapshot, a commit id or a tag; or of the branch, a time or a manifest version.
            engine: `auto`, `local` or `spark`; by default in this process while it has the memory that
                `OMNIGRAPH_QUERY_MEMORY` allows, and on Spark beyond.

        Raises:
            InputError: there is no such type, property or engine.
            NotFoundError: there is no such branch or commit.
        """
        return analyse(
            self._graph,
            nodes=nodes,
            edges=edges,
            weight=weight,
            branch=branch,
            at=at,
            engine=engine,
            session=self._session,
        )

    def run(
        self,
        pipeline: str | os.PathLike[str] | Mapping[str, Any],
        *,
        variables: Mapping[str, object] | None = None,
        run_id: str | None = None,
        check: bool = False,
        engine: Engine | str = Engine.AUTO,
        progress: Callable[[LoadProgress], None] | None = None,
        jobs: Callable[[JobProgress], None] | None = None,
        cancel: Cancellation | None = None,
    ) -> RunReceipt:
        """Run a declared pipeline: load its rows as one commit on a branch, check the branch, and merge or leave it.

        A run that was stopped goes on where it was when it is started again: what is loaded is not loaded twice.

        Args:
            pipeline: the path of a YAML file, or what it would hold.
            variables: values for its variables.
            run_id: which run this is; by default what the file, the variables and the inputs are decides it.
            check: check everything, and write nothing.
            engine: `auto`, `local` or `spark`: where rows are loaded. SQL needs Spark.
            progress: is told how far the load has come.
            jobs: is told how far the work on Spark has come.
            cancel: stops the work on Spark from another thread.

        Raises:
            InputError: the declaration cannot be used, or the id of the run belongs to another one.
            PipelineCheckError: a check does not hold. Nothing was merged.
            BadRowsError: records cannot become rows of their type.
            ConstraintError: rows break a constraint of the schema.
            SparkUnavailableError: Spark is needed, and cannot be started.
        """
        request = RunRequest(
            variables=variables or {},
            run_id=run_id,
            check=check,
            engine=engine,
            session=self._session,
            progress=progress,
            jobs=jobs,
            cancel=cancel or Cancellation(),
        )
        return run(self._graph, pipeline, request)


def _source(source: Any, nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None) -> Any:
    if nodes is None and edges is None:
        if source is None:
            raise InputError("there is nothing to load", hint="give a source, or nodes= and edges=")
        return source
    if source is not None:
        raise InputError("give a source, or nodes= and edges=, but not both")
    named = {f"node:{name}": rows for name, rows in (nodes or {}).items()}
    return named | {f"edge:{name}": rows for name, rows in (edges or {}).items()}
