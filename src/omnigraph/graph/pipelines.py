"""The protocol of `Graph.pipeline`. The implementation is in a higher layer and is imported at first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Unpack

import pyarrow as pa

from omnigraph.commit.manifest import Commit
from omnigraph.engine.engines import Engine, JobProgress
from omnigraph.engine.options import TypedDict
from omnigraph.engine.request_options import EmbedOptions, ExportOptions, LoadOptions, MergeOptions, OptimizeOptions
from omnigraph.engine.session import At
from omnigraph.merge.receipt import MergeReceipt
from omnigraph.read.budget import Cancellation
from omnigraph.read.export.files import ExportFormat, ExportReceipt
from omnigraph.upkeep.optimize import OptimizeReceipt
from omnigraph.upkeep.vectors import EmbedReceipt
from omnigraph.write.load import LoadProgress
from omnigraph.write.receipt import LoadReceipt


class JobOptions(TypedDict, total=False):
    """Options of Spark jobs. `SparkOptions` documents them."""

    jobs: Callable[[JobProgress], None] | None
    seconds: float | None
    split_bytes: int
    merge_threshold: int | str | None


class PipelineLoadOptions(LoadOptions, JobOptions, total=False):
    """Options of a load on Spark."""


class PipelineMergeOptions(MergeOptions, JobOptions, total=False):
    """Options of a merge on Spark."""


class PipelineEmbedOptions(EmbedOptions, JobOptions, total=False):
    """Options of embed on Spark."""


class PipelineExportOptions(ExportOptions, JobOptions, total=False):
    """Options of an export on Spark."""


class PipelineOptimizeOptions(OptimizeOptions, JobOptions, total=False):
    """Options of optimize on Spark."""


class AnalyseOptions(TypedDict, total=False):
    """Options of graph algorithms."""

    nodes: str | Sequence[str] | None
    edges: str | Sequence[str] | None
    weight: str | None
    branch: str | None
    at: At | None
    engine: Engine | str


class RunOptions(TypedDict, total=False):
    """Options of a run of a declared pipeline."""

    variables: Mapping[str, object]
    run_id: str | None
    check: bool
    engine: Engine | str
    progress: Callable[[LoadProgress], None] | None
    jobs: Callable[[JobProgress], None] | None
    cancel: Cancellation


class AlgorithmResult(Protocol):
    """The value of each node of a snapshot, computed by an algorithm."""

    @property
    def table(self) -> pa.Table: ...

    def frame(self, spark: Any) -> Any: ...

    def write(
        self, property: str, *, branch: str, message: str | None = None, idempotency_key: str | None = None
    ) -> LoadReceipt: ...


class Algorithms(Protocol):
    """Graph algorithms on one snapshot."""

    @property
    def where(self) -> object: ...

    def pagerank(self, *, damping: float = ..., iterations: int = ..., tolerance: float = ...) -> AlgorithmResult: ...

    def components(self) -> AlgorithmResult: ...

    def labels(self, *, iterations: int = ...) -> AlgorithmResult: ...

    def triangles(self) -> AlgorithmResult: ...

    def shortest_paths(self, sources: str | Sequence[str], *, direction: str = ...) -> AlgorithmResult: ...


class RunCheck(Protocol):
    """The outcome of one check of a declared pipeline."""

    @property
    def name(self) -> str: ...

    @property
    def passed(self) -> bool | None: ...

    @property
    def rows(self) -> int: ...


class Run(Protocol):
    """The receipt of a run of a declared pipeline."""

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
    """The verbs that run on Spark. `omnigraph.pipeline.pipeline` documents them."""

    def load(
        self,
        source: Any = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        branch: str | None = None,
        **options: Unpack[PipelineLoadOptions],
    ) -> LoadReceipt: ...

    def merge(self, source: str, into: str = ..., **options: Unpack[PipelineMergeOptions]) -> MergeReceipt: ...

    def embed(self, *, branch: str | None = None, **options: Unpack[PipelineEmbedOptions]) -> EmbedReceipt: ...

    def optimize(self, **options: Unpack[PipelineOptimizeOptions]) -> OptimizeReceipt: ...

    def export(
        self,
        target: str | os.PathLike[str],
        *,
        format: ExportFormat | str = ...,
        branch: str | None = None,
        at: At | None = None,
        **options: Unpack[PipelineExportOptions],
    ) -> ExportReceipt: ...

    def analyse(self, **options: Unpack[AnalyseOptions]) -> Algorithms: ...

    def run(self, pipeline: str | os.PathLike[str] | Mapping[str, Any], **options: Unpack[RunOptions]) -> Run: ...
