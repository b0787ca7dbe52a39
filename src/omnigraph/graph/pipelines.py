"""The seam to the pipeline, which lies above the graph: what a handle offers of it, and how it is found."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from omnigraph.commit.manifest import Commit
from omnigraph.merge.choices import Resolutions, Strategy
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.read.export.files import ExportFormat, ExportReceipt
from omnigraph.upkeep.optimize import OptimizeReceipt
from omnigraph.upkeep.vectors import EmbedProgress, EmbedReceipt, Which
from omnigraph.write.load import LoadMode, LoadProgress, LoadReceipt
from omnigraph.write.table_mapping import MappingSource

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph
    from omnigraph.graph.preconditions import ListedRead


class Found(Protocol):
    """What an algorithm found about the nodes of a snapshot."""

    @property
    def table(self) -> pa.Table: ...

    def frame(self, spark: Any) -> Any: ...

    def write(
        self, property: str, *, branch: str, message: str | None = None, idempotency_key: str | None = None
    ) -> LoadReceipt: ...


class Algorithms(Protocol):
    """A snapshot, ready for algorithms."""

    @property
    def where(self) -> object: ...

    def pagerank(self, *, damping: float = ..., iterations: int = ..., tolerance: float = ...) -> Found: ...

    def components(self) -> Found: ...

    def labels(self, *, iterations: int = ...) -> Found: ...

    def triangles(self) -> Found: ...

    def shortest_paths(self, sources: str | Sequence[str], *, direction: str = ...) -> Found: ...


class RunCheck(Protocol):
    """What a check of a declared pipeline found."""

    @property
    def name(self) -> str: ...

    @property
    def passed(self) -> bool | None: ...

    @property
    def rows(self) -> int: ...


class Run(Protocol):
    """What a run of a declared pipeline did."""

    @property
    def run_id(self) -> str: ...

    @property
    def stage(self) -> str: ...

    @property
    def branch(self) -> str: ...

    @property
    def engine(self) -> str | None: ...

    @property
    def checks(self) -> Sequence[RunCheck]: ...

    @property
    def total(self) -> int: ...

    @property
    def resumed(self) -> bool: ...

    @property
    def load(self) -> LoadReceipt | None: ...

    @property
    def commit(self) -> Commit | None: ...

    @property
    def merge(self) -> Commit | None: ...

    def to_json(self) -> dict[str, Any]: ...


class Pipeline(Protocol):
    """What a graph can have done on Spark; `omnigraph.pipeline` describes it."""

    def load(
        self,
        source: Any = None,
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
    ) -> LoadReceipt: ...

    def merge(
        self,
        source: str,
        into: str = ...,
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
    ) -> MergeReceipt: ...

    def embed(
        self,
        *,
        which: Which | str = ...,
        types: str | Sequence[str] = (),
        properties: str | Sequence[str] = (),
        branch: str | None = None,
        expect_head: str | None = None,
        message: str | None = None,
        memory_budget: int | str | None = None,
        progress: Callable[[EmbedProgress], None] | None = None,
        check: bool = False,
        engine: str = ...,
    ) -> EmbedReceipt: ...

    def optimize(self, *, engine: str = ..., rows_per_fragment: int = ...) -> OptimizeReceipt: ...

    def export(
        self,
        target: str | os.PathLike[str],
        *,
        format: ExportFormat | str = ...,
        types: str | Sequence[str] | None = None,
        branch: str | None = None,
        at: Any = None,
    ) -> ExportReceipt: ...

    def analyse(
        self,
        *,
        nodes: str | Sequence[str] | None = None,
        edges: str | Sequence[str] | None = None,
        weight: str | None = None,
        branch: str | None = None,
        at: Any = None,
        engine: str = ...,
    ) -> Algorithms: ...

    def run(
        self,
        pipeline: str | os.PathLike[str] | Mapping[str, Any],
        *,
        variables: Mapping[str, object] | None = None,
        run_id: str | None = None,
        check: bool = False,
        engine: str = ...,
        progress: Callable[[LoadProgress], None] | None = None,
    ) -> Run: ...


def pipeline_of(graph: Graph) -> Pipeline:
    """The pipeline of a graph. It is found by its name when it is first asked for: imports point downwards."""
    return cast(Pipeline, import_module("omnigraph.pipeline.pipeline").Pipeline(graph))
