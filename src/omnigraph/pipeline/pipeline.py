"""What a graph can have done on Spark, as its handle offers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.graph.loading import LoadRequest, load_mode
from omnigraph.pipeline.jobs import JobProgress, Watch
from omnigraph.pipeline.load import SparkOptions, load
from omnigraph.pipeline.session import Session, session
from omnigraph.read.budget import Cancellation
from omnigraph.write.load import LoadProgress
from omnigraph.write.receipt import LoadMode, LoadReceipt
from omnigraph.write.sources import LoadSource
from omnigraph.write.splits import SPLIT_BYTES

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
        branch: str | None = None,
        base: str | None = None,
        expect_head: str | None = None,
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
    ) -> LoadReceipt:
        """Load rows as one commit, by tasks on Spark: any amount, and the same graph that `Graph.load` makes of it.

        Args:
            source: what `Graph.load` takes, or DataFrames: one whose type `type_name` says, or by type.
            nodes: rows by node type, in the place of a source.
            edges: rows by edge type, beside those.
            mode: as in `Graph.load`, like everything down to `check`.
            type_name: the type in a file or table that does not say it.
            branch: where to.
            base: a branch to fork the target from if there is no such branch yet.
            expect_head: load only if this commit is the branch head.
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
            expect_head=expect_head,
            idempotency_key=idempotency_key,
            message=message,
            embed=embed,
            memory_budget=memory_budget,
            progress=progress,
            check=check,
        )
        watch = Watch(jobs, cancel or Cancellation(), seconds)
        options = SparkOptions(self._session or session(), watch, split_bytes)
        return load(self._graph, _source(source, nodes, edges), request, options)


def _source(source: Any, nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None) -> Any:
    if nodes is None and edges is None:
        if source is None:
            raise InputError("there is nothing to load", hint="give a source, or nodes= and edges=")
        return source
    if source is not None:
        raise InputError("give a source, or nodes= and edges=, but not both")
    named = {f"node:{name}": rows for name, rows in (nodes or {}).items()}
    return named | {f"edge:{name}": rows for name, rows in (edges or {}).items()}
