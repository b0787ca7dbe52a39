"""The seam to the pipeline, which lies above the graph: what a handle offers of it, and how it is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from omnigraph.write.load import LoadMode, LoadProgress, LoadReceipt

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph


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
        branch: str | None = None,
        base: str | None = None,
        expect_head: str | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        embed: bool = True,
        memory_budget: int | str | None = None,
        progress: Callable[[LoadProgress], None] | None = None,
        check: bool = False,
    ) -> LoadReceipt: ...


def pipeline_of(graph: Graph) -> Pipeline:
    """The pipeline of a graph. It is found by its name when it is first asked for: imports point downwards."""
    return cast(Pipeline, import_module("omnigraph.pipeline.pipeline").Pipeline(graph))
