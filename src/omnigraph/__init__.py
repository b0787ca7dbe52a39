"""OmniGraph: a typed property graph on Lance, with branches over the whole graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from omnigraph.graph import Budget, Cancellation, Graph, init, open, relocate, repair, restore

__all__ = ["Budget", "Cancellation", "Graph", "__version__", "init", "open", "relocate", "repair", "restore"]


def __getattr__(name: str) -> Any:
    """The embedded API, loaded when it is first used: the command line's help needs none of it."""
    if name in __all__:
        from omnigraph import graph

        return getattr(graph, name)
    raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
